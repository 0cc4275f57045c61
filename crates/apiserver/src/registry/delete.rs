//! Delete: grace periods, finalizers, and the removal itself.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects, reason = "clients choose the numbers"))]

use bayplan_model::status::{Details, Status, reason};
use bayplan_store::{Entry, Revision, WriteError};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{Answer, Call, Registry, metadata};
use crate::admission::Operation;
use crate::encode::Encoded;
use crate::request::{DeleteOptions, ListOptions, Preconditions};
use crate::{selection::Selection, status_errors};
use bayplan_kinds::{Dependents, Strategy};

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

/// What a delete does to the stored object.
enum DeletionStep {
    /// Nothing: an earlier delete has done as much.
    Leave,
    /// Stores the object with its deletion timestamp.
    Mark(Value),
    /// Removes the object; a graceful kind is stored with its deletion timestamp first.
    Remove { marked: Option<Value> },
}

/// An object that a removal has marked, but not yet removed.
struct Marked {
    uid: String,
    /// The answer to its removal.
    answer: Answer,
}

impl Registry {
    /// Deletes one object.
    ///
    /// A removal without grace is two writes, the mark and the removal. Whoever sees the mark, a node say, may remove
    /// the object before the second: then it is gone as it was meant to be.
    pub(crate) async fn delete(&self, call: Call<'_>, options: &DeleteOptions) -> Result<Answer, Status> {
        let call = Call { dry_run: call.dry_run || options.dry_run, ..call };
        warn_of_orphans(call, options);
        let key = Self::key(call.resource, call.namespace, call.name);
        let strategy = &call.resource.strategy;
        let mut marked: Option<Marked> = None;
        loop {
            let Some(entry) = self.entry(&key).await? else {
                return marked.map(|own| own.answer).ok_or_else(|| status_errors::not_found(call.resource, call.name));
            };
            let old = self.decoded(call.resource, &entry)?;
            if let Some(own) = marked.take_if(|own| own.uid != metadata::text(&old, "uid")) {
                // Another object has the name by now.
                return Ok(own.answer);
            }
            check_delete_preconditions(&call, &options.preconditions, &old)?;
            self.plugins
                .admit(&self.admission(call, Operation::Delete, call.name), &mut Value::Null, Some(&old))
                .await?;
            self.plugins
                .validate(&self.admission(call, Operation::Delete, call.name), &Value::Null, Some(&old))
                .await?;
            if call.resource.kind == "Namespace" && !namespace_finalized(&old) {
                if let Some(answer) = self.terminate_namespace(call, &key, &entry, &old).await? {
                    return Ok(answer);
                }
                continue;
            }
            let step = next_step(strategy, &old, options, self.now());
            if call.dry_run && is_finalized_by(&step, &old) {
                return Ok(nothing(call));
            }
            if let Some(answer) = self.apply_step(call, &key, &entry, &old, step, &mut marked).await? {
                return Ok(answer);
            }
        }
    }

    /// Writes a step; `None` if another writer was faster. Notes in `own_mark` if only the first write of two was made.
    async fn apply_step(
        &self,
        call: Call<'_>,
        key: &str,
        entry: &Entry,
        old: &Value,
        step: DeletionStep,
        own_mark: &mut Option<Marked>,
    ) -> Result<Option<Answer>, Status> {
        match step {
            DeletionStep::Leave => {
                let encoded = self.view(call.resource, entry)?;
                Ok(Some(Answer::object(200, call.resource, encoded, Some(entry.mod_revision))))
            }
            DeletionStep::Mark(marked) => {
                let encoded = self.encode(call.resource, &marked);
                let answered = super::conversion::view(call.resource, encoded.clone())?;
                if call.dry_run || encoded.bytes() == &entry.value {
                    return Ok(Some(Answer::object(200, call.resource, answered, Some(entry.mod_revision))));
                }
                match self.store.update(key, encoded.bytes().clone(), entry.mod_revision).await {
                    Ok(revision) => Ok(Some(Answer::object(200, call.resource, answered, Some(revision)))),
                    Err(WriteError::Conflict { .. }) => Ok(None),
                    Err(error) => Err(status_errors::write(error)),
                }
            }
            DeletionStep::Remove { marked } => self.remove(call, key, entry, old, marked, own_mark).await,
        }
    }

    async fn remove(
        &self,
        call: Call<'_>,
        key: &str,
        entry: &Entry,
        old: &Value,
        marked: Option<Value>,
        own_mark: &mut Option<Marked>,
    ) -> Result<Option<Answer>, Status> {
        let last = marked.as_ref().unwrap_or(old);
        let encoded = self.encode(call.resource, last);
        let mut revision = entry.mod_revision;
        if !call.dry_run {
            // Watchers of a graceful kind see the deletion timestamp before the object goes.
            if marked.is_some() && encoded.bytes() != &entry.value {
                match self.store.update(key, encoded.bytes().clone(), revision).await {
                    Ok(written) => revision = written,
                    Err(WriteError::Conflict { .. }) => return Ok(None),
                    Err(error) => return Err(status_errors::write(error)),
                }
            }
            match self.store.delete(key, revision).await {
                Ok(removed) => {
                    revision = removed;
                    self.release_service(&call, old).await;
                }
                Err(WriteError::Conflict { .. }) => {
                    if marked.is_some() {
                        let answer = self.removed(call, old, encoded, revision)?;
                        *own_mark = Some(Marked { uid: metadata::text(old, "uid").to_owned(), answer });
                    }
                    return Ok(None);
                }
                Err(error) => return Err(status_errors::write(error)),
            }
        }
        self.removed(call, old, encoded, revision).map(Some)
    }

    /// The answer to a removal.
    fn removed(&self, call: Call<'_>, old: &Value, last: Encoded, revision: Revision) -> Result<Answer, Status> {
        if call.resource.strategy.returns_object_on_delete {
            let encoded = super::conversion::view(call.resource, last)?;
            return Ok(Answer::object(200, call.resource, encoded, Some(revision)));
        }
        let details = Details {
            name: call.name.to_owned(),
            group: call.resource.group.to_owned(),
            kind: call.resource.plural.to_owned(),
            uid: metadata::text(old, "uid").to_owned(),
            ..Details::default()
        };
        Ok(Answer::status(200, status_errors::success(0, Some(details))))
    }

    /// Marks a namespace that has finalizers in its spec; the namespace controller empties and finalizes it.
    async fn terminate_namespace(
        &self,
        call: Call<'_>,
        key: &str,
        entry: &Entry,
        old: &Value,
    ) -> Result<Option<Answer>, Status> {
        let step = if metadata::deleting(old) {
            DeletionStep::Leave
        } else {
            let mut marked = old.clone();
            metadata::of(&mut marked).insert("deletionTimestamp".to_owned(), json!(metadata::time(self.now())));
            marked["status"]["phase"] = json!("Terminating");
            DeletionStep::Mark(marked)
        };
        self.apply_step(call, key, entry, old, step, &mut None).await
    }

    /// Deletes the selected objects; answers with the list of them.
    pub(crate) async fn delete_collection(
        &self,
        call: Call<'_>,
        list: &ListOptions,
        options: &DeleteOptions,
    ) -> Result<Answer, Status> {
        let call = Call { dry_run: call.dry_run || options.dry_run, ..call };
        let selection = Selection::parse(call.resource, &list.label_selector, &list.field_selector)?;
        warn_of_orphans(call, options);
        let found = self.list(call.resource, call.namespace, &selection, list).await?;
        for item in &found.items {
            let metadata = item.encoded.decode_metadata()?;
            let name = metadata["name"].as_str().unwrap_or_default();
            match self.delete(Call { name, ..call }, options).await {
                Err(status) if status.is(reason::NOT_FOUND) => {}
                Err(status) => return Err(status),
                Ok(_) => {}
            }
        }
        Ok(Answer::list(found))
    }
}

/// Checks the preconditions of a delete. Its errors name the kind, where those of an update name the resource.
pub(crate) fn check_delete_preconditions(
    call: &Call<'_>,
    preconditions: &Preconditions,
    object: &Value,
) -> Result<(), Status> {
    let check = |what: &str, wanted: &Option<String>, found: &str, happened: &str| {
        let Some(wanted) = wanted.as_deref().filter(|wanted| *wanted != found) else { return Ok(()) };
        let message = format!(
            "Operation cannot be fulfilled on {} {:?}: the {what} in the precondition ({wanted}) does not match the \
             {what} in record ({found}). The object might have been {happened}",
            qualified_kind(call),
            call.name
        );
        Err(Status::failure(409, reason::CONFLICT, message).with_details(Details {
            name: call.name.to_owned(),
            group: call.resource.group.to_owned(),
            kind: call.resource.kind.to_owned(),
            ..Details::default()
        }))
    };
    let (uid, version) = (metadata::text(object, "uid"), metadata::text(object, "resourceVersion"));
    check("UID", &preconditions.uid, uid, "deleted and then recreated")?;
    check("ResourceVersion", &preconditions.resource_version, version, "modified")
}

fn qualified_kind(call: &Call<'_>) -> String {
    if call.resource.group.is_empty() {
        call.resource.kind.to_owned()
    } else {
        format!("{}.{}", call.resource.kind, call.resource.group)
    }
}

fn namespace_finalized(namespace: &Value) -> bool {
    namespace["spec"]["finalizers"].as_array().is_none_or(Vec::is_empty) && metadata::deleting(namespace)
}

/// The warning of upstream's Jobs, whose pods stay unless a delete says otherwise.
const ORPHANS_STAY: &str = "child pods are preserved by default when jobs are deleted; set \
                            propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress \
                            this warning";

fn warn_of_orphans(call: Call<'_>, options: &DeleteOptions) {
    let is_silent = options.propagation_policy.is_none() && options.orphan_dependents.is_none();
    if is_silent && call.resource.group == "batch" && call.resource.plural == "jobs" {
        call.warnings.extend([ORPHANS_STAY.to_owned()]);
    }
}

/// Whether the step removes an object that has waited for finalizers: the delete itself takes the last ones away.
fn is_finalized_by(step: &DeletionStep, old: &Value) -> bool {
    matches!(step, DeletionStep::Remove { marked: None }) && !metadata::finalizers(old).is_empty()
}

/// What upstream answers to the dry run of such a removal: an object without contents.
fn nothing(call: Call<'_>) -> Answer {
    Answer::value(200, call.resource.blank())
}

fn next_step(strategy: &Strategy, old: &Value, options: &DeleteOptions, now: Timestamp) -> DeletionStep {
    let mut marked = old.clone();
    let mut period = None;
    if strategy.graceful_deletion {
        match grace(old, options, now, &mut marked) {
            Grace::Pending => return DeletionStep::Leave,
            Grace::None => {}
            Grace::Marked(seconds) => period = Some(seconds),
        }
    }
    settle_finalizers(strategy.dependents, &mut marked, old, options);
    let held = !metadata::finalizers(&marked).is_empty();
    if period.is_some_and(|seconds| seconds > 0) {
        return DeletionStep::Mark(marked);
    }
    if !held {
        return DeletionStep::Remove { marked: period.map(|_| marked) };
    }
    if !metadata::deleting(&marked) {
        let metadata = metadata::of(&mut marked);
        metadata.insert("deletionTimestamp".to_owned(), json!(metadata::time(now)));
        metadata.insert("deletionGracePeriodSeconds".to_owned(), json!(0));
        metadata::bump_generation(&mut marked);
    }
    DeletionStep::Mark(marked)
}

enum Grace {
    /// A period that ends no later than the requested one is running.
    Pending,
    /// No grace period is left: go on as for a kind without one.
    None,
    /// The object carries a new period, in seconds.
    Marked(i64),
}

/// Upstream's `rest.BeforeDelete` for pods, the only graceful kind.
fn grace(old: &Value, options: &DeleteOptions, now: Timestamp, marked: &mut Value) -> Grace {
    let requested = options.grace_period_seconds.map(|seconds| if seconds < 0 { 1 } else { seconds });
    if let Some(ends) = old["metadata"]["deletionTimestamp"].as_str() {
        let current = old["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
        if current == 0 {
            return Grace::None;
        }
        let Some(period) = requested.filter(|seconds| *seconds < current) else { return Grace::Pending };
        let ends = ends.parse::<Timestamp>().unwrap_or(now);
        let started = seconds_after(ends, current.saturating_neg());
        let shortened = seconds_after(started, period).max(now);
        return mark(marked, shortened, period);
    }
    let unscheduled = old["spec"]["nodeName"].as_str().unwrap_or_default().is_empty();
    let finished = matches!(old["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    let own = old["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(0);
    let own = if own < 0 { 1 } else { own };
    let period = if unscheduled || finished { 0 } else { requested.unwrap_or(own) };
    metadata::bump_generation(marked);
    mark(marked, seconds_after(now, period), period)
}

/// A time so many seconds later; the last or first one that can be written when there is none.
fn seconds_after(time: Timestamp, seconds: i64) -> Timestamp {
    let limit = if seconds < 0 { Timestamp::MIN } else { Timestamp::MAX };
    time.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(limit)
}

fn mark(object: &mut Value, ends: Timestamp, period: i64) -> Grace {
    let metadata = metadata::of(object);
    metadata.insert("deletionTimestamp".to_owned(), json!(metadata::time(ends)));
    metadata.insert("deletionGracePeriodSeconds".to_owned(), json!(period));
    Grace::Marked(period)
}

/// Sets the garbage collector's finalizers as the options demand; without options the object keeps its own.
fn settle_finalizers(dependents: Dependents, object: &mut Value, old: &Value, options: &DeleteOptions) {
    let own = metadata::finalizers(old);
    let had = |finalizer: &str| own.iter().any(|f| f == finalizer);
    let (orphan, foreground) = match (options.orphan_dependents, options.propagation_policy.as_deref()) {
        _ if dependents == Dependents::Unsupported => (false, false),
        (Some(orphan), _) => (orphan, false),
        (None, Some("Orphan")) => (true, false),
        (None, Some("Foreground")) => (false, true),
        (None, Some(_)) => (false, false),
        (None, None) if had(ORPHAN) || had(FOREGROUND) => (had(ORPHAN), had(FOREGROUND)),
        (None, None) => (dependents == Dependents::Orphaned, false),
    };
    let mut finalizers: Vec<String> = own.iter().filter(|f| *f != ORPHAN && *f != FOREGROUND).cloned().collect();
    if orphan {
        finalizers.push(ORPHAN.to_owned());
    }
    if foreground {
        finalizers.push(FOREGROUND.to_owned());
    }
    if finalizers != own {
        metadata::set_finalizers(object, finalizers);
    }
}
