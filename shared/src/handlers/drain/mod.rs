//! A drain: one pass of the retry scheduler.
//!
//! ```text
//!  silence   attempts without a signal become failures       (ledger only: Redis being down must not delay a refund)
//!  intake    new entries of the list are parked, or kept for a person where they are none
//!  sweep     jobs that wait without an entry get one
//!  due       entries whose time has come are claimed by the page, and taken up
//!  expired   claims that ran out are taken again, one at a time
//! ```
//!
//! The intake comes before the sweep so that what merely stands in a long list is not taken for lost. What is due
//! comes before what ran out, so that an entry which kills this process costs the others no drain.
//!
//! Taking up an entry is three steps, each harmless to repeat: the guarded write in the ledger (running, or
//! dead-lettered), the hand-over, the note that it happened. Between any two of them the process may die; the claim
//! then runs out, or the sweep finds the job, and whoever comes next finishes what is open.
//!
//! Every step has a bound in items, and the whole pass one in time; what is left is taken by the next pass. The cost
//! follows what is new and what is due: some 2 round trips to the queue and 1 to the ledger for a page of new
//! entries, 2 and 2 for each due entry, 10 of them at a time.

use std::ops::AddAssign;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;
use serde::{Deserialize, Serialize};

use super::StoreError;
use super::failed::{PUSH_TIMEOUT, waiting_retry};
use crate::backoff::{RetryPolicy, Roll};
use crate::clock::{Clock, Deadline, roll};
use crate::config::Settings;
use crate::dispatch::{Dispatch, Target};
use crate::job::JobId;
use crate::ledger::{Cursor, Found, Ledger, Outstanding};
use crate::metrics;
use crate::queue::entry::malformed;
use crate::queue::{Intake, NewEntry, RetryEntry, RetryQueue, parse_entry};
use crate::transition::SilenceOutcome;

mod take_up;

/// Writes in flight at once: what the driver's small pool carries.
const CONCURRENCY: usize = 10;
/// New entries looked at in one call: some 100 bytes each.
const INTAKE_PAGE: usize = 500;
/// New entries taken in by one pass.
const INTAKE_MAX: usize = 10_000;
/// Jobs that one pass reads of each kind the sweep looks for.
const SWEEP_PAGE: usize = 500;
/// Silent attempts looked for in one call.
const SILENCE_PAGE: usize = 100;
/// Calls for silent attempts of a kind in one pass.
const SILENCE_PAGES: usize = 10;
/// Entries claimed in one call: what a pass can take up well within the claim timeout.
const CLAIM_PAGE: usize = 100;
/// Due entries taken up by one pass.
const DUE_MAX: usize = 1_000;
/// Claims that ran out taken up by one pass.
const EXPIRED_MAX: usize = 100;
/// Kept free before the deadline, to give back the claims that were not started.
const RESERVE: Duration = Duration::from_secs(1);
/// Of which this is for the answer itself.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// What a drain goes by.
#[derive(Clone, Debug)]
pub struct DrainSettings {
    /// The retry schedule, for attempts that fail by silence.
    pub policy: RetryPolicy,
    /// How long a claim holds.
    pub claim_timeout: Duration,
    /// How long after its time a retry may be missing from the queue before the sweep queues it.
    pub sweep_grace: Duration,
    /// How long an attempt may be silent; `None`: for ever.
    pub attempt_timeout: Option<Duration>,
    /// Where randomness comes from.
    pub roll: fn() -> Roll,
}

impl From<&Settings> for DrainSettings {
    /// As the environment has them, with the system's randomness.
    fn from(settings: &Settings) -> Self {
        Self {
            policy: settings.retry,
            claim_timeout: settings.claim_timeout,
            sweep_grace: settings.sweep_grace,
            attempt_timeout: settings.attempt_timeout,
            roll,
        }
    }
}

/// What a drain did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DrainCounts {
    /// Retries handed to the workers.
    pub dispatched: u64,
    /// New entries that wait for their time.
    pub parked: u64,
    /// Jobs set aside for a person.
    pub dead_lettered: u64,
    /// Entries that were no longer wanted.
    pub dropped: u64,
    /// Claims that ran out and were taken again.
    pub recovered: u64,
    /// Entries that were none, kept for a person.
    pub malformed: u64,
    /// Entries that the sweep put back.
    pub swept: u64,
    /// Attempts that failed by silence.
    pub timed_out: u64,
}

impl DrainCounts {
    fn to_metrics(self) {
        for (metric, count) in [
            (metrics::DISPATCHED, self.dispatched),
            (metrics::PARKED, self.parked),
            (metrics::DEAD_LETTERED, self.dead_lettered),
            (metrics::DROPPED, self.dropped),
            (metrics::RECOVERED, self.recovered),
            (metrics::MALFORMED, self.malformed),
            (metrics::SWEPT, self.swept),
            (metrics::TIMED_OUT, self.timed_out),
        ] {
            metric.count(count);
        }
    }
}

impl AddAssign for DrainCounts {
    fn add_assign(&mut self, other: Self) {
        self.dispatched += other.dispatched;
        self.parked += other.parked;
        self.dead_lettered += other.dead_lettered;
        self.dropped += other.dropped;
        self.recovered += other.recovered;
        self.malformed += other.malformed;
        self.swept += other.swept;
        self.timed_out += other.timed_out;
    }
}

/// Runs one pass, which ends before `deadline`.
///
/// An entry that cannot be taken up is given back and logged, and the others go on; a ledger or a queue that is out
/// of reach ends the pass.
///
/// # Errors
/// [`StoreError`] where the ledger or the queue could not be reached. Nothing is lost by it: claims are given back or
/// run out.
pub async fn drain<L: Ledger, Q: RetryQueue, D: Dispatch, C: Clock>(
    ledger: &L,
    queue: &Q,
    target: &Target<D>,
    settings: &DrainSettings,
    clock: &C,
    deadline: Deadline,
) -> Result<DrainCounts, StoreError> {
    let left = deadline.left();
    let stop = deadline.sooner(RESERVE.min(left / 4));
    let end = deadline.sooner(LAST_WORDS.min(left / 10));
    let mut pass = Pass {
        ledger,
        queue,
        target,
        settings,
        clock,
        stop,
        end,
        counts: DrainCounts::default(),
        pushes_hang: false,
    };
    let result = pass.run().await;
    let counts = pass.counts;
    counts.to_metrics();
    match result {
        Ok(()) => {
            metrics::DRAINS_FINISHED.count(1);
            Ok(counts)
        }
        Err(error) => {
            tracing::error!(%error, ?counts, "the drain stopped short; the next one goes on");
            Err(error)
        }
    }
}

/// Measures what stands in the queue, and how long the oldest due retry has waited for its hand-over, begun or
/// not: what a drain that keeps up leaves near zero.
///
/// # Errors
/// [`StoreError`] where the ledger or the queue could not be reached.
pub async fn measure_backlog(
    ledger: &impl Ledger,
    queue: &impl RetryQueue,
    clock: &impl Clock,
) -> Result<(), StoreError> {
    let depths = queue.depths().await?;
    metrics::RETRY_LIST_DEPTH.sample(depths.retry);
    metrics::PARKED_DEPTH.sample(depths.parked);
    metrics::IN_FLIGHT_DEPTH.sample(depths.in_flight);
    metrics::READY_DEPTH.sample(depths.ready);
    metrics::DEAD_LETTER_LIST_DEPTH.sample(depths.dead_letter);
    let now = clock.now();
    let mut oldest = now;
    for kind in [Outstanding::OverdueRetry, Outstanding::OpenHandOver] {
        let found = ledger.outstanding(kind, now, None, 1).await?;
        oldest = found.first().map_or(oldest, |found| oldest.min(found.at));
    }
    let waited_ms = now.as_millis() - oldest.as_millis();
    metrics::OLDEST_DUE_RETRY_AGE.sample(waited_ms.unsigned_abs() / 1_000);
    Ok(())
}

struct Pass<'a, L, Q, D, C> {
    ledger: &'a L,
    queue: &'a Q,
    target: &'a Target<D>,
    settings: &'a DrainSettings,
    clock: &'a C,
    /// Nothing new is started after this.
    stop: Deadline,
    /// Nothing is waited for after this.
    end: Deadline,
    counts: DrainCounts,
    /// A push went without its answer: the queue is not waited for again for a push that the sweep makes up for.
    pushes_hang: bool,
}

/// Where the sweep goes on, by kind of job.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
struct SweepCursor {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    overdue: Option<Cursor>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    open: Option<Cursor>,
}

impl<L: Ledger, Q: RetryQueue, D: Dispatch, C: Clock> Pass<'_, L, Q, D, C> {
    async fn run(&mut self) -> Result<(), StoreError> {
        self.fail_silent_attempts().await?;
        let list_is_empty = self.take_in().await?;
        self.sweep(list_is_empty).await?;
        self.take_up_due().await?;
        self.take_up_expired().await
    }

    async fn fail_silent_attempts(&mut self) -> Result<(), StoreError> {
        let Some(timeout) = self.settings.attempt_timeout else { return Ok(()) };
        for kind in [Outstanding::SilentFirstAttempt, Outstanding::SilentRetry] {
            let mut after = None;
            for _ in 0..SILENCE_PAGES {
                if self.stop.passed() {
                    return Ok(());
                }
                let until = self.clock.now().minus(timeout);
                let page = self.ledger.outstanding(kind, until, after.as_ref(), SILENCE_PAGE).await?;
                after = page.last().map(Found::cursor);
                let full = page.len() == SILENCE_PAGE;
                let failed = self.fail_page(page, timeout).await?;
                self.push_all(&failed).await;
                if !full {
                    break;
                }
            }
        }
        Ok(())
    }

    async fn fail_page(
        &mut self,
        page: Vec<Found>,
        timeout: Duration,
    ) -> Result<Vec<RetryEntry>, StoreError> {
        let delays = self.settings.policy.delays((self.settings.roll)());
        let results: Vec<_> = stream::iter(&page)
            .map(|found| {
                let k = found.attempts.saturating_add(1);
                self.ledger.no_signal(&found.job_id, k, timeout, &delays, self.clock.now())
            })
            .buffer_unordered(CONCURRENCY)
            .collect()
            .await;
        let mut retries = Vec::new();
        for result in results {
            match result {
                Ok(applied) => match applied.outcome {
                    SilenceOutcome::Refunded | SilenceOutcome::FailureRecorded => {
                        self.counts.timed_out += 1;
                        if applied.outcome == SilenceOutcome::Refunded {
                            metrics::CREDITS_REFUNDED.count(applied.job.cost.credits().unsigned_abs());
                        }
                        tracing::warn!(
                            job_id = %applied.job.job_id, attempt = applied.job.attempts,
                            "no signal within the attempt timeout; the attempt counts as failed"
                        );
                        retries.extend(waiting_retry(&applied.job));
                    }
                    SilenceOutcome::NotSilent => {}
                },
                Err(error) if error.is_unavailable() => return Err(error.into()),
                Err(error) => tracing::error!(%error, "a silent attempt could not be counted as failed"),
            }
        }
        Ok(retries)
    }

    /// As best effort as after any failure: the sweep is the guarantee.
    async fn push_all(&mut self, retries: &[RetryEntry]) {
        if self.pushes_hang || retries.is_empty() {
            return;
        }
        let pushes = stream::iter(retries)
            .map(|entry| self.queue.push(entry))
            .buffer_unordered(CONCURRENCY)
            .filter(|pushed| std::future::ready(pushed.is_err()))
            .count();
        match Deadline::after(PUSH_TIMEOUT).bound(pushes).await {
            Some(0) => {}
            failed @ (Some(_) | None) => {
                self.pushes_hang = failed.is_none();
                let failed = failed.unwrap_or(retries.len());
                metrics::RETRY_PUSH_FAILED.count(failed as u64);
                tracing::warn!(
                    failed,
                    "retries of silent attempts were not queued in time; the sweep will find them"
                );
            }
        }
    }

    /// Parks what is new. True: the list was seen empty.
    async fn take_in(&mut self) -> Result<bool, StoreError> {
        let mut taken_in = 0;
        while taken_in < INTAKE_MAX && !self.stop.passed() {
            let raw = self.queue.look_at_new(INTAKE_PAGE).await?;
            if raw.is_empty() {
                return Ok(true);
            }
            let entries = self.judge(raw).await?;
            let now = self.clock.now();
            let taken = self.queue.take_new(&entries).await?;
            for entry in entries.iter().take(taken) {
                match &entry.intake {
                    Intake::Park(parked) if parked.not_before > now => self.counts.parked += 1,
                    Intake::Park(_) => {}
                    Intake::Malformed(_) => self.counts.malformed += 1,
                }
            }
            // Another drain took the head first; it is at work on the rest of the list too.
            taken_in += taken.max(1);
        }
        Ok(false)
    }

    /// Says what to do with each new entry. A job at its cap is dead-lettered at once, so its entry is due now.
    async fn judge(&self, raw: Vec<Vec<u8>>) -> Result<Vec<NewEntry>, StoreError> {
        let now = self.clock.now();
        let parsed: Vec<_> = raw.iter().map(|raw| parse_entry(raw)).collect();
        let not_due: Vec<(JobId, u32)> = parsed
            .iter()
            .flatten()
            .filter(|entry| entry.not_before > now)
            .map(|entry| (entry.job_id.clone(), entry.attempts))
            .collect();
        let at_cap =
            if not_due.is_empty() { Default::default() } else { self.ledger.at_cap(&not_due).await? };
        Ok(raw
            .into_iter()
            .zip(parsed)
            .map(|(raw, parsed)| {
                let intake = match parsed {
                    Ok(mut entry) => {
                        if at_cap.contains(&(entry.job_id.clone(), entry.attempts)) {
                            entry.not_before = now;
                        }
                        Intake::Park(entry)
                    }
                    Err(error) => {
                        tracing::error!(%error, bytes = raw.len(), "a new entry is malformed; it is kept for a person");
                        Intake::Malformed(malformed(&raw).to_json())
                    }
                };
                NewEntry { raw, intake }
            })
            .collect())
    }

    /// Queues the jobs that wait without an entry: one page of each kind, the next where the last ended.
    ///
    /// While the list is not empty, an overdue job's entry may stand in it, and looking through the list would cost
    /// what the list is long; so overdue jobs are looked for only once the list was seen empty.
    async fn sweep(&mut self, list_is_empty: bool) -> Result<(), StoreError> {
        if self.stop.passed() {
            return Ok(());
        }
        let kept = self.queue.sweep_cursor().await?;
        let mut cursor: SweepCursor =
            kept.as_deref().and_then(|kept| serde_json::from_str(kept).ok()).unwrap_or_default();
        let before = cursor.clone();
        let grace = self.settings.sweep_grace;
        if list_is_empty {
            self.sweep_kind(Outstanding::OverdueRetry, grace, &mut cursor.overdue).await?;
        }
        let grace = self.settings.claim_timeout.saturating_add(grace);
        self.sweep_kind(Outstanding::OpenHandOver, grace, &mut cursor.open).await?;
        if cursor != before {
            let text = serde_json::to_string(&cursor).expect("strings and numbers are always JSON");
            self.queue.keep_sweep_cursor(&text).await?;
        }
        Ok(())
    }

    async fn sweep_kind(
        &mut self,
        kind: Outstanding,
        grace: Duration,
        cursor: &mut Option<Cursor>,
    ) -> Result<(), StoreError> {
        let until = self.clock.now().minus(grace);
        let page = self.ledger.outstanding(kind, until, cursor.as_ref(), SWEEP_PAGE).await?;
        *cursor = if page.len() == SWEEP_PAGE { page.last().map(Found::cursor) } else { None };
        if page.is_empty() {
            return Ok(());
        }
        let entries: Vec<RetryEntry> = page
            .into_iter()
            .map(|found| RetryEntry { job_id: found.job_id, attempts: found.attempts, not_before: found.at })
            .collect();
        let given_back = self.clock.now().plus(self.settings.claim_timeout);
        let swept = self.queue.park_missing(&entries, given_back).await?;
        if swept > 0 {
            tracing::warn!(swept, ?kind, "jobs waited without an entry in the queue; they have one again");
        }
        self.counts.swept += swept as u64;
        Ok(())
    }

    async fn take_up_due(&mut self) -> Result<(), StoreError> {
        let mut taken = 0;
        while taken < DUE_MAX && !self.stop.passed() {
            let timeout = self.settings.claim_timeout;
            let claims = self.queue.claim_due(self.clock.now(), timeout, CLAIM_PAGE).await?;
            if claims.is_empty() {
                break;
            }
            taken += claims.len();
            self.take_up(claims).await?;
        }
        Ok(())
    }

    /// One at a time: an entry that kills whoever takes it up must take no neighbour along.
    async fn take_up_expired(&mut self) -> Result<(), StoreError> {
        for _ in 0..EXPIRED_MAX {
            if self.stop.passed() {
                break;
            }
            let timeout = self.settings.claim_timeout;
            let Some(claim) = self.queue.claim_expired(self.clock.now(), timeout).await? else { break };
            self.counts.recovered += 1;
            tracing::warn!(
                member = %String::from_utf8_lossy(&claim.member), expired_claims = claim.expired_claims,
                "a claim ran out without an answer; it is taken again"
            );
            self.take_up(vec![claim]).await?;
        }
        Ok(())
    }
}
