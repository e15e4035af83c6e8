//! Small servers on loopback: one that answers an upgrade in a given way, and proxies in front of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use hermes_relay::net::socket::{DialRequest, Dialed, Dialer, Stream};
use hermes_relay::net::{proxy::ProxyRules, tls};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

/// The longest a test waits for anything.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// How long a dial waits for somebody who says nothing; a busy machine gets past the stages before that in this time.
pub(crate) const SILENCE: Duration = Duration::from_secs(2);

/// How a server answers an upgrade.
#[derive(Clone)]
pub(crate) enum Answer {
    /// With 101 and these extra header lines, then it echoes every message.
    Echo(&'static str),
    /// With these bytes, then it hangs up.
    Raw(String),
    /// Not at all, while it keeps the connection open.
    Silence,
}

/// A server on loopback that remembers what it was asked.
pub(crate) struct Server {
    pub(crate) port: u16,
    connections: Arc<AtomicUsize>,
    heads: mpsc::Receiver<String>,
    task: JoinHandle<()>,
}

impl Server {
    pub(crate) async fn start(answer: Answer) -> Self {
        Self::start_with(None, answer).await
    }

    pub(crate) async fn start_with(tls: Option<TlsAcceptor>, answer: Answer) -> Self {
        Self::listen(move |tcp, heads| {
            let (tls, answer) = (tls.clone(), answer.clone());
            async move {
                match tls {
                    None => respond(tcp, answer, heads).await,
                    Some(acceptor) => {
                        match acceptor.accept(tcp).into_fallible().await {
                            Ok(stream) => respond(stream, answer, heads).await,
                            // Read on to the end: closing over unread bytes resets the connection, and a
                            // reset overtakes the alert that the client is to see.
                            Err((_, mut tcp)) => {
                                tcp.shutdown().await.ok();
                                tcp.read_to_end(&mut Vec::new()).await.ok();
                            }
                        }
                    }
                }
            }
        })
        .await
    }

    /// A `CONNECT` proxy that answers with `answer`, and when that is a 200 joins the client to
    /// `backend`, whatever host was asked for.
    pub(crate) async fn connect_proxy(answer: &'static str, backend: u16) -> Self {
        Self::listen(move |mut tcp, heads| async move {
            let Some(head) = read_head(&mut tcp).await else {
                return;
            };
            heads.send(head).await.ok();
            tcp.write_all(answer.as_bytes()).await.ok();
            if answer.contains(" 200 ") {
                relay(tcp, backend).await;
            }
        })
        .await
    }

    /// A SOCKS 5 proxy that wants `user:password`, notes the target's bytes, and joins to `backend`.
    pub(crate) async fn socks_proxy(user: &'static str, password: &'static str, backend: u16) -> Self {
        Self::listen(move |mut tcp, heads| async move {
            let request = socks_handshake(&mut tcp, user, password).await;
            if let Ok(Some(target)) = request {
                heads.send(target).await.ok();
                relay(tcp, backend).await;
            }
        })
        .await
    }

    /// A server that says `text` as soon as someone connects, and hangs up.
    pub(crate) async fn talking(text: &'static str) -> Self {
        Self::listen(move |mut tcp, _| async move {
            tcp.write_all(text.as_bytes()).await.ok();
            tcp.shutdown().await.ok();
        })
        .await
    }

    async fn listen<Serving>(
        serve: impl Fn(TcpStream, mpsc::Sender<String>) -> Serving + Send + 'static,
    ) -> Self
    where
        Serving: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind(("127.0.0.1", 0))
            .await
            .expect("a loopback port");
        let port = listener.local_addr().expect("an address").port();
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&connections);
        let (sender, heads) = mpsc::channel(16);
        let task = tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve(tcp, sender.clone()));
            }
        });
        Self {
            port,
            connections,
            heads,
            task,
        }
    }

    /// How many connections were ever accepted.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// The next thing this server was asked: a request head, or a SOCKS target.
    pub(crate) async fn asked(&mut self) -> String {
        let head = timeout(PATIENCE, self.heads.recv()).await;
        head.expect("a request in time").expect("a running server")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn respond(mut stream: impl Stream, answer: Answer, heads: mpsc::Sender<String>) {
    let Some(head) = read_head(&mut stream).await else {
        return;
    };
    let accept = header(&head, "Sec-WebSocket-Key").map(|key| derive_accept_key(key.as_bytes()));
    heads.send(head).await.ok();
    match answer {
        Answer::Silence => std::future::pending().await,
        Answer::Raw(bytes) => {
            stream.write_all(bytes.as_bytes()).await.ok();
            stream.shutdown().await.ok();
        }
        Answer::Echo(extra) => {
            let accept = accept.expect("an upgrade request has a key");
            let answer = format!(
                "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                 Sec-WebSocket-Accept: {accept}\r\n{extra}\r\n"
            );
            stream
                .write_all(answer.as_bytes())
                .await
                .expect("the client is there");
            let mut socket = WebSocketStream::from_raw_socket(stream, Role::Server, None).await;
            while let Some(Ok(message)) = socket.next().await {
                if message.is_text() && socket.send(message).await.is_err() {
                    break;
                }
            }
        }
    }
}

async fn read_head(stream: &mut (impl Stream + ?Sized)) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    String::from_utf8(head).ok()
}

async fn relay(mut tcp: TcpStream, backend: u16) {
    let mut behind = TcpStream::connect(("127.0.0.1", backend))
        .await
        .expect("the backend");
    copy_bidirectional(&mut tcp, &mut behind).await.ok();
}

async fn socks_handshake(tcp: &mut TcpStream, user: &str, password: &str) -> std::io::Result<Option<String>> {
    let mut greeting = [0; 3];
    tcp.read_exact(&mut greeting).await?;
    assert_eq!(greeting, [5, 1, 2], "one method: user and password");
    tcp.write_all(&[5, 2]).await?;
    assert_eq!(tcp.read_u8().await?, 1);
    let mut given = Vec::new();
    for _ in 0..2 {
        let mut field = vec![0; tcp.read_u8().await?.into()];
        tcp.read_exact(&mut field).await?;
        given.push(field);
    }
    let welcome = given == [user.as_bytes(), password.as_bytes()];
    tcp.write_all(&[1, u8::from(!welcome)]).await?;
    if !welcome {
        return Ok(None);
    }
    let mut request = [0; 4];
    tcp.read_exact(&mut request).await?;
    assert_eq!(request[..3], [5, 1, 0], "a connect");
    let host = match request[3] {
        1 => std::net::Ipv4Addr::from(tcp.read_u32().await?).to_string(),
        kind => {
            assert_eq!(kind, 3, "a name");
            let mut name = vec![0; tcp.read_u8().await?.into()];
            tcp.read_exact(&mut name).await?;
            String::from_utf8_lossy(&name).into_owned()
        }
    };
    let port = tcp.read_u16().await?;
    tcp.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await?;
    Ok(Some(format!("{host}:{port}")))
}

/// The value of a header line, by its exact name.
pub(crate) fn header<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    head.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

/// A dialler with the default trust and no proxy.
pub(crate) fn dialer() -> Dialer {
    dialer_with(&tls::TlsSettings::default(), ProxyRules::none())
}

pub(crate) fn dialer_with(settings: &tls::TlsSettings, proxies: ProxyRules) -> Dialer {
    Dialer::new(
        tls::client_config(settings).expect("TLS settings"),
        proxies,
        PATIENCE,
    )
}

/// A request with no bearer and roomy bounds.
pub(crate) fn request(url: &str) -> DialRequest<'_> {
    DialRequest {
        url,
        bearer: None,
        user_agent: "hermes-relay/test",
        allow_plaintext: false,
        max_message_bytes: 1 << 20,
        max_write_buffer_bytes: 1 << 20,
    }
}

/// Sends a message and waits for its echo.
pub(crate) async fn assert_echoes(dialed: &mut Dialed) {
    dialed
        .socket
        .send(Message::text("hello"))
        .await
        .expect("a live socket");
    let echo = timeout(PATIENCE, dialed.socket.next())
        .await
        .expect("an echo in time");
    assert_eq!(
        echo.expect("an open socket").expect("a message"),
        Message::text("hello")
    );
}
