//! Who is asked, and with which options.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::{
    Approvals, Asker, AskerStanding, Asking, MAX_PERSON_CHARS, MAX_TITLE_CHARS, OwnerAsked, OwnerChat,
    Questioner, QueueEntry, QueueQuestion, Recipient, Waiting,
};
use crate::access::{PersonId, approve_command};
use crate::adapter::prompt::{
    Approvers, NotOpened, PromptId, PromptOp, PromptOption, PromptRequest, QuestionId,
};
use crate::adapter::stream::Priority;
use crate::adapter::{Adapters, Chat, RelayAdapter};
use crate::agent::{Choice, Meaning, PromptAnswer, Question, QuestionKind};
use crate::relay::effects::{Effect, Effects};
use crate::relay::ops::{EphemeralOp, OpBody, OpOwner};
use crate::text::printable;
use crate::words::{ChatPhrase, PhraseKey};

/// How long what waits may be dropped by a button.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(120);
/// What a chat reads whose question went to an owner.
const ASKED_OWNER: &str = PhraseKey::OwnerAsked.english();
/// What a chat reads whose question nobody can answer.
const NO_OWNER: &str = PhraseKey::NoOwner.english();

/// The author of a chat's last message, in the form that ids are compared in: they answer with any of theirs.
fn answerer(chat: &Chat) -> Option<String> {
    let id = chat.facts.user_id.as_deref()?;
    let person = PersonId::new(&chat.id.platform, id);
    let known = Some(person.user()).filter(|user| !user.is_empty());
    Some(known.unwrap_or(id).to_owned())
}

impl Approvals {
    /// What the author of a turn may decide of what it asks. With access rules, only an owner who alone may answer decides what allows
    /// an action for ever.
    pub fn standing(&self, asker: Asker) -> AskerStanding {
        let is_answered_by_others = self.anyone_may_answer && !asker.is_direct;
        if !asker.may_answer {
            AskerStanding::Denied
        } else if self.approvers == Approvers::Owners && !asker.is_owner {
            AskerStanding::OwnerDecides
        } else if asker.has_rules && (!asker.is_owner || is_answered_by_others) {
            AskerStanding::Once
        } else {
            AskerStanding::Always
        }
    }

    /// Denies what an agent asks; what that is about, for the audit log.
    pub fn deny(question: Question, reply: oneshot::Sender<PromptAnswer>) -> String {
        let title = printable(&question.text, MAX_TITLE_CHARS);
        let mut options = question.options.into_iter();
        let denial = options.find(|choice| choice.meaning == Meaning::Deny);
        let answer = denial.map_or(PromptAnswer::Cancelled, |choice| PromptAnswer::Chosen(choice.id));
        let _ = reply.send(answer);
        title
    }

    /// Puts an agent's question to the author of its turn, without what they may not decide.
    #[expect(clippy::too_many_arguments, reason = "each is a thing of its own")]
    pub fn ask(
        &mut self,
        asking: &Asking,
        asker: Asker,
        mut question: Question,
        reply: oneshot::Sender<PromptAnswer>,
        adapter: &RelayAdapter,
        now: Duration,
        effects: &mut Effects,
    ) {
        if self.standing(asker) < AskerStanding::Always {
            question
                .options
                .retain(|choice| choice.meaning != Meaning::AllowAlways);
        }
        let who = (None, asker.is_owner);
        self.open(asking, who, question, reply, adapter, now, effects);
    }

    /// Puts a question of somebody else's turn to an owner; denies it when no owner can be reached.
    #[expect(clippy::too_many_arguments, reason = "each is a thing of its own")]
    pub fn ask_owner(
        &mut self,
        asking: &Asking,
        (questioner, owner): (Questioner<'_>, Option<OwnerChat>),
        mut question: Question,
        reply: oneshot::Sender<PromptAnswer>,
        adapters: &Adapters,
        now: Duration,
        effects: &mut Effects,
    ) -> OwnerAsked {
        let Some(owner) = owner else {
            return OwnerAsked {
                notice: NO_OWNER,
                title: Self::deny(question, reply),
                recorded: ("denied", "no_owner"),
            };
        };
        let title = printable(&question.text, MAX_TITLE_CHARS);
        let name = match questioner {
            Questioner::Person(author) => printable(&author.name(), MAX_PERSON_CHARS),
            Questioner::Job(name) | Questioner::Handed(name) => printable(name, MAX_PERSON_CHARS),
        };
        let adapter = adapters.get(&owner.chat.id.platform);
        let language = adapter.language(&owner.chat.facts);
        let (name, asked) = (name.as_str(), language.reword(&question.text));
        let asked = match questioner {
            Questioner::Person(_) => ChatPhrase::PersonAsks {
                person: name,
                question: &asked,
            },
            Questioner::Job(_) => ChatPhrase::JobAsks {
                name,
                question: &asked,
            },
            Questioner::Handed(_) => ChatPhrase::HandedAsks {
                agent: name,
                question: &asked,
            },
        };
        question.text = language.say(asked);
        let there = Asking {
            session: owner.session,
            chat: Arc::new(owner.chat.clone()),
            is_quiet: owner.is_quiet,
            ..asking.clone()
        };
        let who = (Some(owner.chat), true);
        self.open(&there, who, question, reply, &adapter, now, effects);
        OwnerAsked {
            notice: ASKED_OWNER,
            title,
            recorded: ("asked", "owner"),
        }
    }

    /// Opens a question of a turn; for an owner who is asked in place of the author, and only for somebody with an id if an
    /// owner decides.
    #[expect(clippy::too_many_arguments, reason = "each is a thing of its own")]
    pub(super) fn open(
        &mut self,
        asking: &Asking,
        (owner, named_only): (Option<Chat>, bool),
        question: Question,
        reply: oneshot::Sender<PromptAnswer>,
        adapter: &RelayAdapter,
        now: Duration,
        effects: &mut Effects,
    ) {
        self.last_question += 1;
        let id = QuestionId(self.last_question);
        let option = |choice: &Choice| PromptOption {
            label: choice.label.clone(),
            meaning: choice.meaning,
        };
        let request = PromptRequest {
            id,
            session: asking.session.clone(),
            chat: (*asking.chat).clone(),
            author: answerer(&asking.chat),
            named_only,
            personal: asking.personal,
            kind: question.kind,
            options: question.options.iter().map(option).collect(),
            text: question.text,
            detail: question.detail,
            timeout: question.timeout,
            is_silent: asking.is_quiet,
            is_list: false,
            closing: None,
        };
        let is_for_ever = |choice: &Choice| choice.meaning == Meaning::AllowAlways;
        let needs = match owner {
            Some(_) => AskerStanding::OwnerDecides,
            None if question.options.iter().any(is_for_ever) => AskerStanding::Always,
            None => AskerStanding::Once,
        };
        let title = printable(&request.text, MAX_TITLE_CHARS);
        let opened = match self.prompts.open(request, adapter, now) {
            Ok(opened) => opened,
            Err(reason) => {
                tracing::debug!(turn = asking.turn.0, %reason, "question not asked");
                let _ = reply.send(PromptAnswer::Cancelled);
                return;
            }
        };
        self.counters.opened += 1;
        let waiting = Waiting {
            recipient: Recipient::Agent {
                turn: Some(asking.turn),
                choices: question.options.into_iter().map(|choice| choice.id).collect(),
                reply,
            },
            title,
            owner,
            needs: Some(needs),
            op: None,
            kept: asking.kept.clone(),
        };
        self.waiting.insert(id, waiting);
        self.show(id, opened.prompt, &opened.op, adapter, effects);
    }

    /// Asks an owner whether somebody is let in who has this code.
    pub fn ask_about_pairing(
        &mut self,
        owner: &OwnerChat,
        person: &PersonId,
        code: String,
        adapter: &RelayAdapter,
        now: Duration,
        effects: &mut Effects,
    ) {
        self.last_question += 1;
        let id = QuestionId(self.last_question);
        let person = printable(&person.to_string(), MAX_PERSON_CHARS);
        let language = adapter.language(&owner.chat.facts);
        let option = |label: &str, meaning| PromptOption {
            label: label.to_owned(),
            meaning,
        };
        let request = PromptRequest {
            id,
            session: owner.session.clone(),
            chat: owner.chat.clone(),
            author: answerer(&owner.chat),
            named_only: true,
            personal: true,
            kind: QuestionKind::Approval,
            options: vec![
                option(language.plain(PhraseKey::LetIn), Meaning::AllowOnce),
                option(language.plain(PhraseKey::Ignore), Meaning::Deny),
            ],
            text: language.say(ChatPhrase::MayTalk {
                person: &person,
                code: &code,
            }),
            detail: None,
            timeout: None,
            is_silent: owner.is_quiet,
            is_list: false,
            closing: Some(language.say(ChatPhrase::PairingOver {
                command: &approve_command(&code),
            })),
        };
        let title = printable(&request.text, MAX_TITLE_CHARS);
        let Ok(opened) = self.prompts.open(request, adapter, now) else {
            return;
        };
        let waiting = Waiting {
            recipient: Recipient::Pairing(code),
            title,
            owner: Some(owner.chat.clone()),
            needs: None,
            op: None,
            kept: None,
        };
        self.waiting.insert(id, waiting);
        self.show(id, opened.prompt, &opened.op, adapter, effects);
    }

    /// Shows what waits in a session, and asks which of it to drop.
    pub fn ask_about_queue(
        &mut self,
        queue: QueueQuestion,
        adapter: &RelayAdapter,
        now: Duration,
        effects: &mut Effects,
    ) -> Result<(), NotOpened> {
        self.last_question += 1;
        let id = QuestionId(self.last_question);
        let language = adapter.language(&queue.chat.facts);
        let option = |(entry, number): (&QueueEntry, u64)| PromptOption {
            label: language.say(ChatPhrase::DropMessage {
                number,
                text: &entry.gist,
            }),
            meaning: Meaning::Plain,
        };
        let request = PromptRequest {
            id,
            session: queue.session,
            author: answerer(&queue.chat),
            chat: queue.chat,
            named_only: false,
            personal: true,
            kind: QuestionKind::Choice,
            options: queue.entries.iter().zip(1..).map(option).collect(),
            text: queue.text,
            detail: None,
            timeout: Some(QUEUE_TIMEOUT),
            is_silent: queue.is_quiet,
            is_list: true,
            closing: Some(language.plain(PhraseKey::ListOver).to_owned()),
        };
        let title = printable(&request.text, MAX_TITLE_CHARS);
        let opened = self.prompts.open(request, adapter, now)?;
        let waiting = Waiting {
            recipient: Recipient::Queue(queue.entries),
            title,
            owner: None,
            needs: None,
            op: None,
            kept: None,
        };
        self.waiting.insert(id, waiting);
        self.show(id, opened.prompt, &opened.op, adapter, effects);
        Ok(())
    }

    /// Queues the op that shows a question, whether there is a connection or not.
    pub(super) fn show(
        &mut self,
        question: QuestionId,
        prompt: PromptId,
        op: &PromptOp,
        adapter: &RelayAdapter,
        effects: &mut Effects,
    ) {
        self.is_changed = true;
        let id = self.ids.next();
        if let Some(waiting) = self.waiting.get_mut(&question) {
            waiting.op = Some(id);
        }
        effects.push(Effect::Queue(EphemeralOp {
            id,
            body: OpBody::new(adapter, op.chat.key().into(), &op.action),
            priority: Priority::Text,
            timeout: None,
            owner: OpOwner::Question(question, prompt),
        }));
    }
}
