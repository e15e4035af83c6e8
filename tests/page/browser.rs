//! A browser, driven by the W3C `WebDriver` protocol over plain HTTP on loopback.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use base64::Engine as _;
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::support::skip::skip;

/// Far more than anything here takes on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(120);
const GLANCE: Duration = Duration::from_millis(50);
/// The key that the protocol names elements with.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

pub(crate) const TAB: &str = "\u{e004}";
pub(crate) const ENTER: &str = "\u{e007}";
pub(crate) const ESCAPE: &str = "\u{e00c}";
pub(crate) const DOWN: &str = "\u{e015}";

/// A few browsers at a time: each takes a core to start and some hundred megabytes to stay, but mostly waits.
const PLACES: usize = 3;

/// The browsers of the tests that run now. They end with the last of these tests: statics are never dropped.
static POOL: Mutex<Weak<Pool>> = Mutex::new(Weak::new());

struct Pool {
    places: Arc<Semaphore>,
    /// Those that a test has passed with: the next one need not start its own.
    idle: Mutex<Vec<Running>>,
}

impl Pool {
    fn current() -> Arc<Self> {
        let mut current = POOL.lock().unwrap();
        current.upgrade().unwrap_or_else(|| {
            let new = Arc::new(Self {
                places: Arc::new(Semaphore::new(PLACES)),
                idle: Mutex::default(),
            });
            *current = Arc::downgrade(&new);
            new
        })
    }
}

/// A driver with its browser.
struct Running {
    session: String,
    _driver: Process,
    _profile: tempfile::TempDir,
}

pub(crate) struct Browser {
    http: reqwest::Client,
    session: String,
    running: Option<Running>,
    pool: Arc<Pool>,
    _place: OwnedSemaphorePermit,
}

/// After a test that passed, the next one gets the browser.
impl Drop for Browser {
    fn drop(&mut self) {
        let running = self.running.take();
        if !std::thread::panicking() {
            self.pool.idle.lock().unwrap().extend(running);
        }
    }
}

/// A process that ends with its owner.
pub(crate) struct Process(pub(crate) Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The driver is told to end its browser, which would otherwise outlive it; also when a test fails.
impl Drop for Running {
    fn drop(&mut self) {
        let rest = self.session.trim_start_matches("http://");
        let Some((host, path)) = rest.split_once('/') else {
            return;
        };
        if let Ok(mut socket) = std::net::TcpStream::connect(host) {
            let _ = socket.set_read_timeout(Some(Duration::from_secs(5)));
            let _ = write!(
                socket,
                "DELETE /{path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n"
            );
            // Its answer says that the browser has ended; the driver keeps the connection, so its end is not waited for.
            let _ = socket.read(&mut [0; 64]);
        }
    }
}

pub(crate) use crate::support::http_stub::plain_http;

fn installed(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

impl Running {
    async fn start(chromium: &Path, driver: &Path, http: &reqwest::Client) -> Self {
        let mut child = Command::new(driver)
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let process = Process(child);
        let port: u16 = lines
            .by_ref()
            .map_while(Result::ok)
            .find_map(|line| {
                line.split("successfully on port ")
                    .nth(1)?
                    .trim_end_matches('.')
                    .parse()
                    .ok()
            })
            .expect("the driver says its port");
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
        let profile = tempfile::tempdir().unwrap();
        let mut options = vec![
            "--headless=new".to_owned(),
            "--disable-gpu".to_owned(),
            "--disable-dev-shm-usage".to_owned(),
            "--no-first-run".to_owned(),
            format!("--user-data-dir={}", profile.path().display()),
        ];
        if rustix::process::geteuid().is_root() {
            options.push("--no-sandbox".to_owned());
        }
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "browserName": "chrome",
            "goog:chromeOptions": { "binary": chromium, "args": options },
        } } });
        let base = format!("http://127.0.0.1:{port}/session");
        let answer: Value = http
            .post(&base)
            .json(&wanted)
            .send()
            .await
            .unwrap()
            .json()
            .await
            .unwrap();
        let id = answer["value"]["sessionId"]
            .as_str()
            .unwrap_or_else(|| panic!("{answer}"));
        Self {
            session: format!("{base}/{id}"),
            _driver: process,
            _profile: profile,
        }
    }

    /// Leaves the page of the last test and whatever that test has set. `false` when the browser does not do that.
    async fn forget(&self, http: &reqwest::Client) -> bool {
        let leave = json!({ "script": "try { localStorage.clear(); } catch {}", "args": [] });
        let colours = json!({ "cmd": "Emulation.setEmulatedMedia", "params": { "features": [] } });
        let permissions = json!({ "cmd": "Browser.resetPermissions", "params": {} });
        for (path, body) in [
            ("execute/sync", &leave),
            ("url", &json!({ "url": "about:blank" })),
            ("goog/cdp/execute", &colours),
            ("goog/cdp/execute", &permissions),
        ] {
            let answer = http.post(format!("{}/{path}", self.session)).json(body).send();
            if !answer.await.is_ok_and(|answer| answer.status().is_success()) {
                return false;
            }
        }
        true
    }
}

impl Browser {
    /// A browser as if it had just started. `None`, and loudly so, when there is none here and nobody said that there must be.
    pub(crate) async fn start() -> Option<Self> {
        let (Some(chromium), Some(driver)) = (installed("chromium"), installed("chromedriver")) else {
            let required = std::env::var("BROWSER_TESTS").is_ok_and(|word| word == "required");
            assert!(
                !required,
                "chromium and chromedriver are not installed: apt-get install chromium chromium-driver"
            );
            skip(
                "no chromium and chromedriver, so the page was NOT tried in a browser. `bash tests/run` installs them.",
            );
            return None;
        };
        let pool = Pool::current();
        let place = Arc::clone(&pool.places).acquire_owned().await.unwrap();
        let http = plain_http();
        let idle = pool.idle.lock().unwrap().pop();
        let running = match idle {
            Some(used) if used.forget(&http).await => used,
            _ => Running::start(&chromium, &driver, &http).await,
        };
        let browser = Self {
            http,
            session: running.session.clone(),
            running: Some(running),
            pool,
            _place: place,
        };
        browser.shape(1280, 800).await;
        Some(browser)
    }

    async fn post(&self, path: &str, body: &Value) -> Value {
        let answer = self.http.post(format!("{}/{path}", self.session)).json(body);
        let answer: Value = answer.send().await.unwrap().json().await.unwrap();
        let value = &answer["value"];
        assert!(value["error"].is_null(), "{path}: {value}");
        value.clone()
    }

    pub(crate) async fn open(&self, url: &str) {
        self.post("url", &json!({ "url": url })).await;
    }

    /// Runs a script's body and gives back what it returns.
    pub(crate) async fn js(&self, script: &str) -> Value {
        self.post("execute/sync", &json!({ "script": script, "args": [] }))
            .await
    }

    /// Waits until an expression is truthy, and gives its value.
    pub(crate) async fn until(&self, what: &str, expression: &str) -> Value {
        let end = Instant::now() + SOON;
        let script = format!("return ({expression});");
        loop {
            let value = self.js(&script).await;
            let no =
                matches!(value, Value::Null | Value::Bool(false)) || value == json!(0) || value == json!("");
            if !no {
                return value;
            }
            if Instant::now() > end {
                let text = self.js("return document.body.innerText.slice(0, 3000);").await;
                self.picture("failed").await;
                panic!("not seen: {what}\n{}", text.as_str().unwrap_or_default());
            }
            tokio::time::sleep(GLANCE).await;
        }
    }

    async fn element(&self, css: &str) -> String {
        let found = self
            .post("element", &json!({ "using": "css selector", "value": css }))
            .await;
        found[ELEMENT].as_str().expect("an element").to_owned()
    }

    pub(crate) async fn elements(&self, css: &str) -> Vec<String> {
        let found = self
            .post("elements", &json!({ "using": "css selector", "value": css }))
            .await;
        let found = found.as_array().unwrap().iter();
        found
            .map(|one| one[ELEMENT].as_str().unwrap().to_owned())
            .collect()
    }

    /// Accessibility property of an element: `computedlabel`, `computedrole`, `displayed`.
    pub(crate) async fn property(&self, element: &str, what: &str) -> Value {
        let answer = self
            .http
            .get(format!("{}/element/{element}/{what}", self.session));
        let answer: Value = answer.send().await.unwrap().json().await.unwrap();
        answer["value"].clone()
    }

    pub(crate) async fn click(&self, css: &str) {
        let element = self.element(css).await;
        self.post(&format!("element/{element}/click"), &json!({})).await;
    }

    pub(crate) async fn keys(&self, css: &str, text: &str) {
        let element = self.element(css).await;
        self.post(&format!("element/{element}/value"), &json!({ "text": text }))
            .await;
    }

    /// Presses a key wherever the focus is.
    pub(crate) async fn press(&self, key: &str) {
        let actions = json!({ "actions": [{ "type": "key", "id": "keyboard", "actions": [
            { "type": "keyDown", "value": key }, { "type": "keyUp", "value": key },
        ] }] });
        self.post("actions", &actions).await;
    }

    async fn devtools(&self, command: &str, parameters: &Value) -> Value {
        self.post(
            "goog/cdp/execute",
            &json!({ "cmd": command, "params": parameters }),
        )
        .await
    }

    /// Lets pages read the clipboard too; they may write to it anyway.
    pub(crate) async fn allow_clipboard(&self) {
        let permissions = json!({ "permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"] });
        self.devtools("Browser.grantPermissions", &permissions).await;
    }

    /// Gives the window a size, down to that of a small phone.
    pub(crate) async fn shape(&self, width: u32, height: u32) {
        let shape = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.devtools("Emulation.setDeviceMetricsOverride", &shape).await;
    }

    /// Prefers light or dark, and no motion: colours are what they will be at once.
    pub(crate) async fn prefer(&self, scheme: &str) {
        let media = json!({ "features": [
            { "name": "prefers-color-scheme", "value": scheme },
            { "name": "prefers-reduced-motion", "value": "reduce" },
        ] });
        self.devtools("Emulation.setEmulatedMedia", &media).await;
    }

    /// Saves what can be seen under the target directory.
    pub(crate) async fn picture(&self, name: &str) -> PathBuf {
        let shot = self
            .devtools("Page.captureScreenshot", &json!({ "format": "png" }))
            .await;
        let bytes = base64::engine::general_purpose::STANDARD
            .decode(shot["data"].as_str().unwrap())
            .unwrap();
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("page");
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join(format!("{name}.png"));
        std::fs::write(&file, bytes).unwrap();
        file
    }
}
