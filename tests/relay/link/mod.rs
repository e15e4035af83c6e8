//! The relay as a process, dialling a connector: the real binary against the embedded connector, over real
//! sockets, with real signals. Nothing here reaches into the relay.

mod boot;
mod clock;
mod framing;
mod handshake;
mod large;
mod measured;
mod platforms;
mod poison;
mod provision;
mod refusals;
mod reload;
mod secrets;
mod secure;
mod shutdown;
mod trouble;
