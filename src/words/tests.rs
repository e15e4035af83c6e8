use std::collections::BTreeSet;

use super::sentences::SENTENCES;
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

#[test]
fn every_sentence_has_the_same_placeholders_in_every_language() {
    for row in SENTENCES {
        for (language, text) in Language::ALL.into_iter().zip(row) {
            assert!(!text.trim().is_empty(), "{language:?}: {}", row[0]);
            assert_eq!(
                placeholders(text),
                placeholders(row[0]),
                "{language:?}: {}",
                row[0]
            );
        }
    }
}

/// Sentences that no chat reads as they are: instructions for agents, and what is for whoever runs the relay.
const NOT_FOR_CHATS: &[&str] = &[
    "Answers are shown as plain text: use no markdown.",
    "Answers may use this markdown dialect: {}.",
    "The file {name} could not be passed to you.",
    "A file of the agent is too large or cannot be read.",
    "This is a scheduled job: nobody waits in a chat, and your final reply is delivered by itself.",
    "If there is nothing to report, reply with [SILENT] only.",
    // The end of a sentence that is known as a whole.
    "Did you mean `{near}`?",
];

/// The string literals of a source, without its tests and comments.
fn literals(source: &str) -> Vec<String> {
    let source = source.split("mod tests {").next().unwrap_or_default();
    let is_code = |line: &&str| !line.trim_start().starts_with("//") && !line.trim_start().starts_with("#[");
    let code: Vec<&str> = source.lines().filter(is_code).collect();
    let code = code.join("\n").replace("\\\"", "'").replace("'\"'", "' '");
    let literals = code.split('"').skip(1).step_by(2);
    literals
        .map(|literal| {
            // A backslash at the end of a line joins it with the next one.
            let mut lines = literal.split("\\\n");
            let first = lines.next().unwrap_or_default().to_owned();
            let whole = lines.fold(first, |whole, line| whole + line.trim_start());
            whole.replace("\\n", "\n")
        })
        .collect()
}

/// The text with something in the place of each placeholder.
fn sample(text: &str) -> String {
    let mut parts = text.split('{');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |sample, part| {
        let after = part.split_once('}').map_or(part, |(_, after)| after);
        sample + "model" + after
    })
}

#[test]
fn sentences_for_people_are_in_the_catalogue() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut folders = ["access", "adapter", "agent", "cron", "direct", "relay"]
        .map(|folder| root.join(folder))
        .to_vec();
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.ends_with("tests") {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") && !path.ends_with("tests.rs") {
                files.push(path);
            }
        }
    }
    let mut missing = Vec::new();
    for file in files {
        for literal in literals(&std::fs::read_to_string(&file).unwrap()) {
            for line in literal.lines() {
                let is_sentence = |sentence: &str| {
                    let begins = sentence.starts_with(|c: char| c.is_ascii_uppercase())
                        || sentence.starts_with("{who} ");
                    begins && sentence.contains(' ') && sentence.ends_with(['.', '?', '!'])
                };
                let is_known = |text: &str| Language::De.reword_line(&sample(text)).is_some();
                if is_known(line) {
                    continue;
                }
                let sentences = line.split_inclusive(". ").map(str::trim_end);
                let unknown = sentences.filter(|sentence| is_sentence(sentence) && !is_known(sentence));
                let unknown = unknown.filter(|sentence| !NOT_FOR_CHATS.contains(sentence));
                missing.extend(unknown.map(|sentence| format!("{}: {sentence}", file.display())));
            }
        }
    }
    assert!(
        missing.is_empty(),
        "add these to src/words/sentences.rs in all languages: {missing:#?}"
    );
}

/// What stands in an error's own words, in English.
fn error_texts(source: &str) -> Vec<String> {
    let attributes = source.split("#[error(\"").skip(1);
    let texts = attributes.filter_map(|attribute| attribute.split('"').next());
    texts.map(str::to_owned).collect()
}

#[test]
fn what_is_wrong_with_a_schedule_is_in_the_catalogue() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/cron/schedule/mod.rs");
    let texts = error_texts(&std::fs::read_to_string(path).unwrap());
    assert!(texts.len() > 8, "{texts:?}");
    for text in texts {
        // What is meant instead ends this one.
        let text = text.replace("{near}", ". Did you mean `{near}`?");
        let said = Language::De.reword_line(&sample(&text));
        assert!(
            said.is_some(),
            "add it to src/words/sentences.rs in all languages: {text}"
        );
    }
}

/// Why the runs of jobs fail and jobs are paused, and what is noted below an answer of `/cron`.
#[test]
fn what_becomes_of_jobs_is_in_the_catalogue() {
    for english in [
        "Note: it stays paused: discord:u1 has no access any more.",
        "Note: saved; the scheduler has not confirmed it yet.",
        "Note: saved; the scheduler has not taken it yet; will retry.",
        "Note: saved; it runs at its time while I am running.",
        "j1 tea: every 5m, paused: its time was past when it was imported",
        "j1 tea: every 5m, paused: discord:u1 may not use the agent llm",
        "The scheduled job `tea` (j1) failed: the person who made this job has no access any more; it is paused.",
        "The scheduled job `tea` (j1) failed: the person who made this job has used up a limit.",
        "The scheduled job `tea` (j1) failed: the person who made this job may not use the agent llm; it is paused.",
        "The scheduled job `tea` (j1) failed: there is no agent `llm`.",
        "The scheduled job `tea` (j1) failed: the journal could not store the run.",
        "The scheduled job `tea` (j1) failed: the journal could not store that it began.",
        "The scheduled job `tea` (j1) failed: it took longer than 600 s.",
        "The scheduled job `tea` (j1) failed: the agent gave no answer.",
        "The scheduled job `tea` (j1) failed: the job has no prompt; this relay runs prompts, not scripts.",
        "The scheduled job `tea` (j1) failed: its skills cannot be read.",
        "The scheduled job `tea` (j1) failed: there is no skill `tea`.",
        "The scheduled job `tea` (j1) failed: the skill `tea` cannot be read; the relay's log says why.",
        "The scheduled job `tea` (j1) failed: the skill `tea` is Draft, not Approved.",
    ] {
        let german = Language::De.reword(english).into_owned();
        let is_english = |word: &str| ["the", "is", "its", "has", "it", "saved;", "there"].contains(&word);
        assert!(
            german != english && !german.split_whitespace().any(is_english),
            "{english}: {german}"
        );
    }
    assert_eq!(
        Language::De.reword(
            "The scheduled job `tea` (j1) failed: the person who made this job may not use the agent llm; it is paused."
        ),
        "Der geplante Auftrag `tea` (j1) ist gescheitert: die Person, die diesen Auftrag angelegt hat, darf den Agenten llm nicht \
         benutzen; er ist pausiert."
    );
}
