//! Models and calls that do not fit: a typed error each, and nothing is written.

use crate::common::report;
use sterna::{
    AsDynView, AsDynViewMut, ConstantData, DataType, Engine, Graph, GraphBuilder, LogicalTensor, Model,
    ModelPort, Op, OpKind, Result, Session, Status, TensorView, TensorViewMut,
};

fn session() -> Session {
    let g = GraphBuilder::new();
    let x = g.input("x", DataType::F32, &[None, Some(2)]).unwrap();
    let scale = g.input("scale", DataType::F32, &[]).unwrap();
    g.output("y", g.multiply(x, scale).unwrap()).unwrap();
    g.output("sum", g.reduce_sum(x, &[0]).unwrap()).unwrap();
    Session::new(g.build().unwrap(), &Engine::new()).unwrap()
}

#[test]
fn inputs_that_do_not_fit_are_named() {
    type Row<'a> = (&'a str, &'a [(&'a str, &'a dyn AsDynView)], Status, &'a str);
    let (four, six) = ([1.0f32; 4], [1.0f32; 6]);
    let (x, wide, short) =
        (TensorView::new(&four, &[2, 2]), TensorView::new(&six, &[2, 3]), TensorView::new(&four, &[3, 2]));
    let half = [1i32; 4];
    let other = TensorView::new(&half, &[2, 2]);
    let rows: &[Row<'_>] = &[
        ("a missing input", &[("x", &x)], Status::InvalidArguments, "input `scale` is missing"),
        (
            "an unknown name",
            &[("x", &x), ("scal", &1.0f32)],
            Status::InvalidArguments,
            "no input is called `scal`; there are `x`, `scale`; did you mean `scale`?",
        ),
        ("one twice", &[("x", &x), ("x", &x)], Status::InvalidArguments, "input `x` is given twice"),
        (
            "another type",
            &[("x", &other), ("scale", &1.0f32)],
            Status::InvalidDataType,
            "input `x` is s32, the model has f32",
        ),
        (
            "other dims",
            &[("x", &wide), ("scale", &1.0f32)],
            Status::InvalidShape,
            "input `x` is given as {2,3}, the model has {?,2}",
        ),
        (
            "another rank",
            &[("x", &x), ("scale", &four)],
            Status::InvalidShape,
            "input `scale` is given as {4}, the model has {}",
        ),
        (
            "too few elements",
            &[("x", &short), ("scale", &1.0f32)],
            Status::InvalidArguments,
            "input `x` has 4 elements, 6 are needed",
        ),
    ];
    let session = session();
    let mut faults = Vec::new();
    for (what, inputs, status, text) in rows {
        match session.run(inputs) {
            Ok(_) => faults.push(format!("{what}: it ran")),
            Err(error) if error.status() != *status || error.to_string() != format!("session: {text}") => {
                faults.push(format!("{what}: {:?} {error}", error.status()));
            }
            Err(_) => {}
        }
    }
    report(&faults);
}

#[test]
fn memory_for_outputs_that_does_not_fit_is_named() {
    type Row<'a> = (&'a str, Box<dyn FnOnce() -> Vec<(&'static str, Box<dyn AsDynViewMut>)>>, &'a str);
    fn of<T: sterna::Element>(length: usize, value: T) -> Box<dyn AsDynViewMut> {
        Box::new(vec![value; length])
    }
    let rows: Vec<Row<'_>> = vec![
        ("a missing output", Box::new(|| vec![("y", of(4, 7.0f32))]), "output `sum` is missing"),
        (
            "an unknown name",
            Box::new(|| vec![("y", of(4, 7.0f32)), ("summ", of(2, 7.0f32))]),
            "no output is called `summ`; there are `y`, `sum`; did you mean `sum`?",
        ),
        (
            "another type",
            Box::new(|| vec![("y", of(4, 7i32)), ("sum", of(2, 7.0f32))]),
            "output `y` is s32, the model has f32",
        ),
        (
            "too short",
            Box::new(|| vec![("y", of(3, 7.0f32)), ("sum", of(2, 7.0f32))]),
            "output `y` has 3 elements, 4 are needed",
        ),
    ];
    let (session, four) = (session(), [1.0f32; 4]);
    let x = TensorView::new(&four, &[2, 2]);
    let mut faults = Vec::new();
    for (what, outputs, text) in rows {
        let mut outputs = outputs();
        let mut given: Vec<(&str, &mut dyn AsDynViewMut)> = Vec::new();
        for (name, memory) in &mut outputs {
            given.push((name, &mut **memory));
        }
        let error = session.run_into(&[("x", &x), ("scale", &2.0f32)], &mut given).unwrap_err();
        if error.to_string() != format!("session: {text}") {
            faults.push(format!("{what}: {error}"));
        }
    }
    report(&faults);

    let mut memory = [7.0f32; 8];
    let mut columns = TensorViewMut::with_strides(&mut memory, &[2, 2], &[1, 2]);
    let mut sum = [7.0f32; 2];
    let outputs: &mut [(&str, &mut dyn AsDynViewMut)] = &mut [("y", &mut columns), ("sum", &mut sum)];
    let error = session.run_into(&[("x", &x), ("scale", &2.0f32)], outputs).unwrap_err();
    assert_eq!(error.to_string(), "session: output `y` is given with strides; results are row-major");
    assert_eq!((memory, sum), ([7.0; 8], [7.0; 2]), "nothing is written");
}

#[test]
fn models_that_do_not_fit_are_refused() {
    let tensor = |id| LogicalTensor::strided(id, DataType::F32, &[2]).unwrap();
    let graph = || {
        let mut graph = Graph::new();
        graph.add_op(Op::new(0, OpKind::Add).inputs_from([tensor(0), tensor(1)]).output(tensor(2))).unwrap();
        graph
    };
    let port = |name: &str, id| ModelPort::new(name, tensor(id));
    let rows: Vec<(&str, Result<Model>, &str)> = vec![
        (
            "an input that nothing gives",
            Model::with_ports(graph(), vec![port("a", 0)], vec![port("y", 2)]),
            "nothing gives tensor 1: it is no input and no constant of the model, and no op computes it",
        ),
        (
            "two inputs of a name",
            Model::with_ports(graph(), vec![port("a", 0), port("a", 1)], vec![port("y", 2)]),
            "two inputs are called `a`",
        ),
        (
            "an output that nothing gives",
            Model::with_ports(graph(), vec![port("a", 0), port("b", 1)], vec![port("y", 9)]),
            "nothing gives tensor 9: it is no input and no constant of the model, and no op computes it",
        ),
        (
            "a constant that is too short",
            Model::new(graph()).map(|model| model.constant(1, ConstantData::from_slice(&[1.0f32]))),
            "constant 1 has 4 bytes, 8 are needed",
        ),
    ];
    let mut faults = Vec::new();
    for (what, model, text) in rows {
        match Session::new(model.unwrap(), &Engine::new()) {
            Ok(_) => faults.push(format!("{what}: it is a session")),
            Err(error) if error.to_string() != format!("session: {text}") => {
                faults.push(format!("{what}: {error}"))
            }
            Err(_) => {}
        }
    }
    report(&faults);
}
