//! The annotations that chose AppArmor profiles before fields did: new pods get the fields that they stand for.

use serde_json::{Value, json};

use super::annotation_rules::APP_ARMOR;
use super::container_rules::CONTAINERS;
use super::security_rules::PROFILE_NAME_MAX;
use crate::defaulting::{child_or_new, children};
use crate::object::{Object, given, list, text};

/// Gives each container without a profile the one of its annotation, unless the pod has that profile anyway. Upstream:
/// `applyAppArmorVersionSkew`.
pub(crate) fn profiles_from_annotations(pod: &mut Object) {
    let annotations = pod.get("metadata").map(|metadata| metadata["annotations"].clone()).unwrap_or_default();
    let Some(Value::Object(spec)) = pod.get_mut("spec") else { return };
    if !annotations.is_object() || spec.get("os").is_some_and(is_windows) {
        return;
    }
    let of_pod = spec.get("securityContext").map(|context| context["appArmorProfile"].clone()).unwrap_or_default();
    for kind in CONTAINERS {
        for container in children(spec, kind) {
            if has_profile(container.get("securityContext")) {
                continue;
            }
            let annotation = annotations[key(text(container, "name"))].as_str();
            let profile = annotation.and_then(profile).filter(|profile| *profile != of_pod);
            if let Some(profile) = profile
                && let Some(context) = child_or_new(container, "securityContext")
            {
                context.insert("appArmorProfile".to_owned(), profile);
            }
        }
    }
}

/// What the client of a new pod is warned of, before the pod has the fields.
pub(crate) fn annotation_warnings(pod: &Value) -> Vec<String> {
    let (annotations, spec) = (&pod["metadata"]["annotations"], &pod["spec"]);
    if !annotations.is_object() || is_windows(&spec["os"]) {
        return Vec::new();
    }
    let containers = CONTAINERS.iter().flat_map(|kind| list(spec, kind));
    containers.filter_map(|container| warning("", annotations, spec, container)).collect()
}

/// The warning about the annotation of one container, whose field says nothing and the pod's something else, if at all.
pub(super) fn warning(path: &str, annotations: &Value, spec: &Value, container: &Value) -> Option<String> {
    let key = key(text(container, "name"));
    let annotation = annotations[&key].as_str()?;
    if has_profile(container.get("securityContext")) {
        return None;
    }
    let of_pod = &spec["securityContext"]["appArmorProfile"];
    let says_the_same = profile(annotation).is_some_and(|profile| profile == *of_pod);
    (!says_the_same).then(|| {
        format!("{path}metadata.annotations[{key}]: deprecated since v1.30; use the \"appArmorProfile\" field instead")
    })
}

fn key(container: &str) -> String {
    format!("{APP_ARMOR}{container}")
}

fn is_windows(os: &Value) -> bool {
    text(os, "name") == "windows"
}

fn has_profile(context: Option<&Value>) -> bool {
    context.is_some_and(|context| given(context, "appArmorProfile"))
}

/// The field that an annotation stands for, if that is a valid one.
fn profile(annotation: &str) -> Option<Value> {
    match annotation {
        "unconfined" => Some(json!({ "type": "Unconfined" })),
        "runtime/default" => Some(json!({ "type": "RuntimeDefault" })),
        _ => {
            let name = annotation.strip_prefix("localhost/")?;
            let is_valid = !name.is_empty() && name.trim() == name && name.len() <= PROFILE_NAME_MAX;
            is_valid.then(|| json!({ "type": "Localhost", "localhostProfile": name }))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(annotation: &str, of_pod: Value, of_container: Value) -> Value {
        json!({
            "metadata": { "annotations": { "container.apparmor.security.beta.kubernetes.io/c": annotation } },
            "spec": { "securityContext": of_pod, "containers": [{ "name": "c", "securityContext": of_container }] },
        })
    }

    #[test]
    fn a_container_gets_the_profile_of_its_annotation_and_its_client_a_warning() {
        let local = json!({ "type": "Localhost", "localhostProfile": "a" });
        let unconfined = json!({ "appArmorProfile": { "type": "Unconfined" } });
        for (annotation, of_pod, of_container, expected, warns) in [
            ("unconfined", json!({}), json!({}), json!({ "type": "Unconfined" }), true),
            ("runtime/default", json!({}), json!({}), json!({ "type": "RuntimeDefault" }), true),
            ("localhost/a", json!({}), json!({}), local, true),
            ("localhost/", json!({}), json!({}), Value::Null, true),
            ("localhost/ a", json!({}), json!({}), Value::Null, true),
            ("other", json!({}), json!({}), Value::Null, true),
            ("unconfined", unconfined.clone(), json!({}), Value::Null, false),
            ("runtime/default", unconfined.clone(), json!({}), json!({ "type": "RuntimeDefault" }), true),
            ("runtime/default", json!({}), unconfined, json!({ "type": "Unconfined" }), false),
        ] {
            let pod = pod(annotation, of_pod, of_container);
            assert_eq!(annotation_warnings(&pod).len(), usize::from(warns), "{pod}");
            let Value::Object(mut changed) = pod else { unreachable!("it is an object") };
            profiles_from_annotations(&mut changed);
            let container = &changed["spec"]["containers"][0];
            assert_eq!(container["securityContext"]["appArmorProfile"], expected, "{annotation}");
        }
    }

    #[test]
    fn windows_has_no_profiles() {
        let mut pod = pod("unconfined", json!({}), json!({}));
        pod["spec"]["os"] = json!({ "name": "windows" });
        assert_eq!(annotation_warnings(&pod), Vec::<String>::new());
        let before = pod.clone();
        profiles_from_annotations(pod.as_object_mut().unwrap());
        assert_eq!(pod, before);
    }
}
