use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixListener;
use tokio::task::JoinHandle;

use super::*;

fn command(script: &str) -> Lever {
    let argv = ["sh", "-c", script].map(str::to_owned);
    let vars = [("PATH", "/usr/bin:/bin"), ("GATEWAY_RELAY_SECRET", "s3cret")];
    let base = BaseEnv::new(vars.map(|(name, value)| (name.into(), value.into())));
    Lever::command(&argv, &base)
}

#[tokio::test]
async fn a_command_decides_by_its_exit_code_and_sees_no_secret_of_ours() {
    assert_eq!(command("test -z \"$GATEWAY_RELAY_SECRET\"").pull().await, Ok(()));
    let refused = command("echo no such host >&2; exit 3").pull().await.unwrap_err();
    assert!(
        refused.contains("code 3") && refused.contains("no such host"),
        "{refused}"
    );
    let missing = Lever::command(&["/no/such/program".to_owned()], &BaseEnv::default());
    assert!(missing.pull().await.unwrap_err().contains("/no/such/program"));
}

#[tokio::test]
async fn a_command_may_write_as_much_as_it_likes_and_read_nothing() {
    let chatty = "i=0; while [ $i -lt 40000 ]; do echo going to sleep now; i=$((i+1)); done; ! read -r line";
    assert_eq!(command(chatty).pull().await, Ok(()));
    let flood = command("head -c 3000000 /dev/zero | tr '\\0' x >&2; exit 4")
        .pull()
        .await;
    let told = flood.unwrap_err();
    assert!(
        told.contains("code 4") && told.len() < 1000,
        "{} bytes",
        told.len()
    );
}

#[tokio::test]
async fn what_a_command_left_behind_may_go_on_writing() {
    let folder = tempfile::tempdir().unwrap();
    let [away, go, done] = ["away", "go", "done"].map(|name| folder.path().join(name));
    // It is out of the command's group before the command ends.
    let left = format!(
        "setsid sh -c 'touch {away}; while [ ! -e {go} ]; do sleep 0.01; done; echo one && echo two && touch {done}' \
         2>/dev/null & while [ ! -e {away} ]; do sleep 0.01; done",
        away = away.display(),
        go = go.display(),
        done = done.display()
    );
    assert_eq!(command(&left).pull().await, Ok(()));
    std::fs::write(&go, "").unwrap();
    let written = async {
        while !done.exists() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(20), written).await.expect("it lives");
}

#[tokio::test(start_paused = true)]
async fn a_command_that_hangs_is_ended_and_told_as_late() {
    let late = command("sleep 1000").pull().await.unwrap_err();
    assert!(late.contains("within 40 seconds"), "{late}");
}

/// A machine's socket that reads the request, gives this answer and then this much silence.
fn machine(answer: &'static str, silence: Duration) -> (tempfile::TempDir, Lever, JoinHandle<String>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("api");
    let listener = UnixListener::bind(&path).unwrap();
    let server = tokio::spawn(async move {
        let (mut peer, _) = listener.accept().await.unwrap();
        let mut heard = Vec::new();
        while !heard.ends_with(b"\r\n\r\n") {
            assert!(peer.read_buf(&mut heard).await.unwrap() > 0);
        }
        // Whoever has heard enough may have gone.
        let _ = peer.write_all(answer.as_bytes()).await;
        tokio::time::sleep(silence).await;
        String::from_utf8(heard).unwrap()
    });
    let settings = Settings::embedded(folder.path());
    let lever = beside(
        &path,
        &settings,
        &[(env::FLY_APP_NAME, "my-app"), (env::FLY_MACHINE_ID, "m1")],
    );
    (folder, lever.unwrap().expect("the socket is there"), server)
}

fn beside(socket: &Path, settings: &Settings, vars: &[(&str, &str)]) -> Result<Option<Lever>, String> {
    let environment = |name: &str| {
        let found = vars.iter().find(|(key, _)| *key == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    Lever::beside(socket, settings, &environment, &BaseEnv::default(), || {
        Err("no client is needed".to_owned())
    })
}

#[tokio::test]
async fn a_machines_socket_that_says_yes_says_yes_without_being_waited_for() {
    let (_folder, lever, server) = machine("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{", PATIENCE * 9);
    let asked = timeout(Duration::from_secs(20), lever.pull()).await;
    assert_eq!(asked.expect("the rest of the answer is not waited for"), Ok(()));
    server.abort();
}

#[tokio::test]
async fn a_machines_socket_that_says_no_or_nonsense_is_told_as_that() {
    let big: &'static str = Box::leak("x".repeat(1 << 20).into_boxed_str());
    for (answer, told) in [
        ("HTTP/1.1 401 Unauthorized\r\n\r\n", "status 401"),
        ("HTTP/1.1 412 Precondition Failed\r\n\r\n", "status 412"),
        ("HTTP/1.0 500 Internal Server Error\r\n\r\n", "status 500"),
        ("HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\n\r\n", "status 302"),
        ("", "no HTTP answer"),
        ("\r\n\r\n", "no HTTP answer"),
        ("SSH-2.0-OpenSSH_9.2\r\n", "no HTTP answer"),
        (big, "no HTTP answer"),
    ] {
        let (_folder, lever, _server) = machine(answer, Duration::ZERO);
        let refused = lever.pull().await.unwrap_err();
        assert!(refused.contains(told), "{refused}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_machines_socket_that_never_answers_is_given_up() {
    for answer in ["", "HTTP/1.1 2"] {
        let (_folder, lever, server) = machine(answer, PATIENCE * 9);
        let late = lever.pull().await.unwrap_err();
        assert!(late.contains("within 40 seconds"), "{late}");
        server.abort();
    }
}

#[tokio::test]
async fn a_machines_socket_that_went_away_or_refuses_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("api");
    let settings = Settings::embedded(folder.path());
    let vars = [(env::FLY_APP_NAME, "my-app"), (env::FLY_MACHINE_ID, "m1")];
    drop(UnixListener::bind(&path).unwrap());
    let lever = beside(&path, &settings, &vars).unwrap().expect("a file is there");
    let refused = lever.pull().await.unwrap_err();
    assert!(refused.contains("socket cannot be used"), "{refused}");
    std::fs::remove_file(&path).unwrap();
    let gone = lever.pull().await.unwrap_err();
    assert!(gone.contains("socket cannot be used"), "{gone}");
}

#[test]
fn without_a_socket_or_its_names_there_is_no_such_lever_and_a_command_comes_first() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("api");
    let mut settings = Settings::embedded(folder.path());
    let vars = [(env::FLY_APP_NAME, "my-app"), (env::FLY_MACHINE_ID, "m1")];
    assert!(beside(&path, &settings, &vars).unwrap().is_none(), "no socket");
    std::fs::write(&path, "").unwrap();
    assert!(beside(&path, &settings, &vars).unwrap().is_some());
    assert!(
        beside(&path, &settings, &vars[..1]).unwrap().is_none(),
        "no machine"
    );
    let odd = [(env::FLY_APP_NAME, "../x"), (env::FLY_MACHINE_ID, "m1")];
    assert!(beside(&path, &settings, &odd).unwrap().is_none(), "no name");
    settings.connector.sleep_url = Some("https://sleep.example".to_owned());
    let url = beside(&path, &settings, &[]);
    assert_eq!(
        url.unwrap_err(),
        "no client is needed",
        "the URL is the last resort"
    );
    settings.sleep.command = vec!["true".to_owned()];
    assert!(beside(&path, &settings, &[]).unwrap().is_some());
}

#[test]
fn names_stand_in_a_path_as_they_are() {
    assert!(is_name("my-app_1"));
    for text in ["", "a/b", "a b", "ä", "a\r\nb"] {
        assert!(!is_name(text), "{text:?}");
    }
}
