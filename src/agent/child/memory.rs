//! The memory of process groups, as the system reports it.

use std::collections::HashMap;

use super::stat::ProcessStat;

/// The resident memory in bytes of each of these process groups, with everything that their leaders started; nothing for one
/// that is gone, or where the system does not say.
pub fn group_memory(groups: &[i32]) -> HashMap<i32, u64> {
    let mut found = HashMap::new();
    if groups.is_empty() {
        return found;
    }
    let page = rustix::param::page_size() as u64;
    for process in ProcessStat::all().filter(|process| groups.contains(&process.group)) {
        *found.entry(process.group).or_insert(0) += process.pages * page;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_group_has_memory() {
        let own = rustix::process::getpgrp().as_raw_nonzero().get();
        let memory = group_memory(&[own, i32::MAX]);
        assert!(memory[&own] > 100_000, "{memory:?}");
        assert_eq!(memory.len(), 1);
    }
}
