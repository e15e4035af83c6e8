//! Who and what there is in a walk: people, chats, the rules about people as they change, and the settings of the relay.

use std::path::Path;

use hermes_relay::access::{Denial, Mode, PersonRule, Role};
use hermes_relay::adapter::prompt::Approvers;
use hermes_relay::adapter::stream::StreamMode;
use hermes_relay::config::{BotIdentity, BusyMode, Durability, ReceiverConfig, Settings};
use hermes_relay::wire::CapabilityDescriptor;
use serde_json::{Value, json};

use super::agent::Tick;

/// A platform that the contract knows, and one by a connector's own name. People and chats have the same ids on both.
pub(super) const PLATFORMS: [&str; 2] = ["discord", OWN];
pub(super) const OWN: &str = "acme-chat";
/// Where the answers of sessions without a chat go.
pub(super) const HOME: (&str, &str) = ("discord", "home");
pub(super) const CUT_SHORT: &str = "cut short";

/// A small generator, so that a walk can be repeated by its seed.
pub(super) struct Rng(u64);

impl Rng {
    pub(super) fn new(seed: u64) -> Self {
        let mut rng = Self(seed ^ 0x9e37_79b9_7f4a_7c15);
        rng.below(2);
        rng
    }

    pub(super) fn below(&mut self, most: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap_or(0) % most
    }

    pub(super) fn percent(&mut self, chance: usize) -> bool {
        self.below(100) < chance
    }

    pub(super) fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        (!from.is_empty()).then(|| from[self.below(from.len())])
    }

    /// One of these, each as often as its weight says.
    pub(super) fn weighted<T: Copy>(&mut self, from: &[(usize, T)]) -> T {
        let mut at = self.below(from.iter().map(|(weight, _)| weight).sum());
        for (weight, what) in from {
            if at < *weight {
                return *what;
            }
            at -= weight;
        }
        from[0].1
    }
}

/// How the relay of a walk is set up.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    mode: Mode,
    /// Whether the settings say something about people; limits hold only then.
    pub(super) has_section: bool,
    busy_mode: BusyMode,
    approvers: Approvers,
    pub(super) streams: bool,
    /// The agents that do nothing but answer.
    pub(super) repeatable: &'static [&'static str],
    pub(super) steers: bool,
    max_turns: usize,
    max_queue: usize,
    group_sessions_per_user: bool,
    /// Whether one person has jobs that run all the time.
    pub(super) loves_jobs: bool,
}

impl Plan {
    pub(super) fn new(rng: &mut Rng) -> Self {
        let (mode, has_section) = rng.weighted(&[
            (3, (Mode::List, true)),
            (2, (Mode::Pair, true)),
            (2, (Mode::Upstream, true)),
            (1, (Mode::Upstream, false)),
        ]);
        let busy = [
            (4, BusyMode::Queue),
            (1, BusyMode::Interrupt),
            (2, BusyMode::Steer),
        ];
        Self {
            mode,
            has_section,
            busy_mode: rng.weighted(&busy),
            approvers: rng.weighted(&[(4, Approvers::Author), (1, Approvers::Owners)]),
            streams: rng.percent(25),
            repeatable: rng.weighted(&[
                (5, &[][..]),
                (1, &["alpha"]),
                (1, &["beta"]),
                (2, &["alpha", "beta"]),
            ]),
            steers: rng.percent(50),
            max_turns: rng.weighted(&[(4, 512), (1, 2)]),
            max_queue: rng.weighted(&[(3, 64), (1, 1)]),
            group_sessions_per_user: rng.percent(70),
            loves_jobs: rng.percent(20),
        }
    }

    pub(super) fn is_pairing(&self) -> bool {
        self.mode == Mode::Pair
    }

    pub(super) fn interrupts(&self) -> bool {
        self.busy_mode == BusyMode::Interrupt
    }

    pub(super) fn asks_owners(&self) -> bool {
        self.approvers == Approvers::Owners
    }

    pub(super) fn settings(&self, dir: &Path) -> Settings {
        let mut settings = Settings::embedded(dir);
        settings.streaming.first_hold_ms = 0;
        settings.journal.durability = Durability::Process;
        settings.connector.identities = PLATFORMS.map(|name| BotIdentity::new(name, "bot")).into();
        settings.sessions.busy_mode = self.busy_mode;
        settings.sessions.interrupted_notice = Some(CUT_SHORT.to_owned());
        settings.sessions.overflow_notice = None;
        settings.sessions.max_concurrent_turns = self.max_turns;
        settings.sessions.max_queue = self.max_queue;
        settings.sessions.group_sessions_per_user = self.group_sessions_per_user;
        settings.sessions.grace_secs = 1;
        settings.shutdown.drain_secs = 0;
        settings.streaming.typing = false;
        settings.streaming.reactions = false;
        settings.streaming.mode = if self.streams {
            StreamMode::Auto
        } else {
            StreamMode::Off
        };
        settings.prompts.approvers = self.approvers;
        settings.cron.wrap_response = false;
        settings.serve.receiver = Some(ReceiverConfig {
            deliver: Some(format!("{}:{}", HOME.0, HOME.1)),
            ..ReceiverConfig::default()
        });
        settings.access.mode = self.mode;
        if self.has_section {
            settings.access.limits.per_user_per_minute = None;
            for person in people() {
                if person.is_denied {
                    settings.access.deny.push(Denial {
                        platform: person.platform.to_owned(),
                        user: person.user.to_owned(),
                    });
                } else if let Some(role) = person.role {
                    settings.access.people.push(PersonRule {
                        platform: person.platform.to_owned(),
                        user: person.user.to_owned(),
                        role,
                        ..PersonRule::default()
                    });
                }
            }
        }
        settings
    }

    /// The role that a person has by the settings alone.
    pub(super) fn role_in_file(&self, person: &Person) -> Option<Role> {
        let everybody = (self.mode == Mode::Upstream).then_some(Role::User);
        match person.role {
            _ if self.has_section && person.is_denied => None,
            Some(role) if self.has_section => Some(role),
            _ => everybody,
        }
    }

    /// Whether the settings name a role for a person.
    pub(super) fn is_in_file(&self, person: &Person) -> bool {
        self.has_section && person.role.is_some()
    }

    /// Whether the settings deny a person, whatever else is said.
    pub(super) fn is_denied_in_file(&self, person: &Person) -> bool {
        self.has_section && person.is_denied
    }

    /// The session of a person's messages in a chat.
    pub(super) fn session(&self, person: &Person, chat: &Chat) -> String {
        let (platform, id) = (chat.platform, &chat.id);
        match (chat.is_group, self.group_sessions_per_user) {
            (false, _) => format!("agent:main:{platform}:dm:{id}"),
            (true, true) => format!("agent:main:{platform}:group:{id}:{}", person.user),
            (true, false) => format!("agent:main:{platform}:group:{id}"),
        }
    }
}

/// What the connector declares: one platform with buttons, and one where answers are typed.
pub(super) fn descriptors() -> [CapabilityDescriptor; 2] {
    let with = |platform: &str, ops: &[&str]| CapabilityDescriptor {
        supports_edit: true,
        supported_ops: ops.iter().map(|&op| op.to_owned()).collect(),
        ..CapabilityDescriptor::placeholder(platform)
    };
    [
        with(PLATFORMS[0], &["send", "edit", "prompt"]),
        with(OWN, &["send", "edit"]),
    ]
}

#[derive(Clone, Debug)]
pub(super) struct Person {
    pub(super) platform: &'static str,
    pub(super) user: &'static str,
    /// In the settings, where those say something about people.
    role: Option<Role>,
    is_denied: bool,
}

impl Person {
    /// As the rules name them.
    pub(super) fn id(&self) -> String {
        format!("{}:{}", self.platform, self.user)
    }
}

/// The place of a user among [`people`].
pub(super) const BOB: usize = 1;

pub(super) fn people() -> Vec<Person> {
    let person = |platform, user, role, is_denied| Person {
        platform,
        user,
        role,
        is_denied,
    };
    let on = |platform| {
        [
            person(platform, "ada", Some(Role::Owner), false),
            person(platform, "bob", Some(Role::User), false),
            person(platform, "cy", Some(Role::User), false),
            person(platform, "gil", Some(Role::Guest), false),
            person(platform, "sam", None, false),
            person(platform, "dan", None, true),
        ]
    };
    PLATFORMS.into_iter().flat_map(on).collect()
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Chat {
    pub(super) platform: &'static str,
    pub(super) id: String,
    pub(super) is_group: bool,
}

impl Chat {
    /// The direct message of a person.
    pub(super) fn direct(person: &Person) -> Self {
        Self {
            platform: person.platform,
            id: format!("dm-{}", person.user),
            is_group: false,
        }
    }

    pub(super) fn group(person: &Person, name: &str) -> Self {
        Self {
            platform: person.platform,
            id: name.to_owned(),
            is_group: true,
        }
    }

    /// As jobs and commands name it.
    pub(super) fn target(&self) -> String {
        format!("{}:{}", self.platform, self.id)
    }
}

/// A message as it stands on the wire.
pub(super) fn event(person: &Person, chat: &Chat, id: &str, text: &str) -> Value {
    json!({
        "text": text,
        "message_type": "text",
        "message_id": id,
        "source": {
            "platform": chat.platform,
            "chat_id": chat.id,
            "chat_type": if chat.is_group { "group" } else { "dm" },
            "user_id": person.user,
            "message_id": id,
        },
    })
}

/// The roles that a person may have had over time. A change takes effect between the request and its confirmation.
#[derive(Clone, Debug)]
pub(super) struct Standing(Vec<Change>);

#[derive(Clone, Debug)]
struct Change {
    asked: Tick,
    confirmed: Option<Tick>,
    role: Option<Role>,
}

impl Standing {
    pub(super) fn new(role: Option<Role>) -> Self {
        Self(vec![Change {
            asked: 0,
            confirmed: Some(0),
            role,
        }])
    }

    pub(super) fn ask(&mut self, asked: Tick, role: Option<Role>) {
        self.0.push(Change {
            asked,
            confirmed: None,
            role,
        });
    }

    pub(super) fn confirm(&mut self, tick: Tick) {
        if let Some(last) = self.0.last_mut() {
            last.confirmed.get_or_insert(tick);
        }
    }

    pub(super) fn is_settled(&self) -> bool {
        self.0.last().is_some_and(|last| last.confirmed.is_some())
    }

    /// The role as of the last request.
    pub(super) fn now(&self) -> Option<Role> {
        self.0.last().and_then(|last| last.role)
    }

    /// Whether the person may have had such a role at some time between these two.
    pub(super) fn may_have_been(&self, from: Tick, to: Tick, wanted: impl Fn(Option<Role>) -> bool) -> bool {
        self.0.iter().enumerate().any(|(index, change)| {
            let next = self.0.get(index + 1);
            let until = next.map_or(Some(Tick::MAX), |next| next.confirmed);
            wanted(change.role) && change.asked <= to && until.is_none_or(|until| until >= from)
        })
    }

    /// Whether the person may have been let in at this time.
    pub(super) fn may_have_been_in(&self, at: Tick) -> bool {
        self.may_have_been(at, at, |role| role.is_some())
    }
}
