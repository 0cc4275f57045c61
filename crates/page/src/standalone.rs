//! One file with the page and its data in it, which opens without a server and without a network.

use bayplan_explain::why::{self, ExplanationList, Options};
use bayplan_explain::{Profiles, State};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::answers::{NodeColumns, explain, summary_of};
use crate::assets::{ICON, INDEX, SCRIPTS, STYLE, hash};

/// Pods that a file explains in full, the first of each group; with what 20,000 nodes answer, one takes some 200 KB.
const PODS_MAX: usize = 50;

/// What a file shows.
pub struct Standalone<'a> {
    /// What is asked.
    pub state: &'a mut State,
    /// Who answers.
    pub profiles: &'a Profiles,
    /// What the cluster is called.
    pub name: &'a str,
    /// The pods that are explained, as `namespace/name`; the first is shown first.
    pub pods: &'a [String],
    /// The time of the decisions.
    pub now: Timestamp,
}

/// Writes the page and its answers into one file, which opens without a server and asks for nothing.
pub fn standalone(shown: Standalone<'_>) -> String {
    let Standalone { state, profiles, name, pods, now } = shown;
    let named = |pod: &String| pod.split_once('/').and_then(|(namespace, name)| state.pod(namespace, name).cloned());
    let infos: Vec<_> = pods.iter().filter_map(named).collect();
    let options = Options { no_preemption: true, ..Options::at(now) };
    let list: ExplanationList = why::explain_all(state, profiles, infos, &options);
    let mut answers = Map::new();
    for pod in list.groups.iter().filter_map(|group| group.pods.first()).take(PODS_MAX) {
        if let Ok(answer) = explain(state, profiles, pod, now) {
            answers.insert(pod.clone(), json!(answer));
        }
    }
    file(&json!({
        "summary": summary_of(state, name, false),
        "nodes": NodeColumns::of(state.cluster()),
        "pending": list,
        "why": answers,
    }))
}

/// The page with data in it. Its policy allows its own script and style by their hashes, and no request at all.
fn file(data: &Value) -> String {
    let script = bundle();
    let policy = format!(
        "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; img-src data:; base-uri 'none'; \
         form-action 'none'",
        hash(&script),
        hash(STYLE.text)
    );
    let policy = format!("<meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">");
    // Inside of a script element, nothing but its end tag and a comment can end it.
    let data = data.to_string().replace('<', "\\u003c");
    let icon = format!("data:image/svg+xml;base64,{}", base64_of(ICON.text));
    let scripts = format!(
        "<script type=\"application/json\" id=\"bayplan-data\">{data}</script>\n\
         <script type=\"module\">{script}</script>\n</body>"
    );
    INDEX
        .text
        .replace("<meta charset=\"utf-8\">", &format!("<meta charset=\"utf-8\">\n{policy}"))
        .replace("href=\"/icon.svg\"", &format!("href=\"{icon}\""))
        .replace("<link rel=\"stylesheet\" href=\"/style.css\">", &format!("<style>{}</style>", STYLE.text))
        .replace("<script type=\"module\" src=\"/main.js\"></script>", "")
        .replace("</body>", &scripts)
}

fn base64_of(text: &str) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(text)
}

/// All scripts as one: each stands after those that it imports, so that imports and exports can be left out.
fn bundle() -> String {
    let mut out = String::new();
    for script in SCRIPTS {
        for line in script.text.lines() {
            if line.starts_with("import ") || line.starts_with("export {") {
                continue;
            }
            out.push_str(line.strip_prefix("export ").unwrap_or(line));
            out.push('\n');
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;

    fn file_of(pod: &str) -> String {
        file(&json!({ "why": { pod: {} } }))
    }

    #[test]
    fn a_file_holds_everything_and_names_no_other() {
        let file = file_of("default/web");
        assert!(file.contains("\"default/web\""));
        for absent in ["src=", "href=\"/", "import ", "export "] {
            let found = file.lines().find(|line| line.trim_start().starts_with(absent) || line.contains(" src=\"/"));
            assert_eq!(found, None, "{absent}");
        }
        let (_, rest) = file.split_once("script-src 'sha256-").unwrap();
        let (_, script) = file.rsplit_once("<script type=\"module\">").unwrap();
        let script = script.split("</script>").next().unwrap();
        assert!(rest.starts_with(&hash(script)), "the policy allows the script");
    }

    #[test]
    fn what_a_cluster_says_cannot_end_the_data() {
        let file = file_of("default/</script><script>alert(1)</script><!--");
        assert_eq!(file.matches("</script>").count(), 2);
        assert!(!file.contains("<!--"));
    }

    #[test]
    fn no_two_scripts_use_one_name_because_they_become_one() {
        let mut known: BTreeMap<String, &str> = BTreeMap::new();
        for script in SCRIPTS {
            for line in script.text.lines() {
                let line = line.strip_prefix("export ").unwrap_or(line);
                let Some(declared) = ["async function ", "function ", "const ", "let ", "class "]
                    .iter()
                    .find_map(|word| line.strip_prefix(word))
                else {
                    continue;
                };
                let end = declared.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(declared.len());
                let other = known.insert(declared[..end].to_owned(), script.path);
                assert!(
                    other.is_none() || end == 0,
                    "{} is in {} and {}",
                    &declared[..end],
                    other.unwrap_or_default(),
                    script.path
                );
            }
        }
    }
}
