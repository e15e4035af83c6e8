//! Fields of a platform's objects, read leniently: a field of the wrong type is absent.

use serde_json::Value;

/// An integer field; also accepted as text.
pub(in crate::direct) fn integer(object: &Value, key: &str) -> Option<i64> {
    match object.get(key)? {
        Value::Number(number) => number.as_i64(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    }
}

/// A text field that is not empty.
pub(in crate::direct) fn text<'v>(object: &'v Value, key: &str) -> Option<&'v str> {
    object.get(key)?.as_str().filter(|text| !text.is_empty())
}

/// A boolean field; `false` if it is absent.
pub(in crate::direct) fn flag(object: &Value, key: &str) -> bool {
    object.get(key) == Some(&Value::Bool(true))
}

/// A field that is an object.
pub(in crate::direct) fn object<'v>(parent: &'v Value, key: &str) -> Option<&'v Value> {
    parent.get(key).filter(|value| value.is_object())
}

/// The entries of a list field; none if it is absent.
pub(in crate::direct) fn list<'v>(object: &'v Value, key: &str) -> &'v [Value] {
    object
        .get(key)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// Whether the field is there and not `null`.
pub(in crate::direct) fn has(object: &Value, key: &str) -> bool {
    object.get(key).is_some_and(|value| !value.is_null())
}
