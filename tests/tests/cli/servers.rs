//! What is different on the servers.

use std::time::Duration;

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, DateTime, Document, doc};
use recoup::clock::{Clock, SystemClock};
use recoup_tests::runtime_api::Process;
use recoup_tests::servers::{Server, redis_url, send_signal};
use serde_json::json;

use crate::harness::Recoup;

/// The jobs of its database, and the name of the database.
async fn database(recoup: &Recoup) -> mongodb::Database {
    let client = mongodb::Client::with_uri_str(recoup.variable("MONGODB_URI")).await.unwrap();
    client.default_database().unwrap()
}

async fn list_length(key: &str) -> i64 {
    let client = redis::Client::open(redis_url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    redis::cmd("LLEN").arg(key).query_async(&mut connection).await.unwrap()
}

#[tokio::test]
async fn a_drain_that_goes_on_dispatches_what_comes_due_and_ends_when_it_is_told() {
    let recoup = Recoup::on_servers().with("RETRY_BASE_DELAY", "1ms").with("RETRY_MAX_DELAY", "1ms");
    recoup.json(&["init"]);
    let environment =
        ["MONGODB_URI", "REDIS_URL", "REDIS_KEY_PREFIX"].map(|name| (name, recoup.variable(name)));
    let mut scheduler = Process::start("recoup", &["--json", "drain", "--every", "20ms"], &environment);
    let ready = format!("{}:ready", recoup.variable("REDIS_KEY_PREFIX"));
    for (job, dispatched) in [("j1", 1), ("j2", 2)] {
        recoup.charge(job, "a1", 40);
        recoup.json(&["failed", job, "--attempt", "1"]);
        while list_length(&ready).await < dispatched {
            SystemClock.sleep(Duration::from_millis(10)).await;
        }
    }
    send_signal(scheduler.id(), "-TERM");
    assert_eq!(scheduler.status().await.code(), Some(0), "{}", scheduler.output());
    let passes: Vec<serde_json::Value> =
        scheduler.stdout().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let dispatched: u64 = passes.iter().filter_map(|pass| pass["dispatched"].as_u64()).sum();
    assert_eq!((dispatched, scheduler.stderr().as_str()), (2, ""));
}

#[tokio::test]
async fn a_drain_that_goes_on_outlives_an_outage() {
    let mut redis = Server::redis_stopped(&[]);
    let recoup = Recoup::on_servers().with("RETRY_BASE_DELAY", "1ms").with("RETRY_MAX_DELAY", "1ms");
    recoup.json(&["init"]);
    let url = redis.redis_url();
    let environment = [("MONGODB_URI", recoup.variable("MONGODB_URI")), ("REDIS_URL", &url)];
    let scheduler = Process::start("recoup", &["drain", "--every", "20ms"], &environment);
    while !scheduler.stderr().contains("Redis is not to be reached") {
        SystemClock.sleep(Duration::from_millis(10)).await;
    }
    redis.start();
    recoup.charge("j1", "a1", 40);
    recoup.json(&["failed", "j1", "--attempt", "1", "--no-retry"]);
    let client = redis::Client::open(url.as_str()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let entry = r#"{"job_id":"j1","attempts":1,"not_before":"2026-01-01T00:00:00Z"}"#;
    redis::cmd("RPUSH").arg("jobs:retry").arg(entry).query_async::<()>(&mut connection).await.unwrap();
    while !scheduler.stdout().contains("dropped 1") {
        SystemClock.sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_job_goes_its_way_on_the_servers() {
    let recoup = Recoup::on_servers().with("RETRY_BASE_DELAY", "1ms").with("RETRY_MAX_DELAY", "1ms");
    assert_eq!(
        recoup.json(&["init"]),
        json!({
            "initialised": true, "store": "servers", "dry_run": false, "imported": 0, "already": 0, "repaired": 0,
            "contradictions": 0,
        })
    );
    assert_eq!(recoup.charge("j1", "a1", 40)["outcome"], "charged");
    assert_eq!(recoup.json(&["failed", "j1", "--attempt", "1"])["outcome"], "refunded");
    assert_eq!(recoup.json(&["drain"])["dispatched"], 1);
    assert_eq!(list_length(&format!("{}:ready", recoup.variable("REDIS_KEY_PREFIX"))).await, 1);
    assert_eq!(recoup.json(&["succeeded", "j1"])["outcome"], "reclaimed");
    assert_eq!(recoup.json(&["balance", "a1"])["balance"], -40);
    assert_eq!(recoup.lines(&["statement", "a1"]).len(), 3);
    assert_eq!(recoup.lines(&["export"]).len(), 3);
    assert!(recoup.ok(&["job", "j1"]).contains("paid        40, once, for delivered work"));
    recoup.ok(&["audit"]);
    assert!(!recoup.path("recoup.db").exists());
    database(&recoup).await.drop().await.unwrap();
}

#[tokio::test]
async fn a_charge_on_a_fresh_database_brings_the_validator_first_and_says_so() {
    let recoup = Recoup::on_servers();
    let run = recoup.run(&["charge", "j1", "--account", "a1", "--cost", "40"]);
    assert_eq!((run.status, run.stdout.as_str()), (0, "charged: job j1, 40 credits from account a1\n"));
    assert!(run.stderr.starts_with("note: the database had no collection `jobs`"), "{run:?}");
    let database = database(&recoup).await;
    let bad = doc! { "_id": "j2", "cost": -1 };
    assert!(database.collection::<Document>("jobs").insert_one(bad).await.is_err());
    recoup.ok(&["charge", "j3", "--account", "a1", "--cost", "40"]);
    database.drop().await.unwrap();
}

#[tokio::test]
async fn a_dead_letter_is_listed_and_redriven_on_the_servers() {
    let recoup = Recoup::on_servers().with("RETRY_MAX_ATTEMPTS", "1");
    recoup.json(&["init"]);
    recoup.charge("j1", "a1", 40);
    recoup.json(&["failed", "j1", "--attempt", "1"]);
    assert_eq!(recoup.json(&["drain"])["dead_lettered"], 1);
    assert_eq!(recoup.lines(&["dead-letters"])[0]["job_id"], "j1");
    assert_eq!(recoup.lines(&["dead-letters", "redrive", "--all"])[0]["phase"], "retry_waiting");
    assert_eq!(recoup.json(&["drain"])["dispatched"], 1);
    database(&recoup).await.drop().await.unwrap();
}

#[tokio::test]
async fn an_audit_finds_what_redis_lost() {
    let recoup = Recoup::on_servers()
        .with("RETRY_BASE_DELAY", "1ms")
        .with("RETRY_MAX_DELAY", "1ms")
        .with("SWEEP_GRACE", "0s");
    recoup.json(&["init"]);
    recoup.charge("j1", "a1", 40);
    recoup.json(&["failed", "j1", "--attempt", "1"]);
    let client = redis::Client::open(redis_url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let key = format!("{}:retry", recoup.variable("REDIS_KEY_PREFIX"));
    let removed: i64 = redis::cmd("DEL").arg(key).query_async(&mut connection).await.unwrap();
    assert_eq!(removed, 1);
    let run = recoup.run(&["audit"]);
    assert_eq!(run.status, 1, "{run:?}");
    assert!(run.stdout.contains("stands nowhere in the queue"), "{run:?}");
    assert!(recoup.run(&["--json", "drain"]).stdout.contains(r#""swept":1"#));
    recoup.ok(&["audit"]);
    database(&recoup).await.drop().await.unwrap();
}

#[tokio::test]
async fn an_id_that_is_no_text_is_named_and_hides_no_job_of_the_pages_to_come() {
    let recoup = Recoup::on_servers();
    // Without the validator, and more jobs than stand on one page of the audit and the export.
    let database = database(&recoup).await;
    let jobs = database.collection::<Document>("jobs");
    let at = DateTime::now();
    let job = |id: Bson| {
        doc! {
            "_id": id, "schema": 1, "account_id": "a1", "cost": 40_i64, "is_refunded": false, "is_reclaimed": false,
            "phase": "running", "attempts": 0, "max_attempts": 5, "net": -40_i64, "created_at": at, "updated_at": at,
            "entries": [{ "type": "charge", "amount": -40_i64, "created_at": at }],
        }
    };
    let object_id = ObjectId::new();
    let ids = (0..503).map(|number| Bson::from(format!("j{number:03}")));
    jobs.insert_many(ids.chain([object_id.into()]).map(job)).await.unwrap();

    let run = recoup.run(&["audit"]);
    let why = format!(
        "job ObjectId({object_id}) cannot be read: _id is ObjectId, not a string; run `recoup audit`"
    );
    assert_eq!((run.status, run.stdout), (1, format!("job ObjectId({object_id}): {why}\n")));
    assert!(run.stderr.contains("found 1 violation in 504 jobs"), "{}", run.stderr);

    let run = recoup.run(&["--json", "export"]);
    assert_eq!((run.status, run.stdout.lines().count()), (1, 503));
    assert!(run.stderr.contains(&why), "{}", run.stderr);
    database.drop().await.unwrap();
}

#[test]
fn a_drain_on_the_servers_goes_to_the_dispatch_target() {
    let queue = "sqs:https://sqs.eu-west-1.amazonaws.com/123456789012/retries";
    let why = Recoup::on_servers().with("DISPATCH_TARGET", queue).refused(1, &["drain"]);
    assert!(why.starts_with("DISPATCH_TARGET leads to AWS, but"), "{why}");
}

#[test]
fn servers_out_of_reach_are_one_line_and_no_address() {
    let recoup = Recoup::on_a_file()
        .with("MONGODB_URI", "mongodb://user:hunter2@127.0.0.1:1/x?directConnection=true")
        .with("REDIS_URL", "redis://:hunter2@127.0.0.1:1");
    for args in [&["balance", "a1"][..], &["charge", "j", "--account", "a", "--cost", "1"], &["drain"]] {
        let why = recoup.refused(1, args);
        assert!(why.contains("try again") && !why.contains("hunter2"), "{args:?}: {why}");
    }
}

#[tokio::test]
async fn a_refund_does_not_wait_for_redis() {
    let recoup = Recoup::on_servers();
    recoup.json(&["init"]);
    recoup.charge("j1", "a1", 40);
    let without = Recoup::on_a_file()
        .with("MONGODB_URI", recoup.variable("MONGODB_URI"))
        .with("REDIS_URL", "redis://127.0.0.1:1");
    let run = without.run(&["--json", "failed", "j1", "--attempt", "1"]);
    assert_eq!(run.status, 0, "{run:?}");
    assert!(run.stdout.contains(r#""outcome":"refunded""#), "{run:?}");
    assert!(run.stderr.contains("the sweep will find it"), "{run:?}");
    database(&recoup).await.drop().await.unwrap();
}
