//! Promise: whatever is wrong with a call to compile or execute is answered with an error that names it;
//! nothing panics, and nothing is written.

use crate::common::open::{self, OPEN};
use crate::common::{self, COND, Case, DST, ELSE, Random, THEN};
use sterna::{
    AutoBroadcast, CompileFault, DataType, Direction, Engine, Error, ExecuteFault, Layout, LogicalTensor, Op,
    OpKind, Partition, Property, Status, Stream, Tensor, TensorBuf, TensorFault, TensorMut,
};

fn case() -> Case {
    Case::new(AutoBroadcast::Numpy, DataType::F32, [&[3], &[2, 3], &[1]])
}

fn engine() -> Engine {
    Engine::builder().threads(1).build()
}

#[test]
fn compile() {
    let strided = |id: usize, data_type, dims: &[i64]| open::strided(id, data_type, dims).unwrap();
    let then = |dims: &[i64]| strided(THEN, DataType::F32, dims);
    let inputs = case().inputs().unwrap();
    let with = |i: usize, tensor: LogicalTensor| {
        let mut inputs = inputs.clone();
        inputs[i] = tensor;
        inputs
    };
    let output = LogicalTensor::unknown(DST, DataType::F32);
    let opaque = open::with_layout(DST, DataType::F32, Some(&[2, 3]), Layout::Opaque(1)).unwrap();
    let huge = 1i64 << 40;
    /// The fault in words, inputs, outputs, the status expected, and a part of the error.
    type Row = (&'static str, Vec<LogicalTensor>, Vec<LogicalTensor>, Status, &'static str);
    let rows: Vec<Row> = vec![
        ("fine", inputs.clone(), vec![output.clone()], Status::Success, ""),
        (
            "any order, extras and doubles",
            [
                strided(7, DataType::U8, &[9]),
                inputs[2].clone(),
                inputs[1].clone(),
                then(&[9]),
                inputs[0].clone(),
            ]
            .to_vec(),
            vec![strided(8, DataType::U8, &[]), output.clone(), output.clone()],
            Status::Success,
            "",
        ),
        (
            "an input missing",
            inputs[..2].to_vec(),
            vec![output.clone()],
            Status::InvalidArguments,
            "input tensor 2 is missing",
        ),
        (
            "the output missing",
            inputs.clone(),
            vec![],
            Status::InvalidArguments,
            "output tensor 3 is missing",
        ),
        (
            "unknown rank",
            with(THEN, LogicalTensor::unknown(THEN, DataType::F32)),
            vec![output.clone()],
            Status::InvalidArguments,
            "shape of input tensor 1 is not fully known",
        ),
        (
            "an unknown dim",
            with(THEN, then(&[2, OPEN])),
            vec![output.clone()],
            Status::InvalidArguments,
            "shape of input tensor 1 is not fully known",
        ),
        (
            "an input of layout any",
            with(THEN, LogicalTensor::any(THEN, DataType::F32, &[2, 3]).unwrap()),
            vec![output.clone()],
            Status::InvalidArguments,
            "tensor 1 has no strided layout",
        ),
        (
            "an opaque output",
            inputs.clone(),
            vec![opaque],
            Status::InvalidArguments,
            "tensor 3 has no strided layout",
        ),
        (
            "another type",
            with(THEN, strided(THEN, DataType::F64, &[2, 3])),
            vec![output.clone()],
            Status::InvalidDataType,
            "tensor 1 is f64, in the graph it is f32",
        ),
        (
            "another type of the output",
            inputs.clone(),
            vec![LogicalTensor::unknown(DST, DataType::F16)],
            Status::InvalidDataType,
            "tensor 3 is f16, in the graph it is f32",
        ),
        (
            "shapes that do not broadcast",
            with(THEN, then(&[2, 4])),
            vec![output.clone()],
            Status::InvalidShape,
            "`cond` (tensor 0) under auto_broadcast = numpy: {3} does not broadcast onto {2,4}: 3 against 4 at axis 1",
        ),
        (
            "an output of another shape",
            inputs.clone(),
            vec![strided(DST, DataType::F32, &[3, 2])],
            Status::InvalidShape,
            "output 0 `dst` (tensor 3) is given as {3,2}, but {2,3} follows from the inputs",
        ),
        (
            "overlapping output strides",
            inputs.clone(),
            vec![LogicalTensor::with_strides(DST, DataType::F32, &[2, 3], &[2, 1]).unwrap()],
            Status::InvalidArguments,
            "the strides {2,1} of output tensor 3 overlap for dims {2,3}",
        ),
        (
            "strides that leave the address space once the dims are known",
            inputs.clone(),
            vec![open::with_strides(DST, DataType::F32, &[OPEN, OPEN], &[i64::MAX / 2, 1]).unwrap()],
            Status::InvalidArguments,
            "tensor 3 of {2,3} is larger than the address space",
        ),
        (
            "a host scalar here alone",
            with(ELSE, LogicalTensor::host_scalar(ELSE, DataType::F32).unwrap()),
            vec![output.clone()],
            Status::InvalidArguments,
            "tensor 2 is a host scalar here or in the graph, but not in both",
        ),
        (
            "a result beyond the address space",
            vec![
                strided(COND, DataType::Boolean, &[]),
                LogicalTensor::with_strides(THEN, DataType::F32, &[huge, 1], &[0, 0]).unwrap(),
                LogicalTensor::with_strides(ELSE, DataType::F32, &[1, huge], &[0, 0]).unwrap(),
            ],
            vec![output.clone()],
            Status::InvalidShape,
            "is larger than the address space",
        ),
    ];
    let engine = engine();
    let partition = Partition::from_op(case().op()).unwrap();
    let mut wrong = Vec::new();
    for (name, inputs, outputs, status, text) in rows {
        let result = partition.compile_for(&engine, &inputs, &outputs);
        let (given, message) = match &result {
            Ok(_) => (Status::Success, String::new()),
            Err(error) => (error.status(), error.to_string()),
        };
        if given != status || !message.contains(text) {
            wrong.push((name, given, message));
        }
    }
    common::report(&wrong);
}

#[test]
fn compile_of_an_unsupported_partition() {
    let wildcard = Op::new(4, OpKind::Wildcard)
        .input(LogicalTensor::strided(0, DataType::F32, &[2]).unwrap())
        .output(LogicalTensor::strided(1, DataType::F32, &[2]).unwrap());
    let partition = Partition::from_op(wildcard).unwrap();
    assert!(!partition.is_supported());
    let error = partition.compile(&engine()).unwrap_err();
    assert_eq!(error.status(), Status::InvalidArguments);
    let reason = partition.unsupported_reason().unwrap();
    assert_eq!(error, Error::Compile { partition: 0, fault: CompileFault::Unsupported(reason) });
}

#[test]
fn execute() {
    let (engine, other_engine) = (engine(), engine());
    let (stream, other_stream) = (Stream::new(&engine), Stream::new(&other_engine));
    let compiled = case().compile(&engine).unwrap();
    let inputs = case().filled(&compiled, &engine, &mut Random::new(1));
    let [cond, then, else_] = [COND, THEN, ELSE].map(|i| inputs[i].as_tensor());

    let foreign = TensorBuf::zeroed(compiled.inputs()[THEN].clone(), &other_engine).unwrap();
    let retyped =
        TensorBuf::zeroed(LogicalTensor::strided(THEN, DataType::S32, &[2, 3]).unwrap(), &engine).unwrap();
    let reshaped =
        TensorBuf::zeroed(LogicalTensor::strided(THEN, DataType::F32, &[3, 2]).unwrap(), &engine).unwrap();
    let transposed = LogicalTensor::with_strides(THEN, DataType::F32, &[2, 3], &[1, 2]).unwrap();
    let transposed = TensorBuf::zeroed(transposed, &engine).unwrap();
    let extra = TensorBuf::zeroed(LogicalTensor::strided(77, DataType::U8, &[]).unwrap(), &engine).unwrap();
    // SAFETY: a null address is never read.
    let null = unsafe { Tensor::from_raw_parts(&compiled.inputs()[THEN], &engine, std::ptr::null()) };
    let differs = |what, given: &str, expected: &str| ExecuteFault::Differs {
        tensor: THEN.into(),
        what,
        given: given.into(),
        expected: expected.into(),
    };
    let missing = |tensor| ExecuteFault::Missing { direction: Direction::Input, tensor };

    let rows: Vec<(&str, &Stream, Vec<Tensor<'_>>, Option<ExecuteFault>)> = vec![
        ("fine", &stream, vec![cond, then, else_], None),
        ("any order and extras", &stream, vec![else_, extra.as_tensor(), then, cond], None),
        ("none", &stream, vec![], Some(missing(COND.into()))),
        ("one missing", &stream, vec![cond, then], Some(missing(ELSE.into()))),
        ("null", &stream, vec![cond, null, else_], Some(ExecuteFault::NoMemory { tensor: THEN.into() })),
        (
            "another type",
            &stream,
            vec![cond, retyped.as_tensor(), else_],
            Some(differs("types", "s32", "f32")),
        ),
        (
            "other dims",
            &stream,
            vec![cond, reshaped.as_tensor(), else_],
            Some(differs("dims", "{3,2}", "{2,3}")),
        ),
        (
            "other strides",
            &stream,
            vec![cond, transposed.as_tensor(), else_],
            Some(differs("strides", "{1,2}", "{3,1}")),
        ),
        (
            "a tensor of another engine",
            &stream,
            vec![cond, foreign.as_tensor(), else_],
            Some(ExecuteFault::TensorEngine { tensor: THEN.into() }),
        ),
        (
            "a stream of another engine",
            &other_stream,
            vec![cond, then, else_],
            Some(ExecuteFault::StreamEngine),
        ),
    ];
    let mut wrong = Vec::new();
    for (name, stream, inputs, expected) in rows {
        let mut output = TensorBuf::zeroed(compiled.outputs()[0].clone(), &engine).unwrap();
        output.as_mut_bytes().fill(common::GAP);
        let result = compiled.execute(stream, &inputs, &mut [output.as_tensor_mut()]);
        let untouched = output.as_bytes().iter().all(|&byte| byte == common::GAP);
        let agrees = match &expected {
            None => result.is_ok() && !untouched,
            Some(fault) => result == Err(Error::Execute(fault.clone())) && untouched,
        };
        if !agrees {
            wrong.push((name, result, untouched));
        }
    }
    common::report(&wrong);

    let all = [cond, then, else_];
    let error = compiled.execute(&stream, &all, &mut []).unwrap_err();
    let fault = ExecuteFault::Missing { direction: Direction::Output, tensor: DST.into() };
    assert_eq!(error, Error::Execute(fault));
    assert_eq!(error.status(), Status::InvalidArguments);
    // SAFETY: a null address is never written.
    let null = unsafe { TensorMut::from_raw_parts(&compiled.outputs()[0], &engine, std::ptr::null_mut()) };
    let error = compiled.execute(&stream, &all, &mut [null]).unwrap_err();
    assert_eq!(error, Error::Execute(ExecuteFault::NoMemory { tensor: DST.into() }));
}

#[test]
fn null_is_memory_enough_for_an_empty_tensor() {
    let engine = engine();
    let compiled =
        Case::new(AutoBroadcast::None, DataType::F32, [&[0], &[0], &[0]]).compile(&engine).unwrap();
    // SAFETY: the tensors have no elements.
    let (inputs, mut outputs) = unsafe {
        (
            [COND, THEN, ELSE]
                .map(|i| Tensor::from_raw_parts(&compiled.inputs()[i], &engine, std::ptr::null())),
            [TensorMut::from_raw_parts(&compiled.outputs()[0], &engine, std::ptr::null_mut())],
        )
    };
    compiled.execute(&Stream::new(&engine), &inputs, &mut outputs).unwrap();
}

#[test]
fn tensors() {
    let engine = engine();
    let desc = LogicalTensor::strided(5, DataType::F32, &[2, 3]).unwrap();
    let scalar = LogicalTensor::host_scalar(6, DataType::S32).unwrap();
    let any = LogicalTensor::any(7, DataType::F32, &[2]).unwrap();
    let four_bit = LogicalTensor::strided(8, DataType::F4E2m1, &[2]).unwrap();
    let fault = |id, fault| Some(Error::Tensor { id, fault });
    let wrong_type = TensorFault::ElementType { expected: DataType::F32, given: DataType::S32 };
    let needs = |property, hint| TensorFault::Property { property, hint };
    let rows = [
        ("fine", Tensor::new(&desc, &engine, &[0f32; 6]).err(), None),
        ("longer than needed", Tensor::new(&desc, &engine, &[0f32; 7]).err(), None),
        (
            "too short",
            Tensor::new(&desc, &engine, &[0f32; 5]).err(),
            fault(5.into(), TensorFault::TooShort { needed: 6, given: 5 }),
        ),
        (
            "too short to write",
            TensorMut::new(&desc, &engine, &mut [0f32; 5]).err(),
            fault(5.into(), TensorFault::TooShort { needed: 6, given: 5 }),
        ),
        ("another type", Tensor::new(&desc, &engine, &[0i32; 6]).err(), fault(5.into(), wrong_type.clone())),
        (
            "another type to write",
            TensorMut::new(&desc, &engine, &mut [0i32; 6]).err(),
            fault(5.into(), wrong_type),
        ),
        (
            "layout any",
            Tensor::new(&any, &engine, &[0f32; 6]).err(),
            fault(7.into(), TensorFault::NotConcrete),
        ),
        (
            "a host scalar from a slice",
            Tensor::new(&scalar, &engine, &[0i32]).err(),
            fault(6.into(), needs(Property::HostScalar, "use `Tensor::scalar`")),
        ),
        ("a host scalar", Tensor::scalar(&scalar, 1i32).err(), None),
        (
            "a host scalar of another type",
            Tensor::scalar(&scalar, 1f32).err(),
            fault(6.into(), TensorFault::ElementType { expected: DataType::S32, given: DataType::F32 }),
        ),
        (
            "a scalar for a tensor",
            Tensor::scalar(&desc, 1f32).err(),
            fault(5.into(), needs(Property::Undef, "use `Tensor::new`")),
        ),
        (
            "memory for a float of 4 bits",
            TensorBuf::zeroed(four_bit, &engine).err(),
            fault(8.into(), TensorFault::NoElements(DataType::F4E2m1)),
        ),
    ];
    let wrong: Vec<_> = rows.iter().filter(|(_, given, expected)| given != expected).collect();
    common::report(&wrong);
}

#[test]
fn an_allocator_that_fails_is_an_error() {
    use std::ptr::NonNull;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use sterna::{Allocator, SystemAllocator};

    /// Gives so many blocks, and then no more.
    struct Few(AtomicUsize);

    // SAFETY: every block is one of the system allocator's.
    unsafe impl Allocator for Few {
        fn allocate(&self, size: usize, align: usize) -> Option<NonNull<u8>> {
            let left = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
            left.ok().and_then(|_| SystemAllocator.allocate(size, align))
        }

        unsafe fn deallocate(&self, block: NonNull<u8>, size: usize, align: usize) {
            // SAFETY: as the caller promises.
            unsafe { SystemAllocator.deallocate(block, size, align) };
        }
    }

    // The transposed operand needs scratch, so the fifth block is taken by the execution.
    let mut case = Case::new(AutoBroadcast::None, DataType::F32, [&[8, 9], &[8, 9], &[8, 9]]);
    case.strides[THEN] = Some(vec![1, 8]);
    case.dst_strides = Some(vec![9, 1]);
    for blocks in 0..=5 {
        let engine = Engine::builder().threads(1).allocator(Arc::new(Few(AtomicUsize::new(blocks)))).build();
        let compiled = case.compile(&engine).unwrap();
        let tensors: Result<Vec<TensorBuf>, Error> = (compiled.inputs().iter().chain(compiled.outputs()))
            .map(|desc| TensorBuf::zeroed(desc.clone(), &engine))
            .collect();
        let result = tensors.and_then(|mut tensors| {
            let mut output = tensors.pop().unwrap();
            common::run(&compiled, &engine, &tensors, &mut output)
        });
        match result {
            Ok(()) => assert_eq!(blocks, 5),
            Err(error) => {
                assert!(blocks < 5, "{error}");
                assert_eq!(error.status(), Status::OutOfMemory);
            }
        }
    }
}
