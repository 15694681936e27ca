//! A success signal.
