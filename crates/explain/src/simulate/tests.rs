use std::sync::Arc;

use bayplan_scheduler::config::Configuration;
use bayplan_scheduler::{Object, TieBreak};
use bayplan_testkit::{node, pod};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::{Completion, State};

fn start() -> Timestamp {
    Timestamp::from_second(1_700_000_000).unwrap()
}

fn read(lines: &[Value]) -> History {
    let mut arrivals = Arrivals::new(Completion::of(&State::default()), start(), false);
    lines.iter().for_each(|line| arrivals.line(&line.to_string()));
    arrivals.finish().unwrap()
}

fn on_nodes(mut history: History, names: &[&str]) -> History {
    history.objects = names.iter().map(|name| Object::Node(Arc::new(node(name).view()))).collect();
    history
}

fn run(history: &History, configurations: &[(String, Configuration)]) -> Simulation {
    let options = Options { ties: TieBreak::SmallestName, preempt: true };
    simulate(history, configurations, &options, &mut |_, _| {}).unwrap()
}

fn default_configuration() -> Vec<(String, Configuration)> {
    vec![("default".to_owned(), Configuration::default())]
}

/// A pod that asks for so much cpu, with a priority class of its own value.
fn arrival(time: u64, name: &str, cpu: &str) -> Value {
    json!({"time": time, "action": "create", "pod": pod(name).request("cpu", cpu).json()})
}

#[test]
fn a_pod_waits_until_another_leaves_and_the_time_counts() {
    // A node of the test kit has 4 cpu.
    let history = on_nodes(
        read(&[
            arrival(0, "first", "3"),
            arrival(10, "second", "3"),
            json!({"time": 70, "action": "delete", "pod": "default/first"}),
            json!({"time": 130, "action": "delete", "pod": "default/second"}),
        ]),
        &["n"],
    );
    let simulation = run(&history, &default_configuration());
    let metrics = &simulation.configs[0].metrics;
    assert_eq!((metrics.pods_created, metrics.pods_placed, metrics.pods_never_placed), (2, 2, 0));
    // It is tried again when the first leaves, a second later at most.
    assert!((1.0..=1.1).contains(&metrics.pending_pod_minutes), "{}", metrics.pending_pod_minutes);
    assert!((60.0..=61.0).contains(&metrics.wait_seconds.max), "{:?}", metrics.wait_seconds);
    assert_eq!(metrics.wait_seconds.p50, 0.0);
    assert!(metrics.nodes_in_use > 0.9 && metrics.nodes_in_use <= 1.0, "{}", metrics.nodes_in_use);
    assert!(simulation.divergences.is_empty() && simulation.divergent_pods == 0);
}

#[test]
fn a_pod_that_runs_for_a_time_leaves_after_it() {
    let mut first = arrival(0, "first", "3");
    first["runSeconds"] = 30.into();
    let history = on_nodes(read(&[first, arrival(5, "second", "3"), arrival(100, "third", "1")]), &["n"]);
    let metrics = run(&history, &default_configuration()).configs.remove(0).metrics;
    assert_eq!((metrics.pods_placed, metrics.pods_never_placed), (3, 0));
    assert!((25.0..=26.0).contains(&metrics.wait_seconds.max), "{:?}", metrics.wait_seconds);
}

#[test]
fn victims_of_preemption_are_counted_and_come_back() {
    let important = pod("important").request("cpu", "4").priority(100).json();
    let mut important = json!({"time": 10, "action": "create", "pod": important, "runSeconds": 60});
    important["pod"]["metadata"]["uid"] = "i".into();
    let small = pod("small").request("cpu", "3").priority(0).json();
    let mut small = json!({"time": 0, "action": "create", "pod": small});
    small["pod"]["metadata"]["uid"] = "s".into();
    let history = on_nodes(read(&[small, important, arrival(200, "late", "1")]), &["n"]);
    let options = Options { ties: TieBreak::SmallestName, preempt: true };
    let with = simulate(&history, &default_configuration(), &options, &mut |_, _| {}).unwrap();
    let metrics = &with.configs[0].metrics;
    assert_eq!((metrics.preemptions, metrics.pods_placed, metrics.pods_never_placed), (1, 4, 0), "{metrics:?}");
    let options = Options { preempt: false, ..options };
    let without = simulate(&history, &default_configuration(), &options, &mut |_, _| {}).unwrap();
    let metrics = &without.configs[0].metrics;
    assert_eq!((metrics.preemptions, metrics.pods_never_placed), (0, 1), "{metrics:?}");
}

#[test]
fn placements_that_exceed_a_spreading_rule_are_counted() {
    let spread = json!([{
        "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }]);
    let mut lines = Vec::new();
    for name in ["a", "b", "c"] {
        let mut web = pod(name).label("app", "web").request("cpu", "1").json();
        web["spec"]["topologySpreadConstraints"] = spread.clone();
        web["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": "n1"});
        lines.push(json!({"time": 0, "action": "create", "pod": web}));
    }
    let metrics = run(&on_nodes(read(&lines), &["n1", "n2"]), &default_configuration()).configs.remove(0).metrics;
    assert_eq!((metrics.pods_placed, metrics.spread_violations), (3, 2));
}

#[test]
fn workloads_of_a_simkube_trace_grow_shrink_and_go() {
    let web = |replicas: usize| {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop"},
            "spec": {
                "replicas": replicas, "selector": {"matchLabels": {"app": "web"}},
                "template": {
                    "metadata": {"labels": {"app": "web"}},
                    "spec": {"containers": [{"name": "c", "image": "web"}]},
                },
            },
        })
    };
    let history = read(&[json!({"events": [
        {"ts": 1_700_000_000, "applied_objs": [web(2)], "deleted_objs": []},
        {"ts": 1_700_000_010, "applied_objs": [web(5)], "deleted_objs": []},
        {"ts": 1_700_000_020, "applied_objs": [web(4)], "deleted_objs": []},
        {"ts": 1_700_000_030, "applied_objs": [], "deleted_objs": [web(0)]},
    ]})]);
    let count = |second: i64, is: fn(&Change) -> bool| {
        let at = start().as_second() + second;
        history.events.iter().filter(|event| event.time.as_second() == at && is(&event.change)).count()
    };
    let created: fn(&Change) -> bool = |change| matches!(change, Change::CreatePod { .. });
    let deleted: fn(&Change) -> bool = |change| matches!(change, Change::DeletePod(..));
    assert_eq!([0, 10, 20, 30].map(|second| count(second, created)), [2, 3, 0, 0]);
    assert_eq!([0, 10, 20, 30].map(|second| count(second, deleted)), [0, 0, 1, 4]);
}

#[test]
fn lines_that_are_no_events_are_noted_and_the_rest_is_read() {
    let mut arrivals = Arrivals::new(Completion::of(&State::default()), start(), false);
    for line in [
        "# a comment",
        "",
        "{",
        r#"{"time": "soon", "action": "create", "pod": {}}"#,
        r#"{"time": 1, "action": "jump", "pod": {"metadata": {"name": "x"}}}"#,
        r#"{"time": 1, "action": "create"}"#,
        r#"{"time": 1e300, "action": "delete", "pod": "x"}"#,
        r#"{"time": 2, "action": "delete", "pod": "x"}"#,
    ] {
        arrivals.line(line);
    }
    let history = arrivals.finish().unwrap();
    assert_eq!((history.events.len(), history.notes.len()), (1, 5), "{:?}", history.notes);
    assert!(history.notes[1].contains("line 4"), "{:?}", history.notes);
    let nothing = Arrivals::new(Completion::of(&State::default()), start(), false).finish();
    assert!(nothing.unwrap_err().to_string().contains("\"action\": \"create\""));
}

#[test]
fn configurations_that_choose_other_nodes_diverge_and_the_plugin_is_named() {
    let packed: Configuration = Configuration::from_yaml(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n- pluginConfig:\n  \
         - name: NodeResourcesFit\n    args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: \
         1}]}}\n",
    )
    .unwrap();
    let configurations = vec![("spread".to_owned(), Configuration::default()), ("packed".to_owned(), packed)];
    let lines: Vec<Value> = (0..4).map(|number| arrival(number, &format!("p{number}"), "1")).collect();
    let simulation = run(&on_nodes(read(&lines), &["n1", "n2", "n3", "n4"]), &configurations);
    let first = &simulation.divergences[0];
    assert_eq!(
        (first.pod.as_str(), first.nodes["spread"].as_str(), first.nodes["packed"].as_str()),
        ("default/p1", "n2", "n1")
    );
    assert!(first.plugin.is_some_and(|plugin| plugin.starts_with("NodeResources")), "{first:?}");
    let used = |at: usize| simulation.configs[at].metrics.nodes_in_use_max;
    assert!(used(0) > used(1), "{} and {}", used(0), used(1));
    assert!(table(&simulation).contains("pods went to different nodes"));
}

#[test]
fn a_report_is_one_file_whatever_names_say() {
    let mut history = on_nodes(read(&[arrival(0, "a", "1"), arrival(3600, "b", "1")]), &["n"]);
    history.notes.push("<script>alert(1)</script>".into());
    let name = "\"><script src=//evil>".to_owned();
    let simulation = run(&history, &[(name, Configuration::default())]);
    let html = report(&simulation);
    assert!(!html.contains("<script") && html.contains("&lt;script"), "names are text");
    for fetched in ["http://", "https://", "src=\"", "@import", "url("] {
        assert!(!html.contains(fetched), "{fetched} would fetch something");
    }
    assert_eq!(html.matches("<figure>").count(), html.matches("role=\"img\"").count());
    assert!(html.matches("<figure>").count() >= 5 && html.ends_with("</html>\n"));
    assert!(!html.contains("NaN") && !html.contains("inf "));
}

#[test]
fn a_trace_of_openb_is_a_history_in_order_and_pods_keep_to_their_gpus() {
    let nodes = "sn,cpu_milli,memory_mib,gpu,model\nn0,8000,1024,0,\nn1,8000,1024,2,T4\n";
    let pods = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time\n\
                a,1000,64,2,1000,T4|A10,5,20\nb,1000,64,0,0,,1,5\n";
    let trace = Openb::nodes_of(nodes).unwrap().with_pods_of(pods).unwrap();
    let steps: Vec<(usize, bool)> = trace.steps().iter().map(|step| (step.pod, step.is_creation)).collect();
    assert_eq!(steps, [(1, true), (1, false), (0, true), (0, false)]);
    let requests = &trace.pod(0, 1).spec.containers[0].resources.requests;
    assert_eq!(requests.get("alibabacloud.com/gpu-milli").map(|gpus| gpus.value()), Some(2000));
    let simulation = run(&trace.history(start()), &default_configuration());
    assert_eq!((simulation.events, simulation.nodes), (4, 2));
    assert_eq!(simulation.configs[0].metrics.pods_placed, 2);
    assert_eq!(Openb::nodes_of("a,b\n").err(), Some(OpenbError::Column("sn")));
    let error = Openb::nodes_of(nodes).unwrap().with_pods_of(&pods.replace("1000,64,2", "x,64,2")).err().unwrap();
    assert_eq!(error.to_string(), "line 2: cpu_milli is not a number: \"x\"");
}
