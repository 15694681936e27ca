//! What an event costs the servers: commands, connections, and how many of them wait for each other.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use recoup_tests::function_world::{FunctionWorld, failures, sqs};
use recoup_tests::servers::Server;
use recoup_tests::wire::{Protocol, Wire};
use serde_json::{Value, json};

/// The driver's pool, as docs/OPERATIONS.md states it, and the connection that watches the server.
const MONGODB_CONNECTIONS: usize = 10 + 1;
const POOL: usize = 10;

/// Functions that reach their servers only through proxies that read along.
struct Watched {
    world: FunctionWorld,
    ledger: Wire,
    queue: Wire,
    _servers: [Server; 2],
}

impl Watched {
    async fn new() -> Self {
        let (mongodb, redis) = (Server::mongodb(false), Server::redis(&[]));
        let ledger = Wire::start(Protocol::MongoDb, mongodb.port()).await;
        let queue = Wire::start(Protocol::Redis, redis.port()).await;
        let world = FunctionWorld::on(&mongodb.mongodb_uri("recoup"), &redis.redis_url())
            .await
            .with(
                "MONGODB_URI",
                &format!("mongodb://127.0.0.1:{}/recoup?directConnection=true", ledger.port()),
            )
            .with("REDIS_URL", &format!("redis://127.0.0.1:{}", queue.port()))
            // Due at once, so that a drain need not be waited for.
            .with("RETRY_BASE_DELAY", "1ms");
        Self { world, ledger, queue, _servers: [mongodb, redis] }
    }

    fn forget(&self) {
        self.ledger.forget();
        self.queue.forget();
    }

    /// Commands to the ledger and to the queue since they were forgotten.
    fn commands(&self) -> [BTreeMap<String, usize>; 2] {
        [self.ledger.commands(), self.queue.commands()]
    }
}

fn counts<const N: usize>(counts: [(&str, usize); N]) -> BTreeMap<String, usize> {
    counts.map(|(command, count)| (command.to_owned(), count)).into()
}

fn jobs(name: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{name}-{number}")).collect()
}

async fn charge(world: &FunctionWorld, jobs: &[String]) {
    world.charge(&jobs.iter().map(String::as_str).collect::<Vec<_>>()).await;
}

fn event(job: &str) -> String {
    json!({ "job_id": job, "attempt": 1 }).to_string()
}

fn batch(jobs: &[String]) -> String {
    sqs(&jobs.iter().map(|job| event(job)).collect::<Vec<_>>())
}

#[tokio::test]
async fn an_event_is_one_command_to_each_server_and_a_refusal_one_more_to_the_ledger() {
    let watched = Watched::new().await;
    watched.world.charge(&["first", "j"]).await;
    let mut failed = watched.world.function("job-failed").await;
    let mut succeeded = watched.world.function("job-succeeded").await;
    failed.invoke(event("first")).await.response();
    succeeded.invoke(event("first")).await.response();

    let one = || counts([("findAndModify", 1)]);
    let refused = || counts([("findAndModify", 1), ("find", 1)]);
    for (is_failure, outcome, commands) in [
        (true, "refunded", [one(), counts([("RPUSH", 1)])]),
        (true, "duplicate", [refused(), counts([])]),
        (false, "reclaimed", [one(), counts([])]),
        (false, "duplicate", [refused(), counts([])]),
        (true, "already_delivered", [refused(), counts([])]),
    ] {
        watched.forget();
        let function = if is_failure { &mut failed } else { &mut succeeded };
        assert_eq!(function.invoke(event("j")).await.response()["outcome"], outcome);
        assert_eq!(watched.commands(), commands, "{outcome}");
    }
}

#[tokio::test]
async fn the_records_of_a_batch_are_written_at_once_and_over_a_small_pool() {
    let watched = Watched::new().await;
    let (first, hundred) = (jobs("first", POOL), jobs("j", 100));
    charge(&watched.world, &first).await;
    charge(&watched.world, &hundred).await;
    let mut failed = watched.world.function("job-failed").await;
    failed.invoke(event("first-0")).await.response();

    watched.forget();
    watched.ledger.hold("findAndModify", POOL - 1);
    watched.queue.hold("RPUSH", POOL - 1);
    assert_eq!(failed.invoke(batch(&first[1..])).await.response(), failures([]));
    let each = POOL - 1;
    assert_eq!(watched.commands(), [counts([("findAndModify", each)]), counts([("RPUSH", each)])]);

    assert_eq!(failed.invoke(batch(&hundred)).await.response(), failures([]));
    assert!(watched.ledger.connections() <= MONGODB_CONNECTIONS, "{}", watched.ledger.connections());
    assert_eq!(watched.queue.connections(), 1);
}

#[tokio::test]
async fn a_drain_takes_two_writes_and_one_move_an_entry_ten_at_a_time() {
    let watched = Watched::new().await;
    let hundred = jobs("j", 100);
    charge(&watched.world, &hundred).await;
    watched.world.charge(&["first"]).await;
    let mut failed = watched.world.function("job-failed").await;
    let mut scheduler = watched.world.function("retry-scheduler").await;
    // A new Redis is sent each script with its text once.
    failed.invoke(event("first")).await.response();
    scheduler.invoke("{}").await.response();
    assert_eq!(failed.invoke(batch(&hundred)).await.response(), failures([]));

    watched.forget();
    watched.ledger.hold("findAndModify", POOL);
    let drained: Value = scheduler.invoke("{}").await.response();
    assert_eq!(drained["dispatched"], 100, "{drained}");
    let [ledger, queue] = watched.commands();
    assert_eq!(ledger["findAndModify"], 200, "the decision and the note, for each");
    assert!(
        ledger.values().sum::<usize>() <= 200 + 10,
        "what does not follow the entries is little: {ledger:?}"
    );
    let moves: usize = queue.values().sum();
    assert!((100..=100 + 20).contains(&moves), "a hand-over for each, and little else: {queue:?}");
    assert!(watched.ledger.connections() <= 2 * MONGODB_CONNECTIONS, "{}", watched.ledger.connections());
}
