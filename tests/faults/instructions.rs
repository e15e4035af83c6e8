//! What one turn costs, counted in instructions: times are noise, instructions are not.
//!
//! The program that the tests were built with runs twice under callgrind and answers a different number of messages, one after the
//! other; the next one comes when the relay is at rest again, so that nothing is batched by chance. The difference, without what
//! the journal does by the clock, is what the turns cost. It may be 5 % above the figure of this build in `instructions_per_turn.txt`. Set the figure anew with
//!
//! ```sh
//! UPDATE_INSTRUCTIONS=1 cargo test --all-features --test faults instructions
//! ```
//!
//! and the one of `tests/run`, which builds with clippy's compiler, with `RUSTC_WORKSPACE_WRAPPER=clippy-driver` before it.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::rig::connector::Connector;
use crate::rig::process::{Home, Relay};
use crate::rig::state::State;
use crate::support::load::measuring;
use crate::support::skip::skip;
use crate::support::wait::eventually_within;

/// Far more than a step takes under callgrind.
const PATIENCE: Duration = Duration::from_secs(120);
/// Turns of the shorter and of the longer run.
const TURNS: [u64; 2] = [10, 80];
/// Chats that the messages are spread over.
const CHATS: usize = 4;
/// What the journal does once a second, and every 20: how often that is for a turn depends on how busy the machine is.
const BY_THE_CLOCK: [&str; 2] = ["WriterTask::shorten_log", "WriterTask::tidy"];
/// How much above the figure is a failure, in percent.
const TOLERANCE: u64 = 5;
const UPDATE: &str = "UPDATE_INSTRUCTIONS";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_takes_no_more_instructions_than_it_did() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        return skip(
            "the instructions of a turn were NOT counted: valgrind is not installed (apt-get install valgrind)",
        );
    }
    let Some(build) = build() else {
        return skip(
            "the instructions of a turn were NOT counted: `rustc --version` says nothing that names this build",
        );
    };
    let updates = std::env::var_os(UPDATE).is_some();
    let committed = committed(&build);
    if committed.is_none() && !updates {
        return skip(&format!(
            "the instructions of a turn were NOT compared: {} has no figure for {build}; {}",
            file().display(),
            how_to_update()
        ));
    }
    let _alone = measuring().await;
    let (short, long) = (counted(TURNS[0]).await, counted(TURNS[1]).await);
    let per_turn = long.saturating_sub(short) / (TURNS[1] - TURNS[0]);
    println!(
        "{build}: {per_turn} instructions a turn ({short} for {} turns, {long} for {})",
        TURNS[0], TURNS[1]
    );
    if updates {
        return update(&build, per_turn);
    }
    let figure = committed.expect("checked above");
    if per_turn < figure * (100 - TOLERANCE) / 100 {
        skip(&format!(
            "a turn takes {per_turn} instructions, less than the figure of {figure}: lower the figure. {}",
            how_to_update()
        ));
    }
    assert!(
        per_turn <= figure * (100 + TOLERANCE) / 100,
        "a turn takes {per_turn} instructions, more than {TOLERANCE} % above the figure of {figure} for {build}.\n\
         Look where they go: callgrind_annotate {}\n\
         If that is what you want: {}",
        counts(TURNS[1]).display(),
        how_to_update()
    );
}

/// What a relay executes which answers so many messages, from its start to its end, without what it does by the clock.
async fn counted(turns: u64) -> u64 {
    let out = counts(turns);
    let _ = fs::remove_file(&out);
    let connector = Connector::start(State::new(1, 1));
    // Whether a turn takes so long that typing shows depends on the machine.
    let mut home = Home::new(&connector.url(), "streaming:\n  typing: false\n");
    let mut callgrind = Command::new("valgrind");
    callgrind
        .args(["--quiet", "--tool=callgrind", "--fair-sched=yes"])
        .arg(format!("--callgrind-out-file={}", out.display()));
    let mut relay = home.start_under(callgrind);
    eventually_within(PATIENCE, "the relay says hello under callgrind", async || {
        connector.state().greeted > 0
    })
    .await;
    at_rest(&relay).await;
    for turn in 0..turns {
        let chat = usize::try_from(turn).expect("a few turns") % CHATS;
        let message = connector.push(
            chat,
            format!("{turn}: {}", "a text of ordinary length ".repeat(8)),
        );
        eventually_within(PATIENCE, "a message is acknowledged and answered", async || {
            let state = connector.state();
            let message = &state.messages[message];
            message.acked
                && message
                    .replies
                    .first()
                    .is_some_and(|reply| reply.result_line.is_some())
        })
        .await;
        at_rest(&relay).await;
    }
    relay.terminate();
    assert_eq!(relay.exit_code(PATIENCE).await, Some(0));
    let text = fs::read_to_string(&out).expect("what callgrind counted");
    let total = text.lines().find_map(|line| {
        line.strip_prefix("totals:")
            .or_else(|| line.strip_prefix("summary:"))
    });
    let total: u64 = total
        .and_then(|total| total.trim().parse().ok())
        .expect("the sum of what callgrind counted");
    total - by_the_clock(&text)
}

/// What calls of [`BY_THE_CLOCK`] took, with all that they called in turn.
fn by_the_clock(counts: &str) -> u64 {
    // A function is named once, by the first line that mentions it, and has a number from then on.
    let mentions = counts.lines().filter_map(|line| {
        let function = line.strip_prefix("cfn=").or_else(|| line.strip_prefix("fn="))?;
        function.split_once(' ')
    });
    let ours: Vec<&str> = mentions
        .filter(|(_, name)| BY_THE_CLOCK.iter().any(|ours| name.ends_with(ours)))
        .map(|(number, _)| number)
        .collect();
    let (mut callee, mut sum) = ("", 0);
    let mut lines = counts.lines();
    while let Some(line) = lines.next() {
        if let Some(function) = line.strip_prefix("cfn=") {
            callee = function.split(' ').next().unwrap_or_default();
        } else if line.starts_with("calls=") && ours.contains(&callee) {
            let cost = lines.next().and_then(|cost| cost.rsplit(' ').next());
            sum += cost.and_then(|cost| cost.parse::<u64>().ok()).unwrap_or(0);
        }
    }
    sum
}

/// Waits until every thread sleeps, and none was woken between two looks.
async fn at_rest(relay: &Relay) {
    let mut before = None;
    eventually_within(PATIENCE, "the relay is at rest", async || {
        let now = relay.switches_at_rest();
        let same = now.is_some() && now == before;
        before = now;
        same
    })
    .await;
}

fn counts(turns: u64) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("callgrind.{turns}-turns"))
}

fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/faults/instructions_per_turn.txt")
}

/// What decides how a turn is compiled besides the sources: compiler, its version, and the machine.
fn build() -> Option<String> {
    let output = Command::new("rustc").arg("--version").output().ok()?;
    let version = String::from_utf8(output.stdout).ok()?;
    let version = version.split_whitespace().nth(1)?.to_owned();
    // Clippy compiles without some of the usual optimisations.
    let compiler = option_env!("RUSTC_WORKSPACE_WRAPPER").unwrap_or("rustc");
    let compiler = Path::new(compiler).file_name()?.to_str()?;
    Some(format!("{compiler}-{version}-{}", std::env::consts::ARCH))
}

fn committed(build: &str) -> Option<u64> {
    let text = fs::read_to_string(file()).expect("the figures are in the repository");
    let mut figures = text.lines().filter_map(|line| line.split_once(' '));
    let (_, figure) = figures.find(|(of, _)| *of == build)?;
    figure.trim().parse().ok()
}

/// Sets the figure of this build and leaves the others.
fn update(build: &str, per_turn: u64) {
    let text = fs::read_to_string(file()).expect("the figures are in the repository");
    let others = text
        .lines()
        .filter(|line| !line.starts_with(&format!("{build} ")));
    let mut new: String = others.fold(String::new(), |all, line| all + line + "\n");
    writeln!(new, "{build} {per_turn}").expect("a string takes everything");
    fs::write(file(), new).expect("the figures can be written");
}

fn how_to_update() -> String {
    let wrapper =
        option_env!("RUSTC_WORKSPACE_WRAPPER").map(|wrapper| format!("RUSTC_WORKSPACE_WRAPPER={wrapper} "));
    format!(
        "{UPDATE}=1 {}cargo test --all-features --test faults instructions",
        wrapper.unwrap_or_default()
    )
}
