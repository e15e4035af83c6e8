//! Several files of an answer as one message, where a platform has that.

use super::{MediaKind, OutgoingAttachment, attachment_ops};
use crate::adapter::action_builder::ActionBuilder;
use crate::adapter::stream::DurableAction;
use crate::wire::{ALBUMS, Action, AlbumFile, CapabilityDescriptor, MAX_ALBUM};
use crate::words::Language;

/// The ops that deliver attachments which follow each other: albums where the platform has them, else one after the other. An
/// album has one caption, that of its first file.
pub(in crate::adapter) fn attachments_ops(
    attachments: &[&OutgoingAttachment],
    builder: &ActionBuilder,
    descriptor: Option<&CapabilityDescriptor>,
    language: Language,
) -> Vec<DurableAction> {
    let single = |file: &OutgoingAttachment| attachment_ops(file, builder, descriptor, language);
    let platform = descriptor
        .filter(|descriptor| descriptor.supports_op(ALBUMS))
        .map(|descriptor| descriptor.platform.as_str());
    let mut ops = Vec::new();
    let mut rest = attachments;
    while let [first, ..] = rest {
        let count = platform.map_or(1, |platform| album_length(rest, platform));
        let (together, after) = rest.split_at(count);
        rest = after;
        let mut singles: Vec<DurableAction> = single(first);
        if count > 1 {
            let mut files = vec![singles.remove(0)];
            let others = together.iter().skip(1);
            files.extend(others.flat_map(|file| single(file)));
            ops.extend(album(files));
        }
        ops.append(&mut singles);
    }
    ops
}

/// How many of the first files are one album.
fn album_length(files: &[&OutgoingAttachment], platform: &str) -> usize {
    let class = |file: &OutgoingAttachment| album_class(file, platform);
    let Some(first) = files.first().and_then(|file| class(file)) else {
        return 1;
    };
    let belongs = |file: &&&OutgoingAttachment| {
        class(file) == Some(first)
            && matches!(**file, OutgoingAttachment::File { caption, .. } if caption.trim().is_empty())
    };
    let others = files.iter().skip(1).take(MAX_ALBUM - 1);
    1 + others.take_while(belongs).count()
}

/// Files of one class may be in the same album; `None` for those that are sent alone: texts, voice messages, files at public
/// addresses, and code, whose replacement may be long.
fn album_class(file: &OutgoingAttachment, platform: &str) -> Option<u8> {
    let OutgoingAttachment::File {
        kind,
        is_public: false,
        instead: None,
        ..
    } = file
    else {
        return None;
    };
    match kind {
        MediaKind::Voice => None,
        // Telegram shows pictures and films together, and nothing else with another kind.
        MediaKind::Document if platform == "telegram" => Some(1),
        MediaKind::Audio if platform == "telegram" => Some(2),
        _ => Some(0),
    }
}

/// One op for several files; each has a text in its place, should it alone be refused.
fn album(ops: Vec<DurableAction>) -> Option<DurableAction> {
    let mut files = Vec::new();
    for op in &ops {
        if let Action::SendMedia {
            media_kind,
            source_url,
            filename,
            ..
        } = &op.action
        {
            let texts = op.fallback.iter().filter_map(|action| match action {
                Action::Send { content, .. } => Some(content.as_str()),
                _ => None,
            });
            files.push(AlbumFile {
                media_kind: media_kind.clone(),
                source_url: source_url.clone(),
                filename: filename.clone(),
                instead: texts.collect::<Vec<_>>().join("\n"),
            });
        }
    }
    let mut ops = ops.into_iter();
    let mut whole = ops.next()?;
    whole.fallback.extend(ops.flat_map(|op| op.fallback));
    if let Action::SendMedia { metadata, .. } = &mut whole.action {
        AlbumFile::put(&files, metadata);
    }
    Some(whole)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::adapter::{ChatFacts, ChatId, RelayAdapter};

    fn file(kind: MediaKind, name: &str, caption: &str) -> OutgoingAttachment {
        OutgoingAttachment::File {
            kind,
            source_url: format!("telegram://outgoing/x/{name}"),
            caption: caption.to_owned(),
            name: Some(name.to_owned()),
            is_public: false,
            instead: None,
        }
    }

    /// The names of the files of each op.
    fn together(platform: &str, albums: bool, files: &[OutgoingAttachment]) -> Vec<String> {
        let mut descriptor = CapabilityDescriptor::placeholder(platform);
        descriptor.supported_ops = vec!["send".into(), "send_media".into()];
        if albums {
            descriptor.supported_ops.push(ALBUMS.into());
        }
        let descriptor = Arc::new(descriptor);
        let adapter = RelayAdapter::new(platform, None, Some(Arc::clone(&descriptor)), Arc::default());
        let chat = ChatId {
            platform: platform.into(),
            chat: "c".into(),
        };
        let builder = adapter.builder_of(&chat, &ChatFacts::default());
        let files: Vec<&OutgoingAttachment> = files.iter().collect();
        let ops = attachments_ops(&files, &builder, Some(&descriptor), Language::En);
        let names = ops.iter().map(|op| {
            let album = AlbumFile::of(&op.action);
            match &op.action {
                Action::SendMedia { filename, .. } if album.is_empty() => filename.clone().unwrap(),
                Action::SendMedia { .. } => {
                    assert_eq!(op.fallback.len(), album.len());
                    let names = album.into_iter().map(|file| file.filename.unwrap());
                    names.collect::<Vec<_>>().join("+")
                }
                other => panic!("{other:?}"),
            }
        });
        names.collect()
    }

    #[test]
    fn files_come_together_as_far_as_the_platform_mixes_them() {
        use MediaKind::{Audio, Document, Image, Video, Voice};
        let files = [
            file(Image, "a", "look"),
            file(Video, "b", ""),
            file(Document, "c", ""),
            file(Document, "d", ""),
            file(Document, "e", "a caption of its own"),
            file(Audio, "f", ""),
            file(Voice, "g", ""),
            file(Image, "h", ""),
        ];
        assert_eq!(
            together("telegram", true, &files),
            ["a+b", "c+d", "e", "f", "g", "h"]
        );
        assert_eq!(together("discord", true, &files), ["a+b+c+d", "e+f", "g", "h"]);
        assert_eq!(together("telegram", false, &files).len(), 8);
    }

    #[test]
    fn an_album_has_ten_files_at_most() {
        let files: Vec<_> = (0..12)
            .map(|number| file(MediaKind::Image, &format!("{number}"), ""))
            .collect();
        let sizes = together("telegram", true, &files);
        let sizes: Vec<usize> = sizes.iter().map(|names| names.split('+').count()).collect();
        assert_eq!(sizes, [10, 2]);
    }
}
