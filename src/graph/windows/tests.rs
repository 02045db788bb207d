use super::*;
use crate::graph::logical_tensor::LogicalTensor;
use crate::graph::op::AttrValue;
use crate::graph::verify::verify;
use crate::types::dtype::DataType;
use crate::types::kind::OpKind as K;

/// An op without padding, of two spatial dims unless attributes say otherwise.
fn op(kind: OpKind, inputs: usize, attrs: &[(Attr, AttrValue)]) -> Op {
    let tensor = |id: usize| LogicalTensor::unknown(id, DataType::F32);
    let lists = [
        (Attr::Strides, vec![1i64, 1]),
        (Attr::Dilations, vec![1, 1]),
        (Attr::PadsBegin, vec![]),
        (Attr::PadsEnd, vec![]),
        (Attr::Kernel, vec![2, 2]),
    ];
    let is_known = |attr: Attr| Schema::of(kind).attributes.iter().any(|row| row.attr == attr);
    let op = Op::new(1, kind).inputs_from((0..inputs).map(tensor)).output(tensor(9));
    let words = [(Attr::DataFormat, "NCX"), (Attr::WeightsFormat, "OIX")];
    let op = words.into_iter().filter(|(attr, _)| is_known(*attr)).fold(op, |op, (attr, word)| {
        let is_transposed = attr == Attr::WeightsFormat && kind.name().starts_with("ConvTranspose");
        op.attr(attr, if is_transposed { "IOX" } else { word })
    });
    let op = lists
        .into_iter()
        .filter(|(attr, _)| is_known(*attr))
        .fold(op, |op, (attr, list)| op.attr(attr, list));
    let op = if is_known(Attr::ExcludePad) { op.attr(Attr::ExcludePad, true) } else { op };
    let mut op = attrs.iter().fold(op, |op, (attr, value)| op.attr(*attr, value.clone()));
    verify(&mut op).unwrap();
    op
}

fn list(attr: Attr, numbers: &[i64]) -> (Attr, AttrValue) {
    (attr, numbers.into())
}

fn word(attr: Attr, word: &str) -> (Attr, AttrValue) {
    (attr, word.into())
}

/// Kind, attributes, shapes of inputs, and the result: a shape, `None`, or part of an error.
type Row<'a> =
    (OpKind, Vec<(Attr, AttrValue)>, Vec<&'a [i64]>, std::result::Result<Option<&'a [i64]>, &'a str>);

fn check(rows: &[Row<'_>]) {
    let mut wrong = Vec::new();
    for (kind, attrs, shapes, expected) in rows {
        let op = op(*kind, shapes.len(), attrs);
        let found = result(&op, shapes).map_err(|error| error.to_string());
        let fits = match (&found, expected) {
            (Ok(found), Ok(expected)) => found.as_deref() == *expected,
            (Err(found), Err(expected)) => found.contains(expected),
            _ => false,
        };
        if !fits {
            wrong.push(format!("{kind} {attrs:?} {shapes:?}: {found:?}, not {expected:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn shapes_follow_from_windows() {
    use Attr as A;
    let same = |name| word(A::AutoPad, name);
    let strides = |numbers: &[i64]| list(A::Strides, numbers);
    let dilations = |numbers: &[i64]| list(A::Dilations, numbers);
    let pads = |begin: &[i64], end: &[i64]| [list(A::PadsBegin, begin), list(A::PadsEnd, end)];
    let groups = |count: i64| (A::Groups, AttrValue::S64(count));
    let three = [list(A::Strides, &[1, 1, 1]), list(A::Dilations, &[1, 1, 1])];
    check(&[
        (K::Convolution, vec![], vec![&[2, 3, 5, 6], &[4, 3, 2, 3]], Ok(Some(&[2, 4, 4, 4]))),
        (K::Convolution, vec![], vec![&[2, 3, 5, 6], &[4, 3, 2, 3], &[4]], Ok(Some(&[2, 4, 4, 4]))),
        (
            K::Convolution,
            pads(&[1, 0], &[0, 2]).into(),
            vec![&[1, 1, 5, 6], &[1, 1, 3, 3]],
            Ok(Some(&[1, 1, 4, 6])),
        ),
        (
            K::Convolution,
            vec![strides(&[2, 3]), dilations(&[2, 1])],
            vec![&[1, 1, 6, 6], &[1, 1, 2, 2]],
            Ok(Some(&[1, 1, 2, 2])),
        ),
        (K::Convolution, vec![groups(2)], vec![&[0, 4, 3, 3], &[6, 2, 1, 1]], Ok(Some(&[0, 6, 3, 3]))),
        (
            K::Convolution,
            three.to_vec(),
            vec![&[1, 1, 2, 3, 4], &[1, 1, 2, 2, 2]],
            Ok(Some(&[1, 1, 1, 2, 3])),
        ),
        (
            K::Convolution,
            vec![strides(&[1]), dilations(&[1])],
            vec![&[1, 1, 9], &[1, 1, 2]],
            Ok(Some(&[1, 1, 8])),
        ),
        (
            K::Convolution,
            vec![word(A::DataFormat, "NXC"), word(A::WeightsFormat, "XIO")],
            vec![&[1, 5, 6, 3], &[2, 3, 3, 4]],
            Ok(Some(&[1, 4, 4, 4])),
        ),
        (
            K::Convolution,
            vec![same("SAME_UPPER"), strides(&[2, 3])],
            vec![&[1, 1, 5, 6], &[1, 1, 3, 3]],
            Ok(Some(&[1, 1, 3, 2])),
        ),
        (
            K::Convolution,
            vec![same("SAME_LOWER"), strides(&[3, 4])],
            vec![&[1, 1, 5, 6], &[1, 1, 1, 1]],
            Ok(Some(&[1, 1, 2, 2])),
        ),
        (
            K::Convolution,
            [vec![same("VALID")], pads(&[9, 9], &[9, 9]).into()].concat(),
            vec![&[1, 1, 5, 6], &[1, 1, 1, 1]],
            Ok(Some(&[1, 1, 5, 6])),
        ),
    ]);
}

#[test]
fn shapes_follow_from_windows_of_other_kinds() {
    use Attr as A;
    let same = |name| word(A::AutoPad, name);
    let strides = |numbers: &[i64]| list(A::Strides, numbers);
    let pads = |begin: &[i64], end: &[i64]| [list(A::PadsBegin, begin), list(A::PadsEnd, end)];
    let groups = |count: i64| (A::Groups, AttrValue::S64(count));
    check(&[
        (
            K::ConvTranspose,
            pads(&[0, 0], &[41, 41]).into_iter().chain([strides(&[2, 2])]).collect(),
            vec![&[1, 32, 28, 28], &[32, 8, 3, 3]],
            Ok(Some(&[1, 8, 16, 16])),
        ),
        (
            K::ConvTranspose,
            vec![groups(2), list(A::OutputPadding, &[1, 0])],
            vec![&[1, 4, 2, 2], &[4, 3, 1, 2], &[6]],
            Ok(Some(&[1, 6, 3, 3])),
        ),
        (
            K::ConvTranspose,
            vec![same("SAME_UPPER"), strides(&[2, 2])],
            vec![&[1, 1, 3, 4], &[1, 1, 3, 2]],
            Ok(Some(&[1, 1, 6, 8])),
        ),
        (
            K::ConvTranspose,
            vec![word(A::DataFormat, "NXC"), word(A::WeightsFormat, "XOI")],
            vec![&[1, 2, 2, 3], &[1, 1, 5, 3]],
            Ok(Some(&[1, 2, 2, 5])),
        ),
        (
            K::ConvolutionBackwardData,
            vec![strides(&[2, 2]), list(A::DstShape, &[1, 3, 6, 6])],
            vec![&[1, 4, 3, 3], &[4, 3, 1, 1]],
            Ok(Some(&[1, 3, 6, 6])),
        ),
        (
            K::ConvolutionBackwardData,
            vec![strides(&[2, 2])],
            vec![&[1, 4, 3, 3], &[4, 3, 1, 1]],
            Ok(Some(&[1, 3, 5, 5])),
        ),
        (
            K::ConvolutionBackwardWeights,
            vec![strides(&[2, 2]), list(A::WeightsShape, &[4, 3, 1, 1])],
            vec![&[1, 3, 6, 6], &[1, 4, 3, 3]],
            Ok(Some(&[4, 3, 1, 1])),
        ),
        (K::ConvolutionBackwardWeights, vec![], vec![&[1, 3, 6, 6], &[1, 4, 3, 3]], Ok(None)),
        (
            K::ConvTransposeBackwardData,
            vec![strides(&[2, 2])],
            vec![&[1, 8, 17, 16], &[32, 8, 3, 3]],
            Ok(Some(&[1, 32, 8, 7])),
        ),
        (
            K::ConvTransposeBackwardWeights,
            vec![strides(&[2, 2]), list(A::WeightsShape, &[4, 3, 2, 2])],
            vec![&[1, 4, 3, 3], &[1, 3, 6, 6]],
            Ok(Some(&[4, 3, 2, 2])),
        ),
    ]);
}

#[test]
fn shapes_follow_from_windows_of_pools() {
    use Attr as A;
    let same = |name| word(A::AutoPad, name);
    let strides = |numbers: &[i64]| list(A::Strides, numbers);
    check(&[
        (K::MaxPool, vec![strides(&[2, 2])], vec![&[1, 3, 5, 4]], Ok(Some(&[1, 3, 2, 2]))),
        (
            K::MaxPool,
            vec![strides(&[2, 2]), word(A::RoundingType, "ceil")],
            vec![&[1, 3, 5, 1]],
            Ok(Some(&[1, 3, 3, 1])),
        ),
        (
            K::AvgPool,
            vec![strides(&[2, 2]), same("SAME_UPPER")],
            vec![&[1, 3, 5, 1]],
            Ok(Some(&[1, 3, 3, 1])),
        ),
        (K::MaxPoolBackward, vec![], vec![&[1, 3, 5, 4], &[1, 3, 4, 3]], Ok(Some(&[1, 3, 5, 4]))),
        (
            K::AvgPoolBackward,
            vec![list(A::SrcShape, &[1, 3, 5, 4])],
            vec![&[1, 3, 4, 3]],
            Ok(Some(&[1, 3, 5, 4])),
        ),
    ]);
}

#[test]
fn what_does_not_fit_is_an_error() {
    use Attr as A;
    let groups = |count: i64| (A::Groups, AttrValue::S64(count));
    let conv = |attrs: &[(Attr, AttrValue)], shapes: &[&'static [i64]], expected: &'static str| {
        (K::Convolution, attrs.to_vec(), shapes.to_vec(), Err(expected))
    };
    const IMAGE: &[i64] = &[1, 4, 3, 3];
    const WEIGHTS: &[i64] = &[2, 4, 2, 2];
    check(&[
        conv(&[], &[&[1, 4], &[2, 4]], "at least one spatial dim"),
        conv(&[], &[IMAGE, &[2, 4, 2]], "as many dims as the tensor of data"),
        conv(&[], &[IMAGE, &[2, 3, 2, 2]], "its channels are not those of the weights"),
        conv(&[groups(0)], &[IMAGE, WEIGHTS], "divided by the attribute `groups`"),
        conv(&[groups(4)], &[IMAGE, &[2, 1, 2, 2]], "divided by the attribute `groups`"),
        conv(&[groups(i64::MAX)], &[IMAGE, &[0, 4, 2, 2]], "more channels than i64 counts"),
        conv(&[], &[IMAGE, WEIGHTS, &[3]], "one number for each channel of the result"),
        conv(&[], &[IMAGE, WEIGHTS, &[2, 1]], "one number for each channel of the result"),
        conv(&[], &[IMAGE, &[2, 4, 4, 1]], "the kernel is larger than the padded image"),
        conv(&[], &[IMAGE, &[2, 4, 0, 1]], "kernel, strides and dilations are 1 or more"),
        conv(&[list(A::Strides, &[0, 1])], &[IMAGE, WEIGHTS], "kernel, strides and dilations are 1 or more"),
        conv(
            &[list(A::Dilations, &[1, -1])],
            &[IMAGE, WEIGHTS],
            "kernel, strides and dilations are 1 or more",
        ),
        conv(&[list(A::Strides, &[1])], &[IMAGE, WEIGHTS], "`strides` has an entry"),
        conv(&[list(A::Dilations, &[1, 1, 1])], &[IMAGE, WEIGHTS], "`dilations` has an entry"),
        conv(&[list(A::PadsBegin, &[1])], &[IMAGE, WEIGHTS], "`pads_begin` has an entry"),
        conv(&[list(A::PadsEnd, &[1, 1, 1])], &[IMAGE, WEIGHTS], "`pads_end` has an entry"),
        conv(&[list(A::Dilations, &[i64::MAX, 1])], &[IMAGE, &[2, 4, 3, 1]], "farther than i64 counts"),
        conv(&[list(A::PadsEnd, &[i64::MAX, 1])], &[IMAGE, WEIGHTS], "farther than i64 counts"),
    ]);
}

#[test]
fn other_kinds_that_do_not_fit_are_errors() {
    use Attr as A;
    let groups = |count: i64| (A::Groups, AttrValue::S64(count));
    let image: &[i64] = &[1, 4, 3, 3];
    let weights: &[i64] = &[2, 4, 2, 2];
    check(&[
        (
            K::ConvTranspose,
            vec![list(A::Strides, &[i64::MAX, 1])],
            vec![image, &[4, 2, 2, 2]],
            Err("farther than i64 counts"),
        ),
        (
            K::ConvTranspose,
            vec![list(A::PadsBegin, &[5, 0])],
            vec![image, &[4, 2, 2, 2]],
            Err("less far than the padding"),
        ),
        (
            K::ConvTranspose,
            vec![list(A::OutputPadding, &[1])],
            vec![image, &[4, 2, 2, 2]],
            Err("`output_padding` has an entry"),
        ),
        (
            K::ConvTranspose,
            vec![],
            vec![image, &[3, 2, 2, 2]],
            Err("its channels are not those of the weights"),
        ),
        (
            K::ConvTranspose,
            vec![groups(2)],
            vec![image, &[4, 2, 2, 2], &[2]],
            Err("one number for each channel of the result"),
        ),
        (
            K::ConvolutionBackwardData,
            vec![list(A::DstShape, &[1, 4, 9, 3])],
            vec![&[1, 2, 2, 2], weights],
            Err("an element for each window and channel"),
        ),
        (
            K::ConvolutionBackwardData,
            vec![list(A::DstShape, &[1, 4, 3])],
            vec![&[1, 2, 2, 2], weights],
            Err("has as many dims"),
        ),
        (
            K::ConvolutionBackwardWeights,
            vec![list(A::WeightsShape, &[2, 4, 2, 2])],
            vec![image, &[2, 2, 2, 2]],
            Err("an element for each window and channel"),
        ),
        (
            K::ConvolutionBackwardWeights,
            vec![list(A::WeightsShape, &[2, 4, 2, 2])],
            vec![image, &[1, 2, 4]],
            Err("as many dims as the other tensor of data"),
        ),
        (
            K::MaxPool,
            vec![list(A::Kernel, &[2]), list(A::Dilations, &[1])],
            vec![image],
            Err("`kernel` has an entry"),
        ),
        (
            K::MaxPool,
            vec![list(A::Kernel, &[4, 1])],
            vec![image],
            Err("the kernel is larger than the padded image"),
        ),
        (
            K::MaxPool,
            vec![list(A::Kernel, &[4, 1]), word(A::RoundingType, "ceil")],
            vec![image],
            Err("the kernel is larger than the padded image"),
        ),
    ]);
}

#[test]
fn taps_are_those_within_the_image() {
    let dim = WindowDim { image: 5, windows: 9, kernel: 3, dilation: 2, stride: 1, pad_begin: 4, pad_end: 3 };
    let mut wrong = Vec::new();
    for window in -3..14 {
        let within = |first: i64, end: i64| {
            (0..dim.kernel)
                .filter(|tap| (first..end).contains(&(window - dim.pad_begin + tap * dim.dilation)))
                .collect::<Vec<_>>()
        };
        let found = (dim.taps(window).collect::<Vec<_>>(), dim.padded_taps(window).collect::<Vec<_>>());
        if found != (within(0, 5), within(-4, 8)) {
            wrong.push(format!("{window}: {found:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
