//! What can be typed: every command with its arguments, checked as far as that goes without a store.
//!
//! An argument that could never be right (an id of 300 characters, a cost of 0) is refused here, with the sentence
//! that the domain type gives as its reason, before anything is opened.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use recoup::clock::Timestamp;
use recoup::job::{AccountId, Cost, EventId, JobId, MAX_ATTEMPT, MAX_COST};
use recoup::sources::Provider;

const STORES: &str = "\
Stores:
  Where MONGODB_URI and REDIS_URL are set, commands work on these servers; else on one embedded
  file, RECOUP_DB or recoup.db. --db FILE wins over both. `replay` uses the file unless --servers
  is given, and refuses one that holds today's work.

Exit status:
  0 done, 1 refused or failed (one line on stderr says why), 2 wrong usage.";

/// The credit ledger of a metered job platform: charge, refund, reclaim, each once.
#[derive(Debug, Parser)]
#[command(name = "recoup", version, after_help = STORES)]
pub(crate) struct Args {
    /// Print JSON on stdout: one document, or one a line for lists
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Work on this embedded file, whatever the environment says
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) db: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Create or update collections, validator, indexes and view, and import what an earlier layout left; safe to
    /// run again and on a live database
    Init(InitArgs),
    /// Charge a job up front
    Charge(ChargeArgs),
    /// Report that an attempt of a job failed
    Failed(FailedArgs),
    /// Report that a job was delivered
    Succeeded(SucceededArgs),
    /// Run one pass of the retry scheduler and print its counts
    Drain(DrainArgs),
    /// Feed an event log through the same handlers on a virtual clock, and sum up what it did
    Replay(ReplayArgs),
    /// Tell a job's story: phase, attempts, next retry, entries, last error
    Job(JobArgs),
    /// Print an account's balance: the sum of its entries
    Balance(BalanceArgs),
    /// Print an account's entries with the running balance
    Statement(StatementArgs),
    /// Print every ledger row, in the order of job ids
    Export(ExportArgs),
    /// List, show and send back the jobs that wait for a person's decision
    DeadLetters(DeadLettersArgs),
    /// Check every job's entries and flags, and the queue against the ledger; exit 1 and a line a violation
    Audit,
    /// Print the metrics that the functions write
    Metrics,
    /// Print the table of other services' events that the functions take, as EVENT_SOURCES leaves it
    Sources,
    /// Print the address that a provider is to call when an attempt of a job ends, signed with WEBHOOK_SECRET
    WebhookUrl(WebhookUrlArgs),
    /// Print a completion script for a shell
    Completions(CompletionsArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct WebhookUrlArgs {
    /// The job's id
    #[arg(value_name = "JOB")]
    pub(crate) job: JobId,
    /// Who calls: replicate, fal or runpod
    #[arg(long, value_name = "PROVIDER")]
    pub(crate) provider: Provider,
    /// Which attempt the provider is asked for, counted from 1
    #[arg(long, value_name = "K", default_value = "1", allow_negative_numbers = true, value_parser = attempt)]
    pub(crate) attempt: u32,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct InitArgs {
    /// Write nothing; say what would be imported, and what contradicts itself
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Import jobs that contradict themselves too, by the rules of docs/UPGRADING.md, and say what was done to each
    #[arg(long, conflicts_with = "dry_run")]
    pub(crate) repair: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ChargeArgs {
    /// The job's id, 1 to 256 characters (one that starts with a dash comes last, after `--`)
    #[arg(value_name = "JOB")]
    pub(crate) job: JobId,
    /// Who pays
    #[arg(long, value_name = "ACCOUNT", allow_hyphen_values = true)]
    pub(crate) account: AccountId,
    /// What it costs, in whole credits
    #[arg(long, value_name = "CREDITS", allow_negative_numbers = true, value_parser = cost)]
    pub(crate) cost: Cost,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct FailedArgs {
    /// The job's id
    #[arg(value_name = "JOB")]
    pub(crate) job: JobId,
    /// Which attempt failed, counted from 1; without it two reports of one failure may count twice
    #[arg(long, value_name = "K", allow_negative_numbers = true, value_parser = attempt)]
    pub(crate) attempt: Option<u32>,
    /// Why it failed; kept cut to 500 characters
    #[arg(long, value_name = "REASON", allow_hyphen_values = true)]
    pub(crate) reason: Option<String>,
    /// No further attempt can mend it
    #[arg(long)]
    pub(crate) no_retry: bool,
    #[command(flatten)]
    pub(crate) event: EventArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct SucceededArgs {
    /// The job's id
    #[arg(value_name = "JOB")]
    pub(crate) job: JobId,
    /// Which attempt succeeded; for the log only, any success delivers the job
    #[arg(long, value_name = "K", allow_negative_numbers = true, value_parser = attempt)]
    pub(crate) attempt: Option<u32>,
    #[command(flatten)]
    pub(crate) event: EventArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct DrainArgs {
    /// Go on, with a pass each DURATION, until SIGTERM or SIGINT: the scheduler outside Lambda. Passes that did
    /// something are printed
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, value_parser = interval)]
    pub(crate) every: Option<Duration>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct EventArgs {
    /// The event's own id, by which its repetition is known
    #[arg(long, value_name = "ID", allow_hyphen_values = true)]
    pub(crate) event_id: Option<EventId>,
    /// Refuse the event unless the job is this account's
    #[arg(long, value_name = "ACCOUNT", allow_hyphen_values = true)]
    pub(crate) account: Option<AccountId>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ReplayArgs {
    /// The event log, JSON lines in the order of arrival; `-` reads standard input
    #[arg(value_name = "FILE")]
    pub(crate) log: PathBuf,
    /// Run the retry scheduler every so much of the log's time
    #[arg(long, value_name = "DURATION", default_value = "60s", allow_hyphen_values = true, value_parser = interval)]
    pub(crate) drain_every: Duration,
    /// Replay into the servers, into a database that holds no job of today's
    #[arg(long)]
    pub(crate) servers: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct JobArgs {
    /// The job's id
    #[arg(value_name = "JOB")]
    pub(crate) job: JobId,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct BalanceArgs {
    /// The account's id
    #[arg(value_name = "ACCOUNT")]
    pub(crate) account: AccountId,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct StatementArgs {
    /// The account's id
    #[arg(value_name = "ACCOUNT")]
    pub(crate) account: AccountId,
    /// From this moment on: 2026-01-15 (00:00 UTC) or 2026-01-15T10:00:00Z
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = moment)]
    pub(crate) since: Option<Timestamp>,
    /// Before this moment
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = moment)]
    pub(crate) until: Option<Timestamp>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ExportArgs {
    /// JSON lines or comma-separated values
    #[arg(long, value_enum, default_value_t = Format::Jsonl)]
    pub(crate) format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// One JSON document a line
    Jsonl,
    /// A header line, then one row a line
    Csv,
}

#[derive(Debug, ClapArgs)]
#[command(args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
pub(crate) struct DeadLettersArgs {
    #[command(subcommand)]
    pub(crate) command: Option<DeadLettersCommand>,
    #[command(flatten)]
    pub(crate) list: ListArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DeadLettersCommand {
    /// List the jobs that were set aside (what `dead-letters` alone does)
    List(ListArgs),
    /// Tell the story of one of them
    Show(JobArgs),
    /// Send jobs back to the retry queue, with a fresh allowance of attempts
    Redrive(RedriveArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ListArgs {
    /// Also list the jobs that failed for good
    #[arg(long)]
    pub(crate) failed: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct RedriveArgs {
    /// The jobs, dead-lettered or failed
    #[arg(value_name = "JOB", required_unless_present = "all", conflicts_with = "all")]
    pub(crate) jobs: Vec<JobId>,
    /// Every dead-lettered job (not the failed ones)
    #[arg(long)]
    pub(crate) all: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

fn cost(text: &str) -> Result<Cost, String> {
    let credits: i64 =
        text.parse().map_err(|_| format!("a cost is 1 to {MAX_COST} whole credits, not {text:?}"))?;
    Cost::new(credits).map_err(|error| error.to_string())
}

fn attempt(text: &str) -> Result<u32, String> {
    text.parse()
        .ok()
        .filter(|k| (1..=MAX_ATTEMPT).contains(k))
        .ok_or_else(|| format!("an attempt is a whole number from 1 to {MAX_ATTEMPT}"))
}

/// Reads a time with an offset, or a date, which means its first moment in UTC.
fn moment(text: &str) -> Result<Timestamp, String> {
    Timestamp::parse_rfc3339(text)
        .or_else(|| Timestamp::parse_rfc3339(&format!("{text}T00:00:00Z")))
        .ok_or_else(|| {
            "give a date such as 2026-01-15 (00:00 UTC) or a time such as 2026-01-15T10:00:00Z".to_owned()
        })
}

fn interval(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .ok()
        .filter(|every| *every >= Duration::from_millis(1))
        .ok_or_else(|| "give a duration of a millisecond or more, such as 500ms, 60s or 15m".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        Args::command().debug_assert();
    }

    #[test]
    fn a_date_is_its_first_moment_in_utc() {
        assert_eq!(moment("2026-01-15").unwrap().to_string(), "2026-01-15T00:00:00.000Z");
        assert_eq!(moment("2026-01-15T01:00:00+01:00"), moment("2026-01-15"));
        for bad in ["yesterday", "2026-01-15T10:00", "2026-02-30", "", "1768471200"] {
            assert!(moment(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_interval_is_never_nothing() {
        assert_eq!(interval("90s"), Ok(Duration::from_secs(90)));
        for bad in ["0s", "-1s", "60", "soon", ""] {
            assert!(interval(bad).is_err(), "{bad}");
        }
    }
}
