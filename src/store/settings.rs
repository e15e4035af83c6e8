//! The journal's settings and bounds. It never reads a file: the configuration fills it in.

/// What a commit survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Durability {
    /// The machine losing power: every commit waits for the disk.
    #[default]
    Full,
    /// The process dying. The last commits may be lost with the machine; the file stays sound.
    Process,
}

/// How the journal is kept, and its bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalSettings {
    /// What a commit survives.
    pub durability: Durability,
    /// Days for which a delivery is recognised as a duplicate. At least 1.
    pub dedupe_days: u32,
    /// Days for which finished messages stay listed (without their text).
    pub keep_days: u32,
    /// Size of the database in use at which the oldest finished records go early. Unfinished ones never do.
    pub max_bytes: u64,
    /// Chats remembered; the least recently used go first.
    pub chat_memory: u32,
    /// Quarantined lines kept; the oldest go first.
    pub quarantine_rows: u32,
    /// Bytes of quarantined lines kept; a longer line is cut.
    pub quarantine_bytes: u64,
    /// Commands waiting or being retried; each KiB of payload counts as one more. Submitters wait at it.
    pub queue: u32,
    /// Finished batches waiting for their reader; the writer waits at it.
    pub batches: u32,
    /// How long a commit waits for another program that locks the database, in milliseconds.
    pub lock_wait_ms: u32,
    /// Page cache of the database in KiB.
    pub cache_kib: u32,
    /// Rows of each kind read at opening; the rest is paged with commands.
    pub recover_rows: u32,
    /// A corrupt database is moved aside and a fresh one begun, instead of an error.
    pub fresh_on_corruption: bool,
}

impl Default for JournalSettings {
    fn default() -> Self {
        Self {
            durability: Durability::Full,
            dedupe_days: 7,
            keep_days: 7,
            max_bytes: 1 << 30,
            chat_memory: 10_000,
            quarantine_rows: 100,
            quarantine_bytes: 4 << 20,
            queue: 16 << 10,
            batches: 64,
            lock_wait_ms: 5000,
            cache_kib: 4 << 10,
            recover_rows: 4096,
            fresh_on_corruption: false,
        }
    }
}
