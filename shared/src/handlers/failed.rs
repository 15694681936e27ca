//! A failure signal.
