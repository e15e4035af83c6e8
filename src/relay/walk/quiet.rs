//! Ringing: whether a message may, the end of a long turn that does, reminders of questions, and `/quiet`.

use std::sync::Arc;
use std::time::Duration;

use smol_str::SmolStr;

use crate::adapter::Chat;
use crate::adapter::stream::{DurableAction, DurableActions, TurnResult};
use crate::relay::effects::{CommandCall, Pending, QuietWaiter};
use crate::relay::event_loop::EventLoop;
use crate::relay::origin::TurnOrigin;
use crate::relay::parts::access::Starter;
use crate::relay::parts::quiet::{QuietChoice, QuietKey, QuietPerson};
use crate::relay::parts::scheduler::instant;
use crate::store::Command;
use crate::text::one_line;
use crate::wire::Action;
use crate::words::{ChatPhrase, Language};

/// Characters of an answer in the message that says that a turn is done.
const GIST_CHARS: usize = 100;

/// How a turn ended, as far as somebody who does not look at the chat has to know.
pub struct TurnSummary<'t> {
    pub result: TurnResult,
    pub took: Duration,
    /// The beginning of its last message, or why it failed.
    pub gist: &'t str,
}

impl EventLoop {
    /// The language in which a chat is spoken to.
    pub fn language(&self, chat: &Chat) -> Language {
        self.adapters.get(&chat.id.platform).language(&chat.facts)
    }

    /// Whether nothing rings now for the author of a chat's last message.
    pub fn is_quiet(&self, chat: &Chat) -> bool {
        self.quiet.has_hours() && self.is_quiet_for(&self.quiet_person(chat))
    }

    /// The author of a chat's last message, as far as the journal may have hours of theirs.
    fn quiet_person(&self, chat: &Chat) -> QuietPerson {
        if self.quiet.is_empty() {
            return QuietPerson::default();
        }
        self.author_of_hours(chat)
    }

    fn author_of_hours(&self, chat: &Chat) -> QuietPerson {
        let source = self.chats.source(chat);
        QuietPerson::new(&self.access.author(Starter::Message(&source)))
    }

    fn is_quiet_for(&self, person: &QuietPerson) -> bool {
        let Some(hours) = self.quiet.hours(person) else {
            return false;
        };
        let local = instant(self.clock.now()).to_zoned(self.scheduler.zone().clone());
        let minute = u16::try_from(i32::from(local.hour()) * 60 + i32::from(local.minute()));
        hours.contains(minute.unwrap_or_default())
    }

    /// Has messages ring nobody if nothing rings now.
    pub fn hush(&self, actions: &mut [DurableAction], chat: &Chat) {
        if self.is_quiet(chat) {
            silence(actions);
        }
    }

    /// Adds the message that says how a turn ended. One message rings: where it follows, the answer before it does not.
    pub fn sum_up(&self, summary: &TurnSummary<'_>, ops: &mut DurableActions, origin: &TurnOrigin) {
        let message = self.plan_summary(summary, ops, origin);
        if !message.is_empty() {
            silence(ops);
        }
        ops.extend(message);
    }

    /// The message that ends a turn which took long, or whose failure was only written below what was shown. `ops` is
    /// what else ends it.
    fn plan_summary(
        &self,
        summary: &TurnSummary<'_>,
        ops: &[DurableAction],
        origin: &TurnOrigin,
    ) -> Vec<DurableAction> {
        let limit = self.settings.chat.notify_after_secs;
        let is_long = limit > 0 && summary.took > Duration::from_secs(limit);
        let rings_already = || ops.iter().any(|op| is_ringing(&op.action));
        let is_told = match summary.result {
            TurnResult::Done => is_long,
            TurnResult::Failed => !ops.is_empty() && !rings_already(),
            // Whoever stopped it looks at the chat.
            TurnResult::Stopped => false,
        };
        if !is_told || !origin.has_chat() {
            return Vec::new();
        }
        let language = self.language(&origin.chat);
        let time = language.duration(summary.took);
        let whole = one_line(summary.gist, GIST_CHARS + 1);
        let short = one_line(&whole, GIST_CHARS);
        let gist = if short == whole {
            whole
        } else {
            format!("{short}\u{2026}")
        };
        let (time, gist) = (time.as_str(), gist.as_str());
        let text = language.say(match summary.result {
            TurnResult::Failed => ChatPhrase::FailedAfter { time, gist },
            _ if gist.is_empty() => ChatPhrase::DoneAfterSilently { time },
            TurnResult::Done | TurnResult::Stopped => ChatPhrase::DoneAfter { time, gist },
        });
        let adapter = self.adapters.get(&origin.chat.id.platform);
        adapter.reply(&text, &origin.chat.id, &origin.chat.facts)
    }

    /// Reminds people of questions whose time is half over.
    pub fn remind(&mut self, now: Duration) {
        for mut reminder in self.approvals.reminders(now) {
            let user = match &reminder.action {
                Action::Send { metadata, .. } => metadata.get("user_id").and_then(|id| id.as_str()),
                _ => None,
            };
            let mut chat = Chat::from(reminder.chat.clone());
            chat.facts.user_id = user.map(SmolStr::from);
            if self.is_quiet(&chat) {
                reminder.action.silence();
            }
            let effects = &mut self.effects;
            self.approvals.send_about(&reminder, &self.adapters, effects);
        }
    }

    /// Asks the journal for the hours of the author of a chat's last message, unless they are known or asked for.
    pub fn ask_quiet_hours(&mut self, chat: &Chat) {
        let person = self.quiet_person(chat);
        for key in self.quiet.ask(&person) {
            self.load_quiet_hours(key, QuietWaiter::Message);
        }
    }

    /// Asks the journal for the quiet hours that it has under a key.
    pub fn load_quiet_hours(&mut self, key: QuietKey, waiter: QuietWaiter) {
        let session = self.quiet.stored(&key);
        self.effects
            .request(Pending::Quiet(key, waiter), |token| Command::LoadResume {
                token,
                session,
            });
    }

    /// The journal knows the quiet hours that it has under a key.
    pub fn quiet_hours_loaded(&mut self, key: QuietKey, waiter: QuietWaiter, blob: Option<&[u8]>) {
        let choice = self.quiet.learn(Arc::clone(&key), blob);
        if blob.is_some() {
            // What is used is kept.
            self.store_quiet_hours(key, choice);
        }
        match waiter {
            QuietWaiter::Message => {}
            QuietWaiter::Turn(turn) => {
                if let Some((row, ..)) = self.turns.preparing(turn) {
                    self.prepare_turn(turn, row);
                }
            }
            QuietWaiter::Command(call) => {
                let chat = &call.origin.chat;
                let person = self.author_of_hours(chat);
                let Some(choice) = self.quiet.choice(&person) else {
                    return self.load_unknown(&person, QuietWaiter::Command(call));
                };
                let answer = self.describe_quiet_hours(choice, self.language(chat));
                self.answer_command(&answer, &call);
            }
        }
    }

    fn load_unknown(&mut self, person: &QuietPerson, waiter: QuietWaiter) {
        let unknown = self.quiet.unknown(person).next();
        if let Some(key) = unknown {
            self.load_quiet_hours(key, waiter);
        }
    }

    fn store_quiet_hours(&mut self, key: QuietKey, choice: QuietChoice) {
        let old = self.quiet.rewrite(&key);
        self.effects.write(match choice.to_blob() {
            Some(blob) => Command::SetResume {
                session: key,
                blob,
                now_ms: self.clock.unix_ms(),
            },
            None => Command::DropResume { session: key },
        });
        if let Some(session) = old {
            self.effects.write(Command::DropResume { session });
        }
    }

    /// `/quiet` in a chat; what it answers, unless that has to be read first.
    pub fn run_quiet_command(&mut self, text: &str, call: &CommandCall) -> Option<String> {
        let chat = &call.origin.chat;
        let language = self.language(chat);
        let person = self.author_of_hours(chat);
        if person.is_nobody() {
            return Some(language.say(ChatPhrase::QuietUsage));
        }
        let choice = match text.to_ascii_lowercase().as_str() {
            "" => {
                if let Some(choice) = self.quiet.choice(&person) {
                    return Some(self.describe_quiet_hours(choice, language));
                }
                self.turns.answer_later(call.row);
                self.load_unknown(&person, QuietWaiter::Command(Box::new(call.clone())));
                return None;
            }
            "off" => QuietChoice::Off,
            hours => match hours.parse() {
                Ok(hours) => QuietChoice::Hours(hours),
                Err(_) => return Some(language.say(ChatPhrase::QuietUsage)),
            },
        };
        if let Some((key, dropped)) = self.quiet.choose(&person, choice) {
            self.store_quiet_hours(key, choice);
            for key in dropped {
                self.store_quiet_hours(key, QuietChoice::Everybodys);
            }
        }
        Some(match choice {
            QuietChoice::Off => language.say(ChatPhrase::QuietOff),
            choice => self.describe_quiet_hours(choice, language),
        })
    }

    fn describe_quiet_hours(&self, choice: QuietChoice, language: Language) -> String {
        let zone = self.scheduler.zone().iana_name().unwrap_or("UTC");
        match (choice, self.quiet.everybodys()) {
            (QuietChoice::Hours(hours), _) => {
                let hours = &hours.to_string();
                language.say(ChatPhrase::QuietSet { hours, zone })
            }
            (QuietChoice::Everybodys, Some(hours)) => {
                let hours = &hours.to_string();
                language.say(ChatPhrase::QuietForEverybody { hours, zone })
            }
            (QuietChoice::Everybodys, None) | (QuietChoice::Off, _) => language.say(ChatPhrase::QuietNever),
        }
    }
}

/// Has messages ring nobody.
fn silence(actions: &mut [DurableAction]) {
    for durable in actions {
        let rest = durable.fallback.iter_mut().chain(&mut durable.then);
        rest.chain([&mut durable.action]).for_each(Action::silence);
    }
}

/// Whether people are rung by a new message.
fn is_ringing(action: &Action) -> bool {
    let rings = |metadata: &crate::wire::Metadata| metadata.get("notify") == Some(&true.into());
    match action {
        Action::Send { metadata, .. }
        | Action::SendMedia { metadata, .. }
        | Action::FollowUp { metadata, .. } => rings(metadata),
        _ => false,
    }
}
