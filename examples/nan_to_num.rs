//! `nan_to_num` of NumPy: NaN becomes 0, infinities become the largest and the lowest number.
//!
//! Three ops, one pass over memory.
//!
//! `cargo run --example nan_to_num`

use sterna::{Attr, DataType, Engine, Graph, LogicalTensor, Op, OpKind, Policy, Result};

pub(crate) fn main() -> Result<()> {
    const X: usize = 0;
    const ZERO: usize = 3;
    const RESULT: usize = 4;
    let f32s = |id| LogicalTensor::strided(id, DataType::F32, &[5]);
    let is_nan = LogicalTensor::strided(1, DataType::Boolean, &[5])?;
    let zero = LogicalTensor::strided(ZERO, DataType::F32, &[])?;

    // result = is_nan(x) ? 0 : clamp(x, lowest, largest)
    let mut graph = Graph::new();
    graph.add_op(Op::new(0, OpKind::IsNaN).input(f32s(X)?).output(is_nan.clone()))?;
    let clamp = Op::new(1, OpKind::Clamp).attr(Attr::Min, f32::MIN).attr(Attr::Max, f32::MAX);
    graph.add_op(clamp.input(f32s(X)?).output(f32s(2)?))?;
    graph.add_op(Op::select(2, is_nan, zero, f32s(2)?, f32s(RESULT)?))?;
    graph.finalize()?;

    let partitions = graph.partitions(Policy::Fusion)?;
    assert_eq!(partitions.len(), 1);
    let compiled = partitions[0].compile(&Engine::new())?;
    let mut result = [0.0f32; 5];
    let inputs = [
        compiled.tensor(X, &[1.0f32, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0])?,
        compiled.tensor(ZERO, &[0.0f32])?,
    ];
    compiled.run(&inputs, &mut [compiled.tensor_mut(RESULT, &mut result)?])?;
    assert_eq!(result, [1.0, 0.0, f32::MAX, f32::MIN, -0.0]);
    println!("{result:?}");
    Ok(())
}
