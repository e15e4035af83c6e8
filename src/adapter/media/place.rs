//! Whose an address is: the connector's own shelf, which is shown the bearer, or anybody's, which never is.

use url::{Host, Url};

use super::address::is_public;
use crate::wire::ConnectorUrl;

/// Longest address that is looked at, in bytes.
const MAX_URL: usize = 4096;
/// Name endings that only mean something inside somebody's network.
const LOCAL_ENDINGS: &[&str] = &["localhost", "local", "internal", "intranet", "lan", "home.arpa"];

/// Why an address cannot be used at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// It is too long.
    #[error("the address is longer than {MAX_URL} bytes")]
    TooLong,
    /// It is no URL.
    #[error("the address is not a URL")]
    NotUrl,
    /// Its scheme is not http or https.
    #[error("the address is neither http nor https")]
    Scheme,
    /// It carries a user name or password.
    #[error("the address contains a user name or password")]
    Credentials,
}

/// Reads an address from outside: absolute, http or https, without a user name; its fragment is dropped.
pub fn parse_address(text: &str) -> Result<Url, AddressError> {
    if text.len() > MAX_URL {
        return Err(AddressError::TooLong);
    }
    let url = Url::parse(text).map_err(|_| AddressError::NotUrl)?;
    vetted(url)
}

/// An address that may be handed to a connector or a person: readable, and not plainly in a private network.
pub fn public_address(text: &str) -> Option<Url> {
    parse_address(text).ok().filter(|url| !is_plainly_private(url))
}

/// The same as [`parse_address`] for an address that was put together from others.
pub fn vetted(mut url: Url) -> Result<Url, AddressError> {
    if url.as_str().len() > MAX_URL {
        return Err(AddressError::TooLong);
    }
    if !matches!(url.scheme(), "http" | "https") {
        return Err(AddressError::Scheme);
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(AddressError::Credentials);
    }
    url.set_fragment(None);
    Ok(url)
}

/// Whose an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// A file that the connector keeps for this gateway.
    Connector,
    /// Anything else, the connector's other addresses included.
    Anyone,
}

/// Where a connector keeps its gateways' files.
#[derive(Clone, Debug)]
pub struct Shelf {
    root: Url,
}

impl Shelf {
    /// The shelf of the connector at this address.
    pub fn of(connector: &ConnectorUrl) -> Result<Self, AddressError> {
        let root = format!("{}/relay/media", connector.http_base());
        let root = Url::parse(&root).map_err(|_| AddressError::NotUrl)?;
        Ok(Self { root: vetted(root)? })
    }

    /// `POST` files here.
    pub fn upload_url(&self) -> &Url {
        &self.root
    }

    /// The address of one file.
    pub fn file_url(&self, id: &str) -> String {
        format!("{}/{id}", self.root)
    }

    /// The connector's own only when scheme, host, port and folder are, and when no reader of what follows could
    /// find a way out of the folder in it.
    pub fn whose(&self, url: &Url) -> Whose {
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
            Some(file) if same_origin && file.split('/').all(plain) => Whose::Connector,
            _ => Whose::Anyone,
        }
    }
}

/// Whether an id from the connector can stand in an address: 1 to 128 letters, digits, `.`, `_` and `-`, not only
/// dots.
pub fn is_media_id(id: &str) -> bool {
    (1..=128).contains(&id.len())
        && id
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
        && !id.bytes().all(|byte| byte == b'.')
}

/// Whether a URL can be told to point into a private network without asking anyone: by its number, or by a name
/// that has no meaning outside.
pub fn is_plainly_private(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => !is_public(address.into()),
        Some(Host::Ipv6(address)) => !is_public(address.into()),
        Some(Host::Domain(name)) => {
            let name = name.trim_end_matches('.').to_ascii_lowercase();
            let ends_in = |ending: &&str| {
                name.strip_suffix(*ending)
                    .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
            };
            !name.contains('.') || LOCAL_ENDINGS.iter().any(ends_in)
        }
        None => true,
    }
}

/// Hosts that may be reached wherever they are.
#[derive(Clone, Debug, Default)]
pub struct AllowedHosts(Vec<(String, Option<u16>)>);

impl AllowedHosts {
    /// Reads `host` and `host:port` entries; the first that is neither is given back.
    pub fn parse(entries: &[String]) -> Result<Self, String> {
        let entry = |entry: &String| Self::entry(entry).ok_or_else(|| entry.clone());
        entries.iter().map(entry).collect::<Result<_, _>>().map(Self)
    }

    fn entry(entry: &str) -> Option<(String, Option<u16>)> {
        if entry.contains(['/', '@', '?', '#', '\\', '*']) || entry.contains(char::is_whitespace) {
            return None;
        }
        // Of this scheme no port is the default, so that one that is written down is never dropped.
        let host = Url::parse(&format!("http://{entry}")).ok()?;
        let port = Url::parse(&format!("relay://{entry}")).ok()?.port();
        Some((bare(host.host_str()?), port))
    }

    /// Whether a URL's host, or its host and port, is among them.
    pub fn allow(&self, url: &Url) -> bool {
        let Some(host) = url.host_str().map(bare) else {
            return false;
        };
        let port = url.port_or_known_default();
        let is = |(name, only): &(String, Option<u16>)| *name == host && (only.is_none() || *only == port);
        self.0.iter().any(is)
    }
}

fn bare(host: &str) -> String {
    host.trim_end_matches('.').to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whose(base: &str, url: &str) -> Whose {
        let shelf = Shelf::of(&ConnectorUrl::parse(base).unwrap()).unwrap();
        shelf.whose(&Url::parse(url).unwrap())
    }

    #[test]
    fn only_files_on_the_shelf_are_the_connectors() {
        for (base, url) in [
            ("https://c.example", "https://c.example/relay/media/abc"),
            (
                "wss://c.example/relay",
                "https://C.EXAMPLE:443/relay/media/a.b_c-d?sig=1",
            ),
            ("https://c.example/a", "https://c.example/a/relay/media/x/y"),
            ("http://[::1]:8080", "http://[0:0::1]:8080/relay/media/x"),
        ] {
            assert_eq!(whose(base, url), Whose::Connector, "{url}");
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
            assert_eq!(whose(base, url), Whose::Anyone, "{url}");
        }
    }

    #[test]
    fn an_address_is_http_and_names_nobody() {
        let fault = |text: &str| parse_address(text).unwrap_err();
        assert_eq!(fault("file:///etc/passwd"), AddressError::Scheme);
        assert_eq!(fault("data:text/plain,x"), AddressError::Scheme);
        assert_eq!(fault("/relay/media/x"), AddressError::NotUrl);
        assert_eq!(fault("https://u@h/x"), AddressError::Credentials);
        assert_eq!(
            fault(&format!("https://h/{}", "x".repeat(MAX_URL))),
            AddressError::TooLong
        );
        assert_eq!(parse_address("https://h/x#y").unwrap().as_str(), "https://h/x");
    }

    #[test]
    fn every_spelling_of_a_private_number_is_seen_through() {
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
            assert!(is_plainly_private(&Url::parse(url).unwrap()), "{url}");
        }
        for url in [
            "http://8.8.8.8/",
            "https://cdn.example/",
            "https://local.example/",
            "https://mylocal.com/",
        ] {
            assert!(!is_plainly_private(&Url::parse(url).unwrap()), "{url}");
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
}
