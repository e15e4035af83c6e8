//! The last net over every log line: values that are known to be secret, and bearers, become `<hidden>`.
//!
//! The first line of defence is elsewhere: secrets are types that do not show themselves. This catches what got past
//! them, from us or from a library at its most talkative. It knows exact values and the spellings in which a line may
//! hold them; it guesses nothing, and never keeps or shows what it hid.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, RwLock};

use memchr::memmem;
use secrecy::{ExposeSecret as _, SecretString};
use tracing_subscriber::fmt::MakeWriter;
use zeroize::Zeroizing;

use super::bearer::bearers;
use crate::config::settings::HIDDEN;
use crate::serve::LogCounts;

/// Shorter values are not looked for: they would hide ordinary words.
pub(in crate::cli) const MIN_BYTES: usize = 8;
/// Shorter lines of a secret that has several are not looked for by themselves.
const MIN_LINE: usize = 16;
/// Values that are looked for; beyond it those that were learned first are forgotten.
const MOST: usize = 256;

/// A secret of this set-up.
#[derive(Clone, Debug)]
pub(in crate::cli) struct Known {
    /// What it is called: a setting, a variable, an agent's key.
    pub(in crate::cli) name: String,
    /// What must not be seen.
    pub(in crate::cli) value: SecretString,
}

/// Where a secret stands in a line.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::cli) struct Sighting {
    pub(in crate::cli) place: Range<usize>,
    /// The number of the secret, in the order in which they were given.
    pub(in crate::cli) known: usize,
}

/// What is looked for.
#[derive(Default)]
pub(in crate::cli) struct Veil {
    secrets: Vec<Known>,
    /// Every spelling of every secret, with the number of the secret.
    spellings: Vec<(Zeroizing<Vec<u8>>, usize)>,
}

impl Veil {
    /// Looks for these. Too short ones are left out; of more than the most, the last are taken.
    pub(in crate::cli) fn over(secrets: Vec<Known>) -> Self {
        let mut taken: Vec<Known> = Vec::new();
        for secret in secrets.into_iter().rev() {
            let value = secret.value.expose_secret();
            let known = |other: &Known| other.value.expose_secret() == value;
            if value.len() >= MIN_BYTES && taken.len() < MOST && !taken.iter().any(known) {
                taken.push(secret);
            }
        }
        taken.reverse();
        let mut spellings = Vec::new();
        for (number, secret) in taken.iter().enumerate() {
            for spelling in spelled(secret.value.expose_secret()) {
                spellings.push((spelling, number));
            }
        }
        Self {
            secrets: taken,
            spellings,
        }
    }

    /// The secrets that are looked for.
    pub(in crate::cli) fn secrets(&self) -> &[Known] {
        &self.secrets
    }

    /// The length of the longest spelling.
    pub(in crate::cli) fn longest(&self) -> usize {
        let lengths = self.spellings.iter().map(|(spelling, _)| spelling.len());
        lengths.max().unwrap_or_default()
    }

    /// Where any of them stands. Places may overlap.
    pub(in crate::cli) fn sightings(&self, line: &[u8]) -> Vec<Sighting> {
        let mut found = Vec::new();
        for (spelling, known) in &self.spellings {
            found.extend(
                memmem::find_iter(line, spelling.as_slice()).map(|start| Sighting {
                    place: start..start + spelling.len(),
                    known: *known,
                }),
            );
        }
        found
    }

    /// The line without them, and without bearers.
    pub(in crate::cli) fn hide<'l>(&self, line: &'l [u8]) -> Cow<'l, [u8]> {
        let known = self.sightings(line).into_iter().map(|sighting| sighting.place);
        let mut places: Vec<Range<usize>> = known.chain(bearers(line)).collect();
        if places.is_empty() {
            return Cow::Borrowed(line);
        }
        places.sort_by_key(|place| place.start);
        let mut shown = Vec::with_capacity(line.len());
        let mut end = 0;
        for place in places {
            // What overlaps is hidden as one.
            if place.start >= end {
                shown.extend_from_slice(&line[end..place.start]);
                shown.extend_from_slice(HIDDEN.as_bytes());
            }
            end = end.max(place.end);
        }
        shown.extend_from_slice(&line[end..]);
        Cow::Owned(shown)
    }

    /// The same for text.
    pub(in crate::cli) fn hide_text<'l>(&self, text: &'l str) -> Cow<'l, str> {
        match self.hide(text.as_bytes()) {
            Cow::Borrowed(_) => Cow::Borrowed(text),
            Cow::Owned(shown) => Cow::Owned(String::from_utf8_lossy(&shown).into_owned()),
        }
    }
}

/// Every form in which a line may hold a secret: as it is, in quotes of Rust and of JSON and of both, in a URL, and
/// each line of it alone.
fn spelled(secret: &str) -> Vec<Zeroizing<Vec<u8>>> {
    let quoted = Zeroizing::new(format!("{secret:?}"));
    let json = Zeroizing::new(in_json(secret));
    let both = Zeroizing::new(in_json(inside(&quoted)));
    let url: Zeroizing<String> =
        Zeroizing::new(url::form_urlencoded::byte_serialize(secret.as_bytes()).collect());
    let percent = Zeroizing::new(in_url(secret));
    let whole = [secret, inside(&quoted), &json, &both, &url, &percent];
    let lines = secret
        .lines()
        .map(str::trim)
        .filter(|line| line.len() >= MIN_LINE);
    let mut forms: Vec<Zeroizing<Vec<u8>>> = Vec::new();
    for form in whole.into_iter().chain(lines) {
        if !forms.iter().any(|known| known.as_slice() == form.as_bytes()) {
            forms.push(Zeroizing::new(form.as_bytes().to_vec()));
        }
    }
    forms
}

/// With everything encoded but what never is, and a space not as `+`.
fn in_url(text: &str) -> String {
    let mut url = String::with_capacity(3 * text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            url.push(char::from(byte));
        } else {
            // Writing to a String does not fail.
            let _ = write!(url, "%{byte:02X}");
        }
    }
    url
}

/// What JSON writes between the quotes.
fn in_json(text: &str) -> String {
    let quoted = Zeroizing::new(serde_json::to_string(text).unwrap_or_default());
    inside(&quoted).to_owned()
}

fn inside(quoted: &str) -> &str {
    let bare = quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    bare.unwrap_or(quoted)
}

/// The net that a running log is written through; learns new secrets while it runs. Clones are the same net.
#[derive(Clone, Default)]
pub(in crate::cli) struct Net {
    veil: Arc<RwLock<Arc<Veil>>>,
    counts: Arc<LogCounts>,
}

impl Net {
    /// A net that knows these.
    pub(in crate::cli) fn over(secrets: Vec<Known>) -> Self {
        Self {
            veil: Arc::new(RwLock::new(Arc::new(Veil::over(secrets)))),
            counts: Arc::default(),
        }
    }

    /// Where lines are counted in which something was hidden.
    pub(super) fn counts(&self) -> &Arc<LogCounts> {
        &self.counts
    }

    /// Looks for these too. What was secret before a change still is.
    pub(in crate::cli) fn learn(&self, secrets: Vec<Known>) {
        let mut veil = self.veil.write().unwrap_or_else(PoisonError::into_inner);
        let mut all = veil.secrets().to_vec();
        all.extend(secrets);
        *veil = Arc::new(Veil::over(all));
    }

    /// What is looked for now.
    pub(super) fn veil(&self) -> Arc<Veil> {
        Arc::clone(&self.veil.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Something was hidden in a line.
    pub(super) fn count_hidden(&self) {
        self.counts.hidden.fetch_add(1, Ordering::Relaxed);
    }
}

/// A writer behind the net. The formatters hand over each line whole.
pub(super) struct Netted<W> {
    net: Net,
    into: W,
}

impl<W: io::Write> io::Write for Netted<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let shown = self.net.veil().hide(line);
        if matches!(shown, Cow::Owned(_)) {
            self.net.count_hidden();
        }
        self.into.write_all(&shown)?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.into.flush()
    }
}

/// Makes writers behind the net.
pub(super) struct NettedMaker<M> {
    pub(super) net: Net,
    pub(super) into: M,
}

impl<'w, M: MakeWriter<'w>> MakeWriter<'w> for NettedMaker<M> {
    type Writer = Netted<M::Writer>;

    fn make_writer(&'w self) -> Self::Writer {
        Netted {
            net: self.net.clone(),
            into: self.into.make_writer(),
        }
    }
}

#[cfg(test)]
mod tests;
