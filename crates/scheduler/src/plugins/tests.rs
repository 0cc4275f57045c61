//! What CONTRIBUTING.md says about adding a plugin: a file, a row of the registry, and a table of cases.

use std::path::Path;

use serde_json::Value;

use super::PLUGINS;
use crate::config::Configuration;

/// `node_name` for `NodeName`.
fn module_of(plugin: &str) -> String {
    let mut name = String::new();
    for letter in plugin.chars() {
        if letter.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(letter.to_ascii_lowercase());
    }
    name
}

#[test]
fn every_row_makes_the_plugin_it_names() {
    for (name, constructor) in PLUGINS {
        assert_eq!(constructor(&Value::Null).unwrap().name(), *name);
    }
}

#[test]
fn every_plugin_has_a_file_or_folder_of_its_name_that_ends_with_its_tests() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/plugins");
    for (name, _) in PLUGINS {
        let module = module_of(name);
        let file = folder.join(format!("{module}.rs"));
        let (path, tests_begin) = match file.exists() {
            true => (file, "#[cfg(test)]\nmod tests {"),
            false => (folder.join(&module).join("tests.rs"), ""),
        };
        let text = std::fs::read_to_string(path).unwrap();
        let cases = text.find(tests_begin).map_or("", |at| &text[at..]);
        assert!(cases.contains(&format!("plugin(\"{name}\")")), "{module} has no table of cases for {name}");
    }
}

#[test]
fn every_plugin_of_the_default_profile_is_registered() {
    let configuration = Configuration::default();
    for plugin in &configuration.profiles[0].plugins.multi_point.enabled {
        assert!(PLUGINS.iter().any(|(name, _)| *name == plugin.name), "{} is not registered", plugin.name);
    }
}

#[test]
fn rows_are_sorted_by_name() {
    assert!(PLUGINS.iter().is_sorted_by_key(|(name, _)| *name));
}
