//! Which internet addresses belong to everyone: the rule that keeps a link in a chat from reaching into the
//! networks around this machine. It looks at numbers only and resolves nothing.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Networks of IPv4 that are not the public internet: address and prefix length.
const PRIVATE_V4: &[([u8; 4], u32)] = &[
    ([0, 0, 0, 0], 8),
    ([10, 0, 0, 0], 8),
    ([100, 64, 0, 0], 10),
    ([127, 0, 0, 0], 8),
    // Cloud machines find their metadata service here.
    ([169, 254, 0, 0], 16),
    // A public number that Azure answers from inside the host.
    ([168, 63, 129, 16], 32),
    ([172, 16, 0, 0], 12),
    ([192, 0, 0, 0], 24),
    ([192, 0, 2, 0], 24),
    ([192, 88, 99, 0], 24),
    ([192, 168, 0, 0], 16),
    ([198, 18, 0, 0], 15),
    ([198, 51, 100, 0], 24),
    ([203, 0, 113, 0], 24),
    ([224, 0, 0, 0], 4),
    ([240, 0, 0, 0], 4),
];

/// Networks inside IPv6's global unicast space that are for protocols, tunnels and documents.
const SPECIAL_V6: &[([u16; 2], u32)] = &[
    // Protocol assignments; Teredo and benchmarking among them.
    ([0x2001, 0], 23),
    ([0x2001, 0xdb8], 32),
    // 6to4: an IPv4 address in disguise.
    ([0x2002, 0], 16),
    ([0x3fff, 0], 20),
];

/// Whether an address is one that anybody on the internet can reach. An IPv4 address that is written inside an
/// IPv6 one (mapped, or behind NAT64) counts as itself; tunnels and everything unknown count as not public.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let bits = address.to_bits();
    !PRIVATE_V4
        .iter()
        .any(|(network, length)| (bits ^ Ipv4Addr::from(*network).to_bits()) >> (32 - length) == 0)
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    if let Some(inner) = address.to_ipv4_mapped().or_else(|| behind_nat64(address)) {
        return is_public_v4(inner);
    }
    let [first, second, ..] = address.segments();
    let bits = u32::from(first) << 16 | u32::from(second);
    let special = SPECIAL_V6.iter().any(|([high, low], length)| {
        (bits ^ (u32::from(*high) << 16 | u32::from(*low))) >> (32 - length) == 0
    });
    first >> 13 == 1 && !special
}

/// The IPv4 address behind the well-known NAT64 prefix.
fn behind_nat64(address: Ipv6Addr) -> Option<Ipv4Addr> {
    match address.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            Some(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(text: &str) -> bool {
        is_public(text.parse().expect(text))
    }

    #[test]
    fn what_is_not_everyones_is_not_public() {
        for private in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "100.100.100.200",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.255.254",
            "169.254.169.254",
            "168.63.129.16",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.8",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.7",
            "203.0.113.9",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::8.8.8.8",
            "::ffff:127.0.0.1",
            "::ffff:10.1.1.1",
            "::ffff:169.254.169.254",
            "::ffff:0:8.8.8.8",
            "64:ff9b::7f00:1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::1",
            "100::1",
            "2001::1",
            "2001:0:1::",
            "2001:2::1",
            "2001:20::1",
            "2001:1ff:ffff::",
            "2001:db8::1",
            "2002:7f00:1::",
            "2002:808:808::1",
            "3fff::1",
            "3fff:fff::1",
            "5f00::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "febf::1",
            "fec0::1",
            "ff02::1",
            "4000::1",
            "1fff::1",
        ] {
            assert!(!judged(private), "{private}");
        }
    }

    #[test]
    fn what_is_everyones_is_public() {
        for public in [
            "1.1.1.1",
            "8.8.8.8",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.1",
            "169.253.255.255",
            "169.255.0.0",
            "168.63.129.17",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.1",
            "192.167.255.255",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "2606:4700::1111",
            "2a00:1450::1",
            "2001:200::1",
            "2001:4860:4860::8888",
            "2003::1",
            "3ffe::1",
            "::ffff:8.8.8.8",
            "64:ff9b::808:808",
        ] {
            assert!(judged(public), "{public}");
        }
    }
}
