//! Everything that a stranger can write, changed in every way that a seeded generator thinks of.
//!
//! `SENDONCE_TEST_FUZZ_SEED` repeats a run, `SENDONCE_TEST_FUZZ_RUNS` multiplies its length; `fuzz/` has the same targets
//! for cargo-fuzz.

mod targets;

use std::panic::{AssertUnwindSafe, catch_unwind};

use targets::{ALL, Target};

/// What changes are made of, beside what the seeds hold.
const WORDS: &[&str] = &[
    "C4N4RY",
    "\"",
    "\\",
    "\\u0000",
    "\0",
    "\r\n",
    "\n",
    ".",
    "@",
    "+",
    "-",
    "%00",
    "{{",
    "}}",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "null",
    "true",
    "1e9",
    "-1",
    "0",
    "18446744073709551616",
    "997.0",
    "9999-12-31T23:59:59-23:59",
    "0000-01-01T00:00:00+23:59",
    "\u{202e}",
    "\u{feff}",
    "\u{fffd}",
    "\u{1f600}",
    "\u{df}",
    "xn--",
    "250 ",
    "250-",
    "421 ",
    "<script>",
    "&amp;",
    "'",
    "=cmd",
    "event_id",
    "data",
    "expires_in",
    "to",
    "sms",
];

/// The generator SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators").
struct Draws(u64);

impl Draws {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 up to and without `end`; 0 where that is nothing.
    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(end.max(1)).expect("a length")).expect("below a length")
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}

/// One change.
fn change(input: &mut Vec<u8>, corpus: &[Vec<u8>], draws: &mut Draws) {
    let at = draws.below(input.len() + 1);
    let end = (at + 1 + draws.below(8)).min(input.len());
    match draws.below(8) {
        0 if at < input.len() => input[at] ^= 1 << draws.below(8),
        1 if at < input.len() => input[at] = *draws.pick(b"\0\n\r\" '-+.:@{}\x7f\x80\xff09azAZ"),
        2 if at < end => drop(input.drain(at..end)),
        3 if at < end => {
            let part = input[at..end].repeat(1 + draws.below(40));
            input.splice(at..at, part);
        }
        4 => {
            let other = draws.pick(corpus);
            let from = draws.below(other.len());
            let to = from + draws.below(other.len() - from + 1);
            input.splice(at..at, other[from..to].iter().copied());
        }
        5 => input.truncate(at),
        _ => drop(input.splice(at..at, draws.pick(WORDS).bytes())),
    }
    input.truncate(8 * 1024);
}

fn number(variable: &str) -> Option<u64> {
    Some(std::env::var(variable).ok()?.parse().unwrap_or_else(|_| panic!("{variable} is no number")))
}

fn run(target: &Target) {
    let corpus = (target.seeds)();
    let times = number("SENDONCE_TEST_FUZZ_RUNS").unwrap_or(1);
    let seed = number("SENDONCE_TEST_FUZZ_SEED").unwrap_or(1);
    let mut draws = Draws(seed);
    let changed = (0..u64::from(target.runs) * times).map(|_| {
        let mut input = draws.pick(&corpus).clone();
        for _ in 0..draws.below(5) {
            change(&mut input, &corpus, &mut draws);
        }
        input
    });
    for (n, input) in corpus.iter().cloned().chain(changed).enumerate() {
        if let Err(why) = catch_unwind(AssertUnwindSafe(|| (target.run)(&input))) {
            let shown = String::from_utf8_lossy(&input);
            eprintln!("{}: SENDONCE_TEST_FUZZ_SEED={seed}, input {n}: {shown:?}", target.name);
            std::panic::resume_unwind(why);
        }
    }
}

macro_rules! tests {
    ($($test:ident: $name:literal;)+) => {
        $(
            #[test]
            fn $test() {
                run(ALL.iter().find(|target| target.name == $name).expect("a target"));
            }
        )+

        #[test]
        fn every_target_is_run_here_and_by_cargo_fuzz() {
            let names: Vec<&str> = ALL.iter().map(|target| target.name).collect();
            assert_eq!(names, [$($name),+]);
            let manifest = include_str!("../../fuzz/Cargo.toml");
            for name in names {
                assert!(manifest.contains(&format!("name = \"{name}\"")), "{name}");
            }
        }
    };
}

tests! {
    a_body_is_refused_without_an_echo_or_is_the_same_event_when_it_is_written_again: "admission_body";
    an_idempotency_header_is_one_key_in_either_form_or_refused_without_an_echo: "idempotency_header";
    a_phone_number_that_is_taken_reads_back_and_so_does_its_canonical_form: "phone";
    a_mailbox_that_is_taken_reads_back_in_each_form_and_breaks_out_of_none: "mailbox";
    data_reaches_the_message_as_text_never_as_markup_or_a_header: "message";
    a_manifest_is_refused_with_places_or_reads_the_same_again: "manifest";
    a_value_leaves_its_place_in_no_template_of_a_manifest: "manifest_template";
    a_reply_is_read_as_the_standard_has_it_and_nothing_behind_it: "smtp_reply";
    a_pdu_is_the_same_however_it_arrives_and_a_receipt_names_a_message: "smpp_pdu";
    a_receipt_with_one_octet_changed_is_not_taken: "receipt";
    a_hooks_request_is_refused_without_an_echo_or_is_the_same_events_whenever_it_comes: "hook_body";
    a_record_is_one_line_in_each_form_and_runs_in_no_spreadsheet: "record";
}
