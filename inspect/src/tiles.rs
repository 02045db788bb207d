//! The tiles of masked scores as drawings: as lines of signs, and as pictures.

use std::fmt::{self, Display, Formatter};

use maud::{Markup, html};
use serde::{Deserialize, Serialize};
use sterna::{MaskTiles, TileClass};

use crate::mask::Mask;

/// Numbers of tiles of 64 queries × 64 keys, by what enters SoftMax.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct TilesReport {
    /// Left out, since all scores are −∞.
    pub masked: usize,
    /// Of one finite number; left out if their weights are 0.
    pub constant: usize,
    /// Without a masked score.
    pub full: usize,
    /// Of scores of which some are masked.
    pub partial: usize,
}

impl TilesReport {
    /// The numbers of the tiles of a mask.
    #[must_use]
    pub fn of(tiles: &MaskTiles) -> Self {
        Self {
            masked: tiles.count(TileClass::Masked),
            constant: tiles.count(TileClass::Constant),
            full: tiles.count(TileClass::Full),
            partial: tiles.count(TileClass::Partial),
        }
    }

    /// The number of all tiles. What was read from a file may be any numbers.
    #[must_use]
    pub fn all(&self) -> usize {
        let Self { masked, constant, full, partial } = *self;
        [constant, full, partial].into_iter().fold(masked, usize::saturating_add)
    }
}

impl Display for TilesReport {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { masked, constant, full, partial } = self;
        let all = self.all();
        write!(f, "{masked} of {all} tiles skipped, {full} full, {partial} partial")?;
        match constant {
            0 => Ok(()),
            _ => write!(f, ", {constant} constant"),
        }
    }
}

/// Cells of a drawing in each direction; more tiles than that share cells.
const MAX_CELLS: usize = 64;

/// Mask planes that are drawn; more would fill screens.
const MAX_PLANES: usize = 4;

/// The cells of the drawing of a mask plane, row by row: queries downwards, keys to the right.
type Cells = Vec<Vec<TileClass>>;

/// The planes that are drawn, and the tiles of a cell in each direction.
fn planes(tiles: &MaskTiles) -> (Vec<Cells>, usize) {
    let (rows, columns) = (tiles.query_blocks(), tiles.key_blocks());
    let size = rows.max(columns).div_ceil(MAX_CELLS).max(1);
    let cell = |plane: usize, row: usize, column: usize| {
        let of_cell = (row..rows.min(row + size)).flat_map(|row| {
            (column..columns.min(column + size)).filter_map(move |key| tiles.class(plane, row, key))
        });
        common(of_cell)
    };
    let plane = |plane: usize| {
        let row = |row: usize| (0..columns).step_by(size).map(|column| cell(plane, row, column)).collect();
        (0..rows).step_by(size).map(row).collect()
    };
    ((0..tiles.planes().min(MAX_PLANES)).map(plane).collect(), size)
}

/// The class of tiles that share a cell: partial unless they agree.
fn common(mut classes: impl Iterator<Item = TileClass>) -> TileClass {
    let first = classes.next();
    first.filter(|&first| classes.all(|class| class == first)).unwrap_or(TileClass::Partial)
}

/// The title of a plane, if there are several.
fn title(plane: usize, tiles: &MaskTiles) -> Option<String> {
    (tiles.planes() > 1).then(|| format!("plane {plane} of {}", tiles.planes()))
}

/// A drawing for a terminal, line by line.
pub(crate) fn lines(tiles: &MaskTiles) -> Vec<String> {
    let sign = |class: &TileClass| match class {
        TileClass::Masked => '.',
        TileClass::Constant => '-',
        TileClass::Full => '#',
        TileClass::Partial => '+',
    };
    let (planes, size) = planes(tiles);
    let mut lines = Vec::new();
    for (index, plane) in planes.iter().enumerate() {
        lines.extend(title(index, tiles));
        lines.extend(plane.iter().map(|row| row.iter().map(sign).collect::<String>()));
    }
    let each = 64 * size;
    lines.push(format!("{each} queries × {each} keys a sign: # full, + partial, - constant, . masked"));
    lines
}

/// The knowledge about a mask, in words.
pub(crate) fn said(mask: &Mask) -> String {
    match mask {
        Mask::Tiles { tiles, assumed } if assumed.is_empty() => TilesReport::of(tiles).to_string(),
        Mask::Tiles { tiles, assumed } => {
            format!("{}; with {}", TilesReport::of(tiles), assumed.join(" and "))
        }
        Mask::Needs { input, remedy } => {
            let remedy = remedy.as_ref().map_or_else(String::new, |remedy| format!("; {remedy}"));
            format!("which of its tiles are left out depends on `{input}`{remedy}")
        }
    }
}

/// Pixels of a cell of a picture at least, and of a side of a picture.
const MIN_CELL: usize = 6;
const MIN_SIDE: usize = 200;
const LONGEST_SIDE: usize = 600;

/// Width and height of a cell in a picture of some columns and rows: a square, unless a picture that is high
/// and wide enough would then be too large.
fn cell(columns: usize, rows: usize) -> (usize, usize) {
    let [wide, high] = [columns, rows].map(|cells| MIN_SIDE.div_ceil(cells.max(1)).max(MIN_CELL));
    let square = wide.max(high);
    match square * columns.max(rows) <= LONGEST_SIDE {
        true => (square, square),
        false => (wide, high),
    }
}

/// A picture for a page.
pub(crate) fn picture(tiles: &MaskTiles) -> Markup {
    let (planes, size) = planes(tiles);
    let kind = |class: TileClass| match class {
        TileClass::Masked => "masked",
        TileClass::Constant => "constant",
        TileClass::Full => "full",
        TileClass::Partial => "partial",
    };
    html! {
        @for (index, plane) in planes.iter().enumerate() {
            @let (rows, columns) = (plane.len(), plane.first().map_or(0, Vec::len));
            @if let Some(title) = title(index, tiles) { h4 { (title) } }
            @let (wide, high) = cell(columns, rows);
            svg class="tiles" role="img" aria-label="tiles of the mask" width=(columns * wide)
                height=(rows * high) viewBox={ "0 0 " (columns) " " (rows) } preserveAspectRatio="none" {
                @for (y, row) in plane.iter().enumerate() {
                    @for (x, width, class) in runs(row) {
                        rect class=(kind(class)) x=(x) y=(y) width=(width) height="1" {}
                    }
                }
            }
        }
        p {
            small {
                "A cell is " (64 * size) " queries × " (64 * size) " keys, keys to the right: dark is full, \
                 medium partial, light constant, empty masked."
            }
        }
    }
}

/// Neighbours of one class in a row: the first, how many, and the class.
fn runs(row: &[TileClass]) -> Vec<(usize, usize, TileClass)> {
    let mut first = 0;
    row.chunk_by(|a, b| a == b)
        .map(|run| {
            first += run.len();
            (first - run.len(), run.len(), run[0])
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_are_large_enough_to_see() {
        let rows = [
            ((1, 1), (200, 200)),
            ((4, 4), (200, 200)),
            ((6, 4), (300, 200)),
            ((64, 64), (384, 384)),
            ((64, 1), (384, 200)),
            ((1, 64), (200, 384)),
        ];
        let size = |(columns, rows)| {
            let (wide, high) = cell(columns, rows);
            (columns * wide, rows * high)
        };
        let wrong: Vec<_> = rows.iter().filter(|(cells, pixels)| size(*cells) != *pixels).collect();
        assert!(wrong.is_empty(), "{wrong:?}");
    }

    #[test]
    fn runs_cover_a_row() {
        use TileClass::{Full, Masked, Partial};
        let row = [Full, Full, Partial, Masked, Masked, Masked];
        assert_eq!(runs(&row), [(0, 2, Full), (2, 1, Partial), (3, 3, Masked)]);
        assert_eq!(common([Full, Full].into_iter()), Full);
        assert_eq!(common([Full, Masked].into_iter()), Partial);
    }
}
