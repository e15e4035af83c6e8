//! Random walks: every question ends exactly once, and never by somebody who may not.

use std::collections::{HashMap, HashSet};

use super::*;

/// A small seeded generator: chance comes in as a number.
struct Rng(u64);

impl Rng {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % bound
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }
}

const PEOPLE: [&str; 3] = ["ann", "bob", "cyd"];
const SESSIONS: [&str; 2] = ["s0", "s1"];
const REPLIES: [&str; 10] = [
    "1",
    "2",
    "3",
    "9",
    "/approve",
    "/approve always",
    "/approve A1",
    "/approve A2",
    "/deny",
    "hello",
];

/// What the walk knows of a question.
struct Known {
    author: &'static str,
    session: &'static str,
    group: bool,
    deadline: Duration,
    /// Whether the op that shows it has no outcome yet.
    sending: bool,
    /// When it became visible.
    shown_at: Option<Duration>,
    /// How it is approved by its code.
    by_code: String,
}

impl Known {
    /// Whether people had time to read it.
    fn is_old(&self, now: Duration) -> bool {
        self.shown_at.is_some_and(|at| now >= at + secs(2))
    }
}

#[derive(Default)]
struct WalkTotals {
    pressed: usize,
    typed: usize,
    named: usize,
    timed_out: usize,
    cancelled: usize,
    expired_by_press: usize,
    not_allowed: usize,
    late_edits: usize,
    fallbacks: usize,
    full: usize,
}

struct PromptWalk {
    prompts: Prompts,
    open: HashMap<QuestionId, (PromptId, Known)>,
    ended: HashSet<QuestionId>,
    /// Every question ever.
    minted: Vec<(QuestionId, PromptId)>,
    asked: u64,
    now: Duration,
    tally: WalkTotals,
}

impl PromptWalk {
    /// A question ended; it must have been open, and it is no longer.
    fn end(&mut self, resolution: &Resolution) -> Known {
        assert!(self.ended.insert(resolution.id), "ended twice");
        let (_, known) = self.open.remove(&resolution.id).expect("it was open");
        if let Decision::Chosen(index) = resolution.decision {
            assert!(
                index < 3 && (index != 1 || !known.group),
                "an answer that was not offered"
            );
        }
        known
    }

    fn ask(&mut self, rng: &mut Rng, descriptors: &[CapabilityDescriptor; 2]) {
        self.asked += 1;
        let (author, group) = (rng.pick(&PEOPLE), rng.below(2) == 0);
        let session = rng.pick(&SESSIONS);
        let descriptor = &descriptors[rng.below(2)];
        let mut asked = request(self.asked, if group { "group" } else { "dm" });
        asked.author = Some(author.to_owned());
        asked.session = SessionKey::from_text(session.to_owned());
        asked.timeout = rng.pick(&[None, Some(secs(20))]);
        let wait = if asked.timeout.is_some() { 15 } else { 40 };
        match self.prompts.open(asked, &on(Some(descriptor)), self.now) {
            Ok(opened) => {
                let key = QuestionId(self.asked);
                self.minted.push((key, opened.prompt.clone()));
                let known = Known {
                    author,
                    session,
                    group,
                    deadline: self.now + secs(wait),
                    sending: true,
                    shown_at: None,
                    by_code: format!("/approve {}", code(&opened.op.action)),
                };
                self.open.insert(key, (opened.prompt, known));
            }
            Err(NotOpened::Full) => {
                assert_eq!(self.open.len(), 4);
                self.tally.full += 1;
            }
            Err(other) => panic!("{other}"),
        }
    }

    fn press(&mut self, rng: &mut Rng) {
        let Some((key, prompt)) = (!self.minted.is_empty()).then(|| rng.pick(&self.minted)) else {
            return;
        };
        let by = rng.pick(&PEOPLE);
        let mut press = press(&prompt, &format!("o{}", rng.below(4)), by);
        let foreign = rng.below(8) == 0;
        if foreign {
            press.prompt_id.replace_range(..6, "000000");
        }
        let elsewhere = rng.below(8) == 0;
        if elsewhere {
            press.chat.chat = "elsewhere".into();
        }
        let was_open = self.open.contains_key(&key);
        match self.prompts.press(&press, self.now) {
            PressResult::Resolved(resolution) => {
                assert!(!foreign && !elsewhere && was_open && resolution.id == key);
                let known = self.end(&resolution);
                assert!(known.author == by && known.deadline > self.now);
                self.tally.pressed += 1;
            }
            PressResult::Expired { resolution, .. } => {
                assert!(!foreign && !elsewhere && was_open == resolution.is_some());
                if let Some(resolution) = resolution {
                    assert_eq!(resolution.decision, Decision::TimedOut);
                    assert!(self.end(&resolution).deadline <= self.now);
                    self.tally.expired_by_press += 1;
                }
            }
            PressResult::NotOurs => assert!(foreign),
            PressResult::Repeated => assert!(!foreign && !was_open),
            PressResult::NotAllowed(_) => {
                assert!(!foreign && was_open && (elsewhere || self.open[&key].1.author != by));
                self.tally.not_allowed += 1;
            }
            PressResult::NoSuchOption => panic!("these are approvals"),
        }
    }

    fn write(&mut self, rng: &mut Rng) {
        let (by, session, mut reply) = (
            rng.pick(&PEOPLE),
            rng.pick(&SESSIONS),
            rng.pick(&REPLIES).to_owned(),
        );
        if rng.below(4) == 0
            && !self.minted.is_empty()
            && let Some((_, known)) = self.open.get(&rng.pick(&self.minted).0)
        {
            reply.clone_from(&known.by_code);
        }
        let key = SessionKey::from_text(session.to_owned());
        let may_mean = |known: &Known| {
            known.author == by
                && known.session == session
                && known.deadline > self.now
                && !known.sending
                && known.is_old(self.now)
        };
        let meant = self.open.values().filter(|(_, known)| may_mean(known)).count();
        let Some(resolution) = type_answer(&mut self.prompts, &key, by, &reply, self.now) else {
            return;
        };
        assert!(reply != "hello" && reply != "9");
        let known = self.end(&resolution);
        assert!(known.author == by && known.deadline > self.now);
        assert!(!known.sending, "nobody has seen it");
        if reply == known.by_code {
            self.tally.named += 1;
            return;
        }
        assert!(!reply.starts_with("/approve A"), "another one's code");
        assert!(known.session == session && known.is_old(self.now));
        // Numbers fit only some questions, commands all of these.
        assert!(meant == 1 || !reply.starts_with('/'), "one of {meant}");
        self.tally.typed += 1;
    }

    fn settle(&mut self, rng: &mut Rng) {
        let Some((key, prompt)) = (!self.minted.is_empty()).then(|| rng.pick(&self.minted)) else {
            return;
        };
        let outcome = rng.pick(&[
            applied("m"),
            applied("m"),
            refused("x"),
            refused("egress_declined"),
            Outcome::Unknown,
        ]);
        if let Some((_, known)) = self.open.get_mut(&key)
            && !std::mem::take(&mut known.sending)
        {
            return;
        }
        if let Some((_, known)) = self.open.get_mut(&key)
            && !matches!(outcome, Outcome::Refused { .. })
        {
            known.shown_at = Some(self.now);
        }
        match self.prompts.op_finished(&prompt, &outcome, self.now) {
            PromptStep::Nothing => {}
            PromptStep::Show(_) => {
                assert_eq!(outcome, refused("x"));
                self.open.get_mut(&key).expect("it is open").1.sending = true;
                self.tally.fallbacks += 1;
            }
            PromptStep::Edit(_) => {
                assert!(self.ended.contains(&key));
                self.tally.late_edits += 1;
            }
            PromptStep::Resolved(resolution) => {
                assert_eq!(resolution.decision, Decision::Cancelled);
                self.end(&resolution);
                self.tally.cancelled += 1;
            }
        }
    }

    fn pass_time(&mut self, rng: &mut Rng) {
        self.now += secs(rng.below(16) as u64);
        if rng.below(2) == 0 {
            return;
        }
        for resolution in self.prompts.expire(self.now) {
            assert_eq!(resolution.decision, Decision::TimedOut);
            assert!(self.end(&resolution).deadline <= self.now);
            self.tally.timed_out += 1;
        }
        self.prompts.remind(self.now);
        assert!(self.prompts.poll_timeout().is_none_or(|next| next > self.now));
    }

    fn withdraw(&mut self, rng: &mut Rng) {
        let session = rng.pick(&SESSIONS);
        let of_session = rng.below(2) == 0;
        let one = QuestionId(rng.below(20) as u64);
        let open = self
            .open
            .iter()
            .filter(|(_, (_, known))| known.session == session);
        let ids: Vec<QuestionId> = if of_session {
            open.map(|(id, _)| *id).collect()
        } else {
            vec![one]
        };
        for resolution in ids
            .into_iter()
            .filter_map(|id| self.prompts.withdraw(id))
            .collect::<Vec<_>>()
        {
            assert_eq!(resolution.decision, Decision::Cancelled);
            self.end(&resolution);
            self.tally.cancelled += 1;
        }
    }

    fn step(&mut self, rng: &mut Rng, descriptors: &[CapabilityDescriptor; 2]) {
        match rng.below(16) {
            0..4 => self.ask(rng, descriptors),
            4..8 => self.press(rng),
            8..11 => self.write(rng),
            11..13 => self.settle(rng),
            13..15 => self.pass_time(rng),
            _ => self.withdraw(rng),
        }
        assert_eq!(self.prompts.count(), self.open.len());
        let next = self.open.values().map(|(_, known)| known.deadline).min();
        // Reminders come earlier.
        let due = self.prompts.poll_timeout();
        assert!(due.is_some() == next.is_some() && due <= next);
    }
}

#[test]
fn every_question_ends_once_and_never_by_a_stranger() {
    let descriptors = [descriptor(&["send", "prompt"]), descriptor(&["send"])];
    let mut total = [0; 10];
    for seed in 0..10_000 {
        let mut rng = Rng(seed);
        let settings = PromptSettings {
            timeout_secs: 40,
            max_open: 4,
            remembered: 3,
            ..PromptSettings::default()
        };
        let mut walk = PromptWalk {
            prompts: Prompts::new(settings, NONCE, u32::try_from(seed).unwrap()),
            open: HashMap::new(),
            ended: HashSet::new(),
            minted: Vec::new(),
            asked: 0,
            now: secs(0),
            tally: WalkTotals::default(),
        };
        for _ in 0..60 {
            walk.step(&mut rng, &descriptors);
        }
        for resolution in walk.prompts.expire(walk.now + secs(40)) {
            walk.end(&resolution);
        }
        assert!(walk.open.is_empty() && walk.prompts.is_empty(), "seed {seed}");
        assert_eq!(walk.ended.len(), walk.minted.len(), "seed {seed}");
        let t = &walk.tally;
        let seen = [
            t.pressed,
            t.typed,
            t.named,
            t.timed_out,
            t.cancelled,
            t.expired_by_press,
            t.not_allowed,
            t.late_edits,
            t.fallbacks,
            t.full,
        ];
        for (sum, seen) in total.iter_mut().zip(seen) {
            *sum += seen;
        }
    }
    assert!(total.iter().all(|seen| *seen > 500), "went nowhere: {total:?}");
}
