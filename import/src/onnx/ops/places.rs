//! Nodes that put elements elsewhere, choose by them, or take them for rows of bits.

use sterna::{DataType, OpKind, TensorId};

use super::arithmetic::floats;
use super::call::Call;
use super::quantization::quantized;
use crate::compose::{is_integer, resolved_axes};
use crate::error::Fault;
use crate::steps::{Around, Padding, Steps};

use DataType as D;
use OpKind as K;

pub(super) fn depth_to_space(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let (x, block, depth_first) = blocks(node)?;
    let result = node.steps.depth_to_space(x, block, depth_first)?;
    result.ok_or_else(|| node.unfit(0, "channels that the blocks divide"))
}

pub(super) fn space_to_depth(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let (x, block, depth_first) = blocks(node)?;
    let result = node.steps.space_to_depth(x, block, depth_first)?;
    result.ok_or_else(|| node.unfit(0, "dims that the block divides"))
}

fn blocks(node: &Call<'_, '_>) -> Result<(TensorId, i64, bool), Fault> {
    node.known_dims(0, "known dims, which are divided into blocks")?;
    let depth_first = node.word("mode", &[("DCR", false), ("CRD", true)], false)?;
    Ok((node.input(0), node.int("blocksize", 0), depth_first))
}

/// Sums or products of the elements up to each.
pub(super) fn running(node: &mut Call<'_, '_>, kind: OpKind) -> Result<TensorId, Fault> {
    let dims = node.known_dims(0, "known dims, along one of which elements are added up")?;
    let axes = resolved_axes(&node.numbers(1)?, dims.len()).filter(|axes| axes.len() == 1);
    let axis = axes.ok_or_else(|| node.bad_value(1, "one of the dims"))?[0];
    let (x, how) = (node.input(0), [node.flag("exclusive", false), node.flag("reverse", false)]);
    node.steps.running(kind, x, axis, how)
}

pub(super) fn tile(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let (times, x) = (node.numbers(1)?, node.input(0));
    node.known_dims(0, "known dims, which are repeated")?;
    let result = node.steps.tiled(x, &times)?;
    result.ok_or_else(|| node.unfit(0, "at most six dims, and as many numbers"))
}

/// The second of two values at the class that each element names, the first one at all others.
pub(super) fn one_hot(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let dims = node.known_dims(0, "known dims, beside which classes are put")?;
    let axis = node.axis(-1, dims.len() + 1)?;
    let depth = node.value(1, "a constant, which becomes a dim")?;
    let whole = crate::weights::integers(depth).filter(|list| list.len() == 1).map(|list| list[0]);
    let whole = whole.or_else(|| crate::weights::one_float(depth).map(|depth| depth as i64));
    let classes = whole.filter(|classes| (0..=1 << 24).contains(classes));
    let classes = classes.ok_or_else(|| node.bad_value(1, "a number of classes up to 2^24"))?;
    if node.steps.builder.known_dims(node.input(2)) != Some(&[2]) {
        return Err(node.unfit(2, "two values"));
    }
    let (places, values) = (node.input(0), node.input(2));
    let steps = &mut node.steps;
    let mut of = [values; 2];
    for (at, value) in of.iter_mut().enumerate() {
        let one = steps.part(values, 0, [at as i64, at as i64 + 1])?;
        *value = steps.in_shape(one, &[])?;
    }
    let [off, on] = of;
    let result = steps.one_hot(places, axis, classes, true, [on, off])?;
    result.ok_or_else(|| node.bad_type(0, "a type that holds all classes"))
}

/// Cut or padded on both sides to a shape.
pub(super) fn center_crop_pad(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let dims = node.known_dims(0, "known dims, which are cut or padded")?;
    let (shape, x) = (node.numbers(1)?, node.input(0));
    let axes = match node.ints("axes") {
        Some(axes) => resolved_axes(axes, dims.len()),
        None => Some((0..dims.len()).collect()),
    };
    let axes = axes.filter(|axes| axes.len() == shape.len() && shape.iter().all(|dim| *dim >= 0));
    let axes = axes.ok_or_else(|| node.bad_value(1, "a dim for each axis"))?;
    let nothing = node.steps.number(D::F32, 0.0)?;
    let fill = super::arithmetic::converted(node, nothing, node.data_type(0))?;
    let padding = |(&axis, &wanted): (&usize, &i64)| {
        let more = wanted - dims[axis];
        // Of an odd number, the smaller half stands in front, and goes in front.
        let front = if more < 0 { -(-more / 2) } else { more / 2 };
        Padding { axis, front, back: more - front }
    };
    let paddings: Vec<Padding> = axes.iter().zip(&shape).map(padding).collect();
    node.steps.padded(x, Around::Constant, &paddings, fill)
}

/// Pairs of elements rotated by the angles of their positions.
pub(super) fn rotary(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let data_type = floats(node)?;
    let dims = node.known_dims(0, "known dims")?;
    let is_interleaved = node.flag("interleaved", false);
    // Of three dims the heads lie within the last one, behind the rows.
    let (has_heads, [batch, heads, rows, depth]) = match *dims {
        [batch, heads, rows, depth] => (true, [batch, heads, rows, depth]),
        [batch, rows, width] => {
            let heads = node.int("num_heads", 0);
            if heads < 1 || width % heads != 0 {
                return Err(Fault::of_attribute("num_heads", format!("a number that divides {width}")));
            }
            (false, [batch, heads, rows, width / heads])
        }
        _ => return Err(node.unfit(0, "three or four dims")),
    };
    let rotated = match node.int("rotary_embedding_dim", 0) {
        0 => depth,
        rotated => rotated,
    };
    if !(0..=depth).contains(&rotated) || rotated % 2 != 0 {
        return Err(Fault::of_attribute("rotary_embedding_dim", format!("an even number up to {depth}")));
    }
    let rows = match has_heads {
        true => RotaryRows { dims: [batch, heads, rows, depth], has_heads_first: true },
        false => RotaryRows { dims: [batch, rows, heads, depth], has_heads_first: false },
    };
    let positions = node.optional(3).map(|positions| (3, positions));
    let angles = [1, 2].map(|cache| by_position(node, cache, positions, rows.angles(rotated)));
    let [cosine, sine] = angles;
    let x = node.steps.in_shape(node.input(0), &rows.dims)?;
    let part = RotaryPart { length: rotated, is_interleaved };
    let whole = rows.rotated(&mut node.steps, x, [cosine?, sine?], part, data_type)?;
    node.steps.in_shape(whole, &dims)
}

/// The layout of rows that are rotated.
#[derive(Debug, Clone, Copy)]
pub(super) struct RotaryRows {
    /// {batch, heads, rows, depth}, or {batch, rows, heads, depth}.
    pub(super) dims: [i64; 4],
    pub(super) has_heads_first: bool,
}

impl RotaryRows {
    /// The dims of the angles of all positions of the batch: half as many as elements of a row are rotated.
    pub(super) fn angles(self, rotated: i64) -> [i64; 3] {
        [self.dims[0], self.dims[if self.has_heads_first { 2 } else { 1 }], rotated / 2]
    }

    /// The rows, with as many elements as `part` says first rotated by angles of {batch or 1, rows, half of
    /// these}.
    pub(super) fn rotated(
        self,
        steps: &mut Steps<'_, '_>,
        x: TensorId,
        mut angles: [TensorId; 2],
        part: RotaryPart,
        data_type: D,
    ) -> Result<TensorId, Fault> {
        let depth = self.dims[3];
        for angle in &mut angles {
            let own = steps.dims(*angle)?;
            let beside = match self.has_heads_first {
                true => [own[0], 1, own[1], own[2]],
                false => [own[0], own[1], 1, own[2]],
            };
            *angle = steps.in_shape(*angle, &beside)?;
        }
        let front = steps.part(x, 3, [0, part.length])?;
        let mut parts = rotation(steps, front, angles, &self.dims, part, data_type)?;
        if part.length < depth {
            parts.push(steps.part(x, 3, [part.length, depth])?);
        }
        steps.joined(parts, 3)
    }
}

/// The elements of a row that are rotated.
#[derive(Debug, Clone, Copy)]
pub(super) struct RotaryPart {
    /// Their even number, from the first one on.
    pub(super) length: i64,
    /// The elements of a pair are neighbours; else they stand at one place of either half.
    pub(super) is_interleaved: bool,
}

/// The cosines or sines of all positions of a batch, {batch, rows, half a row}: as the input holds them, or
/// gathered from a cache {positions, half a row} by positions, which follow from an input.
pub(super) fn by_position(
    node: &mut Call<'_, '_>,
    port: usize,
    positions: Option<(usize, TensorId)>,
    needed: [i64; 3],
) -> Result<TensorId, Fault> {
    let (cache, own) = (node.input(port), node.known_dims(port, "known dims")?);
    let mut found = cache;
    if let Some((of_positions, positions)) = positions {
        if own.len() != 2 {
            return Err(node.unfit(port, "two dims, a row for each position"));
        }
        if node.steps.builder.known_dims(positions).is_none() {
            node.known_dims(of_positions, "known dims")?;
        }
        let known = node.steps.builder.value(positions).and_then(crate::weights::integers);
        if !known.as_ref().is_none_or(|all| all.iter().all(|place| (0..own[0]).contains(place))) {
            return Err(node.unfit(port, "rows for all positions"));
        }
        found = node.steps.gathered(cache, 0, positions, 0)?;
    }
    if node.steps.builder.known_dims(found) != Some(&needed) {
        return Err(node.unfit(port, "half of a row for each position"));
    }
    Ok(found)
}

/// The parts, one or two, of rows of pairs (a, b) as (a·cos − b·sin, a·sin + b·cos).
fn rotation(
    steps: &mut Steps<'_, '_>,
    rows: TensorId,
    [cosine, sine]: [TensorId; 2],
    apart: &[i64; 4],
    RotaryPart { length, is_interleaved }: RotaryPart,
    data_type: D,
) -> Result<Vec<TensorId>, Fault> {
    let mut halves = [rows; 2];
    for (at, half) in halves.iter_mut().enumerate() {
        let at = at as i64;
        *half = match is_interleaved {
            true => steps.strided(rows, 3, [at, i64::MAX, 2])?,
            false => steps.part(rows, 3, [at * length / 2, (at + 1) * length / 2])?,
        };
    }
    let [a, b] = halves;
    let mut product = |x, y| steps.emit(K::Multiply, &[], &[x, y], D::F32);
    let [ac, bs, as_, bc] = [product(a, cosine)?, product(b, sine)?, product(a, sine)?, product(b, cosine)?];
    let first = steps.emit(K::Subtract, &[], &[ac, bs], data_type)?;
    let second = steps.emit(K::Add, &[], &[as_, bc], data_type)?;
    if !is_interleaved {
        return Ok(vec![first, second]);
    }
    let single = [apart[0], apart[1], apart[2], length / 2, 1];
    let pair = vec![steps.in_shape(first, &single)?, steps.in_shape(second, &single)?];
    let pairs = steps.joined(pair, 4)?;
    Ok(vec![steps.in_shape(pairs, &[apart[0], apart[1], apart[2], length])?])
}

/// The bits moved by a number of places, by one bit of that number after the other: a step is a product or a
/// quotient. What leaves the type is gone.
pub(super) fn bit_shift(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    node.one_type(0, 1)?;
    let data_type = node.data_type(0);
    let left = node.attribute("direction").ok_or(Fault::MissingAttribute { attribute: "direction" })?;
    let left = match &*left.string {
        b"LEFT" => true,
        b"RIGHT" => false,
        _ => return Err(Fault::of_attribute("direction", "LEFT, RIGHT")),
    };
    let width = match data_type.size() {
        Some(size) if is_integer(data_type) => 8 * size as u32,
        _ => return Err(node.bad_type(0, "a type of whole numbers")),
    };
    let (mut x, places) = (node.input(0), node.input(1));
    let steps = &mut node.steps;
    // In s64 every number of places is what it is, but those of u64 that are too large either way.
    let mut places = steps.cast(places, D::S64)?;
    let (zero, one) = (steps.number(D::S64, 0.0)?, steps.number(D::S64, 1.0)?);
    let (below, most) = (steps.predicate(K::Less, places, zero)?, steps.number(D::S64, width.into())?);
    let beyond = steps.predicate(K::GreaterEqual, places, most)?;
    let outside = steps.predicate(K::LogicalOr, below, beyond)?;
    let wide = if matches!(data_type, D::S64 | D::U64 | D::U32) { D::S64 } else { D::S32 };
    let whole = x;
    let stays = steps.predicate(K::Equal, places, zero)?;
    let halves = data_type == D::U64 && !left;
    if halves {
        // Halves have no sign; the rest of the way is that of s64.
        x = steps.halved(x)?;
        places = steps.both(K::Subtract, places, one)?;
    }
    let mut result = steps.cast(x, wide)?;
    let gone = match left {
        true => steps.number(wide, 0.0)?,
        false => {
            // All bits are that of the sign.
            let (zero, minus) = (steps.number(wide, 0.0)?, steps.number(wide, -1.0)?);
            let negative = steps.predicate(K::Less, result, zero)?;
            steps.select(negative, minus, zero)?
        }
    };
    let kind = if left { K::Multiply } else { K::Divide };
    let two = steps.number(D::S64, 2.0)?;
    let mut rest = places;
    for bit in 0..width.trailing_zeros() {
        let odd = steps.both(K::Modulo, rest, two)?;
        let is_set = steps.predicate(K::Equal, odd, one)?;
        rest = steps.both(K::Divide, rest, two)?;
        let factor = steps.number(wide, (1u64 << (1u32 << bit)) as f64)?;
        let moved = steps.both(kind, result, factor)?;
        result = steps.select(is_set, moved, result)?;
    }
    let result = steps.select(outside, gone, result)?;
    let result = steps.cast(result, data_type)?;
    if halves { steps.select(stays, whole, result) } else { Ok(result) }
}

pub(super) fn bitwise_not(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    match is_integer(node.data_type(0)) {
        true => node.steps.bitwise_not(node.input(0)),
        false => Err(node.bad_type(0, "a type of whole numbers")),
    }
}

/// Refuses an operand of a product that is not of 8 bits, or whose zero point is of another type.
pub(super) fn check_whole(node: &Call<'_, '_>, input: usize, point: usize) -> Result<(), Fault> {
    if !matches!(node.data_type(input), D::S8 | D::U8) {
        return Err(node.bad_type(input, "s8, u8"));
    }
    node.known_dims(input, "known dims, one of which says how many products are added up")?;
    if node.optional(point).is_some() {
        node.one_type(input, point)?;
        node.known_dims(point, "known dims, which are laid beside the data")?;
    }
    Ok(())
}

/// The product of whole numbers in 8 bits: exact, in f32 or s32.
fn whole_product(node: &mut Call<'_, '_>, [a, b]: [[usize; 2]; 2]) -> Result<TensorId, Fault> {
    for [input, point] in [a, b] {
        check_whole(node, input, point)?;
    }
    let zeros = [node.optional(a[1]), node.optional(b[1])];
    let product = node.steps.whole_product([node.input(a[0]), node.input(b[0])], zeros)?;
    product.ok_or_else(|| {
        node.unfit(if zeros[0].is_some() { a[1] } else { b[1] }, "one number, or one for each row or column")
    })
}

pub(super) fn matmul_integer(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let product = whole_product(node, [[0, 2], [1, 3]])?;
    node.steps.cast(product, D::S32)
}

/// The product of numbers in 8 bits by their scales, in 8 bits again.
pub(super) fn qlinear_matmul(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let product = whole_product(node, [[0, 2], [3, 5]])?;
    let columns = node.known_dims(3, "known dims")?.last().copied();
    let mut result = node.steps.cast(product, D::F32)?;
    for input in [1, 4] {
        let dims = node.known_dims(input, "known dims")?;
        let is_of_columns = input == 4 && dims.len() == 1 && dims.last().copied() == columns;
        let mut scale = node.input(input);
        if dims.iter().all(|dim| *dim == 1) {
            scale = node.steps.in_shape(scale, &[])?;
        } else if !is_of_columns {
            let needed = if input == 4 { "one number, or one for each column" } else { "one number" };
            return Err(node.unfit(input, needed));
        }
        let scale = node.steps.cast(scale, D::F32)?;
        result = node.steps.both(K::Multiply, result, scale)?;
    }
    quantized(node, result, 6, 0)
}
