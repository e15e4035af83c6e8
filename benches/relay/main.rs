//! How fast the relay is, beside a bare client that keeps nothing: `cargo bench --bench relay [-- --quick] [only]`.
//!
//! The real binary runs against a load generator on loopback, in turns with the bare client, several times; medians
//! are printed with their ratio and the goal. Figures are never a failure; a message that is lost, changed or handled
//! twice is. The floor's numbers move with the machine: only ratios within one run mean anything. `RELAY_BIN` names
//! another build of the binary to measure instead of this one.

#![expect(clippy::disallowed_methods, reason = "a load has a pace of its own")]
#![expect(clippy::unwrap_used, reason = "a failed step is a failed run")]

mod floor;
mod frames;
mod load;
mod subject;
mod table;

use std::io::Write as _;
use std::time::{Duration, Instant};

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
}

const WHOLE: Plan = Plan {
    repetitions: 3,
    saturated: Duration::from_millis(1500),
    single: Duration::from_secs(1),
    paced: Duration::from_millis(2500),
};

const QUICK: Plan = Plan {
    repetitions: 1,
    saturated: Duration::from_millis(600),
    single: Duration::from_millis(400),
    paced: Duration::from_secs(1),
};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [role, address, mode] = &arguments[..]
        && role == "--floor-client"
    {
        return floor::run(address, mode);
    }
    let plan = if arguments.iter().any(|given| given == "--quick") {
        QUICK
    } else {
        WHOLE
    };
    let only: Vec<&String> = arguments.iter().filter(|given| !given.starts_with('-')).collect();
    let wanted = |name: &str| only.is_empty() || only.iter().any(|only| name.contains(only.as_str()));
    let mut results = Results::default();
    let begun = Instant::now();
    for _ in 0..plan.repetitions {
        for (name, load) in LOADS {
            if !wanted(name) {
                continue;
            }
            for contender in [Contender::Floor, Contender::Full, Contender::Process] {
                eprint!("\r{name}: {contender:?}            ");
                load(contender, plan, &mut results);
            }
        }
        if wanted("disk") {
            results.add(Measure::DiskMs, Contender::Full, fdatasync_ms());
        }
    }
    eprintln!("\r{:.0} seconds                ", begun.elapsed().as_secs_f64());
    results.print();
}

type Load = fn(Contender, Plan, &mut Results);

const LOADS: &[(&str, Load)] = &[
    ("idle", idle),
    ("drain", windowed_drain),
    ("single", single_drain),
    ("echo", echo),
    ("long", echo_long),
    ("paced", paced),
];

fn idle(contender: Contender, _: Plan, results: &mut Results) {
    let subject = Subject::start(contender, Agent::Echo);
    let start = subject.start.as_secs_f64() * 1000.0;
    results.add(Measure::StartMs, contender, start);
    std::thread::sleep(Duration::from_secs(1));
    results.add(Measure::IdleMib, contender, subject.resident_mib());
}

fn windowed_drain(contender: Contender, plan: Plan, results: &mut Results) {
    let mut subject = Subject::start(contender, Agent::Noop);
    let rate = load::drain(&mut subject, 256, TEXT, plan.saturated);
    results.add(Measure::WindowedDrain, contender, rate);
}

fn single_drain(contender: Contender, plan: Plan, results: &mut Results) {
    let mut subject = Subject::start(contender, Agent::Noop);
    let rate = load::drain(&mut subject, 1, TEXT, plan.single);
    results.add(Measure::SingleDrain, contender, rate);
}

fn echo(contender: Contender, plan: Plan, results: &mut Results) {
    let mut subject = Subject::start(contender, Agent::Echo);
    let echoed = load::echo(&mut subject, TEXT, plan.saturated);
    results.add(Measure::Echo, contender, echoed.turns);
    results.add(Measure::Cpu, contender, echoed.cpu);
}

fn echo_long(contender: Contender, plan: Plan, results: &mut Results) {
    let mut subject = Subject::start(contender, Agent::Echo);
    let echoed = load::echo(&mut subject, LONG_TEXT, plan.saturated);
    results.add(Measure::EchoLong, contender, echoed.turns);
    results.add(Measure::CpuLong, contender, echoed.cpu);
}

fn paced(contender: Contender, plan: Plan, results: &mut Results) {
    let mut subject = Subject::start(contender, Agent::Echo);
    let latency = load::reply_latency(&mut subject, TEXT, plan.paced);
    results.add(Measure::ReplyP50, contender, latency.p50_ms);
    results.add(Measure::ReplyP99, contender, latency.p99_ms);
}

/// What the disk alone takes for an append of 4 KiB.
fn fdatasync_ms() -> f64 {
    const APPENDS: u32 = 200;
    let mut file = tempfile::tempfile_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let begun = Instant::now();
    for _ in 0..APPENDS {
        file.write_all(&[0x5a; 4096]).unwrap();
        file.sync_data().unwrap();
    }
    begun.elapsed().as_secs_f64() * 1000.0 / f64::from(APPENDS)
}
