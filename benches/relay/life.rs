//! A long life: what a turn costs after so many that came before, beside one of a young relay on the same machine in the same minute.

use std::time::Duration;

use crate::load::{self, Talk, Until};
use crate::subject::{Agent, Contender, Subject};

/// Turns of a row, and how many of them come at a time.
const ROW: u32 = 500_000;
const PART: u32 = 50_000;
/// Turns of a young relay after each part. The old one must not wait for long: nobody answers its pings meanwhile.
const YOUNG: u32 = 12_500;
/// How long replies are measured at a low pace after each row.
const PACED: Duration = Duration::from_secs(5);

/// A relay, and the number of its next message.
struct Life {
    subject: Subject,
    next: u32,
}

impl Life {
    fn begin() -> Self {
        let subject = Subject::start(Contender::Full, Agent::Echo);
        Self { subject, next: 0 }
    }

    /// So many turns; the seconds of processor time that they took.
    fn turns(&mut self, turns: u32, text: usize) -> f64 {
        let talk = Talk {
            first: self.next,
            ..Talk::usual(text, Until::Turns(turns))
        };
        self.next += turns;
        load::echo(&mut self.subject, &talk).cpu * f64::from(turns) / 100_000.0
    }
}

/// Lets one relay live through so many messages, and prints a row now and then.
pub(crate) fn run(messages: u32, text: usize) {
    println!("CPU is seconds for 100,000 turns; B is bytes for each message");
    println!(
        "{:>9} {:>6} {:>6} {:>6} {:>8} {:>9} {:>9} {:>7} {:>7}",
        "messages", "CPU", "young", "ratio", "RSS MiB", "journal B", "written B", "p50 ms", "p99 ms"
    );
    let (mut old, mut done) = (Life::begin(), 0);
    while done < messages {
        let before = (old.subject.journal_bytes(), old.subject.written_bytes());
        let (begun, mut cpu, mut young_cpu, mut young_turns) = (done, 0.0, 0.0, 0);
        while done < messages && done - begun < ROW {
            let turns = PART.min(messages - done);
            cpu += old.turns(turns, text);
            done += turns;
            young_cpu += Life::begin().turns(YOUNG, text);
            young_turns += YOUNG;
        }
        let turns = done - begun;
        let each = |cpu: f64, turns: u32| cpu * 100_000.0 / f64::from(turns);
        let (cpu, young_cpu) = (each(cpu, turns), each(young_cpu, young_turns));
        let after = (old.subject.journal_bytes(), old.subject.written_bytes());
        let bytes = |before: u64, after: u64| after.saturating_sub(before) / u64::from(turns);
        let resident = old.subject.settled_mib();
        let (latency, count) = load::reply_latency(&mut old.subject, text, PACED, old.next);
        old.next += count;
        println!(
            "{done:>9} {cpu:>6.3} {young_cpu:>6.3} {:>6.3} {resident:>8.1} {:>9} {:>9} {:>7.2} {:>7.2}",
            cpu / young_cpu,
            bytes(before.0, after.0),
            bytes(before.1, after.1),
            latency.p50_ms,
            latency.p99_ms
        );
    }
}
