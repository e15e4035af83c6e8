//! One file from the network to the disk: who is asked, with what, and how much is taken.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use reqwest::header::{ACCEPT, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, LOCATION};
use reqwest::{Response, StatusCode};
use tokio::fs::{File, OpenOptions};
use tokio::io::AsyncWriteExt as _;
use url::Url;

use super::error::MediaError;
use super::reach::{Reach, Task};
use super::{DownloadLocation, Downloaded};
use crate::adapter::media::{
    check_url, clean_mime, disposition_name, download_name, numbered_name, percent_decode,
};
use crate::net::http::{innermost, sensitive};
use crate::wire::UpgradeToken;

/// Redirects that are followed for one file.
const MAX_REDIRECTS: usize = 5;

/// Asks the connector for one of its own files. A redirect is refused: the bearer goes nowhere else.
pub(super) async fn ask_connector(
    reach: &Reach,
    url: &Url,
    token: &UpgradeToken,
) -> Result<Response, MediaError> {
    let bearer = bearer(token)?;
    let request = reach
        .connector(url, Task::Download)?
        .get(url.clone())
        .header(ACCEPT, "*/*");
    let response = request
        .header(reqwest::header::AUTHORIZATION, bearer)
        .send()
        .await
        .map_err(lost)?;
    if response.status().is_redirection() {
        return Err(MediaError::Redirect);
    }
    succeeded(response)
}

/// Asks anybody, without any credential; every stop of a redirect is judged anew.
pub(super) async fn ask_anyone(reach: &Reach, url: &Url) -> Result<(Response, Url), MediaError> {
    let mut url = url.clone();
    for _ in 0..=MAX_REDIRECTS {
        let client = reach.anyone(&url).await?;
        let request = client.get(url.clone()).header(ACCEPT, "*/*");
        let response = request.send().await.map_err(lost)?;
        if !is_redirect(response.status()) {
            return succeeded(response).map(|response| (response, url));
        }
        url = next_stop(&url, response.headers())?;
    }
    Err(MediaError::BadRedirect("there were too many"))
}

fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

fn next_stop(from: &Url, headers: &HeaderMap) -> Result<Url, MediaError> {
    let location = headers.get(LOCATION).and_then(|location| location.to_str().ok());
    let next = location.and_then(|location| from.join(location).ok());
    let next = check_url(next.ok_or(MediaError::BadRedirect("its target cannot be read"))?)?;
    if from.scheme() == "https" && next.scheme() != "https" {
        return Err(MediaError::BadRedirect("it leads from https to http"));
    }
    Ok(next)
}

/// A success that has a whole body.
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

/// Where a turn's files are put, and which names are taken there.
pub(super) struct Drawer<'a> {
    folder: &'a Path,
    taken: Mutex<HashSet<String>>,
}

impl<'a> Drawer<'a> {
    pub(super) fn new(folder: &'a Path) -> Self {
        Self {
            folder,
            taken: Mutex::default(),
        }
    }

    /// A free place for a safe name. Names that differ only in their letters' case count as the same.
    fn place(&self, name: &str) -> (PathBuf, String) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let mut free = name.to_owned();
        let mut number = 1;
        while !taken.insert(free.to_lowercase()) {
            number += 1;
            free = numbered_name(name, number);
        }
        (self.folder.join(&free), free)
    }
}

/// Puts an answer's body into the drawer. `mime` is what the message said about it, and wins.
pub(super) async fn keep(
    response: Response,
    url: &Url,
    mime: &str,
    drawer: &Drawer<'_>,
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
    let (path, name) = drawer.place(&download_name([disposition.as_str(), last.as_str()], &mime));
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)
        .await
        .map_err(MediaError::Disk)?;
    if let Err(error) = pour(response, file, max).await {
        // Should it stay, it goes with the folder.
        let _ = tokio::fs::remove_file(&path).await;
        return Err(error);
    }
    Ok(Downloaded {
        location: DownloadLocation::File(path),
        mime,
        name,
    })
}

/// The part of an address that is most like a file's name.
pub(super) fn last_segment(url: &Url) -> String {
    let last = url.path_segments().and_then(|mut segments| segments.next_back());
    last.map(percent_decode).unwrap_or_default()
}

async fn pour(mut response: Response, mut file: File, max: u64) -> Result<(), MediaError> {
    let mut taken = 0_u64;
    while let Some(chunk) = response.chunk().await.map_err(lost)? {
        taken = taken.saturating_add(chunk.len() as u64);
        if taken > max {
            return Err(MediaError::TooLarge { max });
        }
        file.write_all(&chunk).await.map_err(MediaError::Disk)?;
    }
    file.flush().await.map_err(MediaError::Disk)?;
    if taken == 0 {
        return Err(MediaError::Empty);
    }
    Ok(())
}

/// The value of the `Authorization` header, marked as a secret.
pub(super) fn bearer(token: &UpgradeToken) -> Result<reqwest::header::HeaderValue, MediaError> {
    sensitive(&format!("Bearer {}", token.expose())).map_err(|_| MediaError::NoCredentials)
}

/// What a failed request means; the address is left out.
pub(super) fn lost(error: reqwest::Error) -> MediaError {
    if error.is_timeout() {
        return MediaError::TimedOut;
    }
    MediaError::Unreachable(innermost(&error.without_url()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirect_never_leaves_encryption_or_the_web() {
        let to = |from: &str, location: &'static str| {
            let from = Url::parse(from).unwrap();
            let location = reqwest::header::HeaderValue::from_static(location);
            let headers = HeaderMap::from_iter([(LOCATION, location)]);
            next_stop(&from, &headers).map(String::from)
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
        assert!(next_stop(&Url::parse("https://a.example/").unwrap(), &HeaderMap::new()).is_err());
    }
}
