//! Requests of handles: the status, changes of the rules, messages to send, items for agents.

use serde::Deserialize as _;
use serde_json::Value;
use tokio::sync::oneshot;

use crate::access::{AccessError, AccessRequest, PendingPairing, PersonId};
use crate::adapter::prompt::{PromptOp, UnsaidEnd};
use crate::adapter::{Chat, ChatFacts, ChatId};
use crate::cron::fire::FireAdmission;
use crate::link::Moment;
use crate::relay::effects::Pending;
use crate::relay::event_loop::EventLoop;
use crate::relay::handle::{HandleRequest, SendError, SendTarget, StopOutcome, TurnAuthor};
use crate::relay::ops::DurableOps;
use crate::relay::parts::access::{AccessControl, Starter};
use crate::relay::parts::approvals::MAX_PERSON_CHARS;
use crate::relay::parts::chats::{Chats, job_origin};
use crate::relay::parts::scheduler::ArmWaiter;
use crate::relay::parts::sleep::SleepStep;
use crate::relay::reports;
use crate::relay::status::HealthCheck;
use crate::session::StopReason;
use crate::store::{Command, Fault, FaultKind, Health, NewOps};
use crate::text::printable;
use crate::wire::SessionKey;
use crate::words::{ChatPhrase, Language, PhraseKey};

use super::turn_requests::asker;

/// Messages sent without being asked that may wait for the journal.
const MAX_UNCOMMITTED_SENDS: usize = 1024;
/// What somebody reads whose code was approved; by whether what they wrote was kept.
const WELCOME: [&str; 2] = [PhraseKey::WelcomeAgain.english(), PhraseKey::Welcome.english()];

impl EventLoop {
    pub fn handle_request(&mut self, request: HandleRequest) {
        match request {
            HandleRequest::Status(reply) => drop(reply.send(reports::status(self))),
            HandleRequest::Sessions(limit, reply) => drop(reply.send(reports::sessions(self, limit))),
            HandleRequest::Metrics(reply) => drop(reply.send(reports::metrics(self))),
            HandleRequest::Agents(reply) => drop(reply.send(HealthCheck::new(self.agents.agents()))),
            HandleRequest::Wake(reply) => {
                let now = self.clock.now();
                let step = self.sleeper.as_mut().map(|sleeper| sleeper.wake(now));
                if step != Some(SleepStep::Nothing) {
                    self.link.wake();
                }
                let _ = reply.send(());
            }
            HandleRequest::StopTurn(session, reply) => {
                let stopped = self.stop_turn(&session, None, StopReason::Asked);
                let outcome = if stopped {
                    StopOutcome::Stopped
                } else {
                    let known = self.chats.of_session(&session);
                    let platform = known.as_ref().map(|known| known.id.platform.as_str());
                    if self.link.stop_elsewhere(session.as_str(), platform) {
                        StopOutcome::Elsewhere
                    } else {
                        StopOutcome::NoTurn
                    }
                };
                let _ = reply.send(outcome);
            }
            HandleRequest::Fire(_, reply) if !self.lifecycle.is_serving() => {
                let _ = reply.send(FireAdmission::Draining);
            }
            HandleRequest::Fire(fire, reply) => {
                let now = self.clock.now();
                self.scheduler.fire(fire, reply, now, &mut self.effects);
                // A fire may be what woke this process: it is up to deliver the answer.
                self.note_activity(now);
            }
            HandleRequest::Submit(item, reply) => {
                self.submit(*item, reply);
                self.note_activity(self.clock.now());
            }
            HandleRequest::Activity(agent, reply) => drop(reply.send(self.agent_activity(&agent))),
            HandleRequest::HandedAfter(number, reply) => drop(reply.send(self.handed.after(number))),
            HandleRequest::Repair(repair, item, reply) => self.repair(repair, item, reply),
            HandleRequest::JobsChanged(reply) => {
                self.scheduler.changed(ArmWaiter::Verb(reply), self.clock.mono());
            }
            HandleRequest::TurnAuthor(session, reply) => {
                let origin = match &session {
                    Some(session) => self.turns.origin_of(session),
                    None => self.turns.only_origin(),
                };
                let author = origin.map(|at| TurnAuthor {
                    origin: job_origin(&at.author, &at.chat),
                    maker: self.access.maker(&at.author),
                });
                let _ = reply.send(author);
            }
            HandleRequest::Access(request, reply) => {
                match self.change_access(request) {
                    // A revocation is confirmed only once it would survive a crash.
                    Ok((answer, true)) => self.answer_when_stored(reply, answer),
                    Ok((answer, false)) => drop(reply.send(Ok(answer))),
                    Err(error) => drop(reply.send(Err(error))),
                }
            }
            HandleRequest::Send(target, text, reply) => match self.plan_send(&target, &text) {
                Ok(ops) => self.add_ops(ops, Some(reply)),
                Err(error) => drop(reply.send(Err(error))),
            },
        }
    }

    /// There is something to stay awake for.
    pub fn note_activity(&mut self, now: Moment) {
        if let Some(sleeper) = &mut self.sleeper {
            sleeper.on_activity(now);
        }
    }

    /// Changes who may drive an agent: turns of people who lost access are stopped, and questions that people may no longer decide are
    /// withdrawn. Returns the answer, and whether it must wait until the change is stored.
    pub fn change_access(&mut self, request: AccessRequest) -> Result<(Value, bool), AccessError> {
        let now_ms = self.clock.unix_ms();
        let asked = self.approvals.codes().filter_map(|code| {
            let person = self.access.person_with(code, now_ms)?;
            Some((code.to_owned(), person))
        });
        let mut asked: Vec<(String, PersonId)> = asked.collect();
        let handled = self.access.handle(request, now_ms, &mut self.effects)?;
        let let_in = handled.change.as_ref().filter(|change| change.role.is_some());
        asked.retain(|(_, person)| let_in.is_some_and(|change| change.person == *person));
        self.end_pairings(&asked);
        for (turn, session) in self.access.refused(self.turns.authors()) {
            self.stop_turn(&session, Some(turn), StopReason::Asked);
        }
        let (access, chats) = (&self.access, &self.chats);
        let is_gone = |chat: &Chat| !is_owner(access, chats, chat);
        self.approvals.withdraw_from_owners(is_gone, &mut self.effects);
        let turns = &self.turns;
        let author_of = |turn| turns.origin(turn).map(|origin| asker(access, &origin.author));
        self.approvals.withdraw_from_askers(author_of, &mut self.effects);
        self.pause_refused_jobs();
        if let Some((person, pending)) = handled.paired {
            self.welcome(person, pending);
        }
        Ok((handled.answer, handled.stored))
    }

    /// An owner decided about somebody's code. Returns what they read: what really happened, for the code may be over, or a rule may
    /// deny its person.
    pub fn decide_pairing(&mut self, code: String, approved: bool, end: UnsaidEnd) -> PromptOp {
        let language = end.language();
        if !approved {
            let now_ms = self.clock.unix_ms();
            return if self.access.ignore(&code, now_ms, &mut self.effects) {
                end.done(language.plain(PhraseKey::Ignored))
            } else {
                end.not_done(language.plain(PhraseKey::CodeOver))
            };
        }
        let shown = |person: &str| printable(person, MAX_PERSON_CHARS);
        match self.change_access(AccessRequest::Approve { code, role: None }) {
            Ok((answer, _)) => {
                let person = &shown(answer["approved"].as_str().unwrap_or_default());
                end.done(&language.say(ChatPhrase::LetInNow { person }))
            }
            Err(AccessError::DeniedByFile(person) | AccessError::DeniedAlike(person)) => {
                let person = &shown(&person.to_string());
                end.not_done(&language.say(ChatPhrase::StillDenied { person }))
            }
            Err(AccessError::NoSuchCode | AccessError::Person(_) | AccessError::EmptyList) => {
                end.not_done(language.plain(PhraseKey::CodeOver))
            }
        }
    }

    /// Ends the questions about codes that do not wait any more: the people with these codes were let in.
    pub fn end_pairings(&mut self, let_in: &[(String, PersonId)]) {
        let now_ms = self.clock.unix_ms();
        let is_over = |code: &&str| self.access.person_with(code, now_ms).is_none();
        let over: Vec<String> = self
            .approvals
            .codes()
            .filter(is_over)
            .map(str::to_owned)
            .collect();
        for code in over {
            let person = let_in.iter().find(|(of, _)| *of == code);
            let person = person.map(|(_, person)| printable(&person.to_string(), MAX_PERSON_CHARS));
            let say = |language: Language| match &person {
                Some(person) => language.say(ChatPhrase::LetInNow { person }),
                None => language.plain(PhraseKey::CodeOver).to_owned(),
            };
            self.approvals.end_pairing(&code, say, &mut self.effects);
        }
    }

    /// Whether the owner who is asked something is one.
    pub fn may_decide(&self, chat: &Chat) -> bool {
        is_owner(&self.access, &self.chats, chat)
    }

    /// Welcomes the people whose codes were approved while no relay ran, and takes what they wrote.
    pub fn welcome_approved(&mut self) {
        self.take_approved(Self::welcome);
    }

    /// The journal did not take what somebody wrote before their code was approved: it is kept until that works.
    pub fn kept_rejected(&mut self, (person, pending): (PersonId, PendingPairing), fault: &Fault) {
        self.access.keep_on(&person, pending, &mut self.effects);
        let health = self.journal.health();
        if fault.kind == FaultKind::Refused && health == Health::Ok {
            tracing::error!(%fault, "the journal refuses a kept message; the next start tries it again");
        } else {
            self.handle_health(health);
        }
    }

    /// The journal works: takes what it did not take of people whose codes were approved.
    pub fn take_kept(&mut self) {
        self.take_approved(Self::accept_kept);
    }

    /// Does this for everybody whose code is approved, unless the rules deny them by now.
    fn take_approved(&mut self, take: impl Fn(&mut Self, PersonId, PendingPairing)) {
        for (person, pending) in self.access.approved() {
            let chat = self.chat_of(&person, &pending);
            let source = self.chats.source(&chat);
            if self
                .access
                .may_talk(&self.access.author(Starter::Message(&source)))
            {
                take(self, person.clone(), pending);
            }
            self.access.welcomed(&person, &mut self.effects);
        }
    }

    /// Somebody's code was approved: says so in their chat, and takes what they wrote.
    fn welcome(&mut self, person: PersonId, pending: PendingPairing) {
        let chat = self.chat_of(&person, &pending);
        let welcome = WELCOME[usize::from(pending.message.is_some())];
        self.notify(welcome, &SessionKey::from_text(""), &chat);
        self.accept_kept(person, pending);
    }

    /// The direct message in which somebody got their code.
    fn chat_of(&self, person: &PersonId, pending: &PendingPairing) -> Chat {
        let id = ChatId {
            platform: self.chats.platform(person.platform()).as_str().into(),
            chat: pending.chat.as_str().into(),
        };
        let facts = ChatFacts::deserialize(&pending.facts).unwrap_or_default();
        Chat { id, facts }
    }

    /// Answers once everything that was written before is stored.
    fn answer_when_stored(&mut self, reply: oneshot::Sender<Result<Value, AccessError>>, answer: Value) {
        let now_ms = self.clock.unix_ms();
        self.effects
            .request(Pending::Access(reply, answer), |token| Command::AddOps {
                token,
                inbox: None,
                ops: NewOps::new(),
                now_ms,
            });
    }

    fn plan_send(&mut self, target: &SendTarget, text: &str) -> Result<DurableOps, SendError> {
        if text.trim().is_empty() {
            return Err(SendError::Empty);
        }
        if self.journal.adding() >= MAX_UNCOMMITTED_SENDS {
            return Err(SendError::Busy);
        }
        let chat = match &target.platform {
            Some(platform) => Some(ChatId {
                platform: platform.as_str().into(),
                chat: target.chat.as_str().into(),
            }),
            None => self.chats.find(&target.chat),
        };
        let known = chat.and_then(|chat| self.chats.outside_threads(chat));
        let chat = known.ok_or(SendError::UnknownChat)?;
        let group = self.outbox.notice_group();
        let adapter = self.adapters.get(&chat.id.platform);
        let mut actions = adapter.reply(text, &chat.id, &chat.facts);
        if target.silent {
            for action in &mut actions {
                action.action.silence();
            }
        }
        Ok(self.plan_actions(&actions, &SessionKey::from_text(""), &chat.id, group))
    }
}

/// Whether whoever writes in this chat is an owner.
fn is_owner(access: &AccessControl, chats: &Chats, chat: &Chat) -> bool {
    access.is_owner(&access.author(Starter::Message(&chats.source(chat))))
}
