//! `masked_fill` of PyTorch: `tensor.masked_fill(mask, value)` is a select whose `then` is the value.
//!
//! `cargo run --example masked_fill`

use sterna::{DataType, Engine, LogicalTensor, Op, Partition, Result, select};

pub(crate) fn main() -> Result<()> {
    // Into a new vector, in one call.
    let mask = [true, false, false, true];
    let filled = select(&mask, &-1.0f32, &[1.0, 2.0, 3.0, 4.0])?;
    assert_eq!(filled, [-1.0, 2.0, 3.0, -1.0]);

    // `masked_fill_`: in place. The output also holds the values of the input that it replaces.
    const MASK: usize = 0;
    const VALUE: usize = 1;
    const TENSOR: usize = 2;
    const RESULT: usize = 3;
    let op = Op::select(
        0,
        LogicalTensor::strided(MASK, DataType::Boolean, &[4])?,
        LogicalTensor::strided(VALUE, DataType::F32, &[])?,
        LogicalTensor::strided(TENSOR, DataType::F32, &[4])?,
        LogicalTensor::strided(RESULT, DataType::F32, &[4])?,
    );
    let compiled = Partition::from_op(op)?.compile(&Engine::new())?;
    let mut tensor = [1.0f32, 2.0, 3.0, 4.0];
    let inputs = [compiled.tensor(MASK, &mask)?, compiled.tensor(VALUE, &[-1.0f32])?];
    let output = compiled.tensor_mut(RESULT, &mut tensor)?.in_place_of(TENSOR);
    compiled.run(&inputs, &mut [output])?;
    assert_eq!(tensor, [-1.0, 2.0, 3.0, -1.0]);
    println!("{tensor:?}");
    Ok(())
}
