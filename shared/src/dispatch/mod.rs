//! Handing due retries to the workers.
//!
//! The default target, the Redis list `<prefix>:ready`, is no port of its own: there the push and the letting go of
//! the claim are one script of the queue ([`RetryQueue::hand_over`](crate::queue::RetryQueue::hand_over)). This
//! module is for targets elsewhere, where the order is push, hand-over done, acknowledge, and a death in between
//! means that a worker sees the message twice.

use std::future::Future;

use crate::queue::DispatchMessage;

#[cfg(feature = "aws")]
pub mod aws;

/// Why a message did not reach its target; trying again is harmless.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the dispatch target did not take the message: {0}; it is tried again")]
pub struct DispatchError(pub String);

/// A place outside the queue to which work is sent.
pub trait Dispatch: Send + Sync {
    /// Sends the messages; one answer a message, in their order. `Ok` means that the target has taken it for good.
    fn send(
        &self,
        messages: &[DispatchMessage],
    ) -> impl Future<Output = Vec<Result<(), DispatchError>>> + Send;
}

/// Where a drain hands work over.
#[derive(Clone, Debug)]
pub enum Target<D> {
    /// The queue's own list for the workers.
    ReadyList,
    /// Somewhere else.
    Outside(D),
    /// Nowhere: a replay of somebody's past.
    Nowhere,
}

/// The target type of a program that has none outside the queue.
#[derive(Clone, Copy, Debug)]
pub enum NoOutside {}

impl Dispatch for NoOutside {
    async fn send(&self, _messages: &[DispatchMessage]) -> Vec<Result<(), DispatchError>> {
        match *self {}
    }
}
