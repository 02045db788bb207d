//! Ops of the caller's, the reference interpreter in their place, and the error where nobody runs an op.

use sterna::{
    AttrValue, ConstantData, CustomNode, CustomOp, DataType, Dims, DynView, DynViewMut, Engine, Error,
    ExecuteFault, Graph, GraphBuilder, LogicalTensor, Model, Op, OpKind, OpOptions, Result, Session,
    SessionFault, Status, TensorView,
};

/// Adds the attribute `by` to the elements of a dense input, in as many outputs as the op has.
struct Shift {
    fails: bool,
    outputs: usize,
}

impl CustomOp for Shift {
    fn output_dims(
        &self,
        _: &CustomNode,
        inputs: &[LogicalTensor],
        _: &[LogicalTensor],
    ) -> Result<Vec<Dims>, String> {
        let dims = inputs[0].dims().ok_or("no dims")?;
        Ok(vec![dims.into(); self.outputs])
    }

    fn run(
        &self,
        node: &CustomNode,
        inputs: &[DynView<'_>],
        outputs: &mut [DynViewMut<'_>],
    ) -> Result<(), String> {
        if self.fails {
            return Err("it broke off".into());
        }
        let Some(&AttrValue::F32(by)) = node.get_attr("by") else { return Err("no `by`".into()) };
        let x = inputs[0].elements::<f32>().map_err(|error| error.to_string())?;
        for output in outputs {
            let y = output.elements_mut::<f32>().map_err(|error| error.to_string())?;
            y.iter_mut().zip(x).for_each(|(y, x)| *y = x + by);
        }
        Ok(())
    }
}

fn shifted(fails: bool, outputs: usize) -> Result<Session> {
    let g = GraphBuilder::new();
    let x = g.input("x", DataType::F32, &[None, Some(2)])?;
    // The caller's op gets a row-major tensor, though it reads a transpose.
    let turned = g.transpose(g.softmax(x, 0)?, &[1, 0])?;
    let node = CustomNode::new("test::Shift").attr("by", 1.0f32);
    let y = g.custom(node, &[turned], &[(DataType::F32, None)])?[0];
    g.output("y", g.matmul(y, x)?)?;
    Session::builder(g.build()?).op("test::Shift", Shift { fails, outputs }).build(&Engine::new())
}

#[test]
fn an_op_of_the_callers_runs_between_partitions() -> Result<()> {
    let session = shifted(false, 1)?;
    let x = [0.0f32, 0.0, 0.0, 0.0];
    let outputs = session.run(&[("x", &TensorView::new(&x, &[2, 2]))])?;
    assert_eq!(outputs["y"].as_slice::<f32>()?, [0.0; 4]);
    let x = [0.0f32, 0.0];
    let outputs = session.run(&[("x", &TensorView::new(&x, &[1, 2]))])?;
    assert_eq!(outputs["y"].desc().dims(), Some(&[2, 2][..]));
    assert_eq!(session.run_steps().1, 1);
    Ok(())
}

/// Kernels read constants at any address; ops of the caller's get them as slices.
#[test]
fn it_gets_constants_at_multiples_of_their_size() -> Result<()> {
    let mut wrong = Vec::new();
    for first in 0..8 {
        let g = GraphBuilder::new();
        let bytes = [vec![0; first], [1.0f32, 2.0].map(f32::to_ne_bytes).concat()].concat();
        let data = ConstantData::new(Behind { bytes, first });
        let c = g.constant_data("c", DataType::F32, &[2, 1], data)?;
        // A view of the constant.
        let turned = g.reshape(c, &[1, 2])?;
        let node = CustomNode::new("test::Shift").attr("by", 1.0f32);
        let x = g.input("x", DataType::F32, &[None, Some(2)])?;
        g.output("y", (g.custom(node, &[turned], &[(DataType::F32, Some(&[Some(1), Some(2)]))])?[0] * x)?)?;
        g.output("z", (c + 1.0)?)?;
        let shift = Shift { fails: false, outputs: 1 };
        let session = Session::builder(g.build()?).op("test::Shift", shift).build(&Engine::new())?;
        for rows in [1, 2] {
            let x = vec![1.0f32; 2 * rows];
            let outputs = session.run(&[("x", &TensorView::new(&x, &[rows as i64, 2]))])?;
            if outputs["y"].as_slice::<f32>()? != [2.0, 3.0].repeat(rows)
                || outputs["z"].as_slice::<f32>()? != [2.0, 3.0]
            {
                wrong.push((first, rows));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
    Ok(())
}

/// Bytes behind some others.
struct Behind {
    bytes: Vec<u8>,
    first: usize,
}

impl AsRef<[u8]> for Behind {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[self.first..]
    }
}

#[test]
fn what_fails_in_it_is_an_error_of_the_run() {
    let x = [0.0f32; 4];
    let run = |session: Result<Session>| {
        let session = session.unwrap();
        let error = session.run(&[("x", &TensorView::new(&x, &[2, 2]))]).unwrap_err();
        (error.status(), error.to_string())
    };
    let (status, text) = run(shifted(true, 1));
    assert_eq!((status, text.contains("it broke off")), (Status::RuntimeError, true), "{text}");
    let (_, text) = run(shifted(false, 2));
    assert!(text.contains("dims of 2 outputs"), "{text}");
}

#[test]
fn ops_that_nobody_runs_are_listed_when_the_session_is_made() {
    let g = GraphBuilder::new();
    let x = g.input("x", DataType::F32, &[Some(1), Some(8), Some(8), Some(3)]).unwrap();
    // Axes that are an input have no kernel.
    let axes = g.constant("axes", &[1], &[1i32]).unwrap();
    let sum = g.reduce_sum_with(x, &[], &[axes], OpOptions::new()).unwrap();
    let y = g.custom("my::Op", &[sum], &[(DataType::F32, Some(&[Some(2)]))]).unwrap()[0];
    g.output("y", g.relu(y).unwrap()).unwrap();
    let Err(Error::Session(SessionFault::MissingOps(ops))) = Session::new(g.build().unwrap(), &Engine::new())
    else {
        panic!("nobody runs them");
    };
    let found: Vec<(&str, usize, usize)> =
        ops.iter().map(|op| (op.op.as_str(), op.place, op.inputs.len())).collect();
    assert_eq!(found, [("ReduceSum", 0, 2), ("my::Op", 1, 1)]);
}

#[test]
fn the_reference_interpreter_runs_what_no_kernel_does_if_it_may() -> Result<()> {
    // Axes that are an input have no kernel.
    let model = || -> Result<_> {
        let g = GraphBuilder::new();
        let x = g.input("x", DataType::F32, &[Some(2), Some(3)])?;
        let axes = g.constant("axes", &[1], &[1i32])?;
        let sum = g.reduce_sum_with(x, &[], &[axes], OpOptions::new())?;
        g.output("y", sum)?;
        g.build()
    };
    let refused = Session::new(model()?, &Engine::new());
    assert!(matches!(refused, Err(Error::Session(SessionFault::MissingOps(_)))), "{refused:?}");
    let session = Session::builder(model()?).fallback(true).build(&Engine::new());
    // The shape of the result depends on data.
    assert!(matches!(session, Err(Error::Session(SessionFault::OpenShape { .. }))), "{session:?}");

    // Unless the graph says it.
    let tensor = |id, data_type, dims: &[i64]| LogicalTensor::strided(id, data_type, dims);
    let sum = Op::new(0, OpKind::ReduceSum).input(tensor(0, DataType::F32, &[2, 3])?);
    let sum = sum.input(tensor(1, DataType::S32, &[1])?).output(tensor(2, DataType::F32, &[2])?);
    let twice = Op::new(1, OpKind::Add).input(tensor(2, DataType::F32, &[2])?);
    let twice = twice.input(tensor(2, DataType::F32, &[2])?).output(tensor(3, DataType::F32, &[2])?);
    let mut graph = Graph::new();
    graph.add_op(sum)?;
    graph.add_op(twice)?;
    let session = Session::builder(Model::new(graph)?).fallback(true).build(&Engine::new())?;
    // The columns of a matrix that lies the other way.
    let x = [1.0f32, 4.0, 2.0, 5.0, 3.0, 6.0];
    let columns = TensorView::with_strides(&x, &[2, 3], &[1, 2]);
    let outputs = session.run(&[("0", &columns), ("1", &[1i32])])?;
    assert_eq!(outputs["3"].as_slice::<f32>()?, [12.0, 30.0]);
    assert_eq!(session.run_steps(), (1, 1));
    Ok(())
}

#[test]
fn wrong_indices_are_told_of_before_anything_is_written() -> Result<()> {
    let g = GraphBuilder::new();
    let table = g.input("table", DataType::F32, &[Some(4), Some(2)])?;
    let places = g.input("places", DataType::S64, &[None])?;
    g.output("first", g.softmax(table, -1)?)?;
    g.output("rows", g.gather(table, places, 0)?)?;
    let session = Session::new(g.build()?, &Engine::new())?;
    let (values, mut first, mut rows) = ([0.5f32; 8], [7.0f32; 8], [7.0f32; 4]);
    let table = TensorView::new(&values, &[4, 2]);
    let mut run = |places: &[i64; 2]| {
        let inputs: &[(&str, &dyn sterna::AsDynView)] = &[("table", &table), ("places", places)];
        let result = session.run_into(inputs, &mut [("first", &mut first), ("rows", &mut rows)]);
        (result, first, rows)
    };
    let (result, first, rows) = run(&[1, 4]);
    let is_told =
        matches!(result, Err(Error::Execute(ExecuteFault::IndexOutOfRange { place: 1, index: 4, .. })));
    assert!(is_told && first == [7.0; 8] && rows == [7.0; 4], "{result:?} {first:?} {rows:?}");
    let (result, first, rows) = run(&[1, -4]);
    assert!(result.is_ok() && first == [0.5; 8] && rows == [0.5; 4]);
    Ok(())
}
