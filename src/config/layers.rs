//! The layers of settings in their order, and the origin of each value.

use std::path::{Path, PathBuf};

use zeroize::{Zeroize as _, Zeroizing};

use super::dotenv::Dotenv;
use super::env::{self, VARIABLES};
use super::file::{self, FileTree, OwnFile};
use super::hermes::HermesConfig;
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
}

impl<'a> Layers<'a> {
    pub(super) fn open(sources: &'a Sources<'_>, system: &Path) -> Result<Self, ConfigError> {
        let var = |name: &str| (sources.env)(name).and_then(non_empty);
        let mut warnings = Vec::new();
        let mut origins = Origins::default();
        let user_home = var(env::HOME).map(PathBuf::from);
        let home = var(env::HERMES_HOME).map(PathBuf::from);
        if home.is_some() {
            origins.set("hermes_home", Origin::Env(env::HERMES_HOME.to_owned()));
        }
        let home = home.or_else(|| user_home.as_ref().map(|user| user.join(".hermes")));
        let named = sources
            .flags
            .config
            .clone()
            .or_else(|| var(env::CONFIG).map(PathBuf::from));
        let own = named
            .or_else(|| {
                let candidates = [
                    home.as_ref().map(|home| home.join("relay.yaml")),
                    Some(system.to_owned()),
                ];
                candidates
                    .into_iter()
                    .flatten()
                    .find(|path| exists(path, &mut warnings))
            })
            .map(|path| OwnFile::read(&path))
            .transpose()?;
        if let Some(own) = &own {
            file::walk(&own.raw, "", &mut |key, value| {
                if !value.is_null() {
                    origins.set(key, Origin::OwnFile(own.path.clone()));
                }
            });
        }
        let dotenv_path = home.as_deref().unwrap_or(Path::new("")).join(".env");
        let dotenv = match home.as_ref().map(|_| Dotenv::read(&dotenv_path, sources.env)) {
            Some(Ok(read)) => read.unwrap_or_default(),
            Some(Err(error)) => {
                warnings.push(format!(
                    "{}: cannot be read ({error}); ignored",
                    dotenv_path.display()
                ));
                Dotenv::default()
            }
            None => Dotenv::default(),
        };
        for line in dotenv.skipped_lines().iter().take(5) {
            warnings.push(format!("{}:{line}: invalid line; ignored", dotenv_path.display()));
        }
        let hermes = HermesConfig::read(home.as_deref(), &mut warnings);
        Ok(Self {
            flags: &sources.flags,
            process: sources.env,
            user_home,
            home,
            own,
            credential_files: vec![dotenv_path.clone()],
            dotenv_path,
            dotenv,
            hermes,
            origins,
            warnings,
        })
    }

    /// The settings file with defaults.
    pub(super) fn tree(&self) -> FileTree {
        self.own.as_ref().map(|own| own.tree.clone()).unwrap_or_default()
    }

    pub(super) fn resolve_path(&self, path: &Path) -> PathBuf {
        self.own.as_ref().map_or_else(
            || path.to_owned(),
            |own| own.resolve_path(path, self.user_home.as_deref()),
        )
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

    /// Looks in the process environment, our own file, Hermes' `.env`, and with a key in Hermes' `config.yaml`.
    pub(super) fn lookup(&self, name: &str, own: Option<&String>, hermes: Option<&str>) -> Option<Sourced> {
        self.in_process(name)
            .or_else(|| self.in_own(own))
            .or_else(|| self.in_dotenv(name))
            .or_else(|| hermes.and_then(|dotted| self.in_hermes(dotted)))
    }

    pub(super) fn record_value(&mut self, key: &str, value: Option<Sourced>) -> Option<String> {
        let (value, origin) = value.map_or((None, Origin::Default), |(value, origin)| (Some(value), origin));
        self.record(key, origin, value)
    }

    pub(super) fn warn_of_conflicts(&mut self) {
        for variable in VARIABLES.iter().filter(|variable| variable.shared) {
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
    }
}

/// Whether there is a file at `path`; warns if that cannot be determined.
fn exists(path: &Path, warnings: &mut Vec<String>) -> bool {
    path.try_exists().unwrap_or_else(|error| {
        warnings.push(format!(
            "{}: cannot be accessed ({error}); ignored",
            path.display()
        ));
        false
    })
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
