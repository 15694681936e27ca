//! The soak in the length that every run of the tests can afford, and the proof that it finds what is broken.

use std::time::Duration;

use recoup_tests::soak::{self, Plan, Report, Sabotage};

const SEED: u64 = 20_260_101;

#[allow(clippy::print_stdout)]
async fn run(plan: Plan) -> Report {
    let report = soak::run(plan, std::future::pending()).await;
    println!("{report}");
    report
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn hundreds_of_kills_lose_nothing_and_double_nothing() {
    let plan = Plan {
        seed: SEED,
        kills: 250,
        at_least: Duration::from_secs(90),
        at_most: Duration::from_secs(15 * 60),
        patience: Duration::from_secs(180),
        sabotage: None,
        is_shown: true,
    };
    let report = run(plan).await;
    assert_eq!(report.violations, [], "{report}");
    assert!(report.kills() >= 250, "{report}");
    for figure in [
        "fault: MongoDB killed",
        "fault: Redis killed",
        "fault: Redis emptied",
        "fault: replies lost",
        "operator: commands that did it",
    ] {
        assert!(report.sum_of(figure) > 0, "{figure}: none\n{report}");
    }
    assert!(report.sum_of("end: jobs delivered after a refund") > 0, "{report}");
}

async fn finds(sabotage: Sabotage) {
    let plan = Plan {
        seed: SEED,
        kills: 25,
        at_least: Duration::from_secs(10),
        at_most: Duration::from_secs(5 * 60),
        patience: Duration::from_secs(15),
        sabotage: Some(sabotage),
        is_shown: false,
    };
    let report = run(plan).await;
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
