//! The life of a Deployment: what its user asks for, stage by stage.

use std::ops::Range;

use serde_json::{Value, json};

use super::World;
use super::server::Server;

pub(crate) fn deployment(strategy: Value) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "labels": {"app": "web"}},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "web"}},
            "strategy": strategy,
            "revisionHistoryLimit": 1,
            "progressDeadlineSeconds": 600,
            "minReadySeconds": 3,
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "c", "image": "web:1"}]},
            },
        },
        "status": {},
    })
}

pub(crate) fn rolling() -> Value {
    json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}})
}

pub(crate) fn recreate() -> Value {
    json!({"type": "Recreate"})
}

/// The user creates a Deployment, rolls to a second image, resizes and rolls to a third at once, goes back to the
/// second, and closes down to one.
pub(crate) const STAGES: usize = 5;

pub(crate) fn begin(stage: usize, strategy: &Value, server: &Server) {
    let roll = |image: &str| {
        server.edit("deployments", "web", |d| d["spec"]["template"]["spec"]["containers"][0]["image"] = json!(image));
    };
    let resize = |size: i32| server.edit("deployments", "web", |d| d["spec"]["replicas"] = json!(size));
    match stage {
        0 => server.put("deployments", deployment(strategy.clone())),
        1 => roll("web:2"),
        2 => {
            resize(4);
            roll("web:3");
        }
        3 => roll("web:2"),
        _ => resize(1),
    }
}

/// Lets the stages pass, each to its end.
pub(crate) fn live_through(stages: Range<usize>, strategy: &Value, mut world: World) -> World {
    for stage in stages {
        begin(stage, strategy, &world.server);
        world.settle();
    }
    world
}
