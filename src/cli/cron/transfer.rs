//! `cron import` and `cron export`: jobs from and to Hermes' own file.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::process::ExitCode;

use serde_json::{Value, json};

use super::job_store::JobStore;
use crate::cli::Environment;
use crate::cli::caller::Caller;
use crate::cli::exit;
use crate::cli::format::printable;
use crate::cli::remote::{RemoteArgs, RemoteRelay};
use crate::cron::job::Job;
use crate::cron::jobs_file::{self, MAX_FILE_BYTES};
use crate::store::{CronReply, JobChange};

/// Runs `cron import`.
pub(super) fn import(remote: &RemoteArgs, file: &Path, env: Environment<'_>) -> Result<ExitCode, ExitCode> {
    let relay = remote.relay(env)?;
    let caller = Caller::find(&relay)?;
    caller.require_owner(&relay)?;
    let store = JobStore::new(&relay, caller);
    let bytes = read(file).map_err(|error| {
        let what = format!("cannot read {}: {error}", name(file));
        relay.fail(exit::CONFIGURATION, what, None)
    })?;
    let mut parsed = jobs_file::parse(&bytes).map_err(|error| {
        let what = format!("cannot import {}: {error}", name(file));
        let hint = "Hermes keeps its jobs in $HERMES_HOME/cron/jobs.json";
        relay.fail(exit::CONFIGURATION, what, Some(hint))
    })?;
    let mut notes = Vec::new();
    for job in &mut parsed.jobs {
        let zone = job.zone(store.zone());
        for note in jobs_file::prepare(job, store.now(), store.zone()) {
            notes.push((job.id().to_owned(), job.name().to_owned(), note.text(&zone)));
        }
    }
    let records: Vec<Value> = parsed.jobs.iter().map(Job::to_value).collect();
    let mut imported = Vec::new();
    let mut skipped: Vec<Value> = (parsed.bad.iter())
        .map(|bad| json!({"entry": bad.number, "id": bad.label, "why": bad.why}))
        .collect();
    let rest = std::mem::take(&mut parsed.rest);
    if !(records.is_empty() && rest.is_empty())
        && let CronReply::Changed {
            imported: results, ..
        } = store.change(JobChange::Import { records, rest })?
    {
        for (result, job) in results.into_iter().zip(&parsed.jobs) {
            match result {
                Ok(id) => imported.push(id),
                Err(why) => skipped.push(json!({"entry": null, "id": job.id(), "why": why})),
            }
        }
        store.notify();
    }
    let code = if skipped.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(exit::FAILED)
    };
    if remote.json {
        let notes: Vec<Value> = notes
            .iter()
            .map(|(id, name, note)| json!({"id": id, "name": name, "note": note}))
            .collect();
        let all = json!({"imported": imported, "skipped": skipped, "notes": notes});
        return Ok(printed(exit::print(all), code));
    }
    let mut lines = vec![format!("imported {} jobs", imported.len())];
    for (id, name, note) in &notes {
        lines.push(format!("note: {id} ({}): {note}", printable(name)));
    }
    for bad in &skipped {
        let text = |key: &str| bad[key].as_str().map(printable).unwrap_or_default();
        let entry = bad["entry"].as_u64().map(|number| format!("entry {number}"));
        let named = Some(text("id")).filter(|name| !name.is_empty());
        let which: Vec<String> = entry.into_iter().chain(named).collect();
        lines.push(format!("skipped: {}: {}", which.join(" "), text("why")));
    }
    Ok(printed(exit::print(lines.join("\n")), code))
}

/// The exit code of what was done, unless it could not be printed.
fn printed(printing: ExitCode, code: ExitCode) -> ExitCode {
    if printing == ExitCode::SUCCESS {
        code
    } else {
        printing
    }
}

/// Runs `cron export`.
pub(super) fn export(remote: &RemoteArgs, file: &Path, env: Environment<'_>) -> Result<ExitCode, ExitCode> {
    let relay = remote.relay(env)?;
    let caller = Caller::find(&relay)?;
    caller.require_owner(&relay)?;
    let store = JobStore::new(&relay, caller);
    let jobs: Vec<_> = store.jobs()?.into_iter().map(|row| row.job).collect();
    let count = jobs.len();
    let content = jobs_file::export(jobs, store.file_fields()?, store.now(), store.zone());
    if file == Path::new("-") {
        return Ok(if remote.json {
            exit::print(content)
        } else {
            exit::print(format!("{content:#}"))
        });
    }
    check_replaceable(&relay, file)?;
    write(file, &format!("{content:#}\n")).map_err(|error| {
        let what = format!("cannot write {}: {error}", name(file));
        relay.fail(exit::CONFIGURATION, what, None)
    })?;
    let shown = name(file);
    Ok(remote.print(
        &json!({"exported": count, "file": shown}),
        format!("exported {count} jobs to {shown}"),
    ))
}

/// Refuses to replace what holds something else than jobs.
fn check_replaceable(relay: &RemoteRelay, file: &Path) -> Result<(), ExitCode> {
    let Ok(found) = fs::metadata(file) else {
        return Ok(());
    };
    let is_ours = found.is_file()
        && (found.len() == 0 || read(file).is_ok_and(|bytes| jobs_file::parse(&bytes).is_ok()));
    if is_ours {
        return Ok(());
    }
    let what = format!("{} exists and is not a file of jobs", name(file));
    Err(relay.fail(
        exit::FAILED,
        what,
        Some("choose another name, or remove it first"),
    ))
}

/// The file or standard input, one byte more than is accepted at most.
fn read(file: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let limit = MAX_FILE_BYTES as u64 + 1;
    if file == Path::new("-") {
        io::stdin().lock().take(limit).read_to_end(&mut bytes)?;
    } else {
        File::open(file)?.take(limit).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

/// Writes a file that only its owner can read, all of it or nothing.
fn write(file: &Path, text: &str) -> io::Result<()> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    // Otherwise the error would name the temporary file.
    fs::metadata(folder)?;
    let mut temporary = tempfile::Builder::new().prefix(".jobs").tempfile_in(folder)?;
    temporary.write_all(text.as_bytes())?;
    temporary.as_file().sync_all()?;
    temporary.persist(file).map_err(|error| error.error)?;
    Ok(())
}

fn name(file: &Path) -> String {
    if file == Path::new("-") {
        "standard input".to_owned()
    } else {
        printable(&file.display().to_string())
    }
}
