//! Which secret signs the next dial during a rotation.
//!
//! The new one is tried first. Until it has led to a handshake, a refusal of it is followed by one dial with the previous
//! one, if that ever worked. The previous one is dropped when the new one works, or when it is refused itself.

/// The secret that a dial was signed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SignedWith {
    /// One that is no longer kept.
    Other,
    Current,
    Previous,
}

/// The current secret, and the previous one while it may still be needed.
#[derive(Clone, Debug)]
pub struct Keyring<K> {
    current: Option<K>,
    /// The current one has led to a handshake.
    proven: bool,
    previous: Option<K>,
    /// Secret of the last dial.
    signed: SignedWith,
    /// Secret of the next dial.
    next: SignedWith,
}

impl<K> Keyring<K> {
    /// A keyring with one secret, or none.
    pub fn new(current: Option<K>) -> Self {
        Self {
            current,
            proven: false,
            previous: None,
            signed: SignedWith::Other,
            next: SignedWith::Current,
        }
    }

    /// Replaces the secret. The previous one is kept if it ever worked.
    pub fn rotate(&mut self, new: Option<K>) {
        let before = std::mem::replace(&mut self.current, new);
        self.signed = match self.signed {
            SignedWith::Current if self.proven => SignedWith::Previous,
            SignedWith::Previous => SignedWith::Previous,
            SignedWith::Other | SignedWith::Current => SignedWith::Other,
        };
        if self.proven {
            self.previous = before;
        }
        self.proven = false;
        self.next = SignedWith::Current;
    }

    /// The secret for a new dial.
    pub fn sign(&mut self) -> Option<&K> {
        self.signed = std::mem::replace(&mut self.next, SignedWith::Current);
        match self.signed {
            SignedWith::Previous => self.previous.as_ref(),
            SignedWith::Current | SignedWith::Other => self.current.as_ref(),
        }
    }

    /// The last dial led to a handshake. `true` if this ends a rotation.
    pub fn accepted(&mut self) -> bool {
        if self.signed != SignedWith::Current {
            return false;
        }
        self.proven = true;
        self.previous.take().is_some()
    }

    /// The last dial's secret was refused. `true` if the previous one should be tried now.
    pub fn refused(&mut self) -> bool {
        match self.signed {
            SignedWith::Current if !self.proven && self.previous.is_some() => {
                self.next = SignedWith::Previous;
                true
            }
            SignedWith::Previous => {
                self.previous = None;
                self.signed = SignedWith::Other;
                false
            }
            SignedWith::Current | SignedWith::Other => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ring whose secret `a` has worked.
    fn worked() -> Keyring<&'static str> {
        let mut ring = Keyring::new(Some("a"));
        assert_eq!(ring.sign(), Some(&"a"));
        assert!(!ring.accepted(), "nothing was rotated");
        ring
    }

    #[test]
    fn the_new_secret_goes_first_and_its_success_ends_the_overlap() {
        let mut ring = worked();
        ring.rotate(Some("b"));
        assert_eq!(ring.sign(), Some(&"b"));
        assert!(ring.accepted());
        assert!(!ring.refused(), "the old one is forgotten");
        assert_eq!(ring.sign(), Some(&"b"));
    }

    #[test]
    fn a_refused_new_secret_is_followed_by_the_old_one_once() {
        let mut ring = worked();
        ring.rotate(Some("b"));
        ring.sign();
        assert!(ring.refused());
        assert_eq!(ring.sign(), Some(&"a"));
        assert!(
            !ring.accepted(),
            "the old one's success proves nothing about the new one"
        );
        assert_eq!(ring.sign(), Some(&"b"), "the new one goes first again");
        assert!(ring.refused());
        assert_eq!(ring.sign(), Some(&"a"));
        assert!(!ring.refused(), "both were refused");
        assert_eq!(ring.sign(), Some(&"b"));
        assert!(!ring.refused(), "the old one is gone for good");
        assert_eq!(ring.sign(), Some(&"b"));
    }

    #[test]
    fn a_secret_that_never_worked_is_not_gone_back_to() {
        let mut ring = Keyring::new(Some("wrong"));
        ring.sign();
        assert!(!ring.refused());
        ring.rotate(Some("b"));
        assert_eq!(ring.sign(), Some(&"b"));
        assert!(!ring.refused());
        assert_eq!(ring.sign(), Some(&"b"));
    }

    #[test]
    fn of_three_secrets_the_last_that_worked_is_kept() {
        let mut ring = worked();
        ring.rotate(Some("b"));
        ring.sign();
        ring.rotate(Some("c"));
        assert!(!ring.refused(), "b is no longer ours to decide by");
        assert_eq!(ring.sign(), Some(&"c"));
        assert!(ring.refused());
        assert_eq!(ring.sign(), Some(&"a"));
    }

    #[test]
    fn a_dial_that_was_under_way_with_the_old_secret_says_nothing_about_the_new_one() {
        let mut ring = worked();
        assert_eq!(ring.sign(), Some(&"a"));
        ring.rotate(Some("b"));
        assert!(!ring.accepted());
        assert_eq!(ring.sign(), Some(&"b"));
        assert!(ring.refused(), "a is still there");
        let mut ring = worked();
        ring.sign();
        ring.rotate(Some("b"));
        assert!(!ring.refused());
        assert_eq!(ring.sign(), Some(&"b"));
        assert!(!ring.refused(), "a was refused before");
        let mut ring = worked();
        ring.sign();
        ring.rotate(None);
        assert_eq!(ring.sign(), None);
    }
}
