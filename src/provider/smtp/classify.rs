//! What a reply or a fault means at each stage.
//!
//! Everything up to the final dot is certain: the server must have seen the end of the data to take the message
//! (RFC 5321 section 4.1.1.4). After it only a complete reply is, and no reply is [`OutcomeClass::Unknown`] (RFC 1047).

use crate::domain::outcome::{Outcome, OutcomeClass, Reason};

use super::reply::Reply;
use super::wire::Fault;

/// Where in the dialogue we are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Greeting,
    Hello,
    StartTls,
    Auth,
    Mail,
    Rcpt,
    Data,
    Body,
    Dot,
}

/// What a fault means.
pub(super) const fn fault(stage: Stage, fault: Fault) -> Outcome {
    match (stage, fault) {
        (Stage::Dot, Fault::Lost) => Outcome::unknown(Reason::LostAnswer),
        (Stage::Dot, Fault::Stalled) => Outcome::unknown(Reason::AnswerTimeout),
        (Stage::Dot, Fault::Garbled) => Outcome::unknown(Reason::UnreadableAnswer),
        (_, Fault::Lost) => Outcome::not_sent(Reason::LostBeforeCommit),
        (_, Fault::Stalled) => Outcome::not_sent(Reason::StalledBeforeCommit),
        (_, Fault::Garbled) => Outcome::not_sent(Reason::ProtocolBeforeCommit),
    }
}

/// What a reply means that is not the one that lets the dialogue go on.
pub(super) fn reply(stage: Stage, reply: &Reply) -> Outcome {
    match (stage, reply.code()) {
        (Stage::Dot, 421) => Outcome::unknown(Reason::ServerFault),
        (Stage::Dot, 200..=399) => Outcome::unknown(Reason::UnreadableAnswer),
        (_, 200..=399) => Outcome::not_sent(Reason::ProtocolBeforeCommit),
        (Stage::StartTls, 400..=499) => Outcome::not_sent(Reason::Tls),
        (_, 400..=499) => Outcome::not_sent(Reason::TemporarilyRefused),
        _ => refusal(stage, reply),
    }
}

/// 5yz. RFC 3463: subject 1 is the address, 2 the mailbox, 6 the content, 7 security and policy.
fn refusal(stage: Stage, reply: &Reply) -> Outcome {
    let account = |reason| Outcome::new(OutcomeClass::RefusedAccount, reason);
    let message = |reason| Outcome::new(OutcomeClass::RefusedMessage, reason);
    match (stage, reply.code(), reply.enhanced()) {
        (Stage::StartTls, ..) => account(Reason::TlsRequired),
        (Stage::Body | Stage::Dot, _, Some((1 | 2, _))) => message(Reason::BadAddress),
        (Stage::Body | Stage::Dot, _, Some((6, _))) => message(Reason::BadContent),
        (Stage::Body | Stage::Dot, ..) => message(Reason::MessageRefused),
        // RFC 4954 section 6: 530 asks for authentication, 535 refuses ours, 538 wants it encrypted.
        (_, 535, _) => account(Reason::BadCredentials),
        (_, 538, _) => account(Reason::TlsRequired),
        (_, 530, _) | (_, _, Some((7, _))) | (Stage::Auth, ..) => account(Reason::AccountRefused),
        // No word about the recipient: a server may turn everybody away for a while.
        (Stage::Greeting | Stage::Hello, ..) => Outcome::not_sent(Reason::TemporarilyRefused),
        // Too big (RFC 1870 section 6.1 and RFC 3463 sections 3.3, 3.4) or of a form that the server does not take.
        (Stage::Mail, 552, _) | (_, _, Some((2, 3) | (3, 4) | (6, _))) => message(Reason::BadContent),
        // The recipient is not named yet, so this is about our sender.
        (Stage::Mail, 550 | 551 | 553, _) | (Stage::Mail, _, Some((1, _))) => account(Reason::AccountRefused),
        (Stage::Rcpt, 550 | 551 | 553, _) | (Stage::Rcpt, _, Some((1 | 2, _))) => message(Reason::BadAddress),
        _ => message(Reason::MessageRefused),
    }
}
