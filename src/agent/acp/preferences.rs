//! What an agent lets people choose in a session: its config options, modes and models. Pure.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::agent::{Preference, PreferenceOffer, PreferenceOption};

/// Sessions of a process whose options are known; further ones offer nothing until they are opened again.
const MAX_KNOWN: usize = 4096;
/// Options in a list, its groups counted together.
const MAX_VALUES: usize = 1000;

/// What people chose in a conversation; it is set again when its session is opened again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Chosen {
    /// The model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) model: Option<String>,
    /// The mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) mode: Option<String>,
}

impl Chosen {
    /// What was chosen, if anything was.
    pub(super) fn get(&self, preference: Preference) -> Option<&str> {
        match preference {
            Preference::Model => self.model.as_deref(),
            Preference::Mode => self.mode.as_deref(),
        }
    }

    /// Chooses an option, or none.
    pub(super) fn set(&mut self, preference: Preference, id: Option<String>) {
        match preference {
            Preference::Model => self.model = id,
            Preference::Mode => self.mode = id,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What a session offers, as its agent reported it last.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SessionOptions {
    modes: Value,
    models: Value,
    options: Value,
}

/// How one thing is chosen in a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Selector {
    pub(super) offer: PreferenceOffer,
    way: Way,
}

/// The request that chooses.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Way {
    /// `session/set_config_option`, with this id.
    Option(String),
    /// `session/set_mode`.
    Mode,
    /// `session/set_model`.
    Model,
}

impl SessionOptions {
    /// Reads the answer to a request that opened a session.
    pub(super) fn read(answer: &Value) -> Self {
        Self {
            modes: answer["modes"].clone(),
            models: answer["models"].clone(),
            options: answer["configOptions"].clone(),
        }
    }

    /// Takes an update of the session.
    fn update(&mut self, update: &Value) {
        match update["sessionUpdate"].as_str() {
            Some("current_mode_update") if self.modes.is_object() => {
                self.modes["currentModeId"] = update["currentModeId"].clone();
            }
            Some("config_option_update") if update["configOptions"].is_array() => {
                self.options = update["configOptions"].clone();
            }
            _ => {}
        }
    }

    /// How this is chosen here; `None` when the agent does not offer it. Config options come first: where an agent has both,
    /// its modes are kept for clients that know nothing else.
    pub(super) fn selector(&self, preference: Preference) -> Option<Selector> {
        let own = self.option(preference);
        own.or_else(|| match preference {
            Preference::Mode => Some(Selector {
                offer: listed(&self.modes, "availableModes", "id", "currentModeId")?,
                way: Way::Mode,
            }),
            Preference::Model => Some(Selector {
                offer: listed(&self.models, "availableModels", "modelId", "currentModelId")?,
                way: Way::Model,
            }),
        })
    }

    fn option(&self, preference: Preference) -> Option<Selector> {
        let options = self.options.as_array()?;
        let of_category = |option: &&Value| option["category"].as_str() == Some(preference.name());
        let of_id = |option: &&Value| option["id"].as_str() == Some(preference.name());
        let option = (options.iter().find(of_category)).or_else(|| options.iter().find(of_id))?;
        // Groups of values are one list.
        let values = option["options"]
            .as_array()?
            .iter()
            .flat_map(|entry| match &entry["options"] {
                Value::Array(group) => group.as_slice(),
                _ => std::slice::from_ref(entry),
            });
        let values = values
            .take(MAX_VALUES)
            .filter_map(|value| PreferenceOption::new(value["value"].as_str()?, value["name"].as_str()));
        Some(Selector {
            offer: PreferenceOffer::new(values, text(&option["currentValue"]))?,
            way: Way::Option(option["id"].as_str()?.to_owned()),
        })
    }

    /// The agent has answered a choice with success: whether what it reports is what was chosen. What is chosen is in use then.
    pub(super) fn confirm(&mut self, selector: &Selector, answer: &Value, id: &str) -> bool {
        match &selector.way {
            Way::Mode => self.modes["currentModeId"] = json!(id),
            Way::Model => self.models["currentModelId"] = json!(id),
            Way::Option(config) => {
                let Some(reported) = answer["configOptions"].as_array() else {
                    return true;
                };
                let mut reported = reported.iter();
                let now = reported.find(|option| option["id"].as_str() == Some(config));
                let is_confirmed = now.is_none_or(|now| now["currentValue"].as_str() == Some(id));
                if now.is_some() {
                    self.options = answer["configOptions"].clone();
                }
                return is_confirmed;
            }
        }
        true
    }
}

impl Selector {
    /// The request that chooses an option: its method and parameters.
    pub(super) fn request(&self, session: &str, id: &str) -> (&'static str, Value) {
        match &self.way {
            Way::Option(config) => (
                "session/set_config_option",
                json!({"sessionId": session, "configId": config, "value": id}),
            ),
            Way::Mode => ("session/set_mode", json!({"sessionId": session, "modeId": id})),
            Way::Model => ("session/set_model", json!({"sessionId": session, "modelId": id})),
        }
    }
}

fn listed(place: &Value, list: &str, id: &str, current: &str) -> Option<PreferenceOffer> {
    let options = place[list].as_array()?.iter().take(MAX_VALUES);
    let options =
        options.filter_map(|option| PreferenceOption::new(option[id].as_str()?, option["name"].as_str()));
    PreferenceOffer::new(options, text(&place[current]))
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

/// What the sessions of a process offer.
#[derive(Debug, Default)]
pub(super) struct KnownOptions(HashMap<String, SessionOptions>);

impl KnownOptions {
    /// A session was opened, or its options have changed.
    pub(super) fn set(&mut self, session: &str, options: SessionOptions) {
        if self.0.len() < MAX_KNOWN || self.0.contains_key(session) {
            self.0.insert(session.to_owned(), options);
        }
    }

    /// What a session offers.
    pub(super) fn get(&self, session: &str) -> SessionOptions {
        self.0.get(session).cloned().unwrap_or_default()
    }

    /// Takes an update of a session.
    pub(super) fn update(&mut self, session: &str, update: &Value) {
        if let Some(options) = self.0.get_mut(session) {
            options.update(update);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(selector: &Selector) -> Vec<&str> {
        selector
            .offer
            .options
            .iter()
            .map(|option| option.id.as_str())
            .collect()
    }

    #[test]
    fn modes_and_models_are_offered_as_the_agent_lists_them() {
        let answer = json!({
            "modes": {"currentModeId": "ask", "availableModes": [{"id": "ask", "name": "Ask"}, {"id": "plan"}, {"name": "x"}]},
            "models": {"currentModelId": "m1", "availableModels": [{"modelId": "m1", "name": "One"}]},
        });
        let mut options = SessionOptions::read(&answer);
        let mode = options.selector(Preference::Mode).unwrap();
        assert_eq!(ids(&mode), ["ask", "plan"]);
        let (method, params) = mode.request("s", "plan");
        assert_eq!((method, &params["modeId"]), ("session/set_mode", &json!("plan")));
        assert!(options.confirm(&mode, &json!({}), "plan"));
        let now = options.selector(Preference::Mode).unwrap();
        assert_eq!(now.offer.current.as_deref(), Some("plan"));
        options.update(&json!({"sessionUpdate": "current_mode_update", "currentModeId": "ask"}));
        let now = options.selector(Preference::Mode).unwrap();
        assert_eq!(now.offer.current.as_deref(), Some("ask"));
        let model = options.selector(Preference::Model).unwrap();
        assert_eq!(model.request("s", "m1").0, "session/set_model");
        assert_eq!(SessionOptions::default().selector(Preference::Model), None);
    }

    #[test]
    fn config_options_come_first_and_only_what_is_reported_is_confirmed() {
        let model = |current: &str| {
            json!([{"id": "llm", "category": "model", "type": "select", "currentValue": current, "options": [
                {"group": "g", "name": "Group", "options": [{"value": "a", "name": "A"}]}, {"value": "b", "name": "B"}]}])
        };
        let answer =
            json!({"configOptions": model("a"), "models": {"availableModels": [{"modelId": "old"}]}});
        let mut options = SessionOptions::read(&answer);
        let selector = options.selector(Preference::Model).unwrap();
        assert_eq!(ids(&selector), ["a", "b"]);
        assert_eq!(selector.request("s", "b").1["configId"], "llm");
        assert!(!options.confirm(&selector, &json!({"configOptions": model("a")}), "b"));
        assert!(options.confirm(&selector, &json!({"configOptions": model("b")}), "b"));
        let now = options.selector(Preference::Model).unwrap();
        assert_eq!(now.offer.current.as_deref(), Some("b"));
        options.update(&json!({"sessionUpdate": "config_option_update", "configOptions": model("a")}));
        let now = options.selector(Preference::Model).unwrap();
        assert_eq!(now.offer.current.as_deref(), Some("a"));
    }
}
