//! A cluster of three servers, of which one is killed.

use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::Server;
use crate::standby::{connector, member_at, pair_of, status};
use crate::support::memory_relay::event;
use crate::support::port::free_port;
use crate::support::relay_process::SOON;
use crate::support::wait::eventually;

/// How long the members may take until somebody answers again: an election, and a take-over.
const AGAIN: Duration = Duration::from_secs(40);

/// Three servers with `JetStream`, and the ports at which each tells of itself.
fn three_servers() -> Option<Vec<(Server, u16)>> {
    let routes: Vec<u16> = (0..3).map(|_| free_port()).collect();
    let all: Vec<String> = routes
        .iter()
        .map(|port| format!("\"nats-route://127.0.0.1:{port}\""))
        .collect();
    let mut servers = Vec::new();
    for (number, route) in routes.iter().enumerate() {
        let monitor = free_port();
        let config = format!(
            "server_name: n{number}\nhttp: \"127.0.0.1:{monitor}\"\n\
             cluster {{ name: test, listen: \"127.0.0.1:{route}\", routes: [{}] }}\n",
            all.join(", ")
        );
        servers.push((Server::start_with(&config)?, monitor));
    }
    Some(servers)
}

/// The server that leads the stream of the cluster's commits, by what one of them says.
async fn leader(monitor: u16) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", monitor)).await.ok()?;
    let request =
        "GET /jsz?accounts=true&streams=true HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut page = String::new();
    stream.read_to_string(&mut page).await.ok()?;
    let (_, body) = page.split_once("\r\n\r\n")?;
    let start = body.find('{')?;
    let end = body.rfind('}')?;
    let told: Value = serde_json::from_str(&body[start..=end]).ok()?;
    let accounts = told["account_details"].as_array()?.iter();
    let mut streams = accounts.flat_map(|account| account["stream_detail"].as_array().into_iter().flatten());
    let log = streams.find(|stream| stream["name"] == "test_home")?;
    log["cluster"]["leader"].as_str().map(str::to_owned)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_three_servers_the_leader_may_be_killed() {
    let Some(mut servers) = three_servers() else {
        return;
    };
    let connector = connector().await;
    let urls: Vec<String> = servers
        .iter()
        .map(|(server, _)| server.settings().urls[0].clone())
        .collect();
    let urls = format!("[{}]", urls.join(", "));
    let member = |name: &str| member_at(&urls, &connector, name).setting("cluster.replicas", "3");
    let [active, standby] = pair_of(member("a"), member("b")).await;
    connector.deliver(&event("c1", "before", "hi")).unwrap();
    connector.reply_to(SOON, "before").await.unwrap();
    let monitor = servers[0].1;
    let leads = eventually("the leader", async || leader(monitor).await.ok_or(())).await;
    let killed = (0..3).find(|number| leads == format!("n{number}")).unwrap();
    servers[killed].0.kill();
    let since = Instant::now();
    for number in 0..10 {
        connector
            .deliver(&event("c1", &format!("after-{number}"), "hi"))
            .unwrap();
    }
    for number in 0..10 {
        connector
            .reply_to(AGAIN, &format!("after-{number}"))
            .await
            .unwrap();
    }
    println!("answered again after {:?}", since.elapsed());
    assert!(since.elapsed() < AGAIN);
    let roles = async || [status(&active.0).await, status(&standby.0).await];
    eventually("one of them is active", async || {
        let roles = roles().await;
        if roles.iter().filter(|status| status["role"] == "active").count() == 1 {
            Ok(())
        } else {
            Err(roles)
        }
    })
    .await;
    active.1.stop().await;
    standby.1.stop().await;
}
