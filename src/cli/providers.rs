//! `sendonce providers`: shows and checks manifests, and builds the configured providers.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::client::{Connection, block_on};
use super::{ConfigFile, Exit, Failure, compose, show};
use crate::config::secret::literal_hint;
use crate::config::{self, Kind, ManifestSource, ProviderSettings, SmppIds, SmppValidity, SmtpTls};
use crate::document::{Mistake, Place};
use crate::domain::address::MailAddress;
use crate::domain::content::Channel;
use crate::provider::Provider;
use crate::provider::http_provider::{HttpProvider, HttpTimeouts};
use crate::provider::inbox::Inbox;
use crate::provider::manifest::{self, Manifest};
use crate::provider::sandbox::{Sandbox, SandboxPace};
use crate::provider::smpp::receipt::IdForm;
use crate::provider::smpp::{SmppProvider, SmppSettings, Source, Timeouts, Validity};
use crate::provider::smtp::{SmtpProvider, SmtpSettings, StageTimeouts, TlsMode};
use crate::vault::IndexKey;

/// `sendonce providers …`.
#[derive(Debug, Subcommand)]
pub(super) enum ProvidersCommand {
    /// List the configured providers, and how they do at the daemon; without a daemon, what the configuration says
    List(ListArgs),
    /// List the built-in manifests
    Manifests {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show a built-in manifest
    Show {
        /// Name of the manifest
        name: String,
    },
    /// Check manifests and tell every mistake
    Check {
        /// Manifest files
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// Send one real message through a configured provider, look it up, and tell what was learned
    Test(super::provider_test::TestArgs),
}

/// Flags of `sendonce providers list`.
#[derive(Debug, Args)]
pub(super) struct ListArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// What is read when no daemon answers
    #[command(flatten)]
    config: ConfigFile,
    #[command(flatten)]
    connection: Connection,
}

pub(super) fn run(command: ProvidersCommand) -> Result<(), Failure> {
    match command {
        ProvidersCommand::List(args) => block_on(list(args)),
        ProvidersCommand::Manifests { json } => manifests(json),
        ProvidersCommand::Show { name } => {
            let found = manifest::SHIPPED.iter().find(|(shipped, _)| *shipped == name);
            let (_, text) = found.ok_or_else(|| Failure::failed("there is no built-in manifest of this name"))?;
            show::bytes(text.as_bytes())
        }
        ProvidersCommand::Check { files } => {
            let mistakes: Vec<Mistake> =
                files.iter().flat_map(|f| read_manifest(f).err().unwrap_or_default()).collect();
            if mistakes.is_empty() { show::line("no mistakes") } else { Err(Failure::mistakes(&mistakes)) }
        }
        ProvidersCommand::Test(args) => block_on(super::provider_test::run(args)),
    }
}

async fn list(args: ListArgs) -> Result<(), Failure> {
    let (source, items) = match args.connection.open()?.get(&["providers"], &[]).await {
        Ok(mut answer) => ("daemon", answer.body.get_mut("items").map(Value::take).unwrap_or_default()),
        Err(failure) if failure.exit() == Exit::Unreachable => {
            let items = configured(&args.config.path)?;
            eprintln!("{failure}; this is what the configuration says");
            ("configuration", items)
        }
        Err(failure) => return Err(failure),
    };
    if args.json {
        show::answer(&json!({ "source": source, "items": items }), true)
    } else {
        show::answer(&items, false)
    }
}

/// The providers of a configuration.
fn configured(path: &Path) -> Result<Value, Failure> {
    let settings = super::compose::load(path)?;
    let item = |provider: &ProviderSettings| {
        let (kind, channel) = match &provider.kind {
            Kind::Http(http) => ("http", manifest_of(provider, http).ok().map(|manifest| manifest.channel())),
            Kind::Smtp(_) => ("smtp", provider.channel()),
            Kind::Smpp(_) => ("smpp", provider.channel()),
            Kind::Sandbox(_) => ("sandbox", provider.channel()),
        };
        let channel = channel.map(Channel::code);
        json!({ "provider": provider.name, "kind": kind, "channel": channel, "permits": provider.lane.concurrency })
    };
    Ok(settings.providers.iter().map(item).collect())
}

fn manifests(as_json: bool) -> Result<(), Failure> {
    for (name, _) in manifest::SHIPPED {
        let manifest = manifest::shipped(name).and_then(Result::ok);
        let manifest =
            manifest.ok_or_else(|| Failure::failed(format!("{name}: the built-in manifest has mistakes")))?;
        let settings: Vec<&str> = manifest.settings().keys().map(String::as_str).collect();
        let channel = manifest.channel().code();
        if as_json {
            let line = json!({ "name": name, "channel": channel, "settings": settings, "page": manifest.page() });
            show::line(&line.to_string())?;
        } else {
            show::line(&format!("{name:<15} {channel:<6} {}", settings.join(" ")))?;
        }
    }
    Ok(())
}

fn read_manifest(path: &Path) -> Result<Manifest, Vec<Mistake>> {
    let file = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|e| {
        vec![Mistake { place: Place::of_file(&file), message: format!("cannot be read: {}", e.kind()) }]
    })?;
    Manifest::parse(&file, &text)
}

/// Builds one configured provider.
///
/// # Errors
/// Every mistake in what it names, with its place.
pub(super) fn build(
    settings: &ProviderSettings,
    index: &Arc<IndexKey>,
    public_url: Option<&str>,
    receipts: &Inbox,
) -> Result<Arc<dyn Provider>, Vec<Mistake>> {
    let wrong = |message: String| vec![Mistake { place: settings.place.clone(), message }];
    let name = settings.name.clone();
    match &settings.kind {
        Kind::Http(http) => http_provider(settings, http, index, public_url),
        Kind::Smtp(smtp) => {
            let smtp = smtp_settings(smtp).map_err(wrong)?;
            let built = SmtpProvider::build(name, smtp, index).map_err(|e| wrong(e.to_string()))?;
            Ok(Arc::new(built))
        }
        Kind::Smpp(smpp) => {
            let (index, inbox) = (index.clone(), receipts.clone());
            let built = SmppProvider::build(name, smpp_settings(smpp), index, inbox, compose::draw);
            Ok(Arc::new(built.map_err(|e| wrong(e.to_string()))?))
        }
        Kind::Sandbox(s) => {
            let pace = SandboxPace::default();
            let built = Sandbox::build(name, s.channel, &s.outbox, pace, index, receipts.clone());
            Ok(Arc::new(built.map_err(|e| wrong(e.to_string()))?))
        }
    }
}

fn manifest_of(settings: &ProviderSettings, http: &config::Http) -> Result<Manifest, Vec<Mistake>> {
    match &http.manifest {
        ManifestSource::File(path) => read_manifest(path),
        ManifestSource::BuiltIn(name) => manifest::shipped(name).unwrap_or_else(|| {
            let message = format!("there is no built-in manifest `{name}`");
            Err(vec![Mistake { place: settings.place.clone(), message }])
        }),
    }
}

fn http_provider(
    settings: &ProviderSettings,
    http: &config::Http,
    index: &Arc<IndexKey>,
    public_url: Option<&str>,
) -> Result<Arc<dyn Provider>, Vec<Mistake>> {
    let wrong = |message: String| vec![Mistake { place: settings.place.clone(), message }];
    let manifest = manifest_of(settings, http)?;
    let is_secret = |name: &str| manifest.settings().get(name).is_some_and(|declared| declared.secret);
    let literal = http.settings.iter().filter(|(name, setting)| setting.literal && is_secret(name));
    let literal: Vec<Mistake> =
        literal.map(|(name, setting)| Mistake { place: setting.place.clone(), message: literal_hint(name) }).collect();
    if !literal.is_empty() {
        return Err(literal);
    }
    let values = http.settings.iter().map(|(name, setting)| (name.clone(), setting.value.clone())).collect();
    let timeouts = HttpTimeouts { connect: http.connect_timeout, total: http.timeout };
    let public_url = public_url.map(str::to_owned);
    let built =
        HttpProvider::build(settings.name.clone(), Arc::new(manifest), values, timeouts, index.clone(), public_url);
    let built = built.map_err(|mistakes| mistakes.iter().flat_map(|m| wrong(m.to_string())).collect::<Vec<_>>())?;
    let overrides = http.overrides;
    Ok(Arc::new(built.with_lookup(overrides.lookup_settle_after, overrides.lookup_trust_miss)))
}

fn smtp_settings(smtp: &config::Smtp) -> Result<SmtpSettings, String> {
    let from = MailAddress::parse(&smtp.from).map_err(|e| format!("`from` {e}"))?;
    let base = SmtpSettings::new(smtp.host.clone(), from);
    let credentials = smtp.username.clone().zip(smtp.password.clone());
    Ok(SmtpSettings {
        port: smtp.port,
        tls: match smtp.tls {
            SmtpTls::StartTls => TlsMode::StartTls,
            SmtpTls::Implicit => TlsMode::Implicit,
            SmtpTls::None => TlsMode::None,
        },
        extra_roots: smtp.ca_file.clone(),
        credentials,
        from_name: smtp.from_name.clone(),
        message_id_domain: smtp.message_id_domain.clone(),
        idle: smtp.idle,
        hello_name: smtp.hello_name.clone().unwrap_or_else(|| base.hello_name.clone()),
        timeouts: StageTimeouts {
            connect: smtp.connect_timeout,
            tls: smtp.connect_timeout,
            body: smtp.data_timeout,
            dot: smtp.final_timeout,
            ..StageTimeouts::uniform(smtp.command_timeout)
        },
        ..base
    })
}

fn smpp_settings(smpp: &config::Smpp) -> SmppSettings {
    let source = Source::new(&smpp.source, smpp.source_ton, smpp.source_npi);
    let base = SmppSettings::new(smpp.host.clone(), smpp.system_id.clone(), smpp.password.clone(), source);
    SmppSettings {
        port: smpp.port,
        tls: smpp.tls,
        extra_roots: smpp.ca_file.clone(),
        system_type: smpp.system_type.clone(),
        service_type: smpp.service_type.clone(),
        window: smpp.window,
        validity: match smpp.validity {
            SmppValidity::Relative => Validity::Relative,
            SmppValidity::Absolute => Validity::Absolute,
            SmppValidity::None => Validity::None,
        },
        message_id: match smpp.message_id {
            SmppIds::Same => IdForm::Same,
            SmppIds::HexInResponse => IdForm::HexInResponse,
            SmppIds::HexInReceipt => IdForm::HexInReceipt,
        },
        timeouts: Timeouts {
            connect: smpp.connect_timeout,
            command: smpp.command_timeout,
            response: smpp.response_timeout,
            enquire: smpp.enquire_link,
        },
        ..base
    }
}
