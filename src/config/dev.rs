//! The settings of `sendonce dev`: all in one directory, nothing leaves the machine.

use std::path::Path;
use std::time::Duration;

use secrecy::SecretString;

use super::provider::{Kind, Lane, ProviderSettings, Sandbox};
use super::{
    Admission, Dispatch, Keys, Limit, Log, LogFormat, Node, Retention, Server, Settings, Store, Templates,
    TenantSettings, VaultKeys,
};
use crate::document::Place;
use crate::domain::content::Channel;
use crate::domain::ids::{BadName, ProviderName, Tenant};
use crate::domain::route::{Route, RouteTable, Scope};

impl Settings {
    /// Settings for trying things out below `dir`: an embedded store, the sandbox for both channels, loopback ports 8025
    /// (API) and 8026 (admin), one tenant `dev`. The vault's keys are empty and `server.listen` may be changed; the
    /// caller fills in what it made.
    ///
    /// # Errors
    /// Never in truth: [`BadName`] would mean that a constant name is none.
    pub fn dev(dir: &Path) -> Result<Self, BadName> {
        let sandbox = |name: &str, channel| {
            Ok(ProviderSettings {
                name: ProviderName::parse(name)?,
                place: Place::of_file("dev"),
                lane: Lane::default(),
                kind: Kind::Sandbox(Sandbox { channel, outbox: dir.join("outbox.ndjson") }),
            })
        };
        let (sms, email) = (sandbox("sandbox-sms", Channel::Sms)?, sandbox("sandbox-email", Channel::Email)?);
        let mut routes = RouteTable::default();
        for (channel, provider) in [(Channel::Sms, &sms), (Channel::Email, &email)] {
            routes.insert(Scope { channel, kind: None, country: None }, Route::in_order([provider.name.clone()]));
        }
        Ok(Self {
            server: Server { public_url: Some("http://127.0.0.1:8025".to_owned()), ..Server::default() },
            store: Store::sqlite(dir.join("sendonce.db")),
            node: Node::default(),
            vault: VaultKeys { sealing_keys: SecretString::default(), index_key: SecretString::default() },
            keys: Keys { file: dir.join("keys.toml") },
            dispatch: Dispatch::default(),
            retention: Retention::default(),
            admission: Admission::default(),
            tenants: vec![TenantSettings {
                name: Tenant::parse("dev")?,
                countries: vec![],
                recipient_limit: Some(Limit { burst: 1000, per: Duration::from_secs(60) }),
                tenant_limit: None,
            }],
            templates: Templates::default(),
            routes,
            providers: vec![email, sms],
            hooks: vec![],
            callbacks: vec![],
            log: Log { format: LogFormat::Pretty, ..Log::default() },
            place: Place::of_file("dev"),
            advice: vec![],
        })
    }
}
