//! Hand-made faults in the reference, to prove that the simulation finds what it is there to find.
//!
//! Each is a mistake that somebody could make in a store or leave in a refactoring. Those of the ledger bend a rule;
//! those of the queue stand in front of the gate, so that a process can die in the middle of what should be one step.

use std::collections::HashSet;
use std::time::Duration;

use recoup::backoff::Delays;
use recoup::clock::Timestamp;
use recoup::job::{AccountId, Job, JobId, Phase};
use recoup::ledger::{Applied, Cursor, Found, Ledger, LedgerError, LedgerReader, Outstanding};
use recoup::queue::{Claim, Depths, List, NewEntry, QueueError, RetryEntry, RetryQueue};
use recoup::transition::{
    Charge, ChargeOutcome, DispatchOutcome, ExhaustedOutcome, Failure, FailureOutcome, RedriveOutcome,
    SilenceOutcome, SuccessOutcome,
};

use super::faulty::{FaultyLedger, FaultyQueue};
use super::gate::{Flow, Process};
use super::ops::Call;
use super::reference::{MemoryLedger, MemoryQueue};
use super::stage::{InRooms, MemoryStage, Stage};

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// The guard of a failure does not look whether the job was delivered.
    RefundsAfterDelivery,
    /// A success of a refunded job writes no reclaim.
    ForgetsTheReclaim,
    /// The guard of a failure says `attempts <= k` where it should say `attempts < k`.
    CountsAnAttemptTwice,
    /// Hand-overs are never recorded, and the sweep is off.
    NeverNotesAndNeverSweeps,
    /// Nobody looks for silent attempts.
    HearsNoSilence,
    /// A claim is let go of before its message is pushed.
    AcknowledgesFirst,
    /// The sweep is off.
    NeverSweeps,
    /// What is given back is gone.
    LosesWhatIsGivenBack,
    /// A claim that ran out is never taken again, and the sweep is off, which would step in.
    NeverTakesAgain,
    /// What waits is claimed before its time.
    ClaimsEarly,
}

impl Flaw {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::RefundsAfterDelivery,
        Self::ForgetsTheReclaim,
        Self::CountsAnAttemptTwice,
        Self::NeverNotesAndNeverSweeps,
        Self::HearsNoSilence,
        Self::AcknowledgesFirst,
        Self::NeverSweeps,
        Self::LosesWhatIsGivenBack,
        Self::NeverTakesAgain,
        Self::ClaimsEarly,
    ];

    fn sweeps(self) -> bool {
        !matches!(self, Self::NeverNotesAndNeverSweeps | Self::NeverSweeps | Self::NeverTakesAgain)
    }
}

/// The reference with a flaw.
#[derive(Debug)]
pub struct FlawedStage {
    ledger: BentLedger,
    memory: MemoryStage,
    flaw: Flaw,
}

impl FlawedStage {
    /// An empty one.
    pub fn new(flaw: Flaw) -> Self {
        let memory = MemoryStage::default();
        let ledger = BentLedger { straight: memory.ledger.clone(), flaw };
        Self { ledger, memory, flaw }
    }
}

impl Stage for FlawedStage {
    fn ledger<'a>(&'a self, process: &'a Process<'a>) -> impl Ledger + 'a {
        FaultyLedger::new(&self.ledger, process)
    }

    fn queue<'a>(&'a self, process: &'a Process<'a>) -> impl RetryQueue + 'a {
        BentQueue { straight: FaultyQueue::new(&self.memory.queue, process), flaw: self.flaw }
    }

    fn reader(&self) -> &impl LedgerReader {
        &self.memory.ledger
    }

    fn is_local(&self) -> bool {
        true
    }

    async fn rooms(&self) -> InRooms {
        self.memory.rooms().await
    }

    async fn push_raw(&self, raw: &[u8]) {
        self.memory.push_raw(raw).await;
    }

    async fn take_ready(&self) -> Option<Vec<u8>> {
        self.memory.take_ready().await
    }

    async fn empty(&self) {
        self.memory.empty().await;
    }
}

#[derive(Debug)]
struct BentLedger {
    straight: MemoryLedger,
    flaw: Flaw,
}

impl BentLedger {
    /// Bends the job before the rule looks at it.
    async fn bend(&self, job_id: &JobId, bent: impl FnOnce(&mut Job)) -> Result<(), LedgerError> {
        if let Some(mut job) = self.straight.job(job_id).await? {
            bent(&mut job);
            self.straight.overwrite(job);
        }
        Ok(())
    }
}

impl Ledger for BentLedger {
    async fn charge(&self, charge: &Charge, now: Timestamp) -> Result<Applied<ChargeOutcome>, LedgerError> {
        self.straight.charge(charge, now).await
    }

    async fn record_failure(
        &self,
        job_id: &JobId,
        account_id: Option<&AccountId>,
        failure: &Failure,
        now: Timestamp,
    ) -> Result<Applied<FailureOutcome>, LedgerError> {
        let refunds_late = self.flaw == Flaw::RefundsAfterDelivery;
        let counts_twice = self.flaw == Flaw::CountsAnAttemptTwice;
        self.bend(job_id, |job| {
            if refunds_late && job.phase == Phase::Delivered && !job.is_refunded {
                job.phase = Phase::Running;
            }
            if counts_twice && job.phase == Phase::Running && failure.attempt == Some(job.attempts) {
                job.attempts -= 1;
            }
        })
        .await?;
        self.straight.record_failure(job_id, account_id, failure, now).await
    }

    async fn record_success(
        &self,
        job_id: &JobId,
        account_id: Option<&AccountId>,
        now: Timestamp,
    ) -> Result<Applied<SuccessOutcome>, LedgerError> {
        let before = self.straight.job(job_id).await?;
        let mut applied = self.straight.record_success(job_id, account_id, now).await?;
        if let Some(before) = before.filter(|_| self.flaw == Flaw::ForgetsTheReclaim)
            && applied.outcome == SuccessOutcome::Reclaimed
        {
            applied.outcome = SuccessOutcome::Delivered;
            applied.job = Job { phase: Phase::Delivered, not_before: None, ..before };
            self.straight.overwrite(applied.job.clone());
        }
        Ok(applied)
    }

    async fn dispatch(
        &self,
        job_id: &JobId,
        attempts: u32,
        ran_out: bool,
        now: Timestamp,
    ) -> Result<Option<Applied<DispatchOutcome>>, LedgerError> {
        self.straight.dispatch(job_id, attempts, ran_out, now).await
    }

    async fn hand_over_done(
        &self,
        job_id: &JobId,
        attempts: u32,
        now: Timestamp,
    ) -> Result<bool, LedgerError> {
        if self.flaw == Flaw::NeverNotesAndNeverSweeps {
            return Ok(true);
        }
        self.straight.hand_over_done(job_id, attempts, now).await
    }

    async fn claims_exhausted(
        &self,
        job_id: &JobId,
        attempts: u32,
        first_claim: Timestamp,
        now: Timestamp,
    ) -> Result<Option<Applied<ExhaustedOutcome>>, LedgerError> {
        self.straight.claims_exhausted(job_id, attempts, first_claim, now).await
    }

    async fn no_signal(
        &self,
        job_id: &JobId,
        k: u32,
        timeout: Duration,
        delays: &Delays,
        now: Timestamp,
    ) -> Result<Applied<SilenceOutcome>, LedgerError> {
        self.straight.no_signal(job_id, k, timeout, delays, now).await
    }

    async fn redrive(
        &self,
        job_id: &JobId,
        allowance: u32,
        now: Timestamp,
    ) -> Result<Applied<RedriveOutcome>, LedgerError> {
        self.straight.redrive(job_id, allowance, now).await
    }

    async fn at_cap(&self, retries: &[(JobId, u32)]) -> Result<HashSet<(JobId, u32)>, LedgerError> {
        self.straight.at_cap(retries).await
    }

    async fn outstanding(
        &self,
        kind: Outstanding,
        until: Timestamp,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Vec<Found>, LedgerError> {
        let silent = matches!(kind, Outstanding::SilentFirstAttempt | Outstanding::SilentRetry);
        if silent && self.flaw == Flaw::HearsNoSilence {
            return Ok(Vec::new());
        }
        self.straight.outstanding(kind, until, after, limit).await
    }
}

struct BentQueue<'a> {
    straight: FaultyQueue<'a, MemoryQueue>,
    flaw: Flaw,
}

impl RetryQueue for BentQueue<'_> {
    async fn push(&self, entry: &RetryEntry) -> Result<(), QueueError> {
        self.straight.push(entry).await
    }

    async fn look_at_new(&self, limit: usize) -> Result<Vec<Vec<u8>>, QueueError> {
        self.straight.look_at_new(limit).await
    }

    async fn take_new(&self, entries: &[NewEntry]) -> Result<usize, QueueError> {
        self.straight.take_new(entries).await
    }

    async fn claim_due(
        &self,
        now: Timestamp,
        timeout: Duration,
        limit: usize,
    ) -> Result<Vec<Claim>, QueueError> {
        let early = if self.flaw == Flaw::ClaimsEarly { Duration::from_secs(600) } else { Duration::ZERO };
        self.straight.claim_due(now.plus(early), timeout, limit).await
    }

    async fn claim_expired(&self, now: Timestamp, timeout: Duration) -> Result<Option<Claim>, QueueError> {
        if self.flaw == Flaw::NeverTakesAgain {
            return Ok(None);
        }
        self.straight.claim_expired(now, timeout).await
    }

    async fn hand_over(&self, claim: &Claim, to: List, message: &str) -> Result<bool, QueueError> {
        if self.flaw != Flaw::AcknowledgesFirst {
            return self.straight.hand_over(claim, to, message).await;
        }
        if !self.straight.acknowledge(claim).await? {
            return Ok(false);
        }
        let push = async {
            self.straight.inner().append(to, message);
            Ok::<_, QueueError>(true)
        };
        let pushed = |_: &bool, flows: &mut Vec<Flow>| {
            let (member, message) = (claim.member.clone(), message.to_owned());
            flows.push(Flow::HandedOver { member, to, message });
        };
        self.straight.process().pass(Call::HandOver, push, pushed).await
    }

    async fn acknowledge(&self, claim: &Claim) -> Result<bool, QueueError> {
        self.straight.acknowledge(claim).await
    }

    async fn give_back(&self, claim: &Claim, due: Timestamp) -> Result<bool, QueueError> {
        if self.flaw == Flaw::LosesWhatIsGivenBack {
            return self.straight.acknowledge(claim).await;
        }
        self.straight.give_back(claim, due).await
    }

    async fn park_missing(&self, entries: &[RetryEntry], far: Timestamp) -> Result<usize, QueueError> {
        if self.flaw.sweeps() { self.straight.park_missing(entries, far).await } else { Ok(0) }
    }

    async fn sweep_cursor(&self) -> Result<Option<String>, QueueError> {
        self.straight.sweep_cursor().await
    }

    async fn keep_sweep_cursor(&self, cursor: &str) -> Result<(), QueueError> {
        self.straight.keep_sweep_cursor(cursor).await
    }

    async fn depths(&self) -> Result<Depths, QueueError> {
        self.straight.depths().await
    }

    async fn missing(&self, entries: &[RetryEntry]) -> Result<Vec<RetryEntry>, QueueError> {
        self.straight.missing(entries).await
    }
}
