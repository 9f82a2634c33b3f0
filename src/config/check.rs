//! What is allowed but probably not meant.

use super::Settings;
use super::provider::{Kind, SmtpTls};
use super::server::Listen;
use super::smpp::Smpp;
use super::store::may_be_read_on_the_way;
use crate::document::{Mistake, Place, Table, show_duration};

/// Advice on settings that hold each for itself, but sit badly together.
pub(super) fn advice(settings: &Settings, root: &Table) -> Vec<Mistake> {
    let mut advice = vec![];
    let drain = settings.dispatch.drain_timeout;
    for p in &settings.providers {
        if let Kind::Smtp(s) = &p.kind
            && s.tls == SmtpTls::None
        {
            advice.push(Mistake { place: p.place.clone(), message: "mail is handed over in clear".to_owned() });
        }
        match &p.kind {
            Kind::Http(h) if h.timeout > drain => {
                let message = format!(
                    "a call may take up to {}, longer than `dispatch.drain_timeout` ({}); a stop in that time leaves it \
                     unknown",
                    show_duration(h.timeout),
                    show_duration(drain)
                );
                advice.push(Mistake { place: p.place.clone(), message });
            }
            Kind::Smtp(s) if s.final_timeout > drain => {
                let message = format!(
                    "the reply after the final dot may take up to {}, longer than `dispatch.drain_timeout` ({}); a stop \
                     in that time leaves it unknown",
                    show_duration(s.final_timeout),
                    show_duration(drain)
                );
                advice.push(Mistake { place: p.place.clone(), message });
            }
            Kind::Smpp(s) => {
                let messages = smpp(s, settings).into_iter().flatten();
                advice.extend(messages.map(|message| Mistake { place: p.place.clone(), message }));
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
    advice.extend(late_failover(settings, root));
    if let Listen::Address(address) = settings.server.listen
        && !address.ip().is_loopback()
    {
        let message = "the API speaks plain HTTP and is reachable from outside; put a TLS proxy in front of it";
        let place = Place { key: "server.listen".to_owned(), ..root.place_of("server") };
        advice.push(Mistake { place, message: message.to_owned() });
    }
    advice
}

fn smpp(smpp: &Smpp, settings: &Settings) -> [Option<String>; 3] {
    let (drain, start_by) = (settings.dispatch.drain_timeout, settings.dispatch.start_by);
    [
        (!smpp.tls).then(|| "the password and every text message are handed over in clear".to_owned()),
        (smpp.response_timeout > drain).then(|| {
            format!(
                "the answer to a submission may take up to {}, longer than `dispatch.drain_timeout` ({}); a stop in that \
                 time leaves it unknown",
                show_duration(smpp.response_timeout),
                show_duration(drain)
            )
        }),
        (smpp.connect_timeout >= start_by).then(|| {
            format!(
                "a message may wait for the session for {}, not less than `dispatch.start_by` ({}); then it never begins",
                show_duration(smpp.connect_timeout),
                show_duration(start_by)
            )
        }),
    ]
}

/// The next provider of a route would be tried only where a breaker opens.
fn late_failover(settings: &Settings, root: &Table) -> Option<Mistake> {
    let (dispatch, routes) = (&settings.dispatch, &settings.routes);
    let several = routes.routes().any(|(_, route)| route.providers().nth(1).is_some());
    let late = dispatch.failover_after >= dispatch.max_attempts;
    (several && late).then(|| Mistake {
        place: Place { key: "dispatch.failover_after".to_owned(), ..root.place_of("dispatch") },
        message: format!(
            "is not less than `max_attempts` ({}), so that a message has no attempt left for the next provider of its route",
            dispatch.max_attempts
        ),
    })
}
