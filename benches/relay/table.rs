//! Results, side by side with the floor and the goals.

use std::collections::HashMap;

use crate::subject::Contender;

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Measure {
    StartMs,
    IdleMib,
    WindowedDrain,
    SingleDrain,
    Echo,
    EchoLong,
    ReplyP50,
    ReplyP99,
    Cpu,
    CpuLong,
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

    /// The table on standard output.
    pub(crate) fn print(&self) {
        println!(
            "{:<34} {:>10} {:>10} {:>10} {:>7} {:>7}  goal: must / moonshot",
            "(medians)", "floor", "full", "process", "full/f", "proc/f"
        );
        for row in ROWS {
            self.print_row(row);
        }
        let disk = self.median(Measure::DiskMs, Contender::Full);
        let single = 1000.0 / self.median(Measure::SingleDrain, Contender::Full);
        println!(
            "{:<34} {:>10} {:>10} {:>10} {:>7} {:>7}  {}",
            "one at a time, of an fdatasync",
            format!("{disk:.3} ms"),
            format!("{single:.3} ms"),
            "",
            "",
            "",
            Goal::AtMost(1.3, 1.3).judge(single / disk)
        );
    }

    fn print_row(&self, row: &Row) {
        let [floor, full, process] = [Contender::Floor, Contender::Full, Contender::Process]
            .map(|contender| self.median(row.measure, contender));
        let verdict = match (row.of, row.goal) {
            (_, Goal::None) => String::new(),
            (Of::FullOverFloor, goal) => goal.judge(full / floor),
            (Of::ProcessOverFloor, goal) => goal.judge(process / floor),
            (Of::Full, goal) => goal.judge(full),
        };
        println!(
            "{:<34} {:>10} {:>10} {:>10} {:>7.3} {:>7.3}  {verdict}",
            row.name,
            shown(floor),
            shown(full),
            shown(process),
            full / floor,
            process / floor,
        );
    }
}

fn shown(value: f64) -> String {
    if value >= 1000.0 {
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
    Full,
}

#[derive(Clone, Copy)]
enum Goal {
    /// For reading only.
    None,
    AtLeast(f64, f64),
    AtMost(f64, f64),
}

impl Goal {
    fn judge(self, value: f64) -> String {
        let (must, moonshot, sign, more_is_better) = match self {
            Self::None => return String::new(),
            Self::AtLeast(must, moonshot) => (must, moonshot, ">=", true),
            Self::AtMost(must, moonshot) => (must, moonshot, "<=", false),
        };
        let shown = |goal: f64| {
            let met = if more_is_better {
                value >= goal
            } else {
                value <= goal
            };
            if met { "met" } else { "NOT met" }
        };
        format!(
            "{value:.3} {sign} {must}: {}, {moonshot}: {}",
            shown(must),
            shown(moonshot)
        )
    }
}

struct Row {
    name: &'static str,
    measure: Measure,
    of: Of,
    goal: Goal,
}

const fn row(name: &'static str, measure: Measure, of: Of, goal: Goal) -> Row {
    Row {
        name,
        measure,
        of,
        goal,
    }
}

const ROWS: &[Row] = &[
    row(
        "exec to handshake, ms",
        Measure::StartMs,
        Of::Full,
        Goal::AtMost(20.0, 10.0),
    ),
    row(
        "idle memory, MiB",
        Measure::IdleMib,
        Of::Full,
        Goal::AtMost(10.0, 6.0),
    ),
    row(
        "drain, window 256, acks/s",
        Measure::WindowedDrain,
        Of::FullOverFloor,
        Goal::AtLeast(0.15, 0.5),
    ),
    row(
        "drain, one at a time, acks/s",
        Measure::SingleDrain,
        Of::ProcessOverFloor,
        Goal::AtLeast(0.6, 0.6),
    ),
    row(
        "echo, 64 of 1,000 busy, turns/s",
        Measure::Echo,
        Of::FullOverFloor,
        Goal::AtLeast(0.1, 0.4),
    ),
    row(
        "the same, 4 KiB",
        Measure::EchoLong,
        Of::FullOverFloor,
        Goal::AtLeast(0.1, 0.4),
    ),
    row(
        "CPU s per 100,000 turns",
        Measure::Cpu,
        Of::Full,
        Goal::AtMost(4.0, 1.5),
    ),
    row("the same, 4 KiB", Measure::CpuLong, Of::Full, Goal::None),
    row(
        "reply p50 at 200/s, ms",
        Measure::ReplyP50,
        Of::Full,
        Goal::AtMost(2.0, 1.0),
    ),
    row(
        "reply p99 at 200/s, ms",
        Measure::ReplyP99,
        Of::Full,
        Goal::AtMost(10.0, 10.0),
    ),
];
