//! `recoup audit`: every job against the invariants that one document shows, and the queue against the ledger.
//!
//! Writers run meanwhile, so nothing is reported on one look: whatever seems wrong is read again, and only what
//! stands the second time is a violation. One look at the queue and one at the ledger are never of the same moment;
//! a retry that moved in between is on its way, not lost.

use std::time::Duration;

use recoup::clock::{Clock, Timestamp};
use recoup::job::{Job, JobId, Phase};
use recoup::ledger::{LedgerError, LedgerReader};
use recoup::queue::{RetryEntry, RetryQueue};
use serde::Serialize;

use super::{Desk, PAGE};
use crate::output::{Output, count_of};
use crate::progress::Progress;
use crate::stop::{Stop, visible};
use crate::store::Store;

#[derive(Serialize)]
struct Violation<'a> {
    job_id: &'a str,
    violation: &'a str,
}

/// What the audit saw. In JSON, the last line.
#[derive(Debug, Default, Serialize)]
struct Findings {
    /// Jobs read.
    jobs: u64,
    /// Retries that should stand in the queue and were looked for there.
    retries: u64,
    /// Of these, the ones that may stand in the list of new entries, which nobody has drained.
    unjudged: u64,
    /// Sentences about jobs that break a rule.
    violations: u64,
}

/// `recoup audit`.
pub(crate) async fn run<S: Store>(desk: Desk<'_, S>) -> Result<(), Stop> {
    let mut audit = Audit {
        store: desk.store,
        now: desk.clock.now(),
        sweep_grace: desk.settings.sweep_grace,
        claim_timeout: desk.settings.claim_timeout,
        out: desk.out,
        findings: Findings::default(),
    };
    let progress = Progress::new(None, "jobs audited", !audit.out.is_shown());
    let mut after: Option<String> = None;
    loop {
        let page = desk.store.ledger().jobs(None, after.as_deref(), PAGE).await?;
        let mut expected = Vec::new();
        for (id, job) in &page {
            audit.findings.jobs += 1;
            match job {
                Ok(job) if job.violations().is_empty() => expected.extend(audit.expected_entry(job)),
                Ok(_) => audit.look_again(id, None).await?,
                Err(fault) => audit.look_again(id, Some(fault)).await?,
            }
        }
        audit.compare_queue(&expected).await?;
        progress.at(audit.findings.jobs);
        if page.len() < PAGE {
            break;
        }
        after = page.into_iter().last().map(|(id, _)| id);
    }
    progress.done();
    audit.end()
}

struct Audit<'a, S> {
    store: &'a S,
    now: Timestamp,
    sweep_grace: Duration,
    claim_timeout: Duration,
    out: &'a mut Output,
    findings: Findings,
}

impl<S: Store> Audit<'_, S> {
    /// Reads a job again that seemed wrong, and reports what still is. A fault that no job of this id has is that of a
    /// document whose id is no text, and cannot be asked for again.
    async fn look_again(&mut self, id: &str, fault: Option<&LedgerError>) -> Result<(), Stop> {
        let Ok(job_id) = JobId::new(id) else {
            return self.report(
                id,
                "the job's id is none: it must have 1 to 256 characters without control characters",
            );
        };
        match self.store.ledger().job(&job_id).await {
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
        let due = match job.phase {
            Phase::RetryWaiting => job.not_before.filter(|due| overdue(*due, self.sweep_grace)),
            Phase::Running if job.attempts > 0 && job.dispatched_at.is_none() => {
                let grace = self.claim_timeout.saturating_add(self.sweep_grace);
                Some(job.updated_at).filter(|since| overdue(*since, grace))
            }
            Phase::Running | Phase::DeadLettered | Phase::Failed | Phase::Delivered => None,
        };
        due.filter(|_| self.store.queues(job)).map(|not_before| RetryEntry {
            job_id: job.job_id.clone(),
            attempts: job.attempts,
            not_before,
        })
    }

    async fn compare_queue(&mut self, expected: &[RetryEntry]) -> Result<(), Stop> {
        if expected.is_empty() {
            return Ok(());
        }
        self.findings.retries += expected.len() as u64;
        let queue = self.store.queue();
        let missing = queue.missing(expected).await?;
        if missing.is_empty() {
            return Ok(());
        }
        // In this order: an entry leaves the list for a room in which the second look finds it.
        let new_entries = queue.depths().await?.retry;
        let missing = queue.missing(&missing).await?;
        for entry in missing {
            if self.has_moved_on(&entry).await? {
                continue;
            }
            if new_entries > 0 {
                self.findings.unjudged += 1;
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
    async fn has_moved_on(&self, entry: &RetryEntry) -> Result<bool, Stop> {
        let job = self.store.ledger().job(&entry.job_id).await?;
        Ok(job.and_then(|job| self.expected_entry(&job)).is_none_or(|still| still != *entry))
    }

    fn report(&mut self, job_id: &str, violation: &str) -> Result<(), Stop> {
        self.findings.violations += 1;
        if self.out.is_json() {
            return self.out.document(&Violation { job_id, violation });
        }
        self.out.line(format!("job {}: {}", visible(job_id), visible(violation)))
    }

    fn end(self) -> Result<(), Stop> {
        let Findings { jobs, retries, unjudged, violations } = self.findings;
        if self.out.is_json() {
            self.out.document(&self.findings)?;
        } else if violations == 0 {
            let (jobs, retries) = (count_of(jobs, "job"), count_of(retries, "overdue retry"));
            self.out.line(format!("{jobs} audited, {retries} looked up in the queue: no violation."))?;
        }
        if unjudged > 0 && !self.out.is_json() {
            self.out.line(format!(
                "{} could not be judged, because new entries stand in the queue; run `{}` and audit again.",
                count_of(unjudged, "retry"),
                self.store.hint("drain")
            ))?;
        }
        if violations == 0 {
            return Ok(());
        }
        Err(Stop::Refused(format!(
            "the audit of {} found {} in {}; docs/OPERATIONS.md says what each means and what mends it",
            self.store.name(),
            count_of(violations, "violation"),
            count_of(jobs, "job")
        )))
    }
}
