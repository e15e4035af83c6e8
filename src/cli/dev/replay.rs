//! `hermes-relay dev replay`: says to a relay what a recording says was said, and shows what it answers.

mod script;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::Value;
use tokio::sync::watch;

use super::half::{Half, Plan};
use super::on_this_machine;
use crate::cli::exit::{self, fail, say};
use crate::cli::{SharedArgs, Surround, run as run_verb};
use crate::config::Settings;
use crate::dev::{BadTrace, Connector, ConnectorSettings, Direction, Trace, Traced, random_token};
use script::{Answers, Step, descriptors, platforms, prompts_in, steps, with_prompt};

/// Say again what a recording says was said, and show what the relay answers now.
///
/// Messages, forwarded requests, interrupts and broken frames go out as they were, with their ids, in their order
/// and with their pauses up to two seconds. Presses of buttons go to the question that stands in the same place.
/// Files that were attached are gone, so the relay gets their messages without them.
///
/// Exit codes: 0 replayed, whether the answers are the same or not, 1 the relay did not connect, 78 the recording or the
/// settings cannot be used.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  hermes-relay dev replay wire.jsonl --agent echo")]
pub(super) struct ReplayArgs {
    #[command(flatten)]
    shared: SharedArgs,
    /// A file that `hermes-relay dev --record` wrote.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Who answers: an agent from the settings, or a built-in one [default: as for `run`].
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
}

/// Longest pause between two frames.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// How long the relay may take to connect, and a question to come.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long the last turns may take.
const LAST_TURNS: Duration = Duration::from_secs(60);
/// How often it is looked whether everything is done.
const GLANCE: Duration = Duration::from_millis(50);
/// Differences that are shown.
const MOST_SHOWN: usize = 10;

/// Runs the verb.
pub(super) fn run(args: &ReplayArgs, surround: &Surround<'_>) -> ExitCode {
    let trace = match Trace::open(&args.file) {
        Ok(trace) => trace,
        Err(error) => {
            let hint = match error {
                BadTrace::Unreadable(_) => "name a file that you may read",
                BadTrace::Empty => "record one in which something is said: hermes-relay dev --record FILE",
                BadTrace::Line(_) => "remove the line, or record anew: hermes-relay dev --record FILE",
                BadTrace::TooLarge | BadTrace::NotOne | BadTrace::Version(_) => {
                    "record one with: hermes-relay dev --record FILE"
                }
            };
            let what = format!("cannot replay {}: {error}", args.file.display());
            return fail(exit::CONFIGURATION, what, Some(hint));
        }
    };
    on_this_machine(&args.shared, args.agent.as_deref(), surround, |settings| {
        replay(trace, settings, surround)
    })
}

async fn replay(trace: Trace, settings: Settings, surround: &Surround<'_>) -> ExitCode {
    let plan = match run_verb::staff(&settings, surround).await {
        Ok(members) => Plan {
            platforms: platforms(&trace),
            settings,
            members,
        },
        Err(none) => return fail(exit::CONFIGURATION, none.what, none.hint),
    };
    let token = random_token();
    let started = Connector::start(ConnectorSettings {
        gateways: Vec::new(),
        enrol_tokens: vec![token.clone()],
        ..ConnectorSettings::default()
    });
    let connector = match started.await {
        Ok(connector) => Arc::new(connector),
        Err(error) => {
            return fail(
                exit::OUR_FAULT,
                format!("cannot listen on loopback: {error}"),
                None,
            );
        }
    };
    for (platform, descriptor) in descriptors(&trace) {
        connector.set_descriptor(&platform, descriptor);
    }
    let (told, _) = watch::channel(Value::Null);
    let half = match Half::start(&connector, plan, &token, told).await {
        Ok(half) => half,
        Err(error) => return fail(exit::CONFIGURATION, error, None),
    };
    if let Err(error) = connector.wait_connected(PATIENCE).await {
        return half.stop(fail(exit::FAILED, error, None)).await;
    }
    let began = Instant::now();
    let sent = send(&trace, &connector).await;
    let done = finish(&connector, &half).await;
    report(&trace, &connector, &sent, began.elapsed(), done);
    half.stop(ExitCode::SUCCESS).await
}

/// What was sent.
#[derive(Default)]
struct Tally {
    messages: usize,
    forwards: usize,
    interrupts: usize,
    broken: usize,
    not_taken: usize,
}

async fn send(trace: &Trace, connector: &Connector) -> Tally {
    let asked_then = prompts_in(trace.lines.iter().filter_map(|line| match &line.said {
        Traced::Frame(frame) if line.direction == Direction::FromGateway => Some(frame),
        _ => None,
    }));
    let mut tally = Tally::default();
    let mut clock = None;
    for (at, step) in steps(trace) {
        let pause = clock.map_or(Duration::ZERO, |last| at.saturating_sub(last));
        clock = Some(at);
        tokio::time::sleep(pause.min(LONGEST_PAUSE)).await;
        let taken = match step {
            Step::Event(event, buffered) => {
                tally.messages += 1;
                let event = translate(event, &asked_then, connector).await;
                say!("> {}", script::line(&event));
                if buffered {
                    connector.deliver(&event).is_ok()
                } else {
                    connector.deliver_live(&event)
                }
            }
            Step::Forward(forward, buffered) => {
                tally.forwards += 1;
                let forward = translate(forward, &asked_then, connector).await;
                say!(
                    "> a forwarded request to {}",
                    forward["path"].as_str().unwrap_or("?")
                );
                if buffered {
                    connector.forward(&forward).is_ok()
                } else {
                    connector.forward_live(&forward)
                }
            }
            Step::Interrupt { session, chat } => {
                tally.interrupts += 1;
                say!("> stop {session}");
                connector.interrupt(&session, &chat)
            }
            Step::Raw(raw) => {
                tally.broken += 1;
                connector.send_raw(&raw)
            }
        };
        tally.not_taken += usize::from(!taken);
    }
    tally
}

/// Puts the present question's id where the recorded one stands, waiting for that question.
async fn translate(said: Value, asked_then: &[String], connector: &Connector) -> Value {
    let Some(place) = script::prompt_of(&said).and_then(|id| asked_then.iter().position(|then| *then == id))
    else {
        return said;
    };
    let now = connector.until("the question", PATIENCE, |connector| {
        let frames = connector.frames();
        let theirs = frames
            .iter()
            .filter(|record| record.direction == Direction::FromGateway);
        prompts_in(theirs.map(crate::dev::Record::json))
            .into_iter()
            .nth(place)
    });
    match now.await {
        Ok(id) => with_prompt(said, &asked_then[place], &id),
        Err(_) => said,
    }
}

/// Waits until nothing waits at either end; tells whether that came.
async fn finish(connector: &Connector, half: &Half) -> bool {
    let end = Instant::now() + LAST_TURNS;
    let mut quiet = 0;
    while Instant::now() < end {
        let still = connector.waiting() == 0 && half.is_quiet().await;
        quiet = if still { quiet + 1 } else { 0 };
        if quiet >= 3 {
            return true;
        }
        tokio::time::sleep(GLANCE).await;
    }
    false
}

fn report(trace: &Trace, connector: &Connector, tally: &Tally, took: Duration, done: bool) {
    let then = Answers::of(trace.lines.iter().filter_map(|line| match &line.said {
        Traced::Frame(frame) => Some(frame),
        Traced::Raw(_) => None,
    }));
    let frames = connector.frames();
    let now = Answers::of(frames.iter().map(crate::dev::Record::json));
    for text in now.texts() {
        say!("< {}", script::short(text));
    }
    say!(
        "\nreplayed in {:.1} s: {} messages, {} forwarded requests, {} interrupts, {} broken frames",
        took.as_secs_f64(),
        tally.messages,
        tally.forwards,
        tally.interrupts,
        tally.broken
    );
    if tally.not_taken > 0 {
        say!(
            "{} were not taken: the relay was away at that moment",
            tally.not_taken
        );
    }
    say!(
        "acknowledged: {}; answers: {}, recorded: {}",
        connector.acked(),
        now.len(),
        then.len()
    );
    let differences = then.differences(&now);
    if differences.is_empty() {
        say!("the answers are the same as recorded");
    } else {
        say!("{} differ from what was recorded:", differences.len());
        for difference in differences.iter().take(MOST_SHOWN) {
            say!("  {difference}");
        }
    }
    if !done {
        say!(
            "the relay still had work after {} s; it was stopped",
            LAST_TURNS.as_secs()
        );
    }
}
