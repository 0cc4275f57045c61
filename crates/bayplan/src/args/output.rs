//! The formats in which answers are printed.

use clap::ValueEnum;
use clap::builder::{PossibleValuesParser, TypedValueParser};

/// The formats of answers. Each command names those that it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    Text,
    Wide,
    Json,
    Yaml,
    Html,
}

/// Reads the formats that a command has.
pub(crate) fn formats<const N: usize>(offered: [Output; N]) -> impl TypedValueParser<Value = Output> {
    let names = offered.iter().filter_map(ValueEnum::to_possible_value);
    PossibleValuesParser::new(names.collect::<Vec<_>>()).try_map(|name| Output::from_str(&name, false))
}
