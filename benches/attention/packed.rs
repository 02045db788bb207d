//! Packed sequences beside the same sequences one by one: each in an execution of its own, on tensors of its
//! own.

use std::collections::BTreeMap;

use sterna::{Attention, Causal, DataType, Engine, Graph, LogicalTensor, TensorBuf};

use super::SAMPLE_SECONDS;
use super::masks::mixed;
use super::steps::Steps;

const DEPTH: usize = 64;
const STARTS: usize = 8;

/// Sequences that follow each other.
#[derive(Clone)]
pub(super) struct PackedRow {
    pub(super) name: String,
    data_type: DataType,
    heads: usize,
    /// Heads that share keys and values.
    groups: usize,
    /// Queries and keys of each sequence.
    lengths: Vec<[usize; 2]>,
    causal: Option<Causal>,
    window: Option<i64>,
    /// Rows of a page, if the keys that are packed lie in the pages of a cache.
    page: Option<usize>,
    /// The type of keys and values, if they have a scale for each token of a head.
    stored: Option<DataType>,
}

impl PackedRow {
    pub(super) fn all() -> Vec<Self> {
        let mut rows = Vec::new();
        let same = |count: usize, of: [usize; 2]| vec![of; count];
        // As in batches of chat: lengths spread over powers of two.
        let mixture = |count: usize, least: u32, most: u32| -> Vec<[usize; 2]> {
            let length = |at: usize| {
                let random = mixed(at as u64) >> 40;
                let power = least + (random % u64::from(most - least)) as u32;
                (1usize << power) + (random >> 8) as usize % (1 << power)
            };
            (0..count).map(|at| [length(at); 2]).collect()
        };
        let cases: Vec<(&str, Vec<[usize; 2]>)> = vec![
            ("16 of 512", same(16, [512; 2])),
            ("40 of 64 to 511", mixture(40, 6, 9)),
            ("100 of 8 to 255", mixture(100, 3, 8)),
            ("100 of 77", same(100, [77; 2])),
            ("500 of 16", same(500, [16; 2])),
            ("2000 of 1", same(2000, [1; 2])),
            ("64 of 1 on 512", same(64, [1, 512])),
            ("32 of 1 on 2048", same(32, [1, 2048])),
            ("32 of 4 on 1024", same(32, [4, 1024])),
            ("64 of 4 on 77", same(64, [4, 77])),
            ("4 of 512 and 60 of 1 on 1000", [vec![[512; 2]; 4], vec![[1, 1000]; 60]].concat()),
            ("10000 of 1 to 31", mixture(10_000, 0, 5)),
        ];
        for data_type in [DataType::F32, DataType::Bf16] {
            for (form, causal, window) in [
                ("causal", Some(Causal::BottomRight), None),
                ("full", None, None),
                ("window 128", Some(Causal::BottomRight), Some(128)),
            ] {
                for (name, lengths) in &cases {
                    for groups in [1, 4] {
                        let of_groups = if groups > 1 { ", heads share keys" } else { "" };
                        let name = format!("{data_type} packed {name}, {form}{of_groups}");
                        let (lengths, causal) = (lengths.clone(), causal.clone());
                        let (page, stored) = (None, None);
                        rows.push(Self {
                            name,
                            data_type,
                            heads: 8,
                            groups,
                            lengths,
                            causal,
                            window,
                            page,
                            stored,
                        });
                    }
                }
            }
        }
        let paged: Vec<Self> = (rows.iter())
            .filter(|row| row.causal.is_some() && row.window.is_none())
            .map(|row| Self { name: format!("{}, pages of 16", row.name), page: Some(16), ..row.clone() })
            .collect();
        let few_bits = ["64 of 1 on 512", "32 of 4 on 1024", "4 of 512 and 60 of 1 on 1000"];
        let stored: Vec<Self> = (paged.iter())
            .filter(|row| row.groups > 1 && row.data_type == DataType::F32)
            .filter(|row| few_bits.iter().any(|name| row.name.contains(name)))
            .flat_map(|row| [(row, DataType::S8), (row, DataType::U4)])
            .map(|(row, of)| Self { name: format!("{}, {of}", row.name), stored: Some(of), ..row.clone() })
            .collect();
        rows.extend(paged);
        rows.extend(stored);
        rows
    }

    /// Attention of so many queries and keys, compiled; `of_all` has the sequences among them.
    fn steps(&self, [queries, keys]: [usize; 2], of_all: bool, engine: &Engine) -> Steps {
        let tensor = |id, of: DataType, dims: [usize; 4]| {
            let dims = dims.map(|dim| dim as i64);
            LogicalTensor::strided(id, of, &dims).expect("the dims are small")
        };
        let desc = |id, heads: usize, tokens: usize| tensor(id, self.data_type, [1, heads, tokens, DEPTH]);
        let of_keys = self.heads / self.groups;
        let page = self.page.filter(|_| of_all);
        let cache = |id, of: DataType, columns: usize| match page {
            None => tensor(id, of, [1, of_keys, keys, columns]),
            Some(page) => tensor(id, of, [self.table(page).len(), of_keys, page, columns]),
        };
        let of_tokens = self.stored.unwrap_or(self.data_type);
        let [k, v] = [1, 2].map(|id| cache(id, of_tokens, DEPTH));
        let scales: Vec<LogicalTensor> =
            self.stored.iter().flat_map(|_| [4, 5].map(|id| cache(id, self.data_type, 1))).collect();
        let q = desc(0, self.heads, queries);
        let mut tensors = BTreeMap::new();
        for desc in [&q, &k, &v].into_iter().chain(&scales) {
            let mut tensor = TensorBuf::zeroed(desc.clone(), engine).expect("there is memory");
            super::fill(&mut tensor, None, None);
            tensors.insert(desc.id().get(), tensor);
        }
        let mut attention = Attention::new(q, k, v, desc(3, self.heads, queries))
            .causal(self.causal.clone())
            .window(self.window)
            .groups((self.groups > 1).then_some(self.groups as i64));
        if let [of_keys, of_values] = &scales[..] {
            attention =
                attention.quantized_keys(of_keys.clone(), None).quantized_values(of_values.clone(), None);
        }
        let mut numbers = |id: usize, dims: &[usize], numbers: &[i32]| {
            let dims: Vec<i64> = dims.iter().map(|&dim| dim as i64).collect();
            let desc = LogicalTensor::strided(id, DataType::S32, &dims).expect("the dims are small");
            let mut tensor = TensorBuf::zeroed(desc.clone(), engine).expect("there is memory");
            for (element, number) in tensor.as_mut_bytes().chunks_exact_mut(4).zip(numbers) {
                element.copy_from_slice(&number.to_ne_bytes());
            }
            tensors.insert(id, tensor);
            desc
        };
        if of_all {
            let count = self.lengths.len();
            let queries = numbers(STARTS, &[count + 1], &self.starts(0));
            attention = match page {
                None => attention.packed(queries, numbers(STARTS + 1, &[count + 1], &self.starts(1))),
                Some(page) => {
                    let table = self.table(page);
                    let lengths: Vec<i32> = self.lengths.iter().map(|of| of[1] as i32).collect();
                    let table = numbers(STARTS + 1, &[count, table.len() / count], &table);
                    attention.packed_queries(queries).paged(table, numbers(STARTS + 2, &[count], &lengths))
                }
            };
        }
        let mut graph = Graph::new();
        graph.attention(&attention).expect("the options fit each other");
        graph.finalize().expect("the graph is whole");
        Steps::new(&graph, engine, &self.name, tensors)
    }

    /// The pages of each sequence, in no order.
    fn table(&self, page: usize) -> Vec<i32> {
        let most = self.lengths.iter().map(|of| of[1].div_ceil(page)).max().unwrap_or(0);
        let mut pages: Vec<i32> = (0..(self.lengths.len() * most) as i32).collect();
        pages.sort_by_key(|&page| mixed(page as u64));
        pages
    }

    /// The numbers of tokens in front of each sequence and of all.
    fn starts(&self, side: usize) -> Vec<i32> {
        let ends = self.lengths.iter().scan(0, |at, lengths| {
            *at += lengths[side] as i32;
            Some(*at)
        });
        [0].into_iter().chain(ends).collect()
    }

    /// Milliseconds packed and one by one, the least of runs by turns, and the number of partitions.
    pub(super) fn measure(&self, engine: &Engine, rounds: usize) -> (f64, f64, usize) {
        let tokens = [0, 1].map(|side| self.lengths.iter().map(|lengths| lengths[side]).sum::<usize>());
        let mut packed = self.steps(tokens, true, engine);
        // Each has tensors of its own, so that the caches hold as much of them as of those that are packed.
        let of_lengths = |&lengths| self.steps(lengths, false, engine);
        let mut alone: Vec<Steps> = self.lengths.iter().map(of_lengths).collect();
        let mut best = [f64::MAX; 2];
        for _ in 0..rounds {
            best[0] = best[0].min(seconds(|| packed.execute()));
            best[1] = best[1].min(seconds(|| alone.iter_mut().for_each(Steps::execute)));
        }
        (1e3 * best[0], 1e3 * best[1], packed.count())
    }
}

/// Seconds of one run, of as many as a sample takes.
fn seconds(mut run: impl FnMut()) -> f64 {
    let mut sample = |runs: usize| {
        let start = std::time::Instant::now();
        (0..runs).for_each(|_| run());
        start.elapsed().as_secs_f64() / runs as f64
    };
    let once = sample(1);
    sample(((SAMPLE_SECONDS / once.max(1e-9)).ceil() as usize).clamp(1, 1000)).min(once)
}
