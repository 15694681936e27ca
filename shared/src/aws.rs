//! Signed calls to AWS.
