//! The harness: real servers, real binaries, and the conformance suites that every adapter must pass.
//!
//! `tests/run` provides the servers and says by environment where they and their programs are; see [`servers`].

pub mod drain_suite;
pub mod ledger_suite;
pub mod queue_suite;
pub mod runtime_api;
pub mod servers;
