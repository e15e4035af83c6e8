//! A name server that knows one answer: every name is this machine.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::net::UdpSocket;

use crate::support::skip::skip;

pub(crate) struct Names {
    pub(crate) at: Ipv4Addr,
    asked: Arc<AtomicUsize>,
}

impl Names {
    /// On an address of its own, at the port that every resolver asks; `None`, loudly, where that is taken.
    pub(crate) async fn serve() -> Option<Self> {
        let [high, low] = u16::try_from(std::process::id() % 65_000).unwrap().to_be_bytes();
        let at = Ipv4Addr::new(127, 53, high, low.max(1));
        let socket = match UdpSocket::bind((at, 53)).await {
            Ok(socket) => socket,
            Err(error) => {
                skip(&format!(
                    "what asks for names, because none can be served at {at}: {error}"
                ));
                return None;
            }
        };
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        tokio::spawn(async move {
            let mut buffer = [0; 512];
            while let Ok((size, who)) = socket.recv_from(&mut buffer).await {
                count.fetch_add(1, Ordering::SeqCst);
                if let Some(answer) = answer(&buffer[..size]) {
                    let _ = socket.send_to(&answer, who).await;
                }
            }
        });
        Some(Self { at, asked })
    }

    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

/// The question again, with an address if that was asked for.
fn answer(question: &[u8]) -> Option<Vec<u8>> {
    const ADDRESS: [u8; 4] = [0, 1, 0, 1];
    let name = question.get(12..)?.iter().position(|byte| *byte == 0)?;
    let end = 12 + name + 1 + 4;
    let found = question.get(end - 4..end)? == ADDRESS;
    let mut answer = question[..2].to_vec();
    // A response, recursion desired and available; one question, an answer or none.
    answer.extend([0x81, 0x80, 0, 1, 0, u8::from(found), 0, 0, 0, 0]);
    answer.extend(&question[12..end]);
    if found {
        // The name of the question, an address, kept for a minute, four bytes.
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 1]);
    }
    Some(answer)
}
