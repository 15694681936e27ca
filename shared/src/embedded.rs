//! The one file of the embedded store.
