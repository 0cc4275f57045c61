//! Structs as messages quote them: JSON of upstream's internal Go types.
//!
//! Those have no JSON tags, so a field has its Go name and is written even when it is empty. Types of `meta/v1` keep
//! their tags, inside of others too.

use bayplan_model::schema::{Definition, Field, Schema, Type, WireField};
use serde_json::Value;

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";

/// Shows a value of the type of that full name.
pub(crate) fn shown(definition: &str, value: &Value) -> String {
    match Schema::get().named(definition) {
        Some(definition) => structure(definition, value),
        None => value.to_string(),
    }
}

/// Shows a list of values of the type of that full name; an empty one is nil.
pub(crate) fn shown_list(definition: &str, values: &[Value]) -> String {
    if values.is_empty() {
        return "null".to_owned();
    }
    let shown: Vec<String> = values.iter().map(|value| self::shown(definition, value)).collect();
    format!("[{}]", shown.join(","))
}

fn structure(definition: &'static Definition, value: &Value) -> String {
    if value.is_null() {
        return "null".to_owned();
    }
    let fields: Vec<String> = if definition.name.starts_with(META) {
        tagged(definition, value).collect()
    } else {
        let mut fields = Vec::new();
        untagged(definition, value, &mut fields);
        fields
    };
    format!("{{{}}}", fields.join(","))
}

/// The fields that are given, under the names they have in requests.
fn tagged(definition: &'static Definition, value: &Value) -> impl Iterator<Item = String> {
    in_order(definition).filter_map(|field| {
        let given = value.get(field.name)?;
        Some(format!("{:?}:{}", field.name, shown_as(&field.ty, false, given)))
    })
}

/// All fields under their Go names, those of inlined structs among them.
fn untagged(definition: &'static Definition, value: &Value, shown: &mut Vec<String>) {
    let mut fields: Vec<&'static Field> = in_order(definition).collect();
    let order: Vec<&str> = order_of(definition.short_name()).split(' ').collect();
    if order.len() > 1 {
        let place = |field: &&Field| order.iter().position(|name| *name == field.name).unwrap_or(order.len());
        fields.sort_by_key(place);
    }
    let (moved, fields): (Vec<_>, Vec<_>) =
        fields.into_iter().partition(|field| definition.short_name() == "PodSpec" && IN_CONTEXT.contains(&field.name));
    for field in fields {
        match (definition.short_name(), field.name) {
            // The deprecated name of the service account has no internal field.
            ("PodSpec", "serviceAccount") => {}
            ("PodSpec", "securityContext") => {
                shown.push(format!("\"SecurityContext\":{}", context(field, &moved, value)))
            }
            // Embedded: its fields are tagged, and stand among those of the template.
            (_, "metadata") => {
                shown.extend(field.ty.object().into_iter().flat_map(|of| tagged(of, &value["metadata"])))
            }
            _ => shown.push(one(field, value)),
        }
    }
}

/// The fields of a pod spec that are fields of its security context internally.
const IN_CONTEXT: [&str; 5] = ["hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "hostUsers"];

fn context(field: &'static Field, moved: &[&'static Field], spec: &Value) -> String {
    let context = &spec["securityContext"];
    if context.is_null() {
        return "null".to_owned();
    }
    let mut shown: Vec<String> = moved.iter().map(|field| one(field, spec)).collect();
    if let Some(definition) = field.ty.object() {
        untagged(definition, context, &mut shown);
    }
    format!("{{{}}}", shown.join(","))
}

fn one(field: &'static Field, value: &Value) -> String {
    format!("{:?}:{}", go_name(field.name), shown_as(&field.ty, field.optional, &value[field.name]))
}

fn shown_as(of: &Type, optional: bool, value: &Value) -> String {
    if value.is_null() {
        return empty(of, optional);
    }
    match (of, value) {
        (Type::Object(_), value) => of.object().map_or_else(|| value.to_string(), |of| structure(of, value)),
        (Type::List(element, _), Value::Array(values)) if element.object().is_some() => {
            let shown: Vec<String> = values.iter().map(|value| shown_as(element, false, value)).collect();
            format!("[{}]", shown.join(","))
        }
        _ => value.to_string(),
    }
}

/// What Go's encoder writes for a field that was not given.
fn empty(of: &Type, optional: bool) -> String {
    let shown = match of {
        _ if optional => "null",
        Type::String(_) => "\"\"",
        Type::Boolean => "false",
        Type::Int32 | Type::Int64 | Type::Double | Type::IntOrString => "0",
        Type::Quantity => "\"0\"",
        Type::Object(_) => {
            return of.object().map_or_else(String::new, |of| structure(of, &Value::Object(Default::default())));
        }
        _ => "null",
    };
    shown.to_owned()
}

/// The fields in the order of their protobuf numbers, which is mostly that of the Go struct.
fn in_order(definition: &'static Definition) -> impl Iterator<Item = &'static Field> {
    let mut fields: Vec<&'static Field> = Vec::new();
    for (_, wire) in definition.wire_fields() {
        match wire {
            WireField::Field(at) => fields.push(&definition.fields[*at]),
            // The fields of an inlined message are among those of this one.
            WireField::Inlined(inner) => {
                let inner = Schema::get().at(*inner).fields.iter();
                fields.extend(inner.filter_map(|inner| definition.field(inner.name)));
            }
        }
    }
    fields.into_iter()
}

/// The fields of structs whose Go order is not that of their numbers; those left out come last.
fn order_of(name: &str) -> &'static str {
    match name {
        "PodSpec" => {
            "volumes initContainers containers ephemeralContainers restartPolicy terminationGracePeriodSeconds \
             activeDeadlineSeconds dnsPolicy nodeSelector serviceAccountName automountServiceAccountToken \
             nodeName securityContext imagePullSecrets hostname subdomain setHostnameAsFQDN affinity \
             schedulerName tolerations hostAliases priorityClassName priority preemptionPolicy dnsConfig \
             readinessGates runtimeClassName overhead enableServiceLinks topologySpreadConstraints os \
             schedulingGates resourceClaims resources hostnameOverride schedulingGroup"
        }
        "PodSecurityContext" => {
            "seLinuxOptions windowsOptions runAsUser runAsGroup runAsNonRoot supplementalGroups \
             supplementalGroupsPolicy fsGroup fsGroupChangePolicy sysctls seccompProfile appArmorProfile \
             seLinuxChangePolicy"
        }
        "Container" | "EphemeralContainer" => {
            "name image command args workingDir ports envFrom env resources resizePolicy restartPolicy \
             restartPolicyRules volumeMounts volumeDevices livenessProbe readinessProbe startupProbe lifecycle \
             terminationMessagePath terminationMessagePolicy imagePullPolicy securityContext stdin stdinOnce tty"
        }
        "SecurityContext" => {
            "capabilities privileged seLinuxOptions windowsOptions runAsUser runAsGroup runAsNonRoot \
             readOnlyRootFilesystem allowPrivilegeEscalation procMount seccompProfile appArmorProfile"
        }
        "WindowsSecurityContextOptions" => "gmsaCredentialSpecName gmsaCredentialSpec runAsUserName hostProcess",
        "VolumeMount" => "name readOnly recursiveReadOnly mountPath subPath mountPropagation subPathExpr",
        "Probe" => {
            "exec httpGet tcpSocket grpc initialDelaySeconds timeoutSeconds periodSeconds successThreshold \
             failureThreshold terminationGracePeriodSeconds"
        }
        "PodDisruptionBudgetSpec" => "minAvailable selector maxUnavailable unhealthyPodEvictionPolicy",
        _ => "",
    }
}

/// The first words of names that Go spells in capitals, and the names that are something else.
fn go_name(name: &str) -> String {
    const NAMES: [(&str, &str); 29] = [
        ("os", "OS"),
        ("tty", "TTY"),
        ("ip", "IP"),
        ("nfs", "NFS"),
        ("rbd", "RBD"),
        ("fc", "FC"),
        ("csi", "CSI"),
        ("iqn", "IQN"),
        ("iscsi", "ISCSI"),
        ("grpc", "GRPC"),
        ("uid", "UID"),
        ("wwids", "WWIDs"),
        ("cephfs", "CephFS"),
        ("storageos", "StorageOS"),
        ("targetWWNs", "TargetWWNs"),
        ("awsElasticBlockStore", "AWSElasticBlockStore"),
        ("gcePersistentDisk", "GCEPersistentDisk"),
        ("seLinuxOptions", "SELinuxOptions"),
        ("seLinuxChangePolicy", "SELinuxChangePolicy"),
        ("gmsaCredentialSpecName", "GMSACredentialSpecName"),
        ("gmsaCredentialSpec", "GMSACredentialSpec"),
        ("endpoints", "EndpointsName"),
        ("diskURI", "DataDiskURI"),
        ("monitors", "CephMonitors"),
        ("chapAuthDiscovery", "DiscoveryCHAPAuth"),
        ("chapAuthSession", "SessionCHAPAuth"),
        ("pool", "RBDPool"),
        ("user", "RadosUser"),
        ("pdName", "PDName"),
    ];
    const CAPITALS: [(&str, &str); 6] =
        [("dns", "DNS"), ("http", "HTTP"), ("tcp", "TCP"), ("fs", "FS"), ("api", "API"), ("url", "URL")];
    if let Some((_, go)) = NAMES.iter().find(|(json, _)| *json == name) {
        return (*go).to_owned();
    }
    for (json, go) in CAPITALS {
        if let Some(rest) = name.strip_prefix(json)
            && rest.starts_with(|first: char| first.is_ascii_uppercase())
        {
            return format!("{go}{rest}");
        }
    }
    let mut letters = name.chars();
    letters.next().map_or_else(String::new, |first| first.to_ascii_uppercase().to_string() + letters.as_str())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_have_their_go_names_and_order_and_empty_ones_are_written() {
        let rule = json!({ "rules": [{ "action": "FailJob", "onExitCodes": { "operator": "In", "values": [1] } }] });
        assert_eq!(
            shown("io.k8s.api.batch.v1.PodFailurePolicy", &rule),
            r#"{"Rules":[{"Action":"FailJob","OnExitCodes":{"ContainerName":null,"Operator":"In","Values":[1]},"#
                .to_owned()
                + r#""OnPodConditions":null}]}"#
        );
        let context = json!({ "capabilities": { "drop": ["ALL"] }, "privileged": true });
        let shown = shown("io.k8s.api.core.v1.SecurityContext", &context);
        assert!(
            shown.starts_with(r#"{"Capabilities":{"Add":null,"Drop":["ALL"]},"Privileged":true,"SELinux"#),
            "{shown}"
        );
    }

    #[test]
    fn the_metadata_of_a_template_is_embedded_and_what_the_host_shares_is_in_the_security_context() {
        let template = json!({
            "metadata": { "labels": { "a": "b" } },
            "spec": { "hostPID": true, "securityContext": {}, "containers": null },
        });
        let shown = shown("io.k8s.api.core.v1.PodTemplateSpec", &template);
        assert!(shown.starts_with(r#"{"labels":{"a":"b"},"Spec":{"Volumes":null,"InitContainers":null,"#), "{shown}");
        assert!(shown.contains(r#""SecurityContext":{"HostNetwork":false,"HostPID":true,"#), "{shown}");
    }
}
