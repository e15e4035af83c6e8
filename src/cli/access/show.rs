//! What the verb prints for people.

use std::io::{self, Write as _};

use serde_json::Value;

use super::super::format::{printable, stdout};
use crate::access::PersonId;
use crate::text::printable as shortened;

/// Length of a name that a platform shows.
const MAX_NAME_CHARS: usize = 60;

/// Shows an answer to a person.
pub(super) fn show(answer: &Value) -> io::Result<()> {
    let mut out = stdout();
    let text = |value: &Value| value.as_str().map(printable).unwrap_or_default();
    for (key, what) in [("allowed", "may write now"), ("approved", "is let in")] {
        if answer[key].is_string() {
            writeln!(out, "{} {what}, as {}", text(&answer[key]), text(&answer["role"]))?;
        }
    }
    let allowed = answer["allowed"]
        .as_str()
        .and_then(|person| PersonId::parse(person).ok());
    if allowed.as_ref().is_some_and(PersonId::is_unusual) {
        writeln!(
            out,
            "ids on {} are numbers, so check this one: /whoami in a chat shows it",
            printable(allowed.as_ref().map_or("", PersonId::platform))
        )?;
    }
    if answer["denied"].is_string() {
        writeln!(out, "{} may not write any more", text(&answer["denied"]))?;
    }
    if answer["forgotten"].is_string() {
        let words = |key: &str| {
            let list = answer[key].as_array().map(Vec::as_slice).unwrap_or_default();
            list.iter().map(text).collect::<Vec<_>>().join(", ")
        };
        let (person, removed) = (text(&answer["forgotten"]), words("removed"));
        if removed.is_empty() {
            writeln!(out, "{person} is forgotten: there was no role, denial or request")?;
        } else {
            writeln!(out, "{person} is forgotten; deleted: {removed}")?;
        }
        let in_file = words("in_file");
        if !in_file.is_empty() {
            writeln!(
                out,
                "the settings still say: {in_file}; remove it from `access` there (`hermes-relay config show` names the file)"
            )?;
        }
    }
    if answer["known"] == false {
        writeln!(
            out,
            "nobody with this id has written here or has a rule, so check it: `hermes-relay access log` shows who wrote"
        )?;
    }
    if let Some(pending) = answer["pending"].as_array() {
        if pending.is_empty() {
            writeln!(out, "no code waits for an approval")?;
        }
        for entry in pending {
            let left = match entry["expires_in_secs"].as_u64().unwrap_or(0) {
                secs @ ..60 => format!("{secs} s"),
                secs => format!("{} min", secs / 60),
            };
            writeln!(out, "{}  {}  expires in {left}", text(&entry["code"]), who(entry))?;
        }
    }
    if let Some(entries) = answer["entries"].as_array() {
        let (mode, strangers) = (text(&answer["mode"]), text(&answer["strangers"]));
        writeln!(out, "mode {mode}, strangers {strangers}")?;
        for entry in entries {
            let role = match entry["denied"].as_bool() {
                Some(true) => "denied".to_owned(),
                _ => text(&entry["role"]),
            };
            let mut who = match entry["kind"].as_str() {
                Some("chat") => format!("chat {}:{}", text(&entry["platform"]), text(&entry["chat"])),
                Some("guild_role") => format!(
                    "role {} on {}",
                    text(&entry["guild_role"]),
                    text(&entry["platform"])
                ),
                Some("platform") => format!("everybody on {}", text(&entry["platform"])),
                _ => text(&entry["person"]),
            };
            for (key, label) in [("chats", "in"), ("agents", "with")] {
                if let Some(list) = entry[key].as_array() {
                    let list: Vec<String> = list.iter().map(text).collect();
                    who = format!("{who} {label} {}", list.join(", "));
                }
            }
            writeln!(out, "{role:<7} {who}  ({})", text(&entry["origin"]))?;
        }
    }
    let can_pair = answer["entries"].is_null() || answer["strangers"] == "pair";
    if answer["has_owner"] == false && can_pair {
        let person = match &answer["approved"] {
            Value::String(person) => printable(person),
            _ => "PLATFORM:ID".to_owned(),
        };
        writeln!(
            out,
            "nobody is an owner yet; to make yourself one: hermes-relay access owner {person}"
        )?;
    }
    out.flush()
}

/// Somebody who has a code: their name, if the platform shows one, and their id.
pub(super) fn who(entry: &Value) -> String {
    let person = entry["person"].as_str().map(printable).unwrap_or_default();
    match entry["name"].as_str() {
        Some(name) if !name.trim().is_empty() => format!("{} ({person})", shortened(name, MAX_NAME_CHARS)),
        _ => person,
    }
}
