//! The metrics: which there are, and the only way to count them.
//!
//! Whatever a dashboard or an alarm reads stands in [`ALL`], because nothing else can be counted; `recoup metrics`
//! prints it, and the template is checked against that. Values go through the `metrics` facade, so a handler counts
//! where the thing happens and knows nothing of CloudWatch. Only the functions install a recorder, which writes
//! CloudWatch's embedded metric format; in every other program counting does nothing.
//!
//! Each distinct set of dimensions is billed as a metric of its own, so no id, no reason and no text from outside is
//! ever a dimension.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use metrics::{counter, histogram};
use serde::Serialize;

/// The CloudWatch namespace.
pub const NAMESPACE: &str = "Recoup";
/// The dimension that every metric has: the function's name.
pub const FUNCTION: &str = "Function";
/// Samples of [`STORE_LATENCY`] that one invocation keeps, its first: what the embedded metric format takes.
const MOST_LATENCIES: usize = 100;

/// What a metric is counted in, as CloudWatch calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "they say it themselves")]
pub enum Unit {
    Count,
    Milliseconds,
    Seconds,
}

/// A metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// What it is counted in.
    pub unit: Unit,
    /// Its dimensions, [`FUNCTION`] the first.
    pub dimensions: &'static [&'static str],
    /// What one of it is.
    pub meaning: &'static str,
}

macro_rules! metrics {
    ($($name:ident: $text:literal, $unit:ident, $dimensions:expr, $meaning:literal;)+) => {
        $(
            #[doc = concat!($meaning, ".")]
            pub const $name: Metric =
                Metric { name: $text, unit: Unit::$unit, dimensions: $dimensions, meaning: $meaning };
        )+
        /// Every metric there is.
        pub const ALL: &[Metric] = &[$($name),+];
    };
}

const PLAIN: &[&str] = &[FUNCTION];
const BY_OUTCOME: &[&str] = &[FUNCTION, "Outcome"];
const BY_STORE: &[&str] = &[FUNCTION, "Store"];

metrics! {
    EVENTS: "Events", Count, BY_OUTCOME, "Completion events, by what they did or by the type of their error";
    CREDITS_REFUNDED: "CreditsRefunded", Count, PLAIN, "Credits given back for jobs that failed";
    CREDITS_RECLAIMED: "CreditsReclaimed", Count, PLAIN, "Refunded credits taken back for jobs that were delivered after all";
    STORE_LATENCY: "StoreLatency", Milliseconds, BY_STORE, "How long a call to MongoDB or Redis took, the first hundred of an invocation";
    RETRY_PUSH_FAILED: "RetryPushFailed", Count, PLAIN, "Retries that were not queued at once; the sweep queues them";
    DRAINS_FINISHED: "DrainsFinished", Count, PLAIN, "Passes of the scheduler that came to their end";
    DISPATCHED: "Dispatched", Count, PLAIN, "Retries handed to the workers";
    PARKED: "Parked", Count, PLAIN, "New entries that wait for their time";
    DEAD_LETTERED: "DeadLettered", Count, PLAIN, "Jobs set aside for a person";
    DROPPED: "Dropped", Count, PLAIN, "Entries that were no longer wanted";
    RECOVERED: "Recovered", Count, PLAIN, "Claims that ran out and were taken again";
    MALFORMED: "Malformed", Count, PLAIN, "Entries that were none, kept for a person";
    SWEPT: "Swept", Count, PLAIN, "Entries that the sweep put back";
    TIMED_OUT: "TimedOut", Count, PLAIN, "Attempts that failed by silence";
    HAND_OVER_FAILED: "HandOverFailed", Count, PLAIN, "Retries that the dispatch target did not take; they are tried again";
    OLDEST_DUE_RETRY_AGE: "OldestDueRetryAge", Seconds, PLAIN, "How long the oldest due retry has waited for its hand-over when a drain has ended";
    RETRY_LIST_DEPTH: "RetryListDepth", Count, PLAIN, "New entries that no drain has looked at yet";
    PARKED_DEPTH: "ParkedDepth", Count, PLAIN, "Retries that wait for their time";
    IN_FLIGHT_DEPTH: "InFlightDepth", Count, PLAIN, "Claims that are held";
    READY_DEPTH: "ReadyDepth", Count, PLAIN, "Retries in the ready list that no worker has taken yet";
    DEAD_LETTER_LIST_DEPTH: "DeadLetterListDepth", Count, PLAIN, "Letters in the dead-letter list";
    DEAD_LETTERED_JOBS: "DeadLetteredJobs", Count, PLAIN, "Jobs in the ledger that wait for a person";
    WEBHOOK_CALLS: "WebhookCalls", Count, BY_OUTCOME, "Calls of providers, by what became of them";
    AUDITED_JOBS: "AuditedJobs", Count, PLAIN, "Jobs that the audit has read";
    AUDIT_VIOLATIONS: "AuditViolations", Count, PLAIN, "Broken rules that the audit saw twice";
    AUDITS_FINISHED: "AuditsFinished", Count, PLAIN, "Invocations of the audit that came to their end";
}

impl Metric {
    /// Counts `by` more.
    pub fn count(&self, by: u64) {
        debug_assert_eq!(self.dimensions, PLAIN, "{} has a dimension more", self.name);
        counter!(self.name).increment(by);
    }

    /// Counts one more with this value of its second dimension, which must be one of a few.
    pub fn count_one(&self, value: &'static str) {
        counter!(self.name, self.dimensions[1] => value).increment(1);
    }

    /// What was measured just now. It is no gauge, whose last value would be told again and again where measuring
    /// fails.
    #[expect(
        clippy::cast_precision_loss,
        reason = "a number of seconds or entries, which nobody reads to the last digit"
    )]
    pub fn sample(&self, value: u64) {
        debug_assert_eq!(self.dimensions, PLAIN, "{} has a dimension more", self.name);
        histogram!(self.name).record(value as f64);
    }
}

/// Latencies that were kept since [`begin_latencies`].
static LATENCIES: AtomicUsize = AtomicUsize::new(0);

/// Begins a new hundred of [`STORE_LATENCY`].
pub fn begin_latencies() {
    LATENCIES.store(0, Ordering::Relaxed);
}

/// How long one call to `store` took, whatever came of it.
pub fn store_latency(store: &'static str, took: Duration) {
    if LATENCIES.fetch_add(1, Ordering::Relaxed) < MOST_LATENCIES {
        histogram!(STORE_LATENCY.name, STORE_LATENCY.dimensions[1] => store).record(took.as_secs_f64() * 1e3);
    }
}
