//! What follows from the end of a connection to the gateway, by its close code.

/// Why the bot cannot go on: somebody has to change something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GatewayEnd {
    /// The token is wrong or was reset.
    Token,
    /// The bot is in too many servers for one connection.
    Sharding,
    /// Discord does not know this version of the gateway, or one of the intents.
    Version,
    /// The bot may not read the content of messages.
    Intents,
}

impl std::fmt::Display for GatewayEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Token => {
                "Discord does not accept the bot's token; reset it on the page Bot of the developer portal and store the new one"
            }
            Self::Sharding => "the bot is in too many servers for one connection, and sharding is not supported",
            Self::Version => "Discord does not know this version of its gateway any more; update hermes-relay",
            Self::Intents => {
                "the bot may not read messages; turn on Message Content Intent on the page Bot of the developer portal"
            }
        })
    }
}

/// What to do after a connection has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterGatewayClose {
    /// Resume the session.
    Resume,
    /// The session is gone: begin a new one.
    Identify,
    /// Stop.
    End(GatewayEnd),
}

/// What to do after a connection has ended with this code; `None` if it broke off.
pub fn after_close(code: Option<u16>) -> AfterGatewayClose {
    match code {
        Some(4003 | 4007 | 4009) => AfterGatewayClose::Identify,
        Some(4004) => AfterGatewayClose::End(GatewayEnd::Token),
        Some(4010 | 4011) => AfterGatewayClose::End(GatewayEnd::Sharding),
        Some(4012 | 4013) => AfterGatewayClose::End(GatewayEnd::Version),
        Some(4014) => AfterGatewayClose::End(GatewayEnd::Intents),
        Some(_) | None => AfterGatewayClose::Resume,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_close_code_has_its_answer() {
        for code in [
            None,
            Some(1000),
            Some(1001),
            Some(1006),
            Some(4000),
            Some(4001),
            Some(4002),
            Some(4008),
        ] {
            assert_eq!(after_close(code), AfterGatewayClose::Resume, "{code:?}");
        }
        for code in [4003, 4007, 4009] {
            assert_eq!(after_close(Some(code)), AfterGatewayClose::Identify, "{code}");
        }
        for (code, end) in [
            (4004, GatewayEnd::Token),
            (4010, GatewayEnd::Sharding),
            (4011, GatewayEnd::Sharding),
            (4012, GatewayEnd::Version),
            (4013, GatewayEnd::Version),
            (4014, GatewayEnd::Intents),
        ] {
            assert_eq!(after_close(Some(code)), AfterGatewayClose::End(end), "{code}");
        }
    }
}
