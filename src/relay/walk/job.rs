//! What differs for a run of a scheduled job: how it is claimed and prepared, and where its answer goes.
//!
//! A claimed run is accepted like a message and marked as begun, and only then does its agent start: whatever was marked is
//! never run again. Rows of an earlier process are ended without a run, because the journal's own recovery of claims
//! ([`CronCommand::Recover`](crate::store::CronCommand)) decides which of them run.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use smol_str::SmolStr;

use crate::access::{Author, Reason};
use crate::adapter::ChatId;
use crate::agent::RouteInput;
use crate::cron::fire::FireAdmission;
use crate::cron::job::{Job, JobOrigin, RunOutcome};
use crate::cron::output;
use crate::cron::target::{self, Target};
use crate::relay::effects::{Accepting, AgentWaiter, JobStep, JobTask, Pending, Place, RunSeq, Task, Work};
use crate::relay::event_loop::EventLoop;
use crate::relay::ops::DurableOps;
use crate::relay::origin::TurnOrigin;
use crate::relay::parts::access::{MadeIn, Starter};
use crate::relay::parts::job_files::{JobPrompt, SavedOutput};
use crate::relay::parts::scheduler::{JobRun, instant, job_session};
use crate::relay::parts::turn_task::TurnReport;
use crate::relay::parts::turns::EndedTurn;
use crate::relay::spans::MessageSpan;
use crate::session::{Admission, StopReason, TurnId};
use crate::store::{ClaimReply, Command, CronReply, InboxKind, InboxRow, InboxSeq, RowState, RunRow};
use crate::wire::SessionKey;

use super::turn_end::whole_answer;

/// Why a job is paused whose maker lost access.
pub const NO_ACCESS: &str = "has no access any more";

/// A run, as its row keeps it.
#[derive(Debug, Serialize, Deserialize)]
struct RunLine<'l> {
    r#type: &'l str,
    job: &'l str,
    run: i64,
}

impl EventLoop {
    /// Claims what is due, starts what has a slot, stops what takes too long.
    pub fn step_jobs(&mut self) {
        let (now, serving) = (self.clock.now(), self.lifecycle.is_serving());
        self.scheduler.step(now, serving, &mut self.effects);
        for run in self.scheduler.overdue(now.mono) {
            if let Some((turn, session)) = self.turns.of_run(run) {
                self.stop_turn(&session, Some(turn), StopReason::Asked);
            }
        }
        while serving && let Some(run) = self.scheduler.next_run() {
            self.accept_run(&run);
        }
        while let Some((request, answer)) = self.scheduler.next_answer() {
            self.answer_job_request(&request, &answer);
        }
    }

    /// Gives a run its place in its session, and journals that.
    fn accept_run(&mut self, run: &JobRun) {
        let session = job_session(run.job.id());
        let admission = self.turns.admit(&session);
        if let Admission::Start(turn) = admission {
            let origin = self.run_origin(&run.job, session.clone(), MessageSpan::new(session.as_str()));
            self.turns.hold_place(turn, Arc::new(origin), job_task(run.seq));
        }
        let line = RunLine {
            r#type: "job",
            job: run.job.id(),
            run: run.seq.0,
        };
        let line = serde_json::to_vec(&line).unwrap_or_default();
        let (key, now_ms) = (session.shared(), self.clock.unix_ms());
        let accepting = Accepting {
            session,
            place: admission.into(),
            work: Work::Job(run.seq),
        };
        let start = matches!(accepting.place, Place::Turn(_));
        self.effects
            .request(Pending::Accept(Box::new(accepting)), |token| Command::Accept {
                token,
                kind: InboxKind::Job,
                session: key,
                dedupe: None,
                buffer_id: None,
                line: line.into(),
                start,
                repeatable: false,
                now_ms,
            });
    }

    /// Where a job was made, and by whom.
    fn made_in(&self, job: &Job) -> Option<MadeIn> {
        job.origin().map(|origin| MadeIn {
            platform: self.chats.platform(&origin.platform),
            chat_id: origin.chat_id,
            chat_type: origin.chat_type,
            parent_chat_id: origin.parent_chat_id,
            user_id: origin.user_id,
            other_ids: origin.other_ids,
            roles: origin.roles,
        })
    }

    /// The chat that a job was made in, whose route or project holds for it.
    fn job_chat(&self, job: &Job) -> Option<JobOrigin> {
        job.origin().map(|origin| JobOrigin {
            platform: self.chats.platform(&origin.platform).as_str().to_owned(),
            ..origin
        })
    }

    /// Pauses the jobs of people who may not talk to the agent: asked whenever the rules change and whenever jobs are read, which
    /// is also how jobs meet the settings of a new start. An agent that its maker may not use is found when a job is due.
    pub fn pause_refused_jobs(&mut self) {
        if !self.access.is_active() {
            return;
        }
        let refused = self.scheduler.active().filter_map(|job| {
            let made_in = self.made_in(job);
            let author = self.access.author(Starter::Job(made_in.as_ref()));
            let is_refused = !self.access.may_talk(&author);
            is_refused.then(|| (job.id().to_owned(), author.name()))
        });
        let refused: Vec<(String, String)> = refused.collect();
        for (id, person) in refused {
            self.pause_job(&id, &person, NO_ACCESS);
        }
    }

    /// Pauses a job whose maker may not run it, until somebody resumes it.
    pub fn pause_job(&mut self, id: &str, person: &str, why: &str) {
        tracing::warn!(job = id, person, "paused a job: whoever made it {why}");
        let now = self.clock.now();
        let reason = format!("{person}, who made it, {why}");
        self.scheduler.pause(id, reason, now, &mut self.effects);
    }

    /// Where a run belongs: to whoever made the job, in the session of the job, in the chat of its first target.
    fn run_origin(&self, job: &Job, session: SessionKey, span: MessageSpan) -> TurnOrigin {
        let made_in = self.made_in(job);
        let author = self.access.author(Starter::Job(made_in.as_ref()));
        let source = self.targets(job).0.first().map(|target| {
            let mut chat = self.chats.of_target(target);
            let maker = made_in
                .as_ref()
                .filter(|made_in| made_in.platform.as_str() == chat.id.platform);
            let made_here = maker.filter(|made_in| made_in.chat_id == chat.id.chat);
            let kind = made_here.and_then(|made_in| made_in.chat_type.as_deref());
            chat.facts.user_id = maker.and_then(|made_in| made_in.user_id.as_deref().map(SmolStr::from));
            // A chat of which that is not known may be a group.
            let known = chat.facts.chat_type.take();
            chat.facts.chat_type = known.or_else(|| kind.map(SmolStr::from));
            self.chats.source(&chat)
        });
        TurnOrigin::new(session, &source.unwrap_or_default(), true, author, span)
    }

    /// The run of a row. One of an earlier process is not run: what becomes of it is decided by its claim.
    pub fn load_run(&mut self, turn: TurnId, row: &InboxRow) -> Option<(TurnOrigin, Task)> {
        let line: Option<RunLine<'_>> = row
            .line
            .as_deref()
            .and_then(|line| serde_json::from_slice(line).ok());
        let run = line.and_then(|line| self.scheduler.run(RunSeq(line.run)));
        let Some(run) = run else {
            self.end_unstarted(turn, row.seq, RowState::Ignored, "", None);
            return None;
        };
        let session = job_session(run.job.id());
        let span = self.turns.span(turn, &session);
        let origin = self.run_origin(&run.job, session, span);
        Some((origin, job_task(run.seq)))
    }

    /// Reads what a run asks, before it is marked as begun.
    pub fn prepare_run(&mut self, turn: TurnId, run: RunSeq) {
        let Some(job) = self.scheduler.run(run).map(|run| run.job.clone()) else {
            return;
        };
        let made_in = self.job_chat(&job);
        let input = made_in.as_ref().map(job_input);
        if let Some(place) = input.and_then(|input| self.agents.unknown_place(&input)) {
            return self.read_project(place, AgentWaiter::Turn(turn));
        }
        // Read while the job runs, so that its answer rings as its reader wants.
        for target in self.targets(&job).0 {
            let chat = self.chats.of_target(&target);
            self.ask_quiet_hours(&chat);
        }
        if let Some(prompt) = self.job_files.prompt(turn, &job) {
            self.prompt_read(turn, prompt);
        }
    }

    /// It is known what a run asks: it is marked as begun before its agent starts.
    pub fn prompt_read(&mut self, turn: TurnId, prompt: JobPrompt) {
        let Some((row, _, Task::Job(job))) = self.turns.preparing(turn) else {
            return;
        };
        match prompt {
            Ok(prompt) => {
                job.prompt = prompt;
                let run = job.run;
                let now = self.clock.now();
                self.scheduler.begin(turn, run, now, &mut self.effects);
            }
            Err(why) => self.end_unstarted(turn, row, RowState::Failed, &why, None),
        }
    }

    /// The journal has marked a run as begun, if this process still holds its claim.
    fn run_begun(&mut self, turn: TurnId, run: RunSeq, is_held: bool) {
        let Some((row, origin, _)) = self.turns.preparing(turn) else {
            return;
        };
        if !is_held {
            let session = origin.session.as_str();
            tracing::warn!(session, "another process took the claim of a job");
            self.scheduler.end(run);
            return self.end_unstarted(turn, row, RowState::Ignored, "", None);
        }
        let Some(job) = self.scheduler.run(run).map(|run| run.job.clone()) else {
            return self.end_unstarted(turn, row, RowState::Ignored, "", None);
        };
        let made_in = self.job_chat(&job);
        let input = made_in.as_ref().map(job_input);
        let Some(selection) = self.agents.of_job(job.agent(), input.as_ref()) else {
            let why = format!("there is no agent `{}`", job.agent().unwrap_or_default());
            return self.end_unstarted(turn, row, RowState::Failed, &why, None);
        };
        tracing::info!(job = job.id(), agent = &*selection.agent.name, "running a job");
        self.begin_turn(turn, selection);
    }

    /// A run's author may not begin it. Unless a limit is the reason, which passes, it would be refused each time: the job is paused.
    pub fn refuse_run(
        &mut self,
        turn: TurnId,
        row: InboxSeq,
        (run, author): (RunSeq, &Author),
        (reason, agent): (Reason, &str),
    ) {
        let is_scheduled = |job: &Job| {
            job.is_active()
                && !job
                    .schedule(self.scheduler.zone())
                    .is_some_and(|schedule| schedule.is_once())
        };
        let job = self.scheduler.run(run).map(|run| &run.job);
        let pauses = job.filter(|job| reason != Reason::Limit && is_scheduled(job));
        let pauses = pauses.map(|job| job.id().to_owned());
        let lost = match reason {
            Reason::Limit => "has used up a limit".to_owned(),
            Reason::Agent => format!("may not use the agent {agent}"),
            _ => NO_ACCESS.to_owned(),
        };
        let then = if pauses.is_some() { "; it is paused" } else { "" };
        let why = format!("the person who made this job {lost}{then}");
        self.end_unstarted(turn, row, RowState::Failed, &why, None);
        if let Some(id) = pauses {
            self.pause_job(&id, &author.name(), &lost);
        }
    }

    /// The journal has answered about jobs.
    pub fn handle_job_reply(&mut self, step: JobStep, reply: CronReply) {
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
            (JobStep::Jobs, CronReply::Jobs(rows, unreadable)) => {
                self.scheduler.loaded(rows);
                self.pause_refused_jobs();
                self.scheduler.report_unreadable(&unreadable);
            }
            (JobStep::Requested, CronReply::Runs(runs)) => {
                if self.lifecycle.is_serving() {
                    self.scheduler.requested(runs, now, &mut self.effects);
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
                    // The alarm has done its part: this process starts the occurrence when the run is over.
                    ClaimReply::Busy { occurrence } => {
                        self.scheduler.met_run(&job, occurrence, now);
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
            (JobStep::Begin(turn, run), CronReply::Held(is_held)) => self.run_begun(turn, run, is_held),
            (JobStep::Change(request), CronReply::Changed { job: Some(job), .. }) => {
                self.job_changed(request, &job);
            }
            (JobStep::Change(request), CronReply::Refused(refusal)) => {
                self.job_change_refused(&request, &refusal);
            }
            (JobStep::Finished, CronReply::Finished { job, .. }) => {
                self.scheduler.finished(job.map(|job| *job));
            }
            (JobStep::Noted, _) => {}
            (step, _) => self.waiter_mismatched(Pending::Job(step)),
        }
    }

    /// The journal could not do what was asked of it about jobs.
    pub fn job_command_failed(&mut self, step: JobStep) {
        let now = self.clock.now();
        match step {
            JobStep::Recover | JobStep::Jobs | JobStep::Requested => self.scheduler.read_failed(now.mono),
            JobStep::Claim(job, fire) => {
                self.scheduler.not_claimed(&job, now);
                if let Some(fire) = fire {
                    let _ = fire.send(FireAdmission::Failed);
                }
            }
            JobStep::Begin(turn, _) => {
                if let Some((row, ..)) = self.turns.preparing(turn) {
                    let why = "the journal could not store that it began";
                    self.end_unstarted(turn, row, RowState::Ignored, why, None);
                }
            }
            JobStep::Change(request) => self.job_change_failed(&request),
            JobStep::Finished | JobStep::Noted => {}
        }
    }

    /// A job's turn has ended: its answer goes to the job's targets, and its end into the journal, in one commit. A run whose
    /// answer goes nowhere ends when its output is written, which is all that is left of it.
    pub fn finish_run(&mut self, run: RunSeq, ended: &EndedTurn, report: &TurnReport) {
        let Some(run) = self.scheduler.end(run) else {
            return self.end_row(ended.row, ended.outcome, DurableOps::new(), None);
        };
        let text = report.collected.trim();
        let error = match ended.outcome {
            _ if run.timed_out => Some(format!("it took longer than {} s", run.timeout_secs())),
            RowState::Done if text.is_empty() => {
                let why = ended.notice.as_deref().unwrap_or("the agent gave no answer");
                Some(why.to_owned())
            }
            RowState::Done => None,
            RowState::Stopped => Some("it was stopped".to_owned()),
            RowState::Interrupted => Some("the relay was stopped while it ran".to_owned()),
            _ => Some(ended.notice.clone().unwrap_or_else(|| "it failed".to_owned())),
        };
        let language = self.settings.chat.language;
        let notice = ended.notice.as_deref().filter(|_| error.is_none());
        let answer = whole_answer(text, report.truncated, notice, language);
        // Whoever stopped it knows.
        let is_silent = ended.outcome == RowState::Stopped && !run.timed_out;
        let message = match &error {
            _ if is_silent => None,
            Some(error) => Some(self.job_failure(&run.job, error)),
            None if target::is_silent(text) => None,
            None => {
                let wrap = self.scheduler.settings().wrap_response;
                Some(target::answer_text(&run.job, &answer, wrap, language))
            }
        };
        let (ops, delivery_error) = self.plan_answer(&run.job, message.as_deref());
        let is_only_saved = ops.is_empty();
        self.end_row(ended.row, ended.outcome, ops, None);
        let now = self.clock.now();
        let file = (self.job_files).output_file(run.seq, &run.job, instant(now), self.scheduler.zone());
        let page = output::page(&run.job, &answer, error.as_deref());
        let outcome = RunOutcome {
            output: Some(file.path()),
            error,
            delivery_error,
        };
        let saved = self.job_files.save(run.seq, &run.job, file, page);
        if is_only_saved {
            self.scheduler.finish_when_saved(run, outcome);
        } else {
            self.scheduler.finish(&run, outcome, now, &mut self.effects);
        }
        if let Some(saved) = saved {
            self.output_saved(saved);
        }
    }

    /// The output of a run is written, or cannot be.
    pub fn output_saved(&mut self, saved: SavedOutput) {
        let now = self.clock.now();
        self.scheduler
            .saved(saved.run, &saved.job, saved.error, now, &mut self.effects);
    }

    /// What the targets of a job read when it failed. Nobody has asked for it, so it comes in the language of the settings.
    fn job_failure(&self, job: &Job, why: &str) -> String {
        let language = self.settings.chat.language;
        let english = target::failure_text(job, &language.reword(why));
        language.reword(&english).into_owned()
    }

    /// Ends a run whose agent did not start, and notifies its targets.
    pub fn fail_run(&mut self, run: RunSeq, why: &str) {
        let Some(run) = self.scheduler.end(run) else {
            return;
        };
        tracing::warn!(job = run.job.id(), why, "a job failed");
        let message = self.job_failure(&run.job, why);
        let (ops, delivery_error) = self.plan_answer(&run.job, Some(&message));
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
            let message = self.job_failure(job, "the relay was restarted while it ran");
            let (ops, _) = self.plan_answer(job, Some(&message));
            self.add_ops(ops, None);
        }
        let now = self.clock.now();
        self.scheduler.interrupted(run.seq, now, &mut self.effects);
    }

    /// The answer of a session did not reach a chat; a job's record says so.
    pub fn job_undelivered(&mut self, chat: &str, session: &str, reason: &str) {
        let target = match ChatId::from_key(chat) {
            Some(ChatId { platform, chat }) => format!("{platform}:{chat}"),
            None => chat.to_owned(),
        };
        self.scheduler
            .not_delivered(session, &target, reason, &mut self.effects);
    }

    /// Ops that deliver a text to every target of a job, and why it could not be delivered everywhere.
    fn plan_answer(&mut self, job: &Job, text: Option<&str>) -> (DurableOps, Option<String>) {
        let (targets, error) = self.targets(job);
        let session = job_session(job.id());
        let ops = text.map(|text| self.plan_targets(&targets, &session, text));
        (ops.unwrap_or_default(), error)
    }

    fn targets(&self, job: &Job) -> (Vec<Target>, Option<String>) {
        target::targets(
            &job.deliver(),
            job.origin().as_ref(),
            &self.scheduler.settings().home_channels,
        )
    }
}

/// What routes look at, of the chat that a job was made in.
fn job_input(origin: &JobOrigin) -> RouteInput<'_> {
    RouteInput {
        platform: &origin.platform,
        chat: &origin.chat_id,
        thread: origin.thread_id.as_deref().unwrap_or_default(),
        user: origin.user_id.as_deref().unwrap_or_default(),
        profile: "",
        text: "",
    }
}

fn job_task(run: RunSeq) -> Task {
    Task::Job(JobTask {
        run,
        prompt: String::new(),
    })
}
