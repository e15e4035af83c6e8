//! Maps keyed by the program's own ids or by text, and a bounded cache. Pure: no I/O, no clock.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, BuildHasherDefault, Hash, Hasher};
use std::num::NonZeroU32;

use hashbrown::{Equivalent, HashTable};

/// A map keyed by ids that this program assigns itself.
pub type IdMap<K, V> = HashMap<K, V, BuildHasherDefault<IdHasher>>;

/// A map keyed by text, which may come from outside. Every map has random keys of its own, so texts that collide are not known
/// beforehand; the hash is no cryptographic one, so whoever keeps such a map bounds it.
pub type TextMap<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

/// Hashes an id with one multiplication. Not for keys that come from outside: those need a hasher with random keys.
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
    hashes: foldhash::fast::RandomState,
    /// Where the entries are, by the hashes of their keys, which are there only.
    places: HashTable<CachePlace>,
    /// The entries, in a list by their last use. A place without one is among `free`.
    entries: Vec<Option<CacheEntry<K, V>>>,
    free: Vec<CachePlace>,
    newest: Option<CachePlace>,
    oldest: Option<CachePlace>,
}

#[derive(Clone, Debug)]
struct CacheEntry<K, V> {
    /// Of the key, which is not hashed again when the cache grows.
    hash: u64,
    key: K,
    value: V,
    newer: Option<CachePlace>,
    older: Option<CachePlace>,
}

/// The index of an entry and one more: so that none is no larger, and both take little.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CachePlace(NonZeroU32);

impl CachePlace {
    /// The place after so many others.
    fn after(count: usize) -> Option<Self> {
        let next = u32::try_from(count).ok()?.checked_add(1)?;
        NonZeroU32::new(next).map(Self)
    }

    fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}

impl<K: Eq + Hash, V> BoundedCache<K, V> {
    /// An empty cache for at most `capacity` entries; at least one.
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity: capacity.clamp(1, u32::MAX as usize - 1),
            hashes: foldhash::fast::RandomState::default(),
            places: HashTable::new(),
            entries: Vec::new(),
            free: Vec::new(),
            newest: None,
            oldest: None,
        }
    }

    /// The value of `key`, which counts as used now.
    pub fn get<Q: Hash + Equivalent<K> + ?Sized>(&mut self, key: &Q) -> Option<&V> {
        self.get_mut(key).map(|value| &*value)
    }

    /// The same, to change it.
    pub fn get_mut<Q: Hash + Equivalent<K> + ?Sized>(&mut self, key: &Q) -> Option<&mut V> {
        let place = self.place(key)?;
        self.use_now(place)
    }

    /// The value of `key`, without counting as a use.
    pub fn peek<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<&V> {
        let entry = self.entries.get(self.place(key)?.index())?.as_ref();
        entry.map(|entry| &entry.value)
    }

    /// All keys, the most recently used first.
    pub fn recent_keys(&self) -> impl Iterator<Item = &K> {
        let entry = |place: Option<CachePlace>| self.entries.get(place?.index())?.as_ref();
        std::iter::successors(entry(self.newest), move |newer| entry(newer.older)).map(|entry| &entry.key)
    }

    /// Stores a value and returns the one it replaces. Evicts the least recently used entry when the cache is full.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let hash = self.hashes.hash_one(&key);
        if let Some(place) = self.place_of(hash, &key) {
            let known = self.use_now(place)?;
            return Some(std::mem::replace(known, value));
        }
        if self.len() >= self.capacity
            && let Some(oldest) = self.oldest
        {
            self.take(oldest);
        }
        let next = CachePlace::after(self.entries.len());
        let place = self.free.pop().or(next)?;
        let entry = Some(CacheEntry {
            hash,
            key,
            value,
            newer: None,
            older: None,
        });
        match self.entries.get_mut(place.index()) {
            Some(free) => *free = entry,
            None => self.entries.push(entry),
        }
        self.link_newest(place);
        let entries = &self.entries;
        self.places.insert_unique(hash, place, |place| {
            let entry = entries.get(place.index()).and_then(Option::as_ref);
            entry.map_or(0, |entry| entry.hash)
        });
        None
    }

    /// Removes an entry and returns its value.
    pub fn remove<Q: Hash + Equivalent<K> + ?Sized>(&mut self, key: &Q) -> Option<V> {
        let place = self.place(key)?;
        self.take(place).map(|entry| entry.value)
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    fn place<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<CachePlace> {
        if self.places.is_empty() {
            return None;
        }
        self.place_of(self.hashes.hash_one(key), key)
    }

    fn place_of<Q: Equivalent<K> + ?Sized>(&self, hash: u64, key: &Q) -> Option<CachePlace> {
        let is_it = |place: &CachePlace| {
            let entry = self.entries.get(place.index()).and_then(Option::as_ref);
            entry.is_some_and(|entry| key.equivalent(&entry.key))
        };
        self.places.find(hash, is_it).copied()
    }

    /// The value of an entry, which counts as used now.
    fn use_now(&mut self, place: CachePlace) -> Option<&mut V> {
        if self.newest != Some(place) {
            self.unlink(place);
            self.link_newest(place);
        }
        self.entry(place).map(|entry| &mut entry.value)
    }

    fn entry(&mut self, place: CachePlace) -> Option<&mut CacheEntry<K, V>> {
        self.entries.get_mut(place.index())?.as_mut()
    }

    /// Takes an entry out of its place.
    fn take(&mut self, place: CachePlace) -> Option<CacheEntry<K, V>> {
        self.unlink(place);
        let entry = self.entries.get_mut(place.index())?.take()?;
        if let Ok(found) = self.places.find_entry(entry.hash, |found| *found == place) {
            found.remove();
        }
        self.free.push(place);
        Some(entry)
    }

    /// Takes an entry out of the list.
    fn unlink(&mut self, place: CachePlace) {
        let Some(entry) = self.entry(place) else {
            return;
        };
        let (newer, older) = (entry.newer.take(), entry.older.take());
        match newer.and_then(|newer| self.entry(newer)) {
            Some(newer) => newer.older = older,
            None => self.newest = older,
        }
        match older.and_then(|older| self.entry(older)) {
            Some(older) => older.newer = newer,
            None => self.oldest = newer,
        }
    }

    /// Puts an entry that is not in the list at its newest end.
    fn link_newest(&mut self, place: CachePlace) {
        let older = self.newest.replace(place);
        if let Some(entry) = self.entry(place) {
            entry.older = older;
        }
        match older.and_then(|older| self.entry(older)) {
            Some(older) => older.newer = Some(place),
            None => self.oldest = Some(place),
        }
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
    fn the_order_of_use_is_that_of_a_list() {
        let mut cache = BoundedCache::new(7);
        let mut keys: Vec<u32> = Vec::new();
        let mut random: u32 = 7;
        for step in 0..20_000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let (key, what) = (random >> 16 & 15, random >> 24 & 3);
            let known = keys.iter().position(|known| *known == key);
            let was_there = match what {
                0 => cache.remove(&key).is_some(),
                1 => cache.get(&key).is_some(),
                _ => cache.insert(key, step).is_some(),
            };
            assert_eq!(was_there, known.is_some());
            if let Some(at) = known {
                keys.remove(at);
            }
            if what > 1 || (what == 1 && was_there) {
                keys.insert(0, key);
            }
            keys.truncate(7);
            assert!(cache.recent_keys().eq(&keys), "{step}");
        }
    }

    #[test]
    fn a_cache_never_exceeds_its_capacity() {
        let mut cache = BoundedCache::new(10);
        for key in 0..1000 {
            cache.insert(key % 37, key);
            cache.get(&(key % 5));
            assert!(cache.len() <= 10);
            assert_eq!(cache.recent_keys().count(), cache.len());
            assert!(cache.entries.len() <= 10, "places are used again");
        }
        assert_eq!(BoundedCache::<u8, u8>::new(0).capacity, 1);
    }
}
