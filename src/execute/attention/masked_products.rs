//! Products of partial tiles of scores, without the parts that are masked.
#![allow(unsafe_code, reason = "products are computed on raw memory that was checked before")]

use std::ops::Range;

use crate::kernels::gemm::{GemmKernel, Matrix, Panels, Product};
use crate::plan::{CLASS_PART, MaskedParts};

/// Computes scores, whose rows are keys and whose columns are queries. Those of masked parts are 0.
///
/// # Safety
///
/// As [`GemmKernel::run`]; if some part is masked, elements of the right operand, or pairs of them, have 4
/// bytes, and the result is a tile of scores.
pub(super) unsafe fn score_product(
    kernel: GemmKernel,
    product: &Product,
    masked: MaskedParts,
    mut after_tile: impl FnMut(),
) {
    if masked.is_empty() {
        // SAFETY: as the caller promises.
        return unsafe { kernel.run_with(product, &mut after_tile) };
    }
    for (keys, queries) in masked.spans() {
        let is_masked = |query: &usize| !queries.contains(query);
        for part in (0..product.columns).step_by(CLASS_PART).filter(is_masked) {
            for row in keys.start..keys.end.min(product.rows) {
                let row = product.to.wrapping_byte_offset(product.to_row * row as isize);
                let at = row.wrapping_add(part).cast::<[f32; CLASS_PART]>();
                // SAFETY: a row of a tile of scores has room for whole parts.
                unsafe { at.write_unaligned([0.0; CLASS_PART]) };
            }
        }
    }
    for (keys, queries) in computed(masked, product.rows, product.columns) {
        let to = product.to.wrapping_byte_offset(product.to_row * keys.start as isize);
        let part = Product {
            rows: keys.len(),
            columns: queries.len(),
            left: rows_from(product.left, keys.start),
            right: columns_from(kernel, product.right, queries.start),
            to: to.wrapping_add(queries.start),
            ..*product
        };
        // SAFETY: the part is one of the product.
        unsafe { kernel.run_with(&part, &mut after_tile) };
    }
}

/// Adds values by weights, whose rows are keys and whose columns are queries; those of masked parts are 0.
///
/// # Safety
///
/// As [`score_product`].
pub(super) unsafe fn value_product(
    kernel: GemmKernel,
    product: &Product,
    masked: MaskedParts,
    mut after_tile: impl FnMut(),
) {
    if masked.is_empty() {
        // SAFETY: as the caller promises.
        return unsafe { kernel.run_with(product, &mut after_tile) };
    }
    if !product.accumulate {
        for row in 0..product.rows {
            let row = product.to.wrapping_byte_offset(product.to_row * row as isize);
            // SAFETY: the row is one of the result.
            unsafe { row.write_bytes(0, product.columns) };
        }
    }
    for (keys, queries) in computed(masked, product.depth, product.columns) {
        let right = columns_from(kernel, product.right, queries.start);
        let Matrix { at, col_stride, .. } = product.left;
        let step = keys.start / kernel.form().depth_step();
        let part = Product {
            columns: queries.len(),
            depth: keys.len(),
            left: Matrix { at: at.wrapping_offset(col_stride * keys.start as isize), ..product.left },
            right: Panels { at: right.at.wrapping_offset(right.row_stride * step as isize), ..right },
            to: product.to.wrapping_add(queries.start),
            accumulate: true,
            bias: std::ptr::null(),
            ..*product
        };
        // SAFETY: the part is one of the product.
        unsafe { kernel.run_with(&part, &mut after_tile) };
    }
}

/// The spans of keys of a tile of so many keys and queries, each with the queries for which it is computed.
fn computed(
    masked: MaskedParts,
    keys: usize,
    queries: usize,
) -> impl Iterator<Item = (Range<usize>, Range<usize>)> {
    let within = |range: Range<usize>, end: usize| range.start..range.end.min(end);
    let spans = masked.spans().into_iter().map(move |span| (within(span.0, keys), within(span.1, queries)));
    spans.filter(|(keys, queries)| !keys.is_empty() && !queries.is_empty())
}

/// The rows of a matrix from one on.
fn rows_from(matrix: Matrix, row: usize) -> Matrix {
    Matrix { at: matrix.at.wrapping_offset(matrix.row_stride * row as isize), ..matrix }
}

/// The columns of panels of f32 or of pairs from the first one of a part on, which are in one panel or begin
/// with one.
fn columns_from(kernel: GemmKernel, panels: Panels, column: usize) -> Panels {
    let of_panel = kernel.panel_columns();
    let offset = panels.panel_stride * (column / of_panel) as isize + 4 * (column % of_panel) as isize;
    Panels { at: panels.at.wrapping_offset(offset), ..panels }
}
