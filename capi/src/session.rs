//! Sessions: models that run as a whole.

use std::ffi::{CString, c_char, c_int};
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::custom_op::{CallerOp, CustomOp};
use crate::engine::{self, Engine, Shared};
use crate::ffi::{Fault, array, check_array, ffi_guard, fill, require};
use crate::fpmath_mode::{self, FpMathMode};
use crate::logical_tensor::LogicalTensor;
use crate::model::{Model, names, told_port};
use crate::named_view::{NamedDims, NamedView, NamedViewMut, as_inputs, as_outputs};
use crate::options::Options;
use crate::state_link::StateLink;
use crate::status::Status;
use crate::tensor::Tensor;

/// A model that runs as a whole, on inputs of any shapes that it allows.
///
/// For each set of shapes that it meets, a session makes a plan, which it keeps: it infers the shape of every
/// tensor, cuts the graph into partitions, compiles them, and lays the tensors between them out in one block
/// of memory.
///
/// Any thread may use it at any time, and any number of threads may run it at once. It does not need its
/// model any more, and keeps the parts of its engine that it needs.
pub struct Session {
    pub(crate) core: sterna::Session,
    pub(crate) engine: Shared,
    /// The names of inputs, then outputs, for C.
    names: [Vec<CString>; 2],
}

impl Session {
    /// Refuses another number of outputs than there are, and an address that has no room for them.
    pub(crate) fn check_room<T>(&self, outputs: *mut T, num: usize) -> Result<(), Fault> {
        let known = self.core.outputs().len();
        if num != known {
            return Err(Fault::count("outputs", num, known));
        }
        check_array(outputs, num, "outputs")
    }
}

/// The options of `sterna_session_create`.
///
/// Set all bytes to 0, then `struct_size` to the size of the struct, then what is wanted: 0 and null are the
/// defaults. Later versions of the library may add fields at the end; `struct_size` tells how many the caller
/// knows.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct SessionOptions {
    /// The size of this struct where the caller was compiled.
    pub struct_size: usize,
    /// The number of sets of shapes whose plans are kept; 0 for 16, and more as long as they are small.
    pub shapes: usize,
    /// The number of blocks of memory that the session keeps for later runs, the largest ones: as many runs
    /// at once allocate nothing but small results, and of large results that were destroyed as many blocks
    /// for each output. 0 for 4.
    pub arenas: usize,
    /// The number of ops of the caller's own.
    pub op_num: usize,
    /// The ops of the caller's own; null if there are none.
    pub ops: *const *const CustomOp,
    /// How far floating-point arithmetic may be relaxed; 0 for as far as the graph says.
    pub fpmath_mode: FpMathMode,
    /// Unless 0, the floating-point math mode covers integers too.
    pub fpmath_apply_to_int: c_int,
    /// The number of links from outputs to inputs of the next run.
    pub link_num: usize,
    /// The links; null if there are none.
    pub links: *const *const StateLink,
    /// Unless 0, the links that the names of inputs and outputs tell are added, such as the one from
    /// `present.0.key` to `past_key_values.0.key`.
    pub find_states: c_int,
}

// SAFETY: the struct is `repr(C)`, begins with its size, and is of integers and raw pointers.
unsafe impl Options for SessionOptions {
    const MIN_SIZE: usize = size_of::<usize>();
}

impl SessionOptions {
    /// The options of a caller; null stands for none.
    ///
    /// # Safety
    ///
    /// Unless it is null, the struct has the size that it says.
    unsafe fn given(at: *const Self) -> Result<Self, Fault> {
        match at.is_null() {
            // SAFETY: zeros are integers and null.
            true => Ok(unsafe { MaybeUninit::zeroed().assume_init() }),
            // SAFETY: as the caller promises.
            false => unsafe { Self::read(at, "options") },
        }
    }

    /// Sets all that is no op.
    ///
    /// # Safety
    ///
    /// Each pointer is null, or what its type says can be read there.
    unsafe fn set(&self, builder: sterna::SessionBuilder) -> Result<sterna::SessionBuilder, Fault> {
        let (mode, apply_to_int) = (fpmath_mode::from_code(self.fpmath_mode)?, self.fpmath_apply_to_int != 0);
        let mut builder = builder;
        if self.fpmath_mode != 0 || apply_to_int {
            builder = builder.fpmath(sterna::FpMath::new(mode).apply_to_int(apply_to_int));
        }
        if self.shapes > 0 {
            builder = builder.shapes(self.shapes);
        }
        if self.arenas > 0 {
            builder = builder.arenas(self.arenas);
        }
        // SAFETY: as the caller promises.
        for &link in unsafe { array(self.links, self.link_num, "links") }? {
            // SAFETY: as the caller promises.
            builder = builder.state(unsafe { StateLink::read(link, "links")?.to_core() }?);
        }
        Ok(if self.find_states != 0 { builder.find_states() } else { builder })
    }

    /// The ops, which are released once the session is made.
    ///
    /// # Safety
    ///
    /// Each pointer is null, or what its type says can be read there.
    unsafe fn ops(&self, is_made: &Arc<AtomicBool>) -> Result<Vec<(String, CallerOp)>, Fault> {
        // SAFETY: as the caller promises.
        let ops = unsafe { array(self.ops, self.op_num, "ops") }?;
        // SAFETY: as the caller promises.
        ops.iter().map(|&op| unsafe { CustomOp::read(op, "ops")?.to_core(is_made.clone()) }).collect()
    }
}

/// Makes a session of a model on an engine; `options` may be null. A model whose shapes are all known is
/// compiled here.
///
/// `unimplemented` with every op that nothing runs; `invalid_arguments` for two inputs or outputs of one
/// name, and for a constant that is too short; `invalid_graph` for a tensor that nothing gives; the errors of
/// `sterna_partition_compile`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_session_create(
    session: Option<&mut MaybeUninit<Box<Session>>>,
    model: Option<&Model>,
    engine: *mut Engine,
    options: *const SessionOptions,
) -> Status {
    ffi_guard(|| {
        let (session, model) = (require(session, "session")?, require(model, "model")?.core()?);
        // SAFETY: the caller promises that the engine, unless null, is alive.
        let engine = unsafe { engine::share(engine) }?;
        // SAFETY: the caller promises a struct of the size that it says, and what its fields say.
        let options = unsafe { SessionOptions::given(options) }?;
        // SAFETY: as above.
        let mut builder = unsafe { options.set(sterna::Session::builder(model.clone())) }?;
        let is_made = Arc::new(AtomicBool::new(false));
        // SAFETY: the caller promises ops where the options point.
        for (name, op) in unsafe { options.ops(&is_made) }? {
            builder = builder.op(name, op);
        }
        let core = builder.build(engine.core())?;
        is_made.store(true, Ordering::Release);
        let names = [core.inputs(), core.outputs()].map(names);
        session.write(Box::new(Session { core, engine, names }));
        Ok(())
    })
}

/// Destroys a session. Null is fine; destroying one twice, or while it runs, is an error of the caller.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_session_destroy(session: Option<Box<Session>>) -> Status {
    ffi_guard(|| {
        drop(session);
        Ok(())
    })
}

/// Reads how many inputs a session has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_session_get_input_num(
    session: Option<&Session>,
    num: Option<&mut MaybeUninit<usize>>,
) -> Status {
    ffi_guard(|| {
        let session = require(session, "session")?;
        require(num, "num")?.write(session.core.inputs().len());
        Ok(())
    })
}

/// Reads the name and the description of an input of a session. The text is the session's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_session_get_input(
    session: Option<&Session>,
    index: usize,
    name: Option<&mut MaybeUninit<*const c_char>>,
    logical_tensor: Option<&mut MaybeUninit<LogicalTensor>>,
) -> Status {
    ffi_guard(|| {
        let session = require(session, "session")?;
        told_port(session.core.inputs(), &session.names[0], index, name, logical_tensor)
    })
}

/// Reads how many outputs a session has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_session_get_output_num(
    session: Option<&Session>,
    num: Option<&mut MaybeUninit<usize>>,
) -> Status {
    ffi_guard(|| {
        let session = require(session, "session")?;
        require(num, "num")?.write(session.core.outputs().len());
        Ok(())
    })
}

/// Reads the name and the description of an output of a session, as far as it is known for inputs of all
/// shapes. The text is the session's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_session_get_output(
    session: Option<&Session>,
    index: usize,
    name: Option<&mut MaybeUninit<*const c_char>>,
    logical_tensor: Option<&mut MaybeUninit<LogicalTensor>>,
) -> Status {
    ffi_guard(|| {
        let session = require(session, "session")?;
        told_port(session.core.outputs(), &session.names[1], index, name, logical_tensor)
    })
}

/// Reads the bytes of memory, tensors between partitions and scratch, of a run on inputs of the shapes that
/// ran last; 0 if nothing ran.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_session_get_run_memory(
    session: Option<&Session>,
    size: Option<&mut MaybeUninit<usize>>,
) -> Status {
    ffi_guard(|| {
        let session = require(session, "session")?;
        require(size, "size")?.write(session.core.run_memory());
        Ok(())
    })
}

/// Reads the descriptions of the outputs for inputs of given dims, row-major, by name: those of the memory
/// that `sterna_session_run` takes. Nothing runs; the plan of the run is made. The errors are those of
/// `sterna_session_run`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_session_get_output_logical_tensors(
    session: Option<&Session>,
    input_num: usize,
    input_dims: *const NamedDims,
    output_num: usize,
    outputs: *mut LogicalTensor,
) -> Status {
    ffi_guard(|| {
        let session = require(session, "session")?;
        session.check_room(outputs, output_num)?;
        // SAFETY: the caller promises so many dims, each with its name.
        let descs = session.core.output_descs(&unsafe { NamedDims::read(input_dims, input_num) }?)?;
        // SAFETY: the caller promises room for so many.
        unsafe { fill(outputs, descs.iter().map(LogicalTensor::from_core), "outputs") }
    })
}

/// Runs a session on all of its inputs, by name and in any order, and writes all of its outputs to memory of
/// the caller's. Nothing is allocated, once as many runs of these shapes as now have run at once.
///
/// An input may have any strides; another set of strides is another plan. An output is row-major, overlaps
/// nothing, and has the dims that follow. During the call nobody writes to the elements of inputs, and nobody
/// else uses those of outputs.
///
/// `invalid_arguments` for inputs and outputs that are not those of the model, and for an index of a lookup
/// that is out of range; `invalid_data_type` for those of another type; `invalid_shape` for dims that are not
/// those of the model, or contradict its ops; `runtime_error` with what an op of the caller's said. After an
/// error outputs may hold anything.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_session_run(
    session: Option<&Session>,
    input_num: usize,
    inputs: *const NamedView,
    output_num: usize,
    outputs: *const NamedViewMut,
) -> Status {
    ffi_guard(|| {
        let session = require(session, "session")?;
        // SAFETY: as the caller promises.
        let (inputs, mut outputs) =
            unsafe { (NamedView::read(inputs, input_num)?, NamedViewMut::read(outputs, output_num)?) };
        Ok(session.core.run_into(&as_inputs(&inputs), &mut as_outputs(&mut outputs))?)
    })
}

/// As `sterna_session_run`, with all outputs in new tensors of the session's engine, in the order of the
/// session, which the caller destroys. `outputs` has room for `output_num` of them, which is what
/// `sterna_session_get_output_num` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_session_run_new(
    session: Option<&Session>,
    input_num: usize,
    inputs: *const NamedView,
    output_num: usize,
    outputs: *mut Box<Tensor>,
) -> Status {
    ffi_guard(|| {
        let session = require(session, "session")?;
        session.check_room(outputs, output_num)?;
        // SAFETY: as the caller promises.
        let inputs = unsafe { NamedView::read(inputs, input_num) }?;
        let results = session.core.run(&as_inputs(&inputs))?.into_tensors();
        let tensors = results.into_iter().map(|result| Tensor::owning(result, session.engine.clone()));
        // SAFETY: the caller promises room for so many.
        unsafe { fill(outputs, tensors, "outputs") }
    })
}
