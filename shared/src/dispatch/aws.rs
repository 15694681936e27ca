//! SQS and EventBridge as targets: up to ten messages a call, and an answer for each message.
//!
//! Both services take a batch in part. Only what the answer says was taken is taken; the rest, and all of a call that
//! failed, is tried again by a later drain. So a message may be sent twice, which the workers know.

use std::sync::Arc;

use futures_util::stream::{self, StreamExt};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{Dispatch, DispatchError, Target};
use crate::aws::{Aws, AwsError, Endpoint, Service};
use crate::config::{ConfigError, DispatchTarget, arn_region};
use crate::event::{OUR_SOURCE, RETRY_DUE};
use crate::queue::DispatchMessage;
use crate::trace::TraceContext;

/// What both services take in one call.
const MESSAGES_PER_CALL: usize = 10;
/// Calls in flight at once: a drain's page of claims in two rounds.
const CALLS_AT_ONCE: usize = 5;

/// A queue or a bus.
#[derive(Clone, Debug)]
pub struct AwsDispatch {
    aws: Arc<Aws>,
    endpoint: Endpoint,
    destination: Destination,
}

#[derive(Clone, Debug)]
enum Destination {
    Queue { url: String },
    Bus { name: String },
}

/// The target that the settings name; a client for AWS is only made where that is one.
///
/// # Errors
/// [`ConfigError`] where the environment lacks what calls to AWS need.
pub fn target(
    settings: &DispatchTarget,
    lookup: impl Fn(&str) -> Option<String>,
) -> Result<Target<AwsDispatch>, ConfigError> {
    let aws = || Aws::from_env(&lookup).map(Arc::new);
    let dispatch = match settings {
        DispatchTarget::Redis => return Ok(Target::ReadyList),
        DispatchTarget::Sqs(url) => aws().and_then(|aws| AwsDispatch::queue(aws, url)),
        DispatchTarget::EventBridge(bus) => aws().and_then(|aws| AwsDispatch::bus(aws, bus)),
    };
    dispatch.map(Target::Outside).map_err(|error| ConfigError {
        variable: "DISPATCH_TARGET",
        problem: format!("leads to AWS, but {error}"),
        example: "redis".into(),
    })
}

impl AwsDispatch {
    /// The queue with this URL; a FIFO queue, where the name says so.
    ///
    /// # Errors
    /// [`AwsError::NotSet`] where no region is known.
    pub fn queue(aws: Arc<Aws>, url: &str) -> Result<Self, AwsError> {
        let endpoint = aws.queue_endpoint(url)?;
        Ok(Self { aws, endpoint, destination: Destination::Queue { url: url.to_owned() } })
    }

    /// The bus with this name or ARN.
    ///
    /// # Errors
    /// [`AwsError::NotSet`] where no region is known.
    pub fn bus(aws: Arc<Aws>, name: &str) -> Result<Self, AwsError> {
        let region = name.starts_with("arn:").then(|| arn_region(name)).flatten();
        let endpoint = aws.endpoint(Service::EventBridge, region)?;
        Ok(Self { aws, endpoint, destination: Destination::Bus { name: name.to_owned() } })
    }

    async fn call(&self, messages: &[DispatchMessage]) -> Vec<Result<(), DispatchError>> {
        let answers = match &self.destination {
            Destination::Queue { url } => {
                let input = send_message_batch(url, messages);
                let answer = self.aws.call(&self.endpoint, "SendMessageBatch", &input).await;
                answer.map(|answer| sent(&answer, messages.len()))
            }
            Destination::Bus { name } => {
                let input = put_events(name, messages);
                let answer = self.aws.call(&self.endpoint, "PutEvents", &input).await;
                answer.map(|answer| put(&answer, messages.len()))
            }
        };
        answers.unwrap_or_else(|error| vec![Err(DispatchError(error.to_string())); messages.len()])
    }
}

impl Dispatch for AwsDispatch {
    async fn send(&self, messages: &[DispatchMessage]) -> Vec<Result<(), DispatchError>> {
        let calls: Vec<_> = messages.chunks(MESSAGES_PER_CALL).map(|chunk| self.call(chunk)).collect();
        let answers: Vec<Vec<Result<(), DispatchError>>> =
            stream::iter(calls).buffered(CALLS_AT_ONCE).collect().await;
        answers.concat()
    }
}

fn body(message: &DispatchMessage) -> String {
    serde_json::to_string(message).expect("two strings and a number are always JSON")
}

/// Entries are named by their place. In a FIFO queue the retries of one job keep their order, and the same retry
/// within five minutes is one; both names are digests, because a job's id may hold what SQS refuses in them.
fn send_message_batch(queue_url: &str, messages: &[DispatchMessage]) -> Value {
    let is_fifo = queue_url.ends_with(".fifo");
    let entries: Vec<Value> = messages
        .iter()
        .enumerate()
        .map(|(place, message)| {
            let body = body(message);
            let mut entry = json!({ "Id": place.to_string(), "MessageBody": body });
            if let Some(header) = message.trace.as_ref().and_then(TraceContext::xray_header) {
                entry["MessageSystemAttributes"] =
                    json!({ "AWSTraceHeader": { "DataType": "String", "StringValue": header } });
            }
            if is_fifo {
                entry["MessageGroupId"] = digest(message.job_id.as_str()).into();
                entry["MessageDeduplicationId"] = digest(&body).into();
            }
            entry
        })
        .collect();
    json!({ "QueueUrl": queue_url, "Entries": entries })
}

fn digest(text: &str) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `{"Successful":[{"Id"}],"Failed":[{"Id","Code","Message"}]}`: a message that is in neither was not taken.
fn sent(answer: &Value, messages: usize) -> Vec<Result<(), DispatchError>> {
    let entry = |list: &str, place: usize| -> Option<Value> {
        let id = place.to_string();
        answer[list].as_array()?.iter().find(|entry| entry["Id"] == id.as_str()).cloned()
    };
    (0..messages)
        .map(|place| match (entry("Successful", place), entry("Failed", place)) {
            (Some(_), _) => Ok(()),
            (None, Some(failed)) => Err(refusal(&failed["Code"], &failed["Message"])),
            (None, None) => Err(unanswered()),
        })
        .collect()
}

fn put_events(bus: &str, messages: &[DispatchMessage]) -> Value {
    let entries: Vec<Value> = messages
        .iter()
        .map(|message| {
            let mut entry = json!({
                "Source": OUR_SOURCE, "DetailType": RETRY_DUE, "Detail": body(message), "EventBusName": bus,
            });
            if let Some(header) = message.trace.as_ref().and_then(TraceContext::xray_header) {
                entry["TraceHeader"] = header.into();
            }
            entry
        })
        .collect();
    json!({ "Entries": entries })
}

/// `{"Entries":[{"EventId"} or {"ErrorCode","ErrorMessage"}]}`, in the order of the messages.
fn put(answer: &Value, messages: usize) -> Vec<Result<(), DispatchError>> {
    (0..messages)
        .map(|place| {
            let entry = &answer["Entries"][place];
            match (entry["EventId"].as_str(), entry["ErrorCode"].as_str()) {
                (_, Some(_)) => Err(refusal(&entry["ErrorCode"], &entry["ErrorMessage"])),
                (Some(_), None) => Ok(()),
                (None, None) => Err(unanswered()),
            }
        })
        .collect()
}

fn refusal(code: &Value, message: &Value) -> DispatchError {
    DispatchError(format!("{} {}", code.as_str().unwrap_or_default(), message.as_str().unwrap_or_default()))
}

fn unanswered() -> DispatchError {
    DispatchError("the answer says nothing of it".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{AccountId, JobId};

    fn message(job: &str) -> DispatchMessage {
        DispatchMessage {
            job_id: JobId::new(job).unwrap(),
            account_id: AccountId::new("a").unwrap(),
            attempt: 2,
            trace: None,
        }
    }

    #[test]
    fn an_xray_trace_goes_beside_the_message_and_any_trace_in_it() {
        let xray = "Root=1-63441c4a-abcdef012345678912345678";
        let w3c = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let messages =
            [xray, w3c].map(|trace| DispatchMessage { trace: TraceContext::new(trace), ..message("j") });
        let sqs = send_message_batch("https://h/1/q", &messages);
        let events = put_events("bus", &messages);
        for (place, trace, beside) in [(0, xray, json!(xray)), (1, w3c, Value::Null)] {
            let sqs = &sqs["Entries"][place];
            assert_eq!(sqs["MessageSystemAttributes"]["AWSTraceHeader"]["StringValue"], beside);
            let event = &events["Entries"][place];
            assert_eq!(event["TraceHeader"], beside);
            for body in [&sqs["MessageBody"], &event["Detail"]] {
                let body: Value = serde_json::from_str(body.as_str().unwrap()).unwrap();
                assert_eq!(body["trace"], trace);
            }
        }
    }

    #[test]
    fn each_message_has_its_own_answer() {
        let answer = json!({"Successful": [{"Id": "2"}, {"Id": "0"}],
                            "Failed": [{"Id": "1", "Code": "InternalError", "Message": "later", "SenderFault": false}]});
        assert_eq!(
            sent(&answer, 4),
            [Ok(()), Err(DispatchError("InternalError later".to_owned())), Ok(()), Err(unanswered())]
        );
        let answer = json!({"FailedEntryCount": 1,
                            "Entries": [{"EventId": "e"}, {"ErrorCode": "ThrottlingException", "ErrorMessage": "slow"}]});
        assert_eq!(
            put(&answer, 3),
            [Ok(()), Err(DispatchError("ThrottlingException slow".to_owned())), Err(unanswered())]
        );
    }

    #[test]
    fn only_a_fifo_queue_gets_a_group_and_a_name_for_the_message() {
        let plain = send_message_batch("https://h/1/q", &[message("j\u{2028}")]);
        assert!(plain["Entries"][0].get("MessageGroupId").is_none());
        let fifo = send_message_batch("https://h/1/q.fifo", &[message("j\u{2028}"), message("k")]);
        assert_ne!(fifo["Entries"][0]["MessageGroupId"], fifo["Entries"][1]["MessageGroupId"]);
        assert_eq!(fifo["Entries"][0]["MessageDeduplicationId"].as_str().map(str::len), Some(64));
    }
}
