//! What is rewritten in the text of an answer before a platform gets it: a line above it, long code, then tables.

use std::borrow::Cow;

use super::long_code::{CodeFile, CodeShaper};
use super::tables::TableShaper;

/// Rewrites a text that comes in pieces.
#[derive(Debug, Default)]
pub struct AnswerShaper {
    /// Where code can go as a file.
    pub(super) code: Option<CodeShaper>,
    /// Where the platform has no tables.
    pub(super) tables: Option<TableShaper>,
    /// The line above the answer, until the part of the answer that it stands above is over.
    pub(super) header: Option<AnswerHeader>,
}

/// The line above an answer.
#[derive(Debug)]
pub(super) struct AnswerHeader {
    pub(super) text: String,
    /// Whether it is above the text that came so far.
    pub(super) is_shown: bool,
}

impl AnswerShaper {
    /// Puts a line above the answer.
    pub fn set_header(&mut self, text: String) {
        self.header = Some(AnswerHeader {
            text,
            is_shown: false,
        });
    }

    /// Takes more of the text; returns what can be shown.
    pub fn push<'t>(&mut self, text: &'t str) -> Cow<'t, str> {
        let shaped = self.shape(text);
        match &mut self.header {
            Some(header) if !header.is_shown && !text.is_empty() => {
                header.is_shown = true;
                format!("{}\n{shaped}", header.text).into()
            }
            _ => shaped,
        }
    }

    fn shape<'t>(&mut self, text: &'t str) -> Cow<'t, str> {
        let text = match &mut self.code {
            Some(code) => code.push(text).into(),
            None => Cow::Borrowed(text),
        };
        match (&mut self.tables, text) {
            (Some(tables), Cow::Borrowed(text)) => tables.push(text),
            (Some(tables), Cow::Owned(text)) => tables.push(&text).into_owned().into(),
            (None, text) => text,
        }
    }

    /// Something else comes between: returns what was held back and can be shown.
    pub fn pause(&mut self) -> String {
        let held = self.code.as_mut().map(CodeShaper::pause);
        self.release(held.unwrap_or_default())
    }

    /// The text is over: returns what was held back.
    pub fn finish(&mut self) -> String {
        let held = self.code.as_mut().map(CodeShaper::finish);
        self.release(held.unwrap_or_default())
    }

    /// The whole text in place of what came since the files were last taken.
    pub fn replace(&mut self, text: &str) -> String {
        if let Some(code) = &mut self.code {
            code.restart();
        }
        self.release(String::new());
        if let Some(header) = &mut self.header {
            header.is_shown = false;
        }
        let mut whole = self.push(text).into_owned();
        whole.push_str(&self.finish());
        whole
    }

    /// The files of the text since the last time.
    pub fn take_files(&mut self) -> Vec<CodeFile> {
        if self.header.as_ref().is_some_and(|header| header.is_shown) {
            self.header = None;
        }
        self.code.as_mut().map(CodeShaper::take_files).unwrap_or_default()
    }

    fn release(&mut self, held: String) -> String {
        match &mut self.tables {
            Some(tables) if held.is_empty() => tables.finish(),
            Some(tables) => {
                let mut ready = tables.push(&held).into_owned();
                ready.push_str(&tables.finish());
                ready
            }
            None => held,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_above_the_first_part_of_an_answer_and_no_other() {
        let mut shaper = AnswerShaper::default();
        shaper.set_header("[site]".to_owned());
        assert_eq!(shaper.push(""), "");
        assert_eq!(shaper.push("one"), "[site]\none");
        assert_eq!(shaper.push(" two"), " two");
        assert_eq!(shaper.replace("three"), "[site]\nthree");
        shaper.take_files();
        assert_eq!(shaper.push("four"), "four");
        assert_eq!(shaper.replace("five"), "five");
    }
}
