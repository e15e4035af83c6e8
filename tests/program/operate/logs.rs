//! The log: repeated lines are suppressed and counted, and `logs redact` prepares it for sharing.

use std::fs;
use std::io::Write as _;
use std::process::Stdio;

use hermes_relay::wire::UpgradeToken;
use rustix::process::Signal;
use serde_json::Value;
use tokio::io::AsyncWriteExt as _;
use tokio::time::timeout;

use crate::operate::{connected, connector, verb, verb_with};
use crate::support::relay_process::{SOON, Setup};
use crate::support::wait::eventually;

const SECRET: &str = "the-gateways-own-secret";

/// Frames that cannot be used, each with a name of its own: those without one are told together.
fn poison(from: usize, count: usize) -> String {
    let frame = |n| format!("{{\"type\":\"inbound\",\"bufferId\":\"poison-{n}\",\"event\":[]}}\n");
    (from..from + count).map(frame).collect()
}

#[tokio::test]
async fn a_line_that_repeats_itself_is_left_out_and_counted() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector)
        .setting("serve.http", "127.0.0.1:0")
        .setting("log.repeat_burst", "3")
        .setting("log.repeat_window_secs", "1");
    let relay = connected(&setup).await;
    assert!(connector.send_raw(&poison(0, 20)));
    let line = relay.wait_for_log("repeated log lines were suppressed").await;
    assert!(line.contains("WARN") && line.contains("count=17"), "{line}");
    assert!(line.contains("example=\"cannot decode a frame\""), "{line}");
    let set_aside = "WARN cannot decode a frame";
    assert_eq!(relay.count(set_aside), 3);
    let page = crate::operate::metrics::page(&relay).await;
    assert!((page.value("log_lines_left_out_total", &[]) - 17.0).abs() < 0.5);
    assert!(page.value("log_secrets_hidden_total", &[]).abs() < 0.5);
    // Other settings hold from the next line on.
    let _all = setup.setting("log.repeat_burst", "0");
    relay.signal(Signal::HUP);
    relay.wait_for_log("settings reloaded").await;
    assert!(connector.send_raw(&poison(20, 20)));
    eventually("23 such lines", async || relay.count(set_aside) >= 23).await;
    relay.stop().await;
}

#[tokio::test]
async fn a_close_reason_neither_drives_a_terminal_nor_forges_a_line() {
    const REASON: &str = "bye\x1b[2J\x1b]0;owned\x07\r\nERROR forged\u{202e}\u{9b}1m";
    for format in ["text", "json"] {
        let connector = connector().await;
        let setup = Setup::for_connector(&connector)
            .setting("log.format", format)
            .setting("link.backoff_min_ms", "60000")
            .setting("link.backoff_max_ms", "60000");
        let relay = connected(&setup).await;
        connector.close_with(4000, REASON);
        let line = relay.wait_for_log("ERROR forged").await;
        assert!(line.contains("code 4000") && line.contains("\\u202e"), "{line:?}");
        let status = verb(&setup, &["status"]).await;
        let json = verb(&setup, &["status", "--json"]).await;
        for text in [&relay.stderr(), &status.out, &json.out] {
            assert!(text.contains("forged"), "{text:?}");
            let hostile = |c: char| c != '\n' && hermes_relay::text::is_unprintable(c);
            assert!(!text.contains(hostile), "{text:?}");
            assert!(!text.lines().any(|line| line.starts_with("ERROR")), "{text:?}");
        }
        assert!(
            json.json()["last_loss"].as_str().unwrap().ends_with(REASON),
            "{json:?}"
        );
        relay.stop().await;
    }
}

#[tokio::test]
async fn an_agents_standard_error_is_for_debug_and_its_last_line_for_the_warning() {
    for level in ["info", "debug"] {
        let connector = connector().await;
        let agent = r#"{failing: {kind: command, argv: [sh, -c, "echo first >&2; printf 'no \\033[31mkey\\n\\n' >&2; exit 3"]}}"#;
        let setup =
            Setup::for_connector(&connector).args(&["run", "--agent", "failing", "--log-level", level]);
        let file = fs::read_to_string(setup.home().join("relay.yaml")).unwrap();
        setup.write("relay.yaml", &format!("{file}agents: {agent}\n"));
        let relay = connected(&setup).await;
        crate::operate::answered(&connector, "m1", "hello").await;
        let warned = relay.wait_for_log("the turn failed").await;
        assert!(
            warned.contains("WARN") && warned.contains("[31mkey") && !warned.contains('\x1b'),
            "{warned}"
        );
        assert!(!warned.contains("first"), "{warned}");
        let said = relay.stderr();
        let debug: Vec<_> = said
            .lines()
            .filter(|line| line.contains("wrote to standard error"))
            .collect();
        match level {
            "debug" => {
                assert_eq!(debug.len(), 2, "{debug:?}");
                assert!(debug.iter().all(|line| line.contains("DEBUG")), "{debug:?}");
                assert!(debug[0].contains("first"), "{debug:?}");
            }
            _ => assert!(debug.is_empty() && !said.contains("first"), "{debug:?}"),
        }
        relay.stop().await;
    }
}

#[tokio::test]
async fn suppressed_lines_are_counted_at_the_end() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector)
        .setting("log.repeat_burst", "2")
        .setting("log.repeat_window_secs", "3600");
    let mut relay = connected(&setup).await;
    assert!(connector.send_raw(&poison(0, 9)));
    crate::operate::answered(&connector, "m1", "after them").await;
    relay.terminate();
    assert_eq!(relay.exit_code(SOON).await, 0);
    let line = relay.wait_for_log("repeated log lines were suppressed").await;
    assert!(line.contains("count=7"), "{line}");
}

#[tokio::test]
async fn the_redacted_log_of_a_relay_holds_no_secret_and_no_id() {
    let setup = Setup::new().env("GATEWAY_RELAY_SECRET", SECRET);
    setup.write(".env", "SOMEBODYS_API_KEY=key-that-nobody-logs\n");
    let token = UpgradeToken::mint("gw-1", &SECRET.into(), 300, 0);
    let log = format!(
        "Nov 15 host hermes-relay[1]: INFO connected\n\
         a {SECRET} b {{\"x\":\"{SECRET}\"}}\n\
         key-that-nobody-logs\n\
         Authorization: Bearer {}\n\
         OTHER_TOKEN=abcdef url=https://me:pw@host/?key=abcdef&x=1\n\
         session=agent:main:whatsapp:dm:4917012345 chat_id=4917012345\n\
         4917012345 again\n\
         last, without an end",
        token.expose()
    );
    let output = verb_with(&setup, &["logs", "redact"], Some(&log)).await;
    assert_eq!(output.code, 0, "{output:?}");
    assert_eq!(
        output.out,
        "Nov 15 host hermes-relay[1]: INFO connected\n\
         a <hidden> b {\"x\":\"<hidden>\"}\n\
         <hidden>\n\
         Authorization: Bearer <hidden>\n\
         OTHER_TOKEN=<hidden> url=https://<hidden>@host/?key=<hidden>&x=1\n\
         session=agent:main:whatsapp:dm:<id-1> chat_id=<id-1>\n\
         <id-1> again\n\
         last, without an end"
    );
    assert!(
        output.err.contains("read the result before you post it"),
        "{output:?}"
    );
    let kept = verb_with(&setup, &["logs", "redact", "--keep-ids"], Some(&log)).await;
    assert!(
        kept.out.contains("4917012345") && !kept.out.contains(SECRET),
        "{kept:?}"
    );
    // What came out is clean, also by its looks.
    let again = verb_with(
        &setup,
        &["logs", "redact", "--check", "--strict"],
        Some(&output.out),
    )
    .await;
    assert_eq!(again.code, 0, "{again:?}");
}

#[tokio::test]
async fn a_check_reports_kinds_and_lines_and_never_a_value() {
    let setup = Setup::new().env("GATEWAY_RELAY_SECRET", SECRET);
    setup.write("one.log", &format!("fine\n{SECRET}\nfine\nx {SECRET} {SECRET}\n"));
    setup.write("two.log", "A_PASSWORD=swordfish-4\nchat=123456789\n");
    let [one, two] = ["one.log", "two.log"].map(|name| setup.home().join(name).display().to_string());
    let output = verb(&setup, &["logs", "redact", "--check", &one, &two]).await;
    assert_eq!(output.code, 1, "{output:?}");
    assert!(
        output.out.contains("connector.secret: 3 times, on lines 2, 4"),
        "{output:?}"
    );
    let json = verb(&setup, &["logs", "redact", "--check", "--json", &one, &two]).await;
    assert_eq!(json.code, 1, "{json:?}");
    let report: Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!(report["holds_known_secret"], true);
    let found = &report["files"][0]["found"][0];
    assert_eq!(
        (&found["kind"], &found["name"]),
        (&"known".into(), &"connector.secret".into())
    );
    assert_eq!(found["lines"], serde_json::json!([2, 4]));
    let kinds: Vec<_> = report["files"][1]["found"]
        .as_array()
        .unwrap()
        .iter()
        .map(|found| &found["kind"])
        .collect();
    assert_eq!(kinds, ["named", "id"]);
    for output in [&output, &json] {
        for value in [SECRET, "swordfish", "123456789"] {
            assert!(
                !output.out.contains(value) && !output.err.contains(value),
                "{output:?}"
            );
        }
    }
    let clean = verb(&setup, &["logs", "redact", "--check", &two]).await;
    assert_eq!(clean.code, 0, "what only looks like a secret is told: {clean:?}");
    let strict = verb(&setup, &["logs", "redact", "--check", "--strict", &two]).await;
    assert_eq!(strict.code, 1, "and counts where that is asked for: {strict:?}");
}

#[tokio::test]
async fn without_settings_it_warns_and_redacts_by_pattern() {
    let setup = Setup::new()
        .env("GATEWAY_RELAY_SECRET", SECRET)
        .setting("log.levle", "info");
    let log = format!("A_TOKEN=abcdef\n{SECRET}\n");
    let output = verb_with(&setup, &["logs", "redact"], Some(&log)).await;
    assert_eq!(output.code, 0, "{output:?}");
    assert!(
        output.err.contains("cannot read the settings") && output.err.contains("levle"),
        "{output:?}"
    );
    assert_eq!(
        output.out, "A_TOKEN=<hidden>\n<hidden>\n",
        "the environment is still known"
    );
    let check = verb_with(&setup, &["logs", "redact", "--check"], Some("A_TOKEN=abcdef\n")).await;
    assert_eq!(check.code, 78, "nobody knows: {check:?}");
    let none = verb_with(&Setup::new(), &["logs", "redact"], Some("x\n")).await;
    assert!(
        none.err.contains("contain no gateway secret") && none.err.contains("--config"),
        "{none:?}"
    );
    let check = verb_with(&Setup::new(), &["logs", "redact", "--check"], Some("x\n")).await;
    assert!(
        check.code == 78 && check.out.contains("unknown whether"),
        "{check:?}"
    );
}

#[tokio::test]
async fn what_cannot_be_read_is_named_and_the_rest_is_done() {
    let setup = Setup::new().env("GATEWAY_RELAY_SECRET", SECRET);
    setup.write("there.log", "here\n");
    let there = setup.home().join("there.log").display().to_string();
    let folder = setup.home().display().to_string();
    let output = verb(&setup, &["logs", "redact", "missing.log", &folder, &there]).await;
    assert_eq!((output.code, output.out.as_str()), (1, "here\n"), "{output:?}");
    assert!(
        output.err.contains("cannot read missing.log: No such file"),
        "{output:?}"
    );
    assert!(output.err.contains("hint: check the name"), "{output:?}");
    assert!(output.err.contains("hint: name the files in it"), "{output:?}");
    let check = verb(&setup, &["logs", "redact", "--check", "missing.log"]).await;
    assert!(
        check.code == 1 && check.out.contains("in what could be read"),
        "{check:?}"
    );
    let typo = verb(&setup, &["logs", "redcat"]).await;
    assert!(typo.code == 2 && typo.err.contains("redact"), "{typo:?}");
    let alone = verb(&setup, &["logs", "redact", "--json"]).await;
    assert!(alone.code == 2 && alone.err.contains("--check"), "{alone:?}");
}

#[tokio::test]
async fn garbage_and_endless_lines_go_through_in_bounded_memory() {
    let setup = Setup::new().env("GATEWAY_RELAY_SECRET", SECRET);
    let path = setup.home().join("garbage");
    let mut file = fs::File::create(&path).unwrap();
    let noise: Vec<u8> = (0..100_000_u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    file.write_all(&noise).unwrap();
    file.write_all(b"\n").unwrap();
    for _ in 0..64 {
        file.write_all(&vec![b'x'; 64 * 1024]).unwrap();
    }
    file.write_all(format!("{SECRET}\nafter {SECRET}\n").as_bytes())
        .unwrap();
    let mut command = setup.verb(&["logs", "redact", path.to_str().unwrap()]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let ended = timeout(SOON, command.output())
        .await
        .expect("an end in time")
        .unwrap();
    assert_eq!(ended.status.code(), Some(0));
    let shown = String::from_utf8_lossy(&ended.stdout);
    assert!(shown.contains("[cut: the line is longer than"), "said so");
    assert!(shown.ends_with("\nafter <hidden>\n"));
    assert!(ended.stdout.len() < 2 * 1024 * 1024 && !shown.contains(SECRET));
    // Whoever asks whether it is clean is told that not all of it was looked at.
    setup.write("long.log", &format!("short\n{}\n", "x".repeat(1024 * 1024 + 1)));
    let long = setup.home().join("long.log").display().to_string();
    let check = verb(&setup, &["logs", "redact", "--check", &long]).await;
    assert!(
        check.code == 1 && check.out.contains("beyond that: line 2"),
        "{check:?}"
    );
}

#[tokio::test]
async fn a_reader_that_goes_ends_it_quietly_and_a_line_is_not_held_back() {
    let setup = Setup::new();
    let mut command = setup.verb(&["logs", "redact"]);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut into = child.stdin.take().unwrap();
    let mut out = tokio::io::BufReader::new(child.stdout.take().unwrap());
    into.write_all(b"first\n").await.unwrap();
    let mut line = String::new();
    let read = tokio::io::AsyncBufReadExt::read_line(&mut out, &mut line);
    timeout(SOON, read).await.expect("a line at once").unwrap();
    assert_eq!(line, "first\n");
    drop(out);
    let feeding = async {
        while into.write_all(&[b'\n'; 4096]).await.is_ok() {}
        drop(into);
    };
    timeout(SOON, feeding).await.expect("an end in time");
    let ended = timeout(SOON, child.wait_with_output())
        .await
        .expect("an end")
        .unwrap();
    assert_eq!(ended.status.code(), Some(0));
    let log = String::from_utf8_lossy(&ended.stderr);
    assert!(!log.contains("error") && !log.contains("panicked"), "{log}");
}

/// Complaints about settings repeat what was written, here a secret in the wrong place.
#[tokio::test]
async fn a_secret_that_slips_into_a_line_is_hidden_and_so_is_a_new_one() {
    let connector = connector().await;
    for format in ["text", "json"] {
        let setup = Setup::for_connector(&connector)
            .env("HERMES_GATEWAY_BUSY_INPUT_MODE", "the-first-delivery-key")
            .setting("serve.http", "127.0.0.1:0")
            .setting("log.format", format);
        setup.write(".env", "GATEWAY_RELAY_DELIVERY_KEY=the-first-delivery-key\n");
        let relay = connected(&setup).await;
        let line = relay.wait_for_log("busy mode from").await;
        assert!(line.contains("`<hidden>` is not one of"), "{line}");
        setup.write(".env", "GATEWAY_RELAY_DELIVERY_KEY=the-second-delivery-key\n");
        relay.signal(Signal::HUP);
        relay.wait_for_log("settings reloaded").await;
        setup.write("relay.yaml", "log:\n  level: the-second-delivery-key\n");
        relay.signal(Signal::HUP);
        let line = relay.wait_for_log("cannot reload the settings").await;
        assert!(line.contains("<hidden>"), "{line}");
        // Its address is read from a line of text.
        if format == "text" {
            let page = crate::operate::metrics::page(&relay).await;
            assert!(page.value("log_secrets_hidden_total", &[]) > 1.5);
        }
        assert!(!relay.stderr().contains("delivery-key"), "{}", relay.stderr());
        relay.stop().await;
    }
}
