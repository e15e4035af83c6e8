use super::*;

/// Asked and answered.
fn idle() -> World {
    let mut world = World::live();
    let generation = world.generation();
    world.link.go_idle(secs(10), world.now);
    world.frame(generation, ControlFrame::GoingIdleAck);
    world.drain();
    world
}

fn dormant() -> World {
    let mut world = idle();
    world.link.go_dormant(world.now).unwrap();
    world.drain();
    world
}

#[test]
fn going_idle_is_asked_once_served_meanwhile_and_answered_once() {
    let mut world = World::live();
    let generation = world.generation();
    world.link.go_idle(secs(10), world.now);
    world.link.go_idle(secs(10), world.now);
    assert_eq!(world.lines(), [json!({"type": "going_idle"})]);
    world.run(secs(5));
    world.link.request(op(1), world.now);
    let lines = world.lines();
    world.answer(&request_id(&lines[0]), Some(done()));
    assert!(world.link.acknowledge(generation, "7".to_owned()));
    world.drain();
    world.frame(generation, ControlFrame::GoingIdleAck);
    assert_eq!(world.reports(), [LinkEvent::IdleAcked { late: false }]);
    world.frame(generation, ControlFrame::GoingIdleAck);
    assert_eq!(world.reports(), []);
    world.link.go_idle(secs(10), world.now);
    assert_eq!(
        world.drain(),
        [LinkAction::Event(LinkEvent::IdleAcked { late: false })]
    );
}

#[test]
fn the_least_patient_asker_decides_how_long_an_answer_is_awaited() {
    let mut world = World::live();
    world.link.go_idle(secs(10), world.now);
    world.link.go_idle(secs(2), world.now);
    world.link.go_idle(secs(20), world.now);
    world.drain();
    world.run(Duration::from_millis(1_999));
    assert_eq!(world.reports(), []);
    world.run(Duration::from_millis(1));
    assert_eq!(world.reports(), [LinkEvent::IdleUnanswered]);
    assert!(world.link.is_live());
}

#[test]
fn a_late_answer_is_told_as_such_and_counts() {
    let mut world = World::live();
    let generation = world.generation();
    world.link.go_idle(secs(2), world.now);
    world.run(secs(3));
    world.drain();
    assert_eq!(
        world.link.go_dormant(world.now),
        Err(DormancyRefused::NotBuffering)
    );
    world.frame(generation, ControlFrame::GoingIdleAck);
    assert_eq!(world.reports(), [LinkEvent::IdleAcked { late: true }]);
    assert_eq!(world.link.go_dormant(world.now), Ok(()));
}

#[test]
fn nobody_answers_when_there_is_no_connection_or_it_goes() {
    let mut world = World::new();
    world.drain();
    world.link.go_idle(secs(10), world.now);
    assert_eq!(world.reports(), [LinkEvent::IdleUnanswered]);
    world.go_live();
    world.link.go_idle(secs(10), world.now);
    world.drain();
    world.close(1001, "");
    assert_eq!(world.reports()[0], LinkEvent::IdleUnanswered);
    world.run_to_dial();
    let generation = world.go_live();
    world.drain();
    world.frame(generation, ControlFrame::GoingIdleAck);
    assert_eq!(
        world.reports(),
        [],
        "an answer to a question of the connection before"
    );
    assert_eq!(
        world.link.go_dormant(world.now),
        Err(DormancyRefused::NotBuffering)
    );
}

#[test]
fn without_an_acknowledgement_there_is_no_sleep() {
    let mut world = World::new();
    assert_eq!(world.link.go_dormant(world.now), Err(DormancyRefused::NotLive));
    world.go_live();
    world.drain();
    assert_eq!(
        world.link.go_dormant(world.now),
        Err(DormancyRefused::NotBuffering)
    );
    world.link.go_idle(secs(10), world.now);
    assert_eq!(
        world.link.go_dormant(world.now),
        Err(DormancyRefused::NotBuffering)
    );
    let generation = world.generation();
    world.frame(generation, ControlFrame::GoingIdleAck);
    world.link.request(op(1), world.now);
    assert_eq!(world.link.go_dormant(world.now), Err(DormancyRefused::Busy));
    assert!(world.link.is_live());
}

#[test]
fn going_dormant_closes_the_socket_and_dials_again_after_a_second() {
    let mut world = idle();
    let generation = world.generation();
    world.link.go_dormant(world.now).unwrap();
    assert_eq!(
        world.drain(),
        [
            LinkAction::CloseSocket {
                generation,
                code: 1001,
                reason: "going away"
            },
            LinkAction::Event(LinkEvent::Dormant)
        ]
    );
    assert!(matches!(world.link.state(), LinkState::Dormant { .. }));
    world.link.handle_closed(generation, Some((1001, "")), world.now);
    world.run(Duration::from_millis(999));
    assert!(matches!(world.link.state(), LinkState::Dormant { .. }));
    world.run(Duration::from_millis(1));
    world.dialing();
}

#[test]
fn a_held_dial_waits_for_its_release() {
    let mut world = idle();
    world.link.hold_redial(world.now);
    world.link.go_dormant(world.now).unwrap();
    world.run(secs(30));
    assert!(matches!(world.link.state(), LinkState::Dormant { .. }));
    assert_eq!(
        world.link.poll_timeout().unwrap().reason,
        TimerReason::HoldCeiling
    );
    assert!(world.link.next_dial().is_some_and(|dial| !dial.passed(world.now)));
    world.link.release_redial(world.now);
    world.dialing();
    assert_eq!((world.link.hold, world.link.next_dial()), (None, None));
}

#[test]
fn a_release_that_comes_early_leaves_the_dormant_second_alone() {
    let mut world = dormant();
    world.link.hold_redial(world.now);
    world.link.release_redial(world.now);
    assert!(matches!(world.link.state(), LinkState::Dormant { .. }));
}

#[test]
fn a_hold_ends_at_its_ceiling_also_when_the_machine_slept_through_it() {
    let mut world = idle();
    world.link.hold_redial(world.now);
    world.link.go_dormant(world.now).unwrap();
    world.run(secs(59));
    assert!(matches!(world.link.state(), LinkState::Dormant { .. }));
    world.run(secs(1));
    world.dialing();

    let mut world = idle();
    world.link.hold_redial(world.now);
    world.link.go_dormant(world.now).unwrap();
    world.run(secs(2));
    world.freeze(secs(20));
    world.link.handle_timeout(world.now);
    assert!(
        matches!(world.link.state(), LinkState::Dormant { .. }),
        "asleep for a while, still held"
    );
    world.freeze(secs(40));
    world.run(secs(1));
    world.dialing();
}

#[test]
fn a_machine_that_slept_while_dormant_dials_at_once() {
    let mut world = dormant();
    world.freeze(secs(7200));
    world.link.handle_timeout(world.now);
    world.dialing();
}

#[test]
fn waking_dials_at_once_held_or_not_and_disturbs_no_connection() {
    let mut world = idle();
    world.run(secs(1));
    world.link.hold_redial(world.now);
    world.link.go_dormant(world.now).unwrap();
    world.link.wake(world.now);
    world.dialing();
    world.go_live();
    world.drain();
    world.link.wake(world.now);
    assert_eq!(world.drain(), []);
    assert!(world.link.is_live());
}

#[test]
fn waking_ends_a_long_wait() {
    let mut world = World::new();
    world.fail_dial(DialFailure::Http {
        status: 503,
        retry_after: Some(secs(600)),
    });
    world.run(secs(1));
    world.link.wake(world.now);
    world.dialing();
}

#[test]
fn renewing_dials_again_so_that_the_connector_stops_buffering() {
    let mut world = idle();
    let generation = world.generation();
    world.link.renew(world.now);
    let said = world.drain();
    assert!(
        matches!(said[0], LinkAction::CloseSocket { generation: closed, code: 1001, .. } if closed == generation)
    );
    assert!(world.dialing() > generation);
    world.go_live();
    assert!(matches!(world.link.state(), LinkState::Live(live) if live.idle == IdleRequest::Awake));
}
