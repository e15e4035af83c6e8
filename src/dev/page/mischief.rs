//! The page's faults: each one click, and each over by itself or taken back by another.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use super::commands::Refused;
use crate::dev::faults::DialRule;
use crate::dev::script::{Answer, ResultRule};
use crate::dev::state::{Ending, Hub, unauthorized};

/// Dials that are refused in a row.
const REFUSED_DIALS: usize = 2;
/// How late a delayed result is.
const LATE: Duration = Duration::from_secs(2);
/// Frames that no relay can use: no JSON, no object, no type, an unknown one, a delivery without an event.
const POISON: [&str; 6] = [
    "{\"type\":\"inbound\",\"event\":{\"text\":\n",
    "[1,2,3]\n",
    "{\"event\":{}}\n",
    "{\"type\":\"no_such_frame\",\"x\":1}\n",
    "{\"type\":\"inbound\",\"event\":7,\"bufferId\":\"poison-1\"}\n",
    "\u{feff}\n",
];

/// Causes the fault of this name.
pub(super) fn fault(hub: &Arc<Hub>, name: &str) -> Result<Value, Refused> {
    match name {
        "drop" => hub.end_all(&Ending::Abort),
        "refuse_dials" => {
            let rule = DialRule::Refuse {
                status: StatusCode::SERVICE_UNAVAILABLE,
                retry_after: None,
            };
            hub.change(|state| {
                let next = &mut state.faults.next_dials;
                next.clear();
                next.extend(std::iter::repeat_n(rule, REFUSED_DIALS));
            });
            hub.end_all(&Ending::Abort);
        }
        "expire" => hub.end_all(&unauthorized("expired")),
        "revoke" => {
            hub.change(|state| state.faults.revoked = true);
            hub.end_all(&unauthorized("unauthorized"));
        }
        "reinstate" => hub.change(|state| state.faults.revoked = false),
        "delay_result" => script(hub, ResultRule::on("send", Answer::Delay(LATE)).once()),
        "refuse_result" => {
            let answer = Answer::Refuse {
                error: "the platform said no".to_owned(),
                code: None,
            };
            script(hub, ResultRule::on("send", answer).once());
        }
        "hold" => {
            if !hub.hold() {
                return Err(Refused::NobodyListens);
            }
        }
        "poison" => {
            for line in POISON {
                if !hub.send(Message::text(line)) {
                    return Err(Refused::NobodyListens);
                }
            }
        }
        _ => return Err(Refused::Missing("fault")),
    }
    Ok(json!({ "ok": true, "poison": POISON.len() }))
}

fn script(hub: &Hub, rule: ResultRule) {
    hub.change(|state| {
        state.script.clear();
        state.script.add(rule);
    });
}
