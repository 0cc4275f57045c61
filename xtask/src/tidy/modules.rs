//! The form and the names of modules.

use super::lexer::{Kind, tokens};
use super::tree::Tree;
use super::{Violation, violation};

/// Names that say nothing of what is inside.
const NAMELESS: [&str; 6] = ["common", "helper", "helpers", "misc", "util", "utils"];

pub(crate) fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for (path, text) in tree.with_extension("rs") {
        let stem = path.trim_end_matches(".rs");
        if tree.under(stem).any(|inner| inner.ends_with(".rs")) {
            found.push(violation("module", path, path, format!("stands beside {stem}/; move it to {stem}/mod.rs")));
        }
        if let Some(name) = stem.split('/').find(|part| NAMELESS.contains(part)) {
            found.push(violation("name", path, path, format!("`{name}` says nothing of what is inside")));
        }
        let tokens: Vec<_> = tokens(text).into_iter().filter(|token| !token.is_comment()).collect();
        for pair in tokens.windows(3) {
            let inline = pair[0].is(Kind::Ident, "mod") && pair[2].is(Kind::Punct, "{");
            if inline && NAMELESS.contains(&pair[1].text) {
                let why = format!("`mod {}` says nothing of what is inside", pair[1].text);
                found.push(violation("name", &format!("{path}:{}", pair[1].line), path, why));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tests::check_rule;

    #[test]
    fn a_module_with_files_of_its_own_is_a_folder() {
        let expected = ["src/queue.rs: stands beside src/queue/; move it to src/queue/mod.rs"];
        check_rule(check, &[("src/queue.rs", ""), ("src/queue/backoff.rs", "")], &expected);
        check_rule(check, &[("src/queue/mod.rs", ""), ("src/queue/backoff.rs", "")], &[]);
        check_rule(check, &[("tests/kubectl.rs", ""), ("tests/kubectl/apply.txt", "")], &[]);
    }

    #[test]
    fn a_module_is_named_after_what_is_inside() {
        let expected = ["src/utils/mod.rs: `utils` says nothing of what is inside"];
        check_rule(check, &[("src/utils/mod.rs", "")], &expected);
        check_rule(
            check,
            &[("src/a.rs", "\nmod helpers {}")],
            &["src/a.rs:2: `mod helpers` says nothing of what is inside"],
        );
        check_rule(check, &[("src/commonly.rs", "// mod helpers {}")], &[]);
    }
}
