//! Adds settings to a settings file as text, so that comments, order and everything else in it stay.
//!
//! Both texts are made of top-level keys, each with the lines below it. A key that the file does not have is appended. Of `agents`
//! and `direct`, entries that the file does not have are inserted below the key. What the file says already wins.

/// Sections whose entries are added one by one.
const WITH_ENTRIES: [&str; 2] = ["agents", "direct"];

/// Why nothing can be added.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum AddError {
    /// The file has the entry.
    #[error("it has `{section}.{name}` already")]
    Exists {
        /// The section.
        section: String,
        /// The entry.
        name: String,
    },
    /// The section is written in braces, or has a value.
    #[error("its `{0}` is on one line")]
    OneLine(String),
}

/// The file's text with the new settings in it.
pub(super) fn add(file: &str, new: &str) -> Result<String, AddError> {
    let mut lines: Vec<String> = file.lines().map(str::to_owned).collect();
    for block in blocks(new) {
        let key = block.key;
        match lines.iter().position(|line| key_of(line) == Some(key)) {
            None => lines.extend(block.lines.iter().map(|line| (*line).to_owned())),
            Some(at) if WITH_ENTRIES.contains(&key) => add_entries(&mut lines, at, &block)?,
            Some(_) => {}
        }
    }
    Ok(lines.join("\n") + "\n")
}

/// Inserts the entries of a block below the key on line `at`.
fn add_entries(lines: &mut Vec<String>, at: usize, block: &Block<'_>) -> Result<(), AddError> {
    let value = lines[at].split_once(':').map_or("", |(_, value)| value.trim());
    match value.split('#').next().map(str::trim) {
        Some("" | "{}" | "~" | "null") => lines[at] = format!("{}:", block.key),
        _ => return Err(AddError::OneLine(block.key.to_owned())),
    }
    let below = lines[at + 1..].iter().take_while(|line| key_of(line).is_none());
    let written: Vec<&str> = below.map(String::as_str).filter(|line| is_entry(line)).collect();
    let width = written.iter().map(|line| indent(line)).min().unwrap_or(2);
    for name in block.entries() {
        if written
            .iter()
            .any(|line| indent(line) == width && name_of(line) == name)
        {
            return Err(AddError::Exists {
                section: block.key.to_owned(),
                name: name.to_owned(),
            });
        }
    }
    let padding = " ".repeat(width);
    let added = block.lines[1..]
        .iter()
        .map(|line| format!("{padding}{}", line.get(2..).unwrap_or_default()));
    let added: Vec<String> = added.collect();
    lines.splice(at + 1..=at, added);
    Ok(())
}

/// A top-level key and the lines below it.
struct Block<'a> {
    key: &'a str,
    lines: Vec<&'a str>,
}

impl<'a> Block<'a> {
    /// The names of its entries, which are indented by two spaces.
    fn entries(&self) -> impl Iterator<Item = &'a str> {
        let entries = self.lines[1..]
            .iter()
            .filter(|line| is_entry(line) && indent(line) == 2);
        entries.map(|line| name_of(line))
    }
}

fn blocks(text: &str) -> Vec<Block<'_>> {
    let mut blocks: Vec<Block<'_>> = Vec::new();
    for line in text.lines() {
        match (key_of(line), blocks.last_mut()) {
            (Some(key), _) => blocks.push(Block {
                key,
                lines: vec![line],
            }),
            (None, Some(block)) => block.lines.push(line),
            (None, None) => {}
        }
    }
    blocks
}

/// The top-level key that a line starts with.
fn key_of(line: &str) -> Option<&str> {
    (is_entry(line) && indent(line) == 0).then(|| name_of(line))
}

/// Whether a line says something: not empty, no comment, not the start or end of a document.
fn is_entry(line: &str) -> bool {
    let text = line.trim();
    !text.is_empty() && !text.starts_with('#') && text != "---" && text != "..."
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

fn name_of(line: &str) -> &str {
    let name = line.trim().split(':').next().unwrap_or_default();
    name.trim().trim_matches(['"', '\''])
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: &str = "# Written by init.\nagents:\n  claude:\n    preset: claude\n    workdir: \"/srv\"\nagent: claude\naccess:\n  mode: pair\n";

    #[test]
    fn what_is_missing_is_added_and_the_rest_stays() {
        let file = "# Mine.\nagents:   # all of them\n    # The first.\n    llm: {kind: echo}\n\nagent: llm\nlog: {level: debug}\n";
        let added = add(file, NEW).unwrap();
        assert_eq!(
            added,
            "# Mine.\nagents:\n    claude:\n      preset: claude\n      workdir: \"/srv\"\n    # The first.\n    llm: {kind: echo}\n\n\
             agent: llm\nlog: {level: debug}\naccess:\n  mode: pair\n"
        );
        let bot = "direct:\n  # A bot.\n  telegram:\n    token_file: \"t\"\n";
        assert_eq!(
            add("agent: echo\ndirect: {}\n", bot).unwrap(),
            "agent: echo\ndirect:\n  # A bot.\n  telegram:\n    token_file: \"t\"\n"
        );
        assert_eq!(add("", NEW).unwrap(), NEW.split_once('\n').unwrap().1);
    }

    #[test]
    fn nothing_is_overwritten() {
        let exists = add("agents:\n  \"claude\":\n    kind: echo\n", NEW).unwrap_err();
        assert_eq!(exists.to_string(), "it has `agents.claude` already");
        let one_line = add("agents: {a: {kind: echo}}\n", NEW).unwrap_err();
        assert_eq!(one_line, AddError::OneLine("agents".to_owned()));
        // The settings of an agent are not agents.
        assert!(add("agents:\n  a:\n    claude: x\n", NEW).is_ok());
    }
}
