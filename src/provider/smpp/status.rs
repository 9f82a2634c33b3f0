//! What a `command_status` means (SMPP 3.4 section 5.1.3).
//!
//! A status that is not zero says that the PDU was refused, but for those by which an SMSC owns to a fault of its own: then
//! nobody knows how far it had come. What is not listed, vendors' codes (0x400 to 0x4FF) above all, is unknown.

use crate::domain::ids::ProviderMessageId;
use crate::domain::outcome::{Outcome, OutcomeClass, Reason};

/// `ESME_ROK`.
pub(super) const OK: u32 = 0;
/// `ESME_RINVCMDID`: a command that we do not know.
pub(super) const UNKNOWN_COMMAND: u32 = 0x03;
/// `ESME_RX_T_APPN`: not now, send it again.
pub(super) const NOT_NOW: u32 = 0x64;
/// `ESME_RX_P_APPN`: never.
pub(super) const NEVER: u32 = 0x65;

/// What the answer to a bind means. Nothing of a message has left, so whatever it is, it is certain.
pub(super) const fn bind(status: u32) -> Outcome {
    match status {
        // RINVPASWD, RINVSYSID.
        0x0e | 0x0f => account(Reason::BadCredentials),
        // RBINDFAIL, RINVSYSTYP.
        0x0d | 0x53 => account(Reason::AccountRefused),
        // RTHROTTLED.
        0x58 => Outcome::not_sent(Reason::RateLimited),
        // RALYBND too: it has not noticed yet that our earlier session is gone.
        _ => Outcome::not_sent(Reason::TemporarilyRefused),
    }
}

/// What the answer to `submit_sm` means; also a `generic_nack`, where it is not zero.
pub(super) fn submission(status: u32, message_id: Option<ProviderMessageId>) -> Outcome {
    match status {
        OK => Outcome::accepted(message_id),
        // RMSGQFUL, RSUBMITFAIL, RX_T_APPN.
        0x14 | 0x45 | 0x64 => Outcome::not_sent(Reason::TemporarilyRefused),
        // RTHROTTLED.
        0x58 => Outcome::not_sent(Reason::RateLimited),
        // RINVCMDLEN: our octets did not arrive as they left.
        0x02 => Outcome::not_sent(Reason::ProtocolBeforeCommit),
        // RINVPASWD, RINVSYSID.
        0x0e | 0x0f => account(Reason::BadCredentials),
        // RINVCMDID, RINVBNDSTS, RBINDFAIL: we may not submit. RINVSRCADR, RINVSERTYP, RINVSRCTON, RINVSRCNPI, RINVDSTTON,
        // RINVDSTNPI, RINVSYSTYP: what the configuration says, or what is the same for every message.
        0x03 | 0x04 | 0x0d | 0x0a | 0x15 | 0x48 | 0x49 | 0x50 | 0x51 | 0x53 => account(Reason::AccountRefused),
        // RINVDSTADR.
        0x0b => message(Reason::BadAddress),
        // RINVMSGLEN.
        0x01 => message(Reason::BadContent),
        // RINVPRTFLG, RINVREGDLVFLG, RINVNUMDESTS, RINVDLNAME, RINVDESTFLAG, RINVSUBREP, RINVESMCLASS, RCNTSUBDL, RINVREPFLAG,
        // RINVNUMMSGS, RINVSCHED, RINVEXPIRY, RINVDFTMSGID, RX_P_APPN, RX_R_APPN, and the faults of optional parameters.
        0x06 | 0x07 | 0x33 | 0x34 | 0x40 | 0x42..=0x44 | 0x54 | 0x55 | 0x61..=0x63 | 0x65 | 0x66 | 0xc0..=0xc4 => {
            message(Reason::MessageRefused)
        }
        // RSYSERR, RUNKNOWNERR.
        0x08 | 0xff => Outcome::unknown(Reason::ServerFault),
        _ => Outcome::unknown(Reason::Unclassified),
    }
}

const fn account(reason: Reason) -> Outcome {
    Outcome::new(OutcomeClass::RefusedAccount, reason)
}

const fn message(reason: Reason) -> Outcome {
    Outcome::new(OutcomeClass::RefusedMessage, reason)
}
