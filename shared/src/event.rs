//! What arrives, in all its envelopes, becomes one completion event.

use crate::clock::Timestamp;
use crate::job::{AccountId, EventId, JobId};

/// The news that an attempt of a job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompletionEvent {
    /// The job.
    pub job_id: JobId,
    /// Which attempt ended, 1 to 2^31 - 1, where the reporter says.
    pub attempt: Option<u32>,
    /// Why it failed, cut to 500 characters.
    pub reason: Option<String>,
    /// Whether another attempt can mend a failure.
    pub retryable: bool,
    /// The event's own id, or the innermost envelope's.
    pub event_id: Option<EventId>,
    /// When the reporter says it happened. Delays never count from it.
    pub occurred_at: Option<Timestamp>,
    /// The account, where given: it must be the job's own.
    pub account_id: Option<AccountId>,
}
