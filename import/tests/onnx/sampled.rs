//! Data at points between its elements, and blocks put on top of each other, as their definitions say.

use sterna::reference::Value;
use sterna_import::onnx;

use super::bytes::{Onnx, int, integers, ints, node, text, value};
use super::common::{as_floats, by_name, float, report};
use super::patches::counted;

fn indices(dims: &[i64]) -> Vec<Vec<i64>> {
    dims.iter().fold(vec![Vec::new()], |all, &dim| {
        all.iter().flat_map(|index| (0..dim).map(|i| [&**index, &[i]].concat())).collect()
    })
}

fn place(dims: &[i64], index: &[i64]) -> usize {
    index.iter().zip(dims).fold(0, |place, (i, dim)| place * dim + i) as usize
}

#[derive(Clone, Copy)]
struct Sampling {
    mode: &'static str,
    padding: &'static str,
    align_corners: bool,
}

impl Sampling {
    /// The element that stands for one along a dim; `None` for 0.
    fn element(self, at: f64, length: i64) -> Option<i64> {
        let last = (length - 1) as f64;
        match self.padding {
            "zeros" => (0.0..=last).contains(&at).then_some(at as i64),
            "border" => Some(at.clamp(0.0, last) as i64),
            _ => Some(self.mirrored(at, length).clamp(0.0, last) as i64),
        }
    }

    fn mirrored(self, at: f64, length: i64) -> f64 {
        let (low, high) =
            if self.align_corners { (0.0, (length - 1) as f64) } else { (-0.5, length as f64 - 0.5) };
        let mut at = if low == high { low } else { at };
        while !(low..=high).contains(&at) {
            at = if at < low { 2.0 * low - at } else { 2.0 * high - at };
        }
        at
    }

    /// The elements around a point along a dim, with their weights.
    fn taps(self, point: f32, length: i64) -> Vec<(Option<i64>, f64)> {
        let (point, count) = (f64::from(point), length as f64);
        let at = match self.align_corners {
            true => (point + 1.0) / 2.0 * (count - 1.0),
            false => ((point + 1.0) * count - 1.0) / 2.0,
        };
        let cubic = |x: f64| match x.abs() {
            x if x <= 1.0 => (1.25 * x - 2.25) * x * x + 1.0,
            x => ((-0.75 * x + 3.75) * x - 6.0) * x + 3.0,
        };
        let tap = |at: f64, weight: f64| (self.element(at, length), weight);
        match self.mode {
            "nearest" => vec![tap(at.round_ties_even(), 1.0)],
            "cubic" | "bicubic" => {
                let first = at.floor();
                (-1..=2).map(|i| tap(first + f64::from(i), cubic(first + f64::from(i) - at))).collect()
            }
            _ => {
                let at = match self.padding {
                    "border" => at.clamp(0.0, count - 1.0),
                    "reflection" => self.mirrored(at, length),
                    _ => at,
                };
                let first = at.floor();
                vec![tap(first, 1.0 - (at - first)), tap(first + 1.0, at - first)]
            }
        }
    }

    fn of(self, x: &Value, grid: &Value) -> Value {
        let (dims, points, xs, gs) = (x.dims(), grid.dims(), as_floats(x), as_floats(grid));
        let count = dims.len() - 2;
        let result = [&dims[..2], &points[1..=count]].concat();
        let number = |index: &Vec<i64>| -> f32 {
            let point = |d: usize| {
                let at = [&index[..1], &index[2..], &[(count - 1 - d) as i64]].concat();
                gs[place(points, &at)]
            };
            let mut all = vec![(Some(index[..2].to_vec()), 1.0)];
            for d in 0..count {
                let along = self.taps(point(d), dims[2 + d]);
                let join = |(before, weight): &(Option<Vec<i64>>, f64), (at, own): &(Option<i64>, f64)| {
                    let joined = before.as_ref().zip(*at).map(|(before, at)| [&**before, &[at]].concat());
                    (joined, weight * own)
                };
                all = all.iter().flat_map(|before| along.iter().map(move |own| join(before, own))).collect();
            }
            let element =
                |at: &Option<Vec<i64>>| at.as_ref().map_or(0.0, |at| f64::from(xs[place(dims, at)]));
            all.iter().map(|(at, weight)| element(at) * weight).sum::<f64>() as f32
        };
        float(&result, &indices(&result).iter().map(number).collect::<Vec<f32>>())
    }

    fn model(self, dims: &[i64], points: &[i64], opset: i64) -> Onnx {
        let attributes = [
            text("mode", self.mode),
            text("padding_mode", self.padding),
            int("align_corners", self.align_corners.into()),
        ];
        let mut model = Onnx::of(node("GridSample", &["x", "grid"], &["y"], &attributes), dims);
        model.inputs.push(value("grid", 1, points));
        model.opset = Some(opset);
        model
    }

    fn all() -> Vec<(Self, i64)> {
        let modes = [("nearest", 16), ("bilinear", 16), ("linear", 20), ("cubic", 20), ("bicubic", 16)];
        let mut all = Vec::new();
        for (mode, opset) in modes {
            for padding in ["zeros", "border", "reflection"] {
                all.extend([false, true].map(|align_corners| (Self { mode, padding, align_corners }, opset)));
            }
        }
        all
    }
}

/// Points from far in front of the data to far behind, and on its edges.
fn points(dims: &[i64]) -> Value {
    let count: i64 = dims.iter().product();
    let edges = [-1.0, 1.0, 0.0];
    let number = |i: i64| edges.get(i as usize).copied().unwrap_or((i * 29 % 97) as f32 / 19.3 - 2.5);
    float(dims, &(0..count).map(number).collect::<Vec<f32>>())
}

#[test]
fn points_take_the_elements_around_them() {
    let mut wrong = Vec::new();
    let shapes: [(&[i64], &[i64]); 5] = [
        // Rows of channels, and planes.
        (&[1, 9, 3, 4], &[1, 2, 3, 2]),
        (&[2, 3, 4, 5], &[2, 3, 4, 2]),
        (&[1, 1, 1, 6], &[1, 2, 5, 2]),
        (&[3, 1, 3, 1], &[3, 1, 4, 2]),
        (&[2, 2, 3, 2, 4], &[2, 2, 1, 3, 3]),
    ];
    for (by, opset) in Sampling::all() {
        for (dims, of_grid) in shapes {
            if dims.len() == 5 && by.mode.ends_with("cubic") {
                continue;
            }
            let (x, grid) = (counted(dims), points(of_grid));
            let expected = by.of(&x, &grid);
            for open in [&[][..], &[0], &[0, 1, 2]] {
                let (mut own, mut places) = (dims.to_vec(), of_grid.to_vec());
                open.iter().take(1).for_each(|&dim| own[dim] = -1);
                open.iter().for_each(|&dim| places[dim] = -1);
                let imported = onnx::read(&by.model(&own, &places, opset).bytes()).unwrap();
                let result = &by_name(&imported, &[("x", x.clone()), ("grid", grid.clone())])["y"];
                let near = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-4;
                let is_near = as_floats(result).iter().zip(&as_floats(&expected)).all(near);
                if result.dims() != expected.dims() || !is_near {
                    let Sampling { mode, padding, align_corners } = by;
                    wrong.push(format!(
                        "{mode} {padding} {align_corners} {own:?}: {result:?}, not {expected:?}"
                    ));
                }
            }
        }
    }
    report(&wrong);
}

/// Points without a place do not reach beyond the data, and leave the others alone.
#[test]
fn points_that_are_no_numbers_or_infinite_are_harmless() {
    let (dims, of_grid) = ([1, 2, 3, 4], [1, 1, 8, 2]);
    let odd = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, -1e30];
    for (by, opset) in Sampling::all() {
        let x = counted(&dims);
        let mut numbers = as_floats(&points(&of_grid));
        for (at, number) in odd.into_iter().enumerate() {
            numbers[2 * at + at % 2] = number;
        }
        let grid = float(&of_grid, &numbers);
        let imported = onnx::read(&by.model(&dims, &of_grid, opset).bytes()).unwrap();
        let result = as_floats(&by_name(&imported, &[("x", x.clone()), ("grid", grid)])["y"]);
        numbers[..2 * odd.len()].fill(0.0);
        let expected = as_floats(&by.of(&x, &float(&of_grid, &numbers)));
        for place in (0..16).filter(|place| place % 8 >= odd.len()) {
            assert!((result[place] - expected[place]).abs() <= 1e-4, "{} {}", by.mode, by.padding);
        }
        // Far away lies nothing.
        if by.padding == "zeros" {
            assert!(result[1..odd.len()].iter().all(|&number| number == 0.0), "{}: {result:?}", by.mode);
        }
    }
}

#[test]
fn grids_that_do_not_fit_are_refused() {
    let by = Sampling { mode: "linear", padding: "zeros", align_corners: false };
    let cubic = Sampling { mode: "cubic", ..by };
    let rows: [(Sampling, &[i64], &[i64]); 6] = [
        (by, &[1, 2, 3, 4], &[1, 2, 5, 3]),
        (by, &[1, 2, 3, 4], &[2, 2, 5, 2]),
        (by, &[1, 2, 0, 4], &[1, 2, 5, 2]),
        (by, &[1, 2, -1, 4], &[1, 2, 5, 2]),
        (by, &[1, 2, 3], &[1, 2, 1]),
        (cubic, &[1, 2, 3, 4, 5], &[1, 2, 5, 2, 3]),
    ];
    for (by, dims, points) in rows {
        let error = onnx::read(&by.model(dims, points, 20).bytes()).unwrap_err().to_string();
        assert!(error.contains("input port 0 (`X`) is {"), "{dims:?}: {error}");
    }
}

/// Dims of an image and of a block, strides, dilations, and pads.
type Blocks<'a> = (&'a [i64], &'a [i64], &'a [i64], &'a [i64], &'a [i64]);

#[test]
fn blocks_are_added_up_where_they_lie() {
    let rows: [Blocks<'_>; 6] = [
        (&[5, 6], &[2, 3], &[1, 1], &[1, 1], &[0, 0, 0, 0]),
        (&[6, 7], &[3, 3], &[2, 2], &[1, 1], &[1, 1, 1, 1]),
        (&[7, 8], &[2, 2], &[3, 3], &[1, 2], &[0, 1, 2, 0]),
        (&[4, 6], &[2, 3], &[2, 3], &[1, 1], &[0, 0, 0, 0]),
        (&[9], &[4], &[1], &[2], &[1, 0]),
        (&[3, 4, 5], &[2, 1, 2], &[1, 2, 2], &[1, 1, 3], &[0, 0, 1, 1, 0, 1]),
    ];
    let mut wrong = Vec::new();
    for (image, block, strides, dilations, pads) in rows {
        let count = image.len();
        let number = |at: usize| {
            let extent = (block[at] - 1) * dilations[at] + 1;
            (image[at] + pads[at] + pads[count + at] - extent) / strides[at] + 1
        };
        let counts: Vec<i64> = (0..count).map(number).collect();
        let (size, columns): (i64, i64) = (block.iter().product(), counts.iter().product());
        let x = counted(&[2, 3 * size, columns]);
        let xs = as_floats(&x);
        let result = [&[2, 3], image].concat();
        let mut sums = vec![0f32; result.iter().product::<i64>() as usize];
        for index in indices(&[&[2, 3], block, &*counts].concat()) {
            let along =
                |at: usize| index[2 + count + at] * strides[at] + index[2 + at] * dilations[at] - pads[at];
            let to: Vec<i64> = (0..count).map(along).collect();
            if to.iter().zip(image).all(|(at, dim)| (0..*dim).contains(at)) {
                let from = place(&[&[2, 3], block, &*counts].concat(), &index);
                sums[place(&result, &[&index[..2], &*to].concat())] += xs[from];
            }
        }
        let expected = float(&result, &sums);
        let attributes = [ints("strides", strides), ints("dilations", dilations), ints("pads", pads)];
        for batch in [2, -1] {
            let dims = [batch, 3 * size, columns];
            let mut model = Onnx::of(node("Col2Im", &["x", "image", "block"], &["y"], &attributes), &dims);
            model.constants = vec![integers("image", image), integers("block", block)];
            model.opset = Some(18);
            let found = &by_name(&onnx::read(&model.bytes()).unwrap(), &[("x", x.clone())])["y"];
            if *found != expected {
                wrong.push(format!("{image:?} {block:?} {batch}: {found:?}, not {expected:?}"));
            }
        }
    }
    report(&wrong);
}

#[test]
fn blocks_that_do_not_fit_are_refused() {
    let most = i64::MAX;
    type Row<'a> = (&'a [i64], &'a [i64], &'a [i64], Vec<Vec<u8>>, &'a str);
    let rows: [Row<'_>; 8] = [
        (&[1, 12, 9], &[4, 4], &[2, 2], vec![], "input port 0 (`input`) is {1,12,9}; needed"),
        (&[1, 12, 8], &[4, 4], &[2, 2], vec![], "input port 0 (`input`) is {1,12,8}; needed"),
        (&[1, 10, 9], &[4, 4], &[2, 2], vec![ints("strides", &[1, 1])], "is {1,10,9}"),
        (&[1, 12, 9], &[4, 4], &[2], vec![], "is {1,12,9}"),
        (&[1, 12, 9], &[most, 4], &[2, 2], vec![], "is {1,12,9}"),
        (&[1, 12, 9], &[4, 4], &[2, 2], vec![ints("pads", &[most, 0, 0, 0])], "is {1,12,9}"),
        (&[1, 12, 9], &[4, 4], &[2, 2], vec![ints("strides", &[1])], "attribute `strides`"),
        (&[1, 12, 9], &[4, 4], &[2, 2], vec![ints("dilations", &[most, most])], "is {1,12,9}"),
    ];
    for (at, (dims, image, block, attributes, said)) in rows.into_iter().enumerate() {
        let mut model = Onnx::of(node("Col2Im", &["x", "image", "block"], &["y"], &attributes), dims);
        model.constants = vec![integers("image", image), integers("block", block)];
        model.opset = Some(18);
        match onnx::read(&model.bytes()) {
            // The first row is one that fits.
            Ok(_) => assert_eq!(at, 0),
            Err(error) => assert!(error.to_string().contains(said), "{at}: {error}"),
        }
    }
}
