//! Attention in one call.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};

use lru::LruCache;
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyInt, PyString, PyTuple};
use sterna::{
    Attention, Causal, CompiledPartition, DataType, Dims, Engine, Graph, LogicalTensor, MaskTrue, Model,
    ModelPort, Policy, Session, TileClass,
};

use crate::dtype::type_named;
use crate::engine::entered;
use crate::error::of_class;
use crate::foreign::{self, Access, Operand, new_array, owned_array, write_all};
use crate::run::detached;

/// Calls that are kept compiled.
const KEPT: usize = 256;

/// The ids of the tensors, by role.
const Q: usize = 0;
const K: usize = 1;
const V: usize = 2;
const MASK: usize = 3;
const BIAS: usize = 4;
const SINKS: usize = 5;
const OFFSET: usize = 6;
const DST: usize = 7;
const STATS: usize = 8;

/// The kinds of causal masks, of which one takes a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum CausalKind {
    TopLeft,
    BottomRight,
    Offset,
}

/// The options of a call but for its tensors.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Options {
    drops: bool,
    causal: Option<CausalKind>,
    window: Option<i64>,
    /// The bits of an f32.
    scale: Option<u32>,
    softcap: Option<u32>,
    groups: Option<i64>,
    k_transposed: bool,
    nan_without_keys: bool,
    score_type: DataType,
    stats: bool,
}

/// A tensor of a call, as far as compilation sees it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct TensorKey {
    role: usize,
    data_type: DataType,
    dims: Dims,
    strides: Option<Dims>,
}

type Key = (Options, Vec<TensorKey>);

/// The compiled form of a call.
enum Ready {
    /// All of it is one partition.
    Partition(CompiledPartition),
    /// It takes several.
    Session(Session),
}

static READY: Mutex<Option<LruCache<Key, Arc<Ready>>>> = Mutex::new(None);

/// The operands of a call by role, and its options.
struct Call {
    options: Options,
    operands: Vec<(usize, Operand)>,
}

impl Call {
    fn add(&mut self, role: usize, object: Option<&Bound<'_, PyAny>>, wanted: DataType) -> PyResult<()> {
        if let Some(object) = object {
            self.operands.push((role, Operand::new(object, Some(wanted), Access::Read)?));
        }
        Ok(())
    }

    fn key(&self, outputs: &[(usize, &Operand)]) -> Key {
        let inputs = self.operands.iter().map(|(role, operand)| (*role, operand));
        let tensor = |(role, operand): (usize, &Operand)| TensorKey {
            role,
            data_type: operand.data_type(),
            dims: operand.dims().clone(),
            strides: operand.strides().cloned(),
        };
        (self.options.clone(), inputs.chain(outputs.iter().copied()).map(tensor).collect())
    }

    /// The ops of the call as a graph.
    fn graph(&self, dst: Option<&Operand>) -> sterna::Result<Graph> {
        let desc = |role: usize| -> sterna::Result<Option<LogicalTensor>> {
            let found = self.operands.iter().find(|(own, _)| *own == role);
            found.map(|(_, operand)| operand.desc(role)).transpose()
        };
        let needed = |role: usize| -> sterna::Result<LogicalTensor> {
            Ok(desc(role)?.unwrap_or_else(|| LogicalTensor::unknown(role, DataType::F32)))
        };
        let q = needed(Q)?;
        let dst = match dst {
            Some(dst) => dst.desc(DST)?,
            None => LogicalTensor::unknown(DST, q.data_type()),
        };
        let Options { drops, causal, window, scale, softcap, groups, .. } = self.options;
        let says = if drops { MaskTrue::Masks } else { MaskTrue::Keeps };
        let causal = match causal {
            None => None,
            Some(CausalKind::TopLeft) => Some(Causal::TopLeft),
            Some(CausalKind::BottomRight) => Some(Causal::BottomRight),
            Some(CausalKind::Offset) => desc(OFFSET)?.map(Causal::Offset),
        };
        let attention = Attention::new(q, needed(K)?, needed(V)?, dst)
            .k_transposed(self.options.k_transposed)
            .scale(scale.map(f32::from_bits))
            .softcap(softcap.map(f32::from_bits))
            .bias(desc(BIAS)?)
            .sinks(desc(SINKS)?)
            .mask(desc(MASK)?, says)
            .causal(causal)
            .window(window)
            .groups(groups)
            .nan_without_keys(self.options.nan_without_keys)
            .score_type(self.options.score_type)
            .stats(self.options.stats.then(|| LogicalTensor::unknown(STATS, DataType::F32)));
        let mut graph = Graph::new();
        graph.attention(&attention)?;
        graph.finalize()?;
        Ok(graph)
    }

    fn make(&self, engine: &Engine, dst: Option<&Operand>) -> sterna::Result<Ready> {
        let partitions = self.graph(dst)?.partitions(Policy::Fusion)?;
        match &*partitions {
            [partition] if partition.is_supported() => Ok(Ready::Partition(partition.compile(engine)?)),
            // A session gives row-major results, whatever the memory of the caller is.
            _ => {
                let graph = self.graph(None)?;
                let port = |tensor: &LogicalTensor| ModelPort::new(tensor.id().to_string(), tensor.clone());
                let inputs = graph.inputs().into_iter().map(port).collect();
                let roles = [DST, STATS];
                let outputs = roles.iter().filter_map(|&role| {
                    graph.outputs().into_iter().find(|tensor| tensor.id() == role).map(port)
                });
                let outputs = outputs.collect();
                Session::new(Model::with_ports(graph, inputs, outputs)?, engine).map(Ready::Session)
            }
        }
    }

    /// The compiled form of the call: for the engine that the process shares, as it was kept.
    fn ready(&self, py: Python<'_>, dst: Option<&Operand>) -> PyResult<Arc<Ready>> {
        if let Some(engine) = entered() {
            return detached(py, || self.make(&engine, dst).map(Arc::new));
        }
        let key = self.key(dst.map(|dst| (DST, dst)).as_slice());
        {
            let mut kept = READY.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(ready) = kept.as_mut().and_then(|kept| kept.get(&key)) {
                return Ok(ready.clone());
            }
        }
        let ready = detached(py, || self.make(Engine::shared(), dst).map(Arc::new))?;
        let mut kept = READY.lock().unwrap_or_else(PoisonError::into_inner);
        let capacity = NonZeroUsize::new(KEPT).unwrap_or(NonZeroUsize::MIN);
        kept.get_or_insert_with(|| LruCache::new(capacity)).put(key, ready.clone());
        Ok(ready)
    }

    /// The operands in the order of ports.
    fn in_order(&self, ports: &[LogicalTensor]) -> Vec<&Operand> {
        let of = |port: &LogicalTensor| self.operands.iter().find(|(role, _)| port.id() == *role);
        ports.iter().filter_map(of).map(|(_, operand)| operand).collect()
    }
}

/// The call that its arguments describe.
#[allow(clippy::too_many_arguments, reason = "they are those of the call")]
fn call(
    q: &Bound<'_, PyAny>,
    k: &Bound<'_, PyAny>,
    v: &Bound<'_, PyAny>,
    mask: Option<&Bound<'_, PyAny>>,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<Call> {
    let py = q.py();
    let options = match options {
        Some(options) => options.copy()?,
        None => PyDict::new(py),
    };
    let take = |name: &str| -> PyResult<Option<Bound<'_, PyAny>>> {
        let value = options.get_item(name)?;
        if value.is_some() {
            options.del_item(name)?;
        }
        Ok(value.filter(|value| !value.is_none()))
    };
    let number = |name: &str| -> PyResult<Option<u32>> {
        take(name)?.map(|value| value.extract::<f32>().map(f32::to_bits)).transpose()
    };
    let q = Operand::new(q, None, Access::Read)?;
    let data_type = q.data_type();
    let says = take("mask_true")?;
    let drops = match says.as_ref().map(|says| says.extract::<&str>()).transpose()? {
        None | Some("keep") => false,
        Some("drop") => true,
        Some(other) => return Err(option_error(py, "mask_true", other, "\"keep\" or \"drop\"")),
    };
    let (causal, offset) = causal_of(take("causal")?)?;
    let options_of_call = Options {
        drops,
        causal,
        window: take("window")?.map(|value| value.extract()).transpose()?,
        scale: number("scale")?,
        softcap: number("softcap")?,
        groups: take("groups")?.map(|value| value.extract()).transpose()?,
        k_transposed: take("k_transposed")?.is_some_and(|value| value.is_truthy().unwrap_or(false)),
        nan_without_keys: take("nan_without_keys")?.is_some_and(|value| value.is_truthy().unwrap_or(false)),
        score_type: take("score_type")?.map_or(Ok(DataType::F32), |value| type_named(&value))?,
        stats: take("stats")?.is_some_and(|value| value.is_truthy().unwrap_or(false)),
    };
    let mut call = Call { options: options_of_call, operands: vec![(Q, q)] };
    call.add(K, Some(k), data_type)?;
    call.add(V, Some(v), data_type)?;
    let mut bias = take("bias")?;
    if let Some(mask) = mask.filter(|mask| !mask.is_none()) {
        let mask = Operand::new(mask, Some(DataType::Boolean), Access::Read)?;
        match (mask.data_type(), &bias) {
            (DataType::Boolean, _) => call.operands.push((MASK, mask)),
            // Numbers are added, as torch does with them.
            (_, None) => {
                call.operands.push((BIAS, mask));
                bias = None;
            }
            (_, Some(_)) => {
                return Err(of_class(py, "AttentionError", "attention: `mask` and `bias` are both numbers"));
            }
        }
    }
    call.add(BIAS, bias.as_ref(), data_type)?;
    call.add(SINKS, take("sinks")?.as_ref(), data_type)?;
    call.add(OFFSET, offset.as_ref(), DataType::S32)?;
    match options.keys().get_item(0) {
        Ok(unknown) => {
            let message = format!("attention() got an unexpected keyword argument '{unknown}'");
            Err(pyo3::exceptions::PyTypeError::new_err(message))
        }
        Err(_) => Ok(call),
    }
}

fn option_error(py: Python<'_>, option: &str, given: &str, allowed: &str) -> PyErr {
    of_class(py, "AttentionError", &format!("attention: `{option}` is {given:?}; it is {allowed}"))
}

/// The kind of a causal mask, and its offset if that is a tensor.
fn causal_of<'py>(
    given: Option<Bound<'py, PyAny>>,
) -> PyResult<(Option<CausalKind>, Option<Bound<'py, PyAny>>)> {
    let Some(given) = given else { return Ok((None, None)) };
    if let Ok(flag) = given.cast_exact::<PyBool>() {
        return Ok((flag.is_true().then_some(CausalKind::TopLeft), None));
    }
    if let Ok(word) = given.cast::<PyString>() {
        return match word.to_str()? {
            "top_left" => Ok((Some(CausalKind::TopLeft), None)),
            "bottom_right" => Ok((Some(CausalKind::BottomRight), None)),
            other => {
                let allowed =
                    "a bool, \"top_left\", \"bottom_right\", or the number of keys before the first query";
                Err(option_error(given.py(), "causal", other, allowed))
            }
        };
    }
    // A number of NumPy has a type, which need not be s32.
    let offset = match given.cast::<PyInt>() {
        Ok(number) => number.extract::<i32>()?.into_bound_py_any(given.py())?,
        Err(_) => given,
    };
    Ok((Some(CausalKind::Offset), Some(offset)))
}

/// Attention of queries over keys and values: `softmax(q · kᵀ · scale + bias) · v` under masks.
///
/// Tiles of scores that masks leave out are not computed. Calls are kept compiled by types, shapes, strides
/// and options. With `d`, `d_v` and any dims in front, which broadcast:
///
/// Args:
///     q: queries, [.., queries, d], of f32, bf16 or f16.
///     k: keys, [.., keys, d], of the type of `q`.
///     v: values, [.., keys, d_v], of the type of `q`.
///     mask: booleans that broadcast to [.., queries, keys]; or numbers, which are `bias`, as in torch.
///     mask_true: what True in `mask` says of its key: "keep" as torch's `attn_mask`, or "drop" as torch's
///         `key_padding_mask`.
///     bias: numbers that are added to the scaled and capped scores; -inf leaves a key out.
///     causal: True or "top_left": query `i` sees the keys up to `i`; "bottom_right": the last query sees all
///         keys; a whole number, or an array of s32: that many keys come before the first query.
///     window: how many positions, its own included, a query sees back, and ahead unless the mask is causal.
///     scale: the factor of the scores; 1/√d unless given.
///     softcap: caps the scaled scores to `softcap · tanh(score / softcap)`.
///     sinks: a score without a key for each query: numbers that broadcast to [.., queries, 1].
///     groups: how many heads of queries share a head of keys and values. Tensors are
///         [batch, heads, .., d] or [batch, key heads, groups or 1, .., d].
///     k_transposed: True if `k` is [.., d, keys].
///     nan_without_keys: True gives a query all of whose keys are left out NaN instead of 0.
///     score_type: the type of the scores: "f32", or the type of `q`.
///     stats: True hands out maximum + ln(sum) of the scores of each query as well, f32 of [.., queries, 1].
///     out: an array of the shape and type of the result, [.., queries, d_v], that is written instead of a
///         new one.
///
/// Returns:
///     `out` or a new NumPy array; with `stats`, a pair with the statistics.
///
/// Raises:
///     ShapeError: if shapes do not fit together.
///     AttentionError: for an option whose value or type does not do.
///     OpError: if types differ that must not.
///     ArrayError: for an object that is no array, and for an `out` that is read-only.
///     ExecuteError: if `out` overlaps an operand.
///
/// >>> import numpy as np, sterna
/// >>> q = k = v = np.eye(4, dtype=np.float32)[None]
/// >>> y = sterna.attention(q, k, v, causal=True)
/// >>> y.shape, y[0, 0].tolist()
/// ((1, 4, 4), [1.0, 0.0, 0.0, 0.0])
#[pyfunction]
#[pyo3(
    signature = (q, k, v, mask=None, *, out=None, **options),
    text_signature = "(q, k, v, mask=None, *, mask_true='keep', bias=None, causal=None, window=None, \
                      scale=None, softcap=None, sinks=None, groups=None, k_transposed=False, \
                      nan_without_keys=False, \
                      score_type='f32', stats=False, out=None)"
)]
pub(crate) fn attention<'py>(
    q: &Bound<'py, PyAny>,
    k: &Bound<'py, PyAny>,
    v: &Bound<'py, PyAny>,
    mask: Option<&Bound<'py, PyAny>>,
    out: Option<&Bound<'py, PyAny>>,
    options: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = q.py();
    let call = call(q, k, v, mask, options)?;
    let mut given = out.map(|out| Operand::new(out, None, Access::Write)).transpose()?;
    given.as_ref().map_or(Ok(()), Operand::check_writable)?;
    let ready = call.ready(py, given.as_ref())?;
    let mut results: Vec<(usize, Bound<'py, PyAny>)> = Vec::new();
    match &*ready {
        Ready::Partition(compiled) => {
            let mut targets = Vec::new();
            for port in compiled.outputs() {
                let role = port.id().get();
                let (array, target) = match (role, out, given.take()) {
                    (DST, Some(out), Some(target)) => (out.clone(), target),
                    (_, _, target) => {
                        given = target;
                        new_array(py, port.data_type(), port.dims().unwrap_or_default(), port.strides())?
                    }
                };
                results.push((role, array));
                targets.push(target);
            }
            let inputs = call.in_order(compiled.inputs());
            detached(py, || foreign::execute(compiled, &inputs, &mut targets))?;
        }
        Ready::Session(session) => {
            let names: Vec<String> = call.operands.iter().map(|(role, _)| role.to_string()).collect();
            let inputs: Vec<(&str, &Operand)> = names
                .iter()
                .map(String::as_str)
                .zip(call.operands.iter().map(|(_, operand)| operand))
                .collect();
            let outputs = detached(py, || {
                let inputs: Vec<(&str, &dyn sterna::AsDynView)> =
                    inputs.iter().map(|(name, operand)| (*name, *operand as _)).collect();
                session.run(&inputs)
            })?;
            for (role, tensor) in [DST, STATS].into_iter().zip(outputs.into_tensors()) {
                match (role, out, &mut given) {
                    (DST, Some(out), Some(target)) => {
                        write_all(py, target, &sterna::AsDynView::as_dyn_view(&tensor))?;
                        results.push((role, out.clone()));
                    }
                    _ => results.push((role, owned_array(py, tensor)?)),
                }
            }
        }
    }
    results.sort_by_key(|(role, _)| *role);
    let mut arrays = results.into_iter().map(|(_, array)| array);
    match (arrays.next(), arrays.next()) {
        (Some(dst), Some(stats)) => Ok(PyTuple::new(py, [dst, stats])?.into_any()),
        (Some(dst), None) => Ok(dst),
        (None, _) => Err(of_class(py, "InternalError", "attention has no result")),
    }
}

/// The tiles of 64 queries and 64 keys of the scores of an attention, as a picture of what masks leave.
///
/// Args:
///     q, k, v, mask: as in `attention`, as are the other options.
///
/// Returns:
///     An array of u8, [mask planes, blocks of queries, blocks of keys]: 0 for a tile that is computed and
///     partly masked, 1 for one that no mask touches, 2 for one whose scores are all one number, which is
///     left out if it has no weight, 3 for one that is masked and left out. `sterna.TILE_CLASSES` has the
///     names.
///
/// Raises:
///     As `attention`.
///
/// >>> import numpy as np, sterna
/// >>> q = k = v = np.zeros((1, 256, 64), np.float32)
/// >>> sterna.mask_tiles(q, k, v, causal=True)
/// array([[[0, 3, 3, 3],
///         [1, 0, 3, 3],
///         [1, 1, 0, 3],
///         [1, 1, 1, 0]]], dtype=uint8)
#[pyfunction]
#[pyo3(
    signature = (q, k, v, mask=None, **options),
    text_signature = "(q, k, v, mask=None, *, mask_true='keep', bias=None, causal=None, window=None, \
                      scale=None, softcap=None, sinks=None, groups=None, k_transposed=False, \
                      nan_without_keys=False, \
                      score_type='f32')"
)]
pub(crate) fn mask_tiles<'py>(
    q: &Bound<'py, PyAny>,
    k: &Bound<'py, PyAny>,
    v: &Bound<'py, PyAny>,
    mask: Option<&Bound<'py, PyAny>>,
    options: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = q.py();
    let call = call(q, k, v, mask, options)?;
    let ready = call.ready(py, None)?;
    let tiles = match &*ready {
        Ready::Partition(compiled) => {
            let inputs = call.in_order(compiled.inputs());
            detached(py, || foreign::mask_tiles(compiled, &inputs))?
        }
        Ready::Session(_) => None,
    };
    let blocks = |operand: usize, from_end: usize| {
        let dims = call.operands.iter().find(|(role, _)| *role == operand).map(|(_, operand)| operand.dims());
        let dim = dims.and_then(|dims| dims.len().checked_sub(from_end).map(|axis| dims[axis])).unwrap_or(0);
        (dim.max(0) + 63) / 64
    };
    let of_keys = if call.options.k_transposed { 1 } else { 2 };
    let [planes, queries, keys] = match &tiles {
        Some(tiles) => [tiles.planes() as i64, tiles.query_blocks() as i64, tiles.key_blocks() as i64],
        None => [1, blocks(Q, 2), blocks(K, of_keys)],
    };
    let class = |plane: i64, query: i64, key: i64| match &tiles {
        Some(tiles) => {
            tiles.class(plane as usize, query as usize, key as usize).unwrap_or(TileClass::Partial)
        }
        None => TileClass::Full,
    };
    let (array, mut target) = new_array(py, DataType::U8, &[planes, queries, keys], None)?;
    let mut view = target.view_mut()?;
    let elements = view.elements_mut::<u8>().map_err(|error| crate::error::raised(py, error))?;
    let places = (0..planes)
        .flat_map(|plane| (0..queries).flat_map(move |query| (0..keys).map(move |key| (plane, query, key))));
    for (element, (plane, query, key)) in elements.iter_mut().zip(places) {
        *element = class(plane, query, key) as u8;
    }
    Ok(array)
}
