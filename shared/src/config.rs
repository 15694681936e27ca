//! One struct from the environment.
