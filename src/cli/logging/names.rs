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

/// Words that make a name one of a secret where they end it and are not all of it.
const AT_THE_END: &[&str] = &["PASS", "PAT"];

/// Words after the name proper: they say which of several it is, or in which form.
const BESIDE: &[&str] = &["DEV", "PEM", "PROD"];

fn is_beside(word: &str) -> bool {
    BESIDE.contains(&word) || word.bytes().all(|byte| byte.is_ascii_digit())
}

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
    let told = words
        .iter()
        .rposition(|word| !is_beside(word))
        .map_or(0, |last| last + 1);
    let words = &words[..told];
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
    // What a collector of traces wants to see with every request holds its key.
    if last == "HEADERS" && words.iter().any(|word| word == "OTLP") {
        return true;
    }
    if AT_THE_END.contains(&last.as_str()) && !before.is_empty() {
        return true;
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
            "SMTP_PASS",
            "GITHUB_PAT",
            "API_KEY_2",
            "OPENAI_API_KEY_PROD",
            "STRIPE_KEY_DEV_1",
            "PRIVATE_KEY_PEM",
            "OTEL_EXPORTER_OTLP_HEADERS",
            "OTEL_EXPORTER_OTLP_LOGS_HEADERS",
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
            "pass",
            "pat",
            "COMPASS",
            "2",
            "PROD",
            "SESSION_KEY_2",
            "HEADERS",
            "SECRET_FILE_2",
            "secretary",
            "PATH",
        ] {
            assert!(!is_secret_name(name), "{name}");
        }
    }
}
