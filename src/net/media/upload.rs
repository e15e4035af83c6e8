//! One file from the disk to the connector's shelf.

use futures_util::stream;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE};
use reqwest::{Body, Response};
use serde_json::Value;
use tokio::io::AsyncReadExt as _;
use url::Url;

use super::download::{bearer, lost};
use super::error::MediaError;
use super::outgoing::Opened;
use super::reach::{Reach, Task};
use crate::adapter::media::{header_name, is_media_id};
use crate::net::http::MAX_BODY;
use crate::wire::UpgradeToken;

/// Bytes that are read from the disk at a time.
const CHUNK: usize = 64 * 1024;

/// Sends a file to the shelf at `url`; the id that it got there.
pub(super) async fn put(
    reach: &Reach,
    url: &Url,
    token: &UpgradeToken,
    opened: Opened,
    name: &str,
    mime: &str,
) -> Result<String, MediaError> {
    let bearer = bearer(token)?;
    let response = reach
        .connector(url, Task::Upload)?
        .post(url.clone())
        .header(AUTHORIZATION, bearer)
        .header(ACCEPT, "application/json")
        .header(CONTENT_TYPE, mime)
        .header(CONTENT_LENGTH, opened.length)
        .header("X-Media-Filename", header_name(name))
        .body(body(opened))
        .send()
        .await
        .map_err(lost)?;
    let status = response.status();
    if status.is_redirection() {
        return Err(MediaError::Redirect);
    }
    if !status.is_success() {
        return Err(MediaError::Status(status.as_u16()));
    }
    id(response).await
}

/// Exactly as many bytes as the file had when it was opened: what is appended meanwhile is not sent, and a file that
/// gets shorter breaks the request off.
fn body(opened: Opened) -> Body {
    let Opened { file, length } = opened;
    let start = (tokio::fs::File::from_std(file), length);
    Body::wrap_stream(stream::try_unfold(start, async |(mut file, left)| {
        if left == 0 {
            return Ok::<_, std::io::Error>(None);
        }
        let room = usize::try_from(left).map_or(CHUNK, |left| left.min(CHUNK));
        let mut chunk = vec![0; room];
        let read = file.read(&mut chunk).await?;
        if read == 0 {
            return Err(std::io::Error::new(
                std::io::ErrorKind::UnexpectedEof,
                "the file changed while it was being sent",
            ));
        }
        chunk.truncate(read);
        Ok(Some((chunk, (file, left - read as u64))))
    }))
}

async fn id(mut response: Response) -> Result<String, MediaError> {
    let mut answer = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(lost)? {
        if answer.len() + chunk.len() > MAX_BODY {
            return Err(MediaError::NoId);
        }
        answer.extend_from_slice(&chunk);
    }
    let answer: Value = serde_json::from_slice(&answer).map_err(|_| MediaError::NoId)?;
    let id = answer.get("id").and_then(Value::as_str);
    id.filter(|id| is_media_id(id))
        .map(str::to_owned)
        .ok_or(MediaError::NoId)
}
