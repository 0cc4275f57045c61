//! The paths of resources: checks the route, negotiates the form of the answer once, and runs the verb.

use std::convert::Infallible;

use bayplan_kinds::Kind;
use bayplan_listener::SendBy;
use bayplan_model::status::Status;
use futures::StreamExt;
use http::header::{CONTENT_TYPE, HeaderValue, USER_AGENT};
use http::{Method, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use serde_json::Value;

use super::ResponseBody;
use super::body::holding;
use super::flow::Admitted;
use super::handler::RequestContext;
use super::non_resource::not_found;
use super::response::{content, full, too_many_requests};
use super::usage::{Held, SMALL};
use crate::admission::Operation;
use crate::codec::{self, Decoded};
use crate::negotiation::{self, Format};
use crate::registry::apply::{Configuration, is_apply};
use crate::registry::decode::{self, Input, New, Sent};
use crate::registry::{Answer, Body, Call, PatchKind, UpdatedObject, VersionedObject, Writer, metadata};
use crate::request::{DeleteOptions, FieldValidation, GetOptions, ListOptions, Preconditions, Verb, WriteOptions};
use crate::selection::Selection;
use crate::warnings::Warnings;
use crate::{kubelets, resource_metrics, reviews, serviceaccounts, status_errors, subresources, watch, websocket};

/// All pods are read for the metrics of a node: as much work as a large body.
const MANY_PODS: usize = 1 << 20;

/// What upstream warns of at every request for Endpoints.
const ENDPOINTS_DEPRECATED: &str = "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice";

const TOO_MANY: &str = "Too many requests, please try again later.";

/// Answers a request whose path names a resource, and warns its client of what was found on the way.
pub(super) async fn serve(context: &RequestContext<'_>) -> Result<Response<ResponseBody>, Status> {
    let warnings = Warnings::default();
    let served = answer(context, &warnings).await;
    if warnings.is_empty() {
        return served;
    }
    let mut response = served.unwrap_or_else(|status| {
        negotiation::status(status.code, &status, Format::for_status(context.headers, context.query)).map(full)
    });
    warnings.write(response.headers_mut());
    Ok(response)
}

async fn answer(context: &RequestContext<'_>, warnings: &Warnings) -> Result<Response<ResponseBody>, Status> {
    let info = context.info;
    if context.shared.simulated_usage && resource_metrics::is_asked(info) {
        return metrics_of_simulated_nodes(context).await;
    }
    let Some(resource) = info.resource() else { return not_found(&info.path) };
    if kubelets::is_asked(resource, &info.subresource) {
        check_path(context, resource)?;
        return kubelets::answer(context, resource).await;
    }
    check_route(context, resource)?;
    let namespace = if resource.namespaced() { info.namespace.as_str() } else { "" };
    let name = if info.named { info.name.as_str() } else { "" };
    let user = context.user;
    let call = Call {
        resource,
        subresource: &info.subresource,
        namespace,
        name,
        user,
        dry_run: false,
        shares_labels: false,
        manager: "",
        warnings,
    };
    if resource.group.is_empty() && resource.plural == "endpoints" {
        warnings.extend([ENDPOINTS_DEPRECATED.to_owned()]);
    }
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

/// Answers for the metrics server that a cluster of simulated nodes has.
async fn metrics_of_simulated_nodes(context: &RequestContext<'_>) -> Result<Response<ResponseBody>, Status> {
    let format = Format::negotiate_text(context.headers, context.query)?;
    let registry = &context.shared.registry;
    let answer = resource_metrics::answer(&**registry, context.info, context.query, registry.now());
    let answer = registry.big_work.run(MANY_PODS, answer).await?;
    Ok(negotiation::render(answer, format, registry.now())?.map(content))
}

/// 404 for a path that the resource does not have, 405 for a verb that the path does not have.
fn check_route(context: &RequestContext<'_>, resource: &'static Kind) -> Result<(), Status> {
    let info = context.info;
    if info.path.contains("//") {
        return Err(status_errors::path_not_found());
    }
    check_path(context, resource)?;
    if !info.subresource.is_empty() && (info.subresource().is_none() || !info.rest.is_empty()) {
        return Err(status_errors::path_not_found());
    }
    let verbs = info.subresource().map_or(resource.verbs, |sub| sub.verbs);
    let served = verbs.contains(&info.verb) && *context.method != Method::HEAD;
    if served && verb_fits(context, resource) { Ok(()) } else { Err(status_errors::method_not_allowed()) }
}

/// 404 for a path that the resource does not have, 400 for names that would be paths.
fn check_path(context: &RequestContext<'_>, resource: &'static Kind) -> Result<(), Status> {
    if !scope_fits(context, resource) {
        return Err(status_errors::path_not_found());
    }
    check_segment("Name", &context.info.name)?;
    check_segment("Namespace", &context.info.namespace)
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
        let response = shared.registry.big_work.run(work, render).await?;
        let response = negotiation::compressed(response, self.context.headers).map(content);
        Ok(match held {
            Some(held) => response.map(|body| holding(body, held)),
            None => response,
        })
    }

    /// What the client calls itself.
    fn user_agent(&self) -> &str {
        self.context.headers.get(USER_AGENT).map(negotiation::header_text).unwrap_or_default()
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
                let New { decoded: Decoded { object, empties, warnings }, shares_labels } =
                    decode::new_object(call.resource, self.body(), options.field_validation)?;
                let manager = options.manager_or(self.user_agent());
                let call = Call { dry_run: options.dry_run, manager: &manager, shares_labels, ..call };
                call.warnings.extend(warnings);
                registry.create(call, Sent { object, empties }).await?
            }
            Verb::Update => {
                let options = WriteOptions::update(query)?;
                let Decoded { object, empties, warnings } =
                    decode::object(call.resource, self.body(), options.field_validation)?;
                let manager = options.manager_or(self.user_agent());
                let call = Call { dry_run: options.dry_run, manager: &manager, ..call };
                let updated = UpdatedObject::Replace(Sent { object, empties });
                call.warnings.extend(warnings);
                registry.update(call, updated, Preconditions::default()).await?
            }
            Verb::Patch => {
                let content_type = self.context.content_type();
                let applies = is_apply(content_type);
                let kind = if applies { None } else { Some(PatchKind::parse(content_type)?) };
                let options = WriteOptions::patch(query, applies)?;
                let manager = options.manager_or(self.user_agent());
                let call = Call { dry_run: options.dry_run, manager: &manager, ..call };
                match kind {
                    Some(kind) => registry.patch(call, kind, body, options.field_validation).await?,
                    None => {
                        let configuration = Configuration::parse(body, options.force, options.field_validation)?;
                        registry.apply(call, configuration).await?
                    }
                }
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
        self.format.check_stream()?;
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
            let _seat = self.context.take_seat();
            Ok(Box::new(InitialState { send_by: send_by.clone(), _held: held, _seat }) as Box<dyn Send>)
        };
        let counted = shared.flow.count_watch(info, query.get("fieldSelector").unwrap_or_default());
        let stream = watch::open(
            shared.registry.clone(),
            self.call.resource,
            self.call.namespace,
            &options,
            self.format,
            shared.stopping.subscribe(),
            &hold,
            shared.metrics.watch_series(self.call.resource).counted(counted),
        )
        .await?;
        if websocket::is_asked(self.context.headers) {
            return websocket::watch(self.context.headers, stream, self.format.media);
        }
        let body = StreamBody::new(stream.map(|line| Ok::<_, Infallible>(Frame::data(line))));
        let mut response = Response::new(body.boxed_unsync());
        response.extensions_mut().insert(send_by);
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(watch::content_type(self.format)));
        Ok(response)
    }

    /// Resources that are never stored (reviews, bindings) and subresources with a kind of their own.
    async fn unstored(&self) -> Result<Answer, Status> {
        let RequestContext { shared, info, query, body, .. } = self.context;
        let registry = &*shared.registry;
        let applies = info.verb == Verb::Patch && is_apply(self.context.content_type());
        let options = match info.verb {
            Verb::Create => WriteOptions::create(query)?,
            Verb::Update => WriteOptions::update(query)?,
            Verb::Patch => WriteOptions::patch(query, applies)?,
            _ => WriteOptions::default(),
        };
        let manager = options.manager_or(self.user_agent());
        let call = Call { dry_run: options.dry_run, manager: &manager, ..self.call };
        match (call.subresource, &info.verb) {
            ("scale", Verb::Get) => return subresources::get_scale(registry, call).await,
            ("scale", Verb::Patch) if applies => {
                let configuration = Configuration::parse(body, options.force, options.field_validation)?;
                return subresources::apply_scale(registry, call, configuration).await;
            }
            ("scale", Verb::Patch) => {
                let kind = PatchKind::parse(self.context.content_type())?;
                return subresources::patch_scale(registry, call, kind, body, options.field_validation).await;
            }
            _ => {}
        }
        let Decoded { object, empties, warnings } = self.decode_unstored(options.field_validation)?;
        call.warnings.extend(warnings);
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
                let mut object = object;
                Writer::from(call).track_create(&mut object, &empties, now);
                Answer::value(201, reviews.create(call.resource, call.namespace, call.user, object, now).await?)
            }
        };
        Ok(answer)
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
    /// The seat of the request.
    _seat: Option<Admitted>,
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
