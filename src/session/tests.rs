//! Walks, and random walks, of sessions and lanes.

use std::collections::{HashMap, HashSet, VecDeque};

use super::*;
use crate::wire::{OpId, SessionKey};

fn key(name: &str) -> SessionKey {
    SessionKey::from_text(name)
}

fn sessions(running: usize, queued: usize) -> Sessions {
    waiting_sessions(running, queued, 1000)
}

fn waiting_sessions(running: usize, queued: usize, waiting: usize) -> Sessions {
    Sessions::new(SessionLimits {
        running,
        queued,
        waiting,
    })
}

#[test]
fn a_second_message_waits_for_the_first_turn_and_then_runs() {
    let mut sessions = sessions(8, 8);
    let Admission::Start(first) = sessions.admit(&key("a")) else {
        panic!()
    };
    assert_eq!(sessions.admit(&key("a")), Admission::Wait { behind: Some(first) });
    sessions.enqueue(&key("a"), 2);
    assert_eq!((sessions.running(), sessions.queued()), (1, 1));
    sessions.admit(&key("a"));
    sessions.enqueue(&key("a"), 3);
    assert_eq!((sessions.running(), sessions.queued()), (1, 2));
    assert_eq!((sessions.waiting(&key("a")), sessions.waiting(&key("b"))), (2, 0));
    sessions.withdraw(&key("a"), 3);
    assert_eq!(sessions.next_start(), None);
    assert!(sessions.ended(&key("a"), first));
    let (who, row, second) = sessions.next_start().unwrap();
    assert_eq!((who, row), (key("a"), 2));
    assert_ne!(first, second);
    assert!(sessions.ended(&key("a"), second));
    assert_eq!(sessions.active(), 0);
}

#[test]
fn a_row_that_waits_is_withdrawn() {
    let mut sessions = sessions(8, 2);
    let a = key("a");
    let Admission::Start(turn) = sessions.admit(&a) else {
        panic!()
    };
    for row in [2, 3] {
        sessions.admit(&a);
        sessions.enqueue(&a, row);
    }
    assert!(sessions.may_wait(&a, 2) && !sessions.may_wait(&a, 1));
    for row in [5, 6] {
        sessions.admit(&a);
        sessions.enqueue(&a, row);
    }
    assert!(sessions.may_wait(&a, 6), "in the journal");
    for (row, waiting) in [(5, 3), (2, 2), (3, 1), (3, 1)] {
        sessions.withdraw(&a, row);
        assert_eq!(sessions.waiting(&a), waiting);
    }
    assert_eq!(sessions.next_refill(), Some((a.clone(), 3)));
    sessions.refill(&a, Some((&[6], None)));
    sessions.ended(&a, turn);
    let (_, row, turn) = sessions.next_start().unwrap();
    assert_eq!(row, 6);
    assert!(!sessions.may_wait(&a, 6));
    sessions.ended(&a, turn);
    // The only one that waits for a free slot.
    sessions.pause();
    sessions.admit(&a);
    sessions.enqueue(&a, 8);
    sessions.withdraw(&a, 8);
    sessions.resume();
    assert_eq!((sessions.next_start(), sessions.active()), (None, 0));
}

#[test]
fn a_turn_ends_once_and_only_its_own_session() {
    let mut sessions = sessions(8, 8);
    let Admission::Start(turn) = sessions.admit(&key("a")) else {
        panic!()
    };
    assert!(!sessions.ended(&key("b"), turn));
    assert!(sessions.ended(&key("a"), turn));
    assert!(!sessions.ended(&key("a"), turn));
    assert_eq!(sessions.running(), 0);
}

#[test]
fn an_interrupt_hits_the_turn_it_meets_and_never_the_next_one() {
    let mut sessions = sessions(8, 8);
    assert_eq!(sessions.interrupt(&key("a")), Interrupt::Nothing);
    let Admission::Start(first) = sessions.admit(&key("a")) else {
        panic!()
    };
    sessions.admit(&key("b"));
    sessions.enqueue(&key("a"), 2);
    assert_eq!(sessions.interrupt(&key("a")), Interrupt::Cancel(first));
    assert_eq!(sessions.interrupt(&key("a")), Interrupt::Nothing);
    sessions.ended(&key("a"), first);
    let (_, _, second) = sessions.next_start().unwrap();
    assert_eq!(sessions.turn_of(&key("a")), Some(second));
}

#[test]
fn a_duplicate_gives_its_place_to_what_waits() {
    let mut sessions = sessions(1, 8);
    let Admission::Start(turn) = sessions.admit(&key("a")) else {
        panic!()
    };
    assert_eq!(sessions.admit(&key("b")), Admission::Wait { behind: None });
    sessions.enqueue(&key("b"), 7);
    sessions.cancel_admission(&key("a"), turn);
    assert_eq!(
        sessions.next_start().map(|(who, row, _)| (who, row)),
        Some((key("b"), 7))
    );
}

#[test]
fn places_are_given_first_come_first_served_and_nobody_jumps_the_line() {
    let mut sessions = sessions(1, 8);
    let Admission::Start(turn) = sessions.admit(&key("a")) else {
        panic!()
    };
    for (name, row) in [("b", 1), ("c", 2), ("d", 3)] {
        assert_eq!(sessions.admit(&key(name)), Admission::Wait { behind: None });
        sessions.enqueue(&key(name), row);
    }
    sessions.ended(&key("a"), turn);
    assert_eq!(sessions.admit(&key("e")), Admission::Wait { behind: None });
    sessions.enqueue(&key("e"), 4);
    let mut order = Vec::new();
    while let Some((who, row, turn)) = sessions.next_start() {
        order.push(row);
        sessions.ended(&who, turn);
    }
    assert_eq!(order, [1, 2, 3, 4]);
}

#[test]
fn rows_of_an_earlier_run_are_counted_when_they_are_read() {
    let mut sessions = sessions(1, 1);
    let a = key("a");
    sessions.recover();
    assert_eq!(sessions.next_reload(), Some(0));
    sessions.reload([key("a")], None);
    assert_eq!(sessions.next_refill(), Some((a.clone(), 0)));
    sessions.refill(&a, None);
    assert_eq!(sessions.next_refill(), Some((a.clone(), 0)), "again");
    sessions.admit(&a);
    sessions.enqueue(&a, 10);
    sessions.refill(&a, Some((&[1, 3], Some(5))));
    assert_eq!((sessions.waiting(&a), sessions.queued()), (7, 2));
    sessions.withdraw(&a, 7);
    sessions.admit(&a);
    sessions.enqueue(&a, 11);
    sessions.enqueue(&a, 12);
    assert_eq!(sessions.waiting(&a), 8);
    let idle: HashMap<_, _> = sessions.idle().collect();
    assert_eq!(idle[&a], 8);
    let (_, row, turn) = sessions.next_start().unwrap();
    sessions.ended(&a, turn);
    assert_eq!((row, sessions.waiting(&a)), (1, 7));
}

#[test]
fn what_does_not_fit_in_memory_is_told_once_and_fetched_again() {
    let mut sessions = sessions(8, 2);
    let Admission::Start(mut turn) = sessions.admit(&key("a")) else {
        panic!()
    };
    let told: Vec<bool> = (1..=4).map(|row| sessions.enqueue(&key("a"), row)).collect();
    assert_eq!(told, [false, false, true, false]);
    assert_eq!((sessions.waiting(&key("a")), sessions.queued()), (4, 2));
    for expected in [1, 2] {
        sessions.ended(&key("a"), turn);
        let (_, row, next) = sessions.next_start().unwrap();
        assert_eq!(row, expected);
        turn = next;
    }
    assert_eq!(sessions.next_refill(), Some((key("a"), 2)));
    assert_eq!(sessions.next_refill(), None);
    sessions.refill(&key("a"), Some((&[3, 4], None)));
    assert_eq!(sessions.next_refill(), None);
    sessions.ended(&key("a"), turn);
    assert_eq!(sessions.next_start().unwrap().1, 3);
}

#[test]
fn a_hundred_thousand_quiet_sessions_cost_nothing() {
    let mut sessions = sessions(8, 8);
    for n in 0..100_000 {
        let who = key(&n.to_string());
        let Admission::Start(turn) = sessions.admit(&who) else {
            panic!()
        };
        sessions.ended(&who, turn);
    }
    assert_eq!((sessions.active(), sessions.running()), (0, 0));
}

#[test]
fn a_row_of_an_earlier_run_starts_before_what_waits_in_the_journal() {
    let mut sessions = sessions(8, 8);
    let a = key("a");
    sessions.enqueue_again(&a, 3);
    let (who, row, turn) = sessions.next_start().unwrap();
    assert_eq!((who, row), (a.clone(), 3));
    assert!(
        sessions.is_read_ahead(&a, 3) && !sessions.may_wait(&a, 3),
        "the journal may not know yet that it runs"
    );
    assert_eq!(
        sessions.next_refill(),
        Some((a.clone(), 0)),
        "older ones may wait, too"
    );
    sessions.refill(&a, Some((&[2, 5], None)));
    assert_eq!(rest(&mut sessions, &a, turn), [2, 5]);
    assert_eq!(sessions.active(), 0);
}

#[test]
fn a_row_that_runs_again_makes_the_one_that_runs_no_waiting_one() {
    let mut sessions = sessions(8, 8);
    let a = key("a");
    sessions.pause();
    for row in [8, 9] {
        sessions.admit(&a);
        sessions.enqueue(&a, row);
    }
    sessions.resume();
    let (_, row, turn) = sessions.next_start().unwrap();
    assert_eq!(row, 8);
    sessions.admit(&a);
    sessions.enqueue_again(&a, 5);
    assert_eq!(
        [5, 8, 9].map(|row| sessions.may_wait(&a, row)),
        [true, false, true]
    );
    assert_eq!(rest(&mut sessions, &a, turn), [9, 5]);
    assert_eq!((sessions.next_refill(), sessions.active()), (None, 0));
}

#[test]
fn a_row_that_runs_again_while_others_are_read_runs_once() {
    let mut sessions = sessions(8, 8);
    let a = key("a");
    sessions.recover();
    sessions.next_reload();
    sessions.reload([a.clone()], None);
    assert_eq!(sessions.next_refill(), Some((a.clone(), 0)));
    sessions.admit(&a);
    sessions.enqueue_again(&a, 3);
    let (_, row, turn) = sessions.next_start().unwrap();
    assert_eq!((row, sessions.next_refill()), (3, None), "it is being read");
    assert!(sessions.is_read_ahead(&a, 3));
    sessions.refill(&a, Some((&[2, 4], None)));
    assert_eq!(rest(&mut sessions, &a, turn), [2, 4]);
}

#[test]
fn only_an_op_that_waits_is_removed_from_its_lane() {
    let mut lanes = Lanes::new();
    let (first, second) = (OpId(1), OpId(2));
    for op in [first, second] {
        lanes.push("discord:1", op);
    }
    assert_eq!(lanes.next_ready(), Some(first));
    assert!(!lanes.remove(first), "it is in flight");
    assert!(lanes.remove(second) && !lanes.remove(second));
    assert!(lanes.complete(first));
    assert_eq!(lanes.next_ready(), None);
}

#[test]
fn a_lane_goes_on_when_the_op_that_it_waits_with_is_removed() {
    let mut lanes = Lanes::new();
    lanes.push("a", OpId(1));
    assert_eq!(lanes.next_ready(), Some(OpId(1)));
    lanes.put_back(OpId(1));
    lanes.push("a", OpId(2));
    assert_eq!(lanes.next_ready(), None);
    assert!(lanes.remove(OpId(1)));
    assert_eq!((lanes.next_ready(), lanes.next_ready()), (Some(OpId(2)), None));
}

#[test]
fn pausing_starts_nothing_and_resuming_starts_what_waits() {
    let mut sessions = sessions(8, 8);
    sessions.pause();
    assert_eq!(sessions.admit(&key("a")), Admission::Wait { behind: None });
    sessions.enqueue(&key("a"), 1);
    assert_eq!(sessions.next_start(), None);
    sessions.resume();
    assert_eq!(sessions.next_start().unwrap().1, 1);
}

/// A small seeded generator: chance comes in as a number.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

#[test]
fn nothing_overtakes_a_message_that_is_still_being_committed() {
    let mut sessions = sessions(1, 8);
    let Admission::Start(first) = sessions.admit(&key("a")) else {
        panic!()
    };
    assert_eq!(sessions.admit(&key("a")), Admission::Wait { behind: Some(first) });
    assert_eq!(sessions.admit(&key("b")), Admission::Wait { behind: None });
    sessions.ended(&key("a"), first);
    for name in ["a", "b"] {
        assert_eq!(sessions.admit(&key(name)), Admission::Wait { behind: None });
    }
    for (name, row) in [("a", 2), ("b", 3), ("a", 4), ("b", 5)] {
        sessions.enqueue(&key(name), row);
    }
    let mut order = Vec::new();
    while let Some((who, row, turn)) = sessions.next_start() {
        order.push(row);
        sessions.ended(&who, turn);
    }
    assert_eq!(order, [2, 3, 4, 5]);
    assert_eq!(sessions.active(), 0);
}

#[test]
fn a_message_that_came_to_nothing_is_not_waited_for() {
    let mut sessions = sessions(8, 8);
    sessions.pause();
    sessions.admit(&key("a"));
    sessions.cancel_waiting(&key("a"));
    assert_eq!(sessions.active(), 0);
    sessions.cancel_waiting(&key("a"));
    assert_eq!(sessions.active(), 0);
}

#[test]
fn an_overflow_is_told_once_until_the_session_is_quiet_again() {
    let mut sessions = sessions(8, 1);
    for _ in 0..2 {
        let Admission::Start(mut turn) = sessions.admit(&key("a")) else {
            panic!()
        };
        let told: Vec<bool> = (1..=4).map(|row| sessions.enqueue(&key("a"), row)).collect();
        assert_eq!(told, [false, true, false, false]);
        sessions.ended(&key("a"), turn);
        (_, _, turn) = sessions.next_start().unwrap();
        assert_eq!(sessions.next_refill(), Some((key("a"), 1)));
        sessions.refill(&key("a"), Some((&[2, 3, 4], None)));
        assert!(!sessions.enqueue(&key("a"), 5), "still the same crowd");
        for expected in [2, 3, 4] {
            sessions.ended(&key("a"), turn);
            let (_, row, next) = sessions.next_start().unwrap();
            assert_eq!(row, expected);
            turn = next;
        }
        assert_eq!(sessions.next_refill(), Some((key("a"), 4)));
        sessions.refill(&key("a"), Some((&[], None)));
        sessions.ended(&key("a"), turn);
        assert_eq!(sessions.active(), 0);
    }
}

/// The relay around the sessions: what arrived, what is committed, what runs.
#[derive(Default)]
struct Walk {
    /// Arrived, not committed: in order, as a journal commits.
    coming: VecDeque<(SessionKey, Admission, i64)>,
    committed: HashMap<SessionKey, Vec<i64>>,
    ran: HashMap<SessionKey, Vec<i64>>,
    running: HashMap<TurnId, (SessionKey, i64)>,
    wakes: HashSet<i64>,
    rows: i64,
    overflowed: usize,
    overtaken: usize,
    /// What the journal has read for a reload and not answered yet: the sessions, and the last row if there may be more.
    reading: Option<(Vec<SessionKey>, Option<i64>)>,
    reloaded: usize,
}

impl Walk {
    fn arrive(&mut self, sessions: &mut Sessions, who: &SessionKey) {
        let admission = sessions.admit(who);
        self.rows += 1;
        if matches!(admission, Admission::Wait { behind: None }) && sessions.turn_of(who).is_none() {
            self.overtaken += 1;
        }
        self.coming.push_back((who.clone(), admission, self.rows));
    }

    /// The journal answers for the oldest message, which may be a wake: held, or nothing new.
    fn commit(&mut self, sessions: &mut Sessions, held: bool, is_wake: bool) {
        let Some((who, admission, row)) = self.coming.pop_front() else {
            return;
        };
        match (admission, held) {
            (Admission::Start(turn), false) => sessions.cancel_admission(&who, turn),
            (Admission::Wait { .. }, false) => sessions.cancel_waiting(&who),
            (Admission::Start(turn), true) => {
                self.committed.entry(who.clone()).or_default().push(row);
                self.ran.entry(who.clone()).or_default().push(row);
                self.running.insert(turn, (who, row));
            }
            (Admission::Wait { .. }, true) => {
                self.committed.entry(who.clone()).or_default().push(row);
                if is_wake {
                    self.wakes.insert(row);
                    sessions.enqueue_wake(&who, row);
                } else {
                    self.overflowed += usize::from(sessions.enqueue(&who, row));
                }
            }
        }
        self.settle(sessions);
    }

    fn end_one(&mut self, sessions: &mut Sessions) {
        let Some(turn) = self.running.keys().next().copied() else {
            return;
        };
        let Some((who, _)) = self.running.remove(&turn) else {
            return;
        };
        assert!(sessions.ended(&who, turn));
        assert!(!sessions.ended(&who, turn));
        self.settle(sessions);
    }

    /// The journal answers a reload.
    fn answer_reload(&mut self, sessions: &mut Sessions) {
        if let Some((found, read_to)) = self.reading.take() {
            self.reloaded += found.len();
            sessions.reload(found, read_to);
            self.settle(sessions);
        }
    }

    /// Committed rows that have not run, in order, each with its session.
    fn waiting(&self) -> Vec<(i64, SessionKey)> {
        let has_run = |who: &SessionKey, row: &i64| self.ran.get(who).is_some_and(|ran| ran.contains(row));
        let committed = self
            .committed
            .iter()
            .flat_map(|(who, rows)| rows.iter().map(move |row| (*row, who)));
        let mut waiting: Vec<_> = committed
            .filter(|(row, who)| !has_run(who, row))
            .map(|(row, who)| (row, who.clone()))
            .collect();
        waiting.sort_unstable_by_key(|(row, _)| *row);
        waiting
    }

    /// What the driver does after every event: refill what ran dry, reload what fits, start what may.
    fn settle(&mut self, sessions: &mut Sessions) {
        loop {
            if let Some(after) = sessions.next_reload() {
                assert!(self.reading.is_none(), "one read at a time");
                let rest: Vec<_> = self
                    .waiting()
                    .into_iter()
                    .filter(|(row, _)| *row > after)
                    .collect();
                let read = &rest[..rest.len().min(3)];
                let read_to = read.last().map(|(row, _)| *row).filter(|_| rest.len() >= 3);
                let found = read.iter().map(|(_, who)| who.clone()).collect();
                self.reading = Some((found, read_to));
            }
            let mut refilled = false;
            while let Some((who, after)) = sessions.next_refill() {
                refilled = true;
                let rest = self
                    .waiting()
                    .into_iter()
                    .filter(|(row, whose)| *row > after && *whose == who)
                    .filter(|(row, _)| !sessions.is_read_ahead(&who, *row));
                let rest: Vec<i64> = rest.map(|(row, _)| row).collect();
                let fetched: Vec<i64> = rest.iter().copied().take(2).collect();
                let more = rest.len() - fetched.len();
                sessions.refill(&who, Some((&fetched, (more > 0).then_some(more))));
            }
            let Some((who, row, turn)) = sessions.next_start() else {
                // What came to nothing may have made room.
                if refilled {
                    continue;
                }
                return;
            };
            self.ran.entry(who.clone()).or_default().push(row);
            self.running.insert(turn, (who, row));
        }
    }
}

#[test]
fn random_walks_run_every_row_once_in_order_within_the_limit() {
    let (mut rows, mut stopped, mut overflowed, mut overtaken, mut reloaded) = (0, 0, 0, 0, 0);
    let mut woken = 0;
    for seed in 0..5_000 {
        let mut chance = Chance(seed);
        let limit = 1 + usize::try_from(chance.below(4)).unwrap();
        let waiting = [1, 2, 3, 1000][usize::try_from(chance.below(4)).unwrap()];
        let mut sessions = waiting_sessions(limit, 3, waiting);
        let mut walk = Walk::default();
        for step in 0..160 {
            let who = key(&format!("s{}", chance.below(8)));
            match chance.below(if step < 110 { 14 } else { 8 }) {
                0 => walk.answer_reload(&mut sessions),
                1..=3 => walk.end_one(&mut sessions),
                4..=6 => walk.commit(&mut sessions, chance.below(8) > 0, chance.below(6) == 0),
                7 => {
                    if let Interrupt::Cancel(turn) = sessions.interrupt(&who) {
                        assert!(walk.running.get(&turn).is_none_or(|(whose, _)| *whose == who));
                        stopped += 1;
                    }
                }
                _ => walk.arrive(&mut sessions, &who),
            }
            assert!(sessions.running() <= limit);
            assert!(
                sessions.active() <= limit + waiting + 3,
                "at most a page too many wait"
            );
            let busy: HashSet<&SessionKey> = walk.running.values().map(|(who, _)| who).collect();
            assert_eq!(busy.len(), walk.running.len(), "one turn at a time per session");
        }
        while !walk.coming.is_empty() {
            walk.commit(&mut sessions, true, false);
        }
        while !walk.running.is_empty() || walk.reading.is_some() {
            walk.end_one(&mut sessions);
            walk.answer_reload(&mut sessions);
        }
        let mut sorted = walk.ran.clone();
        for rows in sorted.values_mut() {
            rows.sort_unstable();
        }
        assert_eq!(sorted, walk.committed, "seed {seed}");
        for ran in walk.ran.values() {
            let messages = ran.iter().filter(|row| !walk.wakes.contains(row));
            assert!(messages.is_sorted(), "seed {seed}: {ran:?}");
        }
        woken += walk.wakes.len();
        assert_eq!((sessions.active(), sessions.running()), (0, 0), "seed {seed}");
        assert!(!sessions.has_elsewhere(), "seed {seed}");
        reloaded += walk.reloaded;
        rows += walk.rows;
        overflowed += walk.overflowed;
        overtaken += walk.overtaken;
    }
    assert!(
        rows > 100_000 && stopped > 1_000 && overflowed > 1_000 && overtaken > 1_000 && reloaded > 10_000
    );
    assert!(woken > 1_000);
}

/// The rows that start one after the other until none waits in memory.
fn rest(sessions: &mut Sessions, session: &SessionKey, mut turn: TurnId) -> Vec<i64> {
    let mut order = Vec::new();
    loop {
        sessions.ended(session, turn);
        let Some((_, row, next)) = sessions.next_start() else {
            return order;
        };
        order.push(row);
        turn = next;
    }
}

#[test]
fn a_wake_runs_next_and_behind_other_wakes() {
    let mut sessions = sessions(8, 8);
    let a = key("a");
    let Admission::Start(turn) = sessions.admit(&a) else {
        panic!()
    };
    for row in [2, 3] {
        sessions.enqueue(&a, row);
    }
    for row in [4, 5, 6] {
        sessions.enqueue_wake(&a, row);
    }
    sessions.enqueue(&a, 7);
    sessions.withdraw(&a, 5);
    sessions.enqueue_wake(&a, 8);
    assert_eq!(sessions.rows(&a).collect::<Vec<_>>(), [4, 6, 8, 2, 3, 7]);
    assert_eq!(rest(&mut sessions, &a, turn), [4, 6, 8, 2, 3, 7]);
    assert_eq!(sessions.active(), 0);
}

#[test]
fn a_wake_passes_what_waits_in_the_journal_and_runs_once() {
    let mut sessions = sessions(8, 2);
    let a = key("a");
    let Admission::Start(first) = sessions.admit(&a) else {
        panic!()
    };
    for row in [2, 3, 4] {
        sessions.enqueue(&a, row);
    }
    sessions.enqueue_wake(&a, 5);
    assert!(sessions.may_wait(&a, 5) && sessions.waiting(&a) == 4);
    sessions.ended(&a, first);
    let (_, row, turn) = sessions.next_start().unwrap();
    assert_eq!(row, 5);
    assert!(!sessions.may_wait(&a, 5) && sessions.may_wait(&a, 4));
    assert!(
        sessions.is_read_ahead(&a, 5),
        "the journal may not know yet that it runs"
    );
    assert_eq!(rest(&mut sessions, &a, turn), [2, 3]);
    assert_eq!(sessions.next_refill(), Some((a.clone(), 3)));
    // It comes while the rest is read.
    sessions.enqueue_wake(&a, 6);
    let (_, row, turn) = sessions.next_start().unwrap();
    assert_eq!(row, 6);
    sessions.refill(&a, Some((&[4], None)));
    assert!(!sessions.is_read_ahead(&a, 6));
    assert_eq!(rest(&mut sessions, &a, turn), [4]);
    assert_eq!(sessions.active(), 0);
}

#[test]
fn a_wake_that_waited_before_a_restart_is_moved_ahead() {
    let mut sessions = sessions(8, 8);
    let a = key("a");
    sessions.recover();
    sessions.next_reload();
    sessions.reload([a.clone()], None);
    sessions.next_refill();
    sessions.refill(&a, Some((&[2, 3, 4, 5], None)));
    for row in [4, 5, 4, 9] {
        sessions.move_ahead(&a, row);
    }
    let (_, row, turn) = sessions.next_start().unwrap();
    assert_eq!(row, 4);
    assert_eq!(rest(&mut sessions, &a, turn), [5, 2, 3]);
}

#[test]
fn wakes_beyond_the_queue_wait_in_order_of_arrival() {
    let mut sessions = sessions(8, 2);
    let a = key("a");
    let Admission::Start(turn) = sessions.admit(&a) else {
        panic!()
    };
    sessions.enqueue(&a, 2);
    for row in [3, 4, 5] {
        sessions.enqueue_wake(&a, row);
    }
    assert_eq!((sessions.queued(), sessions.waiting(&a)), (3, 4));
    assert_eq!(rest(&mut sessions, &a, turn), [3, 4, 2]);
    assert_eq!(sessions.next_refill(), Some((a.clone(), 4)));
}

#[test]
fn what_was_waiting_before_a_restart_runs_before_what_is_new() {
    let mut sessions = sessions(8, 8);
    sessions.recover();
    assert_eq!(sessions.admit(&key("a")), Admission::Wait { behind: None });
    assert_eq!(sessions.next_reload(), Some(0));
    sessions.enqueue(&key("a"), 9);
    assert_eq!(sessions.next_start(), None);
    sessions.reload([key("a")], None);
    assert_eq!(sessions.next_reload(), Some(8), "what came since is read, too");
    sessions.reload([key("a")], None);
    assert!(!sessions.has_elsewhere());
    assert_eq!(sessions.next_refill(), Some((key("a"), 0)));
    sessions.enqueue(&key("a"), 10);
    sessions.refill(&key("a"), Some((&[3, 9], None)));
    let (_, row, turn) = sessions.next_start().unwrap();
    assert_eq!(row, 3);
    sessions.ended(&key("a"), turn);
    let (_, row, turn) = sessions.next_start().unwrap();
    assert_eq!(row, 9);
    sessions.ended(&key("a"), turn);
    assert_eq!(sessions.next_refill(), Some((key("a"), 9)));
    sessions.refill(&key("a"), Some((&[10], None)));
    assert_eq!(sessions.next_start().unwrap().1, 10);
}

#[test]
fn a_lane_goes_one_at_a_time_and_others_do_not_wait_for_it() {
    let mut lanes = Lanes::new();
    lanes.push("a", OpId(1));
    lanes.push("a", OpId(2));
    lanes.push("b", OpId(3));
    assert_eq!(
        (lanes.next_ready(), lanes.next_ready(), lanes.next_ready()),
        (Some(OpId(1)), Some(OpId(3)), None)
    );
    assert!(!lanes.complete(OpId(2)));
    assert!(lanes.complete(OpId(1)));
    assert_eq!((lanes.next_ready(), lanes.next_ready()), (Some(OpId(2)), None));
    lanes.complete(OpId(2));
    lanes.complete(OpId(3));
    assert_eq!(lanes.next_ready(), None);
}

#[test]
fn what_was_not_sent_goes_out_before_what_is_newer() {
    let mut lanes = Lanes::new();
    lanes.push("a", OpId(1));
    assert_eq!(lanes.next_ready(), Some(OpId(1)));
    lanes.push("a", OpId(2));
    lanes.put_back(OpId(1));
    assert_eq!(lanes.next_ready(), None);
    lanes.retry_all();
    assert_eq!(lanes.next_ready(), Some(OpId(1)));
    lanes.complete(OpId(1));
    assert_eq!(lanes.next_ready(), Some(OpId(2)));
}

#[test]
fn sessions_that_do_not_fit_wait_in_the_journal_and_come_back_in_order() {
    let mut sessions = waiting_sessions(1, 8, 2);
    let Admission::Start(turn) = sessions.admit(&key("running")) else {
        panic!()
    };
    for (row, who) in (1..).zip(["a", "b", "c", "d", "c"]) {
        assert_eq!(sessions.admit(&key(who)), Admission::Wait { behind: None });
        assert!(!sessions.enqueue(&key(who), row));
    }
    assert_eq!((sessions.active(), sessions.has_elsewhere()), (3, true));
    assert_eq!(sessions.next_reload(), None, "there is no room yet");
    sessions.ended(&key("running"), turn);
    // A new session does not pass those that wait elsewhere, whoever is here.
    let (who, row, turn) = sessions.next_start().unwrap();
    assert_eq!((who, row), (key("a"), 1));
    assert_eq!(sessions.admit(&key("new")), Admission::Wait { behind: None });
    assert_eq!(sessions.next_reload(), Some(2));
    sessions.reload(["c", "d", "c"].map(key), None);
    sessions.enqueue(&key("new"), 6);
    assert_eq!(sessions.next_refill(), Some((key("c"), 0)));
    sessions.refill(&key("c"), Some((&[3, 5], None)));
    assert_eq!(sessions.next_refill(), Some((key("d"), 0)));
    sessions.refill(&key("d"), Some((&[4], None)));
    sessions.ended(&key("a"), turn);
    let run_all = |sessions: &mut Sessions| -> Vec<i64> {
        std::iter::from_fn(|| {
            let (who, row, turn) = sessions.next_start()?;
            sessions.ended(&who, turn);
            Some(row)
        })
        .collect()
    };
    assert_eq!(run_all(&mut sessions), [2, 3, 4, 5]);
    assert_eq!(sessions.next_reload(), Some(5));
    sessions.reload([key("new")], None);
    assert_eq!(sessions.next_refill(), Some((key("new"), 0)));
    sessions.refill(&key("new"), Some((&[6], None)));
    assert_eq!(run_all(&mut sessions), [6]);
    assert_eq!((sessions.active(), sessions.has_elsewhere()), (0, false));
}

#[test]
fn a_session_that_came_when_there_was_no_room_stays_here_if_there_is_room_once_it_is_committed() {
    let mut sessions = waiting_sessions(1, 8, 1);
    let Admission::Start(turn) = sessions.admit(&key("a")) else {
        panic!()
    };
    sessions.admit(&key("b"));
    sessions.enqueue(&key("b"), 1);
    sessions.admit(&key("c"));
    sessions.ended(&key("a"), turn);
    let (_, _, turn) = sessions.next_start().unwrap();
    sessions.enqueue(&key("c"), 2);
    assert_eq!(
        (sessions.waiting(&key("c")), sessions.has_elsewhere()),
        (1, false)
    );
    sessions.ended(&key("b"), turn);
    assert_eq!(sessions.next_start().map(|start| start.1), Some(2));
}

#[test]
fn rows_in_the_journal_are_requested_once_however_often_they_are_missed() {
    let mut sessions = sessions(8, 1);
    let a = key("a");
    sessions.admit(&a);
    for row in [2, 3] {
        sessions.admit(&a);
        sessions.enqueue(&a, row);
    }
    sessions.withdraw(&a, 2);
    sessions.admit(&a);
    sessions.enqueue(&a, 4);
    assert_eq!(sessions.next_refill(), Some((a.clone(), 2)));
    assert_eq!(sessions.next_refill(), None, "they would run twice");
}

#[test]
fn a_turn_that_is_being_stopped_is_not_a_running_one() {
    let mut sessions = sessions(8, 8);
    let a = key("a");
    assert_eq!(sessions.running_turn(&a), None);
    let Admission::Start(turn) = sessions.admit(&a) else {
        panic!()
    };
    assert_eq!(sessions.running_turn(&a), Some(turn));
    sessions.interrupt(&a);
    assert_eq!(
        (sessions.running_turn(&a), sessions.turn_of(&a)),
        (None, Some(turn))
    );
}

#[test]
fn rows_that_came_while_the_journal_was_read_are_requested_again() {
    let mut sessions = sessions(8, 1);
    let a = key("a");
    sessions.admit(&a);
    for row in [2, 3] {
        sessions.admit(&a);
        sessions.enqueue(&a, row);
    }
    sessions.withdraw(&a, 2);
    assert_eq!(sessions.next_refill(), Some((a.clone(), 2)));
    sessions.admit(&a);
    sessions.enqueue(&a, 4);
    sessions.refill(&a, Some((&[], None)));
    assert_eq!(sessions.next_refill(), Some((a.clone(), 2)));
    sessions.refill(&a, Some((&[4], None)));
    assert_eq!(sessions.rows(&a).collect::<Vec<_>>(), [4]);
}

#[test]
fn a_row_waits_if_it_is_queued_or_comes_after_what_is_queued() {
    let mut sessions = sessions(8, 1);
    let a = key("a");
    sessions.admit(&a);
    sessions.admit(&a);
    sessions.enqueue(&a, 2);
    assert!(!sessions.may_wait(&a, 3), "nothing is in the journal");
    sessions.admit(&a);
    sessions.enqueue(&a, 3);
    assert_eq!(
        [1, 2, 3].map(|row| sessions.may_wait(&a, row)),
        [false, true, true]
    );
    assert!(sessions.has_unread(&a) && !sessions.has_unread(&key("b")));
}

#[test]
fn a_row_of_a_session_that_is_in_the_journal_alone_may_wait() {
    let mut sessions = sessions(8, 8);
    let a = key("a");
    assert!(!sessions.may_wait(&a, 3) && !sessions.has_unread(&a));
    sessions.recover();
    assert!(sessions.may_wait(&a, 3) && sessions.has_unread(&a));
}

#[test]
fn a_lane_waits_while_an_op_is_behind_another_or_was_put_back() {
    let mut lanes = Lanes::new();
    let a: LaneId = "a".into();
    assert!(!lanes.is_waiting(&a));
    lanes.push("a", OpId(1));
    assert!(lanes.is_waiting(&a) && !lanes.is_waiting(&"b".into()));
    assert_eq!(lanes.next_ready(), Some(OpId(1)));
    assert!(!lanes.is_waiting(&a), "it is in flight");
    lanes.put_back(OpId(1));
    assert!(lanes.is_waiting(&a));
    lanes.retry(&a);
    lanes.push("a", OpId(2));
    assert_eq!(lanes.next_ready(), Some(OpId(1)));
    assert_eq!(lanes.next_ready(), None, "one at a time");
    lanes.retry(&a);
    assert_eq!(lanes.next_ready(), None, "one at a time");
    assert!(lanes.complete(OpId(1)) && lanes.is_waiting(&a));
}

#[test]
fn an_op_takes_the_place_of_another_whether_that_waits_or_is_in_flight() {
    let mut lanes = Lanes::new();
    for op in 1..=3 {
        lanes.push("a", OpId(op));
    }
    assert_eq!(lanes.next_ready(), Some(OpId(1)));
    lanes.replace(OpId(2), OpId(20));
    lanes.replace(OpId(1), OpId(10));
    assert!(!lanes.complete(OpId(1)) && !lanes.complete(OpId(2)));
    lanes.retry_all();
    let order = std::iter::from_fn(|| {
        let op = lanes.next_ready()?;
        lanes.complete(op);
        Some(op)
    });
    assert_eq!(order.collect::<Vec<_>>(), [10, 20, 3].map(OpId));
}

#[test]
fn a_session_waits_for_rows_in_memory_and_in_the_journal() {
    let mut sessions = sessions(1, 1);
    let (a, b) = (key("a"), key("b"));
    let Admission::Start(turn) = sessions.admit(&a) else {
        panic!("there is room")
    };
    assert_eq!((sessions.waiting(&a), sessions.waiting(&b)), (0, 0));
    assert_eq!(sessions.admit(&a), Admission::Wait { behind: Some(turn) });
    sessions.enqueue(&a, 1);
    assert_eq!((sessions.waiting(&a), sessions.waiting(&b)), (1, 0));
    assert!(matches!(sessions.admit(&a), Admission::Wait { .. }));
    assert!(sessions.enqueue(&a, 2), "it does not fit");
    sessions.withdraw(&a, 1);
    assert_eq!(sessions.waiting(&a), 1, "the journal has another");
}
