//! Products whose operands vary: how their tiles read both, and that each way gives the same bits.

use sterna::{
    Attr, CompiledPartition, DataType, Engine, LogicalTensor, Op, OpKind, Partition, Property, Stream,
    TensorBuf,
};

use crate::common::{engines, report};

/// The sizes of a product, the type of its operands, and which of them are transposed.
struct Shape {
    size: [i64; 3],
    data_type: DataType,
    transposed: [bool; 2],
}

impl Shape {
    fn compile(&self, engine: &Engine, weights: Property) -> CompiledPartition {
        let [m, n, k] = self.size;
        let matrix = |id, rows: i64, columns: i64, transposed: bool| {
            let dims = if transposed { [columns, rows] } else { [rows, columns] };
            LogicalTensor::strided(id, self.data_type, &dims).unwrap()
        };
        let op = Op::new(0, OpKind::MatMul)
            .attr(Attr::TransposeA, self.transposed[0])
            .attr(Attr::TransposeB, self.transposed[1])
            .input(matrix(0, m, k, self.transposed[0]))
            .input(matrix(1, k, n, self.transposed[1]).with_property(weights).unwrap())
            .output(matrix(2, m, n, false));
        Partition::from_op(op).unwrap().compile(engine).unwrap()
    }
}

/// A tensor of numbers of many digits, and some infinities and NaNs of several bits.
fn tensor(desc: &LogicalTensor, engine: &Engine, seed: usize) -> TensorBuf {
    let mut tensor = TensorBuf::zeroed(desc.clone(), engine).unwrap();
    let size = desc.data_type().size().unwrap();
    for (at, element) in tensor.as_mut_bytes().chunks_exact_mut(size).enumerate() {
        let mixed = (at + seed).wrapping_mul(2_654_435_761) >> 5;
        let bits = match at % 9973 {
            9001 => 0x7fc1_0000 + ((seed as u32) << 17),
            9002 => 0xffa3_0000,
            9003 => 0x7f80_0000,
            _ => ((mixed % 4093) as f32 / 1021.0 - 2.0).to_bits(),
        };
        element.copy_from_slice(&bits.to_le_bytes()[4 - size..]);
    }
    tensor
}

fn execute(compiled: &CompiledPartition, inputs: &[TensorBuf]) -> Vec<u8> {
    let mut result = TensorBuf::zeroed(compiled.outputs()[0].clone(), compiled.engine()).unwrap();
    let inputs: Vec<_> = inputs.iter().map(TensorBuf::as_tensor).collect();
    compiled.execute(&Stream::new(compiled.engine()), &inputs, &mut [result.as_tensor_mut()]).unwrap();
    result.as_bytes().to_vec()
}

#[test]
fn panels_of_tiles_give_the_bits_of_panels_that_are_packed_before() {
    let mut wrong = Vec::new();
    for engine in engines() {
        // A row of tiles, several blocks of the depth, odd ends; one row more than tiles pack for; columns
        // that lie far apart on the left.
        for size in [[33, 600, 515], [100, 130, 769], [144, 1030, 259], [145, 130, 600], [301, 77, 523]] {
            for data_type in [DataType::F32, DataType::Bf16, DataType::F16] {
                for transposed in [[false, false], [true, false], [false, true], [true, true]] {
                    let shape = Shape { size, data_type, transposed };
                    let [kept, varying] =
                        [Property::Constant, Property::Variable].map(|of| shape.compile(&engine, of));
                    let inputs = [0, 1].map(|port| tensor(&kept.inputs()[port], &engine, port));
                    if execute(&kept, &inputs) != execute(&varying, &inputs) {
                        wrong.push(format!("{}: {size:?} {data_type} {transposed:?}", engine.level()));
                    }
                }
            }
        }
    }
    report(&wrong);
}

#[test]
fn plans_tell_how_tiles_read_operands_that_vary() {
    let mut wrong = Vec::new();
    let (in_tiles, before, copied) =
        ("panels packed in tiles", "packed panels", "left columns copied in tiles");
    let transposed = |left, right| [left, right];
    for engine in engines() {
        for (size, transposed, expected, unexpected) in [
            ([128, 768, 768], transposed(false, false), in_tiles, before),
            ([128, 768, 768], transposed(false, true), in_tiles, before),
            ([40, 300, 200], transposed(false, true), in_tiles, before),
            ([300, 768, 768], transposed(false, false), before, copied),
            ([300, 768, 128], transposed(true, false), copied, in_tiles),
            // Columns that lie close, and a result of few columns.
            ([120, 768, 768], transposed(true, false), in_tiles, copied),
            ([300, 60, 768], transposed(true, false), "f32", copied),
        ] {
            let shape = Shape { size, data_type: DataType::F32, transposed };
            let plan = shape.compile(&engine, Property::Variable).plan().to_string();
            if !plan.contains(expected) || plan.contains(unexpected) {
                wrong.push(format!("{}: {size:?} {transposed:?}: {plan}", engine.level()));
            }
        }
    }
    report(&wrong);
}
