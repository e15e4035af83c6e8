//! The files of a turn: what came with its message, downloaded for as long as the turn lives, and what its agent sends.
//!
//! Outgoing files are uploaded one after the other beside the turn. One is handed over once it is uploaded and the chat has
//! been shown the text before it; from then on it is durable like the text of an answer, and when the connector refuses it,
//! the chat gets a text instead. Files that follow each other are handed over together where the platform has albums, once
//! something else follows them or a second has passed. The text behind a file waits for it, but no longer than a second. What is not handed over when the turn ends is committed with the end, in its place between
//! the turn's texts. A file whose upload is under way when the process is killed is lost. A file never outlives its turn and
//! never fails it: what cannot be downloaded becomes a note to the agent. No path of this machine reaches a chat.

use std::collections::VecDeque;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, timeout_at};

use smol_str::SmolStr;

use crate::adapter::CodeFile;
use crate::adapter::media::OutgoingAttachment;
use crate::adapter::media::{
    MediaKind, MissingReason, Undelivered, fallback_text, media_kind, missing_note, public_url,
    url_for_agents,
};
use crate::adapter::stream::Position;
use crate::agent::{AgentEvent, Attachment, Media, MediaLocation, Turn};
use crate::config::Settings;
use crate::net::http::HttpEgress;
use crate::net::media::{
    BotFiles, DownloadLocation, DownloadRequest, Downloaded, MediaAccess, MediaClient, MediaConnector,
    TokenMinter, TurnDir,
};
use crate::net::proxy::ProxyRules;
use crate::net::send_lease::SendLease;
use crate::net::tls::Tls;
use crate::relay::clock::now_ms;
use crate::relay::handle::SendError;
use crate::relay::transport::{Credentials, LinkStatus, USER_AGENT};
use crate::session::TurnId;
use crate::text::percent_decode;
use crate::wire::{ConnectorUrl, TOKEN_TTL_SECS, UpgradeToken};

/// The directory for attachments in the state directory.
const DIRECTORY: &str = "media";
/// A connector's clock that differs by more than this is not believed.
const MAX_SKEW_MS: u64 = 24 * 60 * 60 * 1000;
/// Files that one turn may send; further ones become text.
const MAX_FILES: usize = 16;
/// How long files wait for others that may be shown with them.
const ALBUM_WAIT: Duration = Duration::from_secs(1);
/// How long a file that is being uploaded, or is on its way into the journal, delays what the turn says after it.
const MAX_DELAY: Duration = Duration::from_secs(1);

/// Opens the client for attachments; none, and a warning, when that fails. The caller holds the state directory's lock.
pub fn open_client(
    settings: &Settings,
    tls: Tls,
    proxies: ProxyRules,
    credentials: watch::Receiver<Option<Credentials>>,
    link: watch::Receiver<LinkStatus>,
    bots: Option<Arc<BotFiles>>,
    lease: Option<SendLease>,
) -> Option<Arc<MediaClient>> {
    let url = settings.connector.url.as_deref();
    let url = url.map(|url| ConnectorUrl::parse(url).ok());
    let connector = match (url, &bots) {
        (Some(url), _) => Some(MediaConnector {
            url: url?,
            mint: token_minter(credentials, link),
            allow_plaintext: settings.connector.allow_plaintext,
        }),
        (None, Some(_)) => None,
        (None, None) => return None,
    };
    let access = MediaAccess {
        connector,
        bots,
        egress: HttpEgress {
            tls,
            proxies,
            user_agent: USER_AGENT.to_owned(),
            lease,
        },
    };
    MediaClient::open(&media_dir(settings), settings.media.clone(), access)
        .inspect_err(|error| tracing::warn!(%error, "attachments are neither downloaded nor sent"))
        .ok()
        .map(Arc::new)
}

/// The directory for attachments.
pub fn media_dir(settings: &Settings) -> PathBuf {
    settings.state_dir.join(DIRECTORY)
}

/// Mints tokens by the connector's clock, as far as it is known.
fn token_minter(
    credentials: watch::Receiver<Option<Credentials>>,
    link: watch::Receiver<LinkStatus>,
) -> TokenMinter {
    Arc::new(move || {
        let credentials = credentials.borrow().clone()?;
        let skew_ms = link.borrow().clock_skew_ms;
        let skew_ms = skew_ms.filter(|skew| skew.unsigned_abs() <= MAX_SKEW_MS);
        let now_ms = now_ms().saturating_add(skew_ms.unwrap_or(0));
        Some(UpgradeToken::mint(
            &credentials.gateway_id,
            &credentials.secret,
            TOKEN_TTL_SECS,
            now_ms / 1000,
        ))
    })
}

/// Where a turn's files are.
#[derive(Debug)]
pub struct TurnFiles {
    client: Option<Arc<MediaClient>>,
    /// The platform that the turn answers on.
    platform: SmolStr,
    workdir: Option<PathBuf>,
    directory: OnceLock<TurnDir>,
}

impl TurnFiles {
    pub fn new(client: Option<Arc<MediaClient>>, platform: SmolStr, workdir: Option<PathBuf>) -> Self {
        Self {
            client,
            platform,
            workdir,
            directory: OnceLock::new(),
        }
    }

    /// Replaces the addresses of what came with the message by files; returns how many are missing, which the agent is told. Ends
    /// soon after the turn is cancelled; dropping the future leaves nothing behind.
    pub async fn download(&self, turn: &mut Turn) -> usize {
        let count = turn.input.attachments.len();
        if count == 0 {
            return 0;
        }
        let Some(client) = &self.client else {
            let attachments = &mut turn.input.attachments;
            attachments.retain(|attachment| match &attachment.location {
                MediaLocation::Url(url) => url_for_agents(url).is_some(),
                MediaLocation::File(_) => true,
            });
            let missing = count - attachments.len();
            turn.input
                .notes
                .extend(missing_note(missing, self.missing_reason()));
            return missing;
        };
        let mut requests = Vec::new();
        for attachment in std::mem::take(&mut turn.input.attachments) {
            match attachment.location {
                MediaLocation::Url(url) => requests.push(DownloadRequest {
                    url,
                    mime: attachment.mime,
                }),
                MediaLocation::File(_) => turn.input.attachments.push(attachment),
            }
        }
        let mut downloads = client.download(turn.id.0, requests, &turn.cancel).await;
        turn.input.notes.extend(downloads.note());
        turn.input
            .attachments
            .extend(downloads.files.drain(..).map(attachment));
        if let Some(directory) = downloads.dir.take() {
            // A turn downloads once; a second directory would be removed right away, and with it its files.
            let _ = self.directory.set(directory);
        }
        downloads.missing
    }

    /// Why attachments are missing. Without a client nothing can be downloaded.
    fn missing_reason(&self) -> MissingReason {
        let client = self.client.as_ref();
        client.map_or(MissingReason::NotDownloaded, |client| client.missing_reason())
    }

    /// Tells the chat of a turn that attachments of its message are missing; not after a stop, which may be why.
    pub async fn tell_missing(&self, turn: &Turn, missing: usize) {
        if turn.cancel.is_cancelled() {
            return;
        }
        if let Some(told) = missing_notice(missing, self.missing_reason()) {
            turn.events.emit(AgentEvent::Notice(told)).await;
        }
    }

    /// Puts a file of the relay's own among the turn's files.
    pub async fn put(&self, turn: TurnId, name: &str, bytes: &[u8]) -> std::io::Result<PathBuf> {
        let client = self.client.as_ref().ok_or(std::io::ErrorKind::Unsupported)?;
        if self.directory.get().is_none() {
            // Nobody else sets it: the turn's downloads are over.
            let _ = self.directory.set(client.create_dir(turn.0)?);
        }
        let path = self.roots().pop().unwrap_or_default().join(name);
        tokio::fs::write(&path, bytes).await?;
        Ok(path)
    }

    /// The directories that the turn's agent may send from. Relative names are resolved against the first: the agent's
    /// working directory, else the one with the files that came with the message.
    fn roots(&self) -> Vec<PathBuf> {
        let directory = self.directory.get().map(|directory| directory.path().to_owned());
        self.workdir.clone().into_iter().chain(directory).collect()
    }

    /// How long one upload may take.
    pub fn upload_timeout(&self) -> Duration {
        let client = self.client.as_ref();
        client.map(|client| client.transfer_timeout()).unwrap_or_default()
    }

    /// Removes the turn's files. When this is dropped, they are removed all the same.
    pub async fn clear(self) {
        if let Some(directory) = self.directory.into_inner() {
            let _ = tokio::task::spawn_blocking(move || drop(directory)).await;
        }
    }
}

fn attachment(downloaded: Downloaded) -> Attachment {
    Attachment {
        location: match downloaded.location {
            DownloadLocation::File(path) => MediaLocation::File(path),
            DownloadLocation::Url(url) => MediaLocation::Url(url),
        },
        mime: downloaded.mime,
        name: downloaded.name,
    }
}

/// What a chat reads about missing attachments; `None` when there are none.
fn missing_notice(missing: usize, reason: MissingReason) -> Option<String> {
    let told = match (missing, reason) {
        (0, _) => return None,
        (1, MissingReason::NotDownloaded) => {
            "I could not download one attachment of this message.".to_owned()
        }
        (many, MissingReason::NotDownloaded) => {
            format!("I could not download {many} attachments of this message.")
        }
        (1, MissingReason::Withheld) => {
            "One attachment of this message was not passed on: downloads are off, and its address is private."
                .to_owned()
        }
        (many, MissingReason::Withheld) => format!(
            "{many} attachments of this message were not passed on: downloads are off, and their addresses are private."
        ),
    };
    Some(told)
}

/// How a turn learns that an attachment has its place in the chat's lane.
pub type Queued = oneshot::Sender<Result<(), SendError>>;

/// What a turn sends as a file.
#[derive(Debug)]
pub enum FileToSend {
    /// A file of its agent.
    Media(Media),
    /// Code of its answer.
    Code(CodeFile),
}

impl FileToSend {
    /// The text that replaces the file.
    pub fn replacement(&self) -> String {
        match self {
            Self::Media(media) => replacement(media),
            Self::Code(code) => code.as_text(),
        }
    }
}

/// A file whose upload has not begun.
struct WaitingFile {
    position: Position,
    file: FileToSend,
    delays_until: Option<Instant>,
}

/// An upload under way.
struct Upload {
    position: Position,
    /// Until when it delays what comes after it.
    delays_until: Option<Instant>,
    /// The text that replaces the file when the upload takes too long.
    fallback: String,
    is_answer: bool,
    work: Pin<Box<dyn Future<Output = OutgoingAttachment> + Send>>,
}

/// The files that a turn sends.
pub struct Uploads {
    turn: TurnId,
    files: Arc<TurnFiles>,
    /// Whether the platform accepts attachments, as far as it is known.
    accepted: bool,
    /// Whether the platform shows several files as one message.
    albums: bool,
    count: usize,
    /// When the last one was added.
    added: Option<Instant>,
    waiting: VecDeque<WaitingFile>,
    current: Option<Upload>,
    ready: VecDeque<(Position, OutgoingAttachment)>,
    /// One on its way into its chat's lane, and until when that delays what comes after it.
    queueing: Option<(oneshot::Receiver<Result<(), SendError>>, Instant)>,
}

impl Uploads {
    pub fn new(turn: TurnId, files: Arc<TurnFiles>, accepted: bool, albums: bool) -> Self {
        Self {
            turn,
            files,
            accepted,
            albums,
            count: 0,
            added: None,
            waiting: VecDeque::new(),
            current: None,
            ready: VecDeque::new(),
            queueing: None,
        }
    }

    /// Adds a file to send at a position; returns the text that replaces it when it is one too many.
    pub fn add(&mut self, file: FileToSend, position: Position) -> Option<String> {
        if self.count == MAX_FILES {
            return Some(file.replacement());
        }
        self.count += 1;
        let now = Instant::now();
        self.added = Some(now);
        self.waiting.push_back(WaitingFile {
            position,
            file,
            delays_until: Some(now + MAX_DELAY),
        });
        self.start_next();
        None
    }

    /// Whether an upload is under way.
    pub fn is_uploading(&self) -> bool {
        self.current.is_some()
    }

    /// Whether one is on its way into its lane: what is said after it waits.
    pub fn is_queueing(&self) -> bool {
        self.queueing.is_some()
    }

    /// Until when an upload under way delays what comes after it; none while something before it is not shown.
    pub fn delayed_until(&self, is_shown: impl FnOnce(Position) -> bool) -> Option<Instant> {
        let upload = self.current.as_ref()?;
        let until = upload.delays_until.filter(|until| *until > Instant::now())?;
        is_shown(upload.position).then_some(until)
    }

    /// What comes after the files so far does not wait for their uploads any more.
    pub fn end_delay(&mut self) {
        if let Some(upload) = &mut self.current {
            upload.delays_until = None;
        }
        for file in &mut self.waiting {
            file.delays_until = None;
        }
    }

    /// Resolves when one more is uploaded or has its place; never while nothing is under way. Cancel-safe: dropping it
    /// leaves what it waits for under way.
    pub async fn progress(&mut self) {
        let uploaded = tokio::select! {
            biased;
            () = queued(&mut self.queueing) => None,
            uploaded = finished(&mut self.current) => Some(uploaded),
        };
        match uploaded {
            None => self.queueing = None,
            Some(uploaded) => {
                self.current = None;
                self.ready.push_back(uploaded);
                self.start_next();
            }
        }
    }

    /// The next ones to hand over, when `is_due` agrees to their position: those of one place together where the platform has
    /// albums. `more` may follow there.
    pub fn next_ready(
        &mut self,
        is_due: impl FnOnce(Position) -> bool,
        more: Option<Position>,
    ) -> Option<(Vec<OutgoingAttachment>, Queued)> {
        let (position, _) = self.ready.front().filter(|_| self.queueing.is_none())?;
        let position = *position;
        if !is_due(position) || self.awaits_more(position, more) {
            return None;
        }
        let here = self.ready.iter().take_while(|(at, _)| *at == position);
        let count = if self.albums { here.count() } else { 1 };
        let together = self.ready.drain(..count).map(|(_, attachment)| attachment);
        let together = together.collect();
        let (sender, receiver) = oneshot::channel();
        self.queueing = Some((receiver, Instant::now() + MAX_DELAY));
        Some((together, sender))
    }

    /// Whether others may be shown with those at a position: they are being uploaded, or may still come.
    fn awaits_more(&self, position: Position, more: Option<Position>) -> bool {
        let current = self.current.as_ref().map(|upload| upload.position);
        let mut coming = (self.waiting.iter().map(|file| file.position)).chain(current);
        self.albums
            && (coming.any(|at| at == position) || (more == Some(position) && self.wait_until().is_some()))
    }

    /// Until when files wait for others; `None` if none wait.
    pub fn wait_until(&self) -> Option<Instant> {
        let until = self.added? + ALBUM_WAIT;
        (self.albums && !self.ready.is_empty() && until > Instant::now()).then_some(until)
    }

    /// Drops what is under way. Code is part of the answer and becomes text.
    pub fn cancel(&mut self) {
        self.current.take_if(|upload| !upload.is_answer);
        self.waiting
            .retain(|waiting| matches!(waiting.file, FileToSend::Code(_)));
        self.time_out();
    }

    /// What is under way takes too long and is replaced by text.
    pub fn time_out(&mut self) {
        if let Some(Upload {
            position, fallback, ..
        }) = self.current.take()
        {
            self.ready
                .push_back((position, OutgoingAttachment::Text(fallback)));
        }
        for WaitingFile { position, file, .. } in self.waiting.drain(..) {
            let text = OutgoingAttachment::Text(file.replacement());
            self.ready.push_back((position, text));
        }
    }

    /// What was not handed over.
    pub fn into_rest(self) -> Vec<(Position, OutgoingAttachment)> {
        self.ready.into()
    }

    fn start_next(&mut self) {
        if self.current.is_some() {
            return;
        }
        if let Some(waiting) = self.waiting.pop_front() {
            let WaitingFile {
                position,
                file,
                delays_until,
            } = waiting;
            let (fallback, is_answer) = (file.replacement(), matches!(file, FileToSend::Code(_)));
            let work = upload(self.turn, Arc::clone(&self.files), self.accepted, file);
            self.current = Some(Upload {
                position,
                delays_until,
                fallback,
                is_answer,
                work: Box::pin(work),
            });
        }
    }
}

async fn queued(queueing: &mut Option<(oneshot::Receiver<Result<(), SendError>>, Instant)>) {
    match queueing {
        Some((receiver, deadline)) => drop(timeout_at(*deadline, receiver).await),
        None => std::future::pending().await,
    }
}

async fn finished(upload: &mut Option<Upload>) -> (Position, OutgoingAttachment) {
    match upload {
        Some(upload) => (upload.position, upload.work.as_mut().await),
        None => std::future::pending().await,
    }
}

/// The text that replaces a file.
fn replacement(media: &Media) -> String {
    match &media.location {
        MediaLocation::Url(url) => fallback_text(Undelivered::At(url), &media.caption),
        MediaLocation::File(path) => {
            let name = media.name.clone().unwrap_or_else(|| file_name(path));
            fallback_text(Undelivered::Named(&name), &media.caption)
        }
    }
}

fn file_name(path: &Path) -> String {
    path.file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default()
}

/// Makes a file reachable for the connector, or returns the text that replaces it.
async fn upload(turn: TurnId, files: Arc<TurnFiles>, accepted: bool, file: FileToSend) -> OutgoingAttachment {
    let text = OutgoingAttachment::Text(file.replacement());
    if !accepted {
        return text;
    }
    let (media, instead) = match file {
        FileToSend::Media(media) => (media, None),
        FileToSend::Code(code) => match write_code(turn, &files, &code).await {
            Ok(media) => (media, Some(code.as_text())),
            Err(error) => {
                tracing::warn!(turn = turn.0, %error, "cannot write the code of an answer to a file");
                return text;
            }
        },
    };
    let kind = media.kind.as_deref().and_then(MediaKind::from_name);
    match (media.location, &files.client) {
        (MediaLocation::Url(url), client) => {
            let hosted = client.as_ref().is_some_and(|client| client.is_hosted(&url));
            by_reference(&url, kind, media.caption, media.name, hosted).unwrap_or(text)
        }
        (MediaLocation::File(path), Some(client)) => {
            let uploaded = client
                .upload(
                    &files.platform,
                    &path,
                    media.name.as_deref(),
                    None,
                    &files.roots(),
                )
                .await;
            match uploaded {
                Ok(uploaded) => OutgoingAttachment::File {
                    kind: kind.unwrap_or(uploaded.kind),
                    source_url: uploaded.url,
                    caption: media.caption,
                    name: Some(uploaded.name),
                    is_public: false,
                    instead,
                },
                Err(error) => {
                    tracing::warn!(turn = turn.0, %error, "cannot send a file of the agent");
                    text
                }
            }
        }
        (MediaLocation::File(_), None) => {
            tracing::warn!(
                turn = turn.0,
                "cannot send a file of the agent: uploads are not available"
            );
            text
        }
    }
}

/// Puts the code of an answer among the turn's files.
async fn write_code(turn: TurnId, files: &TurnFiles, code: &CodeFile) -> std::io::Result<Media> {
    // Not the name of a file that came with the message.
    let own_name = format!("answer-{}", code.name);
    let path = files.put(turn, &own_name, code.code.as_bytes()).await?;
    Ok(Media {
        location: MediaLocation::File(path),
        caption: String::new(),
        kind: Some(MediaKind::Document.as_str().to_owned()),
        name: Some(code.name.clone()),
    })
}

/// A file that stays where it is: one that the connector hosts, or a public picture.
fn by_reference(
    url: &str,
    kind: Option<MediaKind>,
    caption: String,
    name: Option<String>,
    hosted: bool,
) -> Option<OutgoingAttachment> {
    let address = public_url(url).filter(|_| !hosted);
    let last = address
        .as_ref()
        .and_then(|address| address.path_segments()?.next_back());
    let kind = kind.unwrap_or_else(|| media_kind("", &last.map(percent_decode).unwrap_or_default()));
    let source_url = match address {
        _ if hosted => url.to_owned(),
        Some(address) if kind == MediaKind::Image => address.into(),
        _ => return None,
    };
    Some(OutgoingAttachment::File {
        kind,
        source_url,
        caption,
        name,
        is_public: !hosted,
        instead: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relay::parts::turn_task::tests::context;

    #[test]
    fn a_hosted_file_and_a_public_picture_stay_where_they_are() {
        let stays = |url: &str, kind, hosted| match by_reference(url, kind, "see".to_owned(), None, hosted)? {
            OutgoingAttachment::File {
                kind,
                is_public,
                caption,
                ..
            } => Some((kind, is_public, caption)),
            OutgoingAttachment::Text(_) => None,
        };
        let see = || "see".to_owned();
        let hosted = stays("relay-media:1", Some(MediaKind::Document), true);
        assert_eq!(hosted, Some((MediaKind::Document, false, see())));
        let picture = "https://pictures.example.com/a%20cat.png";
        assert_eq!(stays(picture, None, false), Some((MediaKind::Image, true, see())));
        let chosen = stays(picture, Some(MediaKind::Document), false);
        assert_eq!(chosen, None, "it is sent as a file");
        for elsewhere in [
            "https://files.example.com/a.pdf",
            "http://127.0.0.1/a.png",
            "file:///a.png",
        ] {
            assert_eq!(stays(elsewhere, None, false), None, "{elsewhere}");
        }
    }

    #[test]
    fn what_a_chat_reads_about_missing_attachments_says_why_in_its_language() {
        for (reason, english, german) in [
            (MissingReason::NotDownloaded, "could not download", "nicht laden"),
            (
                MissingReason::Withheld,
                "downloads are off",
                "Herunterladen ist ausgeschaltet",
            ),
        ] {
            assert_eq!(missing_notice(0, reason), None);
            for missing in [1, 3] {
                let told = missing_notice(missing, reason).unwrap();
                assert!(told.contains(english), "{told}");
                let reworded = crate::words::Language::De.reword(&told);
                assert!(reworded.contains(german), "{reworded}");
            }
        }
    }

    fn file(name: &str) -> FileToSend {
        FileToSend::Media(Media {
            location: MediaLocation::File(name.into()),
            caption: String::new(),
            kind: None,
            name: None,
        })
    }

    fn picture(name: &str) -> FileToSend {
        FileToSend::Media(Media {
            location: MediaLocation::Url(format!("https://pictures.example.com/{name}.png")),
            caption: name.to_owned(),
            kind: None,
            name: None,
        })
    }

    fn code() -> FileToSend {
        FileToSend::Code(CodeFile::of_changes("+1".to_owned()))
    }

    /// Files at places of their own, the first of them uploaded.
    async fn uploads(files: impl IntoIterator<Item = FileToSend>) -> (Uploads, Vec<Position>) {
        let turn_files = TurnFiles::new(None, "slack".into(), None);
        let mut uploads = Uploads::new(TurnId(1), Arc::new(turn_files), true, false);
        let (mut stream, mut places) = (context().stream, Vec::new());
        for file in files {
            stream.push_text("here:", Duration::ZERO);
            places.push(stream.position(Duration::ZERO));
            assert_eq!(uploads.add(file, places[places.len() - 1]), None);
        }
        uploads.progress().await;
        (uploads, places)
    }

    /// What was not handed over, as its place and its text or caption.
    fn rest(uploads: Uploads) -> Vec<(Position, String)> {
        let text = |attachment| match attachment {
            OutgoingAttachment::File { caption, .. } => format!("file: {caption}"),
            OutgoingAttachment::Text(text) => text,
        };
        let rest = uploads.into_rest().into_iter();
        rest.map(|(place, attachment)| (place, text(attachment)))
            .collect()
    }

    #[tokio::test]
    async fn files_that_take_too_long_are_left_as_text_in_their_order() {
        let (mut uploads, places) = uploads([picture("cat"), file("a.pdf"), code(), file("b.pdf")]).await;
        assert!(uploads.is_uploading());
        uploads.time_out();
        assert!(!uploads.is_uploading());
        let texts = [
            "file: cat",
            "(could not deliver a.pdf)",
            "~~~diff\n+1\n~~~",
            "(could not deliver b.pdf)",
        ];
        let wanted: Vec<_> = places.into_iter().zip(texts.map(str::to_owned)).collect();
        assert_eq!(rest(uploads), wanted);
    }

    #[tokio::test]
    async fn after_a_stop_only_what_is_uploaded_and_code_is_left() {
        let (mut under_way, places) = uploads([picture("cat"), file("a.pdf"), code(), picture("dog")]).await;
        under_way.cancel();
        assert!(!under_way.is_uploading());
        let diff = || "~~~diff\n+1\n~~~".to_owned();
        let wanted = [(places[0], "file: cat".to_owned()), (places[2], diff())];
        assert_eq!(rest(under_way), wanted);

        let (mut code_first, places) = uploads([picture("cat"), code(), file("a.pdf")]).await;
        let (together, _queued) = code_first.next_ready(|_| true, None).unwrap();
        assert_eq!(together.len(), 1);
        code_first.cancel();
        assert_eq!(
            rest(code_first),
            [(places[1], diff())],
            "the first was handed over"
        );
    }
}
