//! Runs the tests that reach a mutant, for each mutant.

use crate::build::Program;
use crate::modules;
use crate::reach::{self, Reach};
use crate::sample::Chosen;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A run of tests is over after this many times what it takes without a mutant: a mutant may wait for ever.
const PATIENCE: u32 = 3;
const LEAST_PATIENCE: Duration = Duration::from_secs(60);
/// The longest time of a run without a mutant.
const LONGEST: Duration = Duration::from_secs(1200);
/// How often a run is looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// Tests that run together: most mutants are noticed by the first ones.
const AT_ONCE: usize = 24;

/// How a run of tests ended.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Passed,
    /// With the tests that failed, as far as they were named.
    Failed(Vec<String>),
    TooLong,
}

/// A program of tests, and what is known of it without a mutant.
struct Suite<'p> {
    program: &'p Program,
    /// How long all of its tests may take.
    patience: Duration,
    /// How long the unit tests of a module may take.
    homes: BTreeMap<String, Duration>,
    reached: HashMap<usize, Reach>,
    /// Whether the tests of a mutant's module are enough.
    near: bool,
}

impl<'p> Suite<'p> {
    /// Runs the tests without a mutant. An error if that fails.
    fn try_out(program: &'p Program, number: usize, modules: &[String]) -> Result<Self, String> {
        let record = program.scratch.join(format!("reached-{number}"));
        let _ = fs::remove_file(&record);
        let (filters, name) = (
            Vec::from_iter(program.filter.clone()),
            program.executable.display(),
        );
        let started = Instant::now();
        let end = run_tests(program, &filters, Mode::Record(&record), LONGEST)?;
        let took = started.elapsed();
        match end {
            End::Passed => {}
            End::TooLong => return Err(format!("{name} takes too long without a mutant")),
            End::Failed(failed) if failed.is_empty() => {
                return Err(format!("{name} fails without a mutant"));
            }
            End::Failed(failed) => {
                println!("failed without a mutant, and run again: {}", failed.join(", "));
                if run_tests(program, &exact(&failed), Mode::Plain, LONGEST)? != End::Passed {
                    return Err(format!("{name} fails without a mutant: {}", failed.join(", ")));
                }
            }
        }
        println!(
            "without a mutant, all tests of {name}: {:.1} s",
            took.as_secs_f64()
        );
        let mut homes = BTreeMap::new();
        // Only unit tests are in modules that are named like directories of the code.
        for module in modules.iter().filter(|_| number == 0) {
            let started = Instant::now();
            run_tests(program, &[module.clone()], Mode::Plain, LONGEST)?;
            let took = started.elapsed();
            println!("without a mutant, {module}: {:.1} s", took.as_secs_f64());
            homes.insert(module.clone(), (took * PATIENCE).max(LEAST_PATIENCE));
        }
        Ok(Self {
            program,
            patience: (took * PATIENCE).max(LEAST_PATIENCE),
            homes,
            reached: reach::read(&record, &tests(program)?)?,
            near: false,
        })
    }

    /// What noticed a mutant.
    fn notices(&self, number: usize, module: Option<&str>) -> Result<Option<String>, String> {
        let Some(reach) = self.reached.get(&number) else {
            return Ok(None);
        };
        let run = |arguments: &[String], patience| {
            let end = run_tests(self.program, arguments, Mode::Mutant(number), patience)?;
            Ok::<_, String>(match end {
                End::Passed => None,
                End::Failed(failed) => Some(failed.first().cloned().unwrap_or_else(|| "an exit".to_owned())),
                End::TooLong => Some("the time".to_owned()),
            })
        };
        // Those of its own module know it best.
        let (near, far): (Vec<_>, Vec<_>) = (reach.tests.iter().cloned())
            .partition(|test| module.is_some_and(|module| test.starts_with(module)));
        let nearest_first = [near, far].concat();
        for some in nearest_first.chunks(AT_ONCE) {
            if let Some(by) = run(&exact(some), self.patience.min(LEAST_PATIENCE * 2))? {
                return Ok(Some(by));
            }
        }
        if !reach.elsewhere {
            return Ok(None);
        }
        if let Some((home, patience)) = module.and_then(|module| self.homes.get_key_value(module)) {
            let by = run(std::slice::from_ref(home), *patience)?;
            if by.is_some() || self.near {
                return Ok(by);
            }
        }
        run(&Vec::from_iter(self.program.filter.clone()), self.patience)
    }
}

/// Whether each mutant survived. An error is a test that fails without any mutant.
pub fn run(programs: &[Program], chosen: &[Chosen], jobs: usize, near: bool) -> Result<Vec<bool>, String> {
    let modules: BTreeSet<_> = chosen.iter().filter_map(|mutant| module(&mutant.file)).collect();
    let modules = Vec::from_iter(modules);
    let mut survived = vec![true; chosen.len()];
    for (number, program) in programs.iter().enumerate() {
        let mut suite = Suite::try_out(program, number, &modules)?;
        suite.near = near;
        survived = run_suite(&suite, chosen, &survived, jobs)?;
    }
    Ok(survived)
}

/// Which of those that survived so far survive these tests as well.
fn run_suite(
    suite: &Suite<'_>,
    chosen: &[Chosen],
    survived: &[bool],
    jobs: usize,
) -> Result<Vec<bool>, String> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(survived.to_vec());
    let problem = Mutex::new(None);
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(mutant) = chosen.get(number) else { return };
            if !survived[number] {
                continue;
            }
            let noticed = match suite.notices(number, module(&mutant.file).as_deref()) {
                Ok(noticed) => noticed,
                Err(error) => {
                    *problem.lock().expect("no thread panicked") = Some(error);
                    return;
                }
            };
            let word = match (&noticed, suite.reached.contains_key(&number)) {
                (Some(_), _) => "noticed",
                (None, true) => "SURVIVED",
                (None, false) => "UNREACHED",
            };
            let by = noticed.as_ref().map(|by| format!(" (by {by})"));
            println!("{number:>4} {word:<9} {mutant}{}", by.unwrap_or_default());
            results.lock().expect("no thread panicked")[number] = noticed.is_none();
        }
    };
    thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(work);
        }
    });
    match problem.into_inner().expect("no thread panicked") {
        Some(error) => Err(error),
        None => Ok(results.into_inner().expect("no thread panicked")),
    }
}

/// The unit tests of a file are in the module that is named like its first directory: `src/link/ack.rs` is in `link::`.
fn module(file: &Path) -> Option<String> {
    modules::name(file).map(|name| format!("{name}::"))
}

/// The arguments for just these tests.
fn exact(tests: &[String]) -> Vec<String> {
    std::iter::once("--exact".to_owned())
        .chain(tests.iter().cloned())
        .collect()
}

/// The names of a program's tests.
fn tests(program: &Program) -> Result<HashSet<String>, String> {
    let listed = Command::new(&program.executable)
        .args(["--list", "--format=terse"])
        .current_dir(&program.tree)
        .output()
        .map_err(|error| format!("cannot run {}: {error}", program.executable.display()))?;
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    Ok(listed
        .lines()
        .filter_map(|line| line.strip_suffix(": test"))
        .map(str::to_owned)
        .collect())
}

#[derive(Debug, Clone, Copy)]
enum Mode<'a> {
    Plain,
    /// Without a mutant; writes down which test reaches which.
    Record(&'a Path),
    Mutant(usize),
}

fn run_tests(
    program: &Program,
    arguments: &[String],
    mode: Mode<'_>,
    patience: Duration,
) -> Result<End, String> {
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    let number = RUNS.fetch_add(1, Ordering::Relaxed);
    let printed: PathBuf = program.scratch.join(format!("output-{number}"));
    let file =
        File::create(&printed).map_err(|error| format!("cannot write {}: {error}", printed.display()))?;
    let mut command = Command::new(&program.executable);
    command
        .args(arguments)
        .current_dir(&program.tree)
        .stdin(Stdio::null())
        .stdout(file)
        .stderr(Stdio::null());
    match mode {
        Mode::Plain => &mut command,
        Mode::Record(record) => command.env("MUTANTS_REACHED", record),
        Mode::Mutant(number) => command.env("MUTANT", number.to_string()),
    };
    let child =
        (command.spawn()).map_err(|error| format!("cannot run {}: {error}", program.executable.display()))?;
    let failed = || failed(&String::from_utf8_lossy(&fs::read(&printed).unwrap_or_default()));
    // The first test that fails is enough for a mutant.
    let is_enough = || matches!(mode, Mode::Mutant(_)) && !failed().is_empty();
    let ended = ends_well(child, patience, is_enough);
    let failed = failed();
    let _ = fs::remove_file(&printed);
    Ok(match ended {
        Some(true) => End::Passed,
        None if failed.is_empty() => End::TooLong,
        Some(false) | None => End::Failed(failed),
    })
}

fn failed(printed: &str) -> Vec<String> {
    printed
        .lines()
        .filter_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"))
        .map(|name| name.trim_end_matches(" - should panic").to_owned())
        .collect()
}

/// `None` if it did not end in time, or was enough before.
#[expect(
    clippy::disallowed_methods,
    reason = "it waits for another process, and has a thread of its own"
)]
fn ends_well(mut child: Child, patience: Duration, is_enough: impl Fn() -> bool) -> Option<bool> {
    let until = Instant::now() + patience;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status.success()),
            Ok(None) if Instant::now() < until && !is_enough() => thread::sleep(LOOK_AGAIN),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_tests_are_read_from_what_a_program_prints() {
        let printed =
            "running 2 tests\ntest a::b ... ok\ntest a::c ... FAILED\ntest a::d - should panic ... FAILED\n";
        assert_eq!(failed(printed), ["a::c", "a::d"]);
    }
}
