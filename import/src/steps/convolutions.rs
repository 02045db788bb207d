//! Convolutions and their transposed form, of data whose channels are the second dim.

use sterna::{Attr, AttrValue, DataType, Dims, LogicalTensor, Op, OpKind, TensorId, reference};

use super::Steps;
use crate::dims::UNKNOWN_DIM;
use crate::error::Fault;

use OpKind as K;

/// How windows are padded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum WindowPadding {
    /// As the lists say.
    #[default]
    Given,
    Nothing,
    /// As much as gives a window at each multiple of the strides, of an odd number one more behind.
    SameUpper,
    /// The same, with one more in front.
    SameLower,
}

/// How windows lie, a number for each dim behind the channels.
#[derive(Debug, Clone, Default)]
pub(crate) struct Windows {
    pub(crate) strides: Vec<i64>,
    pub(crate) dilations: Vec<i64>,
    /// The rows in front of each dim, and behind; negative for rows that are cut off.
    pub(crate) begin: Vec<i64>,
    pub(crate) end: Vec<i64>,
    pub(crate) auto_pad: WindowPadding,
}

impl Windows {
    /// The attribute that has not a number for each of some dims, or one that is too small, and its needs.
    pub(crate) fn misfit(&self, count: usize) -> Option<(&'static str, &'static str)> {
        let pads = [("pads", &self.begin), ("pads", &self.end)];
        let steps = [("strides", &self.strides), ("dilations", &self.dilations)];
        let lengths = pads.iter().chain(&steps).find(|(_, list)| list.len() != count);
        let too_small = || steps.iter().find(|(_, list)| list.iter().any(|&step| step < 1));
        match (lengths, too_small()) {
            (Some((name, _)), _) => Some((name, "a number for each dim behind the channels")),
            (None, Some((name, _))) => Some((name, "numbers from 1 on")),
            (None, None) => None,
        }
    }

    /// True if a window may see more than data.
    pub(super) fn have_padding(&self) -> bool {
        match self.auto_pad {
            WindowPadding::Given => self.begin.iter().chain(&self.end).any(|&pad| pad > 0),
            WindowPadding::Nothing => false,
            WindowPadding::SameUpper | WindowPadding::SameLower => true,
        }
    }

    /// The attributes of an op, with padding that is not negative.
    pub(super) fn attrs(&self, has_dilations: bool) -> Vec<(Attr, AttrValue)> {
        let (word, is_given) = match self.auto_pad {
            WindowPadding::Given => ("None", true),
            WindowPadding::Nothing => ("VALID", false),
            WindowPadding::SameUpper => ("SAME_UPPER", false),
            WindowPadding::SameLower => ("SAME_LOWER", false),
        };
        let pads = |list: &[i64]| -> Vec<i64> {
            list.iter().map(|&pad| if is_given { pad.max(0) } else { 0 }).collect()
        };
        let mut attrs: Vec<(Attr, AttrValue)> = vec![
            (Attr::Strides, self.strides.clone().into()),
            (Attr::PadsBegin, pads(&self.begin).into()),
            (Attr::PadsEnd, pads(&self.end).into()),
            (Attr::AutoPad, word.into()),
            (Attr::DataFormat, "NCX".into()),
        ];
        if has_dilations {
            attrs.push((Attr::Dilations, self.dilations.clone().into()));
        }
        attrs
    }
}

impl Steps<'_, '_> {
    /// The convolution of data {N, C, dims} by filters {M, C / groups, kernel}, with a bias {M} if there is
    /// one. `None` for dims that do not fit.
    pub(crate) fn convolution(
        &mut self,
        [x, filters]: [TensorId; 2],
        bias: Option<TensorId>,
        windows: &Windows,
        groups: i64,
    ) -> Result<Option<TensorId>, Fault> {
        let x = self.cut(x, windows)?;
        let mut attrs = windows.attrs(true);
        attrs.extend([(Attr::Groups, groups.into()), (Attr::WeightsFormat, "OIX".into())]);
        let operands: Vec<TensorId> = [x, filters].into_iter().chain(bias).collect();
        self.windowed(K::Convolution, &attrs, &operands)
    }

    /// The transposed convolution of data {N, C, dims} by filters {C, M / groups, kernel}, with a bias {M} if
    /// there is one; `more` are the rows of 0 behind the result. `None` for dims that do not fit.
    pub(crate) fn transposed_convolution(
        &mut self,
        [x, filters]: [TensorId; 2],
        bias: Option<TensorId>,
        windows: &Windows,
        groups: i64,
        more: &[i64],
    ) -> Result<Option<TensorId>, Fault> {
        let mut attrs = windows.attrs(true);
        attrs.extend([(Attr::Groups, groups.into()), (Attr::WeightsFormat, "IOX".into())]);
        attrs.push((Attr::OutputPadding, more.into()));
        let operands: Vec<TensorId> = [x, filters].into_iter().chain(bias).collect();
        self.windowed(K::ConvTranspose, &attrs, &operands)
    }

    /// Data without the rows that negative padding cuts off.
    fn cut(&mut self, x: TensorId, windows: &Windows) -> Result<TensorId, Fault> {
        let mut x = x;
        let is_given = windows.auto_pad == WindowPadding::Given;
        for (at, (&begin, &end)) in windows.begin.iter().zip(&windows.end).enumerate() {
            if is_given && (begin < 0 || end < 0) {
                let (axis, start) = (2 + at, begin.min(0).saturating_neg());
                let attrs: [(Attr, AttrValue); 4] = [
                    (Attr::Starts, vec![start].into()),
                    (Attr::Ends, vec![if end < 0 { end } else { i64::MAX }].into()),
                    (Attr::Steps, vec![1].into()),
                    (Attr::Axes, vec![axis as i64].into()),
                ];
                let mut dims = self.builder.dims(x).map(<[i64]>::to_vec).unwrap_or_default();
                if let Some(dim) = dims.get_mut(axis).filter(|dim| **dim != UNKNOWN_DIM) {
                    *dim = dim.saturating_sub(start).saturating_add(end.min(0)).max(0);
                }
                let data_type = self.builder.data_type(x);
                x = self.builder.op(self.name, K::Slice, &attrs, &[x], data_type, Some(&dims))?;
            }
        }
        Ok(x)
    }

    /// Adds an op of windows over the first operand, whose dims may be unknown in part. `None` for dims that
    /// do not fit.
    pub(super) fn windowed(
        &mut self,
        kind: OpKind,
        attrs: &[(Attr, AttrValue)],
        operands: &[TensorId],
    ) -> Result<Option<TensorId>, Fault> {
        let data_type = self.builder.data_type(operands[0]);
        let dims = match self.dims_of_windows(kind, attrs, operands, data_type)? {
            DimsOfWindows::Unfit => return Ok(None),
            DimsOfWindows::Known(dims) => Some(dims),
            DimsOfWindows::Unknown => self.declared.clone(),
        };
        self.builder.op(self.name, kind, attrs, operands, data_type, dims.as_deref()).map(Some)
    }

    /// The dims of the result of an op of windows: batch and channels, and a dim for each of the data.
    fn dims_of_windows(
        &self,
        kind: OpKind,
        attrs: &[(Attr, AttrValue)],
        operands: &[TensorId],
        data_type: DataType,
    ) -> Result<DimsOfWindows, Fault> {
        let known: Option<Vec<&[i64]>> = operands[1..].iter().map(|&x| self.builder.known_dims(x)).collect();
        let (Some(own), Some(rest)) = (self.builder.dims(operands[0]), known) else {
            return Ok(DimsOfWindows::Unknown);
        };
        let tensor = |id: usize| LogicalTensor::unknown(id, data_type);
        let op = Op::new(0, kind).inputs_from((0..operands.len()).map(tensor)).output(tensor(operands.len()));
        let op = attrs.iter().fold(op, |op, (attr, value)| op.attr(*attr, value.clone()));
        let op = reference::checked(op)?;
        // Data of any batch and of any size that fits: the channels are those of the filters.
        let channels = match (kind, rest.first()) {
            (K::Convolution, Some([_, channels, ..])) => {
                let groups = attrs.iter().find(|(attr, _)| *attr == Attr::Groups);
                match groups {
                    Some((_, AttrValue::S64(groups))) => channels.saturating_mul(*groups),
                    _ => *channels,
                }
            }
            (K::ConvTranspose, Some([channels, ..])) => *channels,
            _ => 1,
        };
        let filled: Vec<i64> = own
            .iter()
            .enumerate()
            .map(|(axis, &dim)| match (dim == UNKNOWN_DIM, axis) {
                (false, _) => dim,
                (true, 0) => 1,
                (true, 1) => channels,
                (true, _) => ANY_SIZE,
            })
            .collect();
        let shapes = [&[&*filled], &*rest].concat();
        match reference::output_shapes(&op, &shapes) {
            Ok(Some(found)) => {
                let mut dims: Dims = found[0].clone();
                for (axis, dim) in dims.iter_mut().enumerate() {
                    let is_open = own[axis] == UNKNOWN_DIM && (axis != 1 || rest.is_empty());
                    *dim = if is_open { UNKNOWN_DIM } else { *dim };
                }
                Ok(DimsOfWindows::Known(dims))
            }
            Ok(None) => Ok(DimsOfWindows::Unknown),
            Err(sterna::Error::Shape { .. }) => Ok(DimsOfWindows::Unfit),
            Err(error) => Err(error.into()),
        }
    }
}

/// A size of data that any window in use is smaller than.
const ANY_SIZE: i64 = 1 << 14;

enum DimsOfWindows {
    Known(Dims),
    Unknown,
    Unfit,
}
