//! What a request asks for.

use http::Method;
use serde::Deserialize;
use serde_json::Value;

use crate::query::parameter;

/// The longest name of a pod with its namespace, or of a node, that a question may have: what Kubernetes allows.
const NAME_MAX: usize = 63 + 1 + 253;

/// A question of the page.
#[derive(Debug, PartialEq)]
pub(crate) enum Question {
    /// A file of the page.
    Asset(String),
    /// How many nodes and pods there are, and where the state comes from.
    Summary,
    /// All nodes, in columns.
    Nodes,
    /// All pending pods, grouped by cause.
    Pending,
    /// One pod.
    Why { pod: String },
    /// Pods whose names have this text.
    Find { text: String },
    /// One node, and what every filter says of a pod there.
    Node { name: String, pod: Option<String> },
    /// Decisions from a number on.
    Decisions { since: u64 },
    /// A version other than the one that was seen.
    Events { seen: Option<String> },
    /// What would be after a change; its body follows.
    Try,
}

/// Why a request asks for nothing.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NoQuestion {
    /// There is nothing at this path.
    NotFound,
    /// The path takes another method.
    Method,
    /// A parameter is missing or too long.
    Parameter(&'static str),
}

/// Reads a request by its head.
pub(crate) fn question(method: &Method, path: &str, query: &str) -> Result<Question, NoQuestion> {
    let Some(api) = path.strip_prefix("/api/") else {
        return match *method == Method::GET {
            true => Ok(Question::Asset(path.to_owned())),
            false => Err(NoQuestion::Method),
        };
    };
    let expected = if api == "try" { Method::POST } else { Method::GET };
    let name = |key: &str| parameter(query, key).filter(|name| !name.is_empty() && name.len() <= NAME_MAX);
    let needs = |key: &'static str| name(key).ok_or(NoQuestion::Parameter(key));
    let question = match api {
        "summary" => Question::Summary,
        "nodes" => Question::Nodes,
        "pending" => Question::Pending,
        "why" => Question::Why { pod: needs("pod")? },
        "find" => Question::Find { text: needs("text")? },
        "node" => Question::Node { name: needs("name")?, pod: name("pod") },
        "decisions" => {
            let since = parameter(query, "since").unwrap_or_default();
            Question::Decisions { since: since.parse().unwrap_or_default() }
        }
        "events" => Question::Events { seen: name("seen") },
        "try" => Question::Try,
        _ => return Err(NoQuestion::NotFound),
    };
    if *method == expected { Ok(question) } else { Err(NoQuestion::Method) }
}

/// A change to try, as `changes` of an explanation has it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Trial {
    /// The pod that is asked about, as `namespace/name`.
    pub(crate) pod: String,
    /// JSON patches of objects.
    pub(crate) patches: Vec<Value>,
    /// Pods to delete, as `namespace/name`.
    pub(crate) deletes: Vec<String>,
    /// Objects to add.
    pub(crate) adds: Vec<Value>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_questions() {
        let get = |path: &str, query: &str| question(&Method::GET, path, query);
        assert_eq!(get("/main.js", ""), Ok(Question::Asset("/main.js".into())));
        assert_eq!(get("/api/why", "pod=a%2Fb"), Ok(Question::Why { pod: "a/b".into() }));
        assert_eq!(get("/api/why", ""), Err(NoQuestion::Parameter("pod")));
        assert_eq!(get("/api/why", &format!("pod={}", "a".repeat(400))), Err(NoQuestion::Parameter("pod")));
        assert_eq!(get("/api/node", "name=n"), Ok(Question::Node { name: "n".into(), pod: None }));
        assert_eq!(get("/api/decisions", "since=x"), Ok(Question::Decisions { since: 0 }));
        assert_eq!(get("/api/secrets", ""), Err(NoQuestion::NotFound));
    }

    #[test]
    fn only_a_change_is_posted() {
        assert_eq!(question(&Method::POST, "/api/try", ""), Ok(Question::Try));
        assert_eq!(question(&Method::GET, "/api/try", ""), Err(NoQuestion::Method));
        assert_eq!(question(&Method::POST, "/api/nodes", ""), Err(NoQuestion::Method));
        assert_eq!(question(&Method::DELETE, "/", ""), Err(NoQuestion::Method));
    }
}
