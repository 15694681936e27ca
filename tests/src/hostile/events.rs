//! Completion events in every envelope and in none.

use std::collections::HashSet;

use fastrand::Rng;
use recoup::event::{CompletionEvent, MAX_RECORDS, News, Payload, Signal, parse_payload};
use recoup::job::MAX_REASON_CHARS;
use recoup::sources::Sources;
use serde_json::Value;

use super::json::{any_id, good_id, object, once_in, pick, quoted, shuffled, spoilt, value};
use super::{Input, check_id, check_line, oracle};

/// Bytes of the largest payload that Lambda takes.
const LARGEST: usize = 6 << 20;

/// A payload, and what must be read from it where that is known.
pub fn generate(rng: &mut Rng) -> Input {
    if once_in(rng, 5_000) {
        return large(rng).into();
    }
    if once_in(rng, 3) {
        return sure(rng);
    }
    let event = any_event(rng);
    let wrapped = (0..rng.usize(..4)).fold(event, |inner, _| any_envelope(rng, &inner));
    let payload = if once_in(rng, 2) { any_batch(rng, &wrapped) } else { wrapped };
    payload.into()
}

/// An event without a fault, in envelopes that are allowed: it must be read as it was meant.
fn sure(rng: &mut Rng) -> Input {
    let job_id = good_id(rng);
    let fields = vec![
        ("job_id", quoted(rng, &job_id)),
        ("attempt", rng.u32(1..=i32::MAX as u32).to_string()),
        ("reason", reason(rng)),
        ("amount", value_that_is_json(rng)),
    ];
    let mut payload = shuffled(fields, rng);
    if once_in(rng, 2) {
        payload = event_bridge(&payload);
    }
    if once_in(rng, 2) {
        payload = sns(rng, &payload);
    }
    if once_in(rng, 2) {
        payload = object(&[("Records", format!("[{}]", record(rng, "m-1", &payload)))]);
    }
    Input { bytes: payload.into_bytes(), meant: Some(job_id) }
}

fn value_that_is_json(rng: &mut Rng) -> String {
    let json = value(rng);
    if serde_json::from_str::<Value>(&json).is_ok() { json } else { "-1".to_owned() }
}

fn reason(rng: &mut Rng) -> String {
    let texts = ["worker timeout", "line one\nline two", "\u{1b}[31mred", "\u{2028}", "\u{1f4a5}", "\0"];
    let text = pick(rng, &texts).repeat(pick(rng, &[0, 1, 1, 1, 600]));
    quoted(rng, &text)
}

fn any_event(rng: &mut Rng) -> String {
    let job_id = any_id(rng);
    let fields = vec![
        ("job_id", quoted(rng, &job_id)),
        ("attempt", rng.u8(..4).to_string()),
        ("reason", reason(rng)),
        ("retryable", pick(rng, &["true", "false", "1", "null"]).to_owned()),
        ("event_id", value(rng)),
        ("occurred_at", value(rng)),
        ("account_id", pick(rng, &["\"a-1\"", "null"]).to_owned()),
    ];
    if once_in(rng, 2) { spoilt(fields, rng) } else { shuffled(fields, rng) }
}

fn event_bridge(detail: &str) -> String {
    object(&[
        ("id", "\"e-1\"".to_owned()),
        ("source", "\"jobs\"".to_owned()),
        ("detail-type", "\"Job Failed\"".to_owned()),
        ("detail", detail.to_owned()),
    ])
}

fn sns(rng: &mut Rng, message: &str) -> String {
    object(&[
        ("Type", "\"Notification\"".to_owned()),
        ("MessageId", "\"n-1\"".to_owned()),
        ("Message", quoted(rng, message)),
    ])
}

fn record(rng: &mut Rng, id: &str, body: &str) -> String {
    object(&[("messageId", format!("\"{id}\"")), ("body", quoted(rng, body))])
}

fn any_envelope(rng: &mut Rng, inner: &str) -> String {
    let text = quoted(rng, inner);
    match rng.u8(..4) {
        0 => event_bridge(inner),
        1 => sns(rng, inner),
        2 => spoilt(vec![("id", value(rng)), ("detail-type", value(rng)), ("detail", inner.to_owned())], rng),
        _ => spoilt(vec![("MessageId", value(rng)), ("Message", text)], rng),
    }
}

fn any_batch(rng: &mut Rng, inner: &str) -> String {
    let records: Vec<String> = (0..rng.usize(..12))
        .map(|n| match rng.u8(..6) {
            0 => value(rng),
            1 => {
                let body = quoted(rng, inner);
                spoilt(vec![("messageId", value(rng)), ("body", body)], rng)
            }
            2 => {
                let event = any_event(rng);
                record(rng, &format!("m-{n}"), &event)
            }
            _ => record(rng, &format!("m-{n}"), inner),
        })
        .collect();
    object(&[("Records", format!("[{}]", records.join(",")))])
}

/// As large as an invocation can be, in one field, in records, or in nothing at all.
fn large(rng: &mut Rng) -> String {
    match rng.u8(..6) {
        0 => object(&[("job_id", "\"j\"".to_owned()), ("reason", format!("\"{}\"", "x".repeat(LARGEST)))]),
        1 => object(&[("job_id", format!("\"{}\"", "x".repeat(LARGEST)))]),
        2 => object(&[("job_id", "\"j\"".to_owned()), ("x", format!("[{}0]", "0,".repeat(LARGEST / 2)))]),
        // More records than any queue sends, each as small as can be.
        3 => object(&[("Records", format!("[{}0]", "0,".repeat(LARGEST / 2)))]),
        4 => {
            let event = any_event(rng);
            let records: Vec<String> =
                (0..MAX_RECORDS).map(|n| record(rng, &format!("m-{n}"), &event)).collect();
            object(&[("Records", format!("[{}]", records.join(",")))])
        }
        _ => format!("{}{{\"job_id\":\"j\"}}", " ".repeat(LARGEST)),
    }
}

/// Whatever comes of a payload, these things are true of it.
pub fn check(input: &Input) -> Result<(), String> {
    // Bytes that are no text give nothing.
    let given = std::str::from_utf8(&input.bytes).map(oracle::given).unwrap_or_default();
    let sources = Sources::default();
    for signal in [Signal::Failed, Signal::Succeeded] {
        let parsed = parse_payload(signal, &sources, &input.bytes);
        if signal == Signal::Failed
            && let Some(meant) = &input.meant
        {
            check_meant(parsed.as_ref().ok(), meant)?;
        }
        match parsed {
            Err(error) => check_line(&error.to_string())?,
            Ok(Payload::One(news)) => check_news(&given, &news)?,
            Ok(Payload::Batch(records)) => {
                check_count(input, records.len())?;
                for record in records {
                    match record.event {
                        Ok(news) => check_news(&given, &news)?,
                        Err(error) => check_line(&error.to_string())?,
                    }
                    if record.message_id.as_deref() == Some("") {
                        return Err("a record has an empty message id".to_owned());
                    }
                }
            }
        }
    }
    Ok(())
}

fn check_meant(parsed: Option<&Payload>, meant: &str) -> Result<(), String> {
    let news = match parsed {
        Some(Payload::One(news)) => Some(news.as_ref()),
        Some(Payload::Batch(records)) => records.first().and_then(|record| record.event.as_ref().ok()),
        None => None,
    };
    match news {
        Some(News::Event(event)) if event.job_id.as_str() == meant && event.attempt.is_some() => Ok(()),
        _ => Err(format!("an event of job {meant:?} without a fault was read as {parsed:?}")),
    }
}

/// As many records come out as another parser finds, where that one can read the payload.
fn check_count(input: &Input, count: usize) -> Result<(), String> {
    let Ok(value) = serde_json::from_slice::<Value>(&input.bytes) else { return Ok(()) };
    let records = value["Records"].as_array().map(Vec::len);
    if records == Some(count) { Ok(()) } else { Err(format!("{count} records came out of {records:?}")) }
}

fn check_news(given: &HashSet<String>, news: &News) -> Result<(), String> {
    match news {
        News::Event(event) => check_event(given, event),
        News::Ignored(ignored) => check_line(ignored.status.as_deref().unwrap_or_default()),
    }
}

fn check_event(given: &HashSet<String>, event: &CompletionEvent) -> Result<(), String> {
    check_id(event.job_id.as_str())?;
    if !given.contains(event.job_id.as_str()) {
        return Err(format!("the id {:?} does not stand in the input", event.job_id.as_str()));
    }
    if event.attempt.is_some_and(|attempt| !(1..=i32::MAX as u32).contains(&attempt)) {
        return Err(format!("attempt {:?}", event.attempt));
    }
    if event.reason.as_ref().is_some_and(|reason| reason.chars().count() > MAX_REASON_CHARS) {
        return Err("the reason was not cut".to_owned());
    }
    Ok(())
}
