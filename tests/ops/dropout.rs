//! Promise: Dropout keeps the elements that oneDNN's reference keeps, whatever the layout, the level and the
//! number of threads, alone and among other ops.

use std::collections::BTreeMap;

use crate::common::graphs::{self, RandomGraph};
use crate::common::{Random, engines, report};
use sterna::reference::{self, Value};
use sterna::{
    DataType, Engine, Graph, LogicalTensor, Op, OpKind, Partition, Stream, Tensor, TensorBuf, TensorMut,
};

use DataType as D;
use OpKind as K;

const SHAPES: &[&[i64]] =
    &[&[], &[1], &[77], &[1003], &[3, 5], &[2, 3, 65], &[64, 33], &[4, 0, 5], &[1, 6, 1, 40], &[5, 4, 3, 2]];

/// The ids of seed, offset, probability, result and mask.
const PARAMETERS: [usize; 3] = [1, 2, 3];
const RESULT: usize = 4;
const MASK: usize = 5;

/// A Dropout, and what it is fed with.
struct Case {
    graph: RandomGraph,
    seed: i64,
    offset: i64,
    probability: f32,
}

impl Case {
    fn new(random: &mut Random, of: DataType, dims: &[i64], mask: bool, more: bool) -> Self {
        let mut inputs = vec![graphs::strided(random, 0, of, dims, true)];
        for (id, data_type) in PARAMETERS.into_iter().zip([D::S64, D::S64, D::F32]) {
            let dims = random.pick(&[&[][..], &[1], &[1, 1, 1, 1, 1]]);
            inputs.push(LogicalTensor::strided(id, data_type, dims).unwrap());
        }
        let tensor = |input: &LogicalTensor| LogicalTensor::unknown(input.id(), input.data_type());
        let op = Op::new(0, K::Dropout).inputs_from(inputs.iter().map(tensor));
        let mut op = op.output(LogicalTensor::unknown(RESULT, of));
        if mask {
            op = op.output(LogicalTensor::unknown(MASK, D::U8));
        }
        let mut ops = vec![op];
        if more {
            let of_result = |id, kind| Op::new(id, kind).input(LogicalTensor::unknown(RESULT, of));
            ops.push(of_result(1, K::Tanh).output(LogicalTensor::unknown(6, of)));
            let row = LogicalTensor::unknown(7, of);
            inputs.push(LogicalTensor::strided(7, of, &[3, 1, 1, 1, 1]).unwrap());
            ops.push(of_result(2, K::Add).input(row).output(LogicalTensor::unknown(8, of)));
        }
        let mut graph = Graph::new();
        ops.iter().for_each(|op| graph.add_op(op.clone()).unwrap());
        graph.finalize().unwrap();
        let outputs = ops.iter().flat_map(Op::outputs).map(|output| (output.id().get(), output.clone()));
        let mut outputs: BTreeMap<usize, LogicalTensor> = outputs.collect();
        if random.below(2) == 0 {
            outputs.insert(RESULT, graphs::strided(random, RESULT, of, dims, false));
        }
        if mask && random.below(2) == 0 {
            outputs.insert(MASK, graphs::strided(random, MASK, D::U8, dims, false));
        }
        let graph = RandomGraph { graph, ops, inputs, outputs };
        Self {
            graph,
            seed: random.pick(&[0, 1, -1, 1 << 40, 123_456_789_012]),
            offset: random.pick(&[0, 0, 1, 7, -3, 1 << 33]),
            probability: random.pick(&[0.5, 0.3, 0.0, 1.0, 0.999, -1.0, 2.0, f32::NAN]),
        }
    }

    fn filled(&self, engine: &Engine) -> BTreeMap<usize, TensorBuf> {
        let fill = |desc: &LogicalTensor| {
            let mut tensor = TensorBuf::zeroed(desc.clone(), engine).unwrap();
            match desc.id().get() {
                1 => tensor.as_mut_slice().unwrap()[0] = self.seed,
                2 => tensor.as_mut_slice().unwrap()[0] = self.offset,
                3 => tensor.as_mut_slice().unwrap()[0] = self.probability,
                id => graphs::fill(&mut tensor, &mut Random::new(id as u64 + 17)),
            }
            (desc.id().get(), tensor)
        };
        self.graph.inputs.iter().map(fill).collect()
    }
}

#[test]
fn masks_are_those_of_the_interpreter() {
    let (mut random, engines) = (Random::new(8), engines());
    let mut wrong = Vec::new();
    for round in 0..6 {
        for &dims in SHAPES {
            for of in [D::F32, D::Bf16, D::F16] {
                let [mask, more] = [random.below(2) == 0, random.below(2) == 0];
                let case = Case::new(&mut random, of, dims, mask, more);
                let why = graphs::check_on(&case.graph, round, &engines, &|engine| case.filled(engine));
                let Case { seed, offset, probability, .. } = case;
                wrong.extend(why.err().map(|why| format!("{seed} {offset} {probability}: {why}")));
            }
        }
    }
    report(&wrong);
}

#[test]
fn one_to_eight_threads_drop_the_same_elements() {
    let mut random = Random::new(9);
    let mut wrong = Vec::new();
    for (offset, dims) in [(0, &[700, 1301][..]), (5, &[700, 1301]), (1 << 40, &[3, 64, 4097])] {
        let case = Case { offset, probability: 0.4, ..Case::new(&mut random, D::F32, dims, true, false) };
        let [fused, _] = graphs::both(&case.graph.graph);
        let mut first = None;
        for threads in 1..=8 {
            let engine = Engine::builder().threads(threads).build();
            let inputs = case.filled(&engine);
            let made = graphs::run(&fused, &case.graph.outputs, &engine, &inputs, None).unwrap();
            match &first {
                None => {
                    let kept = made[&MASK].as_bytes().iter().filter(|&&byte| byte == 1).count();
                    let share = kept as f64 / dims.iter().product::<i64>() as f64;
                    assert!((share - 0.6).abs() < 0.01, "{share}");
                    wrong.extend(graphs::check_ops(&case.graph, &inputs, &made).err());
                    first = Some(made);
                }
                Some(first) => wrong.extend(graphs::differs(first, &made)),
            }
        }
    }
    report(&wrong);
}

#[test]
fn a_dropped_element_is_zero_whatever_stood_there() {
    for engine in engines() {
        let mut case = Case::new(&mut Random::new(10), D::F32, &[1000], false, false);
        case.probability = 1.0;
        let mut inputs = case.filled(&engine);
        let elements = inputs.get_mut(&0).unwrap().as_mut_slice::<f32>().unwrap();
        elements.iter_mut().enumerate().for_each(|(i, x)| *x = [f32::NAN, f32::INFINITY, -0.0, -5.0][i % 4]);
        case.graph.outputs.insert(RESULT, LogicalTensor::strided(RESULT, D::F32, &[1000]).unwrap());
        let [fused, _] = graphs::both(&case.graph.graph);
        let made = graphs::run(&fused, &case.graph.outputs, &engine, &inputs, None).unwrap();
        assert!(made[&RESULT].as_bytes().iter().all(|&byte| byte == 0), "{}", engine.level());
    }
}

#[test]
fn parameters_may_be_host_scalars() {
    const COUNT: usize = 1000;
    let dense = |id, data_type| LogicalTensor::strided(id, data_type, &[COUNT as i64]).unwrap();
    let scalar = |id, data_type| LogicalTensor::host_scalar(id, data_type).unwrap();
    let op = Op::new(0, K::Dropout).input(dense(0, D::F32));
    let op = op.inputs_from([scalar(1, D::S64), scalar(2, D::S64), scalar(3, D::F32)]);
    let op = op.output(dense(RESULT, D::F32)).output(dense(MASK, D::U8));
    let elements: Vec<f32> = (0..COUNT).map(|i| i as f32 - 7.5).collect();
    let values = [
        Value::from_slice(&[COUNT as i64], &elements).unwrap(),
        Value::from_slice(&[], &[-77i64]).unwrap(),
        Value::from_slice(&[], &[12_345i64]).unwrap(),
        Value::from_slice(&[], &[0.25f32]).unwrap(),
    ];
    let expected = reference::run(&op, &values).unwrap();
    let partition = Partition::from_op(op).unwrap();
    for engine in engines() {
        let compiled = partition.compile(&engine).unwrap();
        let descs = compiled.inputs();
        let inputs = [
            Tensor::new(&descs[0], &engine, &elements).unwrap(),
            Tensor::scalar(&descs[1], -77i64).unwrap(),
            Tensor::scalar(&descs[2], 12_345i64).unwrap(),
            Tensor::scalar(&descs[3], 0.25f32).unwrap(),
        ];
        let (mut result, mut mask) = (vec![0f32; COUNT], vec![0u8; COUNT]);
        let mut outputs = [
            TensorMut::new(&compiled.outputs()[0], &engine, &mut result).unwrap(),
            TensorMut::new(&compiled.outputs()[1], &engine, &mut mask).unwrap(),
        ];
        compiled.execute(&Stream::new(&engine), &inputs, &mut outputs).unwrap();
        assert_eq!(expected[0].elements::<f32>().unwrap(), result, "{}", engine.level());
        assert_eq!(expected[1].elements::<u8>().unwrap(), mask, "{}", engine.level());
    }
}
