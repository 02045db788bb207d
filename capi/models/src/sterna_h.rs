//! The part of `sterna.h` that this library calls. A program links both libraries, so there is one engine and
//! one cache.

use std::ffi::{c_char, c_int, c_void};

/// The status of a call, 0 for success.
pub type Status = c_int;

/// A graph of the other library.
#[repr(C)]
pub(crate) struct Graph([u8; 0]);

/// A model of the other library.
#[repr(C)]
pub struct Model([u8; 0]);

/// The name and the attributes of an op that the other library does not know.
#[repr(C)]
pub(crate) struct CustomNode([u8; 0]);

/// Stands for a dim that is not known.
pub(crate) const UNKNOWN_DIM: i64 = i64::MIN;
/// `STERNA_LAYOUT_TYPE_ANY`
pub(crate) const ANY: c_int = 1;
/// `STERNA_LAYOUT_TYPE_STRIDED`
pub(crate) const STRIDED: c_int = 2;

/// `sterna_logical_tensor_t`
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct LogicalTensor {
    pub(crate) id: usize,
    pub(crate) ndims: c_int,
    pub(crate) dims: [i64; 12],
    pub(crate) data_type: c_int,
    pub(crate) property: c_int,
    pub(crate) layout_type: c_int,
    pub(crate) layout: [i64; 12],
}

/// `sterna_model_port_t`
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ModelPort {
    pub(crate) names: *const *const c_char,
    pub(crate) name_num: usize,
    pub(crate) tensor: LogicalTensor,
}

/// `sterna_release_t`
pub(crate) type Release = Option<unsafe extern "C" fn(*mut c_void)>;

/// `sterna_model_source_t`
pub(crate) type ModelSource = Option<
    unsafe extern "C" fn(
        user_data: *mut c_void,
        input_num: usize,
        inputs: *const ModelPort,
        model: *mut *mut Model,
        message: *mut c_char,
        message_size: usize,
    ) -> Status,
>;

unsafe extern "C" {
    pub(crate) fn sterna_last_error_message() -> *const c_char;
    pub(crate) fn sterna_logical_tensor_init(
        logical_tensor: *mut LogicalTensor,
        id: usize,
        data_type: c_int,
        ndims: i32,
        layout_type: c_int,
        property: c_int,
    ) -> Status;
    pub(crate) fn sterna_logical_tensor_init_with_dims(
        logical_tensor: *mut LogicalTensor,
        id: usize,
        data_type: c_int,
        ndims: i32,
        dims: *const i64,
        layout_type: c_int,
        property: c_int,
    ) -> Status;
    pub(crate) fn sterna_graph_from_json(
        graph: *mut *mut Graph,
        json: *const c_char,
        length: usize,
    ) -> Status;
    pub(crate) fn sterna_graph_destroy(graph: *mut Graph) -> Status;
    pub(crate) fn sterna_model_create(model: *mut *mut Model, graph: *const Graph) -> Status;
    pub(crate) fn sterna_model_create_with_ports(
        model: *mut *mut Model,
        graph: *const Graph,
        input_num: usize,
        input_ports: *const ModelPort,
        output_num: usize,
        output_ports: *const ModelPort,
    ) -> Status;
    pub(crate) fn sterna_model_create_from_source(
        model: *mut *mut Model,
        input_num: usize,
        input_ports: *const ModelPort,
        output_num: usize,
        output_ports: *const ModelPort,
        source: ModelSource,
        release: Release,
        user_data: *mut c_void,
    ) -> Status;
    pub(crate) fn sterna_model_set_constant(
        model: *mut Model,
        tensor_id: usize,
        data: *const c_void,
        size: usize,
        release: Release,
        user_data: *mut c_void,
    ) -> Status;
    pub(crate) fn sterna_model_set_custom_node(
        model: *mut Model,
        op_id: usize,
        node: *const CustomNode,
    ) -> Status;
    pub(crate) fn sterna_model_destroy(model: *mut Model) -> Status;
    pub(crate) fn sterna_custom_node_create(node: *mut *mut CustomNode, op_name: *const c_char) -> Status;
    pub(crate) fn sterna_custom_node_destroy(node: *mut CustomNode) -> Status;
    pub(crate) fn sterna_custom_node_set_attr_f32(
        node: *mut CustomNode,
        name: *const c_char,
        value: *const f32,
        value_len: usize,
    ) -> Status;
    pub(crate) fn sterna_custom_node_set_attr_s64(
        node: *mut CustomNode,
        name: *const c_char,
        value: *const i64,
        value_len: usize,
    ) -> Status;
    pub(crate) fn sterna_custom_node_set_attr_str(
        node: *mut CustomNode,
        name: *const c_char,
        value: *const c_char,
    ) -> Status;
}
