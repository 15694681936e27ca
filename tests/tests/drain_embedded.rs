//! The drain over the embedded file, ledger and queue in one.

use recoup::ledger::sqlite::SqliteLedger;
use recoup_tests::drain_suite::World;
use recoup_tests::sqlite_rooms::SqliteRooms;

async fn world() -> World<SqliteLedger, SqliteRooms> {
    let rooms = SqliteRooms::fresh();
    World::new(rooms.ledger(), rooms)
}

recoup_tests::drain_suite!(world);
