//! Bootstrap tokens: none outlives its end, and other secrets stay.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bayplan_controllers::{Kind, TokenCleanerController};
use bayplan_testkit::Rng;
use serde_json::{Value, json};

use super::{Edit, Life, anything, name, nobody, silent, text};
use crate::server::Server;

const SECRETS: &str = "secrets";
const TOKEN: &str = "bootstrap.kubernetes.io/token";

pub(super) const LIFE: Life = Life {
    name: "token-cleaner",
    kinds: &[Kind::BootstrapToken],
    controller: |cache| Arc::new(TokenCleanerController::new(cache)),
    stages: &[first_tokens, one_of_no_end_ends, they_come_again, a_day_passes],
    report: silent,
    others: nobody,
    edit,
    assert_always: anything,
    assert_kept,
};

fn token(name: &str, namespace: &str, kind: &str, expiration: Option<&str>) -> Value {
    let data = expiration.map(|text| json!({"expiration": STANDARD.encode(text)}));
    json!({"metadata": {"name": name, "namespace": namespace}, "type": kind, "data": data})
}

/// A token that lasts so many seconds from now on.
fn lasting(server: &Server, name: &str, seconds: u64) -> Value {
    let end = (server.now() + Duration::from_secs(seconds)).to_string();
    token(name, "kube-system", TOKEN, Some(&end))
}

fn first_tokens(server: &Server) {
    let past = "2020-01-01T00:00:00Z";
    let all = [
        lasting(server, "a", 0),
        lasting(server, "b", 30),
        lasting(server, "c", 600),
        token("over", "kube-system", TOKEN, Some(past)),
        token("unreadable", "kube-system", TOKEN, Some("some day")),
        token("endless", "kube-system", TOKEN, None),
        token("empty", "kube-system", TOKEN, Some("")),
        token("elsewhere", "default", TOKEN, Some(past)),
        token("another", "kube-system", "Opaque", Some(past)),
    ];
    all.into_iter().for_each(|token| server.put(SECRETS, token));
}

fn one_of_no_end_ends(server: &Server) {
    let data = lasting(server, "endless", 60)["data"].clone();
    server.edit(SECRETS, "endless", |token| token["data"] = data);
}

fn they_come_again(server: &Server) {
    for (name, seconds) in [("a", 5), ("b", 5), ("c", 5), ("endless", 0)] {
        server.put(SECRETS, lasting(server, name, seconds));
    }
}

fn a_day_passes(server: &Server) {
    server.put(SECRETS, lasting(server, "tomorrow", 24 * 3600));
    server.put(SECRETS, lasting(server, "today", 1));
}

fn edit(rng: &mut Rng) -> Edit {
    let named = *rng.pick(&["a", "b", "c", "endless"]);
    let seconds = [0, 1, 30, 600][rng.below(4)];
    match rng.below(4) {
        0 => Box::new(move |server| server.remove(SECRETS, named)),
        1 => Box::new(move |server| server.edit(SECRETS, named, |token| token["data"] = Value::Null)),
        2 => Box::new(move |server| {
            let data = lasting(server, named, seconds)["data"].clone();
            server.edit(SECRETS, named, |token| token["data"] = data);
        }),
        _ => Box::new(move |server| {
            if server.find(SECRETS, named).is_none() {
                server.put(SECRETS, lasting(server, named, seconds));
            }
        }),
    }
}

fn assert_kept(server: &Server, when: &str) {
    let secrets = server.objects(SECRETS);
    for secret in &secrets {
        let ends = !text(&secret["data"]["expiration"]).is_empty();
        let cleaned = secret["metadata"]["namespace"] == "kube-system" && secret["type"] == TOKEN;
        assert!(!(ends && cleaned), "{when}: {} outlived its end", name(secret));
    }
    for kept in ["elsewhere", "another", "empty"] {
        assert!(secrets.iter().any(|secret| name(secret) == kept), "{when}: {kept} stays");
    }
}
