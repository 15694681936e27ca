//! The function `audit`, the real binary under the Runtime API: what breaks a rule is counted and named. That what is on
//! its way is not counted is held beside the code, where a test can say what the second look sees.
#![allow(clippy::unwrap_used)]

use mongodb::bson::{Document, doc};
use mongodb::{Client, Collection};
use recoup::clock::{Clock, SystemClock};
use recoup::job::Phase;
use recoup_tests::function_world::FunctionWorld;
use recoup_tests::servers;
use serde_json::{Value, json};

/// A world, and its jobs as another program would reach them.
async fn world() -> (FunctionWorld, Collection<Document>) {
    let uri = servers::fresh_database();
    let world = FunctionWorld::on(&uri, &servers::redis_url()).await;
    let client = Client::with_uri_str(&uri).await.unwrap();
    (world, client.default_database().unwrap().collection("jobs"))
}

/// Writes past the validator, as a careless repair does.
async fn tamper(jobs: &Collection<Document>, job: &str, set: Document) {
    let update = jobs.update_one(doc! { "_id": job }, doc! { "$set": set }).bypass_document_validation(true);
    assert_eq!(update.await.unwrap().modified_count, 1);
}

fn counts(jobs: u64, violations: u64) -> Value {
    json!({"jobs": jobs, "retries": 0, "unjudged": 0, "violations": violations, "dead_lettered": 0, "complete": true})
}

#[tokio::test]
async fn a_sound_ledger_has_no_violation_and_jobs_that_were_set_aside_are_counted() {
    let (world, _) = world().await;
    world.charge(&["delivered", "refunded", "running"]).await;
    world.function("job-succeeded").await.invoke(r#"{"job_id":"delivered"}"#).await.response();
    let mut failed = world.function("job-failed").await;
    failed.invoke(r#"{"job_id":"refunded","retryable":false}"#).await.response();
    let mut audit = world.function("audit").await;
    assert_eq!(audit.invoke("{}").await.response(), counts(3, 0));

    failed.invoke(r#"{"job_id":"running","attempt":5}"#).await.response();
    world.function("retry-scheduler").await.invoke("{}").await.response();
    assert_eq!(world.job("running").await.phase, Phase::DeadLettered);
    assert_eq!(audit.invoke("any payload").await.response()["dead_lettered"], 1);
}

#[tokio::test]
async fn what_was_broken_behind_the_validator_is_counted_and_named_in_the_log() {
    let (world, jobs) = world().await;
    world.charge(&["sound", "broken", "unreadable"]).await;
    tamper(&jobs, "broken", doc! { "is_refunded": true }).await;
    tamper(&jobs, "unreadable", doc! { "phase": "limbo" }).await;
    let mut audit = world.function("audit").await;
    let answer = audit.invoke("{}").await.response();
    // The flag contradicts the entries and the attempts; the other document cannot be read.
    assert_eq!(answer, counts(3, 3));
    let lines: Vec<Value> = audit.kill().iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let told: Vec<&Value> = lines.iter().filter(|line| line["message"] == "a job breaks a rule").collect();
    let named: Vec<&Value> = told.iter().map(|line| &line["job_id"]).collect();
    assert_eq!(named, [&json!("broken"), &json!("broken"), &json!("unreadable")]);
    for line in told {
        assert_eq!((&line["level"], &line["span"]["request_id"]), (&json!("ERROR"), &json!("request-1")));
        assert!(!line["violation"].as_str().unwrap().is_empty());
    }
}

#[tokio::test]
async fn a_retry_that_nobody_queued_is_counted_until_a_drain_queues_it() {
    let (world, _) = world().await;
    let world =
        world.with("SWEEP_GRACE", "0s").with("RETRY_BASE_DELAY", "1ms").with("RETRY_MAX_DELAY", "1ms");
    // Redis was out of reach for the push.
    let cut_off = world.environment().into_iter().fold(Vec::new(), |mut kept, (name, value)| {
        kept.push((name, if name == "REDIS_URL" { "redis://127.0.0.1:1" } else { value }));
        kept
    });
    world.charge(&["j"]).await;
    let mut failed = recoup_tests::runtime_api::Function::start("job-failed", &cut_off).await;
    failed.invoke(r#"{"job_id":"j","attempt":1}"#).await.response();
    SystemClock.sleep(std::time::Duration::from_millis(20)).await;
    let mut audit = world.function("audit").await;
    let missing = audit.invoke("{}").await.response();
    assert_eq!((&missing["retries"], &missing["violations"]), (&json!(1), &json!(1)));
    let drained = world.function("retry-scheduler").await.invoke("{}").await.response();
    assert_eq!((&drained["swept"], &drained["dispatched"]), (&json!(1), &json!(1)));
    assert_eq!(audit.invoke("{}").await.response(), counts(1, 0));
}

#[tokio::test]
async fn a_server_out_of_reach_fails_the_audit_and_the_next_one_works_again() {
    let mut redis = servers::Server::redis(&[]);
    let world = FunctionWorld::on(&servers::fresh_database(), &redis.redis_url()).await;
    let world =
        world.with("SWEEP_GRACE", "0s").with("RETRY_BASE_DELAY", "1ms").with("RETRY_MAX_DELAY", "1ms");
    world.charge(&["j"]).await;
    world.function("job-failed").await.invoke(r#"{"job_id":"j","attempt":1}"#).await.response();
    SystemClock.sleep(std::time::Duration::from_millis(20)).await;
    let mut audit = world.function("audit").await;
    redis.kill();
    let error = audit.invoke("{}").await.error();
    assert!(error.contains("Redis is not to be reached"), "{error}");
    redis.start();
    // Redis came back empty, and its loss is what an audit is for.
    assert_eq!(audit.invoke("{}").await.response()["violations"], 1);
}
