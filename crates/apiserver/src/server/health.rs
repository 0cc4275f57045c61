//! `/healthz`, `/livez`, `/readyz`, and their individual checks.

use std::time::Duration;

use http::Response;

use super::response::text;
use super::{ResponseBody, Shared};
use crate::request::Query;

/// The checks in upstream's order; the store goes by the name that clients know, `etcd`.
///
/// Whether writes are taken is a question of readiness alone: a full disk is not emptied by a restart, which a failed
/// liveness check asks for, and reads still work.
const CHECKS: &[&str] = &["ping", "log", "etcd"];
const READY_CHECKS: &[&str] = &["ping", "log", "etcd", "etcd-readiness", "shutdown"];

/// How long the store may take to answer a check, as upstream's `etcd-healthcheck-timeout`.
const STORE_PATIENCE: Duration = Duration::from_secs(2);

/// Answers a health path; `None` for other paths.
pub(super) async fn answer(shared: &Shared, path: &str, query: &Query) -> Option<Response<ResponseBody>> {
    let (endpoint, single) = match path.trim_matches('/').split_once('/') {
        Some((endpoint, single)) => (endpoint, Some(single)),
        None => (path.trim_matches('/'), None),
    };
    let checks = match endpoint {
        "healthz" | "livez" => CHECKS,
        "readyz" => READY_CHECKS,
        _ => return None,
    };
    if let Some(single) = single {
        let name = checks.iter().find(|name| **name == single)?;
        return Some(match check(shared, name).await {
            Ok(()) => text(200, "ok"),
            Err(why) => text(500, &format!("internal server error: {why}\n")),
        });
    }
    let mut report = String::new();
    let mut healthy = true;
    for name in checks {
        if query.all("exclude").any(|excluded| excluded == *name) {
            report.push_str(&format!("[+]{name} excluded: ok\n"));
            continue;
        }
        match check(shared, name).await {
            Ok(()) => report.push_str(&format!("[+]{name} ok{}\n", warning(shared, name))),
            Err(_) => {
                healthy = false;
                report.push_str(&format!("[-]{name} failed: reason withheld\n"));
            }
        }
    }
    if !healthy {
        return Some(text(500, &format!("{report}{endpoint} check failed\n")));
    }
    if query.get("verbose").is_some() {
        return Some(text(200, &format!("{report}{endpoint} check passed\n")));
    }
    Some(text(200, "ok"))
}

async fn check(shared: &Shared, name: &str) -> Result<(), String> {
    match name {
        "etcd" => match tokio::time::timeout(STORE_PATIENCE, shared.registry.store().revision()).await {
            Ok(answered) => answered.map(|_| ()).map_err(|error| error.to_string()),
            Err(_late) => Err(format!("the store has not answered within {} s", STORE_PATIENCE.as_secs())),
        },
        "etcd-readiness" => shared.registry.store().writable().await.map_err(|e| e.to_string()),
        "shutdown" if *shared.stopping.borrow() => Err("process is shutting down".to_owned()),
        _ => Ok(()),
    }
}

/// What the person who reads the report should know of a check that passed. The report is for everybody, so the numbers
/// are in the log only.
fn warning(shared: &Shared, name: &str) -> &'static str {
    let low = name == "etcd-readiness" && shared.registry.store().warning().is_some();
    if low { ", but the disk is nearly full" } else { "" }
}
