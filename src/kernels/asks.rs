//! What is asked for while something else is computed.

use smallvec::SmallVec;

use super::{LINE, bring};

/// A piece of memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Piece {
    pub(crate) at: *const u8,
    pub(crate) bytes: usize,
}

/// Bytes that a block asks for. More than are read meanwhile, so that what will be read is there early, but not more lines than
/// a core can wait for: on a Zen 5, a chain of twelve ops took 0.93 of its time with two lines instead of one and with three, 0.96
/// with four, as long with six and longer with eight; a gated GELU, which reads less, 1.0 with two and four and 1.03 with three.
const AT_ONCE: usize = 2 * LINE;

/// Pieces of memory that will be read soon. Functions of one element that take long ask for some of them in each block that
/// they compute, so that memory works while arithmetic does. On a Zen 5, a chain of twelve ops and a gated GELU took 0.91 and
/// 0.96 of the time that they took where a kilobyte of each piece was asked for between steps; where all functions of one
/// element ask, as long, and the library is 0.15 MB larger. Functions of two elements do not ask: a group with differences of
/// rows of 49 elements took 1.2 times as long.
#[derive(Debug, Default)]
pub(crate) struct Asks {
    /// The pieces in their order.
    pieces: SmallVec<[Piece; 6]>,
    /// The first of them that has not been asked for to its end.
    next: usize,
}

impl Asks {
    /// Forgets all pieces.
    pub(crate) fn clear(&mut self) {
        self.pieces.clear();
        self.next = 0;
    }

    /// Adds a piece, which becomes one with the last one if it follows that.
    pub(crate) fn add(&mut self, piece: Piece) {
        match self.pieces[self.next..].last_mut() {
            Some(last) if last.at.wrapping_add(last.bytes) == piece.at => last.bytes += piece.bytes,
            _ => self.pieces.push(piece),
        }
    }

    /// What is to be asked for next. A kernel has it in registers while it asks, and puts back what is left: 0.94 to 0.97 of
    /// the time of the groups above.
    #[inline(never)]
    pub(in crate::kernels) fn first(&self) -> Piece {
        self.pieces.get(self.next).copied().unwrap_or(Piece { at: std::ptr::null(), bytes: 0 })
    }

    /// Asks for the next bytes of the first piece, and goes on to another when there are no more.
    #[inline(always)]
    pub(in crate::kernels) fn some(&mut self, first: &mut Piece) {
        if first.bytes > 0 {
            bring(first.at, AT_ONCE);
            first.at = first.at.wrapping_add(AT_ONCE);
            first.bytes = first.bytes.saturating_sub(AT_ONCE);
            if first.bytes == 0 {
                *first = self.second();
            }
        }
    }

    /// The piece behind the first one, which becomes the first one.
    #[cold]
    #[inline(never)]
    fn second(&mut self) -> Piece {
        self.next += 1;
        self.first()
    }

    /// Puts back what is left of the first piece.
    #[inline(never)]
    pub(in crate::kernels) fn put_back(&mut self, left: Piece) {
        if let Some(first) = self.pieces.get_mut(self.next) {
            *first = left;
        }
    }

    /// Asks for all that is left.
    pub(crate) fn rest(&mut self) {
        self.pieces[self.next..].iter().for_each(|&Piece { at, bytes }| bring(at, bytes));
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is asked for block by block, as offsets, of pieces given by offset and bytes, by kernels of three blocks each.
    fn asked_for(pieces: &[(usize, usize)]) -> Vec<usize> {
        let mut asks = Asks::default();
        for &(at, bytes) in pieces {
            asks.add(Piece { at: std::ptr::without_provenance(at), bytes });
        }
        let mut asked_for = Vec::new();
        while asks.next < asks.pieces.len() {
            let mut first = asks.first();
            for _ in 0..3 {
                asked_for.extend((first.bytes > 0).then_some(first.at.addr()));
                asks.some(&mut first);
            }
            asks.put_back(first);
        }
        asked_for
    }

    #[test]
    fn every_line_of_every_piece_is_asked_for_in_order() {
        type Row<'a> = (&'a [(usize, usize)], &'a [usize]);
        let rows: &[Row<'_>] = &[
            (&[], &[]),
            (&[(640, 1)], &[640]),
            (&[(640, 128)], &[640]),
            (&[(640, 129)], &[640, 768]),
            (&[(640, 512)], &[640, 768, 896, 1024]),
            (&[(640, 256), (64, 200), (1280, 30)], &[640, 768, 64, 192, 1280]),
            (&[(640, 200), (840, 56), (896, 1)], &[640, 768, 896]),
        ];
        let asked_for = rows.iter().map(|(pieces, expected)| (pieces, asked_for(pieces), expected));
        let wrong: Vec<_> = asked_for.filter(|(_, asked_for, expected)| asked_for != *expected).collect();
        assert!(wrong.is_empty(), "{wrong:?}");
    }

    #[test]
    fn nothing_is_left_after_the_rest() {
        let bytes = [0u8; 300];
        let mut asks = Asks::default();
        for at in [0, 200] {
            asks.add(Piece { at: bytes[at..].as_ptr(), bytes: 100 });
        }
        let mut first = asks.first();
        asks.some(&mut first);
        asks.put_back(first);
        asks.rest();
        assert_eq!(asks.first().bytes, 0);
    }
}
