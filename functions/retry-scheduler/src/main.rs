//! `retry-scheduler`: hands due retries to the workers, sets hopeless jobs aside, and rebuilds what the queue lost.
//! Wiring only; the use case is in [`recoup::handlers::drain`].

use std::process::ExitCode;

use recoup::clock::SystemClock;
use recoup::config::{Needs, Server};
use recoup::dispatch::aws;
use recoup::handlers::drain::{DrainSettings, drain, measure_backlog};
use recoup::lambda::{self, StartError};
use recoup::ledger::mongo::MongoLedger;
use recoup::queue::redis::RedisQueue;

fn main() -> ExitCode {
    lambda::run(start())
}

async fn start() -> Result<(), StartError> {
    let settings = lambda::settings(Needs::MongoDbAndRedis)?;
    let mongodb = lambda::address(Server::MongoDb, settings.mongodb.as_ref()).await?;
    let redis = lambda::address(Server::Redis, settings.redis.as_ref()).await?;
    let ledger = MongoLedger::open(mongodb.reveal()).await?;
    let queue = RedisQueue::with_settings(redis.reveal(), &settings)?;
    let target = aws::target(&settings.dispatch_target, lambda::environment)?;
    let drain_settings = DrainSettings::from(&settings);
    lambda::serve_schedule(
        settings.drain_for,
        &SystemClock,
        async |deadline| drain(&ledger, &queue, &target, &drain_settings, &SystemClock, deadline).await,
        async || measure_backlog(&ledger, &queue, &SystemClock).await,
    )
    .await
}
