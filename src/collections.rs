//! Maps and sets keyed by the program's own ids, and a bounded cache. Pure: no I/O, no clock.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// A map keyed by ids that this program assigns itself.
pub type IdMap<K, V> = HashMap<K, V, BuildHasherDefault<IdHasher>>;

/// Hashes an id with one multiplication. Not for keys that come from outside: those need the standard hasher, which
/// resists chosen collisions.
#[derive(Clone, Copy, Debug, Default)]
pub struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, id: u64) {
        const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
        self.0 = (self.0 ^ id).wrapping_mul(GOLDEN);
    }

    fn write_i64(&mut self, id: i64) {
        self.write_u64(id.cast_unsigned());
    }

    fn write_u128(&mut self, id: u128) {
        let high = u64::try_from(id >> 64).unwrap_or_default();
        let low = u64::try_from(id & u128::from(u64::MAX)).unwrap_or_default();
        self.write_u64(high ^ low);
    }
}

/// A hash map with a fixed capacity. Inserting beyond it evicts the entry that was inserted or read least recently.
#[derive(Clone, Debug)]
pub struct BoundedCache<K, V> {
    capacity: usize,
    entries: HashMap<K, CacheEntry<V>>,
    /// Keys by when they were last used, oldest first.
    by_use: BTreeMap<u64, K>,
    uses: u64,
}

#[derive(Clone, Debug)]
struct CacheEntry<V> {
    value: V,
    used: u64,
}

impl<K: Clone + Eq + Hash, V> BoundedCache<K, V> {
    /// An empty cache for at most `capacity` entries; at least one.
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity: capacity.max(1),
            entries: HashMap::new(),
            by_use: BTreeMap::new(),
            uses: 0,
        }
    }

    /// The value of `key`, which counts as used now.
    pub fn get(&mut self, key: &K) -> Option<&V> {
        self.get_mut(key).map(|value| &*value)
    }

    /// The same, to change it.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let entry = self.entries.get_mut(key)?;
        self.uses += 1;
        if let Some(key) = self.by_use.remove(&entry.used) {
            self.by_use.insert(self.uses, key);
        }
        entry.used = self.uses;
        Some(&mut entry.value)
    }

    /// The value of `key`, without counting as a use.
    pub fn peek(&self, key: &K) -> Option<&V> {
        self.entries.get(key).map(|entry| &entry.value)
    }

    /// All keys, the most recently used first.
    pub fn recent_keys(&self) -> impl Iterator<Item = &K> {
        self.by_use.values().rev()
    }

    /// Stores a value and returns the one it replaces. Evicts the least recently used entry when the cache is full.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let replaced = self.remove(&key);
        if self.entries.len() >= self.capacity
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.entries.remove(&oldest);
        }
        self.uses += 1;
        let used = self.uses;
        self.by_use.insert(used, key.clone());
        self.entries.insert(key, CacheEntry { value, used });
        replaced
    }

    /// Removes an entry and returns its value.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let entry = self.entries.remove(key)?;
        self.by_use.remove(&entry.used);
        Some(entry.value)
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no entries.
    #[cfg(any(test, feature = "internals"))]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_maps_hold_ids_of_every_width() {
        let mut by_row: IdMap<i64, i64> = IdMap::default();
        let mut by_op: IdMap<u128, i64> = IdMap::default();
        for id in -500..500_i64 {
            by_row.insert(id, id);
            by_op.insert(u128::from(id.cast_unsigned()) << 64, id);
        }
        assert_eq!((by_row.len(), by_op.len()), (1000, 1000));
        assert_eq!(by_row.get(&-7), Some(&-7));
        assert_eq!(by_op.get(&(u128::from(7_u64) << 64)), Some(&7));
    }

    #[test]
    fn both_halves_of_a_wide_id_count() {
        let hash = |id: u128| {
            let mut hasher = IdHasher::default();
            hasher.write_u128(id);
            hasher.finish()
        };
        assert_ne!(hash(1), hash(2));
        assert_ne!(hash(1 << 64), hash(2 << 64));
    }

    #[test]
    fn a_full_cache_evicts_the_least_recently_used_entry() {
        let mut cache = BoundedCache::new(2);
        assert_eq!(cache.insert("a", 1), None);
        assert_eq!(cache.insert("b", 2), None);
        assert_eq!(cache.get(&"a"), Some(&1));
        cache.insert("c", 3);
        assert_eq!((cache.peek(&"a"), cache.peek(&"b")), (Some(&1), None));
        assert_eq!(cache.recent_keys().collect::<Vec<_>>(), [&"c", &"a"]);
        assert_eq!(cache.insert("a", 4), Some(1), "a replaced value is returned");
        assert_eq!(cache.remove(&"c"), Some(3));
        assert_eq!((cache.remove(&"c"), cache.len()), (None, 1));
        cache.remove(&"a");
        assert!(cache.is_empty());
    }

    #[test]
    fn a_cache_never_exceeds_its_capacity() {
        let mut cache = BoundedCache::new(10);
        for key in 0..1000 {
            cache.insert(key % 37, key);
            cache.get(&(key % 5));
            assert!(cache.len() <= 10);
            assert_eq!(cache.entries.len(), cache.by_use.len());
        }
        assert_eq!(BoundedCache::<u8, u8>::new(0).capacity, 1);
    }
}
