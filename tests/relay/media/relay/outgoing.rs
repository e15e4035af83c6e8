//! What agents send.

use std::sync::Arc;

use crate::support::dev::{HttpRoute, HttpRouteFault, OpAnswer, ResultRule, SentMessage};
use hermes_relay::adapter::stream::StreamMode;
use hermes_relay::agent::{Agent, AgentEvent, BaseEnv, MediaLocation, Turn, TurnEnd};
use hermes_relay::config::Settings;
use hermes_relay::net::proxy::ProxyRules;
use hermes_relay::net::tls::{Tls, TlsSettings};
use hermes_relay::relay::AgentSlot;
use hermes_relay::relay::{AgentEnvironment, build_agents};
use hermes_relay::wire::Action;
use http::StatusCode;

use super::{Running, Scripted, media};

/// Says something, sends what each word of the message names with its own caption, and ends.
fn sender(before: &'static str) -> impl Agent {
    Scripted(move |turn: Turn| async move {
        turn.events.text(before).await;
        for word in turn.input.text.split_whitespace() {
            let place = if word.contains("://") {
                MediaLocation::Url(word.into())
            } else {
                MediaLocation::File(word.into())
            };
            turn.events.emit(media(place, "Look.")).await;
        }
        TurnEnd::Completed
    })
}

fn uploads(relay: &Running) -> usize {
    let requests = relay.connector.requests();
    let uploads = requests.iter().filter(|request| request.path == "/relay/media");
    uploads.count()
}

async fn sent(relay: &Running) -> SentMessage {
    relay
        .connector
        .wait_for_sent("a file", super::SOON, |sent| sent.op == "send_media")
        .await
        .unwrap()
}

#[tokio::test]
async fn a_file_arrives_with_its_caption_and_its_bytes_after_what_was_sent_before_it() {
    let relay = Running::start("discord", sender("Here it is:"), |_| {}).await;
    let bytes = vec![3_u8; 200_000];
    relay.put("chart.png", &bytes);
    relay.deliver("a", "1", "chart.png", &[]);
    let sent = sent(&relay).await;
    let replies = relay.replies("a", 2).await;
    assert_eq!(replies[0], ("send", "Here it is:".to_owned()));
    assert_eq!(replies[1], ("send_media", "Look.".to_owned()));
    let Action::SendMedia {
        media_kind,
        source_url,
        filename,
        reply_to,
        ..
    } = sent.action
    else {
        panic!("{sent:?}")
    };
    assert_eq!(
        (media_kind.as_str(), filename.as_deref()),
        ("image", Some("chart.png"))
    );
    assert_eq!(reply_to.as_deref(), Some("1"));

    assert_eq!(relay.uploaded(&source_url).await, bytes);
    relay.stop().await;
}

#[tokio::test]
async fn a_relative_name_is_meant_from_where_the_agents_program_is_started() {
    let work = tempfile::tempdir().unwrap();
    let (inside, outside) = (work.path().join("inside"), work.path().join("outside"));
    for folder in [&inside, &outside] {
        std::fs::create_dir(folder).unwrap();
    }
    std::fs::write(inside.join("chart.png"), "x").unwrap();
    std::fs::write(outside.join("key"), "secret").unwrap();
    std::os::unix::fs::symlink(outside.join("key"), inside.join("link")).unwrap();
    let media_line = |path: &str| format!(r#"echo '{{"type":"media","path":"{path}","caption":"{path}"}}';"#);
    let script = ["link", "../outside/key", "chart.png"].map(media_line).concat();
    let written = serde_json::json!({"tested": {
        "kind": "command", "argv": ["/bin/sh", "-c", script], "cwd": inside, "output": "jsonl",
    }});
    let state = tempfile::tempdir().unwrap();
    let mut settings = Settings::embedded(state.path());
    settings.agents = serde_json::from_value(written).unwrap();
    let around = AgentEnvironment {
        env: &|_| None,
        base: BaseEnv::default(),
        tls: Tls::new(TlsSettings::default()),
        proxies: ProxyRules::none(),
    };
    let (_, member) = build_agents(&settings, &around, |_| true).unwrap().remove(0);
    let relay = Running::start_member("discord", member, work, |_| {}).await;
    relay.deliver("a", "1", "go", &[]);
    let replies = relay.replies("a", 3).await;
    let ops: Vec<_> = replies.iter().map(|(op, _)| *op).collect();
    assert_eq!(ops, ["send", "send", "send_media"], "{replies:?}");
    assert_eq!(replies[2].1, "chart.png");
    assert_eq!(uploads(&relay), 1);
    relay.stop().await;
}

#[tokio::test]
async fn without_a_place_to_work_in_names_are_those_of_what_came_with_the_message() {
    let member = AgentSlot::new(Arc::new(sender("")));
    let relay = Running::start_member("discord", member, tempfile::tempdir().unwrap(), |_| {}).await;
    relay.put("here.png", b"x");
    let url = relay
        .connector
        .put_media("image/png", Some("cat.png"), vec![7; 10]);
    relay.deliver("a", "1", "cat.png here.png", &[(&url, "image/png")]);
    let replies = relay.replies("a", 2).await;
    let ops: Vec<_> = replies.iter().map(|(op, _)| *op).collect();
    assert_eq!(ops, ["send_media", "send"], "{replies:?}");
    // Without that there is nowhere to look.
    relay.deliver("b", "2", "here.png", &[]);
    assert_eq!(relay.replies("b", 1).await[0].0, "send");
    relay.stop().await;
}

#[tokio::test]
async fn files_keep_their_place_between_what_is_sent() {
    for mode in [StreamMode::Auto, StreamMode::Segments, StreamMode::Off] {
        let agent = Scripted(|turn: Turn| async move {
            for name in ["one", "two"] {
                turn.events.text(format!("Before {name}.")).await;
                let file = MediaLocation::File(format!("{name}.png").into());
                turn.events.emit(media(file, name)).await;
            }
            turn.events.text("The end.").await;
            TurnEnd::Completed
        });
        let relay = Running::start("discord", agent, |settings| settings.streaming.mode = mode).await;
        relay.put("one.png", b"x");
        relay.put("two.png", b"y");
        relay.deliver("a", "1", "go", &[]);
        let expected = [
            ("send", "Before one."),
            ("send_media", "one"),
            ("send", "Before two."),
            ("send_media", "two"),
            ("send", "The end."),
        ];
        assert_eq!(
            relay.replies("a", 5).await,
            expected.map(|(op, text)| (op, text.to_owned())),
            "{mode:?}"
        );
        relay.stop().await;
    }
}

#[tokio::test]
async fn where_no_files_can_be_sent_the_chat_is_notified() {
    let relay = Running::start("plain", sender(""), |_| {}).await;
    relay.put("chart.png", b"x");
    relay.deliver("a", "1", "chart.png https://files.example/cat.png", &[]);
    assert_eq!(
        relay.replies("a", 2).await,
        [
            ("send", "Look.\n(could not deliver chart.png)".to_owned()),
            ("send", "Look.\nhttps://files.example/cat.png".to_owned()),
        ]
    );
    assert_eq!(uploads(&relay), 0);
    relay.stop().await;
}

#[tokio::test]
async fn a_file_from_elsewhere_is_not_sent_and_its_path_not_told() {
    let elsewhere = tempfile::tempdir().unwrap();
    let allowed = tempfile::tempdir().unwrap();
    for (dir, name) in [(&elsewhere, "secret.txt"), (&allowed, "report.txt")] {
        std::fs::write(dir.path().join(name), "x").unwrap();
    }
    let relay = Running::start("discord", sender(""), |settings| {
        settings.media.send_from = vec![allowed.path().to_owned()];
    })
    .await;
    let paths = [
        elsewhere.path().join("secret.txt"),
        allowed.path().join("report.txt"),
    ];
    let paths = paths.map(|path| path.to_str().unwrap().to_owned());
    relay.deliver("a", "1", &paths.join(" "), &[]);
    assert_eq!(
        relay.replies("a", 2).await,
        [
            ("send", "Look.\n(could not deliver secret.txt)".to_owned()),
            ("send_media", "Look.".to_owned()),
        ]
    );
    relay.stop().await;
}

#[tokio::test]
async fn what_came_with_the_message_may_be_sent_back() {
    let agent = Scripted(|turn: Turn| async move {
        let place = turn.input.attachments[0].location.clone();
        turn.events.emit(media(place, "Yours.")).await;
        TurnEnd::Completed
    });
    let relay = Running::start("discord", agent, |_| {}).await;
    let url = relay
        .connector
        .put_media("image/png", Some("cat.png"), vec![1; 1000]);
    relay.deliver("a", "1", "back", &[(&url, "image/png")]);
    assert_eq!(relay.replies("a", 1).await, [("send_media", "Yours.".to_owned())]);
    relay.stop().await;
}

#[tokio::test]
async fn a_refusal_is_reported_and_a_matter_of_permission_is_not() {
    let relay = Running::start("discord", sender(""), |_| {}).await;
    relay.put("chart.png", b"x");
    let refuse = |code: Option<&str>| OpAnswer::Refuse {
        error: "no".into(),
        code: code.map(str::to_owned),
    };
    relay
        .connector
        .script(ResultRule::on("send_media", refuse(None)).once());
    relay.deliver("a", "1", "chart.png", &[]);
    assert_eq!(
        relay.replies("a", 1).await,
        [("send", "Look.\n(could not deliver chart.png)".to_owned())]
    );
    relay
        .connector
        .script(ResultRule::on("send_media", refuse(Some("egress_declined"))).once());
    relay.deliver("b", "2", "chart.png", &[]);
    super::eventually("the refusal", async || {
        relay.handle.status().await.unwrap().tally.ops_refused == 2
    })
    .await;
    relay.deliver("b", "3", "chart.png", &[]);
    assert_eq!(relay.replies("b", 1).await, [("send_media", "Look.".to_owned())]);
    relay.stop().await;
}

#[tokio::test]
async fn a_failed_upload_is_reported_in_its_place() {
    let relay = Running::start("discord", sender("First:"), |_| {}).await;
    relay.put("one.png", b"x");
    relay.put("two.png", b"y");
    let fault = HttpRouteFault::answering(StatusCode::INTERNAL_SERVER_ERROR, "");
    relay.connector.fail_route(HttpRoute::MediaUpload, fault.once());
    relay.deliver("a", "1", "one.png two.png", &[]);
    assert_eq!(
        relay.replies("a", 3).await,
        [
            ("send", "First:".to_owned()),
            ("send", "Look.\n(could not deliver one.png)".to_owned()),
            ("send_media", "Look.".to_owned()),
        ]
    );
    relay.stop().await;
}

#[tokio::test]
async fn a_picture_on_the_web_is_shown_from_there_and_anything_else_is_linked() {
    let relay = Running::start("discord", sender(""), |_| {}).await;
    let addresses = [
        "https://files.example/cat.png?v=1",
        "https://files.example/report.pdf",
        "http://10.0.0.1/cat.png",
    ];
    relay.deliver("a", "1", &addresses.join(" "), &[]);
    assert_eq!(
        relay.replies("a", 3).await,
        [
            ("send_media", "Look.".to_owned()),
            ("send", "Look.\nhttps://files.example/report.pdf".to_owned()),
            ("send", "Look.\n(could not deliver a file)".to_owned()),
        ]
    );
    assert!(matches!(
        sent(&relay).await.action,
        Action::SendMedia { source_url, .. } if source_url == addresses[0]
    ));
    assert_eq!(uploads(&relay), 0);
    relay.stop().await;
}

#[tokio::test]
async fn a_turn_sends_sixteen_files_and_reports_the_rest() {
    let relay = Running::start("discord", sender(""), |_| {}).await;
    relay.put("a.png", b"x");
    relay.deliver("a", "1", &["a.png"; 17].join(" "), &[]);
    let replies = relay.replies("a", 17).await;
    let files = replies.iter().filter(|(op, _)| *op == "send_media").count();
    assert_eq!((files, replies.len()), (16, 17));
    assert!(
        replies
            .iter()
            .any(|(_, text)| text.contains("could not deliver a.png"))
    );
    relay.stop().await;
}

#[tokio::test]
async fn a_file_goes_out_while_the_turn_goes_on_and_not_after_a_stop() {
    let agent = Scripted(|turn: Turn| async move {
        let file = MediaLocation::File(turn.input.text.clone().into());
        turn.events.emit(media(file, "")).await;
        turn.events.emit(AgentEvent::Break).await;
        turn.cancel.cancelled().await;
        TurnEnd::Cancelled { confirmed: true }
    });
    let relay = Running::start("discord", agent, |_| {}).await;
    relay.put("a.png", b"x");
    relay.deliver("a", "1", "a.png", &[]);
    assert_eq!(relay.replies("a", 1).await, [("send_media", String::new())]);
    relay.wait_for_turns(1).await;

    let fault = HttpRouteFault {
        delay: super::SOON,
        ..HttpRouteFault::answering(StatusCode::INTERNAL_SERVER_ERROR, "")
    };
    relay.connector.fail_route(HttpRoute::MediaUpload, fault);
    relay.deliver("b", "2", "a.png", &[]);
    relay.wait_for_turns(2).await;
    relay.connector.interrupt("agent:main:discord:dm:b", "b");
    relay.wait_for_turns(1).await;
    relay.stop().await;
}
