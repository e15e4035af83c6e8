//! What programs do in a walk: they make jobs and have them run, hand things over, and send texts.

use std::sync::Arc;

use hermes_relay::agent_connector::contract::{DeliveryKind, DeliveryMeta, DeliveryOrigin, DeliveryPayload};
use hermes_relay::cron::job::{JobOrigin, NewJob};
use hermes_relay::relay::{HandedItem, SendError, SubmitError};
use hermes_relay::store::{CronCommand, CronReply, JobChange, RunRow};
use jiff::tz::TimeZone;

use super::course::{For, Handed, HandedAs, JobRecord, Kind, Note, Outcome, StopOf, Walk};
use super::world::{BOB, Chat};

impl Walk {
    pub(super) async fn make_job_in_chat(&mut self) {
        let who = if self.plan.loves_jobs { BOB } else { self.anybody() };
        let chat = self.chat_of(who);
        let word = self
            .rng
            .weighted(&[(6, "say"), (1, "ask"), (1, "silent"), (1, "fail"), (2, "hold")]);
        let message = format!("m{}", self.names + 1);
        let name = format!("j{message}");
        self.jobs.push(JobRecord {
            name: name.clone(),
            word,
            id: None,
            author: Some(who),
            targets: vec![chat.clone()],
            asked: Vec::new(),
            may_be_removed: false,
        });
        let text = format!("/cron add every 20h {name} {word}");
        self.send(who, chat, Kind::Command, &text).await;
    }

    pub(super) fn cron(&mut self, command: &CronCommand) -> CronReply {
        self.files.as_mut().expect("the jobs").run(command).unwrap()
    }

    pub(super) fn change_jobs(&mut self, change: JobChange) -> CronReply {
        self.cron(&CronCommand::Change {
            change,
            maker: None,
            zone: TimeZone::UTC,
            now: self.timestamp(),
        })
    }

    /// All runs of jobs.
    pub(super) fn job_runs(&mut self) -> Vec<RunRow> {
        match self.cron(&CronCommand::Runs {
            job: None,
            limit: 9999,
        }) {
            CronReply::Runs(runs) => runs,
            other => panic!("{other:?}"),
        }
    }

    /// A job that the operator makes, or that an agent makes for somebody, with targets anywhere.
    pub(super) fn make_job(&mut self) {
        if self.fault.is_some() {
            return;
        }
        let author = self.rng.percent(70).then(|| self.anybody());
        let origin = match author {
            Some(who) => Some(self.chat_of(who)),
            None => self.rng.percent(50).then(|| self.any_chat()),
        };
        let mut words = Vec::new();
        let mut targets: Vec<Chat> = Vec::new();
        for _ in 0..=self.rng.below(2) {
            let (word, target) = match (self.rng.below(4), &origin) {
                (0, _) => ("local".to_owned(), None),
                (1 | 2, Some(origin)) => ("origin".to_owned(), Some(origin.clone())),
                _ => {
                    let chat = self.any_chat();
                    (chat.target(), Some(chat))
                }
            };
            words.push(word);
            if let Some(target) = target
                && !targets.iter().any(|known| known.target() == target.target())
            {
                targets.push(target);
            }
        }
        let word = self
            .rng
            .weighted(&[(6, "say"), (1, "silent"), (1, "fail"), (2, "hold")]);
        let name = self.name('j');
        let user = author.map(|who| self.people[who].user.to_owned());
        let new = NewJob {
            schedule: "every 20h".to_owned(),
            prompt: format!("{name} {word}"),
            deliver: Some(words.join(",")),
            origin: origin.as_ref().map(|origin| JobOrigin {
                platform: origin.platform.to_owned(),
                chat_id: origin.id.clone(),
                user_id: user,
                ..JobOrigin::default()
            }),
            ..NewJob::default()
        };
        let by = author.map_or("the operator".to_owned(), |who| self.people[who].id());
        self.note(format!("a job {name} {word} of {by} for {}", words.join(",")));
        let change = JobChange::Add {
            new: Box::new(new),
            random: 1_000_000 + self.names as u64,
        };
        let CronReply::Changed { job: Some(job), .. } = self.change_jobs(change) else {
            return;
        };
        self.jobs.push(JobRecord {
            name,
            word,
            id: Some(job.job.id().to_owned()),
            author,
            targets,
            asked: Vec::new(),
            may_be_removed: false,
        });
    }

    /// Asks for a run as the program does: in the journal, and then the relay is notified.
    pub(super) fn run_job(&mut self) {
        let known: Vec<usize> = (0..self.jobs.len())
            .filter(|job| self.jobs[*job].id.is_some())
            .collect();
        if self.fault.is_some() {
            return;
        }
        let Some(job) = self.rng.pick(&known) else { return };
        let id = self.jobs[job].id.clone().unwrap_or_default();
        let at = self.log.tick();
        let name = self.jobs[job].name.clone();
        if !matches!(
            self.change_jobs(JobChange::Run { job: id }),
            CronReply::Changed { .. }
        ) {
            return;
        }
        self.jobs[job].asked.push(at);
        self.jobs_changed(format!("job {name} is to run"));
    }

    pub(super) fn jobs_changed(&mut self, what: String) {
        let (handle, log) = (self.handle(), Arc::clone(&self.log));
        self.wait(what, For::Nothing, async move {
            match handle.jobs_changed().await {
                Ok(_) => Outcome::Done(log.tick(), String::new()),
                Err(_) => Outcome::Gone,
            }
        });
    }

    pub(super) fn hand_over(&mut self) {
        let how = self.rng.weighted(&[
            (3, HandedAs::Context),
            (3, HandedAs::Turn),
            (2, HandedAs::Wake),
            (3, HandedAs::Question),
        ]);
        // Sometimes what was handed over before comes again.
        if self.rng.percent(10) && !self.handed.is_empty() {
            let known = self.handed[self.rng.below(self.handed.len())].clone();
            let what = format!("{} is handed over again", known.name);
            let request = self.request(&known);
            let request = self.wait(what, For::Nothing, request);
            if known.how == HandedAs::Wake {
                self.add_stop(StopOf::Session(known.own_session()), Some(request));
            }
            return;
        }
        let (session, chat) = match self.rng.below(6) {
            0 => (None, None),
            1 => (Some("hook".to_owned()), None),
            _ => {
                let who = self.anybody();
                let chat = self.chat_of(who);
                let session = self.plan.session(&self.people[who], &chat);
                let is_known = self.is_known(&chat);
                (Some(session), Some((chat, is_known)))
            }
        };
        let name = self.name('d');
        let at = self.log.tick();
        let handed = Handed {
            name,
            how,
            agent: ["alpha", "beta"][self.rng.below(2)],
            session,
            chat,
            at,
            outcome: None,
        };
        let what = format!(
            "{} is handed over as {how:?} for {:?}",
            handed.name, handed.session
        );
        let request = self.request(&handed);
        let stopped = StopOf::Session(handed.own_session());
        self.handed.push(handed);
        let request = self.wait(what, For::Handed(self.handed.len() - 1), request);
        if how == HandedAs::Wake {
            self.add_stop(stopped, Some(request));
        }
    }

    /// Hands something to the relay; the one place that names the types for that.
    pub(super) fn request(&mut self, handed: &Handed) -> impl Future<Output = Outcome> + Send + use<> {
        let words = if handed.chat.is_some() {
            [(6, "say"), (1, "fail"), (2, "hold"), (2, "ask"), (1, "panic")]
        } else {
            [(6, "say"), (1, "fail"), (2, "hold"), (0, "ask"), (1, "panic")]
        };
        let text = match handed.how {
            HandedAs::Context => format!("ctx {}", handed.name),
            HandedAs::Turn | HandedAs::Wake | HandedAs::Question => {
                format!("{} {}", handed.name, self.rng.weighted(&words))
            }
        };
        let item = HandedItem {
            agent: handed.agent.to_owned(),
            session: handed.session.clone(),
            payload: DeliveryPayload {
                kind: match handed.how {
                    HandedAs::Context | HandedAs::Wake => DeliveryKind::Augment,
                    HandedAs::Turn | HandedAs::Question => DeliveryKind::Template,
                },
                text,
                meta: DeliveryMeta::new(&handed.name, 1_700_000_000_000, &DeliveryOrigin::default()),
            },
            wake: handed.how == HandedAs::Wake,
        };
        let (handle, log, waits) = (
            self.handle(),
            Arc::clone(&self.log),
            handed.how == HandedAs::Question,
        );
        async move {
            let answer = if waits {
                let response = handle.request(item).await;
                response.map(|response| response.content)
            } else {
                let receipt = handle.submit(item).await;
                receipt.map(|_| String::new())
            };
            match answer {
                Ok(text) => Outcome::Done(log.tick(), text),
                Err(SubmitError::NotRunning(_)) => Outcome::Gone,
                Err(refusal) => Outcome::Refused(refusal.to_string()),
            }
        }
    }

    pub(super) fn send_note(&mut self) {
        let chat = self.any_chat();
        let text = format!("note {}.", self.name('n'));
        let (handle, log) = (self.handle(), Arc::clone(&self.log));
        let what = format!("{text} to {}", chat.target());
        let (to, said) = (chat.clone(), text.clone());
        self.notes.push(Note {
            text,
            chat,
            outcome: None,
        });
        self.wait(what, For::Note(self.notes.len() - 1), async move {
            match handle.send_on(to.platform, &to.id, &said).await {
                Ok(()) => Outcome::Done(log.tick(), String::new()),
                Err(SendError::NotRunning(_)) => Outcome::Gone,
                Err(error) => Outcome::Refused(error.to_string()),
            }
        });
    }
}
