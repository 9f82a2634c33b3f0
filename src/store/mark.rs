//! How far this node saw its store come, in a small file beside it: what tells that a store was restored from an older
//! copy. It must not be part of the store's backup.
//!
//! The file has two slots of one block each, written in turn, so that a block that was torn by a crash costs one step and
//! not the memory. Writes are not synced: a power failure may lose the last steps, and then the store is ahead of the
//! mark, which is no sign of anything.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

use aws_lc_rs::digest::{SHA256, digest};

use super::StoreError;
use super::rows::HighWater;
use crate::domain::time::Timestamp;

const MAGIC: &[u8; 8] = b"sndmark1";
/// Length of an incarnation, a hyphenated UUID.
const NAME: usize = 36;
/// Magic, turn, position, time, incarnation.
const BODY: usize = 8 + 8 + 8 + 8 + NAME;
const SUM: usize = 16;
const BLOCK: usize = BODY + SUM;
/// Slots lie in different sectors of any disk.
const SLOT: u64 = 4096;

/// The file.
#[derive(Debug)]
pub struct Mark {
    file: File,
    turn: u64,
    last: Option<HighWater>,
}

impl Mark {
    /// Opens the file, or makes an empty one that only its owner may read and write.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] when it holds something, but no readable mark: whether the store is a restored copy can
    /// then not be told, which a person must decide. [`StoreError::Unavailable`] when it cannot be read.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(|_| StoreError::Unavailable)?;
        let empty = file.metadata().map_err(|_| StoreError::Unavailable)?.len() == 0;
        let newest = [0, 1].into_iter().filter_map(|slot| read_slot(&file, slot)).max_by_key(|(turn, _)| *turn);
        match newest {
            Some((turn, last)) => Ok(Self { file, turn, last: Some(last) }),
            None if empty => Ok(Self { file, turn: 0, last: None }),
            None => Err(StoreError::Corrupt { table: "mark", column: "block" }),
        }
    }

    /// The mark written last; `None` in a new file.
    pub fn read(&self) -> Option<&HighWater> {
        self.last.as_ref()
    }

    /// Writes a mark: one small write into the page cache.
    ///
    /// # Errors
    /// [`StoreError::Refused`] when the incarnation is not a hyphenated UUID, [`StoreError::Unavailable`] when the file
    /// cannot be written.
    pub fn write(&mut self, mark: &HighWater) -> Result<(), StoreError> {
        let name: &[u8; NAME] =
            mark.incarnation.as_bytes().try_into().map_err(|_| StoreError::Refused("incarnation"))?;
        let turn = self.turn + 1;
        let mut block = Vec::with_capacity(BLOCK);
        block.extend_from_slice(MAGIC);
        block.extend_from_slice(&turn.to_be_bytes());
        block.extend_from_slice(&mark.pos.to_be_bytes());
        block.extend_from_slice(&mark.at.micros().to_be_bytes());
        block.extend_from_slice(name);
        let sum = digest(&SHA256, &block);
        block.extend_from_slice(&sum.as_ref()[..SUM]);
        self.file.write_all_at(&block, (turn % 2) * SLOT).map_err(|_| StoreError::Unavailable)?;
        self.turn = turn;
        self.last = Some(mark.clone());
        Ok(())
    }

    /// Makes what was written survive a power failure.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when the disk fails.
    pub fn sync(&self) -> Result<(), StoreError> {
        self.file.sync_data().map_err(|_| StoreError::Unavailable)
    }
}

fn read_slot(file: &File, slot: u64) -> Option<(u64, HighWater)> {
    let mut block = [0; BLOCK];
    file.read_exact_at(&mut block, slot * SLOT).ok()?;
    let (body, sum) = block.split_at(BODY);
    if &digest(&SHA256, body).as_ref()[..SUM] != sum || !body.starts_with(MAGIC) {
        return None;
    }
    let number = |at: usize| body[at..at + 8].try_into().map(u64::from_be_bytes).ok();
    let incarnation = std::str::from_utf8(&body[32..]).ok()?.to_owned();
    let (pos, at) = (number(16)?.cast_signed(), number(24)?.cast_signed());
    Some((number(8)?, HighWater { incarnation, pos, at: Timestamp::from_micros(at) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(pos: i64) -> HighWater {
        let incarnation = "0198c7f4-0000-4000-8000-000000000000".to_owned();
        HighWater { incarnation, pos, at: Timestamp::from_micros(-pos) }
    }

    #[test]
    fn the_last_mark_is_read_back_and_a_torn_one_gives_way_to_the_one_before() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("s.db.mark");
        let mut file = Mark::open(&path).expect("opens");
        assert_eq!(file.read(), None);
        for pos in 1..=3 {
            file.write(&mark(pos)).expect("writes");
        }
        file.sync().expect("syncs");
        assert_eq!(Mark::open(&path).expect("opens").read(), Some(&mark(3)));

        file.file.write_all_at(b"torn", SLOT + 20).expect("writes");
        assert_eq!(Mark::open(&path).expect("opens").read(), Some(&mark(2)));
        file.file.write_all_at(b"torn", 20).expect("writes");
        let unreadable = Mark::open(&path).map(|_| ());
        assert_eq!(unreadable, Err(StoreError::Corrupt { table: "mark", column: "block" }));
    }

    #[test]
    fn an_incarnation_of_another_form_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut file = Mark::open(&dir.path().join("m")).expect("opens");
        let odd = HighWater { incarnation: "x".to_owned(), ..mark(1) };
        assert_eq!(file.write(&odd), Err(StoreError::Refused("incarnation")));
        assert_eq!(file.read(), None);
    }
}
