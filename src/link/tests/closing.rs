use super::*;

fn closed(generation: Generation) -> [LinkAction; 2] {
    [
        LinkAction::CloseSocket {
            generation,
            code: 1001,
            reason: "going away",
        },
        LinkAction::Event(LinkEvent::Ended(End::Closed)),
    ]
}

#[test]
fn a_link_without_a_socket_ends_at_once() {
    let mut world = World::new();
    world.fail_dial(DialFailure::Network);
    world.drain();
    world.link.close(secs(5), world.now);
    assert_eq!(world.drain(), [LinkAction::Event(LinkEvent::Ended(End::Closed))]);
    assert_eq!(world.link.state(), &LinkState::Ended(End::Closed));
    assert_eq!(world.link.poll_timeout(), None);
}

#[test]
fn a_dial_or_a_handshake_under_way_is_given_up() {
    let mut world = World::new();
    let generation = world.dialing();
    world.drain();
    world.link.close(secs(5), world.now);
    assert_eq!(world.drain(), closed(generation));

    let mut world = World::new();
    world.link.handle_dialed(generation, None, world.now);
    world.drain();
    world.link.close(secs(5), world.now);
    assert_eq!(world.drain(), closed(generation));
    world.frame(generation, descriptor("discord", "late"));
    world.link.handle_closed(generation, Some((1001, "")), world.now);
    assert_eq!(world.drain(), []);
}

#[test]
fn a_live_link_settles_what_it_accepted_and_takes_nothing_new() {
    let mut world = World::one_at_a_time();
    let generation = world.generation();
    world.link.request(op(1), world.now);
    world.link.request(op(2), world.now);
    let first = world.lines();
    world.link.close(secs(5), world.now);
    world.link.request(op(3), world.now);
    assert_eq!(world.settled(), [(3, SendResult::NotSent(NotSent::Closing))]);
    assert!(world.link.acknowledge(generation, "9".to_owned()));
    world.drain();
    world.answer(&request_id(&first[0]), Some(done()));
    let said = world.drain();
    assert_eq!(said.len(), 2);
    assert_eq!(
        said[0],
        LinkAction::Completed {
            id: OpId(1),
            result: applied()
        }
    );
    let LinkAction::Write { line, .. } = &said[1] else {
        panic!("{said:?}")
    };
    assert_eq!(kind(line), "outbound");
    world.answer(&request_id(&serde_json::from_str(line).unwrap()), Some(done()));
    let [close, ended] = closed(generation);
    assert_eq!(
        world.drain(),
        [
            LinkAction::Completed {
                id: OpId(2),
                result: applied()
            },
            close,
            ended
        ]
    );
}

#[test]
fn closing_ends_at_its_deadline_with_everything_settled() {
    let mut world = World::one_at_a_time();
    world.link.request(op(1), world.now);
    world.link.request(op(2), world.now);
    world.drain();
    world.link.close(secs(5), world.now);
    world.run(Duration::from_millis(4_999));
    assert!(matches!(world.link.state(), LinkState::Closing { .. }));
    world.run(Duration::from_millis(1));
    assert_eq!(
        world.settled(),
        [(1, SendResult::Lost), (2, SendResult::NotSent(NotSent::Closing))]
    );
    assert_eq!(world.link.state(), &LinkState::Ended(End::Closed));
}

#[test]
fn a_second_close_may_only_shorten_the_first() {
    let mut world = World::live();
    let generation = world.generation();
    world.link.request(op(1), world.now);
    world.drain();
    world.link.close(secs(5), world.now);
    world.link.close(secs(50), world.now);
    assert!(
        matches!(world.link.state(), LinkState::Closing { until, .. } if until.mono == world.now.mono + secs(5))
    );
    world.link.close(Duration::ZERO, world.now);
    let [close, ended] = closed(generation);
    assert_eq!(
        world.drain(),
        [
            LinkAction::Completed {
                id: OpId(1),
                result: SendResult::Lost
            },
            close,
            ended
        ]
    );
    world.link.close(Duration::ZERO, world.now);
    assert_eq!(world.drain(), []);
}

#[test]
fn a_socket_that_goes_while_closing_ends_the_link_whatever_its_code() {
    let mut world = World::live();
    world.link.request(op(1), world.now);
    world.drain();
    world.link.close(secs(5), world.now);
    world.close(4401, "unauthorized");
    assert_eq!(world.settled(), [(1, SendResult::Lost)]);
    assert_eq!(world.link.state(), &LinkState::Ended(End::Closed));
}

#[test]
fn an_open_question_about_idleness_is_answered_at_the_close() {
    let mut world = World::live();
    world.link.go_idle(secs(10), world.now);
    world.link.request(op(1), world.now);
    world.drain();
    world.link.close(secs(5), world.now);
    assert_eq!(world.reports(), [LinkEvent::IdleUnanswered]);
}

#[test]
fn a_closed_link_never_comes_back() {
    let mut world = World::live();
    world.link.close(secs(5), world.now);
    world.drain();
    world.link.wake(world.now);
    world.link.note_secret_rotated(world.now);
    world.link.release_redial(world.now);
    world.freeze(secs(600));
    world.link.handle_timeout(world.now);
    assert_eq!(world.drain(), []);
    world.link.request(op(1), world.now);
    assert_eq!(world.settled(), [(1, SendResult::NotSent(NotSent::Closing))]);
}

#[test]
fn every_loss_has_one_of_the_kinds_that_are_counted() {
    let reason = String::new;
    let losses = [
        Loss::DialFailed,
        Loss::DialTimeout,
        Loss::Refused { status: 500 },
        Loss::Unauthorized { reason: reason() },
        Loss::Expired,
        Loss::Doubted { reason: reason() },
        Loss::HandshakeTimeout,
        Loss::Closed {
            code: 1000,
            reason: reason(),
        },
        Loss::Silent,
        Loss::SocketError,
        Loss::TooLarge { bytes: 1 },
        Loss::Renewed,
    ];
    let kinds = losses.map(|loss| loss.kind());
    assert_eq!(kinds, Loss::KINDS[..12], "and an end is the last one");
    assert_eq!(Loss::UnauthorizedHttp { status: 401 }.kind(), "unauthorized");
}
