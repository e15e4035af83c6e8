//! The reference of all settings as a page, made from the example file and the list of variables. It says nothing of
//! its own about an option: what is missing here is missing there.

use std::fmt::Write as _;

use super::env::VARIABLES;

const EXAMPLE: &str = include_str!("../../config.example.yaml");

const HEAD: &str = "# Settings\n\n\
    <!-- Made by `hermes-relay config reference` from config.example.yaml; change that file, not this one. -->\n\n\
    Settings are read from the first file that exists: `--config`, `$HERMES_RELAY_CONFIG`, `$HERMES_HOME/relay.yaml`,\n\
    `/etc/hermes-relay/config.yaml`. Copy what you change, leave the rest out. A flag or an environment variable beats\n\
    the file; what is not set falls to Hermes' own `.env` and `config.yaml`. `hermes-relay config show` says what came\n\
    from where. Paths may start with `~/` and are otherwise taken from the file's directory. An unknown key is an error.\n\n";

const VARIABLES_HEAD: &str = "## Environment\n\n\
    Flags win over these, these win over the file. Those that Hermes reads too may also stand in Hermes' `.env`.\n\n\
    | variable | setting | Hermes' too | meaning |\n|---|---|---|---|\n";

/// A line of the example, by what it is for.
enum Line<'a> {
    Blank,
    Comment(&'a str),
    /// As it would stand there.
    Sample(String),
    /// Name, and what stands after the colon.
    Section(&'a str, &'a str),
    Option(&'a str, &'a str),
}

impl<'a> Line<'a> {
    fn of(line: &'a str) -> Self {
        let bare = line.trim_start();
        if bare.is_empty() {
            return Self::Blank;
        }
        if bare.starts_with("#|") {
            return Self::Sample(line.replacen("#| ", "", 1));
        }
        if let Some(comment) = bare.strip_prefix('#') {
            return Self::Comment(comment.trim());
        }
        let (name, value) = bare.split_once(':').unwrap_or((bare, ""));
        if bare.len() == line.len() {
            Self::Section(name, value.trim())
        } else {
            Self::Option(name, value.trim())
        }
    }
}

/// The page, as Markdown.
pub fn reference() -> String {
    let mut page = HEAD.to_owned();
    let (mut said, mut section, mut samples) = (String::new(), "", String::new());
    let (mut rows, mut heading) = (false, String::new());
    // What stands above the first section is about the file.
    let body = EXAMPLE.split_once("\n\n").map_or(EXAMPLE, |(_, body)| body);
    for line in body.lines().map(Line::of).chain([Line::Blank]) {
        match line {
            Line::Comment(comment) => {
                said.push_str(if said.is_empty() { "" } else { " " });
                said.push_str(comment);
            }
            Line::Sample(sample) => {
                if !heading.is_empty() {
                    let again = samples.starts_with(&format!("{section}:\n"));
                    let head = std::mem::take(&mut heading);
                    samples.push_str(if again {
                        head.split_once('\n').map_or("", |(_, key)| key)
                    } else {
                        &head
                    });
                }
                samples.push_str(&sample);
                samples.push('\n');
            }
            Line::Section(name, value) => {
                (section, rows, heading) = (name, false, format!("{name}:\n"));
                let about = plain(&std::mem::take(&mut said));
                put(&mut page, &format!("## `{name}`\n\n{about}\n\n"));
                if !value.is_empty() {
                    put(&mut page, &format!("Default: {}\n\n", shown(value)));
                }
            }
            Line::Option(name, value) => {
                if !std::mem::replace(&mut rows, true) {
                    page.push_str("| option | default | meaning |\n|---|---|---|\n");
                }
                heading = format!("{section}:\n  {name}:\n");
                let meaning = cell(&std::mem::take(&mut said));
                let default = cell(&shown(value));
                put(
                    &mut page,
                    &format!("| `{section}.{name}` | {default} | {meaning} |\n"),
                );
            }
            Line::Blank => {
                if std::mem::take(&mut rows) {
                    page.push('\n');
                }
                if !samples.is_empty() {
                    let samples = std::mem::take(&mut samples);
                    put(&mut page, &format!("```yaml\n{samples}```\n\n"));
                }
            }
        }
    }
    page.push_str(VARIABLES_HEAD);
    for variable in VARIABLES {
        let key = variable.key.map_or(String::new(), |key| format!("`{key}`"));
        let both = if variable.shared { "yes" } else { "" };
        let about = cell(variable.about);
        let _ = writeln!(page, "| `{}` | {key} | {both} | {about} |", variable.name);
    }
    page.push_str(
        "| `<PLATFORM>_ALLOW_BOTS` | `policy` | yes | whether a platform's other bots are heard |\n",
    );
    page
}

fn put(page: &mut String, text: &str) {
    page.push_str(text);
}

/// A default for people: code, with the words after it.
fn shown(value: &str) -> String {
    match value.split_once(" # ") {
        None if value.is_empty() => "not set".to_owned(),
        None => format!("`{value}`"),
        Some((value, words)) => format!("`{value}` ({words})"),
    }
}

/// Text within a table.
fn cell(text: &str) -> String {
    plain(text).replace('|', "\\|")
}

/// Text in which nothing is taken for a tag.
fn plain(text: &str) -> String {
    text.replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_and_variable_is_on_the_page() {
        let page = reference();
        for key in crate::config::file::known_keys() {
            let row = page.contains(&format!("| `{key}` |"));
            assert!(row || page.contains(&format!("## `{key}`")), "{key}");
        }
        for row in [
            "| `link.backoff_min_ms` | `1000` | The shortest wait before dialling again. |",
            "| `connector.url` | not set | Its URL: https, http, wss or ws. Also GATEWAY_RELAY_URL. |",
            "| `streaming.cursor` | `\" ▉\"` | Shown at the end of a message that is still growing. |",
            "| `GATEWAY_RELAY_URL` | `connector.url` | yes | the connector's URL |",
        ] {
            assert!(page.contains(row), "{row}\n{page}");
        }
        assert!(page.contains("```yaml\nroutes:\n  - platform: slack\n"), "{page}");
        assert!(
            page.contains("```yaml\nconnector:\n  identities:\n    - platform: telegram\n"),
            "{page}"
        );
    }
}
