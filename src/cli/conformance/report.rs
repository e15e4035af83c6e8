//! The report: TAP for people and test harnesses, JSON for programs. Pure.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::checks::{Check, CheckOutcome};

/// A check and what it found.
pub(super) type JudgedCheck<'c> = (&'c Check, CheckOutcome);

/// The page that a section is on.
const PAGE: &str = "docs/wire.md";

/// How many passed, failed and were skipped.
pub(super) fn counts(findings: &[JudgedCheck<'_>]) -> (usize, usize, usize) {
    let count =
        |wanted: fn(&CheckOutcome) -> bool| findings.iter().filter(|(_, found)| wanted(found)).count();
    (
        count(|found| *found == CheckOutcome::Passed),
        count(|found| matches!(found, CheckOutcome::Failed(_))),
        count(|found| matches!(found, CheckOutcome::Skipped(_))),
    )
}

/// The report in the Test Anything Protocol, version 14.
pub(super) fn tap(findings: &[JudgedCheck<'_>]) -> String {
    let mut text = format!("TAP version 14\n1..{}\n", findings.len());
    for (index, (check, found)) in findings.iter().enumerate() {
        let number = index + 1;
        let line = format!("{number} - {}: {}", check.name, check.expected);
        // Writing to a String does not fail.
        let _ = match found {
            CheckOutcome::Passed => writeln!(text, "ok {line}"),
            CheckOutcome::Skipped(why) => writeln!(text, "ok {line} # SKIP {why}"),
            CheckOutcome::Failed(observed) => writeln!(
                text,
                "not ok {line}\n  ---\n  expected: {}\n  observed: {}\n  section: {}\n  ...",
                json!(check.expected),
                json!(observed),
                json!(section(check)),
            ),
        };
    }
    let (passed, failed, skipped) = counts(findings);
    let _ = writeln!(text, "# {passed} passed, {failed} failed, {skipped} skipped");
    text
}

/// The report as one JSON document.
pub(super) fn document(url: &str, findings: &[JudgedCheck<'_>]) -> Value {
    let (passed, failed, skipped) = counts(findings);
    let checks: Vec<Value> = findings.iter().map(row).collect();
    json!({
        "ok": failed == 0, "url": url, "passed": passed, "failed": failed, "skipped": skipped, "checks": checks,
    })
}

fn row((check, found): &JudgedCheck<'_>) -> Value {
    let (outcome, observed, reason) = match found {
        CheckOutcome::Passed => ("passed", None, None),
        CheckOutcome::Failed(observed) => ("failed", Some(observed), None),
        CheckOutcome::Skipped(reason) => ("skipped", None, Some(reason)),
    };
    json!({
        "name": check.name, "outcome": outcome, "expected": check.expected, "observed": observed,
        "reason": reason, "section": section(check),
    })
}

/// The address of a check's section.
fn section(check: &Check) -> String {
    let anchor = check.section.to_lowercase().replace(' ', "-");
    format!("{PAGE}#{anchor}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_verdict_has_its_line_and_a_failure_its_reason() {
        let check = |name| Check {
            name,
            section: "Close codes",
            expected: "it closes",
            judge: |_| CheckOutcome::Passed,
        };
        let (a, b, c) = (check("a"), check("b"), check("c"));
        let findings = [
            (&a, CheckOutcome::Passed),
            (&b, CheckOutcome::Failed("it \"stays\"".to_owned())),
            (&c, CheckOutcome::Skipped("no message".to_owned())),
        ];
        assert_eq!(
            tap(&findings),
            "TAP version 14\n1..3\nok 1 - a: it closes\nnot ok 2 - b: it closes\n  ---\n  expected: \"it closes\"\n  \
             observed: \"it \\\"stays\\\"\"\n  section: \"docs/wire.md#close-codes\"\n  ...\nok 3 - c: it closes # SKIP no \
             message\n# 1 passed, 1 failed, 1 skipped\n"
        );
        let document = document("ws://h/relay", &findings);
        assert_eq!(document["ok"], false);
        assert_eq!(document["checks"][1]["observed"], "it \"stays\"");
        assert_eq!(document["checks"][2]["reason"], "no message");
    }
}
