//! The command `recoup`, as it is typed: every command in both forms of its answer, every wrong use with its exit
//! status and its one line. On a file; `servers` says what differs there.

// In a test, an unwrap is an assertion.
#![allow(clippy::unwrap_used)]

mod audit;
mod dead_letters;
mod harness;
mod metrics;
mod reads;
mod servers;
mod sources;
mod upgrade;
mod usage;
mod writes;
