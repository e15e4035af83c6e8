//! What is handed out: the profile-guided program, the Debian package, the list of what is inside, the checksums.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::hosting::{BINARY, has, is_root, repository, run_command};
use crate::support::executable::write_script;
use crate::support::skip::skip;

fn script(name: &str) -> Command {
    Command::new(repository("packaging").join(name))
}

pub(crate) fn build_deb(out: &Path) -> std::path::PathBuf {
    let (success, output) = run_command(
        script("build-deb")
            .args(["--binary", BINARY, "--out"])
            .arg(out)
            .env("DEB_COMPRESSION", "none"),
    );
    assert!(success, "{output}");
    let mut debs = fs::read_dir(out).unwrap().flatten().map(|entry| entry.path());
    debs.find(|path| path.extension().is_some_and(|end| end == "deb"))
        .unwrap()
}

#[test]
fn the_debian_package_holds_what_belongs_to_it_and_installs() {
    if !has("dpkg-deb") || !has("strip") {
        return;
    }
    let out = tempfile::tempdir().unwrap();
    let deb = build_deb(out.path());
    let (_, info) = run_command(Command::new("dpkg-deb").arg("--info").arg(&deb));
    for line in [
        "Package: hermes-relay",
        concat!("Version: ", env!("CARGO_PKG_VERSION")),
        "Maintainer: ",
        "conffiles",
        "postinst",
    ] {
        assert!(info.contains(line), "{line}\n{info}");
    }
    let (_, contents) = run_command(Command::new("dpkg-deb").arg("--contents").arg(&deb));
    for line in [
        "-rwxr-xr-x root/root",
        "./usr/bin/hermes-relay",
        "./usr/lib/systemd/system/hermes-relay.service",
        "./usr/lib/systemd/system/hermes-relay-only.service",
        "./usr/lib/systemd/user/hermes-relay.service",
        "./usr/lib/sysusers.d/hermes-relay.conf",
        "./etc/hermes-relay/config.yaml",
        "./usr/share/doc/hermes-relay/copyright",
        "./usr/share/doc/hermes-relay/config.example.yaml",
    ] {
        assert!(contents.contains(line), "{line}\n{contents}");
    }
    for line in contents.lines() {
        assert!(line.contains(" root/root "), "{line}");
        assert!(!line.contains("/work/") && !line.contains("/home/"), "{line}");
    }
    if !is_root() {
        return;
    }
    // Into an empty root, with the package's own scripts working on that root.
    let root = tempfile::tempdir().unwrap();
    for folder in ["var/lib/dpkg/updates", "var/lib/dpkg/info"] {
        fs::create_dir_all(root.path().join(folder)).unwrap();
    }
    fs::write(root.path().join("var/lib/dpkg/status"), "").unwrap();
    let dpkg = |action: &str, what: &std::ffi::OsStr| {
        let mut dpkg = Command::new("dpkg");
        dpkg.args(["--force-depends", "--force-script-chrootless"])
            .arg(format!("--root={}", root.path().display()))
            .env("PATH", "/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin")
            .args([action.as_ref(), what]);
        run_command(&mut dpkg)
    };
    let (success, output) = dpkg("--install", deb.as_os_str());
    assert!(success, "{output}");
    let installed = root.path().join("usr/bin/hermes-relay");
    let (success, version) = run_command(Command::new(&installed).arg("--version"));
    assert!(
        success && version.contains(env!("CARGO_PKG_VERSION")),
        "{version}"
    );
    let config = root.path().join("etc/hermes-relay/config.yaml");
    let (success, output) = run_command(Command::new(BINARY).args(["config", "check"]).arg(&config));
    assert!(success, "{output}");
    if has("systemd-sysusers") {
        let accounts = fs::read_to_string(root.path().join("etc/passwd")).unwrap();
        let account = accounts.lines().find(|line| line.starts_with("hermes-relay:"));
        let account = account.expect("the account was made");
        assert!(
            account.ends_with(":/var/lib/hermes-relay:/usr/sbin/nologin"),
            "{account}"
        );
    }
    fs::create_dir_all(root.path().join("var/lib/hermes-relay")).unwrap();
    let (success, output) = dpkg("--purge", "hermes-relay".as_ref());
    assert!(success, "{output}");
    for gone in ["usr/bin/hermes-relay", "etc/hermes-relay", "var/lib/hermes-relay"] {
        assert!(!root.path().join(gone).exists(), "{gone} is left: {output}");
    }
}

#[test]
fn the_bill_of_materials_lists_every_crate_that_is_built_in() {
    if !has("python3") {
        return;
    }
    if !run_command(Command::new("python3").args(["-c", "import tomllib"])).0 {
        skip("python3 is older than 3.11, so the bill of materials was NOT made");
        return;
    }
    let output = script("sbom").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let bill: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(bill["bomFormat"], "CycloneDX");
    assert_eq!(bill["metadata"]["component"]["name"], "hermes-relay");
    let components = bill["components"].as_array().unwrap();
    let has = |name: &str| components.iter().any(|component| component["name"] == name);
    assert!(has("tokio") && has("rusqlite") && has("aws-lc-rs"));
    assert!(
        !has("proptest") && !has("divan"),
        "what only tests use is not in it"
    );
    for component in components {
        let purl = component["purl"].as_str().unwrap();
        assert!(purl.starts_with("pkg:cargo/"), "{purl}");
        assert!(component["licenses"][0]["expression"].is_string(), "{component}");
        assert_eq!(
            component["hashes"][0]["content"].as_str().unwrap().len(),
            64,
            "{component}"
        );
    }
}

#[test]
fn checksums_are_ones_that_can_be_checked() {
    let out = tempfile::tempdir().unwrap();
    fs::write(out.path().join("one"), "1").unwrap();
    fs::write(out.path().join("two"), "2").unwrap();
    let (success, output) = run_command(script("checksums").arg(out.path()));
    assert!(success, "{output}");
    let check = || {
        run_command(
            Command::new("sha256sum")
                .args(["--check", "--strict", "SHA256SUMS"])
                .current_dir(out.path()),
        )
    };
    let (success, output) = check();
    assert!(
        success && output.contains("one: OK") && output.contains("two: OK"),
        "{output}"
    );
    fs::write(out.path().join("two"), "3").unwrap();
    assert!(!check().0);
}

/// Runs `packaging/build-guided` with a Cargo and an `llvm-profdata` that only say how they were called.
fn build_guided(arguments: &[&str], variables: &[(&str, &str)]) -> (bool, String) {
    let folder = tempfile::tempdir().unwrap();
    let merge = folder.path().join("merge");
    write_script(
        &folder.path().join("cargo"),
        "#!/bin/sh\n\
         mkdir -p \"$CARGO_TARGET_DIR\"\n\
         flags=\"$(printf %s \"$CARGO_ENCODED_RUSTFLAGS\" | tr '\\037' ' ')\"\n\
         echo \"cargo $1 $flags of $RELAY_BIN for $*\" >&2\n\
         echo '{\"executable\":null}' && echo '{\"executable\":\"/the/program\"}'\n",
    );
    write_script(&merge, "#!/bin/sh\necho merged >&2\necho profile >\"$3\"\n");
    let path = std::env::var("PATH").unwrap();
    run_command(
        script("build-guided")
            .args(arguments)
            .env("PATH", format!("{}:{path}", folder.path().display()))
            .env("CARGO_TARGET_DIR", folder.path().join("target"))
            .env("LLVM_PROFDATA", merge)
            .env_remove("PROFDATA")
            .env_remove("CARGO_ENCODED_RUSTFLAGS")
            .env("RUSTFLAGS", "-Cone -Ctwo")
            .envs(variables.iter().copied()),
    )
}

#[test]
fn a_guided_build_is_of_a_program_that_the_benchmark_ran() {
    let (success, output) = build_guided(&["--features", "otlp"], &[]);
    assert!(success, "{output}");
    let steps = [
        "cargo rustc -Cone -Ctwo -Cprofile-generate=",
        "cargo bench  of /the/program for ",
        "merged",
        "cargo rustc -Cone -Ctwo -Cprofile-use=",
    ];
    let mut rest = output.as_str();
    for step in steps {
        let Some((_, after)) = rest.split_once(step) else {
            panic!("{step}: {output}");
        };
        rest = after;
    }
    let options = "--locked --profile dist --bin hermes-relay";
    let builds = output.lines().filter(|line| line.contains(options));
    assert_eq!(builds.filter(|line| line.ends_with("--features otlp")).count(), 2);
}

#[test]
fn a_guided_build_takes_the_profile_of_an_earlier_run() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let profile = file.path().to_str().unwrap();
    let (success, output) = build_guided(&[], &[("PROFDATA", profile)]);
    assert!(success, "{output}");
    assert!(!output.contains("cargo bench"), "{output}");
    let flag = format!("cargo rustc -Cone -Ctwo -Cprofile-use={profile} ");
    assert!(output.contains(&flag), "{output}");
    let (success, output) = build_guided(&[], &[("PROFDATA", "/there/is/none")]);
    assert!(!success && !output.contains("cargo"), "{output}");
    assert!(
        output.contains("error: there is no profile in /there/is/none"),
        "{output}"
    );
}

#[test]
fn a_guided_build_ends_where_its_profile_cannot_be_read() {
    let (success, output) = build_guided(&[], &[("LLVM_PROFDATA", "false")]);
    assert!(!success && output.contains("hint: an llvm-profdata"), "{output}");
    assert!(!output.contains("-Cprofile-use"), "{output}");
}
