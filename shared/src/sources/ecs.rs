//! How an ECS task ended: it has no word for it, its containers have exit codes.
//!
//! A task succeeded where it ended by itself (`stopCode` is `EssentialContainerExited`, or none is given) and every
//! container that decides has `exitCode` 0. One that was stopped from outside did not end by itself: a worker
//! that catches SIGTERM and leaves with 0 delivered nothing. A container without an exit code never ran to its end.
//!
//! Which containers are essential stands in the task definition and not in the event. Those decide which, in this
//! order, `EVENT_SOURCES` names; in whose override the job's id stands, as the platform started that one for
//! the job; or all, but those that AWS puts beside a task by itself. A side-car that is killed at the end, as it
//! is when the essential container has exited, so costs no job its success where its worker can be told.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::Rule;
use super::path::Path;
use crate::event::EventError;

/// How a task's stop code says that it ended by itself.
const ENDED_BY_ITSELF: &str = "EssentialContainerExited";
/// What the names of containers begin with that AWS adds.
const ADDED_BY_AWS: [&str; 2] = ["aws-guardduty-agent", "ecs-service-connect"];
/// Where the overrides stand, of which each may hold the mark.
const OVERRIDES: &str = "detail.overrides.containerOverrides.";

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow)]
    detail: Task<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Task<'a> {
    stop_code: Option<String>,
    containers: Option<Vec<Container>>,
    #[serde(borrow)]
    overrides: Option<Overrides<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Container {
    #[serde(default)]
    name: String,
    exit_code: Option<i64>,
    reason: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Overrides<'a> {
    #[serde(borrow)]
    container_overrides: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

/// Whether AWS Batch started the task, for a job of which it tells itself: by the names that Batch gives its clusters.
pub(super) fn is_task_of_batch(event: &str) -> bool {
    let arn = Path::parse("detail.clusterArn").ok().and_then(|path| path.look(event).ok().flatten());
    let arn = arn.and_then(|raw| serde_json::from_str::<String>(&raw).ok()).unwrap_or_default();
    let name = arn.rsplit('/').next().unwrap_or_default();
    name.contains("_Batch_") || name.starts_with("AWSBatch-")
}

/// What made a stopped task a failure; `None` where it succeeded.
pub(super) fn failure(rule: &Rule, event: &str) -> Result<Option<String>, EventError> {
    let task = serde_json::from_str::<Event<'_>>(event)
        .map_err(|error| rule.wrong(&rule.status, &error.to_string(), "a stopped task with its containers"))?
        .detail;
    let containers = task.containers.as_deref().unwrap_or_default();
    if task.stop_code.as_deref().is_some_and(|code| code != ENDED_BY_ITSELF) {
        let all: Vec<&Container> = containers.iter().collect();
        return Ok(Some(first_failure(&all).unwrap_or_default()));
    }
    let deciding = deciding(rule, containers, &marked(rule, task.overrides.as_ref()));
    if deciding.is_empty() {
        return Ok(Some("no container that decides is in the event".to_owned()));
    }
    Ok(first_failure(&deciding))
}

fn first_failure(containers: &[&Container]) -> Option<String> {
    containers.iter().find(|container| container.exit_code != Some(0)).map(|container| {
        let exit = container.exit_code.map_or("no exit code".to_owned(), |code| format!("exit code {code}"));
        let reason = container.reason.as_deref().map(|reason| format!(", {reason}")).unwrap_or_default();
        format!("container {}: {exit}{reason}", container.name)
    })
}

fn deciding<'a>(rule: &Rule, containers: &'a [Container], marked: &[String]) -> Vec<&'a Container> {
    let named = |names: &[String]| -> Vec<&'a Container> {
        containers.iter().filter(|container| names.contains(&container.name)).collect()
    };
    if !rule.containers.is_empty() {
        return named(&rule.containers);
    }
    if !marked.is_empty() {
        return named(marked);
    }
    let is_added =
        |container: &&Container| ADDED_BY_AWS.iter().any(|added| container.name.starts_with(added));
    containers.iter().filter(|container| !is_added(container)).collect()
}

/// The containers in whose override the job's id stands.
fn marked(rule: &Rule, overrides: Option<&Overrides<'_>>) -> Vec<String> {
    let overrides = overrides.and_then(|all| all.container_overrides.as_deref()).unwrap_or_default();
    let tails: Vec<Path> = rule
        .job_id
        .iter()
        .filter_map(|place| Path::parse(place.as_str().strip_prefix(OVERRIDES)?).ok())
        .collect();
    let has_mark = |one: &&RawValue| tails.iter().any(|tail| matches!(tail.look(one.get()), Ok(Some(_))));
    overrides
        .iter()
        .copied()
        .filter(has_mark)
        .filter_map(|one| serde_json::from_str::<Named>(one.get()).ok())
        .map(|named| named.name)
        .collect()
}
