//! What the database itself enforces and finds quickly: collection, validator, indexes, view.
//!
//! [`MongoLedger::init`] makes what is missing and brings up to date what differs, on an empty database and on a live
//! one alike; [`MongoLedger::upgrade`] does so too, makes room for the view and imports what an earlier layout left. The validator keeps every writer to invariants 1, 2, 3 and 6. It sees the new document only; that
//! entries never change and attempts never go down rests on the guards, and on the rights of the database user.

use futures_util::TryStreamExt;
use mongodb::IndexModel;
use mongodb::bson::{Bson, Document, doc};
use mongodb::options::{IndexOptions, ValidationAction, ValidationLevel};
use mongodb::results::{CollectionSpecification, CollectionType};

use super::document::SCHEMA;
use super::errors::{STORE, command_code, from_driver};
use super::reader::sum_of_entries;
use super::{JOBS, MongoLedger, Note, bounded};
use crate::job::{EntryType, MAX_ATTEMPT, MAX_COST, MAX_ID_CHARS, Phase};
use crate::ledger::LedgerError;

/// The view with one document an entry.
const LEDGER: &str = "ledger";
/// What an old collection of rows is renamed to where the view belongs; a second one gets `_2` behind it, and so on.
const LEDGER_BEFORE: &str = "ledger_before_recoup";
/// How often room is made for the view: once for the old rows, and for those that an earlier program, which was not
/// stopped, writes meanwhile.
const MAX_SET_ASIDE: u32 = 16;
/// The collection is there already.
const NAMESPACE_EXISTS: i32 = 48;
/// The collection is not there, or no longer.
const NAMESPACE_NOT_FOUND: i32 = 26;

/// There is an index with the same keys and another name or other options.
const INDEX_OPTIONS_CONFLICT: i32 = 85;
/// There is another index of the same name.
const INDEX_KEY_SPECS_CONFLICT: i32 = 86;
/// The index is not there, or no longer.
const INDEX_NOT_FOUND: i32 = 27;

/// The control characters of Unicode, as a class of a regular expression.
const CONTROLS: &str = r"\x00-\x1f\x7f-\x9f";
/// Its white space: spelled out, since `\s` is ASCII's alone on MongoDB.
const BLANKS: &str = "\\s\u{85}\u{a0}\u{1680}\u{2000}-\u{200a}\u{2028}\u{2029}\u{202f}\u{205f}\u{3000}";

impl MongoLedger {
    /// Creates or updates collection, validator, indexes and view. Safe to run again, by several at once, and on a
    /// live database. Building an index on many jobs takes its time, so only the first answer is bounded.
    ///
    /// # Errors
    /// [`LedgerError::Refused`] where the database user may not, or where something else bears one of the names;
    /// [`LedgerError::Unavailable`].
    pub async fn init(&self) -> Result<(), LedgerError> {
        self.ping().await?;
        self.ensure_collection().await?;
        self.ensure_indexes().await?;
        self.ensure_view().await
    }

    /// Whether [`MongoLedger::init`] has run on this database: whether collection `jobs` is there and has a validator of
    /// ours, of whichever version. A program that charges makes the collection, but not the validator.
    ///
    /// # Errors
    /// As for any read.
    pub async fn is_initialised(&self) -> Result<bool, LedgerError> {
        let found = bounded(self.specification(JOBS)).await?;
        let has_ours = |standing: Document| validator().keys().all(|part| standing.contains_key(part));
        Ok(found.and_then(|found| found.options.validator).is_some_and(has_ours))
    }

    /// The same, and room for the view where an old collection of rows has its name.
    pub(super) async fn lay_out(&self, listen: &mut (dyn FnMut(Note) + Send)) -> Result<(), LedgerError> {
        self.ensure_collection().await?;
        listen(Note::Validator);
        for _ in 0..MAX_SET_ASIDE {
            if let Some((from, to)) = self.old_ledger_in_the_way().await?
                && self.rename(&from, &to).await?
            {
                listen(Note::SetAside { from, to });
            }
            let made = match self.ensure_view().await {
                Ok(()) => self.view_is_right().await,
                Err(error) => Err(error),
            };
            match made {
                Ok(Some(true)) => {
                    listen(Note::View);
                    self.ensure_indexes().await?;
                    listen(Note::Indexes);
                    return Ok(());
                }
                Ok(Some(false) | None) => {}
                // Unless a row was written meanwhile, which made the collection anew.
                Err(error) => {
                    if self.old_ledger_in_the_way().await?.is_none() {
                        return Err(error);
                    }
                }
            }
        }
        let what = format!("an earlier program keeps writing to {LEDGER}; stop it and run this again");
        Err(LedgerError::Refused { store: STORE, what })
    }

    /// The collection that stands where the view belongs, if one does, and the free name for it.
    pub(super) async fn old_ledger_in_the_way(&self) -> Result<Option<(String, String)>, LedgerError> {
        let found = bounded(self.specification(LEDGER)).await?;
        if found.is_none_or(|found| matches!(found.collection_type, CollectionType::View)) {
            return Ok(None);
        }
        let taken = bounded(self.collection_names()).await?;
        let numbered = (2..).map(|number: u32| format!("{LEDGER_BEFORE}_{number}"));
        let mut names = std::iter::once(LEDGER_BEFORE.to_owned()).chain(numbered);
        let free = names.find(|name| !taken.contains(name)).expect("the database has few collections");
        Ok(Some((LEDGER.to_owned(), free)))
    }

    /// The collections of old rows: those set aside, and the one that still stands in the way.
    pub(super) async fn old_ledgers(&self) -> Result<Vec<String>, LedgerError> {
        let in_the_way = self.old_ledger_in_the_way().await?.map(|(from, _)| from);
        let mut names = bounded(self.collection_names()).await?;
        names.retain(|name| {
            name.strip_prefix(LEDGER_BEFORE).is_some_and(|rest| {
                rest.is_empty() || rest.strip_prefix('_').is_some_and(|number| number.parse::<u32>().is_ok())
            })
        });
        names.sort();
        names.extend(in_the_way);
        Ok(names)
    }

    async fn collection_names(&self) -> Result<Vec<String>, LedgerError> {
        self.database.list_collection_names().await.map_err(|e| from_driver(&e))
    }

    /// Renames a collection, in one step that drops nothing. False: another run did so first, or took the name.
    async fn rename(&self, from: &str, to: &str) -> Result<bool, LedgerError> {
        let name = |collection: &str| format!("{}.{collection}", self.database.name());
        let command = doc! {
            "renameCollection": name(from),
            "to": name(to),
            "dropTarget": false,
            "writeConcern": { "w": "majority" },
        };
        match self.database.client().database("admin").run_command(command).await {
            Ok(_) => Ok(true),
            Err(error) => match command_code(&error) {
                Some(NAMESPACE_EXISTS | NAMESPACE_NOT_FOUND) => Ok(false),
                Some(_) | None => Err(from_driver(&error)),
            },
        }
    }

    async fn specification(&self, name: &str) -> Result<Option<CollectionSpecification>, LedgerError> {
        let list = self.database.list_collections().filter(doc! { "name": name });
        let mut found = list.await.map_err(|e| from_driver(&e))?;
        found.try_next().await.map_err(|e| from_driver(&e))
    }

    async fn ensure_collection(&self) -> Result<(), LedgerError> {
        let create = self
            .database
            .create_collection(JOBS)
            .validator(validator())
            .validation_level(ValidationLevel::Strict)
            .validation_action(ValidationAction::Error);
        match create.await {
            Ok(()) => Ok(()),
            Err(error) if command_code(&error) == Some(NAMESPACE_EXISTS) => {
                self.change(doc! {
                    "collMod": JOBS,
                    "validator": validator(),
                    "validationLevel": "strict",
                    "validationAction": "error",
                })
                .await
            }
            Err(error) => Err(from_driver(&error)),
        }
    }

    /// No command changes an index: one that bears a name of ours and is another is dropped and built anew. Until that
    /// is done, its reader looks at more jobs than it must.
    async fn ensure_indexes(&self) -> Result<(), LedgerError> {
        match self.jobs.create_indexes(indexes()).await {
            Ok(_) => return Ok(()),
            Err(error) => match command_code(&error) {
                Some(INDEX_OPTIONS_CONFLICT | INDEX_KEY_SPECS_CONFLICT) => {}
                Some(_) | None => return Err(from_driver(&error)),
            },
        }
        let standing = self.jobs.list_indexes().await.map_err(|e| from_driver(&e))?;
        let standing: Vec<IndexModel> = standing.try_collect().await.map_err(|e| from_driver(&e))?;
        let ours = indexes();
        for other in standing.iter().filter(|standing| ours.iter().any(|own| is_another(standing, own))) {
            let name = name_of(other).expect("it has the name of one of ours");
            match self.jobs.drop_index(name).await {
                Err(error) if command_code(&error) != Some(INDEX_NOT_FOUND) => {
                    return Err(from_driver(&error));
                }
                Ok(()) | Err(_) => {}
            }
        }
        self.jobs.create_indexes(ours).await.map_err(|e| from_driver(&e)).map(|_| ())
    }

    /// The view is left alone where it is as it should be, and changed in place where not, so that nobody who reads
    /// it meanwhile finds it gone. Some compatible servers take that command and change nothing; there it is made
    /// anew.
    async fn ensure_view(&self) -> Result<(), LedgerError> {
        match self.view_is_right().await? {
            Some(true) => return Ok(()),
            Some(false) => {
                self.change(doc! { "collMod": LEDGER, "viewOn": JOBS, "pipeline": view() }).await?;
                if self.view_is_right().await? == Some(true) {
                    return Ok(());
                }
                let view = self.database.collection::<Document>(LEDGER);
                view.drop().await.map_err(|e| from_driver(&e))?;
            }
            None => {}
        }
        match self.database.create_collection(LEDGER).view_on(JOBS).pipeline(view()).await {
            Err(error) if command_code(&error) != Some(NAMESPACE_EXISTS) => Err(from_driver(&error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Whether the view is as it should be; `None`: there is none.
    async fn view_is_right(&self) -> Result<Option<bool>, LedgerError> {
        let Some(found) = self.specification(LEDGER).await? else { return Ok(None) };
        if !matches!(found.collection_type, CollectionType::View) {
            let what = format!("{LEDGER} is a collection, but must be a view; `recoup init` renames it");
            return Err(LedgerError::Refused { store: STORE, what });
        }
        let options = found.options;
        Ok(Some(options.view_on.as_deref() == Some(JOBS) && options.pipeline == Some(view())))
    }

    async fn change(&self, mut command: Document) -> Result<(), LedgerError> {
        command.insert("writeConcern", doc! { "w": "majority" });
        self.database.run_command(command).await.map_err(|e| from_driver(&e)).map(|_| ())
    }
}

/// One document an entry, from its job's own fields and nothing else.
fn view() -> Vec<Document> {
    vec![
        doc! { "$unwind": "$entries" },
        doc! { "$project": {
            "_id": { "$concat": ["$_id", ":", "$entries.type"] },
            "job_id": "$_id",
            "account_id": 1,
            "type": "$entries.type",
            "amount": "$entries.amount",
            "created_at": "$entries.created_at",
        } },
    ]
}

/// Each serves one reader; the partial ones hold only the jobs that their reader looks for, so what is delivered
/// costs them nothing.
fn indexes() -> [IndexModel; 6] {
    let running = Phase::Running.as_str();
    [
        // Balance and statement of one account.
        index("account", doc! { "account_id": 1 }, None),
        // The sweep: retries that should have been taken up.
        index(
            "overdue_retries",
            doc! { "not_before": 1, "_id": 1 },
            Some(doc! { "phase": Phase::RetryWaiting.as_str() }),
        ),
        // The sweep: hand-overs nobody finished (dispatched_at unset, by updated_at), and attempts without any
        // signal (by dispatched_at).
        index(
            "retries_under_way",
            doc! { "dispatched_at": 1, "updated_at": 1, "_id": 1 },
            Some(doc! { "phase": running, "attempts": { "$gt": 0 } }),
        ),
        // The sweep: first attempts without any signal (imported.at unset, by created_at).
        index(
            "first_attempts_under_way",
            doc! { "imported.at": 1, "created_at": 1, "_id": 1 },
            Some(doc! { "phase": running, "attempts": 0 }),
        ),
        // What a person decides about, in pages by id: one each, since between the two phases' words lies that of
        // the many jobs that were delivered.
        set_aside_in("dead_letters", Phase::DeadLettered),
        set_aside_in("failed", Phase::Failed),
    ]
}

fn set_aside_in(name: &str, phase: Phase) -> IndexModel {
    index(name, doc! { "phase": 1, "_id": 1 }, Some(doc! { "phase": phase.as_str() }))
}

fn index(name: &str, keys: Document, only: Option<Document>) -> IndexModel {
    let options = IndexOptions::builder().name(name.to_owned()).partial_filter_expression(only).build();
    IndexModel::builder().keys(keys).options(options).build()
}

fn name_of(index: &IndexModel) -> Option<&str> {
    index.options.as_ref()?.name.as_deref()
}

/// Whether this one stands where ours belongs: it has the name, and other keys or another filter.
fn is_another(standing: &IndexModel, own: &IndexModel) -> bool {
    // In their order, which is part of an index. Ours all ascend, in whatever width the server hands that back.
    let keys = |index: &IndexModel| -> Vec<(String, bool)> {
        let ascends =
            |way: &Bson| way.as_i32() == Some(1) || way.as_i64() == Some(1) || way.as_f64() == Some(1.0);
        index.keys.iter().map(|(field, way)| (field.clone(), ascends(way))).collect()
    };
    let filter =
        |index: &IndexModel| index.options.as_ref().and_then(|o| o.partial_filter_expression.clone());
    name_of(standing) == name_of(own) && (keys(standing) != keys(own) || filter(standing) != filter(own))
}

/// The layout by type, and the invariants by expression. Fields that are not named are allowed.
fn validator() -> Document {
    doc! { "$jsonSchema": schema(), "$expr": { "$and": [
        entries_are_as_cost_and_flags_say(),
        entries_are_in_order_of_time(),
        reclaimed_is_refunded_and_delivered(),
        net_is_the_sum(),
        failed_is_refunded(),
        set_aside_is_refunded(),
    ] } }
}

fn schema() -> Document {
    let whole = |minimum: i64, maximum: i64| doc! { "bsonType": ["int", "long"], "minimum": minimum, "maximum": maximum };
    let most = i64::from(MAX_ATTEMPT);
    let amount = whole(-MAX_COST, MAX_COST);
    let phases: Vec<&str> = Phase::ALL.into_iter().map(Phase::as_str).collect();
    let kinds: Vec<&str> = EntryType::ALL.into_iter().map(EntryType::as_str).collect();
    doc! {
        "bsonType": "object",
        "required": [
            "_id", "schema", "account_id", "cost", "is_refunded", "is_reclaimed", "phase", "attempts",
            "max_attempts", "entries", "net", "created_at", "updated_at",
        ],
        "properties": {
            "_id": id(),
            "schema": whole(i64::from(SCHEMA), i64::from(SCHEMA)),
            "account_id": id(),
            "cost": whole(1, MAX_COST),
            "is_refunded": { "bsonType": "bool" },
            "refunded_at": { "bsonType": "date" },
            "is_reclaimed": { "bsonType": "bool" },
            "reclaimed_at": { "bsonType": "date" },
            "delivered_at": { "bsonType": "date" },
            "phase": { "enum": phases },
            "attempts": whole(0, most),
            "max_attempts": whole(0, most),
            "not_before": { "bsonType": "date" },
            "dispatched_at": { "bsonType": "date" },
            "last_error": {
                "bsonType": "object",
                "required": ["reason", "at"],
                "properties": { "reason": { "bsonType": "string" }, "at": { "bsonType": "date" } },
            },
            "counted_events": { "bsonType": "array", "items": id() },
            "redriven_at": { "bsonType": "date" },
            "entries": {
                "bsonType": "array",
                "items": {
                    "bsonType": "object",
                    "required": ["type", "amount", "created_at"],
                    "properties": {
                        "type": { "enum": kinds }, "amount": amount.clone(), "created_at": { "bsonType": "date" },
                    },
                },
            },
            "net": amount,
            "replayed": { "bsonType": "bool" },
            "imported": {
                "bsonType": "object", "required": ["at"], "properties": { "at": { "bsonType": "date" } },
            },
            "created_at": { "bsonType": "date" },
            "updated_at": { "bsonType": "date" },
        },
    }
}

/// What [`crate::job`] takes for an id. In two patterns without anchors, since `$` would let a line break stand at the
/// end, and not every compatible server looks ahead.
fn id() -> Document {
    let most = i32::try_from(MAX_ID_CHARS).expect("256 fits");
    doc! {
        "bsonType": "string",
        "minLength": 1,
        "maxLength": most,
        "pattern": format!("[^{BLANKS}]"),
        "not": { "pattern": format!("[{CONTROLS}]") },
    }
}

/// Invariant 1: charge, then refund if refunded, then reclaim if reclaimed; each the job's own cost.
fn entries_are_as_cost_and_flags_say() -> Document {
    let stands = doc! { "$map": { "input": "$entries", "in": ["$$this.type", "$$this.amount"] } };
    let taken = doc! { "$multiply": ["$cost", -1] };
    let entry =
        |kind: EntryType, amount: Bson| Bson::from(vec![Bson::from(vec![kind.as_str().into(), amount])]);
    let entry_if = |flag: &str, kind: EntryType, amount: Bson| {
        doc! { "$cond": [flag, entry(kind, amount), []] }
    };
    doc! { "$eq": [stands, { "$concatArrays": [
        entry(EntryType::Charge, taken.clone().into()),
        entry_if("$is_refunded", EntryType::Refund, "$cost".into()),
        entry_if("$is_reclaimed", EntryType::Reclaim, taken.into()),
    ] }] }
}

/// No entry is older than the one in front of it.
fn entries_are_in_order_of_time() -> Document {
    let time_at = |position: Bson| {
        let entry = doc! { "$arrayElemAt": ["$entries", position] };
        doc! { "$let": { "vars": { "entry": entry }, "in": "$$entry.created_at" } }
    };
    let in_front = doc! { "$subtract": ["$$this", 1] };
    doc! { "$allElementsTrue": [{ "$map": {
        "input": { "$range": [1, { "$size": "$entries" }] },
        "in": { "$lte": [time_at(in_front.into()), time_at("$$this".into())] },
    } }] }
}

/// Invariant 2.
fn reclaimed_is_refunded_and_delivered() -> Document {
    let delivered = doc! { "$eq": ["$phase", Phase::Delivered.as_str()] };
    doc! { "$eq": ["$is_reclaimed", { "$and": ["$is_refunded", delivered] }] }
}

/// Invariant 3; with 1 and 2, delivered jobs then stand at -cost and others that were refunded at 0.
fn net_is_the_sum() -> Document {
    doc! { "$eq": ["$net", sum_of_entries()] }
}

/// Invariant 6, first half.
fn failed_is_refunded() -> Document {
    doc! { "$eq": [{ "$gt": ["$attempts", 0] }, "$is_refunded"] }
}

/// Invariant 6, second half.
fn set_aside_is_refunded() -> Document {
    let phases = [Phase::RetryWaiting.as_str(), Phase::DeadLettered.as_str(), Phase::Failed.as_str()];
    doc! { "$or": [{ "$not": [{ "$in": ["$phase", phases] }] }, "$is_refunded"] }
}
