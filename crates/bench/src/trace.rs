//! A recorded cluster: nodes and pods from CSV files in the form of Alibaba's openb trace.

use std::path::{Path, PathBuf};

use bayplan_model::affinity::{Affinity, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};
use bayplan_model::meta::ObjectMeta;
use bayplan_model::node::{LABEL_HOSTNAME, Node};
use bayplan_model::pod::{Container, Pod};
use bayplan_model::quantity::{Format, Quantity};
use bayplan_model::resources::{CPU, MEMORY, PODS, ResourceList};

/// Thousandths of a GPU, since the trace shares them.
const GPU_MILLI: &str = "alibabacloud.com/gpu-milli";
const GPU_MODEL: &str = "alibabacloud.com/gpu-model";
const PODS_PER_NODE: i64 = 256;

/// Why a trace cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Cause of the failure.
        source: std::io::Error,
    },
    /// The first line has no such column.
    #[error("{}: there is no column {column:?}", path.display())]
    Column {
        /// Path of the file.
        path: PathBuf,
        /// Name of the missing column.
        column: &'static str,
    },
    /// A cell of a numeric column is not a number.
    #[error("{}, line {line}: {column} is not a number: {value:?}", path.display())]
    Number {
        /// Path of the file.
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
        /// Name of the column.
        column: &'static str,
        /// Text of the cell.
        value: String,
    },
}

struct TracedNode {
    name: String,
    cpu_milli: i64,
    memory_mib: i64,
    gpus: i64,
    model: String,
}

struct TracedPod {
    name: String,
    cpu_milli: i64,
    memory_mib: i64,
    gpu_milli: i64,
    models: Vec<String>,
    creation: i64,
    deletion: i64,
}

/// A pod is created or deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Index of the pod in the trace.
    pub pod: usize,
    /// False when the pod is deleted.
    pub is_creation: bool,
}

/// Nodes, pods, and the order in which pods are created and deleted.
pub struct Trace {
    nodes: Vec<TracedNode>,
    pods: Vec<TracedPod>,
    steps: Vec<Event>,
}

/// The lines of a file as named columns.
struct Table {
    path: PathBuf,
    header: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    fn read(path: &Path) -> Result<Self, Error> {
        let text = std::fs::read_to_string(path).map_err(|source| Error::File { path: path.to_owned(), source })?;
        let mut rows = text.lines().map(|line| line.split(',').map(|cell| cell.trim().to_owned()).collect());
        Ok(Table { path: path.to_owned(), header: rows.next().unwrap_or_default(), rows: rows.collect() })
    }

    fn column(&self, column: &'static str) -> Result<usize, Error> {
        let missing = || Error::Column { path: self.path.clone(), column };
        self.header.iter().position(|name| name == column).ok_or_else(missing)
    }

    fn text(&self, column: &'static str) -> Result<Vec<String>, Error> {
        let at = self.column(column)?;
        Ok(self.rows.iter().map(|row| row.get(at).cloned().unwrap_or_default()).collect())
    }

    /// Numbers; an empty cell is 0.
    fn numbers(&self, column: &'static str) -> Result<Vec<i64>, Error> {
        let number = |(i, value): (usize, String)| match value.as_str() {
            "" => Ok(0),
            text => text.parse().map_err(|_| Error::Number { path: self.path.clone(), line: i + 2, column, value }),
        };
        self.text(column)?.into_iter().enumerate().map(number).collect()
    }
}

impl Trace {
    /// Reads the list of nodes and the list of pods.
    pub fn read(nodes: &Path, pods: &Path) -> Result<Self, Error> {
        let (nodes, pods) = (read_nodes(&Table::read(nodes)?)?, read_pods(&Table::read(pods)?)?);
        let mut steps: Vec<(i64, Event)> = Vec::new();
        for (number, pod) in pods.iter().enumerate() {
            steps.push((pod.creation, Event { pod: number, is_creation: true }));
            steps.push((pod.deletion.max(pod.creation + 1), Event { pod: number, is_creation: false }));
        }
        // Deletions come first, so that pods created in the same second find their resources free.
        steps.sort_by_key(|(at, event)| (*at, event.is_creation));
        Ok(Trace { nodes, pods, steps: steps.into_iter().map(|(_, event)| event).collect() })
    }

    /// Number of nodes.
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// Number of pods.
    pub fn pods(&self) -> usize {
        self.pods.len()
    }

    /// Creations and deletions, in order of time.
    pub fn steps(&self) -> &[Event] {
        &self.steps
    }

    /// Nodes as the scheduler sees them.
    pub fn nodes(&self) -> impl Iterator<Item = Node> {
        self.nodes.iter().map(|traced| {
            let mut node = Node::default();
            node.metadata.name.clone_from(&traced.name);
            node.metadata.labels.insert(LABEL_HOSTNAME.into(), traced.name.clone());
            if !traced.model.is_empty() {
                node.metadata.labels.insert(GPU_MODEL.into(), traced.model.clone());
            }
            node.status.allocatable = amounts(traced.cpu_milli, traced.memory_mib, traced.gpus * 1000);
            node.status.allocatable.insert(PODS.into(), Quantity::new(PODS_PER_NODE, Format::DecimalSI));
            node
        })
    }

    /// Name of a pod, by its index.
    pub fn pod_name(&self, number: usize) -> &str {
        &self.pods[number].name
    }

    /// A pod by its index, with this resource version.
    pub fn pod(&self, number: usize, version: u64) -> Pod {
        let traced = &self.pods[number];
        let mut pod = Pod {
            metadata: ObjectMeta {
                name: traced.name.clone(),
                namespace: "default".into(),
                uid: format!("uid-{}", traced.name),
                resource_version: version.to_string(),
                ..ObjectMeta::default()
            },
            ..Pod::default()
        };
        pod.spec.scheduler_name = "default-scheduler".into();
        pod.status.phase = "Pending".into();
        let mut container = Container { name: "main".into(), ..Container::default() };
        container.resources.requests = amounts(traced.cpu_milli, traced.memory_mib, traced.gpu_milli);
        pod.spec.containers.push(container);
        if !traced.models.is_empty() {
            let model =
                NodeSelectorRequirement { key: GPU_MODEL.into(), operator: "In".into(), values: traced.models.clone() };
            let term = NodeSelectorTerm { match_expressions: vec![model], ..NodeSelectorTerm::default() };
            let required = Some(NodeSelector { node_selector_terms: vec![term] });
            let node_affinity = Some(NodeAffinity { required, ..NodeAffinity::default() });
            pod.spec.affinity = Some(Affinity { node_affinity, ..Affinity::default() });
        }
        pod
    }
}

fn amounts(cpu_milli: i64, memory_mib: i64, gpu_milli: i64) -> ResourceList {
    let mut amounts = ResourceList::new();
    amounts.insert(CPU.into(), Quantity::milli(cpu_milli, Format::DecimalSI));
    amounts.insert(MEMORY.into(), Quantity::new(memory_mib << 20, Format::BinarySI));
    if gpu_milli > 0 {
        amounts.insert(GPU_MILLI.into(), Quantity::new(gpu_milli, Format::DecimalSI));
    }
    amounts
}

fn read_nodes(table: &Table) -> Result<Vec<TracedNode>, Error> {
    let (names, models) = (table.text("sn")?, table.text("model")?);
    let (cpu, memory, gpus) = (table.numbers("cpu_milli")?, table.numbers("memory_mib")?, table.numbers("gpu")?);
    let node = |i: usize| TracedNode {
        name: names[i].clone(),
        cpu_milli: cpu[i],
        memory_mib: memory[i],
        gpus: gpus[i],
        model: models[i].clone(),
    };
    Ok((0..names.len()).map(node).collect())
}

fn read_pods(table: &Table) -> Result<Vec<TracedPod>, Error> {
    let (names, models) = (table.text("name")?, table.text("gpu_spec")?);
    let (cpu, memory) = (table.numbers("cpu_milli")?, table.numbers("memory_mib")?);
    let (gpus, shares) = (table.numbers("num_gpu")?, table.numbers("gpu_milli")?);
    let (creation, deletion) = (table.numbers("creation_time")?, table.numbers("deletion_time")?);
    let pod = |i: usize| TracedPod {
        name: names[i].clone(),
        cpu_milli: cpu[i],
        memory_mib: memory[i],
        gpu_milli: gpus[i] * shares[i],
        models: models[i].split('|').filter(|model| !model.is_empty()).map(str::to_owned).collect(),
        creation: creation[i],
        deletion: deletion[i],
    };
    Ok((0..names.len()).map(pod).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(folder: &Path, name: &str, text: &str) -> PathBuf {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    #[test]
    fn a_trace_is_replayed_in_order_and_pods_keep_to_their_gpus() {
        let folder = tempfile::tempdir().unwrap();
        let nodes = write(
            folder.path(),
            "nodes.csv",
            "sn,cpu_milli,memory_mib,gpu,model\nn0,8000,1024,0,\nn1,8000,1024,2,T4\n",
        );
        let pods = write(
            folder.path(),
            "pods.csv",
            "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,\
             scheduled_time\na,1000,64,2,1000,T4|A10,LS,Running,5,20,5\nb,1000,64,0,0,,LS,Pending,1,5,\n",
        );
        let trace = Trace::read(&nodes, &pods).unwrap();
        let steps: Vec<(usize, bool)> = trace.steps().iter().map(|s| (s.pod, s.is_creation)).collect();
        assert_eq!(steps, [(1, true), (1, false), (0, true), (0, false)]);
        let pod = trace.pod(0, 1);
        assert_eq!(pod.spec.containers[0].resources.requests.get(GPU_MILLI).map(Quantity::value), Some(2000));
        let options = crate::engine::Options { nodes: 0, pods: 0, seed: 1, confirmations: false };
        let run = crate::engine::run_trace(&trace, &options, &mut |_, _, _| {}).unwrap();
        assert_eq!((run.nodes, run.pods), (2, 2));
        let error = Trace::read(&pods, &nodes).err().unwrap().to_string();
        assert!(error.ends_with("there is no column \"sn\""), "{error}");
    }
}
