use super::*;

fn waiting() -> World {
    let mut world = World::new();
    for _ in 0..8 {
        world.run_to_dial();
        world.fail_dial(DialFailure::Http {
            status: 503,
            retry_after: Some(secs(300)),
        });
    }
    world.drain();
    world
}

#[test]
fn a_waiting_link_dials_at_once_after_a_sleep() {
    let mut world = waiting();
    world.freeze(secs(4));
    world.link.handle_timeout(world.now);
    assert!(
        matches!(world.link.state(), LinkState::Waiting { .. }),
        "no more than a clock being trimmed"
    );
    world.freeze(secs(6));
    world.link.handle_timeout(world.now);
    world.dialing();
    assert!(world.reports().contains(&LinkEvent::Thawed));
}

#[test]
fn a_sleep_is_noticed_by_whatever_happens_first() {
    let mut world = waiting();
    world.freeze(secs(3600));
    world.link.request(op(1), world.now);
    world.dialing();
    assert_eq!(world.settled(), [(1, SendResult::NotSent(NotSent::NotLive))]);
}

#[test]
fn a_live_link_pings_at_once_after_a_sleep_and_is_judged_by_the_wall_clock() {
    let mut world = World::live();
    world.run(secs(10));
    world.drain();
    world.freeze(secs(3600));
    world.link.handle_timeout(world.now);
    assert!(
        world
            .drain()
            .iter()
            .any(|action| matches!(action, LinkAction::Ping { .. })),
        "the other end gets a chance to answer"
    );
    let timer = world.link.poll_timeout().unwrap();
    assert_eq!(timer.reason, TimerReason::Silence);
    assert_eq!(timer.due, world.now.mono + secs(5));
    world.run(secs(5));
    assert_eq!(world.loss().0, Loss::Silent);
}

#[test]
fn a_live_link_that_is_answered_after_a_sleep_stays_live() {
    let mut world = World::live();
    let generation = world.generation();
    world.freeze(secs(3600));
    world.link.handle_timeout(world.now);
    world.run(secs(4));
    world.link.handle_traffic(generation, world.now);
    world.run(secs(59));
    assert!(world.link.is_live());
}

#[test]
fn a_short_sleep_counts_towards_the_silence() {
    let mut world = World::live();
    world.run(secs(10));
    world.freeze(secs(30));
    world.link.handle_timeout(world.now);
    world.run(Duration::from_millis(19_999));
    assert!(world.link.is_live());
    world.run(Duration::from_millis(1));
    assert_eq!(world.loss().0, Loss::Silent);
}

#[test]
fn a_clock_set_back_puts_nothing_off() {
    let mut world = World::live();
    world.now.unix_ms -= 86_400_000;
    world.run(secs(60));
    assert_eq!(world.loss().0, Loss::Silent);
}

#[test]
fn a_token_that_slept_on_its_way_is_not_held_against_us() {
    let mut world = World::live();
    world.close(4401, "unauthorized");
    let generation = world.dialing();
    world.link.handle_dialed(generation, None, world.now);
    world.freeze(secs(900));
    world
        .link
        .handle_closed(generation, Some((4401, "unauthorized")), world.now);
    assert_eq!(world.loss().0, Loss::Expired);
    world.run_to_dial();
    world.go_live();
}

#[test]
fn a_dial_that_was_slept_through_is_given_up() {
    let mut world = World::new();
    world.drain();
    world.freeze(secs(900));
    world.link.handle_timeout(world.now);
    assert_eq!(world.loss().0, Loss::DialTimeout);
}

#[test]
fn after_a_suspend_ops_wait_until_something_is_received() {
    let mut world = World::live();
    let generation = world.generation();
    world.freeze(secs(3600));
    world.link.request(op(1), world.now);
    assert_eq!(world.lines(), Vec::<Value>::new(), "the connection may be dead");
    world.link.handle_traffic(generation, world.now);
    assert_eq!(world.lines().len(), 1);

    world.freeze(secs(3600));
    world.link.request(op(2), world.now);
    world.run(secs(6));
    let undelivered = (2, SendResult::NotSent(NotSent::Lost));
    assert!(
        world.settled().contains(&undelivered),
        "it is known to be undelivered"
    );
}

#[test]
fn after_an_unanswered_ping_ops_wait_until_something_is_received() {
    let mut world = World::live();
    let generation = world.generation();
    world.run(secs(30));
    world.link.request(op(1), world.now);
    assert_eq!(world.lines().len(), 1, "the ping may still be answered");
    world.run(secs(5));
    world.link.request(op(2), world.now);
    assert_eq!(world.lines(), Vec::<Value>::new());
    world.link.handle_traffic(generation, world.now);
    assert_eq!(world.lines().len(), 1);
}
