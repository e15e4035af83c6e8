//! The stores for skills and data: every statement of their contracts, and hostile files.

#[cfg(feature = "conformance")]
mod data_statements;
mod hostile_files;
#[cfg(feature = "conformance")]
mod skill_statements;
