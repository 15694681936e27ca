//! `EVENT_SOURCES`: what a deployment wants otherwise than the table has it.
//!
//! One JSON object, a source's name for each key. What is given replaces the list it names (`job_id`, `attempt`,
//! `containers`), or adds to the rules it names and wins over them (`status`, `retryable`).

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{Carrier, Meaning, Path, Rule, Sources};
use crate::event::shortened;

/// A value that would be taken.
pub const EXAMPLE: &str = r#"{"aws.batch":{"job_id":["detail.tags.my_id"],"retryable":{"FAILED":false}}}"#;

/// Why `EVENT_SOURCES` cannot be taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct OverrideError(String);

/// What may be said of one source.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Override {
    enabled: Option<bool>,
    native_id: Option<bool>,
    job_id: Option<Vec<String>>,
    attempt: Option<Vec<String>>,
    #[serde(default)]
    status: BTreeMap<String, Word>,
    #[serde(default)]
    retryable: BTreeMap<String, bool>,
    containers: Option<Vec<String>>,
}

/// What a status word can be made to mean.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Word {
    Success,
    Failure,
    Ignored,
}

impl Sources {
    /// The table, as this JSON wants it.
    ///
    /// # Errors
    /// [`OverrideError`] names the source and what is wrong with what is said of it.
    pub fn with_overrides(json: &str) -> Result<Self, OverrideError> {
        if !json.starts_with('{') {
            return Err(OverrideError(format!("is {}, no JSON object", shortened(json))));
        }
        let all: BTreeMap<String, Override> = serde_json::from_str(json)
            .map_err(|error| OverrideError(format!("cannot be read: {}", one_line(&error))))?;
        let mut sources = Self::default();
        for (name, wanted) in &all {
            let mut rules: Vec<&mut Rule> =
                sources.rules.iter_mut().filter(|rule| rule.row.source == *name).collect();
            if rules.is_empty() {
                let problem = format!("names {}, which is none of {}", shortened(name), Self::names());
                return Err(OverrideError(problem));
            }
            for rule in &mut rules {
                rule.apply(wanted).map_err(|problem| OverrideError(format!("says of {name}: {problem}")))?;
            }
        }
        Ok(sources)
    }
}

impl Rule {
    fn apply(&mut self, wanted: &Override) -> Result<(), String> {
        self.enabled = wanted.enabled.unwrap_or(self.enabled);
        self.by_native_id = wanted.native_id.unwrap_or(self.by_native_id);
        if let Some(paths) = &wanted.job_id {
            self.job_id = self.paths("job_id", paths)?;
        }
        if let Some(paths) = &wanted.attempt {
            self.attempt = self.paths("attempt", paths)?;
        }
        for (word, meaning) in &wanted.status {
            self.set_meaning(word, *meaning)?;
        }
        for (word, retryable) in &wanted.retryable {
            check_word("retryable", word)?;
            self.retryable.retain(|(known, _)| !known.eq_ignore_ascii_case(word));
            self.retryable.push((word.clone(), *retryable));
        }
        if let Some(containers) = &wanted.containers {
            if !self.ends_by_exit_codes() {
                return Err("containers are aws.ecs's".to_owned());
            }
            self.containers.clone_from(containers);
        }
        Ok(())
    }

    fn set_meaning(&mut self, word: &str, meaning: Word) -> Result<(), String> {
        check_word("status", word)?;
        self.words.retain(|(known, _)| !known.eq_ignore_ascii_case(word));
        match meaning {
            Word::Success => self.words.push((word.to_owned(), Meaning::Success)),
            Word::Failure => self.words.push((word.to_owned(), Meaning::Failure)),
            // A word that stands nowhere is ignored.
            Word::Ignored => {}
        }
        Ok(())
    }

    fn paths(&self, field: &str, texts: &[String]) -> Result<Vec<Path>, String> {
        if self.row.carrier == Carrier::Webhook {
            return Err(format!("{field} is in the address of a webhook, not in its body"));
        }
        texts.iter().map(|text| self.path(text).map_err(|why| format!("{field} {text:?} {why}"))).collect()
    }

    /// Nearly everything that a service says stands in `detail`, and leaving that out is the likely mistake.
    fn path(&self, text: &str) -> Result<Path, &'static str> {
        let path = Path::parse(text)?;
        let is_event = matches!(self.row.carrier, Carrier::EventBridge { .. });
        if is_event && !matches!(path.first(), "detail" | "resources" | "account" | "region") {
            return Err("does not begin with detail, as in detail.tags.my_id");
        }
        Ok(path)
    }
}

fn check_word(field: &str, word: &str) -> Result<(), String> {
    if word.trim().is_empty() { Err(format!("{field} has a word that is empty")) } else { Ok(()) }
}

fn one_line(error: &serde_json::Error) -> String {
    error.to_string().chars().map(|c| if c.is_control() { ' ' } else { c }).take(200).collect()
}
