//! `hermes-relay notify`: hands something to an agent, through every connector that has it.

use std::io::{self, Read as _};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::exit::{self, errln, outln};
use super::remote::{RemoteArgs, RemoteRelay};
use super::skills::{self, SkillRefusal};
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
    /// What a delivery is for: context to take in, or a playbook to carry out.
    #[arg(
        long,
        value_name = "KIND",
        default_value = "augment",
        conflicts_with = "skill"
    )]
    kind: KindOption,
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
    let relay = match args.remote.relay(process.env) {
        Ok(relay) => relay,
        Err(code) => return code,
    };
    let skill = match args
        .skill
        .as_deref()
        .map(|name| skills::approved(relay.settings(), name))
    {
        None => None,
        Some(Ok(skill)) => Some(skill),
        Some(Err(refusal)) => return refused(args, &refusal),
    };
    let skill_name = skill.as_ref().map(|skill| skill.name.clone());
    let header = skill.as_ref();
    let header = header.and_then(|skill| SkillBody::read(skill.source.clone()).event_type());
    let kind = if skill.is_some() {
        DeliveryKind::Template
    } else {
        args.kind.into()
    };
    let text = match skill {
        Some(skill) => Ok(skill.source),
        None => read_text(args.text.as_deref().unwrap_or_default()),
    };
    let text = match text {
        Ok(text) => text,
        Err(error) => {
            let what = format!("cannot read the text from standard input: {error}");
            let (code, hint) = (exit::FAILED, None);
            return refused(args, &SkillRefusal { code, what, hint });
        }
    };
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return relay.fail(exit::INTERNAL, "cannot start the runtime", None);
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
fn refused(args: &NotifyArgs, refusal: &SkillRefusal) -> ExitCode {
    if args.remote.json {
        let error = DeliveryFailure::new(CauseKind::ClientValidation, &args.address, refusal.what.as_str());
        let dispatched = Dispatched {
            agent: args.address.clone(),
            dispatched: Vec::new(),
            error: Some(error),
        };
        // A closed standard output changes nothing about the exit code.
        let _ = exit::print(serde_json::to_value(&dispatched).unwrap_or_default());
    }
    exit::fail(refusal.code, &refusal.what, refusal.hint.as_deref())
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
