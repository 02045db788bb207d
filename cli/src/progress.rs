//! How far a run has come: verdicts on standard output as soon as they are there, the op at hand on standard
//! error, and what Ctrl-C makes of it.

use std::process;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use sterna::{Op, Partition};

use crate::command_error::{CommandError, INTERRUPTED};
use crate::form::Form;
use crate::report::{PartitionReport, Report};
use crate::terminal::{print, say};
use crate::whole::WholeReport;

/// How often the bar turns while an op takes long.
const TICK: Duration = Duration::from_millis(200);

/// A run under way.
pub(crate) struct RunProgress {
    bar: ProgressBar,
    /// Ops are named in lines, since no terminal shows the bar.
    lines: bool,
    shared: Arc<Mutex<Shared>>,
}

/// The knowledge that the run shares with the handler of Ctrl-C.
struct Shared {
    /// None once the run has ended.
    report: Option<Report>,
    form: Form,
    partitions: usize,
    /// The work at hand: a partition, perhaps with the op of it whose reference is computed, or the whole
    /// graph.
    at: Option<String>,
}

impl RunProgress {
    /// Begins a run. The bar is drawn if standard error is a terminal; if it is none and `is_asked`, lines
    /// tell the same.
    pub(crate) fn begin(
        report: Report,
        form: Form,
        partitions: &[Partition],
        is_asked: bool,
    ) -> Result<Self, CommandError> {
        let ops: usize = partitions.iter().map(|partition| partition.ops().len()).sum();
        let bar = ProgressBar::with_draw_target(Some(ops as u64), ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{bar:24} {pos} of {len} ops, {elapsed}  {wide_msg}");
        let bar = bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.enable_steady_tick(TICK);
        if form == Form::Text {
            print(&report.heading())?;
        }
        let shared = Shared { report: Some(report), form, partitions: partitions.len(), at: None };
        let lines = is_asked && bar.is_hidden();
        let progress = Self { bar, lines, shared: Arc::new(Mutex::new(shared)) };
        let (bar, shared) = (progress.bar.clone(), progress.shared.clone());
        // Without a handler Ctrl-C ends the process, and verdicts in text stay printed.
        let _ = ctrlc::set_handler(move || {
            let mut shared = locked(&shared);
            bar.finish_and_clear();
            shared.interrupted();
            process::exit(INTERRUPTED.into());
        });
        Ok(progress)
    }

    /// Says that the graph runs as a whole.
    pub(crate) fn begins_whole(&self) {
        self.is_at("the graph as a whole".into());
    }

    /// Keeps what is known so far of the graph as a whole.
    pub(crate) fn whole(&self, whole: WholeReport) {
        if let Some(report) = &mut locked(&self.shared).report {
            report.whole = Some(whole);
        }
    }

    /// Keeps why the graph does not run as a whole.
    pub(crate) fn not_whole(&self, why: String) {
        if let Some(report) = &mut locked(&self.shared).report {
            (report.whole, report.not_whole) = (None, Some(why));
        }
    }

    /// Names the partition that runs next.
    pub(crate) fn begins(&self, partition: &Partition) {
        self.is_at(format!("partition {}", partition.id()));
    }

    fn is_at(&self, what: String) {
        self.bar.set_message(what.clone());
        locked(&self.shared).at = Some(what);
    }

    /// Names the op whose reference is computed next.
    pub(crate) fn at(&self, partition: &Partition, op: &Op) {
        let at = format!("partition {}, {} (op {})", partition.id(), op.kind(), op.id());
        if self.lines {
            say("progress", &at);
        }
        self.bar.inc(1);
        self.is_at(at);
    }

    /// Keeps the report of a partition, and prints it if it is text.
    pub(crate) fn ended(&self, partition: PartitionReport, done: usize) -> Result<(), CommandError> {
        let mut shared = locked(&self.shared);
        shared.at = None;
        self.bar.set_position(done as u64);
        if shared.form == Form::Text {
            self.bar.suspend(|| print(&format!("\n{partition}")))?;
        }
        if let Some(report) = &mut shared.report {
            report.add(partition);
        }
        Ok(())
    }

    /// Ends the run with its report.
    pub(crate) fn end(self) -> Option<Report> {
        self.bar.finish_and_clear();
        locked(&self.shared).report.take()
    }
}

impl Shared {
    /// Prints what the run found so far, and where it was.
    fn interrupted(&mut self) {
        let Some(mut report) = self.report.take() else {
            return say("error", "interrupted; every partition had ended");
        };
        let (done, all) = (report.partitions.len(), self.partitions);
        let at = self.at.as_ref().map_or_else(String::new, |at| format!(" in {at}"));
        let what = format!("interrupted{at}; {done} of {all} partitions had ended, and no file was written");
        report.failures.push(what);
        let text = match self.form {
            // Its partitions are printed already.
            Form::Text => Ok(report.whole_text()),
            form => report.text(form),
        };
        if let Ok(text) = text {
            let _ = print(&text);
        }
        report.failures.iter().for_each(|failure| say("error", failure));
    }
}

fn locked(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
