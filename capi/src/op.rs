//! Ops: kinds, attributes, inputs and outputs.

use std::ffi::{CString, c_char, c_int};
use std::mem::MaybeUninit;
use std::sync::LazyLock;

use sterna::{Attr, AttrType, AttrValue};

use crate::ffi::{self, Fault, array, ffi_guard, require};
use crate::logical_tensor::LogicalTensor;
use crate::status::Status;
use crate::string::{name, names};

/// The kind of an op: one of the `STERNA_OP_*` numbers. Those below 0x1000 are those of
/// `dnnl_graph_op_kind_t`.
pub type OpKind = c_int;

/// An attribute: one of the `STERNA_ATTR_*` numbers, which are those of `dnnl_graph_op_attr_t`.
pub type OpAttr = c_int;

/// One op of a graph: its kind, attributes, inputs and outputs.
///
/// Callers build an op step by step; each call checks only its own values. `sterna_graph_add_op` checks the
/// op against the schema of its kind. Use an op from one thread at a time; different ops may be used at once.
pub struct Op {
    /// Taken out only during a call that adds to it.
    core: Option<sterna::Op>,
}

impl Op {
    /// The op behind the handle.
    pub fn core(&self) -> Result<&sterna::Op, Fault> {
        self.core
            .as_ref()
            .ok_or_else(|| Fault::runtime_error("an earlier call on the op did not come to its end"))
    }

    fn change(&mut self, change: impl FnOnce(sterna::Op) -> sterna::Op) -> Result<(), Fault> {
        self.core()?;
        self.core = self.core.take().map(change);
        Ok(())
    }

    fn set(
        op: Option<&mut Self>,
        attr: OpAttr,
        value: impl FnOnce(Attr) -> Result<AttrValue, Fault>,
    ) -> Result<(), Fault> {
        let op = require(op, "op")?;
        let known = u32::try_from(attr).ok().and_then(Attr::from_code);
        let attr = known.ok_or_else(|| Fault::unknown("attribute", attr))?;
        let value = value(attr)?;
        op.change(|op| op.attr(attr, value))
    }
}

/// True if an attribute is a list in the schemas of the kinds that have it.
fn is_list(attr: Attr) -> bool {
    let mut rows = sterna::OpKind::ALL.iter().flat_map(|&kind| sterna::Schema::of(kind).attributes);
    rows.any(|row| row.attr == attr && matches!(row.value_type, AttrType::S64s | AttrType::F32s))
}

/// A list of numbers, or the one number of an attribute that is no list.
fn numbers<T: Copy + Into<AttrValue>>(attr: Attr, values: &[T]) -> Result<AttrValue, Fault>
where
    Vec<T>: Into<AttrValue>,
{
    match values {
        _ if is_list(attr) => Ok(values.to_vec().into()),
        &[value] => Ok(value.into()),
        _ => Err(Fault::count("values to a scalar attribute", values.len(), 1)),
    }
}

pub(crate) fn kind_from_code(code: OpKind) -> Result<sterna::OpKind, Fault> {
    let known = u32::try_from(code).ok().and_then(sterna::OpKind::from_code);
    known.ok_or_else(|| Fault::unknown("op kind", code))
}

/// The name of an op kind, such as `Select`; null for a number that is no kind. The text is constant and must
/// not be freed.
#[unsafe(no_mangle)]
pub extern "C" fn sterna_op_kind_string(kind: OpKind) -> *const c_char {
    static NAMES: LazyLock<Vec<(OpKind, CString)>> =
        LazyLock::new(|| names(sterna::OpKind::ALL.iter().map(|one| (one.code(), one.name()))));
    name(&NAMES, kind)
}

/// Makes an op without attributes, inputs or outputs. The name, for people to read, is UTF-8; an empty one
/// becomes the kind and the id.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_op_create(
    op: Option<&mut MaybeUninit<Box<Op>>>,
    id: usize,
    kind: OpKind,
    verbose_name: *const c_char,
) -> Status {
    ffi_guard(|| {
        let op = require(op, "op")?;
        // SAFETY: the caller promises text that ends with a zero.
        let verbose_name = unsafe { ffi::text(verbose_name, "verbose_name") }?;
        let core = sterna::Op::new(id, kind_from_code(kind)?).named(verbose_name);
        op.write(Box::new(Op { core: Some(core) }));
        Ok(())
    })
}

/// Destroys an op; graphs that contain it keep a copy. Null is fine; destroying one twice is an error of the
/// caller.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_op_destroy(op: Option<Box<Op>>) -> Status {
    ffi_guard(|| {
        drop(op);
        Ok(())
    })
}

/// Adds the next input to an op; the description is copied.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_op_add_input(op: Option<&mut Op>, input: Option<&LogicalTensor>) -> Status {
    ffi_guard(|| {
        let (op, input) = (require(op, "op")?, require(input, "input")?.to_core()?);
        op.change(|op| op.input(input))
    })
}

/// Adds the next output to an op; the description is copied.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_op_add_output(op: Option<&mut Op>, output: Option<&LogicalTensor>) -> Status {
    ffi_guard(|| {
        let (op, output) = (require(op, "op")?, require(output, "output")?.to_core()?);
        op.change(|op| op.output(output))
    })
}

/// Sets an attribute of numbers: one value for an attribute that is a number, else a list. The values are
/// copied.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_op_set_attr_f32(
    op: Option<&mut Op>,
    attr: OpAttr,
    value: *const f32,
    value_len: usize,
) -> Status {
    // SAFETY: the caller promises so many values.
    ffi_guard(|| Op::set(op, attr, |attr| numbers(attr, unsafe { array(value, value_len, "value") }?)))
}

/// Sets a boolean attribute: 0 is false, any other byte is true. `value_len` is 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_op_set_attr_bool(
    op: Option<&mut Op>,
    attr: OpAttr,
    value: *const u8,
    value_len: usize,
) -> Status {
    ffi_guard(|| {
        Op::set(op, attr, |_| match value_len {
            // SAFETY: the caller promises one value.
            1 => Ok(AttrValue::Bool(unsafe { array(value, 1, "value") }? != [0])),
            _ => Err(Fault::count("values to an attribute that is a truth value", value_len, 1)),
        })
    })
}

/// Sets an attribute of integers: one value for an attribute that is an integer, else a list. The values are
/// copied.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_op_set_attr_s64(
    op: Option<&mut Op>,
    attr: OpAttr,
    value: *const i64,
    value_len: usize,
) -> Status {
    // SAFETY: the caller promises so many values.
    ffi_guard(|| Op::set(op, attr, |attr| numbers(attr, unsafe { array(value, value_len, "value") }?)))
}

/// Sets an attribute that is a word; the text ends with a zero and is copied. `value_len` must not be 0; its
/// value is not used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_op_set_attr_str(
    op: Option<&mut Op>,
    attr: OpAttr,
    value: *const c_char,
    value_len: usize,
) -> Status {
    ffi_guard(|| {
        Op::set(op, attr, |_| match value_len {
            0 => Err(Fault::invalid_arguments("the length of a word is 0")),
            // SAFETY: the caller promises text that ends with a zero.
            _ => Ok(unsafe { ffi::text(value, "value") }?.into()),
        })
    })
}

/// Reads the id of an op.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_op_get_id(op: Option<&Op>, id: Option<&mut MaybeUninit<usize>>) -> Status {
    ffi_guard(|| {
        let op = require(op, "op")?.core()?;
        require(id, "id")?.write(op.id().get());
        Ok(())
    })
}

/// Reads the kind of an op.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_op_get_kind(
    op: Option<&Op>,
    kind: Option<&mut MaybeUninit<OpKind>>,
) -> Status {
    ffi_guard(|| {
        let op = require(op, "op")?.core()?;
        require(kind, "kind")?.write(op.kind().code() as OpKind);
        Ok(())
    })
}
