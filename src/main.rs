//! The `sendonce` program.

fn main() {}
