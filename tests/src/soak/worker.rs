//! A worker process: pops work from Redis and reports what became of it, a JSON line on stdout each.
//!
//! A line is what the event source accepts; whatever the process knew and had not written when it was killed, nobody
//! ever hears of. The wild worker answers once, twice, both ways, too late, or not at all; the calm one answers.

use std::io::Write;
use std::time::Duration;

use fastrand::Rng;
use recoup::clock::{Clock, SystemClock};
use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;

use super::world::{FIRST_WORK, PREFIX};

/// The argument by which the program `soak` becomes a worker.
pub const ARGUMENT: &str = "worker";

/// What a worker says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Line {
    /// It took this message from `ready`.
    Took(String),
    /// It did what it does without a word; the figure of it.
    Quietly(String),
    /// Attempt succeeded.
    Succeeded(Value),
    /// Attempt failed.
    Failed(Value),
}

impl Line {
    fn write(&self) {
        let line = serde_json::to_string(self).expect("strings and numbers are JSON");
        // Whole, so that a kill leaves a line or none. With nobody to hear it there is nothing left to do.
        if writeln!(std::io::stdout().lock(), "{line}").is_err() {
            std::process::exit(0);
        }
    }
}

/// Work, as the platform and the scheduler hand it out.
#[derive(Clone, Debug, Deserialize)]
struct Work {
    job_id: String,
    account_id: String,
    attempt: u32,
}

/// The worker's whole life: until its input ends, which is the soak's end.
pub async fn work(redis_url: &str, seed: u64, is_calm: bool) {
    let mut rng = Rng::with_seed(seed);
    let mut connection: Option<MultiplexedConnection> = None;
    let mut input = tokio::io::stdin();
    let mut byte = [0];
    loop {
        let popped = tokio::select! {
            _ = input.read(&mut byte) => return,
            popped = pop(redis_url, &mut connection) => popped,
        };
        match popped {
            Ok(Some((list, message))) => {
                if list != FIRST_WORK {
                    Line::Took(message.clone()).write();
                }
                if let Ok(work) = serde_json::from_str(&message) {
                    tokio::spawn(run(work, Rng::with_seed(rng.u64(..)), is_calm));
                }
            }
            Ok(None) => {}
            Err(_) => {
                connection = None;
                SystemClock.sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

async fn pop(
    redis_url: &str,
    kept: &mut Option<MultiplexedConnection>,
) -> redis::RedisResult<Option<(String, String)>> {
    let mut connection = match kept.take() {
        Some(connection) => connection,
        None => {
            let patience = Some(Duration::from_secs(2));
            let config =
                AsyncConnectionConfig::new().set_connection_timeout(patience).set_response_timeout(patience);
            redis::Client::open(redis_url)?.get_multiplexed_async_connection_with_config(&config).await?
        }
    };
    let mut command = redis::cmd("BLPOP");
    command.arg(format!("{PREFIX}:ready")).arg(FIRST_WORK).arg(0.5);
    let popped = command.query_async(&mut connection).await?;
    *kept = Some(connection);
    Ok(popped)
}

async fn run(work: Work, mut rng: Rng, is_calm: bool) {
    let soon = Duration::from_millis(rng.u64(2..120));
    SystemClock.sleep(soon).await;
    if is_calm {
        return match rng.u8(0..100) {
            0..60 => succeeded(&work, &mut rng),
            60..95 => failed(&work, &mut rng, true),
            _ => failed(&work, &mut rng, false),
        };
    }
    let a_while = Duration::from_millis(rng.u64(50..1_500));
    let too_long = Duration::from_millis(rng.u64(2_500..7_000));
    match rng.u8(0..100) {
        0..38 => succeeded(&work, &mut rng),
        38..43 => {
            succeeded(&work, &mut rng);
            SystemClock.sleep(a_while).await;
            succeeded(&work, &mut rng);
        }
        43..50 => {
            quietly("worker: answered too late");
            SystemClock.sleep(too_long).await;
            succeeded(&work, &mut rng);
        }
        50..64 => failed(&work, &mut rng, true),
        64..74 => {
            quietly("worker: failure, then success");
            failed(&work, &mut rng, true);
            SystemClock.sleep(a_while).await;
            succeeded(&work, &mut rng);
        }
        74..80 => {
            quietly("worker: success, then failure");
            succeeded(&work, &mut rng);
            SystemClock.sleep(a_while).await;
            failed(&work, &mut rng, true);
        }
        80..86 => {
            quietly("worker: one failure reported twice");
            failed(&work, &mut rng, true);
            SystemClock.sleep(a_while).await;
            failed(&work, &mut rng, true);
        }
        86..91 => failed(&work, &mut rng, false),
        91..97 => quietly("worker: died silently"),
        _ => std::process::exit(1),
    }
}

fn quietly(figure: &str) {
    Line::Quietly(figure.to_owned()).write();
}

fn succeeded(work: &Work, rng: &mut Rng) {
    let mut body = body(work, rng);
    if rng.f64() < 0.8 {
        body["attempt"] = work.attempt.into();
    }
    Line::Succeeded(body).write();
}

fn failed(work: &Work, rng: &mut Rng, retryable: bool) {
    let mut body = body(work, rng);
    if rng.f64() < 0.75 {
        body["attempt"] = work.attempt.into();
    }
    body["reason"] = "the soak's worker says so".into();
    if !retryable || rng.bool() {
        body["retryable"] = retryable.into();
    }
    Line::Failed(body).write();
}

fn body(work: &Work, rng: &mut Rng) -> Value {
    let mut body = json!({ "job_id": work.job_id });
    if rng.bool() {
        body["account_id"] = work.account_id.clone().into();
    }
    if rng.f64() < 0.3 {
        body["event_id"] = format!("{}-{}", work.job_id, rng.u32(..)).into();
    }
    body
}
