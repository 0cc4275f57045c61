//! Flag values as upstream's flags take them.

use bayplan_scheduler::config::GoDuration;

/// A boolean as Go's `strconv.ParseBool` reads it.
pub(crate) fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("neither true nor false".into()),
    }
}

/// A Go duration that is not negative.
pub(crate) fn duration(text: &str) -> Result<GoDuration, String> {
    let duration = GoDuration::parse(text).map_err(|_| "not a duration such as 15s, 500ms or 1h30m".to_owned())?;
    if duration.0 < 0 { Err("must not be negative".into()) } else { Ok(duration) }
}

/// Turns underscores in the names of flags into dashes, as upstream's `WordSepNormalizeFunc` does.
pub(crate) fn normalized(arguments: impl Iterator<Item = String>) -> Vec<String> {
    arguments
        .map(|argument| match argument.strip_prefix("--") {
            Some(rest) => {
                let end = rest.find('=').unwrap_or(rest.len());
                format!("--{}{}", rest[..end].replace('_', "-"), &rest[end..])
            }
            None => argument,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn underscores_in_names_of_flags_are_dashes_and_values_stay() {
        let given = ["bayplan", "scheduler", "--leader_elect=false", "--config=a_b", "-v", "c_d"].map(str::to_owned);
        let expected = ["bayplan", "scheduler", "--leader-elect=false", "--config=a_b", "-v", "c_d"];
        assert_eq!(normalized(given.into_iter()), expected);
    }
}
