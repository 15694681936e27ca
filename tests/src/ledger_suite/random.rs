//! The store against the transition function, on random sequences of commands.

use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use recoup::backoff::{Delays, RetryPolicy, Roll};
use recoup::clock::Timestamp;
use recoup::job::{EventId, JobId, MAX_ATTEMPT, MAX_COST};
use recoup::transition::Failure;
use tokio::runtime::Handle;

use super::commands::Command;
use super::{Store, at, job_id};
use crate::servers::unique;

/// The most commands of a sequence.
const MAX_COMMANDS: usize = 12;
/// Tries to shrink a sequence that fails; each is some ten round trips.
const MAX_SHRINKS: u32 = 300;

/// Each step of each sequence answers and leaves behind what the transition function says, to the last field.
///
/// # Panics
/// With the shortest sequence that was found, where one does not. Must be called on a multi-threaded runtime.
pub fn commands_do_what_the_transition_function_says<L: Store>(ledger: &L, sequences: u32) {
    let config = Config {
        cases: sequences,
        max_shrink_iters: MAX_SHRINKS,
        failure_persistence: None,
        ..Config::default()
    };
    let steps = prop::collection::vec((command(), time()), 1..=MAX_COMMANDS);
    let done = TestRunner::new(config).run(&steps, |steps| {
        tokio::task::block_in_place(|| Handle::current().block_on(sequence(ledger, &steps)))
    });
    if let Err(error) = done {
        panic!("{error}");
    }
}

/// A charge, most of the time, and the steps after it.
async fn sequence<L: Store>(ledger: &L, steps: &[(Command, Timestamp)]) -> Result<(), TestCaseError> {
    let id: JobId = job_id(&unique("random"));
    let begin = (Command::Charge { cost: MAX_COST, max_attempts: 3 }, at(0));
    let mut expected = None;
    // One sequence in some forty begins without a job.
    let skip = usize::from(matches!(steps.first(), Some((Command::Silent { .. }, _))));
    for (command, now) in std::iter::once(&begin).skip(skip).chain(steps) {
        let answered = command.run(ledger, &id, *now).await;
        let (answer, after) = command.by_the_rules(&id, expected.as_ref(), *now);
        prop_assert_eq!(&answered, &answer, "the answer to {:?} at {} on {:?}", command, now, expected);
        expected = after;
        let stands = ledger.job(&id).await.expect("the job can be read");
        prop_assert_eq!(&stands, &expected, "what {:?} at {} left behind", command, now);
        let violations = stands.map_or(Vec::new(), |job| job.violations());
        prop_assert!(violations.is_empty(), "{:?} breaks {:?}", command, violations);
    }
    Ok(())
}

/// Clocks differ and go back: some minutes around the beginning, and the same moment often.
fn time() -> impl Strategy<Value = Timestamp> {
    prop_oneof![
        Just(at(0)),
        (-30_i64..600).prop_map(at),
        (0_i64..600_000).prop_map(|ms| { Timestamp::from_millis(at(0).as_millis() + ms) })
    ]
}

fn command() -> impl Strategy<Value = Command> {
    prop_oneof![
        1 => (1_i64..3, 1_u32..4).prop_map(|(cost, max_attempts)| Command::Charge { cost, max_attempts }),
        9 => failure().prop_map(Command::Fail),
        2 => Just(Command::Succeed),
        6 => (attempts(), any::<bool>()).prop_map(|(attempts, ran_out)| Command::Dispatch { attempts, ran_out }),
        3 => attempts().prop_map(|attempts| Command::HandedOver { attempts }),
        3 => (attempts(), time()).prop_map(|(attempts, first_claim)| Command::Exhausted { attempts, first_claim }),
        3 => (attempts(), 0_u64..120).prop_map(|(k, seconds)| {
            Command::Silent { k, timeout: Duration::from_secs(seconds) }
        }),
        4 => prop_oneof![1_u32..5, Just(u32::MAX)].prop_map(|allowance| Command::Redrive { allowance }),
    ]
}

fn attempts() -> impl Strategy<Value = u32> {
    prop_oneof![1 => Just(0_u32), 6 => Just(1_u32), 4 => Just(2_u32), 2 => 3_u32..6, 1 => Just(MAX_ATTEMPT)]
}

fn failure() -> impl Strategy<Value = Failure> {
    let reason = prop_oneof![Just("worker timeout"), Just("$cost"), Just("{\"$gt\": 1}"), Just("é\u{1F600}")];
    let event = prop_oneof![Just("e-1"), Just("e-2"), Just("$phase"), Just("a.b'c\"d")];
    (
        prop::option::of(attempts()),
        prop::bool::weighted(0.7),
        prop::option::of(reason),
        prop::option::of(event),
        schedule(),
    )
        .prop_map(|(attempt, retryable, reason, event, delays)| Failure {
            attempt,
            retryable,
            reason: reason.map(str::to_owned),
            event_id: event.map(|id| EventId::new(id).expect("the suite's ids are ids")),
            trace: None,
            delays,
        })
}

/// Schedules from a single row to ones that never stop doubling.
fn schedule() -> impl Strategy<Value = Delays> {
    (1_u64..5_000, prop_oneof![Just(0_u64), 0_u64..1 << 20, Just(1_u64 << 62)], 0.0..=1.0_f64).prop_map(
        |(base, more, roll)| {
            let policy = RetryPolicy {
                base_delay: Duration::from_millis(base),
                max_delay: Duration::from_millis(base + more),
                max_attempts: 3,
                jitter: 0.5,
            };
            policy.delays(Roll::new(roll))
        },
    )
}
