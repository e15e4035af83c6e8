//! Where the answer of a job goes, and how it reads there. Pure.

use std::collections::BTreeMap;

use super::job::{Job, JobOrigin};
use crate::words::{ChatPhrase, Language};

/// Replies that mean: deliver nothing.
const SILENCE: [&str; 4] = ["[SILENT]", "SILENT", "NO_REPLY", "NO REPLY"];
/// Maximum characters of a failure's reason.
const MAX_REASON_CHARS: usize = 300;
/// Maximum targets of a job; the rest is reported as not delivered.
const MAX_TARGETS: usize = 20;

/// A chat that gets the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The platform.
    pub platform: String,
    /// The chat.
    pub chat: String,
    /// The thread.
    pub thread: Option<String>,
}

/// The targets that `deliver` names, each once, and why some could not be found. `local` is none; `origin` is the chat that the
/// job was made in, else the first home channel; a platform's name is its home channel; `all` is every home channel.
pub fn targets(
    deliver: &str,
    origin: Option<&JobOrigin>,
    home_channels: &BTreeMap<String, String>,
) -> (Vec<Target>, Option<String>) {
    let mut found: Vec<Target> = Vec::new();
    let mut errors: Vec<String> = Vec::new();
    let mut add = |target: Target| {
        if !found.contains(&target) {
            found.push(target);
        }
    };
    let home = |platform: &str| {
        let channel = home_channels.get(platform)?;
        Some(target(platform, channel))
    };
    for word in deliver.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        match word {
            "local" => {}
            "all" => home_channels.keys().filter_map(|name| home(name)).for_each(&mut add),
            "origin" => match origin {
                Some(origin) => add(Target {
                    platform: origin.platform.clone(),
                    chat: origin.chat_id.clone(),
                    thread: origin.thread_id.clone().filter(|thread| !thread.is_empty()),
                }),
                None => home_channels.keys().find_map(|name| home(name)).into_iter().for_each(&mut add),
            },
            _ => match word.split_once(':') {
                Some((platform, chat)) if !platform.is_empty() && !chat.is_empty() => {
                    add(target(&platform.to_ascii_lowercase(), chat));
                }
                Some(_) => errors.push(format!("`{word}` names no chat")),
                None => match home(&word.to_ascii_lowercase()) {
                    Some(target) => add(target),
                    None => errors.push(format!(
                        "`{word}` has no home channel; set `cron.home_channels.{word}` or name a chat: `{word}:CHAT`"
                    )),
                },
            },
        }
    }
    if found.len() > MAX_TARGETS {
        errors.push(format!("only the first {MAX_TARGETS} targets were used"));
        found.truncate(MAX_TARGETS);
    }
    (found, (!errors.is_empty()).then(|| errors.join("; ")))
}

/// The platforms that `deliver` names, each once and in lower case; or why it is not well-formed.
pub fn platforms(deliver: &str) -> Result<Vec<String>, String> {
    let words: Vec<&str> = deliver
        .split(',')
        .map(str::trim)
        .filter(|word| !word.is_empty())
        .collect();
    if words.is_empty() {
        return Err("it names no target".to_owned());
    }
    let mut platforms = Vec::new();
    for word in words {
        if matches!(word, "local" | "origin" | "all") {
            continue;
        }
        let lower = word.to_ascii_lowercase();
        if matches!(lower.as_str(), "local" | "origin" | "all") {
            return Err(format!("`{word}` is written `{lower}`"));
        }
        let (platform, chat) = match lower.split_once(':') {
            Some((platform, chat)) => (platform, Some(chat)),
            None => (lower.as_str(), None),
        };
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        if platform.is_empty() || !platform.bytes().all(plain) {
            return Err(format!("`{word}` names no platform"));
        }
        if matches!(platform, "local" | "origin" | "all") {
            return Err(format!("`{platform}` takes no chat"));
        }
        if chat.is_some_and(|chat| chat.trim().is_empty() || chat.starts_with(':') || chat.ends_with(':')) {
            return Err(format!("`{word}` names no chat"));
        }
        if !platforms.iter().any(|known| known == platform) {
            platforms.push(platform.to_owned());
        }
    }
    Ok(platforms)
}

/// `chat` or `chat:thread` of a platform.
fn target(platform: &str, channel: &str) -> Target {
    let (chat, thread) = match channel.rsplit_once(':') {
        Some((chat, thread)) if !chat.is_empty() && !thread.is_empty() && !is_one_id(platform) => {
            (chat, Some(thread.to_owned()))
        }
        _ => (channel, None),
    };
    Target {
        platform: platform.to_owned(),
        chat: chat.to_owned(),
        thread,
    }
}

/// Platforms whose chat ids contain colons themselves.
fn is_one_id(platform: &str) -> bool {
    matches!(platform, "matrix")
}

/// Whether an answer asks for silence: all of it, its first line or its last line.
pub fn is_silent(answer: &str) -> bool {
    let answer = answer.trim();
    let is_marker = |line: &str| {
        SILENCE
            .iter()
            .any(|marker| line.trim().eq_ignore_ascii_case(marker))
    };
    let starts = answer
        .get(..SILENCE[0].len())
        .is_some_and(|start| start.eq_ignore_ascii_case(SILENCE[0]));
    starts
        || answer.lines().next().is_some_and(is_marker)
        || answer.lines().next_back().is_some_and(is_marker)
}

/// What an agent should know of a job's turn, beside the prompt.
pub const HINT: &str = "This is a scheduled job: nobody waits in a chat, and your final reply is delivered by itself. If there is nothing \
                        to report, reply with [SILENT] only.";

/// An answer as the targets read it.
pub fn answer_text(job: &Job, answer: &str, wrap: bool, language: Language) -> String {
    if wrap {
        let (name, id) = (job.name(), job.id());
        language.say(ChatPhrase::JobAnswer { name, answer, id })
    } else {
        answer.to_owned()
    }
}

/// What the targets read when a run failed.
pub fn failure_text(job: &Job, reason: &str) -> String {
    let mut line: String = reason.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() > MAX_REASON_CHARS {
        line = line.chars().take(MAX_REASON_CHARS).chain(['…']).collect();
    }
    let line = line.trim_end_matches(['.', '。', '।']);
    format!(
        "The scheduled job `{}` ({}) failed: {line}.",
        job.name(),
        job.id()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn job() -> Job {
        Job::from_record(json!({"id": "abc123abc123", "name": "report", "prompt": "what is new?"})).unwrap()
    }

    fn names(deliver: &str, origin: Option<&JobOrigin>) -> (Vec<String>, Option<String>) {
        let home = BTreeMap::from([
            ("discord".to_owned(), "42".to_owned()),
            ("telegram".to_owned(), "-100:7".to_owned()),
        ]);
        let (targets, error) = targets(deliver, origin, &home);
        let name = |target: &Target| {
            let thread = target.thread.as_ref().map(|thread| format!("/{thread}"));
            format!(
                "{}:{}{}",
                target.platform,
                target.chat,
                thread.unwrap_or_default()
            )
        };
        (targets.iter().map(name).collect(), error)
    }

    #[test]
    fn every_way_to_name_a_target_is_read_and_each_counts_once() {
        let origin = JobOrigin {
            platform: "slack".into(),
            chat_id: "C1".into(),
            thread_id: Some("9.1".into()),
            ..JobOrigin::default()
        };
        let cases: &[(&str, &[&str])] = &[
            ("local", &[]),
            ("origin", &["slack:C1/9.1"]),
            ("discord:7", &["discord:7"]),
            ("Telegram:-100:7", &["telegram:-100/7"]),
            ("telegram", &["telegram:-100/7"]),
            ("all", &["discord:42", "telegram:-100/7"]),
            (
                "origin, discord, discord:42 ,local",
                &["slack:C1/9.1", "discord:42"],
            ),
            ("matrix:!room:example.org", &["matrix:!room:example.org"]),
        ];
        for (deliver, wanted) in cases {
            let (found, error) = names(deliver, Some(&origin));
            assert_eq!(
                (found.as_slice(), error),
                (wanted.map_to_strings().as_slice(), None),
                "{deliver}"
            );
        }
        assert_eq!(names("origin", None).0, ["discord:42"], "the first home channel");
        let (found, error) = names("slack,discord:1", None);
        assert_eq!(found, ["discord:1"]);
        assert!(error.unwrap().contains("`slack` has no home channel"));
        for nobody in [":1", "discord:", ":"] {
            let (found, error) = names(&format!("{nobody},telegram:1"), None);
            assert_eq!(found, ["telegram:1"], "{nobody}");
            assert_eq!(error.unwrap(), format!("`{nobody}` names no chat"));
        }
    }

    #[test]
    fn targets_are_checked_before_they_are_used() {
        let named = platforms("origin, Discord:1,telegram,discord:2:3 ,local,all").unwrap();
        assert_eq!(named, ["discord", "telegram"]);
        assert_eq!(platforms("matrix:!room:example.org").unwrap(), ["matrix"]);
        for (wrong, why) in [
            ("", "no target"),
            (" , ", "no target"),
            ("Origin", "is written `origin`"),
            ("discord:", "names no chat"),
            ("discord:1:", "names no chat"),
            (":1", "names no platform"),
            ("dis cord:1", "names no platform"),
            ("local:1", "takes no chat"),
        ] {
            let error = platforms(wrong).unwrap_err();
            assert!(error.contains(why), "{wrong}: {error}");
        }
    }

    trait MapToStrings {
        fn map_to_strings(&self) -> Vec<String>;
    }

    impl MapToStrings for [&str] {
        fn map_to_strings(&self) -> Vec<String> {
            self.iter().map(|text| (*text).to_owned()).collect()
        }
    }

    #[test]
    fn silence_is_a_line_of_its_own_at_either_end() {
        for silent in [
            "[SILENT]",
            " silent ",
            "NO_REPLY",
            "no reply",
            "[silent] nothing new",
            "fine\n[SILENT]",
            "SILENT\nbecause",
        ] {
            assert!(is_silent(silent), "{silent}");
        }
        for loud in [
            "",
            "It was a silent night",
            "I print [SILENT] when quiet",
            "NO_REPLY needed here",
            "ä",
        ] {
            assert!(!is_silent(loud), "{loud}");
        }
    }

    #[test]
    fn answers_and_failures_name_their_job() {
        let answer = |wrap, language| answer_text(&job(), "all well", wrap, language);
        assert_eq!(answer(false, Language::De), "all well");
        assert_eq!(
            answer(true, Language::En),
            "Scheduled job: report\n\nall well\n\n(job abc123abc123)"
        );
        assert_eq!(
            answer(true, Language::De),
            "Geplanter Auftrag: report\n\nall well\n\n(Auftrag abc123abc123)"
        );
        let failed = failure_text(&job(), "no\nluck.");
        assert_eq!(
            failed,
            "The scheduled job `report` (abc123abc123) failed: no luck."
        );
        assert!(failure_text(&job(), &"x".repeat(5000)).chars().count() < 400);
    }
}
