//! What a pod and a volume use, read from their objects.

use serde_json::Value;

use super::graph::Vertex;

/// The annotation of a pod that a kubelet runs from a file and shows to the API server.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// Fields of a volume's source that name a secret which a kubelet reads.
const SECRET_FIELDS: [&str; 4] = ["secretRef", "nodePublishSecretRef", "nodeStageSecretRef", "nodeExpandSecretRef"];

/// What a pod that has a node uses. A mirror pod uses nothing: what it needs its kubelet had before.
pub(super) fn of_pod(pod: &Value) -> Vec<Vertex> {
    let metadata = &pod["metadata"];
    let (namespace, name) = (text(&metadata["namespace"]), text(&metadata["name"]));
    let mut used = vec![Vertex::pod((namespace, name))];
    if metadata["annotations"].get(MIRROR).is_some() {
        return used;
    }
    let spec = &pod["spec"];
    let mut add = |vertex: fn((&str, &str)) -> Vertex, name: &Value| {
        if let Some(name) = name.as_str().filter(|name| !name.is_empty()) {
            used.push(vertex((namespace, name)));
        }
    };
    add(Vertex::service_account, &spec["serviceAccountName"]);
    list(&spec["imagePullSecrets"]).for_each(|secret| add(Vertex::secret, &secret["name"]));
    for containers in ["initContainers", "containers", "ephemeralContainers"] {
        for container in list(&spec[containers]) {
            for source in list(&container["env"]).map(|variable| &variable["valueFrom"]) {
                add(Vertex::secret, &source["secretKeyRef"]["name"]);
                add(Vertex::config_map, &source["configMapKeyRef"]["name"]);
            }
            for source in list(&container["envFrom"]) {
                add(Vertex::secret, &source["secretRef"]["name"]);
                add(Vertex::config_map, &source["configMapRef"]["name"]);
            }
        }
    }
    for volume in list(&spec["volumes"]) {
        add(Vertex::secret, &volume["secret"]["secretName"]);
        add(Vertex::secret, &volume["azureFile"]["secretName"]);
        add(Vertex::config_map, &volume["configMap"]["name"]);
        add(Vertex::claim, &volume["persistentVolumeClaim"]["claimName"]);
        if volume["ephemeral"].is_object() {
            add(Vertex::claim, &format!("{name}-{}", text(&volume["name"])).into());
        }
        for source in list(&volume["projected"]["sources"]) {
            add(Vertex::secret, &source["secret"]["name"]);
            add(Vertex::config_map, &source["configMap"]["name"]);
        }
        for source in volume.as_object().into_iter().flat_map(serde_json::Map::values) {
            SECRET_FIELDS.iter().for_each(|field| add(Vertex::secret, &source[*field]["name"]));
        }
    }
    list(&spec["resourceClaims"]).for_each(|claim| add(Vertex::resource_claim, &claim["resourceClaimName"]));
    let status = &pod["status"];
    list(&status["resourceClaimStatuses"]).for_each(|claim| add(Vertex::resource_claim, &claim["resourceClaimName"]));
    add(Vertex::resource_claim, &status["extendedResourceClaimStatus"]["resourceClaimName"]);
    used
}

/// The claim of a bound volume, and the secrets which a kubelet reads to mount it.
pub(super) fn of_volume(volume: &Value) -> Option<(Vertex, Vec<Vertex>)> {
    let spec = &volume["spec"];
    let (namespace, name) = (spec["claimRef"]["namespace"].as_str()?, spec["claimRef"]["name"].as_str()?);
    let mut secrets = Vec::new();
    for source in spec.as_object().into_iter().flat_map(serde_json::Map::values) {
        let direct = [(&source["secretName"], &source["secretNamespace"])];
        let fields = SECRET_FIELDS.iter().map(|field| (&source[*field]["name"], &source[*field]["namespace"]));
        for (secret, in_namespace) in direct.into_iter().chain(fields) {
            if let Some(secret) = secret.as_str().filter(|secret| !secret.is_empty()) {
                let given = in_namespace.as_str().filter(|given| !given.is_empty());
                secrets.push(Vertex::secret((given.unwrap_or(namespace), secret)));
            }
        }
    }
    Some((Vertex::claim((namespace, name)), secrets))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}
