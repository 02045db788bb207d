//! Graphs of masked attention for tests that hold a plan that leaves out tiles against the same plan that
//! leaves out none.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

pub(super) use super::lower::lower;
use super::machine::Machine;
use crate::error::Result;
use crate::execute::compiled::CompiledPartition;
use crate::execute::engine::Engine;
use crate::execute::stream::Stream;
use crate::execute::tensor::TensorBuf;
use crate::graph::Graph;
use crate::graph::logical_tensor::LogicalTensor;
use crate::graph::op::Op;
use crate::partition::Partition;
use crate::plan::{Phase, Plan};
use crate::types::dtype::DataType;
use crate::types::features::CpuFeatures;
use crate::types::id::TensorId;
use crate::types::kind::{Attr, AutoBroadcast, CpuFeature, Level, OpKind, Policy};

use DataType as D;
use OpKind as K;

pub(super) const KEYS: usize = 1100;
pub(super) const DEPTH: usize = 24;

pub(super) const TYPES: [DataType; 3] = [D::F32, D::Bf16, D::F16];

/// Few queries, which share the chunks of their keys, and blocks of them.
pub(super) const QUERIES: [usize; 2] = [3, 130];

/// The numbers that stand for masked scores; none weighs beside a score. Few queries add tiles of a number
/// that weighs behind all others, so their sums have another order.
pub(super) const FILLS: [f32; 3] = [f32::NEG_INFINITY, -1e4, f32::MIN];

/// Numbers that are added to masked scores. The last two weigh beside no score, but in queries without keys,
/// and in all of them.
pub(super) const ADDENDS: [f32; 4] = [f32::MIN, -1e4, -400.0, -30.0];

/// The forms in which finite numbers mask scores without taking their place.
pub(super) const SUMS: [MaskForm; 5] =
    [MaskForm::Additive, MaskForm::Chosen, MaskForm::Complement, MaskForm::Floored, MaskForm::Twice];

/// Which keys a query sees: for a query and a key, and as ops on indices.
pub(super) struct Mask {
    name: &'static str,
    holds: fn(usize, usize) -> bool,
    ops: fn(&mut Ops, LogicalTensor, LogicalTensor) -> LogicalTensor,
}

/// Every query sees a key, in the first tile, in the last one, or in between.
pub(super) static MASKS: [Mask; 6] = [
    Mask {
        name: "causal",
        holds: |query, key| key <= query,
        ops: |ops, i, j| ops.condition(K::LessEqual, &j, &i),
    },
    Mask {
        name: "bottom right",
        holds: |query, key| key >= 900 - query,
        ops: |ops, i, j| {
            let end = ops.integer(900);
            let first = ops.integers(K::Subtract, &end, &i);
            ops.condition(K::GreaterEqual, &j, &first)
        },
    },
    Mask {
        name: "window",
        holds: |query, key| key <= query + 500 && query + 500 < key + 70,
        ops: |ops, i, j| {
            let [offset, width] = [500, 70].map(|number| ops.integer(number));
            let [i, end] = [(i, offset), (j.clone(), width)].map(|(x, y)| ops.integers(K::Add, &x, &y));
            let [is_before, is_near] =
                [(K::LessEqual, &j, &i), (K::Less, &i, &end)].map(|(kind, x, y)| ops.condition(kind, x, y));
            ops.condition(K::LogicalAnd, &is_before, &is_near)
        },
    },
    Mask {
        name: "padding",
        holds: |_, key| key < 640,
        ops: |ops, _, j| {
            let end = ops.integer(640);
            ops.condition(K::Less, &j, &end)
        },
    },
    Mask {
        name: "chunks",
        holds: |query, key| key / 64 % 5 == query % 5,
        ops: |ops, i, j| {
            let [size, count] = [64, 5].map(|number| ops.integer(number));
            let chunk = ops.integers(K::Divide, &j, &size);
            let [chunk, of_query] = [chunk, i].map(|x| ops.integers(K::Modulo, &x, &count));
            ops.condition(K::Equal, &chunk, &of_query)
        },
    },
    Mask {
        name: "one key",
        holds: |query, key| key == 77 + 9 * (query % 100),
        ops: |ops, i, j| {
            let [first, step, count] = [77, 9, 100].map(|number| ops.integer(number));
            let at = ops.integers(K::Modulo, &i, &count);
            let at = ops.integers(K::Multiply, &at, &step);
            let key = ops.integers(K::Add, &at, &first);
            ops.condition(K::Equal, &j, &key)
        },
    },
];

/// Blocks of queries of which all, some and none see keys.
pub(super) static EARLY: Mask = Mask {
    name: "early queries",
    holds: |query, key| query < 100 && key <= query,
    ops: |ops, i, j| {
        let end = ops.integer(100);
        let [is_early, is_before] =
            [(K::Less, &i, &end), (K::LessEqual, &j, &i)].map(|(kind, x, y)| ops.condition(kind, x, y));
        ops.condition(K::LogicalAnd, &is_early, &is_before)
    },
};

/// In which form a graph has a mask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MaskForm {
    Boolean,
    Expression,
    /// A tensor of numbers that is added.
    Additive,
    /// Numbers that a condition chooses, added.
    Chosen,
    /// (1 − mask) · fill, added.
    Complement,
    /// As `Additive`, then the larger of the sum and the fill.
    Floored,
    /// Two tensors that are added one after the other: each masks some of the keys.
    Twice,
}

/// A mask as a graph has it; the other polarity if inverted.
#[derive(Clone, Copy)]
pub(super) struct Masked {
    pub(super) mask: &'static Mask,
    pub(super) form: MaskForm,
    pub(super) inverted: bool,
    pub(super) fill: f32,
}

impl fmt::Debug for Masked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mask, form, inverted, fill } = self;
        write!(f, "{} as {form:?}, inverted {inverted}, fill {fill}", mask.name)
    }
}

/// Numbers from a seed, the same ones each time.
pub(super) fn mixed(seed: usize) -> usize {
    let x = (seed as u64).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((x ^ x >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 33) as usize
}

/// Some number within ±2.
pub(super) fn some(at: usize) -> f32 {
    (at.wrapping_mul(0x9e37_79b9) >> 7 & 0xff) as f32 / 64.0 - 2.0
}

fn tensor(id: usize, data_type: DataType, dims: &[usize]) -> LogicalTensor {
    let dims: Vec<i64> = dims.iter().map(|&dim| dim as i64).collect();
    LogicalTensor::strided(id, data_type, &dims).expect("the tensor can be described")
}

/// A graph that grows op by op, with its inputs and outputs.
#[derive(Default)]
pub(super) struct Ops {
    ops: Vec<Op>,
    inputs: Vec<(LogicalTensor, Vec<u8>)>,
    outputs: Vec<LogicalTensor>,
    next: usize,
}

impl Ops {
    fn id(&mut self) -> usize {
        self.next += 1;
        self.next - 1
    }

    /// An input of numbers, in row-major order.
    pub(super) fn input(
        &mut self,
        data_type: DataType,
        dims: &[usize],
        number: impl Fn(usize) -> f32,
    ) -> LogicalTensor {
        let numbers = (0..dims.iter().product()).map(number);
        let bytes: Vec<u8> = match data_type {
            D::F32 => numbers.flat_map(f32::to_ne_bytes).collect(),
            D::Bf16 => numbers.flat_map(|x| half::bf16::from_f32(x).to_ne_bytes()).collect(),
            D::F16 => numbers.flat_map(|x| half::f16::from_f32(x).to_ne_bytes()).collect(),
            D::S32 => numbers.flat_map(|x| (x as i32).to_ne_bytes()).collect(),
            D::S8 => numbers.map(|x| x as i8 as u8).collect(),
            _ => numbers.map(|x| x as u8).collect(),
        };
        let desc = tensor(self.id(), data_type, dims);
        self.inputs.push((desc.clone(), bytes));
        desc
    }

    /// An input of numbers about 0.
    pub(super) fn numbers(&mut self, data_type: DataType, dims: &[usize]) -> LogicalTensor {
        let seed = self.next;
        self.input(data_type, dims, |at| some(at + seed))
    }

    /// An input of bytes.
    pub(super) fn bytes(&mut self, dims: &[usize]) -> LogicalTensor {
        let seed = self.next;
        self.input(D::U8, dims, |at| (mixed(at + (seed << 20)) & 0xff) as f32)
    }

    pub(super) fn number(&mut self, number: f32) -> LogicalTensor {
        self.input(D::F32, &[], |_| number)
    }

    fn integer(&mut self, number: i32) -> LogicalTensor {
        self.input(D::S32, &[], |_| number as f32)
    }

    pub(super) fn op_with(
        &mut self,
        kind: OpKind,
        inputs: &[&LogicalTensor],
        to: DataType,
        attrs: impl FnOnce(Op) -> Op,
    ) -> LogicalTensor {
        let result = LogicalTensor::unknown(self.id(), to);
        let op = attrs(Op::new(self.id(), kind)).inputs_from(inputs.iter().copied().cloned());
        self.ops.push(op.output(result.clone()));
        result
    }

    pub(super) fn op(&mut self, kind: OpKind, inputs: &[&LogicalTensor], to: DataType) -> LogicalTensor {
        self.op_with(kind, inputs, to, |op| op)
    }

    /// An op whose result the graph hands out.
    pub(super) fn output(
        &mut self,
        kind: OpKind,
        inputs: &[&LogicalTensor],
        (to, dims): (DataType, &[usize]),
        attrs: impl FnOnce(Op) -> Op,
    ) {
        let result = tensor(self.id(), to, dims);
        let op = attrs(Op::new(self.id(), kind)).inputs_from(inputs.iter().copied().cloned());
        self.ops.push(op.output(result.clone()));
        self.outputs.push(result);
    }

    pub(super) fn cast(&mut self, from: LogicalTensor, to: DataType) -> LogicalTensor {
        if from.data_type() == to { from } else { self.op(K::TypeCast, &[&from], to) }
    }

    pub(super) fn product(&mut self, left: &LogicalTensor, right: &LogicalTensor) -> LogicalTensor {
        self.op_with(K::MatMul, &[left, right], D::F32, |op| op.attr(Attr::TransposeB, true))
    }

    pub(super) fn softmax(&mut self, scores: &LogicalTensor, to: DataType) -> LogicalTensor {
        self.op_with(K::SoftMax, &[scores], to, |op| {
            op.attr(Attr::Axis, -1i64).attr(Attr::Mode, "inf_as_zero")
        })
    }

    fn integers(&mut self, kind: OpKind, left: &LogicalTensor, right: &LogicalTensor) -> LogicalTensor {
        self.op(kind, &[left, right], D::S32)
    }

    fn condition(&mut self, kind: OpKind, left: &LogicalTensor, right: &LogicalTensor) -> LogicalTensor {
        self.op(kind, &[left, right], D::Boolean)
    }

    /// The scores, masked.
    pub(super) fn masked(
        &mut self,
        scores: &LogicalTensor,
        queries: usize,
        Masked { mask, form, inverted, fill }: Masked,
    ) -> LogicalTensor {
        let dims = [queries, KEYS];
        let holds = |at: usize| (mask.holds)(at / KEYS, at % KEYS);
        let added = |ops: &mut Self, scores: &LogicalTensor, addend: &LogicalTensor| {
            let both = if inverted { [addend, scores] } else { [scores, addend] };
            ops.op(K::Add, &both, D::F32)
        };
        let cond = match form {
            MaskForm::Boolean => self.input(D::Boolean, &dims, |at| f32::from(holds(at) != inverted)),
            MaskForm::Expression => {
                let [i, j] = [-2i64, -1]
                    .map(|axis| self.op_with(K::GenIndex, &[scores], D::S32, |op| op.attr(Attr::Axis, axis)));
                let ids = [i.id(), j.id()];
                let cond = (mask.ops)(self, i, j);
                // An index that the mask does not need would be an output of the graph.
                let is_used =
                    |id: TensorId| self.ops.iter().flat_map(Op::inputs).any(|input| input.id() == id);
                let unused: Vec<TensorId> = ids.into_iter().filter(|&id| !is_used(id)).collect();
                self.ops.retain(|op| op.outputs().iter().all(|output| !unused.contains(&output.id())));
                if inverted { self.op(K::LogicalNot, &[&cond], D::Boolean) } else { cond }
            }
            MaskForm::Additive | MaskForm::Floored => {
                let addend = self.input(D::F32, &dims, |at| if holds(at) { 0.0 } else { fill });
                let sum = added(self, scores, &addend);
                if form == MaskForm::Additive {
                    return sum;
                }
                let floor = self.number(fill);
                return self.op(K::Maximum, &[&sum, &floor], D::F32);
            }
            MaskForm::Chosen => {
                let cond = self.input(D::Boolean, &dims, |at| f32::from(holds(at)));
                let [zero, fill] = [0.0, fill].map(|number| self.number(number));
                let addend = self.op_with(K::Select, &[&cond, &zero, &fill], D::F32, |op| {
                    op.auto_broadcast(AutoBroadcast::Multidirectional)
                });
                return added(self, scores, &addend);
            }
            MaskForm::Complement => {
                let mask = self.input(D::F32, &dims, |at| f32::from(holds(at)));
                let [one, fill] = [1.0, fill].map(|number| self.number(number));
                let rest = self.op(K::Subtract, &[&one, &mask], D::F32);
                let addend = self.op(K::Multiply, &[&rest, &fill], D::F32);
                return added(self, scores, &addend);
            }
            MaskForm::Twice => {
                let mut sum = scores.clone();
                for of in 0..2 {
                    let masks = |at: usize| !holds(at) && (at % KEYS / 64).is_multiple_of(3) == (of == 0);
                    let addend = self.input(D::F32, &dims, |at| if masks(at) { fill } else { 0.0 });
                    sum = added(self, &sum, &addend);
                }
                return sum;
            }
        };
        let fill = self.number(fill);
        let [then, other] = if inverted { [&fill, scores] } else { [scores, &fill] };
        self.op(K::Select, &[&cond, then, other], D::F32)
    }

    /// The one partition of the graph.
    fn partition(&self) -> Partition {
        let mut graph = Graph::new();
        self.ops.iter().for_each(|op| graph.add_op(op.clone()).expect("the op fits its schema"));
        graph.finalize().expect("the graph is whole");
        let mut partitions = graph.partitions(Policy::Fusion).expect("it is finalised");
        let kinds = |partition: &Partition| partition.ops().iter().map(Op::kind).collect::<Vec<_>>();
        let of_each: Vec<_> = partitions.iter().map(kinds).collect();
        assert_eq!(partitions.len(), 1, "attention is one partition, not {of_each:?}");
        partitions.remove(0)
    }
}

/// A function that lowers a partition for concrete inputs and outputs.
pub(super) type Lower = fn(&Partition, &[&LogicalTensor], &[&LogicalTensor], Machine) -> Result<Plan>;

/// The faults in the bytes of the results of a plan that leaves out tiles, against those of the same
/// plan that leaves out none. `forget` takes the classes of tiles from a phase, and answers whether it had
/// any.
pub(super) fn fault(
    ops: &Ops,
    machine: Machine,
    lower: Lower,
    forget: impl Fn(&mut Phase) -> bool,
) -> Option<&'static str> {
    let engine = Engine::builder().threads(2).max_level(machine.level).build();
    let partition = ops.partition();
    let given = ops.given(&partition);
    let (inputs, outputs) = ops.ports(&partition);
    let mut had = 0;
    let [left_out, all] = [true, false].map(|skips| {
        let mut plan = lower(&partition, &inputs, &outputs, machine).expect("kernels run it");
        if !skips {
            had = plan.phases.iter_mut().filter_map(|phase| forget(phase).then_some(())).count();
        }
        let ports: Vec<LogicalTensor> = inputs.iter().chain(&outputs).map(|&port| port.clone()).collect();
        let compiled = CompiledPartition::new(Arc::new(plan), engine.clone(), ports, inputs.len());
        let buffer =
            |desc: &LogicalTensor| TensorBuf::zeroed(desc.clone(), &engine).expect("there is memory");
        let tensors: Vec<TensorBuf> = (given.iter())
            .map(|(desc, bytes)| {
                let mut buffer = buffer(desc);
                buffer.as_mut_bytes()[..bytes.len()].copy_from_slice(bytes);
                buffer
            })
            .collect();
        let mut made: Vec<TensorBuf> = outputs.iter().map(|desc| buffer(desc)).collect();
        let from: Vec<_> = tensors.iter().map(TensorBuf::as_tensor).collect();
        let mut into: Vec<_> = made.iter_mut().map(TensorBuf::as_tensor_mut).collect();
        compiled.execute(&Stream::new(&engine), &from, &mut into).expect("the tensors fit");
        drop(into);
        made.iter().map(|buffer| buffer.as_bytes().to_vec()).collect::<Vec<_>>()
    });
    match (had, left_out == all) {
        (1, true) => None,
        (1, false) => Some("bits differ"),
        _ => Some("not one phase leaves out tiles"),
    }
}

impl Ops {
    /// The inputs of the partition, and their bytes.
    fn given(&self, partition: &Partition) -> Vec<&(LogicalTensor, Vec<u8>)> {
        let input = |port: &LogicalTensor| self.inputs.iter().find(|(input, _)| input.id() == port.id());
        partition.inputs().iter().filter_map(input).collect()
    }

    /// The inputs and the outputs of the partition.
    fn ports(&self, partition: &Partition) -> (Vec<&LogicalTensor>, Vec<&LogicalTensor>) {
        let inputs = self.given(partition).into_iter().map(|(desc, _)| desc).collect();
        let output = |port: &LogicalTensor| self.outputs.iter().find(|output| output.id() == port.id());
        (inputs, partition.outputs().iter().filter_map(output).collect())
    }

    /// The plan of the one partition.
    pub(super) fn plan(&self, machine: Machine, lower: Lower) -> Plan {
        let partition = self.partition();
        let (inputs, outputs) = self.ports(&partition);
        lower(&partition, &inputs, &outputs, machine).expect("kernels run it")
    }
}

/// Every level, with no feature beside it, with those that the machine has, and with those less the tiles of
/// AMX and less arithmetic on f16.
pub(super) fn machines() -> Vec<Machine> {
    let mut machines = Vec::new();
    for level in Level::all_available() {
        let all = CpuFeatures::available().within(level);
        let without = |features: &[CpuFeature]| -> CpuFeatures {
            all.iter().filter(|feature| !features.contains(feature)).collect()
        };
        let amx = [CpuFeature::AmxTile, CpuFeature::AmxInt8, CpuFeature::AmxBf16];
        let mut sets = vec![CpuFeatures::NONE];
        for features in [all, without(&amx), without(&[CpuFeature::Avx512Fp16])] {
            if !sets.contains(&features) {
                sets.push(features);
            }
        }
        machines.extend(sets.into_iter().map(|features| Machine {
            level,
            features,
            threads: 2,
            keeps_constants: true,
            has_room: true,
        }));
    }
    machines
}

/// Runs rows on two threads, and collects what is wrong.
pub(super) fn wrong_of<T: Sync>(rows: &[T], run: impl Fn(&T) -> Option<String> + Sync) -> Vec<String> {
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some(row) = rows.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Some(why) = run(row) {
                wrong.lock().expect("no row panics").push(why);
            }
        }
    };
    std::thread::scope(|scope| (0..2).for_each(|_| drop(scope.spawn(work))));
    wrong.into_inner().expect("no row panics")
}
