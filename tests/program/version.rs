//! What `--version` says, and where the build script takes the commit and the date from: a checkout, a worktree, a package,
//! or sources without git.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use hermes_relay::text::instant;
use tempfile::TempDir;

use crate::support::skip::skip;

/// The commit's date in the tests: 2024-02-29, a day that only exists in leap years.
const COMMITTED: &str = "1709200000";

#[test]
fn the_version_has_the_build_in_both_spellings() {
    let shown = |option: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_hermes-relay"))
            .arg(option)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let version = shown("--version");
    let expected = format!("hermes-relay {} (", env!("CARGO_PKG_VERSION"));
    assert!(version.starts_with(&expected), "{version}");
    // The program under test is not optimised.
    assert!(version.contains("debug build"), "{version}");
    assert_eq!(shown("-V"), version);
}

/// The build script, compiled, and a directory for the sources that it is run on.
struct BuildScript {
    folder: TempDir,
    program: PathBuf,
}

impl BuildScript {
    fn compile() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("script");
        let output = Command::new(std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned()))
            .args(["--edition", "2024", "--crate-name", "build_script"])
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/build.rs"))
            .arg("-o")
            .arg(&program)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        Self { folder, program }
    }

    fn sources(&self, name: &str) -> PathBuf {
        let sources = self.folder.path().join(name);
        fs::create_dir(&sources).unwrap();
        sources
    }

    /// What it calls the build, and the files it watches.
    fn run(&self, sources: &Path, profile: &str, epoch: Option<&str>) -> (String, Vec<PathBuf>) {
        let mut command = Command::new(&self.program);
        command
            .current_dir(sources)
            .env("CARGO_MANIFEST_DIR", sources)
            .env("PROFILE", profile)
            .env_remove("SOURCE_DATE_EPOCH");
        command.envs(epoch.map(|epoch| ("SOURCE_DATE_EPOCH", epoch)));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        let values = |prefix: &str| -> Vec<String> {
            let lines = text.lines().filter_map(|line| line.strip_prefix(prefix));
            lines.map(str::to_owned).collect()
        };
        let commit = values("cargo::rustc-env=HERMES_RELAY_COMMIT=");
        let seconds = values("cargo::rustc-env=HERMES_RELAY_COMMIT_SECONDS=");
        assert_eq!((commit.len(), seconds.len()), (1, 1), "{text}");
        // As the program writes them.
        let date = seconds[0].parse().map(instant).unwrap_or_default();
        let build = format!("{} {}", commit[0], date.get(..10).unwrap_or_default());
        let watched = values("cargo::rerun-if-changed=").into_iter();
        let watched = watched.filter(|file| file != "build.rs").map(PathBuf::from);
        (build.trim().to_owned(), watched.collect())
    }
}

fn git(folder: &Path, args: &[&str]) -> Option<String> {
    let date = format!("{COMMITTED} +0000");
    let output = Command::new("git")
        .current_dir(folder)
        .args(["-c", "user.name=Ada", "-c", "user.email=ada@example.org"])
        .args(args)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_COMMITTER_DATE", &date)
        .env("GIT_AUTHOR_DATE", &date)
        .output()
        .ok()?;
    assert!(output.status.success(), "{args:?}: {output:?}");
    Some(String::from_utf8(output.stdout).unwrap().trim().to_owned())
}

#[test]
fn an_optimised_build_names_the_commit_and_its_date() {
    let script = BuildScript::compile();
    let sources = script.sources("checkout");
    if git(&sources, &["init", "--quiet", "--initial-branch", "main"]).is_none() {
        return skip("git is not installed");
    }
    let commit = |folder: &Path, what: &str| {
        git(folder, &["commit", "--quiet", "--allow-empty", "-m", what]);
        let id = git(folder, &["rev-parse", "HEAD"]).unwrap();
        format!("{} 2024-02-29", &id[..9])
    };
    let first = commit(&sources, "first");
    let (build, watched) = script.run(&sources, "release", None);
    assert_eq!(build, first);
    // A watched file that does not exist would rebuild the crate every time.
    assert!(watched.iter().all(|file| file.exists()), "{watched:?}");
    let read = |watched: &[PathBuf]| -> Vec<String> {
        watched
            .iter()
            .map(|file| fs::read_to_string(file).unwrap())
            .collect()
    };
    let before = read(&watched);
    let second = commit(&sources, "second");
    assert_ne!(read(&watched), before, "a commit changes a watched file");
    assert_eq!(script.run(&sources, "release", None).0, second);

    // Refs in one file, until the next commit.
    git(&sources, &["pack-refs", "--all"]);
    let (build, watched) = script.run(&sources, "release", None);
    assert_eq!(build, second);
    let before = read(&watched);
    commit(&sources, "third");
    assert_ne!(read(&watched), before, "a commit changes a watched file");

    // A worktree, where `.git` is a file.
    let worktree = script.folder.path().join("worktree");
    let path = worktree.to_str().unwrap();
    git(&sources, &["worktree", "add", "--quiet", "-b", "other", path]);
    assert!(worktree.join(".git").is_file());
    let there = commit(&worktree, "there");
    let (build, watched) = script.run(&worktree, "release", None);
    assert_eq!(build, there);
    assert!(
        watched.len() > 1 && watched.iter().all(|file| file.exists()),
        "{watched:?}"
    );
    let reproducible = script.run(&worktree, "release", Some("0")).0;
    assert_eq!(reproducible, format!("{} 1970-01-01", &there[..9]));
    git(&worktree, &["checkout", "--quiet", "--detach"]);
    assert_eq!(script.run(&worktree, "release", None).0, there);

    // Sources inside another project are not that project.
    let inside = sources.join("vendor");
    fs::create_dir(&inside).unwrap();
    assert_eq!(script.run(&inside, "release", None).0, "commit unknown");
}

#[test]
fn sources_without_git_build_too() {
    let script = BuildScript::compile();
    let sources = script.sources("tarball");
    assert_eq!(
        script.run(&sources, "release", None),
        ("commit unknown".to_owned(), vec![])
    );
    assert_eq!(script.run(&sources, "release", Some(COMMITTED)).0, "2024-02-29");
    assert_eq!(script.run(&sources, "release", Some("soon")).0, "commit unknown");
    let info = r#"{"git": {"sha1": "0123456789abcdef0123456789abcdef01234567"}, "path_in_vcs": ""}"#;
    fs::write(sources.join(".cargo_vcs_info.json"), info).unwrap();
    assert_eq!(script.run(&sources, "release", None).0, "012345678");
    // Every commit would rebuild what developers build all day.
    assert_eq!(
        script.run(&sources, "debug", None),
        ("debug build".to_owned(), vec![])
    );
}
