//! The auditor: after every operation and at the end, what went in must have come out.
//!
//! It knows nothing of guards, claims or sweeps. It compares what stands now with what stood before, what the ports
//! really did ([`Flow`]) with what is there, and the money with what was answered. Each complaint names the claim
//! that was broken.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;

use recoup::job::{Entry, EntryType, Job, JobId, Phase};
use recoup::ledger::Totals;
use recoup::queue::entry::parse_member;
use recoup::queue::{Intake, List};
use recoup::transition::{
    ChargeOutcome, DispatchOutcome, ExhaustedOutcome, FailureOutcome, SilenceOutcome, SuccessOutcome,
};
use serde_json::Value;

use super::gate::{Flow, Record};
use super::stage::InRooms;

/// A claim that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The claim.
    pub claim: &'static str,
    /// What was seen instead.
    pub seen: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "it does not hold that {}: {}", self.claim, self.seen)
    }
}

fn hold(holds: bool, claim: &'static str, seen: impl FnOnce() -> String) -> Result<(), Violation> {
    if holds { Ok(()) } else { Err(Violation { claim, seen: seen() }) }
}

/// What stands after an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The jobs, by id.
    pub jobs: BTreeMap<String, Job>,
    /// The balances that the ledger answers, by account.
    pub balances: BTreeMap<String, i64>,
    /// The queue.
    pub rooms: InRooms,
}

/// How much went where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passage {
    /// Entries that came to the list or were put back by the sweep.
    pub came: u64,
    /// Claims that ended with a message.
    pub handed_over: u64,
    /// Claims that ended without.
    pub dropped: u64,
    /// Entries that were none.
    pub malformed: u64,
    /// Jobs set aside because their claims ran out too often.
    pub exhausted: u64,
    /// Losses of everything in the queue.
    pub losses: u64,
}

/// What the auditor remembers.
#[derive(Debug)]
pub struct Auditor {
    calm: bool,
    jobs: BTreeMap<String, Job>,
    rooms: InRooms,
    /// By account, from the answers alone.
    answered: BTreeMap<String, i64>,
    charges: usize,
    refunds: usize,
    reclaims: usize,
    /// Attempts that were handed to the workers, and how often.
    handed_over: HashMap<(String, u32), u32>,
    /// Jobs that were set aside, and after how many failures.
    set_aside: HashMap<String, u32>,
    /// Jobs whose dead letter was written.
    letters: HashSet<String>,
    /// Jobs whose success was answered with an outcome.
    succeeded: BTreeSet<String>,
    /// False once a store did not answer by itself: what was applied is then not known.
    certain: bool,
    /// Decisions of the ledger on a claim that a drain was not told.
    undecided: u64,
    /// How much went where.
    pub passage: Passage,
}

impl Auditor {
    /// Over empty stores. `calm`: nothing may happen twice or early.
    pub fn new(calm: bool) -> Self {
        Self {
            calm,
            jobs: BTreeMap::new(),
            rooms: InRooms::default(),
            answered: BTreeMap::new(),
            charges: 0,
            refunds: 0,
            reclaims: 0,
            handed_over: HashMap::new(),
            set_aside: HashMap::new(),
            letters: HashSet::new(),
            succeeded: BTreeSet::new(),
            certain: true,
            undecided: 0,
            passage: Passage::default(),
        }
    }

    /// Whether every call of the stores was answered.
    pub fn is_certain(&self) -> bool {
        self.certain
    }

    /// A success of this job was answered with an outcome.
    pub fn success_was_taken(&mut self, job_id: &JobId) {
        self.succeeded.insert(job_id.as_str().to_owned());
    }

    /// Looks at what an operation did. `alone`: no second process was at work.
    ///
    /// # Errors
    /// [`Violation`].
    pub fn after(&mut self, record: &Record, alone: bool, now: &Standing) -> Result<(), Violation> {
        if let Some(broken) = &record.broken {
            return hold(false, "a store takes what it should and reads what it wrote", || broken.clone());
        }
        self.certain &= record.disturbed.is_none();
        self.undecided += record.undecided;
        self.count(record)?;
        self.jobs_go_forward(now)?;
        if self.certain {
            self.money_is_what_was_answered(now)?;
            if record.emptied {
                self.passage.losses += 1;
            } else {
                self.entries_are_accounted_for(record, now)?;
                self.nothing_wanted_is_dropped(record, alone, now)?;
            }
        }
        self.jobs.clone_from(&now.jobs);
        self.rooms.clone_from(&now.rooms);
        Ok(())
    }

    fn count(&mut self, record: &Record) -> Result<(), Violation> {
        for flow in &record.flows {
            match flow {
                Flow::Charge(ChargeOutcome::Charged, job) => {
                    self.charges += 1;
                    self.answer(job, EntryType::Charge);
                }
                Flow::Failure(FailureOutcome::Refunded, job)
                | Flow::Silence(SilenceOutcome::Refunded, job) => {
                    self.refunds += 1;
                    self.answer(job, EntryType::Refund);
                }
                Flow::Success(SuccessOutcome::Reclaimed, job) => {
                    self.reclaims += 1;
                    self.answer(job, EntryType::Reclaim);
                }
                Flow::Dispatch(DispatchOutcome::Dispatched, job, at) if self.calm => {
                    let before = self.jobs.get(job.job_id.as_str());
                    let due = before
                        .filter(|b| b.phase == Phase::RetryWaiting && b.attempts == job.attempts)
                        .and_then(|b| b.not_before);
                    hold(due.is_none_or(|due| due <= *at), "no retry is dispatched early", || {
                        format!("{} at {at}, due at {due:?}", job.job_id)
                    })?;
                }
                Flow::HandedOver { member, to, message } => self.note_message(member, *to, message)?,
                Flow::Sent(message) => {
                    self.note_work(message.job_id.as_str().to_owned(), message.attempt)?;
                }
                Flow::Noted(job_id, attempts) => {
                    let work = (job_id.as_str().to_owned(), attempts.saturating_add(1));
                    hold(
                        self.handed_over.contains_key(&work),
                        "a recorded hand-over was pushed before",
                        || format!("{work:?} was recorded and never pushed"),
                    )?;
                }
                Flow::Pushed(_) => self.passage.came += 1,
                Flow::Dispatch(DispatchOutcome::DeadLettered, job, _) => self.note_set_aside(job),
                Flow::Exhausted(ExhaustedOutcome::DeadLettered, job) => {
                    self.passage.exhausted += 1;
                    self.note_set_aside(job);
                }
                Flow::Taken(_)
                | Flow::Parked(_)
                | Flow::Acknowledged(_)
                | Flow::WorkerTook
                | Flow::Charge(..)
                | Flow::Failure(..)
                | Flow::Success(..)
                | Flow::Silence(..)
                | Flow::Redrive(..)
                | Flow::Dispatch(..)
                | Flow::Exhausted(..) => {}
            }
        }
        Ok(())
    }

    fn answer(&mut self, job: &Job, kind: EntryType) {
        *self.answered.entry(job.account_id.as_str().to_owned()).or_default() += kind.amount(job.cost);
    }

    fn note_set_aside(&mut self, job: &Job) {
        self.set_aside.insert(job.job_id.as_str().to_owned(), job.attempts);
    }

    /// Whether the letter must be there. It need not be where Redis was lost, or the ledger's answer to a drain, or
    /// where a later failure was counted since: the entry that would have brought it is stale then.
    fn owes_a_letter(&self, job: &Job) -> bool {
        job.phase == Phase::DeadLettered
            && self.certain
            && self.passage.losses == 0
            && self.undecided == 0
            && self.set_aside.get(job.job_id.as_str()) == Some(&job.attempts)
    }

    fn note_work(&mut self, job_id: String, attempt: u32) -> Result<(), Violation> {
        let times = self.handed_over.entry((job_id.clone(), attempt)).or_default();
        *times += 1;
        hold(!self.calm || *times == 1, "where nothing goes wrong, an attempt is handed over once", || {
            format!("attempt {attempt} of {job_id} was handed over {times} times")
        })
    }

    /// The message of a claim is about the entry that was claimed.
    fn note_message(&mut self, member: &[u8], to: List, message: &str) -> Result<(), Violation> {
        let claim = "a message is about the entry whose claim it ends";
        let seen = || format!("{} ended with {message}", String::from_utf8_lossy(member));
        let read: Value = serde_json::from_str(message).unwrap_or(Value::Null);
        let parsed = parse_member(member).ok();
        let about = parsed.filter(|(job_id, _)| read["job_id"] == job_id.as_str());
        match (to, about) {
            (List::Ready, Some((job_id, attempts))) => {
                let attempt = attempts.saturating_add(1);
                hold(read["attempt"] == attempt, claim, seen)?;
                self.note_work(job_id.as_str().to_owned(), attempt)
            }
            (List::DeadLetter, Some((job_id, attempts))) => {
                hold(read["attempts"] == attempts, claim, seen)?;
                self.letters.insert(job_id.as_str().to_owned());
                Ok(())
            }
            (List::DeadLetter, None) => hold(read["reason"] == "malformed", claim, seen),
            (List::Ready, None) => hold(false, claim, seen),
        }
    }

    fn jobs_go_forward(&self, now: &Standing) -> Result<(), Violation> {
        for job in now.jobs.values() {
            let wrong = job.violations();
            hold(wrong.is_empty(), "every job keeps its invariants", || {
                format!("{}: {}", job.job_id, wrong.join("; "))
            })?;
        }
        for (id, before) in &self.jobs {
            let after = now.jobs.get(id);
            hold(after.is_some(), "a job never goes away", || id.clone())?;
            if let Some(after) = after {
                goes_forward(before, after)?;
            }
        }
        Ok(())
    }

    fn money_is_what_was_answered(&self, now: &Standing) -> Result<(), Violation> {
        let mut sums: BTreeMap<String, i64> = BTreeMap::new();
        for job in now.jobs.values() {
            let sum: i64 = job.entries.iter().map(|entry| entry.amount).sum();
            *sums.entry(job.account_id.as_str().to_owned()).or_default() += sum;
        }
        hold(sums == self.answered, "the entries add up to what was answered", || {
            format!("entries {sums:?}, answers {:?}", self.answered)
        })?;
        let balances: BTreeMap<_, _> =
            now.balances.clone().into_iter().filter(|(_, sum)| *sum != 0).collect();
        sums.retain(|_, sum| *sum != 0);
        hold(sums == balances, "a balance is the sum of its entries", || {
            format!("balances {balances:?}, entries {sums:?}")
        })?;
        let of = |kind| {
            let entries = now.jobs.values().flat_map(|job| &job.entries);
            entries.filter(|entry| entry.kind == kind).count()
        };
        let there = [of(EntryType::Charge), of(EntryType::Refund), of(EntryType::Reclaim), now.jobs.len()];
        let expected = [self.charges, self.refunds, self.reclaims, self.charges];
        hold(there == expected, "every entry and every job has its one answer", || {
            format!("charges, refunds, reclaims, jobs: {there:?} there, {expected:?} answered")
        })
    }

    /// Each room is what it was, and what came, without what went.
    fn entries_are_accounted_for(&mut self, record: &Record, now: &Standing) -> Result<(), Violation> {
        let mut lists = self.rooms.clone();
        let mut known = members(&self.rooms);
        let mut let_go = HashSet::new();
        for flow in &record.flows {
            match flow {
                Flow::Pushed(raw) => lists.new.push(raw.clone()),
                Flow::Taken(entries) => {
                    for entry in entries {
                        let head = (!lists.new.is_empty()).then(|| lists.new.remove(0));
                        hold(
                            head.as_ref() == Some(&entry.raw),
                            "only the head of the list is taken",
                            || format!("{:?} was taken", String::from_utf8_lossy(&entry.raw)),
                        )?;
                        match &entry.intake {
                            Intake::Park(parked) => {
                                known.insert(parked.canonical().into_bytes());
                            }
                            Intake::Malformed(line) => {
                                self.passage.malformed += 1;
                                lists.dead_letters.push(line.clone().into_bytes());
                            }
                        }
                    }
                }
                Flow::Parked(entries) => {
                    known.extend(entries.iter().map(|entry| entry.canonical().into_bytes()));
                }
                Flow::HandedOver { member, to, message } => {
                    self.passage.handed_over += 1;
                    let_go.insert(member.clone());
                    match to {
                        List::Ready => lists.ready.push(message.clone().into_bytes()),
                        List::DeadLetter => lists.dead_letters.push(message.clone().into_bytes()),
                    }
                }
                Flow::Acknowledged(member) => {
                    self.passage.dropped += 1;
                    let_go.insert(member.clone());
                }
                Flow::WorkerTook => {
                    if !lists.ready.is_empty() {
                        lists.ready.remove(0);
                    }
                }
                Flow::Charge(..)
                | Flow::Failure(..)
                | Flow::Success(..)
                | Flow::Silence(..)
                | Flow::Redrive(..)
                | Flow::Dispatch(..)
                | Flow::Exhausted(..)
                | Flow::Noted(..)
                | Flow::Sent(_) => {}
            }
        }
        same_list("the list of new entries", &lists.new, &now.rooms.new)?;
        same_list("the workers' list", &lists.ready, &now.rooms.ready)?;
        same_list("the dead-letter list", &lists.dead_letters, &now.rooms.dead_letters)?;
        let stands = members(&now.rooms);
        for member in &known {
            hold(
                stands.contains(member) || let_go.contains(member),
                "an entry leaves the queue only handed over, dropped, or lost with Redis",
                || format!("{} is gone", String::from_utf8_lossy(member)),
            )?;
        }
        for member in &stands {
            hold(known.contains(member), "an entry that waits was pushed or swept", || {
                format!("{} came from nowhere", String::from_utf8_lossy(member))
            })?;
        }
        Ok(())
    }

    /// With a second process at work, what was not wanted a moment ago may be wanted now; so this is for one alone.
    fn nothing_wanted_is_dropped(
        &self,
        record: &Record,
        alone: bool,
        now: &Standing,
    ) -> Result<(), Violation> {
        if !alone {
            return Ok(());
        }
        for flow in &record.flows {
            let Flow::Acknowledged(member) = flow else { continue };
            let Ok((job_id, attempts)) = parse_member(member) else { continue };
            let Some(job) = now.jobs.get(job_id.as_str()).filter(|job| job.attempts == attempts) else {
                continue;
            };
            let wanted = job.phase == Phase::RetryWaiting || hand_over_is_open(job);
            hold(!wanted, "nothing that is wanted is dropped", || {
                format!("{} was dropped while the job is {}", String::from_utf8_lossy(member), job.phase)
            })?;
        }
        Ok(())
    }

    /// Looks at what stands once everything outstanding was delivered again and drains found nothing to do.
    ///
    /// # Errors
    /// [`Violation`].
    pub fn at_the_end(&self, end: &End<'_>) -> Result<(), Violation> {
        let jobs = &self.jobs;
        hold(end.outstanding.is_empty(), "every event is taken in the end", || end.outstanding.join(", "))?;
        for job in jobs.values() {
            let id = &job.job_id;
            let story = || format!("{id} is {} after {} failures: {job:?}", job.phase, job.attempts);
            hold(
                job.phase != Phase::RetryWaiting,
                "every retry ends in an attempt, a delivery or set aside",
                story,
            )?;
            hold(!hand_over_is_open(job), "no hand-over stays open", story)?;
            hold(
                !(end.attempt_timeout && job.phase == Phase::Running),
                "with an attempt timeout, silence ends",
                story,
            )?;
            hold(
                !self.owes_a_letter(job) || self.letters.contains(id.as_str()),
                "a job that is set aside has its letter",
                story,
            )?;
        }
        for id in &self.succeeded {
            let job = jobs.get(id);
            let paid = job.is_some_and(|job| job.phase == Phase::Delivered && job.net == -job.cost.credits());
            hold(paid, "delivered work is paid exactly once", || format!("{id}: {job:?}"))?;
        }
        self.entries_are_told(end)
    }

    /// Totals and statements say what the entries say.
    fn entries_are_told(&self, end: &End<'_>) -> Result<(), Violation> {
        let told: BTreeSet<(String, String, i64)> = end.statement.iter().cloned().collect();
        let row = |job: &Job, entry: &Entry| {
            (job.account_id.as_str().to_owned(), format!("{}:{}", job.job_id, entry.kind), entry.amount)
        };
        let rows: BTreeSet<_> =
            self.jobs.values().flat_map(|job| job.entries.iter().map(|entry| row(job, entry))).collect();
        hold(told == rows && end.statement.len() == rows.len(), "a statement has every entry once", || {
            format!("told {:?}, there {rows:?}", end.statement)
        })?;
        let sum = |kind| {
            let entries = self.jobs.values().flat_map(|job| &job.entries);
            entries.filter(|entry| entry.kind == kind).map(|entry| entry.amount.abs()).sum::<i64>()
        };
        let accounts: BTreeSet<&str> = self.jobs.values().map(|job| job.account_id.as_str()).collect();
        let expected = Totals {
            jobs: self.jobs.len() as u64,
            accounts: accounts.len() as u64,
            charged: sum(EntryType::Charge),
            refunded: sum(EntryType::Refund),
            reclaimed: sum(EntryType::Reclaim),
            waiting: 0,
            given_away: 0,
        };
        hold(*end.totals == expected, "the totals are what the entries add up to", || {
            format!("{:?}, expected {expected:?}", end.totals)
        })
    }
}

/// What the auditor is shown at the end.
#[derive(Debug)]
pub struct End<'a> {
    /// Events that nobody took.
    pub outstanding: &'a [String],
    /// Whether silence becomes a failure.
    pub attempt_timeout: bool,
    /// The rows of all statements: account, id, amount.
    pub statement: &'a [(String, String, i64)],
    /// The totals.
    pub totals: &'a Totals,
}

fn hand_over_is_open(job: &Job) -> bool {
    job.phase == Phase::Running && job.attempts > 0 && job.dispatched_at.is_none()
}

fn members(rooms: &InRooms) -> HashSet<Vec<u8>> {
    rooms.parked.iter().chain(&rooms.in_flight).map(|(member, _)| member.clone()).collect()
}

fn goes_forward(before: &Job, after: &Job) -> Result<(), Violation> {
    let story = || format!("before {before:?}, after {after:?}");
    hold(after.entries.starts_with(&before.entries), "an entry once written stays as it is", story)?;
    hold(after.attempts >= before.attempts, "attempts never goes down", story)?;
    hold(
        before.phase != Phase::Delivered || after.phase == Phase::Delivered,
        "nothing leads out of delivered",
        story,
    )?;
    let origin = |job: &Job| (job.account_id.clone(), job.cost, job.created_at, job.replayed);
    hold(origin(before) == origin(after), "what a job was charged as never changes", story)
}

fn same_list(which: &str, expected: &[Vec<u8>], there: &[Vec<u8>]) -> Result<(), Violation> {
    let text = |list: &[Vec<u8>]| {
        list.iter().map(|raw| String::from_utf8_lossy(raw).into_owned()).collect::<Vec<_>>()
    };
    hold(expected == there, "a list holds what came to it and did not leave", || {
        format!("{which} holds {:?}, expected {:?}", text(there), text(expected))
    })
}
