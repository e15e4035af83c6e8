//! Programs that tests write and run.
//!
//! Another process writes them. A test that starts something meanwhile would inherit a file that is open for writing here,
//! and such a file cannot be run: "Text file busy".

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Writes a script that everybody may run.
pub(crate) fn write_script(path: &Path, text: &str) {
    let mut writer = Command::new("/bin/sh")
        .args(["-c", r#"cat >"$1" && chmod 755 "$1""#, "sh"])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = writer.stdin.take().unwrap();
    input.write_all(text.as_bytes()).unwrap();
    drop(input);
    assert!(writer.wait().unwrap().success(), "{}", path.display());
}

/// Copies a program.
pub(crate) fn copy_program(from: &Path, to: &Path) {
    let copied = Command::new("/bin/cp").args([from, to]).status().unwrap();
    assert!(copied.success(), "{}", to.display());
}
