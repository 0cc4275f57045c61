//! Who wants to be near whom, who does not, and how preferences become a score.

use crate::plugins::testing::plugin;

const NODES: &str = "
    Node a1 {labels: {zone: a, host: a1}}
    Node a2 {labels: {zone: a, host: a2}}
    Node b1 {labels: {zone: b, host: b1}}
";
const DB: &str = "Pod db {nodeName: a1, labels: {app: db}}";

/// The fields of a pod with one required term, of `podAffinity` or `podAntiAffinity`, for the pods of an app.
fn required(kind: &str, app: &str, key: &str, more: &str) -> String {
    format!(
        "affinity: {{{kind}: {{requiredDuringSchedulingIgnoredDuringExecution: [{{topologyKey: {key}, \
         labelSelector: {{matchLabels: {{app: {app}}}}}{more}}}]}}}}"
    )
}

/// The same with one preferred term.
fn preferred(kind: &str, app: &str, key: &str, weight: u32) -> String {
    format!(
        "affinity: {{{kind}: {{preferredDuringSchedulingIgnoredDuringExecution: [{{weight: {weight}, podAffinityTerm: \
         {{topologyKey: {key}, labelSelector: {{matchLabels: {{app: {app}}}}}}}}}]}}}}"
    )
}

fn near(app: &str, key: &str) -> String {
    format!("{{{}}}", required("podAffinity", app, key, ""))
}

fn away(app: &str, key: &str) -> String {
    format!("{{{}}}", required("podAntiAffinity", app, key, ""))
}

fn not_near(node: &str) -> String {
    format!("{node}: UnschedulableAndUnresolvable: node(s) didn't match pod affinity rules")
}

fn not_away(node: &str) -> String {
    format!("{node}: Unschedulable: node(s) didn't match pod anti-affinity rules")
}

#[test]
fn a_pod_goes_where_the_pods_it_wants_are() {
    let (a1, a2, b1) = (&*not_near("a1"), &*not_near("a2"), &*not_near("b1"));
    let itself = format!("{{labels: {{app: web}}, {}}}", required("podAffinity", "web", "zone", ""));
    plugin("InterPodAffinity").given(NODES).filters(&[
        ("a pod without terms is skipped", "{}", DB, &["a1: Skip", "a2: Skip", "b1: Skip"]),
        ("the zone of a database", &near("db", "zone"), DB, &["a1: Success", "a2: Success", b1]),
        ("the host of a database", &near("db", "host"), DB, &["a1: Success", a2, b1]),
        ("there is no database", &near("db", "zone"), "", &[a1, a2, b1]),
        (
            "one in another namespace is not meant",
            &near("db", "zone"),
            "Pod team/db {nodeName: a1, labels: {app: db}}",
            &[a1, a2, b1],
        ),
        (
            "unless the term names the namespace",
            &format!("{{{}}}", required("podAffinity", "db", "zone", ", namespaces: [team]")),
            "Pod team/db {nodeName: a1, labels: {app: db}}",
            &["a1: Success", "a2: Success", b1],
        ),
        (
            "or selects it by its labels",
            &format!(
                "{{{}}}",
                required("podAffinity", "db", "zone", ", namespaceSelector: {matchLabels: {tier: data}}")
            ),
            "Namespace team {labels: {tier: data}}\nPod team/db {nodeName: a1, labels: {app: db}}",
            &["a1: Success", "a2: Success", b1],
        ),
        (
            "the first of pods that want each other may go anywhere",
            &itself,
            "",
            &["a1: Success", "a2: Success", "b1: Success"],
        ),
        ("the second may not", &itself, "Pod x {nodeName: b1, labels: {app: web}}", &[a1, a2, "b1: Success"]),
        ("a node without the label is never near", &near("db", "rack"), DB, &[a1, a2, b1]),
    ]);
}

#[test]
fn a_pod_stays_away_from_the_pods_it_does_not_want() {
    let (a1, a2) = (&*not_away("a1"), &*not_away("a2"));
    plugin("InterPodAffinity").given(NODES).filters(&[
        ("out of the zone", &away("db", "zone"), DB, &[a1, a2, "b1: Success"]),
        ("off the host", &away("db", "host"), DB, &[a1, "a2: Success", "b1: Success"]),
        (
            "a node without the label is always away",
            &away("db", "rack"),
            DB,
            &["a1: Success", "a2: Success", "b1: Success"],
        ),
    ]);
    let loner = format!("Pod loner {{nodeName: b1, {}}}", required("podAntiAffinity", "web", "zone", ""));
    plugin("InterPodAffinity").given(NODES).filters(&[
        (
            "a pod that is there may not want the new one",
            "{labels: {app: web}}",
            &loner,
            &[
                "a1: Success",
                "a2: Success",
                "b1: Unschedulable: node(s) didn't satisfy existing pods anti-affinity rules",
            ],
        ),
        ("it has nothing against others", "{labels: {app: db}}", &loner, &["a1: Skip", "a2: Skip", "b1: Skip"]),
    ]);
}

#[test]
fn terms_that_cannot_be_read_reject_the_pod() {
    let pod = "{affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: zone, \
               labelSelector: {matchExpressions: [{key: app, operator: Near}]}}]}}}";
    plugin("InterPodAffinity").given("Node a").filters(&[(
        "an unknown operator",
        pod,
        "",
        &["pod: UnschedulableAndUnresolvable: parsing pod: requiredAffinityTerms: \
           \"Near\" is not a valid label selector operator"],
    )]);
}

#[test]
fn more_terms_than_can_be_compared_reject_the_pod() {
    let term = "{topologyKey: zone, labelSelector: {matchLabels: {app: web}}}";
    let pod = |count: usize| {
        let terms = vec![term; count].join(", ");
        format!("{{affinity: {{podAntiAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: [{terms}]}}}}}}")
    };
    plugin("InterPodAffinity").given("Node a").filters(&[
        ("as many as are compared", &pod(2_000), "", &["a: Success"]),
        (
            "one more",
            &pod(2_001),
            "",
            &["pod: UnschedulableAndUnresolvable: parsing pod: requiredAntiAffinityTerms: \
               4002 terms, labels, expressions and values, at most 4000 are compared"],
        ),
    ]);
}

#[test]
fn preferences_of_both_sides_add_up_by_domain() {
    let likes = format!("{{{}}}", preferred("podAffinity", "db", "zone", 40));
    let dislikes = format!("{{{}}}", preferred("podAntiAffinity", "db", "host", 40));
    let host = format!("Pod host {{nodeName: b1, {}}}", preferred("podAffinity", "web", "host", 10));
    let needs = format!("Pod needs {{nodeName: b1, {}}}", required("podAffinity", "web", "zone", ""));
    plugin("InterPodAffinity").given(NODES).scores(&[
        ("no pod has preferences", "{labels: {app: web}}", DB, &["Skip"]),
        ("the pod prefers the zone of a database", &likes, DB, &["a1: 40 -> 100", "a2: 40 -> 100", "b1: 0 -> 0"]),
        (
            "two databases count twice",
            &likes,
            "
            Pod x {nodeName: a1, labels: {app: db}}
            Pod y {nodeName: a2, labels: {app: db}}
            Pod z {nodeName: b1, labels: {app: db}}
        ",
            &["a1: 80 -> 100", "a2: 80 -> 100", "b1: 40 -> 0"],
        ),
        (
            "the pod prefers another host than a database's",
            &dislikes,
            DB,
            &["a1: -40 -> 0", "a2: 0 -> 100", "b1: 0 -> 100"],
        ),
        (
            "a pod that is there prefers company",
            "{labels: {app: web}}",
            &host,
            &["a1: 0 -> 0", "a2: 0 -> 0", "b1: 10 -> 100"],
        ),
        (
            "what a placed pod requires counts hardPodAffinityWeight, 1 by default",
            "{labels: {app: web}}",
            &needs,
            &["a1: 0 -> 0", "a2: 0 -> 0", "b1: 1 -> 100"],
        ),
    ]);
    plugin("InterPodAffinity").args("{ignorePreferredTermsOfExistingPods: true}").given(NODES).scores(&[(
        "the preferences of placed pods may be ignored",
        "{labels: {app: web}}",
        &host,
        &["Skip"],
    )]);
}

#[test]
fn what_brings_pods_together_or_apart_wakes_the_pod() {
    let (near, away) = (&*near("db", "zone"), &*away("db", "zone"));
    plugin("InterPodAffinity").hints(&[
        ("a wanted pod comes", near, "add Pod x {nodeName: a1, labels: {app: db}}", "Queue"),
        ("another pod comes", near, "add Pod x {nodeName: a1, labels: {app: web}}", "Skip"),
        ("a wanted pod goes", near, "delete Pod x {nodeName: a1, labels: {app: db}}", "Skip"),
        ("an unwanted pod goes", away, "delete Pod x {nodeName: a1, labels: {app: db}}", "Queue"),
        (
            "an unwanted pod changes its labels",
            away,
            "update Pod x {nodeName: a1, labels: {app: db}} => {nodeName: a1, labels: {app: web}}",
            "Queue",
        ),
        ("a node with the topology key comes", near, "add Node c {labels: {zone: c}}", "Queue"),
        ("a node without it comes", near, "add Node c", "Skip"),
        ("for anti-affinity any new node helps", away, "add Node c", "Queue"),
        ("a node moves to another zone", away, "update Node a1 {labels: {zone: a}} => {labels: {zone: b}}", "Queue"),
    ]);
}
