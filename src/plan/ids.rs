//! Types of indices, by which the compiler tells a step from an access.

use std::ops::{Add, Index, IndexMut};

/// A step of a tile program, by its place among the steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(transparent)]
pub(crate) struct StepId(pub(crate) usize);

/// An access of a tile program, by its place among the accesses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(transparent)]
pub(crate) struct AccessId(pub(crate) usize);

impl StepId {
    /// The steps of a program that has `count` of them.
    pub(crate) fn all(count: usize) -> impl DoubleEndedIterator<Item = Self> + Clone {
        (0..count).map(Self)
    }
}

/// One thing for each step of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct OfSteps<T>(Vec<T>);

impl<T> OfSteps<T> {
    /// The same thing for each of `count` steps.
    pub(crate) fn new(count: usize, one: T) -> Self
    where
        T: Clone,
    {
        Self(vec![one; count])
    }

    /// The things in the order of the steps.
    pub(crate) fn iter(&self) -> std::slice::Iter<'_, T> {
        self.0.iter()
    }
}

impl<T> FromIterator<T> for OfSteps<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        Self(items.into_iter().collect())
    }
}

impl<T> Index<StepId> for OfSteps<T> {
    type Output = T;

    #[inline(always)]
    fn index(&self, id: StepId) -> &T {
        &self.0[id.0]
    }
}

impl<T> IndexMut<StepId> for OfSteps<T> {
    #[inline(always)]
    fn index_mut(&mut self, id: StepId) -> &mut T {
        &mut self.0[id.0]
    }
}

/// The access that stands so many places behind.
impl Add<usize> for AccessId {
    type Output = Self;

    #[inline(always)]
    fn add(self, places: usize) -> Self {
        Self(self.0 + places)
    }
}

/// Lets a list be indexed by the ids of its elements.
macro_rules! indexed_by {
    ($($list:ty, $id:ty, $element:ty;)*) => {$(
        impl std::ops::Index<$id> for $list {
            type Output = $element;

            #[inline(always)]
            fn index(&self, id: $id) -> &$element {
                &self[id.0]
            }
        }

        impl std::ops::IndexMut<$id> for $list {
            #[inline(always)]
            fn index_mut(&mut self, id: $id) -> &mut $element {
                &mut self[id.0]
            }
        }
    )*};
}

pub(crate) use indexed_by;
