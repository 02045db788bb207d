//! One partition for many shapes: the graph leaves all dims open, and each shape is compiled when it comes.
//!
//! `cargo run --example dynamic_shapes`

use sterna::{
    DataType, Engine, LogicalTensor, Op, Partition, Result, TensorBuf, compiled_partition_cache_stats,
};

const COND: usize = 0;
const THEN: usize = 1;
const ELSE: usize = 2;
const DST: usize = 3;

pub(crate) fn main() -> Result<()> {
    let f32s = |id| LogicalTensor::unknown(id, DataType::F32);
    let cond = LogicalTensor::unknown(COND, DataType::Boolean);
    let partition = Partition::from_op(Op::select(0, cond, f32s(THEN), f32s(ELSE), f32s(DST)))?;
    let engine = Engine::new();

    let before = compiled_partition_cache_stats();
    for (rows, columns) in [(2, 3), (4, 1), (2, 3)] {
        // The dims of this batch take the place of the open ones; the result's dims follow from them.
        let inputs = [
            LogicalTensor::strided(COND, DataType::Boolean, &[columns])?,
            LogicalTensor::strided(THEN, DataType::F32, &[rows, columns])?,
            LogicalTensor::strided(ELSE, DataType::F32, &[])?,
        ];
        let compiled = partition.compile_for(&engine, &inputs, partition.outputs())?;
        let dst = compiled.port("dst")?;
        assert_eq!(dst.dims(), Some(&[rows, columns][..]));

        let mask: Vec<bool> = (0..columns).map(|column| column % 2 == 0).collect();
        let values: Vec<f32> = (0..rows * columns).map(|value| value as f32).collect();
        let mut result = TensorBuf::zeroed(dst.clone(), &engine)?;
        let tensors = [
            compiled.tensor("cond", &mask)?,
            compiled.tensor("then", &values)?,
            compiled.tensor("else", &[-1.0f32])?,
        ];
        compiled.run(&tensors, &mut [result.as_tensor_mut()])?;
        println!("{rows} x {columns}: {:?}", result.as_slice::<f32>()?);
        assert!(
            result
                .as_slice::<f32>()?
                .iter()
                .enumerate()
                .all(|(at, &value)| { value == if at as i64 % columns % 2 == 0 { at as f32 } else { -1.0 } })
        );
    }
    let found = compiled_partition_cache_stats().hits - before.hits;
    println!("{found} of three compilations found their plan in the cache");
    Ok(())
}
