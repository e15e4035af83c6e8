//! Which mutants are tried.

use crate::find::{self, Mutant};
use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// A mutant, and where it is.
#[derive(Debug)]
pub struct Chosen {
    /// The path of the command line that it belongs to.
    pub root: PathBuf,
    pub file: PathBuf,
    pub mutant: Mutant,
}

impl fmt::Display for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (file, mutant) = (self.file.display(), &self.mutant);
        write!(f, "{file}:{}: {}", mutant.line, mutant.what)
    }
}

/// At most `count` mutants of each path, no two in one expression, in the order of the code.
pub fn choose(roots: &[PathBuf], count: usize, seed: u64) -> Result<Vec<Chosen>, String> {
    let mut chosen = Vec::new();
    for root in roots {
        let mut files = Vec::new();
        sources(root, &mut files)?;
        files.sort();
        let mut all = Vec::new();
        for file in files {
            let text = fs::read_to_string(&file)
                .map_err(|error| format!("cannot read {}: {error}", file.display()))?;
            let mutants =
                find::mutants(&text).map_err(|error| format!("{} is not Rust: {error}", file.display()))?;
            all.extend(mutants.into_iter().map(|mutant| (file.clone(), mutant)));
        }
        println!("{}: {} mutants", root.display(), all.len());
        shuffle(&mut all, seed);
        let mut taken: HashMap<PathBuf, Vec<Range<usize>>> = HashMap::new();
        let mut of_root = Vec::new();
        for (file, mutant) in all {
            if of_root.len() == count {
                break;
            }
            let others = taken.entry(file.clone()).or_default();
            if others.iter().all(|other| are_apart(other, &mutant.range)) {
                others.push(mutant.range.clone());
                of_root.push(Chosen {
                    root: root.clone(),
                    file,
                    mutant,
                });
            }
        }
        of_root.sort_by(|a, b| (&a.file, a.mutant.range.start).cmp(&(&b.file, b.mutant.range.start)));
        chosen.extend(of_root);
    }
    Ok(chosen)
}

fn are_apart(a: &Range<usize>, b: &Range<usize>) -> bool {
    (a.end <= b.start || b.end <= a.start) && a != b
}

/// The source files below a path, without those of tests.
fn sources(path: &Path, files: &mut Vec<PathBuf>) -> Result<(), String> {
    let is_test = |path: &Path| path.file_stem().is_some_and(|stem| stem == "tests");
    let error = |error| format!("cannot read {}: {error}", path.display());
    if path.is_file() {
        files.push(path.to_owned());
        return Ok(());
    }
    for entry in fs::read_dir(path).map_err(error)? {
        let entry = entry.map_err(error)?.path();
        let is_source = entry.extension().is_some_and(|extension| extension == "rs");
        if !is_test(&entry) && (entry.is_dir() || is_source) {
            sources(&entry, files)?;
        }
    }
    Ok(())
}

/// Fisher and Yates, with the numbers of `SplitMix64`.
fn shuffle<T>(items: &mut [T], seed: u64) {
    let mut state = seed;
    for last in (1..items.len()).rev() {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        let other = usize::try_from(mixed % (last as u64 + 1)).expect("it is below a length");
        items.swap(last, other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_share_something_are_not_apart() {
        assert!(are_apart(&(0..3), &(3..5)));
        assert!(!are_apart(&(0..4), &(3..5)));
        assert!(!are_apart(&(0..9), &(3..5)));
        assert!(!are_apart(&(3..3), &(3..3)));
        assert!(are_apart(&(3..3), &(3..5)));
    }
}
