//! The rights in the manifests are those that are requested: no more, no less.

use crate::installed::pod::PodProcess;
use crate::installed::recorder::Recorder;
use crate::installed::rights::{self, try_rights};
use crate::installed::server::Server;
use crate::installed::{Target, eventually, manifest, work};

async fn compare(name: &str, scheduler: &str) {
    let server = Server::start();
    let target = Target::new(&server.kubeconfig()).await;
    try_rights(&target, name, scheduler, server.folder()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_scheduler_has_the_rights_that_it_requests() {
    compare("second-scheduler", "bayplan").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scheduler_in_place_of_kube_scheduler_has_the_rights_that_it_requests() {
    compare("in-place-of-kube-scheduler", "default-scheduler").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shadow_has_the_rights_that_it_requests() {
    let server = Server::start();
    let target = Target::new(&server.kubeconfig()).await;
    work::prepare(&target).await;
    let objects = manifest("shadow");
    for object in &objects {
        target.create(object).await;
    }
    let recorder = Recorder::start(&target.config, Vec::new()).await;
    let pod = PodProcess::start(&target, &objects, &recorder.cluster(), server.folder()).await;
    let rights = rights::of_roles(&objects);
    let watched = rights.iter().filter(|right| right.to_string().starts_with("watch ")).count();
    eventually("everything is watched", async || {
        let asked = recorder.asked();
        (asked.iter().filter(|asked| asked.path.contains("watch=")).count() >= watched).then_some(())
    })
    .await;
    // 3 if it was stopped before it had read everything: then it has found nothing out.
    let ended = pod.stop();
    assert!(matches!(ended.code(), Some(0 | 3)), "{ended}");
    rights::compare(&rights, &recorder.asked(), &[]);
}
