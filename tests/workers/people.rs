//! Who may what on a worker: the same as without one.

use std::sync::Arc;

use hermes_relay::agent::EchoAgent;
use hermes_relay::config::Settings;
use hermes_relay::cron::job::{JobOrigin, NewJob};
use hermes_relay::store::{CronCommand, CronFiles, CronReply, JobChange};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::json;

use crate::support::memory_relay::start_with;
use crate::{Begun, Server, answered, counting};

/// People by their chats: `boss` is an owner, `guest` a guest, `out` is denied.
fn people(settings: &mut Settings) {
    let rule = |user: &str, role: &str| json!({"platform": "discord", "user": format!("user-of-{user}"), "role": role});
    let denied = json!({"platform": "discord", "user": "user-of-out"});
    let people = json!({"people": [rule("boss", "owner"), rule("guest", "guest")], "deny": [denied]});
    settings.access = serde_json::from_value(people).unwrap();
    settings.streaming.typing = false;
    settings.streaming.reactions = false;
    settings.cron.wrap_response = false;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guests_agent_asks_nobody_and_who_is_denied_never_reaches_a_worker() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let worker = server.worker(EchoAgent, 2).await;
    let relay = start_with(dir.path(), server.agent(|_| {}), people).await;
    relay.deliver("guest", "1", "ask hi").await;
    answered(&relay, "guest", &["echo: denied hi"]).await;
    relay.deliver("out", "1", "hello").await;
    relay.deliver("boss", "1", "hello").await;
    answered(&relay, "boss", &["echo: hello"]).await;
    let seen = relay.stop().await;
    assert!(
        seen.texts("out").iter().all(|text| !text.contains("echo")),
        "{:?}",
        seen.texts("out")
    );
    worker.stop.cancel();
    worker.task.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_runs_on_a_worker_unless_its_maker_is_denied() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let now = Timestamp::now();
    let mut files = CronFiles::open(dir.path(), false, now.as_millisecond()).unwrap();
    let mut change = |change: JobChange| {
        let command = CronCommand::Change {
            change,
            maker: None,
            zone: TimeZone::UTC,
            now,
        };
        match files.run(&command).unwrap() {
            CronReply::Changed { job: Some(row), .. } => row.job.id().to_owned(),
            other => panic!("{other:?}"),
        }
    };
    for (random, user) in [(1, "boss"), (2, "out")] {
        let new = NewJob {
            schedule: "every 2h".to_owned(),
            prompt: format!("look for {user}"),
            origin: Some(JobOrigin {
                platform: "discord".to_owned(),
                chat_id: user.to_owned(),
                chat_type: Some("dm".to_owned()),
                user_id: Some(format!("user-of-{user}")),
                ..JobOrigin::default()
            }),
            ..NewJob::default()
        };
        let new = Box::new(new);
        let job = change(JobChange::Add { new, random });
        change(JobChange::Run { job });
    }
    let begun: Arc<Begun> = Arc::default();
    let worker = server.worker(counting(&begun), 2).await;
    let relay = start_with(dir.path(), server.agent(|_| {}), people).await;
    let texts = relay.replies("boss", 1).await;
    assert!(texts[0].contains("look for boss"), "{texts:?}");
    relay.wait_for_turns(0).await;
    relay.stop().await;
    worker.stop.cancel();
    worker.task.await.unwrap();
    let begun = begun.0.lock().unwrap();
    let of = |user: &str| begun.keys().filter(|text| text.contains(user)).count();
    assert_eq!((of("boss"), of("out")), (1, 0), "{begun:?}");
}
