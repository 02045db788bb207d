//! Convolutions whose windows lie side by side within the data: products of patches and filters.

use sterna::{Attr, AttrValue, OpKind, TensorId};

use super::Steps;
use crate::dims::is_known;
use crate::error::Fault;
use crate::weights::element_count;

use OpKind as K;

impl Steps<'_, '_> {
    /// The convolution of data {N, C, dims} by filters {M, C, kernel}, with a bias {M} if there is one, for
    /// windows that are [patches](super::Windows::are_patches). N alone may be unknown. `None` for dims that
    /// do not fit.
    pub(crate) fn patches(
        &mut self,
        [x, filters]: [TensorId; 2],
        bias: Option<TensorId>,
        strides: &[i64],
    ) -> Result<Option<TensorId>, Fault> {
        let Some(dims) = self.builder.dims(x).map(<[i64]>::to_vec) else { return Ok(None) };
        let (of_filters, rank) = (self.dims(filters)?, dims.len());
        let fits = rank >= 3
            && 2 * rank - 2 <= sterna::MAX_RANK
            && of_filters.len() == rank
            && is_known(&dims[1..])
            && of_filters[1] == dims[1]
            && (2..rank).all(|axis| (1..=dims[axis]).contains(&of_filters[axis]));
        let fits_bias = |&bias: &TensorId| self.builder.known_dims(bias) == Some(&of_filters[..1]);
        let depth = element_count(&of_filters[1..]);
        let (true, true, Some(depth)) = (fits, bias.iter().all(fits_bias), depth) else { return Ok(None) };
        let (batch, channels, count, kernel) = (dims[0], dims[1], of_filters[0], &of_filters[2..]);
        let mut x = x;
        let mut covered = dims.clone();
        let mut places = Vec::new();
        for (axis, (&length, &stride)) in (2..).zip(kernel.iter().zip(strides)) {
            places.push((dims[axis] - length) / stride + 1);
            let (end, step) = match length {
                1 => (dims[axis], stride),
                _ => (places[axis - 2] * length, 1),
            };
            covered[axis] = places[axis - 2] * length;
            if covered[axis] != dims[axis] {
                let attrs: [(Attr, AttrValue); 4] = [
                    (Attr::Starts, vec![0].into()),
                    (Attr::Ends, vec![end].into()),
                    (Attr::Steps, vec![step].into()),
                    (Attr::Axes, vec![axis as i64].into()),
                ];
                x = self.of_dims(K::Slice, &attrs, &[x], &covered)?;
            }
        }
        let number = element_count(&places).unwrap_or(i64::MAX);
        let filters = self.in_shape(filters, &[count, depth])?;
        let result = [&[batch, count], &*places].concat();
        if kernel.iter().all(|&length| length == 1) {
            let columns = self.laid_out(x, &[batch, channels, number])?;
            let mut sums = self.of_dims(K::MatMul, &[], &[filters, columns], &[batch, count, number])?;
            if let Some(bias) = bias {
                let bias = self.in_shape(bias, &[count, 1])?;
                sums = self.of_dims(K::Add, &[], &[sums, bias], &[batch, count, number])?;
            }
            return self.laid_out(sums, &result).map(Some);
        }
        // Each dim becomes the number of the window and the place within it.
        let spatial = kernel.len() as i64;
        let pairs = places.iter().zip(kernel).flat_map(|(&place, &length)| [place, length]);
        let apart: Vec<i64> = [batch, channels].into_iter().chain(pairs).collect();
        let order: Vec<i64> = std::iter::once(0)
            .chain((0..spatial).map(|at| 2 + 2 * at))
            .chain(std::iter::once(1))
            .chain((0..spatial).map(|at| 3 + 2 * at))
            .collect();
        let moved: Vec<i64> = order.iter().map(|&axis| apart[axis as usize]).collect();
        let apart = self.laid_out(x, &apart)?;
        let windows = self.of_dims(K::StaticTranspose, &[(Attr::Order, order.into())], &[apart], &moved)?;
        let rows = self.laid_out(windows, &[batch, number, depth])?;
        let operands: Vec<TensorId> = [rows, filters].into_iter().chain(bias).collect();
        let attrs = [(Attr::TransposeB, true.into())];
        let sums = self.of_dims(K::MatMul, &attrs, &operands, &[batch, number, count])?;
        let order = [(Attr::Order, vec![0, 2, 1].into())];
        let sums = self.of_dims(K::StaticTranspose, &order, &[sums], &[batch, count, number])?;
        self.laid_out(sums, &result).map(Some)
    }
}
