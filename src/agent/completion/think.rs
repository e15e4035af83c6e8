//! Takes a model's inline thoughts out of its answer: `<think>…</think>`, also when cut across pieces.
//!
//! A thought starts at the beginning of the answer or of a line; tags inside a line are part of the answer. An unclosed
//! thought at the beginning is dropped; an unclosed later one is returned as text.

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";
/// Maximum length of a later thought that is held; a longer one is text.
const MAX_HELD: usize = 32 * 1024;

/// What of an answer was seen so far.
#[derive(Debug)]
pub(crate) struct ThinkFilter {
    state: ThinkState,
    /// Undecided text: a partial tag, or a later thought.
    held: String,
    /// Whether anything but white space was given out.
    began: bool,
    line_start: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ThinkState {
    Answer,
    /// In the thought before the answer; what was thought is gone.
    First,
    /// In a later thought; it is held back whole.
    Later,
    /// White space after a thought is part of it.
    After,
}

impl Default for ThinkFilter {
    fn default() -> Self {
        Self {
            state: ThinkState::Answer,
            held: String::new(),
            began: false,
            line_start: true,
        }
    }
}

impl ThinkFilter {
    /// Takes the next piece, and gives what of the answer is certain.
    pub(crate) fn push(&mut self, piece: &str) -> String {
        self.held.push_str(piece);
        let mut out = String::new();
        loop {
            let before = (self.state, self.held.len());
            match self.state {
                ThinkState::Answer => self.answer(&mut out),
                ThinkState::First | ThinkState::Later => self.thought(&mut out),
                ThinkState::After => {
                    let rest = self.held.trim_start().len();
                    self.held.drain(..self.held.len() - rest);
                    if rest > 0 {
                        self.state = ThinkState::Answer;
                    }
                }
            }
            if (self.state, self.held.len()) == before || self.held.is_empty() {
                return out;
            }
        }
    }

    /// The answer is over: gives what was held back and was no thought.
    pub(crate) fn finish(&mut self) -> String {
        let held = std::mem::take(&mut self.held);
        match self.state {
            ThinkState::Answer => held,
            ThinkState::First | ThinkState::After => String::new(),
            ThinkState::Later => format!("{OPEN}{held}"),
        }
    }

    fn answer(&mut self, out: &mut String) {
        let mut at = 0;
        while at < self.held.len() {
            let rest = &self.held[at..];
            if self.line_start && rest.starts_with(OPEN) {
                let (text, held) = (
                    self.held[..at].to_owned(),
                    self.held[at + OPEN.len()..].to_owned(),
                );
                self.give(&text, out);
                self.held = held;
                self.state = if self.began {
                    ThinkState::Later
                } else {
                    ThinkState::First
                };
                return;
            }
            if self.line_start && OPEN.starts_with(rest) {
                break;
            }
            let Some(c) = rest.chars().next() else { break };
            self.line_start = c == '\n' || (self.line_start && c.is_whitespace());
            at += c.len_utf8();
        }
        let text: String = self.held.drain(..at).collect();
        self.give(&text, out);
    }

    fn give(&mut self, text: &str, out: &mut String) {
        self.began |= !text.trim().is_empty();
        out.push_str(text);
    }

    fn thought(&mut self, out: &mut String) {
        if let Some(end) = self.held.find(CLOSE) {
            self.held.drain(..end + CLOSE.len());
            self.state = ThinkState::After;
            // What follows a thought is where another may begin.
            self.line_start = true;
        } else if self.state == ThinkState::First {
            let keep = tag_start(&self.held);
            self.held.drain(..keep);
        } else if self.held.len() > MAX_HELD {
            let held = std::mem::take(&mut self.held);
            self.give(OPEN, out);
            self.give(&held, out);
            self.state = ThinkState::Answer;
            self.line_start = false;
        }
    }
}

/// Where the longest end of `text` starts that may become the closing tag.
fn tag_start(text: &str) -> usize {
    let longest = text.len().min(CLOSE.len() - 1);
    (1..=longest)
        .rev()
        .find(|len| text.ends_with(&CLOSE[..*len]))
        .map_or(text.len(), |len| text.len() - len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn filter(pieces: &[&str]) -> String {
        let mut filter = ThinkFilter::default();
        let mut out: String = pieces.iter().map(|piece| filter.push(piece)).collect();
        out.push_str(&filter.finish());
        out
    }

    #[test]
    fn thoughts_go_and_words_about_them_stay() {
        for (text, want) in [
            ("<think>hm\n</think>\n\nHello", "Hello"),
            ("  \n<think>hm</think>Hello", "  \nHello"),
            ("<think></think><think>b</think> Hello", "Hello"),
            ("One\n<think>hm < </thin </think>\nTwo", "One\nTwo"),
            ("Use `<think>` and </think>.", "Use `<think>` and </think>."),
            ("<think>never ends", ""),
            ("One\n<think>never ends", "One\n<think>never ends"),
            ("<thinking> no", "<thinking> no"),
            ("<thi", "<thi"),
            ("a < b\n<", "a < b\n<"),
            ("", ""),
        ] {
            assert_eq!(filter(&[text]), want, "{text:?}");
        }
    }

    #[test]
    fn nothing_certain_is_held_back() {
        let mut filter = ThinkFilter::default();
        assert_eq!(filter.push("<th"), "");
        assert_eq!(filter.push("ree> "), "<three> ");
        assert_eq!(filter.push("word"), "word");
        assert_eq!(filter.push(" <think>"), " <think>");
        let mut filter = ThinkFilter::default();
        filter.push("a\n<think>");
        assert!(filter.push(&"x".repeat(MAX_HELD + 1)).len() > MAX_HELD);
    }

    proptest! {
        #[test]
        fn any_cut_gives_the_same_answer(
            parts in proptest::collection::vec(
                prop_oneof![Just("<think>"), Just("</think>"), Just("<thi"), Just("\n"), Just("ä b"), Just(" "), Just("</")],
                0..12,
            ),
        ) {
            let text = parts.concat();
            let chars: Vec<String> = text.chars().map(String::from).collect();
            let single: Vec<&str> = chars.iter().map(String::as_str).collect();
            prop_assert_eq!(filter(&single), filter(&[&text]));
            prop_assert_eq!(filter(&parts), filter(&[&text]));
        }
    }
}
