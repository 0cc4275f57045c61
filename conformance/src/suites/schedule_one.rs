//! Recorded decisions, sequences and preemptions through the whole scheduler: objects come as an informer's deltas, the
//! pod is popped from the queue, and what counts is what the scheduler asks to be done about it.
//!
//! ```text
//!   objects ─▶ Scheduler::handle      pod ─▶ queue ─▶ Scheduler::schedule_one ─▶ effects ─▶ compare
//! ```

use bayplan_model::api::EventType;
use bayplan_scheduler::config::Configuration;
use bayplan_scheduler::inspect::QueueStage;
use bayplan_scheduler::{Effect, Input, Object, Registry, Scheduler, TieBreak};
use serde_json::{Value, json};

use super::scheduler::{NOW, sorted};
use super::{Mismatch, Outcome};
use crate::difference::compare;

/// The longest note of an event: upstream cuts longer ones.
const NOTE_MAX: usize = 1024;

pub(super) fn check(case: &Value) -> Outcome {
    if case["pods"].is_array() {
        return sequence(case);
    }
    // A pod with a node is never popped: the cycle alone answers for these (`decisions`).
    if case["pod"]["spec"]["nodeName"].is_string() {
        return Ok(());
    }
    decision(case)
}

fn decision(case: &Value) -> Outcome {
    let expected = &case["expected"];
    let mut tried = Tried::new(&configuration(&case["config"])?, &case["objects"])?;
    let uid = tried.offer(&case["pod"])?;
    let gated = tried.is_gated(&uid);
    compare(&json!(expected.get("preEnqueue").is_some()), &json!(gated))?;
    if gated {
        return Ok(());
    }
    tried.schedule(&uid)?;
    let answer = tried.answer();
    if let Some(best) = expected["best"].as_array() {
        return Ok(compare(&json!({"node": best.first()}), &json!({"node": answer.node}))?);
    }
    compare(&json!({"node": null}), &json!({"node": answer.node}))?;
    let any_of = expected["errors"].as_array().filter(|errors| errors.contains(&json!(answer.message)));
    let message = match (any_of, expected.get("fitError").or(expected.get("error"))) {
        (Some(_), _) => json!(answer.message),
        (None, Some(message)) => message.clone(),
        (None, None) => return Err(Mismatch::Unreadable("neither a node nor a message".into())),
    };
    compare(&json!({"message": message}), &json!({"message": answer.message}))?;
    preemption(expected, &answer)
}

/// The victims are those of an acceptable node, or there are none.
fn preemption(expected: &Value, answer: &Answer) -> Outcome {
    let Some(acceptable) = expected["acceptable"].as_array() else {
        // Decisions do not record candidates, only whether a node was nominated.
        let nominates = expected["postFilter"]["code"] == "Success";
        return Ok(compare(&json!({"nominates": nominates}), &json!({"nominates": answer.nominated.is_some()}))?);
    };
    let node = json!(answer.nominated);
    if !acceptable.contains(&node) {
        compare(&json!({"acceptable": acceptable}), &json!({"acceptable": node}))?;
    }
    let expected = &expected["candidates"][node.as_str().unwrap_or_default()]["victims"];
    Ok(compare(&json!({"victims": expected}), &json!({"victims": answer.victims}))?)
}

fn sequence(case: &Value) -> Outcome {
    let steps = case["expected"]["steps"].as_array().ok_or_else(|| Mismatch::Unreadable("no steps".into()))?;
    // Nobody is preempted in the recordings.
    let mut configuration = configuration(&case["config"])?;
    for profile in &mut configuration.profiles {
        *profile = profile.without_preemption();
    }
    let mut tried = Tried::new(&configuration, &case["objects"])?;
    for (pod, expected) in case["pods"].as_array().into_iter().flatten().zip(steps) {
        let uid = tried.offer(pod)?;
        // The recordings ask the cycle at once; PreEnqueue holds some of these pods back, which then fit nowhere.
        if tried.is_gated(&uid) {
            compare(&json!({"pod": key(pod), "node": expected["chosen"]}), &json!({"pod": key(pod), "node": null}))?;
            continue;
        }
        tried.schedule(&uid)?;
        let answer = tried.answer();
        let message = expected.get("fitError").or(expected.get("error"));
        let expected = json!({"pod": expected["pod"], "node": expected["chosen"], "message": message});
        compare(&expected, &json!({"pod": key(pod), "node": answer.node, "message": answer.message}))?;
    }
    Ok(())
}

fn key(pod: &Value) -> String {
    let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default();
    format!("{}/{}", text("namespace"), text("name"))
}

fn configuration(config: &Value) -> Result<Configuration, Mismatch> {
    match config {
        Value::Null => Ok(Configuration::default()),
        config => Configuration::from_value(config.clone()).map_err(|error| Mismatch::Unreadable(error.to_string())),
    }
}

/// A scheduler with the recorded objects, and what it asked for in the last attempt.
struct Tried {
    scheduler: Scheduler,
    name: String,
    effects: Vec<Effect>,
    /// Whether other pods are in the queue, which could be popped first.
    beside_others: bool,
}

/// What came of an attempt.
#[derive(Default)]
struct Answer {
    node: Option<String>,
    message: Option<String>,
    nominated: Option<String>,
    victims: Value,
}

impl Tried {
    fn new(configuration: &Configuration, objects: &Value) -> Result<Self, Mismatch> {
        let scheduler = Scheduler::new(configuration, &Registry::default(), TieBreak::SmallestName)
            .map_err(|error| Mismatch::Unreadable(error.to_string()))?;
        let name = configuration.profiles[0].scheduler_name.clone().unwrap_or_default();
        let mut tried = Tried { scheduler, name, effects: Vec::new(), beside_others: false };
        for object in objects.as_array().into_iter().flatten() {
            tried.feed(object)?;
        }
        Ok(tried)
    }

    /// Gives the scheduler an object of the cluster. Finished pods are those that its informer never sees, and pending
    /// ones count when they are nominated.
    fn feed(&mut self, json: &Value) -> Result<(), Mismatch> {
        let mut json = json.clone();
        if json["kind"] == "Pod" && !json["spec"]["nodeName"].is_string() {
            if json["status"]["nominatedNodeName"].as_str().unwrap_or_default().is_empty() {
                return Ok(());
            }
            json["spec"]["schedulerName"] = json!(self.name);
            self.beside_others = true;
        }
        let Some(object) = Object::decode(&json) else { return Ok(()) };
        let object = object?;
        if !matches!(&object, Object::Pod(pod) if pod.is_terminal()) {
            self.scheduler.handle(Input::upsert(object), NOW);
        }
        Ok(())
    }

    /// Brings the pod in question into the queue; answers its UID.
    fn offer(&mut self, pod: &Value) -> Result<String, Mismatch> {
        let mut pod = pod.clone();
        pod["spec"]["schedulerName"] = json!(self.name);
        if !pod["metadata"]["uid"].is_string() {
            pod["metadata"]["uid"] = json!(format!("uid-of-{}", key(&pod)));
        }
        pod["apiVersion"] = json!("v1");
        pod["kind"] = json!("Pod");
        let object = Object::decode(&pod).ok_or_else(|| Mismatch::Unreadable("no pod".into()))??;
        self.scheduler.handle(Input::upsert(object), NOW);
        Ok(pod["metadata"]["uid"].as_str().unwrap_or_default().to_owned())
    }

    fn is_gated(&self, uid: &str) -> bool {
        self.scheduler.queue().stage(uid) == Some(QueueStage::Gated)
    }

    fn schedule(&mut self, uid: &str) -> Outcome {
        drop(self.scheduler.take_effects());
        let popped = match self.beside_others {
            true => self.scheduler.schedule_pod(uid, NOW),
            false => self.scheduler.schedule_one(NOW),
        };
        compare(&json!({"popped": true}), &json!({"popped": popped}))?;
        self.effects = self.scheduler.take_effects();
        Ok(())
    }

    fn answer(&self) -> Answer {
        let mut answer = Answer { victims: json!([]), ..Answer::default() };
        for effect in &self.effects {
            match effect {
                Effect::Bind(binding) => answer.node = Some(binding.node().to_owned()),
                Effect::Preempt(preemption) => {
                    answer.nominated = Some(preemption.node.clone());
                    answer.victims = sorted(preemption.victims.iter().map(|victim| victim.key()));
                }
                Effect::UpdateStatus(update) => {
                    if let Some(message) = update.patch["conditions"][0]["message"].as_str() {
                        answer.message = Some(message.to_owned());
                    }
                    if let Some(node) = update.patch["nominatedNodeName"].as_str() {
                        answer.nominated = Some(node.to_owned());
                    }
                }
                // The condition says it in full, unless it was there before.
                Effect::Record { event, .. } if event.event_type == EventType::Warning => {
                    if answer.message.is_none() && event.note.len() < NOTE_MAX {
                        answer.message = Some(event.note.clone());
                    }
                }
                Effect::Record { .. } | Effect::Call(_) => {}
            }
        }
        answer
    }
}
