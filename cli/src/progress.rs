//! How far a run has come: verdicts on standard output as soon as they are there, the op at hand on standard
//! error, and what Ctrl-C makes of it.

use std::process;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use sterna::{Op, Partition};

use crate::command_error::{CommandError, INTERRUPTED};
use crate::report::{PartitionReport, Report};
use crate::table::Form;
use crate::terminal::{print, say};

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
    /// The partition at hand, and the op of it whose reference is computed.
    at: Option<(usize, Option<String>)>,
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

    /// Names the partition that runs next.
    pub(crate) fn begins(&self, partition: &Partition) {
        self.bar.set_message(format!("partition {}", partition.id()));
        locked(&self.shared).at = Some((partition.id(), None));
    }

    /// Names the op whose reference is computed next.
    pub(crate) fn at(&self, partition: &Partition, op: &Op) {
        let op = format!("{} (op {})", op.kind(), op.id());
        if self.lines {
            say("progress", format!("partition {}, {op}", partition.id()));
        }
        self.bar.set_message(format!("partition {}, {op}", partition.id()));
        self.bar.inc(1);
        locked(&self.shared).at = Some((partition.id(), Some(op)));
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
        let at = match &self.at {
            Some((partition, Some(op))) => format!(" in partition {partition}, {op}"),
            Some((partition, None)) => format!(" in partition {partition}"),
            None => String::new(),
        };
        let what = format!("interrupted{at}; {done} of {all} partitions had ended, and no file was written");
        report.failures.push(what);
        if self.form != Form::Text
            && let Ok(text) = report.text(self.form)
        {
            let _ = print(&text);
        }
        report.failures.iter().for_each(|failure| say("error", failure));
    }
}

fn locked(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
