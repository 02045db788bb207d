//! Promise: a graph that a builder made, or any other, runs as a whole, with the bits that its ops have one
//! by one, on every set of shapes, and says what does not fit.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/counting.rs"]
mod counting;

mod builder;
mod custom;
mod joined;
mod lengths;
mod profile;
mod refusals;
mod runs;
mod state;
mod trust;
