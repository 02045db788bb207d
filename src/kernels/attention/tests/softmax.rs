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
