//! The rows of the table of functions: what is told of a function beside its meaning.

/// Cost of an op for an element whose operands are in the first-level cache, in bytes that could be moved in
/// the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CostClass {
    /// Some instructions.
    Light = 1,
    /// A division, a root, or a conversion to f64 and back.
    Medium = 4,
    /// A polynomial, a table, or integer division.
    Heavy = 16,
}

impl CostClass {
    pub(crate) const fn bytes(self) -> usize {
        self as usize
    }
}

/// The properties of a function beside its meaning: the types on which kernels run it, their cost, and their
/// error.
#[derive(Debug, Clone, Copy)]
pub(super) struct FunctionRow {
    /// Cost on f32, and on bf16 and f16, which compute in it; `None` without kernels for them.
    pub(super) floats: Option<CostClass>,
    /// Cost on s32 and s64; `None` without kernels for them.
    pub(super) integers: Option<CostClass>,
    /// Cost on f64; `None` without a kernel for it.
    pub(super) doubles: Option<CostClass>,
    /// Units in the last place of f32 that a kernel may be off the correctly rounded result.
    pub(super) ulps: u32,
    /// The operands can change places: the result is the same bit for bit.
    pub(super) commutes: bool,
}

/// A function without a kernel.
const NONE: FunctionRow =
    FunctionRow { floats: None, integers: None, doubles: None, ulps: 0, commutes: false };

/// A correctly rounded function of f32.
pub(super) const fn floats(cost: CostClass) -> FunctionRow {
    FunctionRow { floats: Some(cost), ..NONE }
}

impl FunctionRow {
    pub(super) const fn integers(self, cost: CostClass) -> Self {
        Self { integers: Some(cost), ..self }
    }

    pub(super) const fn doubles(self, cost: CostClass) -> Self {
        Self { doubles: Some(cost), ..self }
    }

    pub(super) const fn ulps(self, ulps: u32) -> Self {
        Self { ulps, ..self }
    }

    pub(super) const fn commuting(self) -> Self {
        Self { commutes: true, ..self }
    }
}

/// Defines functions, each with its [row](FunctionRow).
macro_rules! functions {
    ($(
        $(#[$meta:meta])*
        pub(crate) enum $Enum:ident { $($(#[$doc:meta])* $Name:ident: $row:expr,)* }
    )*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub(crate) enum $Enum { $($(#[$doc])* $Name,)* }

        impl $Enum {
            #[cfg(test)]
            pub(crate) const ALL: &[Self] = &[$(Self::$Name),*];

            const fn row(self) -> $crate::types::function_row::FunctionRow {
                match self {
                    $(Self::$Name => $row,)*
                }
            }

            /// Cost of a kernel that computes in a type; `None` if there is none.
            pub(crate) const fn cost_on(self, of: DataType) -> Option<CostClass> {
                match of {
                    DataType::F32 => self.row().floats,
                    DataType::S32 | DataType::S64 => self.row().integers,
                    DataType::F64 => self.row().doubles,
                    _ => None,
                }
            }

            /// How many units in the last place of f32 a kernel may be off the correctly rounded result.
            pub(crate) const fn ulps(self) -> u32 {
                self.row().ulps
            }
        }
    )*};
}

pub(super) use functions;
