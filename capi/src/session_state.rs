//! The state of one sequence of runs, such as the keys and values of the tokens so far.

use std::ffi::c_char;
use std::mem::MaybeUninit;

use crate::ffi::{ffi_guard, fill, require, text};
use crate::named_view::{NamedDims, NamedView, NamedViewMut, as_inputs, as_outputs};
use crate::session::Session;
use crate::status::Status;
use crate::tensor::Tensor;
use crate::view::View;

/// The state of one sequence of runs of a session whose options have links: the tensors that a run leaves for
/// the next one. A run writes its rows behind those that are there.
///
/// Use a state from one thread at a time; any number of states of one session may be used at once. It does
/// not need its session to be alive.
pub struct SessionState {
    core: sterna::SessionState,
}

/// Makes an empty state for one sequence of runs of a session. Dims of its tensors that the model leaves open
/// are said here, by the name of the input, where the number along the axis is that of rows to make room for;
/// or they follow from the first run. `invalid_arguments` if the session has no links, and for names that are
/// not those of the model.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_session_state_create(
    state: Option<&mut MaybeUninit<Box<SessionState>>>,
    session: Option<&Session>,
    dim_num: usize,
    state_dims: *const NamedDims,
) -> Status {
    ffi_guard(|| {
        let (state, session) = (require(state, "state")?, require(session, "session")?);
        // SAFETY: the caller promises so many dims, each with its name.
        let core = session.core.new_state(&unsafe { NamedDims::read(state_dims, dim_num) }?)?;
        state.write(Box::new(SessionState { core }));
        Ok(())
    })
}

/// Destroys a state. Null is fine; destroying one twice is an error of the caller.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_session_state_destroy(state: Option<Box<SessionState>>) -> Status {
    ffi_guard(|| {
        drop(state);
        Ok(())
    })
}

/// Makes a copy of a state with memory of its own, for another sequence that starts alike.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_session_state_fork(
    state: Option<&SessionState>,
    forked: Option<&mut MaybeUninit<Box<SessionState>>>,
) -> Status {
    ffi_guard(|| {
        let (state, forked) = (require(state, "state")?, require(forked, "forked")?);
        forked.write(Box::new(SessionState { core: state.core.fork()? }));
        Ok(())
    })
}

/// Drops all rows of a state, and makes tensors that do not grow zeros. Memory is kept.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_session_state_reset(state: Option<&mut SessionState>) -> Status {
    ffi_guard(|| {
        require(state, "state")?.core.reset();
        Ok(())
    })
}

/// Drops the newest rows of a state behind a length. Tensors that do not grow stay as they are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_session_state_trim(
    state: Option<&mut SessionState>,
    row_num: usize,
) -> Status {
    ffi_guard(|| {
        require(state, "state")?.core.trim(row_num);
        Ok(())
    })
}

/// Reads the number of rows of a state: the tokens so far, or those of the window.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_session_state_get_row_num(
    state: Option<&SessionState>,
    num: Option<&mut MaybeUninit<usize>>,
) -> Status {
    ffi_guard(|| {
        let state = require(state, "state")?;
        require(num, "num")?.write(state.core.len());
        Ok(())
    })
}

/// Reads the bytes of the memory of all tensors of a state.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_session_state_get_memory(
    state: Option<&SessionState>,
    size: Option<&mut MaybeUninit<usize>>,
) -> Status {
    ffi_guard(|| {
        let state = require(state, "state")?;
        require(size, "size")?.write(state.core.memory());
        Ok(())
    })
}

/// Sets a tensor of a state, by the name of the input: a prefix that was computed before. Of its dims, the
/// one along the axis is free. All tensors of a state should get the same number of rows.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_session_state_set(
    state: Option<&mut SessionState>,
    name: *const c_char,
    value: Option<&View>,
) -> Status {
    ffi_guard(|| {
        let (state, value) = (require(state, "state")?, require(value, "value")?);
        // SAFETY: the caller promises text that ends with a zero, and what the view says.
        unsafe {
            let name = text(name, "name")?;
            Ok(state.core.set(name, &value.to_core(name)?)?)
        }
    })
}

/// As `sterna_session_run`, with a state in place of the inputs and outputs that links name: the run reads
/// the rows of earlier runs and leaves its own behind them. After an error the state is as it was.
/// `invalid_arguments` also for a state of another session, and for one whose memory is used up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_session_state_run(
    state: Option<&mut SessionState>,
    session: Option<&Session>,
    input_num: usize,
    inputs: *const NamedView,
    output_num: usize,
    outputs: *const NamedViewMut,
) -> Status {
    ffi_guard(|| {
        let (state, session) = (require(state, "state")?, require(session, "session")?);
        // SAFETY: as the caller promises.
        let (inputs, mut outputs) =
            unsafe { (NamedView::read(inputs, input_num)?, NamedViewMut::read(outputs, output_num)?) };
        let (inputs, mut outputs) = (as_inputs(&inputs), as_outputs(&mut outputs));
        Ok(session.core.run_with_state_into(&mut state.core, &inputs, &mut outputs)?)
    })
}

/// As `sterna_session_state_run`, with the outputs in new tensors, as `sterna_session_run_new` gives them.
/// `outputs` has room for all outputs of the session; those that are part of the state become null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_session_state_run_new(
    state: Option<&mut SessionState>,
    session: Option<&Session>,
    input_num: usize,
    inputs: *const NamedView,
    output_num: usize,
    outputs: *mut Option<Box<Tensor>>,
) -> Status {
    ffi_guard(|| {
        let (state, session) = (require(state, "state")?, require(session, "session")?);
        session.check_room(outputs, output_num)?;
        // SAFETY: as the caller promises.
        let inputs = unsafe { NamedView::read(inputs, input_num) }?;
        let results = session.core.run_with_state(&mut state.core, &as_inputs(&inputs))?;
        let names: Vec<String> = results.iter().map(|(name, _)| name.to_owned()).collect();
        let mut given = names.into_iter().zip(results.into_tensors()).peekable();
        // Both are in the order of the model.
        let tensors = session.core.outputs().iter().map(|port| {
            let (_, tensor) = given.next_if(|(name, _)| name == port.name())?;
            Some(Tensor::owning(tensor, session.engine.clone()))
        });
        // SAFETY: the caller promises room for so many.
        unsafe { fill(outputs, tensors, "outputs") }
    })
}
