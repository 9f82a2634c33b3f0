//! TOML with places: reads configuration and provider manifests alike, and collects *every* mistake with its file,
//! line and column instead of stopping at the first.
//!
//! A mistake names the key and what is wanted there, never the value that stood there, which may be a secret. The
//! readers of required keys give a stand-in value after they have recorded a mistake, so that reading goes on;
//! [`Mistakes::verdict`] then throws the whole result away, or [`Mistakes::take`] lets what is sound be checked further.

mod table;
mod words;

pub use table::Table;
pub use words::{parse_duration, show_duration};

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Where something stands in a file, and under which key path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file's name, as it was given.
    pub file: Arc<str>,
    /// Line, from 1; 0 for the file as a whole.
    pub line: usize,
    /// Column in characters, from 1; 0 for the file as a whole.
    pub column: usize,
    /// Dotted path of the key, such as `send.auth.basic` or `answers[2].status`; empty at the root.
    pub key: String,
}

impl Place {
    /// The file as a whole, for mistakes that stand at no line, such as a file that cannot be read.
    pub fn of_file(file: &str) -> Self {
        Self { file: file.into(), line: 0, column: 0, key: String::new() }
    }

    fn under(&self, key: &str) -> String {
        if self.key.is_empty() { key.to_owned() } else { format!("{}.{key}", self.key) }
    }
}

/// One mistake, shown as `file:line:column: key: message`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Mistake {
    /// Where it is.
    pub place: Place,
    /// What is wanted, never what was found.
    pub message: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place { file, line, column, key } = &self.place;
        f.write_str(file)?;
        if *line > 0 {
            write!(f, ":{line}:{column}")?;
        }
        if !key.is_empty() {
            write!(f, ": {key}")?;
        }
        write!(f, ": {}", self.message)
    }
}

/// The list that all readers of one document record mistakes in.
#[derive(Clone, Debug, Default)]
pub struct Mistakes(Rc<RefCell<Vec<Mistake>>>);

impl Mistakes {
    /// Records a mistake.
    pub fn add(&self, place: &Place, message: impl Into<String>) {
        self.0.borrow_mut().push(Mistake { place: place.clone(), message: message.into() });
    }

    /// Adds mistakes that were found elsewhere.
    pub fn extend(&self, more: Vec<Mistake>) {
        self.0.borrow_mut().extend(more);
    }

    /// Whether none was recorded so far.
    pub fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    /// `value` when nothing was recorded.
    ///
    /// # Errors
    /// Every mistake, in the order of its place.
    pub fn verdict<T>(&self, value: T) -> Result<T, Vec<Mistake>> {
        let all = self.take();
        if all.is_empty() { Ok(value) } else { Err(all) }
    }

    /// Takes every mistake, in the order of its place.
    pub fn take(&self) -> Vec<Mistake> {
        let mut all = self.0.take();
        all.sort_by_key(|m| (m.place.line, m.place.column));
        all
    }
}

/// A parsed document.
#[derive(Debug)]
pub struct Document {
    root: Table,
}

impl Document {
    /// Parses `text`, telling of `file` in places.
    ///
    /// # Errors
    /// Every syntax error.
    pub fn parse(file: &str, text: &str) -> Result<Self, Vec<Mistake>> {
        let mistakes = Mistakes::default();
        let source = Source { file: file.into(), text, mistakes: mistakes.clone() };
        let (table, errors) = DeTable::parse_recoverable(text);
        for e in &errors {
            let place = e.span().map_or_else(|| Place::of_file(file), |s| source.place(s.start, String::new()));
            mistakes.add(&place, e.message());
        }
        mistakes.verdict(())?;
        let start = Place { file: file.into(), line: 1, column: 1, key: String::new() };
        let root = source.table(table.into_inner(), start);
        mistakes.verdict(Self { root })
    }

    /// The top-level table, to be read.
    pub fn into_table(self) -> Table {
        self.root
    }
}

struct Source<'t> {
    file: Arc<str>,
    text: &'t str,
    mistakes: Mistakes,
}

impl Source<'_> {
    fn place(&self, offset: usize, key: String) -> Place {
        let before = self.text.get(..offset).unwrap_or(self.text);
        let line_start = before.rfind('\n').map_or(0, |i| i + 1);
        let line = before.matches('\n').count() + 1;
        Place { file: self.file.clone(), line, column: before[line_start..].chars().count() + 1, key }
    }

    fn table(&self, table: DeTable<'_>, place: Place) -> Table {
        let entries = table.into_iter().map(|(key, value)| {
            let place = self.place(key.span().start, place.under(key.get_ref()));
            (key.into_inner().into_owned(), self.value(value, place))
        });
        Table::new(entries.collect(), place, self.mistakes.clone())
    }

    fn value(&self, value: Spanned<DeValue<'_>>, place: Place) -> Value {
        let node = match value.into_inner() {
            DeValue::String(s) => Node::Str(s.into_owned()),
            DeValue::Boolean(b) => Node::Bool(b),
            DeValue::Integer(i) => match i64::from_str_radix(i.as_str(), i.radix()) {
                Ok(i) => Node::Int(i),
                Err(_) => self.refuse(&place, "is outside the range of 64-bit integers"),
            },
            DeValue::Float(x) => match x.as_str().parse::<f64>() {
                Ok(x) if x.is_finite() => Node::Float(x),
                _ => self.refuse(&place, "is not a finite number"),
            },
            DeValue::Datetime(_) => self.refuse(&place, "dates and times are not used here; write a string"),
            DeValue::Array(items) => {
                let items = items.into_iter().enumerate().map(|(i, item)| {
                    let at = self.place(item.span().start, format!("{}[{i}]", place.key));
                    self.value(item, at)
                });
                Node::Array(items.collect())
            }
            DeValue::Table(t) => Node::Table(self.table(t, place.clone())),
        };
        Value { node, place }
    }

    fn refuse(&self, place: &Place, message: &str) -> Node {
        self.mistakes.add(place, message);
        Node::Bool(false)
    }
}

#[derive(Debug)]
enum Node {
    Str(String),
    Int(i64),
    Float(f64),
    Bool(bool),
    Array(Vec<Value>),
    Table(Table),
}

/// A value of any type, with its place.
#[derive(Debug)]
pub struct Value {
    node: Node,
    place: Place,
}

impl Value {
    /// Where it stands.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// The text, when it is a string.
    pub fn as_str(&self) -> Option<&str> {
        if let Node::Str(s) = &self.node { Some(s) } else { None }
    }

    /// The number, when it is an integer.
    pub fn as_int(&self) -> Option<i64> {
        if let Node::Int(i) = self.node { Some(i) } else { None }
    }

    /// The truth value, when it is one.
    pub fn as_bool(&self) -> Option<bool> {
        if let Node::Bool(b) = self.node { Some(b) } else { None }
    }

    /// The table, when it is one.
    pub fn into_table(self) -> Option<Table> {
        if let Node::Table(t) = self.node { Some(t) } else { None }
    }

    /// The items, when it is an array.
    pub fn into_array(self) -> Option<Vec<Self>> {
        if let Node::Array(items) = self.node { Some(items) } else { None }
    }

    /// The same value as JSON, without places; members in the order of their names.
    pub fn to_json(&self) -> serde_json::Value {
        match &self.node {
            Node::Str(s) => s.as_str().into(),
            Node::Int(i) => (*i).into(),
            Node::Float(x) => (*x).into(),
            Node::Bool(b) => (*b).into(),
            Node::Array(items) => items.iter().map(Self::to_json).collect(),
            Node::Table(t) => t.entries().map(|(k, v)| (k.clone(), v.to_json())).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn read(text: &str, read: impl FnOnce(&mut Table)) -> Vec<String> {
        let mut table = match Document::parse("a.toml", text) {
            Ok(document) => document.into_table(),
            Err(mistakes) => return mistakes.iter().map(ToString::to_string).collect(),
        };
        let mistakes = table.mistakes();
        read(&mut table);
        table.finish();
        mistakes.verdict(()).err().unwrap_or_default().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn every_mistake_is_told_at_once_with_its_place_and_without_the_value() {
        let text =
            "port = 70000\nhots = \"canary\"\n[tls]\nmode = \"canary\"\n  wait = \"canary\"\nlist = [\"é\", 1]\n";
        let told = read(text, |t| {
            t.need_int::<u16>("port", 1..=65535);
            t.need_str("host");
            let mut tls = t.need_table("tls");
            tls.one_of("mode", &[("off", 0), ("on", 1)]);
            tls.duration("wait", SECOND..=60 * SECOND);
            tls.strs("list");
            tls.need_int::<u8>("depth", 1..=9);
            tls.finish();
        });
        assert_eq!(
            told,
            [
                "a.toml:1:1: port: must be an integer from 1 to 65535",
                "a.toml:1:1: host: is required",
                "a.toml:2:1: hots: is not a known key; did you mean `host`?",
                "a.toml:3:2: tls.depth: is required",
                "a.toml:4:1: tls.mode: must be one of \"off\", \"on\"",
                "a.toml:5:3: tls.wait: must be a duration from 1s to 1m, such as \"10s\"",
                "a.toml:6:1: tls.list: must be a list of strings",
            ]
        );
    }

    #[test]
    fn syntax_errors_are_all_told_and_do_not_echo_the_text() {
        let told = read("a = canary\nb = \"canary\nc = 1\n", |_| ());
        assert!(told.len() >= 2, "{told:?}");
        assert!(told[0].starts_with("a.toml:1:5: "), "{told:?}");
        assert!(told.iter().all(|m| !m.contains("canary")), "{told:?}");
    }

    #[test]
    fn what_is_right_reads_as_what_it_is() {
        let text = "n = 3\nx = 0.5\non = true\nd = \"500ms\"\nbody = { a = [1, \"b\"], c.d = false }\n[[t]]\nk = \"v\"\n[p.q]\nk = \"w\"\n";
        let told = read(text, |t| {
            assert_eq!(t.int::<u8>("n", 1..=5), Some(3));
            assert_eq!(t.number("x", 0.0..=1.0), Some(0.5));
            assert_eq!(t.bool("on"), Some(true));
            assert_eq!(t.duration("d", Duration::ZERO..=SECOND), Some(Duration::from_millis(500)));
            assert_eq!(t.json("body"), Some(serde_json::json!({"a": [1, "b"], "c": {"d": false}})));
            for mut table in t.tables("t") {
                assert_eq!(table.place_of("k").key, "t[0].k");
                assert_eq!(table.need_str("k"), "v");
                table.finish();
            }
            for (name, mut table) in t.named_tables("p") {
                assert_eq!((name.as_str(), table.need_str("k").as_str()), ("q", "w"));
                table.finish();
            }
            assert_eq!(t.str("absent"), None);
        });
        assert_eq!(told, Vec::<String>::new());
    }

    #[test]
    fn deep_nesting_is_a_mistake_and_not_a_crash() {
        for text in [
            format!("a = {}1{}", "[".repeat(100_000), "]".repeat(100_000)),
            format!("a = {}", "{b=".repeat(100_000)),
            format!("{} = 1", vec!["a"; 100_000].join(".")),
            format!("[{}]", vec!["a"; 100_000].join(".")),
        ] {
            assert!(Document::parse("a.toml", &text).is_err(), "{}", &text[..20]);
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_or_refused_within_the_text(text in "([a-z\\[\\]{}=\"'.,#\n\r\té0-9_ -]|\\PC){0,80}") {
            if let Err(mistakes) = Document::parse("a.toml", &text) {
                proptest::prop_assert!(!mistakes.is_empty());
                for m in mistakes {
                    proptest::prop_assert!(m.place.line <= text.lines().count() + 1, "{m}");
                }
            }
        }
    }
}
