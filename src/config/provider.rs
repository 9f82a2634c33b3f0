//! `[provider.NAME]`: one account at one provider.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};

use super::Context;
use super::secret::SUFFIXES;
use super::server::{check_url, is_loopback};
use super::smpp::Smpp;
use crate::document::{Place, Table};
use crate::domain::content::Channel;
use crate::domain::ids::ProviderName;

pub(super) const MILLISECOND: Duration = Duration::from_millis(1);
pub(super) const SECOND: Duration = Duration::from_secs(1);
pub(super) const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// When a provider is left alone, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Breaker {
    /// Failures of distinct recipients in a row that open it, 1 to 1000. Default 5.
    pub failures: u32,
    /// How long it stays open before one attempt probes again, 1 s to 1 h. Default 30 s.
    pub open_for: Duration,
}

/// What bounds the traffic to one provider.
#[derive(Clone, Copy, Debug)]
pub struct Lane {
    /// Attempts under way at once, 1 to 1000. Default 8.
    pub concurrency: u16,
    /// Attempts per second in the long run, 0.01 to 10 000. Default none: not limited.
    pub rate: Option<f64>,
    /// Attempts at once before `rate` is felt, 1 to 10 000. Default 1.
    pub burst: u32,
    /// `breaker = { failures, open_for }`.
    pub breaker: Breaker,
}

impl Default for Lane {
    fn default() -> Self {
        Self { concurrency: 8, rate: None, burst: 1, breaker: Breaker { failures: 5, open_for: 30 * SECOND } }
    }
}

/// Where an HTTP provider's manifest is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ManifestSource {
    /// Built in, under this name.
    BuiltIn(String),
    /// A file.
    File(PathBuf),
}

/// A value for a manifest. Whether it is secret, the manifest knows; here every value is kept as one.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The value.
    pub value: SecretString,
    /// It stood in the configuration file itself, where a secret must not stand.
    pub literal: bool,
    /// Where.
    pub place: Place,
}

/// What the operator knows better than the manifest.
#[derive(Clone, Copy, Debug, Default)]
pub struct Override {
    /// `lookup_settle_after`: a look-up's miss counts only so long after the attempt, 0 to 7 days.
    pub lookup_settle_after: Option<Duration>,
    /// `lookup_trust_miss`: a look-up's miss may prove "not sent".
    pub lookup_trust_miss: Option<bool>,
}

/// A provider that a manifest describes.
#[derive(Clone, Debug)]
pub struct Http {
    /// `manifest = "NAME"` or `manifest_file = "PATH"`, one of them.
    pub manifest: ManifestSource,
    /// DNS, TCP and TLS together, 100 ms to 1 min, shorter than `timeout`. Default 5 s.
    pub connect_timeout: Duration,
    /// The whole call, 1 s to 10 min. Default 30 s.
    pub timeout: Duration,
    /// `[provider.NAME.settings]`, by name without the suffix that told where the value is.
    pub settings: BTreeMap<String, Setting>,
    /// Overrides.
    pub overrides: Override,
}

/// How an SMTP connection is protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SmtpTls {
    /// STARTTLS (RFC 3207), required.
    StartTls,
    /// TLS from the first octet (RFC 8314 section 3.3).
    Implicit,
    /// In clear; never with credentials.
    None,
}

/// A mail relay. Its time-outs are per stage, after RFC 5321 section 4.5.3.2.
#[derive(Clone, Debug)]
pub struct Smtp {
    /// Name or address of the relay. Required.
    pub host: String,
    /// 1 to 65535. Default 465 with `implicit`, 587 with `starttls`, 25 with `none`.
    pub port: u16,
    /// `starttls`, `implicit` or `none`. Default `starttls`.
    pub tls: SmtpTls,
    /// Given together with the password, or not at all.
    pub username: Option<String>,
    /// As `password_file`, `password_env` or `password_credential`.
    pub password: Option<SecretString>,
    /// The sender's address, in the envelope and in `From`. Required.
    pub from: String,
    /// The name shown beside it. Default none.
    pub from_name: Option<String>,
    /// What stands behind the `@` of Message-IDs. Default none: the sender's domain.
    pub message_id_domain: Option<String>,
    /// The name to greet with (RFC 5321 section 4.1.1.1). Default none: the machine's own.
    pub hello_name: Option<String>,
    /// PEM file of the authority that signed the relay's certificate. Default none: the system's authorities.
    pub ca_file: Option<PathBuf>,
    /// DNS, TCP and TLS together, 100 ms to 5 min. Default 10 s.
    pub connect_timeout: Duration,
    /// Greeting and every reply before the message, 1 s to 10 min. Default 1 min.
    pub command_timeout: Duration,
    /// Writing the message, 1 s to 10 min. Default 3 min.
    pub data_timeout: Duration,
    /// The reply after the final dot, 1 s to 30 min; a shorter wait makes more unknowns. Default 10 min.
    pub final_timeout: Duration,
    /// How long a connection waits for another message, 0 to 5 min; 0 keeps none. Default 5 s.
    pub idle: Duration,
}

/// The built-in provider that sends nothing and plays every outcome.
#[derive(Clone, Debug)]
pub struct Sandbox {
    /// `sms` or `email`. Required.
    pub channel: Channel,
    /// File that what it "sends" is written to, in clear: only for tests. Required.
    pub outbox: PathBuf,
}

/// What kind of provider it is.
#[derive(Clone, Debug)]
pub enum Kind {
    /// `kind = "http"`.
    Http(Http),
    /// `kind = "smtp"`.
    Smtp(Box<Smtp>),
    /// `kind = "smpp"`.
    Smpp(Box<Smpp>),
    /// `kind = "sandbox"`.
    Sandbox(Sandbox),
}

impl Kind {
    fn read(t: &mut Table, context: &Context<'_>) -> Option<Self> {
        if !t.has("kind") {
            t.wrong("kind", "is required: \"http\", \"smtp\", \"smpp\" or \"sandbox\"");
        }
        Some(match t.one_of("kind", &[("http", 0), ("smtp", 1), ("smpp", 2), ("sandbox", 3)])? {
            0 => Self::Http(Http::read(t, context)),
            1 => Self::Smtp(Box::new(Smtp::read(t, context))),
            2 => Self::Smpp(Box::new(Smpp::read(t, context))),
            _ => Self::Sandbox(Sandbox::read(t, context)),
        })
    }
}

/// `[provider.NAME]`.
#[derive(Clone, Debug)]
pub struct ProviderSettings {
    /// Its name, in routes, in the audit and in metrics.
    pub name: ProviderName,
    /// Where the section is, for mistakes that are found later.
    pub place: Place,
    /// Limits of its traffic.
    pub lane: Lane,
    /// How it is reached.
    pub kind: Kind,
}

impl ProviderSettings {
    /// The channel, where the kind alone tells it; an HTTP provider's stands in its manifest.
    pub const fn channel(&self) -> Option<Channel> {
        match &self.kind {
            Kind::Http(_) => None,
            Kind::Smtp(_) => Some(Channel::Email),
            Kind::Smpp(_) => Some(Channel::Sms),
            Kind::Sandbox(s) => Some(s.channel),
        }
    }

    pub(super) fn read_all(root: &mut Table, context: &Context<'_>) -> Vec<Self> {
        let mut all = vec![];
        for (name, mut t) in root.named_tables("provider") {
            let name = ProviderName::parse(&name).map_err(|e| t.mistakes().add(t.place(), format!("the name {e}")));
            let lane = read_lane(&mut t);
            let kind = Kind::read(&mut t, context);
            let place = t.place().clone();
            if kind.is_some() {
                t.finish();
            }
            // Without a kind nothing can be told of the other keys; routes may still name the provider.
            let kind = kind.unwrap_or_else(|| Kind::Http(Http::default()));
            all.extend(name.map(|name| Self { name, place, lane, kind }));
        }
        all
    }
}

fn read_lane(t: &mut Table) -> Lane {
    let d = Lane::default();
    let mut breaker = t.section("breaker");
    let lane = Lane {
        concurrency: t.int("concurrency", 1..=1000).unwrap_or(d.concurrency),
        rate: t.number("rate", 0.01..=10_000.0),
        burst: t.int("burst", 1..=10_000).unwrap_or(d.burst),
        breaker: Breaker {
            failures: breaker.int("failures", 1..=1000).unwrap_or(d.breaker.failures),
            open_for: breaker.duration("open_for", SECOND..=60 * MINUTE).unwrap_or(d.breaker.open_for),
        },
    };
    breaker.finish();
    lane
}

impl Default for Http {
    fn default() -> Self {
        Self {
            manifest: ManifestSource::BuiltIn(String::new()),
            connect_timeout: 5 * SECOND,
            timeout: 30 * SECOND,
            settings: BTreeMap::new(),
            overrides: Override::default(),
        }
    }
}

impl Http {
    fn read(t: &mut Table, context: &Context<'_>) -> Self {
        let (named, file) = (t.str("manifest"), context.path(t, "manifest_file"));
        let manifest = match (named, file) {
            (Some(name), None) => ManifestSource::BuiltIn(name),
            (None, Some(path)) => ManifestSource::File(path),
            _ => {
                t.wrong("manifest", "one of `manifest` and `manifest_file` is required");
                ManifestSource::BuiltIn(String::new())
            }
        };
        let d = Self::default();
        let http = Self {
            manifest,
            connect_timeout: t.duration("connect_timeout", 100 * MILLISECOND..=MINUTE).unwrap_or(d.connect_timeout),
            timeout: t.duration("timeout", SECOND..=10 * MINUTE).unwrap_or(d.timeout),
            settings: read_settings(t.section("settings"), context),
            overrides: Override {
                lookup_settle_after: t.duration("lookup_settle_after", Duration::ZERO..=7 * DAY),
                lookup_trust_miss: t.bool("lookup_trust_miss"),
            },
        };
        if http.connect_timeout >= http.timeout {
            t.wrong("timeout", "must be longer than `connect_timeout`");
        }
        http
    }
}

fn read_settings(mut t: Table, context: &Context<'_>) -> BTreeMap<String, Setting> {
    let mut settings = BTreeMap::new();
    let mut literal = vec![];
    for key in t.keys() {
        let Some(name) = SUFFIXES.iter().find_map(|s| key.strip_suffix(s)).filter(|n| !n.is_empty()) else {
            literal.push(key);
            continue;
        };
        let place = t.place_of(&key);
        if let Some(value) = t.has(&key).then(|| context.secret(&mut t, name)).flatten() {
            settings.insert(name.to_owned(), Setting { value, literal: false, place });
        }
    }
    for key in literal {
        match t.raw(&key) {
            Some(value) if value.as_str().is_some_and(|s| !s.is_empty()) => {
                let text = value.as_str().unwrap_or_default();
                let setting = Setting { value: text.into(), literal: true, place: value.place().clone() };
                if settings.insert(key.clone(), setting).is_some() {
                    t.wrong(&key, "is given twice");
                }
            }
            _ => t.wrong(&key, "must be a string that is not empty"),
        }
    }
    if let Some(url) = settings.get("base_url")
        && let Err(e) = check_url(url.value.expose_secret())
    {
        t.mistakes().add(&url.place, e);
    }
    t.finish();
    settings
}

impl Smtp {
    fn read(t: &mut Table, context: &Context<'_>) -> Self {
        let tls = [("starttls", SmtpTls::StartTls), ("implicit", SmtpTls::Implicit), ("none", SmtpTls::None)];
        let tls = t.one_of("tls", &tls).unwrap_or(SmtpTls::StartTls);
        let default_port = match tls {
            SmtpTls::StartTls => 587,
            SmtpTls::Implicit => 465,
            SmtpTls::None => 25,
        };
        let smtp = Self {
            host: t.need_str("host"),
            port: t.int("port", 1..=65535).unwrap_or(default_port),
            tls,
            username: t.str("username"),
            password: context.secret(t, "password"),
            from: t.need_str("from"),
            from_name: t.str("from_name"),
            message_id_domain: t.str("message_id_domain"),
            hello_name: t.str("hello_name"),
            ca_file: context.path(t, "ca_file"),
            connect_timeout: t.duration("connect_timeout", 100 * MILLISECOND..=5 * MINUTE).unwrap_or(10 * SECOND),
            command_timeout: t.duration("command_timeout", SECOND..=10 * MINUTE).unwrap_or(MINUTE),
            data_timeout: t.duration("data_timeout", SECOND..=10 * MINUTE).unwrap_or(3 * MINUTE),
            final_timeout: t.duration("final_timeout", SECOND..=30 * MINUTE).unwrap_or(10 * MINUTE),
            idle: t.duration("idle", Duration::ZERO..=5 * MINUTE).unwrap_or(5 * SECOND),
        };
        smtp.check(t);
        smtp
    }

    fn check(&self, t: &Table) {
        let has_password = SUFFIXES.iter().any(|s| t.had(&format!("password{s}"))) || t.had("password");
        match (self.username.is_some(), has_password) {
            (true, false) => t.wrong("username", "needs a `password_file`, `password_env` or `password_credential`"),
            (false, true) => t.wrong("password", "needs a `username`"),
            (true, true) if self.tls == SmtpTls::None => {
                t.wrong("tls", "must not be \"none\" where a password is sent")
            }
            _ => {}
        }
        if self.tls == SmtpTls::None && !is_loopback(&self.host) && !self.host.is_empty() {
            t.wrong("tls", "\"none\" is only for a relay on this machine itself");
        }
        if self.ca_file.as_ref().is_some_and(|f| !f.is_file()) {
            t.wrong("ca_file", "is not a file that can be read");
        }
    }
}

impl Sandbox {
    fn read(t: &mut Table, context: &Context<'_>) -> Self {
        let channels = [("sms", Channel::Sms), ("email", Channel::Email)];
        Self { channel: t.need_one_of("channel", &channels), outbox: context.need_path(t, "outbox") }
    }
}
