//! `POST /api/cron/fire` over real sockets, on both listeners, with a stub that admits.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hermes_relay::EchoAgent;
use hermes_relay::config::ServeConfig;
use hermes_relay::cron::fire::{AdmitFire, FireAdmission, FireRequest};
use hermes_relay::cron::fire_token::FireTokenRules;
use hermes_relay::cron::fire_verifier::FireVerifier;
use hermes_relay::cron::jwks::KeySource;
use hermes_relay::serve::{ControlService, FireEndpoint, FireListener, Fires, Serving};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::timeout;

use super::signing::{OTHER, P256};
use crate::support::http_stub::{Stub, egress, reply};
use crate::support::memory_relay::{Running, start_with};
use crate::support::port::free_port;
use crate::support::raw_http::{Answer, ask, exchange};

const PORTAL: &str = "https://portal.example";
const AUDIENCE: &str = "agent:tested";

/// Admits by a rule of the test's, and remembers what it was asked.
#[derive(Clone, Debug)]
struct Admitting {
    rule: Arc<Mutex<FireAdmission>>,
    seen: Arc<Mutex<Vec<FireRequest>>>,
}

impl AdmitFire for Admitting {
    fn admit(&self, fire: FireRequest) -> Pin<Box<dyn Future<Output = FireAdmission> + Send + '_>> {
        self.seen.lock().unwrap().push(fire);
        let rule = *self.rule.lock().unwrap();
        Box::pin(async move { rule })
    }
}

/// A relay that serves fires, and the scheduler's keys.
pub(crate) struct FireRig {
    pub(crate) endpoint: Arc<FireEndpoint>,
    pub(crate) fires: SocketAddr,
    pub(crate) relay: Running,
    http: SocketAddr,
    admitting: Admitting,
    _serving: Serving,
    _dir: TempDir,
}

impl FireRig {
    /// With the keys of [`token`], and the server that they come from.
    pub(crate) async fn start() -> (Self, Stub) {
        let keys = json!({"keys": [P256.jwk("k1")]}).to_string();
        let keys = Stub::start(move |_| reply(200, keys.clone())).await;
        (Self::with(PORTAL, AUDIENCE, &keys.url("/jwks")).await, keys)
    }

    pub(crate) async fn with(portal: &str, audience: &str, jwks_url: &str) -> Self {
        let dir = TempDir::new().unwrap();
        let relay = start_with(dir.path(), EchoAgent, |_| {}).await;
        let admitting = Admitting {
            rule: Arc::new(Mutex::new(FireAdmission::Accepted)),
            seen: Arc::default(),
        };
        let source = KeySource::parse(jwks_url).unwrap();
        let rules = FireTokenRules::new(portal, audience);
        let verifier = FireVerifier::new(rules, source, &egress()).unwrap();
        let endpoint = Arc::new(FireEndpoint::new(Some(verifier), Box::new(admitting.clone())));
        let http = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let settings = ServeConfig {
            http: Some(http.to_string()),
            control: false,
            ..ServeConfig::default()
        };
        let service = ControlService::new(relay.handle.clone(), dir.path());
        let listener = FireListener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let fire_address = listener.local_addr();
        let fires = Fires {
            endpoint: Arc::clone(&endpoint),
            listener: Some(listener),
        };
        let serving = Serving::start(&settings, service, Some(fires)).unwrap();
        Self {
            endpoint,
            fires: fire_address,
            http,
            admitting,
            relay,
            _serving: serving,
            _dir: dir,
        }
    }

    pub(crate) fn answer(&self, admission: FireAdmission) {
        *self.admitting.rule.lock().unwrap() = admission;
    }

    pub(crate) fn admitted(&self) -> Vec<FireRequest> {
        std::mem::take(&mut *self.admitting.seen.lock().unwrap())
    }

    async fn fire(&self, token: &str, body: &str) -> Answer {
        post(self.fires, &[("Authorization", &format!("Bearer {token}"))], body).await
    }
}

pub(crate) async fn post(address: SocketAddr, headers: &[(&str, &str)], body: &str) -> Answer {
    ask(address, ("POST", "/api/cron/fire"), headers, body).await
}

fn now() -> u64 {
    std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs()
}

fn claims() -> Value {
    json!({"iss": PORTAL, "aud": AUDIENCE, "purpose": "cron_fire", "iat": now(), "exp": now() + 90})
}

pub(crate) fn token() -> String {
    P256.token(&json!({"alg": "ES256", "kid": "k1"}), &claims())
}

/// A token that only its signature gives away.
pub(crate) fn forged() -> String {
    let signed = token();
    let (message, _) = signed.rsplit_once('.').unwrap();
    format!("{message}.{}", super::signing::encode([7; 64]))
}

const FIRE: &str = r#"{"job_id": "0b23be8dd975", "fire_at": "2026-11-15T09:00:00+00:00"}"#;

#[tokio::test]
async fn only_the_scheduler_may_fire() {
    let (rig, _keys) = FireRig::start().await;
    let good = token();
    let refused = json!({"error": "invalid fire token"});
    for (row, headers) in [
        ("B1", vec![]),
        ("B2", vec![("Authorization", "Bearer x".to_owned())]),
        ("B4", vec![("Authorization", good.clone())]),
        ("another scheme", vec![("Authorization", format!("Basic {good}"))]),
        ("forged", vec![("Authorization", format!("Bearer {}", forged()))]),
        ("no token", vec![("Authorization", "Bearer ".to_owned())]),
        (
            "two",
            vec![
                ("Authorization", format!("Bearer {good}")),
                ("Authorization", "Bearer x".to_owned()),
            ],
        ),
    ] {
        let headers: Vec<_> = headers
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        let answer = post(rig.fires, &headers, FIRE).await;
        assert_eq!((answer.status, answer.json()), (401, refused.clone()), "{row}");
        assert_eq!(answer.header("www-authenticate"), Some("Bearer"), "{row}");
    }
    assert_eq!(rig.admitted(), [], "nobody was let in");
    // The reference wants the exact word; RFC 9110 does not.
    for (row, scheme) in [("B3", "bearer "), ("B5", "Bearer  "), ("B6", "Bearer ")] {
        let answer = post(rig.fires, &[("Authorization", &format!("{scheme}{good}"))], FIRE).await;
        assert_eq!(answer.status, 202, "{row}: {answer:?}");
    }
    rig.relay.stop().await;
}

#[tokio::test]
async fn a_body_without_a_job_is_refused_after_the_token() {
    let (rig, _keys) = FireRig::start().await;
    let missing = json!({"error": "missing job_id"});
    for (row, body) in [
        ("B7", ""),
        ("B8", "not JSON"),
        ("B9", r#"["0b23be8dd975"]"#),
        ("B10", r#"{"job_id": ""}"#),
        ("B10, absent", r#"{"fire_at": "x"}"#),
        ("B10, null", r#"{"job_id": null}"#),
        ("an object", r#"{"job_id": {"a": 1}}"#),
    ] {
        let answer = rig.fire(&token(), body).await;
        assert_eq!((answer.status, answer.json()), (400, missing.clone()), "{row}");
        assert_eq!(
            rig.fire(&forged(), body).await.status,
            401,
            "{row}: the token comes first"
        );
    }
    let number = rig.fire(&token(), r#"{"job_id": 5}"#).await;
    assert_eq!(
        (number.status, number.json()),
        (200, json!({"status": "gone", "job_id": 5})),
        "B12"
    );
    let long = format!(r#"{{"job_id": "{}"}}"#, "x".repeat(5000));
    assert_eq!(rig.fire(&token(), &long).await.json()["status"], "gone");
    assert_eq!(rig.admitted(), [], "none of these is a fire");
    let huge = format!(r#"{{"job_id": "a", "pad": "{}"}}"#, "x".repeat(20_000));
    let large = "x".repeat(2_000_000);
    assert_eq!(
        rig.fire(&token(), &large).await.status,
        413,
        "the sender reads the answer"
    );
    assert_eq!(rig.fire(&token(), &huge).await.status, 413);
    assert_eq!(rig.fire(&forged(), &huge).await.status, 401);
    rig.relay.stop().await;
}

#[tokio::test]
async fn each_admission_has_its_answer() {
    let (rig, _keys) = FireRig::start().await;
    let job = "0b23be8dd975";
    let said = |key: &str, text: &str| json!({key: text, "job_id": job});
    let early = FireAdmission::Early {
        retry_after: Duration::from_secs(90),
    };
    for (row, admission, status, body, retry) in [
        (
            "B15",
            FireAdmission::Accepted,
            202,
            said("status", "accepted"),
            None,
        ),
        (
            "B11 and B13",
            FireAdmission::Gone,
            200,
            said("status", "gone"),
            None,
        ),
        (
            "B14, B16 and B17",
            FireAdmission::Duplicate,
            200,
            said("status", "duplicate"),
            None,
        ),
        ("early", early, 503, said("error", "too early"), Some("90")),
        (
            "B20",
            FireAdmission::Draining,
            503,
            said("error", "shutting down"),
            Some("10"),
        ),
        (
            "B22 and B23",
            FireAdmission::Failed,
            503,
            said("error", "cron fire admission failed"),
            Some("30"),
        ),
    ] {
        rig.answer(admission);
        let answer = rig.fire(&token(), FIRE).await;
        assert_eq!((answer.status, answer.json()), (status, body), "{row}");
        assert_eq!(answer.header("retry-after"), retry, "{row}");
        assert_eq!(answer.header("content-type"), Some("application/json"), "{row}");
        assert_eq!(
            rig.fire(&forged(), FIRE).await.status,
            401,
            "B21: says nothing to strangers"
        );
        let expected = FireRequest {
            job_id: job.to_owned(),
            fire_at: Some("2026-11-15T09:00:00+00:00".to_owned()),
        };
        assert_eq!(rig.admitted(), [expected], "{row}");
    }
    rig.answer(FireAdmission::Accepted);
    for (row, body) in [
        ("B18", r#"{"job_id": "a"}"#.to_owned()),
        ("B18, no text", r#"{"job_id": "a", "fire_at": 7}"#.to_owned()),
        (
            "B18, absurd",
            format!(r#"{{"job_id": "a", "fire_at": "{}"}}"#, "9".repeat(200)),
        ),
    ] {
        assert_eq!(rig.fire(&token(), &body).await.status, 202, "{row}");
        assert_eq!(rig.admitted()[0].fire_at, None, "{row}");
    }
    let counts = rig.endpoint.counts();
    let count = |counter: &std::sync::atomic::AtomicU64| counter.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(count(&counts.accepted), 4);
    assert_eq!((count(&counts.gone), count(&counts.duplicate)), (1, 1));
    assert_eq!((count(&counts.deferred), count(&counts.refused)), (3, 6));
    rig.relay.stop().await;
}

#[tokio::test]
async fn fires_have_a_listener_of_their_own_and_are_served_beside_monitoring() {
    let (rig, _keys) = FireRig::start().await;
    let get = async |address: SocketAddr, path: &str| {
        exchange(
            address,
            &format!("GET {path} HTTP/1.1\r\nHost: agent.example\r\n\r\n"),
        )
        .await
        .status
    };
    assert_eq!(get(rig.fires, "/api/cron/fire").await, 404, "B19");
    assert_eq!(get(rig.fires, "/healthz").await, 200);
    for path in [
        "/",
        "/metrics",
        "/readyz",
        "/wake",
        "/api/cron",
        "/api/cron/fire/",
    ] {
        assert_eq!(get(rig.fires, path).await, 404, "{path}");
    }
    let bearer = format!("Bearer {}", token());
    let beside = post(rig.http, &[("Authorization", &bearer)], FIRE).await;
    assert_eq!(beside.status, 202, "whatever the host is called");
    assert_eq!(
        get(rig.http, "/metrics").await,
        421,
        "monitoring still looks at the host"
    );
    rig.relay.stop().await;
}

#[tokio::test]
async fn an_outage_of_the_keys_refuses_fires_and_holds_up_nothing_else() {
    // The keys take longer than this test: whatever waits for them hangs.
    let slow = Stub::at("127.0.0.1:0", Duration::from_secs(600), |_| reply(200, "{}")).await;
    let rig = FireRig::with(PORTAL, AUDIENCE, &slow.url("/jwks")).await;
    let waiting = tokio::spawn({
        let address = rig.fires;
        async move {
            post(
                address,
                &[("Authorization", &format!("Bearer {}", token()))],
                FIRE,
            )
            .await
        }
    });
    let health = exchange(rig.fires, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
    let health = timeout(Duration::from_secs(5), health)
        .await
        .expect("not held up");
    assert_eq!(health.status, 200);
    assert!(!waiting.is_finished());
    let answer = waiting.await.unwrap();
    assert_eq!(
        answer.status, 401,
        "B24: fails closed, before the scheduler gives up"
    );
    rig.relay.stop().await;
}

#[tokio::test]
async fn another_key_under_the_same_name_is_refused() {
    let (rig, keys) = FireRig::start().await;
    let stranger = OTHER.token(&json!({"alg": "RS256", "kid": "k1"}), &claims());
    assert_eq!(rig.fire(&stranger, FIRE).await.status, 401);
    assert_eq!(keys.seen().len(), 1, "a known key id fetches nothing more");
    rig.relay.stop().await;
}
