//! The shape of `relay` and of the crate's front door, and the walks of `docs/architecture.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::rules::File;
use super::sources;

/// The parts of the relay: the type that owns the state, and its file below `relay/parts`. None imports another.
const PARTS: &[(&str, &str)] = &[
    ("AccessControl", "access"),
    ("AgentRegistry", "agents"),
    ("Approvals", "approvals"),
    ("Changes", "changes"),
    ("Chats", "chats"),
    ("Conversations", "conversations"),
    ("GroupThreads", "group_threads"),
    ("Handed", "handed"),
    ("Inbound", "inbound"),
    ("JobFiles", "job_files"),
    ("JournalIo", "journal_io"),
    ("Lifecycle", "lifecycle"),
    ("Listings", "listings"),
    ("Messages", "messages"),
    ("Outbox", "outbox"),
    ("Pickers", "pickers"),
    ("Quiet", "quiet"),
    ("RelayLink", "link"),
    ("Scheduler", "scheduler"),
    ("SlashCommands", "slash_commands"),
    ("Sleeper", "sleep"),
    ("Turns", "turns"),
];

/// The part whose state this field of the event loop is, unless it is none.
const NOT_PARTS: &[&str] = &["clock", "settings", "adapters", "media", "voice", "effects"];

/// The source of a part, whether it is a file or a folder.
fn part_file<'f>(files: &'f [(String, String)], part: &str) -> &'f str {
    let names = [
        format!("relay/parts/{part}.rs"),
        format!("relay/parts/{part}/mod.rs"),
    ];
    let found = files.iter().find(|(name, _)| names.contains(name));
    &found.unwrap_or_else(|| panic!("{names:?}")).1
}

fn imports(files: &[(String, String)]) -> BTreeMap<String, BTreeSet<String>> {
    let mut graph: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (name, text) in files {
        if let Some((part, to)) = File::new(name, text).relay_imports() {
            graph.entry(part).or_default().extend(to);
        }
    }
    graph
}

/// A cycle among the modules, if there is one.
fn cycle(graph: &BTreeMap<String, BTreeSet<String>>) -> Option<Vec<String>> {
    fn visit(
        module: &str,
        graph: &BTreeMap<String, BTreeSet<String>>,
        path: &mut Vec<String>,
        done: &mut BTreeSet<String>,
    ) -> Option<Vec<String>> {
        if let Some(at) = path.iter().position(|seen| seen == module) {
            return Some(path[at..].to_vec());
        }
        if !done.insert(module.to_owned()) {
            return None;
        }
        path.push(module.to_owned());
        for to in graph.get(module).into_iter().flatten() {
            if let Some(found) = visit(to, graph, path, done) {
                return Some(found);
            }
        }
        path.pop();
        None
    }
    let mut done = BTreeSet::new();
    graph
        .keys()
        .find_map(|module| visit(module, graph, &mut Vec::new(), &mut done))
}

#[test]
fn relay_has_no_module_cycle_and_no_part_imports_another() {
    let graph = imports(&sources());
    assert!(graph.len() > 15, "found only {:?}", graph.keys());
    assert_eq!(cycle(&graph), None);
    for (_, part) in PARTS {
        let imports = &graph[&format!("parts::{part}")];
        let other = PARTS
            .iter()
            .find(|(_, other)| imports.contains(&format!("parts::{other}")));
        assert_eq!(other, None, "{part} imports another part");
        assert!(
            !imports.contains("walk") && !imports.contains("event_loop"),
            "{part}"
        );
    }
}

#[test]
fn every_field_of_the_event_loop_is_a_part_of_the_list() {
    let files = sources();
    let text = &files
        .iter()
        .find(|(name, text)| name.starts_with("relay/event_loop") && fields(text, "EventLoop").is_some())
        .expect("the event loop")
        .1;
    let fields = fields(text, "EventLoop").unwrap();
    let mut parts = 0;
    for field in fields
        .lines()
        .filter_map(|line| line.trim().strip_prefix("pub(super) "))
    {
        let (name, kind) = field.split_once(": ").unwrap();
        if !NOT_PARTS.contains(&name) {
            assert!(
                PARTS.iter().any(|(part, _)| kind.contains(part)),
                "the list of parts lacks {kind}"
            );
            parts += 1;
        }
    }
    assert_eq!(parts, PARTS.len());
}

#[test]
fn a_cycle_is_found() {
    let file = |name: &str, text: &str| (format!("relay/{name}.rs"), text.to_owned());
    let files = [
        file("a", "use super::b::B;"),
        file("b", "use crate::relay::c::{C, D};"),
        file("c", "use super::a::A;"),
    ];
    assert_eq!(cycle(&imports(&files)).map(|cycle| cycle.len()), Some(3));
    assert_eq!(cycle(&imports(&files[..2])), None);
}

/// The body of a struct with named fields.
fn fields<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let (_, after) = text.split_once(&format!("struct {name} {{"))?;
    after.split_once("\n}").map(|(body, _)| body)
}

#[test]
fn no_field_of_a_part_is_visible_outside_it() {
    let files = sources();
    for (part, file) in PARTS {
        let text = part_file(&files, file);
        let fields = fields(text, part).unwrap_or_else(|| panic!("{part} is in relay/parts/{file}"));
        assert!(fields.contains(':'), "{part} has fields");
        assert!(!fields.contains("pub"), "a field of {part} is visible outside it");
    }
}

/// Modules that are public without `internals`: contracts that others implement.
const CONTRACTS: [&str; 3] = ["agent", "data", "skill"];

#[test]
fn public_items_are_reached_through_the_front_door_only() {
    let root = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs")).unwrap();
    let lines: Vec<&str> = root.lines().collect();
    let mut modules = 0;
    for (at, line) in lines.iter().enumerate() {
        let Some(module) = line
            .strip_prefix("pub mod ")
            .and_then(|rest| rest.strip_suffix(';'))
        else {
            continue;
        };
        if CONTRACTS.contains(&module) {
            continue;
        }
        let gate = lines[at - 2];
        assert!(
            gate.contains("feature = \"internals\"") && !gate.contains("not("),
            "{module} is public"
        );
        modules += 1;
    }
    assert!(modules > 10, "found only {modules} modules");
}

#[test]
fn the_walks_of_the_architecture_page_exist() {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(manifest.join("docs/architecture.md")).unwrap();
    let quoted =
        |text: &str| -> Vec<String> { text.split('`').skip(1).step_by(2).map(str::to_owned).collect() };
    let mut walks = 0;
    for section in page
        .split("\n## ")
        .filter(|section| section.starts_with("The walk of "))
    {
        walks += 1;
        for row in section
            .lines()
            .filter(|line| line.starts_with("| ") && line.contains("`src/"))
        {
            let cells: Vec<&str> = row.split('|').collect();
            let files = quoted(cells[2]);
            let read = |file: &String| {
                std::fs::read_to_string(manifest.join(file)).unwrap_or_else(|_| panic!("{file} is gone"))
            };
            let text: String = files.iter().map(read).collect();
            let functions = quoted(cells[3]);
            assert!(!functions.is_empty(), "{row}");
            for function in functions {
                let declared = [format!("fn {function}("), format!("fn {function}<")];
                assert!(
                    declared.iter().any(|fun| text.contains(fun)),
                    "{files:?} have no function {function}"
                );
            }
        }
    }
    assert_eq!(walks, 6);
    for path in quoted(&page).iter().filter(|text| text.starts_with("src/")) {
        assert!(manifest.join(path).exists(), "{path} is gone");
    }
}
