//! The environment: every variable with anything in it. An input is `NAME=value` a line; a line end in a value is `\n`.

use std::collections::HashMap;
use std::time::Duration;

use fastrand::Rng;
use recoup::config::{MAX_DURATION, Needs, Settings};
use recoup::ledger::mongo::MongoLedger;
use recoup::queue::redis::RedisQueue;

use super::json::{once_in, pick};
use super::{Input, check_line};

/// Stands wherever a password may: nothing that is printed may hold it.
const PASSWORD: &str = "hunter2";

const DURATIONS: [&str; 22] = [
    "2s",
    "15m",
    "500ms",
    "0s",
    "0",
    "-1s",
    "1",
    "1e3s",
    "1.5s",
    "99999999999999999999s",
    "18446744073709551615s",
    "365d",
    "366d",
    "1ns",
    "1s 1s",
    "1\u{2028}s",
    "\u{662}s",
    "inf",
    "1y",
    "5000000000000years",
    "1s\n2s",
    "s",
];
const NUMBERS: [&str; 14] = [
    "0",
    "1",
    "5",
    "2147483647",
    "2147483648",
    "-1",
    "1.0",
    "1e999",
    "NaN",
    "0.5",
    "1.5",
    "-0",
    "0x1",
    "\u{665}",
];
const ADDRESSES: [&str; 26] = [
    "mongodb://user:hunter2@127.0.0.1:1/recoup",
    "mongodb://user:hunter2@127.0.0.1:1/a.b",
    "mongodb://user:hunter2@127.0.0.1:1/?w=1",
    "mongodb://user:hunter2@127.0.0.1:99999/",
    "mongodb://user:hun@ter2:hunter2@h",
    "mongodb://user:hunter2",
    "mongodb://u:p%hunter2@h/",
    "mongodb://h/?authMechanism=hunter2",
    "mongodb://h/?hunter2",
    "mongodb://h/?readPreferenceTags=hunter2:&w=hunter2",
    "mongodb://h/?tls=true&tlsAllowInvalidCertificates=hunter2",
    "mongodb://[::hunter2]/",
    "redis://:hunter2@127.0.0.1:1",
    "redis://:hunter2@127.0.0.1:port",
    "redis://:hunter2@127.0.0.1/hunter2",
    "rediss://:hunter2@127.0.0.1:1",
    "rediss://:hunter2@127.0.0.1:1/#insecure",
    "rediss://:hunter2@127.0.0.1:1/#hunter2",
    "redis://127.0.0.1/?password=hunter2",
    "redis+unix:///hunter2",
    "unix:///hunter2",
    "secretsmanager:hunter2",
    "secretsmanager:arn:aws:secretsmanager:eu-west-1:1:secret:hunter",
    "secretsmanager:arn:aws:secretsmanager:eu-west-1:1:secret:s#",
    "https://user:hunter2@h/",
    "hunter2",
];
const TARGETS: [&str; 9] = [
    "redis",
    "sqs:https://h/1/q",
    "sqs:https://user:hunter2@h/1/q",
    "sqs:http://hunter2/1/q",
    "eventbridge:bus",
    "eventbridge:a b\n",
    "sqs:",
    "kafka:hunter2",
    ":",
];
const PREFIXES: [&str; 8] = ["jobs", "{jobs}", "{}", "a b", "\u{2028}", "a\u{1b}[2J", "\u{202e}", "}{"];

/// Values for a variable that are good, or nearly.
fn values(name: &str) -> &'static [&'static str] {
    match name {
        "MONGODB_URI" | "REDIS_URL" => &ADDRESSES,
        "REDIS_CLUSTER" => &["true", "false", "TRUE", "1", ""],
        "REDIS_KEY_PREFIX" => &PREFIXES,
        "RETRY_MAX_ATTEMPTS" | "RETRY_JITTER" => &NUMBERS,
        "DISPATCH_TARGET" => &TARGETS,
        _ => &DURATIONS,
    }
}

const VARIABLES: [&str; 13] = [
    "MONGODB_URI",
    "REDIS_URL",
    "REDIS_CLUSTER",
    "REDIS_CA_FILE",
    "REDIS_KEY_PREFIX",
    "RETRY_BASE_DELAY",
    "RETRY_MAX_DELAY",
    "RETRY_MAX_ATTEMPTS",
    "RETRY_JITTER",
    "ATTEMPT_TIMEOUT",
    "CLAIM_TIMEOUT",
    "SWEEP_GRACE",
    "DRAIN_FOR",
];

/// An environment.
pub fn generate(rng: &mut Rng) -> Input {
    let mut lines = Vec::new();
    for name in VARIABLES.iter().chain(&["DISPATCH_TARGET"]) {
        if once_in(rng, 3) {
            lines.push(format!("{name}={}", value(rng, name).replace('\n', "\\n")));
        }
    }
    lines.join("\n").into()
}

/// The variables of an input.
pub fn variables(input: &[u8]) -> HashMap<String, String> {
    let text = String::from_utf8_lossy(input);
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), value.replace("\\n", "\n"))).collect()
}

fn value(rng: &mut Rng, name: &str) -> String {
    match rng.u8(..12) {
        0 => pick(rng, &["x", " ", "1", "\u{1f4be}"]).repeat(rng.usize(..3_000)),
        1 => format!("{}\u{1b}\u{2028}\n{}", pick(rng, values(name)), rng.char(..)),
        2 => (0..rng.usize(..20)).map(|_| rng.char(..)).collect(),
        _ => pick(rng, values(name)).to_owned(),
    }
}

/// Whatever stands in the environment, these things are true.
pub fn check(input: &Input) -> Result<(), String> {
    let variables = variables(&input.bytes);
    for needs in [Needs::Nothing, Needs::MongoDb, Needs::MongoDbAndRedis] {
        match Settings::read(needs, |name| variables.get(name).cloned()) {
            Err(error) => check_refusal(&error.to_string())?,
            Ok(settings) => check_settings(&settings)?,
        }
    }
    check_addresses(&variables)
}

/// A refusal is one line that names the variable and holds no password.
fn check_refusal(line: &str) -> Result<(), String> {
    check_line(line)?;
    check_silent(line)?;
    let named = VARIABLES.iter().chain(&["DISPATCH_TARGET"]).any(|name| line.starts_with(name));
    if named && line.contains("for example") { Ok(()) } else { Err(format!("the refusal is {line:?}")) }
}

fn check_silent(said: &str) -> Result<(), String> {
    if said.contains(PASSWORD) { Err(format!("a password is shown: {said:?}")) } else { Ok(()) }
}

fn check_settings(settings: &Settings) -> Result<(), String> {
    let retry = &settings.retry;
    let delays = [retry.base_delay, retry.max_delay, settings.claim_timeout];
    let is_right = delays.iter().all(|delay| (Duration::from_millis(1)..=MAX_DURATION).contains(delay))
        && retry.base_delay <= retry.max_delay
        && retry.max_attempts >= 1
        && (0.0..=1.0).contains(&retry.jitter);
    if !is_right {
        return Err(format!("these were taken: {settings:?}"));
    }
    check_silent(&format!("{settings:?}"))
}

/// The clients' own parsers behind the two addresses. An SRV record would be asked for, so that scheme is left out.
fn check_addresses(variables: &HashMap<String, String>) -> Result<(), String> {
    if let Some(url) = variables.get("REDIS_URL")
        && let Err(error) = RedisQueue::open(url, "jobs", false)
    {
        check_refusal_of_address(&error.to_string())?;
    }
    let Some(uri) = variables.get("MONGODB_URI").filter(|uri| !uri.starts_with("mongodb+srv")) else {
        return Ok(());
    };
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
    match runtime.block_on(MongoLedger::open(uri)) {
        Err(error) => check_refusal_of_address(&error.to_string()),
        Ok(ledger) => check_silent(&format!("{ledger:?}")),
    }
}

fn check_refusal_of_address(line: &str) -> Result<(), String> {
    check_line(line)?;
    check_silent(line)
}
