//! Promise: messages show the values on both sides, name what may be meant, and say which call comes next.

use sterna::{
    DataType, Engine, Graph, LogicalTensor, Op, OpKind, Partition, Policy, Stream, Tensor, TensorMut,
};

/// A select of two by three, compiled.
fn partition() -> Partition {
    let tensor = |id, data_type| LogicalTensor::strided(id, data_type, &[2, 3]).unwrap();
    let f32s = |id| tensor(id, DataType::F32);
    Partition::from_op(Op::select(0, tensor(0, DataType::Boolean), f32s(1), f32s(2), f32s(3))).unwrap()
}

#[test]
fn messages_say_what_helps() {
    let engine = Engine::new();
    let compiled = partition().compile(&engine).unwrap();
    // Executes with another `then`.
    let executed = |then: &LogicalTensor| {
        let (floats, ints, mut result) = ([1.0f32; 12], [1i32; 12], [0.0f32; 6]);
        let then = match then.data_type() {
            DataType::S32 => Tensor::new(then, &engine, &ints).unwrap(),
            _ => Tensor::new(then, &engine, &floats).unwrap(),
        };
        let inputs =
            [compiled.tensor("cond", &[true; 6]).unwrap(), then, compiled.tensor("else", &floats).unwrap()];
        let output = TensorMut::new(&compiled.outputs()[0], &engine, &mut result).unwrap();
        compiled.execute(&Stream::new(&engine), &inputs, &mut [output]).unwrap_err().to_string()
    };
    let desc = |data_type, dims: &[i64]| LogicalTensor::strided(1, data_type, dims).unwrap();
    let strided = LogicalTensor::with_strides(1, DataType::F32, &[2, 3], &[1, 2]).unwrap();

    let mut open = Graph::new();
    let abs = |id: usize| {
        let tensor = |id| LogicalTensor::strided(id, DataType::F32, &[4]).unwrap();
        Op::new(id, OpKind::Abs).input(tensor(id)).output(tensor(id + 1))
    };
    open.add_op(abs(0)).unwrap();
    let not_finalized = open.partitions(Policy::Fusion).unwrap_err().to_string();
    open.finalize().unwrap();
    let finalized = open.add_op(abs(1)).unwrap_err().to_string();

    let add = Op::new(4, OpKind::Add).inputs_from([1, 2].map(|id| desc(DataType::F32, &[2]).with_id(id)));
    let sum = Partition::from_op(add.output(desc(DataType::F32, &[2]).with_id(3))).unwrap();
    let mut chain = Graph::new();
    let f32s = |id| LogicalTensor::strided(id, DataType::F32, &[2]).unwrap();
    let twice = [
        Op::new(0, OpKind::Add).input(f32s(0)).input(f32s(1)).output(f32s(2)),
        Op::new(1, OpKind::Multiply).input(f32s(3)).input(f32s(2)).output(f32s(4)),
    ];
    twice.into_iter().for_each(|op| chain.add_op(op).unwrap());
    chain.finalize().unwrap();
    let chain = chain.partitions(Policy::Fusion).unwrap()[0].compile(&engine).unwrap();

    let rows: Vec<(String, &str)> = vec![
        (
            executed(&desc(DataType::F32, &[3, 2])),
            "the partition cannot be executed: tensor 1: dims are {3,2} here, but {2,3} where it was compiled",
        ),
        (
            executed(&desc(DataType::S32, &[2, 3])),
            "the partition cannot be executed: tensor 1: types are s32 here, but f32 where it was compiled",
        ),
        (
            executed(&strided),
            "the partition cannot be executed: tensor 1: strides are {1,2} here, but {3,1} where it was compiled",
        ),
        (not_finalized, "the graph is not finalized; call `finalize` first"),
        (finalized, "the graph is finalized and cannot be changed"),
        (
            "select".parse::<OpKind>().unwrap_err().to_string(),
            "no op kind is called \"select\"; did you mean \"Select\"?",
        ),
        (
            "GreaterEquals".parse::<OpKind>().unwrap_err().to_string(),
            "no op kind is called \"GreaterEquals\"; did you mean \"GreaterEqual\"?",
        ),
        ("Frobnicate".parse::<OpKind>().unwrap_err().to_string(), "no op kind is called \"Frobnicate\""),
        (
            "auto_brodcast".parse::<sterna::Attr>().unwrap_err().to_string(),
            "no attribute is called \"auto_brodcast\"; did you mean \"auto_broadcast\"?",
        ),
        (
            compiled.port("Else").unwrap_err().to_string(),
            "port `Else`: no port of the compiled partition is called so, only cond, then, else, dst; did you \
             mean \"else\"?",
        ),
        (compiled.port(9).unwrap_err().to_string(), "tensor 9: it is no port of the compiled partition"),
        (
            sum.compile(&engine).unwrap().port("src").unwrap_err().to_string(),
            "port `src`: no port of the compiled partition is called so, only src_0, src_1, dst; did you mean \
             \"src_0\"?",
        ),
        (
            chain.port("src_0").unwrap_err().to_string(),
            "port `src_0`: tensors 0, 3 are called so; name one of them by its id",
        ),
    ];
    let wrong: Vec<_> = rows.iter().filter(|(given, expected)| given != expected).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}
