//! Promise: `Attention::quantized_keys` and `quantized_values` make graphs whose attention reads integers of
//! 8 and 4 bits as they are stored, alone, in pages, and in pages with packed queries; the result is that of
//! the reference at every level. What no numbers can be made of is refused.

use std::collections::BTreeMap;

use crate::attention::{Given, Row, Setup, check_all, numbers, value_of};
use crate::common::{Random, engines, report};
use crate::options::faults_of_refusals;
use sterna::reference::{self, Value};
use sterna::{
    Attention, AttentionBackward, Attr, Causal, DataType, Engine, FastForm, Graph, LogicalTensor, Op, OpKind,
    Partition, Policy,
};

use DataType as D;

const HEADS: i64 = 2;
const GROUPS: i64 = 2;
const DEPTH: i64 = 32;
const PAGE: i64 = 8;
const ENTRIES: i64 = 20;
const LENGTHS: [i32; 3] = [150, 0, 77];

/// How keys lie, and how many queries there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lie {
    Plain,
    /// In pages, with so many queries of each sequence.
    Pages(i64),
    /// In pages, with queries of all sequences one behind the other.
    Packed,
}

#[derive(Debug, Clone)]
struct Case {
    data_type: DataType,
    of_scales: DataType,
    stored: [DataType; 2],
    zeros: Option<DataType>,
    /// Groups of the elements of a row.
    parts: i64,
    lie: Lie,
}

impl Case {
    /// The graph; keys and values are numbers of f32 from the start if it `is_plain`.
    fn setup(&self, seed: u64, is_plain: bool) -> Setup {
        let random = &mut Random::new(seed);
        let batch = LENGTHS.len() as i64;
        let mut inputs: Vec<Given> = Vec::new();
        let mut given = |value: Value| {
            let desc = LogicalTensor::strided(inputs.len(), value.data_type(), value.dims()).unwrap();
            inputs.push(Given { desc: desc.clone(), value });
            desc
        };
        let q_dims = match self.lie {
            Lie::Packed => [1, HEADS * GROUPS, 40, DEPTH],
            Lie::Pages(queries) => [batch, HEADS * GROUPS, queries, DEPTH],
            Lie::Plain => [batch, HEADS * GROUPS, 3, DEPTH],
        };
        let pages = ENTRIES + 5;
        let rows = match self.lie {
            Lie::Plain => [batch, HEADS, 200],
            _ => [pages, HEADS, PAGE],
        };
        let q = given(value_of(self.data_type, &q_dims, &numbers(random, &q_dims, 1.0)));
        let mut operands = Vec::new();
        let mut of_scales = Vec::new();
        for stored in self.stored {
            let dims = [rows[0], rows[1], rows[2], DEPTH];
            let bytes = dims.iter().product::<i64>() as usize * stored.bits() / 8;
            let tokens = (0..bytes).map(|_| random.next() as u8).collect();
            let tokens = Value::new(stored, &dims, tokens).unwrap();
            let dims = [rows[0], rows[1], rows[2], self.parts];
            let size = if stored.bits() == 4 { 0.125 } else { 0.01 };
            let scales: Vec<f32> =
                numbers(random, &dims, 0.5).into_iter().map(|x| (1.0 + x) * size).collect();
            let zeros: Vec<f32> = scales.iter().map(|_| random.below(8) as f32).collect();
            let scales = value_of(self.of_scales, &dims, &scales);
            let zeros = self.zeros.map(|of| value_of(of, &dims, &zeros));
            if is_plain {
                operands.push(given(self.dequantized(&[Some(tokens), Some(scales), zeros])));
                continue;
            }
            operands.push(given(tokens));
            of_scales.push((given(scales), zeros.map(&mut given)));
        }
        let [k, v] = operands.try_into().unwrap();
        let dst = LogicalTensor::strided(900, self.data_type, &q_dims).unwrap();
        let mut attention =
            Attention::new(q, k, v, dst).causal(Causal::BottomRight).groups(GROUPS).ids_from(0, 1000);
        if let Ok([(of_keys, k_zeros), (of_values, v_zeros)]) = <[_; 2]>::try_from(of_scales) {
            attention = attention.quantized_keys(of_keys, k_zeros).quantized_values(of_values, v_zeros);
        }
        if self.lie != Lie::Plain {
            let table: Vec<i32> = (0..batch * ENTRIES).map(|_| random.below(pages as usize) as i32).collect();
            let table = given(Value::from_slice(&[batch, ENTRIES], &table).unwrap());
            attention = attention.paged(table, given(Value::from_slice(&[batch], &LENGTHS).unwrap()));
        }
        if self.lie == Lie::Packed {
            attention =
                attention.packed_queries(given(Value::from_slice(&[batch + 1], &[0, 30, 33, 40]).unwrap()));
        }
        let mut graph = Graph::new();
        graph.attention(&attention).unwrap();
        let ops = graph.ops().to_vec();
        graph.finalize().unwrap();
        Setup { graph, ops, inputs, outputs: vec![900], layouts: BTreeMap::new() }
    }

    /// The numbers of integers, their scales and their zero points.
    fn dequantized(&self, values: &[Option<Value>; 3]) -> Value {
        let values: Vec<Value> = values.iter().flatten().cloned().collect();
        let inputs = values.iter().enumerate().map(|(id, of)| LogicalTensor::unknown(id, of.data_type()));
        let op = Op::new(0, OpKind::DynamicDequantize)
            .attr(Attr::Qtype, "per_group")
            .attr(Attr::GroupShape, vec![1, 1, 1, DEPTH / self.parts])
            .inputs_from(inputs)
            .output(LogicalTensor::unknown(9, self.of_scales));
        reference::run(&op, &values).unwrap().remove(0)
    }

    /// A form that the partition with the attention does not take, or the number of such partitions, if it is
    /// not one.
    fn fault(&self, setup: &Setup) -> Option<String> {
        let partitions = setup.graph.partitions(Policy::Fusion).unwrap();
        let has_softmax = |partition: &&Partition| {
            let is_of_pages = self.lie != Lie::Plain;
            let kinds = partition.ops().iter().map(|op| op.kind());
            let loads = kinds.clone().filter(|&kind| kind == OpKind::PagedLoad).count();
            kinds.clone().any(|kind| kind == OpKind::SoftMax)
                && kinds.filter(|&kind| kind == OpKind::DynamicDequantize).count() == 2
                && loads == if is_of_pages { 2 } else { 0 }
        };
        let of_attention: Vec<_> = partitions.iter().filter(has_softmax).collect();
        let &[partition] = &of_attention[..] else {
            return Some(format!("{} partitions", of_attention.len()));
        };
        if !partitions.iter().all(Partition::is_supported) {
            return Some("not all partitions are supported".into());
        }
        let rows = ENTRIES * PAGE;
        let batch = LENGTHS.len() as i64;
        // Other partitions load scales and zero points, and make the ranges of keys.
        let of_loads: Vec<usize> = partitions
            .iter()
            .filter(|other| other.ops().iter().all(|op| op.kind() == OpKind::PagedLoad))
            .flat_map(|load| load.outputs().iter().map(|port| port.id().get()))
            .collect();
        let inputs: Vec<LogicalTensor> = (partition.inputs().iter())
            .map(|port| {
                let dims: &[i64] = match of_loads.contains(&port.id().get()) {
                    true => &[batch, HEADS, rows, self.parts],
                    false => &[40, 1],
                };
                let own = setup.inputs.iter().find(|given| given.desc.id() == port.id());
                own.map_or_else(
                    || LogicalTensor::strided(port.id(), port.data_type(), dims).unwrap(),
                    |given| given.desc.clone(),
                )
            })
            .collect();
        let plan = partition.compile_for(&Engine::new(), &inputs, partition.outputs()).unwrap().plan();
        let forms = [FastForm::Attention, FastForm::PagedCache, FastForm::StoredCache, FastForm::Ragged];
        let missing: Vec<_> = plan.fallbacks.iter().filter(|of| forms.contains(&of.form)).collect();
        (!missing.is_empty()).then(|| format!("{missing:?}"))
    }
}

#[test]
fn options_make_graphs_that_read_integers_where_they_lie() {
    let stored = [[D::S8, D::U4], [D::U4, D::U4], [D::S4, D::S8], [D::U8, D::S4]];
    let lies = [Lie::Plain, Lie::Pages(1), Lie::Pages(5), Lie::Pages(20)];
    let mut rows: Vec<Row> = Vec::new();
    let mut wrong = Vec::new();
    let pairs = stored.into_iter().enumerate().flat_map(|of| lies.into_iter().map(move |lie| (of, lie)));
    for (seed, ((at, stored), lie)) in pairs.enumerate() {
        let data_type = [D::F32, D::Bf16, D::F16][seed % 3];
        let case = Case {
            data_type,
            of_scales: if seed % 2 == 0 { D::F32 } else { data_type },
            stored,
            zeros: [None, Some(D::U8), Some(D::S32)][(seed + at) % 3],
            parts: [1, 4][(seed + at) % 2],
            lie,
        };
        let setup = case.setup(seed as u64, false);
        wrong.extend(case.fault(&setup).map(|why| format!("{case:?}: {why}")));
        rows.push((format!("{case:?}"), setup));
    }
    wrong.extend(check_all(&rows, &engines()));
    report(&wrong);
}

#[test]
fn packed_queries_get_the_result_of_numbers() {
    let mut wrong = Vec::new();
    for (seed, engine) in engines().iter().enumerate() {
        for (at, stored) in [[D::S8, D::U4], [D::U4, D::S4], [D::U8, D::U8]].into_iter().enumerate() {
            let case = Case {
                data_type: D::F32,
                of_scales: D::F32,
                stored,
                zeros: [None, Some(D::U8), Some(D::S32)][(seed + at) % 3],
                parts: [1, 2][(seed + at) % 2],
                lie: Lie::Packed,
            };
            let setups = [false, true].map(|is_plain| case.setup((seed + at) as u64, is_plain));
            wrong.extend(case.fault(&setups[0]).map(|why| format!("{case:?}: {why}")));
            let [found, expected] = setups.each_ref().map(|setup| {
                let results = setup.run(&setup.partitions(Policy::Fusion), engine).unwrap();
                results[&900].elements::<f32>().unwrap()
            });
            let is_far = |(found, expected): (&f32, &f32)| {
                found.is_nan() || (found - expected).abs() > 2e-5 * expected.abs().max(1.0)
            };
            if found.iter().zip(&expected).any(is_far) || expected.iter().all(|&number| number == 0.0) {
                wrong.push(format!("{case:?} at {}", engine.level()));
            }
        }
    }
    report(&wrong);
}

#[test]
fn what_makes_no_numbers_is_refused() {
    let tensor = |id, t, dims: &[i64]| LogicalTensor::strided(id, t, dims).unwrap();
    let (q, dst) = (tensor(0, D::Bf16, &[2, 4, 1, 8]), tensor(3, D::Bf16, &[2, 4, 1, 8]));
    let of = |t| {
        Attention::new(q.clone(), tensor(1, t, &[2, 4, 9, 8]), tensor(2, D::Bf16, &[2, 4, 9, 8]), dst.clone())
    };
    let scales = |t, dims: &[i64]| tensor(4, t, dims);
    let good = || scales(D::F32, &[2, 4, 9, 2]);
    let rows = [
        (of(D::F32).quantized_keys(good(), None), "s8, u8, s4 or u4"),
        (of(D::S8).quantized_values(good(), None), "keys have the type"),
        (of(D::U4).quantized_keys(scales(D::F16, &[2, 4, 9, 2]), None), "scales are f32"),
        (of(D::U4).quantized_keys(good(), tensor(5, D::F32, &[2, 4, 9, 2])), "zero points are"),
        (of(D::U4).quantized_keys(scales(D::F32, &[2, 4, 9, 3]), None), "a divisor of its elements"),
        (of(D::U4).quantized_keys(scales(D::F32, &[4, 9, 2]), None), "a divisor of its elements"),
        (of(D::U4).quantized_keys(good(), None).k_transposed(true), "lie as rows"),
    ];
    let mut wrong = faults_of_refusals(rows);
    let forward = of(D::S8).quantized_keys(good(), None);
    let gradient = AttentionBackward::new(forward, dst.clone()).d_q(tensor(8, D::Bf16, &[2, 4, 1, 8]));
    match Graph::new().attention_backward(&gradient) {
        Err(error) if error.to_string().contains("no gradient") => {}
        other => wrong.push(format!("gradients: {other:?}")),
    }
    report(&wrong);
}
