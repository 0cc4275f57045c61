//! The operations of what upstream passes on to kubelets: logs, sessions and proxies.

use bayplan_kinds::{Kind, Subresource};

use super::operations::{Operation, capitalized, id_prefix};

const PATH: (&str, &str) = ("path", "string");
const LOG: &[(&str, &str)] = &[
    ("container", "string"),
    ("follow", "boolean"),
    ("insecureSkipTLSVerifyBackend", "boolean"),
    ("limitBytes", "integer"),
    ("pretty", "string"),
    ("previous", "boolean"),
    ("sinceSeconds", "integer"),
    ("stream", "string"),
    ("tailLines", "integer"),
    ("timestamps", "boolean"),
];
const ATTACH: &[(&str, &str)] =
    &[("container", "string"), ("stderr", "boolean"), ("stdin", "boolean"), ("stdout", "boolean"), ("tty", "boolean")];
const COMMAND: (&str, &str) = ("command", "string");
const PORTS: (&str, &str) = ("ports", "integer");

const SESSION_METHODS: &[&str] = &["get", "post"];
const PROXY_METHODS: &[&str] = &["delete", "get", "head", "options", "patch", "post", "put"];

/// The operations of such a subresource, at this path; none for any other.
pub(super) fn of(row: &'static Kind, sub: &'static Subresource, path: &str) -> Vec<Operation> {
    let connect = |methods: &'static [&'static str], query: &[(&'static str, &'static str)]| -> Vec<Operation> {
        methods.iter().map(|method| connection(row, sub, path, method, query)).collect()
    };
    match (row.group, sub.name) {
        ("", "log") => vec![Operation {
            id: format!("{}{}", id_prefix("read", row), what(row, sub)),
            action: "get",
            produces: &["text/plain", "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"],
            ..connection(row, sub, path, "get", LOG)
        }],
        ("", "exec") => connect(SESSION_METHODS, &[&[COMMAND], ATTACH].concat()),
        ("", "attach") => connect(SESSION_METHODS, ATTACH),
        ("", "portforward") => connect(SESSION_METHODS, &[PORTS]),
        ("", "proxy") => {
            let below = format!("{path}/{{path}}");
            let more = PROXY_METHODS.iter().map(|method| {
                let operation = connection(row, sub, &below, method, &[PATH]);
                Operation { id: format!("{}WithPath", operation.id), ..operation }
            });
            connect(PROXY_METHODS, &[PATH]).into_iter().chain(more).collect()
        }
        _ => Vec::new(),
    }
}

/// `NamespacedPodExec`.
fn what(row: &Kind, sub: &Subresource) -> String {
    let scope = if row.namespaced() { "Namespaced" } else { "" };
    format!("{scope}{}{}", row.kind, capitalized(sub.name))
}

fn connection(
    row: &'static Kind,
    sub: &'static Subresource,
    path: &str,
    method: &'static str,
    query: &[(&'static str, &'static str)],
) -> Operation {
    Operation {
        path: path.to_owned(),
        method,
        id: format!("{}{}{}", id_prefix("connect", row), capitalized(method), what(row, sub)),
        action: "connect",
        kind: (row.group.to_owned(), row.version.to_owned(), sub.kind.to_owned()),
        body: None,
        answer: None,
        produces: &["*/*"],
        query: query.to_vec(),
    }
}
