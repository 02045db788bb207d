//! Promise: arrays of `ndarray` are operands and tensors as they lie in memory, and what no tensor has is
//! refused.
#![cfg(feature = "ndarray")]

use ndarray::{Array, Array0, Array2, Array3, Axis, array, s};
use sterna::{
    AsView, DataType, Engine, Error, LogicalTensor, Op, OpKind, Partition, SelectOptions, Tensor,
    TensorFault, TensorMut, select, select_array, select_into,
};

#[test]
fn arrays_are_operands() {
    let scores = array![[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]];
    let mask = array![true, false, true];
    let fill = Array0::from_elem((), -1.0f32);
    let expected = array![[1.0f32, -1.0, 3.0], [4.0, -1.0, 6.0]];
    assert_eq!(select_array(&mask, &scores, &fill).unwrap(), expected.clone().into_dyn());
    assert_eq!(select(&mask.view(), &scores.view(), &-1.0).unwrap(), expected.as_slice().unwrap());

    // Transposed, cut out, every second column: strides are kept.
    let wide = Array::from_shape_fn((4, 6), |(row, column)| (row * 6 + column) as i32);
    let cut = wide.slice(s![1..3, 1..;2]);
    let by_hand = |keep: fn(i32) -> bool| cut.mapv(|value| if keep(value) { value } else { 0 });
    let is_even = cut.mapv(|value| value % 2 == 0);
    let selected = select_array(&is_even, &cut, &0).unwrap();
    assert_eq!(selected, by_hand(|value| value % 2 == 0).into_dyn());
    let turned = select_array(&is_even.t(), &cut.t(), &0).unwrap();
    assert_eq!(turned, by_hand(|value| value % 2 == 0).reversed_axes().into_dyn());
    let any_way = SelectOptions::new().auto_broadcast(sterna::AutoBroadcast::Multidirectional);
    let enlarged = any_way.select_array(&array![[true], [false]], &array![1u8, 2], &0).unwrap();
    assert_eq!(enlarged, array![[1u8, 2], [0, 0]].into_dyn());
}

#[test]
fn arrays_are_written_where_they_lie() {
    let mut matrix = Array2::<f32>::zeros((4, 6));
    // Two halves that lie between each other in memory.
    let (mut left, mut right) = matrix.multi_slice_mut((s![.., ..3], s![.., 3..]));
    select_into(&[true, false, true], &1.0, &2.0, &mut left.slice_mut(s![..2, ..])).unwrap_err();
    let rows = Array2::<f32>::ones((4, 3));
    select_into(&[true, false, true], &rows, &2.0, &mut left).unwrap();
    select_into(&[false, false, true], &rows, &3.0, &mut right).unwrap();
    assert!(matrix.rows().into_iter().all(|row| row == array![1.0, 2.0, 1.0, 3.0, 3.0, 1.0]), "{matrix}");
    let mut turned = Array2::<f32>::zeros((3, 4));
    select_into(&true, &rows, &0.0, &mut turned.view_mut().reversed_axes()).unwrap();
    assert_eq!(turned, Array2::<f32>::ones((3, 4)));
}

#[test]
fn what_no_tensor_has_is_refused() {
    let values = array![[1i64, 2], [3, 4]];
    let reversed = values.slice(s![..;-1, ..]);
    let error = select(&true, &reversed, &0).unwrap_err();
    let fault = TensorFault::NegativeStride { axis: 0, stride: -2 };
    assert_eq!(error, Error::Operand { operand: "then", fault });
    // The strides of what has no second element do not count.
    let one = values.slice(s![..1;-1, ..]);
    assert_eq!(select(&true, &one, &0).unwrap(), [1, 2]);
    let none = Array3::<i64>::zeros((2, 0, 3));
    assert_eq!(select(&true, &none.slice(s![..;-1, .., ..]), &0).unwrap(), [0i64; 0]);
    let thirteen = Array::<u8, _>::zeros(ndarray::IxDyn(&[1; 13]));
    let error = select(&true, &thirteen, &0).unwrap_err();
    assert_eq!(error, Error::Operand { operand: "then", fault: TensorFault::Rank { rank: 13 } });
    // An input may have strides of 0, as a broadcast array has.
    let row = values.row(0);
    let wide = row.broadcast((3, 2)).unwrap();
    assert_eq!(select(&[true, false], &wide, &0).unwrap(), [1, 0, 1, 0, 1, 0]);
}

#[test]
fn arrays_are_tensors() {
    let source = Array2::<f32>::from_shape_fn((3, 5), |(row, column)| row as f32 - column as f32);
    let (turned, mut result) = (source.t(), Array2::<f32>::zeros((5, 3)));
    let (src, dst) = (turned.as_view().desc(0).unwrap(), result.as_view().desc(1).unwrap());
    assert_eq!(src.strides(), Some(&[1, 5][..]));
    let op = Op::new(0, OpKind::Abs).input(src.clone()).output(dst.clone());
    let engine = Engine::new();
    let compiled = Partition::from_op(op).unwrap().compile(&engine).unwrap();
    let input = Tensor::of_view(&src, &engine, &turned).unwrap();
    compiled.run(&[input], &mut [TensorMut::of_view(&dst, &engine, &mut result).unwrap()]).unwrap();
    assert_eq!(result, turned.mapv(f32::abs));

    let mut wrong = Vec::new();
    let refused = |desc: &LogicalTensor| Tensor::of_view(desc, &engine, &turned).err();
    let desc = |data_type, dims: &[i64]| LogicalTensor::strided(0, data_type, dims).unwrap();
    let rows = [
        (desc(DataType::S32, &[5, 3]), "the elements given are f32, the tensor is s32"),
        (desc(DataType::F32, &[3, 5]), "elements of {5,3} were given, the tensor is {3,5}"),
        (desc(DataType::F32, &[5, 3]), "the strides given are {1,5}, the tensor has {3,1}"),
        (LogicalTensor::unknown(0, DataType::F32), "memory needs known dims and strides"),
    ];
    for (desc, text) in rows {
        let given = refused(&desc).map(|error| error.to_string());
        if given.as_deref() != Some(&format!("tensor 0: {text}")) {
            wrong.push(given);
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let mut other = Array2::<f32>::zeros((5, 4));
    assert!(TensorMut::of_view(&dst, &engine, &mut other).is_err());

    let mut buffer = compiled.tensor_buf("dst").unwrap();
    buffer.as_array_mut::<f32>().unwrap().assign(&result);
    assert_eq!(buffer.as_array::<f32>().unwrap(), result.view().into_dyn());
    assert!(buffer.as_array::<i32>().is_err());
    let overlapping = LogicalTensor::with_strides(0, DataType::U8, &[2, 2], &[1, 1]).unwrap();
    let mut buffer = sterna::TensorBuf::zeroed(overlapping, &engine).unwrap();
    let error = buffer.as_array_mut::<u8>().unwrap_err();
    assert_eq!(error, Error::Tensor { id: 0.into(), fault: TensorFault::NoArray });
    let sum = source.sum_axis(Axis(0));
    assert_eq!(select(&true, &sum, &0.0).unwrap().len(), 5);
}
