//! Questions at the terminal: a line of text, a secret, yes or no, and one of several choices.

use secrecy::SecretString;

use super::InitFailure;
use crate::cli::exit::{self, outln};
use crate::cli::prompt::{SecretInput as _, Stdin};

/// Times that a question is asked again after an answer that cannot be used.
pub(super) const ATTEMPTS: usize = 3;

/// Asks for a line. `option` is what a script would pass instead.
pub(super) fn ask(question: &str, option: &str) -> Result<String, InitFailure> {
    let answer = Stdin.line(question).map_err(|error| error.to_string());
    answered(answer, option)
}

/// Asks for a secret, without echo.
pub(super) fn ask_secret(question: &str, option: &str) -> Result<SecretString, InitFailure> {
    let answer = Stdin.asked(question).map_err(|error| error.to_string());
    answered(answer, option)
}

fn answered<T>(answer: Result<Option<T>, String>, option: &str) -> Result<T, InitFailure> {
    let failed = |why: &str| {
        let what = format!("cannot ask: {why}");
        InitFailure::new(exit::FAILED, what, format!("pass {option}"))
    };
    match answer {
        Ok(Some(answer)) => Ok(answer),
        Ok(None) => Err(failed("there is no terminal")),
        Err(why) => Err(failed(&why)),
    }
}

/// Asks for yes or no; an empty answer, or none, is no.
pub(super) fn agrees(question: &str) -> bool {
    for _ in 0..ATTEMPTS {
        let answer = Stdin.line(&format!("{question} [y/N]")).ok().flatten();
        match answer.unwrap_or_default().to_ascii_lowercase().as_str() {
            "y" | "yes" => return true,
            "" | "n" | "no" => return false,
            _ => outln!("Type y or n."),
        }
    }
    false
}

/// Lists choices, each a name and what it is.
pub(super) fn list(choices: &[(&str, &str)]) {
    for (number, (name, what)) in (1..).zip(choices) {
        outln!("{}", format!("  {number}) {name:<10} {what}").trim_end());
    }
}

/// Asks for one of the choices, by number or name; the first if nothing is typed.
pub(super) fn pick<'c>(
    question: &str,
    choices: &[(&'c str, &str)],
    option: &str,
) -> Result<&'c str, InitFailure> {
    for _ in 0..ATTEMPTS {
        let answer = ask(&format!("{question} [1]"), option)?;
        let chosen = match answer.as_str() {
            "" => choices.first(),
            answer => {
                let number = answer
                    .parse::<usize>()
                    .ok()
                    .and_then(|number| number.checked_sub(1));
                let by_name = || choices.iter().find(|(name, _)| *name == answer);
                number.and_then(|number| choices.get(number)).or_else(by_name)
            }
        };
        if let Some((name, _)) = chosen {
            return Ok(name);
        }
        outln!("Type a number from 1 to {}.", choices.len());
    }
    let hint = format!("pass {option}");
    Err(InitFailure::new(exit::FAILED, "nothing was chosen", hint))
}
