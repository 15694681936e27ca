//! One suite for every ledger store.
