//! Promise: attention of packed sequences is that of each sequence alone, whatever its length, and computes
//! no tile of two sequences that has none of a pair.

use crate::common::{Random, engines, report};
use crate::options::faults_of_refusals;
use sterna::{
    AsDynView, Attention, AttentionBackward, Causal, DataType, Engine, FastForm, Graph, GraphBuilder,
    LogicalTensor, Model, OpKind, Partition, PhaseKind, Policy, Session, Status, TensorView,
};

const HEADS: usize = 4;
const DEPTH: usize = 8;

/// The options of a case, and the lengths of its sequences.
#[derive(Debug, Clone)]
struct Case {
    /// Queries and keys of each sequence.
    lengths: Vec<[usize; 2]>,
    /// Tokens in front of the first sequence and behind the last one.
    margins: [usize; 2],
    causal: Option<Causal>,
    window: Option<i64>,
    softcap: Option<f32>,
    alibi: bool,
    sinks: bool,
    groups: usize,
    /// Rows of a page, if keys and values lie in pages.
    page: Option<usize>,
    /// The graph knows the number of tokens.
    is_known: bool,
}

impl Case {
    fn new(lengths: &[[usize; 2]]) -> Self {
        Self {
            lengths: lengths.to_vec(),
            margins: [0, 0],
            causal: None,
            window: None,
            softcap: None,
            alibi: false,
            sinks: false,
            groups: 1,
            page: None,
            is_known: true,
        }
    }

    /// Pages of each sequence: one more than the longest one fills.
    fn entries(&self, page: usize) -> usize {
        self.lengths.iter().map(|lengths| lengths[1].div_ceil(page)).max().unwrap_or(0) + 1
    }

    /// The table of pages, in an order of its own; no page stands behind a length.
    fn table(&self, page: usize) -> Vec<i32> {
        let entries = self.entries(page);
        let all = self.lengths.len() * entries;
        let of_entry = |at: usize| match at % entries * page < self.lengths[at / entries][1] {
            true => ((at * 7 + 3) % all.next_power_of_two()) as i32,
            false => -1,
        };
        (0..all).map(of_entry).collect()
    }

    /// The cache of pages for heads of keys or values; rows that no sequence has are NaN.
    fn cache(&self, page: usize, tokens: &[f32], heads: usize) -> Vec<f32> {
        let (table, entries, starts) = (self.table(page), self.entries(page), self.starts(1));
        let pages = table.len().next_power_of_two();
        let mut cache = vec![f32::NAN; pages * heads * page * DEPTH];
        for (sequence, lengths) in self.lengths.iter().enumerate() {
            for (row, head) in (0..lengths[1]).flat_map(|row| (0..heads).map(move |head| (row, head))) {
                let at = table[sequence * entries + row / page] as usize;
                let from = (head * self.tokens(1) + starts[sequence] as usize + row) * DEPTH;
                let to = ((at * heads + head) * page + row % page) * DEPTH;
                cache[to..to + DEPTH].copy_from_slice(&tokens[from..from + DEPTH]);
            }
        }
        cache
    }

    /// The place in front of each sequence and behind the last one: of queries, or of keys.
    fn starts(&self, side: usize) -> Vec<i32> {
        let mut starts = vec![self.margins[0] as i32];
        starts.extend(self.lengths.iter().scan(self.margins[0], |at, lengths| {
            *at += lengths[side];
            Some(*at as i32)
        }));
        starts
    }

    fn tokens(&self, side: usize) -> usize {
        self.starts(side).last().map_or(0, |&end| end as usize) + self.margins[1]
    }

    /// The result in f64: [heads, queries, depth], from operands in the same order.
    fn expected(&self, [q, k, v]: [&[f32]; 3], slopes: &[f32], sinks: &[f32]) -> Vec<f64> {
        let [queries, keys] = [0, 1].map(|side| self.tokens(side));
        let mut result = vec![0.0; HEADS * queries * DEPTH];
        let at = |of: &[f32], head: usize, tokens: usize, token: usize, element: usize| {
            f64::from(of[(head * tokens + token) * DEPTH + element])
        };
        let starts = [0, 1].map(|side| self.starts(side));
        for (number, &[of_queries, of_keys]) in self.lengths.iter().enumerate() {
            let [first_query, first_key] = [0, 1].map(|side| starts[side][number] as usize);
            for (head, i) in (0..HEADS).flat_map(|head| (0..of_queries).map(move |i| (head, i))) {
                let of_head = head / self.groups;
                let own = match self.causal {
                    Some(Causal::BottomRight) => i as i64 + of_keys as i64 - of_queries as i64,
                    _ => i as i64,
                };
                let sees = |j: i64| {
                    (self.causal.is_none() || j <= own)
                        && self.window.is_none_or(|window| (own - j).abs() < window)
                };
                let score = |j: usize| {
                    let products = (0..DEPTH).map(|d| {
                        at(q, head, queries, first_query + i, d) * at(k, of_head, keys, first_key + j, d)
                    });
                    let scaled = products.sum::<f64>() / (DEPTH as f64).sqrt();
                    let capped =
                        self.softcap.map_or(scaled, |cap| (scaled / f64::from(cap)).tanh() * f64::from(cap));
                    capped - f64::from(slopes[head]) * (own - j as i64).abs() as f64
                };
                let seen: Vec<usize> = (0..of_keys).filter(|&j| sees(j as i64)).collect();
                let sum: f64 = seen.iter().map(|&j| score(j).exp()).sum::<f64>()
                    + if self.sinks { f64::from(sinks[head]).exp() } else { 0.0 };
                for &j in &seen {
                    let weight = score(j).exp() / sum;
                    for d in 0..DEPTH {
                        result[(head * queries + first_query + i) * DEPTH + d] +=
                            weight * at(v, of_head, keys, first_key + j, d);
                    }
                }
            }
        }
        result
    }

    /// The fault of a session that computes the case; `None` if it has none.
    fn fault(&self, engine: &Engine, seed: u64) -> Option<String> {
        let (heads, of_keys) = (HEADS as i64, (HEADS / self.groups) as i64);
        let [queries, keys] = [0, 1].map(|side| self.tokens(side));
        let mut random = Random::new(seed);
        let mut numbers = |count: usize| -> Vec<f32> {
            (0..count).map(|_| random.below(4001) as f32 / 1000.0 - 2.0).collect()
        };
        let (q, k, v) = (
            numbers(HEADS * queries * DEPTH),
            numbers(HEADS / self.groups * keys * DEPTH),
            numbers(HEADS / self.groups * keys * DEPTH),
        );
        let slopes: Vec<f32> =
            (0..HEADS).map(|head| if self.alibi { 0.25 / (1 + head) as f32 } else { 0.0 }).collect();
        let sinks: Vec<f32> = (0..HEADS).map(|head| head as f32 - 1.5).collect();

        let g = GraphBuilder::new();
        let open = |tokens: usize| self.is_known.then_some(tokens as i64);
        let tensor = |name, heads: i64, tokens| {
            g.input(name, DataType::F32, &[Some(1), Some(heads), open(tokens), Some(DEPTH as i64)]).unwrap()
        };
        let inputs = ["k", "v"].map(|name| match self.page {
            None => tensor(name, of_keys, keys),
            Some(page) => {
                let dims = [None, Some(of_keys), Some(page as i64), Some(DEPTH as i64)];
                g.input(name, DataType::F32, &dims).unwrap()
            }
        });
        let [in_k, in_v] = inputs;
        let in_q = tensor("q", heads, queries);
        let starts = ["starts_q", "starts_kv"].map(|name| {
            let sequences = self.is_known.then_some(self.lengths.len() as i64 + 1);
            g.input(name, DataType::S32, &[sequences]).unwrap().desc()
        });
        let pages = self.page.map(|page| {
            let known = |dim: usize| self.is_known.then_some(dim as i64);
            let dims = [known(self.lengths.len()), known(self.entries(page))];
            let table = g.input("table", DataType::S32, &dims).unwrap().desc();
            (table, g.input("lengths", DataType::S32, &dims[..1]).unwrap().desc())
        });
        let of_heads = |name| g.input(name, DataType::F32, &[Some(heads), Some(1), Some(1)]).unwrap().desc();
        let alibi = self.alibi.then(|| of_heads("slopes"));
        let column = self.sinks.then(|| of_heads("sinks"));
        let y = g.attention(in_q, in_k, in_v, |attention| {
            let [of_queries, of_keys] = starts;
            let attention = match pages {
                None => attention.packed(of_queries, of_keys),
                Some((table, lengths)) => attention.packed_queries(of_queries).paged(table, lengths),
            };
            attention
                .causal(self.causal.clone())
                .window(self.window)
                .softcap(self.softcap)
                .alibi(alibi)
                .sinks(column)
                .groups((self.groups > 1).then_some(self.groups as i64))
        });
        g.output("y", y.unwrap()).unwrap();
        let session = Session::new(g.build().unwrap(), engine).unwrap();
        let starts = [0, 1].map(|side| self.starts(side));
        let of_starts = [starts[0].len() as i64];
        let dims = |heads: i64, tokens: usize| [1, heads, tokens as i64, DEPTH as i64];
        let (of_queries, of_keys) = (dims(heads, queries), dims(of_keys, keys));
        let of_heads = [heads, 1, 1];
        let paged = self.page.map(|page| {
            let heads = HEADS / self.groups;
            let caches = [&k, &v].map(|of| self.cache(page, of, heads));
            let pages = caches[0].len() / (heads * page * DEPTH);
            (caches, [pages as i64, heads as i64, page as i64, DEPTH as i64])
        });
        let [given_k, given_v] = match &paged {
            None => [(&k, &of_keys), (&v, &of_keys)],
            Some(([k, v], dims)) => [(k, dims), (v, dims)],
        };
        let table = self.table(self.page.unwrap_or(1));
        let of_table = [self.lengths.len() as i64, self.entries(self.page.unwrap_or(1)) as i64];
        let of_sequences: Vec<i32> = self.lengths.iter().map(|lengths| lengths[1] as i32).collect();
        let table_view = TensorView::new(&table, &of_table);
        let lengths_view = TensorView::new(&of_sequences, &of_table[..1]);
        let [q_view, k_view, v_view, slopes_view, sinks_view] = [
            (&q, &of_queries[..]),
            (given_k.0, given_k.1),
            (given_v.0, given_v.1),
            (&slopes, &of_heads),
            (&sinks, &of_heads),
        ]
        .map(|(numbers, dims)| TensorView::new(numbers, dims));
        let [starts_q, starts_kv] =
            [&starts[0], &starts[1]].map(|starts| TensorView::new(starts, &of_starts));
        let all: [(&str, &dyn AsDynView); 9] = [
            ("table", &table_view),
            ("lengths", &lengths_view),
            ("q", &q_view),
            ("k", &k_view),
            ("v", &v_view),
            ("slopes", &slopes_view),
            ("sinks", &sinks_view),
            ("starts_q", &starts_q),
            ("starts_kv", &starts_kv),
        ];
        let is_input = |name: &str| session.inputs().iter().any(|port| port.name() == name);
        let given: Vec<_> = all.into_iter().filter(|(name, _)| is_input(name)).collect();
        let outputs = session.run(&given).unwrap();
        let result = outputs.get("y").unwrap().as_slice::<f32>().unwrap();
        let expected = self.expected([&q, &k, &v], &slopes, &sinks);
        let wrong = result.iter().zip(&expected).position(|(&given, &expected)| {
            (f64::from(given) - expected).abs() > 2e-6 * expected.abs().max(1.0) || given.is_nan()
        });
        wrong.map(|at| format!("{self:?}: element {at} is {} for {}", result[at], expected[at]))
    }
}

#[test]
fn each_sequence_is_computed_alone() {
    let lengths: [&[[usize; 2]]; 8] = [
        &[[5, 5], [3, 3], [9, 9]],
        &[[70, 70], [1, 1], [130, 130], [64, 64]],
        &[[0, 4], [6, 0], [3, 200], [0, 0], [130, 5], [1, 1]],
        &[[300, 300]],
        &[[1, 300], [1, 77], [1, 1], [1, 500]],
        &[[1, 300], [2, 2500], [20, 77], [4, 90], [3, 600], [0, 50], [8, 130], [1, 64], [5, 2]],
        &[],
        &[[0, 0]],
    ];
    let mut cases = Vec::new();
    for lengths in lengths {
        for (at, causal) in [None, Some(Causal::TopLeft), Some(Causal::BottomRight)].into_iter().enumerate() {
            for window in [None, Some(1), Some(40)] {
                let plain = Case { causal: causal.clone(), window, ..Case::new(lengths) };
                cases.push(Case { margins: [at, 3 - at], ..plain.clone() });
                cases.push(Case { alibi: true, groups: 2, is_known: window.is_none(), ..plain.clone() });
                cases.push(Case { sinks: true, softcap: Some(3.0), groups: 4, ..plain });
            }
        }
    }
    let mut wrong = Vec::new();
    for engine in engines() {
        wrong.extend(cases.iter().enumerate().filter_map(|(seed, case)| case.fault(&engine, seed as u64)));
    }
    report(&wrong);
}

#[test]
fn packed_queries_see_the_pages_of_their_sequence() {
    let lengths: [&[[usize; 2]]; 5] = [
        &[[5, 5], [3, 30], [9, 9]],
        // Prompts, parts of prompts, tokens that are guessed, and tokens.
        &[[70, 70], [1, 300], [30, 200], [4, 90], [0, 50], [1, 1], [3, 0], [8, 2500], [1, 77]],
        &[[1, 300], [1, 77], [1, 1], [1, 500]],
        &[[20, 33]],
        &[],
    ];
    let mut cases = Vec::new();
    for lengths in lengths {
        for (at, causal) in [None, Some(Causal::TopLeft), Some(Causal::BottomRight)].into_iter().enumerate() {
            for (page, window) in [(16, None), (7, Some(40)), (1, Some(1)), (64, None)] {
                let plain = Case { causal: causal.clone(), window, page: Some(page), ..Case::new(lengths) };
                let margins = [at, 3 - at];
                cases.push(Case { margins, alibi: true, groups: 2, is_known: page != 7, ..plain.clone() });
                cases.push(Case { sinks: true, softcap: Some(3.0), groups: 4, ..plain });
            }
        }
    }
    let mut wrong = Vec::new();
    for engine in engines() {
        wrong.extend(cases.iter().enumerate().filter_map(|(seed, case)| case.fault(&engine, seed as u64)));
    }
    report(&wrong);
}

/// The option takes blocks that begin with sequences, in both forms, and reads the pages where they lie.
#[test]
fn packed_queries_copy_no_pages() {
    for (of_keys, t) in [(1, DataType::F32), (2, DataType::Bf16), (4, DataType::F16)] {
        read_pages(of_keys, t);
    }
}

fn read_pages(of_keys: i64, t: DataType) {
    let tensor = |id, t, dims: &[i64]| LogicalTensor::strided(id, t, dims).unwrap();
    let of_tokens = |id| tensor(id, t, &[1, 4, 100, 16]);
    let cache = |id| tensor(id, t, &[50, of_keys, 16, 16]);
    let attention = Attention::new(of_tokens(0), cache(1), cache(2), of_tokens(3))
        .packed_queries(tensor(6, DataType::S32, &[9]))
        .paged(tensor(4, DataType::S32, &[8, 12]), tensor(5, DataType::S32, &[8]))
        .causal(Causal::BottomRight)
        .groups(4 / of_keys);
    let mut graph = Graph::new();
    graph.attention(&attention).unwrap();
    graph.finalize().unwrap();
    let partitions = graph.partitions(Policy::Fusion).unwrap();
    let is_load = |partition: &&Partition| partition.ops().iter().any(|op| op.kind() == OpKind::PagedLoad);
    let of_attention: Vec<_> = partitions.iter().filter(is_load).collect();
    assert_eq!(of_attention.len(), 1);
    // Other partitions make the ranges of keys, a column each.
    let given = |port: &LogicalTensor| match port.dims() {
        Some(_) => port.clone(),
        None => tensor(port.id().get(), DataType::S32, &[100, 1]),
    };
    let inputs: Vec<LogicalTensor> = of_attention[0].inputs().iter().map(given).collect();
    let compiled = of_attention[0].compile_for(&Engine::new(), &inputs, of_attention[0].outputs());
    let plan = compiled.unwrap().plan();
    let kinds: Vec<_> = plan.nests.iter().map(|nest| nest.kind).collect();
    assert_eq!(
        kinds,
        [PhaseKind::Classify, PhaseKind::Attention, PhaseKind::Attention],
        "{:?}",
        plan.fallbacks
    );
    let is_copied = |form| plan.fallbacks.iter().any(|fallback| fallback.form == form);
    assert!(!is_copied(FastForm::PagedCache) && !is_copied(FastForm::Ragged), "{:?}", plan.fallbacks);
}

#[test]
fn ten_thousand_sequences_are_one_graph() {
    let lengths: Vec<[usize; 2]> = (0..10_000).map(|at| [at % 3, at * 7 % 5]).collect();
    let case = Case { causal: Some(Causal::BottomRight), ..Case::new(&lengths) };
    report(&case.fault(&Engine::new(), 1).into_iter().collect::<Vec<_>>());
}

/// The gradients of queries, keys and values of [heads, tokens, depth], in one vector.
fn gradients(
    options: impl FnOnce(Attention) -> Attention,
    tokens: i64,
    given: &[(&str, &dyn AsDynView)],
) -> Vec<f32> {
    let dims = [HEADS as i64, tokens, DEPTH as i64];
    let tensor = |id| LogicalTensor::strided(id, DataType::F32, &dims).unwrap();
    let forward = options(Attention::new(tensor(0), tensor(1), tensor(2), tensor(3)));
    let backward = AttentionBackward::new(forward, tensor(4)).d_q(tensor(5)).d_k(tensor(6)).d_v(tensor(7));
    let mut graph = Graph::new();
    graph.attention_backward(&backward.clone()).unwrap();
    let session = Session::new(Model::new(graph).unwrap(), &Engine::new()).unwrap();
    let named = |id: &str| given.iter().find(|(name, _)| *name == id).copied();
    let inputs: Vec<(&str, &dyn AsDynView)> =
        session.inputs().iter().map(|port| (port.name(), named(port.name()).unwrap().1)).collect();
    let outputs = session.run(&inputs).unwrap();
    let mut by_id: Vec<_> = outputs.iter().collect();
    by_id.sort_by_key(|(_, tensor)| tensor.desc().id());
    by_id.into_iter().flat_map(|(_, tensor)| tensor.as_slice::<f32>().unwrap().to_vec()).collect()
}

#[test]
fn gradients_are_those_of_each_sequence() {
    let lengths = [70usize, 1, 0, 130, 9];
    let starts: Vec<i32> =
        (0..=lengths.len()).map(|end| lengths[..end].iter().sum::<usize>() as i32).collect();
    let tokens = lengths.iter().sum::<usize>();
    let mut random = Random::new(5);
    let of_all: [Vec<f32>; 4] = std::array::from_fn(|_| {
        (0..HEADS * tokens * DEPTH).map(|_| random.below(4001) as f32 / 1000.0 - 2.0).collect()
    });
    let names = ["0", "1", "2", "4"];
    let run = |of: &[Vec<f32>; 4], tokens: usize, starts: Option<&[i32]>| {
        let dims = [HEADS as i64, tokens as i64, DEPTH as i64];
        let views = of.each_ref().map(|numbers| TensorView::new(numbers, &dims));
        let of_starts = starts.map(|starts| [starts.len() as i64]);
        let starts = starts.zip(of_starts.as_ref()).map(|(starts, dims)| TensorView::new(starts, dims));
        let mut given: Vec<(&str, &dyn AsDynView)> =
            names.iter().zip(&views).map(|(name, view)| (*name, view as &dyn AsDynView)).collect();
        given.extend(starts.iter().flat_map(|view| ["8", "9"].map(|name| (name, view as &dyn AsDynView))));
        let tensor = |id| LogicalTensor::strided(id, DataType::S32, &of_starts.unwrap()).unwrap();
        let options = |attention: Attention| match of_starts {
            Some(_) => attention.packed(tensor(8), tensor(9)).causal(Causal::TopLeft),
            None => attention.causal(Causal::TopLeft),
        };
        gradients(options, tokens as i64, &given)
    };
    let packed = run(&of_all, tokens, Some(&starts));
    let mut wrong = Vec::new();
    for (number, &length) in lengths.iter().enumerate().filter(|(_, length)| **length > 0) {
        let first = starts[number] as usize;
        let part = |of: &[f32], head: usize| of[(head * tokens + first) * DEPTH..][..length * DEPTH].to_vec();
        let alone = run(
            &of_all.each_ref().map(|of| (0..HEADS).flat_map(|head| part(of, head)).collect()),
            length,
            None,
        );
        let whole = HEADS * tokens * DEPTH;
        let expected: Vec<f32> = (0..3)
            .flat_map(|gradient| (0..HEADS).map(move |head| (gradient, head)))
            .flat_map(|(gradient, head)| part(&packed[gradient * whole..][..whole], head))
            .collect();
        let far = expected.iter().zip(&alone).filter(|(packed, alone)| (*packed - *alone).abs() > 1e-5);
        if let Some((packed, alone)) = far.max_by(|a, b| (a.0 - a.1).abs().total_cmp(&(b.0 - b.1).abs())) {
            wrong.push(format!("sequence {number}: {packed} for {alone}"));
        }
    }
    report(&wrong);
}

#[test]
fn what_does_not_do_is_refused() {
    let tokens = |id| LogicalTensor::strided(id, DataType::F32, &[2, 9, 8]).unwrap();
    let places = |id, t, dims: &[i64]| LogicalTensor::strided(id, t, dims).unwrap();
    let good = places(4, DataType::S32, &[3]);
    let plain = || Attention::new(tokens(0), tokens(1), tokens(2), tokens(3));
    let rows = [
        (plain().packed(places(4, DataType::S64, &[3]), good.clone()), "are s32"),
        (plain().packed(good.clone(), places(5, DataType::S32, &[1, 3])), "rank 1"),
        (plain().packed(good.clone(), places(5, DataType::S32, &[0])), "one behind the last"),
        (
            plain().packed(good.clone(), good.clone()).causal(Causal::Offset(places(6, DataType::S32, &[]))),
            "at their starts or at their ends",
        ),
        (plain().packed_queries(good.clone()), "if keys lie in pages"),
        (plain().alibi(places(6, DataType::F16, &[2, 1, 1])), "slopes are f32"),
    ];
    let wrong = faults_of_refusals(rows);
    report(&wrong);
}

#[test]
fn a_start_out_of_range_is_an_error_of_the_run() {
    let g = GraphBuilder::new();
    let of_tokens = |name| g.input(name, DataType::F32, &[Some(2), Some(9), Some(8)]).unwrap();
    let (q, k, v) = (of_tokens("q"), of_tokens("k"), of_tokens("v"));
    let places = g.input("starts", DataType::S32, &[Some(3)]).unwrap().desc();
    let y = g.attention(q, k, v, |attention| attention.packed(places.clone(), places)).unwrap();
    g.output("y", y).unwrap();
    let session = Session::new(g.build().unwrap(), &Engine::new()).unwrap();
    let numbers = [0.5f32; 2 * 9 * 8];
    let view = TensorView::new(&numbers, &[2, 9, 8]);
    let run = |starts: [i32; 3]| {
        let starts = TensorView::new(&starts, &[3]);
        session.run(&[("q", &view), ("k", &view), ("v", &view), ("starts", &starts)]).map(drop)
    };
    assert!(run([0, 4, 9]).is_ok());
    let error = run([0, 4, 12]).unwrap_err();
    assert_eq!(error.status(), Status::InvalidArguments);
    assert!(error.to_string().contains("12"), "{error}");
}
