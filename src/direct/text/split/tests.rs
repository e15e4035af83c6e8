use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::super::markdown::render;
use super::*;
use crate::direct::telegram::MESSAGE_CHARS;
use crate::wire::split_mix;

/// Reads HTML as the server does: the text, and how many styles it has. Panics on what the server would refuse.
fn parse(html: &str) -> (String, usize) {
    let mut text = String::new();
    let mut open: Vec<&str> = Vec::new();
    let mut styles = 0;
    let mut rest = html;
    while let Some(at) = rest.find(['<', '&', '>', '"']) {
        text.push_str(&rest[..at]);
        rest = &rest[at..];
        if let Some(tag) = rest.strip_prefix('<') {
            let end = tag.find('>').expect("a tag ends");
            let (tag, after) = (&tag[..end], &tag[end + 1..]);
            rest = after;
            if let Some(name) = tag.strip_prefix('/') {
                assert_eq!(open.pop(), Some(name), "tags nest: {html}");
                continue;
            }
            let name = tag.split(' ').next().unwrap();
            let attribute = tag[name.len()..].trim_start();
            let is_language = name == "code" && attribute.starts_with("class=\"language-");
            let known = match name {
                "b" | "i" | "s" | "pre" => attribute.is_empty(),
                "code" => attribute.is_empty() || (is_language && open.last() == Some(&"pre")),
                "blockquote" => attribute.is_empty() || attribute == "expandable",
                "a" => attribute.starts_with("href=\"http") && attribute.ends_with('"'),
                _ => false,
            };
            assert!(known, "a tag that the server knows: <{tag}>");
            assert!(
                !attribute
                    .trim_end_matches('"')
                    .rsplit_once("=\"")
                    .is_some_and(|(_, value)| value.contains('"'))
            );
            let inside = |other: &str| open.contains(&other);
            assert!(
                !inside("code") && (!inside("pre") || is_language),
                "nothing is in code: {html}"
            );
            assert!(
                name != "blockquote" || !inside("blockquote"),
                "quotes do not nest"
            );
            assert!(name != "a" || !inside("a"), "links do not nest");
            assert!(
                !(name == "code" || name == "pre")
                    || is_language
                    || open.iter().all(|tag| *tag == "blockquote")
            );
            styles += usize::from(!is_language);
            open.push(name);
        } else {
            let (entity, c) = [("&lt;", '<'), ("&gt;", '>'), ("&amp;", '&'), ("&quot;", '"')]
                .into_iter()
                .find(|(entity, _)| rest.starts_with(entity))
                .unwrap_or_else(|| panic!("escaped: {rest}"));
            text.push(c);
            rest = &rest[entity.len()..];
        }
    }
    text.push_str(rest);
    assert!(open.is_empty(), "every tag is closed: {html}");
    (text, styles)
}

/// Checks every part of a text as the server would, and returns the parts' HTML.
fn checked(source: &str, limit: usize) -> Vec<String> {
    let parts = render(source).split(limit);
    assert_eq!(parts.is_empty(), render(source).is_blank(), "{source:?}");
    let check = |part: &Styled| {
        let html = part.html();
        let (text, styles) = parse(&html);
        assert_eq!(text, part.text);
        assert!(
            text.chars().count() <= limit && !text.trim().is_empty(),
            "{text:?}"
        );
        assert!(styles <= MAX_ENTITIES, "{styles} styles");
        assert!(html.len() <= 35_000, "{} bytes", html.len());
        html
    };
    parts.iter().map(check).collect()
}

fn plain_parts(source: &str, limit: usize) -> Vec<String> {
    let parts = render(source).split(limit);
    parts.into_iter().map(|part| part.text).collect()
}

#[test]
fn a_cut_is_made_at_the_best_place() {
    for (source, limit, parts) in [
        ("one two", 20, vec!["one two"]),
        (
            "first block\n\nsecond block",
            20,
            vec!["first block", "second block"],
        ),
        (
            "a\n\nline one here\nline two here",
            24,
            vec!["a\n\nline one here", "line two here"],
        ),
        (
            "- item one\n- item two\n- item three",
            24,
            vec!["• item one\n• item two", "• item three"],
        ),
        ("It works. And goes on", 16, vec!["It works.", "And goes on"]),
        ("just some words here", 12, vec!["just some", "words here"]),
        ("exactly ten then more", 11, vec!["exactly ten", "then more"]),
        ("abcdefghij", 4, vec!["abcd", "efgh", "ij"]),
        (
            "これは文です。次の文です",
            9,
            vec!["これは文です。", "次の文です"],
        ),
        ("ae\u{301}e\u{301}x", 4, vec!["ae\u{301}", "e\u{301}x"]),
        (
            "👩\u{200d}💻👩\u{200d}💻",
            5,
            vec!["👩\u{200d}💻", "👩\u{200d}💻"],
        ),
    ] {
        assert_eq!(plain_parts(source, limit), parts, "{source}");
    }
}

#[test]
fn the_length_is_that_of_the_server() {
    let emoji = "😀".repeat(4096);
    assert_eq!(
        plain_parts(&emoji, MESSAGE_CHARS).len(),
        1,
        "code points, not UTF-16 units"
    );
    let more = "😀".repeat(4097);
    let parts = plain_parts(&more, MESSAGE_CHARS);
    assert_eq!(parts.len(), 2);
    assert_eq!(parts.concat(), more, "nothing is lost");
    // Markup and escapes do not count.
    let bold = format!("**{}**", "<".repeat(4096));
    let parts = checked(&bold, MESSAGE_CHARS);
    assert_eq!(parts.len(), 1);
    assert_eq!(parts[0].len(), 4096 * 4 + 7);
}

#[test]
fn styles_and_code_blocks_go_on_in_the_next_part() {
    let lines: Vec<String> = (0..20).map(|at| format!("let x{at} = {at};")).collect();
    let code = format!("Look:\n\n```rust\n{}\n```\n\nDone.", lines.join("\n"));
    let parts = checked(&code, 100);
    assert!(parts.len() > 2);
    assert!(
        parts[0].starts_with("Look:\n\n<pre><code class=\"language-rust\">let x0 = 0;\n"),
        "{}",
        parts[0]
    );
    for part in &parts[1..parts.len() - 1] {
        assert!(
            part.starts_with("<pre><code class=\"language-rust\">let x"),
            "{part}"
        );
        assert!(part.ends_with(";</code></pre>"), "{part}");
    }
    assert!(parts.last().unwrap().ends_with("</code></pre>\n\nDone."));
    let indented = "```\nfirst line\n    second line\n```";
    assert_eq!(
        checked(indented, 16),
        ["<pre>first line</pre>", "<pre>    second line</pre>"]
    );
    assert_eq!(
        checked("**one two *three four***", 9),
        ["<b>one two</b>", "<b><i>three</i></b>", "<b><i>four</i></b>"]
    );
    assert_eq!(
        checked("> one two three\n> four five six", 16),
        [
            "<blockquote>one two three</blockquote>",
            "<blockquote>four five six</blockquote>"
        ]
    );
}

#[test]
fn a_link_is_not_cut_if_it_fits_in_a_part() {
    assert_eq!(
        checked("some words and [a link here](http://a.b)", 20),
        ["some words and", "<a href=\"http://a.b\">a link here</a>"]
    );
    let long = checked("[one two three four](http://a.b)", 10);
    assert!(
        long.len() > 1
            && long
                .iter()
                .all(|part| part.starts_with("<a href=\"http://a.b\">"))
    );
}

#[test]
fn no_part_has_more_styles_or_addresses_than_the_server_takes() {
    let many = "**a** `b` ".repeat(150);
    let parts = checked(&many, MESSAGE_CHARS);
    assert_eq!(parts.len(), 3, "300 styles, 100 per part");
    let url = format!("https://a.b/{}", "x".repeat(1_500));
    let links = format!("[a]({url}) ").repeat(10);
    assert!(checked(&links, MESSAGE_CHARS).len() >= 3);
    let ampersands = format!("[a](https://a.b/?{}) ", "&".repeat(390)).repeat(20);
    checked(&ampersands, MESSAGE_CHARS);
    checked(&"&".repeat(9_000), MESSAGE_CHARS);
}

#[test]
fn random_texts_become_well_formed_parts() {
    const PIECES: &[&str] = &[
        "word ",
        "two words ",
        "*",
        "**",
        "***",
        "_",
        "`",
        "``",
        "```",
        "```rust\n",
        "~~",
        "~",
        "[",
        "](http://a.b)",
        "](x)",
        "!",
        "<b>",
        "</b>",
        "<!--",
        "&amp;",
        "&",
        "<",
        ">",
        "\n",
        "\n\n",
        "\n> ",
        "\n>> ",
        "\n- ",
        "\n  - ",
        "\n1. ",
        "\n- [x] ",
        "\n# ",
        "\n| a | b |\n|---|--:|\n| ",
        " | ",
        "|\n",
        "    ",
        "\t",
        "漢字。",
        "👩\u{200d}💻",
        "e\u{301}",
        "\u{202e}",
        "\\",
        "http://x.y/z ",
        "---\n",
        "===\n",
        "\"",
        "'",
        "(",
        ")",
        "\r\n",
        "$",
        ":",
    ];
    let mut seed = 7;
    for round in 0..1_500 {
        let length = 1 + split_mix(&mut seed) % 60;
        let mut source = String::new();
        for _ in 0..length {
            let pick = split_mix(&mut seed) % u64::try_from(PIECES.len()).unwrap();
            source.push_str(PIECES[usize::try_from(pick).unwrap()]);
        }
        let limit = [8, 20, 60, 4096][round % 4];
        checked(&source, limit);
    }
}

/// Pieces that are hostile when they are repeated.
const REPEATED: &[&str] = &[
    "[",
    "![",
    "](",
    "[a](",
    "*",
    "**",
    "_",
    "*_",
    "*a ",
    "**a ",
    "a**b",
    "`",
    "`a",
    "``a`",
    "~~a ",
    "<",
    "<a ",
    "<!--",
    "<?",
    "<![CDATA[",
    "<!A ",
    "&",
    "&#",
    "> ",
    ">",
    ">a\n",
    "> <b>\n\n",
    "> a\n\n",
    "- ",
    "-\n",
    "- a\n",
    "1. ",
    "* * ",
    "+ ",
    "# ",
    "#\n",
    "|",
    "|-",
    "|a",
    "|-\n",
    "a|\n-|\n",
    "\\",
    "\\\n",
    "\n",
    " ",
    "\t",
    "    a\n",
    "```",
    "```\n",
    "~~~\n",
    "[a]: b\n",
    "[a]",
    "[a][",
    "[^a]",
    "a\n=\n",
    "$",
    "(",
    "\u{301}",
    "🇦",
    "漢",
    "\r",
    "\u{0}",
    "- [x] ",
    "***a ",
    "[x](http://a.b) ",
    "**a** ",
    "`a` ",
];

/// What this thread has used of the processor: a busy machine adds nothing to it.
fn processor_time() -> Duration {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(used.tv_sec.cast_unsigned(), u32::try_from(used.tv_nsec).unwrap())
}

#[test]
fn hostile_texts_are_never_slow() {
    const SIZE: usize = 100_000;
    let repeated = |piece: &str| piece.repeat(SIZE / piece.len());
    let lines = |lines: &mut dyn Iterator<Item = String>| lines.collect::<Vec<_>>().join("\n");
    let mut texts: Vec<String> = REPEATED.iter().map(|piece| repeated(piece)).collect();
    texts.push(format!("{}{}", "- ".repeat(20), "\n".repeat(SIZE)));
    texts.push(format!("{}{}", "> ".repeat(20), "a\n".repeat(SIZE / 2)));
    texts.push(format!(
        "{}\n{}\n{}",
        "|a".repeat(60),
        "|-".repeat(60),
        "|\n".repeat(SIZE / 2)
    ));
    texts.push(format!("{}a{}", "[".repeat(SIZE / 2), "]".repeat(SIZE / 2)));
    texts.push(format!("{}a{}", "*".repeat(SIZE / 2), "*".repeat(SIZE / 2)));
    texts.push(lines(&mut (0..SIZE / 8).map(|at| format!("[{at}]: x"))));
    texts.push(lines(
        &mut (1..400).map(|level| format!("{}- a", "  ".repeat(level % 200))),
    ));
    for text in &texts {
        let time = || -> Duration {
            let started = processor_time();
            let parts = render(text).split(MESSAGE_CHARS);
            assert!(parts.len() < 1_500);
            processor_time().saturating_sub(started)
        };
        // A busy machine is slow now and then; a slow text always is.
        let took = (0..3)
            .map(|_| time())
            .find(|took| *took < Duration::from_millis(800));
        let shown: String = text.chars().take(12).collect();
        assert!(took.is_some(), "{shown:?} is slow");
        checked(text, MESSAGE_CHARS);
    }
}
