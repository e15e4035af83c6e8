//! Model servers on this machine: which of the known ones run, and which models they have.

use std::time::Duration;

use serde_json::Value;

use super::Environment;
use super::format::printable;
use super::run::egress;
use crate::net::http::{Body, HttpClient, HttpPolicy, Request};
use crate::net::proxy::ProxyRules;
use crate::net::tls::{Tls, TlsSettings};

/// The known servers and their ports, which are the defaults of those programs.
const KNOWN: [(&str, u16); 3] = [("Ollama", 11434), ("LM Studio", 1234), ("llama.cpp", 8080)];
/// Other ports for tests, in the order of the known servers, with commas.
const PORTS_VARIABLE: &str = "HERMES_RELAY_MODEL_PORTS";
/// Timeout of a look at a server; it is on this machine.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum size of a list of models.
const MAX_BODY: usize = 1 << 20;
/// Maximum models of a server that are offered.
const MAX_MODELS: usize = 50;

/// A server that runs.
pub(super) struct ModelServer {
    pub(super) name: &'static str,
    /// Base URL of its OpenAI-compatible API.
    pub(super) base_url: String,
    pub(super) models: Vec<String>,
}

/// The known servers that run here, each with its models.
pub(super) async fn find(env: Environment<'_>) -> Vec<ModelServer> {
    let ports = ports(env(PORTS_VARIABLE).as_deref());
    let look = async |(name, port): (&'static str, u16)| {
        let base_url = format!("http://127.0.0.1:{port}/v1");
        let models = models_at(&base_url).await.ok()?;
        Some(ModelServer {
            name,
            base_url,
            models,
        })
    };
    let [first, second, third] = ports;
    let (first, second, third) = tokio::join!(look(first), look(second), look(third));
    [first, second, third].into_iter().flatten().collect()
}

fn ports(variable: Option<&str>) -> [(&'static str, u16); 3] {
    let mut known = KNOWN;
    let given = variable.unwrap_or_default().split(',');
    for ((_, port), text) in known.iter_mut().zip(given) {
        *port = text.trim().parse().unwrap_or(*port);
    }
    known
}

/// The known servers, for people: `Ollama (port 11434), ...`.
#[cfg(feature = "dev")]
pub(super) fn known(env: Environment<'_>) -> String {
    let known = ports(env(PORTS_VARIABLE).as_deref());
    let known: Vec<String> = (known.iter())
        .map(|(name, port)| format!("{name} (port {port})"))
        .collect();
    known.join(", ")
}

/// The models of the server with this base URL; else why they are not known.
pub(super) async fn models_at(base_url: &str) -> Result<Vec<String>, String> {
    let policy = HttpPolicy {
        connect_timeout: Some(TIMEOUT),
        timeout: Some(TIMEOUT),
        max_body: MAX_BODY,
        allow_plaintext: true,
        ..HttpPolicy::default()
    };
    let http = HttpClient::new(
        &egress(&Tls::new(TlsSettings::default()), &ProxyRules::none()),
        policy,
    );
    let http = http.map_err(|error| error.to_string())?;
    let url = format!("{}/models", base_url.trim_end_matches('/'));
    let response = http.send(Request::new(&url, Body::Get)).await;
    let response = response.map_err(|error| error.to_string())?;
    if !response.is_success() {
        return Err(format!("{url} answers with HTTP status {}", response.status));
    }
    names_in(&response.body).ok_or_else(|| format!("{url} has no list of models"))
}

/// The names in a list of models, without those that only embed texts.
fn names_in(body: &[u8]) -> Option<Vec<String>> {
    let listed: Value = serde_json::from_slice(body).ok()?;
    let listed = listed.get("data")?.as_array()?;
    let names = listed.iter().filter_map(|model| model.get("id")?.as_str());
    let chats = |name: &&str| !name.contains("embed") && !name.is_empty();
    Some(names.filter(chats).take(MAX_MODELS).map(printable).collect())
}

/// The first server that has a model: `llama3.2` is also `llama3.2:latest`.
pub(super) fn server_of<'s>(servers: &'s [ModelServer], model: &str) -> Option<&'s ModelServer> {
    let latest = format!("{model}:latest");
    let has = |server: &ModelServer, name: &str| server.models.iter().any(|known| known == name);
    servers
        .iter()
        .find(|server| has(server, model) || has(server, &latest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_models_is_read_without_those_that_embed() {
        let body = br#"{"data": [{"id": "llama3.2:latest"}, {"id": "nomic-embed-text"}, {"id": ""}, {}]}"#;
        assert_eq!(names_in(body), Some(vec!["llama3.2:latest".to_owned()]));
        for wrong in [&b"{}"[..], b"[]", b"hello", br#"{"data": 1}"#] {
            assert_eq!(names_in(wrong), None);
        }
        let server = ModelServer {
            name: "Ollama",
            base_url: "http://127.0.0.1:1/v1".to_owned(),
            models: vec!["llama3.2:latest".to_owned()],
        };
        let servers = [server];
        assert!(server_of(&servers, "llama3.2").is_some());
        assert!(server_of(&servers, "llama3").is_none());
    }

    #[test]
    fn ports_are_those_of_the_programs_unless_a_test_says_otherwise() {
        assert_eq!(ports(None), KNOWN);
        assert_eq!(ports(Some("5,,7")).map(|(_, port)| port), [5, KNOWN[1].1, 7]);
    }
}
