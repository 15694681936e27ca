//! What the lists are about: numbered jobs, their accounts and costs, the events of their workers, and what other
//! programs push.

use recoup::clock::Timestamp;
use recoup::event::CompletionEvent;
use recoup::job::{AccountId, JobId};
use serde_json::Value;

use super::ops::{Answer, Due, Junk};

/// What an event source delivers until it is taken.
#[derive(Clone, Debug)]
pub(super) enum Event {
    Charge { job: u8, cost: i64 },
    Failed(CompletionEvent),
    Succeeded(CompletionEvent),
}

impl Event {
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Charge { job, .. } => format!("the charge of {}", job_id(*job)),
            Self::Failed(event) => format!("the failure of {}", event.job_id),
            Self::Succeeded(event) => format!("the success of {}", event.job_id),
        }
    }
}

pub(super) fn later(at: Timestamp, ms: i64) -> Timestamp {
    Timestamp::from_millis(at.as_millis() + ms)
}

pub(super) fn job_id(job: u8) -> JobId {
    JobId::new(format!("j{job}")).unwrap()
}

pub(super) fn account(job: u8) -> AccountId {
    AccountId::new(format!("a{}", job % 2)).unwrap()
}

pub(super) fn accounts() -> [AccountId; 2] {
    [account(0), account(1)]
}

/// Different for each job, so that no two can stand in for each other.
pub(super) fn cost(job: u8) -> i64 {
    10_i64.pow(1 + u32::from(job % 8))
}

pub(super) fn about(job_id: JobId) -> CompletionEvent {
    CompletionEvent {
        job_id,
        attempt: None,
        reason: Some("worker timeout".to_owned()),
        retryable: true,
        event_id: None,
        occurred_at: None,
        account_id: None,
        trace: None,
    }
}

pub(super) fn answers(job_id: JobId, attempt: u32, then: Answer) -> Vec<Event> {
    let failed = |retryable| {
        Event::Failed(CompletionEvent { attempt: Some(attempt), retryable, ..about(job_id.clone()) })
    };
    let succeeded = || Event::Succeeded(CompletionEvent { attempt: Some(attempt), ..about(job_id.clone()) });
    match then {
        Answer::Succeeds => vec![succeeded()],
        Answer::Fails => vec![failed(true)],
        Answer::FailsForGood => vec![failed(false)],
        Answer::DiesSilently => Vec::new(),
        Answer::SucceedsTwice => vec![succeeded(), succeeded()],
        Answer::FailsThenSucceeds => vec![failed(true), succeeded()],
        Answer::SucceedsThenFails => vec![succeeded(), failed(true)],
    }
}

pub(super) fn read_message(raw: &[u8]) -> (JobId, u32) {
    let message: Value = serde_json::from_slice(raw).expect("a worker is given JSON");
    let attempt = message["attempt"].as_u64().and_then(|attempt| u32::try_from(attempt).ok());
    let job_id = message["job_id"].as_str().and_then(|id| JobId::new(id).ok());
    (job_id.expect("a worker is given a job"), attempt.expect("a worker is given an attempt"))
}

pub(super) fn foreign(job: u8, attempts: u32, due: Due, now: Timestamp) -> Vec<u8> {
    let due = match due {
        Due::In(ms) => later(now, ms).as_millis().to_string(),
        Due::Written(ms) => format!("\"{}\"", later(now, ms)),
        Due::FarOff => "96396480000000".to_owned(),
    };
    format!(r#"{{"not_before":{due},"by":"another","job_id":"j{job}","attempts":{attempts}}}"#).into_bytes()
}

pub(super) fn junk_bytes(junk: Junk, now: Timestamp) -> Vec<u8> {
    match junk {
        Junk::Empty => Vec::new(),
        Junk::NotJson => b"{not json".to_vec(),
        Junk::Null => b"null".to_vec(),
        Junk::NotUtf8 => b"\xff\xfe\x00".to_vec(),
        Junk::Large => vec![b'x'; 5_000],
        Junk::NoAttempts => foreign(0, 0, Due::In(0), now),
        Junk::Seconds => br#"{"job_id":"j0","attempts":1,"not_before":1768471200}"#.to_vec(),
    }
}
