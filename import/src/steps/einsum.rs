//! Einsum: sums of products over the labels that the result lacks, as products of matrices.

use sterna::{OpKind, TensorId};

use super::{Reduction, Steps};
use crate::error::Fault;
use crate::weights::element_count;

/// The form of an equation, in words.
pub(crate) const EQUATION: &str = "a label for each dim of each input, none twice at one of them, and one \
                                   dim for each label";

/// A letter, or one of the dims that an ellipsis stands for, counted from the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Label {
    Beside(usize),
    Letter(char),
}

type Labels = Vec<Label>;

/// A tensor with a label for each dim.
#[derive(Clone)]
struct Labelled {
    tensor: TensorId,
    labels: Labels,
}

impl Labelled {
    fn has(&self, label: &Label) -> bool {
        self.labels.contains(label)
    }

    /// The labels for which something holds, in order.
    fn those(&self, which: impl Fn(&Label) -> bool) -> Labels {
        self.labels.iter().copied().filter(which).collect()
    }
}

/// The labels of one operand or of the result, whose ellipsis stands for some dims. `None` for what is no
/// such list, and for a label that comes twice.
fn labels(text: &str, beside: usize) -> Option<Labels> {
    let mut labels = Labels::new();
    let mut rest = text;
    while let Some(letter) = rest.chars().next() {
        if let Some(behind) = rest.strip_prefix("...") {
            labels.extend((0..beside).rev().map(Label::Beside));
            rest = behind;
        } else {
            labels.push(Label::Letter(letter));
            rest = &rest[letter.len_utf8()..];
        }
    }
    let is_once = |(place, label): (usize, &Label)| !labels[..place].contains(label);
    let is_fine = labels.iter().all(|label| !matches!(label, Label::Letter(c) if !c.is_ascii_alphabetic()));
    (is_fine && labels.iter().enumerate().all(is_once)).then_some(labels)
}

/// The labels of operands of some ranks, and of the result. `None` for an equation that does not fit, or that
/// takes the diagonal of an operand.
fn parsed(equation: &str, ranks: &[usize]) -> Option<(Vec<Labels>, Labels)> {
    let text: String = equation.chars().filter(|c| !c.is_whitespace()).collect();
    let (operands, result) = match text.split_once("->") {
        Some((operands, result)) => (operands, Some(result)),
        None => (&*text, None),
    };
    let parts: Vec<&str> = operands.split(',').collect();
    if parts.len() != ranks.len() || parts.iter().any(|part| part.matches("...").count() > 1) {
        return None;
    }
    let mut most = 0;
    let mut of_operands = Vec::new();
    for (part, rank) in parts.into_iter().zip(ranks) {
        let letters = part.replace("...", "").chars().count();
        let beside = rank.checked_sub(letters)?;
        if beside > 0 && !part.contains("...") {
            return None;
        }
        most = most.max(beside);
        of_operands.push(labels(part, beside)?);
    }
    let known = |label: &Label| of_operands.iter().any(|labels| labels.contains(label));
    let of_result = match result {
        Some(result) => labels(result, most)?,
        // The labels that occur once, the dims of ellipses first.
        None => {
            let mut all: Labels = of_operands.concat();
            all.sort_unstable_by_key(|label| match label {
                Label::Beside(place) => (0, usize::MAX - place, ' '),
                Label::Letter(letter) => (1, 0, *letter),
            });
            let count = |label: &Label| all.iter().filter(|other| *other == label).count();
            let mut once: Labels = all
                .iter()
                .copied()
                .filter(|label| matches!(label, Label::Beside(_)) || count(label) == 1)
                .collect();
            once.dedup();
            once
        }
    };
    of_result.iter().all(known).then_some((of_operands, of_result))
}

impl Steps<'_, '_> {
    /// Sums of products of the operands, whose dims are known. `None` for an equation that does not fit, that
    /// takes the diagonal of an operand.
    pub(crate) fn einsum(
        &mut self,
        equation: &str,
        operands: &[TensorId],
    ) -> Result<Option<TensorId>, Fault> {
        let mut all_dims = Vec::new();
        for operand in operands {
            all_dims.push(self.dims(*operand)?);
        }
        let ranks: Vec<usize> = all_dims.iter().map(Vec::len).collect();
        let Some((of_operands, result)) = parsed(equation, &ranks) else { return Ok(None) };
        // A label has one dim wherever it stands.
        let mut dims: Vec<(Label, i64)> = Vec::new();
        for (label, dim) in of_operands.iter().flatten().zip(all_dims.iter().flatten()) {
            match dims.iter().find(|(known, _)| known == label) {
                None => dims.push((*label, *dim)),
                Some((_, known)) if known == dim => {}
                Some(_) => return Ok(None),
            }
        }
        let length = |label: &Label| dims.iter().find(|(known, _)| known == label).map_or(1, |(_, dim)| *dim);
        let mut parts = operands.iter().zip(of_operands).map(|(&tensor, labels)| Labelled { tensor, labels });
        let Some(mut sum) = parts.next() else { return Ok(None) };
        let rest: Vec<Labelled> = parts.collect();
        for (place, other) in rest.iter().enumerate() {
            let later = &rest[place + 1..];
            let is_kept = |label: &Label| result.contains(label) || later.iter().any(|part| part.has(label));
            let Some(product) = self.contracted(&sum, other, &is_kept, &length)? else { return Ok(None) };
            sum = product;
        }
        let sum = self.summed(&sum, &|label| result.contains(label))?;
        self.ordered(&sum, &result).map(Some)
    }

    /// The sums along the labels that are not kept.
    fn summed(&mut self, part: &Labelled, is_kept: &dyn Fn(&Label) -> bool) -> Result<Labelled, Fault> {
        let places = part.labels.iter().enumerate().filter(|(_, label)| !is_kept(label));
        let axes: Vec<i64> = places.map(|(place, _)| place as i64).collect();
        if axes.is_empty() {
            return Ok(part.clone());
        }
        let tensor = self.reduced(Reduction::One(OpKind::ReduceSum), part.tensor, &axes, false)?;
        Ok(Labelled { tensor, labels: part.those(is_kept) })
    }

    /// The tensor with its dims in the order of some labels, which are its own.
    fn ordered(&mut self, part: &Labelled, labels: &[Label]) -> Result<TensorId, Fault> {
        if part.labels == labels {
            return Ok(part.tensor);
        }
        let place = |label: &Label| part.labels.iter().position(|own| own == label).unwrap_or_default();
        let order: Vec<i64> = labels.iter().map(|label| place(label) as i64).collect();
        self.transposed(part.tensor, &order)
    }

    /// Sums of the products of two tensors: the labels of both that are not kept are the depth of a product
    /// of matrices.
    fn contracted(
        &mut self,
        a: &Labelled,
        b: &Labelled,
        is_kept: &dyn Fn(&Label) -> bool,
        length: &dyn Fn(&Label) -> i64,
    ) -> Result<Option<Labelled>, Fault> {
        let a = self.summed(a, &|label| b.has(label) || is_kept(label))?;
        let b = self.summed(b, &|label| a.has(label) || is_kept(label))?;
        let batch = a.those(|label| b.has(label) && is_kept(label));
        let depth = a.those(|label| b.has(label) && !is_kept(label));
        let (rows, columns) = (a.those(|label| !b.has(label)), b.those(|label| !a.has(label)));
        let dims = |labels: &[Label]| labels.iter().map(length).collect::<Vec<i64>>();
        let sizes = [&rows, &columns, &depth].map(|labels| element_count(&dims(labels)));
        // Beside a dim of 0, others may be of any size.
        let [Some(height), Some(width), Some(steps)] = sizes else { return Ok(None) };

        let left = self.ordered(&a, &[&batch[..], &rows, &depth].concat())?;
        let left = self.in_shape(left, &[dims(&batch), vec![height, steps]].concat())?;
        // The product takes the second operand in both orders.
        let as_it_is = [&batch[..], &columns, &depth].concat();
        let transposes = b.labels == as_it_is;
        let matrix = match transposes {
            true => [width, steps],
            false => [steps, width],
        };
        let right = match transposes {
            true => b.tensor,
            false => self.ordered(&b, &[&batch[..], &depth, &columns].concat())?,
        };
        let right = self.in_shape(right, &[dims(&batch), matrix.to_vec()].concat())?;
        let to = self.builder.data_type(a.tensor);
        let product = self.product(left, right, transposes, to)?;
        let labels = [batch, rows, columns].concat();
        let tensor = self.in_shape(product, &dims(&labels))?;
        Ok(Some(Labelled { tensor, labels }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equations_are_read_or_refused() {
        let of = |equation: &str, ranks: &[usize]| {
            let shown = |labels: &Labels| -> String {
                let letter = |label: &Label| match label {
                    Label::Letter(letter) => *letter,
                    Label::Beside(place) => char::from(b'0' + *place as u8),
                };
                labels.iter().map(letter).collect()
            };
            let (operands, result) = parsed(equation, ranks)?;
            Some(operands.iter().chain([&result]).map(shown).collect::<Vec<String>>().join(" "))
        };
        let rows = [
            ("bhid,bhjd->bhij", &[4, 4][..], Some("bhid bhjd bhij")),
            (" i j , j k ", &[2, 2], Some("ij jk ik")),
            ("ji", &[2], Some("ji ij")),
            ("...ij,jk->...ik", &[4, 2], Some("10ij jk 10ik")),
            ("i...", &[3], Some("i10 10i")),
            ("->", &[0], Some(" ")),
            ("ii->i", &[2], None),
            ("ij->k", &[2], None),
            ("ij->ii", &[2], None),
            ("ij", &[3], None),
            ("ij", &[1], None),
            ("ij,jk->ik", &[2], None),
            ("......i", &[3], None),
            ("i2->i", &[2], None),
            ("i->i->i", &[1], None),
        ];
        let wrong: Vec<_> = rows
            .iter()
            .map(|(text, ranks, _)| of(text, ranks))
            .zip(&rows)
            .filter(|(found, row)| found.as_deref() != row.2)
            .collect();
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}
