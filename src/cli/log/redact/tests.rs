//! What the engine finds and what is left of a line.

use std::sync::Arc;

use tracing_subscriber::layer::SubscriberExt as _;

use super::*;

const SECRET: &str = "the-gateways-secret";

fn secrets(values: &[&str]) -> Vec<KnownSecret> {
    let secret = |(n, value): (usize, &&str)| KnownSecret::new(format!("secret {n}"), *value);
    values.iter().enumerate().map(secret).collect()
}

fn redacted(values: &[&str], line: &str) -> String {
    Redactor::exact(secrets(values)).redact_str(line).into_owned()
}

#[test]
fn known_secrets_are_replaced_everywhere() {
    let line = "hunter2-hunter2 and=hunter2-hunter2, twice";
    assert_eq!(
        redacted(&["hunter2-hunter2"], line),
        "<hidden> and=<hidden>, twice"
    );
    assert_eq!(redacted(&["hunter2-hunter2"], "hunter2"), "hunter2");
    assert_eq!(redacted(&["short"], "short"), "short", "too short to search for");
}

#[test]
fn overlapping_secrets_leave_nothing_over() {
    for values in [["abcdefgh", "abcdefgh-ijkl"], ["abcdefgh-ijkl", "abcdefgh"]] {
        assert_eq!(redacted(&values, "a abcdefgh-ijkl b"), "a <hidden> b");
    }
    assert_eq!(redacted(&["abcdefgh", "efghijkl"], "abcdefghijkl!"), "<hidden>!");
}

#[test]
fn every_spelling_of_a_secret_is_found() {
    let secret = "a\"b\\c\u{1b}d e/f\nsecond line of it, long";
    let line = format!(
        "{secret:?} {} {}",
        serde_json::to_string(secret).unwrap(),
        serde_json::to_string(&format!("{secret:?}")).unwrap()
    );
    assert_eq!(
        redacted(&[secret], &line),
        r#""<hidden>" "<hidden>" "\"<hidden>\"""#
    );
    let redactor = Redactor::exact(secrets(&["pass word/0", secret]));
    assert_eq!(redactor.redact_str("?k=pass+word%2F0&"), "?k=<hidden>&");
    assert_eq!(redactor.redact_str("/pass%20word%2F0/"), "/<hidden>/");
    assert_eq!(redactor.redact_str("> second line of it, long"), "> <hidden>");
}

#[test]
fn the_newest_secrets_are_kept_at_the_maximum() {
    let many = (0..2 * MAX_SECRETS).map(|n| KnownSecret::new("s", format!("secret-number-{n}")));
    let redactor = Redactor::exact(many.collect());
    assert_eq!(redactor.secrets().len(), MAX_SECRETS);
    let last = format!("secret-number-{}", 2 * MAX_SECRETS - 1);
    assert_eq!(redactor.redact_str(&last), "<hidden>");
}

#[test]
fn bytes_that_are_not_text_pass_unchanged() {
    let redactor = Redactor::exact(secrets(&["the-secret"]));
    let shown = redactor.redact(b"\xff\x00the-secret\xfe");
    assert_eq!(&*shown, b"\xff\x00<hidden>\xfe");
    let garbage: Vec<u8> = (0..=255_u8).cycle().take(5000).collect();
    let redactor = Redactor::thorough(secrets(&[SECRET]), true);
    assert_eq!(&*redactor.redact(&garbage), garbage);
}

#[test]
fn overlapping_matches_are_replaced_once_and_reported_as_the_most_certain() {
    let redactor = Redactor::thorough(secrets(&[SECRET]), false);
    for (text, wanted) in [
        (
            "GATEWAY_RELAY_SECRET=the-gateways-secret x",
            "GATEWAY_RELAY_SECRET=<hidden> x",
        ),
        (
            "Authorization: Bearer the-gateways-secret",
            "Authorization: Bearer <hidden>",
        ),
        ("token=pre-the-gateways-secret-post;", "token=<hidden>;"),
        (
            "ws://u:the-gateways-secret@h/?token=abcd&chat=123456",
            "ws://<hidden>@h/?token=<hidden>&chat=<id-1>",
        ),
    ] {
        assert_eq!(redactor.redact_str(text), wanted);
    }
    let found = redactor.find(b"token=pre-the-gateways-secret");
    let kinds: Vec<_> = found.iter().map(|found| found.kind).collect();
    assert_eq!(kinds, [MatchKind::Known(0)]);
}

#[test]
fn ids_are_kept_on_request() {
    let text = "session=agent:main:discord:dm:123456";
    assert_eq!(Redactor::thorough(Vec::new(), true).redact_str(text), text);
    assert_eq!(
        Redactor::thorough(Vec::new(), false).redact_str(text),
        "session=agent:main:discord:dm:<id-1>"
    );
}

/// With the same layers as the program.
#[test]
fn a_shared_log_names_nobody_in_any_format() {
    #[derive(Clone, Default)]
    struct Page(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Page {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    for (json, colour) in [(false, false), (false, true), (true, false)] {
        let page = Page::default();
        let writer = page.clone();
        let layer = crate::cli::log::line_layer(move || writer.clone(), json, colour);
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            let _turn = tracing::info_span!("turn", session = "agent:main:slack:dm:D0AB12CD3").entered();
            let (person, name) = ("telegram:555666777", "Some \"One\" Zoë");
            tracing::info!(person, chat = "room-4711", "refused a message");
            tracing::info!(person = %person, name, "to let them in: hermes-relay access approve 7CT682DX");
            tracing::info!(person = %"irc:ann", chat = -1_001_234_567_890_i64, "paused a job");
        });
        let log = String::from_utf8(page.0.lock().unwrap().clone()).unwrap();
        let redactor = Redactor::thorough(Vec::new(), false);
        let shown: String = log.lines().map(|line| redactor.redact_str(line) + "\n").collect();
        for private in [
            "555666777",
            "Some",
            "One",
            "room-4711",
            "D0AB12CD3",
            "7CT682DX",
            "ann",
            "1001234567890",
        ] {
            assert!(log.contains(private), "{log}");
            assert!(!shown.contains(private), "{private}: {shown}");
        }
        assert_eq!(shown.matches("telegram:<id-").count(), 2, "{shown}");
        assert!(shown.contains("approve <hidden>"), "{shown}");
        let again = Redactor::thorough(Vec::new(), false).find(shown.as_bytes());
        assert!(again.is_empty(), "{shown}: {again:?}");
        let kept = Redactor::thorough(Vec::new(), true);
        let kept = kept.redact_str(&log);
        assert!(kept.contains("555666777") && !kept.contains("7CT682DX"), "{kept}");
    }
}

proptest::proptest! {
    #[test]
    fn no_secret_survives_in_any_spelling(
        secret in "[\\PC\\n\"\\\\]{8,40}",
        before in "\\PC{0,30}",
        after in "\\PC{0,30}",
    ) {
        let redactor = Redactor::exact(secrets(&[&secret]));
        for form in [secret.clone(), format!("{secret:?}"), serde_json::to_string(&secret).unwrap()] {
            let line = format!("{before}{form}{after}");
            let shown = redactor.redact_str(&line);
            proptest::prop_assert!(shown.contains(HIDDEN));
            // The text around it may contain it by chance, but then that is replaced too.
            proptest::prop_assert!(!shown.contains(unquoted(&form)), "{shown}");
        }
    }

    #[test]
    fn no_secret_survives_in_any_bytes(
        before in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200),
        after in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200),
        around in "(token=|Bearer |://|\"api_key\":\"|chat_id=|agent:main:discord:dm:)?",
    ) {
        let text = [&before, around.as_bytes(), SECRET.as_bytes(), &after].concat();
        let redactor = Redactor::thorough(secrets(&[SECRET]), false);
        let found = redactor.find(&text);
        proptest::prop_assert!(found.iter().any(|found| found.kind == MatchKind::Known(0)));
        let shown = redactor.replace(&text, &found);
        proptest::prop_assert!(memmem::find(&shown, SECRET.as_bytes()).is_none());
    }
}
