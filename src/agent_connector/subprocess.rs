//! A short-lived program that hands something over: what it fails with is a failure of the delivery.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::time::Duration;

use super::contract::{CauseKind, DeliveryFailure};
use crate::agent::child::{FilterError, Program, SpawnError};

/// Bytes of standard output that are kept; more are read and dropped.
const MAX_OUTPUT: usize = 64 * 1024;

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
    let run = program(argv, env).filter(input, MAX_OUTPUT, limit).await;
    run.map_err(|error| {
        let cause = match &error {
            FilterError::NotStarted(SpawnError::Refused { .. }) | FilterError::Failed { .. } => {
                CauseKind::Network
            }
            FilterError::NotStarted(
                SpawnError::NoProgram | SpawnError::NotInstalled(_) | SpawnError::NoDirectory(_),
            ) => CauseKind::ClientValidation,
            FilterError::TimedOut { .. } => CauseKind::Timeout,
        };
        DeliveryFailure::new(cause, agent_id, error.to_string())
    })
}

/// The program as it is started.
pub(super) fn program(argv: &[String], env: &ProgramEnv) -> Program {
    Program {
        argv: argv.iter().map(OsString::from).collect(),
        cwd: None,
        env: env.clone(),
        agent: None,
    }
}
