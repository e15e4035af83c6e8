//! URLs of attachments: which are the connector's own and get the bearer, which are public, and which point into
//! private networks. Nothing is resolved.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use url::{Host, Url};

use crate::wire::ConnectorUrl;

/// Longest URL that is accepted, in bytes.
const MAX_URL: usize = 4096;
/// Domain suffixes of private networks.
const PRIVATE_SUFFIXES: &[&str] = &["localhost", "local", "internal", "intranet", "lan", "home.arpa"];

/// Parts of the names of secrets in a query.
const SECRET_PARTS: &[&str] = &[
    "token",
    "secret",
    "password",
    "signature",
    "credential",
    "auth",
    "apikey",
    "api_key",
    "accesskey",
    "access_key",
];
/// Whole names of secrets in a query.
const SECRET_NAMES: &[&str] = &["key", "sig", "pass", "pwd"];

/// Why a URL cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MediaUrlError {
    /// The URL is too long.
    #[error("the URL is longer than {MAX_URL} bytes")]
    TooLong,
    /// The text is no URL.
    #[error("this is not a URL")]
    NotUrl,
    /// Its scheme is not http or https.
    #[error("the URL is neither http nor https")]
    Scheme,
    /// It carries a user name or password.
    #[error("the URL contains a user name or password")]
    Credentials,
}

/// Reads a URL from outside: absolute, http or https, without a user name; its fragment is dropped.
pub fn parse_url(text: &str) -> Result<Url, MediaUrlError> {
    if text.len() > MAX_URL {
        return Err(MediaUrlError::TooLong);
    }
    let url = Url::parse(text).map_err(|_| MediaUrlError::NotUrl)?;
    check_url(url)
}

/// A URL that a connector or a person may get: valid, and not obviously in a private network.
pub fn public_url(text: &str) -> Option<Url> {
    parse_url(text).ok().filter(|url| !is_private_url(url))
}

/// A URL that an agent may get of a file that is not downloaded: public, and without a secret.
pub fn url_for_agents(text: &str) -> Option<Url> {
    public_url(text).filter(|url| !carries_secret(url))
}

/// Whether a URL carries a secret: in its query, by the name, or the token of a bot in its path.
pub fn carries_secret(url: &Url) -> bool {
    let is_secret = |name: &str| {
        let name = name.to_ascii_lowercase();
        SECRET_NAMES.contains(&name.as_str()) || SECRET_PARTS.iter().any(|part| name.contains(part))
    };
    let is_bot = |segment: &str| {
        let bot = segment.strip_prefix("bot").unwrap_or_default();
        let id = bot.trim_start_matches(|digit: char| digit.is_ascii_digit());
        id.len() < bot.len() && (id.starts_with(':') || id.starts_with("%3"))
    };
    url.query_pairs().any(|(name, _)| is_secret(&name)) || url.path().split('/').any(is_bot)
}

/// [`parse_url`] for a URL that is parsed already.
pub fn check_url(mut url: Url) -> Result<Url, MediaUrlError> {
    if url.as_str().len() > MAX_URL {
        return Err(MediaUrlError::TooLong);
    }
    if !matches!(url.scheme(), "http" | "https") {
        return Err(MediaUrlError::Scheme);
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(MediaUrlError::Credentials);
    }
    url.set_fragment(None);
    Ok(url)
}

/// Who serves a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UrlOwner {
    /// The connector: a file that it keeps for this gateway, requested with the bearer.
    Connector,
    /// Anybody else, and the connector's other URLs; requested without the bearer.
    Other,
}

/// The URLs of files that a connector keeps for its gateways.
#[derive(Clone, Debug)]
pub struct MediaUrls {
    root: Url,
}

impl MediaUrls {
    /// The files of the connector at this URL.
    pub fn new(connector: &ConnectorUrl) -> Result<Self, MediaUrlError> {
        let root = format!("{}/relay/media", connector.http_base());
        let root = Url::parse(&root).map_err(|_| MediaUrlError::NotUrl)?;
        Ok(Self {
            root: check_url(root)?,
        })
    }

    /// Uploads are posted here.
    pub fn upload_url(&self) -> &Url {
        &self.root
    }

    /// The URL of one file.
    pub fn file_url(&self, id: &str) -> String {
        format!("{}/{id}", self.root)
    }

    /// Who serves a URL. It is the connector's only if scheme, host, port and folder match, and if nothing after them can
    /// lead out of the folder.
    pub fn owner(&self, url: &Url) -> UrlOwner {
        let same_origin = url.scheme() == self.root.scheme()
            && url.host() == self.root.host()
            && url.port_or_known_default() == self.root.port_or_known_default()
            && url.username().is_empty()
            && url.password().is_none();
        let file = url
            .path()
            .strip_prefix(self.root.path())
            .and_then(|rest| rest.strip_prefix('/'));
        let plain = |segment: &str| {
            !segment.bytes().all(|byte| byte == b'.')
                && segment
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"._~-".contains(&byte))
        };
        match file {
            Some(file) if same_origin && file.split('/').all(plain) => UrlOwner::Connector,
            _ => UrlOwner::Other,
        }
    }
}

/// Whether an id from the connector is safe in a URL: 1 to 128 letters, digits, `.`, `_` and `-`, not only dots.
pub fn is_media_id(id: &str) -> bool {
    (1..=128).contains(&id.len())
        && id
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
        && !id.bytes().all(|byte| byte == b'.')
}

/// Whether a URL obviously points into a private network: by its IP address, or by a local name. Resolves nothing.
pub fn is_private_url(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => !is_public_ip(address.into()),
        Some(Host::Ipv6(address)) => !is_public_ip(address.into()),
        Some(Host::Domain(name)) => {
            let name = name.trim_end_matches('.').to_ascii_lowercase();
            let has_suffix = |suffix: &&str| {
                name.strip_suffix(*suffix)
                    .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
            };
            !name.contains('.') || PRIVATE_SUFFIXES.iter().any(has_suffix)
        }
        None => true,
    }
}

/// Hosts that may be reached although they are private.
#[derive(Clone, Debug, Default)]
pub struct AllowedHosts(Vec<(String, Option<u16>)>);

impl AllowedHosts {
    /// Reads `host` and `host:port` entries; returns the first that is neither as the error.
    pub fn parse(entries: &[String]) -> Result<Self, String> {
        let entry = |entry: &String| Self::entry(entry).ok_or_else(|| entry.clone());
        entries.iter().map(entry).collect::<Result<_, _>>().map(Self)
    }

    fn entry(entry: &str) -> Option<(String, Option<u16>)> {
        if entry.contains(['/', '@', '?', '#', '\\', '*']) || entry.contains(char::is_whitespace) {
            return None;
        }
        // This scheme has no default port, so that an explicit one is never dropped.
        let host = Url::parse(&format!("http://{entry}")).ok()?;
        let port = Url::parse(&format!("relay://{entry}")).ok()?.port();
        Some((normalized(host.host_str()?), port))
    }

    /// Whether a URL's host, or its host and port, is listed.
    pub fn allow(&self, url: &Url) -> bool {
        let Some(host) = url.host_str().map(normalized) else {
            return false;
        };
        let port = url.port_or_known_default();
        let is = |(name, only): &(String, Option<u16>)| *name == host && (only.is_none() || *only == port);
        self.0.iter().any(is)
    }
}

fn normalized(host: &str) -> String {
    host.trim_end_matches('.').to_ascii_lowercase()
}

/// IPv4 networks that are not the public internet: address and prefix length.
const PRIVATE_V4: &[([u8; 4], u32)] = &[
    ([0, 0, 0, 0], 8),
    ([10, 0, 0, 0], 8),
    ([100, 64, 0, 0], 10),
    ([127, 0, 0, 0], 8),
    // Metadata services of cloud machines.
    ([169, 254, 0, 0], 16),
    // Azure answers this public address from inside the host.
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

/// IPv6 networks in the global unicast space for protocols, tunnels and documentation.
const SPECIAL_V6: &[([u16; 2], u32)] = &[
    // Protocol assignments; Teredo and benchmarking among them.
    ([0x2001, 0], 23),
    ([0x2001, 0xdb8], 32),
    // 6to4: an IPv4 address in disguise.
    ([0x2002, 0], 16),
    ([0x3fff, 0], 20),
];

/// Whether an IP address is public. An IPv4 address inside an IPv6 one (mapped, or behind NAT64) counts as itself; tunnels
/// and everything unknown count as not public.
pub fn is_public_ip(address: IpAddr) -> bool {
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

    fn owner(base: &str, url: &str) -> UrlOwner {
        let urls = MediaUrls::new(&ConnectorUrl::parse(base).unwrap()).unwrap();
        urls.owner(&Url::parse(url).unwrap())
    }

    #[test]
    fn agents_get_no_address_with_a_secret_and_none_of_a_private_network() {
        for address in [
            "https://files.example/a.png",
            "https://cdn.example/a.png?ex=1&is=2&hm=3",
            "https://files.example/bots/a.png?monkey=1&design=2",
            "https://files.example/bot1/a.png",
        ] {
            let found = url_for_agents(address).map(String::from);
            assert_eq!(found.as_deref(), Some(address));
        }
        for address in [
            "https://me:word@files.example/a.png",
            "https://files.example/a.png?token=1",
            "https://files.example/a.png?x=1&Access_Token=1",
            "https://files.example/a.png?X-Amz-Signature=1",
            "https://files.example/a.png?X-Amz-Security-Token=1",
            "https://files.example/a.png?sig=1",
            "https://files.example/a.png?KEY=1",
            "https://api.telegram.org/file/bot12:abc/photos/a.png",
            "https://api.telegram.org/file/bot12%3Aabc/photos/a.png",
            "http://10.0.0.1/a.png",
            "file:///etc/passwd",
        ] {
            assert_eq!(url_for_agents(address), None, "{address}");
        }
    }

    #[test]
    fn only_files_in_the_media_folder_are_the_connectors() {
        for (base, url) in [
            ("https://c.example", "https://c.example/relay/media/abc"),
            (
                "wss://c.example/relay",
                "https://C.EXAMPLE:443/relay/media/a.b_c-d?sig=1",
            ),
            ("https://c.example/a", "https://c.example/a/relay/media/x/y"),
            ("http://[::1]:8080", "http://[0:0::1]:8080/relay/media/x"),
        ] {
            assert_eq!(owner(base, url), UrlOwner::Connector, "{url}");
        }
        let base = "https://c.example";
        for url in [
            "http://c.example/relay/media/x",
            "https://c.example:8443/relay/media/x",
            "https://c.example./relay/media/x",
            "https://c.example.evil.example/relay/media/x",
            "https://xc.example/relay/media/x",
            "https://c.example@evil.example/relay/media/x",
            "https://u:p@c.example/relay/media/x",
            "https://c.example/relay/mediax",
            "https://c.example/relay/media",
            "https://c.example/relay/media/",
            "https://c.example/relay/media/../policy",
            "https://c.example/relay/media/%2e%2e/policy",
            "https://c.example/relay/media/..%2fpolicy",
            "https://c.example/relay/media/a%5c..%5cpolicy",
            "https://c.example/relay/media//x",
            "https://c.example/relay/media/.../x",
            "https://c.example/RELAY/media/x",
            "https://c.example/x/relay/media/x",
            "https://c.example\\@evil.example/relay/media/x",
        ] {
            assert_eq!(owner(base, url), UrlOwner::Other, "{url}");
        }
    }

    #[test]
    fn a_url_is_http_and_has_no_credentials() {
        let fault = |text: &str| parse_url(text).unwrap_err();
        assert_eq!(fault("file:///etc/passwd"), MediaUrlError::Scheme);
        assert_eq!(fault("data:text/plain,x"), MediaUrlError::Scheme);
        assert_eq!(fault("/relay/media/x"), MediaUrlError::NotUrl);
        assert_eq!(fault("https://u@h/x"), MediaUrlError::Credentials);
        assert_eq!(
            fault(&format!("https://h/{}", "x".repeat(MAX_URL))),
            MediaUrlError::TooLong
        );
        assert_eq!(parse_url("https://h/x#y").unwrap().as_str(), "https://h/x");
    }

    #[test]
    fn every_spelling_of_a_private_address_is_recognized() {
        for url in [
            "http://127.0.0.1/",
            "http://127.1/",
            "http://2130706433/",
            "http://0x7f.1/",
            "http://0177.0.0.1/",
            "http://127.0.0.1./",
            "http://[::ffff:7f00:1]/",
            "http://[::]/",
            "http://169.254.169.254/latest",
            "http://0xa9fea9fe/",
            "http://localhost/",
            "http://a.localhost./",
            "http://router/",
            "http://metadata.google.internal/",
            "http://printer.local/",
            "http://①②⑦.0.0.1/",
        ] {
            assert!(is_private_url(&Url::parse(url).unwrap()), "{url}");
        }
        for url in [
            "http://8.8.8.8/",
            "https://cdn.example/",
            "https://local.example/",
            "https://mylocal.com/",
        ] {
            assert!(!is_private_url(&Url::parse(url).unwrap()), "{url}");
        }
    }

    #[test]
    fn allowed_hosts_are_exact() {
        let entries = [
            "CDN.example".to_owned(),
            "10.0.0.5:8080".to_owned(),
            "[::1]:80".to_owned(),
        ];
        let allowed = AllowedHosts::parse(&entries).unwrap();
        let is = |url: &str| allowed.allow(&Url::parse(url).unwrap());
        assert!(is("https://cdn.example/") && is("http://cdn.example:99/x") && is("http://cdn.EXAMPLE./"));
        assert!(is("http://10.0.0.5:8080/") && is("http://[::1]/"));
        assert!(!is("http://10.0.0.5/") && !is("https://a.cdn.example/") && !is("https://[::1]/"));
        for wrong in ["", "*.example", "http://x", "a b", "u@h", "h:99999", "h/x"] {
            assert_eq!(AllowedHosts::parse(&[wrong.to_owned()]).unwrap_err(), wrong);
        }
    }

    #[test]
    fn an_id_is_one_plain_word() {
        assert!(is_media_id("a1._-") && is_media_id(&"x".repeat(128)));
        for wrong in ["", ".", "..", "a/b", "a?b", "é", "a b", &"x".repeat(129)] {
            assert!(!is_media_id(wrong), "{wrong}");
        }
    }

    fn public(text: &str) -> bool {
        is_public_ip(text.parse().expect(text))
    }

    #[test]
    fn private_and_special_addresses_are_not_public() {
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
            assert!(!public(private), "{private}");
        }
    }

    #[test]
    fn everything_else_is_public() {
        for address in [
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
            assert!(public(address), "{address}");
        }
    }
}
