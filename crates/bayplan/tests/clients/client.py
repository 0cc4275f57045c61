"""What programs in Python do with a cluster, through the client of the Kubernetes project. Fails at the first thing
that is not as they expect it; says each step that went well."""

import asyncio
import queue
import re
import threading
import time

import yaml
from kubernetes import client, config, dynamic, stream, utils, watch
from kubernetes.aio import client as aio_client
from kubernetes.aio import config as aio_config
from kubernetes.client.rest import ApiException
from kubernetes.dynamic.resource import ResourceList
from kubernetes.informer.informer import SharedInformer
from kubernetes.leaderelection import electionconfig, leaderelection
from kubernetes.leaderelection.resourcelock.configmaplock import ConfigMapLock

NAMESPACE = "python"
PATIENCE = 60
APPLY = "application/apply-patch+yaml"

config.load_kube_config()
api = client.ApiClient()
core, apps, batch = client.CoreV1Api(), client.AppsV1Api(), client.BatchV1Api()


def said(step):
    print(f"python: {step}", flush=True)


def eventually(what, look):
    """Looks again and again until there is something to see."""
    deadline = time.monotonic() + PATIENCE
    while True:
        seen = look()
        if seen:
            return seen
        assert time.monotonic() < deadline, f"in vain: {what}"
        time.sleep(0.1)


def refused(code, call, *arguments, **options):
    """The Status of a request that must be refused."""
    try:
        answer = call(*arguments, **options)
    except ApiException as error:
        assert error.status == code, error
        return yaml.safe_load(error.body)
    raise AssertionError(f"{code} was expected, not {answer}")


def deployment(name, replicas):
    return yaml.safe_load(f"""
        apiVersion: apps/v1
        kind: Deployment
        metadata: {{name: {name}, labels: {{app: {name}}}}}
        spec:
          replicas: {replicas}
          selector: {{matchLabels: {{app: {name}}}}}
          template:
            metadata: {{labels: {{app: {name}}}}}
            spec:
              containers:
              - {{name: main, image: nginx, resources: {{requests: {{cpu: 100m, memory: 64Mi}}}}}}
    """)


def about_the_server():
    assert client.VersionApi().get_code().minor.startswith("36")
    groups = {group.name for group in client.ApisApi().get_api_versions().groups}
    assert {"apps", "batch", "events.k8s.io", "metrics.k8s.io"} <= groups, groups
    assert {"pods", "pods/eviction"} <= {each.name for each in core.get_api_resources().resources}
    review = {"spec": {"resourceAttributes": {"verb": "create", "resource": "pods", "namespace": NAMESPACE}}}
    assert client.AuthorizationV1Api().create_self_subject_access_review(review).status.allowed
    assert client.AuthenticationV1Api().create_self_subject_review({}).status.user_info.username == "kubernetes-admin"
    said("asked what the server is")


def created_listed_and_deleted():
    core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=NAMESPACE)))
    for number in range(5):
        metadata = client.V1ObjectMeta(name=f"c-{number}", labels={"even": str(number % 2 == 0).lower()})
        body = client.V1ConfigMap(metadata=metadata, data={"n": str(number)}, binary_data={"b": "AAH/"})
        made = core.create_namespaced_config_map(NAMESPACE, body)
        assert made.metadata.uid and made.metadata.managed_fields[0].operation == "Update"
    status = refused(409, core.create_namespaced_config_map, NAMESPACE, body)
    assert status["reason"] == "AlreadyExists" and status["details"] == {"name": "c-4", "kind": "configmaps"}, status
    even = core.list_namespaced_config_map(NAMESPACE, label_selector="even=true")
    assert [each.metadata.name for each in even.items] == ["c-0", "c-2", "c-4"]
    one = core.list_namespaced_config_map(NAMESPACE, field_selector="metadata.name=c-1").items
    assert [each.metadata.name for each in one] == ["c-1"]
    names, following = [], None
    while following != "":
        page = core.list_namespaced_config_map(NAMESPACE, limit=2, _continue=following)
        names += [each.metadata.name for each in page.items if each.metadata.name.startswith("c-")]
        following = page.metadata._continue or ""
    assert names == [f"c-{number}" for number in range(5)], names
    found = core.read_namespaced_config_map("c-0", NAMESPACE)
    found.data["n"] = "new"
    stale = core.replace_namespaced_config_map("c-0", NAMESPACE, found)
    assert stale.data == {"n": "new"} and stale.binary_data == {"b": "AAH/"}
    assert refused(409, core.replace_namespaced_config_map, "c-0", NAMESPACE, found)["reason"] == "Conflict"
    assert core.delete_namespaced_config_map("c-0", NAMESPACE).status == "Success"
    assert refused(404, core.read_namespaced_config_map, "c-0", NAMESPACE)["details"]["name"] == "c-0"
    core.delete_collection_namespaced_config_map(NAMESPACE, label_selector="even")
    left = [each.metadata.name for each in core.list_namespaced_config_map(NAMESPACE, label_selector="even").items]
    assert left == [], left
    said("created, listed in pages, replaced and deleted")


def patched():
    apps.create_namespaced_deployment(NAMESPACE, deployment("patched", 1))
    patch = apps.patch_namespaced_deployment
    containers = [{"name": "side", "image": "busybox"}]
    made = patch("patched", NAMESPACE, {"spec": {"template": {"spec": {"containers": containers}}}})
    assert [each.name for each in made.spec.template.spec.containers] == ["side", "main"], "merged by name"
    made = patch("patched", NAMESPACE, [{"op": "add", "path": "/metadata/labels/tier", "value": "db"}])
    assert made.metadata.labels["tier"] == "db", "a list is a JSON patch"
    made = patch("patched", NAMESPACE, {"metadata": {"labels": {"tier": None}}},
                 _content_type="application/merge-patch+json")
    assert "tier" not in made.metadata.labels
    status = refused(422, patch, "patched", NAMESPACE, {"spec": {"replicas": -1}})
    assert status["details"]["causes"][0]["field"] == "spec.replicas", status
    made = patch("patched", NAMESPACE, {"spec": {"replicas": 3}}, dry_run="All")
    assert made.spec.replicas == 3 and apps.read_namespaced_deployment("patched", NAMESPACE).spec.replicas == 1
    said("patched in three ways")


def applied():
    apply = apps.patch_namespaced_deployment
    options = {"_content_type": APPLY, "field_manager": "python"}
    made = apply("applied", NAMESPACE, deployment("applied", 2), **options)
    assert made.metadata.managed_fields[0].operation == "Apply"
    apps.patch_namespaced_deployment_scale("applied", NAMESPACE, {"spec": {"replicas": 3}}, field_manager="other")
    status = refused(409, apply, "applied", NAMESPACE, deployment("applied", 1), **options)
    cause = status["details"]["causes"][0]
    assert (cause["reason"], cause["field"]) == ("FieldManagerConflict", ".spec.replicas"), status
    assert '"other"' in cause["message"], cause
    assert apply("applied", NAMESPACE, deployment("applied", 1), force=True, **options).spec.replicas == 1
    given_up = deployment("applied", 1)
    del given_up["metadata"]["labels"]
    assert apply("applied", NAMESPACE, given_up, **options).metadata.labels is None
    said("applied by the server, with a conflict")


def scaled_and_awaited():
    events = queue.Queue()
    begin = apps.list_namespaced_deployment(NAMESPACE).metadata.resource_version

    def follow():
        follower = watch.Watch()
        for event in follower.stream(apps.list_namespaced_deployment, NAMESPACE, resource_version=begin,
                                     field_selector="metadata.name=watched", timeout_seconds=PATIENCE):
            events.put((event["type"], event["object"].status.ready_replicas))
            if event["type"] == "DELETED":
                follower.stop()

    follower = threading.Thread(target=follow)
    follower.start()
    apps.create_namespaced_deployment(NAMESPACE, deployment("watched", 1))
    eventually("one is ready", lambda: apps.read_namespaced_deployment("watched", NAMESPACE).status.ready_replicas)
    scale = apps.read_namespaced_deployment_scale("watched", NAMESPACE)
    assert (scale.spec.replicas, scale.status.selector) == (1, "app=watched")
    scale.spec.replicas = 3
    apps.replace_namespaced_deployment_scale("watched", NAMESPACE, scale)
    ready = lambda: apps.read_namespaced_deployment_status("watched", NAMESPACE).status.ready_replicas == 3
    eventually("three are ready", ready)
    apps.delete_namespaced_deployment("watched", NAMESPACE, propagation_policy="Foreground")
    follower.join(PATIENCE)
    seen = list(events.queue)
    assert seen[0] == ("ADDED", None) and seen[-1][0] == "DELETED" and ("MODIFIED", 3) in seen, seen
    pods = lambda: core.list_namespaced_pod(NAMESPACE, label_selector="app=watched").items
    assert pods() == [], "they went before their owner"
    said("watched a Deployment from its beginning to its end")


def watch_of_the_past():
    try:
        list(watch.Watch().stream(core.list_namespaced_config_map, NAMESPACE, resource_version="1", timeout_seconds=1))
    except ApiException as error:
        assert error.status == 410, error
    begin = core.list_namespaced_config_map(NAMESPACE).metadata.resource_version
    seen = list(watch.Watch().stream(core.list_namespaced_config_map, NAMESPACE, timeout_seconds=1,
                                     resource_version=begin, allow_watch_bookmarks=True))
    assert [event["type"] for event in seen] in ([], ["BOOKMARK"]), seen
    first = list(watch.Watch().stream(core.list_namespaced_config_map, NAMESPACE, timeout_seconds=1,
                                      send_initial_events=True, allow_watch_bookmarks=True,
                                      resource_version_match="NotOlderThan"))
    assert [event["type"] for event in first][-1] == "BOOKMARK", first
    said("watched with bookmarks, and from too long ago")


def pods_and_their_logs():
    annotations = {"bayplan.dev/logs": "hello\nworld"}
    body = {"metadata": {"name": "said", "annotations": annotations},
            "spec": {"containers": [{"name": "main", "image": "busybox"}]}}
    core.create_namespaced_pod(NAMESPACE, body)
    running = lambda: core.read_namespaced_pod_status("said", NAMESPACE).status.phase == "Running"
    eventually("the pod runs", running)

    def log(name, namespace, **options):
        # As bytes: the client's own text is `b'hello'`, quotes and all.
        return core.read_namespaced_pod_log(name, namespace, _preload_content=False, **options).data.decode()

    assert "hello\nworld\n" in eventually("it says something", lambda: log("said", NAMESPACE))
    assert log("said", NAMESPACE, tail_lines=1) == "world\n"
    assert re.match(r"20\d\d-.*Z world\n$", log("said", NAMESPACE, tail_lines=1, timestamps=True))
    for line in watch.Watch().stream(core.read_namespaced_pod_log, "said", NAMESPACE, follow=True):
        if line == "world":
            break
    status = refused(400, log, "said", NAMESPACE, previous=True)
    assert status["message"] == 'previous terminated container "main" in pod "said" not found', status
    session = stream.stream(core.connect_get_namespaced_pod_exec, "said", NAMESPACE, command=["ls"], stdout=True,
                            stderr=True, _preload_content=False)
    session.run_forever(timeout=PATIENCE)
    assert "simulated" in session.read_channel(stream.ws_client.ERROR_CHANNEL)
    eviction = {"metadata": {"name": "said", "namespace": NAMESPACE}, "deleteOptions": {"gracePeriodSeconds": 0}}
    core.create_namespaced_pod_eviction("said", NAMESPACE, eviction)
    gone = lambda: not core.list_namespaced_pod(NAMESPACE, field_selector="metadata.name=said").items
    eventually("it is gone", gone)
    events = core.list_namespaced_event(NAMESPACE, field_selector="involvedObject.name=said").items
    assert {"Scheduled", "Started"} <= {event.reason for event in events}, events
    said("read the logs of a pod, and evicted it")


def a_job_to_its_end():
    body = {"metadata": {"generateName": "once-"}, "spec": {"completions": 2, "parallelism": 2, "template": {"spec": {
        "restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}}}}
    name = batch.create_namespaced_job(NAMESPACE, body).metadata.name
    for event in watch.Watch().stream(batch.list_namespaced_job, NAMESPACE, field_selector=f"metadata.name={name}",
                                      timeout_seconds=PATIENCE):
        conditions = event["object"].status.conditions or []
        if any(each.type == "Complete" and each.status == "True" for each in conditions):
            break
    job = batch.read_namespaced_job_status(name, NAMESPACE)
    assert job.status.succeeded == 2 and job.status.completion_time > job.status.start_time
    batch.delete_namespaced_job(name, NAMESPACE, propagation_policy="Background")
    said("waited for a Job")


def what_everything_uses():
    usage = client.CustomObjectsApi()
    nodes = usage.list_cluster_custom_object("metrics.k8s.io", "v1beta1", "nodes")["items"]
    assert len(nodes) == len(core.list_node().items), nodes
    assert utils.parse_quantity(nodes[0]["usage"]["memory"]) >= 0
    said("read what nodes use")


def rights():
    rbac = client.RbacAuthorizationV1Api()
    core.create_namespaced_service_account(NAMESPACE, {"metadata": {"name": "robot"}})
    token = core.create_namespaced_service_account_token("robot", NAMESPACE, {"spec": {"expirationSeconds": 600}})
    its = client.Configuration.get_default_copy()
    its.cert_file = its.key_file = None
    its.api_key = {"authorization": f"Bearer {token.status.token}"}
    robot = client.CoreV1Api(client.ApiClient(its))
    status = refused(403, robot.list_namespaced_pod, NAMESPACE)
    assert f'User "system:serviceaccount:{NAMESPACE}:robot" cannot list resource "pods"' in status["message"], status
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]
    rbac.create_namespaced_role(NAMESPACE, {"metadata": {"name": "lists"}, "rules": rules})
    rbac.create_namespaced_role_binding(NAMESPACE, {
        "metadata": {"name": "lists"}, "subjects": [{"kind": "ServiceAccount", "name": "robot"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "lists"}})
    assert robot.list_namespaced_pod(NAMESPACE).items is not None
    its.api_key = {"authorization": "Bearer none"}
    nobody = client.CoreV1Api(client.ApiClient(its))
    assert refused(401, nobody.list_namespaced_pod, NAMESPACE)["reason"] == "Unauthorized"
    said("acted as a service account")


def files_of_manifests():
    path = "manifest.yaml"
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "filed"},
               "spec": {"selector": {"app": "filed"}, "ports": [{"port": 80}]}}
    with open(path, "w", encoding="utf8") as file:
        yaml.safe_dump_all([service, deployment("filed", 1)], file)
    utils.create_from_yaml(api, path, namespace=NAMESPACE)
    assert core.read_namespaced_service("filed", NAMESPACE).spec.cluster_ip.startswith("10.")
    slices = client.DiscoveryV1Api().list_namespaced_endpoint_slice
    addresses = lambda: [end for each in slices(NAMESPACE, label_selector="kubernetes.io/service-name=filed").items
                         for end in each.endpoints or []]
    eventually("the Service has an endpoint", addresses)
    said("created what a file holds")


def any_kind():
    kinds = dynamic.DynamicClient(api)
    maps = kinds.resources.get(api_version="v1", kind="ConfigMap")
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "any"}, "data": {"a": "1"}}
    assert kinds.server_side_apply(maps, body, "any", NAMESPACE, field_manager="python").data.a == "1"
    assert maps.patch(name="any", namespace=NAMESPACE, body={"data": {"b": "2"}},
                      content_type="application/merge-patch+json").data.to_dict() == {"a": "1", "b": "2"}
    listed = 0
    for resource in kinds.resources.search():
        if not isinstance(resource, ResourceList) and "list" in resource.verbs:
            listed += resource.get().kind.endswith("List")
    assert listed > 50, listed
    maps.delete(name="any", namespace=NAMESPACE)
    said("listed every kind that discovery names")


def every_typed_list():
    """Every list that the client has a method for: what comes back must have what its types require."""
    read, absent = 0, set()
    for of_group in [getattr(client, name) for name in dir(client) if re.match(r"\w+V\d\w*Api$", name)]:
        if of_group is client.EventsV1Api:
            continue  # It takes none of the events that kubelets and controllers write, which have no `eventTime`.
        group = of_group()
        for method in dir(group):
            if re.match(r"list_(?!namespaced|cluster_custom|custom)\w+$", method) and not method.endswith("_http_info"):
                try:
                    getattr(group, method)()
                    read += 1
                except ApiException as error:
                    assert error.status == 404, f"{method}: {error}"
                    absent.add(f"{of_group.__name__}.{method}")
    assert read > 50, read
    assert not absent & {"list_node", "list_pod_for_all_namespaces", "list_deployment_for_all_namespaces"}, absent
    said("read every list by its type")


def leader():
    """An election on a ConfigMap, as operators in Python hold it."""
    leads = threading.Event()
    lock = ConfigMapLock("election", NAMESPACE, "python-1")
    election = electionconfig.Config(lock, lease_duration=5, renew_deadline=4, retry_period=1,
                                     onstarted_leading=leads.set, onstopped_leading=None)
    threading.Thread(target=leaderelection.LeaderElection(election).run, daemon=True).start()
    assert leads.wait(PATIENCE)
    record = core.read_namespaced_config_map("election", NAMESPACE).metadata.annotations
    assert '"python-1"' in record["control-plane.alpha.kubernetes.io/leader"], record
    said("was elected")


def informed():
    """A cache that follows the cluster."""
    changes = queue.Queue()
    informer = SharedInformer(core.list_namespaced_config_map, namespace=NAMESPACE, label_selector="informed")
    for kind in ["ADDED", "MODIFIED", "DELETED", "ERROR"]:
        informer.add_event_handler(kind, lambda what, kind=kind: changes.put(kind))
    informer.start()
    body = {"metadata": {"name": "informed", "labels": {"informed": "yes"}}}
    core.create_namespaced_config_map(NAMESPACE, body)
    assert changes.get(timeout=PATIENCE) == "ADDED"
    core.patch_namespaced_config_map("informed", NAMESPACE, {"data": {"a": "b"}})
    assert changes.get(timeout=PATIENCE) == "MODIFIED"
    assert [each.data for each in informer.cache.list()] == [{"a": "b"}]
    core.delete_namespaced_config_map("informed", NAMESPACE)
    assert changes.get(timeout=PATIENCE) == "DELETED"
    informer.stop()
    said("followed with an informer")


async def asynchronous():
    await aio_config.load_kube_config()
    async with aio_client.ApiClient() as there:
        core = aio_client.CoreV1Api(there)
        nodes = (await core.list_node()).items
        assert len(nodes) == 4
        made = await core.patch_node(nodes[0].metadata.name, {"metadata": {"labels": {"python": "yes"}}})
        assert made.metadata.labels["python"] == "yes"
    said("asked without waiting")


def end():
    core.delete_namespace(NAMESPACE)

    def gone():
        return NAMESPACE not in [each.metadata.name for each in core.list_namespace().items]

    eventually("the namespace is gone", gone)
    said("left nothing")


for step in [about_the_server, created_listed_and_deleted, patched, applied, scaled_and_awaited, watch_of_the_past,
             pods_and_their_logs, a_job_to_its_end, what_everything_uses, rights, files_of_manifests, any_kind,
             every_typed_list, leader, informed]:
    step()
asyncio.run(asynchronous())
end()
