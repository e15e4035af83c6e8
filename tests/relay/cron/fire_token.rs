//! One hundred fire tokens, each really signed, and what becomes of it: accepted or refused, with how many fetches of the
//! scheduler's keys. The numbers are the reference's; where it accepts what is unsafe, the row says so.

use std::pin::Pin;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hermes_relay::cron::fire_token::{FireTokenRules, TokenRefusal};
use hermes_relay::cron::fire_verifier::{FetchKeys, FireVerifier};
use hermes_relay::cron::jwks::{KeySource, KeySourceError};
use hermes_relay::net::jwks as jwks_client;
use serde_json::{Value, json};

use super::signing::{ED25519, K1, OTHER, P256, P384, hs256, message};
use crate::support::http_stub::{Stub, egress, reply, reply_with};

const NOW: i64 = 1_800_000_000;
const PORTAL: &str = "https://portal.nousresearch.com";
const AUDIENCE: &str = "agent:inst_123";

/// A 1024-bit key that OpenSSL made, and a token that it signed: crypto that refuses such keys cannot make one.
const SHORT_KEY: &str = "u6MmhvL7nHgNzGxItxrDJOsFecZ30oH3bdkD41logzCkVfI7BD0LmI9FKihXPGkz3pOXS1ISuuQ-V0E7XsjvIo9ZmKJB-2tiVCWNlYL4Pk-zMsi1hGRMH8Sy5VPX3oU0mHlSZvoxLzRUJR54L6yZvcVkoO73cOldBdMJvsdtY1c";
const SHORT_KEY_TOKEN: &str = "eyJhbGciOiJSUzI1NiIsImtpZCI6ImsxIiwidHlwIjoiSldUIn0.eyJpc3MiOiJodHRwczovL3BvcnRhbC5ub3VzcmVzZWFyY2guY29tIiwiYXVkIjoiYWdlbnQ6aW5zdF8xMjMiLCJwdXJwb3NlIjoiY3Jvbl9maXJlIiwiaWF0IjoxODAwMDAwMDAwLCJleHAiOjE4MDAwMDAwOTB9.PO8SLZu8PpXi0Diz4QisUbb0eMreyjI7mLg_tUaUpD9kpUSoo50kc4TebT7fULOKWizVL9TqhEWHmoIGKDWmWDmIkIRG7V6zYbp2-sddTNiGMklnPniWwkluTRtdcAoPna3GyutGqcLUsKjjebTHHvaHNUXkdTaHWjrDvVjoYqY";

/// The scheduler's key set and a clock, both in the test's hands.
#[derive(Clone, Debug)]
struct Scheduler {
    keys: Arc<Mutex<Result<String, String>>>,
    now: Arc<AtomicI64>,
    delay: Duration,
}

impl Scheduler {
    fn serving(keys: &[Value]) -> Self {
        let scheduler = Self {
            keys: Arc::new(Mutex::new(Err("down".to_owned()))),
            now: Arc::new(AtomicI64::new(NOW)),
            delay: Duration::ZERO,
        };
        scheduler.serve(keys);
        scheduler
    }

    fn serve(&self, keys: &[Value]) {
        self.answer(Ok(json!({ "keys": keys }).to_string()));
    }

    fn answer(&self, answer: Result<String, String>) {
        *self.keys.lock().unwrap() = answer;
    }

    fn later(&self, secs: i64) {
        self.now.fetch_add(secs, Ordering::Relaxed);
    }

    fn verifier(&self) -> FireVerifier {
        self.verifier_for(PORTAL, AUDIENCE)
    }

    fn verifier_for(&self, portal: &str, audience: &str) -> FireVerifier {
        let now = Arc::clone(&self.now);
        FireVerifier::with_keys(
            FireTokenRules::new(portal, audience),
            Box::new(self.clone()),
            Arc::new(move || now.load(Ordering::Relaxed)),
        )
    }
}

impl FetchKeys for Scheduler {
    fn fetch(&self) -> Pin<Box<dyn Future<Output = Result<Vec<u8>, String>> + Send + '_>> {
        Box::pin(async {
            tokio::time::sleep(self.delay).await;
            self.keys.lock().unwrap().clone().map(String::into_bytes)
        })
    }
}

fn header() -> Value {
    json!({"alg": "RS256", "kid": "k1", "typ": "JWT"})
}

fn claims() -> Value {
    json!({"iss": PORTAL, "aud": AUDIENCE, "purpose": "cron_fire", "iat": NOW, "exp": NOW + 90})
}

/// The object with one field changed; `null` stays null.
fn with(mut object: Value, field: &str, value: Value) -> Value {
    object[field] = value;
    object
}

fn without(mut object: Value, field: &str) -> Value {
    object.as_object_mut().unwrap().remove(field);
    object
}

fn k1_token(payload: &Value) -> String {
    K1.token(&header(), payload)
}

fn claiming(field: &str, value: Value) -> String {
    k1_token(&with(claims(), field, value))
}

fn headed(field: &str, value: Value) -> String {
    K1.token(&with(header(), field, value), &claims())
}

/// What one verification did: its verdict, and how many fetches it caused.
async fn judged(verifier: &FireVerifier, token: &str) -> (Result<(), TokenRefusal>, u64) {
    let before = verifier.fetches();
    let verdict = verifier.verify(token).await;
    (verdict, verifier.fetches() - before)
}

struct Row {
    id: &'static str,
    keys: Vec<Value>,
    token: String,
    verdict: Result<(), TokenRefusal>,
    fetches: u64,
}

fn accept(id: &'static str, token: String) -> Row {
    Row {
        id,
        keys: vec![K1.jwk("k1")],
        token,
        verdict: Ok(()),
        fetches: 1,
    }
}

fn refuse(id: &'static str, token: String, why: TokenRefusal) -> Row {
    Row {
        verdict: Err(why),
        ..accept(id, token)
    }
}

impl Row {
    fn keys(self, keys: Vec<Value>) -> Self {
        Self { keys, ..self }
    }

    fn fetches(self, fetches: u64) -> Self {
        Self { fetches, ..self }
    }
}

/// The rows that take one verification with a cold cache.
#[expect(clippy::too_many_lines, reason = "a table")]
fn rows() -> Vec<Row> {
    use TokenRefusal as No;
    let good = || k1_token(&claims());
    let named = |alg: &str| with(header(), "alg", alg.into());
    let tampered = {
        let signed = good();
        let forged = message(&header(), &with(claims(), "job_id", "evil".into()));
        format!("{forged}.{}", signed.rsplit('.').next().unwrap())
    };
    let unsigned = |alg: &str| format!("{}.", message(&named(alg), &claims()));
    vec![
        accept("A1", good()),
        accept("A3", K1.token(&named("RS384"), &claims())),
        accept("A4", K1.token(&named("RS512"), &claims())),
        refuse("A5", K1.token(&named("PS256"), &claims()), No::Algorithm).fetches(0),
        accept("A6", P256.token(&named("ES256"), &claims())).keys(vec![P256.jwk("k1")]),
        accept("A7", P384.token(&named("ES384"), &claims())).keys(vec![P384.jwk("k1")]),
        refuse("A8", ED25519.token(&named("EdDSA"), &claims()), No::Algorithm)
            .keys(vec![ED25519.jwk("k1")])
            .fetches(0),
        refuse("A9", claiming("aud", "agent:inst_999".into()), No::Audience),
        refuse("A10", k1_token(&without(claims(), "aud")), No::Claim("aud")),
        refuse("A11", claiming("aud", "".into()), No::Claim("aud")),
        refuse("A12", claiming("aud", Value::Null), No::Claim("aud")),
        accept("A13", claiming("aud", json!(["other", AUDIENCE]))),
        refuse("A14", claiming("aud", json!(["other", "another"])), No::Audience),
        refuse("A15", claiming("aud", json!([AUDIENCE, 7])), No::Claim("aud")),
        refuse(
            "A16",
            claiming("aud", json!({"agent": AUDIENCE})),
            No::Claim("aud"),
        ),
        refuse("A17", claiming("aud", "Agent:inst_123".into()), No::Audience),
        refuse("A18", claiming("aud", "agent:inst_123 ".into()), No::Audience),
        refuse("A19", claiming("aud", json!([])), No::Claim("aud")),
        refuse("A20", claiming("iss", "https://evil.example".into()), No::Issuer),
        refuse("A21", k1_token(&without(claims(), "iss")), No::Claim("iss")),
        // The reference compares slashes, too, and then refuses every fire.
        accept("A22", claiming("iss", format!("{PORTAL}/").into())),
        refuse("A27", claiming("iss", json!([PORTAL])), No::Claim("iss")),
        accept("A28", claiming("exp", (NOW - 10).into())),
        accept("A29", claiming("exp", (NOW - 29).into())),
        refuse("A30", claiming("exp", (NOW - 31).into()), No::Expired),
        refuse("A30, exactly", claiming("exp", (NOW - 30).into()), No::Expired),
        refuse("A31", claiming("exp", (NOW - 3600).into()), No::Expired),
        refuse("A32", k1_token(&without(claims(), "exp")), No::Claim("exp")),
        refuse("A33", claiming("exp", Value::Null), No::Claim("exp")),
        // The reference reads numbers in strings.
        refuse(
            "A34",
            claiming("exp", (NOW + 90).to_string().into()),
            No::Claim("exp"),
        ),
        refuse("A35", claiming("exp", "soon".into()), No::Claim("exp")),
        accept("A36", claiming("exp", json!(1_800_000_090.5))),
        // The reference has no limit.
        refuse(
            "A37",
            claiming("exp", (NOW + 10 * 365 * 86_400).into()),
            No::LongLived,
        ),
        accept("A37, 15 minutes", claiming("exp", (NOW + 900).into())),
        refuse(
            "A37, a second more",
            claiming("exp", (NOW + 901).into()),
            No::LongLived,
        ),
        refuse("A37, absurd", claiming("exp", json!(1e300)), No::LongLived),
        accept("A38", claiming("nbf", (NOW + 20).into())),
        refuse("A39", claiming("nbf", (NOW + 60).into()), No::Future("nbf")),
        accept("A40", good()),
        accept("A41", claiming("iat", (NOW + 20).into())),
        refuse("A42", claiming("iat", (NOW + 60).into()), No::Future("iat")),
        accept("A43", k1_token(&without(claims(), "iat"))),
        refuse("A44", k1_token(&without(claims(), "purpose")), No::Purpose),
        refuse("A45", claiming("purpose", "agent_dashboard".into()), No::Purpose),
        refuse("A46", claiming("purpose", "CRON_FIRE".into()), No::Purpose),
        refuse("A47", claiming("purpose", json!(["cron_fire"])), No::Purpose),
        refuse("A48", claiming("purpose", "cron_fire ".into()), No::Purpose),
        refuse("A49", claiming("sub", 7.into()), No::Claim("sub")),
        refuse("A50", claiming("jti", 7.into()), No::Claim("jti")),
        accept("A51", claiming("job_id", "whatever".into())),
        refuse("A52", k1_token(&json!([1, 2])), No::Malformed).fetches(0),
        refuse("A53", unsigned("none"), No::Algorithm).fetches(0),
        refuse("A54", unsigned("None"), No::Algorithm).fetches(0),
        refuse(
            "A55",
            hs256(K1.pem().as_bytes(), &named("HS256"), &claims()),
            No::Algorithm,
        )
        .fetches(0),
        refuse("A56", hs256(b"random", &named("HS256"), &claims()), No::Algorithm).fetches(0),
        refuse("A58", OTHER.token(&header(), &claims()), No::Signature),
        refuse("A59", good(), No::WrongKey).keys(vec![P256.jwk("k1")]),
        refuse("A60", P256.token(&named("ES256"), &claims()), No::WrongKey),
        refuse(
            "A60, another curve",
            P256.token(&named("ES256"), &claims()),
            No::WrongKey,
        )
        .keys(vec![P384.jwk("k1")]),
        refuse("A61", good()[..good().len() - 8].to_owned(), No::Signature),
        refuse("A62", tampered, No::Signature),
        // The reference accepts short keys.
        refuse("A63", SHORT_KEY_TOKEN.to_owned(), No::UnknownKid)
            .keys(vec![
                json!({"kty": "RSA", "kid": "k1", "n": SHORT_KEY, "e": "AQAB"}),
            ])
            .fetches(2),
        refuse(
            "A64",
            OTHER.token(
                &json!({"alg": "RS256", "kid": "x", "jwk": OTHER.jwk("x")}),
                &claims(),
            ),
            No::UnknownKid,
        )
        .fetches(2),
        accept("A65", headed("jku", "https://evil.example/keys".into())),
        refuse("A66", headed("crit", json!(["exp"])), No::Critical).fetches(0),
        accept("A67", headed("typ", "at+jwt".into())),
        accept("A68", K1.token(&without(header(), "typ"), &claims())),
        refuse("A69", headed("kid", "unknown".into()), No::UnknownKid).fetches(2),
        // The reference fetches twice, and refuses too.
        refuse("A71", K1.token(&without(header(), "kid"), &claims()), No::NoKid).fetches(0),
        refuse("A72", K1.token(&without(header(), "kid"), &claims()), No::NoKid)
            .keys(vec![without(K1.jwk("k1"), "kid")])
            .fetches(0),
        accept("A77", good()).keys(vec![OTHER.jwk("k0"), K1.jwk("k1")]),
        refuse("A78", good(), No::UnknownKid)
            .keys(vec![with(K1.jwk("k1"), "use", "enc".into())])
            .fetches(2),
        accept("A79", good()).keys(vec![without(K1.jwk("k1"), "use")]),
        // The reference ignores the algorithm of the key.
        refuse("A80", good(), No::WrongKey).keys(vec![with(K1.jwk("k1"), "alg", "RS512".into())]),
        accept("A80, the same", good()).keys(vec![with(K1.jwk("k1"), "alg", "RS256".into())]),
        accept("A81", good()).keys(vec![
            json!({"kty": "RSA", "kid": "broken", "n": "!", "e": "AQAB"}),
            json!("no object"),
            json!({"kty": "oct", "kid": "k1", "k": "c2VjcmV0"}),
            K1.jwk("k1"),
        ]),
        refuse("A82", good(), No::UnknownKid).keys(vec![]).fetches(2),
        refuse("A92", String::new(), No::Missing).fetches(0),
        refuse("A93", "garbage".to_owned(), No::Malformed).fetches(0),
        refuse("A94", "a.b".to_owned(), No::Malformed).fetches(0),
        refuse("A95", format!("{}.x.y", good()), No::Malformed).fetches(0),
        refuse("A96", good().replacen('.', " .", 1), No::Malformed).fetches(0),
        refuse(
            "longer than any token",
            good() + &"A".repeat(8 * 1024),
            No::TooLong,
        )
        .fetches(0),
    ]
}

#[tokio::test]
async fn every_token_of_the_table_gets_its_verdict() {
    let mut wrong = Vec::new();
    let rows = rows();
    for row in &rows {
        let verifier = Scheduler::serving(&row.keys).verifier();
        let (verdict, fetches) = judged(&verifier, &row.token).await;
        if (verdict, fetches) != (row.verdict, row.fetches) {
            wrong.push(format!(
                "{}: {verdict:?} with {fetches} fetches, wanted {:?} with {}",
                row.id, row.verdict, row.fetches
            ));
        }
    }
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
    assert!(rows.len() > 80, "only {} rows", rows.len());
}

#[tokio::test]
async fn a_warm_cache_is_not_fetched_again() {
    let scheduler = Scheduler::serving(&[K1.jwk("k1")]);
    let verifier = scheduler.verifier();
    assert_eq!(judged(&verifier, &k1_token(&claims())).await, (Ok(()), 1), "A1");
    assert_eq!(judged(&verifier, &k1_token(&claims())).await, (Ok(()), 0), "A2");
    scheduler.serve(&[]);
    assert_eq!(judged(&verifier, &k1_token(&claims())).await, (Ok(()), 0), "A75");
    scheduler.serve(&[OTHER.jwk("k1")]);
    let reused = OTHER.token(&header(), &claims());
    let bad_signature = (Err(TokenRefusal::Signature), 0);
    assert_eq!(judged(&verifier, &reused).await, bad_signature, "A76");
    scheduler.answer(Err("HTTP 403".to_owned()));
    assert_eq!(judged(&verifier, &k1_token(&claims())).await, (Ok(()), 0), "A88");
}

#[tokio::test]
async fn the_issuer_counts_without_slashes_and_is_never_skipped() {
    let scheduler = Scheduler::serving(&[K1.jwk("k1")]);
    let slashed = format!("{PORTAL}/");
    let token = k1_token(&claims());
    let verdict =
        async |portal: &str, token: &str| judged(&scheduler.verifier_for(portal, AUDIENCE), token).await;
    assert_eq!(verdict(&slashed, &token).await, (Ok(()), 1), "A23");
    let both = claiming("iss", slashed.clone().into());
    assert_eq!(verdict(&slashed, &both).await, (Ok(()), 1), "A24");
    let refused = (Err(TokenRefusal::NotConfigured), 0);
    assert_eq!(verdict("", &token).await, refused, "A25 and A26");
    assert_eq!(verdict("/", &claiming("iss", "".into())).await, refused, "A26");
    let nobody = scheduler.verifier_for(PORTAL, "");
    assert_eq!(judged(&nobody, &token).await, refused, "A91");
}

#[tokio::test]
async fn a_pinned_key_needs_no_fetch_and_no_key_id() {
    let verifier = |pem: String| {
        let source = KeySource::parse(&pem).expect("a PEM key is a source");
        let rules = FireTokenRules::new(PORTAL, AUDIENCE);
        FireVerifier::new(rules, source, &egress()).unwrap()
    };
    // A pinned key is used with the system's clock.
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let claims = with(with(claims(), "exp", (now + 90).into()), "iat", now.into());
    let pinned = verifier(K1.pem());
    let unnamed = K1.token(&without(header(), "kid"), &claims);
    assert_eq!(judged(&pinned, &unnamed).await, (Ok(()), 0), "A97");
    let es256 = P256.token(&with(header(), "alg", "ES256".into()), &claims);
    assert_eq!(
        judged(&verifier(P256.pem()), &es256).await,
        (Ok(()), 0),
        "A97, EC"
    );
    assert_eq!(judged(&pinned, &es256).await, (Err(TokenRefusal::WrongKey), 0));
    let bad_signature = (Err(TokenRefusal::Signature), 0);
    assert_eq!(
        judged(&verifier(OTHER.pem()), &unnamed).await,
        bad_signature,
        "A98"
    );
    let shared = hs256(
        K1.pem().as_bytes(),
        &with(header(), "alg", "HS256".into()),
        &claims,
    );
    assert_eq!(
        judged(&pinned, &shared).await,
        (Err(TokenRefusal::Algorithm), 0),
        "A57"
    );
}

#[test]
fn keys_come_from_https_or_loopback() {
    let parse = |setting: &str| KeySource::parse(setting).map(drop);
    assert_eq!(parse(""), Err(KeySourceError::Empty), "A90");
    assert_eq!(parse("file:///etc/passwd"), Err(KeySourceError::Unusable), "A99");
    assert_eq!(parse("HTTPS://portal.example/jwks"), Ok(()), "A100");
    assert_eq!(
        parse("HTTP://portal.example/jwks"),
        Err(KeySourceError::Plaintext),
        "A100"
    );
    assert_eq!(parse("http://127.0.0.1:8080/jwks"), Ok(()));
    assert_eq!(parse("http://localhost/jwks"), Ok(()));
    assert_eq!(parse("http://10.0.0.1/jwks"), Err(KeySourceError::Plaintext));
    for nonsense in ["keys", "-----BEGIN PUBLIC KEY-----", "https://", "data:,x"] {
        assert_eq!(parse(nonsense), Err(KeySourceError::Unusable), "{nonsense}");
    }
}

#[tokio::test]
async fn unknown_keys_force_one_fetch_every_half_minute() {
    let scheduler = Scheduler::serving(&[K1.jwk("k1")]);
    let verifier = scheduler.verifier();
    let unknown = headed("kid", "unknown".into());
    let refused = |fetches| (Err(TokenRefusal::UnknownKid), fetches);
    assert_eq!(judged(&verifier, &unknown).await, refused(2), "A69");
    assert_eq!(judged(&verifier, &unknown).await, refused(0), "A70");
    scheduler.later(29);
    assert_eq!(judged(&verifier, &unknown).await, refused(0));
    scheduler.later(1);
    assert_eq!(judged(&verifier, &unknown).await, refused(1));
    assert_eq!(judged(&verifier, &k1_token(&claims())).await, (Ok(()), 0));
}

#[tokio::test]
async fn a_new_key_works_immediately_and_the_old_one_not_any_more() {
    let scheduler = Scheduler::serving(&[K1.jwk("k1")]);
    let verifier = scheduler.verifier();
    assert_eq!(judged(&verifier, &k1_token(&claims())).await, (Ok(()), 1));
    scheduler.serve(&[OTHER.jwk("k2")]);
    let rotated = OTHER.token(&with(header(), "kid", "k2".into()), &claims());
    assert_eq!(judged(&verifier, &rotated).await, (Ok(()), 1), "A73");
    let old = judged(&verifier, &k1_token(&claims())).await;
    assert_eq!(old, (Err(TokenRefusal::UnknownKid), 0), "A74");
}

#[tokio::test]
async fn what_is_no_key_set_counts_as_an_outage() {
    let token = k1_token(&claims());
    for (row, answer) in [
        ("A83", Err("HTTP 403")),
        ("A84", Err("HTTP 500")),
        ("A85", Ok("<html>")),
        ("A86", Ok("[]")),
        ("A86, no list", Ok(r#"{"keys": {}}"#)),
        ("A87", Err("connection refused")),
    ] {
        let scheduler = Scheduler::serving(&[]);
        scheduler.answer(answer.map(str::to_owned).map_err(str::to_owned));
        let verifier = scheduler.verifier();
        let refused = |fetches| (Err(TokenRefusal::NoKeys), fetches);
        assert_eq!(judged(&verifier, &token).await, refused(1), "{row}");
        assert_eq!(judged(&verifier, &token).await, refused(0), "{row}: no storm");
        scheduler.later(2);
        scheduler.serve(&[K1.jwk("k1")]);
        assert_eq!(judged(&verifier, &token).await, (Ok(()), 1), "{row}: over");
    }
}

#[tokio::test]
async fn an_old_key_set_survives_an_outage_for_a_day() {
    let scheduler = Scheduler::serving(&[K1.jwk("k1")]);
    let verifier = scheduler.verifier();
    let token = |age: i64| {
        let times = with(claims(), "exp", (NOW + age + 90).into());
        k1_token(&with(times, "iat", (NOW + age).into()))
    };
    assert_eq!(judged(&verifier, &token(0)).await, (Ok(()), 1));
    scheduler.answer(Err("HTTP 403".to_owned()));
    scheduler.later(300);
    // The reference refuses here.
    assert_eq!(judged(&verifier, &token(300)).await, (Ok(()), 1), "A89");
    assert_eq!(judged(&verifier, &token(300)).await, (Ok(()), 0), "A89 again");
    let unknown = headed("kid", "unknown".into());
    let refused = |fetches| (Err(TokenRefusal::NoKeys), fetches);
    assert_eq!(judged(&verifier, &unknown).await, refused(0));
    scheduler.later(24 * 3600 - 301);
    assert_eq!(judged(&verifier, &token(24 * 3600 - 1)).await, (Ok(()), 1));
    scheduler.later(1);
    let day = 24 * 3600;
    let refused_first = judged(&verifier, &token(day)).await;
    assert_eq!(refused_first.0, Err(TokenRefusal::NoKeys));
    scheduler.later(2);
    scheduler.serve(&[K1.jwk("k1")]);
    assert_eq!(judged(&verifier, &token(day + 2)).await, (Ok(()), 1));
}

#[tokio::test]
async fn a_clock_set_back_expires_the_keys() {
    let scheduler = Scheduler::serving(&[K1.jwk("k1")]);
    let verifier = scheduler.verifier();
    assert_eq!(judged(&verifier, &k1_token(&claims())).await, (Ok(()), 1));
    scheduler.later(-3600);
    let earlier = with(claims(), "exp", (NOW - 3600 + 90).into());
    let earlier = k1_token(&without(earlier, "iat"));
    assert_eq!(judged(&verifier, &earlier).await, (Ok(()), 1));
}

#[tokio::test(start_paused = true)]
async fn simultaneous_fires_share_one_fetch() {
    let mut scheduler = Scheduler::serving(&[K1.jwk("k1")]);
    scheduler.delay = Duration::from_secs(2);
    let verifier = Arc::new(scheduler.verifier());
    let token = k1_token(&claims());
    let mut fires = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let (verifier, token) = (Arc::clone(&verifier), token.clone());
        fires.spawn(async move { verifier.verify(&token).await });
    }
    while let Some(verdict) = fires.join_next().await {
        assert_eq!(verdict.unwrap(), Ok(()));
    }
    assert_eq!(verifier.fetches(), 1);
}

#[tokio::test]
async fn the_key_set_is_fetched_politely_and_within_bounds() {
    let keys = json!({"keys": [K1.jwk("k1")]}).to_string();
    let stub = Stub::start(move |seen| match seen.path() {
        "/jwks" => reply(200, keys.clone()),
        "/large" => reply(200, "x".repeat(300 * 1024)),
        "/gone" => reply(404, ""),
        _ => reply_with(302, &[("location", "http://127.0.0.1:1/")], ""),
    })
    .await;
    let fetch = async |path: &str| {
        let url = stub.url(path).parse().unwrap();
        let http = jwks_client::client(&egress(), &url, 256 * 1024).unwrap();
        jwks_client::fetch(&http, &url)
            .await
            .map_err(|error| error.to_string())
    };
    assert!(fetch("/jwks").await.is_ok());
    let seen = &stub.seen()[0];
    assert_eq!(seen.header("accept"), Some("application/json"));
    assert!(
        seen.header("user-agent")
            .is_some_and(|agent| agent.contains("hermes-relay")),
        "{seen:?}"
    );
    assert!(fetch("/large").await.unwrap_err().contains("longer than"));
    assert_eq!(fetch("/gone").await.unwrap_err(), "it returned HTTP 404");
    assert!(fetch("/moved").await.unwrap_err().contains("not followed"));
}
