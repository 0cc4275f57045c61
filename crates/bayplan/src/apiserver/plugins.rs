//! `--enable-admission-plugins` and `--disable-admission-plugins`: which of upstream's plugins are here.

use anyhow::{Result, bail};
use bayplan_apiserver::AdmissionPlugins;

/// What switching a plugin on or off does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Presence {
    /// It can be switched.
    Switched,
    /// It is always on.
    Always,
    /// It would have nothing to do: the kinds that it looks at are not served.
    Idle,
    /// It is not here.
    Absent,
}

use Presence::{Absent, Always, Idle, Switched};

/// The plugins of v1.36.
const PLUGINS: [(&str, Presence); 38] = [
    ("AlwaysAdmit", Always),
    ("AlwaysDeny", Absent),
    ("AlwaysPullImages", Absent),
    ("CertificateApproval", Always),
    ("CertificateSigning", Always),
    ("CertificateSubjectRestriction", Always),
    ("ClusterTrustBundleAttest", Idle),
    ("DefaultIngressClass", Always),
    ("DefaultStorageClass", Always),
    ("DefaultTolerationSeconds", Always),
    ("DenyServiceExternalIPs", Absent),
    ("EventRateLimit", Absent),
    ("ExtendedResourceToleration", Absent),
    ("ImagePolicyWebhook", Absent),
    ("JobPolicy", Absent),
    ("LimitPodHardAntiAffinityTopology", Absent),
    ("LimitRanger", Always),
    ("MutatingAdmissionPolicy", Idle),
    ("MutatingAdmissionWebhook", Idle),
    ("NamespaceAutoProvision", Absent),
    ("NamespaceExists", Always),
    ("NamespaceLifecycle", Always),
    ("NodeDeclaredFeatureValidator", Absent),
    ("NodeRestriction", Switched),
    ("OwnerReferencesPermissionEnforcement", Switched),
    ("PersistentVolumeClaimResize", Always),
    ("PodNodeSelector", Absent),
    ("PodSecurity", Switched),
    ("PodTolerationRestriction", Absent),
    ("PodTopologyLabels", Always),
    ("Priority", Always),
    ("ResourceQuota", Always),
    ("RuntimeClass", Always),
    ("ServiceAccount", Switched),
    ("StorageObjectInUseProtection", Switched),
    ("TaintNodesByCondition", Switched),
    ("ValidatingAdmissionPolicy", Idle),
    ("ValidatingAdmissionWebhook", Idle),
];

/// The plugins that are on, of `default` with some switched on and some off. What is in neither list stays as it is.
pub(super) fn chosen(default: AdmissionPlugins, on: &[String], off: &[String]) -> Result<AdmissionPlugins> {
    let mut plugins = default;
    for (names, enable) in [(on, true), (off, false)] {
        let flag = if enable { "--enable-admission-plugins" } else { "--disable-admission-plugins" };
        for name in names.iter().filter(|name| !name.is_empty()) {
            let Some((_, presence)) = PLUGINS.iter().find(|(known, _)| known == name) else {
                bail!("{flag}: admission-control plugin {name:?} is unknown");
            };
            if enable && off.contains(name) {
                bail!("{flag}: {name} in enable-admission-plugins and disable-admission-plugins overlapped");
            }
            match (presence, enable) {
                (Always, true) | (Idle, _) | (Absent, false) => {}
                (Absent, true) => bail!("{flag}: {name} is not implemented"),
                (Always, false) => bail!("{flag}: {name} cannot be switched off"),
                (Switched, _) => switch(&mut plugins, name, enable),
            }
        }
    }
    Ok(plugins)
}

fn switch(plugins: &mut AdmissionPlugins, name: &str, enable: bool) {
    match name {
        "NodeRestriction" => plugins.node_restriction = enable,
        "OwnerReferencesPermissionEnforcement" => plugins.owner_references = enable,
        "PodSecurity" => plugins.pod_security = enable,
        "ServiceAccount" => plugins.service_account = enable,
        "StorageObjectInUseProtection" => plugins.storage_object_in_use_protection = enable,
        _ => plugins.taint_nodes_by_condition = enable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plugins_are_switched_known_or_refused_by_name() {
        let words = |text: &str| text.split(',').map(str::to_owned).collect::<Vec<_>>();
        let default = AdmissionPlugins::default();
        let with = |on, off| chosen(default, &words(on), &words(off)).map_err(|error| error.to_string());
        assert_eq!(with("", ""), Ok(default));
        assert_eq!(
            with("NodeRestriction,LimitRanger,MutatingAdmissionWebhook", "ServiceAccount"),
            Ok(AdmissionPlugins { node_restriction: true, service_account: false, ..default })
        );
        for (on, off, why) in [
            ("EventRateLimit", "", "--enable-admission-plugins: EventRateLimit is not implemented"),
            ("", "LimitRanger", "--disable-admission-plugins: LimitRanger cannot be switched off"),
            ("Nonsense", "", "\"Nonsense\" is unknown"),
            ("NodeRestriction", "NodeRestriction", "overlapped"),
        ] {
            assert!(with(on, off).unwrap_err().contains(why), "{on} {off}");
        }
    }
}
