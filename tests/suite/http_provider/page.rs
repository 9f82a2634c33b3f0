//! `docs/PROVIDERS.md`: its example is a manifest at every step, and its table says what the manifests say.

use std::fs;
use std::path::PathBuf;

use sendonce::provider::manifest::SHIPPED;
use toml::{Table, Value};

use super::*;

/// The page's example, whole.
pub const EXAMPLE: (&str, &str) = ("pigeon", include_str!("../../../docs/pigeon.toml"));

fn page() -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("docs/PROVIDERS.md");
    fs::read_to_string(path).expect("the page")
}

/// The page's blocks of this kind.
fn blocks(kind: &str) -> Vec<String> {
    let page = page();
    let open = format!("\n```{kind}\n");
    let block = |rest: &str| rest.split_once("```").expect("an end").0.to_owned();
    page.split(open.as_str()).skip(1).map(block).collect()
}

/// The contract of the page's example.
pub fn contract() -> String {
    blocks("toml contract").pop().expect("a contract")
}

/// `file` with the sections of `part`, each below the section of that name or at the end.
fn with(mut file: Vec<String>, part: &str) -> Vec<String> {
    let mut at = file.len();
    for line in part.lines().filter(|line| !line.is_empty()) {
        if line.starts_with('[') {
            match file.iter().position(|have| have == line) {
                Some(header) => {
                    let end = file[header..].iter().position(String::is_empty);
                    at = end.map_or(file.len(), |end| header + end);
                    continue;
                }
                None => {
                    file.extend((!file.is_empty()).then(String::new));
                    at = file.len();
                }
            }
        }
        file.insert(at, line.to_owned());
        at += 1;
    }
    file
}

#[test]
fn each_step_of_the_page_is_a_manifest_and_the_last_one_is_the_whole_file() {
    let (name, whole) = EXAMPLE;
    let mut file = vec![];
    let steps = blocks("toml");
    assert_eq!(steps.len(), 6);
    for (n, step) in steps.iter().enumerate() {
        file = with(file, step);
        let text = file.join("\n") + "\n";
        let read = Manifest::parse("pigeon.toml", &text).map(|manifest| manifest.name().to_owned());
        assert_eq!(read.as_deref(), Ok(name), "step {}", n + 1);
        if n == 0 {
            let wrong =
                Manifest::parse("pigeon.toml", &text.replace("{{ text }}", "{{ txt }}")).expect_err("a mistake");
            let [mistake] = wrong.as_slice() else { panic!("one mistake, not {wrong:?}") };
            assert!(page().contains(&format!("    {mistake}\n")), "{mistake}");
        }
    }
    assert_eq!(file.join("\n") + "\n", whole);
}

fn at<'a>(table: &'a Table, key: &str) -> &'a str {
    table.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn section<'a>(manifest: &'a Table, name: &str) -> Option<&'a Table> {
    manifest.get(name).and_then(Value::as_table)
}

/// The row of one manifest.
fn row(name: &str, text: &str) -> String {
    let manifest: Table = toml::from_str(text).expect("TOML");
    let lookup = section(&manifest, "lookup").map_or("–".to_owned(), |lookup| {
        assert!(!text.contains("trust_miss = true"), "{name}: the page says that no miss is trusted");
        let query = format!("{} {}", at(lookup, "url"), lookup.get("json").map(Value::to_string).unwrap_or_default());
        let by = if query.contains("{{ reference }}") { "reference" } else { "address" };
        format!("by {by}, {}", at(lookup, "window"))
    });
    let again = match section(&manifest, "dedupe") {
        Some(dedupe) => format!("harmless for {}", at(dedupe, "window")),
        None if text.contains("first_stands") => "refused: the id is taken".to_owned(),
        None => "–".to_owned(),
    };
    let receipt = section(&manifest, "receipt").map_or("–".to_owned(), |receipt| {
        let place = if at(receipt, "reference") == "query" { "in its URL" } else { "in its body" };
        let secret = receipt["secrets"][0].as_str().expect("a setting");
        format!("{place}; `{}`, `{secret}`", at(receipt, "signature"))
    });
    format!("| {name} | {} | {lookup} | {again} | {receipt} |", at(&manifest, "channel"))
}

#[test]
fn the_table_of_the_page_says_what_each_manifest_can_do_after_a_lost_answer() {
    let page = page();
    let (_, after) = page.split_once("## After a lost answer").expect("the section");
    let shown: Vec<&str> = after.lines().filter(|line| line.starts_with('|')).skip(2).collect();
    let rows: Vec<String> = SHIPPED.iter().map(|(name, text)| row(name, text)).collect();
    assert_eq!(shown, rows, "\n{}", rows.join("\n"));
}
