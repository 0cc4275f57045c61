//! Traces and the structured log, as an operator switches them on.

use super::collector::{CollectedSpan, Collector};
use super::*;

fn log_lines(log: &str) -> Vec<Value> {
    log.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_can_be_followed_from_the_scheduler_to_the_api_server() {
    let folder = tempfile::tempdir().unwrap();
    let mut collector = Collector::start().await;
    let config = folder.path().join("tracing.yaml");
    std::fs::write(&config, collector.configuration()).unwrap();
    let traced = format!("--tracing-config-file={}", config.display());
    let data = folder.path().join("data");
    let (server, kubeconfig) = apiserver_with(&data, &[&traced, "--logging-format=json", "--v=3"]);
    let admin = Client::from_kubeconfig(Some(&kubeconfig), None).await.unwrap();
    let common = format!("--kubeconfig={}", kubeconfig.display());
    let flags = [common.as_str(), &traced, "--logging-format=json", "--v=3", "--leader-elect=false"];
    let scheduler = Process::start(&[&["scheduler", "--secure-port=0"], flags.as_slice()].concat());
    let manager = Process::start(&[&["controller-manager", "--secure-port=0"], flags.as_slice()].concat());
    let second =
        json!({"metadata": {"name": "n2"}, "status": {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "9"}}});
    create(&admin, ("", "nodes"), "", second).await;
    create_deployment(&admin).await;

    let is_bound = |span: &CollectedSpan| {
        span.name == "Scheduling attempt" && span.attributes.get("scheduler.result").is_some_and(|r| r == "scheduled")
    };
    let attempt = collector.find("attempt", is_bound).await;
    assert_eq!((attempt.service.as_str(), attempt.parent.as_str()), ("kube-scheduler", ""));
    assert_eq!(attempt.attributes["k8s.namespace.name"], "default");
    assert!(attempt.attributes["k8s.node.name"].starts_with('n'), "{attempt:?}");
    for point in ["PreFilter", "Filter", "Score", "Reserve", "Permit", "Bind", "PostBind"] {
        let below = |span: &CollectedSpan| span.name == point && span.parent == attempt.id;
        let span = collector.find(point, below).await;
        assert!(attempt.times.0 <= span.times.0 && span.times.1 <= attempt.times.1, "{span:?} of {attempt:?}");
        assert_eq!(
            (span.trace.as_str(), span.attributes["scheduler.status"].as_str()),
            (attempt.trace.as_str(), "Success")
        );
        if point == "Bind" {
            // The scheduler is an administrator here, so the server's span is a part of its trace.
            let of_binding = |found: &CollectedSpan| found.parent == span.id && found.service == "apiserver";
            let request = collector.find("binding request", of_binding).await;
            assert_eq!(request.name, "POST /api/v1/namespaces/{:namespace}/pods/{:name}/binding");
            assert_eq!((request.kind, request.attributes["http.response.status_code"].as_str()), (2, "201"));
        }
    }
    let of_manager =
        |span: &CollectedSpan| span.name == "Reconcile" && span.attributes["controller"] == "replicaset-controller";
    assert_eq!(collector.find("reconcile", of_manager).await.service, "kube-controller-manager");

    for (process, message) in [(scheduler, "pod bound"), (manager, "running these controllers")] {
        let (code, log) = process.terminate();
        assert_eq!(code, Some(0), "{log}");
        let lines = log_lines(&log);
        let line = lines.iter().find(|line| line["msg"] == message).unwrap_or_else(|| panic!("{message} in {log}"));
        assert!(line["ts"].as_f64().unwrap() > 1e12 && line["caller"].is_string(), "{line}");
        if message == "pod bound" {
            assert!(line["pod"].as_str().unwrap().starts_with("default/web-"), "{line}");
            assert!(line["node"].is_string() && line["attempt"] == 1 && line["latency"].is_string(), "{line}");
        }
    }
    let (_, log) = server.terminate();
    let lines = log_lines(&log);
    let binding = lines.iter().find(|line| line["msg"] == "HTTP" && line["URI"].to_string().contains("/binding"));
    let binding = binding.unwrap_or_else(|| panic!("no binding in {log}"));
    assert_eq!((&binding["verb"], &binding["resp"]), (&json!("POST"), &json!(201)), "{binding}");
    assert!(binding["userAgent"].as_str().unwrap().starts_with("kube-scheduler/"), "{binding}");
    assert!(binding["latency"].is_string() && binding["audit-ID"].is_string(), "{binding}");
}

#[test]
fn a_tracing_configuration_that_cannot_be_used_ends_the_start_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tracing.yaml");
    let flag = format!("--tracing-config-file={}", path.display());
    for (text, why) in [
        (None, "No such file"),
        (Some("kind: TracingConfiguration"), "unable to decode"),
        (
            Some("apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nsamplingRatePerMillion: 2000000"),
            "less than or equal to one million",
        ),
    ] {
        if let Some(text) = text {
            std::fs::write(&path, text).unwrap();
        }
        let (code, log) = Process::start(&["apiserver", "--in-memory", "--port=0", &flag]).ended();
        assert_ne!(code, Some(0));
        assert!(log.contains("--tracing-config-file") && log.contains(why) && log.lines().count() == 1, "{log}");
    }
}
