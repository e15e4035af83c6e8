//! What the dependencies may be: reads `.deny.toml` and what cargo resolved, and fails on a licence, a source, a crate
//! or a second version that is not allowed there. `cargo deny` does the same and more, but is not always installed.

mod licence;
mod rules;

use std::path::Path;
use std::process::Command;

use crate::support::skip::skip;
use rules::{Rules, Used, unexplained};
use serde_json::Value;

fn text_of(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// What a cargo command prints that asks no network.
fn cargo(args: &[&str], targets: (&str, &[String])) -> Result<Vec<u8>, String> {
    let (option, targets) = targets;
    let output = Command::new(env!("CARGO"))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(args)
        .args(["--locked", "--offline", "--all-features"])
        .args(targets.iter().flat_map(|target| [option, target]))
        .output()
        .map_err(|error| error.to_string())?;
    if output.status.success() {
        Ok(output.stdout)
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// What cargo says of every package for these targets, and which of them are built: what it resolves holds optional
/// ones that no feature asks for.
fn resolved(targets: &[String]) -> Result<(Value, Used), String> {
    let metadata = cargo(
        &["metadata", "--format-version", "1"],
        ("--filter-platform", targets),
    )?;
    let metadata = serde_json::from_slice(&metadata).map_err(|error| error.to_string())?;
    let tree = [
        "tree",
        "--edges",
        "normal,build,dev",
        "--prefix",
        "none",
        "--format",
        "{p}",
    ];
    let tree = cargo(&tree, ("--target", targets))?;
    let tree = String::from_utf8_lossy(&tree).into_owned();
    let used = tree.lines().filter_map(|line| {
        let mut words = line.split(' ');
        Some((
            words.next()?.to_owned(),
            words.next()?.strip_prefix('v')?.to_owned(),
        ))
    });
    Ok((metadata, used.collect()))
}

/// The machine that compiled this.
fn host() -> String {
    let rustc = Path::new(env!("CARGO")).with_file_name("rustc");
    let output = Command::new(rustc).arg("-vV").output().expect("rustc runs");
    let output = String::from_utf8_lossy(&output.stdout).into_owned();
    let host = output.lines().find_map(|line| line.strip_prefix("host: "));
    host.expect("rustc tells its host").to_owned()
}

#[test]
fn every_dependency_is_one_that_may_be_used() {
    let rules = Rules::read(&text_of(".deny.toml"));
    // What only other machines need has perhaps never been downloaded here.
    let metadata = resolved(&rules.targets).or_else(|why| {
        skip(&format!(
            "dependencies of other machines than this one are NOT checked: {why}"
        ));
        resolved(&[host()])
    });
    let (metadata, used) = metadata.unwrap_or_else(|why| panic!("cargo cannot tell the dependencies: {why}"));
    assert!(used.len() > 50, "found only {} packages", used.len());
    let wrong = rules.violations(&metadata, &used);
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

#[test]
fn every_direct_dependency_has_a_comment_with_its_reason() {
    let wrong = unexplained(&text_of("Cargo.toml"));
    assert!(wrong.is_empty(), "no comment above: {}", wrong.join(", "));
    assert_eq!(
        unexplained(
            "[dependencies]\n# Why.\na = \"1\"\nb = { version = \"1\",\n  features = [] }\n\nc = \"1\"\n[dev-dependencies]\nd = \"1\"\n"
        ),
        ["c", "d"]
    );
}
