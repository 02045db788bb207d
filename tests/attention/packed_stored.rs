//! Promise: packed queries read keys and values of 8 or 4 bits as they are stored, in the pages of a cache or
//! without, in blocks that begin where sequences do. The result is right, has the bits of the same keys
//! without pages, and the same bits at any number of threads, whatever the types, scales, zero points, sizes
//! of pages and lengths, and whether rows are put in order before they are dequantised or behind.

use crate::attention::{Builder, Port, Row, Setup, check_all, numbers, value_of};
use crate::common::{Random, engines, report};
use crate::rewrites::fill;
use sterna::reference::{self, Value};
use sterna::{Attr, AttrValue, DataType, Engine, FastForm, OpKind, PhaseKind, Policy};

use DataType as D;
use OpKind as K;

/// How keys and values lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lie {
    /// In pages; the rows of all sequences are put in order before they are dequantised.
    OrderedFirst,
    /// In pages; they are put in order behind.
    OrderedLast,
    /// In order, without pages.
    Plain,
}

#[derive(Debug, Clone)]
struct Case {
    data_type: DataType,
    stored: DataType,
    /// The type of zero points, if there are some.
    zeros: Option<DataType>,
    /// Rows, and elements of one, that share a scale.
    shares: [i64; 2],
    /// Queries and keys of each sequence; the queries are the last ones.
    lengths: Vec<[i64; 2]>,
    heads: i64,
    groups: i64,
    page: i64,
    /// Pages of each sequence.
    entries: i64,
    d: i64,
    rows_first: bool,
    lie: Lie,
}

impl Case {
    fn rows(&self) -> i64 {
        self.page * self.entries
    }

    fn sequences(&self) -> i64 {
        self.lengths.len() as i64
    }

    fn queries(&self) -> i64 {
        self.lengths.iter().map(|lengths| lengths[0]).sum()
    }

    /// Pages in any order, which sequences may share, and any number behind their lengths.
    fn table(&self, random: &mut Random) -> Vec<i32> {
        let mut table = Vec::new();
        for lengths in &self.lengths {
            let used = (lengths[1] as u64).div_ceil(self.page as u64) as i64;
            table.extend((0..self.entries).map(|entry| match entry < used {
                true => random.below(self.pages() as usize) as i32,
                false => [-1, 0, i32::MAX, i32::MIN][random.below(4)],
            }));
        }
        table
    }

    fn pages(&self) -> i64 {
        self.entries * 2 + 1
    }

    fn strides(&self) -> [i64; 4] {
        let Self { heads, page, d, rows_first, .. } = *self;
        match rows_first {
            true => [page * heads * d, d, heads * d, 1],
            false => [heads * page * d, page * d, d, 1],
        }
    }

    /// The rows of all sequences, with so many bytes each, one behind the other for each head.
    fn in_order(&self, bytes: &[u8], row: usize) -> Vec<u8> {
        let [sequences, heads, rows] = [self.sequences(), self.heads, self.rows()].map(|dim| dim as usize);
        let places = (0..heads).flat_map(|head| (0..sequences).map(move |sequence| (head, sequence)));
        let of = |(head, sequence)| &bytes[(sequence * heads + head) * rows * row..][..rows * row];
        places.flat_map(of).copied().collect()
    }

    /// Keys or values: the stored ones and what follows from them.
    fn operand(&self, builder: &mut Builder, random: &mut Random, tables: [&Port; 2]) -> Port {
        let Self { stored, heads, d, .. } = *self;
        let [sequences, rows] = [self.sequences(), self.rows()];
        let all = sequences * rows;
        let dims = [self.pages(), heads, self.page, d];
        let is_float = matches!(stored, D::F8E4m3 | D::F8E5m2);
        let bytes = dims.iter().product::<i64>() as usize * stored.bits() / 8;
        let mask = if is_float { 0xb7 } else { 0xff };
        let cache = (0..bytes).map(|_| random.next() as u8 & mask).collect();
        let cache = Value::new(stored, &dims, cache).unwrap();
        let row = d as usize * stored.bits() / 8;
        let source = match self.lie {
            Lie::Plain => {
                let given: Vec<Value> = (builder.inputs.iter())
                    .filter(|given| tables.iter().any(|port| port.id() == given.desc.id().get()))
                    .map(|given| given.value.clone())
                    .collect();
                let of_cache = builder.input_of(cache.clone(), None);
                builder.op(K::PagedLoad, &[&of_cache, tables[0], tables[1]], stored);
                let load = builder.ops.pop().unwrap();
                builder.inputs.pop();
                let loaded = reference::run(&load, &[&[cache], &given[..]].concat()).unwrap().remove(0);
                let bytes = self.in_order(loaded.bytes(), row);
                builder.input_of(Value::new(stored, &[1, heads, all, d], bytes).unwrap(), None)
            }
            Lie::OrderedFirst | Lie::OrderedLast => {
                let cache = builder.input_of(cache, Some(&self.strides()));
                builder.op(K::PagedLoad, &[&cache, tables[0], tables[1]], stored)
            }
        };
        let order = |builder: &mut Builder, of: &Port| {
            let moved = builder.transpose(of, &[1, 0, 2, 3]);
            builder.reshape(&moved, &[1, heads, all, d])
        };
        match self.lie {
            Lie::OrderedFirst => {
                let ordered = order(builder, &source);
                self.dequantized(builder, random, ordered)
            }
            Lie::OrderedLast => {
                let number = self.dequantized(builder, random, source);
                order(builder, &number)
            }
            Lie::Plain => self.dequantized(builder, random, source),
        }
    }

    /// The numbers of a stored operand, in the type of the queries.
    fn dequantized(&self, builder: &mut Builder, random: &mut Random, of: Port) -> Port {
        let Self { data_type: t, stored, heads, d, shares: [tokens, elements], .. } = *self;
        if matches!(stored, D::F8E4m3 | D::F8E5m2) {
            let attrs = [(Attr::Qtype, "per_tensor".into()), (Attr::Scales, vec![0.5f32].into())];
            let number = builder.op_with(K::Dequantize, &[&of], &[D::F32], &attrs).remove(0);
            return if t == D::F32 { number } else { builder.op(K::TypeCast, &[&number], t) };
        }
        let counts = [self.sequences(), heads, self.rows() / tokens, d / elements];
        let size = if stored.bits() == 4 { 0.125 } else { 0.01 };
        let scales: Vec<f32> = numbers(random, &counts, 0.5).into_iter().map(|x| (1.0 + x) * size).collect();
        let zeros: Vec<f32> = scales.iter().map(|_| random.below(8) as f32).collect();
        let is_in_order = self.lie != Lie::OrderedLast;
        // Scales lie as what they belong to.
        let placed = |builder: &mut Builder, of_type: DataType, all: &[f32]| {
            let groups = (counts[2], counts[3] as usize);
            let [sequences, rows, row] = [counts[0] as usize, groups.0 as usize, groups.1];
            let ordered: Vec<f32> = (0..heads as usize)
                .flat_map(|head| (0..sequences).map(move |sequence| sequence * heads as usize + head))
                .flat_map(|place| all[place * rows * row..][..rows * row].to_vec())
                .collect();
            match is_in_order {
                true => {
                    let dims = [1, heads, counts[0] * counts[2], counts[3]];
                    builder.input_of(value_of(of_type, &dims, &ordered), None)
                }
                false => builder.input_of(value_of(of_type, &counts, all), None),
            }
        };
        let scales = placed(builder, t, &scales);
        let zeros = self.zeros.map(|of_type| placed(builder, of_type, &zeros));
        let attrs: [(Attr, AttrValue); 2] =
            [(Attr::Qtype, "per_group".into()), (Attr::GroupShape, vec![1, 1, tokens, elements].into())];
        let inputs: Vec<&Port> = [&of, &scales].into_iter().chain(&zeros).collect();
        builder.op_with(K::DynamicDequantize, &inputs, &[t], &attrs).remove(0)
    }

    fn setup(&self, seed: u64) -> Setup {
        let (mut builder, random) = (Builder::new(true), &mut Random::new(seed));
        let Self { data_type: t, heads, groups, d, .. } = *self;
        let (queries, rows, all) = (self.queries(), self.rows(), self.sequences() * self.rows());
        let grouped = groups > 1;
        let q_dims = match grouped {
            true => vec![1, heads, groups, queries, d],
            false => vec![1, heads, queries, d],
        };
        let q = numbers(random, &q_dims, 1.0);
        let q = builder.input(t, &q_dims, None, &q);
        let table = Value::from_slice(&[self.sequences(), self.entries], &self.table(random)).unwrap();
        let lengths: Vec<i32> = self.lengths.iter().map(|lengths| lengths[1] as i32).collect();
        let lengths = Value::from_slice(&[self.sequences()], &lengths).unwrap();
        let tables = [table, lengths].map(|of| builder.input_of(of, None));
        let operands = [0, 1].map(|_| {
            let number = self.operand(&mut builder, random, tables.each_ref());
            if grouped { builder.reshape(&number, &[1, heads, 1, all, d]) } else { number }
        });
        let scores = builder.matmul(&q, &operands[0], true, D::F32);
        let scale = builder.scalar(D::F32, (d as f32).sqrt().recip());
        let scores = builder.op(K::Multiply, &[&scores, &scale], D::F32);
        let mut ranges = [Vec::new(), Vec::new()];
        for (sequence, &[of_queries, keys]) in (0..).zip(&self.lengths) {
            for query in 0..of_queries {
                ranges[0].push((sequence * rows) as f32);
                ranges[1].push((sequence * rows + (keys - of_queries + query + 1).max(0)) as f32);
            }
        }
        let key = builder.index(&scores, -1);
        let [first, end] = ranges.map(|of| builder.input(D::S32, &[queries, 1], None, &of));
        let behind = builder.op(K::GreaterEqual, &[&key, &first], D::Boolean);
        let before = builder.op(K::Less, &[&key, &end], D::Boolean);
        let cond = builder.op(K::LogicalAnd, &[&behind, &before], D::Boolean);
        let nothing = fill(&mut builder, D::F32, &[1], f32::NEG_INFINITY);
        let scores = builder.op(K::Select, &[&cond, &scores, &nothing], D::F32);
        let shares = builder.softmax(&scores, true, t);
        builder.matmul(&shares, &operands[1], false, t);
        builder.finish()
    }

    /// The copies of a plan, and the forms that attention did not take; empty without any.
    fn copies(&self, setup: &Setup) -> String {
        if let Some(why) = setup.is_not_one() {
            return why;
        }
        let partition = &setup.partitions(Policy::Fusion)[0];
        let inputs: Vec<_> = setup.inputs.iter().map(|given| given.desc.clone()).collect();
        let inputs: Vec<_> = (partition.inputs().iter())
            .map(|port| inputs.iter().find(|given| given.id() == port.id()).unwrap().clone())
            .collect();
        let plan = partition.compile_for(&Engine::new(), &inputs, partition.outputs()).unwrap().plan();
        let kinds: Vec<PhaseKind> = plan.nests.iter().map(|nest| nest.kind).collect();
        let forms = [FastForm::Attention, FastForm::PagedCache, FastForm::StoredCache, FastForm::Ragged];
        let missing: Vec<_> = plan.fallbacks.iter().filter(|of| forms.contains(&of.form)).collect();
        match (&kinds[..], &missing[..]) {
            ([PhaseKind::Classify, PhaseKind::Attention, ..], []) if kinds.len() <= 3 => String::new(),
            _ => format!("{kinds:?}, {missing:?}"),
        }
    }
}

/// Prompts, parts of prompts, guessed tokens and single ones, for each type and size of a page.
fn cases() -> Vec<Case> {
    let lengths: [&[[i64; 2]]; 4] = [
        &[[70, 70], [1, 300], [30, 200], [4, 90], [0, 50], [1, 1], [3, 0], [8, 641]],
        &[[1, 650], [1, 77], [1, 1], [1, 500]],
        &[[5, 1290], [66, 1030]],
        &[[1, 130], [20, 33]],
    ];
    let stored = [D::S8, D::U4, D::U8, D::S4, D::F8E4m3, D::F8E5m2];
    let zeros = [None, Some(D::U8), Some(D::S32)];
    let shares = [[1, 64], [1, 32], [4, 64], [1, 16]];
    let pages = [16, 7, 1, 64, 48];
    let mut cases = Vec::new();
    for (at, lengths) in lengths.iter().cycle().take(24).enumerate() {
        let stored = stored[at % 6];
        let page = pages[at % 5];
        let longest = lengths.iter().map(|lengths| lengths[1]).max().unwrap();
        let shares = if page % 4 == 0 { shares[(at / 6) % 4] } else { shares[at / 6 % 2] };
        let case = Case {
            data_type: [D::F32, D::Bf16, D::F16][at / 2 % 3],
            stored,
            zeros: zeros[(at + at / 6) % 3],
            shares,
            lengths: lengths.to_vec(),
            heads: 2,
            groups: [1, 4, 2][at % 3],
            page,
            entries: (longest + page) / page,
            d: 64,
            rows_first: at % 2 == 0,
            lie: Lie::OrderedLast,
        };
        if stored.is_whole() {
            cases.push(Case { lie: Lie::OrderedFirst, ..case.clone() });
        }
        cases.push(case);
    }
    cases
}

#[test]
fn packed_queries_read_stored_keys_where_they_lie() {
    let mut rows: Vec<Row> = Vec::new();
    let mut wrong = Vec::new();
    for (seed, case) in cases().into_iter().enumerate() {
        let setup = case.setup(seed as u64);
        let why = case.copies(&setup);
        if !why.is_empty() {
            wrong.push(format!("{case:?}: {why}"));
        }
        rows.push((format!("{case:?}"), setup));
    }
    wrong.extend(check_all(&rows, &engines()));
    report(&wrong);
}

#[test]
fn bits_are_those_without_pages_at_any_number_of_threads() {
    let mut wrong = Vec::new();
    for (seed, case) in cases().into_iter().enumerate() {
        let plain = Case { lie: Lie::Plain, ..case.clone() };
        let setups = [&case, &plain].map(|case| case.setup(seed as u64));
        let why = plain.copies(&setups[1]);
        if !why.is_empty() {
            wrong.push(format!("{plain:?}: {why}"));
        }
        let all = engines();
        let level = all[seed % all.len()].level();
        let results = [(0, 1), (1, 1), (0, 3)].map(|(setup, threads): (usize, usize)| {
            let engine = Engine::builder().max_level(level).threads(threads).build();
            let setup: &Setup = &setups[setup];
            setup.run(&setup.partitions(Policy::Fusion), &engine).unwrap()[&setup.outputs[0]].clone()
        });
        if results[0].bytes() != results[1].bytes() || results[0].bytes() != results[2].bytes() {
            wrong.push(format!("{case:?} at {level}"));
        }
    }
    report(&wrong);
}
