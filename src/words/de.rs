//! German.

use super::Key;

#[rustfmt::skip]
pub(super) const fn text(key: Key) -> &'static str {
    match key {
        Key::DoneAfter => "Fertig nach {time}: {gist}",
        Key::DoneAfterSilently => "Fertig nach {time}.",
        Key::FailedAfter => "Fehlgeschlagen nach {time}: {gist}",
        Key::Seconds => "{count} s|{count} s",
        Key::Minutes => "{count} Min.|{count} Min.",
        Key::MinutesAndSeconds => "{minutes} Min. {seconds} s",
        Key::HoursAndMinutes => "{hours} Std. {minutes} Min.",
        Key::QuestionWaits => "Diese Frage wartet noch {time} auf deine Antwort.",
        Key::QuietSet => "Ruhezeit {hours} ({zone}): Dann klingelt für dich nichts. /quiet off beendet sie.",
        Key::QuietOff => "Nachrichten klingeln für dich ab jetzt jederzeit.",
        Key::QuietForEverybody => "Ruhezeit für alle: {hours} ({zone}). Schreib /quiet 22:00-07:00 für eigene Zeiten oder /quiet off.",
        Key::QuietNever => "Nachrichten klingeln für dich jederzeit. Schreib /quiet 22:00-07:00 für Zeiten, in denen nichts klingelt.",
        Key::QuietUsage => "Diese Zeiten kann ich nicht lesen. Schreib /quiet 22:00-07:00 oder /quiet off.",
        Key::NothingToRetry => "Deine letzte Nachricht habe ich nicht mehr. Bitte schick sie noch einmal.",
        Key::NothingWaits => "Nichts wartet.",
        Key::MessagesWait => "{count} Nachricht wartet. Soll ich sie verwerfen?|{count} Nachrichten warten. Welche soll ich verwerfen?",
        Key::DropMessage => "{number} verwerfen: {text}",
    }
}
