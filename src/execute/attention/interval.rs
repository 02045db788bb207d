//! Bounds of values, and of what operations make of them: interval arithmetic on what the kernels compute.
//!
//! A bound of a floating-point result is what the kernels would compute from the bounds of the operands:
//! rounding to nearest never changes the order of two numbers, so rounded bounds bound rounded results.
//! Integers are exact; what may wrap around may be anything.

use half::{bf16, f16};

use crate::types::dtype::DataType;
use crate::types::function::{Binary, Class, Comparison, Logic, Params, Sign, Unary};

/// Bounds of a value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Interval {
    /// Of an integer, or of a boolean as 0 or 1.
    Integers { least: i128, most: i128 },
    /// Of a floating-point number, unless it is NaN, and whether it may be NaN.
    Floats { least: f64, most: f64, nan: bool },
}

use Interval::{Floats, Integers};

impl Interval {
    pub(super) const FALSE: Self = Self::truth(true, false);
    pub(super) const EITHER: Self = Self::truth(true, true);

    /// A boolean that may be false, or true, or both.
    pub(super) const fn truth(may_be_false: bool, may_be_true: bool) -> Self {
        Integers { least: !may_be_false as i128, most: may_be_true as i128 }
    }

    /// Any value of a type.
    pub(super) fn any(of: DataType) -> Self {
        let (least, most): (i128, i128) = match of {
            DataType::Boolean => (0, 1),
            DataType::S8 => (i8::MIN.into(), i8::MAX.into()),
            DataType::U8 => (0, u8::MAX.into()),
            DataType::S16 => (i16::MIN.into(), i16::MAX.into()),
            DataType::U16 => (0, u16::MAX.into()),
            DataType::S32 => (i32::MIN.into(), i32::MAX.into()),
            DataType::U32 => (0, u32::MAX.into()),
            DataType::S64 => (i64::MIN.into(), i64::MAX.into()),
            DataType::U64 => (0, u64::MAX.into()),
            DataType::S4 => (-8, 7),
            DataType::U4 => (0, 15),
            _ => return Floats { least: f64::NEG_INFINITY, most: f64::INFINITY, nan: true },
        };
        Integers { least, most }
    }

    /// Any number of a type that is no larger than another one in size; any value if that is infinite.
    pub(super) fn within(size: f64, of: DataType) -> Self {
        match Self::any(of) {
            Floats { .. } if size.is_finite() => floats(-size, size, false, of),
            any => any,
        }
    }

    /// One number of a type, or NaN.
    pub(super) fn number(number: f64, of: DataType) -> Self {
        match Self::any(of) {
            Floats { .. } if number.is_nan() => Self::any(of),
            Floats { .. } => Floats { least: number, most: number, nan: false },
            Integers { least, most } => {
                let number = (number as i128).clamp(least, most);
                Integers { least: number, most: number }
            }
        }
    }

    /// The truth value that a boolean has for certain.
    pub(super) fn decided(self) -> Option<bool> {
        match self {
            Integers { least, most } if least == most => Some(most != 0),
            _ => None,
        }
    }

    /// The finite number, or infinity, that a number is for certain.
    pub(super) fn point(self) -> Option<f64> {
        match self {
            Floats { least, most, nan: false } if least == most => Some(least),
            _ => None,
        }
    }

    /// True if the value is certainly neither NaN nor an infinity.
    pub(super) fn is_finite(self) -> bool {
        match self {
            Floats { least, most, nan } => !nan && least.is_finite() && most.is_finite(),
            Integers { .. } => true,
        }
    }

    /// A number that the value is certainly not above, unless it may be NaN.
    pub(super) fn most(self) -> Option<f64> {
        match self {
            Floats { most, nan: false, .. } => Some(most),
            _ => None,
        }
    }

    /// True if the value may be NaN or +∞.
    pub(super) fn may_poison(self) -> bool {
        matches!(self, Floats { most, nan, .. } if nan || most == f64::INFINITY)
    }

    /// Either of two values of one type.
    pub(super) fn join(self, other: Self) -> Self {
        match (self, other) {
            (Integers { least, most }, Integers { least: l, most: m }) => {
                Integers { least: least.min(l), most: most.max(m) }
            }
            (Floats { least, most, nan }, Floats { least: l, most: m, nan: n }) => {
                Floats { least: least.min(l), most: most.max(m), nan: nan || n }
            }
            (Floats { .. }, Integers { .. }) | (Integers { .. }, Floats { .. }) => {
                Floats { least: f64::NEG_INFINITY, most: f64::INFINITY, nan: true }
            }
        }
    }

    /// A function of one number, computed in f32, of the type of the result.
    pub(super) fn unary(self, function: Unary, params: Params, of: DataType) -> Self {
        let Floats { least, most, nan } = self else { return Self::any(of) };
        let [p, q] = params.map(f64::from);
        let rising = |f: &dyn Fn(f64) -> f64| floats(f(least), f(most), nan, of);
        match function {
            Unary::Clamp if p <= q => rising(&|x| x.max(p).min(q)),
            Unary::Relu => rising(&|x| x.max(0.0)),
            Unary::Round => rising(&f64::round_ties_even),
            Unary::Floor => rising(&f64::floor),
            Unary::Ceil => rising(&f64::ceil),
            Unary::Sqrt if least >= 0.0 => rising(&f64::sqrt),
            Unary::Square if least >= 0.0 => rising(&|x| x * x),
            Unary::Square if most <= 0.0 => floats(most * most, least * least, nan, of),
            Unary::Square => floats(0.0, (least * least).max(most * most), nan, of),
            // Approximations may be off by a few units in the last place.
            Unary::Exp => Floats { least: 0.0, most: f64::INFINITY, nan },
            Unary::Tanh => Floats { least: -2.0, most: 2.0, nan },
            Unary::Sigmoid => Floats { least: 0.0, most: 2.0, nan },
            _ => Self::any(of),
        }
    }

    /// A function of two numbers, computed in f32 or in the integers of the type of the result.
    pub(super) fn binary(self, other: Self, function: Binary, of: DataType) -> Self {
        match (self, other) {
            (Integers { least: a, most: b }, Integers { least: c, most: d }) => {
                of_integers(function, (a, b), (c, d), of)
            }
            (Floats { least, most, nan }, Floats { least: l, most: m, nan: n }) => {
                of_floats(function, (least, most), (l, m), nan || n, of)
            }
            _ => Self::any(of),
        }
    }

    /// The truth value of a comparison.
    pub(super) fn compare(self, other: Self, comparison: Comparison) -> Self {
        let (may, nan) = match (self, other) {
            (Integers { least: a, most: b }, Integers { least: c, most: d }) => {
                (answers(comparison, (a, b), (c, d)), false)
            }
            (Floats { least: a, most: b, nan }, Floats { least: c, most: d, nan: n }) => {
                (answers(comparison, (a, b), (c, d)), nan || n)
            }
            _ => return Self::EITHER,
        };
        let (may_be_false, may_be_true) = may;
        let of_nan = comparison == Comparison::NotEqual;
        Self::truth(may_be_false || nan && !of_nan, may_be_true || nan && of_nan)
    }

    /// A function of two booleans.
    pub(super) fn logic(self, other: Self, logic: Logic) -> Self {
        let (a, b) = (self.decided(), other.decided());
        let result = match logic {
            Logic::And if a == Some(false) || b == Some(false) => Some(false),
            Logic::Or if a == Some(true) || b == Some(true) => Some(true),
            Logic::And => a.zip(b).map(|(a, b)| a && b),
            Logic::Or => a.zip(b).map(|(a, b)| a || b),
            Logic::Xor => a.zip(b).map(|(a, b)| a != b),
        };
        result.map_or(Self::EITHER, |result| Self::truth(!result, result))
    }

    /// The negation of a boolean.
    pub(super) fn not(self) -> Self {
        self.decided().map_or(Self::EITHER, |truth| Self::truth(truth, !truth))
    }

    /// The truth value of membership in a class.
    pub(super) fn classify(self, class: Class) -> Self {
        let Floats { least, most, nan } = self else { return Self::EITHER };
        let may_be_finite = least < f64::INFINITY && most > f64::NEG_INFINITY;
        let may_be_infinite = least == f64::NEG_INFINITY || most == f64::INFINITY;
        match class {
            Class::Nan => Self::truth(true, nan),
            Class::Infinite => Self::truth(may_be_finite || nan, may_be_infinite),
            Class::Finite => Self::truth(may_be_infinite || nan, may_be_finite),
        }
    }

    /// The value with another sign.
    pub(super) fn sign(self, sign: Sign, of: DataType) -> Self {
        match (self, sign) {
            (Integers { least, most }, Sign::Flip) => integers(-most, -least, of),
            (Integers { least, most }, Sign::Clear) => {
                let inner = if least <= 0 && most >= 0 { 0 } else { least.abs().min(most.abs()) };
                integers(inner, least.abs().max(most.abs()), of)
            }
            (Floats { least, most, nan }, Sign::Flip) => Floats { least: -most, most: -least, nan },
            (Floats { least, most, nan }, Sign::Clear) => {
                let inner = if least <= 0.0 && most >= 0.0 { 0.0 } else { least.abs().min(most.abs()) };
                Floats { least: inner, most: least.abs().max(most.abs()), nan }
            }
        }
    }

    /// The same number in another type.
    pub(super) fn converted(self, from: DataType, to: DataType) -> Self {
        if from == to {
            return self;
        }
        match (self, Self::any(to)) {
            (Integers { least: 0, most: 0 }, _) if to == DataType::Boolean => Self::FALSE,
            (Integers { least, most }, _) if to == DataType::Boolean => {
                Self::truth(least <= 0 && most >= 0, true)
            }
            (Floats { least, most, nan }, _) if to == DataType::Boolean => match (least, most, nan) {
                (0.0, 0.0, false) => Self::FALSE,
                _ => Self::truth(least <= 0.0 && most >= 0.0 || nan, true),
            },
            // Integers wrap around.
            (Integers { least, most }, Integers { .. }) => integers(least, most, to),
            (Integers { least, most }, Floats { .. }) => match to {
                DataType::F32 => floats((least as f32).into(), (most as f32).into(), false, to),
                // Rounded once, so not by way of another type unless that holds the number.
                _ => Floats {
                    least: rounded(below(least as f64), to),
                    most: rounded(above(most as f64), to),
                    nan: false,
                },
            },
            (Floats { least, most, nan }, Integers { least: first, most: last }) => {
                let number = |x: f64| (x as i128).clamp(first, last);
                let exact = Integers { least: number(least), most: number(most) };
                if nan { exact.join(Integers { least: 0, most: 0 }) } else { exact }
            }
            (Floats { least, most, nan }, Floats { .. }) => match (from, to) {
                (DataType::F64, DataType::F16 | DataType::Bf16) => {
                    Floats { least: rounded(below(least), to), most: rounded(above(most), to), nan }
                }
                (_, DataType::F32 | DataType::F64 | DataType::F16 | DataType::Bf16) => {
                    floats(least, most, nan, to)
                }
                _ => Self::any(to),
            },
        }
    }
}

/// Bounds of floating-point results, which are rounded to f32 and to their type.
fn floats(least: f64, most: f64, nan: bool, of: DataType) -> Interval {
    Floats { least: rounded(least, of), most: rounded(most, of), nan }
}

/// A number that arithmetic on f32 gives, rounded to f32 and from there to a type.
fn rounded(number: f64, to: DataType) -> f64 {
    match to {
        DataType::F32 => f64::from(number as f32),
        DataType::Bf16 => bf16::from_f32(number as f32).to_f64(),
        DataType::F16 => f16::from_f32(number as f32).to_f64(),
        _ => number,
    }
}

/// The greatest f32 that is not above a number.
fn below(number: f64) -> f64 {
    let nearest = number as f32;
    f64::from(if f64::from(nearest) > number { nearest.next_down() } else { nearest })
}

/// The least f32 that is not below a number.
fn above(number: f64) -> f64 {
    -below(-number)
}

/// Bounds of integer results: any number of the type if one may wrap around.
fn integers(least: i128, most: i128, of: DataType) -> Interval {
    match Interval::any(of) {
        Integers { least: first, most: last } if first <= least && most <= last => Integers { least, most },
        any => any,
    }
}

/// Two truth values of a comparison of numbers within bounds: it may be false, and it may be true.
fn answers<T: PartialOrd>(comparison: Comparison, (a, b): (T, T), (c, d): (T, T)) -> (bool, bool) {
    let is_disjoint = b < c || d < a;
    let is_point = a == b && c == d && a == c;
    match comparison {
        Comparison::Equal => (!is_point, !is_disjoint),
        Comparison::NotEqual => (!is_disjoint, !is_point),
        Comparison::Less => (b >= c, a < d),
        Comparison::LessEqual => (b > c, a <= d),
        Comparison::Greater => (a <= d, b > c),
        Comparison::GreaterEqual => (a < d, b >= c),
    }
}

fn of_integers(function: Binary, (a, b): (i128, i128), (c, d): (i128, i128), of: DataType) -> Interval {
    let corners = |f: &dyn Fn(i128, i128) -> i128| {
        let all = [f(a, c), f(a, d), f(b, c), f(b, d)];
        integers(all.into_iter().fold(all[0], i128::min), all.into_iter().fold(all[0], i128::max), of)
    };
    match function {
        Binary::Add => integers(a + c, b + d, of),
        Binary::Subtract => integers(a - d, b - c, of),
        Binary::Multiply => corners(&|x, y| x * y),
        Binary::Divide if c > 0 || d < 0 => corners(&floor_of_quotient),
        // The remainder is that of one divisor if all quotients are the same.
        Binary::Modulo if c == d && c != 0 && floor_of_quotient(a, c) == floor_of_quotient(b, c) => {
            let start = c * floor_of_quotient(a, c);
            integers(a - start, b - start, of)
        }
        Binary::Modulo if c > 0 && a >= 0 && b < c => integers(a, b, of),
        Binary::Modulo if c > 0 => integers(0, d - 1, of),
        Binary::Modulo if d < 0 => integers(c + 1, 0, of),
        Binary::Maximum => integers(a.max(c), b.max(d), of),
        Binary::Minimum => integers(a.min(c), b.min(d), of),
        _ => Interval::any(of),
    }
}

/// `⌊x / y⌋` of numbers of at most 64 bits.
fn floor_of_quotient(x: i128, y: i128) -> i128 {
    match (i64::try_from(x), i64::try_from(y)) {
        (Ok(x), Ok(y)) if y != -1 => (x.div_euclid(y) - i64::from(y < 0 && x.rem_euclid(y) != 0)).into(),
        _ => x.div_euclid(y) - i128::from(y < 0 && x.rem_euclid(y) != 0),
    }
}

fn of_floats(function: Binary, (a, b): (f64, f64), (c, d): (f64, f64), nan: bool, of: DataType) -> Interval {
    const INFINITY: f64 = f64::INFINITY;
    let is_infinite = |x: f64, y: f64| x.is_infinite() || y.is_infinite();
    // A bound that is NaN bounds nothing.
    let least_of = |bound: f64| if bound.is_nan() { -INFINITY } else { bound };
    let most_of = |bound: f64| if bound.is_nan() { INFINITY } else { bound };
    match function {
        Binary::Add => {
            let meets = a == -INFINITY && d == INFINITY || b == INFINITY && c == -INFINITY;
            floats(least_of(a + c), most_of(b + d), nan || meets, of)
        }
        Binary::Subtract => {
            let meets = a == -INFINITY && c == -INFINITY || b == INFINITY && d == INFINITY;
            floats(least_of(a - d), most_of(b - c), nan || meets, of)
        }
        Binary::Multiply => {
            let meets =
                a <= 0.0 && b >= 0.0 && is_infinite(c, d) || c <= 0.0 && d >= 0.0 && is_infinite(a, b);
            // 0 · ∞ is NaN at that corner alone; next to it, the product with 0 is 0.
            let corner = |x: f64, y: f64| if x == 0.0 || y == 0.0 { 0.0 } else { x * y };
            let all = [corner(a, c), corner(a, d), corner(b, c), corner(b, d)];
            floats(least(all), most(all), nan || meets, of)
        }
        Binary::Divide if c > 0.0 || d < 0.0 => {
            if is_infinite(a, b) && is_infinite(c, d) {
                return Interval::any(of);
            }
            let all = [a / c, a / d, b / c, b / d];
            floats(least(all), most(all), nan, of)
        }
        Binary::Maximum => floats(a.max(c), b.max(d), nan, of),
        Binary::Minimum => floats(a.min(c), b.min(d), nan, of),
        _ => Interval::any(of),
    }
}

fn least(numbers: [f64; 4]) -> f64 {
    numbers.into_iter().fold(f64::INFINITY, f64::min)
}

fn most(numbers: [f64; 4]) -> f64 {
    numbers.into_iter().fold(f64::NEG_INFINITY, f64::max)
}
