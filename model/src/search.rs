//! The search: breadth first, so that the first trace is a shortest one.

use std::sync::atomic::{AtomicBool, Ordering};

use stateright::{Checker, HasDiscoveries, Model, Property};

use crate::fair::Fair;
use crate::faults::Fault;
use crate::mutation::Mutation;
use crate::reach::Reached;
use crate::scenario::Scenario;
use crate::steps::{Action, Context};
use crate::world::World;

/// A scenario, with one guard taken out or with all in place.
#[derive(Debug)]
pub struct Recoup {
    cx: Context,
    fair: Fair,
    /// Later findings are not reported: the first is a shortest.
    found: AtomicBool,
}

const SAFE: &str = "no rule is broken";
const LIVE: &str = "a fair schedule leads to a good end";

impl Recoup {
    fn first(&self, broken: bool) -> bool {
        broken && !self.found.swap(true, Ordering::Relaxed)
    }
}

impl Model for Recoup {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World::start(&self.cx.scenario)]
    }

    fn actions(&self, state: &World, actions: &mut Vec<Action>) {
        state.actions(&self.cx, actions);
    }

    fn next_state(&self, state: &World, action: Action) -> Option<World> {
        state.after(action, &self.cx)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(SAFE, |model: &Self, state: &World| !model.first(state.fault.is_some())),
            Property::always(LIVE, |model: &Self, state: &World| {
                !model.first(state.fault.is_none() && model.fair.fault(state, &model.cx).is_some())
            }),
        ]
    }
}

/// What a search came to.
#[derive(Debug)]
pub struct Searched {
    /// Different states visited.
    pub states: usize,
    /// Steps taken.
    pub steps: usize,
    /// Steps to the farthest state.
    pub depth: usize,
    /// What is broken, and a shortest way there.
    pub found: Option<(Fault, Vec<Action>)>,
    /// What was come across.
    pub reached: Reached,
}

/// Searches the scenario, to the end or to the first finding.
pub fn search(scenario: Scenario, mutation: Option<Mutation>, threads: usize) -> Searched {
    let cx = Context::new(scenario, mutation);
    let model = Recoup { cx, fair: Fair::default(), found: AtomicBool::new(false) };
    let checker =
        model.checker().finish_when(HasDiscoveries::AnyFailures).threads(threads).spawn_bfs().join();
    let found = checker.discoveries().into_values().next().map(|path| {
        let last = path.last_state();
        let fault = last.fault.or_else(|| Fair::default().fault(last, &checker.model().cx));
        (fault.expect("the search stopped at a finding"), path.into_actions())
    });
    let reached = Reached::default();
    reached.add(&checker.model().cx.reached);
    Searched {
        states: checker.unique_state_count(),
        steps: checker.state_count(),
        depth: checker.max_depth(),
        found,
        reached,
    }
}
