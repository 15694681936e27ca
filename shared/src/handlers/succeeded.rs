//! A success signal: one guarded write, and nothing else. A retry that waits is left where it is; when its time
//! comes, the dispatch guard finds the job delivered and drops it.

use super::{Answer, Outcome};
use crate::clock::Timestamp;
use crate::event::CompletionEvent;
use crate::ledger::{Ledger, LedgerError};
use crate::metrics;
use crate::transition::SuccessOutcome;

/// Delivers the job, and takes its refund back if it had one.
///
/// # Errors
/// [`LedgerError`]; the event is to be delivered again.
pub async fn job_succeeded(
    ledger: &impl Ledger,
    event: &CompletionEvent,
    now: Timestamp,
) -> Result<Answer, LedgerError> {
    let applied = ledger.record_success(&event.job_id, event.account_id.as_ref(), now).await?;
    if applied.outcome == SuccessOutcome::Reclaimed {
        metrics::CREDITS_RECLAIMED.count(applied.job.cost.credits().unsigned_abs());
    }
    Ok(Answer::new(Outcome::from(applied.outcome), applied.job))
}
