//! Close codes of the connector's WebSocket. `docs/wire.md` lists each of them; a test compares.

/// The relay or the connector is done.
pub const NORMAL: u16 = 1000;
/// The sender goes away: the relay ends or sleeps, the connector restarts.
pub const GOING_AWAY: u16 = 1001;
/// The connector keeps the older of two connections of a gateway.
pub const POLICY: u16 = 1008;
/// A message was larger than the receiver takes.
pub const TOO_LARGE: u16 = 1009;
/// The other end was silent for too long.
pub const SILENT: u16 = 1011;
/// The connector restarts.
pub const RESTART: u16 = 1012;
/// The connector is busy for a moment.
pub const TRY_LATER: u16 = 1013;
/// The connector keeps the newer of two connections of a gateway.
pub const REPLACED: u16 = 4000;
/// The connector refuses the token.
pub const UNAUTHORIZED: u16 = 4401;
