//! The page's files, as part of the binary, and who may request them: the holder of its token, from a page of this
//! very address.
//!
//! Any site that a person visits can send requests to loopback. It cannot know the token; a name of its own that
//! it points at loopback fails at `Host`; and a request that another page makes fails at its origin.

use axum::body::Body;
use axum::response::Response;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};

use crate::dev::http::plain;
use crate::wire::is_loopback_host;

const SCRIPT: &str = "text/javascript; charset=utf-8";

/// Name, type and content.
const FILES: &[(&str, &str, &str)] = &[
    ("", "text/html; charset=utf-8", include_str!("index.html")),
    ("style.css", "text/css; charset=utf-8", include_str!("style.css")),
    ("icon.svg", "image/svg+xml", include_str!("icon.svg")),
    ("main.js", SCRIPT, include_str!("main.js")),
    ("feed.js", SCRIPT, include_str!("feed.js")),
    ("conversation.js", SCRIPT, include_str!("conversation.js")),
    ("dom.js", SCRIPT, include_str!("dom.js")),
    ("chats.js", SCRIPT, include_str!("chats.js")),
    ("talk.js", SCRIPT, include_str!("talk.js")),
    ("composer.js", SCRIPT, include_str!("composer.js")),
    ("markdown.js", SCRIPT, include_str!("markdown.js")),
    ("wire.js", SCRIPT, include_str!("wire.js")),
    ("faults.js", SCRIPT, include_str!("faults.js")),
    ("trials.js", SCRIPT, include_str!("trials.js")),
    ("jobs.js", SCRIPT, include_str!("jobs.js")),
    ("hand.js", SCRIPT, include_str!("hand.js")),
    ("json.js", SCRIPT, include_str!("json.js")),
    ("help.js", SCRIPT, include_str!("help.js")),
    ("completion.js", SCRIPT, include_str!("completion.js")),
];

/// The file of this name.
pub(super) fn file(name: &str) -> Response {
    let Some((_, kind, content)) = FILES.iter().find(|(known, _, _)| *known == name) else {
        return plain(StatusCode::NOT_FOUND, "there is no such file");
    };
    Response::builder()
        .header(header::CONTENT_TYPE, *kind)
        .body(Body::from(*content))
        .expect("the types are ASCII")
}

/// What a page from here may do: load its own files and talk to its own address.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Why a request is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum PageRefusal {
    /// The `Host` is another name or port.
    #[error("the page is only served as the address that `hermes-relay dev` printed")]
    Host,
    /// The request comes from another page.
    #[error("the request comes from another page")]
    Origin,
}

/// Whether a request may be answered.
pub(super) fn check(port: u16, method: &Method, rest: &str, headers: &HeaderMap) -> Result<(), PageRefusal> {
    let text = |name: header::HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let host = text(header::HOST)
        .filter(|host| is_ours(host, port))
        .ok_or(PageRefusal::Host)?;
    let same_origin = text(header::ORIGIN).map(|origin| origin.strip_prefix("http://") == Some(host));
    let reads = method == Method::GET || method == Method::HEAD;
    match same_origin {
        Some(true) => {}
        None if reads && !headers.contains_key(header::ORIGIN) => {}
        _ => return Err(PageRefusal::Origin),
    }
    // A person may follow a link to the page from anywhere; everything else is asked for by the page itself.
    let site = headers
        .get("sec-fetch-site")
        .and_then(|value| value.to_str().ok());
    match site {
        None | Some("same-origin" | "none") => Ok(()),
        Some(_) if reads && rest.is_empty() => Ok(()),
        Some(_) => Err(PageRefusal::Origin),
    }
}

fn is_ours(host: &str, port: u16) -> bool {
    host.rsplit_once(':')
        .is_some_and(|(name, shown)| is_loopback_host(name) && shown.parse() == Ok(port))
}

/// Gives an answer the headers that keep it to itself.
pub(super) fn harden(mut response: Response) -> Response {
    let headers = response.headers_mut();
    for (name, value) in [
        ("content-security-policy", POLICY),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
        ("x-frame-options", "DENY"),
        ("cache-control", "no-store"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_file_reaches_out_builds_markup_from_text_or_is_too_long_to_read() {
        for (name, kind, content) in FILES {
            assert!(content.lines().count() <= 400, "{name} is too long");
            for outside in ["https://", "//cdn", "@import", "url(http"] {
                assert!(!content.contains(outside), "{name} names {outside}");
            }
            if *kind == SCRIPT {
                for unsafe_way in [
                    "innerHTML",
                    "outerHTML",
                    "insertAdjacentHTML",
                    "document.write",
                    "eval(",
                    "DOMParser",
                ] {
                    assert!(!content.contains(unsafe_way), "{name} uses {unsafe_way}");
                }
            }
        }
    }

    #[test]
    fn every_script_that_is_imported_is_served() {
        for (name, _, content) in FILES {
            for line in content.lines().filter(|line| line.starts_with("import ")) {
                let from = line.rsplit("\"./").next().and_then(|rest| rest.split('"').next());
                let from = from.unwrap_or_default();
                assert!(
                    FILES.iter().any(|(known, _, _)| *known == from),
                    "{name} imports {from:?}"
                );
            }
        }
    }
}

#[cfg(test)]
mod guard_tests {
    use super::*;

    fn asked(method: &Method, rest: &str, pairs: &[(&'static str, &str)]) -> Result<(), PageRefusal> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.insert(*name, HeaderValue::from_str(value).unwrap());
        }
        check(80, method, rest, &headers)
    }

    #[test]
    fn only_our_own_address_from_our_own_page_is_answered() {
        let (get, post) = (&Method::GET, &Method::POST);
        assert_eq!(asked(get, "", &[("host", "127.0.0.1:80")]), Ok(()));
        assert_eq!(asked(get, "", &[("host", "localhost:80")]), Ok(()));
        assert_eq!(asked(get, "", &[("host", "[::1]:80")]), Ok(()));
        for host in [
            "evil.example:80",
            "127.0.0.1:81",
            "127.0.0.1",
            "127.0.0.1.evil.example:80",
            "",
        ] {
            assert_eq!(
                asked(get, "", &[("host", host)]),
                Err(PageRefusal::Host),
                "{host}"
            );
        }
        let here = ("host", "127.0.0.1:80");
        assert_eq!(asked(post, "say", &[here]), Err(PageRefusal::Origin), "no origin");
        assert_eq!(
            asked(post, "say", &[here, ("origin", "http://127.0.0.1:80")]),
            Ok(())
        );
        for origin in [
            "http://evil.example",
            "null",
            "https://127.0.0.1:80",
            "http://localhost:80",
        ] {
            assert_eq!(
                asked(post, "say", &[here, ("origin", origin)]),
                Err(PageRefusal::Origin)
            );
            assert_eq!(
                asked(get, "events", &[here, ("origin", origin)]),
                Err(PageRefusal::Origin)
            );
        }
        let cross = ("sec-fetch-site", "cross-site");
        assert_eq!(asked(get, "events", &[here, cross]), Err(PageRefusal::Origin));
        assert_eq!(asked(get, "", &[here, cross]), Ok(()), "a link to the page");
    }
}
