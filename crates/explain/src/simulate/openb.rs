//! A recorded cluster: nodes and pods from tables in the form of Alibaba's openb trace.

use std::sync::Arc;

use bayplan_model::affinity::{Affinity, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};
use bayplan_model::meta::ObjectMeta;
use bayplan_model::node::{LABEL_HOSTNAME, Node};
use bayplan_model::pod::{Container, Pod};
use bayplan_model::quantity::{Format, Quantity};
use bayplan_model::resources::{CPU, MEMORY, PODS, ResourceList};
use bayplan_scheduler::Object;
use jiff::{SignedDuration, Timestamp};

use super::history::{Change, Event, History};

/// Thousandths of a GPU, since the trace shares them.
const GPU_MILLI: &str = "alibabacloud.com/gpu-milli";
const GPU_MODEL: &str = "alibabacloud.com/gpu-model";
const PODS_PER_NODE: i64 = 256;

/// Why a trace cannot be read.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum OpenbError {
    /// The first line has no such column.
    #[error("there is no column {0:?}")]
    Column(&'static str),
    /// A cell of a numeric column is not a number.
    #[error("line {line}: {column} is not a number: {value:?}")]
    Number {
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
pub struct OpenbEvent {
    /// Index of the pod in the trace.
    pub pod: usize,
    /// False when the pod is deleted.
    pub is_creation: bool,
    /// Seconds since the trace began.
    pub second: i64,
}

/// Nodes, pods, and the order in which pods are created and deleted.
pub struct Openb {
    nodes: Vec<TracedNode>,
    pods: Vec<TracedPod>,
    steps: Vec<OpenbEvent>,
}

/// The lines of a table as named columns.
struct Table {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    fn read(text: &str) -> Self {
        let mut rows = text.lines().map(|line| line.split(',').map(|cell| cell.trim().to_owned()).collect());
        Table { header: rows.next().unwrap_or_default(), rows: rows.collect() }
    }

    fn text(&self, column: &'static str) -> Result<Vec<String>, OpenbError> {
        let at = self.header.iter().position(|name| name == column).ok_or(OpenbError::Column(column))?;
        Ok(self.rows.iter().map(|row| row.get(at).cloned().unwrap_or_default()).collect())
    }

    /// Numbers; an empty cell is 0.
    fn numbers(&self, column: &'static str) -> Result<Vec<i64>, OpenbError> {
        let number = |(i, value): (usize, String)| match value.as_str() {
            "" => Ok(0),
            text => text.parse().map_err(|_| OpenbError::Number { line: i + 2, column, value }),
        };
        self.text(column)?.into_iter().enumerate().map(number).collect()
    }
}

impl Openb {
    /// Reads the list of nodes.
    pub fn nodes_of(text: &str) -> Result<Self, OpenbError> {
        Ok(Openb { nodes: read_nodes(&Table::read(text))?, pods: Vec::new(), steps: Vec::new() })
    }

    /// Adds the list of pods.
    pub fn with_pods_of(mut self, text: &str) -> Result<Self, OpenbError> {
        self.pods = read_pods(&Table::read(text))?;
        for (pod, traced) in self.pods.iter().enumerate() {
            self.steps.push(OpenbEvent { pod, is_creation: true, second: traced.creation });
            let second = traced.deletion.max(traced.creation.saturating_add(1));
            self.steps.push(OpenbEvent { pod, is_creation: false, second });
        }
        // Deletions come first, so that pods created in the same second find their resources free.
        self.steps.sort_by_key(|event| (event.second, event.is_creation));
        Ok(self)
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
    pub fn steps(&self) -> &[OpenbEvent] {
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
            node.status.allocatable = amounts(traced.cpu_milli, traced.memory_mib, traced.gpus.saturating_mul(1000));
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

    /// The trace as a history that begins at a time.
    pub fn history(&self, start: Timestamp) -> History {
        let at = |second: i64| start.checked_add(SignedDuration::from_secs(second)).unwrap_or(Timestamp::MAX);
        let event = |step: &OpenbEvent| {
            let change = match step.is_creation {
                true => Change::CreatePod { pod: Arc::new(self.pod(step.pod, 0)), runs_for: None },
                false => Change::DeletePod("default".into(), self.pods[step.pod].name.clone()),
            };
            Event { time: at(step.second), change }
        };
        History {
            objects: self.nodes().map(|node| Object::Node(Arc::new(node))).collect(),
            events: self.steps.iter().map(event).collect(),
            notes: Vec::new(),
        }
    }
}

fn amounts(cpu_milli: i64, memory_mib: i64, gpu_milli: i64) -> ResourceList {
    let mut amounts = ResourceList::new();
    amounts.insert(CPU.into(), Quantity::milli(cpu_milli, Format::DecimalSI));
    amounts.insert(MEMORY.into(), Quantity::new(memory_mib.saturating_mul(1 << 20), Format::BinarySI));
    if gpu_milli > 0 {
        amounts.insert(GPU_MILLI.into(), Quantity::new(gpu_milli, Format::DecimalSI));
    }
    amounts
}

fn read_nodes(table: &Table) -> Result<Vec<TracedNode>, OpenbError> {
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

fn read_pods(table: &Table) -> Result<Vec<TracedPod>, OpenbError> {
    let (names, models) = (table.text("name")?, table.text("gpu_spec")?);
    let (cpu, memory) = (table.numbers("cpu_milli")?, table.numbers("memory_mib")?);
    let (gpus, shares) = (table.numbers("num_gpu")?, table.numbers("gpu_milli")?);
    let (creation, deletion) = (table.numbers("creation_time")?, table.numbers("deletion_time")?);
    let pod = |i: usize| TracedPod {
        name: names[i].clone(),
        cpu_milli: cpu[i],
        memory_mib: memory[i],
        gpu_milli: gpus[i].saturating_mul(shares[i]),
        models: models[i].split('|').filter(|model| !model.is_empty()).map(str::to_owned).collect(),
        creation: creation[i],
        deletion: deletion[i],
    };
    Ok((0..names.len()).map(pod).collect())
}
