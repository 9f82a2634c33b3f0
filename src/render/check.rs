//! Compiles templates and tells every mistake in them at once, before any message needs them.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use minijinja::{AutoEscape, Environment, Error, Output, State, UndefinedBehavior, Value, escape_formatter};

use super::kind::{Class, EXPIRES_MINUTES, KindRules, locale_tag};
use super::source::{KindSource, PARTS, Sources};
use crate::domain::ids::Kind;

/// What rendering one part may cost; about one a step and one for 64 bytes of output. Ours take under 200.
const FUEL: u64 = 20_000;

/// A mistake in a file of the templates.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {mistake}", .file.display())]
pub struct TemplateMistake {
    /// The file or folder.
    pub file: PathBuf,
    /// What is wrong with it.
    pub mistake: Mistake,
}

impl TemplateMistake {
    pub(super) const fn new(file: PathBuf, mistake: Mistake) -> Self {
        Self { file, mistake }
    }
}

/// What can be wrong with templates.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mistake {
    /// It could not be read.
    #[error("cannot be read: {0}")]
    Unreadable(io::ErrorKind),
    /// It has no place among templates.
    #[error("is not expected here: a kind is a folder with kind.toml and LOCALE/ with {}", PARTS.join(", "))]
    Stray,
    /// The folder's name cannot be a kind.
    #[error("is no name for a kind: 1 to 64 of a-z 0-9 _ -")]
    KindName,
    /// `kind.toml` does not read.
    #[error("does not read: {0}")]
    Rules(String),
    /// A variable has a name that templates or refusals could not use.
    #[error("`{0}` cannot name a variable: 1 to 40 of a-z _, and not expires_minutes")]
    VariableName(String),
    /// `one_of` names a variable that is not there, or that is required anyway.
    #[error("one_of names `{0}`, which is not an optional variable")]
    OneOf(String),
    /// `max_expires_in` is zero.
    #[error("max_expires_in must be 1 second or more")]
    NoLife,
    /// The folder's name is no language tag, or another folder has the same one.
    #[error("is no locale of its own: a language tag such as en or pt-br")]
    Locale,
    /// The default locale has no folder.
    #[error("default_locale is `{0}`, which has no folder")]
    DefaultLocale(String),
    /// A part of a locale is not there.
    #[error("is missing")]
    Missing,
    /// A subject is one line; a line break would forge a header (RFC 5322 section 2.2).
    #[error("has a line break or another control character")]
    ControlCharacter,
    /// The template does not parse.
    #[error("does not parse: {0}")]
    Syntax(String),
    /// A template uses a name that `kind.toml` does not declare.
    #[error("uses `{0}`, which kind.toml does not declare")]
    Undeclared(String),
    /// No template uses a declared variable.
    #[error("declares `{0}`, which no template uses")]
    Unused(String),
    /// It fails when it is rendered with sample data.
    #[error("does not render: {0}")]
    Fails(String),
    /// With only this variable of `one_of` given, the message leaves it out.
    #[error("does not show `{0}` when it is all that is given")]
    Hides(String),
    /// A value reaches the HTML as markup.
    #[error("shows `{0}` without HTML escapes")]
    Unescaped(String),
}

/// The name of a template in the environment.
pub(super) fn template_name(kind: &Kind, locale: &str, part: &str) -> String {
    format!("{kind}/{locale}/{part}")
}

/// Templates know variables, `if`, `for` and `set`: no filters, functions or tests, so values pass unchanged.
fn environment() -> Environment<'static> {
    let mut env = Environment::empty();
    env.set_undefined_behavior(UndefinedBehavior::Strict);
    env.set_auto_escape_callback(|name| if name.ends_with(".html") { AutoEscape::Html } else { AutoEscape::None });
    env.set_formatter(format);
    env.set_fuel(Some(FUEL));
    env.set_debug(false);
    env
}

fn format(out: &mut Output, state: &mut State, value: &Value) -> Result<(), Error> {
    match value.as_str() {
        Some(text) if *state.auto_escape() == AutoEscape::Html && !value.is_safe() => Ok(out.write_str(&html(text))?),
        _ => escape_formatter(out, state, value),
    }
}

/// Escapes what means something in HTML text and in quoted attributes, and nothing else: a slash stays a slash, because
/// mail gateways that look for links do not all read escapes.
fn html(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#x27;"),
            _ => out.push(c),
        }
    }
    out
}

/// All that was found sound in `sources`, which lie under `root`.
pub(super) fn compile(
    root: &Path,
    sources: Sources,
    mistakes: &mut Vec<TemplateMistake>,
) -> (Environment<'static>, BTreeMap<Kind, KindRules>) {
    let mut env = environment();
    let mut kinds = BTreeMap::new();
    for (name, source) in sources {
        let dir = root.join(&name);
        let Ok(kind) = Kind::parse(&name) else {
            mistakes.push(TemplateMistake::new(dir, Mistake::KindName));
            continue;
        };
        let mut checker = KindChecker { env: &mut env, dir, mistakes };
        if let Some(rules) = checker.kind(&kind, source) {
            kinds.insert(kind, rules);
        }
    }
    (env, kinds)
}

struct KindChecker<'a> {
    env: &'a mut Environment<'static>,
    dir: PathBuf,
    mistakes: &'a mut Vec<TemplateMistake>,
}

impl KindChecker<'_> {
    fn mistake(&mut self, file: impl AsRef<Path>, mistake: Mistake) {
        self.mistakes.push(TemplateMistake::new(self.dir.join(file), mistake));
    }

    fn kind(&mut self, kind: &Kind, source: KindSource) -> Option<KindRules> {
        let Some(text) = source.rules else {
            self.mistake("kind.toml", Mistake::Missing);
            return None;
        };
        let mut rules: KindRules = match toml::from_str(&text) {
            Ok(rules) => rules,
            Err(e) => {
                let line =
                    e.span().and_then(|s| text.get(..s.start)).map_or(1, |before| before.matches('\n').count() + 1);
                self.mistake("kind.toml", Mistake::Rules(format!("line {line}: {}", e.message())));
                return None;
            }
        };
        self.rules(&rules);
        let mut used = BTreeSet::new();
        for (folder, parts) in source.locales {
            match locale_tag(&folder).filter(|tag| rules.locales.insert(tag.clone())) {
                Some(tag) => self.locale(kind, &rules, (&folder, &tag), parts, &mut used),
                None => self.mistake(folder, Mistake::Locale),
            }
        }
        for name in rules.variables.keys().filter(|name| !used.contains(*name)) {
            self.mistake("kind.toml", Mistake::Unused(name.clone()));
        }
        match locale_tag(&rules.default_locale).filter(|tag| rules.locales.contains(tag)) {
            Some(tag) => rules.default_locale = tag,
            None => self.mistake("kind.toml", Mistake::DefaultLocale(rules.default_locale.clone())),
        }
        Some(rules)
    }

    fn rules(&mut self, rules: &KindRules) {
        let named = |n: &str| (1..=40).contains(&n.len()) && n.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
        for name in rules.variables.keys().filter(|name| !named(name) || *name == EXPIRES_MINUTES) {
            self.mistake("kind.toml", Mistake::VariableName(name.clone()));
        }
        for name in rules.one_of.iter().filter(|name| rules.variables.get(*name).is_none_or(|v| v.required)) {
            self.mistake("kind.toml", Mistake::OneOf(name.clone()));
        }
        if rules.max_expires_in().is_zero() {
            self.mistake("kind.toml", Mistake::NoLife);
        }
    }

    fn locale(
        &mut self,
        kind: &Kind,
        rules: &KindRules,
        (folder, tag): (&str, &str),
        mut parts: BTreeMap<String, String>,
        used: &mut BTreeSet<String>,
    ) {
        for part in PARTS {
            let file = Path::new(folder).join(part);
            let Some(mut text) = parts.remove(part) else {
                self.mistake(file, Mistake::Missing);
                continue;
            };
            if part == "mail.subject.txt" {
                text.truncate(text.trim_end_matches(['\r', '\n']).len());
                if text.contains(char::is_control) {
                    self.mistake(&file, Mistake::ControlCharacter);
                }
            }
            let name = template_name(kind, tag, part);
            match self.env.add_template_owned(name.clone(), text) {
                Ok(()) => self.part(&name, &file, part, rules, used),
                Err(e) => self.mistake(&file, Mistake::Syntax(told(&e))),
            }
        }
        for stray in parts.keys() {
            self.mistake(Path::new(folder).join(stray), Mistake::Stray);
        }
    }

    fn part(&mut self, name: &str, file: &Path, part: &str, rules: &KindRules, used: &mut BTreeSet<String>) {
        let Ok(template) = self.env.get_template(name) else { return };
        let names: BTreeSet<String> = template.undeclared_variables(false).into_iter().collect();
        let mut found: Vec<Mistake> = names
            .iter()
            .filter(|n| *n != EXPIRES_MINUTES && !rules.variables.contains_key(*n))
            .map(|n| Mistake::Undeclared(n.clone()))
            .collect();
        if found.is_empty() {
            for only in [None].into_iter().chain(rules.one_of.iter().map(Some)) {
                match template.render(samples(rules, only)) {
                    Err(e) => found.push(Mistake::Fails(told(&e))),
                    Ok(text) => found.extend(misshown(&text, part, rules, only)),
                }
            }
        }
        found.dedup();
        used.extend(names);
        for mistake in found {
            self.mistake(file, mistake);
        }
    }
}

fn sample(name: &str, class: Class) -> String {
    match class {
        Class::Link => format!("https://example.org/{name}?a=1&b=2"),
        Class::Code => format!("{name}<1"),
        Class::Text => format!("<{name}> & \"more\""),
    }
}

/// Sample data: everything, or of `one_of` and the other optional variables `only` one.
fn samples(rules: &KindRules, only: Option<&String>) -> Value {
    let value = |(name, variable): (&String, &super::kind::Variable)| {
        let given = variable.required || only.is_none_or(|only| only == name);
        (name.clone(), Value::from(if given { sample(name, variable.class) } else { String::new() }))
    };
    let minutes = (EXPIRES_MINUTES.to_owned(), Value::from(10_u64));
    Value::from(rules.variables.iter().map(value).chain([minutes]).collect::<BTreeMap<_, _>>())
}

fn misshown(text: &str, part: &str, rules: &KindRules, only: Option<&String>) -> Option<Mistake> {
    let in_html = part.ends_with(".html");
    let raw = |name: &str, class: Class| in_html && text.contains(&sample(name, class));
    if let Some((name, _)) = rules.variables.iter().find(|(name, v)| raw(name, v.class)) {
        return Some(Mistake::Unescaped(name.clone()));
    }
    let name = only.filter(|_| part != "mail.subject.txt")?;
    let value = sample(name, rules.variables.get(name)?.class);
    let shown = if in_html { html(&value) } else { value };
    (!text.contains(&shown)).then(|| Mistake::Hides(name.clone()))
}

/// Load-time errors only: they speak of the template and of sample data.
fn told(e: &Error) -> String {
    let place = e.line().map(|line| format!("line {line}: ")).unwrap_or_default();
    match e.detail() {
        Some(detail) => format!("{place}{}: {detail}", e.kind()),
        None => format!("{place}{}", e.kind()),
    }
}
