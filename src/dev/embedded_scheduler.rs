//! The embedded managed scheduler: its side of the contract on loopback, over real sockets.
//!
//! It arms one alarm per job, fires it at its time with a token that it signs, and tries again until the relay takes it. Its
//! keys, its login and its alarms are made up at the start and kept in memory, bounded; it listens on and calls loopback only.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use axum::Router;
use axum::body::{Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::{get, post};
use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use url::Url;

use super::connector::random_token;
use super::http::{bearer, is_token, plain, reply};
use super::scheduler_keys::SigningKeys;
use crate::net::chronos::ArmedJob;
use crate::net::http::{Body, HttpClient, HttpEgress, HttpPolicy, Request as HttpRequest, unix_secs};
use crate::net::proxy::{ProxyRules, is_loopback};
use crate::net::tls::{Tls, TlsSettings};
use crate::text::{instant, parse_instant};

/// Most jobs that are armed.
const MAX_ARMS: usize = 1000;
/// Most fires that are remembered.
const MAX_ATTEMPTS: usize = 1000;
const MAX_BODY_BYTES: usize = 64 * 1024;
/// How long a fire token is good for.
const TOKEN_SECS: i64 = 90;
/// Timeout of one fire.
const FIRE_TIMEOUT: Duration = Duration::from_secs(30);
/// Delays between the attempts of one fire, where the relay names none; then it is given up.
const RETRIES: [u64; 8] = [1, 1, 2, 4, 8, 15, 30, 60];
/// Longest `Retry-After` that is waited for.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(120);

/// How a managed scheduler starts.
#[derive(Clone, Debug)]
pub struct SchedulerSettings {
    /// Its port; 0 chooses a free one.
    pub port: u16,
    /// The agent that its tokens are for.
    pub audience: String,
    /// How long an access token is good for, in seconds.
    pub login_secs: i64,
}

impl Default for SchedulerSettings {
    fn default() -> Self {
        Self {
            port: 0,
            audience: "agent:dev".to_owned(),
            login_secs: 24 * 60 * 60,
        }
    }
}

/// One attempt to fire a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FireAttempt {
    /// The job.
    pub job_id: String,
    /// The occurrence.
    pub fire_at: String,
    /// The relay's answer; `None` when there was none.
    pub status: Option<u16>,
    /// The `status` or `error` of the answer's body.
    pub answer: String,
}

/// What it knows, for a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SchedulerView {
    /// The armed jobs, by time.
    pub armed: Vec<ArmedJob>,
    /// The attempts to fire, oldest first.
    pub attempts: Vec<FireAttempt>,
}

/// A managed scheduler on 127.0.0.1; it ends when dropped.
#[derive(Debug)]
pub struct EmbeddedScheduler {
    /// What its tasks share.
    pub shared: Arc<SchedulerShared>,
    tasks: JoinSet<()>,
}

#[derive(Debug)]
pub struct SchedulerShared {
    address: SocketAddr,
    settings: SchedulerSettings,
    http: HttpClient,
    state: Mutex<SchedulerState>,
    rearmed: Notify,
}

#[derive(Debug)]
pub struct SchedulerState {
    /// Alarms by job.
    pub arms: BTreeMap<String, Alarm>,
    numbered: u64,
    pub keys: SigningKeys,
    pub access_token: String,
    refresh_token: String,
    attempts: VecDeque<FireAttempt>,
}

#[derive(Clone, Debug)]
pub struct Alarm {
    number: u64,
    fire_at: String,
    /// When it fires, in seconds since 1970.
    pub at: i64,
    callback: Url,
    /// Whether its fire is under way.
    firing: bool,
}

impl EmbeddedScheduler {
    /// Binds the port and starts.
    pub async fn start(settings: SchedulerSettings) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, settings.port)).await?;
        let mut managed = Self::new(settings, listener.local_addr()?)?;
        let router = managed.router();
        managed
            .tasks
            .spawn(async move { drop(axum::serve(listener, router).await) });
        Ok(managed)
    }

    /// A managed scheduler whose [`router`](Self::router) is served at this address.
    pub fn new(settings: SchedulerSettings, address: SocketAddr) -> io::Result<Self> {
        let egress = HttpEgress {
            tls: Tls::new(TlsSettings::default()),
            proxies: ProxyRules::none(),
            user_agent: "hermes-relay dev".to_owned(),
            lease: None,
        };
        let base = Url::parse(&format!("http://{address}")).map_err(io::Error::other)?;
        let http = HttpClient::for_url(&egress, HttpPolicy::default(), &base).map_err(io::Error::other)?;
        let shared = Arc::new(SchedulerShared {
            address,
            settings,
            http,
            state: Mutex::new(SchedulerState {
                arms: BTreeMap::new(),
                numbered: 0,
                keys: SigningKeys::new().map_err(io::Error::other)?,
                access_token: random_token(),
                refresh_token: random_token(),
                attempts: VecDeque::new(),
            }),
            rearmed: Notify::new(),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(run_alarms(Arc::clone(&shared)));
        Ok(Self { shared, tasks })
    }

    /// Its routes.
    pub fn router(&self) -> Router {
        router(&self.shared)
    }

    /// `cron.chronos.portal_url`.
    pub fn portal_url(&self) -> String {
        self.shared.base()
    }

    /// `cron.chronos.nas_jwks_url`.
    pub fn jwks_url(&self) -> String {
        format!("{}/.well-known/jwks.json", self.shared.base())
    }

    /// `cron.chronos.expected_audience`.
    pub fn audience(&self) -> &str {
        &self.shared.settings.audience
    }

    /// Writes the login that it accepts to `auth.json` in `home`, as `hermes` keeps it.
    pub fn write_login(&self, home: &Path) -> io::Result<()> {
        let state = self.shared.lock();
        let expires = unix_secs(SystemTime::now()) + self.shared.settings.login_secs;
        let login = json!({"version": 1, "active_provider": "nous", "providers": {"nous": {
            "access_token": state.access_token,
            "refresh_token": state.refresh_token,
            "token_type": "Bearer",
            "client_id": "hermes-cli-vps",
            "portal_base_url": self.shared.base(),
            "expires_at": instant(expires),
        }}});
        std::fs::create_dir_all(home)?;
        let file = home.join("auth.json");
        super::scheduler_keys::write_private(&file, &login.to_string())
    }

    /// The armed jobs and what was fired.
    pub fn view(&self) -> SchedulerView {
        let state = self.shared.lock();
        let mut arms: Vec<_> = state.arms.iter().collect();
        arms.sort_by_key(|(_, alarm)| alarm.at);
        let armed = arms.into_iter().map(|(id, alarm)| ArmedJob {
            job_id: id.clone(),
            fire_at: alarm.fire_at.clone(),
        });
        SchedulerView {
            armed: armed.collect(),
            attempts: state.attempts.iter().cloned().collect(),
        }
    }

    /// Fires an armed job now, once; its alarm stays. `None` when it is not armed.
    pub async fn fire_now(&self, job_id: &str) -> Option<FireAttempt> {
        let alarm = self.shared.lock().arms.get(job_id).cloned()?;
        Some(self.shared.attempt(job_id, &alarm).await.0)
    }

    /// Fires an armed job twice at the same time, as a scheduler that retries too soon.
    pub async fn fire_twice(&self, job_id: &str) -> Option<[FireAttempt; 2]> {
        let alarm = self.shared.lock().arms.get(job_id).cloned()?;
        let (one, other) = tokio::join!(
            self.shared.attempt(job_id, &alarm),
            self.shared.attempt(job_id, &alarm)
        );
        Some([one.0, other.0])
    }
}

impl SchedulerShared {
    fn base(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn lock(&self) -> MutexGuard<'_, SchedulerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A fire token, good for a minute and a half.
    pub fn token(&self) -> Option<String> {
        let now = unix_secs(SystemTime::now());
        let claims = json!({
            "iss": self.base(),
            "aud": self.settings.audience,
            "purpose": "cron_fire",
            "iat": now,
            "exp": now + TOKEN_SECS,
        });
        self.lock().keys.sign(&claims)
    }

    /// Fires once and returns how long to wait before the next attempt, where the answer says so.
    async fn attempt(&self, job_id: &str, alarm: &Alarm) -> (FireAttempt, Option<Duration>) {
        let mut attempt = FireAttempt {
            job_id: job_id.to_owned(),
            fire_at: alarm.fire_at.clone(),
            status: None,
            answer: "no answer".to_owned(),
        };
        let mut wait = None;
        if let Some(token) = self.token() {
            let url = format!("{}/api/cron/fire", alarm.callback.as_str().trim_end_matches('/'));
            let body = json!({"job_id": job_id, "fire_at": alarm.fire_at});
            let token = token.into();
            let request =
                HttpRequest::new(&url, Body::Json(body.to_string().into_bytes())).bearer(Some(&token));
            if let Ok(response) = self.http.stream(request, FIRE_TIMEOUT).await {
                attempt.status = Some(response.status);
                wait = response.retry_after;
                let body = response.short_body(FIRE_TIMEOUT).await.unwrap_or_default();
                let body: Value = serde_json::from_slice(&body).unwrap_or_default();
                let text = body["status"].as_str().or(body["error"].as_str());
                text.unwrap_or("no text").clone_into(&mut attempt.answer);
            }
        }
        {
            let mut state = self.lock();
            if state.attempts.len() >= MAX_ATTEMPTS {
                state.attempts.pop_front();
            }
            state.attempts.push_back(attempt.clone());
        }
        (attempt, wait)
    }

    /// Fires until the relay takes it, the job is armed anew, or the retries are spent.
    async fn deliver(&self, job_id: &str, alarm: &Alarm) {
        let is_current = || {
            let state = self.lock();
            state
                .arms
                .get(job_id)
                .is_some_and(|now| now.number == alarm.number)
        };
        for retry in RETRIES.into_iter().map(Some).chain([None]) {
            let (attempt, wait) = self.attempt(job_id, alarm).await;
            let delivered = attempt.status.is_some_and(|status| (200..300).contains(&status));
            if delivered || retry.is_none() {
                break;
            }
            let wait = wait.unwrap_or(Duration::from_secs(retry.unwrap_or_default()));
            // Armed anew or cancelled meanwhile: this fire is history.
            let until = async {
                while is_current() {
                    sleep(Duration::from_millis(100)).await;
                }
            };
            if timeout(wait.min(MAX_RETRY_AFTER), until).await.is_ok() {
                return;
            }
        }
        let mut state = self.lock();
        if state
            .arms
            .get(job_id)
            .is_some_and(|now| now.number == alarm.number)
        {
            state.arms.remove(job_id);
        }
    }
}

/// Fires each alarm at its time.
async fn run_alarms(shared: Arc<SchedulerShared>) {
    let mut firing = JoinSet::new();
    loop {
        let now = unix_secs(SystemTime::now());
        let mut due = Vec::new();
        let mut next = None;
        {
            let mut state = shared.lock();
            for (id, alarm) in state.arms.iter_mut().filter(|(_, alarm)| !alarm.firing) {
                if alarm.at <= now {
                    alarm.firing = true;
                    due.push((id.clone(), alarm.clone()));
                } else {
                    next = Some(next.map_or(alarm.at, |at: i64| at.min(alarm.at)));
                }
            }
        }
        for (id, alarm) in due {
            let shared = Arc::clone(&shared);
            firing.spawn(async move { shared.deliver(&id, &alarm).await });
        }
        let wait = next.map_or(Duration::from_secs(3600), until);
        // Cancel-safe: a notification is kept, and alarms are read again.
        tokio::select! {
            () = shared.rearmed.notified() => {}
            () = sleep(wait) => {}
            Some(_) = firing.join_next() => {}
        }
    }
}

/// Until this second begins, on the wall clock.
fn until(at: i64) -> Duration {
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    let at = Duration::from_secs(u64::try_from(at).unwrap_or(0));
    at.saturating_sub(now).min(Duration::from_secs(3600)) + Duration::from_millis(5)
}

fn router(shared: &Arc<SchedulerShared>) -> Router {
    Router::new()
        .route("/api/agent-cron/provision", post(call))
        .route("/api/agent-cron/cancel", post(call))
        .route("/api/agent-cron/list", get(call))
        .route("/api/oauth/token", post(refresh))
        .route("/.well-known/jwks.json", get(keys))
        .fallback(|| async { plain(StatusCode::NOT_FOUND, "there is no such route") })
        .with_state(Arc::clone(shared))
}

async fn keys(State(shared): State<Arc<SchedulerShared>>) -> Response {
    reply(&shared.lock().keys.jwks())
}

/// Gives a new access token for the refresh token, once.
async fn refresh(State(shared): State<Arc<SchedulerShared>>, headers: HeaderMap) -> Response {
    let shown = headers
        .get("x-nous-refresh-token")
        .and_then(|value| value.to_str().ok());
    let mut state = shared.lock();
    if !is_token(&state.refresh_token, shown.unwrap_or_default()) {
        return plain(StatusCode::BAD_REQUEST, "refresh_token_reused");
    }
    state.access_token = random_token();
    state.refresh_token = random_token();
    reply(&json!({
        "access_token": state.access_token,
        "refresh_token": state.refresh_token,
        "token_type": "Bearer",
        "expires_in": shared.settings.login_secs,
    }))
}

async fn call(State(shared): State<Arc<SchedulerShared>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let body: Bytes = to_bytes(body, MAX_BODY_BYTES).await.unwrap_or_default();
    let json: Value = serde_json::from_slice(&body).unwrap_or_default();
    let bearer = bearer(&head.headers).unwrap_or_default();
    let mut state = shared.lock();
    if !is_token(&state.access_token, &bearer) {
        return plain(StatusCode::UNAUTHORIZED, "invalid_token");
    }
    let response = state.answer(head.uri.path(), &json);
    drop(state);
    shared.rearmed.notify_one();
    response
}

impl SchedulerState {
    fn answer(&mut self, path: &str, json: &Value) -> Response {
        let job_id = json["job_id"].as_str().unwrap_or_default();
        match path.rsplit('/').next() {
            Some("list") => {
                let armed = self.arms.iter().map(|(id, alarm)| {
                    json!({"job_id": id, "fire_at": alarm.fire_at, "schedule_id": format!("s{}", alarm.number)})
                });
                reply(&json!({"armed": armed.collect::<Vec<_>>()}))
            }
            _ if job_id.is_empty() => plain(StatusCode::BAD_REQUEST, "missing job_id"),
            Some("cancel") => {
                self.arms.remove(job_id);
                reply(&json!({"ok": true}))
            }
            _ => self.provision(job_id, json),
        }
    }

    fn provision(&mut self, job_id: &str, json: &Value) -> Response {
        let fire_at = json["fire_at"].as_str().unwrap_or_default();
        let Some(at) = parse_instant(fire_at) else {
            return plain(StatusCode::BAD_REQUEST, "fire_at is not an ISO 8601 time");
        };
        let callback = json["agent_callback_url"]
            .as_str()
            .and_then(|url| Url::parse(url).ok());
        let Some(callback) = callback.filter(|url| url.host().is_some_and(|host| is_loopback(&host))) else {
            return plain(StatusCode::BAD_REQUEST, "agent_callback_url is not on loopback");
        };
        if json["dedup_key"] != format!("{job_id}:{fire_at}") {
            return plain(StatusCode::BAD_REQUEST, "dedup_key is not job_id:fire_at");
        }
        if self.arms.len() >= MAX_ARMS && !self.arms.contains_key(job_id) {
            return plain(StatusCode::INSUFFICIENT_STORAGE, "too many jobs");
        }
        // The same time again is the same alarm.
        if let Some(alarm) = self.arms.get(job_id).filter(|alarm| alarm.at == at) {
            return reply(&json!({"schedule_id": format!("s{}", alarm.number)}));
        }
        self.numbered += 1;
        let number = self.numbered;
        let alarm = Alarm {
            number,
            fire_at: fire_at.to_owned(),
            at,
            callback,
            firing: false,
        };
        self.arms.insert(job_id.to_owned(), alarm);
        reply(&json!({"schedule_id": format!("s{number}")}))
    }
}
