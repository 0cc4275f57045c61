// What programs in JavaScript do with a cluster, through the client of the Kubernetes project. Fails at the first thing
// that is not as they expect it; says each step that went well.

import assert from 'node:assert/strict';
import { PassThrough } from 'node:stream';
import { setTimeout as pause } from 'node:timers/promises';
import * as k8s from '@kubernetes/client-node';

const namespace = 'javascript';
const PATIENCE = 60_000;

const config = new k8s.KubeConfig();
config.loadFromDefault();
const core = config.makeApiClient(k8s.CoreV1Api);
const apps = config.makeApiClient(k8s.AppsV1Api);
const batch = config.makeApiClient(k8s.BatchV1Api);

const said = (step) => console.log(`javascript: ${step}`);

/** Looks again and again until there is something to see. */
async function eventually(what, look) {
  for (const deadline = Date.now() + PATIENCE; ; await pause(100)) {
    const seen = await look();
    if (seen) return seen;
    assert(Date.now() < deadline, `in vain: ${what}`);
  }
}

/** The Status of a request that must be refused. */
async function refused(code, request) {
  const answer = await request.catch((error) => error);
  assert.equal(answer?.code, code, `${code} was expected, not ${JSON.stringify(answer)}`);
  return JSON.parse(answer.body);
}

/** Sends what is given as a patch of this kind. */
const as = (kind) => k8s.setHeaderOptions('Content-Type', kind);

const deployment = (name, replicas) => ({
  apiVersion: 'apps/v1',
  kind: 'Deployment',
  metadata: { name, namespace, labels: { app: name } },
  spec: {
    replicas,
    selector: { matchLabels: { app: name } },
    template: {
      metadata: { labels: { app: name } },
      spec: {
        containers: [{ name: 'main', image: 'nginx', resources: { requests: { cpu: '100m', memory: '64Mi' } } }],
      },
    },
  },
});

async function aboutTheServer() {
  const version = await config.makeApiClient(k8s.VersionApi).getCode();
  assert.equal(version.minor, '36');
  const health = new k8s.Health(config);
  assert(await health.readyz({}));
  assert(await health.livez({}));
  const { groups } = await config.makeApiClient(k8s.ApisApi).getAPIVersions();
  assert(groups.some((group) => group.name === 'apps'));
  said('asked what the server is');
}

async function createdListedAndDeleted() {
  await core.createNamespace({ body: { metadata: { name: namespace } } });
  for (const number of [0, 1, 2]) {
    const body = { metadata: { name: `s-${number}`, labels: { kind: 'made' } }, stringData: { number: `${number}` } };
    const made = await core.createNamespacedSecret({ namespace, body });
    assert.equal(made.type, 'Opaque');
    assert.equal(Buffer.from(made.data.number, 'base64').toString(), `${number}`);
    assert(made.metadata.creationTimestamp instanceof Date);
  }
  const again = core.createNamespacedSecret({ namespace, body: { metadata: { name: 's-0' } } });
  assert.equal((await refused(409, again)).reason, 'AlreadyExists');
  const names = [];
  let next;
  do {
    const page = await core.listNamespacedSecret({ namespace, labelSelector: 'kind=made', limit: 2, _continue: next });
    names.push(...page.items.map((each) => each.metadata.name));
    next = page.metadata._continue;
  } while (next);
  assert.deepEqual(names, ['s-0', 's-1', 's-2']);
  const found = await core.readNamespacedSecret({ namespace, name: 's-1' });
  found.immutable = true;
  await core.replaceNamespacedSecret({ namespace, name: 's-1', body: found });
  const stale = core.replaceNamespacedSecret({ namespace, name: 's-1', body: found });
  assert.equal((await refused(409, stale)).reason, 'Conflict');
  await core.deleteNamespacedSecret({ namespace, name: 's-0' });
  assert.equal((await refused(404, core.readNamespacedSecret({ namespace, name: 's-0' }))).details.name, 's-0');
  await core.deleteCollectionNamespacedSecret({ namespace, labelSelector: 'kind' });
  assert.deepEqual((await core.listNamespacedSecret({ namespace, labelSelector: 'kind' })).items, []);
  said('created, listed in pages, replaced and deleted');
}

async function patchedAndApplied() {
  await apps.createNamespacedDeployment({ namespace, body: deployment('patched', 1) });
  const patch = (body, kind, more) =>
    apps.patchNamespacedDeployment({ namespace, name: 'patched', body, ...more }, as(kind));
  const side = { spec: { template: { spec: { containers: [{ name: 'side', image: 'busybox' }] } } } };
  const merged = await patch(side, k8s.PatchStrategy.StrategicMergePatch);
  assert.deepEqual(merged.spec.template.spec.containers.map((each) => each.name), ['side', 'main']);
  const operations = [{ op: 'replace', path: '/spec/replicas', value: 2 }];
  assert.equal((await patch(operations, k8s.PatchStrategy.JsonPatch)).spec.replicas, 2);
  const labels = await patch({ metadata: { labels: { app: null } } }, k8s.PatchStrategy.MergePatch);
  assert.equal(labels.metadata.labels?.app, undefined);

  const owner = { fieldManager: 'javascript' };
  const conflict = patch(deployment('patched', 5), k8s.PatchStrategy.ServerSideApply, owner);
  const fields = (await refused(409, conflict)).details.causes.map((cause) => cause.field);
  assert(fields.includes('.spec.replicas'), fields);
  const forced = await patch(deployment('patched', 5), k8s.PatchStrategy.ServerSideApply, { ...owner, force: true });
  assert.equal(forced.spec.replicas, 5);
  const entry = forced.metadata.managedFields.find((each) => each.manager === 'javascript');
  assert.equal(entry.operation, 'Apply');
  assert(entry.fieldsV1['f:spec']['f:replicas']);
  const broken = apps.createNamespacedDeployment({ namespace, body: deployment('Bad_Name', 1) });
  assert.equal((await refused(422, broken)).details.causes[0].field, 'metadata.name');
  said('patched in three ways, and applied by the server');
}

async function anyKind() {
  const objects = k8s.KubernetesObjectApi.makeApiClient(config);
  const documents = k8s.loadAllYaml(
    [
      { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'any', namespace }, data: { a: '1' } },
      deployment('any', 1),
    ]
      .map(k8s.dumpYaml)
      .join('---\n'),
  );
  for (const document of documents) await objects.create(document);
  assert.equal((await objects.read(documents[1])).spec.replicas, 1);
  const apply = (document) =>
    objects.patch(document, undefined, undefined, 'javascript', true, k8s.PatchStrategy.ServerSideApply);
  assert.deepEqual((await apply({ ...documents[0], data: { a: '2' } })).data, { a: '2' });
  const listed = await objects.list('apps/v1', 'Deployment', namespace);
  assert.deepEqual(listed.items.map((each) => each.metadata.name), ['any', 'patched']);
  for (const document of documents) await objects.delete(document, undefined, undefined, 0, undefined, 'Background');
  await refused(404, objects.read(documents[0]));
  said('wrote objects whatever their kind');
}

async function watchedAndScaled() {
  const seen = [];
  const list = () => apps.listNamespacedDeployment({ namespace, labelSelector: 'app=watched' });
  const path = `/apis/apps/v1/namespaces/${namespace}/deployments`;
  const informer = k8s.makeInformer(config, path, list, 'app=watched');
  for (const verb of ['add', 'update', 'delete']) {
    informer.on(verb, (object) => seen.push([verb, object.status?.readyReplicas ?? 0]));
  }
  informer.on('error', (error) => seen.push(['error', error]));
  await informer.start();
  await apps.createNamespacedDeployment({ namespace, body: deployment('watched', 1) });
  await eventually('one is ready', () => informer.get('watched', namespace)?.status?.readyReplicas === 1);
  const scale = await apps.readNamespacedDeploymentScale({ namespace, name: 'watched' });
  assert.equal(scale.status.selector, 'app=watched');
  scale.spec.replicas = 3;
  await apps.replaceNamespacedDeploymentScale({ namespace, name: 'watched', body: scale });
  await eventually('three are ready', () => informer.get('watched', namespace).status.readyReplicas === 3);
  await apps.deleteNamespacedDeployment({ namespace, name: 'watched', propagationPolicy: 'Foreground' });
  await eventually('it is gone', () => informer.list(namespace).length === 0);
  assert.deepEqual([seen[0][0], seen.at(-1)[0]], ['add', 'delete'], JSON.stringify(seen));
  assert(!seen.some(([verb]) => verb === 'error'), JSON.stringify(seen));
  await informer.stop();

  const events = [];
  const watch = new k8s.Watch(config);
  await new Promise((resolve, reject) => {
    const options = { timeoutSeconds: 1, sendInitialEvents: true, allowWatchBookmarks: true };
    const onEvent = (type, object) => events.push(type === 'BOOKMARK' ? object.metadata.annotations : type);
    const query = { ...options, resourceVersionMatch: 'NotOlderThan' };
    const onEnd = (error) => (error && error !== k8s.Watch.SERVER_SIDE_CLOSE ? reject(error) : resolve());
    watch.watch('/api/v1/nodes', query, onEvent, onEnd);
  });
  assert.deepEqual(events.slice(0, 4), ['ADDED', 'ADDED', 'ADDED', 'ADDED']);
  assert.deepEqual(events[4], { 'k8s.io/initial-events-end': 'true' });
  said('watched a Deployment from its beginning to its end');
}

/** Everything that a stream says until it ends. */
async function text(stream) {
  const parts = [];
  for await (const part of stream) parts.push(part);
  return Buffer.concat(parts).toString();
}

async function podsAndTheirLogs() {
  const annotations = { 'bayplan.dev/logs': 'hello\nworld', 'bayplan.dev/run-for': '2s' };
  const containers = [{ name: 'main', image: 'busybox' }];
  const body = { metadata: { name: 'said', annotations }, spec: { restartPolicy: 'Never', containers } };
  await core.createNamespacedPod({ namespace, body });
  const phase = async () => (await core.readNamespacedPodStatus({ namespace, name: 'said' })).status.phase;
  await eventually('the pod runs', async () => (await phase()) === 'Running');
  const followed = new PassThrough();
  await new k8s.Log(config).log(namespace, 'said', 'main', followed, { follow: true });
  assert.match(await text(followed), /hello\nworld\n/);
  await eventually('the pod ended', async () => (await phase()) === 'Succeeded');
  const log = await core.readNamespacedPodLog({ namespace, name: 'said', limitBytes: 5 });
  assert.equal(log.length, 5);
  const wrong = new k8s.Log(config).log(namespace, 'said', 'none', new PassThrough());
  assert.equal((await wrong.catch((error) => error)).code, 400);

  const running = { metadata: { name: 'runs' }, spec: { containers } };
  await core.createNamespacedPod({ namespace, body: running });
  await eventually('the other pod runs', async () => {
    const pod = await core.readNamespacedPod({ namespace, name: 'runs' });
    return pod.status.conditions?.some((each) => each.type === 'Ready' && each.status === 'True');
  });
  const status = await new Promise((resolve, reject) => {
    const session = new k8s.Exec(config);
    session.exec(namespace, 'runs', 'main', ['ls'], new PassThrough(), null, null, false, resolve).catch(reject);
  });
  assert.match(status.message, /simulated node/);
  const eviction = { metadata: { name: 'runs', namespace }, deleteOptions: { gracePeriodSeconds: 0 } };
  await core.createNamespacedPodEviction({ namespace, name: 'runs', body: eviction });
  await eventually('it is gone', async () => {
    const pods = await core.listNamespacedPod({ namespace, fieldSelector: 'metadata.name=runs' });
    return pods.items.length === 0;
  });
  said('followed the logs of a pod, and evicted another');
}

async function aJobToItsEnd() {
  const template = { spec: { restartPolicy: 'Never', containers: [{ name: 'main', image: 'busybox' }] } };
  const cron = { metadata: { name: 'nightly' }, spec: { schedule: '0 3 * * *', jobTemplate: { spec: { template } } } };
  const { spec, metadata } = await batch.createNamespacedCronJob({ namespace, body: cron });
  const ownerReferences = [{ apiVersion: 'batch/v1', kind: 'CronJob', name: 'nightly', uid: metadata.uid }];
  const body = { metadata: { name: 'now', ownerReferences }, spec: spec.jobTemplate.spec };
  await batch.createNamespacedJob({ namespace, body });
  const status = async () => (await batch.readNamespacedJobStatus({ namespace, name: 'now' })).status;
  await eventually('the Job is complete', async () => (await status()).succeeded === 1);
  await batch.deleteNamespacedCronJob({ namespace, name: 'nightly', propagationPolicy: 'Foreground' });
  await eventually('its Job is gone', async () => (await batch.listNamespacedJob({ namespace })).items.length === 0);
  said('ran a Job of a CronJob');
}

async function whatEverythingUses() {
  assert.equal((await k8s.topNodes(core)).length, 4);
  const metrics = new k8s.Metrics(config);
  const usage = await eventually('usage is known', async () => {
    const pods = await k8s.topPods(core, metrics, namespace);
    return pods.find((each) => each.Pod.metadata.name.startsWith('patched') && Number(each.CPU.CurrentUsage) > 0);
  });
  assert(Number(usage.Memory.CurrentUsage) > 0);
  said('read what pods use');
}

async function end() {
  await core.deleteNamespace({ name: namespace });
  await eventually('the namespace is gone', async () => {
    const namespaces = await core.listNamespace();
    return !namespaces.items.some((each) => each.metadata.name === namespace);
  });
  said('left nothing');
}

await aboutTheServer();
await createdListedAndDeleted();
await patchedAndApplied();
await anyKind();
await watchedAndScaled();
await podsAndTheirLogs();
await aJobToItsEnd();
await whatEverythingUses();
await end();
