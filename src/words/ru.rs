//! Russian.

use super::Key;

#[rustfmt::skip]
pub(super) const fn text(key: Key) -> &'static str {
    match key {
        Key::DoneAfter => "Готово через {time}: {gist}",
        Key::DoneAfterSilently => "Готово через {time}.",
        Key::FailedAfter => "Ошибка через {time}: {gist}",
        Key::Seconds => "{count} с|{count} с|{count} с",
        Key::Minutes => "{count} мин|{count} мин|{count} мин",
        Key::MinutesAndSeconds => "{minutes} мин {seconds} с",
        Key::HoursAndMinutes => "{hours} ч {minutes} мин",
        Key::QuestionWaits => "Этот вопрос ждёт вашего ответа ещё {time}.",
        Key::QuietSet => "Тихие часы {hours} ({zone}): в это время для вас ничего не звучит. Отменить: /quiet off.",
        Key::QuietOff => "Теперь сообщения для вас звучат в любое время.",
        Key::QuietForEverybody => "Тихие часы для всех: {hours} ({zone}). Напишите /quiet 22:00-07:00, чтобы задать свои часы, или /quiet off.",
        Key::QuietNever => "Сообщения для вас звучат в любое время. Напишите /quiet 22:00-07:00, чтобы задать часы без звука.",
        Key::QuietUsage => "Не могу разобрать эти часы. Напишите /quiet 22:00-07:00 или /quiet off.",
        Key::NothingToRetry => "Вашего последнего сообщения у меня больше нет. Отправьте его ещё раз.",
        Key::NothingWaits => "Ничего не ждёт.",
        Key::MessagesWait => "Ждёт {count} сообщение. Убрать его?|Ждут {count} сообщения. Какое убрать?|Ждут {count} сообщений. Какое убрать?",
        Key::DropMessage => "Убрать {number}: {text}",
    }
}
