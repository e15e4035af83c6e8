//! The journal as lines of JSON, into a pipe or a new private file.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use super::Part;
use super::entry::Entry;
use super::trouble::Trouble;
use crate::cli::exit;
use crate::store::Inspector;

/// Writes every entry of the chosen parts, a page in memory at a time.
pub(super) fn export(
    dir: &Path,
    parts: &[Part],
    output: Option<&Path>,
    text: bool,
    out: &mut impl Write,
) -> Result<(), Trouble> {
    let journal = Inspector::open(dir)?;
    let Some(path) = output else {
        write_all(&journal, parts, text, &mut BufWriter::new(out))?;
        return Ok(());
    };
    let failed = |error: std::io::Error| Trouble::Told {
        code: exit::FAILED,
        what: format!("cannot write {}: {error}", path.display()),
        hint: (error.kind() == std::io::ErrorKind::AlreadyExists)
            .then(|| "name a file that does not exist yet, or move that one away".to_owned()),
    };
    let mut file = BufWriter::new(new_private_file(path).map_err(failed)?);
    let count = write_all(&journal, parts, text, &mut file).map_err(|trouble| match trouble {
        Trouble::Output(error) => failed(error),
        other => other,
    })?;
    file.into_inner()
        .map_err(std::io::IntoInnerError::into_error)
        .and_then(|file| file.sync_all())
        .map_err(failed)?;
    writeln!(out, "{count} entries in {}", path.display())?;
    Ok(())
}

fn write_all(journal: &Inspector, parts: &[Part], text: bool, out: &mut impl Write) -> Result<u64, Trouble> {
    let mut count = 0;
    for part in parts {
        journal.export(part.section(), |listed, content| {
            let entry = Entry::of(&listed).with(content, text);
            writeln!(out, "{}", entry.to_json())?;
            count += 1;
            Ok::<(), Trouble>(())
        })?;
    }
    out.flush()?;
    Ok(count)
}

fn new_private_file(path: &Path) -> std::io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
}
