//! The names of ops and tensors within a graph: numbers of two types, so that neither passes for the other.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

macro_rules! id {
    ($( $(#[$docs:meta])* $Id:ident, )*) => {
        $(
            $(#[$docs])*
            #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
            #[cfg_attr(feature = "json", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
            pub struct $Id(usize);

            impl $Id {
                /// The id of a number. Functions that take an id take the number as well.
                #[must_use]
                pub const fn new(number: usize) -> Self {
                    Self(number)
                }

                /// The number.
                #[must_use]
                pub const fn get(self) -> usize {
                    self.0
                }
            }

            impl From<usize> for $Id {
                fn from(number: usize) -> Self {
                    Self(number)
                }
            }

            impl From<$Id> for usize {
                fn from(id: $Id) -> Self {
                    id.0
                }
            }

            impl PartialEq<usize> for $Id {
                fn eq(&self, number: &usize) -> bool {
                    self.0 == *number
                }
            }

            impl PartialEq<$Id> for usize {
                fn eq(&self, id: &$Id) -> bool {
                    *self == id.0
                }
            }

            impl fmt::Display for $Id {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    self.0.fmt(f)
                }
            }

            impl FromStr for $Id {
                type Err = ParseIntError;

                fn from_str(number: &str) -> Result<Self, ParseIntError> {
                    number.parse().map(Self)
                }
            }
        )*
    };
}

id! {
    /// Names one op within a graph.
    ///
    /// ```
    /// use sterna::{Op, OpId, OpKind};
    /// let op = Op::new(12, OpKind::Select);
    /// assert_eq!(op.id(), OpId::new(12));
    /// assert_eq!(op.id().to_string(), "12");
    /// ```
    OpId,

    /// Names one tensor within a graph: ops that name the same id are linked.
    ///
    /// ```
    /// use sterna::{DataType, LogicalTensor, TensorId};
    /// let tensor = LogicalTensor::unknown(30, DataType::F32);
    /// assert_eq!(tensor.id(), TensorId::new(30));
    /// assert_eq!("30".parse(), Ok(tensor.id()));
    /// ```
    TensorId,
}
