//! Events of other services, as they send them, become completion events.
//!
//! Pure, and one reader for all of them: what differs between services stands in [`TABLE`], what a deployment wants
//! otherwise in `EVENT_SOURCES` ([`Sources::with_overrides`]), and where things stand in an event is a [`Path`]. The
//! envelopes around an event are taken off by [`crate::event`], which asks here whether a layer is one of these.
//!
//! A native event is *ignored* where it has no news for the function that got it: the attempt goes on, or ended the
//! other way, or it is none of ours. Ignored is an answer, not an error: rules and topics are broader than a
//! function, and what is not in the table's words must not fill a dead-letter queue. What would cost somebody a refund
//! is an error: a mark that is no id, an attempt that is no number, a status that is missing.

use crate::clock::Timestamp;
use crate::event::{CompletionEvent, EventError, News, Signal, shortened};
use crate::job::{EventId, JobId, MAX_ATTEMPT, cut_reason};

mod ecs;
mod overrides;
mod path;
mod table;
mod webhook;

pub use overrides::{EXAMPLE, OverrideError};
pub use path::Path;
pub use table::{ATTEMPT_MARK, TABLE};
pub use webhook::{Provider, Reading};

/// How a service's events come here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// Through EventBridge, which names source and detail-type.
    EventBridge {
        /// The detail-type.
        detail_type: &'static str,
    },
    /// As an SNS notification, which names neither: the field that only this service's have tells.
    Sns {
        /// That field.
        tell_tale: &'static str,
    },
    /// As an HTTP call, whose address says job and attempt.
    Webhook,
}

/// What the service promises of its events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// Each comes at least once.
    Durable,
    /// One may be lost: `ATTEMPT_TIMEOUT` must catch that.
    BestEffort,
}

/// What a status word says of the attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// It succeeded.
    Success,
    /// It failed.
    Failure,
    /// It ended, and the containers' exit codes say how.
    ByExitCodes,
    /// Nothing yet. What stands in no row means this too.
    InProgress,
}

/// One service, one kind of event.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The `source` of its events, or the service's name where they have none. `EVENT_SOURCES` and logs call it so.
    pub source: &'static str,
    /// How its events come here.
    pub carrier: Carrier,
    /// What the service promises of them.
    pub delivery: Delivery,
    /// Where the platform's own job id may stand, tried in this order.
    pub job_id: &'static [&'static str],
    /// What stands in for it: the service's own name or id of the job. Neither is asked of a webhook.
    pub native_id: &'static [&'static str],
    /// Where the attempt may stand.
    pub attempt: &'static [&'static str],
    /// Where the status word stands.
    pub status: &'static str,
    /// What the words mean, compared without case; any other is of a job that still runs.
    pub words: &'static [(&'static str, Meaning)],
    /// Where something more exact than the status stands: an error code, who stopped it. A field that is `true` counts
    /// by its name.
    pub codes: &'static [&'static str],
    /// Codes and status words after which no other attempt is wanted.
    pub final_words: &'static [&'static str],
    /// Where the reason stands; what is found is joined.
    pub reason: &'static [&'static str],
    /// Where something stands only if the event is about a part of a job.
    pub part_of: &'static [&'static str],
    /// Where a `false` says that the service left out what the job id may have stood in.
    pub left_out: Option<&'static str>,
}

impl Row {
    /// The detail-type, where its events have one.
    pub fn detail_type(&self) -> Option<&'static str> {
        match self.carrier {
            Carrier::EventBridge { detail_type } => Some(detail_type),
            Carrier::Sns { .. } | Carrier::Webhook => None,
        }
    }
}

/// The table in force: the rows, as `EVENT_SOURCES` left them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sources {
    rules: Vec<Rule>,
}

/// A row in force, its paths read.
#[derive(Clone, Debug)]
pub struct Rule {
    /// The row it comes from.
    pub row: &'static Row,
    /// Whether its events are taken.
    pub enabled: bool,
    /// Whether an event without a mark of ours is taken by the service's own id.
    pub by_native_id: bool,
    /// Where the platform's job id may stand.
    pub job_id: Vec<Path>,
    /// Where the attempt may stand.
    pub attempt: Vec<Path>,
    /// What the status words mean.
    pub words: Vec<(String, Meaning)>,
    /// Whether another attempt is wanted after these codes and words; after any other it is.
    pub retryable: Vec<(String, bool)>,
    /// The containers whose exit codes decide; none: those that the job's mark stands in, or all.
    pub containers: Vec<String>,
    native_id: Vec<Path>,
    status: Path,
    codes: Vec<Path>,
    reason: Vec<Path>,
    part_of: Vec<Path>,
    left_out: Option<Path>,
}

/// The row's paths follow from the row.
impl PartialEq for Rule {
    fn eq(&self, other: &Self) -> bool {
        let of = |rule: &Self| (rule.row.source, rule.row.detail_type(), rule.enabled, rule.by_native_id);
        of(self) == of(other)
            && (&self.job_id, &self.attempt) == (&other.job_id, &other.attempt)
            && (&self.words, &self.retryable) == (&other.words, &other.retryable)
            && self.containers == other.containers
    }
}

impl Eq for Rule {}

/// Why an event has no news for the function that got it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The job still runs, or the word is one that we do not know.
    InProgress,
    /// It ended, and the other function is told so too.
    OtherFunction,
    /// `EVENT_SOURCES` switches this source off.
    Disabled,
    /// It carries no mark of ours, and `EVENT_SOURCES` says that this source's own ids are no job ids.
    Unmarked,
    /// It is about a part of a job; the whole tells for itself.
    PartOfAJob,
}

impl Why {
    /// The word for logs and answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InProgress => "in_progress",
            Self::OtherFunction => "other_function",
            Self::Disabled => "disabled",
            Self::Unmarked => "no_recoup_job_id",
            Self::PartOfAJob => "part_of_a_job",
        }
    }
}

/// An event without news: acknowledged and counted, and nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ignored {
    /// Whose event it is.
    pub source: &'static str,
    /// Its status word, shortened.
    pub status: Option<String>,
    /// The job, where that can be told.
    pub job_id: Option<JobId>,
    /// Why it is none.
    pub why: Why,
}

/// How an attempt ended, and in which words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    /// Well or badly.
    pub signal: Signal,
    /// The service's word for it.
    pub status: String,
    /// Why it failed; at least the status word.
    pub reason: Option<String>,
    /// Whether another attempt is wanted.
    pub retryable: bool,
}

/// What a status says.
enum State {
    Ended(Ending),
    InProgress(String),
}

/// A job id, and how it was found.
struct Found {
    job_id: JobId,
    attempt: Option<u32>,
    /// Whether the platform put it there, rather than the service.
    is_marked: bool,
}

const TEXT: &str = "a string of 1 to 256 characters";
const ATTEMPT: &str = "a whole number from 1 to 2147483647";

impl Default for Sources {
    fn default() -> Self {
        Self { rules: TABLE.iter().map(Rule::of).collect() }
    }
}

impl Sources {
    /// Every row in force, in the table's order.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The names of all sources, for whoever mistyped one.
    pub fn names() -> String {
        let mut names: Vec<&str> = TABLE.iter().map(|row| row.source).collect();
        names.dedup();
        names.join(", ")
    }

    /// The rule for an EventBridge event.
    pub fn event(&self, source: &str, detail_type: &str) -> Option<&Rule> {
        self.rules.iter().find(|rule| {
            rule.row.source == source
                && matches!(rule.row.carrier, Carrier::EventBridge { detail_type: own } if own == detail_type)
        })
    }

    /// The rule for a notification of a service that names itself nowhere. One that says too little of its input to
    /// tell them apart is read by the first of them: they differ in nothing else.
    pub fn notification(&self, message: &str) -> Option<&Rule> {
        let mut rules = self.rules.iter().filter(|rule| matches!(rule.row.carrier, Carrier::Sns { .. }));
        rules.clone().find(|rule| rule.has_tell_tale(message)).or_else(|| rules.next())
    }
}

impl Rule {
    fn of(row: &'static Row) -> Self {
        let path = |text: &&str| Path::parse(text).expect("the table's paths are in shape, see the tests");
        let paths = |texts: &'static [&'static str]| texts.iter().map(path).collect();
        Self {
            row,
            enabled: true,
            by_native_id: true,
            job_id: paths(row.job_id),
            attempt: paths(row.attempt),
            words: row.words.iter().map(|(word, meaning)| ((*word).to_owned(), *meaning)).collect(),
            retryable: row.final_words.iter().map(|word| ((*word).to_owned(), false)).collect(),
            containers: Vec::new(),
            native_id: paths(row.native_id),
            status: path(&row.status),
            codes: paths(row.codes),
            reason: paths(row.reason),
            part_of: paths(row.part_of),
            left_out: row.left_out.as_ref().map(path),
        }
    }

    /// The words after which an attempt may have succeeded.
    pub fn success_words(&self) -> Vec<&str> {
        self.words_that(|meaning| matches!(meaning, Meaning::Success | Meaning::ByExitCodes))
    }

    /// The words after which an attempt may have failed.
    pub fn failure_words(&self) -> Vec<&str> {
        self.words_that(|meaning| matches!(meaning, Meaning::Failure | Meaning::ByExitCodes))
    }

    fn words_that(&self, is_so: impl Fn(Meaning) -> bool) -> Vec<&str> {
        self.words.iter().filter(|(_, meaning)| is_so(*meaning)).map(|(word, _)| word.as_str()).collect()
    }

    fn has_tell_tale(&self, message: &str) -> bool {
        match self.row.carrier {
            Carrier::Sns { tell_tale } => {
                Path::parse(tell_tale).is_ok_and(|path| matches!(path.look(message), Ok(Some(_))))
            }
            Carrier::EventBridge { .. } | Carrier::Webhook => false,
        }
    }

    /// Reads an event of this row for the function that takes `signal`.
    ///
    /// # Errors
    /// [`EventError`] names the place, what stands there and what should.
    pub fn read(
        &self,
        signal: Signal,
        event: &str,
        envelope_id: Option<EventId>,
    ) -> Result<News, EventError> {
        let ignored =
            |status, job_id, why| Ok(News::Ignored(Ignored { source: self.row.source, status, job_id, why }));
        if !self.enabled {
            return ignored(self.status(event).ok(), None, Why::Disabled);
        }
        if self.is_part(event)? {
            return ignored(self.status(event).ok(), None, Why::PartOfAJob);
        }
        let job_id = || self.found(event).ok().flatten().map(|found| found.job_id);
        let ending = match self.state(event)? {
            State::InProgress(status) => return ignored(Some(status), job_id(), Why::InProgress),
            State::Ended(ending) => ending,
        };
        if ending.signal != signal {
            return ignored(Some(ending.status), job_id(), Why::OtherFunction);
        }
        let found = match self.found(event)? {
            Some(found) if found.is_marked || self.by_native_id => found,
            None if self.by_native_id => return Err(self.nameless()),
            Some(_) | None => {
                self.check_nothing_was_left_out(event)?;
                return ignored(Some(ending.status), None, Why::Unmarked);
            }
        };
        Ok(News::Event(CompletionEvent {
            job_id: found.job_id,
            attempt: found.attempt,
            reason: ending.reason,
            retryable: ending.retryable,
            event_id: envelope_id,
            occurred_at: self.occurred_at(event),
            account_id: None,
            trace: None,
        }))
    }

    fn is_part(&self, event: &str) -> Result<bool, EventError> {
        for place in &self.part_of {
            if self.look(place, event)?.is_some() {
                return Ok(true);
            }
        }
        Ok(self.ends_by_exit_codes() && ecs::is_task_of_batch(event))
    }

    fn ends_by_exit_codes(&self) -> bool {
        self.row.words.iter().any(|(_, meaning)| *meaning == Meaning::ByExitCodes)
    }

    /// How the attempt stands.
    fn state(&self, event: &str) -> Result<State, EventError> {
        let status = self.status(event)?;
        let (signal, why) = match self.meaning(&status) {
            Meaning::InProgress => return Ok(State::InProgress(status)),
            Meaning::Success => (Signal::Succeeded, None),
            Meaning::Failure => (Signal::Failed, None),
            Meaning::ByExitCodes => match ecs::failure(self, event)? {
                None => (Signal::Succeeded, None),
                Some(why) => (Signal::Failed, Some(why)),
            },
        };
        let codes = self.codes(event)?;
        let reason = match signal {
            Signal::Succeeded => None,
            Signal::Failed => Some(self.reason(event, &status, why)?),
        };
        Ok(State::Ended(Ending { signal, reason, retryable: self.is_retryable(&codes, &status), status }))
    }

    fn status(&self, event: &str) -> Result<String, EventError> {
        const EXPECTED: &str = "a status word";
        let raw = self.look(&self.status, event)?.ok_or_else(|| self.missing(&self.status, EXPECTED))?;
        match serde_json::from_str::<String>(&raw) {
            Ok(status) => Ok(shortened(&status)),
            Err(_) => Err(self.wrong(&self.status, &raw, EXPECTED)),
        }
    }

    fn meaning(&self, status: &str) -> Meaning {
        let known = self.words.iter().find(|(word, _)| word.eq_ignore_ascii_case(status));
        known.map_or(Meaning::InProgress, |(_, meaning)| *meaning)
    }

    /// The codes that the event carries: texts, numbers, and the names of fields that are `true`.
    fn codes(&self, event: &str) -> Result<Vec<String>, EventError> {
        let mut codes = Vec::new();
        for place in &self.codes {
            match self.look(place, event)? {
                Some(raw) if raw == "true" => codes.push(place.last().to_owned()),
                Some(raw) => codes.push(serde_json::from_str(&raw).unwrap_or(raw)),
                None => {}
            }
        }
        Ok(codes)
    }

    /// A code is more exact than a status word, so it is asked first.
    fn is_retryable(&self, codes: &[String], status: &str) -> bool {
        let said = |asked: &str| {
            let rule = self.retryable.iter().find(|(word, _)| word.eq_ignore_ascii_case(asked));
            rule.map(|(_, retryable)| *retryable)
        };
        codes.iter().find_map(|code| said(code)).or_else(|| said(status)).unwrap_or(true)
    }

    /// What was found of the reason, or else the status word.
    fn reason(&self, event: &str, status: &str, why: Option<String>) -> Result<String, EventError> {
        let mut said = Vec::new();
        for place in &self.reason {
            let Some(raw) = self.look(place, event)? else { continue };
            match serde_json::from_str::<String>(&raw) {
                Ok(text) => said.push(text),
                // A number says nothing without its name, an object is shown as it stands.
                Err(_) if raw.starts_with(['{', '[']) => said.push(raw),
                Err(_) => said.push(format!("{} {raw}", place.last())),
            }
        }
        said.extend(why);
        said.retain(|text| !text.trim().is_empty());
        let reason = if said.is_empty() { format!("{} {status}", self.row.source) } else { said.join("; ") };
        Ok(cut_reason(&reason).to_owned())
    }

    /// The job and its attempt, marked or by the service's own name for it.
    fn found(&self, event: &str) -> Result<Option<Found>, EventError> {
        for (places, is_marked) in [(&self.job_id, true), (&self.native_id, false)] {
            for place in places {
                let Some(raw) = self.look(place, event)? else { continue };
                let text: String = serde_json::from_str(&raw).map_err(|_| self.wrong(place, &raw, TEXT))?;
                let (id, in_name) = match self.attempt(event)? {
                    Some(attempt) => (text.as_str(), Some(attempt)),
                    None => split_name(&text),
                };
                let sender = self.row.source;
                let job_id = JobId::new(id).map_err(|problem| EventError::NativeId {
                    sender,
                    place: place.to_string(),
                    problem,
                })?;
                let is_marked = is_marked || id.len() < text.len();
                return Ok(Some(Found { job_id, attempt: in_name, is_marked }));
            }
        }
        Ok(None)
    }

    /// Tags and environment variables are texts, so a number may be written as one.
    fn attempt(&self, event: &str) -> Result<Option<u32>, EventError> {
        for place in &self.attempt {
            let Some(raw) = self.look(place, event)? else { continue };
            let digits = serde_json::from_str::<String>(&raw).unwrap_or_else(|_| raw.clone());
            return match attempt_of(&digits) {
                Some(attempt) => Ok(Some(attempt)),
                None => Err(self.wrong(place, &raw, ATTEMPT)),
            };
        }
        Ok(None)
    }

    /// An event that lost what its mark may have stood in is not known to be unmarked.
    fn check_nothing_was_left_out(&self, event: &str) -> Result<(), EventError> {
        let Some(place) = &self.left_out else { return Ok(()) };
        match self.look(place, event)? {
            Some(raw) if raw == "false" => Err(self.wrong(
                place,
                &raw,
                "true: without the input, only a name that ends in -recoup-<attempt> is a mark",
            )),
            Some(_) | None => Ok(()),
        }
    }

    /// EventBridge's own time; nothing depends on it.
    fn occurred_at(&self, event: &str) -> Option<Timestamp> {
        self.row.detail_type()?;
        let raw = Path::parse("time").ok()?.look(event).ok()??;
        serde_json::from_str::<String>(&raw).ok().and_then(|time| Timestamp::parse_rfc3339(&time))
    }

    fn look(&self, place: &Path, event: &str) -> Result<Option<String>, EventError> {
        place.look(event).map_err(|path::Twice(name)| EventError::Native {
            sender: self.row.source,
            place: place.to_string(),
            found: format!("ambiguous: {} stands there twice", shortened(&name)),
            expected: "each field once",
        })
    }

    /// An event that names no job at all.
    fn nameless(&self) -> EventError {
        let place = self.native_id.first().or(self.job_id.first()).unwrap_or(&self.status);
        self.missing(place, TEXT)
    }

    fn missing(&self, place: &Path, expected: &'static str) -> EventError {
        self.wrong(place, "missing", expected)
    }

    fn wrong(&self, place: &Path, found: &str, expected: &'static str) -> EventError {
        EventError::Native {
            sender: self.row.source,
            place: place.to_string(),
            found: shortened(found),
            expected,
        }
    }
}

/// A job's id and attempt out of a name that holds both, see [`ATTEMPT_MARK`].
fn split_name(name: &str) -> (&str, Option<u32>) {
    let split = name.rsplit_once(ATTEMPT_MARK);
    match split.and_then(|(id, attempt)| Some((id, attempt_of(attempt)?))) {
        Some((id, attempt)) if !id.is_empty() => (id, Some(attempt)),
        Some(_) | None => (name, None),
    }
}

/// Digits only: Rust would take a plus sign too.
fn attempt_of(digits: &str) -> Option<u32> {
    let digits = Some(digits).filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?;
    digits.parse().ok().filter(|attempt| (1..=MAX_ATTEMPT).contains(attempt))
}

#[cfg(test)]
mod tests;
