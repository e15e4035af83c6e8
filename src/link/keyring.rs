//! Which secret the next dial is signed with, while one takes the place of another.
//!
//! The new one goes first. As long as it has never led to a handshake, a refusal of it is followed by one dial with the
//! one before, if that has ever worked; the one before goes when the new one has worked, or when it is refused itself.
//! It never looks at a secret.

/// The secret that a dial was signed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Signed {
    /// By none that is kept.
    Other,
    Current,
    Previous,
}

/// A secret, and the one before it as long as that may still be needed.
#[derive(Clone, Debug)]
pub struct Keyring<K> {
    current: Option<K>,
    /// The current one has led to a handshake.
    proven: bool,
    previous: Option<K>,
    /// The last dial's.
    signed: Signed,
    /// The next dial's.
    next: Signed,
}

impl<K> Keyring<K> {
    /// A ring with one secret, or none.
    pub fn new(current: Option<K>) -> Self {
        Self {
            current,
            proven: false,
            previous: None,
            signed: Signed::Other,
            next: Signed::Current,
        }
    }

    /// There is a new secret. The one before is kept if it ever worked.
    pub fn rotate(&mut self, new: Option<K>) {
        let before = std::mem::replace(&mut self.current, new);
        self.signed = match self.signed {
            Signed::Current if self.proven => Signed::Previous,
            Signed::Previous if !self.proven => Signed::Previous,
            Signed::Other | Signed::Current | Signed::Previous => Signed::Other,
        };
        if self.proven {
            self.previous = before;
        }
        self.proven = false;
        self.next = Signed::Current;
    }

    /// A dial begins: the secret to sign it with.
    pub fn sign(&mut self) -> Option<&K> {
        self.signed = std::mem::replace(&mut self.next, Signed::Current);
        match self.signed {
            Signed::Previous => self.previous.as_ref(),
            Signed::Current | Signed::Other => self.current.as_ref(),
        }
    }

    /// The last dial led to a handshake. `true` when that was the first with a secret that took another's place.
    pub fn accepted(&mut self) -> bool {
        if self.signed != Signed::Current {
            return false;
        }
        self.proven = true;
        self.previous.take().is_some()
    }

    /// The last dial's secret was refused. `true` when another one is to be tried now.
    pub fn refused(&mut self) -> bool {
        match self.signed {
            Signed::Current if !self.proven && self.previous.is_some() => {
                self.next = Signed::Previous;
                true
            }
            Signed::Previous => {
                self.previous = None;
                self.signed = Signed::Other;
                false
            }
            Signed::Current | Signed::Other => false,
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
        ring.rotate(None);
        assert_eq!(ring.sign(), None);
    }
}
