//! A message's text in HTML, as the Bot API reads it.

use std::fmt::Write as _;

use hermes_relay::dev::{ApiSpan, ApiText};
use serde_json::Value;

/// The text with its formatting.
pub(crate) fn to_html(text: &ApiText) -> String {
    let mut out = String::new();
    let mut open: Vec<&ApiSpan> = Vec::new();
    for at in 0..=text.chars.len() {
        // Close what ends here, with everything inside of it, and reopen what goes on.
        if let Some(first) = open.iter().position(|span| span.end == at) {
            let inner = open.split_off(first);
            for span in inner.iter().rev() {
                out.push_str(close_tag(span));
            }
            for span in inner.into_iter().filter(|span| span.end > at) {
                out.push_str(&open_tag(span));
                open.push(span);
            }
        }
        for span in text.spans.iter().filter(|span| span.start == at) {
            out.push_str(&open_tag(span));
            open.push(span);
        }
        match text.chars.get(at) {
            Some('<') => out.push_str("&lt;"),
            Some('>') => out.push_str("&gt;"),
            Some('&') => out.push_str("&amp;"),
            Some(c) => out.push(*c),
            None => {}
        }
    }
    out
}

fn open_tag(span: &ApiSpan) -> String {
    let quoted = |name: &str| {
        let value = match &span.extra[name] {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        value
            .replace('&', "&amp;")
            .replace('"', "&quot;")
            .replace('<', "&lt;")
    };
    let mut tag = String::new();
    let _ = match span.kind.as_str() {
        "bold" => write!(tag, "<b>"),
        "italic" => write!(tag, "<i>"),
        "underline" => write!(tag, "<u>"),
        "strikethrough" => write!(tag, "<s>"),
        "spoiler" => write!(tag, "<tg-spoiler>"),
        "code" => write!(tag, "<code>"),
        "pre" if span.extra.contains_key("language") => {
            write!(tag, "<pre><code class=\"language-{}\">", quoted("language"))
        }
        "pre" => write!(tag, "<pre>"),
        "blockquote" => write!(tag, "<blockquote>"),
        "expandable_blockquote" => write!(tag, "<blockquote expandable>"),
        "text_link" if span.extra.contains_key("url") => write!(tag, "<a href=\"{}\">", quoted("url")),
        "text_mention" => {
            let id = span.extra.get("user").and_then(|user| user["id"].as_i64());
            write!(tag, "<a href=\"tg://user?id={}\">", id.unwrap_or_default())
        }
        _ => Ok(()),
    };
    tag
}

fn close_tag(span: &ApiSpan) -> &'static str {
    match span.kind.as_str() {
        "bold" => "</b>",
        "italic" => "</i>",
        "underline" => "</u>",
        "strikethrough" => "</s>",
        "spoiler" => "</tg-spoiler>",
        "code" => "</code>",
        "pre" if span.extra.contains_key("language") => "</code></pre>",
        "pre" => "</pre>",
        "blockquote" | "expandable_blockquote" => "</blockquote>",
        "text_mention" => "</a>",
        "text_link" if span.extra.contains_key("url") => "</a>",
        _ => "",
    }
}
