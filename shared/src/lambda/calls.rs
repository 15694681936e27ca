//! HTTP calls, as a function URL or an HTTP API hands them to a function (payload format 2.0).

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::{Failed, Invocation, StartError, serve};
use crate::webhook::{Call, Reply};

/// The parts of the payload that matter, see
/// <https://docs.aws.amazon.com/lambda/latest/dg/urls-invocation.html#urls-payloads>.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Payload {
    raw_path: String,
    request_context: RequestContext,
    #[serde(default)]
    headers: HashMap<String, String>,
    #[serde(default)]
    body: String,
    #[serde(default)]
    is_base64_encoded: bool,
}

#[derive(Deserialize)]
struct RequestContext {
    http: Http,
}

#[derive(Deserialize)]
struct Http {
    method: String,
}

/// The answer in the same format.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Response {
    status_code: u16,
    headers: HashMap<&'static str, &'static str>,
    body: String,
}

impl From<Reply> for Response {
    fn from(reply: Reply) -> Self {
        let json = || HashMap::from([("content-type", "application/json")]);
        let headers = reply.body.as_ref().map(|_| json()).unwrap_or_default();
        let body = reply.body.map(|body| body.to_string()).unwrap_or_default();
        Self { status_code: reply.status, headers, body }
    }
}

/// Polls for calls and answers each with what `handle` makes of it.
///
/// # Errors
/// [`StartError`] where the process does not run under Lambda, or the runtime goes away.
pub async fn serve_calls(handle: impl AsyncFn(&Call<'_>) -> Reply) -> Result<(), StartError> {
    let handle = &handle;
    serve(async |payload: &str, invocation: &Invocation| {
        let mut payload: Payload = serde_json::from_str(payload).map_err(|error| not_http(&error))?;
        let body = payload.take_body();
        payload.headers = std::mem::take(&mut payload.headers)
            .into_iter()
            .map(|(name, value)| (name.to_ascii_lowercase(), value))
            .collect();
        let call = Call {
            method: &payload.request_context.http.method,
            path: &payload.raw_path,
            headers: &payload.headers,
            body: &body,
        };
        let reply = invocation.deadline.bound(Box::pin(handle(&call))).await.ok_or_else(too_late)?;
        Ok(Response::from(reply))
    })
    .await
}

impl Payload {
    /// What is not base64 in spite of its flag was sent by nobody; it is taken as it stands, and read as no JSON.
    fn take_body(&mut self) -> Vec<u8> {
        use base64::Engine;
        let body = std::mem::take(&mut self.body).into_bytes();
        if !self.is_base64_encoded {
            return body;
        }
        base64::engine::general_purpose::STANDARD.decode(&body).unwrap_or(body)
    }
}

/// Not repeated: a path is a proof.
fn not_http(error: &serde_json::Error) -> Failed {
    let message = format!("expected an HTTP call in payload format 2.0: {:?} error", error.classify());
    Failed { kind: "InvalidCall", message }
}

fn too_late() -> Failed {
    Failed {
        kind: "Deadline",
        message: "the call was not answered before the function's deadline".to_owned(),
    }
}
