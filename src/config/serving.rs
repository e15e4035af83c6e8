//! Who may ask a running relay: the control socket, and the HTTP listener that is off unless it is wanted.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use serde::{Deserialize, Serialize};

/// Who may ask a running relay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Serve {
    /// Where health, readiness, metrics and waking are served over HTTP; nowhere when unset.
    pub http: Option<String>,
    /// Serve them to other machines too.
    pub allow_remote: bool,
    /// Names by which the listener on this machine may be asked for, beside its own.
    pub allowed_hosts: Vec<String>,
    /// The owner's control socket in the state directory, which `status` and its siblings use.
    pub control: bool,
}

impl Default for Serve {
    fn default() -> Self {
        Self {
            http: None,
            allow_remote: false,
            allowed_hosts: Vec::new(),
            control: true,
        }
    }
}

impl Serve {
    /// Where to listen, if anywhere; else what is wrong with the address.
    pub fn http_address(&self) -> Result<Option<SocketAddr>, String> {
        let Some(text) = self
            .http
            .as_deref()
            .map(str::trim)
            .filter(|text| !text.is_empty())
        else {
            return Ok(None);
        };
        let on_this_machine = text.strip_prefix("localhost:").and_then(|port| {
            Some(SocketAddr::new(
                IpAddr::V4(Ipv4Addr::LOCALHOST),
                port.parse().ok()?,
            ))
        });
        let address = on_this_machine.or_else(|| text.parse().ok()).ok_or_else(|| {
            "must be an address and a port, such as 127.0.0.1:9464 or [::1]:9464".to_owned()
        })?;
        if !address.ip().to_canonical().is_loopback() && !self.allow_remote {
            return Err(
                "would listen to other machines; use 127.0.0.1, or set `serve.allow_remote: true`".to_owned(),
            );
        }
        Ok(Some(address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn serve(http: &str, allow_remote: bool) -> Result<Option<SocketAddr>, String> {
        let serve = Serve {
            http: Some(http.to_owned()),
            allow_remote,
            ..Serve::default()
        };
        serve.http_address()
    }

    #[test]
    fn only_this_machine_is_listened_to_unless_told_otherwise() {
        assert_eq!(Serve::default().http_address(), Ok(None));
        for here in ["127.0.0.1:9464", "localhost:9464", " [::1]:9464 ", "127.8.9.1:0"] {
            assert!(serve(here, false).unwrap().is_some(), "{here}");
        }
        for elsewhere in ["0.0.0.0:9464", "[::]:9464", "192.0.2.1:80"] {
            assert!(
                serve(elsewhere, false).unwrap_err().contains("allow_remote"),
                "{elsewhere}"
            );
            assert!(serve(elsewhere, true).unwrap().is_some());
        }
        for wrong in [
            "9464",
            "127.0.0.1",
            "localhost:",
            "host.example:80",
            "127.0.0.1:99999",
        ] {
            assert!(serve(wrong, true).unwrap_err().contains("must be"), "{wrong}");
        }
    }
}
