//! Numbers that follow from a seed, the same on every machine.

use candle_core::{Device, Result, Tensor};

/// A generator (SplitMix64).
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next_bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// A number from 0 up to 1, and not 1.
    pub fn next_share(&mut self) -> f32 {
        (self.next_bits() >> 40) as f32 / (1u64 << 24) as f32
    }

    /// A tensor of numbers from −`bound` to `bound`.
    pub fn tensor(&mut self, dims: &[usize], bound: f32) -> Result<Tensor> {
        let count = dims.iter().product();
        let numbers: Vec<f32> = (0..count).map(|_| (2.0 * self.next_share() - 1.0) * bound).collect();
        Tensor::from_vec(numbers, dims, &Device::Cpu)
    }
}
