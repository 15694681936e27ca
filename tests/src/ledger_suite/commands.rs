//! The ledger's commands as values: the same command can be given to a store and to the transition function.

use std::time::Duration;

use recoup::backoff::{Delays, RetryPolicy, Roll};
use recoup::clock::Timestamp;
use recoup::job::{Cost, EventId, Job, JobId};
use recoup::ledger::{Applied, LedgerError};
use recoup::transition::{self, Charge, ChargeOutcome, Failure, Step};

use super::{Store, account};

/// One command on one job.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Charge the account `a`.
    Charge {
        /// Credits.
        cost: i64,
        /// The cap.
        max_attempts: u32,
    },
    /// A failure signal.
    Fail(Failure),
    /// A success signal.
    Succeed,
    /// A retry entry whose time has come.
    Dispatch {
        /// The failures that it names.
        attempts: u32,
        /// Whether an earlier claim ran out.
        ran_out: bool,
    },
    /// The hand-over is done.
    HandedOver {
        /// The failures before it.
        attempts: u32,
    },
    /// The claims of a retry ran out too often.
    Exhausted {
        /// The failures that it names.
        attempts: u32,
        /// When the first of the claims was made.
        first_claim: Timestamp,
    },
    /// Silence for so long.
    Silent {
        /// The attempt.
        k: u32,
        /// How long is too long.
        timeout: Duration,
    },
    /// A person's redrive.
    Redrive {
        /// Further attempts.
        allowance: u32,
    },
}

/// What a command answered: the outcome's name, and the job as it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The outcome's name, or `UnknownJob`.
    pub outcome: String,
    /// The job, where the command gives it back.
    pub job: Option<Job>,
}

impl Answer {
    fn named(outcome: impl std::fmt::Debug, job: Option<Job>) -> Self {
        Self { outcome: format!("{outcome:?}"), job }
    }
}

/// The schedule of the suite: 4 s, 8 s, 16 s and so on, up to a quarter of an hour.
pub fn delays() -> Delays {
    RetryPolicy::default().delays(Roll::FULL)
}

/// A charge of account `a`.
pub fn charge(id: &JobId, cost: i64, max_attempts: u32) -> Charge {
    Charge {
        job_id: id.clone(),
        account_id: account("a"),
        cost: Cost::new(cost).expect("the suite's costs are costs"),
        max_attempts,
        replayed: false,
    }
}

/// A retryable failure of attempt `k`, without an id.
pub fn failure_of(k: u32) -> Failure {
    Failure { attempt: Some(k), ..failure_with(None) }
}

/// A retryable failure of an unknown attempt, with this event id.
pub fn failure_with(event: Option<&str>) -> Failure {
    Failure {
        attempt: None,
        retryable: true,
        reason: Some("it broke".to_owned()),
        event_id: event.map(|id| EventId::new(id).expect("the suite's ids are ids")),
        trace: None,
        delays: delays(),
    }
}

/// This failure, as one that no retry can mend.
pub fn for_good(failure: Failure) -> Failure {
    Failure { retryable: false, ..failure }
}

impl Command {
    /// Gives the command to a store.
    ///
    /// # Panics
    /// Where the store answers with an error other than that the job is unknown.
    pub async fn run<L: Store>(&self, ledger: &L, id: &JobId, now: Timestamp) -> Answer {
        match self.try_run(ledger, id, now).await {
            Ok(answer) => answer,
            Err(LedgerError::UnknownJob(_)) => Answer { outcome: "UnknownJob".to_owned(), job: None },
            Err(error) => panic!("{self:?} on {id:?}: {error}"),
        }
    }

    /// The same, with errors.
    ///
    /// # Errors
    /// What the store says.
    pub async fn try_run<L: Store>(
        &self,
        ledger: &L,
        id: &JobId,
        now: Timestamp,
    ) -> Result<Answer, LedgerError> {
        fn some<O: std::fmt::Debug>(applied: Applied<O>) -> Answer {
            Answer::named(applied.outcome, Some(applied.job))
        }
        fn maybe<O: std::fmt::Debug>(applied: Option<Applied<O>>) -> Answer {
            applied.map_or(Answer { outcome: "UnknownJob".to_owned(), job: None }, some)
        }
        Ok(match self {
            Self::Charge { cost, max_attempts } => {
                some(ledger.charge(&charge(id, *cost, *max_attempts), now).await?)
            }
            Self::Fail(failure) => some(ledger.record_failure(id, None, failure, now).await?),
            Self::Succeed => some(ledger.record_success(id, None, now).await?),
            Self::Dispatch { attempts, ran_out } => {
                maybe(ledger.dispatch(id, *attempts, *ran_out, now).await?)
            }
            Self::HandedOver { attempts } => {
                Answer::named(ledger.hand_over_done(id, *attempts, now).await?, None)
            }
            Self::Exhausted { attempts, first_claim } => {
                maybe(ledger.claims_exhausted(id, *attempts, *first_claim, now).await?)
            }
            Self::Silent { k, timeout } => some(ledger.no_signal(id, *k, *timeout, &delays(), now).await?),
            Self::Redrive { allowance } => some(ledger.redrive(id, *allowance, now).await?),
        })
    }

    /// What the transition function makes of the command: the answer, and the job that is there afterwards.
    pub fn by_the_rules(&self, id: &JobId, job: Option<&Job>, now: Timestamp) -> (Answer, Option<Job>) {
        fn of<O: std::fmt::Debug>(before: &Job, step: Step<O>) -> (Answer, Option<Job>) {
            let after = step.after.unwrap_or_else(|| before.clone());
            (Answer::named(step.outcome, Some(after.clone())), Some(after))
        }
        let Some(job) = job else {
            return match self {
                Self::Charge { cost, max_attempts } => {
                    let charged = transition::charged(&charge(id, *cost, *max_attempts), now);
                    (Answer::named(ChargeOutcome::Charged, Some(charged.clone())), Some(charged))
                }
                Self::HandedOver { .. } => (Answer::named(false, None), None),
                Self::Fail(_)
                | Self::Succeed
                | Self::Dispatch { .. }
                | Self::Exhausted { .. }
                | Self::Silent { .. }
                | Self::Redrive { .. } => (Answer { outcome: "UnknownJob".to_owned(), job: None }, None),
            };
        };
        match self {
            Self::Charge { cost, max_attempts } => {
                let outcome = transition::charged_before(job, &charge(id, *cost, *max_attempts));
                (Answer::named(outcome, Some(job.clone())), Some(job.clone()))
            }
            Self::Fail(failure) => of(job, transition::failure(job, failure, now)),
            Self::Succeed => of(job, transition::success(job, now)),
            Self::Dispatch { attempts, ran_out } => {
                of(job, transition::dispatch(job, *attempts, *ran_out, now))
            }
            Self::HandedOver { attempts } => {
                let (answer, after) = of(job, transition::hand_over_done(job, *attempts, now));
                (Answer { job: None, ..answer }, after)
            }
            Self::Exhausted { attempts, first_claim } => {
                of(job, transition::claims_exhausted(job, *attempts, *first_claim, now))
            }
            Self::Silent { k, timeout } => of(job, transition::no_signal(job, *k, *timeout, &delays(), now)),
            Self::Redrive { allowance } => of(job, transition::redrive(job, *allowance, now)),
        }
    }
}
