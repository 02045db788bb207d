//! Instruction sets by oneDNN's numbers.

use std::ffi::c_int;

use sterna::Level;

use crate::ffi::{Fault, ffi_guard, value_of};
use crate::status::Status;

/// A set of instructions: one of the `STERNA_CPU_ISA_*` numbers, which are those of `dnnl_cpu_isa_t`. Kernels know
/// three levels: those of `sse41` and `avx` are plain code, those from `avx2` up to below `avx512_core` and those from
/// `avx512_core` on use what these two have.
pub type CpuIsa = c_int;

/// Every set with its name.
pub const CPU_ISAS: &[(CpuIsa, &str)] = &[
    (DEFAULT, "default"),
    (SSE41, "sse41"),
    (0x3, "avx"),
    (AVX2, "avx2"),
    (0xf, "avx2_vnni"),
    (0x1f, "avx2_vnni_2"),
    (AVX512, "avx512_core"),
    (0x67, "avx512_core_vnni"),
    (0xe7, "avx512_core_bf16"),
    (0x1ef, "avx512_core_fp16"),
    (0xfef, "avx512_core_amx"),
    (0x1fef, "avx512_core_amx_fp16"),
];

const DEFAULT: CpuIsa = 0;
const SSE41: CpuIsa = 0x1;
const AVX2: CpuIsa = 0x7;
const AVX512: CpuIsa = 0x27;

/// The instruction set that kernels use, as the lowest one that has their level. From this call on, the level is
/// fixed.
#[unsafe(no_mangle)]
pub extern "C" fn sterna_cpu_isa_get_effective() -> CpuIsa {
    value_of(DEFAULT, || match Level::available() {
        Level::Avx512 => AVX512,
        Level::Avx2 => AVX2,
        _ if cfg!(target_arch = "x86_64") => SSE41,
        _ => DEFAULT,
    })
}

/// Caps the instruction set that kernels use, in the whole process. It can be set until the first engine is made or
/// the instruction set is asked for; afterwards the answer is `invalid_arguments`. `default` takes the cap away. The
/// environment variable `STERNA_MAX_CPU_ISA` caps it too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_cpu_isa_set_max(isa: CpuIsa) -> Status {
    ffi_guard(|| {
        if !CPU_ISAS.iter().any(|(code, _)| *code == isa) {
            return Err(Fault::unknown("instruction set", isa));
        }
        let has = |other| isa & other == other;
        let level = match isa {
            DEFAULT => Level::Avx512,
            _ if has(AVX512) => Level::Avx512,
            _ if has(AVX2) => Level::Avx2,
            _ => Level::Portable,
        };
        match Level::cap(level) {
            true => Ok(()),
            false => Err(Fault::invalid_arguments("the instruction set is in use already")),
        }
    })
}
