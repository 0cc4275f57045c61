//! Feature gates: what may be switched, what must not, and what does not matter here.

use anyhow::{Result, bail};

use crate::args::component::Features;
use crate::args::go;

/// What setting a gate to another value than its default means to us.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Meaning {
    /// Upstream refuses it too.
    Locked,
    /// It would change what we do, and we only do the one thing.
    Fixed,
    /// It changes nothing here.
    Indifferent,
}

use Meaning::{Fixed, Indifferent, Locked};

/// The gates of v1.36 that concern the scheduler and its clients, with their defaults.
const GATES: [(&str, bool, Meaning); 43] = [
    ("AllAlpha", false, Fixed),
    ("AllBeta", true, Fixed),
    ("AtomicFIFO", true, Indifferent),
    ("ClearingNominatedNodeNameAfterBinding", true, Indifferent),
    ("ComponentFlagz", true, Indifferent),
    ("ComponentStatusz", true, Indifferent),
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
    ("DRAResourceClaimGranularStatusAuthorization", true, Indifferent),
    ("DRASchedulerFilterTimeout", true, Fixed),
    ("DRAWorkloadResourceClaims", false, Fixed),
    ("DynamicResourceAllocation", true, Locked),
    ("GangScheduling", false, Fixed),
    ("GenericWorkload", false, Fixed),
    ("InOrderInformersBatchProcess", true, Indifferent),
    ("InPlacePodLevelResourcesVerticalScaling", true, Fixed),
    ("InPlacePodVerticalScaling", true, Locked),
    ("MatchLabelKeysInPodTopologySpread", true, Fixed),
    ("MatchLabelKeysInPodTopologySpreadSelectorMerge", true, Indifferent),
    ("NativeHistograms", false, Fixed),
    ("NodeDeclaredFeatures", true, Fixed),
    ("NominatedNodeNameForExpectation", true, Fixed),
    ("OpportunisticBatching", true, Indifferent),
    ("PodLevelResources", true, Fixed),
    ("SchedulerAsyncAPICalls", false, Indifferent),
    ("SchedulerAsyncPreemption", true, Fixed),
    ("SchedulerPopFromBackoffQ", true, Fixed),
    ("SchedulerQueueingHints", true, Locked),
    ("StorageCapacityScoring", false, Fixed),
    ("TaintTolerationComparisonOperators", false, Fixed),
    ("TopologyAwareWorkloadScheduling", false, Fixed),
    ("VolumeLimitScaling", false, Fixed),
    ("WatchListClient", true, Indifferent),
];

/// Refuses what we would not do; what concerns others is returned as warnings.
pub(crate) fn check(features: &Features) -> Result<Vec<String>> {
    for version in features.emulated_version.iter().chain(&features.min_compatibility_version) {
        let number = version.trim_start_matches("kube=").trim_start_matches('v');
        if !matches!(number, "1.36" | "1.35" | "") || (number == "1.35" && features.emulated_version.contains(version))
        {
            bail!("version {version}: only the behaviour of kube=1.36 is there");
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
            None => warnings.push(format!("feature gate {name} is not known here; it changes nothing")),
            Some((_, default, _)) if *default == value => {}
            Some((_, _, Indifferent)) => {}
            Some((_, default, Locked)) => {
                bail!("cannot set feature gate {name} to {value}, feature is locked to {default}")
            }
            Some((_, default, Fixed)) => {
                bail!("cannot set feature gate {name} to {value}: only {name}={default}, v1.36's default, is there")
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
            ("GangScheduling=true", Err("only GangScheduling=false")),
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
