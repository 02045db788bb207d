//! Graphs and models that anybody may have written, run as a whole in a session.

use sterna::{AsDynView, Error, Graph, Model, Session, Status, TensorId};

use crate::common::graphs;
use crate::run::{Held, MOST_OPS, Tensors, engine_for};

/// Runs a model of few ops on small filled inputs, those of the text that it was read from. Whatever it is,
/// it runs or is refused with an error that is no defect. `falls_back` lets the reference interpreter run
/// what no kernel does. Gives the outputs with the ids of their tensors.
pub fn run_model(model: Result<Model, Error>, text: &[u8], falls_back: bool) -> Vec<(TensorId, Held)> {
    let (engine, seed) = engine_for(text);
    let model = match model {
        Ok(model) => model,
        Err(error) => {
            refused(&error);
            return Vec::new();
        }
    };
    if model.graph().ops().len() > MOST_OPS {
        return Vec::new();
    }
    let session = match Session::builder(model).fallback(falls_back).arenas(1).build(engine) {
        Ok(session) => session,
        Err(error) => {
            refused(&error);
            return Vec::new();
        }
    };
    let made: Option<Vec<Held>> =
        session.inputs().iter().map(|port| Held::input(&port.tensor, engine, seed)).collect();
    let Some(made) = made else { return Vec::new() };
    let given: Vec<(&str, &dyn AsDynView)> =
        session.inputs().iter().zip(&made).map(|(port, held)| (port.name(), held.view())).collect();
    match session.run(&given) {
        Ok(first) => {
            // A second run finds the plan and the memory of the first one.
            let (again, profile) = session.run_profiled(&given).expect("it has just run");
            assert!(profile.spans.iter().all(|span| span.kind.is_step()), "{:?}", profile.spans);
            let values = |outputs: sterna::SessionOutputs| {
                let ids = session.outputs().iter().map(|port| port.tensor.id());
                ids.zip(outputs.into_tensors().into_iter().map(Held::of)).collect::<Vec<_>>()
            };
            let (first, again) = (values(first), values(again));
            for ((id, one), (_, other)) in first.iter().zip(&again) {
                if let Some(why) = graphs::difference(&one.value(), &other.value(), 0) {
                    panic!("tensor {id}: {why} in a second run");
                }
            }
            first
        }
        Err(error) => {
            refused(&error);
            Vec::new()
        }
    }
}

fn refused(error: &Error) {
    assert_ne!(error.status(), Status::RuntimeError, "{error}");
    assert!(!error.to_string().is_empty());
}

/// Runs a finalized graph in a session, and holds the results against those of its ops one by one, which the
/// same text gave.
pub fn check_session(graph: &Graph, text: &[u8], apart: &Tensors) {
    for (id, whole) in run_model(Model::new(graph.clone()), text, true) {
        let Some(alone) = apart.get(&id) else { continue };
        if let Some(why) = graphs::difference(&whole.value(), &alone.value(), 0) {
            panic!("tensor {id}: {why} in a session");
        }
    }
}
