//! What changed between two texts, line by line, as upstream's messages end with it.
//!
//! Which lines count as the same is decided as Python's `difflib` does, whose port upstream uses: the longest run that
//! both have, and then the same to the left and to the right of it.

use std::ops::Range;

use rustc_hash::FxHashMap;

/// How many unchanged lines are shown around a change.
const CONTEXT: usize = 3;

/// From this many lines on, lines that are a hundredth of a text and more tell nothing.
const POPULAR_FROM: usize = 200;

/// How many pairs of equal lines are looked at: two long texts of few different lines have very many.
const PAIRS_MAX: usize = 4_000_000;

/// A run of lines that both texts have.
#[derive(Clone, Copy, Debug)]
struct Run {
    old: usize,
    new: usize,
    length: usize,
}

/// A part of both texts that differs or does not.
#[derive(Clone, Debug)]
struct Part {
    old: Range<usize>,
    new: Range<usize>,
    is_equal: bool,
}

/// The changed lines with what is around them; `None` if the texts are too costly to compare.
pub(super) fn unified(old: &str, new: &str) -> Option<String> {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.split('\n').collect(), new.split('\n').collect());
    let runs = Comparison::new(&old, &new).runs()?;
    let mut shown = String::new();
    for hunk in hunks(parts(&runs, old.len(), new.len())) {
        let (Some(first), Some(last)) = (hunk.first(), hunk.last()) else { continue };
        let (before, after) = (first.old.start..last.old.end, first.new.start..last.new.end);
        shown.push_str(&format!("@@ -{} +{} @@\n", position(before), position(after)));
        for part in &hunk {
            let mut write = |mark: char, lines: &[&str]| {
                lines.iter().for_each(|line| shown.push_str(&format!("{mark}{line}\n")));
            };
            if part.is_equal {
                write(' ', &old[part.old.clone()]);
            } else {
                write('-', &old[part.old.clone()]);
                write('+', &new[part.new.clone()]);
            }
        }
    }
    Some(shown)
}

/// Where a hunk is: its first line, counted from one, and how many there are if not one.
fn position(lines: Range<usize>) -> String {
    match lines.len() {
        0 => format!("{},0", lines.start),
        1 => (lines.start + 1).to_string(),
        length => format!("{},{length}", lines.start + 1),
    }
}

struct Comparison<'t> {
    old: &'t [&'t str],
    new: &'t [&'t str],
    /// Where the new text has a line, but for popular ones.
    places: FxHashMap<&'t str, Vec<usize>>,
    pairs: usize,
}

impl<'t> Comparison<'t> {
    fn new(old: &'t [&'t str], new: &'t [&'t str]) -> Self {
        let mut places: FxHashMap<&str, Vec<usize>> = FxHashMap::default();
        for (at, line) in new.iter().enumerate() {
            places.entry(line).or_default().push(at);
        }
        if new.len() >= POPULAR_FROM {
            places.retain(|_, places| places.len() <= new.len() / 100 + 1);
        }
        Comparison { old, new, places, pairs: 0 }
    }

    /// The runs that both texts have, in order.
    fn runs(mut self) -> Option<Vec<Run>> {
        let mut open = vec![(0..self.old.len(), 0..self.new.len())];
        let mut runs = Vec::new();
        while let Some((old, new)) = open.pop() {
            let run = self.longest(&old, &new)?;
            if run.length == 0 {
                continue;
            }
            open.push((old.start..run.old, new.start..run.new));
            open.push((run.old + run.length..old.end, run.new + run.length..new.end));
            runs.push(run);
        }
        runs.sort_by_key(|run| run.old);
        Some(runs)
    }

    /// The longest run within two ranges, the first one of several.
    fn longest(&mut self, old: &Range<usize>, new: &Range<usize>) -> Option<Run> {
        let mut best = Run { old: old.start, new: new.start, length: 0 };
        // How long the run is that ends at a line of the new text and the current line of the old one.
        let mut ending: FxHashMap<usize, usize> = FxHashMap::default();
        for at in old.clone() {
            let mut next = FxHashMap::default();
            let places = self.places.get(self.old[at]).map_or(&[][..], Vec::as_slice);
            self.pairs += places.len() + 1;
            if self.pairs > PAIRS_MAX {
                return None;
            }
            for &place in places.iter().filter(|place| new.contains(place)) {
                let length = 1 + place.checked_sub(1).and_then(|before| ending.get(&before)).copied().unwrap_or(0);
                next.insert(place, length);
                if length > best.length {
                    best = Run { old: at + 1 - length, new: place + 1 - length, length };
                }
            }
            ending = next;
        }
        // Popular lines begin no run, but belong to one that they stand beside.
        while best.old > old.start && best.new > new.start && self.old[best.old - 1] == self.new[best.new - 1] {
            best = Run { old: best.old - 1, new: best.new - 1, length: best.length + 1 };
        }
        let end = |run: Run| (run.old + run.length, run.new + run.length);
        while end(best).0 < old.end && end(best).1 < new.end && self.old[end(best).0] == self.new[end(best).1] {
            best.length += 1;
        }
        Some(best)
    }
}

/// Both texts in parts, alternately equal and not.
fn parts(runs: &[Run], old_length: usize, new_length: usize) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    let (mut old, mut new) = (0, 0);
    let end = Run { old: old_length, new: new_length, length: 0 };
    for run in runs.iter().chain([&end]) {
        if old < run.old || new < run.new {
            parts.push(Part { old: old..run.old, new: new..run.new, is_equal: false });
        }
        (old, new) = (run.old + run.length, run.new + run.length);
        match parts.last_mut() {
            _ if run.length == 0 => {}
            // Runs that touch are one.
            Some(last) if last.is_equal => (last.old.end, last.new.end) = (old, new),
            _ => parts.push(Part { old: run.old..old, new: run.new..new, is_equal: true }),
        }
    }
    parts
}

/// The changes that are near each other, with the lines around them.
fn hunks(mut parts: Vec<Part>) -> Vec<Vec<Part>> {
    if let Some(first) = parts.first_mut().filter(|first| first.is_equal) {
        (first.old.start, first.new.start) = tail(first);
    }
    if let Some(last) = parts.last_mut().filter(|last| last.is_equal) {
        (last.old.end, last.new.end) = head(last);
    }
    let mut hunks = Vec::new();
    let mut hunk: Vec<Part> = Vec::new();
    for mut part in parts {
        if part.is_equal && part.old.len() > 2 * CONTEXT {
            let (old_end, new_end) = head(&part);
            hunk.push(Part { old: part.old.start..old_end, new: part.new.start..new_end, is_equal: true });
            hunks.push(std::mem::take(&mut hunk));
            (part.old.start, part.new.start) = tail(&part);
        }
        hunk.push(part);
    }
    hunks.push(hunk);
    hunks.retain(|hunk| hunk.iter().any(|part| !part.is_equal));
    hunks
}

/// Where the last lines of an equal part begin that are shown before a change.
fn tail(part: &Part) -> (usize, usize) {
    let skipped = part.old.len().saturating_sub(CONTEXT);
    (part.old.start + skipped, part.new.start + skipped)
}

/// Where the first lines of an equal part end that are shown after a change.
fn head(part: &Part) -> (usize, usize) {
    let shown = part.old.len().min(CONTEXT);
    (part.old.start + shown, part.new.start + shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_shown_with_three_lines_around_them() {
        let old = "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\nk\nl\nm";
        let new = old.replace("d", "D").replace("\nl\nm", "");
        let shown = "@@ -1,7 +1,7 @@\n a\n b\n c\n-d\n+D\n e\n f\n g\n@@ -9,5 +9,3 @@\n i\n j\n k\n-l\n-m\n";
        assert_eq!(unified(old, &new).as_deref(), Some(shown));
        assert_eq!(unified("a\nb\nc", "b\nc").as_deref(), Some("@@ -1,3 +1,2 @@\n-a\n b\n c\n"));
        assert_eq!(unified("x", "").as_deref(), Some("@@ -1 +1 @@\n-x\n+\n"));
        assert_eq!(unified(old, old).as_deref(), Some(""));
    }

    #[test]
    fn popular_lines_join_the_runs_beside_them() {
        let line = |at: usize| if at.is_multiple_of(2) { "{".to_owned() } else { format!("line {at}") };
        let old: Vec<String> = (0..400).map(line).collect();
        let mut new = old.clone();
        new[201] = "changed".to_owned();
        let shown = unified(&old.join("\n"), &new.join("\n")).unwrap();
        let around = " {\n line 199\n {\n-line 201\n+changed\n {\n line 203\n {\n";
        assert_eq!(shown, format!("@@ -199,7 +199,7 @@\n{around}"));
    }

    #[test]
    fn texts_that_are_too_costly_have_no_difference() {
        // Each of a hundred lines stands in both texts as often as it may without being popular.
        let text = |step: usize| -> String { (0..90_000).map(|at| format!("{}\n", at * step % 100)).collect() };
        assert_eq!(unified(&text(1), &text(3)), None);
    }
}
