//! Questions to people: how they are shown, who may answer, and how they end.
//!
//! [`Prompts`] keeps the open ones. It sends nothing and reads no clock: the caller sends the ops it returns, reports their
//! outcomes, and passes on presses, typed answers and the time.
//!
//! | | |
//! |---|---|
//! | shown | with buttons where the platform has the `prompt` op, else as a numbered list |
//! | refused | a declined op ends the question; after any other refusal it is tried once more as text |
//! | answered | by a press, a number, `/approve` or `/deny`, from the author of the answered message; words mean the question that they name or reply to, else the only one that people had time to read, else the newest list |
//! | unanswered | timed out, which agents treat as a denial |
//!
//! Every opened question ends in exactly one [`Resolution`]. A press on a question of another process, or on one that
//! has ended, resolves nothing. The questions that an earlier process left count as ended, and its codes are not given again.

mod question;
mod registry;
mod render;
#[cfg(test)]
mod tests;
mod types;

pub use question::{RememberedQuestions, SavedQuestion, TypedAnswer, TypedMatch, UnsaidEnd};
pub use registry::Prompts;
pub use types::{
    Approvers, ButtonPress, Decision, Meaning, NotOpened, OpenedQuestion, Person, PressResult, PromptId,
    PromptOp, PromptOption, PromptRequest, PromptSettings, PromptStep, QuestionId, QuestionKind, Resolution,
    TypedMessage,
};
