//! The jobs of the embedded managed scheduler on the page: listed, and fired by a button.

use std::sync::Arc;

use hermes_relay::adapter::SessionNames;
use hermes_relay::dev::{
    Connector, ConnectorSettings, EmbeddedScheduler, Hint, PageSettings, SchedulerSettings,
};
use hermes_relay::net::chronos::ChronosClient;
use secrecy::SecretString;
use serde_json::{Value, json};

use crate::browser::plain_http;
use crate::server::Stage;
use crate::support::http_stub::{Stub, egress, json_reply};

const FAR: &str = "2036-11-15T09:00:00+00:00";

#[tokio::test]
async fn armed_jobs_are_listed_and_fired() {
    let relay = Stub::start(|_| json_reply(202, &json!({"status": "accepted"}))).await;
    let managed = Arc::new(
        EmbeddedScheduler::start(SchedulerSettings::default())
            .await
            .unwrap(),
    );
    let home = tempfile::tempdir().unwrap();
    managed.write_login(home.path()).unwrap();
    let login: Value =
        serde_json::from_slice(&std::fs::read(home.path().join("auth.json")).unwrap()).unwrap();
    let token = SecretString::from(login["providers"]["nous"]["access_token"].as_str().unwrap());
    let client = ChronosClient::new(&egress(), &managed.portal_url(), &relay.base()).unwrap();
    client.provision(&token, "0b23be8dd975", FAR).await.unwrap();

    let connector = Connector::start(ConnectorSettings::default()).await.unwrap();
    let page = connector.open_page(PageSettings {
        platform: "discord".to_owned(),
        agent: "echo".to_owned(),
        hints: Hint::for_agent("echo"),
        sessions: SessionNames::default(),
        relay: None,
    });
    let http = plain_http();
    let jobs = async || {
        let answer = http.get(format!("{page}jobs")).send().await.unwrap();
        assert_eq!(answer.status(), 200);
        answer.json::<Value>().await.unwrap()
    };
    assert_eq!(jobs().await, Value::Null, "no scheduler, no panel");
    connector.show_jobs_of(Arc::clone(&managed));
    assert_eq!(
        jobs().await["armed"],
        json!([{"job_id": "0b23be8dd975", "fire_at": FAR}])
    );

    let fire = async |body: Value| {
        let request = http
            .post(format!("{page}fire"))
            .header("origin", connector.http_base())
            .header("content-type", "application/json")
            .body(body.to_string());
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), answer.json::<Value>().await.unwrap())
    };
    let (status, fired) = fire(json!({"job_id": "0b23be8dd975"})).await;
    assert_eq!(
        (status, &fired["attempts"][0]["status"]),
        (200, &json!(202)),
        "{fired}"
    );
    let (_, fired) = fire(json!({"job_id": "0b23be8dd975", "twice": true})).await;
    assert_eq!(fired["attempts"].as_array().unwrap().len(), 2, "{fired}");
    assert_eq!(fire(json!({"job_id": "unknown"})).await.0, 404);
    assert_eq!(fire(json!({})).await.0, 400);
    assert_eq!(relay.seen().len(), 3);
    assert_eq!(jobs().await["attempts"].as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn a_job_from_the_chat_is_armed_and_of_two_fires_one_runs() {
    let Some(stage) = Stage::set("discord").await else {
        return;
    };
    let page = &stage.browser;
    page.until("no job", "document.querySelector('#job-none').checkVisibility()")
        .await;
    // A fire may come a minute early.
    stage.say("/cron add every 1m sleep=10 look outside").await;
    page.until(
        "an armed job",
        "document.querySelector('#job-none').hidden && document.querySelector('#job-list time')?.dateTime",
    )
    .await;
    page.click("#fire-twice-0").await;
    let runs = "[...document.querySelectorAll('.message.bot .text')].filter((n) => n.innerText.includes('echo: look outside')).length";
    page.until("its run", &format!("{runs} === 1")).await;
    let fires = "[...document.querySelectorAll('#fire-list li')].map((n) => n.innerText)";
    let both = page
        .until("both fires", &format!("{fires}.length >= 2 && {fires}.join()"))
        .await;
    let both = both.as_str().unwrap();
    assert!(both.contains("202") && both.contains("duplicate"), "{both}");
    page.picture("jobs").await;
    assert_eq!(page.js(&format!("return {runs};")).await, 1, "one of them ran");
}
