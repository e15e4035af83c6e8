//! A machine of its own with a systemd that is process 1, made for one test out of this machine's files and gone with it.
//!
//! It needs root, namespaces and control groups; where it cannot be had, the test that asks says so loudly and passes.

use std::fs;
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use tempfile::TempDir;

use crate::hosting::manager::pause;
use crate::hosting::process_one::children;
use crate::hosting::{BINARY, cannot_be, has, is_root, repository, tied};
use crate::support::relay_process::SOON;
use crate::support::wait::eventually_blocking;

/// The file that only such a machine has; it names its control group.
const MARK: &str = "made-for-a-test";

/// The unified hierarchy, alone or beside older ones.
const HIERARCHIES: [&str; 2] = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"];

pub(crate) struct Machine {
    outer: Child,
    /// Its process 1, as this machine counts.
    first: i32,
    group: String,
    folder: TempDir,
}

impl Machine {
    /// Boots it; the program is in it as `/opt/hermes-relay`. `None`, loudly, where that cannot be.
    pub(crate) fn boot(name: &str) -> Option<Self> {
        let tools = ["unshare", "nsenter", "pivot_root", "systemctl", "journalctl"];
        if !is_root() || !tools.iter().all(|tool| has(tool)) {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        fs::create_dir(&root).unwrap();
        let log = fs::File::create(folder.path().join("log")).unwrap();
        let group = format!("hermes-relay-test-{}-{name}", std::process::id());
        let outer = tied("sh")
            .arg(repository("tests/program/hosting/machine.sh"))
            .arg(&root)
            .args([&group, BINARY])
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut machine = Self {
            outer,
            first: 0,
            group,
            folder,
        };
        let outer = i32::try_from(machine.outer.id()).unwrap();
        let mut end = Instant::now() + SOON;
        let mut is_begun = false;
        loop {
            let ended = machine.outer.try_wait().unwrap().is_some();
            if ended || Instant::now() > end {
                let log = machine.log();
                cannot_be(is_begun, &format!("no machine can be booted in here: {log}"));
                return None;
            }
            machine.first = children(outer).first().map_or(0, |(pid, _)| *pid);
            // Until then its root is ours, and so is the manager that would answer.
            let socket = machine.root().join("run/systemd/private");
            if machine.is_apart() && socket.exists() {
                if !is_begun {
                    // Its manager answers; where it must get further, it may take its time.
                    is_begun = true;
                    end = Instant::now() + 3 * SOON;
                }
                let (_, state) = machine.run("systemctl is-system-running");
                match state.trim() {
                    "running" => return Some(machine),
                    "degraded" => {
                        let (_, failed) = machine.run("systemctl --failed --no-legend");
                        let log = machine.log();
                        cannot_be(true, &format!("systemd itself fails in here: {failed}\n{log}"));
                        return None;
                    }
                    _ => {}
                }
            }
            pause();
        }
    }

    fn root(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root/", self.first))
    }

    /// Whether its root is its own and not this machine's.
    fn is_apart(&self) -> bool {
        if self.first == 0 {
            return false;
        }
        let place = |root: &Path| fs::metadata(root).map(|root| (root.dev(), root.ino()));
        let (Ok(its), Ok(ours)) = (place(&self.root()), place(Path::new("/"))) else {
            return false;
        };
        let mark = fs::read_to_string(self.root().join(MARK)).unwrap_or_default();
        its != ours && mark.trim() == self.group
    }

    /// A file of it, as this machine finds it.
    pub(crate) fn path(&self, inside: &str) -> PathBuf {
        assert!(self.is_apart(), "this would be a file of this machine: {inside}");
        self.root().join(inside.trim_start_matches('/'))
    }

    pub(crate) fn has(&self, inside: &str) -> bool {
        self.path(inside).exists()
    }

    pub(crate) fn write(&self, inside: &str, text: &str) {
        let path = self.path(inside);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Runs a line of shell in it, as root.
    pub(crate) fn run(&self, line: &str) -> (bool, String) {
        self.run_on(line, "")
    }

    /// The same with something to read.
    pub(crate) fn run_on(&self, line: &str, input: &str) -> (bool, String) {
        assert!(self.is_apart(), "this would be done to this machine: {line}");
        let mut child = Command::new("nsenter")
            .args(["--mount", "--pid", "--uts", "--ipc", "--target"])
            .arg(self.first.to_string())
            .args(["sh", "-c", line])
            .env_clear()
            .env(
                "PATH",
                "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            )
            .env("HOME", "/root")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // Who does not read it has gone.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        let output = child.wait_with_output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (
            output.status.success(),
            String::from_utf8_lossy(&text).into_owned(),
        )
    }

    /// What a line of shell printed that must go well.
    pub(crate) fn does(&self, line: &str) -> String {
        let (success, output) = self.run(line);
        assert!(success, "{line}: {output}\n{}", self.log());
        output.trim().to_owned()
    }

    pub(crate) fn show(&self, unit: &str, property: &str) -> String {
        self.does(&format!("systemctl show --value --property {property} {unit}"))
    }

    /// Waits for a property of a unit.
    pub(crate) fn until(&self, unit: &str, property: &str, wanted: &str) {
        eventually_blocking(&format!("{property} is {wanted}"), || {
            match self.show(unit, property) {
                shown if shown == wanted => Ok(()),
                shown => Err((shown, self.log())),
            }
        });
    }

    /// Waits for what a line of shell says by its exit code.
    pub(crate) fn comes_true(&self, line: &str) {
        eventually_blocking(line, || match self.run(line) {
            (true, _) => Ok(()),
            (false, output) => Err((output, self.log())),
        });
    }

    /// Everything that was said in it.
    pub(crate) fn log(&self) -> String {
        let boot = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        let journal = if self.is_apart() {
            self.run("journalctl --no-pager --quiet --lines 100").1
        } else {
            String::new()
        };
        format!("{boot}\n{journal}")
    }

    /// Whom it asks for names.
    pub(crate) fn asks_for_names(&self, server: Ipv4Addr) {
        self.write("etc/resolv.conf", &format!("nameserver {server}\n"));
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // With it goes its first process, and with that everything in it.
        let _ = self.outer.kill();
        let _ = self.outer.wait();
        let end = Instant::now() + SOON;
        for hierarchy in HIERARCHIES {
            let group = Path::new(hierarchy).join(&self.group);
            while group.exists() && Instant::now() < end {
                let mut find = Command::new("find");
                find.arg(&group)
                    .args(["-depth", "-type", "d", "-exec", "rmdir", "{}", ";"]);
                let _ = find.output();
                pause();
            }
        }
    }
}
