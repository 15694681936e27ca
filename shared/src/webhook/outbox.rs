//! The queues before `job-failed` and `job-succeeded`.

use std::sync::Arc;

use serde_json::{Value, json};

use super::Outbox;
use crate::aws::{Aws, AwsError, Endpoint};
use crate::event::Signal;

/// Two SQS queues.
#[derive(Debug)]
pub struct QueueOutbox {
    aws: Arc<Aws>,
    failed: Queue,
    succeeded: Queue,
}

#[derive(Debug)]
struct Queue {
    url: String,
    endpoint: Endpoint,
}

impl QueueOutbox {
    /// The queues with these URLs.
    ///
    /// # Errors
    /// [`AwsError::NotSet`] where no region is known.
    pub fn new(aws: Arc<Aws>, failed: &str, succeeded: &str) -> Result<Self, AwsError> {
        let queue = |url: &str| Ok(Queue { url: url.to_owned(), endpoint: aws.queue_endpoint(url)? });
        let (failed, succeeded) = (queue(failed)?, queue(succeeded)?);
        Ok(Self { aws, failed, succeeded })
    }
}

impl Outbox for QueueOutbox {
    async fn put(&self, signal: Signal, event: &Value, id: &str) -> Result<(), String> {
        let queue = match signal {
            Signal::Failed => &self.failed,
            Signal::Succeeded => &self.succeeded,
        };
        let mut input = json!({ "QueueUrl": queue.url, "MessageBody": event.to_string() });
        if queue.url.ends_with(".fifo") {
            input["MessageGroupId"] = id.into();
            input["MessageDeduplicationId"] = id.into();
        }
        let sent = self.aws.call(&queue.endpoint, "SendMessage", &input).await;
        sent.map(|_| ()).map_err(|error| error.to_string())
    }
}
