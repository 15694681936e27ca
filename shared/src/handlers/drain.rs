//! A drain.
