//! Levels of instructions: their CPU features, the type of each, and the functions that are compiled for
//! each; and the CPU features beside the level.
//!
//! Two lists of CPU features, one for a level, stand at [`levels`]. Detection and every `#[target_feature]`
//! follow from them. A body is written once, generic over [`Isa`], and [`shells`] compiles it for each level.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{
    _CMP_UNORD_Q, _mm_and_ps, _mm_andnot_ps, _mm_cmpunord_ps, _mm_loadu_ps, _mm_or_ps, _mm_set1_ps,
    _mm_storeu_ps, _mm256_blendv_ps, _mm256_cmp_ps, _mm256_loadu_ps, _mm256_set1_ps, _mm256_storeu_ps,
};
#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
use std::arch::x86_64::{
    _mm512_fixupimm_ps, _mm512_loadu_ps, _mm512_set1_epi32, _mm512_set1_ps, _mm512_storeu_ps,
};
use std::sync::OnceLock;

use parking_lot::Mutex;

#[cfg(target_arch = "x86_64")]
use super::floats::NAN;
use super::floats::canonical;
use crate::types::environment;
use crate::types::features::CpuFeatures;
#[cfg(target_arch = "x86_64")]
use crate::types::kind::CpuFeature;
use crate::types::kind::{CpuIsa, Level};

/// The levels that this build has kernels for, from the plainest to the widest.
#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
pub(crate) const LEVELS: &[Level] = &[Level::Portable, Level::Avx2, Level::Avx512];
#[cfg(all(target_arch = "x86_64", not(feature = "avx512")))]
pub(crate) const LEVELS: &[Level] = &[Level::Portable, Level::Avx2];
#[cfg(target_arch = "aarch64")]
pub(crate) const LEVELS: &[Level] = &[Level::Portable, Level::Neon];
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) const LEVELS: &[Level] = &[Level::Portable];

/// A kernel, or another thing, for each of the [`LEVELS`]; [`Level::row`] is the index.
pub(crate) type ByLevel<K> = [K; LEVELS.len()];

/// A table by level: what a path, a call of a macro or an expression gives for each of the [`LEVELS`]. `at`
/// stands for the module of the level, which [`shells`] makes.
macro_rules! by_level {
    ($($kernel:ident)::+ $(::<$($generic:tt),*>)?) => {
        [
            portable::$($kernel)::+$(::<$($generic),*>)?,
            #[cfg(target_arch = "x86_64")]
            avx2::$($kernel)::+$(::<$($generic),*>)?,
            #[cfg(all(target_arch = "x86_64", feature = "avx512"))]
            avx512::$($kernel)::+$(::<$($generic),*>)?,
            #[cfg(target_arch = "aarch64")]
            neon::$($kernel)::+$(::<$($generic),*>)?,
        ]
    };
    ($of:ident!) => {
        [
            $of!(portable),
            #[cfg(target_arch = "x86_64")]
            $of!(avx2),
            #[cfg(all(target_arch = "x86_64", feature = "avx512"))]
            $of!(avx512),
            #[cfg(target_arch = "aarch64")]
            $of!(neon),
        ]
    };
}

/// Calls the shell of a level.
macro_rules! at_level {
    ($level:expr, $shell:ident$(::<$form:tt>)?($($argument:expr),* $(,)?)) => {
        match $level {
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => avx2::$shell$(::<$form>)?($($argument),*),
            #[cfg(all(target_arch = "x86_64", feature = "avx512"))]
            Level::Avx512 => avx512::$shell$(::<$form>)?($($argument),*),
            #[cfg(target_arch = "aarch64")]
            Level::Neon => neon::$shell$(::<$form>)?($($argument),*),
            _ => portable::$shell$(::<$form>)?($($argument),*),
        }
    };
}

/// Makes, of the CPU features of the levels, the macro [`with_features`] and the detection of the level. A
/// level has the features of the one before it too.
macro_rules! levels {
    ($d:tt avx2: [$($avx2:tt)*], avx512: [$($avx512:tt)*]) => {
        /// Compiles a function for the instructions of a level, or of a level and a feature beside it.
        /// Every AArch64 machine has the instructions of level Neon.
        macro_rules! with_features {
            (portable $d($d item:tt)*) => {
                $d($d item)*
            };
            (neon $d($d item:tt)*) => {
                $d($d item)*
            };
            (avx2 $d($d item:tt)*) => {
                #[target_feature($(enable = $avx2),*)]
                $d($d item)*
            };
            (avx512 $d($d item:tt)*) => {
                #[cfg_attr(
                    all(target_arch = "x86_64", feature = "avx512"),
                    target_feature($(enable = $avx2,)* $(enable = $avx512),*)
                )]
                $d($d item)*
            };
            (avx512_bf16 $d($d item:tt)*) => {
                #[target_feature($(enable = $avx2,)* $(enable = $avx512,)* enable = "avx512bf16")]
                $d($d item)*
            };
            (avx512_vnni $d($d item:tt)*) => {
                #[target_feature($(enable = $avx2,)* $(enable = $avx512,)* enable = "avx512vnni")]
                $d($d item)*
            };
        }

        /// The widest level that the machine runs.
        #[cfg(target_arch = "x86_64")]
        fn level_of_machine() -> Level {
            let avx2 = $(is_x86_feature_detected!($avx2))&&*;
            let avx512 = cfg!(feature = "avx512") && avx2 $(&& is_x86_feature_detected!($avx512))*;
            match (avx512, avx2) {
                (true, _) => Level::Avx512,
                (false, true) => Level::Avx2,
                (false, false) => Level::Portable,
            }
        }
    };
}

levels! {
    $
    avx2: ["avx2" "bmi1" "bmi2" "popcnt" "fma" "f16c"],
    avx512: ["avx512f" "avx512bw" "avx512dq" "avx512vl"]
}

#[cfg(target_arch = "aarch64")]
fn level_of_machine() -> Level {
    Level::Neon
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn level_of_machine() -> Level {
    Level::Portable
}

/// The level and the features in use, from the first query on.
static IN_USE: OnceLock<(Level, CpuFeatures)> = OnceLock::new();

/// The program's cap of both.
static CAP_OF_PROGRAM: Mutex<CpuIsa> = Mutex::new(CpuIsa::Avx512Amx);

/// The level and the features in use; the first query determines them.
fn in_use() -> (Level, CpuFeatures) {
    if let Some(in_use) = IN_USE.get() {
        return *in_use;
    }
    // Held until they are determined, so that no cap arrives in between without effect.
    let cap_of_program = CAP_OF_PROGRAM.lock();
    *IN_USE.get_or_init(|| {
        let caps = [environment::MAX_CPU_ISA.read(), Some(*cap_of_program)].into_iter().flatten();
        // Those of other architectures cap nothing.
        let cap = caps.filter(|cap: &CpuIsa| cap.level().is_of_architecture()).min();
        let machine = level_of_machine();
        let level = cap.map_or(machine, |cap| machine.min(cap.level()));
        let allowed = cap.unwrap_or(CpuIsa::Avx512Amx).features();
        (level, features_of_machine(allowed.within(level)))
    })
}

impl Level {
    /// The widest level that this machine runs, capped by the environment variable `STERNA_MAX_CPU_ISA`, the
    /// name of a [`CpuIsa`], and by [`cap`](Self::cap). It is determined once; any other value of the
    /// variable is ignored, which a line on standard error says.
    #[must_use]
    pub fn available() -> Level {
        in_use().0
    }

    /// Caps the answers of [`available`](Self::available), [`CpuFeatures::available`] and
    /// [`CpuIsa::effective`] in the whole process; the last call counts. A level allows no CPU feature
    /// beyond it; a level of another architecture allows all. Returns false, and changes nothing, if one of
    /// them has been queried already, which the first engine does.
    pub fn cap(cap: impl Into<CpuIsa>) -> bool {
        let mut cap_of_program = CAP_OF_PROGRAM.lock();
        let is_open = IN_USE.get().is_none();
        if is_open {
            *cap_of_program = cap.into();
        }
        is_open
    }

    /// Every level of this machine's architecture up to [`available`](Self::available).
    pub fn all_available() -> impl Iterator<Item = Level> {
        LEVELS.iter().copied().filter(|&level| level <= Self::available())
    }

    /// True if machines of the architecture that this build is for can have the level.
    fn is_of_architecture(self) -> bool {
        match self {
            Self::Portable => true,
            Self::Avx2 | Self::Avx512 => cfg!(target_arch = "x86_64"),
            Self::Neon => cfg!(target_arch = "aarch64"),
        }
    }

    /// The level, or the widest one below it that is in use; a level of another architecture allows every
    /// level.
    pub(crate) fn or_available(self) -> Level {
        let available = Self::available();
        if self.is_of_architecture() { self.min(available) } else { available }
    }

    /// The index of the level in a table; the level is one of [`LEVELS`].
    #[inline(always)]
    pub(crate) const fn row(self) -> usize {
        if cfg!(target_arch = "aarch64") { (self as usize != 0) as usize } else { self as usize }
    }
}

impl CpuFeatures {
    /// The features that this machine has beside [`Level::available`], capped as that is.
    #[must_use]
    pub fn available() -> CpuFeatures {
        in_use().1
    }
}

impl CpuIsa {
    /// The highest one whose level and features are all available.
    #[must_use]
    pub fn effective() -> CpuIsa {
        let (level, features) = in_use();
        let is_available = |isa: &CpuIsa| {
            isa.level().is_of_architecture() && isa.level() <= level && isa.features().is_subset_of(features)
        };
        Self::ALL.iter().copied().rfind(is_available).unwrap_or(Self::Portable)
    }
}

/// Which features of a set the machine has. The system is asked to let the process use AMX only if the set
/// has it.
#[cfg(target_arch = "x86_64")]
fn features_of_machine(allowed: CpuFeatures) -> CpuFeatures {
    use std::arch::x86_64::{__cpuid_count, __get_cpuid_max};
    let bit = |register: u32, bit: u32| register >> bit & 1 != 0;
    #[allow(unused_unsafe, reason = "later compilers call the instruction safe")]
    // SAFETY: every x86-64 machine has the instruction; a leaf up to the highest can be read.
    let (first, second) = unsafe {
        match __get_cpuid_max(0).0 >= 7 {
            true => (__cpuid_count(7, 0), __cpuid_count(7, 1)),
            false => return CpuFeatures::NONE,
        }
    };
    // The second part of the leaf is 0 if the machine does not have it.
    let has = |feature: CpuFeature| match feature {
        CpuFeature::F16c => is_x86_feature_detected!("f16c"),
        CpuFeature::Avx512Vnni => bit(first.ecx, 11),
        CpuFeature::Avx512Bf16 => first.eax >= 1 && bit(second.eax, 5),
        CpuFeature::Avx512Fp16 => bit(first.edx, 23),
        CpuFeature::AmxTile => bit(first.edx, 24),
        CpuFeature::AmxInt8 => bit(first.edx, 25),
        CpuFeature::AmxBf16 => bit(first.edx, 22),
    };
    let uses_tiles = |feature: CpuFeature| {
        matches!(feature, CpuFeature::AmxTile | CpuFeature::AmxInt8 | CpuFeature::AmxBf16)
    };
    let found: CpuFeatures = allowed.iter().filter(|&feature| has(feature)).collect();
    match found.contains(CpuFeature::AmxTile) && may_use_tiles() {
        true => found,
        false => found.iter().filter(|&feature| !uses_tiles(feature)).collect(),
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn features_of_machine(_: CpuFeatures) -> CpuFeatures {
    CpuFeatures::NONE
}

/// True if the system saves the tile registers (bits 17 and 18 of XCR0), and lets the process use them when
/// asked. The machine has AMX.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn may_use_tiles() -> bool {
    const TILE_STATE: u32 = 0b11 << 17;
    const ARCH_PRCTL: i64 = 158;
    const ARCH_REQ_XCOMP_PERM: u64 = 0x1023;
    const TILE_DATA: u64 = 18;
    let saved: u32;
    // SAFETY: a level with AVX-512 has been detected, so the system lets programs read XCR0.
    unsafe {
        std::arch::asm!(
            "xgetbv", in("ecx") 0, lateout("eax") saved, lateout("edx") _,
            options(nomem, nostack, preserves_flags)
        );
    }
    let status: i64;
    // SAFETY: the call takes two numbers and reaches no memory of the process.
    unsafe {
        std::arch::asm!(
            "syscall", inlateout("rax") ARCH_PRCTL => status, in("rdi") ARCH_REQ_XCOMP_PERM,
            in("rsi") TILE_DATA, lateout("rcx") _, lateout("r11") _, options(nostack)
        );
    }
    saved & TILE_STATE == TILE_STATE && status == 0
}

/// Other systems need no request.
#[cfg(all(target_arch = "x86_64", not(target_os = "linux")))]
fn may_use_tiles() -> bool {
    false
}

/// A level, as a type for which bodies are compiled.
pub(in crate::kernels) trait Isa: 'static {
    const LEVEL: Level;

    /// `x · y + z`, rounded once if the level has the instruction, else twice.
    fn mul_add(x: f32, y: f32, z: f32) -> f32;

    /// As [`mul_add`](Self::mul_add).
    fn mul_add_64(x: f64, y: f64, z: f64) -> f64;

    /// The numbers, with any NaN replaced by the canonical NaN.
    #[inline(always)]
    fn canonical<const N: usize>(block: [f32; N]) -> [f32; N] {
        block.map(canonical)
    }
}

pub(in crate::kernels) struct Portable;
#[cfg(target_arch = "x86_64")]
pub(in crate::kernels) struct Avx2;
#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
pub(in crate::kernels) struct Avx512;
#[cfg(target_arch = "aarch64")]
pub(in crate::kernels) struct Neon;

impl Isa for Portable {
    const LEVEL: Level = Level::Portable;

    // The compiler would take short blocks apart.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn canonical<const N: usize>(mut block: [f32; N]) -> [f32; N] {
        let (parts, rest) = block.as_chunks_mut::<4>();
        for part in parts {
            // SAFETY: every x86-64 machine has the instructions; a part has the size of a vector.
            unsafe {
                let x = _mm_loadu_ps(part.as_ptr());
                let is_nan = _mm_cmpunord_ps(x, x);
                let x = _mm_or_ps(_mm_andnot_ps(is_nan, x), _mm_and_ps(is_nan, _mm_set1_ps(NAN)));
                _mm_storeu_ps(part.as_mut_ptr(), x);
            }
        }
        rest.iter_mut().for_each(
            #[inline(always)]
            |x| *x = canonical(*x),
        );
        block
    }

    #[inline(always)]
    fn mul_add(x: f32, y: f32, z: f32) -> f32 {
        x * y + z
    }

    #[inline(always)]
    fn mul_add_64(x: f64, y: f64, z: f64) -> f64 {
        x * y + z
    }
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! fused {
    ($($(#[$attribute:meta])* $Isa:ident { $($more:item)* })*) => {
        $($(#[$attribute])* impl Isa for $Isa {
            const LEVEL: Level = Level::$Isa;

            $($more)*

            #[inline(always)]
            fn mul_add(x: f32, y: f32, z: f32) -> f32 {
                x.mul_add(y, z)
            }

            #[inline(always)]
            fn mul_add_64(x: f64, y: f64, z: f64) -> f64 {
                x.mul_add(y, z)
            }
        })*
    };
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fused! {
    #[cfg(target_arch = "aarch64")]
    Neon {}
    #[cfg(target_arch = "x86_64")]
    Avx2 {
        #[inline(always)]
        fn canonical<const N: usize>(mut block: [f32; N]) -> [f32; N] {
            let (parts, rest) = block.as_chunks_mut::<8>();
            for part in parts {
                // SAFETY: only kernels of the level call this; a part has the size of a vector.
                unsafe {
                    let x = _mm256_loadu_ps(part.as_ptr());
                    let is_nan = _mm256_cmp_ps::<_CMP_UNORD_Q>(x, x);
                    _mm256_storeu_ps(part.as_mut_ptr(), _mm256_blendv_ps(x, _mm256_set1_ps(NAN), is_nan));
                }
            }
            rest.iter_mut().for_each(#[inline(always)] |x| *x = canonical(*x));
            block
        }
    }
    #[cfg(all(target_arch = "x86_64", feature = "avx512"))]
    Avx512 {
        #[inline(always)]
        fn canonical<const N: usize>(mut block: [f32; N]) -> [f32; N] {
            /// By class of a number, starting at quiet and signalling NaN: 0 takes the other operand, 1 the
            /// number itself.
            const KINDS: i32 = 0x1111_1100;
            let (parts, rest) = block.as_chunks_mut::<16>();
            for part in parts {
                // SAFETY: only kernels of the level call this; a part has the size of a vector.
                unsafe {
                    let (x, nan) = (_mm512_loadu_ps(part.as_ptr()), _mm512_set1_ps(NAN));
                    let x = _mm512_fixupimm_ps::<0>(nan, x, _mm512_set1_epi32(KINDS));
                    _mm512_storeu_ps(part.as_mut_ptr(), x);
                }
            }
            rest.iter_mut().for_each(#[inline(always)] |x| *x = canonical(*x));
            block
        }
    }
}

/// Compiles each function for each of the [`LEVELS`]: gives the modules `portable`, `avx2`, `avx512` and
/// `neon`, in which it has its name. The bodies see the type of their level under the name given first. A
/// function may have another body at level Avx512, behind `or`.
///
/// The functions are unsafe; their callers promise what the bodies require, and that the machine runs the
/// level.
macro_rules! shells {
    ($Isa:ident: $($functions:tt)*) => {
        mod portable {
            #[allow(unused_imports, reason = "a body may do without its level")]
            use $crate::kernels::isa::Portable as $Isa;

            use super::*;

            $crate::kernels::isa::shell! { portable $($functions)* }
        }

        #[cfg(target_arch = "x86_64")]
        mod avx2 {
            #[allow(unused_imports, reason = "a body may do without its level")]
            use $crate::kernels::isa::Avx2 as $Isa;

            use super::*;

            $crate::kernels::isa::shell! { avx2 $($functions)* }
        }

        #[cfg(all(target_arch = "x86_64", feature = "avx512"))]
        mod avx512 {
            #[allow(unused_imports, reason = "a body may do without its level")]
            use $crate::kernels::isa::Avx512 as $Isa;

            use super::*;

            $crate::kernels::isa::shell! { avx512 $($functions)* }
        }

        #[cfg(target_arch = "aarch64")]
        mod neon {
            #[allow(unused_imports, reason = "a body may do without its level")]
            use $crate::kernels::isa::Neon as $Isa;

            use super::*;

            $crate::kernels::isa::shell! { neon $($functions)* }
        }
    };
}

/// The functions of [`shells`] at one level, one after the other.
macro_rules! shell {
    ($level:ident) => {};
    (
        $level:ident $(#[$meta:meta])*
        fn $name:ident[$($generics:tt)*]($($arg:ident: $Arg:ty),* $(,)?) $(-> $Ret:ty)?
        { $($plain:tt)* } or { $($wide:tt)* }
        $($rest:tt)*
    ) => {
        $crate::kernels::isa::with_features! {
            $level
            $(#[$meta])*
            pub(super) unsafe fn $name<$($generics)*>($($arg: $Arg),*) $(-> $Ret)? {
                // SAFETY: as the caller promises.
                unsafe { $crate::kernels::isa::body!($level { $($plain)* } { $($wide)* }) }
            }
        }
        $crate::kernels::isa::shell! { $level $($rest)* }
    };
    (
        $level:ident $(#[$meta:meta])*
        fn $name:ident[$($generics:tt)*]($($arg:ident: $Arg:ty),* $(,)?) $(-> $Ret:ty)?
        { $($body:tt)* }
        $($rest:tt)*
    ) => {
        $crate::kernels::isa::shell! {
            $level $(#[$meta])*
            fn $name[$($generics)*]($($arg: $Arg),*) $(-> $Ret)? { $($body)* } or { $($body)* }
            $($rest)*
        }
    };
}

/// The second body at level Avx512, else the first.
macro_rules! body {
    (avx512 { $($plain:tt)* } { $($wide:tt)* }) => {
        $($wide)*
    };
    ($level:ident { $($plain:tt)* } { $($wide:tt)* }) => {
        $($plain)*
    };
}

pub(in crate::kernels) use {at_level, body, by_level, shell, shells};

#[allow(
    clippy::single_component_path_imports,
    reason = "a macro makes this macro, which no path reaches otherwise"
)]
pub(in crate::kernels) use with_features;
