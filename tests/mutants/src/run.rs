//! Runs the tests once for each mutant.

use crate::build::Program;
use crate::sample::Chosen;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A run of tests is over after this many times what it takes without a mutant: a mutant may wait for ever.
const PATIENCE: u32 = 3;
const LEAST_PATIENCE: Duration = Duration::from_secs(20);
/// The longest time of a run without a mutant.
const LONGEST: Duration = Duration::from_secs(1200);

/// Some tests of a program, and how long they may take.
struct Tests<'p> {
    program: &'p Program,
    filter: Option<String>,
    patience: Duration,
}

impl<'p> Tests<'p> {
    /// Runs them without a mutant. An error if that fails.
    fn try_out(program: &'p Program, filter: Option<String>) -> Result<Self, String> {
        let mut tests = Self {
            program,
            filter,
            patience: LONGEST,
        };
        let started = Instant::now();
        let shown = tests.filter.as_deref().unwrap_or("all tests").to_owned();
        if !tests.pass(None) {
            return Err(format!(
                "{} fails without a mutant: {shown}",
                program.executable.display()
            ));
        }
        println!(
            "without a mutant, {shown}: {:.1} s",
            started.elapsed().as_secs_f64()
        );
        tests.patience = (started.elapsed() * PATIENCE).max(LEAST_PATIENCE);
        Ok(tests)
    }

    fn pass(&self, mutant: Option<usize>) -> bool {
        let mut command = Command::new(&self.program.executable);
        command
            .args(&self.filter)
            .current_dir(&self.program.tree)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        if let Some(number) = mutant {
            command.env("MUTANT", number.to_string());
        }
        command.spawn().is_ok_and(|child| ends_well(child, self.patience))
    }
}

/// Whether each mutant survived. An error is a test that fails without any mutant.
pub fn run(programs: &[Program], chosen: &[Chosen], jobs: usize) -> Result<Vec<bool>, String> {
    let mut homes = BTreeMap::new();
    for module in chosen.iter().filter_map(|mutant| module(&mutant.file)) {
        if let Entry::Vacant(home) = homes.entry(module) {
            let filter = home.key().clone();
            home.insert(Tests::try_out(&programs[0], Some(filter))?);
        }
    }
    let all = programs
        .iter()
        .map(|program| Tests::try_out(program, program.filter.clone()));
    let all = all.collect::<Result<Vec<_>, _>>()?;
    let survives = |number, mutant: &Chosen| {
        let home = module(&mutant.file).and_then(|module| homes.get(&module));
        home.into_iter().chain(&all).all(|tests| tests.pass(Some(number)))
    };
    let next = AtomicUsize::new(0);
    let results = Mutex::new(vec![false; chosen.len()]);
    thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(mutant) = chosen.get(number) else { return };
                    let survived = survives(number, mutant);
                    let word = if survived { "SURVIVED" } else { "noticed" };
                    println!(
                        "{number:>4} {word:<8} {}:{}: {}",
                        mutant.file.display(),
                        mutant.mutant.line,
                        mutant.mutant.what
                    );
                    results.lock().expect("no thread panicked")[number] = survived;
                }
            });
        }
    });
    Ok(results.into_inner().expect("no thread panicked"))
}

/// The unit tests of a file are in the module that is named like its first directory: `src/link/ack.rs` is in `link::`.
fn module(file: &Path) -> Option<String> {
    let mut parts = file.components().skip(1);
    let first = parts.next()?.as_os_str().to_str()?;
    Some(format!("{}::", first.trim_end_matches(".rs")))
}

#[expect(
    clippy::disallowed_methods,
    reason = "it waits for another process, and has a thread of its own"
)]
fn ends_well(mut child: Child, patience: Duration) -> bool {
    let until = Instant::now() + patience;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) if Instant::now() < until => thread::sleep(Duration::from_millis(20)),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                return false;
            }
        }
    }
}
