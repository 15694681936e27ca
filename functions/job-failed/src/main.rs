//! `job-failed`: refunds a job whose attempt failed, once, and queues its retry. Wiring only; the rules are in
//! [`recoup::transition`], the use case in [`recoup::handlers::failed`].

use std::process::ExitCode;

use recoup::clock::{Clock, SystemClock, roll};
use recoup::config::{Needs, Server};
use recoup::event::{CompletionEvent, Signal};
use recoup::handlers::failed::job_failed;
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
    lambda::serve_events(Signal::Failed, &settings.event_sources, async |event: &CompletionEvent| {
        job_failed(&ledger, &queue, event, &settings.retry, roll(), SystemClock.now()).await
    })
    .await
}
