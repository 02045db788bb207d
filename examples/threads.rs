//! Several threads execute one compiled partition at once. Each brings its own memory; nothing is locked.
//!
//! `cargo run --example threads`

use std::thread;

use sterna::{DataType, Engine, LogicalTensor, Op, Partition, Result};

const LENGTH: usize = 10_000;

pub(crate) fn main() -> Result<()> {
    let tensor = |id, data_type| LogicalTensor::strided(id, data_type, &[LENGTH as i64]);
    let (cond, then) = (tensor(0, DataType::Boolean)?, tensor(1, DataType::S32)?);
    let op = Op::select(0, cond, then, tensor(2, DataType::S32)?, tensor(3, DataType::S32)?);
    // An execution may use threads of the engine beside that of the caller. A program that runs many
    // executions at once is often faster with one thread each.
    let engine = Engine::builder().threads(1).build();
    let compiled = Partition::from_op(op)?.compile(&engine)?;

    let run = |number: i32| -> Result<i64> {
        let mask: Vec<bool> = (0..LENGTH).map(|at| at % 4 == 0).collect();
        let (then, else_) = (vec![number; LENGTH], vec![-number; LENGTH]);
        let mut result = vec![0i32; LENGTH];
        let inputs = [
            compiled.tensor("cond", &mask)?,
            compiled.tensor("then", &then)?,
            compiled.tensor("else", &else_)?,
        ];
        compiled.run(&inputs, &mut [compiled.tensor_mut("dst", &mut result)?])?;
        Ok(result.into_iter().map(i64::from).sum())
    };
    let sums: Vec<Result<i64>> = thread::scope(|scope| {
        let threads: Vec<_> = (1..=4)
            .map(|number| {
                scope.spawn({
                    let run = &run;
                    move || run(number)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("a thread ends well")).collect()
    });

    for (number, sum) in (1..).zip(sums) {
        let sum = sum?;
        assert_eq!(sum, -(LENGTH as i64) / 2 * number, "a quarter is positive, three are negative");
        println!("thread {number}: {sum}");
    }
    Ok(())
}
