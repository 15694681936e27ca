//! What every command does to a job in every state: the rules, at one place, pure and total.
//!
//! | command | running | retry_waiting | dead_lettered | failed | delivered |
//! | --- | --- | --- | --- | --- | --- |
//! | failure of attempt k > attempts | **refund**, wait or fail | count, wait or fail | count, stays | count, stays | `already_delivered` |
//! | failure of attempt k <= attempts | `duplicate` | `duplicate`; a first final verdict of attempts = k fails it | `duplicate` | `duplicate` | `already_delivered` |
//! | failure, attempt unknown, new id | **refund**, wait or fail | `duplicate`; a first final verdict fails it | `duplicate` | `duplicate` | `already_delivered` |
//! | success | deliver, **reclaim** if refunded | deliver, **reclaim** | deliver, **reclaim** | deliver, **reclaim** | `duplicate` |
//! | dispatch after k | finish a hand-over that is open | run, or dead-letter at the cap | stale (finish, for a claim that ran out) | stale | stale |
//! | hand-over done | note the time | no | no | no | no |
//! | claims exhausted | dead-letter while the hand-over is open | dead-letter | stale (finish) | stale | stale |
//! | no signal | count as the failure of the attempt | no | no | no | no |
//! | redrive | refused | refused | wait, due now | wait, due now | refused |
//!
//! A refund is written with the first counted failure, whatever the phase it leads to; money moves nowhere else but
//! in the two bold words. Each function takes the job as it stands and gives back what the command answers, and the
//! job as it stands afterwards where the command writes at all.
//!
//! The embedded store runs these functions inside its write transaction. The MongoDB store writes the same rules as
//! filters (`ledger/mongo/guards.rs`), which is the only other place where they are spelled out; the conformance
//! suite holds the two together on random sequences of commands.

use std::time::Duration;

use crate::backoff::Delays;
use crate::clock::Timestamp;
use crate::job::{
    AccountId, COUNTED_EVENTS_KEPT, Cost, Entry, EntryType, EventId, Job, JobId, LastError, MAX_ATTEMPT,
    Phase,
};
use crate::trace::TraceContext;

/// What a command answers, and the job afterwards where it wrote something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step<O> {
    /// The answer.
    pub outcome: O,
    /// The job as the command leaves it; `None` where no guard held and nothing is written.
    pub after: Option<Job>,
}

impl<O> Step<O> {
    fn wrote(outcome: O, after: Job) -> Self {
        Self { outcome, after: Some(after) }
    }

    fn refused(outcome: O) -> Self {
        Self { outcome, after: None }
    }
}

/// A charge: the job as it is taken on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Charge {
    /// One unit of metered work.
    pub job_id: JobId,
    /// Who pays.
    pub account_id: AccountId,
    /// What it costs.
    pub cost: Cost,
    /// The policy's cap of now, written on the job.
    pub max_attempts: u32,
    /// Whether a replay makes it.
    pub replayed: bool,
}

/// What a charge does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChargeOutcome {
    /// The job is there now, with its charge entry.
    Charged,
    /// The job was there already, with the same account and cost.
    Duplicate,
    /// The job was there already, with another account or cost.
    Conflict,
}

/// A failure signal, as the guard sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// The attempt that failed, where the signal says which.
    pub attempt: Option<u32>,
    /// Whether another attempt can mend it.
    pub retryable: bool,
    /// Why, in the reporter's words, cut to length.
    pub reason: Option<String>,
    /// The signal's id; one without matches none.
    pub event_id: Option<EventId>,
    /// The signal's trace.
    pub trace: Option<TraceContext>,
    /// The retry schedule, with the caller's randomness in it.
    pub delays: Delays,
}

/// What a failure signal does, in order of precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailureOutcome {
    /// Counted, and the refund entry was written with it.
    Refunded,
    /// Counted, or taken as the final verdict on a waiting retry; money did not move.
    FailureRecorded,
    /// Nothing: delivered work is never refunded.
    AlreadyDelivered,
    /// Nothing: this failure has been counted.
    Duplicate,
}

/// What a success signal does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SuccessOutcome {
    /// Delivered; the charge stands.
    Delivered,
    /// Delivered after a refund, which the reclaim entry takes back.
    Reclaimed,
    /// Nothing: it was delivered before.
    Duplicate,
}

/// What becomes of a due retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DispatchOutcome {
    /// The job runs again; its work is to be handed to the workers.
    Dispatched,
    /// The job is at its cap and set aside; the dead letter is to be handed over.
    DeadLettered,
    /// An earlier claim wrote the dispatch and died; its hand-over is to be finished.
    HandOverOpen,
    /// An earlier claim wrote the dead letter and died; its hand-over is to be finished.
    DeadLetterOpen,
    /// The retry is no longer wanted: drop the entry.
    Stale,
}

/// What becomes of a retry whose claims ran out too often.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExhaustedOutcome {
    /// The job is set aside; the dead letter is to be handed over.
    DeadLettered,
    /// It was set aside by a claim that died; the hand-over is to be finished.
    DeadLetterOpen,
    /// A person sent the job back after the first of these claims: they count for nothing now.
    Redriven,
    /// The retry is no longer wanted: drop the entry.
    Stale,
}

/// What silence does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SilenceOutcome {
    /// Counted as a failure, and the refund entry was written with it.
    Refunded,
    /// Counted as a failure; money did not move.
    FailureRecorded,
    /// Nothing: a signal came, or the attempt is not that old.
    NotSilent,
}

/// What a person's redrive does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RedriveOutcome {
    /// The job waits for its next attempt, due now.
    Redriven,
    /// Nothing: only dead-lettered and failed jobs can be sent back.
    NotSetAside,
}

/// Charge, where no such job is there.
pub fn charged(charge: &Charge, now: Timestamp) -> Job {
    let entry =
        Entry { kind: EntryType::Charge, amount: EntryType::Charge.amount(charge.cost), created_at: now };
    Job {
        job_id: charge.job_id.clone(),
        account_id: charge.account_id.clone(),
        cost: charge.cost,
        is_refunded: false,
        refunded_at: None,
        is_reclaimed: false,
        reclaimed_at: None,
        delivered_at: None,
        phase: Phase::Running,
        attempts: 0,
        max_attempts: charge.max_attempts,
        not_before: None,
        dispatched_at: None,
        last_error: None,
        counted_events: Vec::new(),
        redriven_at: None,
        entries: vec![entry],
        net: entry.amount,
        created_at: now,
        updated_at: now,
        replayed: charge.replayed,
        imported: false,
    }
}

/// Charge, where such a job is there.
pub fn charged_before(job: &Job, charge: &Charge) -> ChargeOutcome {
    if job.account_id == charge.account_id && job.cost == charge.cost {
        ChargeOutcome::Duplicate
    } else {
        ChargeOutcome::Conflict
    }
}

/// A failure signal.
pub fn failure(job: &Job, signal: &Failure, now: Timestamp) -> Step<FailureOutcome> {
    let counted = signal.event_id.as_ref().is_some_and(|id| job.counted_events.contains(id));
    let next = match signal.attempt {
        Some(k) => (job.phase != Phase::Delivered && job.attempts < k).then_some(k),
        None => (job.phase == Phase::Running && !counted && job.attempts < MAX_ATTEMPT)
            .then(|| job.attempts.saturating_add(1)),
    };
    if let Some(k) = next {
        let outcome =
            if job.is_refunded { FailureOutcome::FailureRecorded } else { FailureOutcome::Refunded };
        return Step::wrote(outcome, count_failure(job, k, signal, now));
    }
    if is_final_verdict(job, signal) {
        let mut after = touched(job, now);
        after.phase = Phase::Failed;
        after.not_before = None;
        after.last_error = Some(last_error(signal, now));
        remember(&mut after.counted_events, signal.event_id.as_ref());
        return Step::wrote(FailureOutcome::FailureRecorded, after);
    }
    Step::refused(if job.phase == Phase::Delivered {
        FailureOutcome::AlreadyDelivered
    } else {
        FailureOutcome::Duplicate
    })
}

/// A second verdict on the attempt that failed last, such as a person's cancel, stops the retry that waits; but not
/// one that a person has asked for since.
fn is_final_verdict(job: &Job, signal: &Failure) -> bool {
    !signal.retryable
        && job.phase == Phase::RetryWaiting
        && signal.attempt.is_none_or(|k| k == job.attempts)
        && job.redriven_at.is_none()
}

fn count_failure(job: &Job, k: u32, signal: &Failure, now: Timestamp) -> Job {
    let mut after = touched(job, now);
    after.attempts = k;
    if !after.is_refunded {
        let at = write_entry(&mut after, EntryType::Refund, now);
        after.is_refunded = true;
        after.refunded_at = Some(at);
    }
    after.dispatched_at = None;
    after.redriven_at = None;
    match job.phase {
        // Only a person, or a success, leads out of these two.
        Phase::Failed | Phase::DeadLettered => {}
        Phase::Running | Phase::RetryWaiting | Phase::Delivered if signal.retryable => {
            after.phase = Phase::RetryWaiting;
            after.not_before = Some(now.plus(wait(&signal.delays, k)));
        }
        Phase::Running | Phase::RetryWaiting | Phase::Delivered => {
            after.phase = Phase::Failed;
            after.not_before = None;
        }
    }
    after.last_error = Some(last_error(signal, now));
    remember(&mut after.counted_events, signal.event_id.as_ref());
    after
}

/// A success signal.
pub fn success(job: &Job, now: Timestamp) -> Step<SuccessOutcome> {
    if job.phase == Phase::Delivered {
        return Step::refused(SuccessOutcome::Duplicate);
    }
    let mut after = touched(job, now);
    after.phase = Phase::Delivered;
    after.delivered_at = Some(now);
    after.not_before = None;
    if !after.is_refunded {
        return Step::wrote(SuccessOutcome::Delivered, after);
    }
    let at = write_entry(&mut after, EntryType::Reclaim, now);
    after.is_reclaimed = true;
    after.reclaimed_at = Some(at);
    Step::wrote(SuccessOutcome::Reclaimed, after)
}

/// A retry entry `(job, attempts)` whose time has come, claimed by a drain. `ran_out`: whether an earlier claim of
/// this entry ran out, which is the only way in which an open dead letter can be known from a finished one.
pub fn dispatch(job: &Job, attempts: u32, ran_out: bool, now: Timestamp) -> Step<DispatchOutcome> {
    if job.attempts != attempts || attempts == 0 {
        return Step::refused(DispatchOutcome::Stale);
    }
    match job.phase {
        Phase::RetryWaiting if job.attempts >= job.max_attempts => {
            Step::wrote(DispatchOutcome::DeadLettered, dead_lettered(job, now))
        }
        Phase::RetryWaiting => {
            let mut after = touched(job, now);
            after.phase = Phase::Running;
            after.not_before = None;
            after.dispatched_at = None;
            Step::wrote(DispatchOutcome::Dispatched, after)
        }
        Phase::Running if job.dispatched_at.is_none() => Step::refused(DispatchOutcome::HandOverOpen),
        Phase::DeadLettered if ran_out => Step::refused(DispatchOutcome::DeadLetterOpen),
        Phase::Running | Phase::DeadLettered | Phase::Failed | Phase::Delivered => {
            Step::refused(DispatchOutcome::Stale)
        }
    }
}

/// The work of the attempt after `attempts` failures was handed to the workers. The answer says whether that was
/// still open.
pub fn hand_over_done(job: &Job, attempts: u32, now: Timestamp) -> Step<bool> {
    if job.phase != Phase::Running || job.attempts != attempts || job.dispatched_at.is_some() {
        return Step::refused(false);
    }
    let mut after = touched(job, now);
    after.dispatched_at = Some(now);
    Step::wrote(true, after)
}

/// A retry entry whose claims ran out too often, the first of them made at `first_claim`.
pub fn claims_exhausted(
    job: &Job,
    attempts: u32,
    first_claim: Timestamp,
    now: Timestamp,
) -> Step<ExhaustedOutcome> {
    if job.attempts != attempts || attempts == 0 {
        return Step::refused(ExhaustedOutcome::Stale);
    }
    match job.phase {
        Phase::RetryWaiting | Phase::Running if job.dispatched_at.is_none() => {
            if job.redriven_at.is_none_or(|at| at < first_claim) {
                Step::wrote(ExhaustedOutcome::DeadLettered, dead_lettered(job, now))
            } else {
                Step::refused(ExhaustedOutcome::Redriven)
            }
        }
        Phase::DeadLettered => Step::refused(ExhaustedOutcome::DeadLetterOpen),
        Phase::RetryWaiting | Phase::Running | Phase::Failed | Phase::Delivered => {
            Step::refused(ExhaustedOutcome::Stale)
        }
    }
}

/// The reason that a failure has which nobody reported.
pub const NO_SIGNAL: &str = "no_signal";

/// Attempt `k` gave no signal for `timeout`: since the charge, for the first, else since its recorded hand-over. A
/// hand-over that was not recorded is the sweep's to finish; it is not silence. Nor is that of the first attempt of a
/// job from an earlier layout, which noted failures and no deliveries: the job may have been delivered long ago.
pub fn no_signal(
    job: &Job,
    k: u32,
    timeout: Duration,
    delays: &Delays,
    now: Timestamp,
) -> Step<SilenceOutcome> {
    let charged_at = (!job.imported).then_some(job.created_at);
    let since = if job.attempts == 0 { charged_at } else { job.dispatched_at };
    let silent = job.phase == Phase::Running
        && k.checked_sub(1) == Some(job.attempts)
        && since.is_some_and(|since| since <= now.minus(timeout));
    if !silent {
        return Step::refused(SilenceOutcome::NotSilent);
    }
    let outcome = if job.is_refunded { SilenceOutcome::FailureRecorded } else { SilenceOutcome::Refunded };
    Step::wrote(outcome, count_failure(job, k, &silence(k, delays), now))
}

/// The failure that silence counts as.
pub fn silence(k: u32, delays: &Delays) -> Failure {
    Failure {
        attempt: Some(k),
        retryable: true,
        reason: Some(NO_SIGNAL.to_owned()),
        event_id: None,
        trace: None,
        delays: delays.clone(),
    }
}

/// A person sends a job that was set aside back to the retry queue, with `allowance` further attempts.
pub fn redrive(job: &Job, allowance: u32, now: Timestamp) -> Step<RedriveOutcome> {
    match job.phase {
        Phase::DeadLettered | Phase::Failed => {
            let mut after = touched(job, now);
            after.phase = Phase::RetryWaiting;
            after.not_before = Some(now);
            after.redriven_at = Some(now);
            after.max_attempts = job.attempts.saturating_add(allowance).min(MAX_ATTEMPT);
            Step::wrote(RedriveOutcome::Redriven, after)
        }
        Phase::Running | Phase::RetryWaiting | Phase::Delivered => Step::refused(RedriveOutcome::NotSetAside),
    }
}

fn touched(job: &Job, now: Timestamp) -> Job {
    Job { updated_at: now, ..job.clone() }
}

fn dead_lettered(job: &Job, now: Timestamp) -> Job {
    Job { phase: Phase::DeadLettered, not_before: None, ..touched(job, now) }
}

/// Adds the entry and its amount; it is never older than the one in front of it, whatever the clocks say.
fn write_entry(job: &mut Job, kind: EntryType, now: Timestamp) -> Timestamp {
    let created_at = job.entries.last().map_or(now, |last| last.created_at.max(now));
    let amount = kind.amount(job.cost);
    job.entries.push(Entry { kind, amount, created_at });
    job.net += amount;
    created_at
}

fn wait(delays: &Delays, attempts: u32) -> Duration {
    Duration::from_millis(delays.after(attempts).unsigned_abs())
}

fn last_error(signal: &Failure, now: Timestamp) -> LastError {
    LastError {
        reason: signal.reason.clone().unwrap_or_else(|| UNSPECIFIED.to_owned()),
        at: now,
        trace: signal.trace.clone(),
    }
}

/// The reason that stands on a job whose reporter gave none.
pub const UNSPECIFIED: &str = "unspecified";

fn remember(counted: &mut Vec<EventId>, id: Option<&EventId>) {
    if let Some(id) = id {
        counted.push(id.clone());
        let surplus = counted.len().saturating_sub(COUNTED_EVENTS_KEPT);
        counted.drain(..surplus);
    }
}

#[cfg(test)]
mod tests;
