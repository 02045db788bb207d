//! A causal mask in front of a SoftMax: a query sees no key behind it.
//!
//! The mask is computed from indices where it is needed, and never lies in memory.
//!
//! `cargo run --example causal_mask`

use sterna::{Attr, DataType, Engine, Graph, LogicalTensor, Op, OpKind, Policy, Result};

pub(crate) fn main() -> Result<()> {
    const SCORES: usize = 0;
    const MASKED: usize = 5;
    let dims = [3, 3];
    let tensor = |id, data_type| LogicalTensor::strided(id, data_type, &dims);
    let scores = || tensor(SCORES, DataType::F32);
    let lowest = LogicalTensor::host_scalar(4, DataType::F32)?;

    // keep[i][j] = i >= j; masked = keep ? scores : lowest
    let mut graph = Graph::new();
    let index = |id, axis, to| -> Result<Op> {
        let op = Op::new(id, OpKind::GenIndex).attr(Attr::Axis, axis);
        Ok(op.input(scores()?).output(tensor(to, DataType::S32)?))
    };
    graph.add_op(index(0, 0, 1)?)?;
    graph.add_op(index(1, 1, 2)?)?;
    let (row, column, keep) =
        (tensor(1, DataType::S32)?, tensor(2, DataType::S32)?, tensor(3, DataType::Boolean)?);
    graph.add_op(Op::new(2, OpKind::GreaterEqual).input(row).input(column).output(keep.clone()))?;
    graph.add_op(Op::select(3, keep, scores()?, lowest.clone(), tensor(MASKED, DataType::F32)?))?;
    graph.finalize()?;

    let partitions = graph.partitions(Policy::Fusion)?;
    assert_eq!(partitions.len(), 1, "all four ops run in one pass over the scores");
    let compiled = partitions[0].compile(&Engine::new())?;
    let values = [1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0];
    let mut result = [0.0f32; 9];
    let inputs = [compiled.tensor(SCORES, &values)?, sterna::Tensor::scalar(&lowest, f32::NEG_INFINITY)?];
    compiled.run(&inputs, &mut [compiled.tensor_mut(MASKED, &mut result)?])?;

    const OUT: f32 = f32::NEG_INFINITY;
    assert_eq!(result, [1.0, OUT, OUT, 4.0, 5.0, OUT, 7.0, 8.0, 9.0]);
    println!("{result:?}");
    Ok(())
}
