//! Instruction sets by oneDNN's numbers.

use std::ffi::c_int;

use sterna::{CpuIsa as Set, Level};

use crate::ffi::{Fault, ffi_guard, value_of};
use crate::status::Status;

/// A set of instructions: one of the `STERNA_CPU_ISA_*` numbers, which are those of `dnnl_cpu_isa_t`. Kernels
/// know three levels: `sse41` and `avx` run plain code; the numbers from `avx2` up to below `avx512_core` run
/// kernels for `avx2`, those from `avx512_core` on run kernels for `avx512_core`. Beside the last level,
/// kernels may use the instructions that `avx512_core_vnni`, `avx512_core_bf16` and `avx512_core_amx` add.
pub type CpuIsa = c_int;

/// Every set with its name.
pub const CPU_ISAS: &[(CpuIsa, &str)] = &[
    (DEFAULT, "default"),
    (SSE41, "sse41"),
    (0x3, "avx"),
    (0x7, "avx2"),
    (0xf, "avx2_vnni"),
    (0x1f, "avx2_vnni_2"),
    (0x27, "avx512_core"),
    (0x67, "avx512_core_vnni"),
    (0xe7, "avx512_core_bf16"),
    (0x1ef, "avx512_core_fp16"),
    (0xfef, "avx512_core_amx"),
    (0x1fef, "avx512_core_amx_fp16"),
];

const DEFAULT: CpuIsa = 0;
const SSE41: CpuIsa = 0x1;

/// The sets that the library distinguishes, in rising order; each has the bits of those before it.
const STEPS: &[(Set, CpuIsa)] = &[
    (Set::Portable, SSE41),
    (Set::Avx2, 0x7),
    (Set::Avx512, 0x27),
    (Set::Avx512Vnni, 0x67),
    (Set::Avx512Bf16, 0xe7),
    (Set::Avx512Amx, 0xfef),
];

/// The instruction set that kernels may use: `sse41`, `avx2`, `avx512_core`, `avx512_core_vnni`,
/// `avx512_core_bf16` or `avx512_core_amx`; `default` on a machine other than x86-64. From this call on, it
/// is fixed.
#[unsafe(no_mangle)]
pub extern "C" fn sterna_cpu_isa_get_effective() -> CpuIsa {
    value_of(DEFAULT, || {
        let effective = Set::effective();
        let step = STEPS.iter().find(|(set, _)| *set == effective && cfg!(target_arch = "x86_64"));
        step.map_or(DEFAULT, |(_, code)| *code)
    })
}

/// Caps the instruction set that kernels use, in the whole process. The cap can be set until the first engine
/// is made or the instruction set is read; afterwards the call returns `invalid_arguments`. `default` removes
/// the cap. The environment variable `STERNA_MAX_CPU_ISA` caps it too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_cpu_isa_set_max(isa: CpuIsa) -> Status {
    ffi_guard(|| {
        if !CPU_ISAS.iter().any(|(code, _)| *code == isa) {
            return Err(Fault::unknown("instruction set", isa));
        }
        let within = STEPS.iter().rfind(|(_, code)| isa & code == *code);
        let cap = match within {
            _ if isa == DEFAULT => Set::Avx512Amx,
            Some((set, _)) => *set,
            None => Set::Portable,
        };
        match Level::cap(cap) {
            true => Ok(()),
            false => Err(Fault::invalid_arguments("the instruction set is in use already")),
        }
    })
}
