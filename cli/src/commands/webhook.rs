//! The address that a provider calls. It needs the secret and no store: what is signed is what was typed.

use recoup::webhook::{Minter, Subject};
use serde::Serialize;

use crate::args::WebhookUrlArgs;
use crate::output::Output;
use crate::stop::Stop;

#[derive(Serialize)]
struct Minted {
    url: String,
}

pub(crate) async fn url(args: WebhookUrlArgs, out: &mut Output) -> Result<(), Stop> {
    let WebhookUrlArgs { job, provider, attempt } = args;
    let minter = Minter::from_env(|name| std::env::var(name).ok()).await;
    let minter = minter.map_err(|error| Stop::Usage(error.to_string()))?;
    let url = minter.address(&Subject { provider, job_id: job, attempt });
    if out.is_json() { out.document(&Minted { url }) } else { out.line(url) }
}
