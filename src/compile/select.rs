//! One select in one call: its compiled partition is found by types, dims and strides, without a graph.

use std::sync::Arc;

use super::cache;
use super::select_key::{ReadySelect, SelectKey};
use crate::error::Result;
#[cfg(feature = "ndarray")]
use crate::error::{Error, TensorFault};
use crate::execute::dyn_view::{DynView, DynViewMut};
use crate::execute::engine::Engine;
use crate::execute::raw_view::RawView;
use crate::execute::stream::Stream;
use crate::execute::view::{AsView, AsViewMut, execute_on_views, execute_to_vec, of_operand};
use crate::graph::logical_tensor::LogicalTensor;
use crate::graph::op::Op;
use crate::partition::Partition;
use crate::types::dtype::Element;
use crate::types::kind::AutoBroadcast;
use crate::types::shape::Dims;

/// Computes `cond ? then : else_`, with broadcasting as NumPy's for two operands: `then` and `else_`
/// broadcast to each other, `cond` to both. The result is row-major.
///
/// It runs on the [engine that the process shares](Engine::shared). The first call for some types, dims and
/// strides compiles a partition; later calls find it in the
/// [cache](crate::compiled_partition_cache_stats). [`SelectOptions`] has other broadcast modes, other
/// engines, and the dims of the result.
///
/// # Errors
///
/// [`Error::Operand`](crate::Error::Operand) for an operand whose dims, strides or length make no tensor;
/// [`Error::Op`](crate::Error::Op) if `cond` is not boolean; [`Error::Shape`](crate::Error::Shape) if the
/// shapes do not broadcast; [`Error::OutOfMemory`](crate::Error::OutOfMemory).
///
/// ```
/// use sterna::{TensorView, select};
/// let scores = [0.5f32, 2.0, 1.5, 0.0, 1.0, 3.0];
/// let masked = select(&[true, false, true], &TensorView::new(&scores, &[2, 3]), &f32::NEG_INFINITY)?;
/// assert_eq!(masked, [0.5, f32::NEG_INFINITY, 1.5, 0.0, f32::NEG_INFINITY, 3.0]);
///
/// let error = select(&[1u8, 0], &[1.0f32, 2.0], &0.0).unwrap_err();
/// assert_eq!(error.to_string(), "Select (op 0): input 0 `cond` (tensor 0) is u8; it must be boolean");
/// # Ok::<(), sterna::Error>(())
/// ```
pub fn select<C, A, B, T>(cond: &C, then: &A, else_: &B) -> Result<Vec<T>>
where
    C: AsView + ?Sized,
    A: AsView<Element = T> + ?Sized,
    B: AsView<Element = T> + ?Sized,
    T: Element,
{
    SelectOptions::new().select(cond, then, else_)
}

/// As [`select`], into memory of the caller.
///
/// # Errors
///
/// As [`select`]; [`Error::Shape`](crate::Error::Shape) too if `dst` has other dims than the result, and
/// [`Error::Compile`](crate::Error::Compile) if its strides overlap.
///
/// ```
/// let mut result = [0i64; 3];
/// sterna::select_into(&[true, false, true], &[1, 2, 3], &[-1, -2, -3], &mut result)?;
/// assert_eq!(result, [1, -2, 3]);
/// # Ok::<(), sterna::Error>(())
/// ```
pub fn select_into<C, A, B, D, T>(cond: &C, then: &A, else_: &B, dst: &mut D) -> Result<()>
where
    C: AsView + ?Sized,
    A: AsView<Element = T> + ?Sized,
    B: AsView<Element = T> + ?Sized,
    D: AsViewMut<Element = T> + ?Sized,
    T: Element,
{
    SelectOptions::new().select_into(cond, then, else_, dst)
}

/// As [`select`], as an array of the result's dims.
///
/// # Errors
///
/// As [`select`].
///
/// ```
/// use ndarray::array;
/// let result = sterna::select_array(&array![true, false], &array![[1.0f32, 2.0], [3.0, 4.0]], &0.0)?;
/// assert_eq!(result, array![[1.0, 0.0], [3.0, 0.0]].into_dyn());
/// # Ok::<(), sterna::Error>(())
/// ```
#[cfg(feature = "ndarray")]
pub fn select_array<C, A, B, T>(cond: &C, then: &A, else_: &B) -> Result<ndarray::ArrayD<T>>
where
    C: AsView + ?Sized,
    A: AsView<Element = T> + ?Sized,
    B: AsView<Element = T> + ?Sized,
    T: Element,
{
    SelectOptions::new().select_array(cond, then, else_)
}

/// How [`select`] broadcasts, and on which engine it runs.
///
/// ```
/// use sterna::{AutoBroadcast, Engine, SelectOptions};
/// // A condition of more rows than the branches, as in `torch.where`.
/// let any_way = SelectOptions::new().auto_broadcast(AutoBroadcast::Multidirectional);
/// let (cond, then) = ([[true], [false]], [1u8, 2, 3]);
/// assert_eq!(any_way.dims(&cond, &then, &0)?[..], [2, 3]);
/// assert_eq!(any_way.engine(&Engine::shared()).select(&cond, &then, &0)?, [1, 2, 3, 0, 0, 0]);
/// # Ok::<(), sterna::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct SelectOptions {
    mode: AutoBroadcast,
    axis: Option<i64>,
    /// The engine that the process shares unless one is given.
    engine: Option<Engine>,
}

impl Default for SelectOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl SelectOptions {
    /// Broadcasting `numpy`, on the engine that the process shares.
    #[must_use]
    pub fn new() -> Self {
        Self { mode: AutoBroadcast::Numpy, axis: None, engine: None }
    }

    /// How the shapes of the operands combine.
    #[must_use]
    pub fn auto_broadcast(mut self, mode: AutoBroadcast) -> Self {
        self.mode = mode;
        self
    }

    /// Under [`AutoBroadcast::Pdpd`], the dim of `then` at which the other operands start.
    #[must_use]
    pub fn axis(mut self, axis: i64) -> Self {
        self.axis = Some(axis);
        self
    }

    /// The engine to run on. Plans are found in the cache for every engine; but a compiled partition keeps
    /// its engine, so only those of the engine that the process shares are kept.
    #[must_use]
    pub fn engine(mut self, engine: &Engine) -> Self {
        self.engine = Some(engine.clone()).filter(|engine| !engine.is_same(Engine::shared()));
        self
    }

    /// The dims of the result.
    ///
    /// # Errors
    ///
    /// As [`select`](fn@select).
    pub fn dims<C, A, B, T>(&self, cond: &C, then: &A, else_: &B) -> Result<Dims>
    where
        C: AsView + ?Sized,
        A: AsView<Element = T> + ?Sized,
        B: AsView<Element = T> + ?Sized,
    {
        self.dims_dyn(&cond.as_view().into(), &then.as_view().into(), &else_.as_view().into())
    }

    /// As [`dims`](Self::dims), for types that are known only at run time.
    ///
    /// # Errors
    ///
    /// As [`select`](fn@select).
    pub fn dims_dyn(&self, cond: &DynView<'_>, then: &DynView<'_>, else_: &DynView<'_>) -> Result<Dims> {
        let ready = self.ready([&cond.raw, &then.raw, &else_.raw], None)?;
        Ok(ready.compiled.outputs()[0].dims().unwrap_or_default().into())
    }

    /// As [`select`](fn@select).
    ///
    /// # Errors
    ///
    /// As [`select`](fn@select).
    pub fn select<C, A, B, T>(&self, cond: &C, then: &A, else_: &B) -> Result<Vec<T>>
    where
        C: AsView + ?Sized,
        A: AsView<Element = T> + ?Sized,
        B: AsView<Element = T> + ?Sized,
        T: Element,
    {
        let [cond, then, else_]: [DynView<'_>; 3] =
            [cond.as_view().into(), then.as_view().into(), else_.as_view().into()];
        let inputs = [&cond.raw, &then.raw, &else_.raw];
        let ready = self.ready(inputs, None)?;
        execute_to_vec(&ready.compiled, &ready.stream, inputs)
    }

    /// As [`select_array`].
    ///
    /// # Errors
    ///
    /// As [`select_array`].
    #[cfg(feature = "ndarray")]
    pub fn select_array<C, A, B, T>(&self, cond: &C, then: &A, else_: &B) -> Result<ndarray::ArrayD<T>>
    where
        C: AsView + ?Sized,
        A: AsView<Element = T> + ?Sized,
        B: AsView<Element = T> + ?Sized,
        T: Element,
    {
        let dims = self.dims(cond, then, else_)?;
        let dims: Vec<usize> = dims.iter().map(|&dim| dim as usize).collect();
        let elements = self.select(cond, then, else_)?;
        let no_array = |_| Error::Operand { operand: "dst", fault: TensorFault::NoArray };
        ndarray::ArrayD::from_shape_vec(dims, elements).map_err(no_array)
    }

    /// As [`select_into`].
    ///
    /// # Errors
    ///
    /// As [`select_into`].
    pub fn select_into<C, A, B, D, T>(&self, cond: &C, then: &A, else_: &B, dst: &mut D) -> Result<()>
    where
        C: AsView + ?Sized,
        A: AsView<Element = T> + ?Sized,
        B: AsView<Element = T> + ?Sized,
        D: AsViewMut<Element = T> + ?Sized,
        T: Element,
    {
        let inputs = [cond.as_view().into(), then.as_view().into(), else_.as_view().into()];
        let [cond, then, else_]: &[DynView<'_>; 3] = &inputs;
        self.select_dyn(cond, then, else_, &mut dst.as_view_mut().into())
    }

    /// As [`select_into`], for types that are known only at run time.
    ///
    /// # Errors
    ///
    /// As [`select_into`]; [`Error::Op`](crate::Error::Op) if types differ that must not.
    pub fn select_dyn(
        &self,
        cond: &DynView<'_>,
        then: &DynView<'_>,
        else_: &DynView<'_>,
        dst: &mut DynViewMut<'_>,
    ) -> Result<()> {
        let inputs = [&cond.raw, &then.raw, &else_.raw];
        let ready = self.ready(inputs, Some(&dst.raw))?;
        execute_on_views(&ready.compiled, &ready.stream, inputs, &dst.raw)
    }

    /// The compiled partition for operands, and for a result of given or of row-major layout.
    fn ready(&self, inputs: [&RawView; 3], dst: Option<&RawView>) -> Result<Arc<ReadySelect>> {
        match &self.engine {
            Some(engine) => self.compile(engine, inputs, dst).map(Arc::new),
            None => {
                let key = SelectKey::new(self.mode, self.axis, inputs, dst);
                cache::select_of(&key, || self.compile(Engine::shared(), inputs, dst))
            }
        }
    }

    fn compile(&self, engine: &Engine, inputs: [&RawView; 3], dst: Option<&RawView>) -> Result<ReadySelect> {
        let desc = |view: &RawView, id: usize| view.desc(id.into()).map_err(of_operand);
        let dst = match dst {
            Some(dst) => desc(dst, 3)?,
            None => desc(&RawView::of_any_shape(inputs[1].data_type), 3)?,
        };
        let [cond, then, else_]: [LogicalTensor; 3] =
            [desc(inputs[0], 0)?, desc(inputs[1], 1)?, desc(inputs[2], 2)?];
        let op = Op::select(0, cond, then, else_, dst).auto_broadcast(self.mode);
        let op = match self.axis {
            Some(axis) => op.axis(axis),
            None => op,
        };
        let compiled = Partition::from_op(op)?.compile(engine)?;
        Ok(ReadySelect { compiled, stream: Stream::new(engine) })
    }
}
