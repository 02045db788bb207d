//! Promise: `PagedLoad` gives the rows of sequences that a table of pages names, and `CacheStore` writes rows
//! to the slots of a cache, for every type, size of a page and order of its rows and heads. What a sequence
//! does not have is 0, whatever the cache holds there. A number out of range is an error that says where, and
//! nothing is written.

use crate::common::{self, Random, engines, report};
use crate::rows::{Case, turned};
use sterna::reference::{self, Value};
use sterna::{
    DataType, Engine, Error, ExecuteFault, InPlacePair, LogicalTensor, Op, OpKind, Partition, Status,
    TensorBuf, TensorFault, TensorId,
};

use DataType as D;
use OpKind as K;

/// A cache, and sequences in it.
#[derive(Debug, Clone)]
struct Cache {
    pages: i64,
    heads: i64,
    page: i64,
    depth: i64,
    /// Pages of each sequence.
    entries: i64,
    lengths: Vec<i64>,
}

impl Cache {
    fn dims(&self) -> [i64; 4] {
        [self.pages, self.heads, self.page, self.depth]
    }

    /// Strides by which the rows of a page come before its heads.
    fn rows_first(&self) -> [i64; 4] {
        let Self { heads, page, depth, .. } = *self;
        [page * heads * depth, depth, heads * depth, 1]
    }

    /// Pages in any order, some of them in several sequences; any number where a sequence has no rows.
    fn table(&self, random: &mut Random) -> Vec<i64> {
        let mut table = Vec::new();
        for &length in &self.lengths {
            let used = (length as u64).div_ceil(self.page.max(1) as u64) as i64;
            table.extend((0..self.entries).map(|entry| match entry < used {
                true => random.below(self.pages as usize) as i64,
                false => [-1, 0, i64::from(i32::MAX), i64::from(i32::MIN)][random.below(4)],
            }));
        }
        table
    }

    fn load(&self, data_type: DataType, integers: [DataType; 2], random: &mut Random) -> Case {
        let sequences = self.lengths.len() as i64;
        let table = integers_of(integers[0], &[sequences, self.entries], &self.table(random));
        let lengths = integers_of(integers[1], &[sequences], &self.lengths);
        let inputs = vec![bytes(data_type, &self.dims(), random), table, lengths];
        Case::new(K::PagedLoad, inputs, &[data_type])
    }

    /// So many tokens at any slots, some of them at none.
    fn store(&self, data_type: DataType, slots: DataType, tokens: i64, random: &mut Random) -> Case {
        let all = (self.pages * self.page) as usize;
        let numbers: Vec<i64> = (0..tokens).map(|_| random.below(all + 1) as i64 - 1).collect();
        let rows = bytes(data_type, &[tokens, self.heads, self.depth], random);
        let inputs =
            vec![bytes(data_type, &self.dims(), random), rows, integers_of(slots, &[tokens], &numbers)];
        Case::new(K::CacheStore, inputs, &[data_type])
    }
}

fn integers_of(data_type: DataType, dims: &[i64], numbers: &[i64]) -> Value {
    match data_type {
        D::S32 => Value::from_slice(dims, &numbers.iter().map(|&n| n as i32).collect::<Vec<_>>()).unwrap(),
        _ => Value::from_slice(dims, numbers).unwrap(),
    }
}

/// Elements of any bits, among them numbers that are none.
fn bytes(data_type: DataType, dims: &[i64], random: &mut Random) -> Value {
    let count = dims.iter().product::<i64>() as usize * data_type.bits() / 8;
    Value::new(data_type, dims, (0..count).map(|_| random.next() as u8).collect()).unwrap()
}

/// Pages, heads, rows of a page, elements, pages of each sequence, and lengths.
type CacheRow<'a> = (i64, i64, i64, i64, i64, &'a [i64]);

const CACHES: [CacheRow<'_>; 9] = [
    (5, 2, 4, 3, 3, &[12, 1, 0, 5]),
    (7, 3, 1, 8, 6, &[6, 2, 0]),
    (4, 1, 3, 1, 2, &[6, 4]),
    (6, 2, 16, 64, 4, &[64, 33, 16, 0, 1]),
    (3, 4, 64, 32, 2, &[128, 65]),
    (1, 2, 2, 5, 3, &[6, 3]),
    (2, 1, 1, 1, 1, &[1, 0]),
    (9, 8, 16, 128, 8, &[128; 3]),
    (3, 2, 4, 6, 0, &[0, 0]),
];

/// The types of a cache; rows of 4-bit elements have an even number of them.
fn types_of(cache: &Cache) -> &'static [DataType] {
    const ALL: [DataType; 17] = [
        D::S4,
        D::U4,
        D::F16,
        D::Bf16,
        D::F32,
        D::S32,
        D::S8,
        D::U8,
        D::F64,
        D::Boolean,
        D::F8E5m2,
        D::F8E4m3,
        D::S64,
        D::S16,
        D::U16,
        D::U32,
        D::U64,
    ];
    assert!(DataType::WHOLE.iter().all(|of| ALL.contains(of)));
    if cache.depth % 2 == 0 { &ALL } else { &ALL[2..] }
}

fn caches() -> Vec<Cache> {
    let cache = |&(pages, heads, page, depth, entries, lengths): &CacheRow<'_>| Cache {
        pages,
        heads,
        page,
        depth,
        entries,
        lengths: lengths.to_vec(),
    };
    CACHES.iter().map(cache).collect()
}

#[test]
fn a_load_gives_the_rows_of_pages_and_zeros_behind_them() {
    let mut random = Random::new(1);
    let mut wrong = Vec::new();
    for (number, cache) in caches().into_iter().enumerate() {
        for &t in types_of(&cache) {
            let integers = [[D::S32, D::S64], [D::S64, D::S32]][number % 2];
            let case = cache.load(t, integers, &mut random);
            let found = reference::run(&case.op, &case.inputs).unwrap().remove(0);
            let rows = cache.entries * cache.page;
            let dims = [cache.lengths.len() as i64, cache.heads, rows, cache.depth];
            let table: Vec<i64> = match integers[0] {
                D::S32 => case.inputs[1].elements::<i32>().unwrap().into_iter().map(i64::from).collect(),
                _ => case.inputs[1].elements::<i64>().unwrap(),
            };
            let mut expected = Vec::new();
            for (sequence, &length) in cache.lengths.iter().enumerate() {
                for (head, row) in (0..cache.heads).flat_map(|head| (0..rows).map(move |row| (head, row))) {
                    let of_row = cache.depth * t.bits() as i64 / 8;
                    if row >= length {
                        expected.extend((0..of_row).map(|_| 0u8));
                        continue;
                    }
                    let page = table[(sequence as i64 * cache.entries + row / cache.page) as usize];
                    let at = ((page * cache.heads + head) * cache.page + row % cache.page) * of_row;
                    expected.extend(&case.inputs[0].bytes()[at as usize..][..of_row as usize]);
                }
            }
            if (found.dims(), found.bytes()) != (&dims[..], &expected[..]) {
                wrong.push(format!("{cache:?} of {t}"));
            }
            // Without lengths each sequence has all rows.
            let all = Cache { lengths: vec![rows; cache.lengths.len()], ..cache.clone() };
            let whole = all.load(t, integers, &mut random);
            let of_two = Case::new(K::PagedLoad, whole.inputs[..2].to_vec(), &[t]);
            if reference::run(&of_two.op, &of_two.inputs) != reference::run(&whole.op, &whole.inputs) {
                wrong.push(format!("{all:?} of {t} without lengths"));
            }
        }
    }
    report(&wrong);
}

#[test]
fn the_last_row_of_a_slot_stands_and_rows_without_one_are_left_out() {
    let cache = Value::from_slice(&[2, 1, 2, 2], &[0f32, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]).unwrap();
    let rows = Value::from_slice(&[4, 1, 2], &[10f32, 11.0, 20.0, 21.0, 30.0, 31.0, 40.0, 41.0]).unwrap();
    let slots = Value::from_slice(&[4], &[3i64, -1, 0, 3]).unwrap();
    let case = Case::new(K::CacheStore, vec![cache, rows, slots], &[D::F32]);
    let expected = [30f32, 31.0, 2.0, 3.0, 4.0, 5.0, 40.0, 41.0];
    assert_eq!(reference::run(&case.op, &case.inputs).unwrap()[0].elements::<f32>().unwrap(), expected);
    for engine in engines() {
        assert_eq!(case.run(&engine).unwrap()[0].elements::<f32>().unwrap(), expected);
    }
}

/// Row-major strides with gaps of a byte of 4-bit elements behind each row.
fn with_gaps(dims: &[i64]) -> Vec<i64> {
    let mut strides = vec![1; dims.len()];
    for dim in (0..dims.len() - 1).rev() {
        strides[dim] = strides[dim + 1] * dims[dim + 1].max(1) + 2;
    }
    strides
}

#[test]
fn partitions_give_the_bits_of_the_interpreter() {
    let mut random = Random::new(2);
    let mut cases: Vec<(String, Case)> = Vec::new();
    for (number, cache) in caches().into_iter().enumerate() {
        for &t in types_of(&cache) {
            let integers = [[D::S32, D::S32], [D::S64, D::S32], [D::S32, D::S64]][number % 3];
            let tokens = [0, 1, 7, 40][(number + t.bits() / 8) % 4];
            let turns: [Box<dyn Fn(Case) -> Case>; 4] = [
                Box::new(|case| case),
                Box::new(|case| case.strides(0, &cache.rows_first())),
                // Elements of four bits follow each other.
                Box::new(|case| {
                    if t.bits() == 4 {
                        return case;
                    }
                    let dims: Vec<Vec<i64>> = case.inputs.iter().map(|input| input.dims().to_vec()).collect();
                    dims.iter()
                        .enumerate()
                        .fold(case, |case, (input, dims)| case.strides(input, &turned(dims)))
                }),
                Box::new(|case| {
                    let result = reference::run(&case.op, &case.inputs).unwrap().remove(0);
                    let turned = if t.bits() == 4 { with_gaps } else { turned };
                    case.strides(0, &cache.rows_first()).out_strides(0, &turned(result.dims()))
                }),
            ];
            for (turn, turned) in turns.iter().enumerate() {
                let name = |op: &str| format!("{op} {cache:?} {t} {integers:?} layout {turn}");
                cases.push((name("load"), turned(cache.load(t, integers, &mut random))));
                let store = cache.store(t, integers[0], tokens, &mut random);
                cases.push((name("store"), turned(store)));
            }
        }
    }
    let engines: Vec<Engine> = engines().into_iter().chain([Engine::builder().threads(3).build()]).collect();
    let mut wrong = Vec::new();
    for (number, (name, case)) in cases.into_iter().enumerate() {
        let engine = &engines[number % engines.len()];
        if let Some(fault) = case.differing_bits(engine) {
            wrong.push(format!("{name} at {}: {fault}", engine.level()));
        }
    }
    report(&wrong);
}

#[test]
fn a_cache_of_many_rows_is_divided_among_threads() {
    let mut random = Random::new(3);
    let cache =
        Cache { pages: 40, heads: 8, page: 16, depth: 128, entries: 12, lengths: vec![192, 100, 0, 64, 191] };
    let mut wrong = Vec::new();
    for threads in [1, 2, 3] {
        let engine = Engine::builder().threads(threads).build();
        let cases = [
            cache.load(D::F32, [D::S32; 2], &mut random),
            cache.load(D::F32, [D::S32; 2], &mut random).strides(0, &cache.rows_first()),
            cache.store(D::F32, D::S64, 300, &mut random),
            cache.store(D::F32, D::S64, 300, &mut random).strides(0, &cache.rows_first()),
        ];
        wrong.extend(cases.iter().filter_map(|case| case.differing_bits(&engine)));
    }
    report(&wrong);
}

/// Shapes of the inputs, and a part of the error.
type ShapeRow<'a> = (OpKind, &'a [&'a [i64]], &'a str);

#[test]
fn shapes_that_do_not_fit_are_refused() {
    const ROWS: &[ShapeRow<'_>] = &[
        (K::PagedLoad, &[&[3, 4, 8], &[2, 2]], "dims [pages, heads, rows of a page, elements]"),
        (K::PagedLoad, &[&[3, 1, 4, 8], &[4]], "dims [sequences, pages of each]"),
        (K::PagedLoad, &[&[3, 1, 4, 8], &[2, 2], &[3]], "a length for each row"),
        (K::PagedLoad, &[&[3, 1, 4, 8], &[2, 2], &[2, 1]], "a length for each row"),
        (K::PagedLoad, &[&[1, 1, 1 << 40, 1], &[1, 1 << 40]], "too many rows"),
        (K::CacheStore, &[&[3, 4, 8], &[2, 1, 8], &[2]], "dims [pages, heads, rows of a page, elements]"),
        (K::CacheStore, &[&[3, 2, 4, 8], &[2, 1, 8], &[2]], "dims [tokens, heads, elements]"),
        (K::CacheStore, &[&[3, 2, 4, 8], &[2, 2, 7], &[2]], "dims [tokens, heads, elements]"),
        (K::CacheStore, &[&[3, 2, 4, 8], &[2, 16], &[2]], "dims [tokens, heads, elements]"),
        (K::CacheStore, &[&[3, 2, 4, 8], &[2, 2, 8], &[3]], "a slot for each token"),
        (K::CacheStore, &[&[3, 2, 4, 8], &[2, 2, 8], &[2, 1]], "a slot for each token"),
    ];
    let mut wrong = Vec::new();
    for &(kind, shapes, part) in ROWS {
        let types = match kind {
            K::PagedLoad => [D::F32, D::S32, D::S32],
            _ => [D::F32, D::F32, D::S32],
        };
        let inputs =
            types.iter().take(shapes.len()).enumerate().map(|(id, &of)| LogicalTensor::unknown(id, of));
        let op = Op::new(0, kind).inputs_from(inputs).output(LogicalTensor::unknown(9, D::F32));
        match reference::output_shapes(&op, shapes) {
            Err(error) if error.status() == Status::InvalidShape && error.to_string().contains(part) => {}
            other => wrong.push(format!("{kind} {shapes:?}: {other:?}")),
        }
    }
    report(&wrong);
}

#[test]
fn rows_of_four_bits_begin_with_bytes() {
    let tensor = |id, t, dims: &[i64]| LogicalTensor::strided(id, t, dims).unwrap();
    let (table, slots) = (tensor(1, D::S32, &[2, 2]), tensor(2, D::S32, &[2]));
    let rows = tensor(1, D::U4, &[2, 2, 8]);
    let odd = Op::new(0, K::PagedLoad)
        .inputs_from([tensor(0, D::U4, &[3, 2, 4, 7]), table.clone()])
        .output(LogicalTensor::unknown(9, D::U4));
    let error = reference::output_shapes(&odd, &[&[3, 2, 4, 7], &[2, 2]]).unwrap_err();
    assert!(error.to_string().contains("even number"), "{error}");
    // A row in the middle of a byte, and elements apart.
    for strides in [[130, 65, 16, 1], [128, 64, 16, 2], [128, 64, 9, 1]] {
        let cache = LogicalTensor::with_strides(0, D::U4, &[3, 2, 4, 8], &strides).unwrap();
        let load = Op::new(0, K::PagedLoad).inputs_from([cache.clone(), table.clone()]);
        let store = Op::new(0, K::CacheStore).inputs_from([cache, rows.clone(), slots.clone()]);
        for op in [load, store] {
            let op = op.output(LogicalTensor::unknown(9, D::U4));
            let error = Partition::from_op(op).unwrap().compile(&Engine::new()).unwrap_err();
            assert!(error.to_string().contains("begin with a byte"), "{error}");
        }
    }
}

#[test]
fn nothing_is_written_if_a_number_is_out_of_range() {
    // Kind, dims of the cache, numbers of the second and of the third input, then the port, the place and the
    // range of the wrong one.
    type Row<'a> = (OpKind, [i64; 4], &'a [i32], &'a [i32], usize, usize, [i64; 2]);
    let rows: &[Row<'_>] = &[
        (K::PagedLoad, [3, 1, 2, 2], &[0, 1, 2, 3], &[4, 3], 1, 3, [0, 2]),
        (K::PagedLoad, [3, 1, 2, 2], &[-1, 1, 2, 3], &[4, 3], 1, 0, [0, 2]),
        (K::PagedLoad, [3, 1, 2, 2], &[0, 7, 2, -9], &[2, 3], 1, 3, [0, 2]),
        (K::PagedLoad, [3, 1, 2, 2], &[9, 9, 9, 9], &[0, 5], 2, 1, [0, 4]),
        (K::PagedLoad, [3, 1, 2, 2], &[0, 0, 0, 0], &[-1, 5], 2, 0, [0, 4]),
        (K::PagedLoad, [0, 1, 2, 2], &[0, 0, 0, 0], &[0, 1], 1, 2, [0, -1]),
        (K::CacheStore, [3, 1, 2, 2], &[], &[0, 6], 2, 1, [-1, 5]),
        (K::CacheStore, [3, 1, 2, 2], &[], &[-2, 6], 2, 0, [-1, 5]),
    ];
    let mut wrong = Vec::new();
    for &(kind, dims, second, third, port, place, [first, last]) in rows {
        let engine = Engine::new();
        let strided = |id, data_type, dims: &[i64]| LogicalTensor::strided(id, data_type, dims).unwrap();
        let second_input = match kind {
            K::PagedLoad => strided(1, D::S32, &[2, 2]),
            _ => strided(1, D::F32, &[2, dims[1], dims[3]]),
        };
        let op =
            Op::new(0, kind).inputs_from([strided(0, D::F32, &dims), second_input, strided(2, D::S32, &[2])]);
        let op = op.output(LogicalTensor::unknown(3, D::F32));
        let partition = Partition::from_op(op.clone()).unwrap();
        let compiled = partition.compile(&engine).unwrap();
        let mut inputs: Vec<TensorBuf> =
            compiled.inputs().iter().map(|desc| TensorBuf::zeroed(desc.clone(), &engine).unwrap()).collect();
        if kind == K::PagedLoad {
            Value::from_slice(&[2, 2], second).unwrap().write(&mut inputs[1]).unwrap();
        }
        Value::from_slice(&[2], third).unwrap().write(&mut inputs[2]).unwrap();
        let values: Vec<Value> =
            inputs.iter().map(|input| Value::read(&input.as_tensor()).unwrap()).collect();
        let mut output = TensorBuf::zeroed(compiled.outputs()[0].clone(), &engine).unwrap();
        output.as_mut_bytes().fill(common::GAP);
        let error = common::run(&compiled, &engine, &inputs, &mut output).unwrap_err();
        let number = i64::from(if port == 1 { second[place] } else { third[place] });
        let tensor = TensorId::from(port);
        let fault = ExecuteFault::NumberOutOfRange { tensor, place, number, first, last };
        let is_kept = output.as_bytes().iter().all(|&byte| byte == common::GAP);
        if error != Error::Execute(fault) || error.status() != Status::InvalidArguments || !is_kept {
            wrong.push(format!("{kind} of {second:?} {third:?}: {error}"));
        }
        let fault = TensorFault::NumberOutOfRange { place, number, first, last };
        let interpreted = reference::run(&op, &values).unwrap_err();
        if interpreted != (Error::Tensor { id: tensor, fault }) {
            wrong.push(format!("{kind} of {second:?} {third:?} by the reference: {interpreted}"));
        }
    }
    report(&wrong);
}

#[test]
fn a_store_takes_the_place_of_its_cache() {
    let engine = Engine::builder().threads(2).build();
    let strided = |id, data_type, dims: &[i64]| LogicalTensor::strided(id, data_type, dims).unwrap();
    // Rows come before heads.
    let cache = LogicalTensor::with_strides(0, D::F32, &[50, 4, 16, 8], &[512, 8, 32, 1]).unwrap();
    let output = LogicalTensor::with_strides(3, D::F32, &[50, 4, 16, 8], &[512, 8, 32, 1]).unwrap();
    let op = Op::new(0, K::CacheStore)
        .inputs_from([cache, strided(1, D::F32, &[3, 4, 8]), strided(2, D::S64, &[3])])
        .output(output);
    let compiled = Partition::from_op(op).unwrap().compile(&engine).unwrap();
    assert_eq!(compiled.in_place_pairs(), [InPlacePair::new(0, 3)]);
    let mut cache: Vec<f32> = (0..50 * 512).map(|i| i as f32).collect();
    let rows: Vec<f32> = (0..96).map(|i| -1.0 - i as f32).collect();
    let mut expected = cache.clone();
    expected[799 * 32..][..32].copy_from_slice(&rows[..32]);
    expected[5 * 32..][..32].copy_from_slice(&rows[64..]);
    let inputs = [compiled.tensor(1, &rows).unwrap(), compiled.tensor(2, &[799i64, -1, 5]).unwrap()];
    let output = compiled.tensor_mut(3, &mut cache).unwrap().in_place_of(0);
    compiled.run(&inputs, &mut [output]).unwrap();
    assert_eq!(cache, expected);
}
