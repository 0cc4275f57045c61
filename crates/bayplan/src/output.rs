//! Prints an answer in the format that was asked for.

use std::io::Write;

use anyhow::Result;
use serde::Serialize;

use crate::args::output::Output;
use crate::yaml;

/// Writes an answer as JSON or YAML, or as `text` words it for all other formats.
pub(crate) fn write(
    out: &mut impl Write,
    output: Output,
    answer: &impl Serialize,
    text: impl FnOnce() -> String,
) -> Result<()> {
    match output {
        Output::Json => writeln!(out, "{}", serde_json::to_string_pretty(answer)?)?,
        Output::Yaml => write!(out, "{}", yaml::write(&serde_json::to_value(answer)?))?,
        Output::Text | Output::Wide | Output::Html => write!(out, "{}", text())?,
    }
    Ok(out.flush()?)
}

/// Prints an answer on standard output.
pub(crate) fn print(output: Output, answer: &impl Serialize, text: impl FnOnce() -> String) -> Result<()> {
    write(&mut std::io::stdout().lock(), output, answer, text)
}
