//! The schemas in `schemas/` against the code: what the parsers take they take, what the code writes they describe.
//!
//! A parser reads text and a schema reads values, so a schema cannot see a field that stands twice, and takes `1.0` for
//! a whole number; the parsers refuse both ([`BEYOND_SCHEMAS`]). And the parser of times takes a blank or any other
//! character for the `T` ([`BESIDE_SCHEMAS`]). These are the only differences.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use recoup::clock::Timestamp;
use recoup::event::{Payload, Signal, parse_bare, parse_payload};
use recoup::handlers::drain::DrainCounts;
use recoup::job::{AccountId, JobId, LastError};
use recoup::queue::entry::{malformed, parse_member};
use recoup::queue::{DeadJob, DeadLetter, DispatchMessage, RetryEntry, parse_entry};
use recoup::sources::Sources;
use recoup::trace::TraceContext;
use recoup_tests::contracts::Contracts;
use recoup_tests::runtime_api::Process;
use serde_json::{Map, Value, json};
use tempfile::TempDir;

/// The schemas of what the code writes: nothing may be missing there, and nothing be added.
const WRITTEN: [&str; 9] = [
    "audit-answer",
    "batch-answer",
    "dead-letter",
    "dispatch-message",
    "drain-answer",
    "job-failed-answer",
    "job-succeeded-answer",
    "ledger-row",
    "parked-entry",
];

/// What the parsers refuse and no schema can.
const BEYOND_SCHEMAS: [&str; 3] = [
    r#"{"job_id":"j","attempt":1.0,"attempts":1.0,"not_before":1768471200000}"#,
    r#"{"job_id":"j","attempt":1,"attempts":1,"not_before":1768471200000.0}"#,
    r#"{"job_id":"j","job_id":"j","attempts":1,"not_before":1768471200000}"#,
];

/// Times that the parser takes and the schemas do not.
const BESIDE_SCHEMAS: [&str; 2] = ["2026-01-01 00:00:00Z", "2026-01-01_00:00:00Z"];

/// Values for a field of any type.
fn values() -> Vec<Value> {
    let mut values = vec![
        json!(null),
        json!(true),
        json!(-1),
        json!(0),
        json!(1),
        json!(40),
        json!(1.5),
        json!(2_147_483_647_u32),
        json!(2_147_483_648_u32),
        json!(999_999_999_999_u64),
        json!(1_000_000_000_000_u64),
        json!(100_000_000_000_000_u64),
        json!(100_000_000_000_001_u64),
        json!(9_007_199_254_740_991_u64),
        json!(9_007_199_254_740_992_u64),
        json!(1e300),
        json!([]),
        json!(["j"]),
        json!({}),
        json!({"$ne": null}),
        json!("j".repeat(256)),
        json!("j".repeat(257)),
        json!("ö".repeat(256)),
        json!("x".repeat(501)),
    ];
    let texts = [
        "",
        " ",
        "\u{3000}\u{a0}",
        "j",
        " j ",
        "1",
        "true",
        "j\n",
        "j\u{0}",
        "j\u{85}",
        "\u{2028}j",
        "charge",
        "failed",
        "succeeded",
        "Failed",
    ];
    values.extend(texts.into_iter().chain(TIMES).map(Value::from));
    values
}

/// Times, and what is nearly one.
const TIMES: [&str; 24] = [
    "2026-01-01T00:00:00Z",
    "2026-01-01T00:00:00.123456789+14:00",
    "2026-01-01T00:00:00-00:00",
    "2026-01-01t00:00:00z",
    "2026-01-01T00:00:60Z",
    "2016-12-31T23:59:60Z",
    "2017-01-01T00:59:60+01:00",
    "2026-01-01T00:00:00,5Z",
    "+2026-01-01T00:00:00Z",
    "2026-01-01T00:00:00",
    "2026-01-01T00:00Z",
    "2026-01-01",
    "2026-02-30T00:00:00Z",
    "2024-02-29T23:59:59Z",
    "2026-02-29T00:00:00Z",
    "2026-13-01T00:00:00Z",
    "2026-01-01T24:00:00Z",
    "2026-01-01T23:60:00Z",
    "2026-01-01T00:00:00.Z",
    "2026-01-01T00:00:00+0100",
    "2026-01-01T00:00:00+25:00",
    "0000-01-01T00:00:00Z",
    "9999-12-31T23:59:59.999Z",
    "10000-01-01T00:00:00Z",
];

/// `base` as it is, without each of its fields, with each of `fields` set to each of [`values`], and what is no object.
fn variations(base: &Value, fields: &[&str]) -> Vec<String> {
    let mut variations = vec![base.clone(), json!([base]), json!(null), json!("j"), json!(7)];
    for field in fields {
        let mut without = base.clone();
        without.as_object_mut().unwrap().remove(*field);
        variations.push(without);
        variations.extend(values().into_iter().map(|value| with(base, field, value)));
    }
    variations.push(with(base, "unknown", json!({"amount": [1]})));
    let mut texts: Vec<String> = variations.iter().map(Value::to_string).collect();
    texts.extend(["", "{", "{}", "{} x", "nonsense", "\u{feff}{}"].map(ToOwned::to_owned));
    texts
}

fn with(base: &Value, field: &str, value: Value) -> Value {
    let mut changed = base.clone();
    changed[field] = value;
    changed
}

/// Requires one verdict of the parser and of the schema on each text, and both verdicts among them.
fn agree(schema: &str, texts: &[String], parses: impl Fn(&str) -> bool) {
    let mut contracts = Contracts::load();
    let mut taken = 0;
    for text in texts {
        let verdict = parses(text);
        assert_eq!(contracts.takes(schema, text), verdict, "schema and parser differ over {text}");
        taken += usize::from(verdict);
    }
    assert!(0 < taken && taken < texts.len(), "{taken} of {} are taken", texts.len());
}

/// What the files in `tests/cases` do: the value of each step of this name.
fn in_cases(action: &str) -> Vec<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let cases = files.filter(|path| path.extension().is_some_and(|extension| extension == "json"));
    let mut found = Vec::new();
    for path in cases {
        let case: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let steps = case["steps"].as_array().unwrap();
        found.extend(steps.iter().filter_map(|step| step.get(action).cloned()));
    }
    assert!(!found.is_empty(), "no case has a step {action}");
    found
}

/// A string as it stands, anything else as JSON: as the cases are played.
fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned)
}

#[test]
fn every_schema_takes_its_own_examples() {
    let mut contracts = Contracts::load();
    for name in contracts.names() {
        let examples = examples(&contracts, &name);
        assert!(name == "common" || !examples.is_empty(), "{name} has no example");
        for example in examples {
            contracts.check(&name, &example).unwrap();
        }
    }
}

fn examples(contracts: &Contracts, name: &str) -> Vec<Value> {
    contracts.file(name)["examples"].as_array().cloned().unwrap_or_default()
}

#[test]
fn what_we_write_has_no_other_field_and_none_of_another_type() {
    let mut contracts = Contracts::load();
    for name in WRITTEN {
        for example in examples(&contracts, name) {
            let refused = |changed: &Value| contracts.check(name, changed).expect_err(&changed.to_string());
            spoilt(&example).iter().map(refused).for_each(drop);
        }
    }
}

/// The example with a field too many, a field too few, and each field of another type, at the top and in each object.
fn spoilt(example: &Value) -> Vec<Value> {
    let Some(fields) = example.as_object() else { return Vec::new() };
    let mut spoilt = vec![with(example, "unknown", json!(1))];
    for (field, value) in fields {
        let mut without: Map<String, Value> = fields.clone();
        without.remove(field);
        spoilt.push(without.into());
        spoilt.push(with(example, field, json!([[]])));
        spoilt.extend(self::spoilt(value).into_iter().map(|inner| with(example, field, inner)));
    }
    spoilt
}

#[test]
fn an_id_has_the_characters_that_the_code_takes() {
    let mut contracts = Contracts::load();
    for character in '\0'..='\u{3100}' {
        for id in [character.to_string(), format!("j{character}")] {
            let verdict = contracts.check("common#/$defs/id", &json!(id)).is_ok();
            assert_eq!(verdict, JobId::new(&id).is_ok(), "{:04x}", u32::from(character));
        }
    }
}

#[test]
fn a_completion_event_is_what_the_parser_takes() {
    let contracts = Contracts::load();
    let fields =
        ["job_id", "attempt", "reason", "retryable", "event_id", "occurred_at", "account_id", "trace"];
    let mut texts: Vec<String> = examples(&contracts, "completion-event")
        .iter()
        .flat_map(|example| variations(example, &fields))
        .collect();
    texts.extend(["failed", "succeeded"].into_iter().flat_map(in_cases).map(|event| event.to_string()));
    agree("completion-event", &texts, |text| parse_bare(text).is_ok());
}

#[test]
fn a_function_takes_what_its_schema_takes() {
    let contracts = Contracts::load();
    let events = variations(&json!({"job_id": "j", "attempt": 1}), &["job_id", "attempt"]);
    let mut texts = Vec::new();
    for event in events.iter().filter_map(|text| serde_json::from_str::<Value>(text).ok()) {
        let bus_event = json!({"id": "e", "source": "s", "detail-type": "Job Failed", "detail": event});
        texts.push(bus_event.to_string());
        texts.push(json!({"MessageId": "n", "Message": event.to_string()}).to_string());
        texts.push(json!({"MessageId": "n", "Message": bus_event.to_string()}).to_string());
    }
    for example in examples(&contracts, "function-input") {
        texts.extend(variations(&example, &["detail", "detail-type", "source", "id", "job_id", "Message"]));
    }
    texts
        .push(json!({"source": "recoup", "detail-type": "Retry Due", "detail": {"job_id": "j"}}).to_string());
    texts.extend(in_cases("raw").iter().map(|step| text(&step["payload"])));
    agree("function-input", &texts, |text| {
        parse_payload(Signal::Failed, &Sources::default(), text.as_bytes()).is_ok_and(|payload| match payload
        {
            Payload::One(_) => true,
            Payload::Batch(records) => records.iter().all(|record| record.event.is_ok()),
        })
    });
}

#[test]
fn a_record_is_reported_where_the_schema_refuses_it() {
    let mut contracts = Contracts::load();
    let events = variations(&json!({"job_id": "j", "attempt": 1}), &["job_id", "attempt"]);
    let mut records: Vec<Value> = events.iter().map(|body| json!({"messageId": "m", "body": body})).collect();
    records.extend(values().into_iter().map(|body| json!({"messageId": "m", "body": body})));
    records.push(json!({"messageId": "m"}));
    for (sns, body) in
        [(json!({"Message": "{\"job_id\":\"j\"}"}), json!("{}")), (json!({"job_id": "j"}), json!(null))]
    {
        records.push(json!({"EventSource": "aws:sns", "Sns": sns}));
        records.push(json!({"messageId": "m", "Sns": sns, "body": body}));
        records.push(json!({"Sns": {"Message": sns}}));
    }
    for batch in in_cases("batch") {
        let bodies = batch["bodies"].as_array().unwrap();
        records.extend(bodies.iter().map(|body| json!({"messageId": "m", "body": text(body)})));
    }
    let batch = json!({ "Records": records }).to_string();
    let Ok(Payload::Batch(read)) = parse_payload(Signal::Failed, &Sources::default(), batch.as_bytes())
    else {
        panic!("no batch")
    };
    assert_eq!(read.len(), records.len());
    for (record, read) in records.iter().zip(read) {
        let verdict = contracts.check("function-input#/$defs/record", record).is_ok();
        assert_eq!(verdict, read.event.is_ok(), "{record}");
    }
}

#[test]
fn a_retry_entry_is_what_the_parser_takes() {
    let contracts = Contracts::load();
    let mut texts: Vec<String> = examples(&contracts, "retry-entry")
        .iter()
        .flat_map(|example| variations(example, &["job_id", "attempts", "not_before"]))
        .collect();
    texts.extend(in_cases("push").iter().map(|step| text(&step["value"])));
    texts.push(retry(1_768_471_200_000).pushed());
    texts.push(retry(0).pushed());
    agree("retry-entry", &texts, |text| parse_entry(text.as_bytes()).is_ok());
}

fn retry(not_before_ms: i64) -> RetryEntry {
    let not_before = Timestamp::from_millis(not_before_ms);
    RetryEntry { job_id: JobId::new("j").unwrap(), attempts: 1, not_before }
}

#[test]
fn a_parked_entry_is_read_back_and_what_the_schema_takes_is_one() {
    let mut contracts = Contracts::load();
    let written = retry(0).canonical();
    contracts.check("parked-entry", &serde_json::from_str(&written).unwrap()).unwrap();
    for text in variations(&json!({"job_id": "j", "attempts": 1}), &["job_id", "attempts"]) {
        // The parser passes over fields that are not ours, which we never write.
        let parses = parse_member(text.as_bytes()).is_ok() && !text.contains("unknown");
        assert_eq!(contracts.takes("parked-entry", &text), parses, "{text}");
    }
}

#[test]
fn where_schemas_and_parsers_differ_on_purpose() {
    let mut contracts = Contracts::load();
    for text in BEYOND_SCHEMAS {
        assert!(parse_entry(text.as_bytes()).is_err(), "{text}");
        assert!(contracts.takes("retry-entry", text), "{text}");
    }
    let [whole, _, twice] = BEYOND_SCHEMAS;
    for text in [whole, twice] {
        assert!(parse_bare(text).is_err(), "{text}");
        assert!(contracts.takes("completion-event", text), "{text}");
    }
    for time in BESIDE_SCHEMAS {
        assert!(Timestamp::parse_rfc3339(time).is_some(), "{time}");
        assert!(contracts.check("common#/$defs/time_read", &json!(time)).is_err(), "{time}");
    }
}

#[tokio::test]
async fn a_line_of_an_event_log_is_what_replay_takes() {
    let mut contracts = Contracts::load();
    let mut lines = Vec::new();
    for example in examples(&contracts, "event-log-line") {
        let fields = ["at", "type", "job_id", "account_id", "cost", "attempt", "reason", "retryable"];
        lines.extend(variations(&example, &fields));
    }
    lines.retain(|line| !line.trim().is_empty());
    let directory = TempDir::new().unwrap();
    let log = directory.path().join("log.jsonl");
    std::fs::write(&log, lines.join("\n")).unwrap();
    let database = directory.path().join("recoup.db");
    let arguments = ["replay", log.to_str().unwrap(), "--db", database.to_str().unwrap(), "--json"];
    let mut process = Process::start("recoup", &arguments, &[]);
    process.status().await;
    let refused = refused_lines(&process.stderr());
    for (number, line) in (1_usize..).zip(&lines) {
        let is_refused = refused.contains(&number);
        assert_eq!(contracts.takes("event-log-line", line), !is_refused, "{line}\n{}", process.stderr());
    }
}

/// The numbers of the lines that are no event. Those that are one and that the ledger refused, such as a signal for a job
/// that nobody charged, are not among them.
fn refused_lines(stderr: &str) -> Vec<usize> {
    let rejected = stderr.lines().filter_map(|line| line.strip_prefix("line ")?.split_once(": rejected: "));
    rejected
        .filter(|(_, why)| !why.starts_with("job ") && !why.starts_with("charge conflict"))
        .map(|(number, _)| number.parse().unwrap())
        .collect()
}

#[test]
fn what_goes_to_workers_and_to_people_is_as_described() {
    let mut contracts = Contracts::load();
    let (job_id, account_id) = (JobId::new("j").unwrap(), AccountId::new("a").unwrap());
    let trace = TraceContext::new("Root=1-63441c4a-abcdef012345678912345678");
    for trace in [None, trace.clone()] {
        let message =
            DispatchMessage { job_id: job_id.clone(), account_id: account_id.clone(), attempt: 2, trace };
        contracts.check("dispatch-message", &serde_json::to_value(message).unwrap()).unwrap();
    }
    let at = Timestamp::from_millis(0);
    let dead = |last_error| DeadJob {
        job_id: job_id.clone(),
        account_id: account_id.clone(),
        attempts: 5,
        last_error,
        at,
    };
    for letter in [
        DeadLetter::AttemptsExhausted(dead(Some(LastError {
            reason: "worker timeout".to_owned(),
            at,
            trace,
        }))),
        DeadLetter::ClaimsExhausted(dead(None)),
        malformed(b"{not json"),
        malformed(b"\xff"),
    ] {
        contracts.check("dead-letter", &serde_json::from_str(&letter.to_json()).unwrap()).unwrap();
    }
    contracts.check("drain-answer", &serde_json::to_value(DrainCounts::default()).unwrap()).unwrap();
}
