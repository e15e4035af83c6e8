//! French.

use super::Key;

#[rustfmt::skip]
pub(super) const fn text(key: Key) -> &'static str {
    match key {
        Key::DoneAfter => "Terminé après {time} : {gist}",
        Key::DoneAfterSilently => "Terminé après {time}.",
        Key::FailedAfter => "Échec après {time} : {gist}",
        Key::Seconds => "{count} s|{count} s",
        Key::Minutes => "{count} min|{count} min",
        Key::MinutesAndSeconds => "{minutes} min {seconds} s",
        Key::HoursAndMinutes => "{hours} h {minutes} min",
        Key::QuestionWaits => "Cette question attend encore votre réponse pendant {time}.",
        Key::QuietSet => "Heures calmes {hours} ({zone}) : rien ne sonne alors pour vous. /quiet off y met fin.",
        Key::QuietOff => "Les messages sonnent désormais pour vous à toute heure.",
        Key::QuietForEverybody => "Heures calmes pour tous : {hours} ({zone}). Écrivez /quiet 22:00-07:00 pour vos propres heures, ou /quiet off.",
        Key::QuietNever => "Les messages sonnent pour vous à toute heure. Écrivez /quiet 22:00-07:00 pour des heures où rien ne sonne.",
        Key::QuietUsage => "Je ne comprends pas ces heures. Écrivez /quiet 22:00-07:00 ou /quiet off.",
        Key::NothingToRetry => "Je n’ai plus votre dernier message. Veuillez l’envoyer à nouveau.",
        Key::NothingWaits => "Rien n’attend.",
        Key::MessagesWait => "{count} message attend. Faut-il l’abandonner ?|{count} messages attendent. Lequel faut-il abandonner ?",
        Key::DropMessage => "Abandonner {number} : {text}",
    }
}
