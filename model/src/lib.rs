//! Recoup as a model that is searched state by state.
//!
//! One job, its ledger document, the queue's three rooms, up to two drains and everybody who may disturb them: each
//! can take its next step at any moment, and the search visits every state that any order of steps leads to, within
//! the bounds of a [`Scenario`]. What `docs/MODEL.md` says of the contract is what this crate found to hold in all of
//! them.
//!
//! The ledger's steps are no copy: they call `recoup::transition` on a real `Job` ([`rules`]). The queue's steps
//! ([`queue`]) and a drain's order of steps ([`drain`]) are written out again, one atomic operation a step, because
//! what the search needs is the place between two of them.
//!
//! ```text
//!  scenario   who may do what, and how often: the bounds
//!  world      one state, brought to a form in which states that can never differ again are the same
//!  job        what of a job makes a difference, and the real `Job` that it stands for
//!  rules      the ledger's commands      } each with the guards that a
//!  queue      the queue's operations     } `Mutation` takes out
//!  drain      a drain, step by step      }
//!  steps      all steps that a state allows, and where each leads
//!  faults     what must never be: checked on every write, every hand-over, every claim
//!  fair       what must come in the end: liveness
//!  search     the search itself, in `stateright`, and the traces
//!  tale       a trace in words
//!  report     what `docs/MODEL.md` says of all this
//! ```
//!
//! A model that finds nothing proves nothing unless it could have: so every guard is taken out once ([`Mutation`]),
//! and the search must then fail.

pub mod drain;
pub mod fair;
pub mod faults;
pub mod job;
pub mod mutation;
pub mod queue;
pub mod reach;
pub mod report;
pub mod rules;
pub mod scenario;
pub mod search;
pub mod steps;
pub mod tale;
pub mod world;

pub use faults::Fault;
pub use mutation::Mutation;
pub use scenario::Scenario;
pub use world::World;
