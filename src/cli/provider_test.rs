//! `sendonce providers test`: one real message through a configured provider, and what can be learned from it.

mod door;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serde_json::json;

use super::{ConfigFile, Failure, compose, show};
use crate::clock::{SharedClock, SystemClock};
use crate::config::Settings;
use crate::domain::address::{Address, MailAddress, PhoneNumber};
use crate::domain::content::{Channel, Content, Mail};
use crate::domain::ids::{EventId, NotificationId, ProviderName, Tenant};
use crate::domain::outcome::{LookupAnswer, Outcome, OutcomeClass};
use crate::provider::gate::Gate;
use crate::provider::{Dispatch, Inquiry, Provider};
use crate::vault::{IndexKey, Purpose, random};
use door::Door;

/// How long the test message may be under way.
const LIFETIME: Duration = Duration::from_secs(600);

const TEXT: &str = "This is a test message of sendonce. It needs no answer.";

/// Flags of `sendonce providers test`.
#[derive(Debug, Args)]
pub(super) struct TestArgs {
    /// Name of a configured provider
    name: ProviderName,
    /// Phone number (+…) or mail address that really receives the message
    #[arg(long, value_name = "ADDRESS")]
    to: String,
    /// Where its settings are
    #[command(flatten)]
    config: ConfigFile,
    /// How long to look it up for, in seconds, where the provider has look-ups
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    look_for: u64,
    /// Send it once more under the same key, to learn what is answered. Where the key does not hold, it arrives twice
    #[arg(long)]
    repeat: bool,
    /// Take receipts here, where `public_url` must lead meanwhile (ADDRESS:PORT)
    #[arg(long, value_name = "ADDRESS")]
    receipts: Option<SocketAddr>,
    /// How long to wait for a receipt that says how it ended, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 120, requires = "receipts")]
    wait_for: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(args: TestArgs) -> Result<(), Failure> {
    let settings = Settings::load(&args.config.path).map_err(|m| Failure::mistakes(&m))?;
    let (provider, index) = compose::one_provider(&settings, &args.name)?;
    let to = address(&args.to)?;
    if to.channel() != provider.channel() {
        return Err(Failure::failed("the address is not of this provider's channel"));
    }
    let clock: SharedClock = Arc::new(SystemClock);
    let abilities = provider.abilities();
    if args.repeat && abilities.dedupe.is_none() {
        return Err(Failure::failed("--repeat: its manifest has no [dedupe], so it would certainly arrive twice"));
    }
    if args.receipts.is_some() && !abilities.receipts {
        return Err(Failure::failed("--receipts: with these settings no receipt can be checked"));
    }
    let dispatch = test_message(&clock, &index, &args.name, to)?;
    let mut door = match args.receipts {
        Some(address) => Some(Door::open(address, provider.clone(), clock.clone(), dispatch.id).await?),
        None => None,
    };
    let outcome = send(provider.as_ref(), &clock, &dispatch).await;
    if let Some(door) = &door {
        door.know(outcome.message_id.as_ref());
    }
    tell_outcome("outcome", &dispatch, &outcome, args.json)?;
    if args.repeat {
        let again = send(provider.as_ref(), &clock, &dispatch).await;
        tell_outcome("repeat", &dispatch, &again, args.json)?;
    }
    let receipts = async {
        match &mut door {
            Some(door) => door.wait(Duration::from_secs(args.wait_for), args.json).await,
            None => Ok(()),
        }
    };
    tokio::try_join!(look_up(provider.as_ref(), &clock, &dispatch, &outcome, &args), receipts)?;
    match outcome.class {
        OutcomeClass::Accepted => Ok(()),
        _ => Err(Failure::failed("the provider did not take the message")),
    }
}

async fn send(provider: &dyn Provider, clock: &SharedClock, dispatch: &Dispatch) -> Outcome {
    let start_by = clock.since_boot() + Duration::from_secs(10);
    provider.send(dispatch, &Gate::new(clock.clone(), start_by, dispatch.expires_at)).await
}

fn address(text: &str) -> Result<Address, Failure> {
    let wrong = |e: &dyn std::fmt::Display| Failure::failed(format!("the address {e}"));
    match text.starts_with('+') {
        true => PhoneNumber::parse(text).map(Address::Sms).map_err(|e| wrong(&e)),
        false => MailAddress::parse(text).map(Address::Email).map_err(|e| wrong(&e)),
    }
}

fn test_message(
    clock: &SharedClock,
    index: &IndexKey,
    provider: &ProviderName,
    to: Address,
) -> Result<Dispatch, Failure> {
    let now = clock.now();
    let id = NotificationId::new(now, *random());
    let name = |e: crate::domain::ids::BadName| Failure::failed(e.to_string());
    let (tenant, event) =
        (Tenant::parse("providers-test").map_err(name)?, EventId::parse(&id.to_string()).map_err(name)?);
    let hash = index.hash(Purpose::Address, &[to.canonical().as_bytes()]);
    let whole = to.channel() == Channel::Email;
    let mail = Mail { subject: "Test message".to_owned(), text: TEXT.to_owned(), html: format!("<p>{TEXT}</p>") };
    Ok(Dispatch {
        id,
        content: Content { sms: (!whole).then(|| TEXT.to_owned()), mail: whole.then_some(mail) },
        reference: index.reference(id, 1).to_string(),
        dedupe_key: index.dedupe_key(&tenant, &event, provider, hash),
        admitted_at: now,
        expires_at: now.plus(LIFETIME),
        to,
    })
}

fn tell_outcome(of: &str, dispatch: &Dispatch, outcome: &Outcome, as_json: bool) -> Result<(), Failure> {
    show::answer(
        &json!({
            of: outcome.class,
            "reason": outcome.reason,
            "message_id": outcome.message_id,
            "reference": dispatch.reference,
        }),
        as_json,
    )
}

/// Looks it up until it is found: the time that takes is the provider's indexing lag, which few document.
async fn look_up(
    provider: &dyn Provider,
    clock: &SharedClock,
    dispatch: &Dispatch,
    outcome: &Outcome,
    args: &TestArgs,
) -> Result<(), Failure> {
    if provider.abilities().lookup.is_none() {
        return Ok(());
    }
    let began = clock.since_boot();
    let mut asked = 0_u32;
    loop {
        let inquiry = Inquiry {
            id: dispatch.id,
            reference: dispatch.reference.clone(),
            dedupe_key: dispatch.dedupe_key.clone(),
            to: Some(dispatch.to.clone()),
            message_id: outcome.message_id.clone(),
            began_at: dispatch.admitted_at,
            now: clock.now(),
        };
        let answer = provider.lookup(&inquiry).await;
        asked += 1;
        let after = clock.since_boot().saturating_sub(began);
        let word = match &answer {
            LookupAnswer::Found { .. } => "found",
            LookupAnswer::NotFound => "not found",
            LookupAnswer::Unreadable => "unreadable",
        };
        let found = matches!(answer, LookupAnswer::Found { .. });
        if found || after.as_secs() >= args.look_for {
            let told = json!({ "lookup": word, "asked": asked, "after_seconds": after.as_secs_f64() });
            return show::answer(&told, args.json);
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
}
