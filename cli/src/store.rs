//! Which store a command works on, and the two that there are.
//!
//! Both are a ledger and a queue behind the same ports, so a command is written once, over [`Store`], and compiled for
//! each. What differs between them beyond the ports is here: how they come to be, what they are called, where due
//! work goes, and what groups commits.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use recoup::clock::{Clock, Deadline, Timestamp, roll};
use recoup::config::{Address, Settings};
use recoup::dispatch::{NoOutside, Target};
use recoup::embedded::Embedded;
use recoup::handlers::drain::{DrainCounts, DrainSettings, drain};
use recoup::ledger::mongo::{Mode, Note, Upgrade, Upgraded};
use recoup::ledger::sqlite::SqliteLedger;
use recoup::ledger::{Ledger, LedgerReader};
use recoup::queue::RetryQueue;
use recoup::queue::sqlite::SqliteQueue;

use crate::args::Command;
use crate::stop::{Stop, visible};

/// A ledger and a queue that belong together.
pub(crate) trait Store: Sync {
    /// The word for it in JSON.
    const KIND: &'static str;
    /// Whether the retries of replayed jobs stand in the queue that today's work uses.
    const QUEUES_REPLAYS: bool;
    type Ledger: Ledger + LedgerReader;
    type Queue: RetryQueue;

    fn ledger(&self) -> &Self::Ledger;
    fn queue(&self) -> &Self::Queue;

    /// What a person calls it.
    fn name(&self) -> String;

    /// `recoup COMMAND`, such that it works on this store.
    fn hint(&self, command: &str) -> String;

    /// Creates or updates the layout.
    async fn init(&self) -> Result<(), Stop>;

    /// The same, and imports what an earlier layout left. `None`: this store has had no earlier one.
    async fn upgrade(
        &self,
        upgrade: Upgrade,
        now: Timestamp,
        listen: &mut (dyn FnMut(Note) + Send),
    ) -> Result<Option<Upgraded>, Stop>;

    /// To be called before a write that is today's work. Creates the layout where there is none at all, so that no
    /// write brings a collection into being without its validator.
    async fn prepare_work(&self) -> Result<(), Stop>;

    /// Creates or updates the layout, unless the store holds work of today's that a replay must not mix with.
    async fn prepare_replay(&self) -> Result<(), Stop>;

    /// One drain pass, to where due work goes.
    async fn drain(
        &self,
        settings: &DrainSettings,
        clock: &impl Clock,
        deadline: Deadline,
    ) -> Result<DrainCounts, Stop>;

    /// From here on writes may be durable only once the group is committed. For replays.
    fn begin_group(&self) -> Result<(), Stop>;

    /// Everything in the group is durable once this has returned.
    fn commit_group(&self) -> Result<(), Stop>;
}

/// Where the command is to work.
#[derive(Debug, PartialEq)]
pub(crate) enum Choice {
    /// On one file. `by_default`: a plain `recoup` would choose the same one.
    File { path: PathBuf, by_default: bool },
    /// On the servers.
    Servers { mongodb: Address, redis: Address },
}

/// The file where neither an argument nor `RECOUP_DB` names one.
const DEFAULT_FILE: &str = "recoup.db";

/// Chooses by the arguments first, then by the environment. `recoup_db` is what `RECOUP_DB` says.
pub(crate) fn choose(
    db: Option<PathBuf>,
    command: &Command,
    settings: &Settings,
    recoup_db: Option<OsString>,
) -> Result<Choice, Stop> {
    let addresses = (settings.mongodb.clone(), settings.redis.clone());
    let has_addresses = addresses.0.is_some() || addresses.1.is_some();
    let file = recoup_db.filter(|file| !file.is_empty()).map_or_else(|| DEFAULT_FILE.into(), PathBuf::from);
    let replay = if let Command::Replay(args) = command { Some(args.servers) } else { None };
    match db {
        Some(_) if replay == Some(true) => {
            return Err(Stop::Usage(
                "--servers and --db exclude each other; leave one of them out".to_owned(),
            ));
        }
        Some(path) => return Ok(Choice::File { path, by_default: false }),
        None => {}
    }
    if replay == Some(false) {
        return Ok(Choice::File { path: file, by_default: !has_addresses });
    }
    match addresses {
        (Some(mongodb), Some(redis)) => Ok(Choice::Servers { mongodb, redis }),
        (None, None) if replay == Some(true) => Err(Stop::Usage(
            "--servers needs MONGODB_URI and REDIS_URL, and neither is set; set both, or leave it out to replay \
             into a file"
                .to_owned(),
        )),
        (None, None) => Ok(Choice::File { path: file, by_default: true }),
        (Some(_), None) => Err(half_set("MONGODB_URI", "REDIS_URL")),
        (None, Some(_)) => Err(half_set("REDIS_URL", "MONGODB_URI")),
    }
}

fn half_set(there: &str, missing: &str) -> Stop {
    Stop::Usage(format!(
        "{there} is set and {missing} is not; set both to work on the servers, or unset {there} or give --db FILE \
         to work on a file"
    ))
}

/// How the settings make a drain.
pub(crate) fn drain_settings(settings: &Settings) -> DrainSettings {
    DrainSettings {
        policy: settings.retry,
        claim_timeout: settings.claim_timeout,
        sweep_grace: settings.sweep_grace,
        attempt_timeout: settings.attempt_timeout,
        roll,
    }
}

/// Ledger and queue in one file.
pub(crate) struct FileStore {
    path: PathBuf,
    by_default: bool,
    file: Arc<Embedded>,
    ledger: SqliteLedger,
    queue: SqliteQueue,
}

impl FileStore {
    /// Opens the file; makes it only where `may_create`, so that a mistyped name is an error and not an empty ledger.
    pub(crate) fn open(path: &Path, by_default: bool, may_create: bool) -> Result<Self, Stop> {
        if !may_create && !path.exists() {
            return Err(Stop::Refused(format!(
                "there is no file {}; name another one with --db or RECOUP_DB, or make it with `recoup init`",
                visible(&path.display().to_string())
            )));
        }
        let file = Arc::new(Embedded::open(path).map_err(|error| Stop::Refused(error.to_string()))?);
        let (ledger, queue) = (SqliteLedger::new(Arc::clone(&file)), SqliteQueue::new(Arc::clone(&file)));
        Ok(Self { path: path.to_owned(), by_default, file, ledger, queue })
    }
}

impl Store for FileStore {
    const KIND: &'static str = "embedded";
    const QUEUES_REPLAYS: bool = true;
    type Ledger = SqliteLedger;
    type Queue = SqliteQueue;

    fn ledger(&self) -> &SqliteLedger {
        &self.ledger
    }

    fn queue(&self) -> &SqliteQueue {
        &self.queue
    }

    fn name(&self) -> String {
        format!("the file {}", visible(&self.path.display().to_string()))
    }

    fn hint(&self, command: &str) -> String {
        if self.by_default {
            format!("recoup {command}")
        } else {
            format!("recoup --db {} {command}", shell_word(&visible(&self.path.display().to_string())))
        }
    }

    /// Opening the file laid it out.
    async fn init(&self) -> Result<(), Stop> {
        Ok(())
    }

    async fn upgrade(
        &self,
        upgrade: Upgrade,
        _now: Timestamp,
        _listen: &mut (dyn FnMut(Note) + Send),
    ) -> Result<Option<Upgraded>, Stop> {
        match upgrade.mode {
            Mode::Import => self.init().await.map(|()| None),
            Mode::DryRun | Mode::Repair => Err(Stop::Usage(format!(
                "--dry-run and --repair are for databases that an earlier layout left, and {} has had none; set \
                 MONGODB_URI and REDIS_URL, or leave the option out",
                self.name()
            ))),
        }
    }

    /// A file has its layout from its opening on, and what a person does to the jobs of a replay is an exercise.
    async fn prepare_work(&self) -> Result<(), Stop> {
        Ok(())
    }

    /// A file has one queue, and a replay's drains would take today's retries and hand them to nobody.
    async fn prepare_replay(&self) -> Result<(), Stop> {
        let Some(job) = self.ledger.any_live_job().await? else { return Ok(()) };
        Err(Stop::Refused(format!(
            "{} holds job {job:?}, which no replay put there, so nothing was replayed; replay into a file of its \
             own: --db FILE",
            self.name()
        )))
    }

    async fn drain(
        &self,
        settings: &DrainSettings,
        clock: &impl Clock,
        deadline: Deadline,
    ) -> Result<DrainCounts, Stop> {
        let target: Target<NoOutside> = Target::ReadyList;
        Ok(drain(&self.ledger, &self.queue, &target, settings, clock, deadline).await?)
    }

    fn begin_group(&self) -> Result<(), Stop> {
        self.file.begin_group().map_err(|error| Stop::Refused(error.to_string()))
    }

    fn commit_group(&self) -> Result<(), Stop> {
        self.file.commit_group().map_err(|error| Stop::Refused(error.to_string()))
    }
}

/// `word` as a shell takes it for one word.
fn shell_word(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '/' | ':' | '@' | '+' | ',');
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// An id in a hint, as a shell and the command take it: of an invisible character it shows the code.
pub(crate) fn argument(id: &str) -> String {
    let word = shell_word(&visible(id));
    if id.starts_with('-') { format!("-- {word}") } else { word }
}

#[cfg(test)]
mod tests {
    use super::*;
    use recoup::config::Needs;

    fn settings(variables: &[(&str, &str)]) -> Settings {
        let lookup = |name: &str| {
            variables.iter().find(|(variable, _)| *variable == name).map(|(_, value)| (*value).to_owned())
        };
        Settings::read(Needs::Nothing, lookup).unwrap()
    }

    const MONGODB: (&str, &str) = ("MONGODB_URI", "mongodb://localhost/recoup");
    const REDIS: (&str, &str) = ("REDIS_URL", "redis://localhost");

    fn chosen(db: Option<&str>, command: &Command, variables: &[(&str, &str)]) -> Result<Choice, Stop> {
        let recoup_db = variables.iter().find(|(name, _)| *name == "RECOUP_DB").map(|(_, file)| file.into());
        choose(db.map(PathBuf::from), command, &settings(variables), recoup_db)
    }

    fn file(path: &str, by_default: bool) -> Choice {
        Choice::File { path: path.into(), by_default }
    }

    #[test]
    fn the_file_is_named_by_the_argument_then_the_environment_then_by_default() {
        let set = [("RECOUP_DB", "b.db")];
        assert_eq!(chosen(Some("a.db"), &Command::Audit, &set).unwrap(), file("a.db", false));
        assert_eq!(chosen(None, &Command::Audit, &set).unwrap(), file("b.db", true));
        assert_eq!(chosen(None, &Command::Audit, &[("RECOUP_DB", "")]).unwrap(), file("recoup.db", true));
    }

    #[test]
    fn both_addresses_are_the_servers_and_one_alone_is_refused() {
        let both = [MONGODB, REDIS];
        assert!(matches!(chosen(None, &Command::Audit, &both), Ok(Choice::Servers { .. })));
        assert_eq!(chosen(Some("a.db"), &Command::Audit, &both).unwrap(), file("a.db", false));
        for one in [MONGODB, REDIS] {
            assert!(matches!(chosen(None, &Command::Audit, &[one]), Err(Stop::Usage(_))));
            assert_eq!(chosen(Some("a.db"), &Command::Audit, &[one]).unwrap(), file("a.db", false));
        }
    }

    #[test]
    fn a_replay_goes_into_a_file_unless_it_is_told_otherwise() {
        let replay = |servers| {
            let drain_every = std::time::Duration::from_secs(60);
            Command::Replay(crate::args::ReplayArgs { log: "-".into(), drain_every, servers })
        };
        assert_eq!(chosen(None, &replay(false), &[MONGODB, REDIS]).unwrap(), file("recoup.db", false));
        assert!(matches!(chosen(None, &replay(true), &[MONGODB, REDIS]), Ok(Choice::Servers { .. })));
        assert!(matches!(chosen(None, &replay(true), &[]), Err(Stop::Usage(_))));
        assert!(matches!(chosen(None, &replay(true), &[MONGODB]), Err(Stop::Usage(_))));
        assert!(matches!(chosen(Some("a.db"), &replay(true), &[MONGODB, REDIS]), Err(Stop::Usage(_))));
    }

    #[test]
    fn a_name_with_blanks_is_one_word_to_a_shell() {
        assert_eq!(shell_word("dir/a-b.db"), "dir/a-b.db");
        assert_eq!(shell_word("my file's.db"), r"'my file'\''s.db'");
    }

    #[test]
    fn an_id_in_a_hint_is_one_argument() {
        assert_eq!(argument("job-1"), "job-1");
        assert_eq!(argument("job 1; rm *"), "'job 1; rm *'");
        assert_eq!(argument("-job"), "-- -job");
    }
}
