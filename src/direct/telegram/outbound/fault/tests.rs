use super::*;
use ApiFault::{
    AsDocument, Conflict, Done, Later, Markup, Misdirected, NoAnchor, NoDrafts, NoMessage, NoMethod, NoText,
    NoThread, Refused, TooLong, Unknown,
};

const MIGRATED: i64 = -1_001_234_567_890;

/// Every row of the table of errors: code, description, and what it means.
const ROWS: &[(i64, &str, ApiFault)] = &[
    (400, "Bad Request: chat not found", Refused("chat_not_found")),
    (
        400,
        "Bad Request: private chat not found",
        Refused("chat_not_found"),
    ),
    (400, "Bad Request: message thread not found", NoThread),
    (
        400,
        "Bad Request: file of size 12000000 bytes is too big for a photo; the maximum size is 10485760 bytes",
        AsDocument,
    ),
    (400, "Bad Request: TOPIC_CLOSED", Refused("topic_closed")),
    (400, "Bad Request: TOPIC_DELETED", Refused("topic_deleted")),
    (400, "Bad Request: message to be replied not found", NoAnchor),
    (400, "Bad Request: QUOTE_TEXT_INVALID", NoAnchor),
    (
        400,
        "Bad Request: message is not modified: specified new message content and reply markup are exactly the same",
        Done,
    ),
    (400, "Bad Request: TOPIC_NOT_MODIFIED", Done),
    (400, "Bad Request: message to delete not found", Done),
    (400, "Bad Request: message can't be deleted", Done),
    (
        400,
        "Bad Request: query is too old and response timeout expired or query ID is invalid",
        Done,
    ),
    (400, "Bad Request: message to edit not found", NoMessage),
    (400, "Bad Request: MESSAGE_ID_INVALID", NoMessage),
    (400, "Bad Request: message can't be edited", NoMessage),
    (
        400,
        "Bad Request: there is no text in the message to edit",
        NoText,
    ),
    (
        400,
        "Bad Request: can't parse entities: Unsupported start tag \"x\" at byte offset 3",
        Markup,
    ),
    (400, "Bad Request: message is too long", TooLong),
    (400, "Bad Request: MESSAGE_TOO_LONG", TooLong),
    (400, "Bad Request: message caption is too long", TooLong),
    (400, "Bad Request: ENTITIES_TOO_LONG", TooLong),
    (
        400,
        "Bad Request: not enough rights to send text messages to the chat",
        Refused("no_rights"),
    ),
    (
        400,
        "Bad Request: have no write access to the chat",
        Refused("no_rights"),
    ),
    (400, "Bad Request: CHAT_WRITE_FORBIDDEN", Refused("no_rights")),
    (400, "Bad Request: CHAT_RESTRICTED", Refused("no_rights")),
    (
        400,
        "Bad Request: need administrator rights in the channel chat",
        Refused("no_rights"),
    ),
    (400, "Bad Request: CHAT_ADMIN_REQUIRED", Refused("no_rights")),
    (400, "Bad Request: message text is empty", Refused("empty")),
    (400, "Bad Request: text must be non-empty", Refused("empty")),
    (400, "Bad Request: BUTTON_DATA_INVALID", Refused("bad_buttons")),
    (
        400,
        "Bad Request: reply markup is too long",
        Refused("bad_buttons"),
    ),
    (
        400,
        "Bad Request: REACTION_INVALID",
        Refused("reaction_not_allowed"),
    ),
    (
        400,
        "Bad Request: The reaction isn't available for the message",
        Refused("reaction_not_allowed"),
    ),
    (
        400,
        "Bad Request: message to react not found",
        Refused("message_gone"),
    ),
    (400, "Bad Request: TEXTDRAFT_PEER_INVALID", NoDrafts),
    (
        400,
        "Bad Request: wrong file identifier/HTTP URL specified",
        Refused("not_fetched"),
    ),
    (
        400,
        "Bad Request: failed to get HTTP URL content",
        Refused("not_fetched"),
    ),
    (
        400,
        "Bad Request: wrong type of the web page content",
        Refused("not_fetched"),
    ),
    (400, "Bad Request: file is too big", Refused("too_large")),
    (
        400,
        "Bad Request: wrong file_id or the file is temporarily unavailable",
        Later,
    ),
    (400, "Bad Request: PHOTO_INVALID_DIMENSIONS", AsDocument),
    (400, "Bad Request: IMAGE_PROCESS_FAILED", AsDocument),
    (400, "Bad Request: VOICE_MESSAGES_FORBIDDEN", AsDocument),
    (400, "Bad Request: the chat is not a forum", Refused("no_topics")),
    (400, "Bad Request: something new", Refused("bad_request")),
    (401, "Unauthorized", Refused("unauthorized")),
    (403, "Forbidden: bot was blocked by the user", Refused("blocked")),
    (403, "Forbidden: user is deactivated", Refused("deactivated")),
    (
        403,
        "Forbidden: bot was kicked from the supergroup chat",
        Refused("kicked"),
    ),
    (
        403,
        "Forbidden: bot is not a member of the channel chat",
        Refused("not_a_member"),
    ),
    (
        403,
        "Forbidden: the group chat was deleted",
        Refused("chat_deleted"),
    ),
    (
        403,
        "Forbidden: bot can't initiate conversation with a user",
        Refused("not_started"),
    ),
    (
        403,
        "Forbidden: bot can't send messages to the bot",
        Refused("is_a_bot"),
    ),
    (
        403,
        "Forbidden: not enough rights to send photos",
        Refused("no_rights"),
    ),
    (403, "Forbidden: something new", Refused("forbidden")),
    (404, "Not Found", Refused("not_found")),
    (404, "Not Found: method not found", NoMethod),
    (
        409,
        "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running",
        Conflict,
    ),
    (
        409,
        "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook to delete the webhook first",
        Conflict,
    ),
    (413, "Request Entity Too Large", Refused("too_large")),
    (421, "Misdirected Request", Misdirected),
    (500, "Internal Server Error: restart", Unknown),
    (502, "Bad Gateway", Unknown),
    (418, "I'm a teapot", Refused("refused")),
];

#[test]
fn a_text_goes_another_way_only_where_that_may_help() {
    for fault in [
        NoMethod,
        Markup,
        TooLong,
        NoText,
        NoMessage,
        Refused("bad_request"),
        Refused("too_large"),
    ] {
        assert!(fault.is_about_rich(), "{fault:?}");
    }
    for fault in [
        Done,
        Unknown,
        Later,
        Misdirected,
        Conflict,
        NoThread,
        NoAnchor,
        ApiFault::Limited(Duration::from_secs(1)),
        ApiFault::Migrated(MIGRATED),
        Refused("blocked"),
        Refused("kicked"),
        Refused("no_rights"),
        Refused("topic_closed"),
        Refused("unauthorized"),
        Refused("not_found"),
    ] {
        assert!(!fault.is_about_rich(), "{fault:?}");
    }
}

#[test]
fn every_known_error_has_its_meaning() {
    for (code, description, fault) in ROWS {
        assert_eq!(
            ApiFault::of(*code, description, None, None),
            *fault,
            "{description}"
        );
        // The wording may change its case.
        let upper = description.to_uppercase();
        assert_eq!(ApiFault::of(*code, &upper, None, None), *fault, "{upper}");
    }
}

#[test]
fn parameters_count_before_the_text() {
    let moved = "Bad Request: group chat was upgraded to a supergroup chat";
    assert_eq!(
        ApiFault::of(400, moved, None, Some(MIGRATED)),
        ApiFault::Migrated(MIGRATED)
    );
    let secs = |secs| ApiFault::Limited(Duration::from_secs(secs));
    let too_many = "Too Many Requests: retry after 34";
    assert_eq!(ApiFault::of(429, too_many, Some(35), None), secs(35));
    assert_eq!(ApiFault::of(429, too_many, None, None), secs(34));
    assert_eq!(
        ApiFault::of(429, "", None, None),
        ApiFault::Limited(DEFAULT_RETRY_AFTER)
    );
    assert_eq!(
        ApiFault::of(429, "retry after 99999999999999999999999", None, None),
        ApiFault::Limited(DEFAULT_RETRY_AFTER)
    );
}

#[test]
fn only_what_concerns_the_whole_chat_closes_it() {
    let of = |code, description| ApiFault::of(code, description, None, None).closes_chat();
    assert!(of(403, "Forbidden: bot was blocked by the user"));
    assert!(of(400, "Bad Request: CHAT_WRITE_FORBIDDEN"));
    assert!(of(400, "Bad Request: chat not found"));
    assert!(!of(400, "Bad Request: TOPIC_CLOSED"));
    assert!(!of(400, "Bad Request: message to edit not found"));
    assert!(!of(401, "Unauthorized"));
}
