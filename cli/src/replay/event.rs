//! One line of an event log becomes one event, or the reason why it is none.
//!
//! Signals are read by the same parser as in the functions; only the envelope, `at` and `type`, and the charge are
//! read here. As there, a field that stands twice is an error, and a null is as good as absent.

use recoup::clock::Timestamp;
use recoup::event::{CompletionEvent, EventError, parse_bare, shortened};
use recoup::job::{AccountId, Cost, IdError, JobId, MAX_COST};
use serde::Deserialize;
use serde_json::value::RawValue;

/// What arrived, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogEvent {
    pub(crate) at: Timestamp,
    pub(crate) what: What,
}

/// What arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Charge { job_id: JobId, account_id: AccountId, cost: Cost },
    Failed(CompletionEvent),
    Succeeded(CompletionEvent),
}

/// Why a line is no event. All of these are for whoever wrote the log to fix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotAnEvent {
    #[error("it is not a JSON object in UTF-8: {0}")]
    Json(String),
    #[error("{field} is {found}; expected {expected}")]
    Field { field: &'static str, found: String, expected: String },
    #[error("{field} {problem}")]
    Id { field: &'static str, problem: IdError },
    #[error(transparent)]
    Signal(#[from] EventError),
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    at: Option<&'a RawValue>,
    #[serde(borrow, rename = "type")]
    kind: Option<&'a RawValue>,
    #[serde(borrow)]
    job_id: Option<&'a RawValue>,
    #[serde(borrow)]
    account_id: Option<&'a RawValue>,
    #[serde(borrow)]
    cost: Option<&'a RawValue>,
}

/// Reads one line.
pub(crate) fn parse(line: &[u8]) -> Result<LogEvent, NotAnEvent> {
    let text = std::str::from_utf8(line).map_err(|error| NotAnEvent::Json(error.to_string()))?;
    // Serde would take an array for an object as well, by position.
    if !text.starts_with('{') {
        return Err(NotAnEvent::Json(format!("it begins with {}", shortened(text))));
    }
    let envelope: Envelope<'_> =
        serde_json::from_str(text).map_err(|error| NotAnEvent::Json(shortened(&error.to_string())))?;
    let at =
        read("at", envelope.at, "an RFC 3339 time with an offset, such as 2026-01-01T00:00:00Z", |raw| {
            serde_json::from_str::<String>(raw).ok().and_then(|text| Timestamp::parse_rfc3339(&text))
        })?;
    let kind: String = read("type", envelope.kind, KINDS, string)?;
    let what = match kind.as_str() {
        "charge" => charge(&envelope)?,
        "failed" => What::Failed(parse_bare(text)?),
        "succeeded" => What::Succeeded(parse_bare(text)?),
        _ => return Err(wrong("type", envelope.kind, KINDS)),
    };
    Ok(LogEvent { at, what })
}

const KINDS: &str = "\"charge\", \"failed\" or \"succeeded\"";
const ID: &str = "a string of 1 to 256 characters";

fn charge(envelope: &Envelope<'_>) -> Result<What, NotAnEvent> {
    let job_id = read("job_id", envelope.job_id, ID, string)?;
    let account_id = read("account_id", envelope.account_id, ID, string)?;
    let cost = read("cost", envelope.cost, &format!("1 to {MAX_COST} whole credits"), |raw| {
        serde_json::from_str::<i64>(raw).ok().and_then(|credits| Cost::new(credits).ok())
    })?;
    Ok(What::Charge {
        job_id: JobId::new(job_id).map_err(|problem| NotAnEvent::Id { field: "job_id", problem })?,
        account_id: AccountId::new(account_id)
            .map_err(|problem| NotAnEvent::Id { field: "account_id", problem })?,
        cost,
    })
}

fn string(raw: &str) -> Option<String> {
    serde_json::from_str(raw).ok()
}

fn read<T>(
    field: &'static str,
    raw: Option<&RawValue>,
    expected: &str,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Result<T, NotAnEvent> {
    raw.and_then(|raw| parse(raw.get())).ok_or_else(|| wrong(field, raw, expected))
}

fn wrong(field: &'static str, raw: Option<&RawValue>, expected: &str) -> NotAnEvent {
    let found = raw.map_or_else(|| "missing".to_owned(), |raw| shortened(raw.get()));
    NotAnEvent::Field { field, found, expected: expected.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_kinds_of_events_are_read() {
        let charge = parse(
            br#"{"at":"2026-01-01T00:00:00Z","type":"charge","job_id":"j1","account_id":"a1","cost":40,"x":[1]}"#,
        )
        .unwrap();
        assert_eq!(charge.at.to_string(), "2026-01-01T00:00:00.000Z");
        assert_eq!(
            charge.what,
            What::Charge {
                job_id: JobId::new("j1").unwrap(),
                account_id: AccountId::new("a1").unwrap(),
                cost: Cost::new(40).unwrap()
            }
        );
        let failed = parse(
            br#"{"at":"2026-01-01T00:00:30Z","type":"failed","job_id":"j1","attempt":1,"reason":null}"#,
        );
        let Ok(LogEvent { what: What::Failed(event), .. }) = failed else { panic!("{failed:?}") };
        assert_eq!((event.attempt, event.reason, event.retryable), (Some(1), None, true));
        let lenient = parse(
            br#"{"at":"2026-01-01T00:00:31Z","type":"failed","job_id":"j1","event_id":"","occurred_at":"then"}"#,
        );
        let Ok(LogEvent { what: What::Failed(event), .. }) = lenient else { panic!("{lenient:?}") };
        assert_eq!((event.event_id, event.occurred_at), (None, None));
        let succeeded = parse(br#"{"type":"succeeded","at":"2026-01-01T00:00:32+00:00","job_id":"j1"}"#);
        assert!(matches!(succeeded, Ok(LogEvent { what: What::Succeeded(_), .. })));
    }

    #[test]
    fn what_is_no_event_says_what_is_wrong_with_it() {
        const AT: &str = r#""at":"2026-01-01T00:00:00Z""#;
        let cases = [
            ("nonsense".to_owned(), "it is not a JSON object in UTF-8: it begins with nonsense"),
            ("[]".to_owned(), "it is not a JSON object in UTF-8: it begins with []"),
            ("{".to_owned(), "it is not a JSON object in UTF-8: EOF while parsing an object"),
            (r#"{"type":"charge"}"#.to_owned(), "at is missing; expected an RFC 3339 time"),
            (r#"{"at":1768471200,"type":"failed","job_id":"j"}"#.to_owned(), "at is 1768471200; expected"),
            (r#"{"at":"2026-01-01T00:00:00","type":"failed","job_id":"j"}"#.to_owned(), "at is \"2026-"),
            (format!(r#"{{{AT},"job_id":"j"}}"#), "type is missing; expected \"charge\""),
            (format!(r#"{{{AT},"type":"refund","job_id":"j"}}"#), "type is \"refund\"; expected"),
            (format!(r#"{{{AT},"type":"failed"}}"#), "job_id is missing"),
            (format!(r#"{{{AT},"type":"failed","job_id":{{"$ne":1}}}}"#), "job_id is {\"$ne\":1}"),
            (format!(r#"{{{AT},"type":"failed","job_id":"j","attempt":0}}"#), "attempt is 0"),
            (format!(r#"{{{AT},"type":"charge","job_id":"j","cost":4}}"#), "account_id is missing"),
            (
                format!(r#"{{{AT},"type":"charge","job_id":"j","account_id":" ","cost":4}}"#),
                "account_id consists",
            ),
            (format!(r#"{{{AT},"type":"charge","job_id":"j","account_id":"a","cost":0}}"#), "cost is 0"),
            (format!(r#"{{{AT},"type":"charge","job_id":"j","account_id":"a","cost":4.0}}"#), "cost is 4.0"),
            (
                format!(r#"{{{AT},"type":"charge","job_id":"j","account_id":"a","cost":"4"}}"#),
                "cost is \"4\"",
            ),
            (
                format!(r#"{{{AT},"type":"charge","job_id":"j","account_id":"a","cost":9007199254740992}}"#),
                "cost is 9007199254740992",
            ),
            (format!(r#"{{{AT},{AT},"type":"failed","job_id":"j"}}"#), "it is not a JSON object"),
        ];
        for (line, reason) in cases {
            let found = parse(line.as_bytes()).unwrap_err().to_string();
            assert!(found.starts_with(reason), "{line}: {found}");
        }
        assert!(matches!(parse(b"{\"at\":\"\xff\"}"), Err(NotAnEvent::Json(_))));
    }
}
