//! Sets of CPU features.

use std::fmt;

use super::kind::{CpuFeature, CpuIsa, Level};

/// A set of CPU features beside a level.
///
/// ```
/// use sterna::{CpuFeature, CpuFeatures, CpuIsa};
/// let set = CpuIsa::Avx512Vnni.features();
/// assert!(set.contains(CpuFeature::Avx512Vnni) && !set.contains(CpuFeature::Avx512Bf16));
/// assert_eq!(set.to_string(), "f16c avx512_vnni");
/// assert!(CpuFeatures::NONE.is_subset_of(set));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct CpuFeatures(u32);

impl CpuFeatures {
    /// No feature.
    pub const NONE: Self = Self(0);

    /// These features.
    #[must_use]
    pub const fn of(features: &[CpuFeature]) -> Self {
        let (mut bits, mut i) = (0, 0);
        while i < features.len() {
            bits |= 1 << features[i].code();
            i += 1;
        }
        Self(bits)
    }

    /// True if a feature is in the set.
    #[must_use]
    pub const fn contains(self, feature: CpuFeature) -> bool {
        self.0 >> feature.code() & 1 != 0
    }

    /// True if every feature of this set is in the other.
    #[must_use]
    pub const fn is_subset_of(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }

    /// The features that both sets have.
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The features of the set, in the order of their codes.
    pub fn iter(self) -> impl Iterator<Item = CpuFeature> {
        CpuFeature::ALL.iter().copied().filter(move |&feature| self.contains(feature))
    }

    /// The features of this set that kernels of a level may use.
    pub(crate) fn within(self, level: Level) -> Self {
        self.intersection(match level {
            Level::Portable | Level::Neon => Self::NONE,
            Level::Avx2 => CpuIsa::Avx2.features(),
            Level::Avx512 => CpuIsa::Avx512Amx.features(),
        })
    }
}

impl FromIterator<CpuFeature> for CpuFeatures {
    fn from_iter<T: IntoIterator<Item = CpuFeature>>(features: T) -> Self {
        Self(features.into_iter().fold(0, |bits, feature| bits | 1 << feature.code()))
    }
}

/// The names of the features, with spaces between.
impl fmt::Display for CpuFeatures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.iter().map(CpuFeature::name).collect();
        f.pad(&names.join(" "))
    }
}

impl CpuIsa {
    /// The level that it allows.
    #[must_use]
    pub const fn level(self) -> Level {
        match self {
            Self::Portable => Level::Portable,
            Self::Avx2 => Level::Avx2,
            Self::Avx512 | Self::Avx512Vnni | Self::Avx512Bf16 | Self::Avx512Amx => Level::Avx512,
            Self::Neon => Level::Neon,
        }
    }

    /// The features beside the level that it allows.
    #[must_use]
    pub const fn features(self) -> CpuFeatures {
        use CpuFeature::{AmxBf16, AmxInt8, AmxTile, Avx512Bf16, Avx512Fp16, Avx512Vnni, F16c};
        match self {
            Self::Portable | Self::Neon => CpuFeatures::NONE,
            Self::Avx2 | Self::Avx512 => CpuFeatures::of(&[F16c]),
            Self::Avx512Vnni => CpuFeatures::of(&[F16c, Avx512Vnni]),
            Self::Avx512Bf16 => CpuFeatures::of(&[F16c, Avx512Vnni, Avx512Bf16]),
            Self::Avx512Amx => {
                CpuFeatures::of(&[F16c, Avx512Vnni, Avx512Bf16, Avx512Fp16, AmxTile, AmxInt8, AmxBf16])
            }
        }
    }
}

impl From<Level> for CpuIsa {
    fn from(level: Level) -> Self {
        match level {
            Level::Portable => Self::Portable,
            Level::Avx2 => Self::Avx2,
            Level::Avx512 => Self::Avx512,
            Level::Neon => Self::Neon,
        }
    }
}
