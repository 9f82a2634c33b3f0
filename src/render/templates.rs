//! Renders messages from the templates of their kind.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use minijinja::{Environment, ErrorKind, Value};
use serde_json::Map;

use super::check::{compile, template_name};
use super::data::{Checked, check};
use super::kind::EXPIRES_MINUTES;
use super::sms::segments;
use super::source;
use crate::domain::content::{Channel, Content, Mail};
use crate::domain::ids::Kind;

pub use super::check::{Mistake, TemplateMistake};
pub use super::data::RenderRefusal;
pub use super::kind::KindRules;

/// All kinds with their templates, compiled and found sound.
pub struct Templates {
    env: Environment<'static>,
    kinds: BTreeMap<Kind, KindRules>,
}

impl Templates {
    /// The templates that ship with the program: `password_reset` in English and Vietnamese.
    ///
    /// # Errors
    /// Every mistake in them; a test holds that there is none.
    pub fn shipped() -> Result<Self, Vec<TemplateMistake>> {
        Self::from_sources(Path::new("shipped"), source::shipped(), Vec::new())
    }

    /// The templates under `dir`: a folder for each kind, with `kind.toml` and a folder for each locale.
    ///
    /// # Errors
    /// Every mistake in every file, at once.
    pub fn load(dir: &Path) -> Result<Self, Vec<TemplateMistake>> {
        let mut mistakes = Vec::new();
        let sources = source::read(dir, &mut mistakes);
        Self::from_sources(dir, sources, mistakes)
    }

    fn from_sources(
        root: &Path,
        sources: source::Sources,
        mut mistakes: Vec<TemplateMistake>,
    ) -> Result<Self, Vec<TemplateMistake>> {
        let (env, kinds) = compile(root, sources, &mut mistakes);
        if mistakes.is_empty() { Ok(Self { env, kinds }) } else { Err(mistakes) }
    }

    /// The rules of `kind`, if it is known.
    pub fn kind(&self, kind: &Kind) -> Option<&KindRules> {
        self.kinds.get(kind)
    }

    /// The names of all kinds, in order.
    pub fn kinds(&self) -> impl Iterator<Item = &Kind> {
        self.kinds.keys()
    }

    /// Renders what `channels` need. `locale` falls back as [`KindRules::locale`] tells. `expires_minutes` are the whole
    /// minutes that the token has left, and the SMS may take `max_sms_parts` short messages.
    ///
    /// # Errors
    /// [`RenderRefusal`] when the data does not fit the kind, or the message comes out too long.
    pub fn render(
        &self,
        kind: &Kind,
        locale: Option<&str>,
        data: &Map<String, serde_json::Value>,
        channels: &[Channel],
        expires_minutes: u64,
        max_sms_parts: u8,
    ) -> Result<Content, RenderRefusal> {
        let rules = self.kinds.get(kind).ok_or(RenderRefusal::UnknownKind)?;
        let context = context(&check(rules, data)?, expires_minutes);
        let locale = rules.locale(locale);
        let part = |name: &str| self.part(&template_name(kind, locale, name), &context);
        let mut content = Content { sms: None, mail: None };
        if channels.contains(&Channel::Sms) {
            let parts = segments(content.sms.insert(part("sms.txt")?)).parts;
            if parts > usize::from(max_sms_parts) {
                return Err(RenderRefusal::TooManySmsParts { parts, max: max_sms_parts });
            }
        }
        if channels.contains(&Channel::Email) {
            let (subject, text, html) = (part("mail.subject.txt")?, part("mail.txt")?, part("mail.html")?);
            content.mail = Some(Mail { subject, text, html });
        }
        Ok(content)
    }

    fn part(&self, name: &str, context: &Value) -> Result<String, RenderRefusal> {
        self.env.get_template(name).and_then(|template| template.render(context)).map_err(|e| match e.kind() {
            ErrorKind::OutOfFuel => RenderRefusal::TooMuchFuel,
            _ => RenderRefusal::Broken,
        })
    }
}

fn context(checked: &Checked<'_>, expires_minutes: u64) -> Value {
    let minutes = (EXPIRES_MINUTES, Value::from(expires_minutes));
    let given = checked.iter().map(|(name, text)| (*name, Value::from(text.as_str())));
    Value::from(given.chain([minutes]).collect::<BTreeMap<_, _>>())
}

impl fmt::Debug for Templates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Templates").field("kinds", &self.kinds.keys().collect::<Vec<_>>()).finish_non_exhaustive()
    }
}
