//! The names of numbers that oneDNN declares in `dnnl_debug.h`, as far as a client of the graph API meets
//! them.

use std::ffi::{CStr, c_char, c_int, c_uint};

use sterna_capi::data_type;

/// Exports a name function for each table; a number that is not in it has the name at the end.
macro_rules! names {
    ($($function:ident($number:ty): [$($code:literal = $name:literal,)*] or $unknown:literal;)*) => {
        $(
            #[unsafe(no_mangle)]
            extern "C" fn $function(number: $number) -> *const c_char {
                const NAMES: &[($number, &CStr)] = &[$(($code, $name)),*];
                let row = NAMES.iter().find(|(code, _)| *code == number);
                row.map_or($unknown, |(_, name)| name).as_ptr()
            }
        )*
    };
}

names! {
    dnnl_engine_kind2str(c_int): [
        0 = c"any",
        1 = c"cpu",
        2 = c"gpu",
    ] or c"unknown engine_kind";

    dnnl_fpmath_mode2str(c_int): [
        0 = c"strict",
        1 = c"bf16",
        2 = c"f16",
        3 = c"any",
        4 = c"tf32",
    ] or c"unknown fpmath_mode";

    dnnl_accumulation_mode2str(c_int): [
        0 = c"strict",
        1 = c"relaxed",
        2 = c"any",
        3 = c"s32",
        4 = c"f32",
        5 = c"f16",
    ] or c"unknown accumulation_mode";

    dnnl_scratchpad_mode2str(c_int): [
        0 = c"library",
        1 = c"user",
    ] or c"unknown scratchpad_mode";

    dnnl_cpu_isa2str(c_int): [
        0x0 = c"cpu_isa_default",
        0x1 = c"cpu_isa_sse41",
        0x3 = c"cpu_isa_avx",
        0x7 = c"cpu_isa_avx2",
        0xf = c"cpu_isa_avx2_vnni",
        0x1f = c"cpu_isa_avx2_vnni_2",
        0x27 = c"cpu_isa_avx512_core",
        0x67 = c"cpu_isa_avx512_core_vnni",
        0xe7 = c"cpu_isa_avx512_core_bf16",
        0x1ef = c"cpu_isa_avx10_1_512",
        0xfef = c"cpu_isa_avx10_1_512_amx",
        0x1fef = c"cpu_isa_avx10_1_512_amx_fp16",
        0x201ff = c"cpu_isa_avx10_2",
        0x22fff = c"cpu_isa_avx10_2_amx_2",
    ] or c"unknown cpu_isa";

    dnnl_cpu_isa_hints2str(c_int): [
        0 = c"cpu_isa_no_hints",
        1 = c"cpu_isa_prefer_ymm",
    ] or c"unknown cpu_isa_hints";

    dnnl_runtime2str(c_uint): [
        0 = c"none",
        1 = c"sequential",
        2 = c"OpenMP",
        4 = c"TBB",
        8 = c"threadpool",
        0x100 = c"OpenCL",
        0x200 = c"SYCL",
        0x400 = c"Level Zero",
    ] or c"unknown";
}

/// Sterna's own types have their names here, too.
#[unsafe(no_mangle)]
extern "C" fn dnnl_dt2str(number: c_int) -> *const c_char {
    const MAX: c_int = 0x7fff;
    let name = data_type::sterna_data_type_string(number);
    match number {
        MAX => c"data_type_max".as_ptr(),
        _ if name.is_null() => c"unknown dt".as_ptr(),
        _ => name,
    }
}
