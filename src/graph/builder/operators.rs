//! Operators on values: of two values, and of a value and a number, which takes the type of the value.

use std::ops::{Add, Div, Mul, Neg, Sub};

use super::GraphValue;
use crate::error::Result;

macro_rules! operators {
    ($( $Trait:ident $operator:ident $method:ident, )*) => {
        $(
            impl<'g> $Trait for GraphValue<'g> {
                type Output = Result<GraphValue<'g>>;

                fn $operator(self, other: Self) -> Self::Output {
                    self.builder.$method(self, other)
                }
            }

            impl<'g> $Trait<f32> for GraphValue<'g> {
                type Output = Result<GraphValue<'g>>;

                fn $operator(self, number: f32) -> Self::Output {
                    self.builder.$method(self, self.builder.scalar(self.data_type(), number)?)
                }
            }

            impl<'g> $Trait<GraphValue<'g>> for f32 {
                type Output = Result<GraphValue<'g>>;

                fn $operator(self, value: GraphValue<'g>) -> Self::Output {
                    value.builder.$method(value.builder.scalar(value.data_type(), self)?, value)
                }
            }
        )*
    };
}

operators! {
    Add add add,
    Sub sub subtract,
    Mul mul multiply,
    Div div divide,
}

impl<'g> Neg for GraphValue<'g> {
    type Output = Result<GraphValue<'g>>;

    fn neg(self) -> Self::Output {
        self.builder.negative(self)
    }
}
