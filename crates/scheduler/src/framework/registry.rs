//! Which plugins exist, by name.

use std::collections::BTreeMap;

use serde_json::Value;

use super::AnyPlugin;

/// Makes a plugin from its arguments: the `args` of its `pluginConfig` entry with defaults applied, or null.
pub type Factory = Box<dyn Fn(&Value) -> Result<AnyPlugin, String> + Send + Sync>;

/// All plugins that a configuration may name. Library users add their own.
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

impl Default for Registry {
    /// All plugins of this crate.
    fn default() -> Self {
        let mut registry = Registry::empty();
        crate::plugins::register(&mut registry);
        registry
    }
}
