//! Builds the copy of the tree that holds all mutants.

use crate::modules;
use crate::sample::Chosen;
use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A program of tests in the changed copy.
#[derive(Debug)]
pub struct Program {
    pub executable: PathBuf,
    pub filter: Option<String>,
    /// Where its tests expect to run.
    pub tree: PathBuf,
    /// For files of the runs.
    pub scratch: PathBuf,
}

/// How a mutant is turned on: its number is in the environment. A run without one can write down which threads reach which mutants.
const SWITCH: &str = r#"//! Which mutant is on.
use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::sync::{LazyLock, Mutex};

static ON: LazyLock<u32> =
    LazyLock::new(|| std::env::var("MUTANT").ok().and_then(|n| n.parse().ok()).unwrap_or(u32::MAX));
static RECORD: LazyLock<Option<Mutex<File>>> = LazyLock::new(|| {
    let path = std::env::var_os("MUTANTS_REACHED")?;
    OpenOptions::new().create(true).append(true).open(path).ok().map(Mutex::new)
});
thread_local! {
    static SEEN: std::cell::RefCell<HashSet<u32>> = std::cell::RefCell::new(HashSet::new());
}

/// Whether this one is.
#[must_use]
pub fn is_on(number: u32) -> bool {
    if let Some(record) = &*RECORD {
        let is_new = SEEN.try_with(|seen| seen.borrow_mut().insert(number)).unwrap_or(true);
        if is_new && let Ok(mut record) = record.lock() {
            let thread = std::thread::current();
            let line = format!("{number} {}\n", thread.name().unwrap_or("?"));
            let _ = record.write_all(line.as_bytes());
        }
    }
    *ON == number
}
"#;

/// Builds until the compiler takes it: mutants that it does not take are dropped. The unit tests come first.
///
/// If `alone`, the copy has only the modules of the mutants and what these use, which builds much faster.
pub fn build(
    dir: &Path,
    chosen: &mut Vec<Chosen>,
    also: &[String],
    alone: bool,
) -> Result<Vec<Program>, String> {
    fs::create_dir_all(dir).map_err(|error| format!("cannot create {}: {error}", dir.display()))?;
    let dir = dir
        .canonicalize()
        .map_err(|error| format!("cannot find {}: {error}", dir.display()))?;
    let tree = dir.join("tree");
    let also: Vec<(&str, Option<&str>)> = also
        .iter()
        .map(|also| {
            also.split_once('=')
                .map_or((also.as_str(), None), |(name, filter)| (name, Some(filter)))
        })
        .collect();
    let names: Vec<&str> = also.iter().map(|(name, _)| *name).collect();
    for round in 1.. {
        // A file that lost its last mutant is as before again.
        copy(&tree)?;
        apply(&tree, chosen, alone)?;
        println!("build {round}, with {} mutants", chosen.len());
        let built = compile(&dir, &tree, &names)?;
        if built.errors.is_empty() {
            return programs(&built.executables, &dir, &tree, &also);
        }
        let before = chosen.len();
        chosen.retain(|chosen| !built.errors.contains(&(chosen.file.clone(), chosen.mutant.line)));
        if chosen.len() == before {
            return Err(format!(
                "the copy does not compile, and no mutant is the reason: {:?}",
                built.errors
            ));
        }
    }
    unreachable!("the rounds end above")
}

fn programs(
    built: &BTreeMap<String, PathBuf>,
    dir: &Path,
    tree: &Path,
    also: &[(&str, Option<&str>)],
) -> Result<Vec<Program>, String> {
    let all = std::iter::once(("hermes_relay", None)).chain(also.iter().copied());
    all.map(|(name, filter)| {
        let executable = (built.get(name)).ok_or_else(|| format!("there is no test program named {name}"))?;
        Ok(Program {
            executable: executable.clone(),
            filter: filter.map(str::to_owned),
            tree: tree.to_owned(),
            scratch: dir.to_owned(),
        })
    })
    .collect()
}

/// Copies what git knows.
fn copy(tree: &Path) -> Result<(), String> {
    let listed = output(Command::new("git").args(["ls-files", "-z"]))?;
    for file in listed
        .split('\0')
        .filter(|file| !file.is_empty() && Path::new(file).is_file())
    {
        let to = tree.join(file);
        let parent = to.parent().expect("a file is in a directory");
        let new = fs::read(file).map_err(|error| format!("cannot read {file}: {error}"))?;
        // What did not change keeps its time, so that it is not built again.
        if fs::read(&to).is_ok_and(|old| old == new) {
            continue;
        }
        fs::create_dir_all(parent)
            .and_then(|()| fs::write(&to, new))
            .map_err(|error| format!("cannot write {}: {error}", to.display()))?;
    }
    Ok(())
}

/// Writes the files with mutants into the copy.
fn apply(tree: &Path, chosen: &[Chosen], alone: bool) -> Result<(), String> {
    let mut files: BTreeMap<&Path, Vec<(usize, &Chosen)>> = BTreeMap::new();
    for (number, mutant) in chosen.iter().enumerate() {
        files.entry(&mutant.file).or_default().push((number, mutant));
    }
    for (file, mut mutants) in files {
        let mut text =
            fs::read_to_string(file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
        // From the end, so that ranges stay right. What is inserted goes in after what begins at the same place.
        mutants.sort_by_key(|(_, chosen)| (chosen.mutant.range.start, chosen.mutant.range.end));
        for (number, chosen) in mutants.into_iter().rev() {
            let range = chosen.mutant.range.clone();
            let new = chosen.mutant.text(number, &text[range.clone()]);
            text.replace_range(range, &new);
        }
        fs::write(tree.join(file), text)
            .map_err(|error| format!("cannot write {}: {error}", file.display()))?;
    }
    let root = if alone {
        let modules = modules::used(chosen.iter().map(|chosen| chosen.file.as_path()))?;
        modules.iter().fold(String::new(), |mut root, module| {
            let _ = writeln!(root, "/// As it is.\npub mod {module};");
            root
        })
    } else {
        fs::read_to_string("src/lib.rs").map_err(|error| format!("cannot read src/lib.rs: {error}"))?
    };
    let with_switch = format!("{root}\n/// Which mutant is on.\npub mod mutant;\n");
    fs::write(tree.join("src/lib.rs"), with_switch)
        .and_then(|()| fs::write(tree.join("src/mutant.rs"), SWITCH))
        .map_err(|error| format!("cannot write the switch: {error}"))
}

struct Built {
    errors: HashSet<(PathBuf, usize)>,
    executables: BTreeMap<String, PathBuf>,
}

fn compile(dir: &Path, tree: &Path, also: &[&str]) -> Result<Built, String> {
    let mut cargo = Command::new("cargo");
    cargo
        .current_dir(tree)
        .args([
            "test",
            "--locked",
            "--all-features",
            "--no-run",
            "--message-format=json",
            "--lib",
        ])
        .args(also.iter().map(|name| format!("--test={name}")))
        .env("CARGO_TARGET_DIR", dir.join("build"))
        .env("CARGO_PROFILE_DEV_DEBUG", "false");
    let messages = run_to_end(&mut cargo)?;
    let mut built = Built {
        errors: HashSet::new(),
        executables: BTreeMap::new(),
    };
    for line in messages.lines() {
        let Ok(message) = serde_json::from_str::<serde_json::Value>(line) else {
            continue;
        };
        if message["message"]["level"] == "error" {
            for span in message["message"]["spans"].as_array().into_iter().flatten() {
                let (Some(file), Some(first)) = (span["file_name"].as_str(), span["line_start"].as_u64())
                else {
                    continue;
                };
                let line = usize::try_from(first).map_err(|_| "a line number is too large".to_owned())?;
                built.errors.insert((PathBuf::from(file), line));
            }
        }
        let is_test = message["profile"]["test"] == true;
        if let (true, Some(name), Some(executable)) = (
            is_test,
            message["target"]["name"].as_str(),
            message["executable"].as_str(),
        ) {
            built
                .executables
                .insert(name.to_owned(), PathBuf::from(executable));
        }
    }
    Ok(built)
}

/// The output of a command that may fail.
fn run_to_end(command: &mut Command) -> Result<String, String> {
    let ended = command
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .map_err(|error| format!("cannot run {}: {error}", command.get_program().display()))?;
    Ok(String::from_utf8_lossy(&ended.stdout).into_owned())
}

fn output(command: &mut Command) -> Result<String, String> {
    let text = run_to_end(command)?;
    if text.is_empty() {
        return Err(format!(
            "{} printed nothing; run this from the root of the repository",
            command.get_program().display()
        ));
    }
    Ok(text)
}
