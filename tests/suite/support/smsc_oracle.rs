//! An SMSC that does with each request what a test tells it to, and counts what it truly received. It reads and writes
//! octets by the letter of SMPP 3.4 and shares no code with what it judges.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::listener::listen;
pub use super::smsc_script::{Act, Ids, Script, Stage};

const RESPONSE: u32 = 0x8000_0000;
const SUBMIT: u32 = 4;
const DELIVER: u32 = 5;
const UNBIND: u32 = 6;
const BIND: u32 = 9;
const ENQUIRE: u32 = 0x15;

/// One `submit_sm`, read as a whole.
#[derive(Clone, Debug, Default)]
pub struct Submitted {
    pub source: (u8, u8, String),
    pub destination: (u8, u8, String),
    pub esm_class: u8,
    pub validity: String,
    pub registered: u8,
    pub coding: u8,
    /// `short_message`.
    pub message: Vec<u8>,
    /// `message_payload`.
    pub payload: Option<Vec<u8>>,
    pub sequence: u32,
    /// Which connection it came on, counted from 1.
    pub connection: usize,
    /// The id that the SMSC gave it.
    pub number: u64,
    /// The SMSC has it or, as far as a client can tell, may have it: unless it was refused by a whole answer of one of the
    /// codes that say so.
    pub taken: bool,
}

impl Submitted {
    /// The text, when it is ASCII.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(self.payload.as_ref().unwrap_or(&self.message)).into_owned()
    }
}

#[derive(Default)]
struct Seen {
    connections: usize,
    /// The commands of all PDUs, in order, with the connection.
    commands: Vec<(usize, u32)>,
    passwords: Vec<String>,
    submitted: Vec<Submitted>,
    /// (sequence number, status) of the answers to receipts.
    acknowledged: Vec<(u32, u32)>,
    /// Submissions without an answer, now and at most.
    open: usize,
    most_open: usize,
    /// To the last connection that was bound.
    out: Option<mpsc::UnboundedSender<Out>>,
}

enum Out {
    Octets(Vec<u8>),
    Answered(Vec<u8>),
    Mute,
    Fin,
    Rst,
}

struct Shared {
    script: Mutex<Script>,
    seen: Mutex<Seen>,
    changed: Notify,
}

/// The running SMSC; it ends when this is dropped.
pub struct SmscOracle {
    addr: SocketAddr,
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

fn pdu(command: u32, status: u32, sequence: u32, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(16 + body.len()).expect("a short PDU");
    let head = [length, command, status, sequence].into_iter().flat_map(u32::to_be_bytes);
    head.chain(body.iter().copied()).collect()
}

/// The body of a `deliver_sm` with this class, text and parameters.
pub fn deliver_body(class: u8, text: &str, parameters: &[(u16, &[u8])]) -> Vec<u8> {
    let mut body = b"\0\x01\x0184901234567\0\x05\0Shop\0".to_vec();
    body.extend([class, 0, 0, 0, 0, 0, 0, 0, 0, u8::try_from(text.len()).expect("a short text")]);
    body.extend(text.bytes());
    for (tag, value) in parameters {
        body.extend(tag.to_be_bytes());
        body.extend(u16::try_from(value.len()).expect("a short value").to_be_bytes());
        body.extend(*value);
    }
    body
}

/// A receipt in the text of appendix B.
pub fn receipt(id: &str, word: &str) -> Vec<u8> {
    let text = format!(
        "id:{id} sub:001 dlvrd:001 submit date:2611300200 done date:2611300201 stat:{word} err:000 text:Your code is"
    );
    deliver_body(4, &text, &[])
}

impl SmscOracle {
    /// Starts it on a free loopback port.
    pub async fn start(script: Script) -> Self {
        let shared = Arc::new(Shared { script: Mutex::new(script), seen: Mutex::default(), changed: Notify::new() });
        let accepting = Arc::clone(&shared);
        let (addr, tasks) = listen(move |stream| serve(stream, Arc::clone(&accepting))).await;
        Self { addr, shared, _tasks: tasks }
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Replaces the script; connections that are open follow the new one too.
    pub fn play(&self, script: Script) {
        *self.shared.script.lock().expect("the script") = script;
    }

    fn seen<T>(&self, read: impl FnOnce(&Seen) -> T) -> T {
        read(&self.shared.seen.lock().expect("the counts"))
    }

    /// All submissions that came as a whole.
    pub fn submitted(&self) -> Vec<Submitted> {
        self.seen(|seen| seen.submitted.clone())
    }

    /// How many connections were made.
    pub fn connections(&self) -> usize {
        self.seen(|seen| seen.connections)
    }

    /// How often a request of this kind came.
    pub fn count(&self, stage: Stage) -> usize {
        let wanted = match stage {
            Stage::Bind => BIND,
            Stage::Submit => SUBMIT,
            Stage::Enquire => ENQUIRE,
            Stage::Unbind => UNBIND,
        };
        self.count_command(wanted)
    }

    /// How often a PDU with this `command_id` came.
    pub fn count_command(&self, wanted: u32) -> usize {
        self.seen(|seen| seen.commands.iter().filter(|(_, command)| *command == wanted).count())
    }

    /// The most submissions that were without an answer at once.
    pub fn most_open(&self) -> usize {
        self.seen(|seen| seen.most_open)
    }

    /// Status of the answer to the receipt with this sequence number, once there is one.
    pub fn acknowledged(&self, sequence: u32) -> Option<u32> {
        self.seen(|seen| seen.acknowledged.iter().find(|(s, _)| *s == sequence).map(|(_, status)| *status))
    }

    /// Says something on the last connection that was bound.
    pub fn say(&self, command: u32, sequence: u32, body: &[u8]) {
        let out = self.seen(|seen| seen.out.clone()).expect("a bound session");
        let _ = out.send(Out::Octets(pdu(command, 0, sequence, body)));
    }

    /// Sends a `deliver_sm` and waits for the status of its answer.
    pub async fn deliver(&self, sequence: u32, body: &[u8]) -> u32 {
        self.say(DELIVER, sequence, body);
        self.wait_until("an answer to a receipt", |o| o.acknowledged(sequence).is_some()).await;
        self.acknowledged(sequence).expect("an answer")
    }

    /// Closes the last connection that was bound.
    pub fn hang_up(&self) {
        let out = self.seen(|seen| seen.out.clone()).expect("a bound session");
        let _ = out.send(Out::Fin);
    }

    /// Waits, at most 20 s, until `condition` holds.
    pub async fn wait_until(&self, what: &str, condition: impl Fn(&Self) -> bool) {
        let waiting = async {
            loop {
                let changed = self.shared.changed.notified();
                if condition(self) {
                    return;
                }
                // Somebody else may take the one wake-up that there is.
                let _ = tokio::time::timeout(Duration::from_millis(50), changed).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), waiting).await.unwrap_or_else(|_| panic!("no {what} in 20 s"));
    }
}

async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    let connection = {
        let mut seen = shared.seen.lock().expect("the counts");
        seen.connections += 1;
        seen.connections
    };
    shared.changed.notify_waiters();
    let tls = shared.script.lock().expect("the script").tls.clone();
    match tls {
        None => converse(stream, shared, connection).await,
        Some(tls) => {
            if let Ok(stream) = TlsAcceptor::from(tls).accept(stream).await {
                converse(stream, shared, connection).await;
            }
        }
    }
}

/// What can be reset.
trait Peer: AsyncRead + AsyncWrite + Unpin + Send {
    fn reset(&self);
}

impl Peer for TcpStream {
    fn reset(&self) {
        self.set_zero_linger().expect("an option");
    }
}

impl Peer for tokio_rustls::server::TlsStream<TcpStream> {
    fn reset(&self) {
        self.get_ref().0.set_zero_linger().expect("an option");
    }
}

async fn converse(mut stream: impl Peer, shared: Arc<Shared>, connection: usize) {
    let (out, mut outgoing) = mpsc::unbounded_channel();
    let mut arrived = vec![];
    let mut mute = false;
    loop {
        tokio::select! {
            said = outgoing.recv() => match said.expect("we hold a sender") {
                Out::Octets(octets) | Out::Answered(octets) if mute => drop(octets),
                Out::Octets(octets) => {
                    if stream.write_all(&octets).await.is_err() || stream.flush().await.is_err() {
                        return;
                    }
                }
                Out::Answered(octets) => {
                    shared.seen.lock().expect("the counts").open -= 1;
                    if stream.write_all(&octets).await.is_err() || stream.flush().await.is_err() {
                        return;
                    }
                }
                Out::Mute => mute = true,
                Out::Fin => {
                    let _ = stream.shutdown().await;
                    return;
                }
                Out::Rst => return stream.reset(),
            },
            read = stream.read_buf(&mut arrived) => {
                if !matches!(read, Ok(1..)) {
                    return;
                }
                while let Some(request) = whole(&mut arrived) {
                    answer(&request, &shared, connection, &out);
                    shared.changed.notify_waiters();
                }
            }
        }
    }
}

fn whole(arrived: &mut Vec<u8>) -> Option<Vec<u8>> {
    let length = u32::from_be_bytes(*arrived.first_chunk::<4>()?);
    let length = usize::try_from(length).expect("a length");
    assert!((16..100_000).contains(&length), "a length of {length}");
    (arrived.len() >= length).then(|| arrived.drain(..length).collect())
}

fn word(pdu: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(*pdu[at..].first_chunk().expect("a header"))
}

fn answer(request: &[u8], shared: &Arc<Shared>, connection: usize, out: &mpsc::UnboundedSender<Out>) {
    let (command, status, sequence) = (word(request, 4), word(request, 8), word(request, 12));
    let mut seen = shared.seen.lock().expect("the counts");
    let mut script = shared.script.lock().expect("the script");
    seen.commands.push((connection, command));
    let stage = match command {
        BIND => Stage::Bind,
        SUBMIT => Stage::Submit,
        ENQUIRE => Stage::Enquire,
        UNBIND => Stage::Unbind,
        0x8000_0005 => return seen.acknowledged.push((sequence, status)),
        _ => return,
    };
    let queued = script.queued.get_mut(&stage).and_then(std::collections::VecDeque::pop_front);
    let mut act = queued.or_else(|| script.always.get(&stage).cloned()).unwrap_or(Act::Normal);
    let mut body = vec![];
    match stage {
        Stage::Bind => {
            body = b"oracle\0".to_vec();
            let password = Texts(&request[16..]).nth(1).expect("a password");
            if script.password.as_ref().is_some_and(|right| *right != password) {
                act = Act::Status(0x0e);
            }
            seen.passwords.push(password);
            seen.out = Some(out.clone());
        }
        Stage::Submit => {
            let number = 4_000_000_000 + u64::try_from(seen.submitted.len()).expect("a count");
            let refused = |status: &u32| matches!(status, 1..=7 | 0x0a..=0x66 | 0xc0..=0xc4);
            let taken = !matches!(&act, Act::Status(s) | Act::Nack(s) if refused(s));
            let submitted = Submitted { sequence, connection, number, taken, ..read_submit(&request[16..]) };
            seen.submitted.push(submitted);
            seen.open += 1;
            seen.most_open = seen.most_open.max(seen.open);
            body = format!("{}\0", in_response(script.ids, number)).into_bytes();
        }
        Stage::Enquire | Stage::Unbind => {}
    }
    let number = seen.submitted.last().map_or(0, |s| s.number);
    let delivered = receipt(&in_receipt(script.ids, number), "DELIVRD");
    let counted = stage == Stage::Submit;
    drop((seen, script));
    let ends = stage == Stage::Unbind && matches!(act, Act::Normal);
    perform(act, &Answer { command, sequence, body, counted, delivered }, out);
    if ends {
        let _ = out.send(Out::Fin);
    }
}

struct Answer {
    command: u32,
    sequence: u32,
    body: Vec<u8>,
    counted: bool,
    delivered: Vec<u8>,
}

fn perform(act: Act, answer: &Answer, out: &mpsc::UnboundedSender<Out>) {
    let Answer { command, sequence, body, counted, delivered } = answer;
    let (command, sequence) = (*command, *sequence);
    let normal = pdu(command | RESPONSE, 0, sequence, body);
    let say = |octets: Vec<u8>| drop(out.send(Out::Octets(octets)));
    let finish = |octets: Vec<u8>| drop(out.send(if *counted { Out::Answered(octets) } else { Out::Octets(octets) }));
    let later = |wait: Duration, octets: Vec<u8>| {
        let (out, counted) = (out.clone(), *counted);
        tokio::spawn(async move {
            tokio::time::sleep(wait).await;
            drop(out.send(if counted { Out::Answered(octets) } else { Out::Octets(octets) }));
        });
    };
    let end = |how: Out| drop(out.send(how));
    match act {
        Act::Normal => finish(normal),
        Act::Status(status) => finish(pdu(command | RESPONSE, status, sequence, &[])),
        Act::Nack(status) => finish(pdu(RESPONSE, status, sequence, &[])),
        Act::NackNobody => say(pdu(RESPONSE, 2, 0, &[])),
        Act::Silent => {}
        Act::Half => {
            say(normal[..6].to_vec());
            end(Out::Mute);
        }
        Act::HalfClose => {
            say(normal[..6].to_vec());
            end(Out::Fin);
        }
        Act::Close => end(Out::Fin),
        Act::Reset => end(Out::Rst),
        Act::ThenClose => {
            finish(normal);
            end(Out::Fin);
        }
        Act::ThenUnbind => {
            finish(normal);
            say(pdu(UNBIND, 0, 900, &[]));
        }
        Act::OtherSequence => say(pdu(command | RESPONSE, 0, sequence + 1000, body)),
        Act::OtherCommand => say(pdu(ENQUIRE | RESPONSE, 0, sequence, &[])),
        Act::Twice => {
            finish(normal.clone());
            say(normal);
        }
        Act::Bare => finish(pdu(command | RESPONSE, 0, sequence, &[])),
        Act::Late(wait) => later(wait, normal),
        Act::Noise => say(vec![0xff; 16]),
        Act::UnbindInstead => {
            say(pdu(UNBIND, 0, 900, &[]));
            end(Out::Fin);
        }
        Act::EnquireFirst => {
            say(pdu(ENQUIRE, 0, 901, &[]));
            finish(normal);
        }
        Act::ReceiptFirst(wait) => {
            say(pdu(DELIVER, 0, 902, delivered));
            later(wait, normal);
        }
    }
}

fn in_response(ids: Ids, number: u64) -> String {
    if ids == Ids::HexInResponse { format!("{number:X}") } else { number.to_string() }
}

/// The id that a receipt for this message has.
pub fn in_receipt(ids: Ids, number: u64) -> String {
    match ids {
        Ids::Same => number.to_string(),
        Ids::HexInResponse => format!("{number:012}"),
        Ids::HexInReceipt => format!("{number:010x}"),
    }
}

/// C-octet strings one behind the other.
struct Texts<'a>(&'a [u8]);

impl Iterator for Texts<'_> {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        let end = self.0.iter().position(|b| *b == 0)?;
        let text = String::from_utf8_lossy(&self.0[..end]).into_owned();
        self.0 = &self.0[end + 1..];
        Some(text)
    }
}

impl Texts<'_> {
    fn text(&mut self) -> String {
        self.next().expect("a text")
    }

    fn octet(&mut self) -> u8 {
        let octet = self.0[0];
        self.0 = &self.0[1..];
        octet
    }
}

/// Section 4.4.1, field by field.
fn read_submit(body: &[u8]) -> Submitted {
    let mut fields = Texts(body);
    let mut read = Submitted::default();
    fields.text();
    read.source = (fields.octet(), fields.octet(), fields.text());
    read.destination = (fields.octet(), fields.octet(), fields.text());
    read.esm_class = fields.octet();
    assert_eq!((fields.octet(), fields.octet()), (0, 0), "protocol_id and priority_flag");
    assert_eq!(fields.text(), "", "delivery is not scheduled");
    read.validity = fields.text();
    read.registered = fields.octet();
    assert_eq!(fields.octet(), 0, "replace_if_present_flag");
    read.coding = fields.octet();
    assert_eq!(fields.octet(), 0, "sm_default_msg_id");
    let length = usize::from(fields.octet());
    let (message, mut rest) = fields.0.split_at(length);
    read.message = message.to_vec();
    while let [t0, t1, l0, l1, more @ ..] = rest {
        let (value, behind) = more.split_at(usize::from(u16::from_be_bytes([*l0, *l1])));
        assert_eq!(u16::from_be_bytes([*t0, *t1]), 0x0424, "a parameter that nobody asked for");
        read.payload = Some(value.to_vec());
        rest = behind;
    }
    assert!(rest.is_empty());
    read
}
