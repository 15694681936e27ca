//! What must come in the end.
//!
//! `eventually` of the checker looks at states without a successor only and takes every cycle for progress, and here
//! time and signals go on for ever. So liveness is asked otherwise: from every state that the search visits, with no
//! further disturbance and no further signal, a fair schedule must lead to a good end. The drains finish what they are
//! at, then passes run one after the other, and where nothing is left to do, time passes; when time changes nothing
//! either, the state must be good. In a finite space this says more than that one schedule works: no state is a
//! trap, so any schedule that gives each step a chance again and again gets there too.
//!
//! The schedule's steps are steps of the model, so the states on its way are visited by the search as well: each is
//! followed once only, and remembered.

use std::collections::HashSet;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::Mutex;

use recoup::job::Phase;

use crate::faults::Fault;
use crate::steps::{Action, Context};
use crate::world::{Place, World};

/// No schedule of the model is nearly that long.
const LONGEST: usize = 2_000;

/// The states from which a good end is reached, as far as they are known.
#[derive(Debug, Default)]
pub struct Fair(Mutex<HashSet<u64>>);

impl Fair {
    /// Why no good end is reached from here; `None` where it is.
    ///
    /// # Panics
    /// Where another thread panicked in here.
    pub fn fault(&self, world: &World, cx: &Context) -> Option<Fault> {
        let mut way = Vec::new();
        let mut here = *world;
        let mut known = self.0.lock().expect("nobody panics while holding the set");
        for _ in 0..LONGEST {
            let print = BuildHasherDefault::<DefaultHasher>::default().hash_one(here);
            if known.contains(&print) {
                known.extend(way);
                return None;
            }
            way.push(print);
            if here.fault.is_some() {
                // A matter of safety: the search finds this state by a shorter way.
                return None;
            }
            let Some(next) = here.after(fair_step(&here, cx), cx) else {
                let fault = end(&here, cx);
                if fault.is_none() {
                    known.extend(way);
                }
                return fault;
            };
            here = next;
        }
        Some(Fault::RetryLost)
    }

    /// Where the schedule leads from here.
    pub fn last(world: &World, cx: &Context) -> World {
        let mut here = *world;
        for _ in 0..LONGEST {
            let Some(next) = here.after(fair_step(&here, cx), cx) else { break };
            here = next;
        }
        here
    }
}

/// A drain under way first, then a stage of a pass, then time.
fn fair_step(world: &World, cx: &Context) -> Action {
    let under_way = (0..cx.scenario.drains).filter(|drain| world.drains[*drain].place != Place::Idle);
    let drain = under_way.min().unwrap_or(0);
    world.fair_move(drain, cx).map_or(Action::Tick, |next| Action::Drain(drain, next))
}

/// What is wrong with a state that nothing changes any more.
fn end(world: &World, cx: &Context) -> Option<Fault> {
    let is_with_workers = world.job.attempts == 0 || world.job.dispatched_at.is_some();
    let is_good = match world.job.phase {
        Phase::Delivered | Phase::DeadLettered | Phase::Failed => true,
        Phase::RetryWaiting => false,
        // With `ATTEMPT_TIMEOUT`, silence ends every attempt sooner or later.
        Phase::Running => is_with_workers && cx.scenario.attempt_timeout.is_none(),
    };
    let excused = world.ghosts.letter_excused || world.left.emptied < cx.scenario.emptied;
    let no_letter = world.job.phase == Phase::DeadLettered && !world.ghosts.letter && !excused;
    if !is_good {
        Some(Fault::RetryLost)
    } else if !world.queue_is_done() {
        Some(Fault::EntriesLeft)
    } else {
        no_letter.then_some(Fault::LetterLost)
    }
}
