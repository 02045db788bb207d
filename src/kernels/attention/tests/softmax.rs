//! Both forms of SoftMax against f64.

use super::*;

/// Keys of three tiles.
const KEYS: usize = 150;

/// SoftMax of the scores of one query, in f64.
struct ExactSoftmax {
    scores: Vec<f32>,
    max: f32,
    sum: f64,
    has_nan: bool,
    /// The result of a query without keys.
    of_none: f64,
}

impl ExactSoftmax {
    fn new(scores: Vec<f32>, inf_as_zero: bool) -> Self {
        let max = scores.iter().copied().fold(-INF, f32::max);
        let has_nan = scores.iter().any(|x| x.is_nan() || *x == INF);
        let sum = scores.iter().map(|&x| exp(distance(x, max))).sum();
        Self { scores, max, sum, has_nan, of_none: if inf_as_zero { 0.0 } else { f64::NAN } }
    }

    fn or_special(&self, number: f64) -> f64 {
        match (self.has_nan, self.sum == 0.0) {
            (true, _) => f64::NAN,
            (_, true) => self.of_none,
            _ => number,
        }
    }

    /// ln Σ exp.
    fn statistic(&self) -> f64 {
        self.or_special(f64::from(self.max) + self.sum.ln())
    }

    /// The distance of a key's score from the maximum, and its weight.
    fn weight(&self, key: usize) -> (f64, f64) {
        let distance = distance(self.scores[key], self.max);
        (distance, self.or_special(exp(distance) / self.sum))
    }
}

/// The weights in tiles, and the statistics, as kernels compute them in one of the two forms.
fn softmax(
    kernels: &AttentionKernels,
    scores: Scores,
    queries: usize,
    inf_as_zero: bool,
    is_online: bool,
) -> (Vec<Rows>, Vec<f32>) {
    let mut state = SoftmaxState::new();
    let tile = |key: usize| Rows::new(64.min(KEYS - key), queries, |row, query| scores(key + row, query));
    let mut results: Vec<Rows> = (0..KEYS).step_by(64).map(tile).collect();
    let mut stats = vec![0f32; queries];
    // SAFETY: all rows are tiles, there is a statistic for each query, and the machine runs the level.
    unsafe {
        match is_online {
            true => {
                for tile in 0..results.len() {
                    if kernels.accumulate(results[tile].tile(), &mut state) {
                        for earlier in &mut results[..tile] {
                            let rows = earlier.rows;
                            kernels.rescale(earlier.data.as_mut_ptr(), rows, queries, &state.factor);
                        }
                    }
                }
            }
            false => {
                results.iter_mut().for_each(|rows| kernels.maxima(rows.tile(), &mut state));
                results.iter_mut().for_each(|rows| kernels.exponentials(rows.tile(), &mut state));
            }
        }
        for rows in &mut results {
            kernels.divide(rows.data.as_mut_ptr(), rows.rows, queries, &state, inf_as_zero);
        }
        kernels.stats(queries, &state, inf_as_zero, stats.as_mut_ptr());
    }
    (results, stats)
}

/// Maxima, exponentials, division and statistics over several tiles are SoftMax in f64, and so is the online
/// form, whose exponentials count with the factors that follow.
#[test]
fn both_forms_are_softmax() {
    let mut wrong = Vec::new();
    for (level, &(pattern, scores)) in levels_and(PATTERNS) {
        let kernels = AttentionKernels::new(level);
        for (queries, inf_as_zero, is_online) in
            [1, 17, 64].into_iter().flat_map(|q| [(q, false, false), (q, true, false), (q, true, true)])
        {
            let (results, stats) = softmax(&kernels, scores, queries, inf_as_zero, is_online);
            let mut fail = |fault: String, query: usize| {
                wrong.push(format!(
                    "{level:?} {pattern} {queries} {inf_as_zero} {is_online}: {fault} of {query}"
                ));
            };
            for (query, &stat) in stats.iter().enumerate() {
                let exact = ExactSoftmax::new((0..KEYS).map(|key| scores(key, query)).collect(), inf_as_zero);
                let statistic = exact.statistic();
                // An error of ln(sum) stays where the statistic itself vanishes.
                let is_statistic =
                    is_near(stat, statistic, 1e-6) || (f64::from(stat) - statistic).abs() <= 2e-5;
                if !is_statistic {
                    fail(format!("statistic {stat} for {statistic}"), query);
                }
                for key in 0..KEYS {
                    let (distance, expected) = exact.weight(key);
                    let y = results[key / 64].at(key % 64, query);
                    // The distance is passed in up to three parts, each as long as it at most.
                    let error = 3.0 * exp_error(distance) + 32.0 * f64::from(f32::EPSILON);
                    let has_bits = !y.is_nan() || y.to_bits() == NAN.to_bits();
                    // One is so far below the largest that the online form leaves it out.
                    let least = if is_online { 1.7e-38 } else { 3e-45 };
                    if !is_near(y, expected, error) && (f64::from(y) - expected).abs() > least || !has_bits {
                        fail(format!("{y} for {expected} at key {key}"), query);
                    }
                }
            }
            if !results.iter().all(Rows::is_poison_whole) {
                fail("poison".to_owned(), queries);
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong: {:#?}", wrong.len(), &wrong[..wrong.len().min(10)]);
}

/// The online form in pairs of bf16, for a factor on all scores: the weights as far as these are rounded, and
/// the statistics. The factor may as well be applied before.
#[test]
fn pairs_are_softmax() {
    let has_pairs = CpuFeatures::available().contains(CpuFeature::Avx512Bf16);
    if Level::available() < Level::Avx512 || !has_pairs {
        return;
    }
    let kernels = AttentionKernels::new(Level::available());
    let mut wrong = Vec::new();
    for &(pattern, scores) in PATTERNS {
        for (queries, factor) in [(1, 1.0f32), (17, 0.3), (32, 0.125), (50, 1.0), (64, 0.3), (64, 1.0)] {
            let mut states = [SoftmaxState::new(); 2];
            let mut results: Vec<Rows> = Vec::new();
            for first in (0..KEYS).step_by(64) {
                let mut tile =
                    Rows::new(64.min(KEYS - first), queries, |row, query| scores(first + row, query));
                let mut panels = [[0u32; QUERIES * 32]; 2];
                // SAFETY: the rows are a tile, the panels have room for its pairs, and the machine has them.
                let changes = unsafe {
                    let to = panels.each_mut().map(|panel| panel.as_mut_ptr().cast());
                    let changes = kernels.accumulate_pairs(tile.tile(), factor, to[0], &mut states[0]);
                    kernels.rescale(tile.data.as_mut_ptr(), tile.rows, queries, &[factor; QUERIES]);
                    kernels.accumulate_pairs(tile.tile(), 1.0, to[1], &mut states[1]);
                    changes
                };
                let bits = |state: &SoftmaxState| {
                    [state.max, state.sum, state.factor].map(|of| of.map(f32::to_bits))
                };
                if panels[0] != panels[1] || bits(&states[0]) != bits(&states[1]) {
                    wrong.push(format!("{pattern} {queries} {factor}: bits"));
                }
                let factors = states[0].factor;
                for (at, x) in
                    results.iter_mut().filter(|_| changes).flat_map(|rows| rows.data.iter_mut().enumerate())
                {
                    *x *= factors[at % QUERIES];
                }
                results.push(Rows::new(tile.rows, queries, |row, query| {
                    let pair = panels[0][row / 2 * QUERIES + query];
                    f32::from_bits(if row % 2 == 0 { pair << 16 } else { pair & 0xffff_0000 })
                }));
            }
            for query in 0..queries {
                let exact =
                    ExactSoftmax::new((0..KEYS).map(|key| scores(key, query) * factor).collect(), true);
                let [max, sum] = [states[0].max, states[0].sum].map(|of| of[query]);
                let (stat, statistic) = (super::results::statistic(max, sum, true), exact.statistic());
                if !is_near(stat, statistic, 1e-6) && (f64::from(stat) - statistic).abs() > 2e-5 {
                    wrong.push(format!("{pattern} {queries} {factor}: {stat} for {statistic} of {query}"));
                }
                for key in 0..KEYS {
                    let expected = exact.weight(key).1;
                    let weight = results[key / 64].at(key % 64, query);
                    let y = if sum == 0.0 { weight } else { weight / sum };
                    if !is_near(y, expected, 1.0 / 250.0) && (f64::from(y) - expected).abs() > 1.7e-38 {
                        wrong.push(format!(
                            "{pattern} {queries} {factor}: {y} for {expected} at {key} of {query}"
                        ));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong: {:#?}", wrong.len(), &wrong[..wrong.len().min(10)]);
}
