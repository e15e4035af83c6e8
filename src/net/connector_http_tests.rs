use super::*;

#[test]
fn shown_addresses_hold_no_password() {
    assert_eq!(shown("https://u:hush@c.example/x"), "https://c.example/x");
    assert_eq!(shown("https://c.example"), "https://c.example");
}

#[test]
fn a_request_travels_as_the_contract_says() {
    let request = ProvisionRequest {
        gateway_id: "gw-vm".into(),
        platform: "discord".into(),
        bot_id: "1".into(),
        route_keys: vec!["a".into(), "b".into()],
        instance_id: Some("inst".into()),
        wake_url: Some("https://w".into()),
        ..ProvisionRequest::default()
    };
    let expected = concat!(
        r#"{"gatewayId":"gw-vm","platform":"discord","botId":"1","gatewayEndpoint":"","#,
        r#""routeKeys":["a","b"],"instanceId":"inst","wakeUrl":"https://w"}"#
    );
    assert_eq!(String::from_utf8(json(&request)).unwrap(), expected);
}

#[test]
fn display_names_are_cut_at_64_characters() {
    let request = ProvisionRequest {
        display_name: Some("é".repeat(70)),
        ..ProvisionRequest::default()
    };
    let sent: Value = serde_json::from_slice(&json(&request)).unwrap();
    assert_eq!(sent["displayName"], "é".repeat(64));
}

#[test]
fn values_that_would_not_survive_storage_count_as_missing() {
    let object = |secret: &str| Map::from_iter([("secret".to_owned(), Value::from(secret))]);
    assert!(secret_field(&object("ok"), "secret").is_some());
    for bad in ["", "  ", "two\nlines", "nul\0", &"x".repeat(MAX_VALUE + 1)] {
        assert!(secret_field(&object(bad), "secret").is_none(), "{bad:?}");
    }
    assert!(secret_field(&Map::from_iter([("secret".to_owned(), Value::from(7))]), "secret").is_none());
}
