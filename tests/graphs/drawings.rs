//! The drawings of the guide, `docs/guide/broadcast-*.svg`: the four ways in which the operands of a select
//! broadcast, with results of the reference interpreter.
//!
//! With `STERNA_REWRITE` set in the environment, they are written anew.

use std::fmt::Write;

use crate::common::{Golden, report};
use sterna::reference::{self, Value};
use sterna::{AutoBroadcast, DataType, LogicalTensor, Op};

/// A select onto {2,3}; each operand with its dims and the dim of the result at which they begin.
struct Drawing {
    mode: AutoBroadcast,
    axis: Option<i64>,
    operands: [(&'static [i64], usize); 3],
}

const DRAWINGS: [Drawing; 4] = [
    Drawing { mode: AutoBroadcast::None, axis: None, operands: [(&[2, 3], 0), (&[2, 3], 0), (&[2, 3], 0)] },
    Drawing { mode: AutoBroadcast::Numpy, axis: None, operands: [(&[3], 1), (&[2, 1], 0), (&[3], 1)] },
    Drawing { mode: AutoBroadcast::Pdpd, axis: Some(0), operands: [(&[2], 0), (&[2, 3], 0), (&[2, 1], 0)] },
    Drawing {
        mode: AutoBroadcast::Multidirectional,
        axis: None,
        operands: [(&[2, 1], 0), (&[3], 1), (&[], 2)],
    },
];

const RESULT: [usize; 2] = [2, 3];
const COND: [u8; 6] = [1, 0, 1, 0, 1, 1];
const THEN: [f32; 6] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
const ELSE: [f32; 6] = [-1.0, -2.0, -3.0, -4.0, -5.0, -6.0];

/// Sizes of the drawing.
const CELL: usize = 36;
const GAP: usize = 40;
const MARGIN: usize = 14;
const PANEL: usize = CELL * RESULT[1];
const WIDTH: usize = 4 * PANEL + 3 * GAP + 2 * MARGIN;
const HEIGHT: usize = CELL * RESULT[0] + 2 * MARGIN + 22;

/// The fill of a cell.
const TRUE: &str = "#a8d5a2";
const FALSE: &str = "#d5d8dc";
const FROM_THEN: &str = "#a9c8ee";
const FROM_ELSE: &str = "#f2cf95";

/// A cell of a panel: its text, its colour, and whether it is an element that the operand has, not a repeated
/// one.
type Cell = (String, &'static str, bool);

impl Drawing {
    /// The element of an operand that stands at an index of the result, and whether it is there for the first
    /// time.
    fn element(&self, operand: usize, index: [usize; 2]) -> (usize, bool) {
        let (dims, start) = self.operands[operand];
        let (mut at, mut is_first) = (0, true);
        for (axis, &i) in index.iter().enumerate() {
            let dim = axis.checked_sub(start).and_then(|own| dims.get(own)).copied().unwrap_or(1) as usize;
            at = at * dim + if dim == 1 { 0 } else { i };
            is_first &= dim > 1 || i == 0;
        }
        (at, is_first)
    }

    fn result(&self) -> Vec<f32> {
        let unknown = LogicalTensor::unknown;
        let (cond, data) = (unknown(0, DataType::Boolean), DataType::F32);
        let op = Op::select(0, cond, unknown(1, data), unknown(2, data), unknown(3, data));
        let op = op.auto_broadcast(self.mode);
        let op = match self.axis {
            Some(axis) => op.axis(axis),
            None => op,
        };
        let count = |operand: usize| self.operands[operand].0.iter().product::<i64>() as usize;
        let dims = |operand: usize| self.operands[operand].0;
        let values = [
            Value::from_slice(dims(0), &COND[..count(0)].iter().map(|&c| c != 0).collect::<Vec<_>>()),
            Value::from_slice(dims(1), &THEN[..count(1)]),
            Value::from_slice(dims(2), &ELSE[..count(2)]),
        ]
        .map(|value| value.expect("the operands are sound"));
        reference::run(&op, &values).expect("the operands broadcast")[0].elements().expect("they are f32")
    }

    /// The cells of the three operands and of the result, row by row.
    fn panels(&self) -> [Vec<Cell>; 4] {
        let result = self.result();
        let mut panels = [const { Vec::new() }; 4];
        for (row, column) in (0..RESULT[0]).flat_map(|row| (0..RESULT[1]).map(move |column| (row, column))) {
            let element = |operand: usize| self.element(operand, [row, column]);
            let [cond, then, else_] = [0, 1, 2].map(element);
            let is_true = COND[cond.0] != 0;
            let number = |x: f32| x.to_string().replace('-', "−");
            panels[0].push((COND[cond.0].to_string(), if is_true { TRUE } else { FALSE }, cond.1));
            panels[1].push((number(THEN[then.0]), FROM_THEN, then.1));
            panels[2].push((number(ELSE[else_.0]), FROM_ELSE, else_.1));
            let value = result[row * RESULT[1] + column];
            panels[3].push((number(value), if value > 0.0 { FROM_THEN } else { FROM_ELSE }, true));
        }
        panels
    }

    /// Positions of the result that are not what the drawing shows of the operands.
    fn wrong(&self) -> Vec<String> {
        let [cond, then, else_, dst] = self.panels();
        let chosen = (0..dst.len()).map(|i| if cond[i].0 == "1" { &then[i] } else { &else_[i] });
        let both = chosen.zip(&dst).enumerate();
        both.filter(|(_, (chosen, dst))| (&chosen.0, chosen.1) != (&dst.0, dst.1))
            .map(|(i, pair)| format!("{}, {i}: {pair:?}", self.mode.name()))
            .collect()
    }

    fn svg(&self) -> String {
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
             viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" text-anchor=\"middle\">\n\
             <title>{}</title>\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" rx=\"6\" fill=\"#fff\"/>\n",
            self.mode.name()
        );
        let shape = |operand: usize| {
            let dims: Vec<String> = self.operands[operand].0.iter().map(i64::to_string).collect();
            format!("{{{}}}", dims.join(","))
        };
        let names = [
            format!("cond {}", shape(0)),
            format!("then {}", shape(1)),
            format!("else {}", shape(2)),
            "dst {2,3}".into(),
        ];
        for (i, (cells, name)) in self.panels().iter().zip(names).enumerate() {
            let left = MARGIN + i * (PANEL + GAP);
            for (at, (text, fill, is_own)) in cells.iter().enumerate() {
                let (x, y) = (left + at % RESULT[1] * CELL, MARGIN + at / RESULT[1] * CELL);
                let (style, opacity) = if *is_own {
                    ("stroke=\"#333\"", "1")
                } else {
                    ("stroke=\"#999\" stroke-dasharray=\"3 3\"", "0.3")
                };
                let _ = write!(
                    svg,
                    "<rect x=\"{x}\" y=\"{y}\" width=\"{CELL}\" height=\"{CELL}\" fill=\"{fill}\" \
                     fill-opacity=\"{opacity}\" {style}/>"
                );
                let (x, y, ink) = (x + CELL / 2, y + CELL / 2 + 5, if *is_own { "#000" } else { "#888" });
                let _ =
                    writeln!(svg, "<text x=\"{x}\" y=\"{y}\" font-size=\"15\" fill=\"{ink}\">{text}</text>");
            }
            let (x, y) = (left + PANEL / 2, MARGIN + CELL * RESULT[0] + 20);
            let _ = writeln!(svg, "<text x=\"{x}\" y=\"{y}\" font-size=\"14\">{name}</text>");
            if let Some(sign) = ["?", ":", "="].get(i) {
                let (x, y) = (left + PANEL + GAP / 2, MARGIN + CELL + 6);
                let _ = writeln!(svg, "<text x=\"{x}\" y=\"{y}\" font-size=\"20\">{sign}</text>");
            }
        }
        svg + "</svg>\n"
    }
}

#[test]
fn the_drawings_of_the_guide_are_those_of_the_source() {
    let wrong: Vec<_> = DRAWINGS
        .iter()
        .flat_map(|drawing| {
            let file = Golden::at(&format!("docs/guide/broadcast-{}.svg", drawing.mode.name()));
            file.differs_from(&drawing.svg())
        })
        .collect();
    report(&wrong);
}

#[test]
fn the_drawings_show_what_the_interpreter_gives() {
    report(&DRAWINGS.iter().flat_map(Drawing::wrong).collect::<Vec<_>>());
}
