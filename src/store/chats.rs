//! Chats: the rows of what is known about them.

use super::completion::ChatRow;
use rusqlite::{Connection, Result, Row};
use smol_str::SmolStr;

/// Chats that one statement writes, as many as there are of them: to begin and end a statement costs as much as a row.
const AT_ONCE: [usize; 3] = [64, 8, 1];

/// Writes chats into the table whose name begins so, in the order of their keys, in which one page after the other is filled. Of a
/// chat that is there more than once, the last one counts.
pub(super) fn write(db: &Connection, prefix: &str, chats: &mut [&ChatRow]) -> Result<()> {
    chats.sort_by(|one, other| (&one.platform, &one.chat_id).cmp(&(&other.platform, &other.chat_id)));
    for mut left in chats.chunk_by(|one, next| one.platform == next.platform) {
        for count in AT_ONCE {
            let (these, fewer) = left.split_at(left.len() - left.len() % count);
            left = fewer;
            write_slices(db, prefix, these, count)?;
        }
    }
    Ok(())
}

/// Writes chats of one platform, so many with each statement.
fn write_slices(db: &Connection, prefix: &str, chats: &[&ChatRow], count: usize) -> Result<()> {
    let Some(first) = chats.first() else {
        return Ok(());
    };
    let mut upsert = db.prepare_cached(&format!(
        "INSERT INTO {prefix}chats (platform, chat_id, memory, last_used) VALUES (?1, ?, ?, ?){more}
         ON CONFLICT (platform, chat_id)
         DO UPDATE SET memory = excluded.memory, last_used = max(last_used, excluded.last_used)",
        more = ", (?1, ?, ?, ?)".repeat(count - 1),
    ))?;
    upsert.raw_bind_parameter(1, first.platform.as_str())?;
    for rows in chats.chunks_exact(count) {
        for (chat, at) in rows.iter().zip((2..).step_by(3)) {
            upsert.raw_bind_parameter(at, chat.chat_id.as_str())?;
            upsert.raw_bind_parameter(at + 1, &chat.memory)?;
            upsert.raw_bind_parameter(at + 2, chat.last_used)?;
        }
        upsert.raw_execute()?;
    }
    Ok(())
}

/// The chats that were used last, the most recently used first.
pub(super) fn newest(db: &Connection, limit: u32) -> Result<Vec<ChatRow>> {
    let mut find = db
        .prepare("SELECT platform, chat_id, memory, last_used FROM chats ORDER BY last_used DESC LIMIT ?1")?;
    let rows = find.query_map([limit], |row| {
        Ok(ChatRow {
            platform: text(row, 0)?,
            chat_id: text(row, 1)?,
            memory: row.get(2)?,
            last_used: row.get(3)?,
        })
    })?;
    rows.collect()
}

fn text(row: &Row<'_>, column: usize) -> Result<SmolStr> {
    Ok(row.get_ref(column)?.as_str()?.into())
}

/// Deletes the chats that were used longest ago while there are more than `max`, at most `slice` of them; returns how many.
pub(super) fn forget_oldest(db: &Connection, max: u32, slice: i64) -> Result<usize> {
    let count: i64 = db
        .prepare_cached("SELECT count(*) FROM chats")?
        .query_row([], |row| row.get(0))?;
    let over = (count - i64::from(max)).min(slice);
    if over <= 0 {
        return Ok(0);
    }
    db.prepare_cached(
        "DELETE FROM chats WHERE (platform, chat_id) IN
         (SELECT platform, chat_id FROM chats ORDER BY last_used LIMIT ?1)",
    )?
    .execute([over])
}

#[cfg(test)]
mod tests {
    use super::super::journal::JournalSettings;
    use super::super::schema;
    use super::*;

    fn chat(id: i64, memory: &str, last_used: i64) -> ChatRow {
        let platform = if id % 7 == 3 { "slack" } else { "discord" };
        ChatRow {
            platform: platform.into(),
            chat_id: format!("{:x}", id.wrapping_mul(0x9e37_79b9) % 0xffff).into(),
            memory: memory.into(),
            last_used,
        }
    }

    #[test]
    fn of_a_chat_that_is_written_twice_the_last_one_counts() {
        let dir = tempfile::tempdir().unwrap();
        let db = schema::open(&schema::path_in(dir.path()), &JournalSettings::default()).unwrap();
        let rows: Vec<_> = (0..70)
            .flat_map(|id| [chat(id, "old", 7), chat(id, "new", 3)])
            .collect();
        write(&db, "main.", &mut rows.iter().collect::<Vec<_>>()).unwrap();
        let found = newest(&db, 1000).unwrap();
        assert_eq!(found.len(), 70);
        assert!(found.iter().all(|row| row.memory == b"new" && row.last_used == 7));
    }

    #[test]
    fn every_number_of_chats_is_written_and_what_is_newer_stays() {
        for count in [0, 1, 7, 8, 9, 63, 64, 65, 200] {
            let dir = tempfile::tempdir().unwrap();
            let db = schema::open(&schema::path_in(dir.path()), &JournalSettings::default()).unwrap();
            let old: Vec<_> = (0..count).map(|id| chat(id, "old", id)).collect();
            write(&db, "main.", &mut old.iter().collect::<Vec<_>>()).unwrap();
            // Every third one is written again, and every sixth with an older time.
            let again = (0..count).step_by(3).map(|id| {
                let last_used = if id % 2 == 0 { -1 } else { 1000 };
                chat(id, "new", last_used)
            });
            let again: Vec<_> = again.collect();
            write(&db, "main.", &mut again.iter().collect::<Vec<_>>()).unwrap();
            let mut expected = old;
            for row in again {
                let known = expected
                    .iter_mut()
                    .find(|known| known.chat_id == row.chat_id)
                    .unwrap();
                known.last_used = known.last_used.max(row.last_used);
                known.memory = row.memory;
            }
            let mut found = newest(&db, 1000).unwrap();
            assert!(
                found.is_sorted_by_key(|row| -row.last_used),
                "the newest are first"
            );
            let key = |row: &ChatRow| row.chat_id.clone();
            found.sort_by_key(key);
            expected.sort_by_key(key);
            assert_eq!(found, expected, "{count}");
        }
    }
}
