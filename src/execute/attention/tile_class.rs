//! Finds the classes of tiles of masked scores: bounds the value that enters SoftMax on boxes of indices.
//!
//! Elements of tensors are bounded by a scan of the box, if the bounds of another operand do not decide the
//! result without them.
#![allow(unsafe_code, reason = "elements are read from raw memory that was checked before")]

use std::ops::Range;

use smallvec::SmallVec;

use super::interval::Interval;
use super::score_bound::largest_score;
use crate::error::Result;
use crate::execute::bindings::Bindings;
use crate::execute::task_runner::TaskRunner;
use crate::kernels::Extent;
use crate::kernels::mask_scan::Scanned;
use crate::plan::{
    Base, CLASS_PART, CLASS_TILE, ClassifyPhase, DIVIDED_TILES, MaskElement, MaskNode, MaskOp, MaskedParts,
    Plan, TileClass, class, clear_row, note_constant, set_class, set_masked_parts,
};
use crate::types::dtype::DataType;
use crate::types::function::{Binary, EXP_IS_ZERO, Logic};

/// A tile whose numbers are no larger is worth an attempt without it: most rows have a score so far above
/// that nothing of the tile has a weight.
pub(super) const LOW: f64 = -256.0;

/// Finds the classes of all tiles.
pub(in crate::execute) fn run(
    phase: &ClassifyPhase,
    plan: &Plan,
    bindings: &Bindings,
    runner: &TaskRunner<'_>,
) -> Result<()> {
    let Base::Buffer(table) = phase.table else { return Ok(()) };
    let query_blocks = phase.query_blocks();
    let largest = match &phase.scores {
        Some(scores) => largest_score(scores, phase.scan, &plan.constants, bindings, runner)?,
        None => f64::INFINITY,
    };
    runner.run(phase.tasks(), |_, ranges| {
        let mut evaluator = Evaluator::new(phase, largest, &plan.constants, bindings);
        for task in ranges.flatten() {
            let (plane, query_block) = (task / query_blocks, task % query_blocks);
            let at = bindings.buffers[table].wrapping_add(phase.row_offset(plane, query_block));
            // SAFETY: the buffer has room for the table, and each row of the table is one task's.
            let row = unsafe { std::slice::from_raw_parts_mut(at, phase.row_bytes()) };
            evaluator.classify_row(plane, query_block, row);
        }
    })
}

/// Facts about a node's value in a box.
#[derive(Debug, Clone, Copy)]
struct Known {
    bounds: Interval,
    /// True if the value depends on the raw score.
    reads_score: bool,
    /// True if the value depends on the raw score nowhere, or everywhere in the same way: no condition and no
    /// mask decides between elements.
    is_uniform: bool,
    /// True if the value is what it is without masks: each Select chooses what depends on the score, and sums
    /// that are left out add 0.
    is_unchanged: bool,
    /// True if the value is NaN or +∞ only where the raw score makes it so.
    is_clean: bool,
}

impl Known {
    /// A value that does not depend on the raw score.
    fn of(bounds: Interval) -> Self {
        let is_clean = !bounds.may_poison();
        Self { bounds, reads_score: false, is_uniform: true, is_unchanged: true, is_clean }
    }

    /// True if the value is a number above 0 that does not depend on the raw score, so that a product with it
    /// has the sign of the other factor.
    fn is_factor(&self) -> bool {
        !self.reads_score && matches!(self.bounds, Interval::Floats { least, .. } if least > 0.0)
    }

    /// True if the value is a number that masks some scores to which it is added, and not all.
    fn may_mask(&self) -> bool {
        let is_low = |least: f64, most: f64| least <= LOW && most > LOW;
        !self.reads_score
            && matches!(self.bounds, Interval::Floats { least, most, .. } if is_low(least, most))
    }

    /// True if the value is −∞ for certain.
    fn is_masked(&self) -> bool {
        self.bounds.point() == Some(f64::NEG_INFINITY)
    }
}

/// Bounds the nodes of a mask expression on one box after another.
struct Evaluator<'a> {
    phase: &'a ClassifyPhase,
    /// A number that no score is larger than in size; ∞ if one may be NaN or infinite.
    largest: f64,
    /// The address of each node that is an element, at the indices of the plane.
    at: SmallVec<[*const u8; 24]>,
    starts: SmallVec<[*const u8; 24]>,
    /// The indices along each axis.
    space: SmallVec<[Range<usize>; 6]>,
    /// Facts about each node in the present box.
    known: SmallVec<[Option<Known>; 24]>,
    /// True if elements were taken for any numbers without a scan.
    takes_any: bool,
}

impl<'a> Evaluator<'a> {
    fn new(phase: &'a ClassifyPhase, largest: f64, constants: &[[u8; 8]], bindings: &Bindings) -> Self {
        let start = |node: &MaskNode| {
            let MaskOp::Element(MaskElement { base, offset, .. }) = node.op else { return std::ptr::null() };
            bindings.address(base, constants).wrapping_offset(offset)
        };
        let starts: SmallVec<[*const u8; 24]> = phase.expr.nodes.iter().map(start).collect();
        Self {
            phase,
            largest,
            at: starts.clone(),
            starts,
            space: phase.dims.iter().map(|_| 0..1).collect(),
            known: SmallVec::from_elem(None, phase.expr.nodes.len()),
            takes_any: false,
        }
    }

    /// Classifies the tiles of a row of the table.
    fn classify_row(&mut self, plane: usize, query_block: usize, row: &mut [u8]) {
        let phase = self.phase;
        self.known.fill(None);
        self.takes_any = false;
        for axis in 0..phase.dims.len() {
            self.space[axis] = match phase.plane_strides[axis] {
                0 => 0..1,
                stride => {
                    let index = plane / stride % phase.dims[axis] as usize;
                    index..index + 1
                }
            };
        }
        let queries = phase.dims[phase.query_axis] as usize;
        let first = query_block * CLASS_TILE;
        self.space[phase.query_axis] = first..queries.min(first + CLASS_TILE);
        for (node, at) in self.at.iter_mut().enumerate() {
            if let MaskOp::Element(element) = &phase.expr.nodes[node].op {
                let along = self.space.iter().zip(&element.strides);
                let offset = along.map(|(range, &stride)| range.start as isize * stride).sum();
                *at = self.starts[node].wrapping_offset(offset);
            }
        }
        clear_row(row);
        let key_blocks = phase.key_blocks();
        if phase.halves {
            self.classify_blocks(0..key_blocks, row);
        } else {
            (0..key_blocks).for_each(|block| self.classify_blocks(block..block + 1, row));
        }
        if phase.uses.divides {
            self.divide_tiles(row);
        }
    }

    /// Finds the parts of the first partial tiles of a row that are masked, or hold low numbers alone.
    fn divide_tiles(&mut self, row: &mut [u8]) {
        let phase = self.phase;
        let (queries, keys) = (self.space[phase.query_axis].clone(), phase.dims[phase.key_axis] as usize);
        let partial = |&block: &usize| class(row, block) == TileClass::Partial;
        let blocks: SmallVec<[usize; DIVIDED_TILES]> =
            (0..phase.key_blocks()).filter(partial).take(DIVIDED_TILES).collect();
        for (number, block) in blocks.into_iter().enumerate() {
            let first = block * CLASS_TILE;
            let tile = [first..keys.min(first + CLASS_TILE), queries.clone()];
            let (mut parts, mut low) = (MaskedParts::default(), f32::NEG_INFINITY);
            self.divide([0..CLASS_TILE, 0..CLASS_TILE], &tile, (&mut parts, &mut low));
            set_masked_parts(row, number, parts);
            note_constant(row, low);
        }
    }

    /// Adds the masked parts of a tile or of a quarter that is partial, and those of low numbers, of which
    /// `low` becomes the largest; `keys` and `queries` count from the start of the tile.
    fn divide(
        &mut self,
        [keys, queries]: [Range<usize>; 2],
        tile: &[Range<usize>; 2],
        (parts, low): (&mut MaskedParts, &mut f32),
    ) {
        let side = keys.len();
        if side <= CLASS_PART {
            return;
        }
        let halves = |range: &Range<usize>| {
            let middle = range.start + side / 2;
            [range.start..middle, middle..range.end]
        };
        let [upper, lower] =
            halves(&keys).map(|keys| halves(&queries).map(|queries| [keys.clone(), queries]));
        let quarters = upper.into_iter().chain(lower);
        let partial: SmallVec<[[Range<usize>; 2]; 4]> =
            quarters.filter(|quarter| !self.settle(quarter, tile, (&mut *parts, &mut *low))).collect();
        // Numbers that are not scanned, such as a bias of each head, tell as little of smaller parts
        // (decision: unscanned-parts).
        if partial.len() < 4 || !self.takes_any {
            for quarter in partial {
                self.divide(quarter, tile, (&mut *parts, &mut *low));
            }
        }
    }

    /// Adds the parts of a quarter of a tile if they are masked, or hold low numbers alone; false if the
    /// quarter is partial.
    fn settle(
        &mut self,
        [keys, queries]: &[Range<usize>; 2],
        tile: &[Range<usize>; 2],
        (parts, low): (&mut MaskedParts, &mut f32),
    ) -> bool {
        let phase = self.phase;
        let [of_keys, of_queries] = [(keys, &tile[0]), (queries, &tile[1])]
            .map(|(part, tile)| tile.start + part.start..tile.end.min(tile.start + part.end));
        if of_keys.is_empty() || of_queries.is_empty() {
            parts.add(keys, queries);
            return true;
        }
        (self.space[phase.key_axis], self.space[phase.query_axis]) = (of_keys, of_queries);
        self.forget_along(1 << phase.key_axis | 1 << phase.query_axis);
        match self.class() {
            (TileClass::Masked, _) => parts.add(keys, queries),
            (TileClass::Constant, constant) if f64::from(constant) <= LOW => {
                *low = low.max(constant);
                parts.add(keys, queries);
            }
            (class, _) => return class != TileClass::Partial,
        }
        true
    }

    /// Forgets what is known of nodes that vary along axes of a set.
    fn forget_along(&mut self, axes: u16) {
        for (node, known) in self.phase.expr.nodes.iter().zip(&mut self.known) {
            if node.varies & axes != 0 {
                *known = None;
            }
        }
    }

    /// Classifies blocks of keys: all at once if they are of one class, else each half on its own.
    fn classify_blocks(&mut self, blocks: Range<usize>, row: &mut [u8]) {
        if blocks.is_empty() {
            return;
        }
        let phase = self.phase;
        let keys = phase.dims[phase.key_axis] as usize;
        self.space[phase.key_axis] = blocks.start * CLASS_TILE..keys.min(blocks.end * CLASS_TILE);
        self.forget_along(1 << phase.key_axis);
        let (class, constant) = self.class();
        if class == TileClass::Constant {
            note_constant(row, constant);
        }
        let is_unchanged = class == TileClass::Full && self.root().is_unchanged;
        match class {
            // A row holds `Partial` from the start.
            TileClass::Partial if blocks.len() > 1 => {
                let middle = blocks.start + blocks.len() / 2;
                self.classify_blocks(blocks.start..middle, row);
                self.classify_blocks(middle..blocks.end, row);
            }
            TileClass::Partial => {}
            _ => blocks.for_each(|block| set_class(row, block, class, is_unchanged)),
        }
    }

    /// The class of the present box, and the constant of a constant one.
    fn class(&mut self) -> (TileClass, f32) {
        let root = self.root();
        let most = root.bounds.most().unwrap_or(f64::INFINITY);
        match root.bounds.point() {
            Some(f64::NEG_INFINITY) => (TileClass::Masked, f32::NEG_INFINITY),
            _ if most <= f64::from(EXP_IS_ZERO) && self.phase.uses.is_exponent => {
                (TileClass::Masked, f32::NEG_INFINITY)
            }
            Some(constant) if constant.is_finite() => (TileClass::Constant, constant as f32),
            _ if most <= LOW && !self.phase.uses.is_exponent => (TileClass::Constant, most as f32),
            _ if root.reads_score && root.is_uniform => (TileClass::Full, f32::NAN),
            _ => (TileClass::Partial, f32::NAN),
        }
    }

    /// Facts about the value that enters the SoftMax.
    fn root(&mut self) -> Known {
        self.known(self.phase.expr.nodes.len() - 1)
    }

    /// Facts about a node's value in the present box. The recursion is bounded, because the depth of
    /// expressions is limited.
    fn known(&mut self, node: usize) -> Known {
        if let Some(known) = self.known[node] {
            return known;
        }
        let phase = self.phase;
        let known = self.bounded(node, &phase.expr.nodes[node]);
        self.known[node] = Some(known);
        known
    }

    /// Facts about a node's value, from those about its operands.
    fn bounded(&mut self, index: usize, node: &MaskNode) -> Known {
        let of = node.data_type;
        let anything = Known::of(Interval::any(of));
        let operand = |place: usize| node.operands[place];
        let type_of = |place: usize| self.phase.expr.nodes[operand(place)].data_type;
        match &node.op {
            MaskOp::Score => {
                let bounds = Interval::within(self.largest, of);
                Known { reads_score: true, is_clean: true, ..Known::of(bounds) }
            }
            &MaskOp::Number(number) => Known::of(Interval::number(number, of)),
            MaskOp::Index { first, steps } => {
                let (mut least, mut most) = (i128::from(*first), i128::from(*first));
                for (range, &step) in self.space.iter().zip(steps) {
                    let ends = [range.start, range.end - 1].map(|index| index as i128 * i128::from(step));
                    least += ends[0].min(ends[1]);
                    most += ends[0].max(ends[1]);
                }
                Known::of(Interval::Integers { least, most })
            }
            MaskOp::Element(element) => Known::of(self.scanned(index, element, of)),
            MaskOp::Select => self.selected(node),
            &MaskOp::Logic(logic) => self.combined_by(logic, node),
            MaskOp::Not => {
                let x = self.known(operand(0));
                combined(x.bounds.not(), &[x])
            }
            &MaskOp::Compare(comparison) => {
                let (x, y) = (self.known(operand(0)), self.known(operand(1)));
                combined(x.bounds.compare(y.bounds, comparison), &[x, y])
            }
            &MaskOp::Classify(class) => {
                let x = self.known(operand(0));
                combined(x.bounds.classify(class), &[x])
            }
            &MaskOp::Unary(function, params) => {
                let x = self.known(operand(0));
                combined(x.bounds.unary(function, params, of), &[x])
            }
            &MaskOp::Sign(sign) => {
                let x = self.known(operand(0));
                combined(x.bounds.sign(sign, of), &[x])
            }
            MaskOp::Convert => {
                let from = type_of(0);
                let x = self.known(operand(0));
                rising(x.bounds.converted(from, of), &[x])
            }
            MaskOp::Binary(Binary::Add) if matches!(anything.bounds, Interval::Floats { .. }) => {
                self.added(node)
            }
            MaskOp::LeftOutSum => self.added(node),
            &MaskOp::Binary(function) => {
                let (x, y) = (self.known(operand(0)), self.known(operand(1)));
                let bounds = x.bounds.binary(y.bounds, function, of);
                match function {
                    Binary::Multiply if x.is_factor() || y.is_factor() => rising(bounds, &[x, y]),
                    Binary::Divide | Binary::Subtract if y.reads_score => combined(bounds, &[x, y]),
                    Binary::Divide if y.is_factor() => rising(bounds, &[x, y]),
                    Binary::Subtract | Binary::Maximum | Binary::Minimum => rising(bounds, &[x, y]),
                    _ => combined(bounds, &[x, y]),
                }
            }
            MaskOp::Any => {
                let operands: SmallVec<[Known; 3]> =
                    node.operands.iter().map(|&operand| self.known(operand)).collect();
                match node.reads_score {
                    // A leaf that the expression cannot bound may differ from element to element.
                    true if operands.is_empty() => {
                        Known { reads_score: true, is_uniform: false, is_clean: false, ..anything }
                    }
                    _ => combined(anything.bounds, &operands),
                }
            }
        }
    }

    /// A function of booleans. The bounds of one operand may decide the result without a scan of the other.
    fn combined_by(&mut self, logic: Logic, node: &MaskNode) -> Known {
        let x = self.known(node.operands[0]);
        if let (Logic::And, Some(false)) | (Logic::Or, Some(true)) = (logic, x.bounds.decided()) {
            return x;
        }
        let y = self.known(node.operands[1]);
        let bounds = x.bounds.logic(y.bounds, logic);
        match bounds.decided() {
            Some(_) => Known::of(bounds),
            None => combined(bounds, &[x, y]),
        }
    }

    /// A sum of floating-point numbers. A score that is masked by −∞ is masked, whatever the score is: NaN
    /// and +∞ of the score do not count.
    fn added(&mut self, node: &MaskNode) -> Known {
        let [x, y] = [node.operands[0], node.operands[1]];
        let [of_x, of_y] = [x, y].map(|operand| self.phase.expr.nodes[operand].reads_score);
        let [x, y] = [x, y].map(|operand| self.known(operand));
        for ((score, reads_score), (mask, is_score)) in [((x, of_x), (y, of_y)), ((y, of_y), (x, of_x))] {
            if reads_score && !is_score && mask.is_masked() && score.is_clean {
                return Known::of(mask.bounds);
            }
        }
        let bounds = x.bounds.binary(y.bounds, Binary::Add, node.data_type);
        let sum = combined(bounds, &[x, y]);
        let may_add = |known: &Known| known.reads_score && known.is_clean || !known.bounds.may_poison();
        let adds_zero = |known: &Known| known.reads_score || known.bounds.point() == Some(0.0);
        let is_left_out = matches!(node.op, MaskOp::LeftOutSum);
        Known {
            is_uniform: sum.is_uniform && !x.may_mask() && !y.may_mask(),
            is_unchanged: sum.is_unchanged && (!is_left_out || adds_zero(&x) && adds_zero(&y)),
            is_clean: may_add(&x) && may_add(&y),
            ..sum
        }
    }

    /// The choice of a condition: the branches that it may choose.
    fn selected(&mut self, node: &MaskNode) -> Known {
        let cond = self.known(node.operands[0]);
        match cond.bounds.decided() {
            Some(true) => self.known(node.operands[1]),
            Some(false) => self.known(node.operands[2]),
            None => {
                let (then, else_) = (self.known(node.operands[1]), self.known(node.operands[2]));
                Known {
                    bounds: then.bounds.join(else_.bounds),
                    reads_score: cond.reads_score || then.reads_score || else_.reads_score,
                    is_uniform: cond.reads_score && cond.is_uniform && then.is_uniform && else_.is_uniform,
                    is_unchanged: false,
                    is_clean: then.is_clean && else_.is_clean,
                }
            }
        }
    }

    /// True if several places along the outer axes share the elements of a tensor.
    fn is_shared(&self, element: &MaskElement) -> bool {
        let phase = self.phase;
        let mut outer =
            (0..phase.dims.len()).filter(|axis| ![phase.query_axis, phase.key_axis].contains(axis));
        outer.any(|axis| phase.dims[axis] != 1 && element.strides[axis] == 0) || phase.planes == 1
    }

    /// True if all numbers of a tile are so low that they may mask scores.
    ///
    /// # Safety
    ///
    /// Every element of the tile can be read, and the machine runs the level of the plan.
    unsafe fn may_mask(&self, of: DataType, tile: Scanned) -> bool {
        // SAFETY: as the caller promises.
        let bounds = unsafe { self.phase.scan.floats(of, tile) };
        bounds.is_some_and(|bounds| bounds.most <= LOW)
    }

    /// Bounds of the elements of the present box.
    fn scanned(&mut self, node: usize, element: &MaskElement, of: DataType) -> Interval {
        let phase = self.phase;
        let along = |axis: usize| match element.strides[axis] {
            0 => (1, 0),
            stride => (self.space[axis].len(), stride),
        };
        let (rows, row_stride) = along(phase.query_axis);
        let (columns, col_stride) = along(phase.key_axis);
        let keys = self.space[phase.key_axis].start as isize * element.strides[phase.key_axis];
        // The address is that of the first query of the row's tiles.
        let queries = (self.space[phase.query_axis].start % CLASS_TILE) as isize;
        let at = self.at[node].wrapping_offset(keys + queries * element.strides[phase.query_axis]);
        let tile = Scanned { at, row_stride, col_stride, extent: Extent { rows, columns } };
        // SAFETY: the strides of an element lead to one at all indices of the space, of which the box is a
        // part and none is empty, and the plan's level was available when the plan was made.
        unsafe {
            match Interval::any(of) {
                _ if of == DataType::Boolean => {
                    let (has_false, has_true) = phase.scan.booleans(tile);
                    Interval::truth(has_false, has_true)
                }
                any @ Interval::Integers { .. } => phase
                    .scan
                    .integers(of, tile)
                    .map_or(any, |(least, most)| Interval::Integers { least, most }),
                // A tensor that no two planes share takes as long to scan as to add, so a first row that is
                // not masked is enough.
                any @ Interval::Floats { .. }
                    if rows.min(columns) > 1
                        && !self.is_shared(element)
                        && !self.may_mask(of, tile.first_row()) =>
                {
                    self.takes_any = true;
                    any
                }
                any @ Interval::Floats { .. } => match phase.scan.floats(of, tile) {
                    Some(bounds) if bounds.least <= bounds.most => {
                        let nan = bounds.has_nan;
                        Interval::Floats { least: bounds.least, most: bounds.most, nan }
                    }
                    _ => any,
                },
            }
        }
    }
}

/// Facts about a function of values, given the bounds of its result. The function may make +∞ or NaN of
/// a score that is masked by −∞.
fn combined(bounds: Interval, operands: &[Known]) -> Known {
    let known = rising(bounds, operands);
    let is_unmasked = |operand: &Known| !operand.reads_score || operand.is_uniform;
    Known { is_clean: known.is_clean && operands.iter().all(is_unmasked), ..known }
}

/// Facts about a function of values that keeps −∞ of scores, given the bounds of its result.
fn rising(bounds: Interval, operands: &[Known]) -> Known {
    let reads_score = operands.iter().any(|operand| operand.reads_score);
    if !reads_score {
        return Known::of(bounds);
    }
    // A number beside the score decides nothing if it is finite; a boolean decides unless it is the same for
    // all elements.
    let is_neutral = |operand: &Known| match (operand.reads_score, operand.bounds) {
        (true, _) => operand.is_uniform,
        (false, Interval::Integers { .. }) => operand.bounds != Interval::EITHER,
        (false, Interval::Floats { .. }) => operand.bounds.is_finite(),
    };
    let is_clean = |operand: &Known| match operand.reads_score {
        true => operand.is_clean,
        false => operand.bounds.is_finite(),
    };
    Known {
        bounds,
        reads_score,
        is_uniform: operands.iter().all(is_neutral),
        is_unchanged: operands.iter().all(|operand| operand.is_unchanged),
        is_clean: operands.iter().all(is_clean),
    }
}
