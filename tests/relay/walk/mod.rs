//! Random walks over the whole event loop: one relay with a state directory, people with roles on two platforms, and whatever
//! may happen to them, in any order. After each walk everything comes to rest, and the relay's promises are held against
//! what its agents, its chats and its journal have seen.
//!
//! | what happens | what holds |
//! |---|---|
//! | messages, presses and typed answers, slash commands, duplicates | what is acknowledged is answered, refused for a reason, or reported; nothing runs twice |
//! | jobs of people and of the operator, things handed over | every answer goes to its own chat, every run has an end, everybody who waits is answered |
//! | rules that change | whoever is denied starts nothing and decides nothing from the confirmation on |
//! | stops, lost connections, a journal that stalls or fails, restarts, kills | turns of a session run in order, one at a time, and nothing is left over |
//!
//! A walk is repeated with `WALK_SEED=7 cargo test --all-features --test relay walk`, as often as `WALK_ROUNDS` says: threads and
//! the clock have a part in what happens, so one round may miss what another one finds. Without a seed, `WALK_ROUNDS` is the
//! number of walks.
//!
//! The same walks take place in a simulated world ([`simulation`]), where hours pass in milliseconds, a crash is a power failure that
//! tears what is being written, and nothing is left to chance: `SIM_SEED=7 cargo test --all-features --test relay simulated` is
//! always the same life. `SIM_SEEDS` is the number of lives.

mod agent;
mod check;
mod course;
mod faults;
mod people;
mod programs;
mod seen;
mod simulation;
mod world;

use simulation::World;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Walks that run at the same time.
const PARALLEL: usize = 4;
/// Walks without `WALK_ROUNDS`.
const ROUNDS: u64 = 20;

/// What a walk did, for whoever reads of its failure.
type Steps = Arc<Mutex<Vec<String>>>;

struct Failure {
    seed: u64,
    why: String,
    steps: Vec<String>,
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is a number")))
}

#[test]
fn whatever_happens_in_whatever_order_the_relay_keeps_its_promises() {
    let (seed, rounds) = (number("WALK_SEED"), number("WALK_ROUNDS"));
    let rounds = rounds.unwrap_or(if seed.is_some() { 1 } else { ROUNDS });
    let next = AtomicU64::new(0);
    let failures: Mutex<Vec<Failure>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..PARALLEL {
            scope.spawn(|| {
                loop {
                    let round = next.fetch_add(1, Ordering::Relaxed);
                    if round >= rounds || !failures.lock().unwrap().is_empty() {
                        return;
                    }
                    if let Err(failure) = run(seed.unwrap_or(round)) {
                        failures.lock().unwrap().push(failure);
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    if let Some(Failure { seed, why, steps }) = failures.into_iter().next() {
        let steps = steps.join("\n");
        panic!("{steps}\n\nWALK_SEED={seed}: {why}");
    }
}

/// Simulated lives without `SIM_SEEDS`.
const LIVES: u64 = 16;

#[test]
fn whatever_happens_in_a_simulated_world_the_relay_keeps_its_promises() {
    let seed = number("SIM_SEED");
    let lives = number("SIM_SEEDS").unwrap_or(if seed.is_some() { 1 } else { LIVES });
    let first = seed.unwrap_or(1);
    let began = std::time::Instant::now();
    let mut simulated = std::time::Duration::ZERO;
    for seed in first..first + lives {
        match run_in(seed, World::Simulated) {
            Ok(time) => simulated += time,
            Err(Failure { seed, why, steps }) => {
                let steps = steps.join("\n");
                panic!("{steps}\n\nSIM_SEED={seed}: {why}");
            }
        }
    }
    let (hours, took) = (simulated.as_secs_f64() / 3600.0, began.elapsed().as_secs_f64());
    println!(
        "{lives} lives, {hours:.0} hours in {took:.1} s: {:.0} hours a minute",
        hours * 60.0 / took
    );
}

#[test]
fn a_disk_that_forgets_is_noticed_in_the_simulation() {
    let noticed = (1..=12).find_map(|seed| run_in(seed, World::Forgetful).err());
    assert!(
        noticed.is_some(),
        "twelve lives on a disk that forgets, and nothing is missed"
    );
}

#[test]
fn a_simulated_life_is_the_same_again() {
    for seed in [1, 2, 3] {
        let mut lives = [Vec::new(), Vec::new()];
        for life in &mut lives {
            let steps = course::steps();
            if let Err(failure) = run_with(seed, World::Simulated, &steps) {
                panic!("SIM_SEED={seed}: {}", failure.why);
            }
            life.clone_from(&steps.lock().unwrap());
        }
        let [one, other] = lives;
        let differs = one.iter().zip(&other).position(|(one, other)| one != other);
        if let Some(at) = differs {
            let (before, [one, other]) = (&one[at.saturating_sub(12)..at], [&one[at..], &other[at..]]);
            let next = |life: &[String]| life.iter().take(4).cloned().collect::<Vec<_>>();
            panic!(
                "SIM_SEED={seed}, step {at}: after {before:#?} either {:#?} or {:#?}",
                next(one),
                next(other)
            );
        }
        assert_eq!(one.len(), other.len());
    }
}

fn run(seed: u64) -> Result<(), Failure> {
    run_in(seed, World::Machine).map(drop)
}

fn run_in(seed: u64, world: World) -> Result<std::time::Duration, Failure> {
    run_with(seed, world, &course::steps())
}

/// One walk, in a runtime of its own. Returns how long it lasted.
fn run_with(seed: u64, world: World, steps: &Steps) -> Result<std::time::Duration, Failure> {
    let shared = Arc::clone(steps);
    let walked = catch_unwind(AssertUnwindSafe(|| {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().start_paused(world != World::Machine).build();
        runtime.unwrap().block_on(async move {
            let began = tokio::time::Instant::now();
            let mut walk = course::Walk::start(seed, shared, world).await;
            for _ in 0..60 + walk.rng.below(90) {
                walk.step().await;
            }
            walk.settle().await;
            check::check(&mut walk).await;
            began.elapsed()
        })
    }));
    walked.map_err(|panic| Failure {
        seed,
        why: text_of(&*panic),
        steps: steps.lock().unwrap_or_else(PoisonError::into_inner).clone(),
    })
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_default()
}
