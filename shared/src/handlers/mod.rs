//! The use cases, over the ports only: what a failure, a success and a drain do.

pub mod drain;
pub mod failed;
pub mod succeeded;
