use super::*;
use crate::direct::telegram::FLOOD_RATES;
use CallKind::{Droppable, Required};

const PERSON: i64 = 42;
const CLUB: i64 = -1_001_000;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[test]
fn before_the_server_limits_a_chat_required_calls_are_counted_and_never_wait() {
    let mut flood = FloodBudget::new(FLOOD_RATES);
    for _ in 0..500 {
        assert_eq!(flood.admit(PERSON, Required, ms(0)), FloodPermit::Now);
    }
    assert_eq!(flood.admit(PERSON, Droppable, ms(0)), FloodPermit::Drop);
    assert_eq!(
        flood.admit(PERSON, Droppable, ms(3_000)),
        FloodPermit::Now,
        "a burst is soon paid off"
    );
}

/// The budgets of a server that has limited this chat and is over it.
fn strict(chat: i64) -> FloodBudget {
    let mut flood = FloodBudget::new(FLOOD_RATES);
    flood.limited(chat, ms(0), ms(0));
    flood
}

#[test]
fn a_private_chat_has_three_calls_at_once_and_one_per_second() {
    let mut flood = strict(PERSON);
    let start = ms(60_000);
    for _ in 0..3 {
        assert_eq!(flood.admit(PERSON, Required, start), FloodPermit::Now);
    }
    assert_eq!(
        flood.admit(PERSON, Required, start),
        FloodPermit::At(start + ms(1_000))
    );
    assert_eq!(
        flood.admit(PERSON, Required, start + ms(999)),
        FloodPermit::At(start + ms(1_000))
    );
    assert_eq!(flood.admit(PERSON, Required, start + ms(1_000)), FloodPermit::Now);
    // Another chat has a budget of its own.
    assert_eq!(flood.admit(7, Required, start + ms(1_000)), FloodPermit::Now);
}

#[test]
fn a_group_has_five_calls_at_once_and_one_per_three_seconds() {
    let mut flood = strict(CLUB);
    let start = ms(60_000);
    for _ in 0..5 {
        assert_eq!(flood.admit(CLUB, Required, start), FloodPermit::Now);
    }
    assert_eq!(
        flood.admit(CLUB, Required, start),
        FloodPermit::At(start + ms(3_000))
    );
    let sent = (0..60_000).step_by(100).filter(|at| {
        let permit = flood.admit(CLUB, Required, start + ms(*at));
        permit == FloodPermit::Now
    });
    assert_eq!(
        sent.count(),
        19,
        "20 messages per minute, with the burst of the first second"
    );
}

#[test]
fn droppable_calls_share_the_budget_and_leave_the_last_room_to_required_ones() {
    let mut flood = FloodBudget::new(FLOOD_RATES);
    assert_eq!(flood.admit(PERSON, Droppable, ms(0)), FloodPermit::Now);
    assert_eq!(flood.admit(PERSON, Droppable, ms(0)), FloodPermit::Now);
    assert_eq!(flood.admit(PERSON, Droppable, ms(0)), FloodPermit::Drop);
    assert_eq!(
        flood.admit(PERSON, Required, ms(0)),
        FloodPermit::Now,
        "an answer never waits for typing"
    );
    assert_eq!(flood.admit(PERSON, Droppable, ms(1_900)), FloodPermit::Drop);
    assert_eq!(flood.admit(PERSON, Droppable, ms(2_000)), FloodPermit::Now);
}

/// A mark, typing, the answer, and the mark's end: what every turn in a private chat takes.
#[test]
fn a_normal_conversation_is_not_slowed_down() {
    let mut flood = FloodBudget::new(FLOOD_RATES);
    for turn in 0..20_u64 {
        let start = ms(turn * 5_000);
        assert_eq!(flood.admit(PERSON, Droppable, start), FloodPermit::Now);
        assert_eq!(flood.admit(PERSON, Droppable, start + ms(100)), FloodPermit::Now);
        assert_eq!(flood.admit(PERSON, Required, start + ms(200)), FloodPermit::Now);
        assert_eq!(flood.admit(PERSON, Required, start + ms(200)), FloodPermit::Now);
    }
}

#[test]
fn a_call_for_show_never_waits() {
    let mut flood = FloodBudget::new(FLOOD_RATES);
    for step in 0..5_000 {
        let permit = flood.admit(
            PERSON + step % 3,
            Droppable,
            ms(u64::try_from(step).unwrap() * 20),
        );
        assert!(
            matches!(permit, FloodPermit::Now | FloodPermit::Drop),
            "{permit:?}"
        );
    }
}

#[test]
fn while_the_server_limits_a_chat_droppable_calls_are_dropped_and_required_ones_held() {
    let mut flood = FloodBudget::new(FLOOD_RATES);
    let until = flood.limited(PERSON, ms(34_000), ms(1_000));
    assert_eq!(until, ms(36_000), "a second more than the server asks for");
    for now in [1_000, 20_000, 35_999] {
        assert_eq!(flood.admit(PERSON, Droppable, ms(now)), FloodPermit::Drop);
        let retry_after = until.saturating_sub(ms(now));
        assert_eq!(
            flood.admit(PERSON, Required, ms(now)),
            FloodPermit::Limited { retry_after }
        );
    }
    assert_eq!(
        flood.admit(CLUB, Required, ms(2_000)),
        FloodPermit::Now,
        "other chats go on"
    );
    assert_eq!(flood.admit(PERSON, Droppable, ms(36_000)), FloodPermit::Now);
    // A shorter wait does not end a longer one, and an absurd one is bounded.
    flood.limited(PERSON, ms(60_000), ms(40_000));
    assert_eq!(flood.limited(PERSON, ms(1_000), ms(40_001)), ms(101_000));
    let day = flood.limited(CLUB, Duration::from_secs(u64::MAX), ms(0));
    assert_eq!(day, MAX_RETRY_AFTER + MARGIN);
}

#[test]
fn three_chats_limited_within_ten_seconds_limit_the_bot() {
    let mut flood = FloodBudget::new(FLOOD_RATES);
    for _ in 0..5 {
        flood.limited(1, ms(5_000), ms(0));
    }
    assert_eq!(
        flood.admit(9, Required, ms(0)),
        FloodPermit::Now,
        "one chat is not the bot"
    );
    flood.limited(2, ms(5_000), ms(1_000));
    flood.limited(3, ms(5_000), ms(12_000));
    assert_eq!(
        flood.admit(9, Required, ms(12_000)),
        FloodPermit::Now,
        "too far apart"
    );
    flood.limited(4, ms(5_000), ms(12_500));
    flood.limited(5, ms(30_000), ms(13_000));
    assert_eq!(flood.admit(9, Droppable, ms(13_000)), FloodPermit::Drop);
    let retry_after = ms(31_000);
    assert_eq!(
        flood.admit(9, Required, ms(13_000)),
        FloodPermit::Limited { retry_after }
    );
    assert_eq!(flood.admit(9, Required, ms(44_000)), FloodPermit::Now);
}

#[test]
fn all_chats_together_make_25_calls_per_second_once_the_bot_was_limited() {
    let mut flood = FloodBudget::new(FLOOD_RATES);
    for chat in 1..=3 {
        flood.limited(-chat, ms(0), ms(0));
    }
    let mut sent = 0;
    for at in 60_000..70_000_u64 {
        let chat = i64::try_from(at % 5_000).unwrap() + 1;
        sent += u64::from(flood.admit(chat, Required, ms(at)) == FloodPermit::Now);
    }
    assert!((250..=275).contains(&sent), "{sent}");
}

#[test]
fn memory_is_bounded() {
    let mut flood = FloodBudget::new(FLOOD_RATES);
    for chat in 0..200_000_i64 {
        let now = ms(chat.unsigned_abs() * 1_000);
        assert_eq!(flood.admit(chat + 1, Required, now), FloodPermit::Now);
        if chat % 1_000 == 0 {
            flood.limited(-chat, ms(1_000), now);
        }
    }
    assert!(flood.chats.len() <= MAX_CHATS);
    assert!(flood.limits.len() <= WIDEN_CHATS);
}
