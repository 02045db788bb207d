//! Arithmetic on each element.
//!
//! On bf16 and f16 the steps between are f32, so that only the result is rounded. Integers that an op lacks
//! are computed as wider ones: what wraps around in the wider type has the right low bits.

use sterna::{Attr, AttrValue, DataType, Direction, OpKind, TensorId};

use super::Steps;
use crate::error::{Fault, PortRef};

use DataType as D;
use OpKind as K;

/// The type in which arithmetic on whole numbers is exact but for wrapping; `None` for others.
pub(super) fn wide(data_type: DataType) -> Option<DataType> {
    match data_type {
        D::S8 | D::U8 | D::S16 | D::U16 => Some(D::S32),
        D::U32 | D::U64 => Some(D::S64),
        _ => None,
    }
}

fn is_unsigned(data_type: DataType) -> bool {
    matches!(data_type, D::U8 | D::U16 | D::U32 | D::U64)
}

impl Steps<'_, '_> {
    /// An op of one input, and integers of every width.
    pub(crate) fn signed(&mut self, kind: OpKind, x: TensorId) -> Result<TensorId, Fault> {
        let data_type = self.builder.data_type(x);
        match wide(data_type) {
            // What has no sign is its own absolute value.
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
            // Order is what the type says; of f64 a NaN wins as well.
            _ if matches!(kind, K::Maximum | K::Minimum) && matches!(data_type, D::U64 | D::F64) => {
                let order = if kind == K::Maximum { K::GreaterEqual } else { K::LessEqual };
                let mut first = self.emit(order, attrs, &[a, b], D::Boolean)?;
                if data_type == D::F64 {
                    let nan = self.emit(K::IsNaN, &[], &[a], D::Boolean)?;
                    first = self.predicate(K::LogicalOr, first, nan)?;
                }
                self.select(first, a, b)
            }
            // Quotients of the largest numbers are no quotients of numbers with a sign.
            Some(D::S64) if data_type == D::U64 && matches!(kind, K::Divide | K::Modulo) => {
                let port = PortRef { direction: Direction::Input, id: 0, name: "" };
                let needed = "s8, s16, s32, s64, u8, u16, u32; an op that divides u64";
                Err(Fault::of_type(port, data_type, needed))
            }
            Some(wide) => {
                let (a, b) = (self.cast(a, wide)?, self.cast(b, wide)?);
                let y = self.emit_declared(kind, attrs, &[a, b], wide)?;
                self.cast(y, data_type)
            }
            None => self.emit_declared(kind, attrs, &[a, b], data_type),
        }
    }

    /// The quotient of two numbers of one type; of whole ones it is cut off.
    pub(crate) fn cut_quotient(
        &mut self,
        attrs: &[(Attr, AttrValue)],
        a: TensorId,
        b: TensorId,
    ) -> Result<TensorId, Fault> {
        let down = self.pair(K::Divide, attrs, a, b)?;
        let data_type = self.builder.data_type(a);
        if !matches!(data_type, D::S8 | D::S16 | D::S32 | D::S64) {
            return Ok(down);
        }
        // Rounded down is one less than cut off, if something is left and the signs differ.
        let wide = wide(data_type).unwrap_or(data_type);
        let (a, b, down) = (self.cast(a, wide)?, self.cast(b, wide)?, self.cast(down, wide)?);
        let back = self.both(K::Multiply, down, b)?;
        let rest = self.predicate(K::NotEqual, back, a)?;
        let (zero, one) = (self.number(wide, 0.0)?, self.number(wide, 1.0)?);
        let (below, under) = (self.predicate(K::Less, a, zero)?, self.predicate(K::Less, b, zero)?);
        let differ = self.predicate(K::LogicalXor, below, under)?;
        let moved = self.predicate(K::LogicalAnd, rest, differ)?;
        let up = self.both(K::Add, down, one)?;
        let cut = self.select(moved, up, down)?;
        self.cast(cut, data_type)
    }

    /// The remainder of two whole numbers of one type, which has the sign of the dividend.
    pub(crate) fn cut_remainder(&mut self, a: TensorId, b: TensorId) -> Result<TensorId, Fault> {
        let data_type = self.builder.data_type(a);
        if is_unsigned(data_type) {
            return self.pair(K::Modulo, &[], a, b);
        }
        let wide = wide(data_type).unwrap_or(data_type);
        let (a, b) = (self.cast(a, wide)?, self.cast(b, wide)?);
        let (sizes, zero) = ([self.same(K::Abs, a)?, self.same(K::Abs, b)?], self.number(wide, 0.0)?);
        let rest = self.both(K::Modulo, sizes[0], sizes[1])?;
        let below = self.predicate(K::Less, a, zero)?;
        let negative = self.same(K::Negative, rest)?;
        let rest = self.select(below, negative, rest)?;
        self.cast(rest, data_type)
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
        let (data_type, x) = (self.builder.data_type(x), self.cast(x, D::F32)?);
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
        self.cast(result, data_type)
    }

    /// `(x − mean) / √(variance + epsilon) · scale + shift`, in f32.
    pub(crate) fn standardized(
        &mut self,
        x: TensorId,
        [mean, variance]: [TensorId; 2],
        epsilon: f32,
        [scale, shift]: [Option<TensorId>; 2],
    ) -> Result<TensorId, Fault> {
        let epsilon = self.float(epsilon)?;
        let moved = self.emit(K::Add, &[], &[variance, epsilon], D::F32)?;
        let deviation = self.same(K::Sqrt, moved)?;
        let centred = self.emit(K::Subtract, &[], &[x, mean], D::F32)?;
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
