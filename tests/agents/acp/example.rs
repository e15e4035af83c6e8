//! Where the example agent is; built when only the tests were.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

pub(crate) fn path() -> &'static Path {
    static EXAMPLE: OnceLock<PathBuf> = OnceLock::new();
    EXAMPLE.get_or_init(|| {
        let test = std::env::current_exe().unwrap();
        let profile = test.parent().and_then(Path::parent).unwrap();
        let example = profile.join("examples/acp_agent");
        if !example.exists() {
            let built = std::process::Command::new(env!("CARGO"))
                .args(["build", "--quiet", "--example", "acp_agent", "--target-dir"])
                .arg(profile.parent().unwrap())
                .current_dir(env!("CARGO_MANIFEST_DIR"))
                .status();
            assert!(built.unwrap().success(), "the example agent was not built");
        }
        example
    })
}
