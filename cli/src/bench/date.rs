//! The day on which a run was made.

use std::time::{SystemTime, UNIX_EPOCH};

/// Today in UTC, as `2026-11-24`; empty if the clock is before 1970.
pub(crate) fn today() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or_else(|_| String::new(), |since| date(since.as_secs() / 86_400))
}

/// The date of a day, counted from the first of January 1970, by the Gregorian calendar.
fn date(day: u64) -> String {
    // From March on, the leap day is the last day of a year, and a year starts where a cycle of months does.
    let day = day + 719_468;
    let (era, day) = (day / 146_097, day % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = 400 * era + year + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_follow_the_calendar() {
        let rows = [
            (0, "1970-01-01"),
            (58, "1970-02-28"),
            (59, "1970-03-01"),
            (11_016, "2000-02-29"),
            (11_017, "2000-03-01"),
            (20_781, "2026-11-24"),
            (47_540, "2100-02-28"),
            (47_541, "2100-03-01"),
        ];
        let wrong: Vec<_> = rows.iter().filter(|(day, expected)| date(*day) != *expected).collect();
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}
