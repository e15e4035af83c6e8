//! The rules: which module may name what. Each takes one file and returns its violations.

use crate::layers::lexer::{Kind, Token};
use crate::layers::source::{self, Path, bracketed};

/// The layers, lowest first. A module imports from lower layers, and from its own layer only by [`SIDEWAYS`].
const LAYERS: &[&[&str]] = &[
    &["collections", "backoff", "setting", "text", "words"],
    &["wire"],
    &[
        "link", "session", "cluster", "adapter", "access", "direct", "skill", "data",
    ],
    &["store", "net", "agent", "cron", "agent_connector"],
    &["config"],
    &["relay", "serve"],
    &["cli", "dev"],
];

/// Imports allowed within a layer: from, to, and why.
const SIDEWAYS: &[(&str, &str, &str)] = &[
    ("agent", "net", "backends behind HTTP use the one HTTP client"),
    (
        "cron",
        "net",
        "the managed scheduler is reached through the one HTTP client",
    ),
    (
        "agent_connector",
        "net",
        "webhooks are sent through the one HTTP client",
    ),
    (
        "agent_connector",
        "agent",
        "programs run under the one process supervision",
    ),
    (
        "store",
        "cron",
        "the journal stores jobs, and claims are decided where they are stored",
    ),
    (
        "serve",
        "relay",
        "it queries the running relay for people and monitors",
    ),
    ("cli", "dev", "the dev verb starts the embedded connector"),
];

/// Modules without I/O and clock: the same input gives the same output.
const PURE: &[&str] = &[
    "collections",
    "backoff",
    "setting",
    "text",
    "words",
    "wire",
    "link",
    "session",
    "cluster",
    "adapter",
    "access",
    "direct",
    "skill::body",
    "skill::error",
    "skill::types",
    "data::error",
    "data::types",
    "cron::chronos",
    "cron::fire_token",
    "cron::jwks",
    "cron::schedule",
    "cron::job",
    "cron::jobs_file",
    "cron::delivery",
    "cron::claim",
    "cron::owner",
    "agent_connector::contract",
];

/// Crates and modules that do I/O: no pure module names them.
const IO: &[&str] = &[
    "tokio",
    "tokio_util",
    "tokio_rustls",
    "tokio_tungstenite",
    "tungstenite",
    "reqwest",
    "hyper",
    "hyper_util",
    "axum",
    "rusqlite",
    "rustls",
    "rustls_platform_verifier",
    "rustix",
    "tempfile",
    "getrandom",
    "tracing",
    "tracing_subscriber",
    "std::fs",
    "std::env",
    "std::process",
    "std::thread",
    "std::os",
    "std::io::stdin",
    "std::io::stdout",
    "std::io::stderr",
];

/// Names of types that do I/O or read a clock, however they were imported.
const IO_NAMES: &[&str] = &[
    "SystemTime",
    "TcpStream",
    "TcpListener",
    "UdpSocket",
    "UnixStream",
    "UnixListener",
    "UnixDatagram",
    "ToSocketAddrs",
];

/// Crates with owners: the crate, and the only modules that may name it.
const OWNED: &[(&str, &[&str])] = &[
    ("rusqlite", &["store"]),
    ("tungstenite", &["net", "dev"]),
    ("tokio_tungstenite", &["net", "dev"]),
    ("hyper", &["net", "dev", "serve"]),
    ("hyper_util", &["net", "dev", "serve"]),
    ("reqwest", &["net"]),
    ("rustls", &["net"]),
    ("tokio_rustls", &["net"]),
    ("rustls_platform_verifier", &["net"]),
    ("webpki_root_certs", &["net"]),
    ("async_nats", &["net"]),
    ("axum", &["dev", "serve"]),
    ("jsonwebtoken", &["cron", "dev"]),
    ("aws_lc_rs", &["dev"]),
    ("serde_saphyr", &["config::yaml"]),
];

/// Modules that may construct an acknowledgement: the frame's own module, the link, which asks for the journal's
/// receipt, the embedded connector, which only decodes them, and the conformance run, whose message nobody waits for.
const ACKNOWLEDGERS: &[&str] = &["wire", "link", "dev", "cli::conformance"];

/// A file is as long as one idea needs; look twice above 500 lines. Above this, the failure text lists it.
pub(crate) const LONG: usize = 700;

/// One source file.
pub(crate) struct File {
    /// Relative to `src`, with forward slashes.
    name: String,
    module: Vec<String>,
    tokens: Vec<Token>,
    paths: Vec<Path>,
    lines: usize,
}

impl File {
    /// Reads `source`, the file `name` below `src`.
    pub(crate) fn new(name: &str, source: &str) -> Self {
        let module = module_of(name);
        let tokens = source::code(source);
        Self {
            name: name.to_owned(),
            paths: source::paths(&tokens, &module),
            module,
            tokens,
            lines: source.lines().count(),
        }
    }

    /// All violations, one line each.
    pub(crate) fn violations(&self) -> Vec<String> {
        [
            self.imports(),
            self.purity(),
            self.ownership(),
            self.acknowledgements(),
            self.process(),
        ]
        .concat()
    }

    /// Imports point to lower layers only.
    pub(crate) fn imports(&self) -> Vec<String> {
        let Some(own) = self.module.first() else {
            return Vec::new();
        };
        let Some(own_layer) = layer_of(own) else {
            return vec![format!(
                "{}: the module {own} is in no layer: add it to LAYERS",
                self.name
            )];
        };
        let mut wrong = Vec::new();
        for path in &self.paths {
            let whole_crate = match path.segments.as_slice() {
                [root] => (root == "crate" || root == "hermes_relay") && path.import,
                [root, first, ..] => root == "crate" && first == "*",
                [] => false,
            };
            if whole_crate {
                wrong.push(self.at(path, "imports the crate root, which hides what is used"));
            }
            let [root, to, ..] = path.segments.as_slice() else {
                continue;
            };
            let Some(their_layer) = layer_of(to).filter(|_| root == "crate" && to != own) else {
                continue;
            };
            let listed = SIDEWAYS.iter().any(|(a, b, _)| a == own && b == to);
            if their_layer > own_layer {
                wrong.push(self.at(path, "points up"));
            } else if their_layer == own_layer && !listed {
                wrong.push(self.at(path, "points sideways and is not in SIDEWAYS"));
            }
        }
        wrong
    }

    /// A pure module names nothing that does I/O or reads a clock.
    pub(crate) fn purity(&self) -> Vec<String> {
        if !PURE.iter().any(|pure| self.is_in(pure)) {
            return Vec::new();
        }
        let mut wrong = Vec::new();
        for path in &self.paths {
            let hidden =
                path.segments == ["std", "*"] || (path.segments == ["std"] && path.renamed.is_some());
            let does_io = IO.iter().any(|name| path.starts_with(name))
                || IO_NAMES
                    .iter()
                    .any(|name| path.segments.iter().any(|segment| segment == name))
                || path.has_pair("Instant", "now");
            if hidden || does_io {
                wrong.push(self.at(path, "is not allowed in a pure module"));
            }
        }
        wrong
    }

    /// A crate with owners is named nowhere else.
    pub(crate) fn ownership(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for path in &self.paths {
            for (name, owners) in OWNED {
                // A lone word is a local name unless it is imported.
                let named = path.starts_with(name) && (path.segments.len() > 1 || path.import);
                if named && !owners.iter().any(|owner| self.is_in(owner)) {
                    wrong.push(self.at(path, &format!("belongs to {}", owners.join(" and "))));
                }
            }
        }
        wrong
    }

    /// An acknowledgement is constructed only by [`ACKNOWLEDGERS`].
    pub(crate) fn acknowledgements(&self) -> Vec<String> {
        if ACKNOWLEDGERS.iter().any(|module| self.is_in(module)) {
            return Vec::new();
        }
        let mut names = vec!["GatewayFrame"];
        let mut wrong = Vec::new();
        for path in &self.paths {
            let last = path.segments.last().map(String::as_str);
            match &path.renamed {
                Some(name) if last == Some("GatewayFrame") => names.push(name),
                _ => {}
            }
            if path.has_pair("GatewayFrame", "*")
                || (path.import && path.has_pair("GatewayFrame", "InboundAck"))
            {
                wrong.push(self.at(path, "imports acknowledgements under another name"));
            }
        }
        for (at, token) in self.tokens.iter().enumerate() {
            let qualified = at >= 2
                && self.tokens[at - 1].kind == Kind::PathSep
                && names.iter().any(|name| self.tokens[at - 2].is_word(name));
            let filled = self.tokens.get(at + 1).is_some_and(|next| next.is_mark('{'));
            if token.is_word("InboundAck") && qualified && filled && !is_pattern(&self.tokens, at) {
                wrong.push(format!(
                    "{}:{}: only {} may construct an acknowledgement",
                    self.name,
                    token.line,
                    ACKNOWLEDGERS.join(", ")
                ));
            }
        }
        wrong
    }

    /// A note about a file that may hold more than one idea. It fails nothing.
    pub(crate) fn length(&self) -> Option<String> {
        (self.lines > LONG).then(|| format!("look twice: {} has {} lines", self.name, self.lines))
    }

    /// Only the binary reads the process environment and ends the process.
    pub(crate) fn process(&self) -> Vec<String> {
        const ENV: &[&str] = &["var", "vars", "var_os", "vars_os", "set_var", "remove_var", "*"];
        const END: &[&str] = &["exit", "abort", "*"];
        if self.name == "main.rs" {
            return Vec::new();
        }
        let mut wrong = Vec::new();
        for path in &self.paths {
            if ENV.iter().any(|name| path.has_pair("env", name)) {
                wrong.push(self.at(path, "only main.rs reads the environment"));
            }
            if END.iter().any(|name| path.has_pair("process", name)) {
                wrong.push(self.at(path, "only main.rs ends the process"));
            }
        }
        wrong
    }

    /// The room of `relay` that the file belongs to, and those that it imports from. A part is a room of its own:
    /// `parts::turns`.
    pub(crate) fn relay_imports(&self) -> Option<(String, Vec<String>)> {
        fn room(path: &[String]) -> Option<String> {
            match path {
                [folder, part, ..] if folder == "parts" => Some(format!("parts::{part}")),
                [room, ..] => Some(room.clone()),
                [] => None,
            }
        }
        let (relay, own) = self.module.split_first()?;
        let own = room(own)?;
        let imports = self
            .paths
            .iter()
            .filter_map(|path| match path.segments.as_slice() {
                [root, module, to @ .., _] if root == "crate" && module == "relay" => room(to),
                _ => None,
            });
        let others = imports.filter(|to| *to != own).collect();
        (relay == "relay").then_some((own, others))
    }

    /// Whether the file is the module, or below it.
    fn is_in(&self, module: &str) -> bool {
        let mut own = self.module.iter();
        module
            .split("::")
            .all(|want| own.next().is_some_and(|own| own == want))
    }

    fn at(&self, path: &Path, why: &str) -> String {
        format!("{}:{}: {} {why}", self.name, path.line, path.shown())
    }
}

fn layer_of(module: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&module))
}

/// The module that a file is: `wire/url.rs` is `wire::url`, `net/mod.rs` is `net`, the roots are none.
fn module_of(name: &str) -> Vec<String> {
    let name = name.strip_suffix(".rs").unwrap_or(name);
    let mut module: Vec<String> = name.split('/').map(str::to_owned).collect();
    if matches!(module.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        module.pop();
    }
    module
}

/// Whether the variant at `at` is matched on rather than made.
fn is_pattern(tokens: &[Token], at: usize) -> bool {
    let after = bracketed(tokens, at + 1, '{', '}').unwrap_or(at + 1);
    let has_rest = after >= at + 4 && tokens[after - 3].is_mark('.') && tokens[after - 2].is_mark('.');
    let mut follows = tokens[after..].iter();
    let arm = match (follows.next(), follows.next()) {
        (Some(first), second) => {
            first.is_word("if")
                || first.is_mark('|')
                || (first.is_mark('=') && second.is_none_or(|second| !second.is_mark('=')))
        }
        (None, _) => false,
    };
    has_rest || arm
}
