//! How text is set: colours only where a terminal shows them.

use crate::why::Verdict;

/// How an answer is written.
#[derive(Clone, Copy, Debug, Default)]
pub struct Style {
    /// With colours.
    pub colours: bool,
    /// With every node and every score.
    pub wide: bool,
}

const BOLD: &str = "1";
const DIM: &str = "2";
const RED: &str = "1;31";
const GREEN: &str = "1;32";
const YELLOW: &str = "1;33";
const CYAN: &str = "1;36";

impl Style {
    fn set(self, code: &str, text: &str) -> String {
        if self.colours { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// A heading.
    pub(super) fn heading(self, text: &str) -> String {
        self.set(BOLD, text)
    }

    /// What matters less.
    pub(super) fn dim(self, text: &str) -> String {
        self.set(DIM, text)
    }

    /// A verdict in its colour.
    pub(super) fn verdict(self, verdict: Verdict) -> String {
        let colour = match verdict {
            Verdict::Placed | Verdict::WillPlace => GREEN,
            Verdict::Gated => CYAN,
            Verdict::NotYet => YELLOW,
            Verdict::Never => RED,
        };
        self.set(colour, verdict.name())
    }
}
