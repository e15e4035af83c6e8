//! The parts of the relay. Each owns its state and imports no other part.

pub mod access;
pub mod agents;
pub mod approvals;
pub mod attachments;
pub mod changes;
pub mod chats;
pub mod conversations;
pub mod group_threads;
pub mod handed;
pub mod inbound;
pub mod job_files;
pub mod journal_io;
pub mod lifecycle;
pub mod link;
pub mod listings;
pub mod messages;
pub mod outbox;
pub mod pickers;
pub mod quiet;
pub mod scheduler;
pub mod slash_commands;
pub mod sleep;
pub mod suspend;
pub mod turn_task;
pub mod turns;
