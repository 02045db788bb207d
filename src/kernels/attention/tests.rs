mod softmax;

use super::*;
use crate::kernels::floats::NAN;
use crate::types::features::CpuFeatures;
use crate::types::kind::CpuFeature;

const INF: f32 = f32::INFINITY;

/// The value of columns beyond the queries; no kernel may touch it.
const POISON: u32 = 0x7fa5_a5a5;

const ALL_QUERIES: [usize; 9] = [1, 3, 8, 15, 16, 17, 48, 63, 64];
const ALL_KEYS: [usize; 6] = [0, 1, 2, 3, 63, 64];

/// Rows of a tile whose last row ends with the last query.
struct Rows {
    data: Vec<f32>,
    rows: usize,
    queries: usize,
}

impl Rows {
    fn new(rows: usize, queries: usize, of: impl Fn(usize, usize) -> f32) -> Self {
        let len = (rows * QUERIES).saturating_sub(QUERIES - queries);
        let of = |i: usize| match i % QUERIES < queries {
            true => of(i / QUERIES, i % QUERIES),
            false => f32::from_bits(POISON),
        };
        Self { data: (0..len).map(of).collect(), rows, queries }
    }

    fn at(&self, row: usize, query: usize) -> f32 {
        self.data[row * QUERIES + query]
    }

    fn tile(&mut self) -> ScoreTile {
        ScoreTile { at: self.data.as_mut_ptr(), keys: self.rows, queries: self.queries }
    }

    fn is_poison_whole(&self) -> bool {
        let is_beyond = |&(i, _): &(usize, &f32)| i % QUERIES >= self.queries;
        self.data.iter().enumerate().filter(is_beyond).all(|(_, x)| x.to_bits() == POISON)
    }

    fn bits(&self, row: usize, query: usize) -> u32 {
        self.at(row, query).to_bits()
    }
}

/// A number from −1 to 1 that looks random.
fn noise(seed: usize) -> f32 {
    let x = (seed as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    ((x >> 40) as f32 / (1 << 23) as f32) - 1.0
}

/// Scores by number of the key and of the query.
type Scores = fn(usize, usize) -> f32;

const PATTERNS: &[(&str, Scores)] = &[
    ("ordinary", |key, query| 4.0 * noise(key * 67 + query)),
    ("wide", |key, query| 120.0 * noise(key * 67 + query)),
    ("equal", |_, _| 3.25),
    ("all masked", |_, _| -INF),
    ("late keys only", |key, query| if key < 70 + query { -INF } else { noise(key * 67 + query) }),
    ("early keys only", |key, query| if key > 5 + query { -INF } else { noise(key * 67 + query) }),
    ("some queries without keys", |key, query| if query % 3 == 0 { -INF } else { noise(key + query) }),
    ("filled with -1e4", |key, query| if (key + query) % 3 == 0 { noise(key) } else { -1e4 }),
    ("filled with the lowest", |key, query| if (key + query) % 90 > 70 { noise(key) } else { f32::MIN }),
    ("the lowest only", |_, _| f32::MIN),
    ("huge of both signs", |key, query| noise(key * 67 + query) * f32::MAX),
    ("NaN in some queries", |key, query| if query % 5 == 0 && key == 9 { NAN } else { noise(key + query) }),
    ("NaN before the rest", |key, query| match (key, query % 2) {
        (0, 0) => NAN,
        (1..65, _) => -INF,
        _ => noise(key + query),
    }),
    ("infinite in some queries", |key, query| match (query % 4, key % 75) {
        (1, 20) => INF,
        (2, 74) => INF,
        _ => noise(key + query),
    }),
    ("grows slowly", |key, query| (key / 64) as f32 * 1.5 + noise(key + query) * 0.1),
    ("grows in steps", |key, query| (key / 40) as f32 * query as f32 + noise(key + query)),
    ("falls", |key, query| -(key as f32) * query as f32 * 0.25),
];

/// The relative error that an exponential of a distance may have: that of the function, and two roundings of
/// the distance.
fn exp_error(distance: f64) -> f64 {
    (1.5 + distance.abs()) * f64::from(f32::EPSILON)
}

fn is_near(x: f32, expected: f64, relative: f64) -> bool {
    // Half a step of subnormal numbers, which have no relative precision.
    let absolute = f64::from(f32::from_bits(1));
    (x.is_nan() && expected.is_nan())
        || f64::from(x) == expected
        || (f64::from(x) - expected).abs() <= expected.abs() * relative + absolute
}

/// As [`is_near`], where exponentials that would be subnormal, or nearly so, may be 0, and none is subnormal.
fn is_near_online(x: f32, expected: f64, relative: f64) -> bool {
    !x.is_subnormal() && (is_near(x, expected, relative) || x == 0.0 && (0.0..1.7e-38).contains(&expected))
}

/// A distance from a maximum as f32 has it: huge ones are infinite, and −∞ less −∞ is −∞.
fn distance(score: f32, max: f32) -> f64 {
    match (score, max) {
        (f32::NEG_INFINITY, f32::NEG_INFINITY) => f64::NEG_INFINITY,
        _ => f64::from(score) - f64::from(max),
    }
}

/// An exponential, with what is below half of the smallest number as 0.
fn exp(distance: f64) -> f64 {
    if distance <= -104.0 { 0.0 } else { distance.exp() }
}

#[test]
fn exponentials_are_accurate() {
    let mut wrong = Vec::new();
    for level in Level::all_available() {
        let kernels = AttentionKernels::new(level);
        let mut largest = 0f64;
        for part in 0..600 {
            let x = |key: usize, query: usize| -(((part * 64 + key) * 64 + query) as f32) / 22000.0;
            let mut rows = Rows::new(64, 64, x);
            let mut state = SoftmaxState::new();
            state.max = [0.0; QUERIES];
            // SAFETY: the rows are a tile, and the machine runs the level.
            unsafe { kernels.exponentials(rows.tile(), &mut state) };
            for (key, query) in (0..64).flat_map(|key| (0..64).map(move |query| (key, query))) {
                let (x, y) = (f64::from(x(key, query)), rows.at(key, query));
                // Near 0 the roundings of the distance do not count.
                if x > -0.5 {
                    largest = largest.max((f64::from(y) / x.exp() - 1.0).abs());
                }
                if !is_near(y, exp(x), exp_error(x)) {
                    wrong.push((level, x, y));
                }
            }
        }
        let mut rows = Rows::new(1, 6, |_, i| [0.0, -0.0, -104.0, -1e30, f32::MIN, -INF][i]);
        let mut state = SoftmaxState::new();
        state.max = [0.0; QUERIES];
        // SAFETY: as above.
        unsafe { kernels.exponentials(rows.tile(), &mut state) };
        assert_eq!(rows.data, [1.0, 1.0, 0.0, 0.0, 0.0, 0.0], "{level:?}");
        assert!(largest <= 1.25 * f64::from(f32::EPSILON), "{level:?}: {largest:e}");
    }
    assert!(wrong.is_empty(), "{} wrong: {:?}", wrong.len(), &wrong[..wrong.len().min(10)]);
}

/// Tile by tile: maxima, whether they change, factors, exponentials and sums are those of the rule in f64.
#[test]
fn accumulate_follows_its_rule() {
    const GROWTH: f32 = 8.0 * std::f32::consts::LN_2;
    let mut wrong = Vec::new();
    for (level, &(pattern, scores)) in levels_and(PATTERNS) {
        let kernels = AttentionKernels::new(level);
        for (queries, keys) in sizes() {
            let mut state = SoftmaxState::new();
            let mut sums = [0f64; QUERIES];
            for tile in 0..4 {
                let mut fail = |what: &str, query: usize| {
                    wrong.push(format!("{level:?} {pattern} {queries}×{keys} {tile}: {what} of {query}"));
                };
                let before = state;
                let score = |key: usize, query: usize| scores(tile * keys + key, query);
                let mut rows = Rows::new(keys, queries, score);
                // SAFETY: the rows are a tile, and the machine runs the level.
                let changes = unsafe { kernels.accumulate(rows.tile(), &mut state) };
                let mut expects_changes = false;
                for (query, sum_so_far) in sums.iter_mut().enumerate().take(queries) {
                    let old = before.max[query];
                    let largest = (0..keys).map(|key| score(key, query)).fold(-INF, f32::max);
                    let is_new = largest > old + GROWTH;
                    let max = if is_new { largest } else { old };
                    let factor = if is_new { exp(distance(old, max)) } else { 1.0 };
                    expects_changes |= is_new;
                    if state.max[query].to_bits() != max.to_bits() {
                        fail("maximum", query);
                    }
                    let has_factor = match factor == 0.0 || factor == 1.0 {
                        true => f64::from(state.factor[query]) == factor,
                        false => is_near_online(state.factor[query], factor, exp_error(distance(old, max))),
                    };
                    if changes && !has_factor {
                        fail("factor", query);
                    }
                    // Steps of all roundings, and the errors of the parts.
                    let mut error = (keys + 4) as f64;
                    let mut sum = *sum_so_far * factor;
                    for key in 0..keys {
                        let d = distance(score(key, query), max);
                        if !is_near_online(rows.at(key, query), exp(d), exp_error(d)) {
                            fail("exponential", query);
                        }
                        sum += exp(d);
                        error += if exp(d) == 0.0 { 0.0 } else { 0.5 };
                    }
                    *sum_so_far = sum;
                    error += if is_new { 2.0 * (1.5 + distance(old, max).abs().min(104.0)) } else { 0.0 };
                    if !is_near(state.sum[query], sum, 4.0 * error * f64::from(f32::EPSILON)) {
                        fail(&format!("sum {} for {sum}", state.sum[query]), query);
                    }
                }
                if changes != expects_changes {
                    fail("change", 0);
                }
                if !changes && state.factor != before.factor {
                    fail("factor without a change", 0);
                }
                if state.max[queries..] != before.max[queries..]
                    || state.sum[queries..] != before.sum[queries..]
                {
                    fail("state beyond the queries", queries);
                }
                if !rows.is_poison_whole() {
                    fail("poison", queries);
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong: {:#?}", wrong.len(), &wrong[..wrong.len().min(10)]);
}

fn levels_and<T>(rows: &[T]) -> impl Iterator<Item = (Level, &T)> {
    Level::all_available().flat_map(move |level| rows.iter().map(move |row| (level, row)))
}

fn sizes() -> impl Iterator<Item = (usize, usize)> {
    ALL_QUERIES.into_iter().flat_map(|queries| ALL_KEYS.into_iter().map(move |keys| (queries, keys)))
}

/// The bits of a query are the same in a block of any number of queries.
#[test]
fn queries_do_not_depend_on_each_other() {
    let mut wrong = Vec::new();
    for (level, &(pattern, scores)) in levels_and(PATTERNS) {
        let kernels = AttentionKernels::new(level);
        let run = |queries: usize| {
            let mut rows = Rows::new(100, queries, scores);
            let mut state = SoftmaxState::new();
            let head = ScoreTile { keys: 60, ..rows.tile() };
            let rest = ScoreTile { at: head.at.wrapping_add(60 * QUERIES), keys: 40, queries };
            // SAFETY: both tiles are within the rows, and the machine runs the level.
            unsafe {
                kernels.accumulate(head, &mut state);
                let at = head.at;
                if kernels.accumulate(rest, &mut state) {
                    kernels.rescale(at, 60, queries, &state.factor);
                }
            }
            (rows, state)
        };
        let (whole, of_whole) = run(QUERIES);
        for queries in ALL_QUERIES {
            let (rows, state) = run(queries);
            for query in 0..queries {
                let is_equal = (0..100).all(|key| rows.bits(key, query) == whole.bits(key, query))
                    && state.max[query].to_bits() == of_whole.max[query].to_bits()
                    && state.sum[query].to_bits() == of_whole.sum[query].to_bits();
                if !is_equal {
                    wrong.push((level, pattern, queries, query));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn masked_tiles_change_no_bit() {
    for level in Level::all_available() {
        let kernels = AttentionKernels::new(level);
        for (queries, keys) in sizes() {
            let mut state = SoftmaxState::new();
            for tile in 0..3 {
                let before = state;
                let mut masked = Rows::new(keys, queries, |_, _| -INF);
                // SAFETY: the rows are tiles, and the machine runs the level.
                let changes = unsafe { kernels.accumulate(masked.tile(), &mut state) };
                assert!(!changes, "{level:?} {queries} {keys}");
                let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                for (now, before) in
                    [(state.max, before.max), (state.sum, before.sum), (state.factor, before.factor)]
                {
                    assert_eq!(bits(&now), bits(&before), "{level:?} {queries} {keys}");
                }
                let is_zero = |i: usize| (0..queries).all(|query| masked.bits(i, query) == 0);
                assert!((0..keys).all(is_zero), "{level:?} {queries} {keys}");
                let mut rows =
                    Rows::new(7, queries, |key, query| 20.0 * noise(tile * 999 + key * 67 + query));
                // SAFETY: as above.
                unsafe { kernels.accumulate(rows.tile(), &mut state) };
            }
        }
    }
}

/// However keys are split into tiles, sums are near each other.
#[test]
fn sums_hardly_depend_on_tiles() {
    const KEYS: usize = 1000;
    let score = |key: usize, query: usize| (1.0 + query as f32) * noise(key * 67 + query);
    for level in Level::all_available() {
        let kernels = AttentionKernels::new(level);
        let stats = |step: usize| {
            let mut state = SoftmaxState::new();
            for first in (0..KEYS).step_by(step) {
                let keys = step.min(KEYS - first);
                let mut rows = Rows::new(keys, QUERIES, |key, query| score(first + key, query));
                // SAFETY: the rows are a tile, and the machine runs the level.
                unsafe { kernels.accumulate(rows.tile(), &mut state) };
            }
            let mut stats = [0f32; QUERIES];
            // SAFETY: there is a number for each query.
            unsafe { kernels.stats(QUERIES, &state, false, stats.as_mut_ptr()) };
            stats
        };
        for step in [1, 7, 64, 333, KEYS] {
            for (query, statistic) in stats(step).into_iter().enumerate() {
                let sum: f64 = (0..KEYS).map(|key| f64::from(score(key, query)).exp()).sum();
                let off = (f64::from(statistic) - sum.ln()).abs();
                assert!(off <= 1e-5, "{level:?}, tiles of {step}: {off} of query {query}");
            }
        }
    }
}

/// Division says whether all numbers were finite, whatever the sums are.
#[test]
fn division_tells_whether_rows_are_finite() {
    let mut wrong = Vec::new();
    for level in Level::all_available() {
        let kernels = AttentionKernels::new(level);
        for (queries, rows) in sizes().filter(|&(_, rows)| rows > 0) {
            let places = [(0, 0), (rows / 2, queries / 2), (rows - 1, queries - 1)];
            let numbers = [f32::MAX, f32::MIN_POSITIVE, 1e-45, INF, -INF, f32::NAN, -f32::NAN];
            for (place, number) in places.into_iter().flat_map(|place| numbers.map(|number| (place, number)))
            {
                let mut state = SoftmaxState::new();
                for query in 0..queries {
                    state.sum[query] = [1e-30, 1.0, 0.0, f32::NAN][(query + place.0) % 4];
                }
                let mut divided = Rows::new(rows, queries, |row, query| match (row, query) == place {
                    true => number,
                    false => noise(row * 64 + query),
                });
                // SAFETY: these are rows, and the machine runs the level.
                let is_finite =
                    unsafe { kernels.divide(divided.data.as_mut_ptr(), rows, queries, &state, true) };
                if is_finite != number.is_finite() {
                    wrong.push((level, queries, rows, place, number));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong: {:?}", wrong.len(), &wrong[..wrong.len().min(10)]);
}

/// Division and rescaling of rows; a query without a key has a fixed result, whatever stands in its rows.
#[test]
fn rows_are_scaled() {
    let mut wrong = Vec::new();
    for level in Level::all_available() {
        let kernels = AttentionKernels::new(level);
        for (queries, rows) in sizes() {
            for inf_as_zero in [false, true] {
                let mut state = SoftmaxState::new();
                for query in 0..QUERIES {
                    state.sum[query] = [0.0, 1.0, 3.0, f32::NAN, 8.0][query % 5];
                    state.factor[query] = [1.0, 0.0, 0.25, 0.7][query % 4];
                }
                let of = |row: usize, query: usize| match (row + query) % 7 {
                    0 => f32::NAN,
                    1 => INF,
                    _ => noise(row * 64 + query),
                };
                let mut divided = Rows::new(rows, queries, of);
                let mut rescaled = Rows::new(rows, queries, of);
                // SAFETY: these are rows, and the machine runs the level.
                unsafe {
                    kernels.divide(divided.data.as_mut_ptr(), rows, queries, &state, inf_as_zero);
                    kernels.rescale(rescaled.data.as_mut_ptr(), rows, queries, &state.factor);
                }
                for (row, query) in (0..rows).flat_map(|row| (0..queries).map(move |query| (row, query))) {
                    let x = of(row, query);
                    let sum = state.sum[query];
                    let quotient = match sum == 0.0 {
                        true => {
                            if inf_as_zero {
                                0.0
                            } else {
                                NAN
                            }
                        }
                        false => x * (1.0 / sum),
                    };
                    let quotient = if quotient.is_nan() { NAN } else { quotient };
                    let product = x * state.factor[query];
                    let is_product = rescaled.bits(row, query) == product.to_bits()
                        || rescaled.at(row, query).is_nan() && product.is_nan();
                    if divided.bits(row, query) != quotient.to_bits() || !is_product {
                        wrong.push((level, queries, rows, inf_as_zero, row, query));
                    }
                }
                if !divided.is_poison_whole() || !rescaled.is_poison_whole() {
                    wrong.push((level, queries, rows, inf_as_zero, rows, queries));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong: {:?}", wrong.len(), &wrong[..wrong.len().min(10)]);
}

#[test]
fn statistics_of_queries_without_keys() {
    for level in Level::all_available() {
        let kernels = AttentionKernels::new(level);
        let mut state = SoftmaxState::new();
        (state.max[1], state.sum[1]) = (2.0, 1.0);
        (state.max[2], state.sum[2]) = (INF, f32::NAN);
        (state.max[3], state.sum[3]) = (-INF, f32::NAN);
        (state.max[4], state.sum[4]) = (f32::MIN, 4.0);
        for (inf_as_zero, of_none) in [(false, NAN), (true, 0.0)] {
            let mut to = [7f32; 6];
            // SAFETY: there is a number for each query.
            unsafe { kernels.stats(5, &state, inf_as_zero, to.as_mut_ptr()) };
            let expected = [of_none, 2.0, NAN, NAN, f32::MIN, 7.0];
            assert_eq!(to.map(f32::to_bits), expected.map(f32::to_bits), "{level:?}");
        }
    }
}

/// Small integers, whose sums are exact; V of masked keys is not finite.
#[test]
fn masked_scores_are_replaced() {
    /// Any byte but 0 is true.
    const BYTES: [u8; 5] = [0, 1, 0x80, 0, 0xff];
    let mut wrong = Vec::new();
    for level in Level::all_available() {
        for ((queries, keys), keeps) in sizes().flat_map(|size| [(size, false), (size, true)]) {
            let mut scores = Rows::new(keys, queries, |key, query| noise(key * 67 + query));
            let before = scores.data.clone();
            let gap = keys + 3;
            let byte = |query: usize, key: usize| BYTES[(query * 31 + key * 7 + query * key) % BYTES.len()];
            let bytes: Vec<u8> = (0..queries * gap).map(|at| byte(at / gap, at % gap)).collect();
            // The last query ends where the memory does.
            let bytes = &bytes[..bytes.len() - (gap - keys)];
            let conditions = TileConditions { at: bytes.as_ptr(), query_stride: gap as isize, keeps };
            let mut by_bits = Rows::new(keys, queries, |key, query| noise(key * 67 + query));
            let bits_of = |query: usize| {
                (0..keys).fold(0u64, |bits, key| bits | u64::from((byte(query, key) != 0) != keeps) << key)
            };
            let mut bits: [u64; QUERIES] = std::array::from_fn(bits_of);
            // SAFETY: tile and bytes are as large as they say, and the machine runs the level.
            unsafe {
                AttentionKernels::new(level).mask(scores.tile(), conditions, -INF);
                AttentionKernels::new(level).mask_bits(by_bits.tile(), &mut bits, -INF);
            }
            for (key, query) in (0..keys).flat_map(|key| (0..queries).map(move |query| (key, query))) {
                let is_kept = (byte(query, key) != 0) == keeps;
                let expected = if is_kept { before[key * QUERIES + query] } else { -INF };
                let made = [&scores, &by_bits].map(|scores| scores.at(key, query).to_bits());
                if made != [expected.to_bits(); 2] {
                    wrong.push((level, keys, queries, keeps, key, query));
                }
            }
            assert!(scores.is_poison_whole() && by_bits.is_poison_whole(), "{level} {keys} {queries}");
        }
    }
    assert!(wrong.is_empty(), "{} wrong: {:?}", wrong.len(), &wrong[..wrong.len().min(10)]);
}

#[test]
fn masked_keys_do_not_reach_the_product() {
    let mut wrong = Vec::new();
    let p_of = |key: usize, query: usize| match (key * 3 + query) % 4 {
        0 => 0.0,
        1 => -0.0,
        2 => -2.0,
        _ => 3.0,
    };
    for (level, dims) in Level::all_available().flat_map(|level| [1, 3, 4, 5, 64].map(|dims| (level, dims))) {
        let kernels = AttentionKernels::new(level);
        for ((queries, keys), is_transposed) in sizes().flat_map(|size| [(size, false), (size, true)]) {
            for planted in [0.0, NAN, INF] {
                let v_of = |key: usize, dim: usize| match (key + dim) % 5 {
                    0 if planted != 0.0 => planted,
                    i => i as f32 - 2.0,
                };
                // One element of another matrix stands between two of V.
                let (row_stride, col_stride) =
                    if is_transposed { (8, 8 * keys as isize) } else { (8 * dims as isize, 8) };
                let mut v = vec![NAN; 2 * keys * dims];
                for (key, dim) in (0..keys).flat_map(|key| (0..dims).map(move |dim| (key, dim))) {
                    let at = key as isize * row_stride + dim as isize * col_stride;
                    v[at as usize / 4] = v_of(key, dim);
                }
                let mut p = Rows::new(keys, queries, p_of);
                let start = |dim: usize, query: usize| (dim * 5 + query) as f32;
                let mut result = Rows::new(dims, queries, start);
                let v = Matrix { at: v.as_ptr().cast(), row_stride, col_stride };
                // SAFETY: the sizes are those of the rows and of V, and the machine runs the level.
                unsafe { kernels.masked_product(p.tile(), v, dims, result.data.as_mut_ptr()) };
                for (dim, query) in (0..dims).flat_map(|dim| (0..queries).map(move |query| (dim, query))) {
                    let kept = (0..keys).filter(|&key| p_of(key, query) != 0.0);
                    let sum =
                        kept.fold(start(dim, query), |sum, key| sum + v_of(key, dim) * p_of(key, query));
                    let x = result.at(dim, query);
                    if x != sum && !(x.is_nan() && sum.is_nan()) {
                        wrong.push((level, queries, keys, dims, planted, dim, query, x, sum));
                    }
                }
                if !result.is_poison_whole() || !p.is_poison_whole() {
                    wrong.push((level, queries, keys, dims, planted, dims, queries, 0.0, 0.0));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong: {:?}", wrong.len(), &wrong[..wrong.len().min(10)]);
}

#[test]
fn a_probability_of_nan_reaches_the_product() {
    for level in Level::all_available() {
        let mut p = Rows::new(2, 20, |key, query| if query % 2 == 0 && key == 1 { NAN } else { 0.0 });
        let v = [1f32, 2.0];
        let mut result = Rows::new(1, 20, |_, _| 5.0);
        let v = Matrix { at: v.as_ptr().cast(), row_stride: 4, col_stride: 4 };
        // SAFETY: V has two keys of one dim, and the machine runs the level.
        unsafe { AttentionKernels::new(level).masked_product(p.tile(), v, 1, result.data.as_mut_ptr()) };
        for query in 0..20 {
            let x = result.at(0, query);
            assert!(if query % 2 == 0 { x.is_nan() } else { x == 5.0 }, "{level:?}: {x} of query {query}");
        }
    }
}

/// Whatever the strides, each element is seen, and none between them.
#[test]
fn finite_matrices_are_told() {
    let types: &[(DataType, usize, &[u32], &[u32])] = &[
        (DataType::F32, 4, &[0, 1, 0x7f7f_ffff, 0xff7f_ffff], &[0x7f80_0000, 0xff80_0000, 0x7f80_0001, !0]),
        (DataType::Bf16, 2, &[0, 1, 0x7f7f, 0xff7f], &[0x7f80, 0xff80, 0x7f81, 0xffff]),
        (DataType::F16, 2, &[0, 1, 0x7bff, 0xfbff], &[0x7c00, 0xfc00, 0x7c01, 0xffff]),
    ];
    let extents = [(0, 5), (5, 0), (1, 1), (3, 5), (2, 64), (5, 65), (64, 3), (2, 200)];
    let mut wrong = Vec::new();
    for (level, &(data_type, width, finite, infinite)) in levels_and(types) {
        let kernels = AttentionKernels::new(level);
        for (rows, columns) in extents {
            // Row stride, column stride and offset of the first element, in elements.
            let (r, c) = (rows as isize, columns as isize);
            let layouts = [
                (c, 1, 0),
                (c + 3, 1, 0),
                (1, r, 0),
                (1, r + 1, 0),
                (2 * c, 2, 0),
                (3, 3 * r, 0),
                (-c, 1, c * (r - 1).max(0)),
                (c, -1, (c - 1).max(0)),
                (0, 1, 0),
                (1, 0, 0),
                (0, 0, 0),
            ];
            for (row, col, offset) in layouts {
                let len = 4 * (rows + 1) * (columns + 1);
                let index = |i: usize, j: usize| (offset + i as isize * row + j as isize * col) as usize;
                let run = |at: Option<(usize, usize)>, bits: u32| {
                    // Off a boundary of elements by one byte.
                    let mut bytes = vec![0xffu8; len * width + 1];
                    let mut put = |index: usize, bits: u32| {
                        bytes[1 + index * width..][..width].copy_from_slice(&bits.to_le_bytes()[..width]);
                    };
                    for (i, j) in (0..rows).flat_map(|i| (0..columns).map(move |j| (i, j))) {
                        put(index(i, j), finite[(i + j) % finite.len()]);
                    }
                    if let Some((i, j)) = at {
                        put(index(i, j), bits);
                    }
                    let from = Matrix {
                        at: bytes.as_ptr().wrapping_add(1 + offset as usize * width),
                        row_stride: row * width as isize,
                        col_stride: col * width as isize,
                    };
                    // SAFETY: all elements are within the bytes, and the machine runs the level.
                    unsafe { kernels.is_finite(Extent { rows, columns }, from, data_type) }
                };
                if !run(None, 0) {
                    wrong.push((level, data_type, rows, columns, row, col, None));
                }
                let places =
                    [(0, 0), (rows / 2, columns / 2), (rows.wrapping_sub(1), columns.wrapping_sub(1))];
                for (place, &bits) in places.into_iter().flat_map(|at| infinite.iter().map(move |b| (at, b)))
                {
                    if rows * columns > 0 && run(Some(place), bits) {
                        wrong.push((level, data_type, rows, columns, row, col, Some(place)));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong: {:?}", wrong.len(), &wrong[..wrong.len().min(10)]);
}
