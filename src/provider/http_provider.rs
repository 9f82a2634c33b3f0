//! The provider that a manifest describes, with the settings of one account.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use minijinja::value::Value;
use reqwest::Url;
use secrecy::{ExposeSecret as _, SecretString};

use super::gate::Gate;
pub use super::http_client::HttpTimeouts;
use super::http_client::{HttpClient, Received};
use super::manifest::answers::Answer;
use super::manifest::receipts::Scheme;
use super::manifest::{COMMON_SETTINGS, Manifest};
use super::receipt::{self, Origin};
use super::sns::SnsDoor;
use super::statement::{Page, PageStart, Period, Statement};
use super::template::DoesNotRender;
use super::{Abilities, Dispatch, Inquiry, Provider, ReceiptError, ReceiptRequest};
use crate::domain::address::Address;
use crate::domain::content::{Channel, Content};
use crate::domain::ids::{ProviderMessageId, ProviderName};
use crate::domain::outcome::{LookupAnswer, Outcome, OutcomeClass, Reason};
use crate::domain::receipt::Receipt;
use crate::domain::time::Timestamp;
use crate::domain::uri::percent_encode;
use crate::vault::{IndexKey, Purpose};

/// What is wrong with a provider's settings. Holds the setting's name, never its value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingMistake {
    /// The manifest requires it.
    #[error("setting `{0}` is required")]
    Missing(String),
    /// The manifest does not declare it.
    #[error("setting `{0}` is not known to this provider")]
    Unknown(String),
    /// Not a URL that can be called.
    #[error("setting `{0}` must be an https URL without query; http only for a loopback host or with allow_http")]
    NotAUrl(String),
    /// Neither `true` nor `false`.
    #[error("setting `{0}` must be true or false")]
    NotABool(String),
    /// The time to connect is not shorter than the whole.
    #[error("the connect time-out must be shorter than the total")]
    Timeouts,
    /// The TLS library cannot be set up.
    #[error("the HTTP client cannot be set up; are the system's root certificates there?")]
    Client,
}

/// An HTTP provider.
pub struct HttpProvider {
    name: ProviderName,
    manifest: Arc<Manifest>,
    settings: BTreeMap<String, SecretString>,
    base_url: String,
    public_url: Option<String>,
    index: Arc<IndexKey>,
    client: HttpClient,
    abilities: Abilities,
    sns: SnsDoor,
    /// What the request's templates name.
    wanted: BTreeSet<String>,
}

impl fmt::Debug for HttpProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpProvider").field("name", &self.name).finish_non_exhaustive()
    }
}

impl HttpProvider {
    /// Puts a manifest and the settings of an account together. `public_url` is where providers reach us: scheme,
    /// authority and, behind a proxy that adds one, a path prefix.
    ///
    /// # Errors
    /// Every mistake in the settings.
    pub fn build(
        name: ProviderName,
        manifest: Arc<Manifest>,
        settings: BTreeMap<String, SecretString>,
        timeouts: HttpTimeouts,
        index: Arc<IndexKey>,
        public_url: Option<String>,
    ) -> Result<Self, Vec<SettingMistake>> {
        let mut mistakes = vec![];
        let settings = complete(&manifest, settings, &mut mistakes);
        let setting = |name: &str| settings.get(name).map_or("", |s| s.expose_secret());
        let allow_http = match setting("allow_http") {
            "true" => true,
            "" | "false" => false,
            _ => {
                mistakes.push(SettingMistake::NotABool("allow_http".to_owned()));
                false
            }
        };
        let base_url = setting("base_url").trim_end_matches('/').to_owned();
        let plain_http = base_url_scheme(&base_url, allow_http);
        let sns_url = setting("sns_url").trim_end_matches('/').to_owned();
        let plain_sns = base_url_scheme(&sns_url, allow_http);
        for (name, url, scheme) in [("base_url", &base_url, plain_http), ("sns_url", &sns_url, plain_sns)] {
            if scheme.is_none() && !url.is_empty() {
                mistakes.push(SettingMistake::NotAUrl(name.to_owned()));
            }
        }
        if timeouts.connect >= timeouts.total {
            mistakes.push(SettingMistake::Timeouts);
        }
        let public_url = public_url.map(|url| url.trim_end_matches('/').to_owned());
        let abilities = abilities(&manifest, &settings, &base_url, public_url.as_deref(), &index, timeouts);
        let client = HttpClient::new(timeouts, plain_http == Some(false) && plain_sns != Some(true));
        match client {
            Some(client) if mistakes.is_empty() => {
                let wanted = manifest.send.variables();
                let sns = SnsDoor::new(Some(sns_url).filter(|url| !url.is_empty()));
                Ok(Self { name, manifest, settings, base_url, public_url, index, client, abilities, sns, wanted })
            }
            Some(_) => Err(mistakes),
            None => {
                mistakes.push(SettingMistake::Client);
                Err(mistakes)
            }
        }
    }

    /// Replaces what the manifest says of look-ups by what the operator knows: `settle_after` also makes a miss count,
    /// unless `trust_miss` says otherwise.
    #[must_use]
    pub fn with_lookup(mut self, settle_after: Option<Duration>, trust_miss: Option<bool>) -> Self {
        if let Some(rules) = &mut self.abilities.lookup {
            rules.trust_miss = trust_miss.unwrap_or(rules.trust_miss || settle_after.is_some());
            rules.settle_after = settle_after.unwrap_or(rules.settle_after);
        }
        self
    }

    fn setting(&self, name: &str) -> &str {
        self.settings.get(name).map_or("", |s| s.expose_secret())
    }

    fn keep(&self, id: &str) -> Option<ProviderMessageId> {
        self.index.message_id(&self.name, id)
    }

    /// Where the provider sends the receipt of one attempt; empty when it cannot reach us, or nothing would check it.
    fn receipt_url(&self, reference: &str) -> String {
        let Some(public_url) = self.public_url.as_ref().filter(|_| self.abilities.receipts) else {
            return String::new();
        };
        let mut url = format!("{public_url}/v1/receipts/{}?ref={reference}", self.name);
        if let Some(rules) = self.manifest.receipts.as_ref().filter(|r| r.scheme == Scheme::SecretPath) {
            let secret = rules.secrets.iter().map(|s| self.setting(s)).find(|s| !s.is_empty());
            url.push_str("&key=");
            url.push_str(&percent_encode(secret.unwrap_or_default()));
        }
        url
    }

    fn send_variables(&self, dispatch: &Dispatch, gate: &Gate) -> Option<Value> {
        let texts = texts(&dispatch.content, dispatch.to.channel())?;
        let of_message =
            |name: &str| texts.iter().find(|(text, _)| *text == name).map(|(_, value)| Value::from(*value));
        let of_account = |name: &str| self.settings.get(name).map(|value| Value::from(value.expose_secret()));
        let value = |name: &str| {
            Some(match name {
                "to" => to(&dispatch.to).into(),
                "to_digits" => to(&dispatch.to).trim_start_matches('+').into(),
                "reference" => dispatch.reference.as_str().into(),
                "dedupe_key" => dispatch.dedupe_key.as_str().into(),
                "receipt_url" => self.receipt_url(&dispatch.reference).into(),
                "remaining_seconds" => gate.remaining().as_secs().into(),
                "expires_at" => dispatch.expires_at.to_string().into(),
                "began_at" => gate.now().to_string().into(),
                _ => return of_message(name).or_else(|| of_account(name)),
            })
        };
        let named = self.wanted.iter().filter_map(|name| Some((name.as_str(), value(name)?)));
        let values: BTreeMap<_, _> = named.collect();
        Some(Value::from(values))
    }

    fn inquiry_variables(&self, inquiry: &Inquiry) -> Value {
        let mut values: BTreeMap<String, Value> =
            self.settings.iter().map(|(name, value)| (name.clone(), value.expose_secret().into())).collect();
        let to = inquiry.to.as_ref().map(to).unwrap_or_default();
        values.insert("to_digits".to_owned(), to.trim_start_matches('+').into());
        values.insert("to".to_owned(), to.into());
        values.insert("reference".to_owned(), inquiry.reference.as_str().into());
        values.insert("dedupe_key".to_owned(), inquiry.dedupe_key.as_str().into());
        values.insert("receipt_url".to_owned(), self.receipt_url(&inquiry.reference).into());
        values.insert("began_at".to_owned(), inquiry.began_at.to_string().into());
        let id = inquiry.message_id.as_ref().map_or("", |id| id.as_str());
        values.insert("message_id".to_owned(), id.into());
        Value::from(values)
    }
}

#[async_trait]
impl Provider for HttpProvider {
    fn name(&self) -> &ProviderName {
        &self.name
    }

    fn channel(&self) -> Channel {
        self.manifest.channel()
    }

    fn abilities(&self) -> &Abilities {
        &self.abilities
    }

    async fn send(&self, dispatch: &Dispatch, gate: &Gate) -> Outcome {
        if dispatch.to.channel() != self.channel() {
            return Outcome::new(OutcomeClass::RefusedMessage, Reason::BadAddress);
        }
        let Some(variables) = self.send_variables(dispatch, gate) else {
            return Outcome::new(OutcomeClass::RefusedMessage, Reason::BadContent);
        };
        let Ok(ready) = self.manifest.send.render(&self.base_url, &variables, None, gate.now()) else {
            return Outcome::new(OutcomeClass::RefusedAccount, Reason::AccountRefused);
        };
        match self.client.exchange(ready, Some(gate)).await {
            Ok(Received { status, headers, body }) => {
                let answer = Answer { status, headers: &headers, body: body.as_deref() };
                self.manifest.answers.outcome(&answer, gate.now(), &|id| self.keep(id))
            }
            Err(outcome) => outcome,
        }
    }

    async fn lookup(&self, inquiry: &Inquiry) -> LookupAnswer {
        let Some(lookup) = &self.manifest.lookup else { return LookupAnswer::Unreadable };
        let lacks_address = lookup.rules.needs_address && inquiry.to.is_none();
        if lacks_address || (lookup.needs_message_id && inquiry.message_id.is_none()) {
            return LookupAnswer::Unreadable;
        }
        let variables = self.inquiry_variables(inquiry);
        let answer = async {
            let ready = lookup.request.render(&self.base_url, &variables, Some(&self.manifest.send), inquiry.now);
            let ready = ready.map_err(|DoesNotRender| LookupAnswer::Unreadable)?;
            let received = self.client.exchange(ready, None).await.map_err(|_| LookupAnswer::Unreadable)?;
            Ok(lookup.answer(received.status, received.body.as_deref(), &variables, &|id| self.keep(id)))
        };
        answer.await.unwrap_or_else(|unreadable: LookupAnswer| unreadable)
    }

    async fn receipts(&self, request: &ReceiptRequest, now: Timestamp) -> Result<Vec<Receipt>, ReceiptError> {
        let rules = self.manifest.receipts.as_ref().filter(|_| self.abilities.receipts);
        let rules = rules.ok_or(ReceiptError::NotOffered)?;
        let secrets: Vec<&str> =
            rules.secrets.iter().map(|name| self.setting(name)).filter(|s| !s.is_empty()).collect();
        if rules.scheme == Scheme::Sns {
            return match self.sns.open(&self.client, &secrets, request, now).await? {
                Some(message) => receipt::read_json(rules, &self.name, &self.index, request, &message),
                None => Ok(vec![]),
            };
        }
        let user = rules.user.as_ref().map_or("", |user| self.setting(user));
        let origin = Origin { secrets, user, public_url: self.public_url.as_deref() };
        if receipt::verify(rules, &origin, request, now) {
            receipt::read(rules, &self.name, &self.index, request)
        } else {
            Err(ReceiptError::NotAuthentic)
        }
    }

    fn statement(&self) -> Option<&dyn Statement> {
        self.manifest.statement.is_some().then_some(self as &dyn Statement)
    }
}

/// The longest page of a list that is read, in bytes.
const PAGE_MAX: usize = 16 * 1024 * 1024;

#[async_trait]
impl Statement for HttpProvider {
    fn window(&self) -> Duration {
        self.manifest.statement.as_ref().map_or(Duration::ZERO, |list| list.window)
    }

    async fn page(&self, period: Period, start: &PageStart, now: Timestamp) -> Option<Page> {
        let list = self.manifest.statement.as_ref()?;
        let offset = if let PageStart::Offset(offset) = start { *offset } else { 0 };
        let mut values: BTreeMap<&str, Value> =
            self.settings.iter().map(|(name, value)| (name.as_str(), value.expose_secret().into())).collect();
        values.insert("since", period.since.to_string().into());
        values.insert("until", period.until.to_string().into());
        values.insert("offset", offset.into());
        let variables = Value::from(values);
        let url = list.request.url(&self.base_url, &variables).ok()?;
        let url = match start {
            PageStart::First | PageStart::Offset(_) => url,
            PageStart::Link(link) => self.link(link)?,
            PageStart::Cursor(token) => list.behind(&url, token)?,
        };
        let ready = list.request.render_for(url, &variables, Some(&self.manifest.send), now).ok()?;
        let received = self.client.exchange_within(ready, None, PAGE_MAX).await.ok()?;
        let body = received.body.filter(|_| received.status / 100 == 2)?;
        list.page(start, &body, &|id| self.keep(id), &|text| self.index.read_reference(text))
    }
}

impl HttpProvider {
    /// A link of an answer, which may be relative. One that leads to another host gets none of our secrets.
    fn link(&self, link: &str) -> Option<String> {
        let base = Url::parse(&self.base_url).ok()?;
        let url = base.join(link).ok().filter(|url| url.origin() == base.origin())?;
        (url.username().is_empty() && url.password().is_none()).then(|| url.into())
    }
}

/// The address as providers take it. Secret.
fn to(address: &Address) -> String {
    match address {
        Address::Sms(phone) => phone.e164().to_owned(),
        Address::Email(mail) => mail.envelope(),
    }
}

/// The texts of the message for one channel; `None` when it was not rendered for it.
fn texts(content: &Content, channel: Channel) -> Option<Vec<(&'static str, &str)>> {
    Some(match channel {
        Channel::Sms => vec![("text", content.sms.as_deref()?)],
        Channel::Email => {
            let mail = content.mail.as_ref()?;
            vec![("subject", mail.subject.as_str()), ("text", &mail.text), ("html", &mail.html)]
        }
    })
}

/// The settings with their defaults, and with nothing for the optional ones that were not given.
fn complete(
    manifest: &Manifest,
    mut given: BTreeMap<String, SecretString>,
    mistakes: &mut Vec<SettingMistake>,
) -> BTreeMap<String, SecretString> {
    let mut settings = BTreeMap::new();
    for (name, setting) in manifest.settings() {
        let value = given.remove(name).filter(|v| !v.expose_secret().is_empty());
        if value.is_none() && setting.required {
            mistakes.push(SettingMistake::Missing(name.clone()));
        }
        settings.insert(name.clone(), value.unwrap_or_else(|| setting.default.clone().unwrap_or_default().into()));
    }
    for (name, value) in given {
        if COMMON_SETTINGS.contains(&name.as_str()) {
            settings.insert(name, value);
        } else {
            mistakes.push(SettingMistake::Unknown(name));
        }
    }
    settings
}

/// Whether the URL is plain http; `None` when it may not be called.
fn base_url_scheme(base_url: &str, allow_http: bool) -> Option<bool> {
    let url = Url::parse(base_url).ok()?;
    if url.query().is_some() || url.fragment().is_some() || !url.username().is_empty() || url.password().is_some() {
        return None;
    }
    let host = url.host_str()?;
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let loopback = host == "localhost" || bare.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
    match url.scheme() {
        "https" => Some(false),
        "http" if loopback || allow_http => Some(true),
        _ => None,
    }
}

fn abilities(
    manifest: &Manifest,
    settings: &BTreeMap<String, SecretString>,
    base_url: &str,
    public_url: Option<&str>,
    index: &IndexKey,
    timeouts: HttpTimeouts,
) -> Abilities {
    let is_set = |name: &String| settings.get(name).is_some_and(|s| !s.expose_secret().is_empty());
    let mut account: Vec<&[u8]> = vec![manifest.name().as_bytes(), base_url.as_bytes()];
    let mut revision: Vec<&[u8]> = vec![
        manifest.text().as_bytes(),
        env!("CARGO_PKG_VERSION").as_bytes(),
        base_url.as_bytes(),
        public_url.unwrap_or_default().as_bytes(),
    ];
    for (name, value) in settings {
        let pair = [name.as_bytes(), value.expose_secret().as_bytes()];
        if manifest.settings().get(name).is_some_and(|s| s.account) {
            account.extend(pair);
        }
        revision.extend(pair);
    }
    let receipts = manifest.receipts.as_ref().filter(|rules| {
        let reachable = public_url.is_some() || !rules.scheme.covers_url();
        reachable && rules.user.iter().all(is_set) && rules.secrets.iter().any(is_set)
    });
    Abilities {
        account: *index.hash(Purpose::Account, &account).as_bytes(),
        rev: *index.hash(Purpose::Revision, &revision).as_bytes(),
        send_timeout: timeouts.total,
        lookup: manifest.lookup.as_ref().map(|l| l.rules),
        dedupe: manifest.dedupe.as_ref().map(|d| d.rules),
        receipts: receipts.is_some(),
        receipts_by_id: receipts.is_some_and(|r| r.reference.is_none()),
        identical_body: manifest.dedupe.as_ref().is_some_and(|d| d.identical_body),
    }
}
