//! A relay that speaks to platforms which can do more or less: the embedded connector plays them over a real socket.

mod flood;
mod presets;
mod rig;
mod stopping;
mod trouble;
