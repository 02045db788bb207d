//! Ops that only their caller knows: their names and attributes.

use std::ffi::c_char;
use std::mem::MaybeUninit;

use sterna::AttrValue;

use crate::ffi::{Fault, array, ffi_guard, require, text};
use crate::status::Status;
use crate::string;

/// An op that only its caller knows: the name by which a session finds what runs it, `domain::Name`, and its
/// attributes, each with a name.
///
/// Functions that take it as `const` may be called from any number of threads at once, the others by one
/// thread at a time. What it is given to keeps a copy.
// A plain `repr` would tell cbindgen to show C what is inside.
#[cfg_attr(all(), repr(transparent))]
pub struct CustomNode {
    core: sterna::CustomNode,
}

impl CustomNode {
    /// The node behind the handle.
    pub fn core(&self) -> &sterna::CustomNode {
        &self.core
    }

    /// A node of the library, as a function of the caller gets it.
    pub(crate) fn lent(core: &sterna::CustomNode) -> *const Self {
        std::ptr::from_ref(core).cast()
    }

    /// # Safety
    ///
    /// Unless it is null, the name is text that ends with a zero.
    unsafe fn set(
        node: Option<&mut Self>,
        name: *const c_char,
        value: impl FnOnce() -> Result<AttrValue, Fault>,
    ) -> Result<(), Fault> {
        let node = require(node, "node")?;
        // SAFETY: as the caller promises.
        let name = unsafe { text(name, "name") }?;
        node.core.attrs.insert(name.to_owned(), value()?);
        Ok(())
    }

    /// # Safety
    ///
    /// Unless it is null, the name is text that ends with a zero.
    unsafe fn get<'a, T: ?Sized>(
        node: Option<&'a Self>,
        name: *const c_char,
        what: &str,
        value: impl FnOnce(&'a AttrValue) -> Option<&'a T>,
    ) -> Result<&'a T, Fault> {
        let node = require(node, "node")?;
        // SAFETY: as the caller promises.
        let name = unsafe { text(name, "name") }?;
        let Some(found) = node.core.get_attr(name) else {
            return Err(Fault::invalid_arguments(format!("{} has no attribute `{name}`", node.core.op)));
        };
        value(found).ok_or_else(|| {
            let found = found.type_name();
            Fault::invalid_arguments(format!("attribute `{name}` of {} is {found}, not {what}", node.core.op))
        })
    }

    /// Tells the address and the number of the values of an attribute.
    ///
    /// # Safety
    ///
    /// Unless it is null, the name is text that ends with a zero.
    unsafe fn told<'a, T: 'a>(
        node: Option<&'a Self>,
        name: *const c_char,
        what: &str,
        value: impl FnOnce(&'a AttrValue) -> Option<&'a [T]>,
        values: Option<&mut MaybeUninit<*const T>>,
        num: Option<&mut MaybeUninit<usize>>,
    ) -> Result<(), Fault> {
        let (values, num) = (require(values, "values")?, require(num, "num")?);
        // SAFETY: as the caller promises.
        let found = unsafe { Self::get(node, name, what, value) }?;
        values.write(found.as_ptr());
        num.write(found.len());
        Ok(())
    }
}

/// One number, or a list of them.
fn numbers<T: Copy + Into<AttrValue>>(values: &[T]) -> AttrValue
where
    Vec<T>: Into<AttrValue>,
{
    match values {
        &[value] => value.into(),
        _ => values.to_vec().into(),
    }
}

/// The floating-point numbers of a value.
fn floats(value: &AttrValue) -> Option<&[f32]> {
    match value {
        AttrValue::F32(value) => Some(std::slice::from_ref(value)),
        AttrValue::F32s(values) => Some(values),
        _ => None,
    }
}

/// The integers of a value; a truth value is 0 or 1.
fn integers(value: &AttrValue) -> Option<&[i64]> {
    match value {
        AttrValue::S64(value) => Some(std::slice::from_ref(value)),
        AttrValue::S64s(values) => Some(values),
        AttrValue::Bool(value) => Some(if *value { &[1] } else { &[0] }),
        _ => None,
    }
}

/// Makes a node of an op, `domain::Name`, without attributes. A session finds by this name what runs it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_custom_node_create(
    node: Option<&mut MaybeUninit<Box<CustomNode>>>,
    op_name: *const c_char,
) -> Status {
    ffi_guard(|| {
        let node = require(node, "node")?;
        // SAFETY: the caller promises text that ends with a zero.
        let op_name = unsafe { text(op_name, "op_name") }?;
        node.write(Box::new(CustomNode { core: sterna::CustomNode::new(op_name) }));
        Ok(())
    })
}

/// Destroys a node. Null is fine; destroying one twice is an error of the caller, as is destroying one that a
/// function of the caller was given.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_custom_node_destroy(node: Option<Box<CustomNode>>) -> Status {
    ffi_guard(|| {
        drop(node);
        Ok(())
    })
}

/// Reads the name of the op of a node. The caller frees the text by `sterna_string_destroy`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_custom_node_get_op_name(
    node: Option<&CustomNode>,
    op_name: Option<&mut MaybeUninit<*mut c_char>>,
) -> Status {
    ffi_guard(|| {
        let (node, op_name) = (require(node, "node")?, require(op_name, "op_name")?);
        string::into_c_string(&node.core.op, op_name, None);
        Ok(())
    })
}

/// Sets an attribute of floating-point numbers: one, or a list. The values are copied.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_custom_node_set_attr_f32(
    node: Option<&mut CustomNode>,
    name: *const c_char,
    value: *const f32,
    value_len: usize,
) -> Status {
    ffi_guard(|| {
        // SAFETY: the caller promises so many values, and text that ends with a zero.
        unsafe { CustomNode::set(node, name, || Ok(numbers(array(value, value_len, "value")?))) }
    })
}

/// Sets an attribute of integers: one, or a list. The values are copied. A truth value is the integer 0 or 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_custom_node_set_attr_s64(
    node: Option<&mut CustomNode>,
    name: *const c_char,
    value: *const i64,
    value_len: usize,
) -> Status {
    ffi_guard(|| {
        // SAFETY: the caller promises so many values, and text that ends with a zero.
        unsafe { CustomNode::set(node, name, || Ok(numbers(array(value, value_len, "value")?))) }
    })
}

/// Sets an attribute that is text, which is copied.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_custom_node_set_attr_str(
    node: Option<&mut CustomNode>,
    name: *const c_char,
    value: *const c_char,
) -> Status {
    ffi_guard(|| {
        // SAFETY: the caller promises texts that end with a zero.
        unsafe { CustomNode::set(node, name, || Ok(text(value, "value")?.into())) }
    })
}

/// Reads an attribute of floating-point numbers: the address of its values, which the node owns, and their
/// number. `invalid_arguments` if the node has no such attribute, or one of another type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_custom_node_get_attr_f32(
    node: Option<&CustomNode>,
    name: *const c_char,
    values: Option<&mut MaybeUninit<*const f32>>,
    num: Option<&mut MaybeUninit<usize>>,
) -> Status {
    ffi_guard(|| {
        // SAFETY: the caller promises text that ends with a zero.
        unsafe { CustomNode::told(node, name, "f32", floats, values, num) }
    })
}

/// Reads an attribute of integers: the address of its values, which the node owns, and their number.
/// `invalid_arguments` if the node has no such attribute, or one of another type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_custom_node_get_attr_s64(
    node: Option<&CustomNode>,
    name: *const c_char,
    values: Option<&mut MaybeUninit<*const i64>>,
    num: Option<&mut MaybeUninit<usize>>,
) -> Status {
    ffi_guard(|| {
        // SAFETY: the caller promises text that ends with a zero.
        unsafe { CustomNode::told(node, name, "s64", integers, values, num) }
    })
}

/// Reads an attribute that is text, which the caller frees by `sterna_string_destroy`. `invalid_arguments` if
/// the node has no such attribute, or one of another type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_custom_node_get_attr_str(
    node: Option<&CustomNode>,
    name: *const c_char,
    value: Option<&mut MaybeUninit<*mut c_char>>,
) -> Status {
    ffi_guard(|| {
        let to = require(value, "value")?;
        // SAFETY: the caller promises text that ends with a zero.
        let value = unsafe {
            CustomNode::get(node, name, "text", |value| match value {
                AttrValue::String(value) => Some(value.as_str()),
                _ => None,
            })
        }?;
        string::into_c_string(value, to, None);
        Ok(())
    })
}
