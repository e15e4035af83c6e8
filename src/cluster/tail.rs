//! The end of the stream as the active member knows it: what the next record must expect, and under which id it is sent.

/// One record on its way: every attempt to append it has the same id and expects the same end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Append {
    /// Names the record, so that an attempt after one of unknown outcome appends nothing twice.
    pub id: String,
    /// The last record before it.
    pub expected: u64,
}

/// The end of the stream.
#[derive(Debug)]
pub struct Tail {
    term: u64,
    last: u64,
    next: u64,
}

impl Tail {
    /// The end of the stream at the beginning of a term.
    pub fn new(term: u64, last: u64) -> Self {
        Self { term, last, next: 0 }
    }

    /// The last record.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// The next record; at most one is on its way.
    pub fn append(&mut self) -> Append {
        self.next += 1;
        Append {
            id: format!("{}-{}-{}", self.term, self.last, self.next),
            expected: self.last,
        }
    }

    /// The stream took it under this number; `false` when that cannot be.
    pub fn stored(&mut self, append: &Append, seq: u64) -> bool {
        let fits = append.expected == self.last && seq == self.last + 1;
        if fits {
            self.last = seq;
        }
        fits
    }
}
