use super::*;

fn kind(group: &str, version: &str, kind: &str) -> &'static Definition {
    Schema::get().definition(group, version, kind).unwrap()
}

fn field(name: &str, field: &str) -> &'static Field {
    Schema::get().named(name).unwrap().field(field).unwrap()
}

#[test]
fn kinds_lead_to_their_definitions() {
    assert_eq!(kind("", "v1", "Pod").name, "io.k8s.api.core.v1.Pod");
    assert_eq!(kind("apps", "v1", "Deployment").short_name(), "Deployment");
    assert_eq!(kind("apps", "v1", "DeleteOptions").name, "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions");
    assert!(Schema::get().definition("", "v1", "pod").is_none());
    assert!(Schema::get().definition("apps", "v2", "Deployment").is_none());
}

#[test]
fn fields_carry_their_type_and_strategies() {
    const POD_SPEC: &str = "io.k8s.api.core.v1.PodSpec";
    let containers = field(POD_SPEC, "containers");
    assert!(containers.required);
    assert_eq!(containers.patch_strategy, PatchStrategy::Merge);
    assert_eq!(containers.patch_merge_key, Some("name"));
    assert_eq!((containers.list_type, &*containers.list_map_keys), (Some(ListType::Map), &["name"][..]));
    assert_eq!(containers.ty.element().and_then(Type::object).unwrap().name, "io.k8s.api.core.v1.Container");

    let volumes = field(POD_SPEC, "volumes");
    assert_eq!(volumes.patch_strategy, PatchStrategy::MergeRetainKeys);
    assert!(volumes.patch_strategy.merges() && volumes.patch_strategy.retains_keys());

    let selector = field(POD_SPEC, "nodeSelector");
    assert_eq!(
        (&selector.ty, selector.map_type),
        (&Type::Map(Box::new(Type::String("string")), ""), Some(MapType::Atomic))
    );
    assert_eq!(field(POD_SPEC, "tolerations").patch_strategy, PatchStrategy::Default);
    assert_eq!(field(POD_SPEC, "priority").ty, Type::Int32);
    assert!(field(POD_SPEC, "dnsPolicy").values.contains(&"ClusterFirst"));
    assert_eq!(field(POD_SPEC, "dnsPolicy").ty, Type::String("v1.DNSPolicy"));
    assert_eq!(field("io.k8s.api.apps.v1.DeploymentSpec", "strategy").patch_strategy, PatchStrategy::RetainKeys);
    assert_eq!(
        field("io.k8s.api.policy.v1.PodDisruptionBudgetSpec", "selector").patch_strategy,
        PatchStrategy::Replace
    );
}

#[test]
fn named_scalars_are_told_apart_from_structs() {
    let requests = field("io.k8s.api.core.v1.ResourceRequirements", "requests");
    assert_eq!(requests.ty, Type::Map(Box::new(Type::Quantity), "v1.ResourceList"));
    const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
    assert_eq!(field(META, "creationTimestamp").ty, Type::Time);
    assert_eq!(field("io.k8s.api.coordination.v1.LeaseSpec", "renewTime").ty, Type::MicroTime);
    assert_eq!(field("io.k8s.api.core.v1.ServicePort", "targetPort").ty, Type::IntOrString);
    assert_eq!(field("io.k8s.api.core.v1.Secret", "data").ty, Type::Map(Box::new(Type::Bytes), ""));
    assert_eq!(field("io.k8s.api.apps.v1.ControllerRevision", "data").ty, Type::Raw);
    assert_eq!(field("io.k8s.apimachinery.pkg.apis.meta.v1.ManagedFieldsEntry", "fieldsV1").ty, Type::Fields);
}

#[test]
fn every_definition_is_reachable_by_its_name_and_every_field_by_its_own() {
    let schema = Schema::get();
    for definition in schema.definitions() {
        assert_eq!(schema.named(definition.name).unwrap().id, definition.id);
        for field in &definition.fields {
            assert!(definition.field(field.name).is_some(), "{}.{}", definition.name, field.name);
        }
    }
}

#[test]
fn messages_that_json_inlines_keep_their_own_numbers() {
    let volume = Schema::get().named("io.k8s.api.core.v1.Volume").unwrap();
    assert_eq!(volume.go_name(), "v1.Volume");
    let Some(WireField::Field(name)) = volume.wire_field(1) else { panic!("the name is field 1") };
    assert_eq!(volume.fields[name].name, "name");
    let Some(WireField::Inlined(source)) = volume.wire_field(2) else { panic!("the source is inlined") };
    let source = Schema::get().at(source);
    let Some(WireField::Field(secret)) = source.wire_field(6) else { panic!("the secret is field 6") };
    assert_eq!(source.fields[secret].name, "secret");
    assert!(volume.field("secret").is_some_and(|field| field.optional));
}

#[test]
fn only_some_kinds_are_decoded() {
    let schema = Schema::get();
    assert!(schema.decoded("", "v1", "Pod").is_some());
    assert!(schema.definition("", "v1", "PodList").is_some() && schema.decoded("", "v1", "PodList").is_none());
}
