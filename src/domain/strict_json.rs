//! JSON read so that it has one meaning only (I-JSON, RFC 7493 section 2.3): a member name that stands twice, U+0000 and
//! deep nesting are refused, wherever they are.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, MapAccess, SeqAccess, Visitor};
use zeroize::Zeroizing;

/// Objects and lists may be nested so deep.
pub const MAX_DEPTH: usize = 16;
/// The most members that one object may have.
pub const MAX_MEMBERS: usize = 64;

/// A JSON value. It may be secret, so it has no `Debug`; texts are wiped when they are dropped.
#[derive(Clone, PartialEq)]
pub enum Value {
    /// `null`, `true`, `false`, and numbers that are no whole number from 0 on.
    Other,
    /// A whole number from 0 to 2^64 - 1, written without fraction and exponent.
    Whole(u64),
    /// A text.
    Text(Zeroizing<String>),
    /// A list.
    List(Vec<Self>),
    /// An object, in the order in which it was written; every name stands once.
    Object(Vec<(String, Self)>),
}

impl Value {
    /// What stands at a JSON pointer (RFC 6901 section 4).
    pub fn at(&self, pointer: &str) -> Option<&Self> {
        pointer.split('/').skip(1).try_fold(self, |value, token| match value {
            Self::Object(members) => {
                let wanted = token.replace("~1", "/").replace("~0", "~");
                members.iter().find(|(name, _)| *name == wanted).map(|(_, value)| value)
            }
            Self::List(items) => {
                let is_index = token == "0" || !token.starts_with(['0', '+']);
                items.get(token.parse::<usize>().ok().filter(|_| is_index)?)
            }
            Self::Other | Self::Whole(_) | Self::Text(_) => None,
        })
    }
}

/// Why bytes are not JSON as we take it. Holds no value, and no name that is not an identifier.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotStrict {
    /// No JSON text (RFC 8259).
    #[error("is not JSON: line {line}, column {column}")]
    Syntax {
        /// Counted from 1.
        line: usize,
        /// Counted from 1, in bytes.
        column: usize,
    },
    /// Deeper than [`MAX_DEPTH`].
    #[error("is nested deeper than {MAX_DEPTH}")]
    TooDeep,
    /// An object has more than [`MAX_MEMBERS`] members.
    #[error("holds an object with more than {MAX_MEMBERS} members")]
    TooMany,
    /// A name stands twice in one object.
    #[error("holds a member twice")]
    Twice {
        /// Where, as far as it may be said.
        place: String,
    },
    /// A text or a name holds U+0000.
    #[error("holds U+0000")]
    Nul {
        /// Where, as far as it may be said.
        place: String,
    },
}

impl NotStrict {
    /// The field at fault, where one can be named.
    pub fn place(&self) -> Option<&str> {
        match self {
            Self::Twice { place } | Self::Nul { place } => Some(place),
            Self::Syntax { .. } | Self::TooDeep | Self::TooMany => None,
        }
    }
}

/// Reads one JSON text that fills `bytes`.
///
/// # Errors
/// [`NotStrict`], which says where and never what.
pub fn parse(bytes: &[u8]) -> Result<Value, NotStrict> {
    let fault = Cell::new(None);
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let root = Strict { depth: 0, place: &Place::Root, fault: &fault };
    let read = root.deserialize(&mut json).and_then(|value| json.end().map(|()| value));
    read.map_err(|e| fault.take().unwrap_or(NotStrict::Syntax { line: e.line(), column: e.column() }))
}

/// A name that can be shown: an identifier, which a value is unlikely to be.
pub fn showable(name: &str) -> Option<&str> {
    let identifier = (1..=40).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphabetic() || b == b'_');
    identifier.then_some(name)
}

/// Where the reader stands.
enum Place<'a> {
    Root,
    Member(&'a Self, &'a str),
    Item(&'a Self, usize),
}

impl Place<'_> {
    /// The names in `data` are the app's own, and a value set as a name by mistake would be shown: they are not told.
    fn is_secret(&self) -> bool {
        match self {
            Self::Root => false,
            Self::Member(Self::Root, name) => *name == "data",
            Self::Member(above, _) | Self::Item(above, _) => above.is_secret(),
        }
    }
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Member(above, _) | Self::Item(above, _) if above.is_secret() => f.write_str("a member of data"),
            Self::Member(Self::Root, name) => f.write_str(showable(name).unwrap_or("an unknown member")),
            Self::Member(above, name) => write!(f, "{above}.{}", showable(name).unwrap_or("an unknown member")),
            Self::Item(above, index) => write!(f, "{above}[{index}]"),
        }
    }
}

#[derive(Clone, Copy)]
struct Strict<'a> {
    depth: usize,
    place: &'a Place<'a>,
    fault: &'a Cell<Option<NotStrict>>,
}

impl<'a> Strict<'a> {
    /// Keeps our own reason beside the library's error, whose text could hold what was read.
    fn refuse<T, E: serde::de::Error>(&self, why: NotStrict) -> Result<T, E> {
        self.fault.set(Some(why));
        Err(E::custom(""))
    }

    fn below<'b>(&'b self, place: &'b Place<'b>) -> Strict<'b> {
        Strict { depth: self.depth + 1, place, fault: self.fault }
    }

    fn text<E: serde::de::Error>(&self, text: String) -> Result<Value, E> {
        if text.contains('\0') {
            return self.refuse(NotStrict::Nul { place: self.place.to_string() });
        }
        Ok(Value::Text(Zeroizing::new(text)))
    }
}

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Other)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Value, E> {
        Ok(Value::Other)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Value, E> {
        Ok(Value::Other)
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(Value::Whole(number))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Value, E> {
        Ok(Value::Other)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Value, E> {
        self.text(text.to_owned())
    }

    fn visit_string<E: serde::de::Error>(self, text: String) -> Result<Value, E> {
        self.text(text)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        if self.depth >= MAX_DEPTH {
            return self.refuse(NotStrict::TooDeep);
        }
        let mut items = vec![];
        while let Some(item) = seq.next_element_seed(self.below(&Place::Item(self.place, items.len())))? {
            items.push(item);
        }
        Ok(Value::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        if self.depth >= MAX_DEPTH {
            return self.refuse(NotStrict::TooDeep);
        }
        let mut members: Vec<(String, Value)> = vec![];
        while let Some(name) = map.next_key::<String>()? {
            let place = Place::Member(self.place, &name);
            if name.contains('\0') {
                return self.refuse(NotStrict::Nul { place: place.to_string() });
            }
            if members.iter().any(|(other, _)| *other == name) {
                return self.refuse(NotStrict::Twice { place: place.to_string() });
            }
            if members.len() == MAX_MEMBERS {
                return self.refuse(NotStrict::TooMany);
            }
            let value = map.next_value_seed(self.below(&place))?;
            members.push((name, value));
        }
        Ok(Value::Object(members))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn refusal(text: &str) -> NotStrict {
        parse(text.as_bytes()).err().unwrap_or_else(|| panic!("{text} was taken"))
    }

    #[test]
    fn a_name_that_stands_twice_is_refused_at_any_depth() {
        for (text, place) in [
            (r#"{"kind":"a","kind":"a"}"#, "kind"),
            (r#"{"to":[{"sms":"1","\u0073ms":"1"}]}"#, "to[0].sms"),
            (r#"{"data":{"493021":"a","493021":"b"}}"#, "a member of data"),
            (r#"{"a b":1,"a b":2}"#, "an unknown member"),
        ] {
            assert_eq!(refusal(text), NotStrict::Twice { place: place.to_owned() }, "{text}");
        }
    }

    #[test]
    fn u0000_is_refused_also_when_it_is_escaped() {
        for (text, place) in [
            (r#"{"user":"a\u0000"}"#, "user"),
            (r#"{"data":{"code":"\u0000"}}"#, "a member of data"),
            (r#""\u0000""#, ""),
        ] {
            assert_eq!(refusal(text), NotStrict::Nul { place: place.to_owned() }, "{text}");
        }
        assert!(matches!(refusal("{\"user\":\"a\0\"}"), NotStrict::Syntax { .. }));
    }

    #[test]
    fn depth_and_breadth_are_bounded() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(parse(nested(MAX_DEPTH).as_bytes()).is_ok());
        assert_eq!(refusal(&nested(MAX_DEPTH + 1)), NotStrict::TooDeep);
        assert_eq!(refusal(&nested(100_000)), NotStrict::TooDeep);
        let broad: Vec<String> = (0..=MAX_MEMBERS).map(|i| format!("\"m{i}\":1")).collect();
        assert_eq!(refusal(&format!("{{{}}}", broad.join(","))), NotStrict::TooMany);
    }

    #[test]
    fn a_pointer_leads_through_objects_and_lists_and_nowhere_else() {
        let Ok(value) = parse(br#"{"a":[{"b/c":"x"},{"~1":"y"}],"":"z"}"#) else { panic!("JSON") };
        let text = |pointer| match value.at(pointer) {
            Some(Value::Text(text)) => Some(text.to_string()),
            _ => None,
        };
        assert_eq!(text("/a/0/b~1c").as_deref(), Some("x"));
        assert_eq!(text("/a/1/~01").as_deref(), Some("y"));
        assert_eq!(text("/").as_deref(), Some("z"));
        for pointer in ["/a/2/b", "/a/00/b~1c", "/a/+0/b~1c", "/a/-/b", "/a/0/b~1c/d", "/b", "/a/x"] {
            assert_eq!(text(pointer), None, "{pointer}");
        }
        assert!(value.at("").is_some());
    }

    #[test]
    fn what_is_no_json_is_refused_with_its_place_only() {
        for text in ["", "{", "{}x", "{'a':1}", "{\"a\":1,}", "\"\\ud800\"", "NaN", "\u{feff}{}"] {
            assert!(matches!(refusal(text), NotStrict::Syntax { .. }), "{text}");
        }
        assert!(parse(b"{\"a\":\"\xff\"}").is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
        }

        #[test]
        fn no_json_like_text_makes_it_panic(text in r#"[\{\}\[\]",:0-9a-z\\u.e-]{0,60}"#) {
            let _ = parse(text.as_bytes());
        }
    }
}
