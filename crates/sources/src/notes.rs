//! What a reader has to tell about a source, in few lines.

use crate::limits::NOTES_MAX;

/// One line for each thing that could not be read; beyond [`NOTES_MAX`] they are counted.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    lines: Vec<String>,
    more: usize,
}

impl Notes {
    /// Adds a line, unless it is there already.
    pub(crate) fn add(&mut self, line: String) {
        if self.lines.len() >= NOTES_MAX {
            self.more += 1;
        } else if !self.lines.contains(&line) {
            self.lines.push(line);
        }
    }

    /// Adds a line, unless one with the same text in it is there.
    pub(crate) fn add_once(&mut self, line: String, text: &str) {
        if !self.lines.iter().any(|known| known.contains(text)) {
            self.add(line);
        }
    }

    /// All lines.
    pub(crate) fn finish(mut self) -> Vec<String> {
        if self.more > 0 {
            self.lines.push(format!("{} more such lines are not shown", self.more));
        }
        self.lines
    }
}
