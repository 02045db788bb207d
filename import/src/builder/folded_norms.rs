//! Convolutions by constant filters with the batch normalisation that follows in their filters and bias.

use std::collections::{BTreeMap, BTreeSet};

use sterna::{Attr, AttrValue, DataType, LogicalTensor, Op, OpId, OpKind, TensorId};

use super::{Builder, Origin, Tensor};
use crate::compose;
use crate::error::Fault;

use DataType as D;
use OpKind as K;

impl Builder<'_> {
    /// Puts the factors and shifts of batch normalisations into the filters and the bias of convolutions that
    /// nothing else reads, if all of them are constants of the file. The convolution stays at its place and
    /// gives the result of the normalisation.
    pub(super) fn fold_norms(&mut self) -> Result<(), sterna::Error> {
        let mut folded: BTreeSet<OpId> = BTreeSet::new();
        for [convolution, norm] in self.normed_convolutions() {
            let (of, norm, places) = (self.ops[convolution].clone(), self.ops[norm].clone(), self.ops.len());
            let constants = self.normed_filters(&of, &norm);
            // Constants that are too large to be worked out became ops.
            let are_constants = self.ops.len() == places;
            self.ops.truncate(places);
            let (Ok(Some([filters, bias])), true) = (constants, are_constants) else { continue };
            let inputs = [of.inputs()[0].clone(), self.describe(filters)?, self.describe(bias)?];
            let mut with_norm = Op::new(of.id(), of.kind()).named(of.name()).inputs_from(inputs.to_vec());
            for (attr, value) in of.attrs() {
                with_norm = with_norm.attr(attr, value.clone());
            }
            self.ops[convolution] = with_norm.output(norm.outputs()[0].clone());
            folded.insert(norm.id());
        }
        self.ops.retain(|op| !folded.contains(&op.id()));
        Ok(())
    }

    /// The places of convolutions and of the normalisations that alone read their results.
    fn normed_convolutions(&self) -> Vec<[usize; 2]> {
        if !self.ops.iter().any(|op| op.kind() == K::BatchNormInference) {
            return Vec::new();
        }
        let mut uses: BTreeMap<TensorId, usize> = BTreeMap::new();
        let read = self.ops.iter().flat_map(Op::inputs).map(LogicalTensor::id);
        for id in read.chain(self.outputs.iter().map(|(_, id)| *id)) {
            *uses.entry(id).or_default() += 1;
        }
        let mut makers: BTreeMap<TensorId, usize> = BTreeMap::new();
        let mut found = Vec::new();
        for (place, op) in self.ops.iter().enumerate() {
            makers.extend(op.outputs().first().map(|output| (output.id(), place)));
            let data = op.inputs().first().map(LogicalTensor::id);
            if op.kind() != K::BatchNormInference || data.is_none_or(|data| uses[&data] != 1) {
                continue;
            }
            let Some(&maker) = data.and_then(|data| makers.get(&data)) else { continue };
            let convolution = &self.ops[maker];
            let are_filters_first = matches!(
                convolution.get_attr(Attr::WeightsFormat),
                Some(AttrValue::String(format)) if format == "OIX"
            );
            let constants = convolution.inputs().iter().skip(1).chain(op.inputs().iter().skip(1));
            if convolution.kind() == K::Convolution
                && are_filters_first
                && constants.map(LogicalTensor::id).all(|id| self.is_of_file(id))
            {
                found.push([maker, place]);
            }
        }
        found
    }

    /// True for a constant of f32 that the file holds and that cannot be given another value.
    fn is_of_file(&self, id: TensorId) -> bool {
        let Tensor { data_type, origin, .. } = &self.tensors[id.get()];
        matches!(origin, Origin::Constant(_))
            && *data_type == D::F32
            && self.constant_names.contains_key(&id)
            && !self.defaults.contains_key(&id)
    }

    /// The filters and the bias of a convolution that has the result of a normalisation of another; `None` if
    /// the ops have not the operands of those that a file gives.
    fn normed_filters(&mut self, convolution: &Op, norm: &Op) -> Result<Option<[TensorId; 2]>, Fault> {
        let ids = |op: &Op| op.inputs().iter().map(LogicalTensor::id).collect::<Vec<_>>();
        let (of_convolution, of_norm) = (ids(convolution), ids(norm));
        let (&[_, filters, ref bias @ ..], &[_, factor, shift, mean, variance]) =
            (&of_convolution[..], &of_norm[..])
        else {
            return Ok(None);
        };
        let Some(AttrValue::F32(epsilon)) = norm.get_attr(Attr::Epsilon) else { return Ok(None) };
        let Some(dims) = self.known_dims(filters).map(<[i64]>::to_vec) else { return Ok(None) };
        let numbers =
            [compose::number(self, D::F32, f64::from(*epsilon))?, compose::number(self, D::F32, 0.0)?];
        let [Some(epsilon), Some(zero)] = numbers else { return Ok(None) };
        let mut beside = vec![1; dims.len()];
        beside[0] = dims[0];
        let name = convolution.name();
        let mut apply = |kind: OpKind, inputs: &[TensorId]| self.op(name, kind, &[], inputs, D::F32, None);
        let sum = apply(K::Add, &[variance, epsilon])?;
        let deviation = apply(K::Sqrt, &[sum])?;
        let factor = apply(K::Divide, &[factor, deviation])?;
        let centred = apply(K::Subtract, &[*bias.first().unwrap_or(&zero), mean])?;
        let scaled = apply(K::Multiply, &[centred, factor])?;
        let bias = apply(K::Add, &[scaled, shift])?;
        let factor = compose::in_shape(self, name, factor, &beside)?;
        let filters = self.op(name, K::Multiply, &[], &[filters, factor], D::F32, None)?;
        Ok(Some([filters, bias]))
    }
}
