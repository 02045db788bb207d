//! Arithmetic on each element.
//!
//! On bf16 and f16 the steps between are f32, so that only the result is rounded. Integers that an op lacks
//! are computed as wider ones: what wraps around in the wider type has the right low bits.

use sterna::{Attr, AttrValue, DataType, OpKind, TensorId};

use super::Steps;
use crate::compose::{is_float, is_integer};
use crate::constant::Constant;
use crate::error::{Fault, PortRef};
use crate::weights::{integers, one_float};

use DataType as D;
use OpKind as K;

/// The largest number of f8_e4m3, and of f8_e5m2.
const LARGEST: [(DataType, f32); 2] = [(D::F8E4m3, 448.0), (D::F8E5m2, 57344.0)];

/// The type in which arithmetic on whole numbers is exact but for wrapping; `None` for others.
pub(super) fn wide(data_type: DataType) -> Option<DataType> {
    match data_type {
        D::S8 | D::U8 | D::S16 | D::U16 => Some(D::S32),
        D::U32 | D::U64 => Some(D::S64),
        _ => None,
    }
}

/// The number that all elements of a constant are; `None` if they differ.
fn one_number(value: &Constant) -> Option<f64> {
    let Some(list) = integers(value) else { return one_float(value) };
    let first = *list.first()?;
    list.iter().all(|number| *number == first).then_some(first as f64)
}

fn is_unsigned(data_type: DataType) -> bool {
    matches!(data_type, D::U8 | D::U16 | D::U32 | D::U64)
}

impl Steps<'_, '_> {
    /// An op of one input, and integers of every width.
    pub(crate) fn signed(&mut self, kind: OpKind, x: TensorId) -> Result<TensorId, Fault> {
        let data_type = self.builder.data_type(x);
        match wide(data_type) {
            // An unsigned integer is its own absolute value.
            Some(_) if kind == K::Abs && is_unsigned(data_type) => Ok(x),
            Some(wide) => {
                let x = self.cast(x, wide)?;
                let y = self.same(kind, x)?;
                self.cast(y, data_type)
            }
            None => self.same(kind, x),
        }
    }

    /// An op of two inputs of one type, and integers of every width.
    pub(crate) fn pair(
        &mut self,
        kind: OpKind,
        attrs: &[(Attr, AttrValue)],
        a: TensorId,
        b: TensorId,
    ) -> Result<TensorId, Fault> {
        let data_type = self.builder.data_type(a);
        match wide(data_type) {
            // Order is what the type says.
            _ if matches!(kind, K::Maximum | K::Minimum) && data_type == D::U64 => {
                let order = if kind == K::Maximum { K::GreaterEqual } else { K::LessEqual };
                let first = self.emit(order, attrs, &[a, b], D::Boolean)?;
                self.select(first, a, b)
            }
            // Quotients of the largest numbers are no quotients of numbers with a sign.
            _ if data_type == D::U64 && matches!(kind, K::Divide | K::Modulo) => {
                let [quotient, rest] = self.long_division(attrs, a, b)?;
                Ok(if kind == K::Divide { quotient } else { rest })
            }
            Some(wide) => {
                let (a, b) = (self.cast(a, wide)?, self.cast(b, wide)?);
                let y = self.emit_declared(kind, attrs, &[a, b], wide)?;
                self.cast(y, data_type)
            }
            None => self.emit_declared(kind, attrs, &[a, b], data_type),
        }
    }

    /// Each bit of an integer inverted: −1 − x, or the largest number less x.
    pub(crate) fn bitwise_not(&mut self, x: TensorId) -> Result<TensorId, Fault> {
        let data_type = self.builder.data_type(x);
        let all = match data_type {
            D::U8 => self.number(data_type, u8::MAX.into())?,
            D::U16 => self.number(data_type, u16::MAX.into())?,
            D::U32 => self.number(data_type, u32::MAX.into())?,
            D::U64 => self.builder.constant(Constant::from_slice(&[], &[u64::MAX])?)?,
            _ => self.number(data_type, -1.0)?,
        };
        self.pair(K::Subtract, &[], all, x)
    }

    /// Half of a number of u64, rounded down, in s64.
    pub(crate) fn halved(&mut self, x: TensorId) -> Result<TensorId, Fault> {
        let x = self.cast(x, D::S64)?;
        let (zero, two) = (self.number(D::S64, 0.0)?, self.number(D::S64, 2.0)?);
        let half = self.both(K::Divide, x, two)?;
        // The upper half of u64 is negative in s64, 2⁶⁴ below, and half of it 2⁶³: the sum wraps around.
        let missing = self.builder.constant(Constant::from_slice(&[], &[i64::MIN])?)?;
        let upper = self.predicate(K::Less, x, zero)?;
        let moved = self.both(K::Add, half, missing)?;
        self.select(upper, moved, half)
    }

    /// Quotient and remainder of numbers of u64, both 0 if the divisor is: twice the quotient of half the
    /// dividend, which s64 holds, or one more. By a divisor in the upper half of u64 the quotient is 0 or 1.
    fn long_division(
        &mut self,
        attrs: &[(Attr, AttrValue)],
        a: TensorId,
        b: TensorId,
    ) -> Result<[TensorId; 2], Fault> {
        let (half, divisor) = (self.halved(a)?, self.cast(b, D::S64)?);
        let (zero, one) = (self.number(D::S64, 0.0)?, self.number(D::S64, 1.0)?);
        let share = self.emit_declared(K::Divide, attrs, &[half, divisor], D::S64)?;
        let twice = self.both(K::Add, share, share)?;
        let lower = self.predicate(K::Greater, divisor, zero)?;
        let quotient = self.select(lower, twice, zero)?;
        let covered = self.both(K::Multiply, quotient, divisor)?;
        let a_signed = self.cast(a, D::S64)?;
        let rest = self.both(K::Subtract, a_signed, covered)?;
        let rest_unsigned = self.cast(rest, D::U64)?;
        let (fits, some) =
            (self.predicate(K::GreaterEqual, rest_unsigned, b)?, self.predicate(K::NotEqual, divisor, zero)?);
        let more = self.both(K::LogicalAnd, fits, some)?;
        let (up, less) = (self.both(K::Add, quotient, one)?, self.both(K::Subtract, rest, divisor)?);
        let (quotient, rest) = (self.select(more, up, quotient)?, self.select(more, less, rest)?);
        let rest = self.select(some, rest, zero)?;
        Ok([self.cast(quotient, D::U64)?, self.cast(rest, D::U64)?])
    }

    /// The quotient of two numbers of one type; of whole ones it is cut off, and 0 by a divisor of 0.
    pub(crate) fn cut_quotient(
        &mut self,
        attrs: &[(Attr, AttrValue)],
        a: TensorId,
        b: TensorId,
    ) -> Result<TensorId, Fault> {
        let data_type = self.builder.data_type(a);
        if !is_integer(data_type) || is_unsigned(data_type) {
            return self.pair(K::Divide, attrs, a, b);
        }
        let wide = wide(data_type).unwrap_or(data_type);
        let (a, b) = (self.cast(a, wide)?, self.cast(b, wide)?);
        let down = self.emit_declared(K::Divide, attrs, &[a, b], wide)?;
        // Rounded down is one less than cut off where the quotient is below 0 and something is left. By 0 the
        // quotient is 0, and the one that wraps around leaves nothing.
        let back = self.both(K::Multiply, down, b)?;
        let rest = self.predicate(K::NotEqual, back, a)?;
        let (zero, one) = (self.number(wide, 0.0)?, self.number(wide, 1.0)?);
        let below = self.predicate(K::Less, down, zero)?;
        let moved = self.predicate(K::LogicalAnd, rest, below)?;
        let up = self.both(K::Add, down, one)?;
        let cut = self.select(moved, up, down)?;
        self.cast(cut, data_type)
    }

    /// The remainder of two numbers of one type, which has the sign of the dividend; of whole ones it is 0 by
    /// a divisor of 0.
    pub(crate) fn cut_remainder(&mut self, a: TensorId, b: TensorId) -> Result<TensorId, Fault> {
        let data_type = self.builder.data_type(a);
        if is_unsigned(data_type) {
            return self.pair(K::Modulo, &[], a, b);
        }
        let wide = wide(data_type).unwrap_or(data_type);
        let (a, b, zero) = (self.cast(a, wide)?, self.cast(b, wide)?, self.number(wide, 0.0)?);
        if is_integer(data_type) {
            // The smallest number has no absolute value. Rounded down leaves one divisor more than cut off
            // where something is left whose sign is not that of the dividend.
            let rest = self.both(K::Modulo, a, b)?;
            let some = self.predicate(K::NotEqual, rest, zero)?;
            let (under, below) = (self.predicate(K::Less, rest, zero)?, self.predicate(K::Less, a, zero)?);
            let differ = self.predicate(K::LogicalXor, under, below)?;
            let moved = self.predicate(K::LogicalAnd, some, differ)?;
            let less = self.both(K::Subtract, rest, b)?;
            let cut = self.select(moved, less, rest)?;
            return self.cast(cut, data_type);
        }
        let sizes = [self.same(K::Abs, a)?, self.same(K::Abs, b)?];
        let rest = self.both(K::Modulo, sizes[0], sizes[1])?;
        let below = self.predicate(K::Less, a, zero)?;
        let negative = self.same(K::Negative, rest)?;
        let rest = self.select(below, negative, rest)?;
        // −0 is not below 0, but its own remainder.
        let whole = self.predicate(K::Equal, sizes[0], rest)?;
        let rest = self.select(whole, a, rest)?;
        self.cast(rest, data_type)
    }

    /// A tensor in a type; as a truth value, whether it is not 0; as f8 within the numbers of the type if it
    /// saturates. `None` if no op converts between the types.
    pub(crate) fn converted(
        &mut self,
        x: TensorId,
        to: DataType,
        saturates: bool,
    ) -> Result<Option<TensorId>, Fault> {
        let from = self.builder.data_type(x);
        if from == to {
            return Ok(Some(x));
        }
        if matches!(from, D::F8E4m3 | D::F8E5m2) {
            let scale = [(Attr::Scales, vec![1.0f32].into())];
            let number = self.emit(K::Dequantize, &scale, &[x], D::F32)?;
            return self.converted(number, to, saturates);
        }
        if to == D::Boolean {
            let zero = self.number(from, 0.0)?;
            return self.emit_declared(K::NotEqual, &[], &[x, zero], to).map(Some);
        }
        if !matches!(to, D::F8E4m3 | D::F8E5m2) {
            return if D::NUMERIC.contains(&to) { self.cast(x, to).map(Some) } else { Ok(None) };
        }
        if !is_float(from) {
            return Ok(None);
        }
        let number = self.cast(x, D::F32)?;
        self.cast_to_f8(number, to, saturates).map(Some)
    }

    /// Numbers of f32 as f8: kept within its numbers, or else beyond them as the type has it.
    pub(crate) fn cast_to_f8(
        &mut self,
        mut x: TensorId,
        to: DataType,
        saturates: bool,
    ) -> Result<TensorId, Fault> {
        if saturates {
            let most = LARGEST.iter().find(|(of, _)| *of == to).map_or(f32::MAX, |(_, most)| *most);
            let bounds: [(Attr, AttrValue); 2] = [(Attr::Min, (-most).into()), (Attr::Max, most.into())];
            x = self.emit(K::Clamp, &bounds, &[x], D::F32)?;
        }
        self.emit(K::Quantize, &[(Attr::Scales, vec![1.0f32].into())], &[x], to)
    }

    /// Numbers to the power of others. One exponent that is known for all has ops of its own.
    pub(crate) fn powers(
        &mut self,
        attrs: &[(Attr, AttrValue)],
        [base, exponents]: [TensorId; 2],
        ports: [PortRef; 2],
    ) -> Result<TensorId, Fault> {
        let types = [base, exponents].map(|tensor| self.builder.data_type(tensor));
        let is_number = |data_type: &DataType| D::NUMERIC.contains(data_type);
        if let Some(place) = types.iter().position(|data_type| !is_number(data_type)) {
            return Err(Fault::of_type(ports[place], types[place], "a type of numbers"));
        }
        if let Some(exponent) = self.builder.value(exponents)
            && let Some(number) = one_number(exponent)
            && self.keeps_dims(base, exponent.dims())
            && let Some(power) = self.one_power(base, number)?
        {
            return Ok(power);
        }
        let within = |data_type: DataType| match data_type {
            D::U64 => None,
            D::U32 | D::S64 => Some(D::S64),
            _ => Some(D::S32),
        };
        let common = match types {
            [of, to] if is_float(of) && (is_float(to) || wide(to) == Some(D::S32)) => D::F32,
            [of, to] if is_integer(of) && is_integer(to) => match [of, to].map(within) {
                [_, None] => return Err(Fault::of_type(ports[1], to, "any other type of numbers")),
                [Some(D::S32), Some(D::S32)] => D::S32,
                _ => D::S64,
            },
            // It holds the integers of all types but the widest.
            _ => D::F64,
        };
        // Ops on bf16 and f16 round once.
        let common = if types[0] == types[1] && common == D::F32 { types[0] } else { common };
        let (x, y) = (self.cast(base, common)?, self.cast(exponents, common)?);
        let power = self.emit_declared(K::Power, attrs, &[x, y], common)?;
        self.cast(power, types[0])
    }

    /// True if a tensor keeps its shape if one of these dims is broadcast to it.
    fn keeps_dims(&self, tensor: TensorId, dims: &[i64]) -> bool {
        let Some(onto) = self.builder.dims(tensor) else { return dims.is_empty() };
        let pairs = || onto.iter().rev().zip(dims.iter().rev());
        dims.len() <= onto.len() && pairs().all(|(onto, &dim)| dim == 1 || dim == *onto)
    }

    /// A power whose exponent is one number, if it has ops of its own.
    fn one_power(&mut self, base: TensorId, exponent: f64) -> Result<Option<TensorId>, Fault> {
        let data_type = self.builder.data_type(base);
        if is_float(data_type) {
            let attrs = [(Attr::Beta, (exponent as f32).into())];
            return self.emit_declared(K::Pow, &attrs, &[base], data_type).map(Some);
        }
        match exponent {
            1.0 => Ok(Some(base)),
            2.0 => self.pair(K::Multiply, &[], base, base).map(Some),
            _ => Ok(None),
        }
    }

    /// To the nearest whole number, halves away from zero.
    pub(crate) fn rounded_away(&mut self, x: TensorId) -> Result<TensorId, Fault> {
        let data_type = self.builder.data_type(x);
        let (zero, one) = (self.number(data_type, 0.0)?, self.number(data_type, 1.0)?);
        let (size, half) = (self.same(K::Abs, x)?, self.number(data_type, 0.5)?);
        let down = self.same(K::Floor, size)?;
        // No rest is rounded, and a sum only if there is none.
        let rest = self.both(K::Subtract, size, down)?;
        let (up, is_up) = (self.both(K::Add, down, one)?, self.predicate(K::GreaterEqual, rest, half)?);
        let rounded = self.select(is_up, up, down)?;
        let (below, negative) = (self.predicate(K::Less, x, zero)?, self.same(K::Negative, rounded)?);
        let signed = self.select(below, negative, rounded)?;
        // −0 is not below 0.
        let is_whole = self.predicate(K::Equal, size, down)?;
        self.select(is_whole, x, signed)
    }

    /// −1, 0 or 1; NaN stays.
    pub(crate) fn sign(&mut self, x: TensorId) -> Result<TensorId, Fault> {
        let data_type = self.builder.data_type(x);
        let (zero, one) = (self.number(data_type, 0.0)?, self.number(data_type, 1.0)?);
        let above = self.predicate(K::Greater, x, zero)?;
        let result = self.select(above, one, x)?;
        if is_unsigned(data_type) {
            return Ok(result);
        }
        let below = self.predicate(K::Less, x, zero)?;
        let minus = self.number(data_type, -1.0)?;
        self.select(below, minus, result)
    }

    /// `gamma · (x > 0 ? x : alpha · (eˣ − 1))`.
    pub(crate) fn selu(&mut self, x: TensorId, alpha: f32, gamma: TensorId) -> Result<TensorId, Fault> {
        let data_type = self.builder.data_type(x);
        let x = self.cast(x, D::F32)?;
        let bent = self.emit(K::Elu, &[(Attr::Alpha, alpha.into())], &[x], D::F32)?;
        self.emit(K::Multiply, &[], &[bent, gamma], data_type)
    }

    /// `x / (1 + |x|)`.
    pub(crate) fn softsign(&mut self, x: TensorId) -> Result<TensorId, Fault> {
        let (data_type, one) = (self.builder.data_type(x), self.float(1.0)?);
        let size = self.same(K::Abs, x)?;
        let below = self.emit(K::Add, &[], &[size, one], D::F32)?;
        self.emit(K::Divide, &[], &[x, below], data_type)
    }

    /// `sin(x) / cos(x)`.
    pub(crate) fn tan(&mut self, x: TensorId) -> Result<TensorId, Fault> {
        let (data_type, x) = (self.builder.data_type(x), self.cast(x, D::F32)?);
        let (sine, cosine) = (self.same(K::Sin, x)?, self.same(K::Cos, x)?);
        self.emit(K::Divide, &[], &[sine, cosine], data_type)
    }

    /// The hyperbolic cosine, `t + 1 / (4 · t)` with `t = exp(|x| − ln 2)`, which is finite wherever the
    /// result is; times the hyperbolic tangent it is the hyperbolic sine.
    pub(crate) fn hyperbolic(&mut self, x: TensorId, is_sine: bool) -> Result<TensorId, Fault> {
        let (data_type, x) = (self.builder.data_type(x), self.cast(x, D::F32)?);
        let (half, quarter) = (self.float(std::f32::consts::LN_2)?, self.float(0.25)?);
        let size = self.same(K::Abs, x)?;
        let moved = self.both(K::Subtract, size, half)?;
        let power = self.same(K::Exp, moved)?;
        let rest = self.both(K::Divide, quarter, power)?;
        let cosine = self.both(K::Add, power, rest)?;
        if !is_sine {
            return self.cast(cosine, data_type);
        }
        let tangent = self.same(K::Tanh, x)?;
        self.emit(K::Multiply, &[], &[cosine, tangent], data_type)
    }

    /// The error function: of small numbers its series, of others what is in GELU, `z / 2 · (1 + erf(z /
    /// √2))`, on the side on which nothing cancels out.
    pub(crate) fn erf(&mut self, x: TensorId) -> Result<TensorId, Fault> {
        // 2 / √π · (−1)ⁿ / (n! · (2·n + 1)), from the last one on.
        const SERIES: [f32; 8] = [
            -1.492_565e-5,
            1.205_533_3e-4,
            -8.548_327e-4,
            5.223_977_6e-3,
            -2.686_617e-2,
            1.128_379_2e-1,
            -3.761_263_9e-1,
            std::f32::consts::FRAC_2_SQRT_PI,
        ];
        let (data_type, operand) = (self.builder.data_type(x), x);
        let x = self.cast(x, D::F32)?;
        let (size, zero, one) = (self.same(K::Abs, x)?, self.float(0.0)?, self.float(1.0)?);
        let squared = self.same(K::Square, x)?;
        let mut sum = self.float(SERIES[0])?;
        for factor in &SERIES[1..] {
            let factor = self.float(*factor)?;
            let product = self.both(K::Multiply, squared, sum)?;
            sum = self.both(K::Add, product, factor)?;
        }
        let near = self.both(K::Multiply, sum, x)?;
        // Beyond 4 it is 1 in f32; an infinity over itself would be NaN.
        let bounds: [(Attr, AttrValue); 2] = [(Attr::Min, 0.5f32.into()), (Attr::Max, 4.0f32.into())];
        let within = self.emit(K::Clamp, &bounds, &[size], D::F32)?;
        let (root, two) = (self.float(std::f32::consts::SQRT_2)?, self.float(2.0)?);
        let scaled = self.both(K::Multiply, within, root)?;
        let bent = self.emit(K::GELU, &[(Attr::Mode, "gelu_erf".into())], &[scaled], D::F32)?;
        let share = self.both(K::Divide, bent, scaled)?;
        let twice = self.both(K::Multiply, share, two)?;
        let far = self.both(K::Subtract, twice, one)?;
        let opposite = self.same(K::Negative, far)?;
        let below = self.predicate(K::Less, x, zero)?;
        let far = self.select(below, opposite, far)?;
        let edge = self.float(0.5)?;
        let is_far = self.predicate(K::Greater, size, edge)?;
        let result = self.select(is_far, far, near)?;
        let result = self.cast(result, data_type)?;
        self.builder.is_erf_of(result, operand);
        Ok(result)
    }

    /// `centred / √(variance + epsilon) · scale + shift`, in f32.
    pub(crate) fn standardized(
        &mut self,
        centred: TensorId,
        variance: TensorId,
        epsilon: f32,
        [scale, shift]: [Option<TensorId>; 2],
    ) -> Result<TensorId, Fault> {
        let epsilon = self.float(epsilon)?;
        let moved = self.emit(K::Add, &[], &[variance, epsilon], D::F32)?;
        let deviation = self.same(K::Sqrt, moved)?;
        let mut result = self.both(K::Divide, centred, deviation)?;
        if let Some(scale) = scale {
            result = self.emit(K::Multiply, &[], &[result, scale], D::F32)?;
        }
        if let Some(shift) = shift {
            result = self.emit(K::Add, &[], &[result, shift], D::F32)?;
        }
        Ok(result)
    }
}
