//! The arguments of `nodes`.

use std::path::PathBuf;

use bayplan_model::label_selector::Selector;
use bayplan_model::taint::Taint;
use bayplan_sim::NodeTemplate;
use clap::Args;
use jiff::SignedDuration;

use super::{NODES_MAX, capacity, delay, rate};

const CLUSTER_HEADING: &str = "The cluster";
const WHICH_HEADING: &str = "Which nodes";
const EACH_HEADING: &str = "What each node has";
const PODS_HEADING: &str = "Their pods";
const RATE_HEADING: &str = "How fast";

/// What each simulated node has.
#[derive(Clone, Debug, Args)]
pub(crate) struct EachNode {
    /// The cpu of each node.
    #[arg(long, visible_alias = "cpu", default_value = "8", value_name = "QUANTITY", value_parser = capacity)]
    pub(crate) node_cpu: String,
    /// The memory of each node.
    #[arg(long, visible_alias = "memory", default_value = "32Gi", value_name = "QUANTITY", value_parser = capacity)]
    pub(crate) node_memory: String,
    /// How many pods each node takes; it has addresses for 253.
    #[arg(long, visible_alias = "pods", value_name = "COUNT", default_value_t = 110)]
    pub(crate) node_pods: u32,
    /// How many zones the nodes are spread over (label topology.kubernetes.io/zone: zone-1, zone-2, …); 0 for none.
    #[arg(
        long,
        value_name = "COUNT",
        default_value_t = 3,
        value_parser = clap::value_parser!(u32).range(0..=1000)
    )]
    pub(crate) zones: u32,
    /// How long a pod takes from bound to running; its annotation `bayplan.dev/start-delay` wins.
    #[arg(long, default_value = "1s", value_name = "DURATION", value_parser = delay)]
    pub(crate) pod_start_delay: SignedDuration,
}

impl EachNode {
    /// Nodes that have this.
    pub(crate) fn template(&self) -> NodeTemplate {
        NodeTemplate {
            cpu: self.node_cpu.clone(),
            memory: self.node_memory.clone(),
            pods: self.node_pods,
            zones: NodeTemplate::zones(self.zones as usize),
            ..NodeTemplate::default()
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Nodes {
    /// The kubeconfig of the cluster [default: $KUBECONFIG, then ~/.kube/config, then the pod's own service account].
    #[arg(long, value_name = "PATH", help_heading = CLUSTER_HEADING)]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig [default: its current one].
    #[arg(long, value_name = "NAME", help_heading = CLUSTER_HEADING)]
    pub(crate) context: Option<String>,
    /// The address of the API server; wins over the kubeconfig.
    #[arg(long, value_name = "URL", help_heading = CLUSTER_HEADING)]
    pub(crate) master: Option<String>,
    /// How many nodes to make. Those of an earlier run are run again, also beyond this number.
    #[arg(
        long,
        value_name = "COUNT",
        required_unless_present = "manage",
        value_parser = clap::value_parser!(u32).range(0..=i64::from(NODES_MAX)),
        help_heading = WHICH_HEADING
    )]
    pub(crate) count: Option<u32>,
    /// How their names begin; a number of four digits or more follows [default: the template's name, or else `sim-`].
    #[arg(long, value_name = "TEXT", help_heading = WHICH_HEADING)]
    pub(crate) name_prefix: Option<String>,
    /// A Node manifest that says more about the nodes than the flags; `{index}` and `{name}` in its texts become the
    /// number and the name of each node, and so does `{index}` in its name.
    #[arg(long, value_name = "PATH", help_heading = WHICH_HEADING)]
    pub(crate) template: Option<PathBuf>,
    /// Also run the nodes that others made and that have these labels, such as `type=kwok` or `pool in (a,b)`, from the
    /// moment they appear; nodes that a kubelet runs are left alone.
    #[arg(long, value_name = "SELECTOR", value_parser = selector, help_heading = WHICH_HEADING)]
    pub(crate) manage: Option<Selector>,
    /// Leave the nodes there at the end; the next run goes on with them.
    #[arg(long, help_heading = WHICH_HEADING)]
    pub(crate) keep: bool,
    #[command(flatten, next_help_heading = EACH_HEADING)]
    pub(crate) each: EachNode,
    /// A further label of each node. Repeatable.
    #[arg(long, value_name = "KEY=VALUE", value_parser = label, help_heading = EACH_HEADING)]
    pub(crate) label: Vec<(String, String)>,
    /// A taint of each node: it keeps pods away that do not tolerate it. Repeatable.
    #[arg(long, value_name = "KEY[=VALUE]:EFFECT", value_parser = taint, help_heading = EACH_HEADING)]
    pub(crate) taint: Vec<Taint>,
    /// How long a pod takes to stop, when its grace period lets it.
    #[arg(long, default_value = "1s", value_name = "DURATION", value_parser = delay, help_heading = PODS_HEADING)]
    pub(crate) pod_stop_delay: SignedDuration,
    /// Register at most so many nodes per second [default: as many as the API server takes].
    #[arg(long, value_name = "NODES/S", value_parser = rate, help_heading = RATE_HEADING)]
    pub(crate) register_rate: Option<f64>,
    /// Send at most so many requests per second, besides heartbeats, of which each node sends one in 10 seconds
    /// [default: as many as the API server takes].
    #[arg(long, value_name = "REQUESTS/S", value_parser = rate, help_heading = RATE_HEADING)]
    pub(crate) qps: Option<f64>,
}

fn selector(text: &str) -> Result<Selector, String> {
    let selector = Selector::parse(text).map_err(|error| error.to_string())?;
    // A typing mistake must not turn every node of a cluster into a simulated one.
    if selector.is_everything() { Err("it would select every node".to_owned()) } else { Ok(selector) }
}

fn label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("not a label such as pool=big")?;
    if key.is_empty() { Err("a label needs a key".to_owned()) } else { Ok((key.to_owned(), value.to_owned())) }
}

fn taint(text: &str) -> Result<Taint, String> {
    let (rest, effect) = text.rsplit_once(':').ok_or("not a taint such as simulated=true:NoSchedule")?;
    if !["NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect) {
        return Err(format!("{effect:?} is not NoSchedule, PreferNoSchedule or NoExecute"));
    }
    let (key, value) = rest.split_once('=').unwrap_or((rest, ""));
    if key.is_empty() {
        return Err("a taint needs a key".to_owned());
    }
    Ok(Taint { key: key.to_owned(), value: value.to_owned(), effect: effect.to_owned() })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use crate::args::Cli;

    #[test]
    fn a_bad_value_is_refused_with_what_is_wrong_about_it() {
        for (flag, value, needle) in [
            ("--count", "70000", "0..=60000"),
            ("--manage", "", "every node"),
            ("--manage", "a in", "unable to parse"),
            ("--label", "big", "not a label such as"),
            ("--taint", "gpu", "not a taint such as"),
            ("--taint", "gpu:Never", "is not NoSchedule"),
            ("--taint", "=a:NoSchedule", "needs a key"),
            ("--cpu", "many", "not a quantity such as"),
            ("--register-rate", "0", "more than zero"),
        ] {
            let flag = format!("{flag}={value}");
            let error = Cli::try_parse_from(["bayplan", "nodes", &flag]).unwrap_err().to_string();
            assert!(error.contains(needle), "{flag}: {error}");
        }
        let error = Cli::try_parse_from(["bayplan", "nodes"]).unwrap_err().to_string();
        assert!(error.contains("--count"), "{error}");
    }
}
