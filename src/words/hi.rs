//! Hindi.

use super::Key;

#[rustfmt::skip]
pub(super) const fn text(key: Key) -> &'static str {
    match key {
        Key::DoneAfter => "{time} में पूरा हुआ: {gist}",
        Key::DoneAfterSilently => "{time} में पूरा हुआ।",
        Key::FailedAfter => "{time} के बाद विफल: {gist}",
        Key::Seconds => "{count} सेकंड|{count} सेकंड",
        Key::Minutes => "{count} मिनट|{count} मिनट",
        Key::MinutesAndSeconds => "{minutes} मिनट {seconds} सेकंड",
        Key::HoursAndMinutes => "{hours} घंटे {minutes} मिनट",
        Key::QuestionWaits => "यह सवाल अभी {time} और आपके जवाब का इंतज़ार करेगा।",
        Key::QuietSet => "शांत समय {hours} ({zone}): तब आपके लिए घंटी नहीं बजेगी। /quiet off से यह बंद होता है।",
        Key::QuietOff => "अब से संदेशों की घंटी आपके लिए किसी भी समय बजेगी।",
        Key::QuietForEverybody => "सबके लिए शांत समय: {hours} ({zone})। अपने समय के लिए /quiet 22:00-07:00 लिखें, या /quiet off।",
        Key::QuietNever => "संदेशों की घंटी आपके लिए किसी भी समय बजती है। बिना घंटी के समय के लिए /quiet 22:00-07:00 लिखें।",
        Key::QuietUsage => "यह समय समझ में नहीं आया। /quiet 22:00-07:00 या /quiet off लिखें।",
        Key::NothingToRetry => "आपका पिछला संदेश अब मेरे पास नहीं है। कृपया उसे फिर से भेजें।",
        Key::NothingWaits => "कोई संदेश इंतज़ार में नहीं है।",
        Key::MessagesWait => "{count} संदेश इंतज़ार में है। क्या इसे हटाऊँ?|{count} संदेश इंतज़ार में हैं। किसे हटाऊँ?",
        Key::DropMessage => "{number} हटाएँ: {text}",
    }
}
