//! The text of a graph through the whole workflow: read, written and read again, partitioned, compiled, executed on
//! filled inputs, fused and op by op, and held against the reference.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sterna::reference::Value;
use sterna::{Error, Graph, Status};
use sterna_fuzz::common::graphs;
use sterna_fuzz::run::{Held, Outcome, Tensors, run};
use sterna_fuzz::{ENGINES, check_json};

/// More ops than this take longer than they teach.
const MOST_OPS: usize = 64;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let mut graph = match Graph::from_json(text) {
        Ok(graph) => graph,
        Err(error) => return check_place(&error, text),
    };
    check_json(&graph);
    if let Err(error) = graph.finalize() {
        assert!([Status::InvalidGraph, Status::InvalidGraphOp].contains(&error.status()), "{error}");
        return;
    }
    if graph.ops().len() <= MOST_OPS {
        // One level a text, the same whenever the text is run.
        let seed = bytes.iter().fold(bytes.len(), |sum, &byte| sum.wrapping_mul(31) ^ usize::from(byte));
        check_runs(&graph, seed);
    }
});

/// An error names a place in the text.
fn check_place(error: &Error, text: &str) {
    assert!(!error.to_string().is_empty());
    assert_ne!(error.status(), Status::RuntimeError, "{error}");
    if let Error::Json(fault) = error {
        let lines = text.lines().count().max(1) + 1;
        assert!((1..=lines).contains(&fault.line), "{error}, of {lines} lines");
        assert!(fault.column <= text.len() + 1, "{error}");
    }
}

fn check_runs(graph: &Graph, seed: usize) {
    let explanations = graph.explain().expect("the graph is finalized");
    assert!(explanations.iter().all(|explanation| !format!("{explanation:?}").is_empty()));
    let [fused, alone] = graphs::both(graph);
    let op_count = |partitions: &[sterna::Partition]| partitions.iter().map(|p| p.ops().len()).sum::<usize>();
    assert_eq!((op_count(&fused), alone.len()), (graph.ops().len(), graph.ops().len()));

    let engine = &ENGINES[seed % ENGINES.len()];
    let given = || -> Tensors {
        let filled =
            |input: &sterna::LogicalTensor| Some((input.id(), Held::input(input, engine, seed as u64)?));
        graph.inputs().into_iter().filter_map(filled).collect()
    };
    let (mut apart, mut together) = (given(), given());
    let ran_apart = run(&alone, &mut apart, engine);
    let ran_together = run(&fused, &mut together, engine);

    for (partition, outcome) in alone.iter().zip(&ran_apart) {
        let op = &partition.ops()[0];
        if *outcome == Outcome::Done && partition.is_supported() {
            let operands: Vec<Value> = op.inputs().iter().map(|input| apart[&input.id()].value()).collect();
            if let Err(why) = graphs::check_op(op, &operands, &apart[&op.outputs()[0].id()].value()) {
                panic!("{why}");
            }
        }
    }
    // What runs op by op runs fused as well.
    let is_done = |id: usize| {
        let of_op = |partition: &&sterna::Partition| partition.ops()[0].id() == id;
        alone.iter().zip(&ran_apart).any(|(p, outcome)| of_op(&p) && *outcome == Outcome::Done)
    };
    for (partition, outcome) in fused.iter().zip(&ran_together) {
        let all_done = partition.ops().iter().all(|op| is_done(op.id()));
        assert!(!all_done || *outcome == Outcome::Done, "{outcome:?} of {partition:?}");
        if *outcome != Outcome::Done {
            continue;
        }
        for output in partition.outputs().iter().filter(|output| apart.contains_key(&output.id())) {
            let (fused, alone) = (together[&output.id()].value(), apart[&output.id()].value());
            if let Some(why) = graphs::difference(&fused, &alone, 0) {
                panic!("tensor {}: {why} in {partition:?}", output.id());
            }
        }
    }
}
