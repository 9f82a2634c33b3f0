//! A PostgreSQL cluster of our own for the tests of one process: started when the first test asks for it, in a temporary
//! folder, as a user of its own (PostgreSQL refuses root), with `fsync` on. A shell that reads a pipe from us stops it and
//! removes the folder when this process ends, however it ends.

use std::fs::{self, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use sqlx::postgres::PgConnection;
use sqlx::{Connection as _, Executor as _};

use super::port::Port;

/// The password of the superuser over TCP; the socket asks for none.
pub const PASSWORD: &str = "canary-pg-pa55word";

/// How many of the last files of the log written ahead are read. What was written a moment ago may be before the last one;
/// `wal_keep_size` keeps them through a checkpoint.
const WAL_READ: usize = 3;

const STOP_WITH_US: &str = r#"
"$@" >>"$0/server.log" 2>&1 </dev/null &
server=$!
cat >/dev/null
kill -QUIT "$server"
wait "$server"
rm -rf "$0"
"#;

/// The running cluster.
pub struct Cluster {
    dir: PathBuf,
    port: u16,
    bin: PathBuf,
    /// Its standard input is the pipe that ends with us.
    _shell: Child,
}

/// A database of one test.
#[derive(Debug)]
pub struct Database {
    name: String,
}

impl Database {
    /// A new, empty one.
    pub async fn fresh() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("t{}", NEXT.fetch_add(1, Ordering::SeqCst));
        let mut admin = connect(&Cluster::shared().socket_url("postgres")).await;
        admin.execute(sqlx::AssertSqlSafe(format!("CREATE DATABASE {name}"))).await.expect("creates a database");
        admin.close().await.expect("closes");
        Self { name }
    }

    /// A new one whose tables are in a directory, which is given to the server; to be discarded before that goes.
    pub async fn fresh_in(dir: &Path) -> Self {
        let cluster = Cluster::shared();
        if let Some(user) = server_user(dir) {
            succeeded("chown", Command::new("chown").arg(user).arg(dir).output());
        }
        let database = Self::fresh().await;
        let (name, at) = (&database.name, dir.display());
        for sql in [
            format!("CREATE TABLESPACE {name} LOCATION '{at}'"),
            format!("ALTER DATABASE {name} SET TABLESPACE {name}"),
        ] {
            cluster.psql(&sql);
        }
        database
    }

    /// Takes it and its place away for good, whoever uses it.
    pub fn discard(&self) {
        let name = &self.name;
        for sql in [format!("DROP DATABASE {name} WITH (FORCE)"), format!("DROP TABLESPACE {name}")] {
            Cluster::shared().psql(&sql);
        }
    }

    /// Its URL by the server's socket, for the superuser; needs no password.
    pub fn url(&self) -> String {
        Cluster::shared().socket_url(&self.name)
    }

    /// Its URL over TCP, for the superuser; the password is not in it.
    pub fn tcp_url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{}", Cluster::shared().port, self.name)
    }

    /// Cuts every connection to it.
    pub async fn cut(&self) {
        self.run(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() \
             AND pid <> pg_backend_pid()",
        )
        .await;
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Takes it away from everybody, as an outage would.
    pub async fn hide(&self) {
        let name = &self.name;
        alone(name, &format!("ALTER DATABASE {name} RENAME TO {name}_hidden")).await;
    }

    /// Brings it back.
    pub async fn show(&self) {
        let name = &self.name;
        alone(&format!("{name}_hidden"), &format!("ALTER DATABASE {name}_hidden RENAME TO {name}")).await;
        self.allow();
    }

    /// Copies it as it stands, while nobody uses it.
    pub async fn copy(&self) {
        let name = &self.name;
        alone(name, &format!("CREATE DATABASE {name}_copy TEMPLATE {name}")).await;
        self.allow();
    }

    /// Puts the copy in its place.
    pub async fn restore(&self) {
        let name = &self.name;
        alone(name, &format!("DROP DATABASE {name}")).await;
        alone(&format!("{name}_copy"), &format!("ALTER DATABASE {name}_copy RENAME TO {name}")).await;
        self.allow();
    }

    fn allow(&self) {
        Cluster::shared().psql(&format!("ALTER DATABASE {} ALLOW_CONNECTIONS true", self.name));
    }

    /// Everything in it as SQL, with octets in hex.
    pub fn dump(&self) -> Vec<u8> {
        let cluster = Cluster::shared();
        let mut dump = Command::new(cluster.bin.join("pg_dump"));
        dump.arg("-h").arg(&cluster.dir).args(["-p", &cluster.port.to_string(), "-U", "postgres", &self.name]);
        succeeded("pg_dump", dump.output()).stdout
    }

    /// The files of its tables and indexes, and the last ones of the log that the whole server writes ahead.
    pub async fn files(&self) -> (Vec<PathBuf>, Vec<PathBuf>) {
        self.run("CHECKPOINT").await;
        let mut connection = self.connect().await;
        let oid = "SELECT oid::int8 FROM pg_database WHERE datname = current_database()";
        let oid: i64 = sqlx::query_scalar(oid).fetch_one(&mut connection).await.expect("a row");
        let current = "SELECT pg_walfile_name(pg_current_wal_lsn())";
        let current: String = sqlx::query_scalar(current).fetch_one(&mut connection).await.expect("a row");
        connection.close().await.expect("closes");
        let data = Cluster::shared().dir.join("data");
        let mut ahead = listed(&data.join("pg_wal"));
        // Those after it are old ones that wait to be used again.
        ahead.retain(|path| path.file_name().is_some_and(|name| *name <= *current));
        (listed(&data.join("base").join(oid.to_string())), ahead.split_off(ahead.len().saturating_sub(WAL_READ)))
    }

    /// What the server has logged.
    pub fn server_log() -> Vec<u8> {
        fs::read(Cluster::shared().dir.join("server.log")).expect("a log")
    }

    /// A connection of the test's own.
    pub async fn connect(&self) -> PgConnection {
        // A server that a test made read-only must be writable again by the test.
        connect(&format!("{}?options=-c%20default_transaction_read_only%3Doff", self.url())).await
    }

    /// Runs statements on a connection of their own.
    pub async fn run(&self, sql: &str) {
        let mut connection = self.connect().await;
        connection.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(sql.to_owned()))).await.expect("runs");
        connection.close().await.expect("closes");
    }
}

fn listed(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry").path());
    let mut files: Vec<PathBuf> = entries.filter(|path| path.is_file()).collect();
    files.sort();
    files
}

/// Does what the server does with a database only while nobody has a session in it. Nobody gets one afterwards either,
/// until that is allowed again.
async fn alone(database: &str, sql: &str) {
    Cluster::shared().psql(&format!("ALTER DATABASE {database} ALLOW_CONNECTIONS false"));
    let end = format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{database}'");
    let mut admin = connect(&Cluster::shared().socket_url("postgres")).await;
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        admin.execute(sqlx::AssertSqlSafe(end.clone())).await.expect("ends the sessions");
        // One may have been begun before.
        match admin.execute(sqlx::AssertSqlSafe(sql.to_owned())).await {
            Ok(_) => break,
            Err(e) => assert!(Instant::now() < deadline, "{e}"),
        }
    }
    admin.close().await.expect("closes");
}

async fn connect(url: &str) -> PgConnection {
    PgConnection::connect(url).await.expect("connects")
}

impl Cluster {
    /// The one of this process.
    pub fn shared() -> &'static Self {
        static CLUSTER: OnceLock<Cluster> = OnceLock::new();
        CLUSTER.get_or_init(Self::start)
    }

    fn socket_url(&self, database: &str) -> String {
        let socket = self.dir.display().to_string().replace('/', "%2F");
        format!("postgres://postgres@{socket}:{}/{database}", self.port)
    }

    fn psql(&self, sql: &str) {
        let mut psql = Command::new(self.bin.join("psql"));
        psql.arg("-h").arg(&self.dir).args(["-p", &self.port.to_string(), "-U", "postgres", "-c", sql]);
        succeeded(sql, psql.output());
    }

    fn start() -> Self {
        let bin = binaries();
        let dir = tempfile::Builder::new().prefix("sendonce-pg-").tempdir().expect("a directory").keep();
        fs::set_permissions(&dir, Permissions::from_mode(0o755)).expect("permissions");
        fs::write(dir.join("password"), PASSWORD).expect("writes");
        let user = server_user(&dir);
        let as_user = |program: &str| match &user {
            None => Command::new(bin.join(program)),
            Some(user) => {
                let mut command = Command::new("setpriv");
                command.args(["--reuid", user, "--regid", user, "--clear-groups", "--"]).arg(bin.join(program));
                command
            }
        };
        let data = dir.join("data");
        let mut initdb = as_user("initdb");
        initdb.arg("-D").arg(&data).args(["-U", "postgres", "-E", "UTF8", "--no-locale", "--no-sync"]);
        initdb.args(["--auth-local=trust", "--auth-host=scram-sha-256"]).arg("--pwfile").arg(dir.join("password"));
        succeeded("initdb", initdb.current_dir(&dir).output());
        configure(&data, &dir);
        for _ in 0..5 {
            // Given up only now, so that nobody else is given it before the server has it but by bad luck.
            let port = Port::reserve().address().port();
            let mut server = as_user("postgres");
            server.arg("-D").arg(&data).args(["-p", &port.to_string()]);
            let mut shell = Command::new("sh");
            shell.arg("-c").arg(STOP_WITH_US).arg(&dir).arg(server.get_program()).args(server.get_args());
            // Not in our group: an interrupt from the keyboard reaches us, and then the shell by the pipe.
            shell.current_dir(&dir).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
            let shell = shell.spawn().expect("a shell");
            let cluster = Self { dir: dir.clone(), port, bin: bin.clone(), _shell: shell };
            if cluster.is_ready_in_time() {
                return cluster;
            }
        }
        panic!("PostgreSQL does not start: {}", fs::read_to_string(dir.join("server.log")).unwrap_or_default());
    }

    fn is_ready_in_time(&self) -> bool {
        let deadline = Instant::now() + Duration::from_secs(30);
        while Instant::now() < deadline {
            let mut ready = Command::new(self.bin.join("pg_isready"));
            ready.arg("-q").arg("-h").arg(&self.dir).args(["-p", &self.port.to_string()]);
            if ready.status().expect("pg_isready runs").success() {
                return true;
            }
            if fs::read_to_string(self.dir.join("server.log"))
                .is_ok_and(|log| log.contains("database system is shut down"))
            {
                return false;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        false
    }
}

fn configure(data: &Path, dir: &Path) {
    let settings = format!(
        "listen_addresses = '127.0.0.1'\nunix_socket_directories = '{}'\nmax_connections = 300\n\
         shared_buffers = 64MB\ndeadlock_timeout = 200ms\nfsync = on\nmax_wal_size = 1GB\n\
         wal_keep_size = 64MB\nlog_min_messages = fatal\n",
        dir.display()
    );
    let file = fs::OpenOptions::new().append(true).open(data.join("postgresql.conf"));
    file.expect("the settings").write_all(settings.as_bytes()).expect("writes");
}

/// Where `initdb` and `postgres` are.
fn binaries() -> PathBuf {
    if let Some(bin) = std::env::var_os("SENDONCE_TEST_PG_BIN") {
        return bin.into();
    }
    let mut found: Vec<(u32, PathBuf)> = vec![];
    for root in ["/usr/lib/postgresql", "/opt/homebrew/opt", "/usr/local/opt"] {
        for entry in fs::read_dir(root).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().replace("postgresql@", "");
            let bin = entry.path().join("bin");
            if let (Ok(version), true) = (name.parse(), bin.join("initdb").exists()) {
                found.push((version, bin));
            }
        }
    }
    let newest = found.into_iter().filter(|(version, _)| *version >= 15).max();
    let (_, bin) = newest.expect(
        "the tests need PostgreSQL 15 or newer: install it (Debian: apt-get install postgresql), or run tests/run.sh, \
         which does; SENDONCE_TEST_PG_BIN names the directory of initdb where it is in an unusual place",
    );
    bin
}

/// The user that the server runs as, when we are root; the folder is made its own.
fn server_user(dir: &Path) -> Option<String> {
    let id = succeeded("id", Command::new("id").arg("-u").output());
    if String::from_utf8_lossy(&id.stdout).trim() != "0" {
        return None;
    }
    let user = "postgres";
    if !Command::new("id").arg("-u").arg(user).output().expect("id runs").status.success() {
        succeeded("useradd", Command::new("useradd").args(["--system", "--no-create-home", user]).output());
    }
    succeeded("chown", Command::new("chown").arg("-R").arg(user).arg(dir).output());
    Some(user.to_owned())
}

fn succeeded(what: &str, output: std::io::Result<Output>) -> Output {
    let output = output.unwrap_or_else(|e| panic!("{what}: {e}"));
    assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
    output
}
