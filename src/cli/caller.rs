//! Who calls: a person at a terminal, or a process of an agent that this relay has started.
//!
//! A process of an agent is known by its ancestors, whatever it does to its environment: the relay that holds the state directory
//! is one of them, and the relay gave the one below it the session of its turn. Where the system does not tell ancestors, and for a
//! process that left them, only the environment is left. An agent runs as the user of the relay, and so could write its files as
//! well: this is for agents that use the commands.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::ExitCode;

use serde::Deserialize;

use super::Environment;
use super::remote::RemoteRelay;
use crate::access::{AccessRequest, JobMaker};
use crate::cron::job::JobOrigin;
use crate::serve::client::ClientError;
use crate::serve::{ControlError, ControlRequest, Need};
use crate::store::{Holder, held_by};

/// The variable with the session of a turn.
const SESSION: &str = "RELAY_SESSION_KEY";
/// Maximum ancestors that are looked at.
const MAX_ANCESTORS: usize = 64;

/// Whoever runs a command.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Caller {
    /// Where a job of theirs is made, if that is a chat.
    pub(super) origin: Option<JobOrigin>,
    /// Who they are to the rules; nobody for the operator, and where there are no rules.
    pub(super) maker: Option<JobMaker>,
}

/// What is known of a process or of one of its ancestors.
struct Ancestor {
    id: u32,
    parent: u32,
    /// The session in the environment that it was started with.
    session: Option<String>,
}

/// Who a process is.
#[derive(Debug, PartialEq, Eq)]
enum Standing {
    /// Nobody's agent.
    Operator,
    /// An agent's; `None` when its environment says nothing of its turn.
    Agent(Option<String>),
}

/// What the environment says of the turn that started this process.
#[derive(Debug, Default)]
pub(super) struct TurnVariables {
    session: Option<String>,
    platform: Option<String>,
    chat: Option<String>,
    thread: Option<String>,
    user: Option<String>,
}

impl TurnVariables {
    pub(super) fn read(env: Environment<'_>) -> Self {
        let text = |name: &str| env(name).filter(|value| !value.trim().is_empty());
        Self {
            session: text(SESSION),
            platform: text("RELAY_PLATFORM"),
            chat: text("RELAY_CHAT_ID"),
            thread: text("RELAY_THREAD_ID"),
            user: text("RELAY_USER_ID"),
        }
    }
}

/// Why an agent may not make a request for its person.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    NoOwner,
    OtherSession,
    OtherChat,
    TurnOver,
    SeveralPeople,
}

impl Refusal {
    const ALL: [Self; 5] = [
        Self::NoOwner,
        Self::OtherSession,
        Self::OtherChat,
        Self::TurnOver,
        Self::SeveralPeople,
    ];

    /// The refusal that an error is.
    pub(super) fn of(error: &ControlError) -> Option<Self> {
        Self::ALL.into_iter().find(|refusal| refusal.code() == error.code)
    }

    fn code(self) -> &'static str {
        match self {
            Self::NoOwner => "no_owner",
            Self::OtherSession => "other_session",
            Self::OtherChat => "other_chat",
            Self::TurnOver => "turn_over",
            Self::SeveralPeople => "several_people",
        }
    }

    fn why(self) -> &'static str {
        match self {
            Self::NoOwner => "the person whose turn runs this is no owner",
            Self::OtherSession => {
                "the person whose turn runs this is no owner, and no turn of theirs runs in that session"
            }
            Self::OtherChat => {
                "the person whose turn runs this is no owner, and the turn is not in this chat"
            }
            Self::TurnOver => "cannot tell for whom this is done: the turn of this process is over",
            Self::SeveralPeople => {
                "cannot tell for whom this is done: this process belongs to an agent that works for several people, or for nobody now"
            }
        }
    }

    /// What to do instead.
    pub(super) fn hint(self) -> &'static str {
        match self {
            Self::NoOwner => "an owner or the operator may do this",
            Self::OtherSession => "an owner or the operator may stop the turns of others",
            Self::OtherChat => "send to the chat of the turn; an owner or the operator may send to others",
            Self::TurnOver | Self::SeveralPeople => {
                "do it while the turn runs; jobs can be changed in the chat with /cron"
            }
        }
    }
}

impl From<Refusal> for ClientError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(ControlError {
            code: refusal.code().to_owned(),
            message: refusal.why().to_owned(),
        })
    }
}

/// Fails for a request that an agent may not make for its person.
pub(super) fn permit(relay: &RemoteRelay, request: &ControlRequest) -> Result<(), ClientError> {
    let need = request.need();
    if need == Need::Anybody {
        return Ok(());
    }
    let author_in = |session: &str| {
        let author = turn_author(relay, Some(session.to_owned())).ok().flatten();
        author.and_then(|author| author.maker)
    };
    Ok(Caller::identify(relay)?.may(need, author_in)?)
}

/// Fails for an agent that works for no owner, where a relay answers that knows its turns.
pub(super) fn require_owner_where_served(relay: &RemoteRelay) -> Result<(), ExitCode> {
    if own_standing(relay) == Standing::Operator || !is_served(relay) {
        return Ok(());
    }
    Caller::find(relay)?.require_owner(relay)
}

/// Whether somebody listens on the control socket.
pub(super) fn is_served(relay: &RemoteRelay) -> bool {
    let answer = relay.call(&ControlRequest::Health);
    !matches!(answer, Err(ClientError::NotRunning(_)))
}

/// Who this process is.
fn own_standing(relay: &RemoteRelay) -> Standing {
    let dir = &relay.settings().state_dir;
    let holder = held_by(dir).ok().flatten().and_then(Holder::pid);
    let holder = holder.filter(|id| is_here(*id, &dir.join("lock")));
    let chain = ancestors(std::process::id(), process);
    standing(&chain, holder, relay.turn_variables().session.clone())
}

/// Whose turn a session has; without one, whoever all running turns belong to.
fn turn_author(relay: &RemoteRelay, session: Option<String>) -> Result<Option<Caller>, ClientError> {
    let answer = relay.call(&ControlRequest::TurnAuthor { session });
    let author = answer.ok().map(|mut answer| answer["author"].take());
    let Some(author) = author.filter(|author| !author.is_null()) else {
        return Ok(None);
    };
    let unreadable = |_| ClientError::InvalidResponse(relay.settings().state_dir.clone());
    serde_json::from_value(author).map(Some).map_err(unreadable)
}

impl Caller {
    /// Whoever runs this command. Fails for an agent's process whose person cannot be told, while rules hold.
    pub(super) fn find(relay: &RemoteRelay) -> Result<Self, ExitCode> {
        Self::identify(relay).map_err(|error| relay.report(&error, None))
    }

    fn identify(relay: &RemoteRelay) -> Result<Self, ClientError> {
        let Standing::Agent(session) = own_standing(relay) else {
            return Ok(Self::default());
        };
        let is_known = session.is_some();
        if !is_known && !has_rules(relay) {
            return Ok(Self::default());
        }
        if let Some(author) = turn_author(relay, session)? {
            return Ok(author);
        }
        // The environment has not all that is known of the person, and none of it in a job: without the turn, rules about that
        // person might not hold.
        if has_rules(relay) {
            let refusal = if is_known {
                Refusal::TurnOver
            } else {
                Refusal::SeveralPeople
            };
            return Err(refusal.into());
        }
        Ok(Self {
            origin: from_environment(relay.turn_variables()),
            maker: None,
        })
    }

    /// Whether a request that needs this may be made. `author_in` is whose turn a session has.
    fn may(&self, need: Need<'_>, author_in: impl Fn(&str) -> Option<JobMaker>) -> Result<(), Refusal> {
        if self.is_owner() {
            return Ok(());
        }
        let refusal = match need {
            Need::Anybody => return Ok(()),
            Need::Session(session) if author_in(session) == self.maker => return Ok(()),
            Need::Session(_) => Refusal::OtherSession,
            Need::Chat { chat, platform } if platform.is_some() && self.is_in(chat, platform) => {
                return Ok(());
            }
            Need::Chat { .. } => Refusal::OtherChat,
            Need::Owner => Refusal::NoOwner,
        };
        Err(refusal)
    }

    /// Fails where only the operator and owners may do this.
    pub(super) fn require_owner(&self, relay: &RemoteRelay) -> Result<(), ExitCode> {
        let allowed = self.may(Need::Owner, |_| None);
        allowed.map_err(|refusal| relay.report(&refusal.into(), None))
    }

    /// Whether this is the operator, or the agent of an owner.
    pub(super) fn is_owner(&self) -> bool {
        self.maker.as_ref().is_none_or(JobMaker::is_owner)
    }

    /// The platform of a chat that is written to: that of the turn, for those who write to no other chat.
    pub(super) fn platform_of(&self, chat: &str, platform: Option<&str>) -> Option<String> {
        let own = self.origin.as_ref().map(|origin| origin.platform.as_str());
        let own = own.filter(|_| !self.is_owner() && self.is_in(chat, platform));
        own.or(platform).map(str::to_owned)
    }

    /// Whether the turn is in this chat.
    fn is_in(&self, chat: &str, platform: Option<&str>) -> bool {
        self.origin.as_ref().is_some_and(|origin| {
            origin.chat_id == chat && platform.is_none_or(|name| name.eq_ignore_ascii_case(&origin.platform))
        })
    }
}

/// The chat of the turn that started this process, where the relay does not know it any more.
fn from_environment(variables: &TurnVariables) -> Option<JobOrigin> {
    let (platform, chat_id) = (variables.platform.clone()?, variables.chat.clone()?);
    let user_id = variables.user.clone();
    let is_hidden = |id: &str| is_pseudonym(id, "chat_") || is_pseudonym(id, "user_");
    let is_usable = !is_hidden(&chat_id) && !user_id.as_deref().is_some_and(is_hidden);
    is_usable.then(|| JobOrigin {
        platform,
        chat_id,
        thread_id: variables.thread.clone(),
        user_id,
        ..JobOrigin::default()
    })
}

/// Who the first of these processes is: each is followed by its parent. `own` is the session in its environment.
fn standing(chain: &[Ancestor], relay: Option<u32>, own: Option<String>) -> Standing {
    let below = chain
        .iter()
        .find(|process| relay.is_some_and(|relay| process.parent == relay));
    match (below, own) {
        (Some(agent), _) => Standing::Agent(agent.session.clone()),
        (None, Some(session)) => Standing::Agent(Some(session)),
        (None, None) => Standing::Operator,
    }
}

/// A process and its ancestors, as far as the system tells them.
fn ancestors(id: u32, process: impl Fn(u32) -> Option<Ancestor>) -> Vec<Ancestor> {
    let mut chain: Vec<Ancestor> = Vec::new();
    let mut next = Some(id);
    while let Some(found) = next.and_then(&process).filter(|_| chain.len() < MAX_ANCESTORS) {
        next = (found.parent > 1 && found.parent != found.id).then_some(found.parent);
        chain.push(found);
    }
    chain
}

/// Whether the holder of the lock is a process here: in a container it has another id than outside, and that id is somebody else's
/// here. It has our name, or the system says that it holds the lock.
fn is_here(id: u32, lock: &Path) -> bool {
    let name = |id: &str| std::fs::read_to_string(format!("/proc/{id}/comm")).ok();
    let is_namesake = name("self").is_some_and(|own| name(&id.to_string()) == Some(own));
    is_namesake || {
        let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
        let file = std::fs::metadata(lock).map(|file| file.ino());
        file.is_ok_and(|file| holds_lock(&locks, id, file))
    }
}

/// Whether the list of locks has one of this process on the file with this number.
fn holds_lock(locks: &str, id: u32, file: u64) -> bool {
    let (id, file) = (id.to_string(), format!(":{file}"));
    locks.lines().any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields.contains(&"FLOCK")
            && fields.get(4) == Some(&id.as_str())
            && fields.get(5).is_some_and(|place| place.ends_with(&file))
    })
}

/// What Linux tells of a process.
fn process(id: u32) -> Option<Ancestor> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name in parentheses may contain anything.
    let (_, fields) = stat.rsplit_once(')')?;
    let parent = fields.split_whitespace().nth(1)?.parse().ok()?;
    let variables = std::fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
    let session = variables.split(|byte| *byte == 0).find_map(|variable| {
        let value = variable.strip_prefix(SESSION.as_bytes())?.strip_prefix(b"=")?;
        String::from_utf8(value.to_vec()).ok()
    });
    Some(Ancestor {
        id,
        parent,
        session: session.filter(|session| !session.trim().is_empty()),
    })
}

/// Whether anybody wrote access rules: in the settings, or with commands.
fn has_rules(relay: &RemoteRelay) -> bool {
    let has_entries = || {
        // Rules that cannot be read may hold.
        super::access::call(relay, AccessRequest::List).map_or(true, |answer| {
            let entries = answer["entries"].as_array();
            entries.is_some_and(|rules| !rules.is_empty())
        })
    };
    relay.unloadable().is_some() || relay.settings().access.is_active() || has_entries()
}

/// Whether an id is one that stands for a person's or a chat's own (`TurnInput::hide_people`).
fn is_pseudonym(id: &str, start: &str) -> bool {
    let rest = id.strip_prefix(start);
    rest.is_some_and(|rest| rest.len() == 16 && rest.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(id: u32, parent: u32, session: Option<&str>) -> Ancestor {
        Ancestor {
            id,
            parent,
            session: session.map(str::to_owned),
        }
    }

    fn agent(session: Option<&str>) -> Standing {
        Standing::Agent(session.map(str::to_owned))
    }

    /// The agent of a turn of this person in the chat `c`.
    fn agent_of(user: &str, role: &str) -> Caller {
        let maker = serde_json::json!({
            "platform": "discord", "chat": "c", "ids": [user], "role": role, "is_everywhere": role == "owner",
        });
        Caller {
            origin: Some(JobOrigin {
                platform: "discord".to_owned(),
                chat_id: "c".to_owned(),
                ..JobOrigin::default()
            }),
            maker: Some(serde_json::from_value(maker).unwrap()),
        }
    }

    #[test]
    fn an_agent_may_do_for_its_person_what_is_theirs_and_for_an_owner_everything() {
        let in_chat = |chat, platform| Need::Chat { chat, platform };
        let needs = [
            (Need::Anybody, None),
            (Need::Session("own"), None),
            (Need::Session("anns"), Some(Refusal::OtherSession)),
            (Need::Session("idle"), Some(Refusal::OtherSession)),
            (in_chat("c", Some("Discord")), None),
            (in_chat("c", Some("slack")), Some(Refusal::OtherChat)),
            (in_chat("c", None), Some(Refusal::OtherChat)),
            (in_chat("d", Some("discord")), Some(Refusal::OtherChat)),
            (Need::Owner, Some(Refusal::NoOwner)),
        ];
        let author_in = |session: &str| match session {
            "own" => agent_of("mallory", "guest").maker,
            "anns" => agent_of("ann", "guest").maker,
            _ => None,
        };
        let guest = agent_of("mallory", "guest");
        for (need, refusal) in needs {
            assert_eq!(guest.may(need, author_in).err(), refusal, "{need:?}");
            for caller in [agent_of("olga", "owner"), Caller::default()] {
                assert_eq!(caller.may(need, author_in), Ok(()), "{need:?}");
            }
        }
        // A user is no owner either.
        let user = agent_of("ann", "user");
        assert_eq!(user.may(Need::Owner, author_in), Err(Refusal::NoOwner));
    }

    #[test]
    fn an_agent_of_no_owner_writes_to_the_platform_of_its_turn() {
        let guest = agent_of("mallory", "guest");
        assert_eq!(guest.platform_of("c", None).as_deref(), Some("discord"));
        assert_eq!(guest.platform_of("c", Some("slack")).as_deref(), Some("slack"));
        assert_eq!(guest.platform_of("d", None), None);
        assert_eq!(agent_of("olga", "owner").platform_of("c", None), None);
    }

    #[test]
    fn a_refusal_is_known_by_its_code() {
        for refusal in Refusal::ALL {
            let ClientError::Refused(error) = ClientError::from(refusal) else {
                panic!("{refusal:?}");
            };
            assert_eq!(Refusal::of(&error), Some(refusal));
        }
        let other = ControlError {
            code: "no_turn".to_owned(),
            message: String::new(),
        };
        assert_eq!(Refusal::of(&other), None);
    }

    #[test]
    fn a_process_below_the_relay_is_its_agents_whatever_its_environment_says() {
        let forged = || Some("of-somebody-else".to_owned());
        // The relay is 10, its agent 20, a shell of that 30, this process 40.
        let chain = [
            of(40, 30, Some("forged")),
            of(30, 20, None),
            of(20, 10, Some("s")),
            of(10, 2, None),
        ];
        for own in [None, forged(), Some("s".to_owned())] {
            assert_eq!(standing(&chain, Some(10), own), agent(Some("s")));
        }
        // An agent that serves many chats has no session of its own.
        let chain = [of(40, 20, Some("forged")), of(20, 10, None), of(10, 2, None)];
        assert_eq!(standing(&chain, Some(10), forged()), agent(None));
    }

    #[test]
    fn elsewhere_the_environment_counts_and_a_terminal_is_the_operators() {
        let chain = [of(40, 30, None), of(30, 2, None)];
        for relay in [None, Some(10)] {
            assert_eq!(standing(&chain, relay, None), Standing::Operator);
            assert_eq!(standing(&chain, relay, Some("s".to_owned())), agent(Some("s")));
        }
        // Whoever started the relay is not its agent.
        assert_eq!(standing(&[of(2, 1, None)], Some(10), None), Standing::Operator);
    }

    #[test]
    fn ancestors_end_at_the_first_process_and_in_a_circle() {
        let chain = ancestors(40, |id| Some(of(id, id / 2, None)));
        assert_eq!(chain.last().map(|process| process.id), Some(2));
        assert_eq!(ancestors(4, |id| Some(of(id, id ^ 1, None))).len(), MAX_ANCESTORS);
        assert!(ancestors(4, |_| None).is_empty());
        #[cfg(target_os = "linux")]
        {
            let own = ancestors(std::process::id(), process);
            assert!(own.len() > 1 && own[0].id == std::process::id());
        }
    }

    #[test]
    fn a_holder_elsewhere_is_nobody_here() {
        let locks = "1: POSIX  ADVISORY  WRITE 7 fd:01:55 0 EOF\n2: FLOCK  ADVISORY  WRITE 7 fd:01:1234 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 8 fd:01:1234 0 EOF\n";
        assert!(holds_lock(locks, 7, 1234));
        for (id, file) in [(7, 234), (7, 55), (8, 1234), (1, 1234)] {
            assert!(!holds_lock(locks, id, file), "{id} {file}");
        }
        #[cfg(target_os = "linux")]
        assert!(
            !is_here(u32::MAX, Path::new("/nowhere")) && is_here(std::process::id(), Path::new("/nowhere"))
        );
    }

    #[test]
    fn hidden_ids_are_known() {
        let mut input = crate::agent::TurnInput::default();
        input.origin.chat_id = "491701234567@c.us".into();
        input.author_id = Some("491701234567".into());
        input.hide_people();
        assert!(is_pseudonym(&input.origin.chat_id, "chat_"));
        assert!(is_pseudonym(
            input.author_id.as_deref().unwrap_or_default(),
            "user_"
        ));
        assert!(!is_pseudonym("chat_1", "chat_") && !is_pseudonym("c1", "chat_"));
    }
}
