//! The functions while a server is down, frozen, or back again. Each test has servers of its own.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use recoup::clock::Deadline;
use recoup::job::Phase;
use recoup_tests::function_world::{FunctionWorld, failures, sqs};
use recoup_tests::runtime_api::{Answer, Function};
use recoup_tests::servers::{self, Server};
use serde_json::json;

/// What the contract allows for an outage to be answered.
const OUTAGE: Duration = Duration::from_secs(5);

fn body(job: &str) -> String {
    json!({"job_id": job, "attempt": 1}).to_string()
}

fn batch(records: usize) -> String {
    sqs(&(0..records).map(|_| body("j")).collect::<Vec<_>>())
}

fn ids(records: usize) -> impl Iterator<Item = String> {
    (0..records).map(|number| format!("m{number}"))
}

/// The answer, which must come within the time of an outage.
async fn soon(function: &mut Function, payload: &str) -> Answer {
    let answer = Deadline::after(OUTAGE).bound(function.invoke(payload)).await;
    answer.expect("an outage is answered within 5 s")
}

async fn own_mongodb() -> (Server, FunctionWorld) {
    let mongodb = Server::mongodb(false);
    let world = FunctionWorld::on(&mongodb.mongodb_uri("recoup"), &servers::redis_url()).await;
    (mongodb, world)
}

async fn own_redis() -> (Server, FunctionWorld) {
    let redis = Server::redis(&[]);
    let world = FunctionWorld::on(&servers::fresh_database(), &redis.redis_url()).await;
    (redis, world)
}

#[tokio::test]
async fn mongodb_down_fails_every_record_within_5_s_and_the_same_process_recovers() {
    let (mut mongodb, world) = own_mongodb().await;
    world.charge(&["j"]).await;
    let mut failed = world.function("job-failed").await;
    let mut scheduler = world.function("retry-scheduler").await;
    assert_eq!(failed.invoke(sqs(&[body("j")])).await.response(), failures([]));
    scheduler.invoke("{}").await.response();

    mongodb.kill();
    assert_eq!(soon(&mut failed, &batch(100)).await.response(), failures(ids(100)));
    assert!(soon(&mut failed, &body("j")).await.error().contains("try again"));
    assert!(soon(&mut scheduler, "{}").await.error().contains("try again"));

    mongodb.start();
    assert_eq!(failed.invoke(batch(20)).await.response(), failures([]));
    scheduler.invoke("{}").await.response();
    assert_eq!(world.job("j").await.attempts, 1);
}

#[tokio::test]
async fn a_mongodb_that_hangs_fails_every_record_within_5_s_and_the_same_process_recovers() {
    let (mongodb, world) = own_mongodb().await;
    world.charge(&["j"]).await;
    let mut succeeded = world.function("job-succeeded").await;
    let mut scheduler = world.function("retry-scheduler").await;
    assert_eq!(succeeded.invoke(sqs(&[body("unknown")])).await.response(), failures(ids(1)));

    mongodb.freeze(true);
    assert_eq!(soon(&mut succeeded, &batch(100)).await.response(), failures(ids(100)));
    soon(&mut succeeded, &body("j")).await.error();
    soon(&mut scheduler, "{}").await.error();

    mongodb.freeze(false);
    assert_eq!(succeeded.invoke(batch(20)).await.response(), failures([]));
    scheduler.invoke("{}").await.response();
    assert_eq!(world.job("j").await.phase, Phase::Delivered);
}

#[tokio::test]
async fn what_was_not_reached_before_the_deadline_is_reported_before_it() {
    let (mongodb, world) = own_mongodb().await;
    world.charge(&["j"]).await;
    let mut failed = world.function("job-failed").await;
    failed.invoke(body("j")).await.response();
    mongodb.freeze(true);
    let deadline = Duration::from_secs(2);
    let answer = Deadline::after(deadline).bound(failed.invoke_within(batch(30), deadline)).await;
    assert_eq!(answer.expect("Lambda would have killed it").response(), failures(ids(30)));
    mongodb.freeze(false);
    assert_eq!(failed.invoke(batch(30)).await.response(), failures([]));
}

#[tokio::test]
async fn redis_down_or_hanging_fails_no_refund_and_delays_it_by_the_push_at_most() {
    let (mut redis, world) = own_redis().await;
    world.charge(&["a", "b", "c"]).await;
    let mut failed = world.function("job-failed").await;
    // A job that the ledger knows already: the answer needs no queue, and the process is warm.
    failed.invoke(body("unknown")).await.error();

    // Half a second for the push, and the machine's own time.
    let patience = Duration::from_millis(1_500);
    redis.freeze(true);
    let answer = Deadline::after(patience).bound(failed.invoke(body("a"))).await;
    assert_eq!(answer.expect("the push is given up on").response()["outcome"], "refunded");
    redis.freeze(false);
    redis.kill();
    let answer = Deadline::after(patience).bound(failed.invoke(body("b"))).await;
    assert_eq!(answer.expect("the push is given up on").response()["outcome"], "refunded");
    assert_eq!(world.job("b").await.phase, Phase::RetryWaiting);

    redis.start();
    assert_eq!(failed.invoke(body("c")).await.response()["outcome"], "refunded");
    assert_eq!(world.list("retry").await.len(), 1, "the retry of the last is queued again");
}

#[tokio::test]
async fn without_redis_the_scheduler_fails_within_5_s_and_the_same_process_recovers() {
    let (mut redis, world) = own_redis().await;
    let world = world.with("SWEEP_GRACE", "0s");
    world.charge(&["j"]).await;
    let mut scheduler = world.function("retry-scheduler").await;
    redis.freeze(true);
    soon(&mut scheduler, "{}").await.error();
    redis.freeze(false);
    redis.kill();
    assert!(soon(&mut scheduler, "{}").await.error().contains("Redis"));
    let mut failed = world.function("job-failed").await;
    assert_eq!(failed.invoke(body("j")).await.response()["outcome"], "refunded");

    redis.start();
    servers::pause(Duration::from_millis(300));
    let first = scheduler.invoke("{}").await.response();
    let second = scheduler.invoke("{}").await.response();
    let dispatched = [first, second].iter().map(|counts| counts["dispatched"].as_u64().unwrap()).sum::<u64>();
    assert_eq!(dispatched, 1, "the sweep rebuilds what was never queued");
}

#[tokio::test]
async fn the_success_handler_needs_no_redis() {
    let world = FunctionWorld::shared().await.with("REDIS_URL", "");
    world.charge(&["j"]).await;
    let mut succeeded = world.function("job-succeeded").await;
    assert_eq!(succeeded.invoke(body("j")).await.response()["outcome"], "delivered");
}

#[tokio::test]
async fn a_process_that_was_started_while_the_servers_were_down_serves_once_they_are_back() {
    let (mut mongodb, world) = own_mongodb().await;
    world.charge(&["j"]).await;
    mongodb.kill();
    let mut failed = world.function("job-failed").await;
    soon(&mut failed, &body("j")).await.error();
    mongodb.start();
    assert_eq!(failed.invoke(body("j")).await.response()["outcome"], "refunded");
}
