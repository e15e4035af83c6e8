//! Real receivers: Flask and Express, from their registries, that verify the signature of the raw bytes before they parse them.

use std::path::PathBuf;
use std::process::Stdio;

use hermes_relay::agent_connector::AgentConnector as _;
use hermes_relay::agent_connector::contract::CauseKind;
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::{SECRET, augment, context, credentials, webhook};
use crate::registry::{announce, npm, python};
use crate::support::wait::SOON;

/// A receiver of the contract's shape: raw bytes, signature, parse, route, receipt. It says its port first.
const FLASK: &str = r#"
import hashlib, hmac, json, os, sys, time
from flask import Flask, request, jsonify
from werkzeug.serving import make_server
app = Flask(__name__)
seen = {}
def verified():
    raw = request.get_data()
    wanted = "sha256=" + hmac.new(os.environ["SECRET"].encode(), raw, hashlib.sha256).hexdigest()
    return raw if hmac.compare_digest(wanted, request.headers.get("X-Signature", "")) else None
@app.post("/<agent>/deliver")
def deliver(agent):
    raw = verified()
    if raw is None:
        return jsonify(error="bad signature"), 401
    body = json.loads(raw)
    seen[body["meta"]["dispatch_id"]] = body.get("content", body.get("prompt"))
    return jsonify(delivered_at=int(time.time() * 1000), delivery_id=body["meta"]["dispatch_id"],
                   session_id="flask", warnings=[seen[body["meta"]["dispatch_id"]]])
@app.post("/<agent>/wake")
def wake(agent):
    raw = verified()
    if raw is None:
        return jsonify(error="bad signature"), 401
    body = json.loads(raw)
    return jsonify(woken=True, session_id=body["session_id"], warnings=[body["context"]])
@app.get("/health")
def health():
    return jsonify(status="ok")
server = make_server("127.0.0.1", 0, app)
print(server.port, flush=True)
server.serve_forever()
"#;

const EXPRESS: &str = r"
const crypto = require('crypto');
const express = require('express');
const app = express();
app.use(express.raw({ type: 'application/json', limit: '1mb' }));
const verified = (request) => {
  const wanted = 'sha256=' + crypto.createHmac('sha256', process.env.SECRET).update(request.body).digest('hex');
  const given = request.get('X-Signature') || '';
  return given.length === wanted.length && crypto.timingSafeEqual(Buffer.from(given), Buffer.from(wanted));
};
app.post('/:agent/deliver', (request, response) => {
  if (!verified(request)) return response.status(401).json({ error: 'bad signature' });
  const body = JSON.parse(request.body);
  response.json({ delivered_at: Date.now(), delivery_id: body.meta.dispatch_id, session_id: 'express',
    warnings: [body.content || body.prompt] });
});
app.post('/:agent/wake', (request, response) => {
  if (!verified(request)) return response.status(401).json({ error: 'bad signature' });
  const body = JSON.parse(request.body);
  response.json({ woken: true, session_id: body.session_id, warnings: [body.context] });
});
app.get('/health', (request, response) => response.json({ status: 'ok' }));
const server = app.listen(0, '127.0.0.1', () => console.log(server.address().port));
";

/// Text whose bytes tell whether a receiver verified what was sent: escapes, wide characters, line breaks.
const TEXT: &str = "Grüße \"quoted\" \\ \n\t 日本語 👩\u{200d}👩 </script> \u{7f}";

/// A running receiver, ended with the test.
struct Receiver {
    address: String,
    _child: Child,
}

impl Receiver {
    async fn start(command: &mut Command) -> Self {
        command
            .env("SECRET", SECRET)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.kill_on_drop(true).spawn().expect("it starts");
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let port = timeout(SOON, lines.next_line()).await.expect("a port in time");
        let port = port.unwrap().expect("a port");
        Self {
            address: format!("http://127.0.0.1:{port}"),
            _child: child,
        }
    }
}

/// Node, and a folder with Express.
async fn express() -> Result<(PathBuf, PathBuf), String> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let node = std::env::split_paths(&folders)
        .map(|folder| folder.join("node"))
        .find(|node| node.is_file());
    let node = node.ok_or("node is missing")?;
    let folder = npm("express-5", "express@5", &node).await?;
    Ok((node, folder))
}

/// Deliveries and wakes arrive whole, and only under the right key.
async fn verify(receiver: &Receiver, name: &str) {
    let address = |path: &str| format!("{}{path}", receiver.address);
    let agent = json!({"url": address("/cc/deliver"), "wake_url": address("/cc/wake"), "status_url": address("/health")});
    let connector = webhook(&agent, credentials(Some("Bearer x"), Some(SECRET)));
    assert!(connector.health_check().await);
    let receipt = connector.deliver("cc", &augment("d-1", TEXT)).await.unwrap();
    assert_eq!(receipt.delivery_id.as_deref(), Some("d-1"));
    assert_eq!(receipt.session_id.as_deref(), Some(name));
    // What it read of the verified bytes; unprintable characters are taken out of warnings.
    let shown: String = TEXT.chars().filter(|c| !c.is_control()).collect();
    assert_eq!(receipt.warnings.join("\n"), shown);
    let receipt = connector.wake("cc@term", &context(TEXT)).await.unwrap();
    assert!(receipt.woken);
    assert_eq!(receipt.session_id.as_deref(), Some("term"));
    assert_eq!(receipt.warnings.join("\n"), shown);
    let stranger = webhook(&agent, credentials(None, Some("another key")));
    let failure = stranger.deliver("cc", &augment("d-2", TEXT)).await.unwrap_err();
    assert_eq!(
        (failure.cause_kind, failure.http_status),
        (CauseKind::HttpStatus, Some(401))
    );
    assert!(failure.message.contains("bad signature"), "{failure}");
    let failure = stranger.wake("cc@term", &context(TEXT)).await.unwrap_err();
    assert_eq!(failure.http_status, Some(401));
}

#[tokio::test]
async fn a_flask_receiver_verifies_the_signature() {
    match python("flask-3.1", &["flask==3.1.*"]).await {
        Ok(programs) => {
            let mut python = Command::new(programs.join("python"));
            let receiver = Receiver::start(python.args(["-c", FLASK])).await;
            verify(&receiver, "flask").await;
        }
        Err(why) => announce("Flask", "python3-venv", &why),
    }
}

#[tokio::test]
async fn an_express_receiver_verifies_the_signature() {
    match express().await {
        Ok((node, folder)) => {
            let mut node = Command::new(node);
            let receiver = Receiver::start(node.args(["-e", EXPRESS]).current_dir(&folder)).await;
            verify(&receiver, "express").await;
        }
        Err(why) => announce("Express", "npm", &why),
    }
}
