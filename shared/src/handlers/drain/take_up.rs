//! Taking up claimed entries: the guarded write, the hand-over, the note.
//!
//! Claims come by the page and go through three steps together, ten at a time. Whatever step fails for an entry, the
//! others go on, and its claim is given back, uncounted; but once the ledger or the queue is out of reach, nothing
//! waits for it again: what was not started is given back, or, where the queue is gone, left to run out.

use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::StreamExt;
use futures_util::stream;

use super::{CONCURRENCY, Pass, StoreError};
use crate::clock::Clock;
use crate::dispatch::{Dispatch, Target};
use crate::job::{Job, JobId};
use crate::ledger::{Ledger, LedgerError};
use crate::metrics;
use crate::queue::entry::{malformed, parse_member};
use crate::queue::{
    Claim, DeadJob, DeadLetter, DispatchMessage, List, MAX_EXPIRED_CLAIMS, QueueError, RetryQueue,
};
use crate::trace::TraceContext;
use crate::transition::{DispatchOutcome, ExhaustedOutcome};

/// What a claimed entry turned out to be, once the ledger has decided.
enum TakenUp {
    /// Work for the workers.
    Work(DispatchMessage),
    /// Anything else, which ends here.
    Ending(Ending),
}

/// How an entry ends that is no work.
enum Ending {
    SetAside(DeadLetter),
    Junk(DeadLetter),
    Unwanted,
    /// The claims that ran out were made before a person sent the job back: start afresh.
    Afresh,
}

/// An entry that was not taken up, and why.
enum Setback {
    /// The pass ran out of time, or what it needs is out of reach: the entry was not started, or not finished.
    NotStarted,
    Ledger(LedgerError),
    Queue(QueueError),
    Target(String),
}

/// What became of work that was pushed.
enum Handed {
    /// The workers have it; something after the push may have failed.
    Over(Option<Setback>),
    /// The claim ran out meanwhile, and is another drain's to finish.
    ToAnother,
    /// Not yet.
    Not(Setback),
}

/// Which of the two was found out of reach while a page was taken up.
#[derive(Default)]
struct OutOfReach {
    ledger: AtomicBool,
    queue: AtomicBool,
}

impl OutOfReach {
    fn note(&self, setback: &Setback) {
        match setback {
            Setback::Ledger(error) if error.is_unavailable() => self.ledger.store(true, Ordering::Relaxed),
            Setback::Queue(error) if error.is_unavailable() => self.queue.store(true, Ordering::Relaxed),
            Setback::Ledger(_) | Setback::Queue(_) | Setback::Target(_) | Setback::NotStarted => {}
        }
    }

    fn ledger(&self) -> bool {
        self.ledger.load(Ordering::Relaxed)
    }

    fn queue(&self) -> bool {
        self.queue.load(Ordering::Relaxed)
    }
}

impl<L: Ledger, Q: RetryQueue, D: Dispatch, C: Clock> Pass<'_, L, Q, D, C> {
    /// Takes up these claims. Each ends handed over, dropped, given back, or left to run out.
    pub(super) async fn take_up(&mut self, claims: Vec<Claim>) -> Result<(), StoreError> {
        let lost = OutOfReach::default();
        let mut work = Vec::new();
        let mut endings = Vec::new();
        let mut set_back = Vec::new();
        for (claim, decision) in self.decide_all(claims, &lost).await {
            match decision {
                Ok(TakenUp::Work(message)) => work.push((claim, message)),
                Ok(TakenUp::Ending(ending)) => endings.push((claim, ending)),
                Err(setback) => set_back.push((claim, setback)),
            }
        }
        let unsent = self.settle(endings, &lost, &mut set_back).await;
        self.hand_over_work(work, &lost, &mut set_back).await;
        let failed = self.give_back_all(set_back, &lost).await;
        failed.or(unsent).map_or(Ok(()), Err)
    }

    async fn decide_all(
        &self,
        claims: Vec<Claim>,
        lost: &OutOfReach,
    ) -> Vec<(Claim, Result<TakenUp, Setback>)> {
        stream::iter(claims)
            .map(|claim| async {
                let decision = if self.stop.passed() || lost.ledger() {
                    Err(Setback::NotStarted)
                } else {
                    self.stop.bound(self.decide(&claim)).await.unwrap_or(Err(Setback::NotStarted))
                };
                if let Err(setback) = &decision {
                    lost.note(setback);
                }
                (claim, decision)
            })
            .buffer_unordered(CONCURRENCY)
            .collect()
            .await
    }

    async fn decide(&self, claim: &Claim) -> Result<TakenUp, Setback> {
        let (job_id, attempts) = match parse_member(&claim.member) {
            Ok(parsed) => parsed,
            Err(error) => {
                tracing::error!(%error, "a parked entry is malformed; it is kept for a person");
                return Ok(TakenUp::Ending(Ending::Junk(malformed(&claim.member))));
            }
        };
        if claim.expired_claims >= MAX_EXPIRED_CLAIMS {
            return self.decide_exhausted(&job_id, attempts, claim).await;
        }
        let ran_out = claim.expired_claims > 0;
        let Some(applied) = self
            .ledger
            .dispatch(&job_id, attempts, ran_out, self.clock.now())
            .await
            .map_err(Setback::Ledger)?
        else {
            tracing::warn!(%job_id, attempts, "a retry of a job that the ledger does not know is dropped");
            return Ok(TakenUp::Ending(Ending::Unwanted));
        };
        Ok(match applied.outcome {
            DispatchOutcome::Dispatched | DispatchOutcome::HandOverOpen => TakenUp::Work(DispatchMessage {
                job_id,
                account_id: applied.job.account_id,
                attempt: attempts.saturating_add(1),
                trace: applied.job.last_error.and_then(|error| error.trace),
            }),
            DispatchOutcome::DeadLettered | DispatchOutcome::DeadLetterOpen => {
                TakenUp::Ending(Ending::SetAside(dead_letter(applied.job)))
            }
            DispatchOutcome::Stale => TakenUp::Ending(Ending::Unwanted),
        })
    }

    async fn decide_exhausted(
        &self,
        job_id: &JobId,
        attempts: u32,
        claim: &Claim,
    ) -> Result<TakenUp, Setback> {
        let applied = self
            .ledger
            .claims_exhausted(job_id, attempts, claim.first_claim, self.clock.now())
            .await
            .map_err(Setback::Ledger)?;
        let Some(applied) = applied else { return Ok(TakenUp::Ending(Ending::Unwanted)) };
        Ok(TakenUp::Ending(match applied.outcome {
            ExhaustedOutcome::DeadLettered => {
                tracing::error!(%job_id, attempts, "whoever took up this retry died; the job is set aside");
                Ending::SetAside(DeadLetter::ClaimsExhausted(dead_job(applied.job)))
            }
            ExhaustedOutcome::DeadLetterOpen => Ending::SetAside(dead_letter(applied.job)),
            ExhaustedOutcome::Redriven => Ending::Afresh,
            ExhaustedOutcome::Stale => Ending::Unwanted,
        }))
    }

    /// Lets go of what is no work, and counts it. The answer is why a dead letter could not be sent.
    async fn settle(
        &mut self,
        endings: Vec<(Claim, Ending)>,
        lost: &OutOfReach,
        set_back: &mut Vec<(Claim, Setback)>,
    ) -> Option<StoreError> {
        let settled: Vec<_> = stream::iter(endings)
            .map(|(claim, ending)| async {
                let ours = match &ending {
                    Ending::SetAside(letter) | Ending::Junk(letter) => {
                        let letter = letter.to_json();
                        self.ask(lost, self.queue.hand_over(&claim, List::DeadLetter, &letter)).await
                    }
                    Ending::Unwanted => self.ask(lost, self.queue.acknowledge(&claim)).await,
                    Ending::Afresh => self.ask(lost, self.queue.give_back(&claim, self.clock.now())).await,
                };
                (claim, ending, ours)
            })
            .buffer_unordered(CONCURRENCY)
            .collect()
            .await;
        let mut unsent = None;
        for (claim, ending, ours) in settled {
            match (ours, ending) {
                (Ok(true), Ending::SetAside(_)) => self.counts.dead_lettered += 1,
                (Ok(true), Ending::Junk(_)) => self.counts.malformed += 1,
                (Ok(true), Ending::Unwanted) => self.counts.dropped += 1,
                (Ok(true), Ending::Afresh) => {}
                // The claim ran out meanwhile, and is another drain's to settle.
                (Ok(false), _) => {}
                // Given back, the entry would come again as one whose claim never ran out, and the letter of a job that
                // is dead_lettered already would be dropped as stale. So this claim is left to run out.
                (Err(setback), Ending::SetAside(_)) => {
                    tracing::warn!("a dead letter was not handed over; whoever takes its claim next will");
                    if let Setback::Queue(error) = setback {
                        unsent.get_or_insert(StoreError::Queue(error));
                    }
                }
                (Err(setback), Ending::Junk(_) | Ending::Unwanted | Ending::Afresh) => {
                    set_back.push((claim, setback));
                }
            }
        }
        unsent
    }

    /// Asks the queue, unless it was found out of reach.
    async fn ask(
        &self,
        lost: &OutOfReach,
        question: impl Future<Output = Result<bool, QueueError>>,
    ) -> Result<bool, Setback> {
        if lost.queue() {
            return Err(Setback::NotStarted);
        }
        let answer = self.end.bound(question).await.ok_or(Setback::NotStarted)?;
        answer.map_err(Setback::Queue).inspect_err(|setback| lost.note(setback))
    }

    /// Hands work to the workers: push, note in the ledger, let go of the claim.
    async fn hand_over_work(
        &mut self,
        work: Vec<(Claim, DispatchMessage)>,
        lost: &OutOfReach,
        set_back: &mut Vec<(Claim, Setback)>,
    ) {
        let pushed = self.push_outside(work).await;
        let results: Vec<_> = stream::iter(pushed)
            .map(|(claim, message, pushed)| async {
                let done = match pushed {
                    Ok(()) => self.finish_hand_over(&claim, &message, lost).await,
                    Err(setback) => Handed::Not(setback),
                };
                (claim, message, done)
            })
            .buffer_unordered(CONCURRENCY)
            .collect()
            .await;
        for (claim, message, done) in results {
            match done {
                Handed::Over(setback) => {
                    self.counts.dispatched += 1;
                    tracing::info!(
                        job_id = %message.job_id, attempt = message.attempt,
                        trace = message.trace.as_ref().map(TraceContext::as_str), "dispatched"
                    );
                    set_back.extend(setback.map(|setback| (claim, setback)));
                }
                Handed::ToAnother => {}
                Handed::Not(setback) => set_back.push((claim, setback)),
            }
        }
    }

    /// The push, where the target lies outside the queue.
    async fn push_outside(
        &self,
        work: Vec<(Claim, DispatchMessage)>,
    ) -> Vec<(Claim, DispatchMessage, Result<(), Setback>)> {
        let answers: Vec<Result<(), Setback>> = match self.target {
            Target::Outside(dispatch) if !work.is_empty() => {
                let messages: Vec<DispatchMessage> =
                    work.iter().map(|(_, message)| message.clone()).collect();
                match self.stop.bound(dispatch.send(&messages)).await {
                    Some(answers) => answers
                        .into_iter()
                        .map(|sent| sent.map_err(|e| Setback::Target(e.to_string())))
                        .collect(),
                    None => work.iter().map(|_| Err(Setback::NotStarted)).collect(),
                }
            }
            Target::Outside(_) | Target::ReadyList | Target::Nowhere => work.iter().map(|_| Ok(())).collect(),
        };
        work.into_iter().zip(answers).map(|((claim, message), pushed)| (claim, message, pushed)).collect()
    }

    async fn finish_hand_over(&self, claim: &Claim, message: &DispatchMessage, lost: &OutOfReach) -> Handed {
        let attempts = message.attempt.saturating_sub(1);
        match self.target {
            // Push and acknowledgement are one script; what remains is the note, and the sweep makes up for that.
            Target::ReadyList => {
                let json = serde_json::to_string(message).expect("strings and a number are always JSON");
                match self.ask(lost, self.queue.hand_over(claim, List::Ready, &json)).await {
                    Ok(true) => {
                        Handed::Over(self.note_hand_over(&message.job_id, attempts, lost).await.err())
                    }
                    Ok(false) => Handed::ToAnother,
                    Err(setback) => Handed::Not(setback),
                }
            }
            Target::Outside(_) | Target::Nowhere => {
                if let Err(setback) = self.note_hand_over(&message.job_id, attempts, lost).await {
                    return Handed::Not(setback);
                }
                // The worker has it. If the claim is not let go of, its next holder finds nothing left to do.
                Handed::Over(self.ask(lost, self.queue.acknowledge(claim)).await.err())
            }
        }
    }

    async fn note_hand_over(&self, job_id: &JobId, attempts: u32, lost: &OutOfReach) -> Result<(), Setback> {
        if lost.ledger() {
            return Err(Setback::NotStarted);
        }
        // Where nothing was open, a signal of the attempt was faster than this note, which is as good.
        let note = self.ledger.hand_over_done(job_id, attempts, self.clock.now());
        let noted = self.end.bound(note).await.ok_or(Setback::NotStarted)?;
        noted.map(|_| ()).map_err(Setback::Ledger).inspect_err(|setback| lost.note(setback))
    }

    /// Gives these claims back, uncounted, and says whether one of the reasons ends the pass.
    async fn give_back_all(&self, set_back: Vec<(Claim, Setback)>, lost: &OutOfReach) -> Option<StoreError> {
        let ends: Vec<Option<StoreError>> = stream::iter(set_back)
            .map(|(claim, setback)| self.give_back(claim, setback, lost))
            .buffer_unordered(CONCURRENCY)
            .collect()
            .await;
        ends.into_iter().flatten().next()
    }

    async fn give_back(&self, claim: Claim, setback: Setback, lost: &OutOfReach) -> Option<StoreError> {
        let due = self.clock.now().plus(self.settings.claim_timeout);
        let given_back = self.ask(lost, self.queue.give_back(&claim, due)).await;
        let member = String::from_utf8_lossy(&claim.member);
        let not_given_back = match given_back {
            Ok(_) => None,
            Err(Setback::Queue(error)) => {
                tracing::warn!(%member, %error, "a claim could not be given back; it runs out by itself");
                Some(StoreError::Queue(error))
            }
            Err(Setback::NotStarted | Setback::Ledger(_) | Setback::Target(_)) => None,
        };
        match setback {
            Setback::NotStarted => {
                tracing::info!(%member, "this entry was not taken up; the next drain takes it");
                not_given_back
            }
            Setback::Ledger(error) => {
                tracing::error!(%member, %error, "an entry was given back");
                error.is_unavailable().then_some(StoreError::Ledger(error))
            }
            Setback::Queue(error) => {
                tracing::error!(%member, %error, "an entry was given back");
                Some(StoreError::Queue(error))
            }
            Setback::Target(error) => {
                metrics::HAND_OVER_FAILED.count(1);
                tracing::error!(%member, error, "the target did not take a retry; its entry was given back");
                not_given_back
            }
        }
    }
}

/// The letter of a job whose dead-lettering is known by its phase only.
fn dead_letter(job: Job) -> DeadLetter {
    if job.attempts >= job.max_attempts {
        DeadLetter::AttemptsExhausted(dead_job(job))
    } else {
        DeadLetter::ClaimsExhausted(dead_job(job))
    }
}

fn dead_job(job: Job) -> DeadJob {
    DeadJob {
        job_id: job.job_id,
        account_id: job.account_id,
        attempts: job.attempts,
        last_error: job.last_error,
        at: job.updated_at,
    }
}
