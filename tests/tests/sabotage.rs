//! The proof that the soak finds what is broken.

use std::time::Duration;

use recoup_tests::soak::{self, Plan, Sabotage};

async fn finds(sabotage: Sabotage) {
    let plan = Plan {
        seed: 20_260_101,
        kills: 25,
        kinds: &[],
        at_least: Duration::from_secs(10),
        at_most: Duration::from_secs(5 * 60),
        patience: Duration::from_secs(15),
        sabotage: Some(sabotage),
        is_shown: false,
    };
    let report = soak::run(plan, std::future::pending()).await;
    assert!(report.found(sabotage.breaks()), "{report}");
}

macro_rules! the_soak_finds {
    ($($name:ident: $sabotage:ident),* $(,)?) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
            async fn $name() {
                finds(Sabotage::$sabotage).await;
            }
        )*
    };
}

the_soak_finds!(
    a_source_that_loses_events_is_found: LoseEvents,
    a_refund_of_delivered_work_is_found: NoDeliveredGuard,
    a_failure_that_is_counted_again_is_found: NoAttemptGuard,
    a_sweep_that_never_comes_is_found: NoSweep,
    work_that_nobody_misses_is_found: NoAttemptTimeout,
    an_entry_that_goes_away_is_found: RemoveEntries,
    work_that_was_never_dispatched_is_found: ForgeWork,
);
