//! What arrives, in all its envelopes, becomes one completion event.
//!
//! Pure. An event comes bare, or as the `detail` of an EventBridge event, or as the `Message` of an SNS notification,
//! and any of these as the body of a record in an SQS batch. So reading is a loop that takes off one layer at a time,
//! [`MAX_LAYERS`] at most; a `job_id` at the top of a layer ends it. Nothing recurses, however deep the input nests.
//!
//! Layers are read as unparsed JSON text (`RawValue`) field by field, for three reasons. A field of ours that stands
//! there twice is an error, where a map would silently keep one of the two. Fields that are not ours are skipped
//! without being built. And the envelope types of `aws_lambda_events` ask for fields that not every sender gives (SNS
//! writes `SigningCertURL` to SQS and `SigningCertUrl` to Lambda), which must not cost anybody a refund.
//!
//! One bad record never fails its neighbours: each carries its own result.

use std::fmt;

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::clock::Timestamp;
use crate::job::{AccountId, EventId, IdError, JobId, MAX_ATTEMPT, cut_reason};

/// Layers that one event may have: SNS around EventBridge around the event is three; the rest is headroom.
pub const MAX_LAYERS: usize = 4;
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
    /// The event's own id, or the innermost envelope's.
    pub event_id: Option<EventId>,
    /// When the reporter says it happened. Delays never count from it.
    pub occurred_at: Option<Timestamp>,
    /// The account, where given: it must be the job's own.
    pub account_id: Option<AccountId>,
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
    /// Envelopes in envelopes.
    #[error("the event lies in more than {MAX_LAYERS} envelopes; expected at most SQS, SNS and EventBridge")]
    TooDeep,
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

/// What a function was invoked with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// One event.
    One(Box<CompletionEvent>),
    /// An SQS batch, in its order.
    Batch(Vec<Record>),
}

/// One record of an SQS batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its `messageId`, by which a failure is reported; an empty one is none.
    pub message_id: Option<String>,
    /// The event in it.
    pub event: Result<CompletionEvent, EventError>,
}

/// Reads what the function for `signal` was invoked with.
///
/// # Errors
/// [`EventError`] where the payload is neither one event nor a batch. A bad record of a batch carries its own error.
pub fn parse_payload(signal: Signal, payload: &[u8]) -> Result<Payload, EventError> {
    let text = std::str::from_utf8(payload)
        .map_err(|e| EventError::Unreadable { place: Place::Payload, problem: e.to_string() })?;
    let layer: Layer<'_> = object(Place::Payload, text)?;
    match (layer.job_id, layer.records) {
        (None, Some(records)) => {
            let records: Vec<&RawValue> = serde_json::from_str(records.get())
                .map_err(|_| wrong("Records", records, "an array of SQS messages"))?;
            Ok(Payload::Batch(records.into_iter().map(|record| read_record(signal, record)).collect()))
        }
        (Some(_), _) | (None, None) => unwrap(signal, layer, None).map(|e| Payload::One(Box::new(e))),
    }
}

/// Reads a bare event, such as a line of an event log.
///
/// # Errors
/// [`EventError`] says which field is wrong.
pub fn parse_bare(text: &str) -> Result<CompletionEvent, EventError> {
    let layer: Layer<'_> = object(Place::Payload, text)?;
    read_event(&layer, None)
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
    /// EventBridge: `id`, `detail-type` and `detail`.
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "detail-type", deserialize_with = "present")]
    detail_type: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    detail: Option<&'a RawValue>,
    /// SNS: `MessageId` and `Message`.
    #[serde(borrow, default, rename = "MessageId", deserialize_with = "present")]
    message_id: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "Message", deserialize_with = "present")]
    message: Option<&'a RawValue>,
    /// SQS.
    #[serde(borrow, default, rename = "Records", deserialize_with = "present")]
    records: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct SqsRecord<'a> {
    #[serde(borrow, default, rename = "messageId", deserialize_with = "present")]
    message_id: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    body: Option<&'a RawValue>,
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

fn read_record(signal: Signal, record: &RawValue) -> Record {
    let record: SqsRecord<'_> = match object(Place::Record, record.get()) {
        Ok(record) => record,
        Err(error) => return Record { message_id: None, event: Err(error) },
    };
    let message_id = record
        .message_id
        .and_then(|raw| serde_json::from_str::<String>(raw.get()).ok())
        .filter(|id| !id.is_empty());
    let event = read_body(signal, record.body, message_id.as_deref());
    Record { message_id, event }
}

fn read_body(
    signal: Signal,
    body: Option<&RawValue>,
    message_id: Option<&str>,
) -> Result<CompletionEvent, EventError> {
    let body = required_text("body", body, "a string that holds a JSON object")?;
    let envelope_id = message_id.and_then(|id| EventId::new(id).ok());
    unwrap(signal, object(Place::Body, &body)?, envelope_id)
}

/// Takes one envelope off after the other. An envelope's id that is none counts as absent: it is not the sender's
/// to choose.
fn unwrap(
    signal: Signal,
    layer: Layer<'_>,
    envelope_id: Option<EventId>,
) -> Result<CompletionEvent, EventError> {
    let mut inner = match step(signal, &layer, envelope_id)? {
        Step::Event(event) => return Ok(*event),
        Step::Envelope(inner) => inner,
    };
    for _ in 1..MAX_LAYERS {
        let layer: Layer<'_> = object(inner.place, &inner.text)?;
        inner = match step(signal, &layer, inner.envelope_id)? {
            Step::Event(event) => return Ok(*event),
            Step::Envelope(inner) => inner,
        };
    }
    Err(EventError::TooDeep)
}

/// What a layer turned out to be.
enum Step {
    Event(Box<CompletionEvent>),
    Envelope(Inner),
}

/// What lay in an envelope.
struct Inner {
    place: Place,
    text: String,
    envelope_id: Option<EventId>,
}

fn step(signal: Signal, layer: &Layer<'_>, envelope_id: Option<EventId>) -> Result<Step, EventError> {
    if layer.job_id.is_some() {
        return read_event(layer, envelope_id).map(|event| Step::Event(Box::new(event)));
    }
    if let Some(detail) = layer.detail {
        check_detail_type(signal, layer.detail_type)?;
        let envelope_id = own_id(layer.id).or(envelope_id);
        return Ok(Step::Envelope(Inner {
            place: Place::Detail,
            text: detail.get().to_owned(),
            envelope_id,
        }));
    }
    if layer.message.is_some() {
        let text = required_text("Message", layer.message, "a string that holds a JSON object")?;
        let envelope_id = own_id(layer.message_id).or(envelope_id);
        return Ok(Step::Envelope(Inner { place: Place::Message, text, envelope_id }));
    }
    Err(EventError::Field { field: "job_id", found: "missing".to_owned(), expected: ID })
}

fn own_id(raw: Option<&RawValue>) -> Option<EventId> {
    serde_json::from_str::<String>(raw?.get()).ok().and_then(|id| EventId::new(id).ok())
}

/// Only our own detail-types say which function an event is for; any other is taken by its detail.
fn check_detail_type(signal: Signal, detail_type: Option<&RawValue>) -> Result<(), EventError> {
    let given = detail_type.and_then(|raw| serde_json::from_str::<String>(raw.get()).ok());
    let other = signal.other().detail_type();
    if given.as_deref() == Some(other) {
        return Err(EventError::OtherSignal { given: other, expected: signal.detail_type() });
    }
    Ok(())
}

const ID: &str = "a string of 1 to 256 characters";

fn read_event(layer: &Layer<'_>, envelope_id: Option<EventId>) -> Result<CompletionEvent, EventError> {
    let job_id = required_text("job_id", layer.job_id, ID)?;
    let job_id = JobId::new(job_id).map_err(|problem| EventError::Id { field: "job_id", problem })?;
    let event_id = optional::<String>("event_id", layer.event_id, ID)?
        .map(|id| EventId::new(id).map_err(|problem| EventError::Id { field: "event_id", problem }))
        .transpose()?;
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
        occurred_at: read_time(layer.occurred_at)?,
        account_id,
    })
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

fn read_time(raw: Option<&RawValue>) -> Result<Option<Timestamp>, EventError> {
    const EXPECTED: &str = "an RFC 3339 time with an offset, such as 2026-01-01T00:00:00Z";
    match (optional::<String>("occurred_at", raw, EXPECTED)?, raw) {
        (Some(text), Some(raw)) => Timestamp::parse_rfc3339(&text)
            .map(Some)
            .ok_or_else(|| wrong("occurred_at", raw, EXPECTED)),
        (_, _) => Ok(None),
    }
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
    let raw =
        raw.ok_or_else(|| EventError::Field { field, found: "missing".to_owned(), expected })?;
    serde_json::from_str(raw.get()).map_err(|_| wrong(field, raw, expected))
}

fn wrong(field: &'static str, found: &RawValue, expected: &'static str) -> EventError {
    EventError::Field { field, found: shortened(found.get()), expected }
}

/// The text on one line, cut to [`SHOWN_CHARS`].
fn shortened(text: &str) -> String {
    if text.trim().is_empty() {
        return "empty".to_owned();
    }
    let line = |c: char| if c.is_control() { ' ' } else { c };
    let mut shown: String = text.chars().take(SHOWN_CHARS).map(line).collect();
    if text.chars().nth(SHOWN_CHARS).is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn one(payload: &Value) -> Result<CompletionEvent, EventError> {
        one_of(payload.to_string().as_bytes())
    }

    fn one_of(payload: &[u8]) -> Result<CompletionEvent, EventError> {
        match parse_payload(Signal::Failed, payload)? {
            Payload::One(event) => Ok(*event),
            Payload::Batch(_) => panic!("a batch"),
        }
    }

    fn batch(payload: &Value) -> Vec<Record> {
        match parse_payload(Signal::Failed, payload.to_string().as_bytes()).unwrap() {
            Payload::One(_) => panic!("one event"),
            Payload::Batch(records) => records,
        }
    }

    fn event_bridge(detail: &Value) -> Value {
        json!({"version": "0", "id": "eb-1", "detail-type": "Job Failed", "source": "jobs", "resources": [],
               "account": "000000000000", "time": "2026-01-15T10:00:00Z", "detail": detail})
    }

    fn sns(message: &Value) -> Value {
        json!({"Type": "Notification", "MessageId": "sns-1", "Message": message.to_string(),
               "TopicArn": "arn:aws:sns:us-east-1:000000000000:t", "SigningCertURL": "https://example.com"})
    }

    fn sqs(bodies: &[Value]) -> Value {
        let records: Vec<Value> = bodies
            .iter()
            .enumerate()
            .map(|(n, body)| json!({"messageId": format!("m{n}"), "body": body.to_string()}))
            .collect();
        json!({ "Records": records })
    }

    #[test]
    fn every_field_is_read() {
        let event = one(&json!({"job_id": "job-1", "attempt": 3, "reason": "no GPU", "retryable": false,
            "event_id": "e", "occurred_at": "2026-01-01T01:00:00+01:00", "account_id": "a", "amount": 5}))
        .unwrap();
        assert_eq!(event, CompletionEvent {
            job_id: JobId::new("job-1").unwrap(),
            attempt: Some(3),
            reason: Some("no GPU".to_owned()),
            retryable: false,
            event_id: Some(EventId::new("e").unwrap()),
            occurred_at: Timestamp::parse_rfc3339("2026-01-01T00:00:00Z"),
            account_id: Some(AccountId::new("a").unwrap()),
        });
    }

    #[test]
    fn only_the_job_is_required_and_null_is_absent() {
        let bare = one(&json!({"job_id": "j"})).unwrap();
        assert!(bare.retryable && bare.attempt.is_none() && bare.event_id.is_none());
        let nulls = json!({"job_id": "j", "attempt": null, "reason": null, "retryable": null, "event_id": null,
                           "occurred_at": null, "account_id": null});
        assert_eq!(one(&nulls).unwrap(), bare);
    }

    #[test]
    fn the_event_id_defaults_to_the_innermost_envelopes() {
        let bare = json!({"job_id": "j"});
        let id = |event: &CompletionEvent| event.event_id.clone().unwrap().as_str().to_owned();
        assert_eq!(id(&one(&event_bridge(&bare)).unwrap()), "eb-1");
        assert_eq!(id(&one(&event_bridge(&json!({"job_id": "j", "event_id": "own"}))).unwrap()), "own");
        let bodies = [bare.clone(), event_bridge(&bare), sns(&bare), sns(&event_bridge(&bare))];
        let ids: Vec<String> = batch(&sqs(&bodies)).iter().map(|r| id(r.event.as_ref().unwrap())).collect();
        assert_eq!(ids, ["m0", "eb-1", "sns-1", "eb-1"]);
        let unusable = json!({"id": "", "detail": {"job_id": "j"}});
        assert_eq!(id(batch(&sqs(&[unusable]))[0].event.as_ref().unwrap()), "m0");
    }

    #[test]
    fn a_job_id_at_the_top_means_bare_whatever_else_is_there() {
        let event = one(&json!({"job_id": "j", "detail-type": "Job Succeeded", "detail": {"job_id": "k"},
                                "Records": [], "Message": 1}))
        .unwrap();
        assert_eq!(event.job_id.as_str(), "j");
        assert!(one(&json!({"job_id": null, "detail": {"job_id": "k"}})).is_err());
    }

    #[test]
    fn an_event_of_the_other_kind_is_refused_and_a_foreign_one_taken_by_its_detail() {
        let mut event = event_bridge(&json!({"job_id": "j"}));
        event["detail-type"] = json!("Job Succeeded");
        assert_eq!(
            one(&event).unwrap_err().to_string(),
            r#"detail-type is "Job Succeeded"; expected "Job Failed": send this event to the other function"#
        );
        for foreign in [json!("Render Finished"), json!("job succeeded"), json!(7)] {
            event["detail-type"] = foreign;
            assert!(one(&event).is_ok());
        }
    }

    #[test]
    fn errors_name_the_field_what_was_there_and_what_is_right() {
        for (payload, message) in [
            (r#"{}"#, "job_id is missing; expected a string of 1 to 256 characters"),
            (r#"{"job_id":{"$ne":1}}"#, r#"job_id is {"$ne":1}; expected a string of 1 to 256 characters"#),
            (r#"{"job_id":["j"]}"#, r#"job_id is ["j"]; expected a string of 1 to 256 characters"#),
            (r#"{"job_id":7}"#, "job_id is 7; expected a string of 1 to 256 characters"),
            (r#"{"job_id":"\ud800"}"#, r#"job_id is "\ud800"; expected a string of 1 to 256 characters"#),
            (r#"{"job_id":" "}"#, "job_id consists of blanks only; give 1 to 256 characters"),
            (r#"{"job_id":"j","account_id":""}"#, "account_id is empty; give 1 to 256 characters"),
            (r#"{"job_id":"j","event_id":"\n"}"#, "event_id holds the control character U+000A; remove it"),
            (r#"{"job_id":"j","attempt":0}"#, "attempt is 0; expected a whole number from 1 to 2147483647"),
            (r#"{"job_id":"j","attempt":2147483648}"#,
             "attempt is 2147483648; expected a whole number from 1 to 2147483647"),
            (r#"{"job_id":"j","attempt":1.0}"#, "attempt is 1.0; expected a whole number from 1 to 2147483647"),
            (r#"{"job_id":"j","attempt":"1"}"#, r#"attempt is "1"; expected a whole number from 1 to 2147483647"#),
            (r#"{"job_id":"j","retryable":"no"}"#, r#"retryable is "no"; expected true or false"#),
            (r#"{"job_id":"j","reason":{"a":1}}"#, r#"reason is {"a":1}; expected a string"#),
            (r#"{"job_id":"j","occurred_at":"2026-01-01"}"#,
             r#"occurred_at is "2026-01-01"; expected an RFC 3339 time with an offset, such as 2026-01-01T00:00:00Z"#),
            (r#"{"Records":{}}"#, "Records is {}; expected an array of SQS messages"),
            (r#"{"detail":"x"}"#, r#"detail cannot be read: it is "x"; expected a JSON object with a job_id"#),
            (r#"{"Message":7}"#, "Message is 7; expected a string that holds a JSON object"),
            ("", "the payload cannot be read: it is empty; expected a JSON object with a job_id"),
            (r#"["j"]"#, r#"the payload cannot be read: it is ["j"]; expected a JSON object with a job_id"#),
        ] {
            assert_eq!(one_of(payload.as_bytes()).unwrap_err().to_string(), message, "{payload}");
        }
        assert!(one_of(br#"{"job_id":"j","attempt":2147483647}"#).is_ok());
        let long = one(&json!({"job_id": "j", "attempt": "x\n".repeat(1000)})).unwrap_err().to_string();
        assert!(long.len() < 200 && !long.contains('\n'), "{long}");
    }

    #[test]
    fn a_field_of_ours_that_stands_there_twice_is_an_error() {
        for payload in [
            r#"{"job_id":"a","job_id":"b"}"#,
            r#"{"job_id":"a","attempt":1,"attempt":2}"#,
            r#"{"job_id":"a","job\u005fid":"b"}"#,
            r#"{"detail":{"job_id":"a"},"detail":{"job_id":"b"}}"#,
        ] {
            let error = one_of(payload.as_bytes()).unwrap_err().to_string();
            assert!(error.contains("duplicate field"), "{payload}: {error}");
        }
        assert!(one_of(br#"{"job_id":"a","x":1,"x":2}"#).is_ok());
    }

    #[test]
    fn a_bad_record_is_its_own_failure() {
        let records = batch(&json!({"Records": [
            {"messageId": "m0", "body": "{"},
            {"messageId": "m1", "body": {"job_id": "j"}},
            {"messageId": "m2"},
            {"messageId": "", "body": "{\"job_id\":\"j\"}"},
            {"messageId": 5, "body": "{}"},
            17,
            {"messageId": "m6", "body": "{\"job_id\":\"j\"}", "attributes": 5},
        ]}));
        let seen: Vec<(Option<&str>, bool)> =
            records.iter().map(|r| (r.message_id.as_deref(), r.event.is_ok())).collect();
        assert_eq!(seen, [
            (Some("m0"), false),
            (Some("m1"), false),
            (Some("m2"), false),
            (None, true),
            (None, false),
            (None, false),
            (Some("m6"), true),
        ]);
    }

    #[test]
    fn envelopes_in_envelopes_come_to_an_end() {
        let mut nested = json!({"job_id": "j"});
        for _ in 0..MAX_LAYERS - 1 {
            nested = event_bridge(&nested);
        }
        assert!(one(&nested).is_ok());
        assert_eq!(one(&event_bridge(&nested)), Err(EventError::TooDeep));
        let deep = format!("{}1{}", r#"{"detail":"#.repeat(100_000), "}".repeat(100_000));
        assert_eq!(one_of(deep.as_bytes()), Err(EventError::TooDeep));
        let array = format!(r#"{{"job_id":{}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
        assert!(one_of(array.as_bytes()).is_err());
    }

    #[test]
    fn a_reason_is_cut_to_length() {
        let event = one(&json!({"job_id": "j", "reason": "é".repeat(600)})).unwrap();
        assert_eq!(event.reason.unwrap(), "é".repeat(500));
    }

    fn arbitrary_json() -> impl Strategy<Value = Value> {
        let key = prop::sample::select(vec![
            "job_id", "attempt", "reason", "retryable", "event_id", "occurred_at", "account_id", "detail",
            "detail-type", "id", "Message", "MessageId", "Records", "messageId", "body", "x",
        ]);
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            ".{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 6, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::vec((key.clone(), inner.clone()), 0..6)
                    .prop_map(|fields| fields.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()),
                inner.prop_map(|value| Value::from(value.to_string())),
            ]
        })
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse_payload(Signal::Failed, &bytes);
        }

        #[test]
        fn no_json_panics_and_what_is_read_is_in_shape(json in arbitrary_json()) {
            if let Ok(Payload::One(event)) = parse_payload(Signal::Succeeded, json.to_string().as_bytes()) {
                prop_assert!(JobId::new(event.job_id.as_str()).is_ok());
                prop_assert!(event.attempt.is_none_or(|k| (1..=MAX_ATTEMPT).contains(&k)));
            }
        }

        #[test]
        fn ids_come_out_as_they_went_in(job in ".{1,300}", account in ".{1,300}", event in ".{1,300}") {
            let bare = json!({"job_id": job, "account_id": account, "event_id": event});
            let valid = JobId::new(job.clone()).is_ok()
                && AccountId::new(account.clone()).is_ok()
                && EventId::new(event.clone()).is_ok();
            let bodies = [bare.clone(), event_bridge(&bare), sns(&bare), sns(&event_bridge(&bare))];
            let mut read: Vec<_> = batch(&sqs(&bodies)).into_iter().map(|record| record.event).collect();
            read.push(one(&bare));
            read.push(one(&event_bridge(&bare)));
            for result in read {
                prop_assert_eq!(result.is_ok(), valid);
                if let Ok(read) = result {
                    prop_assert_eq!(read.job_id.as_str(), &job);
                    prop_assert_eq!(read.account_id.unwrap().as_str(), &account);
                    prop_assert_eq!(read.event_id.unwrap().as_str(), &event);
                }
            }
        }
    }
}
