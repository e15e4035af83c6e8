use std::collections::BTreeSet;

use super::*;

/// The names in braces.
fn placeholders(text: &str) -> BTreeSet<&str> {
    text.split('{')
        .skip(1)
        .map(|after| after.split_once('}').expect("a brace is closed").0)
        .collect()
}

#[test]
fn every_key_is_in_every_language_with_the_same_placeholders() {
    for language in Language::ALL {
        for (key, slots) in PhraseKey::ALL {
            let text = language.text(*key);
            let forms: Vec<&str> = text.split(FORMS).collect();
            let wanted: BTreeSet<&str> = slots.iter().copied().collect();
            let expected = if wanted.contains("count") {
                language.plurals()
            } else {
                1
            };
            assert_eq!(forms.len(), expected, "{language:?} {key:?}: {text}");
            for form in forms {
                assert!(!form.trim().is_empty(), "{language:?} {key:?}");
                assert_eq!(placeholders(form), wanted, "{language:?} {key:?}: {form}");
            }
        }
    }
}

#[test]
fn no_other_language_repeats_the_english_sentences() {
    for language in Language::ALL.into_iter().skip(1) {
        for (key, _) in PhraseKey::ALL {
            let (own, english) = (language.text(*key), Language::En.text(*key));
            let words = english.split_whitespace().filter(|word| word.len() > 3).count();
            assert!(words < 4 || own != english, "{language:?} {key:?}: {own}");
        }
    }
}

#[test]
fn a_tag_names_its_language_in_any_spelling() {
    for (tag, language) in [
        ("de", Some(Language::De)),
        ("pt-BR", Some(Language::Pt)),
        ("zh_Hans_CN", Some(Language::Zh)),
        ("EN", Some(Language::En)),
        ("sv", None),
        ("", None),
        ("deutsch", None),
    ] {
        assert_eq!(Language::from_tag(tag), language, "{tag}");
    }
    assert!(serde_json::from_str::<Language>("\"xx\"").is_err());
    let german: Language = serde_json::from_str("\"de-AT\"").unwrap();
    assert_eq!(serde_json::to_string(&german).unwrap(), "\"de\"");
}

#[test]
fn numbers_take_the_plural_of_their_language() {
    let forms = |language: Language, counts: &[u64]| -> Vec<usize> {
        counts.iter().map(|count| language.plural(*count)).collect()
    };
    assert_eq!(forms(Language::En, &[0, 1, 2]), [1, 0, 1]);
    assert_eq!(forms(Language::Fr, &[0, 1, 2]), [0, 0, 1]);
    let russian = [1, 2, 5, 11, 12, 14, 21, 22, 25, 101, 111, 112];
    assert_eq!(
        forms(Language::Ru, &russian),
        [0, 1, 2, 2, 2, 2, 0, 1, 2, 0, 2, 2]
    );
    assert_eq!(forms(Language::Ja, &[0, 1, 2]), [0, 0, 0]);
}

#[test]
fn a_duration_is_read_in_its_largest_units() {
    let english = |secs| Language::En.duration(Duration::from_secs(secs));
    let seen = [0, 59, 60, 90, 240, 725, 3600, 7500].map(english);
    assert_eq!(
        seen,
        [
            "0 s",
            "59 s",
            "1 min",
            "1 min 30 s",
            "4 min",
            "12 min",
            "1 h 0 min",
            "2 h 5 min"
        ]
    );
}

#[test]
fn what_is_filled_in_is_not_filled_in_again() {
    let said = Language::En.say(ChatPhrase::DoneAfter {
        time: "{gist}",
        gist: "{time} {",
    });
    assert_eq!(said, "Done after {gist}: {time} {");
}
