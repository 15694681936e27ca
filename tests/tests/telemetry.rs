//! What the functions tell whoever watches: log lines and metrics, from the real binaries.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};

use recoup::metrics::{ALL, FUNCTION, NAMESPACE};
use recoup_tests::function_world::{FunctionWorld, sqs};
use recoup_tests::servers;
use serde_json::{Value, json};

fn parsed(lines: &[String]) -> Vec<Value> {
    lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The lines that are metrics, and those that are logs.
fn split(lines: &[String]) -> (Vec<Value>, Vec<Value>) {
    parsed(lines).into_iter().partition(|line| line.get("_aws").is_some())
}

/// One value: its name, its dimensions beyond the function, and what was counted or sampled.
type Values = BTreeMap<(String, Option<String>), Value>;

/// Reads what CloudWatch would, and holds each line to its format and to the table of metrics.
fn read(function: &str, lines: &[Value]) -> Values {
    let mut values = Values::new();
    for line in lines {
        assert!(line["_aws"]["Timestamp"].as_u64().unwrap() > 1_700_000_000_000, "milliseconds: {line}");
        let [directive] = line["_aws"]["CloudWatchMetrics"].as_array().unwrap().as_slice() else {
            panic!("{line}")
        };
        assert_eq!(directive["Namespace"], NAMESPACE);
        assert_eq!(line[FUNCTION], function);
        assert!(line["request_id"].as_str().unwrap().starts_with("request-"), "{line}");
        let [dimensions] = directive["Dimensions"].as_array().unwrap().as_slice() else { panic!("{line}") };
        for definition in directive["Metrics"].as_array().unwrap() {
            let name = definition["Name"].as_str().unwrap();
            let metric = ALL.iter().find(|metric| metric.name == name).unwrap();
            assert_eq!(definition["Unit"], json!(metric.unit), "{name}");
            assert_eq!(dimensions, &json!(metric.dimensions), "{name}");
            let second = metric.dimensions.get(1).map(|name| line[*name].as_str().unwrap().to_owned());
            let earlier = values.insert((name.to_owned(), second), line[name].clone());
            assert_eq!(earlier, None, "{name} is counted twice in one invocation");
        }
    }
    values
}

fn value<'a>(values: &'a Values, name: &str, second: Option<&str>) -> Option<&'a Value> {
    values.get(&(name.to_owned(), second.map(ToOwned::to_owned)))
}

#[tokio::test]
async fn each_function_counts_what_it_did_where_cloudwatch_finds_it() {
    let world = FunctionWorld::shared().await.with("RETRY_BASE_DELAY", "1h").with("RETRY_MAX_DELAY", "1h");
    world.charge(&["a", "b", "c"]).await;
    let event = |job: &str| json!({"job_id": job, "attempt": 1, "event_id": job}).to_string();

    let mut failed = world.function("job-failed").await;
    let bodies = [event("a"), event("b"), event("b"), event("unknown"), "no JSON".to_owned()];
    failed.invoke(sqs(&bodies)).await.response();
    let (metrics, _) = split(&failed.kill());
    let values = read("job-failed", &metrics);
    for (outcome, count) in [("refunded", 2), ("duplicate", 1), ("UnknownJob", 1), ("InvalidEvent", 1)] {
        assert_eq!(value(&values, "Events", Some(outcome)), Some(&json!(count)), "{outcome}");
    }
    assert_eq!(value(&values, "CreditsRefunded", None), Some(&json!(200)));
    assert_eq!(value(&values, "CreditsReclaimed", None), None, "nothing is said of what did not happen");
    for store in ["MongoDB", "Redis"] {
        let latencies = value(&values, "StoreLatency", Some(store)).unwrap().as_array().unwrap();
        assert!(latencies.iter().all(|ms| ms.as_f64().unwrap() > 0.0), "{store}: {latencies:?}");
    }

    let mut succeeded = world.function("job-succeeded").await;
    succeeded.invoke(event("a")).await.response();
    succeeded.invoke(event("c")).await.response();
    succeeded.invoke("[]").await.error();
    let (metrics, _) = split(&succeeded.kill());
    let of = |request: &str| {
        let lines: Vec<Value> =
            metrics.iter().filter(|line| line["request_id"] == request).cloned().collect();
        read("job-succeeded", &lines)
    };
    let first = of("request-1");
    assert_eq!(value(&first, "Events", Some("reclaimed")), Some(&json!(1)));
    assert_eq!(value(&first, "CreditsReclaimed", None), Some(&json!(100)));
    let second = of("request-2");
    assert_eq!(value(&second, "Events", Some("delivered")), Some(&json!(1)));
    assert_eq!(value(&second, "CreditsReclaimed", None), None, "counted anew each time");
    assert_eq!(value(&of("request-3"), "Events", Some("InvalidEvent")), Some(&json!(1)));

    let mut scheduler = world.function("retry-scheduler").await;
    scheduler.invoke("{}").await.response();
    let (metrics, _) = split(&scheduler.kill());
    let values = read("retry-scheduler", &metrics);
    for (name, expected) in [
        ("DrainsFinished", json!(1)),
        ("Parked", json!(2)),
        ("ParkedDepth", json!([2.0])),
        ("RetryListDepth", json!([0.0])),
        ("OldestDueRetryAge", json!([0.0])),
    ] {
        assert_eq!(value(&values, name, None), Some(&expected), "{name}");
    }

    let mut audit = world.function("audit").await;
    audit.invoke("{}").await.response();
    let (metrics, _) = split(&audit.kill());
    let values = read("audit", &metrics);
    for (name, expected) in
        [("AuditedJobs", json!(3)), ("AuditsFinished", json!(1)), ("DeadLetteredJobs", json!([0.0]))]
    {
        assert_eq!(value(&values, name, None), Some(&expected), "{name}");
    }
    assert_eq!(value(&values, "AuditViolations", None), None);
}

#[tokio::test]
async fn a_retry_that_nobody_takes_grows_old_where_an_alarm_sees_it() {
    let world = FunctionWorld::shared().await;
    world.charge(&["j"]).await;
    world.function("job-failed").await.invoke(r#"{"job_id":"j","attempt":1}"#).await.response();
    // Nothing listens there, so that no retry is handed over.
    let world = world
        .with("DISPATCH_TARGET", "sqs:https://sqs.us-east-1.amazonaws.com/000000000000/workers")
        .with("AWS_ENDPOINT_URL_SQS", &format!("http://127.0.0.1:{}", servers::free_port()))
        .with("AWS_REGION", "us-east-1")
        .with("AWS_ACCESS_KEY_ID", "test")
        .with("AWS_SECRET_ACCESS_KEY", "test")
        .with("DRAIN_FOR", "5s");
    let mut scheduler = world.function("retry-scheduler").await;
    scheduler.invoke("{}").await.response();
    let (metrics, _) = split(&scheduler.kill());
    let values = read("retry-scheduler", &metrics);
    assert!(value(&values, "HandOverFailed", None).unwrap().as_u64().unwrap() > 0);
    let age = value(&values, "OldestDueRetryAge", None).unwrap();
    assert!(age[0].as_f64().unwrap() >= 1.0, "it waits since the first pass: {age}");
}

#[tokio::test]
async fn a_queue_out_of_reach_is_counted_and_leaves_no_depth_behind() {
    let world = FunctionWorld::shared().await;
    world.charge(&["j"]).await;
    let world = world.with("REDIS_URL", &format!("redis://127.0.0.1:{}", servers::free_port()));
    let mut failed = world.function("job-failed").await;
    failed.invoke(r#"{"job_id":"j","attempt":1}"#).await.response();
    let (metrics, _) = split(&failed.kill());
    assert_eq!(value(&read("job-failed", &metrics), "RetryPushFailed", None), Some(&json!(1)));
    let mut scheduler = world.function("retry-scheduler").await;
    scheduler.invoke("{}").await.error();
    let (metrics, _) = split(&scheduler.kill());
    let values = read("retry-scheduler", &metrics);
    for name in ["DrainsFinished", "ParkedDepth", "OldestDueRetryAge"] {
        assert_eq!(value(&values, name, None), None, "{name}");
    }
}

/// The documented fields of a log line; `fields` are those of the event, and none of them hides one of these.
#[tokio::test]
async fn every_log_line_has_the_documented_shape() {
    let world = FunctionWorld::shared().await.with("RUST_LOG", "debug,mongodb=info,redis=info");
    world.charge(&["a"]).await;
    for (function, payload) in [
        ("job-failed", sqs(&[r#"{"job_id":"a"}"#.to_owned(), "no JSON".to_owned()])),
        ("job-succeeded", r#"{"job_id":"a"}"#.to_owned()),
        ("job-succeeded", r#"{"job_id":"unknown"}"#.to_owned()),
        ("retry-scheduler", "{}".to_owned()),
        ("audit", "{}".to_owned()),
    ] {
        let mut process = world.function(function).await;
        process.invoke(payload).await;
        let (_, logs) = split(&process.kill());
        assert!(logs.iter().any(|line| line["request_id"] == "request-1"), "{function}: {logs:#?}");
        for line in logs {
            let level = line["level"].as_str().unwrap();
            assert!(["ERROR", "WARN", "INFO", "DEBUG"].contains(&level), "{line}");
            assert!(recoup::clock::Timestamp::parse_rfc3339(line["timestamp"].as_str().unwrap()).is_some());
            assert!(!line["target"].as_str().unwrap().is_empty() && line["message"].is_string(), "{line}");
            if line["target"].as_str().unwrap().starts_with("recoup") {
                assert!(line["span"].is_null() || line["span"]["request_id"] == "request-1", "{line}");
            }
        }
    }
}

#[tokio::test]
async fn a_trace_goes_from_the_failure_over_the_retry_to_the_worker() {
    const XRAY: &str = "Root=1-63441c4a-abcdef012345678912345678;Parent=0123456789abcdef;Sampled=1";
    const W3C: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let world = FunctionWorld::shared().await.with("RETRY_BASE_DELAY", "1ms").with("DRAIN_FOR", "2s");
    world.charge(&["beside", "inside", "both", "none"]).await;
    let record = |job: &str, inside: Option<&str>, beside: Value| {
        let body = json!({"job_id": job, "attempt": 1, "trace": inside}).to_string();
        json!({"messageId": job, "body": body, "eventSource": "aws:sqs", "attributes": beside})
    };
    let beside = json!({"ApproximateReceiveCount": "1", "AWSTraceHeader": XRAY});
    let records = [
        record("beside", None, beside.clone()),
        record("inside", Some(W3C), json!({})),
        record("both", Some(W3C), beside),
        record("none", Some("no\ntrace"), json!({"AWSTraceHeader": 17})),
    ];
    let mut failed = world.function("job-failed").await;
    let answer = failed.invoke(json!({ "Records": records }).to_string()).await.response();
    assert_eq!(answer, json!({"batchItemFailures": []}));
    let (_, logs) = split(&failed.kill());
    let logged = logs.iter().find(|line| line["job_id"] == "beside").unwrap();
    assert_eq!(logged["trace"], XRAY);

    world.function("retry-scheduler").await.invoke("{}").await.response();
    let traces: BTreeMap<String, Value> = world
        .list("ready")
        .await
        .iter()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .map(|message| (message["job_id"].as_str().unwrap().to_owned(), message["trace"].clone()))
        .collect();
    let expected =
        [("beside", json!(XRAY)), ("inside", json!(W3C)), ("both", json!(W3C)), ("none", Value::Null)];
    assert_eq!(traces, expected.map(|(job, trace)| (job.to_owned(), trace)).into());

    // The next failure has no trace, so the old one ends there.
    world.function("job-failed").await.invoke(r#"{"job_id":"beside","attempt":2}"#).await.response();
    assert_eq!(world.job("beside").await.last_error.unwrap().trace, None);
}

#[test]
fn no_two_metrics_share_a_name() {
    let names: BTreeSet<&str> = ALL.iter().map(|metric| metric.name).collect();
    assert_eq!(names.len(), ALL.len());
    assert!(ALL.iter().all(|metric| metric.dimensions[0] == FUNCTION && metric.dimensions.len() <= 2));
}
