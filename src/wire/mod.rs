//! The wire format: frames and everything in them, as plain data. Pure.
//!
//! Items have the contract's names. Nothing here panics on what a peer sends: a value is decoded, coerced by a documented
//! rule, or rejected with a typed error.

mod action;
mod action_text;
mod album;
pub mod close_code;
mod decode;
mod descriptor;
mod event;
mod frame;
mod gateway_frame;
mod json_reader;
mod json_text;
mod lines;
mod metadata;
mod op;
mod policy;
mod scalar;
mod schema;
mod session_key;
mod slack;
mod source;
mod sse;
mod token;
mod url;

pub use action::{Action, PRIVATE_REPLY, PROMPT_TOKEN, PromptButton};
pub use action_text::ActionText;
pub use album::{ALBUMS, AlbumFile, MAX_ALBUM};
pub use decode::DecodeError;
pub use descriptor::{CapabilityDescriptor, LEGACY_OPS, LenUnit, TABLES};
pub use event::{MessageEvent, MessageType, render_context};
pub use frame::{ConnectorFrame, PassthroughForward, Undecodable};
pub use gateway_frame::GatewayFrame;
pub use json_text::object_of_texts;
pub use lines::{DEFAULT_MAX_LINE_BYTES, Line, LineFramer};
pub use metadata::Metadata;
pub(crate) use op::split_mix;
pub use op::{OpId, OpIds, OpResult, Outcome};
pub use policy::RelevancePolicy;
pub use scalar::{Loose, Scalar, is_truthy, text_of};
pub use schema::{FROM_CONNECTOR, problems};
pub use session_key::{
    Grouping, JOB_SESSION, NoAliases, SessionKey, WhatsAppAliases, canonical_whatsapp_id, whatsapp_ids,
};
pub use slack::CommandMap;
pub use source::{OwnPlatforms, Platform, SessionSource, role_ids};
pub use sse::{MAX_EVENT_BYTES, SseError, SseEvent, SseParser};
pub use token::{TOKEN_TTL_SECS, UpgradeToken, sign, sign_bytes};
pub use url::{ConnectorUrl, UrlError, is_loopback_host};
