//! What the searches came across: a model that never gets somewhere says nothing about it.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! reach {
    ($($name:ident: $text:literal,)*) => {
        /// A transition of the contract, or an operation of the queue with one of its answers.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Reach {
            $(#[doc = $text] $name,)*
        }

        impl Reach {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// In words.
            pub fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

reach! {
    ChargeDuplicate: "charge: duplicate",
    Refunded: "failure: refunded",
    FailureRecorded: "failure: a later attempt counted",
    FailureSetAside: "failure: counted while set aside",
    Verdict: "failure: a second verdict stops the retry",
    FailureDuplicate: "failure: duplicate",
    FailureDelivered: "failure: already delivered",
    Delivered: "success: delivered",
    Reclaimed: "success: reclaimed",
    ReclaimedSetAside: "success: reclaimed what was set aside",
    SuccessDuplicate: "success: duplicate",
    Dispatched: "dispatch: started",
    CapReached: "dispatch: dead-lettered at the cap",
    HandOverFinished: "dispatch: an open hand-over taken up",
    LetterFinished: "dispatch: an open dead letter taken up",
    Stale: "dispatch: stale",
    Noted: "hand-over done: noted",
    NotNoted: "hand-over done: nothing open",
    Exhausted: "claims exhausted: dead-lettered",
    ExhaustedLetter: "claims exhausted: an open dead letter taken up",
    ExhaustedRedriven: "claims exhausted: forgiven by a redrive",
    ExhaustedStale: "claims exhausted: stale",
    SilentFirst: "no signal: the first attempt",
    SilentRetry: "no signal: a later attempt",
    RedrivenDead: "redrive: of a dead letter",
    RedrivenFailed: "redrive: of a failed job",
    ParkedEarlier: "parking: an earlier time wins",
    ParkedLater: "parking: a later time does not",
    TakenByAnother: "intake: another took the head first",
    Swept: "sweep: an overdue retry parked",
    SweptOpen: "sweep: an open hand-over parked",
    SweptInFlight: "sweep: it is in flight",
    ClaimPassedOver: "claim: passed over, its form is in flight",
    ClaimedAgain: "claim again",
    NotOurs: "hand-over or acknowledgement refused: no longer the caller's",
    GaveBack: "give back",
    GaveBackNotOurs: "give back refused: no longer the caller's",
}

/// Which of them a search came across.
#[derive(Debug, Default)]
pub struct Reached(AtomicU64);

impl Reached {
    /// Marks it.
    pub fn mark(&self, what: Reach) {
        self.0.fetch_or(1 << what as u64, Ordering::Relaxed);
    }

    /// Marks what another search came across.
    pub fn add(&self, other: &Self) {
        self.0.fetch_or(other.0.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Whether any search came across it.
    pub fn has(&self, what: Reach) -> bool {
        self.0.load(Ordering::Relaxed) & 1 << what as u64 != 0
    }

    /// What none came across.
    pub fn missing(&self) -> Vec<&'static str> {
        Reach::ALL.iter().filter(|what| !self.has(**what)).map(|what| what.text()).collect()
    }
}
