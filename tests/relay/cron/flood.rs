//! Forged fires in great numbers: few fetches of keys, no growing memory, and no delay for anybody else.
//!
//! `FORGED_FIRES=100000` runs the whole number; without it, a few thousand.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hermes_relay::cron::fire_token::{FireTokenRules, TokenRefusal};
use hermes_relay::cron::fire_verifier::FireVerifier;
use hermes_relay::cron::jwks::KeySource;
use serde_json::json;
use tokio::task::JoinSet;

use super::fire_endpoint::{FireRig, forged, post, token};
use super::signing::{P256, encode, message};
use crate::support::alone::is_alone;
use crate::support::http_stub::{Stub, egress, reply};
use crate::support::load::measuring_blocking;

fn wanted(few: usize) -> usize {
    std::env::var("FORGED_FIRES")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(few)
}

/// Bytes of memory that this process holds.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// A well-formed token with a made-up key id and signature.
fn stranger(number: usize) -> String {
    let header = json!({"alg": "ES256", "kid": format!("k{number}")});
    let claims = json!({"iss": "https://portal.example", "aud": "agent:tested", "exp": 4_000_000_000_u64});
    format!("{}.{}", message(&header, &claims), encode([7; 64]))
}

#[test]
fn forged_tokens_cause_next_to_no_fetches() {
    // Other tests take memory, too.
    if is_alone("cron::flood::forged_tokens_cause_next_to_no_fetches") {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(many_forged_tokens());
    }
}

async fn many_forged_tokens() {
    let keys = json!({"keys": [P256.jwk("k1")]}).to_string();
    let stub = Stub::start(move |_| reply(200, keys.clone())).await;
    let source = KeySource::parse(&stub.url("/jwks")).unwrap();
    let rules = FireTokenRules::new("https://portal.example", "agent:tested");
    let verifier = FireVerifier::new(rules, source, &egress()).unwrap();
    assert_eq!(verifier.verify(&token()).await, Ok(()));
    let began = Instant::now();
    let before = resident();
    let bad_signature = forged();
    for number in 0..wanted(4_000) {
        let verdict = match number % 2 {
            0 => verifier.verify(&stranger(number)).await,
            _ => verifier.verify(&bad_signature).await,
        };
        let expected = [TokenRefusal::UnknownKid, TokenRefusal::Signature][number % 2];
        assert_eq!(verdict, Err(expected));
    }
    let elapsed = began.elapsed();
    let allowed = 2 + elapsed.as_secs() / 30;
    assert!(
        verifier.fetches() <= allowed,
        "{} fetches in {elapsed:?}",
        verifier.fetches()
    );
    let grown = resident().saturating_sub(before);
    assert!(grown < 32 << 20, "{grown} bytes more");
    assert_eq!(
        verifier.verify(&token()).await,
        Ok(()),
        "a real fire still passes"
    );
}

#[test]
fn a_flood_of_forged_fires_holds_up_neither_chats_nor_memory() {
    let _measuring = measuring_blocking();
    if is_alone("cron::flood::a_flood_of_forged_fires_holds_up_neither_chats_nor_memory") {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(2).enable_all().build();
        runtime.unwrap().block_on(flood_of_forged_fires());
    }
}

async fn flood_of_forged_fires() {
    let (rig, keys) = FireRig::start().await;
    rig.relay.deliver("quiet", "m0", "hello").await;
    rig.relay.replies("quiet", 1).await;
    let before = resident();
    let total = wanted(3_000);
    let (address, mut senders) = (rig.fires, JoinSet::new());
    let bad_signature = Arc::new(forged());
    for sender in 0..16 {
        let bad_signature = Arc::clone(&bad_signature);
        senders.spawn(async move {
            let mut seen = std::collections::BTreeMap::new();
            for number in (sender..total).step_by(16) {
                let made_up = stranger(number);
                let token = if number % 2 == 0 {
                    &made_up
                } else {
                    &*bad_signature
                };
                let bearer = format!("Bearer {token}");
                let answer = post(address, &[("Authorization", &bearer)], r#"{"job_id": "a"}"#).await;
                *seen.entry(answer.status).or_insert(0_usize) += 1;
            }
            seen
        });
    }
    let mut turns = Vec::new();
    for number in 1..=10 {
        let began = Instant::now();
        rig.relay.deliver("quiet", &format!("m{number}"), "hello").await;
        rig.relay.replies("quiet", number + 1).await;
        turns.push(began.elapsed());
    }
    // A busy machine holds up one or the other; what waits for the flood to end holds up all of them.
    turns.sort();
    let usual = turns[turns.len() / 2];
    let mut seen = std::collections::BTreeMap::new();
    while let Some(sent) = senders.join_next().await {
        for (status, count) in sent.unwrap() {
            *seen.entry(status).or_insert(0_usize) += count;
        }
    }
    let answered: usize = seen.values().sum();
    assert_eq!(answered, total);
    assert!(seen.keys().all(|status| matches!(status, 401 | 429)), "{seen:?}");
    assert!(seen[&401] >= 200, "{seen:?}");
    assert!(keys.seen().len() <= 4, "{} fetches", keys.seen().len());
    assert_eq!(rig.admitted(), []);
    let grown = resident().saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes more");
    assert!(usual < Duration::from_secs(2), "turns took {turns:?}");
    rig.relay.stop().await;
}
