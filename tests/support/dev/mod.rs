//! The embedded servers of `hermes_relay::dev`, with everything that goes wrong in tests in front of them: rules for what
//! becomes of a frame, a request or a call, ports that go down, and a record of what came.
//!
//! A server here is the one of the library, behind a layer over its router and, for the connector, behind the handler of its
//! sockets.

#![allow(unused_imports, reason = "each test binary uses its own part")]

mod api_people;
mod bot_api;
mod bot_api_calls;
mod connector;
mod connector_http;
mod flood_control;
mod html;
mod line;
mod managed_scheduler;
mod rules;
mod seen;
mod server;
mod socket_script;

pub(crate) use api_people::MessageParts;
pub(crate) use bot_api::BotApi;
pub(crate) use bot_api_calls::{BotApiAnswer, BotApiCall, BotApiRule};
pub(crate) use connector::{Connector, FrameKinds, SentMessage};
pub(crate) use connector_http::{DialRule, HttpRoute, HttpRouteFault};
pub(crate) use flood_control::{FloodControl, FloodLimits};
pub(crate) use html::to_html;
pub(crate) use line::StallingLine;
pub(crate) use managed_scheduler::{EmbeddedScheduler, SchedulerFault};
pub(crate) use rules::Rules;
pub(crate) use seen::{SeenFile, SeenMessage, SeenPress};
pub(crate) use socket_script::{OpAnswer, ResultRule, When};

pub(crate) use hermes_relay::dev::{
    ApiChatKind, ApiPerson, BotApiSettings, BotStanding, ClosedBy, ConnectorSettings, Direction, FireAttempt,
    GatewayCredentials, Hint, NotBuffered, PageSettings, PersonFile, PersonMessage, PlatformPreset,
    RecordedFrame, SchedulerSettings, TokenCheck, Trace, Traced, text_event,
};
