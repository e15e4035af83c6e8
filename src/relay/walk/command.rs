//! The relay's own commands, once they are committed: `/stop`, `/new`, `/agent`, `/cron` and the rest.

use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use crate::adapter::Chat;
use crate::agent::RouteInput;
use crate::cron::chat::{self, HELP, JobCommand};
use crate::cron::job::{JobError, NewJob};
use crate::relay::effects::{AboutTurn, AgentWaiter, ChatJobRequest, CommandCall};
use crate::relay::event_loop::EventLoop;
use crate::relay::ops::{DurableOps, OpGroup};
use crate::relay::origin::TurnOrigin;
use crate::relay::parts::agents::{Selection, Unknown};
use crate::relay::parts::chats::job_origin;
use crate::relay::parts::scheduler::{ArmWaiter, instant};
use crate::relay::parts::slash_commands::SlashCommand;
use crate::relay::voice::voice_key;
use crate::session::{StopReason, TurnId};
use crate::store::{ChangeRefusal, Command, InboxSeq, JobChange, JobRow, RowState};
use crate::wire::SessionKey;
use crate::words::{ChatPhrase, Language, PhraseKey};

/// What chats read where jobs never run.
const OFF: &str = PhraseKey::JobsOff.english();
/// What chats read when a change could not be stored.
const NOT_STORED: &str = PhraseKey::NotStored.english();

impl EventLoop {
    /// Runs one of the relay's own commands, now that it is committed, and answers it.
    pub fn run_command(&mut self, call: &CommandCall) {
        let CommandCall {
            command,
            about,
            row,
            origin,
        } = call;
        let TurnOrigin {
            session,
            chat,
            author,
            ..
        } = &**origin;
        if self.chats.is_separate_in(chat) && command.needs_thread(chat.facts.thread_id.is_some()) {
            let command = format!("/{}", command.name());
            let hint = ChatPhrase::OutsideThreads { command: &command };
            let answer = self.language(chat).say(hint);
            return self.answer_command(&answer, call);
        }
        if command.is_about_agent() && self.awaits_agent(call) {
            return;
        }
        if command.is_about_conversations() {
            return self.run_conversation_command(call);
        }
        let language = self.language(chat);
        if *command == SlashCommand::Agent(None) {
            let (input, allowed) = (route_input(chat), self.access.agents(author));
            let chosen_for = self.chats.chosen_for(origin);
            let offered = self.agents.offered(&chosen_for, allowed.as_deref(), &input);
            if let Some((current, names)) = offered {
                return self.show_agents(&current, &names, call);
            }
        }
        let answer = match command {
            SlashCommand::Cron(text) => return self.run_job_command(text, call),
            SlashCommand::Stop => match about {
                AboutTurn::Running(turns) if self.stop_turns(turns) => PhraseKey::Stopped,
                AboutTurn::Running(turns)
                    if turns.is_empty()
                        && self
                            .link
                            .stop_elsewhere(session.as_str(), Some(&chat.id.platform)) =>
                {
                    PhraseKey::StopAskedElsewhere
                }
                AboutTurn::Running(_) | AboutTurn::Forgotten => PhraseKey::NothingRuns,
            }
            .english()
            .to_owned(),
            SlashCommand::Status => self.describe_session(origin, language),
            SlashCommand::Agent(name) => self.choose_agent(name.as_deref(), origin, language),
            SlashCommand::WhoAmI => self.access.describe(author, language),
            SlashCommand::Usage => {
                let now_ms = self.clock.unix_ms();
                self.access.describe_usage(author, language, now_ms)
            }
            SlashCommand::Quiet(text) => match self.run_quiet_command(text, call) {
                Some(answer) => answer,
                None => return,
            },
            SlashCommand::Retry => match self.retry(call) {
                Some(answer) => answer,
                None => return self.end_row(*row, RowState::Done, DurableOps::new(), None),
            },
            SlashCommand::Queue => {
                let Some(answer) = self.show_queue(origin) else {
                    // The question answers it.
                    self.messages.settle(*row);
                    return self.end_row(*row, RowState::Done, DurableOps::new(), None);
                };
                answer
            }
            SlashCommand::Voice(on) => {
                let of_chat = self.chats.session_of_chat(chat);
                // For the chat, and for what is replied to the command.
                let sessions = of_chat.iter().chain([session]);
                self.switch_voice(sessions, *on, language)
            }
            SlashCommand::Help => {
                let agent = self.answering(origin).agent.name;
                let offered = self.agents.commands_of(&agent);
                self.commands.help(&agent, &offered, language)
            }
            // Answered by their turn, and above.
            SlashCommand::Prefer(_)
            | SlashCommand::Diff
            | SlashCommand::New(_)
            | SlashCommand::Sessions
            | SlashCommand::Resume(_)
            | SlashCommand::Project(_) => return,
        };
        self.answer_command(&answer, call);
    }

    /// `/agent`: chooses the agent of a session, or of its chat.
    fn choose_agent(&mut self, name: Option<&str>, origin: &TurnOrigin, language: Language) -> String {
        let (now_ms, effects) = (self.clock.unix_ms(), &mut self.effects);
        let input = route_input(&origin.chat);
        let allowed = self.access.agents(&origin.author);
        let of_chat = self.chats.session_of_chat(&origin.chat);
        let answer = self.agents.choose(
            of_chat.as_ref().unwrap_or(&origin.session),
            name,
            allowed.as_deref(),
            &input,
            (language, now_ms),
            effects,
        );
        if let Some(of_chat) = of_chat {
            // For what is replied to the command.
            (self.agents).inherit_choice(&origin.session, &of_chat, now_ms, effects);
        }
        answer
    }

    /// Whether a command takes a turn in its session, as a message does. Outside threads where each message is a session of its own,
    /// there is none that it could be about.
    pub fn takes_turn(&self, command: &SlashCommand, chat: &Chat) -> bool {
        command.is_for_agent() && !self.chats.is_separate_in(chat)
    }

    /// The sessions that a command is about: its own; outside threads where each message is a session of its own, those of what its
    /// author began in the chat, or has written there and waits for a free slot.
    pub fn sessions_about(&self, origin: &TurnOrigin) -> Vec<SessionKey> {
        let TurnOrigin { chat, author, .. } = origin;
        if !self.chats.is_separate_in(chat) {
            return vec![origin.session.clone()];
        }
        let started = self.turns.started_by(author, &chat.id).into_iter();
        let started = started.map(|(_, session)| session);
        let Some(writer) = self.messages.writer_in(chat) else {
            return started.collect();
        };
        let sessions = self.turns.sessions();
        let is_theirs = |session: &SessionKey| {
            let mut rows = sessions.rows(session);
            rows.any(|row| self.messages.is_by(InboxSeq(row), writer))
        };
        let waiting = sessions.idle().map(|(session, _)| session.clone());
        started.chain(waiting.filter(is_theirs)).collect()
    }

    /// Whether a command has to wait until it is known which agent answers in its chat; then that is read.
    fn awaits_agent(&mut self, call: &CommandCall) -> bool {
        let chosen_for = self.chats.chosen_for(&call.origin);
        let input = route_input(&call.origin.chat);
        let Some(unknown) = self.agents.unknown(&chosen_for, &input) else {
            return false;
        };
        let waiter = AgentWaiter::Command(Box::new(call.clone()));
        self.turns.answer_later(call.row);
        match unknown {
            Unknown::Project(place) | Unknown::NewThread(place) => self.read_project(place, waiter),
            Unknown::Choice => self.read_choice(chosen_for, waiter),
        }
        true
    }

    /// The agent that answers what an author writes where a command of theirs is written.
    pub fn answering(&mut self, origin: &TurnOrigin) -> Selection {
        let allowed = self.access.agents(&origin.author);
        let (chosen_for, input) = (self.chats.chosen_for(origin), route_input(&origin.chat));
        self.agents.answering(&chosen_for, &input, allowed.as_deref())
    }

    /// Stops turns; returns whether one of them was not stopping already.
    pub fn stop_turns(&mut self, turns: &[(TurnId, SessionKey)]) -> bool {
        turns.iter().fold(false, |stopped, (turn, session)| {
            self.stop_turn(session, Some(*turn), StopReason::Asked) || stopped
        })
    }

    /// Answers a message that was for the relay itself.
    pub fn answer_command(&mut self, answer: &str, CommandCall { row, origin, .. }: &CommandCall) {
        let group = OpGroup::Message(*row);
        let ops = self.plan_words(answer, &origin.session, &origin.chat, group);
        self.end_row(*row, RowState::Done, ops, None);
    }

    /// Remembers whether conversations want spoken answers.
    fn switch_voice<'s>(
        &mut self,
        sessions: impl Iterator<Item = &'s SessionKey>,
        on: Option<bool>,
        language: Language,
    ) -> String {
        for session in sessions.map(voice_key) {
            match on {
                Some(true) => self.keep_voice(session),
                Some(false) => self.effects.write(Command::DropResume { session }),
                None => {}
            }
        }
        let answer = match on {
            Some(true) => PhraseKey::VoiceOn,
            Some(false) => PhraseKey::VoiceOff,
            None => PhraseKey::VoiceUsage,
        };
        language.plain(answer).to_owned()
    }

    /// Keeps that a conversation wants spoken answers.
    pub fn keep_voice(&mut self, session: Arc<str>) {
        self.effects.write(Command::SetResume {
            session,
            blob: b"on".to_vec(),
            now_ms: self.clock.unix_ms(),
        });
    }

    fn describe_session(&mut self, origin: &TurnOrigin, language: Language) -> String {
        let agent = &self.answering(origin).agent.name;
        let about = self.sessions_about(origin);
        let sessions = self.turns.sessions();
        let is_working = about.iter().any(|session| sessions.turn_of(session).is_some());
        let count: usize = about.iter().map(|session| sessions.waiting(session)).sum();
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        let status = language.say(match (is_working, count) {
            (false, 0) => ChatPhrase::StatusIdle { agent },
            (true, 0) => ChatPhrase::StatusWorking { agent },
            (false, count) => ChatPhrase::StatusIdleWaiting { agent, count },
            (true, count) => ChatPhrase::StatusWorkingWaiting { agent, count },
        });
        match self.agents.project(&route_input(&origin.chat)) {
            Some((project, _)) => format!(
                "{status} {}",
                language.say(ChatPhrase::StatusProject { project: &project })
            ),
            None => status,
        }
    }

    /// Offers what can be typed after a slash, when that has changed.
    pub fn offer_commands(&mut self) {
        let agents = &self.agents;
        if let Some((platforms, manifest)) = self.commands.manifest(|| agents.commands()) {
            for platform in platforms {
                self.link.transport().offer_commands(platform, manifest.clone());
            }
        }
    }

    /// `/cron` in a chat.
    fn run_job_command(&mut self, text: &str, call: &CommandCall) {
        let TurnOrigin { chat, author, .. } = &*call.origin;
        let now = self.clock.now();
        let command = match JobCommand::parse(text, instant(now), self.scheduler.zone()) {
            Err(why) => return self.answer_command(&why, call),
            Ok(command) => command,
        };
        let change = match &command {
            JobCommand::Help => return self.answer_command(HELP, call),
            JobCommand::List => {
                let maker = self.access.maker_in(author, &chat.id);
                let jobs = chat::list(self.scheduler.jobs_of(&maker), self.scheduler.zone());
                return self.answer_command(&jobs, call);
            }
            _ if self.scheduler.is_off() => return self.answer_command(OFF, call),
            JobCommand::Add { schedule, prompt } => {
                // Its answers go where it was made: outside threads into the chat itself.
                let outside = self.chats.outside_of(chat);
                let new = NewJob {
                    schedule: schedule.clone(),
                    prompt: prompt.clone(),
                    agent: self.agent_for_new_job(&call.origin),
                    origin: job_origin(author, outside.as_ref().unwrap_or(chat)),
                    ..NewJob::default()
                };
                JobChange::Add {
                    new: Box::new(new),
                    // A message that is read again after a crash makes the job that it made before.
                    random: stable_number(&call.origin.session, call.row),
                }
            }
            JobCommand::Pause(job) => JobChange::Pause {
                job: job.clone(),
                reason: None,
            },
            JobCommand::Resume(job) => JobChange::Resume { job: job.clone() },
            JobCommand::Remove(job) => JobChange::Remove { job: job.clone() },
        };
        let request = ChatJobRequest {
            command,
            call: call.clone(),
            maker: self.access.maker_in(author, &chat.id),
        };
        self.turns.answer_later(call.row);
        self.scheduler.change(change, request, now, &mut self.effects);
    }

    /// The agent that a job from this chat asks, if it is not the default one.
    fn agent_for_new_job(&mut self, origin: &TurnOrigin) -> Option<String> {
        let answering = self.answering(origin).agent.name;
        let default = self.agents.of_job(None, None)?.agent.name;
        (answering != default).then(|| answering.to_string())
    }

    /// A change that somebody asked for in a chat is stored.
    pub fn job_changed(&mut self, request: Box<ChatJobRequest>, row: &JobRow) {
        let answer = chat::changed(&request.command, &row.job, self.scheduler.zone());
        let job = row.job.id().to_owned();
        let waiter = ArmWaiter::Chat { request, job, answer };
        self.scheduler.changed(waiter, self.clock.mono());
    }

    /// The journal refused a change that somebody asked for in a chat.
    pub fn job_change_refused(&mut self, request: &ChatJobRequest, refusal: &ChangeRefusal) {
        let mut answer = match refusal {
            ChangeRefusal::Invalid(JobError::Schedule(error)) => chat::wrong_schedule(error),
            _ => sentence(&refusal.to_string()),
        };
        if matches!(refusal, ChangeRefusal::NoSuchJob(_)) {
            answer.push_str(" /cron list shows the jobs of this chat.");
        }
        self.answer_job_request(request, &answer);
    }

    /// The journal could not store a change that somebody asked for in a chat.
    pub fn job_change_failed(&mut self, request: &ChatJobRequest) {
        self.answer_job_request(request, NOT_STORED);
    }

    pub fn answer_job_request(&mut self, request: &ChatJobRequest, answer: &str) {
        self.answer_command(answer, &request.call);
    }
}

/// What routes look at, of a message that is one of the relay's own commands.
pub fn route_input(chat: &Chat) -> RouteInput<'_> {
    RouteInput {
        platform: &chat.id.platform,
        chat: &chat.id.chat,
        thread: chat.facts.thread_id.as_deref().unwrap_or_default(),
        user: chat.facts.user_id.as_deref().unwrap_or_default(),
        profile: chat.facts.profile.as_deref().unwrap_or_default(),
        text: "",
    }
}

/// A number that is the same whenever this row of this session is read.
fn stable_number(session: &SessionKey, row: InboxSeq) -> u64 {
    let digest = Sha256::digest(format!("{}:{}", row.0, session.as_str()));
    digest
        .iter()
        .take(8)
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// With a capital letter and a full stop.
fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars
        .next()
        .map(|c| c.to_uppercase().to_string())
        .unwrap_or_default();
    format!("{first}{}.", chars.as_str())
}
