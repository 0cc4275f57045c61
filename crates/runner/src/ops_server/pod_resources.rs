//! `/metrics/resources`: what the pods of the cluster ask for and may use at most, a series for each pod and resource.
//!
//! Upstream's stable metrics (KEP-1916). They are made for each scrape from the pods that the scheduler knows, and on a
//! thread of their own: a large cluster has a million of them.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bayplan_metrics::text;
use bayplan_model::pod::Pod;
use bayplan_model::resources::{CPU, EPHEMERAL_STORAGE, MEMORY, RequestRules, ResourceList, limits};
use futures::future::BoxFuture;

/// How long a scrape waits for a busy scheduler before it is told to come back.
const PODS_TIMEOUT: Duration = Duration::from_secs(10);

/// Asks a scheduler for the pods it knows; none when it does not lead.
pub type Pods = Arc<dyn Fn() -> BoxFuture<'static, Option<Vec<Arc<Pod>>>> + Send + Sync>;

/// The metrics of pods.
#[derive(Clone)]
pub struct PodResources {
    pods: Pods,
    /// Held while the text is made: the texts of several scrapes at once would take memory many times.
    rendering: Arc<Mutex<()>>,
}

impl PodResources {
    /// The metrics of these pods.
    pub fn new(pods: Pods) -> Self {
        PodResources { pods, rendering: Arc::default() }
    }

    /// The text of a scrape, empty on an instance that does not lead, as upstream; none when the scheduler is too busy.
    pub(super) async fn scrape(&self) -> Option<String> {
        let Some(pods) = tokio::time::timeout(PODS_TIMEOUT, (self.pods)()).await.ok()? else {
            return Some(String::new());
        };
        let rendering = Arc::clone(&self.rendering);
        let rendered = tokio::task::spawn_blocking(move || {
            let _turn = rendering.lock().unwrap_or_else(PoisonError::into_inner);
            render(pods)
        });
        rendered.await.ok()
    }
}

fn render(mut pods: Vec<Arc<Pod>>) -> String {
    // A pod without a node cannot have ended.
    pods.retain(|pod| !pod.is_assigned() || !pod.is_terminal());
    pods.sort_unstable_by(|a, b| place(a).cmp(&place(b)));
    let mut out = String::new();
    family(
        &mut out,
        "kube_pod_resource_limit",
        "[STABLE] What the pods of the cluster may use at most, as the scheduler and kubelets count it.",
        &pods,
        limits,
    );
    family(
        &mut out,
        "kube_pod_resource_request",
        "[STABLE] What the pods of the cluster request, as the scheduler and kubelets count it.",
        &pods,
        |pod| RequestRules::default().requests(pod),
    );
    out
}

/// The order of the series: by the values of the labels that tell pods apart, in the order of the labels' names.
fn place(pod: &Pod) -> (&str, &str, &str) {
    (&pod.metadata.namespace, &pod.spec.node_name, &pod.metadata.name)
}

fn family(out: &mut String, name: &str, help: &str, pods: &[Arc<Pod>], of: impl Fn(&Pod) -> ResourceList) {
    let mut is_open = false;
    for pod in pods {
        let priority = pod.spec.priority.map(|priority| priority.to_string()).unwrap_or_default();
        for (resource, quantity) in of(pod).iter().filter(|(_, quantity)| !quantity.is_zero()) {
            if !std::mem::replace(&mut is_open, true) {
                text::head(out, name, help, "gauge");
            }
            let labels = text::labels(
                [
                    ("namespace", pod.metadata.namespace.as_str()),
                    ("pod", &pod.metadata.name),
                    ("node", &pod.spec.node_name),
                    ("scheduler", &pod.spec.scheduler_name),
                    ("priority", &priority),
                    ("resource", resource),
                    ("unit", unit(resource)),
                ]
                .into_iter(),
            );
            text::sample(out, name, "", &labels, quantity.approximate_f64());
        }
    }
}

/// The unit of a resource; none for extended resources, which count things of their vendor.
fn unit(resource: &str) -> &'static str {
    match resource {
        CPU => "cores",
        MEMORY | EPHEMERAL_STORAGE | "storage" => "bytes",
        _ if resource.starts_with("hugepages-") => "bytes",
        _ if resource.starts_with("attachable-volumes-") => "integer",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[track_caller]
    fn check(pods: &[Value], expected: &[&str]) {
        let pods = pods.iter().map(|pod| Arc::new(serde_json::from_value(pod.clone()).unwrap())).collect();
        let text = render(pods);
        let found: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn init_containers_sidecars_and_overhead_count_as_the_scheduler_counts_them() {
        let container =
            |cpu: &str, limit: &str| json!({"resources": {"requests": {"cpu": cpu}, "limits": {"cpu": limit}}});
        let pod = json!({
            "metadata": {"namespace": "b", "name": "p"},
            "spec": {
                "schedulerName": "s", "nodeName": "n", "priority": 7, "overhead": {"cpu": "100m", "memory": "1Ki"},
                "initContainers": [container("3", "3")],
                "containers": [container("500m", "1"), container("250m", "1")],
            },
        });
        let labels = |resource: &str, unit: &str| {
            format!(
                r#"{{namespace="b",node="n",pod="p",priority="7",resource="{resource}",scheduler="s",unit="{unit}"}}"#
            )
        };
        let expected = [
            // What has no limit gets none by overhead.
            format!("kube_pod_resource_limit{} 3.1", labels("cpu", "cores")),
            format!("kube_pod_resource_request{} 3.1", labels("cpu", "cores")),
            format!("kube_pod_resource_request{} 1024", labels("memory", "bytes")),
        ];
        check(&[pod], &expected.each_ref().map(String::as_str));
    }

    #[test]
    fn pods_that_ended_count_nothing_and_zeros_are_left_out() {
        let requests = json!({"cpu": "0", "example.com/gpu": "2", "hugepages-2Mi": "4Mi"});
        let pod = |name: &str, node: &str, phase: &str| {
            json!({
                "metadata": {"namespace": "a", "name": name},
                "spec": {
                    "nodeName": node,
                    "containers": [{"resources": {"requests": requests}}],
                },
                "status": {"phase": phase},
            })
        };
        let line = |name: &str, node: &str, resource: &str, unit: &str, value: &str| {
            format!(
                "kube_pod_resource_request{{namespace=\"a\",node=\"{node}\",pod=\"{name}\",priority=\"\",\
                 resource=\"{resource}\",scheduler=\"\",unit=\"{unit}\"}} {value}"
            )
        };
        let expected = [
            line("waits", "", "example.com/gpu", "", "2"),
            line("waits", "", "hugepages-2Mi", "bytes", "4.194304e+06"),
            line("runs", "n", "example.com/gpu", "", "2"),
            line("runs", "n", "hugepages-2Mi", "bytes", "4.194304e+06"),
        ];
        let pods = [
            pod("done", "n", "Succeeded"),
            pod("lost", "n", "Failed"),
            pod("runs", "n", "Running"),
            pod("waits", "", "Pending"),
        ];
        check(&pods, &expected.each_ref().map(String::as_str));
        check(&[], &[]);
    }
}
