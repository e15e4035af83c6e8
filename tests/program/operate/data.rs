//! `hermes-relay data`: every verb, what it prints and what it refuses.

use serde_json::{Value, json};

use crate::operate::{VerbOutput, verb, verb_with};
use crate::support::relay_process::Setup;

async fn data(setup: &Setup, args: &[&str]) -> VerbOutput {
    verb(setup, &[&["data"], args].concat()).await
}

async fn data_json(setup: &Setup, args: &[&str]) -> Value {
    data(setup, &[args, &["--json"]].concat()).await.json()
}

async fn write(setup: &Setup, args: &[&str]) -> String {
    let written = data_json(setup, &[&["write"], args].concat()).await;
    written["id"].as_str().unwrap().to_owned()
}

/// The ids that a query finds.
async fn found(setup: &Setup, args: &[&str]) -> Vec<String> {
    let answer = data_json(setup, &[&["query"], args].concat()).await;
    let items = answer["items"].as_array().unwrap().clone();
    items
        .iter()
        .map(|item| item["id"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn a_text_is_kept_found_and_shown() {
    let setup = Setup::new();
    assert_eq!(
        data_json(&setup, &["query", "router"]).await,
        json!({"items": []})
    );
    assert!(!setup.state_dir().exists(), "a look makes nothing");
    let id = write(
        &setup,
        &[
            "The router is in the cellar",
            "--tag",
            "house",
            "--meta",
            "vault=home",
        ],
    )
    .await;
    let text = "first line\nthe cellar again\n";
    let written = verb_with(&setup, &["data", "write", "-", "--json"], Some(text))
        .await
        .json();
    let other = written["id"].as_str().unwrap();

    assert_eq!(found(&setup, &["router", "cellar"]).await, [id.as_str()]);
    assert_eq!(found(&setup, &["CELLAR"]).await.len(), 2);
    assert_eq!(found(&setup, &["cellar", "--limit", "1"]).await.len(), 1);
    assert_eq!(
        found(&setup, &["cellar", "--limit", "1", "--offset", "2"])
            .await
            .len(),
        0
    );
    let item = data_json(&setup, &["get", &id]).await;
    assert_eq!(
        (&item["domain_tags"], &item["vault"], &item["metadata"]),
        (&json!(["house"]), &json!("home"), &Value::Null)
    );
    assert!(
        item["expires_at"].is_null() && item["created_at"].is_i64(),
        "{item}"
    );
    let item = data_json(&setup, &["get", other]).await;
    assert_eq!(
        (&item["summary"], &item["detail"]),
        (&json!("first line"), &json!(text))
    );
    let shown = data(&setup, &["query", "router"]).await.out;
    assert_eq!(shown, format!("{id}  The router is in the cellar\n"));
}

#[tokio::test]
async fn words_of_a_query_are_never_syntax() {
    let setup = Setup::new();
    let id = write(&setup, &["raw: apples OR pears* (NEAR \"plums\")"]).await;
    write(&setup, &["apples alone"]).await;
    for query in [
        "apples OR pears*",
        "raw:",
        "NEAR",
        "\"plums\"",
        "pears*",
        "(plums)",
    ] {
        assert_eq!(found(&setup, &[query]).await, [id.as_str()], "{query}");
    }
    for query in [
        "apples OR nothing",
        "raw:pears",
        "app*",
        "content:apples",
        "***",
        "\"",
    ] {
        assert_eq!(found(&setup, &[query]).await.len(), 0, "{query}");
    }
    assert_eq!(data(&setup, &["query", " "]).await.code, 2);
}

#[tokio::test]
async fn filters_narrow_and_unknown_ones_fail_loudly() {
    let setup = Setup::new();
    let house = write(&setup, &["needle", "--tag", "house", "--meta", "agent_id=a1"]).await;
    let garden = write(&setup, &["needle", "--tag", "garden", "--meta", "pinned=true"]).await;
    assert_eq!(
        found(&setup, &["needle", "--filter", "tags=house"]).await,
        [house.as_str()]
    );
    let any = ["needle", "--filter", "tags=house", "--filter", "tags=garden"];
    assert_eq!(found(&setup, &any).await.len(), 2);
    assert_eq!(
        found(&setup, &["needle", "--filter", "pinned=true"]).await,
        [garden]
    );
    assert_eq!(
        found(&setup, &["needle", "--filter", "agent_id=a1"]).await,
        [house]
    );
    let refused = data(&setup, &["query", "needle", "--filter", "tenant=x"]).await;
    assert_eq!(refused.code, 1);
    assert!(
        refused.err.contains("no filter tenant") && refused.err.contains("tags"),
        "{refused:?}"
    );
    let passed = ["needle", "--filter", "tenant=x", "--permissive-filters"];
    assert_eq!(found(&setup, &passed).await.len(), 2);
    // The contract's own keys are never dropped without a word.
    assert_eq!(found(&setup, &["needle", "--filter", "mode=fts"]).await.len(), 2);
    let refused = data(&setup, &["query", "needle", "--filter", "mode=semantic"]).await;
    assert!(
        refused.code == 1 && refused.err.contains("no mode `semantic`"),
        "{refused:?}"
    );
    for (filter, wanted) in [("limit=1", "--limit"), ("query=x", "without an option")] {
        let refused = data(&setup, &["query", "needle", "--filter", filter]).await;
        assert!(
            refused.code == 2 && refused.err.contains("is not a filter") && refused.err.contains(wanted),
            "{refused:?}"
        );
    }
    assert_eq!(
        data(&setup, &["query", "needle", "--filter", "tags"]).await.code,
        2
    );
}

#[tokio::test]
async fn what_expires_is_gone_and_nothing_else() {
    let setup = Setup::new();
    let gone = write(&setup, &["needle", "--meta", "expires_at=1"]).await;
    let later = write(&setup, &["needle", "--expires-in", "30d"]).await;
    let kept = write(&setup, &["needle"]).await;
    let mut ids = found(&setup, &["needle"]).await;
    ids.sort();
    let mut expected = [later, kept];
    expected.sort();
    assert_eq!(ids, expected);
    let missing = data(&setup, &["get", &gone]).await;
    assert_eq!(missing.code, 1);
    assert!(missing.err.contains("there is no item"), "{missing:?}");
    for args in [
        &["write", " "][..],
        &["write", "x", "--meta", "created_at=5"],
        &["write", "x", "--meta", "pinned=perhaps"],
        &["write", "x", "--expires-in", "1d", "--meta", "expires_at=5"],
    ] {
        let refused = data(&setup, args).await;
        assert_eq!(refused.code, 1, "{args:?}: {refused:?}");
    }
    assert_eq!(
        data(&setup, &["write", "x", "--expires-in", "soon"]).await.code,
        2
    );
}

#[tokio::test]
async fn texts_are_listed_and_deleted() {
    let setup = Setup::new();
    let empty = data(&setup, &["list"]).await;
    assert!(empty.code == 0 && empty.out.contains("data write"), "{empty:?}");
    let first = write(&setup, &["The router is in the cellar", "--tag", "house"]).await;
    let second = write(&setup, &["The key is under the mat"]).await;
    let listed = data_json(&setup, &["list"]).await;
    let ids: Vec<&str> = (listed["items"].as_array().unwrap().iter())
        .map(|item| item["id"].as_str().unwrap())
        .collect();
    assert_eq!(ids, [second.as_str(), first.as_str()], "the newest first");
    let shown = data(&setup, &["list", "--limit", "1"]).await.out;
    assert!(shown.contains(&second) && shown.contains("--limit"), "{shown}");
    let tagged = data_json(&setup, &["list", "--filter", "tags=house"]).await;
    assert_eq!(tagged["items"].as_array().unwrap().len(), 1);

    let unasked = data(&setup, &["delete", &first]).await;
    assert!(unasked.code == 1 && unasked.err.contains("--yes"), "{unasked:?}");
    let deleted = data(&setup, &["delete", &first, "--yes", "--json"]).await;
    assert_eq!((deleted.code, deleted.json()), (0, json!({"deleted": first})));
    let again = data(&setup, &["delete", &first, "--yes"]).await;
    assert!(again.code == 1 && again.err.contains("data list"), "{again:?}");
    assert!(
        found(&setup, &["router"]).await.is_empty(),
        "its words are gone, too"
    );
    assert_eq!(found(&setup, &["key"]).await, [second.as_str()]);
}
