//! The order of parcels.

use super::*;
use crate::adapter::ReplyStream;
use crate::adapter::stream::StreamTarget;
use crate::wire::{OpIds, SessionSource};

fn link(number: u64) -> Media {
    Media {
        location: MediaLocation::Url(format!("https://a.example/{number}.pdf")),
        caption: String::new(),
        kind: None,
        name: None,
    }
}

#[tokio::test]
async fn parcels_go_in_order_each_after_what_was_said_before_it() {
    let place = StreamTarget {
        chat: Arc::new(ChatId::from_source(&SessionSource::default())),
        facts: Arc::default(),
        session: "".into(),
        descriptor: None,
        follow_up: None,
    };
    let mut speech = ReplyStream::new(Arc::default(), place, 0, OpIds::new(0), Duration::ZERO);
    let now = Duration::ZERO;
    let first = speech.position(now);
    speech.push_text("between", now);
    let second = speech.position(now);
    let mut parcels = Parcels::new(TurnId(1), Arc::new(Desk::new(None, None)), true);
    assert!(parcels.hear(link(1), first).is_none() && parcels.hear(link(2), second).is_none());
    assert!(parcels.post_next(|_| true).is_none());
    while parcels.is_packing() {
        parcels.news().await;
    }
    assert!(parcels.post_next(|_| false).is_none());
    let words = |number| Parcel::Text(format!("https://a.example/{number}.pdf"));
    let (parcel, posted) = parcels.post_next(|mark| speech.is_shown(mark)).unwrap();
    assert_eq!(parcel, words(1));
    assert!(parcels.is_posting() && parcels.post_next(|_| true).is_none());
    posted.send(Ok(())).unwrap();
    parcels.news().await;
    assert!(!parcels.is_posting());
    assert!(parcels.post_next(|mark| speech.is_shown(mark)).is_none());
    assert_eq!(parcels.into_rest(), [(second, words(2))]);
}
