//! Predicates, whose results are masks: bytes that are 0 or 1.

use std::marker::PhantomData;

use super::driver::{
    BinaryTable, Impls, Kernel1, UnaryTable, binary_table, predicates1, predicates2, unary_table,
};
use super::two::Kernel2;
use crate::kernels::function::{Function1, Function2};
use crate::kernels::fused::{self, Stage, Stages};
use crate::kernels::isa::Isa;
use crate::kernels::simd::Pod;
use crate::kernels::{BLOCK, InnerStride};
use crate::types::dtype::DataType;
use crate::types::function::{Class, Comparison, Logic, Params};
use crate::types::kind::Level;

/// The implementations of a comparison of two numbers of a type, if there is a kernel, and its stage with
/// swapped operands. [Greater](Comparison::as_less) has none; it is less with swapped operands.
pub(crate) fn compare(
    level: Level,
    comparison: Comparison,
    of: DataType,
    x: InnerStride,
    y: InnerStride,
) -> Option<(Impls<Kernel2>, Option<Stage>)> {
    let (table, swapped) = match of {
        DataType::F32 => comparisons::<f32>(comparison),
        DataType::F64 => comparisons::<f64>(comparison),
        DataType::S32 => comparisons::<i32>(comparison),
        DataType::S64 => comparisons::<i64>(comparison),
        DataType::U32 => comparisons::<u32>(comparison),
        DataType::U64 => comparisons::<u64>(comparison),
        _ => None,
    }?;
    Some((table[level.row()].at(x, y, [of.bits() as u8 / 8, 1]), swapped[level.row()]))
}

/// The implementations of a function of two booleans.
pub(crate) fn logic(level: Level, logic: Logic, x: InnerStride, y: InnerStride) -> Impls<Kernel2> {
    connectives(logic)[level.row()].at(x, y, [1; 2])
}

/// The implementations of the negation of a boolean.
pub(crate) fn not(level: Level) -> Impls<Kernel1> {
    const TABLE: UnaryTable = unary_table::<Not, BLOCK>(fused::not());
    TABLE[level.row()]
}

/// The implementations of a test of a floating-point number's class; f32 and f64 have some.
pub(crate) fn classify(level: Level, class: Class, of: DataType) -> Option<Impls<Kernel1>> {
    match of {
        DataType::F32 => Some(classes::<f32>(class)[level.row()]),
        DataType::F64 => Some(classes::<f64>(class)[level.row()]),
        _ => None,
    }
}

/// A predicate of numbers of a type.
struct Of<T, Q>(PhantomData<(T, Q)>);

/// A predicate with swapped operands.
struct Swapped<F>(PhantomData<F>);

impl<F: Function2> Function2 for Swapped<F> {
    type X = F::X;
    type To = F::To;

    #[inline(always)]
    fn of<I: Isa>(x: F::X, y: F::X, params: Params) -> F::To {
        F::of::<I>(y, x, params)
    }
}

/// One type for each predicate, one row for each number type, and its stages with swapped operands.
macro_rules! predicates {
    ($($Name:ident: |$x:ident, $y:ident| $value:expr, swapped $Swapped:ty;)*) => {
        $(
            struct $Name;

            impl<T: Pod + PartialOrd> Function2 for Of<T, $Name> {
                type X = T;
                type To = u8;

                #[inline(always)]
                fn of<I: Isa>($x: T, $y: T, _: Params) -> u8 {
                    u8::from($value)
                }
            }
        )*

        fn comparisons<T: Pod + PartialOrd>(
            comparison: Comparison,
        ) -> Option<(&'static BinaryTable, &'static Stages)> {
            match comparison {
                $(Comparison::$Name => Some(const {
                    (&predicates2::<Of<T, $Name>, BLOCK>(), &fused::predicate2::<$Swapped, BLOCK>())
                }),)*
                Comparison::Greater | Comparison::GreaterEqual => None,
            }
        }
    };
}

predicates! {
    Equal: |x, y| x == y, swapped Of<T, Equal>;
    NotEqual: |x, y| x != y, swapped Of<T, NotEqual>;
    Less: |x, y| x < y, swapped Swapped<Of<T, Less>>;
    LessEqual: |x, y| x <= y, swapped Swapped<Of<T, LessEqual>>;
}

macro_rules! connectives {
    ($($Name:ident: |$x:ident, $y:ident| $value:expr;)*) => {
        $(
            struct $Name;

            impl Function2 for $Name {
                type X = u8;
                type To = u8;

                #[inline(always)]
                fn of<I: Isa>(x: u8, y: u8, _: Params) -> u8 {
                    let ($x, $y) = (x != 0, y != 0);
                    u8::from($value)
                }
            }
        )*

        fn connectives(logic: Logic) -> &'static BinaryTable {
            match logic {
                $(Logic::$Name => const { &binary_table::<$Name, BLOCK>(fused::logic(Logic::$Name)) },)*
            }
        }
    };
}

connectives! {
    And: |x, y| x & y;
    Or: |x, y| x | y;
    Xor: |x, y| x ^ y;
}

struct Not;

impl Function1 for Not {
    type X = u8;
    type To = u8;

    #[inline(always)]
    fn of<I: Isa>(x: u8, _: Params) -> u8 {
        u8::from(x == 0)
    }
}

/// A floating-point type.
trait Float: Pod + PartialOrd {
    fn magnitude(self) -> Self;
    const INFINITY: Self;
}

macro_rules! floats {
    ($($T:ident)*) => {
        $(impl Float for $T {
            const INFINITY: Self = $T::INFINITY;

            #[inline(always)]
            fn magnitude(self) -> Self {
                self.abs()
            }
        })*
    };
}

floats!(f32 f64);

macro_rules! classes {
    ($($Name:ident: |$x:ident| $value:expr;)*) => {
        $(
            struct $Name;

            impl<T: Float> Function1 for Of<T, $Name> {
                type X = T;
                type To = u8;

                #[inline(always)]
                fn of<I: Isa>($x: T, _: Params) -> u8 {
                    u8::from($value)
                }
            }
        )*

        fn classes<T: Float>(class: Class) -> &'static UnaryTable {
            match class {
                $(Class::$Name => const { &predicates1::<Of<T, $Name>, BLOCK>() },)*
            }
        }
    };
}

classes! {
    Nan: |x| x.partial_cmp(&x).is_none();
    Infinite: |x| x.magnitude() == T::INFINITY;
    Finite: |x| x.magnitude() < T::INFINITY;
}
