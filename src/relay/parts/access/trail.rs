//! The audit trail of access: who was let in or refused, and what they decided.

use serde_json::{Value, json};

use super::{AccessControl, decision};
use crate::access::{Author, EventKind, PersonId, Role, Verdict};
use crate::text::instant;

impl AccessControl {
    /// A person decided a question, or an owner was asked in place of its author.
    pub fn record_question(
        &mut self,
        author: &Author,
        decision: &str,
        title: &str,
        answer: &str,
        now_ms: i64,
    ) {
        if self.gate.is_active() {
            self.append(&json!({
                "time": instant(now_ms.div_euclid(1000)), "event": "question",
                "platform": author.platform, "chat": author.chat(),
                "person": author.name(), "role": self.gate.role(author),
                "decision": decision, "reason": answer, "question": title,
            }));
        }
    }

    pub(super) fn record(
        &mut self,
        author: &Author,
        kind: EventKind,
        verdict: Verdict,
        agent: Option<&str>,
        now_ms: i64,
    ) {
        self.count(verdict);
        let agent = agent.map(|agent| (agent, None));
        self.write_decision(author, (event_name(kind), None), verdict, agent, now_ms);
    }

    pub(super) fn write_decision(
        &mut self,
        author: &Author,
        (event, command): (&str, Option<&str>),
        verdict: Verdict,
        ran: Option<(&str, Option<u64>)>,
        now_ms: i64,
    ) {
        // Without rules the connector decides alone, and there is nothing to report; nor is there of the operator.
        if !self.gate.is_active() || author.is_operator() {
            return;
        }
        let (decision, reason) = (decision(verdict.allowed), verdict.reason.as_str());
        if !verdict.allowed {
            tracing::info!(
                target: "hermes_relay::audit",
                platform = author.platform.as_str(), person = author.name(), chat = author.chat(), reason,
                "refused a message"
            );
        }
        self.append(&json!({
            "time": instant(now_ms.div_euclid(1000)), "event": event,
            "platform": author.platform, "chat": author.chat(),
            "person": author.name(),
            "role": verdict.role, "decision": decision, "reason": reason, "command": command,
            "agent": ran.map(|(agent, _)| agent), "turn": ran.and_then(|(_, turn)| turn),
        }));
    }

    pub(super) fn write(
        &mut self,
        person: &PersonId,
        chat: &str,
        role: Option<Role>,
        decision: &str,
        reason: &str,
        now_ms: i64,
    ) {
        tracing::info!(target: "hermes_relay::audit", person = %person, decision, "access changed");
        self.append(&json!({
            "time": instant(now_ms.div_euclid(1000)), "event": "access",
            "platform": person.platform(), "chat": chat, "person": person.to_string(),
            "role": role, "decision": decision, "reason": reason,
        }));
    }

    pub(super) fn append(&mut self, entry: &Value) {
        if let Some(audit) = &mut self.audit {
            audit.write(entry.to_string());
        }
    }
}

pub(super) fn event_name(kind: EventKind) -> &'static str {
    match kind {
        EventKind::Message => "message",
        EventKind::Interaction => "interaction",
        EventKind::Press => "press",
        EventKind::TypedAnswer => "answer",
        EventKind::Stop | EventKind::Command | EventKind::Inquiry => "command",
    }
}
