//! A wake on a substrate whose interrupt channel starts a turn: the text of that turn.

use std::io;

use super::contract::{
    DeliveryKind, DeliveryMeta, DeliveryOrigin, DeliveryPayload, DeliveryReceipt, TriggerKind, WakeOpts,
    WakeReceipt,
};
use super::{new_dispatch_id, now_ms};

/// The text for an agent that is woken without a context.
const WAKE_TEXT: &str = "You were woken.";
/// How far a sender's clock may be ahead before its "now" is a later time, in milliseconds.
const CLOCK_GRACE_MS: i64 = 5_000;

/// Why a wake cannot become a turn.
#[derive(Debug, thiserror::Error)]
pub enum WakeTurnError {
    /// It is for later.
    #[error("`when` is in the future; this relay has no schedule for wakes: send the wake at that time")]
    Later,
    /// There is no id for it.
    #[error(transparent)]
    NoId(#[from] io::Error),
}

/// The payload that carries a wake: its context as a playbook, under the envelope of the dispatch or a new one.
pub fn wake_payload(opts: &WakeOpts, trigger: TriggerKind) -> Result<DeliveryPayload, WakeTurnError> {
    let now = now_ms();
    if opts
        .when
        .is_some_and(|when| when > now.saturating_add(CLOCK_GRACE_MS))
    {
        return Err(WakeTurnError::Later);
    }
    let meta = if let Some(envelope) = &opts.envelope {
        envelope.clone()
    } else {
        let origin = DeliveryOrigin {
            trigger,
            ..DeliveryOrigin::default()
        };
        DeliveryMeta::new(&new_dispatch_id()?, now, &origin)
    };
    let context = opts.context.as_deref().filter(|text| !text.trim().is_empty());
    Ok(DeliveryPayload {
        kind: DeliveryKind::Template,
        text: context.unwrap_or(WAKE_TEXT).to_owned(),
        meta,
    })
}

/// The receipt of a wake that was handed on like this.
pub fn wake_receipt(receipt: DeliveryReceipt) -> WakeReceipt {
    WakeReceipt {
        woken_at: receipt.delivered_at,
        woken: receipt.delivery_skipped != Some(true),
        session_id: receipt.session_id,
        warnings: receipt.warnings,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wake_is_a_playbook_with_its_context_now() {
        let payload = wake_payload(&WakeOpts::default(), TriggerKind::Webhook).unwrap();
        assert_eq!(
            (payload.kind, payload.text.as_str()),
            (DeliveryKind::Template, WAKE_TEXT)
        );
        assert_eq!(payload.meta.as_object()["origin"]["trigger_kind"], "webhook");
        let opts = WakeOpts {
            context: Some("get up".to_owned()),
            when: Some(now_ms()),
            envelope: Some(payload.meta.clone()),
            ..WakeOpts::default()
        };
        let woken = wake_payload(&opts, TriggerKind::Cli).unwrap();
        assert_eq!(
            (woken.text.as_str(), woken.meta),
            ("get up", payload.meta),
            "the envelope of the dispatch"
        );
        let later = WakeOpts {
            when: Some(now_ms() + 60_000),
            ..opts
        };
        assert!(matches!(
            wake_payload(&later, TriggerKind::Cli),
            Err(WakeTurnError::Later)
        ));
    }
}
