use super::integers::{IntegerRows, left_shift, right_shift};
use super::pack::{PackPanel, RowPack, SCRATCH};
use super::*;
use crate::kernels::{Extent, Source, Target};
use crate::types::dtype::DataType;
use crate::types::features::CpuFeatures;
use crate::types::kind::{CpuFeature, CpuIsa};

/// Small integers, whose products and sums are exact in every type and order.
fn numbers(count: usize, seed: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 7 + seed * 5 + i / 11) % 15) as f32 - 7.0).collect()
}

/// The bytes of numbers in a type.
fn bytes(numbers: &[f32], data_type: DataType) -> Vec<u8> {
    let of = |&x: &f32| match data_type {
        DataType::Bf16 => half::bf16::from_f32(x).to_le_bytes().to_vec(),
        DataType::F16 => half::f16::from_f32(x).to_le_bytes().to_vec(),
        _ => x.to_le_bytes().to_vec(),
    };
    numbers.iter().flat_map(of).collect()
}

fn expected([m, n, k]: [usize; 3], a: &[f32], b: &[f32]) -> Vec<f32> {
    let at =
        |i: usize, j: usize| (0..k).map(|p| f64::from(a[i * k + p]) * f64::from(b[p * n + j])).sum::<f64>();
    (0..m * n).map(|i| at(i / n, i % n) as f32).collect()
}

fn transposed([rows, columns]: [usize; 2], of: &[f32]) -> Vec<f32> {
    (0..rows * columns).map(|i| of[i % rows * columns + i / rows]).collect()
}

const SIZES: &[[usize; 3]] = &[
    [1, 1, 1],
    [1, 17, 3],
    [2, 64, 7],
    [3, 65, 16],
    [6, 128, 33],
    [7, 31, 15],
    [9, 48, 1],
    [13, 100, 64],
    [16, 16, 16],
    [17, 77, 129],
    [5, 33, 0],
    [31, 63, 40],
    [32, 64, 64],
    [33, 97, 161],
    [70, 130, 96],
];

const TYPES: [DataType; 3] = [DataType::F32, DataType::Bf16, DataType::F16];

/// Every level and form, both orientations of both operands, in blocks of the depth.
#[test]
fn products_are_those_of_the_plain_loop() {
    let mut wrong = Vec::new();
    let features = CpuFeatures::available();
    for level in Level::all_available() {
        for (data_type, sizes) in TYPES.iter().flat_map(|&t| SIZES.iter().map(move |&sizes| (t, sizes))) {
            for (transposes, block) in [(0, 1000usize), (1, 1000), (2, 10), (3, 16), (0, 64)] {
                // Pairs are tested wherever the CPU has them, slow or not.
                let pairs = CpuIsa::Avx512Bf16.features().intersection(features).within(level);
                let packed =
                    [features.within(level), pairs].map(|of| (Form::packed(data_type, level, of), true));
                for (form, is_packed) in packed.into_iter().chain([(Form::in_place(data_type), false)]) {
                    let is_transposed = [transposes & 1 != 0, transposes & 2 != 0];
                    if !is_packed && is_transposed[1] {
                        continue;
                    }
                    let result = product(level, form, is_packed, data_type, sizes, is_transposed, block);
                    let [m, n, k] = sizes;
                    if result != expected(sizes, &numbers(m * k, 1), &numbers(k * n, 2)) {
                        wrong.push((level, form, is_packed, data_type, sizes, is_transposed, block));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong: {:?}", wrong.len(), &wrong[..wrong.len().min(10)]);
}

fn product(
    level: Level,
    form: Form,
    is_packed: bool,
    data_type: DataType,
    [m, n, k]: [usize; 3],
    is_transposed: [bool; 2],
    block: usize,
) -> Vec<f32> {
    let width = data_type.size().unwrap_or(0) as isize;
    let matrix = |numbers: &[f32], [rows, columns]: [usize; 2], is_transposed: bool| match is_transposed {
        false => (bytes(numbers, data_type), columns as isize * width, width),
        true => (bytes(&transposed([rows, columns], numbers), data_type), width, rows as isize * width),
    };
    let (a, a_row, a_col) = matrix(&numbers(m * k, 1), [m, k], is_transposed[0]);
    let (b, b_row, b_col) = matrix(&numbers(k * n, 2), [k, n], is_transposed[1]);
    let left = Matrix { at: a.as_ptr(), row_stride: a_row, col_stride: a_col };
    let right = Matrix { at: b.as_ptr(), row_stride: b_row, col_stride: b_col };
    let mut scratch = vec![0u8; SCRATCH];

    let left_type = form.left_type();
    let mut rows = vec![0u8; m * k * left_type.size().unwrap_or(0)];
    let row_stride = (k * left_type.size().unwrap_or(0)) as isize;
    let row_pack = RowPack::new(level, data_type, left_type).expect("the types have kernels");
    let to = Target { at: rows.as_mut_ptr(), row_stride };
    // SAFETY: all buffers have the sizes that the strides say.
    unsafe { row_pack.run(Extent { rows: m, columns: k }, left, to, scratch.as_mut_ptr()) };
    let left = Matrix { at: rows.as_ptr(), row_stride, col_stride: left_type.size().unwrap_or(0) as isize };

    let columns = panel_columns(level, form);
    let mut panels = Vec::new();
    let right = if is_packed {
        let pack = PackPanel::new(level, data_type, form, n).expect("the types have kernels");
        panels = vec![0xa5u8; pack.panel_bytes(k) * n.div_ceil(columns)];
        for (index, first) in (0..n).step_by(columns).enumerate() {
            let from = Matrix { at: right.at.wrapping_offset(b_col * first as isize), ..right };
            let to = panels.as_mut_ptr().wrapping_add(index * pack.panel_bytes(k));
            // SAFETY: as above.
            unsafe { pack.run(k, columns.min(n - first), from, to, scratch.as_mut_ptr()) };
        }
        Panels {
            at: panels.as_ptr(),
            row_stride: pack.row_bytes() as isize,
            panel_stride: pack.panel_bytes(k) as isize,
        }
    } else {
        Panels { at: right.at, row_stride: b_row, panel_stride: columns as isize * width }
    };
    let mut result = vec![f32::NAN; m * n];
    let kernel = GemmKernel::new(level, form);
    for from in (0..k.max(1)).step_by(block) {
        let left = Matrix { at: left.at.wrapping_offset(left.col_stride * from as isize), ..left };
        let from_rows = (from / form.depth_step()) as isize;
        let product = Product {
            rows: m,
            columns: n,
            depth: block.min(k - from),
            left,
            right: Panels { at: right.at.wrapping_offset(right.row_stride * from_rows), ..right },
            to: result.as_mut_ptr(),
            to_row: n as isize * 4,
            accumulate: from > 0,
            bias: std::ptr::null(),
        };
        let prefetch = match (is_packed, is_transposed[0]) {
            (true, false) => PanelPrefetch::NextPanel,
            (true, true) => PanelPrefetch::Rows(left),
            (false, _) => PanelPrefetch::Nothing,
        };
        // SAFETY: as above.
        unsafe { kernel.run_prefetching(&product, prefetch) };
    }
    drop(panels);
    result
}

#[test]
fn dot_products_are_those_of_the_plain_loop() {
    let mut wrong = Vec::new();
    for level in Level::all_available() {
        // Whole parts of the depth, and rests of one.
        let deep = [[1, 5, 1025], [3, 4, 1024], [6, 9, 513], [16, 6, 1500], [18, 3, 600]];
        let sizes = SIZES.iter().copied().chain(deep);
        for (data_type, [m, n, k]) in TYPES.iter().flat_map(|&t| sizes.clone().map(move |sizes| (t, sizes))) {
            let (a, b) = (numbers(m * k, 1), numbers(k * n, 2));
            let right = bytes(&transposed([k, n], &b), data_type);
            let mut result = vec![f32::NAN; m * n];
            let product = RowProduct {
                rows: m,
                left: Source { at: a.as_ptr().cast(), row_stride: k as isize * 4 },
                right: OperandRows {
                    at: right.as_ptr(),
                    row_stride: (k * data_type.size().unwrap_or(0)) as isize,
                    rows: n,
                    columns: k,
                    later: None,
                },
                scaling: RowScaling::NONE,
                to: Target { at: result.as_mut_ptr().cast(), row_stride: n as isize * 4 },
            };
            let kernels = StoredKernels::new(level, data_type, false).expect("the types have kernels");
            // SAFETY: all buffers have the sizes that the strides say.
            unsafe { kernels.dots(&product, std::ptr::null_mut()) };
            if result != expected([m, n, k], &a, &b) {
                wrong.push((level, data_type, [m, n, k]));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// Few rows in pairs of bf16: dot products and sums of rows, of whole vectors and of rests.
#[test]
fn few_rows_in_pairs_are_those_of_the_plain_loop() {
    if Form::packed(DataType::Bf16, Level::available(), CpuFeatures::available()) != Form::Bf16Pairs {
        return;
    }
    let kernels =
        StoredKernels::new(Level::available(), DataType::Bf16, false).expect("the type has kernels");
    let kernels = kernels.in_pairs();
    let mut wrong = Vec::new();
    let sizes = [[1, 1, 1], [1, 33, 64], [2, 5, 128], [3, 64, 40], [4, 65, 17], [6, 130, 80], [8, 16, 136]];
    for [m, stored, columns] in sizes {
        let (a, rows) = (numbers(m * columns, 1), numbers(stored * columns, 2));
        let (weights, before) = (numbers(m * stored, 3), numbers(m * columns, 4));
        let right = bytes(&rows, DataType::Bf16);
        let product = |left: &[f32], width: usize, to: &mut [f32], to_width: usize| RowProduct {
            rows: m,
            left: Source { at: left.as_ptr().cast(), row_stride: width as isize * 4 },
            right: OperandRows {
                at: right.as_ptr(),
                row_stride: columns as isize * 2,
                rows: stored,
                columns,
                later: None,
            },
            scaling: RowScaling::NONE,
            to: Target { at: to.as_mut_ptr().cast(), row_stride: to_width as isize * 4 },
        };
        let mut dots = vec![f32::NAN; m * stored];
        let mut sums = [before.clone(), vec![f32::NAN; m * columns]];
        let mut scratch = vec![0f32; 8 * columns.next_multiple_of(32)];
        // SAFETY: all buffers have the sizes that the strides say.
        unsafe {
            kernels.dots(&product(&a, columns, &mut dots, stored), scratch.as_mut_ptr());
            for (sums, accumulates) in sums.iter_mut().zip([true, false]) {
                kernels.add_rows(&product(&weights, stored, sums, columns), accumulates);
            }
        }
        let of_rows = expected([m, columns, stored], &weights, &rows);
        let added: Vec<f32> = of_rows.iter().zip(&before).map(|(x, y)| x + y).collect();
        let of_dots = expected([m, stored, columns], &a, &transposed([stored, columns], &rows));
        if dots != of_dots || sums != [added, of_rows] {
            wrong.push([m, stored, columns]);
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// Kernels in tile registers run in all tests of products where the machine has them, and nowhere else.
#[test]
fn products_use_tiles_where_the_machine_has_amx() {
    let features = CpuFeatures::available();
    let has = |feature: CpuFeature| features.contains(feature);
    if !has(CpuFeature::AmxTile) {
        eprintln!("skipped: this machine has no AMX, or it is capped");
    }
    let packed = Form::packed(DataType::Bf16, Level::Avx512, features);
    assert_eq!(packed == Form::Bf16Tiles, has(CpuFeature::AmxBf16));
    assert_eq!(Form::integers(Level::Avx512, features, 100) == Form::S8Tiles, has(CpuFeature::AmxInt8));
    for level in [Level::Portable, Level::Avx2] {
        assert!(!Form::packed(DataType::Bf16, level, features).uses_tiles(), "{level}");
        assert!(!Form::integers(level, features, 100).uses_tiles(), "{level}");
    }
}

/// Bytes that stand for integers of a type, the extremes often.
fn integers(count: usize, seed: usize) -> Vec<u8> {
    let of = |i: usize| match (i * 7 + seed * 3 + i / 13) % 5 {
        0 => 255,
        1 => 128,
        2 => 127,
        _ => (i * 91 + seed) as u8,
    };
    (0..count).map(of).collect()
}

/// Every level and form of integers: the sums of what kernels read, the sums of rows and those of columns.
#[test]
fn products_of_integers_are_those_of_the_plain_loop() {
    let mut wrong = Vec::new();
    let features = CpuFeatures::available();
    for level in Level::all_available() {
        let forms = [(CpuFeatures::NONE, 1), (features.within(level), 1), (features.within(level), 100)]
            .map(|(of, rows)| Form::integers(level, of, rows));
        for (form, types) in forms.into_iter().flat_map(|form| {
            [[DataType::U8, DataType::S8], [DataType::S8, DataType::U8]].map(|types| (form, types))
        }) {
            for (&sizes, (is_transposed, block)) in SIZES
                .iter()
                .flat_map(|sizes| [(false, 1000), (true, 1000), (false, 8), (true, 16)].map(|of| (sizes, of)))
            {
                if !integer_product_is_right(level, form, types, sizes, is_transposed, block) {
                    wrong.push((level, form, types, sizes, is_transposed, block));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong: {:?}", wrong.len(), &wrong[..wrong.len().min(10)]);
}

fn integer_product_is_right(
    level: Level,
    form: Form,
    types: [DataType; 2],
    [m, n, k]: [usize; 3],
    is_transposed: bool,
    block: usize,
) -> bool {
    let (a, b) = (integers(m * k, 1), integers(k * n, 2));
    let number =
        |byte: u8, of: DataType| if of == DataType::U8 { i32::from(byte) } else { i32::from(byte as i8) };
    let x = |i: usize, p: usize| number(a[i * k + p], types[0]) + left_shift(types[0]);
    let y = |p: usize, j: usize| number(b[p * n + j], types[1]) + right_shift(types[1]);
    let expected: Vec<i32> =
        (0..m * n).map(|at| (0..k).map(|p| x(at / n, p) * y(p, at % n)).sum::<i32>()).collect();

    let matrix = |rows: usize, columns: usize, of: &[u8]| match is_transposed {
        false => (of.to_vec(), columns as isize, 1),
        true => ((0..rows * columns).map(|i| of[i % rows * columns + i / rows]).collect(), 1, rows as isize),
    };
    let ((a, a_row, a_col), (b, b_row, b_col)) = (matrix(m, k, &a), matrix(k, n, &b));
    let mut scratch = vec![0u8; SCRATCH];

    let rows = IntegerRows::new(level, types[0], form);
    let row_stride = k.next_multiple_of(4) * rows.written_width();
    let (mut left, mut row_sums) = (vec![0xa5u8; m * row_stride], vec![0i32; m]);
    let columns = panel_columns(level, form);
    let pack = PackPanel::new(level, types[1], form, n).expect("the types have kernels");
    let panels = n.div_ceil(columns);
    let mut right = vec![0xa5u8; pack.panel_bytes(k) * panels];
    let mut column_sums = vec![0i32; panels * pack.columns()];
    for (index, first) in (0..n).step_by(columns).enumerate() {
        let at = b.as_ptr().wrapping_offset(b_col * first as isize);
        let from = Matrix { at, row_stride: b_row, col_stride: b_col };
        let to = right.as_mut_ptr().wrapping_add(index * pack.panel_bytes(k));
        let sums = column_sums.as_mut_ptr().wrapping_add(index * pack.columns());
        let extent = Extent { rows: k, columns: columns.min(n - first) };
        // SAFETY: all buffers have the sizes that the strides say.
        unsafe { pack.run_with_sums(extent, from, to, sums, scratch.as_mut_ptr()) };
    }
    let mut result = vec![0i32; m * n];
    for from in (0..k.max(1)).step_by(block) {
        let depth = block.min(k - from);
        let at = a.as_ptr().wrapping_offset(a_col * from as isize);
        let to = Target { at: left.as_mut_ptr(), row_stride: row_stride as isize };
        let product = Product {
            rows: m,
            columns: n,
            depth,
            left: Matrix { at: to.at, row_stride: to.row_stride, col_stride: rows.written_width() as isize },
            right: Panels {
                at: right.as_ptr().wrapping_add(from / form.depth_step() * pack.row_bytes()),
                row_stride: pack.row_bytes() as isize,
                panel_stride: pack.panel_bytes(k) as isize,
            },
            to: result.as_mut_ptr().cast(),
            to_row: n as isize * 4,
            accumulate: from > 0,
            bias: std::ptr::null(),
        };
        let matrix = Matrix { at, row_stride: a_row, col_stride: a_col };
        let extent = Extent { rows: m, columns: depth };
        // SAFETY: as above.
        unsafe {
            rows.run(extent, matrix, to, row_sums.as_mut_ptr(), from > 0, scratch.as_mut_ptr());
            GemmKernel::new(level, form).run(&product);
        }
    }
    let sums_are_right = (0..m).all(|i| row_sums[i] == (0..k).map(|p| x(i, p)).sum::<i32>())
        && (0..n).all(|j| {
            let at = j / columns * pack.columns() + j % columns;
            column_sums[at] == (0..k).map(|p| y(p, j)).sum::<i32>()
        });
    result == expected && sums_are_right
}
