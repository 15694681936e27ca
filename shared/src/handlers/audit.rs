//! The audit: every job against the invariants that one document shows, and the queue against the ledger.
//!
//! Writers run meanwhile, so nothing is reported on one look: whatever seems wrong is read again, and only what
//! stands the second time is a violation. One look at the queue and one at the ledger are never of the same moment;
//! a retry that moved in between is on its way, not lost.
//!
//! It goes through the jobs by id, a page at a time, and reads only. Between two pages it may stop, at its deadline,
//! and says where the next audit has to go on: a ledger that outgrew one invocation is audited by several.

use std::time::Duration;

use serde::Serialize;

use crate::clock::{Clock, Deadline, Timestamp};
use crate::config::Settings;
use crate::job::{Job, JobId, Phase};
use crate::ledger::{LedgerError, LedgerReader};
use crate::queue::{QueueError, RetryEntry, RetryQueue};

/// Jobs read in one go: some hundred kilobytes.
pub const PAGE: usize = 500;

/// Pages of dead-lettered jobs that are counted. Whoever has so many knows that there are many.
const MOST_DEAD_LETTER_PAGES: usize = 20;

/// When a retry that stands nowhere in the queue is missing, and not just on its way.
#[derive(Clone, Copy, Debug)]
pub struct AuditSettings {
    /// What the sweep leaves a retry, beyond its time.
    pub sweep_grace: Duration,
    /// What a drain has to finish a hand-over.
    pub claim_timeout: Duration,
    /// Whether the retries of replayed jobs stand in the queue that is looked at.
    pub queues_replays: bool,
}

impl AuditSettings {
    /// From the environment's settings.
    pub fn new(settings: &Settings, queues_replays: bool) -> Self {
        let Settings { sweep_grace, claim_timeout, .. } = settings;
        Self { sweep_grace: *sweep_grace, claim_timeout: *claim_timeout, queues_replays }
    }
}

/// What an audit saw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AuditCounts {
    /// Jobs read.
    pub jobs: u64,
    /// Retries that should stand in the queue and were looked for there.
    pub retries: u64,
    /// Of these, the ones that may stand in the list of new entries, which nobody has drained.
    pub unjudged: u64,
    /// Sentences about jobs that break a rule.
    pub violations: u64,
}

/// An audit that came to the last job, or to its deadline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audited {
    /// What it saw.
    pub counts: AuditCounts,
    /// The id after which the next one goes on; `None` after the last job.
    pub next: Option<String>,
}

/// Who is told of what an audit finds. Its error ends the audit.
pub trait Listener {
    /// Why an audit ends early.
    type Error: From<LedgerError> + From<QueueError>;

    /// The job breaks a rule, on the second look too.
    ///
    /// # Errors
    /// Where nobody can be told.
    fn violation(&mut self, job_id: &str, violation: &str) -> Result<(), Self::Error>;

    /// So many jobs were read so far.
    fn read(&mut self, _jobs: u64) {}
}

/// Audits the jobs after `after`, in the order of their ids, until the last one or the deadline. One page is read
/// however little time there is, so that every call gets on.
///
/// # Errors
/// The listener's: where a store is out of reach, or it cannot be told.
pub async fn audit<L: Listener>(
    ledger: &impl LedgerReader,
    queue: &impl RetryQueue,
    settings: AuditSettings,
    clock: &impl Clock,
    mut after: Option<String>,
    deadline: Deadline,
    listener: &mut L,
) -> Result<Audited, L::Error> {
    let mut audit =
        Audit { ledger, queue, settings, now: clock.now(), listener, counts: AuditCounts::default() };
    loop {
        let page = ledger.jobs(None, after.as_deref(), PAGE).await?;
        audit.page(&page).await?;
        if page.len() < PAGE {
            return Ok(Audited { counts: audit.counts, next: None });
        }
        after = page.into_iter().last().map(|(id, _)| id);
        if deadline.passed() {
            return Ok(Audited { counts: audit.counts, next: after });
        }
    }
}

/// How many jobs are set aside for a person; of very many, some ten thousand are counted.
///
/// # Errors
/// [`LedgerError`] where the ledger cannot be read.
pub async fn dead_lettered(ledger: &impl LedgerReader) -> Result<u64, LedgerError> {
    let mut count = 0;
    let mut after: Option<String> = None;
    for _ in 0..MOST_DEAD_LETTER_PAGES {
        let page = ledger.jobs(Some(Phase::DeadLettered), after.as_deref(), PAGE).await?;
        count += page.len() as u64;
        if page.len() < PAGE {
            break;
        }
        after = page.into_iter().last().map(|(id, _)| id);
    }
    Ok(count)
}

struct Audit<'a, R, Q, L> {
    ledger: &'a R,
    queue: &'a Q,
    settings: AuditSettings,
    now: Timestamp,
    listener: &'a mut L,
    counts: AuditCounts,
}

impl<R: LedgerReader, Q: RetryQueue, L: Listener> Audit<'_, R, Q, L> {
    async fn page(&mut self, page: &[(String, Result<Job, LedgerError>)]) -> Result<(), L::Error> {
        let mut expected = Vec::new();
        for (id, job) in page {
            self.counts.jobs += 1;
            match job {
                Ok(job) if job.violations().is_empty() => expected.extend(self.expected_entry(job)),
                Ok(_) => self.look_again(id, None).await?,
                Err(fault) => self.look_again(id, Some(fault)).await?,
            }
        }
        self.compare_queue(&expected).await?;
        self.listener.read(self.counts.jobs);
        Ok(())
    }

    /// Reads a job again that seemed wrong, and reports what still is. A fault that no job of this id has is that of a
    /// document whose id is no text, and cannot be asked for again.
    async fn look_again(&mut self, id: &str, fault: Option<&LedgerError>) -> Result<(), L::Error> {
        let Ok(job_id) = JobId::new(id) else {
            return self.report(
                id,
                "the job's id is none: it must have 1 to 256 characters without control characters",
            );
        };
        match self.ledger.job(&job_id).await {
            Ok(Some(job)) => {
                for violation in job.violations() {
                    self.report(id, &violation)?;
                }
                Ok(())
            }
            Ok(None) => {
                let gone = || "the job was there and is gone; jobs are never removed".to_owned();
                self.report(id, &fault.map_or_else(gone, ToString::to_string))
            }
            Err(error) if error.is_unavailable() => Err(error.into()),
            Err(error) => self.report(id, &error.to_string()),
        }
    }

    /// The entry that the queue must hold for this job by now. One that is not overdue may still be on its way.
    fn expected_entry(&self, job: &Job) -> Option<RetryEntry> {
        let overdue = |since: Timestamp, grace: Duration| since.plus(grace) < self.now;
        let AuditSettings { sweep_grace, claim_timeout, queues_replays } = self.settings;
        let due = match job.phase {
            Phase::RetryWaiting => job.not_before.filter(|due| overdue(*due, sweep_grace)),
            Phase::Running if job.attempts > 0 && job.dispatched_at.is_none() => {
                let grace = claim_timeout.saturating_add(sweep_grace);
                Some(job.updated_at).filter(|since| overdue(*since, grace))
            }
            Phase::Running | Phase::DeadLettered | Phase::Failed | Phase::Delivered => None,
        };
        due.filter(|_| queues_replays || !job.replayed).map(|not_before| RetryEntry {
            job_id: job.job_id.clone(),
            attempts: job.attempts,
            not_before,
        })
    }

    async fn compare_queue(&mut self, expected: &[RetryEntry]) -> Result<(), L::Error> {
        if expected.is_empty() {
            return Ok(());
        }
        self.counts.retries += expected.len() as u64;
        let missing = self.queue.missing(expected).await?;
        if missing.is_empty() {
            return Ok(());
        }
        // In this order: an entry leaves the list for a room in which the second look finds it.
        let new_entries = self.queue.depths().await?.retry;
        let missing = self.queue.missing(&missing).await?;
        for entry in missing {
            if self.has_moved_on(&entry).await? {
                continue;
            }
            if new_entries > 0 {
                self.counts.unjudged += 1;
            } else {
                let violation = format!(
                    "attempt {} should have been taken up since {} and stands nowhere in the queue; a drain puts it \
                     back",
                    u64::from(entry.attempts) + 1,
                    entry.not_before
                );
                self.report(entry.job_id.as_str(), &violation)?;
            }
        }
        Ok(())
    }

    /// Whether the job no longer waits for this entry: somebody took it up while we looked.
    async fn has_moved_on(&self, entry: &RetryEntry) -> Result<bool, L::Error> {
        let job = self.ledger.job(&entry.job_id).await?;
        Ok(job.and_then(|job| self.expected_entry(&job)).is_none_or(|still| still != *entry))
    }

    fn report(&mut self, job_id: &str, violation: &str) -> Result<(), L::Error> {
        self.counts.violations += 1;
        self.listener.violation(job_id, violation)
    }
}
