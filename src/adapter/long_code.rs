//! Code that is too long for a chat: a fenced block with more lines than that becomes a file. The text keeps its first lines and
//! names the file; everything else passes as it comes.

use crate::words::{ChatPhrase, Language};

/// Lines of a long block that stay in the text.
const PREVIEW_LINES: usize = 10;
/// What the name of a file ends with, by the language of its block.
const EXTENSIONS: &[(&str, &[&str])] = &[
    ("c", &["c"]),
    ("cpp", &["cpp", "c++", "cc", "cxx"]),
    ("cs", &["cs", "csharp", "c#"]),
    ("css", &["css"]),
    ("csv", &["csv"]),
    ("dart", &["dart"]),
    ("diff", &["diff"]),
    ("ex", &["ex", "elixir"]),
    ("go", &["go", "golang"]),
    ("h", &["h"]),
    ("hs", &["hs", "haskell"]),
    ("html", &["html", "htm"]),
    ("ini", &["ini"]),
    ("java", &["java"]),
    ("js", &["js", "javascript"]),
    ("json", &["json", "jsonc"]),
    ("jsx", &["jsx"]),
    ("kt", &["kt", "kotlin"]),
    ("lua", &["lua"]),
    ("md", &["md", "markdown"]),
    ("patch", &["patch"]),
    ("php", &["php"]),
    ("pl", &["pl", "perl"]),
    ("ps1", &["ps1", "powershell"]),
    ("py", &["py", "python", "python3"]),
    ("r", &["r"]),
    ("rb", &["rb", "ruby"]),
    ("rs", &["rs", "rust"]),
    ("scala", &["scala"]),
    ("scss", &["scss"]),
    ("sh", &["sh", "bash", "shell", "zsh"]),
    ("sql", &["sql"]),
    ("swift", &["swift"]),
    ("tex", &["tex", "latex"]),
    ("toml", &["toml"]),
    ("ts", &["ts", "typescript"]),
    ("tsx", &["tsx"]),
    ("xml", &["xml"]),
    ("yaml", &["yaml", "yml"]),
];

/// A block of code that goes as a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeFile {
    /// The name of the file, such as `code-1.rs`.
    pub name: String,
    /// The code itself.
    pub code: String,
    fence: CodeFence,
}

impl CodeFile {
    /// A file with the changes of a turn.
    pub fn of_changes(code: String) -> Self {
        Self {
            name: "changes.diff".to_owned(),
            fence: CodeFence {
                indent: String::new(),
                mark: '~',
                length: 3,
                info: "diff".to_owned(),
            },
            code,
        }
    }

    /// The block as a text, for where the file cannot be delivered.
    pub fn as_text(&self) -> String {
        let (marks, info) = (self.fence.marks(), &self.fence.info);
        let gap = if self.code.ends_with('\n') { "" } else { "\n" };
        [&marks, info, "\n", &self.code, gap, &marks].concat()
    }
}

/// Takes long code out of a text that comes in pieces. The first lines of a block pass as they come; what follows is held back
/// until the block ends or is too long.
#[derive(Debug)]
pub struct CodeShaper {
    max_lines: usize,
    language: Language,
    block: CodeBlock,
    /// The current line, as far as it is held back.
    line: String,
    /// Whether the current line passes: it is no fence.
    is_passing: bool,
    files: Vec<CodeFile>,
    /// Files that were taken.
    taken: usize,
}

#[derive(Debug)]
enum CodeBlock {
    Outside,
    /// One that stays in the text, to its end.
    Shown(CodeFence),
    /// One that may be too long.
    Open {
        fence: CodeFence,
        code: String,
        lines: usize,
        /// Lines that are not in the text yet; none once there are too many.
        held: String,
    },
}

impl CodeShaper {
    /// For blocks of at most `max_lines` lines; says the rest to a reader of `language`.
    pub fn new(max_lines: usize, language: Language) -> Self {
        Self {
            max_lines,
            language,
            block: CodeBlock::Outside,
            line: String::new(),
            is_passing: false,
            files: Vec::new(),
            taken: 0,
        }
    }

    /// Takes more of the text; returns what can be shown.
    pub fn push(&mut self, text: &str) -> String {
        let mut ready = String::with_capacity(text.len());
        for piece in text.split_inclusive('\n') {
            self.take(piece, &mut ready);
        }
        ready
    }

    /// Something else comes between: returns what was held back of a block that is not too long so far. All of it stays in the text.
    pub fn pause(&mut self) -> String {
        match std::mem::replace(&mut self.block, CodeBlock::Outside) {
            CodeBlock::Open {
                fence, lines, held, ..
            } if lines <= self.max_lines => {
                self.block = CodeBlock::Shown(fence);
                held
            }
            other => {
                self.block = other;
                String::new()
            }
        }
    }

    /// The text is over: returns what was held back. A block that was not closed ends here.
    pub fn finish(&mut self) -> String {
        let mut ready = String::new();
        let line = std::mem::take(&mut self.line);
        if !line.is_empty() {
            self.end_line(&line, &mut ready);
        }
        self.is_passing = false;
        if let CodeBlock::Open {
            fence,
            code,
            lines,
            held,
        } = std::mem::replace(&mut self.block, CodeBlock::Outside)
        {
            if lines > self.max_lines {
                self.put_away(fence, code, &mut ready);
            } else {
                ready.push_str(&held);
            }
        }
        ready
    }

    /// The text begins anew: what was not taken is forgotten.
    pub fn restart(&mut self) {
        self.finish();
        self.files.clear();
    }

    /// The files since the last time.
    pub fn take_files(&mut self) -> Vec<CodeFile> {
        self.taken += self.files.len();
        std::mem::take(&mut self.files)
    }

    /// Takes a piece of one line.
    fn take(&mut self, piece: &str, ready: &mut String) {
        let ends = piece.ends_with('\n');
        if self.is_passing {
            ready.push_str(piece);
            self.is_passing = !ends;
            return;
        }
        self.line.push_str(piece);
        if ends {
            let line = std::mem::take(&mut self.line);
            self.end_line(&line, ready);
        } else if !matches!(self.block, CodeBlock::Open { .. }) && !may_become_fence(&self.line) {
            ready.push_str(&std::mem::take(&mut self.line));
            self.is_passing = true;
        }
    }

    /// Takes a whole line that was held back.
    fn end_line(&mut self, line: &str, ready: &mut String) {
        match &mut self.block {
            CodeBlock::Outside => {
                ready.push_str(line);
                if let Some(fence) = CodeFence::parse(line) {
                    self.block = CodeBlock::Open {
                        fence,
                        code: String::new(),
                        lines: 0,
                        held: String::new(),
                    };
                }
            }
            CodeBlock::Shown(fence) => {
                ready.push_str(line);
                if fence.is_closed_by(line) {
                    self.block = CodeBlock::Outside;
                }
            }
            CodeBlock::Open { fence, .. } if fence.is_closed_by(line) => {
                ready.push_str(&self.close(line));
            }
            CodeBlock::Open {
                fence,
                code,
                lines,
                held,
            } => {
                *lines += 1;
                code.push_str(fence.without_indent(line));
                if *lines <= PREVIEW_LINES.min(self.max_lines) {
                    ready.push_str(line);
                } else if *lines <= self.max_lines {
                    held.push_str(line);
                } else {
                    *held = String::new();
                }
            }
        }
    }

    /// The line closes the open block.
    fn close(&mut self, line: &str) -> String {
        let CodeBlock::Open {
            fence,
            code,
            lines,
            mut held,
        } = std::mem::replace(&mut self.block, CodeBlock::Outside)
        else {
            return line.to_owned();
        };
        if lines <= self.max_lines {
            held.push_str(line);
            return held;
        }
        let mut ready = String::new();
        self.put_away(fence, code, &mut ready);
        if line.ends_with('\n') {
            ready.push('\n');
        }
        ready
    }

    /// Makes a file of a block, of which the text has the first lines.
    fn put_away(&mut self, fence: CodeFence, code: String, ready: &mut String) {
        let number = self.taken + self.files.len() + 1;
        let name = format!("code-{number}.{}", fence.extension());
        let note = self.language.say(ChatPhrase::CodeInFile { name: &name });
        for part in [&fence.indent, fence.marks().as_str(), "\n", &fence.indent, &note] {
            ready.push_str(part);
        }
        self.files.push(CodeFile { name, code, fence });
    }
}

/// The line that begins a block of code.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CodeFence {
    indent: String,
    mark: char,
    length: usize,
    /// The language, and whatever else stands there.
    info: String,
}

impl CodeFence {
    fn parse(line: &str) -> Option<Self> {
        let bare = line.trim_start();
        let mark = bare.chars().next().filter(|point| is_mark(*point))?;
        let info = bare.trim_start_matches(mark);
        let length = bare.len() - info.len();
        // Three backquotes with another one behind them are code within a line.
        (length >= 3 && !(mark == '`' && info.contains('`'))).then(|| Self {
            indent: line.strip_suffix(bare).unwrap_or_default().to_owned(),
            mark,
            length,
            info: info.trim().to_owned(),
        })
    }

    fn is_closed_by(&self, line: &str) -> bool {
        let line = line.trim();
        line.len() >= self.length && line.chars().all(|point| point == self.mark)
    }

    fn marks(&self) -> String {
        self.mark.to_string().repeat(self.length)
    }

    /// A line of the block without the indentation of the block.
    fn without_indent<'l>(&self, line: &'l str) -> &'l str {
        line.strip_prefix(&self.indent).unwrap_or(line)
    }

    fn extension(&self) -> &'static str {
        let end = |point: char| point.is_whitespace() || matches!(point, ',' | ':' | '{' | '}');
        let word = self.info.trim_start_matches(['{', '.']).split(end).next();
        let word = word.unwrap_or_default().to_ascii_lowercase();
        let known = EXTENSIONS
            .iter()
            .find(|(_, words)| words.contains(&word.as_str()));
        known.map_or("txt", |(extension, _)| extension)
    }
}

fn is_mark(point: char) -> bool {
    matches!(point, '`' | '~')
}

/// Whether the beginning of a line can still become a fence.
fn may_become_fence(line: &str) -> bool {
    let bare = line.trim_start();
    let Some(mark) = bare.chars().next() else {
        return true;
    };
    is_mark(mark) && (bare.chars().all(|point| point == mark) || CodeFence::parse(bare).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(lines: usize) -> String {
        let lines: Vec<String> = (1..=lines).map(|line| format!("line {line}\n")).collect();
        lines.concat()
    }

    /// What is shown of a text, and the files of it.
    fn shaped(max_lines: usize, text: &str) -> (String, Vec<CodeFile>) {
        let mut shaper = CodeShaper::new(max_lines, Language::En);
        let mut shown = shaper.push(text);
        shown.push_str(&shaper.finish());
        (shown, shaper.take_files())
    }

    #[test]
    fn a_long_block_becomes_a_file_below_its_first_lines() {
        let text = format!("Look:\n```rust\n{}```\n\nDone.", numbered(20));
        let (shown, files) = shaped(19, &text);
        let first = numbered(PREVIEW_LINES);
        let note = "The whole code is in code-1.rs.";
        assert_eq!(shown, format!("Look:\n```rust\n{first}```\n{note}\n\nDone."));
        assert_eq!((files.len(), files[0].name.as_str()), (1, "code-1.rs"));
        assert_eq!(files[0].code, numbered(20));
        assert_eq!(files[0].as_text(), format!("```rust\n{}```", numbered(20)));
    }

    #[test]
    fn what_is_not_too_long_stays_as_it_is() {
        for text in [
            String::new(),
            "plain\ntext with `code` and ```more code``` in it\n".to_owned(),
            "``` not a fence ``` because it closes\n".to_owned() + &numbered(30),
            "``\n".to_owned() + &numbered(30) + "``",
            format!("```\n{}```\n", numbered(20)),
            format!("```\n{}```", numbered(20)),
            format!("~~~py\n{}~~~\nand\n```\n{}```\n", numbered(20), numbered(20)),
            format!("not closed\n```\n{}", numbered(20)),
            "not closed\n```\nx".to_owned(),
            "   ".to_owned(),
        ] {
            assert_eq!(shaped(20, &text), (text.clone(), Vec::new()));
        }
    }

    #[test]
    fn it_does_not_matter_in_which_pieces_a_text_comes() {
        let long = numbered(13);
        let text = format!("A `b`\n\n~~~sh\n{long}~~~\n  `c`\n```\nshort\n```\n```c\n{long}```\nend");
        let whole = shaped(12, &text);
        assert_eq!(whole.1.len(), 2);
        for size in 1..text.len() {
            let mut shaper = CodeShaper::new(12, Language::En);
            let pieces = text.as_bytes().chunks(size);
            let mut shown: String = pieces
                .map(|piece| shaper.push(std::str::from_utf8(piece).unwrap()))
                .collect();
            shown.push_str(&shaper.finish());
            assert_eq!((shown, shaper.take_files()), whole, "in pieces of {size}");
        }
    }

    #[test]
    fn a_block_ends_with_a_fence_like_its_own_or_with_the_text() {
        let inner = "```rust\nfn a() {}\n```\n~~~\n";
        for (opening, closing) in [("````md", "````\n"), ("````md", "``````"), ("````md", "")] {
            let (shown, files) = shaped(3, &format!("{opening}\n{inner}{closing}"));
            assert_eq!((files.len(), files[0].name.as_str()), (1, "code-1.md"));
            assert_eq!(files[0].code, inner);
            let end = if closing.ends_with('\n') { "\n" } else { "" };
            let first = "````md\n```rust\nfn a() {}\n```\n````\n";
            assert_eq!(shown, format!("{first}The whole code is in code-1.md.{end}"));
        }
        let (_, files) = shaped(1, "```\na\nb");
        assert_eq!(files[0].as_text(), "```\na\nb\n```");
    }

    #[test]
    fn several_blocks_are_numbered_and_named_by_their_language() {
        let block = |info: &str| format!("```{info}\n1\n2\n```\n");
        let infos = ["Python", "rust,ignore", "{.yaml}", "ts:src/a.ts", "exe", ""];
        let (_, files) = shaped(1, &infos.map(block).concat());
        let names: Vec<&str> = files.iter().map(|file| file.name.as_str()).collect();
        let wanted = ["1.py", "2.rs", "3.yaml", "4.ts", "5.txt", "6.txt"].map(|end| format!("code-{end}"));
        assert_eq!(names, wanted);
    }

    #[test]
    fn a_block_in_a_list_loses_its_indentation() {
        let (shown, files) = shaped(1, "- so:\n  ```sh\n  if a\n    b\n  ```\n");
        assert_eq!(files[0].code, "if a\n  b\n");
        assert_eq!(
            shown,
            "- so:\n  ```sh\n  if a\n  ```\n  The whole code is in code-1.sh.\n"
        );
    }

    #[test]
    fn a_pause_shows_what_was_held_back_and_a_new_beginning_forgets() {
        let mut shaper = CodeShaper::new(15, Language::De);
        let mut shown = shaper.push(&format!("```\n{}", numbered(12)));
        assert_eq!(shown, format!("```\n{}", numbered(PREVIEW_LINES)));
        shown.push_str(&shaper.pause());
        shown.push_str(&shaper.push(&format!("{}```\n", numbered(9))));
        assert_eq!(shown, format!("```\n{}{}```\n", numbered(12), numbered(9)));
        assert_eq!(shaper.take_files(), []);

        let long = format!("```\n{}```\n", numbered(16));
        shaper.push(&long);
        shaper.restart();
        let again = shaper.push(&long);
        assert!(again.ends_with("Der ganze Code ist in code-1.txt.\n"), "{again}");
        assert_eq!(shaper.take_files().len(), 1);
        // What was taken keeps its number.
        shaper.push(&long);
        assert_eq!(shaper.take_files()[0].name, "code-2.txt");
    }
}
