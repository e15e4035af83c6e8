use super::*;

#[test]
fn the_first_dial_comes_at_once() {
    let mut world = World::new();
    let generation = world.dialing();
    assert_eq!(
        world.drain(),
        [
            LinkAction::Event(LinkEvent::Dialing { generation }),
            LinkAction::Dial {
                generation,
                mint_at_unix: START_UNIX_MS / 1000,
            }
        ]
    );
}

#[test]
fn every_dial_mints_for_its_own_time() {
    let mut world = World::new();
    world.fail_dial(DialFailure::Network);
    world.drain();
    world.skip(secs(400));
    world.link.handle_timeout(world.now);
    let generation = world.dialing();
    assert!(world.drain().contains(&LinkAction::Dial {
        generation,
        mint_at_unix: START_UNIX_MS / 1000 + 400,
    }));
}

#[test]
fn waits_grow_with_each_loss_within_their_caps_and_never_below_the_floor() {
    let mut longest = [Duration::ZERO; 8];
    for seed in 0..300 {
        let mut world = World::seeded(seed, LinkSettings::default(), vec![]);
        for (loss, longest) in longest.iter_mut().enumerate() {
            world.fail_dial(DialFailure::Network);
            let (why, wait) = world.loss();
            assert_eq!(why, Loss::DialFailed);
            let cap = secs(30).min(secs(1 << loss));
            assert!(wait >= Duration::from_millis(100) && wait <= cap, "{wait:?}");
            *longest = wait.max(*longest);
            world.run_to_dial();
        }
    }
    for (loss, longest) in longest.iter().enumerate() {
        let cap = secs(30).min(secs(1 << loss));
        assert!(
            *longest > cap * 9 / 10,
            "the cap {cap:?} is made use of: {longest:?}"
        );
    }
}

#[test]
fn a_connector_that_flaps_after_each_handshake_is_not_dialled_ever_faster() {
    let mut world = World::new();
    for _ in 0..6 {
        world.go_live();
        world.close(1011, "crash");
        world.run_to_dial();
    }
    let before = world.link.counters().dials;
    let end = world.now.mono + secs(600);
    while world.now.mono < end {
        world.go_live();
        world.close(1011, "crash");
        world.run_to_dial();
    }
    let dials = world.link.counters().dials - before;
    assert!((20..90).contains(&dials), "{dials} dials in ten minutes");
}

#[test]
fn short_waits_are_earned_back_only_by_a_connection_that_held() {
    for (held, earned) in [(59, false), (60, true)] {
        let mut most = Duration::ZERO;
        for seed in 0..60 {
            let mut world = World::seeded(seed, LinkSettings::default(), vec![]);
            for _ in 0..6 {
                world.fail_dial(DialFailure::Network);
                world.run_to_dial();
            }
            world.go_live();
            world.skip(secs(held));
            world.close(1001, "");
            most = most.max(world.loss().1);
        }
        assert_eq!(
            most <= secs(1),
            earned,
            "held {held} s, then waited up to {most:?}"
        );
    }
}

/// Goes live, does some work, and returns the delay after this loss.
fn lose_a_working_connection(world: &mut World, acknowledged: bool, close: Option<u16>) -> Duration {
    let generation = world.go_live();
    if acknowledged {
        assert!(world.link.acknowledge(generation, "b1".to_owned()));
    } else {
        world.link.request(op(1), world.now);
        let line = world.lines().pop().unwrap();
        world.answer(&request_id(&line), Some(done()));
    }
    world.drain();
    let close = close.map(|code| (code, "cut"));
    world.link.handle_closed(generation, close, world.now);
    world.loss().1
}

#[test]
fn a_connection_that_worked_earns_its_short_waits_back() {
    for seed in 0..50 {
        let mut world = World::seeded(seed, LinkSettings::default(), vec![]);
        let mut waits: Vec<_> = (0..15)
            .map(|cut| {
                let close = [None, Some(1006), Some(1011)][cut % 3];
                let mut wait = lose_a_working_connection(&mut world, cut % 2 == 0, close);
                world.run_to_dial();
                // Now and then the next dial is refused as well.
                if cut % 5 == 0 {
                    world.fail_dial(DialFailure::Network);
                    wait += world.loss().1;
                    world.run_to_dial();
                }
                wait
            })
            .collect();
        waits.sort();
        assert!(waits[7] < secs(2) && waits[14] < secs(8), "{waits:?}");
    }
}

#[test]
fn a_connector_that_restarts_is_redialled_within_a_second_if_it_worked() {
    let slow = LinkSettings {
        backoff_min: secs(20),
        ..LinkSettings::default()
    };
    for code in [1001, 1012, 1013] {
        let mut world = World::with(slow.clone(), vec![]);
        for _ in 0..20 {
            let wait = lose_a_working_connection(&mut world, true, Some(code));
            assert!(wait < secs(1), "{code}: {wait:?}");
            world.run_to_dial();
        }
    }
}

#[test]
fn a_connector_that_accepts_and_closes_is_not_hammered_whatever_its_code() {
    for code in [1000, 1001, 1012, 1013] {
        let mut most = 0;
        for seed in 0..50 {
            let mut world = World::seeded(seed, LinkSettings::default(), vec![]);
            while world.now.mono < secs(12) {
                world.go_live();
                world.close(code, "restarting");
                world.run_to_dial();
            }
            most = most.max(world.link.counters().dials - 1);
        }
        assert!(most <= 8, "{code}: {most} dials in 12 s");
    }
}

#[test]
fn a_dial_that_is_never_answered_is_given_up_and_closed_before_the_next() {
    let mut world = World::new();
    let first = world.dialing();
    world.drain();
    world.run(secs(30));
    let second = world.run_to_dial();
    let said = world.drain();
    let close = said.iter().position(
        |action| matches!(action, LinkAction::CloseSocket { generation, .. } if *generation == first),
    );
    let dial = said
        .iter()
        .position(|action| matches!(action, LinkAction::Dial { generation, .. } if *generation == second));
    assert!(close.unwrap() < dial.unwrap());
    assert!(said.iter().any(|action| matches!(
        action,
        LinkAction::Event(LinkEvent::Lost {
            loss: Loss::DialTimeout,
            ..
        })
    )));
}

#[test]
fn a_retry_after_is_honoured_up_to_ten_minutes_and_never_shortens_our_own_wait() {
    for (status, asked, least, most) in [
        (503, 120, 120, 120),
        (429, 86_400, 600, 600),
        (503, 0, 0, 1),
        (401, 2, 5, 10),
        (403, 300, 300, 300),
    ] {
        let mut world = World::new();
        world.fail_dial(DialFailure::Http {
            status,
            retry_after: Some(secs(asked)),
        });
        let (_, wait) = world.loss();
        assert!(
            wait >= secs(least) && wait <= secs(most),
            "{status} {asked}: {wait:?}"
        );
        assert!(wait >= Duration::from_millis(100));
    }
}

#[test]
fn events_of_an_older_generation_change_nothing() {
    let mut world = World::live();
    let old = world.generation();
    world.close(1006, "");
    let new = world.run_to_dial();
    world.link.handle_dialed(new, None, world.now);
    world.drain();
    let before = world.link.state().clone();
    world.link.handle_dialed(old, Some(0), world.now);
    world
        .link
        .handle_dial_failed(old, DialFailure::Network, Some(0), world.now);
    world.link.handle_traffic(old, world.now);
    world.frame(old, descriptor("telegram", "late"));
    world.frame(old, ControlFrame::GoingIdleAck);
    world
        .link
        .handle_closed(old, Some((4401, "unauthorized")), world.now);
    world.link.handle_too_large(old, 1 << 30, world.now);
    assert_eq!(world.link.state(), &before);
    assert_eq!(world.drain(), []);
    assert_eq!(world.link.counters().stale_events, 7);
    assert_eq!(world.link.clock_skew_ms(), None);
}

#[test]
fn a_message_that_is_too_large_ends_the_socket_with_the_code_for_it_and_is_dialled_over() {
    let mut world = World::live();
    let generation = world.generation();
    world.link.handle_too_large(generation, 1 << 30, world.now);
    let done = world.drain();
    assert_eq!(
        done[0],
        LinkAction::CloseSocket {
            generation,
            code: 1009,
            reason: "message too large"
        }
    );
    let told = |action: &LinkAction| matches!(action, LinkAction::Event(LinkEvent::Lost { loss: Loss::TooLarge { bytes }, .. }) if *bytes == 1 << 30);
    assert!(done.iter().any(told), "{done:?}");
    world.run_to_dial();
    assert!(world.generation() > generation);
}

#[test]
fn a_lost_socket_is_closed_before_the_next_dial_whoever_closed_first() {
    let mut world = World::live();
    let generation = world.generation();
    world.link.handle_closed(generation, None, world.now);
    assert_eq!(
        world.drain()[0],
        LinkAction::CloseSocket {
            generation,
            code: 1000,
            reason: ""
        }
    );
    world.run_to_dial();
    assert!(world.generation() > generation);
}

#[test]
fn a_clock_that_is_off_is_corrected_for_and_told_once() {
    let mut world = World::new();
    let generation = world.dialing();
    let ahead = Some(START_UNIX_MS + 600_000);
    let refused = DialFailure::Http {
        status: 401,
        retry_after: None,
    };
    world
        .link
        .handle_dial_failed(generation, refused.clone(), ahead, world.now);
    let reports = world.reports();
    assert!(reports.contains(&LinkEvent::SkewWarning { ms: 600_000 }));
    assert_eq!(world.link.clock_skew_ms(), Some(600_000));
    let Some(LinkEvent::Lost { loss, retry_in }) = reports.last() else {
        panic!("{reports:?}")
    };
    assert_eq!(loss, &Loss::UnauthorizedHttp { status: 401 });
    assert!(
        *retry_in <= secs(1),
        "a token of the wrong date is worth a prompt second try"
    );
    let again = world.run_to_dial();
    let mint = (world.now.unix_ms + 600_000) / 1000;
    let reports = world.drain();
    assert!(reports.contains(&LinkAction::Dial {
        generation: again,
        mint_at_unix: mint
    }));
    let date = Some(world.now.unix_ms + 600_000);
    world.link.handle_dial_failed(again, refused, date, world.now);
    let (_, wait) = world.loss();
    assert!(wait >= secs(5), "the second refusal is about the credentials");
    assert!(
        !world
            .said
            .iter()
            .skip(4)
            .any(|action| matches!(action, LinkAction::Event(LinkEvent::SkewWarning { .. })))
    );
}

#[test]
fn a_clock_that_is_off_by_little_or_by_days_is_left_alone() {
    for (off_ms, corrected) in [
        (5_000, false),
        (5_001, true),
        (-5_001, true),
        (86_400_000, true),
        (86_400_001, false),
        (i64::MAX, false),
        (i64::MIN, false),
    ] {
        let mut world = World::new();
        let generation = world.dialing();
        world.drain();
        let date = START_UNIX_MS.saturating_add(off_ms);
        world
            .link
            .handle_dial_failed(generation, DialFailure::Network, Some(date), world.now);
        world.run_to_dial();
        let minted = world.drain().into_iter().find_map(|action| match action {
            LinkAction::Dial { mint_at_unix, .. } => Some(mint_at_unix),
            _ => None,
        });
        let shift = if corrected { off_ms } else { 0 };
        assert_eq!(
            minted,
            Some((world.now.unix_ms + shift).div_euclid(1000)),
            "{off_ms}"
        );
    }
}

#[test]
fn a_correction_is_forgotten_when_the_clock_is_set() {
    let mut world = World::new();
    let generation = world.dialing();
    world.link.handle_dial_failed(
        generation,
        DialFailure::Network,
        Some(START_UNIX_MS - 600_000),
        world.now,
    );
    world.drain();
    world.now.unix_ms -= 600_000;
    world.run_to_dial();
    let expected = world.now.unix_ms.div_euclid(1000);
    assert!(
        world.drain().iter().any(
            |action| matches!(action, LinkAction::Dial { mint_at_unix, .. } if *mint_at_unix == expected)
        )
    );
    assert_eq!(world.link.clock_skew_ms(), None, "it was measured before");
}

#[test]
fn knocking_without_end_does_not_make_dials_without_end() {
    let mut world = World::new();
    let end = world.now.mono + secs(60);
    while world.now.mono < end {
        if matches!(world.link.state(), LinkState::Dialing { .. }) {
            world.fail_dial(DialFailure::Network);
        }
        world.link.wake(world.now);
        world.run(Duration::from_millis(10));
    }
    let dials = world.link.counters().dials;
    assert!((50..=62).contains(&dials), "{dials}");
}
