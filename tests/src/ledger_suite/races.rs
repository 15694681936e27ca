//! Many writers at once on one job: each credit moves once, and exactly one of them is told that it moved it.

use std::collections::BTreeMap;
use std::sync::Arc;

use recoup::job::{EntryType, JobId, Phase};
use tokio::sync::Barrier;

use super::commands::{Command, failure_of, failure_with};
use super::{Store, at, job_id, stored};

/// Writers that start together.
const WRITERS: usize = 32;

/// How often each outcome was answered.
type Counts = BTreeMap<String, usize>;

/// Lets every command go at once, on its own task.
async fn race<L: Store>(ledger: &Arc<L>, id: &JobId, commands: Vec<Command>) -> Counts {
    let start = Arc::new(Barrier::new(commands.len()));
    let mut tasks = Vec::new();
    for (n, command) in commands.into_iter().enumerate() {
        let (ledger, start, id) = (Arc::clone(ledger), Arc::clone(&start), id.clone());
        tasks.push(tokio::spawn(async move {
            start.wait().await;
            let seconds = i64::try_from(n).expect("the writers are few");
            command.run(ledger.as_ref(), &id, at(100 + seconds)).await.outcome
        }));
    }
    let mut counts = Counts::new();
    for task in tasks {
        *counts.entry(task.await.expect("no writer panics")).or_default() += 1;
    }
    counts
}

fn counts(expected: &[(&str, usize)]) -> Counts {
    expected.iter().map(|(outcome, count)| ((*outcome).to_owned(), *count)).collect()
}

async fn charged<L: Store>(ledger: L, id: &JobId) -> Arc<L> {
    Command::Charge { cost: 7, max_attempts: 5 }.run(&ledger, id, at(0)).await;
    Arc::new(ledger)
}

/// One of many charges wins, the others are duplicates.
pub async fn one_of_many_charges_wins<L: Store>(ledger: L) {
    let (ledger, id) = (Arc::new(ledger), job_id("raced"));
    let charges = vec![Command::Charge { cost: 7, max_attempts: 5 }; WRITERS];
    assert_eq!(race(&ledger, &id, charges).await, counts(&[("Charged", 1), ("Duplicate", WRITERS - 1)]));
    assert_eq!(stored(ledger.as_ref(), &id).await.net, -7);
}

/// One of many failures refunds: of the same attempt, of unknown attempts with an id each, and of an attempt each, where
/// many may count.
pub async fn one_of_many_failures_refunds<L: Store>(ledger: L) {
    let id = job_id("raced");
    let ledger = charged(ledger, &id).await;
    let failures = vec![Command::Fail(failure_of(1)); WRITERS];
    assert_eq!(race(&ledger, &id, failures).await, counts(&[("Refunded", 1), ("Duplicate", WRITERS - 1)]));
    assert_eq!(stored(ledger.as_ref(), &id).await.net, 0);

    let id = job_id("raced too");
    Command::Charge { cost: 7, max_attempts: 5 }.run(ledger.as_ref(), &id, at(0)).await;
    let failures = (0..WRITERS).map(|n| Command::Fail(failure_with(Some(&format!("event {n}"))))).collect();
    assert_eq!(race(&ledger, &id, failures).await, counts(&[("Refunded", 1), ("Duplicate", WRITERS - 1)]));
    let job = stored(ledger.as_ref(), &id).await;
    assert_eq!((job.attempts, job.counted_events.len(), job.net), (1, 1, 0));

    let id = job_id("raced by attempts");
    Command::Charge { cost: 7, max_attempts: 5 }.run(ledger.as_ref(), &id, at(0)).await;
    let failures = (1..).take(WRITERS).map(|k| Command::Fail(failure_of(k))).collect();
    assert_eq!(race(&ledger, &id, failures).await.get("Refunded"), Some(&1));
    let last = Command::Fail(failure_of(1_000)).run(ledger.as_ref(), &id, at(200)).await;
    assert_eq!(last.outcome, "FailureRecorded", "one counts after the refund, however the race went");
    let job = stored(ledger.as_ref(), &id).await;
    assert_eq!((job.attempts, job.net), (1_000, 0));
}

/// One of many successes takes the refund back.
pub async fn one_of_many_successes_reclaims<L: Store>(ledger: L) {
    let id = job_id("raced");
    let ledger = charged(ledger, &id).await;
    Command::Fail(failure_of(1)).run(ledger.as_ref(), &id, at(1)).await;
    let successes = vec![Command::Succeed; WRITERS];
    assert_eq!(race(&ledger, &id, successes).await, counts(&[("Reclaimed", 1), ("Duplicate", WRITERS - 1)]));
    assert_eq!(stored(ledger.as_ref(), &id).await.net, -7);
}

/// Failures and successes together: one success wins, a refund is written at most once and, where it is, taken back
/// once; the customer has paid.
pub async fn failures_and_successes_move_each_credit_once<L: Store>(ledger: L) {
    let ledger = Arc::new(ledger);
    for round in 0..4 {
        let id = job_id(&format!("raced {round}"));
        Command::Charge { cost: 7, max_attempts: 5 }.run(ledger.as_ref(), &id, at(0)).await;
        let signals = (0..WRITERS)
            .map(|n| match n % 4 {
                0 | 1 => Command::Succeed,
                2 => Command::Fail(failure_of(1)),
                _ => Command::Fail(failure_of(2)),
            })
            .collect();
        let told = race(&ledger, &id, signals).await;
        let count = |outcome: &str| told.get(outcome).copied().unwrap_or(0);
        let job = stored(ledger.as_ref(), &id).await;
        assert_eq!((job.phase, job.net), (Phase::Delivered, -7), "{told:?}");
        assert_eq!(count("Delivered") + count("Reclaimed"), 1, "{told:?}");
        assert_eq!(count("Refunded"), usize::from(job.is_refunded), "{told:?}");
        assert_eq!(count("Reclaimed"), usize::from(job.is_reclaimed), "{told:?}");
        let refunds = job.entries.iter().filter(|entry| entry.kind == EntryType::Refund).count();
        assert_eq!(refunds, count("Refunded"), "{told:?}");
    }
}

/// One of many drains takes a due retry up; the others find its hand-over open.
pub async fn one_of_many_dispatches_wins<L: Store>(ledger: L) {
    let id = job_id("raced");
    let ledger = charged(ledger, &id).await;
    Command::Fail(failure_of(1)).run(ledger.as_ref(), &id, at(1)).await;
    let dispatches = vec![Command::Dispatch { attempts: 1, ran_out: false }; WRITERS];
    let told = race(&ledger, &id, dispatches).await;
    assert_eq!(told, counts(&[("Dispatched", 1), ("HandOverOpen", WRITERS - 1)]));
}

/// A failure that overtakes its charge is unknown, or is counted once the charge is there: never a duplicate, which
/// nobody would deliver again.
pub async fn a_failure_beside_its_charge_is_unknown_or_counted<L: Store>(ledger: L) {
    let ledger = Arc::new(ledger);
    for round in 0..8 {
        let id = job_id(&format!("raced {round}"));
        let both = vec![Command::Fail(failure_of(1)), Command::Charge { cost: 7, max_attempts: 5 }];
        let told = race(&ledger, &id, both).await;
        let job = stored(ledger.as_ref(), &id).await;
        let expected = if job.is_refunded { "Refunded" } else { "UnknownJob" };
        assert_eq!(told, counts(&[("Charged", 1), (expected, 1)]));
    }
}
