use super::*;

#[test]
fn one_hello_per_identity_is_written_in_order_before_any_answer() {
    let manifest = vec![json!({"name": "stop"})];
    let discord = HelloIdentity {
        command_manifest: Some(manifest),
        ..identity("discord", "b1")
    };
    let mut world = World::with(
        LinkSettings::default(),
        vec![discord, identity("telegram", ""), identity("telegram", "")],
    );
    let generation = world.dialing();
    world.drain();
    world.link.handle_dialed(generation, None, world.now);
    let telegram = json!({"type": "hello", "platform": "telegram", "botId": ""});
    assert_eq!(
        world.lines(),
        [
            json!({"type": "hello", "platform": "discord", "botId": "b1", "command_manifest": [{"name": "stop"}]}),
            telegram.clone(),
            telegram,
        ]
    );
}

#[test]
fn commands_are_offered_on_their_platform_from_the_next_handshake_on() {
    let identities = vec![identity("discord", "b1"), identity("telegram", "")];
    let mut world = World::with(LinkSettings::default(), identities);
    let stop = json!({"name": "stop"});
    world.link.offer_commands("discord", std::slice::from_ref(&stop));
    let generation = world.dialing();
    world.link.handle_dialed(generation, None, world.now);
    let lines = world.lines();
    let offered: Vec<&Value> = lines.iter().map(|line| &line["command_manifest"]).collect();
    assert_eq!(offered, [&json!([stop]), &Value::Null]);
}

#[test]
fn without_identities_the_default_one_is_announced() {
    let mut world = World::with(LinkSettings::default(), vec![]);
    let generation = world.dialing();
    world.link.handle_dialed(generation, None, world.now);
    assert_eq!(
        world.lines(),
        [json!({"type": "hello", "platform": "relay", "botId": ""})]
    );
}

#[test]
fn the_first_descriptor_completes_the_handshake_and_stays_the_primary() {
    let mut world = World::with(
        LinkSettings::default(),
        vec![identity("discord", "b1"), identity("telegram", "")],
    );
    let generation = world.dialing();
    world.link.handle_dialed(generation, None, world.now);
    assert!(!world.link.is_live());
    world.drain();
    world.frame(generation, descriptor("telegram", "T"));
    assert!(world.link.is_live());
    let reports = world.reports();
    assert!(matches!(&reports[..], [LinkEvent::Live { primary, .. }] if primary.platform == "telegram"));
    world.frame(generation, descriptor("discord", "D"));
    assert_eq!(world.reports(), [LinkEvent::Described { generation }]);
    assert_eq!(primary(&world.link).unwrap().label, "T");
    assert_eq!(
        world.link.descriptors().for_platform("discord").unwrap().label,
        "D"
    );
    assert_eq!(world.link.descriptors().for_platform("slack").unwrap().label, "T");
}

#[test]
fn old_descriptors_stand_until_the_new_connection_replaces_or_outlives_them() {
    let mut world = World::with(
        LinkSettings::default(),
        vec![identity("discord", "b1"), identity("telegram", "")],
    );
    let first = world.dialing();
    world.link.handle_dialed(first, None, world.now);
    world.frame(first, descriptor("discord", "D1"));
    world.frame(first, descriptor("telegram", "T1"));
    world.close(1001, "");
    let second = world.run_to_dial();
    world.link.handle_dialed(second, None, world.now);
    assert_eq!(
        primary(&world.link).unwrap().label,
        "D1",
        "nothing new was declared yet"
    );

    world.frame(second, descriptor("telegram", "T2"));
    assert_eq!(primary(&world.link).unwrap().label, "T2");
    assert_eq!(
        world.link.descriptors().for_platform("discord").unwrap().label,
        "D1"
    );
    world.frame(second, descriptor("telegram", "T3"));
    assert_eq!(labels(&world.link), [("telegram".to_owned(), "T3".to_owned())]);
    assert_eq!(primary(&world.link).unwrap().label, "T2");

    world.close(1001, "");
    let third = world.run_to_dial();
    world.link.handle_dialed(third, None, world.now);
    world.frame(third, descriptor("discord", "D4"));
    world.drain();
    world.run(secs(29));
    assert_eq!(labels(&world.link).len(), 2);
    world.run(secs(1));
    assert_eq!(labels(&world.link), [("discord".to_owned(), "D4".to_owned())]);
    assert_eq!(world.reports(), [LinkEvent::Described { generation: third }]);
}

#[test]
fn a_single_identity_leaves_no_old_descriptor_behind() {
    let mut world = World::live();
    world.close(1001, "");
    let generation = world.run_to_dial();
    world.link.handle_dialed(generation, None, world.now);
    world.frame(generation, descriptor("slack", "S"));
    assert_eq!(labels(&world.link), [("slack".to_owned(), "S".to_owned())]);
}

#[test]
fn a_connector_cannot_declare_platforms_without_end() {
    let mut world = World::live();
    let generation = world.generation();
    for number in 0..200 {
        world.frame(generation, descriptor(&format!("p{number}"), "x"));
    }
    assert_eq!(labels(&world.link).len(), 64);
    assert!(world.link.is_live());
}

#[test]
fn a_handshake_that_never_completes_is_given_up_on_its_own_time() {
    let mut world = World::new();
    world.skip(secs(20));
    let first = world.dialing();
    world.link.handle_dialed(first, None, world.now);
    world.run(secs(29));
    assert!(matches!(world.link.state(), LinkState::Greeting { .. }));
    world.close(1006, "");
    let second = world.run_to_dial();
    world.link.handle_dialed(second, None, world.now);
    world.drain();
    world.run(secs(29));
    assert!(
        matches!(world.link.state(), LinkState::Greeting { generation, .. } if *generation == second),
        "the first connection's deadline went with it"
    );
    world.run(secs(1));
    let said = world.drain();
    assert!(
        matches!(said[0], LinkAction::CloseSocket { generation, code: 1011, .. } if generation == second)
    );
    assert!(said.iter().any(|action| matches!(
        action,
        LinkAction::Event(LinkEvent::Lost {
            loss: Loss::HandshakeTimeout,
            ..
        })
    )));
}

#[test]
fn a_delivery_is_acknowledged_only_on_the_connection_that_brought_it() {
    let mut world = World::new();
    let first = world.dialing();
    assert!(
        !world.link.acknowledge(first, "1".to_owned()),
        "nothing is open yet"
    );
    world.link.handle_dialed(first, None, world.now);
    world.drain();
    assert!(
        world.link.acknowledge(first, "2".to_owned()),
        "replay may begin before the descriptor"
    );
    world.frame(first, descriptor("discord", "D"));
    assert!(world.link.acknowledge(first, "3".to_owned()));
    let ack = |id| json!({"type": "inbound_ack", "bufferId": id});
    assert_eq!(world.lines(), [ack("2"), ack("3")]);
    world.close(1001, "");
    assert!(!world.link.acknowledge(first, "4".to_owned()));
    world.run_to_dial();
    let second = world.go_live();
    world.drain();
    assert!(!world.link.acknowledge(first, "5".to_owned()));
    assert!(world.link.acknowledge(second, "6".to_owned()));
    assert_eq!(world.lines(), [ack("6")]);
    assert_eq!(
        (
            world.link.counters().acks_sent,
            world.link.counters().acks_dropped
        ),
        (3, 3)
    );
}

#[test]
fn nothing_is_written_to_a_socket_that_is_known_to_be_gone() {
    let mut world = World::live();
    let generation = world.generation();
    assert!(world.link.acknowledge(generation, "1".to_owned()));
    world.skip(secs(40));
    world.link.handle_timeout(world.now);
    world.close(1006, "");
    let said = world.drain();
    assert!(
        !said
            .iter()
            .any(|action| matches!(action, LinkAction::Write { .. } | LinkAction::Ping { .. })),
        "{said:?}"
    );
}

#[test]
fn an_interrupt_goes_out_only_on_a_live_link() {
    let mut world = World::new();
    assert!(!world.link.interrupt("agent:main".to_owned(), None));
    world.go_live();
    world.drain();
    assert!(
        world
            .link
            .interrupt("agent:main".to_owned(), Some("user".to_owned()))
    );
    assert_eq!(
        world.lines(),
        [json!({"type": "interrupt", "session_key": "agent:main", "reason": "user"})]
    );
}

#[test]
fn a_link_request_is_answered_that_nothing_serves_it() {
    let mut world = World::new();
    let generation = world.go_live();
    world.drain();
    let request = json!({"type": "link_request", "requestId": "l1", "link": "sync", "body": {"a": 1}});
    let request = ConnectorFrame::decode(request.to_string().as_bytes()).unwrap();
    world.frame(generation, ControlFrame::try_from(request).unwrap());
    let body = json!({"error": "this gateway serves no link requests"});
    assert_eq!(
        world.lines(),
        [json!({"type": "link_result", "requestId": "l1", "ok": false, "body": body})]
    );
}

#[test]
fn while_many_lines_wait_for_a_slow_connector_ops_are_written_and_nothing_else() {
    let settings = LinkSettings {
        max_unwritten: 2,
        ..LinkSettings::default()
    };
    let mut world = World::with(settings, vec![identity("discord", "b1")]);
    let generation = world.go_live();
    world.drain();
    let written = |world: &mut World, id: u64| {
        let request_id = format!("l{id}");
        world.frame(generation, ControlFrame::LinkRequest { request_id });
        let acked = world.link.acknowledge(generation, id.to_string());
        world.link.request(op(id), world.now);
        let lines = world.lines();
        let kinds = lines.iter().map(|line| line["type"].as_str().unwrap().to_owned());
        (acked, kinds.collect::<Vec<_>>())
    };
    let all = ["link_result", "inbound_ack", "outbound"]
        .map(str::to_owned)
        .to_vec();
    world.link.note_unwritten(1);
    assert_eq!(written(&mut world, 1), (true, all.clone()));
    world.link.note_unwritten(2);
    assert_eq!(written(&mut world, 2), (false, vec!["outbound".to_owned()]));
    let counters = *world.link.counters();
    assert_eq!((counters.acks_sent, counters.acks_dropped), (1, 1));
    world.link.note_unwritten(0);
    assert_eq!(written(&mut world, 3), (true, all));
}

#[test]
fn a_new_connection_is_not_as_slow_as_the_one_before() {
    let mut world = World::live();
    world.link.note_unwritten(usize::MAX);
    world.close(1001, "");
    world.run_to_dial();
    let generation = world.go_live();
    assert!(world.link.acknowledge(generation, "1".to_owned()));
}

#[test]
fn only_the_links_own_frames_are_taken() {
    let ack = ConnectorFrame::GoingIdleAck;
    assert_eq!(ControlFrame::try_from(ack), Ok(ControlFrame::GoingIdleAck));
    let other = ConnectorFrame::Unknown {
        kind: None,
        buffer_id: None,
    };
    assert_eq!(ControlFrame::try_from(other.clone()), Err(other));
}
