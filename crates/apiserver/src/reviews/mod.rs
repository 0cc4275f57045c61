//! The reviews: virtual resources that answer who a user is and what they may do.

use bayplan_kinds::Kind;
use bayplan_model::status::Status;
use bayplan_model::timestamp;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::authn::Authenticator;
use crate::authz::policy::Rule;
use crate::authz::{Action, Attributes, Authorizer, rbac};
use crate::registry::Objects;
use crate::request::Verb;
use crate::status_errors::{FieldError, bad_request, invalid, method_not_allowed};
use crate::user::User;

const AUTHORIZATION: &str = "authorization.k8s.io";

/// Answers reviews.
pub(crate) struct Reviews<'a> {
    pub(crate) authenticator: &'a Authenticator,
    pub(crate) authorizer: &'a Authorizer,
    /// The objects that tokens are bound to.
    pub(crate) objects: &'a dyn Objects,
}

impl Reviews<'_> {
    /// Fills in the status of a review; `user` is the user who asks, `namespace` that of the URL.
    pub(crate) async fn create(
        &self,
        resource: &Kind,
        namespace: &str,
        user: &User,
        mut review: Value,
        now: Timestamp,
    ) -> Result<Value, Status> {
        let status = match resource.plural {
            "tokenreviews" => self.token(&review, now).await?,
            "selfsubjectreviews" => {
                review = json!({"metadata": {"creationTimestamp": timestamp::seconds(now)}});
                json!({"userInfo": user_info(user)})
            }
            "selfsubjectaccessreviews" => {
                check_attributes(&review, None)?;
                self.access(&review, user)
            }
            "subjectaccessreviews" => {
                check_subject(&review)?;
                check_attributes(&review, None)?;
                self.access(&review, &subject(&review))
            }
            "localsubjectaccessreviews" => {
                check_subject(&review)?;
                check_attributes(&review, Some(namespace))?;
                self.access(&review, &subject(&review))
            }
            "selfsubjectrulesreviews" => {
                let status = self.rules(&review, user)?;
                // Upstream drops the spec here.
                review["spec"] = json!({});
                status
            }
            _ => return Err(method_not_allowed()),
        };
        review["kind"] = resource.kind.into();
        review["apiVersion"] = resource.api_version().into();
        review["status"] = status;
        Ok(review)
    }

    async fn token(&self, review: &Value, now: Timestamp) -> Result<Value, Status> {
        let token = text(&review["spec"]["token"]);
        if token.is_empty() {
            return Err(bad_request("token is required for TokenReview in authentication"));
        }
        let audiences = texts(&review["spec"]["audiences"]);
        Ok(match self.authenticator.token_user(token, &audiences, self.objects, now).await {
            Some((user, audiences)) => {
                json!({"authenticated": true, "user": user_info(&user), "audiences": audiences})
            }
            None => json!({"user": {}, "error": "invalid bearer token"}),
        })
    }

    fn access(&self, review: &Value, user: &User) -> Value {
        let spec = &review["spec"];
        let (verb, action) = match spec.get("resourceAttributes").filter(|attributes| !attributes.is_null()) {
            Some(attributes) => {
                let action = Action::Resource {
                    group: text(&attributes["group"]),
                    resource: text(&attributes["resource"]),
                    subresource: text(&attributes["subresource"]),
                    name: text(&attributes["name"]),
                    namespace: text(&attributes["namespace"]),
                };
                (Verb::from(text(&attributes["verb"])), action)
            }
            None => {
                let attributes = &spec["nonResourceAttributes"];
                (Verb::from(text(&attributes["verb"])), Action::Path(text(&attributes["path"])))
            }
        };
        let decision = self.authorizer.authorize(&Attributes { user, verb: &verb, action, field_selector: "" });
        let mut status = json!({"allowed": decision.allowed});
        if !decision.reason.is_empty() {
            status["reason"] = decision.reason.into();
        }
        status
    }

    fn rules(&self, review: &Value, user: &User) -> Result<Value, Status> {
        let namespace = text(&review["spec"]["namespace"]);
        if namespace.is_empty() {
            return Err(bad_request("no namespace on request"));
        }
        let policy = self.authorizer.index.policy();
        let (rules, missing) = rbac::rules_for(&*policy, user, namespace);
        let pick = |of_paths: bool| -> Vec<Value> {
            let wanted =
                |rule: &&&Rule| if of_paths { !rule.non_resource_urls.is_empty() } else { !rule.resources.is_empty() };
            rules.iter().filter(wanted).map(|rule| describe(rule, of_paths)).collect()
        };
        let mut status =
            json!({"resourceRules": pick(false), "nonResourceRules": pick(true), "incomplete": !missing.is_empty()});
        if !missing.is_empty() {
            let errors: Vec<String> = missing.iter().map(ToString::to_string).collect();
            status["evaluationError"] = errors.join(", ").into();
        }
        Ok(status)
    }
}

/// The half of a rule about resources, or the half about paths.
fn describe(rule: &Rule, of_paths: bool) -> Value {
    let mut described = Map::new();
    let mut put = |key: &str, values: &[String]| {
        if !values.is_empty() {
            described.insert(key.to_owned(), json!(values));
        }
    };
    put("verbs", &rule.verbs);
    if of_paths {
        put("nonResourceURLs", &rule.non_resource_urls);
    } else {
        put("apiGroups", &rule.api_groups);
        put("resources", &rule.resources);
        put("resourceNames", &rule.resource_names);
    }
    described.into()
}

fn user_info(user: &User) -> Value {
    let mut info = Map::new();
    info.insert("username".into(), user.name.as_str().into());
    if !user.uid.is_empty() {
        info.insert("uid".into(), user.uid.as_str().into());
    }
    if !user.groups.is_empty() {
        info.insert("groups".into(), json!(user.groups));
    }
    if !user.extra.is_empty() {
        info.insert("extra".into(), json!(user.extra));
    }
    info.into()
}

fn subject(review: &Value) -> User {
    let spec = &review["spec"];
    let extra = spec["extra"].as_object().into_iter().flatten();
    User {
        name: text(&spec["user"]).to_owned(),
        uid: text(&spec["uid"]).to_owned(),
        groups: texts(&spec["groups"]),
        extra: extra.map(|(key, values)| (key.clone(), texts(values))).collect(),
    }
}

fn check_subject(review: &Value) -> Result<(), Status> {
    let spec = &review["spec"];
    if text(&spec["user"]).is_empty() && texts(&spec["groups"]).is_empty() {
        let error = FieldError::invalid("spec.user", "\"\"", "at least one of user or group must be specified");
        return Err(refused(error));
    }
    Ok(())
}

/// Checks that there is one kind of attributes; in a local review, those of a resource in its own namespace.
fn check_attributes(review: &Value, local: Option<&str>) -> Result<(), Status> {
    let spec = &review["spec"];
    let given = |key: &str| spec.get(key).filter(|attributes| !attributes.is_null());
    let (resource, path) = (given("resourceAttributes"), given("nonResourceAttributes"));
    if let (Some(_), Some(path)) = (local, path) {
        return Err(refused(FieldError::invalid(
            "spec.nonResourceAttributes",
            path,
            "disallowed on this kind of request",
        )));
    }
    let error = match (resource, path) {
        (Some(_), Some(path)) => FieldError::invalid(
            "spec.nonResourceAttributes",
            path,
            "cannot be specified in combination with resourceAttributes",
        ),
        (None, None) => FieldError::invalid(
            "spec.resourceAttributes",
            "null",
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        ),
        (Some(resource), None) => match local {
            Some(namespace) if text(&resource["namespace"]) != namespace => FieldError::invalid(
                "spec.resourceAttributes.namespace",
                Value::from(text(&resource["namespace"])),
                "must match metadata.namespace",
            ),
            _ => return Ok(()),
        },
        (None, Some(_)) => return Ok(()),
    };
    Err(refused(error))
}

/// A 422 without a kind, as upstream.
fn refused(error: FieldError) -> Status {
    invalid(AUTHORIZATION, "", "", &[error])
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::authn::{Accepted, StaticTokens};
    use crate::serviceaccounts::tests::{Fixture, signer};

    async fn ask(plural: &str, user: &User, review: Value) -> Result<Value, String> {
        let tokens = StaticTokens::parse("admin-token,admin,admin-uid,system:masters\n").unwrap();
        let accepted = Accepted { static_tokens: tokens, anonymous: true, ..Accepted::default() };
        let authenticator = Authenticator::new(accepted, Arc::new(signer()));
        let (authorizer, objects) = (Authorizer::default(), Fixture::default());
        let reviews = Reviews { authenticator: &authenticator, authorizer: &authorizer, objects: &objects };
        let group =
            if plural.contains("access") || plural.contains("rules") { AUTHORIZATION } else { "authentication.k8s.io" };
        let resource = bayplan_kinds::find(group, "v1", plural).unwrap();
        let answer = reviews.create(resource, "ns", user, review, Timestamp::from_second(0).unwrap()).await;
        answer.map_err(|status| format!("{} {}", status.code, status.message))
    }

    #[tokio::test]
    async fn reviews_answer_as_upstream() {
        let admin = User::new("admin", ["system:masters"]);
        let alice = User { uid: "u".into(), ..User::new("alice", ["devs"]) };
        let pods = json!({"resourceAttributes": {"resource": "pods", "verb": "list", "namespace": "ns"}});
        let local =
            json!({"user": "nobody", "resourceAttributes": {"resource": "pods", "verb": "get", "namespace": "ns"}});
        for (plural, user, spec, expected) in [
            ("selfsubjectaccessreviews", &admin, pods.clone(), json!({"allowed": true})),
            ("selfsubjectaccessreviews", &alice, pods, json!({"allowed": false})),
            ("localsubjectaccessreviews", &admin, local, json!({"allowed": false})),
            (
                "selfsubjectreviews",
                &alice,
                json!({}),
                json!({"userInfo": {"username": "alice", "uid": "u", "groups": ["devs", "system:authenticated"]}}),
            ),
            (
                "tokenreviews",
                &admin,
                json!({"token": "admin-token"}),
                json!({"authenticated": true, "audiences": ["https://kubernetes.default.svc"], "user": {
                    "username": "admin", "uid": "admin-uid", "groups": ["system:masters", "system:authenticated"]}}),
            ),
            ("tokenreviews", &admin, json!({"token": "junk"}), json!({"user": {}, "error": "invalid bearer token"})),
            (
                "selfsubjectrulesreviews",
                &alice,
                json!({"namespace": "ns"}),
                json!({"resourceRules": [], "nonResourceRules": [], "incomplete": false}),
            ),
        ] {
            let answer = ask(plural, user, json!({"metadata": {}, "spec": spec})).await.unwrap();
            assert_eq!(answer["status"], expected, "{plural}");
            assert!(answer["kind"].is_string() && answer["apiVersion"].is_string());
        }
    }

    #[tokio::test]
    async fn invalid_reviews_are_refused() {
        let user = User::new("admin", ["system:masters"]);
        let none = ".authorization.k8s.io \"\" is invalid: spec.resourceAttributes: Invalid value: null: exactly one \
                    of nonResourceAttributes or resourceAttributes must be specified";
        let elsewhere = json!({"user": "u", "resourceAttributes": {"namespace": "other"}});
        for (plural, spec, expected) in [
            ("selfsubjectaccessreviews", json!({}), format!("422 {none}")),
            ("subjectaccessreviews", json!({"user": "alice"}), format!("422 {none}")),
            (
                "subjectaccessreviews",
                json!({}),
                "422 .authorization.k8s.io \"\" is invalid: spec.user: Invalid value: \"\": at least one of user or \
                 group must be specified"
                    .into(),
            ),
            (
                "localsubjectaccessreviews",
                elsewhere,
                "422 .authorization.k8s.io \"\" is invalid: spec.resourceAttributes.namespace: Invalid value: \
                 \"other\": must match metadata.namespace"
                    .into(),
            ),
            ("tokenreviews", json!({"token": ""}), "400 token is required for TokenReview in authentication".into()),
            ("selfsubjectrulesreviews", json!({}), "400 no namespace on request".into()),
        ] {
            assert_eq!(ask(plural, &user, json!({"spec": spec})).await.unwrap_err(), expected);
        }
    }
}
