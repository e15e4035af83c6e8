//! How fast the relay is, beside a bare client that keeps nothing: `cargo bench --features internals --bench relay [-- --quick] [--json FILE] [only]`.
//!
//! The real binary runs against a load generator on loopback, in turns with the bare client, several times; medians
//! are printed with their ratio and the goal, and written to FILE as JSON. Figures are never a failure; a message that is lost,
//! changed or handled twice is. The floor's numbers move with the machine: only ratios within one run mean anything.
//! `RELAY_BIN` names another build of the binary to measure instead of this one. docs/performance.md explains the table.
//! `--messages N` lets one relay live through N messages instead, and prints what a turn costs then, for each 500,000.

#![expect(clippy::disallowed_methods, reason = "a load has a pace of its own")]
#![expect(clippy::unwrap_used, reason = "a failed step is a failed run")]

mod floor;
mod frames;
mod life;
mod load;
mod subject;
mod table;

use std::time::{Duration, Instant};

use frames::Platform;
use load::{Spread, Talk, Until};
use subject::{Agent, Contender, Subject};
use table::{Measure, Results};

/// Bytes of an ordinary text.
const TEXT: usize = 256;
/// Bytes of a long text.
const LONG_TEXT: usize = 4096;

/// How long and how often.
#[derive(Clone, Copy)]
struct Plan {
    repetitions: u32,
    saturated: Duration,
    single: Duration,
    paced: Duration,
    interrupts: u32,
    /// How many sessions the last step of `sessions` has.
    sessions: u32,
}

/// Turns after which memory is looked at.
const MANY_TURNS: u32 = 60_000;
/// Chats after which memory is looked at.
const CHATS: [u32; 3] = [1_000, 10_000, 100_000];

const WHOLE: Plan = Plan {
    repetitions: 3,
    saturated: Duration::from_millis(1500),
    single: Duration::from_secs(1),
    paced: Duration::from_millis(2500),
    interrupts: 21,
    sessions: 100_000,
};

const QUICK: Plan = Plan {
    repetitions: 1,
    saturated: Duration::from_millis(600),
    single: Duration::from_millis(400),
    paced: Duration::from_secs(1),
    interrupts: 9,
    sessions: 20_000,
};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [role, address, mode] = &arguments[..]
        && role == "--floor-client"
    {
        return floor::run(address, mode);
    }
    let mut plan = WHOLE;
    let (mut only, mut json) = (Vec::new(), None);
    let mut given = arguments.iter();
    while let Some(argument) = given.next() {
        match argument.as_str() {
            "--quick" => plan = QUICK,
            "--messages" => {
                let messages = given.next().and_then(|number| number.parse().ok());
                return life::run(messages.expect("--messages has a number"), TEXT);
            }
            "--json" => json = Some(given.next().expect("--json names a file").clone()),
            other if other.starts_with('-') => {}
            other => only.push(other.to_owned()),
        }
    }
    let names = || LOADS.iter().map(|(name, ..)| *name).chain(["disk"]);
    if let Some(unknown) = only
        .iter()
        .find(|only| !names().any(|name| name.contains(only.as_str())))
    {
        let names: Vec<&str> = names().collect();
        eprintln!(
            "there is no load `{unknown}`; the loads are: {}",
            names.join(", ")
        );
        std::process::exit(2);
    }
    let wanted = |name: &str| only.is_empty() || only.iter().any(|only| name.contains(only.as_str()));
    let mut results = Results::default();
    let begun = Instant::now();
    for _ in 0..plan.repetitions {
        for (name, contenders, load) in LOADS {
            if !wanted(name) {
                continue;
            }
            for contender in *contenders {
                eprint!("\r{name}: {contender:?}            ");
                load(*contender, plan, &mut results);
            }
        }
        if wanted("disk") || wanted("single") {
            results.add(Measure::DiskMs, Contender::Full, fdatasync_ms());
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    eprintln!("\r{seconds:.0} seconds                ");
    results.print();
    if let Some(file) = json {
        let report = results.report(&subject::binary(), seconds, plan.repetitions);
        std::fs::write(&file, report + "\n").unwrap_or_else(|error| panic!("cannot write {file}: {error}"));
        eprintln!("written to {file}");
    }
}

type Load = fn(Contender, Plan, &mut Results);

const ALL: &[Contender] = &[Contender::Floor, Contender::Full, Contender::Process];
/// Where each message waits for the disk.
const SYNCED: &[Contender] = &[
    Contender::Floor,
    Contender::Synced,
    Contender::Full,
    Contender::Process,
];
/// Where the disk decides nothing.
const TWO: &[Contender] = &[Contender::Floor, Contender::Full];
/// What the bare client cannot do.
const RELAY: &[Contender] = &[Contender::Full];

const LOADS: &[(&str, &[Contender], Load)] = &[
    ("idle", ALL, idle),
    ("drain", ALL, windowed_drain),
    ("single", SYNCED, single_drain),
    ("echo", ALL, echo),
    ("reactions", RELAY, reactions),
    ("long", ALL, echo_long),
    ("paced", ALL, paced),
    ("interrupt", RELAY, interrupt),
    ("many", TWO, many_turns),
    ("chats", TWO, chats),
    ("sessions", TWO, sessions),
];

fn idle(contender: Contender, _: Plan, results: &mut Results) {
    let subject = Subject::start(contender, Agent::Echo);
    let start = subject.start.as_secs_f64() * 1000.0;
    results.add(Measure::StartMs, contender, start);
    std::thread::sleep(Duration::from_secs(1));
    results.add(Measure::IdleMib, contender, subject.resident_mib());
    results.add(Measure::PrivateMib, contender, subject.private_mib());
}

fn windowed_drain(contender: Contender, plan: Plan, results: &mut Results) {
    let mut subject = Subject::start(contender, Agent::Noop);
    let drained = load::drain(&mut subject, 256, TEXT, plan.saturated);
    results.add(Measure::WindowedDrain, contender, drained.rate);
    results.add(Measure::DrainMicros, contender, drained.micros);
    if contender != Contender::Floor {
        results.add(Measure::LoopBesideJournal, contender, drained.loop_beside_journal);
    }
}

fn single_drain(contender: Contender, plan: Plan, results: &mut Results) {
    let mut subject = Subject::start(contender, Agent::Noop);
    let drained = load::drain(&mut subject, 1, TEXT, plan.single);
    results.add(Measure::SingleDrain, contender, drained.rate);
}

fn echo(contender: Contender, plan: Plan, results: &mut Results) {
    let mut subject = Subject::start(contender, Agent::Echo);
    let echoed = load::echo(&mut subject, &Talk::usual(TEXT, Until::Time(plan.saturated)));
    results.add(Measure::Echo, contender, echoed.turns);
    results.add(Measure::Cpu, contender, echoed.cpu);
}

fn echo_long(contender: Contender, plan: Plan, results: &mut Results) {
    let mut subject = Subject::start(contender, Agent::Echo);
    let echoed = load::echo(&mut subject, &Talk::usual(LONG_TEXT, Until::Time(plan.saturated)));
    results.add(Measure::EchoLong, contender, echoed.turns);
    results.add(Measure::CpuLong, contender, echoed.cpu);
}

/// Three more ops a turn. The bare client sends none of them: its echo is what this is compared with.
fn reactions(contender: Contender, plan: Plan, results: &mut Results) {
    let mut subject = Subject::start_on(Platform::Reactions, contender, Agent::Echo);
    let echoed = load::echo(&mut subject, &Talk::usual(TEXT, Until::Time(plan.saturated)));
    results.add(Measure::Reactions, contender, echoed.turns);
    results.add(Measure::CpuReactions, contender, echoed.cpu);
}

fn interrupt(contender: Contender, plan: Plan, results: &mut Results) {
    let mut subject = Subject::start_on(Platform::Reactions, contender, Agent::Echo);
    let wait = load::interrupt_ms(&mut subject, plan.interrupts);
    results.add(Measure::InterruptMs, contender, wait);
}

fn many_turns(contender: Contender, _: Plan, results: &mut Results) {
    let mut subject = Subject::start(contender, Agent::Echo);
    load::echo(&mut subject, &Talk::usual(TEXT, Until::Turns(MANY_TURNS)));
    results.add(Measure::ManyTurnsMib, contender, subject.settled_mib());
}

/// Every chat says one thing, and is never heard of again.
fn chats(contender: Contender, _: Plan, results: &mut Results) {
    let (platform, spread) = (Platform::Reactions, Spread::Chats);
    let mut subject = Subject::start_on(platform, contender, Agent::Echo);
    let (mut told, mut memory, mut last) = (0, Vec::new(), None);
    for chats in CHATS {
        last = Some(touch(&mut subject, spread, told, chats));
        told = chats;
        memory.push(subject.settled_mib());
    }
    let [few, more, many] = memory[..] else {
        unreachable!("as many as steps")
    };
    let last = last.expect("there are steps");
    results.add(Measure::FreshChats, contender, last.turns);
    results.add(Measure::CpuFreshChats, contender, last.cpu);
    results.add(Measure::Chats1kMib, contender, few);
    results.add(Measure::Chats10kMib, contender, more);
    results.add(Measure::Chats100kMib, contender, many);
    let bytes = bytes_each(many - more, CHATS[2] - CHATS[1]);
    results.add(Measure::ChatBytes, contender, bytes);
}

/// The same with many people in few chats.
fn sessions(contender: Contender, plan: Plan, results: &mut Results) {
    let (platform, spread) = (Platform::Plain, Spread::Sessions);
    let mut subject = Subject::start_on(platform, contender, Agent::Echo);
    let few = plan.sessions / 10;
    touch(&mut subject, spread, 0, few);
    let before = subject.settled_mib();
    touch(&mut subject, spread, few, plan.sessions);
    let bytes = bytes_each(subject.settled_mib() - before, plan.sessions - few);
    results.add(Measure::SessionBytes, contender, bytes);
}

/// One turn for each conversation from one number to another.
fn touch(subject: &mut Subject, spread: Spread, from: u32, to: u32) -> load::Echoed {
    let talk = Talk {
        text: TEXT,
        conversations: from..to,
        spread,
        until: Until::Turns(to - from),
        first: from,
    };
    load::echo(subject, &talk)
}

fn bytes_each(mib: f64, count: u32) -> f64 {
    mib * 1024.0 * 1024.0 / f64::from(count)
}

fn paced(contender: Contender, plan: Plan, results: &mut Results) {
    let mut subject = Subject::start(contender, Agent::Echo);
    let (latency, _) = load::reply_latency(&mut subject, TEXT, plan.paced, 0);
    results.add(Measure::ReplyP50, contender, latency.p50_ms);
    results.add(Measure::ReplyP99, contender, latency.p99_ms);
}

/// What the disk alone takes for an append of 4 KiB.
fn fdatasync_ms() -> f64 {
    const APPENDS: u32 = 200;
    let mut file = tempfile::tempfile_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let begun = Instant::now();
    for _ in 0..APPENDS {
        floor::append_synced(&mut file);
    }
    begun.elapsed().as_secs_f64() * 1000.0 / f64::from(APPENDS)
}
