//! Messages, gates and keys for tests that call a provider directly.

use std::sync::Arc;
use std::time::Duration;

use sendonce::clock::{SharedClock, SystemClock};
use sendonce::domain::address::{Address, MailAddress, PhoneNumber};
use sendonce::domain::content::{Content, Mail};
use sendonce::domain::ids::NotificationId;
use sendonce::domain::time::Timestamp;
use sendonce::provider::Dispatch;
use sendonce::provider::gate::Gate;
use sendonce::vault::{IndexKey, new_key_line};

/// A link that every encoding on the way would love to break.
pub const LINK: &str = "https://app.example.org/reset?token=Zm9v-_.~%2B%3D&next=%2Fa%3Fb%3Dc&long=\
                        0123456789abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz";

pub fn index_key() -> IndexKey {
    IndexKey::parse(&new_key_line("i")).expect("a key")
}

/// A gate that stays open for an hour.
pub fn open_gate() -> Gate {
    let clock: SharedClock = Arc::new(SystemClock);
    let hour = Duration::from_secs(3600);
    let (boot, now) = (clock.since_boot(), clock.now());
    Gate::new(clock, boot + hour, now.plus(hour))
}

pub fn email(address: &str) -> Address {
    Address::Email(MailAddress::parse(address).expect("a mail address"))
}

pub fn sms(number: &str) -> Address {
    Address::Sms(PhoneNumber::parse(number).expect("a phone number"))
}

/// Attempt `attempt` of notification `n` to `to`.
pub fn dispatch(index: &IndexKey, n: u8, attempt: u8, to: Address) -> Dispatch {
    let id = NotificationId::from_bytes([n; 16]);
    let admitted_at = Timestamp::from_micros(1_795_910_400_000_000);
    let mail = Mail {
        subject: "Réinitialiser · 493021".to_owned(),
        text: format!("Your code is 493021.\n.\n..dots\n{LINK}\n"),
        html: format!("<p>Your code is <b>493021</b>.</p>\n.\n<a href=\"{}\">Reset</a>\n", LINK.replace('&', "&amp;")),
    };
    Dispatch {
        id,
        to,
        content: Content { sms: Some("Your code is 493021.".to_owned()), mail: Some(mail) },
        reference: index.reference(id, attempt).to_string(),
        dedupe_key: format!("{n:032}"),
        admitted_at,
        expires_at: admitted_at.plus(Duration::from_secs(900)),
    }
}
