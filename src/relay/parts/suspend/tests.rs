use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixListener;
use tokio::task::JoinHandle;

use super::*;

fn command(script: &str) -> Suspender {
    let argv = ["sh", "-c", script].map(str::to_owned);
    let vars = [("PATH", "/usr/bin:/bin"), ("GATEWAY_RELAY_SECRET", "s3cret")];
    let base = BaseEnv::new(vars.map(|(name, value)| (name.into(), value.into())));
    Suspender::command(&argv, &base)
}

#[tokio::test]
async fn a_command_decides_by_its_exit_code_and_sees_no_secret_of_ours() {
    assert_eq!(
        command("test -z \"$GATEWAY_RELAY_SECRET\"").suspend().await,
        Ok(())
    );
    let refused = command("echo no such host >&2; exit 3")
        .suspend()
        .await
        .unwrap_err();
    assert!(
        refused.contains("code 3") && refused.contains("no such host"),
        "{refused}"
    );
    let missing = Suspender::command(&["/no/such/program".to_owned()], &BaseEnv::default());
    assert!(missing.suspend().await.unwrap_err().contains("/no/such/program"));
}

#[tokio::test]
async fn a_command_may_write_as_much_as_it_likes_and_read_nothing() {
    let chatty = "i=0; while [ $i -lt 40000 ]; do echo going to sleep now; i=$((i+1)); done; ! read -r line";
    assert_eq!(command(chatty).suspend().await, Ok(()));
    let flood = command("head -c 3000000 /dev/zero | tr '\\0' x >&2; exit 4")
        .suspend()
        .await;
    let error = flood.unwrap_err();
    assert!(
        error.contains("code 4") && error.len() < 1000,
        "{} bytes",
        error.len()
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
    assert_eq!(command(&left).suspend().await, Ok(()));
    std::fs::write(&go, "").unwrap();
    let written = async {
        while !done.exists() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(20), written).await.expect("it lives");
}

#[tokio::test(start_paused = true)]
async fn a_command_that_hangs_is_killed_and_reported_as_timed_out() {
    let late = command("sleep 1000").suspend().await.unwrap_err();
    assert!(late.contains("within 40 seconds"), "{late}");
}

/// A machine's socket that reads the request, gives this answer and then this much silence.
fn machine(answer: &'static str, silence: Duration) -> (tempfile::TempDir, Suspender, JoinHandle<String>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("api");
    let listener = UnixListener::bind(&path).unwrap();
    let server = tokio::spawn(async move {
        let (mut peer, _) = listener.accept().await.unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            assert!(peer.read_buf(&mut request).await.unwrap() > 0);
        }
        // Whoever has request enough may have gone.
        let _ = peer.write_all(answer.as_bytes()).await;
        tokio::time::sleep(silence).await;
        String::from_utf8(request).unwrap()
    });
    let settings = Settings::embedded(folder.path());
    let suspender = suspender_at(
        &path,
        &settings,
        &[(env::FLY_APP_NAME, "my-app"), (env::FLY_MACHINE_ID, "m1")],
    );
    (folder, suspender.unwrap().expect("the socket is there"), server)
}

fn suspender_at(
    socket: &Path,
    settings: &Settings,
    vars: &[(&str, &str)],
) -> Result<Option<Suspender>, String> {
    let environment = |name: &str| {
        let found = vars.iter().find(|(key, _)| *key == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    Suspender::with_socket(socket, settings, &environment, &BaseEnv::default(), || {
        Err("no client is needed".to_owned())
    })
}

#[tokio::test]
async fn a_machines_socket_that_says_yes_says_yes_without_being_waited_for() {
    let (_folder, suspender, server) = machine(
        "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{",
        SUSPEND_TIMEOUT * 9,
    );
    let asked = timeout(Duration::from_secs(20), suspender.suspend()).await;
    assert_eq!(asked.expect("the rest of the answer is not waited for"), Ok(()));
    server.abort();
}

#[tokio::test]
async fn a_machines_socket_that_refuses_or_sends_nonsense_is_reported() {
    let big: &'static str = Box::leak("x".repeat(1 << 20).into_boxed_str());
    for (answer, error) in [
        ("HTTP/1.1 401 Unauthorized\r\n\r\n", "status 401"),
        ("HTTP/1.1 412 Precondition Failed\r\n\r\n", "status 412"),
        ("HTTP/1.0 500 Internal Server Error\r\n\r\n", "status 500"),
        ("HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\n\r\n", "status 302"),
        ("", "no HTTP answer"),
        ("\r\n\r\n", "no HTTP answer"),
        ("SSH-2.0-OpenSSH_9.2\r\n", "no HTTP answer"),
        (big, "no HTTP answer"),
    ] {
        let (_folder, suspender, _server) = machine(answer, Duration::ZERO);
        let refused = suspender.suspend().await.unwrap_err();
        assert!(refused.contains(error), "{refused}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_machines_socket_that_never_answers_is_given_up() {
    for answer in ["", "HTTP/1.1 2"] {
        let (_folder, suspender, server) = machine(answer, SUSPEND_TIMEOUT * 9);
        let late = suspender.suspend().await.unwrap_err();
        assert!(late.contains("within 40 seconds"), "{late}");
        server.abort();
    }
}

#[tokio::test]
async fn a_machines_socket_that_went_away_or_refuses_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("api");
    let settings = Settings::embedded(folder.path());
    let vars = [(env::FLY_APP_NAME, "my-app"), (env::FLY_MACHINE_ID, "m1")];
    drop(UnixListener::bind(&path).unwrap());
    let suspender = suspender_at(&path, &settings, &vars)
        .unwrap()
        .expect("a file is there");
    let refused = suspender.suspend().await.unwrap_err();
    assert!(refused.contains("socket cannot be used"), "{refused}");
    std::fs::remove_file(&path).unwrap();
    let gone = suspender.suspend().await.unwrap_err();
    assert!(gone.contains("socket cannot be used"), "{gone}");
}

#[test]
fn without_a_socket_or_its_names_there_is_no_suspender_and_a_command_comes_first() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("api");
    let mut settings = Settings::embedded(folder.path());
    let vars = [(env::FLY_APP_NAME, "my-app"), (env::FLY_MACHINE_ID, "m1")];
    assert!(
        suspender_at(&path, &settings, &vars).unwrap().is_none(),
        "no socket"
    );
    std::fs::write(&path, "").unwrap();
    assert!(suspender_at(&path, &settings, &vars).unwrap().is_some());
    assert!(
        suspender_at(&path, &settings, &vars[..1]).unwrap().is_none(),
        "no machine"
    );
    let odd = [(env::FLY_APP_NAME, "../x"), (env::FLY_MACHINE_ID, "m1")];
    assert!(suspender_at(&path, &settings, &odd).unwrap().is_none(), "no name");
    settings.connector.sleep_url = Some("https://sleep.example".to_owned());
    let url = suspender_at(&path, &settings, &[]);
    assert_eq!(
        url.unwrap_err(),
        "no client is needed",
        "the URL is the last resort"
    );
    settings.sleep.command = vec!["true".to_owned()];
    assert!(suspender_at(&path, &settings, &[]).unwrap().is_some());
}

#[test]
fn names_stand_in_a_path_as_they_are() {
    assert!(is_path_segment("my-app_1"));
    for text in ["", "a/b", "a b", "ä", "a\r\nb"] {
        assert!(!is_path_segment(text), "{text:?}");
    }
}
