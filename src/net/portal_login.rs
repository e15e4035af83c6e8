//! The Nous Portal login that `hermes` keeps in `auth.json`: read it, and refresh it when it runs out.
//!
//! Refresh tokens are single use and shared with `hermes`, so a refresh happens only under the same file
//! locks that `hermes` takes, after reading again, and what comes back is written before it is used. A refresh that has
//! begun goes on when nobody waits for the token any more. It never logs in, never follows a stored portal address outside nousresearch.com, never drops a field.

use std::fs::{File, OpenOptions};
use std::io;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value};
use tempfile::NamedTempFile;
use tokio_util::task::TaskTracker;
use url::{Url, form_urlencoded};

use super::http::{Body, HttpClient, HttpError, Request, excerpt, sensitive, unix_secs};
use super::identity::usable_token;
use super::proxy::is_loopback;
use crate::text::{instant, parse_instant};

const DEFAULT_PORTAL: &str = "https://portal.nousresearch.com";
const DEFAULT_CLIENT: &str = "hermes-cli";
/// A token that ends within this many seconds is refreshed first.
const REFRESH_AHEAD_SECS: i64 = 120;
/// Longer than a holder's own request may take.
const LOCK_WAIT: Duration = Duration::from_secs(25);
const LOCK_RETRY: Duration = Duration::from_millis(50);
/// What the copy shared between profiles and a profile's own store have in common.
const SHARED_FIELDS: [&str; 8] = [
    "access_token",
    "refresh_token",
    "token_type",
    "scope",
    "client_id",
    "portal_base_url",
    "obtained_at",
    "expires_at",
];

/// Why the portal login gave no token.
#[derive(Debug, thiserror::Error)]
pub enum PortalError {
    /// There is no login.
    #[error("you are not logged into Nous Portal")]
    NotLoggedIn,
    /// The token ran out and nothing can refresh it.
    #[error("the Nous Portal session expired and holds no refresh token")]
    Expired,
    /// The stored portal address is not one of Nous Research's.
    #[error(
        "auth.json names the portal {host}, which is not under nousresearch.com over https; log in again, or set HERMES_PORTAL_BASE_URL if it is meant"
    )]
    ForeignPortal {
        /// The host of the stored address.
        host: String,
    },
    /// The portal refused the refresh token.
    #[error("Nous Portal refused to refresh the session (HTTP {status}{})", reason.as_ref().map(|r| format!(": {r}")).unwrap_or_default())]
    Refused {
        /// The HTTP status.
        status: u16,
        /// The portal's own error code.
        reason: Option<String>,
    },
    /// The portal's answer holds no token.
    #[error("Nous Portal's answer holds no access token")]
    NoToken,
    /// No usable answer from the portal.
    #[error("could not reach Nous Portal: {0}")]
    Unreachable(HttpError),
    /// Another process kept the login locked.
    #[error("another process keeps {} locked; retry when it is done", path.display())]
    Locked {
        /// The path of the lock file.
        path: PathBuf,
    },
    /// A file of the login cannot be read or written.
    #[error("{0}")]
    Store(#[from] StoreError),
}

impl PortalError {
    /// Whether logging in (again) is the way out.
    pub fn needs_login(&self) -> bool {
        match self {
            Self::NotLoggedIn | Self::Expired | Self::NoToken => true,
            Self::Refused { status, reason } => match reason.as_deref() {
                Some(code) => ENDED.contains(&code),
                None => matches!(status, 400 | 401 | 403),
            },
            Self::ForeignPortal { .. } | Self::Unreachable(_) | Self::Locked { .. } | Self::Store(_) => false,
        }
    }

    /// The portal's code, if it has ended the session for good.
    fn ended_session(&self) -> Option<&'static str> {
        match self {
            Self::Refused { reason, .. } => ENDED.into_iter().find(|code| reason.as_deref() == Some(code)),
            _ => None,
        }
    }
}

/// Error codes with which the portal ends a session for good.
const ENDED: [&str; 3] = ["invalid_grant", "invalid_token", "refresh_token_reused"];

/// What happens to the stored tokens of a session that the portal has ended.
#[derive(Clone, Copy)]
enum EndedTokens {
    Keep,
    Remove,
}

/// A stored login, found again each time it is asked.
#[derive(Debug, Clone)]
pub struct PortalLogin {
    stores: Vec<PathBuf>,
    shared: PathBuf,
    portal_override: Option<String>,
    /// The origin of the portal that the settings name.
    configured: Option<url::Origin>,
    /// The refreshes that are under way; always closed, since it counts only what there is.
    refreshes: TaskTracker,
}

/// A stored login that nobody else can change.
struct LockedLogin {
    path: PathBuf,
    store: Map<String, Value>,
    /// The copy shared between profiles.
    shared: Option<Map<String, Value>>,
    _locks: (File, Option<File>),
}

impl PortalLogin {
    /// The login of `home`; a profile (`<root>/profiles/<name>`) falls back to its root's.
    pub fn new(home: &Path, env: &dyn Fn(&str) -> Option<String>) -> Self {
        let var = |name: &str| env(name).map(|v| v.trim().to_owned()).filter(|v| !v.is_empty());
        let profiles = home
            .parent()
            .filter(|parent| parent.file_name().is_some_and(|n| n == "profiles"));
        let root = profiles.and_then(Path::parent);
        let shared_dir =
            var("HERMES_SHARED_AUTH_DIR").map_or_else(|| root.unwrap_or(home).join("shared"), PathBuf::from);
        let refreshes = TaskTracker::new();
        refreshes.close();
        Self {
            stores: [Some(home), root]
                .into_iter()
                .flatten()
                .map(|dir| dir.join("auth.json"))
                .collect(),
            shared: shared_dir.join("nous_auth.json"),
            portal_override: var("HERMES_PORTAL_BASE_URL").or_else(|| var("NOUS_PORTAL_BASE_URL")),
            configured: None,
            refreshes,
        }
    }

    /// Also trusts a stored portal address at the origin of `portal_url`, which the owner has written down as the portal.
    #[must_use]
    pub fn trusting(mut self, portal_url: &str) -> Self {
        let url = Url::parse(portal_url).ok();
        let safe = url.filter(|url| {
            url.scheme() == "https" || (url.scheme() == "http" && url.host().is_some_and(|h| is_loopback(&h)))
        });
        self.configured = safe.map(|url| url.origin());
        self
    }

    /// A token good for at least two more minutes, refreshed first when need be.
    pub async fn access_token(&self, http: &HttpClient) -> Result<SecretString, PortalError> {
        self.token(http, None, EndedTokens::Keep).await
    }

    /// The same for a session that goes on for days: another one than the `rejected` token, and when the portal has ended
    /// the session, the stored tokens are removed and the reason is stored, as `hermes` does, so that nobody tries again.
    pub async fn session_token(
        &self,
        http: &HttpClient,
        rejected: Option<&SecretString>,
    ) -> Result<SecretString, PortalError> {
        self.token(http, rejected, EndedTokens::Remove).await
    }

    async fn token(
        &self,
        http: &HttpClient,
        rejected: Option<&SecretString>,
        ended: EndedTokens,
    ) -> Result<SecretString, PortalError> {
        let fresh_token = |login: &Map<String, Value>| {
            let is_rejected =
                |token: &SecretString| rejected.is_some_and(|r| r.expose_secret() == token.expose_secret());
            fresh_token(login).filter(|token| !is_rejected(token))
        };
        let (path, store) = self.find()?;
        if let Some(token) = login_of(&store).and_then(fresh_token) {
            return Ok(token);
        }
        let store_lock = lock(&path.with_extension("lock")).await?;
        let mut store = read_store(&path)?.ok_or(PortalError::NotLoggedIn)?;
        let login = login_of_mut(&mut store).ok_or(PortalError::NotLoggedIn)?;
        if let Some(token) = fresh_token(login) {
            return Ok(token);
        }
        // The order of the two locks is the one `hermes` takes them in.
        let (mut shared, mut shared_lock) = (None, None);
        if self.shared.exists() {
            shared_lock = Some(lock(&self.shared.with_extension("lock")).await?);
            shared = read_store(&self.shared)?;
        }
        let adopted = shared.as_ref().is_some_and(|shared| adopt(login, shared));
        if let Some(token) = fresh_token(login).filter(|_| adopted) {
            Replacement::prepare(&path)?.commit(&store)?;
            return Ok(token);
        }
        let locked = LockedLogin {
            path,
            store,
            shared,
            _locks: (store_lock, shared_lock),
        };
        let (login, http) = (self.clone(), http.clone());
        let rotating = async move { login.rotate(&http, locked, ended).await };
        match self.refreshes.spawn(rotating).await {
            Ok(token) => token,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The runtime ends, and with it whoever waits here.
                Err(_) => std::future::pending().await,
            },
        }
    }

    /// Spends the refresh token and stores what comes back. Whoever drops this loses the login: what was spent is spent.
    async fn rotate(
        &self,
        http: &HttpClient,
        mut locked: LockedLogin,
        ended: EndedTokens,
    ) -> Result<SecretString, PortalError> {
        let LockedLogin {
            path, store, shared, ..
        } = &mut locked;
        let login = login_of_mut(store).ok_or(PortalError::NotLoggedIn)?;
        let portal = self.portal(login)?;
        // Proves that the rotated token can be stored before the old one is spent.
        let pending = Replacement::prepare(path)?;
        let pending_shared = shared
            .as_ref()
            .map(|_| Replacement::prepare(&self.shared))
            .transpose()?;
        let spent = login.get("refresh_token").cloned();
        let token = match refresh(http, &portal, login).await {
            Ok(token) => token,
            Err(error) => {
                if let (EndedTokens::Remove, Some(code)) = (ended, error.ended_session()) {
                    end_session(login, code);
                    pending.commit(store)?;
                    let shared = shared
                        .as_mut()
                        .filter(|shared| shared.get("refresh_token") == spent.as_ref());
                    if let (Some(pending), Some(shared)) = (pending_shared, shared) {
                        end_session(shared, code);
                        pending.commit(shared)?;
                    }
                }
                return Err(error);
            }
        };
        if let Some(shared) = shared.as_mut() {
            for field in SHARED_FIELDS {
                shared.extend(login.get(field).map(|value| (field.to_owned(), value.clone())));
            }
        }
        pending.commit(store)?;
        if let (Some(pending), Some(shared)) = (pending_shared, shared) {
            pending.commit(shared)?;
        }
        Ok(token)
    }

    /// Waits until no refresh is under way: at most as long as the client waits for an answer.
    pub async fn refreshed(&self) {
        self.refreshes.wait().await;
    }

    /// Whether what is stored can give a token: it is good for two more minutes, or can be refreshed. Nothing is asked,
    /// refreshed or written.
    pub fn check(&self) -> Result<(), PortalError> {
        let (_, store) = self.find()?;
        let login = login_of(&store).ok_or(PortalError::NotLoggedIn)?;
        if fresh_token(login).is_some() {
            return Ok(());
        }
        let shared = self.shared.exists().then(|| read_store(&self.shared));
        let shared = shared.transpose()?.flatten();
        let held = [Some(login), shared.as_ref()].into_iter().flatten();
        let mut refreshing = held.filter_map(|held| text(held, "refresh_token").and_then(usable_token));
        refreshing.next().ok_or(PortalError::Expired)?;
        self.portal(login).map(drop)
    }

    /// The stored token, if it is good for two more minutes. Nothing is asked, refreshed or written.
    pub fn current_token(&self) -> Result<Option<SecretString>, PortalError> {
        let (_, store) = self.find()?;
        Ok(login_of(&store).and_then(fresh_token))
    }

    /// Whether a login is stored; nothing is asked or refreshed.
    pub fn is_stored(&self) -> bool {
        self.find().is_ok()
    }

    fn find(&self) -> Result<(PathBuf, Map<String, Value>), PortalError> {
        for path in &self.stores {
            // A profile may link to its root's file: lock and replace the file itself, not the link.
            let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.clone());
            if let Some(store) = read_store(&path)?.filter(|store| login_of(store).is_some()) {
                return Ok((path, store));
            }
        }
        Err(PortalError::NotLoggedIn)
    }

    fn portal(&self, login: &Map<String, Value>) -> Result<String, PortalError> {
        if let Some(portal) = &self.portal_override {
            return Ok(portal.trim_end_matches('/').to_owned());
        }
        let stored = text(login, "portal_base_url")
            .unwrap_or(DEFAULT_PORTAL)
            .trim_end_matches('/');
        let trusted = Url::parse(stored).ok().filter(|url| {
            let host = url.host_str().unwrap_or_default();
            let theirs = host == "nousresearch.com" || host.ends_with(".nousresearch.com");
            (url.scheme() == "https" && theirs) || self.configured.as_ref() == Some(&url.origin())
        });
        match trusted {
            Some(_) => Ok(stored.to_owned()),
            None => Err(PortalError::ForeignPortal {
                host: excerpt(stored),
            }),
        }
    }
}

/// Spends the refresh token and puts what comes back into `login`.
async fn refresh(
    http: &HttpClient,
    portal: &str,
    login: &mut Map<String, Value>,
) -> Result<SecretString, PortalError> {
    let refresh_token = text(login, "refresh_token")
        .and_then(usable_token)
        .ok_or(PortalError::Expired)?;
    let client_id = text(login, "client_id").unwrap_or(DEFAULT_CLIENT).to_owned();
    let form = form_urlencoded::Serializer::new(String::new())
        .append_pair("grant_type", "refresh_token")
        .append_pair("client_id", &client_id)
        .finish();
    let url = format!("{portal}/api/oauth/token");
    let mut request = Request::new(&url, Body::Form(form.into())).accept("application/json");
    let secret = sensitive(refresh_token.expose_secret()).map_err(PortalError::Unreachable)?;
    request.headers.insert("x-nous-refresh-token", secret);
    let answer = http.send(request).await.map_err(PortalError::Unreachable)?;
    if answer.status != 200 {
        return Err(PortalError::Refused {
            status: answer.status,
            reason: answer.error_text(),
        });
    }
    let granted = answer.object().ok_or(PortalError::NoToken)?;
    let token = text(&granted, "access_token")
        .and_then(usable_token)
        .ok_or(PortalError::NoToken)?;

    let now = unix_secs(SystemTime::now());
    let lifetime = granted.get("expires_in").map_or(0, whole_seconds);
    login.remove("last_auth_error");
    let mut set = |field: &str, value: Value| login.insert(field.to_owned(), value);
    set("access_token", token.expose_secret().into());
    for field in ["refresh_token", "token_type", "scope"] {
        if let Some(value) = text(&granted, field) {
            set(field, value.into());
        }
    }
    set("obtained_at", instant(now).into());
    set("expires_in", lifetime.into());
    set("expires_at", instant(now.saturating_add(lifetime)).into());
    set("portal_base_url", portal.into());
    set("client_id", client_id.into());
    Ok(token)
}

/// Removes what cannot be used any more and writes down why.
fn end_session(login: &mut Map<String, Value>, code: &str) {
    for field in ["access_token", "refresh_token", "expires_at", "expires_in"] {
        login.remove(field);
    }
    let at = instant(unix_secs(SystemTime::now()));
    let error = serde_json::json!({"code": code, "relogin_required": true, "at": at});
    login.insert("last_auth_error".to_owned(), error);
}

/// Adopts the shared copy if another profile has refreshed since; returns whether it did.
fn adopt(login: &mut Map<String, Value>, shared: &Map<String, Value>) -> bool {
    let Some(refresh_token) = text(shared, "refresh_token") else {
        return false;
    };
    let rotated = Some(refresh_token) != text(login, "refresh_token");
    if !rotated && expiry(shared) <= expiry(login) {
        return false;
    }
    for field in SHARED_FIELDS {
        login.extend(text(shared, field).map(|value| (field.to_owned(), value.into())));
    }
    true
}

fn login_of(store: &Map<String, Value>) -> Option<&Map<String, Value>> {
    match store.get("providers").and_then(|providers| providers.get("nous")) {
        Some(nous) => nous.as_object(),
        None => text(store, "access_token")
            .or(text(store, "refresh_token"))
            .map(|_| store),
    }
}

fn login_of_mut(store: &mut Map<String, Value>) -> Option<&mut Map<String, Value>> {
    login_of(store)?;
    if store
        .get("providers")
        .is_some_and(|providers| providers.get("nous").is_some())
    {
        return store.get_mut("providers")?.get_mut("nous")?.as_object_mut();
    }
    Some(store)
}

fn fresh_token(login: &Map<String, Value>) -> Option<SecretString> {
    let ends = expiry(login)?;
    let fresh = ends > unix_secs(SystemTime::now()) + REFRESH_AHEAD_SECS;
    text(login, "access_token")
        .filter(|_| fresh)
        .and_then(usable_token)
}

fn expiry(login: &Map<String, Value>) -> Option<i64> {
    match login.get("expires_at")? {
        Value::String(text) => parse_instant(text),
        number => number.as_i64(),
    }
}

fn whole_seconds(value: &Value) -> i64 {
    let seconds = value.as_i64().or_else(|| value.as_str()?.trim().parse().ok());
    seconds.unwrap_or(0).clamp(0, 10 * 365 * 86_400)
}

fn text<'a>(object: &'a Map<String, Value>, key: &str) -> Option<&'a str> {
    object
        .get(key)?
        .as_str()
        .map(str::trim)
        .filter(|text| !text.is_empty())
}

/// Held until dropped; the lock file stays, since removing it would let two holders in.
async fn lock(path: &Path) -> Result<File, PortalError> {
    let file = open_lock(path)?;
    let deadline = tokio::time::Instant::now() + LOCK_WAIT;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(std::fs::TryLockError::WouldBlock) if tokio::time::Instant::now() < deadline => {
                tokio::time::sleep(LOCK_RETRY).await;
            }
            Err(std::fs::TryLockError::WouldBlock) => {
                return Err(PortalError::Locked {
                    path: path.to_owned(),
                });
            }
            Err(std::fs::TryLockError::Error(error)) => {
                return Err(StoreError::new(path, &io::Error::from(error.kind())).into());
            }
        }
    }
}

/// Largest file that is read.
const MAX_FILE: u64 = 4 * 1024 * 1024;

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", path.display())]
pub struct StoreError {
    path: PathBuf,
    reason: String,
}

impl StoreError {
    /// A failed operation on `path`.
    fn new(path: &Path, error: &io::Error) -> Self {
        Self {
            path: path.to_owned(),
            reason: error.to_string(),
        }
    }

    fn content(path: &Path, reason: &str) -> Self {
        Self {
            path: path.to_owned(),
            reason: reason.to_owned(),
        }
    }
}

/// The object in `path`; `None` when there is no such file.
fn read_store(path: &Path) -> Result<Option<Map<String, Value>>, StoreError> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(StoreError::new(path, &error)),
    };
    let mut bytes = Vec::new();
    file.take(MAX_FILE + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| StoreError::new(path, &error))?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(StoreError::content(path, "too large"));
    }
    let json = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(&bytes);
    serde_json::from_slice(json)
        .map(Some)
        .map_err(|_| StoreError::content(path, "not a JSON object"))
}

/// A replacement of a file that has been started and not yet taken effect; dropping it changes nothing.
#[derive(Debug)]
struct Replacement {
    path: PathBuf,
    temporary: NamedTempFile,
}

impl Replacement {
    /// Starts to replace `path`: from here on only a full disk can prevent it.
    fn prepare(path: &Path) -> Result<Self, StoreError> {
        let temporary = tempfile::Builder::new()
            .prefix(".auth-")
            .tempfile_in(directory(path))
            .map_err(|error| StoreError::new(path, &error))?;
        Ok(Self {
            path: path.to_owned(),
            temporary,
        })
    }

    /// Puts `object` in place, readable by the owner only, and waits until the disk has it.
    fn commit(self, object: &Map<String, Value>) -> Result<(), StoreError> {
        let Self { path, mut temporary } = self;
        let write = || {
            let mut json = serde_json::to_vec_pretty(object)?;
            json.push(b'\n');
            temporary.write_all(&json)?;
            if let Ok(old) = std::fs::metadata(&path) {
                keep_owner(temporary.as_file(), &old)?;
            }
            temporary.as_file().sync_all()?;
            temporary.persist(&path)?;
            File::open(directory(&path))?.sync_all()
        };
        write().map_err(|error: io::Error| StoreError::new(&path, &error))
    }
}

/// Gives the new file to the owner of the old one: what root writes must stay readable for whom it belongs to.
fn keep_owner(new: &File, old: &std::fs::Metadata) -> io::Result<()> {
    let own = new.metadata()?;
    if (own.uid(), own.gid()) == (old.uid(), old.gid()) {
        return Ok(());
    }
    std::os::unix::fs::fchown(new, Some(old.uid()), Some(old.gid()))
}

/// Opens a lock file, creating it for the owner only.
fn open_lock(path: &Path) -> Result<File, StoreError> {
    OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(path)
        .map_err(|error| StoreError::new(path, &error))
}

fn directory(path: &Path) -> &Path {
    path.parent()
        .filter(|dir| !dir.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}
