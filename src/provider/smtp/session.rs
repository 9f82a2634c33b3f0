//! The dialogue with one server: from the connection to a session that can take a message, and one message.

use std::time::Duration;

use data_encoding::BASE64;
use futures_util::FutureExt as _;
use secrecy::{ExposeSecret as _, SecretString};
use zeroize::Zeroizing;

use super::classify::{self, Stage};
use super::reply::Reply;
use super::settings::{SmtpSettings, StageTimeouts};
use super::tls::Security;
use super::wire::{Fault, Wire, dot_stuffed, within};
use crate::domain::outcome::{Outcome, OutcomeClass, Reason};
use crate::provider::gate::Gate;
use crate::provider::net::{Tls, connect};

/// What the server offers, from its last EHLO (RFC 3207 section 4.2: what it said before TLS is forgotten).
#[derive(Default)]
struct Offers {
    starttls: bool,
    plain: bool,
    login: bool,
    smtputf8: bool,
    eight_bit: bool,
}

impl Offers {
    fn read(reply: &Reply) -> Self {
        let mut offers = Self::default();
        for line in reply.keywords() {
            let mut words = line.split_ascii_whitespace();
            match words.next() {
                Some("STARTTLS") => offers.starttls = true,
                Some("SMTPUTF8") => offers.smtputf8 = true,
                Some("8BITMIME") => offers.eight_bit = true,
                Some("AUTH") => {
                    let mechanisms: Vec<_> = words.collect();
                    offers.plain |= mechanisms.contains(&"PLAIN");
                    offers.login |= mechanisms.contains(&"LOGIN");
                }
                _ => {}
            }
        }
        offers
    }
}

/// One message, ready for the wire.
pub(super) struct Letter {
    /// The sender's address in the envelope.
    pub(super) from: String,
    /// The recipient's.
    pub(super) to: String,
    /// The whole message.
    pub(super) bytes: Zeroizing<Vec<u8>>,
}

/// Why MAIL did not succeed.
pub(super) struct MailFailure {
    /// What it means when the connection was new.
    pub(super) outcome: Outcome,
    /// The server had given the connection up, so that on one that waited it says nothing about the message.
    pub(super) stale: bool,
}

/// A connection that is ready for MAIL.
pub(super) struct Session {
    wire: Wire,
    offers: Offers,
    limits: StageTimeouts,
}

impl Session {
    /// Connects, greets, secures and authenticates. No byte of a message leaves, so every failure is certain.
    pub(super) async fn open(settings: &SmtpSettings, security: &Security) -> Result<Self, Outcome> {
        let limits = settings.timeouts;
        let mut stream = connect(&settings.host, settings.port, limits.connect).await?;
        if let Security::Implicit(tls) = security {
            stream = tls.handshake(stream, limits.tls).await?;
        }
        let mut session = Self { wire: Wire::new(stream), offers: Offers::default(), limits };
        session.greeting().await?;
        session.hello(&settings.hello_name).await?;
        if let Security::StartTls(tls) = security {
            session = session.starttls(tls).await?;
            session.hello(&settings.hello_name).await?;
        }
        if let Some((user, password)) = &settings.credentials {
            session.auth(user, password).await?;
        }
        Ok(session)
    }

    /// Says `line` and reads the reply to it.
    async fn ask(&mut self, line: &str, limit: Duration) -> Result<Reply, Fault> {
        self.wire.silent()?;
        let line = Zeroizing::new(format!("{line}\r\n"));
        within(limit, async {
            self.wire.write(line.as_bytes()).await?;
            self.wire.reply().await
        })
        .await
    }

    async fn greeting(&mut self) -> Result<(), Outcome> {
        let reply = within(self.limits.greeting, self.wire.reply()).await;
        expect(Stage::Greeting, reply, |code| code == 220).map(drop)
    }

    async fn hello(&mut self, name: &str) -> Result<(), Outcome> {
        let reply = self.ask(&format!("EHLO {name}"), self.limits.hello).await;
        self.offers = Offers::read(&expect(Stage::Hello, reply, |code| code == 250)?);
        Ok(())
    }

    async fn starttls(mut self, tls: &Tls) -> Result<Self, Outcome> {
        if !self.offers.starttls {
            return Err(Outcome::new(OutcomeClass::RefusedAccount, Reason::TlsRequired));
        }
        let reply = self.ask("STARTTLS", self.limits.tls).await;
        expect(Stage::StartTls, reply, |code| code == 220)?;
        let stream = self.wire.into_stream().map_err(|f| classify::fault(Stage::StartTls, f))?;
        let stream = tls.handshake(stream, self.limits.tls).await?;
        Ok(Self { wire: Wire::new(stream), offers: Offers::default(), limits: self.limits })
    }

    /// AUTH PLAIN (RFC 4616) with an initial response, else LOGIN, which some servers offer alone.
    async fn auth(&mut self, user: &str, password: &SecretString) -> Result<(), Outcome> {
        let limit = self.limits.auth;
        let password = password.expose_secret();
        let reply = if self.offers.plain {
            let secret = Zeroizing::new(format!("\0{user}\0{password}"));
            let line = Zeroizing::new(format!("AUTH PLAIN {}", *encoded(&secret)));
            self.ask(&line, limit).await
        } else if self.offers.login {
            let asks = |reply| expect(Stage::Auth, reply, |code| code == 334).map(drop);
            asks(self.ask("AUTH LOGIN", limit).await)?;
            asks(self.ask(&encoded(user), limit).await)?;
            self.ask(&encoded(password), limit).await
        } else {
            return Err(Outcome::new(OutcomeClass::RefusedAccount, Reason::AccountRefused));
        };
        expect(Stage::Auth, reply, |code| code == 235).map(drop)
    }

    /// Begins a transaction.
    pub(super) async fn mail(&mut self, letter: &Letter) -> Result<(), MailFailure> {
        let utf8 = !letter.from.is_ascii() || !letter.to.is_ascii();
        let eight_bit = !letter.bytes.is_ascii();
        if (utf8 && !self.offers.smtputf8) || (eight_bit && !self.offers.eight_bit) {
            let outcome = Outcome::new(OutcomeClass::RefusedMessage, Reason::NeedsSmtpUtf8);
            return Err(MailFailure { outcome, stale: false });
        }
        let mut line = format!("MAIL FROM:<{}>", letter.from);
        if utf8 {
            line.push_str(" SMTPUTF8");
        }
        if eight_bit {
            line.push_str(" BODY=8BITMIME");
        }
        let reply = self.ask(&line, self.limits.mail).await;
        let stale = match &reply {
            Ok(reply) => reply.code() == 421,
            Err(fault) => matches!(fault, Fault::Lost | Fault::Garbled),
        };
        expect(Stage::Mail, reply, done).map(drop).map_err(|outcome| MailFailure { outcome, stale })
    }

    /// The rest of the transaction after MAIL. `Ok` is the server's 2yz to the final dot.
    pub(super) async fn deliver(&mut self, letter: &Letter, gate: &Gate) -> Result<Reply, Outcome> {
        let reply = self.ask(&format!("RCPT TO:<{}>", letter.to), self.limits.rcpt).await;
        expect(Stage::Rcpt, reply, done)?;
        let reply = self.ask("DATA", self.limits.data).await;
        expect(Stage::Data, reply, |code| code == 354)?;
        self.body(letter).await?;
        gate.check()?;
        let dot = async {
            self.wire.write(b".\r\n").await?;
            self.wire.reply().await
        };
        expect(Stage::Dot, within(self.limits.dot, dot).await, done)
    }

    /// Writes the message up to, and without, the dot that commits.
    async fn body(&mut self, letter: &Letter) -> Result<(), Outcome> {
        let limit = self.limits.body;
        let bytes = Zeroizing::new(dot_stuffed(&letter.bytes));
        let before = |fault| classify::fault(Stage::Body, fault);
        self.wire.silent().map_err(before)?;
        within(limit, self.wire.write(&bytes)).await.map_err(before)?;
        match self.wire.silent() {
            Ok(()) => Ok(()),
            // It has spoken before the end: whatever it says, without the dot it has not taken the message.
            Err(Fault::Garbled) => expect(Stage::Body, within(limit, self.wire.reply()).await, |_| false).map(drop),
            Err(fault) => Err(before(fault)),
        }
    }

    /// A polite end, for a session whose last transaction is settled.
    pub(super) async fn quit(mut self) {
        // Whatever the answer, the connection is over.
        let _ = self.ask("QUIT", self.limits.quit).await;
    }

    /// Says QUIT as far as it goes at once, without waiting for the answer: for the end of the process.
    pub(super) fn leave(mut self) {
        let _ = self.wire.write(b"QUIT\r\n").now_or_never();
    }
}

fn encoded(secret: &str) -> Zeroizing<String> {
    Zeroizing::new(BASE64.encode(secret.as_bytes()))
}

/// 2yz alone is success; 3yz is not.
const fn done(code: u16) -> bool {
    matches!(code, 200..=299)
}

fn expect(stage: Stage, reply: Result<Reply, Fault>, wanted: fn(u16) -> bool) -> Result<Reply, Outcome> {
    match reply {
        Ok(reply) if wanted(reply.code()) => Ok(reply),
        Ok(reply) => Err(classify::reply(stage, &reply)),
        Err(fault) => Err(classify::fault(stage, fault)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

    use super::*;
    use crate::clock::ManualClock;
    use crate::domain::time::Timestamp;

    /// A session after MAIL, over a pipe so narrow that the body cannot leave while the server does not read.
    fn session() -> (Session, DuplexStream) {
        let (client, server) = tokio::io::duplex(64);
        let limits = StageTimeouts::uniform(Duration::from_secs(2));
        (Session { wire: Wire::new(Box::new(client)), offers: Offers::default(), limits }, server)
    }

    async fn deliver(mut session: Session) -> Outcome {
        let letter = Letter {
            from: "a@example.org".to_owned(),
            to: "b@example.org".to_owned(),
            bytes: Zeroizing::new(b"0123456789\r\n".repeat(100)),
        };
        let gate =
            Gate::new(ManualClock::at(Timestamp::default()), Duration::from_secs(1), Timestamp::from_micros(1_000_000));
        match session.deliver(&letter, &gate).await {
            Ok(_) => Outcome::new(OutcomeClass::Accepted, Reason::Ok),
            Err(outcome) => outcome,
        }
    }

    /// Answers RCPT and DATA, and reads the beginning of the body.
    async fn into_body(server: &mut DuplexStream) {
        for reply in ["250 ok\r\n", "354 go on\r\n"] {
            let mut line = [0; 64];
            assert!(server.read(&mut line).await.expect("a pipe") > 0);
            server.write_all(reply.as_bytes()).await.expect("a pipe");
        }
        let mut some = [0; 10];
        server.read_exact(&mut some).await.expect("a body");
    }

    #[tokio::test]
    async fn a_loss_or_a_stall_in_the_middle_of_the_body_is_certain() {
        let (client, mut server) = session();
        let (outcome, ()) = tokio::join!(deliver(client), async move { into_body(&mut server).await });
        assert_eq!(outcome, Outcome::not_sent(Reason::LostBeforeCommit));

        let (client, mut server) = session();
        let (outcome, ()) = tokio::join!(deliver(client), into_body(&mut server));
        assert_eq!(outcome, Outcome::not_sent(Reason::StalledBeforeCommit));
    }

    #[tokio::test]
    async fn a_reply_in_the_middle_of_the_body_holds_the_dot_back() {
        let message = |reason| Outcome::new(OutcomeClass::RefusedMessage, reason);
        for (reply, wanted) in [
            ("552 5.3.4 too big\r\n", message(Reason::MessageRefused)),
            ("452 4.3.1 disk full\r\n", Outcome::not_sent(Reason::TemporarilyRefused)),
            ("421 4.3.2 closing\r\n", Outcome::not_sent(Reason::TemporarilyRefused)),
            ("250 2.0.0 Ok\r\n", Outcome::not_sent(Reason::ProtocolBeforeCommit)),
        ] {
            let (client, mut server) = session();
            let serving = async {
                into_body(&mut server).await;
                server.write_all(reply.as_bytes()).await.expect("a pipe");
                let mut rest = vec![];
                server.read_to_end(&mut rest).await.expect("a pipe");
                rest
            };
            let (outcome, rest) = tokio::join!(deliver(client), serving);
            assert_eq!(outcome, wanted, "{reply}");
            assert!(!rest.ends_with(b"\r\n.\r\n"), "{reply}");
        }
    }

    #[tokio::test]
    async fn the_gate_is_asked_after_the_body_and_before_the_dot() {
        let (mut client, mut server) = session();
        let clock = ManualClock::at(Timestamp::default());
        let gate = Gate::new(Arc::clone(&clock) as _, Duration::from_secs(1), Timestamp::from_micros(500_000));
        let letter =
            Letter { from: String::new(), to: "b@example.org".to_owned(), bytes: Zeroizing::new(b"x\r\n".repeat(100)) };
        let serving = async {
            into_body(&mut server).await;
            clock.advance(Duration::from_millis(600));
            let mut rest = vec![];
            server.read_to_end(&mut rest).await.expect("a pipe");
            rest
        };
        let delivering = async move { client.deliver(&letter, &gate).await.map(|reply| reply.code()) };
        let (outcome, rest) = tokio::join!(delivering, serving);
        assert_eq!(outcome, Err(Outcome::never_began(Reason::DeadlinePassed)));
        assert!(rest.ends_with(b"x\r\n") && !rest.ends_with(b".\r\n"));
    }
}
