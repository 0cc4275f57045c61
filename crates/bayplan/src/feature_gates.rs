//! Feature gates: which may be set, which are refused, and which change nothing.

use anyhow::{Result, bail};

use crate::args::component::Features;
use crate::args::go;

/// What happens when a gate is set to another value than its default.
#[derive(Clone, Copy, PartialEq, Eq)]
enum GatePolicy {
    /// Refused, as upstream does.
    Locked,
    /// Refused: Bayplan implements only the default.
    Fixed,
    /// Accepted: Bayplan behaves the same either way.
    NoEffect,
}

use GatePolicy::{Fixed, Locked, NoEffect};

/// The gates of v1.36 that concern the scheduler and its clients, with their defaults.
const GATES: [(&str, bool, GatePolicy); 43] = [
    ("AllAlpha", false, Fixed),
    ("AllBeta", true, Fixed),
    ("AtomicFIFO", true, NoEffect),
    ("ClearingNominatedNodeNameAfterBinding", true, NoEffect),
    ("ComponentFlagz", true, NoEffect),
    ("ComponentStatusz", true, NoEffect),
    ("CoordinatedLeaderElection", false, Fixed),
    ("DRAAdminAccess", true, Locked),
    ("DRAConsumableCapacity", true, Fixed),
    ("DRADeviceBindingConditions", true, Fixed),
    ("DRADeviceTaintRules", false, Fixed),
    ("DRADeviceTaints", true, Fixed),
    ("DRAExtendedResource", true, Fixed),
    ("DRAListTypeAttributes", false, Fixed),
    ("DRANodeAllocatableResources", false, Fixed),
    ("DRAPartitionableDevices", true, Fixed),
    ("DRAPrioritizedList", true, Fixed),
    ("DRAResourceClaimDeviceStatus", true, Fixed),
    ("DRAResourceClaimGranularStatusAuthorization", true, NoEffect),
    ("DRASchedulerFilterTimeout", true, Fixed),
    ("DRAWorkloadResourceClaims", false, Fixed),
    ("DynamicResourceAllocation", true, Locked),
    ("GangScheduling", false, Fixed),
    ("GenericWorkload", false, Fixed),
    ("InOrderInformersBatchProcess", true, NoEffect),
    ("InPlacePodLevelResourcesVerticalScaling", true, Fixed),
    ("InPlacePodVerticalScaling", true, Locked),
    ("MatchLabelKeysInPodTopologySpread", true, Fixed),
    ("MatchLabelKeysInPodTopologySpreadSelectorMerge", true, NoEffect),
    ("NativeHistograms", false, Fixed),
    ("NodeDeclaredFeatures", true, Fixed),
    ("NominatedNodeNameForExpectation", true, Fixed),
    ("OpportunisticBatching", true, NoEffect),
    ("PodLevelResources", true, Fixed),
    ("SchedulerAsyncAPICalls", false, NoEffect),
    ("SchedulerAsyncPreemption", true, Fixed),
    ("SchedulerPopFromBackoffQ", true, Fixed),
    ("SchedulerQueueingHints", true, Locked),
    ("StorageCapacityScoring", false, Fixed),
    ("TaintTolerationComparisonOperators", false, Fixed),
    ("TopologyAwareWorkloadScheduling", false, Fixed),
    ("VolumeLimitScaling", false, Fixed),
    ("WatchListClient", true, NoEffect),
];

/// Refuses gates that would change behaviour; unknown gates are returned as warnings.
pub(crate) fn check(features: &Features) -> Result<Vec<String>> {
    for version in features.emulated_version.iter().chain(&features.min_compatibility_version) {
        let number = version.trim_start_matches("kube=").trim_start_matches('v');
        if !matches!(number, "1.36" | "1.35" | "") || (number == "1.35" && features.emulated_version.contains(version))
        {
            bail!("version {version}: Bayplan has only the behaviour of kube=1.36");
        }
    }
    let mut warnings = Vec::new();
    for pair in features.feature_gates.iter().filter(|pair| !pair.trim().is_empty()) {
        let Some((name, text)) = pair.trim().split_once('=') else {
            bail!("--feature-gates {pair}: missing bool value for {pair}");
        };
        let name = name.trim().trim_start_matches("kube:");
        let Ok(value) = go::boolean(text.trim()) else {
            bail!("--feature-gates {pair}: invalid value of {name}: {text}");
        };
        match GATES.iter().find(|(known, ..)| *known == name) {
            None => warnings.push(format!("feature gate {name} is unknown and changes nothing")),
            Some((_, default, _)) if *default == value => {}
            Some((_, _, NoEffect)) => {}
            Some((_, default, Locked)) => {
                bail!("cannot set feature gate {name} to {value}, feature is locked to {default}")
            }
            Some((_, default, Fixed)) => {
                bail!(
                    "cannot set feature gate {name} to {value}: Bayplan has only {name}={default}, the default of v1.36"
                )
            }
        }
    }
    Ok(warnings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_are_taken_where_they_make_no_difference_and_refused_where_they_would() {
        let features = |gates: &[&str]| Features {
            feature_gates: gates.iter().map(ToString::to_string).collect(),
            emulated_version: Vec::new(),
            min_compatibility_version: Vec::new(),
        };
        for (gate, expected) in [
            ("NodeDeclaredFeatures=true", Ok(0)),
            ("kube:OpportunisticBatching=false", Ok(0)),
            ("SomethingElse=true", Ok(1)),
            ("SchedulerQueueingHints=false", Err("locked to true")),
            ("GangScheduling=true", Err("has only GangScheduling=false")),
            ("GangScheduling", Err("missing bool value")),
            ("GangScheduling=maybe", Err("invalid value of GangScheduling: maybe")),
        ] {
            match (check(&features(&[gate])), expected) {
                (Ok(warnings), Ok(count)) => assert_eq!(warnings.len(), count, "{gate}"),
                (Err(error), Err(needle)) => assert!(error.to_string().contains(needle), "{gate}: {error}"),
                (found, _) => panic!("{gate}: {:?}", found.map_err(|error| error.to_string())),
            }
        }
    }
}
