//! `bayplan scheduler` and `bayplan controller-manager` as their operators see them: health, metrics, configuration,
//! leases, and an orderly end.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

mod accounts;
#[path = "../../../otlp/tests/collector/mod.rs"]
mod collector;
mod traces;

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bayplan_client::Client;
use bayplan_model::api::{Api, Request, Resource, Verb};
use bayplan_testkit::free_ports;
use serde_json::{Value, json};

/// How long a cluster may take to do what it must; generous because shared machines stall.
const PATIENCE: Duration = Duration::from_secs(60);

/// A process that does not outlive the test.
struct Process(Child, Option<JoinHandle<String>>);

impl Process {
    fn start(arguments: &[&str]) -> Process {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bayplan"));
        let mut child = command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = child.stderr.take().unwrap();
        // A log that nobody reads would stop it once the pipe is full.
        let log = std::thread::spawn(move || {
            let mut log = String::new();
            stderr.read_to_string(&mut log).unwrap();
            log
        });
        Process(child, Some(log))
    }

    /// Waits for its end; answers its exit code and what it told.
    fn ended(mut self) -> (Option<i32>, String) {
        let log = self.1.take().unwrap().join().unwrap();
        (self.0.wait().unwrap().code(), log)
    }

    /// Asks it to stop; answers its exit code and what it told.
    fn terminate(self) -> (Option<i32>, String) {
        assert!(Command::new("kill").arg(self.0.id().to_string()).status().unwrap().success());
        self.ended()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An API server on a folder, and the administrator's kubeconfig.
fn apiserver(folder: &Path) -> (Process, PathBuf) {
    apiserver_with(folder, &[])
}

fn apiserver_with(folder: &Path, flags: &[&str]) -> (Process, PathBuf) {
    let own = ["apiserver", "--port", "0", "--data-dir", folder.to_str().unwrap()];
    let mut process = Process::start(&[&own, flags].concat());
    let mut lines = BufReader::new(process.0.stdout.take().unwrap()).lines();
    lines.by_ref().map(Result::unwrap).find(|line| line.contains("Ctrl-C")).expect("it came up");
    std::thread::spawn(move || lines.for_each(drop));
    (process, folder.join("kubeconfig"))
}

/// The administrator at a secure port, whose certificate nobody vouches for.
async fn operator(kubeconfig: &Path, port: u16) -> Client {
    let text = std::fs::read_to_string(kubeconfig).unwrap();
    let lines = text.lines().map(|line| {
        let indent = &line[..line.len() - line.trim_start().trim_start_matches("- ").len()];
        match line.trim_start().trim_start_matches("- ").split(':').next().unwrap() {
            "certificate-authority-data" => format!("{indent}insecure-skip-tls-verify: true"),
            "server" => format!("{indent}server: https://127.0.0.1:{port}"),
            _ => line.to_owned(),
        }
    });
    let path = kubeconfig.with_file_name(format!("operator-{port}"));
    std::fs::write(&path, lines.collect::<Vec<_>>().join("\n")).unwrap();
    Client::from_kubeconfig(Some(&path), None).await.unwrap()
}

async fn read(client: &Client, path: &str) -> Result<String, String> {
    let answer = client.get(path, "*/*").await.map_err(|status| status.message)?;
    Ok(String::from_utf8(answer.to_vec()).unwrap())
}

/// Asks until the answer is as wanted.
async fn eventually(client: &Client, path: &str, wanted: impl Fn(&str) -> bool) -> String {
    let start = Instant::now();
    loop {
        let answer = read(client, path).await;
        if let Ok(text) = &answer
            && wanted(text)
        {
            return text.clone();
        }
        assert!(start.elapsed() < PATIENCE, "{path}: {answer:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn create(client: &Client, (group, plural): (&'static str, &'static str), namespace: &str, object: Value) {
    let resource = Resource::new(group, "v1", plural);
    let request = Request::collection(&resource, namespace, Verb::Create(object.to_string().into()));
    client.call(request).await.unwrap();
}

async fn holder(client: &Client, lease: &str) -> String {
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{lease}");
    let lease: Value = serde_json::from_str(&read(client, &path).await.unwrap()).unwrap();
    lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn a_scheduler_and_a_controller_manager_can_be_watched_at_work() {
    let folder = tempfile::tempdir().unwrap();
    let (_server, kubeconfig) = apiserver(folder.path());
    let admin = Client::from_kubeconfig(Some(&kubeconfig), None).await.unwrap();
    let common = format!("--kubeconfig={}", kubeconfig.display());
    let start = |command: &str, more: &[&str]| {
        let [port] = free_ports();
        let port_flag = format!("--secure-port={port}");
        let flags = [&[command, &common, &port_flag, "--bind-address=127.0.0.1"], more].concat();
        (Process::start(&flags), port)
    };
    let (scheduler, scheduler_port) = start("scheduler", &["--v=2", "--logging_format=json"]);
    let (manager, manager_port) =
        start("controller-manager", &["--controllers=*,-disruption", "--concurrent-gc-syncs=3"]);

    create_deployment(&admin).await;
    watch_scheduler(&operator(&kubeconfig, scheduler_port).await).await;
    watch_manager(&operator(&kubeconfig, manager_port).await).await;
    watch_apiserver(&admin).await;

    assert_ne!(holder(&admin, "kube-scheduler").await, "");
    let manager_port_client = operator(&kubeconfig, manager_port).await;
    assert!(read(&manager_port_client, "/metrics/resources").await.is_err(), "the scheduler alone knows all pods");
    let (code, log) = scheduler.terminate();
    assert_eq!(code, Some(0), "{log}");
    assert_eq!(holder(&admin, "kube-scheduler").await, "", "the lease is given back");
    let first: Value = serde_json::from_str(log.lines().next().unwrap()).unwrap();
    assert_eq!(first["level"], "INFO", "{log}");
    assert_ne!(holder(&admin, "kube-controller-manager").await, "");
    let (code, log) = manager.terminate();
    assert_eq!(code, Some(0), "{log}");
    assert_eq!(log.lines().find(|line| !line.contains("  INFO ")), None, "nothing goes wrong");
    assert_ne!(holder(&admin, "kube-controller-manager").await, "", "as upstream's, it runs out");
}

/// A node, and three pods for it.
async fn create_deployment(admin: &Client) {
    let node = json!({
        "metadata": {"name": "n1"},
        "status": {
            "allocatable": {"cpu": "8", "memory": "8Gi", "pods": "10"},
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    });
    create(admin, ("", "nodes"), "", node).await;
    let resources = json!({"requests": {"cpu": "250m"}, "limits": {"cpu": "1"}});
    let container = json!({"name": "web", "image": "web", "resources": resources});
    let template = json!({
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [container], "automountServiceAccountToken": false},
    });
    let selector = json!({"matchLabels": {"app": "web"}});
    let spec = json!({"replicas": 3, "selector": selector, "template": template});
    // The default service account is made by one of the loops.
    eventually(admin, "/api/v1/namespaces/default/serviceaccounts/default", |_| true).await;
    create(admin, ("apps", "deployments"), "default", json!({"metadata": {"name": "web"}, "spec": spec})).await;
}

/// Reads what a scheduler shows after it has bound the three pods.
async fn watch_scheduler(operator: &Client) {
    let scheduled = r#"scheduler_schedule_attempts_total{profile="default-scheduler",result="scheduled"} 3"#;
    let metrics = eventually(operator, "/metrics", |text| text.lines().any(|line| line == scheduled)).await;
    for needle in [
        "\nscheduler_pod_scheduling_attempts_count 3\n",
        "\nscheduler_pending_pods{queue=\"active\"} 0\n",
        "\nscheduler_queue_incoming_pods_total{event=\"UnschedulablePodAdd\",queue=\"active\"} 3\n",
        "\nscheduler_cache_size{type=\"nodes\"} 1\n",
        "\nleader_election_master_status{name=\"kube-scheduler\"} 1\n",
        "\nrest_client_requests_total{code=\"201\",host=\"127.0.0.1:",
        "\nrest_client_request_duration_seconds_bucket{host=\"127.0.0.1:",
        "\nprocess_resident_memory_bytes ",
        "\nkubernetes_build_info{",
        "# TYPE scheduler_framework_extension_point_duration_seconds histogram\n",
    ] {
        assert!(metrics.contains(needle), "{needle:?} is missing in\n{metrics}");
    }
    for path in ["/healthz", "/livez", "/readyz"] {
        assert_eq!(read(operator, path).await.unwrap(), "ok");
    }
    let verbose = read(operator, "/readyz?verbose").await.unwrap();
    let expected = "[+]leaderElection ok\n[+]shutdown ok\n[+]sched-handler-sync ok\nreadyz check passed\n";
    assert_eq!(verbose, expected);
    let configz: Value = serde_json::from_str(&read(operator, "/configz").await.unwrap()).unwrap();
    assert_eq!(configz["componentconfig"]["leaderElection"]["resourceName"], "kube-scheduler");
    assert!(read(operator, "/metrics/slis").await.unwrap().contains("kubernetes_healthcheck{"));
    find_series("scheduler", &metrics);
    let resources = read(operator, "/metrics/resources").await.unwrap();
    let requests = resources.lines().filter(|line| line.starts_with("kube_pod_resource_request{namespace=\"default\""));
    let cpu = "priority=\"0\",resource=\"cpu\",scheduler=\"default-scheduler\",unit=\"cores\"} 0.25";
    assert_eq!(requests.filter(|line| line.contains("node=\"n1\"") && line.ends_with(cpu)).count(), 3, "{resources}");
    assert!(resources.contains("\nkube_pod_resource_limit{"), "{resources}");
    let status = read(operator, "/statusz").await.unwrap();
    assert!(status.starts_with("\nkube-scheduler statusz\n") && status.contains("\nUp  0 hr "), "{status}");
    let flags = read(operator, "/flagz").await.unwrap();
    assert!(flags.contains("\nv: 2\n") && flags.contains("\nlogging-format: json\n"), "{flags}");
}

/// Fails unless dashboards find the series that they ask of a component.
fn find_series(component: &str, metrics: &str) {
    let listed = include_str!("dashboards.txt").lines().filter_map(|line| line.strip_prefix(component));
    let (mut found, mut missing) = (0, Vec::new());
    for line in listed {
        let (name, reason) = line.trim().split_once(": ").map_or((line.trim(), None), |(name, why)| (name, Some(why)));
        let is_there =
            metrics.lines().any(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])));
        match (is_there, reason) {
            (true, None) => found += 1,
            (false, None) => missing.push(name.to_owned()),
            (true, Some(_)) => missing.push(format!("{name} is there: its reason for being absent is not true")),
            (false, Some(_)) => {}
        }
    }
    assert!(missing.is_empty() && found > 8, "{component}: {missing:?} of {found} in\n{metrics}");
}

/// Reads what the API server shows of the requests that the others have made.
async fn watch_apiserver(admin: &Client) {
    let metrics = read(admin, "/metrics").await.unwrap();
    find_series("apiserver", &metrics);
    let bindings = "{code=\"201\",component=\"apiserver\",dry_run=\"\",group=\"\",resource=\"pods\",\
                    scope=\"resource\",subresource=\"binding\",verb=\"POST\",version=\"v1\"} 3";
    assert!(metrics.contains(&format!("\napiserver_request_total{bindings}\n")), "{metrics}");
    assert!(metrics.contains("\napiserver_resource_objects{group=\"\",resource=\"pods\"} 3\n"), "{metrics}");
    assert!(read(admin, "/statusz").await.unwrap().starts_with("\napiserver statusz\n"));
    assert!(read(admin, "/flagz").await.unwrap().contains("\nport: 0\n"));
}

/// Reads what a controller manager shows after it has reconciled the Deployment.
async fn watch_manager(operator: &Client) {
    let reconciled =
        |text: &str| text.contains("\nworkqueue_work_duration_seconds_count{name=\"deployment-controller\"} ");
    let metrics = eventually(operator, "/metrics", reconciled).await;
    for needle in [
        "\nworkqueue_depth{name=\"replicaset-controller\"} ",
        "\nrunning_managed_controllers{manager=\"kube-controller-manager\",name=\"namespace-controller\"} 1\n",
        "\nleader_election_master_status{name=\"kube-controller-manager\"} 1\n",
    ] {
        assert!(metrics.contains(needle), "{needle:?} is missing in\n{metrics}");
    }
    assert!(!metrics.contains("disruption-controller"), "it was not asked for:\n{metrics}");
    let verbose = read(operator, "/healthz?verbose").await.unwrap();
    assert!(verbose.starts_with("[+]leaderElection ok\n[+]deployment-controller ok\n"), "{verbose}");
    let configz: Value = serde_json::from_str(&read(operator, "/configz").await.unwrap()).unwrap();
    find_series("controller-manager", &metrics);
    let gc = &configz["kubecontrollermanager.config.k8s.io"]["GarbageCollectorController"];
    assert_eq!(gc["ConcurrentGCSyncs"], 3);
}
