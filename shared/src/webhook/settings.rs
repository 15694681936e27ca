//! What the function `webhook` is told by its environment, and the keys that come of it.
//!
//! | variable | what it holds |
//! | --- | --- |
//! | `WEBHOOK_SECRET` | what addresses are signed with: 32 bytes or more |
//! | `WEBHOOK_SECRET_PREVIOUS` | the one before, whose addresses are still believed |
//! | `REPLICATE_WEBHOOK_SECRET` | `whsec_…`, as Replicate's API gives it; calls must then be signed |
//! | `FAL_WEBHOOK_KEYS` | fal.ai's key set as JSON; calls must then be signed |
//! | `JOB_FAILED_QUEUE_URL`, `JOB_SUCCEEDED_QUEUE_URL` | the queues before the two functions |
//! | `WEBHOOK_BASE_URL` | where the function is called; read by whoever mints addresses |
//!
//! The first four may be `secretsmanager:<arn>` or `secretsmanager:<arn>#<key>`.

use std::borrow::Cow;

use ring::hmac;

use super::signature::{ed25519_keys, is_fal, is_standard, standard_keys};
use super::{Call, Subject};
use crate::aws::Aws;
use crate::clock::Timestamp;
use crate::config::{Address, ConfigError, Env, Secret, is_queue_url};
use crate::sources::{Provider, Sources};

const SECRET: &str = "WEBHOOK_SECRET";
const PREVIOUS: &str = "WEBHOOK_SECRET_PREVIOUS";
const REPLICATE: &str = "REPLICATE_WEBHOOK_SECRET";
const FAL: &str = "FAL_WEBHOOK_KEYS";
const BASE_URL: &str = "WEBHOOK_BASE_URL";
/// As long as what HMAC-SHA256 makes of it.
const MIN_SECRET_BYTES: usize = 32;

/// What the environment says, secrets still where they are kept.
#[derive(Clone, Debug, PartialEq)]
pub struct WebhookSettings {
    /// The queue before `job-failed`.
    pub failed_queue: String,
    /// The queue before `job-succeeded`.
    pub succeeded_queue: String,
    /// `EVENT_SOURCES`.
    pub sources: Sources,
    secret: Address,
    previous: Option<Address>,
    replicate: Option<Address>,
    fal: Option<Address>,
}

impl WebhookSettings {
    /// Reads every variable through `lookup`.
    ///
    /// # Errors
    /// [`ConfigError`] for the first that is missing or bad.
    pub fn read(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let env = Env::new(lookup);
        Ok(Self {
            secret: env.secret(SECRET)?.ok_or_else(|| error(SECRET, "is not set"))?,
            previous: env.secret(PREVIOUS)?,
            replicate: env.secret(REPLICATE)?,
            fal: env.secret(FAL)?,
            failed_queue: queue(&env, "JOB_FAILED_QUEUE_URL")?,
            succeeded_queue: queue(&env, "JOB_SUCCEEDED_QUEUE_URL")?,
            sources: env.event_sources()?,
        })
    }

    /// Fetches what is kept elsewhere, and makes keys of it.
    ///
    /// # Errors
    /// [`ConfigError`] where a secret cannot be fetched or is none.
    pub async fn proofs(&self, aws: &Aws) -> Result<Proofs, ConfigError> {
        let mut secrets = vec![address_key(SECRET, &fetched(aws, SECRET, &self.secret).await?)?];
        if let Some(previous) = &self.previous {
            secrets.push(address_key(PREVIOUS, &fetched(aws, PREVIOUS, previous).await?)?);
        }
        let replicate = match &self.replicate {
            None => None,
            Some(kept) => {
                Some(signing_keys(REPLICATE, &fetched(aws, REPLICATE, kept).await?, standard_keys)?)
            }
        };
        let fal = match &self.fal {
            None => None,
            Some(kept) => Some(signing_keys(FAL, &fetched(aws, FAL, kept).await?, ed25519_keys)?),
        };
        Ok(Proofs { secrets, replicate, fal })
    }
}

/// The keys that calls are held to.
pub struct Proofs {
    secrets: Vec<hmac::Key>,
    replicate: Option<Vec<hmac::Key>>,
    fal: Option<Vec<Vec<u8>>>,
}

impl Proofs {
    /// What the call is about, if it proves it.
    pub(super) fn believe(&self, call: &Call<'_>, now: Timestamp) -> Option<Subject> {
        let subject = Subject::believe(call.path, &self.secrets)?;
        let is_signed = match subject.provider {
            Provider::Replicate => self.replicate.as_ref().is_none_or(|keys| is_standard(call, keys, now)),
            Provider::Fal => self.fal.as_ref().is_none_or(|keys| is_fal(call, keys, now)),
            Provider::RunPod => true,
        };
        is_signed.then_some(subject)
    }
}

/// Mints addresses, for whoever asks a provider for work.
pub struct Minter {
    base: String,
    secret: hmac::Key,
}

impl Minter {
    /// Below `base`, signed with `secret`.
    ///
    /// # Errors
    /// [`ConfigError`] where the secret is too short, or the base is no `https://` address (`http://` on this machine).
    pub fn new(base: &str, secret: &Secret) -> Result<Self, ConfigError> {
        Ok(Self { base: base_url(base)?.to_owned(), secret: address_key(SECRET, secret)? })
    }

    /// As `WEBHOOK_BASE_URL` and `WEBHOOK_SECRET` have it; a secret that is kept elsewhere is fetched.
    ///
    /// # Errors
    /// [`ConfigError`] for the first of the two that is missing or bad, or cannot be fetched.
    pub async fn from_env(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let env = Env::new(&lookup);
        let base = env.get(BASE_URL).ok_or_else(|| error(BASE_URL, "is not set"))?;
        let secret = match env.secret(SECRET)?.ok_or_else(|| error(SECRET, "is not set"))? {
            Address::Direct(secret) => secret,
            stored @ Address::Stored(_) => {
                let aws = Aws::from_env(&lookup)
                    .map_err(|problem| error(SECRET, format!("could not be fetched: {problem}")))?;
                fetched(&aws, SECRET, &stored).await?
            }
        };
        Self::new(&base, &secret)
    }

    /// The address that a provider is to call when this attempt ends.
    pub fn address(&self, subject: &Subject) -> String {
        subject.address(&self.base, &self.secret)
    }
}

fn base_url(value: &str) -> Result<&str, ConfigError> {
    let value = value.trim().trim_end_matches('/');
    let local = ["http://localhost", "http://127.0.0.1"].iter().any(|start| value.starts_with(start));
    let plain = value.chars().all(|c| c.is_ascii_graphic() && !matches!(c, '?' | '#' | '@' | '"'));
    let has_host = value.split_once("://").is_some_and(|(_, host)| !host.is_empty());
    if (value.starts_with("https://") || local) && plain && has_host {
        return Ok(value);
    }
    Err(error(BASE_URL, "is no https:// address without ? and #"))
}

fn queue(env: &Env<impl Fn(&str) -> Option<String>>, variable: &'static str) -> Result<String, ConfigError> {
    match env.get(variable) {
        Some(url) if is_queue_url(&url) => Ok(url),
        Some(_) => Err(error(variable, "is no https URL of a queue")),
        None => Err(error(variable, "is not set")),
    }
}

async fn fetched(aws: &Aws, variable: &'static str, kept: &Address) -> Result<Secret, ConfigError> {
    match kept {
        Address::Direct(secret) => Ok(secret.clone()),
        Address::Stored(stored) => {
            aws.text(stored).await.map(Secret::new).map_err(|problem| error(variable, problem))
        }
    }
}

fn address_key(variable: &'static str, secret: &Secret) -> Result<hmac::Key, ConfigError> {
    let bytes = secret.reveal().trim().as_bytes();
    if bytes.len() < MIN_SECRET_BYTES {
        return Err(error(variable, "is shorter than 32 bytes"));
    }
    Ok(hmac::Key::new(hmac::HMAC_SHA256, bytes))
}

fn signing_keys<K>(
    variable: &'static str,
    secret: &Secret,
    read: impl Fn(&str) -> Option<K>,
) -> Result<K, ConfigError> {
    read(secret.reveal().trim()).ok_or_else(|| error(variable, "holds no key"))
}

fn error(variable: &'static str, problem: impl Into<String>) -> ConfigError {
    let example = match variable {
        REPLICATE => "whsec_<base64>",
        FAL => r#"{"keys":[{"kty":"OKP","crv":"Ed25519","x":"<base64url>"}]}"#,
        BASE_URL => "https://<id>.lambda-url.eu-west-1.on.aws",
        SECRET | PREVIOUS => {
            "secretsmanager:arn:aws:secretsmanager:eu-west-1:123456789012:secret:webhook-AbCdEf"
        }
        _ => "https://sqs.eu-west-1.amazonaws.com/123456789012/job-failed",
    };
    ConfigError { variable, problem: problem.into(), example: Cow::Borrowed(example) }
}
