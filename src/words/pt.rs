//! Portuguese.

use super::Key;

#[rustfmt::skip]
pub(super) const fn text(key: Key) -> &'static str {
    match key {
        Key::DoneAfter => "Pronto após {time}: {gist}",
        Key::DoneAfterSilently => "Pronto após {time}.",
        Key::FailedAfter => "Falhou após {time}: {gist}",
        Key::Seconds => "{count} s|{count} s",
        Key::Minutes => "{count} min|{count} min",
        Key::MinutesAndSeconds => "{minutes} min {seconds} s",
        Key::HoursAndMinutes => "{hours} h {minutes} min",
        Key::QuestionWaits => "Esta pergunta ainda espera a sua resposta por mais {time}.",
        Key::QuietSet => "Horas de silêncio {hours} ({zone}): nesse período nada toca para você. /quiet off as encerra.",
        Key::QuietOff => "A partir de agora as mensagens tocam para você a qualquer hora.",
        Key::QuietForEverybody => "Horas de silêncio para todos: {hours} ({zone}). Escreva /quiet 22:00-07:00 para horários próprios, ou /quiet off.",
        Key::QuietNever => "As mensagens tocam para você a qualquer hora. Escreva /quiet 22:00-07:00 para horários em que nada toca.",
        Key::QuietUsage => "Não entendo esses horários. Escreva /quiet 22:00-07:00 ou /quiet off.",
        Key::NothingToRetry => "Não tenho mais a sua última mensagem. Envie-a de novo, por favor.",
        Key::NothingWaits => "Nada espera.",
        Key::MessagesWait => "{count} mensagem espera. Devo descartá-la?|{count} mensagens esperam. Qual devo descartar?",
        Key::DropMessage => "Descartar {number}: {text}",
    }
}
