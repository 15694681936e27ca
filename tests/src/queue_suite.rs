//! One suite for every retry queue.
