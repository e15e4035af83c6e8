use super::*;

fn html(markdown: &str) -> String {
    render(markdown).html()
}

#[test]
fn every_construct_has_its_html() {
    let cases: &[(&str, &str)] = &[
        ("plain text", "plain text"),
        ("a < b && c > \"d\"", "a &lt; b &amp;&amp; c &gt; &quot;d&quot;"),
        ("# Title\ntext", "<b>Title</b>\n\ntext"),
        ("## Use `x` **now**", "<b>Use </b><code>x</code><b> now</b>"),
        (
            "**bold** *italic* _too_ ~~gone~~ `code`",
            "<b>bold</b> <i>italic</i> <i>too</i> <s>gone</s> <code>code</code>",
        ),
        ("***both***", "<b><i>both</i></b>"),
        ("**a `b` c**", "<b>a </b><code>b</code><b> c</b>"),
        (
            "*a **b ~~c `d` e~~ f** g*",
            "<i>a <b>b <s>c </s></b></i><code>d</code><i><b><s> e</s> f</b> g</i>",
        ),
        (
            "[text](https://a.b/?x=1&y=\"2\")",
            "<a href=\"https://a.b/?x=1&amp;y=&quot;2&quot;\">text</a>",
        ),
        ("[**b** `c`](http://x.y)", "<a href=\"http://x.y\"><b>b</b> c</a>"),
        ("<https://a.b>", "<a href=\"https://a.b\">https://a.b</a>"),
        ("see [main.rs](src/main.rs)", "see main.rs (src/main.rs)"),
        (
            "[x](tg://user?id=1) [y](javascript:alert(1))",
            "x (tg://user?id=1) y (javascript:alert(1))",
        ),
        ("<ann@example.org>", "ann@example.org"),
        (
            "![a cat](https://a.b/c.png)",
            "<a href=\"https://a.b/c.png\">a cat</a>",
        ),
        (
            "![](https://a.b/c.png)",
            "<a href=\"https://a.b/c.png\">https://a.b/c.png</a>",
        ),
        (
            "[![alt](https://i.j)](https://a.b)",
            "<a href=\"https://a.b\">alt</a>",
        ),
        (
            "<b>not bold</b> <script>",
            "&lt;b&gt;not bold&lt;/b&gt; &lt;script&gt;",
        ),
        (
            "<div>\nblock\n</div>\n\nafter",
            "&lt;div&gt;\nblock\n&lt;/div&gt;\n\nafter",
        ),
        ("one\ntwo  \nthree\\\nfour", "one\ntwo\nthree\nfour"),
        ("one\n\n\n\ntwo", "one\n\ntwo"),
        ("a\n\n---\n\nb", "a\n\n——————————\n\nb"),
        (
            "```rust\nfn x() {}\n```",
            "<pre><code class=\"language-rust\">fn x() {}</code></pre>",
        ),
        (
            "```c++,ignore title=\"x\"\na<b>&c\n```",
            "<pre><code class=\"language-c++\">a&lt;b&gt;&amp;c</code></pre>",
        ),
        ("```\n  two\n\n\tfour\n```", "<pre>  two\n\n    four</pre>"),
        ("```\"><b>\nx\n```", "<pre>x</pre>"),
        ("a\n\n    indented\n\nb", "a\n\n<pre>indented</pre>\n\nb"),
        ("```\nunclosed", "<pre>unclosed</pre>"),
        (
            "- a\n- b\n  - c\n    - d\n      - e\n- f",
            "• a\n• b\n\u{2007}\u{2007}◦ c\n\u{2007}\u{2007}\u{2007}\u{2007}▪ d\n\u{2007}\u{2007}\u{2007}\u{2007}\u{2007}\u{2007}• e\n• f",
        ),
        ("3. a\n4. b", "3. a\n4. b"),
        (
            "text\n1. a\n   more\n\n   next\n2. b\n\nafter",
            "text\n\n1. a\n\u{2007}\u{2007}more\n\u{2007}\u{2007}next\n2. b\n\nafter",
        ),
        ("- [x] done\n- [ ] open\n\n- [x] loose", "☑ done\n☐ open\n☑ loose"),
        (
            "- a\n  ```sh\n  ls\n  ```\n- b",
            "• a\n<pre><code class=\"language-sh\">ls</code></pre>\n• b",
        ),
        (
            "> quoted\n> *twice*\n\nafter",
            "<blockquote>quoted\n<i>twice</i></blockquote>\n\nafter",
        ),
        ("> a\n> > b\n> > > c", "<blockquote>a\n\nb\n\nc</blockquote>"),
        (
            "> - a\n> - b\n>\n> ```\n> x\n> ```",
            "<blockquote>• a\n• b\n\n<pre>x</pre></blockquote>",
        ),
        ("> ```\n> x\n> ```", "<blockquote><pre>x</pre></blockquote>"),
        (
            "> 1\n> 2\n> 3\n> 4\n> 5\n> 6\n> 7\n> 8\n> 9",
            "<blockquote expandable>1\n2\n3\n4\n5\n6\n7\n8\n9</blockquote>",
        ),
        ("~~~~", "~~~~"),
        ("```\n```", "```\n```"),
        ("main.rs and README.md", "main.rs and README.md"),
        ("$x^2$ and [^1]", "$x^2$ and [^1]"),
        ("&lt;b&gt; &copy; &unknown;", "&lt;b&gt; © &amp;unknown;"),
        ("a\u{202e}b\u{0}c\td", "abc d"),
    ];
    for (markdown, expected) in cases {
        assert_eq!(html(markdown), *expected, "{markdown}");
    }
}

#[test]
fn a_narrow_table_is_aligned_by_what_is_seen() {
    let table = "| Name | Qty |\n|:--|--:|\n| **apple** | 3 |\n| 漢字 | 12 |\n| 👍 `x` | |";
    assert_eq!(
        html(table),
        "<pre>Name  | Qty\n------+----\napple |   3\n漢字  |  12\n👍 x  |</pre>"
    );
    let centred = "|abc|\n|:-:|\n|x|";
    assert_eq!(html(centred), "<pre>abc\n---\n x</pre>");
}

#[test]
fn a_wide_table_is_a_block_per_row() {
    let table = "before\n\n| Name | What it does | |\n|---|---|---|\n| `relay` | connects an agent to a **chat** | x |\n| other | | |\n\nafter";
    assert_eq!(
        html(table),
        "before\n\nName: <code>relay</code>\nWhat it does: connects an agent to a <b>chat</b>\nx\n\nName: other\n\nafter"
    );
    // A link would be lost in code.
    let linked = "|a|b|\n|-|-|\n|[x](http://y.z)|1|";
    assert_eq!(html(linked), "a: <a href=\"http://y.z\">x</a>\nb: 1");
    let head = "|a very long heading of a column|and another one|\n|-|-|";
    assert_eq!(html(head), "a very long heading of a column | and another one");
}

#[test]
fn what_serves_no_reader_is_shown_as_it_was_written() {
    let deep = format!("{}x", "> ".repeat(40));
    assert_eq!(render(&deep).text, deep);
    for fine in [
        "1 2 3 4 5 6 7 8 9 ".repeat(9).trim_end(),
        "> > > *x*",
        "-- -- -- -- x",
    ] {
        assert_eq!(
            render(&format!("**a**\n\n{fine}")).spans[0].style,
            TextStyle::Bold,
            "{fine}"
        );
    }
    for deep in ["1. ".repeat(30), ">- ".repeat(20), ">".repeat(30)] {
        assert!(render(&format!("{deep}**a**")).spans.is_empty(), "{deep}");
    }
    let wide = format!("{}\n{}\nx", "|a".repeat(100), "|-".repeat(100));
    assert_eq!(render(&wide).text, wide);
    let long = format!("[a](http://b.c/{})", "x".repeat(3_000));
    assert!(render(&long).spans.is_empty() && render(&long).text.starts_with("a (http://b.c/xxx"));
    for rule in [
        "* * * * * * * * * * * * * * * * * * * * * * * * * * * * *",
        &"-".repeat(500),
    ] {
        assert_eq!(render(rule).text, RULE, "{rule}");
    }
    for blank in ["", "  \n\t", "\u{202e}"] {
        assert!(render(blank).is_blank(), "{blank:?}");
    }
}
