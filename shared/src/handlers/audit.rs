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
use crate::ledger::{LedgerError, LedgerReader, PAGE};
use crate::queue::{QueueError, RetryEntry, RetryQueue};

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

#[cfg(test)]
#[cfg(feature = "sqlite")]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::backoff::{RetryPolicy, Roll};
    use crate::clock::VirtualClock;
    use crate::embedded::Embedded;
    use crate::handlers::StoreError;
    use crate::job::{AccountId, Cost, LedgerRow};
    use crate::ledger::{JobOrFault, Totals};
    use crate::queue::sqlite::SqliteQueue;
    use crate::transition::{Charge, Failure, charged, dispatch, failure, hand_over_done};

    fn sound(id: &str) -> Job {
        let charge = Charge {
            job_id: JobId::new(id).unwrap(),
            account_id: AccountId::new("a").unwrap(),
            cost: Cost::new(40).unwrap(),
            max_attempts: 5,
            replayed: false,
        };
        charged(&charge, Timestamp::from_millis(0))
    }

    fn broken(id: &str) -> Job {
        Job { net: -39, ..sound(id) }
    }

    /// Its first attempt failed, and the retry has long been due.
    fn waiting(id: &str) -> Job {
        let signal = Failure {
            attempt: Some(1),
            retryable: true,
            reason: None,
            event_id: None,
            trace: None,
            delays: RetryPolicy::default().delays(Roll::FULL),
        };
        failure(&sound(id), &signal, Timestamp::from_millis(0)).after.unwrap()
    }

    /// A ledger in which a job may look otherwise the second time.
    struct Moving {
        first: Vec<Job>,
        second: fn(&str) -> Option<Job>,
    }

    impl LedgerReader for Moving {
        async fn job(&self, job_id: &JobId) -> Result<Option<Job>, LedgerError> {
            Ok((self.second)(job_id.as_str()))
        }

        async fn jobs(
            &self,
            phase: Option<Phase>,
            after: Option<&str>,
            limit: usize,
        ) -> Result<Vec<(String, JobOrFault)>, LedgerError> {
            let behind = self.first.iter().filter(|job| {
                after.is_none_or(|after| job.job_id.as_str() > after) && phase.is_none_or(|p| p == job.phase)
            });
            Ok(behind.take(limit).map(|job| (job.job_id.as_str().to_owned(), Ok(job.clone()))).collect())
        }

        async fn balance(&self, _: &AccountId) -> Result<i64, LedgerError> {
            unreachable!("an audit asks for jobs only")
        }

        async fn statement(
            &self,
            _: &AccountId,
            _: Option<Timestamp>,
            _: &mut (dyn FnMut(LedgerRow) + Send),
        ) -> Result<(), LedgerError> {
            unreachable!("an audit asks for jobs only")
        }

        async fn totals(&self) -> Result<Totals, LedgerError> {
            unreachable!("an audit asks for jobs only")
        }

        async fn any_live_job(&self) -> Result<Option<String>, LedgerError> {
            unreachable!("an audit asks for jobs only")
        }
    }

    #[derive(Default)]
    struct Told(Vec<String>);

    impl Listener for Told {
        type Error = StoreError;

        fn violation(&mut self, job_id: &str, violation: &str) -> Result<(), StoreError> {
            self.0.push(format!("{job_id}: {violation}"));
            Ok(())
        }
    }

    async fn audited(ledger: &Moving, after: Option<&str>, deadline: Deadline) -> (Audited, Vec<String>) {
        let queue = SqliteQueue::new(Arc::new(Embedded::in_memory().unwrap()));
        let settings = AuditSettings {
            sweep_grace: Duration::ZERO,
            claim_timeout: Duration::ZERO,
            queues_replays: true,
        };
        let clock = VirtualClock::new(Timestamp::from_millis(1_000_000));
        let mut told = Told::default();
        let after = after.map(ToOwned::to_owned);
        let audited = audit(ledger, &queue, settings, &clock, after, deadline, &mut told).await.unwrap();
        (audited, told.0)
    }

    #[tokio::test]
    async fn what_is_right_on_the_second_look_is_no_violation() {
        let moving = Moving { first: vec![broken("j1"), sound("j2")], second: |id| Some(sound(id)) };
        let (audited, told) = audited(&moving, None, Deadline::NONE).await;
        assert_eq!(audited.counts, AuditCounts { jobs: 2, ..AuditCounts::default() });
        assert_eq!(told, Vec::<String>::new());
    }

    #[tokio::test]
    async fn what_is_wrong_twice_is_one_violation_and_so_is_a_job_that_is_gone() {
        let stays = Moving { first: vec![broken("j1")], second: |id| Some(broken(id)) };
        let (counted, told) = audited(&stays, None, Deadline::NONE).await;
        assert_eq!((counted.counts.violations, told.len()), (1, 1));
        assert_eq!(told[0], "j1: net is -39, but the entries add up to -40");
        let gone = Moving { first: vec![broken("j1")], second: |_| None };
        let (counted, told) = audited(&gone, None, Deadline::NONE).await;
        assert_eq!(counted.counts.violations, 1);
        assert!(told[0].contains("gone"), "{told:?}");
    }

    #[tokio::test]
    async fn a_retry_that_was_taken_up_between_two_looks_is_no_violation() {
        fn taken_up(id: &str) -> Option<Job> {
            let now = Timestamp::from_millis(1);
            let running = dispatch(&waiting(id), 1, false, now).after?;
            hand_over_done(&running, 1, now).after
        }
        let moving = Moving { first: vec![waiting("j")], second: taken_up };
        let (counted, told) = audited(&moving, None, Deadline::NONE).await;
        assert_eq!((counted.counts.retries, counted.counts.violations, told.len()), (1, 0, 0));
        let lost = Moving { first: vec![waiting("j")], second: |id| Some(waiting(id)) };
        assert_eq!(audited(&lost, None, Deadline::NONE).await.0.counts.violations, 1);
    }

    #[tokio::test]
    async fn an_audit_that_came_to_its_deadline_says_where_the_next_one_goes_on() {
        let first: Vec<Job> = (0..PAGE + 3).map(|number| broken(&format!("j{number:04}"))).collect();
        let ledger = Moving { first, second: |id| Some(broken(id)) };
        let at_once = Deadline::after(Duration::ZERO);
        let (one, _) = audited(&ledger, None, at_once).await;
        assert_eq!((one.counts.jobs, one.next.as_deref()), (500, Some("j0499")));
        let (two, told) = audited(&ledger, one.next.as_deref(), at_once).await;
        assert_eq!((two.counts.jobs, two.next), (3, None));
        assert!(told[0].starts_with("j0500: "), "the next one goes on behind it: {told:?}");
    }

    #[tokio::test]
    async fn jobs_that_were_set_aside_are_counted_over_all_pages() {
        let mut first: Vec<Job> = (0..PAGE + 3).map(|number| sound(&format!("j{number:04}"))).collect();
        for job in &mut first[1..] {
            job.phase = Phase::DeadLettered;
        }
        let ledger = Moving { first, second: |_| None };
        assert_eq!(dead_lettered(&ledger).await.unwrap(), 502);
    }
}
