//! Questions that outlive the process: what the journal keeps of them, and how the next process goes on with them.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Approvals, Asker, AskerStanding, Recipient, Waiting};
use crate::adapter::prompt::{PromptId, PromptOp, QuestionId, RememberedQuestions, SavedQuestion};
use crate::adapter::{Chat, ChatId};
use crate::agent::{Permission, ResumedTurn};
use crate::link::Moment;
use crate::relay::effects::SelectedAgent;
use crate::session::TurnId;
use crate::store::InboxSeq;
use crate::wire::Action;

/// Questions whose messages the next start knows; further ones stay as they are shown.
const MAX_LEFT: usize = 256;
/// Most bytes that agents may have kept with all questions; what is beyond is not taken up again.
const MAX_STATES: usize = 1024 * 1024;

/// What the journal keeps of questions.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct LeftQuestions {
    /// Those that late answers may be meant for.
    pub remembered: RememberedQuestions,
    /// Those that are shown.
    pub shown: Vec<LeftQuestion>,
}

impl LeftQuestions {
    /// Reads what was kept; earlier versions kept the shown ones alone.
    pub fn read(kept: &[u8]) -> Self {
        serde_json::from_slice(kept).unwrap_or_else(|_| Self {
            shown: serde_json::from_slice(kept).unwrap_or_default(),
            ..Self::default()
        })
    }

    /// Whether there is nothing to keep.
    pub fn is_empty(&self) -> bool {
        self.remembered.is_empty() && self.shown.is_empty()
    }
}

/// A question that is shown, for the next start to go on with it or to write its end under it.
#[derive(Debug, Serialize, Deserialize)]
pub struct LeftQuestion {
    /// Writes under it that nobody is asked any more, where messages can be edited.
    #[serde(flatten)]
    pub closing: Option<ClosingEdit>,
    /// What is needed to go on with it, if its agent can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<KeptQuestion>,
    /// The same, if it is about somebody's code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pairing: Option<KeptPairing>,
}

/// The edit that closes a question.
#[derive(Debug, Serialize, Deserialize)]
pub struct ClosingEdit {
    pub session: String,
    pub platform: String,
    pub chat: String,
    pub action: Action,
}

/// A question of a turn that its agent takes up again.
#[derive(Debug, Serialize, Deserialize)]
pub struct KeptQuestion {
    pub turn: KeptTurn,
    question: SavedQuestion,
    choices: Vec<String>,
    title: String,
    /// The owner who was asked in place of the author.
    pub owner: Option<Chat>,
    /// The standing that its turn's author needs. Earlier versions did not keep it.
    #[serde(default)]
    needs: Option<AskerStanding>,
}

/// A question to an owner about somebody's code.
#[derive(Debug, Serialize, Deserialize)]
pub struct KeptPairing {
    pub code: String,
    /// The owner who is asked.
    pub owner: Chat,
    question: SavedQuestion,
    title: String,
}

/// The turn that asks, for as long as its question is open.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct KeptTurn {
    /// The row of its message.
    pub row: i64,
    /// The name of its agent.
    pub agent: String,
    /// What its agent takes it up from.
    pub state: String,
}

/// A turn whose question is restored, until it begins.
#[derive(Debug)]
pub(super) struct RestoredTurn {
    question: QuestionId,
    agent: String,
    /// The standing that its author needs.
    needs: AskerStanding,
    resumed: ResumedTurn,
}

/// A turn cannot go on that an earlier process left.
#[derive(Debug)]
pub struct CannotGoOn;

impl From<PromptOp> for ClosingEdit {
    fn from(op: PromptOp) -> Self {
        Self {
            session: op.session.as_str().to_owned(),
            platform: op.chat.platform.into(),
            chat: op.chat.chat.into(),
            action: op.action,
        }
    }
}

impl Approvals {
    /// What is to be kept of the questions, if it is something else than the last time.
    pub fn take_changed(&mut self, now: Moment) -> Option<LeftQuestions> {
        if !std::mem::take(&mut self.is_changed) {
            return None;
        }
        let mut room = MAX_STATES;
        let shown = self.prompts.closing().filter_map(|(question, closing)| {
            let kept = self.keep(question, &mut room, now);
            let pairing = self.keep_pairing(question, now);
            let closing = closing.map(ClosingEdit::from);
            let is_left = kept.is_some() || pairing.is_some() || closing.is_some();
            is_left.then_some(LeftQuestion {
                closing,
                kept,
                pairing,
            })
        });
        Some(LeftQuestions {
            shown: shown.take(MAX_LEFT).collect(),
            remembered: self.prompts.remembered(),
        })
    }

    /// Takes over what an earlier process remembered of its questions.
    pub fn remember(&mut self, earlier: RememberedQuestions) {
        self.prompts.remember(earlier);
    }

    fn keep(&self, question: QuestionId, room: &mut usize, now: Moment) -> Option<KeptQuestion> {
        let waiting = self.waiting.get(&question)?;
        let Recipient::Agent { choices, .. } = &waiting.recipient else {
            return None;
        };
        let turn = waiting.kept.as_ref()?;
        *room = room.checked_sub(turn.state.len())?;
        Some(KeptQuestion {
            question: self.prompts.save(question, since_1970(now))?,
            choices: choices.clone(),
            title: waiting.title.clone(),
            owner: waiting.owner.clone(),
            needs: waiting.needs,
            turn: turn.clone(),
        })
    }

    fn keep_pairing(&self, question: QuestionId, now: Moment) -> Option<KeptPairing> {
        let waiting = self.waiting.get(&question)?;
        let Recipient::Pairing(code) = &waiting.recipient else {
            return None;
        };
        Some(KeptPairing {
            code: code.clone(),
            owner: waiting.owner.clone()?,
            question: self.prompts.save(question, since_1970(now))?,
            title: waiting.title.clone(),
        })
    }

    /// Goes on with a question about somebody's code, unless its time is over; returns its chat and its id on the wire.
    pub fn restore_pairing(&mut self, kept: KeptPairing, now: Moment) -> Option<(ChatId, PromptId)> {
        self.last_question += 1;
        let id = QuestionId(self.last_question);
        let restored = (self.prompts).restore(kept.question, id, since_1970(now), now.mono)?;
        let waiting = Waiting {
            recipient: Recipient::Pairing(kept.code),
            title: kept.title,
            owner: Some(kept.owner),
            needs: None,
            op: None,
            kept: None,
        };
        self.waiting.insert(id, waiting);
        Some(restored)
    }

    /// Goes on with a question of an earlier process, unless its time is over; returns its chat and its id on the wire. Its turn
    /// gets the answer once it begins.
    pub fn restore(&mut self, kept: KeptQuestion, now: Moment) -> Option<(ChatId, PromptId)> {
        self.last_question += 1;
        let id = QuestionId(self.last_question);
        let restored = (self.prompts).restore(kept.question, id, since_1970(now), now.mono)?;
        let (resumed, reply) = ResumedTurn::new(kept.turn.state.clone(), false);
        let needs = kept.needs.unwrap_or(match kept.owner {
            Some(_) => AskerStanding::OwnerDecides,
            None => AskerStanding::Once,
        });
        let turn = RestoredTurn {
            question: id,
            agent: kept.turn.agent.clone(),
            needs,
            resumed,
        };
        self.restored.insert(InboxSeq(kept.turn.row), turn);
        let waiting = Waiting {
            recipient: Recipient::Agent {
                turn: None,
                choices: kept.choices,
                reply,
            },
            title: kept.title,
            owner: kept.owner,
            needs: Some(needs),
            op: None,
            kept: Some(kept.turn),
        };
        self.waiting.insert(id, waiting);
        Some(restored)
    }

    /// What is kept of questions is out of date.
    pub fn mark_changed(&mut self) {
        self.is_changed = true;
    }

    /// Whether the turn of this row waits for the answer to a restored question.
    pub fn is_restored(&self, row: InboxSeq) -> bool {
        self.restored.contains_key(&row)
    }

    /// A turn begins: what an earlier process left of it, if anything. It cannot go on if the settings or the rules have changed
    /// meanwhile, so that it has another agent, or one that asks nobody, or that its author may decide less.
    pub fn begin_restored(
        &mut self,
        row: InboxSeq,
        begun: TurnId,
        (agent, asker): (&SelectedAgent, Asker),
        is_unseen: bool,
    ) -> Result<Option<ResumedTurn>, CannotGoOn> {
        let Some(restored) = self.restored.remove(&row) else {
            return Ok(None);
        };
        let is_same_agent = *agent.name == *restored.agent && agent.permission == Permission::Ask;
        if !is_same_agent || self.standing(asker) < restored.needs {
            return Err(CannotGoOn);
        }
        if let Some(waiting) = self.waiting.get_mut(&restored.question)
            && let Recipient::Agent { turn, .. } = &mut waiting.recipient
        {
            *turn = Some(begun);
        }
        Ok(Some(ResumedTurn {
            is_unseen,
            ..restored.resumed
        }))
    }

    /// A turn with a restored question does not begin: nobody waits for the answer any more, so the question ends.
    pub fn abandon_restored(&mut self, row: InboxSeq) {
        self.restored.remove(&row);
    }

    /// The rows of turns with restored questions that have yet to begin.
    pub fn restored_rows(&self) -> impl Iterator<Item = InboxSeq> {
        self.restored.keys().copied()
    }

    /// This process ends: from now on nothing is answered here. Returns the turns whose questions the next process goes on with.
    pub fn leave(&mut self) -> Vec<TurnId> {
        self.is_leaving = true;
        let shown: Vec<QuestionId> = self.prompts.closing().map(|(question, _)| question).collect();
        let turns = shown.iter().filter_map(|question| {
            let waiting = self.waiting.get(question)?;
            match &waiting.recipient {
                Recipient::Agent { turn, .. } if waiting.kept.is_some() => *turn,
                _ => None,
            }
        });
        turns.collect()
    }
}

/// How long after 1970 this process's monotonic clock started.
fn since_1970(now: Moment) -> Duration {
    let unix = Duration::from_millis(u64::try_from(now.unix_ms).unwrap_or_default());
    unix.saturating_sub(now.mono)
}
