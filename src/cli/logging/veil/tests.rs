//! What the net hides, alone and under the layers that the program logs with.

use std::sync::Mutex;

use tracing_subscriber::layer::SubscriberExt as _;

use super::*;

fn known(values: &[&str]) -> Vec<Known> {
    let known = |(n, value): (usize, &&str)| Known {
        name: format!("secret {n}"),
        value: (*value).into(),
    };
    values.iter().enumerate().map(known).collect()
}

fn shown(values: &[&str], line: &str) -> String {
    Veil::over(known(values)).hide_text(line).into_owned()
}

#[test]
fn what_is_known_is_hidden_wherever_it_stands() {
    let line = "hunter2-hunter2 and=hunter2-hunter2, twice";
    assert_eq!(shown(&["hunter2-hunter2"], line), "<hidden> and=<hidden>, twice");
    assert_eq!(shown(&["hunter2-hunter2"], "hunter2"), "hunter2");
    assert_eq!(shown(&["short"], "short"), "short", "too short to look for");
}

#[test]
fn a_secret_within_another_leaves_nothing_over() {
    for values in [["abcdefgh", "abcdefgh-ijkl"], ["abcdefgh-ijkl", "abcdefgh"]] {
        assert_eq!(shown(&values, "a abcdefgh-ijkl b"), "a <hidden> b");
    }
    assert_eq!(shown(&["abcdefgh", "efghijkl"], "abcdefghijkl!"), "<hidden>!");
}

#[test]
fn every_spelling_is_known() {
    let secret = "a\"b\\c\u{1b}d e/f\nsecond line of it, long";
    let line = format!(
        "{secret:?} {} {}",
        serde_json::to_string(secret).unwrap(),
        serde_json::to_string(&format!("{secret:?}")).unwrap()
    );
    let shown = shown(&[secret], &line);
    assert_eq!(shown, r#""<hidden>" "<hidden>" "\"<hidden>\"""#);
    let veil = Veil::over(known(&["pass word/0", secret]));
    assert_eq!(veil.hide_text("?k=pass+word%2F0&"), "?k=<hidden>&");
    assert_eq!(veil.hide_text("/pass%20word%2F0/"), "/<hidden>/");
    assert_eq!(veil.hide_text("> second line of it, long"), "> <hidden>");
}

#[test]
fn what_was_secret_before_a_change_still_is() {
    let net = Net::over(known(&["the-old-one"]));
    net.learn(known(&["the-new-one"]));
    assert_eq!(
        net.veil().hide_text("the-old-one the-new-one"),
        "<hidden> <hidden>"
    );
    for n in 0..2 * MOST {
        net.learn(known(&[&format!("secret-number-{n}")]));
    }
    assert_eq!(net.veil().secrets().len(), MOST);
    let last = format!("secret-number-{}", 2 * MOST - 1);
    assert_eq!(net.veil().hide_text(&last), "<hidden>", "the newest are kept");
}

#[test]
fn bytes_that_are_no_text_pass_unharmed() {
    let veil = Veil::over(known(&["the-secret"]));
    let shown = veil.hide(b"\xff\x00the-secret\xfe");
    assert_eq!(&*shown, b"\xff\x00<hidden>\xfe");
}

#[derive(Clone, Default)]
struct Page(Arc<Mutex<Vec<u8>>>);

impl io::Write for Page {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'w> MakeWriter<'w> for Page {
    type Writer = Self;

    fn make_writer(&'w self) -> Self {
        self.clone()
    }
}

/// The very layers that the program logs with.
#[test]
fn a_secret_that_is_logged_is_not_seen_in_any_format() {
    const SECRET: &str = "hush \"quoted\" \\ hush";
    for json in [false, true] {
        let page = Page::default();
        let net = Net::over(known(&[SECRET]));
        let into = NettedMaker {
            net: net.clone(),
            into: page.clone(),
        };
        let layer = crate::cli::logging::lines(into, json, false);
        let subscriber = tracing_subscriber::registry().with(layer);
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(field = SECRET, shown = %SECRET, "said {SECRET} aloud");
            tracing::warn!(list = ?[SECRET]);
            tracing::warn!("nothing to hide");
        });
        let page = String::from_utf8(page.0.lock().unwrap().clone()).unwrap();
        assert_eq!(net.counts().hidden.load(Ordering::Relaxed), 2);
        assert_eq!(page.lines().count(), 3, "{page}");
        assert_eq!(page.matches(HIDDEN).count(), 4, "{page}");
        assert!(!page.contains("hush"), "{page}");
    }
}

proptest::proptest! {
    /// Whatever is in a secret, no spelling of it stays.
    #[test]
    fn no_secret_survives_any_of_its_spellings(
        secret in "[\\PC\\n\"\\\\]{8,40}",
        before in "\\PC{0,30}",
        after in "\\PC{0,30}",
    ) {
        let veil = Veil::over(known(&[&secret]));
        for form in [secret.clone(), format!("{secret:?}"), serde_json::to_string(&secret).unwrap()] {
            let line = format!("{before}{form}{after}");
            let inside = inside(&form);
            let shown = veil.hide_text(&line);
            proptest::prop_assert!(shown.contains(HIDDEN));
            // What stands around it may hold it by chance, but then that is hidden too.
            proptest::prop_assert!(!shown.contains(inside), "{shown}");
        }
    }
}
