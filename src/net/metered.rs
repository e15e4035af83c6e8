//! A connection whose written bytes are counted, so that it is known what never left. It is read in large pieces, however little is
//! asked for at a time.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, BufReader, ReadBuf};

use super::send_lease::SendLease;
use super::socket::BoxedStream;

/// Bytes that are read at once.
const READ_BYTES: usize = 16 * 1024;

/// A connection whose written bytes are counted.
#[derive(Debug)]
pub struct MeteredStream {
    stream: BufReader<BoxedStream>,
    meter: WriteMeter,
    /// Looked at before every write.
    lease: Option<SendLease>,
}

/// How many bytes a connection has taken, and the way to make it take no more.
#[derive(Clone, Debug, Default)]
pub struct WriteMeter(Arc<Mutex<Metered>>);

#[derive(Debug, Default)]
struct Metered {
    written: u64,
    stopped: bool,
}

impl WriteMeter {
    /// Bytes that the connection has taken. They may have arrived; no others have.
    pub fn written(&self) -> u64 {
        self.lock().written
    }

    /// From now on every write fails, so that [`Self::written`] is final.
    pub fn stop(&self) {
        self.lock().stopped = true;
    }

    /// Whether [`Self::stop`] was called.
    pub fn is_stopped(&self) -> bool {
        self.lock().stopped
    }

    fn lock(&self) -> MutexGuard<'_, Metered> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MeteredStream {
    /// Counts what is written to a connection, which takes nothing once the lease has ended.
    pub fn new(stream: BoxedStream, lease: Option<SendLease>) -> Self {
        let (stream, meter) = (
            BufReader::with_capacity(READ_BYTES, stream),
            WriteMeter::default(),
        );
        Self { stream, meter, lease }
    }

    /// The meter of this connection.
    pub fn meter(&self) -> WriteMeter {
        self.meter.clone()
    }
}

impl AsyncRead for MeteredStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for MeteredStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let mut meter = this.meter.lock();
        if meter.stopped || this.lease.as_ref().is_some_and(|lease| !lease.holds()) {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let written = ready!(Pin::new(&mut this.stream).poll_write(context, bytes))?;
        meter.written += written as u64;
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    #[tokio::test]
    async fn what_is_written_is_counted_until_writing_is_stopped() {
        let (ours, _theirs) = tokio::io::duplex(64);
        let mut stream = MeteredStream::new(Box::new(ours), None);
        let meter = stream.meter();
        stream.write_all(b"twelve bytes").await.unwrap();
        assert_eq!(meter.written(), 12);
        meter.stop();
        assert!(stream.write_all(b"more").await.is_err());
        assert_eq!(meter.written(), 12);
    }

    #[tokio::test]
    async fn nothing_is_written_once_the_lease_has_ended() {
        let (ours, _theirs) = tokio::io::duplex(64);
        let lease = SendLease::default();
        lease.extend(super::super::send_lease::now() + std::time::Duration::from_secs(60));
        let mut stream = MeteredStream::new(Box::new(ours), Some(lease.clone()));
        stream.write_all(b"twelve bytes").await.unwrap();
        lease.end();
        assert!(stream.write_all(b"more").await.is_err());
        assert_eq!(stream.meter().written(), 12);
    }
}
