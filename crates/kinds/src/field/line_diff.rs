//! What changed between two values, line by line, as upstream appends it to messages: a unified diff of indented JSON.

/// How many equal lines are shown before and after the change.
const CONTEXT: usize = 3;

/// The difference of two compact JSON texts in one hunk: from the first line that differs to the last.
pub(crate) fn line_diff(before: &str, after: &str) -> String {
    let (old, new) = (lines(before), lines(after));
    let common = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let shorter = old.len().min(new.len()) - common;
    let tail = old.iter().rev().zip(new.iter().rev()).take(shorter).take_while(|(a, b)| a == b).count();
    if common == old.len() && common == new.len() {
        return String::new();
    }
    let (old_end, new_end) = (old.len() - tail, new.len() - tail);
    let start = common.saturating_sub(CONTEXT);
    let after = tail.min(CONTEXT);
    let (removed, added) = (old_end + after - start, new_end + after - start);
    let mut hunk = format!("@@ -{},{removed} +{},{added} @@\n", start + 1, start + 1);
    let mut write = |mark: char, lines: &[String]| lines.iter().for_each(|line| hunk += &format!("{mark}{line}\n"));
    write(' ', &old[start..common]);
    write('-', &old[common..old_end]);
    write('+', &new[common..new_end]);
    write(' ', &old[old_end..old_end + after]);
    hunk
}

/// A compact JSON text, indented by one space a level.
fn lines(compact: &str) -> Vec<String> {
    let (mut lines, mut line, mut depth) = (Vec::new(), String::new(), 0_usize);
    let (mut in_string, mut escaped) = (false, false);
    let mut rest = compact.chars().peekable();
    let fresh = |depth: usize| " ".repeat(depth);
    while let Some(next) = rest.next() {
        if in_string {
            line.push(next);
            in_string = escaped || next != '"';
            escaped = !escaped && next == '\\';
            continue;
        }
        match next {
            '{' | '[' => {
                line.push(next);
                if let Some(close) = rest.next_if(|close| matches!(close, '}' | ']')) {
                    line.push(close);
                } else {
                    depth += 1;
                    lines.push(std::mem::replace(&mut line, fresh(depth)));
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                lines.push(std::mem::replace(&mut line, fresh(depth)));
                line.push(next);
            }
            ',' => {
                line.push(next);
                lines.push(std::mem::replace(&mut line, fresh(depth)));
            }
            ':' => line.push_str(": "),
            other => {
                in_string = other == '"';
                line.push(other);
            }
        }
    }
    lines.push(line);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_shown_with_what_is_around_it() {
        let before = r#"{"a":[],"b":{"c":"x, \"{y"},"d":null,"e":1,"f":2,"g":3}"#;
        let after = r#"{"a":[],"b":{"c":"x, \"{y"},"d":["z"],"e":1,"f":2,"g":3}"#;
        let expected = concat!(
            "@@ -3,7 +3,9 @@\n",
            "  \"b\": {\n   \"c\": \"x, \\\"{y\"\n  },\n",
            "- \"d\": null,\n",
            "+ \"d\": [\n+  \"z\"\n+ ],\n",
            "  \"e\": 1,\n  \"f\": 2,\n  \"g\": 3\n",
        );
        assert_eq!(line_diff(before, after), expected);
        assert_eq!(line_diff(before, before), "");
        assert_eq!(line_diff("1", "2"), "@@ -1,1 +1,1 @@\n-1\n+2\n");
    }
}
