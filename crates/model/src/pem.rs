//! Blocks of PEM text, read as Go's `encoding/pem` reads them: what stands between, before and behind is passed over.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// One block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// What it is: `CERTIFICATE` for example.
    pub label: String,
    /// Whether lines such as `Proc-Type: …` precede the data.
    pub has_headers: bool,
    /// The data.
    pub der: Vec<u8>,
}

/// The blocks of a text, in order; those that cannot be read are passed over.
pub fn blocks(text: &[u8]) -> Vec<Block> {
    let text = String::from_utf8_lossy(text);
    let mut found = Vec::new();
    let mut open: Option<Open> = None;
    for line in text.lines().map(str::trim_end) {
        if let Some(label) = between(line, "-----BEGIN ") {
            open = Some(Open { label, has_headers: false, data: String::new() });
        } else if let Some(end) = between(line, "-----END ") {
            let whole = open.take().filter(|open| open.label == end);
            let der = whole.as_ref().and_then(|open| STANDARD.decode(&open.data).ok());
            if let (Some(open), Some(der)) = (whole, der) {
                found.push(Block { label: open.label.to_owned(), has_headers: open.has_headers, der });
            }
        } else if let Some(open) = &mut open {
            if line.contains(':') && open.data.is_empty() {
                open.has_headers = true;
            } else {
                open.data.extend(line.chars().filter(|c| !c.is_ascii_whitespace()));
            }
        }
    }
    found
}

struct Open<'t> {
    label: &'t str,
    has_headers: bool,
    data: String,
}

fn between<'t>(line: &'t str, start: &str) -> Option<&'t str> {
    line.strip_prefix(start)?.strip_suffix("-----")
}

/// A block as text.
pub fn encode(label: &str, der: &[u8]) -> String {
    /// Bytes in a line of 64 characters.
    const LINE: usize = 48;
    let lines: String = der.chunks(LINE).map(|chunk| STANDARD.encode(chunk) + "\n").collect();
    format!("-----BEGIN {label}-----\n{lines}-----END {label}-----\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_found_among_other_text_and_broken_ones_passed_over() {
        let good = encode("A B", &[7; 60]);
        let block = |has_headers| Block { label: "A B".into(), has_headers, der: vec![7; 60] };
        let headers = good.replacen("-----\n", "-----\nProc-Type: 4\n\n", 1);
        let broken = "-----BEGIN A B-----\n*\n-----END A B-----\n-----BEGIN A B-----\nAAAA\n-----END C-----\n";
        let text = format!("before\n{good}between\n{broken}{headers}after");
        assert_eq!(blocks(text.as_bytes()), [block(false), block(true)]);
        assert_eq!(blocks(b"-----BEGIN A-----\nAAAA\n"), []);
        assert_eq!(blocks(good.replace('\n', "\r\n").as_bytes()), [block(false)]);
    }
}
