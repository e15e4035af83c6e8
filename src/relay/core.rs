//! The relay at work: one task that owns the sessions, the outgoing lanes and what is remembered of chats.
//!
//! It is told what arrived, what was committed, what turns ended and what became of ops, asks the pure layers
//! what that means, and has it done. It never waits for a turn, a commit or an op; what it must write is
//! submitted together, and when the journal is behind, it stops taking deliveries until it is not.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::arrival::Arrival;
use super::at_once::EndAtOnce;
use super::choices::{Choices, Undecided};
use super::clock::Clock;
use super::crew::Crew;
use super::egress::Egress;
use super::endings::EndingRow;
use super::handle::Command;
use super::inquiry::ChatInfos;
use super::metrics::Measures;
use super::owed::Adding;
use super::owed_op::OwedOp;
use super::prompts::Questions;
use super::recovery::Unread;
use super::renewal::Renewal;
use super::settings::CoreSettings;
use super::shutdown::Phase;
use super::sleep::Sleeper;
use super::status::Tally;
use super::traces::Traces;
use super::transport::{LinkView, RelayTransport};
use super::turn_task::{TurnReport, Wish};
use super::turns::LiveTurn;
use crate::adapter::{ChatMemory, RateLimiter, ThreadRegistry};
use crate::agent::AgentCommand;
use crate::collections::{IdMap, IdSet};
use crate::link::{End, SendResult};
use crate::net::media::MediaClient;
use crate::session::{Lanes, SessionLimits, Sessions, TurnId};
use crate::store::{self, Batch, Health, InboxSeq, Journal, OpSeq, Opened, SubmitError};
use crate::wire::SessionKey;

/// Messages that may wait for their commit; deliveries are not taken beyond it.
const MOST_ARRIVALS: usize = 4096;
/// Ops that may be out at once.
pub(super) const MOST_OUT: usize = 2048;
/// Ops owed at which no further turns are started.
const MOST_OWED: usize = 20_000;
/// Threads of the connector's own that are remembered.
const MOST_THREADS: usize = 1024;
/// Wishes of turns that wait for this task.
pub(super) const MOST_WISHES: usize = 1024;
/// How long an op may be out before the journal is told; a shorter life is not worth a write.
const OUT_UNTOLD: Duration = Duration::from_millis(5);
/// How long to wait before trying again what the link would not take.
const RETRY: Duration = Duration::from_millis(200);

/// Why the relay ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// It was asked to.
    Asked,
    /// There was nothing to do, and the connector buffers until the next start.
    Slept,
    /// The connector has revoked this gateway.
    Revoked {
        /// The connector's words.
        reason: String,
    },
    /// The journal's writer is gone.
    JournalLost,
}

pub(super) type Submission = Pin<Box<dyn Future<Output = Result<(), SubmitError>> + Send>>;

pub(super) struct Core {
    pub(super) settings: CoreSettings,
    pub(super) crew: Crew,
    pub(super) choices: Choices,
    /// The agents' commands as they were offered last.
    pub(super) offered: Option<Vec<AgentCommand>>,
    /// Turns that wait to learn who answers them.
    pub(super) undecided: IdMap<u64, Undecided>,
    pub(super) transport: Arc<dyn RelayTransport>,
    /// Where attachments come in and go out; none over a transport of an embedder's.
    pub(super) media: Option<Arc<MediaClient>>,
    pub(super) clock: Clock,
    pub(super) sessions: Sessions,
    pub(super) lanes: Lanes,
    pub(super) chats: ChatMemory,
    pub(super) own_threads: ThreadRegistry,
    pub(super) chat_infos: ChatInfos,
    /// Messages on their way into the journal.
    pub(super) arrivals: IdMap<u64, Arrival>,
    /// Turns that run, or hold their place.
    pub(super) turns: IdMap<TurnId, LiveTurn>,
    /// Turns whose message is being read back from the journal.
    pub(super) loading: IdMap<i64, TurnId>,
    /// Turns whose message was read before the journal had written that they run.
    pub(super) unstarted: IdSet<i64>,
    /// Turns that an earlier run left, whose message is still to be read, one after the other.
    pub(super) cut_short: VecDeque<InboxSeq>,
    /// Ops of turns whose end is being committed.
    pub(super) ending: IdMap<i64, EndingRow>,
    /// Ops outside turns that are being committed.
    pub(super) adding: IdMap<u64, Adding>,
    /// Sessions being refilled.
    pub(super) refilling: IdMap<u64, SessionKey>,
    /// What the journal could not read and will be asked again.
    pub(super) unread: Vec<Unread>,
    /// Ops that are owed and not settled.
    pub(super) owed: IdMap<i64, OwedOp>,
    /// Messages whose answer the connector will not have, until their end is written down.
    pub(super) declined: IdSet<i64>,
    /// Ops that went out lately and may not be worth telling the journal, by the name they went out under.
    pub(super) lately_out: VecDeque<(Instant, u64)>,
    /// Ops that are out, by the name they went out under: a new one each time.
    pub(super) out: IdMap<u64, i64>,
    /// Ops that are not owed, and the chats' budgets.
    pub(super) egress: Egress,
    /// Questions of turns to people.
    pub(super) questions: Questions,
    pub(super) settlements: mpsc::Sender<(u64, SendResult)>,
    pub(super) writes: Vec<store::Command>,
    pub(super) tasks: JoinSet<TurnReport>,
    pub(super) task_turns: IdMap<tokio::task::Id, TurnId>,
    /// Turns that were over as soon as they began.
    pub(super) over_at_once: Vec<EndAtOnce>,
    /// How turns' tasks tell what they want.
    pub(super) wishes: mpsc::Sender<(TurnId, Wish)>,
    /// Turns that wait for what they kept.
    pub(super) recalling: IdMap<u64, oneshot::Sender<Option<Vec<u8>>>>,
    /// Sessions that the agent is told to forget, until it has.
    pub(super) forgetting: HashMap<SessionKey, CancellationToken>,
    pub(super) forgets: JoinSet<()>,
    pub(super) view: LinkView,
    /// When the link came to stand as it does, in Unix milliseconds.
    pub(super) link_since_ms: i64,
    pub(super) tally: Tally,
    pub(super) measures: Measures,
    pub(super) traces: Traces,
    pub(super) journal_failing: Option<String>,
    /// How the journal stands at this moment, which its completions may be behind.
    pub(super) health: watch::Receiver<Health>,
    pub(super) renewal: Renewal,
    /// Deliveries were turned away and have to come again.
    pub(super) turned_away: bool,
    pub(super) phase: Phase,
    /// The way to sleep; none for a relay that stays awake.
    pub(super) sleeper: Option<Sleeper>,
    /// What may still come in before the end.
    pub(super) incoming: Incoming,
    pub(super) next_token: u64,
    /// The high half of every op id of this process.
    pub(super) op_seed: u64,
    /// The last op and session that recovery has read so far.
    pub(super) recovery: Option<(Option<OpSeq>, Option<Arc<str>>)>,
    pub(super) journal: Journal,
    pub(super) submission: Option<Submission>,
    retry_at: Option<Instant>,
    pub(super) journal_lost: bool,
}

/// What may still come in.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    /// The connector was asked to buffer and has not answered.
    pub(super) idle_unanswered: bool,
    /// Deliveries wait to be taken.
    pub(super) untaken: bool,
    /// The transport will deliver nothing any more.
    pub(super) over: bool,
}

/// The ends of the channels that the relay listens to.
pub(super) struct Ears {
    pub(super) batches: mpsc::Receiver<Batch>,
    pub(super) health: watch::Receiver<Health>,
    pub(super) commands: mpsc::Receiver<Command>,
    pub(super) wishes: mpsc::Receiver<(TurnId, Wish)>,
}

impl Core {
    pub(super) fn new(
        settings: CoreSettings,
        crew: Crew,
        transport: Arc<dyn RelayTransport>,
        opened: Opened,
        commands: mpsc::Receiver<Command>,
    ) -> (Self, Ears, mpsc::Receiver<(u64, SendResult)>) {
        let (settlements, settled) = mpsc::channel(MOST_OUT);
        let limits = SessionLimits {
            running: settings.max_concurrent_turns,
            queued: settings.max_queue,
        };
        let (wishes, wish_ears) = mpsc::channel(MOST_WISHES);
        let egress = Egress::new(RateLimiter::new(&settings.budget));
        let clock = Clock::start();
        let questions = Questions::new(&settings.prompts, clock.seed());
        let mut core = Self {
            sessions: Sessions::new(limits),
            lanes: Lanes::new(),
            chats: ChatMemory::new(settings.chat_memory),
            own_threads: ThreadRegistry::new(MOST_THREADS),
            chat_infos: ChatInfos::default(),
            clock,
            settings,
            crew,
            choices: Choices::default(),
            offered: None,
            undecided: IdMap::default(),
            transport,
            media: None,
            arrivals: IdMap::default(),
            turns: IdMap::default(),
            loading: IdMap::default(),
            unstarted: IdSet::default(),
            cut_short: VecDeque::new(),
            ending: IdMap::default(),
            adding: IdMap::default(),
            refilling: IdMap::default(),
            unread: Vec::new(),
            owed: IdMap::default(),
            declined: IdSet::default(),
            lately_out: VecDeque::new(),
            out: IdMap::default(),
            egress,
            questions,
            settlements,
            writes: Vec::new(),
            tasks: JoinSet::new(),
            task_turns: IdMap::default(),
            over_at_once: Vec::new(),
            wishes,
            recalling: IdMap::default(),
            forgetting: HashMap::new(),
            forgets: JoinSet::new(),
            view: LinkView::default(),
            link_since_ms: 0,
            tally: Tally::default(),
            measures: Measures::default(),
            traces: Traces::default(),
            journal_failing: None,
            health: opened.health.clone(),
            renewal: Renewal::default(),
            turned_away: false,
            phase: Phase::Serving,
            sleeper: None,
            incoming: Incoming::default(),
            next_token: 0,
            op_seed: clock.seed(),
            recovery: None,
            journal: opened.journal,
            submission: None,
            retry_at: None,
            journal_lost: false,
        };
        core.link_since_ms = core.now_ms();
        core.recover(opened.recovered);
        (
            core,
            Ears {
                batches: opened.batches,
                health: opened.health,
                commands,
                wishes: wish_ears,
            },
            settled,
        )
    }

    pub(super) fn token(&mut self) -> u64 {
        self.next_token += 1;
        self.next_token
    }

    pub(super) fn now_ms(&self) -> i64 {
        self.clock.unix_ms()
    }

    pub(super) fn is_live(&self) -> bool {
        self.view.live.is_some()
    }

    pub(super) fn retry_soon(&mut self) {
        self.retry_at.get_or_insert_with(|| Instant::now() + RETRY);
    }

    /// Everything that may go on goes on: rows are fetched, turns started, ops handed to the link.
    pub(super) fn advance(&mut self) {
        self.step_phase();
        if matches!(self.phase, Phase::Serving) {
            if self.owed.len() >= MOST_OWED {
                self.sessions.pause();
            } else {
                self.sessions.resume();
            }
        }
        let now = Instant::now();
        if self.retry_at.is_some_and(|at| at <= now) {
            self.retry_at = None;
            self.read_again();
            self.lanes.retry_all();
        }
        if matches!(self.phase, Phase::Serving) && self.renewal.is_due(now, self.out.is_empty()) {
            self.transport.renew();
        }
        self.look_after_questions();
        self.fetch_waiting();
        self.start_waiting();
        self.forgetting.retain(|_, forgotten| !forgotten.is_cancelled());
        self.release_held();
        self.hand_out_ops();
        self.tell_journal_of_ops(now, OUT_UNTOLD);
        self.mind_sleep();
    }

    pub(super) fn submit(&mut self) {
        if self.writes.is_empty() || self.submission.is_some() {
            return;
        }
        match self.journal.try_submit(std::mem::take(&mut self.writes)) {
            Ok(()) => {}
            Err((SubmitError::Full, writes)) => {
                let journal = self.journal.clone();
                self.submission = Some(Box::pin(async move { journal.submit(writes).await }));
            }
            Err((SubmitError::Closed, _)) => self.journal_lost = true,
        }
    }

    pub(super) fn takes_deliveries(&self) -> bool {
        let room = self.submission.is_none() && self.arrivals.len() < MOST_ARRIVALS;
        room && !self.incoming.over && !matches!(self.phase, Phase::Over)
    }

    pub(super) fn next_deadline(&self) -> Instant {
        let far = Instant::now() + Duration::from_secs(60);
        let untold = self.lately_out.front().map(|(since, _)| *since + OUT_UNTOLD);
        [
            self.retry_at,
            untold,
            self.phase.deadline(),
            self.renewal.deadline(),
            self.held_deadline(),
            self.questions_deadline(),
            self.sleep_deadline(),
        ]
        .into_iter()
        .flatten()
        .min()
        .unwrap_or(far)
        .min(far)
    }

    pub(super) fn ended(&self) -> Option<Ended> {
        if self.journal_lost {
            return Some(Ended::JournalLost);
        }
        if matches!(self.phase, Phase::Over) {
            return Some(Ended::Asked);
        }
        if self.sleeper.as_ref().is_some_and(Sleeper::is_over) {
            return Some(Ended::Slept);
        }
        match &self.view.ended {
            Some(End::Revoked { reason }) if self.settings.exit_when_revoked => Some(Ended::Revoked {
                reason: reason.clone(),
            }),
            _ => None,
        }
    }

    pub(super) fn take_link(&mut self, now: LinkView) {
        let reconnected = now.live.is_some() && now.live != self.view.live;
        if now.live != self.view.live {
            self.drop_passing();
        }
        if now.state != self.view.state {
            self.link_since_ms = self.now_ms();
        }
        self.note_link(&now);
        self.view = now;
        if reconnected {
            self.lanes.retry_all();
        }
    }
}
