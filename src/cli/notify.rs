//! `hermes-relay notify`: hands something to an agent, through every connector that has it.

use std::ffi::OsString;
use std::io::{self, Read as _};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::exit::{self, errln, outln};
use super::remote::{RemoteArgs, RemoteRelay};
use super::skills;
use super::{ProcessEnv, substrates};
use crate::agent_connector::contract::{
    AgentAddress, CauseKind, DeliveryFailure, DeliveryKind, DeliveryOrigin, TriggerKind,
};
use crate::agent_connector::{DispatchOutcome, Dispatched, DispatchedTo, MAX_NOTICE_BYTES, Notice, dispatch};
use crate::config::file::nearest;
use crate::skill::SkillBody;

/// Hand an agent something to take in or a playbook to carry out.
///
/// An address of an agent alone delivers without an interruption; `AGENT@SESSION` wakes the agent, and the text is the wake's context.
/// Every entry of `connectors` in the settings that has the agent gets it, under one `dispatch_id`. To write into a chat, use `hermes-relay send`.
///
/// Exit codes: 0 every connector accepted it, 1 one did not or no connector has the agent, 78 invalid configuration.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  hermes-relay notify ops \"The disk of db1 is 91 % full.\"\n  \
                  hermes-relay notify ops@night-shift --event-type alert - < report.txt\n  \
                  hermes-relay notify ops \"Rotate the logs.\" --kind template --json\n  \
                  hermes-relay notify ops --skill rotate-logs"
)]
pub(super) struct NotifyArgs {
    #[command(flatten)]
    remote: RemoteArgs,
    /// The agent, or `AGENT@SESSION` to wake it.
    #[arg(value_name = "ADDRESS")]
    address: String,
    /// Text; `-` reads it from standard input.
    #[arg(
        value_name = "TEXT",
        allow_hyphen_values = true,
        required_unless_present = "skill",
        conflicts_with = "skill"
    )]
    text: Option<String>,
    /// Hand over the text of this skill, as a playbook; it must be Approved.
    #[arg(long, value_name = "NAME")]
    skill: Option<String>,
    /// What a delivery is for: context to take in, or a playbook to carry out, as a skill always is [default: augment].
    #[arg(long, value_name = "KIND")]
    kind: Option<KindOption>,
    /// Word that receivers route by; without it the skill's own (`# Event-type:` in its header).
    #[arg(long, value_name = "TYPE")]
    event_type: Option<String>,
    /// Id that an answer is recognised by.
    #[arg(long, value_name = "ID")]
    correlation_id: Option<String>,
    /// Wait this long for the agent's answer; connectors that cannot do that say so at once.
    #[arg(long, value_name = "SECS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    wait: Option<u64>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum KindOption {
    Augment,
    Template,
}

impl From<KindOption> for DeliveryKind {
    fn from(kind: KindOption) -> Self {
        match kind {
            KindOption::Augment => Self::Augment,
            KindOption::Template => Self::Template,
        }
    }
}

/// Runs the verb.
pub(super) fn run(args: &NotifyArgs, process: &ProcessEnv<'_>) -> ExitCode {
    let relay = match args.remote.load(process.env) {
        Ok(relay) => relay,
        Err(error) => return refused(args, exit::CONFIGURATION, &error.to_string(), None),
    };
    let skill = match args
        .skill
        .as_deref()
        .map(|name| skills::approved(relay.settings(), name))
    {
        None => None,
        Some(Ok(skill)) => Some(skill),
        Some(Err(refusal)) => return refused(args, refusal.code, &refusal.what, refusal.hint.as_deref()),
    };
    if skill.is_some() && matches!(args.kind, Some(KindOption::Augment)) {
        let hint = "omit --kind with --skill";
        return refused(
            args,
            exit::USAGE,
            "a skill is a playbook, not context",
            Some(hint),
        );
    }
    let skill_name = skill.as_ref().map(|skill| skill.name.clone());
    let header = skill.as_ref();
    let header = header.and_then(|skill| SkillBody::read(skill.source.clone()).event_type());
    let kind = if skill.is_some() {
        DeliveryKind::Template
    } else {
        args.kind.map_or(DeliveryKind::Augment, DeliveryKind::from)
    };
    let text = match skill {
        Some(skill) => Ok(skill.source),
        None => read_text(args.text.as_deref().unwrap_or_default()),
    };
    let text = match text {
        Ok(text) => text,
        Err(error) => {
            let what = format!("cannot read the text from standard input: {error}");
            return refused(args, exit::FAILED, &what, None);
        }
    };
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return refused(args, exit::INTERNAL, "cannot start the runtime", None);
    };
    let notice = Notice {
        address: args.address.clone(),
        kind,
        text,
        origin: DeliveryOrigin {
            skill_name,
            trigger: TriggerKind::Cli,
            event_type: args.event_type.clone().or(header),
            correlation_id: args.correlation_id.clone(),
            ..DeliveryOrigin::default()
        },
        wait: args.wait.map(Duration::from_secs),
    };
    let connectors = substrates::build_all(&relay, process);
    let dispatched = runtime.block_on(dispatch(&connectors, &notice));
    if args.remote.json {
        // A closed standard output changes nothing about what was dispatched.
        let _ = exit::print(serde_json::to_value(&dispatched).unwrap_or_default());
    } else {
        show(&dispatched, &relay);
    }
    if dispatched.is_accepted() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(exit::FAILED)
    }
}

/// Reports why there is nothing to hand over, as the object of a notice that nobody got.
fn refused(args: &NotifyArgs, code: u8, what: &str, hint: Option<&str>) -> ExitCode {
    if args.remote.json {
        print_refusal(&args.address, what);
    }
    exit::fail(code, what, hint)
}

/// Prints the object of a notice that nobody got.
fn print_refusal(address: &str, what: &str) {
    let error = DeliveryFailure::new(CauseKind::ClientValidation, address, what);
    let dispatched = Dispatched {
        agent: address.to_owned(),
        dispatched: Vec::new(),
        error: Some(error),
    };
    // A closed standard output changes nothing about the exit code.
    let _ = exit::print(serde_json::to_value(&dispatched).unwrap_or_default());
}

/// The same for a command line that cannot be parsed, if it is one of `notify --json`. `words` are those after the program's name.
pub(super) fn report_usage(words: impl IntoIterator<Item = OsString>, error: &clap::Error) {
    let words: Vec<String> = (words.into_iter())
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    if let Some(address) = address_of_json(&words) {
        // The error without the usage, which follows an empty line.
        let text = error.render().to_string();
        let lines = text.lines().take_while(|line| !line.is_empty());
        let what = lines.map(str::trim).collect::<Vec<_>>().join(" ");
        print_refusal(address, what.strip_prefix("error: ").unwrap_or(&what));
    }
}

/// The address in a command line of `notify --json`, empty if it has none; `None` for other command lines.
fn address_of_json(words: &[String]) -> Option<&str> {
    let (_, words) = words.split_first().filter(|(verb, _)| *verb == "notify")?;
    let (options, rest) = match words.iter().position(|word| word == "--") {
        Some(end) => (&words[..end], &words[end + 1..]),
        None => (words, &[][..]),
    };
    if !options.iter().any(|word| word == "--json") {
        return None;
    }
    let mut address = None;
    let mut is_value = false;
    for word in options {
        let is_option = word.starts_with("--");
        if !is_option && !is_value {
            address = address.or(Some(word.as_str()));
        }
        is_value = is_option && word != "--json" && !word.contains('=');
    }
    address.or(rest.first().map(String::as_str)).or(Some(""))
}

fn show(dispatched: &Dispatched, relay: &RemoteRelay) {
    for to in &dispatched.dispatched {
        show_one(to);
    }
    if let Some(error) = &dispatched.error {
        errln!("error: {error}");
        if let Some(hint) = hint(&dispatched.agent, relay) {
            errln!("hint: {hint}");
        }
    }
}

/// What to do if no connector has the agent.
fn hint(address: &str, relay: &RemoteRelay) -> Option<String> {
    let settings = relay.settings();
    if settings.connectors.is_empty() {
        let what = "the settings have no `connectors`; docs/connectors.md has one example for each kind";
        return Some(what.to_owned());
    }
    let entries = settings.connectors.values();
    let known: Vec<String> = entries
        .flat_map(|entry| substrates::agents(&entry.substrate, settings))
        .collect();
    let agent = AgentAddress::parse(address).agent;
    if known.contains(&agent) {
        return None;
    }
    Some(match nearest(&agent, known.iter().map(String::as_str)) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "`hermes-relay connectors list` lists the agents of each connector".to_owned(),
    })
}

fn show_one(to: &DispatchedTo) {
    let name = &to.connector;
    let session = |session: &Option<String>| {
        session
            .as_ref()
            .map_or_else(String::new, |session| format!(", session {session}"))
    };
    let warnings = match &to.outcome {
        DispatchOutcome::Delivered(receipt) => {
            let how = if receipt.delivery_skipped == Some(true) {
                "accepted, not pushed to the agent"
            } else {
                "delivered"
            };
            let id = receipt.delivery_id.as_ref();
            let id = id.map_or_else(String::new, |id| format!(", id {id}"));
            outln!("{name}: {how}{}{id}", session(&receipt.session_id));
            &receipt.warnings
        }
        DispatchOutcome::Woken(receipt) => {
            let how = if receipt.woken {
                "woken"
            } else {
                "delivered, not woken"
            };
            outln!("{name}: {how}{}", session(&receipt.session_id));
            &receipt.warnings
        }
        DispatchOutcome::Answered(answer) => {
            outln!("{}", answer.content);
            return;
        }
        DispatchOutcome::Failed(failure) => {
            errln!("error: {name}: {failure}");
            return;
        }
    };
    for warning in warnings {
        errln!("warning: {name}: {warning}");
    }
}

/// The text, or standard input up to one byte more than the maximum length.
fn read_text(text: &str) -> io::Result<String> {
    if text != "-" {
        return Ok(text.to_owned());
    }
    let mut text = String::new();
    let limit = MAX_NOTICE_BYTES as u64 + 1;
    io::stdin().lock().take(limit).read_to_string(&mut text)?;
    if text.len() <= MAX_NOTICE_BYTES {
        text.truncate(text.trim_end_matches(['\n', '\r']).len());
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_found_in_a_command_line_that_cannot_be_parsed() {
        let address = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            address_of_json(&words).map(str::to_owned)
        };
        let found = |address: &str| Some(address.to_owned());
        assert_eq!(address("notify ops --json"), found("ops"));
        assert_eq!(address("notify --json --kind binary ops text"), found("ops"));
        assert_eq!(
            address("notify --kind=x --wait 0 ops@s text --json"),
            found("ops@s")
        );
        assert_eq!(address("notify --json --bogus -- ops text"), found("ops"));
        assert_eq!(address("notify --json"), found(""));
        assert_eq!(address("notify ops"), None);
        assert_eq!(address("notify ops -- --json"), None);
        assert_eq!(address("send notify --json"), None);
    }
}
