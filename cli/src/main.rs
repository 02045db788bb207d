//! The command line of Sterna.
fn main() {}
