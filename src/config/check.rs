//! What is allowed but probably not meant.

use super::Settings;
use super::provider::{Kind, SmtpTls};
use super::server::Listen;
use super::store::may_be_read_on_the_way;
use crate::document::{Mistake, Place, Table, show_duration};

/// Advice on settings that hold each for itself, but sit badly together.
pub(super) fn advice(settings: &Settings, root: &Table) -> Vec<Mistake> {
    let mut advice = vec![];
    let drain = settings.dispatch.drain_timeout;
    for p in &settings.providers {
        match &p.kind {
            Kind::Smtp(s) if s.tls == SmtpTls::None => {
                advice.push(Mistake { place: p.place.clone(), message: "mail is handed over in clear".to_owned() });
            }
            Kind::Http(h) if h.timeout > drain => {
                let message = format!(
                    "a call may take up to {}, longer than `dispatch.drain_timeout` ({}); a stop in that time leaves it \
                     unknown",
                    show_duration(h.timeout),
                    show_duration(drain)
                );
                advice.push(Mistake { place: p.place.clone(), message });
            }
            Kind::Sandbox(_) => {
                let message = "the sandbox sends nothing to anybody".to_owned();
                advice.push(Mistake { place: p.place.clone(), message });
            }
            _ => {}
        }
    }
    if may_be_read_on_the_way(&settings.store.place) {
        let message = "what goes to PostgreSQL may be read or changed on the way; add sslmode=verify-full to the URL";
        let place = Place { key: "store.url".to_owned(), ..root.place_of("store") };
        advice.push(Mistake { place, message: message.to_owned() });
    }
    if let Listen::Address(address) = settings.server.listen
        && !address.ip().is_loopback()
    {
        let message = "the API speaks plain HTTP and is reachable from outside; put a TLS proxy in front of it";
        let place = Place { key: "server.listen".to_owned(), ..root.place_of("server") };
        advice.push(Mistake { place, message: message.to_owned() });
    }
    advice
}
