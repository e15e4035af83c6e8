//! `serve.receiver`, and the `relay` kind of connector: other programs hand something to the agents of a running relay.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use crate::support::dev::Connector;
use futures_util::StreamExt as _;
use hermes_relay::wire::sign;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::operate::http::{self, address};
use crate::operate::{answered, connected, connector, status, verb, verb_with};
use crate::support::raw_http::{self, Answer};
use crate::support::relay_process::{RelayProcess, SOON, Setup};
use crate::support::skip::skip;
use crate::support::wait::eventually;

const SECRET: &str = "the key of the signature";
const KEY: &str = "the-bearer-key";
const SESSION: &str = "agent:main:discord:dm:c1";

const SIGNED: &str = "{hmac_secret_file: hook.secret}";
const KEYED: &str = "{bearer_file: hook.key}";
const BOTH: &str = "{hmac_secret_file: hook.secret, bearer_file: hook.key}";

fn with_receiver(setup: Setup, receiver: &str) -> Setup {
    for (name, text) in [("hook.secret", SECRET), ("hook.key", KEY)] {
        setup.write(name, &format!("  {text}\n\n"));
        let file = setup.home().join(name);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    }
    setup
        .setting("serve.http", "127.0.0.1:0")
        .setting("serve.receiver", receiver)
        .setting("notify.targets.here", "{kind: relay}")
}

struct Rig {
    connector: Connector,
    setup: Setup,
    relay: RelayProcess,
    here: SocketAddr,
}

impl Rig {
    async fn start(receiver: &str) -> Self {
        let connector = connector().await;
        let setup = with_receiver(Setup::for_connector(&connector), receiver);
        let relay = connected(&setup).await;
        let here = address(&relay).await;
        Self {
            connector,
            setup,
            relay,
            here,
        }
    }

    /// Posts a body with everything that may be asked for.
    async fn post(&self, path: &str, body: &str) -> Answer {
        let signature = signature(body);
        let key = format!("Bearer {KEY}");
        let headers = [("X-Signature", signature.as_str()), ("Authorization", &key)];
        ask(self.here, "POST", path, &headers, body).await
    }

    async fn deliver(&self, body: &Value) -> Answer {
        self.post("/v1/agents/echo/deliver", &body.to_string()).await
    }

    /// The texts of the chat `c1`, once there are so many.
    async fn texts(&self, count: usize) -> Vec<String> {
        eventually(&format!("{count} messages"), async || {
            let sent = self.connector.messages_in("c1");
            let texts: Vec<String> = sent.into_iter().map(|sent| sent.text).collect();
            if texts.len() >= count {
                Ok(texts)
            } else {
                Err(texts)
            }
        })
        .await
    }
}

async fn ask(here: SocketAddr, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    raw_http::ask(here, (method, path), headers, body).await
}

fn signature(body: &str) -> String {
    format!("sha256={}", sign(body, SECRET))
}

/// What opens everything but a signature.
fn bearer() -> String {
    format!("Bearer {KEY}")
}

fn augment(id: &str, text: &str) -> Value {
    json!({"agent_id": "echo", "kind": "augment", "content": text, "meta": meta(id)})
}

fn template(id: &str, text: &str) -> Value {
    json!({"agent_id": "echo", "kind": "template", "prompt": text, "session_id": SESSION, "meta": meta(id)})
}

fn meta(id: &str) -> Value {
    json!({"dispatch_id": id, "sent_at": 1, "novel": [1],
        "origin": {"skill_name": "s", "trigger_kind": "event"}})
}

#[tokio::test]
async fn it_needs_a_secret_and_a_listener() {
    let refused = async |setup: Setup, wanted: &str| {
        let (code, said) = setup.ends().await;
        assert!(code == 78 && said.contains(wanted), "{code}: {said}");
        assert!(!said.contains(SECRET) && !said.contains(KEY), "{said}");
    };
    let connector = connector().await;
    let with = |receiver: &str| with_receiver(Setup::for_connector(&connector), receiver);
    refused(with("{}"), "`hmac_secret_file`, `bearer_file` or both").await;
    refused(with("{bearer: x}"), "bearer").await;
    refused(with(SIGNED).setting("serve.http", ""), "needs `serve.http`").await;
    refused(with("{bearer_file: none}"), "serve.receiver").await;
    let open = with(KEYED);
    let file = open.home().join("hook.key");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    refused(open, "chmod 600").await;
}

#[tokio::test]
async fn everything_that_is_configured_is_required() {
    let body = augment("d1", "Grüße").to_string();
    let signed = signature(&body);
    let key = format!("Bearer {KEY}");
    let good = ("X-Signature", signed.as_str());
    let bearer = ("Authorization", key.as_str());
    let upper = format!("sha256={}", sign(&body, SECRET).to_uppercase());
    let other = format!("sha256={}", sign(&body, "another key"));
    let wrong: [&[(&str, &str)]; 9] = [
        &[],
        &[("X-Signature", "")],
        &[("X-Signature", &signed[7..])],
        &[("X-Signature", &upper)],
        &[("X-Signature", &other)],
        &[good, ("X-Signature", &other)],
        &[("Authorization", "Bearer the-bearer-kez")],
        &[("Authorization", KEY)],
        &[("Authorization", "Basic dGhlOmtleQ==")],
    ];
    let path = "/v1/agents/echo/deliver";
    for (receiver, enough, lacking) in [
        (SIGNED, vec![good], vec![bearer]),
        (KEYED, vec![bearer], vec![good]),
        (BOTH, vec![good, bearer], vec![good]),
    ] {
        let rig = Rig::start(receiver).await;
        for headers in wrong.into_iter().chain([&lacking[..]]) {
            for path in [path, "/v1/agents/echo/wake", "/v1/agents/nobody/deliver"] {
                let answer = ask(rig.here, "POST", path, headers, &body).await;
                assert_eq!(answer.status, 401, "{receiver} {headers:?} {answer:?}");
            }
        }
        let answer = ask(rig.here, "POST", path, &enough, &body).await;
        assert_eq!(answer.status, 200, "{receiver} {answer:?}");
        // The exact bytes count.
        if receiver != KEYED {
            let spaced = format!("{body} ");
            assert_eq!(ask(rig.here, "POST", path, &enough, &spaced).await.status, 401);
        }
        // What is read needs the key, or else the signature of nothing.
        let empty = signature("");
        let (may, may_not) = if receiver == SIGNED {
            (("X-Signature", empty.as_str()), bearer)
        } else {
            (bearer, ("X-Signature", empty.as_str()))
        };
        for path in ["/v1/agents", "/v1/agents/echo/status"] {
            assert_eq!(ask(rig.here, "GET", path, &[], "").await.status, 401, "{path}");
            assert_eq!(
                ask(rig.here, "GET", path, &[may_not], "").await.status,
                401,
                "{path}"
            );
            assert_eq!(ask(rig.here, "GET", path, &[may], "").await.status, 200, "{path}");
        }
        let log = rig.relay.stderr();
        assert!(!log.contains(SECRET) && !log.contains(KEY), "{log}");
        rig.relay.stop().await;
    }
}

#[tokio::test]
async fn every_answer_has_its_status() {
    let rig = Rig::start(BOTH).await;
    let path = "/v1/agents/echo/deliver";
    let key = format!("Bearer {KEY}");
    let read = async |path: &str| ask(rig.here, "GET", path, &[("Authorization", &key)], "").await;
    assert_eq!(
        read("/v1/agents").await.json(),
        json!({"agents": [{"agent_id": "echo", "capabilities": ["deliver", "augment", "template", "wake"]}]})
    );
    assert_eq!(
        read("/v1/agents/echo/status").await.json(),
        json!({"agent_id": "echo", "status": "idle"})
    );
    assert_eq!(read("/v1/agents/nobody/status").await.status, 404);
    assert_eq!(read("/v1/agents/echo/else").await.status, 404);
    let answer = read(path).await;
    assert!(
        answer.status == 405 && answer.header("allow") == Some("POST"),
        "{answer:?}"
    );

    let answer = rig.deliver(&augment("d1", "x")).await;
    assert_eq!(answer.header("content-type"), Some("application/json"));
    let receipt = answer.json();
    assert_eq!(
        receipt,
        json!({"delivered_at": receipt["delivered_at"].as_i64().unwrap(), "delivery_id": "d1"})
    );
    let named = rig.deliver(&template("d2", "y")).await.json();
    assert_eq!(named["session_id"], SESSION);
    let changed = |key: &str, value: Value| {
        let mut body = augment("d3", "x");
        body[key] = value;
        body.to_string()
    };
    let suffixed = rig.post(path, &changed("agent_id", json!("echo@s1"))).await;
    assert_eq!(suffixed.json()["session_id"], "s1");
    for body in [
        String::new(),
        "[]".to_owned(),
        "{".to_owned(),
        changed("kind", json!("reminder")),
        changed("kind", Value::Null),
        changed("prompt", json!("of the other kind")),
        changed("content", json!(5)),
        changed("meta", json!({"sent_at": 1})),
        changed("meta", json!({"dispatch_id": ""})),
        changed("agent_id", json!("other")),
        changed("session_id", json!(7)),
    ] {
        let answer = rig.post(path, &body).await;
        assert_eq!(answer.status, 400, "{body}: {answer:?}");
        assert!(answer.json()["error"].is_string(), "{answer:?}");
    }
    assert_eq!(
        rig.post("/v1/agents/nobody/deliver", &augment("d4", "x").to_string())
            .await
            .status,
        404
    );
    // An encoded name is the same agent.
    let encoded = rig
        .post("/v1/agents/ech%6F/deliver", &augment("d5", "x").to_string())
        .await;
    assert_eq!(encoded.status, 200, "{encoded:?}");
    let large = augment("d6", &"x".repeat(1024 * 1024)).to_string();
    assert_eq!(rig.post(path, &large).await.status, 413);
    // Whoever writes everything before reading sees the status, too.
    let huge = "x".repeat(16 << 20);
    assert_eq!(rig.post(path, &huge).await.status, 413);
    let strange = ask(rig.here, "POST", path, &[("Authorization", "Bearer no")], &huge).await;
    assert_eq!(strange.status, 401);
    // There is room for 256 KiB of context before the session's next turn.
    let much = "x".repeat(200_000);
    assert_eq!(rig.deliver(&augment("d7", &much)).await.status, 200);
    let full = rig.deliver(&augment("d8", &much)).await;
    assert!(
        full.status == 429 && full.header("retry-after") == Some("10"),
        "{full:?}"
    );
    let later = json!({"agent_id": "echo", "when": 9_999_999_999_999_i64}).to_string();
    let answer = rig.post("/v1/agents/echo/wake", &later).await;
    assert!(
        answer.status == 400 && answer.body.contains("future"),
        "{answer:?}"
    );
    let wrong = json!({"when": "soon"}).to_string();
    assert_eq!(rig.post("/v1/agents/echo/wake", &wrong).await.status, 400);
    // Without the section there are no such routes.
    let connector = connector().await;
    let setup = Setup::for_connector(&connector).setting("serve.http", "127.0.0.1:0");
    let plain = connected(&setup).await;
    let request = [("Authorization", key.as_str())];
    let here = address(&plain).await;
    let answer = ask(here, "GET", "/v1/agents", &request, "").await;
    assert!([404, 421].contains(&answer.status), "{answer:?}");
}

#[tokio::test]
async fn a_delivery_acts_once_and_its_answer_goes_to_the_chat() {
    let rig = Rig::start(BOTH).await;
    answered(&rig.connector, "m1", "hello").await;
    let before = rig.texts(1).await.len();
    let first = rig.deliver(&template("d1", "rotate the logs")).await;
    assert_eq!(first.status, 200, "{first:?}");
    let texts = rig.texts(before + 1).await;
    assert!(texts[before].contains("echo: rotate the logs"), "{texts:?}");
    let again = rig.deliver(&template("d1", "rotate the logs")).await;
    assert_eq!((again.status, again.json()), (200, first.json()));

    // Context starts no turn, and stands before the text of the next one.
    let mut context = augment("d2", "the disk is full");
    context["session_id"] = SESSION.into();
    assert_eq!(rig.deliver(&context).await.status, 200);
    assert_eq!(rig.deliver(&context).await.status, 200);
    answered(&rig.connector, "m2", "what is new?").await;
    let texts = rig.texts(before + 2).await;
    assert_eq!(texts.len(), before + 2, "one turn: {texts:?}");
    let last = &texts[before + 1];
    assert!(
        last.contains("what is new?") && last.matches("the disk is full").count() == 1,
        "{texts:?}"
    );

    let wake = json!({"agent_id": "echo", "session_id": SESSION, "context": "get up"}).to_string();
    let woken = rig.post("/v1/agents/echo/wake", &wake).await.json();
    assert_eq!(
        woken,
        json!({"woken_at": woken["woken_at"].as_i64().unwrap(), "woken": true, "session_id": SESSION})
    );
    let texts = rig.texts(before + 3).await;
    assert!(texts[before + 2].contains("echo: get up"), "{texts:?}");
    let bare = rig.post("/v1/agents/echo/wake", "{}").await.json();
    assert_eq!((&bare["woken"], bare.get("session_id")), (&json!(true), None));
    rig.relay.stop().await;
}

#[tokio::test]
async fn notify_reaches_the_agents_of_the_running_relay() {
    let rig = Rig::start(BOTH).await;
    answered(&rig.connector, "m1", "hello").await;
    let before = rig.texts(1).await.len();
    let shown = verb(&rig.setup, &["notify", "echo", "x", "--json"]).await.json();
    let to = &shown["dispatched"][0];
    assert_eq!(
        (&to["connector"], &to["ok"], &to["route"]),
        (&json!("here"), &json!(true), &json!("deliver"))
    );
    assert!(to["receipt"]["delivery_id"].is_string(), "{shown}");

    let address = format!("echo@{SESSION}");
    let woken = verb(&rig.setup, &["notify", &address, "get up", "--json"])
        .await
        .json();
    let to = &woken["dispatched"][0];
    assert_eq!(
        (
            &to["route"],
            &to["receipt"]["woken"],
            &to["receipt"]["session_id"]
        ),
        (&json!("wake"), &json!(true), &json!(SESSION))
    );
    let texts = rig.texts(before + 1).await;
    assert!(texts[before].contains("echo: get up"), "{texts:?}");

    let args = [
        "notify",
        "echo",
        "ping",
        "--kind",
        "template",
        "--wait",
        "15",
        "--correlation-id",
        "c-1",
        "--json",
    ];
    let waited = verb(&rig.setup, &args).await.json();
    let to = &waited["dispatched"][0];
    assert_eq!(to["route"], "request_response");
    let response = &to["response"];
    assert_eq!(
        (&response["correlation_id"], &response["agent_id"]),
        (&json!("c-1"), &json!("echo"))
    );
    assert!(response["content"].as_str().unwrap().contains("ping"), "{waited}");
    assert!(
        response["sent_at"].is_i64() && to.get("receipt").is_none(),
        "{waited}"
    );

    // A text far above the limit of other requests, with characters that are escaped.
    let long = "\u{1}\"".repeat(100_000);
    let output = verb_with(&rig.setup, &["notify", "echo", "-", "--json"], Some(&long)).await;
    assert_eq!(output.json()["dispatched"][0]["ok"], true, "{output:?}");
    assert_eq!(verb(&rig.setup, &["notify", "--test", "here"]).await.code, 0);

    let setup = rig.setup;
    rig.relay.stop().await;
    let output = verb(&setup, &["notify", "echo", "x", "--json"]).await;
    assert_eq!(output.code, 1);
    let shown: Value = serde_json::from_str(&output.out).unwrap();
    let error = &shown["dispatched"][0]["error"];
    assert_eq!(error["cause_kind"], "network");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("needs a running relay"), "{message}");
    let output = verb(&setup, &["notify", "--test", "here"]).await;
    assert!(
        output.code == 1 && output.err.contains("no relay runs"),
        "{output:?}"
    );
}

/// Builds the contract's envelope with Node's own JSON and HMAC, posts it twice, and prints both answers.
const NODE: &str = r"
const crypto = require('crypto');
const [base, secret, key, session] = process.argv.slice(1);
const body = JSON.stringify({
  agent_id: 'echo', kind: 'template', prompt: 'Grüße \u2028 \ud83d\udc69', session_id: session,
  meta: { dispatch_id: crypto.randomUUID(), sent_at: Date.now(), origin: { skill_name: 'node', trigger_kind: 'webhook' } },
});
const post = async () => {
  const signature = 'sha256=' + crypto.createHmac('sha256', secret).update(body).digest('hex');
  const response = await fetch(base + '/v1/agents/echo/deliver', {
    method: 'POST', body,
    headers: { 'Content-Type': 'application/json', 'X-Signature': signature, Authorization: 'Bearer ' + key },
  });
  return { status: response.status, sent: JSON.parse(body).meta.dispatch_id, receipt: await response.json() };
};
(async () => console.log(JSON.stringify([await post(), await post()])))();
";

#[tokio::test]
async fn a_node_program_gets_an_honest_receipt() {
    let rig = Rig::start(BOTH).await;
    answered(&rig.connector, "m1", "hello").await;
    let before = rig.texts(1).await.len();
    let base = format!("http://{}", rig.here);
    let mut node = tokio::process::Command::new("node");
    node.args(["-e", NODE, "--", &base, SECRET, KEY, SESSION])
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let Ok(ended) = timeout(SOON, node.output()).await.expect("an end in time") else {
        return skip("node is not installed: no Node program posts to the receiver");
    };
    let said = String::from_utf8_lossy(&ended.stdout).into_owned();
    let answers: Value = serde_json::from_str(&said)
        .unwrap_or_else(|_| panic!("{said} {}", String::from_utf8_lossy(&ended.stderr)));
    for answer in answers.as_array().unwrap() {
        assert_eq!(answer["status"], 200, "{answers}");
        assert_eq!(answer["receipt"]["delivery_id"], answer["sent"]);
        assert_eq!(answer["receipt"]["session_id"], SESSION);
    }
    assert_eq!(answers[0], answers[1], "the same receipt");
    answered(&rig.connector, "m2", "the end").await;
    let texts = rig.texts(before + 2).await;
    assert_eq!(texts.len(), before + 2, "it acted once: {texts:?}");
    assert!(texts[before].contains("Grüße \u{2028} 👩"), "{texts:?}");
}

#[tokio::test]
async fn an_answer_without_a_chat_goes_to_the_target_in_the_settings() {
    let wrong = with_receiver(
        Setup::for_connector(&connector().await),
        "{bearer_file: hook.key, deliver: \"discord:\"}",
    );
    let (code, said) = wrong.ends().await;
    assert!(
        code == 78 && said.contains("serve.receiver.deliver") && said.contains("names no chat"),
        "{said}"
    );

    let rig = Rig::start("{bearer_file: hook.key, deliver: \"discord:c1\"}").await;
    let bare = json!({"agent_id": "echo", "kind": "template", "prompt": "rotate", "meta": meta("d1")});
    assert_eq!(rig.deliver(&bare).await.status, 200);
    assert_eq!(rig.texts(1).await, ["echo: rotate"]);
    let named = json!({"session_id": "ci", "context": "look"}).to_string();
    assert_eq!(rig.post("/v1/agents/echo/wake", &named).await.status, 200);
    assert_eq!(rig.texts(2).await[1], "echo: look");
    // Whoever waits for an answer has it; nobody else gets it.
    let args = ["notify", "echo", "ping", "--wait", "15"];
    assert_eq!(verb(&rig.setup, &args).await.out, "echo: ping\n");
    // A session with a chat has its own.
    answered(&rig.connector, "m1", "hello").await;
    assert_eq!(rig.texts(3).await.len(), 3);
    let own = "agent:main:discord:dm:c2";
    let event = crate::support::dev::text_event("discord", "c2", "m2", "hello");
    rig.connector.deliver(&event).unwrap();
    rig.connector.reply_to(SOON, "m2").await.unwrap();
    let body = json!({"session_id": own, "context": "only here"}).to_string();
    assert_eq!(rig.post("/v1/agents/echo/wake", &body).await.status, 200);
    eventually("the answer in its own chat", async || {
        let texts = rig.connector.messages_in("c2");
        texts.iter().any(|sent| sent.text == "echo: only here")
    })
    .await;
    assert_eq!(rig.texts(3).await.len(), 3);

    let metrics = http::ask(rig.here, "GET", "/metrics").await.1;
    for line in [
        "hermes_relay_deliveries_total{route=\"deliver\"} 1\n",
        "hermes_relay_deliveries_total{route=\"wake\"} 2\n",
        "hermes_relay_deliveries_total{route=\"request_response\"} 1\n",
        "hermes_relay_receiver_requests_total{status=\"200\"} 3\n",
        "hermes_relay_delivery_duplicates_total 0\n",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    assert_eq!(rig.deliver(&bare).await.status, 200);
    assert_eq!(ask(rig.here, "GET", "/v1/agents", &[], "").await.status, 401);
    let metrics = http::ask(rig.here, "GET", "/metrics").await.1;
    for line in [
        "hermes_relay_receiver_requests_total{status=\"401\"} 1\n",
        "hermes_relay_delivery_duplicates_total 1\n",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    rig.relay.stop().await;
}

#[tokio::test]
async fn an_answer_that_nobody_waits_for_any_more_goes_to_the_target() {
    let rig = Rig::start("{bearer_file: hook.key, deliver: \"discord:c1\"}").await;
    let args = ["notify", "echo", "sleep=6000 pong", "--wait", "60"];
    let mut waiting = rig.setup.verb(&args).stdout(Stdio::piped()).spawn().unwrap();
    eventually("the turn", async || {
        status(&rig.setup).await["turns_running"] == 1
    })
    .await;
    waiting.kill().await.unwrap();
    assert_eq!(rig.texts(1).await, ["echo: pong"]);
    rig.relay.stop().await;
}

#[tokio::test]
async fn a_wake_over_http_interrupts_the_turn_that_runs_and_runs_itself() {
    let rig = Rig::start(KEYED).await;
    let slow = crate::support::dev::text_event("discord", "c1", "m1", "sleep=60000 slow");
    rig.connector.deliver(&slow).unwrap();
    let key = bearer();
    let status = async || {
        let headers = [("Authorization", key.as_str())];
        let answer = ask(rig.here, "GET", "/v1/agents/echo/status", &headers, "").await;
        answer.json()["status"].clone()
    };
    eventually("a turn", async || status().await == "active").await;
    let shown = verb(&rig.setup, &["status", "--json"]).await.json();
    assert_eq!(shown["turns_running"], 1);
    // What waits is kept with all that its sender said of it.
    assert_eq!(rig.deliver(&template("d1", "afterwards")).await.status, 200);
    let args = ["journal", "show", "message:2", "--text", "--json"];
    let kept = verb(&rig.setup, &args).await.json();
    let kept: Value = serde_json::from_str(kept["line"].as_str().unwrap()).unwrap();
    assert_eq!(kept["meta"], meta("d1"), "{kept}");
    let wake = json!({"agent_id": format!("echo@{SESSION}"), "context": "get up"}).to_string();
    let woken = rig.post("/v1/agents/echo/wake", &wake).await;
    assert_eq!(
        (&woken.json()["woken"], &woken.json()["session_id"]),
        (&json!(true), &json!(SESSION))
    );
    eventually("the answer of the wake", async || {
        let texts = rig.connector.messages_in("c1");
        texts.iter().any(|sent| sent.text == "echo: get up")
    })
    .await;
    let shown = verb(&rig.setup, &["status", "--json"]).await.json();
    assert_eq!(shown["tally"]["turns_stopped"], 1, "{shown}");
    eventually("the agent is idle", async || status().await == "idle").await;
    rig.relay.stop().await;
}

#[tokio::test]
async fn a_relay_that_drains_takes_nothing_and_says_when_to_come_again() {
    let rig = Rig::start(KEYED).await;
    let slow = crate::support::dev::text_event("discord", "c1", "m1", "sleep=5000 slow");
    rig.connector.deliver(&slow).unwrap();
    let key = bearer();
    let headers = [("Authorization", key.as_str())];
    eventually("a turn", async || {
        let answer = ask(rig.here, "GET", "/v1/agents/echo/status", &headers, "").await;
        answer.body.contains("active")
    })
    .await;
    rig.relay.terminate();
    let refused = eventually("a refusal", async || {
        let answer = rig.deliver(&augment("d1", "too late")).await;
        if answer.status == 503 {
            Ok(answer)
        } else {
            Err(answer)
        }
    })
    .await;
    assert_eq!(refused.header("retry-after"), Some("10"), "{refused:?}");
    assert!(refused.body.contains("shutting down"), "{refused:?}");
    let wake = rig.post("/v1/agents/echo/wake", "{}").await;
    assert_eq!(wake.status, 503, "{wake:?}");
    // Senders of the contract come again with the same id; the next run takes it.
    let Rig { setup, mut relay, .. } = rig;
    assert_eq!(relay.exit_code(SOON).await, 0);
    let relay = connected(&setup).await;
    let body = augment("d1", "too late").to_string();
    let here = address(&relay).await;
    let answer = ask(here, "POST", "/v1/agents/echo/deliver", &headers, &body).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    relay.stop().await;
}

#[tokio::test]
async fn many_requests_at_once_are_bounded_and_a_slow_body_costs_only_its_own_connection() {
    let rig = Rig::start(KEYED).await;
    let key = bearer();
    let headers = [("Authorization", key.as_str())];
    // A body that never arrives.
    let mut slow = TcpStream::connect(rig.here).await.unwrap();
    let head = raw_http::head("POST", "/v1/agents/echo/deliver", &headers, 100);
    slow.write_all(head.as_bytes()).await.unwrap();
    slow.write_all(b"{").await.unwrap();
    // More than the listener takes at a time: the rest waits, and everybody is answered.
    let body = augment("d1", "the same").to_string();
    let asked = (0..100).map(|_| {
        let (headers, body) = (headers, body.clone());
        async move { ask(rig.here, "POST", "/v1/agents/echo/deliver", &headers, &body).await }
    });
    let answers = futures_util::future::join_all(asked).await;
    for answer in &answers {
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(answer.json(), answers[0].json(), "one receipt for all");
    }
    // Above the rate, strangers and friends are told to come again.
    let requests = (0..20_000).map(|_| ask(rig.here, "GET", "/v1/agents", &headers, ""));
    let mut flood = futures_util::stream::iter(requests).buffer_unordered(64);
    let mut taken = 0;
    let limited = loop {
        let answer = flood.next().await.expect("one above the rate");
        if answer.status != 200 {
            break answer;
        }
        taken += 1;
    };
    drop(flood);
    assert!(
        limited.status == 429 && limited.header("retry-after") == Some("1"),
        "{limited:?}"
    );
    assert!(taken >= 800, "so many may come together: {taken}");
    let late = raw_http::answer(slow).await;
    assert!(late.status == 400 && late.body.contains("in time"), "{late:?}");
    rig.relay.stop().await;
}

/// The head of a delivery whose signature may be right, before any of its body.
fn stalled_head() -> String {
    let signature = format!("sha256={}", "0".repeat(64));
    raw_http::head(
        "POST",
        "/v1/agents/echo/deliver",
        &[("X-Signature", &signature)],
        100,
    )
}

async fn stall(here: SocketAddr) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect(here).await?;
    stream.write_all(stalled_head().as_bytes()).await?;
    Ok(stream)
}

#[tokio::test]
async fn stalled_requests_do_not_delay_a_health_check() {
    let rig = Rig::start(SIGNED).await;
    let mut stalled = Vec::new();
    for _ in 0..64 {
        stalled.push(stall(rig.here).await.unwrap());
    }
    assert_eq!(http::ask(rig.here, "GET", "/healthz").await.0, 200);
    // One that had its time would have made room by its answer.
    let is_answered = |stream: &&TcpStream| stream.try_read(&mut [0; 1]).is_ok_and(|read| read > 0);
    let answered = stalled.iter().filter(is_answered).count();
    assert_eq!(answered, 0, "it waited until a stalled request had its time");
    // A delivery by somebody who does send its body is taken meanwhile.
    let taken = rig.deliver(&augment("d1", "x")).await;
    assert_eq!(taken.status, 200, "{taken:?}");
    rig.relay.stop().await;
}

#[tokio::test]
async fn stalled_requests_that_come_again_and_again_do_not_block_a_health_check() {
    let rig = Rig::start(SIGNED).await;
    let here = rig.here;
    let answered = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let mut flood = tokio::task::JoinSet::new();
    for _ in 0..130 {
        let answered = std::sync::Arc::clone(&answered);
        flood.spawn(async move {
            loop {
                let Ok(mut stream) = stall(here).await else {
                    continue;
                };
                let mut answer = Vec::new();
                let _ = tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut answer).await;
                if !answer.is_empty() {
                    answered.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                }
            }
        });
    }
    for _ in 0..10 {
        assert_eq!(http::ask(here, "GET", "/healthz").await.0, 200);
    }
    let answered = answered.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(
        answered, 0,
        "no check waited until a stalled request had its time"
    );
    drop(flood);
    rig.relay.stop().await;
}

#[tokio::test]
async fn no_body_is_awaited_whose_headers_fail() {
    let answer = async |rig: &Rig, headers: &[(&str, &str)], length| {
        let mut stream = TcpStream::connect(rig.here).await.unwrap();
        let head = raw_http::head("POST", "/v1/agents/echo/deliver", headers, length);
        stream.write_all(head.as_bytes()).await.unwrap();
        raw_http::answer(stream).await.status
    };
    let rig = Rig::start(SIGNED).await;
    let formed = format!("sha256={}", "0".repeat(64));
    for headers in [
        &[][..],
        &[("X-Signature", "sha256=1")],
        &[("X-Signature", &formed[7..])],
    ] {
        assert_eq!(answer(&rig, headers, 100).await, 401, "{headers:?}");
    }
    let large = 1024 * 1024 + 1;
    assert_eq!(answer(&rig, &[("X-Signature", &formed)], large).await, 413);
    rig.relay.stop().await;
}

#[tokio::test]
async fn a_flood_of_strangers_costs_signed_deliveries_nothing() {
    let rig = Rig::start(SIGNED).await;
    let here = rig.here;
    let limited = std::sync::Arc::new(tokio::sync::Notify::new());
    let mut flood = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let limited = std::sync::Arc::clone(&limited);
        flood.spawn(async move {
            loop {
                let answer = ask(here, "GET", "/v1/agents", &[], "").await;
                match answer.status {
                    401 => {}
                    429 => limited.notify_one(),
                    _ => panic!("{answer:?}"),
                }
            }
        });
    }
    timeout(SOON, limited.notified())
        .await
        .expect("strangers have a limit");
    for number in 0..50 {
        let body = augment(&format!("d{number}"), "x");
        let answer = rig.deliver(&body).await;
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    assert!(flood.try_join_next().is_none(), "they still come");
    drop(flood);
    rig.relay.stop().await;
}

#[tokio::test]
async fn a_captured_delivery_is_refused_as_a_wake() {
    let rig = Rig::start(BOTH).await;
    for body in [
        augment("d1", "for later"),
        template("d2", "rotate"),
        json!({"agent_id": "echo", "meta": meta("d3")}),
    ] {
        let answer = rig.post("/v1/agents/echo/wake", &body.to_string()).await;
        assert!(
            answer.status == 400 && answer.body.contains("belongs to a delivery"),
            "{answer:?}"
        );
    }
    assert!(rig.connector.messages_in("c1").is_empty());
    let metrics = http::ask(rig.here, "GET", "/metrics").await.1;
    assert!(
        metrics.contains("hermes_relay_deliveries_total{route=\"wake\"} 0\n"),
        "{metrics}"
    );
    // What a wake may have is taken all the same.
    let wake = json!({"agent_id": "echo", "session_id": "s", "context": "get up", "when": "immediate"});
    assert_eq!(
        rig.post("/v1/agents/echo/wake", &wake.to_string()).await.status,
        200
    );
    rig.relay.stop().await;
}

#[tokio::test]
async fn an_id_is_for_one_agent() {
    let connector = connector().await;
    let setup =
        with_receiver(Setup::for_connector(&connector), KEYED).setting("agents.second", "{kind: echo}");
    let relay = connected(&setup).await;
    let here = address(&relay).await;
    let key = bearer();
    let post = async |agent: &str| {
        let body = json!({"agent_id": agent, "kind": "augment", "content": "hi", "meta": meta("d1")});
        let path = format!("/v1/agents/{agent}/deliver");
        let headers = [("Authorization", key.as_str())];
        ask(here, "POST", &path, &headers, &body.to_string()).await
    };
    let first = post("echo").await;
    assert_eq!(first.status, 200, "{first:?}");
    let other = post("second").await;
    assert!(
        other.status == 400 && other.body.contains("another agent"),
        "{other:?}"
    );
    assert_eq!(post("echo").await.body, first.body, "the same receipt");
    relay.stop().await;
}
