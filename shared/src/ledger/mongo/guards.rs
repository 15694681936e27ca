//! The guards: for every row of the contract's table one filter that checks and one update that writes.
//!
//! Each pair goes to the server as one `findAndModify`, so that check and write are one step on one document, and
//! nothing can come between them. Costs: one round trip where the guard holds; two where it refuses, since a read
//! then explains. Every filter names `_id`, so the index is the one on `_id` and one document is looked at.
//!
//! | looking for | filter | update |
//! | --- | --- | --- |
//! | **the guard for a refund** (a failure that counts) | [`failure_guard`] | [`failure_effect`] |
//! | **the guard for a reclaim** (a success) | [`success_guard`] | [`success_effect`] |
//! | the guard against a second charge | the unique `_id` | the insert itself |
//! | a due retry is taken up, or set aside at its cap | [`dispatch_guard`] | [`dispatch_effect`] |
//! | its hand-over is recorded | [`hand_over_guard`] | [`hand_over_effect`] |
//! | claims ran out too often | [`exhausted_guard`] | [`exhausted_effect`] |
//! | an attempt gave no signal | [`silence_guard`] | [`failure_effect`] |
//! | a person sends a job back | [`redrive_guard`] | [`redrive_effect`] |
//!
//! [`crate::transition`] says the same in Rust, and the conformance suite holds the two together. What is counted
//! from the document (attempts, money, the last entry's time) is counted by the update itself, because nobody has
//! read the document before. Values that come from outside enter a pipeline through `$literal` only: a reason such
//! as `$cost` would otherwise be read as the field of that name. A filter compares strings as they are.
//!
//! Within one `$set` every expression sees the document as it was; an expression that comes to nothing removes the
//! field, which is what `$$REMOVE` is for.

use std::time::Duration;

use mongodb::bson::{Bson, Document, doc};

use super::document::{SCHEMA, counter, date};
use crate::clock::Timestamp;
use crate::job::{AccountId, COUNTED_EVENTS_KEPT, EntryType, JobId, MAX_ATTEMPT, Phase};
use crate::transition::{Failure, UNSPECIFIED};

/// Index `_id`. Matches the job, where it is this account's if one is given. A document of another layout is left
/// alone.
fn the_job(job_id: &JobId, account_id: Option<&AccountId>) -> Document {
    let mut filter = doc! { "_id": job_id.as_str(), "schema": SCHEMA };
    if let Some(account_id) = account_id {
        filter.insert("account_id", account_id.as_str());
    }
    filter
}

/// **The guard for a refund.** Index `_id`. Matches while this failure is not yet counted and the job not delivered,
/// or while its verdict may still stop a waiting retry.
pub(super) fn failure_guard(job_id: &JobId, account_id: Option<&AccountId>, signal: &Failure) -> Document {
    let counts = not_yet_counted(signal);
    let changes_something = if signal.retryable {
        counts
    } else {
        doc! { "$or": [counts, open_to_a_verdict(signal)] }
    };
    and(the_job(job_id, account_id), changes_something)
}

/// The failure counts: of attempt k, where fewer than k have failed; of an unknown one, where one is under way.
fn not_yet_counted(signal: &Failure) -> Document {
    match signal.attempt {
        Some(k) => doc! { "phase": { "$ne": Phase::Delivered.as_str() }, "attempts": { "$lt": counter(k) } },
        None => {
            let mut filter =
                doc! { "phase": Phase::Running.as_str(), "attempts": { "$lt": counter(MAX_ATTEMPT) } };
            if let Some(id) = &signal.event_id {
                filter.insert("counted_events", doc! { "$ne": id.as_str() });
            }
            filter
        }
    }
}

/// The failure was counted, its retry waits, and no person has asked for that retry.
fn open_to_a_verdict(signal: &Failure) -> Document {
    let mut filter = doc! { "phase": Phase::RetryWaiting.as_str(), "redriven_at": { "$exists": false } };
    if let Some(k) = signal.attempt {
        filter.insert("attempts", counter(k));
    }
    filter
}

/// Writes the refund where there was none, and counts the failure. A verdict on a waiting retry is the same write:
/// it finds the refund made, `attempts` at k and `redriven_at` unset, so that only the phase changes.
pub(super) fn failure_effect(signal: &Failure, now: Timestamp) -> Vec<Document> {
    let is_running = doc! { "$eq": ["$phase", Phase::Running.as_str()] };
    let one_more = doc! { "$add": ["$attempts", 1] };
    let attempts = match signal.attempt {
        Some(k) => counter(k),
        None if signal.retryable => one_more.into(),
        None => when(is_running, one_more, "$attempts"),
    };
    let set_aside = doc! { "$in": ["$phase", [Phase::Failed.as_str(), Phase::DeadLettered.as_str()]] };
    let phase = if signal.retryable { Phase::RetryWaiting } else { Phase::Failed };
    let not_before = if signal.retryable { due(signal, now) } else { Bson::from("$$REMOVE") };
    let reason = signal.reason.as_deref().unwrap_or(UNSPECIFIED);
    let mut set = refund_entry(now);
    set.extend(doc! {
        "is_refunded": true,
        "attempts": attempts,
        "phase": when(set_aside.clone(), "$phase", phase.as_str()),
        "not_before": when(set_aside, "$not_before", not_before),
        "last_error": {
            "reason": literal(reason),
            "at": date(now),
            "refunded": when("$is_refunded", "$$REMOVE", true),
            "trace": signal.trace.as_ref().map_or("$$REMOVE".into(), |trace| literal(trace.as_str())),
        },
        "updated_at": date(now),
    });
    if let Some(id) = &signal.event_id {
        set.insert("counted_events", remembered(id.as_str()));
    }
    vec![doc! { "$set": set }, doc! { "$unset": ["dispatched_at", "redriven_at"] }]
}

/// When the next attempt is due. The schedule goes along as a table of times, so that an attempt that only the
/// document knows picks from it, and no arithmetic of times happens there.
fn due(signal: &Failure, now: Timestamp) -> Bson {
    let at = |delay: &i64| date(now.plus(Duration::from_millis(delay.unsigned_abs())));
    match signal.attempt {
        Some(k) => at(&signal.delays.after(k)),
        None => {
            let table: Vec<Bson> = signal.delays.as_slice().iter().map(at).collect();
            let last = i32::try_from(table.len() - 1).expect("a schedule has 1 to 64 rows");
            let row = doc! { "$min": [{ "$add": ["$attempts", 1] }, last] };
            doc! { "$arrayElemAt": [literal(table), row] }.into()
        }
    }
}

/// The counted ids with this one behind them, of which the last sixteen stay.
fn remembered(id: &str) -> Bson {
    let kept = i32::try_from(COUNTED_EVENTS_KEPT).expect("sixteen fits");
    let before = doc! { "$ifNull": ["$counted_events", []] };
    doc! { "$slice": [{ "$concatArrays": [before, [literal(id)]] }, -kept] }.into()
}

/// **The guard for a reclaim.** Index `_id`. Matches while the job is not delivered.
pub(super) fn success_guard(job_id: &JobId, account_id: Option<&AccountId>) -> Document {
    and(the_job(job_id, account_id), doc! { "phase": { "$ne": Phase::Delivered.as_str() } })
}

/// Delivers, and writes the reclaim where the job was refunded.
pub(super) fn success_effect(now: Timestamp) -> Vec<Document> {
    let mut set = reclaim_entry(now);
    set.extend(doc! {
        "is_reclaimed": when("$is_refunded", true, "$is_reclaimed"),
        "phase": Phase::Delivered.as_str(),
        "delivered_at": date(now),
        "updated_at": date(now),
    });
    vec![doc! { "$set": set }, doc! { "$unset": "not_before" }]
}

/// Index `_id`. Matches while the job waits after exactly these failures.
pub(super) fn dispatch_guard(job_id: &JobId, attempts: u32) -> Document {
    let waiting = doc! { "phase": Phase::RetryWaiting.as_str(), "attempts": counter(attempts) };
    and(the_job(job_id, None), waiting)
}

/// To running with an open hand-over; to dead_lettered where the job is at its cap.
pub(super) fn dispatch_effect(now: Timestamp) -> Vec<Document> {
    let at_cap = doc! { "$gte": ["$attempts", "$max_attempts"] };
    let set = doc! {
        "phase": when(at_cap, Phase::DeadLettered.as_str(), Phase::Running.as_str()),
        "updated_at": date(now),
    };
    vec![doc! { "$set": set }, doc! { "$unset": ["not_before", "dispatched_at"] }]
}

/// Index `_id`. Matches while the job runs after exactly these failures and its hand-over is open.
pub(super) fn hand_over_guard(job_id: &JobId, attempts: u32) -> Document {
    let open = doc! {
        "phase": Phase::Running.as_str(),
        "attempts": counter(attempts),
        "dispatched_at": { "$exists": false },
    };
    and(the_job(job_id, None), open)
}

/// Closes the hand-over.
pub(super) fn hand_over_effect(now: Timestamp) -> Vec<Document> {
    vec![doc! { "$set": { "dispatched_at": date(now), "updated_at": date(now) } }]
}

/// Index `_id`. Matches while the retry waits or its hand-over is open, unless a person sent the job back since the
/// first of these claims.
pub(super) fn exhausted_guard(job_id: &JobId, attempts: u32, first_claim: Timestamp) -> Document {
    let not_taken_up = doc! {
        "phase": { "$in": [Phase::RetryWaiting.as_str(), Phase::Running.as_str()] },
        "attempts": counter(attempts),
        "dispatched_at": { "$exists": false },
        "$or": [
            { "redriven_at": { "$exists": false } },
            { "redriven_at": { "$lt": date(first_claim) } },
        ],
    };
    and(the_job(job_id, None), not_taken_up)
}

/// To dead_lettered.
pub(super) fn exhausted_effect(now: Timestamp) -> Vec<Document> {
    let set = doc! { "phase": Phase::DeadLettered.as_str(), "updated_at": date(now) };
    vec![doc! { "$set": set }, doc! { "$unset": "not_before" }]
}

/// Index `_id`. Matches while attempt k runs and started at `until` or earlier: with the charge, for the first, else
/// with its recorded hand-over. The first attempt of a job from an earlier layout is never silent.
pub(super) fn silence_guard(job_id: &JobId, k: u32, until: Timestamp) -> Document {
    let since = if k == 1 { "created_at" } else { "dispatched_at" };
    let mut silent = doc! {
        "phase": Phase::Running.as_str(),
        "attempts": counter(k.saturating_sub(1)),
        since: { "$lte": date(until) },
    };
    if k == 1 {
        silent.insert("imported", doc! { "$exists": false });
    }
    and(the_job(job_id, None), silent)
}

/// Index `_id`. Matches while the job is set aside.
pub(super) fn redrive_guard(job_id: &JobId) -> Document {
    let set_aside = [Phase::DeadLettered.as_str(), Phase::Failed.as_str()];
    and(the_job(job_id, None), doc! { "phase": { "$in": set_aside } })
}

/// To retry_waiting, due now, with a fresh allowance that saturates.
pub(super) fn redrive_effect(allowance: u32, now: Timestamp) -> Vec<Document> {
    let sum = doc! { "$add": [{ "$toLong": "$attempts" }, i64::from(allowance)] };
    vec![doc! { "$set": {
        "phase": Phase::RetryWaiting.as_str(),
        "not_before": date(now),
        "redriven_at": date(now),
        "max_attempts": { "$toInt": { "$min": [sum, i64::from(MAX_ATTEMPT)] } },
        "updated_at": date(now),
    } }]
}

/// The refund entry, where the job was not refunded before.
fn refund_entry(now: Timestamp) -> Document {
    one_more_entry(doc! { "$not": ["$is_refunded"] }, EntryType::Refund, "$cost".into(), "refunded_at", now)
}

/// The reclaim entry, where there is a refund to take back.
fn reclaim_entry(now: Timestamp) -> Document {
    let amount = doc! { "$multiply": ["$cost", -1] };
    one_more_entry("$is_refunded", EntryType::Reclaim, amount.into(), "reclaimed_at", now)
}

/// The fields that change with an entry: the entries, their sum, the entry's time. The amount is the document's own
/// cost, and the time never before that of the entry in front.
fn one_more_entry(
    condition: impl Into<Bson>,
    kind: EntryType,
    amount: Bson,
    written_at: &str,
    now: Timestamp,
) -> Document {
    let condition = condition.into();
    let last = doc! { "$arrayElemAt": ["$entries", -1] };
    let at =
        doc! { "$let": { "vars": { "last": last }, "in": { "$max": [date(now), "$$last.created_at"] } } };
    let entry = doc! { "type": kind.as_str(), "amount": amount.clone(), "created_at": at.clone() };
    doc! {
        "entries": when(condition.clone(), doc! { "$concatArrays": ["$entries", [entry]] }, "$entries"),
        "net": when(condition.clone(), doc! { "$add": ["$net", amount] }, "$net"),
        written_at: when(condition, at, format!("${written_at}")),
    }
}

/// Both filters, which name different fields.
fn and(mut one: Document, other: Document) -> Document {
    one.extend(other);
    one
}

fn when(condition: impl Into<Bson>, then: impl Into<Bson>, otherwise: impl Into<Bson>) -> Bson {
    doc! { "$cond": [condition.into(), then.into(), otherwise.into()] }.into()
}

/// A value that no pipeline reads as a field or an operator.
fn literal(value: impl Into<Bson>) -> Bson {
    doc! { "$literal": value.into() }.into()
}
