//! Runs of whole graphs against their ops one by one.

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::graphs::{self, RandomGraph};
use crate::common::{Random, report};
use crate::counting::allocations;
use sterna::{
    Allocator, AsDynView, Attr, ConstantData, DataType, Engine, Graph, GraphBuilder, GraphValue,
    LogicalTensor, Model, ModelPort, Op, OpKind, OpOptions, Policy, Result, Session, SystemAllocator,
    TensorBuf, TensorView,
};

/// Runs a graph as a whole, and its ops one by one; says what differs. Some of its inputs become constants.
fn check(graph: &RandomGraph, seed: u64, engine: &Engine) -> Result<(), String> {
    let inputs = graphs::filled(graph, engine, seed);
    let unknown =
        |(&id, tensor): (&usize, &LogicalTensor)| (id, LogicalTensor::unknown(id, tensor.data_type()));
    let wanted: BTreeMap<usize, LogicalTensor> = graph.outputs.iter().map(unknown).collect();
    let alone = graph.graph.partitions(Policy::Debug).map_err(|error| error.to_string())?;
    let expected = graphs::run(&alone, &wanted, engine, &inputs, None)?;

    let mut model = Model::new(graph.graph.clone()).map_err(|error| error.to_string())?;
    let is_known = |id: usize| {
        model.inputs().iter().any(|port| port.tensor.id() == id && port.tensor.strides().is_some())
    };
    let chosen = inputs.keys().copied().filter(|&id| (id ^ seed as usize).is_multiple_of(2) && is_known(id));
    let constants: Vec<usize> = chosen.collect();
    for id in &constants {
        model = model.constant(*id, ConstantData::new(inputs[id].as_bytes().to_vec()));
    }
    let session = Session::new(model, engine).map_err(|error| error.to_string())?;
    let names: Vec<(String, &TensorBuf)> = inputs
        .iter()
        .filter(|(id, _)| !constants.contains(id))
        .map(|(id, tensor)| (id.to_string(), tensor))
        .collect();
    let given: Vec<(&str, &dyn AsDynView)> =
        names.iter().map(|(name, tensor)| (name.as_str(), *tensor as &dyn AsDynView)).collect();
    for run in 0..2 {
        let outputs = session.run(&given).map_err(|error| error.to_string())?;
        for (name, output) in outputs.iter() {
            let expected = &expected[&name.parse::<usize>().unwrap()];
            let difference = graphs::difference(&graphs::value(output), &graphs::value(expected), 0);
            if let Some(difference) = difference {
                return Err(format!("run {run}, tensor {name}: {difference}"));
            }
        }
    }
    Ok(())
}

#[test]
fn random_graphs_have_the_bits_of_their_ops() {
    let engines = [Engine::builder().threads(1).build(), Engine::builder().threads(2).build()];
    let mut random = Random::new(0x5e55);
    let mut faults = Vec::new();
    for seed in 0..400 {
        let graph = RandomGraph::new(&mut random, 14);
        if let Err(fault) = check(&graph, seed, &engines[seed as usize % 2]) {
            faults.push(format!("{}\n{fault}", graphs::describe(&graph)));
        }
    }
    report(&faults[..faults.len().min(3)]);
}

type Make = for<'g> fn(&'g GraphBuilder, GraphValue<'g>) -> Result<Vec<GraphValue<'g>>>;

/// Numbers that are exact in every sum.
fn counted(dims: &[i64]) -> Vec<f32> {
    (0..dims.iter().product::<i64>()).map(|i| (i % 13) as f32 - 6.0).collect()
}

#[test]
fn views_and_outputs_of_every_kind_are_right() {
    let rows: &[(&str, Make)] = &[
        ("an input", |_, x| Ok(vec![x])),
        ("an input twice", |_, x| Ok(vec![x, x])),
        ("a constant", |g, _| Ok(vec![g.constant("c", &[2], &[1.0f32, 2.0])?])),
        ("a value twice", |g, x| {
            let y = g.relu(x)?;
            Ok(vec![y, y])
        }),
        ("a value that is used", |g, x| {
            let y = g.relu(x)?;
            Ok(vec![y, (y + 1.0)?, g.softmax(y, -1)?])
        }),
        ("a reshape of an input", |g, x| Ok(vec![g.reshape(x, &[4, 6])?])),
        ("a reshape of a result", |g, x| Ok(vec![g.reshape(g.softmax(x, -1)?, &[4, 6])?])),
        ("a result and its reshape", |g, x| {
            let y = g.softmax(x, -1)?;
            Ok(vec![y, g.reshape(y, &[24])?])
        }),
        ("two reshapes of a result", |g, x| {
            let y = g.softmax(x, -1)?;
            Ok(vec![g.reshape(y, &[4, 6])?, g.reshape(y, &[24])?])
        }),
        ("a transpose between sums", |g, x| {
            let y = g.transpose(g.softmax(x, -1)?, &[2, 0, 1])?;
            Ok(vec![g.softmax(y, -1)?])
        }),
        ("a slice of a transpose", |g, x| {
            let y = g.transpose(g.softmax(x, -1)?, &[2, 0, 1])?;
            let y = g.slice(y, &[1, 0, 1], &[4, 2, 3])?;
            Ok(vec![g.softmax(y, 0)?, y])
        }),
        ("a slice backwards", |g, x| {
            let y =
                g.slice_with(g.softmax(x, -1)?, &[-1], &[-5], OpOptions::new().steps(&[-1]).axes(&[2]))?;
            Ok(vec![g.softmax(y, -1)?])
        }),
        ("an empty slice", |g, x| {
            let y = g.slice(g.softmax(x, -1)?, &[1], &[1])?;
            Ok(vec![g.softmax(y, -1)?])
        }),
        ("views beside what they show", |g, x| {
            let y = g.softmax(x, -1)?;
            let z = g.matmul(y, g.transpose(y, &[0, 2, 1])?)?;
            Ok(vec![g.softmax(z, -1)?, g.relu(g.reshape(y, &[24])?)?])
        }),
        ("concats", |g, x| {
            let y = g.softmax(x, -1)?;
            let z = g.concat(&[y, x, y], 1)?;
            Ok(vec![g.softmax(z, 1)?, z])
        }),
        ("constants that fold", |g, x| {
            let c = g.constant("c", &[4], &[1.0f32, 2.0, 3.0, 4.0])?;
            let c = g.softmax(g.reshape(g.softmax(c, 0)?, &[1, 1, 4])?, 2)?;
            Ok(vec![g.matmul(x, g.transpose(c, &[0, 2, 1])?)?, g.add(x, c)?])
        }),
    ];
    let dims = [2i64, 3, 4];
    let (x, engine) = (counted(&dims), Engine::builder().threads(2).build());
    let mut faults = Vec::new();
    for (what, make) in rows {
        let run = |policy: Policy| -> Result<Vec<Vec<f32>>> {
            let g = GraphBuilder::new();
            let input = g.input("x", DataType::F32, &[Some(2), Some(3), Some(4)])?;
            for (index, value) in make(&g, input)?.into_iter().enumerate() {
                g.output(format!("y{index}"), value)?;
            }
            let model = g.build()?;
            let view = TensorView::new(&x, &dims);
            match policy {
                Policy::Fusion => {
                    let outputs = Session::new(model, &engine)?.run(&[("x", &view)])?;
                    outputs.iter().map(|(_, tensor)| Ok(tensor.as_slice::<f32>()?.to_vec())).collect()
                }
                _ => one_by_one(&model, &x, &dims),
            }
        };
        let (whole, alone) = (run(Policy::Fusion), run(Policy::Debug));
        let is_near = |(a, b): (&Vec<f32>, &Vec<f32>)| {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 2e-6 * (1.0 + b.abs()))
        };
        let fits = |whole: &Vec<Vec<f32>>| {
            let alone = alone.as_ref().unwrap();
            whole.len() == alone.len() && whole.iter().zip(alone).all(is_near)
        };
        if !whole.as_ref().is_ok_and(fits) {
            faults.push(format!("{what}: {whole:?}, not {alone:?}"));
        }
    }
    report(&faults);
}

/// The outputs of a model as the reference interpreter has them, op by op.
pub(crate) fn one_by_one(model: &Model, x: &[f32], dims: &[i64]) -> Result<Vec<Vec<f32>>> {
    use sterna::reference::{self, Value};
    let mut known: BTreeMap<usize, Value> = BTreeMap::new();
    for port in model.inputs() {
        known.insert(port.tensor.id().get(), Value::from_slice(dims, x)?);
    }
    let mentions = || model.graph().ops().iter().flat_map(|op| op.inputs().iter());
    for (id, data) in model.constants() {
        let of_output = model.outputs().iter().map(|port| &port.tensor);
        let tensor = mentions().chain(of_output).find(|tensor| tensor.id() == *id).unwrap();
        let value = Value::new(tensor.data_type(), tensor.dims().unwrap(), data.bytes().to_vec())?;
        known.insert(id.get(), value);
    }
    // The builder adds ops in an order in which they can run.
    for op in model.graph().ops().iter().filter(|op| op.kind() != OpKind::End) {
        let inputs: Vec<Value> = op.inputs().iter().map(|input| known[&input.id().get()].clone()).collect();
        let results = reference::run(op, &inputs)?;
        known.extend(op.outputs().iter().map(|output| output.id().get()).zip(results));
    }
    let output = |port: &ModelPort| known[&port.tensor.id().get()].elements::<f32>().unwrap();
    Ok(model.outputs().iter().map(output).collect())
}

#[test]
fn a_tensor_that_an_op_end_takes_is_an_output() -> Result<()> {
    let tensor = |id| LogicalTensor::strided(id, DataType::F32, &[2]);
    let mut graph = Graph::new();
    graph.add_op(Op::new(0, OpKind::Exp).input(tensor(0)?).output(tensor(1)?))?;
    graph.add_op(Op::new(1, OpKind::End).input(tensor(1)?))?;
    graph.add_op(Op::new(2, OpKind::Abs).input(tensor(1)?).output(tensor(2)?))?;
    let outputs = Session::new(graph, &Engine::new())?.run(&[("0", &[0.0f32, 0.0])])?;
    assert_eq!(
        (outputs["1"].as_slice::<f32>()?, outputs["2"].as_slice::<f32>()?),
        (&[1.0; 2][..], &[1.0; 2][..])
    );
    Ok(())
}

/// Layers of products and softmaxes, which no partition joins.
fn layers(count: usize, rows: Option<i64>) -> Result<Model> {
    let g = GraphBuilder::new();
    let mut x = g.input("x", DataType::F32, &[rows, Some(16)])?;
    for layer in 0..count {
        let w: Vec<f32> = (0..256).map(|i| ((i + layer) % 7) as f32 / 7.0).collect();
        let w = g.constant(format!("w{layer}"), &[16, 16], &w)?;
        x = g.softmax(g.matmul(x, w)?, -1)?;
        x = g.cumsum(x, 1)?;
    }
    g.output("y", x)?;
    g.build()
}

#[test]
fn lengths_share_a_session_and_its_plans_are_bounded() -> Result<()> {
    let engine = Engine::builder().threads(1).build();
    let session = Session::builder(layers(3, None)?).shapes(2).build(&engine)?;
    let fixed = |rows: i64| Session::new(layers(3, Some(rows))?, &engine);
    for rows in [1i64, 5, 2, 5, 1, 64, 1] {
        let x = counted(&[rows, 16]);
        let view = TensorView::new(&x, &[rows, 16]);
        let (open, closed) = (session.run(&[("x", &view)])?, fixed(rows)?.run(&[("x", &view)])?);
        assert_eq!(open["y"].as_bytes(), closed["y"].as_bytes(), "{rows} rows");
    }
    // Strided inputs are other plans of the same session.
    let x = counted(&[16, 5]);
    let columns = TensorView::with_strides(&x, &[5, 16], &[1, 5]);
    let rows: Vec<f32> = (0..80).map(|i| x[(i % 16) * 5 + i / 16]).collect();
    let rows = TensorView::new(&rows, &[5, 16]);
    let (a, b) = (session.run(&[("x", &columns)])?, session.run(&[("x", &rows)])?);
    assert_eq!(a["y"].as_bytes(), b["y"].as_bytes());
    Ok(())
}

/// An allocator that counts its blocks.
#[derive(Default)]
struct CountedBlocks(AtomicUsize);

// SAFETY: hands on what another allocator gives.
unsafe impl Allocator for CountedBlocks {
    fn allocate(&self, size: usize, align: usize) -> Option<NonNull<u8>> {
        self.0.fetch_add(1, Ordering::Relaxed);
        SystemAllocator.allocate(size, align)
    }

    unsafe fn deallocate(&self, block: NonNull<u8>, size: usize, align: usize) {
        // SAFETY: as the caller promises.
        unsafe { SystemAllocator.deallocate(block, size, align) }
    }
}

#[test]
fn partitions_that_differ_in_scales_alone_have_copies_of_their_own() -> Result<()> {
    let (rows, depth, columns) = (40, 24, 20);
    let unknown = |id: usize| LogicalTensor::unknown(id, DataType::F32);
    let weights = LogicalTensor::strided(1, DataType::S8, &[depth, columns])?;
    let mut graph = Graph::new();
    for at in 0..2 {
        let scales: Vec<f32> = (0..columns).map(|column| (column + 1) as f32 * (1 + at) as f32).collect();
        let dequantize = Op::new(2 * at, OpKind::Dequantize)
            .attr(Attr::Qtype, "per_channel")
            .attr(Attr::Axis, 1i64)
            .attr(Attr::Scales, scales)
            .attr(Attr::Zps, vec![0i64; columns as usize]);
        graph.add_op(dequantize.input(weights.clone()).output(unknown(10 + at)))?;
        let x = LogicalTensor::strided(0, DataType::F32, &[rows, depth])?;
        let product = Op::new(2 * at + 1, OpKind::MatMul).input(x).input(unknown(10 + at));
        graph.add_op(product.output(unknown(20 + at)))?;
    }
    graph.finalize()?;
    let bytes: Vec<u8> = (0..depth * columns).map(|i| (i % 7) as u8).collect();
    let model = Model::new(graph)?.constant(1, ConstantData::new(bytes));
    let session = Session::new(model, &Engine::builder().threads(1).build())?;
    let x = counted(&[rows, depth]);
    let outputs = session.run(&[("0", &TensorView::new(&x, &[rows, depth]))])?;
    let twice: Vec<f32> = outputs["20"].as_slice::<f32>()?.iter().map(|y| 2.0 * y).collect();
    assert!(twice.iter().any(|y| *y != 0.0));
    assert_eq!(outputs["21"].as_slice::<f32>()?, twice);
    Ok(())
}

#[test]
fn lengths_share_the_packed_constants() -> Result<()> {
    let weights = counted(&[70, 40]);
    let blocks = |capacity: usize| -> Result<usize> {
        let g = GraphBuilder::new();
        let x = g.input("x", DataType::F32, &[None, Some(40)])?;
        for name in ["a", "b"] {
            let w = g.constant(name, &[70, 40], &weights)?;
            g.output(name, g.matmul_with(x, w, &[], OpOptions::new().transpose_b(true))?)?;
        }
        let allocator = Arc::new(CountedBlocks::default());
        let builder = Engine::builder().threads(1).allocator(allocator.clone());
        let session = Session::new(g.build()?, &builder.constant_cache_capacity(capacity).build())?;
        for rows in [150i64, 160, 170] {
            let x = counted(&[rows, 40]);
            session.run(&[("x", &TensorView::new(&x, &[rows, 40]))])?;
        }
        Ok(allocator.0.load(Ordering::Relaxed))
    };
    // Each of two products keeps one copy, not one for each length.
    assert_eq!(blocks(1 << 30)? - blocks(0)?, 2);
    Ok(())
}

#[test]
fn large_results_take_the_memory_of_dropped_ones() -> Result<()> {
    let blocks = |arenas: usize| -> Result<usize> {
        let g = GraphBuilder::new();
        let x = g.input("x", DataType::F32, &[None])?;
        g.output("exp", g.exp(x)?)?;
        g.output("negated", g.multiply(x, g.scalar(DataType::F32, -1.0)?)?)?;
        let allocator = Arc::new(CountedBlocks::default());
        let engine = Engine::builder().threads(1).allocator(allocator.clone()).build();
        let session = Session::builder(g.build()?).arenas(arenas).build(&engine)?;
        let mut before = None;
        for length in 40_000..40_030 {
            let x = counted(&[length]);
            // Those of the run before live on until this one has ended, as the rows of a cache do.
            let results = session.run(&[("x", &x)])?;
            let of_exp = results["exp"].as_slice::<f32>()?;
            let is_right = x.iter().zip(of_exp).all(|(x, y)| (x.exp() - y).abs() <= 1e-5 * x.exp());
            assert!(is_right && of_exp.len() == length as usize);
            assert!(
                results["negated"].as_slice::<f32>()?.iter().eq(x
                    .iter()
                    .map(|x| -x)
                    .collect::<Vec<_>>()
                    .iter())
            );
            before = Some(results);
        }
        drop((before, session));
        Ok(allocator.0.load(Ordering::Relaxed))
    };
    let (kept, anew) = (blocks(4)?, blocks(0)?);
    assert!(kept <= anew - 2 * 26, "{kept} blocks, {anew} if none are kept");
    Ok(())
}

#[test]
fn tensors_between_partitions_share_an_arena() -> Result<()> {
    let session = Session::new(layers(8, Some(64))?, &Engine::builder().threads(1).build())?;
    let x = counted(&[64, 16]);
    session.run(&[("x", &TensorView::new(&x, &[64, 16]))])?;
    let (partitions, _) = session.run_steps();
    let tensor = 64 * 16 * 4;
    assert!(partitions >= 8, "{partitions}");
    // Scratch of products and softmaxes comes with it.
    assert!(session.run_memory() <= 3 * tensor + (64 << 10), "{}", session.run_memory());
    Ok(())
}

#[test]
fn runs_into_memory_of_the_caller_allocate_nothing() -> Result<()> {
    let session = Session::new(layers(3, None)?, &Engine::builder().threads(1).build())?;
    let x = counted(&[5, 16]);
    let view = TensorView::new(&x, &[5, 16]);
    let expected = session.run(&[("x", &view)])?;
    let mut y = [0.0f32; 80];
    let mut run = || session.run_into(&[("x", &view)], &mut [("y", &mut y)]).unwrap();
    run();
    assert_eq!(allocations(&mut run), 0);
    assert_eq!(y, expected["y"].as_slice::<f32>()?);
    Ok(())
}

#[test]
fn threads_run_one_session_at_once() -> Result<()> {
    let session = Session::new(layers(3, None)?, &Engine::builder().threads(2).build())?;
    let expected: Vec<Vec<u8>> = (1..5i64)
        .map(|rows| {
            let x = counted(&[rows, 16]);
            Ok(session.run(&[("x", &TensorView::new(&x, &[rows, 16]))])?["y"].as_bytes().to_vec())
        })
        .collect::<Result<_>>()?;
    std::thread::scope(|scope| {
        for thread in 0..4usize {
            let (session, expected) = (session.clone(), &expected);
            scope.spawn(move || {
                for turn in 0..50 {
                    let rows = (thread + turn) % 4;
                    let dims = [rows as i64 + 1, 16];
                    let x = counted(&dims);
                    let outputs = session.run(&[("x", &TensorView::new(&x, &dims))]).unwrap();
                    assert_eq!(outputs["y"].as_bytes(), expected[rows], "{rows}");
                }
            });
        }
    });
    Ok(())
}

/// A row reads weights as they are if not all of them may be kept: to pack them in each run would take
/// several times as long.
#[test]
fn few_rows_have_packed_weights_if_there_is_room_for_all() -> Result<()> {
    static RELEASED: AtomicUsize = AtomicUsize::new(0);
    const BYTES: usize = 64 * 64 * 4;
    let mut wrong = Vec::new();
    for (capacity, packed) in [(1 << 20, 2), (3 * BYTES, 2), (BYTES, 0), (0, 0)] {
        let g = GraphBuilder::new();
        let weights = |name: &str| {
            let bytes: Vec<u8> = (0..64 * 64).flat_map(|i| ((i % 5) as f32).to_ne_bytes()).collect();
            let data = ConstantData::returning(bytes, |_: &Vec<u8>| {
                RELEASED.fetch_add(1, Ordering::Relaxed);
            });
            g.constant_data(name, DataType::F32, &[64, 64], data)
        };
        let x = g.input("x", DataType::F32, &[Some(1), Some(64)])?;
        for name in ["v", "w"] {
            g.output(format!("x{name}"), g.matmul(x, weights(name)?)?)?;
        }
        let engine = Engine::builder().threads(1).constant_cache_capacity(capacity).build();
        let session = Session::new(g.build()?, &engine)?;
        let before = RELEASED.load(Ordering::Relaxed);
        for _ in 0..2 {
            session.run(&[("x", &TensorView::new(&[1.0f32; 64], &[1, 64]))])?;
        }
        let released = RELEASED.load(Ordering::Relaxed) - before;
        if released != packed {
            wrong.push(format!("{capacity} bytes: {released} are packed"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
    Ok(())
}

#[test]
fn memory_of_constants_that_are_packed_goes_back_once() -> Result<()> {
    static RELEASED: AtomicUsize = AtomicUsize::new(0);
    let g = GraphBuilder::new();
    let x = g.input("x", DataType::F32, &[None, Some(64)])?;
    let bytes: Vec<u8> = (0..64 * 64).flat_map(|i| ((i % 5) as f32).to_ne_bytes()).collect();
    let data = ConstantData::returning(bytes, |bytes: &Vec<u8>| {
        assert_eq!(bytes.len(), 64 * 64 * 4);
        RELEASED.fetch_add(1, Ordering::Relaxed);
    });
    let w = g.constant_data("w", DataType::F32, &[64, 64], data)?;
    g.output("y", g.matmul(x, w)?)?;
    let session = Session::new(g.build()?, &Engine::builder().threads(1).build())?;
    let ones = vec![1.0f32; 128 * 64];
    let mut released = Vec::new();
    // All numbers of rows share one copy.
    for rows in [1i64, 128, 128, 64, 1] {
        let view = TensorView::new(&ones[..64 * rows as usize], &[rows, 64]);
        let outputs = session.run(&[("x", &view)])?;
        let sum = |column: usize| (0..64).map(|row| ((row * 64 + column) % 5) as f32).sum::<f32>();
        let y = outputs["y"].as_slice::<f32>()?;
        assert!(y.iter().enumerate().all(|(i, &y)| y == sum(i % 64)), "{rows}");
        released.push(RELEASED.load(Ordering::Relaxed));
    }
    assert_eq!(released, [1; 5]);
    Ok(())
}
