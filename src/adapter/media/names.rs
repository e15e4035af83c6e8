//! File names from outside, made safe: no path, no hidden file, nothing special to a shell or a terminal, bounded.

use super::mime::extension_for;
use crate::text::{is_invisible, percent_decode, truncate_bytes};

/// Longest safe name, in bytes; leaves room for a number within the limit of file systems.
const MAX_NAME: usize = 150;
/// Longest header field that is read.
const MAX_FIELD: usize = 4096;
/// Longest extension that is kept, in bytes.
const MAX_EXTENSION: usize = 12;

/// A name that is safe to create in a folder; `None` when nothing of it is left.
///
/// Only the part after the last slash or backslash counts. Control and invisible characters are removed; ASCII
/// punctuation that means something to a shell becomes `_`; leading dots, spaces and dashes and trailing dots and spaces
/// are trimmed; a reserved device name gets a `_` in front.
pub fn safe_file_name(name: &str) -> Option<String> {
    let last = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let clean: String = last
        .chars()
        .take(4 * MAX_NAME)
        .filter_map(|c| match c {
            _ if is_invisible(c) => None,
            _ if c.is_whitespace() => Some(' '),
            _ if !c.is_ascii() || c.is_ascii_alphanumeric() || "._-+ ()[],=@".contains(c) => Some(c),
            _ => Some('_'),
        })
        .collect();
    let trimmed = clean
        .trim_start_matches(['.', ' ', '-'])
        .trim_end_matches(['.', ' ']);
    if !trimmed
        .chars()
        .any(|c| !c.is_ascii() || c.is_ascii_alphanumeric())
    {
        return None;
    }
    let short = shortened(trimmed);
    Some(if is_device(&short) {
        format!("_{short}")
    } else {
        short
    })
}

/// A safe name for a download: the first usable one of `names`, else `file`; with an extension for `mime` if it has none.
pub fn download_name<'a>(names: impl IntoIterator<Item = &'a str>, mime: &str) -> String {
    let name = names.into_iter().find_map(safe_file_name);
    let (mut name, default) = match name {
        Some(name) => (name, None),
        None => ("file".to_owned(), Some("bin")),
    };
    let bare = name
        .rsplit_once('.')
        .is_none_or(|(_, extension)| extension.len() > MAX_EXTENSION);
    if let Some(extension) = extension_for(mime).or(default).filter(|_| bare) {
        name.push('.');
        name.push_str(extension);
    }
    name
}

/// The same name with a number before its extension.
pub fn numbered_name(name: &str, number: usize) -> String {
    match name.rsplit_once('.') {
        Some((stem, extension)) => format!("{stem}-{number}.{extension}"),
        None => format!("{name}-{number}"),
    }
}

/// A safe name for a header field: ASCII only.
pub fn header_name(name: &str) -> String {
    let ascii: String = name.chars().map(|c| if c.is_ascii() { c } else { '_' }).collect();
    safe_file_name(&ascii).unwrap_or_else(|| "file".to_owned())
}

/// The file name in a `Content-Disposition` field, as sent; the extended form wins.
pub fn disposition_name(field: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(&field[..field.len().min(MAX_FIELD)]);
    let mut plain = None;
    let mut rest = text.split_once(';')?.1;
    loop {
        let (name, after) = rest.split_once('=')?;
        let name = name.trim().trim_start_matches(';').trim();
        let (value, after) = field_value(after);
        if name.eq_ignore_ascii_case("filename*") {
            let extended = value
                .splitn(3, '\'')
                .nth(2)
                .map(percent_decode)
                .filter(|name| !name.is_empty());
            if extended.is_some() {
                return extended;
            }
        } else if name.eq_ignore_ascii_case("filename") && plain.is_none() && !value.is_empty() {
            plain = Some(value);
        }
        match after.split_once(';') {
            Some((_, next)) if next.contains('=') => rest = next,
            _ => return plain,
        }
    }
}

/// A parameter's value, and the rest. A backslash escapes only quotes and itself: other backslashes are in paths.
fn field_value(text: &str) -> (String, &str) {
    let text = text.trim_start();
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find(';').unwrap_or(text.len());
        return (text[..end].trim().to_owned(), &text[end..]);
    };
    let mut value = String::new();
    let mut signs = quoted.char_indices().peekable();
    while let Some((at, sign)) = signs.next() {
        match sign {
            '"' => return (value, &quoted[at + 1..]),
            '\\' => value.push(
                signs
                    .next_if(|(_, next)| matches!(next, '"' | '\\'))
                    .map_or('\\', |(_, next)| next),
            ),
            _ => value.push(sign),
        }
    }
    (value, "")
}

/// Truncates a name to [`MAX_NAME`] bytes and keeps its extension.
fn shortened(name: &str) -> String {
    if name.len() <= MAX_NAME {
        return name.to_owned();
    }
    let (stem, extension) = match name.rsplit_once('.') {
        Some((stem, extension)) if extension.len() <= MAX_EXTENSION => (stem, Some(extension)),
        _ => (name, None),
    };
    let room = MAX_NAME - extension.map_or(0, |extension| extension.len() + 1);
    let cut = truncate_bytes(stem, room).trim_end_matches(['.', ' ']);
    extension.map_or_else(|| cut.to_owned(), |extension| format!("{cut}.{extension}"))
}

fn is_device(name: &str) -> bool {
    let stem = name
        .split('.')
        .next()
        .unwrap_or_default()
        .trim_end()
        .to_ascii_uppercase();
    let numbered = |prefix| {
        stem.strip_prefix(prefix).is_some_and(|number: &str| {
            number.len() == 1 && number.bytes().all(|digit| digit.is_ascii_digit())
        })
    };
    matches!(stem.as_str(), "CON" | "PRN" | "AUX" | "NUL") || numbered("COM") || numbered("LPT")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_name_is_never_a_path_and_never_hidden() {
        for (name, safe) in [
            ("photo.png", Some("photo.png")),
            ("../../etc/passwd", Some("passwd")),
            ("/etc/shadow", Some("shadow")),
            ("C:\\Windows\\x.exe", Some("x.exe")),
            ("..\\..\\x", Some("x")),
            ("..", None),
            (".", None),
            ("", None),
            ("a/", None),
            (".ssh", Some("ssh")),
            (". . .env", Some("env")),
            ("--rf", Some("rf")),
            ("a\0b\r\n\u{1b}[31m.png", Some("ab[31m.png")),
            ("gpj.\u{202e}exe", Some("gpj.exe")),
            ("$(reboot);`x`|&.sh", Some("_(reboot)__x___.sh")),
            ("  x .txt. . ", Some("x .txt")),
            ("con", Some("_con")),
            ("NUL.txt", Some("_NUL.txt")),
            ("com1.tar.gz", Some("_com1.tar.gz")),
            ("common.txt", Some("common.txt")),
            ("Ärger 日本.pdf", Some("Ärger 日本.pdf")),
            ("___", None),
        ] {
            assert_eq!(safe_file_name(name).as_deref(), safe, "{name:?}");
        }
    }

    #[test]
    fn a_long_name_keeps_its_extension() {
        let name = safe_file_name(&format!("{}.jpeg", "é".repeat(400))).unwrap();
        assert!(name.len() <= MAX_NAME && name.ends_with("é.jpeg"), "{name}");
        let bare = safe_file_name(&"x".repeat(9000)).unwrap();
        assert_eq!(bare.len(), MAX_NAME);
    }

    #[test]
    fn the_name_in_a_disposition_is_found() {
        for (field, name) in [
            ("attachment; filename=\"a b.png\"", Some("a b.png")),
            ("attachment;filename=x.txt; size=3", Some("x.txt")),
            (
                "inline; FileName=\"a;b=\\\"c\\\".txt\"; x=y",
                Some("a;b=\"c\".txt"),
            ),
            ("attachment; filename=\"C:\\dir\\x.png\"", Some("C:\\dir\\x.png")),
            (
                "attachment; filename=\"old\"; filename*=UTF-8''%e2%82%ac.txt",
                Some("€.txt"),
            ),
            ("attachment; filename*=''", None),
            ("attachment", None),
            ("attachment; filename=", None),
            ("attachment; filename=\"open", Some("open")),
            ("; ; =;", None),
        ] {
            assert_eq!(disposition_name(field.as_bytes()).as_deref(), name, "{field}");
        }
    }

    #[test]
    fn a_received_name_has_an_extension() {
        assert_eq!(download_name(["..", "b.png", "c"], "image/gif"), "b.png");
        assert_eq!(download_name(["photo"], "image/jpeg"), "photo.jpg");
        assert_eq!(download_name(["photo"], ""), "photo");
        assert_eq!(download_name([""], "audio/ogg"), "file.ogg");
        assert_eq!(download_name([], ""), "file.bin");
        assert_eq!(numbered_name("a.b.c", 2), "a.b-2.c");
        assert_eq!(header_name("Ärger\r\n: x.pdf"), "_rger_ x.pdf");
    }

    proptest! {
        #[test]
        fn any_name_is_safe_or_refused(name in any::<String>()) {
            if let Some(safe) = safe_file_name(&name) {
                prop_assert!(safe.len() <= MAX_NAME + 1 && !safe.starts_with(['.', '-', ' ']));
                prop_assert!(!safe.contains(['/', '\\', '\0', '\n']));
                prop_assert_eq!(safe_file_name(&safe), Some(safe.clone()));
                prop_assert!(header_name(&safe).bytes().all(|byte| (b' '..=b'~').contains(&byte)));
            }
            let _ = disposition_name(name.as_bytes());
            let _ = percent_decode(&name);
        }
    }
}
