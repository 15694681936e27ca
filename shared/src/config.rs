//! One struct from the environment, read once.
//!
//! Pure: the environment comes in as a function, so that nothing here depends on the process and a test says what
//! stands where. Every variable is read and checked by every program that starts, whether it uses it or not: a bad
//! environment is found by whoever starts first. What differs is which of the two addresses must be there ([`Needs`]).
//!
//! An error is one line that names the variable, what is wrong with it and an example. Addresses hold passwords:
//! they are [`Secret`]s, which nothing prints, and no error repeats any part of one.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::backoff::RetryPolicy;
use crate::job::MAX_ATTEMPT;
use crate::sources::{self, Sources};

/// The longest duration that a setting may be: beyond a year it is a typing error.
pub const MAX_DURATION: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// A variable that is missing, cannot be read, or contradicts another.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{variable} {problem}; for example {variable}={example}")]
pub struct ConfigError {
    /// The variable.
    pub variable: &'static str,
    /// What is wrong, without any part of an address.
    pub problem: String,
    /// A value that would be taken.
    pub example: Cow<'static, str>,
}

/// A text that is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Keeps `text`.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself, for whoever connects with it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<secret>")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<secret>")
    }
}

/// Which server an address leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// Jobs and ledger.
    MongoDb,
    /// The retry queue.
    Redis,
}

impl Server {
    /// The variable that holds its address.
    pub fn variable(self) -> &'static str {
        match self {
            Self::MongoDb => "MONGODB_URI",
            Self::Redis => "REDIS_URL",
        }
    }

    /// An address of this kind.
    pub fn example(self) -> &'static str {
        match self {
            Self::MongoDb => "mongodb://db.internal:27017/recoup",
            Self::Redis => "redis://cache.internal:6379",
        }
    }

    fn schemes(self) -> [&'static str; 2] {
        match self {
            Self::MongoDb => ["mongodb://", "mongodb+srv://"],
            Self::Redis => ["redis://", "rediss://"],
        }
    }

    /// An error about this server's address.
    pub fn error(self, problem: impl Into<String>) -> ConfigError {
        ConfigError { variable: self.variable(), problem: problem.into(), example: self.example().into() }
    }

    /// Takes an address with one of this server's schemes. White space around it, such as the line break at the end
    /// of a stored secret, is not part of it.
    ///
    /// # Errors
    /// [`ConfigError`] for anything else.
    pub fn check(self, address: &str) -> Result<Secret, ConfigError> {
        let address = address.trim();
        if self.schemes().iter().any(|s| address.len() > s.len() && address.starts_with(s)) {
            return Ok(Secret::new(address));
        }
        let [one, other] = self.schemes();
        Err(self.error(format!("is no address that starts with {one} or {other}")))
    }
}

/// Where a server is, or where that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// The address itself.
    Direct(Secret),
    /// `secretsmanager:<arn>` or `secretsmanager:<arn>#<key>`.
    Stored(StoredSecret),
}

/// A secret in AWS Secrets Manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredSecret {
    /// Its ARN.
    pub arn: String,
    /// The key within it, where it is a JSON object.
    pub key: Option<String>,
}

impl StoredSecret {
    /// The region that the ARN names.
    pub fn region(&self) -> Option<&str> {
        arn_region(&self.arn)
    }
}

/// The region in an ARN: `arn:<partition>:<service>:<region>:…`.
pub fn arn_region(arn: &str) -> Option<&str> {
    arn.split(':').nth(3).filter(|region| !region.is_empty())
}

/// Where due retries go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DispatchTarget {
    /// The list `<prefix>:ready`.
    Redis,
    /// An SQS queue, by its URL.
    Sqs(String),
    /// An EventBridge bus, by its name or ARN.
    EventBridge(String),
}

/// Which addresses a program cannot do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// `MONGODB_URI`: job-succeeded.
    MongoDb,
    /// Both: job-failed and retry-scheduler.
    MongoDbAndRedis,
    /// Neither: the command, which also works on a file.
    Nothing,
}

/// Everything a program is told by its environment.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// `MONGODB_URI`: jobs and ledger. The database is in its path, `recoup` where it names none.
    pub mongodb: Option<Address>,
    /// `REDIS_URL`: the retry queue.
    pub redis: Option<Address>,
    /// `REDIS_CLUSTER`: whether to talk to a cluster. Default `false`.
    pub redis_cluster: bool,
    /// `REDIS_CA_FILE`: the authority (PEM) that signs the certificates of Redis, in place of those that everybody
    /// trusts. Only its name is read here; the queue reads the file.
    pub redis_ca_file: Option<PathBuf>,
    /// `REDIS_KEY_PREFIX`: what every key in Redis starts with. Default `jobs`; with a hash tag on a cluster.
    pub redis_key_prefix: String,
    /// `RETRY_BASE_DELAY`, `RETRY_MAX_DELAY`, `RETRY_MAX_ATTEMPTS`, `RETRY_JITTER`: when a failed job is tried again.
    /// Defaults `2s`, `15m`, `5`, `0`.
    pub retry: RetryPolicy,
    /// `ATTEMPT_TIMEOUT`: an attempt without any signal for so long has failed; `None` for `0s`. Default `24h`.
    pub attempt_timeout: Option<Duration>,
    /// `CLAIM_TIMEOUT`: when an unacknowledged claim is taken again. Default `60s`.
    pub claim_timeout: Duration,
    /// `SWEEP_GRACE`: when an unqueued retry is rebuilt. Default `2m`.
    pub sweep_grace: Duration,
    /// `DRAIN_FOR`: for how long one scheduler invocation repeats its pass. Default `0s`, one pass.
    pub drain_for: Duration,
    /// `DISPATCH_TARGET`: where due retries go. Default `redis`.
    pub dispatch_target: DispatchTarget,
    /// `EVENT_SOURCES`: what is to be read otherwise of other services' events than the table has it. Default `{}`.
    pub event_sources: Sources,
}

impl Settings {
    /// Reads every variable through `lookup`, which answers `None` where there is none. White space around a value is
    /// not part of it, and an empty variable counts as unset.
    ///
    /// # Errors
    /// [`ConfigError`] for the first variable that is missing or bad.
    pub fn read(needs: Needs, lookup: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let env = Env::new(lookup);
        let settings = Self {
            mongodb: env.address(Server::MongoDb)?,
            redis: env.address(Server::Redis)?,
            redis_cluster: env.boolean("REDIS_CLUSTER", false)?,
            redis_ca_file: env.get("REDIS_CA_FILE").map(PathBuf::from),
            redis_key_prefix: env.key_prefix()?,
            retry: env.retry_policy()?,
            attempt_timeout: Some(env.duration(&ATTEMPT_TIMEOUT)?).filter(|timeout| !timeout.is_zero()),
            claim_timeout: env.duration(&CLAIM_TIMEOUT)?,
            sweep_grace: env.duration(&SWEEP_GRACE)?,
            drain_for: env.duration(&DRAIN_FOR)?,
            dispatch_target: env.dispatch_target()?,
            event_sources: env.event_sources()?,
        };
        settings.check_needs(needs)?;
        settings.check_cluster()?;
        Ok(settings)
    }

    fn check_needs(&self, needs: Needs) -> Result<(), ConfigError> {
        let (mongodb, redis) = match needs {
            Needs::MongoDb => (true, false),
            Needs::MongoDbAndRedis => (true, true),
            Needs::Nothing => (false, false),
        };
        if mongodb && self.mongodb.is_none() {
            return Err(Server::MongoDb.error("is not set"));
        }
        if redis && self.redis.is_none() {
            return Err(Server::Redis.error("is not set"));
        }
        Ok(())
    }

    /// The scripts touch several keys at once, which a cluster allows within one hash slot only.
    fn check_cluster(&self) -> Result<(), ConfigError> {
        if self.redis_cluster && !has_hash_tag(&self.redis_key_prefix) {
            let problem = format!(
                "is {:?}, without a hash tag, while REDIS_CLUSTER is true and all keys must share a slot",
                self.redis_key_prefix
            );
            return Err(ConfigError { variable: "REDIS_KEY_PREFIX", problem, example: "{jobs}".into() });
        }
        Ok(())
    }
}

/// Whether Redis hashes only a part of keys with this prefix: the first `{`, something, and a `}`.
pub fn has_hash_tag(prefix: &str) -> bool {
    prefix.split_once('{').and_then(|(_, rest)| rest.split_once('}')).is_some_and(|(tag, _)| !tag.is_empty())
}

/// A variable that holds a duration.
struct DurationVariable {
    name: &'static str,
    default: Duration,
    zero_is_allowed: bool,
    example: &'static str,
}

const RETRY_BASE_DELAY: DurationVariable = DurationVariable {
    name: "RETRY_BASE_DELAY",
    default: Duration::from_secs(2),
    zero_is_allowed: false,
    example: "2s",
};
const RETRY_MAX_DELAY: DurationVariable = DurationVariable {
    name: "RETRY_MAX_DELAY",
    default: Duration::from_secs(15 * 60),
    zero_is_allowed: false,
    example: "15m",
};
const ATTEMPT_TIMEOUT: DurationVariable = DurationVariable {
    name: "ATTEMPT_TIMEOUT",
    default: Duration::from_secs(24 * 60 * 60),
    zero_is_allowed: true,
    example: "24h",
};
const CLAIM_TIMEOUT: DurationVariable = DurationVariable {
    name: "CLAIM_TIMEOUT",
    default: Duration::from_secs(60),
    zero_is_allowed: false,
    example: "60s",
};
const SWEEP_GRACE: DurationVariable = DurationVariable {
    name: "SWEEP_GRACE",
    default: Duration::from_secs(2 * 60),
    zero_is_allowed: true,
    example: "2m",
};
const DRAIN_FOR: DurationVariable =
    DurationVariable { name: "DRAIN_FOR", default: Duration::ZERO, zero_is_allowed: true, example: "45s" };

const EVENT_SOURCES: &str = "EVENT_SOURCES";
const DISPATCH_EXAMPLE: &str = "sqs:https://sqs.eu-west-1.amazonaws.com/123456789012/retries";
const STORED_PREFIX: &str = "secretsmanager:";

/// The environment, with blanks and empty variables already dealt with.
pub(crate) struct Env<F>(F);

impl<F: Fn(&str) -> Option<String>> Env<F> {
    /// White space around a value is not part of it, and an empty variable counts as unset.
    pub(crate) fn new(lookup: F) -> Self {
        Self(lookup)
    }

    pub(crate) fn get(&self, variable: &str) -> Option<String> {
        (self.0)(variable).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    }

    fn address(&self, server: Server) -> Result<Option<Address>, ConfigError> {
        match self.secret(server.variable())? {
            Some(Address::Direct(address)) => server.check(address.reveal()).map(Address::Direct).map(Some),
            stored => Ok(stored),
        }
    }

    /// A text that is secret, or where it is kept.
    pub(crate) fn secret(&self, variable: &'static str) -> Result<Option<Address>, ConfigError> {
        let Some(value) = self.get(variable) else { return Ok(None) };
        let Some(reference) = value.strip_prefix(STORED_PREFIX) else {
            return Ok(Some(Address::Direct(Secret::new(value))));
        };
        let (arn, key) = reference.split_once('#').map_or((reference, None), |(arn, key)| (arn, Some(key)));
        if !arn.starts_with("arn:") || arn_region(arn).is_none() || key == Some("") {
            return Err(ConfigError {
                variable,
                problem: "starts with secretsmanager: but goes on with no <arn> or <arn>#<key>".to_owned(),
                example:
                    "secretsmanager:arn:aws:secretsmanager:eu-west-1:123456789012:secret:recoup-AbCdEf#uri"
                        .into(),
            });
        }
        Ok(Some(Address::Stored(StoredSecret { arn: arn.to_owned(), key: key.map(ToOwned::to_owned) })))
    }

    fn boolean(&self, variable: &'static str, default: bool) -> Result<bool, ConfigError> {
        match self.get(variable).as_deref() {
            None => Ok(default),
            Some("true") => Ok(true),
            Some("false") => Ok(false),
            Some(other) => Err(ConfigError {
                variable,
                problem: format!("is {}, neither true nor false", shown(other)),
                example: "true".into(),
            }),
        }
    }

    fn key_prefix(&self) -> Result<String, ConfigError> {
        let prefix = self.get("REDIS_KEY_PREFIX").unwrap_or_else(|| "jobs".to_owned());
        if prefix.chars().any(|c| c.is_whitespace() || c.is_control()) || prefix.len() > 200 {
            let problem = format!("is {}, not 1 to 200 bytes without blanks", shown(&prefix));
            return Err(ConfigError { variable: "REDIS_KEY_PREFIX", problem, example: "jobs".into() });
        }
        Ok(prefix)
    }

    fn duration(&self, variable: &DurationVariable) -> Result<Duration, ConfigError> {
        let Some(value) = self.get(variable.name) else { return Ok(variable.default) };
        let refused = |why: &str| ConfigError {
            variable: variable.name,
            problem: format!("is {}, {why}", shown(&value)),
            example: variable.example.into(),
        };
        let duration = humantime::parse_duration(&value)
            .map_err(|_| refused("no duration: a number with a unit (ms, s, m, h or d)"))?;
        if duration.is_zero() && !variable.zero_is_allowed {
            return Err(refused("which is no time at all"));
        }
        if duration.subsec_nanos() % 1_000_000 != 0 {
            return Err(refused("which is not in whole milliseconds"));
        }
        if duration > MAX_DURATION {
            return Err(refused("which is longer than 365 days"));
        }
        Ok(duration)
    }

    fn retry_policy(&self) -> Result<RetryPolicy, ConfigError> {
        let policy = RetryPolicy {
            base_delay: self.duration(&RETRY_BASE_DELAY)?,
            max_delay: self.duration(&RETRY_MAX_DELAY)?,
            max_attempts: self.max_attempts()?,
            jitter: self.jitter()?,
        };
        if policy.max_delay < policy.base_delay {
            let problem = format!(
                "is {}, below RETRY_BASE_DELAY, which is {}",
                humantime::format_duration(policy.max_delay),
                humantime::format_duration(policy.base_delay)
            );
            return Err(ConfigError {
                variable: RETRY_MAX_DELAY.name,
                problem,
                example: max_delay_for(policy.base_delay),
            });
        }
        Ok(policy)
    }

    fn max_attempts(&self) -> Result<u32, ConfigError> {
        let Some(value) = self.get("RETRY_MAX_ATTEMPTS") else {
            return Ok(RetryPolicy::default().max_attempts);
        };
        value.parse().ok().filter(|attempts| (1..=MAX_ATTEMPT).contains(attempts)).ok_or_else(|| {
            ConfigError {
                variable: "RETRY_MAX_ATTEMPTS",
                problem: format!("is {}, not a whole number from 1 to {MAX_ATTEMPT}", shown(&value)),
                example: "5".into(),
            }
        })
    }

    fn jitter(&self) -> Result<f64, ConfigError> {
        let Some(value) = self.get("RETRY_JITTER") else { return Ok(RetryPolicy::default().jitter) };
        // A range holds no NaN.
        value.parse().ok().filter(|share| (0.0..=1.0).contains(share)).ok_or_else(|| ConfigError {
            variable: "RETRY_JITTER",
            problem: format!("is {}, not a number from 0 to 1", shown(&value)),
            example: "0.2".into(),
        })
    }

    pub(crate) fn event_sources(&self) -> Result<Sources, ConfigError> {
        let Some(value) = self.get(EVENT_SOURCES) else { return Ok(Sources::default()) };
        Sources::with_overrides(&value).map_err(|error| ConfigError {
            variable: EVENT_SOURCES,
            problem: error.to_string(),
            example: sources::EXAMPLE.into(),
        })
    }

    fn dispatch_target(&self) -> Result<DispatchTarget, ConfigError> {
        let Some(value) = self.get("DISPATCH_TARGET") else { return Ok(DispatchTarget::Redis) };
        let refused = |problem: String| ConfigError {
            variable: "DISPATCH_TARGET",
            problem,
            example: DISPATCH_EXAMPLE.into(),
        };
        match value.split_once(':') {
            None if value == "redis" => Ok(DispatchTarget::Redis),
            Some(("sqs", url)) if is_queue_url(url) => Ok(DispatchTarget::Sqs(url.to_owned())),
            // Not repeated: a URL may hold a password.
            Some(("sqs", _)) => {
                Err(refused("starts with sqs: but goes on with no https URL of a queue".to_owned()))
            }
            Some(("eventbridge", bus)) if is_bus(bus) => Ok(DispatchTarget::EventBridge(bus.to_owned())),
            Some(("eventbridge", bus)) => {
                Err(refused(format!("starts with eventbridge: but {} is no name of a bus", shown(bus))))
            }
            None | Some(_) => {
                Err(refused("is none of redis, sqs:<queue url> and eventbridge:<bus name>".to_owned()))
            }
        }
    }
}

/// A longest delay that goes with this base: the usual one, or else the base itself.
fn max_delay_for(base_delay: Duration) -> Cow<'static, str> {
    if base_delay <= RETRY_MAX_DELAY.default {
        RETRY_MAX_DELAY.example.into()
    } else {
        humantime::format_duration(base_delay).to_string().replace(' ', "").into()
    }
}

/// `https://<host>/<account>/<queue>`; plain http only to a stand-in for AWS on this machine.
pub(crate) fn is_queue_url(url: &str) -> bool {
    let host_and_path = match url.split_once("://") {
        Some(("https", rest)) => rest,
        Some(("http", rest)) if is_loopback(rest) => rest,
        Some(_) | None => return false,
    };
    let plain = |c: char| c.is_ascii_graphic() && !matches!(c, '@' | '?' | '#' | '"' | '\\');
    host_and_path.chars().all(plain)
        && host_and_path
            .split_once('/')
            .is_some_and(|(host, path)| !host.is_empty() && !path.trim_matches('/').is_empty())
}

fn is_loopback(host_and_path: &str) -> bool {
    ["localhost", "127.0.0.1", "[::1]"].iter().any(|host| {
        host_and_path.strip_prefix(host).is_some_and(|rest| rest.starts_with(':') || rest.starts_with('/'))
    })
}

fn is_bus(bus: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/');
    let name = if bus.starts_with("arn:") { bus.rsplit(':').next().unwrap_or_default() } else { bus };
    (1..=256).contains(&name.len()) && name.chars().all(plain)
}

/// A wrong value, quoted, on one line, cut to 60 characters.
fn shown(value: &str) -> String {
    let cut: String = value.chars().take(60).collect();
    let more = if cut.len() < value.len() { "…" } else { "" };
    format!("{cut:?}{more}")
}

#[cfg(test)]
mod tests;
