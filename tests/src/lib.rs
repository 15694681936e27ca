//! The harness: real servers, real binaries, and the conformance suites that every adapter must pass.
//!
//! `tests/run` provides the servers and says by environment where they and their programs are; see [`servers`].

// A test that cannot go on says so by its panic.
#![allow(clippy::unwrap_used)]

pub mod cases;
pub mod contracts;
pub mod drain_suite;
pub mod faults;
pub mod function_world;
pub mod hostile;
pub mod ledger_suite;
pub mod queue_rooms;
pub mod queue_suite;
pub mod runtime_api;
pub mod servers;
pub mod simulation;
pub mod soak;
pub mod sqlite_rooms;
pub mod tls;
pub mod wire;
