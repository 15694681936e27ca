//! Other services' events through the real functions: every example of `events/`, from the charge to the reclaim.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::PathBuf;

use recoup::job::Phase;
use recoup_tests::function_world::{FunctionWorld, failures, sqs};
use recoup_tests::runtime_api::Function;
use serde_json::{Value, json};

/// Folder and job.
const SOURCES: [(&str, &str); 11] = [
    ("batch", "batch-job-1"),
    ("states", "states-job-1"),
    ("mediaconvert", "mediaconvert-job-1"),
    ("transcribe", "transcribe-job-1"),
    ("sagemaker-training", "training-job-1"),
    ("sagemaker-transform", "transform-job-1"),
    ("sagemaker-processing", "processing-job-1"),
    ("ecs", "ecs-job-1"),
    ("bedrock", "bedrock-job-1"),
    ("rekognition", "rekognition-job-1"),
    ("textract", "textract-job-1"),
];

fn example(folder: &str, file: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../events").join(folder).join(file);
    fs::read_to_string(path.with_extension("json")).unwrap()
}

/// Feeds an example to a function and checks that it is acknowledged; a single event's outcome.
async fn outcome(function: &mut Function, folder: &str, file: &str) -> Option<String> {
    let answer = function.invoke(example(folder, file)).await.response();
    if let Some(outcome) = answer["outcome"].as_str() {
        return Some(outcome.to_owned());
    }
    assert_eq!(answer, failures([]), "{folder}/{file}");
    None
}

#[tokio::test]
async fn each_service_is_refunded_once_and_reclaimed_by_its_own_events() {
    let world = FunctionWorld::shared().await;
    world.charge(&SOURCES.map(|(_, job)| job)).await;
    let mut failed = world.function("job-failed").await;
    let mut succeeded = world.function("job-succeeded").await;
    for (folder, job) in SOURCES {
        // A notification that SNS brings is answered as a batch, an event of EventBridge's by its outcome.
        let is = |outcome: Option<String>, word: &str| outcome.is_none_or(|outcome| outcome == word);
        for function in [&mut failed, &mut succeeded] {
            assert!(is(outcome(function, folder, "in-progress").await, "ignored"), "{folder}");
        }
        assert!(is(outcome(&mut succeeded, folder, "failure").await, "ignored"), "{folder}");
        let untouched = world.job(job).await;
        assert_eq!(
            (untouched.phase, untouched.attempts, untouched.net),
            (Phase::Running, 0, -100),
            "{folder}"
        );

        assert!(is(outcome(&mut failed, folder, "failure").await, "refunded"), "{folder}");
        let refunded = world.job(job).await;
        assert_eq!(
            (refunded.phase, refunded.attempts, refunded.net),
            (Phase::RetryWaiting, 1, 0),
            "{folder}"
        );
        assert_eq!(outcome(&mut failed, folder, "doubled").await, None, "{folder}");
        assert_eq!(world.job(job).await, refunded, "{folder}: told before, nothing happened");

        assert!(is(outcome(&mut failed, folder, "success").await, "ignored"), "{folder}");
        assert!(is(outcome(&mut succeeded, folder, "success").await, "reclaimed"), "{folder}");
        let delivered = world.job(job).await;
        assert_eq!(
            (delivered.phase, delivered.net, delivered.entries.len()),
            (Phase::Delivered, -100, 3),
            "{folder}"
        );
    }
}

#[tokio::test]
async fn what_is_ignored_is_logged_once_with_source_and_status() {
    let world = FunctionWorld::shared().await;
    let mut failed = world.function("job-failed").await;
    let bodies = [example("batch", "in-progress"), example("ecs", "success")];
    assert_eq!(failed.invoke(sqs(&bodies)).await.response(), failures([]));
    let single = failed.invoke(example("mediaconvert", "success")).await.response();
    let expected = json!({"job_id": "mediaconvert-job-1", "outcome": "ignored", "source": "aws.mediaconvert",
        "status": "COMPLETE", "why": "other_function"});
    assert_eq!(single, expected, "also where the ledger does not know the job");
    let lines: Vec<Value> = failed.kill().iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut ignored: Vec<[&str; 4]> = lines
        .iter()
        .filter(|line| line["outcome"] == "ignored")
        .map(|line| ["level", "source", "status", "why"].map(|field| line[field].as_str().unwrap()))
        .collect();
    ignored.sort_unstable();
    assert_eq!(
        ignored,
        [
            ["INFO", "aws.batch", "RUNNING", "in_progress"],
            ["INFO", "aws.ecs", "STOPPED", "other_function"],
            ["INFO", "aws.mediaconvert", "COMPLETE", "other_function"],
        ]
    );
}

#[tokio::test]
async fn an_event_of_a_job_that_was_never_charged_is_kept() {
    let world = FunctionWorld::shared().await;
    let mut failed = world.function("job-failed").await;
    let single = failed.invoke(example("batch", "failure")).await.error();
    assert!(single.contains(r#""batch-job-1" is not in the ledger"#), "{single}");
    let expected = failures(["m0".to_owned()]);
    assert_eq!(failed.invoke(sqs(&[example("batch", "failure")])).await.response(), expected);
    let sns = failed.invoke(example("textract", "failure")).await.error();
    assert!(sns.contains("failed"), "SNS brings it again after an error: {sns}");
}

#[tokio::test]
async fn overrides_reach_the_functions() {
    let world = FunctionWorld::shared()
        .await
        .with("EVENT_SOURCES", r#"{"aws.batch":{"job_id":["detail.tags.my_id"],"native_id":false}}"#);
    world.charge(&["mine"]).await;
    let mut failed = world.function("job-failed").await;
    let unmarked = failed.invoke(example("batch", "failure")).await.response();
    assert_eq!((&unmarked["outcome"], &unmarked["why"]), (&json!("ignored"), &json!("no_recoup_job_id")));
    let marked =
        example("batch", "failure").replace(r#""recoup_job_id": "batch-job-1""#, r#""my_id": "mine""#);
    let answer = failed.invoke(marked).await.response();
    assert_eq!((&answer["job_id"], &answer["outcome"]), (&json!("mine"), &json!("refunded")));
}
