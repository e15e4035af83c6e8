//! Who may do what in `dev`: whoever uses it is an owner. With `--access` the rules of the settings hold on the page, and only
//! the person at the keyboard is an owner.

use crate::access::{AccessSettings, LimitSettings, PersonRule, Role};
use crate::config::Settings;

/// The person at the keyboard.
pub(super) const KEYBOARD: &str = "you";

/// Makes people of this run owners by settings; returns what to print about it. `page` has the ids of those on the page.
pub(super) fn admit(
    settings: &mut Settings,
    platform: &str,
    page: impl Iterator<Item = String>,
    tries_rules: bool,
) -> Option<String> {
    let owner = |user: String| PersonRule {
        platform: platform.to_owned(),
        user,
        role: Role::Owner,
        ..PersonRule::default()
    };
    let has_rules = settings.access.is_active();
    match (has_rules, tries_rules) {
        (false, false) => None,
        (false, true) => {
            Some("The settings have no access rules to try: everybody on the page may write.".to_owned())
        }
        (true, true) => {
            settings.access.people.push(owner(KEYBOARD.to_owned()));
            Some(format!(
                "Your access rules hold on the page; at this keyboard you are an owner. Let somebody in:\n  hermes-relay access \
                 approve CODE --state-dir {}",
                settings.state_dir.display()
            ))
        }
        (true, false) => {
            settings.access = AccessSettings {
                people: page.chain([KEYBOARD.to_owned()]).map(owner).collect(),
                limits: LimitSettings {
                    per_user_per_minute: None,
                    ..LimitSettings::default()
                },
                ..AccessSettings::default()
            };
            Some(
                "You and the people on the page are owners here; --access tries your access rules."
                    .to_owned(),
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::{Author, EventKind, Gate, Mode};
    use crate::wire::{NoAliases, Platform};

    fn role(settings: &Settings, user: &str) -> Option<Role> {
        let ids = vec![user.into()];
        let author = Author::new(&Platform::SLACK, ids, Vec::new(), true, &NoAliases);
        let verdict = Gate::new(settings.access.clone(), []).decide(&author, EventKind::Message, None);
        verdict.role.filter(|_| verdict.allowed)
    }

    #[test]
    fn people_here_are_owners_unless_the_rules_are_tried() {
        let page = || ["u1", "u2"].map(str::to_owned).into_iter();
        let mut settings = Settings::embedded("state");
        assert_eq!(admit(&mut settings, "slack", page(), false), None);
        settings.access.mode = Mode::Pair;
        let mut tried = settings.clone();
        admit(&mut settings, "slack", page(), false).unwrap();
        for user in ["u1", "u2", KEYBOARD] {
            assert_eq!(role(&settings, user), Some(Role::Owner), "{user}");
        }
        let said = admit(&mut tried, "slack", page(), true).unwrap();
        assert!(said.contains("--state-dir state"), "{said}");
        assert_eq!(
            (role(&tried, "u1"), role(&tried, KEYBOARD)),
            (None, Some(Role::Owner))
        );
    }
}
