//! The ledger's commands: `recoup::transition` on a real `Job`, with one guard taken out where a mutation says so.
//!
//! A guard is taken out from outside: the job is handed to the very same function in a disguise that passes the
//! guard, or the answer is turned. So each mutation differs from the rules in one condition, and the rules
//! themselves stand nowhere but in the library.

use std::time::Duration;

use recoup::backoff::{Delays, RetryPolicy, Roll};
use recoup::clock::Timestamp;
use recoup::job::{Job, Phase};
use recoup::transition::{
    self, Charge, ChargeOutcome, DispatchOutcome, ExhaustedOutcome, Failure, FailureOutcome, RedriveOutcome,
    SilenceOutcome, Step, SuccessOutcome,
};

use crate::job::{event_id, span};
use crate::mutation::Mutation;
use crate::scenario::{ALLOWANCE, BACKOFF};

/// The retry schedule: the same wait before every retry.
pub fn delays() -> Delays {
    let wait = span(BACKOFF);
    RetryPolicy { base_delay: wait, max_delay: wait, ..RetryPolicy::default() }.delays(Roll::FULL)
}

/// The commands, and the guard that is missing.
#[derive(Clone, Copy, Debug)]
pub struct Rules(pub Option<Mutation>);

impl Rules {
    fn without(self, guard: Mutation) -> bool {
        self.0 == Some(guard)
    }

    /// The charge of a job that is there.
    pub fn charge_again(self, job: &Job, charge: &Charge, now: Timestamp) -> Step<ChargeOutcome> {
        if self.without(Mutation::ChargedAgain) {
            return Step { outcome: ChargeOutcome::Charged, after: Some(transition::charged(charge, now)) };
        }
        Step { outcome: transition::charged_before(job, charge), after: None }
    }

    /// A failure signal.
    pub fn failure(
        self,
        job: &Job,
        (attempt, event, retryable): (Option<u8>, Option<u8>, bool),
        delays: &Delays,
        now: Timestamp,
    ) -> Step<FailureOutcome> {
        let mut disguised = job.clone();
        let mut signal = Failure {
            attempt: attempt.map(u32::from),
            retryable,
            reason: None,
            event_id: event.map(event_id),
            trace: None,
            delays: delays.clone(),
        };
        let set_aside = matches!(job.phase, Phase::DeadLettered | Phase::Failed);
        let in_disguise = |without: bool| without.then_some(Phase::Running);
        let phase =
            in_disguise(self.without(Mutation::FailureIgnoresDelivered) && job.phase == Phase::Delivered)
                .or(in_disguise(
                    self.without(Mutation::FailureLeadsOut) && set_aside && signal.attempt.is_some(),
                ))
                .or(in_disguise(
                    self.without(Mutation::UnknownInAnyPhase)
                        && job.phase == Phase::RetryWaiting
                        && signal.attempt.is_none(),
                ));
        disguised.phase = phase.unwrap_or(job.phase);
        if self.without(Mutation::FailureCountsAgain) && signal.attempt == Some(job.attempts) {
            disguised.attempts -= 1;
        }
        if self.without(Mutation::FailureRefundsAgain) {
            disguised.is_refunded = false;
        }
        if self.without(Mutation::EventsNotRemembered) {
            signal.event_id = None;
        }
        if self.without(Mutation::VerdictIgnoresRedrive) && !retryable {
            disguised.redriven_at = None;
        }
        if self.without(Mutation::VerdictOnAnyAttempt)
            && !retryable
            && job.phase == Phase::RetryWaiting
            && signal.attempt.is_some_and(|k| k < job.attempts)
        {
            signal.attempt = None;
        }
        let mut step = transition::failure(&disguised, &signal, now);
        let is_verdict = step.after.as_ref().is_some_and(|after| after.attempts == job.attempts);
        if self.without(Mutation::VerdictForgotten) && is_verdict {
            return Step { outcome: FailureOutcome::Duplicate, after: None };
        }
        if let Some(after) = &mut step.after {
            if self.without(Mutation::FailureKeepsNote) {
                after.dispatched_at = job.dispatched_at;
            }
            if self.without(Mutation::FailureKeepsRedrive) {
                after.redriven_at = job.redriven_at;
            }
        }
        self.stamp(job, step, now)
    }

    /// A success signal.
    pub fn success(self, job: &Job, now: Timestamp) -> Step<SuccessOutcome> {
        let mut disguised = job.clone();
        if self.without(Mutation::SuccessTwice) && job.phase == Phase::Delivered {
            disguised.phase = Phase::Running;
        }
        if self.without(Mutation::ReclaimWithoutRefund) {
            disguised.is_refunded = true;
        }
        let set_aside = matches!(job.phase, Phase::DeadLettered | Phase::Failed);
        if self.without(Mutation::SuccessNotFromSetAside) && set_aside {
            return Step { outcome: SuccessOutcome::Duplicate, after: None };
        }
        if self.without(Mutation::SuccessWithoutReclaim) {
            disguised.is_refunded = false;
        }
        let mut step = transition::success(&disguised, now);
        if let Some(after) = &mut step.after {
            after.is_refunded = job.is_refunded;
        }
        self.stamp(job, step, now)
    }

    /// A retry entry whose time has come.
    pub fn dispatch(self, job: &Job, attempts: u8, ran_out: bool, now: Timestamp) -> Step<DispatchOutcome> {
        let mut disguised = job.clone();
        let mut attempts = u32::from(attempts);
        if self.without(Mutation::DispatchIgnoresAttempts) && job.attempts > 0 {
            attempts = job.attempts;
        }
        let settled = matches!(job.phase, Phase::DeadLettered | Phase::Failed | Phase::Delivered);
        if self.without(Mutation::DispatchIgnoresPhase) && settled {
            disguised.phase = Phase::RetryWaiting;
        }
        if self.without(Mutation::DispatchIgnoresCap) {
            disguised.max_attempts = u32::MAX;
        }
        let mut step = transition::dispatch(&disguised, attempts, ran_out, now);
        if let Some(after) = &mut step.after {
            after.max_attempts = job.max_attempts;
            if self.without(Mutation::DispatchKeepsNote) {
                after.dispatched_at = job.dispatched_at;
            }
        }
        let is_dropped = match step.outcome {
            DispatchOutcome::HandOverOpen => self.without(Mutation::OpenHandOverIsStale),
            DispatchOutcome::DeadLetterOpen => self.without(Mutation::OpenLetterIsStale),
            DispatchOutcome::Dispatched | DispatchOutcome::DeadLettered | DispatchOutcome::Stale => false,
        };
        if is_dropped { Step { outcome: DispatchOutcome::Stale, after: None } } else { step }
    }

    /// The note that work was handed over.
    pub fn hand_over_done(self, job: &Job, attempts: u8, now: Timestamp) -> Step<bool> {
        let mut disguised = job.clone();
        let mut attempts = u32::from(attempts);
        if self.without(Mutation::NoteIgnoresAttempts) {
            attempts = job.attempts;
        }
        if self.without(Mutation::NoteIgnoresPhase) {
            disguised.phase = Phase::Running;
        }
        if self.without(Mutation::NoteMoves) {
            disguised.dispatched_at = None;
        }
        let mut step = transition::hand_over_done(&disguised, attempts, now);
        if let Some(after) = &mut step.after {
            after.phase = job.phase;
        }
        step
    }

    /// A retry entry whose claims ran out too often.
    pub fn claims_exhausted(
        self,
        job: &Job,
        attempts: u8,
        first_claim: Timestamp,
        now: Timestamp,
    ) -> Step<ExhaustedOutcome> {
        let mut disguised = job.clone();
        let mut attempts = u32::from(attempts);
        if self.without(Mutation::ExhaustedIgnoresAttempts) && job.attempts > 0 {
            attempts = job.attempts;
        }
        if self.without(Mutation::ExhaustedIgnoresPhase)
            && matches!(job.phase, Phase::Failed | Phase::Delivered)
        {
            disguised.phase = Phase::Running;
        }
        if self.without(Mutation::ExhaustedIgnoresNote) {
            disguised.dispatched_at = None;
        }
        if self.without(Mutation::ExhaustedIgnoresRedrive) {
            disguised.redriven_at = None;
        }
        transition::claims_exhausted(&disguised, attempts, first_claim, now)
    }

    /// Silence of the attempt after those that failed.
    pub fn no_signal(
        self,
        job: &Job,
        timeout: Duration,
        delays: &Delays,
        now: Timestamp,
    ) -> Step<SilenceOutcome> {
        if self.without(Mutation::SilenceMissing) {
            return Step { outcome: SilenceOutcome::NotSilent, after: None };
        }
        let mut disguised = job.clone();
        if self.without(Mutation::SilenceIgnoresPhase) {
            disguised.phase = Phase::Running;
        }
        if self.without(Mutation::SilenceOfOpenHandOver) && job.attempts > 0 && job.dispatched_at.is_none() {
            disguised.dispatched_at = Some(job.updated_at);
        }
        transition::no_signal(&disguised, job.attempts + 1, timeout, delays, now)
    }

    /// A person's redrive.
    pub fn redrive(self, job: &Job, now: Timestamp) -> Step<RedriveOutcome> {
        let mut disguised = job.clone();
        if self.without(Mutation::RedriveIgnoresPhase) {
            disguised.phase = Phase::DeadLettered;
        }
        let mut step = transition::redrive(&disguised, ALLOWANCE.into(), now);
        if let Some(after) = &mut step.after
            && self.without(Mutation::RedriveWithoutAllowance)
        {
            after.max_attempts = job.max_attempts;
        }
        step
    }

    fn stamp<O>(self, before: &Job, mut step: Step<O>, now: Timestamp) -> Step<O> {
        if let Some(after) = &mut step.after
            && self.without(Mutation::EntryTimeFromClock)
            && after.entries.len() > before.entries.len()
            && let Some(last) = after.entries.last_mut()
        {
            last.created_at = now;
        }
        step
    }
}
