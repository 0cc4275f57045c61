//! How skew is counted, over which nodes and pods, and how it becomes a score.

use crate::plugins::testing::plugin;

const ZONES: &str = "
    Node a1 {labels: {zone: a, kubernetes.io/hostname: a1}}
    Node a2 {labels: {zone: a, kubernetes.io/hostname: a2}}
    Node b1 {labels: {zone: b, kubernetes.io/hostname: b1}}
";
const TWO_IN_A: &str = "
    Pod x {nodeName: a1, labels: {app: web}}
    Pod y {nodeName: a2, labels: {app: web}}
";

/// A pod of `app: web` that is spread over zones, with more said about the constraint.
fn spread(when: &str, more: &str) -> String {
    format!(
        "{{labels: {{app: web}}, topologySpreadConstraints: [{{topologyKey: zone, whenUnsatisfiable: {when}, \
         labelSelector: {{matchLabels: {{app: web}}}}, {more}}}]}}"
    )
}

fn hard(more: &str) -> String {
    spread("DoNotSchedule", more)
}

fn skewed(node: &str) -> String {
    format!("{node}: Unschedulable: node(s) didn't match pod topology spread constraints")
}

#[test]
fn a_domain_may_have_max_skew_more_pods_than_the_emptiest() {
    let (a1, a2) = (&*skewed("a1"), &*skewed("a2"));
    plugin("PodTopologySpread").given(ZONES).filters(&[
        ("a pod without constraints is skipped", "{}", TWO_IN_A, &["a1: Skip", "a2: Skip", "b1: Skip"]),
        ("the emptiest zone only", &hard("maxSkew: 1"), TWO_IN_A, &[a1, a2, "b1: Success"]),
        ("with the pod there are three more", &hard("maxSkew: 2"), TWO_IN_A, &[a1, a2, "b1: Success"]),
        ("three more are allowed", &hard("maxSkew: 3"), TWO_IN_A, &["a1: Success", "a2: Success", "b1: Success"]),
        (
            "one pod, and it spreads to the other zone",
            &hard("maxSkew: 1"),
            "Pod x {nodeName: a1, labels: {app: web}}",
            &[a1, a2, "b1: Success"],
        ),
        (
            "an even spread leaves the choice",
            &hard("maxSkew: 1"),
            "
            Pod x {nodeName: a1, labels: {app: web}}
            Pod y {nodeName: b1, labels: {app: web}}
        ",
            &["a1: Success", "a2: Success", "b1: Success"],
        ),
        (
            "a node without the label cannot be counted",
            &hard("maxSkew: 1"),
            "Node c",
            &[
                "a1: Success",
                "a2: Success",
                "b1: Success",
                "c: UnschedulableAndUnresolvable: node(s) didn't match pod topology spread constraints \
                 (missing required label)",
            ],
        ),
    ]);
}

#[test]
fn only_pods_that_the_selector_means_are_counted() {
    let all = &["a1: Success", "a2: Success", "b1: Success"];
    let (a1, a2) = (&*skewed("a1"), &*skewed("a2"));
    plugin("PodTopologySpread").given(ZONES).filters(&[
        ("other labels", &hard("maxSkew: 1"), "Pod x {nodeName: a1, labels: {app: db}}", all),
        ("other namespaces", &hard("maxSkew: 1"), "Pod team/x {nodeName: a1, labels: {app: web}}", all),
        (
            "pods that are going",
            &hard("maxSkew: 1"),
            "Pod x {nodeName: a1, labels: {app: web}, deletionTimestamp: '2026-01-01T00:00:00Z'}",
            all,
        ),
        (
            "matchLabelKeys adds the pod's own value: other revisions do not count",
            "{labels: {app: web, rev: '2'}, topologySpreadConstraints: [{topologyKey: zone, maxSkew: 1, \
             whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}, matchLabelKeys: [rev]}]}",
            "Pod x {nodeName: a1, labels: {app: web, rev: '1'}}",
            all,
        ),
        (
            "a pod that does not match its own selector adds nothing itself",
            "{topologySpreadConstraints: [{topologyKey: zone, maxSkew: 1, whenUnsatisfiable: DoNotSchedule, \
             labelSelector: {matchLabels: {app: web}}}]}",
            "Pod x {nodeName: a1, labels: {app: web}}",
            all,
        ),
        (
            "an empty selector counts only the pod itself, as upstream does",
            "{topologySpreadConstraints: [{topologyKey: zone, maxSkew: 1, whenUnsatisfiable: DoNotSchedule, \
             labelSelector: {}}]}",
            TWO_IN_A,
            all,
        ),
        (
            "of several constraints each must hold",
            "{labels: {app: web}, topologySpreadConstraints: [\
             {topologyKey: zone, maxSkew: 3, whenUnsatisfiable: DoNotSchedule, \
             labelSelector: {matchLabels: {app: web}}}, \
             {topologyKey: kubernetes.io/hostname, maxSkew: 1, whenUnsatisfiable: DoNotSchedule, \
             labelSelector: {matchLabels: {app: web}}}]}",
            TWO_IN_A,
            &[a1, a2, "b1: Success"],
        ),
    ]);
}

#[test]
fn which_nodes_make_a_domain_is_for_the_constraint_to_say() {
    let all = &["a1: Success", "a2: Success", "b1: Success"];
    let (a1, a2, b1) = (&*skewed("a1"), &*skewed("a2"), &*skewed("b1"));
    let tainted = "Node c1 {labels: {zone: c}, taints: [{key: x, effect: NoSchedule}]}";
    let one_each = "
        Pod x {nodeName: a1, labels: {app: web}}
        Pod y {nodeName: b1, labels: {app: web}}
    ";
    plugin("PodTopologySpread").given(ZONES).filters(&[
        (
            "fewer domains than minDomains count as if one were empty",
            &hard("maxSkew: 1, minDomains: 3"),
            one_each,
            &[a1, a2, b1],
        ),
        ("an empty domain does not count against minDomains", &hard("maxSkew: 1, minDomains: 3"), "", all),
        (
            "nodes that the pod's node affinity excludes are no domain",
            "{labels: {app: web}, nodeSelector: {zone: a}, topologySpreadConstraints: [{topologyKey: zone, maxSkew: 1, \
             whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}}]}",
            TWO_IN_A,
            all,
        ),
        (
            "unless nodeAffinityPolicy ignores it",
            "{labels: {app: web}, nodeSelector: {zone: a}, topologySpreadConstraints: [{topologyKey: zone, maxSkew: 1, \
             nodeAffinityPolicy: Ignore, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}}]}",
            TWO_IN_A,
            &[a1, a2, "b1: Success"],
        ),
        (
            "tainted nodes are a domain",
            &hard("maxSkew: 1"),
            &format!("{tainted}\n{one_each}"),
            &[a1, a2, b1, "c1: Success"],
        ),
        (
            "unless nodeTaintsPolicy honours taints",
            &hard("maxSkew: 1, nodeTaintsPolicy: Honor"),
            &format!("{tainted}\n{one_each}"),
            &["a1: Success", "a2: Success", "b1: Success", "c1: Success"],
        ),
    ]);
}

#[test]
fn emptier_domains_score_higher() {
    plugin("PodTopologySpread").given(ZONES).scores(&[
        ("a pod without soft constraints", &hard("maxSkew: 5"), "", &["Skip"]),
        (
            "no pods yet: all are alike",
            &spread("ScheduleAnyway", "maxSkew: 1"),
            "",
            &["a1: 0 -> 100", "a2: 0 -> 100", "b1: 0 -> 100"],
        ),
        // Two zones weigh ln(2 + 2) = 1.386: two pods make 2.77, rounded to 3.
        (
            "two pods against none",
            &spread("ScheduleAnyway", "maxSkew: 1"),
            TWO_IN_A,
            &["a1: 3 -> 0", "a2: 3 -> 0", "b1: 0 -> 100"],
        ),
        // Each zone gets maxSkew - 1 on top: the difference matters less.
        (
            "a larger skew weighs less",
            &spread("ScheduleAnyway", "maxSkew: 5"),
            TWO_IN_A,
            &["a1: 7 -> 57", "a2: 7 -> 57", "b1: 4 -> 100"],
        ),
        (
            "nodes without the label are left out, and score 0",
            &spread("ScheduleAnyway", "maxSkew: 1"),
            "Node c",
            &["a1: 0 -> 100", "a2: 0 -> 100", "b1: 0 -> 100", "c: 0 -> 0"],
        ),
    ]);
}

#[test]
fn pods_of_a_service_or_a_controller_are_spread_by_default() {
    let service = "Service web {selector: {app: web}}";
    let owned = "{labels: {app: web}, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: rs, uid: rs, \
                 controller: true}]}";
    let set = "ReplicaSet rs {selector: {matchLabels: {app: web}}}";
    let x = "Pod x {nodeName: a1, labels: {app: web}}";
    // By host: 1 * ln(3 + 2) + 2 = 3.6 against 2; no node has a zone label, and all are of one empty zone.
    let spread: &[&str] = &["a1: 4 -> 50", "a2: 2 -> 100", "b1: 2 -> 100"];
    plugin("PodTopologySpread").given(ZONES).scores(&[
        ("a pod without a service or a controller", "{labels: {app: web}}", x, &["Skip"]),
        ("a pod of a service", "{labels: {app: web}}", &format!("{service}\n{x}"), spread),
        ("a pod of a ReplicaSet", owned, &format!("{set}\n{x}"), spread),
    ]);
    plugin("PodTopologySpread").args("{defaultingType: List}").given(ZONES).scores(&[(
        "a list of default constraints may be empty",
        "{labels: {app: web}}",
        &format!("{service}\n{x}"),
        &["Skip"],
    )]);
}

#[test]
fn what_changes_a_count_or_a_domain_wakes_the_pod() {
    let pod = &*hard("maxSkew: 1");
    plugin("PodTopologySpread").hints(&[
        ("a pod that counts comes", pod, "add Pod x {nodeName: a1, labels: {app: web}}", "Queue"),
        ("a pod that counts goes", pod, "delete Pod x {nodeName: a1, labels: {app: web}}", "Queue"),
        ("a pod that does not count goes", pod, "delete Pod x {nodeName: a1, labels: {app: db}}", "Skip"),
        ("a pod of another namespace goes", pod, "delete Pod team/x {nodeName: a1, labels: {app: web}}", "Skip"),
        (
            "a pod counts no longer",
            pod,
            "update Pod x {nodeName: a1, labels: {app: web}} => {nodeName: a1, labels: {app: db}}",
            "Queue",
        ),
        ("a node with the label comes", pod, "add Node c1 {labels: {zone: c}}", "Queue"),
        ("a node without it comes", pod, "add Node c1", "Skip"),
        ("a node changes its zone", pod, "update Node a1 {labels: {zone: a}} => {labels: {zone: b}}", "Queue"),
        (
            "a node changes another label",
            pod,
            "update Node a1 {labels: {zone: a}} => {labels: {zone: a, x: z}}",
            "Skip",
        ),
    ]);
}
