//! TOML with places: reads configuration and provider manifests alike, and collects *every* mistake with its file,
//! line and column instead of stopping at the first.
//!
//! A mistake names the key and what is wanted there, never the value that stood there, which may be a secret. The
//! readers of required keys give a stand-in value after they have recorded a mistake, so that reading goes on;
//! [`Mistakes::verdict`] then throws the whole result away.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

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
        let mut all = self.0.take();
        if all.is_empty() {
            return Ok(value);
        }
        all.sort_by(|a, b| (a.place.line, a.place.column).cmp(&(b.place.line, b.place.column)));
        Err(all)
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
        Table {
            entries: entries.collect(),
            known: vec![],
            taken: BTreeMap::new(),
            place,
            mistakes: self.mistakes.clone(),
        }
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
    ///
    /// # Errors
    /// The value itself when it is none.
    pub fn into_table(self) -> Result<Table, Self> {
        if let Node::Table(t) = self.node { Ok(t) } else { Err(self) }
    }

    /// The items, when it is an array.
    ///
    /// # Errors
    /// The value itself when it is none.
    pub fn into_array(self) -> Result<Vec<Self>, Self> {
        if let Node::Array(items) = self.node { Ok(items) } else { Err(self) }
    }

    /// The same value as JSON, without places; members in the order of their names.
    pub fn to_json(&self) -> serde_json::Value {
        match &self.node {
            Node::Str(s) => s.as_str().into(),
            Node::Int(i) => (*i).into(),
            Node::Float(x) => (*x).into(),
            Node::Bool(b) => (*b).into(),
            Node::Array(items) => items.iter().map(Self::to_json).collect(),
            Node::Table(t) => t.entries.iter().map(|(k, v)| (k.clone(), v.to_json())).collect(),
        }
    }
}

/// A table that is read key by key. What was never asked for is a mistake when [`Table::finish`] is called.
#[derive(Debug)]
pub struct Table {
    entries: BTreeMap<String, Value>,
    known: Vec<String>,
    taken: BTreeMap<String, Place>,
    place: Place,
    mistakes: Mistakes,
}

impl Table {
    /// Where the table begins.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Where `key` stands, also after it was taken; where it would stand, when it is not there.
    pub fn place_of(&self, key: &str) -> Place {
        let there = self.entries.get(key).map(|v| &v.place).or_else(|| self.taken.get(key));
        there.cloned().unwrap_or_else(|| Place { key: self.place.under(key), ..self.place.clone() })
    }

    /// The list that this table's mistakes are recorded in.
    pub fn mistakes(&self) -> Mistakes {
        self.mistakes.clone()
    }

    /// Records a mistake at `key`.
    pub fn wrong(&self, key: &str, message: impl Into<String>) {
        self.mistakes.add(&self.place_of(key), message);
    }

    /// Whether `key` is there and not yet taken.
    pub fn has(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }

    /// The keys that are there and not yet taken, in the order of their names.
    pub fn keys(&self) -> Vec<String> {
        self.entries.keys().cloned().collect()
    }

    /// Takes a value of any type.
    pub fn raw(&mut self, key: &str) -> Option<Value> {
        self.known.push(key.to_owned());
        let value = self.entries.remove(key)?;
        self.taken.insert(key.to_owned(), value.place.clone());
        Some(value)
    }

    /// Takes a value of any type as JSON.
    pub fn json(&mut self, key: &str) -> Option<serde_json::Value> {
        self.raw(key).map(|v| v.to_json())
    }

    fn take<T>(&mut self, key: &str, wanted: &str, read: impl FnOnce(Value) -> Option<T>) -> Option<T> {
        let value = self.raw(key)?;
        let place = value.place.clone();
        let read = read(value);
        if read.is_none() {
            self.mistakes.add(&place, format!("must be {wanted}"));
        }
        read
    }

    fn need<T>(&mut self, key: &str, stand_in: T, take: impl FnOnce(&mut Self) -> Option<T>) -> T {
        let there = self.has(key);
        let taken = take(self);
        if !there {
            self.wrong(key, "is required");
        }
        taken.unwrap_or(stand_in)
    }

    /// A string.
    pub fn str(&mut self, key: &str) -> Option<String> {
        self.take(key, "a string", |v| if let Node::Str(s) = v.node { Some(s) } else { None })
    }

    /// A string that must be there and not be empty.
    pub fn need_str(&mut self, key: &str) -> String {
        self.need(key, String::new(), |t| {
            t.take(key, "a string that is not empty", |v| v.as_str().filter(|s| !s.is_empty()).map(str::to_owned))
        })
    }

    /// A string that `parse` reads; a failure is recorded with the error's text, which must not hold the value.
    pub fn parsed<T, E: fmt::Display>(&mut self, key: &str, parse: impl FnOnce(&str) -> Result<T, E>) -> Option<T> {
        let text = self.str(key)?;
        parse(&text).map_err(|e| self.wrong(key, e.to_string())).ok()
    }

    /// An integer within `range`.
    pub fn int<N>(&mut self, key: &str, range: RangeInclusive<N>) -> Option<N>
    where
        N: TryFrom<i64> + PartialOrd + fmt::Display + Copy,
    {
        let wanted = format!("an integer from {} to {}", range.start(), range.end());
        self.take(key, &wanted, |v| N::try_from(v.as_int()?).ok().filter(|n| range.contains(n)))
    }

    /// An integer within `range` that must be there.
    pub fn need_int<N>(&mut self, key: &str, range: RangeInclusive<N>) -> N
    where
        N: TryFrom<i64> + PartialOrd + fmt::Display + Copy,
    {
        self.need(key, *range.start(), |t| t.int(key, range.clone()))
    }

    /// A number, whole or not, within `range`.
    pub fn number(&mut self, key: &str, range: RangeInclusive<f64>) -> Option<f64> {
        let wanted = format!("a number from {} to {}", range.start(), range.end());
        self.take(key, &wanted, |v| {
            let n = match v.node {
                Node::Float(x) => x,
                // Only numbers of at most 32 bits are wanted anywhere, and those are exact as f64.
                Node::Int(i) => f64::from(i32::try_from(i).ok()?),
                _ => return None,
            };
            range.contains(&n).then_some(n)
        })
    }

    /// `true` or `false`.
    pub fn bool(&mut self, key: &str) -> Option<bool> {
        self.take(key, "true or false", |v| v.as_bool())
    }

    /// A length of time within `range`: a whole number and a unit, `ms`, `s`, `m`, `h` or `d`, such as `"500ms"`.
    pub fn duration(&mut self, key: &str, range: RangeInclusive<Duration>) -> Option<Duration> {
        let wanted = format!(
            "a duration from {} to {}, such as \"10s\"",
            show_duration(*range.start()),
            show_duration(*range.end())
        );
        self.take(key, &wanted, |v| parse_duration(v.as_str()?).filter(|d| range.contains(d)))
    }

    /// A length of time within `range` that must be there.
    pub fn need_duration(&mut self, key: &str, range: RangeInclusive<Duration>) -> Duration {
        self.need(key, *range.start(), |t| t.duration(key, range.clone()))
    }

    /// One of a closed set of words.
    pub fn one_of<T: Copy>(&mut self, key: &str, words: &[(&str, T)]) -> Option<T> {
        let list = words.iter().map(|(w, _)| format!("\"{w}\"")).collect::<Vec<_>>().join(", ");
        let wanted = if words.len() == 1 { list } else { format!("one of {list}") };
        self.take(key, &wanted, |v| words.iter().find(|(w, _)| Some(*w) == v.as_str()).map(|(_, t)| *t))
    }

    /// One of a closed set of words that must be there; `words` is not empty.
    pub fn need_one_of<T: Copy>(&mut self, key: &str, words: &[(&str, T)]) -> T {
        self.need(key, words[0].1, |t| t.one_of(key, words))
    }

    /// A list of values of any type.
    pub fn list(&mut self, key: &str) -> Option<Vec<Value>> {
        self.take(key, "a list", |v| v.into_array().ok())
    }

    /// A list of strings, each with its place.
    pub fn strs_at(&mut self, key: &str) -> Option<Vec<(String, Place)>> {
        let read = |v: Value| match v.node {
            Node::Str(s) => Some((s, v.place)),
            _ => None,
        };
        self.take(key, "a list of strings", |v| v.into_array().ok()?.into_iter().map(read).collect())
    }

    /// A list of strings.
    pub fn strs(&mut self, key: &str) -> Option<Vec<String>> {
        Some(self.strs_at(key)?.into_iter().map(|(s, _)| s).collect())
    }

    /// A table of strings, each with its place, by name.
    pub fn str_map(&mut self, key: &str) -> Option<BTreeMap<String, (String, Place)>> {
        let read = |(k, v): (String, Value)| match v.node {
            Node::Str(s) => Some((k, (s, v.place))),
            _ => None,
        };
        self.take(key, "a table of strings", |v| v.into_table().ok()?.entries.into_iter().map(read).collect())
    }

    /// A table.
    pub fn table(&mut self, key: &str) -> Option<Self> {
        self.take(key, "a table", |v| v.into_table().ok())
    }

    /// A table, empty when it is not there: for sections whose keys all have defaults.
    pub fn section(&mut self, key: &str) -> Self {
        self.table(key).unwrap_or_else(|| self.empty(key))
    }

    /// A table that must be there.
    pub fn need_table(&mut self, key: &str) -> Self {
        let empty = self.empty(key);
        self.need(key, empty, |t| t.table(key))
    }

    fn empty(&self, key: &str) -> Self {
        let (entries, taken) = (BTreeMap::new(), BTreeMap::new());
        Self { entries, known: vec![], taken, place: self.place_of(key), mistakes: self.mistakes.clone() }
    }

    /// A list of tables (`[[key]]`), empty when it is not there.
    pub fn tables(&mut self, key: &str) -> Vec<Self> {
        let read = |v: Value| v.into_array().ok()?.into_iter().map(|t| t.into_table().ok()).collect();
        self.take(key, "a list of tables", read).unwrap_or_default()
    }

    /// The tables under `key` by name (`[key.NAME]`), empty when there are none.
    pub fn named_tables(&mut self, key: &str) -> Vec<(String, Self)> {
        let read =
            |v: Value| v.into_table().ok()?.entries.into_iter().map(|(k, v)| Some((k, v.into_table().ok()?))).collect();
        self.take(key, "a table of tables", read).unwrap_or_default()
    }

    /// Ends the reading: each key that was never asked for is a mistake.
    pub fn finish(self) {
        for (key, value) in &self.entries {
            let near = self.known.iter().map(|k| (distance(key, k), k)).min().filter(|(d, _)| *d <= 2);
            let hint = near.map(|(_, k)| format!("; did you mean `{k}`?")).unwrap_or_default();
            self.mistakes.add(&value.place, format!("is not a known key{hint}"));
        }
    }
}

const UNITS: [(&str, u64); 5] = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// Reads a whole number and a unit: `ms`, `s`, `m`, `h` or `d`.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let (_, millis) = UNITS.iter().find(|(u, _)| *u == unit)?;
    Some(Duration::from_millis(number.parse::<u64>().ok()?.checked_mul(*millis)?))
}

/// Writes a duration as [`parse_duration`] reads it, in the largest unit that holds it whole; parts of a millisecond are
/// dropped.
pub fn show_duration(d: Duration) -> String {
    let millis = d.as_millis();
    let unit = UNITS.iter().rev().find(|(_, m)| millis > 0 && millis.is_multiple_of(u128::from(*m)));
    let (unit, size) = unit.unwrap_or(&("s", 1000));
    format!("{}{unit}", millis / u128::from(*size))
}

/// Levenshtein's distance; `usize::MAX` for words too long to be worth it.
fn distance(a: &str, b: &str) -> usize {
    if a.len() > 40 || b.len() > 40 {
        return usize::MAX;
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let substituted = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
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
    fn durations_read_back_as_they_are_shown() {
        for (text, millis) in [("0s", 0), ("500ms", 500), ("90s", 90_000), ("5m", 300_000), ("2h", 7_200_000)] {
            assert_eq!(parse_duration(text), Some(Duration::from_millis(millis)), "{text}");
            assert_eq!(show_duration(Duration::from_millis(millis)), text);
        }
        for text in ["", "5", "s", "-1s", "1.5s", "1w", "99999999999999999999s", "5 s"] {
            assert_eq!(parse_duration(text), None, "{text}");
        }
    }
}
