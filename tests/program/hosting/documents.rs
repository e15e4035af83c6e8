//! The documents: what is made is current, and what is linked to is there.

use std::fs;
use std::process::Command;

use crate::hosting::{BINARY, repository, run_command};

#[test]
fn the_reference_of_settings_is_current() {
    let file = repository("docs/configuration.md");
    let (success, page) = run_command(Command::new(BINARY).args(["config", "reference"]));
    assert!(success);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&file, &page).unwrap();
    }
    let written = fs::read_to_string(&file).unwrap_or_default();
    assert!(
        written == page,
        "docs/configuration.md is not current; write it anew with UPDATE_DOCS=1 cargo test --test program hosting::documents"
    );
}

/// Every document that people read.
fn documents() -> Vec<std::path::PathBuf> {
    let top = [
        "README.md",
        "CHANGELOG.md",
        "SECURITY.md",
        "CONTRIBUTING.md",
        "packaging/README.md",
    ]
    .map(repository);
    let docs = fs::read_dir(repository("docs")).unwrap().flatten();
    let pages = docs
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|end| end == "md"));
    let mut found: Vec<_> = top.into_iter().chain(pages).collect();
    found.sort();
    found
}

#[test]
fn every_link_between_documents_leads_somewhere() {
    let mut links = 0;
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap();
        for part in text.split("](").skip(1) {
            let target = part.split(')').next().unwrap();
            let path = target.split('#').next().unwrap();
            if path.is_empty() || path.contains("://") {
                continue;
            }
            links += 1;
            let there = document.parent().unwrap().join(path).exists();
            assert!(there, "{}: {target}", document.display());
        }
    }
    assert!(links > 10, "only {links} links");
}

/// The settings in fences of the documents are accepted as they are.
#[test]
fn every_settings_file_in_the_documents_is_valid() {
    let mut files = 0;
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap();
        for fence in text.split("```yaml\n").skip(1) {
            let settings = fence.split("```").next().unwrap();
            if !settings.contains("agents:\n") {
                continue;
            }
            files += 1;
            let directory = tempfile::tempdir().unwrap();
            let file = directory.path().join("relay.yaml");
            fs::write(&file, settings).unwrap();
            let mut check = Command::new(BINARY);
            check
                .args(["config", "check"])
                .arg(&file)
                .env("HERMES_HOME", directory.path());
            let (success, output) = run_command(&mut check);
            assert!(success, "{}:\n{settings}\n{output}", document.display());
        }
    }
    assert!(files > 10, "only {files} settings files");
}

/// Verbs and options that the documents tell people to type exist.
#[test]
fn every_command_in_the_documents_is_understood() {
    let mut commands = 0;
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap();
        for line in text.lines() {
            let Some(typed) = line.strip_prefix("$ ").and_then(typed) else {
                continue;
            };
            commands += 1;
            let mut help = Command::new(BINARY);
            let (success, output) = run_command(help.args(&typed).arg("--help"));
            assert!(success, "{}: {line}\n{output}", document.display());
            let words = line.split_whitespace();
            for option in words.filter(|word| word.starts_with("--")) {
                let option = option.split('=').next().unwrap();
                let known = output.contains(option) || option == "--version" || option == "--help";
                assert!(known, "{}: {line}: no {option}", document.display());
            }
        }
    }
    assert!(commands > 10, "only {commands} commands");
}

/// The verb of a line that runs the program, with the verb below it.
fn typed(line: &str) -> Option<Vec<&str>> {
    let mut words = line
        .split_whitespace()
        .skip_while(|word| *word == "sudo" || word.contains('='));
    if words.next()? != "hermes-relay" {
        return None;
    }
    let plain = |word: &&str| word.chars().all(|char| char.is_ascii_lowercase() || char == '-');
    let mut verbs: Vec<_> = words
        .take_while(|word| plain(word) && !word.starts_with('-'))
        .collect();
    let nested = [
        "agents", "config", "cron", "dev", "journal", "logs", "service", "gateway",
    ];
    let deep = verbs.first().is_some_and(|verb| nested.contains(verb));
    verbs.truncate(if deep { 2 } else { 1 });
    Some(verbs)
}
