//! What was measured, as a table for people and as JSON.

use std::fmt;

use serde::Serialize;

use super::Plan;
use super::histogram::Histogram;

/// Durations in milliseconds that a share of all did not exceed.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Latency {
    /// Half of them.
    pub p50: f64,
    /// Nine in ten.
    pub p90: f64,
    /// 99 in 100.
    pub p99: f64,
    /// 999 in 1000.
    pub p999: f64,
    /// The longest.
    pub max: f64,
}

impl Latency {
    pub(super) fn of(histogram: &Histogram) -> Self {
        let at = |share| histogram.quantile_ms(share);
        Self { p50: at(0.5), p90: at(0.9), p99: at(0.99), p999: at(0.999), max: histogram.max_ms() }
    }
}

/// One figure with its ceiling.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// What was measured.
    pub name: String,
    /// How much.
    pub value: f64,
    /// Of what: `/s`, `MiB/s`, `ms`, `MiB`.
    pub unit: &'static str,
    /// What stands above it, in the same unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ceiling: Option<f64>,
    /// What the ceiling is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ceiling_of: Option<&'static str>,
    /// The value's share of the ceiling.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// How long each took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_ms: Option<Latency>,
    /// What else was seen, by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub facts: Vec<(&'static str, f64)>,
}

impl Figure {
    pub(super) fn new(name: impl Into<String>, value: f64, unit: &'static str) -> Self {
        let name = name.into();
        Self { name, value, unit, ceiling: None, ceiling_of: None, ratio: None, latency_ms: None, facts: vec![] }
    }

    pub(super) fn under(mut self, ceiling: f64, what: &'static str) -> Self {
        self.ceiling = Some(ceiling);
        self.ceiling_of = Some(what);
        self.ratio = (ceiling > 0.0).then(|| self.value / ceiling);
        self
    }

    pub(super) fn took(mut self, histogram: &Histogram) -> Self {
        self.latency_ms = (histogram.total() > 0).then(|| Latency::of(histogram));
        self
    }

    pub(super) fn fact(mut self, name: &'static str, value: f64) -> Self {
        self.facts.push((name, value));
        self
    }
}

/// All that a run measured.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The program's version.
    pub version: &'static str,
    /// `sqlite` or `postgres`.
    pub store: &'static str,
    /// Processors that the whole run may use.
    pub processors: usize,
    /// How many tasks wanted to run in the minute before (proc_loadavg(5)): far above 0, and others share the machine.
    pub load_before: f64,
    /// Connections of the load generator.
    pub connections: usize,
    /// Seconds that each load counted.
    pub seconds: f64,
    /// In the order in which they were measured.
    pub figures: Vec<Figure>,
    /// Counts of the daemon, the load and the provider that do not agree. Empty, or something is broken.
    pub faults: Vec<String>,
}

impl Report {
    pub(super) fn new(plan: &Plan) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION"),
            store: if plan.store.is_some() { "postgres" } else { "sqlite" },
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            load_before: load_average(),
            connections: plan.connections,
            seconds: plan.time.as_secs_f64(),
            figures: vec![],
            faults: vec![],
        }
    }

    pub(super) fn add(&mut self, figure: Figure) {
        self.figures.push(figure);
    }

    /// Two counts of the same thing that must agree.
    pub(super) fn agree(&mut self, what: &str, one: u64, other: u64) {
        if one != other {
            self.faults.push(format!("{what}: {one} and {other}"));
        }
    }
}

fn load_average() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|minute| minute.parse().ok()).unwrap_or(0.0)
}

/// A number as people read it: three digits that matter, and thousands apart.
fn number(value: f64) -> String {
    if value < 9.995 {
        return format!("{value:.2}");
    }
    if value < 99.95 {
        return format!("{value:.1}");
    }
    let digits = format!("{value:.0}");
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A number and its unit.
fn amount(value: f64, unit: &str) -> String {
    let space = if unit.starts_with('/') { "" } else { " " };
    format!("{}{space}{unit}", number(value))
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { version, store, processors, load_before, connections, seconds, .. } = self;
        writeln!(
            f,
            "sendonce {version} on {store}: {processors} processors for the daemon, its store, the load generator and \
             the provider; load average before {load_before:.1}; {connections} connections; {seconds:.0} s a load; times in ms"
        )?;
        let width = self.figures.iter().map(|figure| figure.name.chars().count()).max().unwrap_or(0).max(6);
        let head = ["value", "ceiling", "ratio", "p50", "p90", "p99", "p99.9", "max"];
        let [value, ceiling, ratio, p50, p90, p99, p999, max] = head;
        writeln!(
            f,
            "{:<width$} {value:>12} {ceiling:>10} {ratio:>6} {p50:>7} {p90:>7} {p99:>7} {p999:>7} {max:>7}",
            "figure"
        )?;
        for figure in &self.figures {
            let ceiling = figure.ceiling.map(|ceiling| amount(ceiling, figure.unit)).unwrap_or_default();
            let ratio = figure.ratio.map(|ratio| format!("{:.0} %", ratio * 100.0)).unwrap_or_default();
            write!(f, "{:<width$} {:>12} {ceiling:>10} {ratio:>6}", figure.name, amount(figure.value, figure.unit))?;
            if let Some(l) = figure.latency_ms {
                for ms in [l.p50, l.p90, l.p99, l.p999, l.max] {
                    write!(f, " {:>7}", number(ms))?;
                }
            }
            writeln!(f)?;
            if !figure.facts.is_empty() {
                let facts = figure.facts.iter().map(|(name, value)| format!("{name} {}", number(*value)));
                writeln!(f, "  {}", facts.collect::<Vec<_>>().join(", "))?;
            }
        }
        let mut ceilings: Vec<_> = self.figures.iter().filter_map(|figure| figure.ceiling_of).collect();
        ceilings.dedup();
        if !ceilings.is_empty() {
            writeln!(f, "ceilings: {}", ceilings.join("; "))?;
        }
        for fault in &self.faults {
            writeln!(f, "THESE DO NOT AGREE: {fault}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn numbers_are_as_people_read_them() {
        for (value, text) in
            [(0.0, "0.00"), (9.999, "10.0"), (99.96, "100"), (999.6, "1,000"), (1_234_567.0, "1,234,567")]
        {
            assert_eq!(number(value), text);
        }
        assert_eq!((amount(5.0, "MiB"), amount(1234.0, "/s")), ("5.00 MiB".to_owned(), "1,234/s".to_owned()));
    }

    #[test]
    fn a_figure_stands_beside_its_ceiling_and_what_does_not_agree_is_told() {
        let mut took = Histogram::default();
        took.add(Duration::from_millis(4));
        let figure = Figure::new("admissions", 500.0, "/s").under(1000.0, "a bare insert").took(&took);
        let mut report = Report {
            version: "1",
            store: "sqlite",
            processors: 2,
            load_before: 0.1,
            connections: 64,
            seconds: 5.0,
            figures: vec![figure.fact("sent", 3.0)],
            faults: vec![],
        };
        report.agree("sent and received", 3, 3);
        assert!(report.faults.is_empty());
        report.agree("sent and received", 3, 2);
        let text = report.to_string();
        for part in ["500/s    1,000/s   50 %    4.00", "  sent 3.00\n", "ceilings: a bare insert", "agree: 3 and 2"] {
            let part = part.replace("agree: 3", "AGREE: sent and received: 3");
            assert!(text.contains(&part), "{part}: {text}");
        }
    }
}
