//! Output of text: standard output, standard error, and files.

use std::fmt::Display;
use std::io::{self, Write};
use std::path::Path;

use anstyle::{AnsiColor, Color, Style};
use anyhow::{Context, ensure};
pub(crate) use sterna_inspect::painted;

use crate::command_error::{CommandError, FINE};

/// Styles of text; whoever prints it removes them if nobody sees them.
pub(crate) const BOLD: Style = Style::new().bold();
pub(crate) const GOOD: Style = coloured(AnsiColor::Green);
pub(crate) const BAD: Style = coloured(AnsiColor::Red);
pub(crate) const ODD: Style = coloured(AnsiColor::Yellow);

const fn coloured(colour: AnsiColor) -> Style {
    Style::new().fg_color(Some(Color::Ansi(colour)))
}

/// So that nobody waits for a run whose file then cannot be written.
pub(crate) fn can_be_written(path: &Path) -> anyhow::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(".".as_ref());
    ensure!(folder.is_dir(), "cannot write {}: {} is no folder", path.display(), folder.display());
    ensure!(!path.is_dir(), "cannot write {}: it is a folder; name a file", path.display());
    Ok(())
}

/// Writes a file, without the colours of text for a terminal.
pub(crate) fn write(path: &Path, text: &str) -> Result<u8, CommandError> {
    let text = anstream::adapter::strip_str(text).to_string();
    std::fs::write(path, text)
        .with_context(|| format!("cannot write {}", path.display()))
        .map_err(CommandError::usage)?;
    Ok(FINE)
}

/// Prints to standard output, in colours if that is a terminal that wants them. A reader who closes it early
/// has read enough, which is no error.
pub(crate) fn print(text: &str) -> Result<u8, CommandError> {
    let mut out = anstream::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(CommandError::failed(anyhow::anyhow!("cannot write to standard output: {error}")))
        }
        _ => Ok(FINE),
    }
}

/// Prints to standard error, in colours if that is a terminal that wants them. If nobody reads standard
/// error, nobody misses the text.
pub(crate) fn say(what: &str, text: impl Display) {
    let colour = if what == "error" { AnsiColor::Red } else { AnsiColor::Yellow };
    let style = Style::new().bold().fg_color(Some(colour.into()));
    let _ = writeln!(anstream::stderr(), "{style}{what}:{style:#} {text}");
}
