//! Names the commit and its time for `--version`, without any dependency: the program itself writes the time as a date. And
//! has the linker put the functions side by side that `run` needs.
//!
//! Only in optimised builds: in others every commit would rebuild the crate. From git if the sources are a checkout (also a
//! worktree), from `.cargo_vcs_info.json` if they come from a registry, and without a commit otherwise: sources without git
//! build all the same. `SOURCE_DATE_EPOCH` replaces the time of the commit.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Digits of a commit that are shown.
const SHORT: usize = 9;

fn main() {
    // Without any such line, every changed file would run this again.
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=SOURCE_DATE_EPOCH");
    let sources = env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| PathBuf::from("."), PathBuf::from);
    let is_optimised = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let (commit, seconds) = if is_optimised {
        describe(&sources)
    } else {
        ("debug build".to_owned(), None)
    };
    let seconds = seconds.map_or_else(String::new, |seconds| seconds.to_string());
    println!("cargo::rustc-env=HERMES_RELAY_COMMIT={commit}");
    println!("cargo::rustc-env=HERMES_RELAY_COMMIT_SECONDS={seconds}");
    if is_optimised {
        order_text(&sources);
    }
}

/// Hands the order of the functions to the linker, where that is known to understand it: the usual one of the usual target. It costs
/// nothing elsewhere but memory.
fn order_text(sources: &Path) {
    println!("cargo::rerun-if-env-changed=HERMES_RELAY_TEXT_ORDER");
    let is = |name: &str, wanted: &str| env::var(name).is_ok_and(|value| value == wanted);
    let is_about_linking = |flag: &str| {
        let option = ["-C", "-Z", "--codegen="]
            .iter()
            .find_map(|prefix| flag.strip_prefix(prefix));
        option.unwrap_or(flag).starts_with("link")
    };
    let chosen_linker = env::var_os("RUSTC_LINKER").is_some()
        || env::var("CARGO_ENCODED_RUSTFLAGS").is_ok_and(|flags| flags.split('\x1f').any(is_about_linking));
    let order = sources.join("packaging/text-order.ld");
    if is("TARGET", "x86_64-unknown-linux-gnu")
        && is("HOST", "x86_64-unknown-linux-gnu")
        && !chosen_linker
        && !is("HERMES_RELAY_TEXT_ORDER", "off")
        && read_and_watch(&order).is_some()
    {
        println!("cargo::rustc-link-arg-bin=hermes-relay=-T{}", order.display());
    }
}

/// The commit and its time in Unix seconds, as far as they are known.
fn describe(sources: &Path) -> (String, Option<i64>) {
    let git = GitDirectory::of(sources);
    let commit = match &git {
        Some(git) => git.commit(),
        None => packaged_commit(sources),
    };
    let commit =
        commit.filter(|commit| commit.len() >= SHORT && commit.bytes().all(|c| c.is_ascii_hexdigit()));
    let seconds = match env::var("SOURCE_DATE_EPOCH") {
        Ok(epoch) => epoch.trim().parse().ok(),
        Err(_) => git
            .and(commit.as_ref())
            .and_then(|commit| commit_seconds(sources, commit)),
    };
    let commit = commit.map(|commit| commit[..SHORT].to_owned());
    let unknown = if seconds.is_some() { "" } else { "commit unknown" };
    (commit.unwrap_or_else(|| unknown.to_owned()), seconds)
}

/// Where git keeps `HEAD`, and where it keeps what all worktrees share.
struct GitDirectory {
    own: PathBuf,
    common: PathBuf,
}

impl GitDirectory {
    /// That of a checkout whose top is `sources`. A directory above may be another project's.
    fn of(sources: &Path) -> Option<Self> {
        let git = sources.join(".git");
        let own = if git.is_dir() {
            git
        } else {
            // In a worktree it is a file that names the directory.
            let text = fs::read_to_string(&git).ok()?;
            sources.join(text.strip_prefix("gitdir:")?.trim())
        };
        let common = fs::read_to_string(own.join("commondir"))
            .map_or_else(|_| own.clone(), |path| own.join(path.trim()));
        Some(Self { own, common })
    }

    /// The commit that is checked out. Reports which files change with it.
    fn commit(&self) -> Option<String> {
        let head = read_and_watch(&self.own.join("HEAD"))?;
        // A packed ref becomes a file with the next commit, which this tells.
        read_and_watch(&self.own.join("logs/HEAD"));
        let Some(name) = head.strip_prefix("ref:").map(str::trim) else {
            return Some(head.trim().to_owned());
        };
        if let Some(commit) = read_and_watch(&self.common.join(name)) {
            return Some(commit.trim().to_owned());
        }
        let packed = read_and_watch(&self.common.join("packed-refs"))?;
        packed.lines().find_map(|line| {
            let (commit, of) = line.split_once(' ')?;
            (of == name).then(|| commit.to_owned())
        })
    }
}

/// Reads a file, and runs this again when it changes. A missing file would run it every time.
fn read_and_watch(file: &Path) -> Option<String> {
    let bytes = fs::read(file).ok()?;
    println!("cargo::rerun-if-changed={}", file.display());
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The commit that `cargo package` recorded.
fn packaged_commit(sources: &Path) -> Option<String> {
    let info = read_and_watch(&sources.join(".cargo_vcs_info.json"))?;
    let (_, rest) = info.split_once("\"sha1\"")?;
    rest.split('"').nth(1).map(str::to_owned)
}

/// When a commit was made, in Unix seconds.
fn commit_seconds(sources: &Path, commit: &str) -> Option<i64> {
    let output = Command::new("git")
        .current_dir(sources)
        .args(["show", "--no-patch", "--format=%ct", commit, "--"])
        .output()
        .ok()?;
    String::from_utf8_lossy(&output.stdout).trim().parse().ok()
}
