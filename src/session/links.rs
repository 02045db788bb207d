//! Links from an output of a run to an input of the next one, and the names by which exporters write them.

use crate::error::{Error, Result, SessionFault};
use crate::graph::model::{Model, ModelPort};

/// Says that an output of a run is an input of the next one: a cache of keys or values, or a hidden state.
///
/// ```
/// use sterna::StateLink;
/// let keys = StateLink::new("past_k", "present_k").axis(-2).capacity(2048);
/// assert_eq!((keys.past(), keys.present()), ("past_k", "present_k"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateLink {
    past: String,
    present: String,
    axis: Option<i64>,
    is_fixed: bool,
    capacity: Option<usize>,
    window: Option<usize>,
}

impl StateLink {
    /// A link from an output, `present`, to an input, `past`, which grows along the last dim that the model
    /// leaves open; if all dims are known, it does not grow and starts as zeros.
    #[must_use]
    pub fn new(past: impl Into<String>, present: impl Into<String>) -> Self {
        let (past, present) = (past.into(), present.into());
        Self { past, present, axis: None, is_fixed: false, capacity: None, window: None }
    }

    /// Sets the axis along which it grows, from the end if negative.
    #[must_use]
    pub fn axis(self, axis: i64) -> Self {
        Self { axis: Some(axis), is_fixed: false, ..self }
    }

    /// Says that it does not grow and starts as zeros, whichever dims the model leaves open: the state of a
    /// recurrent layer, whose batch is open. [`new_state`](crate::Session::new_state) takes its dims.
    ///
    /// ```
    /// use sterna::{DataType, Engine, GraphBuilder, Session, StateLink};
    /// let g = GraphBuilder::new();
    /// let h = g.input("h", DataType::F32, &[None, Some(2)])?;
    /// let x = g.input("x", DataType::F32, &[None, Some(2)])?;
    /// let next = g.tanh(g.add(h, x)?)?;
    /// g.output("next_h", next)?;
    /// g.output("y", g.abs(next)?)?;
    /// let link = StateLink::new("h", "next_h").fixed();
    /// let session = Session::builder(g.build()?).state(link).build(&Engine::new())?;
    /// let mut state = session.new_state(&[("h", &[1, 2])])?;
    /// for _ in 0..3 {
    ///     session.run_with_state(&mut state, &[("x", &[[1.0f32, 0.0]])])?;
    /// }
    /// assert_eq!(state.get("h")?.dims(), [1, 2]);
    /// # Ok::<(), sterna::Error>(())
    /// ```
    #[must_use]
    pub fn fixed(self) -> Self {
        Self { axis: None, is_fixed: true, ..self }
    }

    /// Sets the most rows along the axis, for which a state has memory from the start. A run that needs more
    /// is refused. Without it, memory doubles when it is used up.
    #[must_use]
    pub fn capacity(self, rows: usize) -> Self {
        Self { capacity: Some(rows), ..self }
    }

    /// Sets the rows that are kept from run to run, the newest ones. A run itself sees the rows that were
    /// kept and all of its own.
    #[must_use]
    pub fn window(self, rows: usize) -> Self {
        Self { window: Some(rows), ..self }
    }

    /// The name of the input.
    #[must_use]
    pub fn past(&self) -> &str {
        &self.past
    }

    /// The name of the output.
    #[must_use]
    pub fn present(&self) -> &str {
        &self.present
    }

    /// The links that the names of a model tell: `past_key_values.N.key` → `present.N.key` and the other
    /// forms that exporters write. Those of recurrent layers, such as `state` → `stateN` and `h0` → `hn`, are
    /// [fixed](Self::fixed).
    ///
    /// ```
    /// use sterna::{DataType, GraphBuilder, StateLink};
    /// let g = GraphBuilder::new();
    /// let past = g.input("past_key_values.0.key", DataType::F32, &[Some(2), None, Some(4)])?;
    /// let new = g.input("k", DataType::F32, &[Some(2), None, Some(4)])?;
    /// g.output("present.0.key", g.concat(&[past, new], 1)?)?;
    /// let links = StateLink::find(&g.build()?);
    /// assert_eq!(links, [StateLink::new("past_key_values.0.key", "present.0.key")]);
    /// # Ok::<(), sterna::Error>(())
    /// ```
    #[must_use]
    pub fn find(model: &Model) -> Vec<Self> {
        let has_name = |name: &String| model.outputs().iter().any(|port| port.names.contains(name));
        let link = |past: &String| {
            let of_form = |&(input, output): &(&str, &str)| {
                let rest = past.strip_prefix(input)?;
                Some(format!("{output}{rest}")).filter(has_name)
            };
            let grown = || FORMS.iter().find_map(of_form).map(|present| Self::new(past, present));
            let fixed =
                || FIXED_FORMS.iter().find_map(of_form).map(|present| Self::new(past, present).fixed());
            grown().or_else(fixed)
        };
        model.inputs().iter().filter_map(|port| port.names.iter().find_map(link)).collect()
    }

    /// True if it does not grow, whichever dims the model leaves open.
    #[must_use]
    pub fn is_fixed(&self) -> bool {
        self.is_fixed
    }

    fn refuse<T>(&self, reason: &'static str) -> Result<T> {
        let (past, present) = (self.past.clone(), self.present.clone());
        Err(SessionFault::Link { past, present, reason }.into())
    }
}

/// How names of inputs begin, and how those of the outputs do that are the next run's inputs.
const FORMS: &[(&str, &str)] = &[
    // Optimum, transformers.js, ONNX Runtime GenAI, torch.onnx with these names.
    ("past_key_values.", "present."),
    ("past_key_values.", "present_key_values."),
    ("past_key_values_", "present_key_values_"),
    ("past_key_values_", "present_"),
    ("past.", "present."),
    ("past_", "present_"),
    // The tools of ONNX Runtime for Whisper, T5 and GPT-2.
    ("past_key_self_", "present_key_self_"),
    ("past_value_self_", "present_value_self_"),
    ("past_key_cross_", "present_key_cross_"),
    ("past_value_cross_", "present_value_cross_"),
    // Caches of a fixed size.
    ("past_key_values.", "updated_key_values."),
    ("cache_", "updated_cache_"),
    ("key_cache.", "updated_key_cache."),
    ("value_cache.", "updated_value_cache."),
];

/// The same of the states of recurrent layers.
const FIXED_FORMS: &[(&str, &str)] = &[
    ("state_in", "state_out"),
    ("h_in", "h_out"),
    ("c_in", "c_out"),
    ("hidden_in", "hidden_out"),
    ("cell_in", "cell_out"),
    ("h0", "hn"),
    ("c0", "cn"),
    ("h_0", "h_n"),
    ("c_0", "c_n"),
    // Silero, in packages and in faster-whisper.
    ("state", "stateN"),
    ("h", "hn"),
    ("c", "cn"),
];

/// A link between ports of a model.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct LinkedPorts {
    /// The index of the input.
    pub(super) input: usize,
    /// The index of the output.
    pub(super) output: usize,
    /// The axis along which it grows.
    pub(super) axis: Option<usize>,
    pub(super) capacity: Option<usize>,
    pub(super) window: Option<usize>,
}

impl LinkedPorts {
    /// The ports of links.
    ///
    /// # Errors
    ///
    /// [`SessionFault::UnknownName`]; [`SessionFault::Link`].
    pub(super) fn new(links: &[StateLink], model: &Model) -> Result<Vec<Self>> {
        let mut found: Vec<Self> = Vec::with_capacity(links.len());
        for link in links {
            let input = super::ports::index_of("input", model.inputs(), 0, &link.past)?;
            let output = super::ports::index_of("output", model.outputs(), 0, &link.present)?;
            let linked = Self::of(link, input, output, model)?;
            if found.iter().any(|other| other.input == input || other.output == output) {
                return link.refuse("a port has two links");
            }
            found.push(linked);
        }
        Ok(found)
    }

    fn of(link: &StateLink, input: usize, output: usize, model: &Model) -> Result<Self> {
        let (past, present) = (&model.inputs()[input].tensor, &model.outputs()[output].tensor);
        if past.data_type() != present.data_type() {
            return link.refuse("the types differ");
        }
        if past.data_type().size().is_none() {
            return link.refuse("the elements have no whole bytes");
        }
        let Some(dims) = past.partial_dims() else {
            return link.refuse("the rank of the input is not known");
        };
        let axis = match link.axis {
            None if link.is_fixed => None,
            None => dims.iter().rposition(Option::is_none),
            Some(axis) => {
                let rank = dims.len() as i64;
                let from_start = if axis < 0 { axis.saturating_add(rank) } else { axis };
                if !(0..rank).contains(&from_start) {
                    return link.refuse("the axis is out of range");
                }
                Some(from_start as usize)
            }
        };
        let (capacity, window) = (link.capacity, link.window);
        if axis.is_none() && (capacity.is_some() || window.is_some()) {
            return link.refuse("it has a capacity or a window and no axis along which it grows");
        }
        if window == Some(0) {
            return link.refuse("the window is empty");
        }
        Ok(Self { input, output, axis, capacity, window })
    }

    /// The rows for which a state has memory at first.
    pub(super) fn first_capacity(&self, wanted: usize) -> usize {
        match (self.axis, self.capacity, self.window) {
            (None, ..) => 1,
            (Some(_), Some(capacity), _) => capacity,
            // Rows move to the front once in so many runs of one row as the window has rows.
            (Some(_), None, Some(window)) => wanted.max(window.saturating_mul(2)),
            (Some(_), None, None) => wanted,
        }
    }
}

/// The ports of a model but for those of one side of links.
pub(super) fn unlinked(ports: &[ModelPort], is_linked: impl Fn(usize) -> bool) -> Vec<ModelPort> {
    let free = ports.iter().enumerate().filter(|(index, _)| !is_linked(*index));
    free.map(|(_, port)| port.clone()).collect()
}

/// The error for a tensor of the state whose dims nobody has said.
pub(super) fn open_state(port: &ModelPort, axis: usize) -> Error {
    SessionFault::OpenState { name: port.name().to_owned(), axis }.into()
}
