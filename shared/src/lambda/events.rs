//! One event, or an SQS batch of them, through a handler.
//!
//! Records of a batch are handled [`RECORDS_AT_ONCE`] at a time, and each fails alone: a malformed one, one whose job is
//! unknown, one that panics. What fails is reported by its message id and delivered again; that is harmless, because
//! the guard of every write is. So no record is ever worth waiting long for:
//!
//! - It gets [`PATIENCE`] at most. A record takes milliseconds; one that takes longer waits for a server.
//! - Once the ledger was found out of reach, the records that have not started are reported at once. A batch of any
//!   size is so answered within one record's patience, and waits in its queue instead of in a paid function.
//! - What is not done shortly before the function's deadline is reported, instead of the whole batch being lost.

use std::collections::HashSet;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aws_lambda_events::sqs::SqsBatchResponse;
use futures_util::FutureExt;
use futures_util::stream::{self, StreamExt};
use serde::Serialize;
use tracing::Instrument;

use super::{Failed, Invocation, StartError, panic_text, serve};
use crate::clock::Deadline;
use crate::event::{CompletionEvent, EventError, News, Payload, Record, Signal, parse_payload};
use crate::handlers::Answer;
use crate::job::JobId;
use crate::ledger::LedgerError;
use crate::metrics::EVENTS;
use crate::sources::{Ignored, Sources};
use crate::trace::TraceContext;

/// Records handled at once: what the driver's small pool of connections carries.
const RECORDS_AT_ONCE: usize = 10;
/// The longest that one record may take: an outage is answered within 5 s.
const PATIENCE: Duration = Duration::from_millis(4_700);

/// Polls for completion events of one kind, in our form or that of one of `sources`, and feeds them to `handle`.
///
/// # Errors
/// [`StartError`] where the process does not run under Lambda, or the runtime goes away.
pub async fn serve_events(
    signal: Signal,
    sources: &Sources,
    handle: impl AsyncFn(&CompletionEvent) -> Result<Answer, LedgerError>,
) -> Result<(), StartError> {
    let handle = &handle;
    serve(async |payload: &str, invocation: &Invocation| {
        invoke(parse_payload(signal, sources, payload.as_bytes()), invocation, handle).await
    })
    .await
}

/// What an invocation is answered with.
#[derive(Debug, PartialEq, Serialize)]
#[serde(untagged)]
enum Reply {
    /// To one event.
    One(Answer),
    /// To one event without news.
    Ignored(Unheeded),
    /// To an SQS batch: the records that failed.
    Batch(SqsBatchResponse),
}

/// The answer to an event that is acknowledged, and nothing else.
#[derive(Debug, PartialEq, Serialize)]
struct Unheeded {
    #[serde(skip_serializing_if = "Option::is_none")]
    job_id: Option<JobId>,
    outcome: &'static str,
    source: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<String>,
    why: &'static str,
}

impl From<Ignored> for Unheeded {
    fn from(ignored: Ignored) -> Self {
        let Ignored { source, status, job_id, why } = ignored;
        Self { job_id, outcome: IGNORED, source, status, why: why.as_str() }
    }
}

/// What is counted of an event without news, in the place of an [`crate::handlers::Outcome`].
const IGNORED: &str = "ignored";

/// Why one event was not handled. All of these leave the event to be delivered again.
#[derive(Debug, thiserror::Error)]
enum RecordError {
    #[error(transparent)]
    Event(#[from] EventError),
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error("the ledger did not answer within {} ms; whether it was written is unknown", PATIENCE.as_millis())]
    NoAnswer,
    #[error("not started, because the ledger is out of reach")]
    LedgerLost,
    #[error("not done before the function's deadline")]
    Deadline,
    #[error("the handler panicked: {0}")]
    Panic(String),
}

impl RecordError {
    fn kind(&self) -> &'static str {
        match self {
            Self::Event(_) => "InvalidEvent",
            Self::Ledger(LedgerError::UnknownJob(_)) => "UnknownJob",
            Self::Ledger(LedgerError::AccountMismatch { .. }) => "AccountMismatch",
            Self::Ledger(LedgerError::Unavailable { .. }) | Self::NoAnswer | Self::LedgerLost => {
                "Unavailable"
            }
            Self::Ledger(
                LedgerError::Unreadable { .. } | LedgerError::Refused { .. } | LedgerError::Overflow(_),
            ) => "LedgerError",
            Self::Deadline => "Deadline",
            Self::Panic(_) => "Panic",
        }
    }

    fn shows_that_the_ledger_is_lost(&self) -> bool {
        match self {
            Self::Ledger(error) => error.is_unavailable(),
            Self::NoAnswer => true,
            Self::Event(_) | Self::LedgerLost | Self::Deadline | Self::Panic(_) => false,
        }
    }
}

/// What the events of one invocation share.
struct Bounds {
    deadline: Deadline,
    ledger_is_lost: AtomicBool,
}

async fn invoke(
    payload: Result<Payload, EventError>,
    invocation: &Invocation,
    handle: &impl AsyncFn(&CompletionEvent) -> Result<Answer, LedgerError>,
) -> Result<Reply, Failed> {
    let bounds = Bounds { deadline: invocation.deadline, ledger_is_lost: AtomicBool::new(false) };
    match payload.map_err(|error| failed(&error.into()))? {
        Payload::One(news) => one(*news, invocation, handle, &bounds).await,
        Payload::Batch(records) => batch(records, invocation, handle, &bounds).await.map(Reply::Batch),
    }
}

async fn one(
    news: News,
    invocation: &Invocation,
    handle: &impl AsyncFn(&CompletionEvent) -> Result<Answer, LedgerError>,
    bounds: &Bounds,
) -> Result<Reply, Failed> {
    let event = match news {
        News::Event(event) => event,
        News::Ignored(ignored) => {
            note_ignored(&invocation.request_id, None, &ignored);
            return Ok(Reply::Ignored(ignored.into()));
        }
    };
    let answer = handle_one(&event, handle, bounds).await.map_err(|error| failed(&error))?;
    note_answer(&invocation.request_id, None, &event, &answer);
    Ok(Reply::One(answer))
}

async fn batch(
    records: Vec<Record>,
    invocation: &Invocation,
    handle: &impl AsyncFn(&CompletionEvent) -> Result<Answer, LedgerError>,
    bounds: &Bounds,
) -> Result<SqsBatchResponse, Failed> {
    let handled = records.into_iter().enumerate().map(|(place, record)| async move {
        let span =
            tracing::info_span!("record", request_id = invocation.request_id, message_id = record.message_id);
        let is_done = handle_record(&record, invocation, handle, bounds).instrument(span).await;
        (place, record.message_id, is_done)
    });
    let mut done: Vec<(usize, Option<String>, bool)> =
        stream::iter(handled).buffer_unordered(RECORDS_AT_ONCE).collect().await;
    done.sort_by_key(|(place, ..)| *place);
    report(done)
}

/// The failures by message id, in the order of the batch, each once.
fn report(done: Vec<(usize, Option<String>, bool)>) -> Result<SqsBatchResponse, Failed> {
    let mut response = SqsBatchResponse::default();
    let mut reported = HashSet::new();
    for (place, message_id, _) in done.into_iter().filter(|(.., is_done)| !is_done) {
        // An empty identifier would have Lambda deliver the whole batch again and say nothing.
        let message_id = message_id.ok_or_else(|| Failed {
            kind: "NoMessageId",
            message: format!(
                "record {place} of the batch failed and has no messageId to report it by; see the log"
            ),
        })?;
        if reported.insert(message_id.clone()) {
            response.add_failure(message_id);
        }
    }
    Ok(response)
}

/// Handles a record and logs what came of it; false where it is to be delivered again.
async fn handle_record(
    record: &Record,
    invocation: &Invocation,
    handle: &impl AsyncFn(&CompletionEvent) -> Result<Answer, LedgerError>,
    bounds: &Bounds,
) -> bool {
    let (request_id, message_id) = (&invocation.request_id, record.message_id.as_deref());
    let (event, error) = match &record.event {
        Ok(News::Event(event)) => match handle_one(event, handle, bounds).await {
            Ok(answer) => {
                note_answer(request_id, message_id, event, &answer);
                return true;
            }
            Err(error) => (Some(event), error),
        },
        Ok(News::Ignored(ignored)) => {
            note_ignored(request_id, message_id, ignored);
            return true;
        }
        Err(error) => (None, error.clone().into()),
    };
    EVENTS.count_one(error.kind());
    tracing::error!(
        request_id,
        message_id,
        job_id = event.map(|event| event.job_id.as_str()),
        attempt = event.and_then(|event| event.attempt),
        error_type = error.kind(),
        %error,
        "the record failed and is delivered again"
    );
    false
}

async fn handle_one(
    event: &CompletionEvent,
    handle: &impl AsyncFn(&CompletionEvent) -> Result<Answer, LedgerError>,
    bounds: &Bounds,
) -> Result<Answer, RecordError> {
    if bounds.ledger_is_lost.load(Ordering::Relaxed) {
        return Err(RecordError::LedgerLost);
    }
    if bounds.deadline.passed() {
        return Err(RecordError::Deadline);
    }
    // Boxed, because what a handler holds of driver and client is deep enough to overflow the compiler's limits.
    let work = AssertUnwindSafe(Box::pin(handle(event))).catch_unwind();
    let result = match bounds.deadline.at_most(PATIENCE).bound(work).await {
        Some(Ok(result)) => result.map_err(RecordError::Ledger),
        Some(Err(panic)) => Err(RecordError::Panic(panic_text(panic.as_ref()))),
        None if bounds.deadline.passed() => Err(RecordError::Deadline),
        None => Err(RecordError::NoAnswer),
    };
    if result.as_ref().is_err_and(RecordError::shows_that_the_ledger_is_lost) {
        bounds.ledger_is_lost.store(true, Ordering::Relaxed);
    }
    result
}

/// Counts the error of an event that was invoked with by itself, and makes it the answer.
fn failed(error: &RecordError) -> Failed {
    EVENTS.count_one(error.kind());
    Failed { kind: error.kind(), message: error.to_string() }
}

fn note_answer(request_id: &str, message_id: Option<&str>, event: &CompletionEvent, answer: &Answer) {
    EVENTS.count_one(answer.outcome.as_str());
    tracing::info!(
        request_id,
        message_id,
        job_id = answer.job_id.as_str(),
        outcome = answer.outcome.as_str(),
        attempt = event.attempt,
        attempts = answer.attempts,
        phase = answer.phase.as_str(),
        reason = event.reason.as_deref(),
        trace = event.trace.as_ref().map(TraceContext::as_str),
        "event handled"
    );
}

fn note_ignored(request_id: &str, message_id: Option<&str>, ignored: &Ignored) {
    EVENTS.count_one(IGNORED);
    tracing::info!(
        request_id,
        message_id,
        job_id = ignored.job_id.as_ref().map(JobId::as_str),
        outcome = IGNORED,
        source = ignored.source,
        status = ignored.status.as_deref(),
        why = ignored.why.as_str(),
        "event ignored"
    );
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use serde_json::{Value, json};

    use super::*;
    use crate::handlers::Outcome;
    use crate::job::Phase;

    fn answer(event: &CompletionEvent) -> Answer {
        Answer {
            job_id: event.job_id.clone(),
            outcome: Outcome::Delivered,
            attempts: 0,
            phase: Phase::Delivered,
            not_before: None,
        }
    }

    fn unavailable() -> LedgerError {
        LedgerError::Unavailable { store: "MongoDB", what: "connection refused".to_owned() }
    }

    fn sqs(jobs: &[&str]) -> String {
        let records: Vec<Value> = jobs
            .iter()
            .enumerate()
            .map(|(n, job)| json!({"messageId": format!("m{n}"), "body": json!({ "job_id": job }).to_string()}))
            .collect();
        json!({ "Records": records }).to_string()
    }

    async fn answered(
        payload: impl Into<String>,
        deadline: Deadline,
        handle: impl AsyncFn(&CompletionEvent) -> Result<Answer, LedgerError>,
    ) -> Result<Value, Failed> {
        let invocation = Invocation { request_id: "r".to_owned(), deadline };
        let payload = parse_payload(Signal::Succeeded, &Sources::default(), payload.into().as_bytes());
        invoke(payload, &invocation, &handle).await.map(|reply| serde_json::to_value(reply).unwrap())
    }

    fn failures(ids: &[&str]) -> Value {
        let items: Vec<Value> = ids.iter().map(|id| json!({ "itemIdentifier": id })).collect();
        json!({ "batchItemFailures": items })
    }

    #[tokio::test]
    async fn a_panic_in_one_record_is_that_records_failure() {
        let reply = answered(sqs(&["a", "bad", "c"]), Deadline::NONE, async |event| {
            assert!(event.job_id.as_str() != "bad", "no such luck");
            Ok(answer(event))
        });
        assert_eq!(reply.await.unwrap(), failures(&["m1"]));
    }

    #[tokio::test]
    async fn a_panic_over_a_single_event_is_an_error_with_its_message() {
        let payload = r#"{"job_id":"j"}"#;
        let failed = answered(payload, Deadline::NONE, async |_| panic!("no such luck")).await.unwrap_err();
        assert_eq!((failed.kind, failed.message.as_str()), ("Panic", "the handler panicked: no such luck"));
    }

    #[tokio::test]
    async fn once_the_ledger_is_lost_no_further_record_is_started() {
        let started = Cell::new(0);
        let jobs = vec!["j"; 200];
        let reply = answered(sqs(&jobs), Deadline::NONE, async |_| {
            started.set(started.get() + 1);
            tokio::task::yield_now().await;
            Err(unavailable())
        });
        let all: Vec<String> = (0..200).map(|n| format!("m{n}")).collect();
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        assert_eq!(reply.await.unwrap(), failures(&all));
        assert_eq!(started.get(), RECORDS_AT_ONCE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_record_that_hangs_is_reported_within_the_patience_and_ends_the_batch() {
        let started = Cell::new(0);
        let jobs = vec!["j"; 30];
        let began = tokio::time::Instant::now();
        let reply = answered(sqs(&jobs), Deadline::NONE, async |_| {
            started.set(started.get() + 1);
            std::future::pending().await
        });
        assert_eq!(reply.await.unwrap()["batchItemFailures"].as_array().map(Vec::len), Some(30));
        assert_eq!(started.get(), RECORDS_AT_ONCE);
        assert!(began.elapsed() < Duration::from_secs(5));
    }

    #[tokio::test]
    async fn what_was_not_reached_before_the_deadline_is_reported() {
        let reply = answered(sqs(&["a", "b"]), Deadline::after(Duration::ZERO), async |_| {
            unreachable!("the deadline has passed")
        });
        assert_eq!(reply.await.unwrap(), failures(&["m0", "m1"]));
        let reply =
            answered(sqs(&["quick", "slow"]), Deadline::after(Duration::from_millis(50)), async |event| {
                if event.job_id.as_str() == "slow" {
                    std::future::pending::<()>().await;
                }
                Ok(answer(event))
            });
        assert_eq!(reply.await.unwrap(), failures(&["m1"]));
    }

    #[tokio::test]
    async fn failures_are_reported_in_the_order_of_the_batch_and_each_id_once() {
        let payload = json!({"Records": [
            {"messageId": "z", "body": "{"}, {"messageId": "a", "body": "{\"job_id\":\"j\"}"},
            {"messageId": "m", "body": "{\"job_id\":\"late\"}"}, {"messageId": "z", "body": "{"},
            {"messageId": "b", "body": "[]"},
        ]});
        let reply = answered(payload.to_string(), Deadline::NONE, async |event| {
            if event.job_id.as_str() == "late" {
                tokio::task::yield_now().await;
                return Err(LedgerError::UnknownJob(event.job_id.clone()));
            }
            Ok(answer(event))
        });
        assert_eq!(reply.await.unwrap(), failures(&["z", "m", "b"]));
    }

    #[tokio::test]
    async fn a_failure_that_cannot_be_reported_fails_the_invocation_after_its_neighbours() {
        for bad in [r#"{"body":"{"}"#, r#"{"messageId":"","body":"{"}"#, "17"] {
            let good = r#"{"messageId":"m","body":"{\"job_id\":\"j\"}"}"#;
            let handled = Cell::new(0);
            let payload = format!(r#"{{"Records":[{bad},{good}]}}"#);
            let failed = answered(payload, Deadline::NONE, async |event| {
                handled.set(handled.get() + 1);
                Ok(answer(event))
            })
            .await
            .unwrap_err();
            assert_eq!((failed.kind, handled.get()), ("NoMessageId", 1));
        }
    }

    #[tokio::test]
    async fn a_good_record_needs_no_message_id_and_an_empty_batch_no_records() {
        let payload = json!({"Records": [{"body": "{\"job_id\":\"j\"}"}]}).to_string();
        let good = answered(payload, Deadline::NONE, async |event| Ok(answer(event)));
        assert_eq!(good.await.unwrap(), failures(&[]));
        let empty = answered(r#"{"Records":[]}"#, Deadline::NONE, async |event| Ok(answer(event)));
        assert_eq!(empty.await.unwrap(), failures(&[]));
    }

    #[tokio::test]
    async fn an_event_without_news_is_answered_as_ignored_and_is_no_failure_of_a_batch() {
        let event = json!({"id": "e-1", "source": "aws.mediaconvert", "detail-type": "MediaConvert Job State Change",
            "detail": {"jobId": "m-1", "status": "PROGRESSING", "userMetadata": {"recoup_job_id": "j"}}});
        let none = async |_: &CompletionEvent| unreachable!("it is not handled");
        let single = answered(event.to_string(), Deadline::NONE, none).await.unwrap();
        let expected = json!({"job_id": "j", "outcome": "ignored", "source": "aws.mediaconvert",
            "status": "PROGRESSING", "why": "in_progress"});
        assert_eq!(single, expected);
        let batch = json!({"Records": [{"messageId": "m", "body": event.to_string()}]}).to_string();
        let none = async |_: &CompletionEvent| unreachable!("it is not handled");
        assert_eq!(answered(batch, Deadline::NONE, none).await.unwrap(), failures(&[]));
    }
}
