//! A profile: the plugins of one `schedulerName`, in their order at every extension point.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::config::{PluginSet, Plugins, ProfileConfig};
use crate::extender::{EXTENDER, Extender, ExtenderRejections, Extenders};
use crate::framework::{
    AnyPlugin, ClusterEvent, ClusterWaits, EventRegistration, ExtensionPoints, MAX_NODE_SCORE, PluginName, Registry,
};
use crate::metrics::{ProfileMetrics, Stopwatch};

/// Why a profile cannot be built.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// A plugin is not registered.
    #[error("{interface} {name:?} does not exist")]
    Unknown {
        /// Upstream's interface of the extension point.
        interface: &'static str,
        /// The plugin's name.
        name: String,
    },
    /// A plugin is enabled at an extension point that it does not implement.
    #[error("plugin {name:?} does not extend {interface} plugin")]
    DoesNotExtend {
        /// The plugin's name.
        name: String,
        /// Upstream's interface of the extension point.
        interface: &'static str,
    },
    /// A plugin is enabled twice at one extension point.
    #[error("plugin {name:?} already registered as {interface:?}")]
    Duplicate {
        /// The plugin's name.
        name: String,
        /// Upstream's interface of the extension point.
        interface: &'static str,
    },
    /// A plugin refused its arguments.
    #[error("initializing plugin {name:?}: {error}")]
    Initialize {
        /// The plugin's name.
        name: String,
        /// The plugin's error.
        error: String,
    },
    /// A plugin has two entries in `pluginConfig`.
    #[error("repeated config for plugin {0}")]
    RepeatedConfig(String),
    /// There is not exactly one QueueSort plugin.
    #[error("only one queue sort plugin required for profile with scheduler name {name:?}, but got {count}")]
    QueueSort {
        /// The profile's `schedulerName`.
        name: String,
        /// The number of QueueSort plugins.
        count: usize,
    },
    /// There is no Bind plugin.
    #[error("at least one bind plugin is needed for profile with scheduler name {0:?}")]
    NoBind(String),
    /// The weights of the Score plugins could overflow.
    #[error("{0} plugins: total score of Score plugins could overflow")]
    Overflow(&'static str),
}

/// All extension points, in the order in which `multiPoint` is expanded.
const POINTS: [ExtensionPoints; 14] = [
    ExtensionPoints::PRE_FILTER,
    ExtensionPoints::FILTER,
    ExtensionPoints::POST_FILTER,
    ExtensionPoints::RESERVE,
    ExtensionPoints::PRE_SCORE,
    ExtensionPoints::SCORE,
    ExtensionPoints::PRE_BIND,
    ExtensionPoints::BIND,
    ExtensionPoints::POST_BIND,
    ExtensionPoints::PERMIT,
    ExtensionPoints::PRE_ENQUEUE,
    ExtensionPoints::QUEUE_SORT,
    ExtensionPoints::PLACEMENT_GENERATE,
    ExtensionPoints::PLACEMENT_SCORE,
];

/// The plugins of one `schedulerName`.
pub struct Profile {
    /// The `schedulerName`.
    pub name: String,
    /// `percentageOfNodesToScore` of the profile.
    pub percentage: Option<i32>,
    plugins: Vec<AnyPlugin>,
    /// The extension points at which each plugin is enabled.
    points: Vec<ExtensionPoints>,
    /// The plugins that run after the decision.
    after_decision: Vec<usize>,
    /// The plugins that may have pods tried again.
    activating: Vec<usize>,
    /// The plugins at each extension point, in the order of [`POINTS`].
    order: [Vec<usize>; POINTS.len()],
    weights: Vec<i64>,
    placement_weights: Vec<i64>,
    /// The plugins that can reject pods, with their index and their registrations.
    registrations: BTreeMap<PluginName, (usize, Vec<EventRegistration>)>,
    extenders: Extenders,
    /// All events for which any plugin registered, each once.
    registered_events: Vec<ClusterEvent>,
    /// Where the profile reports its metrics.
    pub(crate) metrics: Option<ProfileMetrics>,
    /// What its binding cycles wait for.
    pub(crate) waits: ClusterWaits,
}

impl Profile {
    /// Builds a profile from its completed configuration.
    pub fn build(config: &ProfileConfig, registry: &Registry) -> Result<Self, Error> {
        let plugins = instantiate(config, registry)?;
        let name = config.scheduler_name.clone().unwrap_or_default();
        let mut order: [Vec<usize>; POINTS.len()] = Default::default();
        for (slot, point) in order.iter_mut().zip(POINTS) {
            *slot = specific(&plugins, &config.plugins, point)?;
        }
        for (slot, point) in order.iter_mut().zip(POINTS) {
            *slot = expand(&plugins, &config.plugins, point, std::mem::take(slot))?;
        }
        let weights_at = |point| weights(&plugins, &config.plugins, point);
        let (weights, placement_weights) =
            (weights_at(ExtensionPoints::SCORE)?, weights_at(ExtensionPoints::PLACEMENT_SCORE)?);
        let registrations = registrations(&plugins);
        let points: Vec<ExtensionPoints> = (0..plugins.len())
            .map(|at| {
                let enabled = POINTS.into_iter().zip(&order).filter(|(_, order)| order.contains(&at));
                enabled.fold(ExtensionPoints::default(), |all, (point, _)| all.union(point))
            })
            .collect();
        let later = ExtensionPoints::RESERVE
            .union(ExtensionPoints::PERMIT)
            .union(ExtensionPoints::PRE_BIND)
            .union(ExtensionPoints::BIND)
            .union(ExtensionPoints::POST_BIND);
        let registered_events = registered_events(&registrations);
        let profile = Profile {
            after_decision: (0..plugins.len())
                .filter(|at| points[*at].intersects(later) || plugins[*at].activates_pods())
                .collect(),
            activating: (0..plugins.len()).filter(|at| plugins[*at].activates_pods()).collect(),
            points,
            name,
            percentage: config.percentage_of_nodes_to_score,
            plugins,
            order,
            weights,
            placement_weights,
            registrations,
            extenders: Extenders::default(),
            registered_events,
            metrics: None,
            waits: ClusterWaits::default(),
        };
        match profile.at(ExtensionPoints::QUEUE_SORT).len() {
            1 => {}
            count => return Err(Error::QueueSort { name: profile.name, count }),
        }
        if profile.at(ExtensionPoints::BIND).is_empty() {
            return Err(Error::NoBind(profile.name));
        }
        Ok(profile)
    }

    /// Adds extenders.
    pub(crate) fn with_extenders(mut self, extenders: Extenders) -> Self {
        if !extenders.is_empty() {
            let stand_in = AnyPlugin::new(ExtenderRejections);
            self.registrations.insert(EXTENDER, (self.plugins.len(), stand_in.events_to_register()));
            self.plugins.push(stand_in);
            self.points.push(ExtensionPoints::default());
            self.weights.push(0);
            self.placement_weights.push(0);
            self.registered_events = registered_events(&self.registrations);
        }
        self.extenders = extenders;
        self
    }

    /// The extenders, in order.
    pub fn extenders(&self) -> &Extenders {
        &self.extenders
    }

    /// Times an extension point, if there are metrics.
    pub(crate) fn stopwatch(&self) -> Stopwatch<'_> {
        Stopwatch::start(self.metrics.as_ref())
    }

    /// Times a plugin in a cycle that is sampled.
    pub(crate) fn stopwatch_if(&self, sampled: bool) -> Stopwatch<'_> {
        Stopwatch::start(self.metrics.as_ref().filter(|_| sampled))
    }

    /// The indexes of the plugins at an extension point, in order.
    pub(crate) fn at(&self, point: ExtensionPoints) -> &[usize] {
        let at = POINTS.iter().position(|p| *p == point).expect("callers name single points");
        &self.order[at]
    }

    /// The names and weights of the plugins at an extension point, in order.
    pub fn enabled(&self, point: ExtensionPoints) -> Vec<(PluginName, i64)> {
        self.at(point).iter().map(|&i| (self.plugins[i].name(), self.weights[i])).collect()
    }

    pub(crate) fn plugin(&self, at: usize) -> &AnyPlugin {
        &self.plugins[at]
    }

    /// A plugin by name.
    pub fn named(&self, name: &str) -> Option<&AnyPlugin> {
        self.plugins.iter().find(|plugin| plugin.name() == name)
    }

    pub(crate) fn plugins(&self) -> &[AnyPlugin] {
        &self.plugins
    }

    /// The extension points at which a plugin is enabled.
    pub(crate) fn points_of(&self, plugin: usize) -> ExtensionPoints {
        self.points[plugin]
    }

    /// The indexes of the plugins that reserve, permit or bind.
    pub(crate) fn plugins_after_decision(&self) -> &[usize] {
        &self.after_decision
    }

    /// The indexes of the plugins that may have pods tried again.
    pub(crate) fn activating_plugins(&self) -> &[usize] {
        &self.activating
    }

    pub(crate) fn weight(&self, plugin: usize) -> i64 {
        self.weights[plugin]
    }

    /// The QueueSort plugin.
    pub(crate) fn queue_sort(&self) -> &AnyPlugin {
        &self.plugins[self.at(ExtensionPoints::QUEUE_SORT)[0]]
    }

    /// The plugins of every extension point that has any, in order; with weights where they score.
    pub fn expanded(&self) -> impl Iterator<Item = (ExtensionPoints, Vec<(PluginName, Option<i64>)>)> {
        POINTS.into_iter().zip(&self.order).filter(|(_, order)| !order.is_empty()).map(|(point, order)| {
            let weight = |at: usize| match point {
                ExtensionPoints::SCORE => Some(self.weights[at]),
                ExtensionPoints::PLACEMENT_SCORE => Some(self.placement_weights[at]),
                _ => None,
            };
            (point, order.iter().map(|&at| (self.plugins[at].name(), weight(at))).collect())
        })
    }

    /// False when the first feasible node is chosen, because nothing scores.
    pub(crate) fn needs_choice(&self) -> bool {
        let chooses = |extender: &Arc<dyn Extender>| {
            let config = extender.config();
            config.is_filter() || config.is_prioritizer()
        };
        !self.at(ExtensionPoints::SCORE).is_empty() || self.extenders.iter().any(chooses)
    }

    /// A plugin and its registrations; none for a plugin that cannot reject pods.
    pub fn registrations(&self, plugin: &str) -> Option<(&AnyPlugin, &[EventRegistration])> {
        self.registrations.get(plugin).map(|(at, list)| (&self.plugins[*at], list.as_slice()))
    }

    /// True when any plugin is registered for the event.
    pub(crate) fn is_registered(&self, event: &ClusterEvent) -> bool {
        self.registered_events.iter().any(|registered| registered.covers(event))
    }
}

/// Builds every plugin that is enabled anywhere, once.
fn instantiate(config: &ProfileConfig, registry: &Registry) -> Result<Vec<AnyPlugin>, Error> {
    let mut args: BTreeMap<&str, &Value> = BTreeMap::new();
    for entry in &config.plugin_config {
        if args.insert(&entry.name, &entry.args).is_some() {
            return Err(Error::RepeatedConfig(entry.name.clone()));
        }
    }
    let mut plugins: Vec<AnyPlugin> = Vec::new();
    let everywhere = POINTS.iter().map(|point| config.plugins.set(*point)).chain([&config.plugins.multi_point]);
    for name in everywhere.flat_map(|set| &set.enabled).map(|plugin| plugin.name.as_str()) {
        if plugins.iter().any(|plugin| plugin.name() == name) {
            continue;
        }
        // An unknown name is reported by the extension point that names it.
        let Some(factory) = registry.get(name) else { continue };
        let plugin = factory(args.get(name).copied().unwrap_or(&Value::Null))
            .map_err(|error| Error::Initialize { name: name.to_owned(), error })?;
        plugins.push(plugin);
    }
    Ok(plugins)
}

fn find(plugins: &[AnyPlugin], name: &str, interface: &'static str) -> Result<usize, Error> {
    let at = plugins.iter().position(|plugin| plugin.name() == name);
    at.ok_or_else(|| Error::Unknown { interface, name: name.to_owned() })
}

/// The plugins named at the extension point itself.
fn specific(plugins: &[AnyPlugin], config: &Plugins, point: ExtensionPoints) -> Result<Vec<usize>, Error> {
    let interface = point.interface();
    let mut order = Vec::new();
    for entry in &config.set(point).enabled {
        let at = find(plugins, &entry.name, interface)?;
        if !plugins[at].extension_points().contains(point) {
            return Err(Error::DoesNotExtend { name: entry.name.clone(), interface });
        }
        if order.contains(&at) {
            return Err(Error::Duplicate { name: entry.name.clone(), interface });
        }
        order.push(at);
    }
    Ok(order)
}

/// Adds the plugins of `multiPoint`: first those that also have a specific entry, then the others, then the rest.
fn expand(
    plugins: &[AnyPlugin],
    config: &Plugins,
    point: ExtensionPoints,
    named: Vec<usize>,
) -> Result<Vec<usize>, Error> {
    let interface = point.interface();
    let PluginSet { disabled, .. } = config.set(point);
    if disabled.iter().any(|plugin| plugin.name == "*") {
        return Ok(named);
    }
    let mut overriding = Vec::new();
    let mut added: Vec<usize> = Vec::new();
    for entry in &config.multi_point.enabled {
        let at = find(plugins, &entry.name, interface)?;
        if !plugins[at].extension_points().contains(point) || disabled.iter().any(|plugin| plugin.name == entry.name) {
            continue;
        }
        if named.contains(&at) {
            overriding.push(at);
        } else if added.contains(&at) {
            return Err(Error::Duplicate { name: entry.name.clone(), interface });
        } else {
            added.push(at);
        }
    }
    let (first, last): (Vec<usize>, Vec<usize>) = named.into_iter().partition(|at| overriding.contains(at));
    Ok(first.into_iter().chain(added).chain(last).collect())
}

/// The weights of the plugins: of the first entry at the extension point or in `multiPoint`; 0 means 1.
fn weights(plugins: &[AnyPlugin], config: &Plugins, point: ExtensionPoints) -> Result<Vec<i64>, Error> {
    let mut weights = vec![0; plugins.len()];
    let mut total: i64 = 0;
    for entry in config.set(point).enabled.iter().chain(&config.multi_point.enabled) {
        let Some(at) = plugins.iter().position(|plugin| plugin.name() == entry.name) else { continue };
        if weights[at] != 0 || !plugins[at].extension_points().contains(point) {
            continue;
        }
        weights[at] = match entry.weight.unwrap_or(0) {
            0 => 1,
            weight => i64::from(weight),
        };
        let most = weights[at].saturating_mul(MAX_NODE_SCORE);
        // Upstream's subtraction wraps: after a negative weight every further weight overflows.
        if most > i64::MAX.wrapping_sub(total) {
            return Err(Error::Overflow(if point == ExtensionPoints::SCORE { "score" } else { "placement score" }));
        }
        total += most;
    }
    Ok(weights)
}

fn registrations(plugins: &[AnyPlugin]) -> BTreeMap<PluginName, (usize, Vec<EventRegistration>)> {
    let rejecting = [
        ExtensionPoints::PRE_ENQUEUE,
        ExtensionPoints::PRE_FILTER,
        ExtensionPoints::FILTER,
        ExtensionPoints::RESERVE,
        ExtensionPoints::PERMIT,
    ];
    let mut all = BTreeMap::new();
    for (at, plugin) in plugins.iter().enumerate() {
        if rejecting.iter().any(|point| plugin.extension_points().contains(*point)) {
            all.insert(plugin.name(), (at, with_taints(plugin.events_to_register())));
        }
    }
    all
}

/// All events for which any plugin registered, each once.
fn registered_events(registrations: &BTreeMap<PluginName, (usize, Vec<EventRegistration>)>) -> Vec<ClusterEvent> {
    let mut registered: Vec<ClusterEvent> = Vec::new();
    for registration in registrations.values().flat_map(|(_, list)| list) {
        if !registered.contains(&registration.event) {
            registered.push(registration.event);
        }
    }
    registered
}

/// Upstream registers plugins that register for new nodes for changed taints, too: NodeUnschedulable and
/// TaintToleration may hide a node until its taints are removed.
fn with_taints(mut list: Vec<EventRegistration>) -> Vec<EventRegistration> {
    use crate::framework::{EventResource, action};
    let on_nodes = |bit: u32| list.iter().any(|r| r.event.resource == EventResource::Node && r.event.action & bit != 0);
    if on_nodes(action::ADD) && !on_nodes(action::UPDATE_NODE_TAINT) {
        list.push(EventRegistration::always(EventResource::Node, action::UPDATE_NODE_TAINT));
    }
    list
}
