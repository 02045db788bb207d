//! Functions of oneDNN for which nothing here does the work: each answers `dnnl_unimplemented`, as oneDNN
//! does if it has no implementation for what it is asked.

use std::sync::atomic::{AtomicBool, Ordering};

use sterna_capi::ffi::{Fault, ffi_guard};
use sterna_capi::status::Status;
use sterna_capi::verbose;

/// Says once a function, under verbose, that it is not implemented.
fn refuse(function: &str, is_said: &AtomicBool) -> Status {
    ffi_guard(|| {
        if verbose::is_on() && !is_said.swap(true, Ordering::Relaxed) {
            verbose::write(&format!("sterna_verbose,primitive,unimplemented,cpu,{function}\n"));
        }
        Err(Fault::unimplemented(format!("{function} is not implemented")))
    })
}

/// Exports functions that read none of their arguments and leave all outputs alone, as oneDNN's do on
/// failure.
///
/// None of them declares its parameters, however many a client passes: in the C calling conventions of
/// x86-64, AArch64 and RISC-V the caller puts arguments into registers and on its own stack and removes them
/// itself.
macro_rules! unimplemented {
    ($($function:ident)*) => {
        $(
            #[unsafe(no_mangle)]
            extern "C" fn $function() -> Status {
                static IS_SAID: AtomicBool = AtomicBool::new(false);
                refuse(stringify!($function), &IS_SAID)
            }
        )*
    };
}

unimplemented! {
    dnnl_memory_desc_create_with_csr_encoding
    dnnl_memory_desc_create_with_coo_encoding
    dnnl_memory_desc_create_with_packed_encoding
    dnnl_memory_desc_create_with_grouped_encoding

    dnnl_primitive_create_from_cache_blob
    dnnl_primitive_get_cache_blob

    dnnl_concat_primitive_desc_create
    dnnl_sum_primitive_desc_create
    dnnl_binary_primitive_desc_create
    dnnl_binary_primitive_desc_create_v2
    dnnl_convolution_forward_primitive_desc_create
    dnnl_convolution_backward_data_primitive_desc_create
    dnnl_convolution_backward_weights_primitive_desc_create
    dnnl_deconvolution_forward_primitive_desc_create
    dnnl_deconvolution_backward_data_primitive_desc_create
    dnnl_deconvolution_backward_weights_primitive_desc_create
    dnnl_shuffle_forward_primitive_desc_create
    dnnl_shuffle_backward_primitive_desc_create
    dnnl_eltwise_forward_primitive_desc_create
    dnnl_eltwise_backward_primitive_desc_create
    dnnl_softmax_forward_primitive_desc_create
    dnnl_softmax_backward_primitive_desc_create
    dnnl_pooling_forward_primitive_desc_create
    dnnl_pooling_backward_primitive_desc_create
    dnnl_prelu_forward_primitive_desc_create
    dnnl_prelu_backward_primitive_desc_create
    dnnl_lrn_forward_primitive_desc_create
    dnnl_lrn_backward_primitive_desc_create
    dnnl_batch_normalization_forward_primitive_desc_create
    dnnl_batch_normalization_backward_primitive_desc_create
    dnnl_group_normalization_forward_primitive_desc_create
    dnnl_group_normalization_backward_primitive_desc_create
    dnnl_layer_normalization_forward_primitive_desc_create
    dnnl_layer_normalization_backward_primitive_desc_create
    dnnl_layer_normalization_forward_primitive_desc_create_v2
    dnnl_layer_normalization_backward_primitive_desc_create_v2
    dnnl_inner_product_forward_primitive_desc_create
    dnnl_inner_product_backward_data_primitive_desc_create
    dnnl_inner_product_backward_weights_primitive_desc_create
    dnnl_vanilla_rnn_forward_primitive_desc_create
    dnnl_vanilla_rnn_backward_primitive_desc_create
    dnnl_lstm_forward_primitive_desc_create
    dnnl_lstm_backward_primitive_desc_create
    dnnl_gru_forward_primitive_desc_create
    dnnl_gru_backward_primitive_desc_create
    dnnl_lbr_gru_forward_primitive_desc_create
    dnnl_lbr_gru_backward_primitive_desc_create
    dnnl_augru_forward_primitive_desc_create
    dnnl_augru_backward_primitive_desc_create
    dnnl_lbr_augru_forward_primitive_desc_create
    dnnl_lbr_augru_backward_primitive_desc_create
    dnnl_matmul_primitive_desc_create
    dnnl_resampling_forward_primitive_desc_create
    dnnl_resampling_backward_primitive_desc_create
    dnnl_reduction_primitive_desc_create

    dnnl_reset_profiling
    dnnl_query_profiling_data

    dnnl_sgemm
    dnnl_gemm_u8s8s32
    dnnl_gemm_s8s8s32
}
