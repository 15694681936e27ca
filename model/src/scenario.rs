//! Who may do what, and how often: the bounds of a search.
//!
//! One search with everything at once would be too large to finish in minutes, and a search that does not finish says
//! little. So there are several, each with a question of its own and everything that bears on it switched on. What
//! has no number here is unbounded: time passes as often as it likes, signals are doubled without end, a drain may
//! stand still between any two steps for as long as it likes, and any step of it that may fail may fail every time.

use crate::job::Ticks;

/// How long a claim holds.
pub const CLAIM_TIMEOUT: Ticks = 1;
/// How long a retry may be overdue before the sweep queues it.
pub const SWEEP_GRACE: Ticks = 1;
/// The wait before every retry.
pub const BACKOFF: Ticks = 1;
/// Claims that ran out, after which a job is set aside; five in the contract.
pub const MAX_EXPIRED: u8 = 2;
/// The allowance that a person's redrive gives: the policy's cap.
pub const ALLOWANCE: u8 = 2;
/// The largest attempt number that any signal or entry names.
pub const MAX_ATTEMPTS: u8 = 3;
/// Entries the list holds at most; a push to a full list is lost.
pub const LIST: usize = 2;

/// Where drains hand work over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// The queue's own list: push and acknowledgement are one step.
    ReadyList,
    /// Elsewhere: push, note, acknowledge.
    Outside,
}

/// Which completion signals arrive, each as often as it likes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Signals {
    /// Failures of attempts 1 to this.
    pub known: u8,
    /// Failures that no retry can mend, too.
    pub verdicts: bool,
    /// Failures that do not say of which attempt, without an id.
    pub unknown: bool,
    /// Different ids of failures that do not say of which attempt.
    pub events: u8,
    /// Successes.
    pub success: bool,
    /// The charge, again.
    pub charges: bool,
}

/// The bounds of one search.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scenario {
    /// The word by which the command and the tests call it.
    pub name: &'static str,
    /// Its question.
    pub asks: &'static str,
    /// Drains at work at once, 1 or 2.
    pub drains: usize,
    /// Where they hand work over.
    pub target: Target,
    /// Failures after which the job is dead-lettered.
    pub cap: u8,
    /// Silence for so long is a failure; `None`: never.
    pub attempt_timeout: Option<Ticks>,
    /// What arrives.
    pub signals: Signals,
    /// Entries that other producers push: any attempts, due at once or in the year 5138.
    pub foreign: u8,
    /// Deaths of a drain between two steps.
    pub deaths: u8,
    /// Times that Redis is emptied.
    pub emptied: u8,
    /// Times that a person redrives.
    pub redrives: u8,
    /// Signals that are handled by a clock that is a tick behind.
    pub slow_clocks: u8,
    /// Whether a drain's step may fail, so that the claim is given back.
    pub setbacks: bool,
    /// Whether time stands still while a drain is at work: nobody is slow.
    pub prompt: bool,
    /// Whether the entry of attempts = [`MAX_ATTEMPTS`] kills whoever takes it up.
    pub poison: bool,
}

const NO_SIGNALS: Signals =
    Signals { known: 0, verdicts: false, unknown: false, events: 0, success: false, charges: false };

const QUIET: Scenario = Scenario {
    name: "",
    asks: "",
    drains: 1,
    target: Target::ReadyList,
    cap: 2,
    attempt_timeout: None,
    signals: NO_SIGNALS,
    foreign: 0,
    deaths: 0,
    emptied: 0,
    redrives: 0,
    slow_clocks: 0,
    setbacks: false,
    prompt: false,
    poison: false,
};

/// Every kind of signal, with one drain: the ledger's table, row by row.
pub const SIGNALS: Scenario = Scenario {
    name: "signals",
    asks: "every signal, doubled and in any order, with a redrive and a slow clock",
    signals: Signals { known: 3, verdicts: true, unknown: true, events: 2, success: true, charges: true },
    redrives: 1,
    slow_clocks: 1,
    ..QUIET
};

/// Two drains that interleave, die, and lose their claims.
pub const DRAINS: Scenario = Scenario {
    name: "drains",
    asks: "two drains, step by step, that die, stall and fail; copies of entries; a redrive",
    drains: 2,
    signals: Signals { known: 1, success: true, ..NO_SIGNALS },
    foreign: 1,
    deaths: 1,
    redrives: 1,
    setbacks: true,
    ..QUIET
};

/// Two drains with a target outside Redis.
pub const OUTSIDE: Scenario = Scenario {
    name: "outside",
    asks: "as `drains`, handing over to a target outside Redis",
    target: Target::Outside,
    foreign: 0,
    ..DRAINS
};

/// Redis loses everything, at any moment.
pub const EMPTIED: Scenario = Scenario {
    name: "emptied",
    asks: "two drains, Redis emptied at any moment, work that is lost after its hand-over, failures on the way",
    drains: 2,
    cap: 3,
    signals: Signals { known: 3, ..NO_SIGNALS },
    emptied: 1,
    deaths: 1,
    ..QUIET
};

/// Silence becomes a failure.
pub const SILENCE: Scenario = Scenario {
    name: "silence",
    asks: "`ATTEMPT_TIMEOUT` on: work without a signal, beside signals that come late",
    drains: 2,
    attempt_timeout: Some(3),
    signals: Signals { known: 2, success: true, ..NO_SIGNALS },
    foreign: 1,
    deaths: 1,
    ..QUIET
};

/// Nobody is slow, nobody dies: nothing is doubled then.
pub const PROMPT: Scenario = Scenario {
    name: "prompt",
    asks: "two drains that neither die nor stall: each retry is queued once and handed over once",
    drains: 2,
    signals: Signals { known: 3, verdicts: true, unknown: true, success: true, ..NO_SIGNALS },
    prompt: true,
    ..QUIET
};

/// An entry that kills whoever takes it up.
pub const POISON: Scenario = Scenario {
    name: "poison",
    asks: "an entry that kills whoever takes it up takes no neighbour along",
    drains: 2,
    signals: Signals { known: 1, ..NO_SIGNALS },
    foreign: 2,
    prompt: true,
    poison: true,
    ..QUIET
};

impl Scenario {
    /// All of them.
    pub const ALL: [Self; 7] = [SIGNALS, DRAINS, OUTSIDE, EMPTIED, SILENCE, PROMPT, POISON];

    /// The one of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scenario| scenario.name == name)
    }

    /// The same question with more of everything that has a number: for hours, and for much memory.
    #[must_use]
    pub fn widened(self) -> Self {
        let more = |times: u8| times + u8::from(times > 0);
        Self {
            drains: 2,
            foreign: if self.prompt { self.foreign } else { self.foreign + 1 },
            deaths: more(self.deaths),
            emptied: more(self.emptied),
            redrives: more(self.redrives),
            setbacks: !self.prompt,
            ..self
        }
    }
}
