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
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;
use serde::{Deserialize, Serialize};

use super::failed::{PUSH_TIMEOUT, waiting_retry};
use crate::backoff::{RetryPolicy, Roll};
use crate::clock::{Clock, Deadline};
use crate::dispatch::{Dispatch, Target};
use crate::job::{Job, JobId};
use crate::ledger::{Cursor, Found, Ledger, LedgerError, Outstanding};
use crate::queue::entry::{malformed, parse_member};
use crate::queue::{
    Claim, DeadJob, DeadLetter, DispatchMessage, Intake, List, MAX_EXPIRED_CLAIMS, NewEntry, QueueError,
    RetryEntry, RetryQueue, parse_entry,
};
use crate::transition::{DispatchOutcome, ExhaustedOutcome, SilenceOutcome};

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

/// Why a drain stopped short. Nothing is lost by it: claims are given back or run out.
#[derive(Debug, thiserror::Error)]
pub enum DrainError {
    /// The ledger.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The queue.
    #[error(transparent)]
    Queue(#[from] QueueError),
}

/// Runs one pass, which ends before `deadline`.
///
/// An entry that cannot be taken up is given back and logged, and the others go on; a ledger or a queue that is out
/// of reach ends the pass.
///
/// # Errors
/// [`DrainError`] where the ledger or the queue could not be reached.
pub async fn drain<L: Ledger, Q: RetryQueue, D: Dispatch, C: Clock>(
    ledger: &L,
    queue: &Q,
    target: &Target<D>,
    settings: &DrainSettings,
    clock: &C,
    deadline: Deadline,
) -> Result<DrainCounts, DrainError> {
    let left = deadline.left();
    let stop = deadline.sooner(RESERVE.min(left / 4));
    let end = deadline.sooner(LAST_WORDS.min(left / 10));
    let mut pass = Pass { ledger, queue, target, settings, clock, stop, end, counts: DrainCounts::default() };
    let result = pass.run().await;
    let counts = pass.counts;
    match result {
        Ok(()) => Ok(counts),
        Err(error) => {
            tracing::error!(%error, ?counts, "the drain stopped short; the next one goes on");
            Err(error)
        }
    }
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
}

/// Where the sweep goes on, by kind of job.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
struct SweepCursor {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    overdue: Option<Cursor>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    open: Option<Cursor>,
}

/// What a claimed entry turned out to be, once the ledger has decided.
enum TakenUp {
    Work(DispatchMessage),
    SetAside(DeadLetter),
    Junk(DeadLetter),
    Unwanted,
    /// The claims that ran out were made before a person sent the job back: start afresh.
    Afresh,
}

/// An entry that was not taken up, and why.
enum Setback {
    /// The pass ran out of time, or what it needs is out of reach: the entry was not started, or not finished.
    NotStarted,
    Ledger(LedgerError),
    Queue(QueueError),
    Target(String),
}

/// What became of work that was pushed.
enum Handed {
    /// The workers have it; something after the push may have failed.
    Over(Option<Setback>),
    /// The claim ran out meanwhile, and is another drain's to finish.
    ToAnother,
    /// Not yet.
    Not(Setback),
}

impl<L: Ledger, Q: RetryQueue, D: Dispatch, C: Clock> Pass<'_, L, Q, D, C> {
    async fn run(&mut self) -> Result<(), DrainError> {
        self.fail_silent_attempts().await?;
        let list_is_empty = self.take_in().await?;
        self.sweep(list_is_empty).await?;
        self.take_up_due().await?;
        self.take_up_expired().await
    }

    async fn fail_silent_attempts(&mut self) -> Result<(), DrainError> {
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
    ) -> Result<Vec<RetryEntry>, DrainError> {
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
    async fn push_all(&self, retries: &[RetryEntry]) {
        let pushes = stream::iter(retries)
            .map(|entry| self.queue.push(entry))
            .buffer_unordered(CONCURRENCY)
            .filter(|pushed| std::future::ready(pushed.is_err()))
            .count();
        match Deadline::after(PUSH_TIMEOUT).bound(pushes).await {
            Some(0) => {}
            Some(_) | None => tracing::warn!(
                metric = "retry_push_failed",
                "some retries of silent attempts were not queued; the sweep will find them"
            ),
        }
    }

    /// Parks what is new. True: the list was seen empty.
    async fn take_in(&mut self) -> Result<bool, DrainError> {
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
    async fn judge(&self, raw: Vec<Vec<u8>>) -> Result<Vec<NewEntry>, DrainError> {
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
    async fn sweep(&mut self, list_is_empty: bool) -> Result<(), DrainError> {
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
    ) -> Result<(), DrainError> {
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
        let swept = self.queue.park_missing(&entries).await?;
        if swept > 0 {
            tracing::warn!(swept, ?kind, "jobs waited without an entry in the queue; they have one again");
        }
        self.counts.swept += swept as u64;
        Ok(())
    }

    async fn take_up_due(&mut self) -> Result<(), DrainError> {
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
    async fn take_up_expired(&mut self) -> Result<(), DrainError> {
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

    /// Takes up these claims. Each ends handed over, dropped, or given back.
    async fn take_up(&mut self, claims: Vec<Claim>) -> Result<(), DrainError> {
        let mut decided = Vec::with_capacity(claims.len());
        let mut set_back = Vec::new();
        let mut out_of_reach = None;
        // One entry that waited for a ledger out of reach is enough: the others are not started.
        let ledger_is_gone = AtomicBool::new(false);
        let mut decisions = stream::iter(claims)
            .map(|claim| async {
                let decision = if self.stop.passed() || ledger_is_gone.load(Ordering::Relaxed) {
                    Err(Setback::NotStarted)
                } else {
                    self.stop.bound(self.decide(&claim)).await.unwrap_or(Err(Setback::NotStarted))
                };
                (claim, decision)
            })
            .buffer_unordered(CONCURRENCY);
        while let Some((claim, decision)) = decisions.next().await {
            match decision {
                Ok(taken_up) => decided.push((claim, taken_up)),
                Err(setback) => {
                    if matches!(&setback, Setback::Ledger(error) if error.is_unavailable()) {
                        ledger_is_gone.store(true, Ordering::Relaxed);
                    }
                    set_back.push((claim, setback));
                }
            }
        }
        drop(decisions);

        let (work, others): (Vec<_>, Vec<_>) =
            decided.into_iter().partition(|(_, taken_up)| matches!(taken_up, TakenUp::Work(_)));
        set_back.extend(self.settle_others(others).await);
        set_back.extend(self.hand_over_work(work).await);

        for (claim, setback) in set_back {
            if let Some(error) = self.give_back(&claim, setback).await {
                out_of_reach.get_or_insert(error);
            }
        }
        out_of_reach.map_or(Ok(()), Err)
    }

    async fn decide(&self, claim: &Claim) -> Result<TakenUp, Setback> {
        let (job_id, attempts) = match parse_member(&claim.member) {
            Ok(parsed) => parsed,
            Err(error) => {
                tracing::error!(%error, "a parked entry is malformed; it is kept for a person");
                return Ok(TakenUp::Junk(malformed(&claim.member)));
            }
        };
        if claim.expired_claims >= MAX_EXPIRED_CLAIMS {
            return self.decide_exhausted(&job_id, attempts, claim).await;
        }
        let ran_out = claim.expired_claims > 0;
        let Some(applied) = self
            .ledger
            .dispatch(&job_id, attempts, ran_out, self.clock.now())
            .await
            .map_err(Setback::Ledger)?
        else {
            tracing::warn!(%job_id, attempts, "a retry of a job that the ledger does not know is dropped");
            return Ok(TakenUp::Unwanted);
        };
        Ok(match applied.outcome {
            DispatchOutcome::Dispatched | DispatchOutcome::HandOverOpen => TakenUp::Work(DispatchMessage {
                job_id,
                account_id: applied.job.account_id,
                attempt: attempts.saturating_add(1),
            }),
            DispatchOutcome::DeadLettered | DispatchOutcome::DeadLetterOpen => {
                TakenUp::SetAside(dead_letter(applied.job))
            }
            DispatchOutcome::Stale => TakenUp::Unwanted,
        })
    }

    async fn decide_exhausted(
        &self,
        job_id: &JobId,
        attempts: u32,
        claim: &Claim,
    ) -> Result<TakenUp, Setback> {
        let applied = self
            .ledger
            .claims_exhausted(job_id, attempts, claim.first_claim, self.clock.now())
            .await
            .map_err(Setback::Ledger)?;
        let Some(applied) = applied else { return Ok(TakenUp::Unwanted) };
        Ok(match applied.outcome {
            ExhaustedOutcome::DeadLettered | ExhaustedOutcome::DeadLetterOpen => {
                tracing::error!(%job_id, attempts, "whoever took up this retry died; the job is set aside");
                TakenUp::SetAside(DeadLetter::ClaimsExhausted(dead_job(applied.job)))
            }
            ExhaustedOutcome::Redriven => TakenUp::Afresh,
            ExhaustedOutcome::Stale => TakenUp::Unwanted,
        })
    }

    /// Lets go of everything but work, and counts it.
    async fn settle_others(&mut self, others: Vec<(Claim, TakenUp)>) -> Vec<(Claim, Setback)> {
        let settled: Vec<_> = stream::iter(others)
            .map(|(claim, taken_up)| async {
                let ours = match &taken_up {
                    TakenUp::SetAside(letter) | TakenUp::Junk(letter) => {
                        self.queue.hand_over(&claim, List::DeadLetter, &letter.to_json()).await
                    }
                    TakenUp::Unwanted => self.queue.acknowledge(&claim).await,
                    TakenUp::Afresh => self.queue.give_back(&claim, self.clock.now()).await,
                    TakenUp::Work(_) => unreachable!("work is handed over apart from the others"),
                };
                (claim, taken_up, ours)
            })
            .buffer_unordered(CONCURRENCY)
            .collect()
            .await;
        let mut set_back = Vec::new();
        for (claim, taken_up, ours) in settled {
            match ours {
                Ok(true) => match taken_up {
                    TakenUp::SetAside(_) => self.counts.dead_lettered += 1,
                    TakenUp::Junk(_) => self.counts.malformed += 1,
                    TakenUp::Unwanted => self.counts.dropped += 1,
                    TakenUp::Afresh | TakenUp::Work(_) => {}
                },
                // The claim ran out meanwhile, and is another drain's to settle.
                Ok(false) => {}
                // Given back, the entry would come again as one whose claim never ran out, and the letter of a job that
                // is dead_lettered already would be dropped as stale. So this claim is left to run out.
                Err(error) if matches!(taken_up, TakenUp::SetAside(_)) => {
                    tracing::warn!(%error, "a dead letter was not handed over; the claim that runs out will");
                }
                Err(error) => set_back.push((claim, Setback::Queue(error))),
            }
        }
        set_back
    }

    /// Hands work to the workers: push, note in the ledger, let go of the claim.
    async fn hand_over_work(&mut self, work: Vec<(Claim, TakenUp)>) -> Vec<(Claim, Setback)> {
        let work: Vec<(Claim, DispatchMessage)> = work
            .into_iter()
            .filter_map(|(claim, taken_up)| match taken_up {
                TakenUp::Work(message) => Some((claim, message)),
                TakenUp::SetAside(_) | TakenUp::Junk(_) | TakenUp::Unwanted | TakenUp::Afresh => None,
            })
            .collect();
        let pushed = self.push_outside(work).await;
        let results: Vec<_> = stream::iter(pushed)
            .map(|(claim, message, pushed)| async {
                let done = match pushed {
                    Ok(()) => self.finish_hand_over(&claim, &message).await,
                    Err(setback) => Handed::Not(setback),
                };
                (claim, message, done)
            })
            .buffer_unordered(CONCURRENCY)
            .collect()
            .await;
        let mut set_back = Vec::new();
        for (claim, message, done) in results {
            match done {
                Handed::Over(setback) => {
                    self.counts.dispatched += 1;
                    tracing::info!(job_id = %message.job_id, attempt = message.attempt, "dispatched");
                    set_back.extend(setback.map(|setback| (claim, setback)));
                }
                Handed::ToAnother => {}
                Handed::Not(setback) => set_back.push((claim, setback)),
            }
        }
        set_back
    }

    /// The push, where the target lies outside the queue.
    async fn push_outside(
        &self,
        work: Vec<(Claim, DispatchMessage)>,
    ) -> Vec<(Claim, DispatchMessage, Result<(), Setback>)> {
        let answers: Vec<Result<(), Setback>> = match self.target {
            Target::Outside(dispatch) if !work.is_empty() => {
                let messages: Vec<DispatchMessage> =
                    work.iter().map(|(_, message)| message.clone()).collect();
                match self.stop.bound(dispatch.send(&messages)).await {
                    Some(answers) => answers
                        .into_iter()
                        .map(|sent| sent.map_err(|e| Setback::Target(e.to_string())))
                        .collect(),
                    None => work.iter().map(|_| Err(Setback::NotStarted)).collect(),
                }
            }
            Target::Outside(_) | Target::ReadyList | Target::Nowhere => work.iter().map(|_| Ok(())).collect(),
        };
        work.into_iter().zip(answers).map(|((claim, message), pushed)| (claim, message, pushed)).collect()
    }

    async fn finish_hand_over(&self, claim: &Claim, message: &DispatchMessage) -> Handed {
        let attempts = message.attempt.saturating_sub(1);
        match self.target {
            // Push and acknowledgement are one script; what remains is the note, and the sweep makes up for that.
            Target::ReadyList => {
                let json = serde_json::to_string(message).expect("strings and a number are always JSON");
                match self.queue.hand_over(claim, List::Ready, &json).await {
                    Ok(true) => Handed::Over(self.note_hand_over(&message.job_id, attempts).await.err()),
                    Ok(false) => Handed::ToAnother,
                    Err(error) => Handed::Not(Setback::Queue(error)),
                }
            }
            Target::Outside(_) | Target::Nowhere => {
                if let Err(setback) = self.note_hand_over(&message.job_id, attempts).await {
                    return Handed::Not(setback);
                }
                // The worker has it. If the claim is not let go of, its next holder finds nothing left to do.
                Handed::Over(self.queue.acknowledge(claim).await.err().map(Setback::Queue))
            }
        }
    }

    async fn note_hand_over(&self, job_id: &JobId, attempts: u32) -> Result<(), Setback> {
        // Where nothing was open, a signal of the attempt was faster than this note, which is as good.
        let note = self.ledger.hand_over_done(job_id, attempts, self.clock.now());
        match self.end.bound(note).await {
            Some(noted) => noted.map(|_| ()).map_err(Setback::Ledger),
            None => Err(Setback::NotStarted),
        }
    }

    /// Gives the claim back, uncounted, and says whether the reason ends the pass.
    async fn give_back(&self, claim: &Claim, setback: Setback) -> Option<DrainError> {
        let due = self.clock.now().plus(self.settings.claim_timeout);
        let given_back = self.queue.give_back(claim, due).await;
        let member = String::from_utf8_lossy(&claim.member);
        if let Err(error) = &given_back {
            tracing::warn!(%member, %error, "a claim could not be given back; it runs out by itself");
        }
        match setback {
            Setback::NotStarted => {
                tracing::info!(%member, "no time left for this entry; the next drain takes it");
                given_back.err().map(DrainError::Queue)
            }
            Setback::Ledger(error) => {
                tracing::error!(%member, %error, "an entry was given back");
                error.is_unavailable().then_some(DrainError::Ledger(error))
            }
            Setback::Queue(error) => {
                tracing::error!(%member, %error, "an entry was given back");
                Some(DrainError::Queue(error))
            }
            Setback::Target(error) => {
                tracing::error!(%member, %error, metric = "hand_over_failed", "an entry was given back");
                given_back.err().map(DrainError::Queue)
            }
        }
    }
}

/// The letter of a job whose dead-lettering is known by its phase only.
fn dead_letter(job: Job) -> DeadLetter {
    if job.attempts >= job.max_attempts {
        DeadLetter::AttemptsExhausted(dead_job(job))
    } else {
        DeadLetter::ClaimsExhausted(dead_job(job))
    }
}

fn dead_job(job: Job) -> DeadJob {
    DeadJob {
        job_id: job.job_id,
        account_id: job.account_id,
        attempts: job.attempts,
        last_error: job.last_error,
        at: job.updated_at,
    }
}
