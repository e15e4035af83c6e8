use crate::support::dev::{BotApiAnswer, BotApiRule, OpAnswer, ResultRule, Rules};

#[test]
fn the_first_rule_counts_until_it_is_spent() {
    let mut rules = Rules::default();
    rules.add(ResultRule::on("send", OpAnswer::Never).times(2));
    rules.add(ResultRule::on_all(OpAnswer::Twice));
    rules.add(ResultRule::on("send", OpAnswer::Malformed).times(0));
    let mut answer = |op: &str| rules.take(op, None);
    assert!(matches!(answer("send"), Some(OpAnswer::Never)));
    assert!(matches!(answer("edit"), Some(OpAnswer::Twice)));
    assert!(matches!(answer("send"), Some(OpAnswer::Never)));
    assert!(matches!(answer("send"), Some(OpAnswer::Twice)));
    rules.clear();
    assert!(rules.take("send", None).is_none());
}

#[test]
fn a_rule_may_be_for_one_chat_and_is_asked_early_only_when_it_is_for_all() {
    let cuts = |answer: &BotApiAnswer| matches!(answer, BotApiAnswer::CutBefore);
    let mut rules = Rules::default();
    rules.add(
        BotApiRule::on("sendmessage", BotApiAnswer::too_many(3))
            .in_chat(7)
            .times(2),
    );
    rules.add(BotApiRule::on("getMe", BotApiAnswer::CutBefore).once());
    rules.add(BotApiRule::on_all(BotApiAnswer::BadGateway).times(1));
    assert!(rules.take_early("sendMessage", cuts).is_none());
    for _ in 0..2 {
        assert!(matches!(
            rules.take("sendMessage", Some(7)),
            Some(BotApiAnswer::Refuse {
                retry_after: Some(3),
                ..
            })
        ));
    }
    assert!(matches!(
        rules.take("sendMessage", Some(7)),
        Some(BotApiAnswer::BadGateway)
    ));
    assert!(rules.take("sendMessage", Some(7)).is_none());
    assert!(rules.take_early("getMe", cuts).is_some() && rules.take_early("getMe", cuts).is_none());
}
