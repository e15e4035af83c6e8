//! A wake on a substrate without an interrupt channel: the context is delivered, and the receipt says `woken: false`.

use super::contract::{
    AgentAddress, CauseKind, DeliveryFailure, DeliveryKind, DeliveryMeta, DeliveryOrigin, DeliveryPayload,
    WakeOpts, WakeReceipt,
};
use super::{AgentConnector, new_dispatch_id, now_ms};

/// Delivers what a wake would have said. The structured session wins over the one in the address.
pub(super) async fn deliver_instead(
    connector: &dyn AgentConnector,
    agent_id: &str,
    opts: &WakeOpts,
) -> Result<WakeReceipt, DeliveryFailure> {
    let address = AgentAddress::parse(agent_id).with_session(opts.session_id.as_deref());
    let meta = if let Some(envelope) = &opts.envelope {
        envelope.clone()
    } else {
        let id = new_dispatch_id().map_err(|error| {
            DeliveryFailure::new(CauseKind::ClientValidation, agent_id, error.to_string())
        })?;
        DeliveryMeta::new(&id, now_ms(), &DeliveryOrigin::default())
    };
    let payload = DeliveryPayload {
        kind: DeliveryKind::Augment,
        text: opts.context.clone().unwrap_or_default(),
        meta,
    };
    let receipt = connector.deliver(&address.to_string(), &payload).await?;
    let mut warnings = receipt.warnings;
    if opts.when.is_some_and(|when| when > now_ms()) {
        warnings.push("this kind has no schedule: it was delivered now".to_owned());
    }
    Ok(WakeReceipt {
        woken_at: receipt.delivered_at,
        woken: false,
        session_id: receipt.session_id.or(address.session),
        warnings,
    })
}
