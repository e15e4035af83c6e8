//! The rules of `.deny.toml`, and what breaks them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::dependencies::licence::is_met;

/// The packages that are built, by name and version.
pub(crate) type Used = BTreeSet<(String, String)>;

/// What is allowed and what is not.
pub(crate) struct Rules {
    pub(crate) targets: Vec<String>,
    licences: Vec<String>,
    banned: Vec<String>,
    /// Crates that may be there in this version beside another one: `name@1` or `name@0.9`.
    twice: Vec<String>,
    registries: Vec<String>,
}

impl Rules {
    /// Reads the lists of `.deny.toml`. One that is missing or empty would allow or forbid nothing unseen, so it is an
    /// error.
    pub(crate) fn read(text: &str) -> Self {
        let list = |section, key| {
            let found = list(text, section, key);
            assert!(!found.is_empty(), ".deny.toml: [{section}] has no `{key}`");
            found
        };
        Self {
            targets: list("graph", "targets"),
            licences: list("licenses", "allow"),
            banned: list("bans", "deny"),
            twice: list("bans", "skip"),
            registries: list("sources", "allow-registry"),
        }
    }

    /// What is wrong with the packages that are built, one sentence each.
    pub(crate) fn violations(&self, metadata: &Value, used: &Used) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        let ours: Vec<_> = metadata["workspace_members"]
            .as_array()
            .into_iter()
            .flatten()
            .collect();
        for package in metadata["packages"].as_array().into_iter().flatten() {
            let word = |key: &str| package[key].as_str().unwrap_or_default();
            let (name, version) = (word("name"), word("version"));
            if !used.contains(&(name.to_owned(), version.to_owned())) {
                continue;
            }
            versions.entry(name).or_default().insert(version);
            if !is_met(word("license"), &self.licences) {
                wrong.push(format!(
                    "{name} {version}: licence `{}` is not allowed",
                    word("license")
                ));
            }
            if ours.contains(&&package["id"]) {
                wrong.extend(wildcards(package));
                continue;
            }
            let registry = word("source").strip_prefix("registry+");
            if !registry.is_some_and(|registry| self.registries.iter().any(|known| known == registry)) {
                wrong.push(format!(
                    "{name} {version}: source `{}` is not allowed",
                    word("source")
                ));
            }
            if self.banned.iter().any(|banned| banned == name) {
                wrong.push(format!("{name} {version}: banned by .deny.toml"));
            }
        }
        for (name, versions) in versions {
            let counted = versions.iter().filter(|version| {
                let allowed = |skip: &String| {
                    let rest = skip.strip_prefix(name).and_then(|rest| rest.strip_prefix('@'));
                    let rest = rest.and_then(|major| version.strip_prefix(major));
                    rest.is_some_and(|rest| rest.starts_with('.'))
                };
                !self.twice.iter().any(allowed)
            });
            if counted.count() > 1 {
                wrong.push(format!("{name}: in several versions, {versions:?}"));
            }
        }
        wrong
    }
}

/// Direct dependencies of a package that take any version.
fn wildcards(package: &Value) -> Vec<String> {
    let dependencies = package["dependencies"].as_array().into_iter().flatten();
    dependencies
        .filter(|dependency| dependency["req"] == "*")
        .map(|dependency| format!("{}: any version is taken", dependency["name"]))
        .collect()
}

/// The words of one list: strings, or the `crate` of each inline table. Reads what `.deny.toml` uses of TOML, no more.
fn list(text: &str, section: &str, key: &str) -> Vec<String> {
    let header = format!("[{section}]");
    let body = text.lines().skip_while(|line| line.trim() != header).skip(1);
    let body = body.take_while(|line| !line.starts_with('['));
    let lines = body.skip_while(|line| line.split('=').next().map(str::trim) != Some(key));
    let mut found = Vec::new();
    for (at, line) in lines.enumerate() {
        let line = if at == 0 {
            line.split_once('=').map_or("", |(_, list)| list)
        } else {
            line
        };
        match line.split_once("crate = ") {
            Some((_, rest)) => found.extend(rest.split('"').nth(1).map(str::to_owned)),
            None => found.extend(line.split('"').skip(1).step_by(2).map(str::to_owned)),
        }
        if line.trim_end().ends_with(']') {
            break;
        }
    }
    found
}

/// Dependencies of a manifest that stand in a block without a comment above.
pub(crate) fn unexplained(manifest: &str) -> Vec<String> {
    let (mut inside, mut explained) = (false, false);
    let mut found = Vec::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            (inside, explained) = (line.trim_end().ends_with("dependencies]"), false);
        } else if line.trim().is_empty() {
            explained = false;
        } else if line.starts_with('#') {
            explained = true;
        } else if inside
            && !explained
            && let Some((name, _)) = line.split_once(" = ")
            && !line.starts_with(' ')
        {
            found.push(name.to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const RULES: &str = "[graph]\ntargets = [\n  \"x86\",\n]\n[licenses]\nallow = [\"MIT\", \"ISC\"]\n[bans]\nskip = [\n  \
        { crate = \"syn@2\", reason = \"a [reason]\" },\n]\ndeny = [\n  { crate = \"openssl\", reason = \"one\" },\n  \
        { crate = \"ring\", reason = \"two\" },\n]\n[sources]\nallow-registry = [\"https://crates.example\"]\n";

    fn package(name: &str, version: &str) -> Value {
        json!({"id": format!("{name}@{version}"), "name": name, "version": version, "license": "MIT OR GPL-3.0",
            "source": "registry+https://crates.example"})
    }

    fn wrong(packages: &[Value]) -> Vec<String> {
        let own = json!({"id": "us", "name": "us", "version": "0.1.0", "license": "MIT", "source": null,
            "dependencies": [{"name": "a", "req": "^1"}]});
        let packages: Vec<_> = packages.iter().cloned().chain([own]).collect();
        let word = |package: &Value, key: &str| package[key].as_str().unwrap().to_owned();
        let used = packages.iter().filter(|package| package["name"] != "unused");
        let used = used.map(|package| (word(package, "name"), word(package, "version")));
        let used = used.collect();
        Rules::read(RULES).violations(&json!({"packages": packages, "workspace_members": ["us"]}), &used)
    }

    #[test]
    fn the_lists_are_read() {
        let rules = Rules::read(RULES);
        assert_eq!(rules.targets, ["x86"]);
        assert_eq!(rules.licences, ["MIT", "ISC"]);
        assert_eq!(rules.banned, ["openssl", "ring"]);
        assert_eq!(rules.twice, ["syn@2"]);
        assert_eq!(rules.registries, ["https://crates.example"]);
    }

    #[test]
    fn what_is_planted_is_found() {
        assert_eq!(
            wrong(&[
                package("a", "1.0.0"),
                package("syn", "2.0.1"),
                package("syn", "3.0.0")
            ]),
            [""; 0]
        );
        let with = |key: &str, value: Value| {
            let mut planted = package("a", "1.0.0");
            planted[key] = value;
            wrong(&[planted])
        };
        assert_eq!(
            with("license", json!("GPL-3.0")),
            ["a 1.0.0: licence `GPL-3.0` is not allowed"]
        );
        assert_eq!(
            with("license", Value::Null),
            ["a 1.0.0: licence `` is not allowed"]
        );
        let elsewhere = "git+https://crates.example";
        assert_eq!(
            with("source", json!(elsewhere)),
            [format!("a 1.0.0: source `{elsewhere}` is not allowed")]
        );
        assert_eq!(with("source", Value::Null), ["a 1.0.0: source `` is not allowed"]);
        let mut unused = package("unused", "1.0.0");
        unused["license"] = json!("GPL-3.0");
        assert_eq!(wrong(&[unused]), [""; 0], "it is not built");
        assert_eq!(
            wrong(&[package("ring", "1.0.0")]),
            ["ring 1.0.0: banned by .deny.toml"]
        );
        assert_eq!(
            wrong(&[package("hyper", "0.14.0"), package("hyper", "1.9.0")]),
            ["hyper: in several versions, {\"0.14.0\", \"1.9.0\"}"]
        );
        assert_eq!(
            wrong(&[
                package("syn", "1.0.0"),
                package("syn", "2.0.1"),
                package("syn", "3.0.0")
            ]),
            ["syn: in several versions, {\"1.0.0\", \"2.0.1\", \"3.0.0\"}"]
        );
    }

    #[test]
    fn a_dependency_on_any_version_is_found() {
        let own = json!({"id": "us", "name": "us", "version": "1.0.0", "license": "MIT",
            "dependencies": [{"name": "a", "req": "*"}]});
        let metadata = json!({"packages": [own], "workspace_members": ["us"]});
        let used = [("us".to_owned(), "1.0.0".to_owned())].into();
        assert_eq!(
            Rules::read(RULES).violations(&metadata, &used),
            ["\"a\": any version is taken"]
        );
    }
}
