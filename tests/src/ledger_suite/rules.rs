//! The contract's tables, written out by hand: what every command answers in every phase, and what stands afterwards.

use std::time::Duration;

use recoup::clock::Timestamp;
use recoup::job::{COUNTED_EVENTS_KEPT, Cost, EntryType, Job, JobId, MAX_ATTEMPT, MAX_COST, Phase};
use recoup::ledger::LedgerError;
use recoup::transition::{Charge, ChargeOutcome, FailureOutcome, RedriveOutcome, SuccessOutcome};

use super::commands::{Command, charge, delays, failure_of, failure_with, for_good};
use super::{Store, account, at, job_id, stored};

/// The states in which the table knows a job, in the order of its columns.
const STATES: [&str; 10] =
    ["first", "open", "handed", "waiting", "redriven", "at cap", "dead", "failed", "delivered", "reclaimed"];
/// When the table's commands are given; everything before took less than a minute.
const NOW: i64 = 10_000;
/// A timeout that all attempts have exceeded by then.
const SHORT: Duration = Duration::from_secs(60);
/// A timeout that none has.
const LONG: Duration = Duration::from_secs(86_400);

/// Brings a fresh job into a state. All but the first have failed once, with the event `counted`.
async fn bring<L: Store>(ledger: &L, id: &JobId, state: &str) -> Job {
    let cap = if state == "at cap" || state == "dead" { 1 } else { 3 };
    let failed =
        || Command::Fail(recoup::transition::Failure { attempt: Some(1), ..failure_with(Some("counted")) });
    let dispatched = || Command::Dispatch { attempts: 1, ran_out: false };
    let given_up = || Command::Fail(for_good(failure_of(1)));
    let after_the_charge = match state {
        "first" => vec![],
        "open" => vec![failed(), dispatched()],
        "handed" => vec![failed(), dispatched(), Command::HandedOver { attempts: 1 }],
        "waiting" | "at cap" => vec![failed()],
        "redriven" => vec![failed(), given_up(), Command::Redrive { allowance: 3 }],
        "dead" => vec![failed(), dispatched()],
        "failed" => vec![failed(), given_up()],
        "delivered" => vec![Command::Succeed],
        "reclaimed" => vec![failed(), Command::Succeed],
        other => panic!("no state {other:?}"),
    };
    Command::Charge { cost: 5, max_attempts: cap }.run(ledger, id, at(0)).await;
    for (command, seconds) in after_the_charge.iter().zip(1..) {
        command.run(ledger, id, at(seconds)).await;
    }
    stored(ledger, id).await
}

/// A row of the table: what is said of it, the command for a job with so many failures, an answer for each state.
type Row = (&'static str, fn(u32) -> Command, [&'static str; 10]);

#[rustfmt::skip]
const TABLE: [Row; 18] = [
    ("charge again",
     |_| Command::Charge { cost: 5, max_attempts: 9 },
     ["Duplicate"; 10]),
    ("charge of another cost",
     |_| Command::Charge { cost: 6, max_attempts: 3 },
     ["Conflict"; 10]),
    ("failure of the next attempt",
     |n| Command::Fail(failure_of(n + 1)),
     ["Refunded", "FailureRecorded", "FailureRecorded", "FailureRecorded", "FailureRecorded",
      "FailureRecorded", "FailureRecorded", "FailureRecorded", "AlreadyDelivered", "AlreadyDelivered"]),
    ("failure of an attempt counted before",
     |n| Command::Fail(failure_of(n)),
     ["Duplicate", "Duplicate", "Duplicate", "Duplicate", "Duplicate",
      "Duplicate", "Duplicate", "Duplicate", "AlreadyDelivered", "AlreadyDelivered"]),
    ("final failure of the next attempt",
     |n| Command::Fail(for_good(failure_of(n + 1))),
     ["Refunded", "FailureRecorded", "FailureRecorded", "FailureRecorded", "FailureRecorded",
      "FailureRecorded", "FailureRecorded", "FailureRecorded", "AlreadyDelivered", "AlreadyDelivered"]),
    ("final failure of an attempt counted before",
     |n| Command::Fail(for_good(failure_of(n))),
     ["Duplicate", "Duplicate", "Duplicate", "FailureRecorded", "Duplicate",
      "FailureRecorded", "Duplicate", "Duplicate", "AlreadyDelivered", "AlreadyDelivered"]),
    ("failure of an unknown attempt",
     |_| Command::Fail(failure_with(Some("new"))),
     ["Refunded", "FailureRecorded", "FailureRecorded", "Duplicate", "Duplicate",
      "Duplicate", "Duplicate", "Duplicate", "AlreadyDelivered", "AlreadyDelivered"]),
    ("failure of an unknown attempt, without an id",
     |_| Command::Fail(failure_with(None)),
     ["Refunded", "FailureRecorded", "FailureRecorded", "Duplicate", "Duplicate",
      "Duplicate", "Duplicate", "Duplicate", "AlreadyDelivered", "AlreadyDelivered"]),
    ("the same failure of an unknown attempt again",
     |_| Command::Fail(failure_with(Some("counted"))),
     ["Refunded", "Duplicate", "Duplicate", "Duplicate", "Duplicate",
      "Duplicate", "Duplicate", "Duplicate", "AlreadyDelivered", "AlreadyDelivered"]),
    ("final failure of an unknown attempt",
     |_| Command::Fail(for_good(failure_with(Some("new")))),
     ["Refunded", "FailureRecorded", "FailureRecorded", "FailureRecorded", "Duplicate",
      "FailureRecorded", "Duplicate", "Duplicate", "AlreadyDelivered", "AlreadyDelivered"]),
    ("success",
     |_| Command::Succeed,
     ["Delivered", "Reclaimed", "Reclaimed", "Reclaimed", "Reclaimed",
      "Reclaimed", "Reclaimed", "Reclaimed", "Duplicate", "Duplicate"]),
    ("dispatch",
     |n| Command::Dispatch { attempts: n, ran_out: false },
     ["Stale", "HandOverOpen", "Stale", "Dispatched", "Dispatched",
      "DeadLettered", "Stale", "Stale", "Stale", "Stale"]),
    ("dispatch for a claim that ran out",
     |n| Command::Dispatch { attempts: n, ran_out: true },
     ["Stale", "HandOverOpen", "Stale", "Dispatched", "Dispatched",
      "DeadLettered", "DeadLetterOpen", "Stale", "Stale", "Stale"]),
    ("dispatch of another attempt",
     |n| Command::Dispatch { attempts: n + 1, ran_out: true },
     ["Stale"; 10]),
    ("hand-over done",
     |n| Command::HandedOver { attempts: n.max(1) },
     ["false", "true", "false", "false", "false", "false", "false", "false", "false", "false"]),
    ("claims ran out too often, the first of them made after the redrive",
     |n| Command::Exhausted { attempts: n, first_claim: at(1_000) },
     ["Stale", "DeadLettered", "Stale", "DeadLettered", "DeadLettered",
      "DeadLettered", "DeadLetterOpen", "Stale", "Stale", "Stale"]),
    ("no signal for too long",
     |n| Command::Silent { k: n + 1, timeout: SHORT },
     ["Refunded", "NotSilent", "FailureRecorded", "NotSilent", "NotSilent",
      "NotSilent", "NotSilent", "NotSilent", "NotSilent", "NotSilent"]),
    ("redrive",
     |_| Command::Redrive { allowance: 2 },
     ["NotSetAside", "NotSetAside", "NotSetAside", "NotSetAside", "NotSetAside",
      "NotSetAside", "Redriven", "Redriven", "NotSetAside", "NotSetAside"]),
];

#[rustfmt::skip]
const EDGES: [Row; 4] = [
    ("claims ran out too often, the first of them made before the redrive",
     |n| Command::Exhausted { attempts: n, first_claim: at(3) },
     ["Stale", "DeadLettered", "Stale", "DeadLettered", "Redriven",
      "DeadLettered", "DeadLetterOpen", "Stale", "Stale", "Stale"]),
    ("claims of another attempt ran out",
     |n| Command::Exhausted { attempts: n + 1, first_claim: at(1_000) },
     ["Stale"; 10]),
    ("no signal, but not for long",
     |n| Command::Silent { k: n + 1, timeout: LONG },
     ["NotSilent"; 10]),
    ("no signal of another attempt",
     |n| Command::Silent { k: n + 2, timeout: SHORT },
     ["NotSilent"; 10]),
];

/// Every command answers in every phase as the table says, and leaves the balance that the answer means.
pub async fn every_command_answers_in_every_phase_as_the_table_says<L: Store>(ledger: L) {
    for (n, (what, command, answers)) in TABLE.iter().chain(&EDGES).enumerate() {
        for (state, expected) in STATES.iter().zip(answers) {
            let id = job_id(&format!("{n} {state}"));
            let before = bring(&ledger, &id, state).await;
            let command = command(before.attempts);
            let answer = command.run(&ledger, &id, at(NOW)).await;
            assert_eq!(answer.outcome, *expected, "{what}, on a job in state {state}");
            let after = stored(&ledger, &id).await;
            let (_, by_the_rules) = command.by_the_rules(&id, Some(&before), at(NOW));
            assert_eq!(Some(&after), by_the_rules.as_ref(), "{what}, on a job in state {state}");
            let moved = match *expected {
                "Refunded" => 5,
                "Reclaimed" => -5,
                _ => 0,
            };
            assert_eq!(after.net - before.net, moved, "{what}, on a job in state {state}");
            let refused = [
                "Duplicate",
                "Conflict",
                "AlreadyDelivered",
                "Stale",
                "HandOverOpen",
                "DeadLetterOpen",
                "Redriven",
                "NotSilent",
                "NotSetAside",
                "false",
            ];
            let is_redrive = *what == "redrive";
            if refused.contains(expected) && !is_redrive {
                assert_eq!(after, before, "{what}, on a job in state {state}");
            }
        }
    }
}

/// The first charge is written, the same again is a duplicate, another account or cost a conflict; the cap is the
/// first charge's.
pub async fn a_charge_is_written_once<L: Store>(ledger: L) {
    let id = job_id("job");
    let first = ledger.charge(&charge(&id, 40, 5), at(0)).await.expect("charged");
    assert_eq!(first.outcome, ChargeOutcome::Charged);
    assert_eq!((first.job.phase, first.job.net, first.job.max_attempts), (Phase::Running, -40, 5));
    let again = ledger.charge(&charge(&id, 40, 9), at(9)).await.expect("answered");
    assert_eq!((again.outcome, again.job), (ChargeOutcome::Duplicate, first.job.clone()));
    let dearer = ledger.charge(&charge(&id, 41, 5), at(9)).await.expect("answered");
    assert_eq!(dearer.outcome, ChargeOutcome::Conflict);
    let other = Charge { account_id: account("b"), ..charge(&id, 40, 5) };
    let other = ledger.charge(&other, at(9)).await.expect("answered");
    assert_eq!(other.outcome, ChargeOutcome::Conflict);
    assert_eq!(stored(&ledger, &id).await, first.job);
}

/// Refund and reclaim come with flag, entry, time and sum at once, and are the job's own cost.
pub async fn a_refund_and_a_reclaim_are_written_with_their_flags<L: Store>(ledger: L) {
    let id = job_id("job");
    ledger.charge(&charge(&id, MAX_COST, 5), at(0)).await.expect("charged");
    let refunded = ledger.record_failure(&id, None, &failure_of(1), at(30)).await.expect("answered");
    assert_eq!(refunded.outcome, FailureOutcome::Refunded);
    let job = stored(&ledger, &id).await;
    assert_eq!(refunded.job, job);
    assert_eq!((job.is_refunded, job.refunded_at, job.net), (true, Some(at(30)), 0));
    assert_eq!((job.phase, job.attempts, job.not_before), (Phase::RetryWaiting, 1, Some(at(34))));
    assert_eq!(job.last_error.as_ref().map(|e| (e.reason.as_str(), e.at)), Some(("it broke", at(30))));

    let reclaimed = ledger.record_success(&id, None, at(32)).await.expect("answered");
    assert_eq!(reclaimed.outcome, SuccessOutcome::Reclaimed);
    let job = stored(&ledger, &id).await;
    assert_eq!(reclaimed.job, job);
    assert_eq!((job.is_reclaimed, job.reclaimed_at, job.delivered_at), (true, Some(at(32)), Some(at(32))));
    assert_eq!((job.phase, job.net, job.not_before), (Phase::Delivered, -MAX_COST, None));
    let entries: Vec<(EntryType, i64, Timestamp)> =
        job.entries.iter().map(|entry| (entry.kind, entry.amount, entry.created_at)).collect();
    assert_eq!(
        entries,
        [
            (EntryType::Charge, -MAX_COST, at(0)),
            (EntryType::Refund, MAX_COST, at(30)),
            (EntryType::Reclaim, -MAX_COST, at(32)),
        ]
    );
}

/// The success arrives first and a late timeout second: nothing moves.
pub async fn delivered_work_is_never_refunded<L: Store>(ledger: L) {
    let id = job_id("job");
    ledger.charge(&charge(&id, 40, 5), at(0)).await.expect("charged");
    ledger.record_success(&id, None, at(32)).await.expect("answered");
    let delivered = stored(&ledger, &id).await;
    for failure in
        [failure_of(1), failure_of(MAX_ATTEMPT), for_good(failure_of(1)), failure_with(Some("late"))]
    {
        let late = ledger.record_failure(&id, None, &failure, at(33)).await.expect("answered");
        assert_eq!((late.outcome, late.job), (FailureOutcome::AlreadyDelivered, delivered.clone()));
    }
    assert_eq!(stored(&ledger, &id).await, delivered);
}

/// A verdict fails the job whose retry waits, once, and not a retry that a person has asked for.
pub async fn a_verdict_on_a_waiting_retry_stops_it<L: Store>(ledger: L) {
    let id = job_id("job");
    ledger.charge(&charge(&id, 40, 5), at(0)).await.expect("charged");
    ledger.record_failure(&id, None, &failure_of(1), at(1)).await.expect("answered");
    let verdict = for_good(recoup::transition::Failure { reason: None, ..failure_with(Some("cancel")) });
    let stopped = ledger.record_failure(&id, None, &verdict, at(2)).await.expect("answered");
    assert_eq!(stopped.outcome, FailureOutcome::FailureRecorded);
    let job = stored(&ledger, &id).await;
    assert_eq!((job.phase, job.attempts, job.not_before, job.net), (Phase::Failed, 1, None, 0));
    assert_eq!(job.last_error.as_ref().map(|e| e.reason.as_str()), Some("unspecified"));
    assert_eq!(job.counted_events.iter().map(ToString::to_string).collect::<Vec<_>>(), ["cancel"]);

    ledger.redrive(&id, 2, at(3)).await.expect("answered");
    let waiting = stored(&ledger, &id).await;
    let again = ledger.record_failure(&id, None, &verdict, at(4)).await.expect("answered");
    assert_eq!(again.outcome, FailureOutcome::Duplicate);
    assert_eq!(stored(&ledger, &id).await, waiting);
}

/// A failure of a later attempt is counted on a job that was set aside, and does not lead it back to the retries.
pub async fn a_job_that_was_set_aside_stays_so_however_it_fails<L: Store>(ledger: L) {
    for (state, phase) in [("dead", Phase::DeadLettered), ("failed", Phase::Failed)] {
        let id = job_id(state);
        bring(&ledger, &id, state).await;
        for failure in [failure_of(2), for_good(failure_of(3))] {
            let counted = ledger.record_failure(&id, None, &failure, at(NOW)).await.expect("answered");
            assert_eq!(counted.outcome, FailureOutcome::FailureRecorded);
            let job = stored(&ledger, &id).await;
            assert_eq!((job.phase, job.not_before, Some(job.attempts)), (phase, None, failure.attempt));
        }
    }
}

/// However five signals with a success among them are ordered, the job keeps its invariants and is paid in the end.
pub async fn every_order_with_a_success_ends_paid<L: Store>(ledger: L) {
    let signals = [first(), second(), unknown(), Command::Succeed, dispatch()];
    every_order_ends_at(&ledger, &signals, -3).await;
}

/// However five signals without a success are ordered, the job keeps its invariants and is not paid in the end.
pub async fn every_order_without_a_success_ends_unpaid<L: Store>(ledger: L) {
    let signals = [first(), Command::Fail(for_good(failure_of(1))), unknown(), dispatch(), second()];
    every_order_ends_at(&ledger, &signals, 0).await;
}

fn first() -> Command {
    Command::Fail(failure_of(1))
}

fn second() -> Command {
    Command::Fail(failure_of(2))
}

fn unknown() -> Command {
    Command::Fail(failure_with(Some("event")))
}

fn dispatch() -> Command {
    Command::Dispatch { attempts: 1, ran_out: false }
}

async fn every_order_ends_at<L: Store>(ledger: &L, signals: &[Command; 5], net: i64) {
    for (n, order) in orders_of_five().iter().enumerate() {
        let id = job_id(&n.to_string());
        Command::Charge { cost: 3, max_attempts: 3 }.run(ledger, &id, at(0)).await;
        for (step, seconds) in order.iter().zip(1..) {
            signals[*step].run(ledger, &id, at(seconds)).await;
        }
        assert_eq!(stored(ledger, &id).await.net, net, "{:?}", order.map(|step| &signals[step]));
    }
}

/// The orders of 0 to 4.
fn orders_of_five() -> Vec<[usize; 5]> {
    let mut orders: Vec<Vec<usize>> = vec![Vec::new()];
    for _ in 0..5 {
        orders = orders
            .into_iter()
            .flat_map(|order| {
                (0..5)
                    .filter(|n| !order.contains(n))
                    .map(|n| [order.as_slice(), &[n]].concat())
                    .collect::<Vec<_>>()
            })
            .collect();
    }
    orders.into_iter().map(|order| order.try_into().expect("five of five")).collect()
}

/// Clocks go back; the entries do not.
pub async fn entries_never_go_back_in_time<L: Store>(ledger: L) {
    let id = job_id("job");
    ledger.charge(&charge(&id, 40, 5), at(100)).await.expect("charged");
    ledger.record_failure(&id, None, &failure_of(1), at(50)).await.expect("answered");
    ledger.record_success(&id, None, at(10)).await.expect("answered");
    let job = stored(&ledger, &id).await;
    assert!(job.entries.iter().all(|entry| entry.created_at == at(100)), "{:?}", job.entries);
    assert_eq!((job.refunded_at, job.reclaimed_at), (Some(at(100)), Some(at(100))));
    assert_eq!((job.delivered_at, job.updated_at), (Some(at(10)), at(10)));
}

/// Of the counted failures' ids the last sixteen stay, oldest first.
pub async fn the_last_sixteen_counted_events_are_remembered<L: Store>(ledger: L) {
    let id = job_id("job");
    ledger.charge(&charge(&id, 40, 99), at(0)).await.expect("charged");
    for k in 1..=20 {
        let failure =
            recoup::transition::Failure { attempt: Some(k), ..failure_with(Some(&format!("event {k}"))) };
        ledger.record_failure(&id, None, &failure, at(k.into())).await.expect("answered");
    }
    let remembered: Vec<String> =
        stored(&ledger, &id).await.counted_events.iter().map(ToString::to_string).collect();
    let expected: Vec<String> = (5..=20).map(|k| format!("event {k}")).collect();
    assert_eq!(expected.len(), COUNTED_EVENTS_KEPT);
    assert_eq!(remembered, expected);

    ledger.dispatch(&id, 20, false, at(30)).await.expect("answered");
    let known = ledger.record_failure(&id, None, &failure_with(Some("event 5")), at(31)).await;
    assert_eq!(known.expect("answered").outcome, FailureOutcome::Duplicate);
    let forgotten = ledger.record_failure(&id, None, &failure_with(Some("event 4")), at(32)).await;
    assert_eq!(forgotten.expect("answered").outcome, FailureOutcome::FailureRecorded);
}

/// An attempt number may be as large as 2^31 - 1; the wait is then the longest there is.
pub async fn attempts_up_to_the_largest_number_are_counted<L: Store>(ledger: L) {
    let id = job_id("job");
    ledger.charge(&charge(&id, 40, 5), at(0)).await.expect("charged");
    ledger.record_failure(&id, None, &failure_of(MAX_ATTEMPT), at(0)).await.expect("answered");
    let job = stored(&ledger, &id).await;
    assert_eq!((job.attempts, job.not_before), (MAX_ATTEMPT, Some(at(900))));
    let taken_up = ledger.dispatch(&id, MAX_ATTEMPT, false, at(900)).await.expect("answered");
    assert_eq!(taken_up.expect("the job is there").job.phase, Phase::DeadLettered);
}

/// A redrive gives so many further attempts, and no more than can be counted.
pub async fn a_redrive_saturates<L: Store>(ledger: L) {
    let id = job_id("job");
    ledger.charge(&charge(&id, 40, 5), at(0)).await.expect("charged");
    ledger.record_failure(&id, None, &for_good(failure_of(7)), at(0)).await.expect("answered");
    let sent_back = ledger.redrive(&id, 5, at(1)).await.expect("answered");
    assert_eq!((sent_back.outcome, sent_back.job.max_attempts), (RedriveOutcome::Redriven, 12));
    let job = stored(&ledger, &id).await;
    assert_eq!((job.phase, job.not_before, job.redriven_at), (Phase::RetryWaiting, Some(at(1)), Some(at(1))));

    let most = for_good(failure_of(MAX_ATTEMPT - 1));
    ledger.record_failure(&id, None, &most, at(2)).await.expect("answered");
    assert_eq!(stored(&ledger, &id).await.redriven_at, None, "a counted failure ends the redrive");
    for allowance in [u32::MAX, 5] {
        ledger.redrive(&id, allowance, at(3)).await.expect("answered");
        assert_eq!(stored(&ledger, &id).await.max_attempts, MAX_ATTEMPT);
        ledger.record_failure(&id, None, &for_good(failure_of(MAX_ATTEMPT)), at(4)).await.expect("answered");
    }
}

/// Texts that mean something to a database mean nothing here.
pub async fn a_reason_and_an_id_are_kept_as_they_are<L: Store>(ledger: L) {
    let texts = [
        "$cost",
        "$$ROOT",
        "a.b.c",
        "{\"$gt\": \"\"}",
        "it's \"quoted\"",
        "%_?*",
        "ünïcödé \u{1F600}",
        "\\0",
    ];
    for text in texts {
        let id = job_id(text);
        let charge = Charge { account_id: account(text), ..charge(&id, 3, 5) };
        assert_eq!(ledger.charge(&charge, at(0)).await.expect("charged").outcome, ChargeOutcome::Charged);
        let failure =
            recoup::transition::Failure { reason: Some(text.to_owned()), ..failure_with(Some(text)) };
        let failed = ledger.record_failure(&id, Some(&account(text)), &failure, at(1)).await;
        assert_eq!(failed.expect("answered").outcome, FailureOutcome::Refunded);
        let job = stored(&ledger, &id).await;
        assert_eq!((job.job_id.as_str(), job.account_id.as_str()), (text, text));
        assert_eq!(job.last_error.expect("it failed").reason, text);
        assert_eq!(job.counted_events.iter().map(ToString::to_string).collect::<Vec<_>>(), [text]);
        assert_eq!(ledger.balance(&account(text)).await.expect("summed"), 0);
    }
}

/// Ids that look alike, or are alike to a collation, are different jobs of different accounts.
pub async fn look_alikes_are_jobs_of_their_own<L: Store>(ledger: L) {
    let alike = [
        "job",
        "JOB",
        "job ",
        " job",
        "j\u{43e}b",
        "job\u{301}",
        "jo\u{301}b",
        "j\u{f3}b",
        "job\u{3000}",
        "ｊｏｂ",
    ];
    for text in alike {
        let charge = Charge { account_id: account(text), ..charge(&job_id(text), 3, 5) };
        assert_eq!(
            ledger.charge(&charge, at(0)).await.expect("charged").outcome,
            ChargeOutcome::Charged,
            "{text}"
        );
    }
    for (number, text) in alike.into_iter().enumerate() {
        ledger.record_success(&job_id(text), Some(&account(text)), at(1)).await.expect("answered");
        for (place, other) in alike.into_iter().enumerate() {
            let is_delivered = stored(&ledger, &job_id(other)).await.phase == Phase::Delivered;
            assert_eq!(is_delivered, place <= number, "{other:?} after {text:?}");
        }
        assert_eq!(ledger.balance(&account(text)).await.expect("summed"), -3, "{text}");
    }
}

/// Whoever names another account than the job's own changes nothing, whatever the job's phase.
pub async fn another_account_is_refused_and_changes_nothing<L: Store>(ledger: L) {
    let stranger = account("A");
    for state in STATES {
        let id = job_id(state);
        let before = bring(&ledger, &id, state).await;
        let failed = ledger.record_failure(&id, Some(&stranger), &failure_of(9), at(NOW)).await;
        let succeeded = ledger.record_success(&id, Some(&stranger), at(NOW)).await;
        assert!(matches!(failed, Err(LedgerError::AccountMismatch { .. })), "{failed:?}");
        assert!(matches!(succeeded, Err(LedgerError::AccountMismatch { .. })), "{succeeded:?}");
        assert_eq!(stored(&ledger, &id).await, before);
    }
    let own = ledger.record_success(&job_id("first"), Some(&account("a")), at(NOW)).await;
    assert_eq!(own.expect("answered").outcome, SuccessOutcome::Delivered);
}

/// A signal for a job that is not there is an error; a retry entry for one is to be dropped.
pub async fn an_unknown_job_is_an_error_or_none<L: Store>(ledger: L) {
    let id = job_id("nobody's");
    let a = account("a");
    for account in [None, Some(&a)] {
        let failed = ledger.record_failure(&id, account, &failure_of(1), at(0)).await;
        assert!(matches!(failed, Err(LedgerError::UnknownJob(_))), "{failed:?}");
        let succeeded = ledger.record_success(&id, account, at(0)).await;
        assert!(matches!(succeeded, Err(LedgerError::UnknownJob(_))), "{succeeded:?}");
    }
    for k in [0, 1] {
        let silent = ledger.no_signal(&id, k, SHORT, &delays(), at(0)).await;
        assert!(matches!(silent, Err(LedgerError::UnknownJob(_))), "{silent:?}");
        assert_eq!(ledger.dispatch(&id, k, true, at(0)).await.expect("answered"), None);
        assert_eq!(ledger.claims_exhausted(&id, k, at(0), at(0)).await.expect("answered"), None);
        assert!(!ledger.hand_over_done(&id, k, at(0)).await.expect("answered"));
    }
    assert!(matches!(ledger.redrive(&id, 1, at(0)).await, Err(LedgerError::UnknownJob(_))));
    assert_eq!(ledger.job(&id).await.expect("read"), None);
}

/// The wait of an attempt that only the store can count is that attempt's own, beyond the schedule's end too.
pub async fn an_unknown_attempt_waits_for_its_own_delay<L: Store>(ledger: L) {
    let id = job_id("job");
    ledger
        .charge(&Charge { cost: Cost::new(1).expect("a cost"), ..charge(&id, 1, 99) }, at(0))
        .await
        .expect("charged");
    for (attempts, seconds) in (1..).zip([4, 8, 16, 32, 64, 128, 256, 512, 900, 900, 900]) {
        let failed = ledger.record_failure(&id, None, &failure_with(None), at(0)).await.expect("answered");
        assert_eq!((failed.job.attempts, failed.job.not_before), (attempts, Some(at(seconds))));
        assert_eq!(stored(&ledger, &id).await, failed.job);
        ledger.dispatch(&id, attempts, false, at(0)).await.expect("answered");
    }
}
