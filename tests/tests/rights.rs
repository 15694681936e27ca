//! The rights that the manual gives to each program: enough to work with, and none that could be left out.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::time::Duration;

use recoup::clock::{Clock, SystemClock, Timestamp};
use recoup::job::JobId;
use recoup::queue::redis::RedisQueue;
use recoup::queue::{List, QueueError, RetryEntry, RetryQueue};
use recoup_tests::function_world::FunctionWorld;
use recoup_tests::queue_suite::judged;
use recoup_tests::servers::{self, Server};
use recoup_tests::wire::{Protocol, Wire};
use redis::aio::MultiplexedConnection;
use serde_json::{Value, json};

const MANUAL: &str = include_str!("../../docs/OPERATIONS.md");

/// The words of the manual's line for this user of Redis.
fn manual_acl(user: &str) -> Vec<&'static str> {
    let begin = format!("ACL SETUSER {user} ");
    let line = MANUAL.lines().find(|line| line.starts_with(&begin)).expect("the manual has the line");
    line.split(' ').skip(2).collect()
}

/// A Redis of one's own and its administrator.
struct Guarded {
    server: Server,
    admin: MultiplexedConnection,
}

impl Guarded {
    async fn new() -> Self {
        let server = Server::redis(&[]);
        let client = redis::Client::open(server.redis_url()).unwrap();
        let admin = client.get_multiplexed_async_connection().await.unwrap();
        Self { server, admin }
    }

    async fn set_user(&mut self, words: &[&str]) {
        redis::cmd("ACL").arg("SETUSER").arg(words).query_async::<()>(&mut self.admin).await.unwrap();
    }

    fn url(&self, user: &str) -> String {
        format!("redis://{user}:password@127.0.0.1:{}", self.server.port())
    }
}

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millis(ms)
}

fn entry(job: &str, due: i64) -> RetryEntry {
    RetryEntry { job_id: JobId::new(job).unwrap(), attempts: 1, not_before: at(due) }
}

const CLAIM_TIMEOUT: Duration = Duration::from_millis(5);

/// Everything that a drain does to the queue, from an empty one on.
async fn whole_life(queue: &RedisQueue) -> Result<(), QueueError> {
    for job in ["a", "b", "c", "d"] {
        queue.push(&entry(job, 1)).await?;
    }
    let entries = queue.look_at_new(10).await?;
    queue.take_new(&entries.into_iter().map(judged).collect::<Vec<_>>()).await?;
    queue.park_missing(&[entry("e", 1)], at(5)).await?;
    queue.missing(&[entry("a", 1)]).await?;
    let claims = queue.claim_due(at(10), CLAIM_TIMEOUT, 4).await?;
    queue.hand_over(&claims[0], List::Ready, "{}").await?;
    queue.hand_over(&claims[1], List::DeadLetter, "{}").await?;
    queue.acknowledge(&claims[2]).await?;
    queue.give_back(&claims[3], at(20)).await?;
    queue.claim_due(at(10), CLAIM_TIMEOUT, 4).await?;
    queue.claim_expired(at(60), CLAIM_TIMEOUT).await?;
    queue.keep_sweep_cursor("{}").await?;
    queue.sweep_cursor().await?;
    queue.depths().await.map(|_| ())
}

#[tokio::test]
async fn the_scheduler_needs_each_of_its_commands_and_no_other() {
    let mut redis = Guarded::new().await;
    let words = manual_acl("retry-scheduler");
    redis.set_user(&words).await;
    let url = redis.url("retry-scheduler");
    whole_life(&RedisQueue::open(&url, "jobs", false).unwrap()).await.unwrap();
    let elsewhere = RedisQueue::open(&url, "others", false).unwrap();
    assert!(matches!(elsewhere.depths().await, Err(QueueError::Refused { .. })), "another prefix's keys");

    for right in words.iter().filter(|word| word.starts_with('+')) {
        redis::cmd("FLUSHALL").query_async::<()>(&mut redis.admin).await.unwrap();
        redis::cmd("SCRIPT").arg("FLUSH").query_async::<()>(&mut redis.admin).await.unwrap();
        redis.set_user(&["retry-scheduler", &right.replace('+', "-")]).await;
        let life = whole_life(&RedisQueue::open(&url, "jobs", false).unwrap()).await;
        assert!(matches!(life, Err(QueueError::Refused { .. })), "{right} is not needed: {life:?}");
        redis.set_user(&["retry-scheduler", right]).await;
    }
}

#[tokio::test]
async fn each_function_works_with_its_rights_in_redis() {
    let mut redis = Guarded::new().await;
    for user in ["job-failed", "retry-scheduler", "audit"] {
        redis.set_user(&manual_acl(user)).await;
    }
    let mut world = FunctionWorld::on(&servers::fresh_database(), &redis.server.redis_url())
        .await
        .with("REDIS_KEY_PREFIX", "jobs")
        .with("RETRY_BASE_DELAY", "1ms");
    world.charge(&["j", "k"]).await;
    for (function, payload, answer) in [
        ("job-failed", json!({"job_id": "j"}), json!({"outcome": "refunded"})),
        ("retry-scheduler", json!({}), json!({"dispatched": 1})),
        ("job-failed", json!({"job_id": "k"}), json!({"outcome": "refunded"})),
        ("audit", json!({}), json!({"violations": 0})),
    ] {
        world = world.with("REDIS_URL", &redis.url(function));
        let mut running = world.function(function).await;
        let said = running.invoke(payload.to_string()).await.response();
        for (field, value) in answer.as_object().unwrap() {
            assert_eq!(&said[field], value, "{function}: {said}");
        }
        let lines = running.kill();
        assert!(!lines.iter().any(|line| line.contains("NOPERM")), "{function}: {lines:?}");
    }
    let waiting: usize = redis::cmd("LLEN").arg("jobs:retry").query_async(&mut redis.admin).await.unwrap();
    assert_eq!(waiting, 1, "what job-failed pushed last");
}

/// The rights that MongoDB asks for a command, see
/// <https://www.mongodb.com/docs/manual/reference/privilege-actions/>. None of these writes upserts.
fn actions(command: &str) -> &'static [&'static str] {
    match command {
        "find" | "aggregate" => &["find"],
        // Of one's own cursors.
        "getMore" | "killCursors" => &[],
        "findAndModify" => &["find", "update"],
        "insert" => &["insert"],
        other => panic!("nobody has the right to {other}"),
    }
}

#[tokio::test]
async fn the_functions_need_the_rights_in_mongodb_that_the_manual_gives_them() {
    let mongodb = Server::mongodb(false);
    let wire = Wire::start(Protocol::MongoDb, mongodb.port()).await;
    let world = FunctionWorld::on(&mongodb.mongodb_uri("recoup"), &servers::redis_url())
        .await
        .with("MONGODB_URI", &format!("mongodb://127.0.0.1:{}/recoup?directConnection=true", wire.port()))
        .with("RETRY_BASE_DELAY", "1ms")
        .with("RETRY_MAX_ATTEMPTS", "1")
        .with("ATTEMPT_TIMEOUT", "1ms");
    world.charge(&["silent", "failed", "final", "delivered"]).await;
    SystemClock.sleep(Duration::from_millis(2)).await;
    let mut used: [BTreeSet<&str>; 2] = Default::default();
    for (function, payload) in [
        ("job-failed", json!({"job_id": "failed"})),
        ("job-failed", json!({"job_id": "final", "retryable": false})),
        ("job-failed", json!({"job_id": "unknown"})),
        ("job-succeeded", json!({"job_id": "delivered"})),
        ("job-succeeded", json!({"job_id": "delivered"})),
        ("retry-scheduler", Value::Null),
        ("audit", Value::Null),
    ] {
        wire.forget();
        world.function(function).await.invoke(payload.to_string()).await;
        let commands = wire.commands();
        assert!(!commands.is_empty(), "{function}");
        used[usize::from(function == "audit")].extend(commands.keys().flat_map(|command| actions(command)));
    }
    for (role, used) in ["recoupFunctions", "recoupAudit"].into_iter().zip(used) {
        let granted =
            MANUAL.split_once(&format!("role: \"{role}\"")).unwrap().1.split_once("actions: [").unwrap().1;
        let granted: BTreeSet<&str> =
            granted.split_once(']').unwrap().0.split(", ").map(|action| action.trim_matches('"')).collect();
        assert_eq!(granted, used, "{role}");
    }
}
