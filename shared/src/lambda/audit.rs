//! The audit on a schedule: as much of the ledger as one invocation has time for, and the next one goes on there.
//!
//! Where the last audit stopped is kept in the process. A new process begins at the first job: some are then looked
//! at twice and, of a ledger that no invocation gets through, the last ones late; `complete` says whether the end was
//! reached, and there is no alarm that a ledger in want of more time could not set off.

use std::cell::RefCell;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;
use serde::Serialize;

use super::{Failed, Invocation, StartError, panic_text, serve};
use crate::clock::{Clock, Deadline};
use crate::handlers::audit::{AuditCounts, AuditError, AuditSettings, Listener, audit, dead_lettered};
use crate::ledger::LedgerReader;
use crate::queue::RetryQueue;

/// Kept free before the deadline: a page, both looks at it included, is done in less.
const RESERVE: Duration = Duration::from_secs(10);

/// The answer to one invocation.
#[derive(Clone, Copy, Debug, Serialize)]
struct Answer {
    #[serde(flatten)]
    counts: AuditCounts,
    /// Jobs that wait for a person.
    dead_lettered: u64,
    /// Whether the last job was reached; if not, the next invocation goes on where this one stopped.
    complete: bool,
}

/// Writes each violation to the log.
struct Log;

impl Listener for Log {
    type Error = AuditError;

    fn violation(&mut self, job_id: &str, violation: &str) -> Result<(), AuditError> {
        tracing::error!(job_id, violation, "a job breaks a rule");
        Ok(())
    }
}

/// Polls for invocations, whatever their payload, and audits the jobs after those that the last invocation looked at.
///
/// # Errors
/// [`StartError`] where the process does not run under Lambda, or the runtime goes away.
pub async fn serve_audit(
    ledger: &impl LedgerReader,
    queue: &impl RetryQueue,
    settings: AuditSettings,
    clock: &impl Clock,
) -> Result<(), StartError> {
    let stopped_after = RefCell::new(None);
    let stopped_after = &stopped_after;
    serve(async |_: &str, invocation: &Invocation| {
        let deadline = invocation.deadline;
        let until = deadline.sooner(RESERVE.min(deadline.left() / 2));
        let after = stopped_after.borrow().clone();
        // Boxed, because what a call holds of driver and client is deep enough to overflow the compiler's limits.
        let work = Box::pin(async {
            let audited = audit(ledger, queue, settings, clock, after, until, &mut Log).await?;
            Ok((audited, dead_lettered(ledger).await?))
        });
        let (audited, dead_lettered) = in_time(deadline, work).await?;
        let answer = Answer { counts: audited.counts, dead_lettered, complete: audited.next.is_none() };
        *stopped_after.borrow_mut() = audited.next;
        let AuditCounts { jobs, retries, unjudged, violations } = answer.counts;
        tracing::info!(
            request_id = invocation.request_id,
            jobs,
            retries,
            unjudged,
            violations,
            dead_lettered,
            complete = answer.complete,
            "audited"
        );
        Ok(answer)
    })
    .await
}

/// An audit that fails, hangs or panics fails the invocation.
async fn in_time<T>(
    deadline: Deadline,
    work: impl Future<Output = Result<T, AuditError>>,
) -> Result<T, Failed> {
    let failed = |kind, message| Err(Failed { kind, message });
    match deadline.bound(AssertUnwindSafe(work).catch_unwind()).await {
        Some(Ok(Ok(done))) => Ok(done),
        Some(Ok(Err(AuditError::Ledger(error)))) => failed("LedgerError", error.to_string()),
        Some(Ok(Err(AuditError::Queue(error)))) => failed("QueueError", error.to_string()),
        Some(Err(panic)) => failed("Panic", format!("the audit panicked: {}", panic_text(panic.as_ref()))),
        None => failed("Deadline", "the audit did not end before the function's deadline".to_owned()),
    }
}
