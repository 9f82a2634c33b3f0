//! The files of the templates: those that ship with the program, or those of a directory.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::check::{Mistake, TemplateMistake};

/// The parts that each locale of a kind has.
pub(super) const PARTS: [&str; 4] = ["sms.txt", "mail.subject.txt", "mail.txt", "mail.html"];

/// The files of one kind, as read.
#[derive(Default)]
pub(super) struct KindSource {
    /// The text of `kind.toml`.
    pub(super) rules: Option<String>,
    /// The parts of each locale folder, by the name of the file.
    pub(super) locales: BTreeMap<String, BTreeMap<String, String>>,
}

/// All kinds, by the name of the folder.
pub(super) type Sources = BTreeMap<String, KindSource>;

macro_rules! shipped_part {
    ($kind:literal, $locale:literal, $part:literal) => {
        ($part.to_owned(), include_str!(concat!("../../config/templates/", $kind, "/", $locale, "/", $part)).to_owned())
    };
}

macro_rules! shipped_kind {
    ($kind:literal, $($locale:literal),+) => {
        KindSource {
            rules: Some(include_str!(concat!("../../config/templates/", $kind, "/kind.toml")).to_owned()),
            locales: BTreeMap::from([$(($locale.to_owned(), BTreeMap::from([
                shipped_part!($kind, $locale, "sms.txt"),
                shipped_part!($kind, $locale, "mail.subject.txt"),
                shipped_part!($kind, $locale, "mail.txt"),
                shipped_part!($kind, $locale, "mail.html"),
            ]))),+]),
        }
    };
}

/// The templates that ship with the program.
pub(super) fn shipped() -> Sources {
    Sources::from([("password_reset".to_owned(), shipped_kind!("password_reset", "en", "vi"))])
}

/// Reads `dir/KIND/kind.toml` and `dir/KIND/LOCALE/PART`. Hidden files are passed over.
pub(super) fn read(dir: &Path, mistakes: &mut Vec<TemplateMistake>) -> Sources {
    let mut sources = Sources::new();
    for (kind, path) in entries(dir, mistakes) {
        if !path.is_dir() {
            mistakes.push(TemplateMistake::new(path, Mistake::Stray));
            continue;
        }
        let mut source = KindSource::default();
        for (name, path) in entries(&path, mistakes) {
            if path.is_dir() {
                let parts = entries(&path, mistakes);
                let read = parts.into_iter().filter_map(|(part, path)| Some((part, text(&path, mistakes)?))).collect();
                source.locales.insert(name, read);
            } else if name == "kind.toml" {
                source.rules = text(&path, mistakes);
            } else {
                mistakes.push(TemplateMistake::new(path, Mistake::Stray));
            }
        }
        sources.insert(kind, source);
    }
    sources
}

fn entries(dir: &Path, mistakes: &mut Vec<TemplateMistake>) -> BTreeMap<String, PathBuf> {
    let listed =
        fs::read_dir(dir).and_then(|entries| entries.map(|e| e.map(|e| e.path())).collect::<Result<Vec<_>, _>>());
    let paths = listed.unwrap_or_else(|e| {
        mistakes.push(TemplateMistake::new(dir.to_owned(), Mistake::Unreadable(e.kind())));
        Vec::new()
    });
    let named =
        paths.into_iter().map(|path| (path.file_name().unwrap_or_default().to_string_lossy().into_owned(), path));
    named.filter(|(name, _)| !name.starts_with('.')).collect()
}

fn text(path: &Path, mistakes: &mut Vec<TemplateMistake>) -> Option<String> {
    match fs::read_to_string(path) {
        Ok(text) => Some(text),
        Err(e) => {
            mistakes.push(TemplateMistake::new(path.to_owned(), Mistake::Unreadable(e.kind())));
            None
        }
    }
}
