//! Chinese.

use super::Key;

#[rustfmt::skip]
pub(super) const fn text(key: Key) -> &'static str {
    match key {
        Key::DoneAfter => "用时 {time}，已完成：{gist}",
        Key::DoneAfterSilently => "用时 {time}，已完成。",
        Key::FailedAfter => "用时 {time}，失败：{gist}",
        Key::Seconds => "{count} 秒",
        Key::Minutes => "{count} 分钟",
        Key::MinutesAndSeconds => "{minutes} 分 {seconds} 秒",
        Key::HoursAndMinutes => "{hours} 小时 {minutes} 分钟",
        Key::QuestionWaits => "这个问题还在等你回答，还剩 {time}。",
        Key::QuietSet => "免打扰时段 {hours}（{zone}）：期间不会为你响铃。发送 /quiet off 取消。",
        Key::QuietOff => "从现在起，消息随时会为你响铃。",
        Key::QuietForEverybody => "所有人的免打扰时段：{hours}（{zone}）。发送 /quiet 22:00-07:00 设置你自己的时段，或发送 /quiet off。",
        Key::QuietNever => "消息随时会为你响铃。发送 /quiet 22:00-07:00 设置不响铃的时段。",
        Key::QuietUsage => "无法识别这个时段。请发送 /quiet 22:00-07:00 或 /quiet off。",
        Key::NothingToRetry => "你的上一条消息已不在了，请重新发送。",
        Key::NothingWaits => "没有等待中的消息。",
        Key::MessagesWait => "有 {count} 条消息在等待。要删除哪一条？",
        Key::DropMessage => "删除 {number}：{text}",
    }
}
