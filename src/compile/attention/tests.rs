//! Tiles that are left out against the same plan that leaves out none, bit for bit.

use std::sync::Arc;

use super::lower;
use crate::compile::machine::Machine;
use crate::execute::compiled::CompiledPartition;
use crate::execute::engine::Engine;
use crate::execute::stream::Stream;
use crate::execute::tensor::TensorBuf;
use crate::graph::Graph;
use crate::graph::logical_tensor::LogicalTensor;
use crate::graph::op::Op;
use crate::plan::Phase;
use crate::types::dtype::DataType;
use crate::types::features::CpuFeatures;
use crate::types::kind::{Attr, Level, OpKind, Policy};

const HEADS: usize = 2;
const KEYS: usize = 1100;
const DEPTH: usize = 24;

/// Which keys a query sees.
type Mask = fn(usize, usize) -> bool;

/// Every query sees a key, in the first tile, in the last one, or in between.
const MASKS: [(&str, Mask); 6] = [
    ("causal", |query, key| key <= query),
    ("bottom right", |query, key| key >= 900 - query),
    ("window", |query, key| key <= query + 500 && query + 500 < key + 70),
    ("padding", |_, key| key < 640),
    ("chunks", |query, key| key / 64 % 5 == query % 5),
    ("one key", |query, key| key == 77 + 9 * (query % 100)),
];

fn tensor(id: usize, data_type: DataType, dims: &[usize]) -> LogicalTensor {
    let dims: Vec<i64> = dims.iter().map(|&dim| dim as i64).collect();
    LogicalTensor::strided(id, data_type, &dims).expect("the tensor can be described")
}

/// Scale, mask, SoftMax and both products, and the tensors of their inputs and their result.
fn graph(data_type: DataType, queries: usize) -> (Graph, Vec<LogicalTensor>, LogicalTensor) {
    let unknown = |id, data_type| LogicalTensor::unknown(id, data_type);
    let inputs = vec![
        tensor(0, data_type, &[HEADS, queries, DEPTH]),
        tensor(1, data_type, &[HEADS, KEYS, DEPTH]),
        tensor(2, data_type, &[HEADS, KEYS, DEPTH]),
        tensor(3, DataType::Boolean, &[queries, KEYS]),
        tensor(4, DataType::F32, &[]),
    ];
    let result = tensor(5, data_type, &[HEADS, queries, DEPTH]);
    let ops = [
        Op::new(0, OpKind::MatMul)
            .attr(Attr::TransposeB, true)
            .input(inputs[0].clone())
            .input(inputs[1].clone())
            .output(unknown(10, DataType::F32)),
        Op::select(
            1,
            inputs[3].clone(),
            unknown(10, DataType::F32),
            inputs[4].clone(),
            unknown(11, DataType::F32),
        ),
        Op::new(2, OpKind::SoftMax)
            .attr(Attr::Axis, -1i64)
            .input(unknown(11, DataType::F32))
            .output(unknown(12, data_type)),
        Op::new(3, OpKind::MatMul)
            .input(unknown(12, data_type))
            .input(inputs[2].clone())
            .output(result.clone()),
    ];
    let mut graph = Graph::new();
    ops.into_iter().for_each(|op| graph.add_op(op).expect("the op fits its schema"));
    graph.finalize().expect("the graph is whole");
    (graph, inputs, result)
}

/// The bytes of an input: small numbers, the mask, or the fill.
fn fill(buffer: &mut TensorBuf, queries: usize, mask: Mask, number: f32) {
    let (id, data_type) = (buffer.desc().id(), buffer.desc().data_type());
    let some = |at: usize| (at.wrapping_mul(0x9e37_79b9) >> 7 & 0xff) as f32 / 64.0 - 2.0;
    let bytes = buffer.as_mut_bytes();
    match data_type {
        DataType::Boolean => {
            for (at, byte) in bytes.iter_mut().enumerate().take(queries * KEYS) {
                *byte = mask(at / KEYS, at % KEYS).into();
            }
        }
        DataType::F32 => {
            for (at, element) in bytes.chunks_exact_mut(4).enumerate() {
                let number = if id == 4 { number } else { some(at + id) };
                element.copy_from_slice(&number.to_ne_bytes());
            }
        }
        DataType::Bf16 => {
            for (at, element) in bytes.chunks_exact_mut(2).enumerate() {
                element.copy_from_slice(&half::bf16::from_f32(some(at + id)).to_ne_bytes());
            }
        }
        _ => {
            for (at, element) in bytes.chunks_exact_mut(2).enumerate() {
                element.copy_from_slice(&half::f16::from_f32(some(at + id)).to_ne_bytes());
            }
        }
    }
}

/// The result, with or without tiles left out, and whether the plan has classes of tiles.
fn result(
    data_type: DataType,
    queries: usize,
    mask: Mask,
    number: f32,
    level: Level,
    skips: bool,
) -> (Vec<u8>, bool) {
    let (graph, inputs, output) = graph(data_type, queries);
    let engine = Engine::builder().threads(2).max_level(level).build();
    let partitions = graph.partitions(Policy::Fusion).expect("it is finalised");
    let [partition] = &partitions[..] else { panic!("{} partitions", partitions.len()) };
    let machine = Machine { level, features: CpuFeatures::NONE, single_thread: false };
    let of_port = |port: &LogicalTensor| inputs.iter().find(|input| input.id() == port.id());
    let given: Vec<&LogicalTensor> = partition.inputs().iter().filter_map(of_port).collect();
    let mut plan = lower(partition, &given, &[&output], machine).expect("kernels run it");
    let mut has_classes = false;
    for phase in &mut plan.phases {
        let (classes, unmasked) = match phase {
            Phase::Attention(phase) => (&mut phase.core.classes, &mut phase.core.unmasked),
            Phase::Decode(phase) => (&mut phase.core.core.classes, &mut phase.core.core.unmasked),
            _ => continue,
        };
        has_classes = classes.is_some();
        if !skips {
            (*classes, *unmasked) = (None, None);
        }
    }
    let ports: Vec<LogicalTensor> = given.iter().map(|&port| port.clone()).chain([output.clone()]).collect();
    let compiled = CompiledPartition::new(Arc::new(plan), engine.clone(), ports, given.len());
    let tensors: Vec<TensorBuf> = (compiled.inputs().iter())
        .map(|desc| {
            let mut buffer = TensorBuf::zeroed(desc.clone(), &engine).expect("there is memory");
            fill(&mut buffer, queries, mask, number);
            buffer
        })
        .collect();
    let mut to = TensorBuf::zeroed(output, &engine).expect("there is memory");
    let from: Vec<_> = tensors.iter().map(TensorBuf::as_tensor).collect();
    let stream = Stream::new(&engine);
    compiled.execute(&stream, &from, &mut [to.as_tensor_mut()]).expect("the tensors fit");
    (to.as_bytes().to_vec(), has_classes)
}

#[test]
fn what_is_left_out_changes_no_bit() {
    let mut wrong = Vec::new();
    for level in Level::all_available() {
        for data_type in [DataType::F32, DataType::Bf16, DataType::F16] {
            for (name, mask) in MASKS {
                for (queries, number) in
                    [(3, f32::NEG_INFINITY), (3, -1e4), (130, f32::NEG_INFINITY), (130, -1e4)]
                {
                    let [left_out, all] =
                        [true, false].map(|skips| result(data_type, queries, mask, number, level, skips));
                    if left_out.0 != all.0 || !left_out.1 {
                        wrong.push((level, data_type, name, queries, number));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
