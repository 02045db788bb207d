//! How long it takes to read a graph and to partition it, over forms and sizes of graphs, as a Markdown
//! table.
//!
//! `cargo bench --features json --bench partition -- [FILTER ...]` prints a row for each form whose name
//! contains a filter: the fastest of three runs at each size, reading of graph JSON and partitioning apart,
//! and the slope of the sum, by which power of the number of ops the time grows (least squares over the
//! logarithms).
//!
//! Run as a test, it only checks that partitions cover small graphs of all forms.

use std::error::Error;
use std::time::Instant;

use sterna::{DataType, Graph, LogicalTensor, Op, OpKind, Policy};

use OpKind::{Abs, Add, Maximum, SoftMax};

/// An op: its kind, and the ops whose results it takes; `INPUT` stands for an input of the graph.
type Node = (OpKind, Vec<usize>);

const INPUT: usize = usize::MAX;

/// The forms by name, each as what stands at a place among so many ops. SoftMax is of no fusion.
type At = fn(usize, usize, &mut Random) -> Node;

static FORMS: &[(&str, At)] = &[
    ("a chain", |at, _, _| (Abs, vec![at.wrapping_sub(1)])),
    ("a fan", |at, _, _| (Abs, vec![if at == 0 { INPUT } else { 0 }])),
    ("a hub of refused consumers", |at, count, _| match at {
        0 => (Abs, vec![INPUT]),
        at if at < count / 2 => (SoftMax, vec![0]),
        at => (Add, vec![0, 1 + (at - count / 2) % (count / 2 - 1)]),
    }),
    ("a hub between pairs", |at, count, _| match at {
        0 => (SoftMax, vec![INPUT]),
        at if at < count / 2 => (Abs, vec![INPUT]),
        at => (Add, vec![0, 1 + (at - count / 2) % (count / 2 - 1)]),
    }),
    ("a recurrence over halves", |at, _, _| match at {
        0 => (Abs, vec![INPUT]),
        at => (Add, vec![at - 1, at / 2]),
    }),
    ("one wide group", |at, count, _| match at {
        0 => (Abs, vec![INPUT]),
        at if at == count - 1 => (Add, vec![0, INPUT]),
        at if at % 3 == 1 => (SoftMax, vec![INPUT]),
        at => (Abs, vec![at - 1]),
    }),
    ("many wide groups", |at, count, _| match at {
        at if at >= count / 2 => (Add, vec![(at - count / 2) / 2 * 2, INPUT]),
        at if at % 2 == 0 => (Abs, vec![INPUT]),
        at => (SoftMax, vec![at - 1]),
    }),
    ("a tree of sums", |at, count, _| match at {
        at if at < count / 2 || at == count - 1 => (Abs, vec![INPUT]),
        at => (Add, vec![2 * (at - count / 2), 2 * (at - count / 2) + 1]),
    }),
    ("random, from anywhere", |at, count, random| random.node(at, count)),
    ("random, from the last 40", |at, _, random| random.node(at, 40)),
    ("random, from the last 1,000", |at, _, random| random.node(at, 1_000)),
];

const SIZES: [usize; 4] = [12_500, 25_000, 50_000, 100_000];

/// Numbers that are the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }

    /// An op on results of the last so many; one in four is a SoftMax.
    fn node(&mut self, at: usize, reach: usize) -> Node {
        let mut pick = || match at {
            0 => INPUT,
            at => at - 1 - self.below(reach.min(at)),
        };
        let (a, b) = (pick(), pick());
        match self.below(8) {
            0 | 1 => (SoftMax, vec![a]),
            2..5 => (Add, vec![a, b]),
            5 => (Maximum, vec![a, b]),
            _ => (Abs, vec![a]),
        }
    }
}

fn json(form: At, count: usize) -> Result<String, Box<dyn Error>> {
    let mut random = Random(1);
    let tensor = |id| LogicalTensor::strided(id, DataType::F32, &[16, 64]);
    let mut graph = Graph::new();
    for at in 0..count {
        let (kind, inputs) = form(at, count, &mut random);
        let mut op = Op::new(at, kind).output(tensor(at)?);
        for input in inputs {
            op = op.input(tensor(if input == INPUT { count + at } else { input })?);
        }
        graph.add_op(op)?;
    }
    Ok(graph.to_json())
}

/// Seconds of reading and of partitioning.
fn time(text: &str, count: usize) -> Result<[f64; 2], Box<dyn Error>> {
    let start = Instant::now();
    let mut graph = Graph::from_json(text)?;
    graph.finalize()?;
    let read = start.elapsed().as_secs_f64();
    let partitions = graph.partitions(Policy::Fusion)?;
    let total = start.elapsed().as_secs_f64();
    let covered: usize = partitions.iter().map(|partition| partition.ops().len()).sum();
    if covered != count {
        return Err(format!("{covered} of {count} ops are in partitions").into());
    }
    Ok([read, total - read])
}

/// The slope of the line through points that lies nearest to them.
fn slope(points: &[(f64, f64)]) -> f64 {
    let count = points.len() as f64;
    let [x, y] =
        [points.iter().map(|p| p.0).sum::<f64>() / count, points.iter().map(|p| p.1).sum::<f64>() / count];
    let products: f64 = points.iter().map(|p| (p.0 - x) * (p.1 - y)).sum();
    products / points.iter().map(|p| (p.0 - x).powi(2)).sum::<f64>()
}

fn main() -> Result<(), Box<dyn Error>> {
    let (options, filters): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|arg| arg.starts_with('-'));
    let forms = FORMS.iter().filter(|(name, _)| {
        filters.is_empty() || filters.iter().any(|filter| name.contains(filter.as_str()))
    });
    if !options.iter().any(|option| option == "--bench") {
        return forms.into_iter().try_for_each(|(name, form)| {
            time(&json(*form, 200)?, 200).map_err(|error| format!("{name}: {error}"))?;
            Ok(())
        });
    }
    let sizes = SIZES.map(|size| format!("{size} ops, ms")).join(" | ");
    println!("| form | {sizes} | slope |\n|---|{}---|", "---|".repeat(SIZES.len()));
    for (name, form) in forms {
        let (mut cells, mut points) = (Vec::new(), Vec::new());
        for count in SIZES {
            let text = json(*form, count)?;
            let mut fastest = [f64::MAX; 2];
            for _ in 0..3 {
                let seconds = time(&text, count)?;
                if seconds.iter().sum::<f64>() < fastest.iter().sum() {
                    fastest = seconds;
                }
            }
            let [read, partitioned] = fastest;
            cells.push(format!("{:.0} + {:.0}", read * 1e3, partitioned * 1e3));
            points.push(((count as f64).ln(), (read + partitioned).ln()));
        }
        println!("| {name} | {} | {:.2} |", cells.join(" | "), slope(&points));
    }
    Ok(())
}
