//! A walk: one relay with a state directory, its people and their messages, and one step after the other.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hermes_relay::access::AccessRequest;
use hermes_relay::relay::{
    BuildError, ExitReason, MemoryConnector, MemoryTransport, Relay, RelayBuilder, RelayHandle,
};
use hermes_relay::store::{CronFiles, Inspector, OpenError, RunRow, Section};
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::Steps;
use super::agent::{Asking, Log, Run, Scripted, Tick};
use super::faults::Fault;
use super::seen::{Seen, Shown};
use super::simulation::{Simulation, World, state_dir};
use super::world::{Chat, Person, Plan, Rng, Standing, descriptors, event, people};
use crate::support::wait::eventually_within;

/// Far more than anything takes that is waited for.
pub(super) const SOON: Duration = Duration::from_secs(30);
/// Messages that a person may answer quickly before the relay takes them for a program.
pub(super) const QUICK: usize = 6;

/// What a person sent.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    /// Its id as a message, as a delivery and in the agent's answer.
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) who: usize,
    pub(super) chat: Chat,
    pub(super) session: String,
    pub(super) at: Tick,
    /// The loop guard may have refused it.
    pub(super) may_be_a_loop: bool,
    pub(super) event: Value,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A message for the agent.
    Plain,
    /// A command that changes something.
    Command,
    /// A command that only reads.
    Inquiry,
    /// A press of a button.
    Press,
    /// A typed answer, which is a message for the agent if it answers nothing.
    Typed,
}

/// Somebody tried to decide the question of a run.
#[derive(Clone, Debug)]
pub(super) struct Attempt {
    pub(super) who: usize,
    pub(super) run: usize,
    pub(super) choice: &'static str,
    pub(super) at: Tick,
    /// Whether the question was theirs to decide.
    pub(super) is_theirs: bool,
    /// Whether it was put to an owner in place of the author.
    pub(super) needs_owner: bool,
}

/// A scheduled job.
#[derive(Clone, Debug)]
pub(super) struct JobRecord {
    /// The first word of its prompt.
    pub(super) name: String,
    pub(super) word: &'static str,
    /// Its id, once it is known.
    pub(super) id: Option<String>,
    /// Who made it; nobody for a job of the operator's.
    pub(super) author: Option<usize>,
    pub(super) targets: Vec<Chat>,
    /// When runs were asked for.
    pub(super) asked: Vec<Tick>,
    pub(super) may_be_removed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HandedAs {
    Context,
    Turn,
    Wake,
    Question,
}

/// Something that a program handed over.
#[derive(Clone, Debug)]
pub(super) struct Handed {
    pub(super) name: String,
    pub(super) how: HandedAs,
    pub(super) agent: &'static str,
    pub(super) session: Option<String>,
    /// The session's chat, and whether the relay must know it.
    pub(super) chat: Option<(Chat, bool)>,
    pub(super) at: Tick,
    pub(super) outcome: Option<Outcome>,
}

impl Handed {
    /// The session that its turns run in.
    pub(super) fn own_session(&self) -> String {
        let own = || format!("delivery:{}", self.agent);
        self.session.clone().unwrap_or_else(own)
    }
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Done(Tick, String),
    Refused(String),
    /// The relay ended first.
    Gone,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum For {
    Access(usize),
    Handed(usize),
    Note(usize),
    Nothing,
}

pub(super) struct Waiter {
    what: String,
    since: Tick,
    purpose: For,
    task: JoinHandle<Outcome>,
}

/// A text that a program sent to a chat.
pub(super) struct Note {
    pub(super) text: String,
    pub(super) chat: Chat,
    pub(super) outcome: Option<Outcome>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StopOf {
    Session(String),
    Person(usize),
}

/// A reason for turns to stop. It is in force at some time between its request and the moment when that is answered and all
/// messages that were sent by then are acknowledged: it may stop what came later and overtook it.
#[derive(Clone, Debug)]
pub(super) struct Stop {
    pub(super) of: StopOf,
    /// When the request for it was made, while that is not answered.
    request: Option<Tick>,
    /// Messages that were sent by then.
    after: usize,
    /// When it surely was over.
    pub(super) until: Option<Tick>,
}

pub(super) struct Live {
    pub(super) connector: MemoryConnector,
    pub(super) handle: RelayHandle,
    pub(super) stop: oneshot::Sender<()>,
    pub(super) task: JoinHandle<ExitReason>,
}

pub(super) struct Walk {
    /// The world around it, unless that is the machine's.
    pub(super) sim: Option<Simulation>,
    pub(super) rng: Rng,
    pub(super) plan: Plan,
    pub(super) dir: TempDir,
    pub(super) log: Arc<Log>,
    pub(super) seen: Seen,
    pub(super) people: Vec<Person>,
    pub(super) standings: Vec<Standing>,
    pub(super) sent: Vec<Sent>,
    pub(super) jobs: Vec<JobRecord>,
    pub(super) handed: Vec<Handed>,
    pub(super) notes: Vec<Note>,
    pub(super) attempts: Vec<Attempt>,
    pub(super) stops: Vec<Stop>,
    pub(super) restarts: Vec<Tick>,
    /// How often a connection was lost with ops on it, or a relay ended abruptly.
    pub(super) losses: usize,
    pub(super) files: Option<CronFiles>,
    pub(super) live: Option<Live>,
    pub(super) waiters: Vec<Waiter>,
    pub(super) fault: Option<(Fault, usize)>,
    pub(super) down: Option<usize>,
    pub(super) holding: Option<usize>,
    /// At most so many messages of each person since they were taken for a person.
    pub(super) quick: Vec<usize>,
    /// People whose rules were not confirmed when the relay ended, and presses that may let somebody in.
    pub(super) unsure: Vec<(usize, Option<String>)>,
    pub(super) names: usize,
}

impl Walk {
    pub(super) async fn start(seed: u64, steps: Steps, world: World) -> Self {
        let is_simulated = world != World::Machine;
        let mut rng = Rng::new(seed);
        let plan = Plan::new(&mut rng);
        let people = people();
        let standings = people
            .iter()
            .map(|person| Standing::new(plan.role_in_file(person)));
        let mut walk = Self {
            standings: standings.collect(),
            quick: vec![0; people.len()],
            sim: is_simulated.then(|| Simulation::new(seed, world == World::Forgetful)),
            rng,
            plan,
            dir: if is_simulated {
                state_dir()
            } else {
                tempfile::tempdir().unwrap()
            },
            log: Arc::new(Log::new(steps)),
            seen: Seen::default(),
            people,
            sent: Vec::new(),
            jobs: Vec::new(),
            handed: Vec::new(),
            notes: Vec::new(),
            attempts: Vec::new(),
            stops: Vec::new(),
            restarts: Vec::new(),
            losses: 0,
            files: None,
            live: None,
            waiters: Vec::new(),
            fault: None,
            down: None,
            holding: None,
            unsure: Vec::new(),
            names: 0,
        };
        walk.note(format!("{:?}", walk.plan));
        walk.open().await;
        walk.open_files();
        walk
    }

    pub(super) fn note(&self, step: String) {
        self.log.note(step);
    }

    pub(super) fn process(&self) -> usize {
        *self.log.process.lock().unwrap()
    }

    pub(super) fn live(&self) -> &Live {
        self.live.as_ref().expect("the relay runs")
    }

    pub(super) fn handle(&self) -> RelayHandle {
        self.live().handle.clone()
    }

    pub(super) fn name(&mut self, letter: char) -> String {
        self.names += 1;
        format!("{letter}{}", self.names)
    }

    /// Starts the relay, and delivers again what was not acknowledged, as a connector does.
    pub(super) async fn open(&mut self) {
        let settings = self.plan.settings(self.dir.path());
        let (repeatable, steers, log) = (self.plan.repeatable, self.plan.steers, Arc::clone(&self.log));
        let agent = |name, inline| Scripted {
            name,
            inline,
            repeatable: repeatable.contains(&name),
            steers,
            log: Arc::clone(&log),
        };
        let builder = || {
            let (transport, connector) = MemoryTransport::pair(descriptors());
            let builder: RelayBuilder = Relay::builder(settings.clone())
                .agent("alpha", agent("alpha", true))
                .agent("beta", agent("beta", false))
                .transport(Arc::new(transport));
            (builder, connector)
        };
        let process = self.process();
        let (relay, connector) = if let Some(sim) = &mut self.sim {
            let (builder, connector) = builder();
            let opened = sim.open(self.dir.path(), process);
            let builder = builder.simulated(sim.now_ms(), sim.seed(process), opened);
            (builder.build().unwrap(), connector)
        } else {
            eventually_within(SOON, "the journal is released", async || {
                let (builder, connector) = builder();
                match builder.build() {
                    Ok(relay) => Some((relay, connector)),
                    Err(BuildError::Journal(OpenError::InUse { .. })) => None,
                    Err(error) => panic!("{error}"),
                }
            })
            .await
        };
        let handle = relay.handle();
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(relay.run(async { drop(stopped.await) }));
        self.live = Some(Live {
            connector,
            handle,
            stop,
            task,
        });
        self.quick.fill(0);
        for index in 0..self.sent.len() {
            if !self.is_acked(index) {
                self.deliver(index).await;
            }
        }
    }

    pub(super) fn is_acked(&self, sent: usize) -> bool {
        self.seen.acked.contains(&self.sent[sent].name)
    }

    /// Delivers something that was sent, for the first time or again.
    pub(super) async fn deliver(&mut self, index: usize) {
        self.count(index);
        let sent = &self.sent[index];
        let delivered = self
            .live()
            .connector
            .deliver_buffered(&sent.name, sent.event.clone())
            .await;
        delivered.unwrap();
    }

    /// The relay sees a message of a person, perhaps again: a loop guard may count it.
    pub(super) fn count(&mut self, index: usize) {
        let (who, kind) = (self.sent[index].who, self.sent[index].kind);
        if !matches!(kind, Kind::Plain | Kind::Typed) {
            return;
        }
        self.quick[who] += 1;
        self.doubt(who);
    }

    /// Everything of a person that is not acknowledged may be refused as a loop.
    pub(super) fn doubt(&mut self, who: usize) {
        if self.quick[who] < QUICK {
            return;
        }
        for sent in &mut self.sent {
            sent.may_be_a_loop |= sent.who == who && !self.seen.acked.contains(&sent.name);
        }
    }

    pub(super) async fn send(&mut self, who: usize, chat: Chat, kind: Kind, text: &str) -> usize {
        let name = self.name('m');
        let text = if kind == Kind::Plain {
            format!("{name} {text}")
        } else {
            text.to_owned()
        };
        let event = event(&self.people[who], &chat, &name, &text);
        self.send_event(who, chat, kind, name, event).await
    }

    pub(super) async fn send_event(
        &mut self,
        who: usize,
        chat: Chat,
        kind: Kind,
        name: String,
        event: Value,
    ) -> usize {
        let session = self.plan.session(&self.people[who], &chat);
        let at = self.log.tick();
        self.note(format!(
            "{at}: {} in {} sends {name}: {}",
            self.people[who].id(),
            chat.target(),
            event["text"]
        ));
        self.sent.push(Sent {
            name,
            kind,
            who,
            chat,
            session: session.clone(),
            at,
            may_be_a_loop: false,
            event,
        });
        if self.plan.interrupts() && kind != Kind::Press {
            self.add_stop(StopOf::Session(session), None);
        }
        self.deliver(self.sent.len() - 1).await;
        self.sent.len() - 1
    }

    /// Reads what the connector has seen, and what requests came to.
    pub(super) async fn look(&mut self) {
        let process = self.process();
        let news = {
            let record = self.live().connector.record();
            let record = record.borrow();
            self.seen.take(&record, process)
        };
        for index in news {
            let shown = &self.seen.shown[index];
            let id = shown
                .text
                .strip_prefix("Added job ")
                .and_then(|rest| rest.split(':').next());
            let made = shown.reply_to.as_deref();
            if let (Some(id), Some(made)) = (id, made)
                && let Some(job) = self.jobs.iter_mut().find(|job| job.name == format!("j{made}"))
            {
                job.id = Some(id.to_owned());
            }
        }
        let (ended, waiting) = std::mem::take(&mut self.waiters)
            .into_iter()
            .partition(|waiter| waiter.task.is_finished());
        self.waiters = waiting;
        for waiter in ended {
            let what = waiter.what.clone();
            let outcome = self.answered(waiter).await;
            assert_ne!(outcome, Outcome::Gone, "a running relay dropped: {what}");
        }
        self.end_stops();
        self.look_at_rules().await;
        self.check_acknowledged();
    }

    /// Something stops turns: the last message that was sent, or a request that was made at this time.
    pub(super) fn add_stop(&mut self, of: StopOf, request: Option<Tick>) {
        self.stops.push(Stop {
            of,
            request,
            after: self.sent.len(),
            until: None,
        });
    }

    fn end_stops(&mut self) {
        let (tick, acked) = (self.log.tick(), &self.seen.acked);
        let first_open = self.sent.iter().position(|sent| !acked.contains(&sent.name));
        for stop in &mut self.stops {
            if stop.request.is_none() && first_open.is_none_or(|open| open >= stop.after) {
                stop.until.get_or_insert(tick);
            }
        }
    }

    pub(super) async fn answered(&mut self, waiter: Waiter) -> Outcome {
        let outcome = waiter.task.await.expect("a waiter does not panic");
        self.note(format!("   {}: {outcome:?}", waiter.what));
        let is_written = match waiter.purpose {
            // Some permissions change nothing that is stored.
            For::Access(who) => self.standings[who].now().is_none(),
            For::Handed(_) | For::Note(_) => true,
            For::Nothing => false,
        };
        if let (Some((Fault::Stalled(_, since), _)), Outcome::Done(..)) = (&self.fault, &outcome)
            && is_written
        {
            assert!(
                waiter.since < *since,
                "{} was confirmed while the journal could not be written",
                waiter.what
            );
        }
        for stop in &mut self.stops {
            stop.request.take_if(|request| *request == waiter.since);
        }
        match waiter.purpose {
            For::Access(who) => match &outcome {
                Outcome::Done(tick, _) => self.standings[who].confirm(*tick),
                Outcome::Refused(_) | Outcome::Gone => self.unsure.push((who, None)),
            },
            For::Handed(index) => self.handed[index].outcome = Some(outcome.clone()),
            For::Note(index) => self.notes[index].outcome = Some(outcome.clone()),
            For::Nothing => {}
        }
        outcome
    }

    /// Asks the relay for the rules of people about whom they are not certain.
    pub(super) async fn look_at_rules(&mut self) {
        let acked = &self.seen.acked;
        let (due, later): (Vec<_>, Vec<_>) = std::mem::take(&mut self.unsure)
            .into_iter()
            .partition(|(_, press)| press.as_ref().is_none_or(|press| acked.contains(press)));
        self.unsure = later;
        if due.is_empty() {
            return;
        }
        let list = timeout(SOON, self.handle().access(AccessRequest::List)).await;
        let list = list.expect("an answer in time").expect("the relay runs").unwrap();
        for (who, _) in due {
            let person = &self.people[who];
            let entries = list["entries"].as_array().unwrap();
            let own = entries.iter().rev().find(|entry| entry["person"] == *person.id());
            let role = match own {
                _ if self.plan.is_denied_in_file(person) => None,
                Some(entry) => serde_json::from_value(entry["role"].clone()).unwrap(),
                None => self.plan.role_in_file(person),
            };
            let tick = self.log.tick();
            self.note(format!("   {} has the role {role:?}", person.id()));
            if self.standings[who].now() != role {
                self.standings[who].ask(tick, role);
            }
            self.standings[who].confirm(tick);
        }
    }

    /// Waits for a request beside the walk; returns when it was made.
    pub(super) fn wait(
        &mut self,
        what: String,
        purpose: For,
        request: impl Future<Output = Outcome> + Send + 'static,
    ) -> Tick {
        let since = self.log.tick();
        self.note(format!("{since}: {what}"));
        self.waiters.push(Waiter {
            what,
            since,
            purpose,
            task: tokio::spawn(request),
        });
        since
    }

    /// Everybody who waits for a relay that is gone learns that.
    pub(super) async fn settle_waiters(&mut self) {
        for mut waiter in std::mem::take(&mut self.waiters) {
            let ended = timeout(SOON, &mut waiter.task).await;
            let ended = ended.unwrap_or_else(|_| panic!("in vain: {}", waiter.what));
            waiter.task = tokio::spawn(async { ended.unwrap() });
            self.answered(waiter).await;
        }
    }

    pub(super) fn is_steady(&self) -> bool {
        self.fault.is_none() && self.down.is_none() && self.holding.is_none()
    }

    /// Lets everything come to its end: what waits goes on, what is asked is answered, what is broken is mended.
    pub(super) async fn settle(&mut self) {
        self.heal_journal().await;
        if self.down.is_some() {
            self.restore();
        }
        if self.holding.is_some() {
            self.answer_ops();
        }
        self.jobs_changed("the end".to_owned());
        let mut attempts: HashMap<usize, usize> = HashMap::new();
        let deadline = tokio::time::Instant::now() + SOON;
        for round in 0.. {
            self.look().await;
            let left = self.left().await;
            if left.is_empty() {
                return;
            }
            assert!(
                tokio::time::Instant::now() < deadline,
                "still outstanding: {left:?}"
            );
            for run in self.log.runs() {
                run.release.cancel();
            }
            for (number, run, shown) in self.questions() {
                let tries = attempts.entry(number).or_default();
                *tries += 1;
                let theirs = self.responder(&run, &shown);
                match (*tries, theirs) {
                    (1, Some(who)) => self.decide_as(number, &run, &shown, who, "no").await,
                    (20, _) => self.stop_session(run.session.clone()).await,
                    _ => {}
                }
            }
            if round % 20 == 19 {
                // Some ends are written with whatever is written next.
                self.jobs_changed("a look at the jobs".to_owned());
            }
            if round % 50 == 49 {
                self.end_stubborn().await;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Questions that are not shown, questions about strangers, and messages that have to come again.
    pub(super) async fn end_stubborn(&mut self) {
        let process = self.process();
        let asking =
            |run: &Run| run.question == Asking::Open && run.ended.is_none() && run.process == process;
        for run in self.log.runs().into_iter().filter(asking) {
            self.stop_session(run.session).await;
        }
        // A question about a code lives on with the code, whichever process asked it.
        let asked = |shown: &&Shown| shown.text.contains(" talk to me?") && !shown.text.contains(['✅', '⏹']);
        let asked: Vec<Shown> = self.seen.shown.iter().filter(asked).cloned().collect();
        for shown in asked {
            let owner = (0..self.people.len()).find(|who| {
                let chat = Chat::direct(&self.people[*who]);
                shown.is_in(chat.platform, &chat.id)
            });
            let Some(who) = owner else { continue };
            let chat = Chat::direct(&self.people[who]);
            if shown.action["op"] == "prompt" {
                self.press(who, chat, &shown, "o1").await;
            } else if let Some(code) = shown.code() {
                let text = format!("/deny {code}");
                self.send(who, chat, Kind::Typed, &text).await;
            }
        }
        self.live().connector.drop_connection();
        self.restore();
    }

    /// What is not at its end yet.
    pub(super) async fn left(&mut self) -> Vec<String> {
        let status = timeout(SOON, self.handle().status()).await;
        let status = status.expect("an answer in time").expect("the relay runs");
        let record = self.live().connector.record().borrow().clone();
        let runs = self.job_runs();
        // A command has no turn: the journal alone knows that it is not answered yet.
        let journal = Inspector::open(self.dir.path()).unwrap();
        let rows = journal.list(Section::Unfinished, 0, 3).unwrap();
        let open = |runs: &[RunRow]| runs.iter().filter(|run| run.ended_at.is_none()).count();
        let counts = [
            ("turns running", status.turns_running),
            ("sessions active", status.sessions_active),
            ("messages waiting", status.messages_waiting),
            ("questions open", status.prompts_open),
            ("durable ops", status.ops_durable),
            ("ends uncommitted", status.ends_uncommitted),
            ("ephemeral ops", status.ops_ephemeral),
            ("jobs running", status.cron.running),
            ("jobs waiting", status.cron.waiting),
            ("job runs not ended", open(&runs)),
            ("ops in flight", record.in_flight),
            ("messages unacknowledged", record.unacknowledged),
            ("a failing journal", usize::from(status.journal_failing.is_some())),
            ("people unsure", self.unsure.len()),
        ];
        let mut left: Vec<String> = counts
            .iter()
            .filter(|(_, count)| *count > 0)
            .map(|(what, count)| format!("{what}: {count}"))
            .collect();
        let rows = rows.iter();
        left.extend(rows.map(|row| format!("in the journal: {row:?}")));
        left.extend(
            self.waiters
                .iter()
                .map(|waiter| format!("waiter: {}", waiter.what)),
        );
        left
    }
}

/// Steps are shared with whoever reports a failure.
pub(super) fn steps() -> Steps {
    Arc::new(Mutex::new(Vec::new()))
}
