#![no_main]

#[path = "../../tests/suite/fuzz/targets/mod.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::run("hook_body", data));
