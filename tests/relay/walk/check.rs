//! The promises of the relay, held against everything that a walk has seen.

use std::collections::HashMap;

use hermes_relay::access::Role;
use hermes_relay::agent::PromptAnswer;
use hermes_relay::relay::Tally;
use hermes_relay::store::{Inspector, Item, JobRunStatus, RunRow, Section};

use super::agent::{Asking, How, Run, Tick};
use super::course::{Handed, HandedAs, JobRecord, Kind, Outcome, Sent, StopOf, Walk};
use super::seen::Shown;
use super::world::{CUT_SHORT, HOME};

/// A message in the journal: its number, and how it ended.
type Row = (i64, &'static str);

/// What the checks look at, once everything has come to its end.
struct Facts<'w> {
    walk: &'w Walk,
    runs: Vec<Run>,
    steered: Vec<(Tick, String)>,
    rows: HashMap<String, Row>,
    job_runs: Vec<RunRow>,
    end: Tick,
}

/// Checks a walk that has come to rest, and ends its relay.
pub(super) async fn check(walk: &mut Walk) {
    let status = walk.handle().status().await.expect("the relay runs");
    let process = *walk.log.process.lock().unwrap();
    check_counts(&status.tally, &walk.log.runs(), process);
    let job_runs = walk.job_runs();
    walk.stop().await;
    let journal = Inspector::open(walk.dir.path()).unwrap();
    let unfinished = journal.list(Section::Unfinished, 0, 9).unwrap();
    assert!(unfinished.is_empty(), "unfinished: {unfinished:?}");
    let ops = journal.list(Section::Ops, 0, 9).unwrap();
    assert!(ops.is_empty(), "not delivered: {ops:?}");
    let finished = journal.list(Section::Finished, 0, 99_999).unwrap();
    let mut rows = HashMap::new();
    for row in finished {
        if let (Item::Message(seq), Some(id)) = (row.item, row.name) {
            // It may have been accepted when it came again under another id.
            let name = id.split('~').next().unwrap_or_default().to_owned();
            let before = rows.insert(name.clone(), (seq.0, row.state));
            assert!(before.is_none(), "{name} is in the journal twice");
        }
    }
    let facts = Facts {
        runs: walk.log.runs(),
        steered: walk.log.steered.lock().unwrap().clone(),
        rows,
        job_runs,
        end: walk.log.tick(),
        walk,
    };
    facts.check_order();
    facts.check_access();
    facts.check_questions();
    facts.check_places();
    for sent in &walk.sent {
        facts.check_message(sent);
    }
    for job in &walk.jobs {
        facts.check_job(job);
    }
    for handed in &walk.handed {
        facts.check_handed(handed);
    }
    facts.check_contexts();
    facts.check_notes();
}

/// Every turn that an agent was given has ended, once.
fn check_counts(tally: &Tally, runs: &[Run], process: usize) {
    let ended = |wanted: &[How]| {
        let own = runs.iter().filter(|run| run.process == process);
        let how = |run: &&Run| run.ended.is_some_and(|(_, how)| wanted.contains(&how));
        own.filter(how).count() as u64
    };
    let all = runs.iter().filter(|run| run.process == process).count() as u64;
    // Some were stopped before their agent had them.
    let ended_all = tally.turns_done + tally.turns_failed + tally.turns_stopped;
    assert!(
        (all..=ended_all).contains(&tally.turns_started),
        "{all} runs, {tally:?}"
    );
    assert_eq!(tally.turns_done, ended(&[How::Answered]), "turns done, {tally:?}");
    assert_eq!(
        tally.turns_failed,
        ended(&[How::Failed, How::Panicked]),
        "turns failed, {tally:?}"
    );
    assert!(
        tally.turns_stopped >= ended(&[How::Stopped, How::Dropped]),
        "turns stopped, {tally:?}"
    );
}

impl Facts<'_> {
    /// The message of this name.
    fn sent(&self, name: &str) -> Option<&Sent> {
        self.walk.sent.iter().find(|sent| sent.name == name)
    }

    fn job(&self, name: &str) -> Option<&JobRecord> {
        self.walk.jobs.iter().find(|job| job.name == name)
    }

    fn handed(&self, name: &str) -> Option<&Handed> {
        self.walk.handed.iter().find(|handed| handed.name == name)
    }

    /// The agent's runs for something, with their numbers.
    fn runs_of<'f>(&'f self, name: &'f str) -> impl Iterator<Item = (usize, &'f Run)> {
        let runs = self.runs.iter().enumerate();
        runs.filter(move |(_, run)| run.name == name)
    }

    /// The messages that show the answer of a run. The one that rings after a long turn repeats its beginning.
    fn answers(&self, number: usize) -> Vec<&Shown> {
        let text = self.runs[number].answer(number);
        self.walk
            .seen
            .shown
            .iter()
            .filter(|shown| shown.text.contains(&text) && !shown.text.starts_with("Done after "))
            .collect()
    }

    /// Whether there was a reason for a turn of this session or author to stop since then.
    fn was_stopped(&self, session: &str, who: Option<usize>, since: Tick) -> bool {
        self.walk.stops.iter().any(|stop| {
            stop.until.is_none_or(|until| until >= since)
                && match &stop.of {
                    StopOf::Session(stopped) => stopped == session,
                    StopOf::Person(stopped) => Some(*stopped) == who,
                }
        })
    }

    fn was_restarted(&self, since: Tick) -> bool {
        // The last one is the end of the walk, when nothing ran any more.
        let restarts = &self.walk.restarts[..self.walk.restarts.len() - 1];
        restarts.iter().any(|at| *at >= since)
    }

    /// Checks that an answer is shown: once, or at least once where a growing message may have been lost.
    fn check_shown(&self, what: &str, count: usize) {
        let may_repeat = self.walk.plan.streams && self.walk.losses > 0;
        assert!(
            count == 1 || (count > 1 && may_repeat),
            "{what} is shown {count} times"
        );
    }

    /// Turns of a session run one at a time, in the order in which their messages were accepted.
    fn check_order(&self) {
        let mut last: HashMap<&str, (usize, i64)> = HashMap::new();
        for (number, run) in self.runs.iter().enumerate() {
            let (ended, _) = run
                .ended
                .unwrap_or_else(|| panic!("run {number} has not ended: {run:?}"));
            assert!(ended > run.began);
            // A message that was kept until its author was approved was accepted again then.
            let row = self.rows.get(&run.name).filter(|row| row.1 != "ignored");
            // A wake passes what waits.
            let is_wake = |handed: &Handed| handed.how == HandedAs::Wake;
            let row = row.filter(|_| !self.handed(&run.name).is_some_and(is_wake));
            let row = row.map_or(0, |row| row.0);
            let before = last.get(run.session.as_str()).copied();
            if let Some((before, row_before)) = before {
                let (ended, _) = self.runs[before].ended.unwrap_or((Tick::MAX, How::Dropped));
                assert!(
                    ended < run.began,
                    "runs {before} and {number} of {} overlap",
                    run.session
                );
                assert!(
                    row == 0 || row >= row_before,
                    "run {number} of {} comes too late: {} was accepted before {}",
                    run.session,
                    run.name,
                    self.runs[before].name
                );
            }
            let row = if row == 0 {
                before.map_or(0, |before| before.1)
            } else {
                row
            };
            last.insert(&run.session, (number, row));
        }
    }

    /// Nobody who is not let in causes anything.
    fn check_access(&self) {
        for (number, run) in self.runs.iter().enumerate() {
            let author = match (self.sent(&run.name), self.job(&run.name)) {
                (Some(sent), _) => Some(sent.who),
                (_, Some(job)) => job.author,
                _ => None,
            };
            if let Some(who) = author {
                assert!(
                    self.walk.standings[who].may_have_been_in(run.began),
                    "{} started run {number} for {} at {} without access",
                    self.walk.people[who].id(),
                    run.name,
                    run.began
                );
            }
        }
        for (at, name) in &self.steered {
            let sent = self.sent(name).expect("a message was steered");
            assert!(
                self.walk.standings[sent.who].may_have_been_in(*at),
                "{} steered {name} without access",
                self.walk.people[sent.who].id()
            );
        }
    }

    /// A question that was allowed was allowed by somebody who may.
    fn check_questions(&self) {
        for (number, run) in self.runs.iter().enumerate() {
            let Asking::Answered(at, PromptAnswer::Chosen(choice)) = &run.question else {
                continue;
            };
            // Denials come by themselves, too.
            if choice != "yes" {
                continue;
            }
            let explains = |attempt: &super::course::Attempt| {
                let may = |role| match role {
                    Some(Role::Owner) => true,
                    Some(Role::User) => !attempt.needs_owner,
                    Some(Role::Guest) | None => false,
                };
                attempt.run == number
                    && attempt.choice == "yes"
                    && attempt.at < *at
                    && attempt.is_theirs
                    && self.walk.standings[attempt.who].may_have_been(attempt.at, *at, may)
            };
            assert!(
                self.walk.attempts.iter().any(explains),
                "nobody who may has allowed what run {number} for {} asked: {:?}",
                run.name,
                self.walk.attempts
            );
        }
    }

    /// Every agent works for the chat that its turn came from, and every answer goes there.
    fn check_places(&self) {
        for (number, run) in self.runs.iter().enumerate() {
            if let Some(sent) = self.sent(&run.name) {
                let person = &self.walk.people[sent.who];
                assert_eq!(
                    (run.platform.as_str(), run.chat.as_str(), run.session.as_str()),
                    (sent.chat.platform, sent.chat.id.as_str(), sent.session.as_str()),
                    "run {number} for {}",
                    run.name
                );
                assert_eq!(run.author.as_deref(), Some(person.user), "run {number}");
            }
        }
        for shown in &self.walk.seen.shown {
            let Some((name, number)) = shown.about() else {
                if let Some(sent) = shown.reply_to.as_deref().and_then(|name| self.sent(name)) {
                    assert!(
                        shown.is_in(sent.chat.platform, &sent.chat.id),
                        "a reply to {} went astray: {shown:?}",
                        sent.name
                    );
                }
                continue;
            };
            assert_eq!(self.runs[number].name, name, "{shown:?}");
            if shown.is_question() && self.walk.plan.asks_owners() {
                // It may be in the direct message of any owner.
                continue;
            }
            let is_right = if let Some(sent) = self.sent(name) {
                shown.is_in(sent.chat.platform, &sent.chat.id)
            } else if let Some(job) = self.job(name) {
                let mut targets = job.targets.iter();
                targets.any(|target| shown.is_in(target.platform, &target.id))
            } else if let Some(handed) = self.handed(name) {
                Self::is_place_of(handed, shown)
            } else {
                false
            };
            assert!(is_right, "an answer or a question went astray: {shown:?}");
        }
    }

    fn is_place_of(handed: &Handed, shown: &Shown) -> bool {
        let is_home = shown.is_in(HOME.0, HOME.1);
        match &handed.chat {
            Some((chat, true)) => shown.is_in(chat.platform, &chat.id),
            Some((chat, false)) => is_home || shown.is_in(chat.platform, &chat.id),
            None => is_home,
        }
    }

    /// Only an agent that does nothing but answer is followed by another run.
    fn check_repeated(&self, name: &str, runs: &[(usize, &Run)]) {
        let mut before_last = runs.iter().rev().skip(1);
        let is_harmless = |(_, run): &(usize, &Run)| self.walk.plan.repeatable.contains(&run.agent);
        assert!(before_last.all(is_harmless), "{name} ran twice: {runs:?}");
    }

    /// What was acknowledged was answered, refused for a reason, stopped for a reason, or reported as interrupted.
    fn check_message(&self, sent: &Sent) {
        let name = &sent.name;
        let seen = &self.walk.seen;
        assert!(seen.acked.contains(name), "{name} was not acknowledged");
        let Some((_, state)) = self.rows.get(name) else {
            panic!("{name} was acknowledged and lost");
        };
        let standing = &self.walk.standings[sent.who];
        let runs: Vec<(usize, &Run)> = self.runs_of(name).collect();
        let is_for_agent = sent.kind == Kind::Plain || (sent.kind == Kind::Typed && !runs.is_empty());
        self.check_repeated(name, &runs);
        let last = runs.last().and_then(|(_, run)| run.ended).map(|(_, how)| how);
        let notices = |text: &str| {
            seen.replies(name)
                .filter(|shown| shown.text.contains(text))
                .count()
        };
        let is_steered = is_for_agent && self.steered.iter().any(|(_, steered)| steered == name);
        // What an agent has that does nothing but answer may run after a kill.
        let is_harmless = |(_, run): &(usize, &Run)| self.walk.plan.repeatable.contains(&run.agent);
        assert!(
            !is_steered || runs.iter().all(is_harmless),
            "{name} was steered and ran"
        );
        match *state {
            "done" if is_steered && runs.is_empty() => {}
            "done" if is_for_agent => {
                assert_eq!(last, Some(How::Answered), "{name} is done: {runs:?}");
                let (number, _) = runs[runs.len() - 1];
                self.check_shown(&format!("the answer to {name}"), self.answers(number).len());
            }
            "done" if matches!(sent.kind, Kind::Command | Kind::Inquiry) => {
                // A question to an owner replies to whatever the owner wrote last.
                let answers = seen.replies(name).filter(|shown| !shown.is_question()).count();
                self.check_shown(&format!("the answer to {name}"), answers);
            }
            "done" => {}
            "failed" => {
                let text = match last {
                    Some(How::Failed) => format!("failed {name} run {}.", runs[runs.len() - 1].0),
                    Some(How::Panicked) => "Something went wrong inside the agent.".to_owned(),
                    other => panic!("{name} failed: {other:?}"),
                };
                self.check_shown(&format!("the failure of {name}"), notices(&text));
            }
            "stopped" => {
                assert!(
                    matches!(last, None | Some(How::Stopped | How::Dropped)),
                    "{name} was stopped: {last:?}"
                );
                assert!(
                    self.was_stopped(&sent.session, Some(sent.who), sent.at),
                    "nobody stopped {name}"
                );
            }
            "interrupted" => {
                assert!(self.was_restarted(sent.at), "{name} was interrupted by nothing");
                let is_refused = standing.may_have_been(sent.at, self.end, |role| role.is_none());
                if notices(CUT_SHORT) != 1 {
                    assert!(
                        is_refused,
                        "{name} was cut short, and its chat does not learn that"
                    );
                }
            }
            "ignored" => {
                let is_refused = standing.may_have_been(sent.at, self.end, |role| match sent.kind {
                    Kind::Plain | Kind::Inquiry => role.is_none(),
                    Kind::Command | Kind::Press | Kind::Typed => matches!(role, None | Some(Role::Guest)),
                });
                // An answer that decides nothing is ignored.
                let decides_nothing = matches!(sent.kind, Kind::Press | Kind::Typed);
                assert!(
                    is_refused || decides_nothing || sent.may_be_a_loop,
                    "{name} was refused for no reason"
                );
                // What a stranger wrote in a direct message runs once they are approved, as a row of its own.
                let may_be_kept = self.walk.plan.is_pairing() && is_for_agent && !sent.chat.is_group;
                assert!(
                    runs.is_empty() || may_be_kept || self.was_restarted(sent.at),
                    "{name} was refused and ran"
                );
            }
            other => panic!("{name} ended as {other}"),
        }
    }

    /// The runs of a job are all ended, each with what its targets learn of it.
    fn check_job(&self, job: &JobRecord) {
        let Some(id) = &job.id else { return };
        let name = &job.name;
        let rows: Vec<&RunRow> = self.job_runs.iter().filter(|row| row.job == *id).collect();
        if !job.may_be_removed {
            assert_eq!(rows.len(), job.asked.len(), "{name}: {rows:?}");
        }
        let count = |wanted: JobRunStatus| rows.iter().filter(|row| row.status == wanted).count();
        let answered: Vec<usize> = self
            .runs_of(name)
            .filter(|(_, run)| run.ended.is_some_and(|(_, how)| how == How::Answered))
            .map(|(number, _)| number)
            .collect();
        let begun = rows.iter().filter(|row| row.began_at.is_some()).count();
        assert!(
            self.runs_of(name).count() <= begun,
            "{name} ran more often than it was asked to"
        );
        for row in &rows {
            let error = row.error.as_deref().unwrap_or_default();
            if error.contains("no access") {
                let who = job.author.expect("only people lose access");
                let since = job.asked.iter().min().copied().unwrap_or_default();
                assert!(
                    self.walk.standings[who].may_have_been(since, self.end, |role| role.is_none()),
                    "{name} of {} was refused for no reason",
                    self.walk.people[who].id()
                );
            }
            if error.contains("stopped") && !error.contains("the relay") {
                let since = job.asked.iter().min().copied().unwrap_or_default();
                let session = format!("cron:{id}");
                assert!(
                    self.was_stopped(&session, job.author, since),
                    "nobody stopped {name}"
                );
            }
            assert_eq!(row.delivery_error, None, "{name}");
        }
        // Nobody is told of a job that is gone.
        if job.may_be_removed {
            return;
        }
        let is_silent = |row: &&&RunRow| row.error.as_deref() == Some("it was stopped");
        let unreported = rows.iter().filter(is_silent).count();
        let failures = count(JobRunStatus::Failed) + count(JobRunStatus::Unknown) - unreported;
        let completed = if job.word == "silent" {
            0
        } else {
            count(JobRunStatus::Completed)
        };
        for target in &job.targets {
            let here = |shown: &&&Shown| shown.is_in(target.platform, &target.id);
            let shown = |number: &usize| self.answers(*number).iter().filter(here).count();
            let answers: usize = answered.iter().map(shown).sum();
            assert_eq!(answers, completed, "answers of {name} in {}", target.target());
            let text = format!("({id}) failed: ");
            let failed = self.walk.seen.with(&text);
            let failed = failed
                .filter(|shown| shown.is_in(target.platform, &target.id))
                .count();
            assert_eq!(
                failed,
                failures,
                "failures of {name} in {}: {rows:?}",
                target.target()
            );
        }
    }

    /// What was handed over and confirmed has run, once, and its answer is where it belongs.
    fn check_handed(&self, handed: &Handed) {
        let name = &handed.name;
        let runs: Vec<(usize, &Run)> = self.runs_of(name).collect();
        self.check_repeated(name, &runs);
        for (number, run) in &runs {
            assert_ne!(handed.how, HandedAs::Context, "{name} is context and ran");
            let session = handed.own_session();
            assert_eq!(
                (run.session.as_str(), run.agent),
                (session.as_str(), handed.agent)
            );
            assert!(run.ended.is_some(), "run {number} for {name}");
        }
        let last = runs.last().and_then(|(_, run)| run.ended).map(|(_, how)| how);
        let outcome = handed
            .outcome
            .as_ref()
            .unwrap_or_else(|| panic!("nobody answered {name}"));
        if let (HandedAs::Question, Outcome::Done(_, text)) = (handed.how, outcome) {
            let (number, run) = runs[runs.len() - 1];
            assert_eq!(last, Some(How::Answered), "{name} was answered");
            assert!(
                text.contains(&run.answer(number)),
                "{name} was answered with {text}"
            );
        }
        let is_stored = match (handed.how, outcome) {
            (HandedAs::Context, _) => return,
            (HandedAs::Question, Outcome::Refused(why)) => why.contains("without an answer"),
            (_, Outcome::Done(..)) => true,
            (_, Outcome::Refused(_) | Outcome::Gone) => false,
        };
        let session = handed.own_session();
        let was_cut = self.was_restarted(handed.at);
        let was_stopped = self.was_stopped(&session, None, handed.at);
        match last {
            None if is_stored => assert!(was_cut || was_stopped, "{name} was confirmed and never ran"),
            Some(How::Stopped) => assert!(was_cut || was_stopped, "nobody stopped {name}"),
            Some(How::Dropped) => assert!(was_cut || was_stopped, "{name} was dropped"),
            Some(How::Answered) => {
                let (number, _) = runs[runs.len() - 1];
                let shown = self.answers(number).len();
                // Whoever waits for an answer has it; without a chat nobody else gets it.
                let has_waited = handed.how == HandedAs::Question;
                let is_hidden = has_waited && !matches!(handed.chat, Some((_, true)));
                if !was_cut && !is_hidden {
                    self.check_shown(&format!("the answer to {name}"), shown);
                }
                assert!(
                    shown <= 1 || self.walk.plan.streams,
                    "{name} is shown {shown} times"
                );
            }
            Some(How::Failed) => {
                let (number, _) = runs[runs.len() - 1];
                let text = format!("failed {name} run {number}.");
                let is_hidden = handed.how == HandedAs::Question && !matches!(handed.chat, Some((_, true)));
                if !was_cut && !is_hidden {
                    self.check_shown(
                        &format!("the failure of {name}"),
                        self.walk.seen.with(&text).count(),
                    );
                }
            }
            Some(How::Panicked) | None => {}
        }
        let last_agent = runs.last().map(|(_, run)| &run.agent);
        let is_repeated = last_agent.is_some_and(|agent| self.walk.plan.repeatable.contains(agent));
        // What is to run again can be stopped before it does.
        let is_stopped_before = is_repeated && was_stopped;
        if was_cut && is_stored && last == Some(How::Dropped) && !is_stopped_before {
            let told = self
                .walk
                .seen
                .with(CUT_SHORT)
                .any(|shown| Self::is_place_of(handed, shown));
            assert!(told, "{name} was cut short, and nobody learns that");
        }
    }

    /// Context reaches turns of its own session and agent; one of them that ends well, and no other after that.
    fn check_contexts(&self) {
        for run in &self.runs {
            for text in &run.contexts {
                let name = text.strip_prefix("ctx ").unwrap_or(text);
                let handed = self
                    .handed(name)
                    .unwrap_or_else(|| panic!("{text} was never handed over"));
                let own = handed.own_session();
                assert_eq!(
                    (own.as_str(), handed.agent),
                    (run.session.as_str(), run.agent),
                    "{text} went astray"
                );
            }
        }
        for handed in &self.walk.handed {
            let (HandedAs::Context, Some(Outcome::Done(since, _))) = (handed.how, &handed.outcome) else {
                continue;
            };
            let text = format!("ctx {}", handed.name);
            let session = handed.own_session();
            let given = |run: &&Run| run.contexts.contains(&text);
            let answered = |run: &&Run| run.ended.is_some_and(|(_, how)| how == How::Answered);
            let own = || {
                let runs = self.runs.iter();
                runs.filter(|run| run.session == session && run.agent == handed.agent)
            };
            let reached = own().filter(given).filter(answered).count();
            assert!(
                reached <= 1 || self.was_restarted(*since),
                "{text} was given again after it was answered"
            );
            // A turn may have begun before, although its agent came later.
            let is_later = |run: &&Run| {
                let message = self.sent(&run.name).map(|sent| sent.at);
                let at = message.or_else(|| self.handed(&run.name).map(|handed| handed.at));
                at.is_some_and(|at| at > *since)
            };
            let later = own().find(is_later);
            if let Some(later) = later.filter(|_| own().find(given).is_none()) {
                panic!("{text} was not given to the next turn: {later:?}");
            }
        }
    }

    fn check_notes(&self) {
        for note in &self.walk.notes {
            let shown: Vec<&Shown> = self.walk.seen.with(&note.text).collect();
            let here = shown
                .iter()
                .all(|shown| shown.is_in(note.chat.platform, &note.chat.id));
            assert!(here, "{} went astray: {shown:?}", note.text);
            match note
                .outcome
                .as_ref()
                .unwrap_or_else(|| panic!("nobody answered {}", note.text))
            {
                Outcome::Done(..) => assert_eq!(shown.len(), 1, "{}", note.text),
                Outcome::Refused(_) => assert_eq!(shown.len(), 0, "{}", note.text),
                Outcome::Gone => assert!(shown.len() <= 1, "{}", note.text),
            }
        }
    }
}
