use serde_json::{Value, json};

use super::*;
use crate::script::{Script, now, refused};

fn job(ttl: i32) -> Value {
    let condition = json!({"type": "Complete", "status": "True", "lastTransitionTime": now()});
    json!({
        "metadata": {"name": "x", "namespace": "ns", "uid": "j"},
        "spec": {"ttlSecondsAfterFinished": ttl},
        "status": {"conditions": [condition]},
    })
}

#[test]
fn a_finished_job_is_deleted_when_its_time_is_up_by_the_latest_word() {
    let cache = Arc::new(Cache::default());
    let change = cache.set(Kind::Job, job(10).to_string().as_bytes()).unwrap();
    let controller = TtlAfterFinishedController::new(cache);
    assert_eq!(controller.observe(&change), [Wakeup::now("ns/x")]);
    let play = |second, steps: Vec<_>| Script::new("ttl", steps).play_at(second, &controller, "ns/x").unwrap();
    assert_eq!(play(4, vec![]), Requeue::After(Duration::from_secs(6)));
    let read = |answer| ("GET ns/jobs/x", Value::Null, answer);
    assert_eq!(play(10, vec![read(Ok(job(15)))]), Requeue::After(Duration::from_secs(5)));
    assert_eq!(play(10, vec![read(refused(404))]), Requeue::OnChange);
    let options = json!({"propagationPolicy": "Foreground", "preconditions": {"uid": "j"}});
    assert_eq!(play(10, vec![read(Ok(job(10))), ("DELETE ns/jobs/x", options, Ok(json!({})))]), Requeue::OnChange);
}
