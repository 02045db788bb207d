//! The tiles of masked scores as drawings: as lines of signs, and as pictures.

use maud::{Markup, html};
use sterna::{MaskTiles, TileClass};

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
pub(super) fn lines(tiles: &MaskTiles) -> Vec<String> {
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

/// Pixels of a cell of a picture.
const CELL: usize = 6;

/// A picture for a page.
pub(super) fn picture(tiles: &MaskTiles) -> Markup {
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
            svg class="tiles" role="img" aria-label="tiles of the mask" width=(columns * CELL)
                height=(rows * CELL) viewBox={ "0 0 " (columns) " " (rows) } {
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
    fn runs_cover_a_row() {
        use TileClass::{Full, Masked, Partial};
        let row = [Full, Full, Partial, Masked, Masked, Masked];
        assert_eq!(runs(&row), [(0, 2, Full), (2, 1, Partial), (3, 3, Masked)]);
        assert_eq!(common([Full, Full].into_iter()), Full);
        assert_eq!(common([Full, Masked].into_iter()), Partial);
    }
}
