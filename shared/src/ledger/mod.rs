//! The ledger's port: what every store of jobs and entries must do, and what is true once a call returns.
//!
//! Two traits, because two kinds of programs use it. [`Ledger`] is what the functions need: guarded writes, and the
//! bounded reads of a drain. [`LedgerReader`] is what people need: stories, balances, statements, audits.
//!
//! Every write is one conditional operation on one job. It answers with the outcome and the job as it stands, so
//! that no caller has to read again. Reads that explain a refusal happen after the refusal and never decide.

use std::collections::HashSet;
use std::future::Future;
use std::time::Duration;

use serde::Serialize;

use crate::backoff::Delays;
use crate::clock::Timestamp;
use crate::job::{AccountId, Job, JobId, LedgerRow, Phase};
use crate::transition::{
    Charge, ChargeOutcome, DispatchOutcome, ExhaustedOutcome, Failure, FailureOutcome, RedriveOutcome,
    SilenceOutcome, SuccessOutcome,
};

#[cfg(feature = "mongodb")]
pub mod mongo;
#[cfg(feature = "sqlite")]
pub mod sqlite;

/// Jobs read in one go where all of them are gone through: some hundred kilobytes.
pub const PAGE: usize = 500;

/// What a guarded write did, and the job as it stands: after the write, or, where the guard refused, as a read
/// just after found it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied<O> {
    /// The answer.
    pub outcome: O,
    /// The job.
    pub job: Job,
}

/// Why the ledger could not answer, cut by what to do next.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// Keep the event for redelivery: its charge may still be on the way.
    #[error("job {:?} is not in the ledger; charge it first, or let the event be delivered again", .0.as_str())]
    UnknownJob(JobId),
    /// Fix the event: it names another account than the job's own.
    #[error(
        "job {:?} belongs to another account than {:?}; correct the event's account_id or leave it out",
        .job_id.as_str(), .given.as_str()
    )]
    AccountMismatch {
        /// The job.
        job_id: JobId,
        /// The account that the event names.
        given: AccountId,
    },
    /// Try again: the store did not answer, or not in time, or could not promise durability. Whether a write was
    /// applied is unknown, and the guard makes trying again harmless.
    #[error("{store} is not to be reached or could not confirm: {what}; try again")]
    Unavailable {
        /// Which store.
        store: &'static str,
        /// What it said, without addresses that hold secrets.
        what: String,
    },
    /// Call a person: what stands there breaks the layout.
    #[error("job {job_id} cannot be read: {what}; run `recoup audit`")]
    Unreadable {
        /// The job, as far as it can be named.
        job_id: String,
        /// What is wrong with it.
        what: String,
    },
    /// Call a person: the store refuses the operation itself (rights, layout, validator).
    #[error("{store} refused: {what}")]
    Refused {
        /// Which store.
        store: &'static str,
        /// What it said.
        what: String,
    },
    /// Call a person: a sum that no 64-bit integer holds.
    #[error("the sum of the entries of {0} does not fit a 64-bit integer")]
    Overflow(String),
}

impl LedgerError {
    /// Whether the store was out of reach, so that the next record of the same batch need not wait for it too.
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }
}

/// The kinds of jobs that a drain looks for in the ledger, each by an index of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outstanding {
    /// Phase retry_waiting, by `not_before`: a retry that should have been taken up.
    OverdueRetry,
    /// Phase running, attempts > 0, `dispatched_at` unset, by `updated_at`: a hand-over nobody finished.
    OpenHandOver,
    /// Phase running, attempts = 0, by `created_at`: a first attempt without any signal.
    SilentFirstAttempt,
    /// Phase running, attempts > 0, `dispatched_at` set, by `dispatched_at`: a later attempt without any signal.
    SilentRetry,
}

impl Outstanding {
    /// All kinds.
    pub const ALL: [Self; 4] =
        [Self::OverdueRetry, Self::OpenHandOver, Self::SilentFirstAttempt, Self::SilentRetry];
}

/// One job that a drain found, and the place in the index at which it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The job.
    pub job_id: JobId,
    /// Its failures so far.
    pub attempts: u32,
    /// The time by which its index sorts.
    pub at: Timestamp,
}

/// A place in an index: just after the job `job_id` at `at`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, serde::Deserialize)]
pub struct Cursor {
    /// Milliseconds since the epoch.
    pub at_ms: i64,
    /// The job.
    pub job_id: String,
}

impl Found {
    /// The place just after this job.
    pub fn cursor(&self) -> Cursor {
        Cursor { at_ms: self.at.as_millis(), job_id: self.job_id.as_str().to_owned() }
    }
}

/// Guarded writes and a drain's reads. The rules themselves are [`crate::transition`]'s; each method names its row.
///
/// Once a writing method has returned `Ok`, what it answers is durable; once it has returned an error, the write may
/// or may not have been applied, and calling again is harmless.
pub trait Ledger: Send + Sync {
    /// Writes the job and its charge entry where no such job is there. A job with the same account and cost is a
    /// duplicate, any other a conflict.
    fn charge(
        &self,
        charge: &Charge,
        now: Timestamp,
    ) -> impl Future<Output = Result<Applied<ChargeOutcome>, LedgerError>> + Send;

    /// Counts a failure, and refunds the job with it if it was not refunded before. `account_id`, where given, is
    /// part of the guard.
    fn record_failure(
        &self,
        job_id: &JobId,
        account_id: Option<&AccountId>,
        failure: &Failure,
        now: Timestamp,
    ) -> impl Future<Output = Result<Applied<FailureOutcome>, LedgerError>> + Send;

    /// Delivers the job, and reclaims its refund if it had one.
    fn record_success(
        &self,
        job_id: &JobId,
        account_id: Option<&AccountId>,
        now: Timestamp,
    ) -> impl Future<Output = Result<Applied<SuccessOutcome>, LedgerError>> + Send;

    /// Takes up a due retry: to running, or to dead_lettered where the job is at its cap. `None`: no such job.
    fn dispatch(
        &self,
        job_id: &JobId,
        attempts: u32,
        ran_out: bool,
        now: Timestamp,
    ) -> impl Future<Output = Result<Option<Applied<DispatchOutcome>>, LedgerError>> + Send;

    /// Notes that the work was handed over; from here on silence counts as failure. False: nothing was open.
    fn hand_over_done(
        &self,
        job_id: &JobId,
        attempts: u32,
        now: Timestamp,
    ) -> impl Future<Output = Result<bool, LedgerError>> + Send;

    /// Sets a job aside whose claims ran out too often. `None`: no such job.
    fn claims_exhausted(
        &self,
        job_id: &JobId,
        attempts: u32,
        first_claim: Timestamp,
        now: Timestamp,
    ) -> impl Future<Output = Result<Option<Applied<ExhaustedOutcome>>, LedgerError>> + Send;

    /// Counts attempt `k` as failed where it has been silent for `timeout`.
    fn no_signal(
        &self,
        job_id: &JobId,
        k: u32,
        timeout: Duration,
        delays: &Delays,
        now: Timestamp,
    ) -> impl Future<Output = Result<Applied<SilenceOutcome>, LedgerError>> + Send;

    /// Sends a job that was set aside back to the retry queue.
    fn redrive(
        &self,
        job_id: &JobId,
        allowance: u32,
        now: Timestamp,
    ) -> impl Future<Output = Result<Applied<RedriveOutcome>, LedgerError>> + Send;

    /// Which of these retries `(job, attempts)` are at or over their job's cap while they wait. For speed only: it
    /// says which entries to take up at once, and [`Ledger::dispatch`] decides.
    fn at_cap(
        &self,
        retries: &[(JobId, u32)],
    ) -> impl Future<Output = Result<HashSet<(JobId, u32)>, LedgerError>> + Send;

    /// Up to `limit` jobs of this kind whose time is `until` or earlier, oldest first, after the place `after`. One that
    /// cannot be read is logged and passed over, so that it costs its neighbours nothing; the page is filled from
    /// behind it.
    fn outstanding(
        &self,
        kind: Outstanding,
        until: Timestamp,
        after: Option<&Cursor>,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<Found>, LedgerError>> + Send;
}

/// A job that could be read, or why it could not.
pub type JobOrFault = Result<Job, LedgerError>;

/// What the ledger adds up to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Jobs there are.
    pub jobs: u64,
    /// Accounts that have at least one.
    pub accounts: u64,
    /// Credits of all charge entries, positive.
    pub charged: i64,
    /// Credits of all refund entries, positive.
    pub refunded: i64,
    /// Credits of all reclaim entries, positive.
    pub reclaimed: i64,
    /// Jobs in phase retry_waiting.
    pub waiting: u64,
    /// Credits that delivered jobs did not pay for: their costs plus their entries.
    pub given_away: i64,
}

/// What people ask. Sums and rows come from entries only, never from a counter.
pub trait LedgerReader: Send + Sync {
    /// One job.
    fn job(&self, job_id: &JobId) -> impl Future<Output = Result<Option<Job>, LedgerError>> + Send;

    /// The sum of the account's entries; 0 for an account without any.
    fn balance(&self, account_id: &AccountId) -> impl Future<Output = Result<i64, LedgerError>> + Send;

    /// Every row of the account written before `until`, by time and then by position in its job, one call of `each`
    /// a row.
    fn statement(
        &self,
        account_id: &AccountId,
        until: Option<Timestamp>,
        each: &mut (dyn FnMut(LedgerRow) + Send),
    ) -> impl Future<Output = Result<(), LedgerError>> + Send;

    /// Up to `limit` jobs in the order of their ids, after `after`; of one phase, where that is given. A job that
    /// cannot be read comes as its fault.
    fn jobs(
        &self,
        phase: Option<Phase>,
        after: Option<&str>,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<(String, JobOrFault)>, LedgerError>> + Send;

    /// What all jobs and entries add up to.
    fn totals(&self) -> impl Future<Output = Result<Totals, LedgerError>> + Send;

    /// A job that no replay made, if there is one.
    fn any_live_job(&self) -> impl Future<Output = Result<Option<String>, LedgerError>> + Send;
}

/// Whether the account an event names is the job's own.
///
/// # Errors
/// [`LedgerError::AccountMismatch`].
pub fn check_account(job: &Job, given: Option<&AccountId>) -> Result<(), LedgerError> {
    match given {
        Some(given) if *given != job.account_id => {
            Err(LedgerError::AccountMismatch { job_id: job.job_id.clone(), given: given.clone() })
        }
        Some(_) | None => Ok(()),
    }
}
