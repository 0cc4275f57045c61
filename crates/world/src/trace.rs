//! The trace of a run: one line per event, and the story that a person reads of it.

use std::fmt::Write;
use std::time::Duration;

/// An event: who did what, and what came back.
#[derive(Clone, Debug)]
struct Line {
    at: Duration,
    who: String,
    what: String,
    back: String,
    /// Told in every story.
    matters: bool,
}

/// The events of a run, in order.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    lines: Vec<Line>,
}

/// The lines of a story that are not about faults.
const OTHERS_MAX: usize = 60;

impl Trace {
    pub(crate) fn tell(&mut self, at: Duration, who: &str, what: String, back: String, matters: bool) {
        self.lines.push(Line { at, who: who.to_owned(), what, back, matters });
    }

    /// How many events there were.
    pub(crate) fn len(&self) -> usize {
        self.lines.len()
    }

    /// A number that is equal for equal traces.
    pub(crate) fn digest(&self) -> u64 {
        let mut digest = 0xcbf2_9ce4_8422_2325u64;
        for line in &self.lines {
            let text = line.to_text();
            digest = text.bytes().fold(digest, |digest, byte| (digest ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
        }
        digest
    }

    /// All lines.
    pub(crate) fn text(&self) -> Vec<String> {
        self.lines.iter().map(Line::to_text).collect()
    }

    /// The lines about faults, and the last ones that name one of these words; what repeats itself is told once.
    pub(crate) fn story(&self, words: &[String]) -> String {
        let told = |line: &Line| {
            let named = words.iter().any(|word| line.what.contains(word) || line.back.contains(word));
            named && !line.what.contains("/leases/") && !line.what.contains("/events")
        };
        let others: Vec<usize> =
            (0..self.lines.len()).filter(|at| !self.lines[*at].matters && told(&self.lines[*at])).collect();
        let from = others.get(others.len().saturating_sub(OTHERS_MAX)).copied().unwrap_or(0);
        let (mut story, mut repeated, mut last) = (String::new(), 0, String::new());
        for (at, line) in self.lines.iter().enumerate() {
            if !(line.matters || (at >= from && told(line))) {
                continue;
            }
            let same = format!("{} {} → {}", line.who, line.what, line.back);
            if same == last {
                repeated += 1;
                continue;
            }
            if repeated > 0 {
                let _ = writeln!(story, "              … and {repeated} times more");
            }
            (repeated, last) = (0, same);
            let _ = writeln!(story, "{}", line.to_text());
        }
        story
    }
}

impl Line {
    fn to_text(&self) -> String {
        let Line { at, who, what, back, matters } = self;
        let mark = if *matters { '!' } else { ' ' };
        let arrow = if back.is_empty() { "" } else { " → " };
        format!("{:>9.3} s {mark} {who:<12} {what}{arrow}{back}", at.as_secs_f64())
    }
}
