//! What people do in a walk: they write, press, command, stop, and change the rules.

use std::sync::Arc;
use std::time::Duration;

use hermes_relay::access::{AccessRequest, Role};
use hermes_relay::wire::SessionKey;
use serde_json::json;
use tokio::time::timeout;

use super::agent::{Asking, Run};
use super::course::{Attempt, For, Kind, Outcome, QUICK, SOON, Sent, StopOf, Walk};
use super::seen::Shown;
use super::world::{BOB, Chat, event};

#[derive(Clone, Copy)]
enum Step {
    Say,
    Repeat,
    Decide,
    Command,
    MakeJobInChat,
    MakeJob,
    RunJob,
    HandOver,
    Interrupt,
    Release,
    ChangeRules,
    Approve,
    LoseConnection,
    HoldOps,
    StallJournal,
    FailJournal,
    SendNote,
    Restart,
    Crash,
}

impl Walk {
    pub(super) fn chat_of(&mut self, who: usize) -> Chat {
        let person = &self.people[who];
        match self.rng.below(3) {
            0 | 1 => Chat::direct(person),
            _ => Chat::group(person, ["g1", "g2"][self.rng.below(2)]),
        }
    }

    pub(super) fn anybody(&mut self) -> usize {
        if self.plan.loves_jobs && self.rng.percent(25) {
            return BOB;
        }
        // Those who may talk more often than the others.
        let first = self.rng.below(self.people.len());
        if self.standings[first].now().is_none() {
            return self.rng.below(self.people.len());
        }
        first
    }

    pub(super) fn any_chat(&mut self) -> Chat {
        let who = self.anybody();
        self.chat_of(who)
    }

    pub(super) async fn step(&mut self) {
        self.heal_in_time().await;
        let run_job = if self.plan.loves_jobs { 60 } else { 9 };
        match self.rng.weighted(&[
            (30, Step::Say),
            (4, Step::Repeat),
            (10, Step::Decide),
            (9, Step::Command),
            (5, Step::MakeJobInChat),
            (4, Step::MakeJob),
            (run_job, Step::RunJob),
            (8, Step::HandOver),
            (5, Step::Interrupt),
            (6, Step::Release),
            (9, Step::ChangeRules),
            (3, Step::Approve),
            (3, Step::LoseConnection),
            (2, Step::HoldOps),
            (2, Step::StallJournal),
            (2, Step::FailJournal),
            (3, Step::SendNote),
            (2, Step::Restart),
            (2, Step::Crash),
        ]) {
            Step::Say => self.say().await,
            Step::Repeat => self.repeat().await,
            Step::Decide => self.decide().await,
            Step::Command => self.command().await,
            Step::MakeJobInChat => self.make_job_in_chat().await,
            Step::MakeJob => self.make_job(),
            Step::RunJob => self.run_job(),
            Step::HandOver => self.hand_over(),
            Step::Interrupt => self.interrupt().await,
            Step::Release => self.release(),
            Step::ChangeRules => self.change_rules(),
            Step::Approve => self.approve().await,
            Step::LoseConnection => self.lose_connection(),
            Step::HoldOps => self.hold_ops(),
            Step::StallJournal => self.stall_journal(),
            Step::FailJournal => self.fail_journal(),
            Step::SendNote => self.send_note(),
            Step::Restart => self.restart().await,
            Step::Crash => self.crash().await,
        }
        match self.rng.below(10) {
            0..4 => {}
            4..7 => {
                for _ in 0..=self.rng.below(6) {
                    tokio::task::yield_now().await;
                }
            }
            _ => tokio::time::sleep(Duration::from_micros(500 + 500 * self.rng.below(6) as u64)).await,
        }
        self.pass_time().await;
        self.look().await;
    }

    pub(super) async fn say(&mut self) {
        let who = self.anybody();
        if !self.may_write(who).await {
            return;
        }
        let chat = self.chat_of(who);
        let word = self.rng.weighted(&[
            (35, "say"),
            (20, "hold"),
            (16, "ask"),
            (6, "fail"),
            (8, "stream"),
            (3, "panic"),
            (8, "memo"),
        ]);
        self.send(who, chat, Kind::Plain, word).await;
    }

    /// Whether a person can write without being taken for a program: if need be, they start a new conversation first.
    pub(super) async fn may_write(&mut self, who: usize) -> bool {
        if !self.plan.has_section || self.quick[who] < QUICK - 2 {
            return true;
        }
        let standing = &self.standings[who];
        if !matches!(standing.now(), Some(Role::Owner | Role::User)) {
            return true;
        }
        if !standing.is_settled() || !self.is_steady() {
            return false;
        }
        let chat = Chat::group(&self.people[who], "new");
        let index = self.send(who, chat, Kind::Command, "/new").await;
        let name = self.sent[index].name.clone();
        let within = Duration::from_secs(5);
        let answered = (self.live().connector).wait_for(within, |seen| {
            let mut ops = seen.ops.iter();
            ops.any(|op| op.action["reply_to"].as_str() == Some(&name))
        });
        let is_answered = answered.await.is_some();
        self.look().await;
        if is_answered {
            // What is not acknowledged yet may have been counted after it.
            let open = |index: &usize| self.sent[*index].who == who && !self.is_acked(*index);
            self.quick[who] = (0..self.sent.len()).filter(open).count();
        }
        is_answered
    }

    /// The connector delivers something again, under the same id or another one.
    pub(super) async fn repeat(&mut self) {
        if self.sent.is_empty() {
            return;
        }
        let index = self.rng.below(self.sent.len());
        let who = self.sent[index].who;
        if self.sent[index].kind == Kind::Plain && !self.may_write(who).await {
            return;
        }
        self.count(index);
        let Sent { name, event, .. } = self.sent[index].clone();
        let id = if self.rng.percent(50) {
            name.clone()
        } else {
            format!("{name}~{}", self.log.tick())
        };
        self.note(format!("{}: {name} comes again as {id}", self.log.tick()));
        let delivered = self.live().connector.deliver_buffered(&id, event).await;
        delivered.unwrap();
    }

    /// Questions of agents that this process shows and that are not answered: the runs, and what shows them.
    pub(super) fn questions(&self) -> Vec<(usize, Run, Shown)> {
        let process = self.process();
        let open = |run: &Run| run.question == Asking::Open && run.ended.is_none() && run.process == process;
        let runs = self.log.runs().into_iter().enumerate();
        runs.filter(|(_, run)| open(run))
            .filter_map(|(number, run)| {
                let shown = self.seen.question(&run.name, number)?.clone();
                Some((number, run, shown))
            })
            .collect()
    }

    /// Whose it is to decide a question: the person whose direct message it is in, else the author; `None` for anybody.
    pub(super) fn responder(&self, run: &Run, shown: &Shown) -> Option<usize> {
        let person = |user: &str| {
            let mut people = self.people.iter();
            people.position(|person| person.platform == shown.platform && person.user == user)
        };
        match (shown.chat.strip_prefix("dm-"), &run.author) {
            (None, Some(author)) => person(author),
            (Some(user), Some(_)) => person(user),
            // Whatever was handed over has no author: in a direct message there is only one person.
            (_, None) => None,
        }
    }

    /// Somebody presses a button of a question or types an answer, perhaps somebody who must not.
    pub(super) async fn decide(&mut self) {
        if self.rng.percent(20) && self.decide_pairing().await {
            return;
        }
        let questions = self.questions();
        if questions.is_empty() {
            return;
        }
        let (number, run, shown) = questions[self.rng.below(questions.len())].clone();
        let theirs = self.responder(&run, &shown);
        let on_platform: Vec<usize> = (0..self.people.len())
            .filter(|who| self.people[*who].platform == shown.platform)
            .collect();
        let who = match theirs {
            Some(who) if self.rng.percent(65) => who,
            _ => self.rng.pick(&on_platform).unwrap_or(0),
        };
        let choice = ["yes", "no"][self.rng.below(2)];
        self.decide_as(number, &run, &shown, who, choice).await;
    }

    pub(super) async fn decide_as(
        &mut self,
        number: usize,
        run: &Run,
        shown: &Shown,
        who: usize,
        choice: &'static str,
    ) {
        let chat = Chat {
            platform: self.people[who].platform,
            id: shown.chat.clone(),
            is_group: !shown.chat.starts_with("dm-"),
        };
        if chat.platform != shown.platform {
            return;
        }
        let is_own_chat = run.chat == shown.chat && run.platform == shown.platform;
        self.attempts.push(Attempt {
            who,
            run: number,
            choice,
            at: self.log.tick(),
            is_theirs: self.responder(run, shown).is_none_or(|theirs| theirs == who),
            needs_owner: !is_own_chat && self.plan.asks_owners(),
        });
        let is_first = choice == "yes";
        if shown.action["op"] == "prompt" && self.rng.percent(70) {
            let option = if is_first { "o0" } else { "o1" };
            return self.press(who, chat, shown, option).await;
        }
        let Some(code) = shown.code() else { return };
        let text = match (self.rng.below(2), is_first) {
            (0, true) if shown.action["op"] != "prompt" => format!("{code} 1"),
            (0, false) if shown.action["op"] != "prompt" => format!("{code} 2"),
            (_, true) => format!("/approve {code}"),
            (_, false) => format!("/deny {code}"),
        };
        self.send(who, chat, Kind::Typed, &text).await;
    }

    pub(super) async fn press(&mut self, who: usize, chat: Chat, shown: &Shown, option: &str) {
        let name = self.name('m');
        let mut event = event(&self.people[who], &chat, &name, &format!("/{option}"));
        event["prompt_response"] = json!({
            "prompt_id": shown.action["prompt_id"],
            "option_id": option,
            "prompt_message_id": shown.id(),
        });
        self.send_event(who, chat, Kind::Press, name, event).await;
    }

    /// An owner, or somebody else, decides whether a stranger is let in.
    pub(super) async fn decide_pairing(&mut self) -> bool {
        let process = self.process();
        let asked = |shown: &&Shown| {
            shown.text.contains(" talk to me?")
                && shown.ids.iter().any(|(at, _)| *at == process)
                && shown.action["op"] == "prompt"
        };
        let asked: Vec<Shown> = self.seen.shown.iter().filter(asked).cloned().collect();
        if asked.is_empty() {
            return false;
        }
        let shown = asked[self.rng.below(asked.len())].clone();
        let stranger = (0..self.people.len()).find(|who| {
            let id = self.people[*who].id();
            shown.text.contains(&format!("May {id} talk"))
        });
        let Some(stranger) = stranger.filter(|who| self.standings[*who].is_settled()) else {
            return false;
        };
        let on_platform: Vec<usize> = (0..self.people.len())
            .filter(|who| self.people[*who].platform == shown.platform)
            .collect();
        let owner = on_platform.iter().copied().find(|who| {
            let chat = Chat::direct(&self.people[*who]);
            shown.is_in(chat.platform, &chat.id)
        });
        let is_owner = self.rng.percent(70);
        let who = owner.filter(|_| is_owner).or_else(|| self.rng.pick(&on_platform));
        let Some(who) = who else { return false };
        let lets_in = self.rng.percent(60);
        let chat = Chat {
            platform: self.people[who].platform,
            id: shown.chat.clone(),
            is_group: false,
        };
        let may = Some(who) == owner && self.standings[who].now() == Some(Role::Owner);
        if lets_in && may && self.standings[stranger].now().is_none() {
            self.standings[stranger].ask(self.log.tick(), Some(Role::User));
            let press = format!("m{}", self.names + 1);
            self.unsure.push((stranger, Some(press)));
        }
        self.press(who, chat, &shown, if lets_in { "o0" } else { "o1" })
            .await;
        true
    }

    pub(super) async fn command(&mut self) {
        let who = self.anybody();
        let chat = self.chat_of(who);
        let session = self.plan.session(&self.people[who], &chat);
        let (kind, text) = match self.rng.below(8) {
            0 | 1 => (Kind::Command, "/stop".to_owned()),
            2 => (Kind::Command, "/new".to_owned()),
            3 => (
                Kind::Command,
                format!("/agent {}", ["alpha", "beta"][self.rng.below(2)]),
            ),
            4 => (Kind::Inquiry, "/status".to_owned()),
            5 => (Kind::Inquiry, "/whoami".to_owned()),
            6 => (Kind::Inquiry, "/cron list".to_owned()),
            _ => {
                let ids: Vec<usize> = (0..self.jobs.len())
                    .filter(|job| self.jobs[*job].id.is_some())
                    .collect();
                let Some(job) = self.rng.pick(&ids) else { return };
                self.jobs[job].may_be_removed = true;
                let id = self.jobs[job].id.clone().unwrap_or_default();
                (Kind::Command, format!("/cron remove {id}"))
            }
        };
        self.send(who, chat, kind, &text).await;
        if matches!(text.as_str(), "/stop" | "/new") {
            self.add_stop(StopOf::Session(session), None);
        }
    }

    /// Whether the relay must know a chat, also after a crash: it has answered a message there.
    pub(super) fn is_known(&self, chat: &Chat) -> bool {
        self.sent.iter().any(|sent| {
            let answered = |shown: &Shown| shown.is_in(chat.platform, &chat.id) && shown.about().is_some();
            sent.chat == *chat && sent.kind == Kind::Plain && self.seen.replies(&sent.name).any(answered)
        })
    }

    pub(super) async fn interrupt(&mut self) {
        let running: Vec<Run> = self
            .log
            .runs()
            .into_iter()
            .filter(|run| run.ended.is_none())
            .collect();
        let session = if running.is_empty() || self.rng.percent(20) {
            let who = self.anybody();
            let chat = self.chat_of(who);
            self.plan.session(&self.people[who], &chat)
        } else {
            running[self.rng.below(running.len())].session.clone()
        };
        self.note(format!("{}: {session} is stopped", self.log.tick()));
        self.stop_session(session).await;
    }

    pub(super) async fn stop_session(&mut self, session: String) {
        let by_frame = self.rng.percent(50);
        if by_frame {
            // Without a connection nobody can ask for it.
            let _ = self.live().connector.interrupt(&session, "").await;
        }
        let (handle, log) = (self.handle(), Arc::clone(&self.log));
        let of = StopOf::Session(session.clone());
        let request = self.wait("a stop".to_owned(), For::Nothing, async move {
            let outcome = if by_frame {
                // The relay takes interrupts before requests.
                format!("{}", handle.status().await.is_ok())
            } else {
                format!("{:?}", handle.stop_turn(SessionKey::from_text(session)).await)
            };
            Outcome::Done(log.tick(), outcome)
        });
        self.add_stop(of, Some(request));
    }

    /// Lets a run go on that waits.
    pub(super) fn release(&mut self) {
        let runs = self.log.runs();
        let waiting: Vec<usize> = (0..runs.len())
            .filter(|number| runs[*number].ended.is_none() && runs[*number].word == "hold")
            .collect();
        if let Some(number) = self.rng.pick(&waiting) {
            self.note(format!("{}: run {number} goes on", self.log.tick()));
            runs[number].release.cancel();
        }
    }

    pub(super) fn change_rules(&mut self) {
        let who = self.rng.below(self.people.len());
        if !self.standings[who].is_settled() {
            return;
        }
        let person = self.people[who].clone();
        let given = self.rng.weighted(&[
            (3, None),
            (2, Some(Role::User)),
            (1, Some(Role::Guest)),
            (1, Some(Role::Owner)),
        ]);
        let (request, role) = if self.rng.percent(45) {
            (AccessRequest::Deny { person: person.id() }, None)
        } else {
            let request = AccessRequest::Allow {
                person: person.id(),
                role: given,
                agents: None,
                chats: None,
            };
            let in_file = self
                .plan
                .role_in_file(&person)
                .filter(|_| self.plan.is_in_file(&person));
            (request, given.or(in_file).or(Some(Role::User)))
        };
        let role = role.filter(|_| !self.plan.is_denied_in_file(&person));
        self.ask_for_rule(who, request, role);
    }

    pub(super) fn ask_for_rule(&mut self, who: usize, request: AccessRequest, role: Option<Role>) {
        let tick = self.log.tick();
        self.standings[who].ask(tick, role);
        let (handle, log) = (self.handle(), Arc::clone(&self.log));
        let what = format!("{} becomes {role:?}", self.people[who].id());
        let request = self.wait(what, For::Access(who), async move {
            match handle.access(request).await {
                Ok(Ok(_)) => Outcome::Done(log.tick(), String::new()),
                Ok(Err(error)) => Outcome::Refused(error.to_string()),
                Err(_) => Outcome::Gone,
            }
        });
        if role.is_none() {
            self.add_stop(StopOf::Person(who), Some(request));
        }
    }

    /// The operator lets in a stranger who has a code.
    pub(super) async fn approve(&mut self) {
        if !self.plan.is_pairing() {
            return;
        }
        let pending = timeout(SOON, self.handle().access(AccessRequest::Pending)).await;
        let pending = pending
            .expect("an answer in time")
            .expect("the relay runs")
            .unwrap();
        let pending = pending["pending"].as_array().unwrap();
        if pending.is_empty() {
            return;
        }
        let entry = &pending[self.rng.below(pending.len())];
        let mut people = self.people.iter();
        let who = people.position(|person| entry["person"] == *person.id());
        let Some(who) = who.filter(|who| self.standings[*who].is_settled()) else {
            return;
        };
        let role = self.rng.weighted(&[(2, Role::User), (1, Role::Guest)]);
        let request = AccessRequest::Approve {
            code: entry["code"].as_str().unwrap().to_owned(),
            role: Some(role),
        };
        self.ask_for_rule(who, request, Some(role));
    }
}
