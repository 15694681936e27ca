//! The reference: a ledger that is nothing but [`recoup::transition`] over a map, and a queue in memory.
//!
//! As small as they can be, so that reading them is enough to believe them; the conformance suites of the real stores
//! run on them all the same. What a list does here is what it must do on every store.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use recoup::backoff::Delays;
use recoup::clock::Timestamp;
use recoup::job::{AccountId, EntryType, Job, JobId, LedgerRow, Phase};
use recoup::ledger::{
    Applied, Cursor, Found, JobOrFault, Ledger, LedgerError, LedgerReader, Outstanding, Totals, check_account,
};
use recoup::queue::{
    Claim, Depths, Intake, List, MAX_LOOK_BYTES, NewEntry, QueueError, RetryEntry, RetryQueue,
};
use recoup::transition::{
    self, Charge, ChargeOutcome, DispatchOutcome, ExhaustedOutcome, Failure, FailureOutcome, RedriveOutcome,
    SilenceOutcome, Step, SuccessOutcome,
};

use crate::queue_rooms::Rooms;

/// The ledger, by job id.
#[derive(Clone, Debug, Default)]
pub struct MemoryLedger(Arc<Mutex<BTreeMap<String, Job>>>);

impl MemoryLedger {
    fn jobs(&self) -> MutexGuard<'_, BTreeMap<String, Job>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the job as it is, by no rule.
    pub fn overwrite(&self, job: Job) {
        self.jobs().insert(job.job_id.as_str().to_owned(), job);
    }

    fn guarded<O>(
        &self,
        job_id: &JobId,
        account_id: Option<&AccountId>,
        rule: impl FnOnce(&Job) -> Step<O>,
    ) -> Result<Applied<O>, LedgerError> {
        let mut jobs = self.jobs();
        let job = jobs.get_mut(job_id.as_str()).ok_or_else(|| LedgerError::UnknownJob(job_id.clone()))?;
        check_account(job, account_id)?;
        let Step { outcome, after } = rule(job);
        if let Some(after) = after {
            *job = after;
        }
        Ok(Applied { outcome, job: job.clone() })
    }

    /// Every entry, with its place in its job.
    fn rows(&self) -> Vec<(usize, LedgerRow)> {
        let row = |job: &Job, entry| LedgerRow::new(job.job_id.clone(), job.account_id.clone(), entry);
        self.jobs()
            .values()
            .flat_map(|job| job.entries.iter().enumerate().map(|(at, entry)| (at, row(job, *entry))))
            .collect()
    }
}

fn known<T>(answer: Result<T, LedgerError>) -> Result<Option<T>, LedgerError> {
    match answer {
        Err(LedgerError::UnknownJob(_)) => Ok(None),
        answer => answer.map(Some),
    }
}

fn fit(sum: i128, of: &str) -> Result<i64, LedgerError> {
    i64::try_from(sum).map_err(|_| LedgerError::Overflow(of.to_owned()))
}

impl Ledger for MemoryLedger {
    async fn charge(&self, charge: &Charge, now: Timestamp) -> Result<Applied<ChargeOutcome>, LedgerError> {
        let mut jobs = self.jobs();
        if let Some(job) = jobs.get(charge.job_id.as_str()) {
            return Ok(Applied { outcome: transition::charged_before(job, charge), job: job.clone() });
        }
        let job = transition::charged(charge, now);
        jobs.insert(job.job_id.as_str().to_owned(), job.clone());
        Ok(Applied { outcome: ChargeOutcome::Charged, job })
    }

    async fn record_failure(
        &self,
        job_id: &JobId,
        account_id: Option<&AccountId>,
        failure: &Failure,
        now: Timestamp,
    ) -> Result<Applied<FailureOutcome>, LedgerError> {
        self.guarded(job_id, account_id, |job| transition::failure(job, failure, now))
    }

    async fn record_success(
        &self,
        job_id: &JobId,
        account_id: Option<&AccountId>,
        now: Timestamp,
    ) -> Result<Applied<SuccessOutcome>, LedgerError> {
        self.guarded(job_id, account_id, |job| transition::success(job, now))
    }

    async fn dispatch(
        &self,
        job_id: &JobId,
        attempts: u32,
        ran_out: bool,
        now: Timestamp,
    ) -> Result<Option<Applied<DispatchOutcome>>, LedgerError> {
        known(self.guarded(job_id, None, |job| transition::dispatch(job, attempts, ran_out, now)))
    }

    async fn hand_over_done(
        &self,
        job_id: &JobId,
        attempts: u32,
        now: Timestamp,
    ) -> Result<bool, LedgerError> {
        let done = self.guarded(job_id, None, |job| transition::hand_over_done(job, attempts, now));
        Ok(known(done)?.is_some_and(|done| done.outcome))
    }

    async fn claims_exhausted(
        &self,
        job_id: &JobId,
        attempts: u32,
        first_claim: Timestamp,
        now: Timestamp,
    ) -> Result<Option<Applied<ExhaustedOutcome>>, LedgerError> {
        known(self.guarded(job_id, None, |job| transition::claims_exhausted(job, attempts, first_claim, now)))
    }

    async fn no_signal(
        &self,
        job_id: &JobId,
        k: u32,
        timeout: Duration,
        delays: &Delays,
        now: Timestamp,
    ) -> Result<Applied<SilenceOutcome>, LedgerError> {
        self.guarded(job_id, None, |job| transition::no_signal(job, k, timeout, delays, now))
    }

    async fn redrive(
        &self,
        job_id: &JobId,
        allowance: u32,
        now: Timestamp,
    ) -> Result<Applied<RedriveOutcome>, LedgerError> {
        self.guarded(job_id, None, |job| transition::redrive(job, allowance, now))
    }

    async fn at_cap(&self, retries: &[(JobId, u32)]) -> Result<HashSet<(JobId, u32)>, LedgerError> {
        let jobs = self.jobs();
        let at_cap = |(job_id, attempts): &&(JobId, u32)| {
            jobs.get(job_id.as_str()).is_some_and(|job| {
                job.phase == Phase::RetryWaiting
                    && job.attempts == *attempts
                    && job.attempts >= job.max_attempts
            })
        };
        Ok(retries.iter().filter(at_cap).cloned().collect())
    }

    async fn outstanding(
        &self,
        kind: Outstanding,
        until: Timestamp,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Vec<Found>, LedgerError> {
        let found = |job: &Job| {
            let running = job.phase == Phase::Running;
            let at = match kind {
                Outstanding::OverdueRetry if job.phase == Phase::RetryWaiting => job.not_before,
                Outstanding::OpenHandOver if running && job.attempts > 0 && job.dispatched_at.is_none() => {
                    Some(job.updated_at)
                }
                Outstanding::SilentFirstAttempt if running && job.attempts == 0 => Some(job.created_at),
                Outstanding::SilentRetry if running && job.attempts > 0 => job.dispatched_at,
                Outstanding::OverdueRetry
                | Outstanding::OpenHandOver
                | Outstanding::SilentFirstAttempt
                | Outstanding::SilentRetry => None,
            };
            at.map(|at| Found { job_id: job.job_id.clone(), attempts: job.attempts, at })
        };
        let place = |found: &Found| (found.at.as_millis(), found.job_id.as_str().to_owned());
        let mut page: Vec<Found> = self.jobs().values().filter_map(found).collect();
        page.retain(|found| found.at <= until);
        page.retain(|found| after.is_none_or(|after| place(found) > (after.at_ms, after.job_id.clone())));
        page.sort_by_key(place);
        page.truncate(limit);
        Ok(page)
    }
}

impl LedgerReader for MemoryLedger {
    async fn job(&self, job_id: &JobId) -> Result<Option<Job>, LedgerError> {
        Ok(self.jobs().get(job_id.as_str()).cloned())
    }

    async fn balance(&self, account_id: &AccountId) -> Result<i64, LedgerError> {
        let rows = self.rows();
        let of_account = rows.iter().filter(|(_, row)| row.account_id == *account_id);
        fit(of_account.map(|(_, row)| i128::from(row.amount)).sum(), account_id.as_str())
    }

    async fn statement(
        &self,
        account_id: &AccountId,
        until: Option<Timestamp>,
        each: &mut (dyn FnMut(LedgerRow) + Send),
    ) -> Result<(), LedgerError> {
        let mut rows = self.rows();
        rows.retain(|(_, row)| {
            row.account_id == *account_id && until.is_none_or(|until| row.created_at < until)
        });
        rows.sort_by_key(|(at, row)| (row.created_at, *at, row.job_id.clone()));
        rows.into_iter().for_each(|(_, row)| each(row));
        Ok(())
    }

    async fn jobs(
        &self,
        phase: Option<Phase>,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(String, JobOrFault)>, LedgerError> {
        let jobs = MemoryLedger::jobs(self);
        let page = jobs
            .iter()
            .filter(|(id, job)| {
                after.is_none_or(|after| id.as_str() > after) && phase.is_none_or(|phase| job.phase == phase)
            })
            .take(limit);
        Ok(page.map(|(id, job)| (id.clone(), Ok(job.clone()))).collect())
    }

    async fn totals(&self) -> Result<Totals, LedgerError> {
        let of_type = |kind| {
            let rows = self.rows();
            let amounts = rows.iter().filter(|(_, row)| row.kind == kind);
            fit(amounts.map(|(_, row)| i128::from(row.amount).abs()).sum(), "all entries of a type")
        };
        let (charged, refunded, reclaimed) =
            (of_type(EntryType::Charge)?, of_type(EntryType::Refund)?, of_type(EntryType::Reclaim)?);
        let jobs = MemoryLedger::jobs(self);
        let accounts: BTreeSet<&str> = jobs.values().map(|job| job.account_id.as_str()).collect();
        let delivered = jobs.values().filter(|job| job.phase == Phase::Delivered);
        let given_away = delivered.map(|job| i128::from(job.cost.credits()) + i128::from(job.net)).sum();
        Ok(Totals {
            jobs: jobs.len() as u64,
            accounts: accounts.len() as u64,
            charged,
            refunded,
            reclaimed,
            waiting: jobs.values().filter(|job| job.phase == Phase::RetryWaiting).count() as u64,
            given_away: fit(given_away, "delivered jobs")?,
        })
    }

    async fn any_live_job(&self) -> Result<Option<String>, LedgerError> {
        Ok(MemoryLedger::jobs(self).iter().find(|(_, job)| !job.replayed).map(|(id, _)| id.clone()))
    }
}

#[derive(Clone, Copy, Debug)]
struct Held {
    deadline: Timestamp,
    expired_claims: u32,
    first_claim: Timestamp,
}

#[derive(Debug, Default)]
struct State {
    new: VecDeque<Vec<u8>>,
    parked: BTreeMap<Vec<u8>, i64>,
    in_flight: BTreeMap<Vec<u8>, Held>,
    ready: VecDeque<Vec<u8>>,
    dead_letters: Vec<Vec<u8>>,
    cursor: Option<String>,
}

impl State {
    /// The earlier time wins.
    fn park(&mut self, member: Vec<u8>, due: i64) {
        let standing = self.parked.entry(member).or_insert(due);
        *standing = due.min(*standing);
    }

    fn let_go(&mut self, claim: &Claim) -> bool {
        let ours = self.in_flight.get(&claim.member).is_some_and(|held| held.deadline == claim.deadline);
        if ours {
            self.in_flight.remove(&claim.member);
        }
        ours
    }

    fn append(&mut self, to: List, message: &str) {
        match to {
            List::Ready => self.ready.push_back(message.as_bytes().to_vec()),
            List::DeadLetter => self.dead_letters.push(message.as_bytes().to_vec()),
        }
    }

    fn stands(&self, entry: &RetryEntry) -> bool {
        let member = entry.canonical().into_bytes();
        self.parked.contains_key(&member) || self.in_flight.contains_key(&member)
    }
}

/// Members and their times, by time.
fn by_time(members: impl Iterator<Item = (Vec<u8>, i64)>) -> Vec<(Vec<u8>, i64)> {
    let mut members: Vec<_> = members.collect();
    members.sort_by(|(a, due_a), (b, due_b)| (due_a, a).cmp(&(due_b, b)));
    members
}

/// The queue. Clones are handles on the same rooms.
#[derive(Clone, Debug, Default)]
pub struct MemoryQueue(Arc<Mutex<State>>);

impl MemoryQueue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends to a list, with no claim.
    pub fn append(&self, to: List, message: &str) {
        self.state().append(to, message);
    }

    /// What is new, oldest first.
    pub fn new_entries(&self) -> Vec<Vec<u8>> {
        self.state().new.iter().cloned().collect()
    }

    /// What a worker gets.
    pub fn take_ready(&self) -> Option<Vec<u8>> {
        self.state().ready.pop_front()
    }

    /// Loses everything.
    pub fn empty(&self) {
        *self.state() = State::default();
    }
}

impl RetryQueue for MemoryQueue {
    async fn push(&self, entry: &RetryEntry) -> Result<(), QueueError> {
        self.state().new.push_back(entry.pushed().into_bytes());
        Ok(())
    }

    async fn look_at_new(&self, limit: usize) -> Result<Vec<Vec<u8>>, QueueError> {
        let mut bytes = 0;
        let state = self.state();
        let fits = |(at, raw): &(usize, &Vec<u8>)| {
            bytes += raw.len();
            *at == 0 || bytes <= MAX_LOOK_BYTES
        };
        Ok(state.new.iter().take(limit).enumerate().take_while(fits).map(|(_, raw)| raw.clone()).collect())
    }

    async fn take_new(&self, entries: &[NewEntry]) -> Result<usize, QueueError> {
        let mut state = self.state();
        let mut taken = 0;
        for NewEntry { raw, intake } in entries {
            if state.new.front() != Some(raw) {
                break;
            }
            state.new.pop_front();
            match intake {
                Intake::Park(entry) => {
                    state.park(entry.canonical().into_bytes(), entry.not_before.as_millis());
                }
                Intake::Malformed(line) => state.append(List::DeadLetter, line),
            }
            taken += 1;
        }
        Ok(taken)
    }

    async fn claim_due(
        &self,
        now: Timestamp,
        timeout: Duration,
        limit: usize,
    ) -> Result<Vec<Claim>, QueueError> {
        let mut state = self.state();
        let deadline = now.plus(timeout);
        let mut claims = Vec::new();
        for (member, due) in by_time(state.parked.clone().into_iter()) {
            if due > now.as_millis() || claims.len() == limit {
                break;
            }
            if let Some(held) = state.in_flight.get(&member) {
                let until = if held.deadline > now { held.deadline } else { deadline };
                state.parked.insert(member, until.as_millis());
                continue;
            }
            state.parked.remove(&member);
            state.in_flight.insert(member.clone(), Held { deadline, expired_claims: 0, first_claim: now });
            claims.push(Claim { member, deadline, expired_claims: 0, first_claim: now });
        }
        Ok(claims)
    }

    async fn claim_expired(&self, now: Timestamp, timeout: Duration) -> Result<Option<Claim>, QueueError> {
        let mut state = self.state();
        let ran_out = state.in_flight.iter_mut().filter(|(_, held)| held.deadline <= now);
        Ok(ran_out.min_by_key(|(_, held)| held.deadline).map(|(member, held)| {
            held.deadline = now.plus(timeout);
            held.expired_claims += 1;
            let Held { deadline, expired_claims, first_claim } = *held;
            Claim { member: member.clone(), deadline, expired_claims, first_claim }
        }))
    }

    async fn hand_over(&self, claim: &Claim, to: List, message: &str) -> Result<bool, QueueError> {
        let mut state = self.state();
        let ours = state.let_go(claim);
        if ours {
            state.append(to, message);
        }
        Ok(ours)
    }

    async fn acknowledge(&self, claim: &Claim) -> Result<bool, QueueError> {
        Ok(self.state().let_go(claim))
    }

    async fn give_back(&self, claim: &Claim, due: Timestamp) -> Result<bool, QueueError> {
        let mut state = self.state();
        let ours = state.let_go(claim);
        if ours {
            state.park(claim.member.clone(), due.as_millis());
        }
        Ok(ours)
    }

    async fn park_missing(&self, entries: &[RetryEntry], far: Timestamp) -> Result<usize, QueueError> {
        let mut state = self.state();
        let mut added = 0;
        for entry in entries {
            let member = entry.canonical().into_bytes();
            let due = state.parked.get(&member).copied();
            if !state.in_flight.contains_key(&member) && due.is_none_or(|due| due > far.as_millis()) {
                added += usize::from(due.is_none());
                state.park(member, entry.not_before.as_millis());
            }
        }
        Ok(added)
    }

    async fn sweep_cursor(&self) -> Result<Option<String>, QueueError> {
        Ok(self.state().cursor.clone())
    }

    async fn keep_sweep_cursor(&self, cursor: &str) -> Result<(), QueueError> {
        self.state().cursor = Some(cursor.to_owned());
        Ok(())
    }

    async fn depths(&self) -> Result<Depths, QueueError> {
        let state = self.state();
        Ok(Depths {
            retry: state.new.len() as u64,
            parked: state.parked.len() as u64,
            in_flight: state.in_flight.len() as u64,
            ready: state.ready.len() as u64,
            dead_letter: state.dead_letters.len() as u64,
        })
    }

    async fn missing(&self, entries: &[RetryEntry]) -> Result<Vec<RetryEntry>, QueueError> {
        let state = self.state();
        Ok(entries.iter().filter(|entry| !state.stands(entry)).cloned().collect())
    }
}

/// The queue's rooms, for the suite of every queue.
#[derive(Debug, Default)]
pub struct MemoryRooms(MemoryQueue);

impl MemoryRooms {
    /// Empty ones.
    pub fn fresh() -> Self {
        Self::default()
    }
}

impl Rooms for MemoryRooms {
    type Queue = MemoryQueue;

    fn queue(&self) -> &MemoryQueue {
        &self.0
    }

    fn another(&self) -> MemoryQueue {
        self.0.clone()
    }

    async fn push_raw(&self, raw: &[u8]) {
        self.0.push_raw(raw);
    }

    async fn park_raw(&self, member: &[u8], due: i64) {
        self.0.state().parked.insert(member.to_vec(), due);
    }

    async fn lose_cursor(&self) {
        self.0.state().cursor = None;
    }

    async fn parked(&self) -> Vec<(Vec<u8>, i64)> {
        self.0.parked()
    }

    async fn in_flight(&self) -> Vec<(Vec<u8>, i64)> {
        self.0.in_flight()
    }

    async fn ready(&self) -> Vec<Vec<u8>> {
        self.0.ready()
    }

    async fn dead_letters(&self) -> Vec<Vec<u8>> {
        self.0.dead_letters()
    }
}

impl MemoryQueue {
    /// Appends these bytes to what is new.
    pub fn push_raw(&self, raw: &[u8]) {
        self.state().new.push_back(raw.to_vec());
    }

    /// The parked members and their times, by time.
    pub fn parked(&self) -> Vec<(Vec<u8>, i64)> {
        by_time(self.state().parked.clone().into_iter())
    }

    /// The members in flight and their deadlines, by deadline.
    pub fn in_flight(&self) -> Vec<(Vec<u8>, i64)> {
        let held = self.state().in_flight.clone();
        by_time(held.into_iter().map(|(member, held)| (member, held.deadline.as_millis())))
    }

    /// The workers' list, oldest first.
    pub fn ready(&self) -> Vec<Vec<u8>> {
        self.state().ready.iter().cloned().collect()
    }

    /// The dead-letter list, oldest first.
    pub fn dead_letters(&self) -> Vec<Vec<u8>> {
        self.state().dead_letters.clone()
    }
}
