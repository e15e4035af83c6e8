//! Refused credentials: when the relay tries again, how soon, and when it gives up.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::support::dev::{Connector, DialRule, TokenCheck, When, text_event};
use http::StatusCode;
use secrecy::ExposeSecret as _;
use tokio::time::{Instant, sleep, sleep_until};

use crate::link::handshake::connector;
use crate::support::relay_process::{RelayProcess, SOON, Setup};

/// The least of what `refused_retry_secs: 8` allows at first, a little less for the way.
const SLOW: Duration = Duration::from_millis(700);

pub(crate) async fn dials(connector: &Connector, count: usize) {
    let what = format!("{count} dials");
    connector
        .until(&what, SOON, |connector| {
            (connector.dials().len() >= count).then_some(())
        })
        .await
        .unwrap();
}

/// From each dial to the next.
pub(crate) fn gaps(connector: &Connector) -> Vec<Duration> {
    let dials = connector.dials();
    dials
        .windows(2)
        .map(|pair| pair[1].at.duration_since(pair[0].at))
        .collect()
}

async fn answers(connector: &Connector, message_id: &str) {
    connector
        .deliver(&text_event("discord", "c1", message_id, "still there?"))
        .unwrap();
    connector.reply_to(SOON, message_id).await.unwrap();
}

async fn started(setup: &Setup, connector: &Connector) -> RelayProcess {
    let relay = setup.start();
    connector.wait_connected(SOON).await.unwrap();
    relay
}

/// Waits until a token minted now differs from the last one shown.
async fn another_second(connector: &Connector) {
    let minted = connector.dials().last().unwrap().expires_at.unwrap() - 300;
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    while i64::try_from(now()).unwrap() <= minted {
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn credentials_refused_before_any_handshake_are_tried_again_slowly_and_for_ever() {
    let connector = connector().await;
    connector.revoke();
    let mut relay = Setup::for_connector(&connector)
        .setting("link.refused_retry_secs", "8")
        .start();
    dials(&connector, 3).await;
    assert!(
        gaps(&connector).iter().all(|gap| *gap >= SLOW),
        "{:?}",
        gaps(&connector)
    );
    assert!(!relay.has_ended());
    let line = relay.wait_for_log("does not accept our credentials").await;
    assert!(line.contains("hermes-relay enroll"), "{line}");
    connector.reinstate();
    // A refusal of the hello, before any descriptor, is the same.
    connector.unauthorized_next(1, "unauthorized", When::AfterHello);
    connector.wait_connected(SOON).await.unwrap();
    answers(&connector, "m1").await;
    relay.stop().await;
}

#[tokio::test]
async fn a_token_found_expired_after_a_handshake_means_a_plain_reconnect() {
    let connector = connector().await;
    let mut relay = started(&Setup::for_connector(&connector), &connector).await;
    for round in 1..=4 {
        connector.close_with(4401, "expired");
        dials(&connector, round + 1).await;
        connector.wait_connected(SOON).await.unwrap();
    }
    answers(&connector, "m1").await;
    assert!(!relay.has_ended());
    relay.stop().await;
}

#[tokio::test]
async fn a_first_refusal_of_working_credentials_is_answered_by_one_immediate_dial_with_a_fresh_token() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector)
        .setting("link.backoff_min_ms", "120000")
        .setting("link.backoff_max_ms", "120000");
    let relay = started(&setup, &connector).await;
    another_second(&connector).await;
    connector.close_with(4401, "unauthorized");
    dials(&connector, 2).await;
    answers(&connector, "m1").await;
    let dials = connector.dials();
    let bearer = |index: usize| dials[index].bearer.as_ref().unwrap().expose_secret();
    assert_ne!(bearer(0), bearer(1));
    assert_eq!(dials[1].token, TokenCheck::Valid);
    let after = dials[1].at.duration_since(connector.closed()[0].at);
    assert!(after < Duration::from_secs(5), "immediately, not after {after:?}");
    assert_eq!(dials.len(), 2);
    relay.stop().await;
}

#[tokio::test]
async fn a_second_refusal_on_the_fresh_token_ends_the_relay_with_77_and_no_further_dial() {
    let connector = connector().await;
    let mut relay = started(&Setup::for_connector(&connector), &connector).await;
    connector.revoke();
    assert_eq!(relay.exit_code(SOON).await, 77);
    let log = relay.stderr();
    assert!(log.contains("error: the connector has revoked this gateway (unauthorized)"));
    assert!(log.contains("hint: enroll again with `hermes-relay enroll`"));
    assert_eq!(connector.dials().len(), 2);
}

#[tokio::test]
async fn a_refusal_of_the_fresh_token_counts_even_after_its_descriptor() {
    let connector = connector().await;
    let mut relay = started(&Setup::for_connector(&connector), &connector).await;
    connector.unauthorized_next(1, "unauthorized", When::AfterDescriptor);
    connector.close_with(4401, "unauthorized");
    assert_eq!(relay.exit_code(SOON).await, 77);
    assert_eq!(connector.dials().len(), 2);
}

#[tokio::test]
async fn a_revoked_relay_that_is_to_stay_stays_and_dials_no_more() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector).setting("link.on_revoked", "stay");
    let mut relay = started(&setup, &connector).await;
    connector.revoke();
    let line = relay.wait_for_log("has revoked this gateway").await;
    assert!(line.contains("hermes-relay enroll"), "{line}");
    // Several times the longest backoff.
    sleep(Duration::from_millis(1500)).await;
    assert_eq!(connector.dials().len(), 2);
    assert!(!relay.has_ended());
    relay.stop().await;
}

#[tokio::test]
async fn a_network_failure_during_the_retry_does_not_use_it_up() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector).setting("link.connect_timeout_secs", "1");
    let mut relay = started(&setup, &connector).await;
    connector.answer_next_dials(1, &DialRule::Hang);
    let status = StatusCode::BAD_GATEWAY;
    let refused = DialRule::Refuse {
        status,
        retry_after: None,
    };
    connector.answer_next_dials(1, &refused);
    connector.unauthorized_next(1, "unauthorized", When::AtOnce);
    connector.close_with(4401, "unauthorized");
    assert_eq!(relay.exit_code(SOON).await, 77, "the retry was still due");
    assert_eq!(connector.dials().len(), 4);
}

#[tokio::test]
async fn an_expired_token_during_the_retry_clears_the_suspicion() {
    let connector = connector().await;
    let relay = started(&Setup::for_connector(&connector), &connector).await;
    connector.unauthorized_next(1, "expired", When::AtOnce);
    connector.close_with(4401, "unauthorized");
    dials(&connector, 3).await;
    connector.wait_connected(SOON).await.unwrap();
    // A first refusal again: one more chance.
    connector.close_with(4401, "unauthorized");
    dials(&connector, 4).await;
    answers(&connector, "m1").await;
    relay.stop().await;
}

#[tokio::test]
async fn a_connection_that_has_held_makes_a_later_refusal_the_first_again() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector).setting("link.stable_secs", "1");
    let relay = started(&setup, &connector).await;
    for round in 1..=2 {
        sleep_until(Instant::now() + Duration::from_millis(2500)).await;
        connector.close_with(4401, "unauthorized");
        dials(&connector, round + 1).await;
        connector.wait_connected(SOON).await.unwrap();
    }
    answers(&connector, "m1").await;
    relay.stop().await;
}

#[tokio::test]
async fn credentials_refused_at_the_upgrade_are_no_revocation_and_tried_again_slowly() {
    for status in [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN] {
        let connector = connector().await;
        let setup = Setup::for_connector(&connector).setting("link.refused_retry_secs", "8");
        let mut relay = started(&setup, &connector).await;
        connector.refuse_dials(status, None);
        connector.drop_sockets();
        dials(&connector, 3).await;
        assert!(gaps(&connector)[1] >= SLOW, "{:?}", gaps(&connector));
        let line = relay.wait_for_log("does not accept our credentials").await;
        assert!(line.contains(status.as_str()), "{line}");
        assert!(!relay.has_ended());
        connector.accept_dials();
        answers(&connector, "m1").await;
        relay.stop().await;
    }
}

#[tokio::test]
async fn two_upgrades_in_a_row_that_are_answered_with_410_end_the_relay_with_77() {
    // On the first dial, and on a redial; one alone, or one before a handshake, ends nothing.
    for has_worked in [false, true] {
        let connector = connector().await;
        let gone = DialRule::Refuse {
            status: StatusCode::GONE,
            retry_after: None,
        };
        let setup = Setup::for_connector(&connector);
        let (mut relay, before) = if has_worked {
            connector.answer_next_dials(1, &gone);
            let relay = started(&setup, &connector).await;
            answers(&connector, "m1").await;
            connector.refuse_dials(StatusCode::GONE, None);
            connector.drop_sockets();
            (relay, 2)
        } else {
            connector.refuse_dials(StatusCode::GONE, None);
            (setup.start(), 0)
        };
        assert_eq!(relay.exit_code(SOON).await, 77, "{}", relay.stderr());
        assert_eq!(connector.dials().len(), before + 2);
        let log = relay.stderr();
        let errors: Vec<_> = log.lines().filter(|line| line.starts_with("error: ")).collect();
        assert_eq!(errors.len(), 1, "{log}");
        assert!(
            errors[0].contains("has revoked this gateway") && errors[0].contains("HTTP status 410"),
            "{log}"
        );
    }
}

#[tokio::test]
async fn a_busy_connector_is_left_alone_for_as_long_as_it_asks() {
    let connector = connector().await;
    let busy = DialRule::Refuse {
        status: StatusCode::SERVICE_UNAVAILABLE,
        retry_after: Some(2),
    };
    connector.answer_next_dials(1, &busy);
    let relay = started(&Setup::for_connector(&connector), &connector).await;
    let gaps = gaps(&connector);
    assert!(
        gaps.len() == 1 && gaps[0] >= Duration::from_millis(1950),
        "{gaps:?}"
    );
    let line = relay.wait_for_log("cannot reach the connector").await;
    assert!(line.contains("503"), "{line}");
    relay.stop().await;
}

#[tokio::test]
async fn a_redirect_is_not_followed_and_its_target_is_never_contacted() {
    let (connector, elsewhere) = (connector().await, connector().await);
    connector.answer_next_dials(
        2,
        &DialRule::Redirect {
            location: format!("{}/relay", elsewhere.http_base()),
        },
    );
    let relay = started(&Setup::for_connector(&connector), &connector).await;
    assert_eq!(connector.dials().len(), 3);
    assert!(elsewhere.dials().is_empty() && elsewhere.requests().is_empty());
    answers(&connector, "m1").await;
    relay.stop().await;
}
