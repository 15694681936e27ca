//! Plays a list on a stage: turns each operation into calls of the handlers, behind the gate, and shows the auditor
//! what came of it.
//!
//! After the list comes the end that every life has: faults stop, clocks are right again, whatever was not answered
//! is delivered once more, and drains go on until they find nothing to do. Only then "lost" can be told from "late".

use std::collections::BTreeMap;
use std::time::Duration;

use recoup::backoff::{RetryPolicy, Roll};
use recoup::clock::{Clock, Deadline, Timestamp};
use recoup::dispatch::Target;
use recoup::event::CompletionEvent;
use recoup::handlers::StoreError;
use recoup::handlers::drain::{DrainCounts, DrainSettings, drain};
use recoup::handlers::failed::{job_failed, push_retry};
use recoup::handlers::succeeded::job_succeeded;
use recoup::job::{AccountId, Cost, EventId};
use recoup::ledger::{Ledger, LedgerError, LedgerReader};
use recoup::transition::{Charge, RedriveOutcome};

use super::audit::{Auditor, End, Passage, Standing, Violation};
use super::faulty::{FaultyDispatch, Workshop};
use super::gate::{Emptier, Flow, Gate, Process, Record};
use super::ops::{Answer, Fault, InTheEnd, Op, Scenario, Scheduler, Setup, Step, Workplace};
use super::props::{
    Event, about, account, accounts, answers, cost, foreign, job_id, junk_bytes, later, read_message,
};
use super::stage::Stage;

/// Ten o'clock, in ms: when every list begins.
const TEN: i64 = 1_768_471_200_000;
const CLAIM_TIMEOUT: Duration = Duration::from_secs(60);
const SWEEP_GRACE: Duration = Duration::from_secs(120);
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(3_600);
/// Longer than any backoff, claim, grace or attempt timeout here.
const A_LONG_WHILE: i64 = 3_601_000;
/// Rounds of drains in which every life comes to rest: two an attempt, and some to recover in.
const ROUNDS: usize = 60;
/// Jobs that a list may have.
const JOBS: usize = 100;

/// What one operation answered, and what stood then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The operation.
    pub what: String,
    /// Its answer.
    pub outcome: String,
    /// What stood.
    pub standing: Standing,
}

/// How much happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Lists.
    pub lists: u64,
    /// Operations of the lists, and of their ends.
    pub operations: u64,
    /// Calls of the ports.
    pub calls: u64,
    /// Faults that found their call.
    pub faults: u64,
    /// Processes that died.
    pub deaths: u64,
    /// Retries handed to workers.
    pub dispatched: u64,
    /// Jobs set aside.
    pub dead_lettered: u64,
    /// Entries that the sweep put back.
    pub swept: u64,
    /// Claims that were taken again.
    pub recovered: u64,
    /// Attempts that failed by silence.
    pub timed_out: u64,
    /// Where entries went.
    pub passage: Passage,
    /// Lists in which a server did not answer in time by itself, so that they could not be compared.
    pub disturbed: u64,
}

impl std::ops::AddAssign for Figures {
    fn add_assign(&mut self, other: Self) {
        self.lists += other.lists;
        self.operations += other.operations;
        self.calls += other.calls;
        self.faults += other.faults;
        self.deaths += other.deaths;
        self.dispatched += other.dispatched;
        self.dead_lettered += other.dead_lettered;
        self.swept += other.swept;
        self.recovered += other.recovered;
        self.timed_out += other.timed_out;
        self.passage.came += other.passage.came;
        self.passage.handed_over += other.passage.handed_over;
        self.passage.dropped += other.passage.dropped;
        self.passage.malformed += other.passage.malformed;
        self.passage.exhausted += other.passage.exhausted;
        self.passage.losses += other.passage.losses;
        self.disturbed += other.disturbed;
    }
}

/// A life that was played.
#[derive(Clone, Debug)]
pub struct Life {
    /// Each operation, those of the end included.
    pub seen: Vec<Seen>,
    /// How much happened.
    pub figures: Figures,
}

/// Plays a list.
///
/// # Errors
/// [`Violation`].
pub async fn play<S: Stage>(stage: &S, scenario: &Scenario) -> Result<Life, Violation> {
    let mut world = World {
        stage,
        setup: scenario.setup,
        now: Timestamp::from_millis(TEN),
        skew: [0; 2],
        workshop: Workshop::default(),
        outstanding: Vec::new(),
        auditor: Auditor::new(scenario.is_calm()),
        seen: Vec::new(),
        figures: Figures { lists: 1, ..Figures::default() },
    };
    for step in &scenario.steps {
        world.play(step).await?;
    }
    world.end().await?;
    world.figures.passage = world.auditor.passage;
    world.figures.disturbed = u64::from(!world.auditor.is_certain());
    Ok(Life { seen: world.seen, figures: world.figures })
}

/// A clock that stands for as long as an operation takes.
struct Standstill(Timestamp);

impl Clock for Standstill {
    fn now(&self) -> Timestamp {
        self.0
    }

    async fn sleep(&self, _by: Duration) {}
}

struct World<'s, S> {
    stage: &'s S,
    setup: Setup,
    now: Timestamp,
    skew: [i64; 2],
    workshop: Workshop,
    outstanding: Vec<Event>,
    auditor: Auditor,
    seen: Vec<Seen>,
    figures: Figures,
}

impl<S: Stage> World<'_, S> {
    async fn play(&mut self, step: &Step) -> Result<(), Violation> {
        let faults = &step.faults;
        let mut alone = true;
        let (record, outcome) = match step.op {
            Op::Charge { job } => self.deliver(vec![Event::Charge { job, cost: cost(job) }], faults).await,
            Op::ChargeOtherwise { job } => {
                self.deliver(vec![Event::Charge { job, cost: cost(job) + 1 }], faults).await
            }
            Op::Failed { job, attempt, retryable, id } => {
                let event_id = id.map(|id| EventId::new(format!("e{id}")).unwrap());
                let event = CompletionEvent { attempt, retryable, event_id, ..about(job_id(job)) };
                self.deliver(vec![Event::Failed(event)], faults).await
            }
            Op::Succeeded { job } => self.deliver(vec![Event::Succeeded(about(job_id(job)))], faults).await,
            Op::WrongAccount { job } => {
                let account_id = Some(AccountId::new("somebody else").unwrap());
                let event = CompletionEvent { account_id, ..about(job_id(job)) };
                self.deliver(vec![Event::Failed(event)], faults).await
            }
            Op::Drain { by } => self.drain(by, faults).await,
            Op::BothDrain { turns } => {
                alone = false;
                self.both_drain(turns, faults).await
            }
            Op::Work { then } => self.work(then, faults).await,
            Op::Redrive { job } => self.redrive(job, faults).await,
            Op::Wait { ms } => self.happens(|world| world.now = later(world.now, i64::from(ms))),
            Op::Skew { of, ms } => self.happens(|world| world.skew[of as usize] = ms),
            Op::Push { job, attempts, due } => self.push(foreign(job, attempts, due, self.now)).await,
            Op::PushJunk { junk } => self.push(junk_bytes(junk, self.now)).await,
            Op::RedisEmptied => {
                self.stage.empty().await;
                (Record { emptied: true, ..Record::default() }, String::new())
            }
        };
        self.look(format!("{step:?}"), record, alone, outcome).await
    }

    /// Shows the auditor what an operation did.
    async fn look(
        &mut self,
        what: String,
        record: Record,
        alone: bool,
        outcome: String,
    ) -> Result<(), Violation> {
        self.figures.operations += 1;
        self.figures.calls += u64::from(record.calls);
        self.figures.faults += record.faults_met;
        let standing = match self.seen.last() {
            Some(last) if record.changed_nothing() => last.standing.clone(),
            Some(_) | None => self.standing().await?,
        };
        self.auditor.after(&record, alone, &standing)?;
        self.seen.push(Seen { what, outcome, standing });
        Ok(())
    }

    async fn standing(&self) -> Result<Standing, Violation> {
        let reader = self.stage.reader();
        let mut jobs = BTreeMap::new();
        for (id, job) in reader.jobs(None, None, JOBS).await.map_err(unreadable)? {
            jobs.insert(id, job.map_err(unreadable)?);
        }
        let mut balances = BTreeMap::new();
        for account in accounts() {
            let balance = reader.balance(&account).await.map_err(unreadable)?;
            balances.insert(account.as_str().to_owned(), balance);
        }
        Ok(Standing { jobs, balances, rooms: self.stage.rooms().await })
    }

    fn happens(&mut self, change: impl FnOnce(&mut Self)) -> (Record, String) {
        change(self);
        (Record::default(), String::new())
    }

    async fn push(&mut self, raw: Vec<u8>) -> (Record, String) {
        self.stage.push_raw(&raw).await;
        (Record { flows: vec![Flow::Pushed(raw)], ..Record::default() }, String::new())
    }

    /// One process takes the events one after the other. What it does not answer comes again in the end.
    async fn deliver(&mut self, events: Vec<Event>, faults: &[Fault]) -> (Record, String) {
        let gate = Gate::new(faults, None, self.stage);
        let process = Process::new(&gate, Scheduler::A);
        let mut outcomes = Vec::new();
        let mut died = false;
        for event in events {
            let answer = if died { None } else { process.live(self.handle(&event, &process)).await };
            outcomes.push(match answer {
                None => {
                    died = true;
                    self.outstanding.push(event);
                    "died".to_owned()
                }
                Some(Ok(answer)) => {
                    if let Event::Succeeded(event) = &event {
                        self.auditor.success_was_taken(&event.job_id);
                    }
                    answer
                }
                Some(Err(error)) => {
                    if comes_again(&error) {
                        self.outstanding.push(event);
                    }
                    named(&error)
                }
            });
        }
        self.figures.deaths += u64::from(died);
        (gate.finish(), outcomes.join(", "))
    }

    async fn handle(&self, event: &Event, process: &Process<'_>) -> Result<String, LedgerError> {
        let (ledger, queue) = (self.stage.ledger(process), self.stage.queue(process));
        match event {
            Event::Charge { job, cost } => {
                let charge = Charge {
                    job_id: job_id(*job),
                    account_id: account(*job),
                    cost: Cost::new(*cost).unwrap(),
                    max_attempts: self.setup.max_attempts,
                    replayed: false,
                };
                Ok(format!("{:?}", ledger.charge(&charge, self.now).await?.outcome))
            }
            Event::Failed(event) => {
                let answer = job_failed(&ledger, &queue, event, &self.policy(), Roll::FULL, self.now).await?;
                Ok(format!("{answer:?}"))
            }
            Event::Succeeded(event) => Ok(format!("{:?}", job_succeeded(&ledger, event, self.now).await?)),
        }
    }

    async fn redrive(&mut self, job: u8, faults: &[Fault]) -> (Record, String) {
        let gate = Gate::new(faults, None, self.stage);
        let process = Process::new(&gate, Scheduler::A);
        let outcome = match process.live(self.send_back(job, &process)).await {
            None => "died".to_owned(),
            Some(Ok(outcome)) => format!("{outcome:?}"),
            Some(Err(error)) => named(&error),
        };
        (gate.finish(), outcome)
    }

    async fn send_back(&self, job: u8, process: &Process<'_>) -> Result<RedriveOutcome, LedgerError> {
        let (ledger, queue) = (self.stage.ledger(process), self.stage.queue(process));
        let applied = ledger.redrive(&job_id(job), self.setup.max_attempts, self.now).await?;
        if applied.outcome == RedriveOutcome::Redriven {
            push_retry(&queue, &applied.job).await;
        }
        Ok(applied.outcome)
    }

    async fn work(&mut self, then: Answer, faults: &[Fault]) -> (Record, String) {
        let mut flows = Vec::new();
        let message = match self.setup.workplace {
            Workplace::Ready => self.stage.take_ready().await.map(|raw| {
                flows.push(Flow::WorkerTook);
                read_message(&raw)
            }),
            Workplace::Outside => self.workshop.take().map(|message| (message.job_id, message.attempt)),
        };
        let Some((job_id, attempt)) = message else { return (Record::default(), "no work".to_owned()) };
        let (mut record, outcome) = self.deliver(answers(job_id, attempt, then), faults).await;
        record.flows.splice(0..0, flows);
        (record, outcome)
    }

    async fn drain(&mut self, by: Scheduler, faults: &[Fault]) -> (Record, String) {
        let gate = Gate::new(faults, None, self.stage);
        let process = Process::new(&gate, by);
        let drained = self.one_drain(&process, by).await;
        let outcome = self.count(drained);
        (gate.finish(), outcome)
    }

    async fn both_drain(&mut self, turns: u32, faults: &[Fault]) -> (Record, String) {
        let gate = Gate::new(faults, Some(turns), self.stage);
        let (a, b) = (Process::new(&gate, Scheduler::A), Process::new(&gate, Scheduler::B));
        let drained = tokio::join!(self.one_drain(&a, Scheduler::A), self.one_drain(&b, Scheduler::B));
        let outcome = format!("{}, {}", self.count(drained.0), self.count(drained.1));
        (gate.finish(), outcome)
    }

    async fn one_drain(
        &self,
        process: &Process<'_>,
        by: Scheduler,
    ) -> Option<Result<DrainCounts, StoreError>> {
        let (ledger, queue) = (self.stage.ledger(process), self.stage.queue(process));
        let target = match self.setup.workplace {
            Workplace::Ready => Target::ReadyList,
            Workplace::Outside => Target::Outside(FaultyDispatch::new(&self.workshop, process)),
        };
        let settings = DrainSettings {
            policy: self.policy(),
            claim_timeout: CLAIM_TIMEOUT,
            sweep_grace: SWEEP_GRACE,
            attempt_timeout: self.setup.attempt_timeout.then_some(ATTEMPT_TIMEOUT),
            roll: || Roll::FULL,
        };
        let clock = Standstill(later(self.now, self.skew[by as usize]));
        process.live(drain(&ledger, &queue, &target, &settings, &clock, Deadline::NONE)).await
    }

    fn count(&mut self, drained: Option<Result<DrainCounts, StoreError>>) -> String {
        match drained {
            None => {
                self.figures.deaths += 1;
                "died".to_owned()
            }
            Some(Ok(counts)) => {
                self.figures.dispatched += counts.dispatched;
                self.figures.dead_lettered += counts.dead_lettered;
                self.figures.swept += counts.swept;
                self.figures.recovered += counts.recovered;
                self.figures.timed_out += counts.timed_out;
                format!("{counts:?}")
            }
            Some(Err(StoreError::Ledger(error))) => format!("stopped by the ledger, {}", named(&error)),
            Some(Err(StoreError::Queue(_))) => "stopped by the queue".to_owned(),
        }
    }

    fn policy(&self) -> RetryPolicy {
        RetryPolicy { max_attempts: self.setup.max_attempts, ..RetryPolicy::default() }
    }

    /// The end that every life has.
    async fn end(&mut self) -> Result<(), Violation> {
        // As far as the fastest clock was ahead: what it wrote must lie in the past.
        self.skew = [0; 2];
        self.now = later(self.now, 3 * A_LONG_WHILE);
        self.deliver_again().await?;
        self.come_to_rest().await?;
        let (statement, totals) = self.what_is_told().await.map_err(unreadable)?;
        let outstanding: Vec<String> =
            self.outstanding.iter().filter(|event| self.could_be_taken(event)).map(Event::describe).collect();
        let attempt_timeout = self.setup.attempt_timeout;
        let end = End { outstanding: &outstanding, attempt_timeout, statement: &statement, totals: &totals };
        self.auditor.at_the_end(&end)
    }

    /// An event of a job that nobody charged is never taken, and ends in its source's own dead letters.
    fn could_be_taken(&self, event: &Event) -> bool {
        let id = match event {
            Event::Charge { .. } => return true,
            Event::Failed(event) | Event::Succeeded(event) => event.job_id.as_str(),
        };
        self.seen.last().is_some_and(|seen| seen.standing.jobs.contains_key(id))
    }

    /// Twice, since the charge of a job may come behind its success.
    async fn deliver_again(&mut self) -> Result<(), Violation> {
        for _ in 0..2 {
            for event in std::mem::take(&mut self.outstanding) {
                let what = format!("{} comes again", event.describe());
                let (record, outcome) = self.deliver(vec![event], &[]).await;
                self.look(what, record, true, outcome).await?;
            }
        }
        Ok(())
    }

    /// Drains by turns, a long while apart, until two in a row find nothing to do.
    async fn come_to_rest(&mut self) -> Result<(), Violation> {
        let mut quiet = 0;
        for round in 0..ROUNDS {
            let by = if round % 2 == 0 { Scheduler::A } else { Scheduler::B };
            let (record, outcome) = self.drain(by, &[]).await;
            let idle = outcome == format!("{:?}", DrainCounts::default());
            self.look("a drain in the end".to_owned(), record, true, outcome).await?;
            let worked = self.work_off().await?;
            quiet = if idle && !worked { quiet + 1 } else { 0 };
            if quiet == 2 {
                return Ok(());
            }
            self.now = later(self.now, A_LONG_WHILE);
        }
        Err(Violation { claim: "a life comes to rest", seen: self.last_words() })
    }

    fn last_words(&self) -> String {
        let last = self.seen.last().map(|seen| format!("{}: {:?}", seen.outcome, seen.standing));
        format!("after {ROUNDS} rounds {}", last.unwrap_or_default())
    }

    /// Everything that the workers have is done, where this life ends in work.
    async fn work_off(&mut self) -> Result<bool, Violation> {
        let mut worked = false;
        while self.setup.in_the_end == InTheEnd::Work {
            let (record, outcome) = self.work(Answer::Succeeds, &[]).await;
            if outcome == "no work" {
                break;
            }
            worked = true;
            self.look("work in the end".to_owned(), record, true, outcome).await?;
        }
        Ok(worked)
    }

    async fn what_is_told(
        &self,
    ) -> Result<(Vec<(String, String, i64)>, recoup::ledger::Totals), LedgerError> {
        let reader = self.stage.reader();
        let mut statement = Vec::new();
        for account in accounts() {
            let mut row = |row: recoup::job::LedgerRow| {
                statement.push((row.account_id.as_str().to_owned(), row.id, row.amount));
            };
            reader.statement(&account, None, &mut row).await?;
        }
        Ok((statement, reader.totals().await?))
    }
}

impl<S: Stage> Emptier for S {
    fn lose(&self) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.empty())
    }
}

/// Whether the event source delivers again after this answer: not where the event itself is at fault.
fn comes_again(error: &LedgerError) -> bool {
    match error {
        LedgerError::AccountMismatch { .. } => false,
        LedgerError::UnknownJob(_)
        | LedgerError::Unavailable { .. }
        | LedgerError::Unreadable { .. }
        | LedgerError::Refused { .. }
        | LedgerError::Overflow(_) => true,
    }
}

/// The error's kind: the same on every store.
fn named(error: &LedgerError) -> String {
    match error {
        LedgerError::UnknownJob(_) => "unknown job".to_owned(),
        LedgerError::AccountMismatch { .. } => "another account".to_owned(),
        LedgerError::Unavailable { .. } => "unavailable".to_owned(),
        LedgerError::Unreadable { .. } | LedgerError::Refused { .. } | LedgerError::Overflow(_) => {
            error.to_string()
        }
    }
}

fn unreadable(error: LedgerError) -> Violation {
    Violation { claim: "the ledger can be read", seen: error.to_string() }
}
