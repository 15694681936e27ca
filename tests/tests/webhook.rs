//! The function `webhook`, from an address that the command minted to the ledger, with a stand-in for AWS between them.
#![allow(clippy::unwrap_used)]

use std::process::Command;

use recoup::aws::{Aws, Service};
use recoup::job::Phase;
use recoup_tests::function_world::{FunctionWorld, failures};
use recoup_tests::runtime_api::{Function, Process};
use recoup_tests::servers::{Server, binary};
use serde_json::{Value, json};

const SECRET: &str = "hunter2-hunter2-hunter2-hunter2-hunter2";
const BASE: &str = "https://id.lambda-url.eu-west-1.on.aws";

/// A stand-in for AWS with the two queues, and the environment of the function before them.
struct Platform {
    _moto: Server,
    aws: Aws,
    queues: [String; 2],
    environment: Vec<(String, String)>,
}

impl Platform {
    async fn new() -> Self {
        let moto = Server::moto();
        let mut environment: Vec<(String, String)> = [
            ("AWS_ACCESS_KEY_ID", "test"),
            ("AWS_SECRET_ACCESS_KEY", "test"),
            ("AWS_REGION", "us-east-1"),
            ("WEBHOOK_SECRET", SECRET),
            ("WEBHOOK_BASE_URL", BASE),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
        environment.push(("AWS_ENDPOINT_URL".to_owned(), format!("http://127.0.0.1:{}", moto.port())));
        let lookup =
            |name: &str| environment.iter().find(|(own, _)| own == name).map(|(_, value)| value.clone());
        let aws = Aws::from_env(lookup).unwrap();
        let endpoint = aws.endpoint(Service::Sqs, None).unwrap();
        let mut queues = [String::new(), String::new()];
        for (queue, name) in queues.iter_mut().zip(["job-failed", "job-succeeded"]) {
            let made = aws.call(&endpoint, "CreateQueue", &json!({ "QueueName": name })).await.unwrap();
            *queue = made["QueueUrl"].as_str().unwrap().to_owned();
        }
        environment.push(("JOB_FAILED_QUEUE_URL".to_owned(), queues[0].clone()));
        environment.push(("JOB_SUCCEEDED_QUEUE_URL".to_owned(), queues[1].clone()));
        Self { _moto: moto, aws, queues, environment }
    }

    fn variables(&self) -> Vec<(&str, &str)> {
        self.environment.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
    }

    /// The path of the address that the command mints.
    fn mint(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(binary("recoup"));
        let output =
            command.env_clear().envs(self.variables()).arg("webhook-url").args(arguments).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let url = String::from_utf8(output.stdout).unwrap();
        url.trim_end().strip_prefix(BASE).unwrap().to_owned()
    }

    /// What SQS hands to a function: the messages of a queue as a batch.
    async fn batch(&self, queue: &str) -> String {
        let endpoint = self.aws.endpoint(Service::Sqs, None).unwrap();
        let ask = json!({ "QueueUrl": queue, "MaxNumberOfMessages": 10, "VisibilityTimeout": 600 });
        let answer = self.aws.call(&endpoint, "ReceiveMessage", &ask).await.unwrap();
        let record = |message: &Value| json!({ "messageId": message["MessageId"], "body": message["Body"] });
        let records: Vec<Value> = answer["Messages"].as_array().into_iter().flatten().map(record).collect();
        json!({ "Records": records }).to_string()
    }
}

fn call(method: &str, path: &str, body: &str) -> String {
    json!({
        "version": "2.0", "routeKey": "$default", "rawPath": path, "rawQueryString": "",
        "headers": { "Content-Type": "application/json", "user-agent": "x" },
        "requestContext": { "http": { "method": method, "path": path, "protocol": "HTTP/1.1" } },
        "body": body, "isBase64Encoded": false,
    })
    .to_string()
}

/// The status of the answer, which is as the OpenAPI document has it.
async fn status(webhook: &mut Function, payload: String) -> u64 {
    let answer = webhook.invoke(payload).await.response();
    let status = answer["statusCode"].as_u64().unwrap();
    let document: Value = serde_json::from_str(include_str!("../../schemas/webhook.openapi.json")).unwrap();
    let responses =
        document.pointer("/paths/~1{provider}~1{job}~1{attempt}~1{proof}/post/responses").unwrap();
    let reference = responses[status.to_string()]["$ref"].as_str().unwrap_or_else(|| panic!("{answer}"));
    let response = document.pointer(&reference[1..]).unwrap();
    let mut schemas = boon::Schemas::new();
    let mut compiler = boon::Compiler::new();
    let schema = response.pointer("/content/application~1json/schema").unwrap();
    compiler.add_resource("urn:response", schema.clone()).unwrap();
    let schema = compiler.compile("urn:response", &mut schemas).unwrap();
    let body: Value = serde_json::from_str(answer["body"].as_str().unwrap()).unwrap();
    schemas.validate(&body, schema).unwrap_or_else(|error| panic!("{answer}: {error}"));
    assert_eq!(answer["headers"]["content-type"], "application/json");
    status
}

#[tokio::test]
async fn a_call_ends_in_the_ledger_once_however_often_it_comes() {
    let platform = Platform::new().await;
    let world = FunctionWorld::shared().await;
    let job = "render/é 1";
    world.charge(&[job]).await;
    let mut webhook = Function::start("webhook", &platform.variables()).await;
    let runpod = platform.mint(&[job, "--provider", "runpod"]);
    assert_eq!(platform.mint(&[job, "--provider", "runpod", "--attempt", "1"]), runpod);

    let failed = r#"{"id":"p-1","status":"TIMED_OUT","error":"worker timeout"}"#;
    let succeeded = r#"{"id":"p-1","status":"COMPLETED","output":{}}"#;
    for (body, expected) in
        [(r#"{"id":"p-1","status":"IN_PROGRESS"}"#, 200), (failed, 202), (failed, 202), (succeeded, 202)]
    {
        assert_eq!(status(&mut webhook, call("POST", &runpod, body)).await, expected, "{body}");
    }
    let mut encoded: Value =
        serde_json::from_str(&call("POST", &runpod, "eyJzdGF0dXMiOiJDT01QTEVURUQifQ==")).unwrap();
    encoded["isBase64Encoded"] = json!(true);
    assert_eq!(status(&mut webhook, encoded.to_string()).await, 202);

    let mut job_failed = world.function("job-failed").await;
    let batch = platform.batch(&platform.queues[0]).await;
    assert_eq!(serde_json::from_str::<Value>(&batch).unwrap()["Records"].as_array().unwrap().len(), 2);
    assert_eq!(job_failed.invoke(batch).await.response(), failures([]));
    let refunded = world.job(job).await;
    assert_eq!((refunded.phase, refunded.attempts, refunded.net), (Phase::RetryWaiting, 1, 0));
    assert_eq!(refunded.last_error.unwrap().reason, "worker timeout");

    let mut job_succeeded = world.function("job-succeeded").await;
    let batch = platform.batch(&platform.queues[1]).await;
    assert_eq!(job_succeeded.invoke(batch).await.response(), failures([]));
    let reclaimed = world.job(job).await;
    assert_eq!((reclaimed.phase, reclaimed.net, reclaimed.entries.len()), (Phase::Delivered, -100, 3));
}

#[tokio::test]
async fn a_bad_proof_is_told_nothing_and_leaves_no_trace_of_itself() {
    let platform = Platform::new().await;
    let mut variables = platform.variables();
    variables.push(("RUST_LOG", "trace"));
    let mut webhook = Function::start("webhook", &variables).await;
    let good = platform.mint(&["job-1", "--provider", "fal"]);
    let other = platform.mint(&["job-2", "--provider", "fal"]);
    let (_, proof) = good.rsplit_once('/').unwrap();
    let (others, _) = other.rsplit_once('/').unwrap();
    for path in
        [format!("{others}/{proof}"), format!("{good}A"), "/".to_owned(), good.replace("fal", "runpod")]
    {
        let answer = webhook.invoke(call("POST", &path, r#"{"status":"OK"}"#)).await.response();
        assert_eq!(answer, json!({ "statusCode": 401, "headers": {}, "body": "" }), "{path}");
    }
    assert_eq!(status(&mut webhook, call("GET", &good, "")).await, 405);
    assert_eq!(status(&mut webhook, call("POST", &good, "{")).await, 400);
    assert!(webhook.invoke("{}").await.error().contains("payload format 2.0"));
    webhook.process().kill();
    let output = webhook.process().output();
    assert!(!output.contains(proof) && !output.contains(SECRET), "{output}");
}

#[tokio::test]
async fn a_queue_that_is_not_there_is_an_answer_to_call_again() {
    let platform = Platform::new().await;
    let mut variables = platform.variables();
    variables.retain(|(name, _)| *name != "JOB_FAILED_QUEUE_URL");
    variables.push(("JOB_FAILED_QUEUE_URL", "http://127.0.0.1:1/1/none"));
    let mut webhook = Function::start("webhook", &variables).await;
    let path = platform.mint(&["job-1", "--provider", "replicate"]);
    assert_eq!(status(&mut webhook, call("POST", &path, r#"{"status":"failed"}"#)).await, 503);
    assert_eq!(status(&mut webhook, call("POST", &path, r#"{"status":"succeeded"}"#)).await, 202);
}

#[tokio::test]
async fn a_bad_environment_is_one_line_before_the_first_poll() {
    let platform = Platform::new().await;
    for (variable, value) in [
        ("WEBHOOK_SECRET", "hunter2"),
        ("WEBHOOK_SECRET", "secretsmanager:arn:aws:secretsmanager:us-east-1:123456789012:secret:none-AbCdEf"),
        ("WEBHOOK_SECRET_PREVIOUS", "hunter2"),
        ("REPLICATE_WEBHOOK_SECRET", "hunter2"),
        ("FAL_WEBHOOK_KEYS", "hunter2"),
        ("JOB_FAILED_QUEUE_URL", "hunter2"),
        ("JOB_SUCCEEDED_QUEUE_URL", ""),
        ("EVENT_SOURCES", "["),
    ] {
        let mut variables = platform.variables();
        variables.retain(|(name, _)| *name != variable);
        variables.push((variable, value));
        let mut process = Process::start("webhook", &[], &variables);
        assert_eq!(process.status().await.code(), Some(1));
        let said = process.stderr();
        assert_eq!(said.lines().count(), 1, "{said}");
        let (_, table) = include_str!("../../docs/WEBHOOKS.md").split_once("| line begins with |").unwrap();
        let mut beginnings = table.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
        assert!(beginnings.any(|with| said.starts_with(with)), "the manual does not have: {said}");
        assert!(
            said.starts_with(variable) && said.contains("for example") && !said.contains("hunter2"),
            "{said}"
        );
    }
}
