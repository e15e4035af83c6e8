//! `/model` through a worker: the agent there offers and switches, the relay shows it as of an agent of its own.

use hermes_relay::agent::{
    Agent, AgentFuture, AgentInfo, Preference, PreferenceAnswer, PreferenceOffer, PreferenceOption,
    PreferenceRequest, Turn, TurnEnd,
};

use crate::support::memory_relay::start_with;
use crate::{Server, answered};

/// Has two models, and keeps which one a conversation uses in its saved state.
#[derive(Clone)]
struct TwoModels;

async fn current(turn: &Turn) -> String {
    let state = turn.events.load_state().await;
    state.map_or_else(
        || "small".to_owned(),
        |state| String::from_utf8_lossy(&state).into_owned(),
    )
}

impl Agent for TwoModels {
    fn info(&self) -> AgentInfo {
        AgentInfo {
            name: "two-models".into(),
            ..AgentInfo::default()
        }
    }

    fn run(&self, turn: Turn) -> AgentFuture<'_, TurnEnd> {
        Box::pin(async move {
            let model = current(&turn).await;
            turn.events.text(format!("I am {model}")).await;
            TurnEnd::Completed
        })
    }

    fn prefer(&self, turn: Turn, request: PreferenceRequest) -> AgentFuture<'_, PreferenceAnswer> {
        Box::pin(async move {
            if request.preference == Preference::Mode {
                return PreferenceAnswer::Unsupported;
            }
            let options = [("small", "Small"), ("large", "Large")];
            let options = options
                .into_iter()
                .filter_map(|(id, name)| PreferenceOption::new(id, Some(name)));
            let offer = PreferenceOffer::new(options, Some(current(&turn).await)).expect("two options");
            let Some(choice) = request.choice else {
                return PreferenceAnswer::Offered(offer);
            };
            match offer.find(&choice).cloned() {
                None => PreferenceAnswer::NoSuchOption(offer),
                Some(option) => {
                    turn.events.save_state(option.id.clone().into_bytes()).await;
                    PreferenceAnswer::Changed(option)
                }
            }
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_of_an_agent_on_a_worker_is_listed_and_chosen() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let worker = server.worker(TwoModels, 1).await;
    let relay = start_with(dir.path(), server.agent(|_| {}), |_| {}).await;
    let changed = "The model is Large from now on, in this conversation.";
    relay.deliver("a", "1", "/model 2").await;
    answered(&relay, "a", &[changed]).await;
    relay.deliver("a", "2", "who are you?").await;
    answered(&relay, "a", &[changed, "I am large"]).await;
    relay.deliver("b", "1", "/model").await;
    relay
        .seen("the list", |seen| {
            let mut ops = seen.ops.iter().filter(|op| op.action["chat_id"] == "b");
            ops.any(|op| {
                let text = op.action.to_string();
                text.contains("Small") && text.contains("Large")
            })
        })
        .await;
    // What the agent does not offer is said, too.
    relay.deliver("c", "1", "/mode").await;
    let told = relay.replies("c", 1).await;
    assert!(told[0].contains("mode"), "{told:?}");
    relay.stop().await;
    worker.stop.cancel();
    worker.task.await.unwrap();
}
