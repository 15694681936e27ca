//! The job document: how a [`Job`] stands in collection `jobs`, and how it is read back.
//!
//! Times are BSON dates, credits 64-bit and counters 32-bit integers; what is unset is absent, never null, and an
//! empty list of counted events is absent too. Reading takes an integer of either width, because other programs'
//! drivers choose the width by value, and passes over fields it does not know. It never guesses: whatever else is
//! missing or of another type makes the document a [`Fault`] that names the field.

use mongodb::bson::{Bson, DateTime, Document, doc};

use crate::clock::Timestamp;
use crate::job::{AccountId, Cost, Entry, EntryType, EventId, Job, JobId, LastError, LedgerRow, Phase};
use crate::ledger::LedgerError;
use crate::trace::TraceContext;

/// The version of this layout, on every document.
pub(super) const SCHEMA: i32 = 1;

/// Why a document is no job.
#[derive(Debug)]
pub(super) struct Fault {
    /// Its `_id`, as text.
    pub(super) job_id: String,
    /// Which field, and what is wrong with it.
    pub(super) what: String,
}

impl From<Fault> for LedgerError {
    fn from(fault: Fault) -> Self {
        Self::Unreadable { job_id: fault.job_id, what: fault.what }
    }
}

/// A time as the document holds it.
pub(super) fn date(at: Timestamp) -> Bson {
    Bson::DateTime(DateTime::from_millis(at.as_millis()))
}

/// A counter as the document holds it. No counter of ours exceeds 32 bits; one that did would be refused by the
/// validator rather than wrapped here.
pub(super) fn counter(value: u32) -> Bson {
    i32::try_from(value).map_or(Bson::Int64(i64::from(value)), Bson::Int32)
}

/// The document of a job that was just charged, or imported: it has no events and no errors to remember.
pub(super) fn write_job(job: &Job) -> Document {
    let entries: Vec<Bson> = job
        .entries
        .iter()
        .map(|entry| {
            doc! { "type": entry.kind.as_str(), "amount": entry.amount, "created_at": date(entry.created_at) }
                .into()
        })
        .collect();
    let mut document = doc! {
        "_id": job.job_id.as_str(),
        "schema": SCHEMA,
        "account_id": job.account_id.as_str(),
        "cost": job.cost.credits(),
        "is_refunded": job.is_refunded,
        "is_reclaimed": job.is_reclaimed,
        "phase": job.phase.as_str(),
        "attempts": counter(job.attempts),
        "max_attempts": counter(job.max_attempts),
        "entries": entries,
        "net": job.net,
        "created_at": date(job.created_at),
        "updated_at": date(job.updated_at),
    };
    let times = [
        ("refunded_at", job.refunded_at),
        ("reclaimed_at", job.reclaimed_at),
        ("delivered_at", job.delivered_at),
        ("not_before", job.not_before),
        ("dispatched_at", job.dispatched_at),
    ];
    document.extend(times.into_iter().filter_map(|(name, at)| Some((name.to_owned(), date(at?)))));
    if job.replayed {
        document.insert("replayed", true);
    }
    document
}

/// Reads a job document.
pub(super) fn read_job(document: &Document) -> Result<Job, Fault> {
    job(document).map_err(|what| Fault { job_id: id_text(document), what })
}

/// The `_id` as text, also where it is none.
pub(super) fn id_text(document: &Document) -> String {
    match document.get("_id") {
        Some(Bson::String(id)) => id.clone(),
        Some(Bson::ObjectId(id)) => format!("ObjectId({id})"),
        Some(other) => other.to_string(),
        None => "(without an _id)".to_owned(),
    }
}

fn job(document: &Document) -> Result<Job, String> {
    if !document.contains_key("schema") {
        return Err("it stands in an earlier layout, without a schema; `recoup init` imports it".to_owned());
    }
    let schema = integer(document, "schema")?;
    if schema != i64::from(SCHEMA) {
        return Err(format!("schema is {schema}, but this program reads {SCHEMA}"));
    }
    Ok(Job {
        job_id: JobId::new(text(document, "_id")?).map_err(|error| format!("_id {error}"))?,
        account_id: AccountId::new(text(document, "account_id")?)
            .map_err(|error| format!("account_id {error}"))?,
        cost: Cost::new(integer(document, "cost")?).map_err(|error| error.to_string())?,
        is_refunded: flag(document, "is_refunded")?,
        refunded_at: time_if_set(document, "refunded_at")?,
        is_reclaimed: flag(document, "is_reclaimed")?,
        reclaimed_at: time_if_set(document, "reclaimed_at")?,
        delivered_at: time_if_set(document, "delivered_at")?,
        phase: phase(document)?,
        attempts: count(document, "attempts")?,
        max_attempts: count(document, "max_attempts")?,
        not_before: time_if_set(document, "not_before")?,
        dispatched_at: time_if_set(document, "dispatched_at")?,
        last_error: last_error(document)?,
        counted_events: counted_events(document)?,
        redriven_at: time_if_set(document, "redriven_at")?,
        entries: entries(document)?,
        net: integer(document, "net")?,
        created_at: time(document, "created_at")?,
        updated_at: time(document, "updated_at")?,
        replayed: if document.contains_key("replayed") { flag(document, "replayed")? } else { false },
        imported: document.contains_key("imported"),
    })
}

/// Reads a row of a statement: `{ _id: <job_id>, account_id, entry: { type, amount, created_at } }`.
pub(super) fn read_row(document: &Document) -> Result<LedgerRow, Fault> {
    row(document).map_err(|what| Fault { job_id: id_text(document), what })
}

fn row(document: &Document) -> Result<LedgerRow, String> {
    let job_id = JobId::new(text(document, "_id")?).map_err(|error| format!("_id {error}"))?;
    let account =
        AccountId::new(text(document, "account_id")?).map_err(|error| format!("account_id {error}"))?;
    Ok(LedgerRow::new(job_id, account, entry(field(document, "entry")?)?))
}

/// A field that must be there.
fn field<'a>(document: &'a Document, name: &str) -> Result<&'a Bson, String> {
    document.get(name).ok_or_else(|| format!("{name} is missing"))
}

fn wrong(name: &str, wanted: &str, found: &Bson) -> String {
    format!("{name} is {:?}, not {wanted}", found.element_type())
}

fn text<'a>(document: &'a Document, name: &str) -> Result<&'a str, String> {
    let found = field(document, name)?;
    found.as_str().ok_or_else(|| wrong(name, "a string", found))
}

fn flag(document: &Document, name: &str) -> Result<bool, String> {
    let found = field(document, name)?;
    found.as_bool().ok_or_else(|| wrong(name, "a boolean", found))
}

/// An integer of either width.
pub(super) fn integer(document: &Document, name: &str) -> Result<i64, String> {
    let found = field(document, name)?;
    let narrow = || found.as_i32().map(i64::from);
    found.as_i64().or_else(narrow).ok_or_else(|| wrong(name, "an integer", found))
}

/// A counter of either width.
pub(super) fn count(document: &Document, name: &str) -> Result<u32, String> {
    let value = integer(document, name)?;
    u32::try_from(value).map_err(|_| format!("{name} is {value}, not a count"))
}

/// A time that RFC 3339 can write.
pub(super) fn time(document: &Document, name: &str) -> Result<Timestamp, String> {
    let found = field(document, name)?;
    let ms = found.as_datetime().ok_or_else(|| wrong(name, "a date", found))?.timestamp_millis();
    let at = Timestamp::from_millis(ms);
    if at.as_millis() == ms { Ok(at) } else { Err(format!("{name} lies outside the years 0000 to 9999")) }
}

fn time_if_set(document: &Document, name: &str) -> Result<Option<Timestamp>, String> {
    if document.contains_key(name) { time(document, name).map(Some) } else { Ok(None) }
}

fn phase(document: &Document) -> Result<Phase, String> {
    let word = text(document, "phase")?;
    Phase::parse(word).ok_or_else(|| format!("phase is {word:?}"))
}

fn last_error(document: &Document) -> Result<Option<LastError>, String> {
    let Some(found) = document.get("last_error") else { return Ok(None) };
    let found = found.as_document().ok_or_else(|| wrong("last_error", "a document", found))?;
    // Nothing depends on a trace, so a field that is none counts as none.
    let trace = found.get_str("trace").ok().and_then(TraceContext::new);
    Ok(Some(LastError { reason: text(found, "reason")?.to_owned(), at: time(found, "at")?, trace }))
}

/// Whether the refund was written with the last counted failure. It is a field of this store's own, absent where not.
pub(super) fn refunded_last(document: &Document) -> bool {
    let last_error = document.get_document("last_error");
    last_error.is_ok_and(|last_error| last_error.get_bool("refunded").unwrap_or(false))
}

fn counted_events(document: &Document) -> Result<Vec<EventId>, String> {
    let Some(found) = document.get("counted_events") else { return Ok(Vec::new()) };
    let found = found.as_array().ok_or_else(|| wrong("counted_events", "an array", found))?;
    found
        .iter()
        .map(|id| {
            let id = id.as_str().ok_or_else(|| wrong("a counted event", "a string", id))?;
            EventId::new(id).map_err(|error| format!("a counted event {error}"))
        })
        .collect()
}

fn entries(document: &Document) -> Result<Vec<Entry>, String> {
    let found = field(document, "entries")?;
    found.as_array().ok_or_else(|| wrong("entries", "an array", found))?.iter().map(entry).collect()
}

fn entry(found: &Bson) -> Result<Entry, String> {
    let found = found.as_document().ok_or_else(|| wrong("an entry", "a document", found))?;
    let word = text(found, "type")?;
    Ok(Entry {
        kind: EntryType::parse(word).ok_or_else(|| format!("an entry's type is {word:?}"))?,
        amount: integer(found, "amount")?,
        created_at: time(found, "created_at")?,
    })
}
