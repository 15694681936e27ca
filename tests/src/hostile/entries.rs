//! What anybody may push to the retry list, or put into parked.

use fastrand::Rng;
use recoup::clock::Timestamp;
use recoup::job::{JobId, MAX_ATTEMPT};
use recoup::queue::entry::{EPOCH_MS, MAX_KEPT_TEXT, malformed, parse_member};
use recoup::queue::{RetryEntry, parse_entry};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::json::{any_id, deep, good_id, once_in, pick, quoted, shuffled, spoilt, value};
use super::{Input, check_id, check_line, oracle};

const TIMES: [&str; 12] = [
    "1768471200000",
    "1000000000000",
    "999999999999",
    "100000000000000",
    "100000000000001",
    "1768471200",
    "1768471200000.0",
    "\"2026-01-15T10:00:00Z\"",
    "\"2026-01-15T10:00:00\"",
    "\"9999-12-31T23:59:59+23:59\"",
    "\"0000-01-01T00:00:00-23:59\"",
    "-1",
];

/// An entry, and the job that must be read from it where that is known.
pub fn generate(rng: &mut Rng) -> Input {
    if once_in(rng, 5_000) {
        let junk = if once_in(rng, 2) { vec![rng.u8(..); 6 << 20] } else { deep(rng).into_bytes() };
        return Input { bytes: junk, meant: None };
    }
    let (job_id, is_sure) = if once_in(rng, 3) { (good_id(rng), true) } else { (any_id(rng), false) };
    let attempts = rng.u32(1..=MAX_ATTEMPT).to_string();
    let not_before = if is_sure { rng.i64(EPOCH_MS).to_string() } else { pick(rng, &TIMES).to_owned() };
    let fields = vec![("job_id", quoted(rng, &job_id)), ("attempts", attempts), ("not_before", not_before)];
    if is_sure {
        return Input { bytes: shuffled(fields, rng).into_bytes(), meant: Some(job_id) };
    }
    match rng.u8(..4) {
        0 => value(rng).into(),
        1 => shuffled(fields, rng).into(),
        _ => spoilt(fields, rng).into(),
    }
}

/// Whatever comes of an entry, these things are true of it.
pub fn check(input: &Input) -> Result<(), String> {
    let raw = &input.bytes;
    match parse_member(raw) {
        Err(error) => check_line(&error.to_string())?,
        Ok((job_id, attempts)) => check_read(raw, &job_id, attempts)?,
    }
    match parse_entry(raw) {
        Err(_) if input.meant.is_some() => Err("an entry without a fault was refused".to_owned()),
        Err(error) => check_line(&error.to_string()).and_then(|()| check_kept(raw)),
        Ok(entry) => {
            check_read(raw, &entry.job_id, entry.attempts)?;
            check_round_trip(&entry)?;
            let meant = input.meant.as_deref().unwrap_or(entry.job_id.as_str());
            if entry.job_id.as_str() == meant {
                Ok(())
            } else {
                Err(format!("{meant:?} was read as {entry:?}"))
            }
        }
    }
}

fn check_read(raw: &[u8], job_id: &JobId, attempts: u32) -> Result<(), String> {
    check_id(job_id.as_str())?;
    let text = std::str::from_utf8(raw).map_err(|_| "an entry was read from bytes that are no text")?;
    if !oracle::given(text).contains(job_id.as_str()) {
        return Err(format!("the id {:?} does not stand in the entry", job_id.as_str()));
    }
    if (1..=MAX_ATTEMPT).contains(&attempts) { Ok(()) } else { Err(format!("attempts {attempts}")) }
}

fn check_round_trip(entry: &RetryEntry) -> Result<(), String> {
    let again = parse_entry(entry.pushed().as_bytes());
    if again.as_ref() != Ok(entry) {
        return Err(format!("{entry:?} comes back as {again:?}"));
    }
    let member = parse_member(entry.canonical().as_bytes());
    if member != Ok((entry.job_id.clone(), entry.attempts)) {
        return Err(format!("the canonical form of {entry:?} comes back as {member:?}"));
    }
    let ms = entry.not_before.as_millis();
    if Timestamp::from_millis(ms) == entry.not_before { Ok(()) } else { Err(format!("{ms} is another time")) }
}

/// Nothing of what is refused is lost: the dead letter is the bytes, or what they are known by.
fn check_kept(raw: &[u8]) -> Result<(), String> {
    let letter: Value = serde_json::from_str(&malformed(raw).to_json()).map_err(|error| error.to_string())?;
    let expected = match std::str::from_utf8(raw) {
        Ok(text) if text.len() <= MAX_KEPT_TEXT => json!(text),
        Ok(_) | Err(_) => json!({ "bytes": raw.len(), "sha256": format!("{:x}", Sha256::digest(raw)) }),
    };
    if letter == json!({ "reason": "malformed", "payload": expected }) {
        Ok(())
    } else {
        Err(format!("the dead letter is {}", super::shown(letter.to_string().as_bytes())))
    }
}
