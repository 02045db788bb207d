//! Recurrent networks: the steps of a sequence, one after the other.
//!
//! The inputs of all steps meet their weights in one product. Each step adds the product of the state with
//! weights of its own, cuts the gates out of the sum, and computes the next state of them.
//!
//! Gates, and the state of a cell, are f32 whatever the type of the data; the state that a step shows is
//! rounded to that type, as the next product reads it.

mod activations;

use sterna::{Attr, AttrValue, DataType, OpKind, TensorId};

use super::Steps;
use crate::compose::stored;
use crate::constant::Constant;
use crate::error::Fault;
use crate::weights::integers;

pub(crate) use activations::{Activation, activation};

use DataType as D;
use OpKind as K;

/// The most steps that a sequence becomes ops of.
pub(crate) const MAX_STEPS: i64 = 2048;

/// The rule by which a step makes the next state.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Cell {
    /// Of the gates for input, output, forgetting and the cell, the places among the rows of weights.
    Lstm {
        order: [i64; 4],
        /// The share that is forgotten is what the input gate leaves.
        is_coupled: bool,
    },
    /// Gates for the update, the reset and the state, in this order.
    Gru {
        /// The reset gate takes effect behind the product of the state, not before.
        resets_product: bool,
    },
    Plain,
}

impl Cell {
    pub(crate) fn gates(self) -> i64 {
        match self {
            Self::Lstm { .. } => 4,
            Self::Gru { .. } => 3,
            Self::Plain => 1,
        }
    }

    /// The number of functions that bend its gates and states.
    pub(crate) fn activations(self) -> usize {
        match self {
            Self::Lstm { .. } => 3,
            Self::Gru { .. } => 2,
            Self::Plain => 1,
        }
    }
}

/// The lengths of the sequences of a batch: the steps behind the end of one leave its state as it is, and
/// show zeros.
#[derive(Debug, Clone)]
pub(crate) enum Lengths {
    Known(Vec<i64>),
    /// {batch}, of whole numbers.
    Computed(TensorId),
}

/// The data of a network.
#[derive(Debug, Clone)]
pub(crate) struct Sequence {
    /// {steps, batch, width}.
    pub(crate) x: TensorId,
    /// `None` if all are as long as the data.
    pub(crate) lengths: Option<Lengths>,
}

/// The weights of a product.
#[derive(Debug, Clone, Copy)]
pub(crate) enum CellWeights {
    /// {columns, rows}, of the type of the data.
    Floats(TensorId),
    /// {rows, columns} in 8 bits, with scales and zero points. The data become numbers of 8 bits by their own
    /// extremes: the inputs by those of all steps, a state by those of each row.
    Quantized { numbers: TensorId, scale: TensorId, zero: TensorId },
}

/// A network along one direction of a sequence.
#[derive(Debug, Clone)]
pub(crate) struct Network {
    pub(crate) cell: Cell,
    /// The functions of the gates, of the candidate of the next state, and of the state that a cell shows.
    pub(crate) activations: Vec<Activation>,
    /// The bound of what the functions of gates and candidates are given.
    pub(crate) clip: Option<f32>,
    /// The last step is the first.
    pub(crate) is_backward: bool,
    pub(crate) hidden: i64,
    /// Of as many columns as there are numbers in all gates, as those of the state.
    pub(crate) weights: CellWeights,
    pub(crate) of_state: CellWeights,
    /// {gates · hidden}.
    pub(crate) bias: Option<TensorId>,
    /// {hidden}: added to the product of the state that the reset gate of a GRU takes.
    pub(crate) of_reset: Option<TensorId>,
    /// {hidden}: factors of the state of the cell for the gates of input, output and forgetting.
    pub(crate) peepholes: Option<[TensorId; 3]>,
    /// {batch, hidden}; zeros if there is none.
    pub(crate) state: Option<TensorId>,
    /// The same of the cell of an LSTM.
    pub(crate) of_cell: Option<TensorId>,
}

/// The results of networks along some directions of a sequence.
#[derive(Debug)]
pub(crate) struct Unrolled {
    /// {steps, directions, batch, hidden}.
    pub(crate) all: TensorId,
    /// {directions, batch, hidden}.
    pub(crate) state: TensorId,
    /// The same of the cell of an LSTM.
    pub(crate) of_cell: Option<TensorId>,
}

/// A network that is being unrolled.
struct Unrolling<'n> {
    network: &'n Network,
    /// The weights of the state, but for those of the next.
    of_state: CellWeights,
    /// The weights of the state that the reset gate of a GRU has taken parts of.
    of_candidate: Option<CellWeights>,
    data_type: DataType,
    batch: i64,
    hidden: i64,
}

/// The states between steps; zeros where there is none.
#[derive(Clone, Copy)]
struct States {
    shown: Option<TensorId>,
    of_cell: Option<TensorId>,
}

impl Steps<'_, '_> {
    /// Networks on a sequence, one for each direction. The caller has found that all dims are known and fit,
    /// and that there are not more than [`MAX_STEPS`] steps.
    pub(crate) fn recurrent_ways(
        &mut self,
        sequence: &Sequence,
        networks: &[Network],
    ) -> Result<Unrolled, Fault> {
        let (mut all, mut states, mut of_cells) = (Vec::new(), Vec::new(), Vec::new());
        for network in networks {
            let unrolled = self.recurrent(sequence, network)?;
            all.push(unrolled.all);
            states.push(unrolled.state);
            of_cells.extend(unrolled.of_cell);
        }
        let of_cell = if of_cells.is_empty() { None } else { Some(self.joined(of_cells, 0)?) };
        Ok(Unrolled { all: self.joined(all, 1)?, state: self.joined(states, 0)?, of_cell })
    }

    fn recurrent(&mut self, sequence: &Sequence, network: &Network) -> Result<Unrolled, Fault> {
        let data_type = self.builder.data_type(sequence.x);
        let [steps, batch, width] = self.dims(sequence.x)?[..] else {
            return Err(Fault::Unsupported { needed: "data of three dims".into() });
        };
        let hidden = network.hidden;
        let (mut of_state, mut of_candidate) = (network.of_state, None);
        // Each step reads these parts: they are cut once, so that they are packed once.
        if let (Cell::Gru { resets_product: false }, CellWeights::Floats(all)) = (network.cell, of_state) {
            of_candidate = Some(CellWeights::Floats(self.rows(all, [2 * hidden, 3 * hidden])?));
            of_state = CellWeights::Floats(self.rows(all, [0, 2 * hidden])?);
        }
        let own = Unrolling { network, of_state, of_candidate, data_type, batch, hidden };
        let rows = self.in_shape(sequence.x, &[steps * batch, width])?;
        let mut inputs = self.times(rows, network.weights, &[0, 1])?;
        if let Some(bias) = network.bias {
            inputs = self.emit(K::Add, &[], &[inputs, bias], D::F32)?;
        }
        let (zero, mut shown) = (self.number(data_type, 0.0)?, vec![None; steps as usize]);
        let mut states = States { shown: network.state, of_cell: network.of_cell };
        for turn in 0..steps {
            self.builder.check_ops()?;
            let step = if network.is_backward { steps - 1 - turn } else { turn };
            let (is_within, is_whole) = match &sequence.lengths {
                Some(Lengths::Known(lengths)) => {
                    (lengths.iter().any(|length| *length > step), lengths.iter().all(|length| *length > step))
                }
                lengths => (true, lengths.is_none()),
            };
            if !is_within {
                continue;
            }
            let of_step = self.part(inputs, 0, [step * batch, (step + 1) * batch])?;
            let next = self.next(&own, of_step, states)?;
            let mut output = next.shown;
            states = match is_whole {
                true => next,
                false => {
                    let goes_on = self.goes_on(sequence, step, batch)?;
                    output = self.held(goes_on, next.shown, Some(zero))?;
                    States {
                        shown: self.held(goes_on, next.shown, states.shown)?,
                        of_cell: self.held(goes_on, next.of_cell, states.of_cell)?,
                    }
                }
            };
            shown[step as usize] = output;
        }
        self.results(&own, shown, states)
    }

    /// True for each sequence of a batch that has a step, {batch, 1}.
    fn goes_on(&mut self, sequence: &Sequence, step: i64, batch: i64) -> Result<TensorId, Fault> {
        let lengths = match &sequence.lengths {
            Some(Lengths::Computed(lengths)) => *lengths,
            Some(Lengths::Known(lengths)) => {
                let bits = lengths.iter().map(|length| *length > step).collect::<Vec<bool>>();
                return stored(self.builder, Constant::from_slice(&[batch, 1], &bits)?);
            }
            None => return self.number(D::Boolean, 1.0),
        };
        let lengths = self.in_shape(lengths, &[batch, 1])?;
        let step = self.number(self.builder.data_type(lengths), step as f64)?;
        self.predicate(K::Greater, lengths, step)
    }

    /// The next state of sequences that go on, else the last one.
    fn held(
        &mut self,
        goes_on: TensorId,
        next: Option<TensorId>,
        last: Option<TensorId>,
    ) -> Result<Option<TensorId>, Fault> {
        let Some(next) = next else { return Ok(None) };
        let last = match last {
            Some(last) => last,
            None => self.number(self.builder.data_type(next), 0.0)?,
        };
        self.select(goes_on, next, last).map(Some)
    }

    /// The states of all steps, and the last ones.
    fn results(
        &mut self,
        own: &Unrolling<'_>,
        shown: Vec<Option<TensorId>>,
        states: States,
    ) -> Result<Unrolled, Fault> {
        let (batch, hidden, steps) = (own.batch, own.hidden, shown.len() as i64);
        let none = |steps: &mut Self, data_type, rows| {
            let zero = steps.number(data_type, 0.0)?;
            steps.enlarged(zero, &[rows, hidden])
        };
        let mut zeros = None;
        let mut parts = Vec::with_capacity(shown.len());
        for state in shown {
            parts.push(match (state, zeros) {
                (Some(known), _) | (None, Some(known)) => known,
                (None, None) => *zeros.insert(none(self, own.data_type, batch)?),
            });
        }
        let all = if parts.is_empty() { none(self, own.data_type, 0)? } else { self.joined(parts, 0)? };
        let mut last = |data_type, state: Option<TensorId>| {
            let state = match state {
                Some(state) => state,
                None => none(self, data_type, batch)?,
            };
            let state = self.cast(state, own.data_type)?;
            self.in_shape(state, &[1, batch, hidden])
        };
        let state = last(own.data_type, states.shown)?;
        let of_cell = match own.network.cell {
            Cell::Lstm { .. } => Some(last(D::F32, states.of_cell)?),
            _ => None,
        };
        Ok(Unrolled { all: self.in_shape(all, &[steps, 1, batch, hidden])?, state, of_cell })
    }

    /// The product with weights; along some axes of the data, one scale holds.
    fn times(&mut self, rows: TensorId, weights: CellWeights, axes: &[i64]) -> Result<TensorId, Fault> {
        let (numbers, of_weights, zero) = match weights {
            CellWeights::Floats(weights) => {
                let attrs = [(Attr::TransposeB, true.into())];
                return self.emit(K::MatMul, &attrs, &[rows, weights], D::F32);
            }
            CellWeights::Quantized { numbers, scale, zero } => (numbers, scale, zero),
        };
        let [rows, scale, own] = self.dynamically_quantized(rows, axes, true)?;
        let sums = self.whole_product([rows, numbers], [Some(own), Some(zero)])?;
        let needed = "one zero point of weights, or one for each column";
        let sums = sums.ok_or_else(|| Fault::Unsupported { needed: needed.into() })?;
        let sums = self.cast(sums, D::F32)?;
        let factor = self.both(K::Multiply, of_weights, scale)?;
        self.both(K::Multiply, sums, factor)
    }

    /// The next states, of what a step adds to the gates.
    fn next(&mut self, own: &Unrolling<'_>, of_step: TensorId, states: States) -> Result<States, Fault> {
        match own.network.cell {
            Cell::Lstm { order, is_coupled } => self.lstm(own, of_step, states, order, is_coupled),
            Cell::Gru { .. } => {
                let shown = Some(self.gru(own, of_step, states.shown)?);
                Ok(States { shown, of_cell: None })
            }
            Cell::Plain => {
                let sum = self.with_state(of_step, states.shown, own.of_state)?;
                let bent = self.bent(own, 0, sum)?;
                Ok(States { shown: Some(self.cast(bent, own.data_type)?), of_cell: None })
            }
        }
    }

    /// Sums to which the product of the state with weights is added.
    fn with_state(
        &mut self,
        sums: TensorId,
        state: Option<TensorId>,
        weights: CellWeights,
    ) -> Result<TensorId, Fault> {
        let Some(state) = state else { return Ok(sums) };
        let product = self.times(state, weights, &[1])?;
        self.both(K::Add, product, sums)
    }

    /// A function of a network, of numbers within its bound.
    fn bent(&mut self, own: &Unrolling<'_>, function: usize, x: TensorId) -> Result<TensorId, Fault> {
        let x = match own.network.clip {
            None => x,
            Some(bound) => {
                let bounds: [(Attr, AttrValue); 2] =
                    [(Attr::Min, (-bound).into()), (Attr::Max, bound.into())];
                self.emit(K::Clamp, &bounds, &[x], D::F32)?
            }
        };
        own.network.activations[function].applied(self, x)
    }

    /// The numbers of a gate.
    fn gate(&mut self, sums: TensorId, hidden: i64, place: i64) -> Result<TensorId, Fault> {
        self.part(sums, 1, [place * hidden, (place + 1) * hidden])
    }

    fn lstm(
        &mut self,
        own: &Unrolling<'_>,
        of_step: TensorId,
        states: States,
        [input, output, forget, cell]: [i64; 4],
        is_coupled: bool,
    ) -> Result<States, Fault> {
        let (network, hidden) = (own.network, own.hidden);
        let sums = self.with_state(of_step, states.shown, own.of_state)?;
        let peephole = |at: usize| network.peepholes.map(|all| all[at]);
        let kept = self.gate(sums, hidden, input)?;
        let kept = self.peeped(kept, peephole(0), states.of_cell)?;
        let kept = self.bent(own, 0, kept)?;
        let fresh = self.gate(sums, hidden, cell)?;
        let fresh = self.bent(own, 1, fresh)?;
        let mut next = self.both(K::Multiply, kept, fresh)?;
        if let Some(before) = states.of_cell {
            let left = match is_coupled {
                true => self.rest_of(kept)?,
                false => {
                    let left = self.gate(sums, hidden, forget)?;
                    let left = self.peeped(left, peephole(2), states.of_cell)?;
                    self.bent(own, 0, left)?
                }
            };
            let before = self.both(K::Multiply, left, before)?;
            next = self.both(K::Add, before, next)?;
        }
        let shown = self.gate(sums, hidden, output)?;
        let shown = self.peeped(shown, peephole(1), Some(next))?;
        let shown = self.bent(own, 0, shown)?;
        // No bound holds for the state of the cell.
        let of_cell = network.activations[2].applied(self, next)?;
        let shown = self.emit(K::Multiply, &[], &[shown, of_cell], own.data_type)?;
        Ok(States { shown: Some(shown), of_cell: Some(next) })
    }

    /// The numbers of a gate with the state of the cell by its factors.
    fn peeped(
        &mut self,
        gate: TensorId,
        factors: Option<TensorId>,
        of_cell: Option<TensorId>,
    ) -> Result<TensorId, Fault> {
        let (Some(factors), Some(of_cell)) = (factors, of_cell) else { return Ok(gate) };
        let added = self.both(K::Multiply, of_cell, factors)?;
        self.both(K::Add, gate, added)
    }

    /// The rest of a share.
    fn rest_of(&mut self, share: TensorId) -> Result<TensorId, Fault> {
        let one = self.float(1.0)?;
        self.both(K::Subtract, one, share)
    }

    fn gru(
        &mut self,
        own: &Unrolling<'_>,
        of_step: TensorId,
        state: Option<TensorId>,
    ) -> Result<TensorId, Fault> {
        let [update, candidate] = match own.of_candidate {
            Some(weights) => self.reset_before_product(own, of_step, state, weights)?,
            None => self.reset_behind_product(own, of_step, state)?,
        };
        let candidate = self.bent(own, 1, candidate)?;
        let rest = self.rest_of(update)?;
        let Some(state) = state else {
            return self.emit(K::Multiply, &[], &[rest, candidate], own.data_type);
        };
        let fresh = self.both(K::Multiply, rest, candidate)?;
        let kept = self.emit(K::Multiply, &[], &[update, state], D::F32)?;
        self.emit(K::Add, &[], &[fresh, kept], own.data_type)
    }

    /// The update gate, and the sum of which the next state's candidate is made.
    fn reset_before_product(
        &mut self,
        own: &Unrolling<'_>,
        of_step: TensorId,
        state: Option<TensorId>,
        weights: CellWeights,
    ) -> Result<[TensorId; 2], Fault> {
        let gates = self.part(of_step, 1, [0, 2 * own.hidden])?;
        let gates = self.with_state(gates, state, own.of_state)?;
        let [update, reset] = [self.gate(gates, own.hidden, 0)?, self.gate(gates, own.hidden, 1)?];
        let [update, reset] = [self.bent(own, 0, update)?, self.bent(own, 0, reset)?];
        let candidate = self.gate(of_step, own.hidden, 2)?;
        let Some(state) = state else { return Ok([update, candidate]) };
        let state = self.emit(K::Multiply, &[], &[reset, state], own.data_type)?;
        Ok([update, self.with_state(candidate, Some(state), weights)?])
    }

    fn reset_behind_product(
        &mut self,
        own: &Unrolling<'_>,
        of_step: TensorId,
        state: Option<TensorId>,
    ) -> Result<[TensorId; 2], Fault> {
        let product = state.map(|state| self.times(state, own.of_state, &[1])).transpose()?;
        let mut gates = [of_step; 2];
        for (place, gate) in (0..).zip(&mut gates) {
            let mut sum = self.gate(of_step, own.hidden, place)?;
            if let Some(product) = product {
                let of_state = self.gate(product, own.hidden, place)?;
                sum = self.both(K::Add, of_state, sum)?;
            }
            *gate = self.bent(own, 0, sum)?;
        }
        let candidate = self.gate(of_step, own.hidden, 2)?;
        let of_state = product.map(|product| self.gate(product, own.hidden, 2)).transpose()?;
        let reset = match (of_state, own.network.of_reset) {
            (Some(of_state), Some(bias)) => self.both(K::Add, of_state, bias)?,
            (Some(one), None) | (None, Some(one)) => one,
            (None, None) => return Ok([gates[0], candidate]),
        };
        let reset = self.both(K::Multiply, gates[1], reset)?;
        Ok([gates[0], self.both(K::Add, candidate, reset)?])
    }

    /// The lengths of sequences, if they are not those of the data; else a text that says which are needed.
    pub(crate) fn lengths(&self, tensor: TensorId, steps: i64) -> Result<Option<Lengths>, String> {
        let Some(known) = self.builder.value(tensor).and_then(integers) else {
            return Ok(Some(Lengths::Computed(tensor)));
        };
        if known.iter().any(|length| !(0..=steps).contains(length)) {
            return Err(format!("lengths from 0 to {steps}, the number of steps"));
        }
        Ok(known.iter().any(|length| *length != steps).then_some(Lengths::Known(known)))
    }

    /// The slice at a place along an axis, without the axis.
    pub(crate) fn slice(&mut self, x: TensorId, axis: usize, place: i64) -> Result<TensorId, Fault> {
        let mut dims = self.dims(x)?;
        dims.remove(axis);
        let range = [place, place + 1];
        let part = if axis == 0 { self.rows(x, range)? } else { self.part(x, axis, range)? };
        self.in_shape(part, &dims)
    }

    /// Some places of the first dim; those of a constant stay where it holds them.
    pub(crate) fn rows(&mut self, x: TensorId, range: [i64; 2]) -> Result<TensorId, Fault> {
        match self.builder.value(x) {
            Some(value) if value.dims()[0] == range[1] - range[0] => Ok(x),
            Some(value) => {
                let value = value.rows(range)?;
                stored(self.builder, value)
            }
            None => self.part(x, 0, range),
        }
    }
}
