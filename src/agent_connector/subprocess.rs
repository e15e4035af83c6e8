//! A short-lived program: something on its standard input, its exit code, the beginning of its output.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::time::timeout;

use super::contract::{CauseKind, DeliveryFailure};
use crate::agent::child::{Child, Exit, PIPE_GRACE, Program, SpawnError, StopSchedule};
use crate::text::printable;

/// Bytes of standard output that are kept; more are read and dropped.
const MAX_OUTPUT: usize = 64 * 1024;
/// Characters of a program's last words that an error quotes.
const MAX_WORDS: usize = 300;

/// The environment of a program.
pub(super) type ProgramEnv = BTreeMap<OsString, OsString>;

/// Runs a program without a shell. Returns its standard output if it ends with code 0.
pub(super) async fn run(
    agent_id: &str,
    argv: &[String],
    env: &ProgramEnv,
    input: Vec<u8>,
    limit: Duration,
) -> Result<Vec<u8>, DeliveryFailure> {
    let name = argv.first().map_or("", String::as_str);
    let mut child = Child::spawn(&program(argv, env)).map_err(|error| {
        let cause = match &error {
            SpawnError::Refused { .. } => CauseKind::Network,
            SpawnError::NoProgram | SpawnError::NotInstalled(_) | SpawnError::NoDirectory(_) => {
                CauseKind::ClientValidation
            }
        };
        DeliveryFailure::new(cause, agent_id, error.to_string())
    })?;
    let mut output = Vec::new();
    let (stdin, stdout) = (child.take_stdin(), child.take_stdout());
    let exchange = exchange(&child, stdin, stdout, input, &mut output);
    if timeout(limit, exchange).await.is_err() {
        child.stop(StopSchedule::default()).await;
        let what = format!(
            "`{name}` did not end within {} s and was stopped",
            limit.as_secs()
        );
        return Err(DeliveryFailure::new(CauseKind::Timeout, agent_id, what));
    }
    match child.finish().await {
        Exit::Code(0) => Ok(output),
        exit => {
            let words = printable(&child.last_words().await, MAX_WORDS);
            let words = if words.is_empty() {
                words
            } else {
                format!(": {words}")
            };
            let what = format!("`{name}` {exit}{words}");
            Err(DeliveryFailure::new(CauseKind::Network, agent_id, what))
        }
    }
}

/// The program as it is started.
pub(super) fn program(argv: &[String], env: &ProgramEnv) -> Program {
    Program {
        argv: argv.iter().map(OsString::from).collect(),
        cwd: None,
        env: env.clone(),
    }
}

/// Until the program has ended, and its output or the time to read it.
async fn exchange(
    child: &Child,
    stdin: Option<ChildStdin>,
    stdout: Option<ChildStdout>,
    input: Vec<u8>,
    output: &mut Vec<u8>,
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

async fn drain(stdout: Option<ChildStdout>, kept: &mut Vec<u8>) {
    let Some(mut stdout) = stdout else { return };
    let mut chunk = vec![0; 8 * 1024];
    while let Ok(length @ 1..) = stdout.read(&mut chunk).await {
        let room = MAX_OUTPUT - kept.len();
        kept.extend_from_slice(&chunk[..length.min(room)]);
    }
}
