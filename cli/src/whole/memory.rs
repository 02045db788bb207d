//! Memory of the process, where the system tells it.

/// The most bytes that the process had in memory at once.
#[cfg(target_os = "linux")]
pub(crate) fn peak() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    peak_in(&status)
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn peak() -> Option<u64> {
    None
}

/// The peak in the text in which Linux tells the state of a process.
#[cfg(any(target_os = "linux", test))]
fn peak_in(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_found_in_the_state_of_a_process() {
        let rows = [
            ("Name:\tsterna\nVmHWM:\t   12 kB\nVmRSS:\t 4 kB\n", Some(12 * 1024)),
            ("VmRSS:\t 4 kB\n", None),
            ("VmHWM:\t x kB\n", None),
            ("", None),
        ];
        let wrong: Vec<_> = rows.iter().filter(|(text, expected)| peak_in(text) != *expected).collect();
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}
