//! `recoup replay`: a log of somebody's past, through the same handlers, on a virtual clock.
//!
//! The clock goes to each event's `at`, never back: the order of arrival is the order in which things happened to the
//! platform. On its way it stops at every drain that would have run meanwhile. So three weeks take as long as their
//! events and their retries do, and the same log gives the same ledger each time: jitter is taken as if it were off.
//!
//! Nothing is handed over, and a line that is no event stops nothing: it is counted, reported by its number, and the
//! rest goes on. What cannot be gone on from (a store out of reach) ends the replay; the same command run again
//! finds what stands and moves no money twice.
//!
//! Memory: 24 bytes a job for the simpler designs ([`simpler`]), and, where people read the summary, a name and a sum
//! an account. The log itself is read a line at a time.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::time::Duration;

use recoup::backoff::Roll;
use recoup::clock::{Clock, Deadline, Timestamp, VirtualClock};
use recoup::dispatch::{NoOutside, Target};
use recoup::event::CompletionEvent;
use recoup::handlers::drain::{DrainCounts, DrainSettings, drain};
use recoup::handlers::failed::job_failed;
use recoup::handlers::succeeded::job_succeeded;
use recoup::handlers::{Answer, Outcome};
use recoup::job::{AccountId, Cost, JobId, Phase};
use recoup::ledger::{Ledger, LedgerError, LedgerReader, Outstanding};
use recoup::queue::RetryQueue;
use recoup::transition::Charge;

use self::event::{LogEvent, What};
use self::lines::{Line, Lines, MAX_LINE_BYTES};
use self::schedule::Schedule;
use self::simpler::SimplerDesigns;
use self::summary::{Outcomes, Summary};
use crate::args::ReplayArgs;
use crate::commands::Desk;
use crate::output::{count_of, grouped};
use crate::progress::Progress;
use crate::stop::{Stop, visible};
use crate::store::{Store, drain_settings};

mod event;
mod lines;
mod report;
mod schedule;
mod simpler;
mod summary;

/// Events in one group of writes: a few dozen milliseconds' work, so that an `fsync` is small against it and another
/// process that waits to write is not kept waiting.
const GROUP: u64 = 1_000;
/// Bytes of the log read from the file at a time.
const BUFFER: usize = 256 * 1024;

/// `recoup replay`.
pub(crate) async fn run<S: Store>(desk: Desk<'_, S>, args: ReplayArgs, log: Log) -> Result<(), Stop> {
    let started = desk.clock.now();
    desk.store.prepare_replay().await?;
    let progress = Progress::new(log.size, "replayed", true);
    let mut replay = Replay::new(&desk, args.drain_every, &progress);
    replay.store.begin_group()?;
    let read = replay.feed(Lines::new(log.source), &args.log).await;
    // What was replayed before an error stands, as it would have after a crash.
    let committed = replay.store.commit_group();
    progress.done();
    read.and(committed)?;

    let totals = replay.store.ledger().totals().await?;
    let summary =
        Summary::new(replay.events, replay.outcomes, &replay.drains, &totals, replay.simpler.given_away());
    if desk.out.is_json() {
        desk.out.document(&summary)?;
    } else {
        report::print(desk.out, desk.store, &summary, &replay.findings()).await?;
    }
    desk.out.finish()?;
    if !desk.out.is_json() {
        if totals.jobs > replay.simpler.jobs() {
            progress.say(&report::older_jobs(desk.store, totals.jobs - replay.simpler.jobs()));
        }
        let took = desk.clock.now().as_millis().saturating_sub(started.as_millis()).max(1).unsigned_abs();
        progress.say(&report::speed(replay.events, took));
    }
    replay.end()
}

/// An event log that was opened and is yet to be read.
pub(crate) struct Log {
    source: Box<dyn BufRead>,
    /// Its length in bytes, where it is a file.
    size: Option<u64>,
}

impl Log {
    /// Opens the file, or takes standard input for `-`.
    pub(crate) fn open(log: &Path) -> Result<Self, Stop> {
        if log == Path::new("-") {
            let source = Box::new(BufReader::with_capacity(BUFFER, io::stdin()));
            return Ok(Self { source, size: None });
        }
        let cannot = |error: &io::Error| {
            Stop::Refused(format!(
                "the log {} cannot be read: {error}; give a file of JSON lines, or `-` for standard input",
                visible(&log.display().to_string())
            ))
        };
        let file = File::open(log).map_err(|error| cannot(&error))?;
        let metadata = file.metadata().map_err(|error| cannot(&error))?;
        if metadata.is_dir() {
            return Err(cannot(&io::Error::from(io::ErrorKind::IsADirectory)));
        }
        let size = metadata.is_file().then_some(metadata.len());
        Ok(Self { source: Box::new(BufReader::with_capacity(BUFFER, file)), size })
    }
}

/// A replay under way.
struct Replay<'a, S> {
    store: &'a S,
    settings: DrainSettings,
    every: Duration,
    progress: &'a Progress,
    /// From the first event on.
    time: Option<Time>,
    events: u64,
    grouped: u64,
    outcomes: Outcomes,
    drains: DrainCounts,
    simpler: SimplerDesigns,
    /// Credits charged by account, where people read the summary.
    accounts: Option<HashMap<AccountId, i64>>,
    /// The most expensive job whose refund was taken back, and the first job of all.
    reclaimed: Option<(Cost, JobId)>,
    first_job: Option<JobId>,
}

/// The log's time.
struct Time {
    clock: VirtualClock,
    first: Timestamp,
    schedule: Schedule,
}

/// What a summary for people shows beside the numbers.
pub(crate) struct Findings<'a> {
    /// The log's first and last moment.
    pub(crate) span: Option<(Timestamp, Timestamp)>,
    pub(crate) accounts: Vec<(&'a AccountId, i64)>,
    pub(crate) story: Option<&'a JobId>,
}

/// Why an event was not taken.
enum Unfit {
    /// This line is at fault; the rest goes on.
    Rejected(String),
    /// The store is; nothing goes on.
    Stop(Stop),
}

impl From<LedgerError> for Unfit {
    fn from(error: LedgerError) -> Self {
        match error {
            LedgerError::UnknownJob(job) => {
                Self::Rejected(format!("job {:?} was not charged before", job.as_str()))
            }
            LedgerError::AccountMismatch { .. } => Self::Rejected(error.to_string()),
            LedgerError::Unavailable { .. }
            | LedgerError::Unreadable { .. }
            | LedgerError::Refused { .. }
            | LedgerError::Overflow(_) => Self::Stop(error.into()),
        }
    }
}

impl<'a, S: Store> Replay<'a, S> {
    fn new(desk: &Desk<'a, S>, every: Duration, progress: &'a Progress) -> Self {
        Self {
            store: desk.store,
            settings: DrainSettings { roll: || Roll::FULL, ..drain_settings(desk.settings) },
            every,
            progress,
            time: None,
            events: 0,
            grouped: 0,
            outcomes: Outcomes::default(),
            drains: DrainCounts::default(),
            simpler: SimplerDesigns::default(),
            accounts: (!desk.out.is_json()).then(HashMap::new),
            reclaimed: None,
            first_job: None,
        }
    }

    async fn feed(&mut self, mut lines: Lines<impl BufRead>, log: &Path) -> Result<(), Stop> {
        loop {
            let line = lines.next().map_err(|error| {
                Stop::Refused(format!("the log {} broke off: {error}", visible(&log.display().to_string())))
            })?;
            let parsed = match line {
                None => break,
                Some(Line::TooLong) => Err(format!("it is longer than {MAX_LINE_BYTES} bytes")),
                Some(Line::Text(text)) => event::parse(text).map_err(|error| error.to_string()),
            };
            self.events += 1;
            let taken = match parsed {
                Ok(event) => self.take(event).await,
                Err(why) => Err(Unfit::Rejected(why)),
            };
            match taken {
                Ok(outcome) => self.outcomes.count(outcome),
                Err(Unfit::Rejected(why)) => self.reject(lines.number, &why),
                Err(Unfit::Stop(Stop::Refused(why))) => return Err(broke_off(lines.number, &why)),
                Err(Unfit::Stop(stop)) => return Err(stop),
            }
            self.close_group_when_full()?;
            if self.events.is_multiple_of(256) {
                self.progress.at(lines.bytes);
            }
        }
        self.last_drain().await.map_err(|stop| match stop {
            Stop::Refused(why) => broke_off(lines.number, &why),
            Stop::Usage(_) | Stop::OutputClosed => stop,
        })
    }

    async fn take(&mut self, event: LogEvent) -> Result<Outcome, Unfit> {
        let now = self.advance_to(event.at).await.map_err(Unfit::Stop)?;
        match event.what {
            What::Charge { job_id, account_id, cost } => self.charge(job_id, account_id, cost, now).await,
            What::Failed(event) => self.failed(&event, now).await,
            What::Succeeded(event) => self.succeeded(&event, now).await,
        }
    }

    async fn charge(
        &mut self,
        job_id: JobId,
        account_id: AccountId,
        cost: Cost,
        now: Timestamp,
    ) -> Result<Outcome, Unfit> {
        let max_attempts = self.settings.policy.max_attempts;
        let charge = Charge { job_id, account_id, cost, max_attempts, replayed: true };
        let applied = self.store.ledger().charge(&charge, now).await?;
        let Some(outcome) = Outcome::of_charge(applied.outcome) else {
            return Err(Unfit::Rejected(format!(
                "charge conflict: job {:?} was charged to another account or at another cost",
                charge.job_id.as_str()
            )));
        };
        if let Some(timeout) = self.settings.attempt_timeout {
            self.time_mut().schedule.work_from(now.plus(timeout));
        }
        let Charge { job_id, account_id, cost, .. } = charge;
        if let Some(accounts) = &mut self.accounts
            && !self.simpler.know(&job_id)
        {
            let charged = accounts.entry(account_id).or_default();
            *charged = charged.saturating_add(cost.credits());
        }
        self.simpler.charged(&job_id, cost);
        self.first_job.get_or_insert(job_id);
        Ok(outcome)
    }

    async fn failed(&mut self, event: &CompletionEvent, now: Timestamp) -> Result<Outcome, Unfit> {
        let (ledger, queue) = (self.store.ledger(), self.store.queue());
        let answer = job_failed(ledger, queue, event, &self.settings.policy, Roll::FULL, now).await?;
        if answer.phase == Phase::RetryWaiting {
            self.time_mut().schedule.work_from(now);
        }
        self.get_to_know(&answer).await?;
        self.simpler.failed(&answer.job_id);
        Ok(answer.outcome)
    }

    async fn succeeded(&mut self, event: &CompletionEvent, now: Timestamp) -> Result<Outcome, Unfit> {
        let answer = job_succeeded(self.store.ledger(), event, now).await?;
        self.get_to_know(&answer).await?;
        self.simpler.succeeded(&answer.job_id);
        if answer.outcome == Outcome::Reclaimed {
            self.keep_story(answer.job_id);
        }
        Ok(answer.outcome)
    }

    /// A signal about a job that the ledger knew before the log: its cost stands there.
    async fn get_to_know(&mut self, answer: &Answer) -> Result<(), Unfit> {
        if !self.simpler.know(&answer.job_id)
            && let Some(job) = self.store.ledger().job(&answer.job_id).await?
        {
            self.simpler.charged(&job.job_id, job.cost);
        }
        Ok(())
    }

    /// Keeps one job worth looking at: a refund that was taken back, of the most expensive job.
    fn keep_story(&mut self, job_id: JobId) {
        let Some(cost) = self.simpler.cost(&job_id) else { return };
        if self.reclaimed.as_ref().is_none_or(|(most, _)| cost > *most) {
            self.reclaimed = Some((cost, job_id));
        }
    }

    /// Moves the clock to `at`, or leaves it where it is if that is later, and drains at every stop on the way that
    /// may have something to do.
    async fn advance_to(&mut self, at: Timestamp) -> Result<Timestamp, Stop> {
        if self.time.is_none() {
            let schedule = Schedule::new(at, self.every);
            self.time = Some(Time { clock: VirtualClock::new(at), first: at, schedule });
        }
        while let Some(stop) = self.time_mut().schedule.due(at) {
            self.drain_at(stop).await?;
            let quiet_until = self.quiet_until().await?;
            self.time_mut().schedule.ran(quiet_until);
            self.close_group_when_full()?;
        }
        let clock = &self.time().clock;
        clock.advance_to(at);
        Ok(clock.now())
    }

    async fn drain_at(&mut self, at: Timestamp) -> Result<(), Stop> {
        let clock = &self.time().clock;
        clock.advance_to(at);
        let target: Target<NoOutside> = Target::Nowhere;
        let (ledger, queue) = (self.store.ledger(), self.store.queue());
        let counts = drain(ledger, queue, &target, &self.settings, clock, Deadline::NONE).await?;
        self.drains += counts;
        Ok(())
    }

    async fn last_drain(&mut self) -> Result<(), Stop> {
        match &self.time {
            Some(time) => self.drain_at(time.clock.now()).await,
            None => Ok(()),
        }
    }

    /// The time, in milliseconds, before which a drain would change nothing, if no event comes.
    ///
    /// A drain acts on new entries, on claims that ran out, on parked entries that are due, and on what it finds in
    /// the ledger by its four indexes. Of the first two there must be none here. The others change with time only,
    /// and the earliest of each kind says when: an entry is parked for a waiting job, until that job's time, or
    /// later where it stands for a job that no longer waits, and then it is only dropped.
    async fn quiet_until(&self) -> Result<i64, Stop> {
        let depths = self.store.queue().depths().await?;
        if depths.retry > 0 || depths.in_flight > 0 {
            return Ok(i64::MIN);
        }
        let ever = Timestamp::from_millis(i64::MAX);
        let mut until = i64::MAX;
        for kind in Outstanding::ALL {
            let Some(wait) = self.wait_of(kind) else { continue };
            for earliest in self.store.ledger().outstanding(kind, ever, None, 1).await? {
                until = until.min(earliest.at.plus(wait).as_millis());
            }
        }
        Ok(until)
    }

    fn time(&self) -> &Time {
        self.time.as_ref().expect("the first event has begun it")
    }

    fn time_mut(&mut self) -> &mut Time {
        self.time.as_mut().expect("the first event has begun it")
    }

    /// How long after its time a job of this kind is a drain's business; `None`: never. The entry of an open hand-over
    /// may be parked until any time, so no drain is left out while there is one.
    fn wait_of(&self, kind: Outstanding) -> Option<Duration> {
        match kind {
            Outstanding::OverdueRetry | Outstanding::OpenHandOver => Some(Duration::ZERO),
            Outstanding::SilentFirstAttempt | Outstanding::SilentRetry => self.settings.attempt_timeout,
        }
    }

    fn close_group_when_full(&mut self) -> Result<(), Stop> {
        self.grouped += 1;
        if self.grouped >= GROUP {
            self.grouped = 0;
            self.store.commit_group()?;
            self.store.begin_group()?;
        }
        Ok(())
    }

    fn reject(&mut self, number: u64, why: &str) {
        self.outcomes.rejected += 1;
        self.progress.say(&format!("line {number}: rejected: {}", visible(why)));
    }

    fn findings(&self) -> Findings<'_> {
        let mut accounts: Vec<_> =
            self.accounts.iter().flatten().map(|(account, charged)| (account, *charged)).collect();
        accounts.sort_by(|(a, charged_a), (b, charged_b)| charged_b.cmp(charged_a).then(a.cmp(b)));
        Findings {
            span: self.time.as_ref().map(|time| (time.first, time.clock.now())),
            accounts,
            story: self.reclaimed.as_ref().map(|(_, job)| job).or(self.first_job.as_ref()),
        }
    }

    fn end(&self) -> Result<(), Stop> {
        let rejected = self.outcomes.rejected;
        if rejected == 0 {
            return Ok(());
        }
        Err(Stop::Refused(format!(
            "{} of {} rejected, and the rest replayed; correct the log and replay it again, which moves no money twice",
            grouped(rejected),
            count_of(self.events, "line")
        )))
    }
}

fn broke_off(line: u64, why: &str) -> Stop {
    Stop::Refused(format!(
        "the replay broke off at line {line}: {why}; run it again once that is mended: what stands moves no money twice"
    ))
}
