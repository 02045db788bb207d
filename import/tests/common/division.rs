//! Whole numbers of every width at their edges, and what division makes of each two of them.
#![allow(dead_code, reason = "each file of tests uses a part")]

use sterna::DataType;
use sterna::reference::Value;

/// A type of whole numbers, as the formats name it.
pub(crate) struct Whole {
    pub(crate) data_type: DataType,
    pub(crate) openvino: &'static str,
    pub(crate) onnx: i64,
    bits: u32,
    is_signed: bool,
}

const fn whole(data_type: DataType, openvino: &'static str, onnx: i64, bits: u32, is_signed: bool) -> Whole {
    Whole { data_type, openvino, onnx, bits, is_signed }
}

pub(crate) const WHOLE: [Whole; 8] = [
    whole(DataType::S8, "I8", 3, 8, true),
    whole(DataType::S16, "I16", 5, 16, true),
    whole(DataType::S32, "I32", 6, 32, true),
    whole(DataType::S64, "I64", 7, 64, true),
    whole(DataType::U8, "U8", 2, 8, false),
    whole(DataType::U16, "U16", 4, 16, false),
    whole(DataType::U32, "U32", 12, 32, false),
    whole(DataType::U64, "U64", 13, 64, false),
];

/// A function of two whole numbers before it wraps around; by 0 all of them are 0.
pub(crate) type Of = fn(i128, i128) -> i128;

pub(crate) const CUT_QUOTIENT: Of = |a, b| if b == 0 { 0 } else { a / b };
pub(crate) const CUT_REMAINDER: Of = |a, b| if b == 0 { 0 } else { a % b };
pub(crate) const FLOORED_QUOTIENT: Of = |a, b| match b {
    0 => 0,
    _ => a / b - i128::from(a % b != 0 && (a < 0) != (b < 0)),
};
pub(crate) const FLOORED_REMAINDER: Of = |a, b| a - b * FLOORED_QUOTIENT(a, b) - if b == 0 { a } else { 0 };

impl Whole {
    /// Numbers at the edges of the type, and small ones.
    fn edges(&self) -> Vec<i128> {
        let (least, most) = match self.is_signed {
            true => (-(1i128 << (self.bits - 1)), (1i128 << (self.bits - 1)) - 1),
            false => (0, (1i128 << self.bits) - 1),
        };
        let all = [
            least,
            least + 1,
            -7,
            -5,
            -2,
            -1,
            0,
            1,
            2,
            3,
            5,
            7,
            most / 2,
            most / 2 + 1,
            most / 2 + 2,
            most - 1,
            most,
        ];
        all.into_iter().filter(|x| (least..=most).contains(x)).collect()
    }

    /// Each pair of edges.
    pub(crate) fn pairs(&self) -> Vec<(i128, i128)> {
        let edges = self.edges();
        edges.iter().flat_map(|&a| edges.iter().map(move |&b| (a, b))).collect()
    }

    fn wrapped(&self, x: i128) -> i128 {
        let low = x & ((1 << self.bits) - 1);
        if self.is_signed && low >> (self.bits - 1) == 1 { low - (1 << self.bits) } else { low }
    }

    pub(crate) fn value(&self, numbers: impl Iterator<Item = i128>) -> Value {
        let size = self.bits as usize / 8;
        let bytes: Vec<u8> = numbers
            .flat_map(|x| match cfg!(target_endian = "big") {
                true => x.to_be_bytes()[16 - size..].to_vec(),
                false => x.to_le_bytes()[..size].to_vec(),
            })
            .collect();
        Value::new(self.data_type, &[(bytes.len() / size) as i64], bytes).unwrap()
    }

    /// Faults of a result for all pairs.
    pub(crate) fn wrong(&self, name: &str, result: &Value, of: Of) -> Vec<String> {
        let size = self.bits as usize / 8;
        let number = |bytes: &[u8]| {
            let mut digits: Vec<u8> = bytes.to_vec();
            if cfg!(target_endian = "little") {
                digits.reverse();
            }
            self.wrapped(digits.iter().fold(0, |number, &digit| number << 8 | i128::from(digit)))
        };
        if result.data_type() != self.data_type || result.bytes().len() != size * self.pairs().len() {
            return vec![format!("{name} of {}: {result:?}", self.data_type)];
        }
        let found = result.bytes().chunks_exact(size).map(number);
        let pairs = self.pairs().into_iter().zip(found);
        let differ = pairs.filter(|((a, b), found)| *found != self.wrapped(of(*a, *b)));
        differ
            .map(|((a, b), found)| {
                let expected = self.wrapped(of(a, b));
                format!("{name} of {} {a} and {b}: {found}, not {expected}", self.data_type)
            })
            .collect()
    }
}
