//! The embedded NAS fires what is armed, over real sockets, with tokens that the relay verifies.

use std::time::{Duration, SystemTime};

use crate::support::dev::{FireAttempt, Nas, NasFault, NasSettings};
use hermes_relay::cron::fire::FireAdmission;
use hermes_relay::net::chronos::ChronosClient;
use secrecy::SecretString;
use serde_json::Value;
use tempfile::TempDir;

use super::fire_endpoint::FireRig;
use crate::support::http_stub::egress;
use crate::support::wait::eventually;

/// A NAS and a relay that serves fires for it.
struct NasRig {
    nas: Nas,
    rig: FireRig,
    client: ChronosClient,
    token: SecretString,
}

impl NasRig {
    async fn start() -> Self {
        let nas = Nas::start(NasSettings::default()).await.unwrap();
        let rig = FireRig::with(&nas.portal_url(), nas.audience(), &nas.jwks_url()).await;
        let home = TempDir::new().unwrap();
        nas.write_login(home.path()).unwrap();
        let login: Value =
            serde_json::from_slice(&std::fs::read(home.path().join("auth.json")).unwrap()).unwrap();
        let token = login["providers"]["nous"]["access_token"].as_str().unwrap();
        let client =
            ChronosClient::new(&egress(), &nas.portal_url(), &format!("http://{}", rig.fires)).unwrap();
        Self {
            nas,
            rig,
            client,
            token: SecretString::from(token),
        }
    }

    /// Arms a job so many seconds from now and returns the time.
    async fn arm(&self, job: &str, secs: u64) -> String {
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap() + Duration::from_secs(secs);
        let fire_at = httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + now);
        let fire_at = iso(&fire_at);
        self.client.provision(&self.token, job, &fire_at).await.unwrap();
        fire_at
    }

    async fn attempts(&self, count: usize) -> Vec<FireAttempt> {
        eventually("attempts to fire", async || {
            let attempts = self.nas.view().attempts;
            if attempts.len() >= count {
                Ok(attempts)
            } else {
                Err(attempts)
            }
        })
        .await
    }
}

/// `Sun, 06 Nov 1994 08:49:37 GMT` as `1994-11-06T08:49:37+00:00`.
fn iso(date: &str) -> String {
    const MONTHS: &str = "JanFebMarAprMayJunJulAugSepOctNovDec";
    let parts: Vec<&str> = date.split(' ').collect();
    let month = MONTHS.find(parts[2]).unwrap() / 3 + 1;
    format!("{}-{month:02}-{}T{}+00:00", parts[3], parts[1], parts[4])
}

#[tokio::test]
async fn an_alarm_fires_at_its_time_and_is_gone() {
    let nas = NasRig::start().await;
    let fire_at = nas.arm("a", 1).await;
    let attempts = nas.attempts(1).await;
    assert_eq!(
        (attempts[0].status, attempts[0].answer.as_str()),
        (Some(202), "accepted")
    );
    assert_eq!(attempts[0].fire_at, fire_at);
    let admitted = nas.rig.admitted();
    assert_eq!(admitted[0].fire_at.as_deref(), Some(fire_at.as_str()));
    eventually("the alarm is gone", async || nas.nas.view().armed.is_empty()).await;
    nas.rig.relay.stop().await;
}

#[tokio::test]
async fn a_fire_that_is_deferred_comes_again_when_it_was_asked_to() {
    let nas = NasRig::start().await;
    nas.rig.answer(FireAdmission::Early {
        retry_after: Duration::from_secs(2),
    });
    let began = std::time::Instant::now();
    nas.arm("a", 0).await;
    nas.attempts(1).await;
    nas.rig.answer(FireAdmission::Accepted);
    let attempts = nas.attempts(2).await;
    assert!(began.elapsed() >= Duration::from_secs(2), "it waited as asked");
    let statuses: Vec<_> = attempts.iter().map(|attempt| attempt.status).collect();
    assert_eq!(statuses, [Some(503), Some(202)]);
    nas.rig.relay.stop().await;
}

#[tokio::test]
async fn new_keys_are_used_without_a_pause_and_an_outage_of_keys_is_survived() {
    let nas = NasRig::start().await;
    nas.arm("a", 3600).await;
    assert_eq!(nas.nas.fire_now("a").await.unwrap().status, Some(202));
    let old = nas.nas.fire_token().unwrap();
    nas.nas.rotate_keys().unwrap();
    assert_eq!(
        nas.nas.fire_now("a").await.unwrap().status,
        Some(202),
        "the new key"
    );
    assert_eq!(nas.nas.key_fetches(), 2);
    let bearer = format!("Bearer {old}");
    let refused = super::fire_endpoint::post(nas.rig.fires, &[("Authorization", &bearer)], "{}").await;
    assert_eq!(refused.status, 401, "the old key");
    nas.nas.fault(NasFault::KeyOutage);
    assert_eq!(
        nas.nas.fire_now("a").await.unwrap().status,
        Some(202),
        "the keys are known"
    );
    assert_eq!(nas.nas.fire_now("unknown").await, None);
    nas.rig.relay.stop().await;
}

#[tokio::test]
async fn firing_twice_asks_twice() {
    let nas = NasRig::start().await;
    nas.arm("a", 3600).await;
    let both = nas.nas.fire_twice("a").await.unwrap();
    assert!(
        both.iter().all(|attempt| attempt.status == Some(202)),
        "the stub admits both"
    );
    assert_eq!(nas.rig.admitted().len(), 2);
    assert_eq!(nas.nas.view().armed.len(), 1, "the alarm stays");
    nas.nas.forget_arms();
    assert_eq!(nas.nas.fire_twice("a").await, None);
    nas.rig.relay.stop().await;
}

#[tokio::test]
async fn only_its_own_login_may_arm() {
    let nas = NasRig::start().await;
    let stranger = SecretString::from("stranger");
    let error = nas.client.list(&stranger).await.unwrap_err();
    assert!(error.is_unauthorized(), "{error}");
    assert!(nas.client.list(&nas.token).await.is_ok());
    nas.rig.relay.stop().await;
}
