//! Masked attention as an op of candle: queries, keys and values are candle's tensors, wherever their elements
//! lie, and the op holds the mask.

use std::sync::Arc;

use candle_core::{CpuStorage, CustomOp3, DType, Error, Layout, Result, Shape, WithDType};
use sterna::{Attention, Element, Engine, Graph, LogicalTensor, MaskTrue, Partition, Policy, TensorId};

const Q: TensorId = TensorId::new(0);
const K: TensorId = TensorId::new(1);
const V: TensorId = TensorId::new(2);
const MASK: TensorId = TensorId::new(3);
const OUT: TensorId = TensorId::new(4);

/// Says which keys a query sees: booleans [batch, queries, keys], made once, of which an op takes a part.
#[derive(Debug, Clone)]
pub struct Mask {
    keeps: Arc<[bool]>,
    batch: usize,
    keys: usize,
    /// The first query of the part, its number of queries, and its number of keys.
    part: (usize, usize, usize),
}

impl Mask {
    /// The mask of a function of entry, query and key.
    pub fn new(
        batch: usize,
        queries: usize,
        keys: usize,
        keeps: impl Fn(usize, usize, usize) -> bool,
    ) -> Self {
        let mut all = Vec::with_capacity(batch * queries * keys);
        for entry in 0..batch {
            for query in 0..queries {
                all.extend((0..keys).map(|key| keeps(entry, query, key)));
            }
        }
        Self { keeps: all.into(), batch, keys, part: (0, queries, keys) }
    }

    /// The mask of some queries of this one on the first keys.
    ///
    /// # Errors
    ///
    /// The part is larger than the mask.
    pub fn part(&self, first_query: usize, queries: usize, keys: usize) -> Result<Self> {
        let (first, count, columns) = self.part;
        if first_query + queries > count || keys > columns {
            candle_core::bail!(
                "queries {first_query}..{} on {keys} keys are no part of a mask of {count} on {columns}",
                first_query + queries
            );
        }
        Ok(Self { part: (first + first_query, queries, keys), ..self.clone() })
    }

    /// True if a query of an entry sees a key.
    pub fn keeps(&self, entry: usize, query: usize, key: usize) -> bool {
        let rows = self.rows();
        self.keeps[(entry * rows + self.part.0 + query) * self.keys + key]
    }

    /// The queries of the whole mask.
    fn rows(&self) -> usize {
        self.keeps.len() / (self.batch * self.keys).max(1)
    }

    /// The part as a tensor [batch, 1, queries, keys], and its elements.
    fn tensor(&self) -> sterna::Result<(LogicalTensor, &[bool])> {
        let (first, queries, keys) = self.part;
        let entry = (self.rows() * self.keys) as i64;
        let dims = [self.batch as i64, 1, queries as i64, keys as i64];
        let strides = [entry, entry, self.keys as i64, 1];
        let desc = LogicalTensor::with_strides(MASK, sterna::DataType::Boolean, &dims, &strides)?;
        Ok((desc, &self.keeps[(first * self.keys).min(self.keeps.len())..]))
    }
}

/// Sterna's attention, whose compiled code is kept by shapes and layouts: ops of one shape share it.
#[derive(Debug, Clone)]
pub struct Attending {
    engine: Engine,
    /// By type: f32, bf16, f16.
    partitions: [Partition; 3],
}

impl Attending {
    /// Attention of heads of `depth`, on as many threads as the machine runs at once, or as
    /// `STERNA_NUM_THREADS` allows.
    ///
    /// # Errors
    ///
    /// Sterna cannot describe it.
    pub fn new(depth: usize) -> Result<Self> {
        let types = [sterna::DataType::F32, sterna::DataType::Bf16, sterna::DataType::F16];
        let [f32, bf16, f16] = types.map(|data_type| partition(depth, data_type).map_err(Error::wrap));
        Ok(Self { engine: Engine::new(), partitions: [f32?, bf16?, f16?] })
    }

    /// The op for a mask. On queries [batch, heads, queries, depth], and keys and values [batch, heads, keys,
    /// depth], it gives [batch, queries, heads, depth]: the next projection takes that as it lies.
    pub fn op(&self, mask: Mask) -> MaskedAttention {
        MaskedAttention { attending: self.clone(), mask }
    }
}

/// Masked attention of any shapes.
fn partition(depth: usize, data_type: sterna::DataType) -> sterna::Result<Partition> {
    let open = |id| LogicalTensor::unknown(id, data_type);
    let mask = LogicalTensor::unknown(MASK, sterna::DataType::Boolean);
    let attention = Attention::new(open(Q), open(K), open(V), open(OUT))
        .scale(1.0 / (depth as f32).sqrt())
        .mask(mask, MaskTrue::Keeps);
    let mut graph = Graph::new();
    graph.attention(&attention)?;
    graph.finalize()?;
    let mut partitions = graph.partitions(Policy::Fusion)?;
    // All of it is one.
    Ok(partitions.swap_remove(0))
}

/// Attention with a mask, as an op of candle.
#[derive(Debug, Clone)]
pub struct MaskedAttention {
    attending: Attending,
    mask: Mask,
}

impl MaskedAttention {
    fn run<T: WithDType + Element>(
        &self,
        partition: &Partition,
        operands: [(&CpuStorage, &Layout); 3],
    ) -> Result<(CpuStorage, Shape)> {
        let (engine, [q, k, v]) = (&self.attending.engine, operands);
        let (batch, heads, queries, depth) = q.1.shape().dims4()?;
        let (q, k, v) = (Operand::<T>::new(Q, q)?, Operand::<T>::new(K, k)?, Operand::<T>::new(V, v)?);
        let mut result = vec![T::zero(); batch * heads * queries * depth];
        let attend = |result: &mut [T]| {
            let dims = [batch, heads, queries, depth].map(|dim| dim as i64);
            // Tokens outside, heads inside.
            let strides = [queries * heads * depth, depth, heads * depth, 1].map(|stride| stride as i64);
            let out = LogicalTensor::with_strides(OUT, T::DATA_TYPE, &dims, &strides)?;
            let (mask, keeps) = self.mask.tensor()?;
            let descs = [q.desc, k.desc, v.desc, mask];
            // Looked up, unless this is the first call with these shapes and layouts.
            let compiled = partition.compile_for(engine, &descs, &[out])?;
            let inputs = [
                compiled.tensor(Q, q.elements)?,
                compiled.tensor(K, k.elements)?,
                compiled.tensor(V, v.elements)?,
                compiled.tensor(MASK, keeps)?,
            ];
            compiled.run(&inputs, &mut [compiled.tensor_mut(OUT, result)?])
        };
        attend(&mut result).map_err(Error::wrap)?;
        Ok((T::to_cpu_storage_owned(result), Shape::from((batch, queries, heads, depth))))
    }
}

/// An operand where candle has it: its description, with candle's strides, and the elements from its first one
/// on.
struct Operand<'a, T> {
    desc: LogicalTensor,
    elements: &'a [T],
}

impl<'a, T: WithDType + Element> Operand<'a, T> {
    fn new(id: TensorId, (storage, layout): (&'a CpuStorage, &Layout)) -> Result<Self> {
        let signed = |numbers: &[usize]| numbers.iter().map(|&number| number as i64).collect::<Vec<i64>>();
        let (dims, strides) = (signed(layout.dims()), signed(layout.stride()));
        let desc = LogicalTensor::with_strides(id, T::DATA_TYPE, &dims, &strides).map_err(Error::wrap)?;
        let elements = T::cpu_storage_as_slice(storage)?;
        Ok(Self { desc, elements: elements.get(layout.start_offset()..).unwrap_or_default() })
    }
}

impl CustomOp3 for MaskedAttention {
    fn name(&self) -> &'static str {
        "sterna-masked-attention"
    }

    fn cpu_fwd(
        &self,
        q: &CpuStorage,
        q_layout: &Layout,
        k: &CpuStorage,
        k_layout: &Layout,
        v: &CpuStorage,
        v_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let operands = [(q, q_layout), (k, k_layout), (v, v_layout)];
        let [f32, bf16, f16] = &self.attending.partitions;
        match q {
            CpuStorage::F32(_) => self.run::<f32>(f32, operands),
            CpuStorage::BF16(_) => self.run::<half::bf16>(bf16, operands),
            CpuStorage::F16(_) => self.run::<half::f16>(f16, operands),
            other => Err(Error::UnsupportedDTypeForOp(dtype(other), "sterna-masked-attention").bt()),
        }
    }
}

fn dtype(storage: &CpuStorage) -> DType {
    candle_core::backend::BackendStorage::dtype(storage)
}
