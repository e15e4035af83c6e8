//! `hermes-relay dev replay`: sends a recording to a relay and compares the replies.

mod script;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::Value;
use tokio::sync::watch;

use super::relay::{DevRelay, RelayPlan, RunSecrets};
use super::run_locally;
use crate::access::AccessSettings;
use crate::cli::exit::{self, ErrorFormat, fail, outln};
use crate::cli::run::build_agents;
use crate::cli::{ProcessEnv, SharedArgs};
use crate::config::Settings;
use crate::dev::{BadTrace, Connector, Direction, Trace, Traced};
use script::{ReplayStep, Replies, descriptors, platforms, prompts_in, steps, with_prompt};

/// Replay a recording and show what the relay replies now.
///
/// Sends messages, forwarded requests, interrupts and invalid frames as recorded, with their ids, in their order
/// and with their pauses up to two seconds. Button presses go to the prompt at the same position. Attached files are not
/// part of a recording, so the relay gets their messages without them.
///
/// Exit codes: 0 replayed, whether the replies are the same or not, 1 the relay did not connect, 78 the recording or the
/// settings cannot be used.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  hermes-relay dev replay wire.jsonl --agent echo")]
pub(super) struct ReplayArgs {
    #[command(flatten)]
    shared: SharedArgs,
    /// Recording of `hermes-relay dev --record`.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Agent from the settings, or a built-in one [default: as for `run`].
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// That of `dev` is for `--smoke`; this one is refused, as behind every command that prints nothing as JSON.
    #[arg(long, hide = true)]
    json: bool,
}

/// Maximum pause between two frames.
const MAX_PAUSE: Duration = Duration::from_secs(2);
/// Timeout of the connection and of a prompt.
const WAIT_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of the last turns.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// Interval of checks whether everything is done.
const IDLE_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum number of differences shown.
const MAX_DIFFERENCES: usize = 10;

/// Runs the verb.
pub(super) fn run(args: &ReplayArgs, process: &ProcessEnv<'_>) -> ExitCode {
    let trace = match Trace::open(&args.file) {
        Ok(trace) => trace,
        Err(error) => {
            let hint = match error {
                BadTrace::Unreadable(_) => "name a file that you may read",
                BadTrace::Empty => "record a conversation with: hermes-relay dev --record FILE",
                BadTrace::Line(_) => "remove the line, or record again: hermes-relay dev --record FILE",
                BadTrace::TooLarge | BadTrace::NotOne | BadTrace::Version(_) => {
                    "record one with: hermes-relay dev --record FILE"
                }
            };
            let what = format!("cannot replay {}: {error}", args.file.display());
            return fail(exit::CONFIGURATION, what, Some(hint));
        }
    };
    let errors = ErrorFormat::Text;
    run_locally(
        &args.shared,
        args.agent.as_deref(),
        (process, errors),
        |mut settings, _| {
            // Whoever wrote then may write now.
            settings.access = AccessSettings::default();
            replay(trace, settings, process)
        },
    )
}

async fn replay(trace: Trace, settings: Settings, process: &ProcessEnv<'_>) -> ExitCode {
    let plan = match build_agents(&settings, process).await {
        Ok((agents, voice)) => RelayPlan {
            platforms: platforms(&trace),
            settings,
            agents,
            voice,
        },
        Err(error) => return fail(exit::CONFIGURATION, error.message, error.hint),
    };
    let secrets = RunSecrets::new();
    let connector = match Connector::start(secrets.connector_settings()).await {
        Ok(connector) => Arc::new(connector),
        Err(error) => {
            return fail(
                exit::INTERNAL,
                format!("cannot listen on loopback: {error}"),
                None,
            );
        }
    };
    for (platform, descriptor) in descriptors(&trace) {
        connector.set_descriptor(&platform, descriptor);
    }
    let (status, _) = watch::channel(Value::Null);
    let relay = match DevRelay::start(&connector, plan, &secrets, None, status).await {
        Ok(relay) => relay,
        Err(error) => return fail(exit::CONFIGURATION, error, None),
    };
    if let Err(error) = connector.wait_connected(WAIT_TIMEOUT).await {
        return relay.stop(fail(exit::FAILED, error, None)).await;
    }
    let began = Instant::now();
    let sent = send(&trace, &connector).await;
    let done = wait_until_idle(&connector, &relay).await;
    report(&trace, &connector, &sent, began.elapsed(), done);
    relay.stop(ExitCode::SUCCESS).await
}

/// Counts of what was sent.
#[derive(Default)]
struct SentCounts {
    messages: usize,
    forwards: usize,
    interrupts: usize,
    invalid: usize,
    rejected: usize,
}

async fn send(trace: &Trace, connector: &Connector) -> SentCounts {
    let recorded_prompts = prompts_in(trace.lines.iter().filter_map(|line| match &line.content {
        Traced::Frame(frame) if line.direction == Direction::FromGateway => Some(frame),
        _ => None,
    }));
    let mut counts = SentCounts::default();
    let mut clock = None;
    for (at, step) in steps(trace) {
        let pause = clock.map_or(Duration::ZERO, |last| at.saturating_sub(last));
        clock = Some(at);
        tokio::time::sleep(pause.min(MAX_PAUSE)).await;
        let accepted = match step {
            ReplayStep::Event(event, buffered) => {
                counts.messages += 1;
                let event = translate(event, &recorded_prompts, connector).await;
                outln!("> {}", script::line(&event));
                if buffered {
                    connector.deliver(&event).is_ok()
                } else {
                    connector.deliver_live(&event)
                }
            }
            ReplayStep::Forward(forward, buffered) => {
                counts.forwards += 1;
                let forward = translate(forward, &recorded_prompts, connector).await;
                outln!(
                    "> a forwarded request to {}",
                    forward["path"].as_str().unwrap_or("?")
                );
                if buffered {
                    connector.forward(&forward).is_ok()
                } else {
                    connector.forward_live(&forward)
                }
            }
            ReplayStep::Interrupt { session, chat } => {
                counts.interrupts += 1;
                outln!("> stop {session}");
                connector.interrupt(&session, &chat)
            }
            ReplayStep::Raw(raw) => {
                counts.invalid += 1;
                connector.send_raw(&raw)
            }
        };
        counts.rejected += usize::from(!accepted);
    }
    counts
}

/// Replaces the id of a recorded prompt by that of the current one; waits for that prompt.
async fn translate(message: Value, recorded_prompts: &[String], connector: &Connector) -> Value {
    let Some(index) =
        script::prompt_of(&message).and_then(|id| recorded_prompts.iter().position(|then| *then == id))
    else {
        return message;
    };
    let now = connector.until("the prompt", WAIT_TIMEOUT, |connector| {
        let frames = connector.frames();
        let sent = frames
            .iter()
            .filter(|record| record.direction == Direction::FromGateway);
        prompts_in(sent.map(crate::dev::RecordedFrame::json))
            .into_iter()
            .nth(index)
    });
    match now.await {
        Ok(id) => with_prompt(message, &recorded_prompts[index], &id),
        Err(_) => message,
    }
}

/// Waits until connector and relay are idle; `false` on a timeout.
async fn wait_until_idle(connector: &Connector, relay: &DevRelay) -> bool {
    let end = Instant::now() + IDLE_TIMEOUT;
    let mut idle_checks = 0;
    while Instant::now() < end {
        let is_idle = connector.waiting() == 0 && relay.is_idle().await;
        idle_checks = if is_idle { idle_checks + 1 } else { 0 };
        if idle_checks >= 3 {
            return true;
        }
        tokio::time::sleep(IDLE_INTERVAL).await;
    }
    false
}

fn report(trace: &Trace, connector: &Connector, counts: &SentCounts, took: Duration, done: bool) {
    let then = Replies::from_frames(trace.lines.iter().filter_map(|line| match &line.content {
        Traced::Frame(frame) => Some(frame),
        Traced::Raw(_) => None,
    }));
    let frames = connector.frames();
    let now = Replies::from_frames(frames.iter().map(crate::dev::RecordedFrame::json));
    for text in now.texts() {
        outln!("< {}", script::short(text));
    }
    outln!(
        "\nreplayed in {:.1} s: {} messages, {} forwarded requests, {} interrupts, {} invalid frames",
        took.as_secs_f64(),
        counts.messages,
        counts.forwards,
        counts.interrupts,
        counts.invalid
    );
    if counts.rejected > 0 {
        outln!(
            "{} were not accepted: the relay was not connected",
            counts.rejected
        );
    }
    outln!(
        "acknowledged: {}; replies: {}, recorded: {}",
        connector.acked(),
        now.len(),
        then.len()
    );
    let differences = then.differences(&now);
    if differences.is_empty() {
        outln!("the replies are the same as recorded");
    } else {
        outln!("{} differ from the recording:", differences.len());
        for difference in differences.iter().take(MAX_DIFFERENCES) {
            outln!("  {difference}");
        }
    }
    if !done {
        outln!(
            "the relay was still busy after {} s and was stopped",
            IDLE_TIMEOUT.as_secs()
        );
    }
}
