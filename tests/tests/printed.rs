//! What is printed: one line for each thing, whatever stands in it, and never a secret.
#![allow(clippy::unwrap_used)]

use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};

use recoup::aws::Aws;
use recoup::config::{Needs, Secret, Server, Settings};
use recoup::ledger::LedgerReader;
use recoup::ledger::mongo::MongoLedger;
use recoup::queue::RetryQueue;
use recoup::queue::redis::RedisQueue;
use recoup_tests::function_world::{FunctionWorld, PASSWORD, sqs};
use serde_json::{Value, json};

/// Line ends of every kind, what steers a terminal, and what would be a log line of its own.
const HOSTILE: &str = "timeout\n{\"level\":\"INFO\",\"message\":\"forged\"}\r\n\u{1b}[2J\u{85}\u{2028}\u{2029}\u{0}\u{7}\u{b}\u{c}\u{9b}31m";

#[tokio::test]
async fn whatever_a_reason_or_an_id_holds_a_log_line_is_one_object() {
    let world = FunctionWorld::shared().await;
    let id = "j\u{2028}\u{202e}\"},{\"level\":\"ERROR\"";
    world.charge(&[id]).await;
    let event = json!({"job_id": id, "attempt": 1, "reason": HOSTILE, "event_id": "e\u{2029}"}).to_string();
    let bad = json!({"job_id": HOSTILE}).to_string();
    let mut functions = Vec::new();
    for function in ["job-failed", "job-succeeded"] {
        let mut function = world.function(function).await;
        let failures =
            function.invoke(sqs(&[event.clone(), bad.clone(), HOSTILE.to_owned()])).await.response();
        assert_eq!(failures["batchItemFailures"].as_array().unwrap().len(), 2, "{failures}");
        functions.push(function);
    }
    let mut scheduler = world.function("retry-scheduler").await;
    scheduler.invoke(HOSTILE).await.response();
    functions.push(scheduler);
    for function in functions {
        let lines = function.kill();
        assert!(!lines.is_empty());
        for line in lines {
            let object: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
            assert!(object["message"] != "forged" && !line.contains(|c: char| c < ' '), "{line}");
        }
    }
}

/// Everything that holds an address or a key, opened with marked ones.
async fn secretive() -> Vec<Box<dyn Debug>> {
    let mongodb = format!("mongodb://{PASSWORD}:{PASSWORD}@127.0.0.1:1/recoup?connectTimeoutMS=100");
    let redis = format!("rediss://{PASSWORD}:{PASSWORD}@127.0.0.1:1");
    let settings = Settings::read(Needs::MongoDbAndRedis, |name| match name {
        "MONGODB_URI" => Some(mongodb.clone()),
        "REDIS_URL" => Some(redis.clone()),
        _ => None,
    });
    let settings = settings.unwrap();
    // The id of a key is no secret.
    let aws = Aws::from_env(|name| match name {
        "AWS_ACCESS_KEY_ID" => Some("AKIA".to_owned()),
        "AWS_SECRET_ACCESS_KEY" | "AWS_SESSION_TOKEN" => Some(PASSWORD.to_owned()),
        _ => None,
    });
    let ledger = MongoLedger::open(&mongodb).await.unwrap();
    let queue = RedisQueue::with_settings(&redis, &settings).unwrap();
    vec![
        Box::new(Secret::new(PASSWORD)),
        Box::new(aws.unwrap()),
        Box::new(ledger.any_live_job().await.unwrap_err()),
        Box::new(queue.depths().await.unwrap_err()),
        Box::new(MongoLedger::open(&mongodb.replace(":1/", ":x/")).await.unwrap_err()),
        Box::new(RedisQueue::with_settings(&redis.replace(":1", ":x"), &settings).unwrap_err()),
        Box::new(Server::MongoDb.check(PASSWORD).unwrap_err()),
        Box::new(settings),
        Box::new(ledger),
        Box::new(queue),
    ]
}

/// As a panic would come about: an `expect` on a result that holds the thing.
fn expected(result: Result<(), Box<dyn Debug>>) {
    result.expect("the server answers");
}

#[tokio::test]
async fn neither_debug_nor_a_panic_shows_a_secret() {
    for thing in secretive().await {
        for shown in [format!("{thing:?}"), format!("{thing:#?}")] {
            assert!(!shown.contains(PASSWORD), "{shown}");
        }
        let panic = catch_unwind(AssertUnwindSafe(|| expected(Err(thing)))).unwrap_err();
        let said = panic.downcast_ref::<String>().unwrap();
        assert!(said.starts_with("the server answers") && !said.contains(PASSWORD), "{said}");
    }
}
