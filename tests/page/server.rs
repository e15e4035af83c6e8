//! `hermes-relay dev` as people start it, and what they do on its page.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::browser::{Browser, ENTER, Process};

pub(crate) struct Stage {
    pub(crate) browser: Browser,
    pub(crate) url: String,
    dev: Process,
}

/// Starts the real binary and tells the address that it prints.
pub(crate) fn dev(platform: &str) -> (Process, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_hermes-relay"))
        .args(["dev", "--no-tui", "--platform", platform])
        .env_remove("HERMES_RELAY_CONFIG")
        .env("HERMES_HOME", "/nonexistent")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let process = Process(child);
    let url = lines
        .map_while(Result::ok)
        .find(|line| line.trim_start().starts_with("http://127.0.0.1:"))
        .expect("the page's address");
    (process, url.trim().to_owned())
}

impl Stage {
    /// The page, open and connected; `None` without a browser.
    pub(crate) async fn set(platform: &str) -> Option<Self> {
        let browser = Browser::start().await?;
        let (dev, url) = dev(platform);
        browser.open(&url).await;
        let stage = Self { browser, url, dev };
        stage.live().await;
        Some(stage)
    }

    /// Sends a signal to the program.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.dev.0), signal).unwrap();
    }

    pub(crate) async fn live(&self) {
        self.browser
            .until(
                "a live link",
                "document.querySelector('#link')?.dataset.state === 'live'",
            )
            .await;
    }

    pub(crate) async fn say(&self, text: &str) {
        self.browser.keys("#input", text).await;
        self.browser.press(ENTER).await;
    }

    /// Waits until the agent has said something that contains `text`; gives the whole.
    pub(crate) async fn wait_for_reply(&self, text: &str) -> String {
        let wanted = serde_json::to_string(text).unwrap();
        let found = format!(
            "[...document.querySelectorAll('.message.bot:not(.passing) .text')].map((n) => n.innerText).find((t) => t.includes({wanted}))"
        );
        let text = self
            .browser
            .until(&format!("the agent says {text:?}"), &found)
            .await;
        text.as_str().unwrap().to_owned()
    }

    /// Clicks a fault and waits for its verdict.
    pub(crate) async fn survives(&self, fault: &str) {
        self.browser.click("#tab-faults").await;
        self.browser.click(&format!("#run-{fault}")).await;
        let state = format!("document.querySelector('#trial-{fault}').dataset.state");
        let verdict = self
            .browser
            .until(
                &format!("a verdict on {fault}"),
                &format!("{state} !== 'running' && {state}"),
            )
            .await;
        let text = self
            .browser
            .js(&format!(
                "return document.querySelector('#trial-{fault}').innerText;"
            ))
            .await;
        assert_eq!(verdict, "passed", "{text}");
    }
}
