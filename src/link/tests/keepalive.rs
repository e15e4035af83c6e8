use super::*;

fn pings(world: &mut World) -> usize {
    world
        .drain()
        .iter()
        .filter(|action| matches!(action, LinkAction::Ping { .. }))
        .count()
}

#[test]
fn a_ping_goes_out_every_thirty_seconds_whatever_the_traffic() {
    let mut world = World::live();
    let generation = world.generation();
    for _ in 0..120 {
        world.run(secs(1));
        world.link.handle_traffic(generation, world.now);
    }
    assert_eq!(pings(&mut world), 4);
    assert!(world.link.is_live());
}

#[test]
fn a_connector_that_says_nothing_for_a_minute_is_left_and_dialled_again() {
    let mut world = World::live();
    let silent = world.generation();
    world.run(Duration::from_millis(59_999));
    assert!(world.link.is_live());
    assert_eq!(pings(&mut world), 1);
    world.run(Duration::from_millis(1));
    let said = world.drain();
    let close = said
        .iter()
        .position(|action| matches!(action, LinkAction::CloseSocket { generation, code: 1011, .. } if *generation == silent));
    assert!(close.is_some());
    assert!(said.iter().any(|action| matches!(
        action,
        LinkAction::Event(LinkEvent::Lost {
            loss: Loss::Silent,
            ..
        })
    )));
    assert!(world.run_to_dial() > silent);
}

#[test]
fn any_frame_at_all_proves_that_the_connector_lives() {
    let mut world = World::live();
    let generation = world.generation();
    world.run(secs(59));
    world.link.handle_traffic(generation, world.now);
    world.run(secs(59));
    world.frame(generation, ControlFrame::GoingIdleAck);
    world.run(secs(59));
    assert!(world.link.is_live());
    world.run(secs(1));
    assert!(!world.link.is_live());
}

#[test]
fn the_next_timer_is_named() {
    let mut world = World::new();
    let reason = |world: &World| world.link.poll_timeout().unwrap().reason;
    assert_eq!(reason(&world), TimerReason::DialTimeout);
    let generation = world.dialing();
    world.link.handle_dialed(generation, None, world.now);
    assert_eq!(reason(&world), TimerReason::HandshakeTimeout);
    world.frame(generation, descriptor("discord", "D"));
    assert_eq!(reason(&world), TimerReason::Ping);
    world.link.request(
        Op {
            timeout: Some(secs(3)),
            ..op(1)
        },
        world.now,
    );
    world.drain();
    let timer = world.link.poll_timeout().unwrap();
    assert_eq!((timer.due, timer.reason), (secs(3), TimerReason::Request));
    assert_eq!(timer.wake_at, secs(1), "both clocks are looked at meanwhile");
    world.link.go_idle(secs(2), world.now);
    assert_eq!(reason(&world), TimerReason::IdleAnswer);
    world.link.close(secs(1), world.now);
    assert_eq!(reason(&world), TimerReason::CloseBy);
    world.link.close(Duration::ZERO, world.now);
    assert_eq!(world.link.poll_timeout(), None);
}

#[test]
fn while_the_reader_is_blocked_silence_means_nothing_and_a_timer_stays_armed() {
    let mut world = World::live();
    let generation = world.generation();
    world.link.handle_reader_blocked(generation, world.now);
    assert_eq!(
        world.link.poll_timeout().unwrap().reason,
        TimerReason::ReaderBlocked
    );
    world.run(secs(600));
    assert!(world.link.is_live());
    assert_eq!(pings(&mut world), 0);
    world.link.handle_reader_resumed(generation, world.now);
    world.run(Duration::from_millis(59_999));
    assert!(world.link.is_live(), "resuming counts as traffic");
    assert_eq!(pings(&mut world), 2, "the overdue ping goes out");
    world.run(Duration::from_millis(1));
    assert!(!world.link.is_live());
}

#[test]
fn a_blocked_reader_does_not_time_the_handshake_out() {
    let mut world = World::new();
    let generation = world.dialing();
    world.link.handle_dialed(generation, None, world.now);
    world.link.handle_reader_blocked(generation, world.now);
    world.run(secs(100));
    assert!(matches!(world.link.state(), LinkState::Greeting { .. }));
    world.link.handle_reader_resumed(generation, world.now);
    world.run(secs(29));
    assert!(matches!(world.link.state(), LinkState::Greeting { .. }));
    world.run(secs(1));
    assert_eq!(world.loss().0, Loss::HandshakeTimeout);
}

#[test]
fn a_blocked_reader_stops_neither_request_timeouts_nor_the_next_connection() {
    let mut world = World::live();
    let generation = world.generation();
    world.link.handle_reader_blocked(generation, world.now);
    world.link.request(op(1), world.now);
    world.drain();
    world.run(secs(30));
    assert_eq!(world.settled(), [(1, unknown())]);
    world.close(1001, "");
    world.run_to_dial();
    world.go_live();
    world.link.handle_reader_blocked(generation, world.now);
    world.run(secs(60));
    assert!(
        !world.link.is_live(),
        "a report of an old connection changes nothing"
    );
}
