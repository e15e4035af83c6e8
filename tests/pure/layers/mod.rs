//! The rules of the source tree: reads the sources and fails on an import from a higher layer, a pure module that does
//! I/O, a crate named outside the module that owns it, an acknowledgement constructed without the journal's receipt,
//! a type name that is defined twice, and a library that reads the environment or exits the process.

mod lexer;
mod names;
mod relay;
mod rules;
mod source;

use std::path::Path;

use rules::{File, LONG};

/// Every source file: its name below `src`, and its text.
fn sources() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path
                    .strip_prefix(&root)
                    .unwrap()
                    .to_str()
                    .unwrap()
                    .replace('\\', "/");
                files.push((name, std::fs::read_to_string(&path).unwrap()));
            }
        }
    }
    files.sort();
    files
}

/// The files that `#[cfg(test)] mod ..;` lines bring in.
fn test_files(files: &[(String, String)]) -> Vec<String> {
    let mut names = Vec::new();
    for (name, text) in files {
        let folder = match name.rsplit_once('/') {
            Some((folder, "mod.rs")) => format!("{folder}/"),
            None if matches!(name.as_str(), "lib.rs" | "main.rs") => String::new(),
            _ => format!("{}/", name.trim_end_matches(".rs")),
        };
        for module in source::test_modules(text) {
            names.push(format!("{folder}{module}.rs"));
            names.push(format!("{folder}{module}/"));
        }
    }
    names
}

/// Every source file, without those that exist only in tests.
fn sources_without_tests() -> Vec<(String, String)> {
    let mut files = sources();
    let only_tests = test_files(&files);
    files.retain(|(name, _)| {
        !only_tests
            .iter()
            .any(|test| name == test || (test.ends_with('/') && name.starts_with(test)))
    });
    files
}

/// Files that write to the terminal themselves, and what escapes text from outside there. All others use
/// `cli::format`, which escapes everything.
const RAW_OUTPUT: &[(&str, &str)] = &[
    ("cli/completions.rs", "nothing from outside"),
    ("cli/dev/line_editor.rs", "nothing from outside"),
    ("cli/dev/screen.rs", "escapes each text"),
    ("cli/doctor/mod.rs", "colours; escapes each text"),
    ("cli/format.rs", "escapes everything"),
    ("cli/help.rs", "nothing from outside"),
    ("cli/log/divert.rs", "log lines: fields are escaped"),
    ("cli/logs/mod.rs", "a copy of a log, escaped on a terminal"),
    ("cli/man.rs", "nothing from outside"),
    ("cli/oracle.rs", "JSON for programs"),
    ("cli/status/mod.rs", "colours; escapes each text"),
    ("cli/status/watch.rs", "a screen of its own; lines are escaped"),
];

#[test]
fn only_known_files_write_to_the_terminal_unescaped() {
    let raw = |line: &str| {
        let code = line.split("//").next().unwrap_or_default();
        let written = [
            "stdout().lock()",
            "io::stdout();",
            "io::stderr();",
            "anstream::stdout",
            "println!(",
            "eprint!(",
        ];
        let is_written = written.iter().any(|call| code.contains(call));
        is_written || (code.contains("io::stderr()") && code.contains("write"))
    };
    let mut found = Vec::new();
    for (name, text) in sources() {
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        if code.lines().any(raw) {
            found.push(name);
        }
    }
    let allowed: Vec<_> = RAW_OUTPUT.iter().map(|(name, _)| *name).collect();
    let others: Vec<_> = found
        .iter()
        .filter(|name| !allowed.contains(&name.as_str()))
        .collect();
    assert!(
        others.is_empty(),
        "write with cli::format, which escapes text from outside: {others:?}"
    );
    assert!(found.len() >= 5, "{found:?}");
}

#[test]
fn the_sources_keep_to_the_rules() {
    let files = sources_without_tests();
    assert!(files.len() > 20, "found only {} sources", files.len());
    let (mut wrong, mut long) = (Vec::new(), Vec::new());
    for (name, text) in &files {
        let file = File::new(name, text);
        long.extend(file.length());
        wrong.extend(file.violations());
    }
    assert!(wrong.is_empty(), "\n{}\n{}\n", wrong.join("\n"), long.join("\n"));
}

fn wrong(name: &str, text: &str) -> Vec<String> {
    File::new(name, text).violations()
}

#[track_caller]
fn fails(name: &str, text: &str, says: &str) {
    let wrong = wrong(name, text);
    assert!(
        wrong.len() == 1 && wrong[0].contains(says),
        "wanted one violation with {says:?}, got {wrong:?}"
    );
}

#[track_caller]
fn passes(name: &str, text: &str) {
    assert_eq!(wrong(name, text), Vec::<String>::new());
}

#[test]
fn an_import_from_a_higher_layer_fails() {
    fails("wire/url.rs", "use crate::net::Socket;", "points up");
    fails("store/mod.rs", "fn f() { crate::config::load() }", "points up");
    fails("store/inbox.rs", "use super::super::relay::Run;", "points up");
    fails("store/mod.rs", "use super::relay::Run;", "points up");
    fails("net/tls.rs", "use hermes_relay::cli::main;", "points up");
    fails(
        "adapter/split.rs",
        "use crate::{wire::LenUnit, store::Journal};",
        "points up",
    );
    fails(
        "link/state.rs",
        "use crate::{wire::{self, Frame}, relay as r};",
        "points up",
    );
    fails(
        "relay/run.rs",
        "mod inner { mod deep { use super::super::super::super::dev::Connector; } }",
        "points up",
    );
    fails(
        "agent/acp/mod.rs",
        "pub(crate) use crate::config::*;",
        "points up",
    );
    fails(
        "wire/frame.rs",
        "macro_rules! m { () => { $crate::store::commit() } }",
        "points up",
    );
}

#[test]
fn an_import_within_a_layer_fails_unless_listed() {
    fails("link/state.rs", "use crate::session::Turn;", "points sideways");
    fails("net/socket.rs", "use crate::agent::Agent;", "points sideways");
    passes("agent/openai.rs", "use crate::net::HttpClient;");
    fails("relay/core.rs", "use crate::serve::Desk;", "points sideways");
    passes("serve/http.rs", "use crate::relay::RelayHandle;");
}

#[test]
fn importing_the_crate_root_fails() {
    fails("wire/url.rs", "use crate::*;", "crate root");
    fails("wire/url.rs", "use crate as all;", "crate root");
    fails("wire/url.rs", "use super::super as all;", "crate root");
    fails("novel/mod.rs", "fn f() {}", "no layer");
}

#[test]
fn imports_from_lower_layers_pass() {
    passes(
        "relay/run.rs",
        "use crate::{config::Settings, link::Link, wire::{self, Frame}, store};",
    );
    passes(
        "wire/url.rs",
        "use super::scalar::Scalar; use crate::wire::token; use self::inner::X;",
    );
    passes(
        "dev/connector.rs",
        "use crate::wire::Frame; use crate::net::answer;",
    );
    passes(
        "main.rs",
        "fn main() { hermes_relay::cli::main(&|name| std::env::var(name).ok()); }",
    );
    passes(
        "net/mod.rs",
        "pub(crate) mod socket; pub(in crate::net) fn f() {}",
    );
}

#[test]
fn comments_literals_and_tests_are_not_code() {
    passes(
        "wire/url.rs",
        r##"
        //! Unlike [`crate::net::Socket`], this is pure.
        /* use crate::net::Socket; /* use crate::store::Journal; */ use tokio::spawn; */
        const A: &str = "use crate::net::Socket; \" std::fs::read";
        const B: &str = r#"crate::net::Socket "quoted" std::fs"#;
        const C: (char, char, u8) = ('"', '\'', b'"');
        fn life<'a>(text: &'a str) -> &'a str { text }
        #[cfg(test)]
        use crate::{net, store};
        #[cfg(test)]
        #[expect(dead_code)]
        fn only_here() { std::fs::read("x"); }
        #[cfg(test)]
        mod tests { use crate::net::Socket; fn f() { if true { std::thread::yield_now(); } } }
        "##,
    );
    passes("wire/fixture.rs", "#![cfg(test)] use crate::net::Socket;");
    fails(
        "wire/url.rs",
        "#[cfg(not(test))] use crate::net::Socket;",
        "points up",
    );
    fails(
        "wire/url.rs",
        "#[cfg(test)] mod tests { } use crate::net::Socket;",
        "points up",
    );
    fails(
        "wire/url.rs",
        "const Q: char = '\"'; use crate::net::Socket; const R: char = '\"';",
        "points up",
    );
    assert_eq!(
        source::test_modules("#[cfg(test)] mod a; mod b; #[cfg(all(test, unix))] mod c;"),
        ["a", "c"]
    );
}

#[test]
fn a_violation_names_file_and_line() {
    let wrong = wrong("wire/url.rs", "//! Text.\n\nuse crate::net::Socket;\n");
    assert_eq!(wrong, ["wire/url.rs:3: crate::net::Socket points up"]);
}

#[test]
fn a_pure_module_that_does_io_fails() {
    for planted in [
        "use tokio::sync::mpsc;",
        "fn f() { tokio::spawn(async {}); }",
        "use tokio_util::sync::CancellationToken;",
        "use std::net::TcpStream;",
        "use std::net; fn f(_: net::UdpSocket) {}",
        "use std::fs;",
        "use std::{fmt, fs::File};",
        "fn f() { std::env::temp_dir(); }",
        "use std::process::Command;",
        "use std::thread;",
        "use std::time::Instant; fn f() { Instant::now(); }",
        "use std::time::SystemTime;",
        "use getrandom::fill;",
        "fn f() { tracing::info!(\"x\"); }",
        "use std::os::unix::net as sockets;",
        "use std as s;",
        "use std::*;",
    ] {
        for module in [
            "wire/a.rs",
            "link/a.rs",
            "session/a.rs",
            "adapter/a/b.rs",
            "cron/schedule.rs",
        ] {
            fails(module, planted, "is not allowed in a pure module");
        }
        assert!(
            !wrong("relay/a.rs", planted)
                .iter()
                .any(|wrong| wrong.contains("pure"))
        );
    }
    for planted in [
        "reqwest::Client",
        "rusqlite::Connection",
        "tungstenite::Message",
        "rustls::ClientConfig",
    ] {
        let wrong = wrong("link/a.rs", &format!("use {planted};"));
        assert!(
            wrong
                .iter()
                .any(|wrong| wrong.contains("is not allowed in a pure module")),
            "{wrong:?}"
        );
    }
    passes(
        "wire/a.rs",
        "use std::net::{IpAddr, SocketAddr}; use std::time::{Duration, Instant}; fn f(now: Instant) {}",
    );
}

#[test]
fn a_crate_outside_its_owner_fails() {
    for (planted, owners) in [
        ("rusqlite::Connection", &["store"][..]),
        ("tokio_tungstenite::WebSocketStream", &["net", "dev"]),
        ("tungstenite::Message", &["net", "dev"]),
        ("hyper::Request", &["net", "dev", "serve"]),
        ("hyper_util::rt::TokioIo", &["net", "dev", "serve"]),
        ("reqwest::Client", &["net"]),
        ("rustls::ClientConfig", &["net"]),
        ("axum::Router", &["dev", "serve"]),
    ] {
        let import = format!("use {planted};");
        for module in ["store", "net", "agent", "config", "relay", "serve", "cli", "dev"] {
            let file = format!("{module}/a.rs");
            if owners.contains(&module) {
                passes(&file, &import);
            } else {
                fails(&file, &import, "belongs to");
                fails(&file, &format!("fn f() {{ {planted}::new(); }}"), "belongs to");
            }
        }
        fails("main.rs", &import, "belongs to");
    }
    fails("net/a.rs", "use rusqlite as db;", "belongs to store");
    fails("net/a.rs", "extern crate rusqlite;", "belongs to store");
    passes("config/yaml.rs", "use serde_saphyr::Options;");
    fails(
        "config/file.rs",
        "use serde_saphyr::Options;",
        "belongs to config::yaml",
    );
    passes("relay/run.rs", "fn f(hyper: bool) -> bool { hyper }");
}

#[test]
fn an_acknowledgement_constructed_elsewhere_fails() {
    let made = "fn f(id: String) -> GatewayFrame { GatewayFrame::InboundAck { buffer_id: id } }";
    fails("relay/run.rs", made, "may construct an acknowledgement");
    fails("session/turns.rs", made, "may construct an acknowledgement");
    fails(
        "session/turns.rs",
        "use crate::wire::GatewayFrame as Out; fn f() { send(Out::InboundAck { buffer_id }) }",
        "may construct an acknowledgement",
    );
    fails(
        "session/turns.rs",
        "use crate::wire::GatewayFrame::*;",
        "under another name",
    );
    fails(
        "session/turns.rs",
        "use crate::wire::GatewayFrame::InboundAck;",
        "under another name",
    );
    for module in ["wire/frame.rs", "link/verbs.rs", "dev/connector.rs"] {
        passes(module, made);
    }
    passes(
        "relay/run.rs",
        "fn f(frame: &GatewayFrame) { match frame { GatewayFrame::InboundAck { buffer_id } => 1,
         GatewayFrame::InboundAck { buffer_id } if x => 2, _ => 3 };
         if let GatewayFrame::InboundAck { buffer_id } = frame {} matches!(frame, GatewayFrame::InboundAck { .. }); }",
    );
    passes(
        "relay/run.rs",
        "#[cfg(test)] mod tests { fn f() { GatewayFrame::InboundAck { buffer_id } } }",
    );
}

#[test]
fn a_long_file_is_listed_and_fails_nothing() {
    let long = "\n".repeat(LONG + 1);
    passes("wire/a.rs", &long);
    let note = File::new("wire/a.rs", &long).length().unwrap();
    assert!(note.contains("wire/a.rs has 701 lines"), "{note}");
    assert_eq!(File::new("wire/a.rs", &"\n".repeat(LONG)).length(), None);
}

#[test]
fn a_library_that_reads_the_environment_or_exits_fails() {
    for planted in [
        "fn f() { std::env::var(\"HOME\"); }",
        "fn f() { for x in std::env::vars() {} }",
        "fn f() { env::var_os(\"HOME\"); }",
        "use std::env::{var};",
    ] {
        fails("cli/mod.rs", planted, "reads the environment");
        passes("main.rs", planted);
    }
    for planted in [
        "fn f() { std::process::exit(1); }",
        "use std::process::{exit, ExitCode};",
    ] {
        fails("cli/mod.rs", planted, "ends the process");
        passes("main.rs", planted);
    }
    passes(
        "cli/mod.rs",
        "const V: &str = env!(\"CARGO_PKG_VERSION\"); use std::process::ExitCode;",
    );
}
