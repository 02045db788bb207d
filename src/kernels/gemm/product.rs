//! A matrix product, and how its operands lie.

use super::form::Form;

/// A matrix product, whose strides count in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Product {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    /// Number of products that each element sums up.
    pub(crate) depth: usize,
    /// The left operand: `rows` × `depth`.
    pub(crate) left: Matrix,
    /// The right operand: `depth` × `columns`, in panels of [`panel_columns`](super::panel_columns).
    pub(crate) right: Panels,
    /// The result in f32, or the bits of sums in s32 or f64, whose columns are contiguous.
    pub(crate) to: *mut f32,
    pub(crate) to_row: isize,
    /// The product is added to the result.
    pub(crate) accumulate: bool,
    /// A number for each row, which is added to its sums; null if there is none. Only kernels of
    /// [forms that add it](super::Form::adds_bias) read it.
    pub(crate) bias: *const f32,
}

impl Product {
    /// The product of some columns, from one on, whose right operand begins where that of all columns does.
    pub(crate) fn part(&self, first: usize, columns: usize, form: Form) -> Self {
        Self { columns, to: self.to.wrapping_byte_add(first * form.sum_width()), ..*self }
    }
}

/// A matrix with any strides, in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Matrix {
    pub(crate) at: *const u8,
    pub(crate) row_stride: isize,
    pub(crate) col_stride: isize,
}

impl Matrix {
    pub(crate) fn transposed(self) -> Self {
        Self { row_stride: self.col_stride, col_stride: self.row_stride, ..self }
    }
}

/// A matrix in panels of columns; within a row of a panel, elements are contiguous.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Panels {
    pub(crate) at: *const u8,
    /// Bytes from one row of a panel to the next; a row is a pair of rows if they are read in pairs.
    pub(crate) row_stride: isize,
    /// Bytes from one panel to the next.
    pub(crate) panel_stride: isize,
}

/// The memory that is prefetched while a panel is multiplied: it is read next, and may be in no cache of the
/// core (decision: product-ahead).
#[derive(Debug, Clone, Copy)]
pub(crate) enum PanelPrefetch {
    Nothing,
    /// The next panel, whose rows are contiguous and follow those of the present one, and the result.
    NextPanel,
    /// Panels that begin there and have the same strides, for tiles of AMX.
    Block(*const u8),
    /// The rows of a matrix of contiguous columns, from which the next panel will be packed, and the result.
    Rows(Matrix),
    /// The same rows further on: they are read side by side, from memory.
    Streams,
}
