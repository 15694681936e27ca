//! Recoup.

fn main() {}
