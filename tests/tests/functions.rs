//! The binaries as Lambda runs them: envelopes, batches, start-up, logs, and what they link.
#![allow(clippy::unwrap_used)]

use recoup::job::Phase;
use recoup_tests::function_world::{FunctionWorld, PASSWORD, failures, sqs};
use recoup_tests::runtime_api::{Answer, Process};
use recoup_tests::servers;
use serde_json::{Value, json};

const FUNCTIONS: [&str; 4] = ["audit", "job-failed", "job-succeeded", "retry-scheduler"];

fn event_bridge(detail_type: &str, detail: &Value) -> Value {
    json!({"version": "0", "id": "e-1", "detail-type": detail_type, "source": "jobs", "account": "000000000000",
           "time": "2026-01-15T10:00:00Z", "region": "us-east-1", "resources": [], "detail": detail})
}

fn sns(message: &Value) -> Value {
    json!({"Type": "Notification", "MessageId": "n-1", "TopicArn": "arn:aws:sns:us-east-1:000000000000:t",
           "Message": message.to_string(), "Timestamp": "2026-01-15T10:00:00.000Z", "SignatureVersion": "1",
           "Signature": "x", "SigningCertURL": "https://example.com/c.pem", "UnsubscribeURL": "https://example.com/u"})
}

#[tokio::test]
async fn every_envelope_leads_to_the_handler() {
    let world = FunctionWorld::shared().await;
    world.charge(&["a", "b", "c", "d", "e"]).await;
    let mut failed = world.function("job-failed").await;
    let mut succeeded = world.function("job-succeeded").await;

    let bare = json!({"job_id": "a", "attempt": 1});
    let answer = failed.invoke(bare.to_string()).await.response();
    assert_eq!((&answer["job_id"], &answer["outcome"]), (&json!("a"), &json!("refunded")));
    let enveloped = event_bridge("Job Succeeded", &bare);
    assert_eq!(succeeded.invoke(enveloped.to_string()).await.response()["outcome"], "reclaimed");

    let event = |job: &str| json!({ "job_id": job });
    let bodies = [
        event("b").to_string(),
        event_bridge("Job Failed", &event("c")).to_string(),
        sns(&event("d")).to_string(),
        sns(&event_bridge("Job Failed", &event("e"))).to_string(),
    ];
    assert_eq!(failed.invoke(sqs(&bodies)).await.response(), failures([]));
    for (job, counted_event) in [("b", "m0"), ("c", "e-1"), ("d", "n-1"), ("e", "e-1")] {
        let job = world.job(job).await;
        assert_eq!((job.phase, job.net), (Phase::RetryWaiting, 0));
        assert_eq!(job.counted_events[0].as_str(), counted_event, "the innermost envelope's id");
    }
}

#[tokio::test]
async fn an_event_of_the_other_kind_and_one_that_is_none_are_errors() {
    let world = FunctionWorld::shared().await;
    world.charge(&["j"]).await;
    let mut failed = world.function("job-failed").await;
    let other = event_bridge("Job Succeeded", &json!({"job_id": "j"}));
    assert!(failed.invoke(other.to_string()).await.error().contains("Job Succeeded"));
    for payload in [&b""[..], b"{", b"null", b"[]", b"\"j\"", b"{\"job_id\":{\"$ne\":null}}", b"\xff\xfe{}"] {
        let message = failed.invoke(payload).await.error();
        assert!(message.contains("expected"), "{message}");
    }
    let unknown = failed.invoke(r#"{"job_id":"never charged"}"#).await.error();
    assert!(unknown.contains("never charged"), "{unknown}");
    let account = failed.invoke(r#"{"job_id":"j","account_id":"another"}"#).await.error();
    assert!(account.contains("another account"), "{account}");
    assert_eq!(world.job("j").await.phase, Phase::Running);
    assert!(matches!(failed.invoke(r#"{"job_id":"j"}"#).await, Answer::Response(_)), "it goes on");
}

#[tokio::test]
async fn bad_records_are_reported_and_good_ones_kept() {
    let world = FunctionWorld::shared().await;
    world.charge(&["a", "b"]).await;
    let mut failed = world.function("job-failed").await;
    let body = |job: &str| json!({"job_id": job, "attempt": 1}).to_string();
    let bodies = [body("a"), "{".to_owned(), body("unknown"), body("b"), body("a"), "[]".to_owned()];
    let expected = failures(["m1", "m2", "m5"].map(ToOwned::to_owned));
    assert_eq!(failed.invoke(sqs(&bodies)).await.response(), expected);
    assert_eq!(failed.invoke(sqs(&bodies)).await.response(), expected, "delivered again, it is the same");
    for job in ["a", "b"] {
        assert_eq!((world.job(job).await.attempts, world.job(job).await.entries.len()), (1, 2));
    }
    assert_eq!(world.list("retry").await.len(), 2);
}

#[tokio::test]
async fn a_bad_record_without_a_message_id_fails_the_invocation_after_its_neighbours() {
    let world = FunctionWorld::shared().await;
    world.charge(&["a", "b"]).await;
    let mut succeeded = world.function("job-succeeded").await;
    for (job, bad) in [("a", json!({"body": "{"})), ("b", json!({"messageId": "", "body": "{"}))] {
        let good = json!({"messageId": "m", "body": json!({ "job_id": job }).to_string()});
        let message = succeeded.invoke(json!({ "Records": [bad, good] }).to_string()).await.error();
        assert!(message.contains("messageId"), "{message}");
        assert_eq!(world.job(job).await.phase, Phase::Delivered);
    }
}

#[tokio::test]
async fn one_process_serves_many_invocations() {
    let world = FunctionWorld::shared().await;
    world.charge(&["j"]).await;
    let mut succeeded = world.function("job-succeeded").await;
    for n in 0..50 {
        let outcome = succeeded.invoke(r#"{"job_id":"j"}"#).await.response()["outcome"].clone();
        assert_eq!(outcome, if n == 0 { "delivered" } else { "duplicate" });
    }
    // One process, which logged each of them.
    let handled = succeeded.kill().iter().filter(|line| line.contains("event handled")).count();
    assert_eq!(handled, 50);
}

#[tokio::test]
async fn the_scheduler_takes_any_payload() {
    let world = FunctionWorld::shared().await;
    let mut scheduler = world.function("retry-scheduler").await;
    let nothing: Value =
        ["dispatched", "parked", "dead_lettered", "dropped", "recovered", "malformed", "swept", "timed_out"]
            .iter()
            .map(|count| ((*count).to_owned(), json!(0)))
            .collect::<serde_json::Map<_, _>>()
            .into();
    for payload in
        [&b"{}"[..], b"", b"null", b"[1]", b"\"x\"", b"17", b"no JSON", b"\xff\xfe", b"{\"Records\":[]}"]
    {
        assert_eq!(scheduler.invoke(payload).await.response(), nothing);
    }
}

#[tokio::test]
async fn a_retry_that_comes_due_while_the_scheduler_repeats_its_pass_is_dispatched() {
    let world = FunctionWorld::shared().await.with("DRAIN_FOR", "3s").with("RETRY_BASE_DELAY", "750ms");
    world.charge(&["j"]).await;
    world.function("job-failed").await.invoke(r#"{"job_id":"j","attempt":1}"#).await.response();
    let counts = world.function("retry-scheduler").await.invoke("{}").await.response();
    assert_eq!((&counts["parked"], &counts["dispatched"]), (&json!(1), &json!(1)));
    let ready: Value = serde_json::from_str(&world.list("ready").await[0]).unwrap();
    assert_eq!(ready, json!({"job_id": "j", "account_id": "account", "attempt": 2}));
}

#[tokio::test]
async fn repeated_passes_end_before_the_functions_deadline() {
    let world = FunctionWorld::shared().await.with("DRAIN_FOR", "1h");
    let mut scheduler = world.function("retry-scheduler").await;
    let deadline = std::time::Duration::from_secs(4);
    let within = recoup::clock::Deadline::after(deadline);
    assert_eq!(scheduler.invoke_within("{}", deadline).await.response()["dispatched"], 0);
    assert!(!within.passed(), "Lambda would have killed it");
}

#[tokio::test]
async fn due_retries_reach_an_sqs_queue() {
    let moto = servers::Server::moto();
    let endpoint = format!("http://127.0.0.1:{}", moto.port());
    let credentials = |name: &str| match name {
        "AWS_ACCESS_KEY_ID" | "AWS_SECRET_ACCESS_KEY" => Some("test".to_owned()),
        "AWS_REGION" => Some("us-east-1".to_owned()),
        "AWS_ENDPOINT_URL" => Some(endpoint.clone()),
        _ => None,
    };
    let aws = recoup::aws::Aws::from_env(credentials).unwrap();
    let sqs_endpoint = aws.endpoint(recoup::aws::Service::Sqs, None).unwrap();
    let created = aws.call(&sqs_endpoint, "CreateQueue", &json!({"QueueName": "workers"})).await.unwrap();
    let queue_url = created["QueueUrl"].as_str().unwrap();

    let world = FunctionWorld::shared()
        .await
        .with("DISPATCH_TARGET", &format!("sqs:{queue_url}"))
        .with("DRAIN_FOR", "2s")
        .with("AWS_ACCESS_KEY_ID", "test")
        .with("AWS_SECRET_ACCESS_KEY", "test")
        .with("AWS_REGION", "us-east-1");
    world.charge(&["j"]).await;
    world.function("job-failed").await.invoke(r#"{"job_id":"j","attempt":1}"#).await.response();
    let counts = world.function("retry-scheduler").await.invoke("{}").await.response();
    assert_eq!(counts["dispatched"], 1);
    let received = aws.call(&sqs_endpoint, "ReceiveMessage", &json!({"QueueUrl": queue_url})).await.unwrap();
    let body: Value = serde_json::from_str(received["Messages"][0]["Body"].as_str().unwrap()).unwrap();
    assert_eq!(body, json!({"job_id": "j", "account_id": "account", "attempt": 2}));
    assert!(world.job("j").await.dispatched_at.is_some());
}

#[tokio::test]
async fn a_bad_environment_is_one_line_and_exit_status_1_before_the_first_poll() {
    let mongodb = format!("mongodb://user:{PASSWORD}@127.0.0.1:1/recoup");
    let redis = format!("redis://:{PASSWORD}@127.0.0.1:1");
    let good = [
        ("MONGODB_URI", mongodb.as_str()),
        ("REDIS_URL", redis.as_str()),
        ("AWS_LAMBDA_RUNTIME_API", "127.0.0.1:1"),
        ("AWS_LAMBDA_FUNCTION_NAME", "f"),
        ("AWS_LAMBDA_FUNCTION_VERSION", "1"),
        ("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "256"),
        ("RUST_LOG", "trace"),
    ];
    let weak = format!("{mongodb}?w=1");
    let unjournaled = format!("{mongodb}?journal=false");
    let unverified = format!("{mongodb}?tlsInsecure=true");
    let stored = "secretsmanager:arn:aws:secretsmanager:us-east-1:123456789012:secret:s-AbCdEf";
    for (variable, value, named) in [
        ("MONGODB_URI", "", "MONGODB_URI"),
        ("MONGODB_URI", "postgres://hunter2@h", "MONGODB_URI"),
        ("MONGODB_URI", "mongodb://hunter2:@:h", "MONGODB_URI"),
        ("MONGODB_URI", weak.as_str(), "MONGODB_URI"),
        ("MONGODB_URI", unjournaled.as_str(), "MONGODB_URI"),
        ("MONGODB_URI", unverified.as_str(), "MONGODB_URI"),
        ("MONGODB_URI", stored, "MONGODB_URI"),
        ("REDIS_URL", "hunter2", "REDIS_URL"),
        ("REDIS_URL", "redis://:hunter2@h:port", "REDIS_URL"),
        ("REDIS_URL", "rediss://:hunter2@h/#insecure", "REDIS_URL"),
        ("REDIS_CLUSTER", "true", "REDIS_KEY_PREFIX"),
        ("RETRY_BASE_DELAY", "0s", "RETRY_BASE_DELAY"),
        ("RETRY_MAX_DELAY", "1s", "RETRY_MAX_DELAY"),
        ("RETRY_MAX_ATTEMPTS", "-1", "RETRY_MAX_ATTEMPTS"),
        ("RETRY_JITTER", "NaN", "RETRY_JITTER"),
        ("DRAIN_FOR", "soon\nor later", "DRAIN_FOR"),
        ("DISPATCH_TARGET", "sqs:hunter2", "DISPATCH_TARGET"),
        ("EVENT_SOURCES", "{\"aws.bach\":{}}", "EVENT_SOURCES"),
        ("AWS_LAMBDA_RUNTIME_API", "", "AWS_LAMBDA_RUNTIME_API"),
    ] {
        for function in FUNCTIONS {
            // The success handler has no Redis to open.
            if function == "job-succeeded" && value.starts_with("redis") {
                continue;
            }
            let mut environment = good.to_vec();
            environment.retain(|(name, _)| *name != variable);
            environment.push((variable, value));
            let line = refused(function, &environment).await;
            assert!(line.starts_with(named), "{function} with {variable}={value}: {line}");
            assert!(line.contains("example"), "{function} with {variable}={value}: {line}");
        }
    }
    for function in FUNCTIONS {
        let is_needed = function != "job-succeeded";
        let mut environment = good.to_vec();
        environment.retain(|(name, _)| *name != "REDIS_URL");
        let line = refused(function, &environment).await;
        assert_eq!(line.starts_with("REDIS_URL is not set"), is_needed, "{function}: {line}");
    }
}

/// The one line that the function leaves on stderr.
async fn refused(function: &str, environment: &[(&str, &str)]) -> String {
    let mut process = Process::start(function, &[], environment);
    let status = process.status().await;
    assert_eq!(status.code(), Some(1), "{function}: {}", process.output());
    assert!(!process.output().contains(PASSWORD), "{function} shows a password: {}", process.output());
    let stderr = process.stderr();
    assert_eq!(stderr.lines().count(), 1, "{function}: {stderr}");
    stderr
}

#[tokio::test]
async fn an_address_is_fetched_from_secrets_manager_before_the_first_poll() {
    let moto = servers::Server::moto();
    let endpoint = format!("http://127.0.0.1:{}", moto.port());
    let aws = recoup::aws::Aws::from_env(|name| match name {
        "AWS_ENDPOINT_URL" => Some(endpoint.clone()),
        "AWS_REGION" => Some("us-east-1".to_owned()),
        _ => Some("test".to_owned()).filter(|_| name.starts_with("AWS_") && name.contains("KEY")),
    })
    .unwrap();
    let world = FunctionWorld::shared().await;
    let uri = world.environment().iter().find(|(name, _)| *name == "MONGODB_URI").unwrap().1.to_owned();
    let secrets = aws.endpoint(recoup::aws::Service::SecretsManager, None).unwrap();
    let secret = json!({"Name": "recoup", "SecretString": json!({ "mongodb": uri }).to_string()});
    let created = aws.call(&secrets, "CreateSecret", &secret).await.unwrap();
    let world = world
        .with("MONGODB_URI", &format!("secretsmanager:{}#mongodb", created["ARN"].as_str().unwrap()))
        .with("AWS_ACCESS_KEY_ID", "test")
        .with("AWS_SECRET_ACCESS_KEY", "test")
        .with("AWS_ENDPOINT_URL_SECRETS_MANAGER", &endpoint);
    world.charge(&["j"]).await;
    let mut succeeded = world.function("job-succeeded").await;
    assert_eq!(succeeded.invoke(r#"{"job_id":"j"}"#).await.response()["outcome"], "delivered");
}

#[tokio::test]
async fn logs_are_one_json_object_a_line_and_say_what_was_done() {
    let world = FunctionWorld::shared().await;
    world.charge(&["j"]).await;
    let mut failed = world.function("job-failed").await;
    let event = json!({"job_id": "j", "attempt": 1, "reason": "line one\nline two"}).to_string();
    failed.invoke(sqs(&[event, "no JSON".to_owned()])).await.response();
    let lines: Vec<Value> = failed.kill().iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let field = |line: &Value, name: &str| line[name].clone();
    let handled = lines.iter().find(|line| line["job_id"] == "j").unwrap();
    for (name, value) in [
        ("level", json!("INFO")),
        ("request_id", json!("request-1")),
        ("message_id", json!("m0")),
        ("outcome", json!("refunded")),
        ("attempt", json!(1)),
        ("reason", json!("line one\nline two")),
    ] {
        assert_eq!(field(handled, name), value, "{name} in {handled}");
    }
    let malformed = lines.iter().find(|line| line["message_id"] == "m1").unwrap();
    assert_eq!(
        (field(malformed, "level"), field(malformed, "request_id")),
        (json!("ERROR"), json!("request-1"))
    );
    assert!(malformed["error"].as_str().unwrap().contains("body"), "{malformed}");
}

#[tokio::test]
async fn rust_log_says_what_is_logged_and_no_level_shows_an_address() {
    let world = FunctionWorld::shared().await.with("RUST_LOG", "error");
    world.charge(&["j"]).await;
    let mut failed = world.function("job-failed").await;
    failed.invoke(r#"{"job_id":"j"}"#).await.response();
    let written = failed.kill();
    assert!(written.iter().all(|line| line.contains("_aws")), "metrics only: {written:?}");

    let mongodb = format!("mongodb://user:{PASSWORD}@127.0.0.1:1/recoup");
    let redis = format!("redis://:{PASSWORD}@127.0.0.1:1");
    let world = world.with("RUST_LOG", "trace").with("MONGODB_URI", &mongodb).with("REDIS_URL", &redis);
    for function in FUNCTIONS {
        let mut function = world.function(function).await;
        let message = function.invoke(r#"{"job_id":"j"}"#).await.error();
        assert!(!message.contains(PASSWORD), "{message}");
        function.process().kill();
        assert!(!function.process().output().contains(PASSWORD), "{}", function.process().output());
    }
}

#[test]
fn a_function_links_only_what_it_uses() {
    let holds = |binary: &str, marker: &str| {
        let bytes = std::fs::read(servers::binary(binary)).unwrap();
        String::from_utf8_lossy(&bytes).contains(marker)
    };
    // Words of the Redis client, and of SQLite's file format, which are in any program that links them.
    assert!(holds("job-failed", "CLUSTERDOWN"), "the marker is a good one");
    assert!(!holds("job-succeeded", "CLUSTERDOWN"));
    assert!(holds("recoup", "SQLite format 3"), "the marker is a good one");
    for function in FUNCTIONS {
        assert!(!holds(function, "SQLite format 3"), "{function}");
    }
}
