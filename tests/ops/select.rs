//! Promise: a select in one call gives the bytes of a graph of one Select, for every type, mode and layout;
//! what
//! does not fit is named. `tests/cache.rs` holds that equal calls compile once.

use crate::common::{COND, Case, ELSE, GAP, Random, THEN, broadcast, report};
use half::{bf16, f16};
use sterna::{
    AutoBroadcast, Bool8, DataType, DynView, DynViewMut, Engine, Error, OpFault, SelectOptions, ShapeFault,
    TensorBuf, TensorFault, TensorView, TensorViewMut, select, select_into,
};

fn options(case: &Case) -> SelectOptions {
    let options = SelectOptions::new().auto_broadcast(case.mode);
    match case.axis {
        Some(axis) => options.axis(axis),
        None => options,
    }
}

/// Runs a case in one call and compares with the oracle.
fn check(case: &Case, options: &SelectOptions, engine: &Engine) -> Result<(), String> {
    let compiled = case.compile(engine).map_err(|error| error.to_string())?;
    let inputs = case.filled(&compiled, engine, &mut Random::new(7));
    let mut output = TensorBuf::zeroed(compiled.outputs()[0].clone(), engine).map_err(|e| e.to_string())?;
    output.as_mut_bytes().fill(GAP);
    let views: Vec<DynView<'_>> = (COND..=ELSE)
        .map(|i| {
            let data_type = if i == COND { DataType::Boolean } else { case.data_type };
            let address = inputs[i].as_bytes().as_ptr();
            // SAFETY: the buffer was made for these dims and strides.
            unsafe { DynView::from_raw_parts(data_type, address, &case.dims[i], case.strides[i].as_deref()) }
        })
        .collect();
    let dims = broadcast(case.mode, case.axis, &case.dims).ok_or("the oracle refuses the shapes")?;
    let inferred = options.dims_dyn(&views[COND], &views[THEN], &views[ELSE]).map_err(|e| e.to_string())?;
    if inferred[..] != dims[..] {
        return Err(format!("the dims are {inferred:?}, not {dims:?}"));
    }
    let strides = output.desc().strides().map(<[i64]>::to_vec);
    let address = output.as_mut_bytes().as_mut_ptr();
    // SAFETY: the buffer was made for these dims and strides.
    let mut dst = unsafe { DynViewMut::from_raw_parts(case.data_type, address, &dims, strides.as_deref()) };
    let result = options.select_dyn(&views[COND], &views[THEN], &views[ELSE], &mut dst);
    result.map_err(|error| error.to_string())?;
    case.compare(&inputs, &output)
}

#[test]
fn bytes_are_those_of_a_graph() {
    use AutoBroadcast::{Multidirectional, None as NoBroadcast, Numpy, Pdpd};
    let rows: &[(AutoBroadcast, [&[i64]; 3])] = &[
        (NoBroadcast, [&[3, 5], &[3, 5], &[3, 5]]),
        (Numpy, [&[67], &[67], &[]]),
        (Numpy, [&[5], &[4, 1], &[2, 1, 5]]),
        (Numpy, [&[], &[], &[]]),
        (Numpy, [&[0], &[3, 0], &[]]),
        (Numpy, [&[1, 3, 1, 1, 2, 1, 1], &[2, 3, 1, 2, 2, 1, 3], &[1]]),
        (Pdpd, [&[4], &[3, 4, 5], &[4, 1]]),
        (Multidirectional, [&[4, 1], &[5], &[]]),
    ];
    let own = Engine::builder().threads(2).build();
    let mut wrong = Vec::new();
    for (mode, dims) in rows {
        for &data_type in DataType::WHOLE {
            let mut case = Case::new(*mode, data_type, *dims);
            case.axis = (*mode == Pdpd).then_some(1);
            // The second time the compiled partition is found.
            for engine in [None, None, Some(&own)] {
                let options = options(&case);
                let options = engine.map_or(options.clone(), |engine| options.engine(engine));
                if let Err(fault) = check(&case, &options, engine.unwrap_or(Engine::shared())) {
                    wrong.push((case.clone(), engine.is_some(), fault));
                }
            }
        }
    }
    for dst_strides in [None, Some(vec![1, 7]), Some(vec![20, 2])] {
        for then_strides in [None, Some(vec![1, 9]), Some(vec![0, 3])] {
            let mut case = Case::new(Numpy, DataType::F32, [&[7, 9], &[7, 9], &[9]]);
            case.strides[THEN] = then_strides.clone();
            case.dst_strides.clone_from(&dst_strides);
            if let Err(fault) = check(&case, &options(&case), Engine::shared()) {
                wrong.push((case, false, fault));
            }
        }
    }
    report(&wrong);
}

#[test]
fn everything_that_is_a_view_is_an_operand() {
    let scores = [1.0f32, 2.0, 3.0, 4.0];
    let (rows, vector) = ([[1.0f32, 2.0], [3.0, 4.0]], scores.to_vec());
    let square = TensorView::new(&scores, &[2, 2]);
    let mask = [true, false];
    let expected = [1.0, 0.0, 3.0, 0.0];
    assert_eq!(select(&mask, &square, &0.0).unwrap(), expected);
    assert_eq!(select(&mask[..], &rows, &[0.0f32][..]).unwrap(), expected);
    assert_eq!(select(&[Bool8(7), Bool8(0)], &square, &vec![0.0f32]).unwrap(), expected);
    assert_eq!(select(&&mask[..], &&scores[..2], &0.0).unwrap(), [1.0, 0.0]);
    assert_eq!(select(&[true; 4], &vector, &0.0).unwrap(), scores);
    assert_eq!(select(&false, &f16::ONE, &f16::NEG_ONE).unwrap(), [f16::NEG_ONE]);
    assert_eq!(
        select(&[[true], [false]], &[[bf16::ONE; 3]; 2], &bf16::ZERO).unwrap()[2..4],
        [bf16::ONE, bf16::ZERO]
    );
    assert_eq!(select(&[true; 0], &[1u64; 0], &0).unwrap(), [0u64; 0]);
    assert_eq!(select(&true, &Bool8(9), &Bool8(0)).unwrap(), [Bool8(9)]);

    let mut matrix = [[0.0f32; 2]; 2];
    select_into(&mask, &rows, &0.0, matrix.as_flattened_mut()).unwrap();
    assert_eq!(matrix, [[1.0, 0.0], [3.0, 0.0]]);
    let mut columns = vec![9.0f32; 5];
    let mut view = TensorViewMut::with_strides(&mut columns, &[2, 2], &[1, 2]);
    select_into(&mask, &square, &0.0, &mut view).unwrap();
    assert_eq!(columns, [1.0, 3.0, 0.0, 0.0, 9.0], "what is behind the view is not touched");
}

#[test]
fn what_does_not_fit_is_named() {
    let values = [1.0f32; 6];
    let with = |dims: &[i64]| select(&true, &TensorView::new(&values, dims), &0.0).unwrap_err();
    let operand = |operand, fault| Error::Operand { operand, fault };
    let mut short = [0.0f32; 5];
    let mut other = [0.0f32; 6];
    let rows: Vec<(&str, Error, Error)> = vec![
        ("too short", with(&[7]), operand("then", TensorFault::TooShort { needed: 7, given: 6 })),
        ("a negative dim", with(&[2, -3]), operand("then", TensorFault::NegativeDim { axis: 1, dim: -3 })),
        ("too many dims", with(&[1; 13]), operand("then", TensorFault::Rank { rank: 13 })),
        (
            "a negative stride",
            select(&TensorView::with_strides(&[true; 3], &[3], &[-1]), &values[..3], &0.0).unwrap_err(),
            operand("cond", TensorFault::NegativeStride { axis: 0, stride: -1 }),
        ),
        (
            "one stride for two dims",
            select(&true, &0.0, &TensorView::with_strides(&values, &[2, 3], &[1])).unwrap_err(),
            operand("else", TensorFault::StrideCount { dims: 2, strides: 1 }),
        ),
        (
            "no room",
            select_into(&true, &values, &0.0, &mut short).unwrap_err(),
            operand("dst", TensorFault::TooShort { needed: 6, given: 5 }),
        ),
    ];
    let mut wrong: Vec<String> = Vec::new();
    for (what, given, expected) in rows {
        if given != expected {
            wrong.push(format!("{what}: {given}"));
        }
    }
    let texts: Vec<(Error, &str)> = vec![
        (
            select(&[1u8, 0], &values[..2], &0.0).unwrap_err(),
            "Select (op 0): input 0 `cond` (tensor 0) is u8; it must be boolean",
        ),
        (
            select(&[true, false], &values, &0.0).unwrap_err(),
            "Select (op 0): input 0 `cond` (tensor 0) under auto_broadcast = numpy: {2} does not broadcast onto \
             {6}: 2 against 6 at axis 0",
        ),
        (
            select_into(&true, &values, &0.0, &mut TensorViewMut::new(&mut other, &[3, 2])).unwrap_err(),
            "Select (op 0): output 0 `dst` (tensor 3) is given as {3,2}, but {6} follows from the inputs",
        ),
        (with(&[7]), "select: `then`: 6 elements were given, 7 are needed"),
        (
            select_into(&true, &values, &0.0, &mut TensorViewMut::with_strides(&mut other, &[6], &[0]))
                .unwrap_err(),
            "partition 0 cannot be compiled: the strides {0} of output tensor 3 overlap for dims {6}",
        ),
        (
            SelectOptions::new().axis(1).select(&true, &values, &0.0).unwrap_err(),
            "Select (op 0): attribute `axis` goes with auto_broadcast = pdpd alone, not with numpy",
        ),
    ];
    wrong.extend(
        texts.into_iter().filter(|(given, text)| given.to_string() != *text).map(|(e, _)| e.to_string()),
    );
    report(&wrong);
    // A result that no memory holds.
    let column = TensorView::with_strides(&values, &[1 << 30, 1], &[0, 1]);
    let row = TensorView::with_strides(&values, &[1, 1 << 30], &[1, 0]);
    let huge = select(&true, &column, &row).unwrap_err();
    assert!(matches!(huge, Error::OutOfMemory { .. }), "{huge}");
}

#[test]
fn types_that_differ_are_refused_at_run_time() {
    let (cond, then, else_) = ([true], [1.0f32], [1i32]);
    let mut result = [0.0f32];
    let mut dst = TensorViewMut::new(&mut result, &[1]).into();
    let [cond, then, else_]: [DynView<'_>; 3] = [
        TensorView::new(&cond, &[1]).into(),
        TensorView::new(&then, &[1]).into(),
        TensorView::new(&else_, &[1]).into(),
    ];
    let error = SelectOptions::new().select_dyn(&cond, &then, &else_, &mut dst).unwrap_err();
    assert!(matches!(error, Error::Op { fault: OpFault::TypesDiffer { .. }, .. }), "{error}");
    let mut short = [0.0f32];
    let mut dst = TensorViewMut::new(&mut short, &[2]).into();
    let error = SelectOptions::new().select_dyn(&cond, &then, &then, &mut dst).unwrap_err();
    let is_shape = |fault: &ShapeFault| matches!(fault, ShapeFault::Contradiction { .. });
    assert!(matches!(&error, Error::Shape { fault, .. } if is_shape(fault)), "{error}");
}

#[test]
fn lengths_are_checked_when_the_compiled_partition_is_found_too() {
    let values = [3i8; 257];
    for length in [257, 256] {
        let result = select(&true, &TensorView::new(&values[..length], &[257]), &0);
        assert_eq!(result.is_ok(), length == 257, "{result:?}");
    }
}

#[test]
fn threads_call_at_once() {
    let expected: Vec<i32> = (0..5000).map(|i| if i % 3 == 0 { i } else { -1 }).collect();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let (mask, values): (Vec<bool>, Vec<i32>) = (0..5000).map(|i| (i % 3 == 0, i)).unzip();
                for _ in 0..50 {
                    assert_eq!(select(&mask, &values, &-1).unwrap(), expected);
                }
            });
        }
    });
}
