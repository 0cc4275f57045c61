//! What preemption could do for a pod that fits nowhere.

use bayplan_scheduler::inspect::{PotentialNodes, Profile, RankedCandidate, best_candidates, dry_run, ineligible};
use bayplan_scheduler::{ExtensionPoints, PostFilterContext};
use jiff::Timestamp;

use super::explanation::{PreemptionAnswer, PreemptionCandidate};
use crate::profiles::Preempting;

/// The plugin whose dry runs are shown.
const PLUGIN: &str = "DefaultPreemption";

/// How much is asked of preemption.
pub(super) struct Extent {
    /// Tries every node, not only as many as the plugin would.
    pub(super) everywhere: bool,
    pub(super) now: Timestamp,
}

/// Whether the profile preempts at all.
pub(super) fn is_enabled(profile: &Profile) -> bool {
    profile.enabled(ExtensionPoints::POST_FILTER).iter().any(|(name, _)| *name == PLUGIN)
}

/// Makes the dry runs of preemption.
pub(super) fn explain(cx: &PostFilterContext<'_>, preempting: &Preempting, extent: &Extent) -> PreemptionAnswer {
    if let Some(reason) = ineligible(cx) {
        let reason = Some(reason.to_owned());
        return PreemptionAnswer { eligible: false, reason, ..PreemptionAnswer::default() };
    }
    let nodes = PotentialNodes::of(cx);
    let (start, wanted) = match nodes.len() {
        0 => (0, 0),
        all if extent.everywhere => (0, all),
        all => ((cx.random % all as u64) as usize, preempting.candidates_wanted(all)),
    };
    let result = dry_run(cx, &nodes, start, wanted);
    let best = best_candidates(&result.candidates, extent.now);
    let mut acceptable: Vec<String> = best.iter().map(|candidate| candidate.node.to_string()).collect();
    acceptable.sort();
    let shown = if extent.everywhere { &result.candidates } else { &best };
    let mut candidates: Vec<PreemptionCandidate> = shown.iter().map(|candidate| describe(candidate)).collect();
    candidates.sort_by(|a, b| a.node.cmp(&b.node));
    PreemptionAnswer { eligible: true, candidates, acceptable, ..PreemptionAnswer::default() }
}

fn describe(candidate: &RankedCandidate) -> PreemptionCandidate {
    let mut victims: Vec<String> = candidate.victims.iter().map(|victim| victim.key()).collect();
    victims.sort();
    PreemptionCandidate { node: candidate.node.to_string(), victims, pdb_violations: candidate.pdb_violations }
}
