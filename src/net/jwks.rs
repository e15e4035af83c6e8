//! Fetches the key set of the managed scheduler. It never retries, follows no redirect and sends no credential.

use std::time::Duration;

use url::Url;

use super::http::{Body, HttpClient, HttpEgress, HttpError, HttpPolicy, Request};

/// Timeout of a fetch.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Why a key set was not fetched.
#[derive(Debug, thiserror::Error)]
pub enum JwksFetchError {
    /// No usable response.
    #[error("{0}")]
    Http(#[from] HttpError),
    /// Any status but 200.
    #[error("it returned HTTP {0}")]
    Status(u16),
}

/// A client for the key set at `url`, which may be at most `max_bytes` long.
pub fn client(egress: &HttpEgress, url: &Url, max_bytes: usize) -> Result<HttpClient, HttpError> {
    let policy = HttpPolicy {
        timeout: Some(TIMEOUT),
        max_body: max_bytes,
        // Fetches are minutes apart.
        reuse_connections: false,
        ..HttpPolicy::default()
    };
    HttpClient::for_url(egress, policy, url)
}

/// The body of the key set at `url`.
pub async fn fetch(http: &HttpClient, url: &Url) -> Result<Vec<u8>, JwksFetchError> {
    let request = Request::new(url.as_str(), Body::Get).accept("application/json");
    let response = http.send(request).await?;
    match response.status {
        200 => Ok(response.body),
        status => Err(JwksFetchError::Status(status)),
    }
}
