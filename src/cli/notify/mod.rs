//! `hermes-relay notify`: hands a text to an agent, through every target that has the agent.

mod targets;

use std::io::{self, Read as _};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::ProcessEnv;
use super::caller::Caller;
use super::exit::{self, errln, outln};
use super::remote::{RemoteArgs, RemoteRelay};
use super::skills;
use super::unknown_verb;
use crate::agent_connector::contract::{
    AgentAddress, CauseKind, DeliveryFailure, DeliveryKind, DeliveryOrigin, TriggerKind,
};
use crate::agent_connector::{DispatchOutcome, Dispatched, DispatchedTo, MAX_NOTICE_BYTES, Notice, dispatch};
use crate::config::file::nearest;
use crate::serve::targets::Targets;
use crate::skill::SkillBody;

pub(super) use self::targets::{ConnectorsArgs, run_former};

/// Hand an agent a text to take in or a playbook to carry out.
///
/// With `notify AGENT TEXT` the text waits for the agent's next turn, without an interruption. `notify AGENT@SESSION TEXT` wakes the
/// agent in that session. A target of the settings (`notify.targets`) is a way to an agent: a webhook, a directory, a tmux pane, a program,
/// or this relay for its own agents. Every target that has the agent gets the text. To write into a chat, use `hermes-relay send`.
///
/// Exit codes: 0 every target accepted it, or the tested target works; 1 one did not, or no target has the agent; 78 invalid
/// configuration, or there is no such target.
#[derive(Args, Debug)]
#[command(
    override_usage = "hermes-relay notify [OPTIONS] <ADDRESS> <TEXT>\n       hermes-relay notify [OPTIONS] <ADDRESS> --skill <NAME>\n       \
                      hermes-relay notify --list\n       hermes-relay notify --test <NAME>",
    after_help = "Examples:\n  hermes-relay notify ops \"The disk of db1 is 91 % full.\"\n  \
                  hermes-relay notify ops@night-shift --event-type alert - < report.txt\n  \
                  hermes-relay notify ops \"Rotate the logs.\" --kind template --json\n  \
                  hermes-relay notify ops --skill rotate-logs\n  \
                  hermes-relay notify --list\n  \
                  hermes-relay notify --test hooks\n\n\
                  The manual is docs/notify.md."
)]
pub(super) struct NotifyArgs {
    #[command(flatten)]
    remote: RemoteArgs,
    #[command(flatten)]
    notice: NoticeArgs,
    /// List the targets with their kind and their agents.
    #[arg(
        long,
        help_heading = "Targets",
        conflicts_with_all = ["NoticeArgs", "test"]
    )]
    list: bool,
    /// Check whether a target works, without handing over anything.
    #[arg(
        long,
        value_name = "NAME",
        help_heading = "Targets",
        conflicts_with = "NoticeArgs"
    )]
    test: Option<String>,
}

/// The notice.
#[derive(Args, Debug)]
struct NoticeArgs {
    /// Agent, or `AGENT@SESSION` to wake the agent.
    #[arg(value_name = "ADDRESS", required_unless_present_any = ["list", "test"])]
    address: Option<String>,
    /// Text; `-` reads standard input.
    #[arg(
        value_name = "TEXT",
        allow_hyphen_values = true,
        required_unless_present_any = ["skill", "list", "test"],
        conflicts_with = "skill"
    )]
    text: Option<String>,
    /// Hand over the text of this skill, as a playbook; the skill must be Approved.
    #[arg(long, value_name = "NAME")]
    skill: Option<String>,
    /// What the text is for [default: augment; of a skill template].
    #[arg(long, value_name = "KIND")]
    kind: Option<KindOption>,
    /// Word that receivers route by; without it the skill's own (`# Event-type:` in its header).
    #[arg(long, value_name = "TYPE")]
    event_type: Option<String>,
    /// Id that an answer is recognised by.
    #[arg(long, value_name = "ID")]
    correlation_id: Option<String>,
    /// Wait this long for the agent's answer; only targets of the kind `relay` can.
    #[arg(long, value_name = "SECS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    wait: Option<u64>,
}

impl NoticeArgs {
    fn address(&self) -> &str {
        self.address.as_deref().unwrap_or_default()
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum KindOption {
    /// Context to take in.
    Augment,
    /// A playbook to carry out.
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
    if args.list {
        return targets::list(&args.remote, process);
    }
    match &args.test {
        Some(name) => targets::test(&args.remote, name, process),
        None => hand_over(args, process),
    }
}

fn hand_over(args: &NotifyArgs, process: &ProcessEnv<'_>) -> ExitCode {
    let given = &args.notice;
    let relay = match args.remote.load(process.env) {
        Ok(relay) => relay,
        Err(error) => return refused(args, exit::CONFIGURATION, &error.to_string(), None),
    };
    // What is handed over has the operator's rights.
    let caller = Caller::find(&relay);
    if let Err(code) = caller.and_then(|caller| caller.require_owner(&relay)) {
        return code;
    }
    let skill = match given
        .skill
        .as_deref()
        .map(|name| skills::approved(relay.settings(), name))
    {
        None => None,
        Some(Ok(skill)) => Some(skill),
        Some(Err(refusal)) => return refused(args, refusal.code, &refusal.what, refusal.hint.as_deref()),
    };
    if skill.is_some() && matches!(given.kind, Some(KindOption::Augment)) {
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
        given.kind.map_or(DeliveryKind::Augment, DeliveryKind::from)
    };
    let text = match skill {
        Some(skill) => Ok(skill.source),
        None => read_text(given.text.as_deref().unwrap_or_default()),
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
        address: given.address().to_owned(),
        kind,
        text,
        origin: DeliveryOrigin {
            skill_name,
            trigger: TriggerKind::Cli,
            event_type: given.event_type.clone().or(header),
            correlation_id: given.correlation_id.clone(),
            ..DeliveryOrigin::default()
        },
        wait: given.wait.map(Duration::from_secs),
    };
    let targets = Targets::new(relay.settings(), process.env, &process.base);
    let dispatched = runtime.block_on(dispatch(&targets.connect_all(), &notice));
    if args.remote.json {
        // A closed standard output changes nothing about what was dispatched.
        let _ = exit::print(serde_json::to_value(&dispatched).unwrap_or_default());
    } else {
        show(&dispatched, &relay, &targets);
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
        print_refusal(args.notice.address(), what);
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

/// The same for a command line that cannot be parsed, if it is one of `notify --json`; returns whether it is. `words` are those after
/// the program's name.
pub(super) fn report_usage(words: &[String], error: &clap::Error) -> bool {
    let address = address_of_json(words);
    if let Some(address) = address {
        print_refusal(address, &unknown_verb::message(error));
    }
    address.is_some()
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

fn show(dispatched: &Dispatched, relay: &RemoteRelay, targets: &Targets<'_>) {
    for to in &dispatched.dispatched {
        show_one(to);
    }
    if let Some(error) = &dispatched.error {
        errln!("error: {error}");
        if let Some(hint) = hint(&dispatched.agent, relay, targets) {
            errln!("hint: {hint}");
        }
    }
}

/// What to do if no target has the agent.
fn hint(address: &str, relay: &RemoteRelay, targets: &Targets<'_>) -> Option<String> {
    let configured = &relay.settings().notify.targets;
    if configured.is_empty() {
        let what = "the settings have no `notify.targets`; docs/notify.md has one example for each kind";
        return Some(what.to_owned());
    }
    let known: Vec<String> = configured
        .values()
        .flat_map(|target| targets.agents(target))
        .collect();
    let agent = AgentAddress::parse(address).agent;
    if known.contains(&agent) {
        return None;
    }
    Some(match nearest(&agent, known.iter().map(String::as_str)) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "`hermes-relay notify --list` lists the agents of each target".to_owned(),
    })
}

fn show_one(to: &DispatchedTo) {
    let name = &to.target;
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
