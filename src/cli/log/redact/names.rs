//! Which variable, setting, field and header names stand for a secret.

/// Words that make a name secret wherever they occur in it.
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

/// Words before `key` that make it public.
const PUBLIC_KEYS: &[&str] = &[
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

/// Last words of a name whose value describes a secret and is none.
const METADATA: &[&str] = &[
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

/// Words that make a name secret as its last word, unless they are all of it.
const SUFFIXES: &[&str] = &["PASS", "PAT"];

/// Qualifiers after the name proper: which of several it is, or its format.
const QUALIFIERS: &[&str] = &["DEV", "PEM", "PROD"];

fn is_qualifier(word: &str) -> bool {
    QUALIFIERS.contains(&word) || word.bytes().all(|byte| byte.is_ascii_digit())
}

/// The words of a name in capitals; the same for `api_key`, `X-Api-Key` and `apiKey`.
pub(super) fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut previous = ' ';
    for char in name.chars() {
        let is_camel = previous.is_ascii_lowercase() && char.is_ascii_uppercase();
        if !char.is_ascii_alphanumeric() || is_camel {
            words.push(String::new());
        }
        if let (true, Some(word)) = (char.is_ascii_alphanumeric(), words.last_mut()) {
            word.push(char.to_ascii_uppercase());
        }
        previous = char;
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Whether the value of this name is a secret.
pub(super) fn is_secret_name(name: &str) -> bool {
    let words = words(name);
    let end = words
        .iter()
        .rposition(|word| !is_qualifier(word))
        .map_or(0, |last| last + 1);
    let words = &words[..end];
    let Some((last, before)) = words.split_last() else {
        return false;
    };
    if METADATA.contains(&last.as_str()) {
        return false;
    }
    if matches!(last.as_str(), "KEY" | "KEYS") {
        return before
            .last()
            .is_some_and(|word| !PUBLIC_KEYS.contains(&word.as_str()));
    }
    // The headers for an OTLP collector contain its key.
    if last == "HEADERS" && words.iter().any(|word| word == "OTLP") {
        return true;
    }
    if SUFFIXES.contains(&last.as_str()) && !before.is_empty() {
        return true;
    }
    let is_compound = ["TOKEN", "SECRET", "PASSWORD", "APIKEY"]
        .iter()
        .any(|end| last.ends_with(end));
    is_compound || words.iter().any(|word| SECRET.contains(&word.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_names_differ_from_names_about_secrets() {
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
