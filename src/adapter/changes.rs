//! What an agent changed in a turn, as a unified diff.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::text::one_line;

/// Texts of one turn that are kept, in bytes; of further changes only the names are.
const MAX_TURN_BYTES: usize = 1024 * 1024;
/// Changes of one turn; further ones are counted.
const MAX_CHANGES: usize = 500;
/// Length of a diff, in bytes; further changes are counted.
const MAX_DIFF_BYTES: usize = 256 * 1024;
/// Unchanged lines around changed ones.
const CONTEXT: usize = 3;
/// Lines that differ, beyond which a passage is shown as replaced: the search takes its square.
const MAX_DISTANCE: usize = 400;
/// Longest name of a file, in characters.
const MAX_PATH_CHARS: usize = 300;

/// The changes of a turn.
#[derive(Debug, Default)]
pub struct TurnChanges {
    workdir: Option<PathBuf>,
    changes: Vec<ChangedText>,
    bytes: usize,
    left_out: u64,
}

#[derive(Debug)]
struct ChangedText {
    path: String,
    /// The text before, if there was one.
    old: Option<String>,
    /// The text after; `None` if it was too large.
    new: Option<String>,
}

/// A diff, and how many changes are not in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TurnDiff {
    /// The diff; empty if nothing was changed.
    pub text: String,
    /// Changes that are not in it.
    pub left_out: u64,
}

impl TurnChanges {
    /// No changes so far, in this directory.
    pub fn new(workdir: Option<PathBuf>) -> Self {
        Self {
            workdir,
            ..Self::default()
        }
    }

    /// A file was changed. What follows on an earlier change of the same file is one change with it.
    pub fn add(&mut self, path: &str, old: Option<String>, new: Option<String>) {
        let path = shown_path(path, self.workdir.as_deref());
        let before = self.changes.iter_mut().rev().find(|change| change.path == path);
        if let (Some(before), Some(new)) = (before, &new)
            && before.new.is_some()
            && before.new == old
            && self.bytes + new.len() <= MAX_TURN_BYTES
        {
            self.bytes += new.len();
            before.new = Some(new.clone());
            return;
        }
        if self.changes.len() == MAX_CHANGES {
            self.left_out += 1;
            return;
        }
        let size = old.as_ref().map_or(0, String::len) + new.as_ref().map_or(0, String::len);
        let fits = self.bytes + size <= MAX_TURN_BYTES;
        self.bytes += if fits { size } else { 0 };
        self.changes.push(ChangedText {
            path,
            old: old.filter(|_| fits),
            new: new.filter(|_| fits),
        });
    }

    /// All of them as one diff.
    pub fn into_diff(self) -> TurnDiff {
        let mut diff = TurnDiff {
            left_out: self.left_out,
            ..TurnDiff::default()
        };
        for change in self.changes {
            let text = match &change.new {
                Some(new) => unified(&change.path, change.old.as_deref(), new),
                None => format!("Files a/{0} and b/{0} differ\n", change.path),
            };
            if diff.text.len() + text.len() > MAX_DIFF_BYTES {
                diff.left_out += 1;
            } else {
                diff.text.push_str(&text);
            }
        }
        diff
    }
}

/// The name of a file for people: relative to the directory that the agent works in; elsewhere only its last part, because no
/// path of this machine reaches a chat.
fn shown_path(path: &str, workdir: Option<&Path>) -> String {
    let path = Path::new(path);
    let inside = workdir.and_then(|workdir| path.strip_prefix(workdir).ok());
    let shown = match inside {
        Some(inside) => inside,
        None if path.is_relative() => path,
        None => Path::new(path.file_name().unwrap_or_default()),
    };
    one_line(&shown.to_string_lossy(), MAX_PATH_CHARS)
}

/// One file in the unified format; empty if its text is the same.
fn unified(path: &str, old: Option<&str>, new: &str) -> String {
    let before: Vec<&str> = old.unwrap_or_default().split_inclusive('\n').collect();
    let after: Vec<&str> = new.split_inclusive('\n').collect();
    let lines = line_changes(&before, &after);
    let mut text = String::new();
    for hunk in hunks(&lines) {
        if text.is_empty() {
            let from = if old.is_some() {
                format!("a/{path}")
            } else {
                "/dev/null".to_owned()
            };
            text = format!("--- {from}\n+++ b/{path}\n");
        }
        push_hunk(&mut text, &lines, hunk);
    }
    text
}

/// One line of a diff.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DiffLine<'t> {
    Same(&'t str),
    Removed(&'t str),
    Added(&'t str),
}

/// The lines of both texts in one list.
fn line_changes<'t>(before: &[&'t str], after: &[&'t str]) -> Vec<DiffLine<'t>> {
    let same = |(one, other): &(&&str, &&str)| one == other;
    let start = before.iter().zip(after).take_while(same).count();
    let (old, new) = (&before[start..], &after[start..]);
    let end = old.iter().rev().zip(new.iter().rev()).take_while(same).count();
    let (old, new) = (&old[..old.len() - end], &new[..new.len() - end]);
    let mut lines: Vec<DiffLine<'t>> = before[..start].iter().copied().map(DiffLine::Same).collect();
    lines.extend(shortest(old, new).unwrap_or_else(|| replaced(old, new)));
    lines.extend(before[before.len() - end..].iter().copied().map(DiffLine::Same));
    lines
}

/// Everything before, then everything after.
fn replaced<'t>(old: &[&'t str], new: &[&'t str]) -> Vec<DiffLine<'t>> {
    let removed = old.iter().copied().map(DiffLine::Removed);
    removed.chain(new.iter().copied().map(DiffLine::Added)).collect()
}

/// The shortest list of changes, after Myers; `None` if it is longer than [`MAX_DISTANCE`].
fn shortest<'t>(old: &[&'t str], new: &[&'t str]) -> Option<Vec<DiffLine<'t>>> {
    let (rows, columns) = (old.len(), new.len());
    // For each diagonal, how many lines of `old` are behind its furthest point; diagonals begin at -distance.
    let mut rounds: Vec<Vec<usize>> = Vec::new();
    for distance in 0..=MAX_DISTANCE.min(rows + columns) {
        let mut round = vec![0; 2 * distance + 1];
        for step in (0..=2 * distance).step_by(2) {
            let mut row = match rounds.last() {
                None => 0,
                Some(before) => furthest(before, step, distance).0,
            };
            // The diagonal is `row - column`, and `step` is the diagonal plus the distance.
            let Some(mut column) = (row + distance).checked_sub(step) else {
                continue;
            };
            while row < rows && column < columns && old[row] == new[column] {
                (row, column) = (row + 1, column + 1);
            }
            round[step] = row;
            if row >= rows && column >= columns {
                rounds.push(round);
                return Some(walk_back(old, new, &rounds));
            }
        }
        rounds.push(round);
    }
    None
}

/// Where a diagonal begins in a round: the line of `old`, and whether a line of it is removed to get there.
fn furthest(before: &[usize], step: usize, distance: usize) -> (usize, bool) {
    // In the round before, the same diagonal is one step lower.
    let removed = step.checked_sub(2).map(|step| before[step] + 1);
    let added = (step < 2 * distance).then(|| before[step]);
    match (removed, added) {
        (Some(removed), Some(added)) if removed > added => (removed, true),
        (Some(removed), None) => (removed, true),
        (_, added) => (added.unwrap_or_default(), false),
    }
}

/// The changes that lead to the end of both texts.
fn walk_back<'t>(old: &[&'t str], new: &[&'t str], rounds: &[Vec<usize>]) -> Vec<DiffLine<'t>> {
    let (mut row, mut column) = (old.len(), new.len());
    let mut lines = Vec::new();
    for distance in (1..rounds.len()).rev() {
        let step = row + distance - column;
        let (begin, is_removed) = furthest(&rounds[distance - 1], step, distance);
        while row > begin {
            (row, column) = (row - 1, column - 1);
            lines.push(DiffLine::Same(old[row]));
        }
        if is_removed {
            row -= 1;
            lines.push(DiffLine::Removed(old[row]));
        } else {
            column -= 1;
            lines.push(DiffLine::Added(new[column]));
        }
    }
    while row > 0 {
        row -= 1;
        lines.push(DiffLine::Same(old[row]));
    }
    lines.reverse();
    lines
}

/// The ranges of lines that are shown: changes with their surroundings, joined where these meet.
fn hunks(lines: &[DiffLine<'_>]) -> Vec<std::ops::Range<usize>> {
    let mut hunks: Vec<std::ops::Range<usize>> = Vec::new();
    let changed = lines.iter().enumerate();
    for (at, _) in changed.filter(|(_, line)| !matches!(line, DiffLine::Same(_))) {
        let range = at.saturating_sub(CONTEXT)..(at + CONTEXT + 1).min(lines.len());
        match hunks.last_mut() {
            Some(last) if range.start <= last.end => last.end = range.end,
            _ => hunks.push(range),
        }
    }
    hunks
}

fn push_hunk(text: &mut String, lines: &[DiffLine<'_>], hunk: std::ops::Range<usize>) {
    let count = |lines: &[DiffLine<'_>], is_old: bool| {
        let counts = lines.iter().filter(|line| match line {
            DiffLine::Same(_) => true,
            DiffLine::Removed(_) => is_old,
            DiffLine::Added(_) => !is_old,
        });
        counts.count()
    };
    let place = |is_old: bool| {
        let (before, length) = (
            count(&lines[..hunk.start], is_old),
            count(&lines[hunk.clone()], is_old),
        );
        // An empty range stands behind the line before it.
        let first = if length == 0 { before } else { before + 1 };
        format!("{first},{length}")
    };
    // Writing to a String does not fail.
    let _ = writeln!(text, "@@ -{} +{} @@", place(true), place(false));
    for line in &lines[hunk] {
        let (mark, line) = match line {
            DiffLine::Same(line) => (' ', line),
            DiffLine::Removed(line) => ('-', line),
            DiffLine::Added(line) => ('+', line),
        };
        text.push(mark);
        text.push_str(line);
        if !line.ends_with('\n') {
            text.push_str("\n\\ No newline at end of file\n");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn diff(old: Option<&str>, new: &str) -> String {
        unified("x", old, new)
    }

    #[test]
    fn changed_lines_are_shown_with_their_surroundings() {
        let lines: Vec<String> = (1..=20).map(|number| format!("{number}\n")).collect();
        let old = lines.concat();
        let new = old.replace("\n5\n", "\nfive\n").replace("\n19\n", "\n");
        assert_eq!(
            diff(Some(&old), &new),
            "--- a/x\n+++ b/x\n@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n@@ -16,5 +16,4 @@\n 16\n 17\n 18\n-19\n 20\n"
        );
        assert_eq!(
            diff(None, "a\nb"),
            "--- /dev/null\n+++ b/x\n@@ -0,0 +1,2 @@\n+a\n+b\n\\ No newline at end of file\n"
        );
        assert_eq!(diff(Some("a\n"), ""), "--- a/x\n+++ b/x\n@@ -1,1 +0,0 @@\n-a\n");
        assert_eq!(diff(Some("a\n"), "a\n"), "");
    }

    #[test]
    fn any_two_texts_are_told_apart_and_put_together_again() {
        let mut seed = 7_u64;
        let mut random = move |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        for round in 0..400 {
            let mut text = |most: u64| -> Vec<String> {
                (0..random(most)).map(|_| format!("{}\n", random(4))).collect()
            };
            // Some differ by more than is searched.
            let most = if round % 20 == 0 { 1500 } else { 12 };
            let (old, new) = (text(most), text(most));
            let (old, new): (Vec<&str>, Vec<&str>) = (
                old.iter().map(String::as_str).collect(),
                new.iter().map(String::as_str).collect(),
            );
            let lines = line_changes(&old, &new);
            let side = |is_old: bool| -> Vec<&str> {
                let lines = lines.iter().filter_map(|line| match line {
                    DiffLine::Same(line) => Some(*line),
                    DiffLine::Removed(line) => is_old.then_some(*line),
                    DiffLine::Added(line) => (!is_old).then_some(*line),
                });
                lines.collect()
            };
            assert_eq!((side(true), side(false)), (old, new), "round {round}");
        }
    }

    #[test]
    fn changes_of_a_file_that_follow_each_other_are_one() {
        let mut changes = TurnChanges::new(Some(PathBuf::from("/srv")));
        let text = |text: &str| Some(text.to_owned());
        changes.add("/srv/src/a.rs", text("one\n"), text("two\n"));
        changes.add("/srv/src/a.rs", text("two\n"), text("three\n"));
        changes.add("/etc/passwd", None, text("x\n"));
        changes.add("/srv/b", text("big"), None);
        let diff = changes.into_diff();
        assert_eq!(
            diff.text,
            "--- a/src/a.rs\n+++ b/src/a.rs\n@@ -1,1 +1,1 @@\n-one\n+three\n--- /dev/null\n+++ b/passwd\n@@ -0,0 +1,1 @@\n+x\nFiles a/b and b/b differ\n"
        );
        assert_eq!(diff.left_out, 0);
    }

    #[test]
    fn a_turn_that_changes_very_much_keeps_a_part_of_it() {
        let mut changes = TurnChanges::new(None);
        for number in 0..1000 {
            let text = format!("{number}\n").repeat(2000);
            changes.add(&format!("{number}.txt"), None, Some(text));
        }
        assert!(changes.bytes <= MAX_TURN_BYTES);
        let diff = changes.into_diff();
        assert!(!diff.text.is_empty() && diff.text.len() <= MAX_DIFF_BYTES);
        assert!(diff.left_out >= 500);
    }
}
