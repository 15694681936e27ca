//! Signed calls against a stand-in for AWS: dispatch to SQS and EventBridge, and stored addresses.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use recoup::aws::{Aws, AwsError, Service, resolve};
use recoup::config::{Address, DispatchTarget, Needs, Secret, Server, Settings};
use recoup::dispatch::aws::{AwsDispatch, target};
use recoup::dispatch::{Dispatch, Target};
use recoup::job::{AccountId, JobId};
use recoup::queue::DispatchMessage;
use recoup::trace::TraceContext;
use recoup_tests::servers;
use serde_json::{Value, json};

/// A stand-in for AWS, and the environment that leads to it.
struct StandIn {
    server: servers::Server,
    aws: Arc<Aws>,
}

impl StandIn {
    fn start() -> Self {
        let server = servers::Server::moto();
        let aws = Arc::new(Aws::from_env(environment(server.port())).unwrap());
        Self { server, aws }
    }

    async fn call(&self, service: Service, action: &str, input: Value) -> Value {
        let endpoint = self.aws.endpoint(service, None).unwrap();
        self.aws.call(&endpoint, action, &input).await.unwrap()
    }

    async fn queue(&self, name: &str, attributes: Value) -> String {
        let input = json!({ "QueueName": name, "Attributes": attributes });
        let answer = self.call(Service::Sqs, "CreateQueue", input).await;
        answer["QueueUrl"].as_str().unwrap().to_owned()
    }

    /// The bodies of all messages in the queue, sorted.
    async fn bodies(&self, queue_url: &str) -> Vec<String> {
        let mut bodies = Vec::new();
        loop {
            let input = json!({ "QueueUrl": queue_url, "MaxNumberOfMessages": 10, "VisibilityTimeout": 600 });
            let answer = self.call(Service::Sqs, "ReceiveMessage", input).await;
            let Some(messages) = answer["Messages"].as_array().filter(|messages| !messages.is_empty()) else {
                bodies.sort();
                return bodies;
            };
            for message in messages {
                bodies.push(message["Body"].as_str().unwrap().to_owned());
                let handle = &message["ReceiptHandle"];
                let input = json!({ "QueueUrl": queue_url, "ReceiptHandle": handle });
                self.call(Service::Sqs, "DeleteMessage", input).await;
            }
        }
    }
}

fn environment(port: u16) -> impl Fn(&str) -> Option<String> {
    move |name| match name {
        "AWS_ACCESS_KEY_ID" | "AWS_SECRET_ACCESS_KEY" => Some("test".to_owned()),
        "AWS_SESSION_TOKEN" => Some("session".to_owned()),
        "AWS_REGION" => Some("us-east-1".to_owned()),
        "AWS_ENDPOINT_URL" => Some(format!("http://127.0.0.1:{port}")),
        _ => None,
    }
}

const TRACE: &str = "Root=1-63441c4a-abcdef012345678912345678;Parent=0123456789abcdef;Sampled=1";

fn messages(count: usize) -> Vec<DispatchMessage> {
    (0..count)
        .map(|n| DispatchMessage {
            job_id: JobId::new(format!("jöb \"{n:03}\"")).unwrap(),
            account_id: AccountId::new("a").unwrap(),
            attempt: 2,
            trace: (n % 2 == 0).then(|| TraceContext::new(TRACE).unwrap()),
        })
        .collect()
}

fn sorted_json(messages: &[DispatchMessage]) -> Vec<String> {
    let mut bodies: Vec<String> = messages.iter().map(|m| serde_json::to_string(m).unwrap()).collect();
    bodies.sort();
    bodies
}

#[tokio::test]
async fn every_message_reaches_the_queue_ten_a_call() {
    let stand_in = StandIn::start();
    let url = stand_in.queue("retries", json!({})).await;
    let Target::Outside(dispatch) =
        target(&DispatchTarget::Sqs(url.clone()), environment(stand_in.server.port())).unwrap()
    else {
        panic!("a queue is outside");
    };
    let sent = messages(57);
    assert_eq!(dispatch.send(&sent).await, vec![Ok(()); 57]);
    assert_eq!(stand_in.bodies(&url).await, sorted_json(&sent));
    assert_eq!(dispatch.send(&[]).await, vec![]);
}

#[tokio::test]
async fn a_fifo_queue_takes_a_retry_once() {
    let stand_in = StandIn::start();
    let url = stand_in.queue("retries.fifo", json!({"FifoQueue": "true"})).await;
    let dispatch = AwsDispatch::queue(Arc::clone(&stand_in.aws), &url).unwrap();
    let sent = messages(3);
    assert_eq!(dispatch.send(&sent).await, vec![Ok(()); 3]);
    assert_eq!(dispatch.send(&sent).await, vec![Ok(()); 3]);
    assert_eq!(stand_in.bodies(&url).await, sorted_json(&sent));
}

#[tokio::test]
async fn every_message_reaches_the_bus_as_retry_due() {
    let stand_in = StandIn::start();
    let url = stand_in.queue("workers", json!({})).await;
    stand_in.call(Service::EventBridge, "CreateEventBus", json!({"Name": "jobs"})).await;
    let pattern = json!({"source": ["recoup"], "detail-type": ["Retry Due"]}).to_string();
    let rule = json!({"Name": "due", "EventBusName": "jobs", "EventPattern": pattern});
    stand_in.call(Service::EventBridge, "PutRule", rule).await;
    let targets = json!([{"Id": "workers", "Arn": "arn:aws:sqs:us-east-1:123456789012:workers"}]);
    let put = json!({"Rule": "due", "EventBusName": "jobs", "Targets": targets});
    stand_in.call(Service::EventBridge, "PutTargets", put).await;

    let dispatch = AwsDispatch::bus(Arc::clone(&stand_in.aws), "jobs").unwrap();
    let sent = messages(12);
    assert_eq!(dispatch.send(&sent).await, vec![Ok(()); 12]);
    let mut details: Vec<String> = stand_in
        .bodies(&url)
        .await
        .iter()
        .map(|body| {
            let event: Value = serde_json::from_str(body).unwrap();
            assert_eq!((&event["source"], &event["detail-type"]), (&json!("recoup"), &json!("Retry Due")));
            event["detail"]["job_id"].as_str().unwrap().to_owned()
        })
        .collect();
    details.sort();
    let jobs: Vec<&str> = sent.iter().map(|message| message.job_id.as_str()).collect();
    assert_eq!(details, jobs);
}

#[tokio::test]
async fn a_target_that_is_not_there_or_down_fails_each_message_with_its_reason() {
    let mut stand_in = StandIn::start();
    let url = format!("http://127.0.0.1:{}/123456789012/nowhere", stand_in.server.port());
    let dispatch = AwsDispatch::queue(Arc::clone(&stand_in.aws), &url).unwrap();
    let answers = dispatch.send(&messages(11)).await;
    assert_eq!(answers.len(), 11);
    for answer in answers {
        let error = answer.unwrap_err().to_string();
        assert!(error.contains("Sqs refused with status 400: QueueDoesNotExist"), "{error}");
    }
    stand_in.server.kill();
    for answer in dispatch.send(&messages(2)).await {
        let error = answer.unwrap_err().to_string();
        assert!(error.contains("Sqs is not to be reached: ") && error.contains("refused"), "{error}");
    }
    stand_in.server.start();
    let url = stand_in.queue("nowhere", json!({})).await;
    assert_eq!(dispatch.send(&messages(1)).await, vec![Ok(())]);
    assert_eq!(stand_in.bodies(&url).await.len(), 1);
}

#[tokio::test]
async fn a_service_that_hangs_is_given_up_on() {
    let stand_in = StandIn::start();
    stand_in.server.freeze(true);
    let dispatch = AwsDispatch::bus(Arc::clone(&stand_in.aws), "default").unwrap();
    let error = dispatch.send(&messages(1)).await.remove(0).unwrap_err().to_string();
    assert!(error.contains("no answer within 4 s"), "{error}");
    stand_in.server.freeze(false);
}

#[tokio::test]
async fn a_stored_address_is_fetched_whole_or_by_its_key() {
    let stand_in = StandIn::start();
    let create = async |name: &str, text: &str| -> String {
        let input = json!({"Name": name, "SecretString": text});
        let answer = stand_in.call(Service::SecretsManager, "CreateSecret", input).await;
        answer["ARN"].as_str().unwrap().to_owned()
    };
    let plain = create("plain", "mongodb://user:hunter2@db/recoup\n").await;
    let json = create("json", r#"{"redis":"rediss://:hunter2@cache","n":5}"#).await;
    let fetched = async |server: Server, reference: &str| {
        let settings = Settings::read(Needs::Nothing, |name| {
            (name == server.variable()).then(|| format!("secretsmanager:{reference}"))
        })
        .unwrap();
        let address = settings.mongodb.or(settings.redis).unwrap();
        resolve(server, &address, environment(stand_in.server.port())).await
    };
    let secret = |result: Result<Secret, _>| result.map(|secret| secret.reveal().to_owned());
    assert_eq!(secret(fetched(Server::MongoDb, &plain).await).unwrap(), "mongodb://user:hunter2@db/recoup");
    assert_eq!(
        secret(fetched(Server::Redis, &format!("{json}#redis")).await).unwrap(),
        "rediss://:hunter2@cache"
    );
    let missing = "arn:aws:secretsmanager:us-east-1:123456789012:secret:missing-AbCdEf";
    for (server, reference, problem) in [
        (Server::MongoDb, missing.to_owned(), "could not be fetched: SecretsManager refused with status "),
        (
            Server::Redis,
            json.clone(),
            "leads to a secret that is no address that starts with redis:// or rediss://",
        ),
        (Server::Redis, format!("{json}#n"), r#"leads to a secret that is no JSON object with a text "n""#),
        (
            Server::Redis,
            format!("{plain}#redis"),
            r#"leads to a secret that is no JSON object with a text "redis""#,
        ),
        (
            Server::MongoDb,
            format!("{json}#redis"),
            "leads to a secret that is no address that starts with mongodb://",
        ),
    ] {
        let line = fetched(server, &reference).await.unwrap_err().to_string();
        assert!(line.starts_with(&format!("{} {problem}", server.variable())), "{line}");
        assert!(!line.contains("hunter2") && !line.contains('\n'), "{line}");
    }
}

#[tokio::test]
async fn an_address_that_is_not_stored_needs_no_aws() {
    let address = Address::Direct(Secret::new("redis://h"));
    assert_eq!(resolve(Server::Redis, &address, |_| None).await.unwrap().reveal(), "redis://h");
    let error = target(&DispatchTarget::EventBridge("jobs".to_owned()), |_| None).unwrap_err();
    assert!(error.problem.contains(&AwsError::NotSet("AWS_ACCESS_KEY_ID").to_string()), "{error}");
    assert!(matches!(target(&DispatchTarget::Redis, |_| None), Ok(Target::ReadyList)));
}
