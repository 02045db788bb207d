//! Streams, on which compiled partitions run.

use std::ffi::c_uint;
use std::mem::MaybeUninit;

use crate::engine::{self, Engine, Shared};
use crate::ffi::{Fault, ffi_guard, require};
use crate::status::Status;

/// The behaviour of a stream: a sum of the `STERNA_STREAM_FLAG_*` numbers, which are those of
/// `dnnl_stream_flags_t`.
pub type StreamFlags = c_uint;

/// Every flag with its name.
pub const STREAM_FLAGS: &[(StreamFlags, &str)] =
    &[(1, "in_order"), (OUT_OF_ORDER, "out_of_order"), (PROFILING, "profiling")];

const OUT_OF_ORDER: StreamFlags = 2;
const PROFILING: StreamFlags = 4;

/// An order of executions on an engine. On a CPU it is synchronous: a call returns when its result is
/// written.
///
/// Any thread may use it at any time; executions on one stream from several threads run at once.
pub struct Stream {
    core: sterna::Stream,
    engine: Shared,
}

impl Stream {
    /// The stream behind the handle.
    pub fn core(&self) -> &sterna::Stream {
        &self.core
    }
}

/// Makes a stream of an engine. The flags are `in_order`, `out_of_order` or both, which are the same here;
/// `profiling` is not implemented.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_stream_create(
    stream: Option<&mut MaybeUninit<Box<Stream>>>,
    engine: *mut Engine,
    flags: StreamFlags,
) -> Status {
    ffi_guard(|| {
        let stream = require(stream, "stream")?;
        // SAFETY: the caller promises that the engine, unless null, is alive.
        let engine = unsafe { engine::share(engine) }?;
        match flags {
            1..PROFILING => {}
            PROFILING..8 => return Err(Fault::unimplemented("streams do not profile")),
            _ => return Err(Fault::unknown("set of stream flags", flags)),
        }
        stream.write(Box::new(Stream { core: sterna::Stream::new(engine.core()), engine }));
        Ok(())
    })
}

/// Reads the engine of a stream. The stream owns the engine: the caller does not destroy it, and it is valid
/// as long as the stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_stream_get_engine(
    stream: Option<&Stream>,
    engine: Option<&mut MaybeUninit<*mut Engine>>,
) -> Status {
    ffi_guard(|| {
        let stream = require(stream, "stream")?;
        require(engine, "engine")?.write(engine::handle(&stream.engine));
        Ok(())
    })
}

/// Returns when all executions so far have ended, which is at once: on a CPU each call returns when its
/// result is written. It is here for programs that are written for other devices as well.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_stream_wait(stream: Option<&Stream>) -> Status {
    ffi_guard(|| {
        require(stream, "stream")?;
        Ok(())
    })
}

/// Destroys a stream. Null is fine; destroying one twice is an error of the caller.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_stream_destroy(stream: Option<Box<Stream>>) -> Status {
    ffi_guard(|| {
        drop(stream);
        Ok(())
    })
}
