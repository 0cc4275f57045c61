//! Bounds on what an input may make us do, in multiples of its size.

use allocation_counter::measure;
use bayplan_kinds::{FieldError, Scheme};
use bayplan_model::schema::Schema;
use bayplan_model::status::Status;

/// Bytes that any piece of work may allocate, whatever its input: errors, buffers, small tables.
const BASE_BYTES: u64 = 1 << 20;

/// What an error may quote of its input: twice over, every byte of it escaped as `\u{ffff}`.
const QUOTED_FACTOR: usize = 16;
/// What an error may say besides: 8 KiB of errors in a CEL expression, each with its line, escaped.
const WORDS_BYTES: usize = 32 * 1024;

/// Does the work and holds the bytes it allocates in all, freed or not, to `factor` for each byte of the input. Steps
/// that are worse than linear show here, because nearly all of ours allocate.
pub(crate) fn work<T>(input: usize, factor: u64, what: &str, work: impl FnOnce() -> T) -> T {
    // Built on first use, which is nobody's fault.
    let _ = (Schema::get(), Scheme::built_in());
    let mut result = None;
    let used = measure(|| result = Some(work())).bytes_total;
    let allowed = BASE_BYTES + factor * input as u64;
    assert!(used <= allowed, "{what} allocated {used} bytes for an input of {input}; {allowed} are allowed");
    result.expect("the work was done")
}

/// Holds the text of an error to what it is about.
pub(crate) fn text(input: usize, what: &str, text: &str) {
    let allowed = WORDS_BYTES + QUOTED_FACTOR * input;
    let start: String = text.chars().take(200).collect();
    assert!(text.len() <= allowed, "{what}: a text of {} bytes about {input} bytes: {start}…", text.len());
}

/// Holds a failure to what it is about, and its code to those that blame the client.
pub(crate) fn refusal(input: usize, what: &str, status: &Status) {
    assert!((400..500).contains(&status.code), "{what}: {status:?}");
    text(input, what, &status.message);
}

/// Holds the errors of a validation to what they are about.
pub(crate) fn errors(input: usize, what: &str, errors: &[FieldError]) {
    for error in errors {
        text(input, what, &format!("{error:?}"));
    }
}
