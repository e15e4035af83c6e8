//! Which tests reach which mutants, so that the others need not run.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;

/// Who reaches a mutant.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Reach {
    /// These tests do on their own threads, which have their names.
    pub tests: Vec<String>,
    /// Another thread or process does, and nobody knows for which test.
    pub elsewhere: bool,
}

/// Reads what a run wrote down: on each line the number of a mutant and the name of the thread that reached it.
pub fn read(record: &Path, tests: &HashSet<String>) -> Result<HashMap<usize, Reach>, String> {
    // Nothing is written if nothing is reached.
    let text = if record.exists() {
        fs::read_to_string(record).map_err(|error| format!("cannot read {}: {error}", record.display()))?
    } else {
        String::new()
    };
    Ok(parse(&text, tests))
}

fn parse(text: &str, tests: &HashSet<String>) -> HashMap<usize, Reach> {
    let mut reached: HashMap<usize, Reach> = HashMap::new();
    for line in text.lines() {
        let Some((number, thread)) = line.split_once(' ') else {
            continue;
        };
        let Ok(number) = number.parse() else { continue };
        let reach = reached.entry(number).or_default();
        if !tests.contains(thread) {
            reach.elsewhere = true;
        } else if !reach.tests.iter().any(|test| test == thread) {
            reach.tests.push(thread.to_owned());
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_are_no_tests_are_elsewhere() {
        let tests = HashSet::from(["a::b".to_owned()]);
        let reached = parse("3 a::b\n3 a::b\n4 a::b\n4 tokio-rt-worker\n5 ?\n", &tests);
        let reach = |names: &[&str], elsewhere| Reach {
            tests: names.iter().map(|name| (*name).to_owned()).collect(),
            elsewhere,
        };
        assert_eq!(reached[&3], reach(&["a::b"], false));
        assert_eq!(reached[&4], reach(&["a::b"], true));
        assert_eq!(reached[&5], reach(&[], true));
        assert!(!reached.contains_key(&6));
    }
}
