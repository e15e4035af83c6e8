use super::*;

const TABLE: &str = "| a | b |\n|---|--:|\n| 1 | 2 |";
const TABLE_WRITTEN: &str = "| a | b |\n| --- | --: |\n| 1 | 2 |";

#[test]
fn only_what_gains_by_it_is_rich() {
    let fold = "<details>\n<summary>Log</summary>\n\ntext\n\n</details>";
    let tasks = "- [x] done\n- [ ] open";
    let math = "so\n\n$$\nx^2\n$$";
    for source in [TABLE, fold, tasks, math] {
        assert!(rich_markdown(source).is_some(), "{source}");
    }
    for source in [
        "",
        "plain",
        "# Heading\n\n**bold** `code`\n\n- list\n\n> quote\n\n```rust\nfn x() {}\n```",
        "inline $x$ and $5 or $6",
        "```\n| a | b |\n|---|---|\n| 1 | 2 |\n```",
        "a | b",
        "<details>broken",
        "![image](https://a.b/c.png)",
    ] {
        assert_eq!(rich_markdown(source), None, "{source}");
    }
}

#[test]
fn every_construct_is_written_so_that_it_is_read_the_same() {
    let cases: &[(&str, &str)] = &[
        (TABLE, TABLE_WRITTEN),
        (
            "|a|b|c|\n|:-|:-:|-|\n|`x\\|y`|-5|\\||",
            "| a | b | c |\n| :-- | :-: | --- |\n| `x\\|y` | -5 | \\| |",
        ),
        (
            "- [x] done\n- [ ] open\n  - sub",
            "- [x] done\n- [ ] open\n  - sub",
        ),
        (
            "10. [ ] ten\n11. eleven\n\n    more",
            "10. [ ] ten\n11. eleven\n\n    more",
        ),
        ("- [ ] one\ntwo", "- [ ] one  \n  two"),
        (
            "# A *b* `c`\ntext\nmore\n\n- [ ] x",
            "# A *b* `c`\n\ntext  \nmore\n\n- [ ] x",
        ),
        (
            "> quote\n> on\n>\n> - [ ] task\n\nafter",
            "> quote  \n> on\n>\n> - [ ] task\n\nafter",
        ),
        (
            "- [ ] run\n  ```sh\n  ls\t`x`\n\n  pwd\n  ```\n  then",
            "- [ ] run\n\n  ```sh\n  ls    `x`\n  \n  pwd\n  ```\n\n  then",
        ),
        (
            "- [ ] ~~old~~ **new** *x*\n\n---\n\n``a ` b``",
            "- [ ] ~~old~~ **new** *x*\n\n***\n\n``a ` b``",
        ),
        (
            "- [ ] [text](https://a.b/c_(d)) <https://e.f>",
            "- [ ] [text](https://a.b/c_%28d%29) [https://e.f](https://e.f)",
        ),
        (
            "- [ ] ![a cat](https://a.b/c.png) ![](https://a.b/d.png) [![alt](https://i.j)](https://a.b)",
            "- [ ] [a cat](https://a.b/c.png) [image](https://a.b/d.png) [alt](https://a.b)",
        ),
        (
            "- [ ] [x](javascript:alert(1)) [f](src/main.rs) <ann@example.org>",
            "- [ ] x (javascript:alert(1)) f (src/main.rs) ann@example.org",
        ),
        (
            "- [ ] <b>x</b> <img src=\"https://a.b/c.png\"> &lt;i&gt; & 1 < 2",
            "- [ ] &lt;b&gt;x&lt;/b&gt; &lt;img src=\"https://a.b/c.png\"&gt; &lt;i&gt; &amp; 1 &lt; 2",
        ),
        (
            "<div>\n<img src=x>\n</div>\n\n- [ ] x",
            "&lt;div&gt;  \n&lt;img src=x&gt;  \n&lt;/div&gt;\n\n- [ ] x",
        ),
        (
            "<details>\n<summary>A *log* ![x](y)</summary>\n\n| a |\n|---|\n| 1 |\n\n</details>\nend",
            "<details><summary>A &#42;log&#42; &#33;&#91;x&#93;(y)</summary>\n\n| a |\n| --- |\n| 1 |\n\n</details>\n\nend",
        ),
        ("costs $5-$6\n\n- [ ] x", "costs \\$5-\\$6\n\n- [ ] x"),
        (
            "with $a<b$:\n\n$$\nx^2 > y\n$$",
            "with $a\\lt b$:\n\n$$\nx^2 \\gt  y\n$$",
        ),
        (
            "\\# no heading\n\n1\\. no list\n\n\\- no\n\n- [ ] a\\*b \\![x](https://y.z)",
            "\\# no heading\n\n1\\. no list\n\n\\- no\n\n- [ ] a\\*b \\![x](https://y.z)",
        ),
    ];
    for (source, expected) in cases {
        assert_eq!(rich_markdown(source).as_deref(), Some(*expected), "{source}");
    }
}

#[test]
fn beyond_the_limits_the_text_goes_another_way() {
    let table = |columns: usize, rows: usize| {
        let row = format!("{}|\n", "| x ".repeat(columns));
        format!("{row}{}|\n{}", "|---".repeat(columns), row.repeat(rows))
    };
    for (source, fits) in [
        (table(20, 10), true),
        (table(21, 1), false),
        (table(2, 490), true),
        (table(2, 500), false),
        ("- [ ] x\n".repeat(240), true),
        ("- [ ] x\n".repeat(500), false),
        (format!("{TABLE}\n\n{}", "x".repeat(32_000)), true),
        (format!("{TABLE}\n\n{}", "x".repeat(33_000)), false),
        // Longer only when it is written.
        (format!("{TABLE}\n\n{}", "\\<".repeat(16_000)), false),
        (format!("{TABLE}\n\n{} x", "> ".repeat(16)), true),
        (format!("{TABLE}\n\n{} x", "> ".repeat(17)), false),
        (
            "<details><summary>s</summary>\n\n$$x$$\n\n</details>".to_owned(),
            false,
        ),
        (
            "<details><summary>s</summary>\n\nx\n\n</details>\n\n$$x$$".to_owned(),
            true,
        ),
    ] {
        let written = rich_markdown(&source);
        assert_eq!(written.is_some(), fits, "{}", &source[..source.len().min(80)]);
    }
}

/// What a text shows, without white space, and whether it has something that a server would fetch or read as HTML.
fn shown(source: &str, options: Options) -> (String, Vec<String>) {
    let mut text = String::new();
    let mut dangers = Vec::new();
    for event in Parser::new_ext(source, options) {
        match event {
            Event::Text(part) | Event::Code(part) | Event::InlineMath(part) | Event::DisplayMath(part) => {
                text.push_str(&part);
            }
            Event::Html(part) | Event::InlineHtml(part) => {
                let tag = part.trim();
                let is_fold = folds::fold_pieces(tag)
                    .iter()
                    .all(|piece| matches!(piece, folds::FoldPiece::Tag(_)));
                if !tag.starts_with("<details><summary>") && !is_fold {
                    dangers.push(part.to_string());
                }
                text.push_str(&part);
            }
            Event::Start(Tag::Image { dest_url, .. }) => dangers.push(dest_url.to_string()),
            Event::TaskListMarker(done) => text.push_str(if done { "[x]" } else { "[ ]" }),
            _ => {}
        }
    }
    text.retain(|c| !c.is_whitespace() && c != '$');
    (text, dangers)
}

/// Pieces of texts, from which hostile ones are made.
const PIECES: &[&str] = &[
    "word",
    " ",
    "\n",
    "\n\n",
    "*",
    "**",
    "_",
    "__",
    "~~",
    "`",
    "``",
    "```\n",
    "~~~\n",
    "# ",
    "- ",
    "- [ ] ",
    "1. ",
    "> ",
    "    ",
    "\t",
    "|",
    "\n| a | b |\n|---|---|\n| 1 | 2 |\n",
    "\\",
    "\\\\",
    "<b>",
    "</b>",
    "<img src=\"https://x.y/z\">",
    "<!--",
    "-->",
    "&lt;",
    "&",
    "<",
    ">",
    "!",
    "[",
    "]",
    "(https://x.y)",
    "![",
    "![a](https://x.y/z)",
    "[a]: https://x.y\n",
    "[a]",
    "![a]",
    "<https://x.y>",
    "$",
    "$$",
    "==",
    "||",
    "---\n",
    "===\n",
    "é",
    "日本",
    "<details>\n",
    "<summary>s</summary>\n",
    "</details>\n",
    "<details><summary>s</summary>\n\n",
    "\u{202e}",
    "\r\n",
    "+",
    ".",
    ")",
    "7",
];

#[test]
fn whatever_an_agent_writes_is_neither_fetched_nor_read_as_html() {
    let mut seed = 7_u64;
    let mut written = 0;
    for _ in 0..30_000 {
        let mut source = String::new();
        for _ in 0..(next(&mut seed) % 24) {
            source.push_str(PIECES[next(&mut seed) % PIECES.len()]);
        }
        if next(&mut seed).is_multiple_of(2) {
            source.push_str("\n\n- [ ] x");
        }
        let Some(markdown) = rich_markdown(&source) else {
            continue;
        };
        written += 1;
        let (_, dangers) = shown(&markdown, Options::all());
        assert!(dangers.is_empty(), "{source:?}\n{markdown:?}\n{dangers:?}");
        assert!(
            markdown.chars().all(|c| c == '\n' || !c.is_control()),
            "{markdown:?}"
        );
    }
    assert!(written > 10_000, "{written} texts were rich");
}

fn next(seed: &mut u64) -> usize {
    *seed = seed
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    usize::try_from(*seed >> 33).unwrap()
}

#[test]
fn what_is_written_shows_what_was_meant() {
    let read = Options::ENABLE_TABLES
        | Options::ENABLE_STRIKETHROUGH
        | Options::ENABLE_TASKLISTS
        | Options::ENABLE_MATH;
    for source in [
        TABLE,
        "# Plan\n\nFirst *this*, then **that**.\nA line.\n\n1. one\n2. two\n   - [x] sub `a|b`\n\n> said\n> - [ ] so",
        "| path | `cmd` |\n|---|---|\n| a_b_c | x \\| y |\n| **b** | <br> |",
        "- [ ] a\n\n  para\n\n      indented <code>\n- b\n\n```html\n<img src=x>\n```",
        "Price: $5 & $6 < $7 \\* 2\n\n- [x] 3.5 * 2 _a_ snake_case #1 C#",
    ] {
        let markdown = rich_markdown(source).unwrap();
        assert_eq!(
            shown(&markdown, read).0,
            shown(source, read).0,
            "{source}\n---\n{markdown}"
        );
    }
}

#[test]
fn hostile_texts_take_no_time() {
    for piece in ["[", "*", "> ", "- ", "$", "`", "<", "|", "![", "<details>"] {
        let source = format!("{TABLE}\n\n{}", piece.repeat(32_000 / piece.len()));
        let begun = std::time::Instant::now();
        rich_markdown(&source);
        assert!(begun.elapsed().as_secs() < 5, "{piece}: {:?}", begun.elapsed());
    }
}
