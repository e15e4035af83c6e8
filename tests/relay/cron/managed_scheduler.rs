//! The embedded managed scheduler fires what is armed, over real sockets, with tokens that the relay verifies.

use std::time::{Duration, SystemTime};

use crate::support::dev::{EmbeddedScheduler, FireAttempt, SchedulerFault, SchedulerSettings};
use hermes_relay::cron::fire::FireAdmission;
use hermes_relay::net::chronos::ChronosClient;
use secrecy::SecretString;
use serde_json::Value;
use tempfile::TempDir;

use super::fire_endpoint::FireRig;
use crate::support::http_stub::egress;
use crate::support::wait::eventually;

/// A managed scheduler and a relay that serves fires for it.
struct SchedulerRig {
    managed: EmbeddedScheduler,
    rig: FireRig,
    client: ChronosClient,
    token: SecretString,
}

impl SchedulerRig {
    async fn start() -> Self {
        let managed = EmbeddedScheduler::start(SchedulerSettings::default())
            .await
            .unwrap();
        let rig = FireRig::with(&managed.portal_url(), managed.audience(), &managed.jwks_url()).await;
        let home = TempDir::new().unwrap();
        managed.write_login(home.path()).unwrap();
        let login: Value =
            serde_json::from_slice(&std::fs::read(home.path().join("auth.json")).unwrap()).unwrap();
        let token = login["providers"]["nous"]["access_token"].as_str().unwrap();
        let client =
            ChronosClient::new(&egress(), &managed.portal_url(), &format!("http://{}", rig.fires)).unwrap();
        Self {
            managed,
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
            let attempts = self.managed.view().attempts;
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
    let managed = SchedulerRig::start().await;
    let fire_at = managed.arm("a", 1).await;
    let attempts = managed.attempts(1).await;
    assert_eq!(
        (attempts[0].status, attempts[0].answer.as_str()),
        (Some(202), "accepted")
    );
    assert_eq!(attempts[0].fire_at, fire_at);
    let admitted = managed.rig.admitted();
    assert_eq!(admitted[0].fire_at.as_deref(), Some(fire_at.as_str()));
    eventually("the alarm is gone", async || {
        managed.managed.view().armed.is_empty()
    })
    .await;
    managed.rig.relay.stop().await;
}

#[tokio::test]
async fn a_fire_that_is_deferred_comes_again_when_it_was_asked_to() {
    let managed = SchedulerRig::start().await;
    managed.rig.answer(FireAdmission::Early {
        retry_after: Duration::from_secs(2),
    });
    let began = std::time::Instant::now();
    managed.arm("a", 0).await;
    managed.attempts(1).await;
    managed.rig.answer(FireAdmission::Accepted);
    let attempts = managed.attempts(2).await;
    assert!(began.elapsed() >= Duration::from_secs(2), "it waited as asked");
    let statuses: Vec<_> = attempts.iter().map(|attempt| attempt.status).collect();
    assert_eq!(statuses, [Some(503), Some(202)]);
    managed.rig.relay.stop().await;
}

#[tokio::test]
async fn new_keys_are_used_without_a_pause_and_an_outage_of_keys_is_survived() {
    let managed = SchedulerRig::start().await;
    managed.arm("a", 3600).await;
    assert_eq!(managed.managed.fire_now("a").await.unwrap().status, Some(202));
    let old = managed.managed.fire_token().unwrap();
    managed.managed.rotate_keys().unwrap();
    assert_eq!(
        managed.managed.fire_now("a").await.unwrap().status,
        Some(202),
        "the new key"
    );
    assert_eq!(managed.managed.key_fetches(), 2);
    let bearer = format!("Bearer {old}");
    let refused = super::fire_endpoint::post(managed.rig.fires, &[("Authorization", &bearer)], "{}").await;
    assert_eq!(refused.status, 401, "the old key");
    managed.managed.fault(SchedulerFault::KeyOutage);
    assert_eq!(
        managed.managed.fire_now("a").await.unwrap().status,
        Some(202),
        "the keys are known"
    );
    assert_eq!(managed.managed.fire_now("unknown").await, None);
    managed.rig.relay.stop().await;
}

#[tokio::test]
async fn firing_twice_asks_twice() {
    let managed = SchedulerRig::start().await;
    managed.arm("a", 3600).await;
    let both = managed.managed.fire_twice("a").await.unwrap();
    assert!(
        both.iter().all(|attempt| attempt.status == Some(202)),
        "the stub admits both"
    );
    assert_eq!(managed.rig.admitted().len(), 2);
    assert_eq!(managed.managed.view().armed.len(), 1, "the alarm stays");
    managed.managed.forget_arms();
    assert_eq!(managed.managed.fire_twice("a").await, None);
    managed.rig.relay.stop().await;
}

#[tokio::test]
async fn only_its_own_login_may_arm() {
    let managed = SchedulerRig::start().await;
    let stranger = SecretString::from("stranger");
    let error = managed.client.list(&stranger).await.unwrap_err();
    assert!(error.is_unauthorized(), "{error}");
    assert!(managed.client.list(&managed.token).await.is_ok());
    managed.rig.relay.stop().await;
}
