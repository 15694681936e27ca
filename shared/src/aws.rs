//! Signed JSON calls to the three AWS services that Recoup uses: SQS, EventBridge and Secrets Manager.
//!
//! One call each is needed of them, so they are written out here, over AWS's own signer and the HTTP client that is
//! linked anyway, instead of three SDKs that would triple the size of a function and its cold start.
//!
//! Credentials are the ones that Lambda gives its functions by environment; they outlive the execution environment,
//! so they are read once. `AWS_ENDPOINT_URL` and `AWS_ENDPOINT_URL_<SERVICE>` lead elsewhere, as they do for the SDKs.
//! A call takes [`CALL_TIMEOUT`] at most; a connection that breaks is tried once more, because after a function was
//! frozen the pooled ones are dead. That may send a message twice, which dispatch is allowed to.

use std::time::{Duration, SystemTime};

use aws_credential_types::Credentials;
use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4;
use aws_smithy_runtime_api::client::identity::Identity;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};

use crate::clock::{Clock, Deadline, SystemClock};
use crate::config::{Address, ConfigError, Secret, Server, StoredSecret};

/// The longest that one call may take, connection and second try included.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(4);
/// The most bytes of an answer that are read: a secret is 64 KiB at most, the answers to sends are smaller.
const MAX_ANSWER_BYTES: usize = 1 << 20;

/// The services.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Queues.
    Sqs,
    /// Event buses.
    EventBridge,
    /// Secrets.
    SecretsManager,
}

impl Service {
    /// The name under which calls are signed, which is also the first part of the host.
    fn signing_name(self) -> &'static str {
        match self {
            Self::Sqs => "sqs",
            Self::EventBridge => "events",
            Self::SecretsManager => "secretsmanager",
        }
    }

    fn endpoint_variable(self) -> &'static str {
        match self {
            Self::Sqs => "AWS_ENDPOINT_URL_SQS",
            Self::EventBridge => "AWS_ENDPOINT_URL_EVENTBRIDGE",
            Self::SecretsManager => "AWS_ENDPOINT_URL_SECRETS_MANAGER",
        }
    }

    fn target_prefix(self) -> &'static str {
        match self {
            Self::Sqs => "AmazonSQS",
            Self::EventBridge => "AWSEvents",
            Self::SecretsManager => "secretsmanager",
        }
    }

    fn content_type(self) -> &'static str {
        match self {
            Self::Sqs => "application/x-amz-json-1.0",
            Self::EventBridge | Self::SecretsManager => "application/x-amz-json-1.1",
        }
    }
}

/// Why a call did not succeed, cut by what to do next.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AwsError {
    /// Set it: Lambda does for its functions, elsewhere a person must.
    #[error("{0} is not set")]
    NotSet(&'static str),
    /// Try again.
    #[error("{service:?} is not to be reached: {what}")]
    Unreachable {
        /// Which service.
        service: Service,
        /// What the connection said.
        what: String,
    },
    /// Fix rights, names or addresses; or, with a status of 500 and more, try again.
    #[error("{service:?} refused with status {status}: {what}")]
    Refused {
        /// Which service.
        service: Service,
        /// The HTTP status.
        status: u16,
        /// Its code and message.
        what: String,
    },
    /// Call a person: the answer is not what the service documents.
    #[error("{service:?} answered with {what}")]
    Answer {
        /// Which service.
        service: Service,
        /// What is wrong with the answer.
        what: &'static str,
    },
}

/// Where a service is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    service: Service,
    region: String,
    url: String,
}

/// A client for signed calls. Making one does no I/O.
#[derive(Debug)]
pub struct Aws {
    identity: Identity,
    region: Option<String>,
    /// `AWS_ENDPOINT_URL` and those of the services, in the order of [`Aws::OVERRIDES`].
    overrides: [Option<String>; 4],
    client: Client<HttpsConnector<HttpConnector>, String>,
}

impl Aws {
    const OVERRIDES: [&'static str; 4] = [
        "AWS_ENDPOINT_URL",
        "AWS_ENDPOINT_URL_SQS",
        "AWS_ENDPOINT_URL_EVENTBRIDGE",
        "AWS_ENDPOINT_URL_SECRETS_MANAGER",
    ];

    /// Reads credentials, region and endpoints through `lookup`.
    ///
    /// # Errors
    /// [`AwsError::NotSet`] where the credentials are missing.
    pub fn from_env(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, AwsError> {
        let get = |name: &'static str| lookup(name).filter(|value| !value.is_empty());
        let required = |name| get(name).ok_or(AwsError::NotSet(name));
        let credentials = Credentials::new(
            required("AWS_ACCESS_KEY_ID")?,
            required("AWS_SECRET_ACCESS_KEY")?,
            get("AWS_SESSION_TOKEN"),
            None,
            "environment",
        );
        let connector =
            HttpsConnectorBuilder::new().with_webpki_roots().https_or_http().enable_http1().build();
        Ok(Self {
            identity: credentials.into(),
            region: get("AWS_REGION").or_else(|| get("AWS_DEFAULT_REGION")),
            overrides: Self::OVERRIDES.map(get),
            client: Client::builder(TokioExecutor::new()).build(connector),
        })
    }

    /// Where `service` is called in `region`, or, without one, in the environment's.
    ///
    /// # Errors
    /// [`AwsError::NotSet`] where no region is known.
    pub fn endpoint(&self, service: Service, region: Option<&str>) -> Result<Endpoint, AwsError> {
        let region = region.or(self.region.as_deref()).ok_or(AwsError::NotSet("AWS_REGION"))?.to_owned();
        let url = self.overridden(service).unwrap_or_else(|| {
            let suffix = if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" };
            format!("https://{}.{region}.{suffix}", service.signing_name())
        });
        Ok(Endpoint { service, region, url })
    }

    /// Where the queue with this URL is called: at its own host, in the region that the host names.
    ///
    /// # Errors
    /// [`AwsError::NotSet`] where no region is known.
    pub fn queue_endpoint(&self, queue_url: &str) -> Result<Endpoint, AwsError> {
        let mut parts = queue_url.splitn(4, '/');
        let (scheme, host) = (parts.next().unwrap_or_default(), parts.nth(1).unwrap_or_default());
        let mut endpoint = self.endpoint(Service::Sqs, queue_region(host))?;
        if self.overridden(Service::Sqs).is_none() {
            endpoint.url = format!("{scheme}//{host}");
        }
        Ok(endpoint)
    }

    fn overridden(&self, service: Service) -> Option<String> {
        let value =
            |name| Self::OVERRIDES.iter().position(|o| *o == name).and_then(|n| self.overrides[n].clone());
        value(service.endpoint_variable())
            .or_else(|| value("AWS_ENDPOINT_URL"))
            .map(|url| url.trim_end_matches('/').to_owned())
    }

    /// Calls an action of a service, such as `SendMessageBatch`, and gives back what it answers.
    ///
    /// # Errors
    /// [`AwsError`]; whether the action was carried out is then unknown.
    pub async fn call(&self, endpoint: &Endpoint, action: &str, input: &Value) -> Result<Value, AwsError> {
        let body = input.to_string();
        let service = endpoint.service;
        let unreachable = |what: String| AwsError::Unreachable { service, what };
        let deadline = Deadline::after(CALL_TIMEOUT);
        let calls = async {
            match self.send(endpoint, action, &body).await {
                Err(AwsError::Unreachable { .. }) => self.send(endpoint, action, &body).await,
                result => result,
            }
        };
        match deadline.bound(calls).await {
            Some(result) => result,
            None => Err(unreachable(format!("no answer within {} s", CALL_TIMEOUT.as_secs()))),
        }
    }

    async fn send(&self, endpoint: &Endpoint, action: &str, body: &str) -> Result<Value, AwsError> {
        let service = endpoint.service;
        let unreachable = |what: String| AwsError::Unreachable { service, what };
        let request = self.signed(endpoint, action, body)?;
        let response = self.client.request(request).await.map_err(|e| unreachable(innermost(&e)))?;
        let status = response.status();
        let answer = Limited::new(response.into_body(), MAX_ANSWER_BYTES)
            .collect()
            .await
            .map_err(|e| unreachable(innermost(e.as_ref())))?
            .to_bytes();
        if status != StatusCode::OK {
            return Err(AwsError::Refused { service, status: status.as_u16(), what: reason(&answer) });
        }
        serde_json::from_slice(&answer).map_err(|_| AwsError::Answer { service, what: "no JSON" })
    }

    fn signed(&self, endpoint: &Endpoint, action: &str, body: &str) -> Result<Request<String>, AwsError> {
        let service = endpoint.service;
        let unreachable = |what: String| AwsError::Unreachable { service, what };
        let target = format!("{}.{action}", service.target_prefix());
        let url = format!("{}/", endpoint.url);
        let headers = [("content-type", service.content_type()), ("x-amz-target", target.as_str())];
        let now = SystemClock.now().as_millis().unsigned_abs();
        let params = v4::SigningParams::builder()
            .identity(&self.identity)
            .region(&endpoint.region)
            .name(service.signing_name())
            .time(SystemTime::UNIX_EPOCH + Duration::from_millis(now))
            .settings(SigningSettings::default())
            .build()
            .map_err(|e| unreachable(e.to_string()))?
            .into();
        let body_bytes = SignableBody::Bytes(body.as_bytes());
        let signable = SignableRequest::new("POST", &url, headers.into_iter(), body_bytes)
            .map_err(|e| unreachable(innermost(&e)))?;
        let (instructions, _signature) =
            sign(signable, &params).map_err(|e| unreachable(innermost(&e)))?.into_parts();
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(&url)
            .header(headers[0].0, headers[0].1)
            .header(headers[1].0, headers[1].1)
            .body(body.to_owned())
            .map_err(|e| unreachable(e.to_string()))?;
        instructions.apply_to_request_http1x(&mut request);
        Ok(request)
    }

    /// The address that `server`'s variable leads to.
    ///
    /// # Errors
    /// [`ConfigError`] where a stored one cannot be fetched or is none; no part of it stands in the error.
    pub async fn resolve(&self, server: Server, stored: &StoredSecret) -> Result<Secret, ConfigError> {
        let text = self.text(stored).await.map_err(|problem| server.error(problem))?;
        server.check(&text).map_err(|e| server.error(format!("leads to a secret that {}", e.problem)))
    }

    /// The text that is kept there.
    ///
    /// # Errors
    /// What is wrong, as a sentence about the variable, without any part of the secret.
    pub async fn text(&self, stored: &StoredSecret) -> Result<String, String> {
        let text = self.secret(stored).await.map_err(|error| format!("could not be fetched: {error}"))?;
        match &stored.key {
            None => Ok(text),
            Some(key) => picked(&text, key)
                .ok_or_else(|| format!("leads to a secret that is no JSON object with a text {key:?}")),
        }
    }

    async fn secret(&self, stored: &StoredSecret) -> Result<String, AwsError> {
        let endpoint = self.endpoint(Service::SecretsManager, stored.region())?;
        let answer = self.call(&endpoint, "GetSecretValue", &json!({ "SecretId": stored.arn })).await?;
        answer["SecretString"]
            .as_str()
            .map(ToOwned::to_owned)
            .ok_or(AwsError::Answer { service: Service::SecretsManager, what: "a secret that is no text" })
    }
}

/// The address itself, fetched where it is stored; a client for that is only made where it is needed.
///
/// # Errors
/// [`ConfigError`] where it cannot be fetched or is none.
pub async fn resolve(
    server: Server,
    address: &Address,
    lookup: impl Fn(&str) -> Option<String>,
) -> Result<Secret, ConfigError> {
    match address {
        Address::Direct(secret) => Ok(secret.clone()),
        Address::Stored(stored) => {
            let aws =
                Aws::from_env(lookup).map_err(|e| server.error(format!("could not be fetched: {e}")))?;
            aws.resolve(server, stored).await
        }
    }
}

fn picked(secret: &str, key: &str) -> Option<String> {
    serde_json::from_str::<Value>(secret).ok()?.get(key)?.as_str().map(ToOwned::to_owned)
}

/// `sqs.<region>.amazonaws.com`, also behind a VPC endpoint, and the older `<region>.queue.amazonaws.com`.
fn queue_region(host: &str) -> Option<&str> {
    let labels: Vec<&str> = host.split('.').collect();
    let after_sqs = labels.iter().position(|label| *label == "sqs").and_then(|at| labels.get(at + 1));
    let before_queue =
        labels.iter().position(|label| *label == "queue").and_then(|at| labels.get(at.checked_sub(1)?));
    after_sqs.or(before_queue).copied()
}

/// The error's own source says what happened ("connection refused"); what wraps it only says where.
fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

/// `{"__type":"com.amazonaws.sqs#QueueDoesNotExist","message":"…"}`, on one line and cut to 200 characters.
fn reason(answer: &[u8]) -> String {
    let answer: Value = serde_json::from_slice(answer).unwrap_or_default();
    let code = answer["__type"].as_str().unwrap_or("no reason given");
    let code = code.rsplit('#').next().unwrap_or(code);
    let message = answer["message"].as_str().or(answer["Message"].as_str()).unwrap_or_default();
    let line = |c: char| if c.is_control() { ' ' } else { c };
    format!("{code} {message}").trim_end().chars().map(line).take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn aws(environment: &[(&str, &str)]) -> Aws {
        let keys = [("AWS_ACCESS_KEY_ID", "id"), ("AWS_SECRET_ACCESS_KEY", "hunter2")];
        Aws::from_env(|name| {
            keys.iter().chain(environment).find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        })
        .unwrap()
    }

    #[test]
    fn a_service_is_called_in_the_region_of_the_resource_then_of_the_environment() {
        let aws = aws(&[("AWS_REGION", "eu-west-1")]);
        let url = |region| aws.endpoint(Service::EventBridge, region).unwrap().url;
        assert_eq!(url(None), "https://events.eu-west-1.amazonaws.com");
        assert_eq!(url(Some("cn-north-1")), "https://events.cn-north-1.amazonaws.com.cn");
        for (queue, host, region) in [
            ("https://sqs.us-east-2.amazonaws.com/1/q", "https://sqs.us-east-2.amazonaws.com", "us-east-2"),
            (
                "https://us-east-2.queue.amazonaws.com/1/q",
                "https://us-east-2.queue.amazonaws.com",
                "us-east-2",
            ),
            (
                "https://vpce-1.sqs.us-east-2.vpce.amazonaws.com/1/q",
                "https://vpce-1.sqs.us-east-2.vpce.amazonaws.com",
                "us-east-2",
            ),
            ("http://127.0.0.1:5000/1/q", "http://127.0.0.1:5000", "eu-west-1"),
        ] {
            let endpoint = aws.queue_endpoint(queue).unwrap();
            assert_eq!((endpoint.url.as_str(), endpoint.region.as_str()), (host, region));
        }
    }

    #[test]
    fn endpoints_can_be_overridden_for_all_services_and_for_one() {
        let aws = aws(&[
            ("AWS_REGION", "eu-west-1"),
            ("AWS_ENDPOINT_URL", "http://localhost:1/"),
            ("AWS_ENDPOINT_URL_SQS", "http://localhost:2"),
        ]);
        assert_eq!(aws.endpoint(Service::EventBridge, None).unwrap().url, "http://localhost:1");
        let queue = aws.queue_endpoint("https://sqs.us-east-2.amazonaws.com/1/q").unwrap();
        assert_eq!((queue.url.as_str(), queue.region.as_str()), ("http://localhost:2", "us-east-2"));
    }

    #[test]
    fn missing_credentials_and_regions_are_named() {
        assert_eq!(Aws::from_env(|_| None).unwrap_err(), AwsError::NotSet("AWS_ACCESS_KEY_ID"));
        assert_eq!(aws(&[]).endpoint(Service::Sqs, None).unwrap_err(), AwsError::NotSet("AWS_REGION"));
    }

    #[test]
    fn a_request_is_signed_with_the_session_token_and_shows_no_secret() {
        let aws = aws(&[("AWS_REGION", "eu-west-1"), ("AWS_SESSION_TOKEN", "hunter3")]);
        let endpoint = aws.endpoint(Service::Sqs, None).unwrap();
        let request = aws.signed(&endpoint, "SendMessageBatch", "{}").unwrap();
        let header = |name| request.headers()[name].to_str().unwrap();
        assert_eq!(header("x-amz-target"), "AmazonSQS.SendMessageBatch");
        assert_eq!(header("x-amz-security-token"), "hunter3");
        assert!(header("authorization").contains("/eu-west-1/sqs/aws4_request"));
        assert!(
            header("authorization")
                .contains("content-type;host;x-amz-date;x-amz-security-token;x-amz-target")
        );
        assert!(!format!("{aws:?} {request:?}").contains("hunter"));
    }

    #[test]
    fn a_refusal_is_one_short_line() {
        let answer = br#"{"__type":"com.amazonaws.sqs#QueueDoesNotExist","message":"no\nsuch queue"}"#;
        assert_eq!(reason(answer), "QueueDoesNotExist no such queue");
        assert_eq!(reason(b"<html>"), "no reason given");
    }
}
