//! From a name to a TCP connection: resolving, ordering the addresses, racing them.
//!
//! Both address families are tried side by side, a quarter of a second apart, so that a route that
//! swallows packets costs that long and not the whole timeout. It sets no deadline of its own: the
//! caller wraps it in one, and dropping the future drops every attempt.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::net::{TcpSocket, TcpStream, lookup_host};

/// Delay before the next address is tried.
const STAGGER: Duration = Duration::from_millis(250);

/// Maximum addresses tried per name.
const MAX_ADDRESSES: usize = 16;

/// Resolves `host`, a name or an address without brackets, into addresses in the order to try them.
///
/// `localhost` only ever means loopback addresses, whatever a resolver says: plaintext is allowed to it.
pub(crate) async fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let only_loopback = crate::net::proxy::is_loopback(&url::Host::Domain(host));
    let found = lookup_host((host, port)).await?;
    let addresses = interleave(found.filter(|address| !only_loopback || address.ip().is_loopback()));
    if addresses.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
    }
    Ok(addresses)
}

/// Opens a TCP connection to whichever of `addresses` answers first.
pub(crate) async fn connect(addresses: &[SocketAddr]) -> io::Result<TcpStream> {
    race(addresses, STAGGER, open).await
}

async fn open(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket.set_nodelay(true)?;
    socket.set_keepalive(true)?;
    socket.connect(address).await
}

/// Alternates between the address families, starting with the one the resolver prefers.
fn interleave(found: impl Iterator<Item = SocketAddr>) -> Vec<SocketAddr> {
    let mut found = found.peekable();
    let Some(first) = found.peek() else {
        return Vec::new();
    };
    let preferred_is_v6 = first.is_ipv6();
    let (preferred, other): (Vec<_>, Vec<_>) = found.partition(|a| a.is_ipv6() == preferred_is_v6);
    let (mut preferred, mut other) = (preferred.into_iter(), other.into_iter());
    let mut ordered = Vec::new();
    while ordered.len() < MAX_ADDRESSES {
        let pair = [preferred.next(), other.next()];
        if pair == [None, None] {
            break;
        }
        ordered.extend(pair.into_iter().flatten());
    }
    ordered.truncate(MAX_ADDRESSES);
    ordered
}

/// Starts one attempt per address, `stagger` apart or as soon as one fails, and returns the first that
/// succeeds; the others are dropped. When all fail, the last failure is the answer.
async fn race<T, Attempt>(
    addresses: &[SocketAddr],
    stagger: Duration,
    attempt: impl Fn(SocketAddr) -> Attempt,
) -> io::Result<T>
where
    Attempt: Future<Output = io::Result<T>>,
{
    let mut waiting = addresses.iter().copied().peekable();
    let mut running = FuturesUnordered::new();
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "there is no address to try");
    loop {
        running.extend(waiting.next().map(&attempt));
        tokio::select! {
            biased;
            Some(outcome) = running.next() => match outcome {
                Ok(connected) => return Ok(connected),
                Err(error) => failure = error,
            },
            () = tokio::time::sleep(stagger), if waiting.peek().is_some() => {}
            else => return Err(failure),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::Mutex;

    use tokio::time::{Instant, sleep};

    use super::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().expect("a socket address")
    }

    fn refused() -> io::Error {
        io::ErrorKind::ConnectionRefused.into()
    }

    #[test]
    fn families_alternate_from_the_preferred_one() {
        let found = ["[::1]:1", "[::2]:1", "[::3]:1", "1.1.1.1:1"].map(address);
        let ordered = ["[::1]:1", "1.1.1.1:1", "[::2]:1", "[::3]:1"].map(address);
        assert_eq!(interleave(found.into_iter()), ordered);
        let four_first = ["1.1.1.1:1", "[::1]:1", "2.2.2.2:1"].map(address);
        assert_eq!(interleave(four_first.into_iter()), four_first);
        assert_eq!(interleave(std::iter::empty()), []);
    }

    #[test]
    fn a_name_with_too_many_addresses_is_cut() {
        let many = (0..500u16).map(|port| SocketAddr::from(([10, 0, 0, 1], port)));
        assert_eq!(interleave(many).len(), MAX_ADDRESSES);
    }

    #[tokio::test(start_paused = true)]
    async fn a_black_hole_costs_one_stagger_and_not_the_timeout() {
        let addresses = ["[2001:db8::1]:443", "192.0.2.1:443"].map(address);
        let begun = Instant::now();
        let winner = race(&addresses, STAGGER, |to| async move {
            if to.is_ipv6() {
                return pending().await;
            }
            sleep(Duration::from_millis(20)).await;
            Ok(to)
        });
        assert_eq!(winner.await.expect("a winner"), addresses[1]);
        assert_eq!(begun.elapsed(), Duration::from_millis(270));
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_first_address_still_wins_when_the_second_is_slower() {
        let addresses = ["[2001:db8::1]:443", "192.0.2.1:443"].map(address);
        let begun = Instant::now();
        let winner = race(&addresses, STAGGER, |to| async move {
            sleep(Duration::from_millis(if to.is_ipv6() { 300 } else { 900 })).await;
            Ok(to)
        });
        assert_eq!(winner.await.expect("a winner"), addresses[0]);
        assert_eq!(begun.elapsed(), Duration::from_millis(300));
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_starts_the_next_address_at_once() {
        let addresses = ["[::1]:1", "127.0.0.1:1"].map(address);
        let begun = Instant::now();
        let winner = race(&addresses, STAGGER, |to| async move {
            if to.is_ipv6() { Err(refused()) } else { Ok(to) }
        });
        assert_eq!(winner.await.expect("a winner"), addresses[1]);
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn every_address_is_tried_once_before_giving_up() {
        let addresses = ["[::1]:1", "127.0.0.1:1", "[::2]:1"].map(address);
        let tried = Mutex::new(Vec::new());
        let outcome: io::Result<()> = race(&addresses, STAGGER, |to| {
            tried.lock().expect("one thread").push(to);
            async move {
                if to == addresses[0] {
                    sleep(Duration::from_secs(2)).await;
                }
                Err(refused())
            }
        })
        .await;
        assert_eq!(
            outcome.expect_err("all refuse").kind(),
            io::ErrorKind::ConnectionRefused
        );
        assert_eq!(*tried.lock().expect("one thread"), addresses);
        let none: io::Result<()> = race(&[], STAGGER, |_| pending()).await;
        assert_eq!(none.expect_err("nothing to try").kind(), io::ErrorKind::NotFound);
    }

    #[tokio::test]
    async fn localhost_resolves_to_loopback_only() {
        let found = resolve("localhost", 80).await.expect("localhost");
        assert!(
            found.iter().all(|a| a.ip().is_loopback() && a.port() == 80),
            "{found:?}"
        );
        assert_eq!(resolve("::1", 7).await.expect("an address"), [address("[::1]:7")]);
    }
}
