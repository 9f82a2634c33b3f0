//! An SMTP server that does at each stage what a test tells it to, and counts what it truly received.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

use super::listener::listen;
pub use super::smtp_script::{Act, Script, Stage};
use super::smtp_words::{address, decoded};

/// A message whose final dot came.
#[derive(Clone, Debug)]
pub struct Received {
    pub from: String,
    pub to: Vec<String>,
    /// What followed the address in MAIL.
    pub mail_parameters: String,
    /// The message without its dots doubled.
    pub data: Vec<u8>,
    /// The server has it or, as far as a client can tell, may have it: whatever becomes of the answer, unless that is a
    /// complete 4yz or 5yz other than 421.
    pub taken: bool,
    /// Which connection it came on, counted from 1.
    pub connection: usize,
}

impl Received {
    /// The value of a header that stands on one line.
    pub fn header(&self, name: &str) -> Option<String> {
        let text = String::from_utf8_lossy(&self.data);
        let mut head = text.split("\r\n").take_while(|line| !line.is_empty());
        head.find_map(|l| l.strip_prefix(&format!("{name}: ")).map(str::to_owned))
    }
}

#[derive(Default)]
struct Seen {
    connections: usize,
    /// Every line outside of messages, and whether it came under TLS.
    lines: Vec<(bool, String)>,
    messages: Vec<Received>,
}

struct Shared {
    script: Mutex<Script>,
    seen: Mutex<Seen>,
    changed: Notify,
}

/// The running server; it ends when this is dropped.
pub struct SmtpOracle {
    addr: SocketAddr,
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

impl SmtpOracle {
    /// Starts it on a free loopback port.
    pub async fn start(script: Script) -> Self {
        let shared = Arc::new(Shared { script: Mutex::new(script), seen: Mutex::default(), changed: Notify::new() });
        let accepting = Arc::clone(&shared);
        let (addr, tasks) = listen(move |stream| converse(stream, Arc::clone(&accepting))).await;
        Self { addr, shared, _tasks: tasks }
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Replaces the script; connections that are open follow the new one too.
    #[allow(dead_code, reason = "for tests of a server that recovers")]
    pub fn play(&self, script: Script) {
        *self.shared.script.lock().expect("the script") = script;
    }

    /// All messages whose final dot came.
    pub fn messages(&self) -> Vec<Received> {
        self.shared.seen.lock().expect("the counts").messages.clone()
    }

    /// How many connections were made.
    pub fn connections(&self) -> usize {
        self.shared.seen.lock().expect("the counts").connections
    }

    /// The verbs of all commands, in order.
    pub fn commands(&self) -> Vec<String> {
        let seen = self.shared.seen.lock().expect("the counts");
        let verb = |line: &str| line.split([' ', ':']).next().unwrap_or_default().to_ascii_uppercase();
        seen.lines.iter().map(|(_, line)| verb(line)).collect()
    }

    /// Every line outside of messages that came in clear.
    pub fn heard_in_clear(&self) -> Vec<String> {
        let seen = self.shared.seen.lock().expect("the counts");
        seen.lines.iter().filter(|(tls, _)| !tls).map(|(_, line)| line.clone()).collect()
    }

    /// The messages, once there are `n` of them; waits at most 10 s.
    pub async fn wait_for(&self, n: usize) -> Vec<Received> {
        self.wait_until(&format!("{n} messages"), |oracle| oracle.messages().len() >= n).await;
        self.messages()
    }

    /// Waits, at most 10 s, until `condition` holds.
    pub async fn wait_until(&self, what: &str, condition: impl Fn(&Self) -> bool) {
        let waiting = async {
            loop {
                let changed = self.shared.changed.notified();
                if condition(self) {
                    return;
                }
                changed.await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), waiting).await.unwrap_or_else(|_| panic!("no {what} in 10 s"));
    }
}

/// A reply that says, all its lines through, that the message was not taken.
fn refuses(reply: &str) -> bool {
    let code = reply.get(..3).unwrap_or_default();
    code.starts_with(['4', '5']) && code != "421" && reply.split("\r\n").all(|line| line.starts_with(code))
}

trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// The connection is over.
struct Over;

struct Dialogue {
    io: Box<dyn Io>,
    unread: bytes::BytesMut,
    tls: bool,
    connection: usize,
    authenticated: bool,
    shared: Arc<Shared>,
}

async fn converse(stream: TcpStream, shared: Arc<Shared>) {
    let connection = {
        let mut seen = shared.seen.lock().expect("the counts");
        seen.connections += 1;
        seen.connections
    };
    shared.changed.notify_waiters();
    let script = shared.script.lock().expect("the script").clone();
    let resets = script.always.values().chain(script.queued.values().flatten()).any(|a| matches!(a, Act::Reset));
    if resets {
        stream.set_zero_linger().expect("an option of the socket");
    }
    let io: Box<dyn Io> = Box::new(stream);
    let mut dialogue =
        Dialogue { io, unread: bytes::BytesMut::new(), tls: false, connection, authenticated: false, shared };
    // How a dialogue ends is for the client to tell.
    let _ = dialogue.run(script.implicit).await;
}

impl Dialogue {
    fn script<T>(&self, read: impl FnOnce(&Script) -> T) -> T {
        read(&self.shared.script.lock().expect("the script"))
    }

    fn next_act(&self, stage: Stage) -> Act {
        let mut script = self.shared.script.lock().expect("the script");
        let queued = script.queued.get_mut(&stage).and_then(VecDeque::pop_front);
        queued.or_else(|| script.always.get(&stage).cloned()).unwrap_or(Act::Normal)
    }

    async fn write(&mut self, text: &str) -> Result<(), Over> {
        self.io.write_all(text.as_bytes()).await.map_err(|_| Over)?;
        self.io.flush().await.map_err(|_| Over)
    }

    async fn say(&mut self, reply: &str) -> Result<bool, Over> {
        self.write(&format!("{reply}\r\n")).await?;
        Ok(reply.starts_with(['2', '3']))
    }

    /// Reads on until the client is gone.
    async fn stall(&mut self) -> Over {
        let mut bin = [0; 1024];
        while !matches!(self.io.read(&mut bin).await, Ok(0) | Err(_)) {}
        Over
    }

    /// Plays a stage. `Ok(true)` when it answered so that a client goes on.
    async fn stage(&mut self, stage: Stage, normal: &str) -> Result<bool, Over> {
        match self.next_act(stage) {
            Act::Normal if stage == Stage::Body => Ok(true),
            act => self.perform(act, normal).await,
        }
    }

    async fn perform(&mut self, act: Act, normal: &str) -> Result<bool, Over> {
        match act {
            Act::Normal => self.say(normal).await,
            Act::Reply(reply) => self.say(reply).await,
            Act::ReplyClose(reply) => {
                self.say(reply).await?;
                Err(Over)
            }
            Act::Late(wait, reply) => {
                tokio::time::sleep(wait).await;
                self.say(reply).await
            }
            Act::Inject(extra) => {
                self.write(&format!("{normal}\r\n{extra}")).await?;
                Ok(true)
            }
            Act::Behind(reply) => {
                self.say(normal).await?;
                if matches!(self.io.read_buf(&mut self.unread).await, Ok(0) | Err(_)) {
                    return Err(Over);
                }
                self.say(reply).await
            }
            Act::Wordy => self.say(&format!("{}-more\r\n{normal}", &normal[..3])).await,
            Act::Mixed => self.say(&format!("{}-one\r\n554 two", &normal[..3])).await,
            Act::Half(text) => {
                self.write(text).await?;
                Err(self.stall().await)
            }
            Act::HalfClose(text) => {
                self.write(text).await?;
                Err(Over)
            }
            Act::Close | Act::Reset => Err(Over),
            Act::Stall => Err(self.stall().await),
            Act::Deaf => std::future::pending().await,
        }
    }

    async fn line(&mut self) -> Result<Vec<u8>, Over> {
        loop {
            if let Some(end) = self.unread.windows(2).position(|w| w == b"\r\n") {
                return Ok(self.unread.split_to(end + 2)[..end].to_vec());
            }
            match self.io.read_buf(&mut self.unread).await {
                Ok(0) | Err(_) => return Err(Over),
                Ok(_) => {}
            }
        }
    }

    async fn command(&mut self) -> Result<String, Over> {
        let line = String::from_utf8_lossy(&self.line().await?).into_owned();
        self.shared.seen.lock().expect("the counts").lines.push((self.tls, line.clone()));
        self.shared.changed.notify_waiters();
        Ok(line)
    }

    async fn handshake(&mut self, config: Arc<ServerConfig>) -> Result<(), Over> {
        match self.next_act(Stage::Tls) {
            Act::Normal => {}
            act => {
                // Not before the client's hello, which is when a client stops reading in clear.
                let _ = self.io.read_buf(&mut self.unread).await;
                return self.perform(act, "").await.and(Err(Over));
            }
        }
        let (placeholder, _) = tokio::io::duplex(1);
        let io = std::mem::replace(&mut self.io, Box::new(placeholder));
        self.io = Box::new(TlsAcceptor::from(config).accept(io).await.map_err(|_| Over)?);
        self.tls = true;
        Ok(())
    }

    fn hello(&self) -> String {
        let mut lines = vec!["oracle.test".to_owned()];
        self.script(|s| {
            if s.starttls.is_some() && !self.tls {
                lines.push("STARTTLS".to_owned());
            }
            if s.login.is_some() {
                lines.push(format!("AUTH {}", s.mechanisms));
            }
            lines.extend(s.capabilities.iter().map(|&c| c.to_owned()));
        });
        let last = lines.len() - 1;
        let lines = lines.iter().enumerate().map(|(i, l)| format!("250{}{l}", if i == last { ' ' } else { '-' }));
        lines.collect::<Vec<_>>().join("\r\n")
    }

    async fn run(&mut self, implicit: Option<Arc<ServerConfig>>) -> Result<(), Over> {
        if let Some(config) = implicit {
            self.handshake(config).await?;
        }
        self.stage(Stage::Greeting, "220 oracle.test ESMTP").await?;
        let (mut from, mut to): (Option<(String, String)>, Vec<String>) = (None, vec![]);
        loop {
            let command = self.command().await?;
            let upper = command.to_ascii_uppercase();
            if upper.starts_with("EHLO ") {
                let hello = self.hello();
                self.stage(Stage::Ehlo, &hello).await?;
            } else if upper == "STARTTLS" {
                let config = self.script(|s| s.starttls.clone());
                if self.stage(Stage::StartTls, "220 go ahead").await? {
                    self.handshake(config.ok_or(Over)?).await?;
                }
            } else if upper.starts_with("AUTH ") {
                self.auth(&command).await?;
            } else if upper.starts_with("MAIL FROM:") {
                let normal = if self.script(|s| s.login.is_some()) && !self.authenticated {
                    "530 5.7.0 Authentication required"
                } else {
                    "250 2.1.0 Ok"
                };
                let ok = self.stage(Stage::Mail, normal).await?;
                from = ok.then(|| address(&command));
                to.clear();
            } else if upper.starts_with("RCPT TO:") {
                if self.stage(Stage::Rcpt, "250 2.1.5 Ok").await? {
                    to.push(address(&command).0);
                }
            } else if upper == "DATA" {
                if self.stage(Stage::Data, "354 End data with <CR><LF>.<CR><LF>").await? {
                    let (from, mail_parameters) = from.take().ok_or(Over)?;
                    self.message(from, mail_parameters, std::mem::take(&mut to)).await?;
                }
            } else if upper == "QUIT" {
                self.stage(Stage::Quit, "221 2.0.0 Bye").await?;
                return Err(Over);
            } else {
                self.say("502 5.5.1 What?").await?;
            }
        }
    }

    async fn auth(&mut self, command: &str) -> Result<(), Over> {
        let given = match command.split_once(' ').map(|(_, rest)| rest.split_once(' ')) {
            Some(Some(("PLAIN", initial))) => {
                let text = decoded(initial);
                let mut parts = text.split('\0').skip(1).map(str::to_owned);
                (parts.next().unwrap_or_default(), parts.next().unwrap_or_default())
            }
            _ => {
                self.say("334 VXNlcm5hbWU6").await?;
                let user = self.command().await?;
                self.say("334 UGFzc3dvcmQ6").await?;
                let password = self.command().await?;
                (decoded(&user), decoded(&password))
            }
        };
        let good = self.script(|s| s.login.as_ref() == Some(&given));
        let normal = if good { "235 2.7.0 Ok" } else { "535 5.7.8 Authentication credentials invalid" };
        self.authenticated = self.stage(Stage::Auth, normal).await? && good;
        Ok(())
    }

    async fn message(&mut self, from: String, mail_parameters: String, to: Vec<String>) -> Result<(), Over> {
        let mut data = vec![];
        let mut first = true;
        loop {
            let line = self.line().await?;
            if line == b"." {
                break;
            }
            if std::mem::take(&mut first) {
                self.stage(Stage::Body, "").await?;
            }
            data.extend_from_slice(line.strip_prefix(b".").unwrap_or(&line));
            data.extend_from_slice(b"\r\n");
        }
        let connection = self.connection;
        let act = self.next_act(Stage::Dot);
        let taken = match &act {
            Act::Reply(reply) | Act::ReplyClose(reply) | Act::Late(_, reply) => !refuses(reply),
            _ => true,
        };
        let received = Received { from, to, mail_parameters, data, taken, connection };
        let count = {
            let mut seen = self.shared.seen.lock().expect("the counts");
            seen.messages.push(received);
            seen.messages.len()
        };
        self.shared.changed.notify_waiters();
        self.perform(act, &format!("250 2.0.0 Ok: queued as ORACLE{count}")).await.map(drop)
    }
}
