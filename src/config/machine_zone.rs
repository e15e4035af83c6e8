//! The time zone of the machine, by its IANA name.

use std::fs;
use std::path::Path;

use super::Origin;
use super::cron::zone_error;
use super::layers::Sourced;

/// Maximum size of the file with the name; a name is far shorter.
const MAX_BYTES: u64 = 256;

/// The name in a value of `TZ`: a name, or a path to a file of the zone database, with or without a colon in front.
pub(super) fn name_in(tz: &str) -> &str {
    let text = tz.trim().trim_start_matches(':');
    let name = text.rsplit_once("zoneinfo/").map_or(text, |(_, name)| name);
    match name {
        "UTC0" => "UTC",
        name => name,
    }
}

/// The zone of the system: where `localtime` links to, else the name in the file `timezone`; `None` if that is UTC or not known.
pub(super) fn of_system(etc: &Path) -> Option<Sourced> {
    let (link, file) = (etc.join("localtime"), etc.join("timezone"));
    let linked = fs::read_link(&link).ok();
    let (text, path) = match linked.as_deref().and_then(Path::to_str) {
        Some(target) => (target.to_owned(), link),
        None if fs::metadata(&file).ok()?.len() <= MAX_BYTES => (fs::read_to_string(&file).ok()?, file),
        None => return None,
    };
    let name = name_in(&text);
    let is_known = !is_utc(name) && zone_error(name).is_none();
    is_known.then(|| (name.to_owned(), Origin::System(path)))
}

/// Whether a zone is the default one.
pub(super) fn is_utc(name: &str) -> bool {
    let name = name.strip_prefix("Etc/").unwrap_or(name);
    matches!(name, "" | "UTC" | "UCT" | "Universal" | "Zulu")
}
