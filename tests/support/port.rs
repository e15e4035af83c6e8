//! Ports on loopback for programs that start later.

use std::fs;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Mutex, OnceLock};

/// The first port that is handed out; below are those of services.
const FIRST: u16 = 12_000;
/// Where the ports of connections begin, unless the system says something else.
const USUAL_END: u16 = 32_768;

/// A port on which nobody listens, and which nobody else is given while this program runs.
///
/// It is below the ports that the system gives to connections and to whoever binds port 0: one of those may be taken by
/// anybody between the look and the use, and whoever dials one again and again may be connected to itself.
pub(crate) fn free_port() -> u16 {
    static NEXT: OnceLock<Mutex<u16>> = OnceLock::new();
    let end = end();
    // Somewhere, because other programs do the same.
    let somewhere = || {
        let number = RandomState::new().build_hasher().finish() % u64::from(end - FIRST);
        Mutex::new(FIRST + u16::try_from(number).expect("below a port"))
    };
    let mut next = NEXT.get_or_init(somewhere).lock().expect("no panic while held");
    for _ in FIRST..end {
        let port = *next;
        *next = if port + 1 < end { port + 1 } else { FIRST };
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
    panic!("every port from {FIRST} to {end} is taken");
}

/// Where the ports of connections begin.
fn end() -> u16 {
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let begin = range.split_whitespace().next().and_then(|text| text.parse().ok());
    begin.filter(|begin| *begin > FIRST + 1_000).unwrap_or(USUAL_END)
}
