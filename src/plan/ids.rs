//! Types of indices, by which the compiler tells steps, accesses and values apart.

use std::marker::PhantomData;
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

/// A value of a partition, by its place among the inputs and the results of the ops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub(crate) struct ValueId(pub(crate) usize);

/// A type of index: a number that says of what it is the place.
pub(crate) trait Id: Copy {
    fn new(place: usize) -> Self;
    fn place(self) -> usize;
}

macro_rules! ids {
    ($($id:ident),*) => {$(
        impl Id for $id {
            #[inline(always)]
            fn new(place: usize) -> Self {
                Self(place)
            }

            #[inline(always)]
            fn place(self) -> usize {
                self.0
            }
        }
    )*};
}

ids!(StepId, ValueId);

/// A list that ids of one type index.
#[derive(Debug, Clone, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct IndexVec<I, T>(Vec<T>, PhantomData<I>);

/// One thing for each step of a program.
pub(crate) type OfSteps<T> = IndexVec<StepId, T>;

/// One thing for each value of a partition.
pub(crate) type OfValues<T> = IndexVec<ValueId, T>;

impl<I, T> IndexVec<I, T> {
    /// The same thing for each of `count` ids.
    pub(crate) fn new(count: usize, one: T) -> Self
    where
        T: Clone,
    {
        Self(vec![one; count], PhantomData)
    }

    /// An empty list, with room for `count` things.
    pub(crate) fn with_capacity(count: usize) -> Self {
        Self(Vec::with_capacity(count), PhantomData)
    }

    /// The things in the order of the ids.
    pub(crate) fn iter(&self) -> std::slice::Iter<'_, T> {
        self.0.iter()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

impl<I: Id, T> IndexVec<I, T> {
    /// Adds the same thing until there are `count`, or takes the last away.
    pub(crate) fn resize(&mut self, count: usize, one: T)
    where
        T: Clone,
    {
        self.0.resize(count, one);
    }

    /// The ids of all things.
    pub(crate) fn ids(&self) -> impl DoubleEndedIterator<Item = I> + Clone + use<I, T> {
        (0..self.0.len()).map(I::new)
    }

    /// The id of the thing that is added next.
    pub(crate) fn next_id(&self) -> I {
        I::new(self.0.len())
    }

    /// Adds a thing behind all others.
    pub(crate) fn push(&mut self, thing: T) -> I {
        let id = self.next_id();
        self.0.push(thing);
        id
    }
}

impl<I, T> FromIterator<T> for IndexVec<I, T> {
    fn from_iter<Items: IntoIterator<Item = T>>(items: Items) -> Self {
        Self(items.into_iter().collect(), PhantomData)
    }
}

impl<I, T> Extend<T> for IndexVec<I, T> {
    fn extend<Items: IntoIterator<Item = T>>(&mut self, items: Items) {
        self.0.extend(items);
    }
}

impl<I: Id, T> Index<I> for IndexVec<I, T> {
    type Output = T;

    #[inline(always)]
    fn index(&self, id: I) -> &T {
        &self.0[id.place()]
    }
}

impl<I: Id, T> IndexMut<I> for IndexVec<I, T> {
    #[inline(always)]
    fn index_mut(&mut self, id: I) -> &mut T {
        &mut self.0[id.place()]
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

/// The value that stands so many places behind.
impl Add<usize> for ValueId {
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
