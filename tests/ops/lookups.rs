//! Promise: a lookup gives the elements that its indices name, for every type, axis, batch and sign of the
//! indices; one out of range, or shapes that do not fit, is an error that says where. Partitions give the
//! bits of the reference interpreter at every level, for all strides and on any number of threads, and write
//! nothing where an index is out of range.

use crate::common::{self, Random, engines, report};
use crate::rows::{Case, turned};
use sterna::reference::{self, Value};
use sterna::{
    Attr, DataType, Engine, Error, ExecuteFault, InPlacePair, LogicalTensor, Op, OpKind, Partition, Status,
    TensorBuf, TensorFault, TensorId,
};

use DataType as D;
use OpKind as K;

fn gather(data_type: DataType, indices: DataType, axis: i64, batch: i64) -> Op {
    Op::new(0, OpKind::Gather)
        .input(LogicalTensor::unknown(1, data_type))
        .input(LogicalTensor::unknown(2, indices))
        .output(LogicalTensor::unknown(3, data_type))
        .attr(Attr::Axis, axis)
        .attr(Attr::BatchDims, batch)
}

/// The digits of a place in dims.
fn digits(mut place: i64, dims: &[i64]) -> Vec<i64> {
    let mut digits: Vec<i64> = dims.iter().rev().map(|&dim| (place % dim, place /= dim).0).collect();
    digits.reverse();
    digits
}

/// The place of digits in dims.
fn place(digits: &[i64], dims: &[i64]) -> usize {
    digits.iter().zip(dims).fold(0, |place, (digit, dim)| place * dim + digit) as usize
}

#[test]
fn a_lookup_gives_the_elements_that_its_indices_name() {
    const SHAPES: &[(&[i64], &[i64], i64, i64)] = &[
        (&[7], &[], 0, 0),
        (&[7, 3], &[4], 0, 0),
        (&[7, 3], &[2, 2], -1, 0),
        (&[2, 5, 3], &[2, 4], 1, 1),
        (&[2, 5, 3], &[2, 4], 2, 1),
        (&[2, 3, 5, 2], &[2, 3, 4], 2, -1),
        (&[2, 3, 5], &[2, 3], 2, 2),
        (&[1, 6], &[1, 1, 3], 1, 0),
    ];
    let mut random = Random::new(17);
    let mut wrong = Vec::new();
    for &t in DataType::WHOLE {
        for &(dims, index_dims, axis, batch) in SHAPES {
            for index_type in [D::S32, D::S64] {
                let width = t.size().unwrap();
                let count = dims.iter().product::<i64>() as usize;
                let bytes: Vec<u8> = (0..count * width).map(|_| (random.next() % 2) as u8).collect();
                let source = Value::new(t, dims, bytes.clone()).unwrap();
                let along = axis.rem_euclid(dims.len() as i64) as usize;
                let first = if batch < 0 { batch + index_dims.len() as i64 } else { batch } as usize;
                let (given, numbers) = indices(index_type, index_dims, &[dims[along]], &mut random);
                let op = gather(t, index_type, axis, batch);
                let found = reference::run(&op, &[source, given]).unwrap().remove(0);
                let expected_dims = [&dims[..along], &index_dims[first..], &dims[along + 1..]].concat();
                let element = |at: i64| {
                    let mut at = digits(at, &expected_dims);
                    let own: Vec<i64> = at.drain(along..along + index_dims.len() - first).collect();
                    let index = numbers[place(&[&at[..first], &own].concat(), index_dims)];
                    at.insert(along, index.rem_euclid(dims[along]));
                    bytes[place(&at, dims) * width..][..width].to_vec()
                };
                let expected: Vec<u8> = (0..expected_dims.iter().product()).flat_map(element).collect();
                if (found.dims(), found.bytes()) != (&expected_dims[..], &expected[..]) {
                    wrong.push(format!(
                        "{t} {dims:?} at {index_type} {index_dims:?} axis {axis} batch {batch}"
                    ));
                }
            }
        }
    }
    report(&wrong);
}

#[test]
fn an_index_out_of_range_is_named() {
    let source = Value::from_slice(&[3, 2], &[1.0f32; 6]).unwrap();
    let empty = Value::from_slice::<f32>(&[0, 2], &[]).unwrap();
    let mut wrong = Vec::new();
    for (source, given, place, size) in [
        (&source, [0i64, 3], 1, 3),
        (&source, [-4, 9], 0, 3),
        (&source, [-3, i64::MIN], 1, 3),
        (&source, [2, i64::MAX], 1, 3),
        (&empty, [0, 0], 0, 0),
    ] {
        let indices = Value::from_slice(&[2], &given).unwrap();
        let error = reference::run(&gather(D::F32, D::S64, 0, 0), &[source.clone(), indices]).unwrap_err();
        let fault = TensorFault::IndexOutOfRange { place, index: given[place], size };
        if error.status() != Status::InvalidArguments
            || error != (Error::Tensor { id: TensorId::from(2), fault })
        {
            wrong.push(format!("{given:?}: {error}"));
        }
    }
    let no_index = Value::from_slice::<i64>(&[0], &[]).unwrap();
    let found = reference::run(&gather(D::F32, D::S64, 0, 0), &[source, no_index]).unwrap();
    assert_eq!(found[0].dims(), [0, 2]);
    report(&wrong);
}

#[test]
fn shapes_that_do_not_fit_are_refused() {
    // Table, indices, axis, batch dims, and what the error says.
    type Row<'a> = (&'a [i64], &'a [i64], i64, i64, &'a str);
    const ROWS: &[Row<'_>] = &[
        (&[], &[2], 0, 0, "`axis` is not one of its dims"),
        (&[3, 2], &[2], 2, 0, "`axis` is not one of its dims"),
        (&[3, 2], &[3, 2], 0, 1, "at most `axis`"),
        (&[3, 2], &[2], 1, 2, "at most its rank"),
        (&[3, 2], &[2], 1, -2, "at most its rank"),
        (&[3, 2], &[3], 1, i64::MIN, "at most its rank"),
        (&[3, 2], &[2, 2], 1, 1, "are those of the table"),
        (&[1; 7], &[1; 7], 0, 0, "more dims than a tensor"),
    ];
    let mut wrong = Vec::new();
    for &(dims, indices, axis, batch, message) in ROWS {
        match reference::output_shapes(&gather(D::F32, D::S32, axis, batch), &[dims, indices]) {
            Err(error) if error.status() == Status::InvalidShape && error.to_string().contains(message) => {}
            other => wrong.push(format!("{dims:?} {indices:?} axis {axis} batch {batch}: {other:?}")),
        }
    }
    report(&wrong);
}

/// A value of random elements.
fn random_value(data_type: DataType, dims: &[i64], random: &mut Random) -> Value {
    let count = dims.iter().product::<i64>() as usize;
    let mut number = || match random.below(40) {
        0 => f32::INFINITY,
        1 => f32::NEG_INFINITY,
        2 => f32::NAN,
        3 => -0.0,
        4 => 0.0,
        5..12 => 1.0,
        _ => (random.next() >> 20) as f32 / (1 << 21) as f32 - 4.0,
    };
    match data_type {
        D::F32 | D::Bf16 | D::F16 => {
            crate::rows::value(data_type, dims, &(0..count).map(|_| number()).collect::<Vec<_>>())
        }
        D::F64 => {
            Value::from_slice(dims, &(0..count).map(|_| f64::from(number())).collect::<Vec<_>>()).unwrap()
        }
        _ => {
            let bytes = (0..count * data_type.size().unwrap()).map(|_| random.next() as u8).collect();
            Value::new(data_type, dims, bytes).unwrap()
        }
    }
}

/// Indices of both signs in range, and as numbers: of each dim that is looked up in turn.
fn indices(data_type: DataType, dims: &[i64], sizes: &[i64], random: &mut Random) -> (Value, Vec<i64>) {
    let count = dims.iter().product::<i64>() as usize;
    let number = |i: usize| {
        let size = sizes[i % sizes.len()];
        (random.next() % (2 * size as u64)) as i64 - size
    };
    let numbers: Vec<i64> = (0..count).map(number).collect();
    let value = match data_type {
        D::S32 => Value::from_slice(dims, &numbers.iter().map(|&n| n as i32).collect::<Vec<_>>()),
        _ => Value::from_slice(dims, &numbers),
    };
    (value.unwrap(), numbers)
}

/// Runs cases row-major and turned, at every level and on two threads.
fn check(cases: Vec<(String, Case)>) {
    let mut wrong = Vec::new();
    let engines: Vec<Engine> = engines().into_iter().chain([Engine::builder().threads(2).build()]).collect();
    for (number, (name, case)) in cases.into_iter().enumerate() {
        let shapes: Vec<Vec<i64>> = case.inputs.iter().map(|input| input.dims().to_vec()).collect();
        let outputs = reference::run(&case.op, &case.inputs).unwrap();
        let again = || Case::of(case.op.clone(), case.inputs.clone());
        let mut layouts = vec![again()];
        for (input, dims) in shapes.iter().enumerate() {
            layouts.push(again().strides(input, &turned(dims)));
        }
        layouts.push(
            outputs
                .iter()
                .enumerate()
                .fold(again(), |case, (output, value)| case.out_strides(output, &turned(value.dims()))),
        );
        // Row-major at every level, each other layout at one of them.
        for (layout, case) in layouts.iter().enumerate() {
            let at = (number + layout) % engines.len();
            for engine in if layout == 0 { &engines[..] } else { &engines[at..=at] } {
                if let Some(fault) = case.differing_bits(engine) {
                    wrong.push(format!("{name} layout {layout} at {:?}: {fault}", engine.level()));
                }
            }
        }
    }
    report(&wrong);
}

/// Shapes of a table and of indices, the axis and batch dims.
const LOOKED_UP: &[(&[i64], &[i64], i64, i64)] = &[
    (&[7], &[], 0, 0),
    (&[7, 3], &[4], 0, 0),
    (&[7, 3], &[0], 0, 0),
    (&[40, 33], &[5, 7], 0, 0),
    (&[7, 3], &[2, 2], -1, 0),
    (&[3, 9, 5], &[6], 1, 0),
    (&[2, 5, 3], &[2, 4], 1, 1),
    (&[2, 5, 3], &[2, 4], 2, 1),
    (&[2, 3, 5, 2], &[2, 3, 4], 2, -1),
    (&[2, 3, 5], &[2, 3], 2, 2),
    (&[1, 6], &[1, 1, 3], 1, 0),
    (&[90, 130], &[111], 0, 0),
    (&[3, 9000], &[1], 0, 0),
];

/// Shapes of a table and of tuples, and batch dims.
const TUPLES: &[(&[i64], &[i64], i64)] = &[
    (&[7], &[1], 0),
    (&[7, 3], &[5, 2], 0),
    (&[7, 3], &[5, 1], 0),
    (&[4, 5, 6], &[2, 3, 2], 0),
    (&[2, 5, 6], &[2, 3, 1], 1),
    (&[2, 5, 6], &[2, 3, 2], 1),
    (&[2, 3, 4], &[2, 3, 1], 2),
    (&[3, 20, 40], &[50, 2], 0),
    (&[4, 5], &[0, 2], 0),
];

/// Shapes of a table and of indices of the same rank, and the axis.
const ELEMENTS: &[(&[i64], &[i64], i64)] = &[
    (&[7], &[4], 0),
    (&[7], &[11], -1),
    (&[5, 6], &[5, 3], 1),
    (&[5, 6], &[9, 4], 0),
    (&[3, 4, 5], &[2, 7, 5], 1),
    (&[24, 50], &[24, 70], 1),
    (&[60, 20], &[40, 20], 0),
    (&[3, 4], &[3, 0], 1),
];

#[test]
fn partitions_gather_what_the_reference_gathers() {
    let mut random = Random::new(5);
    let mut cases = Vec::new();
    // Kernels are those of a width, so one type of each goes through the large shapes.
    let is_small = |dims: &[i64]| dims.iter().product::<i64>() < 200;
    let takes = |t: DataType, dims: &[i64]| is_small(dims) || [D::U8, D::Bf16, D::F32, D::F64].contains(&t);
    for (number, &t) in DataType::WHOLE.iter().enumerate() {
        let index_type = [D::S32, D::S64][number % 2];
        for &(table, indices, axis, batch) in LOOKED_UP.iter().filter(|row| takes(t, row.0)) {
            let along = axis.rem_euclid(table.len() as i64) as usize;
            let (indices, _) = self::indices(index_type, indices, &[table[along]], &mut random);
            let case = Case::new(K::Gather, vec![random_value(t, table, &mut random), indices], &[t])
                .attr(Attr::Axis, axis)
                .attr(Attr::BatchDims, batch);
            cases.push((format!("{t} {table:?} axis {axis} batch {batch}"), case));
        }
        for &(table, indices, batch) in TUPLES.iter().filter(|row| takes(t, row.0)) {
            let sizes = &table[batch as usize..][..indices[indices.len() - 1] as usize];
            let (indices, _) = self::indices(index_type, indices, sizes, &mut random);
            let case = Case::new(K::GatherND, vec![random_value(t, table, &mut random), indices], &[t])
                .attr(Attr::BatchDims, batch);
            cases.push((format!("{t} {table:?} by tuples, batch {batch}"), case));
        }
        for &(table, indices, axis) in ELEMENTS.iter().filter(|row| takes(t, row.0)) {
            let along = axis.rem_euclid(table.len() as i64) as usize;
            let (indices, _) = self::indices(index_type, indices, &[table[along]], &mut random);
            let case = Case::new(K::GatherElements, vec![random_value(t, table, &mut random), indices], &[t])
                .attr(Attr::Axis, axis);
            cases.push((format!("{t} {table:?} each by an index, axis {axis}"), case));
        }
    }
    check(cases);
}

#[test]
fn gradients_of_lookups_are_those_of_the_reference() {
    let mut random = Random::new(6);
    let mut cases = Vec::new();
    for t in [D::F32, D::Bf16, D::F16, D::F64] {
        for &(table, indices, axis, batch) in LOOKED_UP {
            let along = axis.rem_euclid(table.len() as i64) as usize;
            let (indices, _) = self::indices(D::S64, indices, &[table[along]], &mut random);
            let gathered = Op::new(0, K::Gather)
                .inputs_from([LogicalTensor::unknown(0, t), LogicalTensor::unknown(1, D::S64)])
                .output(LogicalTensor::unknown(2, t))
                .attr(Attr::Axis, axis)
                .attr(Attr::BatchDims, batch);
            let shapes = reference::output_shapes(&gathered, &[table, indices.dims()]).unwrap().unwrap();
            let gradient = random_value(t, &shapes[0], &mut random);
            let case = Case::new(K::GatherBackward, vec![gradient, indices], &[t])
                .attr(Attr::SrcShape, table)
                .attr(Attr::Axis, axis)
                .attr(Attr::BatchDims, batch);
            cases.push((format!("{t} {table:?} axis {axis} batch {batch}"), case));
        }
    }
    check(cases);
}

#[test]
fn updates_stand_where_the_reference_puts_them() {
    let mut random = Random::new(7);
    let mut cases = Vec::new();
    for &t in DataType::WHOLE {
        for reduction in ["none", "add", "mul", "min", "max"] {
            if reduction != "none" && !DataType::NUMERIC.contains(&t) {
                continue;
            }
            // Large shapes of two types: updates of one place must come in order on any number of threads.
            let is_small = |dims: &[i64]| dims.iter().product::<i64>() < 200;
            let takes = |dims: &[i64]| is_small(dims) || [D::Bf16, D::S32].contains(&t);
            for &(table, indices, axis) in ELEMENTS.iter().filter(|row| takes(row.0)) {
                let along = axis.rem_euclid(table.len() as i64) as usize;
                let (of_places, _) = self::indices(D::S64, indices, &[table[along]], &mut random);
                let [src, updates] = [table, indices].map(|dims| random_value(t, dims, &mut random));
                let case = Case::new(K::ScatterElements, vec![src, of_places, updates], &[t])
                    .attr(Attr::Axis, axis)
                    .attr(Attr::Reduction, reduction);
                cases.push((format!("{t} {table:?} {indices:?} axis {axis} {reduction}"), case));
            }
            for &(table, indices, _) in TUPLES.iter().filter(|row| row.2 == 0 && takes(row.0)) {
                let (&tuple, outer) = indices.split_last().unwrap();
                let updates = [outer, &table[tuple as usize..]].concat();
                let (of_places, _) = self::indices(D::S32, indices, &table[..tuple as usize], &mut random);
                let [src, updates] = [table, &updates[..]].map(|dims| random_value(t, dims, &mut random));
                let case = Case::new(K::ScatterND, vec![src, of_places, updates], &[t])
                    .attr(Attr::Reduction, reduction);
                cases.push((format!("{t} {table:?} by tuples {indices:?} {reduction}"), case));
            }
        }
    }
    check(cases);
}

#[test]
fn the_first_of_lines_are_those_of_the_reference() {
    let mut random = Random::new(8);
    let mut cases = Vec::new();
    const LINES: &[(&[i64], i64)] = &[
        (&[1], 0),
        (&[9], -1),
        (&[4, 33], 1),
        (&[33, 4], 0),
        (&[2, 17, 3], 1),
        (&[3, 300], -1),
        (&[0, 5], 1),
        (&[2, 70, 9], -1),
        (&[70, 2, 130], 0),
        (&[2, 37, 5, 60], 1),
        (&[2, 1000], 1),
    ];
    for &t in DataType::NUMERIC {
        for (number, &(dims, axis)) in LINES.iter().enumerate() {
            let index_type = [D::S32, D::S64][number % 2];
            let length = dims[axis.rem_euclid(dims.len() as i64) as usize];
            let source = random_value(t, dims, &mut random);
            let counts = [0, 1, 2, 5, 40, 70, length / 2, length];
            for k in counts.into_iter().filter(|&k| k <= length) {
                for largest in [true, false] {
                    let case = Case::new(K::TopK, vec![source.clone()], &[t, index_type])
                        .attr(Attr::K, k)
                        .attr(Attr::Axis, axis)
                        .attr(Attr::Largest, largest);
                    cases.push((format!("{t} {dims:?} axis {axis} k {k} {largest}"), case));
                }
            }
            for kind in [K::ArgMax, K::ArgMin] {
                for (keep_dims, last) in [(false, false), (true, true), (true, false)] {
                    let case = Case::new(kind, vec![source.clone()], &[index_type])
                        .attr(Attr::Axis, axis)
                        .attr(Attr::KeepDims, keep_dims)
                        .attr(Attr::SelectLastIndex, last);
                    cases.push((format!("{kind} {t} {dims:?} axis {axis} {keep_dims} {last}"), case));
                }
            }
        }
    }
    check(cases);
}

/// Worked out by hand, by the definitions of torch.
#[test]
fn nan_zeros_and_equal_elements_have_an_order() {
    let nan = f32::NAN;
    let line = Value::from_slice(&[6], &[1.0f32, nan, -0.0, 0.0, 1.0, nan]).unwrap();
    let rows: &[(OpKind, bool, bool, &[i64])] = &[
        (K::TopK, true, false, &[1, 5, 0, 4, 2, 3]),
        (K::TopK, false, false, &[2, 3, 0, 4, 1, 5]),
        (K::ArgMax, false, false, &[1]),
        (K::ArgMax, false, true, &[5]),
        (K::ArgMin, false, false, &[1]),
        (K::ArgMin, false, true, &[5]),
    ];
    let mut wrong = Vec::new();
    for &(kind, largest, last, expected) in rows {
        let case = match kind {
            K::TopK => Case::new(kind, vec![line.clone()], &[D::F32, D::S64])
                .attr(Attr::K, 6i64)
                .attr(Attr::Largest, largest),
            _ => Case::new(kind, vec![line.clone()], &[D::S64])
                .attr(Attr::Axis, 0i64)
                .attr(Attr::SelectLastIndex, last),
        };
        let interpreted = reference::run(&case.op, &case.inputs).unwrap();
        let found = case.run(&Engine::new()).unwrap();
        for result in [&interpreted, &found] {
            let places = result[result.len() - 1].elements::<i64>().unwrap();
            if places != expected {
                wrong.push(format!("{kind} {largest} {last}: {places:?}, not {expected:?}"));
            }
        }
    }
    report(&wrong);
}

#[test]
fn nothing_is_written_if_an_index_is_out_of_range() {
    let mut wrong = Vec::new();
    // Kind, table, indices with the wrong one, their dims, its place and the size of its dim.
    type Row<'a> = (OpKind, &'a [i64], &'a [i64], &'a [i64], usize, i64);
    let rows: &[Row<'_>] = &[
        (K::Gather, &[3, 2], &[0, 3], &[2], 1, 3),
        (K::Gather, &[3, 2], &[-4, 9], &[2], 0, 3),
        (K::Gather, &[0, 2], &[0, 0], &[2], 0, 0),
        (K::GatherElements, &[3, 2], &[0, 2, -3, 3], &[2, 2], 3, 3),
        (K::GatherND, &[2, 3], &[1, 2, 2, 0], &[2, 2], 2, 2),
        (K::GatherND, &[2, 3], &[1, 2, 0, i64::MIN], &[2, 2], 3, 3),
        (K::ScatterND, &[2, 3], &[0, 0, 0, 3], &[2, 2], 3, 3),
        (K::ScatterElements, &[4], &[3, 4], &[2], 1, 4),
        (K::GatherBackward, &[3], &[0, i64::MAX], &[2], 1, 3),
    ];
    for &(kind, table, numbers, dims, place, size) in rows {
        let engine = Engine::new();
        let strided = |id, data_type, dims: &[i64]| LogicalTensor::strided(id, data_type, dims).unwrap();
        let indices = strided(1, D::S64, dims);
        let op = Op::new(0, kind);
        let op = match kind {
            K::GatherBackward => {
                op.inputs_from([strided(0, D::F32, &[2]), indices]).attr(Attr::SrcShape, table)
            }
            K::ScatterElements | K::ScatterND => {
                op.inputs_from([strided(0, D::F32, table), indices, strided(2, D::F32, &[2])])
            }
            _ => op.inputs_from([strided(0, D::F32, table), indices]),
        };
        let partition = Partition::from_op(op.output(LogicalTensor::unknown(3, D::F32))).unwrap();
        let compiled = partition.compile(&engine).unwrap();
        let mut inputs: Vec<TensorBuf> =
            compiled.inputs().iter().map(|desc| TensorBuf::zeroed(desc.clone(), &engine).unwrap()).collect();
        Value::from_slice(dims, numbers).unwrap().write(&mut inputs[1]).unwrap();
        let mut output = TensorBuf::zeroed(compiled.outputs()[0].clone(), &engine).unwrap();
        output.as_mut_bytes().fill(common::GAP);
        let error = common::run(&compiled, &engine, &inputs, &mut output).unwrap_err();
        let index = numbers[place];
        let fault = ExecuteFault::IndexOutOfRange { tensor: TensorId::from(1), place, index, size };
        let is_kept = output.as_bytes().iter().all(|&byte| byte == common::GAP);
        if error != Error::Execute(fault) || error.status() != Status::InvalidArguments || !is_kept {
            wrong.push(format!("{kind} of {numbers:?}: {error}"));
        }
    }
    report(&wrong);
}

/// Indices that a view repeats, in front or at the end, are those of the reference, and the first wrong one
/// is named by its place among all.
#[test]
fn repeated_indices_are_read_where_they_lie() {
    let mut random = Random::new(77);
    let mut wrong = Vec::new();
    let dims = [3, 7, 5];
    for (axis, strides) in [(1, [0, 5, 1]), (2, [0, 5, 1]), (1, [7, 1, 0]), (2, [0, 1, 0]), (0, [0, 0, 0])] {
        let size = [3, 7, 5][axis];
        let own: Vec<i64> = (0..dims.iter().product()).map(|_| random.below(size) as i64).collect();
        let at = |place: usize| {
            let digits = [place / 35, place / 5 % 7, place % 5];
            digits.iter().zip(strides).map(|(digit, stride)| digit * stride).sum::<usize>()
        };
        let repeated: Vec<i64> = (0..own.len()).map(|place| own[at(place)]).collect();
        let dims = dims.map(|dim| dim as i64);
        let table = random_value(D::F32, &dims, &mut random);
        let inputs = vec![table.clone(), Value::from_slice(&dims, &repeated).unwrap()];
        let strides = strides.map(|stride| stride as i64);
        let case = Case::new(K::GatherElements, inputs, &[D::F32]).attr(Attr::Axis, axis as i64);
        let case = case.strides(1, &strides);
        for engine in engines() {
            if let Some(fault) = case.differing_bits(&engine) {
                wrong.push(format!("axis {axis}, strides {strides:?} at {}: {fault}", engine.level()));
            }
        }
        let engine = Engine::new();
        let desc = |id| LogicalTensor::strided(id, D::F32, &dims).unwrap();
        let indices = LogicalTensor::with_strides(1, D::S64, &dims, &strides).unwrap();
        let op = Op::new(0, K::GatherElements).attr(Attr::Axis, axis as i64);
        let op = op.inputs_from([desc(0), indices]).output(desc(2));
        let compiled = Partition::from_op(op).unwrap().compile(&engine).unwrap();
        let mut inputs: Vec<TensorBuf> =
            compiled.inputs().iter().map(|desc| TensorBuf::zeroed(desc.clone(), &engine).unwrap()).collect();
        let bytes = inputs[1].as_mut_bytes();
        let place = bytes.len() / 8 - 1;
        bytes[8 * place..].copy_from_slice(&99i64.to_ne_bytes());
        let place = (0..own.len()).find(|&of| at(of) == place).unwrap();
        let mut output = TensorBuf::zeroed(compiled.outputs()[0].clone(), &engine).unwrap();
        let error = common::run(&compiled, &engine, &inputs, &mut output).unwrap_err();
        let fault =
            ExecuteFault::IndexOutOfRange { tensor: TensorId::from(1), place, index: 99, size: size as i64 };
        if error != Error::Execute(fault) {
            wrong.push(format!("axis {axis}, strides {strides:?}: {error}"));
        }
    }
    report(&wrong);
}

#[test]
fn indices_are_clamped_where_that_is_asked_for() {
    let table = Value::from_slice(&[3], &[10.0f32, 11.0, 12.0]).unwrap();
    let indices = Value::from_slice(&[6], &[-4i64, -3, -1, 2, 3, i64::MAX]).unwrap();
    let case = Case::new(K::Gather, vec![table, indices], &[D::F32]).attr(Attr::ClampIndices, true);
    let expected = [10.0f32, 10.0, 12.0, 12.0, 12.0, 12.0];
    for engine in engines() {
        assert_eq!(case.run(&engine).unwrap()[0].elements::<f32>().unwrap(), expected);
    }
    assert_eq!(reference::run(&case.op, &case.inputs).unwrap()[0].elements::<f32>().unwrap(), expected);
    let empty = reference::output_shapes(&case.op, &[&[0], &[2]]).unwrap_err();
    assert!(empty.to_string().contains("no index can be clamped"), "{empty}");
}

#[test]
fn a_scatter_takes_the_place_of_its_table() {
    let engine = Engine::builder().threads(2).build();
    let strided = |id, data_type, dims: &[i64]| LogicalTensor::strided(id, data_type, dims).unwrap();
    let op = Op::new(0, K::ScatterND)
        .inputs_from([
            strided(0, D::F32, &[100, 300]),
            strided(1, D::S64, &[2, 1]),
            strided(2, D::F32, &[2, 300]),
        ])
        .output(LogicalTensor::unknown(3, D::F32));
    let compiled = Partition::from_op(op).unwrap().compile(&engine).unwrap();
    assert_eq!(compiled.in_place_pairs(), [InPlacePair::new(0, 3)]);
    let mut cache: Vec<f32> = (0..30_000).map(|i| i as f32).collect();
    let updates: Vec<f32> = (0..600).map(|i| -1.0 - i as f32).collect();
    let mut expected = cache.clone();
    expected[98 * 300..99 * 300].copy_from_slice(&updates[..300]);
    expected[3 * 300..4 * 300].copy_from_slice(&updates[300..]);
    let inputs = [compiled.tensor(1, &[-2i64, 3]).unwrap(), compiled.tensor(2, &updates).unwrap()];
    let output = compiled.tensor_mut(3, &mut cache).unwrap().in_place_of(0);
    compiled.run(&inputs, &mut [output]).unwrap();
    assert_eq!(cache, expected);
}
