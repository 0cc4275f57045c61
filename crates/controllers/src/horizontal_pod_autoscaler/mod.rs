//! HorizontalPodAutoscalers: the number of a workload's replicas follows metrics.
//!
//! ```text
//!   every sync period: scale ─▶ metrics ─▶ replicas (what they ask for) ─▶ normalize (how much of it now) ─▶ scale
//! ```

mod metrics;
pub mod normalize;
pub mod object;
mod proposals;
pub mod replicas;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bayplan_model::api::{Request, Resource, Verb, decode, encode};
use bayplan_model::delta::Delta;
use bayplan_model::label_selector::Selector;
use bayplan_model::quantity::Quantity;
use bayplan_model::status::{Status as Answer, reason};
use bayplan_model::work_queue::RetryLimits;
use futures::future::BoxFuture;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use self::normalize::{History, Proposal};
use self::object::{API_VERSION, Autoscaler, Behavior, KIND, Status};
use self::replicas::{StartUp, Tolerances};
use crate::cache::{AnyDelta, Cache, Kind};
use crate::controller::{Context, Controller, Requeue, Wakeup, lock, split_key};
use crate::discovery::{ApiResource, Resources};
use crate::error::Error;
use crate::pod::Pod;
use crate::requests::HORIZONTAL_POD_AUTOSCALERS;
use crate::workload::event_reference;

/// How often a scale is written anew when somebody else was faster.
const CONFLICTS_MAX: usize = 5;

/// The settings of all autoscalers; upstream's `--horizontal-pod-autoscaler-*`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AutoscalerConfig {
    /// How often each is looked at.
    pub sync_period: Duration,
    /// For how long a recommendation keeps others from being lower.
    pub downscale_stabilization: Duration,
    /// For how long after its start the cpu of a pod may say nothing.
    pub cpu_initialization_period: Duration,
    /// For how long after its start an unready pod counts as never ready.
    pub initial_readiness_delay: Duration,
    /// How far from its target a metric may be.
    pub tolerance: f64,
}

impl Default for AutoscalerConfig {
    fn default() -> Self {
        AutoscalerConfig {
            sync_period: Duration::from_secs(15),
            downscale_stabilization: Duration::from_secs(300),
            cpu_initialization_period: Duration::from_secs(300),
            initial_readiness_delay: Duration::from_secs(30),
            tolerance: 0.1,
        }
    }
}

/// What is remembered of an autoscaler, by key.
#[derive(Default)]
struct Memory {
    history: History,
    /// Which pods its target has, once that is known.
    selector: Option<Selector>,
}

/// The controller.
pub struct HorizontalPodAutoscalerController {
    cache: Arc<Cache>,
    resources: Resources,
    config: AutoscalerConfig,
    memory: Mutex<BTreeMap<String, Memory>>,
}

/// The `scale` of a target, as it was read.
struct Scale {
    resource: Resource,
    object: Value,
    spec_replicas: i32,
    status_replicas: i32,
    selector: String,
}

/// What one look at an autoscaler works on.
struct Round<'a> {
    key: &'a str,
    autoscaler: &'a Autoscaler,
    status: Status,
    context: Context<'a>,
}

impl Round<'_> {
    fn warn(&self, reason: &'static str, note: String) {
        self.context.warning(event_reference(API_VERSION, KIND, &self.autoscaler.metadata), reason, note);
    }

    fn set(&mut self, kind: &str, status: bool, reason: &str, message: String) {
        self.status.set(kind, status, reason, message, self.context.second());
    }

    fn behavior(&self) -> Option<&Behavior> {
        self.autoscaler.spec.behavior.as_ref()
    }

    /// Writes the status if it changed.
    async fn write(&self) -> Result<(), Error> {
        let autoscaler = self.autoscaler;
        if self.status == autoscaler.status {
            return Ok(());
        }
        let meta = &autoscaler.metadata;
        // The server keeps the spec that it has.
        let object = json!({"apiVersion": API_VERSION, "kind": KIND, "metadata": meta, "status": self.status});
        let verb = Verb::Update(encode(&object));
        let request = Request::object(&HORIZONTAL_POD_AUTOSCALERS, &meta.namespace, &meta.name, verb);
        if let Err(status) = self.context.api.call(request.subresource("status")).await {
            self.warn("FailedUpdateStatus", status.message.clone());
            return Err(Error::Invalid(format!("failed to update status for {}: {}", meta.name, status.message)));
        }
        Ok(())
    }

    /// Ends a round with an error, after the status is written; that this failed is not what matters then.
    async fn fail<T>(&self, why: String) -> Result<T, Error> {
        match self.write().await {
            Ok(()) => Err(Error::Invalid(why)),
            Err(error) => Err(Error::Several(vec![Error::Invalid(why), error])),
        }
    }
}

impl HorizontalPodAutoscalerController {
    /// A controller over this cache; `resources` locate the scale subresource of targets.
    pub fn new(cache: Arc<Cache>, resources: Resources, config: AutoscalerConfig) -> Self {
        HorizontalPodAutoscalerController { cache, resources, config, memory: Mutex::default() }
    }

    async fn reconcile(&self, key: &str, context: Context<'_>) -> Result<Requeue, Error> {
        let (namespace, name) = split_key(key);
        let Some(autoscaler) = self.cache.autoscalers().get(namespace, name) else {
            lock(&self.memory).remove(key);
            return Ok(Requeue::OnChange);
        };
        let round = Round { key, autoscaler: &autoscaler, status: autoscaler.status.clone(), context };
        self.run(round).await?;
        Ok(Requeue::After(self.config.sync_period))
    }

    async fn run(&self, mut round: Round<'_>) -> Result<(), Error> {
        let spec = &round.autoscaler.spec;
        let namespace = round.autoscaler.metadata.namespace.clone();
        let target = &spec.scale_target_ref;
        let reference = format!("{}/{namespace}/{}", target.kind, target.name);
        let scale = match self.scale(&namespace, &round).await {
            Ok(scale) => scale,
            Err(why) => {
                round.warn("FailedGetScale", why.clone());
                let message = format!("the HPA controller was unable to get the target's current scale: {why}");
                round.set("AbleToScale", false, "FailedGetScale", message);
                return round.fail(format!("failed to query scale subresource for {reference}: {why}")).await;
            }
        };
        let got = "the HPA controller was able to get the target's current scale";
        round.set("AbleToScale", true, "SucceededGetScale", got.to_owned());
        let current = scale.spec_replicas;
        self.remember_first(round.key, current, round.context.now);
        let (min, max) = (spec.min_replicas.unwrap_or(1), spec.max_replicas);
        let mut current_metrics = None;
        let (desired, why) = if current == 0 {
            let message = "scaling is disabled since the replica count of the target is zero";
            round.set("ScalingActive", false, "ScalingDisabled", message.to_owned());
            round.status.conditions.retain(|condition| condition.kind != "ScaledToZero");
            (0, String::new())
        } else if current > max {
            (max, "Current number of replicas above Spec.MaxReplicas".to_owned())
        } else if current < min {
            (min, "Current number of replicas below Spec.MinReplicas".to_owned())
        } else {
            let proposed = self.propose(&mut round, &scale).await;
            current_metrics = proposed.statuses;
            match proposed.outcome {
                Ok((desired, metric)) => self.normalized(&mut round, current, desired, &metric),
                Err(why) => {
                    let status = &mut round.status;
                    (status.current_replicas, status.current_metrics) = (current, current_metrics);
                    let error = format!(
                        "failed to compute desired number of replicas based on listed metrics for {reference}: {why}"
                    );
                    let outcome = round.fail(error).await;
                    round.warn("FailedComputeMetricsReplicas", why);
                    return outcome;
                }
            }
        };
        self.apply(round, scale, desired, &why, current_metrics).await
    }

    /// What a proposal of the metrics comes to, and why the target is rescaled.
    fn normalized(&self, round: &mut Round<'_>, current: i32, desired: i32, metric: &str) -> (i32, String) {
        // Metrics that ask for nothing ask for no less than nothing.
        let desired = desired.max(0);
        let why = match desired.cmp(&current) {
            std::cmp::Ordering::Greater => format!("{metric} above target"),
            std::cmp::Ordering::Less => "All metrics below target".to_owned(),
            std::cmp::Ordering::Equal => String::new(),
        };
        let spec = &round.autoscaler.spec;
        let proposal = Proposal {
            current,
            desired,
            min: spec.min_replicas.unwrap_or(1),
            max: spec.max_replicas,
            behavior: spec.behavior.as_ref(),
            downscale_stabilization: self.config.downscale_stabilization,
            now: round.context.now,
        };
        let normalized = {
            let mut memory = lock(&self.memory);
            memory.entry(round.key.to_owned()).or_default().history.normalize(proposal)
        };
        for (kind, (status, reason, message)) in
            [("AbleToScale", normalized.able_to_scale), ("ScalingLimited", normalized.limited)]
        {
            round.set(kind, status, reason, message.to_owned());
        }
        (normalized.replicas, why)
    }

    /// Writes the scale if it has to change, and the status.
    async fn apply(
        &self,
        mut round: Round<'_>,
        scale: Scale,
        desired: i32,
        why: &str,
        current_metrics: Option<Vec<Value>>,
    ) -> Result<(), Error> {
        let current = scale.spec_replicas;
        let rescale = desired != current && current != 0;
        round.status.current_replicas = current;
        round.status.current_metrics = current_metrics;
        if rescale {
            if let Err(status) = rescale_to(&round, scale, desired).await {
                let error = &status.message;
                round.warn("FailedRescale", format!("New size: {desired}; reason: {why}; error: {error}"));
                let message = format!("the HPA controller was unable to update the target scale: {error}");
                round.set("AbleToScale", false, "FailedUpdateScale", message);
                return round.fail(format!("failed to rescale: {error}")).await;
            }
            let message = format!("the HPA controller was able to update the target scale to {desired}");
            round.set("AbleToScale", true, "SucceededRescale", message);
            let regarding = event_reference(API_VERSION, KIND, &round.autoscaler.metadata);
            let note = format!("New size: {desired}; reason: {why}");
            round.context.normal(regarding, "SuccessfulRescale", note);
            let mut memory = lock(&self.memory);
            let history = &mut memory.entry(round.key.to_owned()).or_default().history;
            history.rescaled(round.behavior(), current, desired, round.context.now);
            round.status.conditions.retain(|condition| condition.kind != "ScaledToZero");
            round.status.last_scale_time = Some(round.context.second());
        }
        round.status.desired_replicas = desired;
        round.write().await
    }

    /// The scale of the target; the error is in upstream's words.
    async fn scale(&self, namespace: &str, round: &Round<'_>) -> Result<Scale, String> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct View {
            spec: Replicas,
            status: Replicas,
        }
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Replicas {
            replicas: i32,
            selector: String,
        }
        let target = &round.autoscaler.spec.scale_target_ref;
        let group = match target.api_version.split('/').collect::<Vec<_>>()[..] {
            [_] => "",
            [group, _] => group,
            _ => return Err(format!("unexpected GroupVersion string: {}", target.api_version)),
        };
        let ApiResource { resource, .. } = self
            .resources
            .of_kind(&target.api_version, &target.kind)
            .ok_or_else(|| format!("no matches for kind {:?} in group {group:?}", target.kind))?;
        let object = get_scale(round.context, &resource, namespace, &target.name).await;
        let object = object.map_err(|status| status.message)?;
        let view = View::deserialize(&object).map_err(|error| format!("unreadable scale: {error}"))?;
        Ok(Scale {
            resource,
            spec_replicas: view.spec.replicas,
            status_replicas: view.status.replicas,
            selector: view.status.selector,
            object,
        })
    }

    fn remember_first(&self, key: &str, current: i32, now: Timestamp) {
        let mut memory = lock(&self.memory);
        let history = &mut memory.entry(key.to_owned()).or_default().history;
        if history.recommendations.is_empty() {
            history.recommendations.push((current, now));
        }
    }

    fn tolerances(&self, behavior: Option<&Behavior>) -> Tolerances {
        let of = |rules: Option<&object::ScalingRules>| {
            let own = rules.and_then(|rules| rules.tolerance.as_ref()).map(Quantity::approximate_f64);
            own.unwrap_or(self.config.tolerance)
        };
        Tolerances {
            scale_down: of(behavior.and_then(|behavior| behavior.scale_down.as_ref())),
            scale_up: of(behavior.and_then(|behavior| behavior.scale_up.as_ref())),
        }
    }

    fn start_up(&self) -> StartUp {
        StartUp {
            cpu_initialization_period: self.config.cpu_initialization_period,
            initial_readiness_delay: self.config.initial_readiness_delay,
        }
    }

    fn pods(&self, namespace: &str, selector: &Selector) -> Vec<Arc<Pod>> {
        let pods = self.cache.pods();
        pods.namespace(namespace).filter(|pod| selector.matches(&pod.metadata.labels)).cloned().collect()
    }
}

async fn get_scale(context: Context<'_>, resource: &Resource, namespace: &str, name: &str) -> Result<Value, Answer> {
    let request = Request::object(resource, namespace, name, Verb::Get).subresource("scale");
    decode(&context.api.call(request).await?)
}

/// Writes the scale; when somebody else was faster, the newest one with the same number.
async fn rescale_to(round: &Round<'_>, scale: Scale, desired: i32) -> Result<(), Answer> {
    let Scale { resource, mut object, .. } = scale;
    let meta = &round.autoscaler.metadata;
    let name = &round.autoscaler.spec.scale_target_ref.name;
    for attempt in 1.. {
        object["spec"]["replicas"] = desired.into();
        let request = Request::object(&resource, &meta.namespace, name, Verb::Update(encode(&object)));
        match round.context.api.call(request.subresource("scale")).await {
            Err(status) if status.is(reason::CONFLICT) && attempt < CONFLICTS_MAX => {
                if let Ok(newest) = get_scale(round.context, &resource, &meta.namespace, name).await {
                    object = newest;
                }
            }
            outcome => return outcome.map(drop),
        }
    }
    unreachable!("the loop above only ends by returning")
}

impl Controller for HorizontalPodAutoscalerController {
    fn name(&self) -> &'static str {
        "horizontal-pod-autoscaler-controller"
    }

    fn component(&self) -> &'static str {
        "horizontal-pod-autoscaler"
    }

    fn watches(&self) -> &'static [Kind] {
        &[Kind::Autoscaler, Kind::Pod]
    }

    /// A round that failed is repeated when the next one is due, never faster.
    fn retry_limits(&self) -> RetryLimits {
        let period = self.config.sync_period;
        RetryLimits { delay_min: period, delay_max: period, ..RetryLimits::default() }
    }

    fn observe(&self, delta: &AnyDelta) -> Vec<Wakeup> {
        match delta {
            AnyDelta::Autoscaler(Delta::Added(autoscaler) | Delta::Updated { new: autoscaler, .. }) => {
                let key = autoscaler.metadata.key();
                lock(&self.memory).entry(key.clone()).or_default();
                // A change does not hurry the next round; a key that waits already keeps its time.
                vec![Wakeup::after(key, self.config.sync_period)]
            }
            AnyDelta::Autoscaler(Delta::Deleted(autoscaler)) => {
                if let Some(memory) = lock(&self.memory).get_mut(&autoscaler.metadata.key()) {
                    memory.selector = None;
                }
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    fn sync<'a>(&'a self, key: &'a str, context: Context<'a>) -> BoxFuture<'a, Result<Requeue, Error>> {
        Box::pin(self.reconcile(key, context))
    }
}
