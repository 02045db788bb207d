//! Promise: attention on keys and values in the pages of a cache is one partition that reads them where they
//! lie. It is right, and has the bits of attention on the same keys without pages, whatever the size of a
//! page, the order of its rows and heads, the lengths, the pages that sequences share, the types and the
//! number of queries; what lies behind a length does not exist.

use crate::attention::{Builder, Port, Row, Setup, check_all, numbers, value_of};
use crate::common::{self, Random, engines, report};
use crate::options::faults_of_refusals;
use sterna::reference::{self, Value};
use sterna::{
    AsDynView, Attention, AttentionBackward, Attr, AttrValue, Causal, DataType, Engine, Error, ExecuteFault,
    FastForm, Graph, GraphBuilder, LogicalTensor, OpKind, PhaseKind, Policy, Session, TensorBuf, TensorId,
    TensorView,
};

use DataType as D;
use OpKind as K;

/// Sequences in a cache, and queries of each.
#[derive(Debug, Clone)]
struct Sequences {
    data_type: DataType,
    /// The type of the cache, if it is another one.
    stored: Option<DataType>,
    heads: i64,
    groups: i64,
    queries: i64,
    page: i64,
    /// Pages of each sequence.
    entries: i64,
    lengths: Vec<i32>,
    d: [i64; 2],
    /// The rows of a page come before its heads.
    rows_first: bool,
    /// Elements of a row do not lie next to each other.
    scattered: bool,
    causal: bool,
}

impl Sequences {
    fn new(data_type: DataType, queries: i64, page: i64, entries: i64, lengths: &[i32]) -> Self {
        Self {
            data_type,
            stored: None,
            heads: 2,
            groups: 1,
            queries,
            page,
            entries,
            lengths: lengths.to_vec(),
            d: [24, 40],
            rows_first: false,
            scattered: false,
            causal: true,
        }
    }

    fn pages(&self) -> i64 {
        self.entries * 2 + 1
    }

    /// Pages in any order, which sequences may share, and any number behind their lengths.
    fn table(&self, random: &mut Random) -> Vec<i32> {
        let used = |length: i32| (length as u64).div_ceil(self.page as u64) as i64;
        let mut entry = |length: i32, entry: i64| match entry < used(length) {
            true => random.below(self.pages() as usize) as i32,
            false => [-1, 0, i32::MAX, i32::MIN][random.below(4)],
        };
        let rows = self.lengths.iter().flat_map(|&length| (0..self.entries).map(move |at| (length, at)));
        rows.map(|(length, at)| entry(length, at)).collect()
    }

    /// True for each row of each page that a sequence has.
    fn is_read(&self, table: &[i32]) -> Vec<bool> {
        let mut is_read = vec![false; (self.pages() * self.page) as usize];
        for (sequence, &length) in self.lengths.iter().enumerate() {
            for row in 0..i64::from(length) {
                let page = i64::from(table[sequence * self.entries as usize + (row / self.page) as usize]);
                is_read[(page * self.page + row % self.page) as usize] = true;
            }
        }
        is_read
    }

    fn dims(&self, d: i64) -> [i64; 4] {
        [self.pages(), self.heads, self.page, d]
    }

    fn strides(&self, d: i64) -> [i64; 4] {
        let (heads, page) = (self.heads, self.page);
        match (self.scattered, self.rows_first) {
            (true, _) => [heads * page * d * 2, page * d * 2, 2, page * 2],
            (_, true) => [page * heads * d, d, heads * d, 1],
            (_, false) => [heads * page * d, page * d, d, 1],
        }
    }

    /// A cache whose rows that no sequence has are NaN, or any bytes.
    fn cache(&self, builder: &mut Builder, random: &mut Random, d: i64, is_read: &[bool]) -> Port {
        let dims = self.dims(d);
        let count = dims.iter().product::<i64>() as usize;
        let of_row = |place: usize| {
            let (d, page, heads) = (d as usize, self.page as usize, self.heads as usize);
            place / (heads * page * d) * page + place / d % page
        };
        let value = match self.stored {
            Some(D::F8E4m3 | D::F8E5m2) => {
                let byte = |place| if is_read[of_row(place)] { random.next() as u8 & 0xb7 } else { 0x7f };
                Value::new(self.stored.unwrap(), &dims, (0..count).map(byte).collect()).unwrap()
            }
            Some(stored) => {
                let bytes = count * stored.bits() / 8;
                Value::new(stored, &dims, (0..bytes).map(|_| random.next() as u8).collect()).unwrap()
            }
            None => {
                let mut all = numbers(random, &dims, 1.0);
                (0..count).filter(|&place| !is_read[of_row(place)]).for_each(|place| all[place] = f32::NAN);
                value_of(self.data_type, &dims, &all)
            }
        };
        builder.input_of(value, Some(&self.strides(d)))
    }

    /// The number that follows from a load, in the type of the queries.
    fn dequantized(&self, builder: &mut Builder, random: &mut Random, loaded: Port, d: i64) -> Port {
        let t = self.data_type;
        match self.stored {
            None => loaded,
            Some(D::F8E4m3 | D::F8E5m2) => {
                let attrs = [(Attr::Qtype, "per_tensor".into()), (Attr::Scales, vec![0.5f32].into())];
                let number = builder.op_with(K::Dequantize, &[&loaded], &[D::F32], &attrs).remove(0);
                if t == D::F32 { number } else { builder.op(K::TypeCast, &[&number], t) }
            }
            Some(stored) => {
                // Of four bits a scale and a zero point for 8 elements, or one for a head.
                let is_small = stored.bits() == 4;
                let rows = self.entries * self.page;
                let shares = match stored {
                    D::U4 if self.rows_first => [rows, d],
                    D::U4 | D::S4 => [1, 8],
                    _ => [1, d],
                };
                let dims = [self.lengths.len() as i64, self.heads, rows / shares[0], d / shares[1]];
                let size = if is_small { 0.125 } else { 0.01 };
                let scales: Vec<f32> =
                    numbers(random, &dims, 0.5).into_iter().map(|x| (1.0 + x) * size).collect();
                let zeros: Vec<f32> = scales.iter().map(|_| random.below(8) as f32).collect();
                let mut inputs = vec![loaded, builder.input(t, &dims, None, &scales)];
                if is_small {
                    inputs.push(builder.input(D::U8, &dims, None, &zeros));
                }
                let attrs: [(Attr, AttrValue); 2] = [
                    (Attr::Qtype, "per_group".into()),
                    (Attr::GroupShape, vec![1, 1, shares[0], shares[1]].into()),
                ];
                let inputs: Vec<&Port> = inputs.iter().collect();
                builder.op_with(K::DynamicDequantize, &inputs, &[t], &attrs).remove(0)
            }
        }
    }

    /// The graph; `has_pages` tells if the cache has pages, or the keys and values of each sequence are
    /// inputs.
    fn setup(&self, seed: u64, has_pages: bool) -> Setup {
        let (mut builder, random) = (Builder::new(true), &mut Random::new(seed));
        let batch = self.lengths.len() as i64;
        let (t, rows, [d, dv]) = (self.data_type, self.entries * self.page, self.d);
        let table = self.table(random);
        let is_read = self.is_read(&table);
        let grouped = self.groups > 1;
        let q_dims = match grouped {
            true => vec![batch, self.heads, self.groups, self.queries, d],
            false => vec![batch, self.heads, self.queries, d],
        };
        let q = numbers(random, &q_dims, 1.0);
        let q = builder.input(t, &q_dims, None, &q);
        let table = Value::from_slice(&[batch, self.entries], &table).unwrap();
        let table = builder.input_of(table, None);
        let lengths = builder.input_of(Value::from_slice(&[batch], &self.lengths).unwrap(), None);
        let mut operands = Vec::new();
        for d in [d, dv] {
            let cache = self.cache(&mut builder, random, d, &is_read);
            let stored = self.stored.unwrap_or(t);
            let loaded = match has_pages {
                true => builder.op(K::PagedLoad, &[&cache, &table, &lengths], stored),
                false => {
                    let op = builder.op(K::PagedLoad, &[&cache, &table, &lengths], stored);
                    let of = |port: &Port| {
                        builder
                            .inputs
                            .iter()
                            .find(|given| given.desc.id().get() == port.id())
                            .unwrap()
                            .value
                            .clone()
                    };
                    let values = [of(&cache), of(&table), of(&lengths)];
                    let load = builder.ops.pop().unwrap();
                    let value = reference::run(&load, &values).unwrap().remove(0);
                    drop(op);
                    builder.input_of(value, None)
                }
            };
            let number = self.dequantized(&mut builder, random, loaded, d);
            operands.push(match grouped {
                true => builder.reshape(&number, &[batch, self.heads, 1, rows, d]),
                false => number,
            });
        }
        let scores = builder.matmul(&q, &operands[0], true, D::F32);
        let scale = builder.scalar(D::F32, (d as f32).sqrt());
        let scores = builder.op(K::Divide, &[&scores, &scale], D::F32);
        let ones = vec![1; q_dims.len() - 1];
        let lengths = builder.reshape(&lengths, &[&[batch], &ones[..]].concat());
        let key = builder.index(&scores, -1);
        let cond = match self.causal {
            true => {
                let query = builder.index(&scores, -2);
                let queries = Value::from_slice(&[], &[self.queries as i32]).unwrap();
                let queries = builder.input_of(queries, None);
                let offset = builder.op(K::Subtract, &[&lengths, &queries], D::S32);
                let own = builder.op(K::Add, &[&query, &offset], D::S32);
                builder.op(K::GreaterEqual, &[&own, &key], D::Boolean)
            }
            false => builder.op(K::Less, &[&key, &lengths], D::Boolean),
        };
        let scores = builder.select(&cond, &scores, f32::NEG_INFINITY, false);
        let shares = builder.softmax(&scores, true, t);
        builder.matmul(&shares, &operands[1], false, t);
        builder.finish()
    }
}

/// The copies of a plan, and the forms that attention did not take.
fn copies(setup: &Setup) -> String {
    let partitions = setup.partitions(Policy::Fusion);
    if let Some(why) = setup.is_not_one() {
        return why;
    }
    let inputs: Vec<_> = setup.inputs.iter().map(|given| given.desc.clone()).collect();
    let compiled = partitions[0].compile_for(&Engine::new(), &inputs, partitions[0].outputs()).unwrap();
    let plan = compiled.plan();
    let copies = plan.nests.iter().filter(|nest| matches!(nest.kind, PhaseKind::Map | PhaseKind::Lookup));
    let forms = [FastForm::Attention, FastForm::PagedCache, FastForm::StoredCache];
    let fallbacks = plan.fallbacks.iter().filter(|fallback| forms.contains(&fallback.form));
    match (copies.count(), fallbacks.count()) {
        (0, 0) => String::new(),
        (copies, fallbacks) => format!("{copies} copies, {fallbacks} forms that were not taken"),
    }
}

/// Every size of a page, with sequences that are empty, full, and end within a page.
fn sequences() -> Vec<Sequences> {
    let mut all = Vec::new();
    let types = [D::F32, D::Bf16, D::F16];
    let shapes: [(i64, i64, &[i32]); 6] = [
        (1, 70, &[70, 0, 33]),
        (3, 50, &[150, 1, 149]),
        (16, 40, &[640, 17, 0, 513]),
        (64, 10, &[640, 1, 65]),
        (128, 5, &[130, 640]),
        (48, 1, &[48]),
    ];
    for (index, &(page, entries, lengths)) in shapes.iter().enumerate() {
        for (at, queries) in [1, 2, 5, 16, 70].into_iter().enumerate() {
            let t = types[(index + at) % 3];
            let plain = Sequences::new(t, queries, page, entries, lengths);
            all.push(Sequences { rows_first: at % 2 == 0, ..plain.clone() });
            all.push(Sequences { groups: 4, rows_first: at % 2 == 1, causal: false, ..plain.clone() });
            let stored = [D::S8, D::U8, D::F8E4m3][(index + at) % 3];
            all.push(Sequences { stored: Some(stored), groups: [1, 2][at % 2], ..plain.clone() });
            let stored = [D::S4, D::U4][(index + at) % 2];
            let rows_first = at % 2 == 0;
            all.push(Sequences { stored: Some(stored), groups: [2, 4, 1][at % 3], rows_first, ..plain });
        }
    }
    all
}

#[test]
fn attention_on_pages_is_right() {
    let rows: Vec<Row> = (sequences().into_iter().enumerate())
        .map(|(seed, of)| (format!("{of:?}"), of.setup(seed as u64, true)))
        .collect();
    let mut wrong: Vec<String> = rows
        .iter()
        .filter_map(|(name, setup)| {
            Some(copies(setup)).filter(|why| !why.is_empty()).map(|why| format!("{name}: {why}"))
        })
        .collect();
    wrong.extend(check_all(&rows, &engines()));
    report(&wrong);
}

#[test]
fn bits_are_those_of_a_cache_without_pages() {
    let mut wrong = Vec::new();
    let all: Vec<Engine> = engines().into_iter().chain([Engine::builder().threads(3).build()]).collect();
    for (seed, of) in sequences().into_iter().enumerate() {
        let [paged, plain] = [true, false].map(|has_pages| of.setup(seed as u64, has_pages));
        let engine = &all[seed % all.len()];
        let results = [&paged, &plain].map(|setup| {
            let made = setup.run(&setup.partitions(Policy::Fusion), engine).unwrap();
            made[&setup.outputs[0]].bytes().to_vec()
        });
        if results[0] != results[1] {
            wrong.push(format!("{of:?} at {}", engine.level()));
        }
    }
    report(&wrong);
}

#[test]
fn elements_that_lie_apart_are_copied() {
    let mut rows: Vec<Row> = Vec::new();
    for queries in [1, 40] {
        let of = Sequences { scattered: true, ..Sequences::new(D::F32, queries, 16, 5, &[80, 3]) };
        let setup = of.setup(queries as u64, true);
        assert_eq!(copies(&setup), "2 copies, 2 forms that were not taken");
        rows.push((format!("{of:?}"), setup));
    }
    report(&check_all(&rows, &engines()));
}

#[test]
fn a_number_out_of_range_is_an_error_and_nothing_is_written() {
    let of = Sequences { causal: false, ..Sequences::new(D::F32, 1, 4, 3, &[12, 5]) };
    let engine = Engine::new();
    let mut wrong = Vec::new();
    let good = [0, 1, 2, 3, 4, -1];
    // The table, the lengths, and the port, the place and the range of the number that is wrong.
    type Row = ([i32; 6], [i32; 2], usize, usize, [i64; 2]);
    let rows: [Row; 4] = [
        ([0, 1, 7, 3, 4, -1], [12, 5], 1, 2, [0, 6]),
        ([0, 1, 2, 3, -1, -1], [12, 5], 1, 4, [0, 6]),
        (good, [13, 5], 2, 0, [0, 12]),
        (good, [12, -1], 2, 1, [0, 12]),
    ];
    for (table, lengths, port, place, [first, last]) in rows {
        let setup = of.setup(1, true);
        let partition = setup.partitions(Policy::Fusion).remove(0);
        let find = |id: TensorId| setup.inputs.iter().find(|given| given.desc.id() == id).unwrap();
        let descs: Vec<LogicalTensor> =
            partition.inputs().iter().map(|port| find(port.id()).desc.clone()).collect();
        let compiled = partition.compile_for(&engine, &descs, partition.outputs()).unwrap();
        let mut inputs = Vec::new();
        for desc in &descs {
            let mut buffer = TensorBuf::zeroed(desc.clone(), &engine).unwrap();
            match desc.id().get() {
                1 => Value::from_slice(&[2, 3], &table).unwrap().write(&mut buffer).unwrap(),
                2 => Value::from_slice(&[2], &lengths).unwrap().write(&mut buffer).unwrap(),
                _ => find(desc.id()).value.write(&mut buffer).unwrap(),
            }
            inputs.push(buffer);
        }
        let mut output = TensorBuf::zeroed(compiled.outputs()[0].clone(), &engine).unwrap();
        output.as_mut_bytes().fill(common::GAP);
        let error = common::run(&compiled, &engine, &inputs, &mut output).unwrap_err();
        let number = i64::from(if port == 1 { table[place] } else { lengths[place] });
        let fault = ExecuteFault::NumberOutOfRange { tensor: port.into(), place, number, first, last };
        let is_kept = output.as_bytes().iter().all(|&byte| byte == common::GAP);
        if error != Error::Execute(fault) || !is_kept {
            wrong.push(format!("{table:?} {lengths:?}: {error}"));
        }
    }
    report(&wrong);
}

/// Options of a graph that `Attention::paged` makes.
#[derive(Debug, Clone)]
struct Options {
    causal: Option<Causal>,
    window: Option<i64>,
    alibi: bool,
    groups: i64,
    queries: i64,
    is_known: bool,
}

impl Options {
    const HEADS: i64 = 4;
    const PAGE: i64 = 8;
    const ENTRIES: i64 = 12;
    const DEPTH: i64 = 8;
    const LENGTHS: [i32; 4] = [90, 0, 17, 96];

    /// The result in f64 of the queries of all sequences, from the keys and values of each.
    fn expected(&self, q: &[f32], [k, v]: [&[f32]; 2], table: &[i32], slopes: &[f32]) -> Vec<f64> {
        let Self { groups, queries, .. } = *self;
        let (heads, page, depth) = (Self::HEADS, Self::PAGE, Self::DEPTH);
        let of_keys = heads / groups;
        let at = |cache: &[f32], sequence: i64, head: i64, key: i64, d: i64| {
            let entry = table[(sequence * Self::ENTRIES + key / page) as usize];
            let row = (i64::from(entry) * of_keys + head) * page + key % page;
            f64::from(cache[(row * depth + d) as usize])
        };
        let mut result = Vec::new();
        for (sequence, length) in (0..).zip(Self::LENGTHS.map(i64::from)) {
            for (head, i) in (0..heads).flat_map(|head| (0..queries).map(move |i| (head, i))) {
                let own = match self.causal {
                    Some(Causal::BottomRight) => i + length - queries,
                    Some(Causal::Offset(_)) => i + 5,
                    _ => i,
                };
                let sees = |j: i64| {
                    (self.causal.is_none() || j <= own)
                        && self.window.is_none_or(|window| (own - j).abs() < window)
                };
                let row = (sequence * heads + head) * queries + i;
                let score = |j: i64| {
                    let products = (0..depth).map(|d| {
                        f64::from(q[(row * depth + d) as usize]) * at(k, sequence, head / groups, j, d)
                    });
                    products.sum::<f64>() / (depth as f64).sqrt()
                        - f64::from(slopes[head as usize]) * (own - j).abs() as f64
                };
                let seen: Vec<i64> = (0..length).filter(|&j| sees(j)).collect();
                let sum: f64 = seen.iter().map(|&j| score(j).exp()).sum();
                result.extend((0..depth).map(|d| {
                    seen.iter()
                        .map(|&j| score(j).exp() / sum * at(v, sequence, head / groups, j, d))
                        .sum::<f64>()
                }));
            }
        }
        result
    }

    fn fault(&self, engine: &Engine, seed: u64) -> Option<String> {
        let (batch, heads, pages) = (Self::LENGTHS.len() as i64, Self::HEADS, 20);
        let mut random = Random::new(seed);
        let q_dims = [batch, heads, self.queries, Self::DEPTH];
        let cache_dims = [pages, heads / self.groups, Self::PAGE, Self::DEPTH];
        let q = numbers(&mut random, &q_dims, 2.0);
        let [k, v] = [0, 1].map(|_| numbers(&mut random, &cache_dims, 2.0));
        let table: Vec<i32> =
            (0..batch * Self::ENTRIES).map(|_| random.below(pages as usize) as i32).collect();
        let slopes: Vec<f32> =
            (0..heads).map(|head| if self.alibi { 0.25 / (1 + head) as f32 } else { 0.0 }).collect();
        let g = GraphBuilder::new();
        let open = |dim: i64| self.is_known.then_some(dim);
        let input = |name, t, dims: &[Option<i64>]| g.input(name, t, dims).unwrap();
        let in_q = input("q", D::F32, &[open(batch), Some(heads), Some(self.queries), Some(Self::DEPTH)]);
        let cache = [open(pages), Some(heads / self.groups), Some(Self::PAGE), Some(Self::DEPTH)];
        let [in_k, in_v] = ["k", "v"].map(|name| input(name, D::F32, &cache));
        let in_table = input("table", D::S32, &[open(batch), open(Self::ENTRIES)]).desc();
        let in_lengths = input("lengths", D::S32, &[open(batch)]).desc();
        let alibi = self.alibi.then(|| input("slopes", D::F32, &[Some(heads), Some(1), Some(1)]).desc());
        let causal = match &self.causal {
            Some(Causal::Offset(_)) => Some(Causal::Offset(input("offset", D::S32, &[]).desc())),
            other => other.clone(),
        };
        let y = g.attention(in_q, in_k, in_v, |attention| {
            let attention = attention.paged(in_table, in_lengths).causal(causal).window(self.window);
            attention.alibi(alibi).groups((self.groups > 1).then_some(self.groups))
        });
        g.output("y", y.unwrap()).unwrap();
        let session = Session::new(g.build().unwrap(), engine).unwrap();
        let [q_view, k_view, v_view, slopes_view] =
            [(&q, &q_dims[..]), (&k, &cache_dims), (&v, &cache_dims), (&slopes, &[heads, 1, 1])]
                .map(|(numbers, dims)| TensorView::new(numbers, dims));
        let table_dims = [batch, Self::ENTRIES];
        let table_view = TensorView::new(&table, &table_dims);
        let lengths_dims = [batch];
        let lengths_view = TensorView::new(&Self::LENGTHS, &lengths_dims);
        let offset_view = TensorView::new(&[5i32], &[]);
        let all: [(&str, &dyn AsDynView); 7] = [
            ("q", &q_view),
            ("k", &k_view),
            ("v", &v_view),
            ("slopes", &slopes_view),
            ("table", &table_view),
            ("lengths", &lengths_view),
            ("offset", &offset_view),
        ];
        let is_input = |name: &str| session.inputs().iter().any(|port| port.name() == name);
        let given: Vec<_> = all.into_iter().filter(|(name, _)| is_input(name)).collect();
        let outputs = session.run(&given).unwrap();
        let result = outputs.get("y").unwrap().as_slice::<f32>().unwrap();
        let expected = self.expected(&q, [&k, &v], &table, &slopes);
        let wrong = result.iter().zip(&expected).position(|(&given, &expected)| {
            (f64::from(given) - expected).abs() > 2e-6 * expected.abs().max(1.0) || given.is_nan()
        });
        wrong.map(|at| format!("{self:?}: element {at} is {} for {}", result[at], expected[at]))
    }
}

#[test]
fn the_option_makes_the_graph() {
    let offset = Causal::Offset(LogicalTensor::strided(0, D::S32, &[]).unwrap());
    let mut wrong = Vec::new();
    let mut seed = 0;
    for causal in [None, Some(Causal::TopLeft), Some(Causal::BottomRight), Some(offset)] {
        for window in [None, Some(20)] {
            for (queries, groups) in [(1, 1), (3, 2), (9, 4), (1, 4)] {
                let options = Options {
                    causal: causal.clone(),
                    window,
                    alibi: queries == 3,
                    groups,
                    queries,
                    is_known: groups != 2,
                };
                seed += 1;
                wrong.extend(options.fault(&engines()[seed % engines().len()], seed as u64));
            }
        }
    }
    report(&wrong);
}

/// An index of queries for which no option asks would be a partition of its own.
#[test]
fn pages_without_positions_are_one_partition() {
    let tensor = |id, t, dims: &[i64]| LogicalTensor::strided(id, t, dims).unwrap();
    let cache = |id| tensor(id, D::F32, &[9, 4, 16, 8]);
    let [q, dst] = [0, 3].map(|id| tensor(id, D::F32, &[8, 4, 1, 8]));
    let (table, lengths) = (tensor(4, D::S32, &[8, 3]), tensor(5, D::S32, &[8]));
    let mut graph = Graph::new();
    graph.attention(&Attention::new(q, cache(1), cache(2), dst).paged(table, lengths)).unwrap();
    graph.finalize().unwrap();
    assert_eq!(graph.partitions(Policy::Fusion).unwrap().len(), 1);
}

#[test]
fn a_large_cache_wakes_no_thread_for_few_keys() {
    let tensor = |id, t, dims: &[i64]| LogicalTensor::strided(id, t, dims).unwrap();
    let engine = Engine::builder().threads(2).build();
    let threads = |entries: i64| {
        let (q, cache) = (tensor(0, D::F32, &[8, 4, 1, 8]), |id| tensor(id, D::F32, &[500_000, 4, 16, 8]));
        let (table, lengths) = (tensor(4, D::S32, &[8, entries]), tensor(5, D::S32, &[8]));
        let attention =
            Attention::new(q, cache(1), cache(2), tensor(3, D::F32, &[8, 4, 1, 8])).paged(table, lengths);
        let mut graph = Graph::new();
        graph.attention(&attention).unwrap();
        graph.finalize().unwrap();
        let partitions = graph.partitions(Policy::Fusion).unwrap();
        let loads =
            |partition: &&sterna::Partition| partition.ops().iter().any(|op| op.kind() == OpKind::PagedLoad);
        let compiled = partitions.iter().find(loads).unwrap().compile(&engine).unwrap();
        compiled.plan().nests.iter().map(|nest| nest.threads).max()
    };
    assert_eq!([threads(2), threads(60_000)], [Some(1), Some(2)]);
}

#[test]
fn what_does_not_do_is_refused() {
    let tensor = |id, t, dims: &[i64]| LogicalTensor::strided(id, t, dims).unwrap();
    let (q, cache) = (tensor(0, D::F32, &[2, 4, 1, 8]), |id| tensor(id, D::F32, &[9, 4, 16, 8]));
    let plain = || Attention::new(q.clone(), cache(1), cache(2), tensor(3, D::F32, &[2, 4, 1, 8]));
    let (table, lengths) = (tensor(4, D::S32, &[2, 3]), tensor(5, D::S32, &[2]));
    let starts = || tensor(6, D::S32, &[3]);
    let rows = [
        (plain().paged(tensor(4, D::F32, &[2, 3]), lengths.clone()), "s32 or s64"),
        (plain().paged(table.clone(), tensor(5, D::S64, &[2])), "lengths are s32"),
        (plain().paged(tensor(4, D::S32, &[6]), lengths.clone()), "[batch, pages of each sequence]"),
        (plain().paged(table.clone(), tensor(5, D::S32, &[2, 1])), "dims [batch]"),
        (plain().paged(table.clone(), lengths.clone()).k_transposed(true), "keys as rows"),
        (plain().paged(table.clone(), lengths.clone()).packed(starts(), starts()), "packed themselves"),
        (
            Attention::new(
                q.clone(),
                tensor(1, D::F32, &[4, 16, 8]),
                cache(2),
                tensor(3, D::F32, &[2, 4, 1, 8]),
            )
            .paged(table.clone(), lengths.clone()),
            "[pages, heads, rows of a page, d]",
        ),
    ];
    let mut wrong = faults_of_refusals(rows);
    let gradient = AttentionBackward::new(plain().paged(table, lengths), q.clone()).d_q(tensor(
        8,
        D::F32,
        &[2, 4, 1, 8],
    ));
    match Graph::new().attention_backward(&gradient) {
        Err(error) if error.to_string().contains("no gradient") => {}
        other => wrong.push(format!("gradients: {other:?}")),
    }
    report(&wrong);
}
