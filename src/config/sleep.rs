//! Scale to zero: who switches it on, and after how long a silence.
//!
//! Our own file says it, or Hermes' variable and Hermes' `config.yaml`. It never arms anything by itself.

use super::layers::Layers;
use super::tuning::Sleep;
use super::{Origin, env};

/// Hermes' own key for the silence, in minutes.
const IDLE_MINUTES: &str = "gateway.scale_to_zero.idle_timeout_minutes";
/// The longest silence that is taken from Hermes' file.
const MOST_MINUTES: f64 = 7.0 * 24.0 * 60.0;

impl Layers<'_> {
    pub(super) fn sleep(&mut self, wakeable: bool) -> Sleep {
        let mut sleep = self.tree().sleep;
        let own = |layers: &Self, key: &str| layers.own.as_ref().is_some_and(|own| own.sets(key));
        let said = own(self, "sleep.enabled").then(|| sleep.enabled.to_string());
        if let Some((word, origin)) = self.ask(env::SCALE_TO_ZERO, said.as_ref(), None) {
            sleep.enabled = self.noted("sleep.enabled", origin, is_on(&word));
        }
        if !own(self, "sleep.idle_secs")
            && let Some(secs) = self.hermes.text(IDLE_MINUTES).as_deref().and_then(seconds)
        {
            let origin = Origin::HermesConfig(self.hermes.path.clone());
            sleep.idle_secs = self.noted("sleep.idle_secs", origin, secs);
        }
        if sleep.enabled && !wakeable {
            self.warnings.push(
                "sleep is switched on and no wake URL is known, so the relay stays awake: set `connector.wake_url`"
                    .to_owned(),
            );
        }
        sleep
    }
}

/// Hermes takes these words for yes, and everything else for no.
fn is_on(word: &str) -> bool {
    ["1", "true", "yes", "on"]
        .iter()
        .any(|on| word.eq_ignore_ascii_case(on))
}

/// Minutes that are a number above zero, in seconds; nothing else counts.
fn seconds(minutes: &str) -> Option<u64> {
    let minutes = minutes.parse::<f64>().ok()?;
    (minutes > 0.0).then(|| {
        std::time::Duration::from_secs_f64(minutes.min(MOST_MINUTES) * 60.0)
            .as_secs()
            .max(1)
    })
}

#[cfg(test)]
mod tests {
    use super::super::stage::Stage;
    use super::*;

    #[test]
    fn minutes_that_are_no_number_above_zero_count_for_nothing() {
        for (text, wanted) in [
            ("2", Some(120)),
            ("0.5", Some(30)),
            ("0.001", Some(1)),
            ("1e300", Some(604_800)),
        ] {
            assert_eq!(seconds(text), wanted, "{text}");
        }
        for text in ["0", "-3", "NaN", "soon", ""] {
            assert_eq!(seconds(text), None, "{text}");
        }
    }

    #[test]
    fn the_variable_switches_it_on_and_beats_our_file_and_the_silence_may_come_from_hermes() {
        let stage = Stage::new()
            .file(
                "config.yaml",
                "gateway: {relay_wake_url: 'https://w', scale_to_zero: {idle_timeout_minutes: 2}}\n",
            )
            .file(".env", "HERMES_SCALE_TO_ZERO=Yes\n");
        let loaded = stage.load();
        assert!(loaded.settings.sleep.enabled && loaded.warnings.is_empty());
        assert_eq!(loaded.settings.sleep.idle_secs, 120);
        assert_eq!(
            loaded.origins.of("sleep.enabled"),
            &Origin::HermesEnv(stage.path(".env"))
        );
        assert_eq!(
            loaded.origins.of("sleep.idle_secs"),
            &Origin::HermesConfig(stage.path("config.yaml"))
        );
        let stage = stage.file("relay.yaml", "sleep: {enabled: false, idle_secs: 7}\n");
        let loaded = stage.load();
        assert!(!loaded.settings.sleep.enabled);
        assert_eq!(loaded.settings.sleep.idle_secs, 7);
        let loaded = stage.env("HERMES_SCALE_TO_ZERO", "1").load();
        assert!(loaded.settings.sleep.enabled);
        assert_eq!(
            loaded.origins.of("sleep.enabled"),
            &Origin::Env("HERMES_SCALE_TO_ZERO".into())
        );
    }

    #[test]
    fn any_other_word_is_no_and_without_a_wake_url_a_warning_says_what_is_missing() {
        let stage = Stage::new().env("HERMES_SCALE_TO_ZERO", "please");
        assert!(!stage.load().settings.sleep.enabled);
        let loaded = stage.env("HERMES_SCALE_TO_ZERO", "ON").load();
        assert!(
            loaded.warnings[0].contains("connector.wake_url"),
            "{:?}",
            loaded.warnings
        );
    }
}
