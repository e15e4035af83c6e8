//! What is rewritten in the text of an answer before a platform gets it: long code, then tables.

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
}

impl AnswerShaper {
    /// Takes more of the text; returns what can be shown.
    pub fn push<'t>(&mut self, text: &'t str) -> Cow<'t, str> {
        let text = match &mut self.code {
            Some(code) => code.push(text).into(),
            None => Cow::Borrowed(text),
        };
        match &mut self.tables {
            Some(tables) => tables.push(&text).into(),
            None => text,
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
        let mut whole = self.push(text).into_owned();
        whole.push_str(&self.finish());
        whole
    }

    /// The files of the text since the last time.
    pub fn take_files(&mut self) -> Vec<CodeFile> {
        self.code.as_mut().map(CodeShaper::take_files).unwrap_or_default()
    }

    fn release(&mut self, held: String) -> String {
        match &mut self.tables {
            Some(tables) => {
                let mut ready = tables.push(&held);
                ready.push_str(&tables.finish());
                ready
            }
            None => held,
        }
    }
}
