//! Settings of traces.
//!
//! They come from the settings file or the standard OpenTelemetry variables, which override it. Nothing is sent without an
//! endpoint. An invalid variable is a warning and turns traces off; it never keeps the relay from starting.

use std::path::PathBuf;

use secrecy::SecretString;
use url::Url;

use super::layers::{Layers, non_empty};
use super::secret;
use super::settings::hidden;
use super::validate::Violation;
use crate::setting::{own, section};

/// Whether this build can send traces.
pub(super) const BUILT_IN: bool = cfg!(feature = "otlp");

/// Default service name.
const SERVICE: &str = "hermes-relay";
/// Path for traces below the collector's URL.
const TRACES_PATH: &str = "v1/traces";
const OTLP_HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";
const OTLP_TRACES_HEADERS: &str = "OTEL_EXPORTER_OTLP_TRACES_HEADERS";

section! {
    /// Settings of traces.
    pub struct TelemetryConfig {
        /// Collector URL; traces go to `/v1/traces` below it.
        pub otlp_endpoint: Option<String>,
            env(&[own("OTEL_EXPORTER_OTLP_ENDPOINT", "collector URL; traces go to /v1/traces below it")]);
        /// Full URL for traces, used instead of the other.
        pub otlp_traces_endpoint: Option<String>,
            env(&[own("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "full URL for traces")]);
        /// File with the headers, which is read when the settings are loaded.
        #[serde(skip_serializing)]
        pub headers_file: Option<PathBuf>;
        /// Service name.
        pub service_name: String = SERVICE.to_owned(),
            env(&[own("OTEL_SERVICE_NAME", "service name in traces")]);
        /// Fraction of turns that are traced, from 0 to 1.
        pub sample: f64 = 1.0;
    } resolved {
        /// Headers for the collector: `name=value`, separated by commas, percent-encoded.
        #[serde(serialize_with = "hidden")]
        pub headers: Option<SecretString>, env(&[
            own(OTLP_HEADERS, "headers for the collector: name=value, separated by commas, percent-encoded"),
            own(OTLP_TRACES_HEADERS, "the same for traces only; has precedence"),
        ]);
    }
}

impl TelemetryConfig {
    /// The URL for traces; `None` without an endpoint, or if no turn is traced.
    pub fn traces_url(&self) -> Option<String> {
        if self.sample <= 0.0 {
            return None;
        }
        self.otlp_traces_endpoint.clone().or_else(|| {
            let base = self.otlp_endpoint.as_deref()?;
            Some(format!("{}/{TRACES_PATH}", base.trim_end_matches('/')))
        })
    }

    /// The first invalid key and its rule.
    pub(super) fn violation(&self) -> Option<Violation> {
        if !(0.0..=1.0).contains(&self.sample) {
            let rule = format!("must be between 0 and 1, not {}", self.sample);
            return Some(("telemetry.sample", rule));
        }
        let addresses = [
            ("telemetry.otlp_endpoint", &self.otlp_endpoint),
            ("telemetry.otlp_traces_endpoint", &self.otlp_traces_endpoint),
        ];
        addresses.into_iter().find_map(|(key, address)| {
            let address = address.clone().and_then(non_empty)?;
            Some((key, url_error(&address)?))
        })
    }

    /// A warning about a valid file.
    pub(super) fn warning(&self) -> Option<String> {
        let (base, whole) = (&self.otlp_endpoint, &self.otlp_traces_endpoint);
        let is_set = [base, whole]
            .into_iter()
            .flatten()
            .any(|text| !text.trim().is_empty());
        (is_set && self.sample > 0.0 && !BUILT_IN).then(|| not_supported("`telemetry.otlp_endpoint` is set"))
    }
}

/// The warning of a build without traces.
fn not_supported(what: &str) -> String {
    format!(
        "{what}, but this program was built without `otlp` and sends no traces: build it with \
         `cargo build --profile dist --features otlp`, or remove the setting"
    )
}

/// Why a collector URL is invalid. It is not quoted: it may contain a password.
fn url_error(address: &str) -> Option<String> {
    let example = "such as http://127.0.0.1:4318";
    let Ok(url) = Url::parse(address) else {
        return Some(format!("must be an http or https URL, {example}"));
    };
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
        return Some(format!("must be an http or https URL, {example}"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Some("must not contain a user name or password; use `telemetry.headers_file`".to_owned());
    }
    (url.query().is_some() || url.fragment().is_some()).then(|| format!("must have no `?` or `#`, {example}"))
}

impl Layers<'_> {
    pub(super) fn telemetry(&mut self, telemetry: &mut TelemetryConfig) {
        const NAME: &str = "telemetry.service_name";
        for (key, address) in [
            ("telemetry.otlp_endpoint", &mut telemetry.otlp_endpoint),
            (
                "telemetry.otlp_traces_endpoint",
                &mut telemetry.otlp_traces_endpoint,
            ),
        ] {
            *address = self.collector(key, address.as_ref());
        }
        let name = &mut telemetry.service_name;
        if let Some((variable, origin)) = self.lookup(NAME, None) {
            *name = self.record(NAME, origin, variable);
        } else if name.trim().is_empty() {
            SERVICE.clone_into(name);
        }
        self.headers(telemetry);
        if !BUILT_IN && telemetry.traces_url().is_some() {
            let key = match telemetry.otlp_traces_endpoint {
                Some(_) => "telemetry.otlp_traces_endpoint",
                None => "telemetry.otlp_endpoint",
            };
            let what = format!("`{key}` is set ({})", self.origins.of(key));
            self.warnings.push(not_supported(&what));
        }
    }

    /// A collector URL. The file's was checked when it was parsed; the environment's is checked here.
    fn collector(&mut self, key: &str, own: Option<&String>) -> Option<String> {
        let (address, origin) = self.lookup(key, own)?;
        if let Some(rule) = url_error(&address) {
            self.warnings
                .push(format!("`{key}` from {origin} {rule}; ignored"));
            return None;
        }
        Some(self.record(key, origin, address))
    }

    /// The collector's headers. A file is read only if traces are sent; an unreadable one turns traces off.
    fn headers(&mut self, telemetry: &mut TelemetryConfig) {
        const KEY: &str = "telemetry.headers";
        let headers = self.in_process(OTLP_TRACES_HEADERS);
        if let Some((value, origin)) = headers.or_else(|| self.in_process(OTLP_HEADERS)) {
            telemetry.headers = Some(self.record(KEY, origin, value.into()));
            return;
        }
        if !BUILT_IN || telemetry.traces_url().is_none() {
            return;
        }
        let Some((path, origin)) = self.path_in_own(telemetry.headers_file.as_deref()) else {
            return;
        };
        match secret::read(&path) {
            Ok(value) => telemetry.headers = Some(self.record(KEY, origin, value)),
            Err(error) => {
                (telemetry.otlp_endpoint, telemetry.otlp_traces_endpoint) = (None, None);
                self.warnings.push(format!(
                    "traces are off because `telemetry.headers_file` cannot be used: {error}"
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::super::test_home::TestHome;
    use super::*;

    #[test]
    fn variables_override_the_file() {
        let home = TestHome::new().file(
            "relay.yaml",
            "telemetry: {otlp_endpoint: \"http://127.0.0.1:4318/\", sample: 0.25, headers_file: keys}",
        );
        let home = home.file("keys", "x-key=hunter2\n");
        let loaded = home.load();
        let telemetry = &loaded.settings.telemetry;
        assert_eq!(
            telemetry.traces_url().as_deref(),
            Some("http://127.0.0.1:4318/v1/traces")
        );
        let headers = telemetry.headers.as_ref().map(SecretString::expose_secret);
        assert_eq!(headers, BUILT_IN.then_some("x-key=hunter2"), "read only if sent");
        assert_eq!(
            (telemetry.service_name.as_str(), telemetry.sample),
            ("hermes-relay", 0.25)
        );
        assert_eq!(BUILT_IN, loaded.warnings.is_empty(), "{:?}", loaded.warnings);

        let home = home
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", "https://c.example:4318/otlp")
            .env("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20hunter3")
            .env("OTEL_SERVICE_NAME", "kitchen");
        let loaded = home.load();
        let telemetry = &loaded.settings.telemetry;
        assert_eq!(
            telemetry.traces_url().as_deref(),
            Some("https://c.example:4318/otlp/v1/traces")
        );
        assert_eq!(telemetry.service_name, "kitchen");
        let shown = format!("{:?} {:?}", loaded.describe(), loaded);
        assert!(shown.contains("Env(\"OTEL_EXPORTER_OTLP_HEADERS\")"), "{shown}");
        assert!(!shown.contains("hunter"), "{shown}");

        let home = home.env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://t.example/in");
        let telemetry = home.load().settings.telemetry;
        assert_eq!(telemetry.traces_url().as_deref(), Some("https://t.example/in"));
    }

    #[test]
    fn traces_are_off_by_default() {
        assert_eq!(TestHome::new().load().settings.telemetry.traces_url(), None);
        let none = "telemetry: {otlp_endpoint: \"http://127.0.0.1:4318\", sample: 0}";
        let loaded = TestHome::new().file("relay.yaml", none).load();
        assert_eq!(loaded.settings.telemetry.traces_url(), None);
        assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
    }

    #[test]
    fn an_invalid_url_is_an_error_in_a_file_and_a_warning_in_the_environment() {
        for wrong in [
            "collector:4318",
            "grpc://c:4317",
            "http://me:hunter2@c",
            "http://c/?key=hunter2",
        ] {
            let file = format!("telemetry: {{otlp_endpoint: \"{wrong}\"}}");
            let error = TestHome::new()
                .file("relay.yaml", &file)
                .try_load()
                .unwrap_err()
                .to_string();
            assert!(error.contains("`telemetry.otlp_endpoint` must"), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
            let loaded = TestHome::new().env("OTEL_EXPORTER_OTLP_ENDPOINT", wrong).load();
            assert_eq!(loaded.settings.telemetry.traces_url(), None, "{wrong}");
            let warnings = loaded.warnings.concat();
            assert!(
                warnings.contains("OTEL_EXPORTER_OTLP_ENDPOINT must"),
                "{warnings}"
            );
            assert!(!warnings.contains("hunter2"), "{warnings}");
        }
        for wrong in ["1.5", "-0.1", ".nan"] {
            let file = format!("telemetry: {{sample: {wrong}}}");
            let error = TestHome::new()
                .file("relay.yaml", &file)
                .try_load()
                .unwrap_err()
                .to_string();
            assert!(
                error.contains("`telemetry.sample` must be between 0 and 1"),
                "{error}"
            );
        }
    }

    #[test]
    fn unreadable_headers_turn_traces_off() {
        let missing = "telemetry: {otlp_endpoint: \"http://127.0.0.1:4318\", headers_file: missing}";
        let loaded = TestHome::new().file("relay.yaml", missing).load();
        let telemetry = &loaded.settings.telemetry;
        assert!(telemetry.headers.is_none());
        assert_eq!(
            BUILT_IN,
            telemetry.traces_url().is_none(),
            "never without its headers"
        );
        let warnings = loaded.warnings.concat();
        assert_eq!(
            BUILT_IN,
            warnings.contains("`telemetry.headers_file` cannot be used"),
            "{warnings}"
        );
        // Nothing is sent, so nothing is read.
        let unused = TestHome::new().file("relay.yaml", "telemetry: {headers_file: missing}");
        assert!(unused.load().warnings.is_empty());
    }

    #[cfg(not(feature = "otlp"))]
    #[test]
    fn a_build_without_traces_warns() {
        let loaded = TestHome::new()
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
            .load();
        let warnings = loaded.warnings.concat();
        for part in [
            "OTEL_EXPORTER_OTLP_ENDPOINT",
            "built without `otlp`",
            "--features otlp",
        ] {
            assert!(warnings.contains(part), "{warnings}");
        }
    }
}
