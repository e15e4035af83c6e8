//! Changes the code of hermes-relay in many small ways, one at a time, and counts the changes that no test notices.
//!
//! All changes are compiled into ONE copy of the tree, each behind a switch that an environment variable turns on. So there is one build
//! for hundreds of mutants, and each costs the run of some tests. Two mutants of one expression cannot be in the same copy: of those the
//! sample takes one. A first run without a mutant writes down which tests reach which mutants; only these run for a mutant.

mod build;
mod find;
mod modules;
mod reach;
mod run;
mod sample;

use clap::Parser;
use std::path::PathBuf;
use std::process::ExitCode;

/// Changes the code in many small ways and counts the changes that no test notices.
///
/// Run it from the root of the repository. The unit tests that reach a mutant run for it, first those of its own module; then the tests that
/// you name with --also, for what is left.
#[derive(Parser)]
struct Options {
    /// Files and directories to change, such as src/link.
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// Mutants of each path.
    #[arg(long, default_value_t = 50)]
    sample: usize,
    /// Chooses the mutants: the same seed chooses the same ones in the same code.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// A test program that survivors of the unit tests must survive as well, with a filter for its tests: relay=sessions::
    #[arg(long, value_name = "PROGRAM[=FILTER]")]
    also: Vec<String>,
    /// Directory for the changed copy and its build.
    #[arg(long, default_value = "target/mutants")]
    dir: PathBuf,
    /// Mutants at a time.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Build only the modules of the mutants and what these use, which is much faster; not together with --also.
    #[arg(long, conflicts_with = "also")]
    alone: bool,
    /// Do not run all unit tests for a mutant that only other threads than those of tests reach: those of its module must do.
    #[arg(long)]
    near: bool,
    /// The share that must be noticed; below it the exit code is 1.
    #[arg(long, default_value_t = 0.85)]
    at_least: f64,
}

fn main() -> ExitCode {
    match work(&Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

/// Whether enough was noticed.
fn work(options: &Options) -> Result<bool, String> {
    let mut chosen = sample::choose(&options.paths, options.sample, options.seed)?;
    let programs = build::build(&options.dir, &mut chosen, &options.also, options.alone)?;
    let results = run::run(&programs, &chosen, options.jobs, options.near)?;
    let mut all = (0, 0);
    for path in &options.paths {
        let of_path = (chosen.iter().zip(&results)).filter(|(mutant, _)| mutant.root == *path);
        let (mut noticed, mut total) = (0, 0);
        for (_, survived) in of_path {
            total += 1;
            noticed += usize::from(!survived);
        }
        println!("{:<24} {noticed:>4} of {total:>4} noticed", path.display());
        all = (all.0 + noticed, all.1 + total);
    }
    for (mutant, survived) in chosen.iter().zip(&results) {
        if *survived {
            println!("survived: {mutant}");
        }
    }
    #[allow(clippy::cast_precision_loss, reason = "counts of tests are small")]
    let share = all.0 as f64 / all.1.max(1) as f64;
    println!("{} of {} noticed: {share:.3}", all.0, all.1);
    Ok(share >= options.at_least)
}
