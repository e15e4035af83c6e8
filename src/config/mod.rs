//! What was written, and what it means: flags, environment, files, and where each value came from.

pub mod dotenv;
pub mod dotenv_write;
mod whatsapp;
pub mod yaml;

pub use whatsapp::AliasFiles;
