//! Who we are to a connector that does not know us yet: one bearer token, from one of three sources.
//!
//! It never stores a token itself (the portal login rotates its own file), never asks a source that was
//! not configured, and never shows what a source answered.

use std::path::Path;

use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use url::form_urlencoded;

use super::http::{Body, HttpClient, HttpError, HttpResponse, Request};
use super::portal_login::{PortalError, PortalLogin};

/// Longest identity token that is passed on, in bytes.
const MAX_TOKEN: usize = 16 * 1024;
/// Shortest opaque text that an ambient source may answer with instead of a JWT.
const MIN_OPAQUE: usize = 32;

/// The `gateway.idp` block of the configuration file.
#[derive(Debug, Clone, Default)]
pub struct IdpSettings {
    /// Token endpoint.
    pub token_url: Option<String>,
    /// OAuth2 client id.
    pub client_id: Option<String>,
    /// OAuth2 client secret.
    pub client_secret: Option<SecretString>,
    /// OAuth2 scope.
    pub scope: Option<String>,
}

/// Where the identity token comes from.
#[derive(Debug)]
pub enum IdentitySource {
    /// OAuth2 client credentials.
    ClientCredentials {
        /// Token endpoint.
        token_url: String,
        /// OAuth2 client id.
        client_id: String,
        /// OAuth2 client secret.
        client_secret: SecretString,
        /// OAuth2 scope.
        scope: Option<String>,
    },
    /// A token from a metadata service.
    Ambient {
        /// Token endpoint.
        token_url: String,
    },
    /// The Nous Portal login stored in the home directory.
    Portal(PortalLogin),
}

/// Why there is no identity token.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// Half of the client credentials is configured.
    #[error("gateway.idp.token_url is configured but {missing} is missing (set {env})")]
    PartialCredentials {
        /// The configuration key that is missing.
        missing: &'static str,
        /// The environment variable that can supply it.
        env: &'static str,
    },
    /// The token endpoint answered with something other than success.
    #[error("the identity provider returned HTTP {status}{}", reason.as_ref().map(|r| format!(": {r}")).unwrap_or_default())]
    Status {
        /// The HTTP status.
        status: u16,
        /// Its error text.
        reason: Option<String>,
    },
    /// A success that holds no token.
    #[error("the identity provider's answer holds no access_token")]
    NoToken,
    /// No usable answer from the token endpoint.
    #[error("could not reach the identity provider: {0}")]
    Unreachable(HttpError),
    /// The stored portal login gave none.
    #[error(transparent)]
    Portal(#[from] PortalError),
}

impl IdentityError {
    /// Whether logging in to the portal (again) is the way out.
    pub fn needs_login(&self) -> bool {
        matches!(self, Self::Portal(portal) if portal.needs_login())
    }
}

impl IdentitySource {
    /// Picks the source that the environment and the configuration ask for.
    ///
    /// A token URL in the environment hides the configuration block as a whole; otherwise the other
    /// variables win over it key by key.
    pub fn choose(
        env: &dyn Fn(&str) -> Option<String>,
        config: &IdpSettings,
        home: &Path,
    ) -> Result<Self, IdentityError> {
        let var = |name: &str| env(name).map(|v| v.trim().to_owned()).filter(|v| !v.is_empty());
        let own = |value: &Option<String>| {
            value
                .as_deref()
                .map(str::trim)
                .filter(|v| !v.is_empty())
                .map(str::to_owned)
        };
        let from_env = var("GATEWAY_RELAY_IDP_TOKEN_URL");
        let nothing = IdpSettings::default();
        let config = if from_env.is_some() { &nothing } else { config };
        let Some(token_url) = from_env.or_else(|| own(&config.token_url)) else {
            return Ok(Self::Portal(PortalLogin::new(home, env)));
        };
        let client_id = var("GATEWAY_RELAY_IDP_CLIENT_ID").or_else(|| own(&config.client_id));
        let config_secret = config.client_secret.as_ref().map(|s| s.expose_secret().trim());
        let client_secret = var("GATEWAY_RELAY_IDP_CLIENT_SECRET")
            .or_else(|| config_secret.filter(|s| !s.is_empty()).map(str::to_owned))
            .map(SecretString::from);
        let scope = var("GATEWAY_RELAY_IDP_SCOPE").or_else(|| own(&config.scope));
        match (client_id, client_secret) {
            (Some(client_id), Some(client_secret)) => Ok(Self::ClientCredentials {
                token_url,
                client_id,
                client_secret,
                scope,
            }),
            (None, None) => Ok(Self::Ambient { token_url }),
            (None, Some(_)) => Err(IdentityError::PartialCredentials {
                missing: "gateway.idp.client_id",
                env: "GATEWAY_RELAY_IDP_CLIENT_ID",
            }),
            (Some(_), None) => Err(IdentityError::PartialCredentials {
                missing: "gateway.idp.client_secret",
                env: "GATEWAY_RELAY_IDP_CLIENT_SECRET",
            }),
        }
    }

    /// Whether it is worth asking: a login that it needs is stored. Nothing is asked.
    pub fn is_at_hand(&self) -> bool {
        match self {
            Self::ClientCredentials { .. } | Self::Ambient { .. } => true,
            Self::Portal(login) => login.is_stored(),
        }
    }

    /// Whether the source would give a token, without writing anything: a stored login is only looked at, and refreshed
    /// when the token is needed; a provider is asked.
    pub async fn check(&self, http: &HttpClient) -> Result<(), IdentityError> {
        match self {
            Self::ClientCredentials { .. } | Self::Ambient { .. } => self.token(http).await.map(drop),
            Self::Portal(login) => Ok(login.check()?),
        }
    }

    /// Waits until no stored login is being refreshed.
    pub async fn refreshed(&self) {
        match self {
            Self::ClientCredentials { .. } | Self::Ambient { .. } => {}
            Self::Portal(login) => login.refreshed().await,
        }
    }

    /// Asks the source for a token that is valid now.
    pub async fn token(&self, http: &HttpClient) -> Result<SecretString, IdentityError> {
        match self {
            Self::ClientCredentials {
                token_url,
                client_id,
                client_secret,
                scope,
            } => {
                let mut form = form_urlencoded::Serializer::new(String::new());
                form.append_pair("grant_type", "client_credentials")
                    .append_pair("client_id", client_id)
                    .append_pair("client_secret", client_secret.expose_secret());
                if let Some(scope) = scope {
                    form.append_pair("scope", scope);
                }
                let body = Body::Form(form.finish().into());
                let answer = ask(http, token_url, "application/json", body).await?;
                json_token(&answer)
            }
            Self::Ambient { token_url } => {
                let answer = ask(http, token_url, "application/json, text/plain", Body::Get).await?;
                ambient_token(&answer)
            }
            Self::Portal(login) => Ok(login.access_token(http).await?),
        }
    }
}

async fn ask(
    http: &HttpClient,
    url: &str,
    accept: &'static str,
    body: Body,
) -> Result<HttpResponse, IdentityError> {
    let request = Request::new(url, body).accept(accept);
    let answer = http.send(request).await.map_err(IdentityError::Unreachable)?;
    if answer.is_success() {
        return Ok(answer);
    }
    Err(IdentityError::Status {
        status: answer.status,
        reason: answer.error_text(),
    })
}

fn json_token(answer: &HttpResponse) -> Result<SecretString, IdentityError> {
    let object = answer.object().ok_or(IdentityError::NoToken)?;
    object
        .get("access_token")
        .and_then(Value::as_str)
        .and_then(usable_token)
        .ok_or(IdentityError::NoToken)
}

fn ambient_token(answer: &HttpResponse) -> Result<SecretString, IdentityError> {
    let text = std::str::from_utf8(&answer.body)
        .map_err(|_| IdentityError::NoToken)?
        .trim();
    if text.starts_with('{') {
        return json_token(answer);
    }
    let looks_like_one = is_jwt(text) || (text.len() >= MIN_OPAQUE && is_base64url(text));
    usable_token(text)
        .filter(|_| looks_like_one)
        .ok_or(IdentityError::NoToken)
}

/// A token fit for a header, trimmed.
pub(super) fn usable_token(text: &str) -> Option<SecretString> {
    let text = text.trim();
    let fits = !text.is_empty() && text.len() <= MAX_TOKEN && text.bytes().all(|b| b.is_ascii_graphic());
    fits.then(|| text.into())
}

fn is_jwt(text: &str) -> bool {
    text.split('.').count() >= 3 && text.split('.').all(is_base64url)
}

fn is_base64url(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(body: &str) -> HttpResponse {
        HttpResponse {
            status: 200,
            body: body.as_bytes().to_vec(),
            date: None,
        }
    }

    fn choose(env: &[(&str, &str)], config: &IdpSettings) -> Result<IdentitySource, IdentityError> {
        let env = |name: &str| env.iter().find(|(k, _)| *k == name).map(|(_, v)| (*v).to_owned());
        IdentitySource::choose(&env, config, Path::new("/nowhere"))
    }

    fn config() -> IdpSettings {
        IdpSettings {
            token_url: Some("https://config/token".into()),
            client_id: Some("config-id".into()),
            client_secret: Some("config-secret".into()),
            scope: None,
        }
    }

    #[test]
    fn without_a_token_url_the_portal_login_is_asked() {
        let chosen = choose(&[("GATEWAY_RELAY_IDP_CLIENT_ID", "x")], &IdpSettings::default()).unwrap();
        assert!(matches!(chosen, IdentitySource::Portal(_)));
    }

    #[test]
    fn a_token_url_in_the_environment_hides_the_configured_credentials() {
        let chosen = choose(
            &[("GATEWAY_RELAY_IDP_TOKEN_URL", " https://env/token ")],
            &config(),
        )
        .unwrap();
        assert!(matches!(chosen, IdentitySource::Ambient { token_url } if token_url == "https://env/token"));
    }

    #[test]
    fn other_variables_win_over_the_configuration_key_by_key() {
        let chosen = choose(&[("GATEWAY_RELAY_IDP_CLIENT_ID", "env-id")], &config()).unwrap();
        let IdentitySource::ClientCredentials {
            token_url,
            client_id,
            client_secret,
            ..
        } = chosen
        else {
            panic!("wrong source")
        };
        assert_eq!(
            (token_url.as_str(), client_id.as_str()),
            ("https://config/token", "env-id")
        );
        assert_eq!(client_secret.expose_secret(), "config-secret");
    }

    #[test]
    fn half_a_credential_names_the_other_half() {
        let url = ("GATEWAY_RELAY_IDP_TOKEN_URL", "https://env/token");
        let error = choose(&[url, ("GATEWAY_RELAY_IDP_CLIENT_ID", "x")], &config()).unwrap_err();
        assert!(error.to_string().contains("gateway.idp.client_secret"), "{error}");
        let error = choose(&[url, ("GATEWAY_RELAY_IDP_CLIENT_SECRET", "hush")], &config()).unwrap_err();
        assert!(error.to_string().contains("gateway.idp.client_id"), "{error}");
        assert!(!format!("{error:?}").contains("hush"));
    }

    #[test]
    fn ambient_answers_are_json_a_jwt_or_a_long_opaque_text() {
        for good in [
            r#" {"access_token":" tok "}"#,
            "aa.bb.cc",
            "a.b.c.d\n",
            &"A-_9".repeat(8),
        ] {
            assert!(ambient_token(&answer(good)).is_ok(), "{good}");
        }
        for bad in [
            "",
            "short",
            "a..c",
            "<html>",
            r#"{"token":"x"}"#,
            r#"{"access_token":7}"#,
            "{",
            "a.b",
        ] {
            assert!(ambient_token(&answer(bad)).is_err(), "{bad}");
        }
        assert!(ambient_token(&answer(&"A".repeat(31))).is_err());
    }
}
