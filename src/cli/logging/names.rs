//! Which names are names of secrets: of variables, settings, fields, headers.

/// Words that make a name one of a secret, wherever they stand in it.
const SECRET: &[&str] = &[
    "APIKEY",
    "AUTHORIZATION",
    "COOKIE",
    "CREDENTIAL",
    "CREDENTIALS",
    "PASSPHRASE",
    "PASSWD",
    "PASSWORD",
    "SECRET",
    "SECRETS",
    "TOKEN",
    "TOKENS",
];

/// Words before `key` that make it no secret.
const OPEN_KEYS: &[&str] = &[
    "CACHE",
    "CONFIG",
    "DEDUPE",
    "FOREIGN",
    "IDEMPOTENCY",
    "PRIMARY",
    "PUBLIC",
    "ROUTE",
    "SESSION",
    "SORT",
];

/// Words at the end of a name that say that the value is about a secret and not one.
const ABOUT: &[&str] = &[
    "BYTES",
    "COUNT",
    "DIRECTORY",
    "ENV",
    "ENDPOINT",
    "EXPIRES",
    "FILE",
    "ID",
    "LENGTH",
    "LIMIT",
    "MS",
    "NAME",
    "PATH",
    "SECS",
    "TTL",
    "TYPE",
    "URI",
    "URL",
    "USAGE",
];

/// The words of a name in capitals: `api_key`, `X-Api-Key` and `apiKey` have the same.
pub(in crate::cli) fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = ' ';
    for char in name.chars() {
        let begins = before.is_ascii_lowercase() && char.is_ascii_uppercase();
        if !char.is_ascii_alphanumeric() || begins {
            words.push(String::new());
        }
        if let (true, Some(word)) = (char.is_ascii_alphanumeric(), words.last_mut()) {
            word.push(char.to_ascii_uppercase());
        }
        before = char;
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Whether what has this name is a secret.
pub(in crate::cli) fn is_secret_name(name: &str) -> bool {
    let words = words(name);
    let Some((last, before)) = words.split_last() else {
        return false;
    };
    if ABOUT.contains(&last.as_str()) {
        return false;
    }
    if matches!(last.as_str(), "KEY" | "KEYS") {
        return before
            .last()
            .is_some_and(|word| !OPEN_KEYS.contains(&word.as_str()));
    }
    let run_together = ["TOKEN", "SECRET", "PASSWORD", "APIKEY"]
        .iter()
        .any(|end| last.ends_with(end));
    run_together || words.iter().any(|word| SECRET.contains(&word.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_secrets_are_told_from_names_about_them() {
        for name in [
            "GATEWAY_RELAY_SECRET",
            "GATEWAY_RELAY_DELIVERY_KEY",
            "OPENAI_API_KEY",
            "api_key",
            "x-api-key",
            "apiKey",
            "accessToken",
            "github_token",
            "token",
            "TOKEN_OF_MINE",
            "idp.client_secret",
            "authToken",
            "authtoken",
            "db-password",
            "Authorization",
            "MODEL_KEY",
        ] {
            assert!(is_secret_name(name), "{name}");
        }
        for name in [
            "",
            "key",
            "session_key",
            "GATEWAY_RELAY_ROUTE_KEYS",
            "GATEWAY_RELAY_SECRET_FILE",
            "GATEWAY_RELAY_IDP_TOKEN_URL",
            "api_key_env",
            "token_type",
            "TOKENIZERS_PARALLELISM",
            "keyboard",
            "monkey",
            "secretary",
            "PATH",
        ] {
            assert!(!is_secret_name(name), "{name}");
        }
    }
}
