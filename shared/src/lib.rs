//! Recoup: the credit ledger of a metered job platform.
//!
//! Credits are charged up front, refunded when a job fails, and reclaimed when the job turns out to have been
//! delivered after all: each once, however many duplicated, late and out-of-order signals arrive.
//!
//! Start with [`transition`]: it says what every command does to a job in every state. [`ledger`] and [`queue`] are
//! the ports, with their adapters beneath them; [`handlers`] are the use cases over the ports only.

#[cfg(feature = "aws")]
pub mod aws;
pub mod backoff;
pub mod clock;
pub mod config;
pub mod dispatch;
#[cfg(feature = "sqlite")]
pub mod embedded;
pub mod event;
pub mod handlers;
pub mod job;
#[cfg(feature = "lambda")]
pub mod lambda;
pub mod ledger;
pub mod metrics;
pub mod queue;
pub mod sources;
pub mod trace;
pub mod transition;
#[cfg(feature = "webhook")]
pub mod webhook;
