//! The internal buffers of a plan: which of them depend on constants alone, and which share memory.

use crate::plan::{Base, Phase, PlacedBuffer, Preparation};

/// The phases that read constant inputs alone, directly or through buffers, and write to buffers that no
/// other phase writes.
pub(super) fn preparation(
    phases: &[Phase],
    buffers: usize,
    is_constant: impl Fn(usize) -> bool,
) -> Preparation {
    let in_buffer = |base: &Base| match *base {
        Base::Buffer(buffer) => Some(buffer),
        _ => None,
    };
    // The buffers that are written by a phase which reads more than constants.
    let mut varying = vec![false; buffers];
    let (prepared, inputs, written) = loop {
        let (mut prepared, mut inputs) = (Vec::new(), Vec::new());
        let mut written = vec![false; buffers];
        let before = varying.clone();
        for (index, phase) in phases.iter().enumerate() {
            let Some((reads, writes)) = phase.reads_and_writes() else { continue };
            let is_prepared =
                reads.iter().all(|&read| match read {
                    Base::Port(port) => is_constant(port),
                    Base::Buffer(buffer) => written[buffer] && !varying[buffer],
                    Base::Constant(_) | Base::Index => true,
                    Base::Driver(_) => false,
                }) && writes.iter().all(|write| in_buffer(write).is_some_and(|buffer| !varying[buffer]));
            let of = if is_prepared { &mut written } else { &mut varying };
            writes.iter().filter_map(in_buffer).for_each(|buffer| of[buffer] = true);
            if is_prepared {
                prepared.push(index);
                inputs.extend(reads.iter().filter_map(|&read| match read {
                    Base::Port(port) => Some(port),
                    _ => None,
                }));
            }
        }
        if varying == before {
            inputs.sort_unstable();
            inputs.dedup();
            break (prepared, inputs, written);
        }
    };
    let others = phases.iter().enumerate().filter(|(index, _)| !prepared.contains(index));
    let mut kept: Vec<usize> = others
        .flat_map(|(_, phase)| phase.bases())
        .filter_map(|base| in_buffer(&base))
        .filter(|&buffer| written[buffer])
        .collect();
    kept.sort_unstable();
    kept.dedup();
    Preparation { phases: prepared, inputs, buffers: kept }
}

/// The places of buffers; those whose phases do not overlap share memory, but for some that are `kept`.
pub(super) fn placed_buffers(phases: &[Phase], bytes: &[usize], kept: &[usize]) -> Vec<PlacedBuffer> {
    // The first and the last phase that accesses each buffer.
    let mut spans: Vec<Option<(usize, usize)>> = vec![None; bytes.len()];
    for (index, phase) in phases.iter().enumerate() {
        for base in phase.bases() {
            if let Base::Buffer(buffer) = base {
                spans[buffer].get_or_insert((index, index)).1 = index;
            }
        }
    }
    for &buffer in kept {
        spans[buffer] = Some((0, phases.len()));
    }
    let (numbers, shared) = assign(&spans, bytes);
    let places = PlacedBuffer::in_order(&shared);
    numbers.iter().map(|&number| places.get(number).copied().unwrap_or_default()).collect()
}

/// The shared buffer of each buffer, and the bytes of the shared ones, given the first and the last phase in
/// which each is alive. A buffer takes the free one whose size fits best.
fn assign(spans: &[Option<(usize, usize)>], bytes: &[usize]) -> (Vec<usize>, Vec<usize>) {
    let mut order: Vec<(usize, usize, usize)> = (spans.iter().enumerate())
        .filter_map(|(buffer, span)| span.map(|(first, last)| (first, last, buffer)))
        .collect();
    order.sort_unstable();
    // Bytes, and the last phase that accesses it.
    let mut shared: Vec<(usize, usize)> = Vec::new();
    let mut numbers = vec![0; spans.len()];
    for (first, last, buffer) in order {
        let free = shared.iter().enumerate().filter(|(_, (_, until))| *until < first);
        let best = free.min_by_key(|(_, (size, _))| size.abs_diff(bytes[buffer])).map(|(index, _)| index);
        let number = best.unwrap_or_else(|| {
            shared.push((0, 0));
            shared.len() - 1
        });
        let (size, _) = shared[number];
        shared[number] = (size.max(bytes[buffer]), last);
        numbers[buffer] = number;
    }
    (numbers, shared.into_iter().map(|(size, _)| size).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_share_memory_if_they_are_not_alive_at_once() {
        type Row<'a> = (&'a str, &'a [Option<(usize, usize)>], &'a [usize], &'a [usize], &'a [usize]);
        let rows: &[Row<'_>] = &[
            ("none", &[], &[], &[], &[]),
            ("one", &[Some((0, 1))], &[7], &[0], &[7]),
            ("a chain", &[Some((0, 1)), Some((1, 2)), Some((2, 3))], &[5, 8, 6], &[0, 1, 0], &[6, 8]),
            ("all at once", &[Some((0, 3)), Some((1, 3)), Some((2, 3))], &[1, 2, 3], &[0, 1, 2], &[1, 2, 3]),
            (
                "the best fit",
                &[Some((0, 1)), Some((0, 1)), Some((2, 3)), Some((2, 3))],
                &[100, 10, 11, 90],
                &[0, 1, 1, 0],
                &[100, 11],
            ),
            ("never used", &[None, Some((0, 1))], &[9, 4], &[0, 0], &[4]),
        ];
        let mut wrong = Vec::new();
        for (name, spans, bytes, numbers, shared) in rows {
            let found = assign(spans, bytes);
            if (&found.0[..], &found.1[..]) != (*numbers, *shared) {
                wrong.push((name, found));
            }
        }
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}
