//! Times and sizes in units that suit.

use std::fmt::{self, Display, Formatter};

/// Seconds in a unit that suits.
#[derive(Debug, Clone, Copy)]
pub struct Time(pub f64);

impl Display for Time {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            s if s < 1e-6 => write!(f, "{:.1} ns", s * 1e9),
            s if s < 1e-3 => write!(f, "{:.2} µs", s * 1e6),
            s if s < 1.0 => write!(f, "{:.2} ms", s * 1e3),
            s => write!(f, "{s:.2} s"),
        }
    }
}

/// Bytes in a unit that suits.
#[must_use]
pub fn size(bytes: usize) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    let mut number = bytes as f64;
    let mut unit = "B";
    for larger in UNITS {
        if number < 1024.0 {
            break;
        }
        (number, unit) = (number / 1024.0, larger);
    }
    match number {
        number if number.fract() == 0.0 || number >= 100.0 => format!("{number:.0} {unit}"),
        number => format!("{number:.1} {unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_the_digits_that_matter() {
        let time = |seconds| Time(seconds).to_string();
        let rows = [
            (time(4.25e-8), "42.5 ns"),
            (time(3.456e-5), "34.56 µs"),
            (time(0.0123), "12.30 ms"),
            (time(2.0), "2.00 s"),
            (size(0), "0 B"),
            (size(208), "208 B"),
            (size(4096), "4 KiB"),
            (size(5000), "4.9 KiB"),
            (size(218_103_808), "208 MiB"),
            (size(5 << 40), "5 TiB"),
        ];
        let wrong: Vec<_> = rows.iter().filter(|(given, expected)| given != expected).collect();
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}
