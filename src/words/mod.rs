//! What the relay itself says in chats: one catalogue, in nine languages.
//!
//! A [`ChatPhrase`] names what is said and what is filled in; each language has one function from [`PhraseKey`] to text, which the compiler
//! checks for completeness. Placeholders stand in braces. A text with a `count` has one form for each plural of its language,
//! separated by `|`. What code says before it knows its reader is English first, and reworded where it is shown (`reword`).

mod de;
mod en;
mod es;
mod fr;
mod hi;
mod ja;
mod language;
mod pt;
mod reword;
mod ru;
mod sentences;
#[cfg(test)]
mod tests;
mod zh;

pub use language::Language;

use std::borrow::Cow;
use std::time::Duration;

/// Declares the phrases: a key for the texts, and the same with what is filled in.
macro_rules! phrases {
    ($($(#[$doc:meta])* $key:ident $({ $($slot:ident: $type:ty),+ })?,)*) => {
        /// The name of a text.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum PhraseKey {
            $($(#[$doc])* $key,)*
        }

        /// Something to say, with what is filled in.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(dead_code, reason = "a text without placeholders is said by its key")]
        pub enum ChatPhrase<'w> {
            $($(#[$doc])* $key $({
                $(#[allow(missing_docs, reason = "it is named after its placeholder")] $slot: $type),+
            })?,)*
        }

        impl PhraseKey {
            /// Every key, with the names of its placeholders.
            const ALL: &'static [(Self, &'static [&'static str])] =
                &[$((Self::$key, &[$($(stringify!($slot)),+)?])),*];

            /// The English text of a key that has no placeholders, for code that does not know its reader.
            pub const fn english(self) -> &'static str {
                en::text(self)
            }
        }

        impl ChatPhrase<'_> {
            fn key(&self) -> PhraseKey {
                match self {
                    $(Self::$key $({ $($slot: _),+ })? => PhraseKey::$key,)*
                }
            }

            /// What is filled in, by the name of its placeholder.
            fn slots(&self) -> Vec<(&'static str, PhraseSlot<'_>)> {
                match self {
                    $(Self::$key $({ $($slot),+ })? => vec![$($((stringify!($slot), PhraseSlot::from(*$slot))),+)?],)*
                }
            }
        }
    };
}

phrases! {
    /// A long turn is done; with the beginning of its answer.
    DoneAfter { time: &'w str, gist: &'w str },
    /// A long turn is done, and said nothing.
    DoneAfterSilently { time: &'w str },
    /// A turn failed below a text that was shown before.
    FailedAfter { time: &'w str, gist: &'w str },
    /// Less than a minute.
    Seconds { count: u64 },
    /// Full minutes.
    Minutes { count: u64 },
    /// Minutes and seconds.
    MinutesAndSeconds { minutes: u64, seconds: u64 },
    /// Hours and minutes.
    HoursAndMinutes { hours: u64, minutes: u64 },
    /// A question has been open for half of its time; with how long it stays open.
    QuestionWaits { time: &'w str },
    /// Somebody chose hours in which nothing rings for them.
    QuietSet { hours: &'w str, zone: &'w str },
    /// Somebody wants to be rung at any time.
    QuietOff,
    /// The hours that hold for everybody hold for this person, too.
    QuietForEverybody { hours: &'w str, zone: &'w str },
    /// There are no hours in which nothing rings.
    QuietNever,
    /// How hours are written.
    QuietUsage,
    /// `/retry` without a message that is remembered.
    NothingToRetry,
    /// `/queue` while nothing waits.
    NothingWaits,
    /// `/queue`: how much waits.
    MessagesWait { count: u64 },
    /// The button that drops a waiting message.
    DropMessage { number: u64, text: &'w str },
    /// A waiting message was dropped.
    Dropped { number: u64, text: &'w str },
    /// A message was to be dropped that does not wait any more.
    NotWaiting,
    /// The end of a list of `/queue`.
    ListOver,
    /// What `/stop` does.
    HelpStop,
    /// What `/new` does.
    HelpNew,
    /// What `/sessions` does.
    HelpSessions,
    /// What `/resume` does.
    HelpResume,
    /// What `/project` does.
    HelpProject,
    /// `/status` where a project is bound.
    StatusProject { project: &'w str },
    /// What `/model` does.
    HelpModel,
    /// What `/mode` does.
    HelpMode,
    /// Above the commands of an agent.
    HelpCommandsOf { agent: &'w str },
    /// What `/status` does.
    HelpStatus,
    /// What `/agent` does.
    HelpAgent,
    /// What `/whoami` does.
    HelpWhoAmI,
    /// What `/usage` does.
    HelpUsage,
    /// What `/cron` does.
    HelpCron,
    /// What `/voice` does.
    HelpVoice,
    /// What `/diff` does.
    HelpDiff,
    /// `/diff` with an agent that does not say what it changes.
    ReportsNoChanges { agent: &'w str },
    /// `/diff` after a turn without changes.
    NothingChanged { agent: &'w str },
    /// `/diff` before the first turn that is remembered.
    NoTurnYet,
    /// `/diff` where there is more than it shows.
    ChangesLeftOut { count: u64 },
    /// What `/retry` does.
    HelpRetry,
    /// What `/queue` does.
    HelpQueue,
    /// What `/quiet` does.
    HelpQuiet,
    /// What `/help` does.
    HelpHelp,
    /// Between two names of a command.
    HelpOr,
    /// The last line of `/help`.
    HelpRest,
    /// `/stop` stopped a turn.
    Stopped,
    /// `/stop` found nothing here and asked the connector.
    StopAskedElsewhere,
    /// `/stop` found nothing.
    NothingRuns,
    /// `/new`.
    NewConversation,
    /// `/voice on`.
    VoiceOn,
    /// `/voice off`.
    VoiceOff,
    /// `/voice` alone.
    VoiceUsage,
    /// `/status` while nothing runs.
    StatusIdle { agent: &'w str },
    /// `/status` while a turn runs.
    StatusWorking { agent: &'w str },
    /// `/status` while nothing runs and messages wait.
    StatusIdleWaiting { agent: &'w str, count: u64 },
    /// `/status` while a turn runs and messages wait.
    StatusWorkingWaiting { agent: &'w str, count: u64 },
    /// `/whoami`.
    WhoYouAre { person: &'w str, role: &'w str },
    /// Somebody without an id.
    PersonUnknown,
    /// `/usage` where there are no limits.
    NothingCounted,
    /// `/usage`.
    UsedToday { turns: &'w str, tokens: &'w str },
    /// How many turns were used.
    TurnsUsed { count: u64 },
    /// How many tokens were used.
    TokensUsed { count: u64 },
    /// How many turns were used, and their limit.
    TurnsUsedOf { used: u64, count: u64 },
    /// How many tokens were used, and their limit.
    TokensUsedOf { used: u64, count: u64 },
    /// `/agent` where a route decides.
    AgentFixed { agent: &'w str },
    /// `/agent` where the project that an owner set decides.
    AgentOfProject { agent: &'w str, project: &'w str },
    /// `/agent` alone.
    AgentList { agent: &'w str, agents: &'w str },
    /// Above a list of agents.
    AgentHere { agent: &'w str },
    /// `/agent` with a name that is none.
    AgentUnknown { name: &'w str, agents: &'w str },
    /// `/agent` with a name.
    AgentChosen { agent: &'w str },
    /// The list of agents while it is empty.
    AgentNone,
    /// The answer of a job, with its name and id.
    JobAnswer { name: &'w str, answer: &'w str, id: &'w str },
    /// `/cron` where jobs never run.
    JobsOff,
    /// A change could not be stored.
    NotStored,
    /// A role does not allow a command.
    NotYourRole,
    /// A code was approved, and the message was not kept.
    WelcomeAgain,
    /// A code was approved.
    Welcome,
    /// The rate limit of a person.
    TooFast,
    /// The daily limit of a person.
    DailyLimit,
    /// A loop of programs.
    LoopPaused,
    /// A loop of programs, where `/new` ends the pause.
    LoopPausedNew,
    /// Bots among themselves.
    OnlyBots,
    /// A stranger who cannot be paired.
    NoAccess,
    /// A stranger gets a code; the message is kept.
    PairKept { code: &'w str, command: &'w str },
    /// A stranger gets a code; the message is not kept.
    PairAgain { code: &'w str, command: &'w str },
    /// The first owner gets a code; the message is kept.
    PairFirstKept { code: &'w str, command: &'w str },
    /// The first owner gets a code; the message is not kept.
    PairFirstAgain { code: &'w str, command: &'w str },
    /// An owner decides in place of the author.
    OwnerAsked,
    /// No owner can decide.
    NoOwner,
    /// The question of somebody else, for an owner.
    PersonAsks { person: &'w str, question: &'w str },
    /// The question of a job of the operator, for an owner.
    JobAsks { name: &'w str, question: &'w str },
    /// The question of an item that a program handed over, for an owner.
    HandedAsks { agent: &'w str, question: &'w str },
    /// An owner is asked about a stranger.
    MayTalk { person: &'w str, code: &'w str },
    /// The button that lets a stranger in.
    LetIn,
    /// The button that does not.
    Ignore,
    /// Somebody was let in.
    LetInNow { person: &'w str },
    /// Somebody was not let in.
    Ignored,
    /// A decision about a code that waits no more.
    CodeOver,
    /// Somebody with a code whom a rule denies.
    StillDenied { person: &'w str },
    /// The end of a question about a code that nobody answered; with the command that approves it.
    PairingOver { command: &'w str },
    /// An answer that comes too late.
    TooLate,
    /// Somebody pressed a button that has no meaning any more.
    UnusedButton,
    /// An answer of somebody who may not.
    NotYours,
    /// An approval without a text.
    MayThisBeDone,
    /// A choice without a text.
    WhichOne,
    /// Below an approval with buttons.
    PressApproval { code: &'w str },
    /// Below a choice with buttons.
    PressChoice { code: &'w str },
    /// Below an approval with numbers.
    NumberApproval { code: &'w str },
    /// Below a choice with numbers.
    NumberChoice { code: &'w str },
    /// Words that came before anybody could read the question.
    JustAsked,
    /// Words that may mean several questions.
    SeveralOpen,
    /// How to answer such questions.
    AnswerByCode { codes: &'w str },
    /// A button.
    AllowOnce,
    /// A button.
    AllowSession,
    /// A button.
    AllowAlways,
    /// A button.
    DenyOption,
    /// A button without a text.
    OptionNumber { number: u64 },
    /// The end of an approval that nobody answered.
    NoAnswerDenied,
    /// The end of a choice that nobody answered.
    NoAnswerInTime,
    /// A decision.
    AllowedOnce,
    /// A decision.
    AllowedSession,
    /// A decision.
    AllowedAlways,
    /// A decision.
    Denied,
    /// A question that was withdrawn.
    NoLongerAsked,
    /// A decision and who made it.
    DecidedBy { decision: &'w str, person: &'w str },
    /// The middle of a long text is left out.
    NotShown { number: u64 },
    /// An answer reached the model's limit.
    CutByTokens,
    /// A turn reached its limit of steps.
    CutBySteps,
    /// The provider cut an answer.
    CutByFilter,
    /// An answer is too long.
    CutBySize,
    /// The end of a turn that was stopped.
    StoppedMark,
    /// A turn that begins again.
    AnsweringAgain,
    /// The agent refused.
    AgentDeclined,
    /// The agent panicked.
    AgentBroke,
    /// A restart interrupted a turn.
    Interrupted,
    /// Many messages wait.
    Overflow,
    /// An answer was not delivered.
    Undelivered,
    /// An answer was not spoken.
    NotSpoken,
    /// The text shows the beginning of code that goes as a file.
    CodeInFile { name: &'w str },
    /// Where a conversation was that was begun without the relay.
    InTerminal,
    /// A conversation or a thread without a title.
    Untitled,
    /// `/new` with a title.
    NewConversationNamed { title: &'w str },
    /// `/sessions` of an agent that remembers nothing.
    KeepsNoConversations { agent: &'w str },
    /// `/sessions` before the first one.
    NoConversationsYet { agent: &'w str },
    /// `/sessions`.
    ConversationList { agent: &'w str, list: &'w str },
    /// `/resume` with a number or a title that is none.
    ConversationUnknown,
    /// `/resume` of the conversation that the chat is in.
    ConversationHere { title: &'w str },
    /// `/resume` while an agent works in one of the two.
    ConversationsBusy,
    /// `/resume`.
    ConversationResumed { title: &'w str },
    /// A command about a conversation, where each message outside threads begins one.
    OutsideThreads { command: &'w str },
    /// A conversation in a list.
    ConversationLine { title: &'w str, age: &'w str, place: &'w str },
    /// The one that the chat is in.
    ConversationLineHere { title: &'w str, age: &'w str, place: &'w str },
    /// Less than a minute ago.
    JustNow,
    /// Some minutes ago.
    MinutesAgo { count: u64 },
    /// Some hours ago.
    HoursAgo { count: u64 },
    /// Some days ago.
    DaysAgo { count: u64 },
    /// `/model` with a name.
    ModelChanged { name: &'w str },
    /// `/mode` with a name.
    ModeChanged { name: &'w str },
    /// `/model` of an agent that offers none.
    NoModels { agent: &'w str },
    /// `/mode` of an agent that offers none.
    NoModes { agent: &'w str },
    /// Above a list of models.
    ModelsOf { agent: &'w str },
    /// Above a list of modes.
    ModesOf { agent: &'w str },
    /// Above a list of models, after a name that is none.
    ModelUnknown { agent: &'w str },
    /// Above a list of modes, after a name that is none.
    ModeUnknown { agent: &'w str },
    /// The model or mode in a list that is in use.
    OptionInUse { name: &'w str },
    /// The end of a list of models or modes that shows only the first of them.
    OptionsLeftOut { count: u64 },
    /// Below a list of models or modes.
    ChooseByNumber { command: &'w str },
    /// A topic is new.
    ProjectAsked,
    /// `/project` of somebody who is no owner.
    ProjectOwnersOnly,
    /// `/project` where a route decides.
    ProjectRouted,
    /// `/project` with a name that is none.
    ProjectUnknown { name: &'w str, projects: &'w str },
    /// `/project` while the agent works.
    ProjectBusy,
    /// `/project` with a name.
    ProjectSet { project: &'w str, agent: &'w str },
    /// `/project off`.
    ProjectUnset { agent: &'w str },
    /// `/project` alone.
    ProjectHere { project: &'w str },
    /// `/project` alone, while there is none.
    ProjectNone,
}

/// What is filled in.
#[derive(Clone, Copy, Debug)]
enum PhraseSlot<'w> {
    Text(&'w str),
    Number(u64),
}

impl<'w> From<&'w str> for PhraseSlot<'w> {
    fn from(text: &'w str) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for PhraseSlot<'_> {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl PhraseSlot<'_> {
    fn text(&self) -> Cow<'_, str> {
        match self {
            Self::Text(text) => (*text).into(),
            Self::Number(number) => number.to_string().into(),
        }
    }
}

/// Separates the plural forms of a text.
const FORMS: char = '|';

impl Language {
    /// The text of a key, with its placeholders and plural forms.
    const fn text(self, key: PhraseKey) -> &'static str {
        match self {
            Self::En => en::text(key),
            Self::De => de::text(key),
            Self::Fr => fr::text(key),
            Self::Es => es::text(key),
            Self::Pt => pt::text(key),
            Self::Ru => ru::text(key),
            Self::Ja => ja::text(key),
            Self::Zh => zh::text(key),
            Self::Hi => hi::text(key),
        }
    }

    /// The text of a key that has no placeholders.
    pub(crate) const fn plain(self, key: PhraseKey) -> &'static str {
        self.text(key)
    }

    /// A phrase in this language.
    pub(crate) fn say(self, phrase: ChatPhrase<'_>) -> String {
        let slots = phrase.slots();
        let count = slots.iter().find_map(|(name, slot)| match slot {
            PhraseSlot::Number(count) if *name == "count" => Some(*count),
            _ => None,
        });
        let text = self.text(phrase.key());
        let text = match count {
            Some(count) => text.split(FORMS).nth(self.plural(count)).unwrap_or(text),
            None => text,
        };
        fill(text, &slots)
    }

    /// A duration in its largest units.
    pub(crate) fn duration(self, duration: Duration) -> String {
        let secs = duration.as_secs();
        let phrase = match (secs / 3600, secs / 60, secs % 60) {
            (0, 0, _) => ChatPhrase::Seconds { count: secs },
            (0, minutes, 0) => ChatPhrase::Minutes { count: minutes },
            (0, minutes @ 1..10, seconds) => ChatPhrase::MinutesAndSeconds { minutes, seconds },
            (0, minutes, _) => ChatPhrase::Minutes { count: minutes },
            (hours, minutes, _) => ChatPhrase::HoursAndMinutes {
                hours,
                minutes: minutes % 60,
            },
        };
        self.say(phrase)
    }
}

/// Fills in a text once, from left to right: what is filled in is not read again.
fn fill(text: &str, slots: &[(&str, PhraseSlot<'_>)]) -> String {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        filled.push_str(before);
        let Some((name, after)) = after.split_once('}') else {
            filled.push('{');
            rest = after;
            continue;
        };
        if let Some((_, slot)) = slots.iter().find(|(slot, _)| *slot == name) {
            filled.push_str(&slot.text());
        }
        rest = after;
    }
    filled.push_str(rest);
    filled
}
