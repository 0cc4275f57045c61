//! The paths of resources: checks the route, negotiates the form of the answer once, and runs the verb.

use std::convert::Infallible;

use bayplan_kinds::Kind;
use bayplan_listener::SendBy;
use bayplan_model::status::Status;
use futures::StreamExt;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use serde_json::Value;

use super::ResponseBody;
use super::body::holding;
use super::handler::RequestContext;
use super::non_resource::not_found;
use super::response::{content, too_many_requests};
use super::usage::{Held, SMALL};
use crate::admission::Operation;
use crate::codec::{self, Decoded};
use crate::negotiation::{self, Format};
use crate::registry::decode::{self, Input};
use crate::registry::{Answer, Body, Call, PatchKind, UpdatedObject, VersionedObject, metadata};
use crate::request::{DeleteOptions, FieldValidation, GetOptions, ListOptions, Preconditions, Verb, WriteOptions};
use crate::selection::Selection;
use crate::{reviews, serviceaccounts, status_errors, subresources, watch};

const TOO_MANY: &str = "Too many requests, please try again later.";

/// Answers a request whose path names a resource.
pub(super) async fn serve(context: &RequestContext<'_>) -> Result<Response<ResponseBody>, Status> {
    let info = context.info;
    let Some(resource) = info.resource() else { return not_found(&info.path) };
    check_route(context, resource)?;
    let namespace = if resource.namespaced() { info.namespace.as_str() } else { "" };
    let name = if info.named { info.name.as_str() } else { "" };
    let call = Call { resource, subresource: &info.subresource, namespace, name, user: context.user, dry_run: false };
    // Negotiated before the verb runs: a write whose answer cannot be rendered must not happen.
    let format = Format::negotiate(context.headers, context.query)?;
    let request = ResourceRequest { context, call, format };
    let (bytes, big_work) = (context.body.len(), &context.shared.registry.big_work);
    let answer = if !resource.stored() || matches!(call.subresource, "binding" | "eviction" | "token" | "scale") {
        big_work.run(bytes, request.unstored()).await?
    } else if info.verb == Verb::Watch {
        return request.watch().await;
    } else {
        big_work.run(bytes, request.stored()).await?
    };
    request.render(answer).await
}

/// 404 for a path that the resource does not have, 405 for a verb that the path does not have.
fn check_route(context: &RequestContext<'_>, resource: &'static Kind) -> Result<(), Status> {
    let info = context.info;
    if !scope_fits(context, resource) || info.path.contains("//") {
        return Err(status_errors::path_not_found());
    }
    check_segment("Name", &info.name)?;
    check_segment("Namespace", &info.namespace)?;
    if info.subresource().is_none() && is_kubelets(resource, &info.subresource) {
        return Err(status_errors::not_passed_on(resource, &info.name, &info.subresource));
    }
    if !info.subresource.is_empty() && (info.subresource().is_none() || !info.rest.is_empty()) {
        return Err(status_errors::path_not_found());
    }
    let verbs = info.subresource().map_or(resource.verbs, |sub| sub.verbs);
    let served = verbs.contains(&info.verb) && *context.method != Method::HEAD;
    if served && verb_fits(context, resource) { Ok(()) } else { Err(status_errors::method_not_allowed()) }
}

/// True for what upstream passes on to kubelets and to what runs on their nodes.
fn is_kubelets(resource: &'static Kind, subresource: &str) -> bool {
    resource.group.is_empty()
        && match resource.plural {
            "pods" => matches!(subresource, "log" | "exec" | "attach" | "portforward" | "proxy"),
            "nodes" | "services" => subresource == "proxy",
            _ => false,
        }
}

/// True if the path names a namespace exactly when the resource has one.
fn scope_fits(context: &RequestContext<'_>, resource: &'static Kind) -> bool {
    let info = context.info;
    if resource.namespaced() {
        return !info.namespace.is_empty() || !info.named;
    }
    info.namespace.is_empty() || (resource.plural == "namespaces" && info.namespace == info.name)
}

/// True if the verb applies to the path. Collections have list, watch, create and deletecollection, objects have the
/// other verbs; across all namespaces there are only list and watch.
fn verb_fits(context: &RequestContext<'_>, resource: &'static Kind) -> bool {
    let info = context.info;
    let of_collection = matches!(info.verb, Verb::List | Verb::Create | Verb::DeleteCollection);
    let of_either = info.verb == Verb::Watch || !info.subresource.is_empty();
    if !of_either && of_collection == info.named {
        return false;
    }
    !resource.namespaced() || !info.namespace.is_empty() || matches!(info.verb, Verb::List | Verb::Watch)
}

/// Refuses names that would be paths before they reach the store.
fn check_segment(what: &str, segment: &str) -> Result<(), Status> {
    let why = match segment {
        "." => "may not be '.'".to_owned(),
        ".." => "may not be '..'".to_owned(),
        _ => match segment.chars().find(|c| matches!(c, '/' | '%')) {
            Some(c) => format!("may not contain '{c}'"),
            None => return Ok(()),
        },
    };
    Err(status_errors::bad_request(format!("{what} parameter invalid: {segment:?}: {why}")))
}

/// A request to a resource that exists, by a verb that it has.
struct ResourceRequest<'a> {
    context: &'a RequestContext<'a>,
    call: Call<'a>,
    format: Format,
}

impl ResourceRequest<'_> {
    async fn render(&self, answer: Answer) -> Result<Response<ResponseBody>, Status> {
        let RequestContext { shared, info, user, .. } = self.context;
        let weight = negotiation::weight(&answer, self.format);
        // What has been written must be answered.
        let held = if info.verb == Verb::List && weight > SMALL {
            let Some(held) = shared.usage.unsent(&user.name, weight) else { return Ok(too_many_requests(1)) };
            Some(held)
        } else {
            None
        };
        let work = negotiation::work(&answer, self.format);
        let render = async { negotiation::render(answer, self.format, shared.registry.now()) };
        let response = shared.registry.big_work.run(work, render).await?.map(content);
        Ok(match held {
            Some(held) => response.map(|body| holding(body, held)),
            None => response,
        })
    }

    fn body(&self) -> Input<'_> {
        Input::Body { content_type: self.context.content_type(), bytes: &self.context.body }
    }

    /// Verbs on stored objects, except watch.
    async fn stored(&self) -> Result<Answer, Status> {
        let RequestContext { shared, info, query, body, .. } = self.context;
        let (registry, call) = (&shared.registry, self.call);
        let answer = match info.verb {
            Verb::Get => registry.get(call, &GetOptions::parse(query).resource_version).await?,
            Verb::List => {
                let options = ListOptions::parse(query)?;
                let selection = Selection::parse(call.resource, &options.label_selector, &options.field_selector)?;
                Answer::list(registry.list(call.resource, call.namespace, &selection, &options).await?)
            }
            Verb::Create => {
                let options = WriteOptions::create(query)?;
                let Decoded { object, warnings } =
                    decode::object(call.resource, self.body(), options.field_validation)?;
                let call = Call { dry_run: options.dry_run, ..call };
                registry.create(call, object).await?.with_warnings(warnings)
            }
            Verb::Update => {
                let options = WriteOptions::update(query)?;
                let Decoded { object, warnings } =
                    decode::object(call.resource, self.body(), options.field_validation)?;
                let call = Call { dry_run: options.dry_run, ..call };
                let updated = UpdatedObject::Replace(object);
                registry.update(call, updated, Preconditions::default()).await?.with_warnings(warnings)
            }
            Verb::Patch => {
                let kind = PatchKind::parse(self.context.content_type())?;
                let options = WriteOptions::patch(query)?;
                let call = Call { dry_run: options.dry_run, ..call };
                registry.patch(call, kind, body, options.field_validation).await?
            }
            Verb::Delete => registry.delete(call, &self.delete_options()?).await?,
            Verb::DeleteCollection => {
                let list = ListOptions::parse(query)?;
                registry.delete_collection(call, &list, &self.delete_options()?).await?
            }
            _ => return Err(status_errors::method_not_allowed()),
        };
        self.wait_for_policy(&answer).await;
        Ok(answer)
    }

    /// Waits until the authorizer has seen a write of a role or binding, so that the client's next request is decided
    /// by it.
    async fn wait_for_policy(&self, answer: &Answer) {
        let resource = self.call.resource;
        if resource.group != "rbac.authorization.k8s.io" || matches!(self.context.info.verb, Verb::Get | Verb::List) {
            return;
        }
        let index = &self.context.shared.authorizer.index;
        match &answer.body {
            Body::Object(_, VersionedObject { revision: Some(revision), .. }) => {
                index.wait_until_seen(resource.plural, *revision).await
            }
            // A dry run changed nothing.
            Body::Object(..) => {}
            // The answer to a removal does not carry its revision.
            _ => index.refresh(resource.plural, &**self.context.shared.registry.store()).await,
        }
    }

    fn delete_options(&self) -> Result<DeleteOptions, Status> {
        match codec::decode_delete_options(decode::encoding(self.context.content_type())?, &self.context.body)? {
            Some(body) => DeleteOptions::from_body(&body),
            None => DeleteOptions::from_query(self.context.query),
        }
    }

    async fn watch(&self) -> Result<Response<ResponseBody>, Status> {
        let RequestContext { shared, info, query, user, deadline, .. } = self.context;
        let mut options = ListOptions::parse(query)?;
        if info.named {
            // The legacy watch of one object is a watch with a field selector.
            if !options.field_selector.is_empty() {
                options.field_selector.push(',');
            }
            options.field_selector.push_str(&format!("metadata.name={}", info.name));
        }
        let send_by = SendBy::new(*deadline);
        let hold = |bytes: usize| {
            let held = shared.usage.unsent(&user.name, bytes);
            let held = held.ok_or_else(|| status_errors::too_many_requests(TOO_MANY, 1))?;
            Ok(Box::new(InitialState { send_by: send_by.clone(), _held: held }) as Box<dyn Send>)
        };
        let stream = watch::open(
            shared.registry.clone(),
            self.call.resource,
            self.call.namespace,
            &options,
            self.format.transform,
            shared.stopping.subscribe(),
            &hold,
            shared.metrics.watch_series(self.call.resource),
        )
        .await?;
        let body = StreamBody::new(stream.map(|line| Ok::<_, Infallible>(Frame::data(line))));
        let mut response = Response::new(body.boxed_unsync());
        response.extensions_mut().insert(send_by);
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Ok(response)
    }

    /// Resources that are never stored (reviews, bindings) and subresources with a kind of their own.
    async fn unstored(&self) -> Result<Answer, Status> {
        let RequestContext { shared, info, query, body, .. } = self.context;
        let registry = &*shared.registry;
        let options = match info.verb {
            Verb::Create => WriteOptions::create(query)?,
            Verb::Update => WriteOptions::update(query)?,
            Verb::Patch => WriteOptions::patch(query)?,
            _ => WriteOptions::default(),
        };
        let call = Call { dry_run: options.dry_run, ..self.call };
        match (call.subresource, &info.verb) {
            ("scale", Verb::Get) => return subresources::get_scale(registry, call).await,
            ("scale", Verb::Patch) => {
                let kind = PatchKind::parse(self.context.content_type())?;
                return subresources::patch_scale(registry, call, kind, body, options.field_validation).await;
            }
            _ => {}
        }
        let Decoded { object, warnings } = self.decode_unstored(options.field_validation)?;
        let answer = match (call.resource.plural, call.subresource) {
            ("pods", "binding") | ("bindings", "") => {
                let pods = bayplan_kinds::find("", "v1", "pods").expect("a row of the table");
                check_binding_namespace(call.namespace, &object)?;
                subresources::bind(registry, Call { resource: pods, subresource: "binding", ..call }, object).await?
            }
            ("pods", "eviction") => subresources::evict(registry, call, &object).await?,
            ("serviceaccounts", "token") => {
                let context = registry.admission(call, Operation::Create, call.name);
                registry.plugins().admit_token(&context, &object).await?;
                let now = registry.now();
                let token =
                    serviceaccounts::create_token(&shared.tokens, registry, call.namespace, call.name, &object, now);
                Answer::value(201, token.await?)
            }
            (_, "scale") => subresources::update_scale(registry, call, object).await?,
            _ => {
                let reviews = reviews::Reviews {
                    authenticator: &shared.authenticator,
                    authorizer: &shared.authorizer,
                    objects: registry,
                };
                let now = registry.now();
                Answer::value(201, reviews.create(call.resource, call.namespace, call.user, object, now).await?)
            }
        };
        Ok(answer.with_warnings(warnings))
    }

    fn decode_unstored(&self, field_validation: FieldValidation) -> Result<Decoded, Status> {
        let resource = self.call.resource;
        let kind = match resource.subresource(self.call.subresource) {
            Some(subresource) => resource.subresource_kind(subresource),
            None => resource.group_version_kind(),
        };
        decode::without_defaults(kind, self.body(), field_validation)
    }
}

/// The initial state of a watch, which its client must read by the deadline of requests. Events have none.
struct InitialState {
    send_by: SendBy,
    _held: Held,
}

impl Drop for InitialState {
    fn drop(&mut self) {
        self.send_by.lift();
    }
}

/// A binding keeps the uid and resource version of its body, but its namespace must be that of the URL.
fn check_binding_namespace(namespace: &str, binding: &Value) -> Result<(), Status> {
    let given = metadata::text(binding, "namespace");
    if !given.is_empty() && given != namespace {
        return Err(status_errors::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    Ok(())
}
