//! A test in a process of its own, for what is measured of a whole process.

use std::process::{Command, Stdio};

/// Set in the process that runs one test only.
const ALONE: &str = "HERMES_RELAY_TEST_ALONE";

/// Whether this process runs this test only. If not, another one is started which does, and this one passes or fails with it.
pub(crate) fn is_alone(test: &str) -> bool {
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let output = Command::new(std::env::current_exe().expect("this program"))
        .args([test, "--exact", "--nocapture"])
        .env(ALONE, "1")
        .stdin(Stdio::null())
        .output()
        .expect("this program once more");
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    println!("{out}");
    assert!(
        output.status.success() && out.contains("1 passed"),
        "{test}, alone: {}\n{out}{err}",
        output.status
    );
    false
}
