use serde_json::{Value, json};

use super::*;
use crate::script::{Script, now, refused};

fn token(expiration: Option<&str>) -> Value {
    let data = expiration.map(|text| json!({"expiration": STANDARD.encode(text)}));
    json!({"metadata": {"namespace": "kube-system", "name": "t", "uid": "u"}, "data": data})
}

#[test]
fn a_token_is_deleted_when_it_has_expired() {
    let later = (now() + jiff::SignedDuration::from_secs(60)).to_string();
    let delete = |answer| vec![("DELETE kube-system/secrets/t", json!({"preconditions": {"uid": "u"}}), answer)];
    let cases = [
        ("for ever", token(None), 0, vec![], Ok(Requeue::OnChange)),
        ("later", token(Some(&later)), 20, vec![], Ok(Requeue::After(Duration::from_secs(40)))),
        ("now", token(Some(&later)), 60, delete(Ok(json!({}))), Ok(Requeue::OnChange)),
        ("unreadable", token(Some("soon")), 0, delete(Ok(json!({}))), Ok(Requeue::OnChange)),
        ("gone", token(Some(&later)), 61, delete(refused(404)), Ok(Requeue::OnChange)),
        ("refused", token(Some(&later)), 61, delete(refused(500)), Err(())),
    ];
    for (case, object, second, steps, outcome) in cases {
        let cache = Arc::new(Cache::default());
        let controller = TokenCleanerController::new(cache.clone());
        let change = cache.set(Kind::BootstrapToken, object.to_string().as_bytes()).unwrap();
        assert_eq!(controller.observe(&change), [Wakeup::now("kube-system/t")]);
        let done = Script::new(case, steps).play_at(second, &controller, "kube-system/t").map_err(drop);
        assert_eq!(done, outcome, "{case}");
    }
}

#[test]
fn a_secret_of_another_namespace_is_no_token() {
    let cache = Arc::new(Cache::default());
    let mut object = token(Some("soon"));
    object["metadata"]["namespace"] = json!("shop");
    let change = cache.set(Kind::BootstrapToken, object.to_string().as_bytes()).unwrap();
    assert_eq!(TokenCleanerController::new(cache).observe(&change), []);
}
