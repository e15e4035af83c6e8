//! How long one message takes to read: the decoder and the framer, next to what a generic parse costs.
//!
//! Ends with the ratio of the two, measured turn by turn in one run, because absolute figures move with the
//! machine's mood and the ratio does not.

use std::fmt::Write as _;
use std::hint::black_box;
use std::time::{Duration, Instant};

use divan::Bencher;
use divan::counter::BytesCount;
use hermes_relay::wire::{ConnectorFrame, DEFAULT_MAX_LINE_BYTES, Line, LineFramer};
use serde_json::{Value, json};

fn main() {
    divan::main();
    // `cargo test` runs benches too, without this flag and without patience.
    if std::env::args().any(|arg| arg == "--bench") {
        for (name, line) in [("256B", inbound_256()), ("4KiB", inbound_4k())] {
            println!(
                "decode_inbound_{name} / serde_json Value = {:.2}",
                ratio(&line, decode, value)
            );
        }
    }
}

#[divan::bench(name = "decode_inbound_256B")]
fn decode_inbound_256(bencher: Bencher<'_, '_>) {
    over(bencher, &inbound_256(), decode);
}

#[divan::bench(name = "value_256B")]
fn value_256(bencher: Bencher<'_, '_>) {
    over(bencher, &inbound_256(), value);
}

#[divan::bench(name = "decode_inbound_4KiB")]
fn decode_inbound_4k(bencher: Bencher<'_, '_>) {
    over(bencher, &inbound_4k(), decode);
}

#[divan::bench(name = "value_4KiB")]
fn value_4k(bencher: Bencher<'_, '_>) {
    over(bencher, &inbound_4k(), value);
}

#[divan::bench(name = "frame_split_64KiB")]
fn frame_split(bencher: Bencher<'_, '_>) {
    let line = inbound_256();
    let chunk: Vec<u8> = line
        .iter()
        .chain(b"\n")
        .copied()
        .cycle()
        .take(64 * 1024)
        .collect();
    let mut framer = LineFramer::new(DEFAULT_MAX_LINE_BYTES);
    bencher.counter(BytesCount::new(chunk.len())).bench_local(|| {
        let mut bytes = 0;
        framer.feed(black_box(&chunk), |line| {
            if let Line::Whole(line) = line {
                bytes += line.len();
            }
        });
        bytes
    });
}

fn over<T>(bencher: Bencher<'_, '_>, line: &[u8], read: fn(&[u8]) -> T) {
    bencher
        .counter(BytesCount::new(line.len()))
        .bench_local(|| read(black_box(line)));
}

fn decode(line: &[u8]) -> ConnectorFrame {
    ConnectorFrame::decode(line).expect("the frame is sound")
}

fn value(line: &[u8]) -> Value {
    serde_json::from_slice(line).expect("the frame is JSON")
}

/// The median over many rounds of `ours` / `theirs`, both timed in each round, in alternating order.
fn ratio<A, B>(line: &[u8], ours: fn(&[u8]) -> A, theirs: fn(&[u8]) -> B) -> f64 {
    const ROUNDS: usize = 401;
    const CALLS: usize = 200;
    let mut ratios: Vec<f64> = (0..ROUNDS)
        .map(|round| {
            let (a, b) = if round % 2 == 0 {
                let a = timed(line, CALLS, ours);
                (a, timed(line, CALLS, theirs))
            } else {
                let b = timed(line, CALLS, theirs);
                (timed(line, CALLS, ours), b)
            };
            a.as_secs_f64() / b.as_secs_f64()
        })
        .collect();
    ratios.sort_unstable_by(f64::total_cmp);
    ratios[ROUNDS / 2]
}

fn timed<T>(line: &[u8], calls: usize, read: fn(&[u8]) -> T) -> Duration {
    let start = Instant::now();
    for _ in 0..calls {
        black_box(read(black_box(line)));
    }
    start.elapsed()
}

/// A message with 256 bytes of plain text.
fn inbound_256() -> Vec<u8> {
    inbound(&"the quick brown fox jumps over the lazy dog, and then ".repeat(5)[..256]).into_bytes()
}

/// A message whose text takes 4 KiB on the wire, with the escapes that peers write.
fn inbound_4k() -> Vec<u8> {
    let piece = "fn main() {\n\tlet text = \"h\u{e9}llo \u{1f600}\";\n\tprintln!(\"{text}\");\n}\n\nand a line of plain words.\n";
    let escaped: String = piece.chars().map(escape).collect();
    let text = piece.repeat(4096 / escaped.len());
    inbound(&text)
        .chars()
        .map(|c| if c.is_ascii() { c.to_string() } else { escape(c) })
        .collect::<String>()
        .into_bytes()
}

fn inbound(text: &str) -> String {
    json!({
        "type": "inbound",
        "event": {
            "text": text,
            "message_type": "text",
            "message_id": "1234567890123456789",
            "source": {
                "platform": "discord",
                "chat_id": "1122334455667788990",
                "chat_type": "group",
                "chat_name": "general",
                "user_id": "998877665544332211",
                "user_name": "ann",
                "scope_id": "445566778899001122",
                "message_id": "1234567890123456789",
            },
        },
        "bufferId": "1731650000000-0",
    })
    .to_string()
}

/// One character as a peer that writes only ASCII puts it between quotes.
fn escape(c: char) -> String {
    if c.is_ascii() {
        let quoted = Value::from(c.to_string()).to_string();
        return quoted[1..quoted.len() - 1].to_owned();
    }
    let mut escaped = String::new();
    for unit in c.encode_utf16(&mut [0; 2]) {
        write!(escaped, "\\u{unit:04x}").expect("a string takes all");
    }
    escaped
}
