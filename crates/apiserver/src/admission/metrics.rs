//! How long admission takes, plugin by plugin, under upstream's names.

use bayplan_metrics::{Buckets, Family, Histogram, Registry, SECONDS};
use bayplan_model::status::Status;
use tokio::time::Instant;

use super::Operation;

/// The bounds of upstream's durations of admission.
const DURATIONS: [f64; 6] = [0.005, 0.025, 0.1, 0.5, 1.0, 2.5];

/// The durations of admission.
#[derive(Clone)]
pub(crate) struct AdmissionMetrics {
    plugins: Family<Histogram>,
    steps: Family<Histogram>,
}

/// What is done of admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The plugins that may change the object.
    Admit,
    /// Those that may only refuse.
    Validate,
}

impl Step {
    fn label(self) -> &'static str {
        match self {
            Step::Admit => "admit",
            Step::Validate => "validate",
        }
    }
}

impl AdmissionMetrics {
    /// Registers the metrics.
    pub(crate) fn new(registry: &Registry) -> Self {
        let durations = || Buckets::new(DURATIONS.to_vec(), SECONDS);
        AdmissionMetrics {
            plugins: registry.family(
                "apiserver_admission_controller_admission_duration_seconds",
                "[STABLE] Time that an admission plugin took.",
                &["name", "type", "operation", "rejected"],
                durations(),
            ),
            steps: registry.family(
                "apiserver_admission_step_admission_duration_seconds",
                "[STABLE] Time that all admission plugins of a step took.",
                &["type", "operation", "rejected"],
                durations(),
            ),
        }
    }
}

/// Times the plugins of one step, one after the other.
pub(super) struct StepTimer<'a> {
    metrics: Option<&'a AdmissionMetrics>,
    step: Step,
    operation: &'static str,
    started: Instant,
    last: Instant,
}

impl<'a> StepTimer<'a> {
    pub(super) fn start(metrics: Option<&'a AdmissionMetrics>, step: Step, operation: Operation) -> Self {
        let operation = match operation {
            Operation::Create => "CREATE",
            Operation::Update => "UPDATE",
            Operation::Delete => "DELETE",
        };
        let now = Instant::now();
        StepTimer { metrics, step, operation, started: now, last: now }
    }

    /// A plugin has answered.
    pub(super) fn answered(&mut self, plugin: &str, answer: Result<(), Status>) -> Result<(), Status> {
        if let Some(metrics) = self.metrics {
            let now = Instant::now();
            let labels = [plugin, self.step.label(), self.operation, rejected(&answer)];
            metrics.plugins.get(&labels).observe(nanos(now - self.last));
            self.last = now;
        }
        answer
    }

    /// All plugins have answered, or one has refused.
    pub(super) fn end(self, answer: Result<(), Status>) -> Result<(), Status> {
        if let Some(metrics) = self.metrics {
            let labels = [self.step.label(), self.operation, rejected(&answer)];
            metrics.steps.get(&labels).observe(nanos(self.started.elapsed()));
        }
        answer
    }
}

fn rejected(answer: &Result<(), Status>) -> &'static str {
    if answer.is_ok() { "false" } else { "true" }
}

fn nanos(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
