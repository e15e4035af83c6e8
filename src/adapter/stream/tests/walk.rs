//! Thousands of turns with random texts, delays and failures, against a chat that does what the ops say.

use std::collections::BTreeMap;

use super::super::{PlannedOp, StreamMode};
use super::*;
use crate::wire::LenUnit;

const WALKS: u64 = 10_000;
const CURSOR: char = '\u{2589}';
/// The language of every fence: a letter that no word has.
const LANGUAGE: char = '\u{416}';

/// Chance from a seed.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }

    fn pick<T: Copy>(&mut self, among: &[T]) -> T {
        among[usize::try_from(self.below(among.len() as u64)).unwrap()]
    }
}

/// Which failures a walk meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Weather {
    Fair,
    /// Refusals, losses before sending, missing ids: everything whose meaning is certain.
    Rough,
    /// Also fates that are not known, and ends that do not wait.
    Foggy,
    /// Also declines.
    Hostile,
}

/// The chat as people see it.
#[derive(Debug, Default)]
struct FakeChat {
    replies: Vec<(String, String)>,
    asides: BTreeMap<String, String>,
    streams: BTreeMap<u64, String>,
    made: u64,
}

impl FakeChat {
    /// Does what an op says; returns the message.
    fn apply(&mut self, action: &Action) -> String {
        match action {
            Action::Send {
                content, reply_to, ..
            } => {
                self.made += 1;
                let id = format!("m{}", self.made);
                if reply_to.is_some() {
                    self.replies.push((id.clone(), content.clone()));
                } else {
                    self.asides.insert(id.clone(), content.clone());
                }
                id
            }
            Action::FollowUp { content, .. } => {
                self.made += 1;
                self.replies.push((format!("m{}", self.made), content.clone()));
                format!("m{}", self.made)
            }
            Action::Edit {
                message_id, content, ..
            } => {
                let reply = self.replies.iter_mut().find(|(id, _)| id == message_id);
                if let Some((_, text)) = reply {
                    content.clone_into(text);
                } else {
                    let aside = self.asides.get_mut(message_id.as_str());
                    content.clone_into(aside.expect("a message that exists is edited"));
                }
                message_id.to_string()
            }
            Action::Draft {
                draft_id,
                content,
                r#final,
                ..
            } => {
                let id = format!("d{draft_id}");
                if *r#final && !self.replies.iter().any(|(known, _)| *known == id) {
                    self.streams.remove(draft_id);
                    self.replies.push((id.clone(), content.clone()));
                } else if !*r#final {
                    self.streams.insert(*draft_id, content.clone());
                }
                id
            }
            Action::Typing { .. } | Action::React { .. } => String::new(),
            other => panic!("{other:?}"),
        }
    }

    /// Everything that answers, as one text of what the agent can have written.
    fn visible(&self) -> String {
        self.replies
            .iter()
            .map(|(_, text)| essence(unnumbered(text)))
            .collect()
    }
}

/// A part without its number.
fn unnumbered(text: &str) -> &str {
    let Some((before, number)) = text.strip_suffix(')').and_then(|text| text.rsplit_once(" (")) else {
        return text;
    };
    let is_number = |(at, of): (&str, &str)| [at, of].iter().all(|side| side.parse::<u32>().is_ok());
    if number.split_once('/').is_some_and(is_number) {
        before
    } else {
        text
    }
}

/// A text without what splitting may add or drop.
fn essence(text: &str) -> String {
    let dropped = |point: &char| point.is_whitespace() || ['`', LANGUAGE, CURSOR].contains(point);
    text.chars().filter(|point| !dropped(point)).collect()
}

fn some_text(rng: &mut Rng, number: &mut u32) -> String {
    let mut text = String::new();
    let many = if rng.one_in(20) { 60 } else { 4 };
    for _ in 0..=rng.below(many) {
        *number += 1;
        match rng.below(12) {
            0 => text.push_str("\n```\u{416}\n"),
            1 => text.push_str("\n```\n"),
            2 => text.push_str("\n\n"),
            3 => text.push_str("\u{1f469}\u{200d}\u{1f469}\u{200d}\u{1f467} "),
            4 => text.push_str("`tick` "),
            5 => text.push_str("   "),
            _ => {}
        }
        text.extend(["w", &number.to_string(), "q"]);
        text.push_str(rng.pick(&[" ", "", "\n", ". ", "\u{1f680}", " "]));
    }
    text
}

struct StreamWalk {
    rng: Rng,
    seed: u64,
    weather: Weather,
    scene: Scene,
    chat: FakeChat,
    limit: usize,
    unit: LenUnit,
    interval: Duration,
    written: String,
    since_break: String,
    out: Vec<(PlannedOp, Duration)>,
    text_ops: u32,
    declined: bool,
}

impl StreamWalk {
    fn new(seed: u64) -> Self {
        use StreamMode::{Auto, Draft, Edit, Off, Segments};
        let mut rng = Rng(seed);
        let mut descriptor = descriptor(rng.pick(&["discord", "telegram", "slack", "whatsapp", "legacy"]));
        descriptor.max_message_length = rng.pick(&[40, 60, 100, 300, 2000]);
        let weather = rng.pick(&[Weather::Fair, Weather::Rough, Weather::Foggy, Weather::Hostile]);
        let settings = StreamSettings {
            mode: rng.pick(&[Auto, Auto, Auto, Draft, Edit, Segments, Off]),
            interval_ms: rng.pick(&[100, 800]),
            buffer_chars: rng.pick(&[1, 24]),
            cursor: rng.pick(&[" \u{2589}", ""]).to_owned(),
            first_hold_ms: if seed.is_multiple_of(3) { 250 } else { 0 },
            ..StreamSettings::default()
        };
        let (limit, unit) = (descriptor.max_message_length, descriptor.length_unit());
        let interval = Duration::from_millis(settings.interval_ms);
        let mut target = target(descriptor);
        target.follow_up = rng.one_in(10).then(|| "discord.interaction_token".to_owned());
        Self {
            rng,
            seed,
            weather,
            scene: Scene::new(settings, target),
            chat: FakeChat::default(),
            limit: usize::try_from(limit).unwrap(),
            unit,
            interval,
            written: String::new(),
            since_break: String::new(),
            out: Vec::new(),
            text_ops: 0,
            declined: false,
        }
    }

    fn check(&self, action: &Action) {
        let seed = self.seed;
        assert!(!self.declined, "seed {seed}: an op after a decline");
        let (Action::Send { content, .. }
        | Action::Edit { content, .. }
        | Action::Draft { content, .. }
        | Action::FollowUp { content, .. }) = action
        else {
            return;
        };
        assert!(!content.trim().is_empty(), "seed {seed}: an empty message");
        let length = self.unit.measure(content);
        assert!(length <= self.limit, "seed {seed}: {length} > {}", self.limit);
    }

    fn poll(&mut self) {
        while let Some(op) = self.scene.stream.poll(self.scene.now) {
            self.check(&op.action);
            let same = |(out, _): &(PlannedOp, Duration)| out.priority == op.priority;
            assert!(!self.out.iter().any(same), "seed {}: two ops out", self.seed);
            self.text_ops += u32::from(op.priority == Priority::Text);
            let answer = Duration::from_millis(self.rng.below(1500));
            self.out.push((op, self.scene.now + answer));
        }
        let next = self.scene.stream.poll_timeout();
        assert!(
            next.is_none_or(|next| next > self.scene.now),
            "seed {}: it spins",
            self.seed
        );
    }

    /// Moves the clock, and settles what is answered by then.
    fn pass(&mut self, time: Duration) {
        let until = self.scene.now + time;
        loop {
            let answer = self.out.iter().map(|(_, at)| *at).min();
            let next = [answer, self.scene.stream.poll_timeout()]
                .into_iter()
                .flatten()
                .min();
            let Some(next) = next.filter(|next| *next <= until) else {
                break;
            };
            self.scene.now = self.scene.now.max(next);
            while let Some(at) = self.out.iter().position(|(_, at)| *at <= self.scene.now) {
                let (op, _) = self.out.remove(at);
                self.settle(&op);
            }
            self.poll();
        }
        self.scene.now = until;
    }

    fn settle(&mut self, op: &PlannedOp) {
        let outcome = self.outcome();
        let outcome = match outcome {
            OpOutcome::Applied { message_id } => {
                let id = self.chat.apply(&op.action);
                OpOutcome::Applied {
                    message_id: message_id.map(|_| id),
                }
            }
            OpOutcome::Unknown => {
                if self.rng.one_in(2) {
                    self.chat.apply(&op.action);
                }
                OpOutcome::Unknown
            }
            other => other,
        };
        self.declined |= outcome == OpOutcome::Declined && op.priority == Priority::Text;
        self.scene.stream.op_finished(op.id, &outcome, self.scene.now);
    }

    fn outcome(&mut self) -> OpOutcome {
        let fine = applied("");
        if self.weather == Weather::Fair || !self.rng.one_in(6) {
            return fine;
        }
        let retry_after = self.rng.one_in(2).then(|| Duration::from_millis(700));
        match (self.rng.below(8), self.weather) {
            (0, _) => OpOutcome::Applied { message_id: None },
            (1, _) => OpOutcome::RateLimited { retry_after },
            (2, _) => OpOutcome::NotSent,
            (3, _) => OpOutcome::Dropped,
            (4, _) => OpOutcome::Refused,
            (5 | 6, Weather::Foggy | Weather::Hostile) => OpOutcome::Unknown,
            (7, Weather::Hostile) => OpOutcome::Declined,
            _ => fine,
        }
    }

    fn go(&mut self) {
        let mut number = 0;
        for step in 0..5 + self.rng.below(40) {
            let now = self.scene.now;
            match self.rng.below(16) {
                0 => {
                    self.scene.stream.break_message(now);
                    self.since_break.clear();
                }
                1 => self
                    .scene
                    .stream
                    .tool(&tool(&format!("t{step}"), "work", StepState::Running), now),
                2 => self.scene.stream.notice("Something else.", now),
                3 => {
                    let more = some_text(&mut self.rng, &mut number);
                    self.written.push_str(&more);
                    self.since_break.push_str(&more);
                    self.scene.stream.replace_text(&self.since_break, now);
                }
                4..8 => {
                    let time = self.rng.below(4000);
                    self.pass(Duration::from_millis(time));
                }
                _ => {
                    let more = some_text(&mut self.rng, &mut number);
                    self.written.push_str(&more);
                    self.since_break.push_str(&more);
                    self.scene.stream.push_text(&more, now);
                }
            }
            self.poll();
        }
        let waits = !matches!(self.weather, Weather::Foggy | Weather::Hostile) || self.rng.one_in(2);
        while waits && self.scene.stream.awaits_outcome() {
            self.pass(Duration::from_millis(100));
        }
    }

    /// Ends the turn, delivers the final ops, and looks at the chat.
    fn end(mut self) -> FakeChat {
        let elapsed = self.scene.now.as_millis() / self.interval.as_millis();
        assert!(
            u128::from(self.text_ops) <= elapsed + 1,
            "seed {}: too many ops",
            self.seed
        );
        let now = self.scene.now;
        let mut stream = std::mem::replace(&mut self.scene, Scene::on("discord")).stream;
        let final_ops = stream.finish(TurnResult::Done, now);
        for durable in &final_ops.durable {
            self.check(&durable.action);
            durable.fallback.iter().for_each(|action| self.check(action));
            // A lost answer still counts as out: it may have arrived or not.
            if self.weather != Weather::Fair
                && self.rng.one_in(5)
                && !matches!(durable.action, Action::Send { .. })
            {
                for action in &durable.fallback {
                    self.chat.apply(action);
                }
            } else {
                self.chat.apply(&durable.action);
            }
        }
        for action in &final_ops.indicators {
            self.check(action);
            self.chat.apply(action);
        }
        let (visible, written, seed) = (self.chat.visible(), essence(&self.written), self.seed);
        match self.weather {
            Weather::Fair | Weather::Rough => assert_eq!(visible, written, "seed {seed}: {:#?}", self.chat),
            Weather::Foggy => {
                for word in written.split_inclusive('q') {
                    assert!(
                        visible.contains(word),
                        "seed {seed}: {word} is lost: {:#?}",
                        self.chat
                    );
                }
            }
            Weather::Hostile => {}
        }
        if self.weather == Weather::Fair {
            let frozen = self.chat.replies.iter().any(|(_, text)| text.contains(CURSOR));
            assert!(!frozen, "seed {seed}: a cursor stays: {:#?}", self.chat);
        }
        self.chat
    }
}

#[test]
fn whatever_happens_the_answer_is_delivered_once() {
    let (mut replies, mut edits, mut sealed, mut declined, mut asides) = (0, 0, 0, 0, 0);
    for seed in 0..WALKS {
        let mut walk = StreamWalk::new(seed);
        walk.go();
        edits += u64::from(walk.text_ops);
        declined += u32::from(walk.declined);
        let chat = walk.end();
        replies += chat.replies.len();
        sealed += chat.replies.iter().filter(|(id, _)| id.starts_with('d')).count();
        asides += chat.asides.len();
    }
    let went = [
        replies > 20_000,
        edits > 20_000,
        sealed > 500,
        declined > 200,
        asides > 1000,
    ];
    assert_eq!(went, [true; 5], "{replies} {edits} {sealed} {declined} {asides}");
}
