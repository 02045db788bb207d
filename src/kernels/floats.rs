//! The floating-point environment of executions, the canonical NaN, and maximum and minimum.

/// Puts the thread into the default floating-point environment (rounding to nearest, denormals kept,
/// exceptions masked) and restores the caller's when dropped. Without it, a caller that rounds otherwise or
/// flushes denormals would get other bits.
pub(crate) struct DefaultFloats {
    /// The control word to restore, if it differs.
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    before: Option<u32>,
}

impl DefaultFloats {
    pub(crate) fn new() -> Self {
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        {
            let before = control::get();
            let differs = before & !control::FLAGS != control::DEFAULT;
            if differs {
                control::set(control::DEFAULT);
            }
            Self { before: differs.then_some(before) }
        }
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        Self {}
    }
}

impl Drop for DefaultFloats {
    fn drop(&mut self) {
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        if let Some(before) = self.before {
            control::set(before);
        }
    }
}

/// The control word of floating-point arithmetic.
#[cfg(target_arch = "x86_64")]
mod control {
    use std::arch::asm;

    /// All exceptions masked, rounding to nearest, nothing flushed.
    pub(super) const DEFAULT: u32 = 0x1f80;

    /// Flags of past exceptions, which control nothing.
    pub(super) const FLAGS: u32 = 0x3f;

    pub(super) fn get() -> u32 {
        let mut word = 0u32;
        // SAFETY: the instruction writes four bytes to the address, and every x86-64 machine has it.
        unsafe { asm!("stmxcsr [{}]", in(reg) &raw mut word, options(nostack, preserves_flags)) };
        word
    }

    pub(super) fn set(word: u32) {
        // SAFETY: the instruction reads four bytes from the address; the value is the default one, or one
        // that was in force.
        unsafe { asm!("ldmxcsr [{}]", in(reg) &raw const word, options(nostack, preserves_flags)) };
    }
}

/// As on x86-64. The upper half of the register is reserved; past exceptions are in another one.
#[cfg(target_arch = "aarch64")]
mod control {
    use std::arch::asm;

    pub(super) const DEFAULT: u32 = 0;
    pub(super) const FLAGS: u32 = 0;

    pub(super) fn get() -> u32 {
        let word: u64;
        // SAFETY: every machine lets programs read the register.
        unsafe { asm!("mrs {}, fpcr", out(reg) word, options(nomem, nostack, preserves_flags)) };
        word as u32
    }

    pub(super) fn set(word: u32) {
        // SAFETY: every machine lets programs write the register; the value is the default one, or one that
        // was in force. Not `nomem`, so that no access to memory is moved across it.
        unsafe { asm!("msr fpcr, {}", in(reg) u64::from(word), options(nostack, preserves_flags)) };
    }
}

/// The canonical NaN: arithmetic gives no other.
pub(super) const NAN: f32 = f32::from_bits(0x7fc0_0000);

/// `x`, or the canonical NaN.
#[inline(always)]
pub(crate) fn canonical(x: f32) -> f32 {
    if x.is_nan() { NAN } else { x }
}

/// The larger number; NaN if one is NaN, +0 above −0.
#[inline(always)]
pub(super) fn maximum(x: f32, y: f32) -> f32 {
    let larger = if x > y { x } else { y };
    // Equal numbers have equal bits, except zeros.
    let larger = if x == y { f32::from_bits(x.to_bits() & y.to_bits()) } else { larger };
    if x.is_nan() | y.is_nan() { NAN } else { larger }
}

/// The smaller number; NaN if one is NaN, −0 below +0.
#[inline(always)]
pub(super) fn minimum(x: f32, y: f32) -> f32 {
    let smaller = if x < y { x } else { y };
    let smaller = if x == y { f32::from_bits(x.to_bits() | y.to_bits()) } else { smaller };
    if x.is_nan() | y.is_nan() { NAN } else { smaller }
}
