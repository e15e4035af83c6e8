//! `serve.receiver`, and the `relay` kind of connector: other programs hand something to the agents of a running relay.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use hermes_relay::dev::Connector;
use hermes_relay::wire::sign;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::operate::http::address;
use crate::operate::{answered, connected, connector, verb, verb_with};
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
        .setting("connectors.here", "{kind: relay}")
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

#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("not JSON: {self:?}"))
    }
}

async fn ask(here: SocketAddr, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    let mut request = format!(
        "{method} {path} HTTP/1.1\r\nHost: any.example\r\nContent-Length: {}\r\n",
        body.len()
    );
    for (name, value) in headers {
        request.extend([*name, ": ", *value, "\r\n"]);
    }
    request.push_str("\r\n");
    request.push_str(body);
    let mut stream = TcpStream::connect(here).await.unwrap();
    // It may hang up in the middle of what is too long.
    let _ = stream.write_all(request.as_bytes()).await;
    let mut response = Vec::new();
    let read = timeout(SOON, stream.read_to_end(&mut response)).await;
    let _ = read.expect("an end in time");
    let response = String::from_utf8(response).unwrap();
    let (head, body) = response.split_once("\r\n\r\n").unwrap_or((&response, ""));
    let status = head
        .split_whitespace()
        .nth(1)
        .and_then(|status| status.parse().ok());
    Answer {
        status: status.unwrap_or(0),
        head: head.to_ascii_lowercase(),
        body: body.to_owned(),
    }
}

fn signature(body: &str) -> String {
    format!("sha256={}", sign(body, SECRET))
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
        answer.status == 405 && answer.head.contains("allow: post"),
        "{answer:?}"
    );

    let answer = rig.deliver(&augment("d1", "x")).await;
    assert!(
        answer.head.contains("content-type: application/json"),
        "{answer:?}"
    );
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
    // There is room for 256 KiB of context before the session's next turn.
    let much = "x".repeat(200_000);
    assert_eq!(rig.deliver(&augment("d7", &much)).await.status, 200);
    let full = rig.deliver(&augment("d8", &much)).await;
    assert!(
        full.status == 429 && full.head.contains("retry-after: 10"),
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
    assert_eq!(verb(&rig.setup, &["connectors", "test", "here"]).await.code, 0);

    let setup = rig.setup;
    rig.relay.stop().await;
    let output = verb(&setup, &["notify", "echo", "x", "--json"]).await;
    assert_eq!(output.code, 1);
    let shown: Value = serde_json::from_str(&output.out).unwrap();
    let error = &shown["dispatched"][0]["error"];
    assert_eq!(error["cause_kind"], "network");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("needs a running relay"), "{message}");
    let output = verb(&setup, &["connectors", "test", "here"]).await;
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
