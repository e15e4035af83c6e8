//! One line after the other: what is found in it, and what is left of it.

use std::ops::Range;

use super::ids::Names;
use super::lines::{Line, MAX_LINE};
use super::report::Tally;
use super::shapes;
use crate::cli::logging::{Known, Veil};
use crate::config::settings::HIDDEN;

/// At the end of a line that was cut, so much is dropped at least: a secret may have been cut with it.
const MARGIN: usize = 8 * 1024;

/// What was found. The first of two that overlap is the one that is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// A secret of this set-up, by its number.
    Known(usize),
    /// A token in the relay's own form.
    Token,
    /// What follows `Bearer` or `Basic`.
    Bearer,
    /// The value of a name that says that it is a secret.
    Named,
    /// The login of a URL.
    Login,
    /// A value in the query of a URL.
    Query,
    /// A key of a well-known form.
    Form,
    /// An id of a chat or a person.
    Id,
}

/// Something that was found, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) place: Range<usize>,
    pub(super) kind: Kind,
}

/// Looks at lines.
pub(super) struct Redactor {
    veil: Veil,
    /// None where ids are left as they are.
    names: Option<Names>,
}

impl Redactor {
    pub(super) fn new(veil: Veil, keep_ids: bool) -> Self {
        Self {
            veil,
            names: (!keep_ids).then(Names::default),
        }
    }

    /// The secrets that it knows.
    pub(super) fn secrets(&self) -> &[Known] {
        self.veil.secrets()
    }

    /// What is left of a line, with its end; what was found in it is counted.
    pub(super) fn line(&mut self, line: &Line, tally: &mut Tally) -> Vec<u8> {
        tally.next_line();
        let text = &line.text;
        let marks = self.marks(text);
        let end = if line.is_cut {
            tally.cut();
            let margin = MARGIN.max(self.veil.longest());
            let end = text.len().saturating_sub(margin);
            let across = marks.iter().find(|mark| mark.place.contains(&end));
            across.map_or(end, |mark| mark.place.start)
        } else {
            text.len()
        };
        let mut shown = Vec::with_capacity(text.len() + 1);
        let mut from = 0;
        for mark in &marks {
            tally.found(mark.kind);
            if mark.place.end > end {
                continue;
            }
            shown.extend_from_slice(&text[from..mark.place.start]);
            match (mark.kind, &mut self.names) {
                (Kind::Id, Some(names)) => shown.extend(names.name(&text[mark.place.clone()]).into_bytes()),
                _ => shown.extend_from_slice(HIDDEN.as_bytes()),
            }
            from = mark.place.end;
        }
        shown.extend_from_slice(&text[from..end]);
        if line.is_cut {
            shown.extend(format!("[cut: the line is longer than {MAX_LINE} bytes]").into_bytes());
        }
        if line.is_ended {
            shown.push(b'\n');
        }
        shown
    }

    /// Everything that was found, in order, and nothing twice.
    fn marks(&self, text: &[u8]) -> Vec<Mark> {
        let known = self.veil.sightings(text).into_iter().map(|sighting| Mark {
            place: sighting.place,
            kind: Kind::Known(sighting.known),
        });
        let mut found: Vec<Mark> = known.collect();
        shapes::marks(text, &mut found);
        if let Some(names) = &self.names {
            let ids = names.places(text).into_iter();
            found.extend(ids.map(|place| Mark {
                place,
                kind: Kind::Id,
            }));
        }
        found.sort_by_key(|mark| (mark.place.start, mark.kind));
        let mut merged: Vec<Mark> = Vec::with_capacity(found.len());
        for mark in found {
            match merged.last_mut() {
                Some(last) if mark.place.start < last.place.end => {
                    last.place.end = last.place.end.max(mark.place.end);
                    last.kind = last.kind.min(mark.kind);
                }
                _ => merged.push(mark),
            }
        }
        merged
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "the-gateways-secret";

    fn redactor(keep_ids: bool) -> Redactor {
        let known = Known {
            name: "connector.secret".to_owned(),
            value: SECRET.into(),
        };
        Redactor::new(Veil::over(vec![known]), keep_ids)
    }

    fn line(text: impl Into<Vec<u8>>) -> Line {
        Line {
            text: text.into(),
            is_cut: false,
            is_ended: true,
        }
    }

    fn shown(redactor: &mut Redactor, text: &str) -> String {
        let shown = redactor.line(&line(text), &mut Tally::default());
        String::from_utf8(shown).unwrap()
    }

    #[test]
    fn what_overlaps_is_hidden_as_one_and_told_as_the_surest() {
        let mut redactor = redactor(false);
        for (text, wanted) in [
            (
                "GATEWAY_RELAY_SECRET=the-gateways-secret x",
                "GATEWAY_RELAY_SECRET=<hidden> x\n",
            ),
            (
                "Authorization: Bearer the-gateways-secret",
                "Authorization: Bearer <hidden>\n",
            ),
            ("token=pre-the-gateways-secret-post;", "token=<hidden>;\n"),
            (
                "ws://u:the-gateways-secret@h/?token=abcd&chat=123456",
                "ws://<hidden>@h/?token=<hidden>&chat=<id-1>\n",
            ),
        ] {
            assert_eq!(shown(&mut redactor, text), wanted);
        }
        let mut tally = Tally::default();
        redactor.line(&line("token=pre-the-gateways-secret"), &mut tally);
        assert_eq!(tally.count(Kind::Known(0)), 1);
        assert_eq!(tally.count(Kind::Named), 0);
    }

    #[test]
    fn ids_stay_where_they_are_wanted() {
        let text = "session=agent:main:discord:dm:123456";
        assert_eq!(shown(&mut redactor(true), text), format!("{text}\n"));
        assert_eq!(
            shown(&mut redactor(false), text),
            "session=agent:main:discord:dm:<id-1>\n"
        );
    }

    #[test]
    fn a_secret_that_was_cut_with_its_line_does_not_stay_in_halves() {
        for known in [5, SECRET.len() - 1] {
            for before in ["", "token="] {
                let tail = [before, &SECRET[..known]].concat();
                let mut text = vec![b' '; MAX_LINE - tail.len()];
                text.extend_from_slice(tail.as_bytes());
                let cut = Line {
                    text,
                    is_cut: true,
                    is_ended: true,
                };
                let shown = redactor(false).line(&cut, &mut Tally::default());
                let shown = String::from_utf8(shown).unwrap();
                assert!(!shown.contains(&SECRET[..known]), "{known}");
                assert!(shown.ends_with("bytes]\n"));
            }
        }
    }

    #[test]
    fn a_mark_across_the_cut_goes_as_a_whole() {
        let mut text = vec![b' '; MAX_LINE - 2 * MARGIN];
        text.extend_from_slice(b"token=");
        text.resize(MAX_LINE, b'x');
        let cut = Line {
            text,
            is_cut: true,
            is_ended: false,
        };
        let shown = redactor(false).line(&cut, &mut Tally::default());
        assert!(!shown.windows(2).any(|pair| pair == b"xx"));
    }

    #[test]
    fn garbage_goes_through_as_it_came() {
        let garbage: Vec<u8> = (0..=255_u8)
            .filter(|byte| *byte != b'\n')
            .cycle()
            .take(5000)
            .collect();
        let mut redactor = redactor(true);
        let shown = redactor.line(&line(garbage.clone()), &mut Tally::default());
        assert_eq!(shown[..garbage.len()], garbage);
    }

    proptest::proptest! {
        #[test]
        fn no_secret_survives_in_any_bytes(
            before in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200),
            after in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200),
            around in "(token=|Bearer |://|\"api_key\":\"|chat_id=|agent:main:discord:dm:)?",
        ) {
            let text = [&before, around.as_bytes(), SECRET.as_bytes(), &after].concat();
            let mut tally = Tally::default();
            let shown = redactor(false).line(&line(text), &mut tally);
            proptest::prop_assert!(memchr::memmem::find(&shown, SECRET.as_bytes()).is_none());
            proptest::prop_assert!(tally.count(Kind::Known(0)) > 0);
        }
    }
}
