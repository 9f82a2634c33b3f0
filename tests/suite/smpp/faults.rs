//! Every kind of fault at the bind and at the submission, in one grid.
//!
//! A column is what the SMSC does instead of its normal answer:
//!
//! | column | what comes |
//! | --- | --- |
//! | `refuse`, `rate`, `fault`, `vendor` | `ESME_RINVDSTADR` (for a bind `ESME_RINVSYSID`), `ESME_RTHROTTLED`, `ESME_RSYSERR`, 0x0407 |
//! | `nack`, `nobody` | `generic_nack` with `ESME_RINVCMDID` under the request's number, with `ESME_RINVCMDLEN` under 0 |
//! | `closed`, `reset` | FIN, RST |
//! | `silent` | nothing, to this request |
//! | `half`, `cut` | the first octets of the answer and then nothing at all; and then FIN |
//! | `number` | the normal answer under a number that was never used |
//! | `other` | the answer to another command under the request's number |
//! | `twice` | the normal answer and a copy |
//! | `bare` | the normal answer without its body |
//! | `noise` | octets that are no PDU |
//! | `unbind` | `unbind`, and then FIN |
//! | `asks` | `enquire_link`, and then the normal answer |
//!
//! A cell is the outcome of the attempt: `+` accepted, `-` certainly not sent, `!` refused for this message, `#` refused for
//! our account, `?` unknown, with the reason as [`meaning`] spells it out.
//!
//! What to look for: nothing about a bind is unknown, and a submission is certain only where a whole answer says so.

use futures_util::StreamExt as _;

use super::*;

const GRID: &str = "
stage  over  refuse rate  fault  vendor nack  nobody closed reset silent half   cut   number other twice bare  noise unbind asks
bind   clear #auth  -rate -busy  -busy  -odd  -odd   -lost  -lost -stall -stall -lost -odd   -odd  +     +     -odd  -odd   -odd
bind   tls   #auth  -rate -busy  -busy  -odd  -odd   -lost  -lost -stall -stall -lost -odd   -odd  +     +     -odd  -odd   -odd
submit clear !addr  -rate ?fault ?class #no   ?odd   ?lost  ?lost ?time  ?time  ?lost ?time  ?time +     +bare ?odd  ?lost  +
submit tls   !addr  -rate ?fault ?class #no   ?odd   ?lost  ?lost ?time  ?time  ?lost ?time  ?time +     +bare ?odd  ?lost  +
";

/// How many cases the grid has.
const CELLS: usize = 72;

fn meaning(cell: &str) -> (OutcomeClass, Reason) {
    match cell {
        "+" => OK,
        "+bare" => (Accepted, Reason::AcceptedWithoutId),
        "-rate" => (NotSent, Reason::RateLimited),
        "-busy" => (NotSent, Reason::TemporarilyRefused),
        "-lost" => (NotSent, Reason::LostBeforeCommit),
        "-stall" => (NotSent, Reason::StalledBeforeCommit),
        "-odd" => (NotSent, Reason::ProtocolBeforeCommit),
        "!addr" => (RefusedMessage, Reason::BadAddress),
        "#auth" => (RefusedAccount, Reason::BadCredentials),
        "#no" => (RefusedAccount, Reason::AccountRefused),
        "?fault" => (Unknown, Reason::ServerFault),
        "?class" => (Unknown, Reason::Unclassified),
        "?lost" => (Unknown, Reason::LostAnswer),
        "?time" => (Unknown, Reason::AnswerTimeout),
        "?odd" => (Unknown, Reason::UnreadableAnswer),
        _ => panic!("{cell} means nothing"),
    }
}

fn act(column: &str, stage: Stage) -> Act {
    match column {
        "refuse" if stage == Stage::Bind => Status(0x0f),
        "refuse" => Status(0x0b),
        "rate" => Status(0x58),
        "fault" => Status(0x08),
        "vendor" => Status(0x0407),
        "nack" => Act::Nack(0x03),
        "nobody" => Act::NackNobody,
        "closed" => Close,
        "reset" => Act::Reset,
        "silent" => Silent,
        "half" => Act::Half,
        "cut" => Act::HalfClose,
        "number" => Act::OtherSequence,
        "other" => Act::OtherCommand,
        "twice" => Act::Twice,
        "bare" => Act::Bare,
        "noise" => Act::Noise,
        "unbind" => Act::UnbindInstead,
        "asks" => Act::EnquireFirst,
        _ => panic!("{column} is no fault"),
    }
}

struct Cell {
    what: String,
    stage: Stage,
    tls: bool,
    column: &'static str,
    expected: (OutcomeClass, Reason),
}

fn cells() -> Vec<Cell> {
    let mut rows = GRID.trim().lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let columns = rows.next().expect("a head");
    let mut cells = vec![];
    for row in rows {
        assert_eq!(row.len(), columns.len(), "{row:?}");
        let stage = if row[0] == "bind" { Stage::Bind } else { Stage::Submit };
        for (&column, &cell) in columns.iter().zip(&row).skip(2) {
            let what = format!("{} over {}, {column}", row[0], row[1]);
            cells.push(Cell { what, stage, tls: row[1] == "tls", column, expected: meaning(cell) });
        }
    }
    cells
}

/// Plays a cell; tells what is wrong.
async fn play(cell: Cell, pki: &Pki) -> Option<String> {
    let Cell { what, stage, tls, column, expected } = cell;
    let good = || if tls { Script::tls(pki.good()) } else { Script::plain() };
    let oracle = SmscOracle::start(good().once(stage, act(column, stage))).await;
    let settings = SmppSettings { tls, extra_roots: tls.then(|| pki.roots()), ..settings(&oracle) };
    let mut timeouts = settings.timeouts;
    match (expected.1, stage) {
        (Reason::StalledBeforeCommit, _) => timeouts.connect = Duration::from_secs(2),
        (Reason::AnswerTimeout, _) => (timeouts.response, timeouts.command) = (BRIEF, BRIEF / 3),
        _ => {}
    }
    let stand = Stand::new(SmppSettings { timeouts, ..settings });
    let outcome = stand.ending(1).await;
    // On a busy machine the message may look only after the next try to bind, which is a good one.
    let bound_again = stage == Stage::Bind && expected.0 == NotSent && outcome == OK && oracle.connections() > 1;
    if outcome != expected && !bound_again {
        return Some(format!("{what}: {} {}", outcome.0, outcome.1));
    }
    if let Some(lie) = contradiction(&oracle, 1, outcome.0) {
        return Some(format!("{what}: {lie}"));
    }
    if expected.0 == Accepted && oracle.connections() != 1 {
        return Some(format!("{what}: the session was not kept"));
    }

    // Whatever is left of that session, the next message is not told by it.
    let mut patience = 100;
    loop {
        let next = stand.ending(2).await;
        if let Some(lie) = contradiction(&oracle, 2, next.0) {
            return Some(format!("{what}, the next message: {lie}"));
        }
        match next.0 {
            Accepted => return None,
            // Until the account is tried again.
            RefusedAccount if patience > 0 => tokio::time::sleep(Duration::from_millis(50)).await,
            _ => return Some(format!("{what}, the next message: {} {}", next.0, next.1)),
        }
        patience -= 1;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_fault_at_bind_and_submission_ends_as_the_grid_says() {
    let pki = Pki::new();
    let cells = cells();
    assert_eq!(cells.len(), CELLS, "a cell was lost");
    let played = futures_util::stream::iter(cells).map(|cell| play(cell, &pki)).buffer_unordered(16);
    let wrong: Vec<String> = played.filter_map(std::future::ready).collect().await;
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
