//! A progress bar on standard error with the time that is left, and whether the user pressed Ctrl-C.

use std::process;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::command_error::INTERRUPTED;

static IS_INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// A bar in microseconds, without colours; nothing is drawn if standard error is no terminal.
pub(crate) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// From now on Ctrl-C ends a run after the round at hand; a second one ends the process.
    pub(crate) fn new(total: Duration) -> Self {
        static HANDLER: Once = Once::new();
        HANDLER.call_once(|| {
            let handler = || {
                if IS_INTERRUPTED.swap(true, Ordering::Relaxed) {
                    process::exit(INTERRUPTED.into());
                }
            };
            // Without a handler Ctrl-C ends the process, which leaves the terminal as it was too.
            let _ = ctrlc::set_handler(handler);
        });
        let bar = ProgressBar::with_draw_target(Some(micros(total)), ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{bar:24} {percent:>3} %, {eta} left  {wide_msg}");
        Self { bar: bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar())) }
    }

    pub(crate) fn begin(&self, name: String) {
        self.bar.set_message(name);
    }

    /// The bar ends at its end however long the last rounds take.
    pub(crate) fn advance(&self, time: Duration) {
        let left = self.bar.length().unwrap_or(0).saturating_sub(self.bar.position());
        self.bar.inc(micros(time).min(left));
    }

    pub(crate) fn is_interrupted(&self) -> bool {
        IS_INTERRUPTED.load(Ordering::Relaxed)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
