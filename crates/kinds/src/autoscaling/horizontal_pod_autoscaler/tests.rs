use jiff::Timestamp;
use serde_json::{Value, json};

use super::{V1, V2};

fn v2() -> Value {
    json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "x", "namespace": "ns"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "x"},
            "minReplicas": 1, "maxReplicas": 4,
            "metrics": [
                {"type": "Object", "object": {
                    "describedObject": {"kind": "Ingress", "name": "a<b", "apiVersion": "networking.k8s.io/v1"},
                    "metric": {"name": "hits", "selector": {"matchLabels": {"verb": "GET"}}},
                    "target": {"type": "AverageValue", "averageValue": "2500m"},
                }},
                {"type": "Resource", "resource": {
                    "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 57},
                }},
            ],
            "behavior": {
                "scaleUp": {"stabilizationWindowSeconds": 0, "selectPolicy": "Max", "tolerance": "50m",
                    "policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}]},
                "scaleDown": {"selectPolicy": "Min",
                    "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]},
            },
        },
        "status": {
            "currentReplicas": 2, "desiredReplicas": 3,
            "conditions": [{"type": "ScalingActive", "status": "True", "lastTransitionTime": null, "reason": "R"}],
            "currentMetrics": [{"type": "Resource", "resource": {
                "name": "cpu", "current": {"averageUtilization": 81, "averageValue": "150m"},
            }}],
        },
    })
}

#[test]
fn the_first_version_keeps_everything_and_gives_it_back() {
    let mut object = v2();
    V1.convert_from_storage(&mut object);
    assert_eq!(object["spec"]["targetCPUUtilizationPercentage"], 57);
    assert_eq!(object["status"]["currentCPUUtilizationPercentage"], 81);
    let annotation =
        |name: &str| object["metadata"]["annotations"][format!("autoscaling.alpha.kubernetes.io/{name}")].clone();
    assert_eq!(
        annotation("metrics"),
        r#"[{"type":"Object","object":{"target":{"kind":"Ingress","name":"a\u003cb","#.to_owned()
            + r#""apiVersion":"networking.k8s.io/v1"},"metricName":"hits","targetValue":"0","#
            + r#""selector":{"matchLabels":{"verb":"GET"}},"averageValue":"2500m"}}]"#
    );
    assert_eq!(
        annotation("behavior"),
        r#"{"ScaleUp":{"StabilizationWindowSeconds":0,"SelectPolicy":"Max","Policies":[{"Type":"Pods","Value":4,"#
            .to_owned()
            + r#""PeriodSeconds":15}],"Tolerance":"50m"},"ScaleDown":{"StabilizationWindowSeconds":null,"#
            + r#""SelectPolicy":"Min","Policies":[{"Type":"Percent","Value":100,"PeriodSeconds":15}],"#
            + r#""Tolerance":null}}"#
    );
    V1.convert_to_storage(&mut object);
    let mut expected = v2();
    // The first version sorts the metric that it has a field for behind the others.
    expected["spec"]["metrics"] = json!([v2()["spec"]["metrics"][0], v2()["spec"]["metrics"][1]]);
    assert_eq!(object, expected);
}

#[test]
fn annotations_of_the_status_do_not_change_with_the_spec_nor_the_other_way_round() {
    let mut old = v2();
    V1.convert_from_storage(&mut old);
    let mut new = old.clone();
    let name = |which: &str| format!("autoscaling.alpha.kubernetes.io/{which}");
    new["metadata"]["annotations"] = json!({name("metrics"): "[]", name("conditions"): "[]", "mine": "1"});
    let (mut spec, mut status) = (new.clone(), new);
    V1.prepare_for_update(&mut spec, &old, "", Timestamp::UNIX_EPOCH);
    V1.prepare_for_update(&mut status, &old, "status", Timestamp::UNIX_EPOCH);
    let annotations = |object: &Value| object["metadata"]["annotations"].as_object().unwrap().clone();
    let (spec, status, old) = (annotations(&spec), annotations(&status), annotations(&old));
    assert_eq!((&spec[&name("metrics")], &spec[&name("conditions")]), (&json!("[]"), &old[&name("conditions")]));
    assert_eq!((&status[&name("metrics")], &status[&name("conditions")]), (&old[&name("metrics")], &json!("[]")));
    assert!(!spec.contains_key(&name("behavior")) && status.contains_key(&name("behavior")));
    assert_eq!((&spec["mine"], &status["mine"]), (&json!("1"), &json!("1")));
}

#[test]
fn rows_show_two_metrics_and_count_the_rest() {
    let mut object = v2();
    let row = |object: &Value| V2.row(object, Timestamp::UNIX_EPOCH).cells;
    assert_eq!(
        row(&object)[1..6],
        [json!("Deployment/x"), json!("<unknown>/2500m (avg), cpu: <unknown>/57%"), json!("1"), json!(4), json!(2)]
    );
    let cpu = object["spec"]["metrics"][1].clone();
    object["spec"]["metrics"] = json!([cpu, {"type": "Pods", "pods": {"target": {"averageValue": "5"}}}, cpu]);
    assert_eq!(row(&object)[2], "cpu: 81%/57%, <unknown>/5 + 1 more...");
    V1.convert_from_storage(&mut object);
    assert_eq!(V1.row(&object, Timestamp::UNIX_EPOCH).cells[2], "<unknown>/5, cpu: <unknown>/57%");
}
