//! Reading a table key by key.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::words::{distance, parse_duration, show_duration};
use super::{Mistakes, Node, Place, Value};

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
    pub(super) fn new(entries: BTreeMap<String, Value>, place: Place, mistakes: Mistakes) -> Self {
        Self { entries, known: vec![], taken: BTreeMap::new(), place, mistakes }
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.entries.iter()
    }

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

    /// Whether `key` was there when it was taken.
    pub fn had(&self, key: &str) -> bool {
        self.taken.contains_key(key)
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
        self.take(key, "a list", |v| v.into_array())
    }

    /// A list of strings, each with its place.
    pub fn strs_at(&mut self, key: &str) -> Option<Vec<(String, Place)>> {
        let read = |v: Value| match v.node {
            Node::Str(s) => Some((s, v.place)),
            _ => None,
        };
        self.take(key, "a list of strings", |v| v.into_array()?.into_iter().map(read).collect())
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
        self.take(key, "a table of strings", |v| v.into_table()?.entries.into_iter().map(read).collect())
    }

    /// A table.
    pub fn table(&mut self, key: &str) -> Option<Self> {
        self.take(key, "a table", |v| v.into_table())
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
        Self::new(BTreeMap::new(), self.place_of(key), self.mistakes.clone())
    }

    /// A list of tables (`[[key]]`), empty when it is not there.
    pub fn tables(&mut self, key: &str) -> Vec<Self> {
        let read = |v: Value| v.into_array()?.into_iter().map(|t| t.into_table()).collect();
        self.take(key, "a list of tables", read).unwrap_or_default()
    }

    /// The tables under `key` by name (`[key.NAME]`), empty when there are none.
    pub fn named_tables(&mut self, key: &str) -> Vec<(String, Self)> {
        let read = |v: Value| v.into_table()?.entries.into_iter().map(|(k, v)| Some((k, v.into_table()?))).collect();
        self.take(key, "a table of tables", read).unwrap_or_default()
    }

    /// Ends the reading: each key that was never asked for is a mistake.
    pub fn finish(self) {
        for (key, value) in &self.entries {
            let near =
                self.known.iter().map(|k| (distance(key, k), k)).min().filter(|(d, _)| *d <= 2 && d * 2 <= key.len());
            let hint = near.map(|(_, k)| format!("; did you mean `{k}`?")).unwrap_or_default();
            self.mistakes.add(&value.place, format!("is not a known key{hint}"));
        }
    }
}
