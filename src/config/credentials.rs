//! The settings that are secret or go with one: the gateway's own, and those for the identity provider.
//!
//! A secret goes from its source into a [`SecretString`] and nowhere else.

use std::path::Path;

use secrecy::SecretString;

use super::layers::Layers;
use super::settings::Idp;
use super::{ConfigError, Origin, env, secret};

/// The name of the credential that systemd hands over.
const CREDENTIAL: &str = "relay-secret";

impl Layers<'_> {
    /// The gateway's secret.
    pub(super) fn secret(&mut self, own: Option<&Path>) -> Result<Option<SecretString>, ConfigError> {
        const KEY: &str = "connector.secret";
        if let Some((value, origin)) = self.in_process(env::SECRET) {
            return Ok(Some(self.noted(KEY, origin, secret::taken(value))));
        }
        if let Some((path, origin)) = self.in_process(env::SECRET_FILE) {
            let value = self.secret_in(Path::new(&path))?;
            return Ok(Some(self.noted(KEY, origin, value)));
        }
        if let (Some(path), Some(file)) = (own.filter(|path| !path.as_os_str().is_empty()), &self.own) {
            let origin = Origin::OwnFile(file.path.clone());
            let path = self.anchored(path);
            let value = self.secret_in(&path)?;
            return Ok(Some(self.noted(KEY, origin, value)));
        }
        if let Some((directory, _)) = self.in_process(env::CREDENTIALS_DIRECTORY) {
            let path = Path::new(&directory).join(CREDENTIAL);
            if path.exists() {
                let value = self.secret_in(&path)?;
                return Ok(Some(self.noted(KEY, Origin::Credential(path), value)));
            }
        }
        if self.in_dotenv(env::SECRET).is_none()
            && let Some((path, origin)) = self.in_dotenv(env::SECRET_FILE)
        {
            let value = self.secret_in(Path::new(&path))?;
            return Ok(Some(self.noted(KEY, origin, value)));
        }
        let answer = self
            .in_dotenv(env::SECRET)
            .or_else(|| self.in_hermes("gateway.relay_secret"));
        Ok(self.settle(KEY, answer).map(secret::taken))
    }

    fn secret_in(&mut self, path: &Path) -> Result<SecretString, ConfigError> {
        self.credential_files.push(path.to_owned());
        Ok(secret::read(path)?)
    }

    /// The identity provider's client. With the token URL in an environment, no file is asked about the rest of it.
    pub(super) fn idp(&mut self) -> Result<Idp, ConfigError> {
        let own = self.tree().idp;
        let token_url = self.ask(
            env::IDP_TOKEN_URL,
            own.token_url.as_ref(),
            Some("gateway.idp.token_url"),
        );
        let (files, hermes) = match token_url.as_ref().map(|(_, origin)| origin) {
            Some(Origin::OwnFile(_)) => (true, false),
            Some(Origin::HermesConfig(_)) | None => (true, true),
            Some(_) => (false, false),
        };
        let mut text = |key: &str, name, own: &Option<String>| {
            let dotted = format!("gateway.{key}");
            let answer = self.ask(
                name,
                own.as_ref().filter(|_| files),
                hermes.then_some(dotted.as_str()),
            );
            self.settle(key, answer)
        };
        let client_id = text("idp.client_id", env::IDP_CLIENT_ID, &own.client_id);
        let scope = text("idp.scope", env::IDP_SCOPE, &own.scope);
        let own_secret = own
            .client_secret_file
            .filter(|path| files && !path.as_os_str().is_empty());
        let client_secret = match (self.in_process(env::IDP_CLIENT_SECRET), own_secret, &self.own) {
            (None, Some(path), Some(file)) => {
                let origin = Origin::OwnFile(file.path.clone());
                let value = secret::read(&self.anchored(&path))?;
                Some(self.noted("idp.client_secret", origin, value))
            }
            _ => self.idp_text_secret(hermes),
        };
        Ok(Idp {
            token_url: self.settle("idp.token_url", token_url),
            client_id,
            client_secret,
            scope,
        })
    }

    fn idp_text_secret(&mut self, hermes: bool) -> Option<SecretString> {
        let answer = self.ask(
            env::IDP_CLIENT_SECRET,
            None,
            hermes.then_some("gateway.idp.client_secret"),
        );
        self.settle("idp.client_secret", answer).map(secret::taken)
    }
}

#[cfg(test)]
mod tests;
