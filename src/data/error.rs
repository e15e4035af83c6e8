//! Why a data store does not do what it was asked.

/// An error of a data store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DataError {
    /// The caller named filters that the store does not apply.
    #[error("the {substrate} store has no filter {}", unsupported_keys.join(", "))]
    UnsupportedFilter {
        /// The keys that it does not apply.
        unsupported_keys: Vec<String>,
        /// The keys that it does.
        supported_keys: Vec<String>,
        /// The kind of store.
        substrate: String,
    },
    /// The store cannot search like this.
    #[error("the {substrate} store has no mode `{mode}`; it has {}", supported_modes.join(", "))]
    UnsupportedMode {
        /// The wanted mode.
        mode: String,
        /// Its modes.
        supported_modes: Vec<String>,
        /// The kind of store.
        substrate: String,
    },
    /// What was passed cannot be used.
    #[error("{0}")]
    Invalid(String),
    /// The store is full.
    #[error("{0}")]
    Full(String),
    /// The store cannot be written.
    #[error("the {0} store is read-only")]
    ReadOnly(String),
    /// The storage failed.
    #[error("{0}")]
    Unavailable(String),
}

impl DataError {
    /// The contract.
    pub fn connector_type(&self) -> &'static str {
        "data_store"
    }

    /// The contract's name of the error.
    pub fn name(&self) -> &'static str {
        match self {
            Self::UnsupportedFilter { .. } => "UnsupportedFilterError",
            Self::UnsupportedMode { .. } => "UnsupportedModeError",
            Self::Invalid(_) => "InvalidDataError",
            Self::Full(_) => "StorageFullError",
            Self::ReadOnly(_) => "ReadOnlyError",
            Self::Unavailable(_) => "StorageUnavailableError",
        }
    }
}
