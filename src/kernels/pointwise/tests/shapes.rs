//! The position of an element in a tile changes nothing: not its row, its column, the length of the row, its
//! alignment, the strides of operands, nor a target that is a source.

use super::unary;
use crate::kernels::pointwise::{Kernel1, Kernel2, Params, binary, compare, convert, indices, logic, sign};
use crate::kernels::prefetch::PrefetchQueue;
use crate::kernels::{Extent, InnerStride, Source, Target};
use crate::types::dtype::DataType;
use crate::types::function::{Binary, Comparison, Logic, Sign, Unary};
use crate::types::kind::Level;

const PARAMS: Params = [0.7, 0.3];
const COLUMNS: usize = 140;
/// Bytes around and between rows that a kernel must leave alone.
const GAP: usize = 3;

/// Elements of a number of bytes whose bits are numbers of every class.
fn element(i: usize, size: usize) -> Vec<u8> {
    let number = (i as f32 - 100.0) * 0.037;
    match size {
        8 => f64::from(number).to_ne_bytes().to_vec(),
        4 => number.to_ne_bytes().to_vec(),
        2 => ((number.to_bits() >> 16) as u16).to_ne_bytes().to_vec(),
        _ => vec![if i.is_multiple_of(3) { 0 } else { i as u8 }],
    }
}

/// An operand in memory: rows of elements, with gaps, so that most are unaligned.
struct Operand {
    bytes: Vec<u8>,
    row_stride: usize,
    size: usize,
}

impl Operand {
    fn new(rows: usize, columns: usize, size: usize, seed: usize) -> Self {
        let row_stride = columns * size + GAP;
        let mut bytes = vec![0xa5; GAP];
        for row in 0..rows {
            (0..columns).for_each(|column| bytes.extend(element(seed + 31 * row + column, size)));
            bytes.extend([0xa5; GAP]);
        }
        Self { bytes, row_stride, size }
    }

    fn source(&self) -> Source {
        Source { at: self.bytes[GAP..].as_ptr(), row_stride: self.row_stride as isize }
    }

    fn target(&mut self) -> Target {
        Target { at: self.bytes[GAP..].as_mut_ptr(), row_stride: self.row_stride as isize }
    }

    fn at(&self, row: usize, column: usize) -> &[u8] {
        let start = GAP + row * self.row_stride + column * self.size;
        &self.bytes[start..start + self.size]
    }

    /// True if all gaps are unchanged.
    fn is_intact(&self) -> bool {
        let gap = |start: usize| self.bytes[start..start + GAP].iter().all(|&byte| byte == 0xa5);
        (0..self.bytes.len()).step_by(self.row_stride).all(gap)
    }
}

/// The results of a kernel for single elements.
fn single(kernel: &Kernel, x: &[u8], y: &[u8], size: usize) -> Vec<u8> {
    let mut to = vec![0; size];
    let target = Target { at: to.as_mut_ptr(), row_stride: 0 };
    let source = |at: &[u8]| Source { at: at.as_ptr(), row_stride: 0 };
    let extent = Extent { rows: 1, columns: 1 };
    // SAFETY: one element of each operand is there.
    unsafe {
        match kernel {
            Kernel::One(kernel) => kernel(extent, source(x), target, &PARAMS, &mut PrefetchQueue::default()),
            Kernel::Two(kernels) => kernels[1][1].run(extent, source(x), source(y), target, &PARAMS),
        }
    }
    to
}

enum Kernel {
    One(Kernel1),
    /// By the inner strides of the operands.
    Two([[Kernel2; 2]; 2]),
}

/// A kernel, with the sizes of an element of its sources and of its target.
struct Case {
    name: String,
    kernel: Kernel,
    from: usize,
    to: usize,
}

/// One kernel of every kind at a level, and all functions of f32.
fn cases(level: Level) -> Vec<Case> {
    const INNER: [InnerStride; 2] = [InnerStride::Broadcast, InnerStride::Contiguous];
    let two = |of: &dyn Fn(InnerStride, InnerStride) -> Kernel2| {
        Kernel::Two(INNER.map(|x| INNER.map(|y| of(x, y))))
    };
    let mut cases = Vec::new();
    let mut case = |name: String, kernel, from, to| cases.push(Case { name, kernel, from, to });
    for &function in Unary::ALL {
        case(format!("{function:?}"), Kernel::One(unary(level, function).kernel), 4, 4);
    }
    for function in super::of_f32() {
        let kernel = two(&|x, y| binary(level, function, DataType::F32, x, y).unwrap().kernel);
        case(format!("{function:?}"), kernel, 4, 4);
    }
    for (of, size) in [(DataType::S32, 4), (DataType::S64, 8), (DataType::F64, 8)] {
        for function in [Binary::Multiply, Binary::Modulo] {
            let kernel = two(&|x, y| binary(level, function, of, x, y).unwrap().kernel);
            case(format!("{function:?} of {of}"), kernel, size, size);
        }
    }
    for (of, size) in [(DataType::F32, 4), (DataType::F64, 8), (DataType::U64, 8)] {
        let kernel = two(&|x, y| compare(level, Comparison::Less, of, x, y).unwrap().0.kernel);
        case(format!("Less of {of}"), kernel, size, 1);
    }
    case("Xor".into(), two(&|x, y| logic(level, Logic::Xor, x, y).kernel), 1, 1);
    for of in [DataType::F8E5m2, DataType::F16, DataType::F32, DataType::S64] {
        let kernel = Kernel::One(sign(level, of, Sign::Flip).unwrap().kernel);
        case(format!("Flip of {of}"), kernel, of.bits() / 8, of.bits() / 8);
    }
    for from in [DataType::Boolean, DataType::F16, DataType::Bf16, DataType::F32, DataType::F64, DataType::S8]
    {
        for to in [DataType::F16, DataType::Bf16, DataType::F32, DataType::S64, DataType::U8] {
            let kernel = Kernel::One(convert(level, from, to).unwrap().kernel);
            case(format!("{from} to {to}"), kernel, from.bits() / 8, to.bits() / 8);
        }
    }
    cases
}

/// Runs a case over a tile and compares every element with the result for that element alone.
fn check(
    case: &Case,
    rows: usize,
    columns: usize,
    inner: [InnerStride; 2],
    in_place: bool,
    faults: &mut Vec<String>,
) {
    let [x_columns, y_columns] =
        inner.map(|inner| if inner == InnerStride::Contiguous { columns } else { 1 });
    let (x, y) = (Operand::new(rows, x_columns, case.from, 0), Operand::new(rows, y_columns, case.from, 57));
    let mut to = Operand::new(rows, columns, if in_place { case.from } else { case.to }, 0);
    let extent = Extent { rows, columns };
    let target = to.target();
    let first = if in_place { Source { at: target.at, row_stride: target.row_stride } } else { x.source() };
    // SAFETY: the operands are as large as the extent says, and the target is a source or does not overlap.
    unsafe {
        match &case.kernel {
            Kernel::One(kernel) => kernel(extent, first, target, &PARAMS, &mut PrefetchQueue::default()),
            Kernel::Two(kernels) => {
                let kernel = kernels[inner[0] as usize][inner[1] as usize];
                kernel.run(extent, first, y.source(), target, &PARAMS);
            }
        }
    }
    let name = || format!("{} of {rows}x{columns}, {inner:?}, in place: {in_place}", case.name);
    if !to.is_intact() {
        faults.push(format!("{} wrote beside its rows", name()));
    }
    for row in 0..rows {
        for column in 0..columns {
            let x = x.at(row, if inner[0] == InnerStride::Contiguous { column } else { 0 });
            let y = y.at(row, if inner[1] == InnerStride::Contiguous { column } else { 0 });
            let want = single(&case.kernel, x, y, case.to);
            if to.at(row, column) != want {
                let got = to.at(row, column);
                return faults.push(format!("{} at {row}, {column}: {got:?}, not {want:?}", name()));
            }
        }
    }
}

#[test]
fn an_element_depends_on_nothing_around_it() {
    let mut faults = Vec::new();
    for level in Level::all_available() {
        for case in cases(level) {
            let inners: &[[InnerStride; 2]] = match case.kernel {
                Kernel::One(_) => &[[InnerStride::Contiguous; 2]],
                Kernel::Two(_) => &[
                    [InnerStride::Contiguous, InnerStride::Contiguous],
                    [InnerStride::Contiguous, InnerStride::Broadcast],
                    [InnerStride::Broadcast, InnerStride::Contiguous],
                    [InnerStride::Broadcast, InnerStride::Broadcast],
                ],
            };
            let before = faults.len();
            for &inner in inners {
                for columns in (0..=70)
                    .step_by(if inner == [InnerStride::Contiguous; 2] { 1 } else { 9 })
                    .chain([COLUMNS])
                {
                    check(&case, 2, columns, inner, false, &mut faults);
                }
                if case.from == case.to && inner[0] == InnerStride::Contiguous {
                    check(&case, 3, COLUMNS, inner, true, &mut faults);
                }
            }
            faults.truncate(before + 2);
            faults[before..].iter_mut().for_each(|fault| *fault = format!("{fault} ({level})"));
        }
    }
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

/// Rows without gaps are collapsed into one.
#[test]
fn rows_that_touch_are_still_rows() {
    for level in Level::all_available() {
        for columns in [1, 3, 16, 65] {
            let x: Vec<f32> = (0..7 * columns).map(|i| i as f32 * 0.1).collect();
            let y: Vec<f32> = (0..7).map(|i| i as f32 - 3.0).collect();
            let mut to = vec![0f32; x.len()];
            let row_stride = (columns * 4) as isize;
            let target = Target { at: to.as_mut_ptr().cast(), row_stride };
            let source = Source { at: x.as_ptr().cast(), row_stride };
            let extent = Extent { rows: 7, columns };
            // SAFETY: the operands are as large as the extent says.
            unsafe {
                (unary(level, Unary::Square).kernel)(
                    extent,
                    source,
                    target,
                    &PARAMS,
                    &mut PrefetchQueue::default(),
                )
            };
            assert_eq!(to, x.iter().map(|x| x * x).collect::<Vec<_>>(), "at {level}");
            for (row_stride, last) in [(4, 6), (0, 0)] {
                let kernel = binary(
                    level,
                    Binary::Add,
                    DataType::F32,
                    InnerStride::Contiguous,
                    InnerStride::Broadcast,
                )
                .unwrap()
                .kernel;
                // SAFETY: as above.
                unsafe {
                    kernel.run(extent, source, Source { at: y.as_ptr().cast(), row_stride }, target, &PARAMS)
                };
                let want: Vec<f32> = (0..x.len()).map(|i| x[i] + y[(i / columns).min(last)]).collect();
                assert_eq!(to, want, "columns {columns}, row stride {row_stride}, at {level}");
            }
        }
    }
}

/// Short rows beside one row become long ones.
#[test]
fn rows_that_touch_beside_one_row_are_still_rows() {
    const ROWS: usize = 75;
    let inner = InnerStride::Contiguous;
    for level in Level::all_available() {
        for columns in [1, 3, 4, 16, 31, 33] {
            let many: Vec<f64> = (0..ROWS * columns).map(|i| i as f64 * 0.1).collect();
            let one: Vec<f64> = (0..columns).map(|i| 100.0 - i as f64 * 7.0).collect();
            let row_stride = (columns * 8) as isize;
            let sources = [
                Source { at: many.as_ptr().cast(), row_stride },
                Source { at: one.as_ptr().cast(), row_stride: 0 },
            ];
            let extent = Extent { rows: ROWS, columns };
            let subtract = binary(level, Binary::Subtract, DataType::F64, inner, inner).unwrap().kernel;
            let less = compare(level, Comparison::Less, DataType::F64, inner, inner).unwrap().0.kernel;
            for (x, y) in [(0, 1), (1, 0)] {
                let (mut numbers, mut mask) = (vec![0f64; many.len()], vec![7u8; many.len()]);
                let target = Target { at: numbers.as_mut_ptr().cast(), row_stride };
                let of_mask = Target { at: mask.as_mut_ptr(), row_stride: columns as isize };
                // SAFETY: the operands are as large as the extent says.
                unsafe {
                    subtract.run(extent, sources[x], sources[y], target, &PARAMS);
                    less.run(extent, sources[x], sources[y], of_mask, &PARAMS);
                }
                for (i, (number, bit)) in numbers.iter().zip(&mask).enumerate() {
                    let pair = [many[i], one[i % columns]];
                    assert_eq!(*number, pair[x] - pair[y], "columns {columns}, at {level}");
                    assert_eq!(*bit != 0, pair[x] < pair[y], "columns {columns}, at {level}");
                }
            }
        }
    }
}

#[test]
fn ramps_rise() {
    for level in Level::all_available() {
        for columns in [0, 1, 5, 16, 33, 100] {
            let mut to = vec![0i32; 3 * columns];
            let target = Target { at: to.as_mut_ptr().cast(), row_stride: (columns * 4) as isize };
            // SAFETY: the target is as large as the extent says.
            unsafe { indices(level)(Extent { rows: 3, columns }, i32::MAX - 20, -7, 3, target) };
            let at = |i: usize| {
                (i32::MAX - 20).wrapping_sub(7 * (i / columns) as i32).wrapping_add(3 * (i % columns) as i32)
            };
            assert_eq!(to, (0..3 * columns).map(at).collect::<Vec<_>>(), "columns {columns}, at {level}");
        }
    }
}
