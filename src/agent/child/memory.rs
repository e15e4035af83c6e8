//! The memory of process groups, as the system reports it.

use std::collections::HashMap;

/// The resident memory in bytes of each of these process groups, with everything that their leaders started; nothing for one
/// that is gone, or where the system does not say.
pub fn group_memory(groups: &[i32]) -> HashMap<i32, u64> {
    let mut found = HashMap::new();
    if groups.is_empty() {
        return found;
    }
    let page = rustix::param::page_size() as u64;
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    for entry in entries {
        let is_process = entry.file_name().as_encoded_bytes()[0].is_ascii_digit();
        let Some((group, pages)) = is_process
            .then(|| std::fs::read_to_string(entry.path().join("stat")).ok())
            .flatten()
            .and_then(|stat| read_stat(&stat))
        else {
            continue;
        };
        if groups.contains(&group) {
            *found.entry(group).or_insert(0) += pages * page;
        }
    }
    found
}

/// The process group and the resident pages of a process. Its name, which may contain anything, ends at the last bracket.
fn read_stat(stat: &str) -> Option<(i32, u64)> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    let group = fields.nth(2)?.parse().ok()?;
    let pages = fields.nth(18)?.parse().ok()?;
    Some((group, pages))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_whatever_its_name() {
        let stat = "42 (a) b (c) S 1 40 40 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 99 1000000 321 184";
        assert_eq!(read_stat(stat), Some((40, 321)));
        for broken in ["", "42 (a", "42 (a) S 1", "42 (a) S 1 x 40"] {
            assert_eq!(read_stat(broken), None, "{broken}");
        }
    }

    #[test]
    fn our_own_group_has_memory() {
        let own = rustix::process::getpgrp().as_raw_nonzero().get();
        let memory = group_memory(&[own, i32::MAX]);
        assert!(memory[&own] > 100_000, "{memory:?}");
        assert_eq!(memory.len(), 1);
    }
}
