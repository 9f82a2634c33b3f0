//! The source itself, as `docs/ARCHITECTURE.md` promises it: who may use whom, where SQL and clocks may stand, how long
//! a file may be.

use std::fs;
use std::path::{Path, PathBuf};

const MAX_LINES: usize = 500;

/// Which rooms a room may use besides itself. `*` is every room.
const ARROWS: [(&str, &[&str]); 22] = [
    ("domain", &[]),
    ("clock", &["domain"]),
    ("document", &[]),
    ("vault", &["domain"]),
    ("metrics", &[]),
    ("store", &["domain", "clock"]),
    ("node", &["store", "domain", "clock"]),
    ("provider", &["domain", "vault", "clock", "document"]),
    ("ledger", &["store", "domain", "vault", "clock", "metrics", "provider"]),
    ("render", &["domain"]),
    ("audit", &["ledger", "store", "domain"]),
    ("statement", &["ledger", "store", "provider", "domain", "clock"]),
    ("dispatch", &["ledger", "provider", "domain", "clock", "metrics", "store"]),
    ("callback", &["store", "provider", "domain", "clock", "metrics"]),
    ("http", &["ledger", "audit", "statement", "render", "provider", "domain", "vault", "metrics", "clock", "store"]),
    ("config", &["domain", "document"]),
    ("keys", &["domain", "document", "clock"]),
    ("telemetry", &[]),
    ("process", &[]),
    ("bench", &["store", "config", "domain", "clock"]),
    ("cli", &["*"]),
    ("main", &["*"]),
];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn rust_files(below: &Path) -> Vec<PathBuf> {
    let mut found = vec![];
    for entry in fs::read_dir(below).expect("a folder of the source") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(rust_files(&path));
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            found.push(path);
        }
    }
    found
}

fn sources() -> Vec<(String, String)> {
    let src = root().join("src");
    let mut all = vec![];
    for path in rust_files(&src) {
        let name = path.strip_prefix(&src).expect("below src").to_string_lossy().into_owned();
        all.push((name, fs::read_to_string(&path).expect("UTF-8 source")));
    }
    assert!(all.len() > 40, "the source was not found");
    all
}

/// The part of a file that is built into the product.
fn product(text: &str) -> &str {
    text.split("#[cfg(test)]").next().unwrap_or(text)
}

fn room_of(file: &str) -> &str {
    file.split('/').next().unwrap_or(file).trim_end_matches(".rs")
}

#[test]
fn no_room_uses_another_against_the_arrows() {
    let rooms: Vec<&str> = ARROWS.iter().map(|(room, _)| *room).collect();
    let mut wrong = vec![];
    for (file, text) in sources() {
        let room = room_of(&file);
        if room == "lib" {
            continue;
        }
        let Some((_, may)) = ARROWS.iter().find(|(name, _)| *name == room) else {
            wrong.push(format!("{file}: the room `{room}` is not on the map"));
            continue;
        };
        for used in product(&text).match_indices("crate::").map(|(at, found)| &text[at + found.len()..]) {
            let used: String = used.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
            let is_room = rooms.contains(&used.as_str());
            if is_room && used != room && !may.contains(&"*") && !may.contains(&used.as_str()) {
                wrong.push(format!("{file}: `{room}` uses `{used}`"));
            }
        }
    }
    wrong.sort();
    wrong.dedup();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_map_in_the_documents_has_the_same_arrows() {
    let page = fs::read_to_string(root().join("docs/ARCHITECTURE.md")).expect("the page");
    let shown: Vec<(String, String)> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` | "))
        .filter_map(|(room, rest)| Some((room.to_owned(), rest.split_once('|')?.0.trim().to_owned())))
        .take(ARROWS.len())
        .collect();
    let held: Vec<_> = ARROWS.iter().map(|(room, may)| ((*room).to_owned(), may.join(", "))).collect();
    assert_eq!(shown, held);
}

/// Holds that no product code outside the `allowed` files has one of these words.
#[track_caller]
fn assert_nowhere_else(words: &[&str], allowed: impl Fn(&str) -> bool) {
    let mut wrong = vec![];
    for (file, text) in sources().into_iter().filter(|(file, _)| !allowed(file)) {
        let hits = words.iter().filter(|word| product(&text).contains(**word));
        wrong.extend(hits.map(|word| format!("{file}: {word}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn sql_stands_in_the_store_only() {
    let words = ["SELECT ", "INSERT INTO", "UPDATE work", "UPDATE notification", "DELETE FROM", "PRAGMA ", "sqlx::"];
    assert_nowhere_else(&words, |file| room_of(file) == "store");
}

#[test]
fn only_the_clock_reads_the_clock() {
    let words = ["SystemTime::now", "Utc::now", "Local::now", "Instant::now", "clock_gettime", "now_v7"];
    assert_nowhere_else(&words, |file| file == "clock.rs");
}

#[test]
fn a_file_can_be_read_in_a_sitting() {
    let mut files = rust_files(&root().join("src"));
    files.extend(rust_files(&root().join("tests")));
    let mut long = vec![];
    for path in files {
        let lines = fs::read_to_string(&path).expect("UTF-8 source").lines().count();
        if lines > MAX_LINES {
            long.push(format!("{}: {lines} lines", path.display()));
        }
    }
    assert!(long.is_empty(), "{}", long.join("\n"));
}
