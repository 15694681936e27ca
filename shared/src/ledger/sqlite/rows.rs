//! Rows of the file, read into the domain's words. What cannot be read is said in words, for a person; that a store
//! could not answer at all is another matter, and not this file's.

use rusqlite::Row;
use rusqlite::types::FromSql;

use crate::clock::Timestamp;
use crate::job::{AccountId, Cost, Entry, EntryType, EventId, Job, JobId, LastError, Phase};
use crate::ledger::{Found, LedgerError};

/// Columns of a row, read one after the other.
struct Columns<'r, 's> {
    row: &'r Row<'s>,
    next: usize,
}

impl<'r, 's> Columns<'r, 's> {
    fn of(row: &'r Row<'s>) -> Self {
        Self { row, next: 0 }
    }

    fn take<T: FromSql>(&mut self) -> Result<T, String> {
        let column = self.next;
        self.next += 1;
        self.row.get(column).map_err(|error| error.to_string())
    }

    fn job_id(&mut self) -> Result<JobId, String> {
        JobId::new(self.take::<String>()?).map_err(|error| format!("job_id {error}"))
    }

    fn time(&mut self) -> Result<Timestamp, String> {
        self.take().map(Timestamp::from_millis)
    }

    fn optional_time(&mut self) -> Result<Option<Timestamp>, String> {
        Ok(self.take::<Option<i64>>()?.map(Timestamp::from_millis))
    }
}

/// The job as its own columns have it, without entries yet.
pub(super) fn decode_job(row: &Row<'_>) -> Result<Job, String> {
    let mut columns = Columns::of(row);
    Ok(Job {
        job_id: columns.job_id()?,
        account_id: AccountId::new(columns.take::<String>()?)
            .map_err(|error| format!("account_id {error}"))?,
        cost: Cost::new(columns.take()?).map_err(|error| error.to_string())?,
        is_refunded: columns.take()?,
        refunded_at: columns.optional_time()?,
        is_reclaimed: columns.take()?,
        reclaimed_at: columns.optional_time()?,
        delivered_at: columns.optional_time()?,
        phase: decode_phase(&columns.take::<String>()?)?,
        attempts: columns.take()?,
        max_attempts: columns.take()?,
        not_before: columns.optional_time()?,
        dispatched_at: columns.optional_time()?,
        last_error: decode_last_error(columns.take()?, columns.optional_time()?),
        counted_events: decode_events(&columns.take::<String>()?)?,
        redriven_at: columns.optional_time()?,
        created_at: columns.time()?,
        updated_at: columns.time()?,
        replayed: columns.take()?,
        // A file has had no earlier layout.
        imported: false,
        entries: Vec::with_capacity(EntryType::ALL.len()),
        net: 0,
    })
}

/// Where the columns of the entry begin in `jobs_and_entries!`.
const ENTRY_COLUMNS: usize = 20;

/// Adds the entry of this row to its job, and its amount to the net. A job without any has one row without an entry.
pub(super) fn add_entry(row: &Row<'_>, job: &mut Job) -> Result<(), String> {
    let mut columns = Columns { row, next: ENTRY_COLUMNS };
    let Some(kind) = columns.take::<Option<String>>()? else {
        return Ok(());
    };
    let entry = Entry { kind: decode_type(&kind)?, amount: columns.take()?, created_at: columns.time()? };
    job.net = job.net.checked_add(entry.amount).ok_or("its entries add up past 64 bits")?;
    job.entries.push(entry);
    Ok(())
}

pub(super) fn decode_found(row: &Row<'_>) -> Result<Found, String> {
    let mut columns = Columns::of(row);
    Ok(Found { job_id: columns.job_id()?, attempts: columns.take()?, at: columns.time()? })
}

pub(super) fn decode_ledger_row(row: &Row<'_>) -> Result<(JobId, Entry), String> {
    let mut columns = Columns::of(row);
    let job_id = columns.job_id()?;
    let kind = decode_type(&columns.take::<String>()?)?;
    Ok((job_id, Entry { kind, amount: columns.take()?, created_at: columns.time()? }))
}

fn decode_phase(word: &str) -> Result<Phase, String> {
    Phase::parse(word).ok_or_else(|| format!("its phase is {word:?}"))
}

pub(super) fn decode_type(word: &str) -> Result<EntryType, String> {
    EntryType::parse(word).ok_or_else(|| format!("an entry's type is {word:?}"))
}

fn decode_last_error(reason: Option<String>, at: Option<Timestamp>) -> Option<LastError> {
    reason.zip(at).map(|(reason, at)| LastError { reason, at, trace: None })
}

fn decode_events(json: &str) -> Result<Vec<EventId>, String> {
    let ids: Vec<String> =
        serde_json::from_str(json).map_err(|error| format!("its counted_events: {error}"))?;
    ids.into_iter().map(|id| EventId::new(id).map_err(|error| format!("an event id {error}"))).collect()
}

/// The id in the first column, as far as it is one.
pub(super) fn name_of(row: &Row<'_>) -> String {
    row.get(0).unwrap_or_else(|error| format!("(an id that is no text: {error})"))
}

pub(super) fn unreadable(row: &Row<'_>, what: String) -> LedgerError {
    LedgerError::Unreadable { job_id: name_of(row), what }
}
