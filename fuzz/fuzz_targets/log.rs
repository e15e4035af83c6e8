#![no_main]

#[path = "../src/targets.rs"]
#[allow(dead_code, reason = "each binary is one of the targets")]
mod targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::log(data));
