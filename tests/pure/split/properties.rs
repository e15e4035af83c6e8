//! What holds for any text, any limit and both units.

use super::{assert_within, bodies, is_balanced, is_space};
use hermes_relay::adapter::split::{split, split_continuation};
use hermes_relay::wire::LenUnit;
use proptest::prelude::*;
use unicode_segmentation::UnicodeSegmentation;

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

fn any_text() -> impl Strategy<Value = String> {
    prop::collection::vec(any::<char>(), 0..300).prop_map(String::from_iter)
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
    fn any_text_within_any_limit(text in any_text(), limit in 0_usize..200, unit in unit()) {
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
