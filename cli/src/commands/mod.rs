//! The commands, each over the ports only: none of them knows which store it works on.

use recoup::clock::SystemClock;
use recoup::config::Settings;

use crate::output::Output;
use crate::store::Store;

pub(crate) mod audit;
pub(crate) mod dead_letters;
pub(crate) mod drains;
pub(crate) mod events;
pub(crate) mod init;
pub(crate) mod metrics;
pub(crate) mod reads;
pub(crate) mod sources;
pub(crate) mod webhook;

/// What a command works with.
pub(crate) struct Desk<'a, S: Store> {
    pub(crate) store: &'a S,
    pub(crate) settings: &'a Settings,
    pub(crate) clock: SystemClock,
    pub(crate) out: &'a mut Output,
}
