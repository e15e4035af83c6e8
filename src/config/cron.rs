//! The `cron` section: who starts jobs and when, with the reference's names, also from Hermes' `config.yaml`.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, de};
use url::{Host, Url};

use super::Origin;
use super::layers::{Layers, Sourced, non_empty};
use super::machine_zone;
use super::sections::{UnknownChoice, choice, listen_address};
use super::settings::Settings;
use super::validate::Violation;
use crate::cron::schedule;
use crate::setting::{MAX_SECS, null_is_default, section, shared};
use crate::wire::Platform;

/// The portal of the managed scheduler, unless another one is set.
pub const PORTAL_URL: &str = "https://portal.nousresearch.com";

choice!(
    /// What starts jobs.
    CronProvider {
        /// The managed scheduler, where it is set up; else the relay's own timer.
        Chronos = "chronos",
        /// The relay's own timer.
        #[default]
        Builtin = "builtin",
        /// Nothing: jobs are kept and not started.
        Off = "off",
    }
);

section! {
    /// Scheduled jobs.
    #[derive(PartialEq, Eq)]
    pub struct CronConfig {
        /// What starts jobs.
        #[serde(deserialize_with = "provider")]
        pub provider: CronProvider;
        /// Address of a listener of its own for fires; off if unset.
        pub listen: Option<String>;
        /// Time zone of schedules, as an IANA name. Unset it is UTC; for the program, the machine's (`TZ`, then `/etc/localtime`).
        pub timezone: Option<String>,
            env(&[shared("HERMES_TIMEZONE", "time zone of schedules, such as Europe/Berlin")]), hermes("timezone");
        /// How late a job may be before the relay starts it itself although the managed scheduler should have; 0 for never.
        pub misfire_grace_minutes: u64 = 10, range(0..=1 << 20);
        /// Maximum jobs that run concurrently; further ones wait.
        pub max_parallel_jobs: usize = 8, range(1..=1 << 10);
        /// Saved outputs per job; the oldest are deleted. 0 keeps all.
        pub output_retention: usize = 50, range(0..=1 << 20);
        /// Maximum size of all saved outputs; the oldest are deleted.
        pub output_bytes: u64 = 268_435_456, range(1 << 16..=1 << 50);
        /// Put the job's name above a result and its id below it.
        pub wrap_response: bool = true;
        /// Maximum time of a run, unless the job has its own.
        pub job_timeout_secs: u64 = 3_600, range(1..=MAX_SECS);
        /// The chat that a platform's name alone means as a target: `chat` or `chat:thread` by platform.
        #[serde(deserialize_with = "null_is_default")]
        pub home_channels: BTreeMap<String, String>;
    } sections {
        /// The managed scheduler.
        pub chronos: ChronosConfig;
    }
}

section! {
    /// The managed scheduler; used only if all four are set.
    #[derive(PartialEq, Eq)]
    pub struct ChronosConfig {
        /// Its base URL, and the issuer of its tokens; no trailing slash.
        pub portal_url: Option<String> = Some(PORTAL_URL.to_owned());
        /// This relay's own public base URL; no trailing slash.
        pub callback_url: Option<String>;
        /// The audience of its tokens: `agent:<instance id>`.
        pub expected_audience: Option<String>;
        /// Where its public keys are; or a public key itself, as PEM.
        pub nas_jwks_url: Option<String>;
    }
}

impl ChronosConfig {
    /// The dotted keys that are missing; the managed scheduler is used only if there are none.
    pub fn missing(&self) -> Vec<&'static str> {
        [
            ("cron.chronos.portal_url", &self.portal_url),
            ("cron.chronos.callback_url", &self.callback_url),
            ("cron.chronos.expected_audience", &self.expected_audience),
            ("cron.chronos.nas_jwks_url", &self.nas_jwks_url),
        ]
        .into_iter()
        .filter(|(_, value)| value.is_none())
        .map(|(key, _)| key)
        .collect()
    }

    fn texts(&mut self) -> [(&'static str, &mut Option<String>); 4] {
        [
            ("portal_url", &mut self.portal_url),
            ("callback_url", &mut self.callback_url),
            ("expected_audience", &mut self.expected_audience),
            ("nas_jwks_url", &mut self.nas_jwks_url),
        ]
    }
}

impl CronProvider {
    /// The provider of this name. An empty one and the reference's other names for its timer mean the timer.
    fn named(text: &str) -> Result<Self, UnknownChoice> {
        match text.trim() {
            "" | "in-process" | "inprocess" => Ok(Self::Builtin),
            text => text.parse(),
        }
    }
}

/// The provider in our own file, where a wrong name is refused.
fn provider<'de, D: Deserializer<'de>>(deserializer: D) -> Result<CronProvider, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?.unwrap_or_default();
    CronProvider::named(&text).map_err(|_| de::Error::unknown_variant(&text, CronProvider::CHOICES))
}

/// Why there is no such time zone.
pub(super) fn zone_error(name: &str) -> Option<String> {
    schedule::zone(name).err().map(|error| error.to_string())
}

impl CronConfig {
    /// The address of the listener for fires, if there is one; else why it is invalid.
    pub fn listen_address(&self) -> Result<Option<SocketAddr>, String> {
        listen_address(self.listen.as_deref())
    }

    /// The first violated rule of the file's section.
    pub(super) fn violation(&self) -> Option<Violation> {
        if let Err(rule) = self.listen_address() {
            return Some(("cron.listen", rule));
        }
        if let Some(error) = self.timezone.as_deref().and_then(zone_error) {
            return Some(("cron.timezone", format!("cannot be used: {error}")));
        }
        let chronos = &self.chronos;
        [
            ("cron.chronos.portal_url", &chronos.portal_url),
            ("cron.chronos.callback_url", &chronos.callback_url),
            ("cron.chronos.nas_jwks_url", &chronos.nas_jwks_url),
        ]
        .into_iter()
        .find_map(|(key, value)| {
            let value = value.clone().and_then(non_empty)?;
            Some((key, url_error(key, &value)?))
        })
    }
}

/// Why the value of this URL setting cannot be used. It is not quoted: it may contain a password.
fn url_error(key: &str, value: &str) -> Option<String> {
    if key.ends_with("nas_jwks_url") && value.contains("-----BEGIN ") {
        return None;
    }
    let Ok(url) = Url::parse(value) else {
        return Some("must be an https URL".to_owned());
    };
    let loopback = match url.host() {
        Some(Host::Domain(name)) => name.eq_ignore_ascii_case("localhost"),
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.to_canonical().is_loopback(),
        None => false,
    };
    if url.scheme() != "https" && !(url.scheme() == "http" && loopback) {
        return Some("must be an https URL; http is allowed for loopback addresses only".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Some("must not contain a user name or password".to_owned());
    }
    None
}

impl Layers<'_> {
    pub(super) fn cron(&mut self, settings: &mut Settings) {
        let cron = &mut settings.cron;
        let from_hermes = Origin::HermesConfig(self.hermes.path.clone());
        if let Some(text) = self.hermes_only("cron.provider") {
            match CronProvider::named(&text) {
                Ok(provider) => cron.provider = self.record("cron.provider", from_hermes.clone(), provider),
                Err(error) => self.warn_hermes("cron.provider", &error.to_string()),
            }
        }
        for (key, value) in [
            ("misfire_grace_minutes", &mut cron.misfire_grace_minutes),
            ("job_timeout_secs", &mut cron.job_timeout_secs),
        ] {
            self.cron_number(key, value);
        }
        for (key, value) in [
            ("max_parallel_jobs", &mut cron.max_parallel_jobs),
            ("output_retention", &mut cron.output_retention),
        ] {
            self.cron_number(key, value);
        }
        cron.max_parallel_jobs = cron.max_parallel_jobs.max(1);
        if !self.own_sets("cron.wrap_response")
            && let Some(flag) = self.hermes.flag("cron.wrap_response")
        {
            cron.wrap_response = self.record("cron.wrap_response", from_hermes, flag);
        }
        self.chronos(&mut cron.chronos);
        let own = cron.timezone.take().and_then(non_empty);
        cron.timezone = self.time_zone(own.or_else(|| settings.timezone.take()).as_ref());
        self.home_channels(&mut cron.home_channels);
        self.warn_of_unreachable(cron, settings.serve.http.is_some());
    }

    /// Warns where the managed scheduler is half set up.
    fn warn_of_unreachable(&mut self, cron: &CronConfig, is_serving: bool) {
        let missing = cron.chronos.missing();
        let is_listening = cron.listen.is_some() || is_serving;
        let warning = match cron.provider {
            CronProvider::Chronos if !missing.is_empty() => format!(
                "`cron.provider` is chronos, but the relay's own timer starts jobs until these are set: {}",
                missing.join(", ")
            ),
            CronProvider::Chronos if !is_listening => {
                "nothing listens for the fires of the managed scheduler; set `cron.listen` or `serve.http`"
                    .to_owned()
            }
            CronProvider::Chronos | CronProvider::Builtin | CronProvider::Off => return,
        };
        self.warnings.push(warning);
    }

    /// The zone of jobs without their own. One that does not exist can come from elsewhere than our own file, which is checked.
    fn time_zone(&mut self, own: Option<&String>) -> Option<String> {
        const KEY: &str = "cron.timezone";
        let zone = self.lookup(KEY, own);
        if let Some((name, origin)) = &zone
            && let Some(error) = zone_error(name)
        {
            let what = format!("the time zone of schedules is UTC, because {error} ({origin})");
            self.warnings.push(what);
            return self.record_value(KEY, None);
        }
        let zone = zone.or_else(|| self.machine_zone());
        self.record_value(KEY, zone)
    }

    /// The machine's time zone: that of `TZ`, else the system's; `None` is UTC.
    fn machine_zone(&mut self) -> Option<Sourced> {
        const VARIABLE: &str = "TZ";
        let Some((text, origin)) = self.in_process(VARIABLE) else {
            return machine_zone::of_system(&self.etc);
        };
        let name = machine_zone::name_in(&text);
        match zone_error(name) {
            None if machine_zone::is_utc(name) => None,
            None => Some((name.to_owned(), origin)),
            Some(_) => {
                self.warnings.push(format!(
                    "the time zone of schedules is UTC, because the variable {VARIABLE} is not a name such as Europe/Berlin; set \
                     `cron.timezone`"
                ));
                None
            }
        }
    }

    fn chronos(&mut self, chronos: &mut ChronosConfig) {
        for (name, value) in chronos.texts() {
            let key = format!("cron.chronos.{name}");
            *value = value.take().and_then(non_empty);
            if let Some(text) = self.hermes.at(&key).map(|_| self.hermes.text(&key))
                && !self.own_sets(&key)
            {
                let origin = Origin::HermesConfig(self.hermes.path.clone());
                let wrong = text.as_ref().and_then(|text| match name {
                    "expected_audience" => None,
                    _ => url_error(&key, text),
                });
                match wrong {
                    Some(rule) => self.warn_hermes(&key, &rule),
                    None => *value = self.record(&key, origin, text),
                }
            }
            if name != "expected_audience"
                && let Some(text) = value
                && !text.contains("-----BEGIN ")
            {
                text.truncate(text.trim_end_matches('/').len());
            }
        }
    }

    fn home_channels(&mut self, channels: &mut BTreeMap<String, String>) {
        for platform in Platform::names() {
            if channels.contains_key(*platform) {
                continue;
            }
            let name = format!("{}_HOME_CHANNEL", platform.to_uppercase());
            let variable = self.in_process(&name).or_else(|| self.in_dotenv(&name));
            let key = format!("platforms.{platform}.home_channel");
            let channel = variable.or_else(|| {
                let chat = self.hermes.text(&key).or_else(|| {
                    let chat = self.hermes.text(&format!("{key}.chat_id"))?;
                    let thread = self.hermes.text(&format!("{key}.thread_id"));
                    Some(thread.map_or_else(|| chat.clone(), |thread| format!("{chat}:{thread}")))
                })?;
                Some((chat, Origin::HermesConfig(self.hermes.path.clone())))
            });
            if let Some((chat, origin)) = channel {
                let key = format!("cron.home_channels.{platform}");
                channels.insert((*platform).to_owned(), self.record(&key, origin, chat));
            }
        }
    }

    /// A number of the `cron` section from Hermes' file, unless our own file sets it; a negative one counts as 0.
    fn cron_number<T: TryFrom<i64>>(&mut self, name: &str, value: &mut T) {
        let key = format!("cron.{name}");
        let Some(text) = self.hermes_only(&key) else {
            return;
        };
        let number = text.parse::<i64>().ok().map(|number| number.clamp(0, 1 << 20));
        match number.and_then(|number| T::try_from(number).ok()) {
            Some(number) => {
                let origin = Origin::HermesConfig(self.hermes.path.clone());
                *value = self.record(&key, origin, number);
            }
            None => self.warn_hermes(&key, "is not a whole number"),
        }
    }

    /// The text in Hermes' file, unless our own file sets the key.
    fn hermes_only(&self, key: &str) -> Option<String> {
        self.hermes.text(key).filter(|_| !self.own_sets(key))
    }

    fn warn_hermes(&mut self, key: &str, what: &str) {
        let path = self.hermes.path.display();
        self.warnings.push(format!("{path}: `{key}` {what}; ignored"));
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::config::test_home::TestHome;

    #[test]
    fn hermes_names_are_read_and_our_own_file_wins() {
        let home = TestHome::new().file(
            "config.yaml",
            "timezone: Europe/Berlin\nplatforms: {slack: {home_channel: {chat_id: C1, thread_id: 7}}}\n\
             cron:\n  provider: chronos\n  wrap_response: false\n  output_retention: -1\n  misfire_grace_minutes: soon\n  \
             max_parallel_jobs: 3\n  chronos: {portal_url: 'https://nas.example/', callback_url: 'http://elsewhere.example',\n    \
             expected_audience: 'agent:i-1', nas_jwks_url: 'http://127.0.0.1:9/jwks'}\n",
        );
        let home = home.file("relay.yaml", "cron:\n  max_parallel_jobs: 2\n");
        let loaded = home.env("TELEGRAM_HOME_CHANNEL", "-100").load();
        let cron = loaded.settings.cron;
        assert_eq!(cron.provider, CronProvider::Chronos);
        assert_eq!(cron.timezone.as_deref(), Some("Europe/Berlin"));
        assert_eq!((cron.wrap_response, cron.output_retention), (false, 0));
        assert_eq!((cron.max_parallel_jobs, cron.misfire_grace_minutes), (2, 10));
        assert_eq!(cron.chronos.portal_url.as_deref(), Some("https://nas.example"));
        assert_eq!(
            cron.chronos.nas_jwks_url.as_deref(),
            Some("http://127.0.0.1:9/jwks")
        );
        assert_eq!(cron.chronos.missing(), ["cron.chronos.callback_url"]);
        assert_eq!(cron.home_channels["slack"], "C1:7");
        assert_eq!(cron.home_channels["telegram"], "-100");
        let warnings = loaded.warnings.join("\n");
        for part in [
            "misfire_grace_minutes",
            "callback_url` must be an https",
            "own timer",
        ] {
            assert!(warnings.contains(part), "{part}: {warnings}");
        }
    }

    #[test]
    fn a_blank_portal_url_disables_the_managed_scheduler() {
        let portal = |text| {
            let home = TestHome::new().file("config.yaml", text);
            home.load().settings.cron.chronos.portal_url
        };
        assert_eq!(portal("cron: {chronos: {portal_url: ''}}\n"), None);
        assert_eq!(portal("").as_deref(), Some(PORTAL_URL));
    }

    #[test]
    fn the_variable_sets_the_time_zone() {
        let home = TestHome::new().file("relay.yaml", "cron: {timezone: Asia/Kolkata}\n");
        assert_eq!(
            home.load().settings.cron.timezone.as_deref(),
            Some("Asia/Kolkata")
        );
        let home = home.env("HERMES_TIMEZONE", "America/Lima");
        assert_eq!(
            home.load().settings.cron.timezone.as_deref(),
            Some("America/Lima")
        );
    }

    #[test]
    fn the_machines_zone_holds_unless_a_setting_says_otherwise() {
        let zone = |home: &TestHome| {
            let loaded = home.load();
            let origin = loaded.origins.of("cron.timezone").to_string();
            (loaded.settings.cron.timezone, origin)
        };
        let berlin = Some("Europe/Berlin".to_owned());
        let mut home = TestHome::new();
        assert_eq!(zone(&home).0, None);
        fs::create_dir_all(home.path("etc")).unwrap();
        symlink("/usr/share/zoneinfo/Europe/Berlin", home.path("etc/localtime")).unwrap();
        let system = home.path("etc/localtime").display().to_string();
        assert_eq!(zone(&home), (berlin.clone(), system));
        for (tz, name) in [
            ("Asia/Tokyo", Some("Asia/Tokyo")),
            (":Asia/Tokyo", Some("Asia/Tokyo")),
            ("/usr/share/zoneinfo/Asia/Tokyo", Some("Asia/Tokyo")),
            ("UTC", None),
            ("UTC0", None),
            ("", Some("Europe/Berlin")),
        ] {
            home = home.env("TZ", tz);
            assert_eq!(zone(&home).0.as_deref(), name, "{tz}");
            assert!(home.load().warnings.is_empty(), "{tz}");
        }
        home = home.env("TZ", "CET-1CEST,M3.5.0,M10.5.0/3");
        assert_eq!(zone(&home).0, None);
        assert!(home.load().warnings[0].contains("variable TZ"));
        let home = home.file("config.yaml", "timezone: America/Lima\n");
        assert_eq!(zone(&home).0.as_deref(), Some("America/Lima"));
    }

    #[test]
    fn the_system_may_have_its_zone_in_a_file() {
        let home = TestHome::new();
        let home = home
            .file("etc/timezone", "Europe/Berlin\n")
            .file("etc/localtime", "TZif2");
        assert_eq!(
            home.load().settings.cron.timezone.as_deref(),
            Some("Europe/Berlin")
        );
        let home = home.file("etc/timezone", "Mars/Base\n");
        assert_eq!(home.load().settings.cron.timezone, None);
    }

    #[test]
    fn the_name_of_hermes_for_the_time_zone_holds_in_our_own_file_too() {
        let zone = |text| {
            let home = TestHome::new().file("relay.yaml", text);
            home.load().settings.cron.timezone
        };
        assert_eq!(zone("timezone: Asia/Tokyo\n").as_deref(), Some("Asia/Tokyo"));
        let both = "timezone: Asia/Tokyo\ncron: {timezone: Europe/Berlin}\n";
        assert_eq!(zone(both).as_deref(), Some("Europe/Berlin"));
    }

    #[test]
    fn an_unknown_time_zone_is_refused_in_our_own_file_and_reported_elsewhere() {
        for (text, key) in [
            ("cron: {timezone: europe/berlin}\n", "`cron.timezone`"),
            ("timezone: europe/berlin\n", "`timezone`"),
        ] {
            let error = TestHome::new()
                .file("relay.yaml", text)
                .try_load()
                .unwrap_err()
                .to_string();
            assert!(
                error.contains(key) && error.contains("did you mean `Europe/Berlin`"),
                "{error}"
            );
        }
        for home in [
            TestHome::new().env("HERMES_TIMEZONE", "Mars/Base"),
            TestHome::new().file("config.yaml", "timezone: Mars/Base\n"),
        ] {
            let loaded = home.load();
            assert_eq!(loaded.settings.cron.timezone, None);
            let warnings = loaded.warnings.join("\n");
            assert!(
                warnings.contains("UTC") && warnings.contains("`Mars/Base`"),
                "{warnings}"
            );
        }
    }

    #[test]
    fn a_scheduler_whose_fires_arrive_nowhere_is_reported() {
        let chronos = "cron: {provider: chronos, chronos: {callback_url: 'https://a.example', expected_audience: 'agent:i', \
                       nas_jwks_url: 'https://nas.example/jwks'}";
        let warned = |text: &str| {
            let home = TestHome::new().file("relay.yaml", text);
            home.load().warnings.join("\n")
        };
        let nowhere = warned(&format!("{chronos}}}\n"));
        assert!(nowhere.contains("set `cron.listen` or `serve.http`"), "{nowhere}");
        assert_eq!(warned(&format!("{chronos}, listen: '127.0.0.1:8080'}}\n")), "");
        let beside = format!("{chronos}}}\nserve: {{http: '127.0.0.1:8080'}}\n");
        assert_eq!(warned(&beside), "");
        let free = format!("{chronos}, listen: '127.0.0.1:0'}}\nserve: {{http: '127.0.0.1:0'}}\n");
        assert_eq!(warned(&free), "");
        let same = format!("{chronos}, listen: '127.0.0.1:80'}}\nserve: {{http: '127.0.0.1:80'}}\n");
        let home = TestHome::new().file("relay.yaml", &same);
        let error = home.try_load().unwrap_err().to_string();
        assert!(
            error.contains("`cron.listen`") && error.contains("`serve.http`"),
            "{error}"
        );
    }

    #[test]
    fn the_names_of_the_reference_for_its_timer_are_read() {
        for name in ["''", "builtin", "in-process", "inprocess"] {
            for file in ["relay.yaml", "config.yaml"] {
                let home = TestHome::new().file(file, &format!("cron: {{provider: {name}}}\n"));
                let loaded = home.load();
                assert_eq!(
                    loaded.settings.cron.provider,
                    CronProvider::Builtin,
                    "{name} in {file}"
                );
                assert_eq!(loaded.warnings, Vec::<String>::new(), "{name} in {file}");
            }
        }
        let home = TestHome::new().file("relay.yaml", "cron: {provider: chronso}\n");
        let error = home.try_load().unwrap_err().to_string();
        assert!(error.contains("did you mean `chronos`?"), "{error}");
    }

    #[test]
    fn invalid_addresses_are_refused() {
        let rule = |change: fn(&mut CronConfig)| {
            let mut cron = CronConfig::default();
            change(&mut cron);
            cron.violation().map(|(key, _)| key)
        };
        assert_eq!(rule(|_| {}), None);
        assert_eq!(rule(|cron| cron.listen = Some("0.0.0.0:8080".into())), None);
        assert_eq!(
            rule(|cron| cron.listen = Some("8080".into())),
            Some("cron.listen")
        );
        assert_eq!(
            rule(|cron| cron.chronos.callback_url = Some("http://agent.example".into())),
            Some("cron.chronos.callback_url")
        );
        assert_eq!(
            rule(|cron| cron.chronos.nas_jwks_url = Some("-----BEGIN PUBLIC KEY-----".into())),
            None
        );
    }
}
