//! Masked attention of Sterna as an op of candle, and a small GPT that runs with it and without it.
#![forbid(unsafe_code)]

pub mod attention;
pub mod gpt;
pub mod random;
