//! Which of our environment a child may see.
//!
//! | a name | reaches the child |
//! |---|---|
//! | of the relay itself: `GATEWAY_RELAY_*`, `HERMES_RELAY_*`, `RELAY_*`, and those withheld by name | never |
//! | of the service manager: `NOTIFY_SOCKET`, `WATCHDOG_*`, `LISTEN_*`, `INVOCATION_ID`, its directories, .. | never |
//! | that sounds like a secret: `..SECRET`, `..TOKEN`, `..PASSWORD`, `..API_KEY`, .. | only when `pass` names it |
//! | any other | yes; with `clear`, only when `pass` names it |
//!
//! What `add` says is set last and wins over all of this: someone wrote it for this child.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

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
    "SECRET_KEY",
    "TOKEN",
    "TOKENS",
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "API_KEY",
    "APIKEY",
    "ACCESS_KEY",
    "PRIVATE_KEY",
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
}

impl BaseEnv {
    /// Takes an environment.
    pub fn new(vars: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        Self {
            vars: vars.into_iter().collect(),
            withheld: BTreeSet::new(),
        }
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

/// What one child gets of it.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct EnvPolicy {
    /// Nothing is inherited but what `pass` names.
    pub clear: bool,
    /// Names that are inherited although they sound like a secret, or although `clear` is set; a `*` at the end stands
    /// for any rest.
    pub pass: Vec<String>,
    /// What is set besides.
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
}
