//! What arrives, in all its envelopes, becomes one completion event.
//!
//! Pure. An event comes bare, or as the `detail` of an EventBridge event, or as the `Message` of an SNS notification,
//! and any of these as the body of a record in an SQS batch. So reading is a loop that takes off one layer at a time,
//! [`MAX_LAYERS`] at most; a `job_id` at the top of a layer ends it, and so does an event of another service
//! that [`crate::sources`] knows. Nothing recurses, however deep the input nests.
//!
//! Layers are read as unparsed JSON text (`RawValue`) field by field, for three reasons. A field of ours that stands
//! there twice is an error, where a map would silently keep one of the two. Fields that are not ours are skipped
//! without being built. And the envelope types of `aws_lambda_events` ask for fields that not every sender gives (SNS
//! writes `SigningCertURL` to SQS and `SigningCertUrl` to Lambda), which must not cost anybody a refund.
//!
//! One bad record never fails its neighbours: each carries its own result.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::clock::Timestamp;
use crate::job::{AccountId, EventId, IdError, JobId, MAX_ATTEMPT, cut_reason};
use crate::sources::{Ignored, Rule, Sources};
use crate::trace::TraceContext;

/// Layers that one event may have: SNS around EventBridge around the event is three; the rest is headroom.
pub const MAX_LAYERS: usize = 4;
/// Records of one batch: what SQS sends at most. A small payload can name millions, and each costs a record's memory.
pub const MAX_RECORDS: usize = 10_000;
/// The source of the events that we put on a bus.
pub const OUR_SOURCE: &str = "recoup";
/// The detail-type with which the scheduler hands a due retry to a bus.
pub const RETRY_DUE: &str = "Retry Due";
/// Characters of a wrong value that an error repeats.
const SHOWN_CHARS: usize = 60;

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
    /// The event's own id, or the innermost envelope's. A text that is no id counts as absent: a refund is not lost
    /// over what only tells repetitions apart.
    pub event_id: Option<EventId>,
    /// When the reporter says it happened, where that can be read. Nothing depends on it, delays included.
    pub occurred_at: Option<Timestamp>,
    /// The account, where given: it must be the job's own.
    pub account_id: Option<AccountId>,
    /// The trace that it belongs to: its own field `trace`, or else what SQS says beside the message. Anything that is
    /// none counts as absent.
    pub trace: Option<TraceContext>,
}

/// What an event says of the attempt, which is which function it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Signal {
    /// It failed.
    Failed,
    /// It succeeded.
    Succeeded,
}

impl Signal {
    /// The detail-type of our own EventBridge events.
    pub fn detail_type(self) -> &'static str {
        match self {
            Self::Failed => "Job Failed",
            Self::Succeeded => "Job Succeeded",
        }
    }

    fn other(self) -> Self {
        match self {
            Self::Failed => Self::Succeeded,
            Self::Succeeded => Self::Failed,
        }
    }
}

/// Why something is no completion event. All of these are for the sender to fix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EventError {
    /// No JSON, or a field of ours twice.
    #[error("{place} cannot be read: {problem}; expected a JSON object with a job_id")]
    Unreadable {
        /// The layer.
        place: Place,
        /// What the parser says.
        problem: String,
    },
    /// A field is missing, of the wrong type or out of range.
    #[error("{field} is {found}; expected {expected}")]
    Field {
        /// The field.
        field: &'static str,
        /// What stands there, shortened.
        found: String,
        /// What should.
        expected: &'static str,
    },
    /// A text that is no id.
    #[error("{field} {problem}")]
    Id {
        /// The field.
        field: &'static str,
        /// What is wrong with it.
        problem: IdError,
    },
    /// An event of ours at the wrong function: a rule or a queue is wired to the wrong target.
    #[error("detail-type is {given:?}; expected {expected:?}: send this event to the other function")]
    OtherSignal {
        /// What the envelope says.
        given: &'static str,
        /// What this function takes.
        expected: &'static str,
    },
    /// Our own news that a retry is due, back at us: a rule is so broad that it takes it for news of an attempt.
    #[error(
        "the event is {RETRY_DUE:?} of source {OUR_SOURCE}, which asks workers to begin an attempt; expected \
         {expected:?}: have the rule that sent it match detail-type"
    )]
    RetryDue {
        /// What this function takes.
        expected: &'static str,
    },
    /// A field of another service's event is missing, of the wrong type or out of range.
    #[error("{place} of an event of {sender} is {found}; expected {expected}")]
    Native {
        /// Whose event it is.
        sender: &'static str,
        /// Where.
        place: String,
        /// What stands there, shortened.
        found: String,
        /// What should.
        expected: &'static str,
    },
    /// A text in another service's event that is no job id.
    #[error("{place} of an event of {sender} {problem}")]
    NativeId {
        /// Whose event it is.
        sender: &'static str,
        /// Where.
        place: String,
        /// What is wrong with it.
        problem: IdError,
    },
    /// An event of an AWS service that is in no row of the table, and that holds no `job_id` either.
    #[error(
        "{sender} is no event that is known, and its detail has no job_id; known are those of {}: have the rule that \
         sent it match source and detail-type",
        Sources::names()
    )]
    UnknownSender {
        /// Source and detail-type.
        sender: String,
    },
    /// Envelopes in envelopes.
    #[error("the event lies in more than {MAX_LAYERS} envelopes; expected at most SQS, SNS and EventBridge")]
    TooDeep,
    /// A batch that no queue sends.
    #[error("Records holds more than {MAX_RECORDS} records; expected a batch as SQS sends it")]
    TooManyRecords,
}

/// Which layer an error is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// What the function was invoked with.
    Payload,
    /// A record of an SQS batch.
    Record,
    /// The body of an SQS message.
    Body,
    /// The message of an SNS notification.
    Message,
    /// The detail of an EventBridge event.
    Detail,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Payload => "the payload",
            Self::Record => "the record",
            Self::Body => "body",
            Self::Message => "Message",
            Self::Detail => "detail",
        })
    }
}

/// What an event is to the function that got it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// An attempt ended.
    Event(CompletionEvent),
    /// Nothing: another service's event that is for the other function, or of a job that still runs.
    Ignored(Ignored),
}

/// What a function was invoked with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// One event.
    One(Box<News>),
    /// A batch of SQS, or of SNS, in its order.
    Batch(Vec<Record>),
}

/// One record of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its `messageId`, by which a failure is reported; an empty one is none, and SNS gives none.
    pub message_id: Option<String>,
    /// The event in it.
    pub event: Result<News, EventError>,
}

/// For which function, and by which table, events are read.
#[derive(Clone, Copy)]
struct Reader<'s> {
    signal: Signal,
    sources: &'s Sources,
}

/// Reads what the function for `signal` was invoked with; `sources` are the services whose own events it takes.
///
/// # Errors
/// [`EventError`] where the payload is neither one event nor a batch. A bad record of a batch carries its own error.
pub fn parse_payload(signal: Signal, sources: &Sources, payload: &[u8]) -> Result<Payload, EventError> {
    let reader = Reader { signal, sources };
    let text = std::str::from_utf8(payload)
        .map_err(|e| EventError::Unreadable { place: Place::Payload, problem: e.to_string() })?;
    let layer = layer(Place::Payload, text)?;
    match (layer.job_id, layer.records) {
        (None, Some(raw)) => {
            let Records(records) = serde_json::from_str(raw.get())
                .map_err(|_| wrong("Records", raw, "an array of SQS messages"))?;
            let records = records.ok_or(EventError::TooManyRecords)?;
            Ok(Payload::Batch(records.into_iter().map(|record| read_record(reader, record)).collect()))
        }
        (Some(_), _) | (None, None) => {
            unwrap(reader, layer, Outside::default()).map(|news| Payload::One(Box::new(news)))
        }
    }
}

/// Reads a bare event, such as a line of an event log.
///
/// # Errors
/// [`EventError`] says which field is wrong.
pub fn parse_bare(text: &str) -> Result<CompletionEvent, EventError> {
    read_event(&layer(Place::Payload, text)?, None)
}

/// The fields of ours at the top of any layer, unparsed; a null is present.
#[derive(Deserialize)]
struct Layer<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    job_id: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    attempt: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    reason: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    retryable: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    event_id: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    occurred_at: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    account_id: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    trace: Option<&'a RawValue>,
    /// EventBridge: `id`, `source`, `detail-type` and `detail`.
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    source: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "detail-type", deserialize_with = "present")]
    detail_type: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    detail: Option<&'a RawValue>,
    /// SNS: `MessageId` and `Message`.
    #[serde(borrow, default, rename = "MessageId", deserialize_with = "present")]
    message_id: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "Message", deserialize_with = "present")]
    message: Option<&'a RawValue>,
    /// What a notification of a service has that names itself nowhere.
    #[serde(borrow, default, rename = "JobId", deserialize_with = "present")]
    native_job_id: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "Status", deserialize_with = "present")]
    native_status: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "API", deserialize_with = "present")]
    native_api: Option<&'a RawValue>,
    /// SQS and SNS.
    #[serde(borrow, default, rename = "Records", deserialize_with = "present")]
    records: Option<&'a RawValue>,
    /// The layer as it stands, for what is looked up by a path.
    #[serde(skip)]
    text: &'a str,
}

/// The records of a batch; `None` where there are more than [`MAX_RECORDS`], of which none is kept then.
struct Records<'a>(Option<Vec<&'a RawValue>>);

impl<'de: 'a, 'a> Deserialize<'de> for Records<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(RecordsVisitor(PhantomData)).map(Self)
    }
}

struct RecordsVisitor<'a>(PhantomData<&'a RawValue>);

impl<'de: 'a, 'a> Visitor<'de> for RecordsVisitor<'a> {
    type Value = Option<Vec<&'a RawValue>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<Self::Value, A::Error> {
        let mut records = Vec::new();
        while let Some(record) = array.next_element::<&RawValue>()? {
            if records.len() == MAX_RECORDS {
                while array.next_element::<IgnoredAny>()?.is_some() {}
                return Ok(None);
            }
            records.push(record);
        }
        Ok(Some(records))
    }
}

fn layer(place: Place, text: &str) -> Result<Layer<'_>, EventError> {
    let layer: Layer<'_> = object(place, text)?;
    Ok(Layer { text, ..layer })
}

/// A record of SQS, or of SNS where that invokes a function by itself.
#[derive(Deserialize)]
struct RawRecord<'a> {
    #[serde(borrow, default, rename = "messageId", deserialize_with = "present")]
    message_id: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    body: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "Sns", deserialize_with = "present")]
    sns: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    attributes: Option<&'a RawValue>,
}

/// What SQS says beside a message.
#[derive(Deserialize)]
struct SqsAttributes<'a> {
    #[serde(borrow, default, rename = "AWSTraceHeader", deserialize_with = "present")]
    trace: Option<&'a RawValue>,
}

/// Serde's own `Option` takes a null for an absent field; here the two differ, because a `job_id` that is null is
/// still a `job_id`.
fn present<'de: 'a, 'a, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// Reads the fields of an object. Serde would take an array for one as well, by position.
fn object<'a, T: Deserialize<'a>>(place: Place, text: &'a str) -> Result<T, EventError> {
    let unreadable = |problem| EventError::Unreadable { place, problem };
    if !text.trim_ascii_start().starts_with('{') {
        return Err(unreadable(format!("it is {}", shortened(text))));
    }
    serde_json::from_str(text).map_err(|e| unreadable(shortened(&e.to_string())))
}

fn read_record(reader: Reader<'_>, record: &RawValue) -> Record {
    let record: RawRecord<'_> = match object(Place::Record, record.get()) {
        Ok(record) => record,
        Err(error) => return Record { message_id: None, event: Err(error) },
    };
    let message_id = record
        .message_id
        .and_then(|raw| serde_json::from_str::<String>(raw.get()).ok())
        .filter(|id| !id.is_empty());
    let mut event = match (record.body, record.sns) {
        (None, Some(notification)) => layer(Place::Record, notification.get())
            .and_then(|notification| unwrap(reader, notification, Outside::default())),
        (body, _) => read_body(reader, body, message_id.as_deref()),
    };
    if let Ok(News::Event(event)) = &mut event {
        event.trace = event.trace.take().or_else(|| record.attributes.and_then(trace_beside));
    }
    Record { message_id, event }
}

fn read_body(
    reader: Reader<'_>,
    body: Option<&RawValue>,
    message_id: Option<&str>,
) -> Result<News, EventError> {
    let body = required_text("body", body, "a string that holds a JSON object")?;
    let envelope_id = message_id.and_then(|id| EventId::new(id).ok());
    unwrap(reader, layer(Place::Body, &body)?, Outside { envelope_id, sender: None })
}

/// Takes one envelope off after the other. An envelope's id that is none counts as absent: it is not the sender's
/// to choose.
fn unwrap(reader: Reader<'_>, outermost: Layer<'_>, outside: Outside) -> Result<News, EventError> {
    let mut inner = match step(reader, &outermost, outside)? {
        Step::News(news) => return Ok(*news),
        Step::Envelope(inner) => inner,
    };
    for _ in 1..MAX_LAYERS {
        let layer = layer(inner.place, &inner.text)?;
        inner = match step(reader, &layer, inner.outside)? {
            Step::News(news) => return Ok(*news),
            Step::Envelope(inner) => inner,
        };
    }
    Err(EventError::TooDeep)
}

/// What the envelopes around a layer said.
#[derive(Default)]
struct Outside {
    /// The id of the innermost that has one.
    envelope_id: Option<EventId>,
    /// The AWS service that sent the innermost, where it is in no row of the table.
    sender: Option<String>,
}

/// What a layer turned out to be.
enum Step {
    News(Box<News>),
    Envelope(Inner),
}

/// What lay in an envelope.
struct Inner {
    place: Place,
    text: String,
    outside: Outside,
}

fn step(reader: Reader<'_>, layer: &Layer<'_>, outside: Outside) -> Result<Step, EventError> {
    if layer.job_id.is_some() {
        let event = read_event(layer, outside.envelope_id)?;
        return Ok(Step::News(Box::new(News::Event(event))));
    }
    if let Some(rule) = native(reader.sources, layer) {
        let envelope_id = own_id(layer.id).or(outside.envelope_id);
        return rule.read(reader.signal, layer.text, envelope_id).map(|news| Step::News(Box::new(news)));
    }
    if let Some(detail) = layer.detail {
        check_detail_type(reader.signal, layer)?;
        let envelope_id = own_id(layer.id).or(outside.envelope_id);
        return Ok(Step::Envelope(Inner {
            place: Place::Detail,
            text: detail.get().to_owned(),
            outside: Outside { envelope_id, sender: aws_sender(layer) },
        }));
    }
    if layer.message.is_some() {
        let text = required_text("Message", layer.message, "a string that holds a JSON object")?;
        let envelope_id = own_id(layer.message_id).or(outside.envelope_id);
        return Ok(Step::Envelope(Inner {
            place: Place::Message,
            text,
            outside: Outside { envelope_id, sender: None },
        }));
    }
    Err(match outside.sender {
        Some(sender) => EventError::UnknownSender { sender },
        None => EventError::Field { field: "job_id", found: "missing".to_owned(), expected: ID },
    })
}

/// The row for a layer that is another service's event. A notification is looked for before `Message` is: what
/// Rekognition sends has a field of that name too.
fn native<'s>(sources: &'s Sources, layer: &Layer<'_>) -> Option<&'s Rule> {
    if layer.detail.is_some() {
        return sources.event(&text_of(layer.source)?, &text_of(layer.detail_type)?);
    }
    (layer.native_job_id.is_some() && layer.native_status.is_some() && layer.native_api.is_some())
        .then(|| sources.notification(layer.text))
        .flatten()
}

fn aws_sender(envelope: &Layer<'_>) -> Option<String> {
    let source = text_of(envelope.source).filter(|source| source.starts_with("aws."))?;
    let detail_type = text_of(envelope.detail_type).unwrap_or_default();
    Some(format!("{:?} of source {}", shortened(&detail_type), shortened(&source)))
}

fn text_of(raw: Option<&RawValue>) -> Option<String> {
    raw.and_then(|raw| serde_json::from_str(raw.get()).ok())
}

fn own_id(raw: Option<&RawValue>) -> Option<EventId> {
    text_of(raw).and_then(|id| EventId::new(id).ok())
}

/// Only our own detail-types say which function an event is for; any other is taken by its detail.
fn check_detail_type(signal: Signal, envelope: &Layer<'_>) -> Result<(), EventError> {
    let given = text_of(envelope.detail_type);
    let (expected, other) = (signal.detail_type(), signal.other().detail_type());
    if given.as_deref() == Some(other) {
        return Err(EventError::OtherSignal { given: other, expected });
    }
    if given.as_deref() == Some(RETRY_DUE) && text_of(envelope.source).as_deref() == Some(OUR_SOURCE) {
        return Err(EventError::RetryDue { expected });
    }
    Ok(())
}

const ID: &str = "a string of 1 to 256 characters";

fn read_event(layer: &Layer<'_>, envelope_id: Option<EventId>) -> Result<CompletionEvent, EventError> {
    let job_id = required_text("job_id", layer.job_id, ID)?;
    let job_id = JobId::new(job_id).map_err(|problem| EventError::Id { field: "job_id", problem })?;
    let event_id =
        optional::<String>("event_id", layer.event_id, "a string")?.and_then(|id| EventId::new(id).ok());
    let account_id = optional::<String>("account_id", layer.account_id, ID)?
        .map(|id| AccountId::new(id).map_err(|problem| EventError::Id { field: "account_id", problem }))
        .transpose()?;
    let reason = optional::<String>("reason", layer.reason, "a string")?;
    Ok(CompletionEvent {
        job_id,
        attempt: read_attempt(layer.attempt)?,
        reason: reason.map(|reason| cut_reason(&reason).to_owned()),
        retryable: optional("retryable", layer.retryable, "true or false")?.unwrap_or(true),
        event_id: event_id.or(envelope_id),
        occurred_at: layer.occurred_at.and_then(read_time),
        account_id,
        trace: layer.trace.and_then(read_trace),
    })
}

fn read_trace(raw: &RawValue) -> Option<TraceContext> {
    serde_json::from_str::<String>(raw.get()).ok().and_then(TraceContext::new)
}

/// The trace that SQS tells beside a message.
fn trace_beside(attributes: &RawValue) -> Option<TraceContext> {
    let attributes: SqsAttributes<'_> = serde_json::from_str(attributes.get()).ok()?;
    attributes.trace.and_then(read_trace)
}

fn read_attempt(raw: Option<&RawValue>) -> Result<Option<u32>, EventError> {
    const EXPECTED: &str = "a whole number from 1 to 2147483647";
    match (optional::<u32>("attempt", raw, EXPECTED)?, raw) {
        (Some(attempt), Some(raw)) if !(1..=MAX_ATTEMPT).contains(&attempt) => {
            Err(wrong("attempt", raw, EXPECTED))
        }
        (attempt, _) => Ok(attempt),
    }
}

/// An RFC 3339 time with an offset; anything else counts as absent.
fn read_time(raw: &RawValue) -> Option<Timestamp> {
    serde_json::from_str::<String>(raw.get()).ok().and_then(|text| Timestamp::parse_rfc3339(&text))
}

/// An optional field; null counts as absent.
fn optional<T: for<'de> Deserialize<'de>>(
    field: &'static str,
    raw: Option<&RawValue>,
    expected: &'static str,
) -> Result<Option<T>, EventError> {
    match raw {
        None => Ok(None),
        Some(raw) => serde_json::from_str(raw.get()).map_err(|_| wrong(field, raw, expected)),
    }
}

fn required_text(
    field: &'static str,
    raw: Option<&RawValue>,
    expected: &'static str,
) -> Result<String, EventError> {
    let raw = raw.ok_or_else(|| EventError::Field { field, found: "missing".to_owned(), expected })?;
    serde_json::from_str(raw.get()).map_err(|_| wrong(field, raw, expected))
}

fn wrong(field: &'static str, found: &RawValue, expected: &'static str) -> EventError {
    EventError::Field { field, found: shortened(found.get()), expected }
}

/// What an error repeats of a wrong value: the text on one line, cut to 60 characters.
pub fn shortened(text: &str) -> String {
    if text.trim().is_empty() {
        return "empty".to_owned();
    }
    let breaks_a_line = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
    let line = |c: char| if breaks_a_line(c) { ' ' } else { c };
    let mut shown: String = text.chars().take(SHOWN_CHARS).map(line).collect();
    if text.chars().nth(SHOWN_CHARS).is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests;
