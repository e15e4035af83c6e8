//! What is fuzzed: each target takes any bytes and panics when a promise is broken.
//!
//! One definition for both runners: the coverage-guided one in `fuzz_targets`, and the plain one in
//! `tests/pure/fuzz.rs`.

use hermes_relay::adapter::split::{split, split_continuation};
use hermes_relay::cron::claim;
use hermes_relay::cron::jobs_file::{self, ImportNote};
use hermes_relay::cron::schedule::{ONCE_GRACE_SECS, TimeZone, Timestamp, plus_secs};
use hermes_relay::direct::telegram::{
    BatchReader, Bot, NextPoll, PressedButton, ReceivedUpdates, RecentInTopics, Relevance, TakenMessages,
    TopicNames, UpdateMeaning, read_batch,
};
use hermes_relay::store::{decode_batch, encode_batch};
use hermes_relay::wire::{
    CapabilityDescriptor, ConnectorFrame, GatewayFrame, LenUnit, Line, LineFramer, MessageEvent,
    PassthroughForward, SessionSource,
};

/// However a stream is cut into chunks, the lines are the same, none is over the limit, and what is held is bounded.
///
/// The first byte is the line limit, the second the length of the chunks.
pub(crate) fn framer(data: &[u8]) {
    let [limit, chunk, stream @ ..] = data else {
        return;
    };
    let (limit, chunk) = (usize::from(*limit), usize::from(*chunk).max(1));
    let whole = lines(limit, std::iter::once(stream));
    assert_eq!(
        whole,
        lines(limit, stream.chunks(chunk)),
        "the chunks make no difference"
    );

    let mut expected = Vec::new();
    let mut pieces: Vec<&[u8]> = stream.split(|byte| *byte == b'\n').collect();
    pieces.pop();
    for piece in pieces {
        if piece.len() > limit {
            let kept = limit.min(512);
            let (start, end) = (&piece[..kept], &piece[piece.len() - kept..]);
            expected.push(Err((start.to_vec(), end.to_vec())));
        } else if !piece.trim_ascii().is_empty() {
            expected.push(Ok(piece.trim_ascii().to_vec()));
        }
    }
    assert_eq!(whole, expected, "every line once, in order");
}

/// A line, or the start and the end of one over the limit.
type Seen = Result<Vec<u8>, (Vec<u8>, Vec<u8>)>;

/// The lines of a stream.
fn lines<'a>(limit: usize, chunks: impl Iterator<Item = &'a [u8]>) -> Vec<Seen> {
    let mut framer = LineFramer::new(limit);
    let mut seen = Vec::new();
    for chunk in chunks {
        framer.feed(chunk, |line| {
            seen.push(match line {
                Line::Whole(line) => Ok(line.to_vec()),
                Line::TooLong { start, end } => Err((start.to_vec(), end.to_vec())),
            });
        });
        assert!(framer.held() <= limit, "no more is held than the limit");
    }
    seen
}

/// A line is decoded or refused; what was decoded can be written and says the same again.
pub(crate) fn decoder(data: &[u8]) {
    match ConnectorFrame::decode(data) {
        Ok(frame) => {
            let written = serde_json::to_vec(&frame).expect("a decoded frame can be written");
            let again = ConnectorFrame::decode(&written).expect("what we wrote, we read");
            assert_eq!(frame.kind(), again.kind());
            if let (
                ConnectorFrame::Inbound { event, buffer_id },
                ConnectorFrame::Inbound {
                    event: event_again,
                    buffer_id: id_again,
                },
            ) = (&frame, &again)
            {
                assert_eq!(buffer_id, id_again);
                assert_eq!(
                    (&event.text, &event.source),
                    (&event_again.text, &event_again.source)
                );
            }
        }
        Err(refused) => assert!(!refused.error.to_string().is_empty()),
    }
    if let Ok(frame) = GatewayFrame::decode(data) {
        let line = frame.to_line();
        assert_eq!(line.matches('\n').count(), 1, "one frame, one line");
        assert!(GatewayFrame::decode(line.as_bytes()).is_ok());
    }
    if let Ok(value) = serde_json::from_slice(data) {
        let _ = MessageEvent::from_value(&value);
        let _ = SessionSource::from_value(&value);
        let _ = CapabilityDescriptor::from_value(&value);
        let _ = PassthroughForward::from_value(&value);
    }
}

/// Every part fits, no word is lost, and the parts stand in the text's order.
///
/// The first byte is the limit, the second chooses the unit.
pub(crate) fn splitter(data: &[u8]) {
    let [limit, unit, text @ ..] = data else {
        return;
    };
    let text = String::from_utf8_lossy(text);
    let limit = usize::from(*limit);
    let unit = if unit % 2 == 0 {
        LenUnit::Chars
    } else {
        LenUnit::Utf16
    };
    for (parts, plain) in [
        (split(&text, limit, unit), false),
        (split_continuation(&text, limit, unit), true),
    ] {
        assert!(!parts.is_empty(), "there is always something to send");
        for part in &parts {
            let fits = unit.measure(part) <= limit;
            assert!(
                fits || part.chars().count() == 1,
                "a part of {} is over {limit}",
                unit.measure(part)
            );
        }
        assert_in_order(&text, &parts, plain);
    }
}

/// The text's characters, white space and backticks aside, stand in the parts in the same order. A numbered part
/// may add its number and a fence's language, so the parts may say more, and never less.
fn assert_in_order(text: &str, parts: &[String], plain: bool) {
    // The information separators count as white space, as the contract's peers strip it.
    let kept = |c: &char| !c.is_whitespace() && !('\u{1c}'..='\u{1f}').contains(c) && *c != '`';
    let mut said = parts.iter().flat_map(|part| part.chars()).filter(kept);
    for wanted in text.chars().filter(kept) {
        let found = if plain {
            said.next() == Some(wanted)
        } else {
            said.any(|c| c == wanted)
        };
        assert!(found, "{wanted:?} is lost");
    }
    assert!(!plain || said.next().is_none(), "nothing is added");
}

/// A file of jobs that can be read is exported as the same jobs, and no imported job is due before the import.
pub(crate) fn jobs(data: &[u8]) {
    let zone = TimeZone::UTC;
    let now = plus_secs(Timestamp::UNIX_EPOCH, 1_794_744_000);
    let Ok(mut file) = jobs_file::parse(data) else {
        return;
    };
    let exported = jobs_file::export(file.jobs.clone(), file.rest.clone(), now, &zone).to_string();
    // What is nested to the very limit is too deep inside of another object.
    if let Ok(again) = jobs_file::parse(exported.as_bytes()) {
        let sorted = |jobs: &[hermes_relay::cron::job::Job]| {
            let mut jobs = jobs.to_vec();
            jobs.sort_by(|a, b| a.id().cmp(b.id()));
            jobs
        };
        assert_eq!(sorted(&again.jobs), sorted(&file.jobs), "nothing is lost");
        assert!(again.bad.is_empty());
    }
    for job in &mut file.jobs {
        let notes = jobs_file::prepare(job, now, &zone);
        let _ = claim::next_run(job, None, now, &zone);
        if job.is_active() && !notes.contains(&ImportNote::BadSchedule) {
            let next = job.next_run_at(&zone).expect("a next run");
            assert!(next >= plus_secs(now, -ONCE_GRACE_SECS), "no run is made up for");
        }
    }
}

/// Telegram's updates: what is forwarded is a frame that the relay reads, or one that it quarantines and acknowledges, and
/// when all is acknowledged all is confirmed.
pub(crate) fn updates(data: &[u8]) {
    let Ok(mut result) = serde_json::from_slice::<serde_json::Value>(data) else {
        return;
    };
    if result.is_object() {
        result = serde_json::json!([result]);
    }
    let bot = Bot::from_value(&serde_json::json!({ "id": 4242, "username": "OurBot" })).expect("a bot");
    let relevance = Relevance {
        require_mention: false,
        free_chats: vec!["-1009".to_owned()],
        allow_bots: true,
    };
    let open = |data: &str| {
        data.split_once(':').map(|(prompt, option)| PressedButton {
            prompt_id: prompt.to_owned(),
            option_id: option.to_owned(),
        })
    };
    let mut reader = BatchReader {
        bot: &bot,
        relevance: &relevance,
        open_callback: &open,
        topics: &mut TopicNames::new(),
        recent: &mut RecentInTopics::new(10),
        taken: &mut TakenMessages::default(),
    };
    let batch = read_batch(&result, &mut reader);
    assert!(batch.is_sorted_by_key(|one| one.update_id));
    let highest = batch.last().map(|one| one.update_id);
    let mut received = ReceivedUpdates::new();
    let (start, later) = (std::time::Duration::ZERO, std::time::Duration::from_secs(12));
    received.begin_poll(start);
    let mut forwarded = received.receive(batch.clone(), start);
    assert!(
        received.receive(batch, start).is_empty(),
        "nothing is forwarded twice"
    );
    forwarded.extend(received.due(later));
    for incoming in &forwarded {
        let Some(line) = incoming.to_line() else {
            assert!(!incoming.needs_acknowledgement());
            continue;
        };
        assert!(incoming.needs_acknowledgement() && !line.contains('\n'));
        let is_poison = matches!(incoming.meaning, UpdateMeaning::Poison { .. });
        let buffer_id = match ConnectorFrame::decode(line.as_bytes()) {
            Ok(ConnectorFrame::Inbound { event, buffer_id }) if !is_poison => {
                assert_eq!(event.source.platform.as_str(), "telegram");
                buffer_id
            }
            Err(refused) if is_poison => refused.buffer_id,
            other => panic!("{other:?}"),
        };
        assert_eq!(buffer_id, Some(incoming.update_id.to_string()));
        received.acknowledge(incoming.update_id);
    }
    assert_eq!(received.offset(), highest.map(|id| id + 1));
    assert_eq!(received.next_poll(later), NextPoll::Now);
}

/// A batch of the journal's log is read or refused, and is the same when it is written again.
pub(crate) fn log(data: &[u8]) {
    let Ok(commands) = decode_batch(data) else {
        return;
    };
    let again = decode_batch(&encode_batch(&commands)).expect("what was written can be read");
    assert_eq!(again, commands);
}
