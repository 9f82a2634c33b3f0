//! Templates of manifests: text with `{{ expression }}`, and nothing else of the template language.
//!
//! Every template is compiled when its manifest is loaded, the variables that it names are checked against what there
//! is, and it is rendered once with sample values, because an unknown filter shows only then.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};
use std::sync::LazyLock;

use chrono::{DateTime, TimeDelta};
use minijinja::value::Value;
use minijinja::{Environment, Expression, UndefinedBehavior};

use crate::domain::uri::percent_encode;

/// What every template may name beside its manifest's settings, with a value of the right type for a trial.
const VARIABLES: &[(&str, Sample)] = &[
    ("to", Sample::Text("+12025550123")),
    ("to_digits", Sample::Text("12025550123")),
    ("text", Sample::Text("text")),
    ("subject", Sample::Text("subject")),
    ("html", Sample::Text("<p>text</p>")),
    ("reference", Sample::Text("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa")),
    ("dedupe_key", Sample::Text("00000000000000000000000000000000")),
    ("receipt_url", Sample::Text("https://localhost/v1/receipts/x?ref=x")),
    ("remaining_seconds", Sample::Number(600)),
    ("expires_at", Sample::Text("2026-01-01T00:10:00.000000Z")),
    ("began_at", Sample::Text("2026-01-01T00:00:00.000000Z")),
    ("message_id", Sample::Text("id")),
    ("since", Sample::Text("2026-01-01T00:00:00.000000Z")),
    ("until", Sample::Text("2026-01-02T00:00:00.000000Z")),
    ("offset", Sample::Number(0)),
];

/// Whether `name` is one of the variables that there are without a setting.
pub fn is_variable(name: &str) -> bool {
    VARIABLES.iter().any(|(variable, _)| *variable == name)
}

#[derive(Clone, Copy)]
enum Sample {
    Text(&'static str),
    Number(u64),
}

static ENVIRONMENT: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_fuel(Some(10_000));
    environment.add_filter("clamp", |value: i64, low: i64, high: i64| value.min(high).max(low));
    environment.add_filter("date", date);
    environment
});

/// One of the times that templates have, moved by `shift` seconds, in the words of chrono's `strftime`.
fn date(value: &str, format: &str, shift: Option<i64>) -> Result<String, minijinja::Error> {
    let wrong = || minijinja::Error::from(minijinja::ErrorKind::InvalidOperation);
    let moved = DateTime::parse_from_rfc3339(value)
        .ok()
        .and_then(|at| at.to_utc().checked_add_signed(TimeDelta::try_seconds(shift.unwrap_or(0))?));
    let mut out = String::new();
    write!(out, "{}", moved.ok_or_else(wrong)?.format(format)).map_err(|_| wrong())?;
    Ok(out)
}

/// A template could not be rendered: its manifest or a setting is at fault. Holds nothing of either.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a template of the manifest does not render with these settings")]
pub struct DoesNotRender;

enum Piece {
    Text(String),
    Expression(Expression<'static, 'static>),
}

/// A compiled template.
pub struct Template {
    pieces: Vec<Piece>,
}

impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Template({} pieces)", self.pieces.len())
    }
}

impl Template {
    /// Compiles `text` and tries it; `settings` are the names that it may use beside the built-in ones.
    ///
    /// # Errors
    /// What is wrong with it, for the manifest's author.
    pub fn parse(text: &str, settings: &BTreeSet<String>) -> Result<Self, String> {
        let template = Self { pieces: pieces(text)? };
        let names = template.variables();
        let unknown = |n: &&String| !settings.contains(*n) && !is_variable(n);
        if let Some(name) = names.iter().find(unknown) {
            return Err(format!("names `{name}`, which is neither a setting nor a variable"));
        }
        let sample = |(name, sample): &(&'static str, Sample)| match sample {
            Sample::Text(text) => ((*name).to_owned(), Value::from(*text)),
            Sample::Number(number) => ((*name).to_owned(), Value::from(*number)),
        };
        let mut values: BTreeMap<String, Value> = VARIABLES.iter().map(sample).collect();
        values.extend(settings.iter().map(|name| (name.clone(), Value::from("1"))));
        let context = Value::from(values);
        for piece in &template.pieces {
            if let Piece::Expression(expression) = piece {
                expression.eval(&context).map_err(|e| format!("does not render: {}", e.kind()))?;
            }
        }
        Ok(template)
    }

    /// A template that renders to nothing.
    pub const fn empty() -> Self {
        Self { pieces: vec![] }
    }

    /// The variables and settings that it names.
    pub fn variables(&self) -> BTreeSet<String> {
        let names = |piece: &Piece| match piece {
            Piece::Text(_) => Default::default(),
            Piece::Expression(expression) => expression.undeclared_variables(false),
        };
        self.pieces.iter().flat_map(names).collect()
    }

    /// The text with its values.
    ///
    /// # Errors
    /// [`DoesNotRender`].
    pub fn text(&self, context: &Value) -> Result<String, DoesNotRender> {
        self.text_with(context, str::to_owned)
    }

    /// The text with each value percent-encoded, for a URL's path or query.
    ///
    /// # Errors
    /// [`DoesNotRender`].
    pub fn url(&self, context: &Value) -> Result<String, DoesNotRender> {
        self.text_with(context, percent_encode)
    }

    fn text_with(&self, context: &Value, encode: fn(&str) -> String) -> Result<String, DoesNotRender> {
        let mut out = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => out.push_str(text),
                Piece::Expression(expression) => out.push_str(&encode(&eval(expression, context)?.to_string())),
            }
        }
        Ok(out)
    }

    /// A JSON value: of the expression's own type when the template is one expression and nothing else, else a string.
    ///
    /// # Errors
    /// [`DoesNotRender`].
    pub fn json(&self, context: &Value) -> Result<serde_json::Value, DoesNotRender> {
        match self.pieces.as_slice() {
            [Piece::Expression(only)] => serde_json::to_value(eval(only, context)?).map_err(|_| DoesNotRender),
            _ => self.text(context).map(Into::into),
        }
    }
}

fn eval(expression: &Expression<'_, '_>, context: &Value) -> Result<Value, DoesNotRender> {
    let value = expression.eval(context).map_err(|_| DoesNotRender)?;
    if value.is_undefined() { Err(DoesNotRender) } else { Ok(value) }
}

fn pieces(text: &str) -> Result<Vec<Piece>, String> {
    if text.contains("{%") || text.contains("{#") {
        return Err("must hold no statements or comments, only {{ expressions }}".to_owned());
    }
    let mut pieces = vec![];
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("{{") {
        let (source, after) = after.split_once("}}").ok_or("has {{ without }}")?;
        if !before.is_empty() {
            pieces.push(Piece::Text(before.to_owned()));
        }
        let compiled = ENVIRONMENT.compile_expression_owned(source.trim().to_owned());
        let compiled = compiled.map_err(|e| format!("has an expression that does not read: {}", e.kind()))?;
        pieces.push(Piece::Expression(compiled));
        rest = after;
    }
    if !rest.is_empty() {
        pieces.push(Piece::Text(rest.to_owned()));
    }
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Template, String> {
        Template::parse(text, &BTreeSet::from(["key".to_owned()]))
    }

    fn context() -> Value {
        Value::from(BTreeMap::from([
            ("key", Value::from("a b/c&d")),
            ("remaining_seconds", Value::from(40_000)),
            ("began_at", Value::from("2026-01-01T00:00:00.000000Z")),
        ]))
    }

    #[test]
    fn a_value_is_encoded_for_where_it_stands() {
        let template = parse("/x/{{ key }}?n={{ remaining_seconds }}").expect("reads");
        assert_eq!(template.url(&context()).as_deref(), Ok("/x/a%20b%2Fc%26d?n=40000"));
        assert_eq!(template.text(&context()).as_deref(), Ok("/x/a b/c&d?n=40000"));
    }

    #[test]
    fn a_time_is_moved_and_written_as_its_format_says() {
        let text = |text| parse(text).expect("reads").text(&context());
        assert_eq!(text("{{ began_at | date('%Y-%m-%dT%H:%M:%SZ', -60) }}").as_deref(), Ok("2025-12-31T23:59:00Z"));
        assert_eq!(text("{{ began_at | date('%s') }}").as_deref(), Ok("1767225600"));
        for wrong in ["{{ began_at | date('%Ω') }}", "{{ key | date('%s') }}", "{{ began_at | date('%s', 1e300) }}"] {
            assert_eq!(parse(wrong).map(drop), Err("does not render: invalid operation".to_owned()), "{wrong}");
        }
    }

    #[test]
    fn one_expression_alone_keeps_its_type_in_json() {
        let json = |text| parse(text).expect("reads").json(&context()).expect("renders");
        assert_eq!(json("{{ remaining_seconds | clamp(1, 36000) }}"), 36000);
        assert_eq!(json("{{ remaining_seconds }}s"), "40000s");
        assert_eq!(json("{{ key }}"), "a b/c&d");
    }

    #[test]
    fn what_could_fail_later_is_refused_at_once() {
        for (text, wanted) in [
            ("{{ nobody }}", "names `nobody`, which is neither a setting nor a variable"),
            ("{{ to", "has {{ without }}"),
            ("{{ to | nothing }}", "does not render: unknown filter"),
            ("{{ to + }}", "has an expression that does not read: syntax error"),
            ("{% if to %}", "must hold no statements or comments, only {{ expressions }}"),
        ] {
            assert_eq!(parse(text).map(drop), Err(wanted.to_owned()), "{text}");
        }
    }
}
