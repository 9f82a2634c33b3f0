//! Every kind of fault at every point of an exchange, in one table, read by two manifests without a rule for any fault: one
//! whose verdict is the status, and one whose verdict is the body.
//!
//! An outcome is `+` accepted, `-` certainly not sent, `#` refused for our account, `?` unknown, and the reason. `came` is
//! how many complete requests the provider has read.
//!
//! What to look for: `-` stands only where no request was begun, and `came` is 0 there. `#` stands at the redirects that
//! send the request itself elsewhere (RFC 9110 sections 15.4.2, 15.4.8, 15.4.9) and where what answers is not whom we
//! trust or speaks no TLS, and nowhere else. Everything that no rule tells is `?`. A 2xx is `+` by status as soon as its
//! head is whole, and by body only if the body is whole and says so.

use std::net::SocketAddr;

use futures_util::StreamExt as _;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use super::*;
use crate::support::http_oracle::Accept;
use crate::support::pki::Pki;
use crate::support::port::refusing;

const TABLE: &str = "
fault                                       by status                 by body                   came
name does not resolve                       -dns                      -dns                      0
port refuses                                -connect                  -connect                  0
port takes nobody in                        -connect                  -connect                  0
tls: closed in the handshake                -connect                  -connect                  0
tls: reset in the handshake                 -connect                  -connect                  0
tls: silent in the handshake                -connect                  -connect                  0
tls: another protocol                       #tls_required             #tls_required             0
tls: certificate of a stranger              #tls                      #tls                      0
request: closed before it                   ?lost_answer              ?lost_answer              0
request: closed at its first octet          ?lost_answer              ?lost_answer              0
request: reset at its first octet           ?lost_answer              ?lost_answer              0
request: silent at its body                 ?answer_timeout           ?answer_timeout           0
answer: closed before it                    ?lost_answer              ?lost_answer              1
answer: reset before it                     ?lost_answer              ?lost_answer              1
answer: silent before it                    ?answer_timeout           ?answer_timeout           1
answer: half a status line, closed          ?lost_answer              ?lost_answer              1
answer: half a status line, silent          ?answer_timeout           ?answer_timeout           1
answer: half a head, closed                 ?lost_answer              ?lost_answer              1
answer: half a head, silent                 ?answer_timeout           ?answer_timeout           1
answer: another protocol                    ?unreadable_answer        ?unreadable_answer        1
answer: binary noise                        ?unreadable_answer        ?unreadable_answer        1
answer: two lengths                         ?unreadable_answer        ?unreadable_answer        1
answer: a head without end                  ?unreadable_answer        ?unreadable_answer        1
body: good                                  +ok                       +ok                       1
body: without the word                      +accepted_without_id      ?unclassified             1
body: cut                                   +accepted_without_id      ?unreadable_answer        1
body: silent in it                          +accepted_without_id      ?unreadable_answer        1
body: without end                           +accepted_without_id      ?unreadable_answer        1
body: of another length than told           +accepted_without_id      ?unreadable_answer        1
body: chunks that are none                  +accepted_without_id      ?unreadable_answer        1
body: web page                              +accepted_without_id      ?unreadable_answer        1
body: binary noise                          +accepted_without_id      ?unreadable_answer        1
body: nested too deep                       +accepted_without_id      ?unreadable_answer        1
status 100, then 201                        +ok                       +ok                       1
status 103, then 201                        +ok                       +ok                       1
status 100, then silent                     ?answer_timeout           ?answer_timeout           1
status 101                                  ?unclassified             ?unclassified             1
status 202                                  +accepted_without_id      ?unreadable_answer        1
status 204                                  +accepted_without_id      ?unreadable_answer        1
status 299                                  +accepted_without_id      ?unreadable_answer        1
status 300                                  ?redirected               ?redirected               1
status 301                                  #redirected               #redirected               1
status 302                                  ?redirected               ?redirected               1
status 303                                  ?redirected               ?redirected               1
status 304                                  ?redirected               ?redirected               1
status 307                                  #redirected               #redirected               1
status 308                                  #redirected               #redirected               1
status 400                                  ?unclassified             ?unclassified             1
status 401                                  ?unclassified             ?unclassified             1
status 404                                  ?unclassified             ?unclassified             1
status 408                                  ?server_fault             ?server_fault             1
status 409                                  ?unclassified             ?unclassified             1
status 425                                  ?unclassified             ?unclassified             1
status 429                                  ?unclassified             ?unclassified             1
status 500                                  ?server_fault             ?server_fault             1
status 502                                  ?server_fault             ?server_fault             1
status 503                                  ?server_fault             ?server_fault             1
status 504                                  ?server_fault             ?server_fault             1
status 511                                  ?server_fault             ?server_fault             1
status 600                                  ?unclassified             ?unclassified             1
status 999                                  ?unclassified             ?unclassified             1
kept connection: closed while it waits      +ok                       +ok                       1
kept connection: closed at the next request ?lost_answer              ?lost_answer              0
";

/// How many rows the table has.
const ROWS: usize = 63;

const MANIFEST: &str = r#"
name = "table"
channel = "sms"
page = "https://vendor.example"
[settings]
base_url = {}
[send]
method = "POST"
url = "{{ base_url }}/send"
verdict = "VERDICT"
message_id = "/id"
answers = [{ status = "2xx", code = "/state", any = ["queued"], is = "accepted" }]
[send.json]
to = "{{ to }}"
text = "{{ text }}"
"#;

const GOOD: &str = r#"{"id":"m1","state":"queued"}"#;
/// More than a socket holds, so that it leaves whole only if the other side reads.
const LONG: usize = 6 * 1024 * 1024;

/// How long a silent side is waited for; long enough for a busy machine to have sent the request.
const BRIEF: Duration = Duration::from_secs(3);

/// What the other side does.
enum Fault {
    Unresolved,
    Refused,
    /// The kernel's queue of a listener is full.
    Full,
    Tls(Accept),
    Connection(Accept),
    /// Nothing is read, and the request does not fit a socket.
    Unread,
    Answer(Reply),
    /// The first request got this good answer.
    Second(Reply),
}

fn raw(text: &str) -> Vec<u8> {
    text.replace('\n', "\r\n").into_bytes()
}

fn good(head: &str) -> Vec<u8> {
    raw(&format!("{head}HTTP/1.1 201 Created\nContent-Length: {}\n\n{GOOD}", GOOD.len()))
}

fn body(bytes: impl Into<Vec<u8>>) -> Reply {
    Reply::Answer { status: 200, headers: vec![], body: bytes.into() }
}

fn fault(name: &str, pki: &Pki) -> Fault {
    use Fault::{Answer, Connection, Tls};
    use Reply::{Raw, RawThenStall};
    let half_head = raw("HTTP/1.1 201 Created\nContent-Le");
    match name {
        "name does not resolve" => Fault::Unresolved,
        "port refuses" => Fault::Refused,
        "port takes nobody in" => Fault::Full,
        "tls: closed in the handshake" => Tls(Accept::CloseAtFirst),
        "tls: reset in the handshake" => Tls(Accept::ResetAtFirst),
        "tls: silent in the handshake" => Tls(Accept::Stall),
        "tls: another protocol" => Tls(Accept::Garbage),
        "tls: certificate of a stranger" => Tls(Accept::Handshake(pki.good())),
        "request: closed before it" => Connection(Accept::Close),
        "request: closed at its first octet" => Connection(Accept::CloseAtFirst),
        "request: reset at its first octet" => Connection(Accept::ResetAtFirst),
        "request: silent at its body" => Fault::Unread,
        "answer: closed before it" => Answer(Reply::Close),
        "answer: reset before it" => Answer(Reply::Reset),
        "answer: silent before it" => Answer(Reply::Stall),
        "answer: half a status line, closed" => Answer(Raw(raw("HTTP/1.1 20"))),
        "answer: half a status line, silent" => Answer(RawThenStall(raw("HTTP/1.1 20"))),
        "answer: half a head, closed" => Answer(Raw(half_head)),
        "answer: half a head, silent" => Answer(RawThenStall(half_head)),
        "answer: another protocol" => Answer(Raw(raw("250 ok\n\n"))),
        "answer: binary noise" => Answer(Raw((0..=255).rev().collect())),
        "answer: two lengths" => Answer(Raw(raw("HTTP/1.1 201 X\nContent-Length: 5\nContent-Length: 7\n\n12345"))),
        "answer: a head without end" => Answer(Raw(raw(&format!("HTTP/1.1 201 X\n{}", "X-More: 1\n".repeat(100_000))))),
        "body: good" => Answer(body(GOOD)),
        "body: without the word" => Answer(body("{}")),
        "body: cut" => Answer(Reply::cut(201, GOOD)),
        "body: silent in it" => Answer(RawThenStall(raw("HTTP/1.1 201 X\nContent-Length: 100\n\n{"))),
        "body: without end" => Answer(Reply::Endless(201)),
        "body: of another length than told" => Answer(Raw(raw("HTTP/1.1 201 X\nContent-Length: 3\n\n{\"id\":\"m1\"}"))),
        "body: chunks that are none" => Answer(Raw(raw("HTTP/1.1 201 X\nTransfer-Encoding: chunked\n\nzz\n{}\n"))),
        "body: web page" => Answer(body("<html>busy</html>")),
        "body: binary noise" => Answer(body((0..=255).collect::<Vec<u8>>())),
        "body: nested too deep" => Answer(body("[".repeat(50_000))),
        "status 100, then 201" => Answer(Raw(good(&"HTTP/1.1 100 Continue\n\n".repeat(3)))),
        "status 103, then 201" => Answer(Raw(good("HTTP/1.1 103 Early Hints\nLink: </x>\n\n"))),
        "status 100, then silent" => Answer(RawThenStall(raw("HTTP/1.1 100 Continue\n\n"))),
        "status 101" => Answer(RawThenStall(raw("HTTP/1.1 101 X\nUpgrade: x\nConnection: upgrade\n\n"))),
        "kept connection: closed while it waits" => Fault::Second(Raw(good(""))),
        "kept connection: closed at the next request" => {
            Fault::Second(Reply::ThenCloseAtNext(Box::new(Reply::json(201, GOOD))))
        }
        _ => {
            let status = name.strip_prefix("status ").and_then(|text| text.parse().ok());
            Answer(Reply::status(status.unwrap_or_else(|| panic!("{name} is no fault"))).header("Location", "/x"))
        }
    }
}

struct Row {
    name: &'static str,
    verdict: &'static str,
    expected: &'static str,
    came: usize,
}

fn rows() -> Vec<Row> {
    let cells =
        |line: &'static str| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect::<Vec<_>>();
    let mut rows = vec![];
    for line in TABLE.trim().lines().skip(1) {
        // The longest name leaves a single blank.
        let (name, rest) = line.split_at(44);
        let [by_status, by_body, came] = cells(rest)[..] else { panic!("{line}") };
        for (verdict, expected) in [("status", by_status), ("body", by_body)] {
            rows.push(Row { name: name.trim(), verdict, expected, came: came.parse().expect("a number") });
        }
    }
    rows
}

/// A listener whose queue is full, with what fills it.
struct Queue {
    address: SocketAddr,
    _listener: TcpListener,
    _waiting: Vec<TcpStream>,
}

async fn full() -> Queue {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind(([127, 0, 0, 1], 0).into()).expect("a free port");
    let listener = socket.listen(1).expect("a listener");
    let address = listener.local_addr().expect("an address");
    let mut waiting = vec![];
    for _ in 0..16 {
        match tokio::time::timeout(Duration::from_millis(300), TcpStream::connect(address)).await {
            Ok(stream) => waiting.push(stream.expect("a connection")),
            Err(_) => return Queue { address, _listener: listener, _waiting: waiting },
        }
    }
    panic!("the queue takes everybody in");
}

fn short(outcome: &Outcome) -> String {
    let sign = match outcome.class {
        OutcomeClass::Accepted => '+',
        OutcomeClass::NotSent => '-',
        OutcomeClass::RefusedAccount => '#',
        OutcomeClass::RefusedMessage => '!',
        OutcomeClass::Unknown => '?',
        OutcomeClass::NeverBegan => '.',
    };
    format!("{sign}{}", outcome.reason)
}

/// A row with the two sides of its exchange.
struct Stand {
    row: Row,
    fault: Fault,
    oracle: HttpOracle,
    provider: HttpProvider,
    _queue: Option<Queue>,
}

async fn stand(row: Row, pki: &Pki) -> Stand {
    let oracle = HttpOracle::start().await;
    let fault = fault(row.name, pki);
    let queue = if matches!(fault, Fault::Full) { Some(full().await) } else { None };
    let url = match &fault {
        Fault::Unresolved => "http://sendonce.invalid".to_owned(),
        Fault::Refused => format!("http://{}", refusing()),
        Fault::Full => format!("http://{}", queue.as_ref().expect("a queue").address),
        Fault::Tls(_) => oracle.url().replace("http://127.0.0.1", "https://localhost"),
        _ => oracle.url(),
    };
    let timeouts = match &fault {
        Fault::Full | Fault::Tls(Accept::Stall) => HttpTimeouts { connect: BRIEF, ..PATIENT },
        _ if row.name.contains("silent") => HttpTimeouts { connect: BRIEF - Duration::from_millis(1), total: BRIEF },
        _ => PATIENT,
    };
    let manifest = Manifest::parse("table.toml", &MANIFEST.replace("VERDICT", row.verdict)).expect("without mistakes");
    let settings = secret(&[("base_url", &url), ("allow_http", "true")]);
    let provider = build(manifest, settings, timeouts, None).expect("good settings");
    Stand { row, fault, oracle, provider, _queue: queue }
}

/// Plays a row; tells what is wrong.
async fn play(Stand { row, fault, oracle, provider, _queue }: Stand) -> Option<String> {
    let Row { name, verdict, expected, came } = row;
    let mut message = dispatch(Channel::Sms);
    match fault {
        Fault::Tls(accept) | Fault::Connection(accept) => oracle.accept(accept),
        Fault::Unread => {
            oracle.accept(Accept::Stall);
            message.content.sms = Some("x".repeat(LONG));
        }
        Fault::Answer(reply) => oracle.play([reply]),
        Fault::Second(first) => {
            let waits = matches!(first, Reply::Raw(_));
            oracle.play([first, Reply::json(201, GOOD)]);
            assert_eq!(short(&provider.send(&message, &gate()).await), "+ok", "{name}: the first request");
            if waits {
                oracle.wait_for_hang_ups(1, PATIENT.total).await;
            }
        }
        Fault::Unresolved | Fault::Refused | Fault::Full => {}
    }
    let before = oracle.requests().len();
    let outcome = provider.send(&message, &gate()).await;
    let read = oracle.requests().len() - before;
    let certainly_not = !matches!(outcome.class, OutcomeClass::Accepted | OutcomeClass::Unknown);
    let told = format!("{name}, by {verdict}: {}, and {read} came", short(&outcome));
    if certainly_not && read > 0 && outcome.reason != Reason::Redirected {
        return Some(format!("{told}: not sent, says the provider, and the other side has it"));
    }
    ((short(&outcome).as_str(), read) != (expected, came)).then_some(told)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_fault_at_every_point_ends_as_the_table_says() {
    let pki = Pki::new();
    let rows = rows();
    assert_eq!(rows.len(), 2 * ROWS, "a row was lost");
    // All are built before a clock runs: roots and clients take the time of a processor.
    let stands: Vec<Stand> = futures_util::stream::iter(rows).then(|row| stand(row, &pki)).collect().await;
    let played = futures_util::stream::iter(stands).map(play).buffer_unordered(64);
    let wrong: Vec<String> = played.filter_map(std::future::ready).collect().await;
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
