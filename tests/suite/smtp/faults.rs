//! Every kind of fault at every stage of the dialogue, in one grid.
//!
//! A column is what the server does instead of its normal reply:
//!
//! | column | what comes |
//! | --- | --- |
//! | `4yz`, `5yz` | `451`, `554` without an enhanced code |
//! | `421` | `421`, and the connection is closed (RFC 5321 section 3.8) |
//! | `closed`, `reset` | FIN, RST |
//! | `silent` | nothing; in the body it does not read on either |
//! | `half` | the first octet of a reply, then nothing |
//! | `cut` | the same, then FIN |
//! | `lines` | a good reply of several lines (section 4.2.1) |
//! | `mixed` | a line that promises more, then one with another code |
//! | `twice` | a good reply and one too many, in one packet |
//! | `behind` | a good reply, and one too many when the client has said its next words: from there on it is one behind |
//! | `noise` | a line that is no reply |
//!
//! Where no reply is due (`tls`, the handshake after STARTTLS; `body`, between the message's first line and its end) the
//! same octets come all the same. A cell is the outcome of the attempt: `+` accepted, `-` certainly not sent, `!` refused
//! for this message, `#` refused for our account, `?` unknown, with the reason as [`meaning`] spells it out; `.` is no
//! case. `.` under `data` and `body` in `behind`: a server that says 250 to the dot before it came can be told from one
//! that says it afterwards only by its clock.
//!
//! What to look for: `?` stands in the rows `dot` alone, and there in every cell without a complete answer (section
//! 4.1.1.4, RFC 1047); `+` stands above them only where the reply was good.

use futures_util::StreamExt as _;

use super::*;
use Act::{Behind, Deaf, Inject, Mixed, Stall, Wordy};

const GRID: &str = "
stage    over  4yz    5yz    421    closed reset  silent half   cut    lines  mixed  twice  behind noise
greeting clear -busy  -busy  -busy  -lost  -gone  -stall -stall -lost  +      -odd   -odd   -odd   -odd
ehlo     clear -busy  -busy  -busy  -lost  -lost  -stall -stall -lost  +      -odd   -odd   -odd   -odd
starttls clear -tls   #tls   -tls   -lost  -lost  -stall -stall -lost  +      -odd   -odd   #tls   -odd
tls      clear #tls   #tls   #tls   -tls   -tls   -stall -stall -tls   #tls   #tls   #tls   .      #tls
ehlo     tls   -busy  -busy  -busy  -lost  -lost  -stall -stall -lost  +      -odd   -odd   -odd   -odd
auth     tls   -busy  #no    -busy  -lost  -lost  -stall -stall -lost  +      -odd   -odd   -odd   -odd
mail     clear -busy  !no    -busy  -lost  -lost  -stall -stall -lost  +      -odd   -odd   -odd   -odd
rcpt     clear -busy  !no    -busy  -lost  -lost  -stall -stall -lost  +      -odd   -odd   -odd   -odd
data     clear -busy  !no    -busy  -lost  -lost  -stall -stall -lost  +      -odd   -odd   .      -odd
body     clear -busy  !no    -lost  -lost  -lost  -stall -stall -lost  -busy  -odd   -odd   .      -odd
dot      clear -busy  !no    ?fault ?lost  ?lost  ?time  ?time  ?lost  +      ?odd   +      +      ?odd
dot      tls   -busy  !no    ?fault ?lost  ?lost  ?time  ?time  ?lost  +      ?odd   +      +      ?odd
quit     clear +      +      +      +      +      +      +      +      +      +      +      .      +
";

/// How many cases the grid has.
const CELLS: usize = 165;
/// At the stage where the server is silent.
const BRIEF: Duration = Duration::from_millis(400);
/// Everywhere else: long enough for a busy machine.
const PATIENT: Duration = Duration::from_secs(30);
/// More than a socket holds, so that the whole body leaves only if the server reads it.
const LONG_BODY: usize = 5 * 1024 * 1024;

/// What a cell allows.
fn meaning(cell: &str) -> &'static [(OutcomeClass, Reason)] {
    match cell {
        // Whether connect(2) saw it already is the kernel's affair.
        "-gone" => &[(NotSent, Reason::LostBeforeCommit), (NotSent, Reason::Connect)],
        "+" => &[(Accepted, Reason::Ok)],
        "-busy" => &[(NotSent, Reason::TemporarilyRefused)],
        "-lost" => &[(NotSent, Reason::LostBeforeCommit)],
        "-stall" => &[(NotSent, Reason::StalledBeforeCommit)],
        "-odd" => &[(NotSent, Reason::ProtocolBeforeCommit)],
        "-tls" => &[(NotSent, Reason::Tls)],
        "!no" => &[(RefusedMessage, Reason::MessageRefused)],
        "#no" => &[(RefusedAccount, Reason::AccountRefused)],
        "#tls" => &[(RefusedAccount, Reason::TlsRequired)],
        "?fault" => &[(Unknown, Reason::ServerFault)],
        "?lost" => &[(Unknown, Reason::LostAnswer)],
        "?time" => &[(Unknown, Reason::AnswerTimeout)],
        "?odd" => &[(Unknown, Reason::UnreadableAnswer)],
        _ => panic!("{cell} means nothing"),
    }
}

fn stage(name: &str) -> Stage {
    match name {
        "greeting" => Greeting,
        "ehlo" => Ehlo,
        "starttls" => Stage::StartTls,
        "tls" => Tls,
        "auth" => Auth,
        "mail" => Mail,
        "rcpt" => Rcpt,
        "data" => Data,
        "body" => Stage::Body,
        "dot" => Dot,
        "quit" => Stage::Quit,
        _ => panic!("{name} is no stage"),
    }
}

fn act(column: &str, stage: Stage) -> Act {
    let unasked = matches!(stage, Tls | Stage::Body);
    let half = match stage {
        // The beginning of a TLS record.
        Tls => "\x16\x03\x03",
        Stage::Body => "4",
        Data => "3",
        _ => "2",
    };
    match column {
        "4yz" => Reply("451 later"),
        "5yz" => Reply("554 no"),
        "421" => ReplyClose("421 closing"),
        "closed" => Close,
        "reset" => Reset,
        "silent" if stage == Stage::Body => Deaf,
        "silent" => Stall,
        "half" => Half(half),
        "cut" => HalfClose(half),
        "lines" if unasked => Reply("452-too\r\n452 big"),
        "lines" => Wordy,
        "mixed" if unasked => Reply("452-one\r\n554 two"),
        "mixed" => Mixed,
        "twice" if unasked => Reply("250 one\r\n250 two"),
        "twice" => Inject("250 again\r\n"),
        "behind" => Behind("250 again"),
        "noise" => Reply("OK"),
        _ => panic!("{column} is no fault"),
    }
}

/// All the time of the world, but at `stage`.
fn impatient_at(stage: Stage) -> StageTimeouts {
    let mut limits = StageTimeouts::uniform(PATIENT);
    *match stage {
        Greeting => &mut limits.greeting,
        Ehlo => &mut limits.hello,
        Stage::StartTls | Tls => &mut limits.tls,
        Auth => &mut limits.auth,
        Mail => &mut limits.mail,
        Rcpt => &mut limits.rcpt,
        Data => &mut limits.data,
        Stage::Body => &mut limits.body,
        Dot => &mut limits.dot,
        Stage::Quit => &mut limits.quit,
    } = BRIEF;
    limits
}

struct Cell {
    what: String,
    stage: Stage,
    /// The stage is reached under TLS, or on the way there.
    secured: bool,
    after_tls: bool,
    column: &'static str,
    expected: &'static [(OutcomeClass, Reason)],
}

fn cells() -> Vec<Cell> {
    let mut rows = GRID.trim().lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let columns = rows.next().expect("a head");
    let mut cells = vec![];
    for row in rows {
        assert_eq!(row.len(), columns.len(), "{row:?}");
        let (stage, after_tls) = (stage(row[0]), row[1] == "tls");
        let secured = after_tls || matches!(stage, Stage::StartTls | Tls);
        for (&column, &cell) in columns.iter().zip(&row).skip(2).filter(|(_, cell)| **cell != ".") {
            let what = format!("{} over {}, {column}", row[0], row[1]);
            cells.push(Cell { what, stage, secured, after_tls, column, expected: meaning(cell) });
        }
    }
    cells
}

/// Plays a cell; tells what is wrong.
async fn play(cell: Cell, pki: &Pki) -> Option<String> {
    let Cell { what, stage, secured: under_tls, after_tls, column, expected } = cell;
    let good = || if under_tls { Script::starttls(pki.good()).login("mailer", PASSWORD) } else { Script::plain() };
    let act = act(column, stage);
    let faulty = match stage {
        // The first one is in clear.
        Ehlo if after_tls => good().once(Ehlo, Act::Normal).once(Ehlo, act),
        _ => good().on(stage, act),
    };
    let oracle = SmtpOracle::start(faulty).await;
    let settings = if under_tls { secured(&oracle, pki) } else { settings(&oracle) };
    let silent = matches!(column, "silent" | "half");
    let timeouts = if silent { impatient_at(stage) } else { StageTimeouts::uniform(PATIENT) };
    let idle = if stage == Stage::Quit { Duration::ZERO } else { settings.idle };
    let provider = provider(SmtpSettings { timeouts, idle, ..settings });
    let index = index_key();

    let mut message = dispatch(&index, 1, 1, email("user@example.net"));
    if stage == Stage::Body {
        message.content.mail.as_mut().expect("a mail").text = "x".repeat(LONG_BODY);
    }
    let outcome = provider.send(&message, &open_gate()).await;
    if !expected.contains(&(outcome.class, outcome.reason)) {
        return Some(format!("{what}: {} {}", outcome.class, outcome.reason));
    }
    if let Some(lie) = contradiction(&oracle, 1, outcome.class) {
        return Some(format!("{what}: {lie}"));
    }
    if stage == Stage::Quit {
        oracle.wait_until("QUIT", |o| o.commands().iter().any(|verb| verb == "QUIT")).await;
    }

    // Whatever is left of that connection, the next message is not told by it.
    oracle.play(good());
    for attempt in 1..=2 {
        let message = dispatch(&index, 2, attempt, email("user@example.net"));
        let next = provider.send(&message, &open_gate()).await;
        if let Some(lie) = contradiction(&oracle, 2, next.class) {
            return Some(format!("{what}, the next message: {lie}"));
        }
        match next.class {
            Accepted => return None,
            // A busy machine may stall it for longer than the short time-outs here; the oracle agrees that nothing left.
            NotSent if column == "behind" || next.reason == Reason::StalledBeforeCommit => {}
            _ => return Some(format!("{what}, the next message: {} {}", next.class, next.reason)),
        }
    }
    Some(format!("{what}: the next message did not leave"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_fault_at_every_stage_ends_as_the_grid_says() {
    let pki = Pki::new();
    let cells = cells();
    assert_eq!(cells.len(), CELLS, "a cell was lost");
    let played = futures_util::stream::iter(cells).map(|cell| play(cell, &pki)).buffer_unordered(16);
    let wrong: Vec<String> = played.filter_map(std::future::ready).collect().await;
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
