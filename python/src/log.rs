//! Spans and events of the library as records of Python's `logging`, by a logger called `sterna`.
//!
//! Records of a call are kept, and handed over when the call has the interpreter again: a handler may do
//! anything, even call the library, and no lock of the library is held then. While the logger wants no record
//! of a call, spans are never opened.

use std::cell::{Cell, RefCell};
use std::fmt::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyInt};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record as Values};
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber};

/// The levels of `logging`.
const DEBUG: u8 = 10;
const INFO: u8 = 20;

/// The most records that are kept; what comes behind them is lost.
const MAX_KEPT: usize = 10_000;

/// True if there may be records to hand over.
static HAS_TOLD: AtomicBool = AtomicBool::new(false);

static TOLD: Mutex<Vec<Told>> = Mutex::new(Vec::new());

static NEXT: AtomicU64 = AtomicU64::new(1);

thread_local! {
    /// True if the call that this thread makes wants spans.
    static WANTS_SPANS: Cell<bool> = const { Cell::new(false) };
    /// The spans that are open on this thread.
    static OPEN: RefCell<Vec<OpenSpan>> = const { RefCell::new(Vec::new()) };
    /// True while records are handed over, so that a handler that calls the library adds none of its own.
    static HANDS_OVER: Cell<bool> = const { Cell::new(false) };
}

/// A span that has begun.
struct OpenSpan {
    id: u64,
    told: Told,
    began: Instant,
}

/// A span that has ended, or an event.
struct Told {
    name: &'static str,
    level: u8,
    fields: ToldFields,
    duration: Option<Duration>,
}

/// Fields by name, and the text of an event.
#[derive(Default)]
struct ToldFields {
    message: Option<String>,
    values: Vec<(&'static str, FieldValue)>,
}

enum FieldValue {
    Number(i64),
    Text(String),
}

impl fmt::Display for FieldValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => f.write_str(text),
        }
    }
}

impl Visit for ToldFields {
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.values.push((field.name(), FieldValue::Number(value)));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.record_i64(field, i64::try_from(value).unwrap_or(i64::MAX));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.values.push((field.name(), FieldValue::Text(value.to_owned())));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.message = Some(format!("{value:?}")),
            name => self.values.push((name, FieldValue::Text(format!("{value:?}")))),
        }
    }
}

/// Keeps what the library tells.
struct Keeper;

impl Subscriber for Keeper {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        match metadata.target() {
            "sterna" => Interest::sometimes(),
            _ => Interest::never(),
        }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // Events are rare: each comes once for a plan that is made.
        *metadata.level() <= Level::INFO || WANTS_SPANS.get()
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut fields = ToldFields::default();
        span.record(&mut fields);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let told = Told { name: span.metadata().name(), level: DEBUG, fields, duration: None };
        OPEN.with_borrow_mut(|open| open.push(OpenSpan { id, told, began: Instant::now() }));
        Id::from_u64(id)
    }

    fn record(&self, span: &Id, values: &Values<'_>) {
        OPEN.with_borrow_mut(|open| {
            if let Some(open) = open.iter_mut().rfind(|open| open.id == span.into_u64()) {
                values.record(&mut open.told.fields);
            }
        });
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = ToldFields::default();
        event.record(&mut fields);
        keep(Told { name: event.metadata().name(), level: INFO, fields, duration: None });
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}

    fn try_close(&self, id: Id) -> bool {
        let closed = OPEN.with_borrow_mut(|open| {
            let place = open.iter().rposition(|open| open.id == id.into_u64());
            place.map(|place| open.remove(place))
        });
        if let Some(OpenSpan { told, began, .. }) = closed {
            keep(Told { duration: Some(began.elapsed()), ..told });
        }
        true
    }
}

fn keep(told: Told) {
    let mut all = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
    if all.len() < MAX_KEPT {
        all.push(told);
    }
    HAS_TOLD.store(true, Ordering::Release);
}

/// The logger, and what it knows of its levels.
struct Logger {
    logger: Py<PyAny>,
    /// The method that says what it wants.
    is_enabled_for: Py<PyAny>,
    /// The answers of that method, which `logging` keeps until a level changes; a look at them costs a tenth
    /// of a call.
    answers: Option<Py<PyDict>>,
    debug: Py<PyInt>,
}

static LOGGER: PyOnceLock<Logger> = PyOnceLock::new();

/// Lets the library tell, from now on.
pub(crate) fn install(py: Python<'_>) -> PyResult<()> {
    let logging = py.import("logging")?;
    let logger = logging.call_method1("getLogger", ("sterna",))?;
    // A library is silent until its user asks.
    logger.call_method1("addHandler", (logging.call_method0("NullHandler")?,))?;
    let answers = logger.getattr("_cache").ok();
    let answers = answers.and_then(|answers| answers.cast_into::<PyDict>().ok()).map(Bound::unbind);
    let is_enabled_for = logger.getattr("isEnabledFor")?.unbind();
    let debug = PyInt::new(py, DEBUG).unbind();
    LOGGER.get_or_init(py, || Logger { logger: logger.unbind(), is_enabled_for, answers, debug });
    // Nobody else of this library sets one, and what was set before stays.
    let _ = tracing::subscriber::set_global_default(Keeper);
    Ok(())
}

/// Asks the logger before a call of the library.
pub(crate) fn ask(py: Python<'_>) {
    let Some(Logger { is_enabled_for, answers, debug, .. }) = LOGGER.get(py) else { return };
    let known = answers.as_ref().and_then(|answers| answers.bind(py).get_item(debug).ok().flatten());
    let wants = match known {
        Some(known) => known.is_truthy(),
        None => is_enabled_for.bind(py).call1((debug,)).and_then(|wants| wants.is_truthy()),
    };
    WANTS_SPANS.set(wants.unwrap_or(false) && !HANDS_OVER.get());
}

/// Hands over what was told during a call.
pub(crate) fn hand_over(py: Python<'_>) {
    if !HAS_TOLD.load(Ordering::Acquire) || HANDS_OVER.replace(true) {
        return;
    }
    HAS_TOLD.store(false, Ordering::Relaxed);
    let all = std::mem::take(&mut *TOLD.lock().unwrap_or_else(PoisonError::into_inner));
    if let Some(Logger { logger, .. }) = LOGGER.get(py) {
        for told in &all {
            // Handlers keep their exceptions to themselves; filters do not.
            if let Err(error) = logged(logger.bind(py), told) {
                error.write_unraisable(py, Some(logger.bind(py)));
            }
        }
    }
    HANDS_OVER.set(false);
}

fn logged(logger: &Bound<'_, PyAny>, told: &Told) -> PyResult<()> {
    let py = logger.py();
    let Told { name, level, fields, duration } = told;
    let values = PyDict::new(py);
    for (name, value) in &fields.values {
        match value {
            FieldValue::Number(number) => values.set_item(name, number)?,
            FieldValue::Text(text) => values.set_item(name, text)?,
        }
    }
    let extra = PyDict::new(py);
    extra.set_item("span", name)?;
    extra.set_item("seconds", duration.map(|duration| duration.as_secs_f64()))?;
    extra.set_item("fields", values)?;
    let options = PyDict::new(py);
    options.set_item("extra", extra)?;
    let text = text_of(told);
    logger.call_method(intern!(py, "log"), (*level, "%s", text), Some(&options))?;
    Ok(())
}

/// The message of a record.
fn text_of(Told { name, fields, duration, .. }: &Told) -> String {
    let mut text = (*name).to_owned();
    let mut sign = ": ";
    let mut add = |piece: &dyn fmt::Display| {
        // Text grows without fail.
        let _ = write!(text, "{sign}{piece}");
        sign = ", ";
    };
    fields.message.iter().for_each(|message| add(message));
    fields.values.iter().for_each(|(name, value)| add(&format_args!("{name} {value}")));
    if let Some(duration) = duration {
        add(&format_args!("{:.3} ms", 1e3 * duration.as_secs_f64()));
    }
    text
}
