//! The help of `-h`: one screen, with an option a line.

use std::env;

use clap::{Command, CommandFactory, FromArgMatches};

use crate::args::Args;

/// The arguments of the process.
pub(crate) fn parsed() -> Result<Args, clap::Error> {
    let is_short = env::args_os().any(|word| word == "-h");
    let mut command = if is_short { brief(Args::command(), "sterna") } else { Args::command() };
    let matches = command.try_get_matches_from_mut(env::args_os())?;
    Args::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// A command whose options say no more than the first clause on them, and which names the help that says all.
fn brief(command: Command, path: &str) -> Command {
    let more = format!("Everything on each option, examples and exit codes: {path} --help");
    let command = command.after_help(more).mut_args(|argument| {
        let clause = argument.get_help().map(|help| first_clause(&help.to_string()).to_owned());
        let takes_value = argument.get_action().takes_values();
        let argument = match clause {
            Some(clause) => argument.help(clause),
            None => argument,
        };
        if takes_value { argument.hide_possible_values(true).hide_default_value(true) } else { argument }
    });
    command.mut_subcommands(|inner| {
        let path = format!("{path} {}", inner.get_name());
        brief(inner, &path)
    })
}

/// A text up to the first mark that ends a clause.
fn first_clause(text: &str) -> &str {
    let ends = [", ", "; ", ": ", ". ", " ("].iter().filter_map(|end| text.find(end));
    &text[..ends.min().unwrap_or(text.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clause_ends_with_the_first_mark() {
        let rows = [
            ("Threads to run on; as many as there are", "Threads to run on"),
            ("Fills a tensor: random (the default), or zeros", "Fills a tensor"),
            ("Writes x.npy", "Writes x.npy"),
            ("The graph in JSON, or a model", "The graph in JSON"),
            ("", ""),
        ];
        let wrong: Vec<_> = rows.iter().filter(|(text, clause)| first_clause(text) != *clause).collect();
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}
