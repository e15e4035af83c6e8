//! Children that will not stop, leave children behind, flood or hold their pipes.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Instant;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};

use super::leftovers::end_leftovers_beside;
use super::*;

const SOON: Duration = Duration::from_secs(10);

fn sh(script: &str) -> Program {
    Program {
        argv: ["sh", "-c", script].map(OsString::from).to_vec(),
        cwd: None,
        env: BTreeMap::new(),
        agent: None,
    }
}

fn start(script: &str) -> Child {
    Child::spawn(&sh(script)).unwrap()
}

async fn first_line(child: &mut Child) -> String {
    let mut line = String::new();
    let mut reader = BufReader::new(child.take_stdout().unwrap());
    timeout(SOON, reader.read_line(&mut line)).await.unwrap().unwrap();
    line.trim().to_owned()
}

/// Whether a process lives; a zombie that waits for its parent does not.
fn lives(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or("").starts_with(" Z"))
}

async fn gone(pid: &str) {
    let deadline = Instant::now() + SOON;
    while lives(pid) {
        assert!(Instant::now() < deadline, "process {pid} still lives");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn schedule(eof: u64, grace: u64) -> StopSchedule {
    StopSchedule {
        eof: Duration::from_millis(eof),
        signal: StopSignal::Terminate,
        grace: Duration::from_millis(grace),
    }
}

#[tokio::test]
async fn input_output_and_exit_code_are_passed_on() {
    let mut child = start("cat; exit 7");
    let mut stdin = child.take_stdin().unwrap();
    stdin.write_all("grüße".as_bytes()).await.unwrap();
    drop(stdin);
    let mut output = String::new();
    child
        .take_stdout()
        .unwrap()
        .read_to_string(&mut output)
        .await
        .unwrap();
    assert_eq!(output, "grüße");
    assert!(child.group().is_some());
    assert_eq!(child.finish().await, Exit::Code(7));
    assert_eq!(child.group(), None);
    assert_eq!(child.kill().await, Exit::Code(7), "asking again changes nothing");
}

#[tokio::test]
async fn each_step_of_the_ladder_stops_what_the_one_before_did_not() {
    let mut polite = start("cat > /dev/null; exit 3");
    assert_eq!(polite.stop(schedule(10_000, 0)).await, Exit::Code(3));

    let mut signalled = start("trap 'exit 4' TERM; echo up; while :; do sleep 0.02; done");
    assert_eq!(first_line(&mut signalled).await, "up");
    assert_eq!(signalled.stop(schedule(20, 10_000)).await, Exit::Code(4));

    // A shell cannot trap a signal that was ignored when it started, as SIGINT is under nohup.
    let mut interrupted = start(
        "exec env --default-signal=INT sh -c 'trap \"exit 5\" INT; echo up; while :; do sleep 0.02; done'",
    );
    assert_eq!(first_line(&mut interrupted).await, "up");
    let keyboard = StopSchedule {
        signal: StopSignal::Interrupt,
        ..schedule(0, 10_000)
    };
    assert_eq!(interrupted.stop(keyboard).await, Exit::Code(5));

    let mut deaf = start("trap '' TERM; echo up; while :; do sleep 0.02; done");
    assert_eq!(first_line(&mut deaf).await, "up");
    assert_eq!(deaf.stop(schedule(0, 50)).await, Exit::Signal(9));
}

#[tokio::test]
async fn children_of_the_child_go_with_it_however_it_ends() {
    let with_grandchild = "sleep 600 & echo $!";
    let mut ended = start(&format!("{with_grandchild}; exit 0"));
    let grandchild = first_line(&mut ended).await;
    assert!(lives(&grandchild));
    assert_eq!(ended.finish().await, Exit::Code(0));
    gone(&grandchild).await;

    let mut stopped = start(&format!("{with_grandchild}; wait"));
    let grandchild = first_line(&mut stopped).await;
    assert_eq!(stopped.stop(schedule(0, 5000)).await, Exit::Signal(15));
    gone(&grandchild).await;

    let mut dropped = start(&format!("trap '' TERM; {with_grandchild}; wait"));
    let leader = dropped.group().unwrap().to_string();
    let grandchild = first_line(&mut dropped).await;
    drop(dropped);
    gone(&grandchild).await;
    gone(&leader).await;
}

/// Starts a child among groups of its own.
fn start_among(groups: &'static LiveGroups, script: &str) -> Result<Child, SpawnError> {
    let (input, output) = (Stdio::piped(), Stdio::piped());
    Child::start(&sh(script), input, output, || (), groups)
}

#[tokio::test]
async fn every_group_can_be_ended_although_nothing_is_dropped() {
    let groups: &'static LiveGroups = Box::leak(Box::new(LiveGroups::new()));
    let mut pids = Vec::new();
    let mut children = Vec::new();
    for _ in 0..2 {
        let mut child = start_among(groups, "trap '' TERM; sleep 600 & echo $!; wait").unwrap();
        pids.push(first_line(&mut child).await);
        pids.push(child.group().unwrap().to_string());
        children.push(child);
    }
    let mut reaped = start_among(groups, "exit 0").unwrap();
    assert_eq!(reaped.finish().await, Exit::Code(0));
    let dropped = start_among(groups, "sleep 600").unwrap();
    pids.push(dropped.group().unwrap().to_string());
    drop(dropped);

    assert_eq!(groups.end(SOON), 0, "none is left");
    for pid in &pids {
        gone(pid).await;
    }
    for child in &children {
        let leader = format!("/proc/{}", child.group().unwrap());
        assert!(!std::path::Path::new(&leader).exists(), "it is reaped");
    }
    let refused = start_among(groups, "exit 0").unwrap_err();
    assert!(matches!(refused, SpawnError::Refused { .. }), "{refused}");
}

#[tokio::test]
async fn a_child_is_among_the_groups_of_the_program_until_it_is_reaped() {
    let mut child = start("read line");
    let group = Pid::from_raw(child.group().unwrap()).unwrap();
    assert!(LIVE_GROUPS.contains(group));
    child.kill().await;
    assert!(!LIVE_GROUPS.contains(group));
}

/// Groups of their own, and a state directory that they are noted in.
fn noted_groups() -> (&'static LiveGroups, tempfile::TempDir, GroupNotes) {
    let groups: &'static LiveGroups = Box::leak(Box::new(LiveGroups::new()));
    let state = tempfile::tempdir().unwrap();
    let notes = GroupNotes::of(groups, state.path());
    (groups, state, notes)
}

/// The lines of the file with the groups, without the first one and without blank ones.
fn noted_lines(state: &tempfile::TempDir) -> Vec<String> {
    let text = std::fs::read_to_string(state.path().join("process-groups")).unwrap();
    let lines = text.lines().skip(1).map(str::trim_end);
    lines.filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

#[tokio::test]
async fn a_group_is_noted_for_as_long_as_it_lives_and_its_place_is_used_again() {
    let (groups, state, notes) = noted_groups();
    let file = state.path().join("process-groups");
    assert!(!file.exists(), "there is nothing to note");
    let mut first = start_among(groups, "read line").unwrap();
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut second = start_among(groups, "read line").unwrap();
    let numbers = |state: &tempfile::TempDir| -> Vec<i32> {
        let lines = noted_lines(state);
        let number = |line: &String| line.split(' ').next().unwrap().parse().unwrap();
        lines.iter().map(number).collect()
    };
    let (one, two) = (first.group().unwrap(), second.group().unwrap());
    assert_eq!(numbers(&state), [one, two]);
    first.kill().await;
    assert_eq!(numbers(&state), [two]);
    let mut third = start_among(groups, "read line").unwrap();
    assert_eq!(numbers(&state), [third.group().unwrap(), two]);
    // What lives at the end stays noted, for the next run.
    let other_state = tempfile::tempdir().unwrap();
    let other_notes = GroupNotes::of(groups, other_state.path());
    assert_eq!(numbers(&other_state), numbers(&state));
    drop(notes);
    assert!(!file.exists(), "the other file has them");
    third.kill().await;
    drop(other_notes);
    assert_eq!(numbers(&other_state), [two]);
    let notes = GroupNotes::of(groups, state.path());
    assert_eq!(numbers(&state), [two]);
    second.kill().await;
    drop(notes);
    assert!(!file.exists(), "nothing lives");
}

#[tokio::test]
async fn what_a_killed_run_left_is_ended_with_its_children_and_only_that() {
    let (groups, state, _notes) = noted_groups();
    let mut left = start_among(groups, "trap '' TERM; sleep 600 & echo $!; wait").unwrap();
    let mut orphaned = start_among(groups, "sleep 600 & echo $!; read line").unwrap();
    let mut bystander = start_among(groups, "sleep 600").unwrap();
    let gone_with_it = [
        first_line(&mut left).await,
        left.group().unwrap().to_string(),
        first_line(&mut orphaned).await,
    ];
    // Its leader ends, and is reaped by nobody yet.
    drop(orphaned.take_stdin());
    orphaned.exited().await;
    // Another process has the number of one that was noted.
    let lines = noted_lines(&state);
    let fields: Vec<&str> = lines[2].splitn(3, ' ').collect();
    let forged = format!(
        "{} {} {}",
        fields[0],
        fields[1].parse::<u64>().unwrap() - 1,
        fields[2]
    );
    let file = state.path().join("process-groups");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(
        &file,
        text.replace(&lines[2], &format!("{forged:0$}", lines[2].len())),
    )
    .unwrap();

    // Groups of this process are not left over.
    let notes = std::fs::read(&file).unwrap();
    end_leftovers_beside(groups, state.path());
    assert!(gone_with_it.iter().all(|pid| lives(pid)));
    assert!(!file.exists());

    std::fs::write(&file, notes).unwrap();
    let nobody = LiveGroups::new();
    end_leftovers_beside(&nobody, state.path());
    assert!(!gone_with_it.iter().any(|pid| lives(pid)), "{gone_with_it:?}");
    assert!(lives(&bystander.group().unwrap().to_string()));
    assert!(!file.exists());
    end_leftovers_beside(&nobody, state.path());
    bystander.kill().await;
}

#[tokio::test]
async fn groups_that_cannot_be_noted_live_all_the_same() {
    let (groups, state, notes) = noted_groups();
    std::fs::create_dir(state.path().join("process-groups")).unwrap();
    let mut child = start_among(groups, "echo up").unwrap();
    assert_eq!(first_line(&mut child).await, "up");
    assert_eq!(child.finish().await, Exit::Code(0));
    drop(notes);
    end_leftovers_beside(&LiveGroups::new(), state.path());
}

#[tokio::test]
async fn a_flood_on_standard_error_neither_blocks_nor_grows() {
    let mut child = start("head -c 20000000 /dev/zero | tr '\\0' e >&2; echo the end >&2; echo done");
    assert_eq!(first_line(&mut child).await, "done");
    assert_eq!(timeout(SOON, child.finish()).await.unwrap(), Exit::Code(0));
    let end = child.last_words().await;
    assert!(end.ends_with("ethe end") && end.len() == 1000, "{end}");
    assert_eq!(child.stderr_bytes(), 20_000_008);
    assert_eq!(child.stderr_tail().len(), MAX_STDERR);
}

#[tokio::test]
async fn a_program_that_cannot_start_says_why() {
    let why = |program: &Program| Child::spawn(program).unwrap_err().to_string();
    let mut missing = sh("");
    missing.argv[0] = "surely-not-here".into();
    assert!(why(&missing).contains("is not installed"));
    let mut nowhere = sh("");
    nowhere.cwd = Some("/surely/not/here".into());
    assert!(why(&nowhere).contains("/surely/not/here is not a directory"));
    let mut nothing = sh("");
    nothing.argv.clear();
    assert!(why(&nothing).contains("no program"));
}

#[tokio::test]
async fn the_child_has_only_the_given_environment_and_directory() {
    let folder = tempfile::tempdir().unwrap();
    let tool = folder.path().join("tool");
    std::fs::write(&tool, "").unwrap();
    let mut program = sh("pwd; env");
    program.cwd = Some(folder.path().to_owned());
    program.env.insert("ONLY".into(), "this".into());
    let mut child = Child::spawn(&program).unwrap();
    let mut output = String::new();
    let mut stdout = child.take_stdout().unwrap();
    stdout.read_to_string(&mut output).await.unwrap();
    assert!(output.contains("ONLY=this"), "{output}");
    assert!(!output.contains("CARGO"), "{output}");
    let place = folder.path().canonicalize().unwrap();
    assert!(output.starts_with(place.to_str().unwrap()), "{output}");

    program.argv = vec!["./tool".into()];
    let refused = Child::spawn(&program).unwrap_err();
    assert!(
        matches!(refused, SpawnError::NotInstalled(NotInstalled::NotExecutable(_))),
        "{refused}"
    );
}

#[test]
fn the_newest_bytes_stay_and_the_bound_holds() {
    let mut ring = TailBuffer::default();
    for piece in 0..1000_u32 {
        ring.push(format!("{piece:0200}").as_bytes());
        assert!(ring.bytes.len() <= MAX_STDERR);
    }
    assert_eq!(ring.total, 200_000);
    let text = String::from_utf8(ring.bytes.make_contiguous().to_vec()).unwrap();
    assert!(text.ends_with("0999"));
    ring.push(&vec![b'x'; 3 * MAX_STDERR]);
    assert!(ring.bytes.len() == MAX_STDERR && ring.bytes.iter().all(|byte| *byte == b'x'));
}

#[tokio::test]
async fn both_ways_see_the_end_and_leave_the_process_to_be_reaped() {
    let mut child = std::process::Command::new("/bin/sh")
        .args(["-c", "read line"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = Pid::from_child(&child);
    let watches = [ExitWatch::on(pid), ExitWatch::Polling(pid)];
    assert!(matches!(watches[0], ExitWatch::Pidfd(_)) || !cfg!(target_os = "linux"));
    for watch in &watches {
        let early = timeout(Duration::from_millis(50), watch.exited()).await;
        assert!(early.is_err(), "it still reads");
    }
    drop(child.stdin.take());
    for watch in &watches {
        timeout(Duration::from_secs(10), watch.exited())
            .await
            .expect("it has ended");
    }
    assert!(child.try_wait().unwrap().is_some(), "nobody reaped it before");
}
