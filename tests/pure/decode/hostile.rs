//! Lines made to hurt: each is a typed error or a documented coercion, and none takes more than its share of time.

use crate::support::load::measuring_blocking;
use std::time::Duration;

use hermes_relay::wire::{ConnectorFrame, DecodeError, GatewayFrame, MessageEvent, Undecodable};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

fn refused(line: &[u8]) -> Undecodable {
    ConnectorFrame::decode(line).expect_err("the line is not usable")
}

fn event(line: &[u8]) -> MessageEvent {
    match ConnectorFrame::decode(line) {
        Ok(ConnectorFrame::Inbound { event, .. }) => *event,
        other => panic!("{other:?}"),
    }
}

/// A JSON error, with the buffer id that was still found.
fn not_json(line: &[u8]) -> Option<String> {
    let refused = refused(line);
    assert!(matches!(refused.error, DecodeError::Json(_)), "{refused:?}");
    assert_eq!(refused.kind, None);
    refused.buffer_id
}

#[test]
fn deep_nesting_where_it_would_be_kept_is_refused_and_the_buffer_id_is_reported() {
    const LEVELS: usize = 100_000;
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        let deep = format!("{}0{}", open.repeat(LEVELS), close.repeat(LEVELS));
        let line = format!(r#"{{"type":"inbound","event":{{"prompt_response":{deep}}},"bufferId":"b9"}}"#);
        assert_eq!(not_json(line.as_bytes()).as_deref(), Some("b9"));
        let unclosed = format!(
            r#"{{"bufferId":"b9","type":"inbound","event":{}"#,
            open.repeat(LEVELS)
        );
        assert_eq!(not_json(unclosed.as_bytes()).as_deref(), Some("b9"));
    }
}

#[test]
fn deep_nesting_that_nobody_reads_harms_nothing() {
    const LEVELS: usize = 100_000;
    let deep = format!("{}{}", "[".repeat(LEVELS), "]".repeat(LEVELS));
    let unknown = format!(r#"{{"type":"inbound","event":{{"text":"hi"}},"novel":{deep}}}"#);
    assert_eq!(event(unknown.as_bytes()).text(), "hi");
    let ignored = format!(r#"{{"type":"inbound","event":{{"text":"hi","novel":{deep}}}}}"#);
    assert_eq!(event(ignored.as_bytes()).text(), "hi");
    let whole = refused(deep.as_bytes());
    assert_eq!(whole.error, DecodeError::NotAnObject("an array"));
    let typed = format!(r#"{{"type":{deep}}}"#);
    assert_eq!(
        ConnectorFrame::decode(typed.as_bytes()),
        Ok(ConnectorFrame::Unknown {
            kind: None,
            buffer_id: None
        })
    );
}

#[test]
fn a_mebibyte_of_text_is_kept_whole() {
    let text = "x\u{e9}\u{1f600}\n\"".repeat(1024 * 1024 / 8);
    let line = json!({"type": "inbound", "event": {"text": text}}).to_string();
    assert_eq!(event(line.as_bytes()).text(), text);
    let escapes = "\\ud83d\\ude00".repeat(1024 * 1024 / 12);
    let line = format!(r#"{{"type":"inbound","event":{{"text":"{escapes}"}}}}"#);
    assert_eq!(event(line.as_bytes()).text().chars().count(), 1024 * 1024 / 12);
}

#[test]
fn the_last_of_equal_keys_wins_at_every_depth() {
    let line = br#"{"type":"descriptor","bufferId":"b1","event":null,"event":{"text":"a","text":"b",
        "source":{"chat_id":"1"},"source":{"chat_id":"2","chat_id":"3","user_id":[],"user_id":"u"}},
        "type":"inbound","bufferId":"b2"}"#;
    let Ok(ConnectorFrame::Inbound { event, buffer_id }) = ConnectorFrame::decode(line) else {
        panic!("the last type is inbound");
    };
    assert_eq!(buffer_id.as_deref(), Some("b2"));
    assert_eq!(event.text(), "b");
    assert_eq!(event.source.chat_id, Some("3".into()));
    assert_eq!(event.source.user_id, Some("u".into()));
}

#[test]
fn numbers_are_kept_digit_for_digit_or_refused() {
    let with = |number: &str| {
        let line =
            format!(r#"{{"type":"inbound","event":{{"source":{{"chat_id":{number}}}}},"bufferId":"b"}}"#);
        ConnectorFrame::decode(line.as_bytes())
    };
    for number in ["0", "-1", "18446744073709551615", "-9223372036854775808", "1.5"] {
        let Ok(ConnectorFrame::Inbound { event, .. }) = with(number) else {
            panic!("{number}");
        };
        assert_eq!(event.source.chat_id, Some(number.into()));
    }
    for number in [
        "18446744073709551616",
        "-9223372036854775809",
        "1e300",
        &"9".repeat(300),
    ] {
        let refused = with(number).expect_err(number);
        let field = "source.chat_id";
        assert_eq!(refused.error, DecodeError::NumberTooLarge { field }, "{number}");
        assert_eq!(
            (refused.kind.as_deref(), refused.buffer_id.as_deref()),
            (Some("inbound"), Some("b"))
        );
    }
    for number in ["1e999", "-1e999", &"9".repeat(100_000), "01", "1.", "+1", "0x10"] {
        let refused = with(number).expect_err(number);
        assert!(
            matches!(refused.error, DecodeError::Json(_)),
            "{number}: {refused:?}"
        );
        assert_eq!(refused.buffer_id.as_deref(), Some("b"));
    }
}

#[test]
fn a_lone_half_of_a_pair_becomes_the_replacement_character() {
    for (escaped, text) in [
        (r"\ud83d", "\u{fffd}"),
        (r"\ude00", "\u{fffd}"),
        (r"\uD83D", "\u{fffd}"),
        (r"a\ud83db", "a\u{fffd}b"),
        (r"\ud83d\ud83d\ude00", "\u{fffd}\u{1f600}"),
        (r"\ude00\ud83d", "\u{fffd}\u{fffd}"),
        (r"\ud83d\n", "\u{fffd}\n"),
        (r"\ud83d\u0041", "\u{fffd}A"),
        (r"\\ud83d \ud83d", "\\ud83d \u{fffd}"),
    ] {
        let line = format!(r#"{{"type":"inbound","event":{{"text":"{escaped}"}},"bufferId":"b"}}"#);
        assert_eq!(event(line.as_bytes()).text(), text, "{escaped}");
    }
    let keyed = br#"{"\ud83d":1,"type":"going_idle_ack"}"#;
    assert_eq!(ConnectorFrame::decode(keyed), Ok(ConnectorFrame::GoingIdleAck));
}

#[test]
fn what_is_not_json_is_refused_and_the_buffer_id_is_reported() {
    for broken in [
        &br#"{"type":"inbound","event":{"text":NaN},"bufferId":"b1"}"#[..],
        br#"{"type":"inbound","event":{"text":-Infinity},"bufferId":"b1"}"#,
        b"\xef\xbb\xbf{\"type\":\"inbound\",\"bufferId\":\"b1\"}",
        b"{\"type\":\"inbound\",\"event\":{\"text\":\"\xff\xfe\"},\"bufferId\":\"b1\"}",
        b"{\"type\":\"inbound\",\"event\":{\"text\":\"\xed\xa0\xbd\"},\"bufferId\":\"b1\"}",
        b"{\"type\":\"inbound\",\"event\":{\"text\":\"a\x00b\"},\"bufferId\":\"b1\"}",
        br#"{"type":"inbound","bufferId":"b1","event":{"text":"cut he"#,
        br#"{"type":"inbound","bufferId" : "b1",}"#,
        br#"{"bufferId":"b1"} {}"#,
        br#"{"text":"\ud83d \x","bufferId":"b1"}"#,
        br#"{'type':'inbound',"bufferId":"b1"}"#,
    ] {
        let shown = String::from_utf8_lossy(broken);
        assert_eq!(not_json(broken).as_deref(), Some("b1"), "{shown}");
    }
    assert_eq!(not_json(br#"{"bufferId":17,"event":NaN}"#).as_deref(), Some("17"));
    assert_eq!(
        not_json(br#"{"text":"\"bufferId\":\"forged\"","event":NaN}"#),
        None
    );
    for empty in [&b""[..], b" ", b"\x00", b"{", b"\"", b"\\u", b"\xff"] {
        assert_eq!(not_json(empty), None);
    }
}

#[test]
fn known_frames_of_the_wrong_shape_say_which_field_and_keep_their_buffer_id() {
    for (body, wanted) in [
        (r#""type":"inbound","event":null"#, "event"),
        (r#""type":"inbound","event":"text""#, "event"),
        (r#""type":"inbound","event":[]"#, "event"),
        (r#""type":"inbound","event":{"source":"discord"}"#, "event.source"),
        (r#""type":"inbound","event":{"source":[1]}"#, "event.source"),
        (r#""type":"inbound","event":{"text":{}}"#, "event.text"),
        (
            r#""type":"inbound","event":{"message_id":[]}"#,
            "event.message_id",
        ),
        (
            r#""type":"inbound","event":{"source":{"thread_id":{}}}"#,
            "source.thread_id",
        ),
        (r#""type":"passthrough_forward","forward":null"#, "forward"),
        (r#""type":"passthrough_forward","forward":7"#, "forward"),
        (r#""type":"descriptor","descriptor":[]"#, "descriptor"),
        (r#""type":"outbound_result","requestId":[]"#, "requestId"),
        (r#""type":"interrupt_inbound","session_key":{}"#, "session_key"),
    ] {
        for buffer_id in [r#""b1""#, "12", "true"] {
            let shown_id = match buffer_id {
                "true" => "True",
                other => other.trim_matches('"'),
            };
            let refused = refused(format!("{{{body},\"bufferId\":{buffer_id}}}").as_bytes());
            assert!(
                matches!(refused.error, DecodeError::WrongType { field, .. } if field == wanted),
                "{body}: {refused:?}"
            );
            assert_eq!(refused.buffer_id.as_deref(), Some(shown_id), "{body}");
            assert!(refused.kind.is_some_and(|kind| body.contains(&kind)));
        }
    }
    for (line, what) in [
        ("null", "null"),
        ("[]", "an array"),
        ("7", "a number"),
        ("\"x\"", "text"),
        ("true", "a boolean"),
    ] {
        assert_eq!(refused(line.as_bytes()).error, DecodeError::NotAnObject(what));
        assert!(GatewayFrame::decode(line.as_bytes()).is_err());
    }
}

#[test]
fn a_frame_of_an_unknown_type_keeps_its_buffer_id_unless_it_is_an_echo() {
    for (line, kind, buffer_id) in [
        (
            r#"{"type":"reaction_inbound","bufferId":"b9","event":{}}"#,
            Some("reaction_inbound"),
            Some("b9"),
        ),
        (r#"{"type":"reaction_inbound"}"#, Some("reaction_inbound"), None),
        (r#"{"bufferId":5}"#, None, Some("5")),
        (r#"{"bufferId":""}"#, None, None),
        (r#"{"type":7,"bufferId":"b"}"#, None, Some("b")),
        (
            r#"{"type":"inbound_ack","bufferId":"b"}"#,
            Some("inbound_ack"),
            None,
        ),
    ] {
        let (kind, buffer_id) = (kind.map(str::to_owned), buffer_id.map(str::to_owned));
        assert_eq!(
            ConnectorFrame::decode(line.as_bytes()),
            Ok(ConnectorFrame::Unknown { kind, buffer_id }),
            "{line}"
        );
    }
}

#[test]
fn one_address_of_a_file_is_a_list_of_one() {
    let with = |urls: Value| {
        let media = json!([{"url": "https://x/a.png", "mime": "image/png"}]);
        let event = json!({"type": "inbound", "event": {"media_urls": urls, "media": media}});
        self::event(event.to_string().as_bytes())
    };
    let one = with(json!("https://x/a.png"));
    assert_eq!(one, with(json!(["https://x/a.png"])));
    assert_eq!(one.media_types, ["image/png"]);
    assert!(!one.is_empty());
    for nothing in [
        json!(""),
        json!(null),
        json!(7),
        json!({"url": "https://x/a.png"}),
    ] {
        let event = with(nothing);
        assert!(event.media_urls.is_empty() && event.is_empty());
    }
}

#[test]
fn no_error_quotes_message_text() {
    for line in [
        r#"{"type":"inbound","event":{"text":"hunter2","source":{"chat_id":{"k":"hunter2"}}}}"#,
        r#"{"type":"inbound","event":{"text":"hunter2" hunter2}}"#,
        r#"{"type":"inbound","event":{"text":"hunter2","source":"hunter2"}}"#,
    ] {
        let refused = refused(line.as_bytes());
        assert!(!format!("{} {refused:?}", refused.error).contains("hunter2"));
    }
}

/// What this thread has used of the processor: a busy machine adds nothing to it.
fn processor_time() -> Duration {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(used.tv_sec.cast_unsigned(), u32::try_from(used.tv_nsec).unwrap())
}

/// How much processor time one decode of the line takes, the best of `runs`.
fn cost(line: &[u8], runs: usize) -> Duration {
    (0..runs)
        .map(|_| {
            let start = processor_time();
            let _ = std::hint::black_box(ConnectorFrame::decode(line));
            processor_time().saturating_sub(start)
        })
        .min()
        .expect("at least one run")
}

/// Lines whose size is `n` times one piece, each aimed at a loop that could run over what it already saw.
fn growing(n: usize) -> Vec<(&'static str, Vec<u8>)> {
    let many = |piece: &dyn Fn(usize) -> String| (0..n).map(piece).collect::<Vec<_>>().join(",");
    let inbound =
        |field: &str, value: String| format!(r#"{{"type":"inbound","event":{{"{field}":{value}}}}}"#);
    vec![
        ("brackets", "[".repeat(n * 8)),
        ("objects", "{\"a\":".repeat(n * 2)),
        ("quotes", "\"".repeat(n * 8)),
        ("backslashes", format!("\"{}", "\\".repeat(n * 8))),
        (
            "lone halves",
            inbound("text", format!("\"{}\"", "\\ud83d".repeat(n * 2))),
        ),
        ("halves cut off", format!("\"{}\\ud8", "\\ud83d".repeat(n * 2))),
        (
            "buffer id keys",
            format!("{{{} NaN", "\"bufferId\":\"b\",".repeat(n)),
        ),
        (
            "equal keys",
            format!("{{{}}}", many(&|_| r#""event":{"text":"t"}"#.to_owned())),
        ),
        (
            "unknown keys",
            format!("{{{}}}", many(&|i| format!(r#""key{i}":[1,2]"#))),
        ),
        (
            "contexts",
            inbound(
                "context",
                format!("[{}]", many(&|_| r#"{"text":"t"}"#.to_owned())),
            ),
        ),
        ("digits", inbound("message_id", "9".repeat(n * 8))),
        (
            "media",
            format!(
                r#"{{"type":"inbound","event":{{"media_urls":[{}],"media":[{}]}}}}"#,
                many(&|i| format!("\"u{i}\"")),
                many(&|i| format!(r#"{{"url":"w{i}"}}"#)),
            ),
        ),
        (
            "headers",
            format!(
                r#"{{"type":"passthrough_forward","forward":{{"headers":[{}]}}}}"#,
                many(&|_| r#"["a","b"]"#.to_owned())
            ),
        ),
    ]
    .into_iter()
    .map(|(name, line)| (name, line.into_bytes()))
    .collect()
}

#[test]
fn time_grows_with_the_line_and_not_with_its_square() {
    const SMALL: usize = 500;
    const TIMES: u32 = 16;
    let _quiet = measuring_blocking();
    for ((name, small), (_, large)) in growing(SMALL).into_iter().zip(growing(SMALL * TIMES as usize)) {
        // A square would be 16 times the line's share. What else runs takes room in the caches: it may be less another time.
        let (mut share, mut took) = (Duration::ZERO, Duration::MAX);
        for _ in 0..10 {
            share = share.max(cost(&small, 3) * TIMES);
            took = took.min(cost(&large, 1));
            if took <= share * 5 + Duration::from_millis(20) {
                break;
            }
        }
        let bound = share * 5 + Duration::from_millis(20);
        assert!(took <= bound, "{name}: {took:?} where {share:?} is its share");
    }
}
