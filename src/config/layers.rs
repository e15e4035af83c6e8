//! The layers of settings in their order, and the origin of each value.

use std::path::{Path, PathBuf};

use zeroize::{Zeroize as _, Zeroizing};

use super::dotenv::Dotenv;
use super::env;
use super::file::{self, OwnFile};
use super::hermes::HermesConfig;
use super::settings::Settings;
use super::{ConfigError, Flags, Origin, Origins, Sources};

/// A value and its origin.
pub(super) type Sourced = (String, Origin);

/// All layers, opened, with the origins and warnings so far.
pub(super) struct Layers<'a> {
    pub(super) flags: &'a Flags,
    pub(super) process: &'a dyn Fn(&str) -> Option<String>,
    pub(super) user_home: Option<PathBuf>,
    pub(super) home: Option<PathBuf>,
    pub(super) own: Option<OwnFile>,
    pub(super) dotenv_path: PathBuf,
    pub(super) dotenv: Dotenv,
    pub(super) hermes: HermesConfig,
    pub(super) origins: Origins,
    pub(super) warnings: Vec<String>,
    /// Files that credentials are read from.
    pub(super) credential_files: Vec<PathBuf>,
    /// Where the system has its time zone.
    pub(super) etc: PathBuf,
}

impl<'a> Layers<'a> {
    /// Opens all files.
    pub(super) fn open(sources: &'a Sources<'_>, system: &Path, etc: &Path) -> Result<Self, ConfigError> {
        let mut layers = Self::without_files(sources, etc);
        layers.own = own_path(sources, layers.home.as_deref(), system)?
            .map(|path| OwnFile::read(&path))
            .transpose()?;
        if let Some(own) = &layers.own {
            file::walk(&own.raw, "", &mut |key, value| {
                if !value.is_null() {
                    layers.origins.set(key, Origin::OwnFile(own.path.clone()));
                }
            });
        }
        layers.read_dotenv()?;
        layers.hermes = HermesConfig::read(layers.home.as_deref(), &mut layers.warnings);
        Ok(layers)
    }

    /// Only the command line and the process environment.
    pub(super) fn without_files(sources: &'a Sources<'_>, etc: &Path) -> Self {
        let var = |name: &str| (sources.env)(name).and_then(non_empty);
        let mut origins = Origins::default();
        let user_home = var(env::HOME).map(PathBuf::from);
        let home = var(env::HERMES_HOME).map(PathBuf::from);
        if home.is_some() {
            origins.set("hermes_home", Origin::Env(env::HERMES_HOME.to_owned()));
        }
        let home = home.or_else(|| user_home.as_ref().map(|user| user.join(".hermes")));
        let dotenv_path = home.as_deref().unwrap_or(Path::new("")).join(".env");
        Self {
            flags: &sources.flags,
            process: sources.env,
            user_home,
            home,
            own: None,
            credential_files: vec![dotenv_path.clone()],
            etc: etc.to_owned(),
            dotenv_path,
            dotenv: Dotenv::default(),
            hermes: HermesConfig::read(None, &mut Vec::new()),
            origins,
            warnings: Vec::new(),
        }
    }

    /// Reads Hermes' `.env`. It may say who may write, so what cannot be read of it is an error unless our own file says that.
    fn read_dotenv(&mut self) -> Result<(), ConfigError> {
        let path = &self.dotenv_path;
        let has_own_rules = self.own_sets("access.mode");
        match self.home.as_ref().map(|_| Dotenv::read(path, self.process)) {
            Some(Ok(read)) => self.dotenv = read.unwrap_or_default(),
            Some(Err(error)) if has_own_rules => {
                let shown = path.display();
                self.warnings
                    .push(format!("{shown}: cannot be read ({error}); ignored"));
            }
            Some(Err(source)) => {
                let path = path.clone();
                return Err(ConfigError::UnreadableRules { path, source });
            }
            None => {}
        }
        if let Some(line) = self.dotenv.unread_rule().filter(|_| !has_own_rules) {
            let path = self.dotenv_path.clone();
            return Err(ConfigError::UnreadRule { path, line });
        }
        for line in self.dotenv.skipped_lines().iter().take(5) {
            let path = self.dotenv_path.display();
            self.warnings
                .push(format!("{path}:{line}: invalid line; ignored"));
        }
        Ok(())
    }

    /// The settings of the file, with paths that are relative to its directory; the defaults without a file.
    pub(super) fn file_settings(&self) -> Settings {
        let Some(own) = &self.own else {
            return Settings::default();
        };
        let mut settings = own.settings.clone();
        for path in settings.paths_mut() {
            *path = own.resolve_path(path, self.user_home.as_deref());
        }
        for argv in settings.argvs_mut() {
            own.resolve_argv(argv, self.user_home.as_deref());
        }
        settings
    }

    /// A path of our own file, unless it is empty: relative to the file's directory, and the origin of what is there.
    pub(super) fn path_in_own(&self, path: Option<&Path>) -> Option<(PathBuf, Origin)> {
        let path = path.filter(|path| !path.as_os_str().is_empty())?;
        let own = self.own.as_ref()?;
        let origin = Origin::OwnFile(own.path.clone());
        Some((own.resolve_path(path, self.user_home.as_deref()), origin))
    }

    /// Whether our own file sets a dotted key.
    pub(super) fn own_sets(&self, key: &str) -> bool {
        self.own.as_ref().is_some_and(|own| own.sets(key))
    }

    pub(super) fn record<T>(&mut self, key: &str, origin: Origin, value: T) -> T {
        self.origins.set(key, origin);
        value
    }

    pub(super) fn in_process(&self, name: &str) -> Option<Sourced> {
        (self.process)(name)
            .and_then(non_empty)
            .map(|value| (value, Origin::Env(name.to_owned())))
    }

    pub(super) fn in_own(&self, value: Option<&String>) -> Option<Sourced> {
        let origin = Origin::OwnFile(self.own.as_ref()?.path.clone());
        value.cloned().and_then(non_empty).map(|value| (value, origin))
    }

    pub(super) fn in_dotenv(&self, name: &str) -> Option<Sourced> {
        let value = self.dotenv.value(name).map(str::to_owned).and_then(non_empty)?;
        Some((value, Origin::HermesEnv(self.dotenv_path.clone())))
    }

    pub(super) fn in_hermes(&self, dotted: &str) -> Option<Sourced> {
        self.hermes
            .text(dotted)
            .map(|value| (value, Origin::HermesConfig(self.hermes.path.clone())))
    }

    /// Looks for a setting in the process environment, our own file, Hermes' `.env` and Hermes' `config.yaml`, under the names
    /// that it has there. The first of its variables counts.
    pub(super) fn lookup(&self, key: &str, own: Option<&String>) -> Option<Sourced> {
        let field = Settings::field(key);
        debug_assert!(field.is_some(), "{key} is no setting");
        let variable = field.and_then(|field| field.variables.first());
        let shared = variable.filter(|variable| variable.shared);
        variable
            .and_then(|variable| self.in_process(variable.name))
            .or_else(|| self.in_own(own))
            .or_else(|| shared.and_then(|variable| self.in_dotenv(variable.name)))
            .or_else(|| self.in_hermes(field?.hermes?))
    }

    /// Resolves a text that the file may have set.
    pub(super) fn resolve_text(&mut self, key: &str, text: &mut Option<String>) {
        let value = self.lookup(key, text.as_ref());
        *text = self.record_value(key, value);
    }

    pub(super) fn record_value(&mut self, key: &str, value: Option<Sourced>) -> Option<String> {
        let (value, origin) = value.map_or((None, Origin::Default), |(value, origin)| (Some(value), origin));
        self.record(key, origin, value)
    }

    pub(super) fn warn_of_conflicts(&mut self) {
        for (_, variable) in env::variables().iter().filter(|(_, variable)| variable.shared) {
            let (process, file) = (self.in_process(variable.name), self.in_dotenv(variable.name));
            if let (Some((process, _)), Some((file, _))) = (process, file)
                && Zeroizing::new(process) != Zeroizing::new(file)
            {
                self.warnings.push(format!(
                    "{} differs between the process environment and {}: the relay uses the first, Hermes the second",
                    variable.name,
                    self.dotenv_path.display()
                ));
            }
        }
        for (old, new) in env::RETIRED {
            if self.in_process(old).or_else(|| self.in_dotenv(old)).is_some() {
                self.warnings
                    .push(format!("{old} is no longer read; set {new} instead"));
            }
        }
        let mode = self
            .in_process(env::AUTH_MODE)
            .or_else(|| self.in_dotenv(env::AUTH_MODE));
        if mode.is_some_and(|(mode, _)| mode.eq_ignore_ascii_case("raw")) {
            self.warnings.push(format!(
                "{}=raw is not supported: the relay sends tokens that it signs with the gateway secret, never the secret itself; \
                 use a connector that accepts tokens",
                env::AUTH_MODE
            ));
        }
    }
}

/// The settings file: the one that the command line or a variable names, else the first that exists.
pub fn settings_file(sources: &Sources<'_>) -> Result<Option<PathBuf>, ConfigError> {
    let layers = Layers::without_files(sources, Path::new(""));
    own_path(sources, layers.home.as_deref(), Path::new(file::SYSTEM_PATH))
}

pub(super) fn own_path(
    sources: &Sources<'_>,
    home: Option<&Path>,
    system: &Path,
) -> Result<Option<PathBuf>, ConfigError> {
    let named = sources.flags.config.clone();
    let named = named
        .or_else(|| sources.flags.in_parent(sources.env, env::PARENT_CONFIG))
        .or_else(|| (sources.env)(env::CONFIG).and_then(non_empty).map(PathBuf::from));
    if named.is_some() {
        return Ok(named);
    }
    let candidates = [home.map(|home| home.join("relay.yaml")), Some(system.to_owned())];
    for path in candidates.into_iter().flatten() {
        match file::is_there(&path) {
            Ok(true) => return Ok(Some(path)),
            Ok(false) => {}
            // It may say who may write.
            Err(source) => return Err(ConfigError::Unreadable { path, source }),
        }
    }
    Ok(None)
}

/// The trimmed text; `None` if it is empty. The original is wiped if it had white space.
pub(super) fn non_empty(mut text: String) -> Option<String> {
    let trimmed = text.trim();
    match trimmed.len() {
        0 => None,
        length if length == text.len() => Some(text),
        _ => {
            let trimmed = trimmed.to_owned();
            text.zeroize();
            Some(trimmed)
        }
    }
}
