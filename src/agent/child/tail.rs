//! The last of what a process writes to standard error, read for ever and kept within a bound.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::AsyncReadExt;
use tokio::process::ChildStderr;
use tokio_util::task::AbortOnDropHandle;

/// How much is kept; older bytes are forgotten.
pub(super) const KEPT: usize = 64 * 1024;

/// How much is read at once.
const CHUNK: usize = 8 * 1024;

/// Reads standard error until its end and keeps the tail. Ends its task when dropped.
#[derive(Debug)]
pub(super) struct StderrTail {
    kept: Arc<Mutex<Ring>>,
    reader: Option<AbortOnDropHandle<()>>,
}

#[derive(Debug, Default)]
struct Ring {
    bytes: VecDeque<u8>,
    total: u64,
}

impl StderrTail {
    /// Starts to read.
    pub(super) fn drain(stderr: Option<ChildStderr>) -> Self {
        let kept = Arc::new(Mutex::new(Ring::default()));
        let reader = stderr.map(|stderr| {
            let kept = Arc::clone(&kept);
            AbortOnDropHandle::new(tokio::spawn(read(stderr, kept)))
        });
        Self { kept, reader }
    }

    /// Waits for the end of standard error. Cancel-safe.
    pub(super) async fn ended(&mut self) {
        if let Some(reader) = &mut self.reader {
            // It does not panic and is ended by nobody else.
            let _ = reader.await;
            self.reader = None;
        }
    }

    /// What is kept, as text.
    pub(super) fn text(&self) -> String {
        let mut ring = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(ring.bytes.make_contiguous()).into_owned()
    }

    /// How much was read so far.
    pub(super) fn total(&self) -> u64 {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).total
    }
}

async fn read(mut stderr: ChildStderr, kept: Arc<Mutex<Ring>>) {
    let mut chunk = vec![0; CHUNK];
    while let Ok(length @ 1..) = stderr.read(&mut chunk).await {
        kept.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(&chunk[..length]);
    }
}

impl Ring {
    fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let bytes = &bytes[bytes.len().saturating_sub(KEPT)..];
        let excess = (self.bytes.len() + bytes.len()).saturating_sub(KEPT);
        self.bytes.drain(..excess);
        self.bytes.extend(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_bytes_stay_and_the_bound_holds() {
        let mut ring = Ring::default();
        for piece in 0..1000_u32 {
            ring.push(format!("{piece:0200}").as_bytes());
            assert!(ring.bytes.len() <= KEPT);
        }
        assert_eq!(ring.total, 200_000);
        let text = String::from_utf8(ring.bytes.make_contiguous().to_vec()).unwrap();
        assert!(text.ends_with("0999"));
        ring.push(&vec![b'x'; 3 * KEPT]);
        assert!(ring.bytes.len() == KEPT && ring.bytes.iter().all(|byte| *byte == b'x'));
    }
}
