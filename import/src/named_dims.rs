//! Open dims that have names: dims of one name have one length.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::Error;
use crate::limits::Options;
use crate::names::Shown;

/// The lengths of dims that have names: those in the options, or else those that the shapes of inputs give
/// them, the first of several. Each input has the dims that the options give it, and its axes with names.
pub(crate) fn named_lengths<'a, Axes: Iterator<Item = (usize, &'a str)>>(
    options: &Options,
    inputs: impl Iterator<Item = (Option<&'a [i64]>, Axes)>,
) -> Result<BTreeMap<&'a str, i64>, Error> {
    let (mut lengths, mut known) = (BTreeMap::new(), BTreeSet::new());
    for (given, names) in inputs {
        for (axis, name) in names {
            known.insert(name);
            if let Some(length) = options.dims.get(name).or(given.and_then(|given| given.get(axis))) {
                lengths.entry(name).or_insert(*length);
            }
        }
    }
    match options.dims.keys().find(|name| !known.contains(name.as_str())) {
        None => Ok(lengths),
        Some(name) => {
            let known = known.into_iter().map(|name| Shown(name).to_string()).collect();
            Err(Error::Name { what: "dim", name: Shown(name).to_string(), known })
        }
    }
}
