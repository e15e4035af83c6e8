//! The page on which people see and use what `dev` simulates: the embedded connector, or a fake platform.
//!
//! There is one page. What stands behind it is a [`PageBackend`]: it declares what the page shows, sends what happens as
//! server-sent events, and takes what people do as requests. Files are part of the binary. A request whose `Host` is not
//! this loopback address, whose origin is another page, or whose token is wrong is never answered, and the page that is
//! served may load nothing from anywhere else.
//!
//! | request | what it is |
//! |---|---|
//! | `GET events` | a stream of batches: `setup` and `status` when they change, new `rows` of the wire, `happenings` in the chats |
//! | `GET row/N`, `GET media/ID` | one row in full; a file of a message |
//! | `POST upload` | a file for a message that follows; answers its id |
//! | `POST ACTION` | `say`, `press`, `stop`, `chat`, `person`, and what `setup.can` declares |
//! | `GET alive` | whether the program is there |

mod assets;
mod events;

use std::future::{Ready, ready};
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Path, Request, State};
use axum::response::Response;
use axum::routing::any;
use http::{HeaderMap, Method, StatusCode, header};
use serde_json::{Value, json};
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;

use super::connector::random_token;
use super::http::{MAX_MEDIA_BYTES, is_token, plain, reply};

/// Maximum pages open at the same time.
const MAX_LISTENERS: usize = 8;
/// Letters of the token in the address.
const TOKEN_LENGTH: usize = 32;
/// Longest body of an action.
const MAX_ACTION_BYTES: usize = 256 * 1024;
/// Letters of a file's name that are kept.
const MAX_FILE_NAME_CHARS: usize = 200;
/// People that a page may have; in `dev` all of them are owners.
pub const MAX_PAGE_PEOPLE: usize = 64;
/// Longest name of a chat or a person.
const MAX_NAME_CHARS: usize = 60;
/// Types that are shown in the page; everything else is offered as a download.
const SHOWN: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// What stands behind the page.
pub(super) trait PageBackend: Send + Sync + 'static {
    /// What one open page has seen.
    type Cursor: Send;

    /// The way in, once somebody opened the page.
    fn door(&self) -> Option<&PageDoor>;
    /// The port that a request has to be addressed to.
    fn port(&self) -> u16;
    /// Notified after every change that the page may show.
    fn changed(&self) -> &Notify;
    fn stop(&self) -> &CancellationToken;
    /// What the page is about, who is there, and in `can` what only some backends do.
    fn setup(&self) -> Value;
    /// The bar at the top.
    fn status(&self) -> Value;
    /// Where a page begins: after the event that it names, or where a new page does.
    fn cursor(&self, after: Option<&str>) -> Self::Cursor;
    /// What came after the cursor, which moves.
    fn news(&self, cursor: &mut Self::Cursor) -> PageNews;
    /// The row of the wire with this number, in full.
    fn row(&self, number: u64) -> Option<Value>;
    /// A file of a message.
    fn file(&self, id: &str) -> Option<PageFile>;
    /// Keeps a file for a message, and names it.
    fn keep(&self, file: PageFile) -> String;
    /// Does what a person asks for.
    fn act(
        self: &Arc<Self>,
        action: &str,
        body: &[u8],
    ) -> impl Future<Output = Result<Value, ActionError>> + Send;
    /// Answers what only this backend has to read.
    fn read(self: &Arc<Self>, _name: &str) -> impl Future<Output = Option<Response>> + Send {
        let nothing: Ready<Option<Response>> = ready(None);
        nothing
    }
}

/// What is new for a page.
#[derive(Default)]
pub(super) struct PageNews {
    /// The name of the event, by which a page that lost its connection says how far it was.
    pub(super) id: Option<String>,
    /// Rows of the wire. One whose number is shown already replaces it.
    pub(super) rows: Vec<Value>,
    /// What happened in the chats, as JSON text.
    pub(super) happenings: Vec<Arc<str>>,
}

/// A file that people send or see.
pub(super) struct PageFile {
    pub(super) mime: String,
    pub(super) name: Option<String>,
    pub(super) bytes: Bytes,
}

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
pub(super) struct ActionError {
    status: StatusCode,
    why: String,
}

impl ActionError {
    pub(super) fn new(status: StatusCode, why: impl Into<String>) -> Self {
        let why = why.into();
        Self { status, why }
    }

    /// The request asks for something that cannot be.
    pub(super) fn bad(why: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, why)
    }

    /// There is no action of this name.
    pub(super) fn unknown(action: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, format!("there is no action {action:?}"))
    }
}

impl From<serde_json::Error> for ActionError {
    fn from(error: serde_json::Error) -> Self {
        Self::bad(format!("the action cannot be read: {error}"))
    }
}

/// The way into an opened page: its token, and how many may look.
pub struct PageDoor {
    token: String,
    listeners: Arc<Semaphore>,
}

impl PageDoor {
    pub(super) fn new() -> Self {
        Self {
            token: random_token()[..TOKEN_LENGTH].to_owned(),
            listeners: Arc::new(Semaphore::new(MAX_LISTENERS)),
        }
    }

    /// The path of the page, token included.
    pub(super) fn path(&self) -> String {
        format!("/dev/{}/", self.token)
    }
}

/// The page's routes.
pub(super) fn routes<B: PageBackend>() -> Router<Arc<B>> {
    let root = |backend: State<Arc<B>>, Path(token): Path<String>, request: Request| {
        serve(backend.0, token, String::new(), request)
    };
    let below = |backend: State<Arc<B>>, Path((token, rest)): Path<(String, String)>, request: Request| {
        serve(backend.0, token, rest, request)
    };
    Router::new()
        .route("/dev/{token}", any(root))
        .route("/dev/{token}/", any(root))
        .route("/dev/{token}/{*rest}", any(below))
}

async fn serve<B: PageBackend>(backend: Arc<B>, token: String, rest: String, request: Request) -> Response {
    let checked = assets::check(backend.port(), request.method(), &rest, request.headers());
    let door = backend.door().filter(|door| is_token(&door.token, &token));
    let response = match (checked, door) {
        (Err(refusal), _) => plain(StatusCode::FORBIDDEN, &refusal.to_string()),
        (Ok(()), None) => plain(StatusCode::NOT_FOUND, "there is no such page"),
        (Ok(()), Some(door)) => route(&backend, door, &rest, request).await,
    };
    assets::harden(response)
}

async fn route<B: PageBackend>(backend: &Arc<B>, door: &PageDoor, rest: &str, request: Request) -> Response {
    let get = request.method() == Method::GET || request.method() == Method::HEAD;
    let post = request.method() == Method::POST;
    match rest.split_once('/').unwrap_or((rest, "")) {
        ("", _) if get && !request.uri().path().ends_with('/') => Response::builder()
            .status(StatusCode::PERMANENT_REDIRECT)
            .header(header::LOCATION, door.path())
            .body(Body::empty())
            .expect("the token is hex"),
        ("events", "") if get => events::stream(backend, door, &request),
        ("alive", "") if get => reply(&Value::Bool(true)),
        ("row", number) if get => match number.parse().ok().and_then(|number| backend.row(number)) {
            Some(row) => reply(&row),
            None => plain(StatusCode::NOT_FOUND, "this row is no longer kept"),
        },
        ("media", id) if get => match backend.file(id) {
            Some(file) => shown(file),
            None => plain(StatusCode::NOT_FOUND, "the file is no longer kept"),
        },
        ("upload", "") if post => upload(backend.as_ref(), request).await,
        (action, "") if post => match to_bytes(request.into_body(), MAX_ACTION_BYTES).await {
            Err(_) => plain(StatusCode::PAYLOAD_TOO_LARGE, "the action is too long"),
            Ok(body) => match backend.act(action, &body).await {
                Ok(answer) => reply(&answer),
                Err(error) => plain(error.status, &error.why),
            },
        },
        _ if get => match backend.read(rest).await {
            Some(response) => response,
            None => assets::file(rest),
        },
        _ => plain(StatusCode::METHOD_NOT_ALLOWED, "this page answers GET and POST"),
    }
}

/// Keeps a file for a message that is about to be sent.
async fn upload(backend: &impl PageBackend, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let Ok(bytes) = to_bytes(body, MAX_MEDIA_BYTES).await else {
        return plain(StatusCode::PAYLOAD_TOO_LARGE, "the file is larger than 25 MiB");
    };
    if bytes.is_empty() {
        return plain(StatusCode::BAD_REQUEST, "the file is empty");
    }
    let mime = text(&parts.headers, "content-type").unwrap_or("application/octet-stream");
    let (mime, name) = (mime.to_owned(), text(&parts.headers, "x-filename").map(file_name));
    let mut answer = json!({ "mime": mime, "filename": name });
    answer["id"] = backend.keep(PageFile { mime, name, bytes }).into();
    reply(&answer)
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// The name of a file, which a header carries as a part of a URL.
fn file_name(encoded: &str) -> String {
    let pair = format!("n={encoded}");
    let name = url::form_urlencoded::parse(pair.as_bytes()).next();
    let name = name.map(|(_, name)| name.into_owned()).unwrap_or_default();
    name.chars()
        .filter(|c| !c.is_control())
        .take(MAX_FILE_NAME_CHARS)
        .collect()
}

/// The name that somebody gave a chat or a person, tidied up.
pub(super) fn given_name(name: &str) -> Result<String, &'static str> {
    let name: String = name.split_whitespace().collect::<Vec<_>>().join(" ");
    match name.chars().count() {
        0 => Err("the name is empty"),
        1..=MAX_NAME_CHARS => Ok(name),
        _ => Err("the name is too long"),
    }
}

/// A picture to be shown, or a file to be saved.
fn shown(file: PageFile) -> Response {
    let (kind, disposition) = if SHOWN.contains(&file.mime.as_str()) {
        (file.mime.as_str(), "inline")
    } else {
        ("application/octet-stream", "attachment")
    };
    Response::builder()
        .header(header::CONTENT_TYPE, kind)
        .header(header::CONTENT_DISPOSITION, disposition)
        .body(Body::from(file.bytes))
        .expect("the types are ASCII")
}
