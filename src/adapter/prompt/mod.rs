//! Questions that wait for people: how they are shown, who may answer, and what became of them.
//!
//! [`Prompts`] keeps the open ones. It sends nothing and reads no clock: whoever drives it performs the ops that it
//! hands out, tells it what became of them, and passes on presses, typed answers and the time.
//!
//! | | |
//! |---|---|
//! | shown | with buttons where the platform has the `prompt` op, else as a numbered list |
//! | refused | an op that is declined ends the question; one that is refused otherwise is tried once more as text |
//! | answered | by a press, a number, `/approve` or `/deny`, from whom the turn is for |
//! | unanswered | timed out, which agents take as no |
//!
//! Every question that was opened ends in exactly one [`Resolution`]. A press on a question of another process, or
//! on one that has ended, never resolves anything.

mod answer;
mod ask;
mod clean;
mod open;
mod registry;
mod render;
mod settings;
#[cfg(test)]
mod tests;

pub use answer::TypedAnswer;
pub use ask::{
    ButtonPress, Decision, Meaning, NotOpened, Opened, Person, PressResult, PromptId, PromptOp, PromptOption,
    PromptRequest, PromptStep, QuestionId, QuestionKind, Resolution,
};
pub use registry::Prompts;
pub use settings::PromptSettings;
