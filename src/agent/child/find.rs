//! Where a program is, before it is started: so that "not installed" is said as such.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

/// Where programs are looked for when nothing says where.
const USUAL_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// A program that is not there or cannot be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotInstalled {
    /// No directory of the search path has it.
    #[error(
        "the program \"{}\" is not installed: no directory of PATH has it; install it or write its full path",
        program.display()
    )]
    Missing {
        /// What was looked for.
        program: OsString,
    },
    /// There is no such file.
    #[error("there is no program at {}; install it or correct the path", .0.display())]
    NoFile(PathBuf),
    /// The file is there and is no program.
    #[error("{} cannot be run; check that it is a program and that this user may execute it", .0.display())]
    NotExecutable(PathBuf),
}

/// Finds a program: by its path when `argv0` has a slash, else in the directories of `path_env`.
pub fn program_exists(argv0: &OsStr, path_env: Option<&OsStr>) -> Result<PathBuf, NotInstalled> {
    if argv0.as_encoded_bytes().contains(&b'/') {
        let file = PathBuf::from(argv0);
        return match () {
            () if is_program(&file) => Ok(file),
            () if file.exists() => Err(NotInstalled::NotExecutable(file)),
            () => Err(NotInstalled::NoFile(file)),
        };
    }
    let missing = || NotInstalled::Missing {
        program: argv0.to_owned(),
    };
    if argv0.is_empty() {
        return Err(missing());
    }
    let directories = path_env.unwrap_or(OsStr::new(USUAL_PATH));
    let candidates: Vec<PathBuf> = std::env::split_paths(directories)
        // An empty entry means the current directory, which is not ours to run programs from.
        .filter(|directory| directory.is_absolute())
        .map(|directory| directory.join(argv0))
        .collect();
    if let Some(file) = candidates.iter().find(|file| is_program(file)) {
        return Ok(file.clone());
    }
    match candidates.into_iter().find(|file| file.is_file()) {
        Some(file) => Err(NotInstalled::NotExecutable(file)),
        None => Err(missing()),
    }
}

fn is_program(file: &Path) -> bool {
    file.is_file() && access(file, Access::EXEC_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_by_name_or_path_and_said_to_be_missing_otherwise() {
        let sh = program_exists(OsStr::new("sh"), Some(OsStr::new("/nowhere::/bin:/usr/bin"))).unwrap();
        assert_eq!(sh, Path::new("/bin/sh"));
        assert!(program_exists(OsStr::new("sh"), None).is_ok());
        assert!(program_exists(OsStr::new("/bin/sh"), Some(OsStr::new(""))).is_ok());

        let missing = program_exists(OsStr::new("surely-not-here"), None).unwrap_err();
        assert!(
            missing
                .to_string()
                .contains("\"surely-not-here\" is not installed")
        );
        assert!(program_exists(OsStr::new(""), None).is_err());
        assert!(program_exists(OsStr::new("sh"), Some(OsStr::new("bin:"))).is_err());
        assert!(matches!(
            program_exists(OsStr::new("/bin/surely-not-here"), None),
            Err(NotInstalled::NoFile(_))
        ));

        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("notes"), "text").unwrap();
        let refused = program_exists(OsStr::new("notes"), Some(folder.path().as_os_str()));
        assert!(matches!(refused, Err(NotInstalled::NotExecutable(_))));
        let refused = program_exists(folder.path().as_os_str(), None);
        assert!(matches!(refused, Err(NotInstalled::NotExecutable(_))));
    }
}
