//! Blocks put beside and on top of each other.

use sterna::{Attr, DataType, OpKind, TensorId};

use super::{Steps, Windows};
use crate::compose::stored;
use crate::constant::Constant;
use crate::dims::is_known;
use crate::error::Fault;
use crate::weights::element_count;

use DataType as D;
use OpKind as K;

/// The most elements of blocks that are added up for one of the result.
const LARGEST_SUM: usize = 256;
/// The most places of an image, and elements of its blocks.
const LARGEST_IMAGE: i64 = 1 << 24;

/// Elements of blocks along a dim of an image.
struct Along {
    /// For each place of the dim the elements that lie there, as offsets in a plane of them.
    places: Vec<Vec<i32>>,
    /// The most elements at one place.
    depth: usize,
}

/// A dim of an image: its length, that of a block, and the number of blocks.
#[derive(Clone, Copy)]
struct Length {
    image: i64,
    block: i64,
    count: i64,
}

impl Along {
    /// The elements along dim `at`, whose offsets are multiples of two steps: that of an element of a block,
    /// and that of a block.
    fn new(length: Length, windows: &Windows, at: usize, [element, next]: [i64; 2]) -> Self {
        let mut places = vec![Vec::new(); length.image as usize];
        for within in 0..length.block {
            for number in 0..length.count {
                let place = number * windows.strides[at] + within * windows.dilations[at] - windows.begin[at];
                if let Some(here) = usize::try_from(place).ok().and_then(|place| places.get_mut(place)) {
                    here.push((within * element + number * next) as i32);
                }
            }
        }
        let depth = places.iter().map(Vec::len).max().unwrap_or(0).max(1);
        Self { places, depth }
    }
}

/// The dims of an image; `None` if no such blocks cover it so often, or so many that it would be too large.
fn lengths(image: &[i64], block: &[i64], windows: &Windows, columns: i64) -> Option<Vec<Length>> {
    let size = element_count(block).filter(|&size| size > 0)?;
    let area = element_count(image).filter(|&area| area > 0)?;
    let pads = windows.begin.iter().chain(&windows.end);
    let is_small = area <= LARGEST_IMAGE
        && size.checked_mul(columns).is_some_and(|all| (1..=LARGEST_IMAGE).contains(&all))
        && pads.into_iter().all(|pad| (0..=LARGEST_IMAGE).contains(pad));
    if !is_small || image.len() != block.len() {
        return None;
    }
    let length = |at: usize| {
        let extent = (block[at] - 1).checked_mul(windows.dilations[at])?.checked_add(1)?;
        let rest = image[at] + windows.begin[at] + windows.end[at] - extent;
        let count = (rest >= 0).then(|| rest / windows.strides[at] + 1)?;
        Some(Length { image: image[at], block: block[at], count })
    };
    let lengths: Vec<Length> = (0..image.len()).map(length).collect::<Option<_>>()?;
    let counts: Vec<i64> = lengths.iter().map(|length| length.count).collect();
    (element_count(&counts) == Some(columns)).then_some(lengths)
}

impl Windows {
    pub(crate) const NEEDED_OF_BLOCKS: &str = "{N, C · elements of a block, blocks} with as many blocks as \
        cover the image, up to 2^24 places, and at most 256 elements that lie at a place";
}

impl Steps<'_, '_> {
    /// Images {N, C, image} of blocks, which are the columns of data {N, C · elements of a block, blocks}:
    /// they lie as windows do over an image that is padded, and the elements at a place are added up. `None`
    /// for dims that do not fit.
    pub(crate) fn overlaid(
        &mut self,
        x: TensorId,
        image: &[i64],
        block: &[i64],
        windows: &Windows,
    ) -> Result<Option<TensorId>, Fault> {
        let dims = self.builder.dims(x).unwrap_or_default().to_vec();
        let &[batch, rows, columns] = &*dims else { return Ok(None) };
        let lengths = if is_known(&dims[1..]) { lengths(image, block, windows, columns) } else { None };
        let (Some(lengths), Some(size)) = (lengths, element_count(block)) else { return Ok(None) };
        if rows % size != 0 {
            return Ok(None);
        }
        let channels = rows / size;
        let are_tiles = |(at, length): (usize, &Length)| {
            let is_plain = windows.dilations[at] == 1 && windows.begin[at] == 0 && windows.end[at] == 0;
            is_plain && windows.strides[at] == length.block && length.image == length.block * length.count
        };
        if lengths.iter().enumerate().all(are_tiles) && 2 + 2 * lengths.len() <= sterna::MAX_RANK {
            return self.tiles(x, [batch, channels], &lengths).map(Some);
        }
        let mut steps = [columns, 1];
        let mut each = Vec::new();
        for (at, &length) in lengths.iter().enumerate().rev() {
            each.push(Along::new(length, windows, at, steps));
            steps = [steps[0] * length.block, steps[1] * length.count];
        }
        each.reverse();
        let turns = each.iter().try_fold(1usize, |all, along| all.checked_mul(along.depth));
        let Some(turns) = turns.filter(|&turns| turns <= LARGEST_SUM) else { return Ok(None) };
        let declared = self.declared.take();
        let data_type = self.builder.data_type(x);
        let x = self.laid_out(x, &[batch, channels, steps[0]])?;
        let x = self.cast(x, D::F32)?;
        let mut sum = None;
        for turn in 0..turns {
            let part = self.layer_of(x, turn, &each)?;
            sum = Some(self.added(sum, part)?);
        }
        self.declared = declared;
        let Some(sum) = sum else { return Ok(None) };
        let sum = self.cast(sum, data_type)?;
        self.laid_out(sum, &[&[batch, channels], image].concat()).map(Some)
    }

    /// The image of blocks that lie side by side.
    fn tiles(&mut self, x: TensorId, front: [i64; 2], lengths: &[Length]) -> Result<TensorId, Fault> {
        let dims = |of: fn(&Length) -> Vec<i64>| -> Vec<i64> {
            front.into_iter().chain(lengths.iter().flat_map(of)).collect()
        };
        let blocks = lengths.iter().map(|length| length.block);
        let apart: Vec<i64> =
            front.into_iter().chain(blocks).chain(lengths.iter().map(|length| length.count)).collect();
        let count = lengths.len() as i64;
        let order: Vec<i64> =
            [0, 1].into_iter().chain((2..2 + count).flat_map(|at| [at + count, at])).collect();
        let apart = self.laid_out(x, &apart)?;
        let moved = dims(|length| vec![length.count, length.block]);
        let beside = self.of_dims(K::StaticTranspose, &[(Attr::Order, order.into())], &[apart], &moved)?;
        self.laid_out(beside, &dims(|length| vec![length.image]))
    }

    /// The elements of planes {N, C, elements of blocks} that lie at the places of an image in one turn; 0
    /// where there are fewer.
    fn layer_of(&mut self, x: TensorId, mut turn: usize, each: &[Along]) -> Result<TensorId, Fault> {
        let mut offsets: Vec<Option<i32>> = vec![Some(0)];
        for along in each {
            let own = turn % along.depth;
            turn /= along.depth;
            let here = |places: &Vec<i32>| places.get(own).copied();
            let with = |before: &Option<i32>| {
                let before = *before;
                along.places.iter().map(move |places| Some(before? + here(places)?))
            };
            offsets = offsets.iter().flat_map(with).collect();
        }
        let count = [offsets.len() as i64];
        let places: Vec<i32> = offsets.iter().map(|offset| offset.unwrap_or(0)).collect();
        let places = stored(self.builder, Constant::from_slice(&count, &places)?)?;
        let part = self.gathered(x, 2, places, 0)?;
        if offsets.iter().all(Option::is_some) {
            return Ok(part);
        }
        let is_there: Vec<bool> = offsets.iter().map(Option::is_some).collect();
        let is_there = stored(self.builder, Constant::from_slice(&count, &is_there)?)?;
        let zero = self.float(0.0)?;
        self.select(is_there, part, zero)
    }
}
