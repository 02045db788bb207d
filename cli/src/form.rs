//! The forms of reports.

use clap::ValueEnum;

/// The forms of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// Text for a terminal.
    Text,
    /// One JSON document.
    Json,
    /// Comma-separated values with a head, in SI units.
    Csv,
    /// A table of Markdown.
    Markdown,
}

/// The options that choose a form.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct FormOptions {
    /// In which form to print.
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text")]
    format: Form,
    /// Prints one JSON document, as --format json does.
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

impl FormOptions {
    pub(crate) fn form(&self) -> Form {
        if self.json { Form::Json } else { self.format }
    }
}
