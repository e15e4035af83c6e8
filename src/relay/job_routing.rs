//! Scheduled jobs on their way through the relay: from a claim to a turn of the session `cron:<id>`, and from its end to the
//! chats that get the answer.
//!
//! A claimed run is accepted like a message, marked as begun, and only then does its agent start: whatever was marked is never
//! run again. Rows of an earlier process are ended without a run, because the journal's own recovery of claims
//! ([`CronCommand::Recover`](crate::store::CronCommand)) decides which of them run.

use std::sync::Arc;

use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::agents::Selection;
use super::effects::{ChatJobRequest, JobStep, Pending};
use super::event_loop::EventLoop;
use super::ops::DurableOp;
use super::routing::{route_input, turn_input};
use super::scheduler::{ArmWaiter, JobRun, instant};
use super::turn_task::{TurnContext, TurnReport};
use super::turns::{EndedTurn, message_span};
use crate::access::{Author, EventKind, Reason};
use crate::adapter::{ChatFacts, ChatId};
use crate::agent::RouteInput;
use crate::cron::chat::{self, HELP, JobCommand};
use crate::cron::delivery::{self, Target};
use crate::cron::fire::FireAdmission;
use crate::cron::job::{Job, JobOrigin, NewJob, RunOutcome};
use crate::cron::output;
use crate::session::{Admission, StopReason, TurnId};
use crate::skill::{SkillErrorReason, SkillStatus};
use crate::store::{
    ChangeRefusal, ClaimReply, Command, CronReply, InboxKind, InboxSeq, JobChange, JobRow, RunRow,
    TurnState as RowOutcome,
};
use crate::text::one_line;
use crate::wire::{JOB_SESSION, MessageEvent, Platform, Scalar, SessionKey, SessionSource};

/// What chats read where jobs never run.
const OFF: &str = "Scheduled jobs are switched off here.";
/// Longest name of a skill in a report, in characters.
const MAX_SKILL_NAME: usize = 64;
/// What chats read when a change could not be stored.
const NOT_STORED: &str = "This could not be stored. Please try again.";

impl EventLoop {
    /// Claims what is due, starts what has a slot, stops what takes too long.
    pub(super) fn step_jobs(&mut self) {
        let (now, serving) = (self.clock.now(), self.lifecycle.is_serving());
        self.scheduler.step(now, serving, &mut self.effects);
        for session in self.scheduler.overdue(now.mono) {
            self.stop_turn(&session, None, StopReason::Asked);
        }
        while serving && let Some(run) = self.scheduler.next_run() {
            self.accept_run(&run);
        }
        while let Some((request, answer)) = self.scheduler.next_answer() {
            self.answer_job_request(&request, &answer);
        }
    }

    /// `/cron` in a chat.
    pub(super) fn run_job_command(
        &mut self,
        text: &str,
        session: &SessionKey,
        row: InboxSeq,
        (chat, facts): (&ChatId, &ChatFacts),
        author: &Author,
    ) {
        let now = self.clock.now();
        let command = JobCommand::parse(text, instant(now), self.scheduler.zone());
        let request = |command| ChatJobRequest {
            command,
            session: session.clone(),
            row,
            chat: chat.clone(),
            facts: facts.clone(),
        };
        let (command, change) = match command {
            Err(why) => return self.answer_command(&why, session, row, (chat, facts)),
            Ok(JobCommand::Help) => return self.answer_command(HELP, session, row, (chat, facts)),
            Ok(JobCommand::List) => {
                let jobs = chat::list(self.scheduler.jobs_of(chat), self.scheduler.zone());
                return self.answer_command(&jobs, session, row, (chat, facts));
            }
            Ok(_) if self.scheduler.is_off() => {
                return self.answer_command(OFF, session, row, (chat, facts));
            }
            Ok(JobCommand::Add { schedule, prompt }) => {
                let new = NewJob {
                    schedule: schedule.clone(),
                    prompt: prompt.clone(),
                    agent: self.agent_for_new_job(session, (chat, facts), author),
                    origin: Some(JobOrigin {
                        platform: chat.platform.clone(),
                        chat_id: chat.chat.clone(),
                        chat_name: None,
                        thread_id: facts.thread_id.clone(),
                        user_id: facts.user_id.clone(),
                    }),
                    ..NewJob::default()
                };
                // A message that is read again after a crash makes the job that it made before.
                let random = stable_number(session, row);
                let new = Box::new(new);
                (
                    JobCommand::Add { schedule, prompt },
                    JobChange::Add { new, random },
                )
            }
            Ok(JobCommand::Pause(job)) => (JobCommand::Pause(job.clone()), JobChange::Pause { job }),
            Ok(JobCommand::Resume(job)) => (JobCommand::Resume(job.clone()), JobChange::Resume { job }),
            Ok(JobCommand::Remove(job)) => (JobCommand::Remove(job.clone()), JobChange::Remove { job }),
        };
        self.scheduler
            .change(change, request(command), now, &mut self.effects);
    }

    /// The agent that a job from this chat asks, if it is not the default one.
    fn agent_for_new_job(
        &mut self,
        session: &SessionKey,
        (chat, facts): (&ChatId, &ChatFacts),
        author: &Author,
    ) -> Option<String> {
        let current = self.agents.current(session, &route_input(chat, facts));
        let allowed = self.access.agents(author);
        let chosen = match allowed {
            Some(allowed) if !allowed.iter().any(|name| **name == *current) => {
                allowed.into_iter().next().unwrap_or_default()
            }
            _ => current.to_string(),
        };
        let default = self.agents.for_job(None, None)?;
        (*chosen != *default.agent.name).then_some(chosen)
    }

    /// A change that somebody asked for in a chat is stored.
    fn job_changed(&mut self, request: Box<ChatJobRequest>, row: &JobRow) {
        let answer = chat::changed(&request.command, &row.job, self.scheduler.zone());
        let job = row.job.id().to_owned();
        let waiter = ArmWaiter::Chat { request, job, answer };
        self.scheduler.changed(waiter, self.clock.mono());
    }

    fn answer_job_request(&mut self, request: &ChatJobRequest, answer: &str) {
        let chat = (&request.chat, &request.facts);
        self.answer_command(answer, &request.session, request.row, chat);
    }

    /// The journal has answered about jobs.
    pub(super) fn handle_job_reply(&mut self, step: JobStep, reply: CronReply) {
        let now = self.clock.now();
        match (step, reply) {
            (
                JobStep::Recover,
                CronReply::Recovered {
                    interrupted,
                    taken_over,
                },
            ) => {
                for (run, job) in taken_over {
                    self.scheduler.claimed(&run, job);
                }
                for (run, job) in interrupted {
                    self.run_interrupted(&run, job.as_ref().map(|row| &row.job));
                }
            }
            (JobStep::Jobs, CronReply::Jobs(rows)) => self.scheduler.loaded(rows),
            (JobStep::Requested, CronReply::Runs(runs)) => {
                let effects = &mut self.effects;
                if self.lifecycle.is_serving() {
                    self.scheduler.requested(runs, now, effects);
                }
            }
            (JobStep::Claim(job, fire), CronReply::Claim(claim)) => {
                let admission = match claim {
                    ClaimReply::Claimed { run, job } => {
                        self.scheduler.claimed(&run, *job);
                        FireAdmission::Accepted
                    }
                    ClaimReply::Duplicate => {
                        self.scheduler.not_claimed(&job, now);
                        FireAdmission::Duplicate
                    }
                    ClaimReply::Gone => {
                        self.scheduler.not_claimed(&job, now);
                        FireAdmission::Gone
                    }
                    ClaimReply::Early { occurrence } => {
                        self.scheduler.not_claimed(&job, now);
                        FireAdmission::early(occurrence, instant(now))
                    }
                };
                if let Some(fire) = fire {
                    let _ = fire.send(admission);
                }
            }
            (JobStep::Begin(session, turn, row), CronReply::Held(true)) => {
                self.begin_job(&session, turn, row);
            }
            (JobStep::Begin(session, turn, row), _) => {
                tracing::warn!(
                    session = session.as_str(),
                    "another process took the claim of a job"
                );
                self.scheduler.end(&session);
                self.turns.abandon(turn);
                self.end_message(row, RowOutcome::Ignored, Vec::new(), None);
            }
            (JobStep::Change(request), CronReply::Changed { job: Some(job), .. }) => {
                self.job_changed(request, &job);
            }
            (JobStep::Change(request), CronReply::Refused(refusal)) => {
                let mut answer = sentence(&refusal.to_string());
                if matches!(refusal, ChangeRefusal::NoSuchJob(_)) {
                    answer.push_str(" /cron list shows the jobs of this chat.");
                }
                self.answer_job_request(&request, &answer);
            }
            (JobStep::Finished, CronReply::Finished { job, .. }) => {
                self.scheduler.finished(job.map(|job| *job));
            }
            _ => {}
        }
        self.run_effects();
    }

    /// The journal could not do what was asked of it about jobs.
    pub(super) fn job_command_failed(&mut self, step: JobStep) {
        let now = self.clock.now();
        match step {
            JobStep::Recover | JobStep::Jobs | JobStep::Requested => self.scheduler.read_failed(now.mono),
            JobStep::Claim(job, fire) => {
                self.scheduler.not_claimed(&job, now);
                if let Some(fire) = fire {
                    let _ = fire.send(FireAdmission::Failed);
                }
            }
            JobStep::Accept(session, turn) => self.run_rejected(&session, turn),
            JobStep::Begin(session, turn, row) => {
                self.turns.abandon(turn);
                self.end_message(row, RowOutcome::Ignored, Vec::new(), None);
                self.fail_run(&session, "the journal could not store that it began");
            }
            JobStep::Change(request) => self.answer_job_request(&request, NOT_STORED),
            JobStep::Finished | JobStep::Noted => {}
        }
        self.run_effects();
    }

    /// Gives a run its place in its session, and journals that.
    fn accept_run(&mut self, run: &JobRun) {
        let session = run.session();
        let event = self.job_event(&run.job);
        let author = self.job_author(&event);
        let span = message_span(&session);
        let turn = match self.turns.admit(&session, &event, true, &author, &span) {
            Admission::Start(turn) => Some(turn),
            Admission::Wait { .. } => None,
        };
        let line = json!({"type": "job", "job": run.job.id(), "run": run.seq}).to_string();
        let (key, now_ms) = (session.shared(), self.clock.unix_ms());
        let step = JobStep::Accept(session, turn);
        self.effects.request(Pending::Job(step), |token| Command::Accept {
            token,
            kind: InboxKind::Job,
            session: key,
            dedupe: None,
            buffer_id: None,
            line: line.into_bytes(),
            start: turn.is_some(),
            now_ms,
        });
    }

    /// The journal has a run's row: the run begins, or waits for its session.
    pub(super) fn run_accepted(&mut self, session: &SessionKey, turn: Option<TurnId>, row: InboxSeq) {
        match turn {
            Some(turn) => self.mark_begun(session, turn, row),
            None => {
                self.turns.enqueue(session, row);
            }
        }
    }

    fn run_rejected(&mut self, session: &SessionKey, turn: Option<TurnId>) {
        match turn {
            Some(turn) => self.turns.cancel_admission(session, turn),
            None => self.turns.cancel_waiting(session),
        }
        self.fail_run(session, "the journal could not store the run");
    }

    /// A run's row was read back. One of an earlier process is not run: what becomes of it is decided by its claim.
    pub(super) fn job_row_loaded(&mut self, session: &SessionKey, turn: TurnId, row: InboxSeq) {
        if self.scheduler.run(session).is_some() {
            return self.mark_begun(session, turn, row);
        }
        self.turns.abandon(turn);
        self.end_message(row, RowOutcome::Ignored, Vec::new(), None);
    }

    fn mark_begun(&mut self, session: &SessionKey, turn: TurnId, row: InboxSeq) {
        let step = JobStep::Begin(session.clone(), turn, row);
        let now = self.clock.now();
        self.scheduler.begin(session, step, now, &mut self.effects);
    }

    /// Starts the agent of a run that is marked as begun.
    fn begin_job(&mut self, session: &SessionKey, turn: TurnId, row: InboxSeq) {
        let Some(run) = self.scheduler.run(session).cloned() else {
            return;
        };
        let Some(origin) = self.turns.origin(turn) else {
            return;
        };
        // The prompt first: selecting counts the run for its author.
        let asked = (self.job_prompt(&run.job))
            .and_then(|prompt| Ok((self.select_for_job(&run.job, &origin.author, turn)?, prompt)));
        let (selection, prompt) = match asked {
            Ok(asked) => asked,
            Err(why) => {
                self.turns.abandon(turn);
                return self.finish_unstarted(session, row, &why);
            }
        };
        // Every run is a conversation of its own.
        self.agents.forget(session, None, &mut self.effects);
        let adapter = self.adapters.get(&origin.chat.platform);
        let mut input = turn_input(self.job_event(&run.job), Some(prompt), &adapter);
        let hint = format!("{} {}", adapter.platform_hint(), delivery::HINT);
        hint.trim().clone_into(&mut input.origin.hint);
        let context = TurnContext {
            stream: Box::new(self.stream(&adapter, &origin, row, false)),
            collect: true,
            clock: self.clock,
            grace: self.settings.grace,
            max_output: self.settings.max_output,
            forgotten: self.agents.pending_forget(session),
            media: self.media.clone(),
            accepts_attachments: false,
            handover: None,
        };
        tracing::info!(
            job = run.job.id(),
            agent = &*selection.agent.name,
            "running a job"
        );
        self.turns.begin(turn, row, selection.agent, input, context);
    }

    /// The agent of a job, if whoever made it may still use it. The run counts as a turn of theirs.
    fn select_for_job(&mut self, job: &Job, author: &Author, turn: TurnId) -> Result<Selection, String> {
        if job.prompt().is_empty() && job.skills().is_empty() {
            return Err("the job has no prompt; this relay runs prompts, not scripts".to_owned());
        }
        let origin = job.origin();
        let input = origin.as_ref().map(|origin| RouteInput {
            platform: &origin.platform,
            chat: &origin.chat_id,
            user: origin.user_id.as_deref().unwrap_or_default(),
            profile: "",
            text: "",
        });
        let Some(mut selection) = self.agents.for_job(job.agent(), input.as_ref()) else {
            return Err(format!("there is no agent `{}`", job.agent().unwrap_or_default()));
        };
        if author.person().is_some() {
            let now_ms = self.clock.unix_ms();
            let (verdict, _) = self.access.decide(author, (EventKind::Message, None), now_ms);
            if verdict.reason == Reason::Limit {
                return Err("the person who made this job has used up a limit".to_owned());
            }
            let name = Arc::clone(&selection.agent.name);
            let verdict = self.access.decide_again(author, Some(&name), now_ms);
            if !verdict.allowed {
                return Err("the person who made this job has no access any more".to_owned());
            }
            selection.agent.restrict(verdict.role);
            let effects = &mut self.effects;
            self.access
                .turn_started(author, verdict, (turn.0, &name), now_ms, effects);
        }
        Ok(selection)
    }

    /// What a run asks: the texts of its skills, and then its own prompt. Each skill is read here, from a file of this machine, when
    /// the run begins, so that a new text and a withdrawn approval count from then on.
    fn job_prompt(&self, job: &Job) -> Result<String, String> {
        let mut parts = Vec::new();
        for name in job.skills() {
            let shown = one_line(name, MAX_SKILL_NAME);
            let skill = self.skills.load(name, None).map_err(|error| {
                if let SkillErrorReason::NotFound(_) = error.reason {
                    return format!("there is no skill `{shown}`");
                }
                tracing::warn!(%error, "cannot read the skill of a job");
                format!("the skill `{shown}` cannot be read; the relay's log says why")
            })?;
            match skill.metadata.status {
                SkillStatus::Approved => parts.push(skill.source),
                status => return Err(format!("the skill `{shown}` is {status}, not Approved")),
            }
        }
        parts.extend(Some(job.prompt().to_owned()).filter(|prompt| !prompt.is_empty()));
        Ok(parts.join("\n\n"))
    }

    /// A job's turn has ended: its answer goes to the job's targets, and its end into the journal, in one commit.
    pub(super) fn finish_job(&mut self, run: &JobRun, ended: &EndedTurn, report: &TurnReport) {
        let text = report.collected.trim();
        let error = match ended.outcome {
            _ if run.timed_out => Some(format!("it took longer than {} s", run.timeout_secs())),
            RowOutcome::Done if text.is_empty() => Some("the agent gave no answer".to_owned()),
            RowOutcome::Done => None,
            RowOutcome::Stopped => Some("it was stopped".to_owned()),
            RowOutcome::Interrupted => Some("the relay was stopped while it ran".to_owned()),
            _ => Some(ended.notice.clone().unwrap_or_else(|| "it failed".to_owned())),
        };
        // Whoever stopped it knows.
        let is_silent = ended.outcome == RowOutcome::Stopped && !run.timed_out;
        let message = match &error {
            _ if is_silent => None,
            Some(error) => Some(delivery::failure_text(&run.job, error)),
            None if delivery::is_silent(text) => None,
            None => Some(delivery::answer_text(
                &run.job,
                text,
                self.scheduler.settings().wrap_response,
            )),
        };
        let (ops, delivery_error) = self.plan_delivery(&run.job, message.as_deref());
        self.end_message(ended.row, ended.outcome, ops, None);
        let output = Some(self.save_output(run, text, error.as_deref()));
        let outcome = RunOutcome {
            error,
            delivery_error,
            output,
        };
        let now = self.clock.now();
        self.scheduler.finish(run, outcome, now, &mut self.effects);
        self.run_effects();
    }

    /// A run whose agent could not be started.
    fn finish_unstarted(&mut self, session: &SessionKey, row: InboxSeq, why: &str) {
        self.end_message(row, RowOutcome::Failed, Vec::new(), None);
        self.fail_run(session, why);
    }

    /// Ends a run without a turn, and notifies its targets.
    fn fail_run(&mut self, session: &SessionKey, why: &str) {
        let Some(run) = self.scheduler.end(session) else {
            return;
        };
        tracing::warn!(job = run.job.id(), why, "a job failed");
        let message = delivery::failure_text(&run.job, why);
        let (ops, delivery_error) = self.plan_delivery(&run.job, Some(&message));
        self.add_ops(ops, None);
        let outcome = RunOutcome {
            error: Some(why.to_owned()),
            delivery_error,
            output: None,
        };
        let now = self.clock.now();
        self.scheduler.finish(&run, outcome, now, &mut self.effects);
    }

    /// A run ended with an earlier process. The journal notes that in the same commit as the notices to its targets.
    fn run_interrupted(&mut self, run: &RunRow, job: Option<&Job>) {
        tracing::warn!(job = run.job, "a job was interrupted by the end of the last run");
        if let Some(job) = job {
            let message = delivery::failure_text(job, "the relay was restarted while it ran");
            let (ops, _) = self.plan_delivery(job, Some(&message));
            self.add_ops(ops, None);
        }
        let now = self.clock.now();
        self.scheduler.interrupted(run.seq, now, &mut self.effects);
    }

    /// The answer of a session did not reach a chat; a job's record says so.
    pub(super) fn job_undelivered(&mut self, chat: &str, session: &str, reason: &str) {
        let target = match ChatId::from_key(chat) {
            Some(ChatId { platform, chat }) => format!("{platform}:{chat}"),
            None => chat.to_owned(),
        };
        self.scheduler
            .not_delivered(session, &target, reason, &mut self.effects);
    }

    /// Ops that deliver a text to every target of a job, and why it could not be delivered everywhere.
    fn plan_delivery(&mut self, job: &Job, text: Option<&str>) -> (Vec<DurableOp>, Option<String>) {
        let (targets, error) = self.targets(job);
        let session = SessionKey::from_text(format!("{JOB_SESSION}{}", job.id()));
        let ops = text.map(|text| self.plan_targets(&targets, &session, text));
        (ops.unwrap_or_default(), error)
    }

    /// Ops that deliver a text of a session to targets.
    pub(super) fn plan_targets(
        &mut self,
        targets: &[Target],
        session: &SessionKey,
        text: &str,
    ) -> Vec<DurableOp> {
        let mut ops = Vec::new();
        for target in targets {
            let chat = ChatId {
                platform: target.platform.clone(),
                chat: target.chat.clone(),
            };
            let facts = self.target_facts(&chat, target);
            let group = self.outbox.notice_group();
            ops.extend(self.plan_text(text, session, &chat, &facts, group));
        }
        ops
    }

    fn targets(&self, job: &Job) -> (Vec<Target>, Option<String>) {
        delivery::targets(
            &job.deliver(),
            job.origin().as_ref(),
            &self.scheduler.settings().home_channels,
        )
    }

    /// What is known of a target's chat; it need not have spoken before.
    fn target_facts(&self, chat: &ChatId, target: &Target) -> ChatFacts {
        let known = self.chats.facts(chat).cloned().unwrap_or_default();
        ChatFacts {
            message_id: None,
            thread_id: target.thread.clone(),
            ..known
        }
    }

    /// What a job asks, as if somebody had written it in its first target.
    fn job_event(&self, job: &Job) -> MessageEvent {
        let origin = job.origin();
        let target = self.targets(job).0.into_iter().next();
        let text = |text: Option<String>| text.map(|text| Scalar::from(text.as_str()));
        let source = match target {
            Some(target) => SessionSource {
                platform: Platform::from_wire(&target.platform),
                user_id: text(
                    origin
                        .filter(|origin| origin.platform == target.platform)
                        .and_then(|origin| origin.user_id),
                ),
                chat_id: text(Some(target.chat)),
                thread_id: text(target.thread),
                ..SessionSource::default()
            },
            None => SessionSource::default(),
        };
        MessageEvent {
            text: Some(Scalar::from(job.prompt())),
            source,
            ..MessageEvent::default()
        }
    }

    /// Whoever made the job; nobody for a job of the operator's.
    fn job_author(&self, event: &MessageEvent) -> Arc<Author> {
        match event.source.user_id {
            Some(_) => self.access.author(&event.source),
            None => Arc::default(),
        }
    }

    /// Writes the output of a run to its file, off the event loop; returns the file's path in the state directory.
    fn save_output(&mut self, run: &JobRun, text: &str, error: Option<&str>) -> String {
        let keep = self.scheduler.settings().output_retention;
        let now = instant(self.clock.now());
        let file = output::OutputFile::new(&run.job, now, self.scheduler.zone());
        let (path, page) = (file.path(), output::page(&run.job, text, error));
        let state_dir = self.state_dir.clone();
        while self.scheduler.writes.try_join_next().is_some() {}
        self.scheduler.writes.spawn_blocking(move || {
            if let Err(error) = file.save(&state_dir, &page, keep) {
                tracing::warn!(%error, "cannot save the output of a job");
            }
        });
        path
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
