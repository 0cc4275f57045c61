//! Upstream's scheduler and controllers, all of them, on `bayplan apiserver` and on kube-apiserver: what they complain
//! of in their logs on ours, they complain of on upstream's.
//!
//! Both servers have the same certificates, users and flags, and the controllers act under accounts of their own, so
//! that the rights of each are put to the test.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bayplan_client::Client;
use bayplan_testkit::free_ports;

use crate::control_plane::{ControlPlane, apiserver_flags, eventually};
use crate::controllers::scrubbed_text;

/// As kubeadm has it. The authority of front proxies is that of users here: only its names tell them apart.
pub(crate) const FLAGS: [&str; 8] = [
    "--allow-privileged=true",
    "--authorization-mode=Node,RBAC",
    "--enable-bootstrap-token-auth=true",
    "--requestheader-client-ca-file=PKI/ca.crt",
    "--requestheader-allowed-names=front-proxy-client",
    "--requestheader-username-headers=X-Remote-User",
    "--requestheader-group-headers=X-Remote-Group",
    "--requestheader-extra-headers-prefix=X-Remote-Extra-",
];

/// What nobody can write twice in the same order: writers that meet, and objects that go meanwhile.
const RACES: [&str; 6] = [
    "the object has been modified",
    "not found",
    "already exists",
    "is being deleted",
    "because it is being terminated",
    "StorageError: invalid object",
];

/// What `docs/contract.md` says is absent, by words of the complaint.
const ABSENT: [&str; 2] = ["v1.ValidatingAdmissionPolicy", "kube-apiserver-legacy-service-account-token-tracking"];

/// Objects for every controller.
const OBJECTS: &str = include_str!("upstreams_components.yaml");

/// What happens to the objects, again and again.
const CHANGES: [&str; 9] = [
    "kubectl scale deployment web --replicas=$((RANDOM % 5 + 1))",
    "kubectl rollout restart deployment/web statefulset/db daemonset/agent",
    "kubectl delete pod -l app=web --wait=false",
    "kubectl create ns passing && kubectl -n passing create deployment web --image=web && kubectl delete ns passing",
    "kubectl create job job-$RANDOM --from=cronjob/often",
    "kubectl drain node-0002 --force --ignore-daemonsets --timeout=5s; kubectl uncordon node-0002",
    "kubectl delete service web; kubectl apply -f objects.yaml",
    "kubectl label node node-0003 a=$RANDOM --overwrite",
    "kubectl taint node node-0003 a=b:NoExecute; kubectl taint node node-0003 a-",
];

/// How long each server is worked with.
fn span() -> Duration {
    let seconds = std::env::var("BAYPLAN_COMPONENTS_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(30);
    Duration::from_secs(seconds)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upstreams_scheduler_and_controllers_complain_of_no_more_than_on_kube_apiserver() {
    let Some(plane) = ControlPlane::start_with(&FLAGS).await else { return };
    let Some(theirs) = complaints(&plane, "theirs", |user| plane.kubeconfig(user)).await else { return };
    let [port] = free_ports();
    let pki = plane.folder().join("pki").display().to_string();
    let mut flags = vec!["apiserver".to_owned(), format!("--data-dir={}", plane.folder().join("data").display())];
    flags.extend(apiserver_flags(plane.folder(), port));
    flags.extend(FLAGS.iter().map(|flag| flag.replace("PKI", &pki)));
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let _server = plane.bayplan("our-apiserver", &flags);
    let ours_of = |user: &str| {
        let path = plane.folder().join(format!("{user}.ours.kubeconfig"));
        let text = std::fs::read_to_string(plane.kubeconfig(user)).unwrap();
        let server = |line: &str| {
            if line.trim_start().starts_with("server:") {
                format!("    server: https://127.0.0.1:{port}\n")
            } else {
                format!("{line}\n")
            }
        };
        std::fs::write(&path, text.lines().map(server).collect::<String>()).unwrap();
        path
    };
    let ours = complaints(&plane, "ours", ours_of).await.unwrap();
    let is_expected = |line: &str| RACES.iter().chain(&ABSENT).any(|words| line.contains(words));
    let only_ours = ours.iter().filter(|(kind, line)| !theirs.contains_key(*kind) && !is_expected(line));
    let only_ours: Vec<&str> = only_ours.map(|(_, line)| line.as_str()).collect();
    let (theirs, ours) = (theirs.len(), ours.len());
    assert!(
        only_ours.is_empty(),
        "{ours} kinds on ours, {theirs} on upstream's; only on ours:\n{}",
        only_ours.join("\n")
    );
}

/// Works with a server for a while; answers an example of each kind of complaint.
async fn complaints(
    plane: &ControlPlane,
    name: &str,
    kubeconfig: impl Fn(&str) -> PathBuf,
) -> Option<BTreeMap<String, String>> {
    let admin = kubeconfig("admin");
    eventually("the API server is ready", async || {
        let client = Client::from_kubeconfig(Some(&admin), None).await.ok()?;
        client.get("/readyz", "*/*").await.ok()
    })
    .await;
    let folder = plane.folder().join(name);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("objects.yaml"), OBJECTS).unwrap();
    let (managers, schedulers) = (kubeconfig("controller-manager"), kubeconfig("scheduler"));
    let manager_flags = Flags::Manager.at(plane, &managers);
    let manager = plane.upstream_as(&format!("{name}-manager"), "kube-controller-manager", &manager_flags)?;
    let scheduler_flags = Flags::Scheduler.at(plane, &schedulers);
    let scheduler = plane.upstream_as(&format!("{name}-scheduler"), "kube-scheduler", &scheduler_flags)?;
    let admin_text = admin.display().to_string();
    let arguments = ["nodes", "--kubeconfig", &admin_text, "--count", "4", "--name-prefix", "node-"];
    let nodes = plane.bayplan(&format!("{name}-nodes"), &arguments);
    eventually("the objects are there", async || {
        // Pods need the account that the controllers make.
        shell(plane, &folder, &admin, "kubectl apply -f objects.yaml").success().then_some(())
    })
    .await;
    eventually("pods run", async || {
        let look = shell(plane, &folder, &admin, "kubectl get pods -l app=web --no-headers | grep Running");
        look.success().then_some(())
    })
    .await;
    let until = Instant::now() + span();
    for change in CHANGES.iter().cycle() {
        shell(plane, &folder, &admin, change);
        if Instant::now() > until {
            break;
        }
    }
    drop(nodes);
    let logs = [manager, scheduler].map(|mut process| {
        assert!(process.ended().is_none(), "{name}: it ended by itself: {}", process.log());
        process.log()
    });
    let lines = logs.iter().flat_map(|log| log.lines()).filter(|line| is_complaint(line));
    Some(lines.map(|line| (kind(line), line.to_owned())).collect())
}

fn shell(plane: &ControlPlane, folder: &Path, admin: &Path, command: &str) -> std::process::ExitStatus {
    let mut shell = plane.shell(command);
    shell.current_dir(folder).env("KUBECONFIG", admin);
    shell.output().unwrap().status
}

/// Whose flags.
#[derive(Clone, Copy)]
pub(crate) enum Flags {
    Scheduler,
    Manager,
}

impl Flags {
    /// With this kubeconfig. Whom they serve metrics to is asked of the API server, too.
    pub(crate) fn at(self, plane: &ControlPlane, kubeconfig: &Path) -> Vec<String> {
        let kubeconfig = kubeconfig.display();
        let [port] = free_ports();
        let mut flags = vec![
            format!("--kubeconfig={kubeconfig}"),
            format!("--authentication-kubeconfig={kubeconfig}"),
            format!("--authorization-kubeconfig={kubeconfig}"),
            "--bind-address=127.0.0.1".into(),
            format!("--secure-port={port}"),
        ];
        if matches!(self, Flags::Manager) {
            let file = |name: &str| plane.folder().join("pki").join(name).display().to_string();
            flags.extend([
                "--controllers=*,bootstrap-signer-controller,token-cleaner-controller".into(),
                "--use-service-account-credentials=true".into(),
                format!("--service-account-private-key-file={}", file("apiserver.pem")),
                format!("--root-ca-file={}", file("ca.crt")),
                format!("--cluster-signing-cert-file={}", file("ca.crt")),
                format!("--cluster-signing-key-file={}", file("ca.pem")),
                "--allocate-node-cidrs=true".into(),
                "--cluster-cidr=10.244.0.0/16".into(),
                "--service-cluster-ip-range=10.0.0.0/16".into(),
            ]);
        }
        flags
    }
}

/// Whether a line of klog is of an error.
fn is_complaint(line: &str) -> bool {
    line.starts_with('E') && line.as_bytes().get(1..5).is_some_and(|date| date.iter().all(u8::is_ascii_digit))
}

/// A line without when and about whom: the place in the source, and the words.
fn kind(line: &str) -> String {
    // E1119 22:36:44.161506    4422 memcache.go:265] "Unhandled Error" err="…"
    let words = line.split_whitespace().skip(3).collect::<Vec<_>>().join(" ");
    let mut kind = String::new();
    for character in scrubbed_text(&words).chars() {
        match character {
            '0'..='9' if kind.ends_with('0') => {}
            '0'..='9' => kind.push('0'),
            other => kind.push(other),
        }
    }
    kind
}

#[test]
fn complaints_differ_by_place_and_words_alone() {
    let line = |time: &str, pod: &str| {
        format!("E1119 22:36:44.{time}    4422 job.go:26] \"Unhandled Error\" err=\"pod {pod}: cannot list\"")
    };
    assert!(is_complaint(&line("161506", "web-x2x9z")));
    assert!(!is_complaint("I1119 22:36:44.161506    4422 job.go:26] all is well"));
    assert_eq!(kind(&line("161506", "web-x2x9z")), kind(&line("9", "web-bcdfg")));
    assert_ne!(kind(&line("161506", "web-x2x9z")), kind(&line("161506", "web-x2x9z: cannot get")));
}
