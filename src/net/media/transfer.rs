//! One transfer: a download to disk, or an upload to the connector.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use futures_util::stream;
use reqwest::header::{
    ACCEPT, AUTHORIZATION, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap,
    HeaderValue, LOCATION,
};
use reqwest::{Body, Method, Response, StatusCode};
use serde_json::Value;
use tokio::fs::{File, OpenOptions};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use url::Url;

use super::disk::DiskShare;
use super::error::MediaError;
use super::files::{OutgoingFile, TurnDir};
use super::guard::{AddressGuard, TransferDirection};
use super::{DownloadLocation, Downloaded};
use crate::adapter::media::{
    check_url, clean_mime, disposition_name, download_name, header_name, is_media_id, numbered_name,
};
use crate::net::http::{HttpError, HttpPolicy, ResponseStream, bearer, innermost};
use crate::text::percent_decode;
use crate::wire::UpgradeToken;

/// Maximum redirects followed for one file.
const MAX_REDIRECTS: usize = 5;

/// Bytes read from disk at a time.
const CHUNK_BYTES: usize = 64 * 1024;

/// Requests one of the connector's own files. A redirect is an error: the token goes nowhere else.
pub(super) async fn get_from_connector(
    guard: &AddressGuard,
    url: &Url,
    token: &UpgradeToken,
) -> Result<Response, MediaError> {
    let client = guard.connector(TransferDirection::Download)?;
    let request = client
        .request(Method::GET, url)
        .header(ACCEPT, "*/*")
        .header(AUTHORIZATION, authorization(token)?);
    let response = client.execute(request, url).await?;
    if response.status().is_redirection() {
        return Err(MediaError::Redirect);
    }
    succeeded(response)
}

/// Requests a file from anywhere, without credentials. Every redirect target is checked like the first address.
pub(super) async fn get_from_anyone(guard: &AddressGuard, url: &Url) -> Result<(Response, Url), MediaError> {
    let mut url = url.clone();
    for _ in 0..=MAX_REDIRECTS {
        let client = guard.anyone(&url).await?;
        let request = client.request(Method::GET, &url).header(ACCEPT, "*/*");
        let response = client.execute(request, &url).await?;
        if !is_redirect(response.status()) {
            return succeeded(response).map(|response| (response, url));
        }
        url = redirect_target(&url, response.headers())?;
    }
    Err(MediaError::BadRedirect("there were too many"))
}

/// Uploads a file to `url`; returns the id the connector assigned.
pub(super) async fn upload(
    guard: &AddressGuard,
    url: &Url,
    token: &UpgradeToken,
    outgoing: OutgoingFile,
    name: &str,
    mime: &str,
) -> Result<String, MediaError> {
    let client = guard.connector(TransferDirection::Upload)?;
    let request = client
        .request(Method::POST, url)
        .header(AUTHORIZATION, authorization(token)?)
        .header(ACCEPT, "application/json")
        .header(CONTENT_TYPE, mime)
        .header(CONTENT_LENGTH, outgoing.length)
        .header("X-Media-Filename", header_name(name))
        .body(body(outgoing));
    let response = client.execute(request, url).await?;
    let status = response.status();
    if status.is_redirection() {
        return Err(MediaError::Redirect);
    }
    if !status.is_success() {
        return Err(MediaError::Status(status.as_u16()));
    }
    let response = ResponseStream::new(response, HttpPolicy::default());
    let body = response.body(guard.timeout).await.map_err(|error| match error {
        HttpError::TooLarge(_) => MediaError::NoId,
        error => error.into(),
    })?;
    let answer: Value = serde_json::from_slice(&body).map_err(|_| MediaError::NoId)?;
    let id = answer.get("id").and_then(Value::as_str);
    id.filter(|id| is_media_id(id))
        .map(str::to_owned)
        .ok_or(MediaError::NoId)
}

/// The file's bytes up to the length it had when it was opened; a file that got shorter fails the request.
fn body(outgoing: OutgoingFile) -> Body {
    let OutgoingFile { file, length } = outgoing;
    let start = (File::from_std(file), length);
    Body::wrap_stream(stream::try_unfold(start, async |(mut file, left)| {
        if left == 0 {
            return Ok::<_, std::io::Error>(None);
        }
        let room = usize::try_from(left).map_or(CHUNK_BYTES, |left| left.min(CHUNK_BYTES));
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

fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

fn redirect_target(from: &Url, headers: &HeaderMap) -> Result<Url, MediaError> {
    let location = headers.get(LOCATION).and_then(|location| location.to_str().ok());
    let next = location.and_then(|location| from.join(location).ok());
    let next = check_url(next.ok_or(MediaError::BadRedirect("its target cannot be read"))?)?;
    if from.scheme() == "https" && next.scheme() != "https" {
        return Err(MediaError::BadRedirect("it leads from https to http"));
    }
    Ok(next)
}

/// Checks for a success with a whole, unencoded body.
fn succeeded(response: Response) -> Result<Response, MediaError> {
    let status = response.status();
    if !status.is_success() || status == StatusCode::PARTIAL_CONTENT {
        return Err(MediaError::Status(status.as_u16()));
    }
    let encoded = response
        .headers()
        .get_all(CONTENT_ENCODING)
        .iter()
        .any(|encoding| !encoding.as_bytes().eq_ignore_ascii_case(b"identity"));
    if encoded {
        return Err(MediaError::Encoded);
    }
    Ok(response)
}

/// Assigns file names in a turn's directory.
pub(super) struct FileNames<'a> {
    dir: &'a TurnDir,
    taken: Mutex<HashSet<String>>,
}

impl<'a> FileNames<'a> {
    pub(super) fn new(dir: &'a TurnDir) -> Self {
        Self {
            dir,
            taken: Mutex::default(),
        }
    }

    /// An unused path for a safe name. Names that differ only in case count as the same.
    fn assign(&self, name: &str) -> (PathBuf, String) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let mut free = name.to_owned();
        let mut number = 1;
        while !taken.insert(free.to_lowercase()) {
            number += 1;
            free = numbered_name(name, number);
        }
        (self.dir.path().join(&free), free)
    }
}

/// Writes a response's body to disk. `mime`, from the message, wins over the response's.
pub(super) async fn save(
    response: Response,
    url: &Url,
    mime: &str,
    names: &FileNames<'_>,
    max: u64,
) -> Result<Downloaded, MediaError> {
    if response.content_length().is_some_and(|length| length > max) {
        return Err(MediaError::TooLarge { max });
    }
    let headers = response.headers();
    let sent = headers.get(CONTENT_TYPE).and_then(|mime| mime.to_str().ok());
    let mime = clean_mime(mime)
        .or_else(|| sent.and_then(clean_mime))
        .unwrap_or_default();
    let disposition = headers
        .get(CONTENT_DISPOSITION)
        .and_then(|field| disposition_name(field.as_bytes()))
        .unwrap_or_default();
    let last = last_segment(url);
    let (path, name) = names.assign(&download_name([disposition.as_str(), last.as_str()], &mime));
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)
        .await
        .map_err(MediaError::Disk)?;
    let mut written = 0;
    let share = names.dir.share();
    if let Err(error) = write_body(response, file, max, share, &mut written).await {
        // A leftover is removed with the directory.
        if tokio::fs::remove_file(&path).await.is_ok() {
            share.give_back(written);
        }
        return Err(error);
    }
    Ok(Downloaded {
        location: DownloadLocation::File(path),
        mime,
        name,
    })
}

/// The last path segment of an address, decoded.
pub(super) fn last_segment(url: &Url) -> String {
    let last = url.path_segments().and_then(|mut segments| segments.next_back());
    last.map(percent_decode).unwrap_or_default()
}

/// Writes the body, counting what it took of the disk in `written`.
async fn write_body(
    mut response: Response,
    mut file: File,
    max: u64,
    share: &DiskShare,
    written: &mut u64,
) -> Result<(), MediaError> {
    while let Some(chunk) = response.chunk().await.map_err(lost)? {
        let length = chunk.len() as u64;
        if written.saturating_add(length) > max {
            return Err(MediaError::TooLarge { max });
        }
        share.take(*written, length)?;
        *written += length;
        file.write_all(&chunk).await.map_err(MediaError::Disk)?;
    }
    file.flush().await.map_err(MediaError::Disk)?;
    if *written == 0 {
        return Err(MediaError::Empty);
    }
    Ok(())
}

fn authorization(token: &UpgradeToken) -> Result<HeaderValue, MediaError> {
    bearer(token.as_secret()).map_err(|_| MediaError::NoCredentials)
}

/// Maps a failed read; the address is left out.
fn lost(error: reqwest::Error) -> MediaError {
    if error.is_timeout() {
        return MediaError::TimedOut;
    }
    MediaError::Unreachable(innermost(&error.without_url()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_never_downgrade_or_leave_http() {
        let to = |from: &str, location: &'static str| {
            let from = Url::parse(from).unwrap();
            let location = HeaderValue::from_static(location);
            let headers = HeaderMap::from_iter([(LOCATION, location)]);
            redirect_target(&from, &headers).map(String::from)
        };
        assert_eq!(
            to("https://a.example/x/y", "../z").unwrap(),
            "https://a.example/z"
        );
        assert_eq!(
            to("http://a.example/", "https://b.example/#f").unwrap(),
            "https://b.example/"
        );
        for (from, location) in [
            ("https://a.example/", "http://a.example/"),
            ("https://a.example/", "file:///etc/passwd"),
            ("https://a.example/", "https://u:p@b.example/"),
            ("https://a.example/", "https://"),
        ] {
            assert!(to(from, location).is_err(), "{location}");
        }
        assert!(redirect_target(&Url::parse("https://a.example/").unwrap(), &HeaderMap::new()).is_err());
    }
}
