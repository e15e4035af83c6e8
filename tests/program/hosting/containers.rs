//! The image and the pod: they agree with each other and with the program.

use std::fs;
use std::process::Command;

use hermes_relay::config::Settings;
use serde_json::{Value, json};

use crate::hosting::{BINARY, has, repository, run_command};

/// The only line of the Dockerfile that begins with this word, without the word.
fn instruction(word: &str) -> String {
    let text = fs::read_to_string(repository("packaging/Dockerfile")).unwrap();
    let lines: Vec<_> = text.lines().filter_map(|line| line.strip_prefix(word)).collect();
    assert_eq!(lines.len(), 1, "{word}");
    lines[0].trim().to_owned()
}

/// What stands in brackets in such a line.
fn bracketed(word: &str) -> Vec<String> {
    let line = instruction(word);
    serde_json::from_str(&line[line.find('[').unwrap()..]).unwrap()
}

/// The settings and the pod.
fn pod() -> (Value, Value) {
    let text = fs::read_to_string(repository("packaging/kubernetes.yaml")).unwrap();
    let mut documents = text
        .split("\n---\n")
        .map(|document| serde_saphyr::from_str::<Value>(document).unwrap());
    let pair = (documents.next().unwrap(), documents.next().unwrap());
    assert!(documents.next().is_none());
    assert_eq!(
        (&pair.0["kind"], &pair.1["kind"]),
        (&json!("ConfigMap"), &json!("StatefulSet"))
    );
    pair
}

fn named<'a>(list: &'a Value, name: &str) -> &'a Value {
    let found = list
        .as_array()
        .unwrap()
        .iter()
        .find(|entry| entry["name"] == name);
    found.unwrap_or_else(|| panic!("no {name}"))
}

#[test]
fn the_pod_starts_the_image_as_the_image_starts_itself() {
    let (_, set) = pod();
    let spec = &set["spec"]["template"]["spec"];
    let container = &spec["containers"][0];
    let program = &bracketed("ENTRYPOINT ")[0];
    assert_eq!(container["args"], json!(bracketed("CMD ")));
    assert!(container["command"].is_null(), "the image's own");
    assert_eq!(instruction("COPY hermes-relay "), *program);
    let health = bracketed("HEALTHCHECK ");
    assert_eq!(container["readinessProbe"]["exec"]["command"], json!(health));
    let alive = container["livenessProbe"]["exec"]["command"].as_array().unwrap();
    assert_eq!(alive[0], json!(program));
    for command in [&bracketed("CMD ")[..1], &health[1..], &["status".to_owned()]] {
        let (known, output) = run_command(Command::new(BINARY).args(command).arg("--help"));
        assert!(known, "{output}");
    }

    let user = instruction("USER ");
    for (key, part) in ["runAsUser", "runAsGroup"].iter().zip(user.split(':')) {
        assert_eq!(spec["securityContext"][key].to_string(), part);
    }
    assert_eq!(
        spec["securityContext"]["fsGroup"],
        spec["securityContext"]["runAsGroup"]
    );
    for pair in instruction("ENV ").split(' ') {
        let (name, value) = pair.split_once('=').unwrap();
        assert_eq!(named(&container["env"], name)["value"], json!(value));
        assert!(value.starts_with("/state/"), "{value} is in the volume");
    }
    let volume = &bracketed("VOLUME ")[0];
    assert_eq!(
        named(&container["volumeMounts"], "state")["mountPath"],
        json!(volume)
    );
    assert_eq!(
        set["spec"]["volumeClaimTemplates"][0]["metadata"]["name"],
        "state"
    );
    for mount in container["volumeMounts"].as_array().unwrap() {
        let name = mount["name"].as_str().unwrap();
        if name != "state" {
            named(&spec["volumes"], name);
        }
    }
}

#[test]
fn the_pod_has_the_time_to_end_and_one_relay_per_journal() {
    let (_, set) = pod();
    let spec = &set["spec"]["template"]["spec"];
    let folder = tempfile::tempdir().unwrap();
    let budget = Settings::embedded(folder.path()).shutdown.budget_secs;
    assert!(spec["terminationGracePeriodSeconds"].as_u64().unwrap() >= budget + 10);
    assert_eq!(set["spec"]["replicas"], 1);
    assert_eq!(
        set["spec"]["selector"]["matchLabels"],
        set["spec"]["template"]["metadata"]["labels"]
    );
    let container = &spec["containers"][0]["securityContext"];
    assert_eq!(container["readOnlyRootFilesystem"], true);
    assert_eq!(container["capabilities"]["drop"], json!(["ALL"]));
}

#[test]
fn the_pods_settings_are_ones_that_the_program_takes() {
    let (map, set) = pod();
    let container = &set["spec"]["template"]["spec"]["containers"][0];
    let mounted = |name: &str| {
        named(&container["volumeMounts"], name)["mountPath"]
            .as_str()
            .unwrap()
    };
    let file = named(&container["env"], "HERMES_RELAY_CONFIG")["value"]
        .as_str()
        .unwrap();
    let name = file
        .strip_prefix(mounted("config"))
        .unwrap()
        .trim_start_matches('/');
    let text = map["data"][name].as_str().unwrap();
    assert!(
        text.contains(&format!("secret_file: {}/relay-secret", mounted("secret"))),
        "{text}"
    );

    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("relay-secret");
    fs::write(&secret, "s3cret").unwrap();
    let (_, output) = run_command(Command::new("chmod").arg("440").arg(&secret));
    assert!(output.is_empty(), "{output}");
    let written = folder.path().join(name);
    let here = text.replace(mounted("secret"), &folder.path().display().to_string());
    fs::write(&written, here).unwrap();
    let (success, output) = run_command(Command::new(BINARY).args(["config", "check"]).arg(&written));
    assert!(success, "{output}");
}

#[test]
fn the_composition_has_valid_settings_a_locked_down_relay_and_time_to_end() {
    let text = fs::read_to_string(repository("packaging/compose.yaml")).unwrap();
    let file: Value = serde_saphyr::from_str(&text).unwrap();
    let relay = &file["services"]["relay"];
    let folder = tempfile::tempdir().unwrap();
    let budget = Settings::embedded(folder.path()).shutdown.budget_secs;
    let grace = relay["stop_grace_period"].as_str().unwrap().trim_end_matches('s');
    assert!(grace.parse::<u64>().unwrap() >= budget + 10);
    assert_eq!(relay["restart"], "on-failure", "an idle relay may exit to sleep");
    assert_eq!(relay["read_only"], true);
    assert_eq!(relay["cap_drop"], json!(["ALL"]));
    assert!(relay["ports"].is_null(), "it dials out");
    let volume = format!("state:{}", bracketed("VOLUME ")[0]);
    assert_eq!(relay["volumes"], json!([volume]));
    let config = &relay["configs"][0];
    assert_eq!(relay["environment"]["HERMES_RELAY_CONFIG"], config["target"]);
    let secret = relay["secrets"][0].as_str().unwrap();
    assert_eq!(
        relay["environment"]["GATEWAY_RELAY_SECRET_FILE"],
        json!(format!("/run/secrets/{secret}"))
    );
    assert!(file["secrets"][secret].is_object());

    let written = folder.path().join("relay.yaml");
    let settings = &file["configs"][config["source"].as_str().unwrap()]["content"];
    fs::write(&written, settings.as_str().unwrap()).unwrap();
    let (success, output) = run_command(Command::new(BINARY).args(["config", "check"]).arg(&written));
    assert!(success, "{output}");
}

/// Settings and configurations of servers as the examples with workers have them: accepted by those who read them.
fn check_scaling_files(files: &[(&str, &str)]) {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("token"), "t0123").unwrap();
    for (name, text) in files {
        let file = folder.path().join(name);
        let token = folder.path().join("token").display().to_string();
        let text = text
            .replace("/run/secrets/nats-token", &token)
            .replace("/run/secrets/hermes-nats/token", &token);
        fs::write(&file, text).unwrap();
        if *name == "nats.conf" {
            if has("nats-server") {
                let mut server = Command::new("nats-server");
                server.envs([("POD_NAME", "a"), ("NATS_NAME", "a"), ("NATS_TOKEN", "t0123")]);
                let (success, output) = run_command(server.arg("-t").arg("-c").arg(&file));
                assert!(success, "{name}: {output}");
            }
            continue;
        }
        let (success, output) = run_command(Command::new(BINARY).args(["config", "check"]).arg(&file));
        assert!(success, "{name}: {output}");
    }
}

#[test]
fn the_composition_with_workers_has_three_servers_that_know_each_other() {
    let text = fs::read_to_string(repository("packaging/scaling/compose.yaml")).unwrap();
    let file: Value = serde_saphyr::from_str(&text).unwrap();
    let content = |name: &str| file["configs"][name]["content"].as_str().unwrap().to_owned();
    let (nats, relay, worker) = (content("nats"), content("relay"), content("worker"));
    let servers = ["nats-1", "nats-2", "nats-3"];
    for server in servers {
        let service = &file["services"][server];
        assert_eq!(service["environment"]["NATS_NAME"], server);
        assert_eq!(service["volumes"], json!([format!("{server}:/data")]));
        assert!(nats.contains(&format!("nats://{server}:6222")), "{nats}");
        for settings in [&relay, &worker] {
            assert!(settings.contains(&format!("nats://{server}:4222")), "{settings}");
        }
    }
    for process in ["relay", "worker"] {
        let service = &file["services"][process];
        assert_eq!(service["depends_on"], json!(servers));
        assert_eq!(service["read_only"], true);
        assert_eq!(service["configs"][0]["source"], process);
        assert!(
            service["secrets"]
                .as_array()
                .unwrap()
                .contains(&json!("nats-token"))
        );
    }
    let nats = nats.replace("$$", "$");
    check_scaling_files(&[
        ("nats.conf", &nats),
        ("relay.yaml", &relay),
        ("worker.yaml", &worker),
    ]);
}

#[test]
fn the_cluster_with_workers_has_three_servers_that_know_each_other() {
    let text = fs::read_to_string(repository("packaging/scaling/kubernetes.yaml")).unwrap();
    let documents: Vec<Value> = text
        .split("\n---\n")
        .map(|document| serde_saphyr::from_str(document).unwrap())
        .collect();
    let find = |kind: &str| {
        documents
            .iter()
            .find(|document| document["kind"] == kind)
            .unwrap()
    };
    let (config, set) = (find("ConfigMap"), find("StatefulSet"));
    let (service, workers) = (find("Service"), find("Deployment"));
    let data = |name: &str| config["data"][name].as_str().unwrap();
    let name = set["metadata"]["name"].as_str().unwrap();
    assert_eq!(set["spec"]["replicas"], 3);
    assert_eq!(set["spec"]["serviceName"], service["metadata"]["name"]);
    for server in 0..3 {
        let route = format!("nats://{name}-{server}.{name}:6222");
        assert!(data("nats.conf").contains(&route), "{route}");
    }
    let container = &workers["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["args"][0], "worker");
    let (mounts, volumes) = (
        &container["volumeMounts"],
        &workers["spec"]["template"]["spec"]["volumes"],
    );
    assert_eq!(named(mounts, "config")["mountPath"], "/etc/hermes-relay");
    assert_eq!(
        named(volumes, "config")["configMap"]["name"],
        config["metadata"]["name"]
    );
    let files = ["nats.conf", "relay.yaml", "worker.yaml"].map(|name| (name, data(name)));
    check_scaling_files(&files);
}
