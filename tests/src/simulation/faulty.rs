//! The ports behind the gate: each call is counted, fails or dies where the list says so, and leaves a [`Flow`].

use std::collections::{HashSet, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use recoup::backoff::Delays;
use recoup::clock::Timestamp;
use recoup::dispatch::{Dispatch, DispatchError};
use recoup::job::{AccountId, JobId};
use recoup::ledger::{Applied, Cursor, Found, Ledger, LedgerError, Outstanding};
use recoup::queue::{Claim, Depths, DispatchMessage, List, NewEntry, QueueError, RetryEntry, RetryQueue};
use recoup::transition::{
    Charge, ChargeOutcome, DispatchOutcome, ExhaustedOutcome, Failure, FailureOutcome, RedriveOutcome,
    SilenceOutcome, SuccessOutcome,
};

use super::gate::{Flow, Process};
use super::ops::Call;

/// A ledger whose calls go through a gate.
#[derive(Debug)]
pub struct FaultyLedger<'a, L> {
    inner: &'a L,
    process: &'a Process<'a>,
}

impl<'a, L> FaultyLedger<'a, L> {
    /// As this process sees it.
    pub fn new(inner: &'a L, process: &'a Process<'a>) -> Self {
        Self { inner, process }
    }
}

impl<L: Ledger> Ledger for FaultyLedger<'_, L> {
    async fn charge(&self, charge: &Charge, now: Timestamp) -> Result<Applied<ChargeOutcome>, LedgerError> {
        let call = self.inner.charge(charge, now);
        self.process
            .pass(Call::Charge, call, |a, flows| flows.push(Flow::Charge(a.outcome, Box::new(a.job.clone()))))
            .await
    }

    async fn record_failure(
        &self,
        job_id: &JobId,
        account_id: Option<&AccountId>,
        failure: &Failure,
        now: Timestamp,
    ) -> Result<Applied<FailureOutcome>, LedgerError> {
        let call = self.inner.record_failure(job_id, account_id, failure, now);
        self.process
            .pass(Call::RecordFailure, call, |a, flows| {
                flows.push(Flow::Failure(a.outcome, Box::new(a.job.clone())))
            })
            .await
    }

    async fn record_success(
        &self,
        job_id: &JobId,
        account_id: Option<&AccountId>,
        now: Timestamp,
    ) -> Result<Applied<SuccessOutcome>, LedgerError> {
        let call = self.inner.record_success(job_id, account_id, now);
        self.process
            .pass(Call::RecordSuccess, call, |a, flows| {
                flows.push(Flow::Success(a.outcome, Box::new(a.job.clone())))
            })
            .await
    }

    async fn dispatch(
        &self,
        job_id: &JobId,
        attempts: u32,
        ran_out: bool,
        now: Timestamp,
    ) -> Result<Option<Applied<DispatchOutcome>>, LedgerError> {
        let call = self.inner.dispatch(job_id, attempts, ran_out, now);
        let note = |a: &Option<Applied<DispatchOutcome>>, flows: &mut Vec<Flow>| {
            flows.extend(a.as_ref().map(|a| Flow::Dispatch(a.outcome, Box::new(a.job.clone()), now)));
        };
        self.process.pass(Call::Dispatch, call, note).await
    }

    async fn hand_over_done(
        &self,
        job_id: &JobId,
        attempts: u32,
        now: Timestamp,
    ) -> Result<bool, LedgerError> {
        let call = self.inner.hand_over_done(job_id, attempts, now);
        let note = |noted: &bool, flows: &mut Vec<Flow>| {
            flows.extend(noted.then(|| Flow::Noted(job_id.clone(), attempts)));
        };
        self.process.pass(Call::HandOverDone, call, note).await
    }

    async fn claims_exhausted(
        &self,
        job_id: &JobId,
        attempts: u32,
        first_claim: Timestamp,
        now: Timestamp,
    ) -> Result<Option<Applied<ExhaustedOutcome>>, LedgerError> {
        let call = self.inner.claims_exhausted(job_id, attempts, first_claim, now);
        let note = |a: &Option<Applied<ExhaustedOutcome>>, flows: &mut Vec<Flow>| {
            flows.extend(a.as_ref().map(|a| Flow::Exhausted(a.outcome, Box::new(a.job.clone()))));
        };
        self.process.pass(Call::ClaimsExhausted, call, note).await
    }

    async fn no_signal(
        &self,
        job_id: &JobId,
        k: u32,
        timeout: Duration,
        delays: &Delays,
        now: Timestamp,
    ) -> Result<Applied<SilenceOutcome>, LedgerError> {
        let call = self.inner.no_signal(job_id, k, timeout, delays, now);
        self.process
            .pass(Call::NoSignal, call, |a, flows| {
                flows.push(Flow::Silence(a.outcome, Box::new(a.job.clone())))
            })
            .await
    }

    async fn redrive(
        &self,
        job_id: &JobId,
        allowance: u32,
        now: Timestamp,
    ) -> Result<Applied<RedriveOutcome>, LedgerError> {
        let call = self.inner.redrive(job_id, allowance, now);
        self.process
            .pass(Call::Redrive, call, |a, flows| {
                flows.push(Flow::Redrive(a.outcome, Box::new(a.job.clone())))
            })
            .await
    }

    async fn at_cap(&self, retries: &[(JobId, u32)]) -> Result<HashSet<(JobId, u32)>, LedgerError> {
        self.process.pass(Call::AtCap, self.inner.at_cap(retries), nothing).await
    }

    async fn outstanding(
        &self,
        kind: Outstanding,
        until: Timestamp,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Vec<Found>, LedgerError> {
        self.process.pass(Call::Outstanding, self.inner.outstanding(kind, until, after, limit), nothing).await
    }
}

/// What a call leaves that changes nothing the auditor counts.
fn nothing<T>(_answer: &T, _flows: &mut Vec<Flow>) {}

/// A queue whose calls go through a gate.
#[derive(Debug)]
pub struct FaultyQueue<'a, Q> {
    inner: &'a Q,
    process: &'a Process<'a>,
}

impl<'a, Q> FaultyQueue<'a, Q> {
    /// As this process sees it.
    pub fn new(inner: &'a Q, process: &'a Process<'a>) -> Self {
        Self { inner, process }
    }

    /// The queue itself.
    pub fn inner(&self) -> &'a Q {
        self.inner
    }

    /// Whose calls these are.
    pub fn process(&self) -> &'a Process<'a> {
        self.process
    }
}

impl<Q: RetryQueue> RetryQueue for FaultyQueue<'_, Q> {
    async fn push(&self, entry: &RetryEntry) -> Result<(), QueueError> {
        let call = self.inner.push(entry);
        self.process
            .pass(Call::Push, call, |(), flows| flows.push(Flow::Pushed(entry.pushed().into_bytes())))
            .await
    }

    async fn look_at_new(&self, limit: usize) -> Result<Vec<Vec<u8>>, QueueError> {
        self.process.pass(Call::LookAtNew, self.inner.look_at_new(limit), nothing).await
    }

    async fn take_new(&self, entries: &[NewEntry]) -> Result<usize, QueueError> {
        let call = self.inner.take_new(entries);
        let note = |taken: &usize, flows: &mut Vec<Flow>| {
            flows.push(Flow::Taken(entries.iter().take(*taken).cloned().collect()));
        };
        self.process.pass(Call::TakeNew, call, note).await
    }

    async fn claim_due(
        &self,
        now: Timestamp,
        timeout: Duration,
        limit: usize,
    ) -> Result<Vec<Claim>, QueueError> {
        self.process.pass(Call::ClaimDue, self.inner.claim_due(now, timeout, limit), nothing).await
    }

    async fn claim_expired(&self, now: Timestamp, timeout: Duration) -> Result<Option<Claim>, QueueError> {
        self.process.pass(Call::ClaimExpired, self.inner.claim_expired(now, timeout), nothing).await
    }

    async fn hand_over(&self, claim: &Claim, to: List, message: &str) -> Result<bool, QueueError> {
        let call = self.inner.hand_over(claim, to, message);
        let note = |ours: &bool, flows: &mut Vec<Flow>| {
            let (member, message) = (claim.member.clone(), message.to_owned());
            flows.extend(ours.then_some(Flow::HandedOver { member, to, message }));
        };
        self.process.pass(Call::HandOver, call, note).await
    }

    async fn acknowledge(&self, claim: &Claim) -> Result<bool, QueueError> {
        let call = self.inner.acknowledge(claim);
        let note = |ours: &bool, flows: &mut Vec<Flow>| {
            flows.extend(ours.then(|| Flow::Acknowledged(claim.member.clone())));
        };
        self.process.pass(Call::Acknowledge, call, note).await
    }

    async fn give_back(&self, claim: &Claim, due: Timestamp) -> Result<bool, QueueError> {
        self.process.pass(Call::GiveBack, self.inner.give_back(claim, due), nothing).await
    }

    async fn park_missing(&self, entries: &[RetryEntry], far: Timestamp) -> Result<usize, QueueError> {
        let call = self.inner.park_missing(entries, far);
        self.process
            .pass(Call::ParkMissing, call, |_, flows| flows.push(Flow::Parked(entries.to_vec())))
            .await
    }

    async fn sweep_cursor(&self) -> Result<Option<String>, QueueError> {
        self.process.pass(Call::SweepCursor, self.inner.sweep_cursor(), nothing).await
    }

    async fn keep_sweep_cursor(&self, cursor: &str) -> Result<(), QueueError> {
        self.process.pass(Call::KeepSweepCursor, self.inner.keep_sweep_cursor(cursor), nothing).await
    }

    async fn depths(&self) -> Result<Depths, QueueError> {
        self.process.pass(Call::Depths, self.inner.depths(), nothing).await
    }

    async fn missing(&self, entries: &[RetryEntry]) -> Result<Vec<RetryEntry>, QueueError> {
        self.process.pass(Call::Missing, self.inner.missing(entries), nothing).await
    }
}

/// The workers' place outside the queue.
#[derive(Debug, Default)]
pub struct Workshop(Mutex<VecDeque<DispatchMessage>>);

impl Workshop {
    /// The oldest message that no worker has taken.
    pub fn take(&self) -> Option<DispatchMessage> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}

/// The way there, through a gate.
#[derive(Debug)]
pub struct FaultyDispatch<'a> {
    workshop: &'a Workshop,
    process: &'a Process<'a>,
}

impl<'a> FaultyDispatch<'a> {
    /// As this process sees it.
    pub fn new(workshop: &'a Workshop, process: &'a Process<'a>) -> Self {
        Self { workshop, process }
    }
}

impl Dispatch for FaultyDispatch<'_> {
    async fn send(&self, messages: &[DispatchMessage]) -> Vec<Result<(), DispatchError>> {
        let call = async {
            let mut taken = self.workshop.0.lock().unwrap_or_else(PoisonError::into_inner);
            taken.extend(messages.iter().cloned());
            Ok(())
        };
        let note = |(): &(), flows: &mut Vec<Flow>| flows.extend(messages.iter().cloned().map(Flow::Sent));
        let answer = self.process.pass(Call::Send, call, note).await;
        messages.iter().map(|_| answer.clone()).collect()
    }
}
