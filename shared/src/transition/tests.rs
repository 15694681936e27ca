//! Each row of the contract's table: what is answered, and every field that changes. Then what holds whatever comes.

use proptest::prelude::*;

use super::*;
use crate::backoff::{RetryPolicy, Roll};

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_millis(1_768_471_200_000 + seconds * 1000)
}

/// When the commands are given.
const NOW: i64 = 100;

fn delays() -> Delays {
    RetryPolicy::default().delays(Roll::FULL)
}

fn event(id: &str) -> EventId {
    EventId::new(id).unwrap()
}

fn charge() -> Charge {
    Charge {
        job_id: JobId::new("job").unwrap(),
        account_id: AccountId::new("acme").unwrap(),
        cost: Cost::new(40).unwrap(),
        max_attempts: 3,
        replayed: false,
    }
}

fn entry(kind: EntryType, amount: i64, seconds: i64) -> Entry {
    Entry { kind, amount, created_at: at(seconds) }
}

// ---- the states of a job, from its charge at 0 to its failure at 10 and beyond --------------------------

fn first() -> Job {
    Job {
        job_id: JobId::new("job").unwrap(),
        account_id: AccountId::new("acme").unwrap(),
        cost: Cost::new(40).unwrap(),
        is_refunded: false,
        refunded_at: None,
        is_reclaimed: false,
        reclaimed_at: None,
        delivered_at: None,
        phase: Phase::Running,
        attempts: 0,
        max_attempts: 3,
        not_before: None,
        dispatched_at: None,
        last_error: None,
        counted_events: Vec::new(),
        redriven_at: None,
        entries: vec![entry(EntryType::Charge, -40, 0)],
        net: -40,
        created_at: at(0),
        updated_at: at(0),
        replayed: false,
        imported: false,
    }
}

fn waiting() -> Job {
    Job {
        is_refunded: true,
        refunded_at: Some(at(10)),
        phase: Phase::RetryWaiting,
        attempts: 1,
        not_before: Some(at(14)),
        last_error: Some(LastError { reason: "worker timeout".to_owned(), at: at(10), trace: None }),
        counted_events: vec![event("counted")],
        entries: vec![entry(EntryType::Charge, -40, 0), entry(EntryType::Refund, 40, 10)],
        net: 0,
        updated_at: at(10),
        ..first()
    }
}

fn at_cap() -> Job {
    Job { max_attempts: 1, ..waiting() }
}

/// It runs again, and nobody has noted that the workers have it.
fn open() -> Job {
    Job { phase: Phase::Running, not_before: None, updated_at: at(14), ..waiting() }
}

fn handed_over() -> Job {
    Job { dispatched_at: Some(at(15)), updated_at: at(15), ..open() }
}

fn failed() -> Job {
    Job { phase: Phase::Failed, not_before: None, ..waiting() }
}

fn dead() -> Job {
    Job { phase: Phase::DeadLettered, not_before: None, ..at_cap() }
}

fn redriven() -> Job {
    Job { redriven_at: Some(at(20)), not_before: Some(at(20)), max_attempts: 6, ..waiting() }
}

fn delivered() -> Job {
    Job { phase: Phase::Delivered, delivered_at: Some(at(10)), updated_at: at(10), ..first() }
}

fn reclaimed() -> Job {
    let mut entries = waiting().entries;
    entries.push(entry(EntryType::Reclaim, -40, 16));
    Job {
        is_reclaimed: true,
        reclaimed_at: Some(at(16)),
        delivered_at: Some(at(16)),
        phase: Phase::Delivered,
        entries,
        net: -40,
        ..handed_over()
    }
}

fn all_states() -> [Job; 10] {
    [
        first(),
        waiting(),
        at_cap(),
        open(),
        handed_over(),
        failed(),
        dead(),
        redriven(),
        delivered(),
        reclaimed(),
    ]
}

fn in_phase(phase: Phase) -> impl Iterator<Item = Job> {
    all_states().into_iter().filter(move |job| job.phase == phase)
}

// ---- the signals ----------------------------------------------------------------------------------------

/// A retryable failure of this attempt, or of an unknown one.
fn failure_of(attempt: impl Into<Option<u32>>) -> Failure {
    Failure {
        attempt: attempt.into(),
        retryable: true,
        reason: Some("no GPU".to_owned()),
        event_id: Some(event("new")),
        trace: None,
        delays: delays(),
    }
}

/// The same, as one that no retry can mend.
fn for_good(attempt: impl Into<Option<u32>>) -> Failure {
    Failure { retryable: false, ..failure_of(attempt) }
}

/// What every failure that was counted, or taken as a verdict, leaves behind.
fn told(job: Job) -> Job {
    let mut counted_events = job.counted_events.clone();
    counted_events.push(event("new"));
    let last_error = Some(LastError { reason: "no GPU".to_owned(), at: at(NOW), trace: None });
    Job { counted_events, last_error, updated_at: at(NOW), ..job }
}

/// The first failure, with its refund, but for the phase that it leads to.
fn refunded_now() -> Job {
    Job {
        is_refunded: true,
        refunded_at: Some(at(NOW)),
        attempts: 1,
        entries: vec![entry(EntryType::Charge, -40, 0), entry(EntryType::Refund, 40, NOW)],
        net: 0,
        ..told(first())
    }
}

#[test]
fn the_states_of_these_tests_keep_the_invariants() {
    for job in all_states() {
        assert_eq!(job.violations(), Vec::<String>::new(), "{job:#?}");
    }
}

// ---- charge ---------------------------------------------------------------------------------------------

#[test]
fn a_charge_makes_a_running_job_with_its_entry() {
    assert_eq!(charged(&charge(), at(0)), first());
    let replayed = Charge { replayed: true, ..charge() };
    assert_eq!(charged(&replayed, at(0)), Job { replayed: true, ..first() });
}

#[test]
fn a_second_charge_is_a_duplicate_or_a_conflict() {
    for job in all_states() {
        assert_eq!(charged_before(&job, &charge()), ChargeOutcome::Duplicate);
        let other_cap = Charge { max_attempts: 9, ..charge() };
        assert_eq!(charged_before(&job, &other_cap), ChargeOutcome::Duplicate);
        let dearer = Charge { cost: Cost::new(41).unwrap(), ..charge() };
        assert_eq!(charged_before(&job, &dearer), ChargeOutcome::Conflict);
        let somebody_elses = Charge { account_id: AccountId::new("Acme").unwrap(), ..charge() };
        assert_eq!(charged_before(&job, &somebody_elses), ChargeOutcome::Conflict);
    }
}

// ---- failure --------------------------------------------------------------------------------------------

#[test]
fn the_first_failure_refunds_and_waits_for_its_delay() {
    for (signal, attempts, wait) in [(failure_of(1), 1, 4), (failure_of(None), 1, 4), (failure_of(3), 3, 16)]
    {
        let expected =
            Job { phase: Phase::RetryWaiting, attempts, not_before: Some(at(NOW + wait)), ..refunded_now() };
        assert_eq!(
            failure(&first(), &signal, at(NOW)),
            Step::wrote(FailureOutcome::Refunded, expected),
            "{signal:?}"
        );
    }
}

#[test]
fn a_first_failure_that_no_retry_can_mend_refunds_and_fails_the_job() {
    for signal in [for_good(1), for_good(None)] {
        let expected = Job { phase: Phase::Failed, ..refunded_now() };
        assert_eq!(failure(&first(), &signal, at(NOW)), Step::wrote(FailureOutcome::Refunded, expected));
    }
}

#[test]
fn a_later_attempt_s_failure_is_counted_and_moves_no_money() {
    for before in [open(), handed_over()] {
        for signal in [failure_of(2), failure_of(None)] {
            let expected = Job {
                phase: Phase::RetryWaiting,
                attempts: 2,
                not_before: Some(at(NOW + 8)),
                dispatched_at: None,
                ..told(before.clone())
            };
            assert_eq!(
                failure(&before, &signal, at(NOW)),
                Step::wrote(FailureOutcome::FailureRecorded, expected)
            );
        }
        let expected = Job { phase: Phase::Failed, attempts: 2, dispatched_at: None, ..told(before.clone()) };
        assert_eq!(
            failure(&before, &for_good(2), at(NOW)),
            Step::wrote(FailureOutcome::FailureRecorded, expected)
        );
    }
}

#[test]
fn a_failure_is_counted_while_a_retry_waits_also_one_that_a_person_asked_for() {
    for before in [waiting(), redriven()] {
        let expected =
            Job { attempts: 2, not_before: Some(at(NOW + 8)), redriven_at: None, ..told(before.clone()) };
        assert_eq!(
            failure(&before, &failure_of(2), at(NOW)),
            Step::wrote(FailureOutcome::FailureRecorded, expected.clone())
        );
        let expected = Job { phase: Phase::Failed, not_before: None, ..expected };
        assert_eq!(
            failure(&before, &for_good(2), at(NOW)),
            Step::wrote(FailureOutcome::FailureRecorded, expected)
        );
    }
}

#[test]
fn what_was_set_aside_stays_so_however_it_fails() {
    for before in [failed(), dead()] {
        for signal in [failure_of(2), for_good(2)] {
            let expected = Job { attempts: 2, ..told(before.clone()) };
            assert_eq!(
                failure(&before, &signal, at(NOW)),
                Step::wrote(FailureOutcome::FailureRecorded, expected)
            );
        }
    }
}

#[test]
fn a_failure_that_was_counted_is_a_duplicate() {
    let told_before =
        |attempt: Option<u32>| Failure { event_id: Some(event("counted")), ..failure_of(attempt) };
    for job in all_states().into_iter().filter(|job| job.attempts == 1 && job.phase != Phase::Delivered) {
        for signal in [failure_of(1), told_before(None), told_before(Some(1))] {
            assert_eq!(failure(&job, &signal, at(NOW)), Step::refused(FailureOutcome::Duplicate));
        }
    }
}

#[test]
fn an_unknown_attempt_counts_only_where_one_is_under_way() {
    for job in [waiting(), at_cap(), failed(), dead(), redriven()] {
        assert_eq!(failure(&job, &failure_of(None), at(NOW)), Step::refused(FailureOutcome::Duplicate));
    }
    let without_id = Failure { event_id: None, ..failure_of(None) };
    let counted = failure(&open(), &without_id, at(NOW)).after.unwrap();
    assert_eq!((counted.attempts, counted.counted_events), (2, open().counted_events));
}

#[test]
fn attempts_are_counted_up_to_the_largest_number_and_no_further() {
    let last_but_one = Job { attempts: MAX_ATTEMPT - 1, ..open() };
    let last = failure(&last_but_one, &failure_of(None), at(NOW)).after.unwrap();
    assert_eq!(last.attempts, MAX_ATTEMPT);
    let full = Job { attempts: MAX_ATTEMPT, ..open() };
    assert_eq!(failure(&full, &failure_of(None), at(NOW)), Step::refused(FailureOutcome::Duplicate));
}

#[test]
fn a_verdict_on_the_waiting_retry_stops_it_unless_a_person_asked_for_it() {
    for signal in [for_good(1), for_good(None)] {
        for before in [waiting(), at_cap()] {
            let expected = Job { phase: Phase::Failed, not_before: None, ..told(before.clone()) };
            assert_eq!(
                failure(&before, &signal, at(NOW)),
                Step::wrote(FailureOutcome::FailureRecorded, expected)
            );
        }
        for before in [redriven(), failed(), dead()] {
            assert_eq!(failure(&before, &signal, at(NOW)), Step::refused(FailureOutcome::Duplicate));
        }
    }
    let of_an_earlier_attempt = Job { attempts: 2, ..waiting() };
    assert_eq!(
        failure(&of_an_earlier_attempt, &for_good(1), at(NOW)),
        Step::refused(FailureOutcome::Duplicate)
    );
}

#[test]
fn delivered_work_is_never_refunded() {
    for job in in_phase(Phase::Delivered) {
        for signal in [failure_of(1), failure_of(2), failure_of(None), for_good(1), for_good(None)] {
            assert_eq!(failure(&job, &signal, at(NOW)), Step::refused(FailureOutcome::AlreadyDelivered));
        }
    }
}

#[test]
fn a_refund_is_never_older_than_the_charge_and_takes_its_amount_from_the_job() {
    let charged_later = Job { entries: vec![entry(EntryType::Charge, -40, NOW + 1)], ..first() };
    let after = failure(&charged_later, &failure_of(1), at(NOW)).after.unwrap();
    assert_eq!(after.entries[1], entry(EntryType::Refund, 40, NOW + 1));
    assert_eq!((after.refunded_at, after.updated_at), (Some(at(NOW + 1)), at(NOW)));
    let without_entries = Job { entries: Vec::new(), ..first() };
    let after = failure(&without_entries, &failure_of(1), at(NOW)).after.unwrap();
    assert_eq!(after.entries, [entry(EntryType::Refund, 40, NOW)]);
}

#[test]
fn a_failure_without_a_reason_is_unspecified() {
    let signal = Failure { reason: None, ..failure_of(1) };
    let after = failure(&first(), &signal, at(NOW)).after.unwrap();
    assert_eq!(
        after.last_error,
        Some(LastError { reason: "unspecified".to_owned(), at: at(NOW), trace: None })
    );
}

#[test]
fn the_ids_of_the_last_sixteen_counted_failures_are_kept() {
    let mut job = first();
    for k in 1..=20 {
        let signal = Failure { event_id: Some(event(&format!("e{k}"))), ..failure_of(k) };
        job = failure(&job, &signal, at(NOW)).after.unwrap();
    }
    let kept: Vec<EventId> = (5..=20).map(|k| event(&format!("e{k}"))).collect();
    assert_eq!(job.counted_events, kept);
}

// ---- success --------------------------------------------------------------------------------------------

#[test]
fn a_success_delivers_and_the_charge_stands() {
    let expected =
        Job { phase: Phase::Delivered, delivered_at: Some(at(NOW)), updated_at: at(NOW), ..first() };
    assert_eq!(success(&first(), at(NOW)), Step::wrote(SuccessOutcome::Delivered, expected));
}

#[test]
fn a_success_takes_the_refund_back_whatever_the_phase() {
    for before in all_states().into_iter().filter(|job| job.is_refunded && job.phase != Phase::Delivered) {
        let mut entries = before.entries.clone();
        entries.push(entry(EntryType::Reclaim, -40, NOW));
        let expected = Job {
            is_reclaimed: true,
            reclaimed_at: Some(at(NOW)),
            delivered_at: Some(at(NOW)),
            phase: Phase::Delivered,
            not_before: None,
            entries,
            net: -40,
            updated_at: at(NOW),
            ..before.clone()
        };
        assert_eq!(success(&before, at(NOW)), Step::wrote(SuccessOutcome::Reclaimed, expected));
    }
}

#[test]
fn a_second_success_is_a_duplicate() {
    for job in in_phase(Phase::Delivered) {
        assert_eq!(success(&job, at(NOW)), Step::refused(SuccessOutcome::Duplicate));
    }
}

// ---- dispatch, and its hand-over ------------------------------------------------------------------------

#[test]
fn a_waiting_retry_is_dispatched() {
    for before in [waiting(), redriven(), Job { max_attempts: 2, ..waiting() }] {
        let expected = Job { phase: Phase::Running, not_before: None, updated_at: at(NOW), ..before.clone() };
        for ran_out in [false, true] {
            assert_eq!(
                dispatch(&before, 1, ran_out, at(NOW)),
                Step::wrote(DispatchOutcome::Dispatched, expected.clone())
            );
        }
    }
}

#[test]
fn a_dispatch_leaves_its_hand_over_open() {
    let before = Job { dispatched_at: Some(at(9)), ..waiting() };
    assert_eq!(dispatch(&before, 1, false, at(NOW)).after.unwrap().dispatched_at, None);
}

#[test]
fn a_waiting_retry_at_or_over_its_cap_is_dead_lettered() {
    for before in [at_cap(), Job { attempts: 2, ..at_cap() }] {
        let expected =
            Job { phase: Phase::DeadLettered, not_before: None, updated_at: at(NOW), ..before.clone() };
        assert_eq!(
            dispatch(&before, before.attempts, false, at(NOW)),
            Step::wrote(DispatchOutcome::DeadLettered, expected)
        );
    }
}

#[test]
fn a_dispatch_finishes_what_an_earlier_claim_left_open_and_is_stale_otherwise() {
    for (job, at_first, after_one_that_ran_out) in [
        (open(), DispatchOutcome::HandOverOpen, DispatchOutcome::HandOverOpen),
        (dead(), DispatchOutcome::Stale, DispatchOutcome::DeadLetterOpen),
        (handed_over(), DispatchOutcome::Stale, DispatchOutcome::Stale),
        (failed(), DispatchOutcome::Stale, DispatchOutcome::Stale),
        (reclaimed(), DispatchOutcome::Stale, DispatchOutcome::Stale),
    ] {
        assert_eq!(dispatch(&job, 1, false, at(NOW)), Step::refused(at_first), "{:?}", job.phase);
        assert_eq!(dispatch(&job, 1, true, at(NOW)), Step::refused(after_one_that_ran_out));
    }
}

#[test]
fn a_retry_of_other_attempts_or_of_none_is_stale() {
    for job in all_states() {
        for attempts in [0, 2, MAX_ATTEMPT] {
            assert_eq!(dispatch(&job, attempts, true, at(NOW)), Step::refused(DispatchOutcome::Stale));
            assert_eq!(
                claims_exhausted(&job, attempts, at(NOW), at(NOW)),
                Step::refused(ExhaustedOutcome::Stale)
            );
        }
    }
}

#[test]
fn a_hand_over_is_noted_once_while_its_attempt_runs() {
    let expected = Job { dispatched_at: Some(at(NOW)), updated_at: at(NOW), ..open() };
    assert_eq!(hand_over_done(&open(), 1, at(NOW)), Step::wrote(true, expected));
    assert_eq!(hand_over_done(&open(), 2, at(NOW)), Step::refused(false));
    for job in all_states().into_iter().filter(|job| *job != open()) {
        assert_eq!(hand_over_done(&job, 1, at(NOW)), Step::refused(false), "{:?}", job.phase);
    }
}

// ---- claims that ran out, silence, redrive --------------------------------------------------------------

#[test]
fn a_retry_that_kills_is_dead_lettered_while_it_waits_or_its_hand_over_is_open() {
    for before in [waiting(), at_cap(), open(), redriven()] {
        let expected =
            Job { phase: Phase::DeadLettered, not_before: None, updated_at: at(NOW), ..before.clone() };
        assert_eq!(
            claims_exhausted(&before, 1, at(21), at(NOW)),
            Step::wrote(ExhaustedOutcome::DeadLettered, expected)
        );
    }
    assert_eq!(
        claims_exhausted(&dead(), 1, at(21), at(NOW)),
        Step::refused(ExhaustedOutcome::DeadLetterOpen)
    );
    let handed_over_and_waiting = Job { dispatched_at: Some(at(15)), ..waiting() };
    for job in [handed_over(), handed_over_and_waiting, failed(), reclaimed()] {
        assert_eq!(claims_exhausted(&job, 1, at(21), at(NOW)), Step::refused(ExhaustedOutcome::Stale));
    }
}

#[test]
fn claims_from_before_a_redrive_count_for_nothing() {
    for first_claim in [19, 20] {
        assert_eq!(
            claims_exhausted(&redriven(), 1, at(first_claim), at(NOW)),
            Step::refused(ExhaustedOutcome::Redriven)
        );
    }
}

#[test]
fn silence_since_the_charge_is_the_first_attempt_s_failure() {
    let timeout = Duration::from_secs(100);
    let expected = Job {
        phase: Phase::RetryWaiting,
        not_before: Some(at(NOW + 4)),
        last_error: Some(LastError { reason: "no_signal".to_owned(), at: at(NOW), trace: None }),
        counted_events: Vec::new(),
        ..refunded_now()
    };
    assert_eq!(
        no_signal(&first(), 1, timeout, &delays(), at(NOW)),
        Step::wrote(SilenceOutcome::Refunded, expected)
    );
    let not_yet = no_signal(&first(), 1, timeout, &delays(), Timestamp::from_millis(at(NOW).as_millis() - 1));
    assert_eq!(not_yet, Step::refused(SilenceOutcome::NotSilent));
    let imported = Job { imported: true, ..first() };
    assert_eq!(
        no_signal(&imported, 1, timeout, &delays(), at(NOW)),
        Step::refused(SilenceOutcome::NotSilent)
    );
}

#[test]
fn silence_since_the_hand_over_is_a_later_attempt_s_failure() {
    let timeout = Duration::from_secs(85);
    let expected = Job {
        phase: Phase::RetryWaiting,
        attempts: 2,
        not_before: Some(at(NOW + 8)),
        dispatched_at: None,
        last_error: Some(LastError { reason: "no_signal".to_owned(), at: at(NOW), trace: None }),
        updated_at: at(NOW),
        ..handed_over()
    };
    assert_eq!(
        no_signal(&handed_over(), 2, timeout, &delays(), at(NOW)),
        Step::wrote(SilenceOutcome::FailureRecorded, expected)
    );
    let longer = timeout + Duration::from_millis(1);
    assert_eq!(
        no_signal(&handed_over(), 2, longer, &delays(), at(NOW)),
        Step::refused(SilenceOutcome::NotSilent)
    );
}

#[test]
fn nothing_else_is_silence() {
    for (job, k) in [(first(), 0), (first(), 2), (handed_over(), 1), (handed_over(), 3), (open(), 2)] {
        assert_eq!(
            no_signal(&job, k, Duration::ZERO, &delays(), at(NOW)),
            Step::refused(SilenceOutcome::NotSilent),
            "attempt {k}"
        );
    }
    for job in all_states().into_iter().filter(|job| job.phase != Phase::Running) {
        let job = Job { dispatched_at: Some(at(1)), ..job };
        let silent = no_signal(&job, job.attempts + 1, Duration::ZERO, &delays(), at(NOW));
        assert_eq!(silent, Step::refused(SilenceOutcome::NotSilent), "{:?}", job.phase);
    }
}

#[test]
fn a_redrive_sends_back_what_was_set_aside_with_a_fresh_allowance() {
    for before in [dead(), failed()] {
        let expected = Job {
            phase: Phase::RetryWaiting,
            not_before: Some(at(NOW)),
            redriven_at: Some(at(NOW)),
            max_attempts: 6,
            updated_at: at(NOW),
            ..before.clone()
        };
        assert_eq!(redrive(&before, 5, at(NOW)), Step::wrote(RedriveOutcome::Redriven, expected));
        let saturated = redrive(&before, u32::MAX, at(NOW)).after.unwrap();
        assert_eq!(saturated.max_attempts, MAX_ATTEMPT);
    }
    for phase in [Phase::Running, Phase::RetryWaiting, Phase::Delivered] {
        for job in in_phase(phase) {
            assert_eq!(redrive(&job, 5, at(NOW)), Step::refused(RedriveOutcome::NotSetAside));
        }
    }
}

// ---- whatever comes -------------------------------------------------------------------------------------

/// A command, without the moment at which it is given.
#[derive(Clone, Debug)]
enum Command {
    Fail(Failure),
    Succeed,
    Dispatch(u32, bool),
    HandedOver(u32),
    Exhausted(u32, i64),
    Silent(u32),
    Redrive(u32),
}

impl Command {
    fn apply(&self, job: &Job, now: Timestamp) -> Option<Job> {
        match self {
            Self::Fail(signal) => failure(job, signal, now).after,
            Self::Succeed => success(job, now).after,
            Self::Dispatch(attempts, ran_out) => dispatch(job, *attempts, *ran_out, now).after,
            Self::HandedOver(attempts) => hand_over_done(job, *attempts, now).after,
            Self::Exhausted(attempts, first) => claims_exhausted(job, *attempts, at(*first), now).after,
            Self::Silent(k) => no_signal(job, *k, Duration::from_secs(20), &delays(), now).after,
            Self::Redrive(allowance) => redrive(job, *allowance, now).after,
        }
    }
}

fn any_command() -> impl Strategy<Value = Command> {
    let signal = (prop::option::of(1..4_u32), any::<bool>(), prop::option::of("[ab]")).prop_map(
        |(attempt, retryable, id)| Failure {
            retryable,
            event_id: id.map(|id| event(&id)),
            trace: None,
            ..failure_of(attempt)
        },
    );
    prop_oneof![
        4 => signal.prop_map(Command::Fail),
        1 => Just(Command::Succeed),
        3 => (0..4_u32, any::<bool>()).prop_map(|(attempts, ran_out)| Command::Dispatch(attempts, ran_out)),
        2 => (0..4_u32).prop_map(Command::HandedOver),
        1 => (0..4_u32, 0..100_i64).prop_map(|(attempts, first)| Command::Exhausted(attempts, first)),
        1 => (0..4_u32).prop_map(Command::Silent),
        1 => (1..3_u32).prop_map(Command::Redrive),
    ]
}

proptest! {
    /// In any order, and by clocks that go back.
    #[test]
    fn no_sequence_of_commands_breaks_an_invariant(
        commands in prop::collection::vec((any_command(), 0..100_i64), 1..30)
    ) {
        let mut job = charged(&charge(), at(50));
        for (command, seconds) in commands {
            let Some(after) = command.apply(&job, at(seconds)) else { continue };
            prop_assert_eq!(after.violations(), Vec::<String>::new(), "{:?}", command);
            prop_assert!(after.entries.starts_with(&job.entries), "an entry changed");
            prop_assert!(after.attempts >= job.attempts, "attempts went down");
            prop_assert!(job.phase != Phase::Delivered, "something was written after the delivery");
            let unpaid = if after.is_refunded && after.phase != Phase::Delivered { 0 } else { -40 };
            prop_assert_eq!(after.net, unpaid);
            prop_assert_eq!(after.not_before.is_some(), after.phase == Phase::RetryWaiting);
            prop_assert_eq!(after.updated_at, at(seconds));
            job = after;
        }
    }
}
