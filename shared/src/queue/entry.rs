//! What waits in the queue, and the one parser of what anybody may push there.
//!
//! Pure. The scripts never parse an entry: they move bytes that this parser has judged.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use super::{DeadLetter, Digest};
use crate::clock::Timestamp;
use crate::event::shortened;
use crate::job::{IdError, JobId, MAX_ATTEMPT};

/// The range in which a `not_before` is epoch milliseconds (2001 to 5138), both ends included. Smaller is a delay or
/// seconds, larger micro- or nanoseconds: both would be due at once or never, so both are malformed.
pub const EPOCH_MS: std::ops::RangeInclusive<i64> = 1_000_000_000_000..=100_000_000_000_000;
/// The longest malformed text that is kept as it is.
pub const MAX_KEPT_TEXT: usize = 4096;

/// A retry that waits: the attempt after `attempts` failures of the job, not before a time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RetryEntry {
    /// The job.
    pub job_id: JobId,
    /// Its failures so far, 1 or more.
    pub attempts: u32,
    /// When it is due.
    pub not_before: Timestamp,
}

/// Why bytes are no retry entry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// Not JSON at all, or not an object with the three fields.
    #[error("not a retry entry: {0}; expected {{\"job_id\",\"attempts\",\"not_before\"}}")]
    Shape(String),
    /// The job's id is none.
    #[error("job_id {0}")]
    JobId(#[from] IdError),
    /// Attempts out of range.
    #[error("attempts is {0}; expected a whole number from 1 to {MAX_ATTEMPT}")]
    Attempts(String),
    /// A time that is neither epoch milliseconds nor RFC 3339 with an offset.
    #[error(
        "not_before is {0}; expected epoch milliseconds (10^12 to 10^14) or an RFC 3339 time with an offset"
    )]
    NotBefore(String),
}

#[derive(Serialize)]
struct Canonical<'a> {
    job_id: &'a JobId,
    attempts: u32,
}

#[derive(Serialize)]
struct Pushed<'a> {
    job_id: &'a JobId,
    attempts: u32,
    not_before: PushedTime,
}

/// As [`parse_entry`] takes it back.
#[derive(Serialize)]
#[serde(untagged)]
enum PushedTime {
    EpochMs(i64),
    Rfc3339(Timestamp),
}

impl From<Timestamp> for PushedTime {
    fn from(at: Timestamp) -> Self {
        let ms = at.as_millis();
        if EPOCH_MS.contains(&ms) { Self::EpochMs(ms) } else { Self::Rfc3339(at) }
    }
}

#[derive(Deserialize)]
struct Foreign<'a> {
    job_id: String,
    #[serde(borrow)]
    attempts: &'a RawValue,
    #[serde(borrow)]
    not_before: &'a RawValue,
}

#[derive(Deserialize)]
struct Member {
    job_id: String,
    attempts: u32,
}

impl RetryEntry {
    /// The form in which it stands in parked and in flight, the same for every producer and every time:
    /// `{"job_id":"…","attempts":1}`.
    pub fn canonical(&self) -> String {
        canonical(&self.job_id, self.attempts)
    }

    /// The form in which it is pushed: `{"job_id":"…","attempts":1,"not_before":1768471200000}`. A time that as a number
    /// would pass for something else, as in the replay of a log of 1999, is written as RFC 3339.
    pub fn pushed(&self) -> String {
        let not_before = self.not_before.into();
        let pushed = Pushed { job_id: &self.job_id, attempts: self.attempts, not_before };
        serde_json::to_string(&pushed).expect("strings and numbers are always JSON")
    }
}

/// The canonical form of `(job, attempts)`.
pub fn canonical(job_id: &JobId, attempts: u32) -> String {
    serde_json::to_string(&Canonical { job_id, attempts }).expect("a string and a number are always JSON")
}

/// Reads a member of parked or in flight back.
///
/// # Errors
/// [`EntryError`] for a member that another program put there and that is none.
pub fn parse_member(member: &[u8]) -> Result<(JobId, u32), EntryError> {
    let parsed: Member = object(member)?;
    let job_id = JobId::new(parsed.job_id)?;
    if !(1..=MAX_ATTEMPT).contains(&parsed.attempts) {
        return Err(EntryError::Attempts(parsed.attempts.to_string()));
    }
    Ok((job_id, parsed.attempts))
}

/// Reads what anybody pushed to the list.
///
/// # Errors
/// [`EntryError`] says which part is wrong and what it should be.
pub fn parse_entry(raw: &[u8]) -> Result<RetryEntry, EntryError> {
    let parsed: Foreign<'_> = object(raw)?;
    let attempts = serde_json::from_str::<u32>(parsed.attempts.get())
        .ok()
        .filter(|k| (1..=MAX_ATTEMPT).contains(k))
        .ok_or_else(|| EntryError::Attempts(shortened(parsed.attempts.get())))?;
    let not_before = parse_time(parsed.not_before.get())
        .ok_or_else(|| EntryError::NotBefore(shortened(parsed.not_before.get())))?;
    Ok(RetryEntry { job_id: JobId::new(parsed.job_id)?, attempts, not_before })
}

/// Reads the fields of an object. Serde would take an array for one as well, by position.
fn object<'a, T: Deserialize<'a>>(raw: &'a [u8]) -> Result<T, EntryError> {
    // Looked at as a whole: the parser does not look into what it skips.
    let text = std::str::from_utf8(raw).map_err(|e| EntryError::Shape(e.to_string()))?;
    if !text.trim_ascii_start().starts_with('{') {
        return Err(EntryError::Shape("it is no JSON object".to_owned()));
    }
    // Shortened, because the parser repeats a wrong value whole.
    serde_json::from_str(text).map_err(|e| EntryError::Shape(shortened(&e.to_string())))
}

fn parse_time(json: &str) -> Option<Timestamp> {
    match serde_json::from_str::<Value>(json).ok()? {
        Value::Number(ms) => ms.as_i64().filter(|ms| EPOCH_MS.contains(ms)).map(Timestamp::from_millis),
        Value::String(text) => Timestamp::parse_rfc3339(&text),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// What is kept of bytes that are no retry entry: the text, or size and SHA-256 where it is large or no text.
pub fn malformed(raw: &[u8]) -> DeadLetter {
    match std::str::from_utf8(raw) {
        Ok(text) if text.len() <= MAX_KEPT_TEXT => DeadLetter::MalformedText { payload: text.to_owned() },
        Ok(_) | Err(_) => {
            let sha256 = Sha256::digest(raw).iter().map(|byte| format!("{byte:02x}")).collect();
            DeadLetter::MalformedBytes { payload: Digest { bytes: raw.len(), sha256 } }
        }
    }
}

impl DeadLetter {
    /// The line that goes to the dead-letter list.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a dead letter holds strings and numbers only")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_read_back_as_it_was_pushed() {
        let entry = RetryEntry {
            job_id: JobId::new("j\"1").unwrap(),
            attempts: 3,
            not_before: Timestamp::from_millis(1_768_471_200_000),
        };
        assert_eq!(parse_entry(entry.pushed().as_bytes()), Ok(entry.clone()));
        assert_eq!(parse_member(entry.canonical().as_bytes()), Ok((entry.job_id.clone(), 3)));
        assert_eq!(entry.canonical(), r#"{"job_id":"j\"1","attempts":3}"#);
    }

    #[test]
    fn an_entry_of_any_year_is_read_back_as_it_was_pushed() {
        for time in [
            "0000-01-01T00:00:00.000Z",
            "0001-06-15T12:00:00.001Z",
            "1970-01-01T00:00:00.000Z",
            "2001-09-09T01:46:39.999Z",
            "2001-09-09T01:46:40.000Z",
            "2026-01-15T10:00:00.000Z",
            "5138-11-16T09:46:40.000Z",
            "5138-11-16T09:46:40.001Z",
            "9999-12-31T23:59:59.999Z",
        ] {
            let not_before = Timestamp::parse_rfc3339(time).unwrap();
            let entry = RetryEntry { job_id: JobId::new("j").unwrap(), attempts: 1, not_before };
            assert_eq!(parse_entry(entry.pushed().as_bytes()), Ok(entry), "{time}");
        }
    }

    #[test]
    fn a_foreign_time_may_be_rfc_3339_with_an_offset() {
        let entry =
            parse_entry(br#"{"x":[1],"not_before":"2026-01-15T11:00:00+01:00","attempts":1,"job_id":"j"}"#)
                .unwrap();
        assert_eq!(entry.not_before.as_millis(), 1_768_471_200_000);
    }

    #[test]
    fn both_ends_of_the_range_of_times_are_times() {
        for ms in [1_000_000_000_000, 100_000_000_000_000] {
            let raw = format!(r#"{{"job_id":"j","attempts":1,"not_before":{ms}}}"#);
            assert_eq!(parse_entry(raw.as_bytes()).unwrap().not_before.as_millis(), ms);
        }
    }

    #[test]
    fn what_is_no_entry_is_malformed() {
        let nested = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        for raw in [
            "",
            "null",
            "[]",
            r#"["j",1,1768471200000]"#,
            "42",
            "\"\"",
            "{not json",
            "{}",
            r#"{"attempts":1}"#,
            r#"{"job_id":"j","attempts":1}"#,
            r#"{"job_id":"","attempts":1,"not_before":1768471200000}"#,
            r#"{"job_id":{"$ne":1},"attempts":1,"not_before":1768471200000}"#,
            r#"{"job_id":"j","attempts":0,"not_before":1768471200000}"#,
            r#"{"job_id":"j","attempts":-1,"not_before":1768471200000}"#,
            r#"{"job_id":"j","attempts":1.5,"not_before":1768471200000}"#,
            r#"{"job_id":"j","attempts":"1","not_before":1768471200000}"#,
            r#"{"job_id":"j","attempts":2147483648,"not_before":1768471200000}"#,
            r#"{"job_id":"j","attempts":1,"not_before":999999999999}"#,
            r#"{"job_id":"j","attempts":1,"not_before":100000000000001}"#,
            r#"{"job_id":"j","attempts":1,"not_before":1.5e12}"#,
            r#"{"job_id":"j","attempts":1,"not_before":"2026-01-15T10:00:00"}"#,
            r#"{"job_id":"j","attempts":1,"not_before":null}"#,
            r#"{"job_id":"j","attempts":1,"not_before":1768471200000} x"#,
            r#"{"job_id":"j","job_id":"k","attempts":1,"not_before":1768471200000}"#,
            &nested,
        ] {
            assert!(parse_entry(raw.as_bytes()).is_err(), "{}", shortened(raw));
        }
        assert!(parse_entry(b"\xff\xfe").is_err());
    }

    #[test]
    fn a_member_that_is_an_array_is_none() {
        assert!(parse_member(br#"["j",1]"#).is_err());
        assert!(parse_member(br#" {"attempts":1,"job_id":"j"}"#).is_ok());
    }

    #[test]
    fn malformed_bytes_are_kept_as_text_or_as_a_digest() {
        assert_eq!(malformed(b"{not json").to_json(), r#"{"reason":"malformed","payload":"{not json"}"#);
        assert_eq!(
            malformed(b"\xff").to_json(),
            r#"{"reason":"malformed","payload":{"bytes":1,"sha256":"a8100ae6aa1940d0b663bb31cd466142ebbdbd5187131b92d93818987832eb89"}}"#
        );
        assert!(malformed(&vec![b'x'; 1 << 20]).to_json().len() < 200);
    }

    #[test]
    fn bytes_that_are_no_text_are_malformed_wherever_they_stand() {
        let raw = b"{\"job_id\":\"j\",\"attempts\":1,\"not_before\":1768471200000,\"x\":\"\xff\"}";
        assert!(matches!(parse_entry(raw), Err(EntryError::Shape(_))));
        assert!(matches!(parse_member(raw), Err(EntryError::Shape(_))));
    }

    #[test]
    fn what_is_wrong_with_an_entry_is_said_in_one_short_line() {
        let long = format!(r#"{{"job_id":"j","attempts":"{}\u2028"}}"#, "x".repeat(1 << 20));
        for raw in [long.as_str(), r#"{"job_id":"j","attempts":"a\u2028b"}"#] {
            let said = parse_member(raw.as_bytes()).unwrap_err().to_string();
            assert!(said.len() < 300 && !said.contains(['\n', '\u{2028}']), "{said}");
        }
    }
}
