//! `webhook`: takes the calls of providers, believes those that prove themselves, and puts their news on the queues of
//! `job-failed` and `job-succeeded`. Wiring only; what is believed is in [`recoup::webhook`].

use std::process::ExitCode;
use std::sync::Arc;

use recoup::aws::Aws;
use recoup::clock::{Clock, SystemClock};
use recoup::lambda::{self, StartError};
use recoup::webhook::{Call, QueueOutbox, WebhookSettings, answer};

fn main() -> ExitCode {
    lambda::run(start())
}

async fn start() -> Result<(), StartError> {
    let settings = WebhookSettings::read(lambda::environment)?;
    let aws = Arc::new(Aws::from_env(lambda::environment)?);
    let proofs = settings.proofs(&aws).await?;
    let outbox = QueueOutbox::new(aws, &settings.failed_queue, &settings.succeeded_queue)?;
    lambda::serve_calls(async |call: &Call<'_>| {
        answer(call, &proofs, &settings.sources, &outbox, SystemClock.now()).await
    })
    .await
}
