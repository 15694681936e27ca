//! Every example in `events/`, every rule of the table, every override, and what was never meant to be read.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::event::{Payload, parse_payload};

/// Folder, row, job, attempt, and what the failure's reason says.
const EXAMPLES: [(&str, &str, Option<&str>, &str, &str); 11] = [
    (
        "batch",
        "aws.batch",
        Some("Batch Job State Change"),
        "batch-job-1",
        "Essential container in task exited; OutOfMemoryError: Container killed due to memory usage; exitCode 137",
    ),
    (
        "states",
        "aws.states",
        Some("Step Functions Execution Status Change"),
        "states-job-1",
        "States.TaskFailed; the renderer ran out of memory",
    ),
    (
        "mediaconvert",
        "aws.mediaconvert",
        Some("MediaConvert Job State Change"),
        "mediaconvert-job-1",
        "errorCode 1040; Unable to open input file",
    ),
    (
        "transcribe",
        "aws.transcribe",
        Some("Transcribe Job State Change"),
        "transcribe-job-1",
        "The media format that you specified",
    ),
    (
        "sagemaker-training",
        "aws.sagemaker",
        Some("SageMaker Training Job State Change"),
        "training-job-1",
        "AlgorithmError: ExecuteUserScriptError",
    ),
    (
        "sagemaker-transform",
        "aws.sagemaker",
        Some("SageMaker Transform Job State Change"),
        "transform-job-1",
        "ClientError: See job logs",
    ),
    (
        "sagemaker-processing",
        "aws.sagemaker",
        Some("SageMaker Processing Job State Change"),
        "processing-job-1",
        "InternalServerError",
    ),
    (
        "ecs",
        "aws.ecs",
        Some("ECS Task State Change"),
        "ecs-job-1",
        "EssentialContainerExited; Essential container in task exited; container worker: exit code 137, OutOfMemoryError",
    ),
    (
        "bedrock",
        "aws.bedrock",
        Some("Batch Inference Job State Change"),
        "bedrock-job-1",
        "Error reading the input",
    ),
    ("rekognition", "rekognition", None, "rekognition-job-1", "rekognition FAILED"),
    ("textract", "textract", None, "textract-job-1", "textract FAILED"),
];

fn folder(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../events").join(name)
}

fn example(name: &str, file: &str) -> Value {
    let path = folder(name).join(file).with_extension("json");
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap()
}

fn read_by(sources: &Sources, signal: Signal, payload: &Value) -> Result<News, EventError> {
    match parse_payload(signal, sources, payload.to_string().as_bytes())? {
        Payload::One(news) => Ok(*news),
        Payload::Batch(mut records) => {
            assert_eq!(records.len(), 1);
            records.remove(0).event
        }
    }
}

fn read(signal: Signal, payload: &Value) -> Result<News, EventError> {
    read_by(&Sources::default(), signal, payload)
}

#[track_caller]
fn event(news: Result<News, EventError>) -> CompletionEvent {
    match news.unwrap() {
        News::Event(event) => event,
        News::Ignored(ignored) => panic!("{ignored:?}"),
    }
}

#[track_caller]
fn ignored(news: Result<News, EventError>) -> Ignored {
    match news.unwrap() {
        News::Event(event) => panic!("{event:?}"),
        News::Ignored(ignored) => ignored,
    }
}

fn failed(payload: &Value) -> CompletionEvent {
    event(read(Signal::Failed, payload))
}

/// An event of a folder with these fields of its detail set, or removed where null.
fn with(name: &str, file: &str, fields: &Value) -> Value {
    let mut event = example(name, file);
    let detail = event["detail"].as_object_mut().unwrap();
    for (field, value) in fields.as_object().unwrap() {
        if value.is_null() {
            detail.remove(field);
        } else {
            detail.insert(field.clone(), value.clone());
        }
    }
    event
}

#[test]
fn every_row_has_its_examples_and_every_example_its_row() {
    let rows: BTreeSet<(&str, Option<&str>)> = TABLE
        .iter()
        .filter(|row| row.carrier != Carrier::Webhook)
        .map(|row| (row.source, row.detail_type()))
        .collect();
    let shown: BTreeSet<(&str, Option<&str>)> =
        EXAMPLES.iter().map(|(_, source, detail_type, ..)| (*source, *detail_type)).collect();
    assert_eq!(rows, shown);
    let calls = TABLE.iter().filter(|row| row.carrier == Carrier::Webhook).map(|row| row.source.to_owned());
    let known: BTreeSet<String> = EXAMPLES.iter().map(|(name, ..)| (*name).to_owned()).chain(calls).collect();
    for entry in fs::read_dir(folder("")).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        assert!(entry.path().is_file() || known.contains(&name), "events/{name} has no row");
    }
    for (name, ..) in EXAMPLES {
        let files: BTreeSet<String> = fs::read_dir(folder(name))
            .unwrap()
            .map(|file| file.unwrap().file_name().into_string().unwrap())
            .collect();
        let expected =
            ["doubled.json", "failure.json", "in-progress.json", "success.json"].map(ToOwned::to_owned);
        assert_eq!(files, BTreeSet::from(expected), "{name}");
    }
}

#[test]
fn every_example_is_read_as_what_it_is() {
    for (name, source, detail_type, job, reason) in EXAMPLES {
        let failure = example(name, "failure");
        assert_eq!(failure.get("detail-type").and_then(Value::as_str), detail_type, "{name}");
        let failed = event(read(Signal::Failed, &failure));
        assert_eq!(
            (failed.job_id.as_str(), failed.attempt, failed.retryable),
            (job, Some(1), true),
            "{name}"
        );
        assert!(failed.reason.as_ref().unwrap().starts_with(reason), "{name}: {:?}", failed.reason);
        let id = failure.get("id").unwrap_or(&failure["Records"][0]["Sns"]["MessageId"]);
        assert_eq!(failed.event_id.as_ref().map(EventId::as_str), id.as_str(), "{name}: the envelope's id");

        let success = example(name, "success");
        let succeeded = event(read(Signal::Succeeded, &success));
        assert_eq!((succeeded.job_id.as_str(), succeeded.attempt), (job, Some(1)), "{name}");
        assert_eq!(succeeded.reason, None, "{name}");

        for (signal, other) in [(Signal::Failed, &success), (Signal::Succeeded, &failure)] {
            let ignored = ignored(read(signal, other));
            assert_eq!((ignored.source, ignored.why), (source, Why::OtherFunction), "{name}");
            assert_eq!(ignored.job_id.as_ref().map(JobId::as_str), Some(job), "{name}");
        }
        for signal in [Signal::Failed, Signal::Succeeded] {
            let ignored = ignored(read(signal, &example(name, "in-progress")));
            assert_eq!((ignored.source, ignored.why), (source, Why::InProgress), "{name}");
        }
    }
}

#[test]
fn a_doubled_example_is_one_event_twice() {
    for (name, ..) in EXAMPLES {
        let doubled = example(name, "doubled").to_string();
        let payload = parse_payload(Signal::Failed, &Sources::default(), doubled.as_bytes()).unwrap();
        let Payload::Batch(records) = payload else { panic!("{name} is no batch") };
        let [one, other] = &records[..] else { panic!("{name} has {} records", records.len()) };
        assert_ne!(one.message_id, other.message_id, "{name}");
        assert_eq!(one.event, other.event, "{name}");
        assert_eq!(one.event, read(Signal::Failed, &example(name, "failure")), "{name}");
    }
}

#[test]
fn an_event_is_read_in_every_envelope() {
    for (name, ..) in EXAMPLES {
        let failure = example(name, "failure");
        let expected = read(Signal::Failed, &failure);
        let inner = match failure.get("Records") {
            Some(records) => records[0]["Sns"]["Message"].as_str().unwrap().to_owned(),
            None => failure.to_string(),
        };
        let event_id = event(expected.clone()).event_id.unwrap();
        let sns = json!({"Type": "Notification", "MessageId": event_id.as_str(), "Message": inner});
        let sqs = |body: &str| json!({"Records": [{"messageId": event_id.as_str(), "body": body}]});
        let direct = json!({"Records": [{"EventSource": "aws:sns", "Sns": sns}]});
        for (envelope, payload) in [
            ("raw in SQS", sqs(&inner)),
            ("SNS in SQS", sqs(&sns.to_string())),
            ("SNS", sns.clone()),
            ("SNS to Lambda", direct),
        ] {
            assert_eq!(read(Signal::Failed, &payload), expected, "{name}, {envelope}");
        }
    }
}

#[test]
fn without_a_mark_the_services_own_name_or_id_is_the_jobs_and_the_attempt_unknown() {
    for (name, detail, id) in [
        ("batch", json!({"tags": {}}), "4c7599ae-0a82-49aa-ba5a-4727fcce14a8"),
        ("states", json!({"input": "{}"}), "8a3c0b52-6f0e-4a0e-9d55-0c5a5c9e6c11"),
        ("states", json!({"input": "no JSON"}), "8a3c0b52-6f0e-4a0e-9d55-0c5a5c9e6c11"),
        ("mediaconvert", json!({"userMetadata": {}}), "1768471087458-qnoxtd"),
        ("transcribe", json!({"TranscriptionJobName": "job-7"}), "job-7"),
        ("sagemaker-training", json!({"Tags": {}}), "denoiser-2026-01-15-10-00-00-000"),
        ("sagemaker-transform", json!({"Environment": null}), "upscale-2026-01-15-10-00-00-000"),
        ("sagemaker-processing", json!({"ProcessingJobName": "p-7"}), "p-7"),
        (
            "ecs",
            json!({"overrides": {"containerOverrides": [{"name": "worker"}]}}),
            "arn:aws:ecs:eu-west-1:123456789012:task/render/c13b4cb40f1f4fe4a2971f76ae5a47ad",
        ),
        ("bedrock", json!({"batchJobName": "b-7"}), "b-7"),
        (
            "bedrock",
            json!({"batchJobName": null}),
            "arn:aws:bedrock:eu-west-1:123456789012:model-invocation-job/ra2zk4a8h696",
        ),
    ] {
        let event = failed(&with(name, "failure", &detail));
        assert_eq!((event.job_id.as_str(), event.attempt), (id, None), "{name}");
    }
}

#[test]
fn a_mark_is_found_in_every_place_it_may_stand_in() {
    let pair = json!([{"name": "OTHER", "value": "x"}, {"name": "recoup_job_id", "value": "m"},
                      {"name": "recoup_attempt", "value": "3"}]);
    let tags = json!([{"Key": "recoup_job_id", "Value": "m"}, {"Key": "recoup_attempt", "Value": "3"}]);
    let object = json!({"recoup_job_id": "m", "recoup_attempt": "3"});
    for (name, detail) in [
        ("batch", json!({"tags": null, "parameters": object})),
        ("batch", json!({"tags": null, "container": {"environment": pair}})),
        (
            "batch",
            json!({"tags": null, "ecsProperties": {"taskProperties": [{"containers": [{"environment": pair}]}]}}),
        ),
        ("batch", json!({"tags": null, "eksProperties": {"podProperties": {"containers": [{"env": pair}]}}})),
        ("sagemaker-training", json!({"Tags": tags})),
        ("sagemaker-training", json!({"Tags": null, "Environment": object})),
        ("sagemaker-processing", json!({"Environment": object})),
        ("states", json!({"input": object.to_string()})),
    ] {
        let event = failed(&with(name, "failure", &detail));
        assert_eq!((event.job_id.as_str(), event.attempt), ("m", Some(3)), "{name} {detail}");
    }
}

#[test]
fn a_name_may_hold_job_and_attempt() {
    let named = |name: &str| failed(&with("transcribe", "failure", &json!({ "TranscriptionJobName": name })));
    for (name, job, attempt) in [
        ("job-1-recoup-2", "job-1", Some(2)),
        ("a-recoup-1-recoup-12", "a-recoup-1", Some(12)),
        ("job-1-recoup-", "job-1-recoup-", None),
        ("job-1-recoup-0", "job-1-recoup-0", None),
        ("job-1-recoup-x", "job-1-recoup-x", None),
        ("job-1-recoup-+2", "job-1-recoup-+2", None),
        ("job-1-recoup-99999999999", "job-1-recoup-99999999999", None),
        ("-recoup-2", "-recoup-2", None),
    ] {
        let event = named(name);
        assert_eq!((event.job_id.as_str(), event.attempt), (job, attempt), "{name}");
    }
    let both = json!({"tags": {"recoup_job_id": "j-recoup-2", "recoup_attempt": "5"}});
    let event = failed(&with("batch", "failure", &both));
    assert_eq!((event.job_id.as_str(), event.attempt), ("j-recoup-2", Some(5)), "what stands beside it wins");
}

#[test]
fn a_mark_that_is_none_is_an_error_that_names_its_place() {
    for (name, detail, message) in [
        (
            "batch",
            json!({"tags": {"recoup_job_id": {"$ne": 1}}}),
            r#"detail.tags.recoup_job_id of an event of aws.batch is {"$ne":1}; expected a string of 1 to 256 characters"#,
        ),
        (
            "batch",
            json!({"tags": {"recoup_job_id": 7}}),
            "detail.tags.recoup_job_id of an event of aws.batch is 7; expected a string of 1 to 256 characters",
        ),
        (
            "batch",
            json!({"tags": {"recoup_job_id": " "}}),
            "detail.tags.recoup_job_id of an event of aws.batch consists of blanks only; give 1 to 256 characters",
        ),
        (
            "mediaconvert",
            json!({"userMetadata": {"recoup_job_id": "j", "recoup_attempt": "0"}}),
            r#"detail.userMetadata.recoup_attempt of an event of aws.mediaconvert is "0"; expected a whole number from 1 to 2147483647"#,
        ),
        (
            "mediaconvert",
            json!({"userMetadata": {"recoup_job_id": "j", "recoup_attempt": 1.5}}),
            "detail.userMetadata.recoup_attempt of an event of aws.mediaconvert is 1.5; expected a whole number from 1 to 2147483647",
        ),
        (
            "transcribe",
            json!({"TranscriptionJobName": null}),
            "detail.TranscriptionJobName of an event of aws.transcribe is missing; expected a string of 1 to 256 characters",
        ),
        (
            "batch",
            json!({"status": null}),
            "detail.status of an event of aws.batch is missing; expected a status word",
        ),
        (
            "batch",
            json!({"status": ["FAILED"]}),
            r#"detail.status of an event of aws.batch is ["FAILED"]; expected a status word"#,
        ),
    ] {
        let news = read(Signal::Failed, &with(name, "failure", &detail));
        assert_eq!(news.unwrap_err().to_string(), message);
    }
    let twice = example("batch", "failure").to_string().replace(
        r#""recoup_job_id":"batch-job-1""#,
        r#""recoup_job_id":"batch-job-1","recoup_job_id":"other""#,
    );
    let error = parse_payload(Signal::Failed, &Sources::default(), twice.as_bytes()).unwrap_err();
    assert!(error.to_string().contains("recoup_job_id stands there twice"), "{error}");
}

#[test]
fn what_a_person_stopped_is_not_tried_again_and_everything_else_is() {
    for (name, detail, retryable) in [
        ("batch", json!({"isCancelled": true}), false),
        ("batch", json!({"isTerminated": true, "statusReason": "wrong scene"}), false),
        ("batch", json!({"statusReason": "Host EC2 (instance i-0abc) terminated."}), true),
        ("states", json!({"status": "ABORTED", "error": null, "cause": null}), false),
        ("states", json!({"status": "TIMED_OUT", "error": "States.Timeout"}), true),
        ("mediaconvert", json!({"status": "CANCELED", "errorCode": null, "errorMessage": null}), false),
        ("sagemaker-training", json!({"TrainingJobStatus": "Stopped", "SecondaryStatus": "Stopped"}), false),
        ("sagemaker-transform", json!({"TransformJobStatus": "Stopped"}), false),
        ("sagemaker-processing", json!({"ProcessingJobStatus": "Stopped"}), false),
        ("ecs", json!({"stopCode": "UserInitiated", "stoppedReason": "Task stopped by user"}), false),
        ("ecs", json!({"stopCode": "SpotInterruption"}), true),
        ("ecs", json!({"stopCode": "TaskFailedToStart", "containers": []}), true),
        ("bedrock", json!({"status": "Stopped"}), false),
        ("bedrock", json!({"status": "Expired"}), true),
        ("bedrock", json!({"status": "PartiallyCompleted"}), true),
    ] {
        assert_eq!(failed(&with(name, "failure", &detail)).retryable, retryable, "{name} {detail}");
    }
}

#[test]
fn a_failure_that_gives_no_reason_says_its_word() {
    let bare = json!({"status": "CANCELED", "errorCode": null, "errorMessage": null});
    let event = failed(&with("mediaconvert", "failure", &bare));
    assert_eq!(event.reason.as_deref(), Some("aws.mediaconvert CANCELED"));
    let long = json!({"cause": "é".repeat(40_000)});
    assert_eq!(failed(&with("states", "failure", &long)).reason.unwrap().chars().count(), 500);
}

#[test]
fn status_words_are_compared_without_case() {
    let mut message = json!({"JobId": "j", "Status": "Succeeded", "API": "StartDocumentAnalysis"});
    assert_eq!(event(read(Signal::Succeeded, &message)).job_id.as_str(), "j");
    message["Status"] = json!("Error");
    assert_eq!(event(read(Signal::Failed, &message)).job_id.as_str(), "j");
}

#[test]
fn a_task_succeeds_by_the_exit_codes_of_its_worker() {
    let container = |name: &str, code: Value| json!({"name": name, "exitCode": code});
    let worker = |code| container("worker", code);
    let outcome = |detail: &Value| match read(Signal::Failed, &with("ecs", "success", detail)).unwrap() {
        News::Event(event) => event.reason,
        News::Ignored(ignored) => {
            assert_eq!(ignored.why, Why::OtherFunction);
            None
        }
    };
    let unmarked = json!({"containerOverrides": []});
    for (detail, is_success) in [
        (json!({"containers": [worker(json!(0))]}), true),
        (json!({"containers": [worker(json!(0)), container("side-car", json!(137))]}), true),
        (json!({"containers": [worker(json!(1)), container("side-car", json!(0))]}), false),
        (json!({"containers": [worker(Value::Null)]}), false),
        (json!({"containers": [{"name": "worker"}]}), false),
        (json!({"containers": [container("other", json!(0))]}), false),
        (json!({"containers": []}), false),
        (json!({"containers": null}), false),
        (json!({"overrides": unmarked, "containers": [worker(json!(0)), container("b", json!(0))]}), true),
        (json!({"overrides": unmarked, "containers": [worker(json!(0)), container("b", json!(143))]}), false),
        (
            json!({"overrides": unmarked,
                "containers": [worker(json!(0)), container("aws-guardduty-agent-x1", Value::Null)]}),
            true,
        ),
        (json!({"stopCode": null}), true),
        (json!({"stopCode": "UserInitiated"}), false),
        (json!({"stopCode": "SpotInterruption"}), false),
    ] {
        assert_eq!(outcome(&detail).is_none(), is_success, "{detail}");
    }
    let named = Sources::with_overrides(r#"{"aws.ecs":{"containers":["side-car"]}}"#).unwrap();
    let detail = json!({"containers": [worker(json!(1)), container("side-car", json!(0))]});
    let news = read_by(&named, Signal::Succeeded, &with("ecs", "success", &detail));
    assert_eq!(event(news).job_id.as_str(), "ecs-job-1");
}

#[test]
fn a_part_of_a_job_does_not_tell_for_the_whole() {
    let batch_environment = json!({"containerOverrides": [{"name": "default", "environment":
        [{"name": "recoup_job_id", "value": "j"}, {"name": "AWS_BATCH_JOB_ID", "value": "b"}]}]});
    for (name, detail) in [
        ("batch", json!({"arrayProperties": {"index": 0}})),
        ("batch", json!({"nodeDetails": {"nodeIndex": 1, "isMainNode": false}})),
        ("ecs", json!({"overrides": batch_environment})),
        ("ecs", json!({"clusterArn": "arn:aws:ecs:eu-west-1:123456789012:cluster/render_Batch_8131"})),
        ("ecs", json!({"clusterArn": "arn:aws:ecs:eu-west-1:123456789012:cluster/AWSBatch-render-8131"})),
    ] {
        let news = read(Signal::Failed, &with(name, "failure", &detail));
        assert_eq!(ignored(news).why, Why::PartOfAJob, "{name} {detail}");
    }
    let parent = json!({"arrayProperties": {"size": 10, "statusSummary": {"FAILED": 1}}});
    assert_eq!(failed(&with("batch", "failure", &parent)).job_id.as_str(), "batch-job-1");
}

#[test]
fn a_redriven_execution_fails_runs_and_succeeds_under_one_name() {
    let at = |id: &str, status: &str| {
        let mut event = with("states", "failure", &json!({"status": status, "redriveCount": 1}));
        event["id"] = json!(id);
        event
    };
    let (first, again) = (failed(&at("e-1", "FAILED")), failed(&at("e-3", "FAILED")));
    assert_eq!(
        (&first.job_id, first.attempt),
        (&again.job_id, again.attempt),
        "a redrive is no attempt of ours"
    );
    assert_ne!(first.event_id, again.event_id);
    assert_eq!(ignored(read(Signal::Failed, &at("e-2", "RUNNING"))).why, Why::InProgress);
    assert_eq!(event(read(Signal::Succeeded, &at("e-4", "SUCCEEDED"))).job_id, first.job_id);
}

#[test]
fn overrides_say_where_ids_stand_what_words_mean_and_what_is_tried_again() {
    let sources = Sources::with_overrides(
        r#"{"aws.batch": {"job_id": ["detail.tags.my_id", "detail.container.environment[MY_ID]"],
                          "attempt": ["detail.tags.try"], "native_id": false, "retryable": {"FAILED": false}},
            "aws.states": {"native_id": false},
            "aws.bedrock": {"status": {"PartiallyCompleted": "success", "Expired": "ignored"}},
            "aws.mediaconvert": {"retryable": {"1040": false, "CANCELED": true}},
            "aws.transcribe": {"enabled": false}}"#,
    )
    .unwrap();
    let read = |signal, event: &Value| read_by(&sources, signal, event);

    let tagged = with("batch", "failure", &json!({"tags": {"my_id": "mine", "try": "4"}}));
    let tagged = event(read(Signal::Failed, &tagged));
    assert_eq!((tagged.job_id.as_str(), tagged.attempt, tagged.retryable), ("mine", Some(4), false));
    let environment = json!({"container": {"environment": [{"name": "MY_ID", "value": "env"}]}});
    let environment = event(read(Signal::Failed, &with("batch", "failure", &environment)));
    assert_eq!((environment.job_id.as_str(), environment.attempt), ("env", None));
    let unmarked = ignored(read(Signal::Failed, &example("batch", "failure")));
    assert_eq!((unmarked.why, unmarked.job_id), (Why::Unmarked, None));

    let left_out = json!({"input": null, "inputDetails": {"included": false}});
    let error = read(Signal::Failed, &with("states", "failure", &left_out)).unwrap_err().to_string();
    assert!(error.starts_with("detail.inputDetails.included of an event of aws.states is false"), "{error}");
    let named = json!({"input": null, "inputDetails": {"included": false}, "name": "j-recoup-2"});
    let named = event(read(Signal::Failed, &with("states", "failure", &named)));
    assert_eq!((named.job_id.as_str(), named.attempt), ("j", Some(2)), "a name that holds our mark is one");

    let partly = with("bedrock", "success", &json!({"status": "PartiallyCompleted"}));
    assert_eq!(event(read(Signal::Succeeded, &partly)).job_id.as_str(), "bedrock-job-1");
    let expired = with("bedrock", "success", &json!({"status": "Expired"}));
    assert_eq!(ignored(read(Signal::Failed, &expired)).why, Why::InProgress);

    assert!(!event(read(Signal::Failed, &example("mediaconvert", "failure"))).retryable);
    let canceled = with("mediaconvert", "failure", &json!({"status": "CANCELED", "errorCode": null}));
    assert!(event(read(Signal::Failed, &canceled)).retryable);
    assert_eq!(ignored(read(Signal::Failed, &example("transcribe", "failure"))).why, Why::Disabled);
}

#[test]
fn an_override_that_cannot_be_meant_is_refused_in_one_line() {
    for (json, problem) in [
        ("[]", "is [], no JSON object"),
        ("{", "cannot be read: EOF while parsing"),
        (r#"{"aws.bach":{}}"#, "names aws.bach, which is none of aws.batch, aws.states"),
        (r#"{"aws.batch":{"jobid":[]}}"#, "cannot be read: unknown field `jobid`"),
        (
            r#"{"aws.batch":{"job_id":["tags.my_id"]}}"#,
            r#"says of aws.batch: job_id "tags.my_id" does not begin with detail"#,
        ),
        (
            r#"{"aws.batch":{"job_id":["detail.tags["]}}"#,
            r#"says of aws.batch: job_id "detail.tags[" has a [ without its ]"#,
        ),
        (
            r#"{"aws.batch":{"attempt":["detail..x"]}}"#,
            r#"says of aws.batch: attempt "detail..x" is not made of names"#,
        ),
        (r#"{"aws.batch":{"status":{"FAILED":"maybe"}}}"#, "cannot be read: unknown variant `maybe`"),
        (r#"{"aws.batch":{"status":{" ":"failure"}}}"#, "says of aws.batch: status has a word that is empty"),
        (r#"{"aws.batch":{"containers":["a"]}}"#, "says of aws.batch: containers are aws.ecs's"),
        (r#"{"replicate":{"job_id":["id"]}}"#, "says of replicate: job_id is in the address of a webhook"),
        (r#"{"aws.batch":{"retryable":"no"}}"#, "cannot be read: invalid type"),
    ] {
        let error = Sources::with_overrides(json).unwrap_err().to_string();
        assert!(error.starts_with(problem) && !error.contains('\n'), "{json}: {error}");
    }
    assert_eq!(Sources::with_overrides("{}").unwrap(), Sources::default());
    assert_ne!(Sources::with_overrides(EXAMPLE).unwrap(), Sources::default());
}

#[test]
fn an_aws_service_that_is_in_no_row_is_an_error_that_names_those_that_are() {
    let mut event = example("batch", "failure");
    event["detail-type"] = json!("Batch Job Queue Blocked");
    let error = read(Signal::Failed, &event).unwrap_err().to_string();
    let expected = r#""Batch Job Queue Blocked" of source aws.batch is no event that is known"#;
    assert!(error.starts_with(expected) && error.contains("aws.mediaconvert"), "{error}");
    event["detail"]["job_id"] = json!("ours");
    assert_eq!(failed(&event).job_id.as_str(), "ours", "one that holds a job_id is taken by it");
}

#[test]
fn a_call_is_read_by_the_same_table() {
    let sources = Sources::default();
    let read = |provider: Provider, body: &Value| sources.read_webhook(provider, &body.to_string());
    let ending = |provider: Provider, body: &Value| match read(provider, body).unwrap() {
        Reading::Ended(ending) => (ending.signal, ending.retryable, ending.reason.unwrap_or_default()),
        Reading::Ignored(ignored) => panic!("{ignored:?}"),
    };
    use Provider::{Fal, Replicate, RunPod};
    use Signal::{Failed, Succeeded};
    for (provider, body, signal, retryable, reason) in [
        (Replicate, json!({"id": "r", "status": "succeeded"}), Succeeded, true, ""),
        (
            Replicate,
            json!({"id": "r", "status": "failed", "error": "CUDA out of memory"}),
            Failed,
            true,
            "CUDA out of memory",
        ),
        (
            Replicate,
            json!({"id": "r", "status": "aborted", "error": null}),
            Failed,
            true,
            "replicate aborted",
        ),
        (Replicate, json!({"id": "r", "status": "canceled"}), Failed, false, "replicate canceled"),
        (Fal, json!({"request_id": "f", "status": "OK", "payload": {}}), Succeeded, true, ""),
        (
            Fal,
            json!({"request_id": "f", "status": "ERROR", "error": "Invalid status code: 422"}),
            Failed,
            true,
            "Invalid status code: 422",
        ),
        (RunPod, json!({"id": "p", "status": "COMPLETED"}), Succeeded, true, ""),
        (RunPod, json!({"id": "p", "status": "TIMED_OUT"}), Failed, true, "runpod TIMED_OUT"),
        (RunPod, json!({"id": "p", "status": "FAILED", "error": {"code": 5}}), Failed, true, r#"{"code":5}"#),
        (RunPod, json!({"id": "p", "status": "CANCELLED"}), Failed, false, "runpod CANCELLED"),
    ] {
        assert_eq!(ending(provider, &body), (signal, retryable, reason.to_owned()), "{body}");
    }
    for (provider, status) in [(Replicate, "processing"), (Fal, "IN_PROGRESS"), (RunPod, "IN_QUEUE")] {
        let body = json!({"id": "x", "request_id": "x", "status": status});
        assert!(matches!(read(provider, &body), Ok(Reading::Ignored(_))), "{body}");
    }
    for bad in ["", "[]", "{", r#"{"id":"x"}"#, r#"{"status":5}"#] {
        assert!(sources.read_webhook(Replicate, bad).is_err(), "{bad}");
    }
    let rows = TABLE.iter().filter(|row| row.carrier == Carrier::Webhook).map(|row| row.source);
    assert!(rows.eq(Provider::ALL.map(Provider::as_str)), "a row for each provider, and no other");
}

/// Whether the manual names every row, and under the same words.
#[test]
fn the_manual_says_what_the_table_says() {
    let manual = fs::read_to_string(folder("").join("../docs/EVENTS.md")).unwrap();
    for rule in Sources::default().rules() {
        let row = rule.row;
        let name = row.detail_type().unwrap_or(row.source);
        let line = manual.lines().find(|line| line.starts_with('|') && line.contains(name));
        let line = line.unwrap_or_else(|| panic!("docs/EVENTS.md has no row for {name}"));
        let words = [rule.success_words(), rule.failure_words(), row.final_words.to_vec()].concat();
        for word in words.into_iter().chain([row.source, row.status]) {
            assert!(line.contains(&format!("`{word}`")), "docs/EVENTS.md does not say {word} of {name}");
        }
        assert_eq!(line.contains("best effort"), row.delivery == Delivery::BestEffort, "{name}");
    }
    for row in TABLE {
        for place in row.job_id.iter().chain(row.native_id).chain(row.attempt) {
            assert!(
                manual.contains(&format!("`{place}`")),
                "docs/EVENTS.md does not say that {place} is looked at"
            );
        }
    }
}

/// An example with some of its values replaced, or a piece of it alone.
fn mutated() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
        Just(json!([])),
        Just(json!({})),
        Just(json!([[{"name": "recoup_job_id", "value": ["x"]}]])),
        Just(json!("{\"recoup_job_id\":{}}")),
        Just(json!("FAILED")),
        Just(json!("STOPPED")),
    ];
    let files = prop::sample::select(vec!["failure", "success", "in-progress", "doubled"]);
    let changes = prop::collection::vec((any::<prop::sample::Index>(), leaf), 0..4);
    (prop::sample::select(EXAMPLES.to_vec()), files, changes).prop_map(|((name, ..), file, changes)| {
        let mut event = example(name, file);
        for (place, value) in changes {
            let mut places = Vec::new();
            pointers(&event, String::new(), &mut places);
            let pointer: &String = place.get(&places);
            *event.pointer_mut(pointer).unwrap() = value;
        }
        event
    })
}

fn pointers(value: &Value, here: String, all: &mut Vec<String>) {
    let name = |key: &str| key.replace('~', "~0").replace('/', "~1");
    match value {
        Value::Object(fields) => {
            fields.iter().for_each(|(key, value)| pointers(value, format!("{here}/{}", name(key)), all));
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(at, value)| pointers(value, format!("{here}/{at}"), all));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    all.push(here);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn no_mutated_event_panics_and_what_is_read_is_in_shape(event in mutated(), succeeded in any::<bool>()) {
        let signal = if succeeded { Signal::Succeeded } else { Signal::Failed };
        let payload = event.to_string();
        let news = match parse_payload(signal, &Sources::default(), payload.as_bytes()) {
            Ok(Payload::One(news)) => vec![Ok(*news)],
            Ok(Payload::Batch(records)) => records.into_iter().map(|record| record.event).collect(),
            Err(error) => vec![Err(error)],
        };
        for news in news {
            match news {
                Ok(News::Event(event)) => {
                    prop_assert!(JobId::new(event.job_id.as_str()).is_ok());
                    prop_assert!(event.attempt.is_none_or(|k| (1..=MAX_ATTEMPT).contains(&k)));
                    prop_assert!(payload.contains(event.job_id.as_str()) || event.job_id.as_str().contains(['"', '\\']));
                }
                Ok(News::Ignored(_)) => {}
                Err(error) => {
                    let line = error.to_string();
                    prop_assert!(line.len() < 600 && !line.contains(char::is_control), "{line}");
                }
            }
        }
    }

    #[test]
    fn no_call_panics(body in ".{0,200}", provider in prop::sample::select(Provider::ALL.to_vec())) {
        let _ = Sources::default().read_webhook(provider, &body);
    }
}
