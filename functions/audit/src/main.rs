//! `audit`: every job against the rules, and the retry queue against the ledger, on a schedule; reads only. Wiring
//! only; the use case is in [`recoup::handlers::audit`].

use std::process::ExitCode;

use recoup::clock::SystemClock;
use recoup::config::{Needs, Server};
use recoup::handlers::audit::AuditSettings;
use recoup::lambda::{self, StartError};
use recoup::ledger::mongo::MongoLedger;
use recoup::queue::redis::RedisQueue;

/// A replay on the servers has a queue of its own, which nobody drains after it.
const QUEUES_REPLAYS: bool = false;

fn main() -> ExitCode {
    lambda::run(start())
}

async fn start() -> Result<(), StartError> {
    let settings = lambda::settings(Needs::MongoDbAndRedis)?;
    let mongodb = lambda::address(Server::MongoDb, settings.mongodb.as_ref()).await?;
    let redis = lambda::address(Server::Redis, settings.redis.as_ref()).await?;
    let ledger = MongoLedger::open(mongodb.reveal()).await?;
    let queue = RedisQueue::with_settings(redis.reveal(), &settings)?;
    lambda::serve_audit(&ledger, &queue, AuditSettings::new(&settings, QUEUES_REPLAYS), &SystemClock).await
}
