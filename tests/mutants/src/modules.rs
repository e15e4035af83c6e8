//! The modules of the library that some of its files need.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The modules of these files, and all that they use.
pub fn used<'f>(files: impl Iterator<Item = &'f Path>) -> Result<BTreeSet<String>, String> {
    let mut found = BTreeSet::new();
    let mut waiting: Vec<String> = files.filter_map(name).collect();
    while let Some(module) = waiting.pop() {
        if !found.insert(module.clone()) {
            continue;
        }
        let path = Path::new("src").join(&module);
        let mut text = String::new();
        if path.is_dir() {
            read_all(&path, &mut text)?;
        } else {
            read(&path.with_extension("rs"), &mut text)?;
        }
        waiting.extend(named(&text));
    }
    Ok(found)
}

/// `link` for `src/link/ack.rs`.
pub fn name(file: &Path) -> Option<String> {
    let first = file.components().nth(1)?.as_os_str().to_str()?;
    Some(first.trim_end_matches(".rs").to_owned())
}

/// The modules that a text names with `crate::`, if they have a file.
fn named(text: &str) -> impl Iterator<Item = String> {
    text.split("crate::")
        .skip(1)
        .filter_map(|rest| {
            rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                .next()
        })
        .filter(|name| {
            let path = Path::new("src").join(name);
            !name.is_empty() && (path.is_dir() || path.with_extension("rs").is_file())
        })
        .map(str::to_owned)
}

fn read(file: &Path, text: &mut String) -> Result<(), String> {
    let new = fs::read_to_string(file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    text.push_str(&new);
    Ok(())
}

fn read_all(dir: &Path, text: &mut String) -> Result<(), String> {
    let error = |error| format!("cannot read {}: {error}", dir.display());
    for entry in fs::read_dir(dir).map_err(error)? {
        let path = entry.map_err(error)?.path();
        if path.is_dir() {
            read_all(&path, text)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            read(&path, text)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_module_of_a_file_is_its_directory() {
        assert_eq!(name(Path::new("src/link/ack.rs")).as_deref(), Some("link"));
        assert_eq!(name(Path::new("src/text.rs")).as_deref(), Some("text"));
    }
}
