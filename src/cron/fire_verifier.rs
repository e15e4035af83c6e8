//! Verifies fire tokens against the scheduler's keys, which it fetches when [`JwksCache`] says so, one fetch at a time.

use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use url::Url;

use super::fire_token::{FireToken, FireTokenRules, TokenRefusal};
use super::jwks::{FetchReason, FireKey, JwksCache, KeyLookup, KeySet, KeySource, MAX_JWKS_BYTES};
use crate::net::http::{HttpClient, HttpEgress, HttpError, unix_secs};
use crate::net::jwks;

/// Where key sets come from.
pub trait FetchKeys: fmt::Debug + Send + Sync {
    /// The body of the key set, or why there is none.
    fn fetch(&self) -> Pin<Box<dyn Future<Output = Result<Vec<u8>, String>> + Send + '_>>;
}

/// Key sets from the network.
#[derive(Debug)]
struct HttpKeys {
    http: HttpClient,
    url: Url,
}

impl FetchKeys for HttpKeys {
    fn fetch(&self) -> Pin<Box<dyn Future<Output = Result<Vec<u8>, String>> + Send + '_>> {
        Box::pin(async {
            jwks::fetch(&self.http, &self.url)
                .await
                .map_err(|error| error.to_string())
        })
    }
}

/// Seconds since 1970.
pub type UnixClock = Arc<dyn Fn() -> i64 + Send + Sync>;

/// Whether fire tokens are authentic.
#[derive(Debug)]
pub struct FireVerifier {
    rules: FireTokenRules,
    keys: Keys,
    clock: TokenClock,
}

#[derive(Clone)]
struct TokenClock(UnixClock);

impl TokenClock {
    fn system() -> Self {
        Self(Arc::new(|| unix_secs(SystemTime::now())))
    }

    fn now(&self) -> i64 {
        (self.0)()
    }
}

impl fmt::Debug for TokenClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenClock")
    }
}

#[derive(Debug)]
enum Keys {
    Pinned(Arc<FireKey>),
    Fetched(FetchedKeys),
}

#[derive(Debug)]
struct FetchedKeys {
    source: Box<dyn FetchKeys>,
    clock: TokenClock,
    cache: Mutex<JwksCache>,
    /// Held by whoever fetches; the others wait for what comes back.
    fetching: tokio::sync::Mutex<()>,
    fetches: AtomicU64,
}

impl FireVerifier {
    /// A verifier for the keys of `source`. Fetches nothing yet.
    pub fn new(rules: FireTokenRules, source: KeySource, egress: &HttpEgress) -> Result<Self, HttpError> {
        let TokenClock(clock) = TokenClock::system();
        match source {
            KeySource::Pinned(key) => Ok(Self {
                rules,
                keys: Keys::Pinned(key),
                clock: TokenClock(clock),
            }),
            KeySource::Url(url) => {
                let http = jwks::client(egress, &url, MAX_JWKS_BYTES)?;
                Ok(Self::with_keys(rules, Box::new(HttpKeys { http, url }), clock))
            }
        }
    }

    /// A verifier for keys and a clock of the caller's.
    pub fn with_keys(rules: FireTokenRules, source: Box<dyn FetchKeys>, clock: UnixClock) -> Self {
        let clock = TokenClock(clock);
        Self {
            rules,
            keys: Keys::fetched(source, clock.clone()),
            clock,
        }
    }

    /// Whether `token` is authentic, meant for this agent, and still good.
    pub async fn verify(&self, token: &str) -> Result<(), TokenRefusal> {
        self.rules.check()?;
        let token = FireToken::parse(token)?;
        match &self.keys {
            Keys::Pinned(key) => token.verify(key, &self.rules, self.clock.now()),
            Keys::Fetched(keys) => {
                let key = keys.find(token.kid()).await?;
                token.verify(&key, &self.rules, self.clock.now())
            }
        }
    }

    /// How often the key set was fetched.
    pub fn fetches(&self) -> u64 {
        match &self.keys {
            Keys::Pinned(_) => 0,
            Keys::Fetched(keys) => keys.fetches.load(Ordering::Relaxed),
        }
    }
}

impl Keys {
    fn fetched(source: Box<dyn FetchKeys>, clock: TokenClock) -> Self {
        Self::Fetched(FetchedKeys {
            source,
            clock,
            cache: Mutex::default(),
            fetching: tokio::sync::Mutex::default(),
            fetches: AtomicU64::new(0),
        })
    }
}

impl FetchedKeys {
    async fn find(&self, kid: Option<&str>) -> Result<Arc<FireKey>, TokenRefusal> {
        loop {
            match self.cache().look_up(kid, self.clock.now()) {
                KeyLookup::Found(key) => return Ok(key),
                KeyLookup::Refuse(why) => return Err(why),
                KeyLookup::Fetch(_) => {}
            }
            let _fetching = self.fetching.lock().await;
            // Whoever held the lock before may have fetched what is needed here.
            let lookup = self.cache().look_up(kid, self.clock.now());
            if let KeyLookup::Fetch(reason) = lookup {
                self.fetch(reason).await;
            }
        }
    }

    async fn fetch(&self, reason: FetchReason) {
        self.fetches.fetch_add(1, Ordering::Relaxed);
        let fetched = self.source.fetch().await;
        let set = fetched.and_then(|body| KeySet::parse(&body).map_err(|error| error.to_string()));
        let now = self.clock.now();
        match set {
            Ok(set) => {
                if set.is_empty() {
                    tracing::warn!("the managed scheduler's key set holds no usable key");
                }
                self.cache().on_fetched(reason, set, now);
            }
            Err(error) => {
                tracing::warn!(%error, "cannot fetch the managed scheduler's keys");
                self.cache().on_failed(now);
            }
        }
    }

    fn cache(&self) -> MutexGuard<'_, JwksCache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
