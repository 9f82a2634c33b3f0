//! A provider's manifest: one TOML file that says how it is asked to send, how its answers are read, and what may be
//! asked of it afterwards. Adding a provider needs no Rust.

pub(crate) mod answers;
pub(crate) mod lookup;
pub(crate) mod reader;
pub(crate) mod receipts;
pub(crate) mod request;
mod sigv4;
pub(crate) mod statement;

use std::collections::BTreeMap;
use std::time::Duration;

use http::HeaderName;

use crate::document::{Document, Mistake, Table};
use crate::domain::content::Channel;
use crate::domain::ids::ProviderName;
use crate::provider::template::is_variable;
use crate::provider::{DedupeCovers, DedupeRules};
use answers::Answers;
use lookup::Lookup;
use reader::Reader;
use receipts::Receipts;
use request::RequestRule;
use statement::Statement;

/// The manifests that the program carries, by name.
pub const SHIPPED: &[(&str, &str)] = &[
    ("amazon-ses", include_str!("../../providers/amazon-ses.toml")),
    ("aws-sms", include_str!("../../providers/aws-sms.toml")),
    ("bird", include_str!("../../providers/bird.toml")),
    ("brevo", include_str!("../../providers/brevo.toml")),
    ("infobip", include_str!("../../providers/infobip.toml")),
    ("mailgun", include_str!("../../providers/mailgun.toml")),
    ("mailjet", include_str!("../../providers/mailjet.toml")),
    ("messagebird", include_str!("../../providers/messagebird.toml")),
    ("plivo", include_str!("../../providers/plivo.toml")),
    ("postmark", include_str!("../../providers/postmark.toml")),
    ("resend", include_str!("../../providers/resend.toml")),
    ("sendgrid", include_str!("../../providers/sendgrid.toml")),
    ("sinch", include_str!("../../providers/sinch.toml")),
    ("sparkpost", include_str!("../../providers/sparkpost.toml")),
    ("telnyx", include_str!("../../providers/telnyx.toml")),
    ("twilio", include_str!("../../providers/twilio.toml")),
    ("vonage-messages", include_str!("../../providers/vonage-messages.toml")),
    ("vonage-sms", include_str!("../../providers/vonage-sms.toml")),
];

/// The shipped manifest of this name.
///
/// # Errors
/// Every mistake in it, as [`Manifest::parse`].
pub fn shipped(name: &str) -> Option<Result<Manifest, Vec<Mistake>>> {
    let (name, text) = SHIPPED.iter().find(|(shipped, _)| *shipped == name)?;
    Some(Manifest::parse(&format!("{name}.toml"), text))
}

/// Settings that every provider has: no manifest declares them.
pub const COMMON_SETTINGS: &[&str] = &["allow_http"];

/// A setting that a configuration gives for a provider.
#[derive(Clone, Debug, Default)]
pub struct Setting {
    /// Never shown, and best read from a file.
    pub secret: bool,
    /// Must be given when there is no default.
    pub required: bool,
    /// Taken when none is given.
    pub default: Option<String>,
    /// Names the account: look-ups under another value prove nothing.
    pub account: bool,
}

/// A checked manifest.
#[derive(Debug)]
pub struct Manifest {
    name: String,
    channel: Channel,
    page: String,
    text: String,
    settings: BTreeMap<String, Setting>,
    pub(crate) send: RequestRule,
    pub(crate) answers: Answers,
    pub(crate) lookup: Option<Lookup>,
    pub(crate) dedupe: Option<Dedupe>,
    pub(crate) receipts: Option<Receipts>,
    pub(crate) statement: Option<Statement>,
}

/// `[dedupe]`.
#[derive(Debug)]
pub(crate) struct Dedupe {
    pub rules: DedupeRules,
    pub identical_body: bool,
}

impl Manifest {
    /// Reads and checks a manifest; `file` is what its mistakes name.
    ///
    /// # Errors
    /// Every mistake, with file, line and column.
    pub fn parse(file: &str, text: &str) -> Result<Self, Vec<Mistake>> {
        let mut root = Document::parse(file, text)?.into_table();
        let mistakes = root.mistakes();
        let name = root.need_str("name");
        if let Err(e) = ProviderName::parse(&name)
            && !name.is_empty()
        {
            root.wrong("name", e.to_string());
        }
        let channel = root.need_one_of("channel", &[("sms", Channel::Sms), ("email", Channel::Email)]);
        let page = root.need_str("page");
        let settings = read_settings(&mut root);
        let reader = Reader { settings: settings.keys().cloned().collect(), mistakes: mistakes.clone() };
        let mut table = root.need_table("send");
        let mut send = RequestRule::read(&reader, &mut table);
        let answers = Answers::read(&reader, &mut table);
        let texts: &[&str] = if channel == Channel::Sms { &["subject", "html", "message_id"] } else { &["message_id"] };
        without(&table, &send, texts);
        without(&table, &send, statement::VARIABLES);
        table.finish();
        let lookup = root.table("lookup").map(|t| Lookup::read(&reader, t));
        let dedupe = root.table("dedupe").map(|t| read_dedupe(&reader, t, &mut send, &answers));
        if lookup.is_some() && !settings.values().any(|s| s.account) {
            root.wrong("lookup", "needs a setting with account = true, which tells whose messages are looked up");
        }
        let receipts = root.table("receipt").map(|t| Receipts::read(&reader, t));
        let statement = root.table("statement").map(|t| Statement::read(&reader, t));
        root.finish();
        mistakes.verdict(Self {
            name,
            channel,
            page,
            text: text.to_owned(),
            settings,
            send,
            answers,
            lookup,
            dedupe,
            receipts,
            statement,
        })
    }

    /// The provider's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The channel that it carries.
    pub const fn channel(&self) -> Channel {
        self.channel
    }

    /// The vendor's page on it.
    pub fn page(&self) -> &str {
        &self.page
    }

    /// The settings that it declares.
    pub const fn settings(&self) -> &BTreeMap<String, Setting> {
        &self.settings
    }

    /// The file as it was read.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// Records each of `names` that `request` uses: in its section they have no value.
fn without(table: &Table, request: &RequestRule, names: &[&str]) {
    let used = request.variables();
    for name in names.iter().filter(|name| used.contains(**name)) {
        table.mistakes().add(table.place(), format!("uses `{name}`, which has no value here"));
    }
}

fn read_settings(root: &mut Table) -> BTreeMap<String, Setting> {
    let mut settings = BTreeMap::new();
    for (name, mut table) in root.named_tables("settings") {
        let default = table.str("default");
        let setting = Setting {
            secret: table.bool("secret").unwrap_or(false),
            required: table.bool("required").unwrap_or(true) && default.is_none(),
            default,
            account: table.bool("account").unwrap_or(false),
        };
        if is_variable(&name) || COMMON_SETTINGS.contains(&name.as_str()) {
            table.mistakes().add(table.place(), "is a name that every manifest has already");
        }
        if setting.secret && setting.default.is_some() {
            table.wrong("default", "a secret has no default");
        }
        table.finish();
        settings.insert(name, setting);
    }
    if !settings.contains_key("base_url") {
        root.wrong("settings", "must declare `base_url`");
    }
    settings
}

fn read_dedupe(reader: &Reader, mut table: Table, send: &mut RequestRule, answers: &Answers) -> Dedupe {
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);
    if let Some(name) = table.str("header") {
        match HeaderName::try_from(name.as_str()) {
            Ok(name) => send.add_header(name, reader.template("{{ dedupe_key }}", table.place())),
            Err(_) => table.wrong("header", "must be the name of a header"),
        }
    }
    let names = send.variables();
    if !names.contains("dedupe_key") {
        table.wrong("header", "is required where [send] does not use `dedupe_key`");
    }
    if !answers.tells_dedupe() {
        let wanted = "needs answers that are `first_stands`, or `dedupe_in_progress` and `dedupe_mismatch`";
        reader.wrong(table.place(), wanted);
    }
    let identical_body = table.bool("identical_body").unwrap_or(false);
    for name in ["remaining_seconds", "began_at"] {
        if identical_body && names.contains(name) {
            let message = format!("[send] uses `{name}`, which is not the same on every attempt");
            table.wrong("identical_body", message);
        }
    }
    let rules = DedupeRules {
        window: table.need_duration("window", Duration::from_secs(60)..=30 * DAY),
        settle_after: table.need_duration("settle_after", Duration::ZERO..=DAY),
        covers: table.need_one_of("covers", &[("no_answer", DedupeCovers::NoAnswer), ("any", DedupeCovers::Any)]),
    };
    table.finish();
    Dedupe { rules, identical_body }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mistakes(text: &str) -> Vec<String> {
        Manifest::parse("x.toml", text).err().unwrap_or_default().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn every_shipped_manifest_is_right_and_bears_its_own_name() {
        for (name, text) in SHIPPED {
            assert_eq!(mistakes(text), Vec::<String>::new(), "{name}");
            assert_eq!(shipped(name).expect("shipped").map(|m| m.name().to_owned()), Ok((*name).to_owned()));
        }
        assert!(shipped("nobody").is_none());
    }
}
