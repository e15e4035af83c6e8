//! The page's files, as part of the binary.

use axum::body::Body;
use axum::response::Response;
use http::{StatusCode, header};

use crate::dev::http::plain;

const SCRIPT: &str = "text/javascript; charset=utf-8";

/// Name, type and content.
const FILES: &[(&str, &str, &str)] = &[
    ("", "text/html; charset=utf-8", include_str!("index.html")),
    ("style.css", "text/css; charset=utf-8", include_str!("style.css")),
    ("icon.svg", "image/svg+xml", include_str!("icon.svg")),
    ("main.js", SCRIPT, include_str!("main.js")),
    ("feed.js", SCRIPT, include_str!("feed.js")),
    ("story.js", SCRIPT, include_str!("story.js")),
    ("dom.js", SCRIPT, include_str!("dom.js")),
    ("chats.js", SCRIPT, include_str!("chats.js")),
    ("talk.js", SCRIPT, include_str!("talk.js")),
    ("composer.js", SCRIPT, include_str!("composer.js")),
    ("markdown.js", SCRIPT, include_str!("markdown.js")),
    ("wire.js", SCRIPT, include_str!("wire.js")),
    ("faults.js", SCRIPT, include_str!("faults.js")),
    ("trials.js", SCRIPT, include_str!("trials.js")),
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
