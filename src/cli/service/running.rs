//! The unit of systemd that a relay runs as.

use std::path::PathBuf;
use std::process::Command;

use super::{LocationArgs, UNITS, directory, systemctl};
use crate::cli::Environment;

/// A unit, and whose systemd knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli) struct ServiceUnit {
    pub(in crate::cli) name: String,
    /// Whether it is a unit of the user's own systemd.
    pub(in crate::cli) user: bool,
}

impl ServiceUnit {
    /// The unit whose main process this is.
    pub(in crate::cli) fn of_process(pid: u32) -> Option<Self> {
        let cgroups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        let of_cgroup = unit_of_cgroup(&cgroups);
        let usual = [true, false].into_iter().flat_map(|user| {
            UNITS.map(|name| Self {
                name: name.to_owned(),
                user,
            })
        });
        let mut candidates = of_cgroup.into_iter().chain(usual);
        candidates.find(|unit| unit.main_pid() == Some(pid))
    }

    /// The installed unit, that of this user first.
    pub(in crate::cli) fn installed(env: Environment<'_>) -> Option<Self> {
        let own = directory(
            &LocationArgs {
                user: true,
                unit_dir: None,
                worker: false,
            },
            env,
        );
        let system = ["/etc/systemd/system", "/usr/lib/systemd/system"].map(PathBuf::from);
        let places = own
            .map(|dir| (dir, true))
            .into_iter()
            .chain(system.map(|dir| (dir, false)));
        let mut files = places.flat_map(|(dir, user)| UNITS.map(|name| (dir.join(name), name, user)));
        files
            .find(|(file, ..)| file.is_file())
            .map(|(_, name, user)| Self {
                name: name.to_owned(),
                user,
            })
    }

    /// The `systemctl` that knows it, for people.
    pub(in crate::cli) fn systemctl(&self) -> &'static str {
        systemctl(self.user)
    }

    fn main_pid(&self) -> Option<u32> {
        let mut command = Command::new("systemctl");
        if self.user {
            command.arg("--user");
        }
        let output = command
            .args(["show", "--property=MainPID", "--value", &self.name])
            .output()
            .ok()?;
        String::from_utf8_lossy(&output.stdout).trim().parse().ok()
    }
}

/// The unit in the control groups of a process.
fn unit_of_cgroup(cgroups: &str) -> Option<ServiceUnit> {
    let path = cgroups.lines().find_map(|line| line.rsplit(':').next())?;
    let name = path
        .rsplit('/')
        .next()
        .filter(|name| name.ends_with(".service"))?;
    Some(ServiceUnit {
        name: name.to_owned(),
        user: path.contains("/user@"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_is_the_last_part_of_the_control_group() {
        let of = |text: &str| unit_of_cgroup(text).map(|unit| (unit.name, unit.user));
        assert_eq!(
            of("0::/system.slice/hermes-relay.service\n"),
            Some(("hermes-relay.service".to_owned(), false))
        );
        assert_eq!(
            of("0::/user.slice/user-1000.slice/user@1000.service/app.slice/my-relay.service\n"),
            Some(("my-relay.service".to_owned(), true))
        );
        assert_eq!(of("0::/user.slice/user-1000.slice/session-3.scope\n"), None);
        assert_eq!(of("0::/\n"), None);
        assert_eq!(of(""), None);
    }
}
