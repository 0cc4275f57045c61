//! The tools: what a client may ask, as schemas, and the command lines they become.

use std::path::Path;
use std::sync::Arc;

use rmcp::model::{Tool, ToolAnnotations};
use serde_json::{Map, Value, json};

/// The most manifests that one question may bring.
const MANIFESTS_MAX: usize = 100;

/// A tool is a verb of the command line with those of its flags that read nothing but the cluster.
struct Verb {
    name: &'static str,
    title: &'static str,
    description: &'static str,
    properties: &'static [Property],
}

/// An argument of a tool.
struct Property {
    name: &'static str,
    form: Form,
    description: &'static str,
}

/// What an argument is, and how the command line has it.
#[derive(Clone, Copy)]
enum Form {
    /// The object that is asked about.
    Target,
    /// A flag that is there or not.
    Switch(&'static str),
    /// A flag with a text.
    Text(&'static str),
    /// A flag with a whole number.
    Number(&'static str),
    /// A manifest, passed on as a file.
    Manifest,
    /// Actions in order, each an object with one entry.
    Actions,
}

const NAMESPACE: Property =
    Property { name: "namespace", form: Form::Text("namespace"), description: "The namespace of the object." };
const NO_PREEMPTION: Property = Property {
    name: "noPreemption",
    form: Form::Switch("no-preemption"),
    description: "Do not evict other pods for one that fits nowhere.",
};
const AS_WRITTEN: Property = Property {
    name: "asWritten",
    form: Form::Switch("as-written"),
    description: "Take manifests as they are, without the defaults that the API server would fill in.",
};

const VERBS: &[Verb] = &[
    Verb {
        name: "why",
        title: "Why is a pod pending, or where it is?",
        description: "Explains the scheduler's decision about pods: the verdict, how many nodes each filter refused \
            and why, scores, preemption, and changes that are proven to let the pod in. Give target, allNamespaces or \
            manifest.",
        properties: &[
            Property {
                name: "target",
                form: Form::Target,
                description: "The object: pod/NAME, deployment/NAME, statefulset/NAME, job/NAME or node/NAME.",
            },
            NAMESPACE,
            Property {
                name: "allNamespaces",
                form: Form::Switch("all-namespaces"),
                description: "Explain all pending pods, grouped by template and cause.",
            },
            Property {
                name: "manifest",
                form: Form::Manifest,
                description: "YAML or JSON of pods or workloads that do not exist yet.",
            },
            AS_WRITTEN,
            Property { name: "node", form: Form::Text("node"), description: "Also ask every filter about this node." },
            Property {
                name: "perNode",
                form: Form::Switch("per-node"),
                description: "Add the answer of every node; large in large clusters.",
            },
            NO_PREEMPTION,
        ],
    },
    Verb {
        name: "whatif",
        title: "What would happen if?",
        description: "Applies changes to a copy of the cluster's state and decides again: what is placed where, what \
            stays pending and why, who moves or is preempted, utilisation before and after. The cluster is not \
            changed.",
        properties: &[
            Property {
                name: "actions",
                form: Form::Actions,
                description: "Changes in order, each an object with one entry: {\"manifest\": YAML}, {\"add\": \
                    \"3=POOL\"}, {\"drain\": \"NODE,NODE\"}, {\"cordon\": \"NODE\"}, {\"delete\": \"pod/NAME\"}, \
                    {\"scale\": \"deploy/NAME=40\"}, {\"setPriority\": \"deploy/NAME=1000\"}.",
            },
            NAMESPACE,
            Property {
                name: "replicas",
                form: Form::Number("replicas"),
                description: "How many replicas the workloads of the manifests get.",
            },
            AS_WRITTEN,
            NO_PREEMPTION,
        ],
    },
];

/// All tools, as clients list them.
pub(super) fn all() -> Vec<Tool> {
    let tool = |verb: &Verb| {
        let annotations = ToolAnnotations::with_title(verb.title).read_only(true).open_world(false);
        Tool::new(verb.name, verb.description, Arc::new(schema(verb))).with_annotations(annotations)
    };
    VERBS.iter().map(tool).collect()
}

/// The verb of a tool.
pub(super) fn find(name: &str) -> Option<&'static str> {
    VERBS.iter().map(|verb| verb.name).find(|verb| *verb == name)
}

fn schema(verb: &Verb) -> Map<String, Value> {
    let of = |property: &Property| {
        let mut schema = match property.form {
            Form::Switch(_) => json!({"type": "boolean"}),
            Form::Number(_) => json!({"type": "integer", "minimum": 0}),
            Form::Target | Form::Text(_) | Form::Manifest => json!({"type": "string"}),
            Form::Actions => json!({
                "type": "array",
                "items": {"type": "object", "minProperties": 1, "maxProperties": 1,
                    "additionalProperties": {"type": "string"}},
            }),
        };
        schema["description"] = property.description.into();
        (property.name.to_owned(), schema)
    };
    let properties: Map<String, Value> = verb.properties.iter().map(of).collect();
    let mut schema = Map::new();
    schema.insert("type".into(), "object".into());
    schema.insert("properties".into(), properties.into());
    schema.insert("additionalProperties".into(), false.into());
    schema
}

/// The flags of a question. Manifests become files in `folder`.
pub(super) fn command_line(verb: &str, arguments: &Map<String, Value>, folder: &Path) -> Result<Vec<String>, String> {
    let verb = VERBS.iter().find(|known| known.name == verb).ok_or_else(|| format!("there is no tool {verb:?}"))?;
    let mut flags = Vec::new();
    let mut target = None;
    let mut manifests = Manifests { folder, written: 0 };
    for (name, value) in arguments {
        let Some(property) = verb.properties.iter().find(|property| property.name == name) else {
            let known: Vec<&str> = verb.properties.iter().map(|property| property.name).collect();
            return Err(format!("{} has no argument {name:?}: there are {}", verb.name, known.join(", ")));
        };
        match property.form {
            Form::Target => target = Some(text(name, value)?.to_owned()),
            Form::Switch(flag) if boolean(name, value)? => flags.push(format!("--{flag}")),
            Form::Switch(_) => {}
            Form::Text(flag) => flags.push(format!("--{flag}={}", text(name, value)?)),
            Form::Number(flag) => {
                let number = value.as_u64().ok_or_else(|| format!("{name} must be a whole number"))?;
                flags.push(format!("--{flag}={number}"));
            }
            Form::Manifest => flags.push(manifests.flag(text(name, value)?)?),
            Form::Actions => {
                let actions = value.as_array().ok_or_else(|| format!("{name} must be a list"))?;
                for each in actions {
                    flags.push(action(each, &mut manifests)?);
                }
            }
        }
    }
    if let Some(target) = target {
        // What follows is no flag, whatever a client calls its objects.
        flags.extend(["--".to_owned(), target]);
    }
    Ok(flags)
}

fn action(value: &Value, manifests: &mut Manifests<'_>) -> Result<String, String> {
    let one = value.as_object().filter(|entries| entries.len() == 1).and_then(|entries| entries.iter().next());
    let Some((name, value)) = one else { return Err("each action is an object with one entry".to_owned()) };
    let value = text(name, value)?;
    let flag = match name.as_str() {
        "manifest" => return manifests.flag(value),
        // The other form of --add reads a file.
        "add" if value.split_once('=').is_none() => return Err("add must be COUNT=POOL".to_owned()),
        "add" if value.contains(['/', '\\']) => return Err("add takes a pool, not a file".to_owned()),
        "add" | "drain" | "cordon" | "delete" | "scale" => name,
        "setPriority" => "set-priority",
        _ => {
            return Err(format!(
                "there is no action {name:?}: there are manifest, add, drain, cordon, delete, scale and setPriority"
            ));
        }
    };
    Ok(format!("--{flag}={value}"))
}

fn text<'v>(name: &str, value: &'v Value) -> Result<&'v str, String> {
    value.as_str().ok_or_else(|| format!("{name} must be a string"))
}

fn boolean(name: &str, value: &Value) -> Result<bool, String> {
    value.as_bool().ok_or_else(|| format!("{name} must be true or false"))
}

/// The manifests of a question, each in a file of its own.
struct Manifests<'a> {
    folder: &'a Path,
    written: usize,
}

impl Manifests<'_> {
    fn flag(&mut self, manifest: &str) -> Result<String, String> {
        if self.written == MANIFESTS_MAX {
            return Err(format!("a question takes at most {MANIFESTS_MAX} manifests"));
        }
        let path = self.folder.join(format!("manifest-{}.yaml", self.written));
        std::fs::write(&path, manifest).map_err(|error| format!("cannot keep the manifest: {error}"))?;
        self.written += 1;
        Ok(format!("--filename={}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(verb: &str, arguments: Value, expected: Result<&[&str], &str>) {
        let folder = Path::new("nowhere");
        let flags = command_line(verb, arguments.as_object().unwrap(), folder);
        let flags = flags.as_ref().map(|flags| flags.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(flags.map_err(String::as_str), expected.map(<[&str]>::to_vec));
    }

    #[test]
    fn arguments_become_flags() {
        check(
            "why",
            json!({"target": "pod/web", "namespace": "shop", "perNode": true, "noPreemption": false}),
            Ok(&["--namespace=shop", "--per-node", "--", "pod/web"]),
        );
        check(
            "whatif",
            json!({
                "actions": [{"drain": "n1,n2"}, {"scale": "deploy/web=40"}, {"setPriority": "pod/x=7"}],
                "replicas": 3,
            }),
            Ok(&["--drain=n1,n2", "--scale=deploy/web=40", "--set-priority=pod/x=7", "--replicas=3"]),
        );
    }

    #[test]
    fn a_client_reaches_neither_flags_nor_files_that_are_not_offered() {
        check("why", json!({"target": "--from=/etc/passwd"}), Ok(&["--", "--from=/etc/passwd"]));
        check("why", json!({"node": 3}), Err("node must be a string"));
        check("whatif", json!({"actions": [{"add": "3=../node.yaml"}]}), Err("add takes a pool, not a file"));
        check(
            "whatif",
            json!({"actions": [{"from": "x"}]}),
            Err("there is no action \"from\": there are manifest, add, drain, cordon, delete, scale and setPriority"),
        );
        check(
            "whatif",
            json!({"actions": [{"drain": "a", "cordon": "b"}]}),
            Err("each action is an object with one entry"),
        );
        check(
            "whatif",
            json!({"from": "x"}),
            Err("whatif has no argument \"from\": there are actions, namespace, replicas, asWritten, noPreemption"),
        );
    }

    #[test]
    fn every_flag_of_a_tool_is_a_flag_of_its_verb() {
        use clap::CommandFactory;
        let cli = crate::args::Cli::command();
        for verb in VERBS {
            let command = cli.find_subcommand(verb.name).unwrap();
            let known = |flag: &str| command.get_arguments().any(|argument| argument.get_long() == Some(flag));
            for property in verb.properties {
                match property.form {
                    Form::Switch(flag) | Form::Text(flag) | Form::Number(flag) => assert!(known(flag), "{flag}"),
                    Form::Manifest => assert!(known("filename")),
                    Form::Actions => {
                        for flag in ["add", "drain", "cordon", "delete", "scale", "set-priority", "filename"] {
                            assert!(known(flag), "{flag}");
                        }
                    }
                    Form::Target => {}
                }
            }
        }
    }
}
