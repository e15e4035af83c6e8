//! A short-lived program: something on its standard input, its exit code, the beginning of its output.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::time::timeout;

use super::{Child, Exit, PIPE_GRACE, Program, SpawnError, StopSchedule};
use crate::text::printable;

/// Characters of a program's last words that an error quotes.
const MAX_WORDS: usize = 300;

/// Why a program has no output.
#[derive(Debug, thiserror::Error)]
pub enum FilterError {
    /// It did not start.
    #[error(transparent)]
    NotStarted(#[from] SpawnError),
    /// It did not end in time.
    #[error("`{name}` did not end within {} s and was stopped", limit.as_secs())]
    TimedOut {
        /// The name of the program.
        name: String,
        /// The time it had.
        limit: Duration,
    },
    /// It did not end with code 0.
    #[error("`{name}` {exit}{}{words}", if words.is_empty() { "" } else { ": " })]
    Failed {
        /// The name of the program.
        name: String,
        /// How it ended.
        exit: Exit,
        /// The last line of its standard error.
        words: String,
    },
}

impl Program {
    /// Runs the program, and returns its standard output if it ends with code 0: the first `max` bytes of it; more are read
    /// and dropped. Dropping the future kills the program with everything it started.
    pub async fn filter(&self, input: Vec<u8>, max: usize, limit: Duration) -> Result<Vec<u8>, FilterError> {
        let name = || {
            let name = self.argv.first().map(|name| name.to_string_lossy().into_owned());
            name.unwrap_or_default()
        };
        let mut child = Child::spawn(self)?;
        let mut output = Vec::new();
        let (stdin, stdout) = (child.take_stdin(), child.take_stdout());
        let exchange = exchange(&child, stdin, stdout, input, (&mut output, max));
        if timeout(limit, exchange).await.is_err() {
            child.stop(StopSchedule::default()).await;
            return Err(FilterError::TimedOut { name: name(), limit });
        }
        match child.finish().await {
            Exit::Code(0) => Ok(output),
            exit => Err(FilterError::Failed {
                name: name(),
                exit,
                words: printable(&child.last_words().await, MAX_WORDS),
            }),
        }
    }
}

/// Until the program has ended, and its output or the time to read it.
async fn exchange(
    child: &Child,
    stdin: Option<ChildStdin>,
    stdout: Option<ChildStdout>,
    input: Vec<u8>,
    output: (&mut Vec<u8>, usize),
) {
    let pipes = async {
        tokio::join!(feed(stdin, input), drain(stdout, output));
    };
    tokio::pin!(pipes);
    tokio::select! {
        () = &mut pipes => child.exited().await,
        () = child.exited() => {
            let _ = timeout(PIPE_GRACE, pipes).await;
        }
    }
}

/// Writes everything and closes standard input. A program that does not read is judged by its exit code.
async fn feed(stdin: Option<ChildStdin>, input: Vec<u8>) {
    if let Some(mut stdin) = stdin {
        let _ = stdin.write_all(&input).await;
    }
}

async fn drain(stdout: Option<ChildStdout>, (kept, max): (&mut Vec<u8>, usize)) {
    let Some(mut stdout) = stdout else { return };
    let mut chunk = vec![0; 8 * 1024];
    while let Ok(length @ 1..) = stdout.read(&mut chunk).await {
        let room = max - kept.len();
        kept.extend_from_slice(&chunk[..length.min(room)]);
    }
}
