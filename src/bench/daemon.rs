//! The real daemon as a child process: this program's own `serve`, with its own configuration, store and keys.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::wire::Wire;
use super::{BenchError, now};

/// How long a start or a stop may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often somebody else may have been faster at a port.
const TRIES: usize = 5;

/// A daemon that runs. Dropping it kills the process that it is, and no other.
pub(super) struct Daemon {
    child: Child,
    /// The API's port.
    pub port: u16,
    /// From its start to the first yes of `/readyz`.
    pub started_in: Duration,
}

/// What the kernel tells of a process.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Usage {
    /// Resident memory, in MiB.
    pub resident: f64,
    /// The most that it ever was, in MiB.
    pub peak: f64,
    /// Processor time so far.
    pub processor: Duration,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn failed(what: &'static str) -> impl Fn(std::io::Error) -> BenchError {
    move |e| BenchError::Io(what, e.kind())
}

/// Two different ports that were free just now.
fn free_ports() -> std::io::Result<(u16, u16)> {
    let (one, other) = (TcpListener::bind("127.0.0.1:0")?, TcpListener::bind("127.0.0.1:0")?);
    Ok((one.local_addr()?.port(), other.local_addr()?.port()))
}

impl Daemon {
    /// Starts `program serve` with what `configure` makes of two ports, and waits until it is ready.
    pub async fn start(
        program: &Path,
        dir: &Path,
        configure: impl Fn(u16, u16) -> Result<std::path::PathBuf, BenchError>,
    ) -> Result<Self, BenchError> {
        let log = dir.join("daemon.log");
        for _ in 0..TRIES {
            let (port, admin) = free_ports().map_err(failed("a free port"))?;
            let config = configure(port, admin)?;
            let out = File::create(&log).map_err(failed("the daemon's log"))?;
            let err = out.try_clone().map_err(failed("the daemon's log"))?;
            let began = now();
            let mut command = Command::new(program);
            command.arg("serve").arg("--config").arg(config).env_remove("RUST_LOG");
            command.stdin(Stdio::null()).stdout(out).stderr(err);
            let child = command.spawn().map_err(failed("the daemon"))?;
            let mut daemon = Self { child, port, started_in: Duration::ZERO };
            if daemon.ready(admin, began).await? {
                daemon.started_in = now().saturating_sub(began);
                return Ok(daemon);
            }
            let said = fs::read_to_string(&log).unwrap_or_default();
            if !said.contains("cannot listen") {
                return Err(BenchError::Daemon(last_lines(&said)));
            }
        }
        Err(BenchError::Daemon("found no free port".to_owned()))
    }

    /// `false`: it has ended.
    async fn ready(&mut self, admin: u16, began: Duration) -> Result<bool, BenchError> {
        let request = b"GET /readyz HTTP/1.1\r\nhost: localhost\r\n\r\n";
        while now() < began + PATIENCE {
            if let Ok(mut wire) = Wire::connect(admin).await
                && wire.exchange(request).await.is_ok_and(|status| status == 200)
            {
                return Ok(true);
            }
            if self.child.try_wait().map_err(failed("the daemon"))?.is_some() {
                return Ok(false);
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Err(BenchError::TimedOut("the daemon's start"))
    }

    /// Memory and processor time so far; zero where the kernel does not tell.
    pub fn usage(&self) -> Usage {
        let read = |name: &str| fs::read_to_string(format!("/proc/{}/{name}", self.child.id())).unwrap_or_default();
        let status = read("status");
        let mib = |field: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap_or_default();
            line.split_whitespace().next().and_then(|kib| kib.parse::<f64>().ok()).unwrap_or(0.0) / 1024.0
        };
        // proc_pid_stat(5): what follows the name, which is in brackets, begins with field 3; 14 and 15 are user and
        // system time in ticks, of which a second has 100 on every machine that Linux runs on.
        let stat = read("stat");
        let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
        let ticks: u64 = fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
        Usage { resident: mib("VmRSS:"), peak: mib("VmHWM:"), processor: Duration::from_millis(ticks * 10) }
    }

    /// Lets it finish what is under way, and waits for its end.
    pub async fn stop(mut self) -> Result<(), BenchError> {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // It may have ended by itself, which the wait below tells.
            let _ = kill_process(pid, Signal::TERM);
        }
        let began = now();
        while now() < began + PATIENCE {
            match self.child.try_wait().map_err(failed("the daemon"))? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(BenchError::Daemon(format!("ended with {status}"))),
                None => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
        Err(BenchError::TimedOut("the daemon's stop"))
    }
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    format!("ended at once:\n{}", lines[lines.len().saturating_sub(5)..].join("\n"))
}
