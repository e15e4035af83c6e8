//! Results, side by side with the floor and the goals.

use std::collections::HashMap;
use std::path::Path;

use serde_json::{Value, json};

use crate::subject::Contender;

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Measure {
    StartMs,
    IdleMib,
    PrivateMib,
    WindowedDrain,
    DrainMicros,
    LoopBesideJournal,
    SingleDrain,
    Echo,
    Reactions,
    EchoLong,
    FreshChats,
    ReplyP50,
    ReplyP99,
    InterruptMs,
    Cpu,
    CpuReactions,
    CpuLong,
    CpuFreshChats,
    ManyTurnsMib,
    Chats1kMib,
    Chats10kMib,
    Chats100kMib,
    ChatBytes,
    SessionBytes,
    /// An append of 4 KiB and its fdatasync, in milliseconds.
    DiskMs,
}

/// Every repetition of every measure.
#[derive(Default)]
pub(crate) struct Results(HashMap<(Measure, Contender), Vec<f64>>);

impl Results {
    pub(crate) fn add(&mut self, measure: Measure, of: Contender, value: f64) {
        self.0.entry((measure, of)).or_default().push(value);
    }

    fn median(&self, measure: Measure, of: Contender) -> f64 {
        let mut values = self.0.get(&(measure, of)).cloned().unwrap_or_default();
        values.sort_by(f64::total_cmp);
        let middle = values.len() / 2;
        match values.len() {
            0 => f64::NAN,
            odd if odd % 2 == 1 => values[middle],
            _ => f64::midpoint(values[middle - 1], values[middle]),
        }
    }

    /// The table on standard output. What was not measured is left out.
    pub(crate) fn print(&self) {
        println!(
            "{:<38} {:>10} {:>10} {:>10} {:>7} {:>7}  must / goal",
            "(medians)", "floor", "full", "process", "full/f", "proc/f"
        );
        for line in self.lines() {
            let [floor, full, process] = [line.floor, line.full, line.process];
            println!(
                "{:<38} {:>10} {:>10} {:>10} {:>7} {:>7}  {}",
                line.row.name,
                shown(floor),
                shown(full),
                shown(process),
                ratio(full, floor),
                ratio(process, floor),
                line.row.goal.judge(line.value()),
            );
        }
    }

    /// The same as JSON, with the goals and whether they are met.
    pub(crate) fn report(&self, binary: &Path, seconds: f64, repetitions: u32) -> String {
        let rows: Vec<Value> = self.lines().map(|line| line.report()).collect();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let report = json!({
            "binary": binary,
            "cores": cores,
            "seconds": seconds,
            "repetitions": repetitions,
            "rows": rows,
        });
        serde_json::to_string_pretty(&report).expect("numbers and names")
    }

    fn lines(&self) -> impl Iterator<Item = Line> {
        ROWS.iter()
            .map(|row| {
                let floor = match row.floor {
                    Beside::Client(measure) => self.median(measure, Contender::Floor),
                    Beside::SyncedClient => self.median(Measure::SingleDrain, Contender::Synced),
                    Beside::Disk => 1000.0 / self.median(Measure::DiskMs, Contender::Full),
                };
                Line {
                    row,
                    floor,
                    full: self.median(row.measure, Contender::Full),
                    process: self.median(row.measure, Contender::Process),
                }
            })
            .filter(|line| !line.full.is_nan())
    }
}

/// A row with its figures; what was not measured is not a number.
struct Line {
    row: &'static Row,
    floor: f64,
    full: f64,
    process: f64,
}

impl Line {
    /// What the goal is about.
    fn value(&self) -> f64 {
        match self.row.of {
            FullOverFloor => self.full / self.floor,
            ProcessOverFloor => self.process / self.floor,
            FloorOverFull => self.floor / self.full,
            Full => self.full,
        }
    }

    fn report(&self) -> Value {
        let bounds = self.row.goal.bounds();
        json!({
            "name": self.row.name,
            "floor": number(self.floor),
            "full": number(self.full),
            "process": number(self.process),
            "full_of_floor": number(self.full / self.floor),
            "process_of_floor": number(self.process / self.floor),
            "judged": self.row.of.name(),
            "value": number(self.value()),
            "must": bounds.map(|(must, _)| must),
            "goal": bounds.map(|(_, goal)| goal),
            "must_met": bounds.map(|(must, _)| self.row.goal.is_met(self.value(), must)),
            "goal_met": bounds.map(|(_, goal)| self.row.goal.is_met(self.value(), goal)),
        })
    }
}

/// Three digits after the point are more than what is measured knows.
fn number(value: f64) -> Option<f64> {
    value.is_finite().then(|| (value * 1000.0).round() / 1000.0)
}

fn ratio(value: f64, floor: f64) -> String {
    let ratio = value / floor;
    if ratio.is_finite() {
        format!("{ratio:.3}")
    } else {
        String::new()
    }
}

fn shown(value: f64) -> String {
    if !value.is_finite() {
        String::new()
    } else if value >= 1000.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.2}")
    }
}

/// What a goal is about.
#[derive(Clone, Copy)]
enum Of {
    FullOverFloor,
    ProcessOverFloor,
    /// How many times as long as the floor something takes that is counted per second.
    FloorOverFull,
    Full,
}

impl Of {
    fn name(self) -> &'static str {
        match self {
            Self::FullOverFloor => "full / floor",
            Self::ProcessOverFloor => "process / floor",
            Self::FloorOverFull => "floor / full",
            Self::Full => "full",
        }
    }
}

#[derive(Clone, Copy)]
enum Goal {
    /// For reading only.
    None,
    AtLeast(f64, f64),
    AtMost(f64, f64),
}

impl Goal {
    fn bounds(self) -> Option<(f64, f64)> {
        match self {
            Self::None => None,
            Self::AtLeast(must, goal) | Self::AtMost(must, goal) => Some((must, goal)),
        }
    }

    fn is_met(self, value: f64, bound: f64) -> bool {
        match self {
            Self::None => true,
            Self::AtLeast(..) => value >= bound,
            Self::AtMost(..) => value <= bound,
        }
    }

    fn judge(self, value: f64) -> String {
        let Some((must, goal)) = self.bounds() else {
            return String::new();
        };
        let sign = if matches!(self, Self::AtLeast(..)) {
            ">="
        } else {
            "<="
        };
        let word = |bound| {
            if self.is_met(value, bound) {
                "met"
            } else {
                "NOT met"
            }
        };
        format!("{value:.3} {sign} {must}: {}, {goal}: {}", word(must), word(goal))
    }
}

/// What a row stands beside.
#[derive(Clone, Copy)]
enum Beside {
    Client(Measure),
    /// The bare client that waits for the disk.
    SyncedClient,
    /// As many as the disk alone does of an append and its fdatasync.
    Disk,
}

struct Row {
    name: &'static str,
    measure: Measure,
    floor: Beside,
    of: Of,
    goal: Goal,
}

const fn row(name: &'static str, measure: Measure, of: Of, goal: Goal) -> Row {
    beside(Beside::Client(measure), name, measure, of, goal)
}

const fn beside(floor: Beside, name: &'static str, measure: Measure, of: Of, goal: Goal) -> Row {
    Row {
        name,
        measure,
        floor,
        of,
        goal,
    }
}

const ECHO: Beside = Beside::Client(Measure::Echo);
const CPU: Beside = Beside::Client(Measure::Cpu);

use Goal::{AtLeast, AtMost};
use Of::{FloorOverFull, Full, FullOverFloor, ProcessOverFloor};

#[rustfmt::skip]
const ROWS: &[Row] = &[
    row("echo, 64 of 1,000 chats busy, turns/s", Measure::Echo, FullOverFloor, AtLeast(0.2, 0.4)),
    beside(ECHO, "the same with reactions", Measure::Reactions, FullOverFloor, AtLeast(0.15, 0.25)),
    row("the same, 4 KiB", Measure::EchoLong, FullOverFloor, AtLeast(0.1, 0.4)),
    beside(ECHO, "100,000 chats once, reactions, turns/s", Measure::FreshChats, FullOverFloor, Goal::None),
    row("drain, window 256, acks/s", Measure::WindowedDrain, FullOverFloor, AtLeast(0.3, 0.5)),
    row("the same: processor µs a message", Measure::DrainMicros, Full, Goal::None),
    row("the same: event loop beside journal", Measure::LoopBesideJournal, Full, Goal::None),
    row("drain, one at a time, acks/s", Measure::SingleDrain, ProcessOverFloor, AtLeast(0.6, 0.6)),
    beside(Beside::Disk, "the same beside an fdatasync, /s", Measure::SingleDrain, FloorOverFull, AtMost(1.5, 1.2)),
    beside(Beside::SyncedClient, "the same beside a client that syncs", Measure::SingleDrain, FloorOverFull, Goal::None),
    row("CPU s per 100,000 turns", Measure::Cpu, Full, AtMost(2.0, 1.2)),
    beside(CPU, "the same with reactions", Measure::CpuReactions, Full, Goal::None),
    row("the same, 4 KiB", Measure::CpuLong, Full, Goal::None),
    beside(CPU, "100,000 chats once, reactions, CPU s", Measure::CpuFreshChats, Full, Goal::None),
    row("reply p50 at 200/s, ms", Measure::ReplyP50, Full, AtMost(2.0, 1.0)),
    row("reply p99 at 200/s, ms", Measure::ReplyP99, Full, AtMost(10.0, 10.0)),
    row("interrupt to its visible end, ms", Measure::InterruptMs, Full, AtMost(2.0, 2.0)),
    row("exec to handshake, ms", Measure::StartMs, Full, AtMost(8.0, 5.0)),
    row("idle RSS, MiB", Measure::IdleMib, Full, AtMost(11.0, 8.0)),
    row("idle private memory, MiB", Measure::PrivateMib, Full, AtMost(1.8, 1.5)),
    row("RSS after 60,000 turns, MiB", Measure::ManyTurnsMib, Full, AtMost(20.0, 14.0)),
    row("RSS after 1,000 chats, MiB", Measure::Chats1kMib, Full, Goal::None),
    row("RSS after 10,000 chats, MiB", Measure::Chats10kMib, Full, Goal::None),
    row("RSS after 100,000 chats, MiB", Measure::Chats100kMib, Full, AtMost(35.0, 30.0)),
    row("bytes per chat, beyond 10,000", Measure::ChatBytes, Full, Goal::None),
    row("bytes per session", Measure::SessionBytes, Full, Goal::None),
];
