//! A fake HTTP provider on a real socket. It keeps its own ledger of every request that it read to the end, which is
//! what a test compares the daemon's word with, and misbehaves exactly as it is told.
//!
//! ```ignore
//! let oracle = HttpOracle::start().await;
//! oracle.script(|seen| if seen.contains("+4477") { Reply::json(201, r#"{"sid":"SM1"}"#) } else { Reply::Close });
//! let seen = oracle.wait_for(1, Duration::from_secs(5)).await;
//! assert_eq!(oracle.count("reference"), 1);
//! ```

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

/// One complete request, as it came.
#[derive(Clone, Debug)]
pub struct Seen {
    pub method: String,
    /// Path and query.
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Seen {
    /// A header by name, in any case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str())
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON; null when it is none.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// Whether path, a header's value or the body holds `part`.
    pub fn contains(&self, part: &str) -> bool {
        self.path.contains(part) || self.text().contains(part) || self.headers.iter().any(|(_, v)| v.contains(part))
    }
}

/// What becomes of a connection before its first request.
#[derive(Clone, Debug)]
pub enum Accept {
    /// It is served.
    Serve,
    /// It is closed at once.
    Close,
    /// Nothing is ever read from it.
    Stall,
    /// It is greeted with text that is neither TLS nor HTTP, and left open.
    Garbage,
    /// It is closed when its first octets have come.
    CloseAtFirst,
    /// It is reset when its first octets have come.
    ResetAtFirst,
    /// A TLS handshake; what follows it is not read.
    Handshake(Arc<ServerConfig>),
}

/// What the oracle does with a request that it has read to its end and entered in its ledger.
#[derive(Clone, Debug)]
pub enum Reply {
    /// A whole answer; the connection stays open.
    Answer { status: u16, headers: Vec<(String, String)>, body: Vec<u8> },
    /// These bytes, then the end of the connection: half a status line, a cut body.
    Raw(Vec<u8>),
    /// These bytes, then silence.
    RawThenStall(Vec<u8>),
    /// A status and a body without end.
    Endless(u16),
    /// The end of the connection without a byte.
    Close,
    /// RST.
    Reset,
    /// Silence.
    Stall,
    /// Another reply, after a wait.
    Late(Duration, Box<Reply>),
    /// Another reply, once the gate is open.
    Gated(watch::Receiver<bool>, Box<Reply>),
    /// A receipt is posted and answered first, then the other reply follows.
    AfterReceipt(Post, Box<Reply>),
    /// The other reply first, then a receipt is posted.
    ThenReceipt(Box<Reply>, Post),
    /// The other reply, which keeps the connection; it is closed when the next request begins to come.
    ThenCloseAtNext(Box<Reply>),
}

impl Reply {
    /// A JSON answer.
    pub fn json(status: u16, body: impl ToString) -> Self {
        let headers = vec![("Content-Type".to_owned(), "application/json".to_owned())];
        Self::Answer { status, headers, body: body.to_string().into_bytes() }
    }

    /// An answer without a body.
    pub fn status(status: u16) -> Self {
        Self::Answer { status, headers: vec![], body: vec![] }
    }

    /// The same answer with one more header.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        if let Self::Answer { headers, .. } = &mut self {
            headers.push((name.to_owned(), value.to_owned()));
        }
        self
    }

    /// The same reply, after a wait.
    pub fn late(self, by: Duration) -> Self {
        Self::Late(by, Box::new(self))
    }

    /// The same reply, once `gate` is open.
    pub fn gated(self, gate: &watch::Sender<bool>) -> Self {
        Self::Gated(gate.subscribe(), Box::new(self))
    }

    /// A redirect.
    pub fn redirect(status: u16, to: &str) -> Self {
        Self::status(status).header("Location", to)
    }

    /// An answer whose body ends before its `Content-Length`.
    pub fn cut(status: u16, body: &str) -> Self {
        let length = body.len() + 100;
        Self::Raw(format!("HTTP/1.1 {status} X\r\nContent-Length: {length}\r\n\r\n{body}").into_bytes())
    }

    /// The same reply, after a receipt was posted and answered.
    pub fn after_receipt(self, post: Post) -> Self {
        Self::AfterReceipt(post, Box::new(self))
    }

    /// The same reply, and a receipt after it.
    pub fn then_receipt(self, post: Post) -> Self {
        Self::ThenReceipt(Box::new(self), post)
    }
}

/// A receipt to be posted.
#[derive(Clone, Debug)]
pub struct Post {
    /// `http://HOST:PORT/PATH?QUERY`.
    pub url: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

/// A moment of an exchange, for what must happen at it and at no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The connection stands.
    Connected,
    /// The head of a request was read, its body perhaps not.
    Head,
    /// The whole request was read and entered in the ledger, and nothing is answered.
    Read,
    /// A part of the answer's status line was written.
    HalfAnswered,
    /// The whole answer was written.
    Answered,
}

type Script = Arc<dyn Fn(&Seen) -> Reply + Send + Sync>;
type Witness = Arc<dyn Fn(Moment, Option<&Seen>) + Send + Sync>;

struct State {
    accept: Mutex<Accept>,
    script: Mutex<Script>,
    witness: Mutex<Option<Witness>>,
    seen: Mutex<Vec<Seen>>,
    connections: Mutex<usize>,
    hung_up: watch::Sender<usize>,
    receipts: Mutex<Vec<u16>>,
    count: watch::Sender<usize>,
    tasks: Mutex<Vec<AbortHandle>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The fake provider. Dropping it closes its port and every connection.
pub struct HttpOracle {
    address: SocketAddr,
    state: Arc<State>,
}

impl HttpOracle {
    /// Listens on a free port of the loopback; every request is answered 200 `{}` until a script is set.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("its address");
        let state = Arc::new(State {
            accept: Mutex::new(Accept::Serve),
            script: Mutex::new(Arc::new(|_: &Seen| Reply::json(200, "{}"))),
            witness: Mutex::default(),
            seen: Mutex::default(),
            connections: Mutex::default(),
            hung_up: watch::Sender::new(0),
            receipts: Mutex::default(),
            count: watch::Sender::new(0),
            tasks: Mutex::default(),
        });
        let shared = Arc::clone(&state);
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                *lock(&shared.connections) += 1;
                let serving = tokio::spawn(serve(stream, Arc::clone(&shared)));
                let mut tasks = lock(&shared.tasks);
                tasks.retain(|t| !t.is_finished());
                tasks.push(serving.abort_handle());
            }
        });
        lock(&state.tasks).push(accepting.abort_handle());
        Self { address, state }
    }

    /// `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Decides the reply to each request from now on.
    pub fn script(&self, script: impl Fn(&Seen) -> Reply + Send + Sync + 'static) {
        *lock(&self.state.script) = Arc::new(script);
    }

    /// Has `witness` called at every moment, before anything else happens there.
    pub fn witness(&self, witness: impl Fn(Moment, Option<&Seen>) + Send + Sync + 'static) {
        *lock(&self.state.witness) = Some(Arc::new(witness));
    }

    /// Plays `replies` one after the other, and repeats the last one.
    pub fn play(&self, replies: impl IntoIterator<Item = Reply>) {
        let replies = Mutex::new(replies.into_iter().collect::<VecDeque<_>>());
        self.script(move |_| {
            let mut replies = lock(&replies);
            if replies.len() > 1 { replies.pop_front() } else { replies.front().cloned() }.unwrap_or(Reply::Close)
        });
    }

    /// Decides what becomes of connections from now on.
    pub fn accept(&self, accept: Accept) {
        *lock(&self.state.accept) = accept;
    }

    /// Every complete request so far.
    pub fn requests(&self) -> Vec<Seen> {
        lock(&self.state.seen).clone()
    }

    /// How many complete requests hold `part` in path, headers or body.
    pub fn count(&self, part: &str) -> usize {
        lock(&self.state.seen).iter().filter(|seen| seen.contains(part)).count()
    }

    /// How many connections came.
    pub fn connections(&self) -> usize {
        *lock(&self.state.connections)
    }

    /// The status of each answer to a posted receipt; 0 where there was none.
    pub fn receipt_answers(&self) -> Vec<u16> {
        lock(&self.state.receipts).clone()
    }

    /// Waits until `n` clients have closed a connection after the oracle had ended it.
    pub async fn wait_for_hang_ups(&self, n: usize, deadline: Duration) {
        let mut hung_up = self.state.hung_up.subscribe();
        let reached = tokio::time::timeout(deadline, hung_up.wait_for(|have| *have >= n)).await.is_ok();
        assert!(reached, "not {n} hung up within {deadline:?}");
    }

    /// Waits until `n` complete requests have come, and gives all that there are then.
    pub async fn wait_for(&self, n: usize, deadline: Duration) -> Vec<Seen> {
        let mut count = self.state.count.subscribe();
        let reached = tokio::time::timeout(deadline, count.wait_for(|have| *have >= n)).await.is_ok();
        assert!(reached, "{} of {n} requests within {deadline:?}", self.requests().len());
        self.requests()
    }
}

impl Drop for HttpOracle {
    fn drop(&mut self) {
        lock(&self.state.tasks).iter().for_each(AbortHandle::abort);
    }
}

impl State {
    fn has_come(&self, moment: Moment, seen: Option<&Seen>) {
        let witness = lock(&self.witness).clone();
        if let Some(witness) = witness {
            witness(moment, seen);
        }
    }
}

async fn serve(mut stream: TcpStream, state: Arc<State>) {
    let accept = lock(&state.accept).clone();
    match accept {
        Accept::Serve => {}
        Accept::Close => return,
        Accept::Stall => std::future::pending().await,
        Accept::Garbage => {
            let _ = stream.write_all(b"220 this is a mail server\r\n").await;
            std::future::pending().await
        }
        Accept::CloseAtFirst => {
            let _ = stream.read_u8().await;
            return;
        }
        Accept::ResetAtFirst => {
            let _ = (stream.set_zero_linger(), stream.read_u8().await);
            return;
        }
        Accept::Handshake(config) => {
            let _open = TlsAcceptor::from(config).accept(stream).await;
            return std::future::pending().await;
        }
    }
    let _ = stream.set_nodelay(true);
    state.has_come(Moment::Connected, None);
    let mut buffer = vec![];
    while let Ok(Some(seen)) = read_request(&mut stream, &mut buffer, &state).await {
        let script = Arc::clone(&lock(&state.script));
        let reply = {
            let mut ledger = lock(&state.seen);
            ledger.push(seen.clone());
            state.count.send_replace(ledger.len());
            drop(ledger);
            state.has_come(Moment::Read, Some(&seen));
            script(&seen)
        };
        if !perform(&mut stream, &state, &seen, reply).await {
            return;
        }
    }
}

/// Plays one reply; tells whether the connection may be used again.
async fn perform(stream: &mut TcpStream, state: &State, seen: &Seen, reply: Reply) -> bool {
    match reply {
        Reply::Answer { status, headers, body } => {
            let mut head = format!("HTTP/1.1 {status} X\r\n");
            for (name, value) in headers {
                head.push_str(&format!("{name}: {value}\r\n"));
            }
            if status != 204 {
                head.push_str(&format!("Content-Length: {}\r\n", body.len()));
            }
            head.push_str("\r\n");
            let answer = [head.as_bytes(), &body].concat();
            // In two packets only for the one who looks between them.
            let half = if lock(&state.witness).is_some() { "HTTP/1.1 2".len() } else { 0 };
            let (first, rest) = answer.split_at(half);
            let begun = stream.write_all(first).await.is_ok();
            state.has_come(Moment::HalfAnswered, Some(seen));
            let whole = begun && stream.write_all(rest).await.is_ok();
            state.has_come(Moment::Answered, Some(seen));
            whole
        }
        Reply::Raw(bytes) => {
            let _ = stream.write_all(&bytes).await;
            let _ = stream.shutdown().await;
            // Until the other side has closed too.
            while matches!(stream.read(&mut [0; 1024]).await, Ok(1..)) {}
            state.hung_up.send_modify(|n| *n += 1);
            false
        }
        Reply::RawThenStall(bytes) => {
            let _ = stream.write_all(&bytes).await;
            std::future::pending().await
        }
        Reply::Endless(status) => {
            let head = format!("HTTP/1.1 {status} X\r\nContent-Length: 1000000000\r\n\r\n");
            let mut going = stream.write_all(head.as_bytes()).await.is_ok();
            while going {
                going = stream.write_all(&[b'x'; 8192]).await.is_ok();
            }
            false
        }
        Reply::Close => false,
        Reply::Reset => {
            let _ = stream.set_zero_linger();
            false
        }
        Reply::Stall => std::future::pending().await,
        Reply::Late(by, then) => {
            tokio::time::sleep(by).await;
            Box::pin(perform(stream, state, seen, *then)).await
        }
        Reply::Gated(mut gate, then) => {
            let opened = gate.wait_for(|open| *open).await.is_ok();
            opened && Box::pin(perform(stream, state, seen, *then)).await
        }
        Reply::AfterReceipt(receipt, then) => {
            let status = post(&receipt).await;
            lock(&state.receipts).push(status);
            Box::pin(perform(stream, state, seen, *then)).await
        }
        Reply::ThenCloseAtNext(first) => {
            let _ = (Box::pin(perform(stream, state, seen, *first)).await, stream.read_u8().await);
            false
        }
        Reply::ThenReceipt(first, receipt) => {
            let open = Box::pin(perform(stream, state, seen, *first)).await;
            let status = post(&receipt).await;
            lock(&state.receipts).push(status);
            open
        }
    }
}

/// Posts a receipt, and gives the status of its answer; 0 when there was none.
pub async fn post(receipt: &Post) -> u16 {
    let exchange = async {
        let rest = receipt.url.strip_prefix("http://").unwrap_or(&receipt.url);
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        let mut stream = TcpStream::connect(host).await?;
        let mut head = format!("POST /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n");
        for (name, value) in &receipt.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str(&format!("Content-Length: {}\r\n\r\n", receipt.body.len()));
        stream.write_all(&[head.as_bytes(), &receipt.body].concat()).await?;
        let mut answer = vec![];
        while !answer.contains(&b'\n') && stream.read_buf(&mut answer).await? > 0 {}
        let status = String::from_utf8_lossy(&answer).split(' ').nth(1).and_then(|s| s.parse().ok());
        io::Result::Ok(status.unwrap_or(0))
    };
    tokio::time::timeout(Duration::from_secs(10), exchange).await.map_or(0, |status| status.unwrap_or(0))
}

/// Reads one request to its end; `None` when the connection ends before.
async fn read_request(stream: &mut TcpStream, buffer: &mut Vec<u8>, state: &State) -> io::Result<Option<Seen>> {
    let head_end = loop {
        if let Some(at) = buffer.windows(4).position(|w| w == b"\r\n\r\n") {
            break at + 4;
        }
        if buffer.len() > 64 * 1024 || stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    };
    let head = String::from_utf8_lossy(&buffer[..head_end]).into_owned();
    let mut lines = head.lines();
    let mut first = lines.next().unwrap_or_default().split(' ').map(str::to_owned);
    let (method, path) = (first.next().unwrap_or_default(), first.next().unwrap_or_default());
    let header = |line: &str| line.split_once(':').map(|(n, v)| (n.to_owned(), v.trim().to_owned()));
    let headers: Vec<(String, String)> = lines.filter_map(header).collect();
    let mut seen = Seen { method, path, headers, body: vec![] };
    state.has_come(Moment::Head, Some(&seen));
    let length = seen.header("content-length").and_then(|v| v.parse::<usize>().ok()).unwrap_or(0);
    while buffer.len() < head_end + length {
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    }
    seen.body = buffer[head_end..head_end + length].to_vec();
    buffer.drain(..head_end + length);
    Ok(Some(seen))
}
