//! What the system says of this process.

use std::fs;

/// Memory in use, in bytes; nothing where the system does not tell.
pub(super) fn resident_bytes() -> Option<u64> {
    let pages = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = pages.split_whitespace().nth(1)?.parse().ok()?;
    let page = u64::try_from(rustix::param::page_size()).ok()?;
    Some(pages * page)
}

#[cfg(test)]
mod tests {
    #[test]
    #[cfg(target_os = "linux")]
    fn a_process_takes_some_memory_and_not_all_of_it() {
        let bytes = super::resident_bytes().unwrap();
        assert!((1 << 16..1 << 40).contains(&bytes), "{bytes}");
    }
}
