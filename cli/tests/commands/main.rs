//! The built `sterna` as its users call it: a module for each promise. They share one binary, because each
//! would link the library anew.

mod common;

mod batch;
mod bench;
mod browser;
mod elsewhere;
mod files;
mod fills;
mod help;
mod inspect;
mod models;
mod onnx;
mod ops;
mod options;
mod readme;
mod run;
mod steps;
mod whole;
mod wrong_input;
