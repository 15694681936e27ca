//! MongoDB.
