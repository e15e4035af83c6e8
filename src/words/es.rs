//! Spanish.

use super::Key;

#[rustfmt::skip]
pub(super) const fn text(key: Key) -> &'static str {
    match key {
        Key::DoneAfter => "Listo tras {time}: {gist}",
        Key::DoneAfterSilently => "Listo tras {time}.",
        Key::FailedAfter => "Falló tras {time}: {gist}",
        Key::Seconds => "{count} s|{count} s",
        Key::Minutes => "{count} min|{count} min",
        Key::MinutesAndSeconds => "{minutes} min {seconds} s",
        Key::HoursAndMinutes => "{hours} h {minutes} min",
        Key::QuestionWaits => "Esta pregunta sigue esperando tu respuesta durante {time} más.",
        Key::QuietSet => "Horas de silencio {hours} ({zone}): entonces nada suena para ti. /quiet off las termina.",
        Key::QuietOff => "A partir de ahora los mensajes suenan para ti a cualquier hora.",
        Key::QuietForEverybody => "Horas de silencio para todos: {hours} ({zone}). Escribe /quiet 22:00-07:00 para tus propias horas, o /quiet off.",
        Key::QuietNever => "Los mensajes suenan para ti a cualquier hora. Escribe /quiet 22:00-07:00 para horas en las que nada suene.",
        Key::QuietUsage => "No entiendo esas horas. Escribe /quiet 22:00-07:00 o /quiet off.",
        Key::NothingToRetry => "Ya no tengo tu último mensaje. Envíalo de nuevo, por favor.",
        Key::NothingWaits => "Nada espera.",
        Key::MessagesWait => "{count} mensaje espera. ¿Lo descarto?|{count} mensajes esperan. ¿Cuál descarto?",
        Key::DropMessage => "Descartar {number}: {text}",
    }
}
