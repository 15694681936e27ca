//! The table of other services' events that the functions take, as `EVENT_SOURCES` leaves it. It needs no store.

use std::collections::BTreeMap;

use recoup::config::Settings;
use recoup::sources::{Carrier, Delivery, Path, Rule};
use serde::Serialize;

use crate::output::{Grid, Output};
use crate::stop::Stop;

/// A row, for programs.
#[derive(Serialize)]
struct Row<'a> {
    source: &'static str,
    carrier: &'static str,
    detail_type: Option<&'static str>,
    delivery: &'static str,
    enabled: bool,
    status: &'static str,
    success: Vec<&'a str>,
    failure: Vec<&'a str>,
    job_id: Vec<&'a str>,
    native_id: &'static [&'static str],
    by_native_id: bool,
    attempt: Vec<&'a str>,
    retryable: BTreeMap<&'a str, bool>,
}

impl<'a> From<&'a Rule> for Row<'a> {
    fn from(rule: &'a Rule) -> Self {
        Self {
            source: rule.row.source,
            carrier: carrier(rule),
            detail_type: rule.row.detail_type(),
            delivery: delivery(rule),
            enabled: rule.enabled,
            status: rule.row.status,
            success: rule.success_words(),
            failure: rule.failure_words(),
            job_id: rule.job_id.iter().map(Path::as_str).collect(),
            native_id: rule.row.native_id,
            by_native_id: rule.by_native_id,
            attempt: rule.attempt.iter().map(Path::as_str).collect(),
            retryable: rule.retryable.iter().map(|(word, retryable)| (word.as_str(), *retryable)).collect(),
        }
    }
}

pub(crate) fn run(settings: &Settings, out: &mut Output) -> Result<(), Stop> {
    let rules = settings.event_sources.rules();
    if out.is_json() {
        return rules.iter().try_for_each(|rule| out.document(&Row::from(rule)));
    }
    let mut table = Grid::new(&["source", "comes by", "success", "failure", "not tried again", "job id"]);
    for rule in rules.iter().filter(|rule| rule.enabled) {
        let finals = rule.retryable.iter().filter(|(_, retryable)| !retryable).map(|(word, _)| word.as_str());
        table.row([
            rule.row.source.to_owned(),
            rule.row.detail_type().unwrap_or(carrier(rule)).to_owned(),
            rule.success_words().join(", "),
            rule.failure_words().join(", "),
            finals.collect::<Vec<_>>().join(", "),
            first_ids(rule),
        ]);
    }
    out.table(&table)?;
    for rule in rules.iter().filter(|rule| !rule.enabled) {
        out.line(format!("  {} is switched off", rule.row.source))?;
    }
    Ok(())
}

/// Where the job id is looked for first, and what stands in for it.
fn first_ids(rule: &Rule) -> String {
    if rule.row.carrier == Carrier::Webhook {
        return "in the address".to_owned();
    }
    let native = rule.row.native_id.first().filter(|_| rule.by_native_id);
    let places: Vec<&str> =
        rule.job_id.first().map(Path::as_str).into_iter().chain(native.copied()).collect();
    places.join(", else ")
}

fn carrier(rule: &Rule) -> &'static str {
    match rule.row.carrier {
        Carrier::EventBridge { .. } => "eventbridge",
        Carrier::Sns { .. } => "sns",
        Carrier::Webhook => "webhook",
    }
}

fn delivery(rule: &Rule) -> &'static str {
    match rule.row.delivery {
        Delivery::Durable => "durable",
        Delivery::BestEffort => "best_effort",
    }
}
