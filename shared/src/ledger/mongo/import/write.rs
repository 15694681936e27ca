//! Writing an imported job: one conditional operation that both converts it and checks that it is still as it was read.
//!
//! A job whose `_id` is its id is converted in place. One that has another `_id` cannot be, since an `_id` never
//! changes: a copy of the old document goes to [`BEFORE`], the job is inserted under its own id, and the old document
//! goes. The insert is what imports the job; a crash before or after it leaves a state that the next run finishes.

use mongodb::bson::{Bson, Document, doc};

use super::super::document::{date, integer, write_job};
use super::super::errors::{from_driver, is_duplicate_key};
use super::super::{JOBS, MongoLedger};
use super::old::DECIDING;
use super::plan::Finding;
use crate::clock::Timestamp;
use crate::job::Job;
use crate::ledger::LedgerError;

/// Old documents whose `_id` was not their job's id.
const BEFORE: &str = "jobs_before_recoup";

/// The fields of this layout. What an old document has under these names is kept in `imported.was`.
const OURS: [&str; 22] = [
    "schema",
    "account_id",
    "cost",
    "is_refunded",
    "refunded_at",
    "is_reclaimed",
    "reclaimed_at",
    "delivered_at",
    "phase",
    "attempts",
    "max_attempts",
    "not_before",
    "dispatched_at",
    "last_error",
    "counted_events",
    "redriven_at",
    "entries",
    "net",
    "created_at",
    "updated_at",
    "replayed",
    "imported",
];

/// How long the write of a page may wait for the majority's journals.
const WRITE_TIMEOUT_MS: i32 = 60_000;

/// What became of a write.
pub(super) enum Written {
    /// The job is imported.
    Done,
    /// There was nothing to write, or no longer.
    Nothing,
    /// Another run imported it, and counted it.
    AlreadyThere,
    /// The database holds something else by now, and nothing was written.
    Refused(String),
}

/// A write that imports one job.
pub(super) enum Import {
    /// Where the old document stands. Index `_id`; the filter matches while it is as it was read, in every field that
    /// decides.
    InPlace { filter: Document, update: Document, new: Document },
    /// Under its own id.
    Move { old: Document, new: Document },
}

/// The write that makes `job` of the old document `old`. `repaired`: what was found and mended, and the credits that
/// this moves.
pub(super) fn import(
    old: &Document,
    job: &Job,
    repaired: Option<(&[Finding], i128)>,
    now: Timestamp,
) -> Import {
    let mut new = write_job(job);
    let mut imported = doc! { "at": date(now), "layout": "two_flags" };
    if let Some((findings, moved)) = repaired {
        let found: Vec<&str> = findings.iter().map(|finding| finding.found.as_str()).collect();
        let mended: Vec<&str> = findings.iter().filter_map(|finding| finding.mended.as_deref()).collect();
        imported.insert("found", found);
        imported.insert("repaired", mended);
        imported.insert("moved", i64::try_from(moved).map_or_else(|_| moved.to_string().into(), Bson::Int64));
    }
    let was: Document = old
        .iter()
        .filter(|(name, value)| {
            OURS.contains(&name.as_str()) && !new.get(name.as_str()).is_some_and(|new| same(value, new))
        })
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    if !was.is_empty() {
        imported.insert("was", was);
    }
    if old.get("_id").and_then(Bson::as_str) != Some(job.job_id.as_str()) {
        let others = old.iter().filter(|(name, _)| *name != "_id" && !OURS.contains(&name.as_str()));
        new.extend(others.map(|(name, value)| (name.clone(), value.clone())));
        imported.insert("moved_from", old.get("_id").cloned());
        new.insert("imported", imported);
        return Import::Move { old: old.clone(), new };
    }
    new.insert("imported", imported);
    let mut filter = doc! { "_id": job.job_id.as_str(), "schema": { "$exists": false } };
    for name in DECIDING {
        let as_read = match old.get(name) {
            Some(value) => doc! { "$eq": value.clone() },
            None => doc! { "$exists": false },
        };
        filter.insert(name, as_read);
    }
    let mut set = new.clone();
    set.remove("_id");
    let mut update = doc! { "$set": set };
    let gone: Document = OURS
        .into_iter()
        .filter(|name| old.contains_key(name) && !new.contains_key(name))
        .map(|name| (name.to_owned(), Bson::from("")))
        .collect();
    if !gone.is_empty() {
        update.insert("$unset", gone);
    }
    Import::InPlace { filter, update, new }
}

impl MongoLedger {
    /// Writes all of these that are in place with one command. False: not every one of them was; writing each by
    /// itself says which, and does no harm to those that were.
    pub(super) async fn write_in_place(&self, imports: &[&Import]) -> Result<bool, LedgerError> {
        let updates: Vec<Bson> = imports
            .iter()
            .filter_map(|import| match import {
                Import::InPlace { filter, update, .. } => {
                    Some(doc! { "q": filter.clone(), "u": update.clone() }.into())
                }
                Import::Move { .. } => None,
            })
            .collect();
        if updates.is_empty() {
            return Ok(true);
        }
        let count = updates.len() as i64;
        let command = doc! {
            "update": JOBS,
            "updates": updates,
            "ordered": false,
            "writeConcern": { "w": "majority", "j": true, "wtimeout": WRITE_TIMEOUT_MS },
        };
        match self.database.run_command(command).await {
            Ok(reply) => {
                let clean = !reply.contains_key("writeErrors") && !reply.contains_key("writeConcernError");
                Ok(clean && integer(&reply, "n") == Ok(count))
            }
            Err(error) => {
                let error = from_driver(&error);
                // Such as a page of documents that together are too large for one command.
                if matches!(error, LedgerError::Refused { .. }) { Ok(false) } else { Err(error) }
            }
        }
    }

    /// Writes one import.
    pub(super) async fn write_one(&self, import: Import) -> Result<Written, LedgerError> {
        match import {
            Import::InPlace { filter, update, new } => {
                let updated = self.jobs.update_one(filter, update).await.map_err(|e| from_driver(&e))?;
                if updated.matched_count == 1 {
                    return Ok(Written::Done);
                }
                let stands = self.jobs.find_one(doc! { "_id": new.get("_id").cloned() });
                let stands = stands.await.map_err(|e| from_driver(&e))?.unwrap_or_default();
                Ok(if stands.get("imported") == new.get("imported") {
                    Written::Done
                } else if stands.contains_key("schema") {
                    Written::AlreadyThere
                } else {
                    let what = "an earlier program changed it meanwhile; stop it and run this again";
                    Written::Refused(what.to_owned())
                })
            }
            Import::Move { old, new } => self.move_to_its_id(&old, &new).await,
        }
    }

    async fn move_to_its_id(&self, old: &Document, new: &Document) -> Result<Written, LedgerError> {
        let old_id = old.get("_id").expect("every document has an _id").clone();
        let key = doc! { "_id": { "$eq": old_id.clone() } };

        if !self.keep_copy(&key, old, new.get("_id").cloned()).await? {
            let what = "an earlier program changed it after it was imported; both stand in `jobs`";
            return Ok(Written::Refused(what.to_owned()));
        }
        let written = match self.jobs.insert_one(new).await {
            Ok(_) => Written::Done,
            Err(error) if is_duplicate_key(&error) => {
                let ours = doc! { "_id": new.get("_id").cloned(), "imported.moved_from": { "$eq": old_id } };
                if self.jobs.find_one(ours).await.map_err(|e| from_driver(&e))?.is_none() {
                    return Ok(Written::Refused("another document has its id for its _id".to_owned()));
                }
                Written::AlreadyThere
            }
            Err(error) => return Err(from_driver(&error)),
        };
        let mut as_read = key;
        as_read.insert("schema", doc! { "$exists": false });
        self.jobs.delete_one(as_read).await.map_err(|e| from_driver(&e))?;
        Ok(written)
    }

    /// Keeps `old` in [`BEFORE`]. False: another state of it was imported before, as job `job_id`.
    async fn keep_copy(
        &self,
        key: &Document,
        old: &Document,
        job_id: Option<Bson>,
    ) -> Result<bool, LedgerError> {
        let before = self.database.collection::<Document>(BEFORE);
        match before.insert_one(old).await {
            Ok(_) => return Ok(true),
            Err(error) if is_duplicate_key(&error) => {}
            Err(error) => return Err(from_driver(&error)),
        }
        if before.find_one(key.clone()).await.map_err(|e| from_driver(&e))?.as_ref() == Some(old) {
            return Ok(true);
        }
        if self.jobs.find_one(doc! { "_id": job_id }).await.map_err(|e| from_driver(&e))?.is_some() {
            return Ok(false);
        }
        // The run that copied it died before the import; it was changed since.
        before.replace_one(key.clone(), old).await.map_err(|e| from_driver(&e)).map(|_| true)
    }
}

/// Whether two values say the same, whatever the width of a number.
fn same(one: &Bson, other: &Bson) -> bool {
    let number = |value: &Bson| value.as_i64().or_else(|| value.as_i32().map(i64::from));
    one == other || (number(one).is_some() && number(one) == number(other))
}
