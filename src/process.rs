//! Life as a process: signals, the supervisor's notifications (sd_notify(3)), sockets that it hands over (sd_listen_fds(3)),
//! and no core dump.

use std::io;
use std::net::{self, SocketAddr};
use std::time::Duration;

use listenfd::ListenFd;
use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
use sd_notify::NotifyState;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What the outside wants of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stop {
    /// Go on.
    No,
    /// Take in nothing more, let what is under way finish, then end.
    Drain,
    /// End at once; what is under way is left to the next start.
    Now,
}

/// Watches for SIGTERM and SIGINT: the first means [`Stop::Drain`], a second [`Stop::Now`]. The watching task ends when
/// every receiver is gone or nothing more can follow.
///
/// # Errors
/// When the handlers cannot be set up.
pub fn watch_signals() -> io::Result<watch::Receiver<Stop>> {
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let (tell, receiver) = watch::channel(Stop::No);
    tokio::spawn(async move {
        for stop in [Stop::Drain, Stop::Now] {
            tokio::select! {
                () = either(&mut term, &mut int) => {}
                () = tell.closed() => return,
            }
            tell.send_replace(stop);
        }
    });
    Ok(receiver)
}

async fn either(a: &mut Signal, b: &mut Signal) {
    tokio::select! {
        _ = a.recv() => {}
        _ = b.recv() => {}
    }
}

/// Completes when the process is to stop, at the latest when nobody can ask for it any more.
pub async fn stopping(mut stop: watch::Receiver<Stop>) {
    let _ = stop.wait_for(|s| *s >= Stop::Drain).await;
}

/// Sees to it that no core dump is made of this process, whatever the limits say that it was started with: keys and messages
/// are in its memory. A limit alone does not stop a dump that the kernel pipes to a program (core(5)); prctl(2)
/// PR_SET_DUMPABLE does, and also keeps other processes of the same user from attaching.
///
/// # Errors
/// When the kernel refuses.
pub fn leave_no_core() -> io::Result<()> {
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// What the machine calls itself.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Tells the supervisor that the daemon takes requests.
pub fn notify_ready() {
    notify(NotifyState::Ready);
}

/// Tells the supervisor that the daemon is stopping, and may take `drain` for it.
pub fn notify_stopping(drain: Duration) {
    notify(NotifyState::Stopping);
    let micros = drain.saturating_add(Duration::from_secs(10)).as_micros();
    notify(NotifyState::ExtendTimeoutUsec(u32::try_from(micros).unwrap_or(u32::MAX)));
}

/// Without a supervisor there is nobody to tell, and a supervisor that does not listen is its own trouble.
fn notify(state: NotifyState<'_>) {
    if let Err(e) = sd_notify::notify(&[state]) {
        tracing::debug!(kind = %e.kind(), "the supervisor could not be told");
    }
}

/// Pings the supervisor's watchdog, where it has one (`WatchdogSec=`), while `is_alive` says so; half of the watchdog's
/// time is left for a ping that comes late.
pub fn feed_watchdog(is_alive: impl Fn() -> bool + Send + 'static) -> Option<JoinHandle<()>> {
    let every = sd_notify::watchdog_enabled()? / 2;
    Some(tokio::spawn(ping_while(is_alive, every, || notify(NotifyState::Watchdog))))
}

/// Never ends; a silence lasts only as long as its cause, and how long that may be is for the supervisor to say.
async fn ping_while(is_alive: impl Fn() -> bool, every: Duration, ping: impl Fn()) {
    let mut was_alive = true;
    loop {
        let alive = is_alive();
        if alive {
            ping();
        } else if was_alive {
            tracing::error!("not alive; the supervisor's watchdog is no longer pinged");
        }
        was_alive = alive;
        tokio::time::sleep(every).await;
    }
}

/// The sockets that the supervisor handed over.
#[derive(Debug, Default)]
pub struct Sockets {
    api: Option<net::TcpListener>,
    admin: Option<net::TcpListener>,
}

/// Which listener is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// The API; `FileDescriptorName=api`.
    Api,
    /// Health and metrics; `FileDescriptorName=admin`.
    Admin,
}

impl Sockets {
    /// Takes over what the supervisor left for this process; to be called once, early.
    ///
    /// # Errors
    /// When what it left is no listening TCP socket.
    pub fn inherited() -> io::Result<Self> {
        let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
        let mut fds = ListenFd::from_env();
        let (api, admin) = assign(&names, fds.len());
        let mut take = |index: Option<usize>| index.map_or(Ok(None), |i| fds.take_tcp_listener(i));
        Ok(Self { api: take(api)?, admin: take(admin)? })
    }

    /// A listener for `door`: bound here at `address`, or the one that was handed over where there is none. To be called
    /// within the runtime.
    ///
    /// # Errors
    /// When the address cannot be bound, or no socket was handed over for this door.
    pub async fn listen(&mut self, door: Door, address: Option<SocketAddr>) -> io::Result<TcpListener> {
        let inherited = match door {
            Door::Api => &mut self.api,
            Door::Admin => &mut self.admin,
        };
        match address {
            Some(address) => TcpListener::bind(address).await,
            None => {
                let missing = || io::Error::new(io::ErrorKind::NotFound, "no socket was handed over by systemd");
                let listener = inherited.take().ok_or_else(missing)?;
                listener.set_nonblocking(true)?;
                TcpListener::from_std(listener)
            }
        }
    }
}

/// Which of `count` sockets is which: by its name, or by its order where no socket has a name of ours.
fn assign(names: &str, count: usize) -> (Option<usize>, Option<usize>) {
    let find = |name| names.split(':').take(count).position(|n| n == name);
    match (find("api"), find("admin")) {
        (None, None) => ((count > 0).then_some(0), (count > 1).then_some(1)),
        named => named,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn sockets_are_told_apart_by_name_or_else_by_order() {
        for (names, count, wanted) in [
            ("", 0, (None, None)),
            ("", 1, (Some(0), None)),
            ("sendonce.socket:sendonce.socket", 2, (Some(0), Some(1))),
            ("admin:api", 2, (Some(1), Some(0))),
            ("admin", 1, (None, Some(0))),
            ("x:api", 1, (Some(0), None)),
        ] {
            assert_eq!(assign(names, count), wanted, "{names} {count}");
        }
    }

    #[tokio::test]
    async fn the_first_signal_asks_to_stop_and_the_second_to_stop_at_once() {
        let mut stop = watch_signals().expect("handlers");
        assert_eq!(*stop.borrow_and_update(), Stop::No);
        for (name, wanted) in [("-TERM", Stop::Drain), ("-INT", Stop::Now)] {
            let me = std::process::id().to_string();
            let sent = std::process::Command::new("kill").args([name, &me]).status().expect("a kill program");
            assert!(sent.success());
            tokio::time::timeout(Duration::from_secs(10), stop.changed()).await.expect("in time").expect("watched");
            assert_eq!(*stop.borrow_and_update(), wanted);
        }
        stopping(stop).await;
    }

    #[tokio::test]
    async fn a_handed_over_socket_is_used_and_its_lack_is_told() {
        let listener = net::TcpListener::bind("127.0.0.1:0").expect("a socket");
        let address = listener.local_addr().expect("an address");
        let mut sockets = Sockets { api: Some(listener), admin: None };
        let api = sockets.listen(Door::Api, None).await.expect("a listener");
        assert_eq!(api.local_addr().expect("an address"), address);
        for door in [Door::Api, Door::Admin] {
            let missing = sockets.listen(door, None).await.expect_err("nothing is left");
            assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        }
    }

    #[tokio::test]
    async fn the_watchdog_is_pinged_while_alive_and_again_when_alive_again() {
        let (alive, pings) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
        let (asks, count) = (Arc::new(AtomicUsize::new(0)), pings.clone());
        let task = tokio::spawn({
            let (alive, asks) = (alive.clone(), asks.clone());
            let is_alive = move || {
                asks.fetch_add(1, Ordering::SeqCst);
                alive.load(Ordering::SeqCst)
            };
            ping_while(is_alive, Duration::from_millis(1), move || {
                count.fetch_add(1, Ordering::SeqCst);
            })
        });
        let reaches = async |counter: &AtomicUsize, n| {
            let wait = async {
                while counter.load(Ordering::SeqCst) < n {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            tokio::time::timeout(Duration::from_secs(10), wait).await.expect("in time");
        };
        reaches(&pings, 3).await;
        alive.store(false, Ordering::SeqCst);
        reaches(&asks, asks.load(Ordering::SeqCst) + 2).await;
        let silent = pings.load(Ordering::SeqCst);
        reaches(&asks, asks.load(Ordering::SeqCst) + 5).await;
        assert_eq!(pings.load(Ordering::SeqCst), silent);
        alive.store(true, Ordering::SeqCst);
        reaches(&pings, silent + 2).await;
        task.abort();
    }
}
