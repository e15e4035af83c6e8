//! `hermes-relay`: the dial-out half of the Hermes relay contract.
//!
//! One program, one socket, many conversations. The relay dials out to a *connector* (which holds the bots and
//! their secrets), learns from capability descriptors what each platform can do, and turns every message into
//! one turn of an *agent*: durably, in order, stoppable, answered exactly once. It holds no platform secret and
//! listens on no port unless asked to.
//!
//! # Words
//!
//! relay (this program) · connector (the other end) · agent (who answers) · link (the connection to the
//! connector) · frame · op (an outbound action) · chat · session (one conversation, named by its session key) ·
//! turn (one run of the agent) · journal (the durable inbox and outbox) · identity (platform, bot id).
//!
//! # Map
//!
//! Imports point down only; `tests/pure/layers` reads the sources and fails on an arrow that points up.
//!
//! | | module | what it is |
//! |---|---|---|
//! | L5 | [`cli`] | one file per verb: what was typed, what is done, what is printed; the program's log with its redaction, and with `otlp` its traces |
//! | | `dev` | the embedded connector: the other end of the contract on loopback, and its chat page |
//! | | [`check`] | the doctor's probes, each with a remedy |
//! | L4 | [`relay`] | the running thing: drives link, sessions, store and agents; counts |
//! | | [`serve`] | the owner's control socket, and the HTTP listener that is off unless it is wanted |
//! | L3 | [`config`] | what was written and what it means; every option and variable in one list |
//! | L2 | [`store`] | the journal on SQLite; the only module that names the database crate |
//! | | [`net`] | dialling, TLS, proxies, HTTP to the connector and to agents; the only one that names those crates |
//! | | [`agent`] | who answers: one trait, one file per backend; those behind HTTP go through `net` |
//! | L1 | [`link`] | the connection as a state machine · *pure* |
//! | | [`session`] | whose turn it is, and what waits to go out, as state machines · *pure* |
//! | | [`adapter`] | what may be said where, and how: speech, splitting, prompts, budgets, media, chat memory, interactions · *pure* |
//! | L0 | [`wire`] | what travels: frames, events, session keys, actions, tokens, lines, server-sent events · *pure* |
//! | | [`collections`], [`backoff`], [`text`] | maps by id and a bounded cache, exponential backoff, text truncation · *pure* |
//!
//! The pure modules do no I/O and read no clock: time comes in as `now`, chance as a seed.
//!
//! # A message, from socket to reply
//!
//! 1. `net` yields one WebSocket message; [`wire::LineFramer`] cuts lines and [`wire::ConnectorFrame::decode`]
//!    reads each. A frame that cannot be used is counted, set aside in the journal when the connector waits for
//!    an acknowledgement, and never harms the next one.
//! 2. Results of ops and descriptors go to [`link::Link`] at once; the task that resolves them waits for nobody. Only
//!    when the journal is behind does the socket's reader wait, and the network with it.
//! 3. A message gets its session key, and [`session::Sessions`] says whether it may start at once. It goes to the
//!    journal's writer, which commits everything that is waiting with one fsync.
//! 4. Committed: only now is it acknowledged — the acknowledgement needs a [`store::Committed`], which only the
//!    store can make. A duplicate is acknowledged again and not run again.
//! 5. The turn runs, with the agent that a route, a person's choice or the settings name: in a task of its own, or, with
//!    an agent that answers at once, polled once where it begins and only then, if it waits after all, in a task.
//!    Messages of the same session wait in the journal, by row number.
//! 6. What the agent says goes to the turn's [`adapter::ReplyStream`], which plans what the chat sees of it and when: drafts,
//!    edits, parts, typing, reactions. Those ops are not journaled; text among them keeps its place in the chat's lane,
//!    and everything draws on the chat's budget. What the agent asks becomes a prompt, and its answer never passes
//!    through the reader.
//! 7. The turn ends: the answer's ops and "done" are one commit, and then the ops go out, one at a time per chat
//!    ([`session::Lanes`]). While the link is down they wait, and go out in order after the next handshake. An op
//!    whose outcome is unknown is not repeated unless repeating it is harmless. A part of the answer that the connector
//!    declines ends all of it, while the turn runs and after a restart. That an op is out is written down a
//!    moment after it went; a process killed in that moment sends it again, and counts it.
//!
//! After a crash: rows that were not started run; a turn that was running is told to the chat as cut short and
//! not run again, because agents act on the world; what was owed goes out. A turn that said nothing has its end written
//! down up to 50 ms later, so a crash in that moment tells it as cut short too.
//!
//! A panic is such a crash in the program, which aborts; in an embedder's build that unwinds, an agent's panic fails its
//! own turn and nothing else.
//!
//! # An interrupt
//!
//! `interrupt_inbound` names a session. The turn that it meets is told to stop through its cancellation token and
//! is given up when it has not stopped within the grace period; it ends once, either way. Its open questions are taken
//! back. A stale or unknown key does nothing. Messages that waited stay, and run.
//!
//! # A sleep
//!
//! Where someone can wake it and it was told that it may, a relay without work closes its socket: [`session::IdleWatch`]
//! says when, the connector is asked to buffer and has to say that it does, and work is looked for again before and after
//! the socket goes. Then the process ends, the machine is suspended, or it waits. Whatever calls a sleep off dials anew,
//! because a connector that was asked to buffer delivers on a new connection only.
//!
//! # Invariants
//!
//! 1. Nothing is acknowledged before it is committed (`store`, `tests/relay/sessions`).
//! 2. Outside `Ended`, the link has a timer armed: it cannot hang (`link` random walks).
//! 3. Every turn ends exactly once (`session` random walks).
//! 4. Every queue, buffer, cache and line has a bound, and says what happens at it.
//! 5. The library takes no process-wide liberty: no signal handler, no global subscriber, no exit, no environment.
//! 6. Secrets are never printed, logged, put on a command line or handed to a child; message text is never logged
//!    (`tests/relay/link`). Under the log is a net that hides known secrets all the same (`cli`).
//! 7. The bearer goes to the connector's own origin and nowhere else (`tests/relay/dial`, `tests/relay/media`), an
//!    agent's key to the agent's (`tests/agents/http_agents`).
//! 8. It never listens on the network unless `serve.http` is set, and on loopback alone unless `serve.allow_remote` is;
//!    the embedded connector of `dev` listens on loopback (`tests/program/operate`).
//!
//! # Where things are added
//!
//! | to add | declare | what catches you |
//! |---|---|---|
//! | a frame or op | a variant in [`wire`] | exhaustive matches; the golden files |
//! | a backend | a file in [`agent`], a kind in `config::agents`, a line in `relay::hiring` | `tests/agents/conformance` runs it through every case |
//! | what a platform can do | the descriptor's flag or op in [`adapter::stream`] | its tables of exact ops, and `tests/relay/adapter` |
//! | a metric | `relay::metrics`, `serve`'s page, `docs/metrics.md` | page and document are compared |
//! | a verb | a file in [`cli`] and a variant | help is checked |
//! | a probe | a function and a line of the table in [`check`] | its id must be its own, its remedy not empty |
//! | an option | the section in [`config`], `config.example.yaml` | the example must show every option |

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod adapter;
pub mod agent;
pub mod backoff;
pub mod check;
pub mod cli;
pub mod collections;
pub mod config;
#[cfg(feature = "dev")]
pub mod dev;
pub mod link;
pub mod net;
pub mod relay;
pub mod serve;
pub mod session;
pub mod store;
pub mod text;
pub mod wire;
