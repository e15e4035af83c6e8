//! `hermes-relay access`: lists and changes who may drive an agent, and shows the audit log.
//!
//! A running relay applies changes immediately; without one they are made in its files.

mod show;

use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::Environment;
use super::exit::{self, errln, finish};
use super::format::{printable, stdout};
use super::prompt::{SecretInput as _, Stdin};
use super::remote::{RemoteArgs, RemoteRelay};
use super::usage::{self, UsageArgs};
use crate::access::{AccessRequest, Gate, PersonId, Role, StoredRow};
use crate::relay::now_ms;
use crate::serve::ControlRequest;
use crate::serve::client::ClientError;
use crate::store::{AccessFiles, AccessRow, AuditFile, InspectError, OpenError};
use crate::text::{instant, parse_instant};

use show::show;

/// List and change who may drive an agent. A running relay applies changes immediately; without one they hold from its
/// next start on.
///
/// Exit codes: 0 done, 1 refused or there is no such code, 2 invalid usage, 69 the relay does not answer, 75 a relay without a control socket uses the
/// state directory, 78 invalid configuration.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  hermes-relay access owner telegram:123456     # the first owner\n  \
                  hermes-relay access pending\n  hermes-relay access approve K7QWXP2M --role user\n  \
                  hermes-relay access revoke slack:U0123456789\n  hermes-relay access log --since 1d"
)]
pub(super) struct AccessArgs {
    #[command(subcommand)]
    action: AccessCommand,
}

#[derive(Subcommand, Debug)]
enum AccessCommand {
    /// List all rules and their origin: the settings file, Hermes' variables, a command or a pairing.
    #[command(after_help = "Example:\n  hermes-relay access list --json")]
    List {
        #[command(flatten)]
        remote: RemoteArgs,
    },
    /// Let a person in, or lift a denial.
    #[command(after_help = "Examples:\n  hermes-relay access allow telegram:123456\n  \
                      hermes-relay access allow slack:U1 --role guest --agent llm")]
    Allow {
        #[command(flatten)]
        remote: RemoteArgs,
        #[command(flatten)]
        person: PersonArgs,
        /// Role; user if not given, or as in the settings file.
        #[arg(long, value_name = "ROLE", value_parser = role_parser())]
        role: Option<Role>,
        /// Only this agent; may be repeated.
        #[arg(long = "agent", value_name = "NAME")]
        agents: Vec<String>,
        /// Only in this chat; may be repeated.
        #[arg(long = "chat", value_name = "ID")]
        chats: Vec<String>,
    },
    /// Keep a person out: their running turns are stopped, also if the settings file lists them. `allow` lifts it.
    #[command(after_help = "Example:\n  hermes-relay access deny telegram:123456")]
    Deny {
        #[command(flatten)]
        remote: RemoteArgs,
        #[command(flatten)]
        person: PersonArgs,
    },
    /// List the codes that wait for an approval.
    #[command(after_help = "Example:\n  hermes-relay access pending")]
    Pending {
        #[command(flatten)]
        remote: RemoteArgs,
    },
    /// Approve a code that somebody got in a direct message.
    #[command(after_help = "Example:\n  hermes-relay access approve K7QWXP2M --role guest")]
    Approve {
        #[command(flatten)]
        remote: RemoteArgs,
        /// The code.
        #[arg(value_name = "CODE")]
        code: String,
        /// Role; user if not given. Without an owner, the terminal asks whether this is the owner.
        #[arg(long, value_name = "ROLE", value_parser = role_parser())]
        role: Option<Role>,
    },
    /// The same as `deny`.
    #[command(after_help = "Example:\n  hermes-relay access revoke telegram:123456")]
    Revoke {
        #[command(flatten)]
        remote: RemoteArgs,
        #[command(flatten)]
        person: PersonArgs,
    },
    /// Delete what is stored about a person: their role or denial, their request for access with its name and message, and what
    /// they used. Rules in the settings file stay in force; the audit log keeps its entries until they are too old.
    #[command(after_help = "Example:\n  hermes-relay access forget telegram:123456")]
    Forget {
        #[command(flatten)]
        remote: RemoteArgs,
        #[command(flatten)]
        person: PersonArgs,
    },
    /// Make a person an owner, who may do everything and approves others.
    #[command(after_help = "Example:\n  hermes-relay access owner telegram:123456")]
    Owner {
        #[command(flatten)]
        remote: RemoteArgs,
        #[command(flatten)]
        person: PersonArgs,
    },
    Usage(UsageArgs),
    /// Show the audit log: who was let through or refused, and every change. It contains no message text.
    #[command(after_help = "Examples:\n  hermes-relay access log --since 2h\n  \
                      hermes-relay access log --person telegram:123456 --json")]
    Log {
        #[command(flatten)]
        remote: RemoteArgs,
        /// Only entries since then: a duration such as 30m, 2h or 7d, or a time such as 2026-11-15T08:00:00Z.
        #[arg(long, value_name = "WHEN", value_parser = parse_since)]
        since: Option<Since>,
        /// Only entries about this person.
        #[arg(long, value_name = "PLATFORM:ID", value_parser = parse_person)]
        person: Option<PersonId>,
    },
}

/// A person, as an argument or an option.
#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
struct PersonArgs {
    /// The person: platform and id, such as telegram:123456.
    #[arg(value_name = "PLATFORM:ID", value_parser = parse_person)]
    named: Option<PersonId>,
    /// The same as an option.
    #[arg(long = "person", value_name = "PLATFORM:ID", value_parser = parse_person)]
    option: Option<PersonId>,
}

impl PersonArgs {
    fn text(&self) -> String {
        let person = self.named.as_ref().or(self.option.as_ref());
        person.map(PersonId::to_string).unwrap_or_default()
    }
}

/// The beginning of a period.
#[derive(Clone, Copy, Debug)]
enum Since {
    /// So many seconds ago.
    Ago(i64),
    /// At this time, in Unix seconds.
    At(i64),
}

fn role_parser() -> impl clap::builder::TypedValueParser<Value = Role> {
    PossibleValuesParser::new(Role::ALL.map(Role::as_str)).map(|text| {
        let found = Role::ALL.into_iter().find(|role| role.as_str() == text);
        found.unwrap_or_default()
    })
}

fn parse_person(text: &str) -> Result<PersonId, String> {
    PersonId::parse(text)
}

fn parse_since(text: &str) -> Result<Since, String> {
    let text = text.trim();
    let wrong =
        || "write a duration such as 30m, 2h or 7d, or a time such as 2026-11-15T08:00:00Z".to_owned();
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let unit = match unit {
        "" | "s" => 1,
        "m" | "min" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return parse_instant(text).map(Since::At).ok_or_else(wrong),
    };
    let number: i64 = number.parse().map_err(|_| wrong())?;
    number.checked_mul(unit).map(Since::Ago).ok_or_else(wrong)
}

/// Runs the verb.
pub(super) fn run(args: &AccessArgs, env: Environment<'_>) -> ExitCode {
    let list = |entries: &Vec<String>| (!entries.is_empty()).then(|| entries.clone());
    let (remote, request) = match &args.action {
        AccessCommand::List { remote } => (remote, AccessRequest::List),
        AccessCommand::Pending { remote } => (remote, AccessRequest::Pending),
        AccessCommand::Allow {
            remote,
            person,
            role,
            agents,
            chats,
        } => {
            let request = AccessRequest::Allow {
                person: person.text(),
                role: *role,
                agents: list(agents),
                chats: list(chats),
            };
            (remote, request)
        }
        AccessCommand::Owner { remote, person } => {
            let request = AccessRequest::Allow {
                person: person.text(),
                role: Some(Role::Owner),
                agents: None,
                chats: None,
            };
            (remote, request)
        }
        AccessCommand::Deny { remote, person } | AccessCommand::Revoke { remote, person } => {
            let person = person.text();
            (remote, AccessRequest::Deny { person })
        }
        AccessCommand::Forget { remote, person } => {
            let person = person.text();
            (remote, AccessRequest::Forget { person })
        }
        AccessCommand::Approve { remote, code, role } => {
            let (code, role) = (code.clone(), *role);
            (remote, AccessRequest::Approve { code, role })
        }
        AccessCommand::Log {
            remote,
            since,
            person,
        } => return log(remote, *since, person.as_ref(), env),
        AccessCommand::Usage(args) => return usage::run(args, env),
    };
    let relay = match remote.running(env) {
        Ok(relay) => relay,
        Err(code) => return code,
    };
    if matches!(request, AccessRequest::List) {
        // Rules may be missing for what they say.
        for warning in &relay.loaded().warnings {
            errln!("warning: {warning}");
        }
    }
    let done = asked(&relay, request, remote.json).and_then(|request| call(&relay, request));
    match done {
        Ok(answer) if remote.json => exit::print(&answer),
        Ok(answer) => finish(show(&answer)),
        Err(code) => code,
    }
}

/// Whoever approves the first code in a terminal is asked whether it is the owner's.
fn asked(relay: &RemoteRelay, request: AccessRequest, json: bool) -> Result<AccessRequest, ExitCode> {
    let AccessRequest::Approve { code, role: None } = &request else {
        return Ok(request);
    };
    if json || !std::io::stdin().is_terminal() {
        return Ok(request);
    }
    let answer = call(relay, AccessRequest::Pending)?;
    let pending = answer["pending"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let is_it = |entry: &&Value| {
        let known = entry["code"].as_str();
        known.is_some_and(|known| known.eq_ignore_ascii_case(code.trim()))
    };
    let (Some(entry), Some(false)) = (pending.iter().find(is_it), answer["has_owner"].as_bool()) else {
        return Ok(request);
    };
    let question = format!(
        "Nobody is an owner yet. Is {} you, the owner? [y/N]",
        show::who(entry)
    );
    let typed = Stdin
        .line(&question)
        .map_err(|error| relay.fail(exit::FAILED, format!("cannot read the answer: {error}"), None))?;
    let typed = typed.unwrap_or_default().to_ascii_lowercase();
    let role = matches!(typed.as_str(), "y" | "yes").then_some(Role::Owner);
    Ok(AccessRequest::Approve {
        code: code.clone(),
        role,
    })
}

/// Makes a person an owner, for `enroll`.
pub(super) fn make_owner(person: &PersonId, config: Option<PathBuf>, env: Environment<'_>) -> ExitCode {
    match add_owner(person, config, false, env) {
        Ok(answer) => finish(show(&answer)),
        Err(code) => code,
    }
}

/// Makes a person an owner, and prints nothing but errors.
pub(super) fn add_owner(
    person: &PersonId,
    config: Option<PathBuf>,
    json: bool,
    env: Environment<'_>,
) -> Result<Value, ExitCode> {
    let request = AccessRequest::Allow {
        person: person.to_string(),
        role: Some(Role::Owner),
        agents: None,
        chats: None,
    };
    let mut remote = RemoteArgs::with_config(config);
    remote.json = json;
    call(&remote.relay(env)?, request)
}

/// Asks the running relay, or changes its files when none runs.
pub(super) fn call(relay: &RemoteRelay, request: AccessRequest) -> Result<Value, ExitCode> {
    let control = ControlRequest::Access {
        request: request.clone(),
    };
    let mut answer = match relay.call(&control) {
        Ok(answer) => answer,
        Err(ClientError::NotRunning(_)) => in_files(relay, request)?,
        Err(error) => return Err(relay.report(&error, None)),
    };
    let denied = answer["denied"].as_str().filter(|_| answer["known"] == false);
    if denied.is_some_and(|person| has_written(relay, person)) {
        answer.as_object_mut().map(|answer| answer.remove("known"));
    }
    Ok(answer)
}

/// Whether the audit log knows something that a person did.
fn has_written(relay: &RemoteRelay, person: &str) -> bool {
    let mut found = false;
    let read = AuditFile::read(&relay.settings().state_dir, |line| {
        let Ok(entry) = serde_json::from_str::<Value>(line) else {
            return;
        };
        found |= entry["event"] != "access" && person_of(&entry).is_some_and(|own| own.to_string() == person);
    });
    read.is_ok() && found
}

/// The person that an entry of the audit log is about.
fn person_of(entry: &Value) -> Option<PersonId> {
    let (platform, user) = entry["person"].as_str()?.split_once(':')?;
    Some(PersonId::new(platform, user))
}

fn in_files(relay: &RemoteRelay, request: AccessRequest) -> Result<Value, ExitCode> {
    if let Some(error) = relay.unloadable() {
        return Err(relay.fail(exit::CONFIGURATION, error, None));
    }
    let settings = relay.settings();
    let failed = |error: InspectError| relay.fail(exit::FAILED, error, None);
    let now_ms = now_ms();
    if !relay.has_journal() {
        let tried = Gate::new(settings.access.clone(), []).handle(request.clone(), now_ms);
        let handled = tried.map_err(|error| relay.fail(exit::FAILED, error, None))?;
        if !matches!(request, AccessRequest::Allow { .. } | AccessRequest::Deny { .. }) {
            return Ok(handled.answer);
        }
    }
    let opened = AccessFiles::open(&settings.state_dir, settings.state_dir_assigned, now_ms);
    let mut files = opened.map_err(|error| match error {
        error @ OpenError::InUse { .. } => relay.in_use(
            &error,
            "set `serve.control: true` so that changes reach the running relay, or stop it and repeat this",
        ),
        error => relay.fail(exit::CONFIGURATION, error, None),
    })?;
    let rows = files.rows().map_err(failed)?;
    let mut gate = Gate::new(settings.access.clone(), rows.into_iter().map(stored));
    for (platform, user) in files.people().map_err(failed)? {
        gate.saw(&PersonId::new(&platform, &user));
    }
    let mut handled = gate
        .handle(request, now_ms)
        .map_err(|error| relay.fail(exit::FAILED, error, None))?;
    handled.leave_to_next_start();
    let rows: Vec<AccessRow> = handled.rows.into_iter().map(row).collect();
    files.write(&rows).map_err(failed)?;
    if let Some(change) = handled.change {
        let person = change.person;
        let entry = json!({
            "time": instant(now_ms.div_euclid(1000)), "event": "access",
            "platform": person.platform(), "chat": "", "person": person.to_string(),
            "role": change.role, "decision": change.what, "reason": "command",
        });
        let mut audit = AuditFile::new(&settings.state_dir, settings.audit.keep_days);
        if let Err(error) = audit.append(&format!("{entry}\n")) {
            let what = format!("the change is made, but the audit log cannot be written: {error}");
            return Err(relay.fail(exit::FAILED, what, None));
        }
    }
    Ok(handled.answer)
}

/// A row of the journal, as the rules read it.
pub(super) fn stored(row: AccessRow) -> StoredRow {
    StoredRow {
        kind: row.kind,
        platform: row.platform,
        user: row.person,
        value: row.value,
    }
}

fn row(row: StoredRow) -> AccessRow {
    AccessRow {
        kind: row.kind,
        platform: row.platform,
        person: row.user,
        value: row.value,
    }
}

/// Shows the audit log.
fn log(
    remote: &RemoteArgs,
    since: Option<Since>,
    person: Option<&PersonId>,
    env: Environment<'_>,
) -> ExitCode {
    let relay = match remote.running(env) {
        Ok(relay) => relay,
        Err(code) => return code,
    };
    let since = since.map(|since| match since {
        Since::Ago(secs) => now_ms().div_euclid(1000).saturating_sub(secs),
        Since::At(at) => at,
    });
    let mut entries = Vec::new();
    let read = AuditFile::read(&relay.settings().state_dir, |line| {
        let Ok(entry) = serde_json::from_str::<Value>(line) else {
            return;
        };
        let time = entry["time"].as_str().and_then(parse_instant);
        let is_late_enough = since.is_none_or(|since| time.is_some_and(|time| time >= since));
        let is_theirs = person.is_none_or(|person| person_of(&entry).as_ref() == Some(person));
        if is_late_enough && is_theirs {
            entries.push(entry);
        }
    });
    if let Err(error) = read {
        return relay.fail(exit::FAILED, format!("cannot read the audit log: {error}"), None);
    }
    if remote.json {
        return exit::print(json!({ "entries": entries }));
    }
    let mut out = stdout();
    let mut shown = Ok(());
    if entries.is_empty() {
        shown = writeln!(out, "no entries");
    }
    for entry in &entries {
        let text = |key: &str| entry[key].as_str().map(printable).unwrap_or_default();
        shown = writeln!(
            out,
            "{}  {:<8} {:<9} {}  {} {}",
            text("time"),
            text("event"),
            text("decision"),
            text("reason"),
            text("person"),
            text("chat")
        );
        if shown.is_err() {
            break;
        }
    }
    finish(shown.and_then(|()| out.flush()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_begins_at_a_time_or_so_long_ago() {
        let secs = |text: &str| match parse_since(text) {
            Ok(Since::Ago(secs)) => Some((true, secs)),
            Ok(Since::At(at)) => Some((false, at)),
            Err(_) => None,
        };
        assert_eq!(secs("90"), Some((true, 90)));
        assert_eq!(secs("2h"), Some((true, 7200)));
        assert_eq!(secs("7d"), Some((true, 604_800)));
        assert_eq!(secs("1970-01-02"), Some((false, 86_400)));
        assert_eq!(secs("1970-01-01T00:01:00Z"), Some((false, 60)));
        for wrong in [
            "",
            "h",
            "2x",
            "-1h",
            "99999999999999999999d",
            "9223372036854775807d",
        ] {
            assert_eq!(secs(wrong), None, "{wrong}");
        }
    }
}
