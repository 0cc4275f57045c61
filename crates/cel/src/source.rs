//! Where something is wrong with an expression, and how it is shown.

/// Something wrong, at a character of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// In characters from the start; none for a fault of the whole.
    at: Option<usize>,
    message: String,
}

/// How many faults are shown; upstream's limit.
const FAULTS_MAX: usize = 100;
/// From how many bytes on the remaining faults are counted, not shown. Each shows its whole line: a hundred faults in a
/// long line would make an answer two hundred times as large as the expression, as they do upstream.
const SHOWN_BYTES_MAX: usize = 8 * 1024;

impl Fault {
    pub(crate) fn new(at: usize, message: impl Into<String>) -> Self {
        Fault { at: Some(at), message: message.into() }
    }

    /// A fault of the whole expression.
    pub(crate) fn of_all(message: impl Into<String>) -> Self {
        Fault { at: None, message: message.into() }
    }
}

/// Shows faults by their place, each with its line and a mark below.
pub(crate) fn show(text: &str, mut faults: Vec<Fault>) -> String {
    faults.sort_by_key(|fault| fault.at);
    faults.truncate(FAULTS_MAX);
    let mut shown = String::new();
    for (at, fault) in faults.iter().enumerate() {
        if at > 0 {
            shown.push('\n');
        }
        if shown.len() > SHOWN_BYTES_MAX {
            let more = faults.len() - at;
            shown.push_str(&show_one(text, &Fault::of_all(format!("{more} more errors are not shown"))));
            break;
        }
        shown.push_str(&show_one(text, fault));
    }
    shown
}

fn show_one(text: &str, fault: &Fault) -> String {
    let message = &fault.message;
    let Some(at) = fault.at else { return format!("ERROR: <input>:-1:0: {message}") };
    if text.is_empty() {
        return format!("ERROR: <input>:1:0: {message}");
    }
    let (mut line, mut column) = (1, 0);
    for c in text.chars().take(at) {
        if c == '\n' {
            (line, column) = (line + 1, 0);
        } else {
            column += 1;
        }
    }
    let snippet = text.split('\n').nth(line - 1).unwrap_or_default().replace('\t', " ");
    let mut below = String::new();
    let mut rest = snippet.chars();
    for c in rest.by_ref().take(column) {
        below.push(if c.len_utf8() > 1 { '．' } else { '.' });
    }
    below.push(if rest.next().is_some_and(|c| c.len_utf8() > 1) { '＾' } else { '^' });
    format!("ERROR: <input>:{line}:{}: {message}\n | {snippet}\n | {below}", column + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_shown_until_there_is_enough_to_read() {
        let text = "?".repeat(1000);
        let faults: Vec<Fault> = (0..500).map(|at| Fault::new(at, "no")).collect();
        let all = show(&text, faults);
        let last = all.lines().last().unwrap();
        assert!(last.starts_with("ERROR: <input>:-1:0: ") && last.ends_with(" more errors are not shown"), "{last}");
        assert!(all.len() < SHOWN_BYTES_MAX + 3 * text.len(), "{}", all.len());
        assert_eq!(show("?", vec![Fault::new(0, "no")]), "ERROR: <input>:1:1: no\n | ?\n | ^");
    }
}
