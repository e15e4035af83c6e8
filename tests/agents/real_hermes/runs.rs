//! Hermes as a gateway with an API server, which the relay is told the address of.

use std::fs::File;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::{Instant, timeout};

use crate::real_hermes::home::{Home, OFFLINE};
use crate::real_hermes::install::Hermes;
use crate::real_hermes::{conversation, install, model, processes};
use crate::support::port::free_port;
use crate::support::relay_process::Setup;
use crate::support::wait::eventually_within;

/// Long enough for Hermes to be taken for a key.
const KEY: &str = "5f2c9d0b7a4e4c1f8b6d3e2a1c0f9e8d";
/// A cold start on a busy machine.
const START: Duration = Duration::from_secs(60);
/// How long the gateway may take to end.
const END: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread")]
async fn hermes_behind_its_api_server_answers_asks_stops_and_remembers() {
    let Some(hermes) = install::hermes().await else {
        return;
    };
    let model = model::start().await;
    let connector = conversation::connector().await;
    let mut setup = Setup::for_connector(&connector).args(&["run", "--agent", "h"]);
    let home = Home::settle(&setup, &model.base());
    let gateway = Gateway::start(&hermes, &home).await;
    let agent = format!("{{kind: hermes, base_url: \"{}\"}}", gateway.base());
    setup = setup.setting("agents.h", &agent).env("API_SERVER_KEY", KEY);
    conversation::held(&connector, &setup, home.work()).await;
    gateway.stop().await;
    processes::gone(home.folder(), "", processes::LEAVING).await;
}

/// A gateway of Hermes with nothing but its API server.
struct Gateway {
    child: Child,
    port: u16,
    log: std::path::PathBuf,
}

impl Gateway {
    /// Starts one and waits until it serves. A free port may be taken by someone else meanwhile: then another.
    async fn start(hermes: &Hermes, home: &Home) -> Self {
        for _ in 0..3 {
            let mut gateway = Self::spawn(hermes, home);
            if gateway.serves().await {
                return gateway;
            }
        }
        panic!("the gateway does not start");
    }

    fn spawn(hermes: &Hermes, home: &Home) -> Self {
        let port = free_port();
        let log = home.folder().join(format!("gateway-{port}.log"));
        let output = File::create(&log).unwrap();
        let child = Command::new(hermes.program("hermes"))
            .args(["gateway", "run", "--no-supervise", "-v"])
            .env_clear()
            .envs(OFFLINE)
            .env("HERMES_HOME", home.path())
            .env("HOME", home.path())
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("API_SERVER_KEY", KEY)
            .env("API_SERVER_HOST", "127.0.0.1")
            .env("API_SERVER_PORT", port.to_string())
            .current_dir(home.work())
            .stdin(Stdio::null())
            .stdout(output.try_clone().unwrap())
            .stderr(output)
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .expect("the gateway starts");
        Self { child, port, log }
    }

    fn base(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Whether it serves before it ends.
    async fn serves(&mut self) -> bool {
        eventually_within(START, "the API server answers", async || {
            if self.child.try_wait().unwrap().is_some() {
                eprintln!("{}", self.reply_text());
                return Some(false);
            }
            self.answers().await.then_some(true)
        })
        .await
    }

    async fn answers(&self) -> bool {
        let asked = async {
            let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await.ok()?;
            stream.write_all(b"GET /health HTTP/1.0\r\n\r\n").await.ok()?;
            let mut answer = [0; 12];
            stream.read_exact(&mut answer).await.ok()?;
            Some(answer.ends_with(b" 200"))
        };
        timeout(Duration::from_secs(5), asked).await.ok().flatten() == Some(true)
    }

    async fn stop(mut self) {
        self.signal(Signal::TERM);
        let begun = Instant::now();
        let ended = timeout(END, self.child.wait()).await;
        let status = ended.expect("the gateway ends when it is told").unwrap();
        println!(
            "the gateway ended in {:.1} s: {status}",
            begun.elapsed().as_secs_f32()
        );
    }

    fn signal(&self, signal: Signal) {
        let id = self.child.id().and_then(|id| id.try_into().ok());
        if let Some(group) = id.and_then(Pid::from_raw) {
            let _ = kill_process_group(group, signal);
        }
    }

    fn reply_text(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        if std::thread::panicking() {
            eprintln!("--- the gateway said:\n{}--- end", self.reply_text());
        }
    }
}
