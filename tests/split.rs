//! The splitter against the contract's golden vectors, and against what must hold for any text and any limit.

use hermes_relay::adapter::split::{split, split_continuation};
use hermes_relay::wire::LenUnit;
use proptest::prelude::*;
use serde::Deserialize;
use std::time::{Duration, Instant};
use unicode_segmentation::UnicodeSegmentation;

#[derive(Deserialize)]
struct Vectors {
    truncate: Vec<Vector>,
    fallback_split: Vec<Vector>,
}

#[derive(Deserialize)]
struct Vector {
    name: String,
    content: String,
    #[serde(alias = "max_length")]
    limit: usize,
    len_unit: String,
    chunks: Vec<String>,
}

fn vectors() -> Vectors {
    serde_json::from_str(include_str!("vectors/chunk.json")).expect("the vectors are JSON")
}

/// The vectors whose own parts are over the limit, what is given instead, and why.
const OVER_THE_LIMIT: &[(&str, &[&str], &str)] = &[
    (
        "max 1",
        &["a", "b", "c"],
        "six characters of numbering do not fit in one",
    ),
    (
        "max 0",
        &["a", "b"],
        "nothing fits in nothing: one code point is the smallest message there is",
    ),
    (
        "max 1 utf16 emoji",
        &["😀", "😀"],
        "a surrogate pair is never cut, and numbering would not fit",
    ),
    (
        "fallback utf16 emoji hard split overshoots",
        &["😀😀😀😀😀", "😀😀😀😀😀", "😀😀"],
        "ten emoji are twenty units",
    ),
];

fn check(vectors: &[Vector], run: fn(&str, usize, LenUnit) -> Vec<String>) -> usize {
    assert!(!vectors.is_empty());
    let mut over = 0;
    for vector in vectors {
        let unit = LenUnit::from_wire(&vector.len_unit);
        let parts = run(&vector.content, vector.limit, unit);
        let reference_fits = vector
            .chunks
            .iter()
            .all(|chunk| unit.measure(chunk) <= vector.limit);
        let exception = OVER_THE_LIMIT.iter().find(|(name, ..)| *name == vector.name);
        assert_eq!(reference_fits, exception.is_none(), "{}", vector.name);
        if let Some((name, expected, why)) = exception {
            over += 1;
            assert_eq!(parts, *expected, "{name}: {why}");
        } else {
            assert_eq!(parts, vector.chunks, "{}", vector.name);
        }
    }
    over
}

#[test]
fn golden_vectors_hold() {
    let vectors = vectors();
    let over = check(&vectors.truncate, split) + check(&vectors.fallback_split, split_continuation);
    assert_eq!(over, OVER_THE_LIMIT.len());
}

#[test]
fn units_are_read_and_measured() {
    assert_eq!(LenUnit::from_wire("utf16"), LenUnit::Utf16);
    for word in ["chars", "UTF16", "utf8", ""] {
        assert_eq!(LenUnit::from_wire(word), LenUnit::Chars);
    }
    assert_eq!(LenUnit::Chars.measure("a😀é"), 3);
    assert_eq!(LenUnit::Utf16.measure("a😀é"), 4);
}

#[test]
fn numbering_past_three_digits_keeps_within_the_limit() {
    let text = "word ".repeat(20_000);
    let parts = split(&text, 60, LenUnit::Chars);
    assert!(parts.len() > 1_000);
    assert!(parts.iter().all(|part| part.chars().count() <= 60));
    assert!(parts[1_233].ends_with(&format!(" (1234/{})", parts.len())));
}

#[test]
fn numbering_is_dropped_where_it_does_not_fit() {
    assert_eq!(split("one two three", 5, LenUnit::Chars), ["one", "two", "three"]);
    assert_eq!(
        split("one two three four five", 9, LenUnit::Chars),
        ["one two", "three", "four five"]
    );
}

#[test]
fn a_reopened_fence_is_closed_in_the_last_part() {
    let parts = split(
        &format!("```sh\n{}", "echo hello\n".repeat(8)),
        60,
        LenUnit::Chars,
    );
    assert_eq!(parts.len(), 3);
    for part in &parts {
        assert!(part.starts_with("```sh\n"), "{part:?}");
        assert!(part.contains("\n``` ("), "{part:?}");
    }
}

#[test]
fn a_long_info_word_does_not_eat_the_parts() {
    for info in [100, 190, 1_000] {
        let text = format!("```{}\n{}\n```", "i".repeat(info), "code line\n".repeat(200));
        let parts = split(&text, 200, LenUnit::Chars);
        assert!(parts.iter().all(|part| part.chars().count() <= 200));
        assert!(parts.len() < 35, "{info}: {} parts", parts.len());
        assert!(parts.iter().all(|part| is_balanced(part)));
    }
    let parts = split(&format!("```json{}", "x".repeat(3_000)), 2_000, LenUnit::Chars);
    assert_eq!(parts.len(), 2);
    assert!(
        parts
            .iter()
            .all(|part| part.chars().count() <= 2_000 && is_balanced(part))
    );
}

#[test]
fn a_cluster_is_whole_where_it_fits_and_cut_where_it_does_not() {
    let family = "👨\u{200d}👩\u{200d}👧\u{200d}👦";
    assert_eq!(LenUnit::Utf16.measure(family), 11);
    // The numbering gives way to the cluster.
    assert_eq!(split(&family.repeat(3), 16, LenUnit::Utf16), [family; 3]);
    assert_eq!(
        split_continuation(&family.repeat(3), 16, LenUnit::Utf16),
        [family; 3]
    );
    let parts = split(family, 5, LenUnit::Utf16);
    assert_eq!(parts.concat(), family);
    assert!(parts.iter().all(|part| LenUnit::Utf16.measure(part) <= 5));
    // A line break of two characters is one cluster: no part ends in half of it.
    let parts = split_continuation("abcdef\r\nghijkl", 8, LenUnit::Chars);
    assert_eq!(parts, ["abcdef", "ghijkl"]);
    // A mark on a space keeps its space.
    let parts = split("abcdef \u{301}ghijkl", 9, LenUnit::Chars);
    assert_eq!(parts, ["abcdef", " \u{301}ghijkl"]);
}

#[test]
fn odd_texts_come_through() {
    assert_eq!(split(&" ".repeat(50), 20, LenUnit::Chars), [" ".repeat(5)]);
    assert_eq!(split("", 0, LenUnit::Chars), [""]);
    assert_eq!(split_continuation("", 0, LenUnit::Utf16), [""]);
    assert_eq!(split_continuation("\n\n\n\n", 3, LenUnit::Chars), ["\n\n"]);
    assert_eq!(split("abc", usize::MAX, LenUnit::Utf16), ["abc"]);
    for text in ["`", "\u{301}", "\r\n", "\\`", "\u{1f1e6}", "\u{200d}", "```\n"] {
        let text = text.repeat(500);
        for limit in 0..40 {
            for unit in [LenUnit::Chars, LenUnit::Utf16] {
                assert_within(&split(&text, limit, unit), limit, unit);
                assert_within(&split_continuation(&text, limit, unit), limit, unit);
            }
        }
    }
}

#[test]
fn a_megabyte_takes_linear_time() {
    let shapes = [
        "word ",
        "x",
        "line of code\n",
        "```rs\n",
        "`",
        "\u{301}",
        "\u{1f1e6}",
        "👩\u{200d}",
        " ",
        "क्",
        "\r\n",
    ];
    let sizes = [
        (1_000_000, 2_000, LenUnit::Chars),
        (200_000, 40, LenUnit::Utf16),
        (1_000_000, 150_000, LenUnit::Chars),
    ];
    for shape in shapes {
        for (bytes, limit, unit) in sizes {
            let text = shape.repeat(bytes / shape.len());
            let started = Instant::now();
            let parts = split(&text, limit, unit).len() + split_continuation(&text, limit, unit).len();
            let taken = started.elapsed();
            // Reading the remaining text again for every part takes minutes.
            assert!(
                taken < Duration::from_secs(10),
                "{shape:?} {limit}: {parts} parts took {taken:?}"
            );
        }
    }
}

fn assert_within(parts: &[String], limit: usize, unit: LenUnit) {
    for part in parts {
        let alone = part.chars().count() == 1 && limit < unit.measure(part);
        assert!(
            alone || unit.measure(part) <= limit,
            "{} over {limit}: {part:?}",
            unit.measure(part)
        );
    }
}

fn is_space(point: char) -> bool {
    point.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&point)
}

fn is_balanced(part: &str) -> bool {
    let marks = part
        .split('\n')
        .filter(|line| line.trim_start_matches(is_space).starts_with("```"));
    marks.count() % 2 == 0
}

/// The parts without their numbers.
fn bodies(parts: &[String]) -> Vec<&str> {
    let total = parts.len();
    let numbered: Option<Vec<&str>> = (1..)
        .zip(parts)
        .map(|(index, part)| part.strip_suffix(format!(" ({index}/{total})").as_str()))
        .collect();
    numbered.unwrap_or_else(|| parts.iter().map(String::as_str).collect())
}

fn dense(texts: &[&str], dropped: fn(char) -> bool) -> String {
    texts
        .iter()
        .flat_map(|text| text.chars())
        .filter(|&point| !is_space(point) && !dropped(point))
        .collect()
}

fn unit() -> impl Strategy<Value = LenUnit> {
    prop_oneof![Just(LenUnit::Chars), Just(LenUnit::Utf16)]
}

fn text_of(pieces: &'static [&'static str]) -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(pieces), 0..120).prop_map(|chosen| chosen.concat())
}

const PLAIN: &[&str] = &[
    "a",
    "word ",
    "longerword",
    " ",
    "\n",
    "\t",
    "\u{3000}",
    "\u{1c}",
    "\r\n",
    "😀",
    "é",
    "你好",
];
const MARKED: &[&str] = &[
    "a",
    "word ",
    " ",
    "\n",
    "\n```\n",
    "```RUST\n",
    "```",
    "`x y`",
    "`",
    "\\`",
    "😀",
    "longerword",
];
const FENCED: &[&str] = &[
    "a",
    "word ",
    " ",
    "\n",
    "\n```\n",
    "```RUST\n",
    "\n```RUST NOTE\n",
    "`x y`",
    "😀",
    "longerword",
];
const LINES: &[&str] = &[
    "some words\n",
    "  word\n",
    "\n",
    "```RUST\nlet x = y;\nlet z;\n```\n",
    "```\nplain\n\n```\n",
];
const CLUSTERS: &[&str] = &[
    "👨\u{200d}👩\u{200d}👧\u{200d}👦",
    "🇵🇱",
    "🇩🇪",
    "e\u{301}",
    "o\u{302}\u{323}\u{308}",
    "각",
    "क्षि",
    "👍🏽",
    "\r\n",
    " ",
    " \u{301}",
    "a",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_within_any_limit(text in any::<String>(), limit in 0_usize..200, unit in unit()) {
        assert_within(&split(&text, limit, unit), limit, unit);
        assert_within(&split_continuation(&text, limit, unit), limit, unit);
    }

    #[test]
    fn marked_text_within_any_limit(text in text_of(MARKED), limit in 0_usize..200, unit in unit()) {
        assert_within(&split(&text, limit, unit), limit, unit);
        assert_within(&split_continuation(&text, limit, unit), limit, unit);
    }

    #[test]
    fn plain_words_rejoin(text in text_of(PLAIN), limit in 0_usize..200, unit in unit()) {
        let whole = dense(&[&text], |_| false);
        prop_assert_eq!(dense(&bodies(&split(&text, limit, unit)), |_| false), whole);
        let parts = split_continuation(&text, limit, unit).concat();
        prop_assert_eq!(parts.replace(['\r', '\n'], ""), text.replace(['\r', '\n'], ""));
    }

    /// Added fence lines hold nothing but marks and the language, which no other word here is made of.
    #[test]
    fn fenced_words_rejoin(text in text_of(FENCED), limit in 0_usize..200, unit in unit()) {
        let added = |point: char| point == '`' || point.is_ascii_uppercase();
        prop_assert_eq!(dense(&bodies(&split(&text, limit, unit)), added), dense(&[&text], added));
    }

    /// A cut may fall so that the text's last marks open a fence; the text is then left as it was written.
    #[test]
    fn fences_balance_up_to_the_last_part(text in text_of(MARKED), limit in 16_usize..200, unit in unit()) {
        let parts = split(&text, limit, unit);
        for part in &parts[..parts.len() - 1] {
            prop_assert!(is_balanced(part), "{:?}", part);
        }
    }

    #[test]
    fn well_formed_fences_balance_in_every_part(text in text_of(LINES), limit in 40_usize..200, unit in unit()) {
        for part in split(&text, limit, unit) {
            prop_assert!(is_balanced(&part), "{:?}", part);
        }
    }

    #[test]
    fn clusters_stay_whole(text in text_of(CLUSTERS), room in 0_usize..60, unit in unit()) {
        let visible = |texts: &[&str]| -> Vec<String> {
            let clusters = texts.iter().flat_map(|text| text.graphemes(true));
            clusters.filter(|cluster| !cluster.chars().all(is_space)).map(str::to_owned).collect()
        };
        let limit = room + text.graphemes(true).map(|cluster| unit.measure(cluster)).max().unwrap_or(0);
        let whole = visible(&[&text]);
        let parts = split(&text, limit, unit);
        assert_within(&parts, limit, unit);
        prop_assert_eq!(visible(&bodies(&parts)), whole.clone());
        let parts = split_continuation(&text, limit, unit);
        prop_assert_eq!(visible(&parts.iter().map(String::as_str).collect::<Vec<_>>()), whole);
    }
}
