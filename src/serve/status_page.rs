//! The status page: the rows of `hermes-relay status` as HTML, read-only, without scripts.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use sha2::{Digest as _, Sha256};

use super::status_rows::{StatusRow, Tone};
use crate::text::escape;

/// Seconds after which a browser loads the page again.
const REFRESH_SECS: u32 = 5;

const STYLE: &str = ":root{color-scheme:light dark}\
    body{font:16px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem}\
    h1{font-size:1.25rem}table{border-collapse:collapse;width:100%}\
    th,td{padding:.3rem .8rem .3rem 0;text-align:left;vertical-align:top}\
    th{font-weight:600;white-space:nowrap;width:1%}td{overflow-wrap:anywhere}\
    tr{border-bottom:1px solid color-mix(in srgb,currentColor 15%,transparent)}\
    .good{color:light-dark(#1a7f37,#4ac26b)}.warning{color:light-dark(#8a5a00,#d4a72c)}\
    .bad{color:light-dark(#b3261e,#ff8182)}footer{margin-top:1rem;opacity:.75}";

/// What the page may load and do: its own style and nothing else.
pub(super) fn content_security_policy() -> String {
    let style = BASE64_STANDARD.encode(Sha256::digest(STYLE));
    format!(
        "default-src 'none'; style-src 'sha256-{style}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
}

/// The page.
pub(super) fn page(rows: &[StatusRow]) -> String {
    let mut table = String::new();
    // Writing to a String does not fail.
    for row in rows {
        let label = html(row.label);
        let _ = write!(table, "<tr><th scope=\"row\">{label}</th><td>");
        for (tone, text) in &row.pieces {
            let text = html(text);
            let _ = match class(*tone) {
                Some(class) => write!(table, "<span class=\"{class}\">{text}</span>"),
                None => write!(table, "{text}"),
            };
        }
        table.push_str("</td></tr>\n");
    }
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <meta http-equiv=\"refresh\" content=\"{REFRESH_SECS}\">\n\
         <title>hermes-relay</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>hermes-relay</h1>\n\
         <table>\n{table}</table>\n\
         <footer>Read-only; loaded again every {REFRESH_SECS} seconds. For programs: /healthz, /readyz, /metrics.</footer>\n\
         </body>\n</html>\n"
    )
}

fn class(tone: Tone) -> Option<&'static str> {
    match tone {
        Tone::Plain => None,
        Tone::Good => Some("good"),
        Tone::Warning => Some("warning"),
        Tone::Bad => Some("bad"),
    }
}

/// The text with everything escaped that is markup, or that a reader would not see.
fn html(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in escape(text).chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            _ => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::serve::status_rows;

    #[test]
    fn text_from_outside_is_no_markup() {
        let hostile = "<script>alert('x')</script>\u{202e}\" onload=\"";
        let status = json!({
            "link": hostile, "last_loss": hostile, "connector": hostile, "undeclared_platforms": [hostile],
            "descriptors": [{"platform": hostile, "label": hostile, "ops": [hostile]}],
            "agents": [{"name": hostile, "kind": hostile, "state": hostile, "why": hostile}],
        });
        let page = page(&status_rows(&status));
        assert!(!page.contains("<script") && !page.contains('\u{202e}'), "{page}");
        assert!(!page.contains("\" onload"), "{page}");
        assert_eq!(
            page.matches("&lt;script&gt;alert(&#39;x&#39;)").count(),
            11,
            "{page}"
        );
    }

    #[test]
    fn the_policy_admits_the_style_of_the_page_alone() {
        let page = page(&[]);
        let style = page
            .split_once("<style>")
            .unwrap()
            .1
            .split_once("</style>")
            .unwrap()
            .0;
        let hash = BASE64_STANDARD.encode(Sha256::digest(style));
        let policy = content_security_policy();
        assert!(policy.contains(&format!("style-src 'sha256-{hash}'")), "{policy}");
        assert!(policy.starts_with("default-src 'none';"), "{policy}");
    }
}
