//! Every envelope, every wrong field, and arbitrary bytes.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn one(payload: &Value) -> Result<CompletionEvent, EventError> {
    one_of(payload.to_string().as_bytes())
}

fn parse(signal: Signal, payload: &[u8]) -> Result<Payload, EventError> {
    parse_payload(signal, &Sources::default(), payload)
}

fn told(news: News) -> CompletionEvent {
    match news {
        News::Event(event) => event,
        News::Ignored(ignored) => panic!("{ignored:?}"),
    }
}

fn one_of(payload: &[u8]) -> Result<CompletionEvent, EventError> {
    match parse(Signal::Failed, payload)? {
        Payload::One(news) => Ok(told(*news)),
        Payload::Batch(_) => panic!("a batch"),
    }
}

fn events(records: Vec<Record>) -> Vec<CompletionEvent> {
    records.into_iter().map(|record| told(record.event.unwrap())).collect()
}

fn batch(payload: &Value) -> Vec<Record> {
    match parse(Signal::Failed, payload.to_string().as_bytes()).unwrap() {
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
    assert_eq!(
        event,
        CompletionEvent {
            job_id: JobId::new("job-1").unwrap(),
            attempt: Some(3),
            reason: Some("no GPU".to_owned()),
            retryable: false,
            event_id: Some(EventId::new("e").unwrap()),
            occurred_at: Timestamp::parse_rfc3339("2026-01-01T00:00:00Z"),
            account_id: Some(AccountId::new("a").unwrap()),
            trace: None,
        }
    );
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
fn the_trace_is_the_events_own_or_else_what_sqs_says_beside_it() {
    let (own, beside) =
        ("Root=1-63441c4a-abcdef012345678912345678", "Root=1-5759e988-bd862e3fe1be46a994272793");
    let trace = |event: &CompletionEvent| event.trace.as_ref().map(|trace| trace.as_str().to_owned());
    assert_eq!(trace(&one(&json!({"job_id": "j", "trace": own})).unwrap()).as_deref(), Some(own));
    assert_eq!(one(&json!({"job_id": "j", "trace": 5})).unwrap().trace, None);
    for (body, expected) in [(json!({"job_id": "j"}), beside), (json!({"job_id": "j", "trace": own}), own)] {
        let mut batch_of_one: Value = serde_json::from_str(&sqs(&[body]).to_string()).unwrap();
        batch_of_one["Records"][0]["attributes"] = json!({ "AWSTraceHeader": beside, "SentTimestamp": "1" });
        let events = events(batch(&batch_of_one));
        assert_eq!(trace(&events[0]).as_deref(), Some(expected));
    }
}

#[test]
fn a_notification_of_a_service_has_all_three_of_its_fields() {
    let whole = json!({"JobId": "n", "Status": "FAILED", "API": "StartLabelDetection"});
    assert_eq!(one(&whole).unwrap().job_id.as_str(), "n");
    for place in 0..3 {
        for keep in [true, false] {
            let mut part = whole.clone();
            part.as_object_mut()
                .unwrap()
                .retain(|name, _| (name == ["JobId", "Status", "API"][place]) == keep);
            let error = one(&part).unwrap_err().to_string();
            assert!(error.starts_with("job_id is missing"), "{part}: {error}");
        }
    }
}

#[test]
fn what_an_error_repeats_is_one_line() {
    assert_eq!(shortened("a\nb\u{2028}c\u{2029}d\u{9b}e"), "a b c d e");
    assert_eq!(shortened(" \n"), "empty");
}

#[test]
fn a_bad_time_or_id_of_an_event_costs_nobody_a_refund() {
    let bare = one(&json!({"job_id": "j"})).unwrap();
    for time in [json!("2026-01-01"), json!("yesterday"), json!(""), json!(1_768_471_200), json!({"s": 1})] {
        assert_eq!(one(&json!({"job_id": "j", "occurred_at": time})).unwrap(), bare, "{time}");
    }
    for id in ["", " ", "e\n1", &"e".repeat(257)] {
        let event = json!({"job_id": "j", "event_id": id});
        assert_eq!(one(&event).unwrap(), bare, "{id:?}");
        assert_eq!(one(&event_bridge(&event)).unwrap().event_id, EventId::new("eb-1").ok(), "{id:?}");
    }
}

#[test]
fn the_event_id_defaults_to_the_innermost_envelopes() {
    let bare = json!({"job_id": "j"});
    let id = |event: &CompletionEvent| event.event_id.clone().unwrap().as_str().to_owned();
    assert_eq!(id(&one(&event_bridge(&bare)).unwrap()), "eb-1");
    assert_eq!(id(&one(&event_bridge(&json!({"job_id": "j", "event_id": "own"}))).unwrap()), "own");
    let bodies = [bare.clone(), event_bridge(&bare), sns(&bare), sns(&event_bridge(&bare))];
    let ids: Vec<String> = events(batch(&sqs(&bodies))).iter().map(id).collect();
    assert_eq!(ids, ["m0", "eb-1", "sns-1", "eb-1"]);
    let unusable = json!({"id": "", "detail": {"job_id": "j"}});
    assert_eq!(id(&events(batch(&sqs(&[unusable])))[0]), "m0");
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
fn a_retry_that_is_due_is_no_news_of_an_attempt() {
    let mut event = event_bridge(&json!({"job_id": "j", "account_id": "a", "attempt": 2}));
    event["detail-type"] = json!("Retry Due");
    assert!(one(&event).is_ok(), "another program's");
    event["source"] = json!("recoup");
    for signal in [Signal::Failed, Signal::Succeeded] {
        let error = parse(signal, event.to_string().as_bytes()).unwrap_err();
        assert_eq!(error, EventError::RetryDue { expected: signal.detail_type() });
        assert!(error.to_string().starts_with(r#"the event is "Retry Due" of source recoup"#), "{error}");
    }
    let records = batch(&sqs(&[event]));
    assert!(matches!(records[0].event, Err(EventError::RetryDue { .. })), "{records:?}");
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
        (r#"{"job_id":"j","event_id":7}"#, "event_id is 7; expected a string"),
        (r#"{"job_id":"j","attempt":0}"#, "attempt is 0; expected a whole number from 1 to 2147483647"),
        (
            r#"{"job_id":"j","attempt":2147483648}"#,
            "attempt is 2147483648; expected a whole number from 1 to 2147483647",
        ),
        (r#"{"job_id":"j","attempt":1.0}"#, "attempt is 1.0; expected a whole number from 1 to 2147483647"),
        (
            r#"{"job_id":"j","attempt":"1"}"#,
            r#"attempt is "1"; expected a whole number from 1 to 2147483647"#,
        ),
        (r#"{"job_id":"j","retryable":"no"}"#, r#"retryable is "no"; expected true or false"#),
        (r#"{"job_id":"j","reason":{"a":1}}"#, r#"reason is {"a":1}; expected a string"#),
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
    assert_eq!(
        seen,
        [
            (Some("m0"), false),
            (Some("m1"), false),
            (Some("m2"), false),
            (None, true),
            (None, false),
            (None, false),
            (Some("m6"), true),
        ]
    );
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
        "job_id",
        "attempt",
        "reason",
        "retryable",
        "event_id",
        "occurred_at",
        "account_id",
        "detail",
        "detail-type",
        "id",
        "Message",
        "MessageId",
        "Records",
        "messageId",
        "body",
        "x",
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
        let _ = parse(Signal::Failed, &bytes);
    }

    #[test]
    fn no_json_panics_and_what_is_read_is_in_shape(json in arbitrary_json()) {
        if let Ok(Payload::One(news)) = parse(Signal::Succeeded, json.to_string().as_bytes()) {
            let event = told(*news);
            prop_assert!(JobId::new(event.job_id.as_str()).is_ok());
            prop_assert!(event.attempt.is_none_or(|k| (1..=MAX_ATTEMPT).contains(&k)));
        }
    }

    #[test]
    fn ids_come_out_as_they_went_in(job in ".{1,300}", account in ".{1,300}", event in ".{1,300}") {
        let bare = json!({"job_id": job, "account_id": account, "event_id": event});
        let valid = JobId::new(job.clone()).is_ok() && AccountId::new(account.clone()).is_ok();
        let own = EventId::new(event.clone()).ok();
        let bodies = [bare.clone(), event_bridge(&bare), sns(&bare), sns(&event_bridge(&bare))];
        let mut read: Vec<_> =
            batch(&sqs(&bodies)).into_iter().map(|record| record.event.map(told)).collect();
        read.push(one(&bare));
        read.push(one(&event_bridge(&bare)));
        for result in read {
            prop_assert_eq!(result.is_ok(), valid);
            if let Ok(read) = result {
                prop_assert_eq!(read.job_id.as_str(), &job);
                prop_assert_eq!(read.account_id.as_ref().map(AccountId::as_str), Some(account.as_str()));
                prop_assert!(own.is_none() || read.event_id == own);
            }
        }
    }
}

#[test]
fn a_batch_larger_than_any_queue_sends_is_refused_as_a_whole() {
    let batch = |count: usize| format!(r#"{{"Records":[{}]}}"#, vec!["0"; count].join(","));
    let Ok(Payload::Batch(records)) = parse(Signal::Failed, batch(MAX_RECORDS).as_bytes()) else {
        panic!("as many as SQS sends are a batch")
    };
    assert_eq!(records.len(), MAX_RECORDS);
    let more = parse(Signal::Failed, batch(MAX_RECORDS + 1).as_bytes());
    assert_eq!(more, Err(EventError::TooManyRecords));
}
