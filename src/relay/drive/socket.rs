//! The driver's hands on the socket: dialling, writing, closing. It decides nothing.

use tokio::sync::mpsc;

use super::{Drive, Say, USER_AGENT};
use crate::link::Generation;
use crate::net::socket::DialRequest;
use crate::wire::{TOKEN_TTL_SECS, UpgradeToken};

impl Drive {
    pub(super) fn dial(&mut self, generation: Generation, mint_at_unix: i64) {
        let bearer = self
            .keys
            .sign()
            .map(|who| UpgradeToken::mint(&who.gateway_id, &who.secret, TOKEN_TTL_SECS, mint_at_unix));
        let (dialer, url) = (self.settings.dialer.clone(), self.settings.dial_url.clone());
        let (allow_plaintext, max_message_bytes, max_write_buffer_bytes) = (
            self.settings.allow_plaintext,
            self.settings.max_message_bytes,
            self.settings.max_write_buffer_bytes,
        );
        let before = self.closing.take();
        self.dialing = Some(tokio::spawn(async move {
            if let Some(before) = before {
                let _ = before.await;
            }
            let request = DialRequest {
                url: &url,
                bearer: bearer.as_ref().map(UpgradeToken::as_secret),
                user_agent: USER_AGENT,
                allow_plaintext,
                max_message_bytes,
                max_write_buffer_bytes,
            };
            (generation, dialer.dial(request).await)
        }));
    }

    pub(super) fn write(&mut self, generation: Generation, word: Say) {
        if self
            .connection
            .as_ref()
            .is_some_and(|connection| connection.generation == generation)
        {
            self.unwritten.push_back(word);
            self.write_on();
        }
    }

    pub(super) fn write_on(&mut self) {
        let Some(connection) = &self.connection else {
            return;
        };
        while let Some(word) = self.unwritten.pop_front() {
            match connection.say.try_send(word) {
                Ok(()) => {}
                Err(mpsc::error::TrySendError::Full(word)) => return self.unwritten.push_front(word),
                Err(mpsc::error::TrySendError::Closed(_)) => {
                    // Nothing can be said any more, even if something can still be heard.
                    self.unwritten.clear();
                    let generation = connection.generation;
                    return self.link.handle_closed(generation, None, self.clock.now());
                }
            }
        }
    }

    pub(super) fn close_socket(&mut self, generation: Generation, code: u16, reason: &'static str) {
        if let Some(dialing) = self.dialing.take() {
            dialing.abort();
        }
        if self
            .connection
            .as_ref()
            .is_none_or(|connection| connection.generation != generation)
        {
            return;
        }
        self.unwritten.clear();
        if let Some(connection) = self.connection.take() {
            self.closing = Some(tokio::spawn(connection.close(code, reason)));
        }
    }
}
