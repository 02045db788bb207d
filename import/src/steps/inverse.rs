//! The inverses of the circular and hyperbolic functions, in f32; on bf16 and f16 only the result is rounded.

use std::f32::consts::{FRAC_PI_2, FRAC_PI_4, LN_2};

use sterna::{DataType, OpKind, TensorId};

use super::Steps;
use crate::error::Fault;

use DataType as D;
use OpKind as K;

/// `tan(π / 8)`.
const TAN_EIGHTH: f32 = 0.414_213_57;
/// `(atan(t) / t − 1) / t²` as a polynomial of `t²` up to `tan²(π / 8)`, from the last factor on.
const ARC: [f32; 5] = [-0.064_593_8, 0.107_463, -0.142_642_33, 0.199_995_5, -0.333_333_3];
/// Above it, the square root of a square plus or minus 1 is the number itself.
const LARGE: f32 = 1e9;

impl Steps<'_, '_> {
    /// The inverse of the tangent: above 1 of the reciprocal, and above `tan(π / 8)` of what an eighth of a
    /// turn leaves.
    pub(crate) fn atan(&mut self, x: TensorId) -> Result<TensorId, Fault> {
        let (data_type, x) = (self.builder.data_type(x), self.cast(x, D::F32)?);
        let result = self.arc(x)?;
        self.cast(result, data_type)
    }

    fn arc(&mut self, x: TensorId) -> Result<TensorId, Fault> {
        let (one, size) = (self.float(1.0)?, self.same(K::Abs, x)?);
        let is_far = self.predicate(K::Greater, size, one)?;
        let through = self.both(K::Divide, one, size)?;
        let near = self.select(is_far, through, size)?;
        let (edge, eighth) = (self.float(TAN_EIGHTH)?, self.float(FRAC_PI_4)?);
        let is_wide = self.predicate(K::Greater, near, edge)?;
        let (below, above) = (self.both(K::Subtract, near, one)?, self.both(K::Add, near, one)?);
        let turned = self.both(K::Divide, below, above)?;
        let t = self.select(is_wide, turned, near)?;
        let squared = self.same(K::Square, t)?;
        let mut sum = self.float(ARC[0])?;
        for factor in &ARC[1..] {
            let factor = self.float(*factor)?;
            let product = self.both(K::Multiply, squared, sum)?;
            sum = self.both(K::Add, product, factor)?;
        }
        let scaled = self.both(K::Multiply, squared, sum)?;
        let scaled = self.both(K::Multiply, t, scaled)?;
        let angle = self.both(K::Add, t, scaled)?;
        let moved = self.both(K::Add, angle, eighth)?;
        let angle = self.select(is_wide, moved, angle)?;
        let quarter = self.float(FRAC_PI_2)?;
        let rest = self.both(K::Subtract, quarter, angle)?;
        let angle = self.select(is_far, rest, angle)?;
        self.with_sign_of(x, angle)
    }

    /// The inverse of the sine, `2 · atan(x / (1 + √(1 − x²)))`.
    pub(crate) fn asin(&mut self, x: TensorId) -> Result<TensorId, Fault> {
        let (data_type, x) = (self.builder.data_type(x), self.cast(x, D::F32)?);
        let one = self.float(1.0)?;
        let (below, above) = (self.both(K::Subtract, one, x)?, self.both(K::Add, one, x)?);
        let product = self.both(K::Multiply, below, above)?;
        let root = self.same(K::Sqrt, product)?;
        let sum = self.both(K::Add, one, root)?;
        let tangent = self.both(K::Divide, x, sum)?;
        self.twice_arc(tangent, data_type)
    }

    /// The inverse of the cosine, `2 · atan(√((1 − x) / (1 + x)))`.
    pub(crate) fn acos(&mut self, x: TensorId) -> Result<TensorId, Fault> {
        let (data_type, x) = (self.builder.data_type(x), self.cast(x, D::F32)?);
        let one = self.float(1.0)?;
        let (below, above) = (self.both(K::Subtract, one, x)?, self.both(K::Add, one, x)?);
        let share = self.both(K::Divide, below, above)?;
        let tangent = self.same(K::Sqrt, share)?;
        self.twice_arc(tangent, data_type)
    }

    fn twice_arc(&mut self, tangent: TensorId, to: DataType) -> Result<TensorId, Fault> {
        let angle = self.arc(tangent)?;
        let twice = self.both(K::Add, angle, angle)?;
        self.cast(twice, to)
    }

    /// The inverse of the hyperbolic sine, `ln(1 + |x| + x² / (1 + √(1 + x²)))`.
    pub(crate) fn asinh(&mut self, x: TensorId) -> Result<TensorId, Fault> {
        let (data_type, x) = (self.builder.data_type(x), self.cast(x, D::F32)?);
        let (one, size) = (self.float(1.0)?, self.same(K::Abs, x)?);
        let squared = self.same(K::Square, size)?;
        let above = self.both(K::Add, one, squared)?;
        let root = self.same(K::Sqrt, above)?;
        let sum = self.both(K::Add, one, root)?;
        let share = self.both(K::Divide, squared, sum)?;
        let beyond = self.both(K::Add, size, share)?;
        let log = self.log_beyond_one(beyond)?;
        let log = self.or_of_twice(size, log)?;
        let result = self.with_sign_of(x, log)?;
        self.cast(result, data_type)
    }

    /// The inverse of the hyperbolic cosine, `ln(1 + (x − 1) + √(x − 1) · √(x + 1))`.
    pub(crate) fn acosh(&mut self, x: TensorId) -> Result<TensorId, Fault> {
        let (data_type, x) = (self.builder.data_type(x), self.cast(x, D::F32)?);
        let one = self.float(1.0)?;
        let (below, above) = (self.both(K::Subtract, x, one)?, self.both(K::Add, x, one)?);
        let roots = [self.same(K::Sqrt, below)?, self.same(K::Sqrt, above)?];
        let product = self.both(K::Multiply, roots[0], roots[1])?;
        let beyond = self.both(K::Add, below, product)?;
        let log = self.log_beyond_one(beyond)?;
        let result = self.or_of_twice(x, log)?;
        self.cast(result, data_type)
    }

    /// The inverse of the hyperbolic tangent, `ln(1 + 2 · |x| / (1 − |x|)) / 2`.
    pub(crate) fn atanh(&mut self, x: TensorId) -> Result<TensorId, Fault> {
        let (data_type, x) = (self.builder.data_type(x), self.cast(x, D::F32)?);
        let (one, half, size) = (self.float(1.0)?, self.float(0.5)?, self.same(K::Abs, x)?);
        let (twice, rest) = (self.both(K::Add, size, size)?, self.both(K::Subtract, one, size)?);
        let beyond = self.both(K::Divide, twice, rest)?;
        let log = self.log_beyond_one(beyond)?;
        let log = self.both(K::Multiply, log, half)?;
        let result = self.with_sign_of(x, log)?;
        self.cast(result, data_type)
    }

    /// `ln(1 + t)`: the logarithm of the rounded sum, times what rounding made of `t`.
    fn log_beyond_one(&mut self, t: TensorId) -> Result<TensorId, Fault> {
        let one = self.float(1.0)?;
        let sum = self.both(K::Add, one, t)?;
        let log = self.same(K::Log, sum)?;
        let found = self.both(K::Subtract, sum, one)?;
        let share = self.both(K::Divide, t, found)?;
        let result = self.both(K::Multiply, log, share)?;
        // Of a sum of 1 nothing is found, and of an infinity no share.
        let is_small = self.predicate(K::Equal, sum, one)?;
        let is_infinite = self.emit(K::IsInf, &[], &[t], D::Boolean)?;
        let result = self.select(is_small, t, result)?;
        self.select(is_infinite, log, result)
    }

    /// `ln(2 · x)` of large numbers, of which more than twice as much may be no number.
    fn or_of_twice(&mut self, x: TensorId, otherwise: TensorId) -> Result<TensorId, Fault> {
        let (edge, two) = (self.float(LARGE)?, self.float(LN_2)?);
        let is_large = self.predicate(K::Greater, x, edge)?;
        let log = self.same(K::Log, x)?;
        let of_twice = self.both(K::Add, log, two)?;
        self.select(is_large, of_twice, otherwise)
    }

    /// The result of an odd function, given that of the absolute value; a zero keeps its sign.
    fn with_sign_of(&mut self, x: TensorId, of_size: TensorId) -> Result<TensorId, Fault> {
        let zero = self.float(0.0)?;
        let (below, opposite) = (self.predicate(K::Less, x, zero)?, self.same(K::Negative, of_size)?);
        let signed = self.select(below, opposite, of_size)?;
        let is_zero = self.predicate(K::Equal, x, zero)?;
        self.select(is_zero, x, signed)
    }
}
