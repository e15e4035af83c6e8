//! Signed callback data, and the keyboards of prompts.
//!
//! Telegram returns the callback data of a button unchanged, but a modified client can send any data: only data with our
//! signature counts. Its form is `hp1:<prompt>:<option>:<signature>`. An id that does not fit into the 64 bytes, or that has
//! characters other than letters, digits and `_ . -`, cannot be encoded; a prompt with such an id is refused, and the relay
//! asks in words instead.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Map, Value, json};
use sha2::Sha256;
use subtle::ConstantTimeEq as _;
use unicode_width::UnicodeWidthStr as _;
use zeroize::Zeroizing;

use crate::text::one_line;
use crate::wire::PromptButton;

/// Longest callback data of a button; Telegram's own limit.
pub const MAX_CALLBACK_BYTES: usize = 64;
/// The version prefix of the data.
const FORM: &str = "hp1";
/// Bytes of the signature that are kept.
const SIGNATURE_BYTES: usize = 12;
/// Longest label; phones cut longer ones anyway.
const MAX_LABEL: usize = 64;
/// Two labels of at most this width share a row.
const SHORT_LABEL: usize = 14;
/// Buttons of a keyboard; Telegram refuses more.
const MAX_BUTTONS: usize = 100;
/// The button colours that Telegram knows.
const BUTTON_STYLES: [&str; 3] = ["primary", "success", "danger"];

/// The key that signs callback data. Its `Debug` output hides it.
#[derive(Clone)]
pub struct CallbackKey(Zeroizing<Vec<u8>>);

impl fmt::Debug for CallbackKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CallbackKey")
    }
}

/// The button that was pressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PressedButton {
    /// The id of the prompt that has the button.
    pub prompt_id: String,
    /// The id of the option that the button stands for.
    pub option_id: String,
}

impl CallbackKey {
    /// A key that is derived from a secret: the same secret gives the same key, also after a restart.
    pub fn new(secret: &[u8]) -> Self {
        let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes a key of any length");
        mac.update(b"hermes-relay telegram callback data");
        Self(Zeroizing::new(mac.finalize().into_bytes().to_vec()))
    }

    /// The callback data of a button; `None` if it does not fit.
    pub fn seal(&self, prompt_id: &str, option_id: &str) -> Option<String> {
        if !is_id(prompt_id) || !is_id(option_id) {
            return None;
        }
        let signed = format!("{FORM}:{prompt_id}:{option_id}");
        let data = format!("{signed}:{}", self.sign(&signed));
        (data.len() <= MAX_CALLBACK_BYTES).then_some(data)
    }

    /// The button that callback data names; `None` if the signature is wrong. The comparison takes constant time.
    pub fn open(&self, data: &str) -> Option<PressedButton> {
        if data.len() > MAX_CALLBACK_BYTES {
            return None;
        }
        let (signed, signature) = data.rsplit_once(':')?;
        let genuine = self.sign(signed).as_bytes().ct_eq(signature.as_bytes());
        if !bool::from(genuine) {
            return None;
        }
        let mut fields = signed.split(':');
        let (form, prompt_id, option_id) = (fields.next()?, fields.next()?, fields.next()?);
        (form == FORM && fields.next().is_none() && is_id(prompt_id) && is_id(option_id)).then(|| {
            PressedButton {
                prompt_id: prompt_id.to_owned(),
                option_id: option_id.to_owned(),
            }
        })
    }

    fn sign(&self, text: &str) -> String {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes a key of any length");
        mac.update(text.as_bytes());
        URL_SAFE_NO_PAD.encode(&mac.finalize().into_bytes()[..SIGNATURE_BYTES])
    }

    /// The keyboard of a prompt: one button per row, or two short ones. `None` if a button's data does not fit, or
    /// there are no buttons or too many.
    pub(super) fn keyboard(&self, prompt_id: &str, options: &[PromptButton]) -> Option<Value> {
        if options.is_empty() || options.len() > MAX_BUTTONS {
            return None;
        }
        let mut rows: Vec<Vec<Value>> = Vec::new();
        let mut room = false;
        for option in options {
            let label = one_line(&option.label, MAX_LABEL);
            let label = if label.is_empty() {
                option.id.clone()
            } else {
                label
            };
            let short = label.width() <= SHORT_LABEL;
            let mut button = Map::new();
            button.insert("text".to_owned(), label.into());
            let data = self.seal(prompt_id, &option.id)?;
            button.insert("callback_data".to_owned(), data.into());
            if let Some(style) = option
                .style
                .as_deref()
                .filter(|style| BUTTON_STYLES.contains(style))
            {
                button.insert("style".to_owned(), style.into());
            }
            if let Some(row) = rows.last_mut().filter(|_| room && short) {
                row.push(button.into());
                room = false;
            } else {
                rows.push(vec![button.into()]);
                room = short;
            }
        }
        Some(json!({ "inline_keyboard": rows }))
    }
}

fn is_id(id: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    !id.is_empty() && id.bytes().all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn button(id: &str, label: &str, style: Option<&str>) -> PromptButton {
        PromptButton {
            id: id.to_owned(),
            label: label.to_owned(),
            style: style.map(str::to_owned),
        }
    }

    #[test]
    fn what_was_sealed_is_opened_and_fits() {
        let key = CallbackKey::new(b"123:secret");
        for (prompt, option) in [
            ("a1b2c3.00000001", "o0"),
            ("ffffff.ffffffff", "o31"),
            ("p", "x_y.z-1"),
        ] {
            let data = key.seal(prompt, option).unwrap();
            assert!(data.len() <= MAX_CALLBACK_BYTES, "{data}");
            assert!(data.starts_with(&format!("hp1:{prompt}:{option}:")), "{data}");
            let pressed = key.open(&data).unwrap();
            assert_eq!(
                (pressed.prompt_id.as_str(), pressed.option_id.as_str()),
                (prompt, option)
            );
        }
        // 64 bytes exactly, and one more.
        assert_eq!(key.seal(&"p".repeat(32), &"o".repeat(10)).unwrap().len(), 64);
        assert_eq!(key.seal(&"p".repeat(32), &"o".repeat(11)), None);
        for (prompt, option) in [("", "o"), ("p", ""), ("a:b", "o"), ("p", "a b"), ("é", "o")] {
            assert_eq!(key.seal(prompt, option), None);
        }
    }

    #[test]
    fn altered_and_foreign_data_is_refused() {
        let key = CallbackKey::new(b"123:secret");
        let data = key.seal("a1b2c3.00000001", "o0").unwrap();
        for at in 0..data.len() {
            for other in [b'0', b'o', b':', b'Z'] {
                let mut altered = data.clone().into_bytes();
                if altered[at] == other {
                    continue;
                }
                altered[at] = other;
                assert_eq!(key.open(&String::from_utf8(altered).unwrap()), None);
            }
            assert_eq!(key.open(&data[..at]), None);
        }
        assert_eq!(key.open(&format!("{data}A")), None);
        assert_eq!(CallbackKey::new(b"123:other").open(&data), None);
        let signed = |text: &str| format!("{text}:{}", key.sign(text));
        assert!(key.open(&signed("hp1:p:o")).is_some());
        for foreign in ["hp2:p:o", "hp1:p", "hp1:p:o:x", "hp1::o", "p:o", ""] {
            assert_eq!(key.open(&signed(foreign)), None, "{foreign}");
        }
        for foreign in ["", ":", "approve", "hp1:p:o:", "ok:1", &"x".repeat(500)] {
            assert_eq!(key.open(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn a_key_does_not_show_itself() {
        assert_eq!(format!("{:?}", CallbackKey::new(b"123:secret")), "CallbackKey");
    }

    #[test]
    fn short_buttons_share_a_row_and_known_styles_pass() {
        let key = CallbackKey::new(b"s");
        let options = [
            button("a", "Allow", Some("primary")),
            button("b", "Deny", Some("danger")),
            button("c", "Allow for this conversation", Some("link")),
            button("d", " ", None),
        ];
        let data = |id: &str| key.seal("p1", id).unwrap();
        assert_eq!(
            key.keyboard("p1", &options).unwrap(),
            json!({"inline_keyboard": [
                [{"text": "Allow", "callback_data": data("a"), "style": "primary"},
                 {"text": "Deny", "callback_data": data("b"), "style": "danger"}],
                [{"text": "Allow for this conversation", "callback_data": data("c")}],
                [{"text": "d", "callback_data": data("d")}],
            ]})
        );
        assert_eq!(key.keyboard("p1", &[]), None);
        assert_eq!(key.keyboard(&"p".repeat(60), &options), None);
        assert_eq!(key.keyboard("p1", &vec![button("a", "x", None); 101]), None);
    }
}
