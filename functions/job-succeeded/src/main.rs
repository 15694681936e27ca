//! `job-succeeded`: marks a job delivered, and takes its refund back if it had one. Wiring only; the rules are in
//! [`recoup::transition`], the use case in [`recoup::handlers::succeeded`]. It needs no Redis, so that nothing about
//! the queue can delay or fail a reclaim.

use std::process::ExitCode;

use recoup::clock::{Clock, SystemClock};
use recoup::config::{Needs, Server};
use recoup::event::{CompletionEvent, Signal};
use recoup::handlers::succeeded::job_succeeded;
use recoup::lambda::{self, StartError};
use recoup::ledger::mongo::MongoLedger;

fn main() -> ExitCode {
    lambda::run(start())
}

async fn start() -> Result<(), StartError> {
    let settings = lambda::settings(Needs::MongoDb)?;
    let mongodb = lambda::address(Server::MongoDb, settings.mongodb.as_ref()).await?;
    let ledger = MongoLedger::open(mongodb.reveal()).await?;
    lambda::serve_events(Signal::Succeeded, &settings.event_sources, async |event: &CompletionEvent| {
        job_succeeded(&ledger, event, SystemClock.now()).await
    })
    .await
}
