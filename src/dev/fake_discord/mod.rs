//! A fake Discord on loopback: what bots see of it, the gateway and the REST API, over real sockets.
//!
//! It knows one server with channels, direct chats, threads, buttons, slash commands and files. People write and press on its
//! page. It keeps everything in memory, bounded, and reaches out to nobody. Tests stand in front of it (`tests/support/discord`).

mod gateway;
mod page;
mod rest;
mod server;
mod state;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use secrecy::SecretString;
use tokio::net::TcpListener;

pub use server::FakeDiscordHub;
pub use state::{
    DiscordPerson, DiscordRoom, FakeDiscordSettings, FakeDiscordState, GatewayFaults, MessageOrigin,
    RoomKind, RoomMessage,
};

use super::listener::accept;
use super::page::PageDoor;

/// A fake Discord on 127.0.0.1. Dropping it cuts its connections.
pub struct FakeDiscord {
    /// What its tasks share.
    pub hub: Arc<FakeDiscordHub>,
}

impl Drop for FakeDiscord {
    fn drop(&mut self) {
        self.hub.stop.cancel();
    }
}

impl FakeDiscord {
    /// Binds the port and starts serving.
    pub async fn start(settings: FakeDiscordSettings) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, settings.port)).await?;
        let addr = listener.local_addr()?;
        let fake = Self::new(settings, addr, format!("ws://{addr}/gateway"));
        tokio::spawn(accept(listener, server::router(&fake.hub), fake.hub.stop.clone()));
        Ok(fake)
    }

    /// A fake that others serve: the REST API at this address, the gateway at this URL.
    pub fn new(settings: FakeDiscordSettings, addr: SocketAddr, gateway: String) -> Self {
        let state = FakeDiscordState::new(settings, gateway);
        Self {
            hub: Arc::new(FakeDiscordHub::new(addr, state)),
        }
    }

    /// The address that a bot is given instead of `https://discord.com/api/v10`.
    pub fn base(&self) -> String {
        format!("http://{}/api/v10", self.hub.addr)
    }

    /// The address of the gateway.
    pub fn gateway(&self) -> String {
        self.hub.lock().gateway.clone()
    }

    /// Where attachments are: `HOST:PORT`.
    pub fn host(&self) -> String {
        self.hub.addr.to_string()
    }

    /// The bot's token.
    pub fn token(&self) -> SecretString {
        self.hub.lock().settings.token.clone()
    }

    /// Whether a bot is connected to the gateway and has begun a session.
    pub fn is_connected(&self) -> bool {
        let state = self.hub.lock();
        state.connected > 0 && state.sessions.0 > 0
    }

    /// Opens the page and returns its address, token included. A second call returns the same address.
    pub fn open_page(&self) -> String {
        let door = self.hub.page.get_or_init(PageDoor::new);
        format!("http://{}{}", self.hub.addr, door.path())
    }
}
