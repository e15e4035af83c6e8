//! The fuzz targets on any toolchain: the seed corpus first, then seeded mutations of it until time is up.
//!
//! `FUZZ_SECONDS` is the time for each target (3 by default), `FUZZ_SEED` repeats a run. A run is the same
//! inputs in the same order for the same seed; only how far it gets depends on the time. A failure prints the
//! seed and the input in hex.

#[path = "../../fuzz/src/targets.rs"]
mod targets;

use crate::support::load::loading_blocking;
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

const LONGEST_INPUT: usize = 4096;

#[test]
fn framer() {
    run(
        "framer",
        targets::framer,
        &[b"\n", b"\r\n", b" ", b"\n\n", b"{}", b"xxxxxxxxxxxxxxxx"],
    );
}

#[test]
fn decoder() {
    const TOKENS: &[&[u8]] = &[
        b"\"",
        b"\\",
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b"null",
        b"true",
        b"NaN",
        b"-0",
        b"1e999",
        b"1e17",
        b"{}",
        b"[]",
        b"\\ud83d",
        b"\\ude00",
        b"\\u0000",
        b"\xff",
        b"\xef\xbb\xbf",
        b"\"type\":",
        b"\"bufferId\":",
        b"\"event\":",
        b"\"source\":",
        b"\"text\":",
        b"\"inbound\"",
        b"\"chat_id\":",
        b"\"media\":",
        b"\"context\":",
        b"\"result\":",
        b"9007199254740993",
    ];
    run("decoder", targets::decoder, TOKENS);
}

#[test]
fn splitter() {
    const TOKENS: &[&[u8]] = &[
        b"```",
        b"```rust\n",
        b"\n```\n",
        b"`",
        b"\n",
        b"\n\n",
        b" ",
        b"\r\n",
        "\u{1f600}".as_bytes(),
        "\u{301}".as_bytes(),
        "\u{200d}".as_bytes(),
        "\u{1f468}\u{200d}\u{1f469}\u{200d}\u{1f467}".as_bytes(),
        b"word ",
        b" (1/2)",
        b"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        "\u{a0}".as_bytes(),
        b"\xff",
    ];
    run("splitter", targets::splitter, TOKENS);
}

#[test]
fn jobs() {
    const TOKENS: &[&[u8]] = &[
        b"\"",
        b"\\",
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b"null",
        b"-1",
        b"99999999999999999999",
        b"\"id\":",
        b"\"schedule\":",
        b"\"kind\":",
        b"\"once\"",
        b"\"interval\"",
        b"\"minutes\":",
        b"\"cron\"",
        b"\"expr\":",
        b"\"next_run_at\":",
        b"\"timezone\":",
        b"\"Asia/Kolkata\"",
        b"0 9 31 2 *",
        b"*/5 * * * * */10 2099",
        b"9999-12-31T23:59:59+14:00",
        b"0001-01-01",
        b"in 9999d",
        b"\n",
        b"\xef\xbb\xbf",
    ];
    run("jobs", targets::jobs, TOKENS);
}

#[test]
fn log() {
    const TOKENS: &[&[u8]] = &[
        &[1, 2, 2],
        &[0x80],
        &[0xff; 9],
        &[0, 1],
        &[3, 2, 2],
        &[4, 2, 4, 2, 1],
        &[6, 2],
        &[7, 2, 1, b'x'],
        &[8, 2],
        &[11, 2, 1, 0],
    ];
    run("log", targets::log, TOKENS);
}

#[test]
fn updates() {
    const TOKENS: &[&[u8]] = &[
        b"\"",
        b"\\",
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b"null",
        b"true",
        b"0",
        b"-1",
        b"1e999",
        b"9007199254740993",
        b"{}",
        b"[]",
        b"\\ud83d\\ude00",
        b"\\u202e",
        b"\"update_id\":",
        b"\"message\":",
        b"\"chat\":{\"id\":",
        b"\"entities\":",
        b"\"offset\":",
        b"\"length\":",
        b"\"bot_command\"",
        b"\"media_group_id\":",
        b"\"photo\":",
        b"\"file_id\":",
        b"\"reply_to_message\":",
        b"\"rich_message\":",
        b"\"callback_query\":",
        b"@OurBot",
    ];
    run("updates", targets::updates, TOKENS);
}

#[test]
fn the_same_seed_gives_the_same_inputs() {
    let corpus = corpus("decoder");
    let inputs = |seed| {
        let mut random = Random(seed);
        (0..500)
            .map(|_| mutated(&corpus, &[b"x"], &mut random))
            .collect::<Vec<_>>()
    };
    assert_eq!(inputs(7), inputs(7));
    assert_ne!(inputs(7), inputs(8));
    assert!(inputs(7).iter().all(|input| input.len() <= LONGEST_INPUT));
}

#[test]
fn a_failure_reports_the_seed_and_the_input() {
    let failed = catch_unwind(|| attempt("planted", |data| assert!(data != b"\x01\xab"), 42, b"\x01\xab"));
    let message = failed.expect_err("the target panics");
    let message = message.downcast_ref::<String>().expect("it says why");
    assert!(
        message.contains("FUZZ_SEED=42") && message.contains("01ab"),
        "{message}"
    );
}

fn run(name: &str, target: fn(&[u8]), tokens: &[&[u8]]) {
    let _loading = loading_blocking();
    let seconds = setting("FUZZ_SECONDS").unwrap_or(3);
    let seed = setting("FUZZ_SEED").unwrap_or(0x5eed);
    let corpus = corpus(name);
    let mut random = Random(seed);
    let mut executions = 0u64;
    let started = Instant::now();
    for input in &corpus {
        attempt(name, target, seed, input);
        executions += 1;
    }
    while started.elapsed() < Duration::from_secs(seconds) {
        for _ in 0..64 {
            attempt(name, target, seed, &mutated(&corpus, tokens, &mut random));
            executions += 1;
        }
    }
    // Past the harness' capture, so that the count is seen when all is well.
    let line = format!(
        "fuzz {name}: {executions} executions in {:.1?}, seed {seed}\n",
        started.elapsed()
    );
    let _ = std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes());
}

fn setting(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(
        value
            .parse()
            .unwrap_or_else(|_| panic!("{name} must be a number, not {value:?}")),
    )
}

fn attempt(name: &str, target: fn(&[u8]), seed: u64, input: &[u8]) {
    if catch_unwind(AssertUnwindSafe(|| target(input))).is_err() {
        let mut hex = String::new();
        for byte in input {
            write!(hex, "{byte:02x}").expect("a string takes all");
        }
        panic!("{name} broke its promise; repeat with FUZZ_SEED={seed}; input {hex}");
    }
}

fn corpus(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/corpus")
        .join(name);
    let mut paths: Vec<_> = std::fs::read_dir(&folder)
        .expect("the corpus is there")
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    assert!(paths.len() >= 5, "{} holds too few seeds", folder.display());
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

/// A seed with a few changes: bytes, cuts, copies, tokens, and pieces of another seed.
fn mutated(corpus: &[Vec<u8>], tokens: &[&[u8]], random: &mut Random) -> Vec<u8> {
    let mut input = corpus[random.below(corpus.len())].clone();
    for _ in 0..=random.below(6) {
        let at = random.below(input.len() + 1);
        let span = at..(at + 1 + random.below(32)).min(input.len()).max(at);
        match random.below(8) {
            0 => {
                if let Some(byte) = input.get_mut(at) {
                    *byte ^= 1 << random.below(8);
                }
            }
            1 => {
                if let Some(byte) = input.get_mut(at) {
                    *byte = random.byte();
                }
            }
            2 => drop(input.drain(span)),
            3 => {
                let piece = input[span].repeat(1 + random.below(8));
                input.splice(at..at, piece);
            }
            4 | 5 => {
                let token = tokens[random.below(tokens.len())];
                input.splice(at..at, token.iter().copied());
            }
            6 => {
                let other = &corpus[random.below(corpus.len())];
                let from = random.below(other.len() + 1);
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
            _ => {
                let byte = random.byte();
                input.insert(at, byte);
            }
        }
    }
    input.truncate(LONGEST_INPUT);
    input
}

/// Reproducible noise; no secret hangs on it.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound.max(1) as u64).expect("below a usize")
    }

    fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[0]
    }
}
