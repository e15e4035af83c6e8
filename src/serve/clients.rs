//! The connections of a listener: how many there may be, and which one is closed for the next.
//!
//! A connection either waits for its client (for a head, for a body, or for the client to read the response) or works. Who lets the
//! listener wait longest makes room first: above the limit of an address its own oldest connection is closed, above the limit of all
//! the oldest of the address with the most. So a client that stalls, or many of them, cannot keep a health check out. Only a connection
//! that has waited for [`GRACE`] counts: a burst of quick requests passes whole. While every place is taken, [`CROWDED_GRACE`] is enough,
//! so that a flood of new connections does not hold up those behind it. Work is limited as well, except that of health checks.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

/// Connections that may let the listener wait for longer than [`GRACE`]; more if one address may have more.
const MAX_STALLED: usize = 64;
/// Connections that may work at a time. The rest of [`MAX_CONNECTIONS`] is left for health checks.
const MAX_WORKING: usize = 192;
/// Connections in all; further ones wait to be accepted until one makes room.
const MAX_CONNECTIONS: usize = 512;
/// How long a connection may wait for its client before it counts as stalled: longer than a busy machine takes to read what is there.
const GRACE: Duration = Duration::from_secs(1);
/// The same while every place is taken.
const CROWDED_GRACE: Duration = Duration::from_millis(100);

/// A connection of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct ClientId(u64);

#[derive(Debug)]
struct Client {
    address: IpAddr,
    /// Since when it waits for its client; none while it works.
    waits_since: Option<Instant>,
    close: CancellationToken,
}

impl Client {
    fn is_stalled(&self, now: Instant) -> bool {
        self.has_waited(GRACE, now)
    }

    fn has_waited(&self, time: Duration, now: Instant) -> bool {
        let waited = self.waits_since.map(|since| now.saturating_duration_since(since));
        waited.is_some_and(|waited| waited >= time)
    }
}

/// All connections of a listener.
#[derive(Debug)]
struct ClientTable {
    per_address: usize,
    next: u64,
    clients: BTreeMap<ClientId, Client>,
}

impl ClientTable {
    fn new(per_address: usize) -> Self {
        Self {
            per_address,
            next: 0,
            clients: BTreeMap::new(),
        }
    }

    /// Whether a further connection can be admitted now.
    fn has_room(&self, now: Instant) -> bool {
        self.clients.len() < MAX_CONNECTIONS || self.oldest(CROWDED_GRACE, now, |_| true).is_some()
    }

    /// Takes a connection, and closes those that make room for it.
    fn admit(&mut self, address: IpAddr, now: Instant) -> (ClientId, CancellationToken) {
        let address = network(address);
        let id = ClientId(self.next);
        self.next += 1;
        let close = CancellationToken::new();
        let client = Client {
            address,
            waits_since: Some(now),
            close: close.clone(),
        };
        self.clients.insert(id, client);
        while self.stalled(now, |client| client.address == address) > self.per_address
            && self.close_oldest(GRACE, now, |client| client.address == address)
        {}
        while self.stalled(now, |_| true) > self.per_address.max(MAX_STALLED)
            && self.close_oldest(GRACE, now, |_| true)
        {}
        while self.clients.len() > MAX_CONNECTIONS && self.close_oldest(CROWDED_GRACE, now, |_| true) {}
        (id, close)
    }

    /// A request was read and needs work: whether it can be done now.
    fn work(&mut self, id: ClientId) -> bool {
        let working = self
            .clients
            .values()
            .filter(|client| client.waits_since.is_none());
        let is_free = working.count() < MAX_WORKING;
        if is_free && let Some(client) = self.clients.get_mut(&id) {
            client.waits_since = None;
        }
        is_free
    }

    /// The client has to do something: send its body, or read the response.
    fn wait(&mut self, id: ClientId, now: Instant) {
        if let Some(client) = self.clients.get_mut(&id) {
            client.waits_since.get_or_insert(now);
        }
    }

    fn remove(&mut self, id: ClientId) {
        self.clients.remove(&id);
    }

    fn stalled(&self, now: Instant, which: impl Fn(&Client) -> bool) -> usize {
        let stalled = self.clients.values().filter(|client| client.is_stalled(now));
        stalled.filter(|client| which(client)).count()
    }

    fn close_oldest(&mut self, grace: Duration, now: Instant, which: impl Fn(&Client) -> bool) -> bool {
        let client = self
            .oldest(grace, now, which)
            .and_then(|id| self.clients.remove(&id));
        client.is_some_and(|client| {
            client.close.cancel();
            true
        })
    }

    /// The connection to close first: of the address with the most that have waited so long, the one that has waited longest.
    fn oldest(&self, grace: Duration, now: Instant, which: impl Fn(&Client) -> bool) -> Option<ClientId> {
        let has_waited = move |client: &Client| client.has_waited(grace, now);
        let stalled = || self.clients.iter().filter(move |(_, client)| has_waited(client));
        let mut counts: BTreeMap<IpAddr, usize> = BTreeMap::new();
        for (_, client) in stalled() {
            *counts.entry(client.address).or_default() += 1;
        }
        let candidates = stalled().filter(|(_, client)| which(client));
        let first = candidates.max_by_key(|(id, client)| {
            let count = counts.get(&client.address);
            (count, Reverse((client.waits_since, **id)))
        });
        first.map(|(id, _)| *id)
    }
}

/// Whose connections are counted together: an IPv6 client has a whole network of addresses.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 64 << 64).into()),
        address @ IpAddr::V4(_) => address,
    }
}

/// The connections of a listener, shared with each of them.
#[derive(Debug, Clone)]
pub(super) struct Clients(Arc<Mutex<ClientTable>>);

impl Clients {
    /// At most so many connections of one address may be stalled.
    pub(super) fn new(per_address: usize) -> Self {
        Self(Arc::new(Mutex::new(ClientTable::new(per_address))))
    }

    /// How often it is looked whether there is room again.
    pub(super) const RECHECK: Duration = Duration::from_millis(20);

    pub(super) fn has_room(&self) -> bool {
        self.table().has_room(Instant::now())
    }

    pub(super) fn admit(&self, address: IpAddr) -> ClientPlace {
        let (id, close) = self.table().admit(address, Instant::now());
        ClientPlace {
            clients: self.clone(),
            id,
            close,
        }
    }

    fn table(&self) -> MutexGuard<'_, ClientTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of one connection; free when dropped.
#[derive(Debug)]
pub(super) struct ClientPlace {
    clients: Clients,
    id: ClientId,
    close: CancellationToken,
}

/// There is too much work already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooBusy;

impl ClientPlace {
    /// Waits until the connection has to make room.
    pub(super) async fn closed(&self) {
        self.close.cancelled().await;
    }

    /// The request was read, and work begins.
    pub(super) fn work(&self) -> Result<(), TooBusy> {
        let may_work = self.clients.table().work(self.id);
        may_work.then_some(()).ok_or(TooBusy)
    }

    /// The client is to send its body, or to read the response.
    pub(super) fn wait(&self) {
        self.clients.table().wait(self.id, Instant::now());
    }
}

impl Drop for ClientPlace {
    fn drop(&mut self) {
        self.clients.table().remove(self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: usize = 32;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    /// Admits so many of an address, and returns what closes each.
    fn admit(table: &mut ClientTable, last: u8, count: usize, now: Instant) -> Vec<CancellationToken> {
        (0..count).map(|_| table.admit(address(last), now).1).collect()
    }

    fn closed(tokens: &[CancellationToken]) -> usize {
        tokens.iter().filter(|token| token.is_cancelled()).count()
    }

    #[test]
    fn an_address_above_its_limit_loses_its_own_oldest_connection() {
        let mut table = ClientTable::new(LIMIT);
        let start = Instant::now();
        let friend = table.admit(address(2), start).1;
        let stalled = admit(&mut table, 1, LIMIT + 1, start);
        let later = start + GRACE;
        let next = admit(&mut table, 1, 1, later);
        assert!(stalled[0].is_cancelled() && closed(&stalled) == 1, "the oldest");
        assert_eq!(closed(&next), 0);
        // However often it comes again, the newest has its place, and others keep theirs.
        for _ in 0..1000 {
            let (id, token) = table.admit(address(1), later + GRACE);
            assert!(!token.is_cancelled());
            table.remove(id);
        }
        assert!(!friend.is_cancelled());
    }

    #[test]
    fn a_burst_of_quick_requests_passes_whole() {
        let mut table = ClientTable::new(LIMIT);
        let start = Instant::now();
        let burst = admit(&mut table, 1, 200, start);
        assert_eq!(closed(&burst), 0);
        admit(&mut table, 1, 1, start + GRACE);
        assert_eq!(closed(&burst), 200 - LIMIT, "those that still wait then");
    }

    #[test]
    fn many_addresses_together_are_limited_and_the_greediest_makes_room() {
        let mut table = ClientTable::new(LIMIT);
        let start = Instant::now();
        let few = admit(&mut table, 1, 3, start);
        let many = admit(&mut table, 2, LIMIT, start);
        let others = admit(&mut table, 3, MAX_STALLED - LIMIT - 2, start);
        let check = admit(&mut table, 4, 1, start + GRACE);
        assert_eq!(
            (closed(&few), closed(&many), closed(&others), closed(&check)),
            (0, 1, 0, 0)
        );
    }

    #[test]
    fn work_is_limited_and_leaves_room() {
        let mut table = ClientTable::new(LIMIT);
        let start = Instant::now();
        let (last, _) = table.admit(address(9), start);
        for _ in 0..MAX_WORKING {
            let (id, _) = table.admit(address(1), start);
            assert!(table.work(id));
        }
        assert!(!table.work(last), "too busy");
        assert!(table.has_room(start));
        let rest = MAX_CONNECTIONS - MAX_WORKING - 1;
        let burst = admit(&mut table, 2, rest, start);
        assert!(
            !table.has_room(start),
            "everybody is quick, and all places are taken"
        );
        assert!(table.has_room(start + CROWDED_GRACE), "somebody can make room");
        let check = admit(&mut table, 3, 1, start + CROWDED_GRACE);
        assert_eq!(
            (closed(&check), closed(&burst)),
            (0, 1),
            "the one that waits longest"
        );
        // What works is never closed.
        let busy = table
            .clients
            .values()
            .filter(|client| client.waits_since.is_none());
        assert_eq!(busy.count(), MAX_WORKING);
    }

    #[test]
    fn a_flood_of_new_connections_keeps_nobody_waiting() {
        let mut table = ClientTable::new(LIMIT);
        let start = Instant::now();
        // One address comes again as soon as it was closed, with 5000 connections a second.
        let mut flood = Vec::new();
        let mut held_up = 0;
        for step in 0..10_000_u32 {
            let now = start + step * Duration::from_micros(200);
            if table.has_room(now) {
                flood.push(table.admit(address(1), now).1);
            } else {
                held_up += 1;
            }
        }
        assert!(held_up < 100, "{held_up} had to wait to be accepted");
        assert!(table.clients.len() <= MAX_CONNECTIONS);
        assert!(
            flood.len() - closed(&flood) <= MAX_CONNECTIONS,
            "the others are closed"
        );
        let check = table.admit(address(1), start + Duration::from_secs(2)).1;
        assert!(!check.is_cancelled(), "the newest has its place");
    }

    #[test]
    fn a_connection_that_works_again_waits_anew() {
        let mut table = ClientTable::new(1);
        let start = Instant::now();
        let (id, token) = table.admit(address(1), start);
        assert!(table.work(id));
        let later = start + 10 * GRACE;
        table.wait(id, later);
        admit(&mut table, 1, 1, later);
        assert!(!token.is_cancelled(), "it has only begun to wait");
        admit(&mut table, 1, 1, later + GRACE);
        assert!(token.is_cancelled());
    }

    #[test]
    fn a_network_of_ipv6_counts_as_one_address() {
        let of = |text: &str| network(text.parse().unwrap());
        assert_eq!(of("2001:db8:1:2::1"), of("2001:db8:1:2:ffff::9"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
        assert_eq!(of("::ffff:192.0.2.1"), address(1));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }
}
