//! This process as the owner of claims, and whether another one still runs.

use std::fs;
use std::path::Path;

use rustix::process::{Pid, test_kill_process};

use crate::cron::owner::ClaimOwner;

/// This process, with this random part.
pub fn current_owner(random: u64) -> ClaimOwner {
    let pid = std::process::id();
    let host = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .replace(':', "-");
    ClaimOwner {
        host,
        pid,
        start: start_of(pid).unwrap_or_default(),
        random,
    }
}

/// Whether that process of this machine still runs. If that cannot be told, it does.
pub(super) fn is_running(owner: &ClaimOwner) -> bool {
    let pid = i32::try_from(owner.pid).ok().and_then(Pid::from_raw);
    let Some(pid) = pid else { return false };
    if test_kill_process(pid) == Err(rustix::io::Errno::SRCH) {
        return false;
    }
    match start_of(owner.pid) {
        Some(start) => start == owner.start,
        // Where there is no /proc, the process id alone has to do.
        None => !Path::new("/proc/self/stat").exists(),
    }
}

/// When a process started, in ticks since a boot that is named too; `None` if it is gone or a zombie.
fn start_of(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in front may hold anything, also parentheses.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    let ticks = fields.nth(18)?;
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let boot: String = boot.chars().filter(char::is_ascii_hexdigit).take(12).collect();
    (!matches!(state, "Z" | "X")).then(|| format!("{boot}-{ticks}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_runs_and_its_namesake_does_not() {
        let own = current_owner(1);
        assert!(is_running(&own), "{own}");
        assert_eq!(ClaimOwner::parse(&own.to_string()), Some(own.clone()));
        let namesake = ClaimOwner {
            start: "another".into(),
            ..own.clone()
        };
        assert!(!is_running(&namesake));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let gone = ClaimOwner {
            pid: child.id(),
            ..own
        };
        child.wait().unwrap();
        assert!(!is_running(&gone));
    }
}
