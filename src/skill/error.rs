//! Why a skill store does not do what it was asked. Every error names the contract and the store.

/// An error of a skill store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct SkillError {
    /// The store that failed.
    pub implementation: String,
    /// Why.
    pub reason: SkillErrorReason,
}

/// Why it failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SkillErrorReason {
    /// There is no such skill.
    #[error("there is no skill `{0}`")]
    NotFound(String),
    /// The skill exists, and this version of it does not.
    #[error("skill `{name}` has no version `{version}`")]
    VersionNotFound {
        /// The skill.
        name: String,
        /// The version.
        version: String,
    },
    /// It contradicts what is stored.
    #[error("{0}")]
    Conflict(String),
    /// The text or what was passed with it cannot be stored.
    #[error("{0}")]
    Lint(String),
    /// The status cannot be granted here.
    #[error("{0}")]
    ApprovalRejected(String),
    /// The storage failed.
    #[error("{0}")]
    Unavailable(String),
}

impl SkillError {
    /// An error of this store.
    pub fn new(implementation: &str, reason: SkillErrorReason) -> Self {
        Self {
            implementation: implementation.to_owned(),
            reason,
        }
    }

    /// The contract.
    pub fn connector_type(&self) -> &'static str {
        "skill_store"
    }

    /// The contract's name of the error.
    pub fn name(&self) -> &'static str {
        match &self.reason {
            SkillErrorReason::NotFound(_) => "SkillNotFoundError",
            SkillErrorReason::VersionNotFound { .. } => "VersionNotFoundError",
            SkillErrorReason::Conflict(_) => "StorageConflictError",
            SkillErrorReason::Lint(_) => "LintFailureError",
            SkillErrorReason::ApprovalRejected(_) => "ApprovalRejectedError",
            SkillErrorReason::Unavailable(_) => "StorageUnavailableError",
        }
    }
}
