//! A failure signal: one guarded write, then a push that may fail.
//!
//! The write is what counts. It leaves the job in retry_waiting with its time, and that is the outbox: if the push
//! below is lost, with Redis or with this process, the next sweep finds the job and queues it. So the push gets half
//! a second and no second try; it only saves the retry the sweep's grace.

use std::time::Duration;

use super::{Answer, Outcome};
use crate::backoff::{RetryPolicy, Roll};
use crate::clock::{Deadline, Timestamp};
use crate::event::CompletionEvent;
use crate::job::{Job, Phase};
use crate::ledger::{Ledger, LedgerError};
use crate::metrics;
use crate::queue::{RetryEntry, RetryQueue};
use crate::transition::{Failure, FailureOutcome};

/// The longest that a push may delay the answer.
pub const PUSH_TIMEOUT: Duration = Duration::from_millis(500);

/// Counts the failure, refunds the job with its first one, and queues the retry.
///
/// # Errors
/// [`LedgerError`]; the event is to be delivered again. The queue's errors are logged and end here.
pub async fn job_failed(
    ledger: &impl Ledger,
    queue: &impl RetryQueue,
    event: &CompletionEvent,
    policy: &RetryPolicy,
    roll: Roll,
    now: Timestamp,
) -> Result<Answer, LedgerError> {
    let failure = Failure {
        attempt: event.attempt,
        retryable: event.retryable,
        reason: event.reason.clone(),
        event_id: event.event_id.clone(),
        trace: event.trace.clone(),
        delays: policy.delays(roll),
    };
    let applied = ledger.record_failure(&event.job_id, event.account_id.as_ref(), &failure, now).await?;
    if applied.outcome == FailureOutcome::Refunded {
        metrics::CREDITS_REFUNDED.count(applied.job.cost.credits().unsigned_abs());
    }
    match applied.outcome {
        FailureOutcome::Refunded | FailureOutcome::FailureRecorded => push_retry(queue, &applied.job).await,
        FailureOutcome::AlreadyDelivered | FailureOutcome::Duplicate => {}
    }
    Ok(Answer::new(Outcome::from(applied.outcome), applied.job))
}

/// Queues the job's retry if it waits for one, as far as that goes within [`PUSH_TIMEOUT`].
pub async fn push_retry(queue: &impl RetryQueue, job: &Job) {
    let Some(entry) = waiting_retry(job) else { return };
    let error = match Deadline::after(PUSH_TIMEOUT).bound(queue.push(&entry)).await {
        Some(Ok(())) => return,
        Some(Err(error)) => error.to_string(),
        None => format!("no answer within {} ms", PUSH_TIMEOUT.as_millis()),
    };
    metrics::RETRY_PUSH_FAILED.count(1);
    tracing::warn!(
        job_id = %job.job_id, attempts = job.attempts, error,
        "the retry was not queued; the sweep will find it"
    );
}

/// The entry that a job in retry_waiting has in the queue.
pub fn waiting_retry(job: &Job) -> Option<RetryEntry> {
    (job.phase == Phase::RetryWaiting).then(|| RetryEntry {
        job_id: job.job_id.clone(),
        attempts: job.attempts,
        not_before: job.not_before.unwrap_or(job.updated_at),
    })
}
