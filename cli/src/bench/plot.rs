//! A run as a picture: each case beneath the streaming limit, by the bytes that it moves.
//!
//! It is a roofline plot for work that moves bytes and computes little: the roof is what the machine streams,
//! high where the bytes fit into a cache and low where they come from memory. A case is a dot, with a line
//! from one quartile to the other. Cases bear numbers, and a list beside the plot names them. Readers who
//! prefer dark pages get dark colours, by a style sheet within the file.

use std::fmt::Write;
use std::ops::Range;

use anyhow::{Result, anyhow, ensure};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use sterna_inspect::Short;

use super::record::{Case, Run};
use super::session::counted;
use super::table::rate;

/// A colour on light pages, and its counterpart on dark ones.
struct Ink {
    light: RGBColor,
    dark: RGBColor,
}

const fn ink(light: (u8, u8, u8), dark: (u8, u8, u8)) -> Ink {
    Ink { light: RGBColor(light.0, light.1, light.2), dark: RGBColor(dark.0, dark.1, dark.2) }
}

const PAPER: Ink = ink((255, 255, 255), (20, 23, 28));
const TEXT: Ink = ink((31, 35, 40), (230, 232, 235));
const FAINT: Ink = ink((95, 104, 116), (154, 164, 176));
const GRID: Ink = ink((227, 230, 234), (46, 52, 60));

/// One for each number of threads; further ones start anew.
const THREADS: [Ink; 5] = [
    ink((31, 111, 181), (108, 180, 245)),
    ink((184, 72, 20), (245, 154, 107)),
    ink((38, 118, 56), (120, 201, 138)),
    ink((122, 63, 160), (199, 155, 232)),
    ink((138, 106, 0), (226, 192, 84)),
];

const PLOT_WIDTH: i32 = 800;
const MIN_HEIGHT: i32 = 600;
/// Height of the head above the plot: the measurement, its place and its time.
const HEAD: i32 = 58;
const LINE_HEIGHT: i32 = 20;
const FONT: &str = "sans-serif";
const FONT_SIZE: i32 = 15;
/// About the width of a letter.
const LETTER_WIDTH: i32 = 7;
const LONGEST_NAME: usize = 52;

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Point = (i32, i32);
type Drawn<'a> = Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>>;

/// Draws a run.
pub(super) fn svg(run: &Run) -> Result<String> {
    let picture = Picture::new(run)?;
    let mut svg = String::new();
    // The errors of the drawing library borrow from what they are about.
    picture.draw(&mut svg).map_err(|error| anyhow!("the plot cannot be drawn: {error}"))?;
    let head = svg.find("<svg").and_then(|at| svg[at..].find('>').map(|end| at + end + 1));
    if let Some(head) = head {
        svg.insert_str(head, &style_sheet());
    }
    Ok(svg)
}

/// Gives every colour its counterpart for readers who prefer dark pages.
fn style_sheet() -> String {
    let mut rules = String::new();
    for Ink { light, dark } in [PAPER, TEXT, FAINT, GRID].iter().chain(&THREADS) {
        let code = |RGBColor(r, g, b): &RGBColor| format!("#{r:02X}{g:02X}{b:02X}");
        for attribute in ["fill", "stroke"] {
            let _ = write!(rules, "[{attribute}=\"{}\"]{{{attribute}:{}}}", code(light), code(dark));
        }
    }
    format!("\n<style>@media (prefers-color-scheme:dark){{{rules}}}</style>")
}

/// The parts of the drawing and their places.
struct Picture<'a> {
    run: &'a Run,
    /// The numbers of threads.
    threads: Vec<usize>,
    /// The names of the cases, in the order of their numbers.
    names: Vec<&'a str>,
    /// The same in the room of the list.
    short: Short,
    bytes: Range<f64>,
    rates: Range<f64>,
}

impl<'a> Picture<'a> {
    fn new(run: &'a Run) -> Result<Self> {
        let mut names: Vec<&str> = Vec::new();
        let mut threads: Vec<usize> = run.ceilings.iter().map(|ceiling| ceiling.threads).collect();
        for case in run.cases.iter().filter(|case| is_drawn(case)) {
            threads.push(case.threads);
            if !names.contains(&case.name.as_str()) {
                names.push(&case.name);
            }
        }
        ensure!(!names.is_empty(), "there is nothing to draw: no case moves a byte");
        threads.sort_unstable();
        threads.dedup();
        let cases = || run.cases.iter().filter(|case| is_drawn(case));
        let bytes = cases().map(|case| case.bytes.bytes() as f64);
        let bytes = bytes.chain(run.ceilings.iter().map(|ceiling| ceiling.bytes as f64));
        let rates = cases().flat_map(quartiles).chain(run.ceilings.iter().map(|c| c.gb_per_second()));
        let (bytes, rates) = (around(bytes, 1.6), around(rates, 1.3));
        let short = Short::new(names.iter().copied(), LONGEST_NAME);
        Ok(Self { run, threads, names, short, bytes, rates })
    }

    fn ink(&self, threads: usize) -> &'static RGBColor {
        let at = self.threads.iter().position(|&known| known == threads).unwrap_or(0);
        &THREADS[at % THREADS.len()].light
    }

    /// Width of the list of cases, and height of the picture.
    fn size(&self) -> (i32, i32) {
        let longest = self.names.iter().map(|name| self.short.of(name).chars().count()).max().unwrap_or(0);
        let columns = 48 * self.threads.len() as i32;
        let width = (30 + LETTER_WIDTH * longest as i32 + columns).max(260) + 16;
        let lines = 5 + 2 * self.threads.len() + self.names.len();
        (width, HEAD + MIN_HEIGHT.max(LINE_HEIGHT * lines as i32 + 40))
    }

    fn draw<'s>(&self, svg: &'s mut String) -> Drawn<'s> {
        let (list_width, height) = self.size();
        let size = ((PLOT_WIDTH + list_width) as u32, height as u32);
        let root = SVGBackend::with_string(svg, size).into_drawing_area();
        root.fill(&PAPER.light)?;
        self.draw_head(&root)?;
        let (plot, list) = root.split_vertically(HEAD).1.split_horizontally(PLOT_WIDTH);
        let mut chart = ChartBuilder::on(&plot)
            .margin(14)
            .x_label_area_size(48)
            .y_label_area_size(56)
            .build_cartesian_2d(
                self.bytes.clone().log_scale().base(2.0).with_key_points(powers_of_four(&self.bytes)),
                self.rates.clone().log_scale().with_key_points(round_numbers(&self.rates)),
            )?;
        chart
            .configure_mesh()
            .x_desc("bytes that one execution reads and writes")
            .y_desc("GB/s")
            .x_label_formatter(&|bytes| sterna_inspect::size(*bytes as usize))
            .y_label_formatter(&|rate| format!("{rate}"))
            .label_style((FONT, FONT_SIZE, &TEXT.light))
            .axis_desc_style((FONT, FONT_SIZE + 1, &TEXT.light))
            .axis_style(FAINT.light)
            .bold_line_style(GRID.light)
            .light_line_style(TRANSPARENT)
            .draw()?;

        let mut taken: Vec<Box> = Vec::new();
        let plot = chart.plotting_area().get_pixel_range();
        self.draw_caches(
            &root,
            &plot,
            |bytes| chart.backend_coord(&(bytes, self.rates.start)).0,
            &mut taken,
        )?;
        for &threads in &self.threads {
            let ceilings = self.run.ceilings.iter().filter(|ceiling| ceiling.threads == threads);
            let line: Vec<(f64, f64)> =
                ceilings.map(|ceiling| (ceiling.bytes as f64, ceiling.gb_per_second())).collect();
            let pixels: Vec<Point> = line.iter().map(|point| chart.backend_coord(point)).collect();
            taken.extend(pixels.windows(2).flat_map(|pair| along(pair[0], pair[1])));
            chart.draw_series(LineSeries::new(line, self.ink(threads).stroke_width(2)))?;
        }
        self.draw_cases(&root, plot.1, |bytes, rate| chart.backend_coord(&(bytes, rate)), taken)?;
        self.draw_list(&list)?;
        root.present()
    }

    /// Draws a line for the size of each cache, at the column that `column` gives for bytes.
    fn draw_caches<'s>(
        &self,
        root: &Area<'s>,
        (across, down): &(Range<i32>, Range<i32>),
        column: impl Fn(f64) -> i32,
        taken: &mut Vec<Box>,
    ) -> Drawn<'s> {
        for (level, &cache) in self.run.machine.caches.iter().enumerate() {
            if !self.bytes.contains(&(cache as f64)) {
                continue;
            }
            let x = column(cache as f64);
            let dashes = down.clone().step_by(8).map(|y| [(x, y), (x, (y + 3).min(down.end))]);
            for dash in dashes {
                root.draw(&PathElement::new(dash, FAINT.light))?;
            }
            let label = format!("L{} {}", level + 1, sterna_inspect::size(cache));
            let width = label.len() as i32 * LETTER_WIDTH;
            // Beside the line within the plot.
            let is_right = x + width < across.end;
            let (start, side) = if is_right { (x + 4, HPos::Left) } else { (x - 4, HPos::Right) };
            let line = down.end - 12;
            text(root, &label, (start, line), &FAINT.light, side)?;
            let middle = if is_right { start + width / 2 } else { start - width / 2 };
            taken.push(Box::at((middle, line), width, 14));
        }
        Ok(())
    }

    /// Draws each case as a dot with its quartiles, at the point that `point` gives for bytes and a rate, and
    /// its number where nothing is `taken`.
    fn draw_cases<'s>(
        &self,
        root: &Area<'s>,
        down: Range<i32>,
        point: impl Fn(f64, f64) -> Point,
        mut taken: Vec<Box>,
    ) -> Drawn<'s> {
        let mut points = Vec::new();
        for case in self.run.cases.iter().filter(|case| is_drawn(case)) {
            let of_rate = |rate| point(case.bytes.bytes() as f64, rate);
            let at = of_rate(case.gb_per_second());
            taken.push(Box::at(at, 10, 10));
            let [low, high] = quartiles(case).map(of_rate);
            taken.extend(along(high, low));
            points.push((case, at, [low, high]));
        }
        for (case, _, ends) in &points {
            let colour = self.ink(case.threads);
            root.draw(&PathElement::new(*ends, colour.stroke_width(1)))?;
            for (x, y) in ends {
                root.draw(&PathElement::new([(x - 3, *y), (x + 3, *y)], colour.stroke_width(1)))?;
            }
        }
        for (case, at, _) in &points {
            let number = self.names.iter().position(|name| *name == case.name).map_or(0, |at| at + 1);
            let label = number.to_string();
            let width = 2 + LETTER_WIDTH * label.len() as i32;
            let place = free_place(*at, width, &taken, (down.start, down.end));
            let colour = self.ink(case.threads);
            if far_apart(*at, place) {
                root.draw(&PathElement::new([*at, place], FAINT.light))?;
            }
            // A rim parts points that overlap.
            root.draw(&Circle::new(*at, 5, PAPER.light.filled()))?;
            root.draw(&Circle::new(*at, 4, colour.filled()))?;
            text(root, &label, place, colour, HPos::Center)?;
            taken.push(Box::at(place, width, 13));
        }
        Ok(())
    }

    /// The head of the chart: the measurement, its place and its time.
    fn draw_head<'s>(&self, root: &Area<'s>) -> Drawn<'s> {
        let Run { subject, machine, sterna, level, date, .. } = self.run;
        let title = (FONT, 18).into_font().style(FontStyle::Bold).color(&TEXT.light);
        root.draw_text(subject, &title.pos(Pos::new(HPos::Left, VPos::Center)), (16, 22))?;
        let when = if date.is_empty() { String::new() } else { format!(" · {date}") };
        let facts = format!("{machine} · sterna {sterna}, level {level}{when}");
        text(root, &facts, (16, 44), &FAINT.light, HPos::Left)
    }

    /// The meaning of colours and numbers.
    fn draw_list<'s>(&self, list: &Area<'s>) -> Drawn<'s> {
        let (width, _) = self.size();
        let mut y = 28;
        for &threads in &self.threads {
            let colour = self.ink(threads);
            list.draw(&PathElement::new([(4, y), (24, y)], colour.stroke_width(2)))?;
            text(
                list,
                &format!("streaming limit, {}", counted(threads, "thread")),
                (32, y),
                &TEXT.light,
                HPos::Left,
            )?;
            let (high, low) = ((14, y + LINE_HEIGHT - 8), (14, y + LINE_HEIGHT + 8));
            list.draw(&PathElement::new([high, low], colour.stroke_width(1)))?;
            list.draw(&Circle::new((14, y + LINE_HEIGHT), 4, colour.filled()))?;
            text(
                list,
                &format!("cases and quartiles, {}", counted(threads, "thread")),
                (32, y + LINE_HEIGHT),
                &TEXT.light,
                HPos::Left,
            )?;
            y += 2 * LINE_HEIGHT;
        }
        y += LINE_HEIGHT;
        let column = |at: usize| width - 16 - 48 * (self.threads.len() - 1 - at) as i32;
        text(list, "GB/s", (column(self.threads.len() - 1), y), &FAINT.light, HPos::Right)?;
        for (number, name) in self.names.iter().enumerate() {
            y += LINE_HEIGHT;
            text(list, &(number + 1).to_string(), (20, y), &FAINT.light, HPos::Right)?;
            text(list, self.short.of(name), (28, y), &TEXT.light, HPos::Left)?;
            for case in self.run.cases.iter().filter(|case| case.name == *name && is_drawn(case)) {
                let at = self.threads.iter().position(|&threads| threads == case.threads).unwrap_or(0);
                text(
                    list,
                    &rate(case.gb_per_second()),
                    (column(at), y),
                    self.ink(case.threads),
                    HPos::Right,
                )?;
            }
        }
        Ok(())
    }
}

fn text<'s>(area: &Area<'s>, text: &str, at: Point, colour: &RGBColor, side: HPos) -> Drawn<'s> {
    let style = (FONT, FONT_SIZE).into_font().color(colour).pos(Pos::new(side, VPos::Center));
    area.draw_text(text, &style, at)
}

fn is_drawn(case: &Case) -> bool {
    case.bytes.bytes() > 0
}

/// The rates of the slower and of the faster quartile.
fn quartiles(case: &Case) -> [f64; 2] {
    [case.seconds.upper, case.seconds.lower].map(|seconds| case.bytes.bytes() as f64 / seconds / 1e9)
}

/// From below the least to above the largest, by a factor.
fn around(values: impl Iterator<Item = f64>, factor: f64) -> Range<f64> {
    let (least, most) = values.fold((f64::INFINITY, 0.0f64), |(a, b), value| (a.min(value), b.max(value)));
    least / factor..most * factor
}

fn powers_of_four(range: &Range<f64>) -> Vec<f64> {
    (0..32).map(|power| 4f64.powi(power)).filter(|bytes| range.contains(bytes)).collect()
}

fn round_numbers(range: &Range<f64>) -> Vec<f64> {
    let decades = (-6..9).flat_map(|power| {
        [1.0, 2.0, 5.0].map(|digit: f64| {
            // Divided if it is small, so that it reads as it is written.
            if power < 0 { digit / 10f64.powi(-power) } else { digit * 10f64.powi(power) }
        })
    });
    decades.filter(|rate| range.contains(rate)).collect()
}

/// The room of a label, or an area that labels must not cover.
#[derive(Debug, Clone, Copy)]
struct Box {
    x: Range32,
    y: Range32,
}

#[derive(Debug, Clone, Copy)]
struct Range32 {
    from: i32,
    to: i32,
}

impl Range32 {
    fn around(middle: i32, width: i32) -> Self {
        Self { from: middle - width / 2, to: middle + width / 2 }
    }

    fn shared(self, other: Self) -> i32 {
        (self.to.min(other.to) - self.from.max(other.from)).max(0)
    }
}

impl Box {
    fn at((x, y): Point, width: i32, height: i32) -> Self {
        Self { x: Range32::around(x, width), y: Range32::around(y, height) }
    }

    fn shared(self, other: Self) -> i32 {
        self.x.shared(other.x) * self.y.shared(other.y)
    }
}

/// Small boxes along a line.
fn along(from: Point, to: Point) -> impl Iterator<Item = Box> {
    let steps = ((to.0 - from.0).abs().max((to.1 - from.1).abs()) / 4).max(1);
    let between = move |a: i32, b: i32, step: i32| a + (b - a) * step / steps;
    (0..steps).map(move |step| Box::at((between(from.0, to.0, step), between(from.1, to.1, step)), 4, 4))
}

/// Where the label of a point covers least, near it rather than far from it.
fn free_place((x, y): Point, width: i32, taken: &[Box], (top, bottom): (i32, i32)) -> Point {
    const DIRECTIONS: i32 = 16;
    let places = [12, 18, 26, 36, 48].into_iter().flat_map(|distance: i32| {
        (0..DIRECTIONS).map(move |direction| {
            let angle = std::f64::consts::TAU * f64::from(direction) / f64::from(DIRECTIONS);
            let (far, wide) = (f64::from(distance), f64::from(width) / 2.0);
            (distance, (x + ((far + wide - 6.0) * angle.cos()) as i32, y - (far * angle.sin()) as i32))
        })
    });
    let cost = |(distance, place): &(i32, Point)| {
        let label = Box::at(*place, width, 13);
        let covered: i32 = taken.iter().map(|other| label.shared(*other)).sum();
        let is_out = place.1 < top + 7 || place.1 > bottom - 7;
        covered * 8 + distance + if is_out { 10_000 } else { 0 }
    };
    places.min_by_key(cost).map_or((x, y - 12), |(_, place)| place)
}

fn far_apart(a: Point, b: Point) -> bool {
    (a.0 - b.0).pow(2) + (a.1 - b.1).pow(2) > 24 * 24
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_get_out_of_each_others_way() {
        let at = (100, 100);
        let mut taken = vec![Box::at(at, 10, 10)];
        for label in 0..12 {
            let place = free_place(at, 16, &taken, (0, 200));
            let own = Box::at(place, 16, 13);
            assert_eq!(
                taken.iter().map(|other| own.shared(*other)).sum::<i32>(),
                0,
                "label {label} at {place:?}"
            );
            taken.push(own);
        }
    }

    #[test]
    fn axes_have_round_numbers() {
        assert_eq!(powers_of_four(&(3.0..70.0)), [4.0, 16.0, 64.0]);
        assert_eq!(round_numbers(&(0.04..3.0)), [0.05, 0.1, 0.2, 0.5, 1.0, 2.0]);
    }
}
