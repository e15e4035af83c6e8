//! Which scheduled jobs somebody may list and change: with `/cron` in a chat, and through an agent that runs `hermes-relay cron`.
//!
//! | who | sees, pauses, resumes and removes | edits and runs |
//! |---|---|---|
//! | the operator; an owner through their agent | every job | every job |
//! | an owner or a user with `/cron`, a user through their agent | the jobs of the chat | their own |
//! | a guest | sees the jobs of the chat; changes their own | their own |
//!
//! A job runs with the rights of whoever made it, so nobody else may change what it asks.

use serde::{Deserialize, Serialize};

use smol_str::SmolStr;

use super::author::Author;
use super::identity::PersonId;
use super::settings::Role;

/// What is done with a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobAction {
    /// List it.
    See,
    /// Pause, resume or remove it.
    Hold,
    /// Change what it is, or run it now.
    Change,
}

/// Somebody other than the operator who lists or changes jobs, and the chat that they do it in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobMaker {
    platform: String,
    chat: String,
    /// Every id of theirs on the platform.
    ids: Vec<String>,
    role: Role,
    /// Whether the jobs of other chats are theirs to change too.
    is_everywhere: bool,
}

/// Whose a job is: where it was made, and by whom.
#[derive(Debug, Clone, Copy)]
pub struct JobOwner<'j> {
    /// The platform.
    pub platform: &'j str,
    /// The chat.
    pub chat: &'j str,
    /// The person's own id, when one is known.
    pub user: Option<&'j str>,
    /// Further ids of the person.
    pub other_ids: &'j [String],
}

impl JobMaker {
    /// Whoever writes `/cron` in a chat: the answer is read there, and is about its jobs only.
    pub fn in_chat(author: &Author, role: Role, platform: &str, chat: &str) -> Self {
        Self {
            platform: platform.to_owned(),
            chat: chat.to_owned(),
            ids: author.ids.iter().map(SmolStr::to_string).collect(),
            role,
            is_everywhere: false,
        }
    }

    /// Whoever's agent runs a command.
    pub fn through_agent(author: &Author, role: Role) -> Self {
        Self {
            is_everywhere: role == Role::Owner,
            ..Self::in_chat(author, role, &author.platform, author.chat())
        }
    }

    /// Whether all jobs are theirs to see and to change, and the rules too.
    pub fn is_owner(&self) -> bool {
        self.is_everywhere
    }

    /// Whether they may do this with a job; one without an owner is the operator's.
    pub fn may(&self, action: JobAction, job: Option<JobOwner<'_>>) -> bool {
        if self.is_everywhere {
            return true;
        }
        let Some(job) = job.filter(|job| self.is_here(*job)) else {
            return false;
        };
        match (action, self.role) {
            (JobAction::See, _) | (JobAction::Hold, Role::Owner | Role::User) => true,
            (JobAction::Hold | JobAction::Change, _) => self.is_own(job),
        }
    }

    /// Whether a job was made in their chat.
    pub fn is_here(&self, job: JobOwner<'_>) -> bool {
        job.platform == self.platform && job.chat == self.chat
    }

    fn is_own(&self, job: JobOwner<'_>) -> bool {
        let people = |id: &str| PersonId::new(&self.platform, id);
        let own: Vec<PersonId> = self.ids.iter().map(|id| people(id)).collect();
        let mut theirs = job
            .user
            .into_iter()
            .chain(job.other_ids.iter().map(String::as_str));
        theirs.any(|id| own.contains(&people(id)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{NoAliases, Platform};

    fn author(ids: &[&str], chat: &str) -> Author {
        let ids = ids.iter().map(|id| (*id).into());
        Author::new(&Platform::WHATSAPP, ids, vec![chat.into()], true, &NoAliases)
    }

    fn made<'j>(chat: &'j str, user: &'j str, other_ids: &'j [String]) -> JobOwner<'j> {
        JobOwner {
            platform: "whatsapp",
            chat,
            user: Some(user),
            other_ids,
        }
    }

    const ACTIONS: [JobAction; 3] = [JobAction::See, JobAction::Hold, JobAction::Change];

    #[track_caller]
    fn may<'j>(maker: &JobMaker, job: impl Into<Option<JobOwner<'j>>>, expected: [bool; 3]) {
        let job = job.into();
        assert_eq!(
            ACTIONS.map(|action| maker.may(action, job)),
            expected,
            "{maker:?}"
        );
    }

    #[test]
    fn only_the_maker_changes_what_a_job_asks() {
        let lid = ["7000@lid".to_owned()];
        let ann = author(&["+49 151", "7000@lid"], "c1");
        for role in [Role::User, Role::Guest] {
            let ann = JobMaker::through_agent(&ann, role);
            let holds = role == Role::User;
            may(&ann, made("c1", "49151@s.whatsapp.net", &[]), [true, true, true]);
            may(&ann, made("c1", "5", &lid), [true, true, true]);
            may(&ann, made("c1", "5", &[]), [true, holds, false]);
            may(&ann, made("c2", "49151", &[]), [false; 3]);
            may(&ann, None, [false; 3]);
        }
    }

    #[test]
    fn an_owner_reaches_other_chats_through_the_agent_and_not_in_a_chat() {
        let ann = author(&["1"], "c1");
        let agent = JobMaker::through_agent(&ann, Role::Owner);
        may(&agent, None, [true; 3]);
        may(&agent, made("c2", "2", &[]), [true; 3]);
        let chat = JobMaker::in_chat(&ann, Role::Owner, "whatsapp", "c1");
        may(&chat, None, [false; 3]);
        may(&chat, made("c2", "1", &[]), [false; 3]);
        may(&chat, made("c1", "2", &[]), [true, true, false]);
        assert!(agent.is_owner() && !chat.is_owner());
        assert!(!JobMaker::through_agent(&ann, Role::User).is_owner());
    }

    #[test]
    fn without_an_id_nothing_is_somebodys_own() {
        let nobody = JobMaker::through_agent(&author(&[], "c1"), Role::Guest);
        let job = JobOwner {
            user: None,
            ..made("c1", "", &[])
        };
        may(&nobody, job, [true, false, false]);
    }
}
