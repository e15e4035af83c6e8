//! Which of our environment a child may see.
//!
//! | a name | reaches the child |
//! |---|---|
//! | of the relay itself: `GATEWAY_RELAY_*`, `HERMES_RELAY_*`, `RELAY_*`, and those withheld by name | never |
//! | of the service manager: `NOTIFY_SOCKET`, `WATCHDOG_*`, `LISTEN_*`, `INVOCATION_ID`, its directories, .. | never |
//! | that sounds like a secret: `..SECRET`, `..TOKEN`, `..PASSWORD`, `.._KEY`, .. | only when `pass` names it |
//! | any other | yes; with `clear`, only when `pass` names it |
//!
//! What the relay itself provides ([`BaseEnv::provide`]) is set in any case; `add` is applied last and wins.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

/// Starts of names that are the relay's own.
const OWN: &[&str] = &["GATEWAY_RELAY_", "HERMES_RELAY_", "RELAY_"];

/// Starts of names that the service manager means for us alone. An agent that sees them would take itself for the
/// supervised one, or our directories for its own.
const MANAGER: &[&str] = &[
    "NOTIFY_SOCKET",
    "WATCHDOG_",
    "LISTEN_",
    "CREDENTIALS_DIRECTORY",
    "STATE_DIRECTORY",
    "RUNTIME_DIRECTORY",
    "CACHE_DIRECTORY",
    "LOGS_DIRECTORY",
    "CONFIGURATION_DIRECTORY",
    "INVOCATION_ID",
    "JOURNAL_STREAM",
    "SYSTEMD_EXEC_PID",
    "MAINPID",
    "MANAGERPID",
];

/// Ends of names that sound like a secret.
const SECRET: &[&str] = &[
    "SECRET",
    "SECRETS",
    "TOKEN",
    "TOKENS",
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "_KEY",
    "APIKEY",
    "_PAT",
    "_PASS",
    "_AUTH",
    "WEBHOOK_URL",
    "CREDENTIALS",
    // A collector's headers hold its key.
    "OTLP_HEADERS",
    "OTLP_TRACES_HEADERS",
    "OTLP_METRICS_HEADERS",
    "OTLP_LOGS_HEADERS",
];

/// The environment of this program, as it was handed to us, and the names in it that no child may see.
#[derive(Clone, Default)]
pub struct BaseEnv {
    vars: BTreeMap<OsString, OsString>,
    withheld: BTreeSet<OsString>,
    provided: BTreeMap<OsString, OsString>,
}

impl BaseEnv {
    /// Takes an environment.
    pub fn new(vars: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        Self {
            vars: vars.into_iter().collect(),
            withheld: BTreeSet::new(),
            provided: BTreeMap::new(),
        }
    }

    /// Sets a variable for every child, whatever it inherits.
    #[must_use]
    pub fn provide(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.provided.insert(name.into(), value.into());
        self
    }

    /// Withholds these names from every child: those that other agents' keys are read from, for instance.
    #[must_use]
    pub fn withhold(mut self, names: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.withheld.extend(names.into_iter().map(Into::into));
        self
    }

    /// Every variable that was taken, withheld or not.
    pub fn vars(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.vars
            .iter()
            .map(|(name, value)| (name.as_os_str(), value.as_os_str()))
    }

    fn is_ours(&self, name: &OsStr) -> bool {
        let starts = |start: &&str| name.as_bytes().starts_with(start.as_bytes());
        self.withheld.contains(name) || OWN.iter().chain(MANAGER).any(starts)
    }
}

/// Names only: values may be secrets.
impl std::fmt::Debug for BaseEnv {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.vars.keys()).finish()
    }
}

/// The part of the environment that a child gets.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct EnvPolicy {
    /// Nothing is inherited but what `pass` names.
    pub clear: bool,
    /// Names that are inherited although they sound like a secret, or although `clear` is set; a `*` at the end stands
    /// for any rest.
    pub pass: Vec<String>,
    /// Variables that are set in addition.
    pub add: BTreeMap<String, String>,
}

/// Names only: values may be secrets.
impl std::fmt::Debug for EnvPolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EnvPolicy")
            .field("clear", &self.clear)
            .field("pass", &self.pass)
            .field("add", &self.add.keys())
            .finish()
    }
}

impl EnvPolicy {
    /// The child's whole environment.
    pub fn apply(&self, base: &BaseEnv) -> BTreeMap<OsString, OsString> {
        let inherited = base.vars.iter().filter(|(name, _)| {
            let named = || self.pass.iter().any(|pattern| fits(pattern, name));
            !base.is_ours(name) && (named() || !(self.clear || sounds_secret(name)))
        });
        let mut vars: BTreeMap<OsString, OsString> = inherited
            .chain(&base.provided)
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        for (name, value) in &self.add {
            set_variable(&mut vars, name, value);
        }
        vars
    }
}

/// Sets a variable to a value from outside: NUL bytes are taken out, and what cannot be a name is left out.
pub fn set_variable(vars: &mut BTreeMap<OsString, OsString>, name: &str, value: &str) {
    if name.is_empty() || name.contains(['=', '\0']) {
        return;
    }
    let bytes: Vec<u8> = value.bytes().filter(|byte| *byte != 0).collect();
    vars.insert(name.into(), OsString::from_vec(bytes));
}

fn fits(pattern: &str, name: &OsStr) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.as_bytes().starts_with(start.as_bytes()),
        None => name.as_bytes() == pattern.as_bytes(),
    }
}

fn sounds_secret(name: &OsStr) -> bool {
    let name = name.as_bytes().to_ascii_uppercase();
    SECRET.iter().any(|end| name.ends_with(end.as_bytes()))
}

/// Search path when `PATH` is not set.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// A program that is not there or cannot be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotInstalled {
    /// No directory of the search path has it.
    #[error(
        "the program `{}` is not installed: no directory of PATH has it; install it or write its full path",
        program.display()
    )]
    Missing {
        /// The program that was looked for.
        program: OsString,
    },
    /// The file does not exist.
    #[error("there is no program at {}; install it or correct the path", .0.display())]
    NoFile(PathBuf),
    /// The file is not executable.
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
    let directories = path_env.unwrap_or(OsStr::new(DEFAULT_PATH));
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

    fn base() -> BaseEnv {
        BaseEnv::new(
            [
                "PATH",
                "HOME",
                "LANG",
                "GATEWAY_RELAY_SECRET",
                "GATEWAY_RELAY_URL",
                "HERMES_RELAY_HOME",
                "RELAY_USER_NAME",
                "ANTHROPIC_API_KEY",
                "OPENAI_API_KEY",
                "MODEL_KEY_OF_ANOTHER",
                "github_token",
                "GH_PAT",
                "NPM_AUTH",
                "DB_PASS",
                "API_SERVER_KEY",
                "SLACK_WEBHOOK_URL",
                "OTEL_EXPORTER_OTLP_HEADERS",
                "OTEL_EXPORTER_OTLP_LOGS_HEADERS",
                "OTEL_EXPORTER_OTLP_METRICS_HEADERS",
                "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
                "NOTIFY_SOCKET",
                "WATCHDOG_USEC",
                "STATE_DIRECTORY",
                "INVOCATION_ID",
                "JOURNAL_STREAM",
                "TOKENIZERS_PARALLELISM",
            ]
            .map(|name| (name.into(), format!("value of {name}").into())),
        )
        .withhold(["MODEL_KEY_OF_ANOTHER"])
    }

    fn names(policy: &EnvPolicy) -> Vec<String> {
        let vars = policy.apply(&base());
        vars.into_keys().map(|name| name.into_string().unwrap()).collect()
    }

    #[test]
    fn the_manual_names_every_end_of_a_secret() {
        let manual = include_str!("../../../docs/agents.md");
        for end in SECRET {
            assert!(manual.contains(&format!("`{end}`")), "{end}");
        }
    }

    #[test]
    fn secrets_stay_unless_named_and_the_relays_own_stay_always() {
        let plain = ["HOME", "LANG", "PATH", "TOKENIZERS_PARALLELISM"];
        assert_eq!(names(&EnvPolicy::default()), plain);
        let pass = [
            "ANTHROPIC_*",
            "GATEWAY_*",
            "MODEL_KEY_OF_ANOTHER",
            "NOTIFY_SOCKET",
        ]
        .map(str::to_owned);
        let mut policy = EnvPolicy {
            pass: pass.to_vec(),
            ..EnvPolicy::default()
        };
        assert_eq!(names(&policy), [&["ANTHROPIC_API_KEY"], &plain[..]].concat());
        policy.clear = true;
        assert_eq!(names(&policy), ["ANTHROPIC_API_KEY"]);
        policy.add.insert("A".to_owned(), "x\0y".to_owned());
        policy.add.insert("B=C".to_owned(), "x".to_owned());
        policy.add.insert(String::new(), "x".to_owned());
        assert_eq!(names(&policy), ["A", "ANTHROPIC_API_KEY"]);
        assert_eq!(policy.apply(&base())[OsStr::new("A")], "xy");
        let base = base().provide("RELAY_STATE_DIR", "/state");
        assert_eq!(policy.apply(&base)[OsStr::new("RELAY_STATE_DIR")], "/state");
    }

    #[test]
    fn values_are_not_printed() {
        let policy = EnvPolicy {
            add: BTreeMap::from([("KEY".to_owned(), "hidden".to_owned())]),
            ..EnvPolicy::default()
        };
        let printed = format!("{:?} {policy:?}", base());
        assert!(printed.contains("KEY") && !printed.contains("hidden") && !printed.contains("value of"));
    }

    #[test]
    fn a_program_is_found_by_name_or_path_or_reported_missing() {
        let sh = program_exists(OsStr::new("sh"), Some(OsStr::new("/nowhere::/bin:/usr/bin"))).unwrap();
        assert_eq!(sh, Path::new("/bin/sh"));
        assert!(program_exists(OsStr::new("sh"), None).is_ok());
        assert!(program_exists(OsStr::new("/bin/sh"), Some(OsStr::new(""))).is_ok());

        let missing = program_exists(OsStr::new("surely-not-here"), None).unwrap_err();
        assert!(missing.to_string().contains("`surely-not-here` is not installed"));
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
