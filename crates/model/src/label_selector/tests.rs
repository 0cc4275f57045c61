use super::*;

#[test]
fn texts_become_canonical_selectors() {
    for (text, canonical) in [
        ("", ""),
        ("x", "x"),
        (" b = c ,a!=d", "a!=d,b=c"),
        ("x in (c,a,b,a)", "x in (a,b,c)"),
        ("x notin ()", "x notin ()"),
        ("x in (,a)", "x in (,a)"),
        ("x=,y==", "x=,y=="),
        ("in in (in),notin", "in in (in),notin"),
        ("n>1,n<5,!z", "n>1,n<5,!z"),
    ] {
        assert_eq!(Selector::parse(text).unwrap().to_string(), canonical, "{text}");
    }
}

#[test]
fn requirements_are_matched_by_key() {
    let labels: BTreeMap<&str, &str> = [("app", "web"), ("n", "7"), ("empty", "")].into();
    for (text, matches) in [
        ("", true),
        ("app=web,n>6", true),
        ("app in (web,db)", true),
        ("app!=web", false),
        ("gone!=web", true),
        ("gone notin (a)", true),
        ("gone", false),
        ("!gone", true),
        ("n<7", false),
        ("app>1", false),
        ("empty=", true),
        ("gone=", false),
    ] {
        let selector = Selector::parse(text).unwrap();
        assert_eq!(selector.matches(&labels), matches, "{text}");
        let pairs: Vec<(&str, &str)> = labels.iter().map(|(key, value)| (*key, *value)).collect();
        assert_eq!(selector.matches(&pairs[..]), matches, "{text}");
    }
}

#[test]
fn an_absent_selector_selects_nothing_and_an_empty_one_everything() {
    let none: BTreeMap<String, String> = BTreeMap::new();
    assert!(!Selector::of(None).unwrap().matches(&none));
    assert!(Selector::of(Some(&LabelSelector::default())).unwrap().matches(&none));
}

#[test]
fn objects_are_compiled_with_upstreams_errors() {
    let selector: LabelSelector = serde_json::from_str(
        r#"{"matchLabels": {"b": "1"}, "matchExpressions": [{"key": "a", "operator": "Exists", "values": null}]}"#,
    )
    .unwrap();
    assert_eq!(selector.selector().unwrap().to_string(), "a,b=1");

    let expression = |operator: &str, values: &[&str]| LabelSelector {
        match_expressions: vec![LabelSelectorRequirement {
            key: "k".into(),
            operator: operator.into(),
            values: values.iter().map(ToString::to_string).collect(),
        }],
        ..LabelSelector::default()
    };
    for (selector, error) in [
        (expression("Gt", &[]), r#""Gt" is not a valid label selector operator"#),
        (expression("In", &[]), "values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty"),
        (
            expression("Exists", &["x"]),
            r#"values: Invalid value: ["x"]: values set must be empty for exists and does not exist"#,
        ),
    ] {
        assert_eq!(selector.selector().unwrap_err().to_string(), error);
    }
}

#[test]
fn errors_of_many_values_are_bounded_however_long_the_key() {
    for (key, listed) in [("a".to_owned(), 100), ("!".repeat(100_000), 1)] {
        let values: Vec<String> = (0..1_000).map(|number| format!("-{number}")).collect();
        let error = Requirement::new(&key, Operator::In, values).unwrap_err();
        let errors = error.errors();
        assert_eq!(errors.len(), listed + 1);
        let more = if listed == 1 { 1_000 } else { 900 };
        assert_eq!(errors[listed], format!("values: Too many errors: {more} more are not listed"));
    }
}
