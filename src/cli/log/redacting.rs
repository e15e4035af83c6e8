//! The redactor of a running log, and writers that pass every line through it.

use std::borrow::Cow;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, RwLock};

use tracing_subscriber::fmt::MakeWriter;

use crate::cli::log::redact::{KnownSecret, Redactor};
use crate::serve::LogCounts;

/// Redacts log lines; learns new secrets while the program runs. Clones share their state.
#[derive(Clone, Default)]
pub(super) struct LogRedactor {
    redactor: Arc<RwLock<Arc<Redactor>>>,
    counts: Arc<LogCounts>,
}

impl LogRedactor {
    pub(super) fn new(secrets: Vec<KnownSecret>) -> Self {
        Self {
            redactor: Arc::new(RwLock::new(Arc::new(Redactor::exact(secrets)))),
            counts: Arc::default(),
        }
    }

    pub(super) fn counts(&self) -> &Arc<LogCounts> {
        &self.counts
    }

    /// Adds secrets. Old ones stay: what was secret before a change still is.
    pub(super) fn add(&self, secrets: Vec<KnownSecret>) {
        let mut redactor = self.redactor.write().unwrap_or_else(PoisonError::into_inner);
        let mut all = redactor.secrets().to_vec();
        all.extend(secrets);
        *redactor = Arc::new(Redactor::exact(all));
    }

    /// The redactor as it is now.
    pub(super) fn current(&self) -> Arc<Redactor> {
        Arc::clone(&self.redactor.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Counts a line in which something was redacted.
    pub(super) fn count_redacted(&self) {
        self.counts.redacted.fetch_add(1, Ordering::Relaxed);
    }
}

/// Redacts what is written. The formatters write each line with one call.
pub(super) struct RedactingWriter<W> {
    redactor: LogRedactor,
    inner: W,
}

impl<W: io::Write> io::Write for RedactingWriter<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let shown = self.redactor.current().redact(line);
        if matches!(shown, Cow::Owned(_)) {
            self.redactor.count_redacted();
        }
        self.inner.write_all(&shown)?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Makes redacting writers.
pub(super) struct MakeRedactingWriter<M> {
    pub(super) redactor: LogRedactor,
    pub(super) inner: M,
}

impl<'w, M: MakeWriter<'w>> MakeWriter<'w> for MakeRedactingWriter<M> {
    type Writer = RedactingWriter<M::Writer>;

    fn make_writer(&'w self) -> Self::Writer {
        RedactingWriter {
            redactor: self.redactor.clone(),
            inner: self.inner.make_writer(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;
    use crate::config::settings::HIDDEN;

    fn secret(value: &str) -> Vec<KnownSecret> {
        vec![KnownSecret::new("secret", value)]
    }

    #[test]
    fn old_secrets_stay_secret() {
        let redactor = LogRedactor::new(secret("the-old-one"));
        redactor.add(secret("the-new-one"));
        assert_eq!(
            redactor.current().redact_str("the-old-one the-new-one"),
            "<hidden> <hidden>"
        );
    }

    #[derive(Clone, Default)]
    struct LogBuffer(Arc<Mutex<Vec<u8>>>);

    impl io::Write for LogBuffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl<'w> MakeWriter<'w> for LogBuffer {
        type Writer = Self;

        fn make_writer(&'w self) -> Self {
            self.clone()
        }
    }

    /// With the same layers as the program, in colour too.
    #[test]
    fn text_from_outside_cannot_drive_a_terminal_or_forge_a_line() {
        const HOSTILE: &str = "bye\x1b[2J\u{9b}31m\x07\r\nERROR forged\u{202e}\u{2028}";
        for (json, colour) in [(false, false), (false, true), (true, false)] {
            let page = LogBuffer::default();
            let writer = MakeRedactingWriter {
                redactor: LogRedactor::new(Vec::new()),
                inner: page.clone(),
            };
            let layer = crate::cli::log::line_layer(writer, json, colour);
            let subscriber = tracing_subscriber::registry().with(layer);
            tracing::subscriber::with_default(subscriber, || {
                let _span = tracing::warn_span!("link", peer = %HOSTILE).entered();
                tracing::warn!(reason = %HOSTILE, text = HOSTILE, list = ?[HOSTILE], "closed: {HOSTILE}");
            });
            let page = String::from_utf8(page.0.lock().unwrap().clone()).unwrap();
            assert_eq!(page.lines().count(), 1, "{page:?}");
            assert!(page.contains("forged"), "{page:?}");
            let plain = page.trim_end().replace("\x1b[", "");
            assert!(!plain.contains(crate::text::is_unprintable), "{page:?}");
            assert!(colour || !page.contains('\x1b'), "{page:?}");
            assert!(!page.contains("\x1b[2J"), "{page:?}");
            if json {
                let line: serde_json::Value = serde_json::from_str(&page).unwrap();
                assert_eq!(line["reason"], HOSTILE);
            }
        }
    }

    /// With the same layers as the program.
    #[test]
    fn a_logged_secret_is_redacted_in_every_format() {
        const SECRET: &str = "hush \"quoted\" \\ \u{7}hush";
        for json in [false, true] {
            let page = LogBuffer::default();
            let redactor = LogRedactor::new(secret(SECRET));
            let writer = MakeRedactingWriter {
                redactor: redactor.clone(),
                inner: page.clone(),
            };
            let layer = crate::cli::log::line_layer(writer, json, false);
            let subscriber = tracing_subscriber::registry().with(layer);
            tracing::subscriber::with_default(subscriber, || {
                tracing::info!(field = SECRET, shown = %SECRET, "said {SECRET} aloud");
                tracing::warn!(list = ?[SECRET]);
                tracing::warn!("nothing to redact");
            });
            let page = String::from_utf8(page.0.lock().unwrap().clone()).unwrap();
            assert_eq!(redactor.counts().redacted.load(Ordering::Relaxed), 2);
            assert_eq!(page.lines().count(), 3, "{page}");
            assert_eq!(page.matches(HIDDEN).count(), 4, "{page}");
            assert!(!page.contains("hush"), "{page}");
        }
    }
}
