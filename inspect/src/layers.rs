//! A layered layout in near-linear time, for graphs of thousands of ops.
//!
//! Rows follow the longest path from the start of the graph. An edge between rows that are near each other
//! bends around what lies between; a longer one is drawn straight behind everything. The places in a row are
//! found by sweeping over the rows, down and up in turn: boxes are sorted by the mean place of their
//! neighbours and put as near to it as the boxes beside them allow.

/// The most boxes in a row; a layer of more is broken like a line of text, so that the picture has a bounded
/// width.
const MAX_IN_ROW: usize = 12;

/// The most rows that an edge passes around what lies between; a longer one goes straight.
const MAX_BENDING: usize = 10;

/// Pixels between neighbours in a row, and between a row of boxes and one of labels.
const COLUMN_GAP: f64 = 22.0;
const ROW_GAP: f64 = 15.0;

const LABEL_HEIGHT: f64 = 16.0;

/// The most that a picture reaches to the left of its first box, so that the view opens on it.
const MAX_LEFT: f64 = 300.0;

/// Sweeps that sort, and passes after them that only move.
const SORTING: usize = 6;
const MOVING: usize = 5;

/// An edge from one box to another, by index, and the width of its label.
pub(crate) struct Link {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) label_width: f64,
}

/// The points of an edge, and the middle of its label.
pub(crate) struct Route {
    pub(crate) points: Vec<(f64, f64)>,
    pub(crate) label: (f64, f64),
}

/// The places of boxes and edges.
pub(crate) struct Places {
    /// The middle of each box.
    pub(crate) boxes: Vec<(f64, f64)>,
    pub(crate) routes: Vec<Route>,
}

/// Finds places for boxes of some widths and heights. Edges lead in no circle.
pub(crate) fn place(sizes: &[(f64, f64)], links: &[Link]) -> Places {
    let rows = rows(sizes.len(), links);
    let mut layers = Layers::new(sizes, links, &rows);
    for pass in 0..SORTING + MOVING {
        layers.arrange(pass % 2 == 0, pass < SORTING);
    }
    layers.places(sizes, links, &rows)
}

/// The row of each box, below those of all boxes that lead to it; no row has more than [`MAX_IN_ROW`].
fn rows(boxes: usize, links: &[Link]) -> Vec<usize> {
    let mut leads_to: Vec<Vec<usize>> = vec![Vec::new(); boxes];
    let mut waits_for = vec![0; boxes];
    for link in links {
        leads_to[link.from].push(link.to);
        waits_for[link.to] += 1;
    }
    let is_source = |index: usize| waits_for[index] == 0 && !leads_to[index].is_empty();
    let sources: Vec<usize> = (0..boxes).filter(|&index| is_source(index)).collect();

    // Layers by longest path, of all boxes but those that nothing leads to.
    let mut layer = vec![0; boxes];
    let mut ready: Vec<usize> = (0..boxes).filter(|&index| waits_for[index] == 0).collect();
    let mut last_layer = 0;
    let mut left = waits_for.clone();
    while let Some(index) = ready.pop() {
        let below = if waits_for[index] == 0 && !leads_to[index].is_empty() { 0 } else { layer[index] + 1 };
        for &next in &leads_to[index] {
            layer[next] = layer[next].max(below);
            last_layer = last_layer.max(layer[next]);
            left[next] -= 1;
            if left[next] == 0 {
                ready.push(next);
            }
        }
    }
    let mut layers: Vec<Vec<usize>> = vec![Vec::new(); last_layer + 1];
    for index in (0..boxes).filter(|&index| waits_for[index] > 0 || leads_to[index].is_empty()) {
        layers[layer[index]].push(index);
    }

    // Layers become rows, and a source stands right above the first row that it leads to, if there is room.
    let broken: Vec<&[usize]> = layers.iter().flat_map(|layer| layer.chunks(MAX_IN_ROW)).collect();
    let mut row_of = vec![0; boxes];
    for (row, members) in broken.iter().enumerate() {
        members.iter().for_each(|&index| row_of[index] = row);
    }
    let mut sources_of: Vec<Vec<usize>> = vec![Vec::new(); broken.len().max(1)];
    for source in sources {
        let first = leads_to[source].iter().map(|&next| row_of[next]).min().unwrap_or(0);
        sources_of[first].push(source);
    }
    let (mut count, mut room) = (0, 0);
    for (members, sources) in broken.iter().zip(&sources_of) {
        for &source in sources {
            if room == 0 {
                (count, room) = (count + 1, MAX_IN_ROW);
            }
            row_of[source] = count - 1;
            room -= 1;
        }
        members.iter().for_each(|&index| row_of[index] = count);
        (count, room) = (count + 1, MAX_IN_ROW - members.len());
    }
    row_of
}

/// A part of a layer: a box, the label of an edge, or a bend of an edge that passes the layer.
struct Item {
    width: f64,
    x: f64,
    /// Items that edges lead from and to.
    above: Vec<usize>,
    below: Vec<usize>,
}

/// The layers from top to bottom: the even ones hold boxes, the odd ones labels.
struct Layers {
    items: Vec<Item>,
    order: Vec<Vec<usize>>,
    /// For each edge, the items that it passes, its label last.
    passed: Vec<Vec<usize>>,
}

impl Layers {
    fn new(sizes: &[(f64, f64)], links: &[Link], rows: &[usize]) -> Self {
        let item = |width| Item { width, x: 0.0, above: Vec::new(), below: Vec::new() };
        let count = rows.iter().max().map_or(0, |last| 2 * last + 1);
        let mut order: Vec<Vec<usize>> = vec![Vec::new(); count];
        let mut items: Vec<Item> = sizes.iter().map(|&(width, _)| item(width)).collect();
        for (index, row) in rows.iter().enumerate() {
            order[2 * row].push(index);
        }
        let mut passed = Vec::with_capacity(links.len());
        for link in links {
            let (top, bottom) = (2 * rows[link.from], 2 * rows[link.to]);
            let bends = bottom - top <= 2 * MAX_BENDING;
            let layers = if bends { top + 1..bottom } else { bottom - 1..bottom };
            let mut previous = link.from;
            let mut passes = Vec::with_capacity(layers.len());
            for layer in layers {
                let index = items.len();
                items.push(item(if layer + 1 == bottom { link.label_width } else { 0.0 }));
                order[layer].push(index);
                items[previous].below.push(index);
                items[index].above.push(previous);
                passes.push(index);
                previous = index;
            }
            items[previous].below.push(link.to);
            items[link.to].above.push(previous);
            passed.push(passes);
        }
        let mut layers = Self { items, order, passed };
        for layer in 0..layers.order.len() {
            layers.settle(layer, |_, index| index as f64, false);
        }
        layers
    }

    /// Goes over the layers, down or up, and puts each item near its neighbours in the layers before; the
    /// passes that do not sort look at the neighbours on both sides.
    fn arrange(&mut self, down: bool, sorts: bool) {
        let mean = |items: &[Item], index: usize| {
            let item = &items[index];
            let sides: [&[usize]; 2] = match (sorts, down) {
                (false, _) => [&item.above, &item.below],
                (true, true) => [&item.above, &[]],
                (true, false) => [&item.below, &[]],
            };
            let neighbours = || sides.into_iter().flatten();
            match neighbours().count() {
                0 => item.x,
                count => neighbours().map(|&other| items[other].x).sum::<f64>() / count as f64,
            }
        };
        let layers = self.order.len();
        for step in 0..layers {
            self.settle(if down { step } else { layers - 1 - step }, mean, sorts);
        }
    }

    /// Puts the items of a layer as near to the wanted places as their widths allow.
    fn settle(&mut self, layer: usize, wanted: impl Fn(&[Item], usize) -> f64, sorts: bool) {
        let mut order = std::mem::take(&mut self.order[layer]);
        let mut wanted: Vec<(usize, f64)> =
            order.iter().map(|&index| (index, wanted(&self.items, index))).collect();
        if sorts {
            wanted.sort_by(|a, b| a.1.total_cmp(&b.1));
        }
        // The distance of an item from its place in the densest row must not decrease from left to right.
        let mut packed = Vec::with_capacity(wanted.len());
        let mut end = 0.0;
        for &(index, _) in &wanted {
            let width = self.items[index].width;
            packed.push(end + width / 2.0);
            end += width + COLUMN_GAP;
        }
        let slack: Vec<f64> =
            wanted.iter().zip(&packed).map(|((_, wanted), packed)| wanted - packed).collect();
        let least = self.left_end(layer);
        for ((&(index, _), slack), packed) in wanted.iter().zip(nondecreasing(&slack)).zip(&packed) {
            self.items[index].x = slack.max(least) + packed;
        }
        order.clear();
        order.extend(wanted.iter().map(|&(index, _)| index));
        self.order[layer] = order;
    }

    /// How far to the left a layer may reach.
    fn left_end(&self, layer: usize) -> f64 {
        let first = self.order.first().and_then(|order| order.first()).map(|&index| &self.items[index]);
        match first {
            Some(first) if layer > 0 => first.x - first.width / 2.0 - MAX_LEFT,
            _ => f64::NEG_INFINITY,
        }
    }

    fn places(&self, sizes: &[(f64, f64)], links: &[Link], rows: &[usize]) -> Places {
        let mut heights = vec![0.0f64; self.order.len()];
        for (row, &(_, height)) in rows.iter().zip(sizes) {
            heights[2 * row] = heights[2 * row].max(height);
        }
        for (layer, order) in self.order.iter().enumerate().skip(1).step_by(2) {
            heights[layer] = if order.is_empty() { 0.0 } else { LABEL_HEIGHT };
        }
        let mut tops = Vec::with_capacity(heights.len());
        let mut y = 0.0;
        for height in &heights {
            tops.push(y);
            y += height + ROW_GAP;
        }
        let middle = |layer: usize| tops[layer] + heights[layer] / 2.0;
        let boxes: Vec<(f64, f64)> =
            rows.iter().zip(&self.items).map(|(row, item)| (item.x, middle(2 * row))).collect();
        let route = |(link, passes): (&Link, &Vec<usize>)| {
            let half = |index: usize| sizes[index].1 / 2.0;
            let (from, to) = (boxes[link.from], boxes[link.to]);
            let first_layer = 2 * rows[link.to] - passes.len();
            let mut points = vec![(from.0, from.1 + half(link.from))];
            for (layer, &passed) in (first_layer..).zip(passes) {
                let x = self.items[passed].x;
                match layer % 2 {
                    // Straight along the boxes of its layer.
                    0 => points.extend([(x, tops[layer]), (x, tops[layer] + heights[layer])]),
                    _ => points.push((x, middle(layer))),
                }
            }
            points.push((to.0, to.1 - half(link.to)));
            let label =
                passes.last().map_or(to, |&label| (self.items[label].x, middle(2 * rows[link.to] - 1)));
            Route { points, label }
        };
        let routes = links.iter().zip(&self.passed).map(route).collect();
        Places { boxes, routes }
    }
}

/// The numbers that do not decrease and are nearest to those given, by squares: runs that do decrease are
/// replaced by their mean (pool adjacent violators).
fn nondecreasing(wanted: &[f64]) -> Vec<f64> {
    let mut pools: Vec<(f64, usize)> = Vec::new();
    for &number in wanted {
        let mut pool = (number, 1);
        while let Some(&(mean, count)) = pools.last()
            && mean > pool.0
        {
            pools.pop();
            let all = count + pool.1;
            pool = ((mean * count as f64 + pool.0 * pool.1 as f64) / all as f64, all);
        }
        pools.push(pool);
    }
    pools.into_iter().flat_map(|(mean, count)| std::iter::repeat_n(mean, count)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links(pairs: impl IntoIterator<Item = (usize, usize)>) -> Vec<Link> {
        pairs.into_iter().map(|(from, to)| Link { from, to, label_width: 70.0 }).collect()
    }

    /// The faults in the places of boxes of 100 by 40.
    fn faults(boxes: usize, links: &[Link]) -> Vec<String> {
        let sizes = vec![(100.0, 40.0); boxes];
        let places = place(&sizes, links);
        let mut faults = Vec::new();
        let mut rows: Vec<(f64, f64)> = places.boxes.iter().map(|&(x, y)| (y, x)).collect();
        rows.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
        for pair in rows.windows(2) {
            let ((above, left), (below, right)) = (pair[0], pair[1]);
            if below - above < 40.0 && right - left < 100.0 {
                faults.push(format!("boxes at {pair:?} overlap"));
            }
        }
        let most = rows.chunk_by(|a, b| a.0 == b.0).map(<[(f64, f64)]>::len).max().unwrap_or(0);
        if most > MAX_IN_ROW {
            faults.push(format!("{most} boxes in a row"));
        }
        for (link, Route { points, label }) in links.iter().zip(&places.routes) {
            let heights: Vec<f64> = points.iter().map(|point| point.1).collect();
            if !heights.is_sorted()
                || !(places.boxes[link.from].1..places.boxes[link.to].1).contains(&label.1)
            {
                faults.push(format!("{} to {}: {points:?}", link.from, link.to));
            }
        }
        faults
    }

    #[test]
    fn boxes_stand_below_what_leads_to_them_and_do_not_overlap() {
        let shapes: [(&str, usize, Vec<Link>); 8] = [
            ("nothing", 0, vec![]),
            ("one box", 1, vec![]),
            ("boxes without edges", 50, vec![]),
            ("two edges between two boxes", 2, links([(0, 1), (0, 1)])),
            (
                "a chain that reads what is far back",
                300,
                links((1..300).flat_map(|i| [(i - 1, i), (i / 2, i)]).skip(1)),
            ),
            ("a fan", 500, links((1..500).map(|i| (0, i)))),
            (
                "its own source for each of a chain",
                400,
                links((1..200).flat_map(|i| [(i - 1, i), (i + 199, i)])),
            ),
            ("backwards by index", 300, links((1..300).map(|i| (i, i - 1)))),
        ];
        let wrong: Vec<String> = shapes
            .iter()
            .flat_map(|(name, boxes, links)| {
                faults(*boxes, links).into_iter().map(move |fault| format!("{name}: {fault}"))
            })
            .collect();
        assert!(wrong.is_empty(), "{wrong:?}");
    }

    #[test]
    fn items_of_a_layout_grow_with_the_graph_and_not_faster() {
        let items = |boxes: usize| {
            let links = links((1..boxes).flat_map(|i| [(i - 1, i), (i / 2, i)]));
            let sizes = vec![(100.0, 40.0); boxes];
            Layers::new(&sizes, &links[1..], &rows(boxes, &links[1..])).items.len()
        };
        assert!(items(20_000) <= 10 * items(2_000) + 1000, "{} and {}", items(2_000), items(20_000));
    }

    #[test]
    fn decreasing_runs_become_their_mean() {
        assert_eq!(nondecreasing(&[1.0, 3.0, 2.0, 2.5, 9.0, 8.0]), [1.0, 2.5, 2.5, 2.5, 8.5, 8.5]);
        assert!(nondecreasing(&[]).is_empty());
    }
}
