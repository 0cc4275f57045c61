use super::*;
use crate::script::{Script, Step, refused};

fn account(uid: &str) -> Value {
    json!({"metadata": {"name": "bot", "namespace": "ns", "uid": uid}, "secrets": [{"name": "t"}, {"name": "other"}]})
}

fn secret(annotations: Value, data: Value) -> Value {
    let metadata =
        json!({"name": "t", "namespace": "ns", "uid": "s", "resourceVersion": "7", "annotations": annotations});
    json!({"metadata": metadata, "type": TOKEN_SECRET, "data": data})
}

fn controller(cache: &Arc<Cache>) -> ServiceAccountTokenController {
    let signer = TokenSigner::new(|claims| Ok(format!("signed for {}", claims["sub"].as_str().unwrap_or_default())));
    ServiceAccountTokenController::new(cache.clone(), signer, Some("CA"))
}

fn play(controller: &ServiceAccountTokenController, change: &AnyDelta, steps: Vec<Step>) {
    let wakeups = controller.observe(change);
    let [wakeup] = &wakeups[..] else { panic!("one key: {wakeups:?}") };
    assert_eq!(Script::new("tokens", steps).play(controller, &wakeup.key).unwrap(), Requeue::OnChange);
}

#[test]
fn a_secret_is_filled_for_its_account_and_left_alone_when_it_is_full() {
    let cache = Arc::new(Cache::default());
    cache.set(Kind::ServiceAccount, account("a").to_string().as_bytes()).unwrap();
    let controller = controller(&cache);
    let named = json!({ACCOUNT_NAME: "bot"});
    let empty = secret(named.clone(), json!({"extra": "eQ=="}));
    let change = cache.set(Kind::TokenSecret, empty.to_string().as_bytes()).unwrap();
    let base64 = |text: &str| STANDARD.encode(text);
    let data = json!({
        "extra": "eQ==", CA: base64("CA"), NAMESPACE: base64("ns"),
        TOKEN: base64("signed for system:serviceaccount:ns:bot"),
    });
    let full = secret(json!({ACCOUNT_NAME: "bot", ACCOUNT_UID: "a"}), data);
    let get = |answer: &Value| ("GET ns/secrets/t", Value::Null, Ok(answer.clone()));
    play(&controller, &change, vec![get(&empty), ("PUT ns/secrets/t", full.clone(), Ok(full.clone()))]);
    let mut newer = empty.clone();
    newer["metadata"]["resourceVersion"] = json!("8");
    play(&controller, &change, vec![get(&newer)]);
    let change = cache.set(Kind::TokenSecret, full.to_string().as_bytes()).unwrap();
    play(&controller, &change, vec![]);
}

#[test]
fn a_secret_goes_with_its_account_and_leaves_the_accounts_list() {
    let cache = Arc::new(Cache::default());
    let controller = controller(&cache);
    let options = json!({"preconditions": {"uid": "s"}});
    let nobodys = secret(json!({ACCOUNT_NAME: "bot"}), json!({}));
    let change = cache.set(Kind::TokenSecret, nobodys.to_string().as_bytes()).unwrap();
    let missing = ("GET ns/serviceaccounts/bot", Value::Null, refused(404));
    play(&controller, &change, vec![missing, ("DELETE ns/secrets/t", options.clone(), Ok(json!({})))]);

    cache.set(Kind::ServiceAccount, account("a").to_string().as_bytes()).unwrap();
    let gone = cache.remove(Kind::ServiceAccount, "ns", "bot", "").unwrap();
    play(&controller, &gone, vec![("DELETE ns/secrets/t", options, Ok(json!({})))]);

    cache.set(Kind::ServiceAccount, account("a").to_string().as_bytes()).unwrap();
    let gone = cache.remove(Kind::TokenSecret, "ns", "t", "").unwrap();
    let mut without = account("a");
    without["secrets"] = json!([{"name": "other"}]);
    let get = ("GET ns/serviceaccounts/bot", Value::Null, Ok(account("a")));
    play(&controller, &gone, vec![get, ("PUT ns/serviceaccounts/bot", without.clone(), Ok(without))]);
}
