//! Bindings of an imaginary scheduler, judged.

use bayplan_scheduler::Registry;
use bayplan_scheduler::config::Configuration;
use serde_json::{Value, json};

use super::*;

struct World {
    judge: BindingReview,
    now: Timestamp,
    version: u64,
}

fn node(name: &str, cpu: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
        "status": {"allocatable": {"cpu": cpu, "memory": "32Gi", "pods": "110"}}})
}

fn pod(name: &str, cpu: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "d", "name": name, "uid": name},
        "spec": {"schedulerName": "default-scheduler", "containers": [{
            "name": "c", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}]}})
}

impl World {
    fn empty() -> Self {
        let profiles = Profiles::build(&Configuration::default(), &Registry::default()).unwrap();
        let now = Timestamp::from_second(1_700_000_000).unwrap();
        World { judge: BindingReview::new(profiles, None), now, version: 0 }
    }

    fn new(nodes: &[(&str, &str)]) -> Self {
        let mut world = World::empty();
        nodes.iter().for_each(|(name, cpu)| world.put(node(name, cpu)));
        world.begin();
        world
    }

    fn begin(&mut self) {
        self.now += SLACK + SLACK;
        self.judge.begin(self.now);
    }

    fn put(&mut self, mut object: Value) {
        self.version += 1;
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        let object = Object::decode(&object).unwrap().unwrap();
        self.now += SignedDuration::from_millis(10);
        self.judge.handle(Delta::Added(object), self.now);
    }

    fn delete(&mut self, object: &Value) {
        let object = Object::decode(object).unwrap().unwrap();
        self.judge.handle(Delta::Deleted(object), self.now);
    }

    fn bind(&mut self, mut pod: Value, node: &str) {
        pod["spec"]["nodeName"] = node.into();
        self.put(pod);
    }

    fn report(mut self) -> ShadowReport {
        self.judge.finish();
        self.judge.report(self.now, Vec::new())
    }
}

#[track_caller]
fn assert_counts(report: &ShadowReport, expected: [u64; 5]) {
    let counts = [report.same, report.tied, report.sampled, report.raced, report.unexplained];
    assert_eq!(counts, expected, "same, tied, sampled, raced, unexplained: {}", report.text());
    assert_eq!(report.seen, expected.iter().sum::<u64>());
}

#[test]
fn the_only_best_node_is_the_same_and_one_of_several_is_tied() {
    let mut world = World::new(&[("a", "8"), ("b", "8"), ("c", "2")]);
    world.put(pod("p", "1"));
    world.bind(pod("p", "1"), "a");
    world.put(pod("q", "1"));
    world.bind(pod("q", "1"), "b");
    let report = world.report();
    assert_counts(&report, [1, 1, 0, 0, 0]);
    assert_eq!(report.regret, Regret::default());
}

#[test]
fn a_worse_node_is_a_case_with_its_state_and_both_scores() {
    let mut world = World::new(&[("a", "8"), ("b", "2")]);
    world.put(pod("p", "1"));
    world.bind(pod("p", "1"), "b");
    world.judge.finish();
    let judged = world.judge.take_judgements();
    let (number, objects) = judged[0].case.as_ref().unwrap();
    let own = objects.iter().find_map(|object| match object {
        Object::Pod(pod) => Some(pod),
        _ => None,
    });
    assert!(own.is_some_and(|pod| !pod.is_assigned()), "the pod of the case has no node");
    assert_eq!(objects.len(), 3);
    let number = *number;
    world.judge.case_is_saved(number, "case.json".into());
    let report = world.report();
    assert_counts(&report, [0, 0, 0, 0, 1]);
    assert!(report.regret.max > 0);
    assert_eq!(report.cases[0].ours.as_deref(), Some("a"));
    assert_eq!(report.cases[0].scores.len(), 2);
    assert!(report.text().contains("bayplan why --from case.json pod/p -n d"), "{}", report.text());
}

#[test]
fn a_node_that_was_the_best_when_the_pod_was_created_is_raced() {
    let mut world = World::new(&[("a", "4"), ("b", "8")]);
    world.put(pod("p", "1"));
    world.put(node("a", "64"));
    world.bind(pod("p", "1"), "b");
    let report = world.report();
    assert_counts(&report, [0, 0, 0, 1, 0]);
}

#[test]
fn a_best_node_of_long_before_the_pod_explains_nothing() {
    for (pause, expected) in [(SLACK / 2, [0, 0, 0, 1, 0]), (SLACK + SLACK, [0, 0, 0, 0, 1])] {
        let mut world = World::new(&[("a", "4"), ("b", "8")]);
        world.put(node("a", "64"));
        world.now += pause;
        world.put(pod("p", "1"));
        world.bind(pod("p", "1"), "b");
        assert_counts(&world.report(), expected);
    }
}

#[test]
fn a_binding_that_was_decided_before_and_seen_after_is_raced() {
    let mut world = World::new(&[("a", "8"), ("b", "7")]);
    world.put(pod("p", "4"));
    world.put(pod("q", "1"));
    // q was decided with p on a already.
    world.bind(pod("q", "1"), "b");
    // A deletion in between must not hide it.
    let other = pod("other", "2");
    world.put(other.clone());
    world.bind(other.clone(), "b");
    world.bind(pod("p", "4"), "a");
    world.delete(&other);
    let report = world.report();
    assert_eq!(report.unexplained, 0, "{}", report.text());
    assert!(report.raced >= 1);
}

#[test]
fn preemptors_pods_of_others_and_pods_created_on_a_node_are_not_judged() {
    let mut world = World::new(&[("a", "8"), ("b", "2")]);
    let mut theirs = pod("theirs", "1");
    theirs["spec"]["schedulerName"] = "another".into();
    world.put(theirs.clone());
    world.bind(theirs, "b");
    world.bind(pod("static", "1"), "b");
    let mut preemptor = pod("preemptor", "1");
    world.put(preemptor.clone());
    preemptor["status"] = json!({"nominatedNodeName": "b", "conditions": [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2"}]});
    world.put(preemptor.clone());
    world.bind(preemptor, "b");
    let report = world.report();
    assert_counts(&report, [0; 5]);
    assert_eq!(report.not_judged.values().sum::<u64>(), 3);
    assert!((report.explained() - 100.0).abs() < f64::EPSILON);
}

#[test]
fn a_pod_that_is_shown_to_be_on_its_way_is_judged_by_the_state_before_that() {
    let mut world = World::new(&[("a", "8"), ("b", "2")]);
    let mut own = pod("p", "1");
    world.put(own.clone());
    own["status"] = json!({"nominatedNodeName": "a"});
    world.put(own.clone());
    // Full by the time that it is bound.
    world.put(pod("other", "6900m"));
    world.bind(pod("other", "6900m"), "a");
    world.bind(own, "a");
    let report = world.report();
    assert_eq!((report.seen, report.unexplained), (2, 0), "{}", report.text());
}

#[test]
fn a_failed_attempt_begins_the_window_anew() {
    let mut world = World::new(&[("a", "8"), ("b", "2")]);
    let mut own = pod("p", "1");
    world.put(own.clone());
    world.put(node("a", "1500m"));
    world.now += SLACK + SLACK;
    own["status"] = json!({"conditions": [{"type": "PodScheduled", "status": "False", "message": "no"}]});
    world.now += SLACK;
    world.put(own.clone());
    world.bind(own, "a");
    let report = world.report();
    assert_counts(&report, [0, 0, 0, 0, 1]);
}

#[test]
fn what_was_stored_after_a_binding_does_not_explain_it() {
    let mut world = World::new(&[("a", "8"), ("b", "7")]);
    world.put(pod("p", "1"));
    world.bind(pod("p", "1"), "b");
    world.put(node("a", "2"));
    assert_counts(&world.report(), [0, 0, 0, 0, 1]);
}

#[test]
fn a_pod_was_decided_after_pods_that_were_bound_well_before_it_were_created() {
    for (pause, expected) in [(SignedDuration::ZERO, [2, 0, 0, 1, 0]), (SLACK + SLACK, [2, 0, 0, 0, 1])] {
        let mut world = World::new(&[("a", "4"), ("b", "8"), ("c", "2")]);
        world.put(pod("p", "1"));
        // p would have gone to b before this.
        world.put(node("a", "64"));
        world.now += pause;
        world.put(pod("q", "1"));
        world.bind(pod("q", "1"), "a");
        world.now += pause;
        world.put(pod("r", "1"));
        world.bind(pod("r", "1"), "a");
        world.bind(pod("p", "1"), "b");
        assert_counts(&world.report(), expected);
    }
}

#[test]
fn volumes_may_keep_a_pod_waiting_while_others_are_bound() {
    let mut world = World::new(&[("a", "4"), ("b", "8"), ("c", "2")]);
    let mut own = pod("p", "1");
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"namespace": "d", "name": "c", "annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
        "spec": {"volumeName": "v"}});
    let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"}});
    world.put(volume);
    world.put(claim);
    own["spec"]["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]);
    world.put(own.clone());
    world.put(node("a", "64"));
    world.put(pod("q", "1"));
    world.bind(pod("q", "1"), "a");
    world.now += SLACK + SLACK;
    world.put(pod("r", "1"));
    world.bind(pod("r", "1"), "a");
    world.bind(own, "b");
    assert_counts(&world.report(), [2, 0, 0, 1, 0]);
}

#[test]
fn the_next_node_on_the_list_of_a_pod_of_the_same_template_is_raced() {
    // A pod that prefers a by far and c a little to b, which has more room. Only while a counts, c is ahead by little.
    let picky = |name: &str, cpu: &str| {
        let prefers = |node: &str, weight: i32| {
            let fields = json!([{"key": "metadata.name", "operator": "In", "values": [node]}]);
            json!({"weight": weight, "preference": {"matchFields": fields}})
        };
        let preferred = json!([prefers("a", 100), prefers("b", 9), prefers("c", 10)]);
        let mut pod = pod(name, cpu);
        pod["spec"]["affinity"] =
            json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}});
        pod
    };
    for (cpu, expected) in [("5", [1, 0, 0, 1, 0]), ("4900m", [1, 0, 0, 0, 1])] {
        let mut world = World::new(&[("a", "8"), ("b", "8"), ("c", "7")]);
        world.put(picky("p", "5"));
        world.put(picky("q", cpu));
        world.bind(picky("p", "5"), "a");
        world.bind(picky("q", cpu), "b");
        assert_counts(&world.report(), expected);
    }
}

#[test]
fn on_many_nodes_a_worse_node_may_be_the_best_of_those_that_were_scored() {
    let names: Vec<(String, &str)> =
        (0..400).map(|at| (format!("n{at:03}"), if at < 150 { "16" } else { "8" })).collect();
    let nodes: Vec<(&str, &str)> = names.iter().map(|(name, cpu)| (name.as_str(), *cpu)).collect();
    // Of 400 nodes 47 % are looked for, 188. As many are no better than a small one; none of the large ones has to be
    // among them.
    let mut world = World::new(&nodes);
    world.put(pod("p", "1"));
    world.bind(pod("p", "1"), "n200");
    // A node that does not fit is no matter of sampling.
    world.put(pod("q", "12"));
    world.bind(pod("q", "12"), "n201");
    let report = world.report();
    assert_counts(&report, [0, 0, 1, 0, 1]);
    assert!(report.regret.max > 0);
    let mut whole = World::new(&nodes);
    whole.judge.percentage = Some(100);
    whole.put(pod("p", "1"));
    whole.bind(pod("p", "1"), "n200");
    assert_counts(&whole.report(), [0, 0, 0, 0, 1]);
}

#[test]
fn a_node_may_win_by_what_its_score_is_normalised_to_among_those_that_were_scored() {
    let names: Vec<(String, &str)> =
        (0..400).map(|at| (format!("n{at:03}"), if at == 200 { "4" } else { "64" })).collect();
    let nodes: Vec<(&str, &str)> = names.iter().map(|(name, cpu)| (name.as_str(), *cpu)).collect();
    // Of all nodes, the first takes the whole of the preference, and every large node is better than the small one.
    // Where the first is not scored, the small one has the whole of it.
    let mut picky = pod("p", "1");
    let prefers = |node: &str, weight: i32| {
        let fields = json!([{"key": "metadata.name", "operator": "In", "values": [node]}]);
        json!({"weight": weight, "preference": {"matchFields": fields}})
    };
    picky["spec"]["affinity"] = json!({"nodeAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [prefers("n000", 100), prefers("n200", 1)]}});
    let mut world = World::new(&nodes);
    world.put(picky.clone());
    world.bind(picky.clone(), "n200");
    assert_counts(&world.report(), [0, 0, 1, 0, 0]);
    let mut whole = World::new(&nodes);
    whole.judge.percentage = Some(100);
    whole.put(picky.clone());
    whole.bind(picky, "n200");
    assert_counts(&whole.report(), [0, 0, 0, 0, 1]);
}

#[test]
fn nodes_with_an_image_are_counted_as_of_the_last_change_on_each_node() {
    let with_image = |name: &str, cpu: &str| {
        let mut node = node(name, cpu);
        node["status"]["images"] = json!([{"names": ["web:1"], "sizeBytes": 524_288_000}]);
        node
    };
    let mut own = pod("p", "1");
    own["spec"]["containers"][0]["image"] = "web:1".into();
    // Three of five nodes have the image in the end. b is copied then; a was copied when it was two of four.
    for (theirs, expected) in [("b", [1, 0, 0, 0, 0]), ("a", [0, 0, 0, 0, 1])] {
        let mut world = World::empty();
        let nodes = [with_image("a", "8"), with_image("b", "8"), node("c", "1"), node("d", "1")];
        nodes.into_iter().for_each(|node| world.put(node));
        world.begin();
        world.put(with_image("e", "1"));
        world.put(with_image("b", "8"));
        world.now += SLACK + SLACK;
        world.put(own.clone());
        world.bind(own.clone(), theirs);
        assert_counts(&world.report(), expected);
    }
}

#[test]
fn a_pod_whose_turn_came_later_explains_nothing() {
    let important = |mut pod: Value| {
        pod["spec"]["priority"] = 10.into();
        pod
    };
    // p goes to a; q goes to b only if p is there.
    for (first, second, expected) in [
        (pod("p", "4"), pod("q", "1"), [1, 0, 0, 1, 0]),
        (pod("q", "1"), pod("p", "4"), [1, 0, 0, 0, 1]),
        (pod("q", "1"), important(pod("p", "4")), [1, 0, 0, 1, 0]),
    ] {
        let mut world = World::new(&[("a", "8"), ("b", "7")]);
        let p = if first["metadata"]["name"] == "p" { first.clone() } else { second.clone() };
        world.put(first);
        world.put(second);
        world.bind(pod("q", "1"), "b");
        world.bind(p, "a");
        assert_counts(&world.report(), expected);
    }
}

#[test]
fn the_watch_of_nodes_may_be_behind_that_of_pods_but_not_for_long() {
    for (pause, expected) in [(SignedDuration::ZERO, [1, 0, 0, 1, 0]), (SLACK + SLACK, [1, 0, 0, 0, 1])] {
        let mut world = World::new(&[("a", "8"), ("b", "7")]);
        world.put(pod("p", "4"));
        world.put(node("b", "1"));
        world.now += pause;
        world.bind(pod("p", "4"), "a");
        world.put(pod("q", "1"));
        world.bind(pod("q", "1"), "b");
        assert_counts(&world.report(), expected);
    }
}

#[test]
fn a_preemptor_on_its_way_to_another_node_is_on_that_node() {
    let mut world = World::new(&[("a", "8"), ("b", "6")]);
    let mut first = pod("preemptor", "6");
    world.put(first.clone());
    first["status"] = json!({"nominatedNodeName": "b", "conditions": [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2"}]});
    world.put(first.clone());
    first["status"]["nominatedNodeName"] = "a".into();
    world.put(first);
    let mut other = pod("p", "1");
    other["spec"]["priority"] = 10.into();
    world.put(other.clone());
    world.bind(other, "b");
    assert_counts(&world.report(), [1, 0, 0, 0, 0]);
}

#[test]
fn a_nominated_pod_with_a_claim_may_be_on_its_node() {
    // Its victims are gone, and it waits there for its volume; nothing shows it. It is less important than p.
    for (claims, expected) in [(true, [0, 0, 0, 1, 0]), (false, [0, 0, 0, 0, 1])] {
        let mut world = World::new(&[("a", "8"), ("b", "6")]);
        let mut first = pod("preemptor", "6");
        if claims {
            first["spec"]["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]);
        }
        world.put(first.clone());
        first["status"] = json!({"nominatedNodeName": "a", "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2"}]});
        world.put(first);
        world.now += SLACK + SLACK;
        let mut other = pod("p", "1");
        other["spec"]["priority"] = 10.into();
        world.put(other.clone());
        world.bind(other, "b");
        assert_counts(&world.report(), expected);
    }
}

#[test]
fn a_pod_that_a_preemptor_took_off_its_node_while_it_waited_for_its_claim_is_forgotten_at_once() {
    // It waits for its claim on a, which it fills; its binding is given up, and p goes there before that is stored.
    for (forgotten, expected) in [(true, [0, 0, 0, 1, 0]), (false, [0, 0, 0, 0, 1])] {
        let mut world = World::new(&[("a", "8"), ("b", "2")]);
        let mut waiting = pod("waiting", "7");
        waiting["spec"]["priority"] = (-10).into();
        waiting["spec"]["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]);
        world.put(waiting.clone());
        waiting["status"] = json!({"nominatedNodeName": "a"});
        world.put(waiting.clone());
        world.now += SLACK + SLACK;
        world.put(pod("p", "4"));
        world.bind(pod("p", "4"), "a");
        if forgotten {
            waiting["status"] = json!({"conditions": [
                {"type": "PodScheduled", "status": "False", "reason": "SchedulerError", "message": "preempted"}]});
            world.put(waiting);
        }
        assert_counts(&world.report(), expected);
    }
}

#[test]
fn a_pod_that_was_on_its_way_counts_although_its_binding_fails_later() {
    // p goes to b, because the pod on its way has taken most of a by then.
    let mut world = World::new(&[("a", "8"), ("b", "6")]);
    let mut waiting = pod("waiting", "5");
    waiting["spec"]["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]);
    world.put(waiting.clone());
    world.put(pod("p", "1"));
    world.bind(pod("p", "1"), "b");
    waiting["status"] = json!({"nominatedNodeName": "a"});
    world.put(waiting.clone());
    waiting["status"] = json!({"conditions": [
        {"type": "PodScheduled", "status": "False", "reason": "SchedulerError", "message": "preempted"}]});
    world.put(waiting);
    assert_counts(&world.report(), [0, 0, 0, 1, 0]);
}

#[test]
fn more_important_pods_that_came_after_a_pod_was_taken_from_the_queue_are_decided_after_it() {
    // p is taken from the queue, q comes, filler leaves, and only then p is decided: b is its best node without both.
    for (pause, expected) in [(SignedDuration::ZERO, [2, 0, 0, 1, 0]), (SLACK + SLACK, [2, 0, 0, 0, 1])] {
        let mut world = World::new(&[("a", "4"), ("b", "6")]);
        let mut filler = pod("filler", "3");
        world.put(filler.clone());
        filler["spec"]["nodeName"] = "b".into();
        world.put(filler.clone());
        world.now += SLACK + SLACK;
        world.put(pod("p", "1"));
        let mut important = pod("q", "4");
        important["spec"]["priority"] = 10.into();
        world.put(important.clone());
        world.now += pause;
        world.delete(&filler);
        world.bind(important, "b");
        world.bind(pod("p", "1"), "b");
        assert_counts(&world.report(), expected);
    }
}
