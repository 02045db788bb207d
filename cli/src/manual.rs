//! `sterna completions` and `sterna man`: completions and manual pages, made from the description of the
//! command line.

use std::path::Path;

use anyhow::Context;
use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::Args;
use crate::command_error::{CommandError, FINE};

/// A script that completes commands and options.
pub(crate) fn completions(shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "sterna", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// The manual page of the whole.
pub(crate) fn page() -> Result<String, CommandError> {
    let mut page = Vec::new();
    // Written into a folder, pages are none of `help`.
    let command = Args::command().disable_help_subcommand(true);
    clap_mangen::Man::new(command).render(&mut page).map_err(CommandError::failed)?;
    Ok(String::from_utf8_lossy(&page).into_owned())
}

/// Writes a page for the whole and for each command.
pub(crate) fn write_pages(dir: &Path) -> Result<u8, CommandError> {
    let write = || {
        std::fs::create_dir_all(dir)?;
        clap_mangen::generate_to(Args::command(), dir)
    };
    write()
        .with_context(|| format!("cannot write manual pages to {}", dir.display()))
        .map_err(CommandError::usage)?;
    Ok(FINE)
}
