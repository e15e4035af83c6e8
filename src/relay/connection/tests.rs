use std::sync::atomic::Ordering;

use tokio_util::task::AbortOnDropHandle;

use super::*;
use crate::net::ws_io::in_memory;

/// More lines than are looked at together, by far.
const MANY: usize = 200_000;
/// Batches that wait for the relay.
const WAITING: usize = 2;
const SOON: Duration = Duration::from_secs(60);

/// What the relay is told: the session of an interrupt, or how many lines are of no use.
#[derive(Debug, PartialEq)]
enum Told {
    Stop(String),
    Nonsense(u64),
}

/// A connection that heard one message.
struct Hearing {
    deliveries: mpsc::Receiver<Vec<Delivery>>,
    frames: Arc<FrameMeter>,
    /// What speaks, what listens, and who takes the link's own news.
    _others: [AbortOnDropHandle<()>; 2],
}

impl Hearing {
    fn of(message: String) -> Self {
        let (socket, other_end) = in_memory();
        let (sender, deliveries) = mpsc::channel(WAITING);
        let frames = Arc::new(FrameMeter::default());
        let written = Arc::new(AtomicU64::new(0));
        let meter = Arc::clone(&frames);
        let mut connection = Connection::open(socket, Generation::first(), 1024, sender, written, meter);
        let linked = async move { while connection.news.recv().await.is_some() {} };
        let speaking = async move {
            let (_hearing, mut speaking) = split(other_end);
            speaking.write_line(message).await.unwrap();
            speaking.flush().await.unwrap();
            std::future::pending::<()>().await;
        };
        Self {
            deliveries,
            frames,
            _others: [
                AbortOnDropHandle::new(tokio::spawn(linked)),
                AbortOnDropHandle::new(tokio::spawn(speaking)),
            ],
        }
    }

    /// The next batch, which is never large.
    async fn batch(&mut self) -> Vec<Told> {
        let batch = timeout(SOON, self.deliveries.recv()).await.unwrap().unwrap();
        assert!(batch.len() <= BATCH, "{} at once", batch.len());
        let told = |delivery: Delivery| match delivery.cargo {
            Cargo::Interrupt { session_key, .. } => Told::Stop(session_key),
            Cargo::Unusable { lines, .. } => Told::Nonsense(lines),
            other => panic!("{other:?}"),
        };
        batch.into_iter().map(told).collect()
    }
}

/// Lines that were looked at.
fn seen(frames: &FrameMeter) -> usize {
    let all = frames.counts().0.iter().map(|(_, count)| count).sum::<u64>();
    usize::try_from(all).unwrap()
}

fn stop(session: usize) -> String {
    format!("{{\"type\":\"interrupt_inbound\",\"session_key\":\"{session}\",\"chat_id\":\"c\"}}\n")
}

#[tokio::test]
async fn a_message_of_many_lines_is_taken_a_few_at_a_time_and_nonsense_is_told_together() {
    let nonsense = |lines| "x\n".repeat(lines);
    let named = "{\"type\":\"inbound\",\"bufferId\":\"b\",\"event\":5}\n";
    let message = [
        nonsense(MANY),
        stop(1),
        nonsense(3),
        named.repeat(2),
        nonsense(1),
        stop(2),
    ]
    .concat();
    let mut hearing = Hearing::of(message);
    // Somebody else with something to do on the same thread.
    let frames = Arc::clone(&hearing.frames);
    let turns = Arc::new(AtomicU64::new(0));
    let others = Arc::clone(&turns);
    let _other = AbortOnDropHandle::new(tokio::spawn(async move {
        loop {
            if (1..MANY).contains(&seen(&frames)) {
                others.fetch_add(1, Ordering::Relaxed);
            }
            yield_now().await;
        }
    }));
    let mut told = Vec::new();
    while told.last() != Some(&Told::Stop("2".to_owned())) {
        told.append(&mut hearing.batch().await);
    }
    let (first, many) = (Told::Stop("1".to_owned()), u64::try_from(MANY).unwrap());
    let aside = [3, 1, 1, 1].map(Told::Nonsense);
    let expected = [Told::Nonsense(many), first].into_iter().chain(aside);
    assert_eq!(
        told,
        expected.chain([Told::Stop("2".to_owned())]).collect::<Vec<_>>()
    );
    assert_eq!(seen(&hearing.frames), MANY + 8);
    let turns = turns.load(Ordering::Relaxed);
    assert!(turns >= many / 256 / 2, "others had {turns} turns in between");
}

#[tokio::test]
async fn a_relay_that_is_behind_holds_up_the_rest_of_a_message() {
    const STOPS: usize = 5_000;
    let mut hearing = Hearing::of((0..STOPS).map(stop).collect());
    let most = (WAITING + 1) * BATCH;
    let reached = async {
        while seen(&hearing.frames) < most {
            yield_now().await;
        }
    };
    timeout(SOON, reached).await.unwrap();
    for _ in 0..1_000 {
        yield_now().await;
    }
    assert_eq!(seen(&hearing.frames), most);
    let mut told = Vec::new();
    while told.len() < STOPS {
        told.append(&mut hearing.batch().await);
    }
    let all: Vec<_> = (0..STOPS)
        .map(|session| Told::Stop(session.to_string()))
        .collect();
    assert_eq!(told, all);
}
