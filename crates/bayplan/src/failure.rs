//! How failures are printed.

/// The chain of causes in one line. A cause whose text the line already has is left out, as
/// many errors quote their source.
pub(crate) fn one_line(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if line.is_empty() {
            line = cause;
        } else if !line.contains(&cause) {
            line = format!("{line}: {cause}");
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Quotes its source, as errors of libraries do.
    #[derive(Debug)]
    struct Quoting(std::io::Error);

    impl std::fmt::Display for Quoting {
        fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(formatter, "cannot read nodes.csv: {}", self.0)
        }
    }

    impl std::error::Error for Quoting {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            Some(&self.0)
        }
    }

    #[test]
    fn a_cause_is_printed_once_even_when_errors_quote_their_sources() {
        let cause = || std::io::Error::other("disk on fire");
        for (error, expected) in [
            (anyhow::Error::from(cause()), "disk on fire"),
            (anyhow::Error::from(cause()).context("cannot start"), "cannot start: disk on fire"),
            (anyhow::Error::from(Quoting(cause())), "cannot read nodes.csv: disk on fire"),
            (
                anyhow::Error::from(Quoting(cause())).context("cannot start"),
                "cannot start: cannot read nodes.csv: disk on fire",
            ),
        ] {
            assert_eq!(one_line(&error), expected);
        }
    }
}
