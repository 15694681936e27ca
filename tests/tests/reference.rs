//! The simulation's reference is held to what every store is held to: without that, agreeing with it would mean little.

use recoup_tests::drain_suite::World;
use recoup_tests::ledger_suite::Fresh;
use recoup_tests::simulation::reference::{MemoryLedger, MemoryRooms};

mod ledger {
    use super::*;

    async fn fresh() -> Fresh<MemoryLedger> {
        Fresh::new(MemoryLedger::default(), ())
    }

    recoup_tests::ledger_suite!(fresh, sequences = 64);
}

mod queue {
    use super::*;

    recoup_tests::queue_suite!(MemoryRooms::fresh);
}

mod drain {
    use super::*;

    async fn world() -> World<MemoryLedger, MemoryRooms> {
        World::new(MemoryLedger::default(), MemoryRooms::fresh())
    }

    recoup_tests::drain_suite!(world);
}
