//! An agent whose turns are a function of the test.

use std::future::Future;
use std::sync::Arc;

use hermes_relay::agent::{Agent, AgentCommand, AgentFuture, AgentInfo, Turn, TurnEnd, TurnInput};
use hermes_relay::wire::SessionKey;

type Script = dyn Fn(Turn) -> AgentFuture<'static, TurnEnd> + Send + Sync;
type Steer = dyn Fn(&TurnInput) -> bool + Send + Sync;

/// Runs the test's function; clones run the same one.
#[derive(Clone)]
pub(crate) struct ScriptedAgent {
    info: AgentInfo,
    script: Arc<Script>,
    steer: Arc<Steer>,
    inline: bool,
    commands: Vec<AgentCommand>,
}

impl ScriptedAgent {
    pub(crate) fn new<F>(script: impl Fn(Turn) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = TurnEnd> + Send + 'static,
    {
        Self {
            info: AgentInfo {
                name: "scripted".into(),
                ..AgentInfo::default()
            },
            script: Arc::new(move |turn| Box::pin(script(turn))),
            steer: Arc::new(|_| false),
            inline: false,
            commands: Vec::new(),
        }
    }

    /// The same with a state that the turns and the test share.
    pub(crate) fn sharing<S, F>(
        state: &Arc<S>,
        script: impl Fn(Turn, Arc<S>) -> F + Send + Sync + 'static,
    ) -> Self
    where
        S: Send + Sync + 'static,
        F: Future<Output = TurnEnd> + Send + 'static,
    {
        let state = Arc::clone(state);
        Self::new(move |turn| script(turn, Arc::clone(&state)))
    }

    pub(crate) fn with_info(self, info: AgentInfo) -> Self {
        Self { info, ..self }
    }

    /// Takes messages for a running turn, as far as `steer` does.
    pub(crate) fn steered(mut self, steer: impl Fn(&TurnInput) -> bool + Send + Sync + 'static) -> Self {
        self.info.steers = true;
        self.steer = Arc::new(steer);
        self
    }

    pub(crate) fn inline(self, inline: bool) -> Self {
        Self { inline, ..self }
    }

    pub(crate) fn with_commands(self, commands: Vec<AgentCommand>) -> Self {
        Self { commands, ..self }
    }
}

impl Agent for ScriptedAgent {
    fn info(&self) -> AgentInfo {
        self.info.clone()
    }

    fn run(&self, turn: Turn) -> AgentFuture<'_, TurnEnd> {
        (self.script)(turn)
    }

    fn answers_inline(&self) -> bool {
        self.inline
    }

    fn steer(&self, _session: &SessionKey, input: &TurnInput) -> bool {
        (self.steer)(input)
    }

    fn commands(&self) -> Vec<AgentCommand> {
        self.commands.clone()
    }
}
