//! Logs, to standard error: JSON for machines or lines for people.
//!
//! A library's own lines may hold a URL with its query, an SMTP command or an SQL value (reqwest logs whole URLs, lettre
//! whole commands), so nothing that is not ours is let through below `warn`, whatever `RUST_LOG` asks for. For the same
//! reason a panic is logged by its place and never with its text.

use std::io;
use std::panic::PanicHookInfo;

use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _, filter};

/// Why logging could not begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TelemetryError {
    /// `RUST_LOG` does not read.
    #[error("RUST_LOG is not a log filter, such as \"info\" or \"sendonce=debug\"")]
    Filter,
    /// Logging has begun already.
    #[error("logging has begun already")]
    Twice,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// One JSON object a line.
    Json,
    /// For people.
    Pretty,
}

/// Begins logging at `level` (`error` to `trace`, of this program's own lines), and replaces the panic hook by
/// [`on_panic`]. `RUST_LOG`, where it is set and not empty, stands above `level`.
///
/// # Errors
/// [`TelemetryError`] when `RUST_LOG` does not read, or on a second call.
pub fn init(form: Form, level: &str) -> Result<(), TelemetryError> {
    let wanted = std::env::var("RUST_LOG").ok().filter(|f| !f.is_empty());
    let subscriber = subscriber(form, wanted.as_deref().unwrap_or(level), io::stderr)?;
    subscriber.try_init().map_err(|_| TelemetryError::Twice)?;
    std::panic::set_hook(Box::new(on_panic));
    Ok(())
}

/// Says where a panic happened. Its text may quote anything, so it is left out.
pub fn on_panic(info: &PanicHookInfo<'_>) {
    let place = info.location().map_or_else(|| "an unknown place".to_owned(), ToString::to_string);
    if tracing::enabled!(Level::ERROR) {
        tracing::error!(place, "panicked");
    } else {
        eprintln!("sendonce: panicked at {place}");
    }
}

/// Ours, or grave enough.
fn is_allowed(metadata: &Metadata<'_>) -> bool {
    let target = metadata.target();
    let ours = target.strip_prefix("sendonce").is_some_and(|rest| rest.is_empty() || rest.starts_with("::"));
    ours || *metadata.level() <= Level::WARN
}

fn subscriber<W>(form: Form, wanted: &str, writer: W) -> Result<impl Subscriber + Send + Sync, TelemetryError>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let wanted = EnvFilter::try_new(wanted).map_err(|_| TelemetryError::Filter)?;
    let lines = tracing_subscriber::fmt::layer().with_writer(writer);
    let lines = match form {
        Form::Json => lines.json().flatten_event(true).with_span_list(false).boxed(),
        Form::Pretty => lines.with_ansi(io::IsTerminal::is_terminal(&io::stderr())).boxed(),
    };
    let lines = lines.with_filter(wanted).with_filter(filter::filter_fn(is_allowed));
    Ok(tracing_subscriber::registry().with(lines))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("not poisoned").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(form: Form, wanted: &str, speak: impl FnOnce()) -> String {
        let sink = Sink::default();
        let writer = sink.clone();
        let subscriber = subscriber(form, wanted, move || writer.clone()).expect("a filter");
        tracing::subscriber::with_default(subscriber, speak);
        let bytes = sink.0.lock().expect("not poisoned").clone();
        String::from_utf8(bytes).expect("text")
    }

    macro_rules! speak {
        ($($target:literal)+) => { $(
            tracing::trace!(target: $target, "{} trace", $target);
            tracing::debug!(target: $target, "{} debug", $target);
            tracing::info!(target: $target, "{} info", $target);
            tracing::warn!(target: $target, "{} warn", $target);
        )+ };
    }

    #[test]
    fn no_filter_makes_a_library_talk_below_warn() {
        for wanted in ["trace", "trace,hyper=trace,lettre::transport=trace", "sqlx=trace,sendonce=trace,warn"] {
            let text = logged(Form::Pretty, wanted, || {
                speak!("hyper::proto" "hyper_util" "h2" "reqwest::connect" "lettre::transport" "sqlx::query" "rustls"
                       "tower" "axum" "sendonce_lookalike");
            });
            for level in ["trace", "debug", "info"] {
                assert!(!text.contains(&format!(" {level}\n")), "{wanted}: {text}");
            }
            assert_eq!(text.matches(" warn\n").count(), 10, "{wanted}: {text}");
        }
        let text = logged(Form::Pretty, "trace", || {
            speak!("sendonce" "sendonce::http");
        });
        assert_eq!(text.lines().count(), 8, "{text}");
    }

    #[test]
    fn a_line_for_machines_is_one_json_object() {
        let text = logged(Form::Json, "info", || tracing::info!(target: "sendonce", lane = "a", "ready"));
        let line: serde_json::Value = serde_json::from_str(&text).expect("one object");
        assert_eq!((&line["message"], &line["lane"], &line["level"]), (&"ready".into(), &"a".into(), &"INFO".into()));
    }

    #[test]
    fn a_panic_is_logged_by_its_place_and_without_its_text() {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(on_panic));
        let text = logged(Form::Json, "info", || {
            let caught = std::panic::catch_unwind(|| std::panic::panic_any("CANARY-7f3a".to_owned()));
            assert!(caught.is_err());
        });
        std::panic::set_hook(before);
        assert!(text.contains("telemetry.rs:") && !text.contains("CANARY"), "{text}");
    }

    #[test]
    fn a_filter_that_does_not_read_is_told() {
        assert_eq!(subscriber(Form::Json, "=;=", io::sink).err(), Some(TelemetryError::Filter));
    }
}
