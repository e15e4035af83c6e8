//! Who lets the journal's writer work: the machine's clock and its queue, or a simulation, one step at a time.

use super::command::Command;
use super::queue::{Queue, Woken};
use std::time::Instant;

/// What the writer waits for.
pub(super) enum WriterPace {
    /// Commands, and the time.
    Clock,
    /// The simulation around it.
    #[cfg(feature = "internals")]
    Steps(steps::StepReceiver),
}

impl WriterPace {
    /// The time.
    pub(super) fn now(&self) -> Instant {
        match self {
            Self::Clock => Instant::now(),
            #[cfg(feature = "internals")]
            Self::Steps(steps) => steps.now(),
        }
    }

    /// Waits for commands or until `until`, then moves one transaction's commands into `into`. `None` if there is no time left.
    #[cfg_attr(
        not(feature = "internals"),
        expect(clippy::unnecessary_wraps, reason = "only a simulation runs out of time")
    )]
    pub(super) fn wait(&mut self, queue: &Queue, into: &mut Vec<Command>, until: Instant) -> Option<Woken> {
        match self {
            Self::Clock => Some(queue.take(into, until)),
            #[cfg(feature = "internals")]
            Self::Steps(steps) => steps.wait(queue, into, until),
        }
    }
}

#[cfg(feature = "internals")]
pub(super) mod steps {
    //! A writer that works only when it is asked to, while whoever asks waits: two threads, of which one runs at any time.

    use super::{Command, Instant, Queue, Woken};
    use std::sync::{Arc, mpsc};
    use std::thread;
    use tokio::sync::watch;

    /// The writer's end.
    pub(in crate::store) struct StepReceiver {
        steps: mpsc::Receiver<Instant>,
        done: mpsc::SyncSender<Instant>,
        now: Instant,
        is_asked: bool,
    }

    /// Lets the writer of a simulated journal work. Dropped, it ends the writer where it is, as a power failure does.
    #[derive(Debug)]
    pub struct JournalSteps {
        steps: Option<mpsc::SyncSender<Instant>>,
        done: mpsc::Receiver<Instant>,
        ended: watch::Receiver<Option<usize>>,
        queue: Arc<Queue>,
        until: Instant,
    }

    /// Both ends.
    pub(in crate::store) fn channel(
        queue: Arc<Queue>,
        ended: watch::Receiver<Option<usize>>,
        now: Instant,
    ) -> (JournalSteps, StepReceiver) {
        let (steps, step_receiver) = mpsc::sync_channel(1);
        let (done_sender, done) = mpsc::sync_channel(1);
        let receiver = StepReceiver {
            steps: step_receiver,
            done: done_sender,
            now,
            is_asked: false,
        };
        let steps = JournalSteps {
            steps: Some(steps),
            done,
            ended,
            queue,
            until: now,
        };
        (steps, receiver)
    }

    impl StepReceiver {
        pub(in crate::store) fn now(&self) -> Instant {
            self.now
        }

        pub(super) fn wait(
            &mut self,
            queue: &Queue,
            into: &mut Vec<Command>,
            until: Instant,
        ) -> Option<Woken> {
            if std::mem::replace(&mut self.is_asked, true) {
                self.done.send(until).ok()?;
            }
            self.now = self.steps.recv().ok()?;
            Some(queue.take_now(into))
        }
    }

    impl JournalSteps {
        /// Waits until there is something to do: commands, the close, or what the writer does from time to time.
        pub fn ready(&self) -> impl Future<Output = ()> + Send + use<> {
            let (queue, until) = (Arc::clone(&self.queue), self.until);
            async move {
                tokio::select! {
                    biased;
                    () = queue.waiting() => {}
                    () = tokio::time::sleep_until(until.into()) => {}
                }
            }
        }

        /// Lets the writer do one thing, and waits for it; `false` if it has ended.
        pub fn step(&mut self, now: Instant) -> bool {
            let sent = self.steps.as_ref().is_some_and(|steps| steps.send(now).is_ok());
            let Some(until) = sent.then(|| self.done.recv().ok()).flatten() else {
                self.wait_for_end();
                return false;
            };
            self.until = until;
            true
        }

        /// What follows the writer's end (it closes its files) has happened, too, and whoever waits for it is woken: that is so only
        /// once the sender is gone. A clock that jumps would pass by who is not woken yet.
        fn wait_for_end(&self) {
            while self.ended.has_changed().is_ok() {
                thread::yield_now();
            }
        }
    }

    impl Drop for JournalSteps {
        fn drop(&mut self) {
            self.steps = None;
            self.wait_for_end();
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use std::sync::atomic::{AtomicBool, Ordering};
        use std::sync::{Mutex, mpsc};
        use std::task::{Context, Wake, Waker};
        use std::time::Duration;

        /// Takes its time to be woken, unless somebody does not wait for that.
        struct SlowWaker {
            waking: mpsc::Sender<()>,
            not_waited_for: Mutex<mpsc::Receiver<()>>,
            is_woken: AtomicBool,
        }

        impl Wake for SlowWaker {
            fn wake(self: Arc<Self>) {
                self.waking.send(()).unwrap();
                let skipped = self.not_waited_for.lock().unwrap();
                if skipped.recv_timeout(Duration::from_millis(200)).is_err() {
                    self.is_woken.store(true, Ordering::SeqCst);
                }
            }
        }

        #[test]
        fn the_end_is_over_when_whoever_waits_for_it_is_woken() {
            let (ended_sender, ended) = watch::channel(None);
            let mut waiting = ended.clone();
            let (steps, _receiver) = channel(Arc::new(Queue::new(1)), ended, Instant::now());
            let (waking_sender, waking) = mpsc::channel();
            let (skip, not_waited_for) = mpsc::channel();
            let slow = Arc::new(SlowWaker {
                waking: waking_sender,
                not_waited_for: Mutex::new(not_waited_for),
                is_woken: AtomicBool::new(false),
            });
            let mut waiter = Box::pin(waiting.changed());
            let waker = Waker::from(Arc::clone(&slow));
            assert!(
                waiter
                    .as_mut()
                    .poll(&mut Context::from_waker(&waker))
                    .is_pending()
            );
            let writer = thread::spawn(move || ended_sender.send_replace(Some(0)));
            waking.recv().unwrap();
            drop(steps);
            let is_woken = slow.is_woken.load(Ordering::SeqCst);
            let _ = skip.send(());
            writer.join().unwrap();
            assert!(is_woken);
        }
    }
}
