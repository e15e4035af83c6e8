//! Japanese.

use super::Key;

#[rustfmt::skip]
pub(super) const fn text(key: Key) -> &'static str {
    match key {
        Key::DoneAfter => "{time}で完了しました：{gist}",
        Key::DoneAfterSilently => "{time}で完了しました。",
        Key::FailedAfter => "{time}で失敗しました：{gist}",
        Key::Seconds => "{count}秒",
        Key::Minutes => "{count}分",
        Key::MinutesAndSeconds => "{minutes}分{seconds}秒",
        Key::HoursAndMinutes => "{hours}時間{minutes}分",
        Key::QuestionWaits => "この質問はあと{time}、回答をお待ちしています。",
        Key::QuietSet => "静かな時間帯 {hours}（{zone}）：この間は通知音を鳴らしません。/quiet off で解除できます。",
        Key::QuietOff => "これからはいつでも通知音が鳴ります。",
        Key::QuietForEverybody => "全員の静かな時間帯：{hours}（{zone}）。自分の時間帯は /quiet 22:00-07:00、解除は /quiet off と入力してください。",
        Key::QuietNever => "いつでも通知音が鳴ります。鳴らさない時間帯は /quiet 22:00-07:00 と入力してください。",
        Key::QuietUsage => "この時間帯は読み取れません。/quiet 22:00-07:00 または /quiet off と入力してください。",
        Key::NothingToRetry => "直前のメッセージはもう残っていません。もう一度送ってください。",
        Key::NothingWaits => "待っているメッセージはありません。",
        Key::MessagesWait => "{count}件のメッセージが待っています。どれを取り消しますか？",
        Key::DropMessage => "{number}を取り消す：{text}",
    }
}
