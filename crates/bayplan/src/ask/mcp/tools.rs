//! The tools: what a client may ask, as schemas, and the command lines they become.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{Tool, ToolAnnotations};
use serde_json::{Map, Value, json};

/// The most manifests that one question may bring.
const MANIFESTS_MAX: usize = 100;

/// The most events that one question may bring: what a client can send in one message.
const EVENTS_MAX: usize = 100_000;

/// The most configurations that are compared: what fits beside one another.
const CONFIGURATIONS_MAX: usize = 8;

/// How long a cluster is watched when nothing is said.
const WATCH_SECONDS: u64 = 60;
/// The longest that a cluster is watched for one question: clients wait for the answer.
const WATCH_SECONDS_MAX: u64 = 600;

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
    /// Events, passed on as a file of lines.
    Events,
    /// Configurations by name, each passed on as a file.
    Configurations,
    /// A flag with a number of seconds, up to [`WATCH_SECONDS_MAX`].
    Seconds(&'static str),
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
    Verb {
        name: "simulate",
        title: "How would a history go under one or several configurations?",
        description: "Begins with the cluster's state and lets pods and nodes come and go in virtual time, under each \
            KubeSchedulerConfiguration: nodes in use, pending pod-minutes, preemptions, fragmentation, spread \
            violations, utilisation over time and how long pods waited. The cluster is not changed.",
        properties: &[
            Property {
                name: "arrivals",
                form: Form::Events,
                description: "What comes and goes, each an event such as {\"time\": 30, \"action\": \"create\", \
                    \"pod\": POD, \"runSeconds\": 600}, {\"time\": 95, \"action\": \"delete\", \"pod\": \
                    \"NAMESPACE/NAME\"} or {\"time\": 0, \"action\": \"create\", \"object\": OBJECT}; time is a \
                    date or seconds from the beginning.",
            },
            Property {
                name: "configurations",
                form: Form::Configurations,
                description: "KubeSchedulerConfigurations as YAML, by name; an empty text means the defaults.",
            },
            AS_WRITTEN,
            NO_PREEMPTION,
        ],
    },
    Verb {
        name: SHADOW,
        title: "Does the cluster's scheduler decide as expected?",
        description: "Watches the live cluster for some seconds and judges every binding that its scheduler makes: \
            same node, tied, outside of its sample, raced, or unexplained. Only reads.",
        properties: &[Property {
            name: "seconds",
            form: Form::Seconds("for"),
            description: "How long to watch, at most 600 seconds; 60 when it is left out.",
        }],
    },
];

/// The verb that needs a live cluster, and takes as long as it is asked to.
pub(super) const SHADOW: &str = "shadow";

/// How long a question watches the cluster before it can be answered.
pub(super) fn watches_for(verb: &str, arguments: &Map<String, Value>) -> Duration {
    let asked = arguments.get("seconds").and_then(Value::as_u64).unwrap_or(WATCH_SECONDS);
    Duration::from_secs(if verb == SHADOW { asked.min(WATCH_SECONDS_MAX) } else { 0 })
}

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
            Form::Seconds(_) => json!({"type": "integer", "minimum": 1, "maximum": WATCH_SECONDS_MAX}),
            Form::Events => json!({"type": "array", "items": {"type": "object"}}),
            Form::Configurations => json!({"type": "object", "additionalProperties": {"type": "string"}}),
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
            form => flags.extend(flags_of(form, name, value, &mut manifests)?),
        }
    }
    if verb.name == SHADOW && !arguments.contains_key("seconds") {
        flags.push(format!("--for={WATCH_SECONDS}s"));
    }
    if let Some(target) = target {
        // What follows is no flag, whatever a client calls its objects.
        flags.extend(["--".to_owned(), target]);
    }
    Ok(flags)
}

/// The flags that an argument becomes.
fn flags_of(form: Form, name: &str, value: &Value, manifests: &mut Manifests<'_>) -> Result<Vec<String>, String> {
    let number = || value.as_u64().ok_or_else(|| format!("{name} must be a whole number"));
    Ok(match form {
        Form::Target => Vec::new(),
        Form::Switch(flag) if boolean(name, value)? => vec![format!("--{flag}")],
        Form::Switch(_) => Vec::new(),
        Form::Text(flag) => vec![format!("--{flag}={}", text(name, value)?)],
        Form::Number(flag) => vec![format!("--{flag}={}", number()?)],
        Form::Seconds(flag) => match number()? {
            seconds @ 1..=WATCH_SECONDS_MAX => vec![format!("--{flag}={seconds}s")],
            _ => return Err(format!("{name} must be from 1 to {WATCH_SECONDS_MAX}")),
        },
        Form::Manifest => vec![manifests.flag(text(name, value)?)?],
        Form::Actions => {
            let actions = value.as_array().ok_or_else(|| format!("{name} must be a list"))?;
            actions.iter().map(|each| action(each, manifests)).collect::<Result<_, _>>()?
        }
        Form::Events => vec![events(name, value, manifests)?],
        Form::Configurations => configurations(name, value, manifests)?,
    })
}

/// Events as a file of lines.
fn events(name: &str, value: &Value, manifests: &mut Manifests<'_>) -> Result<String, String> {
    let events = value.as_array().ok_or_else(|| format!("{name} must be a list"))?;
    if events.len() > EVENTS_MAX {
        return Err(format!("a question takes at most {EVENTS_MAX} events"));
    }
    let lines: String = events.iter().map(|event| format!("{event}\n")).collect();
    Ok(format!("--arrivals={}", manifests.keep("arrivals.jsonl", &lines)?))
}

/// Configurations as files.
fn configurations(name: &str, value: &Value, manifests: &mut Manifests<'_>) -> Result<Vec<String>, String> {
    let all = value.as_object().ok_or_else(|| format!("{name} must be an object"))?;
    if all.len() > CONFIGURATIONS_MAX {
        return Err(format!("a question takes at most {CONFIGURATIONS_MAX} configurations"));
    }
    let mut flags = Vec::new();
    for (at, (called, yaml)) in all.iter().enumerate() {
        if called.is_empty() || called.contains('=') {
            return Err(format!("{called:?} is no name for a configuration: it must not be empty or contain ="));
        }
        flags.push(match text(called, yaml)? {
            "" => format!("--config={called}="),
            yaml => format!("--config={called}={}", manifests.keep(&format!("config-{at}.yaml"), yaml)?),
        });
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
        let name = format!("manifest-{}.yaml", self.written);
        self.written += 1;
        Ok(format!("--filename={}", self.keep(&name, manifest)?))
    }

    /// Writes a file, and says where.
    fn keep(&self, name: &str, text: &str) -> Result<String, String> {
        let path = self.folder.join(name);
        std::fs::write(&path, text).map_err(|error| format!("cannot keep {name}: {error}"))?;
        Ok(path.display().to_string())
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
    fn a_watch_ends_and_a_configuration_has_a_name() {
        check("shadow", json!({}), Ok(&["--for=60s"]));
        check("shadow", json!({"seconds": 5}), Ok(&["--for=5s"]));
        check("shadow", json!({"seconds": 0}), Err("seconds must be from 1 to 600"));
        check("shadow", json!({"seconds": 100_000}), Err("seconds must be from 1 to 600"));
        let asked = json!({"seconds": 100_000});
        assert_eq!(watches_for("shadow", asked.as_object().unwrap()), Duration::from_secs(600));
        assert_eq!(watches_for("why", asked.as_object().unwrap()), Duration::ZERO);
        check("simulate", json!({"configurations": {"plain": ""}}), Ok(&["--config=plain="]));
        let unnamed = "\"a=/etc/x\" is no name for a configuration: it must not be empty or contain =";
        check("simulate", json!({"configurations": {"a=/etc/x": ""}}), Err(unnamed));
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
                    Form::Switch(flag) | Form::Text(flag) | Form::Number(flag) | Form::Seconds(flag) => {
                        assert!(known(flag), "{flag}");
                    }
                    Form::Events => assert!(known("arrivals")),
                    Form::Configurations => assert!(known("config")),
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
