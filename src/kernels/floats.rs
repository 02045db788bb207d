//! The floating-point environment of executions, the canonical NaN, and maximum and minimum.

/// Puts the thread into the default floating-point environment (rounding to nearest, denormals kept,
/// exceptions masked) and restores the caller's when dropped. Without it, a caller that rounds otherwise or
/// flushes denormals would get other bits.
pub(crate) struct DefaultFloats {
    /// The control word to restore, if it differs.
    #[cfg(target_arch = "x86_64")]
    before: Option<u32>,
}

/// All exceptions masked, rounding to nearest, nothing flushed.
#[cfg(target_arch = "x86_64")]
const DEFAULT_CONTROL: u32 = 0x1f80;

/// Flags of past exceptions, which control nothing.
#[cfg(target_arch = "x86_64")]
const EXCEPTION_FLAGS: u32 = 0x3f;

impl DefaultFloats {
    pub(crate) fn new() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            let before = control();
            let differs = before & !EXCEPTION_FLAGS != DEFAULT_CONTROL;
            if differs {
                set_control(DEFAULT_CONTROL);
            }
            Self { before: differs.then_some(before) }
        }
        #[cfg(not(target_arch = "x86_64"))]
        Self {}
    }
}

impl Drop for DefaultFloats {
    fn drop(&mut self) {
        #[cfg(target_arch = "x86_64")]
        if let Some(before) = self.before {
            set_control(before);
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn control() -> u32 {
    let mut control = 0u32;
    // SAFETY: the instruction writes four bytes to the address, and every x86-64 machine has it.
    unsafe { std::arch::asm!("stmxcsr [{}]", in(reg) &raw mut control, options(nostack, preserves_flags)) };
    control
}

#[cfg(target_arch = "x86_64")]
fn set_control(control: u32) {
    // SAFETY: the instruction reads four bytes from the address; the value is the default one, or one that
    // was in force.
    unsafe { std::arch::asm!("ldmxcsr [{}]", in(reg) &raw const control, options(nostack, preserves_flags)) };
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
