//! Traces: where they go, how many of them, and under which name.
//!
//! Our own file says it, or the variables that every OpenTelemetry program knows, which beat it. Nothing is sent unless
//! an address is given. A word in the environment that cannot be used is a warning and switches traces off; it never
//! keeps the relay from starting.

use std::path::PathBuf;

use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use url::Url;

use super::layers::{Answer, Layers, filled};
use super::settings::hidden;
use super::{Origin, env, secret};

/// Whether this program can send traces at all.
pub(super) const BUILT_IN: bool = cfg!(feature = "otlp");

/// What traces are sent under when nothing says otherwise.
const SERVICE: &str = "hermes-relay";
/// Where a collector takes traces, below its own address.
const TRACES_PATH: &str = "v1/traces";

/// The `telemetry` section; what it means is [`Telemetry`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TelemetryFile {
    /// The collector's address.
    pub otlp_endpoint: Option<String>,
    /// The whole address for traces.
    pub otlp_traces_endpoint: Option<String>,
    /// The file that holds the headers for the collector.
    pub headers_file: Option<PathBuf>,
    /// The name that traces are sent under.
    pub service_name: String,
    /// The part of all turns that is traced, from 0 to 1.
    pub sample: f64,
}

impl Default for TelemetryFile {
    fn default() -> Self {
        Self {
            otlp_endpoint: None,
            otlp_traces_endpoint: None,
            headers_file: None,
            service_name: SERVICE.to_owned(),
            sample: 1.0,
        }
    }
}

/// Where traces go, and how many of them.
#[derive(Debug, Clone, Serialize)]
pub struct Telemetry {
    /// The collector's address; traces go to `/v1/traces` below it.
    pub otlp_endpoint: Option<String>,
    /// The whole address for traces, used as it stands and before the other.
    pub otlp_traces_endpoint: Option<String>,
    /// `name=value`, separated by commas, percent-encoded: what the collector wants to see with every request.
    #[serde(serialize_with = "hidden")]
    pub headers: Option<SecretString>,
    /// The name that traces are sent under.
    pub service_name: String,
    /// The part of all turns that is traced, from 0 to 1.
    pub sample: f64,
}

impl Default for Telemetry {
    fn default() -> Self {
        let TelemetryFile {
            service_name, sample, ..
        } = TelemetryFile::default();
        Self {
            otlp_endpoint: None,
            otlp_traces_endpoint: None,
            headers: None,
            service_name,
            sample,
        }
    }
}

impl Telemetry {
    /// Where traces go; nowhere when no address is given or no turn is to be traced.
    pub fn traces_url(&self) -> Option<String> {
        if self.sample <= 0.0 {
            return None;
        }
        self.otlp_traces_endpoint.clone().or_else(|| {
            let base = self.otlp_endpoint.as_deref()?;
            Some(format!("{}/{TRACES_PATH}", base.trim_end_matches('/')))
        })
    }
}

impl TelemetryFile {
    /// The first key whose value cannot be used, and what it must be.
    pub(super) fn broken(&self) -> Option<(&'static str, String)> {
        if !(0.0..=1.0).contains(&self.sample) {
            let rule = format!("must be between 0 and 1, not {}", self.sample);
            return Some(("telemetry.sample", rule));
        }
        let addresses = [
            ("telemetry.otlp_endpoint", &self.otlp_endpoint),
            ("telemetry.otlp_traces_endpoint", &self.otlp_traces_endpoint),
        ];
        addresses.into_iter().find_map(|(key, address)| {
            let address = address.clone().and_then(filled)?;
            Some((key, unusable(&address)?))
        })
    }

    /// What someone should look at in a file that is sound.
    pub(super) fn warning(&self) -> Option<String> {
        let (base, whole) = (&self.otlp_endpoint, &self.otlp_traces_endpoint);
        let asked = [base, whole]
            .into_iter()
            .flatten()
            .any(|text| !text.trim().is_empty());
        (asked && self.sample > 0.0 && !BUILT_IN).then(|| missing("`telemetry.otlp_endpoint` is set"))
    }
}

/// What to do about a program that cannot send traces and is told to.
fn missing(what: &str) -> String {
    format!(
        "{what}, but this program was built without `otlp` and sends no traces: build it with \
         `cargo build --release --features otlp`, or take the setting away"
    )
}

/// What is wrong with a collector's address. It is not quoted: it may hold a password.
fn unusable(address: &str) -> Option<String> {
    let example = "such as http://127.0.0.1:4318";
    let Ok(url) = Url::parse(address) else {
        return Some(format!("must be an address with http or https, {example}"));
    };
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
        return Some(format!("must be an address with http or https, {example}"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Some("must not hold a user name or password; use `telemetry.headers_file`".to_owned());
    }
    (url.query().is_some() || url.fragment().is_some()).then(|| format!("must have no `?` or `#`, {example}"))
}

impl Layers<'_> {
    pub(super) fn telemetry(&mut self) -> Telemetry {
        let own = self.tree().telemetry;
        let otlp_endpoint = self.collector(
            "telemetry.otlp_endpoint",
            env::OTLP_ENDPOINT,
            own.otlp_endpoint.as_ref(),
        );
        let otlp_traces_endpoint = self.collector(
            "telemetry.otlp_traces_endpoint",
            env::OTLP_TRACES_ENDPOINT,
            own.otlp_traces_endpoint.as_ref(),
        );
        let mut service_name = own.service_name;
        if let Some((name, origin)) = self.in_process(env::OTEL_SERVICE_NAME) {
            service_name = self.noted("telemetry.service_name", origin, name);
        }
        let mut telemetry = Telemetry {
            otlp_endpoint,
            otlp_traces_endpoint,
            headers: None,
            service_name: filled(service_name).unwrap_or_else(|| SERVICE.to_owned()),
            sample: own.sample,
        };
        self.headers(&mut telemetry, own.headers_file);
        if !BUILT_IN && telemetry.traces_url().is_some() {
            let key = match telemetry.otlp_traces_endpoint {
                Some(_) => "telemetry.otlp_traces_endpoint",
                None => "telemetry.otlp_endpoint",
            };
            let what = format!("`{key}` is set ({})", self.origins.of(key));
            self.warnings.push(missing(&what));
        }
        telemetry
    }

    /// A collector's address. Our file's was looked at when it was read; the environment's is looked at here.
    fn collector(&mut self, key: &str, name: &str, own: Option<&String>) -> Option<String> {
        let answer: Option<Answer> = self.in_process(name).or_else(|| self.in_own(own));
        let (address, origin) = answer?;
        if let Some(rule) = unusable(&address) {
            self.warnings
                .push(format!("`{key}` from {origin} {rule}; it is left out"));
            return None;
        }
        Some(self.noted(key, origin, address))
    }

    /// What the collector wants to see. A file is read only by a program that sends something; one that cannot be read
    /// leaves traces out and stops nothing.
    fn headers(&mut self, telemetry: &mut Telemetry, own: Option<PathBuf>) {
        const KEY: &str = "telemetry.headers";
        let named = self.in_process(env::OTLP_TRACES_HEADERS);
        if let Some((value, origin)) = named.or_else(|| self.in_process(env::OTLP_HEADERS)) {
            telemetry.headers = Some(self.noted(KEY, origin, value.into()));
            return;
        }
        let wanted = BUILT_IN && telemetry.traces_url().is_some();
        let Some((path, file)) = own
            .filter(|path| wanted && !path.as_os_str().is_empty())
            .zip(self.own.as_ref())
        else {
            return;
        };
        let origin = Origin::OwnFile(file.path.clone());
        match secret::read(&self.anchored(&path)) {
            Ok(value) => telemetry.headers = Some(self.noted(KEY, origin, value)),
            Err(error) => {
                (telemetry.otlp_endpoint, telemetry.otlp_traces_endpoint) = (None, None);
                self.warnings.push(format!(
                    "no traces are sent, because `telemetry.headers_file` cannot be used: {error}"
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::super::stage::Stage;
    use super::*;

    #[test]
    fn the_file_says_where_and_the_variables_of_every_such_program_beat_it() {
        let stage = Stage::new().file(
            "relay.yaml",
            "telemetry: {otlp_endpoint: \"http://127.0.0.1:4318/\", sample: 0.25, headers_file: keys}",
        );
        let stage = stage.file("keys", "x-key=hunter2\n");
        let loaded = stage.load();
        let told = &loaded.settings.telemetry;
        assert_eq!(
            told.traces_url().as_deref(),
            Some("http://127.0.0.1:4318/v1/traces")
        );
        let headers = told.headers.as_ref().map(SecretString::expose_secret);
        assert_eq!(
            headers,
            BUILT_IN.then_some("x-key=hunter2"),
            "read where it is sent"
        );
        assert_eq!((told.service_name.as_str(), told.sample), ("hermes-relay", 0.25));
        assert_eq!(BUILT_IN, loaded.warnings.is_empty(), "{:?}", loaded.warnings);

        let stage = stage
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", "https://c.example:4318/otlp")
            .env("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20hunter3")
            .env("OTEL_SERVICE_NAME", "kitchen");
        let loaded = stage.load();
        let told = &loaded.settings.telemetry;
        assert_eq!(
            told.traces_url().as_deref(),
            Some("https://c.example:4318/otlp/v1/traces")
        );
        assert_eq!(told.service_name, "kitchen");
        let shown = format!("{:?} {:?}", loaded.describe(), loaded);
        assert!(shown.contains("Env(\"OTEL_EXPORTER_OTLP_HEADERS\")"), "{shown}");
        assert!(!shown.contains("hunter"), "{shown}");

        let stage = stage.env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://t.example/in");
        let told = stage.load().settings.telemetry;
        assert_eq!(told.traces_url().as_deref(), Some("https://t.example/in"));
    }

    #[test]
    fn nothing_goes_anywhere_unless_it_is_told_where_and_how_much() {
        assert_eq!(Stage::new().load().settings.telemetry.traces_url(), None);
        let none = "telemetry: {otlp_endpoint: \"http://127.0.0.1:4318\", sample: 0}";
        let loaded = Stage::new().file("relay.yaml", none).load();
        assert_eq!(loaded.settings.telemetry.traces_url(), None);
        assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
    }

    #[test]
    fn an_address_that_cannot_be_used_stops_a_file_and_only_warns_in_the_environment() {
        for wrong in [
            "collector:4318",
            "grpc://c:4317",
            "http://me:hunter2@c",
            "http://c/?key=hunter2",
        ] {
            let file = format!("telemetry: {{otlp_endpoint: \"{wrong}\"}}");
            let said = Stage::new()
                .file("relay.yaml", &file)
                .try_load()
                .unwrap_err()
                .to_string();
            assert!(said.contains("`telemetry.otlp_endpoint` must"), "{said}");
            assert!(!said.contains("hunter2"), "{said}");
            let loaded = Stage::new().env("OTEL_EXPORTER_OTLP_ENDPOINT", wrong).load();
            assert_eq!(loaded.settings.telemetry.traces_url(), None, "{wrong}");
            let warned = loaded.warnings.concat();
            assert!(warned.contains("OTEL_EXPORTER_OTLP_ENDPOINT must"), "{warned}");
            assert!(!warned.contains("hunter2"), "{warned}");
        }
        for wrong in ["1.5", "-0.1", ".nan"] {
            let file = format!("telemetry: {{sample: {wrong}}}");
            let said = Stage::new()
                .file("relay.yaml", &file)
                .try_load()
                .unwrap_err()
                .to_string();
            assert!(
                said.contains("`telemetry.sample` must be between 0 and 1"),
                "{said}"
            );
        }
    }

    #[test]
    fn headers_that_cannot_be_read_stop_nothing_but_traces() {
        let missing = "telemetry: {otlp_endpoint: \"http://127.0.0.1:4318\", headers_file: missing}";
        let loaded = Stage::new().file("relay.yaml", missing).load();
        let told = &loaded.settings.telemetry;
        assert!(told.headers.is_none());
        assert_eq!(
            BUILT_IN,
            told.traces_url().is_none(),
            "never without what it is to show"
        );
        let warned = loaded.warnings.concat();
        assert_eq!(
            BUILT_IN,
            warned.contains("`telemetry.headers_file` cannot be used"),
            "{warned}"
        );
        // Nothing is sent, so nothing is read.
        let unused = Stage::new().file("relay.yaml", "telemetry: {headers_file: missing}");
        assert!(unused.load().warnings.is_empty());
    }

    #[cfg(not(feature = "otlp"))]
    #[test]
    fn a_program_without_traces_says_so_when_it_is_told_to_send_them() {
        let loaded = Stage::new()
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
            .load();
        let warned = loaded.warnings.concat();
        for part in [
            "OTEL_EXPORTER_OTLP_ENDPOINT",
            "built without `otlp`",
            "--features otlp",
        ] {
            assert!(warned.contains(part), "{warned}");
        }
    }
}
