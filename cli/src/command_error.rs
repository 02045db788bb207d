//! The failure of a command, and the exit codes.

/// Why a command failed.
pub(crate) enum CommandError {
    /// The graph, or a command on it, failed.
    Failed(anyhow::Error),
    /// The arguments, or a file that they name, cannot be used.
    Usage(anyhow::Error),
}

impl CommandError {
    /// For errors whose cause is the graph.
    pub(crate) fn failed(error: impl Into<anyhow::Error>) -> Self {
        Self::Failed(error.into())
    }

    /// For errors whose cause is the command line.
    pub(crate) fn usage(error: impl Into<anyhow::Error>) -> Self {
        Self::Usage(error.into())
    }
}

/// The exit codes.
pub(crate) const FINE: u8 = 0;
pub(crate) const FAILED: u8 = 1;
pub(crate) const USAGE: u8 = 2;

/// The exit code of a process that Ctrl-C ended, as shells give it.
pub(crate) const INTERRUPTED: u8 = 130;
