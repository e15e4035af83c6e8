//! `/cron` in a chat: what a person asks for, and how the answers read.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::job::{Job, JobState};
use super::schedule::{Near, Schedule, ScheduleError};
use crate::text::one_line;

/// Maximum words of a schedule.
const MAX_SCHEDULE_WORDS: usize = 10;
/// Jobs that one answer lists.
const LISTED: usize = 20;
/// Characters of a prompt's beginning in an answer.
const BEGINNING_CHARS: usize = 40;
/// Characters of a name in an answer.
const NAME_CHARS: usize = 60;
/// Runs that are shown when a job is made.
const SHOWN_RUNS: usize = 3;

/// What the command is for, for whoever wrote it wrongly.
pub const HELP: &str = "/cron list: the jobs of this chat\n\
    /cron add SCHEDULE PROMPT: for example /cron add weekdays at 9am What is on my calendar?\n\
    /cron pause ID, /cron resume ID, /cron remove ID\n\
    Schedules: every 30m, every 2 weeks, in 2h, tomorrow at 8am, weekdays at 9am, first of the month at 9, 2026-06-19T14:00, 0 9 * * 1-5. \
    Put a schedule into quotes if the prompt starts with a number, a day or a time.";

/// What a person asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobCommand {
    /// List the jobs of the chat.
    List,
    /// Make one.
    Add {
        /// The schedule as written.
        schedule: String,
        /// What the agent is asked.
        prompt: String,
    },
    /// Pause one: id or name.
    Pause(String),
    /// Resume one: id or name.
    Resume(String),
    /// Delete one: id or name.
    Remove(String),
    /// Explain the command.
    Help,
}

impl JobCommand {
    /// Reads what follows `/cron`. The longest beginning that is a schedule is the schedule, unless it is in quotes; one that goes on
    /// is refused, so that nobody gets a shorter one than they wrote.
    pub fn parse(text: &str, now: Timestamp, zone: &TimeZone) -> Result<Self, String> {
        let (verb, rest) = split_word(text);
        let named = |make: fn(String) -> Self| match rest {
            "" => Err(format!("Which job? /cron {verb} ID; /cron list shows the ids.")),
            name => Ok(make(name.to_owned())),
        };
        match verb.to_ascii_lowercase().as_str() {
            "" | "list" | "ls" => Ok(Self::List),
            "add" | "create" | "new" => add(rest, now, zone),
            "pause" => named(Self::Pause),
            "resume" => named(Self::Resume),
            "remove" | "rm" | "delete" => named(Self::Remove),
            "help" => Ok(Self::Help),
            _ => Err(format!("I do not know /cron {}.\n{HELP}", one_line(verb, 20))),
        }
    }

    /// Whether what follows `/cron` only reads.
    pub fn is_inquiry(text: &str) -> bool {
        let (verb, _) = split_word(text);
        ["", "list", "ls", "help"]
            .iter()
            .any(|word| word.eq_ignore_ascii_case(verb))
    }
}

/// The first word, and the rest.
fn split_word(text: &str) -> (&str, &str) {
    let text = text.trim();
    match text.split_once(char::is_whitespace) {
        Some((word, rest)) => (word, rest.trim_start()),
        None => (text, ""),
    }
}

fn add(text: &str, now: Timestamp, zone: &TimeZone) -> Result<JobCommand, String> {
    let (schedule, prompt) = match quoted(text) {
        Some(parts) => parts,
        None => longest_schedule(text, now, zone)?,
    };
    if prompt.is_empty() {
        return Err(format!(
            "What should I do then? /cron add {} PROMPT",
            one_line(schedule, NAME_CHARS)
        ));
    }
    Ok(JobCommand::Add {
        schedule: schedule.to_owned(),
        prompt: prompt.to_owned(),
    })
}

/// A schedule in quotes, as people type them and as phones make them, and what follows it.
fn quoted(text: &str) -> Option<(&str, &str)> {
    const PAIRS: [(char, char); 5] = [('"', '"'), ('\'', '\''), ('`', '`'), ('“', '”'), ('„', '“')];
    let first = text.chars().next()?;
    let (_, close) = PAIRS.iter().find(|(open, _)| *open == first)?;
    let (schedule, rest) = text[first.len_utf8()..].split_once(*close)?;
    Some((schedule.trim(), rest.trim()))
}

fn longest_schedule<'t>(
    text: &'t str,
    now: Timestamp,
    zone: &TimeZone,
) -> Result<(&'t str, &'t str), String> {
    let ends = word_ends(text);
    // A phrase may have `and` and `on` anywhere; at its end they begin what follows.
    let is_whole = |text: &str| !matches!(text.split_whitespace().last(), Some("and" | "on"));
    let is_schedule = |end: &&usize| {
        let beginning = &text[..**end];
        is_whole(beginning) && Schedule::parse(beginning, now, zone).is_ok()
    };
    if let Some(end) = ends.iter().rev().find(is_schedule) {
        let (schedule, rest) = (text[..*end].trim(), text[*end..].trim());
        if !Schedule::is_continued_by(rest) {
            return Ok((schedule, rest));
        }
        let (schedule, begins) = (one_line(schedule, NAME_CHARS), one_line(rest, BEGINNING_CHARS));
        return Err(format!(
            "I can read `{schedule}` as a schedule, but not with what follows: `{begins}`. Put the schedule into quotes: \
             /cron add \"{schedule}\" {begins}"
        ));
    }
    Err(unreadable(&ends, text, now, zone))
}

/// What is wrong with a text that begins with no schedule, as far as that can be told.
fn unreadable(ends: &[usize], text: &str, now: Timestamp, zone: &TimeZone) -> String {
    let errors: Vec<ScheduleError> = ends
        .iter()
        .filter_map(|end| Schedule::parse(&text[..*end], now, zone).err())
        .collect();
    let near = |error: &&ScheduleError| {
        matches!(
            error,
            ScheduleError::Unknown {
                near: Near::Meant(_),
                ..
            }
        )
    };
    let other = |error: &&ScheduleError| !matches!(error, ScheduleError::Unknown { .. });
    if let Some(error) = errors.iter().rev().find(near) {
        return wrong_schedule(error);
    }
    match errors.iter().find(other) {
        Some(error) => format!("{}\n{HELP}", wrong_schedule(error)),
        None => format!("When? I found no schedule.\n{HELP}"),
    }
}

/// What is wrong with a schedule.
pub fn wrong_schedule(error: &ScheduleError) -> String {
    match error {
        ScheduleError::Unknown {
            near: Near::Meant(_), ..
        } => error.to_string(),
        ScheduleError::Unknown { .. } => format!("{error}."),
        _ => format!("This schedule does not work: {error}."),
    }
}

/// Where each of the first words ends.
fn word_ends(text: &str) -> Vec<usize> {
    let mut ends = Vec::new();
    let mut in_word = false;
    for (at, c) in text.char_indices() {
        if c.is_whitespace() && in_word {
            ends.push(at);
        }
        in_word = !c.is_whitespace();
    }
    if in_word {
        ends.push(text.len());
    }
    ends.truncate(MAX_SCHEDULE_WORDS);
    ends
}

/// The answer to `/cron list`.
pub fn list<'j>(jobs: impl Iterator<Item = &'j Job>, zone: &TimeZone) -> String {
    let jobs: Vec<&Job> = jobs.filter(|job| job.state() != JobState::Completed).collect();
    if jobs.is_empty() {
        return format!("This chat has no jobs.\n{HELP}");
    }
    let mut lines: Vec<String> = jobs.iter().take(LISTED).map(|job| line(job, zone)).collect();
    if jobs.len() > LISTED {
        lines.push(format!("and {} more", jobs.len() - LISTED));
    }
    lines.join("\n")
}

fn line(job: &Job, zone: &TimeZone) -> String {
    let state = match (job.state(), job.next_run_at(zone)) {
        (JobState::Paused, _) => match job.paused_reason() {
            Some(reason) => format!("paused: {}", one_line(reason, 100)),
            None => "paused".to_owned(),
        },
        (_, Some(at)) => format!("next {}", when(at, &job.zone(zone))),
        (_, None) => "no next run".to_owned(),
    };
    let failed = match job.last_error() {
        Some(error) => format!("; the last run failed: {}", one_line(error, 100)),
        None => String::new(),
    };
    format!(
        "{} {}: {}, {state}{failed}",
        job.id(),
        one_line(job.name(), NAME_CHARS),
        one_line(&job.schedule_display(), NAME_CHARS)
    )
}

/// The answer to `/cron add`: what was understood, and the next runs.
pub fn added(job: &Job, zone: &TimeZone) -> String {
    let own_zone = job.zone(zone);
    let runs = match (job.next_run_at(zone), job.schedule(zone)) {
        (Some(first), Some(schedule)) => schedule.runs_from(first, &own_zone, SHOWN_RUNS),
        _ => Vec::new(),
    };
    let runs: Vec<String> = runs.into_iter().map(|at| wall_clock(at, &own_zone)).collect();
    let (id, schedule) = (job.id(), one_line(&job.schedule_display(), NAME_CHARS));
    let (count, runs, zone) = (runs.len(), runs.join(", "), zone_name(&own_zone));
    if count == 1 {
        return format!(
            "Added job {id}: {schedule}. Runs {runs} in {zone}. The answer comes here. To undo this: /cron remove {id}"
        );
    }
    format!(
        "Added job {id}: {schedule}. Next runs: {runs} in {zone}. The answer comes here. To undo this: /cron remove {id}"
    )
}

/// The answer to a change other than `/cron add`.
pub fn changed(command: &JobCommand, job: &Job, zone: &TimeZone) -> String {
    let name = one_line(job.name(), NAME_CHARS);
    let id = job.id();
    match command {
        JobCommand::Pause(_) => format!("Paused job {id} ({name}). /cron resume {id} continues it."),
        JobCommand::Resume(_) => match job.next_run_at(zone) {
            Some(at) => {
                let own_zone = job.zone(zone);
                let (at, zone) = (wall_clock(at, &own_zone), zone_name(&own_zone));
                format!("Resumed job {id} ({name}). Next run {at} in {zone}.")
            }
            None => format!("Resumed job {id} ({name}). It has no next run."),
        },
        JobCommand::Remove(_) => format!("Removed job {id} ({name})."),
        JobCommand::Add { .. } => added(job, zone),
        JobCommand::List | JobCommand::Help => String::new(),
    }
}

/// An instant for people: the wall clock of a zone, and the zone.
fn when(at: Timestamp, zone: &TimeZone) -> String {
    format!("{} in {}", wall_clock(at, zone), zone_name(zone))
}

/// The name of a zone.
fn zone_name(zone: &TimeZone) -> &str {
    zone.iana_name().unwrap_or("UTC")
}

/// The wall clock of a zone.
fn wall_clock(at: Timestamp, zone: &TimeZone) -> String {
    let local = at.to_zoned(zone.clone());
    local.strftime("%a %Y-%m-%d %H:%M").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cron::job::NewJob;

    fn now() -> Timestamp {
        "2026-06-15T08:00:00Z".parse().unwrap()
    }

    fn parse(text: &str) -> Result<JobCommand, String> {
        JobCommand::parse(text, now(), &TimeZone::UTC)
    }

    #[track_caller]
    fn adds(text: &str, schedule: &str, prompt: &str) {
        let expected = JobCommand::Add {
            schedule: schedule.to_owned(),
            prompt: prompt.to_owned(),
        };
        assert_eq!(parse(text), Ok(expected), "{text}");
    }

    #[test]
    fn the_longest_beginning_that_is_a_schedule_is_the_schedule() {
        adds("add every 30m check the oven", "every 30m", "check the oven");
        adds("ADD in 2h stretch", "in 2h", "stretch");
        adds(
            "add weekdays at 9am What is up?\nBe brief.",
            "weekdays at 9am",
            "What is up?\nBe brief.",
        );
        adds("add 0 9 * * 1-5 report", "0 9 * * 1-5", "report");
        adds("add 2026-06-19 14:00 leave", "2026-06-19 14:00", "leave");
        adds(
            "add every monday 9am\nplan the week",
            "every monday 9am",
            "plan the week",
        );
    }

    #[test]
    fn phrases_end_where_the_prompt_begins() {
        for (schedule, prompt) in [
            ("every day at 9", "water the plants"),
            ("every day at 9 pm", "water the plants"),
            ("tomorrow at 8am", "call the bank"),
            ("8am tomorrow", "call the bank"),
            ("today at 18:00", "leave"),
            ("first of the month at 9", "pay the rent"),
            ("every 2 weeks", "water the cactus"),
        ] {
            adds(&format!("add {schedule} {prompt}"), schedule, prompt);
        }
    }

    #[test]
    fn a_wrong_schedule_is_answered_with_the_nearest_right_one() {
        for (text, answer) in [
            (
                "add every day at 25 water the plants",
                "I cannot read `every day at 25` as a time. Did you mean `every day at 23`?",
            ),
            (
                "add tomorow at 8am call the bank",
                "I cannot read `tomorow at 8am` as a time. Did you mean `tomorrow at 8am`?",
            ),
            (
                "add every morning tell me the news",
                "I cannot read `every morning` as a time. Did you mean `every day at 8`?",
            ),
        ] {
            assert_eq!(parse(text), Err(answer.to_owned()), "{text}");
        }
    }

    #[test]
    fn a_schedule_that_goes_on_is_never_cut_short() {
        for text in [
            "add every 2h 30m check the oven",
            "add in 1h 30m tea",
            "add in 2 hours and 5 minutes stretch",
            "add every monday 9am and 5pm report",
            "add every day at 9am & 5pm ping",
            "add every day at 9am plus 17:00 ping",
            "add every monday at 9am / tuesday ping",
            "add every 2h on the hour ping",
            "add every day at 9am (Berlin time) ping",
            "add every day at 9am twice ping",
            "add every monday 9am, tuesday 10am report",
            "add weekdays at 9am except fridays report",
            "add every 30m on weekdays look",
            "add every 30m between 9 and 17 look",
            "add every 1h until tomorrow look",
            "add every day at 9am UTC report",
            "add every day at 9am Europe/Berlin report",
            "add every day at 9am in december report",
            "add 2026-06-19 at 14:00 leave",
            "add 2026-06-19 2pm leave",
            "add 2026-06-19 14:00 +02:00 leave",
            "add every 30m 5 apples",
            "add 30m every day tea",
            "add every day at 9 30 push-ups",
            "add every day at 9 and 17 water the plants",
            "add every day at 9 in the evening water the plants",
            "add every day at 9",
        ] {
            let refused = parse(text);
            assert!(refused.is_err(), "{text}: {refused:?}");
        }
        let refused = parse("add every 2h 30m check the oven").unwrap_err();
        assert!(
            refused.contains("/cron add \"every 2h\" 30m check the oven"),
            "{refused}"
        );
        // Words that could join parts of a schedule, and do not.
        adds("add every 30m and then rest", "every 30m", "and then rest");
        adds(
            "add weekdays at 9am on my calendar?",
            "weekdays at 9am",
            "on my calendar?",
        );
        adds("add in 2h to the shop!", "in 2h", "to the shop!");
        adds("add every 30m for me: look", "every 30m", "for me: look");
        adds("add every 30m I am here", "every 30m", "I am here");
    }

    #[test]
    fn quotes_end_a_schedule_where_a_number_follows() {
        adds("add \"0 9 * * 1\" 5 apples", "0 9 * * 1", "5 apples");
        adds("add “every 1h” 2 things", "every 1h", "2 things");
    }

    #[test]
    fn what_is_missing_or_wrong_is_explained() {
        for (text, part) in [
            ("add", "no schedule"),
            ("add check the oven", "no schedule"),
            ("add every 30m", "What should I do"),
            ("add 0 99 * * 1 x", "does not work"),
            ("add every 10s x", "minutes"),
            ("pause", "Which job?"),
            ("frobnicate x", "do not know"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn only_lists_and_help_are_inquiries() {
        for text in ["", " ", "list", "LIST", "help", "ls"] {
            assert!(JobCommand::is_inquiry(text), "{text}");
        }
        for text in ["add in 2h x", "pause a", "remove a", "listen"] {
            assert!(!JobCommand::is_inquiry(text), "{text}");
        }
        assert_eq!(parse("").unwrap(), JobCommand::List);
        assert_eq!(
            parse("rm my job").unwrap(),
            JobCommand::Remove("my job".to_owned())
        );
    }

    #[test]
    fn answers_show_the_meaning_in_the_jobs_zone() {
        let new = NewJob {
            schedule: "weekdays at 9am".to_owned(),
            prompt: "look\nat this".to_owned(),
            timezone: Some("Europe/Berlin".to_owned()),
            ..NewJob::default()
        };
        let mut job = Job::create(&new, "0123456789ab", now(), &TimeZone::UTC).unwrap();
        let text = added(&job, &TimeZone::UTC);
        assert!(
            text.contains("Next runs: Tue 2026-06-16 09:00, Wed 2026-06-17 09:00, Thu 2026-06-18 09:00 in Europe/Berlin."),
            "{text}"
        );
        let listed = list([&job].into_iter(), &TimeZone::UTC);
        assert_eq!(listed.lines().count(), 1, "{listed}");
        job.pause(None, now(), &TimeZone::UTC);
        assert!(list([&job].into_iter(), &TimeZone::UTC).ends_with("paused"));
        assert!(list(std::iter::empty(), &TimeZone::UTC).starts_with("This chat has no jobs."));
    }

    #[test]
    fn what_is_wrong_with_a_schedule_is_said_in_the_language_of_its_reader() {
        let unknown = |near| ScheduleError::Unknown {
            text: "blue".to_owned(),
            near,
        };
        let invalid = |why: &str| ScheduleError::Cron(why.to_owned());
        for (error, german) in [
            (unknown(Near::Meant("at 9".to_owned())), "Meintest du `at 9`?"),
            (unknown(Near::Example("every 2h")), "Schreib es wie `every 2h`."),
            (unknown(Near::None), "oder einen Cron-Ausdruck wie `0 9 * * 1-5`."),
            (
                invalid("`61` is not a valid minute"),
                "`61` ist keine gültige Minute.",
            ),
            (invalid("it needs 5 to 7 columns"), "er braucht 5 bis 7 Spalten."),
            (
                ScheduleError::Timestamp("x".to_owned()),
                "`x` ist keine gültige Zeit",
            ),
            (
                ScheduleError::NoTime("friday".to_owned()),
                "schreib `friday at 9` oder `friday at 14:30`.",
            ),
            (ScheduleError::TooOften, "der kürzeste Abstand ist `every 1m`."),
            (
                ScheduleError::SecondsInterval,
                "schreib `every 2m` oder für einmal `in 90s`.",
            ),
            (ScheduleError::TooFar, "in mehr als hundert Jahren."),
            (ScheduleError::TooLong, "länger als 256 Zeichen."),
            (ScheduleError::Never, "kein Datum der nächsten 50 Jahre passt."),
            (
                ScheduleError::Past("2020-01-01 10:00".to_owned()),
                "2020-01-01 10:00 ist vorbei.",
            ),
        ] {
            let said = crate::words::Language::De
                .reword(&wrong_schedule(&error))
                .into_owned();
            assert!(said.contains(german), "{error:?}: {said}");
            let is_mixed = ["schedule", "time", "write", "this "]
                .iter()
                .any(|word| said.contains(word));
            assert!(!is_mixed, "{said}");
        }
    }
}
