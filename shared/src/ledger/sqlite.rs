//! The ledger in the embedded file: the rules of [`crate::transition`], run inside a write transaction.
//!
//! A guarded write takes the file's write lock, reads the job, asks the transition function, and writes what it says in
//! one UPDATE. Nobody can come between, and no rule is spelled out here a second time. The entries are not written
//! from here at all: `schema.sql` has the UPDATE of a flag write them, so that not even a slip in this file could
//! part the two. Cost of a write: one seek for the job and its entries, one UPDATE, and the commit.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Params, named_params};

use self::rows::{add_entry, decode_found, decode_job, decode_ledger_row, decode_type, name_of, unreadable};
use super::{
    Applied, Cursor, Found, JobOrFault, Ledger, LedgerError, LedgerReader, Outstanding, Totals, check_account,
};
use crate::backoff::Delays;
use crate::clock::Timestamp;
use crate::embedded::{Embedded, STORE, is_passing};
use crate::job::{AccountId, EntryType, Job, JobId, LedgerRow, Phase};
use crate::transition::{
    self, Charge, ChargeOutcome, DispatchOutcome, ExhaustedOutcome, Failure, FailureOutcome, RedriveOutcome,
    SilenceOutcome, Step, SuccessOutcome,
};

mod rows;

/// The ledger's handle on the embedded store.
#[derive(Clone, Debug)]
pub struct SqliteLedger {
    store: Arc<Embedded>,
}

impl SqliteLedger {
    /// A handle on `store`.
    pub fn new(store: Arc<Embedded>) -> Self {
        Self { store }
    }
}

impl From<rusqlite::Error> for LedgerError {
    fn from(error: rusqlite::Error) -> Self {
        let what = error.to_string();
        if is_passing(&error) {
            Self::Unavailable { store: STORE, what }
        } else {
            Self::Refused { store: STORE, what }
        }
    }
}

/// Jobs with their entries, a row for each entry; `decode_job` reads the columns in this order.
macro_rules! jobs_and_entries {
    ($($jobs:literal)+; $rest:literal) => {
        concat!(
            "SELECT j.job_id, j.account_id, j.cost, j.is_refunded, j.refunded_at, j.is_reclaimed, j.reclaimed_at, ",
            "j.delivered_at, j.phase, j.attempts, j.max_attempts, j.not_before, j.dispatched_at, ",
            "j.last_error_reason, j.last_error_at, j.counted_events, j.redriven_at, j.created_at, j.updated_at, ",
            "j.replayed, e.type, e.amount, e.created_at FROM ",
            $($jobs,)+
            " AS j LEFT JOIN entries AS e ON e.job_id = j.job_id ",
            $rest
        )
    };
}

/// A page of jobs in the order of their ids, those for which the condition holds.
macro_rules! page_of_jobs {
    ($condition:literal) => {
        jobs_and_entries!(
            "(SELECT * FROM jobs WHERE job_id > :after " $condition " ORDER BY job_id LIMIT :limit)";
            "ORDER BY j.job_id, e.position"
        )
    };
}

/// By primary key, in both tables.
const ONE_JOB: &str = jobs_and_entries!("jobs"; "WHERE j.job_id = :job_id ORDER BY e.position");
/// By primary key.
const ALL_JOBS: &str = page_of_jobs!("");
/// By `jobs_set_aside`.
const DEAD_LETTERED_JOBS: &str = page_of_jobs!("AND phase = 'dead_lettered'");
/// By `jobs_set_aside`.
const FAILED_JOBS: &str = page_of_jobs!("AND phase = 'failed'");
/// By primary key, past the jobs of other phases, like the next two: nobody lists these often enough for an index.
const RUNNING_JOBS: &str = page_of_jobs!("AND phase = 'running'");
const WAITING_JOBS: &str = page_of_jobs!("AND phase = 'retry_waiting'");
const DELIVERED_JOBS: &str = page_of_jobs!("AND phase = 'delivered'");

const CHARGE: &str = "
    INSERT INTO jobs (job_id, account_id, cost, is_refunded, is_reclaimed, phase, attempts, max_attempts,
                      counted_events, created_at, updated_at, replayed)
    VALUES (:job_id, :account_id, :cost, 0, 0, 'running', 0, :max_attempts, '[]', :now, :now, :replayed)";

/// Everything about a job that may change. The triggers write the entries that the flags ask for.
const SAVE: &str = "
    UPDATE jobs
    SET is_refunded = :is_refunded, refunded_at = :refunded_at, is_reclaimed = :is_reclaimed,
        reclaimed_at = :reclaimed_at, delivered_at = :delivered_at, phase = :phase, attempts = :attempts,
        max_attempts = :max_attempts, not_before = :not_before, dispatched_at = :dispatched_at,
        last_error_reason = :last_error_reason, last_error_at = :last_error_at,
        counted_events = :counted_events, redriven_at = :redriven_at, updated_at = :updated_at
    WHERE job_id = :job_id";

/// By primary key.
const AT_CAP: &str = "
    SELECT 1 FROM jobs
    WHERE job_id = :job_id AND attempts = :attempts AND phase = 'retry_waiting' AND attempts >= max_attempts";

/// By `jobs_overdue_retry`, like the next three by an index of its own; its reader stops once its page is full.
const OVERDUE_RETRIES: &str = "
    SELECT job_id, attempts, not_before FROM jobs
    WHERE phase = 'retry_waiting' AND not_before <= :until AND (not_before, job_id) > (:at, :after)
    ORDER BY not_before, job_id";

/// By `jobs_open_hand_over`.
const OPEN_HAND_OVERS: &str = "
    SELECT job_id, attempts, updated_at FROM jobs
    WHERE phase = 'running' AND attempts > 0 AND dispatched_at IS NULL
      AND updated_at <= :until AND (updated_at, job_id) > (:at, :after)
    ORDER BY updated_at, job_id";

/// By `jobs_silent_first_attempt`.
const SILENT_FIRST_ATTEMPTS: &str = "
    SELECT job_id, attempts, created_at FROM jobs
    WHERE phase = 'running' AND attempts = 0 AND created_at <= :until AND (created_at, job_id) > (:at, :after)
    ORDER BY created_at, job_id";

/// By `jobs_silent_retry`.
const SILENT_RETRIES: &str = "
    SELECT job_id, attempts, dispatched_at FROM jobs
    WHERE phase = 'running' AND attempts > 0 AND dispatched_at IS NOT NULL
      AND dispatched_at <= :until AND (dispatched_at, job_id) > (:at, :after)
    ORDER BY dispatched_at, job_id";

/// By `entries_of_account`, without the table.
const AMOUNTS: &str = "SELECT amount FROM entries WHERE account_id = :account_id";

/// By `entries_of_account`, without the table and without sorting.
const STATEMENT: &str = "
    SELECT job_id, type, amount, created_at FROM entries
    WHERE account_id = :account_id AND created_at < :until ORDER BY created_at, position, job_id";

const COUNTS: &str = "
    SELECT count(*), count(DISTINCT account_id), count(*) FILTER (WHERE phase = 'retry_waiting') FROM jobs";
const ALL_AMOUNTS: &str = "SELECT type, amount FROM entries";
const DELIVERED_COSTS: &str = "SELECT cost FROM jobs WHERE phase = 'delivered'";
const DELIVERED_AMOUNTS: &str = "
    SELECT amount FROM jobs JOIN entries USING (job_id) WHERE phase = 'delivered'";
const ANY_LIVE_JOB: &str = "SELECT job_id FROM jobs WHERE NOT replayed LIMIT 1";

fn outstanding_of(kind: Outstanding) -> &'static str {
    match kind {
        Outstanding::OverdueRetry => OVERDUE_RETRIES,
        Outstanding::OpenHandOver => OPEN_HAND_OVERS,
        Outstanding::SilentFirstAttempt => SILENT_FIRST_ATTEMPTS,
        Outstanding::SilentRetry => SILENT_RETRIES,
    }
}

fn jobs_of(phase: Option<Phase>) -> &'static str {
    match phase {
        None => ALL_JOBS,
        Some(Phase::Running) => RUNNING_JOBS,
        Some(Phase::RetryWaiting) => WAITING_JOBS,
        Some(Phase::DeadLettered) => DEAD_LETTERED_JOBS,
        Some(Phase::Failed) => FAILED_JOBS,
        Some(Phase::Delivered) => DELIVERED_JOBS,
    }
}

impl Ledger for SqliteLedger {
    async fn charge(&self, charge: &Charge, now: Timestamp) -> Result<Applied<ChargeOutcome>, LedgerError> {
        self.store.write(|file| {
            if let Some(job) = find(file, &charge.job_id)? {
                return Ok(Applied { outcome: transition::charged_before(&job, charge), job });
            }
            let job = transition::charged(charge, now);
            insert(file, &job)?;
            Ok(Applied { outcome: ChargeOutcome::Charged, job })
        })
    }

    async fn record_failure(
        &self,
        job_id: &JobId,
        account_id: Option<&AccountId>,
        failure: &Failure,
        now: Timestamp,
    ) -> Result<Applied<FailureOutcome>, LedgerError> {
        self.guarded(job_id, account_id, |job| transition::failure(job, failure, now))
    }

    async fn record_success(
        &self,
        job_id: &JobId,
        account_id: Option<&AccountId>,
        now: Timestamp,
    ) -> Result<Applied<SuccessOutcome>, LedgerError> {
        self.guarded(job_id, account_id, |job| transition::success(job, now))
    }

    async fn dispatch(
        &self,
        job_id: &JobId,
        attempts: u32,
        ran_out: bool,
        now: Timestamp,
    ) -> Result<Option<Applied<DispatchOutcome>>, LedgerError> {
        known(self.guarded(job_id, None, |job| transition::dispatch(job, attempts, ran_out, now)))
    }

    async fn hand_over_done(
        &self,
        job_id: &JobId,
        attempts: u32,
        now: Timestamp,
    ) -> Result<bool, LedgerError> {
        let done = self.guarded(job_id, None, |job| transition::hand_over_done(job, attempts, now));
        Ok(known(done)?.is_some_and(|applied| applied.outcome))
    }

    async fn claims_exhausted(
        &self,
        job_id: &JobId,
        attempts: u32,
        first_claim: Timestamp,
        now: Timestamp,
    ) -> Result<Option<Applied<ExhaustedOutcome>>, LedgerError> {
        known(self.guarded(job_id, None, |job| transition::claims_exhausted(job, attempts, first_claim, now)))
    }

    async fn no_signal(
        &self,
        job_id: &JobId,
        k: u32,
        timeout: Duration,
        delays: &Delays,
        now: Timestamp,
    ) -> Result<Applied<SilenceOutcome>, LedgerError> {
        self.guarded(job_id, None, |job| transition::no_signal(job, k, timeout, delays, now))
    }

    async fn redrive(
        &self,
        job_id: &JobId,
        allowance: u32,
        now: Timestamp,
    ) -> Result<Applied<RedriveOutcome>, LedgerError> {
        self.guarded(job_id, None, |job| transition::redrive(job, allowance, now))
    }

    async fn at_cap(&self, retries: &[(JobId, u32)]) -> Result<HashSet<(JobId, u32)>, LedgerError> {
        self.store.read(|file| {
            let mut at_cap = file.prepare_cached(AT_CAP)?;
            let mut found = HashSet::new();
            for (job_id, attempts) in retries {
                if at_cap.exists(named_params! { ":job_id": job_id.as_str(), ":attempts": attempts })? {
                    found.insert((job_id.clone(), *attempts));
                }
            }
            Ok(found)
        })
    }

    async fn outstanding(
        &self,
        kind: Outstanding,
        until: Timestamp,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Vec<Found>, LedgerError> {
        let (at, after) = after.map_or((i64::MIN, ""), |cursor| (cursor.at_ms, &cursor.job_id));
        self.store.read(|file| {
            let mut statement = file.prepare_cached(outstanding_of(kind))?;
            let mut rows =
                statement.query(named_params! { ":until": until.as_millis(), ":at": at, ":after": after })?;
            let mut found = Vec::new();
            while found.len() < limit
                && let Some(row) = rows.next()?
            {
                // What cannot be read costs its neighbours nothing.
                match decode_found(row).map_err(|what| unreadable(row, what)) {
                    Ok(job) => found.push(job),
                    Err(error) => tracing::error!(job_id = name_of(row), %error, "a job is passed over"),
                }
            }
            Ok(found)
        })
    }
}

impl SqliteLedger {
    /// One row of the contract's table: reads the job, decides by `step`, writes, all under the write lock.
    fn guarded<O>(
        &self,
        job_id: &JobId,
        account_id: Option<&AccountId>,
        step: impl FnOnce(&Job) -> Step<O>,
    ) -> Result<Applied<O>, LedgerError> {
        self.store.write(|file| {
            let job = find(file, job_id)?.ok_or_else(|| LedgerError::UnknownJob(job_id.clone()))?;
            check_account(&job, account_id)?;
            let Step { outcome, after } = step(&job);
            if let Some(after) = &after {
                save(file, after)?;
            }
            Ok(Applied { outcome, job: after.unwrap_or(job) })
        })
    }
}

impl LedgerReader for SqliteLedger {
    async fn job(&self, job_id: &JobId) -> Result<Option<Job>, LedgerError> {
        self.store.read(|file| find(file, job_id))
    }

    async fn balance(&self, account_id: &AccountId) -> Result<i64, LedgerError> {
        let sum = self
            .store
            .read(|file| sum(file, AMOUNTS, named_params! { ":account_id": account_id.as_str() }))?;
        fit(sum, || format!("account {account_id}"))
    }

    /// The store is locked meanwhile: `each` must not call it.
    async fn statement(
        &self,
        account_id: &AccountId,
        until: Option<Timestamp>,
        each: &mut (dyn FnMut(LedgerRow) + Send),
    ) -> Result<(), LedgerError> {
        let until = until.map_or(i64::MAX, Timestamp::as_millis);
        self.store.read(|file| {
            let mut statement = file.prepare_cached(STATEMENT)?;
            let mut rows =
                statement.query(named_params! { ":account_id": account_id.as_str(), ":until": until })?;
            while let Some(row) = rows.next()? {
                let (job_id, entry) = decode_ledger_row(row).map_err(|what| unreadable(row, what))?;
                each(LedgerRow::new(job_id, account_id.clone(), entry));
            }
            Ok(())
        })
    }

    async fn jobs(
        &self,
        phase: Option<Phase>,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(String, JobOrFault)>, LedgerError> {
        let page = named_params! { ":after": after.unwrap_or(""), ":limit": as_limit(limit) };
        self.store.read(|file| query_jobs(file, jobs_of(phase), page))
    }

    async fn totals(&self) -> Result<Totals, LedgerError> {
        self.store.read(|file| {
            let [jobs, accounts, waiting] = file
                .query_row(COUNTS, [], |row| Ok([row.get(0)?, row.get(1)?, row.get(2)?]))?
                .map(i64::unsigned_abs);
            let moved = sums_by_type(file)?;
            let delivered = sum(file, DELIVERED_COSTS, [])?;
            let paid = sum(file, DELIVERED_AMOUNTS, [])?;
            Ok(Totals {
                jobs,
                accounts,
                waiting,
                charged: fit(-moved.charge, || "type charge".to_owned())?,
                refunded: fit(moved.refund, || "type refund".to_owned())?,
                reclaimed: fit(-moved.reclaim, || "type reclaim".to_owned())?,
                given_away: fit(delivered + paid, || "delivered jobs".to_owned())?,
            })
        })
    }

    async fn any_live_job(&self) -> Result<Option<String>, LedgerError> {
        self.store.read(|file| Ok(file.query_row(ANY_LIVE_JOB, [], |row| row.get(0)).optional()?))
    }
}

/// A job that is not there is no error to a drain.
fn known<T>(answer: Result<T, LedgerError>) -> Result<Option<T>, LedgerError> {
    match answer {
        Ok(applied) => Ok(Some(applied)),
        Err(LedgerError::UnknownJob(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

fn as_limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

fn find(file: &Connection, job_id: &JobId) -> Result<Option<Job>, LedgerError> {
    let mut found = query_jobs(file, ONE_JOB, named_params! { ":job_id": job_id.as_str() })?;
    found.pop().map(|(_, job)| job).transpose()
}

fn insert(file: &Connection, job: &Job) -> rusqlite::Result<()> {
    file.prepare_cached(CHARGE)?.execute(named_params! {
        ":job_id": job.job_id.as_str(),
        ":account_id": job.account_id.as_str(),
        ":cost": job.cost.credits(),
        ":max_attempts": job.max_attempts,
        ":now": job.created_at.as_millis(),
        ":replayed": job.replayed,
    })?;
    Ok(())
}

fn save(file: &Connection, job: &Job) -> rusqlite::Result<()> {
    let counted_events =
        serde_json::to_string(&job.counted_events).expect("a list of strings is always JSON");
    let ms = |at: Option<Timestamp>| at.map(Timestamp::as_millis);
    let last_error = job.last_error.as_ref();
    file.prepare_cached(SAVE)?.execute(named_params! {
        ":job_id": job.job_id.as_str(),
        ":is_refunded": job.is_refunded,
        ":refunded_at": ms(job.refunded_at),
        ":is_reclaimed": job.is_reclaimed,
        ":reclaimed_at": ms(job.reclaimed_at),
        ":delivered_at": ms(job.delivered_at),
        ":phase": job.phase.as_str(),
        ":attempts": job.attempts,
        ":max_attempts": job.max_attempts,
        ":not_before": ms(job.not_before),
        ":dispatched_at": ms(job.dispatched_at),
        ":last_error_reason": last_error.map(|error| error.reason.as_str()),
        ":last_error_at": ms(last_error.map(|error| error.at)),
        ":counted_events": counted_events,
        ":redriven_at": ms(job.redriven_at),
        ":updated_at": job.updated_at.as_millis(),
    })?;
    Ok(())
}

/// Reads jobs whose entries follow one another, from a query of `jobs_and_entries!`.
fn query_jobs(
    file: &Connection,
    sql: &str,
    params: impl Params,
) -> Result<Vec<(String, JobOrFault)>, LedgerError> {
    let mut statement = file.prepare_cached(sql)?;
    let mut rows = statement.query(params)?;
    let mut found: Vec<(String, JobOrFault)> = Vec::new();
    while let Some(row) = rows.next()? {
        let id = name_of(row);
        if found.last().is_none_or(|(last, _)| *last != id) {
            found.push((id, decode_job(row).map_err(|what| unreadable(row, what))));
        }
        let (_, last) = found.last_mut().expect("one was pushed if there was none");
        if let Ok(job) = last
            && let Err(what) = add_entry(row, job)
        {
            *last = Err(unreadable(row, what));
        }
    }
    Ok(found)
}

/// Adds up the first column. In Rust, since SQLite's own sum fails where a part of it overflows and the whole does not.
fn sum(file: &Connection, sql: &str, params: impl Params) -> rusqlite::Result<i128> {
    let mut statement = file.prepare_cached(sql)?;
    let mut rows = statement.query(params)?;
    let mut sum = 0;
    while let Some(row) = rows.next()? {
        sum += i128::from(row.get::<_, i64>(0)?);
    }
    Ok(sum)
}

#[derive(Default)]
struct SumsByType {
    charge: i128,
    refund: i128,
    reclaim: i128,
}

fn sums_by_type(file: &Connection) -> Result<SumsByType, LedgerError> {
    let mut statement = file.prepare_cached(ALL_AMOUNTS)?;
    let mut rows = statement.query([])?;
    let mut sums = SumsByType::default();
    while let Some(row) = rows.next()? {
        let kind = row.get_ref(0)?.as_str().map_err(rusqlite::Error::from);
        let kind = decode_type(kind?).map_err(|what| LedgerError::Refused { store: STORE, what })?;
        let sum = match kind {
            EntryType::Charge => &mut sums.charge,
            EntryType::Refund => &mut sums.refund,
            EntryType::Reclaim => &mut sums.reclaim,
        };
        *sum += i128::from(row.get::<_, i64>(1)?);
    }
    Ok(sums)
}

fn fit(sum: i128, of: impl FnOnce() -> String) -> Result<i64, LedgerError> {
    i64::try_from(sum).map_err(|_| LedgerError::Overflow(of()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::embedded::tests::plan;

    #[test]
    fn each_kind_of_outstanding_job_has_its_index() {
        for (kind, index, time) in [
            (Outstanding::OverdueRetry, "jobs_overdue_retry", "not_before"),
            (Outstanding::OpenHandOver, "jobs_open_hand_over", "updated_at"),
            (Outstanding::SilentFirstAttempt, "jobs_silent_first_attempt", "created_at"),
            (Outstanding::SilentRetry, "jobs_silent_retry", "dispatched_at"),
        ] {
            let seek = format!("{index} (({time},job_id)>(?,?) AND {time}<?)");
            let plan = plan(outstanding_of(kind));
            assert!(
                plan.len() == 1 && plan[0].starts_with("SEARCH jobs") && plan[0].ends_with(&seek),
                "{plan:#?}"
            );
        }
    }

    #[test]
    fn a_guarded_write_seeks_by_primary_key() {
        assert_eq!(
            plan(ONE_JOB),
            ["SEARCH j USING PRIMARY KEY (job_id=?)", "SEARCH e USING PRIMARY KEY (job_id=?) LEFT-JOIN"]
        );
        assert_eq!(plan(SAVE), ["SEARCH jobs USING PRIMARY KEY (job_id=?)"]);
        assert_eq!(plan(AT_CAP), ["SEARCH jobs USING PRIMARY KEY (job_id=?)"]);
    }

    #[test]
    fn balance_and_statement_read_the_account_s_index_alone() {
        assert_eq!(plan(AMOUNTS), ["SEARCH entries USING COVERING INDEX entries_of_account (account_id=?)"]);
        assert_eq!(
            plan(STATEMENT),
            ["SEARCH entries USING COVERING INDEX entries_of_account (account_id=? AND created_at<?)"]
        );
    }

    #[test]
    fn a_page_of_jobs_set_aside_reads_no_other_job() {
        for phase in [Phase::DeadLettered, Phase::Failed] {
            let plan = plan(jobs_of(Some(phase)));
            let seek = "SEARCH jobs USING INDEX jobs_set_aside (phase=? AND job_id>?)".to_owned();
            assert!(plan.contains(&seek), "{plan:#?}");
        }
        for phase in [None, Some(Phase::Running), Some(Phase::RetryWaiting), Some(Phase::Delivered)] {
            let plan = plan(jobs_of(phase));
            assert!(plan.contains(&"SEARCH jobs USING PRIMARY KEY (job_id>?)".to_owned()), "{plan:#?}");
        }
    }
}
