//! The reader against what python-dotenv gives for the same text.

use super::*;

fn env(name: &str) -> Option<String> {
    matches!(name, "FROM_ENV" | "BOTH").then(|| "outer".to_owned())
}

#[test]
fn reads_what_python_dotenv_reads() {
    let cases: serde_json::Value =
        serde_json::from_str(include_str!("../../../tests/vectors/dotenv.json")).unwrap();
    let cases = cases.as_array().unwrap();
    assert!(cases.len() > 50);
    for case in cases {
        let text = case["text"].as_str().unwrap();
        let wanted: BTreeMap<String, Option<String>> =
            serde_json::from_value(case["values"].clone()).unwrap();
        let read = Dotenv::parse(text, &env);
        let plain = |value: &Option<Zeroizing<String>>| value.as_ref().map(|value| value.to_string());
        let values: BTreeMap<_, _> = read
            .values
            .iter()
            .map(|(key, value)| (key.clone(), plain(value)))
            .collect();
        assert_eq!(values, wanted, "reading {text:?}");
    }
}

#[test]
fn an_unterminated_quote_spoils_only_its_own_line() {
    let read = Dotenv::parse("A=1\nB=\"open\nC=3\n", &env);
    assert_eq!(read.value("C"), Some("3"));
    assert_eq!(read.value("B"), None);
    assert_eq!(read.skipped_lines(), [2]);
}

#[test]
fn bytes_that_are_not_utf8_are_read_one_by_one() {
    let read = Dotenv::parse(&decode(b"# caf\xe9\nA=\xe9\n"), &env);
    assert_eq!(read.value("A"), Some("\u{e9}"));
}

#[test]
fn doubling_references_stop_at_the_bound() {
    let mut text = String::from("V0=xxxxxxxxxxxxxxxx\n");
    for n in 1..200 {
        use std::fmt::Write as _;
        writeln!(text, "V{n}=${{V{}}}${{V{}}}", n - 1, n - 1).unwrap();
    }
    let read = Dotenv::parse(&text, &env);
    let size: usize = read.values.values().flatten().map(|value| value.len()).sum();
    assert!(size <= MAX_EXPANDED_BYTES);
    assert!(!read.skipped_lines().is_empty());
}

#[test]
fn debug_hides_values() {
    let shown = format!("{:?}", Dotenv::parse("A=hunter2\n", &env));
    assert!(shown.contains('A') && !shown.contains("hunter2"), "{shown}");
}

proptest::proptest! {
    #[test]
    fn any_text_is_read_without_panic(text in "[\\PC\n\r\t=#'\"\\\\${}:\\- A]{0,80}") {
        Dotenv::parse(&text, &env);
    }
}
