//! The plugins that a configuration may name.

use std::collections::BTreeMap;

use serde_json::Value;

use super::AnyPlugin;

/// Builds a plugin from its arguments: the `args` of its `pluginConfig` entry with defaults applied, or null.
pub type Factory = Box<dyn Fn(&Value) -> Result<AnyPlugin, String> + Send + Sync>;

/// The plugins that a configuration may name. `Registry::default()` has all in-tree plugins; out-of-tree plugins are
/// added with [`Registry::register`].
pub struct Registry {
    factories: BTreeMap<String, Factory>,
}

impl Registry {
    /// A registry without any plugin.
    pub fn empty() -> Self {
        Registry { factories: BTreeMap::new() }
    }

    /// Adds a plugin, or replaces the one of the same name.
    pub fn register<F>(&mut self, name: &str, factory: F)
    where
        F: Fn(&Value) -> Result<AnyPlugin, String> + Send + Sync + 'static,
    {
        self.factories.insert(name.to_owned(), Box::new(factory));
    }

    /// The factory of a plugin.
    pub fn get(&self, name: &str) -> Option<&Factory> {
        self.factories.get(name)
    }
}
