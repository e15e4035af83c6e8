//! What an op carries beside its content: a small JSON object.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, Serializer};
use serde_json::{Map, Value};
use smol_str::SmolStr;

/// Metadata of an op: tenant, thread, hints. In the order of its keys; every op has a few, so it is a list and not a tree.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metadata(Vec<(SmolStr, Value)>);

impl Metadata {
    /// No entries.
    pub fn new() -> Self {
        Self::default()
    }

    /// Room for so many entries.
    pub fn with_capacity(entries: usize) -> Self {
        Self(Vec::with_capacity(entries))
    }

    /// Sets an entry; returns what it was before.
    pub fn insert(&mut self, key: impl Into<SmolStr>, value: impl Into<Value>) -> Option<Value> {
        let (key, value) = (key.into(), value.into());
        match self.find(&key) {
            Ok(at) => Some(std::mem::replace(&mut self.0[at].1, value)),
            Err(at) => {
                self.0.insert(at, (key, value));
                None
            }
        }
    }

    /// Removes an entry; returns what it was.
    pub fn remove(&mut self, key: &str) -> Option<Value> {
        let at = self.find(key).ok()?;
        Some(self.0.remove(at).1)
    }

    /// The value of an entry.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.find(key).ok().map(|at| &self.0[at].1)
    }

    /// Whether an edit with this metadata has the last text of its message: only that one says whether it rings.
    pub fn has_last_text(&self) -> bool {
        self.get("notify").is_some_and(Value::is_boolean)
    }

    /// Every entry, in the order of the keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn find(&self, key: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(known, _)| known.as_str().cmp(key))
    }
}

/// The value of an entry that is there; panics otherwise, as for other maps.
impl std::ops::Index<&str> for Metadata {
    type Output = Value;

    fn index(&self, key: &str) -> &Value {
        self.get(key).expect("there is such an entry")
    }
}

impl<K: Into<SmolStr>, V: Into<Value>> Extend<(K, V)> for Metadata {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        for (key, value) in entries {
            self.insert(key, value);
        }
    }
}

/// The last of equal keys stays. Sorts once: whoever writes the entries may have written very many.
impl<K: Into<SmolStr>, V: Into<Value>> FromIterator<(K, V)> for Metadata {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let entries = entries.into_iter().map(|(key, value)| (key.into(), value.into()));
        let mut entries: Vec<(SmolStr, Value)> = entries.collect();
        entries.sort_by(|(one, _), (other, _)| one.cmp(other));
        entries.dedup_by(|later, kept| {
            let is_same = later.0 == kept.0;
            if is_same {
                std::mem::swap(later, kept);
            }
            is_same
        });
        Self(entries)
    }
}

impl IntoIterator for Metadata {
    type Item = (SmolStr, Value);
    type IntoIter = std::vec::IntoIter<Self::Item>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl From<Map<String, Value>> for Metadata {
    fn from(object: Map<String, Value>) -> Self {
        object.into_iter().collect()
    }
}

impl From<Metadata> for Value {
    fn from(metadata: Metadata) -> Self {
        let entries = metadata.into_iter().map(|(key, value)| (key.into(), value));
        Self::Object(entries.collect())
    }
}

impl Serialize for Metadata {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for Metadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;

        impl<'de> Visitor<'de> for Entries {
            type Value = Metadata;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Metadata, A::Error> {
                let entries = std::iter::from_fn(|| map.next_entry::<SmolStr, Value>().transpose());
                entries.collect()
            }
        }

        deserializer.deserialize_map(Entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn it_is_written_and_read_as_an_object_is() {
        let object = json!({"thread_id": "t", "a": [1, null], "notify": true, "scope_id": {"b": 2}});
        let metadata: Metadata = serde_json::from_value(object.clone()).unwrap();
        assert_eq!(
            serde_json::to_string(&metadata).unwrap(),
            serde_json::to_string(&object).unwrap()
        );
        assert_eq!(Value::from(metadata.clone()), object);
        assert_eq!(Metadata::from(object.as_object().unwrap().clone()), metadata);
        assert!(serde_json::from_value::<Metadata>(json!([])).is_err());
    }

    #[test]
    fn the_last_of_equal_keys_stays() {
        let mut metadata: Metadata = serde_json::from_str(r#"{"a": 1, "b": 2, "a": 4, "a": 3}"#).unwrap();
        assert_eq!(metadata.get("a"), Some(&3.into()));
        assert_eq!(metadata.insert("a", "x"), Some(3.into()));
        assert_eq!(metadata.remove("b"), Some(2.into()));
        assert_eq!(metadata.get("b"), None);
        assert_eq!(metadata.remove("b"), None);
        assert_eq!(metadata.iter().collect::<Vec<_>>(), [("a", &"x".into())]);
    }
}
