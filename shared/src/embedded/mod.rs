//! The embedded store: ledger and retry queue in one SQLite file, for a laptop, a demonstration or a replay.
//!
//! [`SqliteLedger`](crate::ledger::sqlite::SqliteLedger) and [`SqliteQueue`](crate::queue::sqlite::SqliteQueue) are two
//! handles on one [`Embedded`]. Several processes may have the same file open; one of them writes at a time.
//!
//! **The file keeps the invariants by itself.** `schema.sql` holds the rules as constraints and triggers: the statement
//! that sets a flag writes its entry, entries never change, and no state may stand that breaks invariants 1 to 3, 5 or
//! 6. Somebody with `sqlite3` in hand is held to them like this program. What no file can prevent is a person who
//! drops the triggers; that is what an audit is for, and why readers add up the entries themselves.
//!
//! **One connection behind a mutex, called straight from async code.** Each call is a handful of index seeks: some
//! microseconds, and one `fsync` where it commits. It has one user, on one machine, so there is nobody whose
//! request such a call could hold up; a pool of threads would cost more than it hides. The one long wait is for
//! another process that writes, at most [`BUSY_TIMEOUT`], after which the answer is "unavailable".
//!
//! **Durable before it is answered**: write-ahead log with `synchronous=FULL`, so each commit is an `fsync`, some
//! hundred a second. A replay of somebody's past, which can be run again from the start, may group its commits
//! ([`Embedded::begin_group`]): nothing it was answered is durable before [`Embedded::commit_group`].

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, TransactionBehavior, ffi};

/// What the errors call this store.
pub(crate) const STORE: &str = "the embedded store";
/// How long a call waits for another process that writes.
pub const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// The layout that this program reads and writes, kept in the file as `user_version`.
pub const SCHEMA_VERSION: i32 = 1;
/// Marks the file as ours, kept in it as `application_id`: "rcop" in ASCII.
pub const APPLICATION_ID: i32 = 0x7263_6f70;

/// Each of the others that open a new file at the same moment can be in the way a few times.
const LOG_TRIES: usize = 100;

const SCHEMA: &str = include_str!("schema.sql");
/// More than there are statements in the adapters, so that each is prepared once.
const STATEMENTS_KEPT: usize = 64;
/// 64 MiB of pages, negative because it is in KiB: a replay's tables stay in memory while it runs.
const CACHE_KIB: i64 = -65_536;

/// Why the file cannot be used, cut by what to do next.
#[derive(Debug, thiserror::Error)]
pub enum EmbeddedError {
    /// Name another file.
    #[error("{} is not a SQLite database; name another file, or move this one away", path.display())]
    NotSqlite {
        /// The file.
        path: PathBuf,
    },
    /// Name another file.
    #[error("{} is the SQLite database of another program; name another file", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// Use a newer program.
    #[error(
        "{} has layout {found}, and this program knows layout {SCHEMA_VERSION}; use the newer version that wrote it",
        path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its layout.
        found: i32,
    },
    /// Mend the place: its directory is missing, or rights, or it is no file.
    #[error(
        "{} cannot be opened: {what}; its directory must exist, and both may be written to", path.display()
    )]
    CannotOpen {
        /// The file.
        path: PathBuf,
        /// What SQLite said.
        what: String,
    },
    /// Try again: another process writes, or the disk is full or failing. A group that was open is lost.
    #[error("{} could not be written: {what}; try again", path.display())]
    Unavailable {
        /// The file.
        path: PathBuf,
        /// What SQLite said.
        what: String,
    },
}

/// One open file, or a store in memory.
#[derive(Debug)]
pub struct Embedded {
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    connection: Connection,
    /// Whether a group is open, by our own account: SQLite may have rolled it back.
    grouped: bool,
}

impl Embedded {
    /// Opens the file, or makes it where there is none; safe to run again and while others use it.
    ///
    /// # Errors
    /// Every [`EmbeddedError`]. A file that is not ours is left as it was.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, EmbeddedError> {
        let path = path.as_ref();
        // Made absolute, since SQLite gives names such as `:memory:` and the empty one a meaning of their own.
        let absolute = std::path::absolute(path)
            .map_err(|error| EmbeddedError::CannotOpen { path: path.to_owned(), what: error.to_string() })?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection =
            Connection::open_with_flags(absolute, flags).map_err(|error| cannot_open(path, &error))?;
        Self::prepared(connection, path)
    }

    /// A store of its own that is gone when it is dropped.
    ///
    /// # Errors
    /// [`EmbeddedError::CannotOpen`] where there is no memory.
    pub fn in_memory() -> Result<Self, EmbeddedError> {
        let path = Path::new("the store in memory");
        let connection = Connection::open_in_memory().map_err(|error| cannot_open(path, &error))?;
        Self::prepared(connection, path)
    }

    fn prepared(connection: Connection, path: &Path) -> Result<Self, EmbeddedError> {
        let cannot_open = |error| cannot_open(path, &error);
        connection.busy_timeout(BUSY_TIMEOUT).map_err(cannot_open)?;
        let standing =
            connection.unchecked_transaction().and_then(|read| identity(&read)).map_err(cannot_open)?;
        check_identity(standing, path)?;
        configure(&connection).map_err(cannot_open)?;
        if standing == Identity::NEW {
            lay_out_if_new(&connection, path)?;
        }
        Ok(Self { path: path.to_owned(), state: Mutex::new(State { connection, grouped: false }) })
    }

    /// Starts a group: from here on, every write through this store joins one transaction, whose reads see it. For
    /// replays only, since nothing is durable before [`Self::commit_group`]; a process that dies loses the group as a
    /// whole. Other processes cannot write meanwhile, so a group should end after some seconds.
    ///
    /// A call that fails inside the group takes back only what it did itself.
    ///
    /// # Errors
    /// [`EmbeddedError::Unavailable`], also where a group is open already.
    pub fn begin_group(&self) -> Result<(), EmbeddedError> {
        let mut state = self.lock();
        state
            .in_group()
            .and_then(|_| state.connection.execute_batch("BEGIN IMMEDIATE"))
            .map_err(|error| self.unavailable(&error))?;
        state.grouped = true;
        Ok(())
    }

    /// Ends the group: everything in it is durable once this has returned `Ok`, and nothing of it stands otherwise.
    ///
    /// # Errors
    /// [`EmbeddedError::Unavailable`], also where no group is open.
    pub fn commit_group(&self) -> Result<(), EmbeddedError> {
        let mut state = self.lock();
        state.grouped = false;
        let committed = state.connection.execute_batch("COMMIT").map_err(|error| self.unavailable(&error));
        if committed.is_err() && !state.connection.is_autocommit() {
            state.connection.execute_batch("ROLLBACK").map_err(|error| self.unavailable(&error))?;
        }
        committed
    }

    /// Runs reads that must see one state of the file.
    pub(crate) fn read<T, E: From<rusqlite::Error>>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, E>,
    ) -> Result<T, E> {
        let state = self.lock();
        if state.in_group()? {
            return work(&state.connection);
        }
        let transaction = Transaction::new_unchecked(&state.connection, TransactionBehavior::Deferred)?;
        work(&transaction)
    }

    /// Runs one write transaction, whose reads no other writer can come between. `work` may hold one writing
    /// statement at most: inside a group, SQLite takes back a statement that failed, and nothing else.
    pub(crate) fn write<T, E: From<rusqlite::Error>>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, E>,
    ) -> Result<T, E> {
        let state = self.lock();
        if state.in_group()? {
            return work(&state.connection);
        }
        in_transaction(&state.connection, work)
    }

    /// Like [`Self::write`], for several writing statements: inside a group they stand behind a savepoint.
    pub(crate) fn write_several<T, E: From<rusqlite::Error>>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut state = self.lock();
        if state.in_group()? {
            let savepoint = state.connection.savepoint()?;
            let done = work(&savepoint)?;
            savepoint.commit()?;
            return Ok(done);
        }
        in_transaction(&state.connection, work)
    }

    /// A panic in another call leaves nothing half done behind: its transaction or savepoint was
    /// rolled back as it unwound.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unavailable(&self, error: &rusqlite::Error) -> EmbeddedError {
        EmbeddedError::Unavailable { path: self.path.clone(), what: error.to_string() }
    }
}

impl State {
    /// Whether calls join a group. A full disk, for one, makes SQLite roll the whole transaction back; what was
    /// answered before is then gone, so the group's calls fail until [`Embedded::commit_group`] has said so too.
    fn in_group(&self) -> rusqlite::Result<bool> {
        if self.grouped && self.connection.is_autocommit() {
            return Err(rusqlite::Error::SqliteFailure(
                ffi::Error::new(ffi::SQLITE_ABORT_ROLLBACK),
                Some("the group of writes was rolled back as a whole".to_owned()),
            ));
        }
        Ok(self.grouped)
    }
}

fn in_transaction<T, E: From<rusqlite::Error>>(
    connection: &Connection,
    work: impl FnOnce(&Connection) -> Result<T, E>,
) -> Result<T, E> {
    let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    let done = work(&transaction)?;
    transaction.commit()?;
    Ok(done)
}

/// What a file says it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    application_id: i32,
    version: i32,
    has_tables: bool,
}

impl Identity {
    const NEW: Self = Self { application_id: 0, version: 0, has_tables: false };
}

fn identity(connection: &Connection) -> rusqlite::Result<Identity> {
    Ok(Identity {
        application_id: connection.pragma_query_value(None, "application_id", |row| row.get(0))?,
        version: connection.pragma_query_value(None, "user_version", |row| row.get(0))?,
        has_tables: connection
            .query_row("SELECT EXISTS (SELECT 1 FROM sqlite_schema)", [], |row| row.get(0))?,
    })
}

fn check_identity(standing: Identity, path: &Path) -> Result<(), EmbeddedError> {
    if standing == Identity::NEW {
        return Ok(());
    }
    if standing.application_id != APPLICATION_ID || standing.version < 1 {
        return Err(EmbeddedError::Foreign { path: path.to_owned() });
    }
    if standing.version > SCHEMA_VERSION {
        return Err(EmbeddedError::Newer { path: path.to_owned(), found: standing.version });
    }
    Ok(())
}

/// Settings of the connection, which the file does not keep, but for the write-ahead log.
fn configure(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_prepared_statement_cache_capacity(STATEMENTS_KEPT);
    // Else the bundled SQLite (built with STAT4) prepares a statement anew whenever a value it compares with an
    // indexed column changes, which is every time: three quarters of the work of a replay.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    use_write_ahead_log(connection)?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    connection.pragma_update(None, "cache_size", CACHE_KIB)
}

/// The file keeps this setting, so only those who make the file race for it. Here SQLite does not wait for other
/// connections, so we do, by a transaction that nobody else can be in.
fn use_write_ahead_log(connection: &Connection) -> rusqlite::Result<()> {
    for _ in 0..LOG_TRIES {
        match connection.pragma_update(None, "journal_mode", "WAL") {
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => {
                connection.execute_batch("BEGIN EXCLUSIVE; COMMIT")?;
            }
            set => return set,
        }
    }
    connection.pragma_update(None, "journal_mode", "WAL")
}

/// Makes the tables in a new file. Looks again once it holds the write lock: another process may have been faster.
fn lay_out_if_new(connection: &Connection, path: &Path) -> Result<(), EmbeddedError> {
    let cannot_open = |error| cannot_open(path, &error);
    let transaction =
        Transaction::new_unchecked(connection, TransactionBehavior::Immediate).map_err(cannot_open)?;
    let standing = identity(&transaction).map_err(cannot_open)?;
    check_identity(standing, path)?;
    if standing == Identity::NEW {
        lay_out(&transaction).map_err(cannot_open)?;
    }
    transaction.commit().map_err(cannot_open)
}

fn lay_out(transaction: &Transaction<'_>) -> rusqlite::Result<()> {
    transaction.execute_batch(SCHEMA)?;
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", SCHEMA_VERSION)
}

fn cannot_open(path: &Path, error: &rusqlite::Error) -> EmbeddedError {
    let path = path.to_owned();
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => EmbeddedError::NotSqlite { path },
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            EmbeddedError::Unavailable { path, what: error.to_string() }
        }
        Some(_) | None => EmbeddedError::CannotOpen { path, what: error.to_string() },
    }
}

/// Whether trying again can help: another process writes, or the disk or the memory did not play along.
pub(crate) fn is_passing(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code().is_some_and(|code| {
        matches!(
            code,
            ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseLocked
                | ErrorCode::FileLockingProtocolFailed
                | ErrorCode::OperationAborted
                | ErrorCode::OperationInterrupted
                | ErrorCode::SystemIoFailure
                | ErrorCode::CannotOpen
                | ErrorCode::DiskFull
                | ErrorCode::OutOfMemory
        )
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// How SQLite means to run this statement on our tables, a line a step.
    pub(crate) fn plan(sql: &str) -> Vec<String> {
        let store = Embedded::in_memory().unwrap();
        let state = store.lock();
        let mut statement = state.connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let steps = statement.raw_query().mapped(|row| row.get(3)).collect::<Result<_, _>>();
        steps.unwrap()
    }
}
