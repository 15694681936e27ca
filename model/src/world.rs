//! One state of everything, in a form in which states that can never differ again are the same.
//!
//! Time is counted from now: a tick moves everything else into the past, and what lies so far back that every
//! comparison comes out the same for ever is held there ([`World::settle`]). So time passes without end in finitely
//! many states. The two drains are alike, so two states that differ only in which drain is which count as one.

use std::hash::{Hash, Hasher};

use recoup::job::Phase;

use crate::faults::Fault;
use crate::job::{JobState, Ticks};
use crate::scenario::{LIST, MAX_ATTEMPTS, MAX_EXPIRED, Scenario};

/// The year 5138, which never comes.
pub const FAR: Ticks = Ticks::MAX;
/// Forms in which a retry may stand in parked and in flight: the canonical one for each number of attempts, and, where
/// a mutation leaves the canonical form out, the bytes of another producer's copy for attempts = 1.
pub const MEMBERS: usize = MAX_ATTEMPTS as usize + 1;
/// A list without entries.
pub const LIST_IS_EMPTY: [Option<ListEntry>; LIST] = [None; LIST];
/// The member that is another producer's copy.
pub const FOREIGN_FORM: usize = MAX_ATTEMPTS as usize;

/// The number of attempts that a member names.
pub fn attempts_of(member: usize) -> u8 {
    if member == FOREIGN_FORM { 1 } else { u8::try_from(member + 1).expect("there are four members") }
}

/// The canonical member of so many attempts.
pub fn member_of(attempts: u8) -> usize {
    usize::from(attempts) - 1
}

/// An entry of the list.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ListEntry {
    /// Its attempts.
    pub attempts: u8,
    /// When it is due.
    pub due: Ticks,
    /// Whether another producer's bytes are told from ours, and these are such.
    pub foreign: bool,
}

/// What the hash `claims` holds for a member.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Claims {
    /// Claims that ran out, counted to [`MAX_EXPIRED`].
    pub expired: u8,
    /// When the first of them was made.
    pub first: Ticks,
}

/// A claim that a drain holds, or believes it does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Held {
    /// By which the queue knows whether it is still this drain's.
    pub deadline: Ticks,
    /// What the queue said of the claims before.
    pub claims: Claims,
    /// How many really ran out.
    pub ran_out: u8,
    /// Redis was emptied since: another may hold the entry, and no rule is broken.
    pub orphan: bool,
}

/// Where a drain stands. Members and attempts are those it is at.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Place {
    /// Between two stages of a pass, or between two passes.
    Idle,
    /// It has looked at the list.
    Looked([Option<ListEntry>; LIST]),
    /// It has looked at the list, and seen it empty.
    SeenEmpty,
    /// The sweep has read a job that waits, with these attempts, and has not parked its entry.
    Sweeping(u8),
    /// It holds claims, and has not started any that is left.
    Holding,
    /// The ledger said: hand over. Whether somebody had already.
    Work(usize, bool),
    /// Pushed to a target outside.
    Sent(usize),
    /// Noted, not acknowledged.
    Noted(usize),
    /// Handed over and acknowledged, not noted.
    HandedOver(u8),
    /// Acknowledged and not pushed: only where a mutation swaps the order.
    LetGo(u8, bool),
    /// The ledger said: dead letter.
    SetAside(usize),
    /// The ledger said: drop.
    Unwanted(usize),
    /// The ledger said: start afresh.
    Afresh(usize),
}

/// A drain.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Drain {
    /// Where it stands.
    pub place: Place,
    /// Its claims, by member.
    pub held: [Option<Held>; MEMBERS],
}

impl Drain {
    /// A process just started.
    pub const FRESH: Self = Self { place: Place::Idle, held: [None; MEMBERS] };

    /// Lets go of this member as far as the drain is concerned, and goes on.
    pub fn done_with(&mut self, member: usize) {
        self.held[member] = None;
        self.go_on();
    }

    /// Goes on with what it holds.
    pub fn go_on(&mut self) {
        self.place = if self.held.iter().any(Option::is_some) { Place::Holding } else { Place::Idle };
    }
}

/// What is left of the bounded disturbances.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Left {
    /// Entries of other producers.
    pub foreign: u8,
    /// Deaths.
    pub deaths: u8,
    /// Times Redis is emptied.
    pub emptied: u8,
    /// Redrives.
    pub redrives: u8,
    /// Signals handled by a slow clock.
    pub slow_clocks: u8,
}

/// What happened, as far as a rule asks for it. No step reads any of this; where no guard is missing, almost all of
/// it follows from the rest of the state.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Ghosts {
    /// Work of the attempt after `attempts` was pushed.
    pub pushed: bool,
    /// Among those who pushed it was one whose claim had run out, or was lost with Redis.
    pub pushed_loosely: bool,
    /// The ledger has started that attempt, and no person has asked for it again.
    pub started: bool,
    /// A verdict came while the retry waited.
    pub stopped: bool,
    /// A person redrove, and no failure was counted since.
    pub redriven: bool,
    /// Events counted, a bit each.
    pub events: u8,
    /// Claims that ran out without any answer, by member, counted to [`MAX_EXPIRED`].
    pub ran_out: [u8; MEMBERS],
    /// Nobody was slow, and yet the sweep parked what it had read before another drain took the job up.
    pub late_sweep: bool,
    /// The dead letter was pushed.
    pub letter: bool,
    /// The dead letter may be missing: see `LetterLost` in `docs/MODEL.md`.
    pub letter_excused: bool,
}

/// One state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct World {
    /// The job in the ledger.
    pub job: JobState,
    /// The list of new entries, its head in front.
    pub list: [Option<ListEntry>; LIST],
    /// When parked members are due.
    pub parked: [Option<Ticks>; MEMBERS],
    /// The deadlines of members in flight.
    pub in_flight: [Option<Ticks>; MEMBERS],
    /// What is counted of claims that ran out.
    pub claims: [Option<Claims>; MEMBERS],
    /// The drains.
    pub drains: [Drain; 2],
    /// What may still go wrong.
    pub left: Left,
    /// What happened.
    pub ghosts: Ghosts,
    /// What is broken: the end of the trace.
    pub fault: Option<Fault>,
}

impl Hash for World {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let mut drains = self.drains;
        drains.sort_unstable();
        (self.job, self.list, self.parked, self.in_flight, self.claims).hash(state);
        (drains, self.left, self.ghosts, self.fault).hash(state);
    }
}

impl World {
    /// A job just charged, and an empty queue.
    pub fn start(scenario: &Scenario) -> Self {
        let mut world = Self {
            job: JobState::charged(scenario.cap),
            list: [None; LIST],
            parked: [None; MEMBERS],
            in_flight: [None; MEMBERS],
            claims: [None; MEMBERS],
            drains: [Drain::FRESH; 2],
            left: Left {
                foreign: scenario.foreign,
                deaths: scenario.deaths,
                emptied: scenario.emptied,
                redrives: scenario.redrives,
                slow_clocks: scenario.slow_clocks,
            },
            ghosts: Ghosts::default(),
            fault: None,
        };
        world.settle(scenario);
        world
    }

    /// Notes what is broken; the first counts.
    pub fn blame(&mut self, broken: bool, fault: Fault) {
        if broken {
            self.fault.get_or_insert(fault);
        }
    }

    /// Lets a tick pass.
    pub fn age(&mut self) {
        self.job.age();
        let older = |due: &mut Ticks| {
            if *due != FAR {
                *due -= 1;
            }
        };
        self.list.iter_mut().flatten().for_each(|entry| older(&mut entry.due));
        self.parked.iter_mut().flatten().for_each(older);
        self.in_flight.iter_mut().flatten().for_each(older);
        self.claims.iter_mut().flatten().for_each(|claims| older(&mut claims.first));
        for drain in &mut self.drains {
            for held in drain.held.iter_mut().flatten() {
                older(&mut held.deadline);
                older(&mut held.claims.first);
            }
            if let Place::Looked(entries) = &mut drain.place {
                entries.iter_mut().flatten().for_each(|entry| older(&mut entry.due));
            }
        }
    }

    /// Brings what can no longer differ to one form.
    pub fn settle(&mut self, scenario: &Scenario) {
        self.job.settle(scenario);
        self.settle_firsts();
        let due = |due: &mut Ticks| *due = (*due).max(0);
        self.list.iter_mut().flatten().for_each(|entry| due(&mut entry.due));
        self.parked.iter_mut().flatten().for_each(due);
        for drain in &mut self.drains {
            if let Place::Looked(entries) = &mut drain.place {
                entries.iter_mut().flatten().for_each(|entry| due(&mut entry.due));
            }
        }
        (0..MEMBERS).for_each(|member| self.settle_deadlines(member));
        if self.job.phase != Phase::DeadLettered {
            (self.ghosts.letter, self.ghosts.letter_excused) = (false, false);
        }
        if !matches!(self.job.phase, Phase::Running | Phase::RetryWaiting) {
            // A redrive is the only way back, and forgets both.
            (self.ghosts.started, self.ghosts.stopped) = (false, false);
        }
        if self.job.phase == Phase::Delivered {
            self.ghosts = Ghosts {
                ran_out: self.ghosts.ran_out,
                late_sweep: self.ghosts.late_sweep,
                ..Ghosts::default()
            };
        }
    }

    /// Of the time of a first claim, only this is ever asked: does it lie after the redrive?
    fn settle_firsts(&mut self) {
        let redriven = self.job.redriven_at;
        let firsts = self.claims.iter_mut().flatten().map(|claims| &mut claims.first);
        for first in firsts {
            *first = settled_first(*first, redriven);
        }
        for held in self.drains.iter_mut().flat_map(|drain| &mut drain.held).flatten() {
            // A claim that is not exhausted is never asked for its first.
            let asked = held.claims.expired >= MAX_EXPIRED;
            held.claims.first = if asked { settled_first(held.claims.first, redriven) } else { 0 };
        }
        self.job.redriven_at = redriven.map(|at| at.max(-1));
    }

    /// Deadlines that have passed differ only in which is which.
    fn settle_deadlines(&mut self, member: usize) {
        let mut passed: [Option<Ticks>; 3] = [None; 3];
        let deadlines = |world: &Self| {
            [
                world.in_flight[member],
                world.drains[0].held[member].map(|held| held.deadline),
                world.drains[1].held[member].map(|held| held.deadline),
            ]
        };
        for (slot, deadline) in passed.iter_mut().zip(deadlines(self)) {
            *slot = deadline.filter(|deadline| *deadline <= 0);
        }
        let rank = |deadline: Ticks| {
            if deadline > 0 {
                return deadline;
            }
            let mut later: Vec<Ticks> = Vec::new();
            for other in passed.iter().flatten() {
                if *other > deadline && !later.contains(other) {
                    later.push(*other);
                }
            }
            -Ticks::try_from(later.len()).expect("there are three deadlines")
        };
        self.in_flight[member] = self.in_flight[member].map(rank);
        for drain in &mut self.drains {
            if let Some(held) = &mut drain.held[member] {
                held.deadline = rank(held.deadline);
            }
        }
    }
}

/// 0 for after the redrive, -1 for not; where there was none yet, every claim so far will lie before it.
fn settled_first(first: Ticks, redriven: Option<Ticks>) -> Ticks {
    match redriven {
        None | Some(0) => 0,
        Some(at) => -Ticks::from(at >= first),
    }
}
