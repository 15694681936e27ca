//! A Lambda Runtime API on a free port, for the real binaries.
