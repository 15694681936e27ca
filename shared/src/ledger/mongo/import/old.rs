//! Reading the plain two-flag layout: documents and rows that other programs wrote.
//!
//! More lenient than the reader of our own layout, because every driver writes in its own way: an id may be an
//! ObjectId, which is its 24 hexadecimal digits to whoever sees it in JSON; a whole number may be a double; a time may
//! be a date, RFC 3339 or epoch milliseconds. Nothing is lenient about meaning: what is none of these is named.

use mongodb::bson::{Bson, Document};

use super::plan::{OldJob, OldRow, Says};
use crate::clock::Timestamp;
use crate::job::{AccountId, Cost, EntryType, JobId};

/// The fields of an old job document that decide about it: an import is conditional on all of them.
pub(super) const DECIDING: [&str; 12] = [
    "job_id",
    "account_id",
    "user_id",
    "cost",
    "is_refunded",
    "is_reclaimed",
    "status",
    "state",
    "attempts",
    "created_at",
    "delivered_at",
    "completed_at",
];

/// Numbers that are epoch milliseconds: a smaller one may be seconds, a larger one microseconds.
const MILLISECONDS: std::ops::Range<i64> = 1_000_000_000_000..100_000_000_000_000;

/// What an old job document says, or why nobody but a person can tell.
pub(super) fn read_job(document: &Document) -> Result<OldJob, Vec<String>> {
    let mut faults = Vec::new();
    let mut must = |found: Result<String, String>| found.map_err(|what| faults.push(what)).ok();
    let job_id = must(id_of(document).map_err(|what| format!("the job's id {what}")));
    let account_id = must(account_of(document));
    let flags = ["is_refunded", "is_reclaimed"]
        .map(|name| flag(document, name).map_err(|what| faults.push(what)).ok());
    let job_id = job_id
        .and_then(|id| JobId::new(id).map_err(|error| faults.push(format!("the job's id {error}"))).ok());
    let account_id = account_id.and_then(|id| {
        AccountId::new(id).map_err(|error| faults.push(format!("the account's id {error}"))).ok()
    });
    let (Some(job_id), Some(account_id), [Some(is_refunded), Some(is_reclaimed)]) =
        (job_id, account_id, flags)
    else {
        return Err(faults);
    };
    Ok(OldJob {
        job_id,
        account_id,
        cost: cost(document),
        is_refunded,
        is_reclaimed,
        says: ["status", "state"].into_iter().find_map(|name| says(document.get_str(name).ok()?)),
        attempts: set(document, "attempts").and_then(whole).and_then(|count| u32::try_from(count).ok()),
        created_at: time(document, "created_at"),
        delivered_at: time(document, "delivered_at").or_else(|| time(document, "completed_at")),
    })
}

/// The id that the job has to whoever speaks of it: `job_id`, or else `_id`.
pub(super) fn id_of(document: &Document) -> Result<String, String> {
    id(set(document, "job_id").or_else(|| document.get("_id")))
}

/// The job that a row belongs to.
pub(super) fn job_of_row(row: &Document) -> Result<String, String> {
    id(set(row, "job_id"))
}

fn account_of(document: &Document) -> Result<String, String> {
    match set(document, "account_id").or_else(|| set(document, "user_id")) {
        None => Err("neither account_id nor user_id is there".to_owned()),
        found => id(found).map_err(|what| format!("the account's id {what}")),
    }
}

fn id(found: Option<&Bson>) -> Result<String, String> {
    match found {
        None => Err("is missing".to_owned()),
        Some(found) => match (found.as_str(), found.as_object_id()) {
            (Some(text), _) => Ok(text.to_owned()),
            (None, Some(id)) => Ok(id.to_hex()),
            (None, None) => Err(format!("is {:?}, not a string", found.element_type())),
        },
    }
}

/// Reads a row. `signed`: whether amounts carry their sign, or the type alone says which way they go.
pub(super) fn read_row(row: &Document, signed: bool) -> OldRow {
    let kind = match set(row, "type") {
        None => Err("a row has no type".to_owned()),
        Some(found) => {
            let word = found.as_str().map_or_else(|| format!("{:?}", found.element_type()), str::to_owned);
            EntryType::parse(&word).ok_or_else(|| format!("a row's type is {word:?}"))
        }
    };
    let amount = match set(row, "amount") {
        None => Err("amount is missing".to_owned()),
        Some(found) => whole(found).ok_or_else(|| format!("amount is {}, not whole credits", shown(found))),
    };
    let takes = matches!(kind, Ok(EntryType::Charge | EntryType::Reclaim)) && !signed;
    let amount = amount.map(|amount| if takes { amount.saturating_neg() } else { amount });
    OldRow { kind, amount, created_at: time(row, "created_at") }
}

/// A field that is there; null is not.
fn set<'a>(document: &'a Document, name: &str) -> Option<&'a Bson> {
    document.get(name).filter(|found| !matches!(found, Bson::Null))
}

fn flag(document: &Document, name: &str) -> Result<bool, String> {
    set(document, name).map_or(Ok(false), |found| {
        found.as_bool().ok_or_else(|| format!("{name} is {}, not a boolean", shown(found)))
    })
}

fn cost(document: &Document) -> Result<Cost, String> {
    let found = set(document, "cost").ok_or("the cost is missing")?;
    let credits = whole(found).ok_or_else(|| format!("the cost is {}, not whole credits", shown(found)))?;
    Cost::new(credits).map_err(|error| error.to_string())
}

/// A number without a fraction, of any width that holds it exactly.
#[allow(clippy::cast_possible_truncation)]
fn whole(found: &Bson) -> Option<i64> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let narrow = found.as_i32().map(i64::from);
    let double = found.as_f64().filter(|n| n.fract() == 0.0 && n.abs() < EXACT).map(|n| n as i64);
    let decimal = || {
        let Bson::Decimal128(decimal) = found else { return None };
        decimal.to_string().parse().ok()
    };
    found.as_i64().or(narrow).or(double).or_else(decimal)
}

fn time(document: &Document, name: &str) -> Option<Timestamp> {
    let found = document.get(name)?;
    let epoch = || whole(found).filter(|ms| MILLISECONDS.contains(ms)).map(Timestamp::from_millis);
    match (found.as_datetime(), found.as_str()) {
        (Some(date), _) => {
            let at = Timestamp::from_millis(date.timestamp_millis());
            (at.as_millis() == date.timestamp_millis()).then_some(at)
        }
        (None, Some(text)) => Timestamp::parse_rfc3339(text),
        (None, None) => epoch(),
    }
}

/// The words that programs use for where a job stands; others say nothing.
fn says(word: &str) -> Option<Says> {
    Some(match word.to_lowercase().as_str() {
        "completed" | "complete" | "succeeded" | "success" | "successful" | "delivered" | "done"
        | "finished" | "reclaimed" => Says::Delivered(word.to_owned()),
        "failed" | "failure" | "error" | "errored" | "timeout" | "timed_out" | "cancelled" | "canceled"
        | "refunded" => Says::Failed(word.to_owned()),
        "retrying" | "retry" | "retry_waiting" | "waiting_for_retry" => Says::Waiting,
        "running" | "processing" | "in_progress" | "pending" | "queued" | "started" | "dispatched" => {
            Says::Running
        }
        _ => return None,
    })
}

/// A value as a report names it: a number itself, of anything else the type.
fn shown(found: &Bson) -> String {
    match (found.as_i64(), found.as_i32(), found.as_f64()) {
        (Some(n), _, _) => n.to_string(),
        (_, Some(n), _) => n.to_string(),
        (_, _, Some(n)) => n.to_string(),
        (None, None, None) => format!("{:?}", found.element_type()),
    }
}
