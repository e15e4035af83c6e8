//! A connection over pipes in memory, with a hostile other side.

use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader, DuplexStream, duplex};
use tokio::time::timeout;

use super::super::message::METHOD_NOT_FOUND;
use super::*;

const SOON: Duration = Duration::from_secs(10);

#[derive(Default)]
struct Heard(Mutex<Vec<String>>);

impl Listener for Heard {
    fn notified(&self, method: &str, _: Value) {
        self.0.lock().unwrap().push(method.to_owned());
    }

    fn requested(&self, id: Value, method: &str, _: Value) -> Option<Result<Value, RpcError>> {
        self.0.lock().unwrap().push(format!("{id} {method}"));
        (method != "later").then(|| {
            Err(RpcError {
                code: METHOD_NOT_FOUND,
                message: "no".to_owned(),
            })
        })
    }
}

struct Other {
    reader: BufReader<DuplexStream>,
    writer: DuplexStream,
}

impl Other {
    async fn line(&mut self) -> Value {
        let mut line = String::new();
        timeout(SOON, self.reader.read_line(&mut line))
            .await
            .unwrap()
            .unwrap();
        serde_json::from_str(&line).unwrap()
    }

    async fn write(&mut self, text: &str) {
        timeout(SOON, self.writer.write_all(text.as_bytes()))
            .await
            .unwrap()
            .unwrap();
    }
}

fn connect(limits: Limits) -> (Connection, Other, Arc<Heard>) {
    let (ours, theirs) = duplex(4096);
    let (their_writer, our_reader) = duplex(4096);
    let heard = Arc::new(Heard::default());
    let connection = Connection::start(our_reader, ours, Arc::clone(&heard) as Arc<dyn Listener>, limits);
    let other = Other {
        reader: BufReader::new(theirs),
        writer: their_writer,
    };
    (connection, other, heard)
}

#[tokio::test]
async fn answers_find_their_waiters_in_any_order_among_junk() {
    let (connection, mut other, heard) = connect(Limits {
        line: 4000,
        ..Limits::default()
    });
    let peer = connection.peer();
    let first = peer.begin("a", &Value::Null).await.unwrap();
    let second = peer.begin("b", &Value::Null).await.unwrap();
    assert_eq!(other.line().await["id"], 1);
    assert_eq!(other.line().await["method"], "b");
    other
        .write("starting up...\n\n[]\n{\"id\":99,\"result\":1}\n")
        .await;
    other
        .write(&format!("{{\"id\":1,\"result\":\"{}\"}}\n", "x".repeat(5000)))
        .await;
    other
        .write("{\"method\":\"_vendor/thing\"}\n{\"id\":\"2\",\"result\":2}\n{\"id\":1,\"result\":1}\n")
        .await;
    assert_eq!(timeout(SOON, first).await.unwrap(), Ok(json!(1)));
    assert_eq!(timeout(SOON, second).await.unwrap(), Ok(json!(2)));
    assert_eq!(*heard.0.lock().unwrap(), ["_vendor/thing"]);
}

#[tokio::test]
async fn requests_with_any_id_are_answered_with_that_id() {
    let (connection, mut other, heard) = connect(Limits::default());
    other
        .write("{\"id\":0,\"method\":\"m\"}\n{\"id\":\"x\",\"method\":\"later\"}\n")
        .await;
    let answer = other.line().await;
    assert_eq!(
        (&answer["id"], &answer["error"]["code"]),
        (&json!(0), &json!(METHOD_NOT_FOUND))
    );
    // The second is answered when someone gets to it.
    let deadline = tokio::time::Instant::now() + SOON;
    while heard.0.lock().unwrap().len() < 2 {
        assert!(
            tokio::time::Instant::now() < deadline,
            "the request was not heard"
        );
        tokio::task::yield_now().await;
    }
    connection
        .peer()
        .answer(&json!("x"), Ok(json!({"ok": true})))
        .unwrap();
    assert_eq!(
        other.line().await,
        json!({"jsonrpc": "2.0", "id": "x", "result": {"ok": true}})
    );
}

#[tokio::test]
async fn every_waiter_is_settled_when_the_other_side_ends() {
    let (connection, other, _) = connect(Limits::default());
    let peer = connection.peer().clone();
    let waiting: Vec<Pending> = {
        let mut waiting = Vec::new();
        for _ in 0..20 {
            waiting.push(peer.begin("never", &Value::Null).await.unwrap());
        }
        waiting
    };
    drop(other);
    for waiter in waiting {
        assert_eq!(timeout(SOON, waiter).await.unwrap(), Err(CallError::Gone));
    }
    timeout(SOON, peer.gone()).await.unwrap();
    assert_eq!(peer.call("more", &Value::Null).await, Err(CallError::Gone));
    assert!(peer.waiting().requests.is_empty());
}

#[tokio::test]
async fn dropping_the_connection_settles_every_waiter_and_closes_their_input() {
    let (connection, mut other, _) = connect(Limits::default());
    let waiter = connection.peer().begin("never", &Value::Null).await.unwrap();
    drop(connection);
    assert_eq!(timeout(SOON, waiter).await.unwrap(), Err(CallError::Gone));
    let mut rest = Vec::new();
    let end = tokio::io::AsyncReadExt::read_to_end(&mut other.reader, &mut rest);
    timeout(SOON, end).await.expect("their input ends").unwrap();
}

#[tokio::test]
async fn one_who_does_not_read_makes_requests_wait_and_the_rest_fail() {
    let (connection, _other, _) = connect(Limits {
        outgoing: 2,
        ..Limits::default()
    });
    let peer = connection.peer();
    let big = json!("x".repeat(10_000));
    while peer.tell("m", &big).is_ok() {
        tokio::task::yield_now().await;
    }
    assert_eq!(peer.tell("m", &big), Err(CallError::Gone));
    assert!(
        timeout(Duration::from_millis(20), peer.begin("r", &big))
            .await
            .is_err()
    );
    assert!(
        peer.waiting().requests.is_empty(),
        "a request that was not sent does not wait"
    );
}

#[tokio::test]
async fn a_request_that_is_given_up_leaves_nothing_behind() {
    let (connection, _other, _) = connect(Limits::default());
    let waiter = connection.peer().begin("slow", &Value::Null).await.unwrap();
    assert_eq!(connection.peer().waiting().requests.len(), 1);
    drop(waiter);
    assert!(connection.peer().waiting().requests.is_empty());
}
