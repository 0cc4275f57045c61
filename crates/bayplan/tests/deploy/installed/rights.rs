//! The rights that a manifest gives, compared with what was really requested.

use std::fmt;
use std::path::Path;

use serde_json::Value;

use super::pod::PodProcess;
use super::recorder::{Recorded, Recorder};
use super::requests::Attributes;
use super::{Target, manifest, work};

/// Rights that no request names, because an API server asks for them besides the one that the request needs.
const UNREQUESTED: [(&str, &str); 1] = [(
    "patch resourceclaims/binding.resource.k8s.io",
    "kube-apiserver v1.36 checks it for a patch of resourceclaims/status that allocates: the drop-in tests try it",
)];

/// One verb on one resource, as a role gives it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Right {
    verb: String,
    group: String,
    resource: String,
    /// That of a Role; none of a ClusterRole.
    namespace: Option<String>,
    /// None for every name.
    name: Option<String>,
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        if let Some(name) = &self.name {
            write!(f, " {name}")?;
        }
        Ok(())
    }
}

impl Right {
    /// Whether this right is enough for the request.
    fn allows(&self, asked: &Attributes) -> bool {
        self.verb == asked.verb
            && self.group == asked.group
            && self.resource == asked.resource
            && self.namespace.as_ref().is_none_or(|namespace| *namespace == asked.namespace)
            && self.name.as_ref().is_none_or(|name| *name == asked.name)
    }
}

/// Every right of the roles among these objects.
pub(crate) fn of_roles(objects: &[Value]) -> Vec<Right> {
    let texts = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().map(|text| text.as_str().unwrap().to_owned()).collect()
    };
    let mut rights = Vec::new();
    for role in objects.iter().filter(|object| object["kind"] == "ClusterRole" || object["kind"] == "Role") {
        let namespace = role["metadata"]["namespace"].as_str().map(str::to_owned);
        for rule in role["rules"].as_array().unwrap() {
            let mut names: Vec<Option<String>> = texts(&rule["resourceNames"]).into_iter().map(Some).collect();
            if names.is_empty() {
                names.push(None);
            }
            for group in texts(&rule["apiGroups"]) {
                for resource in texts(&rule["resources"]) {
                    for verb in texts(&rule["verbs"]) {
                        assert!(
                            ![&group, &resource, &verb].iter().any(|text| *text == "*"),
                            "{rule}: all is not least"
                        );
                        for name in &names {
                            let (group, resource, verb) = (group.clone(), resource.clone(), verb.clone());
                            rights.push(Right {
                                verb,
                                group,
                                resource,
                                namespace: namespace.clone(),
                                name: name.clone(),
                            });
                        }
                    }
                }
            }
        }
    }
    rights
}

/// Holds the rights to what was requested: none is missing, and none is unused but those named here, with reasons.
pub(crate) fn compare(rights: &[Right], asked: &[Recorded], unused: &[(&str, &str)]) {
    let requests: Vec<Attributes> = asked.iter().filter_map(Attributes::of).collect();
    let missing: Vec<String> = requests
        .iter()
        .filter(|request| !rights.iter().any(|right| right.allows(request)))
        .map(ToString::to_string)
        .collect();
    assert!(missing.is_empty(), "requested without a rule:\n{}", missing.join("\n"));
    let refused: Vec<&Recorded> = asked.iter().filter(|asked| matches!(asked.code, 401 | 403)).collect();
    assert!(refused.is_empty(), "refused: {refused:?}");
    let idle = rights.iter().filter(|right| !requests.iter().any(|request| right.allows(request)));
    let idle: Vec<String> = idle.map(ToString::to_string).collect();
    let expected: Vec<&str> = unused.iter().map(|(right, _)| *right).collect();
    assert_eq!(idle, expected, "rules that nothing requested, and those of which it is known");
}

/// Installs a manifest, runs its pod with the rights that it gives, and lets it do all its work: it must be refused
/// nothing, and use everything.
pub(crate) async fn try_rights(target: &Target, name: &str, scheduler: &str, folder: &Path) {
    work::prepare(target).await;
    let objects = manifest(name);
    for object in &objects {
        target.create(object).await;
    }
    let recorder = Recorder::start(&target.config, work::faults()).await;
    let pod = PodProcess::start(target, &objects, &recorder.cluster(), folder).await;
    work::give(target, &recorder, scheduler, pod.port).await;
    assert!(pod.stop().success());
    assert_eq!(recorder.unmet(), [""; 0], "faults that nothing ran into");
    compare(&of_roles(&objects), &recorder.asked(), &UNREQUESTED);
}
