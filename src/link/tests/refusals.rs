use super::*;

/// What a 4401 leads to.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Then {
    /// The next dial after an ordinary wait.
    Backoff,
    /// The next dial after a long one.
    Slow,
    /// The next dial at once.
    AtOnce,
    /// The end.
    Revoked,
}

fn then(world: &mut World) -> Then {
    if let LinkState::Ended(end) = world.link.state() {
        assert!(matches!(end, End::Revoked { .. }));
        return Then::Revoked;
    }
    match world.loss().1 {
        Duration::ZERO => Then::AtOnce,
        wait if wait >= secs(5) => Then::Slow,
        _ => Then::Backoff,
    }
}

fn refuse_dial(world: &mut World, reason: &str) {
    world.dialing();
    world.close(4401, reason);
}

fn greet(world: &mut World) {
    let generation = world.dialing();
    world.link.handle_dialed(generation, None, world.now);
}

/// Live once, refused once, and the dial with the fresh token has begun.
fn on_trial() -> World {
    let mut world = World::live();
    world.close(4401, "unauthorized");
    assert_eq!(then(&mut world), Then::AtOnce);
    world.dialing();
    world
}

type Row = (&'static str, fn() -> World, Then);

const TABLE: &[Row] = &[
    (
        "before any descriptor, at the hello",
        || {
            let mut world = World::new();
            greet(&mut world);
            world.close(4401, "unauthorized");
            world
        },
        Then::Slow,
    ),
    (
        "before any descriptor, at the dial",
        || {
            let mut world = World::new();
            refuse_dial(&mut world, "unauthorized");
            world
        },
        Then::Slow,
    ),
    (
        "before any descriptor, time and again",
        || {
            let mut world = World::new();
            for _ in 0..20 {
                refuse_dial(&mut world, "unauthorized");
                world.run_to_dial();
            }
            refuse_dial(&mut world, "unauthorized");
            world
        },
        Then::Slow,
    ),
    (
        "after a handshake, expired",
        || {
            let mut world = World::live();
            world.close(4401, " Expired\n");
            world
        },
        Then::Backoff,
    ),
    (
        "after a handshake, first time, other reason",
        || {
            let mut world = World::live();
            world.close(4401, "unauthorized");
            world
        },
        Then::AtOnce,
    ),
    (
        "after a handshake, first time, no reason",
        || {
            let mut world = World::live();
            world.close(4401, "");
            world
        },
        Then::AtOnce,
    ),
    (
        "after a handshake on an earlier connection, at a later hello",
        || {
            let mut world = World::live();
            world.close(1001, "");
            world.run_to_dial();
            greet(&mut world);
            world.close(4401, "unauthorized");
            world
        },
        Then::AtOnce,
    ),
    (
        "on the fresh connection, before its descriptor",
        || {
            let mut world = on_trial();
            greet(&mut world);
            world.close(4401, "unauthorized");
            world
        },
        Then::Revoked,
    ),
    (
        "on the fresh connection, after its descriptor",
        || {
            let mut world = on_trial();
            world.go_live();
            world.run(secs(59));
            world.close(4401, "unauthorized");
            world
        },
        Then::Revoked,
    ),
    (
        "as a dial failure while the retry is pending",
        || {
            let mut world = on_trial();
            refuse_dial(&mut world, "unauthorized");
            world
        },
        Then::Revoked,
    ),
    (
        "the same, expired",
        || {
            let mut world = on_trial();
            refuse_dial(&mut world, "EXPIRED");
            world
        },
        Then::Backoff,
    ),
    (
        "expired has consumed the marker",
        || {
            let mut world = on_trial();
            refuse_dial(&mut world, "expired");
            world.run_to_dial();
            refuse_dial(&mut world, "unauthorized");
            world
        },
        Then::AtOnce,
    ),
    (
        "network failure during the retry",
        || {
            let mut world = on_trial();
            world.fail_dial(DialFailure::Network);
            world
        },
        Then::Backoff,
    ),
    (
        "failures of every kind during the retry keep the marker",
        || {
            let mut world = on_trial();
            world.fail_dial(DialFailure::Network);
            world.run_to_dial();
            world.fail_dial(DialFailure::Http {
                status: 401,
                retry_after: None,
            });
            world.run_to_dial();
            greet(&mut world);
            world.close(1006, "");
            world.run_to_dial();
            world.run(secs(30));
            world.run_to_dial();
            refuse_dial(&mut world, "unauthorized");
            world
        },
        Then::Revoked,
    ),
    (
        "fresh connection succeeds, 4401 much later",
        || {
            let mut world = on_trial();
            let generation = world.go_live();
            for _ in 0..3 {
                world.run(secs(20));
                world.link.handle_traffic(generation, world.now);
            }
            world.close(4401, "unauthorized");
            world
        },
        Then::AtOnce,
    ),
    (
        "fresh connection was live, then lost otherwise",
        || {
            let mut world = on_trial();
            world.go_live();
            world.close(1001, "");
            world.run_to_dial();
            refuse_dial(&mut world, "unauthorized");
            world
        },
        Then::AtOnce,
    ),
];

#[test]
fn every_row_of_the_unauthorized_table_holds() {
    for (row, walk, expected) in TABLE {
        let mut world = walk();
        assert_eq!(then(&mut world), *expected, "{row}");
        if *expected == Then::Revoked {
            assert_eq!(world.link.poll_timeout(), None, "{row}");
        } else {
            world.run_to_dial();
        }
    }
}

#[test]
fn http_refusals_of_the_credentials_are_retried_slowly_and_for_ever() {
    for status in [401, 403] {
        let mut world = World::live();
        world.close(1001, "");
        let mut waits = Vec::new();
        for round in 0..30 {
            world.run_to_dial();
            world.fail_dial(DialFailure::Http {
                status,
                retry_after: None,
            });
            let (loss, wait) = world.loss();
            assert_eq!(loss, Loss::UnauthorizedHttp { status });
            assert!(wait >= secs(5) && wait <= secs(75), "{wait:?}");
            assert!(round < 3 || wait >= secs(45), "{wait:?}");
            waits.push(wait);
        }
        waits.dedup();
        assert!(waits.len() > 20, "waits differ");
    }
}

fn answer_upgrade(world: &mut World, status: u16) {
    world.dialing();
    world.fail_dial(DialFailure::Http {
        status,
        retry_after: None,
    });
}

#[test]
fn two_upgrades_in_a_row_that_are_answered_with_410_end_the_link() {
    let redial: fn() -> World = || {
        let mut world = World::live();
        world.close(1001, "");
        world.run_to_dial();
        world
    };
    for start in [World::new, redial] {
        let mut world = start();
        answer_upgrade(&mut world, 410);
        assert_eq!(then(&mut world), Then::Backoff, "one may be a proxy's");
        world.run_to_dial();
        answer_upgrade(&mut world, 410);
        assert_eq!(then(&mut world), Then::Revoked);
        assert_eq!(world.link.poll_timeout(), None);
        let Some(LinkEvent::Ended(End::Revoked { reason })) = world.reports().pop() else {
            panic!("{:?}", world.said);
        };
        assert!(reason.contains("HTTP status 410"), "{reason}");
        // A new secret brings it back, and counts anew.
        world.link.note_secret_rotated(world.now);
        answer_upgrade(&mut world, 410);
        assert_ne!(then(&mut world), Then::Revoked);
    }
}

#[test]
fn anything_between_two_410_makes_the_second_a_first() {
    type Between = fn(&mut World);
    let between: [Between; 5] = [
        |world| answer_upgrade(world, 503),
        |world| answer_upgrade(world, 403),
        |world| world.fail_dial(DialFailure::Network),
        |world| {
            world.run(secs(30));
            world.run_to_dial();
        },
        |world| {
            world.go_live();
            world.close(1001, "");
        },
    ];
    for (number, between) in between.into_iter().enumerate() {
        let mut world = World::new();
        answer_upgrade(&mut world, 410);
        world.run_to_dial();
        between(&mut world);
        world.run_to_dial();
        answer_upgrade(&mut world, 410);
        assert_ne!(then(&mut world), Then::Revoked, "{number}");
    }
}

#[test]
fn no_other_status_of_an_upgrade_ever_ends_the_link() {
    for status in [400, 401, 403, 404, 409, 411, 418, 429, 451, 500, 502, 503] {
        let mut world = World::new();
        for _ in 0..5 {
            answer_upgrade(&mut world, status);
            assert_ne!(then(&mut world), Then::Revoked, "{status}");
            world.run_to_dial();
        }
    }
}

#[test]
fn a_410_to_a_token_of_the_old_secret_proves_nothing() {
    let mut world = World::new();
    answer_upgrade(&mut world, 410);
    world.run_to_dial();
    world.dialing();
    world.link.note_secret_rotated(world.now);
    answer_upgrade(&mut world, 410);
    assert_eq!(then(&mut world), Then::Backoff);
}

#[test]
fn every_other_close_is_an_ordinary_loss() {
    for (code, reason) in [
        (1000, ""),
        (1001, ""),
        (1008, "duplicate session"),
        (1009, ""),
        (1011, ""),
        (1013, "hold"),
        (4000, "replaced by a new dial"),
        (4400, ""),
        (4402, "unauthorized"),
        (4429, ""),
    ] {
        let mut world = World::live();
        for _ in 0..5 {
            world.close(code, reason);
            let (loss, wait) = world.loss();
            let reason = reason.to_owned();
            assert_eq!(loss, Loss::Closed { code, reason });
            assert!(wait > Duration::ZERO && wait <= secs(30));
            world.run_to_dial();
            world.go_live();
        }
    }
}

#[test]
fn the_end_is_told_with_the_connectors_words_cut_to_what_a_close_frame_holds() {
    let mut world = on_trial();
    let words = "ü".repeat(500);
    refuse_dial(&mut world, &words);
    let Some(LinkEvent::Ended(End::Revoked { reason })) = world.reports().pop() else {
        panic!("{:?}", world.said);
    };
    assert_eq!(reason, "ü".repeat(61));
    world.link.wake(world.now);
    world.freeze(secs(3600));
    world.link.handle_timeout(world.now);
    world.link.release_redial(world.now);
    assert_eq!(world.drain(), [], "nothing but a new secret brings it back");
}

#[test]
fn after_the_end_ops_fail_at_once() {
    let mut world = on_trial();
    refuse_dial(&mut world, "unauthorized");
    assert_eq!(then(&mut world), Then::Revoked);
    world.drain();
    world.link.request(op(9), world.now);
    let settled = world.settled();
    assert!(
        matches!(&settled[..], [(9, SendResult::NotSent(_))]),
        "{settled:?}"
    );
}

#[test]
fn a_new_secret_brings_a_revoked_link_back() {
    let mut world = on_trial();
    refuse_dial(&mut world, "unauthorized");
    assert_eq!(then(&mut world), Then::Revoked);
    world.link.note_secret_rotated(world.now);
    refuse_dial(&mut world, "unauthorized");
    assert_eq!(then(&mut world), Then::AtOnce, "one refusal is no proof");
    world.go_live();
}

#[test]
fn a_new_secret_ends_a_slow_wait_and_excuses_the_old_token() {
    let mut world = World::new();
    refuse_dial(&mut world, "unauthorized");
    world.drain();
    world.link.note_secret_rotated(world.now);
    world.dialing();
    world.link.note_secret_rotated(world.now);
    refuse_dial(&mut world, "unauthorized");
    assert_eq!(then(&mut world), Then::Backoff);
    world.run_to_dial();
    world.go_live();
    world.drain();
    world.link.note_secret_rotated(world.now);
    assert!(world.link.is_live());
    assert_eq!(world.drain(), []);
}

#[test]
fn a_refusal_settles_what_was_in_flight() {
    let mut world = World::live();
    world.link.request(op(1), world.now);
    world.drain();
    world.close(4401, "unauthorized");
    assert_eq!(world.settled(), [(1, SendResult::Lost)]);
    let generation = world.go_live();
    world.link.request(op(2), world.now);
    world.drain();
    world.link.request(op(3), world.now);
    world.link.handle_closed(generation, Some((4401, "x")), world.now);
    assert_eq!(
        world.settled(),
        [(2, SendResult::Lost), (3, SendResult::NotSent(NotSent::Lost))]
    );
}
