//! Calls of providers over HTTP become completion events on the queues.
//!
//! A call is believed by what it proves, not by where it comes from: its [`address`](Subject) carries an HMAC, and where
//! a deployment knows how the provider signs, the [`signature`] must be right as well. Whatever is not proven gets the
//! same answer, 401 and nothing else. What is proven is read by the [table of sources](crate::sources) and put on the
//! queue of the function that it is for; only then it is answered, so a provider that calls again loses nothing, and
//! one that calls twice does no harm, because the guards behind the queue take each event once.

use std::collections::HashMap;
use std::future::Future;

use ring::hmac;
use serde_json::{Value, json};

use crate::clock::Timestamp;
use crate::event::Signal;
use crate::metrics::WEBHOOK_CALLS;
use crate::sources::{Ending, Ignored, Reading, Sources};

mod address;
mod outbox;
mod settings;
mod signature;

pub use address::Subject;
pub use outbox::QueueOutbox;
pub use settings::{Minter, Proofs, WebhookSettings};

/// The most bytes of a body: what Lambda passes on.
pub const MAX_BODY_BYTES: usize = 6 * 1024 * 1024;

/// A call, as far as it matters here.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// `POST`, in capitals.
    pub method: &'a str,
    /// The path, percent-encoded or not: what we write into it needs no encoding.
    pub path: &'a str,
    /// The headers, their names in small letters.
    pub headers: &'a HashMap<String, String>,
    /// The body, as it was sent.
    pub body: &'a [u8],
}

impl Call<'_> {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }
}

/// Where events go.
pub trait Outbox {
    /// Puts the event on the queue of the function that takes `signal`. `id` is the same for the same event.
    ///
    /// # Errors
    /// What the queue said; whether the event stands in it is then unknown.
    fn put(&self, signal: Signal, event: &Value, id: &str) -> impl Future<Output = Result<(), String>>;
}

/// What a call is answered with.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// The HTTP status.
    pub status: u16,
    /// A JSON object, or nothing.
    pub body: Option<Value>,
}

/// What became of a call.
#[derive(Debug, PartialEq)]
enum Outcome {
    /// No proof.
    Unproven,
    /// Something else than `POST`.
    WrongMethod,
    /// More than [`MAX_BODY_BYTES`].
    TooLarge,
    /// Nothing that the provider's row can read; this is why.
    Unreadable(String),
    /// It has no news.
    Ignored(Ignored),
    /// It stands in the queue.
    Queued(Signal),
    /// The queue did not take it; this is why.
    NotQueued(String),
}

impl Outcome {
    /// The value of the metric's dimension.
    fn name(&self) -> &'static str {
        match self {
            Self::Unproven => "unproven",
            Self::WrongMethod => "wrong_method",
            Self::TooLarge => "too_large",
            Self::Unreadable(_) => "unreadable",
            Self::Ignored(_) => "ignored",
            Self::Queued(_) => "queued",
            Self::NotQueued(_) => "not_queued",
        }
    }

    fn reply(self) -> Reply {
        let (status, body) = match self {
            Self::Unproven => (401, None),
            Self::WrongMethod => (405, Some(json!({ "error": "expected POST" }))),
            Self::TooLarge => {
                (413, Some(json!({ "error": format!("expected at most {MAX_BODY_BYTES} bytes") })))
            }
            Self::Unreadable(problem) => (400, Some(json!({ "error": problem }))),
            Self::Ignored(ignored) => {
                (200, Some(json!({ "outcome": "ignored", "why": ignored.why.as_str() })))
            }
            Self::Queued(_) => (202, Some(json!({ "outcome": "queued" }))),
            Self::NotQueued(_) => {
                (503, Some(json!({ "error": "the event could not be queued; call again" })))
            }
        };
        Reply { status, body }
    }
}

/// Answers a call, once its event stands in a queue.
pub async fn answer(
    call: &Call<'_>,
    proofs: &Proofs,
    sources: &Sources,
    outbox: &impl Outbox,
    now: Timestamp,
) -> Reply {
    let Some(subject) = proofs.believe(call, now) else {
        // Its path may be a proof that is only mistyped, so nothing of it is logged.
        tracing::warn!("a call without a proof");
        return done(Outcome::Unproven);
    };
    let outcome = take(call, &subject, sources, outbox, now).await;
    let (job_id, provider, attempt) = (&subject.job_id, subject.provider.as_str(), subject.attempt);
    match &outcome {
        Outcome::NotQueued(error) | Outcome::Unreadable(error) => {
            tracing::error!(%job_id, provider, attempt, outcome = outcome.name(), error, "a call was not taken");
        }
        Outcome::Unproven
        | Outcome::WrongMethod
        | Outcome::TooLarge
        | Outcome::Ignored(_)
        | Outcome::Queued(_) => {
            tracing::info!(%job_id, provider, attempt, outcome = outcome.name(), "call answered");
        }
    }
    done(outcome)
}

fn done(outcome: Outcome) -> Reply {
    WEBHOOK_CALLS.count_one(outcome.name());
    outcome.reply()
}

async fn take(
    call: &Call<'_>,
    subject: &Subject,
    sources: &Sources,
    outbox: &impl Outbox,
    now: Timestamp,
) -> Outcome {
    if call.method != "POST" {
        return Outcome::WrongMethod;
    }
    if call.body.len() > MAX_BODY_BYTES {
        return Outcome::TooLarge;
    }
    let Ok(body) = std::str::from_utf8(call.body) else {
        return Outcome::Unreadable("the body is not UTF-8".to_owned());
    };
    let ending = match sources.read_webhook(subject.provider, body) {
        Ok(Reading::Ended(ending)) => ending,
        Ok(Reading::Ignored(ignored)) => return Outcome::Ignored(ignored),
        Err(error) => return Outcome::Unreadable(error.to_string()),
    };
    let id = event_id(subject, ending.signal);
    match outbox.put(ending.signal, &event(subject, &ending, &id, now), &id).await {
        Ok(()) => Outcome::Queued(ending.signal),
        Err(error) => Outcome::NotQueued(error),
    }
}

/// The completion event, in the form that every reporter may use.
fn event(subject: &Subject, ending: &Ending, id: &str, now: Timestamp) -> Value {
    json!({
        "job_id": subject.job_id, "attempt": subject.attempt, "reason": ending.reason,
        "retryable": ending.retryable, "event_id": id, "occurred_at": now,
    })
}

/// The same for every call that says the same: a digest, because a job's id may be as long as an event's.
fn event_id(subject: &Subject, signal: Signal) -> String {
    let ending = match signal {
        Signal::Failed => "failed",
        Signal::Succeeded => "succeeded",
    };
    let unkeyed = hmac::Key::new(hmac::HMAC_SHA256, b"event");
    format!("{}-{}-{ending}", subject.provider.as_str(), &subject.proof(&unkeyed)[..22])
}

#[cfg(test)]
mod tests;
