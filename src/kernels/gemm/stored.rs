//! The kernels of right operands as they are stored, by type and level.

use super::finite::is_finite;
use super::operand::{
    ByteRows, NibbleRows, NibbleValues, OperandRows, RowProduct, RowScaling, SIGNED, StoredOperand, UNSIGNED,
};
use super::outer::SHARED;
#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
use super::pair_rows;
use super::{Matrix, dot, outer, widen};
use crate::kernels::Extent;
use crate::kernels::floats::canonical;
use crate::kernels::isa::{ByLevel, LEVELS, by_level, shells};
use crate::kernels::pointwise::half::{Bf16, F16};
use crate::kernels::pointwise::small::{E4m3, E5m2};
use crate::kernels::vector::LANES;
use crate::types::dtype::DataType;
use crate::types::fallback::FallbackReason;
use crate::types::kind::Level;

/// Rows that are widened together; they fit into the first-level cache.
pub(crate) const WIDENED_ROWS: usize = 32;

type Dots = unsafe fn(&RowProduct, &NibbleValues, *mut f32);
type AddRows = unsafe fn(&RowProduct, bool, &NibbleValues);
type Widen = unsafe fn(&OperandRows, &RowScaling, &NibbleValues, *mut f32, usize);

shells! {
    I:
    fn dots[O: StoredOperand<I>](product: &RowProduct, integers: &NibbleValues, arranged: *mut f32) {
        dot::dots::<I, O>(product, integers, arranged)
    }

    fn add_rows[O: StoredOperand<I>](product: &RowProduct, accumulate: bool, integers: &NibbleValues) {
        outer::add_rows::<I, O, false>(product, accumulate, integers)
    }

    fn add_rows_with_holes[](product: &RowProduct, accumulate: bool, integers: &NibbleValues) {
        outer::add_rows::<I, f32, true>(product, accumulate, integers)
    }

    fn widen[O: StoredOperand<I>](
        rows: &OperandRows, scaling: &RowScaling, integers: &NibbleValues, to: *mut f32, to_row: usize,
    ) {
        widen::widen::<I, O>(rows, scaling, integers, to, to_row)
    }
}

/// The kernels for a type of elements; `None` if nothing would be gained, so that rows are widened first.
#[derive(Debug)]
struct TypeKernels {
    dots: ByLevel<Option<Dots>>,
    add_rows: ByLevel<Option<AddRows>>,
    widen: ByLevel<Widen>,
}

/// A kernel for every level, for those with vectors of bytes, or for none.
macro_rules! optional {
    (all $kernel:ident $Element:ident) => {
        optional!(@ Some(portable::$kernel::<$Element>), $kernel $Element)
    };
    (vectors $kernel:ident $Element:ident) => {
        optional!(@ None, $kernel $Element)
    };
    (none $kernel:ident $Element:ident) => {
        [const { None }; LEVELS.len()]
    };
    (@ $portable:expr, $kernel:ident $Element:ident) => {
        [
            $portable,
            #[cfg(target_arch = "x86_64")]
            Some(avx2::$kernel::<$Element>),
            #[cfg(all(target_arch = "x86_64", feature = "avx512"))]
            Some(avx512::$kernel::<$Element>),
            #[cfg(target_arch = "aarch64")]
            Some(neon::$kernel::<$Element>),
        ]
    };
}

// Types of elements whose groups of columns share a scale, and whose columns have scales of their own.
type U8Groups = ByteRows<u8, false>;
type U8Columns = ByteRows<u8, true>;
type S8Groups = ByteRows<i8, false>;
type S8Columns = ByteRows<i8, true>;
type E4m3Groups = ByteRows<E4m3, false>;
type E4m3Columns = ByteRows<E4m3, true>;
type E5m2Groups = ByteRows<E5m2, false>;
type E5m2Columns = ByteRows<E5m2, true>;
type NibbleGroups = NibbleRows<false>;
type NibbleColumns = NibbleRows<true>;

macro_rules! kernels {
    ($Element:ident, dots: $dots:ident, add_rows: $add_rows:ident) => {
        &TypeKernels {
            dots: optional!($dots dots $Element),
            add_rows: optional!($add_rows add_rows $Element),
            widen: by_level!(widen::<$Element>),
        }
    };
}

/// The kernels of bf16 that multiply pairs.
#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
static BF16_PAIRS: TypeKernels = TypeKernels {
    dots: [None, None, Some(pair_rows::dots)],
    add_rows: [None, None, Some(pair_rows::add_rows)],
    widen: by_level!(widen::<Bf16>),
};

/// The kernels of a right operand in memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StoredKernels {
    level: Level,
    data_type: DataType,
    kernels: &'static TypeKernels,
    integers: &'static NibbleValues,
}

impl StoredKernels {
    /// For elements of a type, each column with a scale of its own or not; floats of more than 8 bits have no
    /// scales. `None` if there are no kernels for the type.
    pub(crate) fn new(level: Level, data_type: DataType, is_by_column: bool) -> Option<Self> {
        let kernels: &'static TypeKernels = match (data_type, is_by_column) {
            (DataType::F32, _) => const { kernels!(f32, dots: all, add_rows: all) },
            (DataType::Bf16, _) => const { kernels!(Bf16, dots: all, add_rows: vectors) },
            (DataType::F16, _) => const { kernels!(F16, dots: all, add_rows: vectors) },
            (DataType::U8, false) => const { kernels!(U8Groups, dots: vectors, add_rows: vectors) },
            (DataType::U8, true) => const { kernels!(U8Columns, dots: none, add_rows: vectors) },
            (DataType::S8, false) => const { kernels!(S8Groups, dots: vectors, add_rows: vectors) },
            (DataType::S8, true) => const { kernels!(S8Columns, dots: none, add_rows: vectors) },
            (DataType::U4 | DataType::S4, false) => {
                const { kernels!(NibbleGroups, dots: vectors, add_rows: vectors) }
            }
            (DataType::U4 | DataType::S4, true) => {
                const { kernels!(NibbleColumns, dots: none, add_rows: vectors) }
            }
            // A conversion takes many instructions, which would be repeated for every few left rows.
            (DataType::F8E4m3, false) => const { kernels!(E4m3Groups, dots: none, add_rows: none) },
            (DataType::F8E4m3, true) => const { kernels!(E4m3Columns, dots: none, add_rows: none) },
            (DataType::F8E5m2, false) => const { kernels!(E5m2Groups, dots: none, add_rows: none) },
            (DataType::F8E5m2, true) => const { kernels!(E5m2Columns, dots: none, add_rows: none) },
            _ => return None,
        };
        let integers = if data_type == DataType::S4 { &SIGNED } else { &UNSIGNED };
        Some(Self { level, data_type, kernels, integers })
    }

    /// The kernels of bf16 for at most 8 left rows, which are rounded to bf16 too, on a machine whose
    /// products are in [pairs](super::Form::Bf16Pairs).
    pub(crate) fn in_pairs(self) -> Self {
        #[cfg(all(target_arch = "x86_64", feature = "avx512"))]
        return Self { kernels: &BF16_PAIRS, ..self };
        #[cfg(not(all(target_arch = "x86_64", feature = "avx512")))]
        self
    }

    pub(crate) fn level(&self) -> Level {
        self.level
    }

    /// The type of the elements.
    pub(crate) fn data_type(&self) -> DataType {
        self.data_type
    }

    /// Succeeds if there are [`dots`](Self::dots) for rows of so many columns, of which a group shares a
    /// scale.
    pub(crate) fn has_dots(&self, columns: usize, group: Extent) -> Result<(), FallbackReason> {
        self.has(&self.kernels.dots)?;
        let is_multiple = group.columns.is_multiple_of(SHARED * LANES);
        FallbackReason::OddLength.unless(group.columns >= columns || is_multiple)
    }

    /// Succeeds if there is [`add_rows`](Self::add_rows) for such rows.
    pub(crate) fn has_add_rows(&self, columns: usize, group: Extent) -> Result<(), FallbackReason> {
        self.has(&self.kernels.add_rows)?;
        let is_multiple = group.columns.is_multiple_of(SHARED * LANES);
        FallbackReason::OddLength.unless(group.columns == 1 || group.columns >= columns || is_multiple)
    }

    /// Succeeds if there is a kernel of a table for the level.
    fn has<K>(&self, kernels: &ByLevel<Option<K>>) -> Result<(), FallbackReason> {
        let reason = match self.data_type {
            _ if self.level == Level::Portable => FallbackReason::CpuLevel,
            DataType::F8E4m3 | DataType::F8E5m2 => FallbackReason::ElementType,
            _ => FallbackReason::ScaleGroups,
        };
        reason.unless(kernels[self.level.row()].is_some())
    }

    /// Writes the product of each left row with each stored row. `arranged` has room for the left rows, each
    /// as a whole number of vectors, and [in pairs](Self::in_pairs) of pairs of vectors of bf16.
    ///
    /// # Safety
    ///
    /// The machine runs the level. [`has_dots`](Self::has_dots) succeeds, or the rows are floats. Rows can be
    /// read, as can scales and zero points of all groups; `arranged` and the result can be written. Nothing
    /// overlaps.
    pub(crate) unsafe fn dots(&self, product: &RowProduct, arranged: *mut f32) {
        let Some(dots) = self.kernels.dots[self.level.row()] else { return };
        // SAFETY: as the caller promises.
        unsafe { dots(product, self.integers, arranged) }
    }

    /// Adds to each row of the result, or writes there if it does not `accumulate`, the stored rows, each
    /// times a number of the left row, one after the other.
    ///
    /// # Safety
    ///
    /// The machine runs the level. [`has_add_rows`](Self::has_add_rows) succeeds, or the rows are floats.
    /// Rows can be read, as can scales and zero points of all groups and 16 more numbers; the result can be
    /// written. Nothing overlaps.
    pub(crate) unsafe fn add_rows(&self, product: &RowProduct, accumulate: bool) {
        let Some(add_rows) = self.kernels.add_rows[self.level.row()] else { return };
        // SAFETY: as the caller promises.
        unsafe { add_rows(product, accumulate, self.integers) }
    }

    /// Writes rows of f32, `to_row` numbers from one to the next. Up to 16 numbers behind the columns of a
    /// row are overwritten.
    ///
    /// # Safety
    ///
    /// The machine runs the level. The rows can be read; the scales and zero points of all groups too, and 16
    /// more numbers; the target can be written, as can 16 numbers behind each row. Nothing overlaps.
    pub(crate) unsafe fn widen(&self, rows: &OperandRows, scaling: &RowScaling, to: *mut f32, to_row: usize) {
        // SAFETY: as the caller promises.
        unsafe { self.kernels.widen[self.level.row()](rows, scaling, self.integers, to, to_row) }
    }

    /// As [`widen`](Self::widen), but a NaN is the canonical one, which an op on elements gives.
    ///
    /// # Safety
    ///
    /// As [`widen`](Self::widen).
    pub(crate) unsafe fn widen_canonical(
        &self,
        rows: &OperandRows,
        scaling: &RowScaling,
        to: *mut f32,
        to_row: usize,
    ) {
        // SAFETY: as the caller promises; these elements were written.
        unsafe {
            self.widen(rows, scaling, to, to_row);
            if self.gives_no_nan(rows, scaling) {
                return;
            }
            for row in 0..rows.rows {
                let row = std::slice::from_raw_parts_mut(to.add(row * to_row), rows.columns);
                row.iter_mut().for_each(|x| *x = canonical(*x));
            }
        }
    }

    /// True if the rows are integers whose scales are all finite; zero points always are.
    ///
    /// # Safety
    ///
    /// The machine runs the level, and the scales of all groups can be read.
    pub(crate) unsafe fn gives_no_nan(&self, rows: &OperandRows, scaling: &RowScaling) -> bool {
        if !matches!(self.data_type, DataType::U8 | DataType::S8 | DataType::U4 | DataType::S4) {
            return false;
        }
        let RowScaling { scales, group, before, row_step, column_step, .. } = *scaling;
        let extent = Extent {
            rows: (before + rows.rows).div_ceil(group.rows),
            columns: rows.columns.div_ceil(group.columns),
        };
        let [row_stride, col_stride] = [row_step, column_step].map(|step| 4 * step as isize);
        let from = Matrix { at: scales.cast(), row_stride, col_stride };
        // SAFETY: as the caller promises.
        unsafe { is_finite(self.level, extent, from, DataType::F32) }
    }
}

/// As [`StoredKernels::add_rows`] for rows of f32, to whose sums is added; but nothing is added where a
/// number of a left row is 0, so that a stored row that is not finite does not reach the sum. NaN is not 0.
///
/// # Safety
///
/// The machine runs the level. Rows can be read, the result can be written, and nothing overlaps.
pub(crate) unsafe fn add_rows_with_holes(level: Level, product: &RowProduct) {
    const KERNELS: ByLevel<AddRows> = by_level!(add_rows_with_holes);
    // SAFETY: as the caller promises.
    unsafe { KERNELS[level.row()](product, true, &UNSIGNED) }
}
